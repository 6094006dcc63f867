/* qr_tile_form_f32.cu - thin Q and R of small matrices and panels of f32 in registers. */
#include "qr_tile_form.cuh"

QR_TILE_FORM_F32_KERNELS(DEFINE_QR_TILE_FORM_KERNEL)
