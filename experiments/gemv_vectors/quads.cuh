/* quads.cuh - 2..16 vectors on tensor cores, weights and vectors both in registers: for matrices that fill the GPU once
 * or a few times, where the time before the first and after the last load counts.
 *
 * mma.m16n8k16 multiplies A (16 x 16) with B (16 x 8); quad q of a warp holds rows q and q + 8 of A and column q of B.
 * `Quads` quads share a weight row and lie along k, so that 4 x Quads lanes read 64 x Quads contiguous bytes; "row q"
 * of A is quad q's piece of its row and "column q" of B is the same piece (q % Quads) of vector q / Quads. A product
 * counts where both pieces are the same: 8 quads a row serve one vector (the diagonal), 4 two, 2 four, and 1 eight or,
 * with two operands B, sixteen; the work is always the same. */
#pragma once
#include "variants.h"

namespace {

enum { ALL, HALF, STAY };

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
__device__ __forceinline__ void decode_e2m1(uint32_t codes, uint32_t *pairs) {
  uint32_t odd = and_or(codes, 0x80808080u, (codes >> 3) & 0x0e0e0e0eu);
  uint32_t even = and_or(codes << 4, 0x80808080u, (codes << 1) & 0x0e0e0e0eu);
  pairs[0] = permute(even, 0, 0x1404);
  pairs[1] = permute(even, 0, 0x3424);
  pairs[2] = permute(odd, 0, 0x1404);
  pairs[3] = permute(odd, 0, 0x3424);
}

__device__ __forceinline__ uint32_t half_pair(float low, float high) { return bits_of(__floats2half2_rn(low, high)); }

/* Scale pairs of Slices slices: one load of 2 x Slices bytes, then a transpose among the lanes of a row. */
template <int Slices> struct scale_words { uint32_t word[Slices == 4 ? 2 : 1]; };

template <int Slices> __device__ __forceinline__ scale_words<Slices> load_scale_words(const uint8_t *address) {
  scale_words<Slices> loaded;
  if constexpr (Slices == 4)
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v2.u32 {%0, %1}, [%2];"
                 : "=r"(loaded.word[0]), "=r"(loaded.word[1])
                 : "l"(address));
  else if constexpr (Slices == 2)
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.u32 %0, [%1];" : "=r"(loaded.word[0]) : "l"(address));
  else
    loaded.word[0] = load_scale_pair(address);
  return loaded;
}

/* out[s] has this lane's pair of slice s in its low half. */
template <int Slices, int Lanes>
__device__ __forceinline__ void turn_scales(const scale_words<Slices> &in, uint32_t (&out)[Slices]) {
  const uint32_t lane = threadIdx.x % 32, l = lane % Lanes;
  if constexpr (Slices == 4) {
    static_assert(Lanes == 4, "a 4 x 4 transpose of pairs over the quad");
    uint32_t taken = __shfl_xor_sync(0xffffffffu, l & 2 ? in.word[0] : in.word[1], 2);
    uint32_t a = l & 2 ? taken : in.word[0], b = l & 2 ? in.word[1] : taken;
    uint32_t kept = permute(a, b, l & 1 ? 0x7632 : 0x5410);
    taken = __shfl_xor_sync(0xffffffffu, permute(a, b, l & 1 ? 0x5410 : 0x7632), 1);
    uint32_t even = l & 1 ? taken : kept, odd = l & 1 ? kept : taken;
    out[0] = even, out[1] = odd, out[2] = even >> 16, out[3] = odd >> 16;
  } else if constexpr (Slices == 2) {
    const uint32_t from = (lane & ~(Lanes - 1u)) + l / 2;
    uint32_t first = __shfl_sync(0xffffffffu, in.word[0], from);
    uint32_t second = __shfl_sync(0xffffffffu, in.word[0], from + Lanes / 2);
    uint32_t both = permute(first, second, l & 1 ? 0x7632 : 0x5410);
    out[0] = both, out[1] = both >> 16;
  } else
    out[0] = in.word[0];
}

/* This lane's part of one vector, as loaded. */
template <number_format W, number_format V, int Slices> struct raw_vector {
  words loaded[Slices][V == NVFP4 ? 1 : elements_per_load<W> / 8];
  uint32_t scales[V == NVFP4 ? Slices : 1];
};

