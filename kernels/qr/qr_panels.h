/* qr_panels.h - QR by panels, of matrices that no register tile holds: the parameters and the list of kernels.
 *
 * A block has one matrix and goes through it by panels of a fixed width. Each panel is read once, stays in registers
 * while the reflectors on its left are applied and its own are found, and is written once. */
#pragma once

#include "qr_tile.h"

/* H and tau, R alone, or Q with or without R. Reflectors are in `work`: h, q until it is formed, or a workspace of each
 * block of the grid. Final numbers above them go to `upper`: h or r. A second kernel with the same parameters forms Q.
 */
struct qr_panels_parameters {
  struct qr_matrix a, work, upper; /* a and work may be the same; upper.data NULL: not wanted */
  struct qr_vector tau, triangles; /* data NULL: not wanted; T of each group of reflectors, for Q */
  int64_t batch;
  int32_t m, n;
  int32_t work_columns, upper_rows;
  int32_t a_access, work_access, upper_access; /* enum qr_tile_access */
  int32_t thin;                                /* upper has zeros below its diagonal */
  int32_t workers;                             /* work advances with the block of the grid, else with the matrix */
  struct completion done;
};

/* Tensor cores apply groups of this many reflectors, multiply-adds apply others. */
#define QR_PANELS_FRAGMENTS 8

/* Shared memory of a block: the pivot column twice, two chunks of reflectors, T, the products of a group twice (with
 * tensor cores those of each warp), and of each column its products with its group, u, nu and its scale. */
QR_CONSTANT int32_t qr_panels_shared_bytes(int32_t element_bytes, int32_t rows, int32_t columns, int32_t threads,
                                           int32_t chunk, int32_t group) {
  int32_t leading = rows + 16 / element_bytes, parts = group == QR_PANELS_FRAGMENTS ? threads / (2 * columns) : 1;
  return (2 * rows + 2 * chunk * leading + group * rows + (2 * group * parts + group + 3) * columns) * element_bytes;
}

/* KERNEL(chips, parameters, name, threads, blocks of a multiprocessor, type, layers, columns of a lane, row and column
 * lanes, reflectors that come at a time, reflectors of a group, reflectors whose products are summed at once). The stem
 * is rondo_qr_panels for the kernels that factor, rondo_qr_panels_thin_q for those that form Q. */
#define QR_PANELS_F32_KERNELS(KERNEL, stem)                                                                            \
  KERNEL(EVERY_CHIP, qr_panels_parameters, stem##_f32_256, 64, 4, float, 4, 8, 16, 4, 16, 4, 4)                        \
  KERNEL(EVERY_CHIP, qr_panels_parameters, stem##_f32_512, 256, 1, float, 4, 8, 32, 8, 16, 4, 4)                       \
  KERNEL(EVERY_CHIP, qr_panels_parameters, stem##_f32_1024, 256, 1, float, 8, 4, 32, 8, 8, 4, 4)                       \
  KERNEL(EVERY_CHIP, qr_panels_parameters, stem##_f32_2048, 256, 1, float, 16, 2, 32, 8, 4, 4, 2)
#define QR_PANELS_F64_KERNELS(KERNEL, stem)                                                                            \
  KERNEL(EVERY_CHIP, qr_panels_parameters, stem##_f64_160, 64, 4, double, 5, 8, 16, 4, 16, 4, 4)                       \
  KERNEL(EVERY_CHIP, qr_panels_parameters, stem##_f64_256, 128, 2, double, 8, 4, 16, 8, 8, 8, 8)                       \
  KERNEL(EVERY_CHIP, qr_panels_parameters, stem##_f64_512, 256, 1, double, 8, 4, 32, 8, 8, 8, 8)                       \
  KERNEL(EVERY_CHIP, qr_panels_parameters, stem##_f64_1024, 256, 1, double, 16, 2, 32, 8, 4, 4, 2)
