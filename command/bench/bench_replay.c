/* bench_replay.c - rondo bench replay: times replays until they are launched, and until their results are visible. The
 * graphs have 1 to 1000 tasks, inputs and outputs, parallel branches, idle times before a replay, or several slots.
 *
 * Beside each graph, the same work is launched with the CUDA driver directly, alternately in one run. Without a GPU,
 * only the host backend is timed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "bench_replay.h"

struct options {
  rondo_backend backend;
  uint32_t groups; /* bits; 0: all */
  int64_t samples;
  const char *json;
};

/* ---- Graphs ------------------------------------------------------------------------------------------------------ */

static const int64_t tiny[] = {TINY_BYTES};

static rondo_graph *graph_make(void) {
  rondo_graph *graph;
  TRY(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 2048, .tasks = 1024}, &graph));
  return graph;
}

static rondo_tensor tiny_state(rondo_graph *graph) {
  rondo_tensor tensor;
  TRY(rondo_state(graph, "tiny", RONDO_U8, 1, tiny, &tensor));
  return tensor;
}

static void copy(rondo_graph *graph, rondo_tensor src, rondo_tensor dst) {
  TRY(rondo_add_copy(graph, &(rondo_copy_desc){.src = src, .dst = dst}));
}

rondo_graph *bench_chain(uint32_t count) {
  rondo_graph *graph = graph_make();
  rondo_tensor from = tiny_state(graph);
  for (uint32_t i = 0; i < count; i++) {
    rondo_tensor to = tiny_state(graph);
    copy(graph, from, to);
    from = to;
  }
  return graph;
}

/* One task, `width` tasks that read its result, and one task that reads theirs. */
static rondo_graph *fan(uint32_t width) {
  rondo_graph *graph = graph_make();
  rondo_tensor first = tiny_state(graph), second = tiny_state(graph), middle, last;
  const int64_t rows[] = {width, TINY_BYTES};
  TRY(rondo_state(graph, "middle", RONDO_U8, 2, rows, &middle));
  TRY(rondo_state(graph, "last", RONDO_U8, 2, rows, &last));
  rondo_tensor source;
  copy(graph, first, second);
  rondo_task root;
  TRY(rondo_last_task(graph, &root));
  for (uint32_t i = 0; i < width; i++) {
    rondo_tensor row;
    TRY(rondo_state(graph, "source", RONDO_U8, 2, (int64_t[]){1, TINY_BYTES}, &source));
    TRY(rondo_view(graph, middle, (int64_t[]){i, 0}, (int64_t[]){1, TINY_BYTES}, &row));
    copy(graph, source, row);
    rondo_task task;
    TRY(rondo_last_task(graph, &task));
    TRY(rondo_after(graph, task, root));
  }
  copy(graph, middle, last);
  return graph;
}

static rondo_graph *in_out(uint64_t bytes, rondo_tensor *in, rondo_tensor *out) {
  rondo_graph *graph = graph_make();
  int64_t shape[] = {(int64_t)bytes};
  TRY(rondo_input(graph, "in", RONDO_U8, 1, shape, in));
  TRY(rondo_output(graph, "out", RONDO_U8, 1, shape, out));
  copy(graph, *in, *out);
  return graph;
}

/* MANY branches: an input that two tasks read, and an output that two tasks write and a third one reads and writes. No
 * task can then use an input or output in place: all are copied. */
static rondo_graph *many_in_out(void) {
  static const int64_t in_shape[] = {2, MANY_BYTES / 2}, out_shape[] = {3, MANY_BYTES / 2}, row[] = {1, MANY_BYTES / 2};
  rondo_graph *graph = graph_make();
  for (int i = 0; i < MANY; i++) {
    rondo_tensor in, out, in_rows[2], out_rows[3];
    TRY(rondo_input(graph, "in", RONDO_U8, 2, in_shape, &in));
    TRY(rondo_output(graph, "out", RONDO_U8, 2, out_shape, &out));
    for (int64_t r = 0; r < 2; r++) TRY(rondo_view(graph, in, (int64_t[]){r, 0}, row, &in_rows[r]));
    for (int64_t r = 0; r < 3; r++) TRY(rondo_view(graph, out, (int64_t[]){r, 0}, row, &out_rows[r]));
    copy(graph, in_rows[0], out_rows[0]);
    copy(graph, in_rows[1], out_rows[1]);
    copy(graph, out_rows[1], out_rows[2]);
  }
  return graph;
}

