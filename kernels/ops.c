/* ops.c - the rows of all operations, their table, and the kernels that belong to no operation. */
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
#include "gemm/gemm.h"
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

const struct op op_qr = {
    .name = "qr",
    .once_operands = 1u << QR_A | 1u << QR_H | 1u << QR_TAU | 1u << QR_R | 1u << QR_Q,
    .touches_once = qr_touches_once,
    .check = qr_check,
    .scratch_bytes = qr_scratch_bytes,
    .host_items = qr_host_items,
    .host_run = qr_host_run,
    .select = qr_select,
};

const struct op op_qr_panel = {
    .name = "qr_panel",
    .check = qr_panel_check,
    .host_items = qr_host_items,
    .host_run = qr_host_run,
    .select = qr_select,
};

const struct op op_qr_update = {
    .name = "qr_update",
    .touched_elements = qr_apply_touched_elements,
    .check = qr_apply_check,
    .host_items = qr_apply_host_items,
    .host_run = qr_apply_host_run,
    .select = qr_apply_select,
};

const struct op op_qr_apply = {
    .name = "qr_apply",
    .touched_elements = qr_apply_touched_elements,
    .check = qr_apply_check,
    .host_items = qr_apply_host_items,
    .host_run = qr_apply_host_run,
    .select = qr_apply_select,
};

const struct op op_qr_extract = {
    .name = "qr_extract",
    .once_operands = 1u << QR_EXTRACT_H | 1u << QR_EXTRACT_R | 1u << QR_EXTRACT_Q,
    .touched_elements = qr_extract_touched_elements,
    .check = qr_extract_check,
    .host_items = qr_extract_host_items,
    .host_run = qr_extract_host_run,
    .select = qr_extract_select,
};

const struct op op_triangular_inverse = {
    .name = "triangular_inverse",
    .once_operands = 1u << TRIANGULAR_INVERSE_A | 1u << TRIANGULAR_INVERSE_OUT,
    .check = triangular_inverse_check,
    .host_items = triangular_inverse_host_items,
    .host_run = triangular_inverse_host_run,
    .select = triangular_inverse_select,
};

const struct op op_least_squares = {
    .name = "least_squares",
    .once_operands = 1u << LEAST_SQUARES_A | 1u << LEAST_SQUARES_B | 1u << LEAST_SQUARES_X |
                     1u << LEAST_SQUARES_RESIDUAL | 1u << LEAST_SQUARES_INFO,
    .touches_once = least_squares_touches_once,
    .launches_most = 2,
    .check = least_squares_check,
    .scratch_bytes = least_squares_scratch_bytes,
    .host_items = least_squares_host_items,
    .host_run = least_squares_host_run,
    .select = least_squares_select,
};

const struct op op_gemm_rowmax = {
    .name = "gemm_rowmax",
    .once_operands = 1u << GEMM_OUT,
    .check = gemm_rowmax_check,
    .host_items = gemm_softmax_host_items,
    .host_run = gemm_rowmax_host_run,
    .select = gemm_softmax_select,
};

const struct op op_gemm_softmax = {
    .name = "gemm_softmax",
    .once_operands = 1u << GEMM_OUT,
    .check = gemm_softmax_check,
    .host_items = gemm_softmax_host_items,
    .host_run = gemm_softmax_host_run,
    .select = gemm_softmax_select,
};

const struct op op_gemv = {
    .name = "gemv",
    .once_operands = 1u << GEMV_OUT | 1u << GEMV_OUT_SCALES | 1u << GEMV_RESIDUAL,
    .touched_elements = gemv_touched_elements,
    .check = gemv_check,
    .host_items = gemv_host_items,
    .host_run = gemv_host_run,
    .select = gemv_select,
};

/* A vector's numbers are read for every tile of rows of W. */
const struct op op_gemm = {
    .name = "gemm",
    .once_operands = 1u << GEMV_OUT | 1u << GEMV_RESIDUAL,
    .check = gemm_check,
    .host_items = gemm_host_items,
    .host_run = gemm_host_run,
    .select = gemm_select,
};

const struct op op_quantize_nvfp4 = {
    .name = "quantize_nvfp4",
    .once_operands = 1u << QUANTIZE_X | 1u << QUANTIZE_CODES | 1u << QUANTIZE_SCALES,
    .check = quantize_check,
    .host_items = quantize_host_items,
    .host_run = quantize_host_run,
    .select = quantize_select,
};

