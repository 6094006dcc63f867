/* llama_model.c - see llama_model.h. */
#include "llama_model.h"

#include <stdlib.h>
#include <string.h>

#include "../sample.h"
#include "llama_file.h"
#include "llama_weights.h"

/* In other types a replay of 16 rows takes as long as three or more of one. */
static int32_t best_draft(const rondo_graph_llama_desc *desc) { return desc->weights == RONDO_BF16 ? 15 : 0; }

static rondo_graph_llama_desc describe(const struct gguf *file, const struct llama_options *options, int64_t *trained) {
  rondo_graph_llama_desc desc =
      llama_file_describe_as(file, options->context, options->weights, options->embedding, trained);
  desc.feed_back = 1;
  desc.with_logits = options->with_logits;
  desc.with_sampling = options->temperature > 0;
  desc.penalized = options->repeat_penalty > 0 && options->repeat_penalty != 1 ? LLAMA_RECENT : 0;
  if (!desc.penalized) desc.draft = options->draft < 0 ? best_draft(&desc) : options->draft;
  return desc;
}

/* ---- Graphs ------------------------------------------------------------------------------------------------------ */

static void open_runtime(struct llama *llama, const struct llama_options *options) {
  rondo_graph *graphs[4] = {llama->decode.graph, llama->prefill.graph};
  uint32_t count = 2;
  rondo_plan plan;
  rondo_info info;
  if (llama->long_prefill.graph) graphs[count++] = llama->long_prefill.graph;
  if (llama->verify.graph) graphs[count++] = llama->verify.graph;
  TRY(rondo_plan_graphs(graphs, count, &plan));
  TRY(rondo_open(&(rondo_options){.backend = options->backend,
                                  .device_bytes = plan.device_bytes,
                                  .pinned_bytes = plan.pinned_bytes_per_slot + LLAMA_RUN * plan.pinned_bytes_per_step,
                                  .host_bytes = plan.host_bytes},
                 &llama->runtime));
  TRY(rondo_runtime_info(llama->runtime, &info));
  /* On a GPU a long chunk takes little longer than a short one, on the host sixteen times as long. */
  llama->long_from = info.backend == RONDO_BACKEND_CUDA ? 2 * LLAMA_CHUNK + 1 : LLAMA_LONG_CHUNK;
  llama->runs = llama->desc.draft > 0;
}

/* Fills in the inputs that stay the same in all replays. */
static void set_inputs(const struct llama *llama, const struct llama_step *step, const struct llama_options *options) {
  int32_t *stops = step->tensors.stops.graph ? rondo_data(step->slot, step->tensors.stops) : NULL;
  for (int32_t i = 0; stops && i < LLAMA_MOST_STOPS; i++) stops[i] = i < options->stop_count ? options->stops[i] : -1;
  if (llama->desc.penalized) *(float *)rondo_data(step->slot, step->tensors.repetition) = options->repeat_penalty;
  if (!llama->desc.with_sampling) return;
  *(float *)rondo_data(step->slot, step->tensors.temperature) = options->temperature;
  *(int32_t *)rondo_data(step->slot, step->tensors.top_k) = options->top_k;
  *(float *)rondo_data(step->slot, step->tensors.top_p) = options->top_p;
  *(int32_t *)rondo_data(step->slot, step->tensors.seed) = options->seed;
}

/* Opens a step. */
static void begin_step(struct llama *llama, struct llama_step *step, const struct llama_options *options) {
  const rondo_exec_options repeats = {.repeat_steps = LLAMA_RUN};
  llama_step_open(step, llama->runtime, step == &llama->verify ? &repeats : NULL);
  set_inputs(llama, step, options);
}

/* The step that owns what the others borrow. There are no runs if the driver cannot repeat. */
static void begin_decode(struct llama *llama, const struct llama_options *options) {
  struct llama_step *decode = &llama->decode;
  const rondo_exec_options repeats = {.repeat_steps = LLAMA_RUN};
  llama->runs = llama->runs && rondo_instantiate(llama->runtime, decode->graph, &repeats, &decode->exec) == RONDO_OK;
  if (!llama->runs) TRY(rondo_instantiate(llama->runtime, decode->graph, NULL, &decode->exec));
  TRY(rondo_acquire(decode->exec, &decode->slot));
  set_inputs(llama, decode, options);
  if (!llama->desc.draft) *(int32_t *)rondo_data(decode->slot, decode->tensors.advance) = 1;
}

void llama_open(const struct gguf *file, const struct llama_options *options, struct llama *llama) {
  *llama = (struct llama){0};
  llama->desc = describe(file, options, &llama->trained);
  llama->tokens = malloc((size_t)(llama->desc.context + 1) * sizeof *llama->tokens);
  if (!llama->tokens) give_up("no memory for %lld tokens", (long long)llama->desc.context);
  llama_step_describe(&llama->decode, &llama->desc);
  rondo_graph_llama_desc prefill = llama->desc;
  prefill.tokens = LLAMA_CHUNK;
  prefill.lender = &llama->decode.tensors;
  llama_step_describe(&llama->prefill, &prefill);
  prefill.tokens = LLAMA_LONG_CHUNK;
  if (prefill.weights != RONDO_E4M3) llama_step_describe(&llama->long_prefill, &prefill);
  llama_run_describe(llama);
  open_runtime(llama, options);
  begin_decode(llama, options);
  begin_step(llama, &llama->prefill, options);
  if (llama->long_prefill.graph) begin_step(llama, &llama->long_prefill, options);
  if (llama->runs) begin_step(llama, &llama->verify, options);
  llama_weights_upload(file, &llama->desc, &llama->decode.tensors, llama->decode.exec);
}

void llama_close(struct llama *llama) {
  if (llama->long_prefill.graph) llama_step_close(&llama->long_prefill);
  if (llama->runs) llama_step_close(&llama->verify);
  llama_run_forget(llama);
  llama_step_close(&llama->prefill); /* before decode, from which it borrows */
  llama_step_close(&llama->decode);
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
  if (llama->desc.draft) llama->matched = *(const int32_t *)rondo_data(step->slot, step->tensors.matched);
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
  memset(prompt, 0, (size_t)step->rows * sizeof *prompt);
  memcpy(prompt, tokens, rows * sizeof *prompt);
  *(int32_t *)rondo_data(step->slot, step->tensors.last) = (int32_t)rows - 1;
  if (!llama->desc.draft) *(int32_t *)rondo_data(step->slot, step->tensors.advance) = (int32_t)rows;
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
  int32_t tokens[1 + LLAMA_MOST_DRAFT]; /* drafts of the same token */
  const size_t count = 1 + (size_t)llama->desc.draft;
  for (size_t i = 0; i < count; i++) tokens[i] = token;
  TRY(rondo_upload(llama->decode.exec, llama->decode.tensors.token, tokens, count * sizeof *tokens));
  llama->tokens[llama->position] = token;
}

const float *llama_logits(const struct llama *llama) {
  return rondo_data(llama->last->slot, llama->last->tensors.logits);
}
