/* qr_tile.h - QR in register tiles: the options, the parameters and the lists of kernels.
 *
 * A kernel has a tile of a fixed size, and any smaller matrix runs in it. The matrix stands `offset` rows and columns
 * into the tile, near the end of its diagonal: steps are cheapest there. */
#pragma once

#include "qr.h"

/* What a kernel is made of, or-ed together. Each option was measured where it stands. */
enum qr_tile_option {
  TILE_SHUFFLED = 1,     /* a matrix in one warp: the pivot column comes by shuffles, else through shared memory */
  TILE_OWN_NORM = 2,     /* a matrix in one warp: sigma is the owner's dot product, else every lane sums it */
  TILE_SCATTERED = 4,    /* sums over lanes by reduce-scatter and gather */
  TILE_PERSISTENT = 8,   /* H of whole dense matrices: a block walks over them, and a bulk copy fetches the next one */
  TILE_HALVES = 16,      /* H of twice as many columns as the tile has: qr_tile_halves */
  TILE_H_ALONE = 32,     /* another kernel makes thin Q and R */
  TILE_AT_ONCE = 64,     /* a column is written as soon as it is final */
  TILE_MERGED = 128,     /* blocks of twice as many steps: half the code */
  TILE_UNROLLED = 256,   /* each step has its own code, else the steps of a block share it */
  TILE_DIRECT = 512,     /* a lane reads and writes the matrix in place if the columns allow it */
  TILE_PACKED = 1024,    /* rows below those of the pivots are dealt in vectors, not one by one */
  TILE_LOWERED = 2048,   /* scattered; the offset is one of rows alone: the matrix stands at the tile's left */
  TILE_CROWDED = 4096,   /* u and nu stand in shared memory: a lane's numbers leave no registers for them */
  TILE_WIDE = 8192,      /* for at least half as many columns as rows: others have quicker kernels */
  TILE_IN_PLACE = 16384, /* H of matrices whose columns each lane reads and writes in place, in vectors */
  TILES_OF_H = TILE_PERSISTENT | TILE_HALVES | TILE_H_ALONE | TILE_IN_PLACE,
};

struct qr_tile_parameters {
  struct qr_matrix a, h; /* may be the same */
  struct qr_vector tau;
  int64_t batch;
  int32_t m, n, offset;
  int32_t a_access, h_access; /* enum qr_tile_access */
  int32_t a_number;           /* enum qr_number */
};

/* The kernels: H and tau, or thin Q and R, of which either may be absent. */
struct qr_tile_task {
  struct qr_tile_parameters tile; /* h.data NULL: thin Q and R */
  struct qr_matrix r, q;          /* k x n and m x k; data NULL where absent */
  int32_t r_access, q_access;     /* enum qr_tile_access, for columns of k and of m */
  struct completion done;
};

/* Numbers from one row lane's part of a column to the next, for columns that are in shared memory lane by lane: an odd
 * number of vectors, so that the parts begin in different banks. */
QR_CONSTANT int32_t qr_tile_slice(int32_t element_bytes, int32_t rows, int32_t row_lanes) {
  int32_t vector = 16 / element_bytes, vectors = (rows / row_lanes + vector - 1) / vector;
  return (vectors | 1) * vector;
}

/* Shared memory of a block. The kernels check that tile_shape has the same. */
QR_CONSTANT int32_t qr_tile_shared_bytes(int32_t element_bytes, int32_t rows, int32_t columns, int32_t row_lanes,
                                         int32_t column_lanes, int32_t options) {
  int32_t lanes = row_lanes * column_lanes, matrices = lanes < 32 ? 32 / lanes : 1, vector = 16 / element_bytes;
  int32_t pivots = options & TILE_SHUFFLED ? 0 : 2 * row_lanes * qr_tile_slice(element_bytes, rows, row_lanes);
  int32_t leading = options & TILE_PERSISTENT ? rows : rows + vector;
  int32_t stage = options & TILE_IN_PLACE ? 0 : leading * columns;
  int32_t factors = options & TILE_HALVES ? columns : 0;
  return matrices * (pivots + columns + stage + factors) * element_bytes + (options & TILE_PERSISTENT ? 16 : 0);
}

/* Numbers from one reflector to the next in shared memory. If several lanes share a column, a lane's rows of it are
 * together. */