struct subject bench_instantiate(struct bench *bench, rondo_graph *graph, const rondo_exec_options *options) {
  struct subject subject = {.graph = graph, .slot_count = options->slots ? options->slots : 1};
  TRY(rondo_instantiate(bench->runtime, graph, options, &subject.exec));
  for (uint32_t s = 0; s < subject.slot_count; s++) TRY(rondo_acquire(subject.exec, &subject.slots[s]));
  return subject;
}

void bench_dismantle(struct subject *subject) {
  for (uint32_t s = 0; s < subject->slot_count; s++) TRY(rondo_release(subject->slots[s]));
  TRY(rondo_close_exec(&subject->exec));
  TRY(rondo_graph_destroy(&subject->graph));
}

/* ---- Successive replays ------------------------------------------------------------------------------------------ */

static void replay_once(rondo_slot slot) {
  TRY(rondo_replay(slot));
  TRY(rondo_wait(slot, RONDO_FOREVER));
}

static void rival_once(struct bench *bench, struct cu_graph_exec *exec) {
  rival_launch(&bench->rival, exec);
  rival_synchronize(&bench->rival);
}

/* Alternates after every hundred replays, so that clocks and other programs affect both equally. */
static void in_turns(struct bench *bench, const char *name, rondo_slot slot, struct cu_graph_exec *rival, size_t count,
                     struct samples *ours, struct samples *theirs) {
  *ours = samples_take(count);
  *theirs = samples_take(count);
  for (int i = 0; i < 200; i++) replay_once(slot);
  while (ours->count < count) {
    for (int i = 0; i < 100; i++) {
      uint64_t begin = timing_now_ns();
      replay_once(slot);
      samples_add(ours, timing_now_ns() - begin);
    }
    for (int i = 0; i < 100 && rival; i++) {
      uint64_t begin = timing_now_ns();
      rival_once(bench, rival);
      samples_add(theirs, timing_now_ns() - begin);
    }
    progress(name, ours->count, count);
  }
}

/* Measures the time until a graph's result is visible, beside its rival's. The rival's p50 goes to *rival_us, unless
 * that is NULL. */
static void compare(struct bench *bench, const char *name, rondo_graph *graph, struct cu_graph_exec *rival,
                    const char *against, double limit) {
  struct report *report = &bench->report;
  struct subject subject = bench_instantiate(bench, graph, &(rondo_exec_options){0});
  struct samples ours, theirs;
  char text[96];
  in_turns(bench, name, subject.slots[0], rival, bench->samples, &ours, &theirs);
  report_samples(report, name, &ours);
  if (rival) {
    snprintf(text, sizeof text, "  %s", against);
    report_samples(report, text, &theirs);
    snprintf(text, sizeof text, "  ratio to %s", against);
    report_ratio(report, text, samples_us(&ours, 50), samples_us(&theirs, 50), "us", limit);
  }
  samples_free(&ours);
  samples_free(&theirs);
  bench_dismantle(&subject);
}

/* ---- The measurements -------------------------------------------------------------------------------------------- */

