/* column.cu - one vector, NVFP4 weights, on tensor cores, a scale applied once a block of 16.
 *
 * A warp multiplies 16 rows. Lane 4 g + t owns, of rows g and g + 8, 16 bytes (32 elements, two blocks) of every piece
 * of 128: four lanes read 64 contiguous bytes of a row. As operand A of mma that is "rows g and g + 8, quad lane t". To
 * keep the quad's lanes, and so their blocks' scales, apart, operand B holds the vector four times: its columns 2 t and
 * 2 t + 1 have lane t's elements in lane t's rows of B and zeros in the other lanes' rows. Then the result's element
 * (g, 2 t), which lives in lane 4 g + t, is the dot product of that very lane's weights: the scale is applied where it
 * was loaded. For an NVFP4 vector products are integers, exact (imma); for a 16-bit one f16 with fp32 sums.
 *
 * The vector lies in shared memory, converted, and is read as operand B: 8 lanes of 32 read it, the others zeros. */
#include "variants.h"

namespace {

/* As in integer.cu. */
struct tables {
  uint32_t positive_low, positive_high, negative_low, negative_high;
};

__device__ __forceinline__ tables load_tables() {
  return {opaque(0x04030200u), 0x0d090705u, opaque(0xfdfeff00u), 0xf4f8fafcu};
}

__device__ __forceinline__ void decode_vector_word(uint32_t codes, uint32_t &first, uint32_t &second) {
  uint32_t select = 0x32103210u | ((codes & 0x88888888u) >> 1), magnitude = codes & 0x77777777u;
  first = permute(permute(0x03020100u, 0x0c080604u, magnitude), permute(0xfdfeff00u, 0xf4f8fafcu, magnitude), select);
  second = permute(permute(0x03020100u, 0x0c080604u, magnitude >> 16),
                   permute(0xfdfeff00u, 0xf4f8fafcu, magnitude >> 16), select >> 16);
}

__device__ __forceinline__ void decode_e2m1(uint32_t codes, uint32_t (&pairs)[4]) {
  uint32_t odd = and_or(codes, 0x80808080u, (codes >> 3) & 0x0e0e0e0eu);
  uint32_t even = and_or(codes << 4, 0x80808080u, (codes << 1) & 0x0e0e0e0eu);
  pairs[0] = permute(even, 0, 0x1404);
  pairs[1] = permute(even, 0, 0x3424);
  pairs[2] = permute(odd, 0, 0x1404);
  pairs[3] = permute(odd, 0, 0x3424);
}

__device__ __forceinline__ void multiply_bytes(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                               uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void multiply_halves(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ words load_shared(uint32_t address) {
  words v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "r"(address));
  return v;
}
__device__ __forceinline__ uint32_t load_shared_word(uint32_t address) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address));
  return v;
}
__device__ __forceinline__ void store_shared(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
__device__ __forceinline__ void store_shared_word(uint32_t address, uint32_t a) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(a) : "memory");
}

__device__ __forceinline__ uint32_t load_words_64(const uint8_t *address, uint32_t &high) {
  uint32_t low;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(low), "=r"(high) : "l"(address));
  return low;
}
__device__ __forceinline__ uint32_t load_word_32(const uint8_t *address) {
  uint32_t word;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(word) : "l"(address));
  return word;
}

enum { TILE_ROWS = 16, ROW_HALVES = 2, PIECE = 128 };

/* Of rows g and g + 8. Scales as loaded: Pieces 4: eight bytes, those of piece t; 2: four bytes, 4 t .. 4 t + 3; else a
 * pair a piece. */
template <int Pieces> struct step_of_weights {
  static constexpr int scale_words = Pieces == 4 ? 2 : Pieces == 2 ? 1 : Pieces;
  words weights[ROW_HALVES][Pieces];
  uint32_t scales[ROW_HALVES][scale_words];
};

struct place {
  const uint8_t *weights, *scales; /* row g of the tile, first element of the step, this lane's bytes */
};

