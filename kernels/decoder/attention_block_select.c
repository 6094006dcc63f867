/* attention_block_select.c - whether an attention block is one kernel (attention_block.h), and its launch. */
#include <math.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "attention_block_plan.h"
#include "decoder.h"

enum {
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

static const struct variant *variant_for(const struct attention_block_shape *shape, uint32_t chip) {
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    const struct variant *variant = &variants[i];
    if (variant->kernel.chips & chip && variant->dtype == shape->decoder.dtype &&
        variant->weights == shape->decoder.weights && variant->dimension == shape->head_dimension)
      return variant;
  }
  return NULL;
}

static bool suits(const struct attention_block_shape *shape) {
  const struct decoder_shape *decoder = &shape->decoder;
  return decoder->dense_weights && decoder->out_parts >= shape->kv_heads && shape->capacity > 0 &&
         shape->group <= ATTENTION_BLOCK_MOST_GROUP && decoder->hidden % ATTENTION_BLOCK_STEP == 0;
}

/* What is read and written by words. */
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

static bool operands_suit(const struct op_task *task, int64_t rows) {
  if (!is_aligned(task)) return false;
  if (rows > 1) return decoder_operands_are_dense(task);
  return parts_are_dense(&task->operands[DECODER_X_PARTS]) && parts_are_dense(&task->operands[DECODER_OUT_PARTS]);
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
static void lay_out(const struct variant *variant, const struct attention_block_shape *shape,
                    struct attention_block_plan *plan) {
  const int64_t d = shape->head_dimension, hidden = shape->decoder.hidden, columns = shape->group * d;
  const int64_t of_chunk = ATTENTION_BLOCK_CHUNK_COLUMNS(variant->weights);
  const struct attention_block_share first = attention_block_share_of(columns + 2 * d, hidden / of_chunk,
                                                                      ATTENTION_BLOCK_WARPS),
                                     second =
                                         attention_block_share_of(hidden, columns / of_chunk, ATTENTION_BLOCK_WARPS);
  const int64_t pitch = larger(hidden, columns) * 2 + PITCH_PADDING;
  struct attention_block_parameters *parameters = &plan->parameters;
  int64_t at = ATTENTION_BLOCK_NUMBERS + (shape->group + 2) * ATTENTION_BLOCK_NUMBERS_PITCH(d);
  parameters->first = first;
  parameters->second = second;
  parameters->group = (uint32_t)shape->group;
  parameters->factor = ATTENTION_BLOCK_FACTOR(variant->weights);
  parameters->pitch = (uint32_t)pitch;
  parameters->received = (uint32_t)at;
  at += ATTENTION_BLOCK_CLUSTER * shape->group * (d + ATTENTION_BLOCK_STAT_NUMBERS) * (int64_t)sizeof(float);
  at = round_up(at, SHARED_ALIGNMENT);
  parameters->cuts = (uint32_t)at;
  at += larger(unit_count(&first), unit_count(&second)) * ATTENTION_BLOCK_CUT_BYTES;
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

static bool small_plan(const struct attention_block_shape *shape, const struct chip *chip,
                       struct attention_block_plan *plan) {
  const struct variant *variant = variant_for(shape, launch_chip(chip));
  if (!variant) return false;
  *plan = (struct attention_block_plan){.kernel = &variant->kernel, .parts = shape->kv_heads};
  lay_out(variant, shape, plan);
  return plan->shared_bytes <= chip->shared_bytes;
}

static bool plan_make(const struct attention_block_shape *shape, const struct chip *chip,
                      struct attention_block_plan *plan) {
  if (shape->decoder.rows > 1) return attention_rows_plan(shape, chip, plan);
  return attention_block_wide_plan(shape, chip, plan) || small_plan(shape, chip, plan);
}

/* ---- Launch ------------------------------------------------------------------------------------------------------ */

static bool are_settled(const struct op_call *call, const uint32_t *operands, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (call->task->operands[operands[i]].present && !(call->settled_operands >> operands[i] & 1)) return false;
  return true;
}

static void set_early(const struct op_call *call, struct attention_block_parameters *parameters) {
  static const uint32_t weights[] = {DECODER_NORM, ATTENTION_BLOCK_QKV, ATTENTION_BLOCK_QKV_SCALES,
                                     ATTENTION_BLOCK_OUTPUT, ATTENTION_BLOCK_OUTPUT_SCALES},
                        context[] = {ATTENTION_BLOCK_POSITION, ATTENTION_BLOCK_K, ATTENTION_BLOCK_V};
  parameters->early = are_settled(call, weights, sizeof weights / sizeof *weights);
  parameters->early_context = are_settled(call, context, sizeof context / sizeof *context);
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

static void set_numbers(const struct op_call *call, const struct attention_block_shape *shape,
                        struct attention_block_parameters *parameters) {
  const struct decoder_attributes *attributes = op_attributes(call->task);
  const int64_t *k_stride = call->task->operands[ATTENTION_BLOCK_K].stride,
                *v_stride = call->task->operands[ATTENTION_BLOCK_V].stride;
  const double dimension = (double)shape->head_dimension;
  parameters->hidden = (uint32_t)shape->decoder.hidden;
  parameters->heads = (uint32_t)shape->kv_heads;
  set_early(call, parameters);
  parameters->part_count = (uint32_t)shape->decoder.x_parts;
  parameters->out_part_count = (uint32_t)shape->decoder.out_parts;
  parameters->epsilon = attributes->norm_epsilon;
  parameters->inverse_hidden = 1.0f / (float)shape->decoder.hidden;
  parameters->factor *= attributes->scale;
  parameters->scale_log2 = (float)(1.4426950408889634 / sqrt(dimension));
  parameters->capacity = (uint32_t)shape->capacity;
  parameters->k_position = (uint32_t)k_stride[1]; /* a tensor has at most 2^31 elements */
  parameters->v_position = (uint32_t)v_stride[1];
  parameters->k_head = (uint32_t)k_stride[2];
  parameters->v_head = (uint32_t)v_stride[2];
  parameters->rows = (uint32_t)shape->decoder.rows;
  parameters->position_of_each = shape->position_of_each_row;
  parameters->k_batch = (uint32_t)k_stride[0];
  parameters->v_batch = (uint32_t)v_stride[0];
  parameters->turns = shape->turns;
  parameters->by_halves = shape->by_halves;
  if (attributes->rope_base > 0) parameters->frequency_step = -log2((double)attributes->rope_base) * 2 / dimension;
}

bool attention_block_launch(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct attention_block_shape shape = attention_block_shape_of(call->task);
  struct attention_block_plan plan;
  if (!suits(&shape) || !operands_suit(call->task, shape.decoder.rows) || !plan_make(&shape, chip, &plan)) return false;
  set_addresses(call, &plan.parameters);
  set_numbers(call, &shape, &plan.parameters);
  launch_add(launches, plan.kernel, plan.parts * ATTENTION_BLOCK_CLUSTER, plan.kernel->threads,
             (uint64_t)plan.shared_bytes, &plan.parameters, sizeof plan.parameters);
  return true;
}
