/* least_squares.h - batched least squares, min |b - A x|: its operation, its parameters and its lists of kernels.
 *
 * One kernel factors and solves a matrix that fits in a register tile (qr_tile.h); it writes neither H nor R. Other
 * matrices take two launches. The first is rondo_add_qr's: H and tau, to the task's scratch. The second applies the
 * reflectors and substitutes: a block for one or four right-hand sides, or, if a block cannot hold their rows, a warp
 * for up to four. */
#pragma once

#include "../qr/qr_tile.h"

/* rondo_least_squares_f32_* and _f64_*. */
struct least_squares_parameters {
  struct qr_tile_parameters tile;  /* m >= n; h, tau and done are not used */
  struct qr_matrix b, x;           /* m x right-hand sides and n x right-hand sides, in any layout */
  struct qr_vector residual, info; /* [right-hand sides] and one int32_t for each matrix; data NULL where absent */
  int32_t rhs_count;
  int32_t passes; /* times that a matrix is factored: ceil(right-hand sides / those of a pass) */
  struct completion done;
};

/* rondo_least_squares_block_* and _after_*. A block has `group` right-hand sides; a block of _after_ is one warp. */
struct least_squares_after_parameters {
  struct qr_matrix h, b, x;
  struct qr_matrix work; /* for the right-hand sides, m x right-hand sides; data NULL: they stay in shared memory */
  struct qr_vector tau, residual, info;
  int64_t m, n, batch, rhs_count;
  int64_t groups; /* of the right-hand sides of one matrix */
  int32_t group;
  int32_t leading; /* elements from column to column in shared memory */
  struct completion done;
};

enum {
  LEAST_SQUARES_GROUP = QR_TILE_COLUMNS,
  LEAST_SQUARES_AFTER_THREADS = 32,
  LEAST_SQUARES_BLOCK_RHS = 4,
  LEAST_SQUARES_BLOCK_VALUES = 32, /* that are summed at once, at most */
};

/* Right-hand sides that a kernel takes at a time: one for each warp of a matrix. */
QR_CONSTANT int32_t least_squares_tile_rhs(int32_t row_lanes, int32_t column_lanes) {
  int32_t lanes = row_lanes * column_lanes;
  return lanes < 32 ? 1 : lanes / 32;
}

/* Groups of columns in the ring of rondo_least_squares_block_*. With three, a multiprocessor of an H200 has eight
 * blocks for 256 rows of f64, and the chip 1000 matrices at once. */
QR_CONSTANT int32_t least_squares_block_stages(int64_t element_bytes, int64_t rhs_count) {
  return element_bytes == 8 && rhs_count == 1 ? 3 : 4;
}

/* Shared memory of a block: the ring, the sums of warps twice, the shown numbers twice, tau. */
QR_CONSTANT int64_t least_squares_block_shared_bytes(int64_t element_bytes, int64_t threads, int64_t n,
                                                     int64_t rhs_count) {
  const int64_t ring = threads * 16 * least_squares_block_stages(element_bytes, rhs_count),
                sums = threads / 32 * 2 * LEAST_SQUARES_BLOCK_VALUES, shown = INT64_C(8) * LEAST_SQUARES_BLOCK_RHS;
  return (ring + sums + shown + n + 3) * element_bytes;
}

/* KERNEL as in qr_tile.h. Blocks of matrices of a warp or less have up to 128 threads: few blocks start faster than
 * many. Each size has the kernel that is fastest with one right-hand side. */
