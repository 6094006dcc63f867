/* weights.c - converts matrices (weights.h). A row is converted through fp32; there is never a whole matrix in fp32. */
#include "weights.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dequantize.h"

enum { BLOCK = 16 };
#define E4M3_MAX 448.0f
#define E2M1_MAX 6.0f

int64_t matrix_rows(const struct matrix *matrix) {
  int64_t rows = 0;
  for (uint32_t i = 0; i < matrix->part_count; i++) rows += gguf_rows(matrix->parts[i]);
  return rows;
}

int64_t matrix_columns(const struct matrix *matrix) { return matrix->parts[0]->shape[0]; }

/* The tensor that has a row of the matrix. *row becomes the row's index in that tensor. */
static const struct gguf_tensor *part_of(const struct matrix *matrix, int64_t *row) {
  uint32_t part = 0;
  if (matrix->interleaved) {
    part = (uint32_t)(*row % matrix->part_count);
    *row /= matrix->part_count;
  } else {
    for (; *row >= gguf_rows(matrix->parts[part]); part++) *row -= gguf_rows(matrix->parts[part]);
  }
  return matrix->parts[part];
}

static void read_row(const struct matrix *matrix, int64_t row, float *out) {
  const struct gguf_tensor *tensor = part_of(matrix, &row);
  dequantize_row(tensor, row, out);
}

