/* attention_block_plan.c - sizes and places for the kernels of attention_block.cu, and the launch of all kernels that
 * do the attention half. */
#include <math.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "decoder_choose.h"

enum {
  STAT_NUMBERS = 2,
  CUT_BYTES = 64, /* sums of a tile */
  WORDS_ALIGNMENT = 8,
  ROWS_ALIGNMENT = 16,
  SHARED_ALIGNMENT = 128,
  PITCH_PADDING = 64 /* bytes, so that two vectors do not meet in a bank */
};

struct variant {
  struct op_kernel kernel;
  rondo_dtype dtype, weights;
  int64_t dimension;
};

#define VARIANT(chips, parameters, name, threads, dtype, weights, dimension)                                           \
  {KERNEL_ENTRY(chips, parameters, name, threads), dtype, weights, dimension},
static const struct variant variants[] = {ATTENTION_BLOCK_KERNELS(VARIANT)};

static const struct variant *variant_for(const struct decoder_shape *shape, uint32_t chip) {
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    const struct variant *variant = &variants[i];
    if (variant->kernel.chips & chip && variant->weights == shape->weights &&
        variant->dimension == shape->head_dimension)
      return variant;
  }
  return NULL;
}

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

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

struct attention_block_share attention_block_share_of(int64_t rows, int64_t chunks, int64_t warps) {
  const int64_t all_tiles = rows / ATTENTION_BLOCK_TILE, tiles = divide_up(all_tiles, ATTENTION_BLOCK_CLUSTER);
  const int64_t cuts = smaller(larger(warps / tiles, 1), chunks);
  return (struct attention_block_share){
      .tiles = (uint32_t)tiles, .all_tiles = (uint32_t)all_tiles, .cuts = (uint32_t)cuts, .chunks = (uint32_t)chunks};
}

static int64_t chunk_count(const struct attention_block_share *share) { return (int64_t)share->tiles * share->chunks; }
static int64_t unit_count(const struct attention_block_share *share) { return (int64_t)share->tiles * share->cuts; }

/* Products' shares, places in shared memory. */
static void lay_out(const struct variant *variant, const struct decoder_shape *shape, struct decoder_plan *plan) {
  const int64_t d = shape->head_dimension, hidden = shape->hidden, columns = shape->group * d;
  const int64_t of_chunk = ATTENTION_BLOCK_CHUNK_COLUMNS(variant->weights);
  const struct attention_block_share first = attention_block_share_of(columns + 2 * d, hidden / of_chunk,
                                                                      ATTENTION_BLOCK_WARPS),
                                     second =
                                         attention_block_share_of(hidden, columns / of_chunk, ATTENTION_BLOCK_WARPS);
  const int64_t pitch = larger(hidden, columns) * 2 + PITCH_PADDING;
  struct attention_block_parameters *parameters = &plan->told.attention;
  int64_t at = ATTENTION_BLOCK_NUMBERS + (shape->group + 2) * ATTENTION_BLOCK_NUMBERS_PITCH(d);
  parameters->first = first;
  parameters->second = second;
  parameters->group = (uint32_t)shape->group;
  parameters->factor = ATTENTION_BLOCK_FACTOR(variant->weights);
  parameters->pitch = (uint32_t)pitch;
  parameters->received = (uint32_t)at;
  at += ATTENTION_BLOCK_CLUSTER * shape->group * (d + STAT_NUMBERS) * (int64_t)sizeof(float);
  at = round_up(at, SHARED_ALIGNMENT);
  parameters->cuts = (uint32_t)at;
  at += larger(unit_count(&first), unit_count(&second)) * CUT_BYTES;
  parameters->activations = (uint32_t)at;
  at = round_up(at + 2 * pitch, SHARED_ALIGNMENT);
  parameters->norm_copy = (uint32_t)at;
  at = round_up(at + 2 * hidden, SHARED_ALIGNMENT);
  parameters->weights = (uint32_t)at;
  at += (chunk_count(&first) + chunk_count(&second)) * ATTENTION_BLOCK_CHUNK_BYTES(variant->weights);
  at = round_up(at, SHARED_ALIGNMENT);
  parameters->ring = (uint32_t)at;
  plan->shared_bytes =
      at + (int64_t)ATTENTION_BLOCK_ATTENDING(d) * ATTENTION_BLOCK_STAGES * ATTENTION_BLOCK_TILE * d * 4;
}

