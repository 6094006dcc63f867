/* many_tokens.cuh - for the layer halves of 17 to 128 tokens on sm_90a: operands of wgmma in shared memory, copies from
 * block to block, and the rows of x that a cluster normalises.
 *
 * A block's tokens become eight rows of each panel, which lie together: so few copies bring them to another block. */
#pragma once

#include "../common/elected.cuh"
#include "../common/tensor_copy.cuh"
#include "../common/wgmma.cuh"
#include "decoder_shared.cuh"
#include "layer_half.h"

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

DEVICE float4 load_four(const float *address) {
  float4 value;
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(address)
               : "memory");
  return value;
}

/* A warp's token: fours lane + 32 k of its row. */
template <uint32_t Hidden> struct token_row {
  static constexpr uint32_t fours = Hidden / 4, lane_fours = (fours + 31) / 32; /* of a token; of a lane */
  static constexpr uint32_t at_once = 4; /* parts whose loads are in flight together */
  float4 four[lane_fours];

  static DEVICE bool has(uint32_t lane, uint32_t k) { return lane + 32 * k < fours; }

  DEVICE void clear() {
    unroll<lane_fours>([&](uint32_t k) { four[k] = float4{}; });
  }

  /* x and its parts, in their order. */
  DEVICE void gather(const layer_half_parameters &half, uint32_t token, uint32_t lane) {
    const uint32_t first = token * Hidden + 4 * lane, step = half.rows * Hidden;
    const float *x = half.x + first, *from = half.x_parts + first;
    unroll<lane_fours>([&](uint32_t k) {
      if (has(lane, k)) four[k] = load_four(x + 128 * k);
    });
    rolled_for (uint32_t left = half.part_count; left; left -= min(left, at_once)) {
      float4 part[at_once][lane_fours];
      unroll<at_once>([&](uint32_t i) {
        unroll<lane_fours>([&](uint32_t k) {
          part[i][k] = float4{-0.0f, -0.0f, -0.0f, -0.0f};
          if (i < left && has(lane, k)) part[i][k] = load_four(from + 128 * k);
        });
        from += step;
      });
      unroll<at_once, lane_fours>([&](uint32_t i, uint32_t k) {
        four[k].x += part[i][k].x, four[k].y += part[i][k].y, four[k].z += part[i][k].z, four[k].w += part[i][k].w;
      });
    }
  }

  DEVICE void store(float *out, uint32_t lane) const {
    unroll<lane_fours>([&](uint32_t k) {
      if (has(lane, k)) *(float4 *)(out + 4 * lane + 128 * k) = four[k];
    });
  }

  DEVICE float factor(float epsilon) const {
    if (epsilon == 0) return 1;
    float squares = 0;
    unroll<lane_fours>([&](uint32_t k) {
      squares += (four[k].x * four[k].x + four[k].y * four[k].y) + (four[k].z * four[k].z + four[k].w * four[k].w);
    });
    return rsqrtf(warp_sum(squares) * (1.0f / Hidden) + epsilon);
  }

  /* Row `row` of the block's tokens, in panels. */
  DEVICE void normalise(unsigned char *to, uint32_t row, uint32_t lane, float factor,
                        const uint2 (&norm)[lane_fours]) const {
    to += lane / 16 * ATOM_BYTES + swizzled(row, lane / 2 % 8) + lane % 2 * 8;
    unroll<lane_fours>([&](uint32_t k) {
      const float2 low = two_numbers(norm[k].x), high = two_numbers(norm[k].y);
      if (has(lane, k))
        *(uint2 *)(to + 2 * k * ATOM_BYTES) = {pack(four[k].x * factor * low.x, four[k].y * factor * low.y),
                                               pack(four[k].z * factor * high.x, four[k].w * factor * high.y)};
    });
  }
};
