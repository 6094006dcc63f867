/* bench_gemv.h - one product on the device: described as a user describes it, launched as the library chooses, checked
 * and timed. */
#ifndef RONDO_BENCH_GEMV_H
#define RONDO_BENCH_GEMV_H

#include "bench_device.h"
#include "kernel_case.h"

struct gemv_options {
  bool is_warm, is_programmatic, has_one_order;
  uint32_t samples;
  /* Each product's vector is the result of the one before it, where the types allow that, but for every eighth. */
  bool is_chain;
};

/* Device memory for any case of the table, filled for the case that was timed last. */
struct gemv_operands {
  cu_address weights, weight_scales, vectors, vector_scales, out, scratch;
};
struct gemv_memory {
  struct bench_device *device;
  struct gemv_operands at;
  rondo_dtype filled_weights, filled_vectors; /* 0: with nothing */
};
void gemv_memory_take(struct bench_device *device, struct gemv_memory *memory);

/* Who multiplies: adds the launches of out = scale W x to a graph. */
struct gemv_way {
  const char *name;
  void (*add)(void *user, struct bench_graph *graph, const struct gemv_operands *at, float scale);
  void *user;
};
/* Microseconds of a product; NaN, and a sentence on stderr, where a sampled row of it is not what it must be: then it
 * is not timed. */
double gemv_time_us(struct gemv_memory *memory, const struct kernel_case *shape, const struct gemv_options *options,
                    const struct gemv_way *way);

/* The same of the kernels that the library chooses, and the name of the first of them. */
enum { KERNEL_NAME_BYTES = 64 };
struct gemv_timing {
  double us;
  char kernel[KERNEL_NAME_BYTES];
};
/* weights_are_settled: they may be read before the launch in front has ended. */
struct gemv_timing gemv_measure(struct gemv_memory *memory, const struct kernel_case *shape,
                                const struct gemv_options *options, bool weights_are_settled);

/* Only reading the bytes of the same product, in the memory of its weights. */
double gemv_read_us(const struct gemv_memory *memory, const struct kernel_case *shape,
                    const struct gemv_options *options);
/* Bytes a microsecond, read from a thousand million of them. */
double gemv_read_rate(const struct gemv_memory *memory, uint32_t samples);

#endif