static float largest_of(const float *values, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; i++) {
    float magnitude = fabsf(values[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

bool matrix_largest(const struct matrix *matrix, float *largest) {
  int64_t rows = matrix_rows(matrix), columns = matrix_columns(matrix);
  float *row = malloc((size_t)columns * sizeof *row);
  if (!row) return false;
  *largest = 0;
  for (int64_t i = 0; i < rows; i++) {
    read_row(matrix, i, row);
    *largest = fmaxf(*largest, largest_of(row, columns));
  }
  free(row);
  return true;
}

/* The factor is at least the smallest normal number. A smaller one loses bits or is 0, and a division by it would give
 * infinity or NaN. */
static float factor_of(float largest, float most) { return largest > 0 ? fmaxf(largest / most, FLT_MIN) : 1; }

float nvfp4_scale_of(float largest) { return factor_of(largest, E2M1_MAX * E4M3_MAX); }

/* ---- Rounding ---------------------------------------------------------------------------------------------------- */

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* Drops the lowest bits of a number, rounding to nearest, ties to even. A carry goes into the exponent. */
static uint32_t drop(uint32_t bits, uint32_t count) {
  return (bits + ((1u << (count - 1)) - 1) + (bits >> count & 1)) >> count;
}

static uint16_t to_bf16(float value) { return (uint16_t)(isnan(value) ? 0x7fc0 : drop(bits_of(value), 16)); }

static uint16_t to_f16(float value) {
  uint16_t sign = (uint16_t)(signbit(value) ? 0x8000 : 0);
  float magnitude = fabsf(value);
  if (isnan(value)) return 0x7e00;
  if (magnitude >= 65520) return sign | 0x7c00;
  if (magnitude < 0x1p-14f) return sign | (uint16_t)nearbyintf(magnitude * 0x1p24f);
  return (uint16_t)(sign | (drop(bits_of(magnitude), 13) - (112u << 10)));
}

/* Saturates at 448, which has the code 0x7e; 0x7f is NaN. */
static uint8_t to_e4m3(float value) {
  uint8_t sign = signbit(value) ? 0x80 : 0;
  float magnitude = fabsf(value);
  if (isnan(value)) return 0x7f;
  if (magnitude >= E4M3_MAX) return sign | 0x7e;
  if (magnitude < 0x1p-6f) return sign | (uint8_t)nearbyintf(magnitude * 0x1p9f);
  return (uint8_t)(sign | (drop(bits_of(magnitude), 20) - (120u << 3)));
}

static float of_e4m3(uint8_t code) {
  int exponent = code >> 3 & 15, fraction = code & 7;
  return exponent ? ldexpf((float)(8 + fraction), exponent - 10) : ldexpf((float)fraction, -9);
}

/* The values are 0, 0.5, 1, 1.5, 2, 3, 4, 6. A number in the middle of two gets the even code. */
static uint8_t to_e2m1(float value) {
  float magnitude = fabsf(value);
  int code = (magnitude > 0.25f) + (magnitude >= 0.75f) + (magnitude > 1.25f) + (magnitude >= 1.75f) +
             (magnitude > 2.5f) + (magnitude >= 3.5f) + (magnitude > 5.0f);
  return (uint8_t)(code | (signbit(value) ? 8 : 0));
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* Row `row` of *packed, with `columns` values. */
struct target {
  struct packed *packed;
  int64_t row, columns;
  float global_scale;
};

static void pack_f32(const struct target *target, const float *values) {
  memcpy((float *)target->packed->data + target->row * target->columns, values,
         (size_t)target->columns * sizeof *values);
}

static void pack_16(const struct target *target, const float *values, uint16_t (*round)(float)) {
  uint16_t *out = (uint16_t *)target->packed->data + target->row * target->columns;
  for (int64_t i = 0; i < target->columns; i++) out[i] = round(values[i]);
}

static void pack_e4m3(const struct target *target, const float *values) {
  uint8_t *out = (uint8_t *)target->packed->data + target->row * target->columns;
  float scale = factor_of(largest_of(values, target->columns), E4M3_MAX);
  ((float *)target->packed->scales)[target->row] = scale;
  for (int64_t i = 0; i < target->columns; i++) out[i] = to_e4m3(values[i] / scale);
}

static void pack_nvfp4(const struct target *target, const float *values) {
  uint8_t *codes = (uint8_t *)target->packed->data + target->row * target->columns / 2;
  uint8_t *scales = (uint8_t *)target->packed->scales + target->row * target->columns / BLOCK;
  for (int64_t block = 0; block < target->columns / BLOCK; block++, values += BLOCK, codes += BLOCK / 2) {
    scales[block] = to_e4m3(largest_of(values, BLOCK) / (E2M1_MAX * target->global_scale));
    float divisor = of_e4m3(scales[block]) * target->global_scale;
    for (int i = 0; i < BLOCK; i += 2) {
      uint8_t low = divisor > 0 ? to_e2m1(values[i] / divisor) : 0;
      uint8_t high = divisor > 0 ? to_e2m1(values[i + 1] / divisor) : 0;
      codes[i / 2] = (uint8_t)(low | high << 4);
    }
  }
}

static void pack_row(const struct target *target, rondo_dtype dtype, const float *values) {
  switch (dtype) {
  case RONDO_NVFP4:
    pack_nvfp4(target, values);
    break;
  case RONDO_E4M3:
    pack_e4m3(target, values);
    break;
  case RONDO_BF16:
    pack_16(target, values, to_bf16);
    break;
  case RONDO_F16:
    pack_16(target, values, to_f16);
    break;
  default:
    pack_f32(target, values);
    break;
  }
}

/* Magnitudes from this one on are rounded to infinity. */
static float limit_of(rondo_dtype dtype) {
  return dtype == RONDO_BF16 ? 0x1.ffp127f : dtype == RONDO_F16 ? 65520.0f : INFINITY;
}

/* Can the type express all elements? */
static bool row_fits(const struct matrix *matrix, int64_t row, const float *values, float limit,
                     struct weight_fault *fault) {
  int64_t columns = matrix_columns(matrix), fitting = 0;
  for (int64_t i = 0; i < columns; i++) fitting += fabsf(values[i]) < limit; /* not NaN either */
  if (fitting == columns) return true;
  int64_t column = 0;
  while (fabsf(values[column]) < limit) column++;
  const struct gguf_tensor *tensor = part_of(matrix, &row);
  *fault = (struct weight_fault){tensor, row, column, values[column]};
  return false;
}

bool matrix_pack(const struct matrix *matrix, rondo_dtype dtype, float global_scale, struct packed *packed,
                 struct weight_fault *fault) {
  *fault = (struct weight_fault){0};
  int64_t rows = matrix_rows(matrix), columns = matrix_columns(matrix);
  *packed = (struct packed){.data_bytes = (uint64_t)(rows * columns) * rondo_dtype_bits(dtype) / 8};
  if (dtype == RONDO_E4M3) packed->scale_bytes = (uint64_t)rows * sizeof(float);
  if (dtype == RONDO_NVFP4) packed->scale_bytes = (uint64_t)(rows * columns) / BLOCK;
  float *values = malloc((size_t)columns * sizeof *values);
  packed->data = malloc(packed->data_bytes);
  packed->scales = malloc(packed->scale_bytes + 1);
  bool fine = values && packed->data && packed->scales;
  for (int64_t row = 0; row < rows && fine; row++) {
    read_row(matrix, row, values);
    fine = row_fits(matrix, row, values, limit_of(dtype), fault);
    if (fine) pack_row(&(struct target){packed, row, columns, global_scale}, dtype, values);
  }
  free(values);
  if (!fine) packed_free(packed);
  return fine;
}

void packed_free(struct packed *packed) {
  free(packed->data);
  free(packed->scales);
  memset(packed, 0, sizeof *packed);
}
