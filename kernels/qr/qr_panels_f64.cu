/* qr_panels_f64.cu - QR of f64 by panels in registers. See qr_panels_f32.cu. 230 to 255 registers on sm_90a, none
 * spilled, and up to 126 KB of shared memory (H200: 14 TFLOP/s at 256 x 256). */
#include "qr_panels.cuh"

QR_PANELS_F64_KERNELS(DEFINE_QR_PANELS_KERNEL, rondo_qr_panels)
