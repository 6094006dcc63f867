/* qr_host.c - batched QR on the host. An item is one matrix, or for qr_apply some columns of one. One thread computes
 * it in a fixed order. */
#include <assert.h>
#include <float.h>
#include <math.h>

#include "../../runtime/integer.h"
#include "../common/number.h"
#include "../least_squares/least_squares.h"

#define REAL         float
#define REAL_MIN     FLT_MIN
#define REAL_MAX     FLT_MAX
#define REAL_EPSILON FLT_EPSILON
#define REAL_FMA     fmaf
#define NAME(x)      x##_f32
#include "qr_host_real.h"
#include "qr_least_squares_real.h"
#undef REAL
#undef REAL_MIN
#undef REAL_MAX
#undef REAL_EPSILON
#undef REAL_FMA
#undef NAME

#define REAL         double
#define REAL_MIN     DBL_MIN
#define REAL_MAX     DBL_MAX
#define REAL_EPSILON DBL_EPSILON
#define REAL_FMA     fma
#define NAME(x)      x##_f64
#include "qr_host_real.h"
#include "qr_least_squares_real.h"

enum { APPLY_COLUMNS = 32 }; /* of one item */

static bool is_f32(const struct op_task *task) { return task->operands[0].dtype != RONDO_F64; }

/* h := a, widened to f32, for one matrix. */
static void widen_item(const struct qr_problem *problem, int64_t item) {
  const struct qr_matrix from = problem->a.matrix, to = problem->h.matrix;
  const uint16_t *a = (const uint16_t *)from.data + item * from.batch_stride;
  float *h = (float *)to.data + item * to.batch_stride;
  for (int64_t j = 0; j < problem->n; j++)
    for (int64_t i = 0; i < problem->m; i++) {
      const uint16_t bits = a[i * from.row_stride + j * from.column_stride];
      h[i * to.row_stride + j * to.column_stride] = problem->dtype == RONDO_F16 ? f32_of_f16(bits) : f32_of_bf16(bits);
    }
}

/* With a workspace, item i has its i-th part and every workers-th matrix. */
int64_t qr_host_items(const struct op_task *task) {
  struct qr_problem problem = qr_problem_nowhere(task);
  if (!problem.k) return 0;
  return problem.h.is_present ? problem.batch : qr_workspace_of(&problem).workers;
}

void qr_host_run(const struct op_call *call, int64_t first, int64_t last) {
  struct qr_problem problem = qr_problem_of(call);
  struct qr_workspace workspace = qr_workspace_of(&problem);
  int64_t step = problem.h.is_present ? problem.batch : workspace.workers;
  if (qr_is_narrow(problem.dtype)) { /* then h is present, and it is factored in place */
    for (int64_t item = first; item < last; item++) widen_item(&problem, item);
    problem.a = problem.h;
  }
  for (int64_t item = first; item < last; item++) {
    unsigned char *scratch =
        problem.h.is_present ? NULL : (unsigned char *)call->scratch + (uint64_t)item * workspace.worker_bytes;
    for (int64_t matrix = item; matrix < problem.batch; matrix += step)
      (is_f32(call->task) ? factor_item_f32 : factor_item_f64)(&problem, matrix, scratch);
  }
}

int64_t qr_apply_host_items(const struct op_task *task) {
  struct qr_problem problem = qr_problem_nowhere(task);
  return problem.k ? problem.batch * divide_up(problem.columns, APPLY_COLUMNS) : 0;
}

void qr_apply_host_run(const struct op_call *call, int64_t first, int64_t last) {
  int64_t columns = qr_problem_of(call).columns, blocks = divide_up(columns, APPLY_COLUMNS);
  for (int64_t item = first; item < last; item++) {
    int64_t begin = item % blocks * APPLY_COLUMNS;
    int64_t end = begin + APPLY_COLUMNS < columns ? begin + APPLY_COLUMNS : columns;
    (is_f32(call->task) ? apply_item_f32 : apply_item_f64)(call, item / blocks, begin, end);
  }
}

int64_t qr_extract_host_items(const struct op_task *task) { return qr_problem_nowhere(task).batch; }

void qr_extract_host_run(const struct op_call *call, int64_t first, int64_t last) {
  for (int64_t item = first; item < last; item++)
    (is_f32(call->task) ? extract_item_f32 : extract_item_f64)(call, item);
}

int64_t triangular_inverse_host_items(const struct op_task *task) {
  const struct op_operand *a = &task->operands[TRIANGULAR_INVERSE_A];
  return a->rank == 3 ? a->shape[0] : 1;
}

void triangular_inverse_host_run(const struct op_call *call, int64_t first, int64_t last) {
  for (int64_t item = first; item < last; item++)
    (is_f32(call->task) ? triangular_inverse_item_f32 : triangular_inverse_item_f64)(call, item);
}

/* Item i has the i-th part of the scratch and matrices i, i + step, .. */
void least_squares_host_run(const struct op_call *call, int64_t first, int64_t last) {
  int64_t batch = qr_problem_of(call).batch, step = least_squares_host_items(call->task);
  uint64_t part_bytes = least_squares_host_bytes(call->task);
  for (int64_t item = first; item < last; item++)
    for (int64_t matrix = item; matrix < batch; matrix += step)
      (is_f32(call->task) ? least_squares_item_f32 : least_squares_item_f64)(
          call, matrix, (unsigned char *)call->scratch + (uint64_t)item * part_bytes);
}
