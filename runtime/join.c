/* join.c - see join.h. On the device a join is a node of one thread. The same kernel precedes many first nodes of a
 * graph. */
#include "join.h"

#include "kernels.h"

int64_t join_host_items(const struct op_task *task) {
  (void)task;
  return 0;
}

void join_host_run(const struct op_call *call, int64_t first, int64_t last) {
  (void)call;
  (void)first;
  (void)last;
}

rondo_status join_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  (void)call;
  (void)chip;
  launches->count = 1;
  launches->items[0] = (struct op_launch){.kernel = op_point_kernel.name,
                                          .grid = {1, 1, 1},
                                          .block = {1, 1, 1},
                                          .parameter_bytes = op_point_kernel.parameter_bytes};
  return RONDO_OK;
}
