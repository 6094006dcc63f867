/* gemv_host.c - products with vectors on the host: an item is up to eight rows of one matrix.
 *
 * Tiles of k are decoded to fp32, with the NVFP4 scales multiplied in: e2m1 times e4m3 is exact there, and so is each
 * product of such a weight with a 16-bit or NVFP4 element. Sums run in sixteen lanes, element i in lane i % 16. */
#include <math.h>
#include <string.h>

#include "../../runtime/integer.h"
#include "../common/number.h"
#include "gemv.h"

enum { ROWS = 8, TILE = 256, LANES = 16 };

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

/* The address of element `column` of row `row`; column is even for nvfp4. */
static const unsigned char *place(const struct op_call *call, uint32_t index, int64_t batch, int64_t row,
                                  int64_t column) {
  const struct op_operand *operand = &call->task->operands[index];
  int64_t element = batch * gemv_batch_stride(operand) + row * operand->stride[operand->rank - 2] + column;
  return (const unsigned char *)call->data[index] + element * (int64_t)rondo_dtype_bits(operand->dtype) / 8;
}

static void decode_nvfp4(float *tile, const unsigned char *codes, const unsigned char *scales, int64_t length) {
  for (int64_t block = 0; block < length / GEMV_BLOCK; block++) {
    float scale = f32_of_e4m3(scales[block]);
    for (int64_t i = 0; i < GEMV_BLOCK; i += 2) {
      unsigned char pair = codes[(block * GEMV_BLOCK + i) / 2];
      tile[block * GEMV_BLOCK + i] = f32_of_e2m1(pair & 15u) * scale;
      tile[block * GEMV_BLOCK + i + 1] = f32_of_e2m1(pair >> 4) * scale;
    }
  }
}

/* Columns [column, column + length) of a row, filled up with zeros. */
static void decode(const struct op_call *call, uint32_t index, int64_t batch, int64_t row, int64_t column,
                   int64_t length, float *tile) {
  const unsigned char *data = place(call, index, batch, row, column);
  switch (call->task->operands[index].dtype) {
  case RONDO_F16:
    for (int64_t i = 0; i < length; i++) tile[i] = f32_of_f16(((const uint16_t *)(const void *)data)[i]);
    break;
  case RONDO_BF16:
    for (int64_t i = 0; i < length; i++) tile[i] = f32_of_bf16(((const uint16_t *)(const void *)data)[i]);
    break;
  case RONDO_E4M3:
    for (int64_t i = 0; i < length; i++) tile[i] = f32_of_e4m3(data[i]);
    break;
  default: /* nvfp4: the scales are the next operand */
    decode_nvfp4(tile, data, place(call, index + 1, batch, row, column / GEMV_BLOCK), length);
    break;
  }
  for (int64_t i = length; i < TILE; i++) tile[i] = 0;
}

static void accumulate(float *restrict sums, const float *restrict weights, const float *restrict vector,
                       int64_t length) {
  for (int64_t i = 0; i < length; i += LANES)
    for (int64_t lane = 0; lane < LANES; lane++) sums[lane] = fmaf(weights[i + lane], vector[i + lane], sums[lane]);
}

static float sum_of(const float *sums) {
  float sum = 0;
  for (int lane = 0; lane < LANES; lane++) sum += sums[lane];
  return sum;
}

static void store(const struct op_call *call, int64_t batch, int64_t vector, int64_t row, float sum) {
  const struct op_task *task = call->task;
  const struct op_operand *scales = &task->operands[GEMV_WEIGHT_SCALES], *out = &task->operands[GEMV_OUT];
  if (task->operands[GEMV_WEIGHTS].dtype == RONDO_E4M3 && scales->present)
    sum *= ((const float *)call->data[GEMV_WEIGHT_SCALES])[batch * (scales->rank == 2 ? scales->stride[0] : 0) + row];
  const struct gemv_attributes *attributes = op_attributes(task);
  sum *= attributes->scale;
  int64_t element = batch * gemv_batch_stride(out) + vector * out->stride[out->rank - 2] + row;
  if (out->dtype == RONDO_F16)
    ((uint16_t *)call->data[GEMV_OUT])[element] = f16_of_f32(sum);
  else if (out->dtype == RONDO_BF16)
    ((uint16_t *)call->data[GEMV_OUT])[element] = bf16_of_f32(sum);
  else
    ((float *)call->data[GEMV_OUT])[element] = sum;
}

static void run_group(const struct work *work, int64_t batch, int64_t first_row) {
  int64_t rows = work->shape.m - first_row < ROWS ? work->shape.m - first_row : ROWS, count = work->shape.count;
  float sums[ROWS][GEMV_COUNT][LANES] = {0};
  float vectors[GEMV_COUNT][TILE], weights[TILE];
  for (int64_t column = 0; column < work->shape.k; column += TILE) {
    int64_t length = work->shape.k - column < TILE ? work->shape.k - column : TILE;
    int64_t padded = divide_up(length, LANES) * LANES;
    for (int64_t v = 0; v < count; v++) decode(work->call, GEMV_VECTORS, batch, v, column, length, vectors[v]);
    for (int64_t r = 0; r < rows; r++) {
      decode(work->call, GEMV_WEIGHTS, batch, first_row + r, column, length, weights);
      for (int64_t v = 0; v < count; v++) accumulate(sums[r][v], weights, vectors[v], padded);
    }
  }
  for (int64_t r = 0; r < rows; r++)
    for (int64_t v = 0; v < count; v++) store(work->call, batch, v, first_row + r, sum_of(sums[r][v]));
}

void gemv_host_run(const struct op_call *call, int64_t first, int64_t last) {
  struct work work = work_of(call, call->task);
  for (int64_t item = first; item < last; item++) run_group(&work, item / work.groups, item % work.groups * ROWS);
}
