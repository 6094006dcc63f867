/* qr_case.h - the batched QR that rondo bench kernels times, and what it must reach: the table, labels, and how much
 * work a case is. No device. */
#ifndef RONDO_QR_CASE_H
#define RONDO_QR_CASE_H

#include <rondo.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* H and tau of `batch` matrices of m x n, column-major and dense, H beside A; or least squares with them. */
struct qr_case {
  rondo_dtype dtype; /* f32 or f64 */
  int64_t m, n, batch;
  int64_t sides; /* right-hand sides of least squares; 0: H and tau */
};

enum { QR_CASES_MOST = 160 };
size_t qr_cases(struct qr_case cases[QR_CASES_MOST]);
/* The most microseconds on an H200, cold, in a graph; 0: nothing is asked. */
double qr_case_must_us(const struct qr_case *shape);
/* Is it one of those that the picture shows: square, a thousand of them? */
bool qr_case_is_plotted(const struct qr_case *shape);

bool qr_case_equal(const struct qr_case *a, const struct qr_case *b);
/* "qr f32 128x16 batch=1000", "least_squares f32 128x16 sides=1 batch=1000". */
enum { QR_LABEL_BYTES = 96 };
void qr_case_label(const struct qr_case *shape, char label[QR_LABEL_BYTES]);

/* As LAPACK counts them: 2 m n^2 - 2/3 n^3 of each, where m >= n, and 4 m n - n^2 of each right-hand side. */
double qr_case_flops(const struct qr_case *shape);
/* A, H and tau once, or A, b and x. */
uint64_t qr_case_bytes(const struct qr_case *shape);

#endif
