/* rowmax_tile.cu - one warp multiplies two 16 x 16 matrices of bf16 on the tensor cores and takes the maximum of each
 * row of the product. The softmax of a tile begins with these steps. The first two kernels are those of Morales,
 * "Accelerating Fused WMMA Operations via In-Register Data Permutation"; the others show the necessary part of them.
 *
 * Lane 4 group + quad has eight numbers of a 16 x 16 accumulator: x[0], x[1], x[4] and x[5] belong to row group and the
 * columns 2 quad, 2 quad + 1, 2 quad + 8 and 2 quad + 9; the others belong to row group + 8. */
#include <cuda_bf16.h>
#include <mma.h>
#include <stdint.h>

#include "rowmax_tile.h"

using namespace nvcuda;
template <typename Use, typename T, typename... Layout>
using tile_fragment = wmma::fragment<Use, ROWMAX_TILE, ROWMAX_TILE, ROWMAX_TILE, T, Layout...>;
using accumulator = tile_fragment<wmma::accumulator, float>;

/* Each way returns the maximum of a row in each lane. row_of(lane) is the index of that row. One lane has each of the
 * 16 rows; in the other lanes the index is at least 16. */

/* ---- Through shared memory --------------------------------------------------------------------------------------- */

/* Works without the layout of the accumulator. The warp stores the whole tile, and each thread reads a row. The upper
 * half of the warp reads the same rows as the lower half. */
struct through_shared_memory {
  static __device__ int row_of(int lane) { return lane; }

  static __device__ float maximum(const accumulator &product) {
    __shared__ float tile[ROWMAX_TILE * ROWMAX_TILE];
    __syncthreads(); /* no thread reads the previous product's tile any more */
    wmma::store_matrix_sync(tile, product, ROWMAX_TILE, wmma::mem_row_major);
    __syncthreads();
    const float *row = tile + threadIdx.x % ROWMAX_TILE * ROWMAX_TILE;
    float most = row[0];
    for (int column = 1; column < ROWMAX_TILE; column++) most = fmaxf(most, row[column]);
    return most;
  }
};

/* ---- In registers ------------------------------------------------------------------------------------------------ */

__device__ float of_four(float a, float b, float c, float d) { return fmaxf(fmaxf(a, b), fmaxf(c, d)); }

__device__ float of_quad(float most, unsigned mask) {
  most = fmaxf(most, __shfl_xor_sync(mask, most, 1));
  return fmaxf(most, __shfl_xor_sync(mask, most, 2));
}

/* A quad has two rows. Its even lanes return the maximum of the first, its odd lanes that of the second. */
struct in_registers {
  static __device__ int row_of(int lane) { return lane % 4 < 2 ? lane / 4 + 8 * (lane % 4) : ROWMAX_TILE; }

  static __device__ float of_lane(float first, float second, unsigned mask) {
    first = of_quad(first, mask);
    second = of_quad(second, mask);
    return threadIdx.x % 2 ? second : first;
  }
};

/* The numbers of a row move to neighbouring registers, and only the four lanes of a quad reduce together. The compiler
 * renames registers instead of moving numbers, and so the permutation costs nothing. A shuffle mask that differs
 * between quads does cost time. */
template <bool ByQuads> struct permuted_with : in_registers {
  static __device__ float maximum(accumulator &product) {
    auto &x = product.x;
    for (int i = 2; i < 4; i++) {
      const float other = x[i];
      x[i] = x[i + 2];
      x[i + 2] = other;
    }
    return of_lane(of_four(x[0], x[1], x[2], x[3]), of_four(x[4], x[5], x[6], x[7]),
                   ByQuads ? 0xfu << threadIdx.x / 4 * 4 : 0xffffffffu);
  }
};
using permuted_by_quads = permuted_with<true>;
using permuted = permuted_with<false>;

/* The way of the library's kernels. */
struct as_they_lie : in_registers {
  static __device__ float maximum(const accumulator &product) {
    const auto &x = product.x;
    return of_lane(of_four(x[0], x[1], x[4], x[5]), of_four(x[2], x[3], x[6], x[7]), 0xffffffffu);
  }
};

/* ---- The kernels ------------------------------------------------------------------------------------------------- */

/* Computes a number of successive products, each of which waits for the maxima of the previous one. `out` gets the
 * maxima of the last product, `cycles` the cycles of all. */
template <typename How>
__device__ void multiply(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *out, uint64_t *cycles, uint32_t times) {
  tile_fragment<wmma::matrix_a, __nv_bfloat16, wmma::row_major> left;
  tile_fragment<wmma::matrix_b, __nv_bfloat16, wmma::col_major> right; /* as K of Q K^T */
  wmma::load_matrix_sync(left, a, ROWMAX_TILE);
  wmma::load_matrix_sync(right, b, ROWMAX_TILE);
  float most = 0;
  const int64_t begin = clock64();
  for (uint32_t i = 0; i < times; i++) {
    accumulator product;
    wmma::fill_fragment(product, most * 0);
    wmma::mma_sync(product, left, right, product);
    most = How::maximum(product);
  }
  if (threadIdx.x == 0) *cycles = (uint64_t)(clock64() - begin);
  const int row = How::row_of(threadIdx.x);
  if (row < ROWMAX_TILE) out[row] = most;
}

#define DEFINE(name, about, barriers)                                                                                  \
  extern "C" __global__ void __launch_bounds__(32) rowmax_tile_##name(const __nv_bfloat16 *a, const __nv_bfloat16 *b,  \
                                                                      float *out, uint64_t *cycles, uint32_t times) {  \
    multiply<name>(a, b, out, cycles, times);                                                                          \
  }
ROWMAX_TILE_KERNELS(DEFINE)
