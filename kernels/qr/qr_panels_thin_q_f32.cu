/* qr_panels_thin_q_f32.cu - Q of what qr_panels_f32.cu has factored: the second of two kernels, because the code of
 * both would be more than the multiprocessor keeps (qr_panels.cuh). */
#include "qr_panels.cuh"

QR_PANELS_F32_KERNELS(DEFINE_QR_THIN_Q_KERNEL, rondo_qr_panels_thin_q)
