/* llama_model.c - see llama_model.h. */
#include "llama_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../sample.h"
#include "weights.h"

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

static rondo_graph_llama_desc describe(const struct gguf *file, const struct llama_options *options, int64_t *trained) {
  static const char kv_heads[] = "llama.attention.head_count_kv", rope_base[] = "llama.rope.freq_base"; /* optional */
  require_text(file, "general.architecture", "llama", "other architectures are not supported");
  *trained = integer_of(file, "llama.context_length");
  int64_t context = options->context;
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
      .dtype = RONDO_BF16,
      .weights = options->weights,
      .embedding = options->embedding,
      .tied_embedding = gguf_tensor(file, "output.weight") == NULL,
      .feed_back = 1,
      .with_logits = options->with_logits,
      .with_sampling = options->temperature > 0,
      .penalized = options->repeat_penalty > 0 && options->repeat_penalty != 1 ? LLAMA_RECENT : 0,
  };
}

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

/* The matrices of one layer, or those outside the layers, as the graph has them. */
struct layer_matrices {
  struct matrix attention_norm, qkv, output, feed_forward_norm, gate_up, down;
};

static const struct gguf_tensor *layer_tensor(const struct gguf *file, int32_t layer, const char *part, int64_t rows,
                                              int64_t columns) {
  char name[64];
  snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
  return tensor_of(file, name, rows, columns);
}

static struct layer_matrices find_layer(const struct gguf *file, const rondo_graph_llama_desc *desc, int32_t i) {
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
static struct matrix find_embedding(const struct gguf *file, const rondo_graph_llama_desc *desc, const char *name) {
  return (struct matrix){{tensor_of(file, name, desc->vocabulary, desc->hidden)}, 1, false};
}

static struct matrix find_norm(const struct gguf *file, const rondo_graph_llama_desc *desc) {
  return (struct matrix){{tensor_of(file, "output_norm.weight", 1, desc->hidden)}, 1, false};
}

static bool has_part(const struct matrix *matrix, const struct gguf_tensor *tensor) {
  for (uint32_t i = 0; i < matrix->part_count; i++)
    if (matrix->parts[i] == tensor) return true;
  return false;
}

static bool is_read(const struct gguf *file, const rondo_graph_llama_desc *desc, const struct gguf_tensor *tensor) {
  struct gguf_quoted name = gguf_quote(tensor->name);
  if (strncmp(name.text, "blk.", 4) != 0)
    return tensor == gguf_tensor(file, "token_embd.weight") || tensor == gguf_tensor(file, "output_norm.weight") ||
           tensor == gguf_tensor(file, "output.weight");
  long i = strtol(name.text + 4, NULL, 10);
  if (i < 0 || i >= desc->layers) return false;
  struct layer_matrices layer = find_layer(file, desc, (int32_t)i);
  return has_part(&layer.attention_norm, tensor) || has_part(&layer.qkv, tensor) || has_part(&layer.output, tensor) ||
         has_part(&layer.feed_forward_norm, tensor) || has_part(&layer.gate_up, tensor) ||
         has_part(&layer.down, tensor);
}

/* Checks that the file has exactly the tensors of the model that its keys describe: no bias, for example, and no
 * further layer. This comes before allocations whose sizes follow from the keys. */
static void require_tensors(const struct gguf *file, const rondo_graph_llama_desc *desc) {
  for (int32_t i = 0; i < desc->layers; i++) find_layer(file, desc, i);
  find_embedding(file, desc, "token_embd.weight");
  find_norm(file, desc);
  if (!desc->tied_embedding) find_embedding(file, desc, "output.weight");
  for (uint64_t i = 0; i < file->tensor_count; i++)
    if (!is_read(file, desc, &file->tensors[i]))
      give_up("%s: it has the tensor %s, which is not supported", file->path, gguf_quote(file->tensors[i].name).text);
}

static float larger(float largest, const struct matrix *matrix) {
  float own;
  if (!matrix_largest(matrix, &own)) give_up("no memory for the weights");
  return fmaxf(largest, own);
}

/* One factor for all NVFP4 weights. It suits all of them, since scale factors have a range of 15 powers of two. */
static float nvfp4_scale(const struct gguf *file, const rondo_graph_llama_desc *desc) {
  float largest = 0;
  for (int32_t i = 0; i < desc->layers && desc->weights == RONDO_NVFP4; i++) {
    struct layer_matrices layer = find_layer(file, desc, i);
    largest = larger(largest, &layer.qkv);
    largest = larger(largest, &layer.output);
    largest = larger(largest, &layer.gate_up);
    largest = larger(largest, &layer.down);
  }
  if (desc->embedding == RONDO_NVFP4) {
    struct matrix embedding = find_embedding(file, desc, "token_embd.weight");
    largest = larger(largest, &embedding);
    if (!desc->tied_embedding) {
      struct matrix head = find_embedding(file, desc, "output.weight");
      largest = larger(largest, &head);
    }
  }
  return nvfp4_scale_of(largest);
}

static _Noreturn void refuse_weight(const struct gguf *file, const struct weight_fault *fault, rondo_dtype dtype) {
  if (!fault->tensor) give_up("no memory for the weights");
  give_up("%s: tensor %s: row %lld, column %lld is %g, which %s cannot express", file->path,
          gguf_quote(fault->tensor->name).text, (long long)fault->row, (long long)fault->column, (double)fault->value,
          rondo_dtype_name(dtype));
}

static void upload(const struct gguf *file, const struct llama *llama, const struct matrix *matrix, rondo_dtype dtype,
                   rondo_tensor tensor, rondo_tensor scales) {
  struct packed packed;
  struct weight_fault fault;
  if (!matrix_pack(matrix, dtype, llama->desc.nvfp4_scale, &packed, &fault)) refuse_weight(file, &fault, dtype);
  const rondo_content contents[] = {{tensor, packed.data, packed.data_bytes},
                                    {scales, packed.scales, packed.scale_bytes}};
  TRY(rondo_upload_all(llama->decode.exec, contents, packed.scale_bytes > 0 ? 2 : 1));
  packed_free(&packed);
}

static void upload_all(const struct gguf *file, const struct llama *llama) {
  const rondo_graph_llama_desc *desc = &llama->desc;
  const rondo_graph_llama_tensors *tensors = &llama->decode.tensors;
  static const rondo_tensor none;
  for (int32_t i = 0; i < desc->layers; i++) {
    struct layer_matrices layer = find_layer(file, desc, i);
    const rondo_llama_layer *to = &tensors->layers[i];
    upload(file, llama, &layer.attention_norm, desc->dtype, to->attention_norm, none);
    upload(file, llama, &layer.qkv, desc->weights, to->qkv, to->qkv_scales);
    upload(file, llama, &layer.output, desc->weights, to->output, to->output_scales);
    upload(file, llama, &layer.feed_forward_norm, desc->dtype, to->feed_forward_norm, none);
    upload(file, llama, &layer.gate_up, desc->weights, to->gate_up, to->gate_up_scales);
    upload(file, llama, &layer.down, desc->weights, to->down, to->down_scales);
  }
  struct matrix embedding = find_embedding(file, desc, "token_embd.weight");
  struct matrix norm = find_norm(file, desc);
  upload(file, llama, &embedding, desc->embedding, tensors->embedding, tensors->embedding_scales);
  upload(file, llama, &norm, desc->dtype, tensors->norm, none);
  if (desc->tied_embedding) return;
  struct matrix head = find_embedding(file, desc, "output.weight");
  upload(file, llama, &head, desc->embedding, tensors->head, tensors->head_scales);
}

/* ---- Graphs ------------------------------------------------------------------------------------------------------ */

static void describe_step(struct llama_step *step, const rondo_graph_llama_desc *desc) {
  uint32_t layers = (uint32_t)desc->layers;
  step->tensors.layers = calloc(layers, sizeof *step->tensors.layers);
  if (!step->tensors.layers) give_up("no memory for %u layers", layers);
  TRY(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 32 * layers + 64, .tasks = 8 * layers + 32},
                         &step->graph));
  TRY(rondo_graph_llama(step->graph, desc, &step->tensors));
}

