/* append_host.c - an append on the host. The pieces form one sequence of bytes; an item is 64 KB of it. */
#include <string.h>

#include "../../runtime/integer.h"
#include "append.h"

enum { ITEM_BYTES = 64 * 1024 };

int64_t append_host_items(const struct op_task *task) {
  struct append_shape shape = append_shape_of(task);
  return divide_up(shape.pieces * shape.piece_bytes, ITEM_BYTES);
}

/* Bytes [begin, begin + bytes) of a piece. */
static void piece_run(const struct append_shape *shape, void *const *data, int64_t piece, int64_t begin,
                      int64_t bytes) {
  int64_t at[APPEND_OUTER], from = begin, to = begin;
  for (int i = APPEND_OUTER; i-- > 0; piece /= shape->extent[i]) {
    at[i] = piece % shape->extent[i];
    from += at[i] * shape->src_stride[i];
    to += at[i] * shape->dst_stride[i];
  }
  const int32_t *positions = data[APPEND_POSITION];
  int64_t position = positions[shape->per_item ? at[0] : 0], row = position + at[shape->dimension];
  if (row < 0 || row >= shape->capacity) return;
  memcpy((unsigned char *)data[APPEND_DST] + to + position * shape->dst_stride[shape->dimension],
         (const unsigned char *)data[APPEND_SRC] + from, (size_t)bytes);
}

void append_host_run(const struct op_call *call, int64_t first, int64_t last) {
  struct append_shape shape = append_shape_of(call->task);
  int64_t at = first * ITEM_BYTES, end = smaller(last * ITEM_BYTES, shape.pieces * shape.piece_bytes);
  while (at < end) {
    int64_t begin = at % shape.piece_bytes, bytes = smaller(shape.piece_bytes - begin, end - at);
    piece_run(&shape, call->data, at / shape.piece_bytes, begin, bytes);
    at += bytes;
  }
}
