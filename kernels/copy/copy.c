/* copy.c - rondo_add_copy: the check of its arguments, the rectangle as rows of bytes, and the choice of kernel, vector
 * width and number of blocks. */
#include "copy.h"

#include "../../runtime/integer.h"
#include "../common/launch.h"

rondo_status rondo_add_copy(rondo_graph *graph, const rondo_copy_desc *desc) {
  if (!desc) return op_refuse("describe: rondo_add_copy: the description is NULL");
  struct op_argument arguments[] = {
      [COPY_SRC] = {"src", desc->src, RONDO_READ, 0},
      [COPY_DST] = {"dst", desc->dst, RONDO_WRITE, 0},
  };
  return graph_add(graph, &op_copy, desc->name, arguments, 2, NULL, 0);
}

rondo_status copy_check(const struct op_task *task) {
  const struct op_operand *src = &task->operands[COPY_SRC], *dst = &task->operands[COPY_DST];
  if (!src->present) return op_unexpected("src", src, "a tensor");
  return op_expect("dst", dst, src->dtype, src->rank, src->shape);
}

COPY_KERNELS(KERNEL_CONSTANT)

/* The widest vector that divides every offset, stride and size. Tensors begin at multiples of 256 bytes. */
static uint32_t vector_bytes_of(const struct op_task *task, const struct dense_rows *rows) {
  int64_t elements = rows->row;
  for (int i = 0; i < COPY_OUTER; i++) elements |= rows->stride[COPY_SRC][i] | rows->stride[COPY_DST][i];
  const uint64_t all = task->operands[COPY_SRC].offset_bytes | task->operands[COPY_DST].offset_bytes |
                       (uint64_t)copy_bytes(task, elements) | 16;
  return (uint32_t)(all & -all);
}

/* The fastest numbers of blocks between pinned and device memory (H200, 1 KB to 4 MB): 1 block up to 4 KB, 4 at 16 KB,
 * 16 at 64 KB, 32 at 256 KB, 64 at 1 MB. More blocks slow the bus down. Copies within the device gain from more blocks,
 * and get these numbers all the same. */
static int64_t blocks_by_bytes(int64_t bytes) {
  int64_t kilobytes = (bytes + 1023) / 1024;
  if (kilobytes <= 64) return (kilobytes + 3) / 4;
  if (kilobytes <= 256) return kilobytes <= 128 ? 16 : kilobytes / 8;
  return kilobytes <= 512 ? 32 : kilobytes / 16;
}

static void select_rows(const struct op_call *call, const struct chip *chip, const struct dense_rows *rows,
                        struct op_launches *launches) {
  const struct op_task *task = call->task;
  uint32_t vector_bytes = vector_bytes_of(task, rows);
  const int64_t bytes = copy_bytes(task, rows->rows * rows->row);
  struct copy_parameters parameters = {
      .src = call->data[COPY_SRC],
      .dst = call->data[COPY_DST],
      .row = (uint32_t)(copy_bytes(task, rows->row) / vector_bytes),
      .total = (uint32_t)(bytes / vector_bytes),
      .vector_bytes = vector_bytes,
  };
  for (int i = 0; i < COPY_OUTER; i++) {
    parameters.extent[i] = (uint32_t)rows->extent[i];
    parameters.src_stride[i] = copy_bytes(task, rows->stride[COPY_SRC][i]) / vector_bytes;
    parameters.dst_stride[i] = copy_bytes(task, rows->stride[COPY_DST][i]) / vector_bytes;
  }
  /* Narrow vectors need more threads to move the same bytes. */
  int64_t blocks = blocks_by_bytes(bytes);
  if (vector_bytes < 16) blocks = larger(blocks, divide_up(parameters.total, (int64_t)COPY_THREADS * COPY_UNROLL));
  blocks = smaller(blocks, 4 * larger(chip->multiprocessors, 1));
  launch_add(launches, &rondo_copy, blocks, COPY_THREADS, 0, &parameters, sizeof parameters);
}

static void select_small(const struct op_call *call, uint32_t bytes, struct op_launches *launches) {
  struct copy_small_parameters parameters = {.src = call->data[COPY_SRC], .dst = call->data[COPY_DST], .bytes = bytes};
  launch_add(launches, &rondo_copy_small, divide_up(bytes, COPY_BLOCK_BYTES), COPY_THREADS, 0, &parameters,
             sizeof parameters);
}

rondo_status copy_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct dense_rows rows = copy_rows_of(call->task);
  const int64_t row_bytes = copy_bytes(call->task, rows.row);
  const struct op_operand *operands = call->task->operands;
  launches->count = 0;
  if (!rows.rows) return RONDO_OK;
  bool is_aligned = (operands[COPY_SRC].offset_bytes | operands[COPY_DST].offset_bytes) % COPY_VECTOR_BYTES == 0;
  if (rows.rows == 1 && row_bytes <= COPY_SMALL_BYTES && is_aligned)
    select_small(call, (uint32_t)row_bytes, launches);
  else
    select_rows(call, chip, &rows, launches);
  return RONDO_OK;
}
