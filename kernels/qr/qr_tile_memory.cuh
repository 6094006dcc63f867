/* qr_tile_memory.cuh - the registers and shared memory of a register tile, and the copies between them and matrices in
 * any layout: directly, or through shared memory. */
#pragma once

#include <cuda_fp16.h>
#include <utility>

#include "../common/barrier.cuh"
#include "../common/ptx.cuh"
#include "qr_tile.h"
#include "qr_tile_scaling.cuh"

/* Copies BYTES bytes, or writes as many zeros and reads nothing. */
template <int BYTES> DEVICE void copy_asynchronously(void *shared, const void *global, bool is_there = true) {
  const uint32_t address = shared_address(shared), bytes = is_there ? BYTES : 0;
  if constexpr (BYTES == 16)
    cp_async_16(address, global, bytes);
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(global), "n"(BYTES), "r"(bytes)
                 : "memory");
}
DEVICE void wait_for_copies() {
  cp_async_commit();
  cp_async_wait<0>();
}

__host__ __device__ constexpr int tile_smaller(int a, int b) { return a < b ? a : b; }

template <typename T_, int ROWS_, int COLUMNS_, int ROW_LANES_, int COLUMN_LANES_, int OPTIONS_> struct tile_shape {
  using T = T_;
  static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, ROW_LANES = ROW_LANES_, COLUMN_LANES = COLUMN_LANES_;
  static constexpr int OPTIONS = OPTIONS_, VECTOR = tile_number<T>::VECTOR;
  static constexpr int TILE_ROWS = ROWS / ROW_LANES, TILE_COLUMNS = COLUMNS / COLUMN_LANES;
  static constexpr int LANES = ROW_LANES * COLUMN_LANES, MATRICES = LANES < 32 ? 32 / LANES : 1;
  static constexpr int THREADS = LANES * MATRICES;
  static constexpr bool SHUFFLED = OPTIONS & TILE_SHUFFLED, OWN_NORM = OPTIONS & TILE_OWN_NORM,
                        SCATTERED = OPTIONS & (TILE_SCATTERED | TILE_LOWERED), PERSISTENT = OPTIONS & TILE_PERSISTENT,
                        AT_ONCE = OPTIONS & TILE_AT_ONCE, H_ALONE = OPTIONS & TILES_OF_H,
                        HALVES = OPTIONS & TILE_HALVES, UNROLLED = OPTIONS & TILE_UNROLLED,
                        DIRECT = OPTIONS & TILE_DIRECT, PACKED = OPTIONS & TILE_PACKED,
                        LOWERED = OPTIONS & TILE_LOWERED, CROWDED = OPTIONS & TILE_CROWDED,
                        IN_PLACE = OPTIONS & TILE_IN_PLACE, STAGED = !PERSISTENT && !HALVES && !IN_PLACE;
  static_assert(TILE_ROWS * ROW_LANES == ROWS && TILE_COLUMNS * COLUMN_LANES == COLUMNS && ROW_LANES <= 32);
  static_assert((!SHUFFLED && !OWN_NORM) || LANES <= 32);
  /* From this local row on rows are dealt in vectors: no pivot is among them. */
  static constexpr int VECTORS_FROM = ROW_LANES == 1 ? 0 : PACKED ? VECTOR : TILE_ROWS;
  static_assert(!PACKED || (TILE_ROWS % VECTOR == 0 && COLUMNS <= VECTOR * ROW_LANES && !HALVES));
  /* Within a block of steps the local row and column of the pivot are constants. */
  static constexpr int MERGED = OPTIONS & TILE_MERGED ? 2 : 1; /* local rows that share a block: half the code */
  static constexpr int BLOCK = MERGED * tile_smaller(ROW_LANES, COLUMN_LANES), BLOCKS = COLUMNS / BLOCK;
  /* The offset is a multiple of it: few places to enter at. */
  static constexpr int OFFSET_UNIT = qr_tile_offset_unit(ROW_LANES, COLUMN_LANES, OPTIONS);
  static constexpr int OFFSET_MOST = qr_tile_offset_most(COLUMNS);
  static_assert(!IN_PLACE || (PACKED && MATRICES == 1));
  static_assert(!CROWDED || STAGED); /* the stage has a vector after each column */
  static_assert(!HALVES || (2 * COLUMNS <= ROW_LANES && LANES > 32));
  static_assert(MERGED == 1 || (BLOCK == 2 * ROW_LANES && BLOCK <= COLUMN_LANES));
  /* Shared memory of one matrix, in numbers: the pivot column twice, the scales of the columns, the matrix. */
  static constexpr int SLICE = qr_tile_slice((int)sizeof(T), ROWS, ROW_LANES);
  static constexpr int PIVOTS = SHUFFLED ? 0 : 2 * ROW_LANES * SLICE, LEADING = PERSISTENT ? ROWS : ROWS + VECTOR;
  static constexpr int STAGE = IN_PLACE ? 0 : LEADING * COLUMNS, FACTORS = HALVES ? COLUMNS : 0;
  static constexpr int SHARED_BYTES =
      MATRICES * (PIVOTS + COLUMNS + STAGE + FACTORS) * (int)sizeof(T) + (PERSISTENT ? 16 : 0);
  static_assert(SHARED_BYTES == qr_tile_shared_bytes((int)sizeof(T), ROWS, COLUMNS, ROW_LANES, COLUMN_LANES, OPTIONS));
};

