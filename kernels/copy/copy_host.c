/* copy_host.c - a copy on the host. An item is about 64 KB: several whole rows, or a piece of one. */
#include <string.h>

#include "../../runtime/integer.h"
#include "copy.h"

enum { ITEM_BYTES = 64 * 1024 };

struct partition {
  int64_t rows_per_item;
  int64_t pieces; /* items of a row, if a row is longer than an item; else 1 */
};

static struct partition partition_of(const struct copy_shape *shape) {
  if (shape->row_bytes >= ITEM_BYTES) return (struct partition){1, divide_up(shape->row_bytes, ITEM_BYTES)};
  return (struct partition){ITEM_BYTES / shape->row_bytes, 1};
}

int64_t copy_host_items(const struct op_task *task) {
  struct copy_shape shape = copy_shape_of(task);
  if (!shape.rows) return 0;
  struct partition partition = partition_of(&shape);
  return divide_up(shape.rows, partition.rows_per_item) * partition.pieces;
}

static int64_t row_offset(const struct copy_shape *shape, const int64_t *stride, int64_t row) {
  int64_t offset = 0;
  for (int i = COPY_OUTER; i-- > 0; row /= shape->extent[i]) offset += row % shape->extent[i] * stride[i];
  return offset;
}

void copy_host_run(const struct op_call *call, int64_t first, int64_t last) {
  struct copy_shape shape = copy_shape_of(call->task);
  struct partition partition = partition_of(&shape);
  const unsigned char *src = call->data[COPY_SRC];
  unsigned char *dst = call->data[COPY_DST];
  for (int64_t item = first; item < last; item++) {
    int64_t row = item / partition.pieces * partition.rows_per_item, row_end = row + partition.rows_per_item;
    if (row_end > shape.rows) row_end = shape.rows;
    int64_t begin = item % partition.pieces * ITEM_BYTES, end = begin + ITEM_BYTES;
    if (end > shape.row_bytes) end = shape.row_bytes;
    for (; row < row_end; row++)
      memcpy(dst + row_offset(&shape, shape.dst_stride, row) + begin,
             src + row_offset(&shape, shape.src_stride, row) + begin, (size_t)(end - begin));
  }
}
