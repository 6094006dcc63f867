/* embed_host.c - an embedding on the host. An item is a row.
 *
 * The products and their order are those of embed.cu. IEEE 754 defines each product to the last bit, and so both give
 * the same bits, except in NaNs. */
#include "../../runtime/integer.h"
#include "../common/rows.h"
#include "embed.h"

enum { PIECE = 256 };

int64_t embed_host_items(const struct op_task *task) {
  const struct op_operand *out = &task->operands[EMBED_OUT];
  return op_elements(out) ? out->shape[0] : 0;
}

/* Loads the elements column .. column + length - 1 of a row. In nvfp4 both numbers are multiples of 16. */
static void load(const struct op_call *call, int64_t row, int64_t column, int64_t length, float *values) {
  const struct op_operand *table = &call->task->operands[EMBED_TABLE];
  int64_t element = row * table->stride[0] + column;
  if (table->dtype != RONDO_NVFP4) {
    rows_load(table->dtype, call->data[EMBED_TABLE], element, length, values);
    return;
  }
  const uint8_t *codes = (const uint8_t *)call->data[EMBED_TABLE] + element / 2;
  const uint8_t *scales = (const uint8_t *)call->data[EMBED_TABLE_SCALES] +
                          row * call->task->operands[EMBED_TABLE_SCALES].stride[0] + column / EMBED_SCALE_GROUP;
  for (int64_t i = 0; i < length; i++)
    values[i] = f32_of_e2m1((unsigned)codes[i / 2] >> i % 2 * 4 & 15u) * f32_of_e4m3(scales[i / EMBED_SCALE_GROUP]);
}

void embed_host_run(const struct op_call *call, int64_t first, int64_t last) {
  const struct op_operand *table = &call->task->operands[EMBED_TABLE], *out = &call->task->operands[EMBED_OUT];
  const struct embed_attributes *attributes = op_attributes(call->task);
  const int32_t *ids = call->data[EMBED_IDS];
  for (int64_t item = first; item < last; item++)
    for (int64_t column = 0; column < table->shape[1]; column += PIECE) {
      float values[PIECE];
      int64_t length = smaller(table->shape[1] - column, PIECE);
      bool is_there = ids[item] >= 0 && ids[item] < table->shape[0];
      if (is_there) load(call, ids[item], column, length, values);
      for (int64_t i = 0; i < length; i++) values[i] = is_there ? values[i] * attributes->scale : NAN;
      rows_store(out->dtype, call->data[EMBED_OUT], item * out->stride[0] + column, length, values);
    }
}
