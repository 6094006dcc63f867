/* attention_portable.h - the kernels of attention_general.cu, which take pages, a window, a soft cap and e4m3 in every
 * combination, and the plan of all kernels that run on every chip: these and those of attention.cu. */
#pragma once

#include "attention.h"

/* rondo_attention_general_DTYPE_DIMENSION: DTYPE is the type of o, to which q, K and V are converted. */
struct attention_general_parameters {
  struct attention_parameters plain; /* its done is not used; with pages, k_stride.batch leads from page to page */
  const int32_t *kv_pages;           /* or NULL */
  const int32_t *starts;             /* of packed rows, offsets that rise, [items + 1]; or NULL */
  uint32_t items;                    /* of packed rows */
  int64_t pages_stride;              /* from item to item */
  int32_t pool_pages;
  int32_t page_shift; /* a page has 2^page_shift rows */
  int32_t window;     /* 0: none */
  int32_t q_e4m3, kv_e4m3;
  int32_t capped; /* products become tanh(cap_scale * product), and scale_log2 is the cap's */
  float cap_scale;
  float v_scale;
  struct completion done;
};

/* As those of ATTENTION_KERNELS. */
#define ATTENTION_GENERAL_TYPE_KERNELS(KERNEL, t, type)                                                                \
  KERNEL(EVERY_CHIP, attention_general_parameters, rondo_attention_general_##t##_32, 128, 3, type, 32, 1, 64, 1, 1, 0) \
  KERNEL(EVERY_CHIP, attention_general_parameters, rondo_attention_general_##t##_64, 128, 3, type, 64, 1, 64, 1, 1, 0) \
  KERNEL(EVERY_CHIP, attention_general_parameters, rondo_attention_general_##t##_128, 128, 2, type, 128, 1, 32, 1, 1,  \
         0)                                                                                                            \
  KERNEL(EVERY_CHIP, attention_general_parameters, rondo_attention_general_##t##_256, 128, 2, type, 256, 1, 32, 1, 1, 0)
#define ATTENTION_GENERAL_KERNELS(KERNEL)                                                                              \
  ATTENTION_GENERAL_TYPE_KERNELS(KERNEL, f16, RONDO_F16)                                                               \
  ATTENTION_GENERAL_TYPE_KERNELS(KERNEL, bf16, RONDO_BF16)

#ifndef __CUDACC__
struct attention_portable_variant {
  struct op_kernel kernel;
  int32_t block_rows;
  rondo_dtype dtype; /* of o */
  int32_t head_dimension, shared_bytes, shared_bytes_80;
};

struct attention_portable_plan {
  const struct attention_portable_variant *variant;
  int64_t shared_bytes; /* which may exceed the chip's */
};

struct attention_parameters attention_parameters_of(const struct op_call *call, const struct attention_shape *shape);
#endif
