/* triangular_inverse_select.c - the launch of the kernel that inverts triangles. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "qr_choose.h"

TRIANGULAR_INVERSE_KERNELS(KERNEL_CONSTANT)

/* A grid of several rounds should not end in a short one. Blocks ask for more shared memory than they use, so that a
 * multiprocessor holds the number of blocks that makes the rounds equal. `most` is the number it could hold. */
static int64_t even_rounds(int64_t grid, int64_t most, int64_t bytes, const struct chip *chip) {
  enum { RESERVED_BYTES = 1024 }; /* of each block, beside its own */
  most = larger(1, smaller(most, (chip->shared_bytes + RESERVED_BYTES) / (bytes + RESERVED_BYTES)));
  int64_t rounds = divide_up(grid, most * chip->multiprocessors),
          even = divide_up(grid, rounds * chip->multiprocessors);
  return rounds > 1 && even < most ? larger(bytes, chip->shared_bytes / (even + 1)) : bytes;
}

/* The blocks of most threads that a multiprocessor holds, by their registers. */
#define BLOCKS(chips, parameters, name, threads, blocks, ...) blocks,

rondo_status triangular_inverse_select(const struct op_call *call, const struct chip *chip,
                                       struct op_launches *launches) {
  static const struct op_kernel *const names[] = {&rondo_triangular_inverse_f32, &rondo_triangular_inverse_f64};
  static const int64_t most[] = {TRIANGULAR_INVERSE_KERNELS(BLOCKS)};
  const struct op_operand *a = &call->task->operands[TRIANGULAR_INVERSE_A];
  const struct op_operand *out = &call->task->operands[TRIANGULAR_INVERSE_OUT];
  int64_t n = a->shape[a->rank - 1], batch = a->rank == 3 ? a->shape[0] : 1;
  int32_t element_bytes = (int32_t)rondo_dtype_bits(a->dtype) / 8, threads = triangular_inverse_threads((int32_t)n);
  int32_t matrices = (int32_t)larger(1, TRIANGULAR_INVERSE_LEAST_THREADS / threads);
  struct triangular_inverse_parameters parameters = {
      .a = qr_matrix_of(a, call->data[TRIANGULAR_INVERSE_A], RONDO_ROW_MAJOR),
      .out = qr_matrix_of(out, call->data[TRIANGULAR_INVERSE_OUT], RONDO_ROW_MAJOR),
      .batch = batch,
      .n = (int32_t)n,
      .matrices = matrices,
      .vectors = op_rows_aligned(a, 16) && n * element_bytes % 16 == 0,
  };
  launches->count = 0;
  if (!batch) return RONDO_OK;
  int64_t grid = divide_up(batch, matrices), block_threads = INT64_C(1) * matrices * threads;
  int64_t bytes = INT64_C(1) * matrices * triangular_inverse_bytes((int32_t)n, element_bytes); /* 77 KB at most */
  bytes = even_rounds(grid, most[element_bytes == 8] * TRIANGULAR_INVERSE_THREADS / block_threads, bytes, chip);
  const rondo_status status = qr_grid_check(grid);
  if (status == RONDO_OK)
    launch_add(launches, names[element_bytes == 8], grid, block_threads, (uint64_t)bytes, &parameters,
               sizeof parameters);
  return status;
}
