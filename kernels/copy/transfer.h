/* transfer.h - one launch that copies several dense tensors: the operation, its kernel and the kernel's parameters.
 *
 * Only the runtime adds this task. It moves a graph's small inputs and outputs that no task uses in place, up to eight
 * with one node (runtime/plan.c). Either address of a pair may be the host's. It may also be a buffer of the program,
 * which ends with the tensor's last byte. */
#pragma once

#include "copy.h"

enum { TRANSFER_TENSORS = 8 }; /* COPY_SMALL_BYTES in all at most; threads and blocks are those of a small copy */

/* One tensor. src and dst are multiples of 16. */
struct transfer_segment {
  const void *src;
  void *dst;
  uint32_t bytes;
  uint32_t first_block; /* the tensor's first block; UINT32_MAX in unused segments */
};

/* rondo_transfer */
struct transfer_parameters {
  struct transfer_segment segments[TRANSFER_TENSORS];
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, device function) */
#define TRANSFER_KERNELS(KERNEL) KERNEL(EVERY_CHIP, transfer_parameters, rondo_transfer, COPY_THREADS, transfer)

#ifndef __CUDACC__
#include <assert.h>

#include "../../runtime/kernels.h"

static_assert((int)TRANSFER_TENSORS == (int)OP_TRANSFER_TENSORS && (int)COPY_SMALL_BYTES == (int)OP_TRANSFER_BYTES,
              "runtime/op.h states the same limits");
static_assert(2 * TRANSFER_TENSORS <= OP_MAX_OPERANDS, "each tensor has a source and a destination");

int64_t transfer_host_items(const struct op_task *task);
void transfer_host_run(const struct op_call *call, int64_t first, int64_t last);
rondo_status transfer_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);
#endif
