/* qr_tile_memory.cuh - where the register-tile QR kernels keep a matrix, and how it comes there and goes: directly, or
 * through shared memory, in any layout. */
#ifndef RONDO_QR_TILE_MEMORY_CUH
#define RONDO_QR_TILE_MEMORY_CUH

#include <utility>

#include "qr_tile.h"
#include "qr_tile_scaling.cuh"

template <int BYTES> __device__ __forceinline__ void copy_asynchronously(void *shared, const void *global) {
  const uint32_t address = (uint32_t)__cvta_generic_to_shared(shared);
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(global), "n"(BYTES) : "memory");
}
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
}

__host__ __device__ constexpr int tile_smaller(int a, int b) { return a < b ? a : b; }

template <typename T_, int ROWS_, int COLUMNS_, int ROW_LANES_, int COLUMN_LANES_, int OPTIONS_> struct tile_shape {
  using T = T_;
  static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, ROW_LANES = ROW_LANES_, COLUMN_LANES = COLUMN_LANES_;
  static constexpr int OPTIONS = OPTIONS_, VECTOR = tile_number<T>::VECTOR;
  static constexpr int TILE_ROWS = ROWS / ROW_LANES, TILE_COLUMNS = COLUMNS / COLUMN_LANES;
  static constexpr int LANES = ROW_LANES * COLUMN_LANES, MATRICES = LANES < 32 ? 32 / LANES : 1;
  static constexpr int THREADS = LANES * MATRICES;
  static constexpr bool SHUFFLED = OPTIONS & QR_TILE_SHUFFLED, OWN_NORM = OPTIONS & QR_TILE_OWN_NORM,
                        SCATTERED = OPTIONS & QR_TILE_SCATTERED, STAGED = OPTIONS & QR_TILE_STAGED,
                        PERSISTENT = OPTIONS & QR_TILE_PERSISTENT, AT_ONCE = OPTIONS & QR_TILE_AT_ONCE,
                        HALVES = OPTIONS & QR_TILE_HALVES, BULK = OPTIONS & QR_TILE_BULK,
                        UNROLLED = OPTIONS & QR_TILE_UNROLLED, DIRECT = OPTIONS & QR_TILE_DIRECT,
                        FETCHED = STAGED || PERSISTENT || HALVES;
  static_assert(TILE_ROWS * ROW_LANES == ROWS && TILE_COLUMNS * COLUMN_LANES == COLUMNS && ROW_LANES <= 32);
  static_assert((!SHUFFLED && !OWN_NORM) || LANES <= 32);
  /* Steps come in blocks, within which the local row and column of the pivot are constants. */
  static constexpr int MERGED = OPTIONS & QR_TILE_MERGED ? 2 : 1; /* local rows that share a block: half the code */
  static constexpr int BLOCK = MERGED * tile_smaller(ROW_LANES, COLUMN_LANES), BLOCKS = COLUMNS / BLOCK;
  /* The offset is a multiple of it: few places to enter at. */
  static constexpr int OFFSET_UNIT = qr_tile_offset_unit(COLUMNS);
  static_assert(!HALVES || (2 * COLUMNS <= ROW_LANES && LANES > 32));
  static_assert(MERGED == 1 || (BLOCK == 2 * ROW_LANES && BLOCK <= COLUMN_LANES));
  /* In shared memory: the pivot column twice, the scales of the columns, the matrix. In numbers, for one matrix. */
  static constexpr int SLICE = TILE_ROWS % VECTOR == 0 && TILE_ROWS > VECTOR ? TILE_ROWS + VECTOR : TILE_ROWS;
  static constexpr int PIVOTS = SHUFFLED ? 0 : 2 * ROW_LANES * SLICE, LEADING = BULK ? ROWS : ROWS + VECTOR;
  static constexpr int STAGE = FETCHED ? LEADING * COLUMNS : 0;
  static constexpr int FACTORS = HALVES ? COLUMNS : 0;
  static constexpr int SHARED_BYTES =
      MATRICES * (PIVOTS + COLUMNS + STAGE + FACTORS) * (int)sizeof(T) + (BULK ? 16 : 0);
  static_assert(SHARED_BYTES == qr_tile_shared_bytes((int)sizeof(T), ROWS, COLUMNS, ROW_LANES, COLUMN_LANES, OPTIONS));
};

