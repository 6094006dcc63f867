/* batch_model.c - graphs for many sequences (batch_model.h). The largest decode graph owns the weights and the pages,
 * from which all others borrow. */
#include "batch_model.h"

#include <stdlib.h>
#include <string.h>

#include "../chat/llama_file.h"
#include "../chat/llama_weights.h"
#include "../sample.h"

enum { SPARE_PAGE = 0 }; /* rows of a decode graph without a sequence write there */

/* Of an H200's 132, 24 read prompts too slowly, and with 64 answers have too few: README.md has the times. */
enum { PREFILL_MULTIPROCESSORS = 40 };

/* Of more than 16 rows, so that on the host a row has the same bits in each of them. */
static const int32_t chunk_rows[MODEL_CHUNKS_MOST] = {32, 64, 256, 1024};

/* ---- Graphs ------------------------------------------------------------------------------------------------------ */

static rondo_graph_llama_desc describe(const struct gguf *file, const struct model_options *options) {
  int64_t trained;
  rondo_graph_llama_desc desc = llama_file_describe_as(file, options->context, options->weights, RONDO_BF16, &trained);
  desc.with_sampling = 1;
  desc.one_order = !options->any_order; /* 1: an answer does not depend on up to 15 sequences beside it */
  desc.sequences = options->sequences;
  desc.page_rows = PAGE_ROWS;
  desc.pages = model_pages_most(&desc) * options->sequences;
  if (options->pages) desc.pages = options->pages;
  desc.pages++;                                            /* SPARE_PAGE */
  if (options->any_order && !options->pages) desc.pages++; /* a cache without a list has some rows after its context */
  return desc;
}

static void add_step(struct model *model, struct llama_step *step, int32_t lane, const rondo_graph_llama_desc *desc) {
  llama_step_describe(step, desc);
  model->steps[model->step_count].step = step;
  model->steps[model->step_count++].lane = (uint32_t)lane;
}

static void add_chunks(struct model *model, int32_t lane, int logits, rondo_graph_llama_desc desc) {
  const bool only_short = desc.weights == RONDO_E4M3; /* no graph has more than 16 rows then */
  const int32_t most = only_short ? 1 : MODEL_CHUNKS_MOST;
  model->chunk_count = 0;
  for (int32_t i = 0; i < most && (i == 0 || chunk_rows[i] <= desc.context); i++) {
    desc.tokens = only_short ? 16 : chunk_rows[i];
    add_step(model, &model->chunks[lane][logits][model->chunk_count++], lane, &desc);
  }
}

/* Steps of one lane follow each other: they share an arena, which grows until another lane has its own. */
static void describe_all(struct model *model) {
  rondo_graph_llama_desc desc = model->desc;
  int32_t sizes[MODEL_DECODES_MOST];
  for (int32_t size = 1; size < desc.sequences; size *= 2) sizes[model->decode_count++] = size;
  sizes[model->decode_count++] = desc.sequences;
  struct llama_step *owner = &model->decodes[0][model->decode_count - 1];
  add_step(model, owner, 0, &desc);
  desc.lender = &owner->tensors;
  for (int logits = 0; logits < 2; logits++) {
    desc.with_logits = logits;
    desc.tokens = 0;
    for (int32_t i = 0; i < model->decode_count; i++) {
      desc.sequences = sizes[i];
      if (&model->decodes[logits][i] != owner) add_step(model, &model->decodes[logits][i], 0, &desc);
    }
    desc.sequences = 1;
    if (!desc.one_order && desc.pages > model_pages_most(&desc) + 1) {
      rondo_graph_llama_desc alone = desc;
      alone.page_rows = alone.pages = 0;
      add_step(model, &model->alone[logits], 0, &alone);
    }
    for (int32_t lane = 0; lane < model->lanes; lane++) add_chunks(model, lane, logits, desc);
  }
}

/* ---- Execs ------------------------------------------------------------------------------------------------------- */

/* Prefill gets multiprocessors of its own if the options say how many, and else on a GPU that can be split. Beside
 * blocks of prefill on the same ones, decode waits in each kernel until some of them end. */
static rondo_status open_lanes(struct model *model, const struct model_options *options, rondo_options how) {
  rondo_lane lanes[2] = {{.name = "decode", .priority = 5},
                         {.name = "prefill", .multiprocessors = options->prefill_multiprocessors}};
  how.lanes = lanes;
  how.lane_count = (uint32_t)model->lanes;
  if (model->lanes > 1 && options->prefill_multiprocessors < 0) {
    lanes[1].multiprocessors = PREFILL_MULTIPROCESSORS;
    how.backend = RONDO_BACKEND_CUDA;
    if (options->backend != RONDO_BACKEND_HOST && rondo_open(&how, &model->runtime) == RONDO_OK) return RONDO_OK;
    lanes[1].multiprocessors = 0;
    how.backend = options->backend;
  }
  return rondo_open(&how, &model->runtime);
}

