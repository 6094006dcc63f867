/* feed_forward_registers.cuh - a layer's weights in registers before the wait: fragments of operand A of mma.m16n8k16,
 * and functions that keep the compiler from computing fragments and addresses again after the wait. */
#pragma once

#include "../gemv/gemv_operands.cuh"
#include "decoder_shared.cuh"
#include "feed_forward_known.h"

/* A line of the lists in feed_forward_known.h. */
template <rondo_dtype W, int Hidden, int Columns, int FirstCuts, int SecondCuts> struct sizes {
  static constexpr rondo_dtype weights = W;
  static constexpr uint32_t cluster = LAYER_HALF_CLUSTER, hidden = Hidden, columns = Columns,
                            own = Columns / FEED_FORWARD_KNOWN_PARTS;
  static constexpr uint32_t own_of_block = own / cluster;                           /* gated columns */
  static constexpr uint32_t first_tiles = own_of_block / 8, first_cuts = FirstCuts; /* of a block */
  static constexpr uint32_t second_all = Hidden / LAYER_HALF_TILE, second_cuts = SecondCuts;
  static constexpr uint32_t second_tiles = (second_all + cluster - 1) / cluster;
  static constexpr uint32_t first_chunks = Hidden / FEED_FORWARD_KNOWN_CHUNK / FirstCuts; /* of a warp */
  static constexpr uint32_t second_chunks = own / FEED_FORWARD_KNOWN_CHUNK / SecondCuts;
  static constexpr uint32_t warps = first_tiles * FirstCuts, threads = 32 * warps, padded_warps = (warps + 3) / 4 * 4;
  static constexpr uint32_t padding = 32;        /* rounded numbers and remainders lie in different banks */
  static constexpr bool alike = W == RONDO_BF16; /* the bits of one token and of several are the same */
  static constexpr float factor = W == RONDO_NVFP4 ? 1.0f / nvfp4_factor_bf16 : 1.0f;
  static_assert(Columns % (FEED_FORWARD_KNOWN_PARTS * LAYER_HALF_CLUSTER * 8) == 0 &&
                    own % (FEED_FORWARD_KNOWN_CHUNK * SecondCuts) == 0,
                "");
  static_assert(Hidden % (FEED_FORWARD_KNOWN_CHUNK * FirstCuts) == 0 && Hidden <= threads &&
                    second_tiles * SecondCuts <= warps,
                "");
  static_assert(Hidden * 2 % 128 == 0 && own * 2 % 128 == 0 && own_of_block <= 32 && own_of_block % 2 == 0, "");
};

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

DEVICE uint32_t load_early(const unsigned char *address) {
  uint32_t loaded;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" EARLY : "=r"(loaded) : "l"(address));
  return loaded;
}
DEVICE uint32_t load_early_16(const uint16_t *address) {
  uint32_t loaded;
  asm volatile("ld.global.nc.u16 %0, [%1];" EARLY : "=r"(loaded) : "l"(address));
  return loaded;
}
DEVICE uint32_t load_early_byte(const unsigned char *address) {
  uint32_t loaded;
  asm volatile("ld.global.nc.u8 %0, [%1];" EARLY : "=r"(loaded) : "l"(address));
  return loaded;
}
/* Eight numbers of a row. */
template <rondo_dtype W> struct eight;
template <> struct eight<RONDO_BF16> {
  words loaded;
  DEVICE void load(const void *codes, const void *, uint32_t element) {
    loaded = load_weights((const unsigned char *)codes + element * 2);
  }
  DEVICE void decode(uint32_t always_zero, uint32_t (&out)[4]) const {
    unroll<4>([&](int i) { out[i] = loaded.word[i] ^ always_zero; });
  }
};
template <> struct eight<RONDO_NVFP4> {
  uint32_t loaded, scale;
  DEVICE void load(const void *codes, const void *scales, uint32_t element) {
    loaded = load_early((const unsigned char *)codes + element / 2);
    scale = load_early_byte((const unsigned char *)scales + element / 16);
  }
  DEVICE void decode(uint32_t, uint32_t (&out)[4]) const {
    words one = {{loaded, 0, 0, 0}};
    uint32_t pairs[4]; /* (0, 4) (1, 5) (2, 6) (3, 7) */
    decode_eight<RONDO_NVFP4, true>(one, 0, block_scales_bf16(scale), pairs);
    unroll<4>([&](int i) { out[i] = permute(pairs[i % 2 * 2], pairs[i % 2 * 2 + 1], i < 2 ? 0x5410 : 0x7632); });
  }
};

