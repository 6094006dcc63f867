/* gemm_registers.cuh - results that leave from registers, for gemm_wgmma.cuh: f32, rows that no map can have, and
 * silu_mul where its results are no boxes. */
#pragma once

#include "gemm_sums.cuh"

namespace {

template <typename D> struct gemm_registers : gemm_sums<D> {
  using gemm_sums<D>::gemm_sums, gemm_sums<D>::p, gemm_sums<D>::lane;

  /* A box from registers: f32, and rows that no map can have. Its code is for one type at a time, with an address for
   * each row, since a block waits for it after every tile. */
  DEVICE void store_numbers(const float *d, int p0, int q0, int matrix) const {
    if (p.finish.out_dtype == RONDO_F32)
      store_numbers_of<float>(d, p0, q0, matrix);
    else if (p.finish.out_dtype == RONDO_BF16)
      store_numbers_of<__nv_bfloat16>(d, p0, q0, matrix);
    else
      store_numbers_of<__half>(d, p0, q0, matrix);
  }
  DEVICE static void set(float *to, float x) { *to = x; }
  DEVICE static void set(__nv_bfloat16 *to, float x) { *to = __float2bfloat16_rn(x); }
  DEVICE static void set(__half *to, float x) { *to = __float2half_rn(x); }
  DEVICE static void set_two(float *to, float x, float y) { *(float2 *)to = make_float2(x, y); }
  template <typename Out> DEVICE static void set_two(Out *to, float x, float y) {
    *(uint32_t *)to = pack_two<Out>(x, y);
  }

  template <typename Out> DEVICE void store_numbers_of(const float *d, int p0, int q0, int matrix) const {
    const int64_t begin = matrix * p.finish.out_batch, stride = p.finish.out_row;
    Out *to = (Out *)p.finish.out + begin + (D::SWAPPED ? q0 * stride + p0 : p0 * stride + q0);
    const int p_left = (int)(D::SWAPPED ? p.columns : p.rows) - p0;
    const int q_left = (int)(D::SWAPPED ? p.rows : p.columns) - q0;
    unrolled_for (int j = 0; j < D::BOX / 8; j++) {
      unrolled_for (int h = 0; h < 2; h++) {
        const float x = d[4 * j + 2 * h], y = d[4 * j + 2 * h + 1];
        const bool is_there = 8 * h < p_left && 8 * j < q_left;
        if (!D::SWAPPED) {
          if (is_there) set_two(to + 8 * h * stride + 8 * j, x, y);
          continue;
        }
        if (is_there) set(to + 8 * h, x);
        if (is_there && 8 * j + 1 < q_left) set(to + stride + 8 * h, y);
      }
      if (D::SWAPPED) to += 8 * stride;
    }
  }

  /* One result of silu_mul, which may be past the end. */
  DEVICE void store_gated_number(float number, int row, int column, int matrix) const {
    const gemm_finish &f = p.finish;
    if (row >= (int)p.rows || column >= (int)p.columns / 2) return;
    if (f.residual) {
      const int64_t element = matrix * f.residual_batch + row * f.residual_row + column;
      number += load_number(f.residual_dtype, f.residual, element);
    }
    store_number(f.out_dtype, f.out, matrix * f.out_batch + row * f.out_row + column, number);
  }

  /* A lane has one column of each group of eight rows of Q. Four lanes exchange theirs: each then stores four
   * neighbours of one group, in two rows. */
  DEVICE void store_gated_fours(const uint32_t (&pairs)[4], int p0, int column, int matrix) const {
    uint32_t words[4] = {pairs[0], pairs[1], pairs[2], pairs[3]};
    unrolled_for (int apart = 1; apart <= 2; apart *= 2)
      unrolled_for (int i = 0; i < 4; i++) {
        if (i & apart) continue;
        const bool is_upper = lane & apart;
        const uint32_t other = __shfl_xor_sync(0xffffffffu, is_upper ? words[i] : words[i ^ apart], apart);
        (is_upper ? words[i] : words[i ^ apart]) = other;
      }
    unrolled_for (int h = 0; h < 2; h++) {
      if (p0 + 8 * h >= (int)p.rows || column >= (int)p.columns / 2) continue;
      const uint32_t half = h ? 0x7632 : 0x5410;
      const int64_t element = matrix * p.finish.out_batch + (p0 + 8 * h) * p.finish.out_row + column;
      *(uint2 *)((uint16_t *)p.finish.out + element) =
          make_uint2(__byte_perm(words[0], words[1], half), __byte_perm(words[2], words[3], half));
    }
  }

  /* If W is P, gate and up are neighbours of two lanes. One makes the upper result, x[0], and the other the lower one,
   * x[2]. The moves keep the selection from the products, which would wait for each other. */
  DEVICE float gated_by_two(const float *x) const {
    const bool is_lower = lane & 4;
    float mine, theirs;
    asm volatile("mov.f32 %0, %1;" : "=f"(mine) : "f"(is_lower ? x[2] : x[0]));
    asm volatile("mov.f32 %0, %1;" : "=f"(theirs) : "f"(is_lower ? x[0] : x[2]));
    theirs = __shfl_xor_sync(0xffffffffu, theirs, 4);
    return gated(is_lower ? theirs : mine, is_lower ? mine : theirs);
  }

  /* A box with silu_mul. */
  DEVICE void store_gated(const float *d, int p0, int q0, int matrix) const {
    unrolled_for (int first = 0; first < D::BOX / 8; first += 4) {
      float numbers[4][2];
      unrolled_for (int j = 0; j < 4; j++)
        unrolled_for (int i = 0; i < 2; i++) {
          const float *x = d + 4 * (first + j);
          numbers[j][i] = D::SWAPPED ? gated_by_two(x + i) : gated(x[2 * i], x[2 * i + 1]);
        }
      if (!D::SWAPPED && p.in_fours) {
        uint32_t pairs[4];
        unrolled_for (int j = 0; j < 4; j++)
          pairs[j] = word_of_16(p.finish.out_dtype == RONDO_BF16, numbers[j][0], numbers[j][1]);
        store_gated_fours(pairs, p0, q0 / 8 * 4 + 4 * (first + (int)lane % 4), matrix);
        continue;
      }
      unrolled_for (int j = 0; j < 4; j++)
        unrolled_for (int i = 0; i < 2; i++)
          if (D::SWAPPED)
            store_gated_number(numbers[j][i], q0 + 8 * (first + j) + i, (p0 + (lane & 4 ? 7 : 0)) / 2, matrix);
          else
            store_gated_number(numbers[j][i], p0 + 8 * i, q0 / 2 + 4 * (first + j), matrix);
    }
  }

  /* From registers. */
  DEVICE void store_each(const float (&d)[D::STORED / 2], int p0, int q0, int matrix) const {
    unrolled_for (int box = 0; box < D::BOXES; box++) {
      const int begin = D::box_begin(box);
      if (p.finish.silu_mul)
        store_gated(d + begin / 2, p0, q0 + begin, matrix);
      else
        store_numbers(d + begin / 2, p0, q0 + begin, matrix);
    }
  }
};

} // namespace
