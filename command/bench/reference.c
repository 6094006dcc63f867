/* reference.c - references in double precision (reference.h). */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double e2m1(unsigned code) {
  static const double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code & 8 ? -magnitudes[code & 7] : magnitudes[code & 7];
}

/* A number of a sign, `exponent_bits` and `mantissa_bits`, as in IEEE 754. The largest exponent has no special
 * meaning. */
static double number(unsigned bits, int exponent_bits, int mantissa_bits) {
  int bias = (1 << (exponent_bits - 1)) - 1, exponent = (int)(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  double mantissa = ldexp(bits & ((1u << mantissa_bits) - 1), -mantissa_bits);
  double magnitude = exponent ? ldexp(1 + mantissa, exponent - bias) : ldexp(mantissa, 1 - bias);
  return bits >> (exponent_bits + mantissa_bits) & 1 ? -magnitude : magnitude;
}

static double e4m3(unsigned bits) { return (bits & 127) == 127 ? NAN : number(bits, 4, 3); }

/* The largest exponent means infinity, or NaN. */
static double half(unsigned bits, int exponent_bits, int mantissa_bits) {
  unsigned largest = ((1u << exponent_bits) - 1) << mantissa_bits;
  if ((bits & largest) != largest) return number(bits, exponent_bits, mantissa_bits);
  if (bits & ((1u << mantissa_bits) - 1)) return NAN;
  return bits >> 15 ? -INFINITY : INFINITY;
}

void reference_decode(rondo_dtype dtype, const uint8_t *bytes, const uint8_t *scales, size_t count, double *values) {
  double table[256]; /* the values of e4m3 */
  for (unsigned i = 0; i < 256; i++) table[i] = e4m3(i);
  for (size_t i = 0; i < count; i++) {
    uint16_t bits = 0;
    if (dtype == RONDO_NVFP4)
      values[i] = e2m1((unsigned)bytes[i / 2] >> i % 2 * 4 & 15) * table[scales[i / 16]];
    else if (dtype == RONDO_E4M3)
      values[i] = table[bytes[i]];
    else
      memcpy(&bits, bytes + 2 * i, sizeof bits);
    if (dtype == RONDO_F16) values[i] = half(bits, 5, 10);
    if (dtype == RONDO_BF16) values[i] = half(bits, 8, 7);
  }
}

double reference_error(double result, double scale, const double *a, const double *b, size_t count, rondo_dtype out,
                       double of_magnitude) {
  double sum = 0, magnitude = 0;
  for (size_t i = 0; i < count; i++) {
    sum += a[i] * b[i];
    magnitude += fabs(a[i] * b[i]);
  }
  /* Half a unit in the last place; for f16 also half the smallest number. */
  double rounding = out == RONDO_F16 ? ldexp(fabs(scale * sum), -11) + ldexp(1, -25) : ldexp(fabs(scale * sum), -8);
  double allowed = rounding + of_magnitude * fabs(scale) * magnitude;
  double error = fabs(result - scale * sum);
  return isfinite(result) ? (allowed > 0 ? error / allowed : error > 0 ? INFINITY : 0) : INFINITY;
}

double reference_softmax(const double *a, const double *b, size_t count, size_t k, double scale, double cap,
                         double *p) {
  double most = -INFINITY, sum = 0;
  for (size_t j = 0; j < count; j++) {
    p[j] = 0;
    for (size_t i = 0; i < k; i++) p[j] += a[i] * b[j * k + i];
    p[j] *= scale;
    if (cap > 0) p[j] = cap * tanh(p[j] / cap);
    most = fmax(most, p[j]);
  }
  for (size_t j = 0; j < count; j++) sum += p[j] = exp(p[j] - most);
  for (size_t j = 0; j < count; j++) p[j] /= sum;
  return most;
}

double reference_mean_error(double result, const double *p, const double *v, size_t count, size_t step, bool in_e4m3) {
  double sum = 0, magnitude = 0, squares = 0;
  for (size_t j = 0; j < count; j++) {
    const double term = p[j] * v[j * step];
    sum += term;
    magnitude += fabs(term);
    squares += term * term;
  }
  double allowed = ldexp(magnitude, -7);
  if (in_e4m3) allowed = fmin(allowed + 8 * ldexp(sqrt(squares), -4), ldexp(magnitude, -3));
  return isfinite(result) ? fabs(result - sum) / allowed : INFINITY;
}

/* ---- QR ---------------------------------------------------------------------------------------------------------- */

/* x := (I - tau v v') x, with reflector j of H. */
static void reflect(size_t m, const double *h, double tau, size_t j, double *x) {
  const double *v = h + j * m;
  double dot = x[j];
  for (size_t i = j + 1; i < m; i++) dot += v[i] * x[i];
  dot *= tau;
  x[j] -= dot;
  for (size_t i = j + 1; i < m; i++) x[i] -= dot * v[i];
}

/* One column of |R - Q'A|, and of A. */
static double residual_of(size_t m, size_t k, size_t column, const double *a, const double *h, const double *tau,
                          double *x, double *own) {
  double sum = 0;
  *own = 0;
  memcpy(x, a + column * m, m * sizeof *x);
  for (size_t i = 0; i < m; i++) *own += fabs(x[i]);
  for (size_t j = 0; j < k; j++) reflect(m, h, tau[j], j, x);
  for (size_t i = 0; i < m; i++) sum += fabs(i <= column ? x[i] - h[column * m + i] : x[i]);
  return sum;
}

/* The first k columns of Q. */
static void form(size_t m, size_t k, const double *h, const double *tau, double *q) {
  memset(q, 0, m * k * sizeof *q);
  for (size_t c = 0; c < k; c++) {
    q[c * m + c] = 1;
    for (size_t j = k; j-- > 0;) reflect(m, h, tau[j], j, q + c * m);
  }
}

/* |I - Q'Q|. */
static double lack_of_orthogonality(size_t m, size_t k, const double *q) {
  double worst = 0;
  for (size_t c = 0; c < k; c++) {
    double sum = 0;
    for (size_t other = 0; other < k; other++) {
      double dot = c == other ? -1 : 0;
      for (size_t i = 0; i < m; i++) dot += q[c * m + i] * q[other * m + i];
      sum += fabs(dot);
    }
    if (sum > worst || isnan(sum)) worst = sum; /* a NaN is kept */
  }
  return worst;
}

double reference_qr_ratio(rondo_dtype dtype, size_t m, size_t n, const double *a, const double *h, const double *tau) {
  const size_t k = m < n ? m : n;
  const double unit = (double)m * (dtype == RONDO_F32 ? 0x1p-24 : 0x1p-53);
  double *q = calloc(m * k, sizeof *q), residual = 0, norm = 0;
  if (!q) return NAN;
  for (size_t c = 0; c < n; c++) {
    double own, sum = residual_of(m, k, c, a, h, tau, q, &own);
    if (sum > residual || isnan(sum)) residual = sum;
    if (own > norm) norm = own;
  }
  form(m, k, h, tau, q);
  double lack = lack_of_orthogonality(m, k, q) / unit, ratio = residual == 0 ? 0 : residual / (norm * unit);
  free(q);
  return ratio > lack || isnan(ratio) ? ratio : lack;
}

/* x'y. */
static double dot(size_t count, const double *x, const double *y) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) sum += x[i] * y[i];
  return sum;
}

