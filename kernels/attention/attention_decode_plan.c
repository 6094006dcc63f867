/* attention_decode_plan.c - which kernel of attention_decode.cu computes an attention of few query rows, and how many
 * splits the KV rows have. */
#include "attention_decode.h"

#include <stddef.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"

#define VARIANT(chips, parameters, name, threads, dtype, kind, dimension, operands, warps, stages, cluster)            \
  {KERNEL_ENTRY(chips, parameters, name, threads), dtype, kind, dimension, operands, warps, stages, cluster},
static const struct attention_decode_variant variants[] = {ATTENTION_DECODE_KERNELS(VARIANT)};

enum {
  LEAST_SPLIT = 4096,         /* KV rows that are worth the second launch that merges splits */
  HEADS_AT_ONCE = 8,          /* that eight blocks each read at the memory's speed */
  LEAST_MULTIPROCESSORS = 16, /* of a lane that surely holds a cluster */
  MOST_BATCH = 65535,         /* of a grid */
};

int64_t attention_decode_splits(int64_t kv_heads, int64_t capacity, int64_t asked) {
  if (asked) return larger(smaller(asked, divide_up(capacity, DECODE_LEAST_RUN)), 1);
  return larger(smaller(HEADS_AT_ONCE / larger(kv_heads, 1), capacity / LEAST_SPLIT), 1);
}

/* A general kernel does the work of a plain one, with the same bits. */
static bool does_kind(const struct attention_decode_variant *variant, enum decode_kind kind) {
  return variant->kind == kind || (variant->kind == DECODE_GENERAL && kind == DECODE_PLAIN);
}

/* The first kernel with enough rows. In the list, plain kernels precede general ones, and kernels of few rows precede
 * those of more. */
static const struct attention_decode_variant *variant_of(const struct attention_decode_problem *problem,
                                                         int64_t cluster) {
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    const struct attention_decode_variant *v = &variants[i];
    if (does_kind(v, problem->kind) && (v->dtype == problem->dtype || v->kind == DECODE_E4M3) &&
        v->dimension == problem->dimension && 8 * v->operands >= problem->rows && v->cluster == cluster &&
        v->kernel.chips & problem->chip)
      return v;
  }
  return NULL;
}

/* A block that is alone with a head reads slower than a cluster. Blocks are alone where there are enough heads to read
 * at the memory's speed, and where there is no room for clusters. */
static const struct attention_decode_variant *variant_for(const struct attention_decode_problem *problem,
                                                          int64_t heads) {
  const bool has_clusters = problem->multiprocessors >= LEAST_MULTIPROCESSORS;
  const struct attention_decode_variant *alone = variant_of(problem, 1);
  if (alone && (!has_clusters || heads * 9 >= problem->multiprocessors * 4)) return alone;
  return has_clusters ? variant_of(problem, DECODE_PARTS) : NULL;
}

struct attention_decode_plan attention_decode_plan_of(const struct attention_decode_problem *problem) {
  struct attention_decode_plan plan = {0};
  if (!problem->aligned || !problem->capacity || problem->batch > MOST_BATCH) return plan;
  plan.splits = attention_decode_splits(problem->kv_heads, problem->capacity, problem->splits);
  const int64_t heads = problem->batch * problem->kv_heads * plan.splits;
  plan.variant = variant_for(problem, heads);
  if (!plan.variant) return (struct attention_decode_plan){0};
  const struct attention_decode_variant *v = plan.variant;
  plan.shared_bytes = DECODE_SHARED_BYTES(v->dimension, v->kind, v->warps, v->stages, v->cluster, problem->rows) +
                      DECODE_NEW_BYTES(v->dimension, v->warps, problem->new_rows);
  if (plan.shared_bytes > problem->shared_bytes) return (struct attention_decode_plan){0};
  /* Two blocks that are alone do not share a multiprocessor beside an idle one. */
  if (plan.variant->cluster == 1 && heads <= problem->multiprocessors)
    plan.shared_bytes = larger(plan.shared_bytes, problem->shared_bytes / 2 + 1);
  return plan;
}
