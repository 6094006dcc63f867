/* attention_several_tokens_plan.c - sizes and places for the kernels of attention_several_tokens.cu. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "attention_several_tokens.h"
#include "decoder_choose.h"

enum { ALIGNMENT = 128, BYTES_OF_TWO = 2, PITCH_PADDING = 16, DIMENSION = 64 };

struct variant {
  struct op_kernel kernel;
  rondo_dtype dtype, weights;
};

#define VARIANT(chips, parameters, name, threads, dtype, weights)                                                      \
  {KERNEL_ENTRY(chips, parameters, name, threads), dtype, weights},
static const struct variant variants[] = {ATTENTION_SEVERAL_TOKENS_KERNELS(VARIANT)};

static const struct variant *variant_for(const struct decoder_shape *shape, uint32_t chip) {
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    const struct variant *variant = &variants[i];
    if (variant->kernel.chips & chip && variant->weights == shape->weights) return variant;
  }
  return NULL;
}

static int64_t take(uint32_t *place, int64_t *at, int64_t bytes) {
  *place = (uint32_t)*at;
  return *at = round_up(*at + bytes, ALIGNMENT);
}

/* Products' shares, places in shared memory. */
static void lay_out(const struct variant *variant, const struct decoder_shape *shape, struct decoder_plan *plan) {
  struct attention_block_parameters *p = &plan->told.attention;
  const int64_t group = p->group, columns = group * DIMENSION, hidden = shape->hidden;
  const int64_t of_chunk = ATTENTION_BLOCK_CHUNK_COLUMNS(variant->weights);
  p->first = attention_block_share_of(columns + INT64_C(2) * DIMENSION, hidden / of_chunk, ATTENTION_BLOCK_WARPS);
  p->second = attention_block_share_of(hidden, columns / of_chunk, ATTENTION_BLOCK_WARPS);
  /* Numbers and what rounding left of them; two tokens' lie so that they do not meet in a bank. */
  p->pitch = (uint32_t)(round_up(larger(hidden, columns) * 2 * BYTES_OF_TWO, ALIGNMENT) + PITCH_PADDING);
  const int64_t units = larger((int64_t)p->first.tiles * p->first.cuts, (int64_t)p->second.tiles * p->second.cuts);
  const int64_t chunks = (int64_t)p->first.tiles * p->first.chunks + (int64_t)p->second.tiles * p->second.chunks;
  int64_t at = ATTENTION_BLOCK_NUMBERS + (group + 2) * ATTENTION_BLOCK_NUMBERS_PITCH(DIMENSION);
  take(&p->positions, &at, ATTENTION_SEVERAL_TOKENS_TOKENS * (int64_t)sizeof(int32_t));
  take(&p->table, &at,
       INT64_C(2) * ATTENTION_SEVERAL_TOKENS_TOKENS * ATTENTION_SEVERAL_TOKENS_PAIRS * (int64_t)sizeof(float));
  take(&p->squares, &at,
       ATTENTION_SEVERAL_TOKENS_TOKENS * ATTENTION_SEVERAL_TOKENS_SQUARES(hidden) * (int64_t)sizeof(float));
  take(&p->cuts, &at, units * ATTENTION_SEVERAL_TOKENS_TOKENS * ATTENTION_SEVERAL_TOKENS_CUT_BYTES);
  take(&p->activations, &at, (int64_t)ATTENTION_SEVERAL_TOKENS_TOKENS * p->pitch);
  take(&p->norm_copy, &at, hidden * BYTES_OF_TWO);
  /* Tiles of K and V lie where the weights have been. */
  p->ring = p->weights = (uint32_t)at;
  plan->shared_bytes = at + larger(chunks * ATTENTION_BLOCK_CHUNK_BYTES(variant->weights),
                                   INT64_C(2) * ATTENTION_BLOCK_WARPS * ATTENTION_SEVERAL_TOKENS_STAGES *
                                       ATTENTION_BLOCK_TILE * DIMENSION * BYTES_OF_TWO);
}

/* A warp has one piece of each product. */
static bool has_registers(const struct attention_block_share *share, int64_t most) {
  return share->tiles * share->cuts <= ATTENTION_BLOCK_WARPS && divide_up(share->chunks, share->cuts) <= most;
}

bool attention_several_tokens_plan(const struct decoder_shape *shape, const struct chip *chip,
                                   struct decoder_plan *plan) {
  const struct variant *variant = variant_for(shape, launch_chip(chip));
  if (!variant || shape->out_parts < shape->kv_heads || !shape->capacity) return false;
  struct attention_block_parameters *p = &plan->told.attention;
  const int64_t splits = divide_up(shape->rows, ATTENTION_SEVERAL_TOKENS_TOKENS);
  plan->kernel = &variant->kernel, plan->clusters = shape->kv_heads * splits;
  p->group = (uint32_t)shape->group;
  p->splits = (uint32_t)splits;
  p->factor = ATTENTION_BLOCK_FACTOR(shape->weights);
  lay_out(variant, shape, plan);
  return has_registers(&p->first, ATTENTION_SEVERAL_TOKENS_FIRST(variant->weights)) &&
         has_registers(&p->second, ATTENTION_SEVERAL_TOKENS_SECOND(variant->weights));
}