/* The largest number of A'A - R'R, and of A'A. */
static double gram_residual(size_t m, size_t n, const double *a, const double *r, double *norm) {
  const size_t k = m < n ? m : n;
  double worst = 0;
  *norm = 0;
  for (size_t c = 0; c < n; c++) {
    const double own = dot(m, a + c * m, a + c * m);
    if (own > *norm) *norm = own;
    for (size_t other = 0; other <= c; other++) {
      double off = fabs(dot(m, a + c * m, a + other * m) - dot(k, r + c * k, r + other * k));
      if (off > worst || isnan(off)) worst = off; /* a NaN is kept */
    }
  }
  return worst;
}

/* |A - QR|, and |A|. */
static double product_residual(size_t m, size_t n, const double *a, const double *q, const double *r, double *norm) {
  const size_t k = m < n ? m : n;
  double worst = 0;
  *norm = 0;
  for (size_t c = 0; c < n; c++) {
    double sum = 0, own = 0;
    for (size_t i = 0; i < m; i++) {
      double off = a[c * m + i];
      for (size_t j = 0; j < k; j++) off -= q[j * m + i] * r[c * k + j];
      sum += fabs(off);
      own += fabs(a[c * m + i]);
    }
    if (sum > worst || isnan(sum)) worst = sum; /* a NaN is kept */
    if (own > *norm) *norm = own;
  }
  return worst;
}

