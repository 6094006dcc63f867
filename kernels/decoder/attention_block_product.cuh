/* attention_block_product.cuh - the two products of attention_block.cu with one vector, on tensor cores.
 *
 * Operand A of mma.m16n8k16 is 16 rows of weights. Two columns of operand B are the vector: its 16-bit numbers, and the
 * remainders of their rounding, so that sums are nearly those of fp32. The order of k within a lane is free if A and B
 * have the same: a lane multiplies its own loads, 16 bytes of two rows, in NVFP4 8 bytes.
 *
 * All weights of a block lie in shared memory and are requested before the wait. Tiles of 16 rows and pieces of their
 * columns are dealt to the warps, whose sums meet in shared memory. */
#pragma once

#include "../gemv/gemv_formats.cuh"
#include "attention_block_shared.cuh"

/* A block's part of a matrix: the two rows of a lane (pair g) of its tiles, and those whose scales it copies. */
struct weight_rows {
  uint32_t low, high;
};

/* Requests all chunks of the warp. `rows_of(tile, pair)` returns the rows of a pair of a tile; their numbers begin at
 * `column` of `columns`. */
template <typename Size, typename Rows>
DEVICE void ask_weights(const kv_head_place &b, const attention_block_share &share, const void *matrix,
                        const void *scales, uint32_t columns, uint32_t column, uint32_t slots, const Rows &rows_of) {
  constexpr uint32_t bytes = ATTENTION_BLOCK_CHUNK_BYTES(Size::weights);
  rolled_for (uint32_t unit = b.warp; unit < share.tiles * share.cuts; unit += Size::warps) {
    const uint32_t cut = unit / share.tiles, mine = unit - cut * share.tiles, tile = mine * Size::cluster + b.rank;
    if (tile >= share.all_tiles) continue;
    const weight_rows rows = rows_of(tile, b.g);
    const uint64_t low_at = (uint64_t)rows.low * columns + column, high_at = (uint64_t)rows.high * columns + column;
    const unsigned char *weights = (const unsigned char *)matrix;
    rolled_for (uint32_t chunk = cut; chunk < share.chunks; chunk += share.cuts) {
      const uint32_t to = slots + (mine * share.chunks + chunk) * bytes;
      if constexpr (Size::weights == RONDO_NVFP4) {
        const weight_rows scaled = rows_of(tile, b.lane % 8);
        const uint32_t at = chunk * 64 + b.t * 16;
        copy_early<8>(to + b.lane * 8, weights + (low_at + at) / 2);
        copy_early<8>(to + 256 + b.lane * 8, weights + (high_at + at) / 2);
        const uint64_t row = b.lane < 8 ? scaled.low : scaled.high;
        if (b.lane < 16)
          copy_early<4>(to + 512 + b.lane * 4,
                        (const unsigned char *)scales + (row * columns + column + chunk * 64) / 16);
      } else {
        const uint32_t at = chunk * 32 + b.t * 8;
        copy_early_16(to + b.lane * 16, weights + (low_at + at) * 2);
        copy_early_16(to + 512 + b.lane * 16, weights + (high_at + at) * 2);
      }
    }
  }
}

/* A scale factor as a pair of bf16, times 2^118. decode_e2m1_bf16 leaves codes times 2^-126, so that a product has the
 * factor 2^-8. Exact: a code has two bits, a scale four. */
DEVICE __nv_bfloat162 block_scale(uint32_t from) {
  return __float2bfloat162_rn(__low2float(half2_of_e4m3(load_byte(from))) * __uint_as_float((127u + 118) << 23));
}

DEVICE void decode_row(uint32_t codes, __nv_bfloat162 scale, uint32_t (&pairs)[4]) {
  decode_e2m1_bf16(codes, pairs);
  unroll<4>([&](int i) { pairs[i] = bits_of(__hmul2(bf162_of(pairs[i]), scale)); });
}

