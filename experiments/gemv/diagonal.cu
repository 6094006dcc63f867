/* diagonal.cu - one 16-bit vector; NVFP4, e4m3, f16 or bf16 weights; on tensor cores, with fp32 sums, though there is
 * one vector only.
 *
 * mma.m16n8k16 multiplies A (16 x 16) with B (16 x 8); the four lanes of quad q hold rows q and q + 8 of A, and column
 * q of B. Here the lanes of a warp lie along k, as coalesced loads want it, so "row q" of A is quad q's own piece of a
 * weight row (row q + 8: of a second one) and "column q" of B its piece of the vector. Of the product only the diagonal
 * means something: element (q, q) is what quad q contributes. Seven eighths of the work are wasted, on units that have
 * nothing else to do; in return there is no shuffle, no unpacking to fp32 and no multiply-add in the lanes. The order
 * of k inside a quad is free as long as both operands share it, so decoders may permute.
 *
 * bf16 vectors meet f16 weights as f16: each quad scales its pieces by a power of two so that the largest element lies
 * in [2^13, 2^14), and the diagonal takes the power back. What f16 cannot hold is below 2^-38 of that largest one. */
#include "once.cuh"
#include "variants.h"

namespace {

enum { ALL, STAY, SINK, HALF, ROLL };

struct nvfp4_weights {};
struct e4m3_weights {};
struct f16_weights {};
struct bf16_weights {};

template <typename A, typename B> constexpr bool same = false;
template <typename A> constexpr bool same<A, A> = true;

template <typename W> constexpr int elements_per_load = 8;
template <> constexpr int elements_per_load<nvfp4_weights> = 32;
template <> constexpr int elements_per_load<e4m3_weights> = 16;

template <bool Bf16>
__device__ __forceinline__ void multiply_accumulate(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                    uint32_t b0, uint32_t b1) {
  if constexpr (Bf16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Eight e2m1 codes as halves, times 2^-14, in pairs (0,2) (4,6) (1,3) (5,7): all bits of a code lie in a half's high
 * byte, subnormal 0.5 included. */
__device__ __forceinline__ void decode_e2m1(uint32_t codes, uint32_t (&pairs)[4]) {
  uint32_t odd = and_or(codes, 0x80808080u, (codes >> 3) & 0x0e0e0e0eu);
  uint32_t even = and_or(codes << 4, 0x80808080u, (codes << 1) & 0x0e0e0e0eu);
  pairs[0] = permute(even, 0, 0x1404);
  pairs[1] = permute(even, 0, 0x3424);
  pairs[2] = permute(odd, 0, 0x1404);
  pairs[3] = permute(odd, 0, 0x3424);
}

/* The two f16x2 (four e4m3 numbers) of a word. */
__device__ __forceinline__ void decode_e4m3(uint32_t codes, uint32_t (&pairs)[2]) {
  pairs[0] = bits_of(half2_of_e4m3(codes));
  pairs[1] = bits_of(half2_of_e4m3_high(codes));
}

template <typename W, int Rows, int Slices> struct tile_of_weights {
  words weights[Rows][Slices];
  uint32_t scales[same<W, nvfp4_weights> ? Rows : 1][Slices];
};

/* This lane's part of the vector, as loaded. */
template <typename W, int Slices> struct raw_vector { words eight[Slices][elements_per_load<W> / 8]; };

template <typename W, int Slices, bool Full>
__device__ __forceinline__ void load_raw(raw_vector<W, Slices> &raw, const gemv_parameters &p, uint32_t element) {
  constexpr uint32_t per_load = elements_per_load<W>, slice = 32 * per_load;
  const uint8_t *address = p.vectors + (blockIdx.y * p.k + element) * 2;
#pragma unroll
  for (int s = 0; s < Slices; s++)
#pragma unroll
    for (int i = 0; i < per_load / 8; i++) {
      raw.eight[s][i] = words();
      if (Full || element + slice * s < p.k) raw.eight[s][i] = load_vector(address + 2 * slice * s + 16 * i);
    }
}

/* Eight 16-bit numbers in the order of decode_e2m1, or as they are. */
template <typename W> __device__ __forceinline__ void order_eight(const words &loaded, uint32_t *out) {
  if constexpr (same<W, nvfp4_weights>) {
    out[0] = permute(loaded.word[0], loaded.word[1], 0x5410);
    out[1] = permute(loaded.word[2], loaded.word[3], 0x5410);
    out[2] = permute(loaded.word[0], loaded.word[1], 0x7632);
    out[3] = permute(loaded.word[2], loaded.word[3], 0x7632);
  } else {
#pragma unroll
    for (int i = 0; i < 4; i++) out[i] = loaded.word[i];
  }
}

__device__ __forceinline__ uint32_t half_pair(float low, float high) {
  __half2 pair = __floats2half2_rn(low, high);
  return bits_of(pair);
}

/* Bf16: the vector is bf16, else f16. */
template <typename W, bool Bf16, int Rows, int Slices, int SplitK, int Groups, bool Full, int MinBlocks,
          bool VectorFirst, int Policy>
__global__ void __launch_bounds__(32 * SplitK * Groups, MinBlocks)
    gemv_diagonal(const __grid_constant__ gemv_parameters p) {
  constexpr int per_load = elements_per_load<W>, slice = 32 * per_load, pairs = per_load / 2;
  constexpr bool convert = Bf16 && !same<W, bf16_weights>; /* the tensor cores take f16 */
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % SplitK, group = warp / SplitK;
  const uint32_t element = part * (Slices * slice) + lane * per_load, row_bytes = p.k * 16 / per_load;
  raw_vector<W, Slices> raw = {};
  release_successors();
  if (!p.early) {
    wait_for_predecessors();
    if (VectorFirst) load_raw<W, Slices, Full>(raw, p, element);
  }
  KEEP_ORDER(1);

  tile_of_weights<W, Rows, Slices> tile = {};
  constexpr int early_rows = Policy == HALF || Policy == ROLL ? Rows / 2 : Rows;
  auto load_rows = [&](uint32_t number, int from, int to) {
    const uint32_t first_row = first_row_of<Rows>(p, number * Groups + group);
    const uint8_t *row_weights =
        offset(p.weights + blockIdx.y * p.weight_batch + element * 16 / per_load, first_row, row_bytes);
    if constexpr (same<W, nvfp4_weights>) {
      const uint8_t *row_scales =
          offset(p.weight_scales + blockIdx.y * p.scale_batch + element / 16, first_row, p.k / 16);
#pragma unroll
      for (int r = from; r < to; r++)
#pragma unroll
        for (int s = 0; s < Slices; s++)
          if (Full || element + slice * s < p.k)
            tile.scales[r][s] = load_scale_pair_ahead(offset(row_scales, r, p.k / 16) + 64 * s);
    }
#pragma unroll
    for (int r = from; r < to; r++)
#pragma unroll
      for (int s = 0; s < Slices; s++)
        if (Full || element + slice * s < p.k)
          tile.weights[r][s] = load_weights(offset(row_weights, r, row_bytes) + 512 * s);
  };
  auto all_of = [&](int from, int to) {
    uint32_t all = 0;
#pragma unroll
    for (int r = from; r < to; r++)
#pragma unroll
      for (int s = 0; s < Slices; s++) {
        if (same<W, nvfp4_weights>) all ^= tile.scales[r % (same<W, nvfp4_weights> ? Rows : 1)][s];
#pragma unroll
        for (int i = 0; i < 4; i++) all ^= tile.weights[r][s].word[i];
      }
    return all;
  };
  load_rows(blockIdx.x, 0, early_rows);
  if (p.early) {
    wait_for_predecessors();
    load_raw<W, Slices, Full>(raw, p, element);
  } else if (!VectorFirst) {
    load_raw<W, Slices, Full>(raw, p, element);
  }
  if constexpr (Policy == SINK) {
    KEEP_ORDER(3);
  } else {
    KEEP_LOADED(3, all_of(0, early_rows))
  }

  uint32_t vector[Slices][pairs];
  float correction = same<W, nvfp4_weights> ? 128.0f : 1.0f; /* NVFP4 weights carry 2^-7 */
  {
#pragma unroll
    for (int s = 0; s < Slices; s++)
#pragma unroll
      for (int i = 0; i < per_load / 8; i++)
        if (!convert) order_eight<W>(raw.eight[s][i], &vector[s][4 * i]);
    if constexpr (convert) {
      uint32_t largest = 0; /* two maxima, of magnitudes as bits */
#pragma unroll
      for (int s = 0; s < Slices; s++)
#pragma unroll
        for (int i = 0; i < per_load / 8; i++)
#pragma unroll
          for (int j = 0; j < 4; j++) largest = __vmaxu2(largest, raw.eight[s][i].word[j] & 0x7fff7fffu);
      largest = max(largest & 0xffffu, largest >> 16);
      largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      const int exponent = min(13 + 127 - (int)(largest >> 7), 126);
      const float factor = __uint_as_float((uint32_t)(127 + exponent) << 23);
      correction *= __uint_as_float((uint32_t)(127 - exponent) << 23);
#pragma unroll
      for (int s = 0; s < Slices; s++)
#pragma unroll
        for (int i = 0; i < per_load / 8; i++) {
          float even[4], odd[4];
#pragma unroll
          for (int j = 0; j < 4; j++) {
            even[j] = __uint_as_float(raw.eight[s][i].word[j] << 16) * factor;
            odd[j] = __uint_as_float(raw.eight[s][i].word[j] & 0xffff0000u) * factor;
          }
          uint32_t *out = &vector[s][4 * i];
          if constexpr (same<W, nvfp4_weights>) {
            out[0] = half_pair(even[0], even[1]), out[1] = half_pair(even[2], even[3]);
            out[2] = half_pair(odd[0], odd[1]), out[3] = half_pair(odd[2], odd[3]);
          } else {
#pragma unroll
            for (int j = 0; j < 4; j++) out[j] = half_pair(even[j], odd[j]);
          }
        }
    }
  }
  const uint32_t quad = lane / 4;
  const bool on_diagonal = lane % 4 == quad / 2;

  if (VectorFirst) KEEP_ORDER(4);

  if constexpr (Policy == HALF) {
    load_rows(blockIdx.x, early_rows, Rows);
    KEEP_LOADED(5, all_of(early_rows, Rows))
  }
  uint32_t now = blockIdx.x, turn = 0;
#pragma unroll 1
  for (;;) {
    float sums[Rows];
#pragma unroll
    for (int r = 0; r < Rows; r += 2) {
      if constexpr (Policy == ROLL) {
        if (r + early_rows < Rows) {
          load_rows(blockIdx.x, r + early_rows, r + early_rows + 2);
          KEEP_LOADED(16 + r, all_of(r + early_rows, r + early_rows + 2))
        } else {
          KEEP_ORDER(16 + r);
        }
      } else if constexpr (Policy == HALF) {
        if (r == early_rows) KEEP_ORDER(16);
      }
      float c[4] = {};
#pragma unroll
      for (int s = 0; s < Slices; s++) {
        const words &first = tile.weights[r][s], &second = tile.weights[r + 1][s];
        if constexpr (same<W, nvfp4_weights>) {
          /* Scales times 2^7 go into the weights: exact, at most six bits, value x scale x 2^-7. */
          const __half2 up = half2_of(0x58005800u);
          const __half2 first_scales = __hmul2(half2_of_e4m3(tile.scales[r][s]), up);
          const __half2 second_scales = __hmul2(half2_of_e4m3(tile.scales[r + 1][s]), up);
#pragma unroll
          for (int w = 0; w < 4; w++) {
            uint32_t a[4], b[4];
            decode_e2m1(first.word[w], a);
            decode_e2m1(second.word[w], b);
            const __half2 a_scale = w < 2 ? __low2half2(first_scales) : __high2half2(first_scales);
            const __half2 b_scale = w < 2 ? __low2half2(second_scales) : __high2half2(second_scales);
#pragma unroll
            for (int i = 0; i < 4; i++) {
              a[i] = bits_of(__hmul2(half2_of(a[i]), a_scale));
              b[i] = bits_of(__hmul2(half2_of(b[i]), b_scale));
            }
            multiply_accumulate<false>(c, a[0], b[0], a[1], b[1], vector[s][4 * w], vector[s][4 * w + 1]);
            multiply_accumulate<false>(c, a[2], b[2], a[3], b[3], vector[s][4 * w + 2], vector[s][4 * w + 3]);
          }
        } else if constexpr (same<W, e4m3_weights>) {
#pragma unroll
          for (int w = 0; w < 4; w++) {
            uint32_t a[2], b[2];
            decode_e4m3(first.word[w], a);
            decode_e4m3(second.word[w], b);
            multiply_accumulate<false>(c, a[0], b[0], a[1], b[1], vector[s][2 * w], vector[s][2 * w + 1]);
          }
        } else {
#pragma unroll
          for (int w = 0; w < 4; w += 2)
            multiply_accumulate<same<W, bf16_weights>>(c, first.word[w], second.word[w], first.word[w + 1],
                                                       second.word[w + 1], vector[s][w], vector[s][w + 1]);
        }
      }
      sums[r] = on_diagonal ? (quad % 2 ? c[1] : c[0]) * correction : 0.0f;
      sums[r + 1] = on_diagonal ? (quad % 2 ? c[3] : c[2]) * correction : 0.0f;
    }
    if constexpr (Policy == STAY) {
      const uint32_t next = now + gridDim.x;
      const bool more = next < p.tiles;
      if (more) load_rows(next, 0, Rows);
      finish_rows<Rows, SplitK, Groups>(p, sums, part, group, now, turn);
      if (!more) return;
      now = next;
      turn ^= 1;
    } else {
      finish_rows<Rows, SplitK, Groups>(p, sums, part, group, now, turn);
      return;
    }
  }
}

template <typename W, bool Bf16, int Rows, int Slices, int SplitK, int Groups, int MinBlocks, bool VectorFirst,
          int Policy>
void add_one(std::vector<variant> &variants) {
  for (int full = FIRST_FULL; full < 2; full++) {
    variant v = {};
    v.name = "diagonal R" + std::to_string(Rows) + " S" + std::to_string(Slices) + " K" + std::to_string(SplitK) +
             " G" + std::to_string(Groups) + " B" + std::to_string(MinBlocks) + (VectorFirst ? " vector" : "") +
             std::vector<std::string>{"", " stay", " sink", " half", " roll"}[Policy];
    if (Policy == STAY) v.persistent_blocks = MinBlocks;
    v.kernel =
        full ? (const void *)gemv_diagonal<W, Bf16, Rows, Slices, SplitK, Groups, true, MinBlocks, VectorFirst, Policy>
             : (const void *)
                   gemv_diagonal<W, Bf16, Rows, Slices, SplitK, Groups, FIRST_FULL, MinBlocks, VectorFirst, Policy>;
    v.weights = same<W, nvfp4_weights> ? NVFP4 : same<W, e4m3_weights> ? E4M3 : same<W, f16_weights> ? F16 : BF16;
    v.vectors = Bf16 ? BF16 : F16;
    v.threads = 32 * SplitK * Groups;
    v.block_rows = Rows * Groups;
    v.part_k = 32 * elements_per_load<W> * Slices;
    v.covered_k = v.part_k * SplitK;
    v.full = full;
    v.most_vectors = 1;
    v.step_k = elements_per_load<W>;
    variants.push_back(v);
  }
}

} // namespace

std::vector<variant> diagonal_variants() {
  std::vector<variant> v;
  add_one<nvfp4_weights, true, 2, 1, 1, 4, 8, true, ALL>(v);
  add_one<nvfp4_weights, true, 4, 1, 1, 2, 8, true, ALL>(v);
  add_one<nvfp4_weights, true, 8, 1, 1, 4, 5, true, ALL>(v);
  add_one<nvfp4_weights, true, 2, 1, 2, 2, 8, true, ALL>(v);
  add_one<nvfp4_weights, true, 4, 1, 2, 2, 6, true, ALL>(v);
  add_one<nvfp4_weights, true, 4, 1, 2, 2, 6, true, STAY>(v);
  add_one<nvfp4_weights, true, 8, 1, 2, 2, 5, true, SINK>(v);
  add_one<nvfp4_weights, true, 8, 1, 2, 2, 5, true, HALF>(v);
  add_one<nvfp4_weights, true, 8, 1, 4, 2, 2, true, HALF>(v);
  add_one<nvfp4_weights, true, 8, 1, 4, 1, 5, true, SINK>(v);
  add_one<nvfp4_weights, true, 8, 1, 4, 1, 5, true, HALF>(v);
  add_one<nvfp4_weights, true, 4, 1, 4, 1, 7, true, STAY>(v);
  add_one<nvfp4_weights, true, 4, 2, 2, 2, 4, true, STAY>(v);
  add_one<nvfp4_weights, true, 4, 1, 7, 1, 3, true, STAY>(v);
  add_one<nvfp4_weights, true, 8, 1, 7, 1, 2, true, HALF>(v);
  add_one<nvfp4_weights, true, 8, 1, 7, 1, 2, true, STAY>(v);
  add_one<nvfp4_weights, true, 4, 2, 7, 1, 2, true, STAY>(v);
  add_one<nvfp4_weights, true, 2, 1, 14, 1, 2, true, STAY>(v);
  add_one<nvfp4_weights, true, 4, 1, 16, 1, 2, true, STAY>(v);
  add_one<nvfp4_weights, true, 4, 2, 8, 1, 2, true, STAY>(v);
  add_one<e4m3_weights, true, 4, 1, 8, 1, 4, true, STAY>(v);
  add_one<e4m3_weights, true, 4, 1, 8, 1, 4, true, ALL>(v);
  add_one<e4m3_weights, true, 2, 2, 4, 1, 8, true, STAY>(v);
  add_one<e4m3_weights, true, 4, 2, 16, 1, 1, true, STAY>(v);
  add_one<e4m3_weights, true, 4, 2, 14, 1, 1, true, STAY>(v);
  add_one<bf16_weights, true, 2, 3, 1, 4, 8, true, ALL>(v);
  add_one<bf16_weights, true, 2, 2, 3, 1, 12, true, ALL>(v);
  add_one<bf16_weights, true, 4, 2, 4, 2, 3, true, ALL>(v);
  add_one<bf16_weights, true, 4, 1, 16, 1, 2, true, ALL>(v);
  add_one<bf16_weights, true, 4, 2, 8, 1, 3, true, ALL>(v);
  add_one<bf16_weights, true, 4, 2, 8, 1, 3, true, HALF>(v);
  add_one<bf16_weights, true, 2, 4, 16, 1, 1, true, ALL>(v);
  add_one<bf16_weights, true, 4, 4, 14, 1, 1, true, STAY>(v);
  add_one<bf16_weights, true, 4, 4, 7, 1, 2, true, ALL>(v);
  add_one<bf16_weights, true, 2, 4, 7, 1, 3, true, ALL>(v);
  return v;
}
