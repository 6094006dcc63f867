/* ladder.cu - the same product in eight kernels, from one thread for each row to bulk copies. They repeat the steps of
 * a write-up of a competition for batched NVFP4 GEMV on a B200, so that the gain of each step can be measured on other
 * chips.
 *
 * The comment of a kernel states its change from the previous kernel and the reason. The name in brackets is that of
 * the write-up. The library has none of these kernels. */
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>

#include "ladder.h"

constexpr uint32_t BLOCK = 16; /* elements with one scale factor: eight bytes of codes */
constexpr uint32_t TILE_ROWS = LADDER_WARPS * LADDER_ROWS;
constexpr uint32_t THREADS = 32 * LADDER_WARPS;
constexpr uint32_t PASS = 32 * BLOCK; /* elements of a row in a pass of a warp: 16 for each lane */

/* ---- Common code ------------------------------------------------------------------------------------------------- */

__device__ ladder_product matrix_of(const ladder_product &p) {
  ladder_product one = p;
  const size_t matrix = blockIdx.y;
  one.a += matrix * p.m * (p.k / 2);
  one.a_scales += matrix * p.m * (p.k / BLOCK);
  one.b += matrix * (p.k / 2);
  one.b_scales += matrix * (p.k / BLOCK);
  one.c += matrix * p.m;
  return one;
}

/* CUDA's own conversions: many instructions on a chip without an instruction for them. */
__device__ __half2 pair_of(uint32_t byte) {
  __half2_raw raw = __nv_cvt_fp4x2_to_halfraw2((__nv_fp4x2_storage_t)byte, __NV_E2M1);
  return __half2(raw);
}
__device__ float scale_of(uint32_t byte) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)byte, __NV_E4M3)));
}

__device__ float both(__half2 pair) { return __low2float(pair) + __high2float(pair); }

__device__ void store(const ladder_product &p, uint32_t row, float sum) {
  p.c[row] = __half_as_ushort(__float2half_rn(sum * p.scale));
}

/* The product of 16 elements of one row, byte by byte. Products of two codes, and sums of eight of them, are exact in
 * f16. */
__device__ float block_product(const ladder_product &p, uint32_t row, uint32_t block) {
  const uint8_t *a = p.a + (size_t)row * (p.k / 2) + block * 8, *b = p.b + block * 8;
  __half2 sum = __half2half2(0);
  for (int i = 0; i < 8; i++) sum = __hfma2(pair_of(a[i]), pair_of(b[i]), sum);
  return both(sum) * scale_of(p.a_scales[(size_t)row * (p.k / BLOCK) + block]) * scale_of(p.b_scales[block]);
}

/* Converts 16 elements that one load has fetched. */
__device__ void convert(uint64_t codes, __half2 (&pairs)[8]) {
#pragma unroll
  for (int i = 0; i < 8; i++) pairs[i] = pair_of((uint32_t)(codes >> 8 * i) & 255);
}
__device__ float pairs_product(const __half2 (&a)[8], const __half2 (&b)[8]) {
  __half2 sum = __half2half2(0);
#pragma unroll
  for (int i = 0; i < 8; i++) sum = __hfma2(a[i], b[i], sum);
  return both(sum);
}
__device__ float block_product(uint64_t codes, const __half2 (&vector)[8]) {
  __half2 pairs[8];
  convert(codes, pairs);
  return pairs_product(pairs, vector);
}

__device__ float warp_sum(float sum) {
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_down_sync(0xffffffffu, sum, distance);
  return sum;
}

/* Stores the results of a warp's rows, from `row` on. */
__device__ void store_rows(const ladder_product &p, uint32_t row, const float (&sums)[LADDER_ROWS]) {
#pragma unroll
  for (int r = 0; r < LADDER_ROWS; r++) {
    float sum = warp_sum(sums[r]);
    if (threadIdx.x % 32 == 0) store(p, row + r, sum);
  }
}

/* ---- 1 [v1]: one thread for each row ----------------------------------------------------------------------------- */

/* The plain loop. One launch computes all matrices. It has too few threads, and neighbouring threads read addresses
 * that are a whole row apart. */
