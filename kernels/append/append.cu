/* append.cu - copies the rows of src to consecutive rows of dst, from a position that the kernel reads.
 *
 * Bound by memory. The few rows of a decode step are bound by the time to the first instruction.
 *
 * The kernel moves vectors of 1 to 16 bytes. Consecutive threads take consecutive vectors of src, so that a warp reads
 * and writes whole sectors if the pieces are long enough. Each thread has four loads in flight before its first store.
 * The kernel drops a vector whose row lies outside dst. */
#include "../common/launch.cuh"
#include "../common/rectangle.cuh"
#include "append.h"

/* dst is -1 if the row lies outside dst. */
DEVICE vector_offsets offsets_of(const append_parameters &p, uint32_t index) {
  uint32_t piece = index / p.piece, column = index - piece * p.piece, row = 0, item = 0;
  int64_t row_stride = 0;
  vector_offsets at = {column, column};
  unrolled_for (int i = APPEND_OUTER - 1; i >= 0; i--) {
    uint32_t outer = piece / p.extent[i], inner = piece - outer * p.extent[i];
    at.src += inner * p.src_stride[i];
    at.dst += inner * p.dst_stride[i];
    if (i == p.dimension) {
      row = inner;
      row_stride = p.dst_stride[i];
    }
    if (i == 0) item = inner;
    piece = outer;
  }
  int64_t position = p.positions[p.per_item ? item : 0];
  bool is_there = position + row >= 0 && position + row < p.capacity;
  at.dst = is_there ? at.dst + position * row_stride : -1;
  return at;
}

DEVICE void append_rows(const append_parameters &p) {
  move_vectors<APPEND_UNROLL>(p, [&](uint32_t index) { return offsets_of(p, index); });
}

APPEND_KERNELS(DEFINE_SHORT_KERNEL)
