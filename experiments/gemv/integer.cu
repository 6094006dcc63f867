/* integer.cu - one NVFP4 vector, NVFP4 weights: exact integer dot products of a block's 16 elements (dp4a).
 *
 * Lane i of slice s owns elements 1024 s + 32 i .. + 31 of every row: 16 bytes of weights, two scales. A warp reads
 * Rows rows of its part of k at once and holds its part of the vector. */
#include "once.cuh"
#include "variants.h"

namespace {

/* Twice the magnitudes. A set top bit in prmt's selector copies the looked-up byte's sign instead, 0: codes with the
 * sign bit give 0, those with it inverted the rest, so that w x = P x - N x without masks. */
struct tables {
  uint32_t low, high, float_bias;
};

__device__ __forceinline__ tables load_tables() { return {opaque(0x03020100u), 0x0c080604u, opaque(0x4b400000u)}; }

/* Eight codes as bytes of twice the value, natural order. */
__device__ __forceinline__ void decode_vector_word(uint32_t codes, uint32_t &first, uint32_t &second) {
  uint32_t select = 0x32103210u | ((codes & 0x88888888u) >> 1), magnitude = codes & 0x77777777u;
  first = permute(permute(0x03020100u, 0x0c080604u, magnitude), permute(0xfdfeff00u, 0xf4f8fafcu, magnitude), select);
  second = permute(permute(0x03020100u, 0x0c080604u, magnitude >> 16),
                   permute(0xfdfeff00u, 0xf4f8fafcu, magnitude >> 16), select >> 16);
}

/* Four times the dot product of a block, in [-2304, 2304]. The sum starts at the bits of 1.5 x 2^23, so that read as a
 * float it is that plus the sum. */
__device__ __forceinline__ float dot_of_block(uint32_t first, uint32_t second, const uint32_t *vector,
                                              const tables &t) {
  const uint32_t opposite_first = first ^ 0x88888888u, opposite_second = second ^ 0x88888888u;
  int above = (int)t.float_bias, below = 0;
  above = __dp4a((int)permute(t.low, t.high, first), (int)vector[0], above);
  below = __dp4a((int)permute(t.low, t.high, opposite_first), (int)vector[0], below);
  above = __dp4a((int)permute(t.low, t.high, first >> 16), (int)vector[1], above);
  below = __dp4a((int)permute(t.low, t.high, opposite_first >> 16), (int)vector[1], below);
  above = __dp4a((int)permute(t.low, t.high, second), (int)vector[2], above);
  below = __dp4a((int)permute(t.low, t.high, opposite_second), (int)vector[2], below);
  above = __dp4a((int)permute(t.low, t.high, second >> 16), (int)vector[3], above);
  below = __dp4a((int)permute(t.low, t.high, opposite_second >> 16), (int)vector[3], below);
  return __int_as_float(above - below) - 12582912.0f;
}

template <int Rows, int Slices> struct tile_of_weights {
  words weights[Rows][Slices];
  uint32_t scales[Rows][Slices];
};
template <int From, int To, int Rows, int Slices, bool Full>
__device__ __forceinline__ void load_rows(tile_of_weights<Rows, Slices> &tile, const gemv_parameters &p,
                                          uint32_t row_group, uint32_t element) {
  const uint32_t row_bytes = p.k / 2, scale_bytes = p.k / 16;
  const uint32_t first_row = first_row_of<Rows>(p, row_group);
  const uint8_t *row_weights = p.weights + blockIdx.y * p.weight_batch + (uint64_t)first_row * row_bytes + element / 2;
  const uint8_t *row_scales =
      p.weight_scales + blockIdx.y * p.scale_batch + (uint64_t)first_row * scale_bytes + element / 16;
#pragma unroll
  for (int r = From; r < To; r++)
#pragma unroll
    for (int s = 0; s < Slices; s++) {
      tile.weights[r][s] = words();
      if (Full || element + 1024 * s < p.k)
        tile.weights[r][s] = load_weights(row_weights + (uint64_t)r * row_bytes + 512 * s);
    }
#pragma unroll
  for (int r = From; r < To; r++)
#pragma unroll
    for (int s = 0; s < Slices; s++) {
      tile.scales[r][s] = 0;
      if (Full || element + 1024 * s < p.k)
        tile.scales[r][s] = load_scale_pair(row_scales + (uint64_t)r * scale_bytes + 64 * s);
    }
}
template <int From, int To, int Rows, int Slices>
__device__ __forceinline__ uint32_t loaded_words(const tile_of_weights<Rows, Slices> &tile) {
  uint32_t all = 0;
#pragma unroll
  for (int r = From; r < To; r++)
#pragma unroll
    for (int s = 0; s < Slices; s++) {
      all ^= tile.scales[r][s];
#pragma unroll
      for (int i = 0; i < 4; i++) all ^= tile.weights[r][s].word[i];
    }
  return all;
}

/* Halves: half of a warp's rows are asked for at once, the others once the vector is converted. The grid has a block
 * for every tile, or as many as fit (they take tile after tile). */
template <int Rows, int Slices, int SplitK, int Groups, bool Full, int MinBlocks, bool Halves>
__global__ void __launch_bounds__(32 * SplitK * Groups, MinBlocks)
    gemv_block(const __grid_constant__ gemv_parameters p) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % SplitK, group = warp / SplitK;
  const uint32_t element = part * (Slices * 1024) + lane * 32;
  release_successors();
  if (!p.early) wait_for_predecessors();
  tile_of_weights<Rows, Slices> tile;
  constexpr int early_rows = Halves ? Rows / 2 : Rows;
  load_rows<0, early_rows, Rows, Slices, Full>(tile, p, blockIdx.x * Groups + group, element);
  const tables t = load_tables();
  if (p.early) {
    /* What is never done keeps the loads above this wait. */
    KEEP_LOADED(1, (loaded_words<0, early_rows>(tile)))
    wait_for_predecessors();
  }
  uint32_t vector[Slices][8];
  __half2 vector_scales[Slices];
#pragma unroll
  for (int s = 0; s < Slices; s++) {
    words codes = {};
    uint32_t pair = 0;
    if (Full || element + 1024 * s < p.k) {
      codes = load_vector(p.vectors + (uint64_t)blockIdx.y * (p.k / 2) + element / 2 + 512 * s);
      pair = load_vector_scale_pair(p.vector_scales + (uint64_t)blockIdx.y * (p.k / 16) + element / 16 + 64 * s);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) decode_vector_word(codes.word[i], vector[s][2 * i], vector[s][2 * i + 1]);
    vector_scales[s] = __hmul2(half2_of_e4m3(pair), half2_of(0x34003400u));
  }
  if constexpr (Halves) { /* the rest once the vector is converted: less in flight at once, the first rows land sooner
                           */
    KEEP_ORDER(2);
    load_rows<early_rows, Rows, Rows, Slices, Full>(tile, p, blockIdx.x * Groups + group, element);
  }
  /* Mostly one turn. As a loop, though, so that the compiler does not wait for weights before the vector is converted.
   */
  uint32_t turn = 0;
#pragma unroll 1
  for (uint32_t now = blockIdx.x;;) {
    float sums[Rows];
#pragma unroll
    for (int r = 0; r < Rows; r++) {
      float even = 0, odd = 0;
#pragma unroll
      for (int s = 0; s < Slices; s++) {
        __half2 product = __hmul2(half2_of_e4m3(tile.scales[r][s]), vector_scales[s]);
        const uint32_t *word = tile.weights[r][s].word;
        even = __fmaf_rn(dot_of_block(word[0], word[1], vector[s], t), __low2float(product), even);
        odd = __fmaf_rn(dot_of_block(word[2], word[3], vector[s] + 4, t), __high2float(product), odd);
      }
      sums[r] = even + odd;
    }
    const uint32_t next = now + gridDim.x;
    const bool more = next < p.tiles;
    if (more) load_rows<0, Rows, Rows, Slices, Full>(tile, p, next * Groups + group, element);
    finish_rows<Rows, SplitK, Groups>(p, sums, part, group, now, turn);
    if (!more) return;
    now = next;
    turn ^= 1;
  }
}

