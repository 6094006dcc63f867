/* sampling_select.c - chooses one cluster or one block for each row, and the shared memory. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "sampling.h"
#include "setting.h"

SAMPLE_KERNELS(KERNEL_CONSTANT)
SAMPLE_CLUSTER_KERNELS(KERNEL_CONSTANT)

enum { STATIC_BYTES = 1024 }; /* the most static shared memory of the kernels */

/* Clusters, if all of them run at once and a row has more than four numbers for each thread of a block. */
static bool by_clusters(const struct op_operand *x, const struct chip *chip) {
  const int64_t columns = SAMPLE_THREADS;
  return launch_chip(chip) != CHIP_SM_80 && x->shape[1] > 4 * columns &&
         x->shape[0] * SAMPLE_CLUSTER <= chip->multiprocessors;
}

rondo_status sample_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct op_task *task = call->task;
  const struct op_operand *x = &task->operands[SAMPLE_X];
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
      .many_steps = setting_is_of_each_row(task, SAMPLE_STEP),
  };
  bool clusters = by_clusters(x, chip);
  int64_t columns = round_up(divide_up(x->shape[1], clusters ? SAMPLE_CLUSTER : 1), 8);
  int64_t shared_bytes = SAMPLE_SHARED_BYTES + columns * (int64_t)sizeof(float);
  parameters.columns = (uint32_t)columns;
  parameters.is_held = shared_bytes <= chip->shared_bytes - STATIC_BYTES;
  if (!parameters.is_held) shared_bytes = SAMPLE_SHARED_BYTES;
  launch_add(launches, clusters ? &rondo_sample_cluster : &rondo_sample, x->shape[0] * (clusters ? SAMPLE_CLUSTER : 1),
             SAMPLE_THREADS, (uint64_t)shared_bytes, &parameters, sizeof parameters);
  return RONDO_OK;
}
