/* ops.c - the rows of all operations, their table, and the kernels that belong to no operation. */
#include "../runtime/join.h"
#include "../runtime/kernels.h"
#include "append/append.h"
#include "attention/attention.h"
#include "common/await_bell.h"
#include "common/point.h"
#include "common/repeat_step.h"
#include "copy/copy.h"
#include "copy/transfer.h"
#include "decoder/decoder.h"
#include "embed/embed.h"
#include "exchange/exchanges.h"
#include "gemm/gemm.h"
#include "gemm_softmax/gemm_softmax.h"
#include "gemv/gemv.h"
#include "gemv/quantize_e4m3.h"
#include "least_squares/least_squares.h"
#include "model/elementwise.h"
#include "model/norm.h"
#include "model/rope.h"
#include "qr/qr.h"
#include "sample/argmax.h"
#include "sample/penalty.h"
#include "sample/prompt_lookup.h"
#include "sample/sampling.h"

/* OP(name, check, host_items, host_run, select, other fields of struct op)
 *
 * Some operands are not in once_operands although each element is needed once: gemm reads a vector's numbers for every
 * tile of rows of W; rms_norm reads long rows of x and its parts for the sum and again for the product; in a half of a
 * layer a sum and a product each read x. */
#define OPS(OP)                                                                                                        \
  OP(qr, qr_check, qr_host_items, qr_host_run, qr_select,                                                              \
     .once_operands = 1u << QR_A | 1u << QR_H | 1u << QR_TAU | 1u << QR_R | 1u << QR_Q,                                \
     .touches_once = qr_touches_once, .launches_most = 2, .scratch_bytes = qr_scratch_bytes)                           \
  OP(qr_panel, qr_panel_check, qr_host_items, qr_host_run, qr_select)                                                  \
  OP(qr_update, qr_apply_check, qr_apply_host_items, qr_apply_host_run, qr_apply_select,                               \
     .touched_elements = qr_apply_touched_elements)                                                                    \
  OP(qr_apply, qr_apply_check, qr_apply_host_items, qr_apply_host_run, qr_apply_select,                                \
     .touched_elements = qr_apply_touched_elements)                                                                    \
  OP(qr_extract, qr_extract_check, qr_extract_host_items, qr_extract_host_run, qr_extract_select,                      \
     .once_operands = 1u << QR_EXTRACT_H | 1u << QR_EXTRACT_R | 1u << QR_EXTRACT_Q,                                    \
     .touched_elements = qr_extract_touched_elements)                                                                  \
  OP(triangular_inverse, triangular_inverse_check, triangular_inverse_host_items, triangular_inverse_host_run,         \
     triangular_inverse_select, .once_operands = 1u << TRIANGULAR_INVERSE_A | 1u << TRIANGULAR_INVERSE_OUT)            \
  OP(gemm_rowmax, gemm_rowmax_check, gemm_softmax_host_items, gemm_rowmax_host_run, gemm_softmax_select,               \
     .once_operands = 1u << GEMM_OUT)                                                                                  \
  OP(gemm_softmax, gemm_softmax_check, gemm_softmax_host_items, gemm_softmax_host_run, gemm_softmax_select,            \
     .once_operands = 1u << GEMM_OUT)                                                                                  \
  OP(attention, attention_task_check, NULL, NULL, attention_select,                                                    \
     .once_operands = 1u << ATTENTION_O | 1u << ATTENTION_LSE, .touched_elements = attention_touched_elements,         \
     .launches_most = 3, .scratch_bytes = attention_scratch_bytes, .step = attention_host_step)                        \
  OP(gemv, gemv_check, gemv_host_items, gemv_host_run, gemv_select,                                                    \
     .once_operands = 1u << GEMV_OUT | 1u << GEMV_OUT_SCALES | 1u << GEMV_RESIDUAL,                                    \
     .touched_elements = gemv_touched_elements)                                                                        \
  OP(summed_gemv, summed_gemv_check, NULL, NULL, summed_gemv_select,                                                   \
     .once_operands = 1u << GEMV_OUT | 1u << GEMV_RESIDUAL, .touched_elements = summed_gemv_touched_elements,          \
     .launches_most = 2, .waits_for_others = true, .waits_with = GEMV_OPERANDS,                                        \
     .scratch_bytes = summed_gemv_scratch_bytes, .step = summed_gemv_step)                                             \
  OP(gemm, gemm_check, gemm_host_items, gemm_host_run, gemm_select,                                                    \
     .once_operands = 1u << GEMV_OUT | 1u << GEMV_RESIDUAL, .touched_elements = gemv_touched_elements,                 \
     .launches_most = 2, .scratch_bytes = gemm_scratch_bytes)                                                          \
  OP(quantize_nvfp4, quantize_check, quantize_host_items, quantize_host_run, quantize_select,                          \
     .once_operands = 1u << QUANTIZE_X | 1u << QUANTIZE_CODES | 1u << QUANTIZE_SCALES)                                 \
  OP(quantize_e4m3, quantize_e4m3_check, quantize_e4m3_host_items, quantize_e4m3_host_run, quantize_e4m3_select,       \
     .once_operands = 1u << QUANTIZE_E4M3_CODES | 1u << QUANTIZE_E4M3_SCALES)                                          \
  OP(copy, copy_check, copy_host_items, copy_host_run, copy_select, .once_operands = 1u << COPY_SRC | 1u << COPY_DST)  \
  OP(append, append_check, append_host_items, append_host_run, append_select, .once_operands = 1u << APPEND_SRC,       \
     .touched_elements = append_touched_elements)                                                                      \
  OP(transfer, NULL, transfer_host_items, transfer_host_run, transfer_select,                                          \
     .once_operands = (1u << 2 * TRANSFER_TENSORS) - 1)                                                                \
  OP(join, NULL, join_host_items, join_host_run, join_select)                                                          \
  OP(least_squares, least_squares_check, least_squares_host_items, least_squares_host_run, least_squares_select,       \
     .once_operands = 1u << LEAST_SQUARES_A | 1u << LEAST_SQUARES_B | 1u << LEAST_SQUARES_X |                          \
                      1u << LEAST_SQUARES_RESIDUAL | 1u << LEAST_SQUARES_INFO,                                         \
     .touches_once = least_squares_touches_once, .launches_most = 2, .scratch_bytes = least_squares_scratch_bytes)     \
  OP(embed, embed_check, embed_host_items, embed_host_run, embed_select, .once_operands = 1u << EMBED_OUT,             \
     .touched_elements = embed_touched_elements)                                                                       \
  OP(rms_norm, rms_norm_check, rms_norm_host_items, rms_norm_host_run, rms_norm_select,                                \
     .once_operands = 1u << RMS_NORM_OUT)                                                                              \
  OP(rope, rope_check, rope_host_items, rope_host_run, rope_select, .once_operands = 1u << ROPE_X | 1u << ROPE_OUT)    \
  OP(silu_mul, silu_mul_check, elementwise_host_items, elementwise_host_run, elementwise_select,                       \
     .once_operands = 1u << ELEMENTWISE_OUT | 1u << ELEMENTWISE_A | 1u << ELEMENTWISE_B)                               \
  OP(add, add_check, elementwise_host_items, elementwise_host_run, elementwise_select,                                 \
     .once_operands = 1u << ELEMENTWISE_OUT | 1u << ELEMENTWISE_A | 1u << ELEMENTWISE_B)                               \
  OP(argmax, argmax_check, argmax_host_items, argmax_host_run, argmax_select,                                          \
     .once_operands = 1u << ARGMAX_X | 1u << ARGMAX_OUT)                                                               \
  OP(sample, sample_check, sample_host_items, sample_host_run, sample_select, .once_operands = 1u << SAMPLE_OUT)       \
  OP(attention_block, attention_block_check, NULL, NULL, decoder_select,                                               \
     .touched_elements = attention_block_touched_elements, .launches_most = OP_MAX_LAUNCHES, .waits_for_others = true, \
     .waits_with = ATTENTION_BLOCK_STATES, .scratch_bytes = attention_block_scratch_bytes,                             \
     .step = attention_block_step)                                                                                     \
  OP(feed_forward, feed_forward_check, NULL, NULL, decoder_select, .launches_most = 4, .waits_for_others = true,       \
     .waits_with = FEED_FORWARD_STATES, .scratch_bytes = feed_forward_scratch_bytes, .step = feed_forward_step)        \
  OP(penalty, penalty_check, penalty_host_items, penalty_host_run, penalty_select, .once_operands = 1u << PENALTY_IDS, \
     .touched_elements = penalty_touched_elements)                                                                     \
  OP(prompt_lookup, prompt_lookup_check, prompt_lookup_host_items, prompt_lookup_host_run, prompt_lookup_select,       \
     .once_operands = 1u << LOOKUP_ACCEPTED | 1u << LOOKUP_MATCHED)                                                    \
  OP(attention_new_rows, attention_task_check, attention_new_rows_host_items, attention_new_rows_host_run,             \
     attention_select)                                                                                                 \
  OP(attention_rows, attention_task_check, attention_rows_host_items, attention_rows_host_run, attention_select)       \
  EXCHANGE(OP, all_reduce)                                                                                             \
  EXCHANGE(OP, all_gather)                                                                                             \
  EXCHANGE(OP, reduce_scatter)                                                                                         \
  EXCHANGE(OP, broadcast)                                                                                              \
  EXCHANGE(OP, send)                                                                                                   \
  EXCHANGE(OP, receive)

