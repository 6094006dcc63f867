/* qr_tile_whole_f64.cu - QR of whole dense matrices of f64 in registers. See qr_tile_whole_f32.cu. */
#include "qr_tile_kernel.cuh"

QR_TILE_WHOLE_F64_KERNELS(DEFINE_QR_TILE_KERNEL)
