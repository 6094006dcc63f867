/* qr_oracle.c - see qr_oracle.h. The kinds of matrices follow LAPACK's dchkqr, the ratios its dqrt01 and dqrt02. */
#include "qr_oracle.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "lane_sums.h"

int64_t qr_min(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t qr_max(int64_t a, int64_t b) { return a > b ? a : b; }

void *qr_memory(int64_t count, size_t bytes) {
  void *memory = calloc((size_t)qr_max(count, 1), bytes);
  cr_assert_not_null(memory);
  return memory;
}

long double qr_epsilon(rondo_dtype dtype) {
  return dtype == RONDO_F32 ? (long double)FLT_EPSILON / 2 : (long double)DBL_EPSILON / 2;
}

double qr_smallest(rondo_dtype dtype) { return dtype == RONDO_F32 ? (double)FLT_MIN : DBL_MIN; }

double qr_largest(rondo_dtype dtype) { return dtype == RONDO_F32 ? (double)FLT_MAX : DBL_MAX; }

double qr_rounded(rondo_dtype dtype, long double value) {
  return dtype == RONDO_F32 ? (double)(float)value : (double)value;
}

/* Geometric singular values 1 .. 1 / condition between random reflectors on both sides. */
static void qr_fill_conditioned(struct random *random, int64_t m, int64_t n, long double condition, long double *a) {
  int64_t k = qr_min(m, n);
  for (int64_t i = 0; i < k; i++) a[i * m + i] = powl(condition, k > 1 ? -(long double)i / (long double)(k - 1) : 0);
  long double *u = qr_memory(qr_max(m, n), sizeof *u);
  for (int side = 0; side < 6; side++) {
    int64_t length = side % 2 ? n : m, others = side % 2 ? m : n;
    int64_t step = side % 2 ? m : 1, other_step = side % 2 ? 1 : m;
    long double norm = 0;
    for (int64_t i = 0; i < length; i++) {
      u[i] = random_normal(random);
      norm += u[i] * u[i];
    }
    for (int64_t c = 0; c < others; c++) {
      long double dot = 0;
      for (int64_t i = 0; i < length; i++) dot += u[i] * a[i * step + c * other_step];
      for (int64_t i = 0; i < length; i++) a[i * step + c * other_step] -= 2 * dot / norm * u[i];
    }
  }
  free(u);
}

static long double qr_value(struct random *random, rondo_dtype dtype, enum qr_kind kind, int64_t m, int64_t n,
                            int64_t i, int64_t j, const double *shared) {
  long double x = random_normal(random), tiny = qr_smallest(dtype);
  switch (kind) {
  case QR_DIAGONAL:
    return i == j ? x : 0;
  case QR_UPPER:
    return i <= j ? x : 0;
  case QR_LOWER:
    return i >= j ? x : 0;
  case QR_NEAR_UNDERFLOW:
    return x * 100 * tiny;
  case QR_NEAR_OVERFLOW:
    return x * (qr_largest(dtype) / 1000);
  case QR_DUPLICATE:
    return j == n / 2 || j == 0 ? shared[i] : x;
  case QR_RANK_DEFICIENT:
    return j >= n - n / 4 ? 0 : x;
  case QR_COLUMN_SCALES:
    return x * powl(10, -12.0L * (long double)j / (long double)n);
  case QR_ROW_SCALES:
    return x * powl(10, -8.0L * (long double)i / (long double)m);
  case QR_NEAR_COLLINEAR:
    return shared[i] + 1e-4L * x;
  case QR_CLUSTERED:
    return j < n / 2 ? shared[i] + 4 * qr_epsilon(dtype) * x : x;
  case QR_ALTERNATING:
    return j % 2 ? x : x * tiny * 1e4L;
  case QR_TINY_BELOW:
    return i == j ? 1 : x * tiny * 1e3L;
  case QR_WILD_SCALES:
    return ldexpl(x, (int)((j * 37) % 201 - 100) * (dtype == RONDO_F32 ? 1 : 8));
  case QR_BAND:
    return i - j <= 2 && j - i <= 2 ? x : 0;
  case QR_ONE_TINY:
    return j == n / 2 ? x * tiny * 64 : x;
  case QR_ONE_HUGE:
    return j == n / 2 ? x * (qr_largest(dtype) / 64 / (long double)m) : x;
  case QR_ONE_ZERO:
    return j == n / 2 ? 0 : x;
  case QR_ONE_DENORMAL:
    return j == n - 1 && n > 1 ? x * tiny * qr_epsilon(dtype) * 8192 : x;
  case QR_SMALL_UNITS:
    return x * sqrtl(tiny);
  case QR_LARGE_UNITS:
    return x * sqrtl(qr_largest(dtype));
  case QR_ZERO:
    return 0;
  case QR_SOME_LARGEST:
    if (j % 2) return x * tiny * 100;
    return shared[i] + x / 4;
  case QR_LARGEST:
    return (j % 3 ? -shared[i] : shared[i]) + x / 4;
  default:
    return x;
  }
}

void qr_stretch(struct random *random, rondo_dtype dtype, int64_t m, long double *column) {
  long double squares = 0;
  for (int64_t i = 0; i < m; i++) squares += column[i] * column[i];
  const long double wanted = qr_largest(dtype) * (0.5L + 0.47L * (long double)random_uniform(random));
  for (int64_t i = 0; i < m; i++) column[i] *= wanted / sqrtl(squares);
}

void qr_fill(struct random *random, rondo_dtype dtype, enum qr_kind kind, int64_t m, int64_t n, double *a) {
  long double *exact = qr_memory(m * n, sizeof *exact);
  double *shared = qr_memory(m, sizeof *shared);
  for (int64_t i = 0; i < m; i++) shared[i] = random_normal(random);
  long double eps = qr_epsilon(dtype);
  if (kind >= QR_CONDITION_2 && kind <= QR_CONDITION_LARGE)
    qr_fill_conditioned(random, m, n,
                        kind == QR_CONDITION_2        ? 2
                        : kind == QR_CONDITION_MIDDLE ? sqrtl(0.1L / eps)
                                                      : 0.1L / eps,
                        exact);
  else
    for (int64_t j = 0; j < n; j++)
      for (int64_t i = 0; i < m; i++) exact[j * m + i] = qr_value(random, dtype, kind, m, n, i, j, shared);
  for (int64_t j = 0; j < n; j++)
    if (kind == QR_LARGEST || (kind == QR_SOME_LARGEST && j % 2 == 0)) qr_stretch(random, dtype, m, exact + j * m);
  for (int64_t i = 0; i < m * n; i++) a[i] = qr_rounded(dtype, exact[i]);
  free(shared);
  free(exact);
}

/* ---- Tensors ---------------------------------------------------------------------------------------------------- */

static void qr_place_shape(const struct qr_place *place, int64_t shape[3]) {
  int64_t pad = place->before + place->behind;
  shape[0] = place->batch;
  shape[1] = pad + (place->layout == RONDO_ROW_MAJOR ? place->m : place->n);
  shape[2] = pad + (place->layout == RONDO_ROW_MAJOR ? place->n : place->m);
}

int64_t qr_place_count(const struct qr_place *place) {
  int64_t shape[3];
  qr_place_shape(place, shape);
  return shape[0] * shape[1] * shape[2];
}

static int64_t qr_place_index(const struct qr_place *place, int64_t item, int64_t row, int64_t column) {
  int64_t shape[3];
  qr_place_shape(place, shape);
  int64_t outer = place->before + (place->layout == RONDO_ROW_MAJOR ? row : column);
  int64_t inner = place->before + (place->layout == RONDO_ROW_MAJOR ? column : row);
  return (item * shape[1] + outer) * shape[2] + inner;
}

void qr_place_write(const struct qr_place *place, int64_t item, const double *a, void *data) {
  for (int64_t j = 0; j < place->n; j++)
    for (int64_t i = 0; i < place->m; i++)
      oracle_write(place->dtype, data, qr_place_index(place, item, i, j), a[j * place->m + i]);
}

void qr_place_read(const struct qr_place *place, int64_t item, const void *data, double *a) {
  for (int64_t j = 0; j < place->n; j++)
    for (int64_t i = 0; i < place->m; i++)
      a[j * place->m + i] = oracle_read(place->dtype, data, qr_place_index(place, item, i, j));
}

rondo_tensor qr_place_add(const struct qr_place *place, rondo_graph *graph, tensor_kind add, const char *name,
                          rondo_tensor *view) {
  int64_t shape[3];
  qr_place_shape(place, shape);
  rondo_tensor tensor;
  REQUIRE_OK(add(graph, name, place->dtype, 3, shape, &tensor));
  *view = tensor;
  int64_t pad = place->before + place->behind;
  if (pad)
    REQUIRE_OK(rondo_view(graph, tensor, (int64_t[]){0, place->before, place->before},
                          (int64_t[]){shape[0], shape[1] - pad, shape[2] - pad}, view));
  return tensor;
}

size_t qr_bytes(rondo_dtype dtype) { return dtype == RONDO_F32 ? 4 : 8; }

/* ---- Ratios ----------------------------------------------------------------------------------------------------- */

long double qr_larger(long double largest, long double x) { return x > largest || isnan(x) ? x : largest; }

long double qr_one_norm(int64_t m, int64_t n, const long double *a) {
  long double largest = 0;
  for (int64_t j = 0; j < n; j++) {
    long double sum = 0;
    for (int64_t i = 0; i < m; i++) sum += fabsl(a[j * m + i]);
    largest = qr_larger(largest, sum);
  }
  return largest;
}

void qr_expect_ratio(const char *what, long double ratio, const char *where) {
  if (ratio > QR_RATIO_ALARM) fprintf(stderr, "alarm: %s is %.1Lf for %s\n", what, ratio, where);
  cr_expect(ratio < QR_RATIO_GATE, "%s is %.1Lf for %s", what, ratio, where);
}

/* Three columns at once, since the sum of one waits for each of its additions. */
static void reflect_three(int64_t m, int64_t j, const double *v, double tau, long double *c) {
  long double *restrict c0 = c, *restrict c1 = c + m, *restrict c2 = c + 2 * m;
  long double w0 = c0[j], w1 = c1[j], w2 = c2[j];
  for (int64_t i = j + 1; i < m; i++) {
    const long double element = v[i];
    w0 += element * c0[i], w1 += element * c1[i], w2 += element * c2[i];
  }
  w0 *= tau, w1 *= tau, w2 *= tau;
  c0[j] -= w0, c1[j] -= w1, c2[j] -= w2;
  for (int64_t i = j + 1; i < m; i++) {
    const long double element = v[i];
    c0[i] -= element * w0, c1[i] -= element * w1, c2[i] -= element * w2;
  }
}

/* Doubles are enough for what has the precision of f32. */
static void reflect_in_double(int64_t m, int64_t k, const double *v, const double *tau, bool transpose,
                              long double *column, double *target) {
  for (int64_t i = 0; i < m; i++) target[i] = (double)column[i];
  for (int64_t step = 0; step < k; step++) {
    const int64_t j = transpose ? step : k - 1 - step, below = m - j - 1;
    const double *reflector = v + j * m + j + 1;
    double magnitude;
    const double w = tau[j] * (target[j] + lanes_product(reflector, target + j + 1, below, &magnitude));
    target[j] -= w;
    lanes_add(target + j + 1, reflector, -w, below);
  }
  for (int64_t i = 0; i < m; i++) column[i] = target[i];
}

void qr_oracle_apply(rondo_dtype dtype, int64_t m, int64_t k, const double *v, const double *tau, bool transpose,
                     int64_t columns, long double *c) {
  if (dtype != RONDO_F64) {
    double *target = qr_memory(m, sizeof *target);
    for (int64_t column = 0; column < columns; column++)
      reflect_in_double(m, k, v, tau, transpose, c + column * m, target);
    free(target);
    return;
  }
  for (int64_t step = 0; step < k; step++) {
    const int64_t j = transpose ? step : k - 1 - step;
    int64_t column = 0;
    for (; column + 3 <= columns; column += 3) reflect_three(m, j, v + j * m, tau[j], c + column * m);
    for (; column < columns; column++) {
      long double *target = c + column * m, w = target[j];
      for (int64_t i = j + 1; i < m; i++) w += (long double)v[j * m + i] * target[i];
      w *= tau[j];
      target[j] -= w;
      for (int64_t i = j + 1; i < m; i++) target[i] -= (long double)v[j * m + i] * w;
    }
  }
}

void qr_expect_orthonormal(rondo_dtype dtype, int64_t m, int64_t k, const long double *q, const char *where) {
  long double *gram = qr_memory(k * k, sizeof *gram);
  for (int64_t j = 0; j < k; j++)
    for (int64_t i = 0; i <= j; i++) {
      long double sum = i == j ? -1 : 0;
      for (int64_t row = 0; row < m; row++) sum += q[i * m + row] * q[j * m + row];
      gram[j * k + i] = gram[i * k + j] = sum;
    }
  qr_expect_ratio("|I - Q'Q|", qr_one_norm(k, k, gram) / ((long double)qr_max(m, 1) * qr_epsilon(dtype)), where);
  free(gram);
}

/* Compares each column of R - Q'A with its own column of A. Rounding to subnormal numbers counts for nothing. */
static void qr_expect_columns(rondo_dtype dtype, int64_t m, int64_t n, const double *a, const long double *difference,
                              const char *where) {
  long double denormal = qr_smallest(dtype) * qr_epsilon(dtype) * 2, worst = 0;
  for (int64_t j = 0; j < n; j++) {
    long double sum = 0, norm = 2 * denormal / qr_epsilon(dtype);
    for (int64_t i = 0; i < m; i++) sum += fabsl(difference[j * m + i]);
    long double own = 0;
    for (int64_t i = 0; i < m; i++) own += fabsl((long double)a[j * m + i]);
    worst = qr_larger(worst, sum / ((long double)qr_max(m, 1) * fmaxl(own, norm) * qr_epsilon(dtype)));
  }
  qr_expect_ratio("|R - Q'A| of a column", worst, where);
}

void qr_expect_factored(rondo_dtype dtype, int64_t m, int64_t n, const double *a, const double *h, const double *tau,
                        const char *where) {
  int64_t k = qr_min(m, n);
  for (int64_t j = 0; j < k; j++)
    cr_expect(tau[j] == 0 || (tau[j] >= 1 && tau[j] <= 2), "tau[%d] is %g for %s", (int)j, tau[j], where);
  if (m <= n && k > 0) cr_expect(tau[k - 1] == 0, "the last tau is %g for %s", tau[k - 1], where);
  long double *c = qr_memory(m * n, sizeof *c);
  for (int64_t i = 0; i < m * n; i++) c[i] = a[i];
  long double norm = qr_one_norm(m, n, c);
  qr_oracle_apply(dtype, m, k, h, tau, true, n, c);
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i <= j && i < m; i++) c[j * m + i] -= h[j * m + i];
  qr_expect_columns(dtype, m, n, a, c, where);
  long double difference = qr_one_norm(m, n, c);
  qr_expect_ratio("|R - Q'A|",
                  difference == 0 ? 0 : difference / ((long double)qr_max(m, 1) * norm * qr_epsilon(dtype)), where);
  free(c);
  long double *q = qr_memory(m * k, sizeof *q);
  for (int64_t j = 0; j < k; j++) q[j * m + j] = 1;
  qr_oracle_apply(dtype, m, k, h, tau, false, k, q);
  qr_expect_orthonormal(dtype, m, k, q, where);
  free(q);
}

