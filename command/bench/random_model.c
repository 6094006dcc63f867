/* random_model.c - a language model with random weights (random_model.h). */
#include "random_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../room.h"
#include "timing.h"

enum { MOST_HIDDEN = 4096 };

/* ---- Random numbers ---------------------------------------------------------------------------------------------- */

#define OF_16(bits) ((uint64_t)(bits)*UINT64_C(0x0001000100010001))
#define OF_8(bits)  ((uint64_t)(bits)*UINT64_C(0x0101010101010101))
static const struct pattern small_bf16 = {OF_16(0x81ff), OF_16(0x3c00)}, /* +-[2^-7, 2^-3) */
    bf16 = {OF_16(0x81ff), OF_16(0x3e00)},                               /* +-[2^-3, 2) */
    norm_bf16 = {OF_16(0x007f), OF_16(0x3f80)},                          /* [1, 2) */
    e4m3 = {OF_8(0x9f), OF_8(0x20)},                                     /* +-[2^-3, 2) */
    scale_e4m3 = {OF_8(0x0f), OF_8(0x30)},                               /* [2^-1, 2) */
    codes = {UINT64_MAX, 0},
                            row_scales = {UINT64_C(0x003fffff003fffff),
                                          UINT64_C(0x3d0000003d000000)}; /* [2^-5, 2^-4.4) */

static void source_fill(struct source *source, uint64_t bytes, struct pattern pattern) {
  if (source->bytes >= bytes) return;
  free(source->words);
  source->words = room_take(bytes + sizeof *source->words, "bench llama: weights and caches");
  source->bytes = bytes;
  uint64_t state = UINT64_C(0x9e3779b97f4a7c15); /* xorshift (Marsaglia 2003) */
  for (uint64_t i = 0; i <= source->bytes / sizeof *source->words; i++) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    source->words[i] = (state & pattern.random) | pattern.set;
  }
  source->pattern = pattern;
}

/* ---- A model ----------------------------------------------------------------------------------------------------- */

static void set(struct random_model *model, rondo_tensor tensor, struct pattern pattern) {
  uint64_t bytes;
  if (!tensor.graph) return;
  TRY(rondo_tensor_bytes(tensor, &bytes));
  struct source *source = model->sources;
  while (source->bytes && memcmp(&source->pattern, &pattern, sizeof pattern) != 0) source++;
  source_fill(source, bytes, pattern);
  model->contents[model->content_count++] = (rondo_content){tensor, source, bytes};
  model->upload_bytes += bytes;
}

static struct pattern weights_pattern(rondo_dtype dtype) {
  return dtype == RONDO_NVFP4 ? codes : dtype == RONDO_E4M3 ? e4m3 : small_bf16;
}

static void set_all(struct random_model *model, const struct random_rank *rank) {
  const rondo_graph_llama_desc *desc = &model->desc;
  const rondo_graph_llama_tensors *t = &rank->ends;
  const struct pattern weights = weights_pattern(desc->weights);
  const struct pattern scales = desc->weights == RONDO_NVFP4 ? scale_e4m3 : row_scales;
  set(model, t->embedding, desc->weights == RONDO_NVFP4 ? codes : small_bf16);
  set(model, t->embedding_scales, scale_e4m3);
  for (int32_t i = 0; i < desc->layers; i++) {
    const rondo_llama_layer *layer = &t->layers[i];
    set(model, layer->attention_norm, norm_bf16), set(model, layer->feed_forward_norm, norm_bf16);
    set(model, layer->qkv, weights), set(model, layer->qkv_scales, scales);
    set(model, layer->output, weights), set(model, layer->output_scales, scales);
    set(model, layer->gate_up, weights), set(model, layer->gate_up_scales, scales);
    set(model, layer->down, weights), set(model, layer->down_scales, scales);
    set(model, layer->k, bf16), set(model, layer->v, bf16);
  }
  set(model, t->norm, norm_bf16);
  set(model, t->head, desc->weights == RONDO_NVFP4 ? codes : small_bf16);
  set(model, t->head_scales, scale_e4m3);
}

