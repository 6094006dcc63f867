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

DEVICE vector_offsets offsets_of(const copy_parameters &p, uint32_t index) {
  uint32_t row = index / p.row, column = index - row * p.row;
  vector_offsets at = {column, column};
  row_indices(row, p.extent, [&](int i, uint32_t index) {
    at.src += index * p.src_stride[i];
    at.dst += index * p.dst_stride[i];
  });
  return at;
}

DEVICE void copy_rows(const copy_parameters &p) {
  const bool dense = p.row == p.total;
  move_vectors<COPY_UNROLL>(p, [&](uint32_t index) {
    return dense ? vector_offsets{index, index} : offsets_of(p, index);
  });
}

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
