/* recent.h - the kernel of operations that look at recent tokens, rondo_add_penalty and rondo_add_prompt_lookup: its
 * entry and its parameters. Both are short, and seldom run; one kernel saves the loading of another. */
#pragma once

#include <stdint.h>

#include "../../runtime/completion.h"

enum {
  PENALTY_THREADS = 256,
  PENALTY_MOST_IDS = 1024, /* of a row; the kernel keeps them in shared memory */
  LOOKUP_THREADS = 512,    /* of one block */
  LOOKUP_MOST_ROWS = 128,
  LOOKUP_MOST_STOPS = 16,
  LOOKUP_SHORTEST = 2, /* tokens of a match */
  LOOKUP_LONGEST = 8,
};

/* Strides are counted in elements. The pointer of an absent penalty is NULL. */
struct penalty_parameters {
  void *x;
  const int32_t *ids;
  const float *repetition, *frequency, *presence;
  int64_t stride, ids_stride;
  uint32_t n, length;
  uint32_t dtype;
  uint32_t many_repetitions, many_frequencies, many_presences; /* 1: one value for each row; 0: one for all */
};

/* The pointers of absent operands are NULL. */
struct lookup_parameters {
  const int32_t *chosen;
  int32_t *tokens, *position, *history, *accepted, *matched;
  const int32_t *last, *stops, *limit;
  uint32_t rows, drafts, stop_count, capacity;
};

struct recent_parameters {
  union {
    struct penalty_parameters penalty;
    struct lookup_parameters lookup;
  };
  uint32_t is_lookup;
  uint32_t reserved;
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, device function) */
#define RECENT_KERNELS(KERNEL) KERNEL(EVERY_CHIP, recent_parameters, rondo_recent, LOOKUP_THREADS, look_at_recent)
