/* elementwise.c - rondo_add_silu_mul and rondo_add_add: the checks of their arguments, the operands as rows, and the
 * launches with a thread for every eight elements of a row. */
#include "elementwise.h"

#include "../../runtime/integer.h"
#include "../../runtime/layer_form.h"
#include "../common/launch.h"
#include "../common/rows.h"

rondo_status rondo_add_silu_mul(rondo_graph *graph, const rondo_silu_mul_desc *desc) {
  if (!desc) return op_refuse("describe: rondo_add_silu_mul: the description is NULL");
  struct op_argument arguments[] = {
      [ELEMENTWISE_OUT] = {"out", desc->out, RONDO_WRITE, 0},
      [ELEMENTWISE_A] = {"gate", desc->gate, RONDO_READ, ELEMENTWISE_OUT + 1},
      [ELEMENTWISE_B] = {"up", desc->up, RONDO_READ, ELEMENTWISE_OUT + 1},
  };
  return graph_add(graph, &op_silu_mul, desc->name, arguments, ELEMENTWISE_OPERANDS, NULL, 0);
}

rondo_status rondo_add_add(rondo_graph *graph, const rondo_add_desc *desc) {
  if (!desc) return op_refuse("describe: rondo_add_add: the description is NULL");
  struct op_argument arguments[] = {
      [ELEMENTWISE_OUT] = {"out", desc->out, RONDO_WRITE, 0},
      [ELEMENTWISE_A] = {"a", desc->a, RONDO_READ, ELEMENTWISE_OUT + 1},
      [ELEMENTWISE_B] = {"b", desc->b, RONDO_READ, ELEMENTWISE_OUT + 1},
  };
  return graph_add(graph, &op_add, desc->name, arguments, ELEMENTWISE_OPERANDS, NULL, 0);
}

rondo_status position_add(rondo_graph *graph, const char *name, rondo_tensor position, int32_t more, rondo_tensor out) {
  struct op_argument arguments[] = {
      [ELEMENTWISE_OUT] = {"out", out, RONDO_WRITE, 0},
      [ELEMENTWISE_A] = {"a", position, RONDO_READ, ELEMENTWISE_OUT + 1},
      [ELEMENTWISE_B] = {.name = "b", .access = RONDO_READ},
  };
  const struct add_attributes attributes = {.more = more};
  return graph_add(graph, &op_add, name, arguments, ELEMENTWISE_OPERANDS, &attributes, sizeof attributes);
}

/* The other operands must have the first one's type and rows. */
static rondo_status check_others(const struct op_task *task, const char *second) {
  const struct op_operand *a = &task->operands[ELEMENTWISE_A];
  OP_TRY(op_expect(second, &task->operands[ELEMENTWISE_B], a->dtype, a->rank, a->shape));
  return op_expect("out", &task->operands[ELEMENTWISE_OUT], a->dtype, a->rank, a->shape);
}

rondo_status silu_mul_check(const struct op_task *task) {
  const struct op_operand *gate = &task->operands[ELEMENTWISE_A];
  if (!gate->present || !rows_are_numbers(gate->dtype)) return op_unexpected("gate", gate, "f32, f16 or bf16");
  return check_others(task, "up");
}

rondo_status add_check(const struct op_task *task) {
  const struct op_operand *a = &task->operands[ELEMENTWISE_A];
  if (!a->present || (!rows_are_numbers(a->dtype) && a->dtype != RONDO_I32))
    return op_unexpected("a", a, "f32, f16, bf16 or i32");
  const struct add_attributes *attributes = op_attributes(task);
  if (attributes->more) return op_expect("out", &task->operands[ELEMENTWISE_OUT], RONDO_I32, a->rank, a->shape);
  return check_others(task, "b");
}

ELEMENTWISE_KERNELS(KERNEL_CONSTANT)

/* Do the folded rows of all three begin at multiples of 16 bytes? */
static bool is_aligned(const struct op_task *task, const struct dense_rows *rows) {
  uint64_t all = 0;
  for (int o = 0; o < ELEMENTWISE_OPERANDS; o++) {
    all |= task->operands[o].offset_bytes;
    for (int i = 0; i < ELEMENTWISE_OUTER; i++)
      all |= (uint64_t)rows->stride[o][i] * rondo_dtype_bits(task->operands[o].dtype) / 8;
  }
  return all % 16 == 0;
}

rondo_status elementwise_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  (void)chip;
  const struct op_operand *operands = call->task->operands;
  const struct dense_rows rows = elementwise_rows_of(call->task);
  launches->count = 0;
  if (!rows.rows) return RONDO_OK;
  int64_t row_parts = divide_up(rows.row, ELEMENTWISE_ELEMENTS);
  struct elementwise_parameters parameters = {
      .a = call->data[ELEMENTWISE_A],
      .b = call->data[ELEMENTWISE_B],
      .out = call->data[ELEMENTWISE_OUT],
      .row = (uint32_t)rows.row,
      .row_parts = (uint32_t)row_parts,
      .parts = (uint32_t)(rows.rows * row_parts),
      .dtype = operands[ELEMENTWISE_OUT].dtype,
      .is_aligned = is_aligned(call->task, &rows),
      .is_gated = call->task->op == &op_silu_mul,
  };
  if (!parameters.is_gated)
    parameters.more = (uint32_t)((const struct add_attributes *)op_attributes(call->task))->more;
  for (int i = 0; i < ELEMENTWISE_OUTER; i++) {
    parameters.extent[i] = (uint32_t)rows.extent[i];
    parameters.a_stride[i] = rows.stride[ELEMENTWISE_A][i];
    parameters.b_stride[i] = rows.stride[ELEMENTWISE_B][i];
    parameters.out_stride[i] = rows.stride[ELEMENTWISE_OUT][i];
  }
  launch_add(launches, &rondo_elementwise, divide_up(parameters.parts, ELEMENTWISE_THREADS), ELEMENTWISE_THREADS, 0,
             &parameters, sizeof parameters);
  return RONDO_OK;
}
