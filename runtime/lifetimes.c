/* lifetimes.c - see lifetimes.h. Reachability is computed for a batch of buffers at a time, one bit a buffer (reach.h).
 */
#include "lifetimes.h"

#include <string.h>

enum { NO_COLUMN = UINT32_MAX };

void lifetimes_cut(struct lifetimes *l, struct cutter *cutter, uint32_t node_count, uint32_t buffer_count,
                   uint64_t access_count) {
  uint64_t begin_bytes = ((uint64_t)buffer_count + 1) * sizeof(uint32_t);
  l->buffer_count = buffer_count;
  l->begin = cut(cutter, begin_bytes);
  l->nodes = cut(cutter, access_count * sizeof(uint32_t));
  l->first_begin = cut(cutter, begin_bytes);
  l->first_nodes = cut(cutter, access_count * sizeof(uint32_t));
  l->last_begin = cut(cutter, begin_bytes);
  l->last_nodes = cut(cutter, access_count * sizeof(uint32_t));
  l->mark = cut(cutter, node_count * sizeof(uint32_t));
  l->other_mark = cut(cutter, node_count * sizeof(uint32_t));
  l->column_of_node = cut(cutter, node_count * sizeof(uint32_t));
  l->next = cut(cutter, REACH_COLUMNS * sizeof(uint32_t));
  l->rows = cut(cutter, reach_rows_bytes(node_count));
  l->other_rows = cut(cutter, reach_rows_bytes(node_count));
  l->ordered = cut(cutter, reach_rows_bytes(buffer_count));
  l->other_ordered = cut(cutter, reach_rows_bytes(buffer_count));
  l->live = cut(cutter, node_count * sizeof(uint64_t));
}

/* An access that another one directly follows cannot be the last, nor can the other be the first. Most buffers are left
 * with one of each. */
void lifetimes_prepare(struct lifetimes *l) {
  const struct reach_graph *graph = l->graph;
  uint32_t first_used = 0, last_used = 0;
  memset(l->mark, 0, graph->node_count * sizeof *l->mark);
  memset(l->other_mark, 0, graph->node_count * sizeof *l->other_mark);
  for (uint32_t b = 0; b < l->buffer_count; b++) {
    uint32_t number = b + 1;
    for (uint32_t i = l->begin[b]; i < l->begin[b + 1]; i++) l->mark[l->nodes[i]] = number;
    l->first_begin[b] = first_used;
    for (uint32_t i = l->begin[b]; i < l->begin[b + 1]; i++) {
      bool follows = false;
      uint32_t node = l->nodes[i];
      for (uint32_t j = graph->begin[node]; j < graph->begin[node + 1]; j++) {
        uint32_t before = graph->predecessors[j];
        if (l->mark[before] != number) continue;
        follows = true;
        l->other_mark[before] = number;
      }
      if (!follows) l->first_nodes[first_used++] = node;
    }
    l->last_begin[b] = last_used;
    for (uint32_t i = l->begin[b]; i < l->begin[b + 1]; i++)
      if (l->other_mark[l->nodes[i]] != number) l->last_nodes[last_used++] = l->nodes[i];
  }
  l->first_begin[l->buffer_count] = first_used;
  l->last_begin[l->buffer_count] = last_used;
}

/* ---- Buffers that lie wholly before others ----------------------------------------------------------------------- */

/* One direction. Forward: the buffers that follow those of the batch, by the last accesses of the batch and the first
 * accesses of the others. Backward: the buffers that precede them. */
struct direction {
  bool is_forward;
  const uint32_t *batch_begin, *batch_nodes;
  const uint32_t *other_begin, *other_nodes;
};

/* Up to REACH_COLUMNS accesses of the batch's buffers, a column each. */
struct columns {
  uint32_t count;
  uint32_t node[REACH_COLUMNS];
};

static void spread(struct lifetimes *l, const struct columns *columns, const struct direction *direction) {
  uint32_t nodes = l->graph->node_count;
  memset(l->rows, 0, reach_rows_bytes(nodes));
  memset(l->column_of_node, 0xff, nodes * sizeof *l->column_of_node);
  for (uint32_t c = 0; c < columns->count; c++) {
    uint32_t node = columns->node[c];
    if (node == NO_COLUMN) continue;
    bit_put(reach_row(l->rows, node), c);
    l->next[c] = l->column_of_node[node];
    l->column_of_node[node] = c;
  }
  if (direction->is_forward)
    reach_spread_forward(l->graph, l->rows);
  else
    reach_spread_backward(l->graph, l->rows);
}

