/* gemv_vectors.cuh - vectors as operand B of the tensor cores: loads, RMS norm, conversion.
 *
 * bf16 vectors beside 4- or 8-bit weights become f16 by a power of two of the largest magnitude of each quad's part,
 * which the sums take back. */
#ifndef RONDO_GEMV_VECTORS_CUH
#define RONDO_GEMV_VECTORS_CUH

#include "gemv_addresses.cuh"
#include "gemv_operands.cuh"

/* This lane's part of one vector, as loaded. */
template <rondo_dtype W, rondo_dtype V, int Slices> struct raw_vector {
  static constexpr int eights = V == RONDO_NVFP4 ? 1 : elements_per_load<W> / 8;
  words loaded[Slices][eights];
  uint32_t scales[V == RONDO_NVFP4 ? Slices : 1];
};

template <rondo_dtype W, rondo_dtype V, int Slices, int Slice>
__device__ __forceinline__ void load_raw(const gemv_parameters &p, uint32_t vector, uint32_t element,
                                         raw_vector<W, V, Slices> &raw) {
  const vector_place<V> from(p, min(vector, p.count - 1), element); /* columns without a vector repeat the last */
#pragma unroll
  for (int s = 0; s < Slices; s++) {
    const bool in = element + Slice * s < p.k;
#pragma unroll
    for (int i = 0; i < raw.eights; i++) {
      raw.loaded[s][i] = words();
      if (in) raw.loaded[s][i] = from.load(Slice * s + 8 * i);
    }
    if constexpr (V == RONDO_NVFP4) {
      raw.scales[s] = 0;
      if (in) raw.scales[s] = from.load_scales(p, Slice * s);
    }
  }
}

/* Of a lane's part of the norm, which a later load finds in the multiprocessor's cache. No registers are kept for it:
 * the words returned are of use to keep_early only. */
template <rondo_dtype W, rondo_dtype V, int Slices, int Slice>
__device__ __forceinline__ uint32_t touch_norm(const gemv_parameters &p, uint32_t element) {
  uint32_t all = 0;
  if constexpr (V != RONDO_NVFP4)
    if (p.early & GEMV_NORM_EARLY) {
#pragma unroll
      for (int s = 0; s < Slices; s++)
#pragma unroll
        for (int i = 0; i < raw_vector<W, V, Slices>::eights; i++) {
          const uint32_t at = min(element + Slice * s, p.k - 8 * raw_vector<W, V, Slices>::eights) + 8 * i;
          all ^= load_settled((const unsigned char *)p.norm + (uint64_t)at * 2);
        }
    }
  return all;
}

/* RMS norm but for the common factor, which the sums get: x * norm. Returns the sum of this lane's squares. Behind
 * branches each load is waited for by itself; AtOnce all come first, for kernels that have the registers. */
template <rondo_dtype W, rondo_dtype V, int Slices, int Slice, bool AtOnce>
__device__ __forceinline__ float normalise(const gemv_parameters &p, uint32_t element, raw_vector<W, V, Slices> &raw) {
  words norm[Slices][raw.eights];
  const auto load_norm = [&](int s, int i) {
    const uint32_t at = element + Slice * s;
    norm[s][i] = words();
    if (p.norm && at < p.k) norm[s][i] = load_vector((const unsigned char *)p.norm + (uint64_t)at * 2 + 16 * i);
  };
#pragma unroll
  for (int s = 0; s < (AtOnce ? Slices : 0); s++)
#pragma unroll
    for (int i = 0; i < raw.eights; i++) load_norm(s, i);
  float squares = 0;
#pragma unroll
  for (int s = 0; s < Slices; s++)
#pragma unroll
    for (int i = 0; i < raw.eights; i++) {
      uint32_t(&word)[4] = raw.loaded[s][i].word;
      if (!AtOnce) load_norm(s, i);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float2 x = f32_of_pair<V>(word[j]), factor = f32_of_pair<V>(norm[s][i].word[j]);
        squares = __fmaf_rn(x.x, x.x, squares);
        squares = __fmaf_rn(x.y, x.y, squares);
        if (!p.norm) continue;
        if constexpr (V == RONDO_BF16) {
          word[j] = bits_of(__floats2bfloat162_rn(x.x * factor.x, x.y * factor.y));
        } else {
          word[j] = half_pair(x.x * factor.x, x.y * factor.y);
        }
      }
    }
  return squares;
}

/* As operand B, in the order of decode_eight. Returns what the sums are to be multiplied with. */
template <rondo_dtype W, rondo_dtype V, int Slices, bool Bf16 = W == RONDO_BF16>
__device__ __forceinline__ float convert_vector(const raw_vector<W, V, Slices> &raw,
                                                uint32_t (&out)[Slices][elements_per_load<W> / 2]) {
  float correction = W == RONDO_NVFP4 ? 1 / (Bf16 ? nvfp4_factor_bf16 : nvfp4_factor) : 1.0f;
  if constexpr (V == RONDO_NVFP4) {
#pragma unroll
    for (int s = 0; s < Slices; s++) {
      const __half2 pair = block_scales(raw.scales[s]);
#pragma unroll
      for (int w = 0; w < 4; w++) {
        decode_e2m1(raw.loaded[s][0].word[w], &out[s][4 * w]);
        const __half2 scale = w < 2 ? __low2half2(pair) : __high2half2(pair);
#pragma unroll
        for (int j = 0; j < 4; j++) {
          __half2 value = __hmul2(half2_of(out[s][4 * w + j]), scale);
          if (nvfp4_factor != 1) value = __hmul2(value, half2_of(TWO_TO_THE_7));
          out[s][4 * w + j] = bits_of(value);
        }
      }
    }
  } else if constexpr (V == RONDO_F16 || Bf16) {
#pragma unroll
    for (int s = 0; s < Slices; s++)
#pragma unroll
      for (int i = 0; i < raw.eights; i++) {
        const uint32_t(&word)[4] = raw.loaded[s][i].word;
        uint32_t *eight = &out[s][4 * i];
        if constexpr (W == RONDO_NVFP4 && Bf16) {
          order_as_bf16(word, eight);
        } else if constexpr (W == RONDO_NVFP4) {
          order_as_e2m1(word, eight);
        } else {
#pragma unroll
          for (int j = 0; j < 4; j++) eight[j] = word[j];
        }
      }
  } else {
    uint32_t largest = 0; /* two maxima, of magnitudes as bits */
#pragma unroll
    for (int s = 0; s < Slices; s++)
#pragma unroll
      for (int i = 0; i < raw.eights; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) largest = __vmaxu2(largest, raw.loaded[s][i].word[j] & 0x7fff7fffu);
    largest = max(largest & 0xffffu, largest >> 16);
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    const int exponent = min(13 + 127 - (int)(largest >> 7), 126); /* the largest comes to lie in [2^13, 2^14) */
    const float factor = __uint_as_float((uint32_t)(127 + exponent) << 23);
    correction *= __uint_as_float((uint32_t)(127 - exponent) << 23);
#pragma unroll
    for (int s = 0; s < Slices; s++)
#pragma unroll
      for (int i = 0; i < raw.eights; i++) {
        float value[8];
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const float2 pair = f32_of_bf16_pair(raw.loaded[s][i].word[j]);
          value[2 * j] = pair.x * factor, value[2 * j + 1] = pair.y * factor;
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
          out[s][4 * i + j] = W == RONDO_NVFP4 ? half_pair(value[e2m1_element(2 * j)], value[e2m1_element(2 * j + 1)])
                                               : half_pair(value[2 * j], value[2 * j + 1]);
      }
  }
  return correction;
}

#endif
