/* bench_lanes.c - rondo bench lanes: times replays of ten small tasks while another lane's work fills the GPU.
 *
 * A replay starts every 30 us, and the program waits for it. The times with the other work alternate with times without
 * it. The ten tasks have multiprocessors of their own, or a higher priority, or the same lane. The other work is an
 * exec that another thread replays: thread blocks that wait for 20, 200 or 2000 us, more of them than the other
 * multiprocessors hold, or copies that use all of the memory's bandwidth. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "spin.h"
#include "timing.h"

enum {
  TASKS = 10,
  TINY = 2048,
  PAUSE_NS = 30 * 1000,
  NEIGHBOUR_US = 5000, /* about the time of a replay of the other work */
  SPINS_EACH = 2,      /* blocks that a multiprocessor holds */
  COPIES = 16,
  TURNS = 10,
};
static const int64_t copy_bytes = INT64_C(128) << 20;

struct options {
  rondo_backend backend;
  int64_t samples;
  double seconds;  /* the most time of each measurement */
  uint32_t wanted; /* bits of sharings; 0: all */
  const char *json;
};

/* ---- Graphs ------------------------------------------------------------------------------------------------------ */

static rondo_graph *graph_make(void) {
  rondo_graph *graph;
  TRY(rondo_graph_create(NULL, NULL, &graph));
  return graph;
}

static rondo_tensor state(rondo_graph *graph, int64_t bytes) {
  rondo_tensor tensor;
  TRY(rondo_state(graph, "state", RONDO_U8, 1, &bytes, &tensor));
  return tensor;
}

static rondo_graph *copies(int count, int64_t bytes) {
  rondo_graph *graph = graph_make();
  rondo_tensor from = state(graph, bytes), to = state(graph, bytes);
  for (int i = 0; i < count; i++)
    TRY(rondo_add_copy(graph, &(rondo_copy_desc){.src = i % 2 ? to : from, .dst = i % 2 ? from : to}));
  return graph;
}

static rondo_graph *spins(uint64_t block_us, int32_t multiprocessors) {
  rondo_graph *graph = graph_make();
  uint64_t waves = NEIGHBOUR_US / block_us + 1, ns = block_us * 1000;
  spin_add(graph, (uint32_t)(multiprocessors * SPINS_EACH) * (uint32_t)waves, ns, waves * ns);
  return graph;
}

/* ---- One measurement --------------------------------------------------------------------------------------------- */

/* The other work. A thread keeps two replays in flight, one after the other, or lets both end. */
struct neighbour {
  rondo_exec *exec;
  rondo_slot slots[2];
  pthread_t thread;
  atomic_bool wanted, stop; /* the requests to the thread */
  atomic_bool runs;         /* its state */
};

static void *neighbour_run(void *argument) {
  struct neighbour *neighbour = argument;
  while (!atomic_load(&neighbour->stop)) {
    bool wanted = atomic_load(&neighbour->wanted);
    for (int i = 0; i < 2; i++) {
      TRY(rondo_wait(neighbour->slots[i], RONDO_FOREVER));
      if (wanted) TRY(rondo_replay(neighbour->slots[i]));
    }
    atomic_store(&neighbour->runs, wanted);
    if (!wanted) timing_sleep_ns(100000);
  }
  for (int i = 0; i < 2; i++) TRY(rondo_wait(neighbour->slots[i], RONDO_FOREVER));
  return NULL;
}

static void neighbour_start(struct neighbour *neighbour, rondo_runtime *runtime, rondo_graph *graph, uint32_t lane) {
  *neighbour = (struct neighbour){0};
  TRY(rondo_instantiate(runtime, graph, &(rondo_exec_options){.slots = 2, .lane = lane}, &neighbour->exec));
  for (int i = 0; i < 2; i++) TRY(rondo_acquire(neighbour->exec, &neighbour->slots[i]));
  TRY(rondo_graph_destroy(&graph));
  if (pthread_create(&neighbour->thread, NULL, neighbour_run, neighbour)) exit(1);
}

