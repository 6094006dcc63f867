/* attention_append.cu - writes new rows of K and V to the cache, and rotates these and the queries, before any
 * attention whose kernel cannot. Bound by the launch, with many rows by instructions.
 *
 * A block has a few rows, or some heads of one. It computes each sine and cosine once. A thread moves eight pairs of
 * columns of a head in vectors of 16 bytes; or, where those cannot be or memory says where rows go, four pairs of some
 * heads in words of 8 bytes, or number by number. */
#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "../common/settled.cuh"
#include "../model/rope.cuh"
#include "attention_append.h"
#include "attention_numbers.cuh"

DEVICE int64_t offset_of(const attention_stride &stride, uint32_t batch, uint32_t head, int64_t position) {
  return batch * stride.batch + head * stride.head + position * stride.position;
}

/* Of head 0 of KV row `row` of the item; -1 if there is none. */
DEVICE int64_t kv_offset(const attention_append_parameters &p, const attention_stride &stride, uint32_t batch,
                         int64_t row) {
  if (row < 0 || row >= p.capacity) return -1;
  uint32_t page = batch;
  if (p.kv_pages) page = (uint32_t)p.kv_pages[batch * p.pages_stride + (row >> p.page_shift)];
  if (page >= p.pool_pages) return -1;
  return offset_of(stride, page, 0, row & ((int64_t(1) << p.page_shift) - 1));
}

struct copied_head {
  const uint16_t *from;
  uint16_t *to; /* NULL: there is no such KV row */
  bool rotates;
};

/* Where a row of q, new_k and new_v begins, and where it goes. */
struct copied_row {
  const attention_append_parameters &p;
  const uint16_t *from_q, *from_k, *from_v;
  uint16_t *to_q, *to_k, *to_v; /* of K and V NULL: there is no such KV row */

  /* k, v: the elements where rows of the caches begin, or -1. */
  DEVICE copied_row(const attention_append_parameters &p, uint32_t batch, uint32_t query, int64_t k, int64_t v) : p(p) {
    from_q = (const uint16_t *)p.q + offset_of(p.q_stride, batch, 0, query);
    from_k = (const uint16_t *)p.new_k + offset_of(p.new_k_stride, batch, 0, query);
    from_v = (const uint16_t *)p.new_v + offset_of(p.new_v_stride, batch, 0, query);
    to_q =
        (uint16_t *)p.rotated + (batch * (int64_t)p.query_length + query) * p.rotated_heads * 2 * (int64_t)p.row_pairs;
    to_k = k < 0 ? NULL : (uint16_t *)p.k + k;
    to_v = v < 0 ? NULL : (uint16_t *)p.v + v;
  }

  DEVICE uint32_t heads() const { return p.rotated_heads + 2 * p.new_heads; }

  /* Heads of q come first, then those of K and of V. */
  DEVICE copied_head head(uint32_t any_head) const {
    const uint32_t k = p.rotated_heads, v = k + p.new_heads;
    const bool is_query = any_head < k, is_value = any_head >= v;
    const uint32_t head = any_head - (is_query ? 0 : is_value ? v : k);
    uint16_t *to = is_query ? to_q : is_value ? to_v : to_k;
    if (to) to += head * (is_query ? 2 * (int64_t)p.row_pairs : is_value ? p.v_stride.head : p.k_stride.head);
    const uint16_t *from = is_query ? from_q : is_value ? from_v : from_k;
    from += head * (is_query ? p.q_stride.head : is_value ? p.new_v_stride.head : p.new_k_stride.head);
    return {from, to, !is_value && p.rotates};
  }
};

/* ---- Items ------------------------------------------------------------------------------------------------------- */

/* Of item `index`: where its new rows end. */
DEVICE void write_length(const attention_append_parameters &p, int64_t index, int64_t rows, int64_t most) {
  const int64_t length = (int64_t)p.positions[p.per_item ? index : 0] + rows;
  p.lengths[index] = (int32_t)min(max(length, (int64_t)0), most);
}

/* Of packed rows, by a whole warp, whose lanes have indices one after the other: offset `index`, at least as large as
 * all before it; and the length of the item that ends there. */
