/* attention_block_wide_select.c - whether a kernel of attention_block_wide.cu suits an attention block. It follows from
 * the shapes alone, so that a task has the same bits wherever it stands. */
#include "../common/launch.h"
#include "attention_block_plan.h"
#include "attention_block_wide.h"

struct variant {
  struct op_kernel kernel;
  rondo_dtype weights;
  int64_t shared_bytes;
};

#define VARIANT(chips, parameters, name, threads, weights)                                                             \
  {KERNEL_ENTRY(chips, parameters, name, threads), weights, ATTENTION_BLOCK_WIDE_BYTES(weights)},
static const struct variant variants[] = {ATTENTION_BLOCK_WIDE_KERNELS(VARIANT)};

static bool suits(const struct attention_block_shape *shape) {
  const struct decoder_shape *decoder = &shape->decoder;
  return decoder->dtype == RONDO_BF16 && decoder->hidden == ATTENTION_BLOCK_WIDE_HIDDEN &&
         shape->head_dimension == ATTENTION_BLOCK_WIDE_DIMENSION && shape->group % ATTENTION_BLOCK_WIDE_GROUP == 0 &&
         decoder->out_parts >= shape->query_heads / ATTENTION_BLOCK_WIDE_GROUP;
}

bool attention_block_wide_plan(const struct attention_block_shape *shape, const struct chip *chip,
                               struct attention_block_plan *plan) {
  if (!suits(shape)) return false;
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    const struct variant *variant = &variants[i];
    if (!(variant->kernel.chips & launch_chip(chip)) || variant->weights != shape->decoder.weights ||
        variant->shared_bytes > chip->shared_bytes)
      continue;
    *plan = (struct attention_block_plan){.kernel = &variant->kernel,
                                          .parts = shape->query_heads / ATTENTION_BLOCK_WIDE_GROUP,
                                          .shared_bytes = variant->shared_bytes};
    plan->parameters.splits = (uint32_t)(shape->group / ATTENTION_BLOCK_WIDE_GROUP);
    plan->parameters.factor = 1;
    return true;
  }
  return false;
}
