/* qr_least_squares_real.h - least squares for one type of real number, in LAPACK's order. qr_host.c includes it after
 * qr_host_real.h. */

enum { NAME(exponent_taken) = 32 };

/* Reads a right-hand side. Near the largest number it is made smaller: sums over it would overflow. Returns the
 * exponent that is taken off. */
static int NAME(rhs_read)(int64_t m, struct NAME(matrix) b, REAL *rhs) {
  REAL largest = 0;
  for (int64_t i = 0; i < m; i++) {
    rhs[i] = *NAME(element)(b, i, 0);
    REAL magnitude = rhs[i] < 0 ? -rhs[i] : rhs[i];
    if (magnitude > largest) largest = magnitude;
  }
  if (!(largest > (REAL)ldexp((double)REAL_MAX, -NAME(exponent_taken) - 1))) return 0;
  for (int64_t i = 0; i < m; i++) rhs[i] = (REAL)ldexp((double)rhs[i], -NAME(exponent_taken));
  return NAME(exponent_taken);
}

static REAL NAME(norm)(int64_t count, const REAL *x) {
  REAL largest = 0, sum = 0;
  for (int64_t i = 0; i < count; i++) {
    REAL magnitude = x[i] < 0 ? -x[i] : x[i];
    if (magnitude > largest) largest = magnitude;
  }
  int exponent = largest > 0 && isfinite(largest) ? ilogb((double)largest) : 0;
  for (int64_t i = 0; i < count; i++) {
    REAL scaled = (REAL)ldexp((double)x[i], -exponent);
    sum += scaled * scaled;
  }
  return (REAL)ldexp(sqrt((double)sum), exponent);
}

/* LAPACK's info: the first zero on R's diagonal, counted from one, or 0. */
static int32_t NAME(first_zero)(int64_t n, struct NAME(matrix) r) {
  for (int64_t j = 0; j < n; j++)
    if (*NAME(element)(r, j, j) == 0) return (int32_t)j + 1;
  return 0;
}

/* `rhs` holds a right-hand side: it becomes Q^T b, and its first rows x. */
static void NAME(rhs_solve)(int64_t m, int64_t n, struct NAME(matrix) h, const REAL *tau, bool singular, REAL *rhs) {
  for (int64_t j = 0; j < n; j++) {
    const REAL *v = NAME(element)(h, j + 1 < m ? j + 1 : j, j);
    NAME(reflect)(m - j - 1, v, 1, tau[j], (struct NAME(matrix)){rhs + j, 1, m}, 1);
  }
  for (int64_t j = n; j-- > 0 && !singular;) {
    const REAL *column = NAME(element)(h, 0, j);
    rhs[j] /= column[j];
    for (int64_t i = 0; i < j; i++) rhs[i] -= column[i] * rhs[j];
  }
}

static void NAME(least_squares_item)(const struct op_call *call, int64_t item, unsigned char *scratch) {
  const struct op_operand *operands = call->task->operands;
  const int32_t layout = qr_layout_of(call->task);
  const struct qr_problem problem = qr_problem_of(call);
  const int64_t m = problem.m, n = problem.n, rhs_count = least_squares_rhs_count(call->task);
#define MATRIX(index) NAME(matrix_at)(qr_matrix_of(&operands[index], call->data[index], layout), item)
  struct NAME(matrix) a = MATRIX(LEAST_SQUARES_A), b = MATRIX(LEAST_SQUARES_B), x = MATRIX(LEAST_SQUARES_X);
#undef MATRIX
  struct qr_vector residual = qr_vector_of(&operands[LEAST_SQUARES_RESIDUAL], call->data[LEAST_SQUARES_RESIDUAL]);
  struct NAME(matrix) h = {(REAL *)scratch, 1, m};
  REAL *tau = h.data + m * n, *rhs = tau + n;
  NAME(copy)(m, n, a, h);
  NAME(factor)(m, n, h, tau);
  const int32_t info = NAME(first_zero)(n, h);
  if (operands[LEAST_SQUARES_INFO].present)
    ((int32_t *)call->data[LEAST_SQUARES_INFO])[item * operands[LEAST_SQUARES_INFO].stride[0]] = info;
  for (int64_t s = 0; s < rhs_count; s++) {
    int taken = NAME(rhs_read)(m, NAME(part)(b, 0, s), rhs);
    NAME(rhs_solve)(m, n, h, tau, info != 0, rhs);
    for (int64_t i = 0; i < n; i++) *NAME(element)(x, i, s) = info ? (REAL)NAN : (REAL)ldexp((double)rhs[i], taken);
    if (residual.data)
      ((REAL *)residual.data)[item * residual.batch_stride + s] =
          (REAL)ldexp((double)NAME(norm)(m - n, rhs + n), taken);
  }
}
