/* list_kernels.c - prints the families' lists of kernels for build/compare-kernels: a line for each kernel with its
 * name, the bytes of its parameter struct in C, the most threads of a block, and its chips. */
#include <stdio.h>

#include "../kernels/append/append.h"
#include "../kernels/attention/attention.h"
#include "../kernels/attention/attention_append.h"
#include "../kernels/attention/attention_decode.h"
#include "../kernels/attention/attention_portable.h"
#include "../kernels/attention/attention_wgmma.h"
#include "../kernels/common/await_bell.h"
#include "../kernels/common/point.h"
#include "../kernels/common/repeat_step.h"
#include "../kernels/copy/copy.h"
#include "../kernels/copy/transfer.h"
#include "../kernels/decoder/attention_block.h"
#include "../kernels/decoder/attention_block_wide.h"
#include "../kernels/decoder/attention_many_tokens.h"
#include "../kernels/decoder/attention_several_tokens.h"
#include "../kernels/decoder/feed_forward.h"
#include "../kernels/decoder/feed_forward_known.h"
#include "../kernels/decoder/feed_forward_many_tokens.h"
#include "../kernels/decoder/feed_forward_stream.h"
#include "../kernels/embed/embed.h"
#include "../kernels/exchange/exchanges.h"
#include "../kernels/gemm/gemm.h"
#include "../kernels/gemm_softmax/gemm_softmax_wgmma.h"
#include "../kernels/gemv/gemv_head.h"
#include "../kernels/gemv/gemv_quads.h"
#include "../kernels/gemv/gemv_ring.h"
#include "../kernels/gemv/gemv_scalar.h"
#include "../kernels/gemv/gemv_stream.h"
#include "../kernels/least_squares/least_squares.h"
#include "../kernels/model/elementwise.h"
#include "../kernels/model/norm.h"
#include "../kernels/model/rope.h"
#include "../kernels/qr/qr.h"
#include "../kernels/qr/qr_panels.h"
#include "../kernels/qr/qr_tile.h"
#include "../kernels/qr/qr_tile_apply.h"
#include "../kernels/sample/argmax.h"
#include "../kernels/sample/recent.h"
#include "../kernels/sample/sampling.h"

static void print(const char *name, size_t parameter_bytes, int threads, uint32_t chips) {
  printf("%s %zu %d%s%s%s\n", name, parameter_bytes, threads, chips & CHIP_SM_80 ? " sm_80 compute_80" : "",
         chips & CHIP_SM_90A ? " sm_90a" : "", chips & CHIP_SM_100A ? " sm_100a" : "");
}

#define PRINT(chips, parameters, name, threads, ...) print(#name, sizeof(struct parameters), threads, chips);

int main(void) {
  APPEND_KERNELS(PRINT);
  POINT_KERNELS(PRINT);
  REPEAT_KERNELS(PRINT);
  AWAIT_BELL_KERNELS(PRINT);
  COPY_KERNELS(PRINT);
  TRANSFER_KERNELS(PRINT);
  ATTENTION_BLOCK_KERNELS(PRINT);
  ATTENTION_BLOCK_WIDE_KERNELS(PRINT);
  ATTENTION_BLOCK_WIDE_RANKS_KERNELS(PRINT);
  ATTENTION_MANY_TOKENS_KERNELS(PRINT);
  ATTENTION_SEVERAL_TOKENS_KERNELS(PRINT);
  FEED_FORWARD_KERNELS(PRINT);
  FEED_FORWARD_RANKS_KERNELS(PRINT);
  FEED_FORWARD_MANY_TOKENS_KERNELS(PRINT);
  FEED_FORWARD_ONE_TOKEN_KERNELS(PRINT);
  FEED_FORWARD_SEVERAL_TOKENS_KERNELS(PRINT);
  FEED_FORWARD_STREAM_KERNELS(PRINT);
  EMBED_KERNELS(PRINT);
  EXCHANGE_KERNELS(PRINT);
  EXCHANGE_SUM_KERNELS(PRINT);
  GEMM_WGMMA_KERNELS(PRINT);
  GEMM_PORTABLE_KERNELS(PRINT);
  GEMV_INTEGER_KERNELS(PRINT);
  GEMV_QUADS_NVFP4_KERNELS(PRINT);
  GEMV_QUADS_E4M3_KERNELS(PRINT);
  GEMV_QUADS_16_KERNELS(PRINT);
  GEMV_ROWS_16_KERNELS(PRINT);
  GEMV_NEWER_NVFP4_KERNELS(PRINT);
  GEMV_CLUSTERS_E4M3_KERNELS(PRINT);
  GEMV_CLUSTERS_16_KERNELS(PRINT);
  GEMV_NEWER_E4M3_KERNELS(PRINT);
  GEMV_RING_KERNELS(PRINT);
  GEMV_HEAD_KERNELS(PRINT);
  GEMV_HEAD_ONE_KERNELS(PRINT);
  GEMV_STREAM_KERNELS(PRINT);
  GEMV_HEAD_16_KERNELS(PRINT);
  GEMV_SCALAR_KERNELS(PRINT);
  QUANTIZE_KERNELS(PRINT);
  ELEMENTWISE_KERNELS(PRINT);
  RMS_NORM_KERNELS(PRINT);
  RMS_NORM_CLUSTER_KERNELS(PRINT);
  ROPE_KERNELS(PRINT);
  LEAST_SQUARES_BLOCK_KERNELS(PRINT);
  LEAST_SQUARES_AFTER_KERNELS(PRINT);
  LEAST_SQUARES_F32_KERNELS(PRINT);
  LEAST_SQUARES_F64_KERNELS(PRINT);
  QR_PANELS_F32_KERNELS(PRINT, rondo_qr_panels);
  QR_PANELS_F64_KERNELS(PRINT, rondo_qr_panels);
  QR_PANELS_F32_KERNELS(PRINT, rondo_qr_panels_thin_q);
  QR_PANELS_F64_KERNELS(PRINT, rondo_qr_panels_thin_q);
  QR_BLOCKED_KERNELS(PRINT);
  QR_APPLY_KERNELS(PRINT);
  QR_EXTRACT_KERNELS(PRINT);
  QR_TILE_F32_KERNELS(PRINT);
  QR_TILE_F64_KERNELS(PRINT);
  QR_TILE_WHOLE_F32_KERNELS(PRINT);
  QR_TILE_WHOLE_F64_KERNELS(PRINT);
  QR_TILE_APPLY_KERNELS(PRINT);
  TRIANGULAR_INVERSE_KERNELS(PRINT);
  ARGMAX_KERNELS(PRINT);
  ARGMAX_CLUSTER_KERNELS(PRINT);
  RECENT_KERNELS(PRINT);
  SAMPLE_KERNELS(PRINT);
  SAMPLE_CLUSTER_KERNELS(PRINT);
  ATTENTION_KERNELS(PRINT);
  ATTENTION_GENERAL_KERNELS(PRINT);
  ATTENTION_APPEND_KERNELS(PRINT);
  ATTENTION_COMBINE_KERNELS(PRINT);
  ATTENTION_DECODE_KERNELS(PRINT);
  ATTENTION_E4M3_KERNELS(PRINT);
  ATTENTION_WGMMA_KERNELS(PRINT);
  GEMM_SOFTMAX_KERNELS(PRINT);
  GEMM_SOFTMAX_RESIDENT_KERNELS(PRINT);
  GEMM_SOFTMAX_STREAMED_KERNELS(PRINT);
  GEMM_SOFTMAX_STAGGERED_KERNELS(PRINT);
  return fflush(stdout) ? 1 : 0;
}
