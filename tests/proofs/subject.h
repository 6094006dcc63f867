/* subject.h - the graph that the proofs replay, and the steps of one replay. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <rondo.h>

enum { SLOTS = 2, SMALL_COUNT = 512, LARGE_ROWS = 256, OUTPUTS = 5, OUTPUT_BYTES_MOST = 1 << 16 };
enum { WEIGHT_ROWS = 16, PRODUCT_ROWS = 4, REPEAT_STEPS = 8 };

/* How a replay says that it is done (runtime/cuda/launches.c), by how many rows the last output has: the few blocks at
 * the graph's end do, or a node after too many. */
enum ending { ENDS_IN_BLOCKS = 8, ENDS_IN_A_NODE = 64 };

struct subject {
  rondo_runtime *runtime;
  rondo_graph *graph;
  rondo_exec *exec;
  enum ending ending;
  rondo_tensor small, large; /* inputs of 1 KB and 256 KB */
  rondo_tensor outputs[OUTPUTS];
  uint64_t output_bytes[OUTPUTS];
  uint16_t small_data[SMALL_COUNT], large_data[LARGE_ROWS * SMALL_COUNT];
};

/* Opens a runtime, describes the graph, instantiates it. Nothing is replayed but what rondo_instantiate does. */
rondo_status subject_open(struct subject *subject, enum ending ending, rondo_backend backend, uint32_t host_threads,
                          rondo_wait_mode wait_mode);
/* Of a CUDA backend. */
bool subject_ends_as_meant(const struct subject *subject);
rondo_status subject_close(struct subject *subject);
/* What may be done outside replays only: instantiates the graph once more, rebinds a tensor of that exec and closes it.
 */
rondo_status subject_detour(const struct subject *subject);

/* Both inputs, whole; or the small one and a row of the large one, which holds the same already. */
void subject_fill(const struct subject *subject, rondo_slot slot);
void subject_touch(const struct subject *subject, rondo_slot slot);

/* What is done with a replay once it is done. False ends subject_replay. */
typedef bool subject_reader(void *user, const struct subject *subject, rondo_slot slot);
typedef void subject_filler(const struct subject *subject, rondo_slot slot);

/* Acquire, fill, replay, wait for any, read, release: `count` times, each replay begun while another is in flight in
 * the other slot. RONDO_INTERNAL if `read` refused. */
rondo_status subject_replay(const struct subject *subject, uint64_t count, subject_filler *fill, subject_reader *read,
                            void *user);

/* `count` repeats of REPEAT_STEPS replays in one slot. Each replay's outputs are looked at as soon as it is done. */
rondo_status subject_repeat(const struct subject *subject, uint64_t count);
