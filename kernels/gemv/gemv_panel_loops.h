/* gemv_panel_loops.h - the loops of gemv_panel.h, over the lanes of gemv_lanes.h. Element i of a row goes into one lane
 * of a sum, in the order of the columns, whatever the number of vectors and rows that are multiplied together. One
 * vector is multiplied as weights are decoded; for several, a few rows are decoded once, into the cache. */
#pragma once

#include "../../runtime/integer.h"
#include "gemv_lanes.h"

enum {
  CHUNK = 1024, /* columns of rows that are decoded */
  CHUNK_BLOCKS = CHUNK / GEMV_BLOCK,
  AHEAD_BYTES = 8 * 1024, /* at least: a processor does not see itself that rows follow each other */
#ifdef LANES_512
  TILE_ROWS = PANEL_ROWS, /* sums in registers */
  TILE_VECTORS = 2 * PANEL_VECTORS,
#else
  TILE_ROWS = 2,
  TILE_VECTORS = PANEL_VECTORS,
#endif
};

/* Columns of up to four rows. */
struct strip {
  const unsigned char *weights[PANEL_ROWS];
  int64_t columns;
  int64_t ahead; /* bytes from what is loaded to what is prefetched */
  float scales[PANEL_ROWS][CHUNK_BLOCKS];
};

ALWAYS_INLINE void strip_begin(struct strip *strip, const struct gemv_panel *panel, rondo_dtype dtype, int64_t rows,
                               int64_t row, int64_t column) {
  strip->columns = smaller(panel->columns - column, CHUNK);
  strip->ahead = round_up(AHEAD_BYTES, larger(PANEL_ROWS * panel->row_bytes, 1));
  for (int64_t r = 0; r < rows; r++) {
    strip->weights[r] = panel->weights + (row + r) * panel->row_bytes + panel_bytes(dtype, column);
    if (dtype == RONDO_NVFP4)
      scales_decode(panel->scales, panel->scale_layout, panel->scale_row_bytes, panel->first_row + row + r,
                    (panel->first_column + column) / GEMV_BLOCK, strip->columns / GEMV_BLOCK, strip->scales[r]);
  }
}

/* Decodes the 32 columns from `column` on of a row of the strip. */
ALWAYS_INLINE struct step strip_step(const struct strip *strip, rondo_dtype dtype, int64_t r, int64_t column,
                                     bool prefetches) {
  const unsigned char *weights = strip->weights[r] + panel_bytes(dtype, column);
  if (prefetches) _mm_prefetch((const char *)weights + strip->ahead, _MM_HINT_T0);
  return step_of(dtype, weights, &strip->scales[r][column / GEMV_BLOCK]);
}

/* Fewer, the last of the strip, with zeros behind them; nvfp4 has one block. */
ALWAYS_INLINE struct step strip_end(const struct strip *strip, rondo_dtype dtype, int64_t r, int64_t column) {
  unsigned char copy[2 * PANEL_STEP] = {0};
  const float scales[2] = {dtype == RONDO_NVFP4 ? strip->scales[r][column / GEMV_BLOCK] : 0};
  memcpy(copy, strip->weights[r] + panel_bytes(dtype, column), (size_t)panel_bytes(dtype, strip->columns - column));
  return step_of(dtype, copy, scales);
}

/* ---- One vector -------------------------------------------------------------------------------------------------- */

ALWAYS_INLINE lanes lanes_product(struct step weights, const float *vector, lanes sums) {
  sums = lanes_fma(weights.first, lanes_load(vector), sums);
  return lanes_fma(weights.second, lanes_load(vector + PANEL_LANES), sums);
}

ALWAYS_INLINE void strip_multiply(const struct strip *strip, rondo_dtype dtype, int64_t rows, const float *vector,
                                  float *sums, int64_t sums_pitch) {
  const int64_t whole = strip->columns / PANEL_STEP * PANEL_STEP;
  lanes held[PANEL_ROWS];
  for (int64_t r = 0; r < rows; r++) held[r] = lanes_load(sums + r * sums_pitch);
  for (int64_t column = 0; column < whole; column += PANEL_STEP)
    for (int64_t r = 0; r < rows; r++)
      held[r] = lanes_product(strip_step(strip, dtype, r, column, true), vector + column, held[r]);
  if (whole < strip->columns)
    for (int64_t r = 0; r < rows; r++)
      held[r] = lanes_product(strip_end(strip, dtype, r, whole), vector + whole, held[r]);
  for (int64_t r = 0; r < rows; r++) lanes_store(sums + r * sums_pitch, held[r]);
}

ALWAYS_INLINE void multiply_one(const struct gemv_panel *panel, rondo_dtype dtype, int64_t rows, int64_t row) {
  const int64_t pitch = (int64_t)PANEL_VECTORS * PANEL_LANES;
  struct strip strip;
  for (int64_t column = 0; column < panel->columns; column += CHUNK) {
    strip_begin(&strip, panel, dtype, rows, row, column);
    strip_multiply(&strip, dtype, rows, panel->vectors + column, panel->sums + row * pitch, pitch);
  }
}

/* ---- Several ----------------------------------------------------------------------------------------------------- */

ALWAYS_INLINE void step_store(struct step step, float *decoded) {
  lanes_store(decoded, step.first);
  lanes_store(decoded + PANEL_LANES, step.second);
}

