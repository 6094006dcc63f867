/* many_tokens.cuh - for the layer halves of 17 to 128 tokens on sm_90a: operands of wgmma in shared memory, copies from
 * block to block, and the rows of x that a cluster normalises.
 *
 * A block's tokens become eight rows of each panel, which lie together: so one copy of a panel brings them to other
 * blocks. */
#pragma once

#include "../common/elected.cuh"
#include "../common/tensor_copy.cuh"
#include "../common/wgmma.cuh"
#include "decoder_shared.cuh"
#include "many_tokens.h"

#define WGMMA_D_72     WGMMA_D_64, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define WGMMA_NAMES_72 WGMMA_NAMES_64 ", %32, %33, %34, %35"
WGMMA_PRODUCT(__nv_bfloat16, "bf16", 72, "36", "37", "38", "39", "40")

enum { PANEL_COLUMNS = 64, PANEL_ROW_BYTES = 128, ATOM_BYTES = 8 * PANEL_ROW_BYTES /* eight rows of a panel */ };

/* The place of 16 bytes of a row of 128 bytes, swizzled. */
DEVICE uint32_t swizzled(uint32_t row, uint32_t sixteen) { return row * 128 + ((sixteen ^ row % 8) << 4); }

/* From this block to one of the cluster, whose barrier counts the bytes. A block sends some 14 bytes a cycle. */
DEVICE void copy_to_block(uint32_t there, uint32_t from, uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(there),
      "r"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
/* From global memory to the same place in all blocks of the cluster in the mask `blocks`: so what a block has for all
 * leaves it once. */
DEVICE void copy_to_blocks(uint16_t blocks, uint32_t to, const void *from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, "
               "[%3], %4;" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier), "h"(blocks)
               : "memory");
}
/* Makes this thread's writes to global memory visible to later bulk copies of the block, after a barrier. */
DEVICE void writes_reach_copies() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

DEVICE uint2 load_early_two(const void *address) {
  uint2 loaded;
  asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" EARLY : "=r"(loaded.x), "=r"(loaded.y) : "l"(address));
  return loaded;
}

/* ---- x ----------------------------------------------------------------------------------------------------------- */

/* A tile's rows are its tokens in another order, so that few tokens are dealt to all blocks: block r has tokens r + 8
 * i, which are rows 8 r + i. */
DEVICE uint32_t token_of_row(uint32_t row) { return row / 8 + row % 8 * 8; }

/* A barrier that waits for these bytes. */
DEVICE void begin(uint64_t &barrier, uint32_t bytes) {
  barrier_init(shared_address(&barrier), 1);
  barrier_expect(shared_address(&barrier), bytes);
}

/* A warp's half of a token: fours lane + 32 k of it. */
template <uint32_t Hidden> struct half_row {
  static constexpr uint32_t fours = Hidden / 8, lane_fours = (fours + 31) / 32; /* of the half; of a lane */
  float4 four[lane_fours];

  static DEVICE bool has(uint32_t lane, uint32_t k) { return lane + 32 * k < fours; }
  static DEVICE uint32_t first_four(uint32_t lane) { return threadIdx.x / 32 % 2 * fours + lane; }

  DEVICE void clear() {
    unroll<lane_fours>([&](uint32_t k) { four[k] = float4{}; });
  }

  /* x and its parts, in their order. */
  DEVICE void gather(const layer_half_parameters &half, uint32_t token, uint32_t lane) {
    const uint32_t first = token * Hidden + 4 * first_four(lane), step = half.rows * Hidden;
    const float *x = half.x + first, *from = half.x_parts + first;
    unroll<lane_fours>([&](uint32_t k) {
      if (has(lane, k)) four[k] = load_four(x + 128 * k);
    });
    rolled_for (uint32_t left = half.part_count; left; left -= MANY_TOKENS_PARTS_AT_ONCE) {
      float4 part[MANY_TOKENS_PARTS_AT_ONCE][lane_fours] = {};
      unroll<MANY_TOKENS_PARTS_AT_ONCE>([&](uint32_t i) {
        unroll<lane_fours>([&](uint32_t k) {
          if (has(lane, k)) part[i][k] = load_four(from + 128 * k);
        });
        from += step;
      });
      unroll<MANY_TOKENS_PARTS_AT_ONCE, lane_fours>([&](uint32_t i, uint32_t k) {
        four[k].x += part[i][k].x, four[k].y += part[i][k].y, four[k].z += part[i][k].z, four[k].w += part[i][k].w;
      });
    }
  }

  DEVICE void store(float *out, uint32_t lane) const {
    unroll<lane_fours>([&](uint32_t k) {
      if (has(lane, k)) *(float4 *)(out + 4 * first_four(lane) + 128 * k) = four[k];
    });
  }

  DEVICE float squares() const {
    float sum = 0;
    unroll<lane_fours>([&](uint32_t k) {
      sum += (four[k].x * four[k].x + four[k].y * four[k].y) + (four[k].z * four[k].z + four[k].w * four[k].w);
    });
    return sum;
  }

  /* Row `row` of the block's tokens, in panels. */
  DEVICE void normalise(unsigned char *to, uint32_t row, uint32_t lane, float factor,
                        const uint2 (&norm)[lane_fours]) const {
    const uint32_t first = first_four(lane);
    to += first / 16 * ATOM_BYTES + swizzled(row, first / 2 % 8) + first % 2 * 8;
    unroll<lane_fours>([&](uint32_t k) {
      const float2 low = two_numbers(norm[k].x), high = two_numbers(norm[k].y);
      if (has(lane, k))
        *(uint2 *)(to + 2 * k * ATOM_BYTES) = {pack(four[k].x * factor * low.x, four[k].y * factor * low.y),
                                               pack(four[k].z * factor * high.x, four[k].w * factor * high.y)};
    });
  }
};

