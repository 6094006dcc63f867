/* norm.cu - divides rows by their root mean square.
 *
 * rms_norm_rows: bound by memory, and for few rows by the latency of the loads. A power of two of threads shares a row;
 * each loads eight numbers at a time. Rows of one type in whole vectors stay in registers between the sum of squares
 * and the product (whole_row). Of other rows a thread keeps its first 16 numbers, and reads those of longer rows again,
 * from a cache. Each result is x * norm * factor in fp32, rounded once.
 *
 * rms_norm_sums: first adds parts to x, and may store these sums. Bound by the latency of the loads, since a decode
 * step has few rows. A block has a row; eight blocks share a long one, since 100 KB take a multiprocessor a
 * microsecond. A thread loads sixteen parts of each of two numbers at once.
 *
 * Sums have a fixed order: first each thread's own, then a tree over the lanes of a warp, then the warps in turn. */
#include "../common/cluster.cuh"
#include "../common/launch.cuh"
#include "../common/numbers.cuh"
#include "../common/rectangle.cuh"
#include "../common/settled.cuh"
#include "norm.h"

/* The sum over a row's threads. All of them get it. */
DEVICE float sum_over_row(float sum, uint32_t row_threads) {
  __shared__ float warps[RMS_NORM_THREADS / 32];
  unrolled_for (uint32_t step = 1; step < 32; step *= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, sum, step);
    if (step < row_threads) sum += other;
  }
  if (row_threads <= 32) return sum;
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  const uint32_t count = row_threads / 32, first = threadIdx.x / row_threads * count;
  sum = 0;
  for (uint32_t i = 0; i < count; i++) sum += warps[first + i];
  return sum;
}

/* The reciprocal of the root mean square of a row without parts, from the sum of its squares. */
DEVICE float factor_of(const rms_norm_parameters &p, float squares) {
  return __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(squares, (float)p.k) + p.epsilon));
}

/* Of all types and rows. */
DEVICE void rms_norm_of(const rms_norm_parameters &p, int64_t x, int64_t out) {
  const uint32_t row = blockIdx.x * (blockDim.x / p.row_threads) + threadIdx.x / p.row_threads;
  const uint32_t lane = threadIdx.x % p.row_threads, step = 8 * p.row_threads;
  const uint32_t k = row < p.rows ? p.k : 0; /* a row beyond the last sums nothing */
  float held[RMS_NORM_HELD_ANY][8], squares = 0;
  const auto count_at = [&](uint32_t column) { return min(k - column, 8u); };
  const auto load_x = [&](uint32_t column, float(&values)[8]) {
    load_numbers(p.x_dtype, p.x_is_aligned, p.x, x + column, count_at(column), values);
  };
  const auto load_norm = [&](uint32_t column, float(&norm)[8]) {
    if (!p.norm) return;
    load_numbers(p.norm_dtype, p.norm_is_aligned, p.norm, column, count_at(column), norm);
  };
  const auto add_squares = [&](const float(&values)[8]) {
    unrolled_for (int i = 0; i < 8; i++) squares = __fmaf_rn(values[i], values[i], squares);
  };
  unrolled_for (uint32_t h = 0; h < RMS_NORM_HELD_ANY; h++) {
    const uint32_t column = 8 * lane + h * step;
    if (column < k) load_x(column, held[h]);
  }
  unrolled_for (uint32_t h = 0; h < RMS_NORM_HELD_ANY; h++)
    if (8 * lane + h * step < k) add_squares(held[h]);
  for (uint32_t column = 8 * lane + RMS_NORM_HELD_ANY * step; column < k; column += step) {
    float values[8];
    load_x(column, values);
    add_squares(values);
  }
  const float factor = factor_of(p, sum_over_row(squares, p.row_threads));
  const auto finish = [&](uint32_t column, float(&values)[8]) {
    float norm[8];
    load_norm(column, norm);
    unrolled_for (int i = 0; i < 8; i++) values[i] = (p.norm ? values[i] * norm[i] : values[i]) * factor;
    store_numbers(p.out_dtype, p.out_is_aligned, p.out, out + column, count_at(column), values);
  };
  unrolled_for (uint32_t h = 0; h < RMS_NORM_HELD_ANY; h++)
    if (8 * lane + h * step < k) finish(8 * lane + h * step, held[h]);
  for (uint32_t column = 8 * lane + RMS_NORM_HELD_ANY * step; column < k; column += step) {
    float values[8];
    load_x(column, values);
    finish(column, values);
  }
}

