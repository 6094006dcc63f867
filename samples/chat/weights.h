/* weights.h - converts matrices of a GGUF file to the types and the order of a graph's constants. */
#pragma once

#include <rondo.h>

#include "gguf.h"

enum { WEIGHTS_MAX_PARTS = 3 };

/* One or several tensors with the same row length: stacked, or with their rows interleaved. */
struct matrix {
  const struct gguf_tensor *parts[WEIGHTS_MAX_PARTS];
  uint32_t part_count;
  bool interleaved; /* all parts then have the same number of rows */
};

int64_t matrix_rows(const struct matrix *matrix);
int64_t matrix_columns(const struct matrix *matrix);
/* The largest magnitude, without NaNs. False if there is no memory. */
bool matrix_largest(const struct matrix *matrix, float *largest);

/* The reason for which a matrix could not be packed: an element that is NaN or infinite, or becomes infinite in the
 * type. If tensor is NULL, there was no memory. */
struct weight_fault {
  const struct gguf_tensor *tensor;
  int64_t row, column; /* of the tensor */
  float value;
};

/* A matrix in the format of rondo_upload. */
struct packed {
  void *data, *scales;
  uint64_t data_bytes, scale_bytes; /* scale_bytes 0: no scale factors */
};

/* Converts a matrix to one of these types, rounding to nearest, ties to even:
 *   RONDO_F32, RONDO_F16, RONDO_BF16
 *   RONDO_E4M3   scales f32 [rows]: the row's largest magnitude / 448, at least the smallest normal number
 *   RONDO_NVFP4  scales e4m3 [rows, columns / 16]: the largest magnitude of 16 / (6 global_scale), or / (4
 * global_scale) if the squared error is less. A tensor in NVFP4 whose factor is global_scale keeps its codes and scales
 * packed_free releases the result. On failure *packed is all zero, and *fault has the reason. */
bool matrix_pack(const struct matrix *matrix, rondo_dtype dtype, float global_scale, struct packed *packed,
                 struct weight_fault *fault);
void packed_free(struct packed *packed);

/* The global_scale for which the largest magnitude becomes the largest code times the largest scale factor. It is a
 * normal number. */
float nvfp4_scale_of(float largest);
