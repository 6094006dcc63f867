/* qr_tile_form.h - thin Q and R from the register tile that factored the matrix: what host code and kernels tell each
 * other. Either output may be absent; H and tau are not written. */
#ifndef RONDO_QR_TILE_FORM_H
#define RONDO_QR_TILE_FORM_H

#include "qr_tile.h"

struct qr_tile_form_parameters {
  struct qr_tile_parameters tile; /* h, tau and done are not used */
  struct qr_matrix r, q;          /* k x n and m x k; data NULL where absent */
  int32_t r_access, q_access;     /* enum qr_tile_access, for columns of k and of m */
  struct completion done;
};

/* Numbers from one reflector to the next in shared memory: a lane's rows of it are together where several lanes share a
 * column. */
QR_CONSTANT int32_t qr_tile_reflector_stride(int32_t element_bytes, int32_t rows, int32_t row_lanes) {
  return row_lanes == 1 ? rows + 16 / element_bytes : row_lanes * qr_tile_slice(element_bytes, rows, row_lanes);
}

/* Shared memory of a block (forming_tile has the same, and the kernels check it). */
QR_CONSTANT int32_t qr_tile_form_shared_bytes(int32_t element_bytes, int32_t rows, int32_t columns, int32_t row_lanes,
                                              int32_t column_lanes, int32_t options) {
  int32_t lanes = row_lanes * column_lanes, matrices = lanes < 32 ? 32 / lanes : 1;
  int32_t stride = qr_tile_reflector_stride(element_bytes, rows, row_lanes), leading = rows + 16 / element_bytes;
  int32_t more = stride > leading ? (stride - leading) * columns : 0; /* than the tile has for the matrix itself */
  return qr_tile_shared_bytes(element_bytes, rows, columns, row_lanes, column_lanes, options) +
         matrices * (more + columns) * element_bytes;
}

/* As the lists of qr_tile.h. All are staged: R, the reflectors and Q take the matrix's place in shared memory in turn.
 * Any layout will do. */
#define QR_TILE_FORM_F32_KERNELS(KERNEL)                                                                               \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f32_8, 32, 1, float, 8, 8, 1, 8,                           \
         QR_TILE_SHUFFLED | QR_TILE_STAGED | QR_TILE_DIRECT)                                                           \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f32_16, 32, 1, float, 16, 16, 1, 16,                       \
         QR_TILE_SHUFFLED | QR_TILE_STAGED | QR_TILE_DIRECT)                                                           \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f32_32, 32, 1, float, 32, 32, 1, 32,                       \
         QR_TILE_OWN_NORM | QR_TILE_STAGED)                                                                            \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f32_64, 32, 1, float, 64, 64, 2, 16,                       \
         QR_TILE_OWN_NORM | QR_TILE_STAGED | QR_TILE_MERGED)                                                           \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f32_128, 128, 1, float, 128, 128, 8, 16, QR_TILE_STAGED)   \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f32_96, 64, 1, float, 96, 96, 4, 16, QR_TILE_STAGED)       \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f32_128x16, 32, 1, float, 128, 16, 8, 4,                   \
         QR_TILE_OWN_NORM | QR_TILE_STAGED | QR_TILE_DIRECT)                                                           \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f32_256x16, 32, 1, float, 256, 16, 16, 2,                  \
         QR_TILE_OWN_NORM | QR_TILE_SCATTERED | QR_TILE_STAGED | QR_TILE_DIRECT)                                       \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f32_128x32, 32, 1, float, 128, 32, 8, 4,                   \
         QR_TILE_OWN_NORM | QR_TILE_STAGED)                                                                            \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f32_256x32, 64, 1, float, 256, 32, 16, 4,                  \
         QR_TILE_STAGED | QR_TILE_SCATTERED)                                                                           \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f32_512x32, 128, 1, float, 512, 32, 32, 4,                 \
         QR_TILE_STAGED | QR_TILE_SCATTERED)                                                                           \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f32_1024x32, 256, 1, float, 1024, 32, 32, 8,               \
         QR_TILE_STAGED | QR_TILE_SCATTERED | QR_TILE_DIRECT)
#define QR_TILE_FORM_F64_KERNELS(KERNEL)                                                                               \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f64_8, 32, 1, double, 8, 8, 1, 8,                          \
         QR_TILE_SHUFFLED | QR_TILE_STAGED | QR_TILE_DIRECT)                                                           \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f64_16, 32, 1, double, 16, 16, 1, 16,                      \
         QR_TILE_SHUFFLED | QR_TILE_STAGED)                                                                            \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f64_32, 32, 1, double, 32, 32, 4, 8,                       \
         QR_TILE_SHUFFLED | QR_TILE_OWN_NORM | QR_TILE_STAGED)                                                         \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f64_64, 64, 1, double, 64, 64, 4, 16, QR_TILE_STAGED)      \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f64_128, 256, 1, double, 128, 128, 8, 32,                  \
         QR_TILE_STAGED | QR_TILE_SCATTERED)                                                                           \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f64_96, 128, 1, double, 96, 96, 8, 16, QR_TILE_STAGED)     \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f64_128x16, 32, 1, double, 128, 16, 8, 4,                  \
         QR_TILE_OWN_NORM | QR_TILE_STAGED | QR_TILE_DIRECT)                                                           \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f64_256x16, 64, 1, double, 256, 16, 16, 4,                 \
         QR_TILE_STAGED | QR_TILE_DIRECT)                                                                              \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f64_128x32, 64, 1, double, 128, 32, 8, 8, QR_TILE_STAGED)  \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f64_256x32, 128, 1, double, 256, 32, 16, 8,                \
         QR_TILE_STAGED)                                                                                               \
  KERNEL(EVERY_CHIP, qr_tile_form_parameters, rondo_qr_form_f64_512x32, 256, 1, double, 512, 32, 32, 8,                \
         QR_TILE_STAGED | QR_TILE_SCATTERED | QR_TILE_DIRECT)
#endif
