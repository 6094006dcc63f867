/* attention_wgmma_e4m3_copies.cuh - the two warps that bring V in e4m3. Each copies half of every KV tile and
 * transposes it, since products of e4m3 reduce only contiguous numbers. */
#pragma once

#include "attention_wgmma_copies.cuh"

/* Half of a KV tile of V, under way to a landing. */
struct value_part {
  int there;         /* rows that there are */
  int first;         /* the row of the query tile that sees the first one */
  bool begins, ends; /* the first, or last, of its query tile */
};

/* Rows that there are not become zeros, whatever memory holds there. Where `all`, NaNs become zeros too, and a column's
 * word tells the first row of the query tile that sees one. */
template <typename Size> DEVICE void clean_part(uint32_t from, const value_part &part, uint32_t columns, bool all) {
  const uint32_t lane = threadIdx.x % 32;
  /* Four rows at a time, a lane 16 numbers. */
  rolled_for (int r = all ? 0 : max(part.there, 0) & ~3; r < Size::part; r += 4) {
    const int mine = r + (int)lane / 8;
    const uint32_t address = from + mine * 128 + lane % 8 * 16, column = (lane ^ mine) % 8 * 16;
    if (mine >= part.there) store_four_words(address, make_uint4(0, 0, 0, 0));
    if (!all || mine >= part.there) continue;
    const uint4 sixteen = load_four_words(address);
    uint32_t word[4] = {sixteen.x, sixteen.y, sixteen.z, sixteen.w};
    const uint32_t first_row = Size::causal ? (uint32_t)min(max(part.first + mine, 0), 255) : 0;
    unroll<16>([&](int i) {
      if ((word[i / 4] >> i % 4 * 8 & 0x7f) != 0x7f) return;
      asm volatile("red.shared.min.u32 [%0], %1;" ::"r"(columns + 4 * (column + i)), "r"(first_row) : "memory");
      word[i / 4] &= ~(0xffu << i % 4 * 8);
    });
    store_four_words(address, make_uint4(word[0], word[1], word[2], word[3]));
  }
  __syncwarp();
}

/* From a landing to columns [half * part, ..) of a slot of V^T.
 *
 * Of 16 KV rows, V^T has them in the order in which weights lie in the registers of the score's product (wgmma.cuh):
 * four times 2 quad, 2 quad + 1, 8 + 2 quad, 8 + 2 quad + 1. That is how ldmatrix, for numbers of two bytes, gives
 * them: two registers have columns 2 c and 2 c + 1 of these four rows. The new registers of two columns are exchanged
 * in half of the lanes, so that the eight rows of a matrix that is stored lie in different banks. */
template <typename Size> DEVICE void transpose_part(uint32_t from, uint32_t to, uint32_t half) {
  const uint32_t lane = threadIdx.x % 32, matrix = lane / 8, i = lane % 8;
  const uint32_t load = (matrix % 2 * 8 + i) * 128, load_chunk = (matrix / 2 ^ i) * 16;
  const uint32_t column = matrix / 2 * 16 + 2 * i + (matrix % 2 ^ i / 4);
  const uint32_t store = column * 128 + column % 8 * 16;
  const uint32_t select_first = lane / 4 < 4 ? 0x6420 : 0x7531, select_second = select_first ^ 0x1111;
  rolled_for (uint32_t rows = 0; rows < Size::part; rows += 16) {
    const uint32_t here = from + rows * 128 + load, there = to + (store ^ (half * Size::part + rows));
    unrolled_for (uint32_t c = 0; c < Size::dimension / 32; c += 2) {
      uint32_t r[2][4];
      unroll<2>([&](uint32_t k) { ldmatrix_x4_transposed(r[k], here + (load_chunk ^ (c + k) * 32)); });
      unroll<2>([&](uint32_t k) {
        stmatrix_x4(there + (c + k) * (32 * 128), __byte_perm(r[k][0], r[k][1], select_first),
                    __byte_perm(r[k][0], r[k][1], select_second), __byte_perm(r[k][2], r[k][3], select_first),
                    __byte_perm(r[k][2], r[k][3], select_second));
      });
    }
  }
}

/* What one of V's two warps knows between KV tiles: a part is on its way while the one before is transposed. */
template <typename Size> struct value_transposer {
  const attention_wgmma_parameters &p;
  const shared_layout<Size> &at;
  const uint32_t half;
  ring_writer<Size::kv_slots> slots = {};
  value_part part = {};
  uint32_t begun = 0, ended = 0; /* parts */
  uint32_t parity = 0;           /* of columns_free */

  DEVICE value_transposer(const attention_wgmma_parameters &p, const shared_layout<Size> &at, uint32_t half)
      : p(p), at(at), half(half) {}

  /* Transposes the part that is under way, if there is one. */
  DEVICE void finish(uint32_t pass) {
    if (begun == ended) return;
    const bool all = pass == PASSES - 1;
    const uint32_t landing = half * 2 + ended % 2, from = at.landing + landing * Size::landing_bytes;
    const uint32_t columns = at.columns + half * (4 * Size::dimension);
    if (all && part.begins) {
      barrier_wait(at.columns_free, parity);
      parity ^= 1;
      for (uint32_t i = threadIdx.x % 32; i < Size::dimension; i += 32) store_word(columns + 4 * i, 255);
      __syncwarp();
    }
    barrier_wait(at.value_landed + 8 * landing, ended / 2 & 1);
    if (all || part.there < Size::part) clean_part<Size>(from, part, columns, all);
    barrier_wait(at.value_empty + 8 * slots.slot, slots.parity);
    transpose_part<Size>(from, at.value + slots.slot * Size::value_bytes, half);
    writes_reach_products();
    __syncwarp();
    if (elected()) barrier_arrive(at.value_full + 8 * slots.slot);
    slots.advance();
    if (all && part.ends) barrier_arrive(at.columns_full);
    ended++;
  }

  DEVICE void copy(const query_tile &tile, uint32_t, uint32_t pass) {
    const uint64_t policy = read_often_policy();
    const int tiles = kv_tiles_of<Size>(p, tile);
    rolled_for (int j = tiles - 1; j >= 0; j--) {
      const int row = j * Size::tile + (int)half * Size::part;
      const uint32_t landing = half * 2 + begun % 2, barrier = at.value_landed + 8 * landing;
      if (elected()) {
        barrier_expect(barrier, Size::landing_bytes);
        only_wait_for_predecessors();
        tensor_copy(at.landing + landing * Size::landing_bytes, &p.v, 0, row, (int)(tile.head / p.group),
                    (int)tile.batch, barrier, policy);
      }
      finish(pass);
      begun++;
      /* Beyond the capacity copies bring zeros. */
      part.there = tile.length < p.capacity ? tile.length - row : Size::part;
      part.first = row - (tile.row_begin + tile.length - p.query_length);
      part.begins = j == tiles - 1;
      part.ends = j == 0;
    }
  }
};