extern "C" __global__ void __launch_bounds__(LADDER_LANES)
    ladder_thread_a_row(const __grid_constant__ ladder_product given) {
  const ladder_product p = matrix_of(given);
  const uint32_t row = blockIdx.x * LADDER_LANES + threadIdx.x;
  if (row >= p.m) return;
  float sum = 0;
  for (uint32_t block = 0; block < p.k / BLOCK; block++) sum += block_product(p, row, block);
  store(p, row, sum);
}

/* ---- 2 [v2]: one thread block for each row ----------------------------------------------------------------------- */

/* k is split over the threads, 32 elements at a time. Every multiprocessor now has work for every shape, and
 * neighbouring threads read neighbouring addresses. A tree in shared memory adds up the sums of the threads. */
extern "C" __global__ void __launch_bounds__(LADDER_LANES)
    ladder_block_a_row(const __grid_constant__ ladder_product given) {
  __shared__ float sums[LADDER_LANES];
  const ladder_product p = matrix_of(given);
  float sum = 0;
  for (uint32_t chunk = threadIdx.x; chunk < p.k / (2 * BLOCK); chunk += LADDER_LANES)
    sum += block_product(p, blockIdx.x, 2 * chunk) + block_product(p, blockIdx.x, 2 * chunk + 1);
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (uint32_t half = LADDER_LANES / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) store(p, blockIdx.x, sums[0]);
}

/* ---- 3 [v3]: shuffles -------------------------------------------------------------------------------------------- */

/* Shuffles add up the sums of a warp. Only one number of each warp goes through shared memory, with one barrier instead
 * of seven. */
extern "C" __global__ void __launch_bounds__(LADDER_LANES)
    ladder_shuffle(const __grid_constant__ ladder_product given) {
  __shared__ float sums[LADDER_LANES / 32];
  const ladder_product p = matrix_of(given);
  float sum = 0;
  for (uint32_t chunk = threadIdx.x; chunk < p.k / (2 * BLOCK); chunk += LADDER_LANES)
    sum += block_product(p, blockIdx.x, 2 * chunk) + block_product(p, blockIdx.x, 2 * chunk + 1);
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x) return;
  for (uint32_t warp = 1; warp < LADDER_LANES / 32; warp++) sum += sums[warp];
  store(p, blockIdx.x, sum);
}

/* ---- 4 [v4]: four rows for each warp ----------------------------------------------------------------------------- */

/* A warp computes four neighbouring rows over all of k. It uses each loaded and converted element of the vector four
 * times. Loads have eight bytes, and nothing goes through shared memory. */
extern "C" __global__ void __launch_bounds__(THREADS) ladder_four_rows(const __grid_constant__ ladder_product given) {
  const ladder_product p = matrix_of(given);
  const uint32_t row = blockIdx.x * TILE_ROWS + threadIdx.x / 32 * LADDER_ROWS, blocks = p.k / BLOCK;
  const uint64_t *a = (const uint64_t *)p.a + (size_t)row * blocks, *b = (const uint64_t *)p.b;
  const uint8_t *a_scales = p.a_scales + (size_t)row * blocks;
  float sums[LADDER_ROWS] = {};
  for (uint32_t block = threadIdx.x % 32; block < blocks; block += 32) {
    __half2 vector[8];
    convert(b[block], vector);
    const float vector_scale = scale_of(p.b_scales[block]);
#pragma unroll
    for (int r = 0; r < LADDER_ROWS; r++)
      sums[r] += block_product(a[(size_t)r * blocks + block], vector) * vector_scale *
                 scale_of(a_scales[(size_t)r * blocks + block]);
  }
  store_rows(p, row, sums);
}

/* ---- 5 [v6_2_2]: the vector is converted once for a thread block ------------------------------------------------- */

/* A pass over a part of k: codes and scale factors of all rows, and the converted vector. */
struct pass {
  uint64_t codes[TILE_ROWS][32];
  float scales[TILE_ROWS][32], vector_scales[32];
  __half2 vector[8][32];
};

/* A thread's share of the loads of a pass: 16 elements of each of its warp's rows. The lanes of the first warp also
 * load 16 elements of the vector. */
struct brought {
  uint64_t codes[LADDER_ROWS], vector;
  uint8_t scales[LADDER_ROWS], vector_scale;
};