template <int Pieces>
__device__ __forceinline__ place place_of(const gemv_parameters &p, uint32_t tile, uint32_t chunk) {
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t row_bytes = p.k / 2, scale_bytes = p.k / 16, row = first_row_of<TILE_ROWS>(p, tile) + g;
  return {p.weights + blockIdx.y * p.weight_batch + (uint64_t)row * row_bytes + chunk * (PIECE * Pieces / 2) + 16 * t,
          p.weight_scales + blockIdx.y * p.scale_batch + (uint64_t)row * scale_bytes + chunk * (PIECE * Pieces / 16)};
}

template <int Pieces, bool Full>
__device__ __forceinline__ void load_piece(step_of_weights<Pieces> &step, const gemv_parameters &p, const place &from,
                                           int j, uint32_t element) {
#pragma unroll
  for (int h = 0; h < ROW_HALVES; h++) {
    step.weights[h][j] = words();
    if (Full || element + PIECE * j < p.k)
      step.weights[h][j] = load_weights(from.weights + (uint64_t)h * 8 * (p.k / 2) + PIECE / 2 * j);
  }
  if constexpr (Pieces != 2 && Pieces != 4) {
    const uint32_t t = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < ROW_HALVES; h++) {
      step.scales[h][j] = 0;
      if (Full || element + PIECE * j < p.k)
        step.scales[h][j] = load_scale_pair(from.scales + (uint64_t)h * 8 * (p.k / 16) + PIECE / 16 * j + 2 * t);
    }
  }
}

/* The wide loads of scales. `element` is the lane's first of the step. */
template <int Pieces, bool Full>
__device__ __forceinline__ void load_scales(step_of_weights<Pieces> &step, const gemv_parameters &p, const place &from,
                                            uint32_t chunk) {
  const uint32_t t = threadIdx.x % 4;
#pragma unroll
  for (int h = 0; h < ROW_HALVES; h++) {
    const uint8_t *address = from.scales + (uint64_t)h * 8 * (p.k / 16) + 2 * Pieces * t;
    if constexpr (Pieces == 4) {
      step.scales[h][0] = step.scales[h][1] = 0;
      if (Full || chunk * (PIECE * Pieces) + PIECE * t < p.k)
        step.scales[h][0] = load_words_64(address, step.scales[h][1]);
    } else if constexpr (Pieces == 2) {
      step.scales[h][0] = 0;
      if (Full || chunk * (PIECE * Pieces) + PIECE / 2 * t < p.k) step.scales[h][0] = load_word_32(address);
    }
  }
}

/* Every lane's own pairs: out[j] has piece j's two scales, in its low half if `low[j]`. */
template <int Pieces>
__device__ __forceinline__ void turn_scales(const uint32_t (&in)[step_of_weights<Pieces>::scale_words],
                                            uint32_t (&out)[Pieces]) {
  const uint32_t t = threadIdx.x % 4;
  if constexpr (Pieces == 4) { /* a 4 x 4 transpose of pairs over the quad */
    uint32_t give = t & 2 ? in[0] : in[1];
    uint32_t taken = __shfl_xor_sync(0xffffffffu, give, 2);
    uint32_t a = t & 2 ? taken : in[0], b = t & 2 ? in[1] : taken;
    uint32_t kept = permute(a, b, t & 1 ? 0x7632 : 0x5410);
    taken = __shfl_xor_sync(0xffffffffu, permute(a, b, t & 1 ? 0x5410 : 0x7632), 1);
    uint32_t even = t & 1 ? taken : kept, odd = t & 1 ? kept : taken;
    out[0] = even, out[1] = odd, out[2] = even >> 16, out[3] = odd >> 16;
  } else if constexpr (Pieces == 2) {
    const uint32_t from = (threadIdx.x % 32 & ~3u) + t / 2;
    uint32_t first = __shfl_sync(0xffffffffu, in[0], from), second = __shfl_sync(0xffffffffu, in[0], from + 2);
    uint32_t both = permute(first, second, t & 1 ? 0x7632 : 0x5410);
    out[0] = both, out[1] = both >> 16;
  } else {
#pragma unroll
    for (int j = 0; j < Pieces; j++) out[j] = in[j];
  }
}

/* Shared memory: 16 bytes of zeros, the vector (int8 or f16), its block scales in pairs (f16x2; NVFP4 only). */
enum { ZEROS = 0, VECTOR = 16 };

__device__ __forceinline__ uint32_t padded_k(uint32_t k) { return (k + PIECE - 1) / PIECE * PIECE; }

