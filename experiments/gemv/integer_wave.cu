/* integer_wave.cu - for matrices that fill the GPU once: one NVFP4 vector, NVFP4 weights: exact integer dot products of
 * a block's 16 elements (dp4a).
 *
 * Lane i of slice s owns elements 1024 s + 32 i .. + 31 of every row: 16 bytes of weights, two scales. */
#include "once.cuh"
#include "variants.h"

namespace {

enum {
  VECTOR_FIRST = 1,
  SCALES_AHEAD = 2,
  TWO_CHAINS = 4,
  SCALES_FIRST = 8,
  MULTIPLY_SHIFT = 16,
  FREE_ORDER = 32,
  STAY = 64,
  SINK = 128,
  HALF = 256,
  ROLL = 512
};

/* Tables of twice the value. A set top bit in prmt's selector copies the looked-up byte's sign instead, so the first
 * table, of positive bytes, gives 0 for negative codes; the second, of negative ones, gives -1 for positive codes,
 * which the first makes good: its bytes are one too high, but for zero, where the second gives 0. */
struct tables {
  uint32_t positive_low, positive_high, negative_low, negative_high, float_bias, power16;
};

template <int Flags> __device__ __forceinline__ tables load_tables() {
  return {opaque(0x04030200u), 0x0d090705u,         opaque(0xfdfeff00u),
          0xf4f8fafcu,         opaque(0x4b400000u), Flags & MULTIPLY_SHIFT ? opaque(65536u) : 0};
}

/* Eight codes as bytes of twice the value, natural order. */
__device__ __forceinline__ void decode_vector_word(uint32_t codes, uint32_t &first, uint32_t &second) {
  uint32_t select = 0x32103210u | ((codes & 0x88888888u) >> 1), magnitude = codes & 0x77777777u;
  first = permute(permute(0x03020100u, 0x0c080604u, magnitude), permute(0xfdfeff00u, 0xf4f8fafcu, magnitude), select);
  second = permute(permute(0x03020100u, 0x0c080604u, magnitude >> 16),
                   permute(0xfdfeff00u, 0xf4f8fafcu, magnitude >> 16), select >> 16);
}

template <int Flags> __device__ __forceinline__ uint32_t upper(uint32_t word, const tables &t) {
  if constexpr (Flags & MULTIPLY_SHIFT) return __umulhi(word, t.power16); /* off the pipe that all else here needs */
  return word >> 16;
}

/* Four times the dot product of a block, in [-2304, 2304]. The sum starts at the bits of 1.5 x 2^23, so that read as a
 * float it is that plus the sum. */
template <int Flags>
__device__ __forceinline__ float dot_of_block(uint32_t first, uint32_t second, const uint32_t *vector,
                                              const tables &t) {
  const uint32_t opposite_first = first ^ 0x88888888u, opposite_second = second ^ 0x88888888u;
  int sum = (int)t.float_bias, other = 0;
  sum = __dp4a((int)permute(t.positive_low, t.positive_high, first), (int)vector[0], sum);
  sum = __dp4a((int)permute(t.negative_low, t.negative_high, opposite_first), (int)vector[0], sum);
  sum = __dp4a((int)permute(t.positive_low, t.positive_high, upper<Flags>(first, t)), (int)vector[1], sum);
  sum = __dp4a((int)permute(t.negative_low, t.negative_high, upper<Flags>(opposite_first, t)), (int)vector[1], sum);
  if (!(Flags & TWO_CHAINS)) other = sum;
  other = __dp4a((int)permute(t.positive_low, t.positive_high, second), (int)vector[2], other);
  other = __dp4a((int)permute(t.negative_low, t.negative_high, opposite_second), (int)vector[2], other);
  other = __dp4a((int)permute(t.positive_low, t.positive_high, upper<Flags>(second, t)), (int)vector[3], other);
  other =
      __dp4a((int)permute(t.negative_low, t.negative_high, upper<Flags>(opposite_second, t)), (int)vector[3], other);
  if (Flags & TWO_CHAINS) other += sum;
  return __int_as_float(other) - 12582912.0f;
}

template <int Slices> struct raw_vector {
  words codes[Slices];
  uint32_t scales[Slices];
};

template <int Slices, bool Full>
__device__ __forceinline__ void load_raw(raw_vector<Slices> &raw, const gemv_parameters &p, uint32_t element) {
  const uint8_t *codes = p.vectors + blockIdx.y * (p.k / 2) + element / 2;
  const uint8_t *scales = p.vector_scales + blockIdx.y * (p.k / 16) + element / 16;
#pragma unroll
  for (int s = 0; s < Slices; s++) {
    raw.codes[s] = words();
    raw.scales[s] = 0;
    if (Full || element + 1024 * s < p.k) {
      raw.codes[s] = load_vector(codes + 512 * s);
      raw.scales[s] = load_vector_scale_pair(scales + 64 * s);
    }
  }
}

template <int Rows, int Slices, int SplitK, int Groups, bool Full, int MinBlocks, int Flags>
__global__ void __launch_bounds__(32 * SplitK * Groups, MinBlocks)
    gemv_wave(const __grid_constant__ gemv_parameters p) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % SplitK, group = warp / SplitK;
  const uint32_t element = part * (Slices * 1024) + lane * 32;
  raw_vector<Slices> raw = {};
  release_successors();
  if (!p.early) {
    wait_for_predecessors();
    if (Flags & VECTOR_FIRST) load_raw<Slices, Full>(raw, p, element);
  }
  KEEP_ORDER(1);