__device__ brought load_pass(const ladder_product &p, uint32_t row, uint32_t block) {
  brought loaded = {};
  const size_t blocks = p.k / BLOCK;
#pragma unroll
  for (int r = 0; r < LADDER_ROWS; r++) {
    loaded.codes[r] = ((const uint64_t *)p.a)[(row + r) * blocks + block];
    loaded.scales[r] = p.a_scales[(row + r) * blocks + block];
  }
  if (threadIdx.x >= 32) return loaded;
  loaded.vector = ((const uint64_t *)p.b)[block];
  loaded.vector_scale = p.b_scales[block];
  return loaded;
}

__device__ void store_pass(pass &to, const brought &loaded) {
  const uint32_t lane = threadIdx.x % 32, row = threadIdx.x / 32 * LADDER_ROWS;
#pragma unroll
  for (int r = 0; r < LADDER_ROWS; r++) {
    to.codes[row + r][lane] = loaded.codes[r];
    to.scales[row + r][lane] = scale_of(loaded.scales[r]);
  }
  if (threadIdx.x >= 32) return;
  __half2 pairs[8];
  convert(loaded.vector, pairs);
  to.vector_scales[lane] = scale_of(loaded.vector_scale);
#pragma unroll
  for (int i = 0; i < 8; i++) to.vector[i][lane] = pairs[i];
}

__device__ void multiply_pass(const pass &from, float (&sums)[LADDER_ROWS]) {
  const uint32_t lane = threadIdx.x % 32, row = threadIdx.x / 32 * LADDER_ROWS;
  __half2 vector[8];
#pragma unroll
  for (int i = 0; i < 8; i++) vector[i] = from.vector[i][lane];
#pragma unroll
  for (int r = 0; r < LADDER_ROWS; r++)
    sums[r] += block_product(from.codes[row + r][lane], vector) * from.vector_scales[lane] * from.scales[row + r][lane];
}

/* Codes, scale factors and the vector go through shared memory. The vector is converted once for 32 rows instead of
 * once for four. The price are two barriers for each pass; no load is in flight between them. */
extern "C" __global__ void __launch_bounds__(THREADS) ladder_staged(const __grid_constant__ ladder_product given) {
  __shared__ pass staged;
  const ladder_product p = matrix_of(given);
  const uint32_t row = blockIdx.x * TILE_ROWS + threadIdx.x / 32 * LADDER_ROWS;
  float sums[LADDER_ROWS] = {};
  for (uint32_t first = 0; first < p.k; first += PASS) {
    store_pass(staged, load_pass(p, row, first / BLOCK + threadIdx.x % 32));
    __syncthreads();
    multiply_pass(staged, sums);
    __syncthreads();
  }
  store_rows(p, row, sums);
}

/* ---- 6 [v7]: double buffering ------------------------------------------------------------------------------------ */

/* Shared memory holds two passes. A thread issues the loads of the next pass before the products of this one, and keeps
 * the loaded values in registers until these products are done. Memory and arithmetic overlap, and one barrier for each
 * pass is enough. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ladder_double_buffer(const __grid_constant__ ladder_product given) {
  __shared__ pass staged[2];
  const ladder_product p = matrix_of(given);
  const uint32_t row = blockIdx.x * TILE_ROWS + threadIdx.x / 32 * LADDER_ROWS, lane = threadIdx.x % 32;
  const uint32_t passes = p.k / PASS;
  float sums[LADDER_ROWS] = {};
  brought next = load_pass(p, row, lane);
  for (uint32_t at = 0; at < passes; at++) {
    store_pass(staged[at % 2], next);
    __syncthreads();
    if (at + 1 < passes) next = load_pass(p, row, (at + 1) * 32 + lane);
    multiply_pass(staged[at % 2], sums);
  }
  store_rows(p, row, sums);
}

/* ---- 7 [v7_3]: a ring of asynchronous copies --------------------------------------------------------------------- */

constexpr uint32_t RING = 5;

/* A pass in the format of global memory. */
struct raw_pass {
  uint64_t codes[TILE_ROWS][32], vector[32];
  uint8_t scales[TILE_ROWS][32], vector_scales[32];
};

template <uint32_t Bytes> __device__ void copy_async(void *shared, const void *global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"((uint32_t)__cvta_generic_to_shared(shared)),
               "l"(global), "n"(Bytes)
               : "memory");
}

/* Every warp copies its own rows; the first warp also copies the vector. Each pass commits one group; after the last
 * pass the groups are empty. */
