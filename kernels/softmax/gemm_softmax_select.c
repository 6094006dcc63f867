/* gemm_softmax_select.c - which of the kernels in gemm_softmax.cu a product takes: wide or narrow blocks of columns,
 * and what the alignment of its rows allows. */
#include <assert.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "softmax.h"

struct variant {
  struct op_kernel kernel;
  rondo_dtype dtype;
  int64_t columns;
  bool is_softmax;
  uint32_t shared_bytes;
};

#define VARIANT(chips, parameters, name, threads, dtype, columns, is_softmax, blocks)                                  \
  {KERNEL_ENTRY(chips, parameters, name, threads), dtype, columns, is_softmax, GEMM_SOFTMAX_SHARED_BYTES(columns)},
static const struct variant variants[] = {GEMM_SOFTMAX_KERNELS(VARIANT)};

static const struct variant *variant_of(const struct op_task *task, int64_t columns) {
  rondo_dtype dtype = task->operands[GEMM_A].dtype;
  bool is_softmax = task->op == &op_gemm_softmax;
  for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
    const struct variant *variant = &variants[i];
    if (variant->is_softmax == is_softmax && variant->dtype == dtype && variant->columns == columns) return variant;
  }
  assert(false && "a kernel for every task that passes the check");
  return NULL;
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
  int64_t row_tiles = divide_up(shape.m, GEMM_SOFTMAX_ROWS), blocks = row_tiles * shape.batch;
  if (blocks > INT32_MAX)
    return status_set(RONDO_UNSUPPORTED, "a has %lld tiles of %d rows, expected at most 2^31 - 1", (long long)blocks,
                      GEMM_SOFTMAX_ROWS);
  const struct variant *variant = variant_of(task, shape.n > 64 ? 128 : 64);
  if (variant->shared_bytes > (uint32_t)chip->shared_bytes)
    return status_set(RONDO_UNSUPPORTED, "a block needs %u bytes of shared memory, the chip has %d",
                      variant->shared_bytes, (int)chip->shared_bytes);
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
      .vectors = op_rows_aligned(a, 16) && op_rows_aligned(b, 16),
      .pairs = task->op == &op_gemm_softmax && op_rows_aligned(out, rondo_dtype_bits(out->dtype) / 4),
      .output = output_of(out->dtype),
  };
  launch_add(launches, &variant->kernel, blocks, GEMM_THREADS, variant->shared_bytes, &parameters, sizeof parameters);
  return RONDO_OK;
}
