/* sampling.c - rondo_add_sample: the check of its arguments, and its launch: one cluster or one block for each row. */
#include "sampling.h"

#include <inttypes.h>

#include "../../runtime/integer.h"
#include "../../runtime/layer_form.h"
#include "../common/launch.h"
#include "../common/rows.h"
#include "sample_number.h"
#include "setting.h"

static rondo_status sample_add(rondo_graph *graph, const rondo_sample_desc *desc, int32_t steps_follow) {
  const struct sample_attributes attributes = {.steps_follow = steps_follow};
  struct op_argument arguments[] = {
      [SAMPLE_X] = {"x", desc->x, RONDO_READ, 0},
      [SAMPLE_OUT] = {"out", desc->out, RONDO_WRITE, 0},
      [SAMPLE_TEMPERATURE] = {"temperature", desc->temperature, RONDO_READ, 0},
      [SAMPLE_TOP_K] = {"top_k", desc->top_k, RONDO_READ, 0},
      [SAMPLE_TOP_P] = {"top_p", desc->top_p, RONDO_READ, 0},
      [SAMPLE_SEED] = {"seed", desc->seed, RONDO_READ, 0},
      [SAMPLE_STEP] = {"step", desc->step, RONDO_READ, 0},
  };
  return graph_add(graph, &op_sample, desc->name, arguments, SAMPLE_OPERANDS, &attributes, sizeof attributes);
}

rondo_status rondo_add_sample(rondo_graph *graph, const rondo_sample_desc *desc) {
  if (!desc) return op_refuse("describe: rondo_add_sample: the description is NULL");
  return sample_add(graph, desc, 0);
}

rondo_status sample_rows_add(rondo_graph *graph, const rondo_sample_desc *desc) { return sample_add(graph, desc, 1); }

rondo_status sample_check(const struct op_task *task) {
  const struct op_operand *x = &task->operands[SAMPLE_X];
  static const struct {
    uint32_t index;
    const char *name;
    rondo_dtype dtype;
    bool optional;
  } settings[] = {{SAMPLE_TEMPERATURE, "temperature", RONDO_F32, true},
                  {SAMPLE_TOP_K, "top_k", RONDO_I32, true},
                  {SAMPLE_TOP_P, "top_p", RONDO_F32, true},
                  {SAMPLE_SEED, "seed", RONDO_I32, false},
                  {SAMPLE_STEP, "step", RONDO_I32, false}};
  if (!x->present || x->rank != 2 || !rows_are_numbers(x->dtype))
    return op_unexpected("x", x, "[count, n] f32, f16 or bf16");
  if (x->shape[1] < 1 || x->shape[1] > SAMPLE_MOST_COLUMNS)
    return op_refuse("x has rows of %" PRId64 ", expected 1 to %d", x->shape[1], SAMPLE_MOST_COLUMNS);
  OP_TRY(op_expect("out", &task->operands[SAMPLE_OUT], RONDO_I32, 1, x->shape));
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
    if (!settings[i].optional || task->operands[settings[i].index].present)
      OP_TRY(op_expect_list(settings[i].name, &task->operands[settings[i].index], settings[i].dtype, x->shape[0]));
  return RONDO_OK;
}

SAMPLE_KERNELS(KERNEL_CONSTANT)
SAMPLE_CLUSTER_KERNELS(KERNEL_CONSTANT)

enum { STATIC_BYTES = 1024 }; /* the most static shared memory of the kernels */

rondo_status sample_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct op_task *task = call->task;
  const struct op_operand *x = &task->operands[SAMPLE_X];
  const struct sample_attributes *attributes = op_attributes(task);
  launches->count = 0;
  if (x->shape[0] == 0) return RONDO_OK;
  struct sample_parameters parameters = {
      .x = call->data[SAMPLE_X],
      .out = call->data[SAMPLE_OUT],
      .temperature = call->data[SAMPLE_TEMPERATURE],
      .top_k = call->data[SAMPLE_TOP_K],
      .top_p = call->data[SAMPLE_TOP_P],
      .seed = call->data[SAMPLE_SEED],
      .step = call->data[SAMPLE_STEP],
      .stride = x->stride[0],
      .n = (uint32_t)x->shape[1],
      .dtype = x->dtype,
      .is_aligned = op_rows_aligned(x, 16),
      .many_temperatures = setting_is_of_each_row(task, SAMPLE_TEMPERATURE),
      .many_ks = setting_is_of_each_row(task, SAMPLE_TOP_K),
      .many_ps = setting_is_of_each_row(task, SAMPLE_TOP_P),
      .many_seeds = setting_is_of_each_row(task, SAMPLE_SEED),
      .many_steps = attributes->steps_follow ? 2 : setting_is_of_each_row(task, SAMPLE_STEP),
  };
  bool clusters = row_has_cluster(x, SAMPLE_CLUSTER, chip);
  int64_t columns = round_up(divide_up(x->shape[1], clusters ? SAMPLE_CLUSTER : 1), 8);
  int64_t shared_bytes = SAMPLE_SHARED_BYTES + columns * (int64_t)sizeof(float);
  parameters.columns = (uint32_t)columns;
  parameters.is_held = shared_bytes <= chip->shared_bytes - STATIC_BYTES;
  if (!parameters.is_held) shared_bytes = SAMPLE_SHARED_BYTES;
  const int64_t blocks = x->shape[0] * (clusters ? SAMPLE_CLUSTER : 1);
  OP_TRY(launch_check_blocks("x", blocks));
  launch_add(launches, clusters ? &rondo_sample_cluster : &rondo_sample, blocks, SAMPLE_THREADS, (uint64_t)shared_bytes,
             &parameters, sizeof parameters);
  return RONDO_OK;
}
