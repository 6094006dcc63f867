/* gemv_scalar.cu - products with vectors of any alignment, type, k and count.
 *
 * When: no kernel with wide loads takes the product. Bound by the number of loads. Up to 128 registers, 2.5 KB of
 * shared memory.
 *
 * A warp has four rows and a part of k. A lane takes pairs of elements, one load each; neighbouring lanes read
 * neighbouring elements, so each sector is read once. Weights and vectors become fp32 exactly, and so do NVFP4 weights
 * times their scales. A sum has a fixed order: a lane's elements, then the butterfly over lanes, then the parts. The
 * order depends on k and the number of rows, never on the vectors. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "../common/element.cuh"
#include "../common/launch.cuh"
#include "gemv_finish.cuh"
#include "gemv_scalar.h"

constexpr int warp_count = GEMV_SCALAR_THREADS / 32;
constexpr int lane_pairs = GEMV_SCALAR_STEP / 64; /* pairs of a lane in a step */

struct shared_sums {
  float sums[GEMV_COUNT][warp_count][GEMV_SCALAR_ROWS];
  float squares[GEMV_COUNT][warp_count];
};

/* ---- Numbers ---------------------------------------------------------------------------------------------------- */

DEVICE float f32_of(__half value) { return __half2float(value); }
DEVICE float f32_of(__nv_bfloat16 value) { return __bfloat162float(value); }
DEVICE float f32_of_e4m3(unsigned char value) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)value, __NV_E4M3)));
}

template <typename T> DEVICE float rounded(float value);
template <> DEVICE float rounded<__half>(float value) { return f32_of(__float2half_rn(value)); }
template <> DEVICE float rounded<__nv_bfloat16>(float value) { return f32_of(__float2bfloat16_rn(value)); }

/* Bits s|eem at 15|11..9 of a half are an e2m1 value times 2^-14, subnormal 0.5 included. */
DEVICE float2 f32_of_e2m1_pair(uint32_t codes) {
  uint32_t halves = (codes & 0x07u) << 9 | (codes & 0x08u) << 12 | (codes & 0x70u) << 21 | (codes & 0x80u) << 24;
  return __half22float2(__hmul2(*reinterpret_cast<__half2 *>(&halves), __half2half2(__ushort_as_half(0x7400))));
}

template <rondo_dtype Dtype> constexpr bool is_nvfp4 = Dtype == RONDO_NVFP4;

/* ---- Rows ------------------------------------------------------------------------------------------------------- */

/* A row of weights, or a vector. */
struct row {
  const unsigned char *data, *scales;
  uint32_t four; /* bytes between four blocks of scales */
};

DEVICE row row_of(const unsigned char *data, const unsigned char *scales, uint32_t index, uint32_t data_row,
                  const gemv_scale_strides &strides) {
  return {data + (uint64_t)index * data_row, scales + scales_of_row(strides, index), strides.four};
}

/* The elements of `column` and of the next one; from `end` on zeros. */
template <rondo_dtype Dtype> DEVICE float2 load_pair(const row &row, uint32_t column, uint32_t end) {
  if (column >= end) return make_float2(0, 0);
  if constexpr (is_nvfp4<Dtype>) {
    const uint32_t block = column / GEMV_BLOCK;
    const float2 pair = f32_of_e2m1_pair(__ldg(row.data + column / 2));
    const float scale = f32_of_e4m3(__ldg(row.scales + (block / 4 * row.four + block % 4)));
    return make_float2(pair.x * scale, pair.y * scale);
  } else if constexpr (Dtype == RONDO_E4M3) {
    return make_float2(f32_of_e4m3(__ldg(row.data + column)),
                       column + 1 < end ? f32_of_e4m3(__ldg(row.data + column + 1)) : 0);
  } else {
    const auto *data = (const element<Dtype> *)row.data + column;
    return make_float2(f32_of(__ldg(data)), column + 1 < end ? f32_of(__ldg(data + 1)) : 0);
  }
}