static void open_runtime(struct llama *llama, rondo_backend backend) {
  rondo_graph *graphs[] = {llama->decode.graph, llama->prefill.graph, llama->long_prefill.graph};
  rondo_plan plan;
  rondo_info info;
  TRY(rondo_plan_graphs(graphs, llama->long_prefill.graph ? 3 : 2, &plan));
  TRY(rondo_open(&(rondo_options){.backend = backend,
                                  .device_bytes = plan.device_bytes,
                                  .pinned_bytes = plan.pinned_bytes_per_slot,
                                  .host_bytes = plan.host_bytes},
                 &llama->runtime));
  TRY(rondo_runtime_info(llama->runtime, &info));
  /* On a GPU a long chunk takes little longer than a short one, on the host sixteen times as long. */
  llama->long_from = info.backend == RONDO_BACKEND_CUDA ? 2 * LLAMA_CHUNK + 1 : LLAMA_LONG_CHUNK;
}

/* Opens a step, and fills in the inputs that stay the same in all replays. */
static void begin_step(struct llama *llama, struct llama_step *step, const struct llama_options *options) {
  TRY(rondo_instantiate(llama->runtime, step->graph, NULL, &step->exec));
  TRY(rondo_acquire(step->exec, &step->slot));
  if (llama->desc.penalized) *(float *)rondo_data(step->slot, step->tensors.repetition) = options->repeat_penalty;
  if (!llama->desc.with_sampling) return;
  *(float *)rondo_data(step->slot, step->tensors.temperature) = options->temperature;
  *(int32_t *)rondo_data(step->slot, step->tensors.top_k) = options->top_k;
  *(float *)rondo_data(step->slot, step->tensors.top_p) = options->top_p;
  *(int32_t *)rondo_data(step->slot, step->tensors.seed) = options->seed;
}

