/* qr_tile_apply.h - C := Q C or Q^T C in a register tile: the parameters and the list of kernels.
 *
 * In a square tile V stands as far down the diagonal as it fits. C has the same rows, and as many columns at a time as
 * the tile has to the right of V's first. In a lowered tile both stand in the last rows and the first columns, and V
 * comes in parts of as many reflectors as the tile has columns. */
#pragma once

#include "qr_tile.h"

struct qr_tile_apply_parameters {
  struct qr_matrix v, c;
  struct qr_vector tau;
  int64_t batch, columns;
  int64_t groups; /* of `group_columns` columns of C, each with lanes of its own */
  int32_t group_columns;
  int32_t m, reflectors, offset;
  int32_t v_access, c_access; /* enum qr_tile_access */
  int32_t backward;
  struct completion done;
};

/* KERNEL as in qr_tile.h. For more than 64 rows a lowered tile is faster than a square one, which waits at its barriers
 * and takes as long for one column of C as for all. */
#define QR_TILE_APPLY(KERNEL, name, ...)                                                                               \
  KERNEL(EVERY_CHIP, qr_tile_apply_parameters, rondo_qr_tile_apply_##name, __VA_ARGS__)
#define QR_TILE_APPLY_KERNELS(KERNEL)                                                                                  \
  QR_TILE_APPLY(KERNEL, f32_8, 32, 1, float, 8, 8, 1, 8, TILE_SHUFFLED)                                                \
  QR_TILE_APPLY(KERNEL, f32_16, 32, 1, float, 16, 16, 1, 16, TILE_SHUFFLED)                                            \
  QR_TILE_APPLY(KERNEL, f32_32, 32, 1, float, 32, 32, 1, 32, TILE_SHUFFLED)                                            \
  QR_TILE_APPLY(KERNEL, f32_64, 32, 1, float, 64, 64, 2, 16, TILE_SHUFFLED)                                            \
  QR_TILE_APPLY(KERNEL, f32_128x32, 32, 1, float, 128, 32, 8, 4, TILE_LOWERED)                                         \
  QR_TILE_APPLY(KERNEL, f32_256x32, 64, 1, float, 256, 32, 16, 4, TILE_LOWERED)                                        \
  QR_TILE_APPLY(KERNEL, f32_512x32, 128, 1, float, 512, 32, 32, 4, TILE_LOWERED)                                       \
  QR_TILE_APPLY(KERNEL, f32_1024x16, 128, 1, float, 1024, 16, 32, 4, TILE_LOWERED)                                     \
  QR_TILE_APPLY(KERNEL, f32_2048x8, 128, 1, float, 2048, 8, 32, 4, TILE_LOWERED)                                       \
  QR_TILE_APPLY(KERNEL, f64_16, 32, 1, double, 16, 16, 1, 16, TILE_SHUFFLED)                                           \
  QR_TILE_APPLY(KERNEL, f64_32, 32, 1, double, 32, 32, 4, 8, TILE_SHUFFLED)                                            \
  QR_TILE_APPLY(KERNEL, f64_64, 64, 1, double, 64, 64, 4, 16, 0)                                                       \
  QR_TILE_APPLY(KERNEL, f64_128x32, 64, 1, double, 128, 32, 8, 8, TILE_LOWERED)                                        \
  QR_TILE_APPLY(KERNEL, f64_256x32, 128, 1, double, 256, 32, 16, 8, TILE_LOWERED)                                      \
  QR_TILE_APPLY(KERNEL, f64_512x16, 128, 1, double, 512, 16, 32, 4, TILE_LOWERED)                                      \
  QR_TILE_APPLY(KERNEL, f64_1024x8, 128, 1, double, 1024, 8, 32, 4, TILE_LOWERED)
