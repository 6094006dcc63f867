/* gemv_host.c - products with vectors on the host: an item is up to 32 rows of one matrix.
 *
 * Vectors are decoded to fp32, as far as there is room, once for all items that follow each other; weights where they
 * are multiplied (gemv_panel_loops.h): e2m1 times e4m3 is exact in fp32, and so is each product of such a weight with a
 * 16-bit or NVFP4 element. Sums run in sixteen lanes; so do the squares of an RMS norm, which each thread adds up for
 * itself. */
#include <assert.h>
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "../../runtime/integer.h"
#include "../common/number.h"
#include "gemv.h"
#include "gemv_panel_loops.h"

enum {
  ROOM = 24 * 1024, /* elements of vectors that are decoded */
  SUMMED_ROWS = 8,
};

struct work {
  const struct op_call *call;
  struct gemv_shape shape;
  void (*multiply)(const struct gemv_panel *panel);
  /* Columns [column, column + columns) of the vectors of matrix `batch`, in the order of decoded weights. */
  int64_t batch, column, columns, pitch;
  _Alignas(PANEL_ALIGNMENT) float vectors[ROOM];
  _Alignas(PANEL_ALIGNMENT) float squares[GEMV_COUNT][PANEL_LANES];
};

void gemv_panel_256(const struct gemv_panel *panel) { multiply(panel); }

int64_t gemv_host_items(const struct op_task *task) {
  struct gemv_shape shape = gemv_shape_of(task);
  return shape.batch * divide_up(shape.m, GEMV_HOST_ROWS);
}

/* ---- Vectors ---------------------------------------------------------------------------------------------------- */

/* The address of element `column` of row `row`; column is even for nvfp4. */
static const unsigned char *place(const struct op_call *call, uint32_t index, int64_t batch, int64_t row,
                                  int64_t column) {
  const struct op_operand *operand = &call->task->operands[index];
  int64_t element = batch * gemv_batch_stride(operand) + row * operand->stride[operand->rank - 2] + column;
  return (const unsigned char *)call->data[index] + panel_bytes(operand->dtype, element);
}

/* Where a panel's elements lie; there is one operand of scales behind each that may be nvfp4. */
static struct gemv_panel panel_of(const struct op_call *call, uint32_t index, int64_t batch, int64_t row,
                                  int64_t column, int64_t columns) {
  const struct gemv_attributes *attributes = op_attributes(call->task);
  const struct op_operand *operand = &call->task->operands[index], *scales = operand + 1;
  struct gemv_panel panel = {.dtype = operand->dtype,
                             .weights = place(call, index, batch, row, column),
                             .row_bytes = panel_bytes(operand->dtype, operand->stride[operand->rank - 2]),
                             .first_row = row,
                             .first_column = column,
                             .rows = 1,
                             .columns = columns};
  if (operand->dtype != RONDO_NVFP4) return panel;
  panel.scales = place(call, index + 1, batch, 0, 0);
  panel.scale_layout =
      (rondo_scale_layout)(index == GEMV_WEIGHTS ? attributes->weight_scale_layout : attributes->vector_scale_layout);
  panel.scale_row_bytes =
      panel.scale_layout == RONDO_SCALES_BY_ROW ? scales->stride[scales->rank - 2] : scales->shape[scales->rank - 1];
  return panel;
}

ALWAYS_INLINE void decode_typed(const struct gemv_panel *panel, rondo_dtype dtype, float *tile, int64_t pitch) {
  struct strip strip;
  for (int64_t row = 0; row < panel->rows; row++)
    for (int64_t column = 0; column < panel->columns; column += CHUNK) {
      strip_begin(&strip, panel, dtype, 1, row, column);
      strip_decode(&strip, dtype, 0, false, tile + row * pitch + column);
    }
}

/* Rows, filled up with zeros to whole steps. */
static void decode(const struct gemv_panel *panel, float *tile, int64_t pitch) {
  assert(panel->dtype == RONDO_F16 || panel->dtype == RONDO_BF16 || panel->dtype == RONDO_E4M3 || panel->scales);
  if (panel->dtype == RONDO_F16)
    decode_typed(panel, RONDO_F16, tile, pitch);
  else if (panel->dtype == RONDO_BF16)
    decode_typed(panel, RONDO_BF16, tile, pitch);
  else if (panel->dtype == RONDO_E4M3)
    decode_typed(panel, RONDO_E4M3, tile, pitch);
  else
    decode_typed(panel, RONDO_NVFP4, tile, pitch);
}

