/* attention_items.cuh - which item a tile of packed rows belongs to.
 *
 * Tiles do not cross items: an item's last tile may have rows of the items after it, which are not its business. A tile
 * has a place. The tiles of item i have the places from
 *   starts[i] / rows of a tile + i
 * on. Since an item takes at most one place more than its rows fill, places of two items are never the same, and there
 * are at most rows / rows of a tile + items. Places without a tile are empty. So no list of tiles is made. */
#pragma once

#include "../common/device_code.cuh"

struct packed_tile {
  uint32_t item;
  int begin, end; /* of the item's rows */
  int first;      /* of the tile; from end on, if the place is empty */
};

/* By a whole warp. `starts` rises, and has an entry more than there are items. Positions are folded with `group` heads;
 * 1: they are not. */
DEVICE packed_tile packed_tile_at(const int32_t *starts, uint32_t items, uint32_t group, uint32_t tile_rows,
                                  uint32_t place) {
  uint32_t before = 0; /* items whose places begin at this one or before */
  rolled_for (uint32_t first = 0; first == before && first < items; first += 32) {
    const uint32_t i = first + threadIdx.x % 32;
    const bool is_before = i < items && (uint32_t)starts[i] * group / tile_rows + i <= place;
    before += __popc(__ballot_sync(0xffffffffu, is_before));
  }
  const uint32_t item = before ? before - 1 : 0;
  const uint32_t begin = (uint32_t)starts[item] * group, end = (uint32_t)starts[item + 1] * group;
  const uint32_t places_before = begin / tile_rows + item; /* also empty: those before item 0's */
  const uint32_t first = place < places_before ? end : begin + (place - places_before) * tile_rows;
  return {item, (int)begin, (int)end, (int)first};
}
