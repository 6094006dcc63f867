/* attention_any.h - attention with pages, a window, a soft cap or e4m3: the kernels that take every combination of
 * them, on every chip. Where there is a faster kernel for some, it goes there: attention_select.c. */
#ifndef RONDO_ATTENTION_ANY_H
#define RONDO_ATTENTION_ANY_H

#include "attention.h"

/* rondo_attention_any_DTYPE_DIMENSION, DTYPE being that of o, in which K, V and q are worked on. */
struct attention_any_parameters {
  struct attention_parameters plain; /* its done is not used; with pages, k_stride.batch leads from page to page */
  const int32_t *kv_pages;           /* or NULL */
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
#define ATTENTION_ANY_TYPE_KERNELS(KERNEL, t, type)                                                                    \
  KERNEL(EVERY_CHIP, attention_any_parameters, rondo_attention_any_##t##_32, 128, 3, type, 32, 1, 64, 1, 1, 0)         \
  KERNEL(EVERY_CHIP, attention_any_parameters, rondo_attention_any_##t##_64, 128, 3, type, 64, 1, 64, 1, 1, 0)         \
  KERNEL(EVERY_CHIP, attention_any_parameters, rondo_attention_any_##t##_128, 128, 2, type, 128, 1, 32, 1, 1, 0)       \
  KERNEL(EVERY_CHIP, attention_any_parameters, rondo_attention_any_##t##_256, 128, 2, type, 256, 1, 32, 1, 1, 0)
#define ATTENTION_ANY_KERNELS(KERNEL)                                                                                  \
  ATTENTION_ANY_TYPE_KERNELS(KERNEL, f16, RONDO_F16)                                                                   \
  ATTENTION_ANY_TYPE_KERNELS(KERNEL, bf16, RONDO_BF16)

#endif
