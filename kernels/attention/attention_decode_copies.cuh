/* attention_decode_copies.cuh - copies of a warp of attention_decode.cu: query rows to registers, and tiles of K and V
 * to its ring. */
#pragma once

#include "attention_decode_tile.cuh"

/* ---- Queries ----------------------------------------------------------------------------------------------------- */

template <typename Size> DEVICE void copy_queries(const attention_decode_parameters &p, const work<Size> &w) {
  constexpr int chunks = Size::query_bytes / 16, rows_at_once = 32 / chunks;
  const uint32_t first = w.lane / chunks, chunk = w.lane % chunks;
  const uint16_t *from =
      static_cast<const uint16_t *>(p.q) + offset_of(p.q_stride, w.batch, w.kv_head * p.group) + chunk * 8;
  unrolled_for (int i = 0; i < 8 * Size::operands / rows_at_once; i++) {
    const uint32_t row = first + i * rows_at_once;
    const query_place at = place_of(p, row);
    if (row < p.rows)
      copy_16(w.queries + row * Size::query_bytes + ((chunk ^ row % 8) << 4),
              from + offset_of({0, p.q_stride.head, p.q_stride.position}, 0, at.head) +
                  (uint64_t)at.position * p.q_stride.position);
  }
}

template <typename Size>
DEVICE void load_queries(const attention_decode_parameters &p, const work<Size> &w, query_fragments<Size> &q) {
  unrolled_for (int n = 0; n < Size::operands; n++) {
    const uint32_t row = min(8 * n + w.lane % 8, p.rows - 1), from = w.queries + row * Size::query_bytes;
    unrolled_for (int two = 0; two < Size::dimension / 32; two++) {
      uint32_t b[4];
      ldmatrix_x4(b, from + (((4 * two + w.lane / 8) ^ row % 8) << 4));
      q[n][2 * two][0] = b[0], q[n][2 * two][1] = b[1];
      q[n][2 * two + 1][0] = b[2], q[n][2 * two + 1][1] = b[3];
    }
  }
}

/* bf16 to f16: multiplies the row by a power of two that makes its largest number about 2^14. Numbers from 2^-28 of the
 * largest on stay exact. Returns the factor that undoes it. */
template <int Steps> DEVICE float narrow_query(uint32_t (&q)[Steps][2]) {
  uint32_t most = 0; /* of the magnitudes' bits: they are in the order of the numbers */
  unroll<Steps, 2>([&](int step, int i) { most = max(most, max(q[step][i] & 0x7fff, q[step][i] >> 16 & 0x7fff)); });
  most = max(most, __shfl_xor_sync(0xffffffffu, most, 1));
  most = max(most, __shfl_xor_sync(0xffffffffu, most, 2));
  const uint32_t exponent = max(most >> 7, 15u);
  const float factor = __uint_as_float((127 + 14 + 127 - exponent) << 23);
  unroll<Steps, 2>([&](int step, int i) {
    q[step][i] = pack_two<__half>(__uint_as_float(q[step][i] << 16) * factor,
                                  __uint_as_float(q[step][i] & 0xffff0000u) * factor);
  });
  return __uint_as_float((exponent - 14) << 23);
}

/* The same for e4m3 keys. In step c, columns 16 c + 4 t and + 1 of a row take the place of 2 t and + 1, and the next
 * two that of 2 t + 8 and + 9; load_keys_e4m3 does the same. Scores are multiplied by `scale`. */
template <typename Size>
DEVICE void load_queries_e4m3(const attention_decode_parameters &p, const work<Size> &w, query_fragments<Size> &q,
                              of_rows<Size> &scale) {
  unroll<Size::operands>([&](int n) {
    const uint32_t row = min(8 * n + w.g, p.rows - 1), from = w.queries + row * Size::query_bytes + w.t % 2 * 8;
    unroll<Size::dimension / 16>([&](int step) {
      const uint2 two = load_two_words(from + (((2 * step + w.t / 2) ^ row % 8) << 4));
      q[n][step][0] = two.x, q[n][step][1] = two.y;
    });
    float undo = 1.0f;
    if (p.bf16) undo = narrow_query(q[n]);
    unroll<2>([&](int i) { scale[n][i] = p.scale_log2 * __shfl_sync(0xffffffffu, undo, (2 * w.t + i) * 4); });
  });
}