/* Returns after the uploads have ended. An upload may still be in progress when its call returns; a download waits for
 * it. */
static void upload_all(struct random_model *model, const struct random_rank *rank) {
  uint16_t norm[MOST_HIDDEN];
  const uint64_t bytes = (uint64_t)model->desc.hidden * sizeof *norm;
  model->content_count = 0;
  set_all(model, rank);
  for (uint32_t i = 0; i < model->content_count; i++) /* a longer tensor may have moved the source */
    model->contents[i].data = ((const struct source *)model->contents[i].data)->words;
  const uint64_t begin = timing_now_ns();
  TRY(rondo_upload_all(rank->exec, model->contents, model->content_count));
  TRY(rondo_download(rank->exec, rank->ends.norm, norm, bytes));
  model->upload_ns += timing_now_ns() - begin;
}

/* Prompts that are packed begin at position 0. Pages of a sequence follow each other. */
static void inputs_set(const struct random_model *model, uint32_t r) {
  const rondo_graph_llama_desc *desc = &model->desc;
  const rondo_graph_llama_tensors *t = &model->rank[r].ends;
  const rondo_slot slot = model->slots[r];
  const int32_t sequences = desc->sequences, lists = desc->tokens && !desc->packed ? 1 : sequences;
  uint64_t bytes;
  if (t->advance.graph) memset(rondo_data(slot, t->advance), 0, (size_t)lists * sizeof(int32_t));
  if (desc->page_rows) {
    int32_t *pages = rondo_data(slot, t->kv_pages);
    TRY(rondo_tensor_bytes(t->kv_pages, &bytes));
    for (uint64_t i = 0; i < bytes / sizeof *pages; i++) pages[i] = (int32_t)i;
  }
  if (!desc->tokens) return;
  int32_t *prompt = rondo_data(slot, t->prompt), *last = rondo_data(slot, t->last);
  for (int32_t i = 0; i < desc->tokens; i++) prompt[i] = (int32_t)(i * INT64_C(7919) % desc->vocabulary);
  last[0] = desc->tokens - 1;
  if (!desc->packed) return;
  int32_t *offsets = rondo_data(slot, t->row_offsets), *position = rondo_data(slot, t->position);
  const int32_t rows = desc->tokens / sequences;
  for (int32_t i = 0; i < sequences; i++) offsets[i] = i * rows, last[i] = offsets[i] + rows - 1, position[i] = 0;
  offsets[sequences] = desc->tokens;
}

/* An exec of each rank. */
static rondo_status instantiate_all(struct random_model *model) {
  const rondo_exec_options options = {.repeat_steps = model->repeat_steps};
  rondo_status status = RONDO_OK;
  for (uint32_t r = 0; r < model->ranks && status == RONDO_OK; r++)
    status = rondo_instantiate(model->rank[r].runtime, model->rank[r].graph, &options, &model->rank[r].exec);
  return status;
}

static void close_execs(struct random_model *model) {
  for (uint32_t r = 0; r < model->ranks; r++)
    if (model->rank[r].exec) TRY(rondo_close_exec(&model->rank[r].exec));
}

/* Times execs without repeats, and then makes others with them in their place, where the driver can. */
static void instantiate(struct random_model *model) {
  const uint32_t repeat_steps = model->repeat_steps;
  for (uint32_t r = 0; r < model->ranks && model->ranks > 1; r++)
    TRY(rondo_instantiate(model->rank[r].runtime, model->rank[r].exchange, NULL, &model->rank[r].exchange_exec));
  const uint64_t begin = timing_now_ns();
  model->repeat_steps = 0;
  TRY(instantiate_all(model));
  model->instantiate_ns = timing_now_ns() - begin;
  if (!repeat_steps) return;
  close_execs(model);
  model->repeat_steps = repeat_steps;
  if (instantiate_all(model) == RONDO_OK) return;
  snprintf(model->no_repeat, sizeof model->no_repeat, "%s", rondo_error_text());
  close_execs(model);
  model->repeat_steps = 0;
  TRY(instantiate_all(model));
}

