/* bench_beside.c - part of the group "resident" of rondo bench replay: what launched replays take beside a resident
 * exec, in another lane, with multiprocessors of its own and without, and in the same lane. The turns of all states
 * alternate in one run. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "bench_replay.h"

enum { TURN = 100, PART = 4 /* of the samples of others */, IN_FLIGHT = 2, OWN_MULTIPROCESSORS = 8 };
static const uint64_t us_ns = 1000, second_ns = UINT64_C(1000000000), large_bytes = UINT64_C(64) << 20;

/* Of the resident exec. */
enum state { NONE, OFF, WAITS, REPLAYS, STATES };

static const char *const state_names[STATES] = {
    [NONE] = "no resident exec",
    [OFF] = "one that was taken off the device",
    [WAITS] = "one that waits on the device",
    [REPLAYS] = "one that is replayed every 100 us",
};

/* Lane 0 is the resident exec's. `other` takes it off. */
struct beside {
  struct bench bench;
  uint32_t lane; /* of what is measured */
  struct subject resident, other, tiny, large;
  pthread_t thread;
  atomic_bool stop;
  struct samples visible[STATES], tiny_each[STATES], large_each[STATES];
};

static void *keep_replaying(void *argument) {
  struct beside *b = argument;
  while (!atomic_load(&b->stop)) {
    bench_replay_once(b->resident.slots[0], NULL, NULL);
    bench_pass_ns(100 * us_ns, 0);
  }
  return NULL;
}

static void begin(struct beside *b, enum state state) {
  if (state == NONE) return;
  b->resident = bench_instantiate(&b->bench, bench_chain(1), &(rondo_exec_options){.linger_ns = second_ns});
  bench_replay_once(b->resident.slots[0], NULL, NULL);
  if (state == OFF) bench_replay_once(b->other.slots[0], NULL, NULL);
  atomic_store(&b->stop, false);
  if (state == REPLAYS && pthread_create(&b->thread, NULL, keep_replaying, b)) exit(1);
}

static void end(struct beside *b, enum state state) {
  atomic_store(&b->stop, true);
  if (state == REPLAYS) pthread_join(b->thread, NULL);
  if (state != NONE) bench_dismantle(&b->resident);
}

/* The time of a replay, with some in flight. */
static void take_throughput(const struct subject *subject, struct samples *samples) {
  const uint64_t begin = timing_now_ns();
  for (size_t i = 0; i < TURN; i++) {
    const rondo_slot slot = subject->slots[i % IN_FLIGHT];
    TRY(rondo_wait(slot, RONDO_FOREVER));
    TRY(rondo_replay(slot));
  }
  for (uint32_t s = 0; s < IN_FLIGHT; s++) TRY(rondo_wait(subject->slots[s], RONDO_FOREVER));
  samples_add(samples, (timing_now_ns() - begin) / TURN);
}

/* The first replays of a turn wake what rested meanwhile. */
static void take_turn(struct beside *b, enum state state) {
  const rondo_slot slot = b->tiny.slots[0];
  begin(b, state);
  for (size_t i = 0; i < TURN + TURN / 10; i++) {
    bench_replay_once(slot, NULL, i >= TURN / 10 ? &b->visible[state] : NULL);
    bench_pass_ns(10 * us_ns, i);
  }
  take_throughput(&b->tiny, &b->tiny_each[state]);
  take_throughput(&b->large, &b->large_each[state]);
  end(b, state);
}

static rondo_graph *large_copy(void) {
  rondo_graph *graph;
  rondo_tensor from, to;
  TRY(rondo_graph_create(NULL, NULL, &graph));
  TRY(rondo_state(graph, "from", RONDO_U8, 1, (int64_t[]){(int64_t)large_bytes}, &from));
  TRY(rondo_state(graph, "to", RONDO_U8, 1, (int64_t[]){(int64_t)large_bytes}, &to));
  TRY(rondo_add_copy(graph, &(rondo_copy_desc){.src = from, .dst = to}));
  return graph;
}

static void report_state(struct report *report, struct beside *b, enum state state, double limit) {
  char name[96];
  snprintf(name, sizeof name, "  %s", state_names[state]);
  report_samples(report, name, &b->visible[state]);
  if (state == NONE) return;
  report_ratio(report, "    ratio to none", samples_us(&b->visible[state], 50), samples_us(&b->visible[NONE], 50), "us",
               limit);
  report_ratio(report, "    the same, p99.9", samples_us(&b->visible[state], 99.9), samples_us(&b->visible[NONE], 99.9),
               "us", 0);
  report_ratio(report, "    two in flight, each", samples_us(&b->tiny_each[state], 50),
               samples_us(&b->tiny_each[NONE], 50), "us", limit);
  report_ratio(report, "    copies of 64 MB, each", samples_us(&b->large_each[state], 50),
               samples_us(&b->large_each[NONE], 50), "us", limit);
}

/* States up to `last` can be in these lanes. limit: of the ratios; 0: none. */
static void measure(struct bench *bench, const char *name, const rondo_lane *lanes, uint32_t lane_count,
                    enum state last, double limit) {
  const size_t samples = bench->samples / PART < TURN ? TURN : bench->samples / PART / TURN * TURN;
  struct beside b = {.bench = *bench, .lane = lane_count - 1};
  const rondo_exec_options measured = {.slots = IN_FLIGHT, .lane = b.lane};
  rondo_lane_grant grant;
  TRY(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_CUDA,
                                  .device_bytes = 3 * large_bytes,
                                  .pinned_bytes = 4 << 20,
                                  .wait_mode = RONDO_WAIT_SPIN,
                                  .lanes = lanes,
                                  .lane_count = lane_count},
                 &b.bench.runtime));
  TRY(rondo_lane_info(b.bench.runtime, b.lane, &grant));
  b.other = bench_instantiate(&b.bench, bench_chain(1), &(rondo_exec_options){0});
  b.tiny = bench_instantiate(&b.bench, bench_chain(1), &measured);
  b.large = bench_instantiate(&b.bench, large_copy(), &measured);
  for (int s = 0; s <= (int)last; s++) {
    b.visible[s] = samples_take(samples);
    b.tiny_each[s] = samples_take(samples / TURN);
    b.large_each[s] = samples_take(samples / TURN);
  }
  for (size_t done = 0; done < samples; done += TURN) {
    for (int s = 0; s <= (int)last; s++) take_turn(&b, (enum state)s);
    progress(name, done + TURN, samples);
  }
  report_heading(&bench->report, name, grant.multiprocessors);
  for (int s = 0; s <= (int)last; s++) report_state(&bench->report, &b, (enum state)s, limit);
  for (int s = 0; s <= (int)last; s++)
    samples_free(&b.visible[s]), samples_free(&b.tiny_each[s]), samples_free(&b.large_each[s]);
  bench_dismantle(&b.large);
  bench_dismantle(&b.tiny);
  bench_dismantle(&b.other);
  TRY(rondo_close(&b.bench.runtime));
}

void bench_beside(struct bench *bench) {
  const rondo_lane own[] = {{.name = "resident", .multiprocessors = OWN_MULTIPROCESSORS}, {.name = "launched"}},
                   shared[] = {{.name = "resident"}, {.name = "launched"}};
  measure(bench, "launched beside a resident exec with multiprocessors of its own", own, 2, REPLAYS, 1.05);
  measure(bench, "launched beside a resident exec in another lane", shared, 2, REPLAYS, 0);
  measure(bench, "launched in the lane of a resident exec", shared, 1, OFF, 1.05);
}
