/* staged.cuh - 1..16 vectors on tensor cores: weights straight to registers, vectors converted once into shared memory.
 *
 * A thread block owns some rows of one matrix; its warps split k. A warp multiplies tiles of 16 rows: lane 4 g + t
 * loads 16 bytes of rows g and g + 8 of every piece (four lanes: 64 contiguous bytes of a row), decodes them with the
 * scale folded in (exact: six bits) and has operand A of mma.m16n8k16; operand B are 8 vectors (or twice 8) that the
 * warp keeps in shared memory in the order its lanes read them. The order of k inside a piece is free as long as both
 * operands share it, so nothing is shuffled.
 *
 * A warp converts its own part of the vectors: no barrier of the block before the first product, and a bf16 vector
 * becomes f16 by a power of two of its own in each part, which the sums take back. When k is longer than one chunk, the
 * warp converts the next chunk in the same place after the last tile; sums wait in shared memory, lane by lane. The
 * warps' sums of all tiles of a group meet after one barrier and are added in the order of the warps.
 *
 * Steps of a warp: group of tiles > chunk of k > tile > step of the chunk; `Depth` steps are in registers, a piece is
 * asked for again as soon as it is used. */
#pragma once
#include "variants.h"

namespace {

enum { TILE_ROWS = 16, ROW_HALVES = 2, PARTIAL_STRIDE = 20 };

template <number_format W> constexpr int elements_per_load = W == NVFP4 ? 32 : W == E4M3 ? 16 : 8;

template <bool Bf16>
__device__ __forceinline__ void multiply_accumulate(float (&c)[4], const uint32_t *row, const uint32_t *row8,
                                                    uint32_t b0, uint32_t b1) {
  if constexpr (Bf16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(row[0]), "r"(row8[0]), "r"(row[1]), "r"(row8[1]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(row[0]), "r"(row8[0]), "r"(row[1]), "r"(row8[1]), "r"(b0), "r"(b1));
}

/* Eight e2m1 codes as halves, times 2^-14, in pairs (0,2) (4,6) (1,3) (5,7). */
__device__ __forceinline__ void decode_e2m1(uint32_t codes, uint32_t (&pairs)[4]) {
  uint32_t odd = and_or(codes, 0x80808080u, (codes >> 3) & 0x0e0e0e0eu);
  uint32_t even = and_or(codes << 4, 0x80808080u, (codes << 1) & 0x0e0e0e0eu);
  pairs[0] = permute(even, 0, 0x1404);
  pairs[1] = permute(even, 0, 0x3424);
  pairs[2] = permute(odd, 0, 0x1404);
  pairs[3] = permute(odd, 0, 0x3424);
}

__device__ __forceinline__ words load_shared(uint32_t address) {
  words v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "r"(address));
  return v;
}
__device__ __forceinline__ void store_shared(uint32_t address, const uint32_t *w) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
               : "memory");
}
template <int Bytes> __device__ __forceinline__ void load_scale_bytes(const uint8_t *address, uint32_t *out) {
  if constexpr (Bytes == 8)
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v2.u32 {%0, %1}, [%2];"
                 : "=r"(out[0]), "=r"(out[1])
                 : "l"(address));
  else if constexpr (Bytes == 4)
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.u32 %0, [%1];" : "=r"(out[0]) : "l"(address));
  else
    out[0] = load_scale_pair(address);
}

__device__ __forceinline__ uint32_t half_pair(float low, float high) { return bits_of(__floats2half2_rn(low, high)); }

/* One step of a tile: P pieces of rows g and g + 8, and NVFP4's scales as loaded, 2 P bytes a lane. */
template <number_format W, int P> struct step_of_weights {
  static constexpr int scale_words = W != NVFP4 ? 1 : P == 4 ? 2 : 1;
  words weights[ROW_HALVES][P];
  uint32_t scales[ROW_HALVES][scale_words];
};