static void neighbour_ask(struct neighbour *neighbour, bool wanted) {
  atomic_store(&neighbour->wanted, wanted);
  while (atomic_load(&neighbour->runs) != wanted) continue;
}

static void neighbour_end(struct neighbour *neighbour) {
  atomic_store(&neighbour->stop, true);
  pthread_join(neighbour->thread, NULL);
  for (int i = 0; i < 2; i++) TRY(rondo_release(neighbour->slots[i]));
  TRY(rondo_close_exec(&neighbour->exec));
}

/* A series of replays. */
static void take_turn(const struct options *options, const char *name, rondo_slot slot, struct samples *samples) {
  uint64_t end = timing_now_ns() + (uint64_t)(options->seconds * 1e9 / TURNS);
  size_t most = samples->count + (size_t)options->samples / TURNS + 1;
  for (int i = 0; i < 100 && timing_now_ns() < end; i++) { /* until caches and clocks are steady */
    TRY(rondo_replay(slot));
    TRY(rondo_wait(slot, RONDO_FOREVER));
  }
  while (samples->count < most && samples->count < samples->capacity && (timing_now_ns() < end || !samples->count)) {
    uint64_t begin = timing_now_ns();
    TRY(rondo_replay(slot));
    TRY(rondo_wait(slot, RONDO_FOREVER));
    uint64_t done = timing_now_ns();
    samples_add(samples, done - begin);
    while (timing_now_ns() - done < PAUSE_NS) continue;
    if (samples->count % 100 == 0) progress(name, samples->count, samples->capacity);
  }
}

/* ---- One way to share the GPU ------------------------------------------------------------------------------------ */

struct sharing {
  const char *name;
  rondo_lane lanes[2]; /* of the ten tasks, and of the other work */
  uint32_t lane_count;
  double limit; /* the most of: p99 beside the other work / p99 alone */
};

static const struct sharing sharings[] = {
    {"8 multiprocessors of its own",
     {{.name = "quick", .multiprocessors = 8, .priority = 5}, {.name = "bulk"}},
     2,
     1.25},
    {"16 multiprocessors of its own",
     {{.name = "quick", .multiprocessors = 16, .priority = 5}, {.name = "bulk"}},
     2,
     1.25},
    {"32 multiprocessors of its own",
     {{.name = "quick", .multiprocessors = 32, .priority = 5}, {.name = "bulk"}},
     2,
     1.25},
    {"a higher priority", {{.name = "quick", .priority = 5}, {.name = "bulk"}}, 2, 0},
    {"the same lane", {{.name = "all"}}, 1, 0},
};
enum { SHARINGS = sizeof sharings / sizeof *sharings };

static rondo_runtime *open_with(const struct options *options, const struct sharing *sharing) {
  rondo_runtime *runtime;
  TRY(rondo_open(&(rondo_options){.backend = options->backend,
                                  .device_bytes = 2 * (uint64_t)copy_bytes + (16 << 20),
                                  .pinned_bytes = 1 << 20,
                                  .wait_mode = RONDO_WAIT_SPIN,
                                  .lanes = sharing->lanes,
                                  .lane_count = sharing->lane_count},
                 &runtime));
  return runtime;
}

