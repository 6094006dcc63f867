/* layer.h - a decoder layer in fp32 over the tokens of a calibration text. Each matrix is rounded to NVFP4 for the
 * inputs that it gets from the matrices that are rounded already; then its results are computed with the rounded
 * weights. */
#pragma once

#include "../chat/llama_file.h"
#include "products.h"

enum { LAYER_MATRICES = 4 };

/* The texts' tokens as sequences of `sequence` tokens (the last one may be shorter), each from position 0 on. */
struct activations {
  const rondo_graph_llama_desc *desc;
  int64_t sequence;
  struct grid x;          /* the residual stream, [tokens, hidden] */
  struct grid inputs;     /* of the next product */
  struct grid outputs;    /* of the last product */
  float *cosines, *sines; /* of the rotary embedding, [sequence, head columns / 2] each */
};

/* A matrix in NVFP4, in the order of the matrix's rows. */
struct rounded_matrix {
  const struct matrix *matrix;
  uint8_t *codes, *scales; /* as those of struct gptq, allocated by malloc */
  double error;            /* the root of the results' relative squared error */
};

/* Begins with the embedding of the tokens. */
void activations_begin(struct activations *activations, const struct gguf *file, const rondo_graph_llama_desc *desc,
                       const int32_t *tokens, int64_t count, int64_t sequence);
void activations_end(struct activations *activations);

/* Rounds the matrices of a layer, and computes the layer with them. The rows of layer->gate_up are interleaved. */
void layer_round(struct activations *activations, const struct gguf *file, const struct layer_matrices *layer,
                 float global_scale, struct rounded_matrix rounded[LAYER_MATRICES]);
