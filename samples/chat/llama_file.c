/* llama_file.c - see llama_file.h. */
#include "llama_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../sample.h"
#include "rounding.h"

/* ---- What the file says ------------------------------------------------------------------------------------------ */

static int64_t integer_of(const struct gguf *file, const char *key) {
  char message[GGUF_MESSAGE_BYTES];
  int64_t value;
  if (!gguf_integer(file, key, &value, message)) give_up("%s", message);
  if (value < 1 || value > INT32_MAX) give_up("%s: %s is %lld", file->path, key, (long long)value);
  return value;
}

static float number_of(const struct gguf *file, const char *key) {
  char message[GGUF_MESSAGE_BYTES];
  double value;
  if (!gguf_number(file, key, &value, message)) give_up("%s", message);
  return (float)value;
}

/* The library has a default in place of a zero. */
static float positive_of(const struct gguf *file, const char *key) {
  float value = number_of(file, key);
  if (!(value > 0 && isfinite(value)))
    give_up("%s: %s is %g, expected a positive number", file->path, key, (double)value);
  return value;
}

/* A tensor that must exist, with this number of rows and columns. */
static const struct gguf_tensor *tensor_of(const struct gguf *file, const char *name, int64_t rows, int64_t columns) {
  const struct gguf_tensor *tensor = gguf_tensor(file, name);
  if (!tensor) give_up("%s: it has no tensor %s", file->path, name);
  if (tensor->shape[0] != columns || gguf_rows(tensor) != rows)
    give_up("%s: tensor %s is %lld x %lld, expected %lld x %lld", file->path, name, (long long)gguf_rows(tensor),
            (long long)tensor->shape[0], (long long)rows, (long long)columns);
  return tensor;
}

/* ---- What is refused, rather than computed otherwise than the file says ------------------------------------------ */

static bool is_text(struct gguf_text text, const char *expected) {
  return text.length == strlen(expected) && memcmp(text.bytes, expected, text.length) == 0;
}

static bool has_text(const struct gguf *file, const char *key, const char *expected) {
  char message[GGUF_MESSAGE_BYTES];
  struct gguf_text value;
  return gguf_string(file, key, &value, message) && is_text(value, expected);
}

static void require_text(const struct gguf *file, const char *key, const char *expected, const char *why) {
  char message[GGUF_MESSAGE_BYTES];
  struct gguf_text value;
  if (!gguf_string(file, key, &value, message)) give_up("%s", message);
  if (!is_text(value, expected))
    give_up("%s: %s is %s, expected %s: %s", file->path, key, gguf_quote(value).text, expected, why);
}

/* Checks a key if the file has it. `unset` is a value that means the same as no key. */
static void require_number(const struct gguf *file, const char *key, float expected, float unset, const char *why) {
  if (!gguf_find(file, key)) return;
  float value = number_of(file, key);
  if (value != expected && value != unset)
    give_up("%s: %s is %g, expected %g: %s", file->path, key, (double)value, (double)expected, why);
}

static void require_true(const struct gguf *file, const char *key, const char *why) {
  const struct gguf_entry *entry = gguf_find(file, key);
  if (entry && (entry->kind != GGUF_BOOL || entry->is_array || gguf_element(entry, 0) == 0))
    give_up("%s: %s is false, expected true: %s", file->path, key, why);
}

/* Checks the keys that would change the computation. The unset values are those of llama.cpp, for which most files are
 * made. */
static void require_plain(const struct gguf *file, int64_t head_columns) {
  static const char unscaled[] = "scaled positions are not supported", type[] = "llama.rope.scaling.type";
  static const char width[] = "the heads must divide the embedding's columns evenly";
  static const char plain[] = "this factor is not supported";
  float head = (float)head_columns;
  if (gguf_find(file, type) && !has_text(file, type, "linear")) require_text(file, type, "none", unscaled);
  require_number(file, "llama.rope.scaling.factor", 1, 0, unscaled);
  require_number(file, "llama.rope.scaling.attn_factor", 1, 1, unscaled);
  require_number(file, "llama.rope.scale_linear", 1, 0, unscaled);
  require_number(file, "llama.rope.dimension_count", head, head, "the rotary embedding must apply to whole heads");
  require_number(file, "llama.attention.key_length", head, head, width);
  require_number(file, "llama.attention.value_length", head, head, width);
  require_number(file, "llama.attention.scale", 1 / sqrtf(head), 0,
                 "other scales than 1 / sqrt(head width) are not supported");
  require_number(file, "llama.attention.sliding_window", 0, 0, "sliding windows are not supported");
  require_true(file, "llama.attention.causal", "attention without a causal mask is not supported");
  require_number(file, "llama.logit_scale", 1, 0, plain);
  require_number(file, "llama.embedding_scale", 1, 0, plain);
  require_number(file, "llama.residual_scale", 1, 0, plain);
  require_number(file, "llama.expert_count", 0, 0, "mixtures of experts are not supported");
}

/* ---- The model --------------------------------------------------------------------------------------------------- */