ALWAYS_INLINE void strip_decode(const struct strip *strip, rondo_dtype dtype, int64_t r, bool prefetches,
                                float *decoded) {
  const int64_t whole = strip->columns / PANEL_STEP * PANEL_STEP;
  for (int64_t column = 0; column < whole; column += PANEL_STEP)
    step_store(strip_step(strip, dtype, r, column, prefetches), decoded + column);
  if (whole < strip->columns) step_store(strip_end(strip, dtype, r, whole), decoded + whole);
}

/* Sums in registers: of `count` vectors and TILE_ROWS decoded rows. Meanwhile the row at `ahead`, of this type, comes
 * into the cache: decoding alone asks for more at a time than memory delivers. */
ALWAYS_INLINE void tile_multiply(const float (*decoded)[CHUNK], int64_t columns, const float *vectors,
                                 int64_t vector_pitch, int64_t count, float *sums, int64_t sums_pitch,
                                 rondo_dtype dtype, const unsigned char *ahead) {
  lanes held[TILE_ROWS][TILE_VECTORS];
  for (int64_t r = 0; r < TILE_ROWS; r++)
    for (int64_t v = 0; v < count; v++) held[r][v] = lanes_load(sums + r * sums_pitch + v * PANEL_LANES);
  for (int64_t column = 0; column < columns; column += PANEL_LANES) {
    _mm_prefetch((const char *)ahead + panel_bytes(dtype, column), _MM_HINT_T0);
    lanes weights[TILE_ROWS];
    for (int64_t r = 0; r < TILE_ROWS; r++) weights[r] = lanes_load(&decoded[r][column]);
    for (int64_t v = 0; v < count; v++) {
      const lanes vector = lanes_load(vectors + v * vector_pitch + column);
      for (int64_t r = 0; r < TILE_ROWS; r++) held[r][v] = lanes_fma(weights[r], vector, held[r][v]);
    }
  }
  for (int64_t r = 0; r < TILE_ROWS; r++)
    for (int64_t v = 0; v < count; v++) lanes_store(sums + r * sums_pitch + v * PANEL_LANES, held[r][v]);
}

/* Rows that are not there are zeros. Each turn of the products prefetches one row; of rows for which there are too few
 * turns their decoding does. */
ALWAYS_INLINE void multiply_several(const struct gemv_panel *panel, rondo_dtype dtype, int64_t row) {
  _Alignas(PANEL_ALIGNMENT) float decoded[PANEL_ROWS][CHUNK];
  const int64_t count = round_up(panel->count, PANEL_VECTORS), pitch = count * PANEL_LANES;
  const int64_t rows = smaller(panel->rows - row, PANEL_ROWS);
  const int64_t turns = divide_up(count, TILE_VECTORS) * PANEL_ROWS / TILE_ROWS;
  struct strip strip;
  for (int64_t column = 0; column < panel->columns; column += CHUNK) {
    strip_begin(&strip, panel, dtype, rows, row, column);
    for (int64_t r = 0; r < rows; r++) strip_decode(&strip, dtype, r, r >= turns, decoded[r]);
    for (int64_t r = rows; r < PANEL_ROWS; r++) memset(decoded[r], 0, sizeof decoded[r]);
    const int64_t columns = round_up(strip.columns, PANEL_STEP);
    int64_t turn = 0;
    for (int64_t v = 0; v < count; v += TILE_VECTORS)
      for (int64_t r = 0; r < PANEL_ROWS; r += TILE_ROWS, turn++) {
        const unsigned char *ahead = strip.weights[turn < rows ? turn : 0] + strip.ahead;
        const float *vectors = panel->vectors + v * panel->vector_pitch + column;
        float *sums = panel->sums + (row + r) * pitch + v * PANEL_LANES;
        if (count - v >= TILE_VECTORS)
          tile_multiply(decoded + r, columns, vectors, panel->vector_pitch, TILE_VECTORS, sums, pitch, dtype, ahead);
        else
          tile_multiply(decoded + r, columns, vectors, panel->vector_pitch, PANEL_VECTORS, sums, pitch, dtype, ahead);
      }
  }
}

/* ---- All --------------------------------------------------------------------------------------------------------- */

ALWAYS_INLINE void multiply_typed(const struct gemv_panel *panel, rondo_dtype dtype) {
  int64_t row = 0;
  if (panel->count > 1) {
    for (; row < panel->rows; row += PANEL_ROWS) multiply_several(panel, dtype, row);
    return;
  }
  for (; row + PANEL_ROWS <= panel->rows; row += PANEL_ROWS) multiply_one(panel, dtype, PANEL_ROWS, row);
  for (; row < panel->rows; row++) multiply_one(panel, dtype, 1, row);
}

static void multiply(const struct gemv_panel *panel) {
  switch (panel->dtype) {
  case RONDO_F16:
    multiply_typed(panel, RONDO_F16);
    break;
  case RONDO_BF16:
    multiply_typed(panel, RONDO_BF16);
    break;
  case RONDO_E4M3:
    multiply_typed(panel, RONDO_E4M3);
    break;
  default:
    multiply_typed(panel, RONDO_NVFP4);
    break;
  }
}
