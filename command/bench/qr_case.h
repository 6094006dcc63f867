/* qr_case.h - the batched QR that rondo bench kernels times: the table, the labels, the figures to reach, and the work
 * of a case. It uses no device. */
#pragma once

#include <rondo.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* QR_X: least squares with one right-hand side. QR_APPLIED: Q'C in place, from V and tau. QR_INVERSE: the inverse of a
 * unit lower triangle, row-major. */
enum qr_outputs { QR_H_AND_TAU, QR_Q_AND_R, QR_R_ALONE, QR_X, QR_APPLIED, QR_INVERSE };

/* `batch` matrices of m x n, column-major and dense. The outputs have memory of their own. */
struct qr_case {
  rondo_dtype dtype; /* f32 or f64 */
  int64_t m, n, batch;
  enum qr_outputs outputs;
  int64_t columns; /* QR_APPLIED: of C; else 0 */
};

enum { QR_CASES_MOST = 512 };
size_t qr_cases(struct qr_case cases[QR_CASES_MOST]);
/* The most microseconds of H and tau on an H200, cold, in a graph. 0: there is no figure to reach. */
double qr_case_must_us(const struct qr_case *shape);
/* Does the picture show the case? It shows H and tau of 1000 square matrices. */
bool qr_case_is_plotted(const struct qr_case *shape);

bool qr_case_equal(const struct qr_case *a, const struct qr_case *b);
/* "h+tau", "q+r", "r", "x", "q'c" or "inverse". */
const char *qr_outputs_name(enum qr_outputs outputs);
/* "qr f32 128x16 batch=1000 h+tau", "qr f32 128x16 batch=1000 q'c columns=8". */
enum { QR_LABEL_BYTES = 96 };
void qr_case_label(const struct qr_case *shape, char label[QR_LABEL_BYTES]);

/* The floating-point operations, as LAPACK counts them. For each matrix with m >= n: 2 m n^2 - 2/3 n^3; the same again
 * for Q; 4 m n - n^2 for x; 4 m c k - 2 c k^2 for applying Q to c columns; n^3/3 for an inverse. */
double qr_case_flops(const struct qr_case *shape);
/* The bytes: A, the outputs and the right-hand side once; C twice; half of a triangle that is inverted. */
uint64_t qr_case_bytes(const struct qr_case *shape);
