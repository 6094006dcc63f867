/* gemm_portable.cu - products of many rows with mma.sync: out = X W^T. It runs on every chip, for every k and every
 * alignment. The tensor cores bound it, or the loads of small products.
 *
 * A block makes a tile of 128 x 128 or 64 x 64 results. X and W come through four stages of shared memory, 32 of k at a
 * time, by asynchronous copies of 16 bytes; where rows do not begin at multiples of 16 bytes, number by number. Each
 * warp has a part of the tile in its registers. A row of a stage has 64 bytes; its four chunks are exchanged by the row
 * number, so that ldmatrix finds eight rows in different banks.
 *
 * A sum has the same order in both tiles and wherever its row stands: k in steps of 16. */
#include "../common/launch.cuh"
#include "../common/ptx.cuh"
#include "../common/shared_words.cuh"
#include "gemm_codes.cuh"
#include "gemm_finish.cuh"

namespace {

constexpr int DEPTH = GEMM_PORTABLE_DEPTH, STAGES = GEMM_PORTABLE_STAGES, ROW_BYTES = 2 * DEPTH;

/* The address of a chunk of 16 bytes in a stage. */
DEVICE uint32_t chunk_at(uint32_t stage, int row, int chunk) {
  return stage + row * ROW_BYTES + ((chunk ^ (row >> 1 & 3)) << 4);
}

/* Rows [row, row + Tile) and k [column, column + DEPTH) of a matrix to a stage, zeros where the matrix has ended. */
template <int Tile, int Threads>
DEVICE void stage_load(uint32_t stage, const uint16_t *matrix, int64_t stride, int row, int rows, int64_t column,
                       int64_t columns, bool vectors) {
  if (vectors) {
    unrolled_for (int i = threadIdx.x; i < Tile * 4; i += Threads) {
      const int r = i / 4, c = i % 4;
      const int64_t left = columns - column - 8 * c;
      const bool present = row + r < rows && left > 0;
      cp_async_16(chunk_at(stage, r, c), present ? matrix + (row + r) * stride + column + 8 * c : matrix,
                  present ? 2 * (uint32_t)min((int64_t)8, left) : 0);
    }
  } else {
    rolled_for (int i = threadIdx.x; i < Tile * DEPTH; i += Threads) {
      const int r = i / DEPTH, c = i % DEPTH;
      const bool present = row + r < rows && column + c < columns;
      const uint16_t bits = present ? matrix[(row + r) * stride + column + c] : 0;
      store_half_word(chunk_at(stage, r, c / 8) + c % 8 * 2, bits);
    }
  }
}

/* A thread's part of a tile of W in NVFP4 for one stage: a row's block of 16 codes and its scale. It is loaded before a
 * stage is multiplied, and decoded to shared memory after. */
struct code_block {
  uint32_t words[2], scale;
};
DEVICE code_block codes_load(const gemm_portable_parameters &p, int64_t matrix, int row, int64_t column) {
  code_block block = {};
  if (row >= (int)p.columns || column >= p.k) return block;
  const unsigned char *codes = (const unsigned char *)p.w + (matrix * p.w_batch + row * p.w_row + column) / 2;
  if (p.code_words) {
    const uint2 words = *(const uint2 *)codes;
    block.words[0] = words.x, block.words[1] = words.y;
  } else {
    unrolled_for (int i = 0; i < 8; i++) block.words[i / 4] |= (uint32_t)codes[i] << i % 4 * 8;
  }
  const uint32_t number = (uint32_t)column / GEMV_BLOCK;
  block.scale = p.scales[matrix * p.scale_batch + scales_of_row(p.scale_strides, row) +
                         number / 4 * p.scale_strides.four + number % 4];
  return block;
}
template <typename T> DEVICE void codes_store(const code_block &block, uint32_t stage, int row, int chunk) {
  const uint32_t scale = gemm_code<T>::scale(gemm_two_scales(block.scale), false);
  unrolled_for (int i = 0; i < 2; i++) {
    uint32_t pairs[4];
    decode_eight<T>(block.words[i], scale, pairs);
    store_four_words(chunk_at(stage, row, chunk + i), make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
  }
}

/* A warp's results: sums[i][j][e] is row 16 i + group + 8 (e / 2), column 8 j + 2 quad + e % 2 of its part. */
template <int Rows, int Columns> using warp_sums = float[Rows / 16][Columns / 8][4];

/* sums += X W^T with one stage. x_row and w_row: where the warp's part begins. */
template <typename T, int Rows, int Columns>
DEVICE void stage_multiply(warp_sums<Rows, Columns> &sums, uint32_t x, uint32_t w, int x_row, int w_row) {
  const int lane = threadIdx.x % 32;
  unrolled_for (int k = 0; k < DEPTH / 8; k += 2) {
    uint32_t a[Rows / 16][4], b[Columns / 16][4];
    /* Of X lanes 0 to 15 give the rows of the left half, the others those of the right half. Of W lanes 0 to 15 give
     * both halves of eight rows, the others those of the next eight. */
    unrolled_for (int i = 0; i < Rows / 16; i++)
      ldmatrix_x4(a[i], chunk_at(x, x_row + 16 * i + lane % 16, k + lane / 16));
    unrolled_for (int j = 0; j < Columns / 16; j++)
      ldmatrix_x4(b[j], chunk_at(w, w_row + 16 * j + lane / 16 * 8 + lane % 8, k + lane / 8 % 2));
    unrolled_for (int i = 0; i < Rows / 16; i++)
      unrolled_for (int j = 0; j < Columns / 8; j++)
        mma_16x8x16<T>(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
  }
}

/* One result before and after the residual. */
DEVICE float with_bias(const gemm_finish &f, int64_t matrix, int64_t column, float sum) {
  return fmaf(sum, f.scale, f.bias ? load_number(f.bias_dtype, f.bias, matrix * f.bias_batch + column) : -0.0f);
}
DEVICE float with_residual(const gemm_finish &f, int64_t matrix, int64_t row, int64_t column, float number) {
  const int64_t element = matrix * f.residual_batch + row * f.residual_row + column;
  return number + (f.residual ? load_number(f.residual_dtype, f.residual, element) : -0.0f);
}

/* Two neighbours of a row, or with silu_mul the one that they become. The sum of their squares. */
DEVICE float two_store(const gemm_portable_parameters &p, int64_t matrix, uint32_t row, uint32_t column, float x,
                       float y) {
  if (row >= p.rows || column >= p.columns) return 0;
  const gemm_finish &f = p.finish;
  const int64_t begin = matrix * f.out_batch + row * f.out_row;
  const bool both = column + 1 < p.columns;
  x = with_bias(f, matrix, column, x);
  if (both) y = with_bias(f, matrix, column + 1, y);
  if (f.silu_mul) {
    store_number(f.out_dtype, f.out, begin + column / 2, with_residual(f, matrix, row, column / 2, gated(x, y)));
    return 0;
  }
  x = with_residual(f, matrix, row, column, x);
  y = both ? with_residual(f, matrix, row, column + 1, y) : 0;
  if (!both || !p.pairs) {
    store_number(f.out_dtype, f.out, begin + column, x);
    if (both) store_number(f.out_dtype, f.out, begin + column + 1, y);
  } else if (f.out_dtype == RONDO_F32) {
    *(float2 *)((float *)f.out + begin + column) = make_float2(x, y);
  } else {
    *(uint32_t *)((uint16_t *)f.out + begin + column) = word_of_16(f.out_dtype == RONDO_BF16, x, y);
  }
  if (p.norms.normed) {
    const uint32_t dtype = p.is_bf16 ? RONDO_BF16 : RONDO_F16;
    const int64_t to = matrix * p.norms.normed_batch + row * p.norms.normed_row + column;
    store_number(dtype, p.norms.normed, to, x * load_number(dtype, p.norms.norm, column));
    if (both) store_number(dtype, p.norms.normed, to + 1, y * load_number(dtype, p.norms.norm, column + 1));
  }
  return fmaf(x, x, y * y);
}

/* The factor of a row by the squares of its vector, in a quad of lanes: each has every fourth group. */
DEVICE float row_factor(const gemm_norms &norms, int64_t matrix, uint32_t row, uint32_t rows) {
  if (!norms.vector_squares) return 1;
  const float *from = norms.vector_squares + matrix * norms.vector_squares_batch + min(row, rows - 1);
  float sum = 0;
  rolled_for (uint32_t i = threadIdx.x % 4; i < norms.vector_groups; i += 4)
    sum += from[i * norms.vector_squares_group];
  return rsqrtf(fmaf(quad_sum(sum), norms.mean_factor, norms.epsilon));
}

/* A row's sums of squares: those of the warps that have the columns of a group, by way of the stages. */
template <int Tile, int AlongW>
DEVICE void squares_store(const gemm_portable_parameters &p, const float *sums, int64_t matrix, int x_row, int w_row) {
  constexpr int WARPS = GEMM_GROUP * AlongW / Tile; /* of a group */
  for (uint32_t i = threadIdx.x; i < Tile * AlongW / WARPS; i += blockDim.x) {
    const uint32_t row = x_row + i % Tile, group = i / Tile, column = w_row + group * GEMM_GROUP;
    float sum = 0;
    unrolled_for (int warp = 0; warp < WARPS; warp++) sum += sums[(group * WARPS + warp) * Tile + i % Tile];
    if (row < p.rows && column < p.columns)
      p.norms.squares[matrix * p.norms.squares_batch + column / GEMM_GROUP * p.norms.squares_group + row] = sum;
  }
}

/* The sums of a block's tile: a pipeline of STAGES stages. */
template <typename T, int Codes, int Tile, int Threads, int Rows, int Columns>
DEVICE void tile_multiply(const gemm_portable_parameters &p, warp_sums<Rows, Columns> &sums, int64_t matrix, int x_row,
                          int w_row, int x_part, int w_part) {
  extern __shared__ __align__(128) uint16_t shared[];
  const uint32_t base = shared_address(shared), half = Tile * ROW_BYTES;
  static_assert(Threads * GEMV_BLOCK == Tile * DEPTH, "a thread has one block of codes of a stage");
  const uint16_t *x = p.x + matrix * p.x_batch, *w = (const uint16_t *)p.w + (Codes ? 0 : matrix * p.w_batch);
  const int steps = (int)((p.k + DEPTH - 1) / DEPTH);
  const bool vectors = p.vectors;
  auto load = [&](int step) {
    const uint32_t stage = base + step % STAGES * 2 * half;
    if (step < steps) {
      stage_load<Tile, Threads>(stage, x, p.x_row, x_row, (int)p.rows, (int64_t)step * DEPTH, p.k, vectors);
      if (!Codes)
        stage_load<Tile, Threads>(stage + half, w, p.w_row, w_row, (int)p.columns, (int64_t)step * DEPTH, p.k, vectors);
    }
    cp_async_commit();
  };
  const int code_row = threadIdx.x / 2, code_column = threadIdx.x % 2 * GEMV_BLOCK;
  auto codes = [&](int step) { return codes_load(p, matrix, w_row + code_row, (int64_t)step * DEPTH + code_column); };
  auto decode = [&](int step, const code_block &block) {
    codes_store<T>(block, base + (step % STAGES * 2 + 1) * half, code_row, code_column / 8);
  };
  for (int i = 0; i < STAGES - 1; i++) {
    load(i);
    if (Codes) decode(i, codes(i));
  }
  rolled_for (int step = 0; step < steps; step++) {
    cp_async_wait<STAGES - 2>();
    __syncthreads(); /* the stage is complete, and nobody reads the one that is loaded next */
    load(step + STAGES - 1);
    code_block next;
    if (Codes) next = codes(step + STAGES - 1);
    const uint32_t stage = base + step % STAGES * 2 * half;
    stage_multiply<T, Rows, Columns>(sums, stage, stage + half, x_part, w_part);
    if (Codes) decode(step + STAGES - 1, next);
  }
  cp_async_wait<0>();
}

template <int Codes, int Tile, int AlongX, int AlongW> DEVICE void gemm_portable(const gemm_portable_parameters &p) {
  constexpr int THREADS = 32 * AlongX * AlongW, ROWS = Tile / AlongX, COLUMNS = Tile / AlongW;
  const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
  const int x_part = warp / AlongW * ROWS, w_part = warp % AlongW * COLUMNS;
  /* Tiles are taken in groups of rows, each for all columns, so that blocks in flight share X and W in L2. */
  const uint32_t each = p.row_tiles * p.column_tiles, matrix = blockIdx.x / each, in = blockIdx.x - matrix * each;
  const uint32_t per_group = GEMM_PORTABLE_GROUP * p.column_tiles, first = in / per_group * GEMM_PORTABLE_GROUP;
  const uint32_t along = min((uint32_t)GEMM_PORTABLE_GROUP, p.row_tiles - first), in_group = in % per_group;
  const int x_row = (int)(first + in_group % along) * Tile, w_row = (int)(in_group / along) * Tile;

  warp_sums<ROWS, COLUMNS> sums = {};
  if (p.is_bf16)
    tile_multiply<__nv_bfloat16, Codes, Tile, THREADS, ROWS, COLUMNS>(p, sums, matrix, x_row, w_row, x_part, w_part);
  else
    tile_multiply<__half, Codes, Tile, THREADS, ROWS, COLUMNS>(p, sums, matrix, x_row, w_row, x_part, w_part);
  constexpr float whole = Codes ? GEMM_CODE_FACTOR : 1.0f;
  extern __shared__ __align__(128) uint16_t shared[];
  float *squares = (float *)shared;
  if (p.norms.squares) __syncthreads(); /* the stages have been read */
  unrolled_for (int i = 0; i < ROWS / 16; i++)
    unrolled_for (int h = 0; h < 2; h++) {
      const int in_tile = x_part + 16 * i + group + 8 * h, row = x_row + in_tile;
      const float factor = whole * row_factor(p.norms, matrix, row, p.rows);
      float sum = 0;
      unrolled_for (int j = 0; j < COLUMNS / 8; j++)
        sum += two_store(p, matrix, row, w_row + w_part + 8 * j + 2 * quad, factor * sums[i][j][2 * h],
                         factor * sums[i][j][2 * h + 1]);
      if (!p.norms.squares) continue;
      sum = quad_sum(sum);
      if (quad == 0) squares[warp % AlongW * Tile + in_tile] = sum;
    }
  if (!p.norms.squares) return;
  __syncthreads();
  squares_store<Tile, AlongW>(p, squares, matrix, x_row, w_row);
}

} // namespace

#define DEFINE(chips, parameters, name, threads, tile, along_x, along_w, blocks, codes)                                \
  DEFINE_KERNEL(chips, parameters, name, threads, blocks, gemm_portable<codes, tile, along_x, along_w>)
GEMM_PORTABLE_KERNELS(DEFINE)
