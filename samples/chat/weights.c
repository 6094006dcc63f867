/* weights.c - converts matrices (weights.h). A row is converted through fp32; there is never a whole matrix in fp32. */
#include "weights.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dequantize.h"
#include "rounding.h"

enum { BLOCK = 16 };

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

static void pack_bf16(const struct target *target, const float *values) {
  uint16_t *out = (uint16_t *)target->packed->data + target->row * target->columns;
  for (int64_t i = 0; i < target->columns; i++) out[i] = to_bf16(values[i]);
}

static void pack_f16(const struct target *target, const float *values) {
  uint16_t *out = (uint16_t *)target->packed->data + target->row * target->columns;
  for (int64_t i = 0; i < target->columns; i++) out[i] = to_f16(values[i]);
}

static void pack_e4m3(const struct target *target, const float *values) {
  uint8_t *out = (uint8_t *)target->packed->data + target->row * target->columns;
  float scale = factor_of(largest_of(values, target->columns), E4M3_MAX);
  ((float *)target->packed->scales)[target->row] = scale;
  for (int64_t i = 0; i < target->columns; i++) out[i] = to_e4m3(values[i] / scale);
}

/* The codes of a block's values with a scale factor, and the sum of the squared errors. */
struct rounded {
  uint8_t scale, codes[BLOCK];
  float error;
};

static struct rounded round_block(const float *values, uint8_t scale, float global_scale) {
  struct rounded rounded = {.scale = scale};
  float divisor = of_e4m3(scale) * global_scale;
  for (int i = 0; i < BLOCK; i++) {
    rounded.codes[i] = divisor > 0 ? to_e2m1(values[i] / divisor) : 0;
    float error = values[i] - of_e2m1(rounded.codes[i]) * divisor;
    rounded.error += error * error;
  }
  return rounded;
}

/* The largest magnitude of a block becomes 6 or 4, whichever has the smaller error: between 4 and 6 there is no code
 * ("Four Over Six", arXiv 2512.02010). */
static struct rounded round_better(const float *values, float global_scale) {
  float largest = largest_of(values, BLOCK);
  struct rounded six = round_block(values, to_e4m3(largest / (6 * global_scale)), global_scale);
  struct rounded four = round_block(values, to_e4m3(largest / (4 * global_scale)), global_scale);
  return four.error < six.error ? four : six;
}

static void put_block(const struct target *target, int64_t block, const struct rounded *rounded) {
  uint8_t *codes = (uint8_t *)target->packed->data + (target->row * target->columns + block * BLOCK) / 2;
  uint8_t *scales = (uint8_t *)target->packed->scales + target->row * target->columns / BLOCK;
  scales[block] = rounded->scale;
  for (int64_t i = 0; i < BLOCK / 2; i++) codes[i] = (uint8_t)(rounded->codes[2 * i] | rounded->codes[2 * i + 1] << 4);
}

static void pack_nvfp4(const struct target *target, const float *values) {
  for (int64_t block = 0; block < target->columns / BLOCK; block++) {
    struct rounded rounded = round_better(values + block * BLOCK, target->global_scale);
    put_block(target, block, &rounded);
  }
}

/* A row that has these codes and scale factors already, in the file's order. */
static void copy_nvfp4(const struct target *target, const struct gguf_tensor *tensor, int64_t row) {
  for (int64_t block = 0; block < target->columns / BLOCK; block++) {
    struct rounded rounded;
    rounded.scale = nvfp4_block(tensor, row, block, rounded.codes);
    put_block(target, block, &rounded);
  }
}