/* The norm's numbers, asked for before the wait if it is settled; without one they are 1. */
template <uint32_t Hidden> struct lane_norm {
  using row = half_row<Hidden>;
  uint2 numbers[row::lane_fours];

  DEVICE lane_norm() {
    constexpr uint32_t ones = 0x3f803f80;
    unroll<row::lane_fours>([&](int k) { numbers[k] = {ones, ones}; });
  }
  DEVICE void load(const layer_half_parameters &half) {
    const uint32_t lane = threadIdx.x % 32;
    if (half.norm)
      unroll<row::lane_fours>([&](uint32_t k) {
        if (row::has(lane, k))
          numbers[k] = load_early_two((const unsigned char *)half.norm + (row::first_four(lane) + 32 * k) * 8);
      });
  }
  DEVICE uint32_t all() const {
    uint32_t all = 0;
    unroll<row::lane_fours>([&](int k) { all ^= numbers[k].x ^ numbers[k].y; });
    return all;
  }
};

/* Eight tokens of the block, normalised and times `scale`, by sixteen warps, to the blocks of the cluster
 * in the mask `blocks`: each normalised panel is written to `exchange`, and a copy brings it to all of them. `squares`:
 * in shared memory. */
template <uint32_t Hidden>
DEVICE void send_tokens(const layer_half_parameters &half, uint32_t rank, uint32_t first_token, bool writes_out,
                        float scale, const lane_norm<Hidden> &norm, unsigned char *exchange, float (&squares)[8][2],
                        uint16_t blocks, unsigned char (*panels)[64 * PANEL_ROW_BYTES], uint64_t *barriers) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp / 2;
  const uint32_t token = first_token + rank + 8 * row;
  const bool has_token = token < half.rows;
  half_row<Hidden> x;
  x.clear();
  if (has_token) x.gather(half, token, lane);
  const float own = warp_sum(x.squares());
  if (lane == 0) squares[row][warp % 2] = own;
  __syncthreads();
  const float all = squares[row][0] + squares[row][1];
  const float factor = (half.epsilon == 0 ? 1.0f : rsqrtf(all * (1.0f / Hidden) + half.epsilon)) * scale;
  x.normalise(exchange, row, lane, factor, norm.numbers);
  writes_reach_copies();
  cp_async_wait<0>(), writes_reach_products(); /* the weights */
  __syncthreads();
  if (warp < Hidden / PANEL_COLUMNS && elected())
    copy_to_blocks(blocks, shared_address(panels[warp]) + rank * ATOM_BYTES, exchange + warp * ATOM_BYTES, ATOM_BYTES,
                   shared_address(&barriers[warp]));
  if (has_token && writes_out) x.store(half.out + token * Hidden, lane);
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* Panels of 64 rows, each as soon as it is there, times panels of `Results` rows. */
template <uint32_t Panels, int Results>
DEVICE void multiply_panels(const uint64_t *here, const void *rows, const void *weights, float (&sum)[Results / 2]) {
  const uint64_t x = operand_descriptor(shared_address(rows), 0), w = operand_descriptor(shared_address(weights), 0);
  unroll<Panels>([&](uint32_t panel) {
    barrier_wait(shared_address(&here[panel]), 0);
    wgmma_fence();
    unroll<4>([&](uint32_t step) {
      warpgroup_product<__nv_bfloat16, Results>::shared(
          sum, operand_further(x, panel * (64 * PANEL_ROW_BYTES) + step * 32),
          operand_further(w, panel * (Results * PANEL_ROW_BYTES) + step * 32), panel + step > 0);
    });
    wgmma_commit();
  });
  wgmma_wait<0>();
  pin(sum);
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* 64 rows of 72 results, in the layout of wgmma.cuh, to the rows' tokens of `to`, of which there are `tokens`. Code
 * that runs once waits for its instructions: so there is little of it. */
template <uint32_t Hidden> DEVICE void store_results(const float (&sum)[36], float *to, uint32_t tokens) {
  const uint32_t row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, token = token_of_row(row);
  to += token * Hidden + threadIdx.x % 4 * 2; /* the second row is the next token */
  unroll<2>([&](uint32_t second) {
    if (token + second < tokens)
      unroll<9>([&](int j) {
        *(float2 *)(to + second * Hidden + 8 * j) = {sum[4 * j + 2 * second], sum[4 * j + 2 * second + 1]};
      });
  });
}
