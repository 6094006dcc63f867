/* qr_tile_f32.cu - QR of small matrices and panels of f32 in registers: H and tau, or thin Q and R, in any layout.
 *
 * 54 to 255 registers on sm_90a, none spilled, and up to 154 KB of shared memory; 0.07 (1000 of 8 x 8) to 0.86 (10,000
 * of 128 x 16) of copying as many bytes. */
#include "qr_tile_kernel.cuh"

QR_TILE_F32_KERNELS(DEFINE_QR_TILE_KERNEL)
