/* attention_select.c - which kernel attends: by type and head dimension; with splits, one more that merges. */
#include <inttypes.h>
#include <string.h>

#include "attention.h"

struct variant {
  rondo_dtype dtype;
  int64_t head_dimension;
  const char *kernel;
  uint32_t tile, stages; /* KV rows of a tile, and tiles in shared memory: as in attention.cu */
};

static const struct variant variants[] = {
    {RONDO_F16, 32, "rondo_attention_f16_32", 64, 3},     {RONDO_F16, 64, "rondo_attention_f16_64", 64, 3},
    {RONDO_F16, 128, "rondo_attention_f16_128", 64, 2},   {RONDO_F16, 256, "rondo_attention_f16_256", 32, 2},
    {RONDO_BF16, 32, "rondo_attention_bf16_32", 64, 3},   {RONDO_BF16, 64, "rondo_attention_bf16_64", 64, 3},
    {RONDO_BF16, 128, "rondo_attention_bf16_128", 64, 2}, {RONDO_BF16, 256, "rondo_attention_bf16_256", 32, 2},
};

/* The query tile, and K and V tiles. */
static uint32_t shared_bytes_of(const struct variant *variant) {
  return (uint32_t)variant->head_dimension * 2 * (ATTENTION_ROWS + 2 * variant->tile * variant->stages);
}

/* Does every row of the operand begin at a multiple of 16 bytes? Tensors begin at multiples of 256. */
static bool rows_aligned(const struct op_operand *operand) {
  if (operand->offset_bytes % 16) return false;
  for (int i = 0; i < 3; i++)
    if (operand->shape[i] > 1 && operand->stride[i] % 8) return false;
  return true;
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
      .row_tiles = (uint32_t)shape->row_tiles,
      .splits = (uint32_t)shape->splits,
      .split_rows = (int32_t)shape->split_rows,
      .head_dimension = (uint32_t)shape->head_dimension,
      .scale_log2 = shape->scale * 1.44269504f,
      .causal = shape->causal,
      .aligned = rows_aligned(&operands[ATTENTION_Q]) && rows_aligned(&operands[ATTENTION_K]) &&
                 rows_aligned(&operands[ATTENTION_V]) && rows_aligned(&operands[ATTENTION_O]),
      .bf16 = operands[ATTENTION_Q].dtype == RONDO_BF16,
  };
  if (shape->splits > 1 && call->scratch) {
    parameters.partial_o = call->scratch;
    parameters.partial_lse = (float *)((unsigned char *)call->scratch + attention_partial_o_bytes(shape));
  }
  return parameters;
}

static void launch_add(struct op_launches *launches, const char *kernel, int64_t blocks, uint32_t shared_bytes,
                       const struct attention_parameters *parameters) {
  struct op_launch *launch = &launches->items[launches->count++];
  *launch = (struct op_launch){.kernel = kernel,
                               .grid = {(uint32_t)blocks, 1, 1},
                               .block = {ATTENTION_THREADS, 1, 1},
                               .shared_bytes = shared_bytes,
                               .parameter_bytes = sizeof *parameters,
                               .completion_offset = offsetof(struct attention_parameters, done)};
  memcpy(launch->parameters, parameters, sizeof *parameters);
}

/* Blocks stay below 2^31: q bounds rows and k bounds KV rows by 2^26 in all, and a split has at least 64. */
rondo_status attention_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  struct attention_shape shape = attention_shape_of(call->task);
  launches->count = 0;
  if (!shape.total_rows) return RONDO_OK;
  const struct variant *variant = variants;
  while (variant->dtype != call->task->operands[ATTENTION_Q].dtype || variant->head_dimension != shape.head_dimension)
    variant++;
  uint32_t shared_bytes = shared_bytes_of(variant);
  if (shared_bytes > (uint32_t)chip->shared_bytes)
    return status_set(RONDO_UNSUPPORTED,
                      "head dimension %" PRId64 " needs %" PRIu32 " bytes of shared memory, the chip has %" PRId32,
                      shape.head_dimension, shared_bytes, chip->shared_bytes);
  struct attention_parameters parameters = parameters_of(call, &shape);
  launch_add(launches, variant->kernel, shape.row_tiles * shape.batch * shape.kv_heads * shape.splits, shared_bytes,
             &parameters);
  enum { WARPS = ATTENTION_THREADS / 32 }; /* a warp merges a row */
  if (shape.splits > 1)
    launch_add(launches, "rondo_attention_combine", (shape.total_rows + WARPS - 1) / WARPS, 0, &parameters);
  return RONDO_OK;
}
