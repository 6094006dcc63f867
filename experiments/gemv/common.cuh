/* common.cuh - what the GEMV kernels share: parameters, loads, number formats, sums over lanes and warps.
 *
 * The one-vector kernels are "streams": a warp owns some rows and a part of k, lanes along k, and reads its rows one
 * after the other through a ring of registers; nothing is staged, polled or synchronised on the way. The warps that
 * share rows and differ in their part of k meet once, at the end. What the order of the first statements is about: the
 * cache answers in the order it was asked, so the vector is asked for first and converted while weights travel. */
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

enum number_format : uint32_t { NVFP4, E4M3, F16, BF16, F32 };

struct gemv_parameters {
  const uint8_t *weights, *weight_scales; /* [batch][m][k], [batch][m][k / 16] */
  const uint8_t *vectors, *vector_scales; /* [batch][count][k], [batch][count][k / 16] */
  void *out;                              /* [batch][count][m] */
  uint64_t weight_batch, scale_batch;     /* bytes of one matrix */
  uint32_t m, k, count;
  uint32_t out_format;                      /* F32, F16 or BF16 */
  uint32_t never;                           /* 0: branches on it order the code */
  uint32_t early;                           /* weights may be read before the kernels this one depends on have ended */
  uint32_t rows_per_stream, longer_streams; /* of the streams, the first have one row more: see stream_of */
  uint32_t tiles;                           /* column kernel: tiles of 16 rows of one matrix */
  uint32_t block_rows, group_tiles, chunks; /* staged kernel: rows of a block, tiles that meet at once, chunks of k */
  float scale;
};

/* ---- Loads ------------------------------------------------------------------------------------------------------ */

struct words {
  uint32_t word[4];
};

/* Weights are read once: past L1. */
__device__ __forceinline__ words load_weights(const uint8_t *address) {
  words loaded;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(loaded.word[0]), "=r"(loaded.word[1]), "=r"(loaded.word[2]), "=r"(loaded.word[3])
               : "l"(address));
  return loaded;
}

__device__ __forceinline__ uint32_t load_scale_pair(const uint8_t *address) {
  uint16_t pair;
  asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(pair) : "l"(address));
  return pair;
}

/* The vector: many warps read the same, so through L1; it may be another kernel's result, so not by the constant path.
 */
__device__ __forceinline__ words load_vector(const uint8_t *address) {
  words loaded;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(loaded.word[0]), "=r"(loaded.word[1]), "=r"(loaded.word[2]), "=r"(loaded.word[3])
               : "l"(address)
               : "memory");
  return loaded;
}

__device__ __forceinline__ uint32_t load_vector_scale_pair(const uint8_t *address) {
  uint16_t pair;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(pair) : "l"(address) : "memory");
  return pair;
}

__device__ __forceinline__ void release_successors() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void wait_for_predecessors() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/* ---- Number formats --------------------------------------------------------------------------------------------- */

__device__ __forceinline__ uint32_t permute(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
  return result;
}

/* A constant in a register that the compiler cannot see through: it rematerialises a plain one (a MOV) before each use
 * by an instruction that takes no immediate there. */
__device__ __forceinline__ uint32_t opaque(uint32_t constant) {
  return __shfl_sync(0xffffffffu, threadIdx.x % 32 == 0 ? constant : 0, 0);
}

/* (a & mask) | b */
__device__ __forceinline__ uint32_t and_or(uint32_t a, uint32_t mask, uint32_t b) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(result) : "r"(a), "r"(mask), "r"(b));
  return result;
}

__device__ __forceinline__ __half2 half2_of(uint32_t bits) { return *reinterpret_cast<__half2 *>(&bits); }
__device__ __forceinline__ uint32_t bits_of(__half2 pair) { return *reinterpret_cast<uint32_t *>(&pair); }

/* Two e4m3 numbers in the low 16 bits, exact; NaN stays NaN. */
__device__ __forceinline__ __half2 half2_of_e4m3(uint32_t pair) {
  uint32_t result;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low;}" : "=r"(result) : "r"(pair));
  return half2_of(result);
}
__device__ __forceinline__ __half2 half2_of_e4m3_high(uint32_t pairs) {
  uint32_t result;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, high;}" : "=r"(result) : "r"(pairs));
  return half2_of(result);
}

