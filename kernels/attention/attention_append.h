/* attention_append.h - the launch before an attention that writes new rows of K and V, or has a rotary embedding: the
 * kernel's parameters, and the attention that is left.
 *
 * It runs where the kernel that attends cannot do both itself. It writes rotated queries and lengths to scratch memory,
 * after the partial results of splits. */
#pragma once

#include "attention.h"

enum {
  ATTENTION_APPEND_THREADS = 128, /* of a block; in vectors a row may have more */
  ATTENTION_APPEND_MOST_THREADS = 512,
  ATTENTION_APPEND_PAIRS = 4,        /* of a thread: two words of 8 bytes */
  ATTENTION_APPEND_VECTOR_PAIRS = 8, /* the same in vectors: two of 16 bytes */
  ATTENTION_APPEND_MOST_ROWS = 4,    /* of a block */
  /* Of its shared memory: sines and cosines. */
  ATTENTION_APPEND_ROW_BYTES = 8 * ATTENTION_APPEND_MOST_ROWS * ATTENTION_MOST_PAIRS
};

struct attention_append_parameters {
  const void *q, *new_k, *new_v;
  void *rotated, *k, *v; /* rotated: of q, [batch, query length, query heads, head dimension] */
  int32_t *lengths;      /* [items]: where new rows end, at least 0 and at most most_length */
  /* Of packed rows, else NULL: [items + 1] as the task has them; and so that they rise, from 0 to query_length. */
  const int32_t *row_offsets;
  int32_t *starts;
  void *o;    /* of packed rows: rows of no item become zeros, */
  float *lse; /* and -infinity; or NULL */
  const int32_t *positions;
  const float *frequencies; /* radians a position, on the device; NULL: base_frequencies */
  const int32_t *kv_pages;  /* or NULL: then each item is a page */
  struct attention_stride q_stride, new_k_stride, new_v_stride, k_stride, v_stride, o_stride;
  int64_t lse_head_stride;
  int64_t pages_stride;
  uint32_t batch, query_length, items, query_heads;
  uint32_t rotated_heads, new_heads; /* of q, and of new_k; 0: nothing is done to them */
  uint32_t row_pairs;                /* a power of two */
  uint32_t row_parts, row_threads;   /* blocks of a row, and threads in one of them */
  uint32_t vector_rows;              /* of a block, in vectors; 0: rows move in words */
  uint32_t pool_pages, page_shift;
  int32_t capacity, most_length;
  int32_t rotates, by_halves, bf16;
  int32_t aligned;  /* all rows begin at multiples of 8 bytes */
  int32_t per_item; /* 1: a position for each item; 0: one for all */
  int32_t early;    /* positions and frequencies are settled */
  float base_frequencies[ATTENTION_MOST_PAIRS];
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, what it calls) */
#define ATTENTION_APPEND_KERNELS(KERNEL)                                                                               \
  KERNEL(EVERY_CHIP, attention_append_parameters, rondo_attention_append, ATTENTION_APPEND_THREADS, append_rows)       \
  KERNEL(EVERY_CHIP, attention_append_parameters, rondo_attention_append_vectors, ATTENTION_APPEND_MOST_THREADS,       \
         append_vectors)

#ifndef __CUDACC__
/* `rest` becomes the same attention without new rows and rotary embedding. */
void attention_append_launch(const struct op_call *call, const struct chip *chip, struct op_step *rest,
                             struct op_launches *launches);
#endif