const struct op op_copy = {
    .name = "copy",
    .once_operands = 1u << COPY_SRC | 1u << COPY_DST,
    .check = copy_check,
    .host_items = copy_host_items,
    .host_run = copy_host_run,
    .select = copy_select,
};

const struct op op_append = {
    .name = "append",
    .once_operands = 1u << APPEND_SRC,
    .touched_elements = append_touched_elements,
    .check = append_check,
    .host_items = append_host_items,
    .host_run = append_host_run,
    .select = append_select,
};

const struct op op_transfer = {
    .name = "transfer",
    .once_operands = (1u << 2 * TRANSFER_TENSORS) - 1,
    .host_items = transfer_host_items,
    .host_run = transfer_host_run,
    .select = transfer_select,
};

const struct op op_join = {
    .name = "join",
    .host_items = join_host_items,
    .host_run = join_host_run,
    .select = join_select,
};

const struct op op_embed = {
    .name = "embed",
    .once_operands = 1u << EMBED_OUT,
    .touched_elements = embed_touched_elements,
    .check = embed_check,
    .host_items = embed_host_items,
    .host_run = embed_host_run,
    .select = embed_select,
};

/* x and its parts are not operands that a kernel reads once: it reads long rows for the sum and again for the
 * product. */
const struct op op_rms_norm = {
    .name = "rms_norm",
    .once_operands = 1u << RMS_NORM_OUT,
    .check = rms_norm_check,
    .host_items = rms_norm_host_items,
    .host_run = rms_norm_host_run,
    .select = rms_norm_select,
};

const struct op op_rope = {
    .name = "rope",
    .once_operands = 1u << ROPE_X | 1u << ROPE_OUT,
    .check = rope_check,
    .host_items = rope_host_items,
    .host_run = rope_host_run,
    .select = rope_select,
};

const struct op op_silu_mul = {
    .name = "silu_mul",
    .once_operands = 1u << ELEMENTWISE_OUT | 1u << ELEMENTWISE_A | 1u << ELEMENTWISE_B,
    .check = silu_mul_check,
    .host_items = elementwise_host_items,
    .host_run = silu_mul_host_run,
    .select = silu_mul_select,
};

const struct op op_add = {
    .name = "add",
    .once_operands = 1u << ELEMENTWISE_OUT | 1u << ELEMENTWISE_A | 1u << ELEMENTWISE_B,
    .check = add_check,
    .host_items = elementwise_host_items,
    .host_run = add_host_run,
    .select = add_select,
};

const struct op op_argmax = {
    .name = "argmax",
    .once_operands = 1u << ARGMAX_X | 1u << ARGMAX_OUT,
    .check = argmax_check,
    .host_items = argmax_host_items,
    .host_run = argmax_host_run,
    .select = argmax_select,
};

const struct op op_sample = {
    .name = "sample",
    .once_operands = 1u << SAMPLE_OUT,
    .check = sample_check,
    .host_items = sample_host_items,
    .host_run = sample_host_run,
    .select = sample_select,
};

/* Halves of a layer may touch operands more than once: a sum and a product each read x. */
const struct op op_attention = {
    .name = "attention",
    .once_operands = 1u << ATTENTION_O | 1u << ATTENTION_LSE,
    .touched_elements = attention_touched_elements,
    .launches_most = 3,
    .check = attention_task_check,
    .scratch_bytes = attention_scratch_bytes,
    .host_items = attention_host_items,
    .host_run = attention_host_run,
    .select = attention_select,
};

const struct op op_attention_block = {
    .name = "attention_block",
    .touched_elements = attention_block_touched_elements,
    .launches_most = OP_MAX_LAUNCHES,
    .check = attention_block_check,
    .scratch_bytes = attention_block_scratch_bytes,
    .step = attention_block_step,
    .select = decoder_select,
};

const struct op op_feed_forward = {
    .name = "feed_forward",
    .launches_most = 3,
    .check = feed_forward_check,
    .scratch_bytes = feed_forward_scratch_bytes,
    .step = feed_forward_step,
    .select = decoder_select,
};

const struct op op_sum_parts = {
    .name = "sum_parts",
    .host_items = sum_parts_host_items,
    .host_run = sum_parts_host_run,
    .select = sum_parts_select,
};

const struct op op_penalty = {
    .name = "penalty",
    .once_operands = 1u << PENALTY_IDS,
    .touched_elements = penalty_touched_elements,
    .check = penalty_check,
    .host_items = penalty_host_items,
    .host_run = penalty_host_run,
    .select = penalty_select,
};

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
    &op_gemm,
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