void llama_open(const struct gguf *file, const struct llama_options *options, struct llama *llama) {
  *llama = (struct llama){0};
  llama->desc = describe(file, options, &llama->trained);
  llama->tokens = malloc((size_t)(llama->desc.context + 1) * sizeof *llama->tokens);
  if (!llama->tokens) give_up("no memory for %lld tokens", (long long)llama->desc.context);
  require_tensors(file, &llama->desc);
  llama->desc.nvfp4_scale = nvfp4_scale(file, &llama->desc);
  describe_step(&llama->decode, &llama->desc);
  rondo_graph_llama_desc prefill = llama->desc;
  prefill.tokens = LLAMA_CHUNK;
  prefill.lender = &llama->decode.tensors;
  describe_step(&llama->prefill, &prefill);
  prefill.tokens = LLAMA_LONG_CHUNK;
  if (prefill.weights == prefill.dtype) describe_step(&llama->long_prefill, &prefill);
  open_runtime(llama, options->backend);
  begin_step(llama, &llama->decode, options);
  begin_step(llama, &llama->prefill, options);
  if (llama->long_prefill.graph) begin_step(llama, &llama->long_prefill, options);
  *(int32_t *)rondo_data(llama->decode.slot, llama->decode.tensors.advance) = 1;
  upload_all(file, llama);
}

static void close_step(struct llama_step *step) {
  TRY(rondo_release(step->slot));
  TRY(rondo_close_exec(&step->exec));
  TRY(rondo_graph_destroy(&step->graph));
  free(step->tensors.layers);
}

void llama_close(struct llama *llama) {
  if (llama->long_prefill.graph) close_step(&llama->long_prefill);
  close_step(&llama->prefill); /* before decode, from which it borrows */
  close_step(&llama->decode);
  free(llama->tokens);
  TRY(rondo_close(&llama->runtime));
}

/* ---- Replays ----------------------------------------------------------------------------------------------------- */

void llama_rewind(struct llama *llama, int64_t position) {
  int32_t value = (int32_t)position;
  TRY(rondo_upload(llama->decode.exec, llama->decode.tensors.position, &value, sizeof value));
  llama->position = position;
}

/* The last tokens before a position, the oldest first, with -1 before the first token. */
static void put_recent(const struct llama *llama, int64_t end, int32_t *recent) {
  for (int64_t i = 0, at = end - LLAMA_RECENT; i < LLAMA_RECENT; i++, at++) recent[i] = at < 0 ? -1 : llama->tokens[at];
}

/* Replays a step with `count` tokens. */
static void replay(const struct llama *llama, const struct llama_step *step, int64_t count) {
  if (llama->desc.penalized) put_recent(llama, llama->position + count, rondo_data(step->slot, step->tensors.recent));
  TRY(rondo_replay(step->slot));
}

static int32_t next_of(struct llama *llama, const struct llama_step *step) {
  int32_t next = *(const int32_t *)rondo_data(step->slot, step->tensors.next);
  llama->tokens[llama->position] = next;
  return next;
}

size_t llama_chunk(const struct llama *llama, size_t left) {
  const size_t most = llama->long_prefill.graph && left >= llama->long_from ? LLAMA_LONG_CHUNK : LLAMA_CHUNK;
  return left < most ? left : most;
}

/* Replays a chunk of at most LLAMA_LONG_CHUNK tokens. */
static void prefill_chunk(struct llama *llama, const int32_t *tokens, size_t rows) {
  const struct llama_step *step = rows > LLAMA_CHUNK ? &llama->long_prefill : &llama->prefill;
  int32_t *prompt = rondo_data(step->slot, step->tensors.prompt);
  memset(prompt, 0, (rows > LLAMA_CHUNK ? LLAMA_LONG_CHUNK : LLAMA_CHUNK) * sizeof *prompt);
  memcpy(prompt, tokens, rows * sizeof *prompt);
  *(int32_t *)rondo_data(step->slot, step->tensors.last) = (int32_t)rows - 1;
  *(int32_t *)rondo_data(step->slot, step->tensors.advance) = (int32_t)rows;
  memcpy(llama->tokens + llama->position, tokens, rows * sizeof *tokens);
  replay(llama, step, (int64_t)rows);
  TRY(rondo_wait(step->slot, RONDO_FOREVER));
  llama->position += (int64_t)rows;
  llama->last = step;
}

int32_t llama_prefill(struct llama *llama, const int32_t *tokens, size_t count) {
  for (size_t rows, done = 0; done < count; done += rows) {
    rows = llama_chunk(llama, count - done);
    prefill_chunk(llama, tokens + done, rows);
  }
  return next_of(llama, llama->last);
}

void llama_begin_token(struct llama *llama) {
  replay(llama, &llama->decode, 1);
  llama->last = &llama->decode;
  llama->position++;
}

int32_t llama_end_token(struct llama *llama) {
  TRY(rondo_wait(llama->decode.slot, RONDO_FOREVER));
  return next_of(llama, &llama->decode);
}

void llama_force(struct llama *llama, int32_t token) {
  TRY(rondo_upload(llama->decode.exec, llama->decode.tensors.token, &token, sizeof token));
  llama->tokens[llama->position] = token;
}

const float *llama_logits(const struct llama *llama) {
  return rondo_data(llama->last->slot, llama->last->tensors.logits);
}
