/* many_tokens.cuh - for the layer halves of 17 to 128 tokens on sm_90a: operands of wgmma in shared memory, copies from
 * block to block, and the rows of x and factors of a norm that a cluster exchanges.
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

/* A warp's half of a token, of eight that the block has: fours lane + 32 k of it. A block finds its places, and those
 * of its copy of a panel, before the wait: code that runs once waits for its instructions. */
template <uint32_t Hidden> struct half_place {
  static constexpr uint32_t fours = Hidden / 8, lane_fours = (fours + 31) / 32; /* of the half; of a lane */
  const uint32_t exchange; /* the block's place in the exchange of all blocks */
  uint32_t token, first;   /* the lane's first element of all tokens */
  uint32_t row;            /* the place of the lane's first two words in the exchange of all blocks */

  static DEVICE bool has(uint32_t k) { return threadIdx.x % 32 + 32 * k < fours; }
  static DEVICE uint32_t first_four() { return threadIdx.x / 32 % 2 * fours + threadIdx.x % 32; }

  DEVICE half_place(uint32_t first_token, uint32_t rank, uint32_t exchange) : exchange(exchange) {
    const uint32_t own = threadIdx.x / 64, four = first_four();
    token = first_token + rank + 8 * own, first = token * Hidden + 4 * four;
    row = exchange + four / 16 * ATOM_BYTES + swizzled(own, four / 2 % 8) + four % 2 * 8;
    asm volatile("" : "+r"(token), "+r"(first), "+r"(row));
  }
};

template <uint32_t Hidden> struct half_row {
  using place = half_place<Hidden>;
  static constexpr uint32_t lane_fours = place::lane_fours;
  float4 four[lane_fours];

  static DEVICE bool has(uint32_t k) { return place::has(k); }

  DEVICE void clear() {
    unroll<lane_fours>([&](uint32_t k) { four[k] = float4{}; });
  }

  /* x and its parts, in their order. */
  DEVICE void gather(const layer_half_parameters &half, uint32_t first) {
    const uint32_t step = half.rows * Hidden;
    const float *x = half.x + first, *from = half.x_parts + first;
    unroll<lane_fours>([&](uint32_t k) {
      if (has(k)) four[k] = load_four(x + 128 * k);
    });
    rolled_for (uint32_t left = half.part_count; left; left -= MANY_TOKENS_PARTS_AT_ONCE) {
      float4 part[MANY_TOKENS_PARTS_AT_ONCE][lane_fours] = {};
      unroll<MANY_TOKENS_PARTS_AT_ONCE>([&](uint32_t i) {
        unroll<lane_fours>([&](uint32_t k) {
          if (has(k)) part[i][k] = load_four(from + 128 * k);
        });
        from += step;
      });
      unroll<MANY_TOKENS_PARTS_AT_ONCE, lane_fours>([&](uint32_t i, uint32_t k) {
        four[k].x += part[i][k].x, four[k].y += part[i][k].y, four[k].z += part[i][k].z, four[k].w += part[i][k].w;
      });
    }
  }

  DEVICE void store(float *out) const {
    unroll<lane_fours>([&](uint32_t k) {
      if (has(k)) *(float4 *)(out + 128 * k) = four[k];
    });
  }

  DEVICE float squares() const {
    float sum = 0;
    unroll<lane_fours>([&](uint32_t k) {
      sum += (four[k].x * four[k].x + four[k].y * four[k].y) + (four[k].z * four[k].z + four[k].w * four[k].w);
    });
    return sum;
  }

  /* Times the norm, in panels. */
  DEVICE void store_normed(unsigned char *to, const float4 (&norm)[lane_fours]) const {
    unroll<lane_fours>([&](uint32_t k) {
      if (has(k))
        *(uint2 *)(to + 2 * k * ATOM_BYTES) = {pack(four[k].x * norm[k].x, four[k].y * norm[k].y),
                                               pack(four[k].z * norm[k].z, four[k].w * norm[k].w)};
    });
  }
};

