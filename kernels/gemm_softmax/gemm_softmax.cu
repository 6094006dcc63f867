/* gemm_softmax.cu - row maxima and softmax of S = scale A B^T with mma.sync. It runs on every chip, for every
 * alignment. The products bound it.
 *
 * A block of four warps has 64 rows of A, each warp 16 of them. It makes S in blocks of 64 or 128 columns. The tiles of
 * A and B come through two stages of shared memory, 64 of k at a time. S stays in the accumulators: the four lanes of a
 * quad hold a row (common/ptx.cuh), so its maximum and its sum are a loop over registers and two shuffles.
 *
 * For P the kernel keeps the maximum and the sum of exponentials of a row while it makes the blocks (Milakov,
 * Gimelshein, Online normalizer calculation for softmax, 2018). Then it makes the blocks again and stores P, since two
 * products take less time than a store and a load of S. If a row fits in one block, its product is made once.
 *
 * Columns after n or above the causal diagonal do not count: they are -infinity in the reductions and zero in P. The
 * kernel skips a block of columns if none of them counts for any row of the tile. */
#include "../common/launch.cuh"
#include "gemm_softmax_rows.cuh"

namespace {

constexpr int ROWS = GEMM_SOFTMAX_ROWS, DEPTH = GEMM_SOFTMAX_DEPTH, PITCH = GEMM_SOFTMAX_PITCH;
constexpr int THREADS = GEMM_THREADS;
constexpr float LOG2_E = 1.4426950408889634f;

/* Rows [row, row + Rows) and columns [column, column + DEPTH) of a matrix to a tile in shared memory, zeros beyond
 * row_count and column_count. */
template <int Rows>
DEVICE void tile_load(uint16_t *tile, const uint16_t *matrix, int64_t stride, int64_t row, int64_t row_count,
                      int64_t column, int64_t column_count, bool vectors) {
  const int rows = (int)min((int64_t)Rows, row_count - row), columns = (int)min((int64_t)DEPTH, column_count - column);
  const uint16_t *corner = matrix + row * stride + column;
  if (vectors) {
    constexpr int STEP = THREADS / (DEPTH / 8); /* rows */
    const int c = threadIdx.x % (DEPTH / 8) * 8, elements = max(0, min(8, columns - c));
    int r = threadIdx.x / (DEPTH / 8);
    const uint16_t *from = corner + r * stride + c;
    uint32_t to = shared_address(tile + r * PITCH + c);
    unrolled_for (int i = 0; i < Rows / STEP; i++) {
      const bool present = r < rows && elements > 0;
      cp_async_16(to, present ? from : matrix, present ? 2 * elements : 0);
      r += STEP;
      from += STEP * stride;
      to += STEP * PITCH * 2;
    }
  } else {
    constexpr int STEP = THREADS / DEPTH;
    const int c = threadIdx.x % DEPTH;
#pragma unroll 4
    for (int r = threadIdx.x / DEPTH; r < Rows; r += STEP)
      tile[r * PITCH + c] = r < rows && c < columns ? corner[r * stride + c] : 0;
  }
}

/* The accumulators of a warp, 16 rows x Columns: element e of tile t is row group + 8 (e / 2), column
 * 8 t + 2 quad + e % 2. */
template <int Columns> using accumulators = float[Columns / 8][4];

/* s += A B^T with the tiles in shared memory; a and b are this lane's addresses for ldmatrix. */
template <typename T, int Columns> DEVICE void tile_multiply(accumulators<Columns> &s, uint32_t a, uint32_t b) {
  unrolled_for (int k = 0; k < DEPTH; k += 16) {
    uint32_t a_fragment[4];
    ldmatrix_x4(a_fragment, a + 2 * k);
    unrolled_for (int t = 0; t < Columns / 8; t += 2) {
      uint32_t b_fragment[4];
      ldmatrix_x4(b_fragment, b + 2 * (8 * t * PITCH + k));
      mma_16x8x16<T>(s[t], a_fragment, b_fragment[0], b_fragment[1]);
      mma_16x8x16<T>(s[t + 1], a_fragment, b_fragment[2], b_fragment[3]);
    }
  }
}

/* Two neighbours of a row of P, as many of them as there are columns. */
template <typename V, typename W> DEVICE void pair_store(V *p, W both, V low, V high, bool pairs, int columns) {
  if (pairs && columns >= 2) {
    *(W *)p = both;
  } else {
    if (columns >= 1) p[0] = low;
    if (columns >= 2) p[1] = high;
  }
}

DEVICE void pair_store(const gemm_softmax_parameters &p, int64_t index, float low, float high, int columns) {
  if (p.output == GEMM_SOFTMAX_F32) {
    pair_store((float *)p.out + index, make_float2(low, high), low, high, p.pairs, columns);
  } else {
    const uint32_t both =
        p.output == GEMM_SOFTMAX_F16 ? pack_two<__half>(low, high) : pack_two<__nv_bfloat16>(low, high);
    pair_store((uint16_t *)p.out + index, both, (uint16_t)both, (uint16_t)(both >> 16), p.pairs, columns);
  }
}

/* Brings the tiles of A and B through two stages of shared memory, in the order in which they are multiplied: for each
 * pass, for each block of columns, all of k. A's tile is loaded only once where k fits in it. */
template <int Columns> struct pipeline {
  const gemm_softmax_parameters &p;
  const uint16_t *a, *b; /* of this matrix */
  uint16_t *shared;      /* the stages of A, then those of B */
  int64_t first_row;
  int blocks, k_steps, passes;
  int pass = 0, block = 0, k = 0, stage = 0; /* of the next tile */

  static constexpr int A_STAGE = ROWS * PITCH, B_STAGE = Columns * PITCH, B_BEGIN = GEMM_SOFTMAX_STAGES * A_STAGE;
  static_assert(2 * (B_BEGIN + GEMM_SOFTMAX_STAGES * B_STAGE) == GEMM_SOFTMAX_SHARED_BYTES(Columns),
                "what a launch asks for");

  DEVICE void load_next() {
    if (pass == passes || blocks == 0 || k_steps == 0) return;
    if (k_steps > 1 || (pass == 0 && block == 0))
      tile_load<ROWS>(shared + stage * A_STAGE, a, p.a_row_stride, first_row, p.m, (int64_t)k * DEPTH, p.k, p.vectors);
    tile_load<Columns>(shared + B_BEGIN + stage * B_STAGE, b, p.b_row_stride, (int64_t)block * Columns, p.n,
                       (int64_t)k * DEPTH, p.k, p.vectors);
    cp_async_commit();
    stage ^= 1;
    if (++k < k_steps) return;
    k = 0;
    if (++block < blocks) return;
    block = 0;
    pass++;
  }

  /* The next block of columns of A B^T. */
  DEVICE void multiply_block(accumulators<Columns> &s) {
    /* ldmatrix: lanes 0-15 give the rows of A's left half, 16-31 those of its right half; lanes 0-15 also B's two
     * matrices side by side in k, 16-31 those of the next eight columns. */
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t a_address = shared_address(shared + (16 * warp + lane % 16) * PITCH + lane / 16 * 8);
    const uint32_t b_address = shared_address(shared + B_BEGIN + (lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 8);
    for (int i = 0; i < k_steps; i++) {
      const int full = stage ^ 1; /* loaded last */
      cp_async_wait<0>();
      __syncthreads(); /* the full stage is complete, and nobody reads the other one any more */
      load_next();
      const int a_full = k_steps > 1 ? full : 0;
      const uint32_t a_tile = a_address + a_full * A_STAGE * 2, b_tile = b_address + full * B_STAGE * 2;
      if (p.is_bf16)
        tile_multiply<__nv_bfloat16, Columns>(s, a_tile, b_tile);
      else
        tile_multiply<__half, Columns>(s, a_tile, b_tile);
    }
  }
};

/* The state of one of a quad's two rows. */
struct row_state {
  uint32_t index;   /* in the matrix; m or more: there is no such row */
  uint32_t columns; /* that count: [0, columns) */
  float max;
  float sum; /* of this lane's columns; of the whole row once all blocks are taken in */
};

/* Of the columns from `first` on, which is this lane's first in a block, how many there are up to `end`. */
template <int Columns> DEVICE int columns_from(int64_t first, int64_t end) {
  return (int)max((int64_t)0, min((int64_t)Columns, end - first));
}

DEVICE float exponential(float x) { return exp2f(x * LOG2_E); }

/* Row R of the two: scaled, and -infinity where a column does not count. */
template <int Columns, int R> DEVICE void row_scale(accumulators<Columns> &s, float scale, int counted) {
  unrolled_for (int t = 0; t < Columns / 8; t++) {
    s[t][2 * R] = 8 * t < counted ? __fmul_rn(s[t][2 * R], scale) : -INFINITY;
    s[t][2 * R + 1] = 8 * t + 1 < counted ? __fmul_rn(s[t][2 * R + 1], scale) : -INFINITY;
  }
}

template <int Columns, int R>
DEVICE void row_reduce(const accumulators<Columns> &s, row_state &row, bool is_softmax, bool last) {
  float max = row.max;
  unrolled_for (int t = 0; t < Columns / 8; t++) max = max_or_nan(max, max_or_nan(s[t][2 * R], s[t][2 * R + 1]));
  max = quad_max_or_nan(max);
  if (is_softmax) {
    const float base = base_of(max);
    float sum = row.sum * exponential(row.max - base);
    unrolled_for (int t = 0; t < Columns / 8; t++)
      sum += exponential(s[t][2 * R] - base) + exponential(s[t][2 * R + 1] - base);
    row.sum = last ? quad_sum(sum) : sum;
  }
  row.max = max;
}

/* P from `index` on. Columns that do not count are zero even in a row of NaN. */
template <int Columns, int R>
DEVICE void row_store(const gemm_softmax_parameters &p, const accumulators<Columns> &s, const row_state &row,
                      int64_t index, int columns, int counted) {
  const float base = base_of(row.max), inverse = 1.0f / row.sum;
  unrolled_for (int t = 0; t < Columns / 8; t++) {
    const float low = exponential(s[t][2 * R] - base) * inverse, high = exponential(s[t][2 * R + 1] - base) * inverse;
    pair_store(p, index + 8 * t, 8 * t < counted ? low : 0.0f, 8 * t + 1 < counted ? high : 0.0f, columns - 8 * t);
  }
}

/* All that happens to row R of a block of columns; `first` is this lane's first column. */
template <int Columns, int R>
DEVICE void row_take(const gemm_softmax_parameters &p, accumulators<Columns> &s, row_state &row, int64_t first,
                     int64_t out, bool reduce, bool last, bool store) {
  const int counted = columns_from<Columns>(first, row.columns);
  row_scale<Columns, R>(s, p.scale, counted);
  if (reduce) row_reduce<Columns, R>(s, row, p.is_softmax, last);
  if (p.is_softmax && store && row.index < p.m)
    row_store<Columns, R>(p, s, row, out + row.index * p.out_row_stride + first, columns_from<Columns>(first, p.n),
                          counted);
}

template <int Columns> DEVICE void gemm_softmax(const gemm_softmax_parameters &p) {
  extern __shared__ __align__(16) uint16_t shared[];
  const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
  const int64_t matrix = blockIdx.x / p.row_tiles, first_row = (int64_t)(blockIdx.x % p.row_tiles) * ROWS;
  const int64_t out = matrix * p.out_batch_stride;

  row_state rows[2];
  unrolled_for (int r = 0; r < 2; r++) {
    const int64_t index = first_row + 16 * warp + group + 8 * r;
    const int64_t columns = p.causal ? min(p.n, max((int64_t)0, index + p.n - p.m + 1)) : p.n;
    rows[r] = {(uint32_t)index, (uint32_t)columns, -INFINITY, 0.0f};
  }

  /* Blocks of columns that count for some row of the tile: the last row sees furthest. */
  const int64_t last_row = min(first_row + ROWS, p.m) - 1;
  const int64_t column_end = p.causal ? max((int64_t)0, last_row + p.n - p.m + 1) : p.n;
  const int blocks = (int)((column_end + Columns - 1) / Columns), passes = p.is_softmax && blocks > 1 ? 2 : 1;

  pipeline<Columns> tiles = {p,
                             (const uint16_t *)p.a + matrix * p.a_batch_stride,
                             (const uint16_t *)p.b + matrix * p.b_batch_stride,
                             shared,
                             first_row,
                             blocks,
                             (int)((p.k + DEPTH - 1) / DEPTH),
                             passes};
  tiles.load_next();
  for (int pass = 0; pass < passes; pass++) {
    const bool reduce = pass == 0, store = pass == passes - 1;
    for (int block = 0; block < blocks; block++) {
      accumulators<Columns> s = {};
      tiles.multiply_block(s);
      const int64_t first = (int64_t)block * Columns + 2 * quad;
      const bool last = block == blocks - 1;
      row_take<Columns, 0>(p, s, rows[0], first, out, reduce, last, store);
      row_take<Columns, 1>(p, s, rows[1], first, out, reduce, last, store);
    }
  }

  unrolled_for (int r = 0; r < 2; r++) {
    if (rows[r].index >= p.m) continue;
    const int64_t at = out + rows[r].index * p.out_row_stride;
    if (!p.is_softmax) {
      if (quad == 0) ((float *)p.out)[at] = rows[r].max;
    } else { /* columns after the last block that was made */
      for (int64_t column = (int64_t)blocks * Columns + 2 * quad; column < p.n; column += 8)
        pair_store(p, at + column, 0.0f, 0.0f, columns_from<2>(column, p.n));
    }
  }
}

} // namespace

#define DEFINE(chips, parameters, name, threads, columns, blocks)                                                      \
  DEFINE_KERNEL(chips, parameters, name, threads, blocks, gemm_softmax<columns>)
GEMM_SOFTMAX_KERNELS(DEFINE)
