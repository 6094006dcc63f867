/* attention_decode_append.cuh - new rows of K and V, and the rotary embedding, in attention_decode.cu.
 *
 * Each warp copies all new rows of its KV head beside its queries. There it rotates both, by a table of sines and
 * cosines that it makes as soon as it knows the position, while tiles of KV rows are on their way. A tile that has new
 * rows is copied with old memory in their places; the warp overwrites these places in the ring, and writes the same
 * rows to the cache. A tile belongs to one warp of one block, so each row is written once, and no other warp reads it.
 */
#pragma once

#include "../model/rope.cuh"
#include "attention_decode_copies.cuh"

template <typename T> DEVICE float2 two_of(uint32_t bits);
template <> DEVICE float2 two_of<__half>(uint32_t bits) {
  return __half22float2(*reinterpret_cast<const __half2 *>(&bits));
}
template <> DEVICE float2 two_of<__nv_bfloat16>(uint32_t bits) {
  return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u)};
}

/* The address of a chunk of a row: first come the queries, then the new rows of K, then those of V. */
template <typename Size> DEVICE uint32_t row_chunk(const work<Size> &w, uint32_t row, uint32_t chunk) {
  return w.queries + row * Size::query_bytes + ((chunk ^ row % 8) << 4);
}

template <typename Size> DEVICE void copy_new_rows(const attention_decode_parameters &p, const work<Size> &w) {
  const uint32_t chunk = w.lane % Size::chunks;
  const uint16_t *k =
      static_cast<const uint16_t *>(p.new_k) + offset_of(p.new_k_stride, w.batch, w.kv_head) + chunk * 8;
  const uint16_t *v =
      static_cast<const uint16_t *>(p.new_v) + offset_of(p.new_v_stride, w.batch, w.kv_head) + chunk * 8;
  rolled_for (uint32_t i = w.lane / Size::chunks; i < p.query_length; i += Size::rows_at_once) {
    copy_16(row_chunk(w, p.rows + i, chunk), k + (uint64_t)i * p.new_k_stride.position);
    copy_16(row_chunk(w, p.rows + p.query_length + i, chunk), v + (uint64_t)i * p.new_v_stride.position);
  }
}

/* Radians a position of the lane's pairs, lane + 32 i. Those of a base are computed before the kernel waits. */
template <typename Size> struct lane_frequencies {
  float of[Size::dimension / 64];

  DEVICE explicit lane_frequencies(const attention_decode_parameters &p) {
    if constexpr (Size::appends)
      if (p.rotates)
        unroll<Size::dimension / 64>(
            [&](int i) { of[i] = (float)exp2((double)(threadIdx.x % 32 + 32 * i) * p.frequency_step); });
  }
  /* Given frequencies, after the wait. */
  DEVICE void load(const attention_decode_parameters &p) {
    if constexpr (Size::appends)
      if (p.frequencies) unroll<Size::dimension / 64>([&](int i) { of[i] = p.frequencies[threadIdx.x % 32 + 32 * i]; });
  }
};

/* Cosines and sines, after the new rows. Row i of the table is that of position + i. */
template <typename Size> DEVICE uint32_t table_of(const attention_decode_parameters &p, const work<Size> &w) {
  return w.queries + (p.rows + 2 * p.query_length) * Size::query_bytes;
}

template <typename Size>
DEVICE void make_table(const attention_decode_parameters &p, const work<Size> &w,
                       const lane_frequencies<Size> &frequencies, int32_t position) {
  rolled_for (uint32_t row = 0; row < p.query_length; row++)
    unrolled_for (int i = 0; i < Size::dimension / 64; i++) {
      const rotation by = rotation_of((float)((int64_t)position + row) * frequencies.of[i]);
      store_two_numbers(table_of(p, w) + (row * (Size::dimension / 2) + w.lane + 32 * i) * sizeof(float2),
                        {by.cosine, by.sine});
    }
}

