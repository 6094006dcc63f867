/* copy.cu - copies the rows of a rectangle from src to dst.
 *
 * Bound by memory, or by the bus if src or dst is pinned host memory. The smallest copies are bound by the time to the
 * first instruction and by the number of instructions. They have a kernel of their own with a fiftieth of the code.
 *
 * The kernel moves vectors of 1 to 16 bytes. Consecutive threads take consecutive vectors, so that a warp moves whole
 * sectors, and over PCIe whole read requests. Each thread has four loads in flight before its first store. */
#include "../common/launch.cuh"
#include "../common/rectangle.cuh"
#include "copy.h"

/* The offsets of one vector of the rectangle in src and in dst, in vectors. */
struct offsets {
  int64_t src, dst;
};

DEVICE offsets offsets_of(const copy_parameters &p, uint32_t index) {
  uint32_t row = index / p.row, column = index - row * p.row;
  offsets at = {column, column};
  row_indices(row, p.extent, [&](int i, uint32_t index) {
    at.src += index * p.src_stride[i];
    at.dst += index * p.dst_stride[i];
  });
  return at;
}

template <typename V> struct copy_of {
  static DEVICE void move(const copy_parameters &p) {
    const V *src = (const V *)p.src;
    V *dst = (V *)p.dst;
    const uint32_t step = gridDim.x * COPY_THREADS;
    const bool dense = p.row == p.total;
    for (uint32_t begin = blockIdx.x * COPY_THREADS + threadIdx.x; begin < p.total; begin += COPY_UNROLL * step) {
      V value[COPY_UNROLL];
      int64_t to[COPY_UNROLL];
      unrolled_for (int u = 0; u < COPY_UNROLL; u++) {
        uint32_t index = begin + u * step;
        if (index >= p.total) continue;
        offsets at = dense ? offsets{index, index} : offsets_of(p, index);
        to[u] = at.dst;
        value[u] = src[at.src];
      }
      unrolled_for (int u = 0; u < COPY_UNROLL; u++)
        if (begin + u * step < p.total) dst[to[u]] = value[u];
    }
  }
};

DEVICE void copy_rows(const copy_parameters &p) { move_vectors<copy_of>(p); }

/* No loop and no choice of a width: fetching the instructions takes longer than the copy itself. */
DEVICE void copy_small(const copy_small_parameters &p) {
  const uint32_t vectors = p.bytes / COPY_VECTOR_BYTES, rest = p.bytes % COPY_VECTOR_BYTES;
  const uint32_t vector_at = blockIdx.x * COPY_THREADS + threadIdx.x;
  const uint32_t byte_at = vectors * COPY_VECTOR_BYTES + vector_at;
  uint4 vector = {};
  char byte = 0;
  if (vector_at < vectors) vector = ((const uint4 *)p.src)[vector_at];
  if (vector_at < rest) byte = ((const char *)p.src)[byte_at];
  if (vector_at < vectors) ((uint4 *)p.dst)[vector_at] = vector;
  if (vector_at < rest) ((char *)p.dst)[byte_at] = byte;
}

COPY_KERNELS(DEFINE_SHORT_KERNEL)
