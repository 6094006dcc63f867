/* qr_tile_form_f64.cu - thin Q and R of small matrices and panels of f64 in registers. */
#include "qr_tile_form.cuh"

QR_TILE_FORM_F64_KERNELS(DEFINE_QR_TILE_FORM_KERNEL)
