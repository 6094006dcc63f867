/* attention_step.c - attention as steps of the host: new rows, where several items read them, then all else. New rows
 * of a KV head with one item are written by it. On any processor, as graphs are planned and explained there too. */
#include "../../runtime/integer.h"
#include "attention.h"

/* Of packed rows, each item's are divided by themselves: it has at most one part more than its rows fill. */
int64_t attention_items_per_head(const struct attention_shape *shape) {
  if (shape->packed) return shape->rows ? shape->rows / ATTENTION_ITEM_ROWS + shape->items : 0;
  return divide_up(shape->rows, ATTENTION_ITEM_ROWS);
}

bool attention_item_appends(const struct attention_shape *shape) {
  return shape->appends && !shape->packed && attention_items_per_head(shape) <= 1;
}

int64_t attention_rows_host_items(const struct op_task *task) {
  const struct attention_shape shape = attention_shape_of(task);
  return shape.batch * shape.kv_heads * larger(attention_items_per_head(&shape), attention_item_appends(&shape));
}

int64_t attention_new_rows_host_items(const struct op_task *task) {
  const struct attention_shape shape = attention_shape_of(task);
  return shape.batch * divide_up(shape.query_length, ATTENTION_NEW_POSITIONS);
}

bool attention_host_step(const struct op_call *call, uint32_t index, struct op_step *step) {
  const struct attention_shape shape = attention_shape_of(call->task);
  const bool is_new = shape.appends && !attention_item_appends(&shape);
  if (index > is_new) return false;
  step->task = *call->task;
  step->task.op = is_new && index == 0 ? &op_attention_new_rows : &op_attention_rows;
  step->call = *call;
  step->call.task = &step->task;
  return true;
}
