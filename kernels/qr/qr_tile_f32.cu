/* qr_tile_f32.cu - QR of small matrices and panels of f32 in registers, in any layout: H and tau, or thin Q and R
 * (qr_tile_kernel.cuh). README.md has the times. */
#include "qr_tile_kernel.cuh"

QR_TILE_F32_KERNELS(DEFINE_QR_TILE_KERNEL)
