/* qr_tile_f32.cu - QR of small matrices and panels of f32 in registers. The staged kernels take any layout, the others
 * contiguous columns only, but for those of a lane per column (qr_tile_plan.c). 47 to 255 registers on sm_90a, none
 * spilled, and up to 138 KB of shared memory; 0.07 (1000 of 8 x 8) to 0.86 (10,000 of 128 x 16) of copying as many
 * bytes. */
#include "qr_tile.cuh"

QR_TILE_F32_KERNELS(DEFINE_QR_TILE_KERNEL)
