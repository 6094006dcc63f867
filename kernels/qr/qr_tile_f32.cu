/* qr_tile_f32.cu - QR of small matrices and panels of f32 in registers. The staged kernels take any layout, the others
 * contiguous columns only, but for those of a lane per column (qr_tile_plan.c). */
#include "qr_tile.cuh"

QR_TILE_F32_KERNELS(DEFINE_QR_TILE_KERNEL)
