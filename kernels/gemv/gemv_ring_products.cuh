/* gemv_ring_products.cuh - what a warp of gemv_ring.cu does with the vectors and with a tile's weights in shared
 * memory.
 *
 * A product has `rows` rows of each tile at a time, and:
 *   ask_for_norm   asks for its part of the norm, if the norm is settled before the predecessors end
 *   take_vectors   its part of the vectors to registers, or to `own`, the warp's own shared memory; RMS norm
 *   multiply       the rows' sums, from addresses in a stage to those in shared memory; calls `release` when all that
 * it needs of the stage has come */
#pragma once

#include "gemv_copies.cuh"
#include "gemv_dot.cuh"
#include "gemv_ring.h"
#include "gemv_vectors.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

enum : uint32_t { NUMBER = sizeof(float) };

/* ---- One NVFP4 vector: integers --------------------------------------------------------------------------------- */

/* Lane i of slice s has elements 1024 s + 32 i .. + 31 of a row. */
template <int Slices> struct integer_product {
  static constexpr int vectors = 1, rows = 1;
  tables t;
  integers<Slices> vector;
  /* This lane's first element in a row, and that of the last slice. Beyond the end vectors are zero, and a NaN of the
   * row makes it NaN anyway. */
  uint32_t element, last;

  DEVICE void ask_for_norm(const gemv_ring_parameters &, uint32_t, uint32_t) const {}
  DEVICE void take_vectors(const gemv_ring_parameters &p, uint32_t part, uint32_t, uint32_t) {
    element = part * (Slices * 1024) + threadIdx.x % 32 * 32;
    last = element + 1024 * (Slices - 1) < p.k ? element + 1024 * (Slices - 1) : 0;
    t = load_tables();
    raw_integers<Slices> raw;
    load_integers(p, element, raw);
    convert_integers(raw, vector);
  }

  template <typename Release>
  DEVICE void multiply(const gemv_ring_parameters &p, uint32_t weights_at, uint32_t scales_at, uint32_t sums,
                       const Release &release) {
    const uint32_t lane = threadIdx.x % 32;
    words weights[Slices];
    uint32_t scales[Slices], loaded = 0;
    unrolled_for (int s = 0; s < Slices; s++) {
      const uint32_t from = s == Slices - 1 ? last : element + 1024 * s;
      weights[s] = load_shared_words(weights_at + from / 2);
      scales[s] = load_half_word(scales_at + from / 16);
      loaded ^= weights[s].word[0] ^ scales[s];
    }
    release(loaded);
    float row_sums[1] = {dot_of_row(weights, scales, vector, t)};
    const float sum = sums_over_lanes<1>(row_sums);
    if (lane == 0) store_number(sums, sum);
  }
};

/* ---- Tensor cores ----------------------------------------------------------------------------------------------- */

/* Where the lanes of a row have their slices: 32 elements each, in twos beside each other where Together is 2, so that
 * four scales come with one load. Rows of stages lie at multiples of 128 bytes more often than not, and with one quad a
 * row eight rows' scales are then in the same banks. */
template <int Quads, int Slices, int Together> struct lane_slices {
  static constexpr int lanes = 4 * Quads;
  uint32_t element, last; /* as above; of the last Together slices */

  static __device__ constexpr int offset_of(int s) {
    return s / Together * (lanes * 32 * Together) + s % Together * 32;
  }

  DEVICE void set(const gemv_ring_parameters &p, uint32_t part) {
    element = part * (Slices * lanes * 32) + threadIdx.x % lanes * (32 * Together);
    last = element + offset_of(Slices - Together);
    if (last >= p.k) last = 0;
  }
  /* The element that slice s begins with, if not beyond the end. */
  DEVICE uint32_t first_of(int s) const {
    return (s >= Slices - Together ? last : element + offset_of(s - s % Together)) + s % Together * 32;
  }
};

