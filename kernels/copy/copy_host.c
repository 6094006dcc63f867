/* copy_host.c - a copy on the host. The rows form one sequence of bytes; an item is 64 KB of it. */
#include <string.h>

#include "../../runtime/integer.h"
#include "copy.h"

enum { ITEM_BYTES = 64 * 1024 };

int64_t copy_host_items(const struct op_task *task) {
  const struct dense_rows rows = copy_rows_of(task);
  return divide_up(copy_bytes(task, rows.rows * rows.row), ITEM_BYTES);
}

void copy_host_run(const struct op_call *call, int64_t first, int64_t last) {
  const struct dense_rows rows = copy_rows_of(call->task);
  const unsigned char *src = call->data[COPY_SRC];
  unsigned char *dst = call->data[COPY_DST];
  const int64_t row_bytes = copy_bytes(call->task, rows.row);
  int64_t at = first * ITEM_BYTES, end = smaller(last * ITEM_BYTES, rows.rows * row_bytes);
  while (at < end) {
    int64_t row = at / row_bytes, begin = at % row_bytes, bytes = smaller(row_bytes - begin, end - at);
    memcpy(dst + copy_bytes(call->task, dense_rows_begin(&rows, COPY_DST, row)) + begin,
           src + copy_bytes(call->task, dense_rows_begin(&rows, COPY_SRC, row)) + begin, (size_t)bytes);
    at += bytes;
  }
}