/* Rotates queries and new keys in shared memory. */
template <typename Size> DEVICE void rotate_rows(const attention_decode_parameters &p, const work<Size> &w) {
  constexpr uint32_t pairs = Size::dimension / 2, units = Size::dimension / 16;
  const uint32_t table = table_of(p, w);
  /* A lane has two chunks, and so eight pairs, of a row. */
  rolled_for (uint32_t i = w.lane; i < (p.rows + p.query_length) * units; i += 32) {
    const uint32_t row = i / units, unit = i % units,
                   position = row < p.rows ? place_of(p, row).position : row - p.rows;
    const uint32_t low_at = row_chunk(w, row, p.by_halves ? unit : 2 * unit),
                   high_at = row_chunk(w, row, p.by_halves ? unit + units : 2 * unit + 1);
    const uint4 low = load_four_words(low_at), high = load_four_words(high_at);
    const uint32_t by_lines[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    uint32_t rotated[8];
    unrolled_for (int j = 0; j < 8; j++) {
      const uint32_t by_columns = __byte_perm(by_lines[j / 2], by_lines[j / 2 + 4], j % 2 ? 0x7632 : 0x5410);
      float2 two = two_of<typename Size::type>(p.by_halves ? by_columns : by_lines[j]);
      const float2 by = load_shared_two(table + (position * pairs + 8 * unit + j) * sizeof(float2));
      rotate_pair({by.y, by.x}, two.x, two.y);
      rotated[j] = pack_two<typename Size::type>(two.x, two.y);
    }
    uint4 both[2];
    uint32_t *words = &both[0].x;
    unrolled_for (int j = 0; j < 8; j++)
      words[j] =
          p.by_halves ? __byte_perm(rotated[j % 4 * 2], rotated[j % 4 * 2 + 1], j < 4 ? 0x5410 : 0x7632) : rotated[j];
    store_four_words(low_at, both[0]);
    store_four_words(high_at, both[1]);
  }
  __syncwarp();
}

/* Writes the new rows of a tile to the ring and to the cache. The tile's rows lie in one page. */
template <typename Size>
DEVICE void place_new_rows(const attention_decode_parameters &p, const work<Size> &w, int32_t position, uint32_t length,
                           uint32_t tile, uint32_t stage) {
  const int32_t begin = max(position, (int32_t)tile), end = min((int32_t)length, (int32_t)tile + DECODE_TILE);
  uint32_t page = w.batch;
  if (p.kv_pages) page = (uint32_t)p.kv_pages[(uint64_t)w.batch * p.pages_stride + (tile >> p.page_shift)];
  uint16_t *k = static_cast<uint16_t *>(const_cast<void *>(p.k)) + offset_of(p.k_stride, page, w.kv_head);
  uint16_t *v = static_cast<uint16_t *>(const_cast<void *>(p.v)) + offset_of(p.v_stride, page, w.kv_head);
  const uint32_t chunk = w.lane % Size::chunks;
  rolled_for (int32_t i = begin + (int32_t)(w.lane / Size::chunks); i < end; i += Size::rows_at_once) {
    const uint32_t row = p.rows + (uint32_t)(i - position), in_tile = (uint32_t)i - tile;
    const uint4 key = load_four_words(row_chunk(w, row, chunk)),
                value = load_four_words(row_chunk(w, row + p.query_length, chunk));
    const uint32_t to = w.ring + stage + in_tile * Size::row_bytes + ((chunk ^ Size::permuted(in_tile)) << 4);
    store_four_words(to, key);
    store_four_words(to + Size::tile_bytes, value);
    const uint32_t in_page = Size::general ? (uint32_t)i & ((1u << p.page_shift) - 1) : (uint32_t)i;
    *reinterpret_cast<uint4 *>(k + (uint64_t)in_page * p.k_stride.position + chunk * 8) = key;
    *reinterpret_cast<uint4 *>(v + (uint64_t)in_page * p.v_stride.position + chunk * 8) = value;
  }
  __syncwarp();
}
