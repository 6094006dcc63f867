/* gemm_tile_finish.cuh - from sums in shared memory to results, for kernels of mma.sync: eight lanes have 64 neighbours
 * of a row. A kernel's parameters have finish, norms, is_bf16, and out_whole, residual_whole, normed_whole and
 * norm_whole: rows begin at multiples of 16 bytes. */
#pragma once

#include "gemm_finish.cuh"

namespace {

/* The sum over eight lanes, in a fixed order. All get the same bits. */
DEVICE float eight_sum(float value) {
  value = quad_sum(value);
  return value + __shfl_xor_sync(0xffffffffu, value, 4);
}

/* The factor of a row by the squares of its vector: each of eight lanes has every eighth group. */
DEVICE float row_factor(const gemm_norms &norms, int64_t matrix, uint32_t row, uint32_t rows) {
  if (!norms.vector_squares) return 1;
  const float *from = norms.vector_squares + matrix * norms.vector_squares_batch + min(row, rows - 1);
  float sum = 0;
  rolled_for (uint32_t i = threadIdx.x % 8; i < norms.vector_groups; i += 8)
    sum += from[i * norms.vector_squares_group];
  return rsqrtf(fmaf(eight_sum(sum), norms.mean_factor, norms.epsilon));
}

/* Neighbours of a row, after the bias: those that the row has, `count`, become results. The sum of their squares. */
template <class Parameters, int N>
DEVICE float numbers_finish(const Parameters &p, int64_t matrix, uint32_t row, uint32_t column, uint32_t count,
                            float (&v)[N], int64_t skipped) {
  const gemm_finish &f = p.finish;
  if (f.residual) {
    float residual[N];
    const int64_t from = matrix * f.residual_batch + row * f.residual_row + column;
    load_numbers(f.residual_dtype, p.residual_whole, f.residual, from, count, residual);
    unrolled_for (int i = 0; i < N; i++) v[i] += residual[i];
  }
  const int64_t out = skipped + matrix * f.out_batch + row * f.out_row + column;
  store_numbers(f.out_dtype, p.out_whole, f.out, out, count, v);
  if (!p.norms.normed) return 0;
  const uint32_t dtype = p.is_bf16 ? RONDO_BF16 : RONDO_F16;
  float norm[N], sum = 0;
  load_numbers(dtype, p.norm_whole, p.norms.norm, column, count, norm);
  unrolled_for (uint32_t i = 0; i < N; i++) {
    sum = i < count ? fmaf(v[i], v[i], sum) : sum;
    norm[i] *= v[i];
  }
  const int64_t to = matrix * p.norms.normed_batch + row * p.norms.normed_row + column;
  store_numbers(dtype, p.normed_whole, p.norms.normed, to, count, norm);
  return sum;
}

/* The bias of eight columns; -0 for none, which changes no number. */
DEVICE void bias_load(const gemm_finish &f, int64_t matrix, uint32_t column, uint32_t count, float (&bias)[8]) {
  unrolled_for (uint32_t i = 0; i < 8; i++) bias[i] = -0.0f;
  if (!f.bias) return;
  unrolled_for (uint32_t i = 0; i < 8; i++)
    if (i < count) bias[i] = load_number(f.bias_dtype, f.bias, matrix * f.bias_batch + column + i);
}

/* Eight sums of a row become results; with silu_mul four. The sum of their squares. `skipped`: results before the
 * matrices. */
template <class Parameters>
DEVICE float sums_finish(const Parameters &p, int64_t matrix, uint32_t row, uint32_t column, uint32_t count,
                         float (&v)[8], float scale, const float (&bias)[8], int64_t skipped = 0) {
  unrolled_for (int i = 0; i < 8; i++) v[i] = fmaf(v[i], scale, bias[i]);
  if (!p.finish.silu_mul) return numbers_finish(p, matrix, row, column, count, v, skipped);
  float gates[4];
  unrolled_for (int i = 0; i < 4; i++) gates[i] = gated(v[2 * i], v[2 * i + 1]);
  return numbers_finish(p, matrix, row, column / 2, count / 2, gates, 0);
}

} // namespace