#define LEAST_SQUARES_TILE(KERNEL, name, ...)                                                                          \
  KERNEL(EVERY_CHIP, least_squares_parameters, rondo_least_squares_##name, __VA_ARGS__)
#define LEAST_SQUARES_F32_KERNELS(KERNEL)                                                                              \
  LEAST_SQUARES_TILE(KERNEL, f32_8, 128, 1, float, 8, 8, 1, 8, TILE_DIRECT)                                            \
  LEAST_SQUARES_TILE(KERNEL, f32_16, 128, 1, float, 16, 16, 1, 16, TILE_OWN_NORM | TILE_DIRECT)                        \
  LEAST_SQUARES_TILE(KERNEL, f32_32, 128, 1, float, 32, 32, 1, 32, TILE_OWN_NORM)                                      \
  LEAST_SQUARES_TILE(KERNEL, f32_64, 32, 1, float, 64, 64, 2, 16, TILE_OWN_NORM | TILE_MERGED)                         \
  LEAST_SQUARES_TILE(KERNEL, f32_96, 64, 1, float, 96, 96, 4, 16, 0)                                                   \
  LEAST_SQUARES_TILE(KERNEL, f32_128, 128, 1, float, 128, 128, 8, 16, 0)                                               \
  LEAST_SQUARES_TILE(KERNEL, f32_128x16, 32, 1, float, 128, 16, 8, 4, TILE_OWN_NORM | TILE_DIRECT)                     \
  LEAST_SQUARES_TILE(KERNEL, f32_256x16, 32, 1, float, 256, 16, 16, 2, TILE_OWN_NORM | TILE_SCATTERED | TILE_DIRECT)   \
  LEAST_SQUARES_TILE(KERNEL, f32_128x32, 32, 1, float, 128, 32, 8, 4, TILE_OWN_NORM)                                   \
  LEAST_SQUARES_TILE(KERNEL, f32_256x32, 64, 1, float, 256, 32, 16, 4, TILE_SCATTERED)                                 \
  LEAST_SQUARES_TILE(KERNEL, f32_512x32, 128, 1, float, 512, 32, 32, 4, TILE_SCATTERED)                                \
  LEAST_SQUARES_TILE(KERNEL, f32_1024x32, 256, 1, float, 1024, 32, 32, 8, TILE_SCATTERED)
#define LEAST_SQUARES_F64_KERNELS(KERNEL)                                                                              \
  LEAST_SQUARES_TILE(KERNEL, f64_8, 64, 1, double, 8, 8, 1, 8, TILE_DIRECT)                                            \
  LEAST_SQUARES_TILE(KERNEL, f64_16, 64, 1, double, 16, 16, 1, 16, 0)                                                  \
  LEAST_SQUARES_TILE(KERNEL, f64_32, 32, 1, double, 32, 32, 4, 8, TILE_OWN_NORM)                                       \
  LEAST_SQUARES_TILE(KERNEL, f64_64, 64, 1, double, 64, 64, 4, 16, 0)                                                  \
  LEAST_SQUARES_TILE(KERNEL, f64_96, 128, 1, double, 96, 96, 8, 16, 0)                                                 \
  LEAST_SQUARES_TILE(KERNEL, f64_128, 256, 1, double, 128, 128, 8, 32, TILE_SCATTERED)                                 \
  LEAST_SQUARES_TILE(KERNEL, f64_128x16, 32, 1, double, 128, 16, 8, 4, TILE_OWN_NORM | TILE_DIRECT)                    \
  LEAST_SQUARES_TILE(KERNEL, f64_256x16, 64, 1, double, 256, 16, 16, 4, 0)                                             \
  LEAST_SQUARES_TILE(KERNEL, f64_128x32, 64, 1, double, 128, 32, 8, 8, 0)                                              \
  LEAST_SQUARES_TILE(KERNEL, f64_256x32, 128, 1, double, 256, 32, 16, 8, 0)                                            \
  LEAST_SQUARES_TILE(KERNEL, f64_512x32, 256, 1, double, 512, 32, 32, 8, TILE_SCATTERED)
#define LEAST_SQUARES_AFTER(KERNEL, name, ...)                                                                         \
  KERNEL(EVERY_CHIP, least_squares_after_parameters, rondo_least_squares_##name, __VA_ARGS__)
#define LEAST_SQUARES_AFTER_KERNELS(KERNEL)                                                                            \
  LEAST_SQUARES_AFTER(KERNEL, after_f32, LEAST_SQUARES_AFTER_THREADS, 1, least_squares_after<float>)                   \
  LEAST_SQUARES_AFTER(KERNEL, after_f64, LEAST_SQUARES_AFTER_THREADS, 1, least_squares_after<double>)
/* Threads: of four rows each. */
#define LEAST_SQUARES_BLOCK_KERNELS(KERNEL)                                                                            \
  LEAST_SQUARES_AFTER(KERNEL, block_f32, 512, 1, least_squares_block<float, 1>)                                        \
  LEAST_SQUARES_AFTER(KERNEL, block_f32_4, 512, 1, least_squares_block<float, LEAST_SQUARES_BLOCK_RHS>)                \
  LEAST_SQUARES_AFTER(KERNEL, block_f64, 512, 1, least_squares_block<double, 1>)                                       \
  LEAST_SQUARES_AFTER(KERNEL, block_f64_4, 384, 1, least_squares_block<double, LEAST_SQUARES_BLOCK_RHS>)

#ifndef __CUDACC__
extern const struct op op_least_squares;

enum { LEAST_SQUARES_A, LEAST_SQUARES_B, LEAST_SQUARES_X, LEAST_SQUARES_RESIDUAL, LEAST_SQUARES_INFO };

/* Columns of b. */
int64_t least_squares_rhs_count(const struct op_task *task);

/* The scratch of two launches: H, tau and, if they are too long for shared memory, right-hand sides. Bytes from its
 * begin. */
struct least_squares_scratch {
  uint64_t tau, work, qr, end; /* h is at 0 */
};
struct least_squares_scratch least_squares_scratch_of(const struct op_task *task);

/* Does a warp keep `rhs_count` right-hand sides of m elements in shared memory? */
bool least_squares_fits_shared(uint32_t element_bytes, int64_t m, int64_t rhs_count);

/* The task of qr that comes first, without addresses. */
void least_squares_factoring_of(const struct op_task *task, struct op_step *factoring);

/* Of one matrix on the host, in its part of the scratch. */
uint64_t least_squares_host_bytes(const struct op_task *task);
OP_FUNCTIONS(least_squares);
uint64_t least_squares_scratch_bytes(const struct op_task *task);
bool least_squares_touches_once(const struct op_task *task);
#endif