enum { ONCE, HALVES, STAYS };

template <int Rows, int Slices, int SplitK, int Groups, int MinBlocks, int Policy>
void add(std::vector<variant> &variants) {
  for (int full = FIRST_FULL; full < 2; full++) {
    variant v = {};
    v.name = "block R" + std::to_string(Rows) + " S" + std::to_string(Slices) + " K" + std::to_string(SplitK) + " G" +
             std::to_string(Groups) + " B" + std::to_string(MinBlocks) +
             std::vector<std::string>{"", " halves", " stays"}[Policy];
    v.kernel = full ? (const void *)gemv_block<Rows, Slices, SplitK, Groups, true, MinBlocks, Policy == HALVES>
                    : (const void *)gemv_block<Rows, Slices, SplitK, Groups, FIRST_FULL, MinBlocks, Policy == HALVES>;
    v.weights = v.vectors = NVFP4;
    v.threads = 32 * SplitK * Groups;
    v.block_rows = Rows * Groups;
    v.covered_k = 1024 * Slices * SplitK;
    v.part_k = 1024 * Slices;
    v.full = full;
    v.most_vectors = 1;
    v.step_k = 32;
    if (Policy == STAYS) v.persistent_blocks = MinBlocks;
    variants.push_back(v);
  }
}

} // namespace

std::vector<variant> integer_variants() {
  std::vector<variant> v;
  add<1, 1, 1, 4, 8, ONCE>(v);
  add<2, 1, 1, 4, 8, ONCE>(v);
  add<8, 1, 1, 8, 3, ONCE>(v);
  add<8, 1, 1, 8, 3, STAYS>(v);
  add<1, 1, 2, 2, 8, ONCE>(v);
  add<2, 1, 2, 2, 8, ONCE>(v);
  add<8, 1, 2, 2, 6, ONCE>(v);
  add<4, 1, 4, 1, 8, HALVES>(v);
  add<4, 1, 4, 2, 4, HALVES>(v);
  add<8, 1, 4, 2, 3, ONCE>(v);
  add<8, 1, 4, 2, 3, HALVES>(v);
  add<8, 1, 4, 1, 6, ONCE>(v);
  add<4, 2, 2, 1, 10, HALVES>(v);
  add<8, 1, 7, 1, 3, ONCE>(v);
  add<4, 2, 4, 1, 5, ONCE>(v);
  add<4, 2, 4, 1, 5, STAYS>(v);
  add<2, 2, 7, 1, 4, STAYS>(v);
  add<4, 1, 14, 1, 2, STAYS>(v);
  add<4, 2, 8, 1, 2, STAYS>(v);
  add<2, 2, 8, 1, 4, STAYS>(v);
  add<4, 1, 16, 1, 2, STAYS>(v);
  return v;
}
