/* bench_gemv.h - measures one product: describes it as a program does, launches the kernels that the library chooses,
 * checks the result, and times it. */
#pragma once

#include "bench_device.h"
#include "kernel_case.h"

struct gemv_options {
  bool is_warm, is_programmatic, has_one_order;
  bool is_portable; /* with the kernels of chips that have none of their own */
  uint32_t samples;
  /* Each product's vector is the previous product's result, if the types allow it. Every eighth product begins a new
   * chain. */
  bool is_chain;
};

/* Device memory for every case of the table. Its content is that of the last case. */
struct gemv_operands {
  cu_address weights, weight_scales, vectors, vector_scales, out, scratch;
};
struct gemv_memory {
  struct bench_device *device;
  struct gemv_operands at;
  rondo_dtype filled_weights, filled_vectors; /* 0: not filled yet */
};
void gemv_memory_take(struct bench_device *device, struct gemv_memory *memory);

/* A way to multiply: adds the launches of out = scale W x to a graph. */
struct gemv_way {
  const char *name;
  void (*add)(void *user, struct bench_graph *graph, const struct gemv_operands *at, float scale);
  void *user;
};
/* The time of a product in microseconds. If a sampled row is wrong, it returns NaN after a sentence on stderr, and does
 * not time the product. */
double gemv_time_us(struct gemv_memory *memory, const struct kernel_case *shape, const struct gemv_options *options,
                    const struct gemv_way *way);

/* The same for the kernels that the library chooses, with the name of the first one. */
enum { KERNEL_NAME_BYTES = 64 };
struct gemv_timing {
  double us;
  char kernel[KERNEL_NAME_BYTES];
};
/* weights_are_settled: kernels may read the weights before their predecessor has ended. */
struct gemv_timing gemv_measure(struct gemv_memory *memory, const struct kernel_case *shape,
                                const struct gemv_options *options, bool weights_are_settled);

/* The time of only reading the bytes of the same product, in the memory of the weights. */
double gemv_read_us(const struct gemv_memory *memory, const struct kernel_case *shape,
                    const struct gemv_options *options);
/* The read rate in bytes for each microsecond, from reading 1 GB. */
double gemv_read_rate(const struct gemv_memory *memory, uint32_t samples);
