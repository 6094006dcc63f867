/* qr_block_form_f64.cu - Q of what qr_block_f64.cu has factored: the second of two kernels, because the code of both
 * would be more than the multiprocessor keeps (qr_block.cuh). */
#include "qr_block.cuh"

QR_BLOCK_F64_KERNELS(DEFINE_QR_FORM_KERNEL, rondo_qr_block_form)