/* ---- Results ---------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ void store_result(const gemv_parameters &p, uint64_t element, float sum) {
  sum *= p.scale;
  if (p.out_format == F32)
    ((float *)p.out)[element] = sum;
  else if (p.out_format == F16)
    ((__half *)p.out)[element] = __float2half_rn(sum);
  else
    ((__nv_bfloat16 *)p.out)[element] = __float2bfloat16_rn(sum);
}

/* Sums over the 32 lanes of Count values at once: while there are several, a step halves their number instead of adding
 * all of them on both sides. Lane i ends with the sum of value i / (32 / Count). */
template <int Count> __device__ __forceinline__ float sums_over_lanes(float (&values)[Count]) {
  const uint32_t lane = threadIdx.x % 32;
  int distance = 16;
#pragma unroll
  for (int left = Count; left > 1; left /= 2) {
    bool upper = lane & distance;
#pragma unroll
    for (int i = 0; i < left / 2; i++) {
      float keep = upper ? values[i + left / 2] : values[i], give = upper ? values[i] : values[i + left / 2];
      values[i] = keep + __shfl_xor_sync(0xffffffffu, give, distance);
    }
    distance /= 2;
  }
  float sum = values[0];
#pragma unroll
  for (; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  return sum;
}

/* The first row of tile `row_group` of Rows rows. The last one moves up to end with the matrix: it computes some rows
 * twice, to the same bits, and no address needs a bound. m >= Rows. */
template <int Rows> __device__ __forceinline__ uint32_t first_row_of(const gemv_parameters &p, uint32_t row_group) {
  return min(row_group * Rows, p.m - Rows);
}

/* ---- Streams ---------------------------------------------------------------------------------------------------- */

/* Rows are dealt to all streams of a matrix, to within one row of evenly. */
struct stream {
  uint32_t first, count;
};
__device__ __forceinline__ stream stream_of(const gemv_parameters &p, uint32_t index) {
  return {index * p.rows_per_stream + min(index, p.longer_streams), p.rows_per_stream + (index < p.longer_streams)};
}

/* base + index * stride in one instruction, on the pipe that has time. */
__device__ __forceinline__ const uint8_t *offset(const uint8_t *base, uint32_t index, uint32_t stride) {
  uint64_t address;
  asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(address) : "r"(index), "r"(stride), "l"((uint64_t)base));
  return (const uint8_t *)address;
}

/* Sums of Rows rows from row `at` of the stream on. With several parts of k they wait in shared memory. */
template <int Rows, int SplitK>
__device__ __forceinline__ void keep_rows(const gemv_parameters &p, float (&sums)[Rows], float *partial, uint32_t part,
                                          uint32_t block_rows, const stream &stream, uint32_t block_first,
                                          uint32_t at) {
  constexpr uint32_t lanes_per_row = 32 / Rows;
  const uint32_t lane = threadIdx.x % 32;
  float sum = sums_over_lanes<Rows>(sums);
  const uint32_t row = at + lane / lanes_per_row;
  if (lane % lanes_per_row || row >= stream.count) return;
  if constexpr (SplitK == 1)
    store_result(p, (uint64_t)blockIdx.y * p.m + stream.first + row, sum);
  else
    partial[part * block_rows + stream.first - block_first + row] = sum;
}

/* The parts of k, added in order. */
template <int SplitK, int Threads>
__device__ __forceinline__ void add_parts(const gemv_parameters &p, const float *partial, uint32_t block_first,
                                          uint32_t block_rows) {
  if constexpr (SplitK > 1) {
    __syncthreads();
    for (uint32_t row = threadIdx.x; row < block_rows; row += Threads) {
      float sum = partial[row];
#pragma unroll
      for (int i = 1; i < SplitK; i++) sum += partial[i * block_rows + row];
      store_result(p, (uint64_t)blockIdx.y * p.m + block_first + row, sum);
    }
  }
}
