/* attention_append.cu - writes new rows of K and V to the cache, and rotates these and the queries, before any
 * attention whose kernel cannot. A thread has a pair of columns in several heads: rows may begin anywhere, and one sine
 * and cosine, which take longest, serve all these heads. Bound by the launch, with many rows by memory. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "../common/device_code.cuh"
#include "../common/launch.cuh"
#include "../model/rope.cuh"
#include "attention_append.h"

DEVICE float widen(uint16_t bits, bool bf16) {
  return bf16 ? __uint_as_float((uint32_t)bits << 16) : __half2float(__ushort_as_half(bits));
}
DEVICE uint16_t narrow(float value, bool bf16) {
  return bf16 ? __bfloat16_as_ushort(__float2bfloat16_rn(value)) : __half_as_ushort(__float2half_rn(value));
}

DEVICE int64_t offset_of(const attention_stride &stride, uint32_t batch, uint32_t head, int64_t position) {
  return batch * stride.batch + head * stride.head + position * stride.position;
}

/* Of KV row `row` of the item; -1 if there is none. */
DEVICE int64_t kv_offset(const attention_append_parameters &p, const attention_stride &stride, uint32_t batch,
                         uint32_t head, int64_t row) {
  if (row < 0 || row >= p.capacity) return -1;
  uint32_t page = batch;
  if (p.kv_pages) page = (uint32_t)p.kv_pages[batch * p.pages_stride + (row >> p.page_shift)];
  if (page >= p.pool_pages) return -1;
  return offset_of(stride, page, head, row & ((int64_t(1) << p.page_shift) - 1));
}

/* The thread's pair in one head. */
DEVICE void append_pair(const attention_append_parameters &p, uint32_t batch, uint32_t query, int64_t row,
                        uint32_t any_head, uint32_t pair, const rotation &by) {
  const bool is_query = any_head < p.rotated_heads, is_value = any_head >= p.rotated_heads + p.new_heads;
  const uint32_t head = is_query   ? any_head
                        : is_value ? any_head - p.rotated_heads - p.new_heads
                                   : any_head - p.rotated_heads;
  const uint16_t *from = (const uint16_t *)(is_query ? p.q : is_value ? p.new_v : p.new_k);
  uint16_t *to = (uint16_t *)(is_query ? p.rotated : is_value ? p.v : p.k);
  from += offset_of(is_query ? p.q_stride : is_value ? p.new_v_stride : p.new_k_stride, batch, head, query);
  const int64_t into = is_query ? ((batch * (int64_t)p.query_length + query) * p.rotated_heads + head) * 2 * p.row_pairs
                                : kv_offset(p, is_value ? p.v_stride : p.k_stride, batch, head, row);
  if (into < 0) return;
  to += into;

  const uint32_t low_at = p.by_halves ? pair : 2 * pair, high_at = p.by_halves ? pair + p.row_pairs : 2 * pair + 1;
  if (is_value || !p.rotates) {
    to[low_at] = from[low_at];
    to[high_at] = from[high_at];
    return;
  }
  float low = widen(from[low_at], p.bf16), high = widen(from[high_at], p.bf16);
  rotate_pair(by, low, high);
  to[low_at] = narrow(low, p.bf16);
  to[high_at] = narrow(high, p.bf16);
}

/* sm_80 would need more registers for four than 32. */
#if __CUDA_ARCH__ >= 900
constexpr int HEADS_AT_ONCE = 4;
#else
constexpr int HEADS_AT_ONCE = 1;
#endif

DEVICE void append_pairs(const attention_append_parameters &p) {
  const int64_t index = blockIdx.x * (int64_t)ATTENTION_APPEND_THREADS + threadIdx.x;
  if (p.lengths && index < p.batch) {
    const int64_t length = (int64_t)p.positions[p.per_item ? index : 0] + p.query_length;
    p.lengths[index] = (int32_t)min(max(length, (int64_t)0), (int64_t)p.most_length);
  }
  if (index >= p.threads) return;
  const uint32_t pair = (uint32_t)index & (p.row_pairs - 1);
  const uint32_t group = (uint32_t)(index / p.row_pairs) & (p.head_groups - 1);
  const int64_t rows = index / (p.row_pairs * p.head_groups);
  const uint32_t batch = (uint32_t)(rows / p.query_length), query = (uint32_t)(rows % p.query_length);
  const int64_t row = (int64_t)p.positions[p.per_item ? batch : 0] + query;
  const float frequency = p.frequencies ? p.frequencies[pair] : p.base_frequencies[pair];
  const rotation by = rotation_of((float)row * frequency);
  const uint32_t heads = p.rotated_heads + 2 * p.new_heads;
#pragma unroll HEADS_AT_ONCE
  for (uint32_t head = group; head < heads; head += p.head_groups) append_pair(p, batch, query, row, head, pair, by);
}

ATTENTION_APPEND_KERNELS(DEFINE_SHORT_KERNEL)
