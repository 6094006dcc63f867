/* gemm_softmax_staggered_rows.cuh - a tile of 32 rows of S^T = B A^T in a warpgroup's registers, for
 * gemm_softmax_staggered.cu: its products, exponentials and sums, and its stores.
 *
 * In product b, lane 4 g + t of warp w has rows 16 w + g + 8 h and columns 8 j + 2 t + e as s[b][4 j + 2 h + e], with h
 * and e from 0 to 1 and j from 0 to 3. The copies of B decide which column of S is which row of a product. Column 128 w
 * + 16 b + 8 h + g of the block is row 16 w + 8 h + g of product b, so a warp has 128 neighbouring columns. stmatrix
 * turns them back into rows of P.
 *
 * A lane has numbers of eight rows, r = 2 j + e. Each row lies in the eight lanes with the same t. Reductions leave row
 * r in the lane with g = r: each lane speaks for one of the tile's 32 rows, 8 (g / 2) + 2 t + g % 2. */
#pragma once

#include "../common/element.cuh"
#include "../common/wgmma.cuh"
#include "gemm_softmax_rows.cuh"

#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ == 900 && defined(__CUDA_ARCH_FEAT_SM90_ALL))

namespace {

using tile_numbers = float[STAGGERED_PRODUCTS][16];

/* The reference of a row's exponents is a share of the largest possible logit. The largest of some thousand logits is
 * likely near it: products of vectors in random directions have a deviation of 1 / sqrt(k) of the largest possible one,
 * and their largest is some three deviations. RAISED multiplies all exponentials by 2^63, so that they have as much
 * room above as below. */
template <int Steps> constexpr float likely_share = Steps == 1 ? 0.375f : 0.265f;
constexpr float RAISED = 63.0f;
/* If a row's largest exponent is likely above this, the reference is likely too far from it, and the tile is made
 * relative to its maxima at once. With k = 128 this question costs 1.3% of the time. */
constexpr float MOST_LIKELY = 150.0f;
template <int Steps> constexpr bool asks_if_far = Steps == 1;

/* ---- Wrappers ---------------------------------------------------------------------------------------------------- */

DEVICE float root(float x) {
  float result;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* The sum of the squares of eight numbers. Pairs of bf16 are added in 16 bits: it is for a bound, of which two digits
 * are enough. f16 has too few exponents for squares. */
DEVICE float squares_of(const uint32_t (&pairs)[4], __nv_bfloat16) {
  __nv_bfloat162 sum = __float2bfloat162_rn(0.0f);
  unrolled_for (int i = 0; i < 4; i++) {
    const __nv_bfloat162 pair = reinterpret_cast<const __nv_bfloat162 &>(pairs[i]);
    sum = i ? __hfma2(pair, pair, sum) : __hmul2(pair, pair);
  }
  const float2 two = __bfloat1622float2(sum);
  return two.x + two.y;
}
DEVICE float squares_of(const uint32_t (&pairs)[4], __half) {
  float sum = 0.0f;
  unrolled_for (int i = 0; i < 4; i++) {
    const float2 two = __half22float2(reinterpret_cast<const __half2 &>(pairs[i]));
    sum = fmaf(two.x, two.x, fmaf(two.y, two.y, sum));
  }
  return sum;
}
template <typename T, int Chunks, typename At> DEVICE float squares_as(At at) {
  float sum[2] = {0.0f, 0.0f};
  unrolled_for (int chunk = 0; chunk < Chunks; chunk++) {
    const float4 eight = load_shared_four(at(chunk));
    const uint32_t pairs[4] = {__float_as_uint(eight.x), __float_as_uint(eight.y), __float_as_uint(eight.z),
                               __float_as_uint(eight.w)};
    sum[chunk % 2] += squares_of(pairs, T());
  }
  return sum[0] + sum[1];
}
/* Of a row's chunks of eight numbers, at these addresses. */
template <int Chunks, typename At> DEVICE float squares(const gemm_softmax_wgmma_parameters &p, At at) {
  return p.is_bf16 ? squares_as<__nv_bfloat16, Chunks>(at) : squares_as<__half, Chunks>(at);
}

/* Of eight numbers of each lane, one for each r, the lanes of a t make one each: that of r = g. Half of them go to the
 * lane whose g has the other bit, then a quarter, then an eighth. */
template <typename Join> DEVICE float rows_deal(const float (&of)[8], uint32_t g, Join join) {
  float four[4], two[2];
  unrolled_for (int i = 0; i < 4; i++) {
    const float keep = g & 4 ? of[4 + i] : of[i], give = g & 4 ? of[i] : of[4 + i];
    four[i] = join(keep, __shfl_xor_sync(0xffffffffu, give, 16));
  }
  unrolled_for (int i = 0; i < 2; i++) {
    const float keep = g & 2 ? four[2 + i] : four[i], give = g & 2 ? four[i] : four[2 + i];
    two[i] = join(keep, __shfl_xor_sync(0xffffffffu, give, 8));
  }
  const float keep = g & 1 ? two[1] : two[0], give = g & 1 ? two[0] : two[1];
  return join(keep, __shfl_xor_sync(0xffffffffu, give, 4));
}
/* The value of the lane that speaks for row r. */
DEVICE float of_row(float value, int r, uint32_t t) { return __shfl_sync(0xffffffffu, value, 4 * r + t); }

/* A row's {max, sum} from `count` entries of it, each 256 bytes after the other. */
struct row_told {
  float max, sum;
};
template <int Most> DEVICE row_told entries_join(uint32_t entries, uint32_t count, float factor) {
  row_told all = {-INFINITY, 0.0f};
  float max[Most], sum[Most];
  unrolled_for (uint32_t i = 0; i < Most; i++) {
    const float2 entry = i < count ? load_shared_two(entries + i * 256) : make_float2(-INFINITY, 0.0f);
    max[i] = entry.x, sum[i] = entry.y;
  }
  unrolled_for (int i = 0; i < Most; i++) all.max = max_or_nan(all.max, max[i]);
  const float base = base_of(all.max);
  unrolled_for (int i = 0; i < Most; i++) all.sum += sum[i] * weight_of(max[i], base, factor);
  return all;
}

/* The warp's 128 columns of P, by two boxes of shared memory in turn. */
template <typename P, int Rows>
DEVICE void rows_store(const gemm_softmax_wgmma_parameters &p, const tile_numbers &s, float scale, uint32_t boxes,
                       int column, int row, int matrix) {
  constexpr int OF_HALF = STAGGERED_ROWS / Rows; /* parts of 64 columns */
  const uint32_t lane = threadIdx.x % 32, t = lane % 4;
  unrolled_for (int part = 0; part < 2 * OF_HALF; part++) {
    const int half = part / OF_HALF, first_row = part % OF_HALF * Rows;
    const uint32_t box = boxes + part % 2 * Rows * 128;
    if (lane == 0) tensor_store_wait_read<1>();
    __syncwarp();
    unrolled_for (int j = first_row / 8; j < (first_row + Rows) / 8; j++) {
      const float x = of_row(scale, 2 * j, t), y = of_row(scale, 2 * j + 1, t);
      unrolled_for (int i = 0; i < 2; i++) {
        const float *one = &s[4 * half + 2 * i][4 * j], *two = &s[4 * half + 2 * i + 1][4 * j];
        stmatrix_x4_transposed(box + (j * 8 - first_row + lane % 8) * 128 + ((4 * i + lane / 8) ^ lane % 8) * 16,
                               pack_two<P>(one[0] * x, one[1] * y), pack_two<P>(one[2] * x, one[3] * y),
                               pack_two<P>(two[0] * x, two[1] * y), pack_two<P>(two[2] * x, two[3] * y));
      }
    }
    writes_reach_products();
    __syncwarp();
    if (lane == 0) {
      tensor_store(&p.p, column + 64 * half, row + first_row, matrix, box, read_once_policy());
      tensor_store_commit();
    }
  }
}

/* ---- A tile ------------------------------------------------------------------------------------------------------ */

/* s := B A^T, under way. Each product waits for its rows of B: a block's first begins while others are still coming. */
template <typename T, int Steps>
DEVICE void multiply_as(tile_numbers &s, uint32_t b_panels, uint32_t b_full, uint32_t a_tile) {
  const uint64_t a = operand_descriptor(a_tile, 0), b0 = operand_descriptor(b_panels, 0);
  unrolled_for (int b = 0; b < STAGGERED_PRODUCTS; b++) pin(s[b]);
  unrolled_for (int b = 0; b < STAGGERED_PRODUCTS; b++) {
    barrier_wait(b_full + 8 * b, 0);
    wgmma_fence();
    unrolled_for (int k = 0; k < 4 * Steps; k++)
      warpgroup_product<T, 32>::shared(
          s[b], operand_further(b0, k / 4 * STAGGERED_B_BYTES + b * WGMMA_PANEL_BYTES + k % 4 * 32),
          operand_further(a, k / 4 * STAGGERED_ROWS * 128 + k % 4 * 32), k > 0);
  }
  wgmma_commit();
}

template <int Steps>
DEVICE void multiply(const gemm_softmax_wgmma_parameters &p, tile_numbers &s, uint32_t b_panels, uint32_t b_full,
                     uint32_t a_tile) {
  if (p.is_bf16)
    multiply_as<__nv_bfloat16, Steps>(s, b_panels, b_full, a_tile);
  else
    multiply_as<__half, Steps>(s, b_panels, b_full, a_tile);
}

/* Signs by which a larger number is a larger logit, and -infinity where columns do not count: all of a warp's, or none.
 */
DEVICE void prepare(tile_numbers &s, bool negative, bool counts) {
  if (!negative && counts) return;
  unrolled_for (int b = 0; b < STAGGERED_PRODUCTS; b++)
    unrolled_for (int i = 0; i < 16; i++) s[b][i] = counts ? -s[b][i] : -INFINITY;
}

/* s := exponentials relative to the maxima of the warp's numbers. Returns {max, sum} of the row that the lane speaks
 * for. */
DEVICE row_told exponentials_from_maxima(tile_numbers &s, float factor, uint32_t g, uint32_t t) {
  float part[8];
  unrolled_for (int r = 0; r < 8; r++) {
    const int i = r / 2 * 4 + r % 2;
    part[r] = max_or_nan(s[0][i], s[0][i + 2]);
    unrolled_for (int b = 1; b < STAGGERED_PRODUCTS; b++)
      part[r] = max_or_nan(part[r], max_or_nan(s[b][i], s[b][i + 2]));
  }
  row_told own = {rows_deal(part, g, [](float a, float b) { return max_or_nan(a, b); }), 0.0f};
  /* One rounding in factor s - factor max keeps the products' rounding errors out; where they are so large that the
   * error would show, the difference comes first. */
  const float own_base = base_of(own.max);
  const bool large = fabsf(own_base * factor) > 4096.0f;
  const float offset = large ? 0.0f : own_base * factor;
  if (__any_sync(0xffffffffu, large)) {
    unrolled_for (int r = 0; r < 8; r++) {
      const float less = of_row(large ? own_base : 0.0f, r, t);
      unrolled_for (int b = 0; b < STAGGERED_PRODUCTS; b++)
        s[b][r / 2 * 4 + r % 2] -= less, s[b][r / 2 * 4 + r % 2 + 2] -= less;
    }
  }
  const auto add = [&](int r) {
    part[r] = s[0][r / 2 * 4 + r % 2] + s[0][r / 2 * 4 + r % 2 + 2];
    unrolled_for (int b = 1; b < STAGGERED_PRODUCTS; b++)
      part[r] += s[b][r / 2 * 4 + r % 2] + s[b][r / 2 * 4 + r % 2 + 2];
  };
  unrolled_for (int r = 0; r < 8; r++) {
    const float less = of_row(offset, r, t);
    unrolled_for (int b = 0; b < STAGGERED_PRODUCTS; b++) {
      float &x = s[b][r / 2 * 4 + r % 2], &y = s[b][r / 2 * 4 + r % 2 + 2];
      x = exp2_approximate(fmaf(x, factor, -less)), y = exp2_approximate(fmaf(y, factor, -less));
    }
    if (r) add(r - 1);
  }
  add(7);
  own.sum = rows_deal(part, g, [](float a, float b) { return a + b; });
  return own;
}

/* s := exponentials; `less` has the reference of each of the lane's rows. Returns the sum of the row that the lane
 * speaks for. */
DEVICE float exponentials_from(tile_numbers &s, const float (&less)[8], float factor, uint32_t g) {
  float sum[8];
  unrolled_for (int b = 0; b < STAGGERED_PRODUCTS; b++) {
    unrolled_for (int i = 0; i < 16; i++) s[b][i] = exp2_approximate(fmaf(s[b][i], factor, -less[i / 4 * 2 + i % 2]));
    unrolled_for (int r = 0; r < 8; r++) {
      const float x = s[b][r / 2 * 4 + r % 2], y = s[b][r / 2 * 4 + r % 2 + 2];
      sum[r] = b ? sum[r] + (x + y) : x + y;
    }
  }
  return rows_deal(sum, g, [](float x, float y) { return x + y; });
}

} // namespace

#endif
