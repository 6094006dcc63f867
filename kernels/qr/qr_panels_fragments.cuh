/* qr_panels_fragments.cuh - groups of eight reflectors applied to a panel of f64 by tensor cores.
 *
 * A lane of mma.sync's fragments is one of eight, `across`, times four, `along` (PTX ISA, "Matrix Fragments for
 * mma.m8n8k4" and m16n8k8). C^T is in registers as the sum of a product: a lane has rows of two columns. Read as an
 * operand that is summed over rows, the same registers are C^T with its rows in another order. Any order is right if V
 * has the same. So nothing moves between lanes:
 *
 *   W^T = C^T V      over the rows of this warp, then summed over the warps of the same columns in shared memory;
 *   Y^T = W^T T      W^T is an operand as it is;
 *   C^T -= Y^T V^T   Y^T is an operand as it is.
 *
 * Rows go in strips of eight. A number of V that a warp reads serves 16 columns, instead of 8 with multiply-adds. The
 * first product is m8n8k4, for which an H200 has half the rate of larger ones (63 multiply-adds a clock and
 * multiprocessor, not 127; DFMA 57). In larger ones a lane's two numbers of A are of one row and two columns, but its
 * numbers of the sum C^T are of two rows and one column. */
#pragma once

#include "qr_panels_memory.cuh"

/* sum (8 x 8) += a (8 x 4) b (4 x 8). */
DEVICE void multiply_8x8x4(double &sum0, double &sum1, double a, double b) {
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
               : "+d"(sum0), "+d"(sum1)
               : "d"(a), "d"(b));
}

/* sum (16 x 8) += a (16 x 8) b (8 x 8). */
DEVICE void multiply_16x8x8(double &sum0, double &sum1, double &sum2, double &sum3, const double (&a)[4], double b0,
                            double b1) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+d"(sum0), "+d"(sum1), "+d"(sum2), "+d"(sum3)
               : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b0), "d"(b1));
#else
  multiply_8x8x4(sum0, sum1, a[0], b0);
  multiply_8x8x4(sum2, sum3, a[1], b0);
  multiply_8x8x4(sum0, sum1, a[2], b1);
  multiply_8x8x4(sum2, sum3, a[3], b1);
#endif
}

/* By a multiplication: the compiler would fold a sign into each product, which takes eight more moves. */
DEVICE double negative(double x) {
  double y;
  asm volatile("mul.rn.f64 %0, %1, 0dBFF0000000000000;" : "=d"(y) : "d"(x));
  return y;
}