/* Alternates between alone and beside, so that other programs disturb both equally. */
static void beside(const struct options *options, struct report *report, const struct sharing *sharing,
                   rondo_runtime *runtime, rondo_slot slot, uint64_t block_us) {
  char name[96];
  rondo_info info;
  rondo_lane_grant grant;
  uint32_t lane = sharing->lane_count - 1;
  TRY(rondo_runtime_info(runtime, &info));
  TRY(rondo_lane_info(runtime, lane, &grant));
  bool on_host = info.backend == RONDO_BACKEND_HOST;
  if (on_host && !block_us) return; /* copies do not fill the host's memory bandwidth */
  struct neighbour neighbour;
  neighbour_start(&neighbour, runtime, block_us ? spins(block_us, grant.multiprocessors) : copies(COPIES, copy_bytes),
                  lane);
  if (block_us)
    snprintf(name, sizeof name, "  beside blocks of %u us", (unsigned)block_us);
  else
    snprintf(name, sizeof name, "  beside copies of %d MB", (int)(copy_bytes >> 20));
  struct samples alone = samples_take((size_t)options->samples), shared = samples_take((size_t)options->samples);
  for (int turn = 0; turn < TURNS; turn++) {
    neighbour_ask(&neighbour, false);
    take_turn(options, name, slot, &alone);
    neighbour_ask(&neighbour, true);
    take_turn(options, name, slot, &shared);
  }
  report_samples(report, "  alone, alternating with the next line", &alone);
  report_samples(report, name, &shared);
  report_ratio(report, "    p99 to its p99 alone", samples_us(&shared, 99), samples_us(&alone, 99), "us",
               on_host || !block_us ? 0 : sharing->limit);
  samples_free(&alone);
  samples_free(&shared);
  neighbour_end(&neighbour);
}

static void share(const struct options *options, struct report *report, const struct sharing *sharing) {
  rondo_runtime *runtime = open_with(options, sharing);
  rondo_graph *graph = copies(TASKS, TINY);
  rondo_exec *exec;
  rondo_slot slot;
  rondo_lane_grant grant;
  TRY(rondo_lane_info(runtime, 0, &grant));
  TRY(rondo_instantiate(runtime, graph, NULL, &exec));
  TRY(rondo_acquire(exec, &slot));
  report_heading(report, sharing->name, grant.multiprocessors);
  static const uint64_t blocks_us[] = {20, 200, 2000, 0};
  for (size_t i = 0; i < sizeof blocks_us / sizeof *blocks_us; i++)
    beside(options, report, sharing, runtime, slot, blocks_us[i]);
  TRY(rondo_release(slot));
  TRY(rondo_close_exec(&exec));
  TRY(rondo_graph_destroy(&graph));
  TRY(rondo_close(&runtime));
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

/* In the order of the table. */
static const struct choice sharing_names[] = {{"own-8", 1},    {"own-16", 2}, {"own-32", 4},
                                              {"priority", 8}, {"same", 16},  {NULL, 0}};
_Static_assert(sizeof sharing_names / sizeof *sharing_names == SHARINGS + 1, "a name for each");

static const struct argument arguments[] = {
    BACKEND_ARGUMENT(struct options),
    {.name = "samples",
     .help = "the most samples of each measurement; default 20000",
     .kind = VALUE_INT64,
     .offset = offsetof(struct options, samples),
     .least = 1,
     .most = 1e7},
    {.name = "seconds",
     .help = "the most seconds of each measurement; default 2",
     .kind = VALUE_DOUBLE,
     .offset = offsetof(struct options, seconds),
     .least = 0.01,
     .most = 3600},
    {.name = "only",
     .help = "only this way to share the device; may be repeated",
     .kind = VALUE_CHOICES,
     .offset = offsetof(struct options, wanted),
     .choices = sharing_names},
    JSON_ARGUMENT(struct options),
};

int bench_lanes(int count, char **words) {
  static const struct grammar grammar = {
      .program = "rondo bench lanes",
      .about = "Times replays of ten small tasks while work of another lane fills the device.\n",
      .status = BENCH_STATUS,
      .options = ARGUMENT_TABLE(arguments)};
  struct options options = {.samples = 20000, .seconds = 2};
  struct report report = {0};
  int done = arguments_read(&grammar, count, words, &options, NULL);
  if (done != ARGUMENTS_READ) return done;
  rondo_runtime *runtime = open_with(&options, &sharings[SHARINGS - 1]);
  rondo_info info;
  TRY(rondo_runtime_info(runtime, &info));
  report_begin(&report, options.json);
  report_machine(&report, &info);
  TRY(rondo_close(&runtime));
  for (int i = 0; i < SHARINGS; i++)
    if (!options.wanted || options.wanted >> i & 1) share(&options, &report, &sharings[i]);
  return report_end(&report);
}
