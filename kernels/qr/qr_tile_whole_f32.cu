/* qr_tile_whole_f32.cu - QR of whole dense matrices of f32 in registers, by persistent kernels: H and tau
 * (qr_tile_kernel.cuh). They copy matrices in bulk, for which 8.0 has another path. The other tiles have one path for
 * all chips, and are therefore compiled once (build/compile-device). */
#include "qr_tile_kernel.cuh"

QR_TILE_WHOLE_F32_KERNELS(DEFINE_QR_TILE_KERNEL)