__device__ void copy_pass(raw_pass &to, const ladder_product &p, uint32_t first_row, uint32_t at) {
  const uint32_t lane = threadIdx.x % 32, row = threadIdx.x / 32 * LADDER_ROWS;
  const size_t blocks = p.k / BLOCK, block = at * 32;
  if (at < p.k / PASS) {
#pragma unroll
    for (int r = 0; r < LADDER_ROWS; r++)
      copy_async<8>(&to.codes[row + r][lane], (const uint64_t *)p.a + (first_row + row + r) * blocks + block + lane);
    const uint32_t r = lane / 8, four = lane % 8 * 4; /* eight lanes copy the 32 scale factors of a row */
    copy_async<4>(&to.scales[row + r][four], p.a_scales + (first_row + row + r) * blocks + block + four);
    if (row == 0) copy_async<8>(&to.vector[lane], (const uint64_t *)p.b + block + lane);
    if (row == 0 && lane < 8) copy_async<4>(&to.vector_scales[four], p.b_scales + block + four);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Asynchronous copies need no registers. Four passes are in flight while one is multiplied, which puts more bytes in
 * flight. The copied codes have to be converted at each use. */
extern "C" __global__ void __launch_bounds__(THREADS) ladder_ring(const __grid_constant__ ladder_product given) {
  __shared__ __align__(16) raw_pass ring[RING];
  const ladder_product p = matrix_of(given);
  const uint32_t first_row = blockIdx.x * TILE_ROWS, lane = threadIdx.x % 32, row = threadIdx.x / 32 * LADDER_ROWS;
  float sums[LADDER_ROWS] = {};
  for (uint32_t at = 0; at < RING - 1; at++) copy_pass(ring[at], p, first_row, at);
  for (uint32_t at = 0; at < p.k / PASS; at++) {
    asm volatile("cp.async.wait_group %0;" ::"n"(RING - 2) : "memory");
    __syncthreads(); /* the vector has arrived, and no warp reads the previous pass any more */
    copy_pass(ring[(at + RING - 1) % RING], p, first_row, at + RING - 1);
    const raw_pass &now = ring[at % RING];
    __half2 vector[8];
    convert(now.vector[lane], vector);
    const float vector_scale = scale_of(now.vector_scales[lane]);
#pragma unroll
    for (int r = 0; r < LADDER_ROWS; r++)
      sums[r] += block_product(now.codes[row + r][lane], vector) * vector_scale * scale_of(now.scales[row + r][lane]);
  }
  store_rows(p, first_row + row, sums);
}

/* ---- 8 [final]: bulk copies and the chip's own conversions ------------------------------------------------------- */

#if __CUDA_ARCH__ >= 900

/* Two times 16 elements for each lane, in the format of global memory. */
struct stage {
  uint4 codes[TILE_ROWS][32], vector[32];
  uint16_t scales[TILE_ROWS][32], vector_scales[32];
};
static_assert(sizeof(stage) == LADDER_STAGE_BYTES, "the host asks for as much shared memory");

/* Converts 16 elements to f16. sm_100a has an instruction for it. On other chips sign and magnitude are moved to their
 * bits of f16, which gives 2^-14 times the number, also for subnormal codes; sums of products stay exact. The two ways
 * produce different orders of the pairs. The vector has the same order. */
__device__ void convert_natively(uint32_t low, uint32_t high, __half2 (&pairs)[8]) {
  uint32_t words[8];
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const uint32_t codes = (i < 4 ? low : high) >> (__CUDA_ARCH__ >= 1000 ? 8 : 4) * (i % 4);
#if __CUDA_ARCH__ >= 1000
    asm("{.reg .b8 byte<4>; mov.b32 {byte0, byte1, byte2, byte3}, %1; cvt.rn.f16x2.e2m1x2 %0, byte0;}"
        : "=r"(words[i])
        : "r"(codes));
#else
    words[i] = (codes & 0x00080008) << 12 | (codes & 0x00070007) << 9;
#endif
  }
  memcpy(pairs, words, sizeof words);
}
constexpr float CONVERTED = __CUDA_ARCH__ >= 1000 ? 1 : 16384; /* number / converted number */

__device__ float2 scales_of(uint32_t two) {
  return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)two, __NV_E4M3)));
}

__device__ uint32_t shared_address(const void *pointer) { return (uint32_t)__cvta_generic_to_shared(pointer); }

__device__ void copy_bulk(void *shared, const void *global, uint32_t bytes, const uint64_t *barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(shared)),
               "l"(global), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

