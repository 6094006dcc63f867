/* gemv.cu - y = scale * W x for 1 to 16 vectors: f16, bf16, e4m3 or NVFP4 weights.
 *
 * A block is four warps, which have nothing in common. A warp computes two or four rows (gemv.h) and, where k is cut, a
 * slice of them. Its lanes stride over k, each reading 16 bytes of every row, one step ahead of the arithmetic, and the
 * same elements of one or four vectors, which come from L1. Weights become fp32 exactly. NVFP4 times 16-bit vectors:
 * sixteen products are added before the scale is applied, once a block. NVFP4 times NVFP4: twice the values are
 * integers up to 12, so a block is a dot product of bytes in exact integers (dp4a). A lane's order, then the butterfly
 * over lanes, then the slices: the same for any number of vectors.
 *
 * Bound by the reads of weights. No shared memory; registers on sm_90a: 40 to 46 with one vector and 16- or 8-bit
 * weights, 107 to 122 with NVFP4, 94 to 154 with four vectors. rondo_gemv_scalar is for what is not aligned: one row a
 * warp, an element or a block a lane, nothing in flight ahead. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "../common/element.cuh"
#include "../common/launch.cuh"
#include "gemv.h"

using e4m3 = element<RONDO_E4M3>;
using nvfp4 = element<RONDO_NVFP4>;

template <typename T> struct bits_of;
template <> struct bits_of<__half> { static constexpr uint32_t value = 16; };
template <> struct bits_of<__nv_bfloat16> { static constexpr uint32_t value = 16; };
template <> struct bits_of<e4m3> { static constexpr uint32_t value = 8; };
template <> struct bits_of<nvfp4> { static constexpr uint32_t value = 4; };

template <typename A, typename B> constexpr bool same = false;
template <typename A> constexpr bool same<A, A> = true;

/* ---- Number formats --------------------------------------------------------------------------------------------- */

/* Each nibble of the selector's low half picks one of eight bytes; its top bit asks for copies of that byte's sign
 * instead (PTX ISA, prmt). __byte_perm does not promise the latter. */
__device__ __forceinline__ uint32_t permute(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
  return result;
}

__device__ __forceinline__ float2 f32_of_half_pair(uint32_t pair) {
  return __half22float2(*reinterpret_cast<__half2 *>(&pair));
}

__device__ __forceinline__ float2 f32_of_bf16_pair(uint32_t pair) {
  return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

/* Two e4m3 numbers, exact; NaN stays NaN. */
__device__ __forceinline__ float2 f32_of_e4m3_pair(uint32_t pair) {
  __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)pair, __NV_E4M3);
  return __half22float2(__half2(halves));
}

/* Two bytes of `bytes`, as the high bytes of two halves, times 2^14. */
template <uint32_t Selector> __device__ __forceinline__ float2 f32_of_high_bytes(uint32_t bytes) {
  uint32_t pair = permute(bytes, 0, Selector);
  return __half22float2(__hmul2(*reinterpret_cast<__half2 *>(&pair), __half2half2(__ushort_as_half(0x7400))));
}

/* Eight e2m1 codes. Bits s|eem at 15|11..9 of a half are the value times 2^-14, subnormal 0.5 included (the trick is
 * Marlin's, vllm csrc/quantization/gptq_marlin/dequant.h), and all of them lie in the half's high byte. */
__device__ __forceinline__ void decode_e2m1(uint32_t codes, float (&out)[8]) {
  uint32_t even = ((codes << 4) & 0x80808080u) | ((codes << 1) & 0x0e0e0e0eu);
  uint32_t odd = (codes & 0x80808080u) | ((codes >> 3) & 0x0e0e0e0eu);
  float2 even_low = f32_of_high_bytes<0x1404>(even), even_high = f32_of_high_bytes<0x3424>(even);
  float2 odd_low = f32_of_high_bytes<0x1404>(odd), odd_high = f32_of_high_bytes<0x3424>(odd);
  out[0] = even_low.x, out[2] = even_low.y, out[4] = even_high.x, out[6] = even_high.y;
  out[1] = odd_low.x, out[3] = odd_low.y, out[5] = odd_high.x, out[7] = odd_high.y;
}

