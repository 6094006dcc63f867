/* reference.h - references in double precision on the host, from the bytes of the device's operands. They share no code
 * with the kernels. */
#pragma once

#include <rondo.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes `count` numbers. `scales` is for nvfp4 only: one byte for 16 numbers. */
void reference_decode(rondo_dtype dtype, const uint8_t *bytes, const uint8_t *scales, size_t count, double *values);

/* The error of a result that should be scale * sum of a[i] b[i], divided by the allowed error: a right result gives at
 * most 1. Allowed are the rounding to `out`, and 4e-6 of the sum of |a[i] b[i]| for fp32 sums in any order. */
double reference_error(double result, double scale, const double *a, const double *b, size_t count, rondo_dtype out,
                       double of_magnitude);

/* p[j] = softmax over j of scale * (a . row j of b); b has `count` rows of `k` numbers. With a `cap` above 0 it is the
 * softmax of cap * tanh(scaled product / cap). Returns the largest scaled product. */
double reference_softmax(const double *a, const double *b, size_t count, size_t k, double scale, double cap, double *p);

/* The error of a result that should be the sum of p[j] v[j * step], divided by the allowed error.
 *
 * bf16: allowed is twice the rounding of each weight and of the result. e4m3: each weight has an error of at most 2^-4,
 * up or down at random. Allowed is eight times the expected sum of these errors, but at most their sum with equal
 * signs. That last sum alone would not do: for many weights it exceeds the result. */
double reference_mean_error(double result, const double *p, const double *v, size_t count, size_t step, bool in_e4m3);

/* The larger of LAPACK's ratios |R - Q'A| and |I - Q'Q| (dqrt01), from H and tau of an m x n matrix, column-major and
 * dense. NaN if there is no memory. Correct code stays below 30. */
double reference_qr_ratio(rondo_dtype dtype, size_t m, size_t n, const double *a, const double *h, const double *tau);

/* The same for thin Q and R: |A - QR| and |I - Q'Q|. For R alone (q NULL): |A'A - R'R|, which counts an error of A
 * twice. */
double reference_thin_ratio(rondo_dtype dtype, size_t m, size_t n, const double *a, const double *q, const double *r);

/* The error of a solution x of least squares, m x n with one right-hand side:
 *
 *   max over j of |a_j'(b - A x)| / (|a_j| (|b| + sum of |a_i| |x_i|)) / (m * machine epsilon)
 *
 * Correct code stays below 30. */
double reference_least_squares_ratio(rondo_dtype dtype, size_t m, size_t n, const double *a, const double *b,
                                     const double *x);

/* The error of `after`, which should be Q'C with `columns` columns of m numbers: the largest column sum of the
 * difference, divided by that of C and by m * machine epsilon. H and tau as above. Correct code stays below 30. NaN if
 * there is no memory. */
double reference_applied_ratio(rondo_dtype dtype, size_t m, size_t n, size_t columns, const double *h,
                               const double *tau, const double *before, const double *after);

/* |I - LX| / (|L| |X|) / (n * machine epsilon), where L is the unit lower triangle below a's diagonal; L and X are
 * row-major. Infinity if X is not a unit lower triangle. Correct code stays below 30. */
double reference_inverse_ratio(rondo_dtype dtype, size_t n, const double *a, const double *x);
