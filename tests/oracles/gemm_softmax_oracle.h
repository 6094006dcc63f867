/* gemm_softmax_oracle.h - one product of two matrices with the softmax of its rows, P in all three types and the
 * maximum, against fp64. */
#pragma once

#include "../support.h"

enum numbers {
  NORMAL,     /* random, of the normal distribution */
  EQUAL,      /* all logits of a row the same */
  INCREASING, /* the maximum moves in every block of columns */
  DECREASING, /* and never */
  SPECIAL,    /* NaN and infinities in some rows */
  LATE,       /* the first 130 logits of every row are -infinity */
  ONE_SIDED,  /* long rows whose products are small */
  TOO_LONG,   /* the same, and no float holds the squares of their lengths */
  TOO_SHORT,  /* A's rows: the squares of their lengths are zero in floats, the logits are not */
};

struct sizes {
  int64_t batch, m, n, k;
};

struct product {
  rondo_dtype dtype;
  struct sizes sizes;
  bool causal;
  float scale; /* 0: 1 */
  enum numbers numbers;
  int64_t border; /* 0: dense tensors; n: views that begin n elements after their tensors do */
  bool matrix;    /* no batch dimension */
};

enum { MAX, P_F32, P_F16, P_BF16, RESULTS };

/* A rectangle inside a state, so that what surrounds it can be seen. */
struct place {
  rondo_tensor state, view;
  rondo_dtype dtype;
  int64_t offset[3], stride[3], extent[3]; /* batch, row, column */
  uint64_t bytes;
  unsigned char *data;
};

struct trial_product {
  struct product product;
  struct place a, b, results[RESULTS];
};

/* Adds the operands and one task for each result. */
void product_add(struct trial_product *t, struct trial *trial, const struct product *product);

/* Fills a matrix with numbers of a kind. NaN stands around its rectangle, and must not leak in. */
void place_fill(struct place *place, enum numbers numbers, bool is_b, struct random *random);

/* Row 1 becomes NaN, row 3 infinite of both signs, row 5 -infinity. Column 4 is -infinity for rows with a positive
 * first element, and the last column is NaN: under a causal mask most rows do not count it. */
void plant_special(struct trial_product *t);

/* Makes the first 130 logits of all rows -infinity. */
void plant_late(struct trial_product *t);

/* Checks all results, each number against its own bound and the largest error against that of a plain fp32 evaluation.
 */
void product_check(const struct trial_product *t);

static const char *const result_name[RESULTS] = {"max", "p in f32", "p in f16", "p in bf16"};

/* The beginning of a message: the product. */
#define CASE_FORMAT "%s, batch %lld, m %lld, n %lld, k %lld, causal %d, scale %g, numbers %d, border %lld: "
#define CASE_VALUES(c)                                                                                                 \
  rondo_dtype_name((c)->dtype), (long long)(c)->sizes.batch, (long long)(c)->sizes.m, (long long)(c)->sizes.n,         \
      (long long)(c)->sizes.k, (c)->causal, (double)(c)->scale, (int)(c)->numbers, (long long)(c)->border