DEVICE void write_packed_item(const attention_append_parameters &p, int64_t index) {
  const int lane = (int)(threadIdx.x % 32), last = (int)p.query_length;
  const int64_t first = index - lane;
  if (first > p.items) return;
  int before = 0;
  rolled_for (int64_t i = lane; i < first; i += 32) before = max(before, p.row_offsets[i]);
  before = min(__reduce_max_sync(0xffffffffu, before), last);
  int start = min(max(index <= p.items ? p.row_offsets[index] : 0, before), last);
  unrolled_for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, start, distance);
    if (lane >= distance) start = max(start, other);
  }
  int previous = __shfl_up_sync(0xffffffffu, start, 1);
  if (lane == 0) previous = before;
  if (index > p.items) return;
  p.starts[index] = start;
  if (index) write_length(p, index - 1, start - previous, (int64_t)p.capacity - 1 + start - previous);
}

DEVICE void write_item(const attention_append_parameters &p, int64_t index) {
  if (p.row_offsets)
    write_packed_item(p, index);
  else if (p.lengths && index < p.batch)
    write_length(p, index, p.query_length, p.most_length);
}

/* Whose row it is, and which of its rows. Of packed rows no item, if `item` is not below p.items. */
struct row_place {
  uint32_t item, query;
};

/* Of row `row`, by a whole warp: it is of the item before the first offset beyond it, and the item begins with the
 * largest offset before that. */
DEVICE row_place packed_place(const attention_append_parameters &p, int row) {
  int begin = 0;
  rolled_for (uint32_t first = 0;; first += 32) {
    const uint32_t i = first + threadIdx.x % 32;
    const int offset = i <= p.items ? p.row_offsets[i] : INT32_MAX;
    const uint32_t beyond = __ballot_sync(0xffffffffu, offset > row), count = beyond ? __ffs(beyond) - 1 : 32;
    if (threadIdx.x % 32 < count) begin = max(begin, offset);
    if (beyond) return {first + count - 1, (uint32_t)(row - __reduce_max_sync(0xffffffffu, begin))};
  }
}

