/* bench_resident.c - the group "resident" of rondo bench replay: replays of an exec whose graph stays on the device,
 * beside launches of the same graph, alternately in one run. */
#include <stdio.h>

#include "bench.h"
#include "bench_replay.h"

enum { TURN = 100 };
static const uint64_t us_ns = 1000, second_ns = UINT64_C(1000000000);

void bench_replay_once(rondo_slot slot, struct samples *calls, struct samples *visible) {
  const uint64_t begin = timing_now_ns();
  TRY(rondo_replay(slot));
  const uint64_t called = timing_now_ns();
  TRY(rondo_wait(slot, RONDO_FOREVER));
  if (visible) samples_add(visible, timing_now_ns() - begin);
  if (calls) samples_add(calls, called - begin);
}

void bench_pass_ns(uint64_t ns, size_t i) {
  if (!ns) return;
  const uint64_t until = timing_now_ns() + ns + i % 11 * (ns / 100);
  while (timing_now_ns() < until) continue;
}

struct pair {
  struct samples calls, visible;
};

static struct pair pair_take(size_t count) { return (struct pair){samples_take(count), samples_take(count)}; }

static void pair_free(struct pair *pair) {
  samples_free(&pair->calls);
  samples_free(&pair->visible);
}

/* The first replays of a turn pay for the other exec's turn. */
static void take_turn(rondo_slot slot, uint64_t gap_ns, struct pair *pair) {
  for (size_t i = 0; i < TURN; i++) {
    const bool counts = i >= TURN / 10;
    bench_replay_once(slot, counts ? &pair->calls : NULL, counts ? &pair->visible : NULL);
    bench_pass_ns(gap_ns, i);
  }
}

/* What two readings of the clock take that have nothing between them. */
static double clock_us(size_t count) {
  struct samples samples = samples_take(count);
  for (size_t i = 0; i < count; i++) {
    const uint64_t begin = timing_now_ns();
    samples_add(&samples, timing_now_ns() - begin);
  }
  const double us = samples_us(&samples, 50);
  samples_free(&samples);
  return us;
}

static void compare(struct bench *bench, const char *name, uint32_t tasks, uint64_t gap_ns, double limit) {
  struct subject resident = bench_instantiate(bench, bench_chain(tasks), &(rondo_exec_options){.linger_ns = second_ns});
  struct subject launched = bench_instantiate(bench, bench_chain(tasks), &(rondo_exec_options){0});
  struct pair ours = pair_take(bench->samples), theirs = pair_take(bench->samples);
  struct report *report = &bench->report;
  for (size_t done = 0; done + TURN <= bench->samples; done += TURN) {
    take_turn(resident.slots[0], gap_ns, &ours);
    take_turn(launched.slots[0], gap_ns, &theirs);
    progress(name, done + TURN, bench->samples);
  }
  report_samples(report, name, &ours.visible);
  report_samples(report, "  launched", &theirs.visible);
  report_ratio(report, "  ratio to launched", samples_us(&ours.visible, 50), samples_us(&theirs.visible, 50), "us",
               bench->has_rival ? limit : 0);
  /* Back to back, some replays wait for the next turn of the loop. */
  report_ratio(report, "  ratio of p90", samples_us(&ours.visible, 90), samples_us(&theirs.visible, 90), "us", 0);
  const bool is_apart = bench->has_rival && tasks == 1 && gap_ns == 10 * us_ns; /* which has goals */
  const double torch_us = is_apart ? bench_torch_us((uint32_t)(gap_ns / us_ns)) : 0;
  if (torch_us > 0)
    report_ratio(report, "  ratio to PyTorch replay + synchronize", samples_us(&ours.visible, 50), torch_us, "us", 0.5);
  const double spread = samples_us(&ours.visible, 99.9) / samples_us(&ours.visible, 50);
  report_figure(report, "  p99.9 / p50", spread, "x", 0);
  report_ratio(report, "  ratio to that of the machine", spread,
               bench_machine(bench, ours.visible.count, samples_us(&ours.visible, 50)), "x", is_apart ? 1.1 : 0);
  report_samples(report, "  rondo_replay alone", &ours.calls);
  report_figure(report, "  less the clock", (samples_us(&ours.calls, 50) - clock_us(bench->samples)) * 1e3, "ns",
                is_apart ? 100 : 0);
  report_ratio(report, "  ratio to a launching rondo_replay", samples_us(&ours.calls, 50),
               samples_us(&theirs.calls, 50), "us", bench->has_rival ? 0.15 : 0);
  pair_free(&ours);
  pair_free(&theirs);
  bench_dismantle(&resident);
  bench_dismantle(&launched);
}

/* Another exec takes it off before each replay. */
static void off_and_on(struct bench *bench) {
  const size_t count = bench->samples / 10;
  struct subject resident = bench_instantiate(bench, bench_chain(1), &(rondo_exec_options){.linger_ns = second_ns});
  struct subject launched = bench_instantiate(bench, bench_chain(1), &(rondo_exec_options){0});
  struct samples on = samples_take(count), off = samples_take(count);
  for (size_t i = 0; i < count; i++) {
    bench_replay_once(resident.slots[0], NULL, &on);
    bench_pass_ns(20 * us_ns, i);
    bench_replay_once(launched.slots[0], NULL, &off);
    bench_pass_ns(20 * us_ns, i);
    progress("off and on", i + 1, count);
  }
  report_samples(&bench->report, "resident, a replay that puts it on the device", &on);
  report_figure(&bench->report, "  of that, the median", samples_us(&on, 50), "us", bench->has_rival ? 20 : 0);
  report_samples(&bench->report, "  another exec's replay that takes it off", &off);
  report_figure(&bench->report, "  of that, the median", samples_us(&off, 50), "us", bench->has_rival ? 20 : 0);
  samples_free(&on);
  samples_free(&off);
  bench_dismantle(&resident);
  bench_dismantle(&launched);
}

void bench_resident(struct bench *bench) {
  compare(bench, "resident, one task, back to back", 1, 0, 1.0);
  compare(bench, "resident, one task, 10 us apart", 1, 10 * us_ns, 0.75);
  compare(bench, "resident, one task, 100 us apart", 1, 100 * us_ns, 0.75);
  compare(bench, "resident, ten tasks, back to back", 10, 0, 0);
  compare(bench, "resident, ten tasks, 10 us apart", 10, 10 * us_ns, 0);
  off_and_on(bench);
  if (bench->has_rival) bench_beside(bench); /* else it is launched too */
}
