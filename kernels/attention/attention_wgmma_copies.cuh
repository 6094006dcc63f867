/* attention_wgmma_copies.cuh - the copying warpgroup of attention_wgmma.cu and attention_wgmma_e4m3.cu: one warp each
 * for Q and K, one for V in 16 bits. Each warp copies as far ahead of the computing warpgroups as it has empty slots.
 */
#pragma once

#include "attention_wgmma_block.cuh"

/* The place in a ring of slots, and the parity that its empty barrier had before. */
template <int Slots> struct ring_writer {
  uint32_t slot = 0, parity = 1;
  DEVICE void advance() {
    if (++slot < Slots) return;
    slot = 0;
    parity ^= 1;
  }
};

/* A slot of Q has its query tile beside it for the computing warpgroup. A batch of NO_TILE ends a pass. */
enum : uint32_t { NO_TILE = 0xffffffffu };

template <typename Size>
DEVICE void copy_query(const attention_wgmma_parameters &p, const shared_layout<Size> &at, const query_tile &tile,
                       uint32_t slot, uint32_t parity) {
  const uint64_t policy = read_once_policy();
  rolled_for (uint32_t w = 0; w < Size::warpgroups; w++) {
    const uint32_t i = slot * Size::warpgroups + w, full = at.query_full + 8 * i, to = at.query + i * Size::query_bytes;
    const int row = tile.row_begin + (int)w * 64, head = (int)tile.head;
    const int batch = (int)(Size::general ? tile.batch & p.batch_bits : tile.batch);
    barrier_wait(at.query_empty + 8 * i, parity);
    if (!elected()) continue;
    store_four_words(at.tile + 32 * i, make_uint4(tile.batch, tile.head, (uint32_t)tile.row_begin, tile.length));
    store_word(at.tile + 32 * i + 16, tile.number);
    if (tile.batch == NO_TILE) {
      barrier_arrive(full);
      continue;
    }
    barrier_expect(full, Size::query_bytes);
    only_wait_for_predecessors(); /* here, when its instructions before the first copy are done */
    if constexpr (Size::panels == 1)
      tensor_copy(to, &p.q, 0, row, head, batch, full, policy);
    else
      tensor_copy(to, &p.q, 0, row, head, batch, 0, full, policy);
  }
}

/* Copies KV rows from `row` on. Blocks that share copies have a share each: panels if there are several, else rows. */
template <typename Size>
DEVICE void copy_rows(const void *map, uint32_t to, int row, int head, int batch, uint32_t rank, uint32_t barrier,
                      uint64_t policy) {
  const uint32_t share = to + rank * (Size::kv_bytes / 2);
  if constexpr (Size::shares_copies && Size::panels == 4)
    tensor_copy_to(3, share, map, 0, row, head, batch, (int)rank * 2, barrier, policy);
  else if constexpr (Size::shares_copies && Size::panels == 2)
    tensor_copy_to(3, share, map, (int)rank * 64, row, head, batch, barrier, policy);
  else if constexpr (Size::shares_copies)
    tensor_copy_to(3, share, map, 0, row + (int)rank * (Size::tile / 2), head, batch, barrier, policy);
  else if constexpr (Size::panels == 1)
    tensor_copy(to, map, 0, row, head, batch, barrier, policy);
  else
    tensor_copy(to, map, 0, row, head, batch, 0, barrier, policy);
}

/* Bits of T whose exponent has all ones: infinities and NaNs. */
template <typename T> constexpr uint32_t special_bits = 0x7f80;
template <> constexpr uint32_t special_bits<__half> = 0x7c00;

/* Rows of the query tile from the first to the last see, in this column, a NaN (kind 0), infinity, or -infinity. A
 * column's word has four bytes: the first row that sees one of a kind; 255: none. With a window also the last rows see
 * it no more, and the column has a bit for each kind and row. */
