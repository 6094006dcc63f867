/* gemv_vectors.cuh - vectors as operand B of the tensor cores: loads, RMS norm, conversion.
 *
 * Beside weights of 4 or 8 bits, bf16 vectors become f16. Each quad's part is multiplied by a power of two that fits
 * its largest magnitude, and the sums are divided by it. */
#pragma once

#include "../common/settled.cuh"
#include "gemv_addresses.cuh"
#include "gemv_operands.cuh"

/* This lane's part of one vector, as loaded. */
template <rondo_dtype W, rondo_dtype V, int Slices> struct raw_vector {
  static constexpr int eights = V == RONDO_NVFP4 ? 1 : elements_per_load<W> / 8;
  words loaded[Slices][eights];
  uint32_t scales[V == RONDO_NVFP4 ? Slices : 1];
};

/* Slice s of it, `further` elements after the lane's first; zeros if `in` is false. */
template <rondo_dtype W, rondo_dtype V, int Slices>
DEVICE void load_slice(const gemv_parameters &p, const vector_address<V> &from, int further, bool in, int s,
                       raw_vector<W, V, Slices> &raw) {
  unrolled_for (int i = 0; i < raw.eights; i++) {
    raw.loaded[s][i] = words();
    if (in) raw.loaded[s][i] = from.load(further + 8 * i);
  }
  if constexpr (V == RONDO_NVFP4) {
    raw.scales[s] = 0;
    if (in) raw.scales[s] = from.load_scales(p, further);
  }
}

template <rondo_dtype W, rondo_dtype V, int Slices, int Slice>
DEVICE void load_raw(const gemv_parameters &p, uint32_t vector, uint32_t element, raw_vector<W, V, Slices> &raw) {
  const vector_address<V> from(p, min(vector, p.count - 1), element); /* columns without a vector repeat the last */
  unrolled_for (int s = 0; s < Slices; s++) load_slice(p, from, Slice * s, element + Slice * s < p.k, s, raw);
}

/* Of a lane's part of the norm, which a later load finds in the multiprocessor's cache. No registers are kept for it:
 * the words returned are of use to keep_early only. */
template <rondo_dtype W, rondo_dtype V, int Slices, int Slice>
DEVICE uint32_t touch_norm(const gemv_parameters &p, uint32_t element) {
  uint32_t all = 0;
  if constexpr (V != RONDO_NVFP4)
    if (p.early & GEMV_NORM_EARLY) {
      unrolled_for (int s = 0; s < Slices; s++)
        unrolled_for (int i = 0; i < raw_vector<W, V, Slices>::eights; i++) {
          const uint32_t at = min(element + Slice * s, p.k - 8 * raw_vector<W, V, Slices>::eights) + 8 * i;
          all ^= load_settled((const unsigned char *)p.norm + (uint64_t)at * 2);
        }
    }
  return all;
}

/* The product of two elements has at most 22 bits, so that it is rounded once. */
template <rondo_dtype V> DEVICE uint32_t product_of_pairs(uint32_t a, uint32_t b) {
  if constexpr (V == RONDO_BF16) return bits_of(__hmul2(bf162_of(a), bf162_of(b)));
  return bits_of(__hmul2(half2_of(a), half2_of(b)));
}

/* RMS norm except for the common factor, which the sums get: x * norm, where norm_of(s, i) has eight numbers of the
 * norm. Returns the sum of this lane's squares. After a branch each load is waited for by itself; with AtOnce all loads
 * come first, for kernels that have the registers. */
template <rondo_dtype V, bool AtOnce, int Slices, int Eights, typename Norm>
DEVICE float normalise_by(const gemv_parameters &p, words (&loaded)[Slices][Eights], const Norm &norm_of) {
  words norm[Slices][Eights];
  unrolled_for (int s = 0; s < (AtOnce ? Slices : 0); s++)
    unrolled_for (int i = 0; i < Eights; i++) norm[s][i] = norm_of(s, i);
  float squares = 0;
  unrolled_for (int s = 0; s < Slices; s++)
    unrolled_for (int i = 0; i < Eights; i++) {
      uint32_t(&word)[4] = loaded[s][i].word;
      if (!AtOnce) norm[s][i] = norm_of(s, i);
      unrolled_for (int j = 0; j < 4; j++) {
        const float2 x = f32_of_pair<V>(word[j]);
        squares = __fmaf_rn(x.x, x.x, squares);
        squares = __fmaf_rn(x.y, x.y, squares);
      }
      asm volatile("" : "+f"(squares)); /* now: a later sum would hold registers */
      if (!p.norm) continue;
      unrolled_for (int j = 0; j < 4; j++) word[j] = product_of_pairs<V>(word[j], norm[s][i].word[j]);
    }
  return squares;
}

/* The norm from memory. */
template <rondo_dtype V, int Slice, bool AtOnce, int Slices, int Eights>
DEVICE float normalise_words(const gemv_parameters &p, uint32_t element, words (&loaded)[Slices][Eights]) {
  return normalise_by<V, AtOnce>(p, loaded, [&](int s, int i) {
    const uint32_t at = element + Slice * s;
    if (p.norm && at < p.k) return load_vector((const unsigned char *)p.norm + (uint64_t)at * 2 + 16 * i);
    return words();
  });
}

/* The same of either type of 16 bits. */
template <bool AtOnce, int Slice, rondo_dtype W, int Slices>
DEVICE float normalise(const gemv_parameters &p, uint32_t element, raw_vector<W, GEMV_16_BITS, Slices> &raw) {
  return p.vector_dtype == RONDO_BF16 ? normalise_words<RONDO_BF16, Slice, AtOnce>(p, element, raw.loaded)
                                      : normalise_words<RONDO_F16, Slice, AtOnce>(p, element, raw.loaded);
}