/* The graphs of all ranks, each with the states of all. */
static void describe(struct random_model *model) {
  rondo_tensor states[RONDO_MAX_RANKS];
  rondo_graph_llama_desc desc = model->desc;
  uint64_t bytes;
  desc.ranks = model->ranks, desc.exchange = states;
  TRY(rondo_graph_llama_exchange_bytes(&desc, &bytes));
  for (uint32_t r = 0; r < model->ranks && model->ranks > 1; r++) {
    TRY(rondo_graph_create(NULL, NULL, &model->rank[r].exchange));
    TRY(rondo_exchange_state(model->rank[r].exchange, NULL, model->ranks, bytes, &states[r]));
  }
  for (uint32_t r = 0; r < model->ranks; r++) {
    struct random_rank *rank = &model->rank[r];
    rank->ends.layers = room_take((uint64_t)desc.layers * sizeof *rank->ends.layers, "bench llama");
    desc.rank = r;
    TRY(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 8192, .tasks = 4096}, &rank->graph));
    TRY(rondo_graph_llama(rank->graph, &desc, &rank->ends));
  }
}

static void open_runtimes(struct random_model *model, rondo_backend backend) {
  rondo_options options[RONDO_MAX_RANKS];
  rondo_runtime *runtimes[RONDO_MAX_RANKS];
  rondo_info info;
  model->devices = model->ranks > 1 && backend != RONDO_BACKEND_HOST ? cuda_device_count((int32_t)model->ranks) : 1;
  for (uint32_t r = 0; r < model->ranks; r++) {
    rondo_graph *graphs[] = {model->rank[r].graph, model->rank[r].exchange};
    rondo_plan plan;
    TRY(rondo_plan_graphs(graphs, model->ranks > 1 ? 2 : 1, &plan));
    options[r] =
        (rondo_options){.backend = backend,
                        .device = model->devices ? (int32_t)r % model->devices : 0,
                        .device_bytes = plan.device_bytes,
                        .pinned_bytes = plan.pinned_bytes_per_slot + model->repeat_steps * plan.pinned_bytes_per_step,
                        .host_bytes = plan.host_bytes,
                        .wait_mode = model->wait_mode};
  }
  TRY(rondo_open_group(options, model->ranks, runtimes));
  for (uint32_t r = 0; r < model->ranks; r++) model->rank[r].runtime = runtimes[r];
  TRY(rondo_runtime_info(runtimes[0], &info));
  model->is_on_gpu = info.backend == RONDO_BACKEND_CUDA;
}

void random_model_open(struct random_model *model, rondo_backend backend) {
  enum { OF_A_LAYER = 12, AROUND = 5 };
  describe(model);
  open_runtimes(model, backend);
  instantiate(model);
  model->contents =
      room_take(((uint64_t)model->desc.layers * OF_A_LAYER + AROUND) * sizeof *model->contents, "bench llama");
  for (uint32_t r = 0; r < model->ranks; r++) {
    TRY(rondo_acquire(model->rank[r].exec, &model->slots[r]));
    upload_all(model, &model->rank[r]);
    inputs_set(model, r);
  }
}

void random_model_close(struct random_model *model) {
  for (uint32_t r = 0; r < model->ranks; r++) {
    TRY(rondo_release(model->slots[r]));
    TRY(rondo_close_exec(&model->rank[r].exec));
    TRY(rondo_graph_destroy(&model->rank[r].graph));
    free(model->rank[r].ends.layers);
  }
  for (uint32_t r = 0; r < model->ranks; r++) {
    if (model->ranks > 1) {
      TRY(rondo_close_exec(&model->rank[r].exchange_exec));
      TRY(rondo_graph_destroy(&model->rank[r].exchange));
    }
    TRY(rondo_close(&model->rank[r].runtime));
  }
  free(model->contents);
  for (int i = 0; i < SOURCES; i++) free(model->sources[i].words);
}