/* Called by the first warp. Each lane issues the copies of one row: its codes and its scale factors. With a tensor map
 * one copy would do, but the host would have to encode the map. */
__device__ void copy_stage(stage &to, const uint64_t *barrier, const ladder_product &p, uint32_t first_row,
                           uint32_t at) {
  const uint32_t lane = threadIdx.x % 32;
  const size_t row = first_row + lane;
  if (lane == 0)
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"((uint32_t)sizeof(stage))
                 : "memory");
  __syncwarp();
  copy_bulk(to.codes[lane], p.a + row * (p.k / 2) + at * sizeof to.vector, sizeof to.vector, barrier);
  copy_bulk(to.scales[lane], p.a_scales + row * (p.k / BLOCK) + at * sizeof to.vector_scales, sizeof to.vector_scales,
            barrier);
  if (lane == 0) copy_bulk(to.vector, p.b + at * sizeof to.vector, sizeof to.vector, barrier);
  if (lane == 1)
    copy_bulk(to.vector_scales, p.b_scales + at * sizeof to.vector_scales, sizeof to.vector_scales, barrier);
}

__device__ void wait_for(const uint64_t *barrier, uint32_t phase) {
  asm volatile("{.reg .pred done;\n"
               "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
               "@!done bra again;}" ::"r"(shared_address(barrier)),
               "r"(phase)
               : "memory");
}

__device__ void multiply_stage(const stage &now, float (&sums)[LADDER_ROWS]) {
  const uint32_t lane = threadIdx.x % 32, row = threadIdx.x / 32 * LADDER_ROWS;
  const uint4 x = now.vector[lane];
  const float2 x_scales = scales_of(now.vector_scales[lane]);
  __half2 first[8], second[8], pairs[8];
  convert_natively(x.x, x.y, first);
  convert_natively(x.z, x.w, second);
#pragma unroll
  for (int i = 0; i < 8; i++) {
    first[i] = __hmul2(first[i], __float2half2_rn(CONVERTED));
    second[i] = __hmul2(second[i], __float2half2_rn(CONVERTED));
  }
#pragma unroll
  for (int r = 0; r < LADDER_ROWS; r++) {
    const uint4 a = now.codes[row + r][lane];
    const float2 scales = scales_of(now.scales[row + r][lane]);
    convert_natively(a.x, a.y, pairs);
    sums[r] += pairs_product(pairs, first) * (scales.x * x_scales.x * CONVERTED);
    convert_natively(a.z, a.w, pairs);
    sums[r] += pairs_product(pairs, second) * (scales.y * x_scales.y * CONVERTED);
  }
}

/* Bulk copies of one warp fetch whole rows, and a barrier counts their bytes. Other threads compute no addresses, and a
 * lane reads 16 bytes at once. One to four instructions convert two codes; CUDA's own conversion takes dozens on a chip
 * without an instruction for it, and bounds all previous steps. */
extern "C" __global__ void __launch_bounds__(THREADS) ladder_bulk(const __grid_constant__ ladder_product given) {
  extern __shared__ __align__(128) unsigned char shared[];
  stage *const stages = (stage *)(shared + LADDER_BARRIER_BYTES);
  uint64_t *const barriers = (uint64_t *)shared;
  const ladder_product p = matrix_of(given);
  const uint32_t first_row = blockIdx.x * TILE_ROWS, count = p.k / (2 * PASS);
  const bool copies = threadIdx.x < 32;
  float sums[LADDER_ROWS] = {};
  if (threadIdx.x == 0)
    for (int i = 0; i < LADDER_STAGES; i++)
      asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(&barriers[i])) : "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  for (uint32_t at = 0; copies && at < LADDER_STAGES && at < count; at++)
    copy_stage(stages[at], &barriers[at], p, first_row, at);
  for (uint32_t at = 0; at < count; at++) {
    const uint32_t i = at % LADDER_STAGES;
    wait_for(&barriers[i], at / LADDER_STAGES % 2);
    multiply_stage(stages[i], sums);
    __syncthreads(); /* no warp reads the stage any more */
    if (copies && at + LADDER_STAGES < count) copy_stage(stages[i], &barriers[i], p, first_row, at + LADDER_STAGES);
  }
  store_rows(p, first_row + threadIdx.x / 32 * LADDER_ROWS, sums);
}

#endif