/* The registers of a lane, and the copies to and from them. */
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
  bool scaled;           /* some column of this warp is scaled */
  int first_column;      /* of the half: 0 or COLUMNS */

  DEVICE tile_memory(const qr_tile_parameters &parameters, T *shared) : p(parameters) {
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

  /* The first column that this tile holds, which is also the row of its diagonal, and the number of columns. */
  DEVICE int begin() const { return Shape::HALVES ? first_column : 0; }
  DEVICE int columns() const { return Shape::HALVES ? min(p.n - first_column, COLUMNS) : p.n; }

  DEVICE bool full() const { return Shape::PERSISTENT || (p.m == ROWS && columns() == COLUMNS); }
  DEVICE void sync() const {
    if constexpr (Shape::LANES <= 32)
      __syncwarp();
    else
      __syncthreads();
  }

  /* ---- between global and shared memory ---- */

  /* move(i, j) for each COUNT neighbours of an ALONG x ACROSS tile. No lane idles. */
  template <int COUNT, int ALONG, int ACROSS, int TOGETHER, typename Move> DEVICE void walk(const Move &move) {
    constexpr int PIECES = ALONG / COUNT, FURTHER = Shape::LANES % PIECES;
    constexpr bool EVEN = PIECES * ACROSS % Shape::LANES == 0; /* else some lanes have nothing at the end */
    int i = lane % PIECES, j = lane / PIECES;
#pragma unroll TOGETHER
    for (int k = 0; k < PIECES * ACROSS; k += Shape::LANES)
      if constexpr (PIECES % Shape::LANES == 0 || FURTHER == 0) { /* either k is a multiple of PIECES, or j is 0 */
        if (EVEN || j + k / PIECES < ACROSS) move((i + k % PIECES) * COUNT, j + k / PIECES);
      } else {
        if (EVEN || j < ACROSS) move(i * COUNT, j);
        const bool next = i + FURTHER >= PIECES;
        i += next ? FURTHER - PIECES : FURTHER;
        j += Shape::LANES / PIECES + next;
      }
  }

  /* move(i, j) for each number of the first TALL rows. A warp takes a column at a time and computes its address once.
   * walk() would compute an address for each number, and take up to a third longer (H200, 1000 of 73 x 73 in f32 in a
   * tile of 96). */
  template <int TALL, typename Move> DEVICE void walk_columns(const Move &move) {
#pragma unroll 2
    for (int j = lane / 32; j < COLUMNS; j += Shape::LANES / 32)
      unrolled_for (int i = 0; i < TALL; i += 32)
        if (i + 32 <= TALL || lane % 32 < TALL % 32) move(i + lane % 32, j);
  }

  /* The column of the tile in which the matrix begins; its row is p.offset. */
  DEVICE int across() const { return Shape::LOWERED ? 0 : p.offset; }

  /* move(count, row, column, is it inside the matrix?, row stride, column stride) for each piece of the first TALL rows
   * of the tile, in which a matrix of rows x columns stands at the offset. Offsets and aligned columns consist of whole
   * vectors, so a piece is inside or outside. TOGETHER: unrolled steps for a dense matrix. */
  template <int TALL, int TOGETHER, typename Move>
  DEVICE void each_piece(const qr_matrix &matrix, int access, int rows, int columns, const Move &move) {
    using whole = std::integral_constant<int, VECTOR>;
    using single = std::integral_constant<int, 1>;
    const int64_t row_stride = matrix.row_stride, column_stride = matrix.column_stride;
    constexpr bool ALIGNED = TALL / VECTOR % Shape::LANES == 0 || Shape::LANES % (TALL / VECTOR) == 0;
    const auto inside = [&](int i, int j) {
      return (uint32_t)(i - p.offset) < (uint32_t)rows && (uint32_t)(j - across()) < (uint32_t)columns;
    };
    if (ALIGNED && access == QR_TILE_DENSE && rows == TALL && columns == COLUMNS)
      walk<VECTOR, TALL, COLUMNS, TOGETHER>([&](int i, int j) { move(whole{}, i, j, true, 1, TALL); });
    else if (access <= QR_TILE_VECTORS)
      walk<VECTOR, TALL, COLUMNS, 4>([&](int i, int j) { move(whole{}, i, j, inside(i, j), 1, column_stride); });
    else if (access == QR_TILE_CONTIGUOUS) {
      const auto each = [&](int i, int j) { move(single{}, i, j, inside(i, j), 1, column_stride); };
      if constexpr (Shape::LANES >= 32 && TALL % Shape::LANES != 0 && Shape::LANES % TALL != 0)
        walk_columns<TALL>(each);
      else
        walk<1, TALL, COLUMNS, 4>(each);
    } else
      walk<1, COLUMNS, TALL, 4>([&](int j, int i) { move(single{}, i, j, inside(i, j), row_stride, column_stride); });
  }
  template <typename Move> DEVICE void each_piece_of_a(int access, const Move &move) {
    each_piece<ROWS, ROWS * COLUMNS>(p.a, access, p.m, columns(), move);
  }

  DEVICE T &staged(int i, int j) const { return stage[j * Shape::LEADING + i]; }

  /* f16 and bf16 become f32. */
  DEVICE T widened(uint16_t bits) const {
    return p.a_number == QR_BF16 ? __uint_as_float((uint32_t)bits << 16) : __half2float(__ushort_as_half(bits));
  }
  DEVICE void fetch_widening(int64_t item) {
    const uint16_t *matrix = (const uint16_t *)p.a.data + item * p.a.batch_stride;
    const int access = max(p.a_access, (int)QR_TILE_VECTORS);
    each_piece_of_a(access, [&](auto count, int i, int j, bool is_inside, int64_t row_stride, int64_t column_stride) {
      const uint16_t *from = matrix + ((int64_t)(i - p.offset) * row_stride + (j - across()) * column_stride);
      if constexpr (count.value == VECTOR) {
        const ushort4 bits = is_inside ? *(const ushort4 *)from : make_ushort4(0, 0, 0, 0);
        *(vector *)&staged(i, j) = {widened(bits.x), widened(bits.y), widened(bits.z), widened(bits.w)};
      } else
        staged(i, j) = is_inside ? widened(*from) : T(0);
    });
  }

  /* Zeros surround a matrix that is smaller than the tile. Widening takes two more loops, which not every kernel has.
   */
  template <bool MAY_WIDEN = false> DEVICE void fetch(int64_t item) {
    if constexpr (MAY_WIDEN && sizeof(T) == 4)
      if (p.a_number != QR_OWN) {
        fetch_widening(item);
        return;
      }
    const T *matrix = (const T *)p.a.data + item * p.a.batch_stride + begin() * p.a.column_stride;
    each_piece_of_a(
        p.a_access, [&](auto count, int i, int j, bool is_inside, int64_t row_stride, int64_t column_stride) {
          const T *from = matrix + ((int64_t)(i - p.offset) * row_stride + (j - across()) * column_stride);
          copy_asynchronously<count.value *(int)sizeof(T)>(&staged(i, j), is_inside ? from : matrix, is_inside);
        });
  }

  /* A matrix of rows x columns from shared memory, in which columns are `leading` numbers apart. Kernels with more live
   * numbers than the matrix would spill if all steps were unrolled. */
  template <int TALL, int TOGETHER>
  DEVICE void put(const qr_matrix &matrix, int access, int rows, int columns, const T *from, int leading,
                  int64_t item) {
    T *data = (T *)matrix.data + item * matrix.batch_stride;
    const auto move = [&](auto count, int i, int j, bool is_inside, int64_t row_stride, int64_t column_stride) {
      if (!is_inside) return;
      T *to = data + ((int64_t)(i - p.offset) * row_stride + (j - across()) * column_stride);
      if constexpr (count.value == VECTOR)
        *(vector *)to = *(const vector *)(from + j * leading + i);
      else
        *to = from[j * leading + i];
    };
    each_piece<TALL, TOGETHER>(matrix, access, rows, columns, move);
  }
  DEVICE void put_h(int64_t item) {
    put<ROWS, ROWS * COLUMNS>(p.h, p.h_access, p.m, columns(), stage, Shape::LEADING, item);
  }

  /* ---- The next whole dense matrix: one bulk copy on chips that have it (PTX ISA, cp.async.bulk) ---- */

  DEVICE uint32_t barrier() const { return shared_address(stage + Shape::STAGE); }
  DEVICE void start_fetching() {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
      barrier_init(barrier(), 1);
      barriers_are_initialised();
    }
    __syncthreads();
#endif
  }
  /* Called after a barrier that follows the last access to `stage`. */
  DEVICE void fetch_ahead(int64_t item) {
    const T *from = (const T *)p.a.data + item * p.a.batch_stride;
#if __CUDA_ARCH__ >= 900
    constexpr uint32_t BYTES = ROWS * COLUMNS * sizeof(T);
    if (threadIdx.x) return;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    barrier_expect(barrier(), BYTES);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(stage)),
                 "l"(from), "r"(BYTES), "r"(barrier())
                 : "memory");