/* A vector's elements as they are multiplied: times the norm's weights, rounded to the vector's type. */
template <rondo_dtype Dtype>
DEVICE float2 load_normed(const gemv_scalar_parameters &p, const row &vector, uint32_t column) {
  float2 x = load_pair<Dtype>(vector, column, p.k);
  if constexpr (!is_nvfp4<Dtype>) {
    if (p.norm) {
      const float2 norm = load_pair<Dtype>({(const unsigned char *)p.norm, nullptr, 0}, column, p.k);
      x.x = rounded<element<Dtype>>(x.x * norm.x);
      x.y = rounded<element<Dtype>>(x.y * norm.y);
    }
  }
  return x;
}

DEVICE row vector_of(const gemv_scalar_parameters &p, uint32_t batch, uint32_t vector) {
  return row_of(p.vectors + batch * p.vector_batch_bytes, p.vector_scales + (uint64_t)batch * p.vector_scale_batch,
                vector, p.vector_row, {p.vector_scale_row, 0, 0, p.vector_scale_four});
}

/* ---- Sums ------------------------------------------------------------------------------------------------------- */

/* The warp's sums with `Pass` vectors from `first` on. */
template <rondo_dtype Weights, rondo_dtype Vectors, int Pass>
DEVICE void multiply_pass(const gemv_scalar_parameters &p, uint32_t batch, uint32_t first_row, uint32_t begin,
                          uint32_t first, shared_sums &shared) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  row rows[GEMV_SCALAR_ROWS], vectors[Pass];
  unrolled_for (uint32_t i = 0; i < GEMV_SCALAR_ROWS; i++)
    rows[i] = row_of(p.weights + batch * p.weight_batch_bytes, p.weight_scales + (uint64_t)batch * p.weight_scale_batch,
                     min(first_row + i, p.m - 1), p.weight_row, p.weight_scale_strides);
  unrolled_for (uint32_t v = 0; v < Pass; v++) vectors[v] = vector_of(p, batch, min(first + v, p.count - 1));

  float sums[Pass][GEMV_SCALAR_ROWS] = {};
  for (uint32_t chunk = 0; chunk < p.chunks; chunk++, begin += GEMV_SCALAR_STEP) {
    float2 weights[lane_pairs][GEMV_SCALAR_ROWS];
    unrolled_for (uint32_t u = 0; u < lane_pairs; u++)
      unrolled_for (uint32_t i = 0; i < GEMV_SCALAR_ROWS; i++)
        weights[u][i] = load_pair<Weights>(rows[i], begin + 64 * u + 2 * lane, p.k);
    unrolled_for (uint32_t u = 0; u < lane_pairs; u++)
      unrolled_for (uint32_t v = 0; v < Pass; v++) {
        const float2 x = load_normed<Vectors>(p, vectors[v], begin + 64 * u + 2 * lane);
        unrolled_for (uint32_t i = 0; i < GEMV_SCALAR_ROWS; i++)
          sums[v][i] = __fmaf_rn(weights[u][i].y, x.y, __fmaf_rn(weights[u][i].x, x.x, sums[v][i]));
      }
  }
  unrolled_for (uint32_t v = 0; v < Pass; v++)
    unrolled_for (uint32_t i = 0; i < GEMV_SCALAR_ROWS; i++) {
      const float sum = warp_sum(sums[v][i]);
      if (lane == 0 && first + v < p.count) shared.sums[first + v][warp][i] = sum;
    }
}

/* Every thread has a part of each vector, whatever rows its warp has. */
template <rondo_dtype Vectors>
DEVICE void add_squares(const gemv_scalar_parameters &p, uint32_t batch, shared_sums &shared) {
  for (uint32_t v = 0; v < p.count; v++) {
    const row vector = vector_of(p, batch, v);
    float sum = 0;
#pragma unroll 4
    for (uint32_t element = 2 * threadIdx.x; element < p.k; element += 2 * GEMV_SCALAR_THREADS) {
      const float2 x = load_pair<Vectors>(vector, element, p.k);
      sum = __fmaf_rn(x.y, x.y, __fmaf_rn(x.x, x.x, sum));
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) shared.squares[v][threadIdx.x / 32] = sum;
  }
}

