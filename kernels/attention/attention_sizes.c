/* attention_sizes.c - the scratch memory of an attention task. First lie the partial results of splits, then, if a
 * launch before the attention needs them, rotated queries and lengths. */
#include "../../runtime/integer.h"
#include "attention_decode.h"

enum { ALIGNMENT = 256 };

static uint64_t up(uint64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

uint64_t attention_partial_o_bytes(const struct attention_shape *shape) {
  return (uint64_t)(shape->splits * shape->total_rows * shape->head_dimension) * sizeof(float);
}

/* Enough for the kernels of every chip. */
static uint64_t partial_bytes(const struct op_task *task, struct attention_shape shape) {
  const struct attention_attributes *attributes = op_attributes(task);
  if (shape.rows <= DECODE_MOST_ROWS)
    shape.splits = larger(shape.splits, attention_decode_splits(shape.kv_heads, shape.capacity, attributes->splits));
  if (shape.splits == 1) return 0;
  return attention_partial_o_bytes(&shape) + (uint64_t)(shape.splits * shape.total_rows) * sizeof(float);
}

struct attention_scratch attention_scratch_of(const struct op_task *task) {
  const struct attention_shape shape = attention_shape_of(task);
  struct attention_scratch scratch = {.bytes = partial_bytes(task, shape)};
  if (!shape.rotates && !shape.appends) return scratch;
  scratch.rotated = up(scratch.bytes);
  scratch.lengths = scratch.rotated;
  if (shape.rotates) scratch.lengths += up((uint64_t)(shape.total_rows * shape.head_dimension) * 2);
  scratch.bytes = scratch.lengths + (uint64_t)shape.batch * sizeof(int32_t);
  return scratch;
}

uint64_t attention_scratch_bytes(const struct op_task *task) { return attention_scratch_of(task).bytes; }
