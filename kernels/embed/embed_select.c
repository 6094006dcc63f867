/* embed_select.c - the launch of an embedding: one thread for every eight elements. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "embed.h"

EMBED_KERNELS(KERNEL_CONSTANT)

rondo_status embed_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  (void)chip;
  const struct op_operand *operands = call->task->operands, *table = &operands[EMBED_TABLE];
  const struct op_operand *out = &operands[EMBED_OUT];
  const struct embed_attributes *attributes = op_attributes(call->task);
  launches->count = 0;
  if (op_elements(out) == 0) return RONDO_OK;
  int64_t width = table->shape[1], row_parts = divide_up(width, EMBED_ELEMENTS), parts = out->shape[0] * row_parts;
  struct embed_parameters parameters = {
      .table = call->data[EMBED_TABLE],
      .table_scales = call->data[EMBED_TABLE_SCALES],
      .ids = call->data[EMBED_IDS],
      .out = call->data[EMBED_OUT],
      .table_stride = table->stride[0],
      .scale_stride = operands[EMBED_TABLE_SCALES].stride[0],
      .out_stride = out->stride[0],
      .rows = (uint32_t)table->shape[0],
      .width = (uint32_t)width,
      .row_parts = (uint32_t)row_parts,
      .parts = (uint32_t)parts,
      .table_dtype = table->dtype,
      .out_dtype = out->dtype,
      .table_is_aligned = op_rows_aligned(table, table->dtype == RONDO_NVFP4 ? 4 : 16),
      .out_is_aligned = op_rows_aligned(out, 16),
      .scale = attributes->scale,
  };
  launch_add(launches, &rondo_embed, divide_up(parts, EMBED_THREADS), EMBED_THREADS, 0, &parameters, sizeof parameters);
  return RONDO_OK;
}