template <typename Shape> struct panel_fragments : panel_memory<Shape> {
  using memory = panel_memory<Shape>;
  using T = typename memory::T;
  using vector = typename memory::vector;
  using memory::a, memory::stage, memory::triangles, memory::weights, memory::scales, memory::scaled;
  using memory::CHUNK, memory::FORMING, memory::LAYERS, memory::LAYER, memory::HALF, memory::SLICE, memory::PARTS,
      memory::PITCH, memory::FRAGMENTS;
  using memory::COLUMNS, memory::GROUP, memory::GC, memory::P, memory::Q, memory::VECTOR;
  using memory::first, memory::row, memory::column, memory::fragment_row, memory::fragment_column;
  using memory::panel_memory;
  using memory::products_of_group, memory::u_of, memory::nu_of;

  /* A barrier of the warps that have the same columns. */
  DEVICE void meet(int slice) const { asm volatile("bar.sync %0, %1;" ::"r"(slice + 1), "n"(PARTS * 32) : "memory"); }

  /* w: this warp's part of W^T becomes the sum. One barrier is enough: the next group uses the other half of `weights`.
   */
  DEVICE void sum_over_warps(T (&w)[4], int half) const {
    const int lane = (int)threadIdx.x & 31, slice = fragment_column / SLICE, part = (int)threadIdx.x / 32 % PARTS;
    T *const parts = weights + (half * (COLUMNS / SLICE) + slice) * PARTS * 128 + lane * VECTOR;
    *(vector *)(parts + part * 128) = {w[0], w[1]};
    *(vector *)(parts + part * 128 + 64) = {w[2], w[3]};
    meet(slice);
    unrolled_for (int i = 0; i < 4; i += 2) {
      vector sum = *(const vector *)(parts + i * 32);
      unrolled_for (int other = 1; other < PARTS; other++) {
        const vector x = *(const vector *)(parts + other * 128 + i * 32);
        sum.x += x.x;
        sum.y += x.y;
      }
      w[i] = sum.x;
      w[i + 1] = sum.y;
    }
  }

  /* call(row and column of a strip in registers, its offset in the stage) for the strips of the first layers. Each
   * number of layers with its own code would have C^T in other registers. */
  template <typename Call> static DEVICE void each_strip(int layers, const Call &call) {
    constexpr int TOGETHER = LAYERS / tile_smaller(LAYERS, 4);
    unrolled_for (int top = 0; top < LAYERS; top += TOGETHER)
      if (top < layers) {
        unrolled_for (int layer = top; layer < top + TOGETHER; layer++)
          unrolled_for (int q = 0; q < Q; q += 2) call(layer * VECTOR, q, layer * LAYER + q / 2 * 8);
      }
  }

  /* The panel := H8 .. H1 panel, for reflectors from j on. `v` is the first of them in shared memory. */
  DEVICE void multiply(int layers, int j, const T *v) {
    const int lane = (int)threadIdx.x & 31, across = lane / 4, along = lane % 4;
    T w[2][4] = {};
    {
      const T *const column = v + across * PITCH;
      const T *const in[2] = {column + memory::permuted(across, fragment_row),
                              column + memory::permuted(across, fragment_row ^ 8)};
      each_strip(layers, [&](int r, int q, int offset) {
        const vector x = *(const vector *)(in[q / 2 % 2] + offset / 16 * 16);
        multiply_8x8x4(w[0][0], w[0][1], a[r][q], x.x);
        multiply_8x8x4(w[0][2], w[0][3], a[r][q + 1], x.x);
        multiply_8x8x4(w[1][0], w[1][1], a[r + 1][q], x.y);
        multiply_8x8x4(w[1][2], w[1][3], a[r + 1][q + 1], x.y);
      });
    }
    unrolled_for (int i = 0; i < 4; i++) w[0][i] += w[1][i];
    sum_over_warps(w[0], j / GROUP & 1);

    T y[4];
    {
      const T all[4] = {w[0][0], w[0][2], w[0][1], w[0][3]};
      const vector t = *(const vector *)(triangles + (j + across) * GROUP + along * VECTOR);
      T product[4] = {};
      multiply_16x8x8(product[0], product[1], product[2], product[3], all, t.x, t.y);
      unrolled_for (int i = 0; i < 4; i++) y[i] = negative(product[i % 2 * 2 + i / 2]);
    }
    const int i = fragment_row - along * VECTOR + across;
    const int even = along * 2, odd = even + 1;
    const T *const in_even[2] = {v + even * PITCH + memory::permuted(even, i),
                                 v + even * PITCH + memory::permuted(even, i ^ 8)};
    const T *const in_odd[2] = {v + odd * PITCH + memory::permuted(odd, i),
                                v + odd * PITCH + memory::permuted(odd, i ^ 8)};
    each_strip(layers, [&](int r, int q, int offset) {
      const T x = in_even[q / 2 % 2][offset / 16 * 16], z = in_odd[q / 2 % 2][offset / 16 * 16];
      multiply_16x8x8(a[r][q], a[r + 1][q], a[r][q + 1], a[r + 1][q + 1], y, x, z);
    });
  }

  /* Reflectors from j on, in one half of the stage. The last of a panel of Q do not reach its first columns. */
  DEVICE void multiply_chunk(int j, const T *half) {
    if (FORMING && j - first >= fragment_column / SLICE * SLICE + SLICE) return;
    int end = CHUNK;
    asm volatile("" : "+r"(end)); /* an unrolled loop of one round would move C^T to other registers and back */
    rolled_for (int step = 0; step < end; step += GROUP) {
      const int r = FORMING ? CHUNK - GROUP - step : step;
      multiply(this->layers_of_matrix() - j / LAYER, j + r, half + r * PITCH);
    }
  }

  /* From fragments to the lanes that factor, some layers at a time. */
  DEVICE void deal() {
    constexpr int TOGETHER = tile_smaller(LAYERS, 2 * HALF / (COLUMNS * LAYER)), ROWS = TOGETHER * LAYER;
    static_assert(LAYERS % TOGETHER == 0);
    unrolled_for (int top = 0; top < LAYERS; top += TOGETHER) {
      __syncthreads();
      unrolled_for (int q = 0; q < Q; q++) {
        const int j = fragment_column + memory::template across<true>(q);
        unrolled_for (int layer = 0; layer < TOGETHER; layer++) {
          const int i = layer * LAYER + fragment_row + memory::template down<true>(q);
          *(vector *)(stage + j * ROWS + (i ^ (j & 1) * 8)) = {a[(top + layer) * VECTOR][q],
                                                               a[(top + layer) * VECTOR + 1][q]};
        }
      }
      __syncthreads();
      this->locate();
      unrolled_for (int q = 0; q < Q; q++) {
        const int j = q * GC + column;
        unrolled_for (int layer = 0; layer < TOGETHER; layer++) {
          const vector x = *(const vector *)(stage + j * ROWS + ((layer * LAYER + row * VECTOR) ^ (j & 1) * 8));
          a[(top + layer) * VECTOR][q] = x.x;
          a[(top + layer) * VECTOR + 1][q] = x.y;
        }
      }
    }
    __syncthreads();
  }

  /* As scale_extreme_columns (qr_tile_scaling.cuh), but several warps share a column. */
  DEVICE void scale_fragments() {
    uint32_t most[2] = {};
    bool any = false;
    unrolled_for (int q = 0; q < Q; q++) {
      const uint32_t largest = largest_in_column(a, q);
      any |= is_extreme<T>(largest);
      most[q % 2] = max(most[q % 2], largest);
    }
    scaled = __syncthreads_or(any);
    if (!scaled) return;
    uint32_t *const of_part = (uint32_t *)weights;
    const int part = (int)threadIdx.x / 32 % PARTS;
    unrolled_for (int c = 0; c < 2; c++) {
      unrolled_for (int offset = 1; offset < 4; offset *= 2)
        most[c] = max(most[c], __shfl_xor_sync(0xffffffffu, most[c], offset));
      of_part[part * COLUMNS + fragment_column + c * 8] = most[c];
    }
    __syncthreads();
    unrolled_for (int c = 0; c < 2; c++) {
      const int j = fragment_column + c * 8;
      unrolled_for (int other = 0; other < PARTS; other++) most[c] = max(most[c], of_part[other * COLUMNS + j]);
      const int exponent = exponent_to_take<T>(most[c]);
      const T scale = power_of_two<T>(-exponent);
      scales[j] = power_of_two<T>(exponent);
      unrolled_for (int q = c; q < Q; q += 2)
        unrolled_for (int i = 0; i < P; i++) a[i][q] *= scale;
    }
    __syncthreads();
  }

  DEVICE void scale_columns() {
    if constexpr (FRAGMENTS)
      scale_fragments();
    else
      memory::scale_columns();
  }
};