/* Twice the magnitudes of four e2m1 codes as bytes: those of the codes without the sign bit, zero for the others. A
 * set sign bit makes prmt copy the table's sign, which is 0. */
__device__ __forceinline__ uint32_t magnitudes(uint32_t codes) { return permute(0x03020100u, 0x0c080604u, codes); }

/* ---- Loads ------------------------------------------------------------------------------------------------------ */

struct words {
  uint32_t word[4];
};

__device__ __forceinline__ words load_words(const unsigned char *address) {
  uint4 loaded = __ldg((const uint4 *)address);
  return {{loaded.x, loaded.y, loaded.z, loaded.w}};
}

/* Weights are read once: past L1. */
__device__ __forceinline__ words load_weights(const unsigned char *address) {
  words loaded;
  asm("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(loaded.word[0]), "=r"(loaded.word[1]), "=r"(loaded.word[2]), "=r"(loaded.word[3])
      : "l"(address));
  return loaded;
}

/* Elements 8 part .. 8 part + 7 of 16 loaded bytes. */
template <typename T> __device__ __forceinline__ void decode(const words &loaded, int part, float (&out)[8]) {
  if constexpr (same<T, nvfp4>) {
    decode_e2m1(loaded.word[part], out);
  } else if constexpr (same<T, e4m3>) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float2 pair = f32_of_e4m3_pair((loaded.word[2 * part + i / 2] >> (i % 2 * 16)) & 0xffffu);
      out[2 * i] = pair.x, out[2 * i + 1] = pair.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float2 pair = same<T, __half> ? f32_of_half_pair(loaded.word[i]) : f32_of_bf16_pair(loaded.word[i]);
      out[2 * i] = pair.x, out[2 * i + 1] = pair.y;
    }
  }
}

/* What a lane reads of one row in one step: 16 bytes and, for nvfp4, the scales of their two blocks. */
template <typename T> struct chunk {
  static_assert(GEMV_LOAD_BYTES == sizeof(uint4) && GEMV_BLOCK == 16, "what follows is written for");
  static constexpr uint32_t elements = 8 * GEMV_LOAD_BYTES / bits_of<T>::value;
  words data;
  uint32_t scales;
};

template <typename T>
__device__ __forceinline__ void load_scales(chunk<T> &chunk, const unsigned char *scales, uint32_t element) {
  if constexpr (same<T, nvfp4>) chunk.scales = __ldg((const uint16_t *)(scales + element / GEMV_BLOCK));
}

/* ---- Results ---------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ float sum_of_warp(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

__device__ __forceinline__ void store_result(const gemv_parameters &p, uint32_t batch, uint32_t vector, uint32_t row,
                                             float sum) {
  if (p.weight_dtype == RONDO_E4M3 && p.weight_scales)
    sum *= __ldg((const float *)p.weight_scales + batch * p.weight_scale_batch + row);
  sum *= p.scale;
  int64_t element = batch * p.out_batch + vector * p.out_row + row;
  if (p.out_dtype == RONDO_F16)
    ((__half *)p.out)[element] = __float2half_rn(sum);
  else if (p.out_dtype == RONDO_BF16)
    ((__nv_bfloat16 *)p.out)[element] = __float2bfloat16_rn(sum);
  else
    ((float *)p.out)[element] = sum;
}

__device__ __forceinline__ void store_sum(const gemv_parameters &p, uint32_t batch, uint32_t vector, uint32_t row,
                                          float sum) {
  if (p.slices == 1) {
    store_result(p, batch, vector, row, sum);
  } else {
    uint64_t set = (uint64_t)blockIdx.y * p.batch + batch;
    p.partials[(set * p.count + vector) * p.m + row] = sum;
  }
}

/* ---- 16-byte loads ---------------------------------------------------------------------------------------------- */

