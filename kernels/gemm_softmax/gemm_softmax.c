/* gemm_softmax.c - describing S = scale A B^T with its row maxima or its softmax: rondo_add_gemm_rowmax,
 * rondo_add_gemm_softmax and their checks. */
#include <inttypes.h>

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

/* Fails unless dimension `at` of the operand has the extent of the same thing elsewhere. */
static rondo_status extent_check(const char *name, const struct op_operand *operand, uint32_t at, const char *what,
                                 int64_t expected, const char *other) {
  if (operand->shape[at] == expected) return RONDO_OK;
  return op_refuse("%s has %" PRId64 " %s%s, %s has %" PRId64, name, operand->shape[at], what,
                   PLURAL(operand->shape[at]), other, expected);
}

static rondo_status product_check(const struct op_task *task, const char *out_name, uint32_t out_rank_less) {
  const struct op_operand *a = &task->operands[GEMM_A], *b = &task->operands[GEMM_B], *out = &task->operands[GEMM_OUT];
  if (!a->present) return op_unexpected("a", a, "a tensor");
  if (!b->present) return op_unexpected("b", b, "a tensor");
  if (!out->present) return op_unexpected(out_name, out, "a tensor");
  if (a->dtype != RONDO_F16 && a->dtype != RONDO_BF16)
    return op_refuse("a is %s, expected f16 or bf16", rondo_dtype_name(a->dtype));
  if (b->dtype != a->dtype)
    return op_refuse("b is %s, expected the dtype of a, %s", rondo_dtype_name(b->dtype), rondo_dtype_name(a->dtype));
  if (a->rank != 2 && a->rank != 3)
    return op_refuse("a has %" PRIu32 " dimension%s, expected [m, k] or [batch, m, k]", a->rank, PLURAL(a->rank));
  if (b->rank != a->rank)
    return op_refuse("b has %" PRIu32 " dimension%s, expected those of a, %" PRIu32, b->rank, PLURAL(b->rank), a->rank);
  if (out->rank != a->rank - out_rank_less)
    return op_refuse("%s has %" PRIu32 " dimension%s, expected %" PRIu32, out_name, out->rank, PLURAL(out->rank),
                     a->rank - out_rank_less);
  uint32_t row = a->rank - 2;
  OP_TRY(extent_check("b", b, row + 1, "column", a->shape[row + 1], "a"));
  if (row) OP_TRY(extent_check("b", b, 0, "item", a->shape[0], "a"));
  if (row) OP_TRY(extent_check(out_name, out, 0, "item", a->shape[0], "a"));
  OP_TRY(extent_check(out_name, out, row, "row", a->shape[row], "a"));
  const struct gemm_softmax_attributes *attributes = op_attributes(task);
  OP_TRY(op_expect_finite("scale", attributes->scale));
  return RONDO_OK;
}

rondo_status gemm_rowmax_check(const struct op_task *task) {
  OP_TRY(product_check(task, "max", 1));
  rondo_dtype dtype = task->operands[GEMM_OUT].dtype;
  if (dtype != RONDO_F32) return op_refuse("max is %s, expected f32", rondo_dtype_name(dtype));
  return RONDO_OK;
}

rondo_status gemm_softmax_check(const struct op_task *task) {
  OP_TRY(product_check(task, "p", 0));
  const struct op_operand *b = &task->operands[GEMM_B], *p = &task->operands[GEMM_OUT];
  if (p->dtype != RONDO_F32 && p->dtype != RONDO_F16 && p->dtype != RONDO_BF16)
    return op_refuse("p is %s, expected f16, bf16 or f32", rondo_dtype_name(p->dtype));
  if (p->shape[p->rank - 1] != b->shape[b->rank - 2])
    return op_refuse("p has %" PRId64 " column%s, b has %" PRId64 " row%s", p->shape[p->rank - 1],
                     PLURAL(p->shape[p->rank - 1]), b->shape[b->rank - 2], PLURAL(b->shape[b->rank - 2]));
  return RONDO_OK;
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
