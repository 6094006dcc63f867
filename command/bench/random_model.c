/* random_model.c - a language model with random weights (random_model.h). */
#include "random_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../room.h"
#include "timing.h"

enum { MOST_HIDDEN = 2048 };

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

static void set_all(struct random_model *model) {
  const rondo_graph_llama_desc *desc = &model->desc;
  const rondo_graph_llama_tensors *t = &model->ends;
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
}

static void find_contents(struct random_model *model) {
  enum { OF_A_LAYER = 12, AROUND = 3 };
  model->contents =
      room_take(((uint64_t)model->desc.layers * OF_A_LAYER + AROUND) * sizeof *model->contents, "bench llama");
  set_all(model);
  for (uint32_t i = 0; i < model->content_count; i++) /* a longer tensor may have moved the source */
    model->contents[i].data = ((const struct source *)model->contents[i].data)->words;
}

/* Returns after the uploads have ended. An upload may still be in progress when its call returns; a download waits for
 * it. */
static void upload_all(struct random_model *model) {
  uint16_t norm[MOST_HIDDEN];
  uint64_t bytes = (uint64_t)model->desc.hidden * sizeof *norm, begin = timing_now_ns();
  TRY(rondo_upload_all(model->exec, model->contents, model->content_count));
  TRY(rondo_download(model->exec, model->ends.norm, norm, bytes));
  model->upload_ns = timing_now_ns() - begin;
}

/* Prompts that are packed begin at position 0. Pages of a sequence follow each other. */
static void inputs_set(struct random_model *model) {
  const rondo_graph_llama_desc *desc = &model->desc;
  const rondo_graph_llama_tensors *t = &model->ends;
  const int32_t sequences = desc->sequences, lists = desc->tokens && !desc->packed ? 1 : sequences;
  uint64_t bytes;
  if (desc->feed_back) memset(rondo_data(model->slot, t->advance), 0, (size_t)lists * sizeof(int32_t));
  if (desc->page_rows) {
    int32_t *pages = rondo_data(model->slot, t->kv_pages);
    TRY(rondo_tensor_bytes(t->kv_pages, &bytes));
    for (uint64_t i = 0; i < bytes / sizeof *pages; i++) pages[i] = (int32_t)i;
  }
  if (!desc->tokens) return;
  int32_t *prompt = rondo_data(model->slot, t->prompt), *last = rondo_data(model->slot, t->last);
  for (int32_t i = 0; i < desc->tokens; i++) prompt[i] = (int32_t)(i * INT64_C(7919) % desc->vocabulary);
  last[0] = desc->tokens - 1;
  if (!desc->packed) return;
  int32_t *offsets = rondo_data(model->slot, t->row_offsets), *position = rondo_data(model->slot, t->position);
  const int32_t rows = desc->tokens / sequences;
  for (int32_t i = 0; i < sequences; i++) offsets[i] = i * rows, last[i] = offsets[i] + rows - 1, position[i] = 0;
  offsets[sequences] = desc->tokens;
}

/* Times an exec without repeats, and then makes one with them in its place, where the driver can. */
static void instantiate(struct random_model *model) {
  const uint64_t begin = timing_now_ns();
  TRY(rondo_instantiate(model->runtime, model->graph, NULL, &model->exec));
  model->instantiate_ns = timing_now_ns() - begin;
  if (!model->repeat_steps) return;
  TRY(rondo_close_exec(&model->exec));
  rondo_exec_options options = {.repeat_steps = model->repeat_steps};
  if (rondo_instantiate(model->runtime, model->graph, &options, &model->exec) == RONDO_OK) return;
  snprintf(model->no_repeat, sizeof model->no_repeat, "%s", rondo_error_text());
  model->repeat_steps = 0;
  TRY(rondo_instantiate(model->runtime, model->graph, NULL, &model->exec));
}

void random_model_open(struct random_model *model, rondo_backend backend) {
  rondo_plan plan;
  rondo_info info;
  model->ends.layers = model->tensors.llama.layers;
  TRY(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 8192, .tasks = 4096}, &model->graph));
  TRY(rondo_graph_llama(model->graph, &model->desc, &model->ends));
  TRY(rondo_plan_graph(model->graph, &plan));
  TRY(rondo_open(
      &(rondo_options){.backend = backend,
                       .device_bytes = plan.device_bytes,
                       .pinned_bytes = plan.pinned_bytes_per_slot + model->repeat_steps * plan.pinned_bytes_per_step,
                       .host_bytes = plan.host_bytes},
      &model->runtime));
  TRY(rondo_runtime_info(model->runtime, &info));
  model->is_on_gpu = info.backend == RONDO_BACKEND_CUDA;
  instantiate(model);
  TRY(rondo_acquire(model->exec, &model->slot));
  find_contents(model);
  upload_all(model);
  inputs_set(model);
}

void random_model_close(struct random_model *model) {
  TRY(rondo_release(model->slot));
  TRY(rondo_close_exec(&model->exec));
  TRY(rondo_graph_destroy(&model->graph));
  TRY(rondo_close(&model->runtime));
  free(model->contents);
  for (int i = 0; i < SOURCES; i++) free(model->sources[i].words);
}