/* The quad's scales so that out[j] holds this lane's pair of piece j in its low half. */
template <int P> __device__ __forceinline__ void turn_scales(const uint32_t *in, uint32_t (&out)[P]) {
  const uint32_t t = threadIdx.x % 4;
  if constexpr (P == 4) { /* a 4 x 4 transpose of pairs over the quad */
    uint32_t taken = __shfl_xor_sync(0xffffffffu, t & 2 ? in[0] : in[1], 2);
    uint32_t a = t & 2 ? taken : in[0], b = t & 2 ? in[1] : taken;
    uint32_t kept = permute(a, b, t & 1 ? 0x7632 : 0x5410);
    taken = __shfl_xor_sync(0xffffffffu, permute(a, b, t & 1 ? 0x5410 : 0x7632), 1);
    uint32_t even = t & 1 ? taken : kept, odd = t & 1 ? kept : taken;
    out[0] = even, out[1] = odd, out[2] = even >> 16, out[3] = odd >> 16;
  } else if constexpr (P == 2) {
    const uint32_t from = (threadIdx.x % 32 & ~3u) + t / 2;
    uint32_t first = __shfl_sync(0xffffffffu, in[0], from), second = __shfl_sync(0xffffffffu, in[0], from + 2);
    uint32_t both = permute(first, second, t & 1 ? 0x7632 : 0x5410);
    out[0] = both, out[1] = both >> 16;
  } else
    out[0] = in[0];
}

/* Which step: see above. */
struct cursor {
  uint32_t group, chunk, tile, step;
};

template <number_format W, number_format V, int P, int Steps, int SplitK> struct sizes {
  static constexpr int per_load = elements_per_load<W>, piece = 4 * per_load, quarters = per_load / 8;
  static constexpr int part_pieces = P * Steps, part = part_pieces * piece, chunk = part * SplitK;
  static constexpr int row_padding = W == NVFP4 ? 32 : 64; /* against bank conflicts of the stores */
};

