/* many_tokens_plan.c - the plans of the layer halves of many tokens, and what of scratch their blocks exchange. */
#include <math.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "decoder_choose.h"

/* ---- Feed forward ------------------------------------------------------------------------------------------------ */

struct gated_variant {
  struct op_kernel kernel;
  int64_t hidden, columns;
};
#define GATED_VARIANT(chips, parameters, name, threads, hidden, columns)                                               \
  {KERNEL_ENTRY(chips, parameters, name, threads), hidden, columns},
static const struct gated_variant gated_variants[] = {FEED_FORWARD_MANY_TOKENS_KERNELS(GATED_VARIANT)};

static const struct gated_variant *gated_variant_of(const struct decoder_shape *shape) {
  for (size_t i = 0; i < sizeof gated_variants / sizeof *gated_variants; i++)
    if (shape->hidden == gated_variants[i].hidden && shape->columns == gated_variants[i].columns)
      return &gated_variants[i];
  return NULL;
}

static int64_t gated_clusters(const struct decoder_shape *shape) {
  return FEED_FORWARD_MANY_TOKENS_PARTS(shape->columns) * divide_up(shape->rows, FEED_FORWARD_MANY_TOKENS_TILE);
}

/* Up to 16 rows have other kernels, unless their parts are this one's. */
static bool are_many(const struct decoder_shape *shape) {
  return shape->rows > DECODER_MOST_ROWS ||
         (shape->rows > 1 && shape->out_parts == FEED_FORWARD_MANY_TOKENS_PARTS(shape->columns));
}

uint64_t feed_forward_many_tokens_scratch(const struct decoder_shape *shape) {
  if (!are_many(shape) || !gated_variant_of(shape)) return 0;
  return (uint64_t)(gated_clusters(shape) * LAYER_HALF_CLUSTER * FEED_FORWARD_MANY_TOKENS_EXCHANGE(shape->hidden));
}

bool feed_forward_many_tokens_plan(const struct decoder_shape *shape, const struct chip *chip,
                                   struct decoder_plan *plan) {
  const struct gated_variant *variant = gated_variant_of(shape);
  if (!variant || !(variant->kernel.chips & launch_chip(chip)) ||
      shape->out_parts != FEED_FORWARD_MANY_TOKENS_PARTS(shape->columns) || shape->x_parts % MANY_TOKENS_PARTS_AT_ONCE)
    return false;
  plan->kernel = &variant->kernel, plan->clusters = gated_clusters(shape), plan->told.half.scale = 1;
  plan->shared_bytes = FEED_FORWARD_MANY_TOKENS_BYTES(shape->hidden);
  return true;
}

void feed_forward_many_tokens_fill(const struct op_call *call, const struct decoder_shape *shape,
                                   struct decoder_plan *plan) {
  (void)shape;
  plan->told.gated_many.exchange = call->scratch;
}

/* ---- Attention --------------------------------------------------------------------------------------------------- */

struct attention_variant {
  struct op_kernel kernel;
  int64_t hidden, kv_heads, group, tiles;
};
#define ATTENTION_VARIANT(chips, parameters, name, threads, hidden, kv_heads, group, tiles)                            \
  {KERNEL_ENTRY(chips, parameters, name, threads), hidden, kv_heads, group, tiles},
static const struct attention_variant attention_variants[] = {ATTENTION_MANY_TOKENS_KERNELS(ATTENTION_VARIANT)};

/* A cluster lies in one of a chip's groups of multiprocessors, at most eight. Of more than 8 x 15 multiprocessors one
 * group surely has 16. Each lane and each chip with clusters has a group of eight. */
static bool has_room_for_cluster(const struct attention_variant *variant, const struct chip *chip) {
  enum { GROUPS = 8 };
  const int64_t blocks = variant->tiles * LAYER_HALF_CLUSTER;
  return blocks <= LAYER_HALF_CLUSTER || chip->multiprocessors > GROUPS * (blocks - 1);
}

static const struct attention_variant *attention_variant_of(const struct decoder_shape *shape) {
  for (size_t i = 0; i < sizeof attention_variants / sizeof *attention_variants; i++) {
    const struct attention_variant *variant = &attention_variants[i];
    if (shape->hidden == variant->hidden && shape->kv_heads == variant->kv_heads && shape->group == variant->group &&
        shape->rows <= variant->tiles * ATTENTION_MANY_TOKENS_TILE)
      return variant;
  }
  return NULL;
}

static int64_t attention_clusters(const struct decoder_shape *shape) {
  return shape->kv_heads * divide_up(shape->rows, ATTENTION_MANY_TOKENS_TILE);
}

uint64_t attention_many_tokens_scratch(const struct decoder_shape *shape) {
  if (!shape->one_sequence || !attention_variant_of(shape)) return 0;
  return (uint64_t)(attention_clusters(shape) * LAYER_HALF_CLUSTER * ATTENTION_MANY_TOKENS_EXCHANGE(shape->hidden));
}

bool attention_many_tokens_plan(const struct decoder_shape *shape, const struct chip *chip, struct decoder_plan *plan) {
  const struct attention_variant *variant = attention_variant_of(shape);
  if (!variant || !(variant->kernel.chips & launch_chip(chip)) || !has_room_for_cluster(variant, chip)) return false;
  if (shape->out_parts != shape->kv_heads || shape->x_parts % MANY_TOKENS_PARTS_AT_ONCE || !shape->capacity)
    return false;
  plan->kernel = &variant->kernel, plan->clusters = attention_clusters(shape), plan->told.half.scale = 1;
  plan->shared_bytes = ATTENTION_MANY_TOKENS_BYTES(shape->hidden, shape->group);
  return true;
}

void attention_many_tokens_fill(const struct op_call *call, const struct decoder_shape *shape,
                                struct decoder_plan *plan) {
  const struct decoder_attributes *attributes = op_attributes(call->task);
  const struct op_operand *k = &call->task->operands[ATTENTION_BLOCK_K], *v = &call->task->operands[ATTENTION_BLOCK_V];
  const double dimension = (double)shape->head_dimension;
  struct attention_many_tokens_parameters *p = &plan->told.attention_many;
  p->exchange = call->scratch;
  p->position = call->data[ATTENTION_BLOCK_POSITION];
  p->pages = call->data[ATTENTION_BLOCK_KV_PAGES];
  p->k = call->data[ATTENTION_BLOCK_K], p->v = call->data[ATTENTION_BLOCK_V];
  p->k_page = (uint32_t)k->stride[0], p->v_page = (uint32_t)v->stride[0]; /* a tensor has at most 2^31 elements */
  p->k_position = (uint32_t)k->stride[1], p->v_position = (uint32_t)v->stride[1];
  p->k_head = (uint32_t)k->stride[2], p->v_head = (uint32_t)v->stride[2];
  p->pool_pages = (uint32_t)k->shape[0];
  p->page_shift = p->pages ? (uint32_t)log2_of(k->shape[1]) : 0; /* pages have a power of two of rows */
  p->capacity = (uint32_t)shape->capacity;
  p->scale_log2 = (float)(1.4426950408889634 / sqrt(dimension));
  p->frequencies = call->data[ATTENTION_BLOCK_ROPE_FREQUENCIES];
  p->has_rope = shape->has_rope;
  p->rope_is_halves = shape->rope_is_halves;
  if (attributes->rope_base > 0) p->frequency_step = -log2((double)attributes->rope_base) * 2 / dimension;
}
