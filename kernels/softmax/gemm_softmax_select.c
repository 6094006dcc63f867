/* gemm_softmax_select.c - which of the kernels in gemm_softmax.cu a product takes: wide or narrow blocks of columns,
 * and what the alignment of its rows allows. */
#include <string.h>

#include "softmax.h"

/* Do all rows of the operand begin at multiples of this many bytes, in a tensor that does? */
static bool rows_aligned(const struct op_operand *operand, uint64_t bytes) {
  uint64_t element_bytes = rondo_dtype_bits(operand->dtype) / 8, all = operand->offset_bytes;
  for (uint32_t i = 0; i + 1 < operand->rank; i++)
    if (operand->shape[i] > 1) all |= (uint64_t)operand->stride[i] * element_bytes;
  return all % bytes == 0;
}

static const char *kernel_of(const struct op_task *task, bool wide) {
  static const char *const names[2][2][2] = {
      {{"rondo_gemm_rowmax_f16_64", "rondo_gemm_rowmax_f16_128"},
       {"rondo_gemm_rowmax_bf16_64", "rondo_gemm_rowmax_bf16_128"}},
      {{"rondo_gemm_softmax_f16_64", "rondo_gemm_softmax_f16_128"},
       {"rondo_gemm_softmax_bf16_64", "rondo_gemm_softmax_bf16_128"}},
  };
  return names[task->op == &op_gemm_softmax][task->operands[GEMM_A].dtype == RONDO_BF16][wide];
}

static uint32_t output_of(rondo_dtype dtype) {
  return dtype == RONDO_F32 ? GEMM_SOFTMAX_F32 : dtype == RONDO_F16 ? GEMM_SOFTMAX_F16 : GEMM_SOFTMAX_BF16;
}

rondo_status gemm_softmax_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct op_task *task = call->task;
  const struct op_operand *a = &task->operands[GEMM_A], *b = &task->operands[GEMM_B], *out = &task->operands[GEMM_OUT];
  launches->count = 0;
  if (op_elements(out) == 0) return RONDO_OK;
  struct gemm_softmax_shape shape = gemm_softmax_shape_of(task);
  int64_t row_tiles = (shape.m + GEMM_SOFTMAX_ROWS - 1) / GEMM_SOFTMAX_ROWS, blocks = row_tiles * shape.batch;
  if (blocks > INT32_MAX)
    return status_set(RONDO_UNSUPPORTED, "a has %lld tiles of %d rows, expected at most 2^31 - 1", (long long)blocks,
                      GEMM_SOFTMAX_ROWS);
  bool wide = shape.n > 64;
  uint32_t tile_rows = GEMM_SOFTMAX_ROWS + (wide ? 128 : 64);
  uint32_t shared_bytes = GEMM_SOFTMAX_STAGES * tile_rows * GEMM_SOFTMAX_PITCH * (uint32_t)sizeof(uint16_t);
  if ((int64_t)shared_bytes > chip->shared_bytes)
    return status_set(RONDO_UNSUPPORTED, "a block needs %u bytes of shared memory, the chip has %d", shared_bytes,
                      (int)chip->shared_bytes);
  struct gemm_softmax_parameters parameters = {
      .a = call->data[GEMM_A],
      .b = call->data[GEMM_B],
      .out = call->data[GEMM_OUT],
      .a_batch_stride = shape.a_batch_stride,
      .a_row_stride = shape.a_row_stride,
      .b_batch_stride = shape.b_batch_stride,
      .b_row_stride = shape.b_row_stride,
      .out_batch_stride = shape.out_batch_stride,
      .out_row_stride = shape.out_row_stride,
      .m = shape.m,
      .n = shape.n,
      .k = shape.k,
      .row_tiles = (uint32_t)row_tiles,
      .scale = shape.scale,
      .causal = shape.causal,
      .vectors = rows_aligned(a, 16) && rows_aligned(b, 16),
      .pairs = task->op == &op_gemm_softmax && rows_aligned(out, rondo_dtype_bits(out->dtype) / 4),
      .output = output_of(out->dtype),
  };
  struct op_launch *launch = &launches->items[launches->count++];
  *launch = (struct op_launch){.kernel = kernel_of(task, wide),
                               .grid = {(uint32_t)blocks, 1, 1},
                               .block = {GEMM_SOFTMAX_THREADS, 1, 1},
                               .shared_bytes = shared_bytes,
                               .parameter_bytes = sizeof parameters,
                               .completion_offset = offsetof(struct gemm_softmax_parameters, done)};
  memcpy(launch->parameters, &parameters, sizeof parameters);
  return RONDO_OK;
}