template <number_format W, number_format V, int Slices, int Slice, bool Full>
__device__ __forceinline__ void load_raw(raw_vector<W, V, Slices> &raw, const gemv_parameters &p, uint32_t n,
                                         uint32_t element) {
  const uint32_t row = blockIdx.y * p.count + min(n, p.count - 1); /* columns without a vector repeat the last */
#pragma unroll
  for (int s = 0; s < Slices; s++) {
    const bool in = Full || element + Slice * s < p.k;
    if constexpr (V == NVFP4) {
      raw.loaded[s][0] = words();
      raw.scales[s] = 0;
      if (in) {
        raw.loaded[s][0] = load_vector(offset(p.vectors + element / 2, row, p.k / 2) + Slice / 2 * s);
        raw.scales[s] = load_vector_scale_pair(offset(p.vector_scales + element / 16, row, p.k / 16) + Slice / 16 * s);
      }
    } else
#pragma unroll
      for (int i = 0; i < elements_per_load<W> / 8; i++) {
        raw.loaded[s][i] = words();
        if (in) raw.loaded[s][i] = load_vector(offset(p.vectors + 2 * element, row, p.k * 2) + 2 * Slice * s + 16 * i);
      }
  }
}

/* As operand B, in the weights' order of k. Returns what the sums are to be multiplied with: bf16 becomes f16 by a
 * power of two of the quad's largest magnitude. */
template <number_format W, number_format V, int Slices>
__device__ __forceinline__ float convert_vector(const raw_vector<W, V, Slices> &raw,
                                                uint32_t (&out)[Slices][elements_per_load<W> / 2]) {
  float correction = W == NVFP4 ? 128.0f : 1.0f; /* NVFP4 weights carry 2^-7 */
  if constexpr (V == NVFP4) {
    const __half2 up = half2_of(0x58005800u); /* 2^7, twice: codes carry 2^-14 */
#pragma unroll
    for (int s = 0; s < Slices; s++) {
      const __half2 pair = __hmul2(half2_of_e4m3(raw.scales[s]), up);
#pragma unroll
      for (int w = 0; w < 4; w++) {
        decode_e2m1(raw.loaded[s][0].word[w], &out[s][4 * w]);
        const __half2 scale = w < 2 ? __low2half2(pair) : __high2half2(pair);
#pragma unroll
        for (int j = 0; j < 4; j++)
          out[s][4 * w + j] = bits_of(__hmul2(__hmul2(half2_of(out[s][4 * w + j]), scale), up));
      }
    }
  } else if constexpr (W == BF16) {
#pragma unroll
    for (int s = 0; s < Slices; s++)
#pragma unroll
      for (int j = 0; j < 4; j++) out[s][j] = raw.loaded[s][0].word[j];
  } else {
    uint32_t largest = 0;
#pragma unroll
    for (int s = 0; s < Slices; s++)
#pragma unroll
      for (int i = 0; i < elements_per_load<W> / 8; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) largest = __vmaxu2(largest, raw.loaded[s][i].word[j] & 0x7fff7fffu);
    largest = max(largest & 0xffffu, largest >> 16);
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    const int exponent = min(13 + 127 - (int)(largest >> 7), 126);
    const float factor = __uint_as_float((uint32_t)(127 + exponent) << 23);
    correction *= __uint_as_float((uint32_t)(127 - exponent) << 23);
#pragma unroll
    for (int s = 0; s < Slices; s++)
#pragma unroll
      for (int i = 0; i < elements_per_load<W> / 8; i++) {
        float even[4], odd[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
          even[j] = __uint_as_float(raw.loaded[s][i].word[j] << 16) * factor;
          odd[j] = __uint_as_float(raw.loaded[s][i].word[j] & 0xffff0000u) * factor;
        }
        uint32_t *eight = &out[s][4 * i];
        if constexpr (W == NVFP4) {
          eight[0] = half_pair(even[0], even[1]), eight[1] = half_pair(even[2], even[3]);
          eight[2] = half_pair(odd[0], odd[1]), eight[3] = half_pair(odd[2], odd[3]);
        } else {
#pragma unroll
          for (int j = 0; j < 4; j++) eight[j] = half_pair(even[j], odd[j]);
        }
      }
  }
  return correction;
}

