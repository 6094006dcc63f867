/* llama_model.c - see llama_model.h. */
#include "llama_model.h"

#include <stdlib.h>
#include <string.h>

#include "../sample.h"
#include "llama_file.h"
#include "llama_weights.h"

/* The file's model with these options. Without a type of the weights, NVFP4 stays NVFP4. */
static rondo_graph_llama_desc describe(const struct gguf *file, const struct llama_options *options, int64_t *trained) {
  rondo_graph_llama_desc desc = llama_file_describe(file, options->context, trained);
  llama_file_require_tensors(file, &desc);
  const struct layer_matrices first = llama_file_layer(file, &desc, 0);
  desc.dtype = RONDO_BF16;
  desc.weights = first.qkv.parts[0]->type == GGUF_TYPE_NVFP4 ? RONDO_NVFP4 : RONDO_BF16;
  if (options->weights) desc.weights = options->weights;
  desc.embedding = options->embedding;
  desc.feed_back = 1;
  desc.with_logits = options->with_logits;
  desc.with_sampling = options->temperature > 0;
  desc.penalized = options->repeat_penalty > 0 && options->repeat_penalty != 1 ? LLAMA_RECENT : 0;
  desc.nvfp4_scale = llama_file_nvfp4_scale(file, &desc);
  return desc;
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
  describe_step(&llama->decode, &llama->desc);
  rondo_graph_llama_desc prefill = llama->desc;
  prefill.tokens = LLAMA_CHUNK;
  prefill.lender = &llama->decode.tensors;
  describe_step(&llama->prefill, &prefill);
  prefill.tokens = LLAMA_LONG_CHUNK;
  if (prefill.weights != RONDO_E4M3) describe_step(&llama->long_prefill, &prefill);
  open_runtime(llama, options->backend);
  begin_step(llama, &llama->decode, options);
  begin_step(llama, &llama->prefill, options);
  if (llama->long_prefill.graph) begin_step(llama, &llama->long_prefill, options);
  *(int32_t *)rondo_data(llama->decode.slot, llama->decode.tensors.advance) = 1;
  llama_weights_upload(file, &llama->desc, &llama->decode.tensors, llama->decode.exec);
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