/* The registers of a lane, and all that moves numbers to and from them. */
template <typename Shape> struct tile_memory {
  using T = typename Shape::T;
  using vector = typename tile_number<T>::vector;
  static constexpr int ROWS = Shape::ROWS, COLUMNS = Shape::COLUMNS, GR = Shape::ROW_LANES, GC = Shape::COLUMN_LANES;
  static constexpr int P = Shape::TILE_ROWS, Q = Shape::TILE_COLUMNS, VECTOR = Shape::VECTOR, BLOCK = Shape::BLOCK;

  const qr_tile_parameters &p;
  T a[P][Q];
  T u[Q], nu[Q]; /* of this lane's columns once they are final */
  T *pivots, *scales, *stage;
  int lane, row, column; /* of this thread in the matrix */
  int item_lane;         /* the first lane of the matrix in its warp */
  bool scaled;           /* some column of this warp is */
  int first_column;      /* of the half: 0 or COLUMNS */

  __device__ __forceinline__ tile_memory(const qr_tile_parameters &parameters, T *shared) : p(parameters) {
    const int matrix = (int)threadIdx.x / Shape::LANES;
    lane = (int)threadIdx.x % Shape::LANES;
    row = lane % GR;
    column = lane / GR;
    item_lane = (int)(threadIdx.x & 31) & ~(tile_smaller(Shape::LANES, 32) - 1);
    pivots = shared + matrix * Shape::PIVOTS;
    scales = shared + Shape::MATRICES * Shape::PIVOTS + matrix * COLUMNS;
    stage = shared + Shape::MATRICES * (Shape::PIVOTS + COLUMNS) + matrix * Shape::STAGE;
    scaled = false;
    first_column = 0;
  }

  /* The first column that this tile holds, and how many; its diagonal is as many rows down. */
  __device__ __forceinline__ int begin() const { return Shape::HALVES ? first_column : 0; }
  __device__ __forceinline__ int columns() const { return Shape::HALVES ? min(p.n - first_column, COLUMNS) : p.n; }

  __device__ __forceinline__ bool full() const { return p.m == ROWS && columns() == COLUMNS; }
  __device__ __forceinline__ void sync() const {
    if constexpr (Shape::LANES <= 32)
      __syncwarp();
    else
      __syncthreads();
  }

  /* ---- between global and shared memory ---- */

  /* move(i, j) for all i below `along`, next to each other in memory, and j below `across`. No lane idles. */
  template <typename Move> __device__ __forceinline__ void walk(int along, int across, const Move &move) {
    const int step_across = Shape::LANES / along, step_along = Shape::LANES - step_across * along;
    int j = lane / along, i = lane - j * along;
#pragma unroll 4
    while (j < across) {
      move(i, j);
      i += step_along;
      j += step_across;
      if (i >= along) {
        i -= along;
        j++;
      }
    }
  }

  /* move(numbers, row, column, column stride) for every piece of the matrix. */
  template <typename Move>
  __device__ __forceinline__ void each_piece(int access, int64_t column_stride, const Move &move) {
    constexpr int PIECES = ROWS / VECTOR;
    static_assert(PIECES % Shape::LANES == 0 || Shape::LANES % PIECES == 0);
    if (access == QR_TILE_DENSE && full()) {
      const int i = lane % PIECES * VECTOR, j = lane / PIECES;
#pragma unroll
      for (int k = 0; k < PIECES * COLUMNS; k += Shape::LANES) /* either k is a multiple of PIECES, or j is 0 */
        move(std::integral_constant<int, VECTOR>{}, i + k % PIECES * VECTOR, j + k / PIECES, ROWS);
    } else if (access <= QR_TILE_VECTORS) {
      walk(p.m / VECTOR, columns(),
           [&](int i, int j) { move(std::integral_constant<int, VECTOR>{}, i * VECTOR, j, column_stride); });
    } else {
      const bool down = access == QR_TILE_CONTIGUOUS;
      walk(down ? p.m : columns(), down ? columns() : p.m,
           [&](int i, int j) { move(std::integral_constant<int, 1>{}, down ? i : j, down ? j : i, column_stride); });
    }
  }

  __device__ __forceinline__ T &staged(int i, int j) const {
    return stage[(j + p.offset) * Shape::LEADING + i + p.offset];
  }

  __device__ __forceinline__ void fetch(int64_t item) {
    const T *from = (const T *)p.a.data + item * p.a.batch_stride + begin() * p.a.column_stride;
    const int64_t row_stride = p.a.row_stride;
    each_piece(p.a_access, p.a.column_stride, [&](auto count, int i, int j, int64_t column_stride) {
      const int64_t down = count.value == VECTOR ? i : i * row_stride;
      copy_asynchronously<count.value *(int)sizeof(T)>(&staged(i, j), from + (down + j * column_stride));
    });
  }

  __device__ __forceinline__ void put(int64_t item) {
    T *to = (T *)p.h.data + item * p.h.batch_stride;
    const int64_t row_stride = p.h.row_stride;
    each_piece(p.h_access, p.h.column_stride, [&](auto count, int i, int j, int64_t column_stride) {
      if constexpr (count.value == VECTOR)
        *(vector *)(to + i + j * column_stride) = *(const vector *)&staged(i, j);
      else
        to[i * row_stride + j * column_stride] = staged(i, j);
    });
  }

  /* ---- one bulk copy (PTX ISA, cp.async.bulk) ---- */

  __device__ __forceinline__ bool in_bulk() const {
#if __CUDA_ARCH__ >= 900
    return Shape::BULK && p.a_access == QR_TILE_DENSE && full();
#else
    return false;
#endif
  }
  __device__ __forceinline__ uint32_t barrier() const {
    return (uint32_t)__cvta_generic_to_shared(stage + Shape::STAGE + Shape::FACTORS);
  }
  __device__ __forceinline__ void start_fetching() {
#if __CUDA_ARCH__ >= 900
    if (!in_bulk()) return;
    if (threadIdx.x == 0)
      asm volatile("mbarrier.init.shared.b64 [%0], "
                   "1;\nfence.mbarrier_init.release.cluster;" ::"r"(barrier())
                   : "memory");
    __syncthreads();
#endif
  }
  /* After a barrier behind the last access to `stage`. */
  __device__ __forceinline__ void fetch_ahead(int64_t item) {
#if __CUDA_ARCH__ >= 900
    if (in_bulk()) {
      constexpr uint32_t BYTES = ROWS * COLUMNS * sizeof(T);
      if (threadIdx.x == 0)
        asm volatile("fence.proxy.async.shared::cta;\n"
                     "mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;\n"
                     "cp.async.bulk.shared::cluster.global.mbarrier::complete_"
                     "tx::bytes [%2], [%3], %1, [%0];" ::"r"(barrier()),
                     "r"(BYTES), "r"((uint32_t)__cvta_generic_to_shared(stage)),
                     "l"((const T *)p.a.data + item * p.a.batch_stride)
                     : "memory");
      return;
    }
#endif
    fetch(item);
  }
  __device__ __forceinline__ void wait_for_fetch(uint32_t phase) {
#if __CUDA_ARCH__ >= 900
    if (in_bulk()) {
      asm volatile("{\n.reg .pred p;\nwaiting:\nmbarrier.try_wait.parity.shared.b64 p, "
                   "[%0], %1;\n@!p bra waiting;\n}" ::"r"(barrier()),
                   "r"(phase)
                   : "memory");
      return;
    }
#endif
    wait_for_copies();
    sync();
  }

  /* Zeros around a matrix that is smaller than the tile. */
  __device__ __forceinline__ void pad_stage() {
    if (full()) return;
    const int first = p.offset, rows = first + p.m, last = first + columns();
#pragma unroll 1
    for (int j = 0; j < COLUMNS; j++) /* columns beside it */
      if (j < first || j >= last)
        for (int i = lane; i < ROWS; i += Shape::LANES) stage[j * Shape::LEADING + i] = T(0);
#pragma unroll 1
    for (int j = first + lane; j < last; j += Shape::LANES) { /* rows above and below it */
      for (int i = 0; i < first; i++) stage[j * Shape::LEADING + i] = T(0);
      for (int i = rows; i < ROWS; i++) stage[j * Shape::LEADING + i] = T(0);
    }
  }

  /* ---- between memory and registers ---- */

  /* A lane's part of one column of the tile, which is 16-byte aligned where that is all of it. The row is added first,
   * so that the rest are offsets within instructions. */
  __device__ __forceinline__ void read_column(const T *from, int q) {
    from += row;
#pragma unroll
    for (int i = 0; i < P; i += GR == 1 ? VECTOR : 1)
      if constexpr (GR == 1) {
        const vector v = *(const vector *)(from + i);
#pragma unroll
        for (int k = 0; k < VECTOR; k++) a[i + k][q] = ((const T *)&v)[k];
      } else
        a[i][q] = from[i * GR];
  }
  __device__ __forceinline__ void write_column(T *to, int q) const {
    to += row;
#pragma unroll
    for (int i = 0; i < P; i += GR == 1 ? VECTOR : 1)
      if constexpr (GR == 1) {
        vector v;
#pragma unroll
        for (int k = 0; k < VECTOR; k++) ((T *)&v)[k] = a[i + k][q];
        *(vector *)(to + i) = v;
      } else
        to[i * GR] = a[i][q];
  }

  __device__ __forceinline__ void read_stage() {
#pragma unroll
    for (int q = 0; q < Q; q++) read_column(stage + (q * GC + column) * Shape::LEADING, q);
  }

  /* Where a lane has whole columns they may lie anyhow, else they are contiguous: other matrices are staged. */
  __device__ __forceinline__ bool plain(int access) const { return full() && (GR > 1 || access <= QR_TILE_VECTORS); }

  __device__ __forceinline__ void read_directly(int64_t item) {
    const T *from = (const T *)p.a.data + item * p.a.batch_stride;
    if (plain(p.a_access)) {
#pragma unroll
      for (int q = 0; q < Q; q++) read_column(from + (q * GC + column) * p.a.column_stride, q);
      return;
    }
    const int64_t step = GR == 1 ? p.a.row_stride : GR;
    const int i = row - p.offset;
#pragma unroll
    for (int q = 0; q < Q; q++) {
      const int j = q * GC + column - p.offset;
      const T *element = from + j * p.a.column_stride + i * (GR == 1 ? step : 1);
#pragma unroll
      for (int k = 0; k < P; k++)
        a[k][q] = (uint32_t)(i + k * GR) < (uint32_t)p.m && (uint32_t)j < (uint32_t)p.n ? element[k * step] : T(0);
    }
  }

  __device__ __forceinline__ void write_directly(int64_t item, int q) const {
    T *to = (T *)p.h.data + item * p.h.batch_stride + begin() * p.h.column_stride;
    if (plain(p.h_access)) {
      write_column(to + (q * GC + column) * p.h.column_stride, q);
      return;
    }
    const int64_t step = GR == 1 ? p.h.row_stride : GR;
    const int i = row - p.offset, j = q * GC + column - p.offset;
    T *element = to + j * p.h.column_stride + i * (GR == 1 ? step : 1);
#pragma unroll
    for (int k = 0; k < P; k++)
      if ((uint32_t)(i + k * GR) < (uint32_t)p.m && (uint32_t)j < (uint32_t)columns()) element[k * step] = a[k][q];
  }

  __device__ __forceinline__ void scale_columns() { scale_extreme_columns<GR, GC>(a, row, column, scales, scaled); }
};
#endif