rondo_graph_llama_desc llama_file_describe(const struct gguf *file, int64_t context, int64_t *trained) {
  static const char kv_heads[] = "llama.attention.head_count_kv", rope_base[] = "llama.rope.freq_base"; /* optional */
  require_text(file, "general.architecture", "llama", "other architectures are not supported");
  *trained = integer_of(file, "llama.context_length");
  if (context == 0) context = *trained < LLAMA_CONTEXT ? *trained : LLAMA_CONTEXT;
  if (context > *trained)
    give_up("%s: the model was trained for %lld tokens, less than the context of %lld", file->path, (long long)*trained,
            (long long)context);
  int64_t hidden = integer_of(file, "llama.embedding_length"), heads = integer_of(file, "llama.attention.head_count");
  if (hidden % heads != 0)
    give_up("%s: its %lld columns cannot be divided into %lld heads", file->path, (long long)hidden, (long long)heads);
  require_plain(file, hidden / heads);
  const struct gguf_tensor *embedding = gguf_tensor(file, "token_embd.weight");
  if (!embedding) give_up("%s: it has no tensor token_embd.weight", file->path);
  return (rondo_graph_llama_desc){
      .layers = (int32_t)integer_of(file, "llama.block_count"),
      .hidden = hidden,
      .query_heads = heads,
      .kv_heads = gguf_find(file, kv_heads) ? integer_of(file, kv_heads) : heads,
      .feed_forward = integer_of(file, "llama.feed_forward_length"),
      .vocabulary = gguf_rows(embedding),
      .context = context,
      .rope_base = gguf_find(file, rope_base) ? positive_of(file, rope_base) : 10000,
      .rope_pairing = RONDO_ROPE_INTERLEAVED,
      .epsilon = positive_of(file, "llama.attention.layer_norm_rms_epsilon"),
      .tied_embedding = gguf_tensor(file, "output.weight") == NULL,
  };
}

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

static const struct gguf_tensor *layer_tensor(const struct gguf *file, int32_t layer, const char *part, int64_t rows,
                                              int64_t columns) {
  char name[64];
  snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
  return tensor_of(file, name, rows, columns);
}

struct layer_matrices llama_file_layer(const struct gguf *file, const rondo_graph_llama_desc *desc, int32_t i) {
  int64_t hidden = desc->hidden, forward = desc->feed_forward, kv = hidden / desc->query_heads * desc->kv_heads;
  return (struct layer_matrices){
      .attention_norm = {{layer_tensor(file, i, "attn_norm", 1, hidden)}, 1, false},
      .qkv = {{layer_tensor(file, i, "attn_q", hidden, hidden), layer_tensor(file, i, "attn_k", kv, hidden),
               layer_tensor(file, i, "attn_v", kv, hidden)},
              3,
              false},
      .output = {{layer_tensor(file, i, "attn_output", hidden, hidden)}, 1, false},
      .feed_forward_norm = {{layer_tensor(file, i, "ffn_norm", 1, hidden)}, 1, false},
      .gate_up = {{layer_tensor(file, i, "ffn_gate", forward, hidden),
                   layer_tensor(file, i, "ffn_up", forward, hidden)},
                  2,
                  true},
      .down = {{layer_tensor(file, i, "ffn_down", hidden, forward)}, 1, false},
  };
}

/* The embedding, or another matrix outside the layers. */
struct matrix llama_file_embedding(const struct gguf *file, const rondo_graph_llama_desc *desc, const char *name) {
  return (struct matrix){{tensor_of(file, name, desc->vocabulary, desc->hidden)}, 1, false};
}

struct matrix llama_file_norm(const struct gguf *file, const rondo_graph_llama_desc *desc) {
  return (struct matrix){{tensor_of(file, "output_norm.weight", 1, desc->hidden)}, 1, false};
}

/* The NVFP4 tensor whose factor this tensor has (gguf.h); NULL: none. */
static const struct gguf_tensor *scaled_by(const struct gguf *file, const struct gguf_tensor *tensor) {
  static const char scale[] = "scale";
  struct gguf_quoted name = gguf_quote(tensor->name);
  size_t length = strlen(name.text), end = sizeof scale - 1;
  char weight[sizeof name.text + 1];
  if (length < end || strcmp(name.text + length - end, scale) != 0) return NULL;
  snprintf(weight, sizeof weight, "%.*sweight", (int)(length - end), name.text);
  const struct gguf_tensor *scaled = gguf_tensor(file, weight);
  return scaled && scaled->type == GGUF_TYPE_NVFP4 ? scaled : NULL;
}

static bool has_part(const struct matrix *matrix, const struct gguf_tensor *tensor) {
  for (uint32_t i = 0; i < matrix->part_count; i++)
    if (matrix->parts[i] == tensor) return true;
  return false;
}