#else
    walk<VECTOR, ROWS, COLUMNS, 4>([&](int i, int j) { copy_asynchronously<16>(&staged(i, j), from + i + j * ROWS); });
#endif
  }
  DEVICE void wait_for_fetch(uint32_t phase) {
#if __CUDA_ARCH__ >= 900
    barrier_wait(barrier(), phase);
#else
    wait_for_copies();
    sync();
#endif
  }

  /* ---- between memory and registers ---- */

  /* Local row i of this lane is row first_of(i) + further_of(i). further_of is a constant. */
  DEVICE int first_of(int i) const { return i < Shape::VECTORS_FROM ? row : row * VECTOR; }
  static DEVICE constexpr int further_of(int i) {
    return i < Shape::VECTORS_FROM ? i * GR : i / VECTOR * VECTOR * GR + i % VECTOR;
  }

  /* move(count, local row) for a lane's part of a column. */
  template <bool ALIGNED, typename Move> static DEVICE void each_part(const Move &move) {
    constexpr int SINGLES = ALIGNED ? Shape::VECTORS_FROM : P;
    unrolled_for (int i = 0; i < SINGLES; i++) move(std::integral_constant<int, 1>{}, i);
    unrolled_for (int i = SINGLES; i < P; i += VECTOR) move(std::integral_constant<int, VECTOR>{}, i);
  }

  DEVICE void take_vector(const T *from, int i, int q) {
    each_of_vector(from, [&](int e, T number) { a[i + e][q] = number; });
  }
  DEVICE void give_vector(T *to, int i, int q) const {
    *(vector *)to = vector_of<T>([&](int e) { return a[i + e][q]; });
  }

  /* A lane's part of one column of the tile. It is aligned if it is read in vectors. */
  DEVICE void read_column(const T *from, int q) {
    each_part<true>([&](auto count, int i) {
      if constexpr (count.value == VECTOR)
        take_vector(from + first_of(i) + further_of(i), i, q);
      else
        a[i][q] = (from + first_of(i))[further_of(i)];
    });
  }
  DEVICE void write_column(T *to, int q) const {
    each_part<true>([&](auto count, int i) {
      if constexpr (count.value == VECTOR)
        give_vector(to + first_of(i) + further_of(i), i, q);
      else
        (to + first_of(i))[further_of(i)] = a[i][q];
    });
  }

  template <typename Index> DEVICE void read_columns(const T *from, Index column_stride) {
    unrolled_for (int q = 0; q < Q; q++) read_column(from + (q * GC + column) * column_stride, q);
  }
  DEVICE void read_stage() { read_columns(stage, Shape::LEADING); }

  /* The most general access of lanes that read and write a matrix in place. */
  static constexpr int DIRECT_MOST = GR == 1 || Shape::PACKED ? QR_TILE_VECTORS : QR_TILE_CONTIGUOUS;

  /* Directly, if the matrix fills the tile. */
  DEVICE bool read_whole(int64_t item) {
    if (!Shape::DIRECT || !full() || p.a_access > DIRECT_MOST) return false;
    read_columns((const T *)p.a.data + item * p.a.batch_stride, p.a.column_stride);
    return true;
  }

  DEVICE void read_padded_column(const T *from, int j, int q) {
    each_part<true>([&](auto count, int i) {
      const int down = first_of(i) - p.offset;
      const bool is_inside = (uint32_t)(down + further_of(i)) < (uint32_t)p.m && (uint32_t)j < (uint32_t)p.n;
      const T *element = from + down;
      if constexpr (count.value == VECTOR) {
        if (is_inside)
          take_vector(element + further_of(i), i, q);
        else
          unrolled_for (int k = 0; k < VECTOR; k++) a[i + k][q] = T(0);
      } else
        a[i][q] = is_inside ? element[further_of(i)] : T(0);
    });
  }
  DEVICE void write_padded_column(T *to, int q) const {
    each_part<true>([&](auto count, int i) {
      const int down = first_of(i) - p.offset;
      T *element = to + down;
      if ((uint32_t)(down + further_of(i)) >= (uint32_t)p.m) return;
      if constexpr (count.value == VECTOR)
        give_vector(element + further_of(i), i, q);
      else
        element[further_of(i)] = a[i][q];
    });
  }

  DEVICE void read_directly(int64_t item) {
    const T *matrix = (const T *)p.a.data + item * p.a.batch_stride;
    if (full()) return read_columns(matrix, p.a.column_stride);
    unrolled_for (int q = 0; q < Q; q++) {
      const int j = q * GC + column - p.offset;
      read_padded_column(matrix + j * p.a.column_stride, j, q);
    }
  }

  /* Local column q to a matrix of `count` contiguous columns. */
  DEVICE void write_directly(const qr_matrix &matrix, int64_t item, int count, int q) const {
    T *to = (T *)matrix.data + item * matrix.batch_stride + begin() * matrix.column_stride;
    const int j = q * GC + column - p.offset;
    if (!Shape::PERSISTENT && (uint32_t)j >= (uint32_t)count) return;
    if (Shape::PERSISTENT || p.m == ROWS)
      write_column(to + j * matrix.column_stride, q);
    else
      write_padded_column(to + j * matrix.column_stride, q);
  }

  DEVICE void scale_columns() { scale_extreme_columns<GR, GC>(a, row, column, scales, scaled); }
};