template <typename Size> DEVICE void note(uint32_t columns, uint32_t column, uint32_t kind, int first, int last) {
  const uint32_t address = columns + column * Size::column_bytes;
  if constexpr (Size::general) {
    rolled_for (int w = 0; w < Size::rows / 32; w++) {
      const int begin = max(first - 32 * w, 0), end = min(last - 32 * w, 31);
      if (begin <= end) or_shared(address + (kind * (Size::rows / 32) + w) * 4, ~0u >> (31 - end) & ~0u << begin);
    }
  } else {
    const uint32_t known = load_word(address), seen = ~(0xffu << 8 * kind) | min(max(first, 0), 255) << 8 * kind;
    store_word(address, __vminu4(known, seen));
  }
}

/* Takes infinities and NaNs out of eight numbers, of a column each from `column` on. */
template <typename Size> DEVICE uint4 take_out(uint4 eight, uint32_t columns, uint32_t column, int first, int last) {
  constexpr uint32_t special = special_bits<typename Size::type>;
  uint32_t word[4] = {eight.x, eight.y, eight.z, eight.w};
  unroll<8>([&](int i) {
    const uint32_t number = word[i / 2] >> i % 2 * 16 & 0xffff;
    if ((number & special) != special) return;
    const uint32_t kind = (number & ~special & 0x7fff) ? 0 : 1 + (number >> 15);
    note<Size>(columns, column + i, kind, first, last);
    word[i / 2] &= i % 2 ? 0xffffu : 0xffff0000u;
  });
  return make_uint4(word[0], word[1], word[2], word[3]);
}

/* Cleans a slot of V, by a whole warp. Rows beyond the length become zeros, whatever memory holds there. With `all`,
 * infinities and NaNs are taken out of the other rows. */
template <typename Size>
DEVICE void clean(const attention_wgmma_parameters &p, const shared_layout<Size> &at, const query_tile &tile,
                  uint32_t slot, int row, bool all) {
  const uint32_t lane = threadIdx.x % 32;
  /* With a window the last tile ends with the last row that is seen. */
  const int there = Size::general ? Size::tile : min(tile.length - row, Size::tile);
  rolled_for (int panel = 0; panel < Size::panels; panel++) {
    const uint32_t from = slot + panel * (Size::tile * 128);
    /* Four rows at a time, a lane 16 bytes; the swizzle turns the eights of a row by the row's last three bits. Lanes
     * of the same columns take turns. */
    rolled_for (int r = all ? 0 : there & ~3; r < Size::tile; r += 4) {
      const int mine = r + (int)lane / 8;
      const uint32_t address = from + mine * 128 + lane % 8 * 16, eight = (lane ^ mine) % 8;
      if (mine >= there) {
        store_four_words(address, make_uint4(0, 0, 0, 0));
      }
      for (uint32_t turn = 0; all && turn < (Size::general ? 1 : 4); turn++) {
        __syncwarp();
        if (!Size::general && (turn != lane / 8 || mine >= there)) continue;
        const int first = Size::causal ? row + mine - (tile.row_begin + tile.length - causal_length_of<Size>(p)) : 0;
        /* Query rows whose window would reach beyond the capacity see its last rows too. */
        const int last = row + mine < p.capacity - p.window ? first + p.window - 1 : Size::rows;
        store_four_words(address, take_out<Size>(load_four_words(address), at.columns, panel * 64 + eight * 8, first,
                                                 Size::general ? last : 0));
      }
    }
  }
  writes_reach_products();
  __syncwarp();
}