#define EXCHANGE(OP, operation)                                                                                        \
  OP(operation, exchange_check, exchange_host_items, exchange_host_run, exchange_select,                               \
     .once_operands = 1u << EXCHANGE_RESIDUAL | 1u << EXCHANGE_OUT, .touched_elements = exchange_touched_elements,     \
     .waits_for_others = true)

#define DEFINE_OP(operation, op_check, op_host_items, op_host_run, op_select, ...)                                     \
  const struct op op_##operation = {.name = #operation,                                                                \
                                    .check = op_check,                                                                 \
                                    .host_items = op_host_items,                                                       \
                                    .host_run = op_host_run,                                                           \
                                    .select = op_select,                                                               \
                                    __VA_ARGS__};
OPS(DEFINE_OP)

#define TABLE_ENTRY(operation, ...) &op_##operation,
const struct op *const op_table[] = {OPS(TABLE_ENTRY) NULL};

#define DEFINE_KERNEL(chips, parameters, name, threads, constant)                                                      \
  const struct op_kernel constant = {#name, sizeof(struct parameters), 0, chips, threads};
POINT_KERNELS(DEFINE_KERNEL)
REPEAT_KERNELS(DEFINE_KERNEL)
AWAIT_BELL_KERNELS(DEFINE_KERNEL)