/* One vector with eight quads a row, or up to four with two: the quads of gemv_quads.cuh. */
template <int Quads, int Slices> struct quads_product {
  static_assert(Quads == 2 || Quads == 8, "");
  static constexpr int vectors = Quads == 2 ? 4 : 1, rows = 16 / Quads, lanes = 4 * Quads;
  uint32_t b[Slices][16];
  float corrections[2]; /* of the result's columns 2 t and 2 t + 1 */
  lane_slices<Quads, Slices, 1> slices;

  DEVICE void ask_for_norm(const gemv_ring_parameters &, uint32_t, uint32_t) const {}
  DEVICE void take_vectors(const gemv_ring_parameters &p, uint32_t part, uint32_t, uint32_t own) {
    slices.set(p, part);
    if constexpr (vectors == 1)
      take_one(p, part, own);
    else
      take_several(p, part, own);
  }
  /* Lanes that load 16 of their 64 bytes each would touch a line each. So the lanes of a vector take neighbours and
   * exchange them in the warp's own shared memory: sixteen bytes number i lie at i ^ (i / 8 % 4), where eight lanes
   * meet in no bank. */
  DEVICE void take_several(const gemv_ring_parameters &p, uint32_t part, uint32_t own) {
    const uint32_t lane = threadIdx.x % 32, l = lane % lanes, element = part * (Slices * lanes * 32) + l * 8;
    const uint32_t vector_own = own + lane / lanes * (lanes * 64), to = vector_own + l * 16, at = vector_own + l * 64;
    raw_vector<RONDO_NVFP4, GEMV_16_BITS, Slices> raw;
    /* Columns without a vector repeat the last one. */
    const vector_address<GEMV_16_BITS> from(p, min(lane / lanes, p.count - 1), element);
    unrolled_for (int s = 0; s < Slices; s++)
      unrolled_for (int i = 0; i < 4; i++) {
        const int further = slices.offset_of(s) + lanes * 8 * i;
        raw.loaded[s][i] = words();
        if (element + further < p.k) raw.loaded[s][i] = from.load(further);
      }
    unrolled_for (int s = 0; s < Slices; s++) {
      unrolled_for (int i = 0; i < 4; i++) store_shared_words((to ^ i * 16) + lanes * 16 * i, raw.loaded[s][i].word);
      __syncwarp();
      unrolled_for (int i = 0; i < 4; i++) raw.loaded[s][i] = load_shared_words(at ^ (i ^ l / 2) * 16);
      __syncwarp();
    }
    const float factor = convert_vector<RONDO_NVFP4, GEMV_16_BITS, Slices>(p, raw, b);
    unrolled_for (int i = 0; i < 2; i++) corrections[i] = __shfl_sync(0xffffffffu, factor, 8 * (lane % 4) + 4 * i);
  }
  /* The same of one vector, converted before with one power of two for the warp. */
  DEVICE void take_one(const gemv_ring_parameters &p, uint32_t part, uint32_t own) {
    const uint32_t lane = threadIdx.x % 32, element = part * (Slices * lanes * 32) + lane * 8;
    words x[4 * Slices][1];
    const vector_address<GEMV_16_BITS> from(p, 0, element);
    unrolled_for (int j = 0; j < 4 * Slices; j++) {
      x[j][0] = words();
      if (element + 256 * j < p.k) x[j][0] = from.load(256 * j);
    }
    uint32_t converted[4 * Slices][4];
    float factor = 1 / nvfp4_factor;
    if (p.vector_dtype == RONDO_BF16)
      factor *= convert_bf16<RONDO_NVFP4, 32>(x, converted);
    else
      reorder<RONDO_NVFP4, false>(x, converted);
    const uint32_t to = own + (lane ^ lane / 8) * 16, at = own + lane * 64;
    unrolled_for (int j = 0; j < 4 * Slices; j++) store_shared_words(to + 512 * j, converted[j]);
    __syncwarp();
    unrolled_for (int s = 0; s < Slices; s++)
      unrolled_for (int i = 0; i < 4; i++) {
        const words four = load_shared_words((at ^ (i ^ lane / 2 % 4) * 16) + 2048 * s);
        unrolled_for (int w = 0; w < 4; w++) b[s][4 * i + w] = four.word[w];
      }
    corrections[0] = corrections[1] = factor;
  }

  template <typename Release>
  DEVICE void multiply(const gemv_ring_parameters &p, uint32_t weights_at, uint32_t scales_at, uint32_t sums,
                       const Release &release) {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float c[2][4] = {}; /* two, since each product waits for the one before it */
    uint32_t scales[2];
    unrolled_for (int s = 0; s < Slices; s++) {
      words weights[2];
      unrolled_for (int h = 0; h < 2; h++) {
        const uint32_t row = lane / lanes + h * (rows / 2), at = slices.first_of(s);
        weights[h] = load_shared_words(weights_at + row * p.weight_row + at / 2);
        scales[h] = load_shared_pair(scales_at + row * p.weight_scale_strides.row + at / 16);
      }
      if (s == Slices - 1) /* the sums have used the slices before */
        release(weights[0].word[0] ^ weights[1].word[0] ^ scales[0] ^ scales[1] ^ __float_as_uint(c[0][0]));
      uint32_t scale[2];
      unrolled_for (int h = 0; h < 2; h++) scale[h] = bits_of(block_scales(scales[h]));
      unrolled_for (int w = 0; w < 4; w++) {
        uint32_t a[2][4];
        unrolled_for (int h = 0; h < 2; h++) decode_eight<RONDO_NVFP4, false>(weights[h], w, scale[h], a[h]);
        multiply_accumulate<false>(c[0], a[0], a[1], &b[s][4 * w]);
        multiply_accumulate<false>(c[1], a[0] + 2, a[1] + 2, &b[s][4 * w + 2]);
      }
    }
    /* Each quad has the columns of its own piece. From the first exchange on even quads have the first row, odd ones
     * the second. */
    float result[4];
    unrolled_for (int i = 0; i < 4; i++) result[i] = (c[0][i] + c[1][i]) * corrections[i % 2];
    const float first = g % 2 ? result[1] : result[0], second = g % 2 ? result[3] : result[2];
    float sum = (g % 2 ? second : first) + __shfl_xor_sync(0xffffffffu, g % 2 ? first : second, 4);
    if constexpr (Quads == 8)
      unrolled_for (int distance = 9; distance < 32; distance *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    const uint32_t vector = vectors == 1 ? 0 : t;
    if (vectors == 1 ? lane == 0 || lane == 4 : vector < p.count)
      store_number(sums + (vector * p.pitch + g / Quads + g % 2 * (rows / 2)) * NUMBER, sum);
  }
};

/* One vector in 16 bits. Of a part of it each lane takes eight neighbours of every 256, and converts them with one
 * power of two for the warp. Norm and converted numbers lie in the warp's own shared memory. */
template <int Slices> struct one_vector {
  float factor; /* of the sums, without that of scales */

  /* Scales that are multiplied to sums have no factor in them. It is not in `factor`, which would be 2^128 beside the
   * largest bf16. */
  DEVICE float finished(float sum) const { return sum * factor * (1 / nvfp4_factor); }
  static DEVICE uint32_t element_of(uint32_t part, int j) {
    return part * (Slices * 128) + threadIdx.x % 32 * 8 + 256 * j;
  }
  DEVICE void ask_for_norm(const gemv_ring_parameters &p, uint32_t part, uint32_t own) const {
    if (!p.norm) return;
    unrolled_for (int j = 0; j < Slices / 2; j++)
      if (element_of(part, j) < p.k)
        copy_16(own + threadIdx.x % 32 * 16 + 512 * j, (const unsigned char *)p.norm + element_of(part, j) * 2);
    cp_async_commit();
  }
  /* RMS norm except for the common factor; returns the sum of this lane's squares. */
  template <rondo_dtype Type>
  static DEVICE float normalise(const gemv_ring_parameters &p, uint32_t own, words (&x)[Slices / 2][1]) {
    cp_async_wait<0>();
    return normalise_by<Type, false>(p, x, [&](int j, int) { return load_shared_words(own + 512 * j); });
  }
  DEVICE void take(const gemv_ring_parameters &p, uint32_t part, uint32_t squares, uint32_t own) {
    const uint32_t lane = threadIdx.x % 32, own_lane = own + lane * 16;
    words x[Slices / 2][1];
    const vector_address<GEMV_16_BITS> from(p, 0, element_of(part, 0));
    unrolled_for (int j = 0; j < Slices / 2; j++) {
      x[j][0] = words();
      if (element_of(part, j) < p.k) x[j][0] = from.load(256 * j);
    }
    if (p.norm_epsilon > 0) {
      float sum =
          p.vector_dtype == RONDO_BF16 ? normalise<RONDO_BF16>(p, own_lane, x) : normalise<RONDO_F16>(p, own_lane, x);
      unrolled_for (int distance = 1; distance < 32; distance *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
      if (lane == 0) store_number(squares + part * NUMBER, sum); /* groups store the same */
    }
    uint32_t converted[Slices / 2][4];
    factor = 1 / nvfp4_factor;
    if (p.vector_dtype == RONDO_BF16)
      factor *= convert_bf16<RONDO_NVFP4, 32>(x, converted);
    else
      reorder<RONDO_NVFP4, false>(x, converted);
    unrolled_for (int j = 0; j < Slices / 2; j++) store_shared_words(own_lane + 512 * j, converted[j]);
    __syncwarp();
  }
};

/* One vector, a quad a row. Operand B's columns are not needed for vectors, so they keep the blocks of 16 apart, and
 * the scale is multiplied to a block's sum instead of to 16 weights: column 2 t has lane t's piece of an even slice of
 * the vector, column 2 t + 1 that of the odd one beside it, and zeros elsewhere. Of a slice's product, each lane's
 * result in the slice's column is then the sum of its own block; the other column is of no use. */
template <int Slices> struct blocks_product : one_vector<Slices> {
  static constexpr int vectors = 1, rows = 16;
  static_assert(Slices % 2 == 0, "slices in twos");
  uint32_t b[Slices / 2][16];
  lane_slices<1, Slices, 2> slices;

  DEVICE void take_vectors(const gemv_ring_parameters &p, uint32_t part, uint32_t squares, uint32_t own) {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    slices.set(p, part);
    this->take(p, part, squares, own);
    unrolled_for (int j = 0; j < Slices / 2; j++)
      unrolled_for (int i = 0; i < 4; i++) {
        words four = words();
        if (t == g / 2) four = load_shared_words(own + 512 * j + g * 64 + i * 16);
        unrolled_for (int w = 0; w < 4; w++) b[j][4 * i + w] = four.word[w];
      }
  }

  template <typename Release>
  DEVICE void multiply(const gemv_ring_parameters &p, uint32_t weights_at, uint32_t scales_at, uint32_t sums,
                       const Release &release) {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float sum[2][2] = {}; /* [row][column] */
    uint32_t scales[2];
    unrolled_for (int s = 0; s < Slices; s++) {
      words weights[2];
      unrolled_for (int h = 0; h < 2; h++) {
        const uint32_t row = g + 8 * h, at = slices.first_of(s);
        weights[h] = load_shared_words(weights_at + row * p.weight_row + at / 2);
        if (s % 2 == 0)
          scales[h] = load_word(scales_at + row * p.weight_scale_strides.row + at / 16);
        else
          scales[h] >>= 16;
      }
      if (s == Slices - 1)
        release(weights[0].word[0] ^ weights[1].word[0] ^ scales[0] ^ scales[1] ^ __float_as_uint(sum[0][0]) ^
                __float_as_uint(sum[0][1]) ^ __float_as_uint(sum[1][0]) ^ __float_as_uint(sum[1][1]));
      float c[2][4] = {}; /* of the two blocks */
      unrolled_for (int w = 0; w < 4; w++) {
        uint32_t a[2][4];
        unrolled_for (int h = 0; h < 2; h++) decode_e2m1(weights[h].word[w], a[h]);
        multiply_accumulate<false>(c[w / 2], a[0], a[1], &b[s / 2][4 * w]);
        multiply_accumulate<false>(c[w / 2], a[0] + 2, a[1] + 2, &b[s / 2][4 * w + 2]);
      }
      unrolled_for (int h = 0; h < 2; h++) {
        const float2 scale = __half22float2(half2_of_e4m3(scales[h]));
        sum[h][s % 2] = __fmaf_rn(c[0][2 * h + s % 2], scale.x, sum[h][s % 2]);
        sum[h][s % 2] = __fmaf_rn(c[1][2 * h + s % 2], scale.y, sum[h][s % 2]);
      }
    }
    float of_row[2];
    unrolled_for (int h = 0; h < 2; h++) of_row[h] = sum[h][0] + sum[h][1];
    /* The row's lanes; from the first exchange on even lanes have the first row, odd ones the second. */
    float mine = (t % 2 ? of_row[1] : of_row[0]) + __shfl_xor_sync(0xffffffffu, t % 2 ? of_row[0] : of_row[1], 1);
    mine += __shfl_xor_sync(0xffffffffu, mine, 2);
    if (t < 2) store_number(sums + (g + 8 * t) * NUMBER, this->finished(mine));
  }
};

/* The same for eight rows: rows g and g + 8 of operand A are an even slice of row g and the odd one beside it. Operand
 * B comes from shared memory, so that a warp may have a long part of k. Lanes without numbers read zeros, which lie
 * behind the memory of the warps. */
template <int Slices> struct pairs_product : one_vector<Slices> {
  static constexpr int vectors = 1, rows = 8;
  uint32_t element, own_at; /* this lane's first in a row; its operand B in shared memory */

  DEVICE void take_vectors(const gemv_ring_parameters &p, uint32_t part, uint32_t squares, uint32_t own) {
    const uint32_t lane = threadIdx.x % 32, warps = p.parts * p.groups;
    const uint32_t zeros = own + (warps - threadIdx.x / 32) * p.own_bytes;
    for (uint32_t i = threadIdx.x * 16; i < p.own_bytes; i += warps * 512) store_shared_words(zeros + i, words().word);
    element = part * (Slices * 128) + lane % 4 * 64, own_at = lane % 4 == lane / 8 ? own + lane / 4 * 64 : zeros;
    this->take(p, part, squares, own);
  }
  template <typename Release>
  DEVICE void multiply(const gemv_ring_parameters &p, uint32_t weights_at, uint32_t scales_at, uint32_t sums,
                       const Release &release) {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    weights_at += g * p.weight_row, scales_at += g * p.weight_scale_strides.row;
    float sum[2] = {};
    unrolled_for (int j = 0; j < Slices / 2; j++) {
      /* Beyond the end vectors are zero, and a NaN of the row makes it NaN anyway. */
      const uint32_t at = element + 256 * j < p.k ? element + 256 * j : t * 64;
      words weights[2];
      unrolled_for (int h = 0; h < 2; h++) weights[h] = load_shared_words(weights_at + at / 2 + 16 * h);
      const uint32_t scales = load_word(scales_at + at / 16);
      words b[4];
      unrolled_for (int i = 0; i < 4; i++) b[i] = load_shared_words(own_at + 512 * j + 16 * i);
      if (j == Slices / 2 - 1)
        release(weights[0].word[0] ^ weights[1].word[0] ^ scales ^ __float_as_uint(sum[0]) ^ __float_as_uint(sum[1]));
      float c[2][4] = {}; /* of the two blocks */
      unrolled_for (int w = 0; w < 4; w++) {
        uint32_t a[2][4];
        unrolled_for (int h = 0; h < 2; h++) decode_e2m1(weights[h].word[w], a[h]);
        multiply_accumulate<false>(c[w / 2], a[0], a[1], b[w].word);
        multiply_accumulate<false>(c[w / 2], a[0] + 2, a[1] + 2, b[w].word + 2);
      }
      const float2 even = __half22float2(half2_of_e4m3(scales)), odd = __half22float2(half2_of_e4m3_high(scales));
      sum[0] = __fmaf_rn(c[1][0], even.y, __fmaf_rn(c[0][0], even.x, sum[0]));
      sum[1] = __fmaf_rn(c[1][3], odd.y, __fmaf_rn(c[0][3], odd.x, sum[1]));
    }
    float mine = sum[0] + sum[1];
    mine += __shfl_xor_sync(0xffffffffu, mine, 1);
    mine += __shfl_xor_sync(0xffffffffu, mine, 2);
    if (t == 0) store_number(sums + g * NUMBER, this->finished(mine));
  }
};

#endif
