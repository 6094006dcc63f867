/* attention_append.cu - writes new rows of K and V to the cache, and rotates these and the queries, before any
 * attention whose kernel cannot. Bound by the launch, with many rows by memory.
 *
 * rondo_attention_append_rows: a block has a row, or some heads of it. It computes each sine and cosine once, and a
 * thread moves four pairs of columns by words of 8 bytes. rondo_attention_append takes rows that are not aligned
 * (takes_rows in attention_append.c): a thread has a pair of columns in several heads, for which one sine and cosine
 * serve. */
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

struct copied_head {
  const uint16_t *from;
  uint16_t *to; /* NULL: there is no such KV row */
  bool rotates;
};

/* Heads of q come first, then those of K and of V. */
DEVICE copied_head head_of(const attention_append_parameters &p, uint32_t batch, uint32_t query, int64_t row,
                           uint32_t any_head) {
  const bool is_query = any_head < p.rotated_heads, is_value = any_head >= p.rotated_heads + p.new_heads;
  const uint32_t head = is_query   ? any_head
                        : is_value ? any_head - p.rotated_heads - p.new_heads
                                   : any_head - p.rotated_heads;
  const uint16_t *from = (const uint16_t *)(is_query ? p.q : is_value ? p.new_v : p.new_k);
  uint16_t *to = (uint16_t *)(is_query ? p.rotated : is_value ? p.v : p.k);
  from += offset_of(is_query ? p.q_stride : is_value ? p.new_v_stride : p.new_k_stride, batch, head, query);
  const int64_t into = is_query ? ((batch * (int64_t)p.query_length + query) * p.rotated_heads + head) * 2 * p.row_pairs
                                : kv_offset(p, is_value ? p.v_stride : p.k_stride, batch, head, row);
  return {from, into < 0 ? NULL : to + into, !is_value && p.rotates};
}

/* The thread's pair in one head. */
DEVICE void append_pair(const attention_append_parameters &p, const copied_head &head, uint32_t pair,
                        const rotation &by) {
  if (!head.to) return;
  const uint32_t low_at = p.by_halves ? pair : 2 * pair, high_at = p.by_halves ? pair + p.row_pairs : 2 * pair + 1;
  if (!head.rotates) {
    head.to[low_at] = head.from[low_at];
    head.to[high_at] = head.from[high_at];
    return;
  }
  float low = widen(head.from[low_at], p.bf16), high = widen(head.from[high_at], p.bf16);
  rotate_pair(by, low, high);
  head.to[low_at] = narrow(low, p.bf16);
  head.to[high_at] = narrow(high, p.bf16);
}

/* Of item `index`: where its new rows end. */
DEVICE void write_length(const attention_append_parameters &p, int64_t index) {
  if (!p.lengths || index >= p.batch) return;
  const int64_t length = (int64_t)p.positions[p.per_item ? index : 0] + p.query_length;
  p.lengths[index] = (int32_t)min(max(length, (int64_t)0), (int64_t)p.most_length);
}

DEVICE rotation rotation_at(const attention_append_parameters &p, int64_t row, uint32_t pair) {
  return rotation_of((float)row * (p.frequencies ? p.frequencies[pair] : p.base_frequencies[pair]));
}

/* sm_80 would need more registers for four than 32. */
#if __CUDA_ARCH__ >= 900
constexpr int HEADS_AT_ONCE = 4;
#else
constexpr int HEADS_AT_ONCE = 1;
#endif

DEVICE void append_pairs(const attention_append_parameters &p) {
  const int64_t index = blockIdx.x * (int64_t)ATTENTION_APPEND_THREADS + threadIdx.x;
  write_length(p, index);
  if (index >= p.threads) return;
  const uint32_t pair = (uint32_t)index & (p.row_pairs - 1);
  const uint32_t group = (uint32_t)(index / p.row_pairs) & (p.head_groups - 1);
  const int64_t rows = index / (p.row_pairs * p.head_groups);
  const uint32_t batch = (uint32_t)(rows / p.query_length), query = (uint32_t)(rows % p.query_length);
  const int64_t row = (int64_t)p.positions[p.per_item ? batch : 0] + query;
  const rotation by = rotation_at(p, row, pair);
  const uint32_t heads = p.rotated_heads + 2 * p.new_heads;
#pragma unroll HEADS_AT_ONCE
  for (uint32_t head = group; head < heads; head += p.head_groups)
    append_pair(p, head_of(p, batch, query, row, head), pair, by);
}

struct four_numbers {
  uint16_t bits[4];
};
DEVICE four_numbers load_four(const uint16_t *from) {
  const uint2 words = *reinterpret_cast<const uint2 *>(from);
  return {(uint16_t)words.x, (uint16_t)(words.x >> 16), (uint16_t)words.y, (uint16_t)(words.y >> 16)};
}
DEVICE void store_four(uint16_t *to, const four_numbers &of) {
  *reinterpret_cast<uint2 *>(to) =
      make_uint2(of.bits[0] | (uint32_t)of.bits[1] << 16, of.bits[2] | (uint32_t)of.bits[3] << 16);
}

/* Four pairs of a head from `pair`: two halves' columns, or eight columns. */
DEVICE void append_four_pairs(const attention_append_parameters &p, const copied_head &head, uint32_t pair,
                              const rotation *rotations) {
  if (!head.to) return;
  const uint32_t first_at = p.by_halves ? pair : 2 * pair, second_at = p.by_halves ? pair + p.row_pairs : first_at + 4;
  four_numbers first = load_four(head.from + first_at), second = load_four(head.from + second_at);
  if (head.rotates) {
    unrolled_for (int i = 0; i < ATTENTION_APPEND_PAIRS; i++) {
      uint16_t &low_bits = p.by_halves ? first.bits[i] : i < 2 ? first.bits[2 * i] : second.bits[2 * i - 4];
      uint16_t &high_bits = p.by_halves ? second.bits[i] : i < 2 ? first.bits[2 * i + 1] : second.bits[2 * i - 3];
      float low = widen(low_bits, p.bf16), high = widen(high_bits, p.bf16);
      rotate_pair(rotations[pair + i], low, high);
      low_bits = narrow(low, p.bf16);
      high_bits = narrow(high, p.bf16);
    }
  }
  store_four(head.to + first_at, first);
  store_four(head.to + second_at, second);
}

DEVICE void append_rows(const attention_append_parameters &p) {
  __shared__ rotation rotations[ATTENTION_MOST_PAIRS];
  const uint32_t any_row = blockIdx.x / p.row_parts, part = blockIdx.x - any_row * p.row_parts;
  const uint32_t batch = any_row / p.query_length, query = any_row - batch * p.query_length;
  write_length(p, blockIdx.x * (int64_t)ATTENTION_APPEND_ROW_THREADS + threadIdx.x);
  const int64_t row = (int64_t)p.positions[p.per_item ? batch : 0] + query;
  if (p.rotates && threadIdx.x < p.row_pairs) rotations[threadIdx.x] = rotation_at(p, row, threadIdx.x);
  __syncthreads();
  const uint32_t heads = p.rotated_heads + 2 * p.new_heads, fours = p.row_pairs / ATTENTION_APPEND_PAIRS;
#pragma unroll 2
  for (uint32_t i = part * ATTENTION_APPEND_ROW_THREADS + threadIdx.x; i < heads * fours;
       i += p.row_parts * ATTENTION_APPEND_ROW_THREADS)
    append_four_pairs(p, head_of(p, batch, query, row, i / fours), i % fours * ATTENTION_APPEND_PAIRS, rotations);
}

ATTENTION_APPEND_KERNELS(DEFINE_SHORT_KERNEL)
