/* argmax_select.c - chooses one cluster or one block for each row. */
#include "../common/launch.h"
#include "argmax.h"

ARGMAX_KERNELS(KERNEL_CONSTANT)
ARGMAX_CLUSTER_KERNELS(KERNEL_CONSTANT)

/* Clusters, if all of them run at once and a row has more than 4096 columns: half of what one block loads at once. */
static bool by_clusters(const struct op_operand *x, const struct chip *chip) {
  return launch_chip(chip) != CHIP_SM_80 && x->shape[1] > 4 * ARGMAX_THREADS * 8 / ARGMAX_CLUSTER &&
         x->shape[0] * ARGMAX_CLUSTER <= chip->multiprocessors;
}

rondo_status argmax_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct op_operand *x = &call->task->operands[ARGMAX_X];
  launches->count = 0;
  if (op_elements(x) == 0) return RONDO_OK;
  struct argmax_parameters parameters = {
      .x = call->data[ARGMAX_X],
      .out = call->data[ARGMAX_OUT],
      .stride = x->stride[0],
      .n = (uint32_t)x->shape[1],
      .dtype = x->dtype,
      .is_aligned = op_rows_aligned(x, 16),
  };
  bool clusters = by_clusters(x, chip);
  launch_add(launches, clusters ? &rondo_argmax_cluster : &rondo_argmax, x->shape[0] * (clusters ? ARGMAX_CLUSTER : 1),
             ARGMAX_THREADS, 0, &parameters, sizeof parameters);
  return RONDO_OK;
}
