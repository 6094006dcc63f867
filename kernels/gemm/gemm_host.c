/* gemm_host.c - products of many rows on the host: gemv's loops, sixteen vectors at a time. An item is up to 32 rows of
 * W for one group of vectors. Each result is one thread's, in a fixed order. The multiplications bound it. */
#include <string.h>

#include "../../runtime/integer.h"
#include "gemm.h"

int64_t gemm_host_items(const struct op_task *task) {
  return gemv_host_items(task) * divide_up(gemv_shape_of(task).count, GEMV_COUNT);
}

/* The same task for the vectors of one group. */
struct few {
  struct op_task task;
  struct op_operand operands[GEMV_OPERANDS];
  void *data[GEMV_OPERANDS];
  struct op_call call;
};

static void few_begin(struct few *few, const struct op_call *call, int64_t group, int64_t count) {
  static const uint32_t by_vector[] = {GEMV_VECTORS, GEMV_OUT, GEMV_RESIDUAL};
  few->task = *call->task;
  few->task.operands = few->operands;
  memcpy(few->operands, call->task->operands, sizeof few->operands);
  memcpy(few->data, call->data, sizeof few->data);
  for (size_t i = 0; i < sizeof by_vector / sizeof *by_vector; i++) {
    struct op_operand *operand = &few->operands[by_vector[i]];
    if (!operand->present) continue;
    const int64_t first = group * GEMV_COUNT, bytes = rondo_dtype_bits(operand->dtype) / 8;
    operand->shape[operand->rank - 2] = smaller(GEMV_COUNT, count - first);
    few->data[by_vector[i]] =
        (unsigned char *)call->data[by_vector[i]] + first * operand->stride[operand->rank - 2] * bytes;
  }
  few->call = *call;
  few->call.task = &few->task, few->call.data = few->data;
}

void gemm_host_run(const struct op_call *call, int64_t first, int64_t last) {
  const int64_t items = gemv_host_items(call->task), count = gemv_shape_of(call->task).count;
  struct few few;
  for (int64_t item = first; item < last;) {
    const int64_t group = item / items, end = smaller(last, (group + 1) * items);
    few_begin(&few, call, group, count);
    gemv_host_run(&few.call, item - group * items, end - group * items);
    item = end;
  }
}