static bool is_read(const struct gguf *file, const rondo_graph_llama_desc *desc, const struct gguf_tensor *tensor) {
  const struct gguf_tensor *scaled = scaled_by(file, tensor);
  if (scaled) tensor = scaled;
  struct gguf_quoted name = gguf_quote(tensor->name);
  if (strncmp(name.text, "blk.", 4) != 0)
    return tensor == gguf_tensor(file, "token_embd.weight") || tensor == gguf_tensor(file, "output_norm.weight") ||
           tensor == gguf_tensor(file, "output.weight");
  long i = strtol(name.text + 4, NULL, 10);
  if (i < 0 || i >= desc->layers) return false;
  struct layer_matrices layer = llama_file_layer(file, desc, (int32_t)i);
  return has_part(&layer.attention_norm, tensor) || has_part(&layer.qkv, tensor) || has_part(&layer.output, tensor) ||
         has_part(&layer.feed_forward_norm, tensor) || has_part(&layer.gate_up, tensor) ||
         has_part(&layer.down, tensor);
}

/* Checks that the file has exactly the tensors of the model that its keys describe: no bias, for example, and no
 * further layer. This comes before allocations whose sizes follow from the keys. */
void llama_file_require_tensors(const struct gguf *file, const rondo_graph_llama_desc *desc) {
  for (int32_t i = 0; i < desc->layers; i++) llama_file_layer(file, desc, i);
  llama_file_embedding(file, desc, "token_embd.weight");
  llama_file_norm(file, desc);
  if (!desc->tied_embedding) llama_file_embedding(file, desc, "output.weight");
  for (uint64_t i = 0; i < file->tensor_count; i++)
    if (!is_read(file, desc, &file->tensors[i]))
      give_up("%s: it has the tensor %s, which is not supported", file->path, gguf_quote(file->tensors[i].name).text);
}

/* What the matrices in NVFP4 need of the factor that they share. */
struct shared_scale {
  float largest;                    /* magnitude of those that are converted */
  const struct gguf_tensor *tensor; /* in NVFP4 already, with a factor of its own; NULL: none is */
};

static bool add_tensor(const struct gguf *file, struct shared_scale *scale, const struct gguf_tensor *tensor) {
  if (tensor->type != GGUF_TYPE_NVFP4) return false;
  if (!scale->tensor) scale->tensor = tensor;
  if (tensor->factor == scale->tensor->factor) return true;
  give_up("%s: tensors %s and %s have the factors %g and %g, expected one factor: --weights bf16 takes any", file->path,
          gguf_quote(scale->tensor->name).text, gguf_quote(tensor->name).text, (double)scale->tensor->factor,
          (double)tensor->factor);
}

static void add_matrix(const struct gguf *file, struct shared_scale *scale, const struct matrix *matrix) {
  uint32_t ready = 0;
  for (uint32_t i = 0; i < matrix->part_count; i++) ready += add_tensor(file, scale, matrix->parts[i]);
  if (ready == matrix->part_count) return;
  float largest;
  if (!matrix_largest(matrix, &largest)) give_up("no memory for the weights");
  scale->largest = fmaxf(scale->largest, largest);
}

static void add_layer(const struct gguf *file, struct shared_scale *scale, const struct layer_matrices *layer) {
  add_matrix(file, scale, &layer->qkv);
  add_matrix(file, scale, &layer->output);
  add_matrix(file, scale, &layer->gate_up);
  add_matrix(file, scale, &layer->down);
}

float llama_file_nvfp4_scale(const struct gguf *file, const rondo_graph_llama_desc *desc) {
  struct shared_scale scale = {0};
  for (int32_t i = 0; i < desc->layers && desc->weights == RONDO_NVFP4; i++) {
    struct layer_matrices layer = llama_file_layer(file, desc, i);
    add_layer(file, &scale, &layer);
  }
  if (desc->embedding == RONDO_NVFP4) {
    struct matrix embedding = llama_file_embedding(file, desc, "token_embd.weight");
    add_matrix(file, &scale, &embedding);
    if (!desc->tied_embedding) {
      struct matrix head = llama_file_embedding(file, desc, "output.weight");
      add_matrix(file, &scale, &head);
    }
  }
  if (!scale.tensor) return nvfp4_scale_of(scale.largest);
  float factor = scale.tensor->factor;
  if (scale.largest > E2M1_MAX * E4M3_MAX * factor)
    give_up("%s: a weight of %g is too large for the factor %g of tensor %s", file->path, (double)scale.largest,
            (double)factor, gguf_quote(scale.tensor->name).text);
  return factor;
}

rondo_graph_llama_desc llama_file_describe_as(const struct gguf *file, int64_t context, rondo_dtype weights,
                                              rondo_dtype embedding, int64_t *trained) {
  rondo_graph_llama_desc desc = llama_file_describe(file, context, trained);
  llama_file_require_tensors(file, &desc);
  const struct layer_matrices first = llama_file_layer(file, &desc, 0);
  desc.dtype = RONDO_BF16;
  desc.weights = first.qkv.parts[0]->type == GGUF_TYPE_NVFP4 ? RONDO_NVFP4 : RONDO_BF16;
  if (weights) desc.weights = weights;
  desc.embedding = embedding;
  desc.nvfp4_scale = llama_file_nvfp4_scale(file, &desc);
  return desc;
}
