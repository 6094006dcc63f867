/* elementwise.cu - silu(gate) * up and a + b. Bound by memory.
 *
 * A thread computes eight elements of a row in fp32 and rounds them once. The output may be one of the inputs, since a
 * thread reads only the elements that it writes. */
#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "../common/rectangle.cuh"
#include "elementwise.h"

static_assert(ELEMENTWISE_ELEMENTS == 8, "the code below assumes this size");

/* Calls compute(a, b, out, count): the index of this thread's first element in each operand, and the number of its
 * elements. */
template <typename Compute> DEVICE void of_this_thread(const elementwise_parameters &p, const Compute &compute) {
  const uint32_t part = blockIdx.x * ELEMENTWISE_THREADS + threadIdx.x;
  if (part >= p.parts) return;
  const uint32_t row = part / p.row_parts, column = (part - row * p.row_parts) * 8;
  int64_t a = column, b = column, out = column;
  row_indices(row, p.extent, [&](int i, uint32_t index) {
    a += index * p.a_stride[i];
    b += index * p.b_stride[i];
    out += index * p.out_stride[i];
  });
  compute(a, b, out, min(p.row - column, 8u));
}

template <typename Compute> DEVICE void of_numbers(const elementwise_parameters &p, const Compute &compute) {
  of_this_thread(p, [&](int64_t a, int64_t b, int64_t out, uint32_t count) {
    float x[8], y[8];
    load_numbers(p.dtype, p.is_aligned, p.a, a, count, x);
    load_numbers(p.dtype, p.is_aligned, p.b, b, count, y);
    unrolled_for (int i = 0; i < 8; i++) x[i] = compute(x[i], y[i]);
    store_numbers(p.dtype, p.is_aligned, p.out, out, count, x);
  });
}

DEVICE void silu_mul(const elementwise_parameters &p) {
  of_numbers(p, [](float gate, float up) { return __fdiv_rn(gate, 1.0f + expf(-gate)) * up; });
}

DEVICE void add(const elementwise_parameters &p) {
  if (p.dtype != RONDO_I32) {
    of_numbers(p, [](float a, float b) { return a + b; });
    return;
  }
  of_this_thread(p, [&](int64_t a, int64_t b, int64_t out, uint32_t count) {
    unrolled_for (uint32_t i = 0; i < 8; i++)
      if (i < count)
        ((uint32_t *)p.out)[out + i] = ((const uint32_t *)p.a)[a + i] + (p.b ? ((const uint32_t *)p.b)[b + i] : p.more);
  });
}

DEVICE void elementwise(const elementwise_parameters &p) {
  if (p.is_gated)
    silu_mul(p);
  else
    add(p);
}

ELEMENTWISE_KERNELS(DEFINE_SHORT_KERNEL)