__device__ __forceinline__ void convert_nvfp4_vector(const gemv_parameters &p, uint32_t shared, uint32_t threads) {
  const uint32_t padded = padded_k(p.k);
  const uint8_t *codes = p.vectors + (uint64_t)blockIdx.y * (p.k / 2);
  const uint8_t *scales = p.vector_scales + (uint64_t)blockIdx.y * (p.k / 16);
  for (uint32_t i = threadIdx.x; i < padded / 32; i += threads) {
    words loaded = {};
    uint32_t pair = 0, bytes[8];
    if (i < p.k / 32) {
      loaded = load_vector(codes + 16 * i);
      pair = load_vector_scale_pair(scales + 2 * i);
    }
#pragma unroll
    for (int w = 0; w < 4; w++) decode_vector_word(loaded.word[w], bytes[2 * w], bytes[2 * w + 1]);
    store_shared(shared + VECTOR + 32 * i, bytes[0], bytes[1], bytes[2], bytes[3]);
    store_shared(shared + VECTOR + 32 * i + 16, bytes[4], bytes[5], bytes[6], bytes[7]);
    store_shared_word(shared + VECTOR + padded + 4 * i, bits_of(__hmul2(half2_of_e4m3(pair), half2_of(0x34003400u))));
  }
}

__device__ __forceinline__ uint32_t half_pair(float low, float high) { return bits_of(__floats2half2_rn(low, high)); }

/* bf16 to f16, scaled by a power of two so that the largest element lies in [2^13, 2^14): what f16 cannot hold is below
 * 2^-38 of it. Returns the inverse. */
template <int Warps> __device__ __forceinline__ float convert_bf16_vector(const gemv_parameters &p, uint32_t shared) {
  __shared__ uint32_t maxima[Warps];
  const uint8_t *vector = p.vectors + (uint64_t)blockIdx.y * p.k * 2;
  uint32_t largest = 0;
  for (uint32_t i = threadIdx.x; i < p.k / 8; i += 32 * Warps) {
    words loaded = load_vector(vector + 16 * i);
#pragma unroll
    for (int j = 0; j < 4; j++) largest = __vmaxu2(largest, loaded.word[j] & 0x7fff7fffu);
  }
  largest = __reduce_max_sync(0xffffffffu, max(largest & 0xffffu, largest >> 16));
  if (threadIdx.x % 32 == 0) maxima[threadIdx.x / 32] = largest;
  __syncthreads();
  largest = __reduce_max_sync(0xffffffffu, threadIdx.x % 32 < Warps ? maxima[threadIdx.x % 32] : 0);
  const int exponent = min(13 + 127 - (int)(largest >> 7), 126);
  const float factor = __uint_as_float((uint32_t)(127 + exponent) << 23);
  for (uint32_t i = threadIdx.x; i < padded_k(p.k) / 8; i += 32 * Warps) {
    words loaded = {};
    if (i < p.k / 8) loaded = load_vector(vector + 16 * i);
    float even[4], odd[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      even[j] = __uint_as_float(loaded.word[j] << 16) * factor;
      odd[j] = __uint_as_float(loaded.word[j] & 0xffff0000u) * factor;
    }
    store_shared(shared + VECTOR + 16 * i, half_pair(even[0], even[1]), half_pair(even[2], even[3]),
                 half_pair(odd[0], odd[1]), half_pair(odd[2], odd[3]));
  }
  return __uint_as_float((uint32_t)(127 - exponent) << 23);
}

