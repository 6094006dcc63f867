/* attention_portable.h - the kernels of every chip, attention.cu's and attention_general.cu's: their plan, and the
 * parameters that the merge of splits shares with them. */
#ifndef RONDO_ATTENTION_PORTABLE_H
#define RONDO_ATTENTION_PORTABLE_H

#include "attention.h"

struct attention_portable_variant {
  struct op_kernel kernel;
  int64_t threads, block_rows;
  rondo_dtype dtype; /* of o */
  int64_t head_dimension;
  uint32_t shared_bytes, shared_bytes_80;
};

struct attention_portable_plan {
  const struct attention_portable_variant *variant;
  uint32_t shared_bytes;
  int64_t blocks;
};

/* There is one for every task that passes the check; its shared memory may exceed the chip's. */
struct attention_portable_plan attention_portable_plan_of(const struct op_task *task,
                                                          const struct attention_shape *shape, const struct chip *chip);

struct attention_parameters attention_parameters_of(const struct op_call *call, const struct attention_shape *shape);

#endif