/* A lane's rows g and g + 8 of a tile, `Chunks` chunks of them. */
template <typename Size, int Chunks> struct fragments {
  uint32_t a[Chunks][2][4];

  DEVICE void load(const void *codes, const void *row_scales, uint32_t row, uint32_t columns, uint32_t first,
                   uint32_t always_zero) {
    eight<Size::weights> raw[Chunks][2];
    unroll<Chunks, 2>([&](int i, int h) {
      raw[i][h].load(codes, row_scales, (row + 8 * h) * columns + first + i * FEED_FORWARD_KNOWN_CHUNK);
    });
    unroll<Chunks, 2>([&](int i, int h) { raw[i][h].decode(always_zero, a[i][h]); });
  }
  DEVICE uint32_t all() const {
    uint32_t all = 0;
    unroll<Chunks, 2, 4>([&](int i, int h, int j) { all ^= a[i][h][j]; });
    return all;
  }
  /* Times columns of operand B, of which a lane has eight numbers a chunk at `numbers`, and of the next eight columns
   * at `numbers_8`: the accumulators of mma.m16n8k16. */
  template <int Operands>
  DEVICE void multiply_columns(uint32_t numbers, uint32_t numbers_8, float (&sum)[Operands][4]) const {
    float c[2][Operands][4] = {};
    unroll<Chunks, Operands>([&](int i, int o) {
      const words b = load_shared_words((o ? numbers_8 : numbers) + i * (FEED_FORWARD_KNOWN_CHUNK * 2));
      multiply_accumulate<true>(c[0][o], a[i][0], a[i][1], b.word);
      multiply_accumulate<true>(c[1][o], a[i][0] + 2, a[i][1] + 2, b.word + 2);
    });
    unroll<Operands, 4>([&](int o, int i) { sum[o][i] = c[0][o][i] + c[1][o][i]; });
  }
  /* Times a column's numbers, 8 to a lane: the sums of rows g and g + 8, in every lane of a quad. */
  DEVICE float2 multiply(uint32_t numbers) const {
    float c[2][4] = {};
    words b[Chunks];
    unroll<Chunks>([&](int i) { b[i] = load_shared_words(numbers + i * (FEED_FORWARD_KNOWN_CHUNK * 2)); });
    unroll<Chunks>([&](int i) {
      multiply_accumulate<true>(c[0], a[i][0], a[i][1], b[i].word);
      multiply_accumulate<true>(c[1], a[i][0] + 2, a[i][1] + 2, b[i].word + 2);
    });
    return {(c[0][0] + c[1][0]) + (c[0][1] + c[1][1]), (c[0][2] + c[1][2]) + (c[0][3] + c[1][3])};
  }
};

struct thread_place {
  const uint32_t thread = threadIdx.x, lane = thread % 32, warp = thread / 32, g = lane / 4, t = lane % 4;
  const uint32_t rank = blockIdx.x % LAYER_HALF_CLUSTER, cluster = blockIdx.x / LAYER_HALF_CLUSTER;
};

/* A warp's tile of each product and its cut of k: operand A's rows, and a lane's first numbers of them. */
template <typename Size> struct warp_share : thread_place {
  const uint32_t first_tile = warp / Size::first_cuts, first_cut = warp % Size::first_cuts;
  const uint32_t first_element = first_cut * (Size::first_chunks * FEED_FORWARD_KNOWN_CHUNK) + t * 8;
  const uint32_t second_cut = warp / Size::second_tiles, in_block = warp % Size::second_tiles;
  const uint32_t second_tile = rank + in_block * Size::cluster; /* of all; in_block: of the block */
  const uint32_t second_element = second_cut * (Size::second_chunks * FEED_FORWARD_KNOWN_CHUNK) + t * 8;
  const bool has_second = second_cut < Size::second_cuts && second_tile < Size::second_all;

  DEVICE explicit warp_share(const thread_place &place) : thread_place(place) {}
};

/* A lane's weights of both products. */
template <typename Size>
DEVICE void load_weights(const layer_half_parameters &half, const warp_share<Size> &at, uint32_t always_zero,
                         fragments<Size, Size::first_chunks> &first, fragments<Size, Size::second_chunks> &second) {
  const uint32_t first_row =
      2 * (at.cluster * Size::own + at.rank * Size::own_of_block) + at.first_tile * LAYER_HALF_TILE;
  first.load(half.first.weights, half.first.scales, first_row + at.g, Size::hidden, at.first_element, always_zero);
  if (at.has_second)
    second.load(half.second.weights, half.second.scales, at.second_tile * LAYER_HALF_TILE + at.g, Size::columns,
                at.cluster * Size::own + at.second_element, always_zero);
}

/* ---- Values that are kept ---------------------------------------------------------------------------------------- */

/* The same value, which the compiler cannot compute again after the wait: so it is kept. */
DEVICE uint32_t kept(uint32_t value) {
  uint32_t same;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(same) : "r"(value), "r"(threadIdx.x % 32));
  return same;
}
/* The same for a value that is equal in all lanes, which the compiler would otherwise read from the parameters again.
 */
DEVICE uint32_t kept_by_each(uint32_t value) { return kept(value ^ kept(threadIdx.x % 32) / 32); }
DEVICE float kept_by_each(float value) { return __uint_as_float(kept_by_each(__float_as_uint(value))); }
DEVICE float kept(float value) { return __uint_as_float(kept(__float_as_uint(value))); }
template <typename T> DEVICE T *kept(T *pointer) {
  const uint64_t bits = (uint64_t)pointer;
  return (T *)((uint64_t)kept((uint32_t)(bits >> 32)) << 32 | kept((uint32_t)bits));
}

/* ---- Between the products ---------------------------------------------------------------------------------------- */

/* What the norm's sum of squares makes of `scale`; epsilon 0: there is no norm. */
template <typename Size> DEVICE float norm_factor(float squares, float epsilon, float scale) {
  const float root = reciprocal_root(squares * (1.0f / Size::hidden) + epsilon);
  return epsilon > 0 ? root * scale : scale;
}
