/* copy_host.c - a copy on the host. The rows form one sequence of bytes; an item is 64 KB of it. */
#include <string.h>

#include "../../runtime/integer.h"
#include "copy.h"

enum { ITEM_BYTES = 64 * 1024 };

int64_t copy_host_items(const struct op_task *task) {
  struct copy_shape shape = copy_shape_of(task);
  return divide_up(shape.rows * shape.row_bytes, ITEM_BYTES);
}

static int64_t row_offset(const struct copy_shape *shape, const int64_t *stride, int64_t row) {
  int64_t offset = 0;
  for (int i = COPY_OUTER; i-- > 0; row /= shape->extent[i]) offset += row % shape->extent[i] * stride[i];
  return offset;
}

void copy_host_run(const struct op_call *call, int64_t first, int64_t last) {
  struct copy_shape shape = copy_shape_of(call->task);
  const unsigned char *src = call->data[COPY_SRC];
  unsigned char *dst = call->data[COPY_DST];
  int64_t at = first * ITEM_BYTES, end = smaller(last * ITEM_BYTES, shape.rows * shape.row_bytes);
  while (at < end) {
    int64_t row = at / shape.row_bytes, begin = at % shape.row_bytes,
            bytes = smaller(shape.row_bytes - begin, end - at);
    memcpy(dst + row_offset(&shape, shape.dst_stride, row) + begin,
           src + row_offset(&shape, shape.src_stride, row) + begin, (size_t)bytes);
    at += bytes;
  }
}
