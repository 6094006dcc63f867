/* qr_block_f64.cu - QR of f64 by block columns in registers. See qr_block_f32.cu. 232 to 254 registers on sm_90a, none
 * spilled, and up to 114 KB of shared memory; a third of the multiply-adds that the chip has (H200: 10.4 TFLOP/s at
 * 256 x 256). */
#include "qr_block.cuh"

QR_BLOCK_F64_KERNELS(DEFINE_QR_BLOCK_KERNEL, rondo_qr_block)
