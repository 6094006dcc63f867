/* attention_many_tokens.h - the attention half of a layer for up to 128 tokens of one sequence, in one launch: its
 * kernels and their parameters. */
#pragma once

#include "many_tokens.h"

enum {
  ATTENTION_MANY_TOKENS_TILE = 64, /* tokens of eight blocks */
  ATTENTION_MANY_TOKENS_MOST = 128,
  ATTENTION_MANY_TOKENS_DIMENSION = 64,
  ATTENTION_MANY_TOKENS_THREADS = 512,
  ATTENTION_MANY_TOKENS_PANEL = ATTENTION_MANY_TOKENS_TILE * ATTENTION_MANY_TOKENS_DIMENSION * 2,
  ATTENTION_MANY_TOKENS_PITCH = ATTENTION_MANY_TOKENS_DIMENSION / 2 * 8 + 16, /* of a token's rotations */
  ATTENTION_MANY_TOKENS_FIXED =
      4 * ATTENTION_MANY_TOKENS_PANEL + ATTENTION_MANY_TOKENS_TILE * ATTENTION_MANY_TOKENS_PITCH + 1024
};

/* Strides are counted in elements. */
struct attention_many_tokens_parameters {
  struct layer_half_parameters half;
  unsigned char *exchange; /* what each block has for other blocks of its cluster */
  const int32_t *position; /* of the first token */
  const int32_t *pages;    /* of the sequence, or NULL: K and V are its own */
  void *k, *v;
  uint32_t k_page, v_page, k_position, v_position, k_head, v_head;
  uint32_t page_shift, pool_pages; /* rows of a page: a power of two */
  uint32_t capacity;
  float scale_log2;
  const float *frequencies; /* radians a position, or NULL: */
  double frequency_step;    /* exponents to base 2, from pair to pair */
  int32_t has_rope, rope_is_halves;
  struct completion done;
};

/* Of shared memory: x and the rows of both matrices; two tiles of K and of V, a table of rotations, and
 * barriers. */
#define ATTENTION_MANY_TOKENS_BYTES(hidden, group) ((hidden)*256 + (hidden) * (group)*16 + ATTENTION_MANY_TOKENS_FIXED)

/* What a block has for others: eight rows of x, and 64 rows of a head. */
#define ATTENTION_MANY_TOKENS_EXCHANGE(hidden) ((hidden)*16 + ATTENTION_MANY_TOKENS_PANEL)

/* The sizes that kernels are compiled for: KERNEL(chips, parameters, name, threads, hidden, KV heads, query heads of a
 * KV head, tiles). Of those of the same sizes the first with tiles for all tokens runs. x and weights are bf16. */
#define ATTENTION_MANY_TOKENS_KERNELS(KERNEL)                                                                          \
  KERNEL(CHIP_SM_90A, attention_many_tokens_parameters, rondo_attention_many_tokens_smollm2_135m,                      \
         ATTENTION_MANY_TOKENS_THREADS, 576, 3, 3, 1)                                                                  \
  KERNEL(CHIP_SM_90A, attention_many_tokens_parameters, rondo_attention_many_tokens_smollm2_135m_two_tiles,            \
         ATTENTION_MANY_TOKENS_THREADS, 576, 3, 3, 2)
