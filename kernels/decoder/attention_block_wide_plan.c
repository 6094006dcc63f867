/* attention_block_wide_plan.c - the plan of attention_block_wide.cu, whose sizes are constants. */
#include "../common/launch.h"
#include "attention_block_wide.h"
#include "decoder_choose.h"

struct variant {
  struct op_kernel kernel;
  rondo_dtype weights;
  int64_t shared_bytes;
};

#define VARIANT(chips, parameters, name, threads, weights)                                                             \
  {KERNEL_ENTRY(chips, parameters, name, threads), weights, ATTENTION_BLOCK_WIDE_BYTES(weights)},
static const struct variant variants[] = {ATTENTION_BLOCK_WIDE_KERNELS(VARIANT)};

bool attention_block_wide_plan(const struct decoder_shape *shape, const struct chip *chip, struct decoder_plan *plan) {
  const int64_t pairs = shape->query_heads / ATTENTION_BLOCK_WIDE_GROUP;
  if (shape->group % ATTENTION_BLOCK_WIDE_GROUP || shape->out_parts < pairs || !shape->capacity) return false;
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    const struct variant *variant = &variants[i];
    if (!(variant->kernel.chips & launch_chip(chip)) || variant->weights != shape->weights) continue;
    plan->kernel = &variant->kernel, plan->clusters = pairs, plan->shared_bytes = variant->shared_bytes;
    plan->told.attention.splits = (uint32_t)(shape->group / ATTENTION_BLOCK_WIDE_GROUP);
    plan->told.attention.factor = 1;
    return true;
  }
  return false;
}