template <bool Bytes, int Pieces, int SplitK, int Groups, bool Once, bool Full, int MinBlocks>
__global__ void __launch_bounds__(32 * SplitK * Groups, MinBlocks)
    gemv_column(const __grid_constant__ gemv_parameters p) {
  extern __shared__ __align__(16) uint8_t dynamic[];
  __shared__ float partial[2][SplitK][TILE_ROWS];
  static_assert(SplitK == 1 || Groups == 1, "either");
  const uint32_t shared = (uint32_t)__cvta_generic_to_shared(dynamic);
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const uint32_t chunks = Once ? SplitK : (p.k + PIECE * Pieces - 1) / (PIECE * Pieces);
  const uint32_t part = SplitK == 1 ? 0 : warp, group = SplitK == 1 ? warp : 0;
  release_successors();
  if (!p.early) wait_for_predecessors();

  uint32_t tile = blockIdx.x * Groups + group, chunk = part, turn = 0;
  step_of_weights<Pieces> step;
  place from = place_of<Pieces>(p, tile, chunk);
#pragma unroll
  for (int j = 0; j < Pieces; j++) load_piece<Pieces, Full>(step, p, from, j, chunk * (PIECE * Pieces) + 32 * t);
  load_scales<Pieces, Full>(step, p, from, chunk);

  const tables tables = load_tables();
  if (p.early) wait_for_predecessors();

  float correction = 1.0f;
  if (threadIdx.x < 4) store_shared_word(shared + ZEROS + 4 * threadIdx.x, 0);
  if constexpr (Bytes)
    convert_nvfp4_vector(p, shared, 32 * SplitK * Groups);
  else
    correction = 16384.0f * convert_bf16_vector<SplitK * Groups>(p, shared);
  __syncthreads();

  /* Where this lane reads operand B: its piece of the vector, or zeros and no step from piece to piece. */
  constexpr uint32_t lane_bytes = Bytes ? 32 : 64, piece_bytes = 4 * lane_bytes;
  const bool holds = g / 2 == t;
  const uint32_t b_base = holds ? shared + VECTOR + t * lane_bytes : shared + ZEROS;
  const uint32_t b_second = holds ? 16 : 0, b_piece = holds ? piece_bytes : 0;

  float sums[ROW_HALVES] = {};
#pragma unroll 1
  for (;;) {
    uint32_t next_chunk = chunk + SplitK, next_tile = tile;
    const bool tile_ends = next_chunk >= chunks;
    if (tile_ends) next_chunk = part, next_tile = tile + gridDim.x * Groups;
    const bool more = !Once && next_tile < p.tiles;
    from = place_of<Pieces>(p, more ? next_tile : tile, next_chunk);
    const uint32_t next_element = next_chunk * (PIECE * Pieces) + 32 * t;
    uint32_t scales[ROW_HALVES][Pieces];
#pragma unroll
    for (int h = 0; h < ROW_HALVES; h++) turn_scales<Pieces>(step.scales[h], scales[h]);
    const uint32_t piece = min(chunk * Pieces, (p.k - 1) / PIECE); /* a part without a chunk has zero weights */
#pragma unroll
    for (int j = 0; j < Pieces; j++) {
      const uint32_t b_at = b_base + (Full ? piece + j : min(piece + j, (p.k - 1) / PIECE)) * b_piece;
      float2 scale[ROW_HALVES];
      if constexpr (Bytes) {
        const uint32_t at = (Full ? piece + j : min(piece + j, (p.k - 1) / PIECE)) * 4 + t;
        const __half2 vector_scales = half2_of(load_shared_word(shared + VECTOR + padded_k(p.k) + 4 * at));
#pragma unroll
        for (int h = 0; h < ROW_HALVES; h++)
          scale[h] = __half22float2(__hmul2(half2_of_e4m3(scales[h][j]), vector_scales));
      } else {
#pragma unroll
        for (int h = 0; h < ROW_HALVES; h++) scale[h] = __half22float2(half2_of_e4m3(scales[h][j]));
      }
#pragma unroll
      for (int block = 0; block < 2; block++) {
        float result[ROW_HALVES];
        if constexpr (Bytes) {
          const words b = load_shared(b_at + block * b_second);
          int c[4] = {};
#pragma unroll
          for (int w = 0; w < 2; w++) {
            const uint32_t first = step.weights[0][j].word[2 * block + w],
                           second = step.weights[1][j].word[2 * block + w];
            const uint32_t not_first = first ^ 0x88888888u, not_second = second ^ 0x88888888u;
            multiply_bytes(c, permute(tables.positive_low, tables.positive_high, first),
                           permute(tables.positive_low, tables.positive_high, second),
                           permute(tables.positive_low, tables.positive_high, first >> 16),
                           permute(tables.positive_low, tables.positive_high, second >> 16), b.word[2 * w],
                           b.word[2 * w + 1]);
            multiply_bytes(c, permute(tables.negative_low, tables.negative_high, not_first),
                           permute(tables.negative_low, tables.negative_high, not_second),
                           permute(tables.negative_low, tables.negative_high, not_first >> 16),
                           permute(tables.negative_low, tables.negative_high, not_second >> 16), b.word[2 * w],
                           b.word[2 * w + 1]);
          }
          result[0] = (float)c[0], result[1] = (float)c[2];
        } else {
          float c[4] = {};
#pragma unroll
          for (int w = 0; w < 2; w++) {
            const words b = load_shared(b_at + (2 * block + w) * b_second);
            uint32_t first[4], second[4];
            decode_e2m1(step.weights[0][j].word[2 * block + w], first);
            decode_e2m1(step.weights[1][j].word[2 * block + w], second);
            multiply_halves(c, first[0], second[0], first[1], second[1], b.word[0], b.word[1]);
            multiply_halves(c, first[2], second[2], first[3], second[3], b.word[2], b.word[3]);
          }
          result[0] = c[0], result[1] = c[2];
        }
#pragma unroll
        for (int h = 0; h < ROW_HALVES; h++) sums[h] = __fmaf_rn(result[h], block ? scale[h].y : scale[h].x, sums[h]);
      }
      if (more) load_piece<Pieces, Full>(step, p, from, j, next_element);
      if (!Once && p.never == (uint32_t)j + 1) return; /* orders the code */
    }
    if (more) load_scales<Pieces, Full>(step, p, from, next_chunk);
    if (tile_ends) {
      /* The quad's four lanes: lane t has row g for even t, g + 8 for odd. */
      float keep = t & 1 ? sums[1] : sums[0], give = t & 1 ? sums[0] : sums[1];
      float sum = keep + __shfl_xor_sync(0xffffffffu, give, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      sum *= correction;
      const uint32_t row = g + (t & 1) * 8, first_row = first_row_of<TILE_ROWS>(p, tile);
      const uint64_t out = (uint64_t)blockIdx.y * p.m + first_row;
      if constexpr (SplitK == 1) {
        if (t < 2) store_result(p, out + row, sum);
      } else {
        if (t < 2) partial[turn][part][row] = sum;
        __syncthreads();
        if (threadIdx.x < TILE_ROWS) {
          sum = partial[turn][0][threadIdx.x];
#pragma unroll
          for (int i = 1; i < SplitK; i++) sum += partial[turn][i][threadIdx.x];
          store_result(p, out + threadIdx.x, sum);
        }
        turn ^= 1;
      }
      sums[0] = sums[1] = 0;
    }
    if (!more) return;
    chunk = next_chunk;
    tile = next_tile;
  }
}

template <bool Bytes, int Pieces, int SplitK, int Groups, bool Once, int MinBlocks>
void add(std::vector<variant> &variants) {
  for (int full = 0; full < 2; full++) {
    variant v = {};
    v.name = "column P" + std::to_string(Pieces) + " K" + std::to_string(SplitK) + " G" + std::to_string(Groups) +
             " B" + std::to_string(MinBlocks);
    v.kernel = full ? (const void *)gemv_column<Bytes, Pieces, SplitK, Groups, Once, true, MinBlocks>
                    : (const void *)gemv_column<Bytes, Pieces, SplitK, Groups, Once, false, MinBlocks>;
    v.weights = NVFP4;
    v.vectors = Bytes ? NVFP4 : BF16;
    v.threads = 32 * SplitK * Groups;
    v.block_rows = TILE_ROWS * Groups;
    v.part_k = PIECE * Pieces;
    v.covered_k = v.part_k * SplitK;
    v.full = full;
    v.most_vectors = 1;
    v.step_k = Pieces == 4 ? 128 : Pieces == 2 ? 64 : 32;
    v.loops = !Once;
    if (!Once) v.persistent_blocks = MinBlocks;
    v.shared_base = VECTOR;
    v.shared_bits_per_k = Bytes ? 9 : 16;
    variants.push_back(v);
  }
}

} // namespace

std::vector<variant> column_variants() {
  std::vector<variant> v;
  add<true, 5, 1, 4, true, 5>(v);
  add<true, 5, 1, 4, true, 4>(v);
  add<false, 5, 1, 4, false, 3>(v);
  add<false, 4, 4, 1, false, 4>(v);
  add<false, 4, 7, 1, false, 2>(v);
  return v;
}
