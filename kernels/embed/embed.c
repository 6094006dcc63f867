/* embed.c - rondo_add_embed: the check of its arguments, and its launch with a thread for every eight elements. */
#include "embed.h"

#include <inttypes.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "../common/rows.h"

rondo_status rondo_add_embed(rondo_graph *graph, const rondo_embed_desc *desc) {
  if (!desc) return op_refuse("describe: rondo_add_embed: the description is NULL");
  struct op_argument arguments[] = {
      [EMBED_TABLE] = {"table", desc->table, RONDO_READ, 0},
      [EMBED_TABLE_SCALES] = {"table_scales", desc->table_scales, RONDO_READ, 0},
      [EMBED_IDS] = {"ids", desc->ids, RONDO_READ, 0},
      [EMBED_OUT] = {"out", desc->out, RONDO_WRITE, 0},
  };
  struct embed_attributes attributes = {.scale = f32_or(desc->scale, 1.0f)};
  return graph_add(graph, &op_embed, desc->name, arguments, EMBED_OPERANDS, &attributes, sizeof attributes);
}

static rondo_status check_table(const struct op_task *task) {
  const struct op_operand *table = &task->operands[EMBED_TABLE], *scales = &task->operands[EMBED_TABLE_SCALES];
  bool is_nvfp4 = table->present && table->dtype == RONDO_NVFP4;
  if (!table->present || table->rank != 2 || !(is_nvfp4 || rows_are_numbers(table->dtype)))
    return op_unexpected("table", table, "[rows, width] f32, f16, bf16 or nvfp4");
  if (!is_nvfp4) {
    if (!scales->present) return RONDO_OK;
    return op_refuse("table_scales is present, expected none with table in %s", rondo_dtype_name(table->dtype));
  }
  if (table->shape[1] % EMBED_SCALE_GROUP)
    return op_refuse("table has rows of %" PRId64 ", expected a multiple of %d", table->shape[1], EMBED_SCALE_GROUP);
  return op_expect("table_scales", scales, RONDO_E4M3, 2,
                   (int64_t[]){table->shape[0], table->shape[1] / EMBED_SCALE_GROUP});
}

rondo_status embed_check(const struct op_task *task) {
  const struct op_operand *ids = &task->operands[EMBED_IDS], *out = &task->operands[EMBED_OUT];
  const struct embed_attributes *attributes = op_attributes(task);
  OP_TRY(op_expect_finite("scale", attributes->scale));
  OP_TRY(check_table(task));
  if (!ids->present || ids->rank != 1 || ids->dtype != RONDO_I32) return op_unexpected("ids", ids, "[count] i32");
  int64_t shape[] = {ids->shape[0], task->operands[EMBED_TABLE].shape[1]};
  if (out->present && !rows_are_numbers(out->dtype))
    return op_refuse("out is %s, expected f32, f16 or bf16", rondo_dtype_name(out->dtype));
  return op_expect("out", out, out->present ? out->dtype : RONDO_BF16, 2, shape);
}

/* Of the table one row for each id: the most that the task can read, which is the case of different ids. */
int64_t embed_touched_elements(const struct op_task *task, uint32_t operand, rondo_access access) {
  const struct op_operand *touched = &task->operands[operand];
  const int64_t rows = touched->shape[0], ids = task->operands[EMBED_IDS].shape[0];
  if ((operand != EMBED_TABLE && operand != EMBED_TABLE_SCALES) || access != RONDO_READ || ids >= rows)
    return op_elements(touched);
  return ids * touched->shape[1];
}

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
