/* gemv_panel.h - rows of a matrix times vectors that are decoded, on the host: what gemv_host.c asks of the loops in
 * gemv_panel_loops.h, which are compiled for AVX2 and for AVX-512 and give the same bits. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <rondo.h>

enum {
  PANEL_LANES = 16,    /* of a sum */
  PANEL_STEP = 32,     /* columns that are decoded together: two elements for each lane */
  PANEL_VECTORS = 2,   /* there is room for a multiple of so many vectors, and their sums */
  PANEL_ROWS = 4,      /* and of so many rows' sums */
  PANEL_ALIGNMENT = 64 /* of vectors and sums */
};

struct gemv_panel {
  rondo_dtype dtype; /* of the weights */
  /* The first of the rows at the first of the columns. */
  const unsigned char *weights;
  int64_t row_bytes;
  /* nvfp4: the scales of the matrix, where row and column above lie in it, and bytes from row to row. */
  const unsigned char *scales;
  int64_t first_row, first_column, scale_row_bytes;
  rondo_scale_layout scale_layout;

  int64_t rows, columns, count;
  /* [count][vector_pitch], zeros behind the last column up to a whole step. Each step is as panel_is_interleaved says.
   */
  const float *vectors;
  int64_t vector_pitch;
  float *sums; /* [rows][count][PANEL_LANES] with the room named above, which are added to */
};

/* The order in which 32 columns are decoded: the even ones, then the odd ones, where two of them share what a lane is
 * loaded with; or as they come. */
static inline bool panel_is_interleaved(rondo_dtype dtype) { return dtype == RONDO_BF16 || dtype == RONDO_NVFP4; }

static inline int64_t panel_bytes(rondo_dtype dtype, int64_t columns) {
  return dtype == RONDO_NVFP4 ? columns / 2 : dtype == RONDO_E4M3 ? columns : 2 * columns;
}

/* Decoded e4m3 is 2^-8 of its value. */
static inline float panel_unit(rondo_dtype dtype) { return dtype == RONDO_E4M3 ? 256.0f : 1.0f; }

void gemv_panel_256(const struct gemv_panel *panel);
bool gemv_panel_has_512(void);
void gemv_panel_512(const struct gemv_panel *panel);
