/* transfer.h - several dense tensors copied by one launch: the row of the operation table, and what host code and
 * kernel tell each other.
 *
 * No user asks for it. A graph's small inputs and outputs that are not used in place are moved by it, up to eight by
 * one node (runtime/plan.c), so either address of a pair may be the host's, and a caller's buffer of exactly its size.
 */
#ifndef RONDO_TRANSFER_H
#define RONDO_TRANSFER_H

#include "copy.h"

enum { TRANSFER_TENSORS = 8 }; /* of COPY_SMALL_BYTES in all; threads and blocks are those of small copies */

/* src and dst are multiples of 16. */
struct transfer_segment {
  const void *src;
  void *dst;
  uint32_t bytes;
  uint32_t first_block; /* of as many as it takes for all bytes; UINT32_MAX in segments behind the last */
};

/* rondo_transfer */
struct transfer_parameters {
  struct transfer_segment segments[TRANSFER_TENSORS];
  struct completion done;
};

/* KERNEL(chips, parameters, name, threads, what it calls) */
#define TRANSFER_KERNELS(KERNEL) KERNEL(EVERY_CHIP, transfer_parameters, rondo_transfer, COPY_THREADS, transfer)

#ifndef __CUDACC__
#include <assert.h>

#include "../../runtime/kernels.h"

static_assert((int)TRANSFER_TENSORS == (int)OP_TRANSFER_TENSORS && (int)COPY_SMALL_BYTES == (int)OP_TRANSFER_BYTES,
              "what the runtime asks for");
static_assert(2 * TRANSFER_TENSORS <= OP_MAX_OPERANDS, "a source and a destination each");

int64_t transfer_host_items(const struct op_task *task);
void transfer_host_run(const struct op_call *call, int64_t first, int64_t last);
rondo_status transfer_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);
#endif
#endif
