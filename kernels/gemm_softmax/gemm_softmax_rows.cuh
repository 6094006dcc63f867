/* gemm_softmax_rows.cuh - softmax and maxima of rows that lie in a warpgroup's accumulators (common/wgmma.cuh), and the
 * exchange between blocks of a cluster that share rows. For sm_90a; the portable kernels use the maxima too.
 *
 * A warpgroup has 64 x Columns of S. A lane has Columns / 4 numbers of two rows, group and group + 8 of its warp's 16.
 * Element i belongs to row i / 2 % 2 of these two, and to column 8 (i / 4) + i % 2 from the lane's first. So a
 * reduction of a row is a loop over registers and two shuffles in the quad.
 *
 * Exponents are relative to the largest logit of this warpgroup. Warpgroups that share a row then exchange (maximum,
 * sum) once, and each multiplies its exponentials by 2^(own - all) / sum: S is made once, and exponentials are taken
 * once. */
#pragma once

#include "../common/ptx.cuh"
#include "../common/send.cuh"
#include "../common/shared_words.cuh"
#include "../common/tensor_copy.cuh"
#include "../common/wgmma.cuh"
#include "gemm_softmax_wgmma.h"

namespace {

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* NaN if either is (PTX ISA: max.NaN). */
DEVICE float max_or_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
DEVICE float quad_max_or_nan(float value) {
  value = max_or_nan(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return max_or_nan(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

/* 2^(factor (max - base)). Both products are rounded, as in rows_exponentials: with one rounding less, the difference
 * would not be 0 for the same maximum. */
DEVICE float weight_of(float max, float base, float factor) {
  return exp2_approximate(__fsub_rn(__fmul_rn(max, factor), __fmul_rn(base, factor)));
}

/* The reference of exponents: the maximum, but not -infinity, so that 2^(-infinity - base) is 0. */
DEVICE float base_of(float max) { return max == -INFINITY ? 0.0f : max; }

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* s = A B^T, or s += A B^T for k > 0, of a panel of A and one of B, under way. */
template <typename T, int N> DEVICE void multiply_panel_as(float (&s)[N / 2], uint64_t a, uint64_t b, uint32_t k) {
  wgmma_fence();
  unrolled_for (int q = 0; q < 4; q++)
    warpgroup_product<T, N>::shared(s, operand_further(a, 32 * q), operand_further(b, 32 * q), k || q);
  wgmma_commit();
}
/* Each type has a fence and a commit of its own: ptxas serialises products that share them across a branch. */
template <int N>
DEVICE void multiply_panel(const gemm_softmax_wgmma_parameters &p, float (&s)[N / 2], uint64_t a, uint64_t b,
                           uint32_t k) {
  if (p.is_bf16)
    multiply_panel_as<__nv_bfloat16, N>(s, a, b, k);
  else
    multiply_panel_as<__half, N>(s, a, b, k);
}

/* ---- Rows in registers ------------------------------------------------------------------------------------------- */

/* Maximum and sum of a lane's two rows. */
struct row_pair {
  float max[2], sum[2];
};

/* The number of columns that each row counts, from the lane's first; the rows of a pair are eight apart. */
struct column_counts {
  int of[2];
  bool all; /* the warpgroup's rows count all of its columns */
};
DEVICE column_counts counts_of(const gemm_softmax_wgmma_parameters &p, int tile_row, int row, int first, int columns) {
  const int quad = threadIdx.x % 4, diagonal = (int)p.n - (int)p.m + 1; /* columns of row 0, if causal */
  column_counts counts;
  unrolled_for (int r = 0; r < 2; r++)
    counts.of[r] = (p.causal ? min((int)p.n, row + 8 * r + diagonal) : (int)p.n) - first - 2 * quad;
  counts.all = first + columns <= (p.causal ? min((int)p.n, tile_row + diagonal) : (int)p.n);
  return counts;
}

template <int Count> DEVICE void rows_fill(float (&s)[Count], const column_counts &counts, float value) {
  unrolled_for (int i = 0; i < Count; i++)
    if (8 * (i / 4) + i % 2 >= counts.of[i / 2 % 2]) s[i] = value;
}

/* Signs by which a larger number is a larger logit, and -infinity where a column does not count. */
template <int Count>
DEVICE void rows_prepare(const gemm_softmax_wgmma_parameters &p, float (&s)[Count], const column_counts &counts) {
  if (p.negative) {
    unrolled_for (int i = 0; i < Count; i++) s[i] = -s[i];
  }
  if (!counts.all) rows_fill(s, counts, -INFINITY);
}

/* The maximum of row R of the pair. */
template <int R, int Count> DEVICE float row_max(const float (&s)[Count]) {
  float even = max_or_nan(s[2 * R], s[2 * R + 1]), odd = max_or_nan(s[4 + 2 * R], s[4 + 2 * R + 1]);
  unrolled_for (int i = 8; i < Count; i += 8) {
    even = max_or_nan(even, max_or_nan(s[i + 2 * R], s[i + 2 * R + 1]));
    odd = max_or_nan(odd, max_or_nan(s[i + 4 + 2 * R], s[i + 4 + 2 * R + 1]));
  }
  return quad_max_or_nan(max_or_nan(even, odd));
}

/* s := 2^(factor (s - max)), and this lane's part of the sums. One rounding in factor s - factor max keeps the
 * products' rounding errors out, as long as it is the same for a whole row; where the products are so large that the
 * error would show, the difference comes first. */
template <int Count>
DEVICE void rows_exponentials(float (&s)[Count], const float (&max)[2], float factor, float (&sum)[2]) {
  float offset[2], first[2];
  bool any_large = false;
  unrolled_for (int r = 0; r < 2; r++) {
    const float base = base_of(max[r]);
    const bool large = fabsf(base * factor) > 4096.0f;
    first[r] = large ? base : 0.0f;
    offset[r] = large ? 0.0f : base * factor;
    any_large |= large;
  }
  if (__any_sync(0xffffffffu, any_large)) {
    unrolled_for (int i = 0; i < Count; i++) s[i] -= first[i / 2 % 2];
  }
  float odd[2] = {0.0f, 0.0f};
  unrolled_for (int i = 0; i < Count; i += 2) {
    const int r = i / 2 % 2;
    s[i] = exp2_approximate(fmaf(s[i], factor, -offset[r]));
    s[i + 1] = exp2_approximate(fmaf(s[i + 1], factor, -offset[r]));
    sum[r] += s[i];
    odd[r] += s[i + 1];
  }
  sum[0] += odd[0], sum[1] += odd[1];
}

/* ---- Exchange between blocks of a cluster ------------------------------------------------------------------------ */

/* The blocks of a cluster that share this block's rows: `count` neighbours, a power of two. */
struct row_sharers {
  const gemm_softmax_wgmma_parameters &p;
  DEVICE uint32_t count() const { return p.row_blocks; }
  DEVICE uint32_t rank() const { return cluster_rank() & (count() - 1); }   /* of this block */
  DEVICE uint32_t first() const { return cluster_rank() & ~(count() - 1); } /* in the cluster */
  DEVICE uint32_t index() const { return blockIdx.x >> p.row_blocks_log2; } /* in the grid */
  /* The address in the sharer of this rank. */
  DEVICE uint32_t address(uint32_t sharer, uint32_t here) const { return address_in_block(here, first() + sharer); }
};

/* A warp's {max, sum} of 16 rows into `slot` of all sharers, at most `Most`. The barrier in the same place of each
 * counts the bytes, and expects those of this block from this arrival. */
template <int Most>
DEVICE void rows_tell(const row_sharers &sharers, const row_pair &rows, uint32_t slot, uint32_t barrier) {
  const uint32_t warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
  if (lane == 0) barrier_expect(barrier, sharers.count() * 8 * 16);
  unrolled_for (uint32_t i = 0; i < Most; i += 4)
    if (i + quad < sharers.count())
      send_four(sharers.address(i + quad, slot + (8 * warp + group) * 16),
                make_float4(rows.max[0], rows.sum[0], rows.max[1], rows.sum[1]), sharers.address(i + quad, barrier));
}

/* {max, sum} of all of a quad's columns from its lanes' of `Count` parts. With Alike the lanes have the same maxima. */
template <bool Alike, int Count> DEVICE row_pair rows_join(const row_pair (&part)[Count], float factor) {
  row_pair all = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
  unrolled_for (int r = 0; r < 2; r++) {
    unrolled_for (int i = 0; i < Count; i++) all.max[r] = max_or_nan(all.max[r], part[i].max[r]);
    if (!Alike) all.max[r] = quad_max_or_nan(all.max[r]);
    const float base = base_of(all.max[r]);
    unrolled_for (int i = 0; i < Count; i++) all.sum[r] += part[i].sum[r] * weight_of(part[i].max[r], base, factor);
    all.sum[r] = quad_sum(all.sum[r]);
  }
  return all;
}

/* All rows' maxima and sums from `count` slots, at most `Most`, in the order of the slots. */
template <int Most> DEVICE row_pair rows_combine(uint32_t slots, uint32_t count, float factor) {
  constexpr int EACH = Most / 4; /* slots of a lane of the quad */
  const uint32_t warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
  row_pair part[EACH];
  unrolled_for (int i = 0; i < EACH; i++) {
    part[i] = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
    if (4 * i + quad < count) {
      const float4 told = load_shared_four(slots + (4 * i + quad) * WGMMA_SLOT_BYTES + (8 * warp + group) * 16);
      part[i] = {{told.x, told.z}, {told.y, told.w}};
    }
  }
  return rows_join<false>(part, factor);
}

/* ---- Rows of P to shared memory ---------------------------------------------------------------------------------- */

/* The factors of exponentials relative to the warpgroup's own maxima. If no column counts, or all are -infinity, the
 * sum is 0 and the factor NaN. */
struct row_factors {
  float of[2];
};
DEVICE row_factors factors_of(const row_pair &own, const row_pair &all, float factor) {
  row_factors factors;
  unrolled_for (int r = 0; r < 2; r++)
    factors.of[r] = weight_of(own.max[r], base_of(all.max[r]), factor) * reciprocal(all.sum[r]);
  return factors;
}

/* s := P. Columns that do not count are zero even in a row of NaN. */
template <int Count>
DEVICE void rows_finish(float (&s)[Count], const row_factors &factors, const column_counts &counts) {
  unrolled_for (int i = 0; i < Count; i++) s[i] *= factors.of[i / 2 % 2];
  if (!counts.all) rows_fill(s, counts, 0.0f);
}

/* In 16 bits: element i and its neighbour in each. */
template <int Count> DEVICE void rows_pack(uint32_t (&packed)[Count / 2], const float (&s)[Count], uint32_t output) {
  if (output == GEMM_SOFTMAX_F16) {
    unrolled_for (int i = 0; i < Count / 2; i++) packed[i] = pack_two<__half>(s[2 * i], s[2 * i + 1]);
  } else {
    unrolled_for (int i = 0; i < Count / 2; i++) packed[i] = pack_two<__nv_bfloat16>(s[2 * i], s[2 * i + 1]);
  }
}

template <int Count> DEVICE void rows_unpack(float (&s)[Count], const uint32_t *packed, uint32_t output) {
  unrolled_for (int i = 0; i < Count / 2; i++) {
    float2 two;
    if (output == GEMM_SOFTMAX_F16)
      two = __half22float2(reinterpret_cast<const __half2 &>(packed[i]));
    else
      two = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162 &>(packed[i]));
    s[2 * i] = two.x, s[2 * i + 1] = two.y;
  }
}

/* A warp's 16 rows of a box of 128 bytes, with the 128-byte swizzle; packed[0] is of the box's first columns. */
DEVICE void box_fill_16(uint32_t box, const uint32_t *packed) {
  const uint32_t lane = threadIdx.x % 32;
  unrolled_for (uint32_t j = 0; j < 8; j += 2)
    stmatrix_x4(box + lane % 16 * 128 + ((j + lane / 16) ^ lane % 8) * 16, packed[2 * j], packed[2 * j + 1],
                packed[2 * j + 2], packed[2 * j + 3]);
}
DEVICE void box_fill_32(uint32_t box, const float *s) {
  const uint32_t group = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
  unrolled_for (uint32_t j = 0; j < 4; j++) {
    const uint32_t at = box + group * 128 + ((2 * j + quad / 2) ^ group) * 16 + quad % 2 * 8;
    store_two_numbers(at, {s[4 * j], s[4 * j + 1]});
    store_two_numbers(at + 8 * 128, {s[4 * j + 2], s[4 * j + 3]});
  }
}

} // namespace
