/* weights.h - matrices of a GGUF file in the types and the order that a graph takes. */
#ifndef WEIGHTS_H
#define WEIGHTS_H

#include <rondo.h>

#include "gguf.h"

enum { WEIGHTS_MAX_PARTS = 3 };

/* One or several tensors with rows of one length: stacked, or a row of each in turn. */
struct matrix {
  const struct gguf_tensor *parts[WEIGHTS_MAX_PARTS];
  uint32_t part_count;
  bool interleaved; /* parts have as many rows each */
};

int64_t matrix_rows(const struct matrix *matrix);
int64_t matrix_columns(const struct matrix *matrix);
/* The largest magnitude; NaN counts as none. false: out of memory. */
bool matrix_largest(const struct matrix *matrix, float *largest);

/* What a matrix could not be packed for: an element that is NaN or infinite, or becomes infinite in the type; or, where
 * tensor is NULL, memory. */
struct weight_fault {
  const struct gguf_tensor *tensor;
  int64_t row, column; /* of the tensor */
  float value;
};

/* As rondo_upload takes it. */
struct packed {
  void *data, *scales;
  uint64_t data_bytes, scale_bytes; /* scale_bytes 0: no scales */
};

/* Rounds to nearest, ties to even:
 *   RONDO_F32, RONDO_F16, RONDO_BF16
 *   RONDO_E4M3   scales f32 [rows]: the row's largest magnitude / 448, or the smallest normal number if that is less
 *   RONDO_NVFP4  scales e4m3 [rows, columns / 16]: the bytes that rondo_add_quantize_nvfp4 gives with global_scale
 * packed_free releases it. On failure *packed is all zero and *fault says why. */
bool matrix_pack(const struct matrix *matrix, rondo_dtype dtype, float global_scale, struct packed *packed,
                 struct weight_fault *fault);
void packed_free(struct packed *packed);

/* The global_scale with which the largest magnitude becomes the largest code times the largest scale; it is a normal
 * number. */
float nvfp4_scale_of(float largest);

#endif
