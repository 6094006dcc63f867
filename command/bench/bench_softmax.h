/* bench_softmax.h - attention or a fused softmax on the device: described as a user describes it, launched as the
 * library chooses, checked and timed. */
#ifndef RONDO_BENCH_SOFTMAX_H
#define RONDO_BENCH_SOFTMAX_H

#include "bench_device.h"
#include "softmax_results.h"

struct softmax_options {
  bool is_warm, is_programmatic;
  bool is_portable; /* the kernels of chips that have none of their own */
  bool is_brief;    /* in the first of its states alone */
  uint32_t samples;
  /* Or NULL: what becomes of the library's launch. */
  void (*change)(const void *user, struct op_launch *launch);
  const void *user;
};

/* Device memory for any case of the table. */
struct softmax_memory {
  struct bench_device *device;
  cu_address operands, scratch, lengths, pages;
};
void softmax_memory_take(struct bench_device *device, struct softmax_memory *memory);

/* Times a case in each of its states, and fills in a result for each. Returns their number; 0, and a sentence on
 * stderr: a sampled row is not what it must be, and nothing was timed. */
size_t softmax_measure(struct softmax_memory *memory, const struct softmax_case *shape,
                       const struct softmax_options *options, struct softmax_result results[2]);

#endif
