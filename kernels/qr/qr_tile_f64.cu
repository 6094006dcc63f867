/* qr_tile_f64.cu - QR of small matrices and panels of f64 in registers. See qr_tile_f32.cu. 90 to 255 registers on
 * sm_90a, none spilled, and up to 146 KB of shared memory; 0.11 (1000 of 8 x 8) to 0.83 (10,000 of 128 x 16) of copying
 * as many bytes. */
#include "qr_tile_kernel.cuh"

QR_TILE_F64_KERNELS(DEFINE_QR_TILE_KERNEL)
