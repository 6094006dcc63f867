/* qr_host_real.h - Householder QR for one type of real number. qr_host.c includes it once for f32 and once for f64,
 * after it has defined REAL, its limits and NAME(x). Shape and strides alone fix the order of each sum. */

struct NAME(matrix) {
  REAL *data;
  int64_t row_stride, column_stride;
};

/* NULL for an absent operand: C17 forbids to add even 0 to it. */
static struct NAME(matrix) NAME(matrix_at)(struct qr_matrix matrix, int64_t item) {
  REAL *data = matrix.data;
  return (struct NAME(matrix)){data ? data + item * matrix.batch_stride : NULL, matrix.row_stride,
                               matrix.column_stride};
}

static REAL *NAME(element)(struct NAME(matrix) a, int64_t row, int64_t column) {
  return a.data + row * a.row_stride + column * a.column_stride;
}

static struct NAME(matrix) NAME(part)(struct NAME(matrix) a, int64_t row, int64_t column) {
  return (struct NAME(matrix)){NAME(element)(a, row, column), a.row_stride, a.column_stride};
}

/* Eight sums: the compiler makes one vector of them. */
static REAL NAME(dot)(int64_t count, const REAL *x, int64_t x_stride, const REAL *y, int64_t y_stride) {
  REAL sums[8] = {0};
  int64_t i = 0;
  if (x_stride == 1 && y_stride == 1)
    for (; i + 8 <= count; i += 8)
      for (int lane = 0; lane < 8; lane++) sums[lane] += x[i + lane] * y[i + lane];
  for (; i < count; i++) sums[i & 7] += x[i * x_stride] * y[i * y_stride];
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/* LAPACK larfg: v takes the place of x, and beta that of alpha. Returns tau. If squares would leave the range of
 * numbers, the column is scaled by a power of two, which is exact, and beta is scaled back. */
static REAL NAME(reflector_make)(int64_t count, REAL *alpha_address, REAL *x, int64_t stride) {
  const REAL low = REAL_MIN / (REAL_EPSILON * REAL_EPSILON), high = 1 / low;
  REAL alpha = *alpha_address, scale = 1, sum = NAME(dot)(count, x, stride, x, stride);
  if (!(sum > low && sum + alpha * alpha < high)) {
    REAL largest = 0;
    bool finite = true;
    for (int64_t i = 0; i < count; i++) {
      REAL magnitude = x[i * stride] < 0 ? -x[i * stride] : x[i * stride];
      if (!isfinite(magnitude)) finite = false;
      if (magnitude > largest) largest = magnitude;
    }
    if (largest == 0 && finite) return 0; /* H = I; alpha is kept, whatever its sign */
    if ((alpha < 0 ? -alpha : alpha) > largest) largest = alpha < 0 ? -alpha : alpha;
    if (finite && isfinite(alpha)) {
      int exponent = ilogb((double)largest);
      const int limit = -ilogb((double)REAL_MIN); /* 2^-exponent must itself be a normal number */
      exponent = exponent > limit ? limit : exponent < -limit ? -limit : exponent;
      scale = (REAL)ldexp(1.0, -exponent);
    }
    alpha *= scale;
    sum = 0;
    for (int64_t i = 0; i < count; i++) {
      x[i * stride] *= scale;
      sum += x[i * stride] * x[i * stride];
    }
  }
  REAL norm = (REAL)sqrt((double)(alpha * alpha + sum));
  REAL beta = signbit(alpha) ? norm : -norm;
  REAL inverse = 1 / (alpha - beta);
  REAL tau = (beta - alpha) / beta;
  for (int64_t i = 0; i < count; i++) x[i * stride] *= inverse;
  *alpha_address = beta / scale;
  return tau;
}

/* Of neighbours in memory, four vectors at a time if they are many. */
static REAL NAME(sum_of_squares)(int64_t count, const REAL *x) {
  REAL sums[8] = {0};
  int64_t i = 0;
  if (count >= 256) {
    REAL many[32] = {0};
    for (; i + 32 <= count; i += 32)
      for (int lane = 0; lane < 32; lane++) many[lane] = REAL_FMA(x[i + lane], x[i + lane], many[lane]);
    for (int lane = 0; lane < 8; lane++)
      sums[lane] = (many[lane] + many[lane + 8]) + (many[lane + 16] + many[lane + 24]);
  }
  for (; i + 8 <= count; i += 8)
    for (int lane = 0; lane < 8; lane++) sums[lane] = REAL_FMA(x[i + lane], x[i + lane], sums[lane]);
  for (; i < count; i++) sums[0] = REAL_FMA(x[i], x[i], sums[0]);
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/* Has the matrix numbers so large that products of its columns with reflectors may leave the range of numbers? A
 * doubled sum of 2^31 numbers leaves it only if 2^34 times the largest does. If the sum of squares is a number, there
 * are no such numbers: a multiply-add for each number decides most matrices. */
static bool NAME(is_large)(int64_t m, int64_t n, struct NAME(matrix) a) {
  const bool by_rows = a.column_stride == 1;
  const int64_t stride = by_rows ? 1 : a.row_stride, outer_stride = by_rows ? a.row_stride : a.column_stride;
  int64_t inner = by_rows ? n : m, outer = by_rows ? m : n;
  if (stride == 1 && inner == outer_stride) inner *= outer, outer = 1;
  for (int64_t i = 0; i < outer; i++) {
    const REAL *x = a.data + i * outer_stride;
    if (stride == 1 && isfinite(NAME(sum_of_squares)(inner, x))) continue;
    for (int64_t k = 0; k < inner; k++)
      if (!isfinite(x[k * stride] * (REAL)0x1p34)) return true;
  }
  return false;
}

/* reflect for such columns, one after the other. If the factor of v is no number, the column is made smaller meanwhile:
 * its norm is in the range, and so is the result. */
__attribute__((noinline, cold)) static void NAME(reflect_large)(int64_t count, const REAL *v, int64_t v_stride,
                                                                REAL tau, struct NAME(matrix) c, int64_t columns) {
  if (tau == 0) return;
  for (int64_t column = 0; column < columns; column++) {
    REAL *x = c.data + column * c.column_stride, *below = count ? x + c.row_stride : x, larger = 1;
    REAL w = tau * (x[0] + NAME(dot)(count, v, v_stride, below, c.row_stride));
    if (!isfinite(w)) {
      larger = (REAL)0x1p16;
      for (int64_t i = 0; i <= count; i++) x[i * c.row_stride] /= larger;
      w = tau * (x[0] + NAME(dot)(count, v, v_stride, below, c.row_stride));
    }
    x[0] = (x[0] - w) * larger;
    for (int64_t i = 0; i < count; i++)
      below[i * c.row_stride] = (below[i * c.row_stride] - v[i * v_stride] * w) * larger;
  }
}

/* C := (I - tau v v^T) C, where c starts in the row of v's implicit one and v holds what lies below it. */
static void NAME(reflect)(int64_t count, const REAL *v, int64_t v_stride, REAL tau, struct NAME(matrix) c,
                          int64_t columns) {
  assert(c.data || columns == 0);
  if (tau == 0) return;
  if (c.row_stride == 1) {
    for (int64_t column = 0; column < columns; column++) {
      REAL *target = c.data + column * c.column_stride;
      REAL w = tau * (target[0] + NAME(dot)(count, v, v_stride, target + 1, 1));
      target[0] -= w;
      for (int64_t i = 0; i < count; i++) target[i + 1] -= v[i * v_stride] * w;
    }
    return;
  }
  enum { CHUNK = 64 }; /* row-major: v^T C of 64 columns at a time, row by row */
  for (int64_t first = 0; first < columns; first += CHUNK) {
    REAL w[CHUNK];
    int64_t width = columns - first < CHUNK ? columns - first : CHUNK;
    REAL *row = c.data + first * c.column_stride;
    for (int64_t k = 0; k < width; k++) w[k] = row[k * c.column_stride];
    for (int64_t i = 0; i < count; i++) {
      row += c.row_stride;
      const REAL v_i = v[i * v_stride];
      if (c.column_stride == 1)
        for (int64_t k = 0; k < width; k++) w[k] += v_i * row[k];
      else
        for (int64_t k = 0; k < width; k++) w[k] += v_i * row[k * c.column_stride];
    }
    row = c.data + first * c.column_stride;
    for (int64_t k = 0; k < width; k++) row[k * c.column_stride] -= w[k] *= tau;
    for (int64_t i = 0; i < count; i++) {
      row += c.row_stride;
      const REAL v_i = v[i * v_stride];
      if (c.column_stride == 1)
        for (int64_t k = 0; k < width; k++) row[k] -= v_i * w[k];
      else
        for (int64_t k = 0; k < width; k++) row[k * c.column_stride] -= v_i * w[k];
    }
  }
}

static void NAME(factor)(int64_t m, int64_t n, struct NAME(matrix) a, REAL *tau) {
  const bool large = NAME(is_large)(m, n, a);
  for (int64_t j = 0; j < m && j < n; j++) {
    REAL *x = NAME(element)(a, j + 1 < m ? j + 1 : j, j); /* no address outside the matrix in the last row */
    tau[j] = NAME(reflector_make)(m - j - 1, NAME(element)(a, j, j), x, a.row_stride);
    if (j + 1 == n) break;
    if (large)
      NAME(reflect_large)(m - j - 1, x, a.row_stride, tau[j], NAME(part)(a, j, j + 1), n - j - 1);
    else
      NAME(reflect)(m - j - 1, x, a.row_stride, tau[j], NAME(part)(a, j, j + 1), n - j - 1);
  }
}

/* LAPACK org2r: the reflectors below the diagonal of q become the first k columns of Q. */
static void NAME(form)(int64_t m, int64_t k, struct NAME(matrix) q, const REAL *tau) {
  for (int64_t j = k; j-- > 0;) {
    REAL *x = NAME(element)(q, j + 1 < m ? j + 1 : j, j);
    if (j + 1 < k) NAME(reflect)(m - j - 1, x, q.row_stride, tau[j], NAME(part)(q, j, j + 1), k - j - 1);
    for (int64_t i = 0; i < m - j - 1; i++) x[i * q.row_stride] *= -tau[j];
    *NAME(element)(q, j, j) = 1 - tau[j];
    for (int64_t i = 0; i < j; i++) *NAME(element)(q, i, j) = 0;
  }
}

static void NAME(copy)(int64_t m, int64_t n, struct NAME(matrix) from, struct NAME(matrix) to) {
  bool by_rows = to.column_stride == 1;
  int64_t outer = by_rows ? m : n, inner = by_rows ? n : m;
  for (int64_t i = 0; i < outer; i++)
    for (int64_t k = 0; k < inner; k++)
      *NAME(element)(to, by_rows ? i : k, by_rows ? k : i) = *NAME(element)(from, by_rows ? i : k, by_rows ? k : i);
}

/* to := the upper triangle of from, zeros below; they may be the same. */
static void NAME(copy_upper)(int64_t k, int64_t n, struct NAME(matrix) from, struct NAME(matrix) to) {
  for (int64_t i = 0; i < k; i++)
    for (int64_t c = 0; c < n; c++) *NAME(element)(to, i, c) = i <= c ? *NAME(element)(from, i, c) : 0;
}

static void NAME(factor_item)(const struct qr_problem *problem, int64_t item, unsigned char *scratch) {
  struct NAME(matrix) a = NAME(matrix_at)(problem->a.matrix, item);
  struct NAME(matrix) h = NAME(matrix_at)(problem->h.matrix, item);
  struct NAME(matrix) r = NAME(matrix_at)(problem->r.matrix, item);
  struct NAME(matrix) q = NAME(matrix_at)(problem->q.matrix, item);
  struct NAME(matrix) work = {(REAL *)scratch, 1, problem->m};
  enum qr_place place = qr_place_of(problem);
  REAL *tau = place == QR_IN_H ? (REAL *)problem->tau.data + item * problem->tau.batch_stride
                               : (REAL *)(scratch + qr_workspace_of(problem).work_bytes);
  assert(tau); /* h and tau come together */
  if (place == QR_IN_H) work = h;
  if (place == QR_IN_R) work = r;
  if (place == QR_IN_Q) work = q;
  /* Without r, Q needs only the first m columns of a. */
  int64_t m = problem->m, k = problem->k, n = place == QR_IN_Q ? k : problem->n;
  if (work.data != a.data) NAME(copy)(m, n, a, work);
  NAME(factor)(m, n, work, tau);
  if (q.data && q.data != work.data) NAME(copy)(m, k, work, q);
  if (r.data) NAME(copy_upper)(k, problem->n, work, r);
  if (q.data) NAME(form)(m, k, q, tau);
}

static void NAME(apply_item)(const struct op_call *call, int64_t item, int64_t first, int64_t last) {
  const struct qr_attributes *attributes = op_attributes(call->task);
  const struct qr_problem problem = qr_problem_of(call);
  struct NAME(matrix) v = NAME(matrix_at)(problem.a.matrix, item), c = NAME(matrix_at)(problem.c.matrix, item);
  assert(v.data && c.data);
  const REAL *tau = (const REAL *)problem.tau.data + item * problem.tau.batch_stride;
  const bool large = NAME(is_large)(problem.m, last - first, NAME(part)(c, 0, first));
  for (int64_t step = 0; step < problem.k; step++) {
    int64_t j = attributes->transpose ? step : problem.k - 1 - step;
    const REAL *x = NAME(element)(v, j + 1 < problem.m ? j + 1 : j, j);
    if (large)
      NAME(reflect_large)(problem.m - j - 1, x, v.row_stride, tau[j], NAME(part)(c, j, first), last - first);
    else
      NAME(reflect)(problem.m - j - 1, x, v.row_stride, tau[j], NAME(part)(c, j, first), last - first);
  }
}

static void NAME(extract_item)(const struct op_call *call, int64_t item) {
  const struct qr_problem problem = qr_problem_of(call);
  struct NAME(matrix) h = NAME(matrix_at)(problem.a.matrix, item), r = NAME(matrix_at)(problem.r.matrix, item),
                      q = NAME(matrix_at)(problem.q.matrix, item);
  if (r.data) NAME(copy_upper)(problem.k, problem.n, h, r);
  if (!q.data) return;
  for (int64_t c = 0; c < problem.k; c++)
    for (int64_t i = 0; i < problem.m; i++) *NAME(element)(q, i, c) = i == c;
}

/* Forward substitution, row by row: row i of the inverse is e_i - sum over j < i of a_ij times its row j. */
static void NAME(triangular_inverse_item)(const struct op_call *call, int64_t item) {
  const struct op_operand *operands = call->task->operands;
  struct NAME(matrix) a = NAME(matrix_at)(
      qr_matrix_of(&operands[TRIANGULAR_INVERSE_A], call->data[TRIANGULAR_INVERSE_A], RONDO_ROW_MAJOR), item);
  struct NAME(matrix) out = NAME(matrix_at)(
      qr_matrix_of(&operands[TRIANGULAR_INVERSE_OUT], call->data[TRIANGULAR_INVERSE_OUT], RONDO_ROW_MAJOR), item);
  int64_t n = operands[TRIANGULAR_INVERSE_A].shape[operands[TRIANGULAR_INVERSE_A].rank - 1];
  for (int64_t i = 0; i < n; i++) {
    REAL row[128]; /* out may be a */
    for (int64_t j = 0; j < i; j++) row[j] = *NAME(element)(a, i, j);
    REAL *result = NAME(element)(out, i, 0);
    for (int64_t c = 0; c < n; c++) result[c] = c == i;
    for (int64_t j = 0; j < i; j++) {
      const REAL *source = NAME(element)(out, j, 0);
      for (int64_t c = 0; c <= j; c++) result[c] -= row[j] * source[c];
    }
  }
}