static void qr_expect_triangular(int64_t m, int64_t n, const double *r, const char *where) {
  int64_t k = qr_min(m, n);
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = j + 1; i < k; i++) cr_expect(r[j * k + i] == 0, "r(%d, %d) of %s", (int)i, (int)j, where);
}

void qr_expect_gram(rondo_dtype dtype, int64_t m, int64_t n, const double *a, const double *r, const char *where) {
  int64_t k = qr_min(m, n);
  qr_expect_triangular(m, n, r, where);
  long double norm = 0, largest = 0;
  for (int64_t i = 0; i < n * n; i++) { /* both products are symmetric: one half of each */
    int64_t p = i / n, s = i % n;
    if (s > p) continue;
    long double sum = 0;
    for (int64_t row = 0; row < m; row++) sum += (long double)a[p * m + row] * a[s * m + row];
    if (p == s && sum > norm) norm = sum;
    for (int64_t row = 0; row < k; row++) sum -= (long double)r[p * k + row] * r[s * k + row];
    largest = qr_larger(largest, fabsl(sum));
  }
  qr_expect_ratio("|A'A - R'R|",
                  largest == 0 ? 0 : largest / (2 * (long double)qr_max(m, 1) * norm * qr_epsilon(dtype)), where);
}

void qr_expect_thin(rondo_dtype dtype, int64_t m, int64_t n, const double *a, const double *q, const double *r,
                    const char *where) {
  int64_t k = qr_min(m, n);
  qr_expect_triangular(m, n, r, where);
  long double *c = qr_memory(m * n, sizeof *c), *exact = qr_memory(m * k, sizeof *exact);
  for (int64_t i = 0; i < m * n; i++) c[i] = a[i];
  for (int64_t i = 0; i < m * k; i++) exact[i] = q[i];
  long double norm = qr_one_norm(m, n, c);
  for (int64_t j = 0; j < n; j++)
    for (int64_t s = 0; s <= j && s < k; s++)
      for (int64_t i = 0; i < m; i++) c[j * m + i] -= exact[s * m + i] * r[j * k + s];
  long double difference = qr_one_norm(m, n, c);
  qr_expect_ratio("|A - QR|", difference == 0 ? 0 : difference / ((long double)qr_max(m, 1) * norm * qr_epsilon(dtype)),
                  where);
  qr_expect_orthonormal(dtype, m, k, exact, where);
  free(exact);
  free(c);
}

