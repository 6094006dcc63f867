/* gemv_host.c - products with vectors on the host: an item is up to 32 rows of one matrix.
 *
 * Tiles of k are decoded to fp32, with the NVFP4 scales multiplied in: e2m1 times e4m3 is exact there, and so is each
 * product of such a weight with a 16-bit or NVFP4 element. Sums run in sixteen lanes, element i in lane i % 16; so do
 * the squares of an RMS norm, which each item adds up for itself. */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "../../runtime/integer.h"
#include "../common/number.h"
#include "gemv.h"

enum {
  ROWS = 32, /* whole blocks of NVFP4 results, of pairs of rows too */
  TILE = 512,
  LANES = 16,
};

struct work {
  const struct op_call *call;
  struct gemv_shape shape;
  int64_t groups; /* of rows, in one matrix */
};

static struct work work_of(const struct op_call *call, const struct op_task *task) {
  struct work work = {.call = call, .shape = gemv_shape_of(task)};
  work.groups = divide_up(work.shape.m, ROWS);
  return work;
}

int64_t gemv_host_items(const struct op_task *task) {
  struct work work = work_of(NULL, task);
  return work.shape.batch * work.groups;
}

/* ---- Decoding --------------------------------------------------------------------------------------------------- */

/* The address of element `column` of row `row`; column is even for nvfp4. */
static const unsigned char *place(const struct op_call *call, uint32_t index, int64_t batch, int64_t row,
                                  int64_t column) {
  const struct op_operand *operand = &call->task->operands[index];
  int64_t element = batch * gemv_batch_stride(operand) + row * operand->stride[operand->rank - 2] + column;
  return (const unsigned char *)call->data[index] + element * (int64_t)rondo_dtype_bits(operand->dtype) / 8;
}

/* Scales of a row from block `first` on. */
static void decode_scales(const struct op_call *call, uint32_t index, int64_t batch, int64_t row, int64_t first,
                          int64_t blocks, float *scales) {
  const struct gemv_attributes *attributes = op_attributes(call->task);
  const struct op_operand *operand = &call->task->operands[index];
  int32_t layout = index == GEMV_WEIGHT_SCALES ? attributes->weight_scale_layout : attributes->vector_scale_layout;
  if (layout == RONDO_SCALES_BY_ROW) {
    const unsigned char *codes = place(call, index, batch, row, first);
    for (int64_t i = 0; i < blocks; i++) scales[i] = f32_of_e4m3(codes[i]);
  } else {
    const unsigned char *codes = place(call, index, batch, 0, 0);
    int64_t row_bytes = operand->shape[operand->rank - 1];
    for (int64_t i = 0; i < blocks; i++) scales[i] = f32_of_e4m3(codes[gemv_blocked_scale(row, first + i, row_bytes)]);
  }
}

/* Eight codes, one a byte, times a scale: the compiler finds no table lookup among vector instructions. */
static void decode_eight(float *tile, const uint8_t *codes, float scale) {
  const __m256 magnitudes = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
  __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)codes));
  __m256 signs = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_srli_epi32(wide, 3), 31));
  __m256 values = _mm256_xor_ps(_mm256_permutevar8x32_ps(magnitudes, wide), signs); /* the index's low three bits */
  _mm256_storeu_ps(tile, _mm256_mul_ps(values, _mm256_set1_ps(scale)));
}

static void decode_nvfp4(float *restrict tile, const unsigned char *restrict codes, const float *restrict scales,
                         int64_t length) {
  uint8_t unpacked[TILE];
  for (int64_t i = 0; i < length / 2; i++) {
    unpacked[2 * i] = codes[i] & 15u;
    unpacked[2 * i + 1] = codes[i] >> 4;
  }
  for (int64_t i = 0; i < length; i += 8) decode_eight(tile + i, unpacked + i, scales[i / GEMV_BLOCK]);
}