/* The time of the call: the time that Rondo adds to cuGraphLaunch. */
static void launch_cost(struct bench *bench) {
  if (!bench->has_rival) return;
  size_t count = bench->samples;
  struct subject subject = bench_instantiate(bench, bench_chain(1), &(rondo_exec_options){0});
  struct cu_graph_exec *rival = rival_chain(&bench->rival, 1);
  struct samples ours = samples_take(count), theirs = samples_take(count);
  rondo_slot slot = subject.slots[0];
  for (size_t i = 0; i < count; i++) {
    uint64_t begin = timing_now_ns();
    TRY(rondo_replay(slot));
    samples_add(&ours, timing_now_ns() - begin);
    TRY(rondo_wait(slot, RONDO_FOREVER));
    begin = timing_now_ns();
    rival_launch(&bench->rival, rival);
    samples_add(&theirs, timing_now_ns() - begin);
    rival_synchronize(&bench->rival);
    if ((i + 1) % 100 == 0) progress("launch", i + 1, count);
  }
  struct report *report = &bench->report;
  report_samples(report, "launch: rondo_replay alone", &ours);
  report_samples(report, "  cuGraphLaunch alone", &theirs);
  report_figure(report, "  own cost on top of cuGraphLaunch", (samples_us(&ours, 50) - samples_us(&theirs, 50)) * 1e3,
                "ns", 80);
  samples_free(&ours);
  samples_free(&theirs);
  bench_dismantle(&subject);
}

double bench_torch_us(uint32_t apart_us) {
  static const char script[] = "python3 - %u 2>/dev/null <<'END'\n"
                               "import sys, time, torch\n"
                               "x, y = torch.ones(64, device='cuda'), torch.empty(64, device='cuda')\n"
                               "torch.add(x, 1, out=y); torch.cuda.synchronize()\n"
                               "g = torch.cuda.CUDAGraph()\n"
                               "with torch.cuda.graph(g): torch.add(x, 1, out=y)\n"
                               "t, apart = [], 1000 * int(sys.argv[1])\n"
                               "for i in range(21000):\n"
                               "  b = time.perf_counter_ns(); g.replay(); torch.cuda.synchronize(); e = "
                               "time.perf_counter_ns(); t.append(e - b)\n"
                               "  while time.perf_counter_ns() - e < apart: pass\n"
                               "t = sorted(t[1000:]); print(t[len(t) // 2] / 1e3)\n"
                               "END\n";
  char command[sizeof script + 16];
  snprintf(command, sizeof command, script, apart_us);
  FILE *pipe = popen(command, "r");
  double us = 0;
  if (!pipe) return 0;
  if (fscanf(pipe, "%lf", &us) != 1) us = 0;
  pclose(pipe);
  return us;
}

static const char one_task[] = "one task, result in host memory", on_device[] = "one task, result left on the device";

/* Measures one task beside its rival. Returns Rondo's samples, sorted; the caller frees them. */
static struct samples visible_result(struct bench *bench, const char *name, rondo_graph *graph,
                                     struct cu_graph_exec *rival) {
  struct report *report = &bench->report;
  struct subject subject = bench_instantiate(bench, graph, &(rondo_exec_options){0});
  struct samples ours, theirs;
  in_turns(bench, name, subject.slots[0], rival, 10 * bench->samples, &ours, &theirs);
  report->histogram = true;
  report_samples(report, name, &ours);
  if (rival) {
    report_samples(report, "  cuGraphLaunch + cuStreamSynchronize", &theirs);
    report_ratio(report, "  ratio to launch + synchronize", samples_us(&ours, 50), samples_us(&theirs, 50), "us", 0.85);
  }
  report->histogram = false;
  report_figure(report, "  p99.9 / p50", samples_us(&ours, 99.9) / samples_us(&ours, 50), "x", rival ? 2.0 : 0);
  samples_free(&theirs);
  bench_dismantle(&subject);
  return ours;
}

double bench_machine(struct bench *bench, size_t count, double us) {
  struct samples spins = samples_take(count);
  for (size_t i = 0; i < count; i++) {
    uint64_t begin = timing_now_ns(), now = begin;
    while ((double)(now - begin) < us * 1e3) now = timing_now_ns();
    samples_add(&spins, now - begin);
  }
  const double spread = samples_us(&spins, 99.9) / samples_us(&spins, 50);
  report_samples(&bench->report, "  the same time, only reading the clock", &spins);
  report_figure(&bench->report, "  p99.9 / p50", spread, "x", 0);
  samples_free(&spins);
  return spread;
}