/* ---- Around the matrices ---------------------------------------------------------------------------------------- */

void *qr_guarded(rondo_dtype dtype, int64_t count) {
  void *data = qr_memory(count, qr_bytes(dtype));
  for (int64_t i = 0; i < count; i++) oracle_write(dtype, data, i, qr_guard);
  return data;
}

void qr_expect_guards(const struct qr_place *place, const void *data, const char *what) {
  int64_t count = qr_place_count(place), touched = 0;
  bool *inside = qr_memory(count, sizeof *inside);
  for (int64_t item = 0; item < place->batch; item++)
    for (int64_t j = 0; j < place->n; j++)
      for (int64_t i = 0; i < place->m; i++) inside[qr_place_index(place, item, i, j)] = true;
  for (int64_t i = 0; i < count; i++)
    if (!inside[i] && oracle_read(place->dtype, data, i) != qr_guard) touched++;
  cr_expect(touched == 0, "%d elements around %s were written", (int)touched, what);
  free(inside);
}

void qr_matrices_set(struct trial *trial, const struct qr_place *place, const double *matrices, rondo_tensor tensor) {
  void *data = qr_guarded(place->dtype, qr_place_count(place));
  for (int64_t item = 0; item < place->batch; item++)
    qr_place_write(place, item, matrices + item * place->m * place->n, data);
  trial_set(trial, tensor, data);
  free(data);
}

rondo_tensor qr_state(rondo_graph *graph, rondo_dtype dtype, uint32_t rank, int64_t x, int64_t y, int64_t z) {
  rondo_tensor tensor;
  REQUIRE_OK(rondo_state(graph, NULL, dtype, rank, (int64_t[]){x, y, z}, &tensor));
  return tensor;
}