/* Columns [column, column + length) of a row, filled up with zeros to whole lanes. */
static void decode(const struct op_call *call, uint32_t index, int64_t batch, int64_t row, int64_t column,
                   int64_t length, float *restrict tile) {
  const unsigned char *data = place(call, index, batch, row, column);
  const uint16_t *halves = (const uint16_t *)(const void *)data;
  float scales[TILE / GEMV_BLOCK] = {0};
  switch (call->task->operands[index].dtype) {
  case RONDO_F16:
    for (int64_t i = 0; i < length; i++) tile[i] = f32_of_f16(halves[i]);
    break;
  case RONDO_BF16:
    for (int64_t i = 0; i < length; i++) tile[i] = f32_of_bf16(halves[i]);
    break;
  case RONDO_E4M3:
    for (int64_t i = 0; i < length; i++) tile[i] = f32_of_e4m3(data[i]);
    break;
  default: /* nvfp4: the scales are the next operand */
    decode_scales(call, index + 1, batch, row, column / GEMV_BLOCK, length / GEMV_BLOCK, scales);
    decode_nvfp4(tile, data, scales, length);
    break;
  }
  for (int64_t i = length; i % LANES; i++) tile[i] = 0;
}

/* ---- Sums ------------------------------------------------------------------------------------------------------- */

static void accumulate(float *restrict sums, const float *weights, const float *vector, int64_t length) {
  float lanes[LANES]; /* in registers */
  memcpy(lanes, sums, sizeof lanes);
  for (int64_t i = 0; i < length; i += LANES)
    for (int64_t lane = 0; lane < LANES; lane++) lanes[lane] = fmaf(weights[i + lane], vector[i + lane], lanes[lane]);
  memcpy(sums, lanes, sizeof lanes);
}

static float sum_of(const float *sums) {
  float sum = 0;
  for (int lane = 0; lane < LANES; lane++) sum += sums[lane];
  return sum;
}

/* x times the norm's weights, rounded to the vectors' type. */
static void apply_norm(const struct op_call *call, int64_t column, int64_t length, float *restrict tile) {
  if (!call->task->operands[GEMV_NORM].present) return;
  const uint16_t *norm = (const uint16_t *)call->data[GEMV_NORM] + column;
  if (call->task->operands[GEMV_NORM].dtype == RONDO_F16)
    for (int64_t i = 0; i < length; i++) tile[i] = f32_of_f16(f16_of_f32(tile[i] * f32_of_f16(norm[i])));
  else
    for (int64_t i = 0; i < length; i++) tile[i] = f32_of_bf16(bf16_of_f32(tile[i] * f32_of_bf16(norm[i])));
}

static void run_group(const struct work *work, int64_t batch, int64_t first_row) {
  const struct op_call *call = work->call;
  const struct gemv_attributes *attributes = op_attributes(call->task);
  int64_t rows = smaller(work->shape.m - first_row, ROWS), count = work->shape.count, k = work->shape.k;
  bool normed = attributes->norm_epsilon > 0;
  float sums[GEMV_COUNT][ROWS][LANES], squares[GEMV_COUNT][LANES] = {0};
  float vectors[GEMV_COUNT][TILE], weights[TILE] = {0};
  memset(sums, 0, (size_t)count * sizeof sums[0]);
  memset(vectors, 0, (size_t)count * sizeof vectors[0]);
  for (int64_t column = 0; column < k; column += TILE) {
    int64_t length = smaller(k - column, TILE), padded = round_up(length, LANES);
    for (int64_t v = 0; v < count; v++) {
      decode(call, GEMV_VECTORS, batch, v, column, length, vectors[v]);
      if (!normed) continue;
      accumulate(squares[v], vectors[v], vectors[v], padded);
      apply_norm(call, column, length, vectors[v]);
    }
    for (int64_t r = 0; r < rows; r++) {
      decode(call, GEMV_WEIGHTS, batch, first_row + r, column, length, weights);
      for (int64_t v = 0; v < count; v++) accumulate(sums[v][r], weights, vectors[v], padded);
    }
  }
  for (int64_t v = 0; v < count; v++) {
    float results[ROWS], factor = attributes->scale;
    for (int64_t r = 0; r < rows; r++) results[r] = sum_of(sums[v][r]);
    if (normed) factor *= 1.0f / sqrtf(sum_of(squares[v]) / (float)larger(k, 1) + attributes->norm_epsilon);
    gemv_host_finish(call, batch, v, first_row, rows, factor, results);
  }
}

void gemv_host_run(const struct op_call *call, int64_t first, int64_t last) {
  struct work work = work_of(call, call->task);
  for (int64_t item = first; item < last; item++) run_group(&work, item / work.groups, item % work.groups * ROWS);
}
