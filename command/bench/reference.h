/* reference.h - what a product must be, in double precision on the host, from the bytes that the device had. It shares
 * no code with the kernels. */
#ifndef RONDO_REFERENCE_H
#define RONDO_REFERENCE_H

#include <rondo.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `count` numbers; scales, a byte for 16 of them, of nvfp4 only. */
void reference_decode(rondo_dtype dtype, const uint8_t *bytes, const uint8_t *scales, size_t count, double *values);

/* A result that should be scale times the sum of a[i] b[i]: how far off it is, in units of what is allowed, so at most
 * 1. Allowed is the rounding to `out`, and 4e-6 of the sum of |a[i] b[i]| for fp32 sums in any order. */
double reference_error(double result, double scale, const double *a, const double *b, size_t count, rondo_dtype out);

/* p[j] = softmax of scale times the product of a and row j of b, `count` rows of `k` numbers. Returns the largest
 * scaled product. With a `cap` above 0 the softmax is of cap * tanh(scaled product / cap). */
double reference_softmax(const double *a, const double *b, size_t count, size_t k, double scale, double cap, double *p);

/* A result that should be the sum of p[j] v[j * step]: how far off it is, in units of what is allowed. Allowed is in
 * bf16 the rounding of each weight and that of the result, and as much again. In e4m3 weights are off by 2^-4 at most,
 * up or down by chance: eight times what that comes to is allowed, but not more than if all were off one way. Of many
 * weights the latter alone would be more than the sum itself. */
double reference_mean_error(double result, const double *p, const double *v, size_t count, size_t step, bool in_e4m3);

/* LAPACK's two ratios, |R - Q'A| and |I - Q'Q| (dqrt01), the larger of them, of H and tau of an m x n matrix, each
 * column behind the other. NaN where there is no memory for it. Sound code stays below 30. */
double reference_qr_ratio(rondo_dtype dtype, size_t m, size_t n, const double *a, const double *h, const double *tau);

/* The same of thin Q and R: |A - QR| and |I - Q'Q|; of R alone (q NULL) |A'A - R'R|, in which an error of A counts
 * twice. */
double reference_thin_ratio(rondo_dtype dtype, size_t m, size_t n, const double *a, const double *q, const double *r);

/* How far x is from solving least squares, m x n and one right-hand side: the largest |a_j'(b - A x)| beside |a_j| (|b|
 * + the sum of |a_i| |x_i|), in units of m times machine epsilon. Sound code stays below 30. */
double reference_least_squares_ratio(rondo_dtype dtype, size_t m, size_t n, const double *a, const double *b,
                                     const double *x);

/* How far `after` is from Q'C, of `columns` columns of m numbers, H and tau as above: the largest column sum of the
 * difference beside that of C, in units of m times machine epsilon. Sound code stays below 30. NaN where there is no
 * memory for it. */
double reference_applied_ratio(rondo_dtype dtype, size_t m, size_t n, size_t columns, const double *h,
                               const double *tau, const double *before, const double *after);

/* |I - LX| beside |L| |X|, in units of n times machine epsilon, of L, the unit lower triangle below a's diagonal, and
 * X, both row-major; infinity where X is no such triangle. Sound code stays below 30. */
double reference_inverse_ratio(rondo_dtype dtype, size_t n, const double *a, const double *x);

#endif
