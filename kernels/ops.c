/* ops.c - the table of operations, the one place that names them all; and the kernels that belong to none. */
#include "../runtime/join.h"
#include "../runtime/kernels.h"
#include "append/append.h"
#include "attention/attention.h"
#include "common/done.h"
#include "copy/copy.h"
#include "copy/transfer.h"
#include "decoder/decoder.h"
#include "decoder/sum_parts.h"
#include "embed/embed.h"
#include "gemm_softmax/gemm_softmax.h"
#include "gemv/gemv.h"
#include "least_squares/least_squares.h"
#include "model/elementwise.h"
#include "model/norm.h"
#include "model/rope.h"
#include "qr/qr.h"
#include "sample/argmax.h"
#include "sample/penalty.h"
#include "sample/sampling.h"

const struct op *const op_table[] = {
    &op_qr,
    &op_qr_panel,
    &op_qr_update,
    &op_qr_apply,
    &op_qr_extract,
    &op_triangular_inverse,
    &op_gemm_rowmax,
    &op_gemm_softmax,
    &op_attention,
    &op_gemv,
    &op_quantize_nvfp4,
    &op_copy,
    &op_append,
    &op_transfer,
    &op_join,
    &op_least_squares,
    &op_embed,
    &op_rms_norm,
    &op_rope,
    &op_silu_mul,
    &op_add,
    &op_argmax,
    &op_sample,
    &op_attention_block,
    &op_feed_forward,
    &op_sum_parts,
    &op_penalty,
    NULL,
};

#define DEFINE(chips, parameters, name, threads, constant)                                                             \
  const struct op_kernel constant = {#name, sizeof(struct parameters), 0, chips, threads};
DONE_KERNELS(DEFINE)
