/* attention_several_tokens_plan.c - sizes and places for the kernels of attention_several_tokens.cu. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "attention_several_tokens.h"
#include "decoder_choose.h"

enum { ALIGNMENT = 128, BYTES_OF_TWO = 2, PITCH_PADDING = 16, DIMENSION = 64 };

#define VARIANT(chips, parameters, name, threads, weights)                                                             \
  {KERNEL_ENTRY(chips, parameters, name, threads), weights, DIMENSION},
static const struct decoder_variant variants[] = {ATTENTION_SEVERAL_TOKENS_KERNELS(VARIANT)};

/* Products' shares, places in shared memory. */
static void lay_out(const struct decoder_shape *shape, struct decoder_plan *plan) {
  struct attention_block_parameters *p = &plan->told.attention;
  const int64_t group = p->group, columns = group * DIMENSION, hidden = shape->hidden;
  const int64_t of_chunk = ATTENTION_BLOCK_CHUNK_COLUMNS(shape->weights);
  p->first = attention_block_share_of(columns + INT64_C(2) * DIMENSION, hidden / of_chunk);
  p->second = attention_block_share_of(hidden, columns / of_chunk);
  /* Numbers and what rounding left of them; two tokens' lie so that they do not meet in a bank. */
  p->pitch = (uint32_t)(round_up(larger(hidden, columns) * 2 * BYTES_OF_TWO, ALIGNMENT) + PITCH_PADDING);
  const int64_t units = larger((int64_t)p->first.tiles * p->first.cuts, (int64_t)p->second.tiles * p->second.cuts);
  const int64_t chunks = (int64_t)p->first.tiles * p->first.chunks + (int64_t)p->second.tiles * p->second.chunks;
  int64_t at = ATTENTION_BLOCK_NUMBERS + (group + 2) * ATTENTION_BLOCK_NUMBERS_PITCH(DIMENSION);
  p->positions = decoder_take(&at, ATTENTION_SEVERAL_TOKENS_TOKENS * (int64_t)sizeof(int32_t), ALIGNMENT);
  p->table = decoder_take(
      &at, INT64_C(2) * ATTENTION_SEVERAL_TOKENS_TOKENS * ATTENTION_SEVERAL_TOKENS_PAIRS * (int64_t)sizeof(float),
      ALIGNMENT);
  p->squares = decoder_take(
      &at, ATTENTION_SEVERAL_TOKENS_TOKENS * ATTENTION_SEVERAL_TOKENS_SQUARES(hidden) * (int64_t)sizeof(float),
      ALIGNMENT);
  p->cuts = decoder_take(&at, units * ATTENTION_SEVERAL_TOKENS_TOKENS * ATTENTION_SEVERAL_TOKENS_CUT_BYTES, ALIGNMENT);
  p->activations = decoder_take(&at, (int64_t)ATTENTION_SEVERAL_TOKENS_TOKENS * p->pitch, ALIGNMENT);
  p->norm_copy = decoder_take(&at, hidden * BYTES_OF_TWO, ALIGNMENT);
  /* Tiles of K and V lie where the weights have been. */
  p->ring = p->weights = (uint32_t)at;
  plan->shared_bytes = at + larger(chunks * ATTENTION_BLOCK_CHUNK_BYTES(shape->weights),
                                   INT64_C(2) * ATTENTION_BLOCK_WARPS * ATTENTION_SEVERAL_TOKENS_STAGES *
                                       ATTENTION_BLOCK_TILE * DIMENSION * BYTES_OF_TWO);
}

/* A warp has one piece of each product. */
static bool has_registers(const struct attention_block_share *share, int64_t most) {
  return share->tiles * share->cuts <= ATTENTION_BLOCK_WARPS && divide_up(share->chunks, share->cuts) <= most;
}

bool attention_several_tokens_plan(const struct decoder_shape *shape, const struct chip *chip,
                                   struct decoder_plan *plan) {
  plan->kernel = DECODER_KERNEL(variants, shape, chip, DIMENSION);
  if (!plan->kernel || shape->out_parts < shape->kv_heads || !shape->capacity) return false;
  struct attention_block_parameters *p = &plan->told.attention;
  const int64_t splits = divide_up(shape->rows, ATTENTION_SEVERAL_TOKENS_TOKENS);
  plan->clusters = shape->kv_heads * splits;
  p->group = (uint32_t)shape->group;
  p->splits = (uint32_t)splits;
  p->factor = ATTENTION_BLOCK_FACTOR(shape->weights);
  lay_out(shape, plan);
  return has_registers(&p->first, ATTENTION_SEVERAL_TOKENS_FIRST(shape->weights)) &&
         has_registers(&p->second, ATTENTION_SEVERAL_TOKENS_SECOND(shape->weights));
}