static void open_runtime(struct model *model, const struct model_options *options) {
  rondo_graph *graphs[MODEL_STEPS_MOST];
  for (uint32_t i = 0; i < model->step_count; i++) graphs[i] = model->steps[i].step->graph;
  rondo_plan plan;
  TRY(rondo_plan_graphs(graphs, model->step_count, &plan));
  const uint64_t second_arena = model->lanes > 1 ? plan.temporary_bytes : 0;
  const rondo_options how = {.backend = options->backend,
                             .device_bytes = plan.device_bytes + second_arena,
                             .pinned_bytes = plan.pinned_bytes_per_slot,
                             .host_bytes = plan.host_bytes,
                             .host_threads = (uint32_t)options->threads,
                             .wait_mode = options->spins ? RONDO_WAIT_SPIN : RONDO_WAIT_SPIN_YIELD};
  TRY(open_lanes(model, options, how));
  TRY(rondo_runtime_info(model->runtime, &model->info));
}

void model_open(const struct gguf *file, const struct model_options *options, struct model *model) {
  *model = (struct model){.lanes = options->lanes};
  model->desc = describe(file, options);
  describe_all(model);
  open_runtime(model, options);
  for (uint32_t i = 0; i < model->step_count; i++)
    /* On the host a warm-up would read prompts of every length, for seconds. */
    llama_step_open(model->steps[i].step, model->runtime,
                    &(rondo_exec_options){.lane = model->steps[i].lane,
                                          .states_are_ordered = model->lanes > 1,
                                          .without_warm_up = model->info.backend == RONDO_BACKEND_HOST});
  const struct llama_step *owner = model->steps[0].step;
  llama_weights_upload(file, &model->desc, &owner->tensors, owner->exec);
}

void model_close(struct model *model) {
  while (model->step_count) llama_step_close(model->steps[--model->step_count].step);
  TRY(rondo_close(&model->runtime));
}

/* ---- Replays ----------------------------------------------------------------------------------------------------- */

static int32_t *ints(const struct llama_step *step, rondo_tensor tensor) { return rondo_data(step->slot, tensor); }
static float *floats(const struct llama_step *step, rondo_tensor tensor) { return rondo_data(step->slot, tensor); }

static void put_row(const struct model *model, const struct llama_step *step, int32_t at, const struct model_row *row) {
  if (step->tensors.kv_pages.graph) {
    const int64_t most = model_pages_most(&model->desc);
    int32_t *pages = ints(step, step->tensors.kv_pages) + at * most;
    memcpy(pages, row->pages, (size_t)row->page_count * sizeof *pages);
    for (int64_t i = row->page_count; i < most; i++) pages[i] = -1;
  }
  ints(step, step->tensors.position)[at] = row->position;
  floats(step, step->tensors.temperature)[at] = row->temperature;
  floats(step, step->tensors.top_p)[at] = row->top_p;
  ints(step, step->tensors.seed)[at] = row->seed;
}

static bool is_in_order(const struct model_row *row) {
  int32_t i = 0;
  while (i < row->page_count && row->pages[i] == i + 1) i++;
  return i == row->page_count;
}

rondo_status model_decode(struct model *model, bool with_logits, const struct model_row *rows, int32_t count,
                          struct llama_step **begun) {
  static const int32_t spare[] = {SPARE_PAGE};
  static const struct model_row resting = {.page_count = 1, .pages = spare};
  struct llama_step *step = model->decodes[with_logits];
  while (step->rows < count) step++;
  if (count == 1 && model->alone[with_logits].graph && is_in_order(rows)) step = &model->alone[with_logits];
  for (int32_t i = 0; i < step->rows; i++) {
    const struct model_row *row = i < count ? &rows[i] : &resting;
    put_row(model, step, i, row);
    ints(step, step->tensors.token)[i] = row->token;
  }
  *begun = step;
  return rondo_replay(step->slot);
}

rondo_status model_prefill(struct model *model, int32_t lane, bool with_logits, int32_t chunk,
                           const struct model_row *row, const int32_t *tokens, int32_t count,
                           struct llama_step **begun) {
  struct llama_step *step = &model->chunks[lane][with_logits][chunk];
  int32_t *prompt = ints(step, step->tensors.prompt);
  put_row(model, step, 0, row);
  memcpy(prompt, tokens, (size_t)count * sizeof *prompt);
  memset(prompt + count, 0, (size_t)(step->rows - count) * sizeof *prompt);
  *ints(step, step->tensors.last) = count - 1;
  *begun = step;
  return rondo_replay(step->slot);
}

void model_warm_up(struct model *model) {
  static const int32_t spare[] = {SPARE_PAGE}, token = 0;
  struct model_row rows[SEQUENCES_MOST];
  struct llama_step *step;
  for (int32_t i = 0; i < SEQUENCES_MOST; i++) rows[i] = (struct model_row){.page_count = 1, .pages = spare};
  for (int logits = 0; logits < 2; logits++) {
    for (int32_t i = 0; i < model->decode_count; i++) {
      TRY(model_decode(model, logits, rows, model->decodes[logits][i].rows, &step));
      TRY(rondo_wait(step->slot, RONDO_FOREVER));
    }
    for (int32_t i = 0; i < model->lanes * model->chunk_count; i++) {
      TRY(model_prefill(model, i % model->lanes, logits, i / model->lanes, rows, &token, 1, &step));
      TRY(rondo_wait(step->slot, RONDO_FOREVER));
    }
  }
}

int32_t model_next(const struct llama_step *step, int32_t row) { return ints(step, step->tensors.next)[row]; }

const float *model_logits(const struct llama_step *step, int32_t row, int64_t vocabulary) {
  return floats(step, step->tensors.logits) + row * vocabulary;
}