QR_CONSTANT int32_t qr_tile_reflector_stride(int32_t element_bytes, int32_t rows, int32_t row_lanes) {
  return row_lanes == 1 ? rows + 16 / element_bytes : row_lanes * qr_tile_slice(element_bytes, rows, row_lanes);
}

/* Shared memory of a block that makes thin Q and R. The kernels check that thin_tile has the same. */
QR_CONSTANT int32_t qr_tile_thin_q_shared_bytes(int32_t element_bytes, int32_t rows, int32_t columns, int32_t row_lanes,
                                                int32_t column_lanes, int32_t options) {
  int32_t lanes = row_lanes * column_lanes, matrices = lanes < 32 ? 32 / lanes : 1;
  int32_t stride = qr_tile_reflector_stride(element_bytes, rows, row_lanes);
  int32_t leading = rows + 16 / element_bytes;
  int32_t more = stride > leading ? (stride - leading) * columns : 0; /* than the tile has for the matrix itself */
  return qr_tile_shared_bytes(element_bytes, rows, columns, row_lanes, column_lanes, options) +
         matrices * (more + columns) * element_bytes;
}

/* The offset of a matrix is a multiple of this: of vectors, and of the steps that share code. */
QR_CONSTANT int32_t qr_tile_offset_unit(int32_t row_lanes, int32_t column_lanes, int32_t options) {
  int32_t steps = (row_lanes < column_lanes ? row_lanes : column_lanes) * (options & TILE_MERGED ? 2 : 1);
  return steps < 4 ? 4 : steps;
}

/* The largest offset: smaller squares have a smaller tile, and steps are entered in few places. */
QR_CONSTANT int32_t qr_tile_offset_most(int32_t columns) { return columns > 32 ? 28 : columns; }

/* KERNEL(chips, parameters, name, threads, blocks of a multiprocessor, type, rows and columns of the tile, row and
 * column lanes, options). Of two kernels for one size the first that takes the matrix runs: one for H of whole dense
 * matrices, or H alone, stands before the one for all. Persistent grids have `blocks` for each multiprocessor. The
 * whole ones have lists of their own, since only they have another path for 8.0 (build/compile-device). */
#define QR_TILE(KERNEL, name, ...) KERNEL(EVERY_CHIP, qr_tile_task, rondo_qr_tile_##name, __VA_ARGS__)
#define QR_TILE_WHOLE_F32_KERNELS(KERNEL)                                                                              \
  QR_TILE(KERNEL, f32_128_whole, 128, 2, float, 128, 128, 8, 16, TILE_PERSISTENT)                                      \
  QR_TILE(KERNEL, f32_512x32_whole, 128, 2, float, 512, 32, 32, 4, TILE_PERSISTENT | TILE_SCATTERED | TILE_AT_ONCE)    \
  QR_TILE(KERNEL, f32_1024x32_whole, 256, 1, float, 1024, 32, 32, 8, TILE_PERSISTENT | TILE_SCATTERED | TILE_AT_ONCE)
#define QR_TILE_WHOLE_F64_KERNELS(KERNEL)                                                                              \
  QR_TILE(KERNEL, f64_128_whole, 256, 1, double, 128, 128, 8, 32, TILE_PERSISTENT | TILE_SCATTERED)                    \
  QR_TILE(KERNEL, f64_256x16_whole, 64, 4, double, 256, 16, 16, 4, TILE_PERSISTENT)                                    \
  QR_TILE(KERNEL, f64_512x32_whole, 256, 1, double, 512, 32, 32, 8, TILE_PERSISTENT | TILE_SCATTERED)