  words weights[Rows][Slices];
  uint32_t scales[Rows][Slices];
  constexpr int early_rows = Flags & (HALF | ROLL) ? (Rows + 1) / 2 : Rows;
  auto load_rows = [&](uint32_t tile, int from, int to) {
    const uint32_t first_row = first_row_of<Rows>(p, tile * Groups + group);
    const uint8_t *row_weights = offset(p.weights + blockIdx.y * p.weight_batch + element / 2, first_row, p.k / 2);
    const uint8_t *row_scales =
        offset(p.weight_scales + blockIdx.y * p.scale_batch + element / 16, first_row, p.k / 16);
#pragma unroll
    for (int r = from; r < to; r++)
#pragma unroll
      for (int s = 0; s < Slices; s++) {
        scales[r][s] = 0;
        if (Full || element + 1024 * s < p.k)
          scales[r][s] = load_scale_pair_ahead(offset(row_scales, r, p.k / 16) + 64 * s);
      }
#pragma unroll
    for (int r = from; r < to; r++)
#pragma unroll
      for (int s = 0; s < Slices; s++) {
        weights[r][s] = words();
        if (Full || element + 1024 * s < p.k) weights[r][s] = load_weights(offset(row_weights, r, p.k / 2) + 512 * s);
      }
  };
  auto all_of = [&](int from, int to) {
    uint32_t all = 0;
#pragma unroll
    for (int r = from; r < to; r++)
#pragma unroll
      for (int s = 0; s < Slices; s++) {
        all ^= scales[r][s];
#pragma unroll
        for (int i = 0; i < 4; i++) all ^= weights[r][s].word[i];
      }
    return all;
  };
  load_rows(blockIdx.x, 0, early_rows);
  const tables t = load_tables<Flags>();
  if (p.early) {
    wait_for_predecessors();
    load_raw<Slices, Full>(raw, p, element);
  } else if (!(Flags & VECTOR_FIRST)) {
    load_raw<Slices, Full>(raw, p, element);
  }
  if constexpr (Flags & SINK) {
    KEEP_ORDER(3);
  } else {
    KEEP_LOADED(3, all_of(0, early_rows))
  }

  uint32_t vector[Slices][8];
  __half2 vector_scales[Slices];
#pragma unroll
  for (int s = 0; s < Slices; s++) {
#pragma unroll
    for (int i = 0; i < 4; i++) decode_vector_word(raw.codes[s].word[i], vector[s][2 * i], vector[s][2 * i + 1]);
    vector_scales[s] = __hmul2(half2_of_e4m3(raw.scales[s]), half2_of(0x34003400u)); /* a quarter: integers are 4 x */
  }
  if (!(Flags & FREE_ORDER)) KEEP_ORDER(4);

