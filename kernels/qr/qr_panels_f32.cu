/* qr_panels_f32.cu - QR of f32 by panels in registers: of as many rows at most as the name says, of any number of
 * columns, in any layout. 220 to 255 registers on sm_90a, none spilled, and up to 113 KB of shared memory; a third of
 * the multiply-adds that the chip has (H200: 21.3 TFLOP/s at 256 x 256, 23.6 at 512 x 512). */
#include "qr_panels.cuh"

QR_PANELS_F32_KERNELS(DEFINE_QR_PANELS_KERNEL, rondo_qr_panels)