/* sums += the products of a chunk of each row with 16-bit vectors. x[t] is where vector t's elements begin. */
template <typename W, typename V, int Vectors, int Rows>
__device__ __forceinline__ void multiply(const chunk<W> (&weights)[Rows], const unsigned char *const (&x)[Vectors],
                                         float (&sums)[Rows][Vectors]) {
  constexpr bool blocks = same<W, nvfp4>;
  float partial[Rows][Vectors];
#pragma unroll
  for (int part = 0; part < (int)chunk<W>::elements / 8; part++) {
    float vector[Vectors][8];
#pragma unroll
    for (int t = 0; t < Vectors; t++) decode<V>(load_words(x[t] + 16 * part), 0, vector[t]);
#pragma unroll
    for (int r = 0; r < Rows; r++) {
      float weight[8];
      decode<W>(weights[r].data, part, weight);
      float2 scales = blocks && part % 2 ? f32_of_e4m3_pair(weights[r].scales) : float2();
#pragma unroll
      for (int t = 0; t < Vectors; t++) {
        float sum = !blocks ? sums[r][t] : part % 2 ? partial[r][t] : 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) sum = __fmaf_rn(weight[i], vector[t][i], sum);
        if (!blocks)
          sums[r][t] = sum;
        else if (part % 2 == 0)
          partial[r][t] = sum;
        else
          sums[r][t] = __fmaf_rn(sum, part == 1 ? scales.x : scales.y, sums[r][t]);
      }
    }
  }
}

/* NVFP4 with NVFP4. Integers are four times the products' sum, at most 2304; scales have four bits each. */
template <int Vectors, int Rows>
__device__ __forceinline__ void multiply(const chunk<nvfp4> (&weights)[Rows], const chunk<nvfp4> (&vectors)[Vectors],
                                         float (&sums)[Rows][Vectors]) {
#pragma unroll
  for (int block = 0; block < 2; block++) {
    int vector[Vectors][4];
    float vector_scale[Vectors];
#pragma unroll
    for (int t = 0; t < Vectors; t++) {
      float2 scales = f32_of_e4m3_pair(vectors[t].scales);
      vector_scale[t] = 0.25f * (block ? scales.y : scales.x);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        uint32_t codes = vectors[t].data.word[2 * block + i / 2] >> (i % 2 * 16);
        vector[t][i] = (int)__vsub4(magnitudes(codes), magnitudes(codes ^ 0x8888u));
      }
    }
#pragma unroll
    for (int r = 0; r < Rows; r++) {
      int positive[Vectors] = {}, negative[Vectors] = {};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        uint32_t codes = weights[r].data.word[2 * block + i / 2] >> (i % 2 * 16);
        uint32_t above = magnitudes(codes), below = magnitudes(codes ^ 0x8888u);
#pragma unroll
        for (int t = 0; t < Vectors; t++) {
          positive[t] = __dp4a((int)above, vector[t][i], positive[t]);
          negative[t] = __dp4a((int)below, vector[t][i], negative[t]);
        }
      }
      float2 scales = f32_of_e4m3_pair(weights[r].scales);
#pragma unroll
      for (int t = 0; t < Vectors; t++)
        sums[r][t] =
            __fmaf_rn((float)(positive[t] - negative[t]), (block ? scales.y : scales.x) * vector_scale[t], sums[r][t]);
    }
  }
}

template <typename W> __device__ __forceinline__ uint64_t bytes_of(uint32_t elements) {
  return (uint64_t)elements * bits_of<W>::value / 8;
}

template <typename W, int Rows>
__device__ __forceinline__ void load_rows(const gemv_parameters &p, const unsigned char *rows,
                                          const unsigned char *scales, uint32_t element, chunk<W> (&out)[Rows]) {
#pragma unroll
  for (int r = 0; r < Rows; r++) {
    out[r].data = load_weights(rows + r * p.weight_row + bytes_of<W>(element));
    load_scales(out[r], scales + r * p.weight_scale_row, element);
  }
}

/* Rows rows from `row` and Vectors vectors from `first_vector` on: the sums over this block's slice, alike in all
 * lanes. */