/* The block's KV tiles of a query tile, from the last to the first. */
template <typename Size, bool Values>
DEVICE void copy_kv(const attention_wgmma_parameters &p, const shared_layout<Size> &at, const query_tile &tile,
                    uint32_t rank, uint32_t pass, ring_writer<Size::kv_slots> &ring, uint32_t &landed,
                    uint32_t &parity) {
  const void *map = Values ? &p.v : &p.k;
  const uint32_t to = Values ? at.value : at.key;
  const uint32_t full = Values ? at.value_full : at.key_full, empty = Values ? at.value_empty : at.key_empty;
  const uint64_t policy = read_often_policy();
  const int head = (int)(tile.head / p.group), batch = (int)tile.item;
  const bool all = Values && pass == PASSES - 1;
  if (all) {
    barrier_wait(at.columns_free, parity);
    for (uint32_t i = threadIdx.x % 32; i < Size::dimension * Size::column_bytes / 4; i += 32)
      store_word(at.columns + 4 * i, Size::general ? 0 : 0xffffffffu);
    __syncwarp();
  }
  rolled_for (int j = last_kv_tile_of<Size>(p, tile, rank); j >= 0; j -= Size::parts) {
    int row = j * Size::tile;
    if constexpr (Size::general) row += kv_begin_of<Size>(p, tile);
    const uint32_t slot = to + ring.slot * Size::kv_bytes, barrier = full + 8 * ring.slot;
    const uint32_t landing = ring.slot % Size::landings, landing_barrier = at.value_landed + 8 * landing;
    /* Beyond the capacity copies bring zeros. */
    const bool clean_it =
        Values && (all || (!Size::general && row + Size::tile > tile.length && tile.length < p.capacity));
    barrier_wait(empty + 8 * ring.slot, ring.parity);
    if (elected()) {
      const uint32_t counted = clean_it ? landing_barrier : barrier;
      barrier_expect(counted, Size::kv_bytes);
      only_wait_for_predecessors();
      copy_rows<Size>(map, slot, row, head, batch, rank, counted, policy);
    }
    if constexpr (Values)
      if (clean_it) {
        barrier_wait(landing_barrier, landed >> landing & 1);
        landed ^= 1u << landing;
        clean<Size>(p, at, tile, slot, row, all);
        if (elected()) barrier_arrive(barrier);
      }
    ring.advance();
  }
  if (all) {
    barrier_arrive(at.columns_full);
    parity ^= 1;
  }
}

/* The warp that brings V in 16 bits. */
template <typename Size> struct value_copies {
  const attention_wgmma_parameters &p;
  const shared_layout<Size> &at;
  ring_writer<Size::kv_slots> slots = {};
  uint32_t landed = 0, parity = 0; /* parities of V's landings; of columns_free */

  DEVICE value_copies(const attention_wgmma_parameters &p, const shared_layout<Size> &at, uint32_t) : p(p), at(at) {}
  DEVICE void copy(const query_tile &tile, uint32_t rank, uint32_t pass) {
    copy_kv<Size, true>(p, at, tile, rank, pass, slots, landed, parity);
  }
  DEVICE void finish(uint32_t) {}
};

/* The warpgroup that copies: warp 0 brings K, warp 2 Q, and warp 1, in e4m3 warp 3 too, V by `Values`. */
template <typename Size, typename Values>
DEVICE void copy_tiles(const attention_wgmma_parameters &p, const shared_layout<Size> &at, uint32_t rank,
                       const tile_walk<Size> &first) {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Size::copying_registers));
  const uint32_t warp = uniform(threadIdx.x / 32);
  ring_writer<Size::kv_slots> keys;
  ring_writer<Size::query_slots> query;
  Values values(p, at, warp / 2);
  uint32_t unused = 0;
  rolled_for (uint32_t pass = 0; pass < PASSES; pass++) {
    tile_walk<Size> walk = first;
    query_tile tile;
    while (warp < 2 + Size::value_warps && next_tile(walk, at, pass, tile)) {
      if (warp == 0) {
        copy_kv<Size, false>(p, at, tile, rank, pass, keys, unused, unused);
      } else if (warp % 2) {
        values.copy(tile, rank, pass);
      } else {
        copy_query(p, at, tile, query.slot, query.parity);
        query.advance();
      }
    }
    if (warp % 2) values.finish(pass);
    if (warp == 2) {
      tile.batch = NO_TILE;
      copy_query(p, at, tile, query.slot, query.parity);
      query.advance();
    }
    if (pass == PASSES - 1 || !again(at, pass)) break;
  }
  only_wait_for_predecessors(); /* without a copy */
}