#define QR_TILE_F32_KERNELS(KERNEL)                                                                                    \
  QR_TILE(KERNEL, f32_8, 32, 1, float, 8, 8, 1, 8, TILE_SHUFFLED | TILE_DIRECT)                                        \
  QR_TILE(KERNEL, f32_16, 32, 1, float, 16, 16, 1, 16, TILE_SHUFFLED | TILE_DIRECT)                                    \
  QR_TILE(KERNEL, f32_32, 32, 20, float, 32, 32, 1, 32, TILE_OWN_NORM)                                                 \
  QR_TILE(KERNEL, f32_64, 32, 1, float, 64, 64, 2, 16, TILE_OWN_NORM | TILE_MERGED)                                    \
  QR_TILE(KERNEL, f32_80, 32, 1, float, 80, 80, 4, 8, TILE_OWN_NORM | TILE_CROWDED | TILE_H_ALONE)                     \
  QR_TILE(KERNEL, f32_96, 64, 1, float, 96, 96, 4, 16, 0)                                                              \
  QR_TILE(KERNEL, f32_128, 128, 1, float, 128, 128, 8, 16, 0)                                                          \
  QR_TILE(KERNEL, f32_160, 128, 1, float, 160, 160, 8, 16, TILE_WIDE | TILE_H_ALONE)                                   \
  QR_TILE(KERNEL, f32_128x16_h, 32, 1, float, 128, 16, 8, 4,                                                           \
          TILE_SHUFFLED | TILE_OWN_NORM | TILE_PACKED | TILE_AT_ONCE | TILE_IN_PLACE)                                  \
  QR_TILE(KERNEL, f32_128x16, 32, 1, float, 128, 16, 8, 4, TILE_SHUFFLED | TILE_OWN_NORM | TILE_PACKED | TILE_DIRECT)  \
  QR_TILE(KERNEL, f32_256x16_h, 32, 1, float, 256, 16, 16, 2,                                                          \
          TILE_OWN_NORM | TILE_SCATTERED | TILE_PACKED | TILE_AT_ONCE | TILE_UNROLLED | TILE_IN_PLACE)                 \
  QR_TILE(KERNEL, f32_256x16, 32, 1, float, 256, 16, 16, 2, TILE_OWN_NORM | TILE_SCATTERED | TILE_DIRECT)              \
  QR_TILE(KERNEL, f32_128x32, 32, 1, float, 128, 32, 8, 4, TILE_SHUFFLED | TILE_OWN_NORM | TILE_PACKED)                \
  QR_TILE(KERNEL, f32_256x32, 64, 1, float, 256, 32, 16, 4, TILE_SCATTERED)                                            \
  QR_TILE(KERNEL, f32_512x32, 128, 1, float, 512, 32, 32, 4, TILE_SCATTERED)                                           \
  QR_TILE(KERNEL, f32_1024x32, 256, 1, float, 1024, 32, 32, 8, TILE_SCATTERED | TILE_DIRECT)
#define QR_TILE_F64_KERNELS(KERNEL)                                                                                    \
  QR_TILE(KERNEL, f64_8, 32, 1, double, 8, 8, 1, 8, TILE_SHUFFLED | TILE_DIRECT)                                       \
  QR_TILE(KERNEL, f64_16, 32, 1, double, 16, 16, 1, 16, TILE_SHUFFLED)                                                 \
  QR_TILE(KERNEL, f64_32, 32, 1, double, 32, 32, 4, 8, TILE_SHUFFLED | TILE_OWN_NORM)                                  \
  QR_TILE(KERNEL, f64_48, 32, 1, double, 48, 48, 4, 8, TILE_SHUFFLED | TILE_OWN_NORM | TILE_H_ALONE)                   \
  QR_TILE(KERNEL, f64_64, 64, 1, double, 64, 64, 4, 16, 0)                                                             \
  QR_TILE(KERNEL, f64_72, 64, 1, double, 72, 72, 8, 8, TILE_H_ALONE)                                                   \
  QR_TILE(KERNEL, f64_96, 128, 1, double, 96, 96, 8, 16, 0)                                                            \
  QR_TILE(KERNEL, f64_104, 128, 1, double, 104, 112, 8, 16, TILE_CROWDED | TILE_H_ALONE)                               \
  QR_TILE(KERNEL, f64_128, 256, 1, double, 128, 128, 8, 32, TILE_SCATTERED)                                            \
  QR_TILE(KERNEL, f64_128x16, 32, 1, double, 128, 16, 8, 4,                                                            \
          TILE_SHUFFLED | TILE_OWN_NORM | TILE_PACKED | TILE_AT_ONCE | TILE_DIRECT)                                    \
  QR_TILE(KERNEL, f64_256x16, 64, 1, double, 256, 16, 16, 4, TILE_DIRECT)                                              \
  QR_TILE(KERNEL, f64_128x32, 64, 1, double, 128, 32, 8, 8, 0)                                                         \
  QR_TILE(KERNEL, f64_256x32, 128, 1, double, 256, 32, 16, 8, 0)                                                       \
  QR_TILE(KERNEL, f64_512x32, 256, 1, double, 512, 32, 32, 8, TILE_SCATTERED | TILE_DIRECT)                            \
  QR_TILE(KERNEL, f64_1024x32, 256, 1, double, 1024, 16, 32, 8, TILE_HALVES)