template <rondo_dtype Weights, rondo_dtype Vectors>
DEVICE void multiply(const gemv_scalar_parameters &p, uint32_t batch, uint32_t first_row, uint32_t begin,
                     shared_sums &shared) {
  if constexpr (!is_nvfp4<Vectors>) {
    if (p.norm_epsilon > 0) add_squares<Vectors>(p, batch, shared);
  }
  if (p.count == 1)
    multiply_pass<Weights, Vectors, 1>(p, batch, first_row, begin, 0, shared);
  else
    for (uint32_t first = 0; first < p.count; first += 4)
      multiply_pass<Weights, Vectors, 4>(p, batch, first_row, begin, first, shared);
}

/* ---- A block ---------------------------------------------------------------------------------------------------- */

/* Its warps: groups of four rows each, and in a group the parts of k. parts * groups == warp_count. */
DEVICE void gemv_scalar(const gemv_scalar_parameters &p) {
  __shared__ shared_sums shared;
  const uint32_t batch = blockIdx.y + gridDim.y * blockIdx.z, rows_of_tile = p.groups * GEMV_SCALAR_ROWS;
  if (batch >= p.batch) return; /* the whole block */
  const uint32_t warp = threadIdx.x / 32, group = warp / p.parts, part = warp - group * p.parts;
  const uint32_t tile = blockIdx.x * rows_of_tile, row = tile + group * GEMV_SCALAR_ROWS;
  const uint32_t begin = part * p.chunks * GEMV_SCALAR_STEP;

  if (p.weight_dtype == RONDO_F16)
    multiply<RONDO_F16, RONDO_F16>(p, batch, row, begin, shared);
  else if (p.weight_dtype == RONDO_BF16)
    multiply<RONDO_BF16, RONDO_BF16>(p, batch, row, begin, shared);
  else if (p.weight_dtype == RONDO_E4M3 && p.vector_dtype == RONDO_F16)
    multiply<RONDO_E4M3, RONDO_F16>(p, batch, row, begin, shared);
  else if (p.weight_dtype == RONDO_E4M3)
    multiply<RONDO_E4M3, RONDO_BF16>(p, batch, row, begin, shared);
  else if (p.vector_dtype == RONDO_F16)
    multiply<RONDO_NVFP4, RONDO_F16>(p, batch, row, begin, shared);
  else if (p.vector_dtype == RONDO_BF16)
    multiply<RONDO_NVFP4, RONDO_BF16>(p, batch, row, begin, shared);
  else
    multiply<RONDO_NVFP4, RONDO_NVFP4>(p, batch, row, begin, shared);
  __syncthreads();

  const auto sum_of = [&](uint32_t vector, uint32_t row) {
    const uint32_t first = row / GEMV_SCALAR_ROWS * p.parts;
    float sum = shared.sums[vector][first][row % GEMV_SCALAR_ROWS];
    for (uint32_t part = 1; part < p.parts; part++) sum += shared.sums[vector][first + part][row % GEMV_SCALAR_ROWS];
    return sum;
  };
  const auto factor_of = [&](uint32_t vector) {
    float squares = 0;
    unrolled_for (int i = 0; i < warp_count; i++) squares += shared.squares[vector][i];
    return rms_factor(p, squares);
  };
  const tile_rows done = {batch, tile, min(rows_of_tile, p.m - tile), 0};
  if (p.finishing)
    finish_rows_fully(p, done, sum_of, factor_of);
  else
    finish_rows<true, true>(p, done, threadIdx.x, sum_of, factor_of);
}

GEMV_SCALAR_KERNELS(DEFINE_KERNEL)
