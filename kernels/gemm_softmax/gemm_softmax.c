/* gemm_softmax.c - describing S = scale A B^T with its row maxima or its softmax: rondo_add_gemm_rowmax,
 * rondo_add_gemm_softmax and their checks. */
#include <inttypes.h>
#include <stdio.h>

#include "../common/rows.h"
#include "gemm_softmax.h"

rondo_status rondo_add_gemm_rowmax(rondo_graph *graph, const rondo_gemm_rowmax_desc *desc) {
  if (!desc) return op_refuse("describe: rondo_add_gemm_rowmax: the description is NULL");
  struct op_argument arguments[] = {
      [GEMM_A] = {"a", desc->a, RONDO_READ, 0},
      [GEMM_B] = {"b", desc->b, RONDO_READ, 0},
      [GEMM_OUT] = {"max", desc->max, RONDO_WRITE, 0},
  };
  struct gemm_softmax_attributes attributes = {desc->scale, desc->causal != 0};
  return graph_add(graph, &op_gemm_rowmax, desc->name, arguments, 3, &attributes, sizeof attributes);
}

rondo_status rondo_add_gemm_softmax(rondo_graph *graph, const rondo_gemm_softmax_desc *desc) {
  if (!desc) return op_refuse("describe: rondo_add_gemm_softmax: the description is NULL");
  struct op_argument arguments[] = {
      [GEMM_A] = {"a", desc->a, RONDO_READ, 0},
      [GEMM_B] = {"b", desc->b, RONDO_READ, 0},
      [GEMM_OUT] = {"p", desc->p, RONDO_WRITE, 0},
  };
  struct gemm_softmax_attributes attributes = {desc->scale, desc->causal != 0};
  return graph_add(graph, &op_gemm_softmax, desc->name, arguments, 3, &attributes, sizeof attributes);
}

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

static rondo_status product_check(const struct op_task *task) {
  const struct op_operand *a = &task->operands[GEMM_A], *b = &task->operands[GEMM_B];
  const struct gemm_softmax_attributes *attributes = op_attributes(task);
  const bool has_16_bits = a->dtype == RONDO_F16 || a->dtype == RONDO_BF16, has_batch = a->rank == 3;
  if (!a->present || !has_16_bits || (a->rank != 2 && !has_batch))
    return op_unexpected("a", a, "[m, k] or [batch, m, k] f16 or bf16");
  const int64_t k = a->shape[a->rank - 1];
  char batch[32] = "", expected[64];
  if (has_batch) snprintf(batch, sizeof batch, "%" PRId64 ", ", a->shape[0]);
  snprintf(expected, sizeof expected, "[%sn, %" PRId64 "] %s", batch, k, rondo_dtype_name(a->dtype));
  if (!b->present || b->dtype != a->dtype || b->rank != a->rank || b->shape[b->rank - 1] != k ||
      (has_batch && b->shape[0] != a->shape[0]))
    return op_unexpected("b", b, expected);
  return op_expect_finite("scale", attributes->scale);
}

rondo_status gemm_rowmax_check(const struct op_task *task) {
  const struct op_operand *a = &task->operands[GEMM_A];
  OP_TRY(product_check(task));
  return op_expect("max", &task->operands[GEMM_OUT], RONDO_F32, a->rank - 1, a->shape);
}

rondo_status gemm_softmax_check(const struct op_task *task) {
  const struct op_operand *a = &task->operands[GEMM_A], *b = &task->operands[GEMM_B], *p = &task->operands[GEMM_OUT];
  OP_TRY(product_check(task));
  if (!p->present || !rows_are_numbers(p->dtype))
    return op_unexpected("p", p, "[m, n] or [batch, m, n] f16, bf16 or f32");
  int64_t shape[3] = {a->shape[0], a->shape[1]};
  shape[a->rank - 1] = b->shape[b->rank - 2];
  return op_expect("p", p, p->dtype, a->rank, shape);
}

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

struct gemm_softmax_shape gemm_softmax_shape_of(const struct op_task *task) {
  const struct op_operand *a = &task->operands[GEMM_A], *b = &task->operands[GEMM_B], *out = &task->operands[GEMM_OUT];
  const struct gemm_softmax_attributes *attributes = op_attributes(task);
  uint32_t row = a->rank - 2; /* the dimension of A's rows, of B's and of the result's */
  return (struct gemm_softmax_shape){
      .batch = row ? a->shape[0] : 1,
      .m = a->shape[row],
      .n = b->shape[row],
      .k = a->shape[row + 1],
      .a_batch_stride = row ? a->stride[0] : 0,
      .a_row_stride = a->stride[row],
      .b_batch_stride = row ? b->stride[0] : 0,
      .b_row_stride = b->stride[row],
      .out_batch_stride = row ? out->stride[0] : 0,
      .out_row_stride = out->stride[row],
      .scale = attributes->scale == 0 ? 1 : attributes->scale,
      .causal = attributes->causal,
  };
}
