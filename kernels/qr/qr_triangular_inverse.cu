/* qr_triangular_inverse.cu - inverses of unit lower triangular matrices, 16 to 128 rows, a thread for each column.
 *
 * Forward substitution, 16 rows at a time: a thread keeps 16 elements of its column x in registers, takes off the rows
 * above (x_j from its own column in shared memory, a_ij broadcast to the warp, four at a time), then solves the 16 x 16
 * triangle in registers. It is the right-stable order (Du Croz and Higham, Stability of methods for matrix inversion,
 * 1992): no product of inverses is formed, whose errors grow where the triangle is ill-conditioned.
 *
 * Shared memory holds the lower triangle in blocks of 16 rows, block I being 16 x 16 (I + 1); the inverse takes the
 * place of the matrix, block by block, once every thread has used that block. Bound by broadcast reads of shared
 * memory. */
#include "../common/launch.cuh"
#include "qr.h"

constexpr int BLOCK = QR_TRIANGULAR_BLOCK;

template <typename T> struct alignas(16) four { T value[4]; };

/* The element (block * 16, 0) of the packed triangle; its rows are 16 (block + 1) long. */
template <typename T> __device__ __forceinline__ T *block_row(T *matrix, int block) {
  return matrix + BLOCK * BLOCK * block * (block + 1) / 2;
}

template <typename T> __device__ __forceinline__ void triangular_inverse(const triangular_inverse_parameters &p) {
  extern __shared__ __align__(16) unsigned char shared[];
  const int blocks = (p.n + BLOCK - 1) / BLOCK, threads = blocks * BLOCK;
  const int c = (int)threadIdx.x % threads, own_block = c / BLOCK;
  const int64_t item = (int64_t)blockIdx.x * p.matrices + (int)threadIdx.x / threads;
  T *matrix = (T *)shared + (int)threadIdx.x / threads * (BLOCK * BLOCK * blocks * (blocks + 1) / 2);
  const bool present = item < p.batch;
  const T *a = (const T *)p.a.data + item * p.a.batch_stride;
  T *out = (T *)p.out.data + item * p.out.batch_stride;

  for (int i = own_block * BLOCK; i < threads; i++) { /* the strict lower triangle, zeros elsewhere and beyond n */
    const int block = i / BLOCK;
    block_row(matrix, block)[(i % BLOCK) * BLOCK * (block + 1) + c] =
        present && i < p.n && c < i ? a[i * p.a.row_stride + c] : T(0);
  }
  __syncthreads();
#pragma unroll 1
  for (int block = 0; block < blocks; block++) {
    T *rows = block_row(matrix, block), x[BLOCK];
    const int length = BLOCK * (block + 1);
    if (own_block <= block) {
#pragma unroll
      for (int r = 0; r < BLOCK; r++) x[r] = block * BLOCK + r == c ? T(1) : T(0);
      for (int source = own_block; source < block; source++) {
        const T *above = block_row(matrix, source) + c;
#pragma unroll 1
        for (int j = 0; j < BLOCK; j += 4) {
          T x_j[4];
#pragma unroll
          for (int q = 0; q < 4; q++) x_j[q] = above[(j + q) * BLOCK * (source + 1)];
#pragma unroll
          for (int r = 0; r < BLOCK; r++) {
            const four<T> a_rj = *(const four<T> *)(rows + r * length + source * BLOCK + j);
#pragma unroll
            for (int q = 0; q < 4; q++) x[r] -= a_rj.value[q] * x_j[q];
          }
        }
      }
#pragma unroll
      for (int r = 1; r < BLOCK; r++) {
#pragma unroll
        for (int s = 0; s < r; s++) x[r] -= rows[r * length + block * BLOCK + s] * x[s];
      }
    }
    __syncthreads(); /* everyone has used these rows */
    if (own_block > block) continue;
#pragma unroll
    for (int r = 0; r < BLOCK; r++) rows[r * length + c] = x[r];
  }
  if (!present || c >= p.n) return;
  for (int i = 0; i < p.n; i++) {
    const int block = i / BLOCK;
    const T below = c < i ? block_row(matrix, block)[(i % BLOCK) * BLOCK * (block + 1) + c] : T(0);
    out[i * p.out.row_stride + c] = c == i ? T(1) : below; /* ones even in the row of an infinity or NaN */
  }
}

TRIANGULAR_INVERSE_KERNELS(DEFINE_KERNEL)
