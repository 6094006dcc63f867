/* attention_portable.c - the plan and the launch of the kernels of every chip: attention.cu's and, with pages, a
 * window, a soft cap or e4m3, attention_general.cu's. */
#include "attention_portable.h"

#include <assert.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "attention_choose.h"

#define VARIANT(chips, parameters, name, threads, blocks, dtype, dimension, parts, tile, stages, stages_80, held)      \
  {KERNEL_ENTRY(chips, parameters, name, threads),                                                                     \
   ATTENTION_ROWS(threads, parts),                                                                                     \
   dtype,                                                                                                              \
   dimension,                                                                                                          \
   ATTENTION_SHARED_BYTES(dimension, ATTENTION_ROWS(threads, parts), tile, stages),                                    \
   ATTENTION_SHARED_BYTES(dimension, ATTENTION_ROWS(threads, parts), tile, stages_80)},
static const struct attention_portable_variant variants[] = {ATTENTION_KERNELS(VARIANT)};
static const struct attention_portable_variant general_variants[] = {ATTENTION_GENERAL_KERNELS(VARIANT)};

static const struct attention_portable_variant *variant_of(const struct attention_problem *problem) {
  const struct attention_shape *shape = &problem->shape;
  const struct attention_portable_variant *v = shape->plain ? variants : general_variants;
  const size_t bytes = shape->plain ? sizeof variants : sizeof general_variants;
  for (const struct attention_portable_variant *end = v + bytes / sizeof *v; v < end; v++)
    if (v->dtype == problem->o && v->head_dimension == shape->head_dimension && v->block_rows == shape->block_rows)
      return v;
  assert(false && "a kernel for every task that passes the check");
  return NULL;
}

/* Heads of a section. Under the causal mask they have 32 MiB of K and V together, which stay in L2: the long row tiles
 * of all these heads go before the short ones. Without a mask row tiles are alike, and those of a head go together. */
static int64_t section_heads(const struct attention_shape *shape) {
  int64_t heads = shape->batch * shape->kv_heads * shape->splits;
  int64_t bytes = 4 * smaller(shape->split_rows, shape->capacity) * shape->head_dimension;
  if (!shape->causal || !bytes) return 1;
  int64_t held = ((int64_t)32 << 20) / bytes;
  return held < 1 ? 1 : smaller(held, heads);
}

struct attention_parameters attention_parameters_of(const struct op_call *call, const struct attention_shape *shape) {
  const struct op_operand *operands = call->task->operands;
  const int64_t *lse_stride = operands[ATTENTION_LSE].stride;
  struct attention_parameters parameters = {
      .q = call->data[ATTENTION_Q],
      .k = call->data[ATTENTION_K],
      .v = call->data[ATTENTION_V],
      .kv_lengths = call->data[ATTENTION_KV_LENGTHS],
      .o = call->data[ATTENTION_O],
      .lse = call->data[ATTENTION_LSE],
      .q_stride = shape->q_stride,
      .k_stride = shape->k_stride,
      .v_stride = shape->v_stride,
      .o_stride = shape->o_stride,
      .lse_batch_stride = lse_stride[0],
      .lse_head_stride = lse_stride[1],
      .batch = (uint32_t)shape->batch,
      .kv_heads = (uint32_t)shape->kv_heads,
      .group = (uint32_t)shape->group,
      .rows = (uint32_t)shape->rows,
      .query_length = (int32_t)shape->query_length,
      .capacity = (int32_t)shape->capacity,
      .most_length = (int32_t)shape->most_length,
      .row_tiles = (uint32_t)shape->row_tiles,
      .splits = (uint32_t)shape->splits,
      .section_heads = (uint32_t)section_heads(shape),
      .split_rows = (int32_t)shape->split_rows,
      .head_dimension = (uint32_t)shape->head_dimension,
      .scale_log2 = shape->scale * 1.44269504f,
      .causal = shape->causal,
      .aligned = attention_rows_aligned(call->task),
      .bf16 = operands[ATTENTION_O].dtype == RONDO_BF16,
  };
  if (shape->splits > 1 && call->scratch) {
    parameters.partial_o = call->scratch;
    parameters.partial_lse = (float *)((unsigned char *)call->scratch + attention_partial_o_bytes(shape));
  }
  return parameters;
}

static struct attention_general_parameters general_parameters_of(const struct op_call *call,
                                                                 const struct attention_shape *shape) {
  const struct op_operand *operands = call->task->operands;
  struct attention_general_parameters parameters = {
      .plain = attention_parameters_of(call, shape),
      .kv_pages = call->data[ATTENTION_KV_PAGES],
      .starts = call->data[ATTENTION_ROW_OFFSETS],
      .items = (uint32_t)shape->items,
      .pages_stride = shape->pages_stride,
      .pool_pages = (int32_t)shape->pool_pages,
      .page_shift = shape->paged ? log2_of(shape->page_rows) : 30, /* or all in one page */
      .window = (int32_t)shape->window,
      .q_e4m3 = operands[ATTENTION_Q].dtype == RONDO_E4M3,
      .kv_e4m3 = operands[ATTENTION_K].dtype == RONDO_E4M3,
      .v_scale = shape->v_scale,
  };
  if (shape->soft_cap != 0.0f) {
    parameters.capped = 1;
    parameters.cap_scale = shape->scale / shape->soft_cap;
    parameters.plain.scale_log2 = shape->soft_cap * 1.44269504f;
  }
  return parameters;
}

/* Only the code for sm_80 has fewer stages. A newer chip may translate that code; then it gets more memory than the
 * kernel uses. */
bool attention_portable_plan_of(const struct attention_problem *problem, struct attention_plan *plan) {
  const struct attention_portable_variant *variant = plan->portable.variant = variant_of(problem);
  plan->portable.shared_bytes = problem->chip.version >= 90 ? variant->shared_bytes : variant->shared_bytes_80;
  plan->splits = problem->shape.splits;
  return plan->portable.shared_bytes <= problem->chip.shared_bytes;
}

/* Blocks stay below 2^31: q has at most 2^26 rows and k as many KV rows, and a split has at least 64. With pages, the
 * number of splits is limited by cut(). */
void attention_portable_launch(const struct op_call *call, const struct attention_shape *shape,
                               const struct attention_plan *plan, struct op_launches *launches) {
  const struct op_kernel *kernel = &plan->portable.variant->kernel;
  const int64_t blocks = shape->row_tiles * shape->batch * shape->kv_heads * shape->splits;
  const struct attention_parameters parameters = attention_parameters_of(call, shape);
  const struct attention_general_parameters general = general_parameters_of(call, shape);
  launch_add(launches, kernel, blocks, kernel->threads, (uint64_t)plan->portable.shared_bytes,
             shape->plain ? (const void *)&parameters : &general, kernel->parameter_bytes);
}