static void visible(struct bench *bench) {
  rondo_graph *graph = graph_make();
  rondo_tensor from = tiny_state(graph), to;
  TRY(rondo_output(graph, "result", RONDO_U8, 1, tiny, &to));
  copy(graph, from, to);
  struct samples ours = visible_result(bench, one_task, graph, bench->has_rival ? rival_result(&bench->rival) : NULL);
  bench_machine(bench, ours.count, samples_us(&ours, 50));
  samples_free(&ours);
  ours = visible_result(bench, on_device, bench_chain(1), bench->has_rival ? rival_chain(&bench->rival, 1) : NULL);
  double torch_us = bench->has_rival ? bench_torch_us(0) : 0;
  if (torch_us > 0)
    report_ratio(&bench->report, "  ratio to PyTorch replay + synchronize", samples_us(&ours, 50), torch_us, "us", 0.6);
  samples_free(&ours);
}

static void inputs_and_outputs(struct bench *bench) {
  static const struct {
    uint64_t bytes;
    double limit;
  } sizes[] = {{256, 0}, {1024, 0.5}, {4096, 0}, {16384, 0.5}, {65536, 0}, {262144, 0.9}, {1048576, 0}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    rondo_tensor in, out;
    char name[96];
    snprintf(name, sizeof name, "%u bytes in, one task, out", (unsigned)sizes[i].bytes);
    struct cu_graph_exec *rival = bench->has_rival ? rival_in_out(&bench->rival, sizes[i].bytes) : NULL;
    compare(bench, name, in_out(sizes[i].bytes, &in, &out), rival, "copy nodes + synchronize", sizes[i].limit);
  }
  struct cu_graph_exec *rival = bench->has_rival ? rival_many_in_out(&bench->rival) : NULL;
  compare(bench, "4 times 1 KB in, read by 2 tasks, 1.5 KB out", many_in_out(), rival, "copy nodes + synchronize", 0);
}

/* The time of a replay in microseconds, with `slots` replays in flight. */
static double throughput_us(struct bench *bench, rondo_graph *graph, uint32_t slots, size_t replays) {
  struct subject subject = bench_instantiate(bench, graph, &(rondo_exec_options){.slots = slots});
  uint64_t begin = 0;
  for (size_t i = 0; i < replays + 100; i++) {
    rondo_slot slot = subject.slots[i % slots];
    if (i == 100) begin = timing_now_ns();
    TRY(rondo_wait(slot, RONDO_FOREVER));
    TRY(rondo_replay(slot));
  }
  for (uint32_t s = 0; s < slots; s++) TRY(rondo_wait(subject.slots[s], RONDO_FOREVER));
  double us = (double)(timing_now_ns() - begin) / 1e3 / (double)replays;
  bench_dismantle(&subject);
  return us;
}

static double rival_throughput_us(struct bench *bench, struct cu_graph_exec *rival, size_t replays) {
  uint64_t begin = 0;
  for (size_t i = 0; i < replays + 100; i++) {
    if (i == 100) begin = timing_now_ns();
    rival_launch(&bench->rival, rival);
    if (i % 16 == 15) rival_synchronize(&bench->rival);
  }
  rival_synchronize(&bench->rival);
  return (double)(timing_now_ns() - begin) / 1e3 / (double)replays;
}

/* The device's time: replays follow each other without a gap, and so the time of one is that of the device. */
static void chains(struct bench *bench) {
  static const uint32_t counts[] = {1, 10, 100, 1000};
  size_t replays = bench->samples / 10 + 100;
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    char name[96];
    snprintf(name, sizeof name, "chain of %u tiny tasks, device time", counts[i]);
    double ours = throughput_us(bench, bench_chain(counts[i]), 8, replays);
    if (bench->has_rival)
      report_ratio(&bench->report, name, ours,
                   rival_throughput_us(bench, rival_chain(&bench->rival, counts[i]), replays), "us",
                   counts[i] == 100 ? 0.9 : 0);
    else
      report_figure(&bench->report, name, ours, "us", 0);
  }
}

