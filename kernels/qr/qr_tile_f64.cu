/* qr_tile_f64.cu - QR of small matrices and panels of f64 in registers. See qr_tile_f32.cu. */
#include "qr_tile.cuh"

QR_TILE_F64_KERNELS(DEFINE_QR_TILE_KERNEL)
