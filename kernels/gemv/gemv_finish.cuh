/* gemv_finish.cuh - from sums to a product's results: factors, bias, silu(gate) * up, residual, rounding, NVFP4.
 *
 * This is the last microsecond of short kernels: a warp has vectors, its lanes have rows, and no index is divided. Most
 * products need a factor and a rounding only, so these are a branch of their own. All operations are fp32; a result is
 * rounded once, at the store. */
#pragma once

#include "../common/numbers.cuh"
#include "gemv_addresses.cuh"
#include "quantize.cuh"

DEVICE float silu(float x) { return __fdiv_rn(x, 1.0f + expf(-x)); }

/* The factor of RMS norm, of a vector's sum of squares. */
DEVICE float rms_factor(const gemv_parameters &p, float squares) {
  return __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(squares, (float)max(p.k, 1u)) + p.norm_epsilon));
}

/* The same to two units in the last place, by one step of Newton's. Two divisions and a root that round correctly are a
 * third of a microsecond at the end of a short product; long ones have not the registers for another way. */
DEVICE float quick_rms_factor(const gemv_parameters &p, float squares) {
  const float mean = __fmaf_rn(squares, p.mean_factor, p.norm_epsilon), root = rsqrtf(mean);
  /* Half of the root, not of the mean, which may be subnormal. */
  const float correction = __fmaf_rn(__fmul_rn(-0.5f * root, mean), root, 0.5f);
  return root > 0 ? __fmaf_rn(root, correction, root) : root; /* the mean of huge numbers is infinity */
}

