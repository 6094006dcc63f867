/* attention_block_plan.c - the plans and the parameters of all kernels of the attention half. */
#include <math.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "attention_block_wide.h"
#include "attention_several_tokens.h"
#include "decoder_choose.h"

enum {
  HEADS_OF_64 = 64,
  STAT_NUMBERS = 2,
  CUT_BYTES = 64, /* sums of a tile */
  WORDS_ALIGNMENT = 8,
  ROWS_ALIGNMENT = 16,
  SHARED_ALIGNMENT = 128,
  PITCH_PADDING = 64 /* bytes, so that two vectors do not meet in a bank */
};

#define VARIANT(chips, parameters, name, threads, weights, dimension)                                                  \
  {KERNEL_ENTRY(chips, parameters, name, threads), weights, dimension},
static const struct decoder_variant variants[] = {ATTENTION_BLOCK_KERNELS(VARIANT)};
#define WIDE_VARIANT(chips, parameters, name, threads, weights)                                                        \
  {KERNEL_ENTRY(chips, parameters, name, threads), weights, HEADS_OF_64},
static const struct decoder_variant wide_variants[] = {ATTENTION_BLOCK_WIDE_KERNELS(WIDE_VARIANT)};
static const struct decoder_variant ranks_variants[] = {ATTENTION_BLOCK_WIDE_RANKS_KERNELS(WIDE_VARIANT)};
static const struct decoder_variant several_variants[] = {ATTENTION_SEVERAL_TOKENS_KERNELS(WIDE_VARIANT)};
static const struct decoder_variant pairs_variants[] = {ATTENTION_SEVERAL_TOKENS_PAIRS(WIDE_VARIANT, RONDO_BF16)};

/* ---- Layout ------------------------------------------------------------------------------------------------------ */

/* Operands that the kernels access by words of 8 or 16 bytes. */
static bool is_aligned(const struct op_task *task) {
  static const struct {
    uint32_t operand, bytes;
  } words[] = {{DECODER_X, WORDS_ALIGNMENT},        {DECODER_X_PARTS, ROWS_ALIGNMENT},
               {DECODER_NORM, WORDS_ALIGNMENT},     {DECODER_OUT, WORDS_ALIGNMENT},
               {DECODER_OUT_PARTS, ROWS_ALIGNMENT}, {ATTENTION_BLOCK_K, ROWS_ALIGNMENT},
               {ATTENTION_BLOCK_V, ROWS_ALIGNMENT}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!op_rows_aligned(&task->operands[words[i].operand], words[i].bytes)) return false;
  return true;
}

static bool parts_are_dense(const struct op_operand *parts) {
  return !parts->present || parts->shape[0] == 1 || parts->stride[0] == parts->shape[2];
}

bool attention_one_token_lies_well(const struct op_task *task) {
  return is_aligned(task) && parts_are_dense(&task->operands[DECODER_X_PARTS]) &&
         parts_are_dense(&task->operands[DECODER_OUT_PARTS]);
}

bool attention_several_tokens_lie_well(const struct op_task *task) {
  return is_aligned(task) && decoder_operands_are_dense(task);
}

bool attention_tokens_lie_well(const struct op_task *task) {
  return attention_several_tokens_lie_well(task) && !task->operands[ATTENTION_BLOCK_KV_PAGES].present;
}

/* ---- Plans ------------------------------------------------------------------------------------------------------- */

/* How a product's rows and chunks of columns are shared by a cluster's blocks and their warps. */
static struct attention_block_share share_of(int64_t rows, int64_t chunks) {
  const int64_t all_tiles = rows / LAYER_HALF_TILE, tiles = divide_up(all_tiles, LAYER_HALF_CLUSTER);
  const int64_t cuts = smaller(larger(ATTENTION_BLOCK_WARPS / tiles, 1), chunks);
  return (struct attention_block_share){
      .tiles = (uint32_t)tiles, .all_tiles = (uint32_t)all_tiles, .cuts = (uint32_t)cuts, .chunks = (uint32_t)chunks};
}

/* Both products' shares, for a cluster that has a KV head; the first place after the numbers of q, k and v. */
static int64_t share(const struct decoder_shape *shape, struct attention_block_parameters *p) {
  const int64_t d = shape->head_dimension, columns = shape->group * d;
  const int64_t of_chunk = ATTENTION_BLOCK_CHUNK_COLUMNS(shape->weights);
  p->group = (uint32_t)shape->group;
  p->half.scale = ATTENTION_BLOCK_FACTOR(shape->weights);
  p->first = share_of(columns + 2 * d, shape->hidden / of_chunk);
  p->second = share_of(shape->hidden, columns / of_chunk);
  return ATTENTION_BLOCK_NUMBERS + (shape->group + 2) * ATTENTION_BLOCK_NUMBERS_PITCH(d);
}
static int64_t most_units(const struct attention_block_parameters *p) {
  return larger((int64_t)p->first.tiles * p->first.cuts, (int64_t)p->second.tiles * p->second.cuts);
}
static int64_t weight_bytes(const struct decoder_shape *shape, const struct attention_block_parameters *p) {
  const int64_t chunks = (int64_t)p->first.tiles * p->first.chunks + (int64_t)p->second.tiles * p->second.chunks;
  return chunks * ATTENTION_BLOCK_CHUNK_BYTES(shape->weights);
}