/* Of NVFP4 vectors, 32 elements an item; of 16-bit ones, 8. An item's load is one instruction of a lane. */
template <number_format W, number_format V, int P, int Steps, int SplitK> struct stager {
  using size = sizes<W, V, P, Steps, SplitK>;
  static constexpr int batch = 8; /* items of a lane in registers at once */
  static constexpr bool four_bit = V == NVFP4, convert = !four_bit && W != BF16;
  static constexpr int items_of_vector = size::part / (four_bit ? 32 : 8);
  static constexpr int turns = (items_of_vector + 31) / 32; /* 16-bit: of a warp, for one vector */
  static constexpr int vectors_of_batch = turns > batch ? 1 : batch / turns;
  static constexpr int held = four_bit ? 4 : vectors_of_batch * turns;
  words raw[held];
  uint32_t scales[four_bit ? held : 1];

  __device__ __forceinline__ void load(const gemv_parameters &p, uint32_t first_element, uint32_t start) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < held; i++) {
      raw[i] = words();
      if constexpr (four_bit) {
        const uint32_t item = start * 32 + lane + 32 * i, n = item / items_of_vector;
        const uint32_t element = first_element + item % items_of_vector * 32;
        scales[i] = 0;
        if (n < p.count && element < p.k) {
          const uint64_t row = blockIdx.y * p.count + n;
          raw[i] = load_vector(p.vectors + row * (p.k / 2) + element / 2);
          scales[i] = load_vector_scale_pair(p.vector_scales + row * (p.k / 16) + element / 16);
        }
      } else {
        const uint32_t n = start + i / turns, item = i % turns * 32 + lane, element = first_element + item * 8;
        if (n < p.count && element < p.k && (items_of_vector % 32 == 0 || item < items_of_vector))
          raw[i] = load_vector(p.vectors + ((uint64_t)(blockIdx.y * p.count + n) * p.k + element) * 2);
      }
    }
  }

  /* The place of eight elements of vector n, from `element` of the part on. */
  __device__ __forceinline__ uint32_t place(uint32_t count, uint32_t n, uint32_t element) {
    const uint32_t piece = element / size::piece, t = element % size::piece / size::per_load,
                   quarter = element % size::per_load / 8;
    return (piece * size::quarters + quarter) * (count * 64 + size::row_padding) + n * 64 + t * 16;
  }

  __device__ __forceinline__ void store(const gemv_parameters &p, uint32_t start, uint32_t vectors, float *powers) {
    const uint32_t lane = threadIdx.x % 32;
    if constexpr (four_bit) {
#pragma unroll
      for (int i = 0; i < held; i++) {
        const uint32_t item = start * 32 + lane + 32 * i, n = item / items_of_vector;
        if (n >= p.count) continue;
        const __half2 up = half2_of(0x58005800u); /* 2^7, twice: codes carry 2^-14 */
        const __half2 pair = __hmul2(half2_of_e4m3(scales[i]), up);
#pragma unroll
        for (int w = 0; w < 4; w++) {
          uint32_t values[4];
          decode_e2m1(raw[i].word[w], values);
          const __half2 scale = w < 2 ? __low2half2(pair) : __high2half2(pair);
#pragma unroll
          for (int j = 0; j < 4; j++) values[j] = bits_of(__hmul2(__hmul2(half2_of(values[j]), scale), up));
          store_shared(vectors + place(p.count, n, item % items_of_vector * 32 + 8 * w), values);
        }
      }
    } else {
#pragma unroll
      for (int v = 0; v < vectors_of_batch; v++) {
        const uint32_t n = start + v;
        if (n >= p.count) break;
        float factor = 1;
        if constexpr (convert) { /* the largest magnitude to [2^13, 2^14) */
          uint32_t largest = 0;
#pragma unroll
          for (int i = 0; i < turns; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) largest = __vmaxu2(largest, raw[v * turns + i].word[j] & 0x7fff7fffu);
          largest = __reduce_max_sync(0xffffffffu, max(largest & 0xffffu, largest >> 16));
          const int exponent = min(13 + 127 - (int)(largest >> 7), 126);
          factor = __uint_as_float((uint32_t)(127 + exponent) << 23);
          if (lane == 0) powers[n] = __uint_as_float((uint32_t)(127 - exponent) << 23);
        }
#pragma unroll
        for (int i = 0; i < turns; i++) {
          const uint32_t item = i * 32 + lane;
          if (items_of_vector % 32 && item >= items_of_vector) continue;
          words &loaded = raw[v * turns + i];
          uint32_t out[4];
          if constexpr (convert) {
            float even[4], odd[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
              even[j] = __uint_as_float(loaded.word[j] << 16) * factor;
              odd[j] = __uint_as_float(loaded.word[j] & 0xffff0000u) * factor;
            }
            if constexpr (W == NVFP4) {
              out[0] = half_pair(even[0], even[1]), out[1] = half_pair(even[2], even[3]);
              out[2] = half_pair(odd[0], odd[1]), out[3] = half_pair(odd[2], odd[3]);
            } else {
#pragma unroll
              for (int j = 0; j < 4; j++) out[j] = half_pair(even[j], odd[j]);
            }
          } else {
#pragma unroll
            for (int j = 0; j < 4; j++) out[j] = loaded.word[j];
          }
          store_shared(vectors + place(p.count, n, item * 8), out);
        }
      }
    }
  }

  static __device__ __forceinline__ uint32_t starts(uint32_t count) {
    return four_bit ? (count * items_of_vector + 31) / 32 : count;
  }
  static constexpr uint32_t advance = four_bit ? held : vectors_of_batch;
};

/* Columns: groups of 8 vectors. Late: all but the first step is asked for once the vectors are converted. */
template <number_format W, number_format V, int Columns, int P, int Steps, int Depth, int SplitK, int MinBlocks,
          bool Late>
