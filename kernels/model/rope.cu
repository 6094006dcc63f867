/* rope.cu - rotary embedding: a thread has four pairs of a row, so eight numbers that lie together or two times four.
 * Rows follow their position, read here. */
#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "rope.cuh"
#include "rope.h"

static_assert(ROPE_PAIRS == 4, "what follows is written for");

__device__ __forceinline__ void turn_pairs(const rope_parameters &p, uint32_t pair, float position, float (&low)[4],
                                           float (&high)[4]) {
#pragma unroll
  for (uint32_t i = 0; i < 4; i++) {
    if (pair + i >= p.pairs) continue;
    const float frequency = p.frequencies ? p.frequencies[pair + i] : p.base_frequencies[pair + i];
    turn_pair(turn_by(position * frequency), low[i], high[i]);
  }
}

__device__ __forceinline__ void rope_rows(const rope_parameters &p) {
  const uint32_t part = blockIdx.x * ROPE_THREADS + threadIdx.x;
  if (part < p.parts) {
    uint32_t rest = part / p.row_parts;
    const uint32_t pair = (part - rest * p.row_parts) * 4, count = min(p.pairs - pair, 4u);
    const uint32_t head = rest % p.heads;
    rest /= p.heads;
    const uint32_t row = rest % p.sequence, item = rest / p.sequence;
    const float position = (float)((int64_t)p.positions[p.per_item ? item : 0] + row);
    const int64_t x = item * p.x_batch + head * p.x_head + row * p.x_row;
    const int64_t out = item * p.out_batch + head * p.out_head + row * p.out_row;
    float low[4], high[4];
    if (p.by_halves) {
      load_numbers(p.dtype, p.is_aligned, p.x, x + pair, count, low);
      load_numbers(p.dtype, p.is_aligned, p.x, x + p.pairs + pair, count, high);
      turn_pairs(p, pair, position, low, high);
      store_numbers(p.dtype, p.is_aligned, p.out, out + pair, count, low);
      store_numbers(p.dtype, p.is_aligned, p.out, out + p.pairs + pair, count, high);
    } else {
      float both[8];
      load_numbers(p.dtype, p.is_aligned, p.x, x + 2 * pair, 2 * count, both);
#pragma unroll
      for (int i = 0; i < 4; i++) low[i] = both[2 * i], high[i] = both[2 * i + 1];
      turn_pairs(p, pair, position, low, high);
#pragma unroll
      for (int i = 0; i < 4; i++) both[2 * i] = low[i], both[2 * i + 1] = high[i];
      store_numbers(p.dtype, p.is_aligned, p.out, out + 2 * pair, 2 * count, both);
    }
  }
}

ROPE_KERNELS(DEFINE_SHORT_KERNEL)