bool attention_block_plan(const struct decoder_shape *shape, const struct chip *chip, struct decoder_plan *plan) {
  const int64_t d = shape->head_dimension, group = shape->group, hidden = shape->hidden;
  struct attention_block_parameters *p = &plan->told.attention;
  plan->kernel = DECODER_KERNEL(variants, shape, chip, d);
  if (!plan->kernel || shape->out_parts < shape->kv_heads || !shape->capacity) return false;
  plan->clusters = shape->kv_heads;
  int64_t at = share(shape, p);
  p->pitch = (uint32_t)(larger(hidden, group * d) * 2 + PITCH_PADDING);
  p->received =
      decoder_take(&at, LAYER_HALF_CLUSTER * group * (d + STAT_NUMBERS) * (int64_t)sizeof(float), SHARED_ALIGNMENT);
  p->cuts = decoder_take(&at, most_units(p) * CUT_BYTES, 1);
  p->activations = decoder_take(&at, 2 * (int64_t)p->pitch, SHARED_ALIGNMENT);
  p->norm_copy = decoder_take(&at, 2 * hidden, SHARED_ALIGNMENT);
  p->weights = decoder_take(&at, weight_bytes(shape, p), SHARED_ALIGNMENT);
  p->ring =
      decoder_take(&at, (int64_t)ATTENTION_BLOCK_ATTENDING(d) * ATTENTION_BLOCK_STAGES * LAYER_HALF_TILE * d * 4, 1);
  plan->shared_bytes = at;
  return true;
}

bool attention_block_wide_plan(const struct decoder_shape *shape, const struct chip *chip, struct decoder_plan *plan) {
  plan->kernel = DECODER_KERNEL(wide_variants, shape, chip, shape->head_dimension);
  plan->clusters = shape->query_heads / ATTENTION_BLOCK_WIDE_GROUP;
  plan->shared_bytes = ATTENTION_BLOCK_WIDE_BYTES(shape->weights);
  plan->told.attention.splits = (uint32_t)(shape->group / ATTENTION_BLOCK_WIDE_GROUP);
  plan->told.half.scale = 1;
  return plan->kernel && shape->group % ATTENTION_BLOCK_WIDE_GROUP == 0 && shape->out_parts >= plan->clusters &&
         shape->capacity;
}

/* A warp has one piece of each product. */
static bool has_registers(const struct attention_block_share *share, int64_t most) {
  return share->tiles * share->cuts <= ATTENTION_BLOCK_WARPS && divide_up(share->chunks, share->cuts) <= most;
}

bool attention_several_tokens_plan(const struct decoder_shape *shape, const struct chip *chip,
                                   struct decoder_plan *plan) {
  enum { BLOCKS = LAYER_HALF_CLUSTER, TWO_NUMBERS = 4, TOKEN_PADDING = 16 };
  struct attention_block_parameters *p = &plan->told.attention;
  const bool pairs =
      shape->weights == RONDO_BF16 && !shape->one_sequence && shape->rows >= ATTENTION_SEVERAL_TOKENS_PAIRED_ROWS;
  const int64_t tokens = pairs ? 2 * BLOCKS : BLOCKS;
  const int64_t d = HEADS_OF_64, hidden = shape->hidden, splits = divide_up(shape->rows, tokens);
  plan->kernel =
      pairs ? DECODER_KERNEL(pairs_variants, shape, chip, d) : DECODER_KERNEL(several_variants, shape, chip, d);
  if (!plan->kernel || shape->out_parts < shape->kv_heads || !shape->capacity) return false;
  plan->clusters = shape->kv_heads * splits;
  p->splits = (uint32_t)splits;
  int64_t at = share(shape, p);
  if (pairs) at += (shape->group + 2) * ATTENTION_BLOCK_NUMBERS_PITCH(d);
  /* Numbers of two blocks lie so that they do not meet in a bank. */
  p->pitch = (uint32_t)(round_up(larger(hidden, shape->group * d) * TWO_NUMBERS, SHARED_ALIGNMENT) + TOKEN_PADDING);
  p->positions = decoder_take(&at, tokens * (int64_t)sizeof(int32_t), SHARED_ALIGNMENT);
  p->table = decoder_take(&at, 2 * tokens * ATTENTION_SEVERAL_TOKENS_PAIRS * (int64_t)sizeof(float), SHARED_ALIGNMENT);
  p->squares =
      decoder_take(&at, tokens * ATTENTION_SEVERAL_TOKENS_SQUARES(hidden) * (int64_t)sizeof(float), SHARED_ALIGNMENT);
  p->cuts = decoder_take(&at, most_units(p) * tokens * ATTENTION_SEVERAL_TOKENS_CUT_BYTES, SHARED_ALIGNMENT);
  p->activations = decoder_take(&at, BLOCKS * (int64_t)p->pitch, SHARED_ALIGNMENT);
  p->norm_copy = decoder_take(&at, 2 * hidden, SHARED_ALIGNMENT);
  /* Tiles of K and V lie where the weights have been. */
  p->ring = p->weights = (uint32_t)at;
  plan->shared_bytes =
      at + larger(weight_bytes(shape, p),
                  INT64_C(2) * ATTENTION_BLOCK_WARPS * ATTENTION_SEVERAL_TOKENS_STAGES * LAYER_HALF_TILE * d * 2);
  return has_registers(&p->first, ATTENTION_SEVERAL_TOKENS_FIRST(shape->weights)) &&
         has_registers(&p->second, ATTENTION_SEVERAL_TOKENS_SECOND(shape->weights));
}

