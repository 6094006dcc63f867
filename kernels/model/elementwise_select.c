/* elementwise_select.c - the launches of silu(gate) * up and a + b: one thread for every eight elements of a row. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "elementwise.h"

ELEMENTWISE_KERNELS(KERNEL_CONSTANT)

/* Do the folded rows of all three begin at multiples of 16 bytes? */
static bool is_aligned(const struct op_task *task, const struct elementwise_shape *shape) {
  uint64_t all = 0;
  for (int o = 0; o < ELEMENTWISE_OPERANDS; o++) {
    all |= task->operands[o].offset_bytes;
    for (int i = 0; i < ELEMENTWISE_OUTER; i++)
      all |= (uint64_t)shape->stride[o][i] * rondo_dtype_bits(task->operands[o].dtype) / 8;
  }
  return all % 16 == 0;
}

static rondo_status select(const struct op_call *call, const struct op_kernel *kernel, struct op_launches *launches) {
  const struct op_operand *operands = call->task->operands;
  struct elementwise_shape shape = elementwise_shape_of(call->task);
  launches->count = 0;
  if (!shape.rows) return RONDO_OK;
  int64_t row_parts = divide_up(shape.row, ELEMENTWISE_ELEMENTS);
  struct elementwise_parameters parameters = {
      .a = call->data[ELEMENTWISE_A],
      .b = call->data[ELEMENTWISE_B],
      .out = call->data[ELEMENTWISE_OUT],
      .row = (uint32_t)shape.row,
      .row_parts = (uint32_t)row_parts,
      .parts = (uint32_t)(shape.rows * row_parts),
      .dtype = operands[ELEMENTWISE_OUT].dtype,
      .is_aligned = is_aligned(call->task, &shape),
  };
  for (int i = 0; i < ELEMENTWISE_OUTER; i++) {
    parameters.extent[i] = (uint32_t)shape.extent[i];
    parameters.a_stride[i] = shape.stride[ELEMENTWISE_A][i];
    parameters.b_stride[i] = shape.stride[ELEMENTWISE_B][i];
    parameters.out_stride[i] = shape.stride[ELEMENTWISE_OUT][i];
  }
  launch_add(launches, kernel, divide_up(parameters.parts, ELEMENTWISE_THREADS), ELEMENTWISE_THREADS, 0, &parameters,
             sizeof parameters);
  return RONDO_OK;
}

rondo_status silu_mul_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  (void)chip;
  return select(call, &rondo_silu_mul, launches);
}

rondo_status add_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  (void)chip;
  return select(call, &rondo_add, launches);
}
