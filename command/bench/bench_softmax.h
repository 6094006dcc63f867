/* bench_softmax.h - measures attention or a fused softmax: describes it as a program does, launches the kernels that
 * the library chooses, checks the result, and times it. */
#pragma once

#include "bench_device.h"
#include "softmax_results.h"

struct softmax_options {
  bool is_warm, is_programmatic;
  bool is_portable; /* with the portable kernels, which every chip can run */
  bool is_brief;    /* only in the first of the case's states */
  uint32_t samples;
  /* Changes the library's launch before it is added; may be NULL. */
  void (*change)(const void *user, struct op_launch *launch);
  const void *user;
};

/* Device memory for every case of the table. */
struct softmax_memory {
  struct bench_device *device;
  cu_address operands, scratch, lengths, pages;
};
void softmax_memory_take(struct bench_device *device, struct softmax_memory *memory);

/* Times a case in each of its states, and fills in a result for each. Returns their number. If a sampled row is wrong,
 * it returns 0 after a sentence on stderr, and does not time the case. */
size_t softmax_measure(struct softmax_memory *memory, const struct softmax_case *shape,
                       const struct softmax_options *options, struct softmax_result results[2]);