  if constexpr (Flags & HALF) {
    load_rows(blockIdx.x, early_rows, Rows);
    KEEP_LOADED(5, all_of(early_rows, Rows))
  }
  uint32_t now = blockIdx.x, turn = 0;
#pragma unroll 1
  for (;;) {
    float sums[Rows];
#pragma unroll
    for (int r = 0; r < Rows; r++) {
      if constexpr (Flags & ROLL) {
        if (r + early_rows < Rows) {
          load_rows(blockIdx.x, r + early_rows, r + early_rows + 1);
          KEEP_LOADED(16 + r, all_of(r + early_rows, r + early_rows + 1))
        } else {
          KEEP_ORDER(16 + r);
        }
      } else if constexpr (Flags & HALF) {
        if (r == early_rows) KEEP_ORDER(16);
      }
      float even = 0, odd = 0;
#pragma unroll
      for (int s = 0; s < Slices; s++) {
        /* Exact in f16: at most 8 bits, a multiple of 2^-20, at most 50176. */
        __half2 product = __hmul2(half2_of_e4m3(scales[r][s]), vector_scales[s]);
        const uint32_t *word = weights[r][s].word;
        even = __fmaf_rn(dot_of_block<Flags>(word[0], word[1], vector[s], t), __low2float(product), even);
        odd = __fmaf_rn(dot_of_block<Flags>(word[2], word[3], vector[s] + 4, t), __high2float(product), odd);
      }
      sums[r] = even + odd;
    }
    if constexpr (Flags & STAY) {
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

template <int Rows, int Slices, int SplitK, int Groups, int MinBlocks, int Flags>
void add(std::vector<variant> &variants) {
  for (int full = FIRST_FULL; full < 2; full++) {
    variant v = {};
    v.name = "wave R" + std::to_string(Rows) + " S" + std::to_string(Slices) + " K" + std::to_string(SplitK) + " G" +
             std::to_string(Groups) + " B" + std::to_string(MinBlocks) + (Flags & VECTOR_FIRST ? " vector" : "") +
             (Flags & SCALES_AHEAD ? " ahead" : "") + (Flags & TWO_CHAINS ? " two" : "") +
             (Flags & SCALES_FIRST ? " scales" : "") + (Flags & MULTIPLY_SHIFT ? " mulshift" : "") +
             (Flags & FREE_ORDER ? " free" : "") + (Flags & STAY ? " stay" : "") + (Flags & SINK ? " sink" : "") +
             (Flags & HALF ? " half" : "") + (Flags & ROLL ? " roll" : "");
    if (Flags & STAY) v.persistent_blocks = MinBlocks;
    v.kernel = full ? (const void *)gemv_wave<Rows, Slices, SplitK, Groups, true, MinBlocks, Flags>
                    : (const void *)gemv_wave<Rows, Slices, SplitK, Groups, FIRST_FULL, MinBlocks, Flags>;
    v.weights = v.vectors = NVFP4;
    v.threads = 32 * SplitK * Groups;
    v.block_rows = Rows * Groups;
    v.covered_k = 1024 * Slices * SplitK;
    v.part_k = 1024 * Slices;
    v.full = full;
    v.most_vectors = 1;
    v.step_k = 32;
    variants.push_back(v);
  }
}

enum {
  GOOD = TWO_CHAINS | SCALES_AHEAD | SCALES_FIRST,
  PLAIN = GOOD | FREE_ORDER,              /* tiny matrices: the vector last, the compiler's order */
  WHOLE = GOOD | VECTOR_FIRST,            /* all rows in flight at once */
  COMPILERS = GOOD | VECTOR_FIRST | SINK, /* the compiler may sink loads */
  HALVES = GOOD | VECTOR_FIRST | HALF,    /* the second half of the rows asked for once the vector is converted */
  STAYS = GOOD | VECTOR_FIRST | STAY,     /* as many blocks as fit, each reads tile after tile */
};

} // namespace

std::vector<variant> wave_variants() {
  std::vector<variant> v;
  add<4, 1, 4, 2, 4, HALVES>(v);
  add<4, 1, 4, 1, 8, HALVES>(v);
  add<4, 2, 2, 1, 10, COMPILERS>(v);
  add<4, 2, 2, 4, 2, COMPILERS>(v);
  add<4, 2, 1, 4, 5, COMPILERS>(v);
  return v;
}
