/* attention_decode.c - which kernel of attention_decode.cu computes an attention of few query rows, how many splits the
 * KV rows have, and the launch. */
#include <float.h>
#include <math.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "attention_choose.h"

#define VARIANT(chips, parameters, name, threads, dtype, kind, dimension, operands, warps, stages, cluster)            \
  {KERNEL_ENTRY(chips, parameters, name, threads), dtype, kind, dimension, operands, warps, stages, cluster},
static const struct attention_decode_variant variants[] = {ATTENTION_DECODE_KERNELS(VARIANT)};

enum {
  LEAST_SPLIT = 4096,         /* KV rows that are worth the second launch that merges splits */
  HEADS_AT_ONCE = 8,          /* that eight blocks each read at the memory's speed */
  LEAST_MULTIPROCESSORS = 16, /* of a lane that surely holds a cluster */
  PAIRED_ROWS_OF_64 = 4608,   /* KV rows at most, a model's padding with them: clusters read more rows faster */
  MOST_BATCH = 65535,         /* of a grid */
};

/* ---- The plan ---------------------------------------------------------------------------------------------------- */

int64_t attention_decode_splits(int64_t kv_heads, int64_t capacity, int64_t asked) {
  if (asked) return larger(smaller(asked, divide_up(capacity, DECODE_LEAST_RUN)), 1);
  return larger(smaller(HEADS_AT_ONCE / larger(kv_heads, 1), capacity / LEAST_SPLIT), 1);
}

/* A general kernel does the work of a plain one, with the same bits. e4m3 is multiplied as f16, whatever q's type. */
static bool does_kind(const struct attention_decode_variant *variant, const struct attention_problem *problem) {
  if (problem->kv == RONDO_E4M3) return variant->kind == DECODE_E4M3;
  if (variant->kind == DECODE_GENERAL) return true;
  return problem->shape.plain && variant->kind == DECODE_PLAIN && variant->dtype == problem->q;
}

/* The first kernel with enough rows. In the list, plain kernels precede general ones, and kernels of few rows precede
 * those of more. */
static const struct attention_decode_variant *variant_of(const struct attention_problem *problem, int64_t cluster) {
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    const struct attention_decode_variant *v = &variants[i];
    if (does_kind(v, problem) && v->dimension == problem->shape.head_dimension &&
        8 * v->operands >= problem->shape.rows && v->cluster == cluster &&
        v->kernel.chips & launch_chip(&problem->chip))
      return v;
  }
  return NULL;
}

/* A block that is alone with a head reads slower than a cluster. Blocks are alone where there are enough heads to read
 * at the memory's speed, and where there is no room for clusters. Half as many heads take pairs of blocks: clusters of
 * eight would take two waves. */
static const struct attention_decode_variant *variant_for(const struct attention_problem *problem, int64_t heads) {
  const bool has_clusters = problem->chip.multiprocessors >= LEAST_MULTIPROCESSORS;
  const struct attention_decode_variant *alone = variant_of(problem, 1);
  if (alone && (!has_clusters || heads * 9 >= (int64_t)problem->chip.multiprocessors * 4)) return alone;
  if (!has_clusters) return NULL;
  const struct attention_decode_variant *pair = variant_of(problem, DECODE_PAIR);
  const bool reads_fast = problem->shape.head_dimension > 64 || problem->shape.capacity <= PAIRED_ROWS_OF_64;
  const bool suits = reads_fast && heads * 9 >= (int64_t)problem->chip.multiprocessors * 2;
  return pair && suits ? pair : variant_of(problem, DECODE_PARTS);
}

/* A block waits for memory at its begin and for other warps at its end. With many heads, four blocks on a
 * multiprocessor hide that better than two with longer rings. */
static bool is_crowded(const struct attention_decode_variant *v, int64_t heads, int64_t multiprocessors) {
  return v->cluster == 1 && v->kind == DECODE_PLAIN && v->stages > DECODE_CROWDED_STAGES && heads > 2 * multiprocessors;
}

bool attention_decode_plan_of(const struct attention_problem *problem, struct attention_plan *plan) {
  const struct attention_shape *shape = &problem->shape;
  const int64_t most_bytes = problem->chip.shared_bytes, new_rows = shape->appends ? shape->query_length : 0;
  if (!problem->is_aligned || !shape->capacity || shape->batch > MOST_BATCH) return false;
  plan->splits = attention_decode_splits(shape->kv_heads, shape->capacity, problem->asked_splits);
  const int64_t heads = shape->batch * shape->kv_heads * plan->splits;
  const struct attention_decode_variant *v = plan->decode.variant = variant_for(problem, heads);
  if (!v) return false;
  plan->decode.crowded = is_crowded(v, heads, problem->chip.multiprocessors);
  const int64_t stages = plan->decode.crowded ? DECODE_CROWDED_STAGES : v->stages;
  const int64_t bytes = DECODE_SHARED_BYTES(v->dimension, v->kind, v->warps, stages, v->cluster, shape->rows) +
                        DECODE_NEW_BYTES(v->dimension, v->warps, new_rows);
  /* Two blocks that are alone do not share a multiprocessor beside an idle one. */
  const bool by_itself = v->cluster == 1 && heads <= problem->chip.multiprocessors;
  plan->decode.shared_bytes = by_itself ? larger(bytes, most_bytes / 2 + 1) : bytes;
  return bytes <= most_bytes;
}

