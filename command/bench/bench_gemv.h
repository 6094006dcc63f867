/* bench_gemv.h - one product on the device: described as a user describes it, launched as the library chooses, checked
 * and timed. */
#ifndef RONDO_BENCH_GEMV_H
#define RONDO_BENCH_GEMV_H

#include "bench_device.h"
#include "kernel_case.h"

struct gemv_options {
  bool is_warm, is_programmatic;
  uint32_t samples;
};

enum { KERNEL_NAME_BYTES = 64 };

/* What one product took: microseconds a launch. */
struct gemv_timing {
  double us;
  char kernel[KERNEL_NAME_BYTES]; /* of its first launch */
};

/* Device memory for any case of the table, filled for the case that was timed last. */
struct gemv_memory {
  struct bench_device *device;
  cu_address weights, weight_scales, vectors, vector_scales, out, scratch;
  rondo_dtype filled_weights, filled_vectors; /* 0: with nothing */
};
void gemv_memory_take(struct bench_device *device, struct gemv_memory *memory);

/* Ends the program if a sampled row is not what it must be. */
struct gemv_timing gemv_measure(struct gemv_memory *memory, const struct kernel_case *shape,
                                const struct gemv_options *options);

/* Only reading the bytes of the same product, in the memory of its weights. */
double gemv_read_us(const struct gemv_memory *memory, const struct kernel_case *shape,
                    const struct gemv_options *options);
/* Bytes a microsecond, read from a thousand million of them. */
double gemv_read_rate(const struct gemv_memory *memory, uint32_t samples);

/* Eight products, each of the result of the one before, again and again: microseconds a product. */
enum chain_edges { CHAIN_PLAIN, CHAIN_PROGRAMMATIC, CHAIN_EARLY };
double gemv_chain_us(struct gemv_memory *memory, const struct kernel_case *shape, enum chain_edges edges,
                     uint32_t samples);

#endif