/* A thread's vectors of a row: x, which becomes the results, and the norm. All are of one type. */
struct whole_row {
  uint4 held[RMS_NORM_HELD], norms[RMS_NORM_HELD];
  uint32_t first, step, k; /* its first column; from one vector to the next; 0 columns: there is no row */

  template <uint32_t Type> static DEVICE void numbers(const uint4 &vector, float (&values)[8]) {
    const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
    numbers_of(Type, words, values);
  }

  template <uint32_t Type> DEVICE void divide(const rms_norm_parameters &p) {
    float squares = 0;
    unrolled_for (uint32_t h = 0; h < RMS_NORM_HELD; h++) {
      if (first + h * step >= k) continue;
      float values[8];
      numbers<Type>(held[h], values);
      unrolled_for (int i = 0; i < 8; i++) squares = __fmaf_rn(values[i], values[i], squares);
    }
    const float factor = factor_of(p, sum_over_row(squares, p.row_threads));
    unrolled_for (uint32_t h = 0; h < RMS_NORM_HELD; h++) {
      if (h * step >= p.k) continue;
      float values[8], norm[8];
      numbers<Type>(held[h], values);
      numbers<Type>(norms[h], norm);
      unrolled_for (int i = 0; i < 8; i++) values[i] = values[i] * norm[i] * factor;
      held[h] = make_uint4(word_of(Type, values[0], values[1]), word_of(Type, values[2], values[3]),
                           word_of(Type, values[4], values[5]), word_of(Type, values[6], values[7]));
    }
  }

  /* `data` is where a row begins. */
  DEVICE void load(const void *data, uint4 (&vectors)[RMS_NORM_HELD]) const {
    unrolled_for (uint32_t h = 0; h < RMS_NORM_HELD; h++)
      if (first + h * step < k) vectors[h] = *(const uint4 *)((const uint16_t *)data + first + h * step);
  }
  DEVICE void store(uint16_t *to) const {
    unrolled_for (uint32_t h = 0; h < RMS_NORM_HELD; h++)
      if (first + h * step < k) *(uint4 *)(to + first + h * step) = held[h];
  }
};

/* Rows of one type in whole vectors, whose norm is loaded before the wait if it is settled, and others. */
DEVICE void rms_norm_rows(const rms_norm_parameters &p) {
  const uint32_t log = 31 - __clz(p.row_threads); /* short rows may have more than 2^32 threads in all */
  const uint32_t row = blockIdx.x * (blockDim.x >> log) + (threadIdx.x >> log);
  whole_row whole;
  whole.first = 8 * (threadIdx.x & (p.row_threads - 1)), whole.step = 8 << log, whole.k = row < p.rows ? p.k : 0;
  int64_t x = 0, out = 0;
  row_indices(row, p.extent, [&](int i, uint32_t index) {
    x += index * p.x_stride[i];
    out += index * p.out_stride[i];
  });
  uint32_t loaded = 0;
  unrolled_for (uint32_t h = 0; h < RMS_NORM_HELD; h++) {
    const uint32_t one = p.whole_type == RONDO_BF16 ? 0x3f803f80u : 0x3c003c00u, column = whole.first + h * whole.step;
    uint4 words = make_uint4(one, one, one, one);
    if (p.early && column < whole.k) words = load_settled_vector((const uint16_t *)p.norm + column);
    loaded |= words.x | words.y | words.z | words.w;
    whole.norms[h] = words;
  }
  keep_early(p.always_zero, loaded);
  only_wait_for_predecessors();
  if (!p.whole_type) return rms_norm_of(p, x, out);
  whole.load((const uint16_t *)p.x + x, whole.held);
  if (p.norm && !p.early) whole.load(p.norm, whole.norms);
  if (p.whole_type == RONDO_BF16)
    whole.divide<RONDO_BF16>(p);
  else
    whole.divide<RONDO_F16>(p);
  whole.store((uint16_t *)p.out + out);
}

/* x plus the sum of its parts in their order, rounded to x's type. */
DEVICE float sum_of_parts(const rms_norm_parameters &p, int64_t x, const float *part) {
  const float number = load_number(p.x_dtype, p.x, x);
  float sum = 0;
  for (uint32_t first = 0; first < p.part_count; first += RMS_NORM_PARTS) {
    float loaded[RMS_NORM_PARTS];
    unrolled_for (uint32_t i = 0; i < RMS_NORM_PARTS; i++)
      loaded[i] = first + i < p.part_count ? part[(first + i) * p.part] : -0.0f;
    unrolled_for (uint32_t i = 0; i < RMS_NORM_PARTS; i++) sum += loaded[i];
  }
  sum += number;
  return p.x_dtype == RONDO_F32 ? sum : numbers_of(p.x_dtype, word_of(p.x_dtype, sum, 0)).x;
}