/* What depends on it is not computed before the loop over tiles, where it would hold registers all along. */
DEVICE uint32_t computed_here(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

/* Where a tile's rows lie: rows first_row .. first_row + rows - 1 of a matrix, all of which exist. Those before
 * first_new_row, which counts from the tile's first, are neither read nor written: another tile has them, and where the
 * residual is the result's own place a second reader would find the sum. With out_scales, all three are multiples of 16
 * columns; with silu_mul a column is two rows. */
struct tile_rows {
  uint32_t batch, first_row, rows, first_new_row;
};

DEVICE tile_rows tile_of(const gemv_parameters &p, uint32_t tile, uint32_t rows) {
  const uint32_t first_row = first_row_of(p, tile, rows);
  return {blockIdx.y, first_row, rows, tile * rows - first_row};
}

/* The f32 scales of a matrix's rows, or NULL. */
DEVICE const float *row_scales(const gemv_parameters &p, uint32_t batch) {
  if (p.weight_dtype != RONDO_E4M3 || !p.weight_scales) return nullptr;
  return (const float *)p.weight_scales + (uint64_t)batch * p.weight_scale_batch;
}

/* Sixteen lanes, those of the warp's lower or upper half, have a block of results, which begins at this column. */
DEVICE void store_quantised(const gemv_parameters &p, int64_t codes, int64_t scales, uint32_t column, float value) {
  const uint32_t lane = computed_here(threadIdx.x) % 32, half = 0xffffu << (lane & 16);
  uint32_t largest = magnitude_bits(value);
  unrolled_for (uint32_t distance = 8; distance; distance /= 2)
    largest = max(largest, __shfl_xor_sync(half, largest, distance));
  const uint32_t scale = scale_of_block(largest, p.epilogue.six_out_global_scale);
  const float divisor = divisor_of_block(scale, p.epilogue.out_global_scale);
  const uint32_t code = divisor > 0 ? e2m1_put(0, fminf(__fdiv_rn(fabsf(value), divisor), 6.0f), value) : 0;
  const uint32_t above = __shfl_xor_sync(half, code, 1);
  if (lane % 2 == 0) ((unsigned char *)p.out)[(codes + column) / 2] = (unsigned char)(code | above << 4);
  if (lane % GEMV_BLOCK == 0) p.epilogue.out_scales[scales + column / GEMV_BLOCK] = (unsigned char)scale;
}

/* What is added to the first column that a lane of `vector`'s warp finishes: asked for while the vector is on its way,
 * so that a short product does not wait for memory twice. */
DEVICE float first_residual(const gemv_parameters &p, const tile_rows &tile, uint32_t vector) {
  const uint32_t pair = p.epilogue.silu_mul ? 1 : 0, column = (tile.first_new_row >> pair) + threadIdx.x % 32;
  if (!p.epilogue.residual || vector >= p.count || column >= tile.rows >> pair) return 0.0f;
  const int64_t residual = tile.batch * p.epilogue.residual_batch + vector * p.epilogue.residual_row;
  return load_number(p.epilogue.residual_dtype, p.epilogue.residual, residual + ((tile.first_row >> pair) + column));
}

/* The residual's element that is added to a column. */
struct residual_in_memory {
  DEVICE float operator()(const gemv_parameters &p, uint32_t, int64_t element) const {
    return load_number(p.epilogue.residual_dtype, p.epilogue.residual, element);
  }
};

/* What few products ask for, of one vector. A lane has a column of the results, which are two rows of the matrix where
 * these are gate and up. `result_of` gives a row's sum with all its factors. */
template <typename Result, typename Residual = residual_in_memory>
DEVICE void finish_columns(const gemv_parameters &p, const tile_rows &tile, uint32_t vector, const Result &result_of,
                           const Residual &residual_of = Residual()) {
  const uint32_t pair = p.epilogue.silu_mul ? 1 : 0, first_column = tile.first_row >> pair;
  const int64_t residual = tile.batch * p.epilogue.residual_batch + vector * p.epilogue.residual_row;
  const int64_t out = tile.batch * p.out_batch + vector * p.out_row;
  const auto biased = [&](uint32_t row) {
    const float result = result_of(row);
    if (!p.epilogue.bias) return result;
    return result + load_number(p.epilogue.bias_dtype, p.epilogue.bias,
                                tile.batch * p.epilogue.bias_batch + tile.first_row + row);
  };
  for (uint32_t i = (tile.first_new_row >> pair) + computed_here(threadIdx.x) % 32; i < tile.rows >> pair; i += 32) {
    const uint32_t column = first_column + i;
    float value = biased(i << pair);
    if (pair) value = silu(value) * biased(2 * i + 1);
    if (p.epilogue.residual) value += residual_of(p, i, residual + column);
    if (p.epilogue.out_scales)
      store_quantised(p, out, tile.batch * p.epilogue.out_scale_batch + vector * p.epilogue.out_scale_row, column,
                      value);
    else
      store_number(p.out_dtype, p.out, out + column, value);
  }
}

/* All three are called by all threads of a block, with a barrier after the last write of what sum_of and factor_of
 * read:
 *   sum_of(vector, row)  the sum of a row of the tile: any thread may ask for any
 *   factor_of(vector)    1 / sqrt(mean square of x + norm_epsilon); asked for only where p.norm_epsilon > 0
 *
 * What most products ask for. */
template <bool MayHaveRowScales, bool MayHaveNorm, typename Sum, typename Factor>
DEVICE void finish_rows(const gemv_parameters &p, const tile_rows &tile, uint32_t thread, const Sum &sum_of,
                        const Factor &factor_of) {
  const float *scales = MayHaveRowScales ? row_scales(p, tile.batch) : nullptr;
  for (uint32_t vector = thread / 32; vector < p.count; vector += blockDim.x / 32) {
    const float factor = MayHaveNorm && p.norm_epsilon > 0 ? factor_of(vector) * p.scale : p.scale;
    const int64_t out = tile.batch * p.out_batch + vector * p.out_row;
    for (uint32_t row = tile.first_new_row + thread % 32; row < tile.rows; row += 32) {
      const float sum = sum_of(vector, row) * factor;
      store_number(p.out_dtype, p.out, out + (tile.first_row + row),
                   scales ? sum * __ldg(scales + tile.first_row + row) : sum);
    }
  }
}

/* The same where the warps of a group finish its rows. */
template <int Rows, bool MayHaveRowScales, bool MayHaveNorm, typename Sum, typename Factor>
DEVICE void finish_group(const gemv_parameters &p, const tile_rows &tile, const warp_position &position,
                         const Sum &sum_of, const Factor &factor_of) {
  const float *scales = MayHaveRowScales ? row_scales(p, tile.batch) : nullptr;
  const uint32_t first_row = position.group * Rows;
  for (uint32_t result = position.part * 32 + threadIdx.x % 32; result < p.count * Rows; result += p.parts * 32) {
    const uint32_t vector = result / Rows, row = first_row + result % Rows;
    if (row < tile.first_new_row) continue;
    const float factor = MayHaveNorm && p.norm_epsilon > 0 ? factor_of(vector) * p.scale : p.scale;
    const float sum = sum_of(vector, row) * factor;
    store_number(p.out_dtype, p.out, tile.batch * p.out_batch + vector * p.out_row + (tile.first_row + row),
                 scales ? sum * __ldg(scales + tile.first_row + row) : sum);
  }
}

/* The row of a vector that a lane finishes: known before the sums are, where a kernel has the registers for that. */
struct row_of_lane {
  unsigned char *out;
  uint32_t vector, row;
  bool is_all;  /* the block has a lane for every row of every vector */
  bool is_mine; /* this lane has one */
};
DEVICE row_of_lane row_of_this_lane(const gemv_parameters &p, const tile_rows &tile, uint32_t vector, uint32_t row) {
  row_of_lane at = {nullptr, vector, row, tile.rows <= 32 && p.count <= blockDim.x / 32,
                    vector < p.count && row >= tile.first_new_row && row < tile.rows};
  if (vector >= p.count) return at;
  const int64_t element = tile.batch * p.out_batch + vector * p.out_row + (tile.first_row + row);
  at.out = (unsigned char *)p.out + (element << (p.out_dtype == RONDO_F32 ? 2 : 1));
  asm volatile("" : "+l"(at.out)); /* now, not where it is used */
  return at;
}
/* After sums have met: the warps of a group finish its rows, of as many vectors at once as they have lanes for. */
template <int Rows>
DEVICE row_of_lane row_of_group(const gemv_parameters &p, const tile_rows &tile, const warp_position &position) {
  const uint32_t result = position.part * 32 + threadIdx.x % 32;
  row_of_lane at = row_of_this_lane(p, tile, result / Rows, position.group * Rows + result % Rows);
  at.is_all = p.count * Rows <= p.parts * 32;
  return at;
}
/* After sums have met: a warp a vector, a lane a row. */
DEVICE row_of_lane row_of_this_lane(const gemv_parameters &p, const tile_rows &tile) {
  return row_of_this_lane(p, tile, threadIdx.x / 32, threadIdx.x % 32);
}

/* Nothing is split: a warp has whole sums, which need not meet, and whole squares. */
DEVICE bool has_whole_sums(const gemv_parameters &p) { return p.parts == 1 && !p.epilogue.out_scales; }

/* The row whose sum the lane has after sums_over_lanes, of one vector, and what is added to its result. */
struct whole_row {
  unsigned char *out;
  float bias, residual;
  uint32_t row;
  bool is_mine;
};
template <int Rows> DEVICE whole_row whole_row_of(const gemv_parameters &p, const tile_rows &tile, uint32_t first_row) {
  const uint32_t lane = threadIdx.x % 32, pair = p.epilogue.silu_mul ? 1 : 0;
  const uint32_t row = first_row + lane / (32 / Rows), column = (tile.first_row + row) >> pair;
  whole_row at = {nullptr, 0.0f, 0.0f, row, lane % (32 / Rows) == 0 && row >= tile.first_new_row && row < tile.rows};
  if (!at.is_mine) return at;
  if (p.finishing) {
    if (p.epilogue.bias)
      at.bias = load_number(p.epilogue.bias_dtype, p.epilogue.bias,
                            tile.batch * p.epilogue.bias_batch + tile.first_row + row);
    at.is_mine = !pair || row % 2 == 0;
    if (p.epilogue.residual && at.is_mine)
      at.residual =
          load_number(p.epilogue.residual_dtype, p.epilogue.residual, tile.batch * p.epilogue.residual_batch + column);
  }
  at.out = (unsigned char *)p.out + ((tile.batch * p.out_batch + column) << (p.out_dtype == RONDO_F32 ? 2 : 1));
  asm volatile("" : "+l"(at.out)); /* now, not where it is used */
  return at;
}

/* By all lanes of a warp. Of gate and up, which are neighbouring rows, the former's lane has the result. */
template <int Rows> DEVICE void finish_whole_row(const gemv_parameters &p, const whole_row &at, float value) {
  if (p.finishing) {
    if (p.epilogue.bias) value += at.bias;
    if (p.epilogue.silu_mul) value = silu(value) * __shfl_down_sync(0xffffffffu, value, 32 / Rows);
    if (p.epilogue.residual) value += at.residual;
  }
  if (at.is_mine) store_number(p.out_dtype, at.out, 0, value);
}

/* The same for a row of each lane, by all lanes of a warp: those of gate and up are neighbours. Not NVFP4. */
DEVICE void finish_row_of_lane(const gemv_parameters &p, uint32_t vector, uint32_t row, bool is_mine, float value) {
  const uint32_t pair = p.epilogue.silu_mul ? 1 : 0, column = row >> pair;
  if (p.epilogue.bias)
    value += load_number(p.epilogue.bias_dtype, p.epilogue.bias, blockIdx.y * p.epilogue.bias_batch + row);
  if (pair) value = silu(value) * __shfl_down_sync(0xffffffffu, value, 1);
  if (!is_mine || (pair & row)) return;
  if (p.epilogue.residual)
    value += load_number(p.epilogue.residual_dtype, p.epilogue.residual,
                         blockIdx.y * p.epilogue.residual_batch + vector * p.epilogue.residual_row + column);
  store_number(p.out_dtype, p.out, blockIdx.y * p.out_batch + vector * p.out_row + column, value);
}

/* The same as finish_rows, to the bit, for a block in which is_all: which one finishes a row depends on the count. */
template <bool MayHaveRowScales, bool MayHaveNorm, typename Sum, typename Factor>
DEVICE void finish_row(const gemv_parameters &p, const tile_rows &tile, const row_of_lane &at, const Sum &sum_of,
                       const Factor &factor_of) {
  if (!at.is_mine) return;
  const float factor = MayHaveNorm && p.norm_epsilon > 0 ? factor_of(at.vector) * p.scale : p.scale;
  float sum = sum_of(at.vector, at.row) * factor;
  if (MayHaveRowScales) {
    const float *scales = row_scales(p, tile.batch);
    if (scales) sum *= __ldg(scales + tile.first_row + at.row);
  }
  store_number(p.out_dtype, at.out, 0, sum);
}

/* Anything that may be asked for, of one vector of a tile: called by all lanes of a warp. */
template <typename Sum, typename Factor, typename Residual = residual_in_memory>
DEVICE void finish_vector(const gemv_parameters &p, const tile_rows &tile, uint32_t vector, const Sum &sum_of,
                          const Factor &factor_of, const Residual &residual_of = Residual()) {
  const float *scales = row_scales(p, tile.batch);
  const float factor = p.norm_epsilon > 0 ? factor_of(vector) * p.scale : p.scale;
  finish_columns(
      p, tile, vector,
      [&](uint32_t row) {
        const float sum = sum_of(vector, row) * factor;
        return scales ? sum * __ldg(scales + tile.first_row + row) : sum;
      },
      residual_of);
}

/* With p.finishing, of a block's one tile; `first` is what first_residual gave for the warp's first vector. */
template <typename Sum, typename Factor>
DEVICE void finish_rows_fully(const gemv_parameters &p, const tile_rows &tile, float first, const Sum &sum_of,
                              const Factor &factor_of) {
  const uint32_t warp = computed_here(threadIdx.x) / 32;
  for (uint32_t vector = warp; vector < p.count; vector += blockDim.x / 32)
    finish_vector(p, tile, vector, sum_of, factor_of, [&](const gemv_parameters &, uint32_t column, int64_t element) {
      const bool is_first = vector == warp && column < 32 + (tile.first_new_row >> (p.epilogue.silu_mul ? 1 : 0));
      return is_first ? first : load_number(p.epilogue.residual_dtype, p.epilogue.residual, element);
    });
}

/* The same without. */
template <typename Sum, typename Factor>
DEVICE void finish_rows_fully(const gemv_parameters &p, const tile_rows &tile, const Sum &sum_of,
                              const Factor &factor_of) {
  for (uint32_t vector = computed_here(threadIdx.x) / 32; vector < p.count; vector += blockDim.x / 32)
    finish_vector(p, tile, vector, sum_of, factor_of);
}

/* Keeps a tile's sums in `held`, [count][rows]. */
template <typename Sum>
DEVICE void hold_rows(const gemv_parameters &p, const tile_rows &tile, uint32_t held, const Sum &sum_of) {
  for (uint32_t vector = threadIdx.x / 32; vector < p.count; vector += blockDim.x / 32)
    for (uint32_t row = threadIdx.x % 32; row < tile.rows; row += 32)
      store_number(held + (vector * tile.rows + row) * (uint32_t)sizeof(float), sum_of(vector, row));
}

/* One of several chunks of k: together with those before it, which `held` has, kept there or, after the last,
 * finished.
 */
template <typename Sum, typename Factor>
DEVICE void finish_chunk(const gemv_parameters &p, const tile_rows &tile, uint32_t chunk, uint32_t held,
                         const Sum &sum_of, const Factor &factor_of) {
  const auto sum_of_chunks = [&](uint32_t vector, uint32_t row) {
    const float sum = sum_of(vector, row);
    return chunk ? load_number(held + (vector * tile.rows + row) * (uint32_t)sizeof(float)) + sum : sum;
  };
  if (chunk + 1 < p.chunks)
    hold_rows(p, tile, held, sum_of_chunks);
  else
    finish_rows_fully(p, tile, sum_of_chunks, factor_of);
}
