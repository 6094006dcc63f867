/* rows.h - operands on the host as rows along their last dimension. rows_load converts numbers of a row to f32;
 * rows_store converts them back to the operand's type. */
#pragma once

#include "../../runtime/op.h"
#include "number.h"

static inline bool rows_are_numbers(rondo_dtype dtype) {
  return dtype == RONDO_F32 || dtype == RONDO_F16 || dtype == RONDO_BF16;
}

/* The number of rows, also of rows of length 0. */
static inline int64_t rows_count(const struct op_operand *operand) {
  int64_t rows = 1;
  for (uint32_t i = 0; i + 1 < operand->rank; i++) rows *= operand->shape[i];
  return rows;
}

/* The index of the first element of row number `row`. */
static inline int64_t rows_begin(const struct op_operand *operand, int64_t row) {
  int64_t element = 0;
  for (uint32_t i = operand->rank - 1; i-- > 0; row /= operand->shape[i])
    element += row % operand->shape[i] * operand->stride[i];
  return element;
}

static inline void rows_load(rondo_dtype dtype, const void *data, int64_t element, int64_t count, float *values) {
  const uint16_t *halves = (const uint16_t *)data + element;
  if (dtype == RONDO_F32)
    memcpy(values, (const float *)data + element, (size_t)count * sizeof *values);
  else if (dtype == RONDO_F16)
    for (int64_t i = 0; i < count; i++) values[i] = f32_of_f16(halves[i]);
  else
    for (int64_t i = 0; i < count; i++) values[i] = f32_of_bf16(halves[i]);
}

static inline void rows_store(rondo_dtype dtype, void *data, int64_t element, int64_t count, const float *values) {
  uint16_t *halves = (uint16_t *)data + element;
  if (dtype == RONDO_F32)
    memcpy((float *)data + element, values, (size_t)count * sizeof *values);
  else if (dtype == RONDO_F16)
    for (int64_t i = 0; i < count; i++) halves[i] = f16_of_f32(values[i]);
  else
    for (int64_t i = 0; i < count; i++) halves[i] = bf16_of_f32(values[i]);
}
