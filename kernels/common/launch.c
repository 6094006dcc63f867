/* launch.c - checks a grid, and adds a launch, or all launches of a step, to a task's list (launch.h). */
#include "launch.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

rondo_status launch_check_blocks(const char *operand, int64_t blocks) {
  if (blocks <= INT32_MAX) return RONDO_OK;
  return status_set(RONDO_UNSUPPORTED, "%s needs %" PRId64 " blocks, expected at most %" PRId32, operand, blocks,
                    INT32_MAX);
}

struct op_launch *launch_add(struct op_launches *launches, const struct op_kernel *kernel, int64_t blocks,
                             int64_t threads, uint64_t shared_bytes, const void *parameters, size_t parameter_bytes) {
  assert(launches->count < OP_MAX_LAUNCHES && parameter_bytes == kernel->parameter_bytes);
  assert(parameter_bytes <= OP_PARAMETER_BYTES && threads <= kernel->threads);
  assert(blocks <= INT32_MAX);
  struct op_launch *launch = &launches->items[launches->count++];
  *launch = (struct op_launch){.kernel = kernel->name,
                               .grid = {(uint32_t)blocks, 1, 1},
                               .block = {(uint32_t)threads, 1, 1},
                               .shared_bytes = (uint32_t)shared_bytes,
                               .parameter_bytes = kernel->parameter_bytes,
                               .completion_offset = kernel->completion_offset};
  memcpy(launch->parameters, parameters, parameter_bytes);
  return launch;
}

rondo_status launch_add_step(const struct op_step *step, const struct chip *chip, struct op_launches *launches) {
  struct op_launches added;
  added.choice = added.why = NULL;
  OP_TRY(step->task.op->select(&step->call, chip, &added));
  assert(launches->count + added.count <= OP_MAX_LAUNCHES);
  for (uint32_t i = 0; i < added.count; i++) launches->items[launches->count++] = added.items[i];
  if (!launches->choice) launches->choice = added.choice, launches->why = added.why;
  return RONDO_OK;
}