/* ---- Tiles of K and V -------------------------------------------------------------------------------------------- */

/* A lane's addresses for the copies of a tile. */
template <typename Size> struct lane_copies {
  const unsigned char *k, *v; /* the lane's chunk of the KV head's first row */
  uint32_t k_row, v_row;      /* bytes */
  uint32_t row, to;           /* the lane's first row of a tile, and its place in the first stage */

  DEVICE lane_copies(const attention_decode_parameters &p, const work<Size> &w, uint32_t batch) {
    const uint32_t chunk = w.lane % Size::chunks;
    row = w.lane / Size::chunks;
    k = (const unsigned char *)p.k + offset_of(p.k_stride, batch, w.kv_head) * Size::number_bytes + chunk * 16;
    v = (const unsigned char *)p.v + offset_of(p.v_stride, batch, w.kv_head) * Size::number_bytes + chunk * 16;
    k_row = p.k_stride.position * Size::number_bytes, v_row = p.v_stride.position * Size::number_bytes;
    to = w.ring + row * Size::row_bytes + ((chunk ^ Size::permuted(row)) << 4);
    k += (uint64_t)row * k_row, v += (uint64_t)row * v_row;
    if (Size::has_registers) keep(k), keep(v), keep(to), keep(row);
  }

  /* A whole tile, which begins with row `first`, by `copy_one`. */
  template <typename Copy>
  DEVICE void copy_whole(const unsigned char *k_page, const unsigned char *v_page, uint32_t first, uint32_t stage,
                         Copy copy_one) const {
    const unsigned char *k_from = k_page + (uint64_t)first * k_row, *v_from = v_page + (uint64_t)first * v_row;
    const uint32_t at = to + stage;
    unrolled_for (int i = 0; i < DECODE_TILE; i += Size::rows_at_once)
      copy_one((at ^ (i % 8 << 4)) + i * Size::row_bytes, k_from + (uint64_t)i * k_row);
    unrolled_for (int i = 0; i < DECODE_TILE; i += Size::rows_at_once)
      copy_one((at ^ (i % 8 << 4)) + i * Size::row_bytes + Size::tile_bytes, v_from + (uint64_t)i * v_row);
  }

  /* A tile that begins with row `first` of the `end` rows of the page. After the last row, that row is repeated. */
  DEVICE void copy(const unsigned char *k_page, const unsigned char *v_page, uint32_t first, uint32_t end,
                   uint32_t stage) const {
    if (first + DECODE_TILE <= end) {
      copy_whole(k_page, v_page, first, stage, copy_16);
    } else {
      const unsigned char *k_from = k_page + (uint64_t)first * k_row, *v_from = v_page + (uint64_t)first * v_row;
      const uint32_t at = to + stage;
      rolled_for (int i = 0; i < DECODE_TILE; i += Size::rows_at_once) {
        const int back = (int)(first + row) + i - (int)(end - 1), here = back > 0 ? i - back : i;
        copy_16((at ^ (i % 8 << 4)) + i * Size::row_bytes, k_from + (int64_t)here * k_row);
        copy_16((at ^ (i % 8 << 4)) + i * Size::row_bytes + Size::tile_bytes, v_from + (int64_t)here * v_row);
      }
    }
  }
};

/* The copying end of a warp's ring. */
template <typename Size, bool General = Size::general> struct source : lane_copies<Size> {
  uint32_t next, part; /* the next tile's first KV row */

  DEVICE source(const attention_decode_parameters &p, const work<Size> &w)
      : lane_copies<Size>(p, w, w.batch), next(w.first_of(w.first_part())), part(w.first_part()) {}

  DEVICE uint32_t start_of(const work<Size> &w, uint32_t part) const { return w.first_of(part); }
  DEVICE bool has(uint32_t) const { return true; }

  /* Asks for the first tile before the wait for the predecessors, which do not write it; false: it is not whole. Rows
   * after the length are read, and not used. */
  DEVICE bool ask_first(const attention_decode_parameters &p, const work<Size> &w) {
    if (next + DECODE_TILE > p.capacity) return false;
    this->copy_whole(this->k, this->v, next, 0, copy_16_early);
    next += w.step();
    cp_async_commit();
    return true;
  }

  /* Asks for the next of the tiles that begin before `end`, if there is one; a group of copies either way. */
  DEVICE void ask(const attention_decode_parameters &, const work<Size> &w, uint32_t end, uint32_t stage) {
    /* If the next part has no tile for this warp, the later parts have none either. */
    if (Size::has_parts && next >= end && part < w.last_part()) next = w.first_of(++part);
    if (next < end) {
      this->copy(this->k, this->v, next, end, stage);
      next += w.step();
    }
    cp_async_commit();
  }
};

