/* qr_oracle.h - matrices of known difficulty, their place in a tensor, and LAPACK's ratios in long double. It has no
 * code in common with the library.
 *
 * A matrix is column-major and dense, in double; its values are exact in the type under test. */
#pragma once

#include "../support.h"

/* LAPACK's gate, which rondo.h promises, and where we want to be told. */
#define QR_RATIO_GATE  30.0L
#define QR_RATIO_ALARM 5.0L

/* The smaller one. */
int64_t qr_min(int64_t a, int64_t b);

/* The larger one. */
int64_t qr_max(int64_t a, int64_t b);

/* Memory of zeros for `count` items of `bytes` bytes; the test ends if there is none. */
void *qr_memory(int64_t count, size_t bytes);

/* The unit roundoff: LAPACK's eps. */
long double qr_epsilon(rondo_dtype dtype);

/* The smallest normal number. */
double qr_smallest(rondo_dtype dtype);

/* The largest finite number. */
double qr_largest(rondo_dtype dtype);

/* The value, rounded to the type. */
double qr_rounded(rondo_dtype dtype, long double value);

/* LAPACK's eight (dchkqr), then those of research and practice. */
enum qr_kind {
  QR_DIAGONAL,
  QR_UPPER,
  QR_LOWER,
  QR_CONDITION_2,
  QR_CONDITION_MIDDLE, /* sqrt(0.1 / eps) */
  QR_CONDITION_LARGE,  /* 0.1 / eps */
  QR_NEAR_UNDERFLOW,
  QR_NEAR_OVERFLOW,
  QR_RANDOM,
  QR_DUPLICATE,      /* two equal columns */
  QR_RANK_DEFICIENT, /* the last quarter is zero */
  QR_COLUMN_SCALES,  /* 1 .. 1e-12 */
  QR_ROW_SCALES,     /* 1 .. 1e-8 */
  QR_NEAR_COLLINEAR, /* columns 1e-4 apart */
  QR_CLUSTERED,      /* half the columns at 4 eps */
  QR_ALTERNATING,    /* every other column near underflow */
  QR_TINY_BELOW,     /* ones on the diagonal, near underflow elsewhere */
  QR_WILD_SCALES,    /* columns over most of the exponent range: their products leave it */
  QR_BAND,
  QR_ONE_TINY, /* one column among ordinary ones: near underflow, */
  QR_ONE_HUGE, /* near overflow, */
  QR_ONE_ZERO,
  QR_ONE_DENORMAL,
  QR_SMALL_UNITS, /* squares underflow */
  QR_LARGE_UNITS, /* squares overflow */
  QR_ZERO,
  QR_LARGEST,      /* columns nearly along one line, their norms from half the largest number to it */
  QR_SOME_LARGEST, /* such columns and tiny ones in turn */
  QR_KINDS
};

/* Gives a column of m numbers a norm between half the largest number and 0.97 of it. Twice a number made of such a
 * norm, such as the factor of a reflection, leaves the range. */
void qr_stretch(struct random *random, rondo_dtype dtype, int64_t m, long double *column);

/* Fills an m x n matrix of the given kind. */
void qr_fill(struct random *random, rondo_dtype dtype, enum qr_kind kind, int64_t m, int64_t n, double *a);

/* A batch of matrices in a dense tensor, with rows and columns of padding before and after each. */
struct qr_place {
  rondo_dtype dtype;
  rondo_layout layout;
  int64_t batch, m, n;
  int64_t before, behind; /* rows and columns of padding */
};

/* The elements of the tensor. */
int64_t qr_place_count(const struct qr_place *place);

/* Writes matrix `item` of the batch into the tensor's data. */
void qr_place_write(const struct qr_place *place, int64_t item, const double *a, void *data);

/* Reads it. */
void qr_place_read(const struct qr_place *place, int64_t item, const void *data, double *a);

/* Adds the tensor, and a view of the matrices in it if it is larger than them. Returns the tensor. */
rondo_tensor qr_place_add(const struct qr_place *place, rondo_graph *graph, tensor_kind add, const char *name,
                          rondo_tensor *view);

/* The bytes of a number. */
size_t qr_bytes(rondo_dtype dtype);

/* The larger one; a NaN stays. */
long double qr_larger(long double largest, long double x);

/* The largest column sum of magnitudes. */
long double qr_one_norm(int64_t m, int64_t n, const long double *a);

/* The test fails if the ratio reaches LAPACK's gate. `what` and `where` name it in the message. */
void qr_expect_ratio(const char *what, long double ratio, const char *where);

/* C := H_1 .. H_k C, or its transpose, from reflectors below the diagonal of v (leading dimension m), with errors far
 * below those of the type. */
void qr_oracle_apply(rondo_dtype dtype, int64_t m, int64_t k, const double *v, const double *tau, bool transpose,
                     int64_t columns, long double *c);

/* |I - Q'Q| / (m eps), Q m x k. */
void qr_expect_orthonormal(rondo_dtype dtype, int64_t m, int64_t k, const long double *q, const char *where);

/* H and tau: |R - Q'A|, as a whole and by columns, and the orthogonality of Q's first columns (dqrt01, dqrt02); tau in
 * {0} and [1, 2]. */
void qr_expect_factored(rondo_dtype dtype, int64_t m, int64_t n, const double *a, const double *h, const double *tau,
                        const char *where);

/* R alone: R'R = A'A, in which an error of A counts twice. Squares of f64's largest numbers stay in the range of long
 * double. */
void qr_expect_gram(rondo_dtype dtype, int64_t m, int64_t n, const double *a, const double *r, const char *where);

/* Thin Q and R: |A - Q R| and the orthogonality of Q. */
void qr_expect_thin(rondo_dtype dtype, int64_t m, int64_t n, const double *a, const double *q, const double *r,
                    const char *where);

/* The number that stands around the matrices; no result has it. */
static const double qr_guard = 1234.5;

/* A tensor's data, filled with the guard. */
void *qr_guarded(rondo_dtype dtype, int64_t count);

/* The test fails if an element outside the matrices does not hold the guard any more. */
void qr_expect_guards(const struct qr_place *place, const void *data, const char *what);

/* Uploads the matrices of a batch, one after the other in `matrices`, with the guard around each. */
void qr_matrices_set(struct trial *trial, const struct qr_place *place, const double *matrices, rondo_tensor tensor);

/* A state, for descriptions that are to be refused. */
rondo_tensor qr_state(rondo_graph *graph, rondo_dtype dtype, uint32_t rank, int64_t x, int64_t y, int64_t z);
