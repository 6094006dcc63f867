/* qr_block_f32.cu - QR of f32 by block columns in registers: of as many rows at most as the name says, of any number of
 * columns, in any layout. 220 to 255 registers on sm_90a, none spilled, and up to 113 KB of shared memory; a third of
 * the multiply-adds that the chip has (H200: 21.3 TFLOP/s at 256 x 256, 23.6 at 512 x 512). */
#include "qr_block.cuh"

QR_BLOCK_F32_KERNELS(DEFINE_QR_BLOCK_KERNEL, rondo_qr_block)