template <typename W, typename V, int Vectors, int Rows>
__device__ __forceinline__ void sum_slice(const gemv_parameters &p, uint32_t batch, uint32_t row, uint32_t first_vector,
                                          float (&sums)[Rows][Vectors]) {
  constexpr uint32_t elements = chunk<W>::elements, step = 32 * elements;
  const unsigned char *rows = (const unsigned char *)p.weights + batch * p.weight_batch + row * p.weight_row;
  const unsigned char *row_scales =
      (const unsigned char *)p.weight_scales + batch * p.weight_scale_batch + row * p.weight_scale_row;
  const unsigned char *vectors[Vectors], *vector_scales[Vectors];
#pragma unroll
  for (int t = 0; t < Vectors; t++) {
    uint32_t vector = min(first_vector + t, p.count - 1); /* past the end: computed again and not stored */
    vectors[t] = (const unsigned char *)p.vectors + batch * p.vector_batch + vector * p.vector_row;
    vector_scales[t] =
        (const unsigned char *)p.vector_scales + batch * p.vector_scale_batch + vector * p.vector_scale_row;
  }
  const uint32_t begin = blockIdx.y * p.slice, end = min(p.k - begin, p.slice) + begin;
  uint32_t element = begin + threadIdx.x % 32 * elements;
  chunk<W> next[Rows];
  if (element < end) load_rows<W>(p, rows, row_scales, element, next);
#pragma unroll 1
  for (; element < end; element += step) {
    chunk<W> weights[Rows];
#pragma unroll
    for (int r = 0; r < Rows; r++) weights[r] = next[r];
    if (element + step < end) load_rows<W>(p, rows, row_scales, element + step, next);
    if constexpr (same<V, nvfp4>) {
      chunk<V> x[Vectors];
#pragma unroll
      for (int t = 0; t < Vectors; t++) {
        x[t].data = load_words(vectors[t] + bytes_of<V>(element));
        load_scales(x[t], vector_scales[t], element);
      }
      multiply<Vectors, Rows>(weights, x, sums);
    } else {
      const unsigned char *x[Vectors];
#pragma unroll
      for (int t = 0; t < Vectors; t++) x[t] = vectors[t] + bytes_of<V>(element);
      multiply<W, V, Vectors, Rows>(weights, x, sums);
    }
  }
#pragma unroll
  for (int r = 0; r < Rows; r++)
#pragma unroll
    for (int t = 0; t < Vectors; t++) sums[r][t] = sum_of_warp(sums[r][t]);
}

/* The last warp of a matrix moves back to have all its rows, and leaves out those that the one before it has. There are
 * at least Rows rows, or a single one with a stride of 0 (gemv_select.c). */
template <typename W, typename V, int Vectors, int Rows>
__device__ __forceinline__ void gemv(const gemv_parameters &p) {
  const uint32_t warp = blockIdx.x * GEMV_WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp >= p.warps) return;
  const uint32_t batch = warp / p.row_groups, own = (warp - batch * p.row_groups) * Rows;
  const uint32_t row = p.m < Rows ? 0 : min(own, p.m - Rows);
#pragma unroll 1
  for (uint32_t vector = 0; vector < p.count; vector += Vectors) {
    float sums[Rows][Vectors] = {};
    sum_slice<W, V, Vectors, Rows>(p, batch, row, vector, sums);
    float mine = 0; /* lane r Vectors + t stores row r of vector t */
#pragma unroll
    for (int r = 0; r < Rows; r++)
#pragma unroll
      for (int t = 0; t < Vectors; t++)
        if (lane == r * Vectors + t) mine = sums[r][t];
    const uint32_t my_row = row + lane / Vectors, my_vector = vector + lane % Vectors;
    if (lane < Rows * Vectors && my_row >= own && my_row < p.m && my_vector < p.count)
      store_sum(p, batch, my_vector, my_row, mine);
    if (Vectors == 1) break; /* chosen for a single vector only */
  }
}

#define DEFINE(chips, parameters, name, threads, W, V, rows, vectors, blocks)                                          \
  DEFINE_KERNEL(chips, parameters, name, threads, blocks, gemv<element<W>, element<V>, vectors, rows>)
GEMV_KERNELS(DEFINE)

/* ---- Any alignment ---------------------------------------------------------------------------------------------- */