__global__ void __launch_bounds__(32 * SplitK, MinBlocks) gemv_staged(const __grid_constant__ gemv_parameters p) {
  using size = sizes<W, V, P, Steps, SplitK>;
  using staging = stager<W, V, P, Steps, SplitK>;
  extern __shared__ __align__(128) uint8_t dynamic[];
  __shared__ float all_powers[SplitK][16];
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const uint32_t quarter_bytes = p.count * 64 + size::row_padding;
  const uint32_t vectors =
      (uint32_t)__cvta_generic_to_shared(dynamic) + warp * size::part_pieces * size::quarters * quarter_bytes;
  float *const partial = (float *)(dynamic + (uint64_t)SplitK * size::part_pieces * size::quarters * quarter_bytes);
  const uint32_t first_row = blockIdx.x * p.block_rows, rows = min(p.block_rows, p.m - first_row);
  const uint32_t tiles = (rows + TILE_ROWS - 1) / TILE_ROWS, groups = (tiles + p.group_tiles - 1) / p.group_tiles;
  const uint32_t row_bytes = p.k * 16 / size::per_load, scale_bytes = p.k / 16;
  const uint8_t *const matrix = p.weights + blockIdx.y * p.weight_batch + (uint64_t)first_row * row_bytes + 16 * t;
  const uint8_t *const scales = p.weight_scales + blockIdx.y * p.scale_batch + (uint64_t)first_row * scale_bytes;

  auto advance = [&](cursor &at) {
    if (Steps > 1 && ++at.step < Steps) return;
    at.step = 0;
    if (++at.tile < min(p.group_tiles, tiles - at.group * p.group_tiles)) return;
    at.tile = 0;
    if (++at.chunk < p.chunks) return;
    at.chunk = 0;
    at.group++;
  };
  auto first_piece_of = [&](const cursor &at) { return (at.chunk * SplitK + warp) * size::part_pieces + at.step * P; };
  step_of_weights<W, P> ring[Depth];
  auto load_piece = [&](step_of_weights<W, P> &step, const cursor &at, int j) {
    const uint32_t row = (at.group * p.group_tiles + at.tile) * TILE_ROWS + g, piece = first_piece_of(at) + j;
#pragma unroll
    for (int h = 0; h < ROW_HALVES; h++) {
      step.weights[h][j] = words();
      if (row + 8 * h < rows && piece * size::piece + t * size::per_load < p.k)
        step.weights[h][j] = load_weights(matrix + (uint64_t)(row + 8 * h) * row_bytes + 64 * piece);
    }
  };
  auto load_scales = [&](step_of_weights<W, P> &step, const cursor &at) {
    if constexpr (W == NVFP4) {
      const uint32_t row = (at.group * p.group_tiles + at.tile) * TILE_ROWS + g;
      const uint32_t byte = first_piece_of(at) * 8 + 2 * P * t;
#pragma unroll
      for (int h = 0; h < ROW_HALVES; h++) {
#pragma unroll
        for (int i = 0; i < step.scale_words; i++) step.scales[h][i] = 0;
        if (row + 8 * h < rows && byte < scale_bytes)
          load_scale_bytes<2 * P>(scales + (uint64_t)(row + 8 * h) * scale_bytes + byte, step.scales[h]);
      }
    }
  };

  release_successors();
  staging stage;
  if (!p.early) {
    wait_for_predecessors();
    stage.load(p, warp * size::part, 0);
  }
  if (p.never == 1) return; /* never: keeps the order of what lies around */
  cursor ahead = {}, now = {};
#pragma unroll
  for (int d = 0; d < (Late ? 1 : Depth); d++) {
    load_scales(ring[d], ahead);
#pragma unroll
    for (int j = 0; j < P; j++) load_piece(ring[d], ahead, j);
    advance(ahead); /* beyond the end, no row is in range */
  }
  if (p.never == 2) return;
  if (p.early) {
    wait_for_predecessors();
    stage.load(p, warp * size::part, 0);
  }
  float *const powers = all_powers[warp];
  uint32_t staged_chunk = 0;
  for (uint32_t start = 0;;) {
    stage.store(p, start, vectors, powers);
    start += staging::advance;
    if (start >= staging::starts(p.count)) break;
    stage.load(p, warp * size::part, start);
  }
  __syncwarp();
  if constexpr (Late) {
#pragma unroll
    for (int d = 1; d < Depth; d++) {
      load_scales(ring[d], ahead);
#pragma unroll
      for (int j = 0; j < P; j++) load_piece(ring[d], ahead, j);
      advance(ahead);
    }
    if (p.never == 3) return;
  }

  /* Columns without a vector read another's. */
  uint32_t column[Columns];
#pragma unroll
  for (int a = 0; a < Columns; a++) column[a] = vectors + min(8 * a + g, p.count - 1) * 64 + t * 16;

  float c[Columns][4] = {};
  auto process =
      [&](step_of_weights<W, P> &
              step) { /* false: it was the last one */
                      if (p.chunks > 1 && now.chunk != staged_chunk) {
                        __syncwarp();
                        staged_chunk = now.chunk;
                        for (uint32_t start = 0; start < staging::starts(p.count); start += staging::advance) {
                          stage.load(p, (now.chunk * SplitK + warp) * size::part, start);
                          stage.store(p, start, vectors, powers);
                        }
                        __syncwarp();
                      }
                      uint32_t step_scales[ROW_HALVES][P];
                      if constexpr (W == NVFP4) {
#pragma unroll
                        for (int h = 0; h < ROW_HALVES; h++) turn_scales<P>(step.scales[h], step_scales[h]);
                        load_scales(step, ahead);
                      }
#pragma unroll
                      for (int j = 0; j < P; j++) {
                        __half2 scale[ROW_HALVES];
                        if constexpr (W == NVFP4) /* times 2^7: the product is value x scale x 2^-7, exact */
#pragma unroll
                          for (int h = 0; h < ROW_HALVES; h++)
                            scale[h] = __hmul2(half2_of_e4m3(step_scales[h][j]), half2_of(0x58005800u));
#pragma unroll
                        for (int w = 0; w < size::quarters; w++) {
                          uint32_t a[ROW_HALVES][4];
#pragma unroll
                          for (int h = 0; h < ROW_HALVES; h++) {
                            const words &loaded = step.weights[h][j];
                            if constexpr (W == NVFP4) {
                              decode_e2m1(loaded.word[w], a[h]);
                              const __half2 block = w < 2 ? __low2half2(scale[h]) : __high2half2(scale[h]);
#pragma unroll
                              for (int i = 0; i < 4; i++) a[h][i] = bits_of(__hmul2(half2_of(a[h][i]), block));
                            } else if constexpr (W == E4M3) {
#pragma unroll
                              for (int i = 0; i < 2; i++) {
                                a[h][2 * i] = bits_of(half2_of_e4m3(loaded.word[2 * w + i]));
                                a[h][2 * i + 1] = bits_of(half2_of_e4m3_high(loaded.word[2 * w + i]));
                              }
                            } else {
#pragma unroll
                              for (int i = 0; i < 4; i++) a[h][i] = loaded.word[i];
                            }
                          }
#pragma unroll
                          for (int n = 0; n < Columns; n++) {
                            const words b =
                                load_shared(column[n] + ((now.step * P + j) * size::quarters + w) * quarter_bytes);
                            multiply_accumulate<W == BF16>(c[n], a[0], a[1], b.word[0], b.word[1]);
                            multiply_accumulate<W == BF16>(c[n], a[0] + 2, a[1] + 2, b.word[2], b.word[3]);
                          }
                        }
                        load_piece(step, ahead, j);
                        if (p.never ==
                            (uint32_t)j +
                                4) { /* never: as it uses what was asked for, the compiler asks here, not later */
                          uint32_t all = 0;
#pragma unroll
                          for (int h = 0; h < ROW_HALVES; h++)
#pragma unroll
                            for (int i = 0; i < 4; i++) all ^= step.weights[h][j].word[i];
                          ((uint32_t *)p.out)[threadIdx.x] = all;
                          return false;
                        }
                      }
                      advance(ahead);
                      if (now.step == Steps - 1) {
                        float *to = partial + (now.tile * SplitK + warp) * p.count * PARTIAL_STRIDE;
#pragma unroll
                        for (int a = 0; a < Columns; a++)
#pragma unroll
                          for (int i = 0; i < 4; i++) {
                            const uint32_t n = 8 * a + 2 * t + i % 2;
                            if (n < p.count) {
                              float correction = W == NVFP4 ? 128.0f : 1.0f;
                              if constexpr (staging::convert) correction *= powers[n];
                              float *place = to + n * PARTIAL_STRIDE + g + i / 2 * 8;
                              *place = c[a][i] * correction + (now.chunk ? *place : 0.0f);
                            }
                            c[a][i] = 0;
                          }
                      }
                      const uint32_t group = now.group;
                      advance(now);
                      if (now.group != group) { /* the parts of k, in order */
                        const uint32_t row = group * p.group_tiles * TILE_ROWS,
                                       group_rows = min(p.group_tiles * TILE_ROWS, rows - row);
                        __syncthreads();
                        for (uint32_t n = threadIdx.x / TILE_ROWS; n < p.count * ((group_rows + 15) / 16);
                             n += 2 * SplitK) {
                          const uint32_t tile = n / p.count, vector = n - tile * p.count,
                                         r = tile * TILE_ROWS + threadIdx.x % TILE_ROWS;
                          const float *from =
                              partial + (tile * SplitK * p.count + vector) * PARTIAL_STRIDE + threadIdx.x % TILE_ROWS;
                          float sum = from[0];
#pragma unroll
                          for (int i = 1; i < SplitK; i++) sum += from[i * p.count * PARTIAL_STRIDE];
                          if (r < group_rows)
                            store_result(p, ((uint64_t)blockIdx.y * p.count + vector) * p.m + first_row + row + r, sum);
                        }
                        if (now.group == groups) return false;
                        __syncthreads();
                      }
                      return true;
      };
#pragma unroll 1
  for (;;) {
    if (!process(ring[0])) return;
    if constexpr (Depth > 1)
      if (!process(ring[1])) return;
  }
}