bool attention_block_plan(const struct decoder_shape *shape, const struct chip *chip, struct decoder_plan *plan) {
  const struct variant *variant = variant_for(shape, launch_chip(chip));
  if (!variant || shape->out_parts < shape->kv_heads || !shape->capacity) return false;
  plan->kernel = &variant->kernel, plan->clusters = shape->kv_heads;
  lay_out(variant, shape, plan);
  return true;
}

/* ---- Launch ------------------------------------------------------------------------------------------------------ */

static void set_early(const struct op_call *call, struct attention_block_parameters *parameters) {
  static const uint32_t weights[] = {DECODER_NORM, ATTENTION_BLOCK_QKV, ATTENTION_BLOCK_QKV_SCALES,
                                     ATTENTION_BLOCK_OUTPUT, ATTENTION_BLOCK_OUTPUT_SCALES},
                        context[] = {ATTENTION_BLOCK_POSITION, ATTENTION_BLOCK_K, ATTENTION_BLOCK_V};
  parameters->early = decoder_are_settled(call, weights, sizeof weights / sizeof *weights);
  parameters->early_context = decoder_are_settled(call, context, sizeof context / sizeof *context);
}

static void set_addresses(const struct op_call *call, struct attention_block_parameters *parameters) {
  void *const *data = call->data;
  parameters->qkv = data[ATTENTION_BLOCK_QKV];
  parameters->output = data[ATTENTION_BLOCK_OUTPUT];
  parameters->qkv_scales = data[ATTENTION_BLOCK_QKV_SCALES];
  parameters->output_scales = data[ATTENTION_BLOCK_OUTPUT_SCALES];
  parameters->x = data[DECODER_X];
  parameters->norm = data[DECODER_NORM];
  parameters->x_parts = data[DECODER_X_PARTS];
  parameters->out = data[DECODER_OUT];
  parameters->out_parts = data[DECODER_OUT_PARTS];
  parameters->position = data[ATTENTION_BLOCK_POSITION];
  parameters->k = data[ATTENTION_BLOCK_K];
  parameters->v = data[ATTENTION_BLOCK_V];
  parameters->frequencies = data[ATTENTION_BLOCK_ROPE_FREQUENCIES];
}

static void set_numbers(const struct op_call *call, const struct decoder_shape *shape,
                        struct attention_block_parameters *parameters) {
  const struct decoder_attributes *attributes = op_attributes(call->task);
  const int64_t *k_stride = call->task->operands[ATTENTION_BLOCK_K].stride,
                *v_stride = call->task->operands[ATTENTION_BLOCK_V].stride;
  const double dimension = (double)shape->head_dimension;
  parameters->hidden = (uint32_t)shape->hidden;
  parameters->heads = (uint32_t)shape->kv_heads;
  set_early(call, parameters);
  parameters->part_count = (uint32_t)shape->x_parts;
  parameters->out_part_count = (uint32_t)shape->out_parts;
  parameters->epsilon = attributes->norm_epsilon;
  parameters->inverse_hidden = 1.0f / (float)shape->hidden;
  parameters->factor *= attributes->scale;
  parameters->scale_log2 = (float)(1.4426950408889634 / sqrt(dimension));
  parameters->capacity = (uint32_t)shape->capacity;
  parameters->k_position = (uint32_t)k_stride[1]; /* a tensor has at most 2^31 elements */
  parameters->v_position = (uint32_t)v_stride[1];
  parameters->k_head = (uint32_t)k_stride[2];
  parameters->v_head = (uint32_t)v_stride[2];
  parameters->rows = (uint32_t)shape->rows;
  parameters->position_of_each = shape->position_of_each_row;
  parameters->k_batch = (uint32_t)k_stride[0];
  parameters->v_batch = (uint32_t)v_stride[0];
  parameters->has_rope = shape->has_rope;
  parameters->rope_is_halves = shape->rope_is_halves;
  if (attributes->rope_base > 0) parameters->frequency_step = -log2((double)attributes->rope_base) * 2 / dimension;
}

rondo_status attention_block_launch(const struct op_call *call, const struct chip *chip,
                                    const struct decoder_shape *shape, struct decoder_plan *plan,
                                    struct op_launches *launches) {
  (void)chip;
  set_addresses(call, &plan->told.attention);
  set_numbers(call, shape, &plan->told.attention);
  return decoder_launch_add(plan, launches);
}