/* ---- The launch -------------------------------------------------------------------------------------------------- */

/* A tensor has at most 2^31 elements, so do strides between the elements that there are. */
static struct attention_decode_stride stride_of(const struct attention_stride *stride) {
  return (struct attention_decode_stride){(uint32_t)stride->batch, (uint32_t)stride->head, (uint32_t)stride->position};
}

/* What only kernels that are not plain read. Without pages, an item is a page as large as any. */
static void extend(struct attention_decode_parameters *parameters, const struct op_call *call,
                   const struct attention_shape *shape) {
  parameters->kv_pages = call->data[ATTENTION_KV_PAGES];
  parameters->pages_stride = (uint32_t)shape->pages_stride;
  parameters->pool_pages = (uint32_t)(shape->paged ? shape->pool_pages : shape->batch);
  parameters->page_shift = shape->paged ? (uint32_t)log2_of(shape->page_rows) : 31;
  parameters->window = shape->window ? (int32_t)shape->window : DECODE_NO_WINDOW;
  parameters->v_scale = shape->v_scale;
  parameters->bf16 = call->task->operands[ATTENTION_O].dtype == RONDO_BF16;
  if (shape->soft_cap != 0.0f) {
    parameters->cap_log2 = shape->soft_cap * 1.44269504f;
    parameters->cap_inverse = fminf(1.0f / parameters->cap_log2, FLT_MAX);
  }
}

static void append(struct attention_decode_parameters *parameters, const struct op_call *call,
                   const struct attention_shape *shape) {
  const struct attention_attributes *attributes = op_attributes(call->task);
  const struct attention_stride new_k = attention_stride_of(call->task, ATTENTION_NEW_K),
                                new_v = attention_stride_of(call->task, ATTENTION_NEW_V);
  parameters->rotates = shape->rotates;
  parameters->by_halves = shape->by_halves;
  parameters->new_k = call->data[ATTENTION_NEW_K];
  parameters->new_v = call->data[ATTENTION_NEW_V];
  parameters->positions = call->data[ATTENTION_POSITION];
  parameters->new_k_stride = stride_of(&new_k);
  parameters->new_v_stride = stride_of(&new_v);
  parameters->position_step = call->task->operands[ATTENTION_POSITION].shape[0] > 1;
  parameters->frequencies = call->data[ATTENTION_ROPE_FREQUENCIES];
  if (attributes->rope_base > 0.0f)
    parameters->frequency_step = -log2((double)attributes->rope_base) * 2.0 / (double)shape->head_dimension;
}

void attention_decode_launch(const struct op_call *call, const struct attention_shape *shape,
                             const struct attention_plan *plan, struct op_launches *launches) {
  const int64_t *lse_stride = call->task->operands[ATTENTION_LSE].stride;
  struct attention_decode_parameters parameters = {
      .q = call->data[ATTENTION_Q],
      .k = call->data[ATTENTION_K],
      .v = call->data[ATTENTION_V],
      .kv_lengths = call->data[ATTENTION_KV_LENGTHS],
      .k_stride = stride_of(&shape->k_stride),
      .v_stride = stride_of(&shape->v_stride),
      .capacity = (uint32_t)shape->capacity,
      .query_length = (uint32_t)shape->query_length,
      .q_stride = stride_of(&shape->q_stride),
      .group = (uint32_t)shape->group,
      .group_reciprocal = (uint32_t)divide_up(1 << 16, shape->group),
      .rows = (uint32_t)shape->rows,
      .causal = shape->causal,
      .most_length = (int32_t)shape->most_length,
      .scale_log2 = shape->scale * 1.44269504f,
      .crowded = plan->decode.crowded,
      .o = call->data[ATTENTION_O],
      .o_stride = stride_of(&shape->o_stride),
      .lse = call->data[ATTENTION_LSE],
      .lse_batch_stride = (uint32_t)lse_stride[0],
      .lse_head_stride = (uint32_t)lse_stride[1],
      .batch = (uint32_t)shape->batch,
      .early = op_is_settled(call, ATTENTION_K) && op_is_settled(call, ATTENTION_V),
  };
  extend(&parameters, call, shape);
  if (shape->appends) append(&parameters, call, shape);
  if (plan->splits > 1 && call->scratch) {
    parameters.partial_o = call->scratch;
    parameters.partial_lse = (float *)((unsigned char *)call->scratch + attention_partial_o_bytes(shape));
  }
  const struct attention_decode_variant *variant = plan->decode.variant;
  struct op_launch *launch =
      launch_add(launches, &variant->kernel, shape->kv_heads * variant->cluster, variant->kernel.threads,
                 (uint64_t)plan->decode.shared_bytes, &parameters, sizeof parameters);
  launch->grid[1] = (uint32_t)shape->batch;
  launch->grid[2] = (uint32_t)plan->splits;
}