/* c += a chunk: of the weights at `slot`, of the vector at `vector`, the lane's place. */
template <typename Size>
DEVICE void multiply_chunk(const kv_head_place &b, uint32_t slot, uint32_t vector, bool has_vector, float (&c)[2][4]) {
  if constexpr (Size::weights == RONDO_NVFP4) {
    const uint2 low = load_two_words(slot + b.lane * 8), high = load_two_words(slot + 256 + b.lane * 8);
    const __nv_bfloat162 low_scale = block_scale(slot + 512 + b.g * 4 + b.t),
                         high_scale = block_scale(slot + 544 + b.g * 4 + b.t);
    unroll<2>([&](int w) {
      uint4 numbers = {};
      if (has_vector) numbers = load_shared_words_four(vector + w * 16);
      const uint32_t by_lines[4] = {numbers.x, numbers.y, numbers.z, numbers.w};
      uint32_t x[4], first[4], second[4];
      order_as_bf16(by_lines, x);
      decode_row(w ? low.y : low.x, low_scale, first);
      decode_row(w ? high.y : high.x, high_scale, second);
      mma_16x8x16<__nv_bfloat16>(c[0], {first[0], second[0], first[1], second[1]}, x[0], x[1]);
      mma_16x8x16<__nv_bfloat16>(c[1], {first[2], second[2], first[3], second[3]}, x[2], x[3]);
    });
  } else {
    const uint4 low = load_shared_words_four(slot + b.lane * 16),
                high = load_shared_words_four(slot + 512 + b.lane * 16);
    uint4 x = {};
    if (has_vector) x = load_shared_words_four(vector);
    mma_16x8x16<__nv_bfloat16>(c[0], {low.x, high.x, low.y, high.y}, x.x, x.y);
    mma_16x8x16<__nv_bfloat16>(c[1], {low.z, high.z, low.w, high.w}, x.z, x.w);
  }
}

/* The warp's first piece of a tile, computed before the wait, since divisions are slow. */
struct first_unit {
  uint32_t cut, mine;
  DEVICE first_unit(const kv_head_place &b, const attention_block_share &share) {
    cut = b.warp / share.tiles, mine = b.warp - cut * share.tiles;
    keep(cut), keep(mine);
  }
};

/* The warp's sums: of each piece of a tile, eight pairs of rows. */
template <typename Size>
DEVICE void multiply(const attention_block_parameters &p, const kv_head_place &b, const attention_block_share &share,
                     const first_unit &first, uint32_t slots) {
  constexpr uint32_t bytes = ATTENTION_BLOCK_CHUNK_BYTES(Size::weights),
                     chunk_columns = ATTENTION_BLOCK_CHUNK_COLUMNS(Size::weights);
  const bool has_vector = b.g < 2;
  const uint32_t vector = b.shared + p.activations + b.g * p.pitch + b.t * (chunk_columns / 2);
  rolled_for (uint32_t unit = b.warp; unit < share.tiles * share.cuts; unit += Size::warps) {
    const uint32_t cut = unit == b.warp ? first.cut : unit / share.tiles,
                   mine = unit == b.warp ? first.mine : unit - cut * share.tiles;
    if (mine * Size::cluster + b.rank >= share.all_tiles) continue;
    float c[2][4] = {};
    uint32_t slot = slots + (mine * share.chunks + cut) * bytes, from = vector + cut * chunk_columns * 2;
#pragma unroll 2
    for (uint32_t chunk = cut; chunk < share.chunks; chunk += share.cuts) {
      multiply_chunk<Size>(b, slot, from, has_vector, c);
      slot += share.cuts * bytes, from += share.cuts * chunk_columns * 2;
    }
    if (b.t == 0)
      store_two_numbers(b.shared + p.cuts + unit * 64 + b.g * 8,
                        {(c[0][0] + c[1][0]) + (c[0][1] + c[1][1]), (c[0][2] + c[1][2]) + (c[0][3] + c[1][3])});
  }
}

/* Four sums of all pieces, times `factor`: of the first piece at `from`, where each tile has `tile_bytes`. */
DEVICE float4 sum_fours(uint32_t from, const attention_block_share &share, uint32_t tile_bytes, float factor) {
  float4 sum = {};
#pragma unroll 4
  for (uint32_t cut = 0; cut < share.cuts; cut++, from += share.tiles * tile_bytes) {
    const float4 next = load_shared_four(from);
    sum.x += next.x, sum.y += next.y, sum.z += next.z, sum.w += next.w;
  }
  return {sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor};
}

/* Two pairs of a tile: x and z their first rows, y and w their second. Sums of pieces lie at `cuts`. */
DEVICE float4 sum_cuts(uint32_t cuts, const attention_block_share &share, uint32_t tile, uint32_t couple,
                       float factor) {
  return sum_fours(cuts + tile * 64 + couple * 16, share, 64, factor);
}
