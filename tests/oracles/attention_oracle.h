/* attention_oracle.h - the results of an attention task against softmax(scale Q K^T) V in double. It has no code in
 * common with the library. */
#pragma once

#include "attention_trial.h"

/* The value in 16 bits. */
double attention_rounded(rondo_dtype dtype, double value);

/* The result of a comparison. */
struct verdict {
  double error, low_error, store_error; /* the largest; low_error: of 16-bit arithmetic, store_error: of storing */
  int64_t wrong;                        /* numbers beyond their bound */
};

/* Compares every number with its own bound, and what lies around o and lse with its guard. */
struct verdict attention_verdict(const struct attention *a);

/* The test fails if attention_verdict finds a wrong number, or if the largest error exceeds twice that of 16-bit
 * arithmetic: the rule of FlashAttention's own tests. */
void attention_check(const struct attention *a);
