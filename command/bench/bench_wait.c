/* bench_wait.c - rondo bench wait: times replays from their launch until the host sees their end, for each way to wait.
 * The work takes 1 us to 10 ms. It is that of one thread, or products that all threads of the host backend share; a
 * thread that spins while it waits may then slow them down. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "bench.h"
#include "spin.h"
#include "timing.h"

enum { COLUMNS = 2048, ROWS_MOST = 2048, TURNS = 10 };

struct options {
  rondo_backend backend;
  int64_t samples;
  int32_t threads;
  double seconds; /* the most time of each measurement */
  const char *json;
};

/* ---- Work -------------------------------------------------------------------------------------------------------- */

struct work {
  const char *name;
  uint64_t spin_ns;    /* of one thread; 0: products */
  int32_t rows, count; /* of the matrix; and the number of successive products */
};

static const struct work works[] = {
    {"one thread, 1 us", 1000, 0, 0},
    {"one thread, 10 us", 10000, 0, 0},
    {"one thread, 30 us", 30000, 0, 0},
    {"one thread, 100 us", 100000, 0, 0},
    {"one thread, 1 ms", 1000000, 0, 0},
    {"one thread, 10 ms", 10000000, 0, 0},
    {"16 x 2048", 0, 16, 1},
    {"64 x 2048", 0, 64, 1},
    {"128 x 2048", 0, 128, 1},
    {"256 x 2048", 0, 256, 1},
    {"512 x 2048", 0, 512, 1},
    {"2048 x 2048", 0, 2048, 1},
    {"12 times 2048 x 2048", 0, 2048, 12},
    {"120 times 2048 x 2048", 0, 2048, 120},
};
enum { WORKS = sizeof works / sizeof *works };

static void products_add(rondo_graph *graph, const struct work *work) {
  rondo_tensor weights, vector, out;
  TRY(rondo_state(graph, "weights", RONDO_BF16, 2, (int64_t[]){work->rows, COLUMNS}, &weights));
  TRY(rondo_state(graph, "vector", RONDO_BF16, 2, (int64_t[]){1, COLUMNS}, &vector));
  TRY(rondo_state(graph, "out", RONDO_F32, 2, (int64_t[]){1, work->rows}, &out));
  for (int32_t i = 0; i < work->count; i++)
    TRY(rondo_add_gemv(graph, &(rondo_gemv_desc){.weights = weights, .vectors = vector, .out = out}));
}

/* ---- Ways to wait ------------------------------------------------------------------------------------------------ */

struct way {
  const char *name;
  rondo_wait_mode mode;
  bool polls; /* waits in poll for a notice, as services do */
};

/* The last way is the default. */
static const struct way ways[] = {
    {"spin", RONDO_WAIT_SPIN, false},
    {"block", RONDO_WAIT_BLOCK, false},
    {"a notice, by poll", RONDO_WAIT_SPIN_YIELD, true},
    {"default", RONDO_WAIT_SPIN_YIELD, false},
};
enum { WAYS = sizeof ways / sizeof *ways };

struct subject {
  rondo_graph *graph;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_slot slot;
  int notices; /* -1: none */
};

static void subject_open(struct subject *s, const struct options *options, const struct work *work,
                         const struct way *way) {
  rondo_plan plan;
  TRY(rondo_graph_create(NULL, &(rondo_graph_limits){.tasks = 256}, &s->graph));
  if (work->spin_ns)
    spin_add(s->graph, 1, work->spin_ns, work->spin_ns);
  else
    products_add(s->graph, work);
  TRY(rondo_plan_graph(s->graph, &plan));
  TRY(rondo_open(&(rondo_options){.backend = options->backend,
                                  .device_bytes = plan.device_bytes,
                                  .pinned_bytes = plan.pinned_bytes_per_slot,
                                  .host_bytes = plan.host_bytes,
                                  .host_threads = (uint32_t)options->threads,
                                  .wait_mode = way->mode},
                 &s->runtime));
  TRY(rondo_instantiate(s->runtime, s->graph, NULL, &s->exec));
  TRY(rondo_acquire(s->exec, &s->slot));
  s->notices = way->polls ? eventfd(0, EFD_CLOEXEC) : -1;
  if (way->polls) TRY(rondo_notify(s->slot, s->notices));
}

