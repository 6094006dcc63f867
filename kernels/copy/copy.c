/* copy.c - rondo_add_copy: the check of its arguments, and the rectangle as rows of bytes. */
#include "copy.h"

rondo_status rondo_add_copy(rondo_graph *graph, const rondo_copy_desc *desc) {
  if (!desc) return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_add_copy: the description is NULL");
  struct op_argument arguments[] = {
      [COPY_SRC] = {"src", desc->src, RONDO_READ, 0},
      [COPY_DST] = {"dst", desc->dst, RONDO_WRITE, 0},
  };
  return graph_add(graph, &op_copy, desc->name, arguments, 2, NULL, 0);
}

rondo_status copy_check(const struct op_task *task) {
  const struct op_operand *src = &task->operands[COPY_SRC], *dst = &task->operands[COPY_DST];
  if (!src->present || !dst->present)
    return status_set(RONDO_INVALID_ARGUMENT, "%s is absent, expected a tensor", src->present ? "dst" : "src");
  bool same = src->dtype == dst->dtype && src->rank == dst->rank;
  for (uint32_t i = 0; same && i < src->rank; i++) same = src->shape[i] == dst->shape[i];
  if (same) return RONDO_OK;
  char src_text[128], dst_text[128];
  shape_describe(src_text, sizeof src_text, src->dtype, src->rank, src->shape);
  shape_describe(dst_text, sizeof dst_text, dst->dtype, dst->rank, dst->shape);
  return status_set(RONDO_INVALID_ARGUMENT, "dst is %s, expected the dtype and shape of src, %s", dst_text, src_text);
}

struct copy_shape copy_shape_of(const struct op_task *task) {
  const struct op_operand *src = &task->operands[COPY_SRC], *dst = &task->operands[COPY_DST];
  int64_t bits = rondo_dtype_bits(src->dtype);
  struct copy_shape shape = {.extent = {1, 1, 1}, .row_bytes = bits, .rows = op_elements(src) > 0};
  if (!shape.rows) return shape;
  /* The last dimension is dense. In nvfp4 it has an even number of elements, and so every size below is whole bytes. */
  shape.row_bytes = src->shape[src->rank - 1] * bits / 8;
  uint32_t outer = COPY_OUTER;
  for (uint32_t i = src->rank - 1; i-- > 0;) {
    if (src->shape[i] == 1) continue;
    int64_t src_stride = src->stride[i] * bits / 8, dst_stride = dst->stride[i] * bits / 8;
    if (outer == COPY_OUTER && src_stride == shape.row_bytes && dst_stride == shape.row_bytes) {
      shape.row_bytes *= src->shape[i];
    } else {
      outer--;
      shape.extent[outer] = src->shape[i];
      shape.src_stride[outer] = src_stride;
      shape.dst_stride[outer] = dst_stride;
      shape.rows *= src->shape[i];
    }
  }
  return shape;
}
