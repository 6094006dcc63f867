/* attention_select.c - which kernel attends: few query rows go to attention_decode.cu and many to attention_wgmma.cu
 * where these can take them; others by type and head dimension to attention.cu or, with pages, a window, a soft cap or
 * e4m3, to attention_any.cu; with splits, one more that merges. */
#include <assert.h>
#include <inttypes.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "attention_any.h"
#include "attention_append.h"
#include "attention_decode.h"
#include "attention_e4m3.h"
#include "attention_wgmma_plan.h"

struct variant {
  struct op_kernel kernel;
  int64_t threads, block_rows;
  rondo_dtype dtype;
  int64_t head_dimension;
  uint32_t shared_bytes, shared_bytes_80;
};

#define VARIANT(chips, parameters, name, threads, blocks, dtype, dimension, parts, tile, stages, stages_80, held)      \
  {KERNEL_ENTRY(chips, parameters, name, threads),                                                                     \
   threads,                                                                                                            \
   (int64_t)ATTENTION_ROWS(threads, parts),                                                                            \
   dtype,                                                                                                              \
   dimension,                                                                                                          \
   ATTENTION_SHARED_BYTES(dimension, ATTENTION_ROWS(threads, parts), tile, stages),                                    \
   ATTENTION_SHARED_BYTES(dimension, ATTENTION_ROWS(threads, parts), tile, stages_80)},
static const struct variant variants[] = {ATTENTION_KERNELS(VARIANT)};
static const struct variant any_variants[] = {ATTENTION_ANY_KERNELS(VARIANT)};

enum { VARIANTS = sizeof variants / sizeof *variants, ANY_VARIANTS = sizeof any_variants / sizeof *any_variants };

ATTENTION_COMBINE_KERNELS(KERNEL_CONSTANT)

static const struct variant *variant_of(rondo_dtype dtype, const struct attention_shape *shape) {
  const struct variant *all = shape->plain ? variants : any_variants;
  for (int i = 0; i < (shape->plain ? VARIANTS : ANY_VARIANTS); i++)
    if (all[i].dtype == dtype && all[i].head_dimension == shape->head_dimension &&
        all[i].block_rows == shape->block_rows)
      return &all[i];
  assert(false && "a kernel for every task that passes the check");
  return NULL;
}

/* Of a chip's images only those for sm_80 and older have the smaller stages; a newer chip that translates the portable
 * code, which is sm_80's, is asked for more than it takes. */
static uint32_t shared_bytes_of(const struct variant *variant, const struct chip *chip) {
  return chip->version >= 90 ? variant->shared_bytes : variant->shared_bytes_80;
}

/* Under the causal mask, as many as have 32 MiB of K and V, so that they stay in L2 while the long row tiles of all of
 * them go before the short ones of any. Else row tiles are alike, and those of a head go together. */
static int64_t section_heads(const struct attention_shape *shape) {
  int64_t heads = shape->batch * shape->kv_heads * shape->splits;
  int64_t bytes = 4 * smaller(shape->split_rows, shape->capacity) * shape->head_dimension;
  if (!shape->causal || !bytes) return 1;
  int64_t held = ((int64_t)32 << 20) / bytes;
  return held < 1 ? 1 : smaller(held, heads);
}

static struct attention_parameters parameters_of(const struct op_call *call, const struct attention_shape *shape) {
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

static struct attention_any_parameters any_parameters_of(const struct op_call *call,
                                                         const struct attention_shape *shape) {
  const struct op_operand *operands = call->task->operands;
  struct attention_any_parameters parameters = {
      .plain = parameters_of(call, shape),
      .kv_pages = call->data[ATTENTION_KV_PAGES],
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

/* Blocks stay below 2^31: q bounds rows and k bounds KV rows by 2^26 in all, and a split has at least 64. With pages,
 * cut() sees to it. */
static rondo_status portable_launch(const struct op_call *call, const struct attention_shape *shape,
                                    const struct chip *chip, struct op_launches *launches) {
  const struct variant *variant = variant_of(call->task->operands[ATTENTION_O].dtype, shape);
  const uint32_t shared_bytes = shared_bytes_of(variant, chip);
  if (shared_bytes > (uint32_t)chip->shared_bytes)
    return status_set(RONDO_UNSUPPORTED,
                      "head dimension %" PRId64 " needs %" PRIu32 " bytes of shared memory, the chip has %" PRId32,
                      shape->head_dimension, shared_bytes, chip->shared_bytes);
  const int64_t blocks = shape->row_tiles * shape->batch * shape->kv_heads * shape->splits;
  if (shape->plain) {
    const struct attention_parameters parameters = parameters_of(call, shape);
    launch_add(launches, &variant->kernel, blocks, variant->threads, shared_bytes, &parameters, sizeof parameters);
  } else {
    const struct attention_any_parameters parameters = any_parameters_of(call, shape);
    launch_add(launches, &variant->kernel, blocks, variant->threads, shared_bytes, &parameters, sizeof parameters);
  }
  return RONDO_OK;
}

static rondo_status attend(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  struct attention_shape shape = attention_shape_of(call->task);
  if (!shape.total_rows) return RONDO_OK;
  const struct attention_decode_plan decode = attention_decode_plan_for(call->task, &shape, chip);
  rondo_status status = RONDO_OK;
  if (decode.variant) {
    shape.splits = decode.splits;
    attention_decode_launch(call, &shape, &decode, launches);
  } else {
    if (attention_wgmma_select(call, &shape, chip, launches) || attention_e4m3_select(call, &shape, chip, launches))
      return RONDO_OK;
    status = portable_launch(call, &shape, chip, launches);
  }
  if (status != RONDO_OK || shape.splits == 1) return status;
  const struct attention_parameters parameters = parameters_of(call, &shape);
  const int64_t blocks = divide_up(shape.total_rows, ATTENTION_THREADS / 32); /* a warp merges a row */
  launch_add(launches, &rondo_attention_combine, blocks, ATTENTION_THREADS, 0, &parameters, sizeof parameters);
  return RONDO_OK;
}

rondo_status attention_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct attention_shape shape = attention_shape_of(call->task);
  launches->count = 0;
  const bool is_decode = attention_decode_plan_for(call->task, &shape, chip).variant;
  if (is_decode || (!shape.appends && !shape.turns)) return attend(call, chip, launches);
  struct attention_rest rest;
  attention_append_launch(call, &rest, launches);
  return attend(&rest.call, chip, launches);
}