/* ---- bf16 as f16 ------------------------------------------------------------------------------------------------- */

/* The larger of two pairs of magnitudes, as bits: of bf16 values so far, and of four words more. */
DEVICE uint32_t larger_magnitudes(uint32_t largest, const uint32_t (&word)[4]) {
  unrolled_for (int j = 0; j < 4; j++) largest = __vmaxu2(largest, word[j] & 0x7fff7fffu);
  return largest;
}

/* A power of two that brings the largest magnitude to [2^13, 2^14), and its inverse. */
struct power_of_two {
  float factor, inverse;
};
DEVICE power_of_two power_for(uint32_t largest) {
  const int exponent = min(13 + 127 - (int)(largest >> 7), 126);
  return {__uint_as_float((uint32_t)(127 + exponent) << 23), __uint_as_float((uint32_t)(127 - exponent) << 23)};
}

/* Eight bf16 values times `factor` as f16, beside NVFP4 weights in the order of decode_e2m1. */
template <rondo_dtype W> DEVICE void f16_of_bf16(const uint32_t (&word)[4], float factor, uint32_t *pairs) {
  const __nv_bfloat162 power = __float2bfloat162_rn(factor);
  float value[8];
  unrolled_for (int j = 0; j < 4; j++) {
    const float2 pair = f32_of_bf16_pair(bits_of(__hmul2(bf162_of(word[j]), power)));
    value[2 * j] = pair.x, value[2 * j + 1] = pair.y;
  }
  unrolled_for (int j = 0; j < 4; j++)
    pairs[j] = W == RONDO_NVFP4 ? half_pair(value[e2m1_element(2 * j)], value[e2m1_element(2 * j + 1)])
                                : half_pair(value[2 * j], value[2 * j + 1]);
}

/* ---- Operand B --------------------------------------------------------------------------------------------------- */

/* Eight elements as they are, in the order of decode_eight. */
template <rondo_dtype W, bool Bf16> DEVICE void order_eight(const uint32_t (&word)[4], uint32_t *pairs) {
  if constexpr (W == RONDO_NVFP4 && Bf16) {
    order_as_bf16(word, pairs);
  } else if constexpr (W == RONDO_NVFP4) {
    order_as_e2m1(word, pairs);
  } else {
    unrolled_for (int j = 0; j < 4; j++) pairs[j] = word[j];
  }
}

template <int Slices>
DEVICE void convert_nvfp4(const raw_vector<RONDO_NVFP4, RONDO_NVFP4, Slices> &raw, uint32_t (&out)[Slices][16]) {
  unrolled_for (int s = 0; s < Slices; s++) {
    const __half2 pair = block_scales(raw.scales[s]);
    unrolled_for (int w = 0; w < 4; w++) {
      decode_e2m1(raw.loaded[s][0].word[w], &out[s][4 * w]);
      const __half2 scale = w < 2 ? __low2half2(pair) : __high2half2(pair);
      unrolled_for (int j = 0; j < 4; j++) {
        __half2 value = __hmul2(half2_of(out[s][4 * w + j]), scale);
        if (nvfp4_factor != 1) value = __hmul2(value, half2_of(TWO_TO_THE_7));
        out[s][4 * w + j] = bits_of(value);
      }
    }
  }
}

template <rondo_dtype W, bool Bf16, int Slices, int Eights, int Pairs>
DEVICE void reorder(const words (&loaded)[Slices][Eights], uint32_t (&out)[Slices][Pairs]) {
  unrolled_for (int s = 0; s < Slices; s++)
    unrolled_for (int i = 0; i < Eights; i++) order_eight<W, Bf16>(loaded[s][i].word, &out[s][4 * i]);
}

/* bf16 to f16 by one power of two for the parts of so many lanes. Returns its inverse. */
template <rondo_dtype W, int Lanes = 4, int Slices, int Eights, int Pairs>
DEVICE float convert_bf16(const words (&loaded)[Slices][Eights], uint32_t (&out)[Slices][Pairs]) {
  uint32_t largest = 0;
  unrolled_for (int s = 0; s < Slices; s++)
    unrolled_for (int i = 0; i < Eights; i++) largest = larger_magnitudes(largest, loaded[s][i].word);
  largest = max(largest & 0xffffu, largest >> 16);
  unrolled_for (int distance = 1; distance < Lanes; distance *= 2)
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
  const power_of_two power = power_for(largest);
  unrolled_for (int s = 0; s < Slices; s++)
    unrolled_for (int i = 0; i < Eights; i++) f16_of_bf16<W>(loaded[s][i].word, power.factor, &out[s][4 * i]);
  return power.inverse;
}

/* As operand B in f16, in the order of decode_eight. Returns the factor of the sums. */
template <rondo_dtype W, rondo_dtype V, int Slices>
DEVICE float convert_vector(const gemv_parameters &p, const raw_vector<W, V, Slices> &raw,
                            uint32_t (&out)[Slices][elements_per_load<W> / 2]) {
  const float correction = W == RONDO_NVFP4 ? 1 / nvfp4_factor : 1.0f;
  if constexpr (V == RONDO_NVFP4)
    convert_nvfp4(raw, out);
  else if (p.vector_dtype == RONDO_BF16)
    return correction * convert_bf16<W>(raw.loaded, out);
  else
    reorder<W, false>(raw.loaded, out);
  return correction;
}