double reference_thin_ratio(rondo_dtype dtype, size_t m, size_t n, const double *a, const double *q, const double *r) {
  const size_t k = m < n ? m : n;
  const double unit = (double)m * (dtype == RONDO_F32 ? 0x1p-24 : 0x1p-53);
  for (size_t c = 0; c < n; c++)
    for (size_t i = c + 1; i < k; i++)
      if (r[c * k + i] != 0) return NAN; /* R is not a triangle */
  double norm, residual = q ? product_residual(m, n, a, q, r, &norm) : gram_residual(m, n, a, r, &norm) / 2;
  double lack = q ? lack_of_orthogonality(m, k, q) / unit : 0, ratio = residual == 0 ? 0 : residual / (norm * unit);
  return ratio > lack || isnan(ratio) ? ratio : lack;
}

double reference_least_squares_ratio(rondo_dtype dtype, size_t m, size_t n, const double *a, const double *b,
                                     const double *x) {
  const double unit = (double)m * (dtype == RONDO_F32 ? 0x1p-24 : 0x1p-53);
  double *left = calloc(m, sizeof *left), size = 0, worst = 0;
  if (!left) return NAN;
  for (size_t i = 0; i < m; i++) {
    left[i] = b[i];
    size += b[i] * b[i];
  }
  size = sqrt(size);
  for (size_t pass = 0; pass < 2; pass++)
    for (size_t j = 0; j < n; j++) {
      const double *column = a + j * m;
      double norm = 0, dot = 0;
      for (size_t i = 0; i < m; i++) {
        norm += column[i] * column[i];
        dot += column[i] * left[i];
        if (pass == 0) left[i] -= column[i] * x[j];
      }
      norm = sqrt(norm);
      if (pass == 0) {
        size += norm * fabs(x[j]);
        continue;
      }
      const double ratio = fabs(dot) / (norm * size * unit);
      if (ratio > worst || isnan(ratio)) worst = ratio; /* a NaN is kept */
    }
  free(left);
  return worst;
}

double reference_applied_ratio(rondo_dtype dtype, size_t m, size_t n, size_t columns, const double *h,
                               const double *tau, const double *before, const double *after) {
  const double unit = (double)m * (dtype == RONDO_F32 ? 0x1p-24 : 0x1p-53);
  double *x = calloc(m, sizeof *x), off = 0, norm = 0;
  if (!x) return NAN;
  for (size_t c = 0; c < columns; c++) {
    double sum = 0, own = 0;
    memcpy(x, before + c * m, m * sizeof *x);
    for (size_t i = 0; i < m; i++) own += fabs(x[i]);
    for (size_t j = 0; j < (m < n ? m : n); j++) reflect(m, h, tau[j], j, x);
    for (size_t i = 0; i < m; i++) sum += fabs(x[i] - after[c * m + i]);
    if (sum > off || isnan(sum)) off = sum; /* a NaN is kept */
    if (own > norm) norm = own;
  }
  free(x);
  return off / (norm * unit);
}

double reference_inverse_ratio(rondo_dtype dtype, size_t n, const double *a, const double *x) {
  const double unit = (double)n * (dtype == RONDO_F32 ? 0x1p-24 : 0x1p-53);
  double off = 0, norm_l = 0, norm_x = 0;
  for (size_t c = 0; c < n; c++) {
    double sum = 0, own_l = 1, own_x = 0;
    for (size_t i = 0; i < n; i++) {
      if (i <= c && x[i * n + c] != (double)(i == c)) return INFINITY;
      double difference = x[i * n + c] - (double)(i == c);
      for (size_t k = c; k < i; k++) difference += a[i * n + k] * x[k * n + c];
      sum += fabs(difference);
      own_x += fabs(x[i * n + c]);
      if (i > c) own_l += fabs(a[i * n + c]);
    }
    if (sum > off || isnan(sum)) off = sum; /* a NaN is kept */
    if (own_l > norm_l) norm_l = own_l;
    if (own_x > norm_x) norm_x = own_x;
  }
  return off / (norm_l * norm_x * unit);
}