/* The columns that reach all accesses of buffer b; a node does not reach itself. */
static void reached(const struct lifetimes *l, const struct direction *direction, uint32_t b, uint64_t *bits) {
  memset(bits, 0xff, REACH_WORDS * sizeof *bits);
  for (uint32_t i = direction->other_begin[b]; i < direction->other_begin[b + 1]; i++) {
    uint32_t node = direction->other_nodes[i];
    const uint64_t *row = reach_row(l->rows, node);
    for (int w = 0; w < REACH_WORDS; w++) bits[w] &= row[w];
    for (uint32_t c = l->column_of_node[node]; c != NO_COLUMN; c = l->next[c]) bit_drop(bits, c);
  }
}

/* The number of a buffer's first column is the buffer's index in the batch, so whole words of bits are copied. */
static void ask_of_all(struct lifetimes *l, const struct direction *direction, const uint32_t *batch, uint32_t count,
                       uint64_t *ordered) {
  struct columns columns = {.count = count};
  for (uint32_t x = 0; x < count; x++) {
    uint32_t begin = direction->batch_begin[batch[x]];
    bool is_touched = begin < direction->batch_begin[batch[x] + 1];
    columns.node[x] = is_touched ? direction->batch_nodes[begin] : NO_COLUMN;
  }
  spread(l, &columns, direction);
  for (uint32_t b = 0; b < l->buffer_count; b++) reached(l, direction, b, reach_row(ordered, b));
}

/* The columns of buffers beyond the first of each. Those of one buffer lie together. */
struct more_columns {
  struct columns columns;
  uint64_t owners[REACH_WORDS]; /* by place in the batch, as begin and end are */
  uint32_t begin[REACH_COLUMNS], end[REACH_COLUMNS];
};

static void add_column(struct more_columns *more, uint32_t node, uint32_t owner) {
  uint32_t column = more->columns.count++;
  more->columns.node[column] = node;
  if (!bit_get(more->owners, owner)) more->begin[owner] = column;
  more->end[owner] = column + 1;
  bit_put(more->owners, owner);
}

/* A column that does not reach b clears its owner's bit. Most bits are clear already; only the others are examined. */
static void ask_of_more(struct lifetimes *l, const struct direction *direction, struct more_columns *more,
                        uint64_t *ordered) {
  if (!more->columns.count) return;
  spread(l, &more->columns, direction);
  for (uint32_t b = 0; b < l->buffer_count; b++) {
    uint64_t *row = reach_row(ordered, b), bits[REACH_WORDS], any = 0;
    for (uint32_t w = 0; w < REACH_WORDS; w++) any |= row[w] & more->owners[w];
    if (!any) continue;
    reached(l, direction, b, bits);
    for (uint32_t w = 0; w < REACH_WORDS; w++)
      for (uint64_t owners = row[w] & more->owners[w]; owners; owners &= owners - 1) {
        uint32_t owner = w * 64 + (uint32_t)__builtin_ctzll(owners);
        if (!bits_are_set(bits, more->begin[owner], more->end[owner])) bit_drop(row, owner);
      }
  }
  more->columns.count = 0;
  memset(more->owners, 0, sizeof more->owners);
}

static void ask(struct lifetimes *l, const struct direction *direction, const uint32_t *batch, uint32_t count,
                uint64_t *ordered) {
  ask_of_all(l, direction, batch, count, ordered);
  uint64_t open[REACH_WORDS] = {0}; /* of the batch: those whose first column reaches some buffer */
  for (uint32_t b = 0; b < l->buffer_count; b++)
    if (l->begin[b] < l->begin[b + 1]) bits_or(open, reach_row(ordered, b), REACH_WORDS);
  struct more_columns more = {0};
  for (uint32_t x = 0; x < count; x++) {
    if (!bit_get(open, x)) continue;
    for (uint32_t i = direction->batch_begin[batch[x]] + 1; i < direction->batch_begin[batch[x] + 1]; i++) {
      add_column(&more, direction->batch_nodes[i], x);
      if (more.columns.count == REACH_COLUMNS) ask_of_more(l, direction, &more, ordered);
    }
  }
  ask_of_more(l, direction, &more, ordered);
}

