/* bench_replay.h - what the files of rondo bench replay share. */
#pragma once

#include <rondo.h>

#include "rival.h"
#include "timing.h"

struct bench {
  size_t samples;
  struct report report;
  rondo_runtime *runtime;
  struct rival rival;
  bool has_rival;
};

/* One exec and its slots, all acquired. */
struct subject {
  rondo_graph *graph;
  rondo_exec *exec;
  rondo_slot slots[RONDO_MAX_SLOTS];
  uint32_t slot_count;
};

/* `count` tiny copies, one after the other. */
rondo_graph *bench_chain(uint32_t count);
/* Takes over the graph, and acquires all slots. */
struct subject bench_instantiate(struct bench *bench, rondo_graph *graph, const rondo_exec_options *options);
void bench_dismantle(struct subject *subject);

/* Reports the interruptions by the operating system, for a program that only reads the clock for the length of a
 * replay, as often. No replay can be steadier. Returns p99.9 / p50. */
double bench_machine(struct bench *bench, size_t count, double us);

/* The time of PyTorch's replay of a graph with one small kernel, so long apart. 0 if python3 has no torch or no GPU. */
double bench_torch_us(uint32_t apart_us);

/* The group of resident execs: bench_resident.c, bench_beside.c. */
void bench_resident(struct bench *bench);
void bench_beside(struct bench *bench);
/* Replays and waits. Adds the time of the call, and until the host sees the results; NULL: not kept. */
void bench_replay_once(rondo_slot slot, struct samples *calls, struct samples *visible);
/* Gaps differ a little, by `i`, so that they do not keep step with the device's looks at the bell. */
void bench_pass_ns(uint64_t ns, size_t i);