static void subject_close(struct subject *s) {
  TRY(rondo_release(s->slot));
  if (s->notices >= 0) close(s->notices);
  TRY(rondo_close_exec(&s->exec));
  TRY(rondo_close(&s->runtime));
  TRY(rondo_graph_destroy(&s->graph));
}

static void replay_once(const struct subject *s) {
  uint64_t count;
  TRY(rondo_replay(s->slot));
  if (s->notices >= 0) {
    while (poll(&(struct pollfd){s->notices, POLLIN, 0}, 1, -1) != 1) continue;
    if (read(s->notices, &count, sizeof count) < 0) return;
  }
  TRY(rondo_wait(s->slot, RONDO_FOREVER));
}

/* ---- Measurements ------------------------------------------------------------------------------------------------ */

/* Each series has its own runtime: a runtime that spins occupies a core while it is open. */
static void take_turn(const struct options *options, const struct work *work, const struct way *way,
                      struct samples *samples) {
  struct subject s;
  subject_open(&s, options, work, way);
  uint64_t begin = timing_now_ns(), limit = (uint64_t)(options->seconds * 1e9 / TURNS), end = begin + limit;
  for (int i = 0; i < 100 && timing_now_ns() < begin + limit / 5; i++) replay_once(&s);
  size_t before = samples->count, most = before + samples->capacity / TURNS;
  while (samples->count < most && (timing_now_ns() < end || samples->count == before)) {
    uint64_t launched = timing_now_ns();
    replay_once(&s);
    samples_add(samples, timing_now_ns() - launched);
  }
  subject_close(&s);
}

/* Alternates between all ways, so that other programs disturb all equally. */
static void measure(const struct options *options, struct report *report, const struct work *work) {
  struct samples samples[WAYS];
  char name[96];
  double best = 0;
  for (int w = 0; w < WAYS; w++) samples[w] = samples_take((size_t)(options->samples + TURNS - 1));
  for (int turn = 0; turn < TURNS; turn++)
    for (int w = 0; w < WAYS; w++) take_turn(options, work, &ways[w], &samples[w]);
  for (int w = 0; w < WAYS; w++) {
    double p50 = samples_us(&samples[w], 50);
    snprintf(name, sizeof name, "%s: %s", work->name, ways[w].name);
    report_samples(report, name, &samples[w]);
    if (w < WAYS - 1 && (w == 0 || p50 < best)) best = p50;
  }
  report_ratio(report, "  p50 of the default to that of the best other way", samples_us(&samples[WAYS - 1], 50), best,
               "us", 1.1);
  for (int w = 0; w < WAYS; w++) samples_free(&samples[w]);
}

static const struct argument arguments[] = {
    BACKEND_ARGUMENT(struct options),
    {.name = "samples",
     .help = "the most replays of each way; default 2000",
     .kind = VALUE_INT64,
     .offset = offsetof(struct options, samples),
     .least = 10,
     .most = 1e7},
    {.name = "seconds",
     .help = "the most seconds of each way; default 1",
     .kind = VALUE_DOUBLE,
     .offset = offsetof(struct options, seconds),
     .least = 0.01,
     .most = 3600},
    {.name = "threads",
     .help = "threads of the host backend; default 0: one for each core",
     .kind = VALUE_INT32,
     .offset = offsetof(struct options, threads),
     .least = 0,
     .most = 1024},
    JSON_ARGUMENT(struct options),
};

int bench_wait(int count, char **words) {
  static const struct grammar grammar = {
      .program = "rondo bench wait",
      .about = "Times replays from the launch until the host sees their end, by each way to wait, for work from 1 us\n"
               "to 10 ms.\n",
      .status = BENCH_STATUS,
      .options = ARGUMENT_TABLE(arguments)};
  struct options options = {.samples = 2000, .seconds = 1};
  struct report report = {0};
  rondo_runtime *runtime;
  rondo_info info;
  int done = arguments_read(&grammar, count, words, &options, NULL);
  if (done != ARGUMENTS_READ) return done;
  TRY(rondo_open(&(rondo_options){.backend = options.backend, .host_threads = (uint32_t)options.threads}, &runtime));
  TRY(rondo_runtime_info(runtime, &info));
  report_begin(&report, options.json);
  report_machine(&report, &info);
  TRY(rondo_close(&runtime));
  for (int i = 0; i < WORKS; i++) measure(&options, &report, &works[i]);
  return report_end(&report);
}