static void pack_row(const struct target *target, const struct matrix *matrix, rondo_dtype dtype, const float *values) {
  int64_t row = target->row;
  const struct gguf_tensor *tensor = part_of(matrix, &row);
  switch (dtype) {
  case RONDO_NVFP4:
    if (tensor->type == GGUF_TYPE_NVFP4 && tensor->factor == target->global_scale)
      copy_nvfp4(target, tensor, row);
    else
      pack_nvfp4(target, values);
    break;
  case RONDO_E4M3:
    pack_e4m3(target, values);
    break;
  case RONDO_BF16:
    pack_bf16(target, values);
    break;
  case RONDO_F16:
    pack_f16(target, values);
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
  int64_t columns = matrix_columns(matrix);
  int unfit = 0;
  for (int64_t i = 0; i < columns; i++) unfit |= !(fabsf(values[i]) < limit); /* NaN too */
  if (!unfit) return true;
  int64_t column = 0;
  while (fabsf(values[column]) < limit) column++;
  const struct gguf_tensor *tensor = part_of(matrix, &row);
  *fault = (struct weight_fault){tensor, row, column, values[column]};
  return false;
}

/* A row in bf16 that stays so. False if it has an element that is infinite or NaN. */
static bool copy_bf16(const struct target *target, const struct gguf_tensor *tensor, int64_t row) {
  const uint8_t *from = tensor->data + (uint64_t)row * tensor->row_bytes;
  uint16_t *to = (uint16_t *)target->packed->data + target->row * target->columns, unfit = 0;
  memcpy(to, from, (size_t)target->columns * sizeof *to);
  for (int64_t i = 0; i < target->columns; i++) unfit |= (uint16_t)((to[i] & 0x7f80) == 0x7f80);
  return !unfit;
}

/* ---- Matrices ---------------------------------------------------------------------------------------------------- */

/* A thread's rows. */
struct share {
  const struct matrix *matrix;
  rondo_dtype dtype;
  float global_scale;
  struct packed *packed;
  int64_t first, end;
  struct weight_fault fault;
  bool fine;
};

static void *share_pack(void *user) {
  struct share *share = user;
  const struct matrix *matrix = share->matrix;
  struct target target = {share->packed, share->first, matrix_columns(matrix), share->global_scale};
  float *values = malloc((size_t)target.columns * sizeof *values);
  share->fine = values != NULL;
  for (; target.row < share->end && share->fine; target.row++) {
    int64_t row = target.row;
    const struct gguf_tensor *tensor = part_of(matrix, &row);
    const bool stays = tensor->type == GGUF_TYPE_BF16 && share->dtype == RONDO_BF16;
    if (stays && copy_bf16(&target, tensor, row)) continue;
    read_row(matrix, target.row, values);
    share->fine = row_fits(matrix, target.row, values, limit_of(share->dtype), &share->fault);
    if (share->fine) pack_row(&target, matrix, share->dtype, values);
  }
  free(values);
  return NULL;
}

static bool pack_all(const struct share *whole, struct weight_fault *fault) {
  enum { THREADS_MOST = 16, ELEMENTS_OF_A_THREAD = 1 << 18 };
  pthread_t threads[THREADS_MOST];
  struct share shares[THREADS_MOST];
  bool runs[THREADS_MOST] = {false}, fine = true;
  const int64_t elements = whole->end * matrix_columns(whole->matrix);
  int64_t count = sysconf(_SC_NPROCESSORS_ONLN);
  if (count > THREADS_MOST) count = THREADS_MOST;
  if (count > elements / ELEMENTS_OF_A_THREAD) count = elements / ELEMENTS_OF_A_THREAD;
  if (count < 1) count = 1;
  for (int64_t i = 0; i < count; i++) {
    shares[i] = *whole;
    shares[i].first = whole->end * i / count;
    shares[i].end = whole->end * (i + 1) / count;
    runs[i] = i > 0 && pthread_create(&threads[i], NULL, share_pack, &shares[i]) == 0;
  }
  for (int64_t i = 0; i < count; i++) {
    if (runs[i])
      pthread_join(threads[i], NULL);
    else
      share_pack(&shares[i]);
    if (!shares[i].fine && fine) *fault = shares[i].fault; /* of the first row */
    fine = fine && shares[i].fine;
  }
  return fine;
}

bool matrix_pack(const struct matrix *matrix, rondo_dtype dtype, float global_scale, struct packed *packed,
                 struct weight_fault *fault) {
  *fault = (struct weight_fault){0};
  int64_t rows = matrix_rows(matrix), columns = matrix_columns(matrix);
  *packed = (struct packed){.data_bytes = (uint64_t)(rows * columns) * rondo_dtype_bits(dtype) / 8};
  if (dtype == RONDO_E4M3) packed->scale_bytes = (uint64_t)rows * sizeof(float);
  if (dtype == RONDO_NVFP4) packed->scale_bytes = (uint64_t)(rows * columns) / BLOCK;
  packed->data = malloc(packed->data_bytes);
  packed->scales = malloc(packed->scale_bytes + 1);
  const struct share whole = {
      .matrix = matrix, .dtype = dtype, .global_scale = global_scale, .packed = packed, .end = rows};
  const bool fine = packed->data && packed->scales && pack_all(&whole, fault);
  if (!fine) packed_free(packed);
  return fine;
}

void packed_free(struct packed *packed) {
  free(packed->data);
  free(packed->scales);
  memset(packed, 0, sizeof *packed);
}