/* The same for pools of pages and for windows. Without pages, an item is a page of a pool of items. A warp reads the
 * entries of 32 tiles from the page table at once, lane i that of tile i, and the next 32 while it uses these. */
template <typename Size> struct source<Size, true> : lane_copies<Size> {
  const int32_t *table; /* of the item, or NULL */
  uint32_t next, part;
  uint32_t low;             /* no row sees a KV row before this one */
  uint32_t entries, coming; /* -1: no page */
  uint32_t tile;            /* which of the entries is the next tile's */
  uint32_t missing;         /* of tiles that were asked for, the newest in bit 0: are they of no page? */

  DEVICE source(const attention_decode_parameters &p, const work<Size> &w)
      : lane_copies<Size>(p, w, 0), table(p.kv_pages), part(w.first_part()), low(0), tile(0), missing(0) {
    if (table) table += (uint64_t)w.batch * p.pages_stride;
    next = w.first_of(part);
    entries = coming = w.batch;
    if (table) entries = look(p, w, next, p.capacity);
  }

  /* Before the first tile, if there are pages or a window. `end` is the length, or larger if new rows do not all fit.
   */
  DEVICE void begin(const attention_decode_parameters &p, const work<Size> &w, int end, uint32_t length) {
    const int first_seen = min(end - (int)p.query_length + 1, (int)length) - p.window;
    if (first_seen > 0) {
      low = (uint32_t)first_seen;
      next = start_of(w, part);
      if (table) entries = look(p, w, next, length);
    }
    look_ahead(p, w, length);
  }

  DEVICE uint32_t start_of(const work<Size> &w, uint32_t part) const {
    const uint32_t first = w.first_of(part);
    if (first + DECODE_TILE > low) return first;
    return first + ((low - DECODE_TILE - first) / w.step() + 1) * w.step();
  }

  /* Did the tile that was asked for `ago` tiles ago have a page? */
  DEVICE bool has(uint32_t ago) const { return !(missing >> ago & 1); }

  DEVICE uint32_t look(const attention_decode_parameters &p, const work<Size> &w, uint32_t first, uint32_t end) const {
    const uint64_t at = first + (uint64_t)w.lane * w.step();
    return at < end ? (uint32_t)table[at >> p.page_shift] : 0xffffffffu;
  }

  /* To `coming`: the entries of the next 32 tiles, in this part or in the next one. */
  DEVICE void look_ahead(const attention_decode_parameters &p, const work<Size> &w, uint32_t end) {
    if (!table) return;
    const uint64_t behind = next + (uint64_t)32 * w.step();
    if (behind < end)
      coming = look(p, w, (uint32_t)behind, end);
    else if (Size::cluster == 1 && part < w.last_part())
      coming = look(p, w, start_of(w, part + 1), end);
  }

  DEVICE void turn(const attention_decode_parameters &p, const work<Size> &w, uint32_t end) {
    entries = coming, tile = 0;
    look_ahead(p, w, end);
  }

  DEVICE void ask(const attention_decode_parameters &p, const work<Size> &w, uint32_t end, uint32_t stage) {
    while (Size::cluster == 1 && next >= end && part < w.last_part()) {
      next = start_of(w, ++part);
      turn(p, w, end);
    }
    bool none = false;
    if (next < end) {
      if (tile == 32) turn(p, w, end);
      const uint32_t page = __shfl_sync(0xffffffffu, entries, tile);
      none = page >= p.pool_pages;
      if (!none) {
        const uint32_t first = next & ((1u << p.page_shift) - 1), behind = first + (end - next);
        this->copy(this->k + (uint64_t)page * p.k_stride.batch * Size::number_bytes,
                   this->v + (uint64_t)page * p.v_stride.batch * Size::number_bytes, first, behind, stage);
      }
      next += w.step(), tile++;
    }
    missing = missing << 1 | none;
    cp_async_commit();
  }
};
