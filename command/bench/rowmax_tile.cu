/* rowmax_tile.cu - one warp multiplies two 16 x 16 matrices of bf16 on the tensor cores and takes the maximum of each
 * row of the product, as the softmax of a tile begins: the experiment of Morales, "Accelerating Fused WMMA Operations
 * via In-Register Data Permutation", whose kernels are the first two. The others show what of it is needed.
 *
 * Of a 16 x 16 accumulator lane 4 group + quad has eight numbers: x[0], x[1], x[4] and x[5] are of row group, columns
 * 2 quad, 2 quad + 1 and those plus 8; the others of row group + 8. */
#include <cuda_bf16.h>
#include <mma.h>
#include <stdint.h>

#include "rowmax_tile.h"

using namespace nvcuda;
template <typename Use, typename T, typename... Layout>
using tile_fragment = wmma::fragment<Use, ROWMAX_TILE, ROWMAX_TILE, ROWMAX_TILE, T, Layout...>;
using accumulator = tile_fragment<wmma::accumulator, float>;

/* Each way returns the maximum of some row in each lane; of row `row_of` where that is one of the sixteen, once for
 * each of them. */

/* ---- Through shared memory --------------------------------------------------------------------------------------- */

/* Without knowing who has what: all of the tile is stored, and a thread reads its row, the upper half of the warp those
 * of the lower again. */
struct through_shared_memory {
  static __device__ int row_of(int lane) { return lane; }

  static __device__ float maximum(const accumulator &product) {
    __shared__ float tile[ROWMAX_TILE * ROWMAX_TILE];
    __syncthreads(); /* the tile of the product before is no longer read */
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

/* A quad has two rows: an even lane speaks for the first, an odd one for the second. */
struct in_registers {
  static __device__ int row_of(int lane) { return lane % 4 < 2 ? lane / 4 + 8 * (lane % 4) : ROWMAX_TILE; }

  static __device__ float of_lane(float first, float second, unsigned mask) {
    first = of_quad(first, mask);
    second = of_quad(second, mask);
    return threadIdx.x % 2 ? second : first;
  }
};

/* Numbers of a row are brought to neighbouring registers, and only the four lanes of a quad meet. The compiler knows
 * where a number is without moving it, so that the permutation is nothing; a mask that differs from quad to quad is
 * something. */
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

/* What the library's kernels do. */
struct as_they_lie : in_registers {
  static __device__ float maximum(const accumulator &product) {
    const auto &x = product.x;
    return of_lane(of_four(x[0], x[1], x[4], x[5]), of_four(x[2], x[3], x[6], x[7]), 0xffffffffu);
  }
};

/* ---- The kernels ------------------------------------------------------------------------------------------------- */

/* So many products one after the other, each of which waits for the maxima of the one before it; out has those of the
 * last, and cycles those of all. */
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
