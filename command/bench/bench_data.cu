/* bench_data.cu - the device code of rondo bench kernels besides the timed kernels: random numbers, and only reading
 * bytes, which is a lower bound for every kernel that needs these bytes. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stdint.h>

#include "bench_data.h"

/* splitmix64 (Steele, Lea, Flood 2014) of an element's index. */
__device__ uint64_t random_bits(uint64_t index, uint64_t seed) {
  uint64_t z = (index + 1) * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

/* A random number that is not NaN. A scale factor lies between 1/4 and 4 in 15 of 16 cases. */
__device__ uint32_t e4m3_byte(uint32_t random, bool is_scale) {
  uint32_t byte = is_scale && random >> 8 & 15 ? 0x28 + (random & 31) : random & 255;
  return (byte & 127) == 127 ? byte ^ 1 : byte;
}

/* Two 16-bit numbers of both signs that are not subnormal: bf16 from 2^-9 to 2^3, f16 from 2^-7 to 2^3. */
__device__ uint32_t half_word(uint32_t random, bool is_bf16) {
  return is_bf16 ? (random & 0x807f) | (118 + (random >> 7 & 255) % 12) << 7
                 : (random & 0x83ff) | (8 + (random >> 10 & 31) % 10) << 10;
}

/* Two normally distributed numbers (Box and Muller 1958). */
__device__ float2 normal_pair(uint64_t random) {
  float radius = sqrtf(-2 * logf(((uint32_t)random + 1.0f) * 0x1p-32f)), sine, cosine;
  sincospif((float)(uint32_t)(random >> 32) * 0x1p-31f, &sine, &cosine);
  return make_float2(radius * sine, radius * cosine);
}

__device__ uint32_t normal_word(uint64_t random, bool is_f16) {
  const float2 pair = normal_pair(random);
  if (is_f16) return __half_as_ushort(__float2half(pair.x)) | __half_as_ushort(__float2half(pair.y)) << 16;
  uint32_t low = __bfloat16_as_ushort(__float2bfloat16(pair.x)), high = __bfloat16_as_ushort(__float2bfloat16(pair.y));
  return low | high << 16;
}

__device__ uint32_t normal_half_word_e4m3(uint64_t random) {
  return __nv_cvt_float2_to_fp8x2(normal_pair(random), __NV_SATFINITE, __NV_E4M3);
}

/* One word of a pair of normally distributed numbers: an f32 number, or half of an f64 number. */
__device__ uint32_t normal_word_of_pair(uint64_t index, uint64_t seed, bool is_f64) {
  const float2 pair = normal_pair(random_bits(index / 2, seed));
  if (!is_f64) return __float_as_uint(index & 1 ? pair.y : pair.x);
  const uint64_t number = (uint64_t)__double_as_longlong(pair.x + 0x1p-24 * pair.y);
  return (uint32_t)(number >> 32 * (index & 1));
}

extern "C" __global__ void __launch_bounds__(BENCH_FILL_THREADS)
    bench_fill(uint32_t *out, uint64_t words, uint32_t data, uint32_t seed) {
  uint64_t threads = (uint64_t)gridDim.x * blockDim.x;
  for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += threads) {
    uint64_t random = random_bits(i, seed);
    uint32_t word = 0;
    if (data == BENCH_CODES)
      word = (uint32_t)random;
    else if (data == BENCH_NORMAL || data == BENCH_NORMAL_F16)
      word = normal_word(random, data == BENCH_NORMAL_F16);
    else if (data == BENCH_NORMAL_E4M3)
      word = normal_half_word_e4m3(random) | normal_half_word_e4m3(random_bits(i, ~(uint64_t)seed)) << 16;
    else if (data == BENCH_NORMAL_F32 || data == BENCH_NORMAL_F64)
      word = normal_word_of_pair(i, seed, data == BENCH_NORMAL_F64);
    else if (data == BENCH_E4M3 || data == BENCH_SCALES)
      for (int byte = 0; byte < 4; byte++)
        word |= e4m3_byte((uint32_t)(random >> 16 * byte & 0xffff), data == BENCH_SCALES) << 8 * byte;
    else
      for (int half = 0; half < 2; half++)
        word |= half_word((uint32_t)(random >> 32 * half & 0xffff), data == BENCH_BF16) << 16 * half;
    out[i] = word;
  }
}

/* Each thread of a block reads four times 16 bytes of a chunk, and issues all four loads before it uses the first. The
 * blocks take the chunks round-robin. The store of the sum has a condition that is never true: the compiler has to keep
 * the loads, and nothing is stored. */
extern "C" __global__ void __launch_bounds__(BENCH_READ_THREADS_MOST)
    bench_read(const uint4 *data, uint64_t vectors, uint32_t *sink) {
  const uint64_t chunk = 4 * (uint64_t)blockDim.x;
  uint32_t all = 0;
  for (uint64_t first = blockIdx.x * chunk + threadIdx.x; first < vectors; first += gridDim.x * chunk) {
    uint4 loaded[4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      uint64_t at = first + i * (uint64_t)blockDim.x;
      if (at < vectors)
        asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(loaded[i].x), "=r"(loaded[i].y), "=r"(loaded[i].z), "=r"(loaded[i].w)
                     : "l"(data + at));
    }
#pragma unroll
    for (int i = 0; i < 4; i++) all |= loaded[i].x & loaded[i].y & loaded[i].z & loaded[i].w;
  }
  if (all == 0xffffffffu && vectors == ~0ull) *sink = all;
}
