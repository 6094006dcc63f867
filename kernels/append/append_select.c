/* append_select.c - chooses the vector width and the number of blocks of an append. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "append.h"

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