/* The norm's numbers, asked for before the wait if it is settled; without one they are 1. */
template <uint32_t Hidden> struct lane_norm {
  using row = half_place<Hidden>;
  uint2 numbers[row::lane_fours];
  float4 unpacked[row::lane_fours];

  DEVICE lane_norm() {
    constexpr uint32_t ones = 0x3f803f80;
    unroll<row::lane_fours>([&](int k) { numbers[k] = {ones, ones}; });
  }
  DEVICE void load(const layer_half_parameters &half) {
    if (half.norm)
      unroll<row::lane_fours>([&](uint32_t k) {
        if (row::has(k))
          numbers[k] = load_early_two((const unsigned char *)half.norm + (row::first_four() + 32 * k) * 8);
      });
  }
  DEVICE uint32_t all() const {
    uint32_t all = 0;
    unroll<row::lane_fours>([&](int k) { all ^= numbers[k].x ^ numbers[k].y; });
    return all;
  }
  /* Before the wait, if they are there. */
  DEVICE void unpack() {
    unroll<row::lane_fours>([&](int k) {
      const float2 low = two_numbers(numbers[k].x), high = two_numbers(numbers[k].y);
      unpacked[k] = {low.x, low.y, high.x, high.y};
      asm volatile("" : "+f"(unpacked[k].x), "+f"(unpacked[k].y), "+f"(unpacked[k].z), "+f"(unpacked[k].w));
    });
  }
};

/* What a block has of x and its norm, in shared memory. */
struct token_factors {
  float squares[8][2];          /* of the halves of its own tokens */
  alignas(16) float factor[64]; /* of the rows of the tile that it multiplies */
  uint64_t here;
};

/* Eight tokens of the block, by sixteen warps, to the blocks of the cluster in the mask `blocks`: each panel times the
 * norm is written to `exchange`, and a copy brings it to all of them. The factors of the rows, times `scale`, follow:
 * those who multiply the panels need them later. */
template <uint32_t Hidden>
DEVICE void send_tokens(const layer_half_parameters &half, const half_place<Hidden> &place, uint32_t rank,
                        bool writes_out, float scale, const lane_norm<Hidden> &norm, unsigned char *exchanges,
                        token_factors &factors, uint16_t blocks, unsigned char (*panels)[64 * PANEL_ROW_BYTES],
                        uint64_t *barriers) {
  constexpr uint32_t copying = Hidden / PANEL_COLUMNS;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool has_token = place.token < half.rows;
  half_row<Hidden> x;
  x.clear();
  if (has_token) x.gather(half, place.first);
  x.store_normed(exchanges + place.row, norm.unpacked);
  writes_reach_copies();
  cp_async_wait<0>(), writes_reach_products(); /* the weights */
  const float own = warp_sum(x.squares());
  if (lane == 0) factors.squares[warp / 2][warp % 2] = own;
  __syncthreads();
  if (warp < copying) {
    if (elected())
      copy_to_blocks(blocks, shared_address(panels[warp]) + rank * ATOM_BYTES,
                     exchanges + place.exchange + warp * ATOM_BYTES, ATOM_BYTES, shared_address(&barriers[warp]));
  } else if (warp == copying) { /* a lane has a block and four tokens */
    const uint32_t four = lane % 2, block = lane / 2;
    float factor[4];
    unroll<4>([&](uint32_t i) {
      const float2 two = load_shared_two(shared_address(factors.squares[4 * four + i]));
      factor[i] = (half.epsilon == 0 ? 1.0f : rsqrtf((two.x + two.y) * (1.0f / Hidden) + half.epsilon)) * scale;
    });
    if (blocks >> block & 1)
      send_four(address_in_block(shared_address(&factors.factor[8 * rank + 4 * four]), block),
                {factor[0], factor[1], factor[2], factor[3]}, address_in_block(shared_address(&factors.here), block));
  }
  if (has_token && writes_out) x.store(half.out + place.first);
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