__device__ __forceinline__ void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* What block `rank` of the cluster has where this one has `place`. */
__device__ __forceinline__ float load_of_block(const float *place, uint32_t rank) {
  uint32_t address;
  float value;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(address)
               : "r"((uint32_t)__cvta_generic_to_shared(place)), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

/* Cluster: blocks that share rows and split k further. Rows and Slices: of a warp. Policies: ALL: everything is asked
 * for at once; HALF: the second half once the vectors are converted; STAY: as many blocks as fit, each tile after tile,
 * what is used is asked for again. */
template <number_format W, number_format V, int Quads, int Columns, int Rows, int Slices, int SplitK, int Groups,
          bool Full, int MinBlocks, int Policy, int Cluster>
__global__ void __launch_bounds__(32 * SplitK * Groups, MinBlocks)
    gemv_quads(const __grid_constant__ gemv_parameters p) {
  constexpr int per_load = elements_per_load<W>, lanes = 4 * Quads, slice = lanes * per_load;
  constexpr int rows_of_load = 8 / Quads, pairs = Rows / (2 * rows_of_load), vectors = rows_of_load * Columns;
  static_assert(pairs >= 1 && pairs * 2 * rows_of_load == Rows && (Columns == 1 || Quads == 1), "");
  constexpr bool scaled = W == NVFP4, convert = V != NVFP4 && W != BF16;
  constexpr int early = Policy == HALF ? pairs * Slices / 2 : pairs * Slices; /* items: a pair of rows, one slice */
  __shared__ float partial[Policy == STAY ? 2 : 1][SplitK][vectors][Groups * Rows + 4];
  extern __shared__ float block_sums[]; /* with a cluster: of all its tiles */
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % SplitK, group = warp / SplitK;
  const uint32_t g = lane / 4, t = lane % 4, row_in_load = lane / lanes;
  const uint32_t rank = blockIdx.x % Cluster, first_tile = blockIdx.x / Cluster;
  const uint32_t part_element = (rank * SplitK + part) * (Slices * slice),
                 element = part_element + lane % lanes * per_load;
  const uint32_t row_bytes = p.k * 16 / per_load;

  constexpr bool one_by_one = Columns == 2 && SplitK == 14 && convert; /* both at once do not fit beside the weights */
  raw_vector<W, V, Slices> raw[Columns];
  auto load_vectors = [&] {
#pragma unroll
    for (int a = 0; a < (one_by_one ? 1 : Columns); a++)
      load_raw<W, V, Slices, slice, Full>(raw[a], p, row_in_load + 8 * a, element);
  };
  release_successors();
  if (!p.early) {
    wait_for_predecessors();
    load_vectors();
  }
  if (p.never == 1) return;

  words weights[pairs][2][Slices];
  scale_words<Slices> scales[scaled ? pairs : 1][2];
  auto load_pair_scales = [&](uint32_t tile, int i) {
    if constexpr (scaled) {
      const uint32_t row = first_row_of<Rows>(p, tile * Groups + group) + row_in_load;
      const uint32_t byte = part_element / 16 + lane % lanes * (2 * Slices);
      const uint8_t *from = offset(p.weight_scales + blockIdx.y * p.scale_batch + byte, row, p.k / 16);
#pragma unroll
      for (int h = 0; h < 2; h++) {
        scales[i][h] = scale_words<Slices>();
        if (Full || byte < p.k / 16)
          scales[i][h] = load_scale_words<Slices>(offset(from, (2 * i + h) * rows_of_load, p.k / 16));
      }
    }
  };
  auto load_items = [&](uint32_t tile, int from, int to) {
    const uint32_t row = first_row_of<Rows>(p, tile * Groups + group) + row_in_load;
    const uint8_t *address = offset(p.weights + blockIdx.y * p.weight_batch + element * 16 / per_load, row, row_bytes);
#pragma unroll
    for (int i = from; i < to; i++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int s = i % Slices, pair = i / Slices;
        weights[pair][h][s] = words();
        if (Full || element + slice * s < p.k)
          weights[pair][h][s] =
              load_weights(offset(address, (2 * pair + h) * rows_of_load, row_bytes) + 16 * lanes * s);
      }
  };
  auto all_of = [&](int from, int to) {
    uint32_t all = 0;
#pragma unroll
    for (int i = from; i < to; i++)
#pragma unroll
      for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < 4; j++) all ^= weights[i / Slices][h][i % Slices].word[j];
    return all;
  };
  /* Never: as it uses what was asked for, the compiler asks here and not where it is needed. */
#define PIN(number, from, to)                                                                                          \
  if (p.never == (number)) {                                                                                           \
    ((uint32_t *)p.out)[threadIdx.x] = all_of(from, to);                                                               \
    return;                                                                                                            \
  }

#pragma unroll
  for (int i = 0; i < pairs; i++) load_pair_scales(first_tile, i);
  load_items(first_tile, 0, early);
  PIN(2, 0, early)
  if (p.early) {
    wait_for_predecessors();
    load_vectors();
  }

  uint32_t b[Columns][Slices][per_load / 2];
  float corrections[Columns][2];
#pragma unroll
  for (int a = 0; a < Columns; a++) {
    if (one_by_one && a) load_raw<W, V, Slices, slice, Full>(raw[a], p, row_in_load + 8 * a, element);
    const float own = convert_vector<W, V, Slices>(raw[a], b[a]);
#pragma unroll
    for (int i = 0; i < 2; i++) /* of the result's columns 2 t and 2 t + 1 */
      corrections[a][i] = convert ? __shfl_sync(0xffffffffu, own, 8 * t + 4 * i) : own;
  }
  if (p.never == 3) return;
  if constexpr (Policy == HALF) {
    load_items(first_tile, early, pairs * Slices);
    PIN(4, early, pairs * Slices)
  }

  uint32_t now = first_tile, turn = 0;
  [[maybe_unused]] uint32_t tiles_done = 0;
#pragma unroll 1
  for (;;) {
    const uint32_t next = now + gridDim.x / Cluster;
    const bool more = Policy == STAY && next < p.tiles;
#pragma unroll
    for (int pair = 0; pair < pairs; pair++) {
      float c[Columns][4] = {};
      uint32_t turned[2][Slices];
      if constexpr (scaled)
#pragma unroll
        for (int h = 0; h < 2; h++) turn_scales<Slices, lanes>(scales[pair][h], turned[h]);
#pragma unroll
      for (int s = 0; s < Slices; s++) {
        if (Policy == HALF && pair * Slices + s == early && p.never == 5) return;
        __half2 scale[2];
        if constexpr (scaled) /* times 2^7: the product is value x scale x 2^-7, exact */
#pragma unroll
          for (int h = 0; h < 2; h++) scale[h] = __hmul2(half2_of_e4m3(turned[h][s]), half2_of(0x58005800u));
#pragma unroll
        for (int w = 0; w < per_load / 8; w++) {
          uint32_t a[2][4];
#pragma unroll
          for (int h = 0; h < 2; h++) {
            const words &loaded = weights[pair][h][s];
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
            multiply_accumulate<W == BF16>(c[n], a[0], a[1], b[n][s][4 * w], b[n][s][4 * w + 1]);
            multiply_accumulate<W == BF16>(c[n], a[0] + 2, a[1] + 2, b[n][s][4 * w + 2], b[n][s][4 * w + 3]);
          }
        }
      }
      /* Row and vector of what this lane keeps. */
      const uint32_t row = group * Rows + 2 * pair * rows_of_load + g / Quads;
#pragma unroll
      for (int n = 0; n < Columns; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          float first = c[n][2 * h] * corrections[n][0], second = c[n][2 * h + 1] * corrections[n][1];
          if constexpr (Quads == 1) {
            partial[turn][part][8 * n + 2 * t][row + 8 * h] = first;
            partial[turn][part][8 * n + 2 * t + 1][row + 8 * h] = second;
          } else {
            float sum = g % 2 ? second : first;
            sum += __shfl_xor_sync(0xffffffffu, sum, 4);
            if constexpr (Quads == 4) sum += __shfl_xor_sync(0xffffffffu, sum, 9);
            if (Quads == 4 ? g % 4 == 0 && t % 2 == 0 : g % 2 == 0)
              partial[turn][part][Quads == 4 ? t / 2 : t][row + h * rows_of_load] = sum;
          }
        }
    }
    if (more) {
#pragma unroll
      for (int i = 0; i < pairs; i++) load_pair_scales(next, i);
      load_items(next, 0, pairs * Slices);
    }
    __syncthreads();
    constexpr int threads = 32 * SplitK * Groups, outputs = vectors * Groups * Rows;
#pragma unroll
    for (int o = 0; o < outputs; o += threads) {
      const uint32_t i = o + threadIdx.x, n = i / (Groups * Rows), r = i % (Groups * Rows);
      if (i < outputs && n < p.count) {
        float sum = partial[turn][0][n][r];
#pragma unroll
        for (int j = 1; j < SplitK; j++) sum += partial[turn][j][n][r];
        const uint32_t row = first_row_of<Rows>(p, now * Groups + r / Rows) + r % Rows;
        if constexpr (Cluster == 1)
          store_result(p, ((uint64_t)blockIdx.y * p.count + n) * p.m + row, sum);
        else
          block_sums[tiles_done * outputs + i] = sum;
      }
    }
    tiles_done++;
    if (!more) break;
    now = next;
    turn ^= 1;
  }
  if constexpr (Cluster > 1) { /* the blocks' parts of k, in order, once for all tiles */
    meet_cluster();
    constexpr uint32_t threads = 32 * SplitK * Groups, outputs = vectors * Groups * Rows;
    for (uint32_t o = rank * threads + threadIdx.x; o < tiles_done * outputs; o += Cluster * threads) {
      const uint32_t i = o % outputs, n = i / (Groups * Rows), r = i % (Groups * Rows);
      if (n >= p.count) continue;
      float sum = 0;
#pragma unroll
      for (uint32_t j = 0; j < Cluster; j++) sum += load_of_block(&block_sums[o], j);
      const uint32_t tile = first_tile + o / outputs * (gridDim.x / Cluster);
      const uint32_t row = first_row_of<Rows>(p, tile * Groups + r / Rows) + r % Rows;
      store_result(p, ((uint64_t)blockIdx.y * p.count + n) * p.m + row, sum);
    }
    meet_cluster(); /* nobody may end while others read its sums */
  }
}
#undef PIN

