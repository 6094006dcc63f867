/* rope.cu - rotary embedding: rotates pairs of numbers by an angle that depends on the row's position. The kernel reads
 * the position of the first row. Bound by memory, and for few rows by the latency of the loads.
 *
 * A thread has four pairs of a row: eight contiguous numbers, or two times four. If all threads fit on the device at
 * once, a thread has these pairs in one head, else in four heads, which share the sines and cosines. */
#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "rope.cuh"
#include "rope.h"

static_assert(ROPE_PAIRS == 4, "the code below assumes this number");

DEVICE void load_frequencies(const rope_parameters &p, uint32_t pair, uint32_t count, float (&frequencies)[4]) {
  if (!p.frequencies) { /* lanes with different pairs read parameters one after the other: two loads instead of four */
    const float2 *from = (const float2 *)&p.base_frequencies[pair], low = from[0], high = from[1];
    frequencies[0] = low.x, frequencies[1] = low.y, frequencies[2] = high.x, frequencies[3] = high.y;
    return;
  }
  unrolled_for (uint32_t i = 0; i < 4; i++) frequencies[i] = i < count ? p.frequencies[pair + i] : 0;
}

/* The two numbers of each of the four pairs, in one head. */
struct quad {
  float low[4], high[4];
};

DEVICE void load_quad(const rope_parameters &p, int64_t x, uint32_t pair, uint32_t count, quad &q) {
  if (p.by_halves) {
    load_numbers(p.dtype, p.is_aligned, p.x, x + pair, count, q.low);
    load_numbers(p.dtype, p.is_aligned, p.x, x + p.pairs + pair, count, q.high);
    return;
  }
  float both[8];
  load_numbers(p.dtype, p.is_aligned, p.x, x + 2 * pair, 2 * count, both);
  unrolled_for (int i = 0; i < 4; i++) q.low[i] = both[2 * i], q.high[i] = both[2 * i + 1];
}

DEVICE void store_quad(const rope_parameters &p, int64_t out, uint32_t pair, uint32_t count, const quad &q) {
  if (p.by_halves) {
    store_numbers(p.dtype, p.is_aligned, p.out, out + pair, count, q.low);
    store_numbers(p.dtype, p.is_aligned, p.out, out + p.pairs + pair, count, q.high);
    return;
  }
  float both[8];
  unrolled_for (int i = 0; i < 4; i++) both[2 * i] = q.low[i], both[2 * i + 1] = q.high[i];
  store_numbers(p.dtype, p.is_aligned, p.out, out + 2 * pair, 2 * count, both);
}

template <int Heads> DEVICE void rope_rows(const rope_parameters &p) {
  const uint32_t part = blockIdx.x * ROPE_THREADS + threadIdx.x;
  if (part < p.parts) {
    uint32_t rest = part / p.row_parts;
    const uint32_t pair = (part - rest * p.row_parts) * 4, count = min(p.pairs - pair, 4u);
    const uint32_t first_head = rest % p.head_parts * Heads;
    rest /= p.head_parts;
    const uint32_t row = rest % p.sequence, item = rest / p.sequence;
    const int64_t x = item * p.x_batch + first_head * p.x_head + row * p.x_row;
    const int64_t out = item * p.out_batch + first_head * p.out_head + row * p.out_row;
    quad quads[Heads];
    unrolled_for (uint32_t h = 0; h < Heads; h++)
      if (first_head + h < p.heads) load_quad(p, x + h * p.x_head, pair, count, quads[h]);
    const float position = (float)((int64_t)p.positions[p.per_item ? item : 0] + row);
    float frequencies[4];
    load_frequencies(p, pair, count, frequencies);
    unrolled_for (int i = 0; i < 4; i++) {
      const rotation by = rotation_of(position * frequencies[i]);
      unrolled_for (int h = 0; h < Heads; h++) rotate_pair(by, quads[h].low[i], quads[h].high[i]);
    }
    unrolled_for (uint32_t h = 0; h < Heads; h++)
      if (first_head + h < p.heads) store_quad(p, out + h * p.out_head, pair, count, quads[h]);
  }
}

ROPE_KERNELS(DEFINE_SHORT_KERNEL)
