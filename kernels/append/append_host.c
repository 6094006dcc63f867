/* append_host.c - an append on the host. An item is a run of pieces, about 64 KB in all. */
#include <string.h>

#include "append.h"

enum { ITEM_BYTES = 64 * 1024 };

static int64_t pieces_per_item(const struct append_shape *shape) {
  return shape->piece_bytes < ITEM_BYTES ? ITEM_BYTES / shape->piece_bytes : 1;
}

int64_t append_host_items(const struct op_task *task) {
  struct append_shape shape = append_shape_of(task);
  if (!shape.pieces) return 0;
  int64_t per_item = pieces_per_item(&shape);
  return (shape.pieces + per_item - 1) / per_item;
}

static void piece_run(const struct append_shape *shape, void *const *data, int64_t piece) {
  int64_t at[APPEND_OUTER], from = 0, to = 0;
  for (int i = APPEND_OUTER; i-- > 0; piece /= shape->extent[i]) {
    at[i] = piece % shape->extent[i];
    from += at[i] * shape->src_stride[i];
    to += at[i] * shape->dst_stride[i];
  }
  const int32_t *positions = data[APPEND_POSITION];
  int64_t position = positions[shape->per_item ? at[0] : 0], row = position + at[shape->dimension];
  if (row < 0 || row >= shape->capacity) return;
  memcpy((unsigned char *)data[APPEND_DST] + to + position * shape->dst_stride[shape->dimension],
         (const unsigned char *)data[APPEND_SRC] + from, (size_t)shape->piece_bytes);
}

void append_host_run(const struct op_call *call, int64_t first, int64_t last) {
  struct append_shape shape = append_shape_of(call->task);
  int64_t per_item = pieces_per_item(&shape), end = last * per_item;
  if (end > shape.pieces) end = shape.pieces;
  for (int64_t piece = first * per_item; piece < end; piece++) piece_run(&shape, call->data, piece);
}