template <number_format W, number_format V, int Quads, int Columns, int Rows, int Slices, int SplitK, int Groups,
          int MinBlocks, int Policy, int Cluster = 1>
void add(std::vector<variant> &variants) {
  constexpr bool any_k = SplitK * Groups <= 3 || SplitK == 5 || SplitK == 6 || SplitK == 12 ||
                         (W == BF16 && SplitK <= 4); /* the others: only where k is a multiple */
  for (int full = any_k ? 0 : 1; full < 2; full++) {
    variant v = {};
    v.name = "quads Q" + std::to_string(Quads) + (Columns == 2 ? "x2" : "") + " R" + std::to_string(Rows) + " S" +
             std::to_string(Slices) + " K" + std::to_string(SplitK) + " G" + std::to_string(Groups) + " B" +
             std::to_string(MinBlocks) + std::vector<std::string>{"", " half", " stay"}[Policy] +
             (Cluster > 1 ? " C" + std::to_string(Cluster) : "");
    v.cluster = Cluster;
    v.kernel =
        full ? (const void *)
                   gemv_quads<W, V, Quads, Columns, Rows, Slices, SplitK, Groups, true, MinBlocks, Policy, Cluster>
             : (const void *)
                   gemv_quads<W, V, Quads, Columns, Rows, Slices, SplitK, Groups, !any_k, MinBlocks, Policy, Cluster>;
    v.weights = W;
    v.vectors = V;
    v.threads = 32 * SplitK * Groups;
    v.block_rows = Rows * Groups;
    v.part_k = 4 * Quads * elements_per_load<W> * Slices;
    v.covered_k = v.part_k * SplitK * Cluster;
    v.full = full;
    v.most_vectors = 8 / Quads * Columns;
    v.least_vectors = Columns == 2 ? 9 : 2;
    v.step_k = W == NVFP4 ? 32 * Slices : elements_per_load<W>;
    if (Policy == STAY) v.persistent_blocks = MinBlocks;
    variants.push_back(v);
  }
}

} // namespace
