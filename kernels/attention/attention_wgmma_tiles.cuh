/* attention_wgmma_tiles.cuh - the order in which a block of attention_wgmma.cu takes query tiles, and the KV rows that
 * their rows see.
 *
 * Without a mask clusters take query tiles in turn, head by head, so that tiles at work share K and V in L2. Under the
 * causal mask the last positions see most KV rows. Heads are then dealt in groups whose K and V stay in L2 together.
 * Within a group the last positions of all heads go first, and clusters take turns forwards and backwards: a cluster
 * with a longer tile in one round gets a shorter one in the next. There is no table and no counter to reset. */
#pragma once

#include "../common/launch.cuh"
#include "attention_items.cuh"
#include "attention_wgmma.h"

/* Rows of a query head that a block takes. */
struct query_tile {
  uint32_t batch; /* of packed rows: where the item's rows end */
  uint32_t head;
  int row_begin;
  int length;    /* KV rows there are; or where new rows end, which may be beyond the capacity. Packed: see limit_of */
  uint32_t item; /* of K and V; only the copying warps know it */
  uint32_t number; /* of the block's tiles, from 0 */
};

/* A block's way through its tiles. */
template <typename Size> struct tile_walk {
  const attention_wgmma_parameters &p;
  uint32_t rank;    /* of the block in its cluster */
  int position = 0; /* what p.position is the address of */
  uint32_t number = 0, turn = 0, group = 0, round = 0;
  uint32_t batch = 0, head = 0, row_tile = 0; /* of the next tile */
  bool is_there = false;                      /* is there one? */

  /* Before the first next(): what needs no memory. */
  DEVICE void begin() {
    if (!Size::general || !p.starts) is_there = next_place(batch, head, row_tile);
  }

  DEVICE bool next(query_tile &tile) {
    if constexpr (Size::general)
      if (p.starts) return next_packed(tile);
    if (number) begin();
    if (!is_there) return false;
    tile.batch = batch, tile.head = head;
    tile.row_begin = (int)(Size::parts > 1 ? row_tile : row_tile * Size::cluster + rank) * Size::rows;
    tile.item = tile.batch;
    tile.length = p.capacity;
    if (p.position) {
      tile.length = (int)min(max((int64_t)position + p.query_length, (int64_t)0), (int64_t)p.most_length);
    } else if (p.kv_lengths) {
      only_wait_for_predecessors();
      tile.length = min(max(p.kv_lengths[tile.batch], 0), p.most_length);
    }
    tile.number = number++;
    return true;
  }

  DEVICE bool next_packed(query_tile &tile) {
    uint32_t none, place;
    packed_tile at;
    only_wait_for_predecessors();
    do {
      if (!next_place(none, tile.head, place)) return false;
      at = packed_tile_at(p.starts, p.items, 1, Size::rows, place);
    } while (at.first >= at.end);
    tile.batch = (uint32_t)at.end;
    tile.row_begin = at.first;
    tile.item = at.item;
    tile.length = p.kv_lengths[at.item] - at.end + ATTENTION_WGMMA_PACKED_LENGTH;
    tile.number = number++;
    return true;
  }

  /* False after the last. */
  DEVICE bool next_place(uint32_t &batch, uint32_t &head_of_batch, uint32_t &row_tile) {
    const uint32_t clusters = gridDim.x / Size::cluster, cluster = blockIdx.x / Size::cluster;
    uint32_t head;
    if constexpr (Size::causal) {
      uint32_t index, heads, first_head;
      do {
        first_head = group * p.heads_together;
        if (first_head >= p.heads) return false;
        heads = min(p.heads_together, p.heads - first_head);
        index = round * clusters + (turn % 2 ? clusters - 1 - cluster : cluster);
        turn++;
        if (++round == p.rounds) {
          round = 0;
          group++;
        }
      } while (index >= heads * p.row_tiles);
      const uint32_t from_last = index / heads;
      head = first_head + index - from_last * heads;
      row_tile = p.row_tiles - 1 - from_last;
    } else {
      const uint32_t index = turn++ * clusters + cluster;
      if (index >= p.heads * p.row_tiles) return false;
      head = index / p.row_tiles;
      row_tile = index - head * p.row_tiles;
    }
    batch = head / p.query_heads;
    head_of_batch = head - batch * p.query_heads;
    return true;
  }
};

/* Rows from here on are of other items, and see nothing. Without packed rows there are none. */
template <typename Size> DEVICE int end_of(const attention_wgmma_parameters &p, const query_tile &tile) {
  return Size::general ? (int)(tile.batch | p.batch_bits) : INT32_MAX;
}
/* The last row of the query tile. */
template <typename Size> DEVICE int last_row_of(const attention_wgmma_parameters &p, const query_tile &tile) {
  return min(tile.row_begin + Size::rows, end_of<Size>(p, tile)) - 1;
}

/* How many KV rows a row sees, of those that there are; below 1: none. In a general kernel the parameters say whether
 * there is a causal mask, by a number and not by a branch, for which ptxas has no register left.
 *
 * Of packed rows the number is so large that the difference is below 0 for each row. A tile's length is larger by it,
 * and smaller by the end of the item's rows, which counts from row 0 of all items. */
template <typename Size> DEVICE int causal_length_of(const attention_wgmma_parameters &p) {
  return Size::general ? p.causal_length : p.query_length;
}
template <typename Size> DEVICE int limit_of(const attention_wgmma_parameters &p, const query_tile &tile, int row) {
  if (!Size::causal) return tile.length;
  return min(min(row + 1 - causal_length_of<Size>(p), 0) + tile.length, p.capacity);
}

/* The first of them. */
template <typename Size> DEVICE int begin_of(const attention_wgmma_parameters &p, const query_tile &tile, int row) {
  return Size::general ? max(limit_of<Size>(p, tile, row) - p.window, 0) : 0;
}

/* Tiles of K and V that some row of the query tile sees, and one for rows that see none. */
template <typename Size> DEVICE int kv_tiles_of(const attention_wgmma_parameters &p, const query_tile &tile) {
  int rows = limit_of<Size>(p, tile, last_row_of<Size>(p, tile));
  if constexpr (Size::general) rows -= begin_of<Size>(p, tile, tile.row_begin);
  return max((rows + Size::tile - 1) / Size::tile, 1);
}

/* Of these, the last that the block takes. With two parts it takes every second, but both blocks take an only tile, and
 * then need not exchange anything. */
template <typename Size>
DEVICE int last_kv_tile_of(const attention_wgmma_parameters &p, const query_tile &tile, uint32_t rank) {
  const int tiles = kv_tiles_of<Size>(p, tile);
  return tiles - 1 - (Size::parts > 1 && tiles > 1 ? (int)rank : 0);
}

/* The first row of the first of them. With a window the last ends with the last row that is seen, wherever that is, and
 * the first may begin before row 0: there copies bring zeros, and masks take them for invisible. */
template <typename Size> DEVICE int kv_begin_of(const attention_wgmma_parameters &p, const query_tile &tile) {
  if (!Size::general) return 0;
  const int limit = limit_of<Size>(p, tile, last_row_of<Size>(p, tile));
  return limit - kv_tiles_of<Size>(p, tile) * Size::tile;
}
