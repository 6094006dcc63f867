/* gemv_finish_host.c - from sums to what a product writes, on the host: the order of gemv_finish.cuh. */
#include <immintrin.h>
#include <string.h>

#include "../common/exponential.h"
#include "../common/rows.h"
#include "gemv.h"

static void load(const struct op_call *call, uint32_t index, int64_t element, int64_t count, float *values) {
  rows_load(call->task->operands[index].dtype, call->data[index], element, count, values);
}

/* The element with which a matrix's values for its rows begin: [batch, m], or [m] for all. */
static int64_t matrix_begin(const struct op_operand *operand, int64_t batch) {
  return operand->rank == 2 ? batch * operand->stride[0] : 0;
}

static int64_t vector_begin(const struct op_operand *operand, int64_t batch, int64_t vector) {
  return batch * gemv_batch_stride(operand) + vector * operand->stride[operand->rank - 2];
}

static void store(const struct op_call *call, int64_t element, const float *values, int64_t count) {
  const rondo_dtype dtype = call->task->operands[GEMV_OUT].dtype;
  uint16_t *halves = (uint16_t *)call->data[GEMV_OUT] + element;
  if (dtype == RONDO_F16) /* by the processor's instruction, which is faster than rows_store */
    for (int64_t i = 0; i < count; i++) halves[i] = _cvtss_sh(values[i], _MM_FROUND_TO_NEAREST_INT);
  else
    rows_store(dtype, call->data[GEMV_OUT], element, count, values);
}

/* Pairs of gate and up become silu(gate) * up. */
static void gate(float *sums, int64_t columns) {
  enum { LANES = 8 };
  float gates[GEMV_HOST_ROWS / 2] = {0}, ups[GEMV_HOST_ROWS / 2] = {0};
  for (int64_t i = 0; i < columns; i++) gates[i] = sums[2 * i], ups[i] = sums[2 * i + 1];
  for (int64_t i = 0; i < columns; i += LANES) {
    const __m256 of = _mm256_loadu_ps(gates + i), one = _mm256_set1_ps(1.0f);
    const __m256 divisor = _mm256_add_ps(one, exponential_e(_mm256_xor_ps(of, _mm256_set1_ps(-0.0f))));
    _mm256_storeu_ps(gates + i, _mm256_mul_ps(_mm256_div_ps(of, divisor), _mm256_loadu_ps(ups + i)));
  }
  memcpy(sums, gates, (size_t)columns * sizeof *sums);
}

/* `element` and `scale`: where the codes and the scales of these blocks begin. */
static void store_quantised(const struct op_call *call, int64_t element, int64_t scale, const float *values,
                            int64_t count) {
  const struct gemv_attributes *attributes = op_attributes(call->task);
  float global_scale = attributes->out_global_scale == 0 ? 1.0f : attributes->out_global_scale;
  uint8_t *codes = (uint8_t *)call->data[GEMV_OUT] + element / 2, *scales = call->data[GEMV_OUT_SCALES];
  for (int64_t block = 0; block < count / GEMV_BLOCK; block++)
    scales[scale + block] =
        quantize_host_block(values + block * GEMV_BLOCK, global_scale, codes + block * GEMV_BLOCK / 2);
}

void gemv_host_finish(const struct op_call *call, int64_t batch, int64_t vector, int64_t first_row, int64_t rows,
                      float factor, float *restrict sums) {
  float others[GEMV_HOST_ROWS];
  const struct op_operand *operands = call->task->operands;
  const struct gemv_attributes *attributes = op_attributes(call->task);
  int64_t columns = rows, first_column = first_row;
  if (operands[GEMV_WEIGHTS].dtype == RONDO_E4M3 && operands[GEMV_WEIGHT_SCALES].present) {
    int64_t begin = matrix_begin(&operands[GEMV_WEIGHT_SCALES], batch) + first_row;
    load(call, GEMV_WEIGHT_SCALES, begin, rows, others);
    for (int64_t i = 0; i < rows; i++) sums[i] *= others[i];
  }
  for (int64_t i = 0; i < rows; i++) sums[i] *= factor;
  if (operands[GEMV_BIAS].present) {
    int64_t begin = matrix_begin(&operands[GEMV_BIAS], batch) + first_row;
    load(call, GEMV_BIAS, begin, rows, others);
    for (int64_t i = 0; i < rows; i++) sums[i] += others[i];
  }
  if (attributes->silu_mul) {
    columns /= 2, first_column /= 2;
    gate(sums, columns);
  }
  if (operands[GEMV_RESIDUAL].present) {
    int64_t begin = vector_begin(&operands[GEMV_RESIDUAL], batch, vector) + first_column;
    load(call, GEMV_RESIDUAL, begin, columns, others);
    for (int64_t i = 0; i < columns; i++) sums[i] += others[i];
  }
  int64_t element = vector_begin(&operands[GEMV_OUT], batch, vector) + first_column;
  if (!operands[GEMV_OUT_SCALES].present) {
    store(call, element, sums, columns);
  } else {
    int64_t scale = vector_begin(&operands[GEMV_OUT_SCALES], batch, vector) + first_column / GEMV_BLOCK;
    store_quantised(call, element, scale, sums, columns);
  }
}