__device__ __forceinline__ float load_element(uint32_t dtype, const unsigned char *row, uint32_t element) {
  if (dtype == RONDO_F16) return __half2float(__ldg((const __half *)row + element));
  if (dtype == RONDO_BF16) return __bfloat162float(__ldg((const __nv_bfloat16 *)row + element));
  return f32_of_e4m3_pair(__ldg(row + element)).x;
}

/* Eight elements; a whole word of codes for nvfp4. */
__device__ __forceinline__ void load_eight(uint32_t dtype, const unsigned char *row, uint32_t element,
                                           float (&out)[8]) {
  if (dtype == RONDO_NVFP4) {
    uint32_t codes = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) codes |= (uint32_t)__ldg(row + element / 2 + i) << (8 * i);
    decode_e2m1(codes, out);
  } else {
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = load_element(dtype, row, element + i);
  }
}

__device__ __forceinline__ float dot_of_block(const gemv_parameters &p, const unsigned char *row,
                                              const unsigned char *vector, uint32_t element) {
  float sum = 0;
#pragma unroll
  for (int part = 0; part < GEMV_BLOCK; part += 8) {
    float weight[8], x[8];
    load_eight(p.weight_dtype, row, element + part, weight);
    load_eight(p.vector_dtype, vector, element + part, x);
#pragma unroll
    for (int i = 0; i < 8; i++) sum = __fmaf_rn(weight[i], x[i], sum);
  }
  return sum;
}

__device__ __forceinline__ void gemv_scalar(const gemv_parameters &p) {
  const uint32_t warp = blockIdx.x * GEMV_WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp >= p.warps) return;
  const uint32_t batch = warp / p.row_groups, row = warp - batch * p.row_groups; /* groups of one row */
  const unsigned char *weights = (const unsigned char *)p.weights + batch * p.weight_batch + row * p.weight_row;
  const unsigned char *weight_scales =
      (const unsigned char *)p.weight_scales + batch * p.weight_scale_batch + row * p.weight_scale_row;
  const uint32_t begin = blockIdx.y * p.slice, end = min(p.k - begin, p.slice) + begin;
  for (uint32_t v = 0; v < p.count; v++) {
    const unsigned char *vector = (const unsigned char *)p.vectors + batch * p.vector_batch + v * p.vector_row;
    const unsigned char *vector_scales =
        (const unsigned char *)p.vector_scales + batch * p.vector_scale_batch + v * p.vector_scale_row;
    float sum = 0;
    if (p.weight_dtype == RONDO_NVFP4) {
      for (uint32_t element = begin + lane * GEMV_BLOCK; element < end; element += 32 * GEMV_BLOCK) {
        float scale = f32_of_e4m3_pair(__ldg(weight_scales + element / GEMV_BLOCK)).x;
        if (p.vector_dtype == RONDO_NVFP4) scale *= f32_of_e4m3_pair(__ldg(vector_scales + element / GEMV_BLOCK)).x;
        sum = __fmaf_rn(dot_of_block(p, weights, vector, element), scale, sum);
      }
    } else {
      for (uint32_t element = begin + lane; element < end; element += 32)
        sum = __fmaf_rn(load_element(p.weight_dtype, weights, element), load_element(p.vector_dtype, vector, element),
                        sum);
    }
    sum = sum_of_warp(sum);
    if (lane == 0) store_sum(p, batch, v, row, sum);
  }
}

/* ---- The slices ------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ void reduce(const gemv_parameters &p) {
  const uint32_t vectors = p.batch * p.count, results = vectors * p.m;
  const uint32_t index = blockIdx.x * GEMV_REDUCE_THREADS + threadIdx.x;
  if (index >= results) return;
  float sum = 0;
  for (uint32_t slice = 0; slice < p.slices; slice++) sum += p.partials[(uint64_t)slice * results + index];
  const uint32_t vector = index / p.m, row = index - vector * p.m, batch = vector / p.count;
  store_result(p, batch, vector - batch * p.count, row, sum);
}

GEMV_OTHER_KERNELS(DEFINE_KERNEL)