static void add_squares(float *squares, const float *tile, int64_t columns) {
  lanes sums = lanes_load(squares);
  for (int64_t i = 0; i < columns; i += PANEL_LANES) sums = lanes_fma(lanes_load(tile + i), lanes_load(tile + i), sums);
  lanes_store(squares, sums);
}

static __m256 rounded_to_f16(__m256 a) {
  return _mm256_cvtph_ps(_mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* x times the norm's weights, rounded to the vectors' type. */
static void apply_norm(const struct work *work, float *tile) {
  _Alignas(PANEL_ALIGNMENT) float norm[CHUNK];
  rondo_dtype dtype = work->call->task->operands[GEMV_NORM].dtype;
  for (int64_t begin = 0; begin < work->columns; begin += CHUNK, tile += CHUNK) {
    int64_t columns = smaller(work->columns - begin, CHUNK), padded = round_up(columns, PANEL_STEP);
    const uint16_t *weights = (const uint16_t *)work->call->data[GEMV_NORM] + work->column + begin;
    decode(&(struct gemv_panel){.dtype = dtype, .weights = (const void *)weights, .rows = 1, .columns = columns}, norm,
           CHUNK);
    for (int64_t i = 0; i < padded; i++) tile[i] *= norm[i];
    if (dtype == RONDO_F16)
      for (int64_t i = 0; i < padded; i += 8) _mm256_store_ps(tile + i, rounded_to_f16(_mm256_load_ps(tile + i)));
    else
      for (int64_t i = 0; i < padded; i++) tile[i] = f32_of_bf16(bf16_of_f32(tile[i]));
  }
}

/* From one order of each step to the other. */
static void reorder(float *tile, int64_t columns, bool interleave) {
  for (float *step = tile; step < tile + columns; step += PANEL_STEP) {
    float before[PANEL_STEP];
    memcpy(before, step, sizeof before);
    for (int i = 0; i < PANEL_STEP; i++)
      step[i] = before[interleave ? i % PANEL_LANES * 2 + i / PANEL_LANES : i % 2 * PANEL_LANES + i / 2];
  }
}

void gemv_host_decode(const struct op_call *call, uint32_t index, int64_t batch, int64_t row, int64_t rows,
                      int64_t column, int64_t columns, float *tile, int64_t pitch) {
  struct gemv_panel panel = panel_of(call, index, batch, row, column, columns);
  const bool interleaved = panel_is_interleaved(call->task->operands[GEMV_WEIGHTS].dtype);
  panel.rows = rows;
  decode(&panel, tile, pitch);
  if (panel_is_interleaved(panel.dtype) == interleaved) return;
  for (int64_t r = 0; r < rows; r++) reorder(tile + r * pitch, round_up(columns, PANEL_STEP), interleaved);
}

/* Decodes the columns that begin with `column`, unless they are there. */
static void prepare(struct work *work, int64_t batch, int64_t column) {
  const struct op_operand *operands = work->call->task->operands;
  const struct gemv_attributes *attributes = op_attributes(work->call->task);
  bool interleaved = panel_is_interleaved(operands[GEMV_WEIGHTS].dtype);
  if (work->batch == batch && work->column == column) return;
  work->batch = batch;
  work->column = column;
  work->columns = smaller(work->shape.k - column, work->pitch);
  if (column == 0) memset(work->squares, 0, sizeof work->squares);
  for (int64_t v = 0; v < work->shape.count; v++) {
    float *tile = work->vectors + v * work->pitch;
    int64_t padded = round_up(work->columns, PANEL_STEP);
    struct gemv_panel vector = panel_of(work->call, GEMV_VECTORS, batch, v, column, work->columns);
    decode(&vector, tile, work->pitch);
    if (attributes->norm_epsilon > 0) add_squares(work->squares[v], tile, padded);
    if (operands[GEMV_NORM].present) apply_norm(work, tile);
    if (panel_is_interleaved(vector.dtype) != interleaved) reorder(tile, padded, interleaved);
  }
}

/* ---- Rows ------------------------------------------------------------------------------------------------------- */

/* Of eight sums that lie `pitch` apart: lanes i and i + 8, then neighbours, then the halves of what is left. */
static __m256 sums_of_eight(const float *sums, int64_t pitch) {
  __m256 eight[SUMMED_ROWS], two[SUMMED_ROWS / 2];
  for (int64_t i = 0; i < SUMMED_ROWS; i++)
    eight[i] = _mm256_add_ps(_mm256_load_ps(sums + i * pitch), _mm256_load_ps(sums + i * pitch + 8));
  for (int64_t i = 0; i < SUMMED_ROWS / 2; i++) two[i] = _mm256_hadd_ps(eight[2 * i], eight[2 * i + 1]);
  __m256 low = _mm256_hadd_ps(two[0], two[1]), high = _mm256_hadd_ps(two[2], two[3]);
  return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
}

/* 1 / sqrt(mean of the squares + epsilon). */
static void find_factors(const struct work *work, float epsilon, float *factors) {
  for (int v = 0; v < GEMV_COUNT; v += SUMMED_ROWS)
    _mm256_storeu_ps(factors + v, sums_of_eight(work->squares[v], PANEL_LANES));
  for (int64_t v = 0; v < work->shape.count; v++)
    factors[v] = 1.0f / sqrtf(factors[v] / (float)larger(work->shape.k, 1) + epsilon);
}

/* Sums of rows [first_row, first_row + rows), times the unit of the weights, to results[vector * GEMV_HOST_ROWS] on. */
static void sum_rows(struct work *work, int64_t batch, int64_t first_row, int64_t rows, float *results) {
  const int64_t places = round_up(work->shape.count, PANEL_VECTORS), row_pitch = places * PANEL_LANES;
  const float unit = panel_unit(work->call->task->operands[GEMV_WEIGHTS].dtype);
  _Alignas(PANEL_ALIGNMENT) float sums[GEMV_HOST_ROWS * GEMV_COUNT * PANEL_LANES];
  memset(sums, 0, (size_t)(round_up(rows, SUMMED_ROWS) * row_pitch) * sizeof *sums);
  for (int64_t column = 0; column < work->shape.k; column += work->pitch) {
    prepare(work, batch, column);
    struct gemv_panel panel = panel_of(work->call, GEMV_WEIGHTS, batch, first_row, column, work->columns);
    panel.rows = rows;
    panel.count = work->shape.count;
    panel.vectors = work->vectors;
    panel.vector_pitch = work->pitch;
    panel.sums = sums;
    work->multiply(&panel);
  }
  for (int64_t r = 0; r < rows; r += SUMMED_ROWS)
    for (int64_t v = 0; v < work->shape.count; v++) {
      __m256 eight = sums_of_eight(sums + r * row_pitch + v * PANEL_LANES, row_pitch);
      _mm256_storeu_ps(results + v * GEMV_HOST_ROWS + r, _mm256_mul_ps(eight, _mm256_set1_ps(unit)));
    }
}

/* Few rows at a time, whose sums stay in the cache, unless the vectors had to be decoded for each. */
static void run_group(struct work *work, int64_t batch, int64_t first_row) {
  const struct gemv_attributes *attributes = op_attributes(work->call->task);
  const int64_t rows = smaller(work->shape.m - first_row, GEMV_HOST_ROWS);
  const int64_t step = work->shape.k <= work->pitch ? SUMMED_ROWS : GEMV_HOST_ROWS;
  float results[GEMV_COUNT * GEMV_HOST_ROWS], factors[GEMV_COUNT] = {0};
  for (int64_t r = 0; r < rows; r += step) sum_rows(work, batch, first_row + r, smaller(rows - r, step), results + r);
  if (attributes->norm_epsilon > 0) find_factors(work, attributes->norm_epsilon, factors);
  for (int64_t v = 0; v < work->shape.count; v++)
    gemv_host_finish(work->call, batch, v, first_row, rows,
                     attributes->norm_epsilon > 0 ? attributes->scale * factors[v] : attributes->scale,
                     results + v * GEMV_HOST_ROWS);
}

void gemv_host_run(const struct op_call *call, int64_t first, int64_t last) {
  struct work work; /* what is too large to be zeroed each time */
  work.call = call;
  work.shape = gemv_shape_of(call->task);
  work.multiply = gemv_panel_has_512() ? gemv_panel_512 : gemv_panel_256;
  work.batch = -1;
  work.column = work.columns = 0;
  int64_t places = round_up(work.shape.count, PANEL_VECTORS), groups = divide_up(work.shape.m, GEMV_HOST_ROWS);
  work.pitch = smaller(ROOM / places / PANEL_STEP, divide_up(work.shape.k, PANEL_STEP)) * PANEL_STEP;
  for (int64_t v = work.shape.count; v < places; v++)
    memset(work.vectors + v * work.pitch, 0, (size_t)work.pitch * sizeof(float));
  memset(work.squares, 0, sizeof work.squares); /* of no columns */
  for (int64_t item = first; item < last; item++) run_group(&work, item / groups, item % groups * GEMV_HOST_ROWS);
}
