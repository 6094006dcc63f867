/* gemm_portable.cu - products of many rows with mma.sync: out = X W^T. It runs on every chip, for every k and every
 * alignment. Shared memory and the tensor cores bound large products, loads the small ones.
 *
 * A block makes a tile of results. X and W come through stages of shared memory, 64 of k at a time, by asynchronous
 * copies of 16 bytes; where rows do not begin at multiples of 16 bytes, number by number. A row of a stage has 128
 * bytes; its eight chunks are exchanged by the row number, so that ldmatrix finds eight rows in different banks. Each
 * warp has a part of the tile in its registers, in large tiles of 64 x 64 sums, and loads the operands of the next 16
 * of k while it multiplies. In tiles of two slices half of the warps multiply the first half of each stage, the others
 * the second half.
 *
 * At the end the sums meet in shared memory, where eight lanes take 64 neighbours of a row.
 *
 * Without slices a sum has the same order in all tiles and wherever its row stands: k in steps of 16. */
#include <type_traits>

#include "../common/launch.cuh"
#include "../common/ptx.cuh"
#include "../common/shared_words.cuh"
#include "gemm_codes.cuh"
#include "gemm_portable.h"
#include "gemm_tile_finish.cuh"

namespace {

constexpr int DEPTH = GEMM_PORTABLE_DEPTH, ROW_BYTES = 2 * DEPTH, CHUNKS = ROW_BYTES / 16;

/* A kernel's tile (gemm_portable_tile), and what follows from it. */
template <int X, int W, int AlongX, int AlongW, int Slices, int Stages, int Codes> struct portable_tile {
  static constexpr int x = X, w = W, along_w = AlongW, slices = Slices, stages = Stages;
  static constexpr bool codes = Codes;
  static constexpr int threads = 32 * AlongX * AlongW * Slices;
  static constexpr int rows = X / AlongX, columns = W / AlongW; /* of a warp */
  static constexpr int steps = DEPTH / 16 / Slices;             /* of a warp in a stage */
  static constexpr int stage_bytes = (X + W) * ROW_BYTES;
};

/* The address of a chunk of 16 bytes in a stage. */
DEVICE uint32_t chunk_at(uint32_t stage, int row, int chunk) {
  return stage + row * ROW_BYTES + ((chunk ^ row % CHUNKS) << 4);
}

/* Rows of a matrix on their way to the stages. */
template <int Threads, int Rows, bool Vectors> struct stage_rows {
  static constexpr int EACH = Vectors ? Threads / CHUNKS : 1; /* rows that all threads copy at a time */
  const uint16_t *from;                                       /* of the next stage: the thread's first number */
  int64_t stride;
  int rows; /* of the tile, from the thread's first row, that the matrix has */

  DEVICE stage_rows(const uint16_t *matrix, int64_t row_stride, int row, int row_count) {
    const int first = Vectors ? threadIdx.x / CHUNKS : 0, column = Vectors ? threadIdx.x % CHUNKS * 8 : 0;
    from = matrix + (row + first) * row_stride + column;
    stride = EACH * row_stride, rows = row_count - row - first;
  }
  /* The next stage, of which the matrix has `left` of k; zeros where it has ended: a copy of 0 bytes reads nothing, but
   * its address must be aligned. */
  DEVICE void load(uint32_t stage, int64_t left) {
    if constexpr (Vectors) {
      const int first = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
      const uint32_t to = chunk_at(stage, first, chunk),
                     bytes = 2 * max(0, min(8, (int)min(left, (int64_t)DEPTH) - 8 * chunk));
      const uint16_t *row = from;
      unrolled_for (int i = 0; i < Rows / EACH; i++, row += stride)
        cp_async_16(to + i * EACH * ROW_BYTES, row, i * EACH < rows ? bytes : 0);
    } else {
      rolled_for (int i = threadIdx.x; i < Rows * DEPTH; i += Threads) {
        const int r = i / DEPTH, c = i % DEPTH;
        store_half_word(chunk_at(stage, r, c / 8) + c % 8 * 2, r < rows && c < left ? from[r * stride + c] : 0);
      }
    }
    from += DEPTH;
  }
};

/* A thread's part of a tile of W in NVFP4 for one stage: of a row two blocks of 16 codes and their scales. They are
 * loaded before a stage is multiplied, and decoded to shared memory after. */
struct code_blocks {
  uint32_t words[2][2], scales[2];
};
DEVICE code_blocks codes_load(const gemm_portable_parameters &p, int64_t matrix, int row, int64_t column) {
  code_blocks blocks = {};
  unrolled_for (int b = 0; b < 2; b++, column += GEMV_BLOCK) {
    if (row >= (int)p.columns || column >= p.k) continue;
    const unsigned char *codes = (const unsigned char *)p.w + (matrix * p.w_batch + row * p.w_row + column) / 2;
    if (p.code_words) {
      const uint2 words = *(const uint2 *)codes;
      blocks.words[b][0] = words.x, blocks.words[b][1] = words.y;
    } else {
      unrolled_for (int i = 0; i < 8; i++) blocks.words[b][i / 4] |= (uint32_t)codes[i] << i % 4 * 8;
    }
    const uint32_t number = (uint32_t)column / GEMV_BLOCK;
    blocks.scales[b] = p.scales[matrix * p.scale_batch + scales_of_row(p.scale_strides, row) +
                                number / 4 * p.scale_strides.four + number % 4];
  }
  return blocks;
}
template <typename T> DEVICE void codes_store(const code_blocks &blocks, uint32_t stage, int row, int chunk) {
  unrolled_for (int i = 0; i < 4; i++) {
    uint32_t pairs[4];
    decode_eight<T>(blocks.words[i / 2][i % 2], gemm_code<T>::scale(gemm_two_scales(blocks.scales[i / 2]), false),
                    pairs);
    store_four_words(chunk_at(stage, row, chunk + i), make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
  }
}

/* A warp's results: sums[i][j][e] is row 16 i + group + 8 (e / 2), column 8 j + 2 quad + e % 2 of its part. */
template <class Tile> using warp_sums = float[Tile::rows / 16][Tile::columns / 8][4];

/* The operands of a warp for 16 of k. */
template <class Tile> struct fragments {
  uint32_t a[Tile::rows / 16][4], b[Tile::columns / 16][4];
  DEVICE void load(uint32_t x, uint32_t w) {
    unrolled_for (int i = 0; i < Tile::rows / 16; i++) ldmatrix_x4(a[i], x + i * 16 * ROW_BYTES);
    unrolled_for (int j = 0; j < Tile::columns / 16; j++) ldmatrix_x4(b[j], w + j * 16 * ROW_BYTES);
  }
};

template <typename T, class Tile> DEVICE void multiply(warp_sums<Tile> &sums, const fragments<Tile> &f) {
  unrolled_for (int i = 0; i < Tile::rows / 16; i++)
    unrolled_for (int j = 0; j < Tile::columns / 8; j++)
      mma_16x8x16<T>(sums[i][j], f.a[i], f.b[j / 2][j % 2 * 2], f.b[j / 2][j % 2 * 2 + 1]);
}

/* Where a block's tile begins. It is the sum of [k, k_end) of k. */
struct place {
  int64_t matrix, part, k, k_end;
  int x_row, w_row;
};

/* Where a warp's part of the tile begins, and its slice. */
template <class Tile> struct warp_part {
  int x, w, slice;
  DEVICE warp_part(uint32_t thread) {
    const int warp = thread / 32, number = warp / Tile::slices;
    x = number / Tile::along_w * Tile::rows, w = number % Tile::along_w * Tile::columns, slice = warp % Tile::slices;
  }
};

/* The sums of a warp's part. */
template <typename T, class Tile, bool Vectors>
DEVICE void tile_multiply(const gemm_portable_parameters &p, const place &at, warp_sums<Tile> &sums) {
  constexpr int STAGES = Tile::stages, STAGE = Tile::stage_bytes, STEPS = Tile::steps;
  extern __shared__ __align__(128) uint16_t shared[];
  const uint32_t base = shared_address(shared), end = base + STAGES * STAGE, of_w = Tile::x * ROW_BYTES;
  const uint16_t *w_matrix = (const uint16_t *)p.w + (Tile::codes ? 0 : at.matrix * p.w_batch);
  stage_rows<Tile::threads, Tile::x, Vectors> x(p.x + at.matrix * p.x_batch + at.k, p.x_row, at.x_row, (int)p.rows);
  stage_rows<Tile::threads, Tile::w, Vectors> w(w_matrix + at.k, p.w_row, at.w_row, (int)p.columns);
  const int code_row = threadIdx.x / 2, code_chunk = threadIdx.x % 2 * 4;
  static_assert(!Tile::codes || Tile::threads == 2 * Tile::w, "a thread has two blocks of a stage");
  int64_t left = at.k_end - at.k; /* of k that is not loaded */
  int stages = (int)((left + DEPTH - 1) / DEPTH);
  auto codes = [&] { return codes_load(p, at.matrix, at.w_row + code_row, at.k_end - left + 8 * code_chunk); };

  uint32_t to = base;
  rolled_for (; to < end - STAGE; to += STAGE, left -= DEPTH) {
    x.load(to, left);
    if (Tile::codes)
      codes_store<T>(codes(), to + of_w, code_row, code_chunk);
    else
      w.load(to + of_w, left);
    cp_async_commit();
  }
  /* Of X lanes 0 to 15 give the rows of the left half, the others those of the right half. Of W lanes 0 to 15 give both
   * halves of eight rows, the others those of the next eight. A step's chunks are those of the first one, with bits of
   * the step's number exchanged. */
  const warp_part<Tile> part(threadIdx.x);
  const int lane = threadIdx.x % 32, first = part.slice * STEPS * 2;
  const uint32_t x_from = chunk_at(0, part.x + lane % 16, first + lane / 16);
  const uint32_t w_from = chunk_at(of_w, part.w + lane / 16 * 8 + lane % 8, first + lane / 8 % 2);
  fragments<Tile> f[2];
  uint32_t from = base;
  auto fetch = [&](int step) {
    f[step % 2].load((from + x_from) ^ (step % STEPS << 5), (from + w_from) ^ (step % STEPS << 5));
  };
  cp_async_wait<STAGES - 2>();
  __syncthreads();
  fetch(0);
  rolled_for (; stages > 0; stages--, left -= DEPTH) {
    code_blocks next = {};
    unrolled_for (int step = 0; step < STEPS; step++) {
      if (step == STEPS - 1) {
        if (Tile::codes) codes_store<T>(next, to + of_w, code_row, code_chunk);
        to = to + STAGE == end ? base : to + STAGE;
        from = from + STAGE == end ? base : from + STAGE;
        cp_async_wait<STAGES - 2>();
        __syncthreads(); /* the next stage is complete, and nobody reads this one again */
      }
      fetch(step + 1);
      if (step == 0 && left > 0) {
        x.load(to, left);
        if (Tile::codes) next = codes();
      }
      if (step == (STEPS > 2)) {
        if (!Tile::codes && left > 0) w.load(to + of_w, left);
        cp_async_commit();
      }
      multiply<T, Tile>(sums, f[step % 2]);
    }
  }
  cp_async_wait<0>();
}

/* Eight sums of a row of a tile, of all slices. Of a row's 64 sums fours in the second half are exchanged with their
 * neighbours, so that eight lanes read from all banks. */
template <class Tile> DEVICE void sums_load(uint32_t from, float (&v)[8]) {
  constexpr int SLICE_BYTES = Tile::x * gemm_portable_stride(Tile::w) * 4;
  const uint32_t turn = threadIdx.x & 4 ? 16 : 0;
  unrolled_for (int slice = 0; slice < Tile::slices; slice++, from += SLICE_BYTES) {
    const float4 low = load_shared_four(from + turn), high = load_shared_four(from + (turn ^ 16));
    const float eight[] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    unrolled_for (int i = 0; i < 8; i++) v[i] = slice ? v[i] + eight[i] : eight[i];
  }
}
template <class Tile> DEVICE void sums_store(uint32_t thread, uint32_t base, const warp_sums<Tile> &sums) {
  constexpr int STRIDE = gemm_portable_stride(Tile::w);
  const warp_part<Tile> part(thread);
  const int group = thread % 32 / 4, pair = thread % 4 * 2 ^ (part.w / 8 & 4);
  const uint32_t to = base + 4 * ((part.slice * Tile::x + part.x + group) * STRIDE + part.w);
  unroll<Tile::rows / 8, Tile::columns / 8>([&](int i, int j) {
    const float *two = sums[i / 2][j] + i % 2 * 2;
    store_two_numbers(to + 4 * (8 * i * STRIDE + 8 * j) + 4 * (pair ^ (j & 4)), make_float2(two[0], two[1]));
  });
}

/* Eight columns of every `Each`-th row become results of 16 bits, which move with their residual as vectors. Two rows
 * at a time: their loads do not wait for each other, and a block waits for few instructions. */
template <class Tile, int Each, bool Gated, bool Added>
DEVICE void rows_finish(const gemm_portable_parameters &p, const place &at, uint32_t from, int first, uint32_t column,
                        const float (&bias)[8]) {
  using vector = std::conditional_t<Gated, uint2, uint4>;
  constexpr int COUNT = 2, WORDS = Gated ? 2 : 4, STEP_BYTES = Each * gemm_portable_stride(Tile::w) * 4;
  const gemm_finish &f = p.finish;
  const float factor = f.scale * (Tile::codes ? GEMM_CODE_FACTOR : 1.0f);
  const int64_t begin = at.x_row + first, width = Gated ? column / 2 : column;
  uint16_t *out = (uint16_t *)f.out + at.matrix * f.out_batch + begin * f.out_row + width;
  const uint16_t *residual =
      (const uint16_t *)f.residual + at.matrix * f.residual_batch + begin * f.residual_row + width;
  int left = (int)p.rows - (int)begin;
  rolled_for (int r = 0; r < Tile::x / Each; r += COUNT, left -= COUNT * Each) {
    vector added[COUNT];
    if (Added)
      unrolled_for (int i = 0; i < COUNT; i++, residual += Each * f.residual_row)
        if (i * Each < left) added[i] = *(const vector *)residual;
    unrolled_for (int i = 0; i < COUNT; i++, out += Each * f.out_row, from += STEP_BYTES) {
      float v[8];
      uint32_t words[WORDS];
      sums_load<Tile>(from, v);
      unrolled_for (int j = 0; j < 8; j++) v[j] = fmaf(v[j], factor, bias[j]);
      if (Gated)
        unrolled_for (int j = 0; j < 4; j++) v[j] = gated(v[2 * j], v[2 * j + 1]);
      unrolled_for (int j = 0; j < WORDS; j++) {
        if (Added) {
          const float2 two = numbers_16::of(f.residual_dtype, (&added[i].x)[j]);
          v[2 * j] += two.x, v[2 * j + 1] += two.y;
        }
        words[j] = word_of_16(f.out_dtype == RONDO_BF16, v[2 * j], v[2 * j + 1]);
      }
      if (i * Each < left) *(vector *)out = *reinterpret_cast<const vector *>(words);
    }
  }
}

/* From the warps' sums to results. */
template <class Tile>
DEVICE void tile_finish(const gemm_portable_parameters &p, const place &at, const warp_sums<Tile> &sums) {
  constexpr int STRIDE = gemm_portable_stride(Tile::w), GROUPS = Tile::w / GEMM_GROUP,
                EACH = Tile::threads / 8 / GROUPS;
  extern __shared__ __align__(128) uint16_t shared[];
  const uint32_t base = shared_address(shared);
  __syncthreads();                        /* the stages have been read */
  const uint32_t thread = thread_index(); /* of addresses that depend on it none is kept in registers from before */
  sums_store<Tile>(thread, base, sums);
  __syncthreads();

  static_assert(Tile::x % EACH == 0, "lanes of a warp have as many rows, and meet in row_factor");
  const int unit = thread / 8, first = unit / GROUPS, in_tile = unit % GROUPS * GEMM_GROUP + thread % 8 * 8;
  const uint32_t column = at.w_row + in_tile;
  const uint32_t count = column < p.columns ? min(8u, p.columns - column) : 0;
  float bias[8];
  bias_load(p.finish, at.matrix, column, count, bias);
  const uint32_t from = base + 4 * (first * STRIDE + in_tile);
  if (p.plain && count == 8) {
    const bool is_gated = p.finish.silu_mul, is_added = p.finish.residual;
    if (!is_gated && !is_added) rows_finish<Tile, EACH, false, false>(p, at, from, first, column, bias);
    if (!is_gated && is_added) rows_finish<Tile, EACH, false, true>(p, at, from, first, column, bias);
    if (is_gated && !is_added) rows_finish<Tile, EACH, true, false>(p, at, from, first, column, bias);
    if (is_gated && is_added) rows_finish<Tile, EACH, true, true>(p, at, from, first, column, bias);
    return;
  }
  rolled_for (int r = first; r < Tile::x; r += EACH) {
    const uint32_t row = at.x_row + r;
    const float factor = row_factor(p.norms, at.matrix, row, p.rows) * (Tile::codes ? GEMM_CODE_FACTOR : 1.0f);
    float v[8], sum = 0;
    sums_load<Tile>(base + 4 * (r * STRIDE + in_tile), v);
    unrolled_for (int i = 0; i < 8; i++) v[i] *= factor;
    if (row < p.rows && count)
      sum = sums_finish(p, at.matrix, row, column, count, v, p.finish.scale, bias, at.part * p.part_numbers);
    if (!p.norms.squares) continue;
    sum = eight_sum(sum);
    if (thread % 8 || row >= p.rows || !count) continue;
    p.norms.squares[at.matrix * p.norms.squares_batch + column / GEMM_GROUP * p.norms.squares_group + row] = sum;
  }
}

template <int... Numbers> DEVICE void gemm_portable(const gemm_portable_parameters &p) {
  using Tile = portable_tile<Numbers...>;
  /* Tiles are taken in groups of rows, each for all columns, so that blocks in flight share X and W in L2. */
  const uint32_t each = p.row_tiles * p.column_tiles, of_parts = blockIdx.x / each, in = blockIdx.x - of_parts * each;
  const uint32_t part = of_parts % p.parts;
  const uint32_t per_group = p.group * p.column_tiles, first = in / per_group * p.group;
  const uint32_t along = min(p.group, p.row_tiles - first), in_group = in % per_group;
  const place at = {.matrix = of_parts / p.parts,
                    .part = part,
                    .k = part * p.part_k,
                    .k_end = min(p.k, (part + 1) * p.part_k),
                    .x_row = (int)(first + in_group % along) * Tile::x,
                    .w_row = (int)(in_group / along) * Tile::w};
  warp_sums<Tile> sums = {};
  if (p.is_bf16 && p.vectors) tile_multiply<__nv_bfloat16, Tile, true>(p, at, sums);
  if (p.is_bf16 && !p.vectors) tile_multiply<__nv_bfloat16, Tile, false>(p, at, sums);
  if (!p.is_bf16 && p.vectors) tile_multiply<__half, Tile, true>(p, at, sums);
  if (!p.is_bf16 && !p.vectors) tile_multiply<__half, Tile, false>(p, at, sums);
  tile_finish<Tile>(p, at, sums);
}

/* The sums of all parts of a product, added in their order, become results. */
DEVICE void gemm_sum(const gemm_portable_parameters &p) {
  const uint32_t each = (p.columns + 7) / 8, unit = blockIdx.x * blockDim.x + threadIdx.x, all_rows = unit / each;
  const uint32_t matrix = all_rows / p.rows, row = all_rows - matrix * p.rows, column = (unit - all_rows * each) * 8;
  if (unit >= p.units) return;
  float v[8] = {}, part[8];
  const uint32_t count = min(8u, p.columns - column);
  rolled_for (uint32_t i = 0; i < p.parts; i++) {
    load_numbers(RONDO_F32, true, p.sums, i * p.part_numbers + unit * 8ll, count, part);
    unrolled_for (int j = 0; j < 8; j++) v[j] += part[j];
  }
  float bias[8];
  bias_load(p.finish, matrix, column, count, bias);
  sums_finish(p, matrix, row, column, count, v, p.finish.scale, bias);
}

} // namespace

#define NUMBERS(...) __VA_ARGS__
#define DEFINE(chips, parameters, name, threads, blocks, tile)                                                         \
  DEFINE_KERNEL(chips, parameters, name, threads, blocks, gemm_portable<NUMBERS tile>)
GEMM_PORTABLE_KERNELS(DEFINE)
#define DEFINE_SUM(chips, parameters, name, threads) DEFINE_KERNEL(chips, parameters, name, threads, 0, gemm_sum)
GEMM_SUM_KERNELS(DEFINE_SUM)
