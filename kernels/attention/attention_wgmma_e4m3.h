/* attention_wgmma_e4m3.h - attention of many query rows on sm_90a where Q, K and V are e4m3: what host code and kernels
 * of attention_wgmma_e4m3.cu tell each other. Parameters are attention_wgmma.h's; boxes of V have half of a KV tile's
 * rows. */
#ifndef RONDO_ATTENTION_WGMMA_E4M3_H
#define RONDO_ATTENTION_WGMMA_E4M3_H

#include "attention_wgmma.h"

enum { ATTENTION_E4M3_BARRIER_BYTES = 256 };

/* Shared memory of a block: slots of Q, of K and of V^T, which has eight rows more; where V lands, half a KV tile each,
 * two for each of two warps; barriers; 32 for each slot of Q; for each of two passes a word and a bit for each tile;
 * for each of those warps a word for each column of V. */
#define ATTENTION_E4M3_SHARED_BYTES(dimension, warpgroups, tile, kv_slots, query_slots)                                \
  ((dimension) * (64 * (warpgroups) * (query_slots) + (tile) * ((kv_slots) + 2)) +                                     \
   ((dimension) + 8) * (tile) * (kv_slots) + ATTENTION_E4M3_BARRIER_BYTES + 32 * (warpgroups) * (query_slots) +        \
   2 * (ATTENTION_WGMMA_MOST_TILES / 8 + 4) + 8 * (dimension))

/* KERNEL(chips, parameters, name, threads, head dimension, causal, warpgroups that compute, KV rows of a tile, slots of
 *        K and of V^T, slots of Q, words of weights of which half is made before the wait) */
#define ATTENTION_E4M3_KERNELS(KERNEL)                                                                                 \
  KERNEL(CHIP_SM_90A, attention_wgmma_parameters, rondo_attention_e4m3_128, 384, 128, 0, 2, 128, 4, 2, 4)              \
  KERNEL(CHIP_SM_90A, attention_wgmma_parameters, rondo_attention_e4m3_128_causal, 384, 128, 1, 2, 128, 4, 2, 4)

#endif
