/* gemv_ranks.c - products that are added over ranks: a product of each rank's part of k, the sum of all ranks', and a
 * residual, as one task.
 *
 * Where each rank has a device of its own, some kernels end with the sum themselves (exchange_rows.h). Elsewhere, and
 * on the host, the task is a product to scratch and rondo_add_all_reduce's. */
#include <string.h>

#include "../../runtime/graph.h"
#include "../../runtime/layer_form.h"
#include "../common/launch.h"
#include "../exchange/exchanges.h"
#include "gemv.h"
#include "gemv_plan.h"

/* Operands: those of a product, then the states of all ranks. */
struct gemv_ranks_attributes {
  struct gemv_attributes product;
  uint32_t rank, ranks;
};

rondo_status summed_product_add(rondo_graph *graph, const rondo_gemv_desc *desc,
                                const struct layer_exchange *exchange) {
  struct graph_mark mark;
  struct op_argument arguments[GEMV_OPERANDS + RONDO_MAX_RANKS];
  struct gemv_ranks_attributes attributes = {.rank = exchange->rank, .ranks = exchange->ranks};
  gemv_describe(desc, arguments, &attributes.product);
  rondo_status status = graph_begin(graph, op_summed_gemv.name, &mark);
  if (status != RONDO_OK) return status;
  status = exchange_states_borrow(graph, exchange->states, exchange->rank, exchange->ranks, UINT32_MAX,
                                  arguments + GEMV_OPERANDS);
  if (status == RONDO_OK)
    status = graph_add(graph, &op_summed_gemv, desc->name, arguments, GEMV_OPERANDS + exchange->ranks, &attributes,
                       sizeof attributes);
  return graph_end(graph, &mark, status);
}

/* ---- The two steps ----------------------------------------------------------------------------------------------- */

/* The rank's own product: dense f32. */
static struct op_operand part_operand(const struct op_task *task, rondo_access access) {
  struct op_operand part = task->operands[GEMV_OUT];
  part.access = access, part.dtype = RONDO_F32, part.offset_bytes = 0;
  for (uint32_t i = part.rank, stride = 1; i-- > 0; stride *= (uint32_t)part.shape[i]) part.stride[i] = stride;
  return part;
}

static void product_step(const struct op_call *call, struct op_step *step) {
  const struct gemv_ranks_attributes *attributes = op_attributes(call->task);
  op_step_begin(call, &op_gemv, GEMV_OPERANDS, step);
  step->call.settled_operands = call->settled_operands;
  memcpy(step->operands, call->task->operands, GEMV_OPERANDS * sizeof *step->operands);
  memcpy(step->data, call->data, GEMV_OPERANDS * sizeof *step->data);
  memcpy(step->task.attributes, &attributes->product, sizeof attributes->product);
  step->operands[GEMV_OUT] = part_operand(call->task, RONDO_WRITE), step->data[GEMV_OUT] = call->scratch;
  step->operands[GEMV_RESIDUAL] = (struct op_operand){0}, step->data[GEMV_RESIDUAL] = NULL;
}

static void sum_step(const struct op_call *call, struct op_step *step) {
  const struct op_task *task = call->task;
  const struct gemv_ranks_attributes *attributes = op_attributes(task);
  exchange_sum_step(call, GEMV_OPERANDS, attributes->rank, attributes->ranks, step);
  step->operands[EXCHANGE_IN] = part_operand(task, RONDO_READ), step->data[EXCHANGE_IN] = call->scratch;
  step->operands[EXCHANGE_RESIDUAL] = task->operands[GEMV_RESIDUAL];
  step->data[EXCHANGE_RESIDUAL] = call->data[GEMV_RESIDUAL];
  step->operands[EXCHANGE_OUT] = task->operands[GEMV_OUT], step->data[EXCHANGE_OUT] = call->data[GEMV_OUT];
}

bool summed_gemv_step(const struct op_call *call, uint32_t index, struct op_step *step) {
  if (index > 1) return false;
  (index ? sum_step : product_step)(call, step);
  return true;
}

uint64_t summed_gemv_scratch_bytes(const struct op_task *task) {
  return (uint64_t)op_elements(&task->operands[GEMV_OUT]) * sizeof(float);
}

rondo_status summed_gemv_check(const struct op_task *task) {
  const struct op_call call = {.task = task, .data = op_nowhere};
  struct op_step step;
  OP_TRY(gemv_check(task));
  const struct gemv_attributes *attributes = op_attributes(task);
  if (attributes->silu_mul || task->operands[GEMV_BIAS].present || task->operands[GEMV_OUT_SCALES].present)
    return op_refuse("out is a sum over ranks, expected no bias, silu_mul and out_scales");
  sum_step(&call, &step);
  return op_all_reduce.check(&step.task);
}

/* Of the states what the sum does. */
int64_t summed_gemv_touched_elements(const struct op_task *task, uint32_t operand, rondo_access access) {
  struct op_step sum;
  if (operand < GEMV_OPERANDS) return gemv_touched_elements(task, operand, access);
  sum_step(&(struct op_call){.task = task, .data = op_nowhere}, &sum);
  return op_all_reduce.touched_elements(&sum.task, operand - GEMV_OPERANDS + EXCHANGE_STATES, access);
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

rondo_status summed_gemv_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  struct op_step product, sum;
  product_step(call, &product), sum_step(call, &sum);
  if (call->lets_successors_start && gemv_rows_select(&product.call, &sum.call, chip, launches)) return RONDO_OK;
  OP_TRY(gemv_select(&product.call, chip, launches));
  return launch_add_step(&sum, chip, launches);
}
