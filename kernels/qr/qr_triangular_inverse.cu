/* qr_triangular_inverse.cu - inverses of unit lower triangular matrices of 16 to 128 rows, 16 rows at a time.
 *
 * Forward substitution for all columns at once. The contribution of the finished rows of X to the next 16 is subtracted
 * as a product of blocks. Then a thread solves the 16 x 16 triangle for its column in registers. This order is
 * right-stable (Du Croz and Higham, Stability of methods for matrix inversion, 1992): it forms no product of inverses,
 * whose errors grow with the condition, and |L X - I| is at most n eps |L| |X|, element by element.
 *
 * A warp has 32 columns. In a product a thread has 8 rows of two columns: half the reads of L that one column each
 * would take. The matrix is in shared memory in blocks of 16 x 16, so all but a block's address is a constant. The
 * inverse takes the place of the matrix, block row by block row, after each thread has used that row. Bound by the
 * issue of instructions, half of them multiply-adds; from 64 rows on memory takes a third of the time. */
#include "../common/launch.cuh"
#include "qr_tile_memory.cuh"

constexpr int BLOCK = QR_TRIANGULAR_BLOCK;

template <typename T> struct unit_triangle {
  static constexpr int VECTOR = 16 / (int)sizeof(T);
  struct alignas(16) vector {
    T value[VECTOR];
  };
  struct alignas(2 * sizeof(T)) pair {
    T value[2];
  };
  static constexpr int SIZE = triangular_inverse_block_numbers((int)sizeof(T)), HALF = BLOCK * BLOCK / 2 + VECTOR;

  T *matrix; /* in shared memory */
  int n, thread, threads;

  /* Block (i, j) on or below the diagonal; its two halves of 8 rows are in different banks, and so are neighbours. */
  DEVICE T *block(int i, int j) const { return matrix + (i * (i + 1) / 2 + j) * SIZE; }
  DEVICE int blocks() const { return (n + BLOCK - 1) / BLOCK; }
  /* After them: a block of zeros. */
  DEVICE T *zeros() const { return block(blocks(), 0); }
  static DEVICE int row(int r) { return r % (BLOCK / 2) * BLOCK + r / (BLOCK / 2) * HALF; }

  /* The strict lower triangle, PIECE numbers at a time. Vectors bring some numbers beside it, which are not used. */
  template <int PIECE, int LANES> DEVICE void fetch(const T *from, int64_t row_stride) const {
    constexpr int STEP = LANES * PIECE;
    static_assert(STEP % BLOCK == 0);
    const int lane = thread % LANES * PIECE;
    for (int i = 0; i < blocks(); i++) {
      const int last = min(n - i * BLOCK, BLOCK);
      for (int r = thread / LANES; r < last; r += threads / LANES) {
        T *to = block(i, lane / BLOCK) + row(r) + lane % BLOCK;
        const T *source = from + (i * BLOCK + r) * row_stride;
#pragma unroll 4
        for (int j = lane; j < i * BLOCK + r; j += STEP, to += STEP / BLOCK * SIZE)
          copy_asynchronously<PIECE *(int)sizeof(T)>(to, source + j, true);
      }
    }
  }
  DEVICE void clear_zeros() const {
    for (int i = thread; i < SIZE; i += threads) zeros()[i] = T(0);
  }

  /* x := minus the product of the blocks in block row i of L and the rows of X above it, for column c. */
  DEVICE void take_off(int i, int first, int c, T (&x)[BLOCK]) const {
    const bool odd = c & 1;
    const T *l = block(i, first) + odd * HALF;
    const int in_block = c % BLOCK & ~1;
    T sum[2][BLOCK / 2] = {};
    rolled_for (int k = first; k < i; k++, l += SIZE) {
      /* In the first block row half of the warp's columns are still zero, and not stored. */
      const T *above = (c / BLOCK > k ? zeros() : block(k, c / BLOCK)) + in_block;
      unrolled_for (int j = 0; j < BLOCK; j += VECTOR) {
        pair x_j[VECTOR];
        unrolled_for (int q = 0; q < VECTOR; q++) x_j[q] = *(const pair *)(above + row(j + q));
        unrolled_for (int r = 0; r < BLOCK / 2; r++) {
          const vector l_rj = *(const vector *)(l + r * BLOCK + j);
          unrolled_for (int q = 0; q < VECTOR; q++) {
            sum[0][r] -= l_rj.value[q] * x_j[q].value[0];
            sum[1][r] -= l_rj.value[q] * x_j[q].value[1];
          }
        }
      }
    }
    unrolled_for (int r = 0; r < BLOCK / 2;
                  r++) { /* neighbours exchange a column, and get the other rows of their own */
      const T own = odd ? sum[1][r] : sum[0][r], other = __shfl_xor_sync(0xffffffffu, odd ? sum[0][r] : sum[1][r], 1);
      x[r] = odd ? other : own;
      x[r + BLOCK / 2] = odd ? own : other;
    }
  }

  /* x := the inverse of the triangle on the diagonal times x. */
  DEVICE void solve(int i, T (&x)[BLOCK]) const {
    const T *l = block(i, i);
    unrolled_for (int r = 1; r < BLOCK; r++)
      unrolled_for (int s = 0; s < r; s += VECTOR) {
        const vector l_rs = *(const vector *)(l + row(r) + s);
        unrolled_for (int q = 0; q < VECTOR; q++)
          if (s + q < r) x[r] -= l_rs.value[q] * x[s + q];
      }
  }

  DEVICE void write_zeros(bool wanted, T *to, int64_t row_stride) const {
#pragma unroll 4
    for (int r = 0; r < thread / 32 * 32; r++, to += row_stride)
      if (wanted) *to = T(0);
  }

  DEVICE void invert(bool present, T *out, int64_t row_stride) const {
    /* Two warps take turns with the first columns, which have most of the work (H200, 1000 of 64 rows: 14.8 us instead
     * of 15.6 in f32, 21.9 instead of 24.8 in f64). With more warps the second barrier costs what that saves. */
    const bool has_turns = threads == 64;
    int group = thread / 32;
    write_zeros(present && thread < n, out + thread, row_stride);
    rolled_for (int i = 0; i < blocks(); i++) {
      const int c = group * 32 + thread % 32, own = c / BLOCK, first = group * (32 / BLOCK);
      T x[BLOCK] = {};
      if (i >= first) {
        const int one = c - i * BLOCK, last = n - i * BLOCK;
        const bool wanted = present && c < n, has_ones = i < first + 32 / BLOCK; /* in some thread of the warp */
        if (i > first) take_off(i, first, c, x);
        if (has_ones) {
          unrolled_for (int r = 0; r < BLOCK; r++) x[r] = r == one ? T(1) : x[r];
        }
        solve(i, x);
        if (has_ones) { /* even in the row of an infinity or NaN */
          unrolled_for (int r = 0; r < BLOCK; r++) x[r] = r == one ? T(1) : r < one ? T(0) : x[r];
        }
        T *to = out + c + i * BLOCK * row_stride;
        if (wanted && last >= BLOCK) {
          unrolled_for (int r = 0; r < BLOCK; r++, to += row_stride) *to = x[r];
        } else if (wanted) {
          unrolled_for (int r = 0; r < BLOCK; r++, to += row_stride)
            if (r < last) *to = x[r];
        }
      }
      if (i + 1 == blocks()) break;
      __syncthreads(); /* all threads have used this block row */
      if (i >= own) {
        T *to = block(i, own) + c % BLOCK;
        unrolled_for (int r = 0; r < BLOCK; r++) to[row(r)] = x[r];
      }
      if (has_turns) {
        group = 1 - group;
        __syncthreads();
      } else {
        __syncwarp(); /* a product takes two columns of the warp */
      }
    }
  }
};

template <typename T> DEVICE void triangular_inverse(const triangular_inverse_parameters &p) {
  extern __shared__ __align__(16) unsigned char shared[];
  const int threads = triangular_inverse_threads(p.n), place = (int)threadIdx.x / threads;
  const int64_t item = (int64_t)blockIdx.x * p.matrices + place;
  const bool present = item < p.batch;
  const unit_triangle<T> triangle = {(T *)(shared + place * triangular_inverse_bytes(p.n, (int)sizeof(T))), p.n,
                                     (int)threadIdx.x - place * threads, threads};
  const T *a = (const T *)p.a.data + item * p.a.batch_stride;
  if (present && p.vectors)
    triangle.template fetch<unit_triangle<T>::VECTOR, 8>(a, p.a.row_stride);
  else if (present)
    triangle.template fetch<1, 16>(a, p.a.row_stride);
  triangle.clear_zeros();
  wait_for_copies();
  __syncthreads();
  triangle.invert(present, (T *)p.out.data + item * p.out.batch_stride, p.out.row_stride);
}

TRIANGULAR_INVERSE_KERNELS(DEFINE_LATE_KERNEL)