static void branches(struct bench *bench) {
  struct cu_graph_exec *rival = bench->has_rival ? rival_chain(&bench->rival, 10) : NULL;
  compare(bench, "1 + 8 + 1 tiny tasks, to visible result", fan(8), rival, "the ten in a chain", 0.75);
  rondo_graph *graph = graph_make();
  for (int i = 0; i < 8; i++) copy(graph, tiny_state(graph), tiny_state(graph));
  rival = bench->has_rival ? rival_side_by_side(&bench->rival, 8) : NULL;
  compare(bench, "8 tiny tasks side by side, to visible result", graph, rival, "the same + synchronize", 0);
}

static double after_idle_us(rondo_slot slot, uint64_t idle_ns, size_t count, const char *name) {
  struct samples samples = samples_take(count);
  for (size_t i = 0; i < count; i++) {
    timing_sleep_ns(idle_ns);
    uint64_t begin = timing_now_ns();
    replay_once(slot);
    samples_add(&samples, timing_now_ns() - begin);
    progress(name, i + 1, count);
  }
  double us = samples_us(&samples, 50);
  samples_free(&samples);
  return us;
}

static void idleness(struct bench *bench) {
  static const uint64_t idle_ms[] = {1, 10, 100};
  for (size_t i = 0; i < sizeof idle_ms / sizeof *idle_ms; i++) {
    size_t count = idle_ms[i] == 100 ? 30 : 100;
    char name[96];
    snprintf(name, sizeof name, "replay after %u ms of idleness", (unsigned)idle_ms[i]);
    struct subject cold = bench_instantiate(bench, bench_chain(1), &(rondo_exec_options){0});
    double without = after_idle_us(cold.slots[0], idle_ms[i] * 1000000, count, name);
    bench_dismantle(&cold);
    if (!bench->has_rival) { /* keep_warm has no effect on the host */
      report_figure(&bench->report, name, without, "us", 0);
      continue;
    }
    struct subject warm = bench_instantiate(bench, bench_chain(1), &(rondo_exec_options){.keep_warm = 1});
    double with = after_idle_us(warm.slots[0], idle_ms[i] * 1000000, count, name);
    bench_dismantle(&warm);
    snprintf(name, sizeof name, "after %u ms of idleness with keep_warm", (unsigned)idle_ms[i]);
    report_ratio(&bench->report, name, with, without, "us", i ? 0.5 : 0);
  }
}

