/* qr_tile_plan.h - which register-tile kernel factors a matrix, if any does. */
#ifndef RONDO_QR_TILE_PLAN_H
#define RONDO_QR_TILE_PLAN_H

#include "qr_tile.h"

/* What comes of a tile. */
enum qr_tile_result { QR_TILE_REFLECTORS, QR_TILE_THIN };

struct qr_tile {
  struct op_kernel kernel;
  int32_t blocks, element_bytes, rows, columns, row_lanes, column_lanes, options;
};

/* For the lists of kernels (launch.h has KERNEL_ENTRY). */
#define QR_TILE_ENTRY(chips, parameters, name, threads, blocks, type, rows, columns, row_lanes, column_lanes, options) \
  {KERNEL_ENTRY(chips, parameters, name, threads),                                                                     \
   blocks,                                                                                                             \
   sizeof(type),                                                                                                       \
   rows,                                                                                                               \
   columns,                                                                                                            \
   row_lanes,                                                                                                          \
   column_lanes,                                                                                                       \
   options},

/* The kernels of a list, and the shared memory of a block whose lanes are a warp's, or one matrix's. */
struct qr_tile_list {
  const struct qr_tile *tiles;
  size_t count;
  int32_t (*shared_bytes)(int32_t element_bytes, int32_t rows, int32_t columns, int32_t row_lanes, int32_t column_lanes,
                          int32_t options);
};

struct qr_tile_problem {
  enum qr_tile_result result;
  uint32_t element_bytes; /* of what it is computed in */
  int64_t m, n, batch;
  enum qr_tile_access a_access, h_access; /* h_access: dense for thin Q and R, which any kernel writes in any layout */
  enum qr_tile_number a_number;
  int64_t multiprocessors, shared_bytes; /* of the chip */
};

struct qr_tile_plan {
  const struct qr_tile *tile; /* NULL: none holds the matrix, or fits the chip */
  int32_t offset;
  int64_t grid, shared_bytes;
};

/* How an m x n matrix may be read and written: of a QR task's operand in this layout. */
enum qr_tile_access qr_tile_access_of(const struct op_operand *operand, int32_t layout, int64_t m);

/* What an operand of this type is made of, for a kernel that computes in f32 or f64. */
static inline enum qr_tile_number qr_tile_number_of(rondo_dtype dtype) {
  return dtype == RONDO_F16 ? QR_TILE_F16 : dtype == RONDO_BF16 ? QR_TILE_BF16 : QR_TILE_OWN;
}

/* Matrices in a block of a tile's kernel, and its shared memory. */
int64_t qr_tile_matrices(const struct qr_tile *tile);
int64_t qr_tile_block_bytes(const struct qr_tile_list *list, const struct qr_tile *tile);

/* Numbers of a tile. */
int64_t qr_tile_size(const struct qr_tile *tile);

/* Does a tile hold an m x n matrix, and take no more shared memory than this? */
bool qr_tile_holds(const struct qr_tile_list *list, const struct qr_tile *tile, uint32_t element_bytes, int64_t m,
                   int64_t n, int64_t shared_bytes);

/* How far down the tile's diagonal an m x n matrix stands that is to be factored: steps are entered in few places. */
int32_t qr_tile_offset_of(const struct qr_tile *tile, int64_t m, int64_t n);

/* Pure. The batch changes nothing but the grid. */
struct qr_tile_plan qr_tile_plan_of(const struct qr_tile_problem *problem);

/* Do tiles make this of an m x n matrix even on the smallest of the chips Rondo is compiled for? Without any workspace,
 * and each element is read and written once. */
bool qr_tile_on_every_chip(enum qr_tile_result result, uint32_t element_bytes, int64_t m, int64_t n);

#endif