/* One cluster for each KV head. */
bool attention_tokens_plan(const struct decoder_shape *shape, const struct chip *chip, struct decoder_plan *plan) {
  if (!attention_several_tokens_plan(shape, chip, plan)) return false;
  struct attention_block_parameters *p = &plan->told.attention;
  const int64_t d = HEADS_OF_64, group = shape->group, of_share = (d + 4) + STAT_NUMBERS;
  const int64_t ring =
      INT64_C(2) * ATTENTION_BLOCK_WARPS * ATTENTION_SEVERAL_TOKENS_STAGES_OF_ONE * LAYER_HALF_TILE * d * 2;
  int64_t at = p->ring + larger(weight_bytes(shape, p), ring);
  p->new_rows = decoder_take(&at, INT64_C(2) * ATTENTION_SEVERAL_TOKENS_TOKENS * ATTENTION_BLOCK_NUMBERS_PITCH(d), 1);
  p->received =
      decoder_take(&at, LAYER_HALF_CLUSTER * group * (d + STAT_NUMBERS) * (int64_t)sizeof(float), SHARED_ALIGNMENT);
  p->shares = decoder_take(&at, INT64_C(1) * ATTENTION_BLOCK_SHARES * group * of_share * (int64_t)sizeof(float), 1);
  plan->shared_bytes = at;
  return true;
}

/* ---- Parameters -------------------------------------------------------------------------------------------------- */

void attention_block_fill(const struct op_call *call, const struct decoder_shape *shape, struct decoder_plan *plan) {
  struct attention_block_parameters *p = &plan->told.attention;
  const struct decoder_attributes *attributes = op_attributes(call->task);
  const int64_t *k_stride = call->task->operands[ATTENTION_BLOCK_K].stride,
                *v_stride = call->task->operands[ATTENTION_BLOCK_V].stride;
  const double dimension = (double)shape->head_dimension;
  p->hidden = (uint32_t)shape->hidden;
  p->inverse_hidden = 1.0f / (float)shape->hidden;
  p->out_part_count = (uint32_t)shape->out_parts;
  p->heads = (uint32_t)shape->kv_heads;
  p->early_context = decoder_are_settled(call, ATTENTION_BLOCK_K, ATTENTION_BLOCK_POSITION + 1);
  p->position = call->data[ATTENTION_BLOCK_POSITION];
  p->position_of_each = shape->position_of_each_row;
  p->k = call->data[ATTENTION_BLOCK_K];
  p->v = call->data[ATTENTION_BLOCK_V];
  p->scale_log2 = (float)(1.4426950408889634 / sqrt(dimension));
  p->capacity = (uint32_t)shape->capacity;
  p->k_batch = (uint32_t)k_stride[0]; /* a tensor has at most 2^31 elements */
  p->v_batch = (uint32_t)v_stride[0];
  p->k_position = (uint32_t)k_stride[1];
  p->v_position = (uint32_t)v_stride[1];
  p->k_head = (uint32_t)k_stride[2];
  p->v_head = (uint32_t)v_stride[2];
  p->frequencies = call->data[ATTENTION_BLOCK_ROPE_FREQUENCIES];
  p->has_rope = shape->has_rope;
  p->rope_is_halves = shape->rope_is_halves;
  if (attributes->rope_base > 0) p->frequency_step = -log2((double)attributes->rope_base) * 2 / dimension;
}

bool attention_block_gather(const struct op_call *call, const struct decoder_shape *shape, const struct chip *chip,
                            struct decoder_plan *plan) {
  const struct op_kernel *kernel = DECODER_KERNEL(ranks_variants, shape, chip, HEADS_OF_64);
  if (!kernel || (shape->x_parts && shape->x_parts != ATTENTION_BLOCK_WIDE_X_PARTS)) return false;
  plan->kernel = kernel;
  plan->told.attention.exchange = decoder_gather_of(call);
  plan->told.attention.exchange.settled =
      decoder_are_settled(call, ATTENTION_BLOCK_K, ATTENTION_BLOCK_ROPE_FREQUENCIES + 1);
  return true;
}