/* ---- Conflicts --------------------------------------------------------------------------------------------------- */

/* 64 words of 64 bits, rows to columns (Warren, Hacker's Delight, 7-3). */
static void transpose(uint64_t *words) {
  uint64_t mask = UINT64_C(0x00000000ffffffff);
  for (uint32_t width = 32; width; width >>= 1, mask ^= mask << width)
    for (uint32_t i = 0; i < 64; i = (i + width + 1) & ~width) {
      uint64_t swap = (words[i] >> width ^ words[i + width]) & mask;
      words[i] ^= swap << width;
      words[i + width] ^= swap;
    }
}

static bool is_used(const struct lifetimes *l, uint32_t buffer) {
  return l->bytes[buffer] && l->begin[buffer] < l->begin[buffer + 1];
}

void lifetimes_conflicts(void *lifetimes, const uint32_t *batch, uint32_t batch_count, uint64_t *rows) {
  struct lifetimes *l = lifetimes;
  uint32_t words = bit_row_words(l->buffer_count);
  struct direction forward = {true, l->last_begin, l->last_nodes, l->first_begin, l->first_nodes};
  struct direction backward = {false, l->first_begin, l->first_nodes, l->last_begin, l->last_nodes};
  ask(l, &forward, batch, batch_count, l->ordered);
  ask(l, &backward, batch, batch_count, l->other_ordered);
  for (uint32_t word = 0; word < words; word++)
    for (uint32_t w = 0; w * 64 < batch_count; w++) {
      uint64_t block[64];
      for (uint32_t i = 0; i < 64; i++) {
        uint32_t b = word * 64 + i;
        bool conflicts = b < l->buffer_count && is_used(l, b);
        block[i] = conflicts ? ~(reach_row(l->ordered, b)[w] | reach_row(l->other_ordered, b)[w]) : 0;
      }
      transpose(block);
      for (uint32_t x = w * 64; x < batch_count && x < w * 64 + 64; x++)
        rows[(uint64_t)x * words + word] = is_used(l, batch[x]) ? block[x - w * 64] : 0;
    }
  for (uint32_t x = 0; x < batch_count; x++) bit_drop(rows + (uint64_t)x * words, batch[x]);
}

/* ---- The bound --------------------------------------------------------------------------------------------------- */

static void put_accesses(const struct lifetimes *l, const uint32_t *begin, const uint32_t *nodes, uint32_t first,
                         uint32_t last, uint64_t *rows) {
  memset(rows, 0, reach_rows_bytes(l->graph->node_count));
  for (uint32_t b = first; b < last; b++)
    for (uint32_t i = begin[b]; i < begin[b + 1]; i++) bit_put(reach_row(rows, nodes[i]), b - first);
}

uint64_t lifetimes_bound(struct lifetimes *l) {
  uint32_t nodes = l->graph->node_count;
  uint64_t bound = 0;
  memset(l->live, 0, nodes * sizeof *l->live);
  for (uint32_t first = 0; first < l->buffer_count; first += REACH_COLUMNS) {
    uint32_t last = l->buffer_count - first < REACH_COLUMNS ? l->buffer_count : first + REACH_COLUMNS;
    put_accesses(l, l->first_begin, l->first_nodes, first, last, l->rows);
    put_accesses(l, l->last_begin, l->last_nodes, first, last, l->other_rows);
    reach_spread_forward(l->graph, l->rows);
    reach_spread_backward(l->graph, l->other_rows);
    for (uint32_t n = 0; n < nodes; n++)
      for (uint32_t w = 0; w < REACH_WORDS; w++)
        for (uint64_t bits = reach_row(l->rows, n)[w] & reach_row(l->other_rows, n)[w]; bits; bits &= bits - 1)
          l->live[n] += l->bytes[first + w * 64 + (uint32_t)__builtin_ctzll(bits)];
  }
  for (uint32_t n = 0; n < nodes; n++)
    if (l->live[n] > bound) bound = l->live[n];
  return bound;
}