static void slots(struct bench *bench) {
  for (uint32_t count = 1; count <= 4; count *= 2) {
    rondo_tensor in, out;
    char name[96];
    snprintf(name, sizeof name, "1024 bytes in, one task, out: %u slots, a replay", count);
    report_figure(&bench->report, name, throughput_us(bench, in_out(1024, &in, &out), count, bench->samples), "us", 0);
  }
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

/* Each group is a bit of options.groups. They run in this order. */
enum group { LAUNCH, VISIBLE, IN_OUT, CHAINS, BRANCHES, IDLE, SLOTS, RESIDENT, GROUPS };

static void (*const measures[GROUPS])(struct bench *) = {
    [LAUNCH] = launch_cost, [VISIBLE] = visible,        [IN_OUT] = inputs_and_outputs,
    [CHAINS] = chains,      [BRANCHES] = branches,      [IDLE] = idleness,
    [SLOTS] = slots,        [RESIDENT] = bench_resident};

static const struct choice groups[] = {{"launch", 1 << LAUNCH}, {"visible", 1 << VISIBLE},   {"in-out", 1 << IN_OUT},
                                       {"chains", 1 << CHAINS}, {"branches", 1 << BRANCHES}, {"idle", 1 << IDLE},
                                       {"slots", 1 << SLOTS},   {"resident", 1 << RESIDENT}, {NULL, 0}};

static const struct argument arguments[] = {
    BACKEND_ARGUMENT(struct options),
    {.name = "samples",
     .help = "samples of each measurement, ten times as many for one task; default 20000",
     .kind = VALUE_INT64,
     .offset = offsetof(struct options, samples),
     .least = 100,
     .most = 1e7},
    {.name = "only",
     .help = "only this group; may be repeated",
     .kind = VALUE_CHOICES,
     .offset = offsetof(struct options, groups),
     .choices = groups},
    JSON_ARGUMENT(struct options),
};

/* The work of each group: replays of one task for each sample, and other seconds. */
static const struct {
  double replays, seconds;
} amounts[GROUPS] = {[LAUNCH] = {1, 0},   [VISIBLE] = {30, 0}, [IN_OUT] = {8, 0}, [CHAINS] = {40, 0},
                     [BRANCHES] = {4, 0}, [IDLE] = {0, 5},     [SLOTS] = {3, 0},  [RESIDENT] = {50, 2}};

/* Shows the expected duration, from the time of a few replays; twice that if each has a rival. */
static void tell_duration(struct bench *bench, uint32_t wanted) {
  enum { TRIALS = 200 };
  struct subject subject = bench_instantiate(bench, bench_chain(1), &(rondo_exec_options){0});
  uint64_t begin = timing_now_ns();
  for (int i = 0; i < TRIALS; i++) replay_once(subject.slots[0]);
  const double replay_seconds = (double)(timing_now_ns() - begin) / 1e9 / TRIALS;
  double seconds = 0;
  bench_dismantle(&subject);
  for (int i = 0; i < GROUPS; i++)
    if (!wanted || wanted >> i & 1)
      seconds += amounts[i].seconds + amounts[i].replays * (double)bench->samples * replay_seconds;
  if (bench->has_rival) seconds *= 2;
  output_print(&bench->report.output, "takes about %.0f s with %zu samples (--samples)\n", ceil(seconds / 5) * 5,
               bench->samples);
}

static void measure(struct bench *bench, uint32_t wanted) {
  rondo_info info;
  TRY(rondo_runtime_info(bench->runtime, &info));
  bench->has_rival = info.backend == RONDO_BACKEND_CUDA;
  if (bench->has_rival && !rival_open(&bench->rival))
    exit(command_failed(
        "bench: the CUDA driver used directly cannot open Rondo's GPU: there is nothing to compare with"));
  report_machine(&bench->report, &info);
  tell_duration(bench, wanted);
  for (int i = 0; i < GROUPS; i++)
    if (!wanted || wanted >> i & 1) measures[i](bench);
}

int bench_replay(int count, char **words) {
  static const struct grammar grammar = {.program = "rondo bench replay",
                                         .about = "Times replays, each kind beside the same work launched with the "
                                                  "CUDA driver directly. Without a GPU\n"
                                                  "it times the host backend alone, and there is no figure to reach.\n",
                                         .status = BENCH_STATUS,
                                         .options = ARGUMENT_TABLE(arguments)};
  struct options options = {.samples = 20000};
  int done = arguments_read(&grammar, count, words, &options, NULL);
  if (done != ARGUMENTS_READ) return done;
  struct bench bench = {.samples = (size_t)options.samples / 100 * 100};
  TRY(rondo_open(&(rondo_options){.backend = options.backend,
                                  .device_bytes = 64 << 20,
                                  .pinned_bytes = 64 << 20,
                                  .host_bytes = 64 << 20,
                                  .wait_mode = RONDO_WAIT_SPIN},
                 &bench.runtime));
  report_begin(&bench.report, options.json);
  measure(&bench, options.groups);
  int code = report_end(&bench.report);
  TRY(rondo_close(&bench.runtime));
  return code == EXIT_MISSED && !bench.has_rival ? EXIT_OK : code;
}
