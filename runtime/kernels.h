/* kernels.h - the part of kernels/ that the runtime names: the few operations that a plan adds by itself, and the
 * device code. All other operations come with the tasks that use them (graph_add). */
#pragma once

#include "op.h"

/* Every operation, ended by a NULL. */
extern const struct op *const op_table[];

/* What moves inputs and outputs between pinned and device memory. Operands of a copy: the source, then the destination,
 * of one shape. Of a transfer: as many such pairs, all dense and together no more than this. */
extern const struct op op_copy;
extern const struct op op_transfer;
enum { OP_TRANSFER_TENSORS = 8, OP_TRANSFER_BYTES = 64 * 1024 };

/* A kernel of one thread that takes a struct completion. The CUDA backend launches it before many tasks without
 * predecessors, and after tasks that do not publish completion themselves. */
extern const struct op_kernel op_point_kernel;

/* The last kernel of each step of a repeat (repeat_control.h). */
extern const struct op_kernel op_repeat_kernel;

/* Before each replay of a resident exec (doorbell.h). */
extern const struct op_kernel op_await_bell_kernel;

/* The compiled device code, one fatbin for each .cu file; none where Rondo was built without nvcc. */
struct device_image {
  const char *name; /* the .cu file, for messages */
  const void *begin;
  const void *end;
  const char *kernels; /* their names, each with a NUL after it; an empty name ends the list */
};
extern const struct device_image device_images[];
extern const uint32_t device_image_count;