/* The sum over the blocks of a row, in their order. */
template <int Blocks> DEVICE float sum_over_cluster(float sum, uint32_t rank) {
  __shared__ uint64_t blocks[Blocks];
  wait_for_cluster();
  if (threadIdx.x < Blocks)
    store_in_block(address_in_block(shared_address(&blocks[rank]), threadIdx.x), __float_as_uint(sum));
  meet_cluster();
  sum = 0;
  unrolled_for (int i = 0; i < Blocks; i++) sum += __uint_as_float((uint32_t)blocks[i]);
  return sum;
}

template <int Blocks> DEVICE void rms_norm_sums(const rms_norm_parameters &p) {
  const uint32_t rank = blockIdx.x % Blocks, row = blockIdx.x / Blocks;
  const uint32_t first = rank * blockDim.x + threadIdx.x, step = Blocks * blockDim.x;
  if constexpr (Blocks > 1) arrive_at_cluster();
  int64_t x = 0, out = 0, parts = 0;
  row_indices(row, p.extent, [&](int i, uint32_t index) {
    x += index * p.x_stride[i];
    out += index * p.out_stride[i];
    parts += index * p.parts_stride[i];
  });
  const auto norm_of = [&](uint32_t column) { return p.norm ? load_number(p.norm_dtype, p.norm, column) : 1; };
  const auto store_sum = [&](uint32_t column, float number) {
    if (p.sum) store_number(p.x_dtype, p.sum, row * p.sum_row + column, number);
    for (uint32_t i = 0; i < p.zero_count; i++) p.zeros[i * p.zero + row * p.zero_row + column] = 0;
  };
  float held[RMS_NORM_HELD_SUMS], norms[RMS_NORM_HELD_SUMS], squares = 0;
  unrolled_for (uint32_t h = 0; h < RMS_NORM_HELD_SUMS; h++) {
    const uint32_t column = first + h * step;
    norms[h] = column < p.k ? norm_of(column) : 1;
    if (column < p.k) held[h] = sum_of_parts(p, x + column, p.parts + parts + column);
  }
  unrolled_for (uint32_t h = 0; h < RMS_NORM_HELD_SUMS; h++)
    if (first + h * step < p.k) squares = __fmaf_rn(held[h], held[h], squares);
  for (uint32_t column = first + RMS_NORM_HELD_SUMS * step; column < p.k; column += step) {
    const float number = sum_of_parts(p, x + column, p.parts + parts + column);
    store_sum(column, number);
    squares = __fmaf_rn(number, number, squares);
  }
  squares = sum_over_row(squares, blockDim.x);
  if constexpr (Blocks > 1) squares = sum_over_cluster<Blocks>(squares, rank);
  const float mean = __fdiv_rn(squares, (float)p.k);
  const float factor = p.plain ? 1.0f : __fdiv_rn(1.0f, __fsqrt_rn(mean + p.epsilon));
  const auto finish = [&](uint32_t column, float number, float norm) {
    store_number(p.out_dtype, p.out, out + column, number * norm * factor);
  };
  unrolled_for (uint32_t h = 0; h < RMS_NORM_HELD_SUMS; h++)
    if (first + h * step < p.k) finish(first + h * step, held[h], norms[h]);
  unrolled_for (uint32_t h = 0; h < RMS_NORM_HELD_SUMS; h++)
    if (first + h * step < p.k) store_sum(first + h * step, held[h]);
  for (uint32_t column = first + RMS_NORM_HELD_SUMS * step; column < p.k; column += step)
    finish(column, sum_of_parts(p, x + column, p.parts + parts + column), norm_of(column));
}

#define DEFINE(chips, parameters, name, threads, ...)                                                                  \
  DEFINE_EARLY_KERNEL(chips, parameters, name, threads, 2, __VA_ARGS__)
RMS_NORM_KERNELS(DEFINE)
#undef DEFINE
RMS_NORM_PARTS_KERNELS(DEFINE_SHORT_KERNEL)

#if __CUDA_ARCH__ >= 900
#define DEFINE(chips, parameters, name, threads, ...)                                                                  \
  DEFINE_CLUSTER_KERNEL(wait_for_predecessors(), RMS_NORM_CLUSTER, parameters, name, threads, 1, __VA_ARGS__)
RMS_NORM_CLUSTER_KERNELS(DEFINE)
#endif
