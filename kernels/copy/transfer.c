/* transfer.c - the operation that copies several dense tensors: its host function, and the launch of its kernel. */
#include "transfer.h"

#include <string.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"

/* ---- The tensors ------------------------------------------------------------------------------------------------- */

static size_t pair_count(const struct op_task *task) { return task->operand_count / 2; }

static int64_t pair_bytes(const struct op_task *task, size_t pair) {
  const struct op_operand *src = &task->operands[2 * pair];
  return op_elements(src) * rondo_dtype_bits(src->dtype) / 8;
}

/* ---- On the host: the tensors form one sequence of bytes; an item is 64 KB of it --------------------------------- */

enum { ITEM_BYTES = 64 * 1024 };

int64_t transfer_host_items(const struct op_task *task) {
  int64_t bytes = 0;
  for (size_t i = 0; i < pair_count(task); i++) bytes += pair_bytes(task, i);
  return divide_up(bytes, ITEM_BYTES);
}

void transfer_host_run(const struct op_call *call, int64_t first, int64_t last) {
  int64_t from = first * ITEM_BYTES, to = last * ITEM_BYTES;
  for (size_t i = 0; i < pair_count(call->task); i++) {
    int64_t bytes = pair_bytes(call->task, i), begin = from > 0 ? from : 0, end = to < bytes ? to : bytes;
    if (begin < end)
      memcpy((unsigned char *)call->data[2 * i + 1] + begin, (const unsigned char *)call->data[2 * i] + begin,
             (size_t)(end - begin));
    from -= bytes;
    to -= bytes;
  }
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

TRANSFER_KERNELS(KERNEL_CONSTANT)

/* One block for each 4 KB, as a copy of up to 64 KB has (copy.c has the measurement). */
rondo_status transfer_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  (void)chip;
  struct transfer_parameters parameters = {0};
  uint32_t blocks = 0;
  for (size_t i = 0; i < TRANSFER_TENSORS; i++) {
    parameters.segments[i].first_block = UINT32_MAX;
    if (i >= pair_count(call->task)) continue;
    uint32_t bytes = (uint32_t)pair_bytes(call->task, i);
    parameters.segments[i] = (struct transfer_segment){call->data[2 * i], call->data[2 * i + 1], bytes, blocks};
    blocks += (uint32_t)divide_up(bytes, COPY_BLOCK_BYTES);
  }
  launches->count = 0;
  if (!blocks) return RONDO_OK;
  launch_add(launches, &rondo_transfer, blocks, COPY_THREADS, 0, &parameters, sizeof parameters);
  return RONDO_OK;
}
