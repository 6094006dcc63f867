/* append.c - rondo_add_append: the check of its arguments, the tensors as pieces of bytes, and the launch. */
#include "append.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"

rondo_status rondo_add_append(rondo_graph *graph, const rondo_append_desc *desc) {
  if (!desc) return op_refuse("describe: rondo_add_append: the description is NULL");
  struct op_argument arguments[] = {
      [APPEND_SRC] = {"src", desc->src, RONDO_READ, 0},
      [APPEND_DST] = {"dst", desc->dst, RONDO_READ_WRITE, 0}, /* the other rows keep their content */
      [APPEND_POSITION] = {"position", desc->position, RONDO_READ, 0},
  };
  struct append_attributes attributes = {desc->dimension};
  return graph_add(graph, &op_append, desc->name, arguments, 3, &attributes, sizeof attributes);
}

static uint32_t dimension_of(const struct op_task *task) {
  struct append_attributes attributes;
  memcpy(&attributes, task->attributes, sizeof attributes);
  return attributes.dimension;
}

static rondo_status rows_check(const struct op_operand *src, const struct op_operand *dst, uint32_t dimension) {
  bool same = src->present && src->dtype == dst->dtype && src->rank == dst->rank;
  for (uint32_t i = 0; same && i < dst->rank; i++) same = i == dimension || src->shape[i] == dst->shape[i];
  if (!same) {
    char dst_text[96], expected[192];
    shape_describe(dst_text, sizeof dst_text, dst->dtype, dst->rank, dst->shape);
    snprintf(expected, sizeof expected, "the dtype and shape of dst, %s, where only dimension %" PRIu32 " may differ",
             dst_text, dimension);
    return op_unexpected("src", src, expected);
  }
  if (src->shape[dimension] <= dst->shape[dimension]) return RONDO_OK;
  return op_refuse("src has %" PRId64 " row%s, expected at most the %" PRId64 " of dst", src->shape[dimension],
                   PLURAL(src->shape[dimension]), dst->shape[dimension]);
}

rondo_status append_check(const struct op_task *task) {
  const struct op_operand *dst = &task->operands[APPEND_DST], *position = &task->operands[APPEND_POSITION];
  uint32_t dimension = dimension_of(task);
  if (!dst->present) return op_unexpected("dst", dst, "a tensor");
  if (dimension >= dst->rank)
    return op_refuse("dimension is %" PRIu32 ", expected less than dst's rank, %" PRIu32, dimension, dst->rank);
  if (dst->dtype == RONDO_NVFP4 && dimension == dst->rank - 1)
    return op_refuse("dimension is %" PRIu32 ", the last of dst, expected less: an nvfp4 value is half a byte",
                     dimension);
  OP_TRY(rows_check(&task->operands[APPEND_SRC], dst, dimension));
  return op_expect_list("position", position, RONDO_I32, dimension ? dst->shape[0] : 1);
}

struct append_shape append_shape_of(const struct op_task *task) {
  const struct op_operand *src = &task->operands[APPEND_SRC], *dst = &task->operands[APPEND_DST];
  int64_t bits = rondo_dtype_bits(src->dtype);
  uint32_t last = src->rank - 1, dimension = dimension_of(task);
  struct append_shape shape = {.extent = {1, 1, 1, 1},
                               .piece_bytes = dimension == last ? bits / 8 : src->shape[last] * bits / 8,
                               .pieces = op_elements(src) > 0,
                               .capacity = dst->shape[dimension],
                               .dimension = dimension,
                               .per_item = task->operands[APPEND_POSITION].shape[0] > 1};
  for (uint32_t i = 0; i < src->rank; i++) {
    if (i == last && dimension != last) continue;
    shape.extent[i] = src->shape[i];
    shape.src_stride[i] = src->stride[i] * bits / 8;
    shape.dst_stride[i] = dst->stride[i] * bits / 8;
    shape.pieces *= src->shape[i];
  }
  return shape;
}

/* The task reads dst only in the sense that the other rows keep their content: it loads no element of dst. */
int64_t append_touched_elements(const struct op_task *task, uint32_t operand, rondo_access access) {
  if (operand != APPEND_DST) return op_elements(&task->operands[operand]);
  return access == RONDO_READ ? 0 : op_elements(&task->operands[APPEND_SRC]);
}

APPEND_KERNELS(KERNEL_CONSTANT)

/* The widest vector that divides every offset, stride and size. Tensors begin at multiples of 256 bytes. The position
 * is unknown here. It moves dst by a multiple of the row stride, and so that stride counts even if src has one row. */
static uint32_t vector_bytes_of(const struct op_task *task, const struct append_shape *shape) {
  uint64_t all = task->operands[APPEND_SRC].offset_bytes | task->operands[APPEND_DST].offset_bytes |
                 (uint64_t)shape->piece_bytes | APPEND_VECTOR_BYTES;
  for (uint32_t i = 0; i < APPEND_OUTER; i++) {
    if (shape->extent[i] > 1) all |= (uint64_t)shape->src_stride[i];
    if (shape->extent[i] > 1 || i == shape->dimension) all |= (uint64_t)shape->dst_stride[i];
  }
  return (uint32_t)(all & -all);
}

/* One vector for each thread, up to eight blocks for each multiprocessor. Beyond that, each thread loops. The limit of
 * eight was not measured. */
static int64_t blocks_of(int64_t vectors, const struct chip *chip) {
  return smaller(divide_up(vectors, APPEND_THREADS), 8 * larger(chip->multiprocessors, 1));
}

rondo_status append_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  struct append_shape shape = append_shape_of(call->task);
  launches->count = 0;
  if (!shape.pieces) return RONDO_OK;
  uint32_t vector_bytes = vector_bytes_of(call->task, &shape);
  struct append_parameters parameters = {
      .src = call->data[APPEND_SRC],
      .dst = call->data[APPEND_DST],
      .positions = call->data[APPEND_POSITION],
      .piece = (uint32_t)(shape.piece_bytes / vector_bytes),
      .total = (uint32_t)(shape.pieces * (shape.piece_bytes / vector_bytes)),
      .vector_bytes = vector_bytes,
      .dimension = shape.dimension,
      .capacity = (uint32_t)shape.capacity,
      .per_item = shape.per_item,
  };
  for (int i = 0; i < APPEND_OUTER; i++) {
    parameters.extent[i] = (uint32_t)shape.extent[i];
    parameters.src_stride[i] = shape.src_stride[i] / vector_bytes;
    parameters.dst_stride[i] = shape.dst_stride[i] / vector_bytes;
  }
  launch_add(launches, &rondo_append, blocks_of(parameters.total, chip), APPEND_THREADS, 0, &parameters,
             sizeof parameters);
  return RONDO_OK;
}
