/* attention_combine.cu - merges the results of splits of the KV rows, in their order: o = sum_s w_s o_s / sum_s w_s
 * with w_s = 2^(lse_s - max). It runs after a kernel with several splits. Bound by the memory.
 *
 * A warp has a row, a lane every 32nd column of it. If the row saw nothing in a split, its lse is -infinity; its o may
 * not have been written and is not read. */
#include <math.h>

#include "../common/device_code.cuh"
#include "../common/launch.cuh"
#include "attention.h"
#include "attention_numbers.cuh"

template <int Columns> /* of a lane */
DEVICE void combine(const attention_parameters &p, uint32_t row, uint32_t total_rows) {
  const uint32_t lane = threadIdx.x % 32;
  float highest = -INFINITY;
  for (uint32_t s = lane; s < p.splits; s += 32)
    highest = fmaxf(highest, p.partial_lse[(uint64_t)s * total_rows + row]);
  unrolled_for (int mask = 16; mask; mask /= 2) highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, mask));
  const float against = highest == -INFINITY ? 0.0f : highest;
  float sum = 0.0f, o[Columns] = {};
#pragma unroll 4
  for (uint32_t s = 0; s < p.splits; s++) {
    float lse = p.partial_lse[(uint64_t)s * total_rows + row];
    if (lse == -INFINITY) continue;
    float weight = exp2f(lse - against);
    const float *from = p.partial_o + ((uint64_t)s * total_rows + row) * (32 * Columns) + lane;
    sum += weight;
    unroll<Columns>([&](int i) { o[i] += weight * from[32 * i]; });
  }
  const bool nothing = sum == 0.0f;
  const uint32_t head_index = row / p.rows, r = row % p.rows;
  const uint32_t batch = head_index / p.kv_heads, position = r / p.group;
  const uint32_t head = head_index % p.kv_heads * p.group + r % p.group;
  uint16_t *to = static_cast<uint16_t *>(p.o) + batch * p.o_stride.batch + head * p.o_stride.head +
                 position * p.o_stride.position + lane;
  const float inverse = 1.0f / sum;
  unroll<Columns>([&](int i) { to[32 * i] = narrow(nothing ? 0.0f : o[i] * inverse, p.bf16); });
  if (p.lse && lane == 0)
    p.lse[batch * p.lse_batch_stride + head * p.lse_head_stride + position] =
        nothing ? -INFINITY : (highest + log2f(sum)) * 0.693147181f;
}

DEVICE void combine_rows(const attention_parameters &p) {
  const uint32_t total_rows = p.batch * p.kv_heads * p.rows;
  const uint32_t row = blockIdx.x * (ATTENTION_THREADS / 32) + threadIdx.x / 32;
  if (row >= total_rows) return;
  switch (p.head_dimension) {
  case 32:
    return combine<1>(p, row, total_rows);
  case 64:
    return combine<2>(p, row, total_rows);
  case 128:
    return combine<4>(p, row, total_rows);
  default:
    return combine<8>(p, row, total_rows);
  }
}

ATTENTION_COMBINE_KERNELS(DEFINE_KERNEL)