template <number_format W, number_format V, int P, int Steps, int Depth, int SplitK, int MinBlocks, bool Late = false>
void add(std::vector<variant> &variants) {
  using size = sizes<W, V, P, Steps, SplitK>;
  constexpr bool wide = !(W == NVFP4 && P == 4); /* with 16 vectors it would spill */
  for (int columns = 1; columns <= 1 + wide; columns++) {
    variant v = {};
    v.name = "staged P" + std::to_string(P) + " S" + std::to_string(Steps) + " D" + std::to_string(Depth) + " K" +
             std::to_string(SplitK) + " B" + std::to_string(MinBlocks) + (Late ? " late" : "");
    v.kernel = columns == 1 ? (const void *)gemv_staged<W, V, 1, P, Steps, Depth, SplitK, MinBlocks, Late>
                            : (const void *)gemv_staged<W, V, 1 + wide, P, Steps, Depth, SplitK, MinBlocks, Late>;
    v.weights = W;
    v.vectors = V;
    v.threads = 32 * SplitK;
    v.persistent_blocks = MinBlocks;
    v.block_rows = 1;
    v.split_k = SplitK;
    v.covered_k = size::chunk;
    v.least_vectors = columns == 1 ? 1 : 9;
    v.most_vectors = 8 * columns;
    v.step_k = W == NVFP4 ? (P == 4 ? 128 : P == 2 ? 64 : 32) : size::per_load;
    v.vector_rows = SplitK * size::part_pieces * size::quarters;
    v.row_padding = size::row_padding;
    variants.push_back(v);
  }
}

} // namespace
