/* llama_file.h - a GGUF file as a Llama-like model: its sizes, and the matrices of its layers. What the model would
 * compute otherwise than its file says is refused. All functions end the program with a sentence if something is
 * wrong. */
#pragma once

#include <rondo_graphs.h>

#include "weights.h"

enum { LLAMA_CONTEXT = 2048 }; /* default of the most tokens of a conversation */

/* The sizes, numbers and tied_embedding that the file says. *trained is the longest context that the model was trained
 * for. context is 0 for the default, or for *trained if that is less. */
rondo_graph_llama_desc llama_file_describe(const struct gguf *file, int64_t context, int64_t *trained);
/* Checks that the file has exactly the tensors of the model that its keys describe: no bias, for example, and no
 * further layer. This comes before allocations whose sizes follow from the keys. */
void llama_file_require_tensors(const struct gguf *file, const rondo_graph_llama_desc *desc);

/* The same, checked, with the types of what is uploaded: bf16, but for the layers' matrices, which have the type
 * `weights`, or if that is 0 NVFP4 if the file's have it, and for the embedding. */
rondo_graph_llama_desc llama_file_describe_as(const struct gguf *file, int64_t context, rondo_dtype weights,
                                              rondo_dtype embedding, int64_t *trained);

/* The matrices of one layer as the graph has them. */
struct layer_matrices {
  struct matrix attention_norm, qkv, output, feed_forward_norm, gate_up, down;
};
struct layer_matrices llama_file_layer(const struct gguf *file, const rondo_graph_llama_desc *desc, int32_t i);
/* "token_embd.weight", the embedding, or "output.weight", the head if it is another matrix; and the last norm. */
struct matrix llama_file_embedding(const struct gguf *file, const rondo_graph_llama_desc *desc, const char *name);
struct matrix llama_file_norm(const struct gguf *file, const rondo_graph_llama_desc *desc);

/* The factor that all matrices in NVFP4 share, by desc->weights and desc->embedding: that of the file's tensors in
 * NVFP4, or one for the largest magnitude, which suits all of them since scale factors have a range of 15 powers of
 * two. */
float llama_file_nvfp4_scale(const struct gguf *file, const rondo_graph_llama_desc *desc);