/* The thread's share of a row of no item: `share` of `count`. */
DEVICE void clear_row(const attention_append_parameters &p, int64_t row, uint32_t share, uint32_t count) {
  const uint32_t columns = 2 * p.row_pairs;
  rolled_for (uint32_t i = share; i < p.query_heads * columns; i += count)
    ((uint16_t *)p.o)[offset_of(p.o_stride, 0, i / columns, row) + i % columns] = 0;
  if (!p.lse) return;
  rolled_for (uint32_t i = share; i < p.query_heads; i += count) p.lse[i * p.lse_head_stride + row] = -INFINITY;
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

DEVICE rotation rotation_at(const attention_append_parameters &p, int64_t row, uint32_t pair) {
  return rotation_of((float)row * (p.frequencies ? p.frequencies[pair] : p.base_frequencies[pair]));
}

/* Four pairs of a head: four numbers of each half, or eight neighbours. */
struct four_pairs {
  copied_head head;
  uint32_t words[4];
};

DEVICE uint2 load_four(const uint16_t *from, bool aligned) {
  if (aligned) return *(const uint2 *)from;
  return make_uint2(from[0] | (uint32_t)from[1] << 16, from[2] | (uint32_t)from[3] << 16);
}
DEVICE void store_four(uint16_t *to, uint32_t low, uint32_t high, bool aligned) {
  if (aligned) {
    *(uint2 *)to = make_uint2(low, high);
    return;
  }
  to[0] = (uint16_t)low, to[1] = (uint16_t)(low >> 16), to[2] = (uint16_t)high, to[3] = (uint16_t)(high >> 16);
}

DEVICE four_pairs load_pairs(const copied_head &head, uint32_t first_at, uint32_t second_at, bool aligned) {
  if (!head.to) return {};
  const uint2 first = load_four(head.from + first_at, aligned), second = load_four(head.from + second_at, aligned);
  return {head, {first.x, first.y, second.x, second.y}};
}

template <rondo_dtype Dtype>
DEVICE void rotate_pairs(uint32_t (&words)[4], const rotation (&by)[ATTENTION_APPEND_PAIRS], bool by_halves) {
  float numbers[8];
  numbers_of(Dtype, words, numbers);
  if (by_halves)
    unrolled_for (int i = 0; i < ATTENTION_APPEND_PAIRS; i++) rotate_pair(by[i], numbers[i], numbers[i + 4]);
  else
    unrolled_for (int i = 0; i < ATTENTION_APPEND_PAIRS; i++) rotate_pair(by[i], numbers[2 * i], numbers[2 * i + 1]);
  unrolled_for (int i = 0; i < 4; i++) words[i] = word_of(Dtype, numbers[2 * i], numbers[2 * i + 1]);
}

using rotations_of_rows = rotation[ATTENTION_APPEND_MOST_ROWS][ATTENTION_MOST_PAIRS];

/* A thread has the same pairs of every head that it moves, and so the same sines and cosines. It loads two heads at
 * once: the compiler does not move a load before a store. The first loads run beside sines and cosines. */
DEVICE void append_rows(const attention_append_parameters &p) {
  __shared__ __align__(16) rotations_of_rows rotations;
  const uint32_t in_block = threadIdx.x / p.row_threads, thread = threadIdx.x & (p.row_threads - 1);
  const uint32_t begin = blockIdx.x / p.row_parts, part = blockIdx.x - begin * p.row_parts;
  const uint32_t own_row = begin * (ATTENTION_APPEND_THREADS / p.row_threads) + in_block;
  const bool is_row = own_row < p.batch * p.query_length;
  const uint32_t any_row = is_row ? own_row : 0;
  const uint32_t batch = any_row / p.query_length, query = any_row - batch * p.query_length;
  only_wait_for_predecessors();
  write_item(p, blockIdx.x * (int64_t)ATTENTION_APPEND_THREADS + threadIdx.x);
  const row_place at = p.row_offsets ? packed_place(p, (int)query) : row_place{batch, query};
  const bool is_item = at.item < p.items;
  if (!is_item && is_row) clear_row(p, query, part * p.row_threads + thread, p.row_parts * p.row_threads);
  const uint32_t item = is_item ? at.item : 0;
  const int64_t row = (int64_t)p.positions[p.per_item ? item : 0] + at.query;
  const uint32_t fours = p.row_pairs / ATTENTION_APPEND_PAIRS, log = 31 - __clz(fours); /* a power of two */
  const uint32_t pair = (thread & (fours - 1)) * ATTENTION_APPEND_PAIRS;
  const uint32_t first_at = p.by_halves ? pair : 2 * pair, second_at = p.by_halves ? pair + p.row_pairs : first_at + 4;
  const uint32_t step = p.row_parts * p.row_threads >> log;
  const copied_row copied(p, batch, query, kv_offset(p, p.k_stride, item, row), kv_offset(p, p.v_stride, item, row));
  const uint32_t heads = is_row && is_item ? copied.heads() : 0;
  uint32_t head = (part * p.row_threads + thread) >> log;
  four_pairs pairs[2];
  const auto load = [&] {
    unrolled_for (int i = 0; i < 2; i++, head += step) {
      pairs[i] = {};
      if (head < heads) pairs[i] = load_pairs(copied.head(head), first_at, second_at, p.aligned);
    }
  };
  load();
  if (p.rotates)
    for (uint32_t i = thread; i < p.row_pairs; i += p.row_threads) rotations[in_block][i] = rotation_at(p, row, i);
  __syncthreads();
  rotation by[ATTENTION_APPEND_PAIRS];
  unrolled_for (int i = 0; i < ATTENTION_APPEND_PAIRS; i++) by[i] = rotations[in_block][pair + i];
  while (true) {
    unrolled_for (int i = 0; i < 2; i++) {
      if (!pairs[i].head.to) continue;
      if (pairs[i].head.rotates && p.bf16)
        rotate_pairs<RONDO_BF16>(pairs[i].words, by, p.by_halves);
      else if (pairs[i].head.rotates)
        rotate_pairs<RONDO_F16>(pairs[i].words, by, p.by_halves);
      store_four(pairs[i].head.to + first_at, pairs[i].words[0], pairs[i].words[1], p.aligned);
      store_four(pairs[i].head.to + second_at, pairs[i].words[2], pairs[i].words[3], p.aligned);
    }
    if (head >= heads) break;
    load();
  }
}

/* ---- Rows of one item, in vectors -------------------------------------------------------------------------------- */

DEVICE void load_vector(const uint16_t *from, uint32_t *words) {
  const uint4 four = *(const uint4 *)from;
  words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
}

template <rondo_dtype Dtype, bool ByHalves>
DEVICE void rotate_vectors(uint32_t (&words)[8], const rotation (&by)[ATTENTION_APPEND_VECTOR_PAIRS]) {
  unrolled_for (int i = 0; i < 4; i++) {
    float2 first = numbers_of(Dtype, words[i]), second = numbers_of(Dtype, words[i + 4]);
    rotate_pair(by[ByHalves ? 2 * i : i], first.x, ByHalves ? second.x : first.y);
    rotate_pair(by[ByHalves ? 2 * i + 1 : i + 4], ByHalves ? first.y : second.x, second.y);
    words[i] = word_of(Dtype, first.x, first.y), words[i + 4] = word_of(Dtype, second.x, second.y);
  }
}

/* Of one item without pages. A thread has eight pairs of a head: sixteen numbers that are neighbours, or eight of each
 * half. A block waits for each instruction that runs once, so only loads, rotations and stores follow the wait, if the
 * position is settled. */
struct vector_unit {
  copied_head head;
  uint32_t further; /* from the first vector to the second */
  rotation by[ATTENTION_APPEND_VECTOR_PAIRS];

  template <bool Early> static DEVICE uint32_t load(const void *word) {
    return Early ? load_settled(word) : *(const uint32_t *)word;
  }

  template <bool Early> DEVICE void prepare(const attention_append_parameters &p, rotations_of_rows &rotations) {
    constexpr uint32_t PAIRS = ATTENTION_APPEND_VECTOR_PAIRS;
    const uint32_t in_block = threadIdx.x / p.row_threads, unit = threadIdx.x - in_block * p.row_threads;
    const uint32_t query = blockIdx.x * p.vector_rows + in_block, log = 31 - __clz(p.row_pairs / PAIRS);
    const uint32_t any_head = unit >> log, pair = (unit & ((1u << log) - 1)) * PAIRS;
    const int64_t row = (int64_t)(int32_t)load<Early>(p.positions) + query;
    const bool is_in_cache = row >= 0 && row < p.capacity;
    const copied_row copied(p, 0, query, is_in_cache ? row * p.k_stride.position : -1,
                            is_in_cache ? row * p.v_stride.position : -1);
    head = copied.head(any_head);
    if (query >= p.query_length || any_head >= copied.heads()) head.to = NULL;
    const uint32_t column = p.by_halves ? pair : 2 * pair;
    head.from += column, further = p.by_halves ? p.row_pairs : 8;
    if (head.to) head.to += column;
    for (uint32_t i = unit; i < p.row_pairs; i += p.row_threads) {
      const float frequency = p.frequencies ? __uint_as_float(load<Early>(p.frequencies + i)) : p.base_frequencies[i];
      rotations[in_block][i] = rotation_of((float)row * frequency);
    }
    __syncthreads();
    unrolled_for (int i = 0; i < (int)PAIRS; i++) by[i] = rotations[in_block][pair + i];
  }

  template <rondo_dtype Dtype> DEVICE void rotate(uint32_t (&words)[8], bool by_halves) const {
    if (__builtin_expect(by_halves, 1))
      rotate_vectors<Dtype, true>(words, by);
    else
      rotate_vectors<Dtype, false>(words, by);
  }

  DEVICE void move(const attention_append_parameters &p) const {
    if (p.lengths && blockIdx.x + threadIdx.x == 0) write_length(p, 0, p.query_length, p.most_length);
    if (!head.to) return;
    uint32_t words[8];
    load_vector(head.from, words), load_vector(head.from + further, words + 4);
    if (__builtin_expect(head.rotates && p.bf16, 1))
      rotate<RONDO_BF16>(words, p.by_halves);
    else if (head.rotates)
      rotate<RONDO_F16>(words, p.by_halves);
    *(uint4 *)head.to = make_uint4(words[0], words[1], words[2], words[3]);
    *(uint4 *)(head.to + further) = make_uint4(words[4], words[5], words[6], words[7]);
  }
};

DEVICE void append_vectors(const attention_append_parameters &p) {
  __shared__ __align__(16) rotations_of_rows rotations;
  vector_unit unit;
  if (p.early) unit.prepare<true>(p, rotations);
  only_wait_for_predecessors();
  if (__builtin_expect(!p.early, 0)) unit.prepare<false>(p, rotations);
  unit.move(p);
}

#define DEFINE(chips, parameters, name, threads, ...)                                                                  \
  DEFINE_EARLY_KERNEL(chips, parameters, name, threads, 0, __VA_ARGS__)
ATTENTION_APPEND_KERNELS(DEFINE)
