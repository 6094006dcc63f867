/* qr_case.h - the batched QR that rondo bench kernels times, and what it must reach: the table, labels, and how much
 * work a case is. No device. */
#ifndef RONDO_QR_CASE_H
#define RONDO_QR_CASE_H

#include <rondo.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* QR_X: least squares with one right-hand side. QR_APPLIED: Q'C, in place, of V and tau. QR_INVERSE: of a unit lower
 * triangle, row-major. */
enum qr_outputs { QR_H_AND_TAU, QR_Q_AND_R, QR_R_ALONE, QR_X, QR_APPLIED, QR_INVERSE };

/* `batch` matrices of m x n, column-major and dense, the outputs beside A. */
struct qr_case {
  rondo_dtype dtype; /* f32 or f64 */
  int64_t m, n, batch;
  enum qr_outputs outputs;
  int64_t columns; /* of C where Q is applied to it, else 0 */
};

enum { QR_CASES_MOST = 512 };
size_t qr_cases(struct qr_case cases[QR_CASES_MOST]);
/* H and tau: the most microseconds on an H200, cold, in a graph; 0: nothing is asked. */
double qr_case_must_us(const struct qr_case *shape);
/* Is it one of those that the picture shows: H and tau, square, a thousand of them? */
bool qr_case_is_plotted(const struct qr_case *shape);

bool qr_case_equal(const struct qr_case *a, const struct qr_case *b);
/* "h+tau", "q+r", "r", "x", "q'c" or "inverse". */
const char *qr_outputs_name(enum qr_outputs outputs);
/* "qr f32 128x16 batch=1000 h+tau", "qr f32 128x16 batch=1000 q'c columns=8". */
enum { QR_LABEL_BYTES = 96 };
void qr_case_label(const struct qr_case *shape, char label[QR_LABEL_BYTES]);

/* As LAPACK counts them: 2 m n^2 - 2/3 n^3 of each, where m >= n, as many again for Q, and 4 m n - n^2 for x; of
 * applying Q to c columns 4 m c k - 2 c k^2, of an inverse n^3/3. */
double qr_case_flops(const struct qr_case *shape);
/* A and the outputs once, and the right-hand side; C twice, of a triangle that is inverted the half. */
uint64_t qr_case_bytes(const struct qr_case *shape);

#endif
