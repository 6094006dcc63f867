/* bench_llama.c - rondo bench llama: times a token or a prompt of a language model, from rondo_replay until the host
 * sees the next token.
 *
 * The models have the sizes of SmolLM2 135M and Llama 3.2 1B and random weights, in bf16, e4m3 and NVFP4. Cases differ
 * in the number of sequences and in the length of the context. The graph feeds tokens back; positions stay the same.
 * Beside the times in bf16 stand those of PyTorch, which llama_rivals.py measures. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../json_lines.h"
#include "../room.h"
#include "bench.h"
#include "timing.h"

enum { SMOLLM2, LLAMA, MODELS };
enum { BF16, E4M3, NVFP4, WEIGHTS };
enum {
  COUNTS = 3,
  MUST_CONTEXT = 512,
  WARM_REPLAYS = 100,
  MOST_SEQUENCES = 256,
  MOST_TOKENS = 8192, /* of a replay */
  MOST_HIDDEN = 2048,
  RIVALS_MOST = 128
};

static const char *const model_names[MODELS] = {"smollm2", "llama"};
static const rondo_dtype weight_types[WEIGHTS] = {RONDO_BF16, RONDO_E4M3, RONDO_NVFP4};
static const int32_t all_sequences[COUNTS] = {1, 4, 16}, all_contexts[COUNTS] = {128, 512, 4096};

/* The figures to reach: microseconds of a token of one sequence with a context of MUST_CONTEXT, on an H200. 0: none. */
static const double musts_us[MODELS][WEIGHTS] = {
    [SMOLLM2] = {[BF16] = 340, [NVFP4] = 300}, [LLAMA] = {[BF16] = 720, [NVFP4] = 330}};
static const double most_of_sixteen = 1.6;     /* SmolLM2: the time of 16 sequences over that of one */
static const double most_of_the_slowest = 1.5; /* the 99.9th percentile over the median */
static const double most_to_instantiate = 1;   /* seconds */

/* Times in bf16 from llama_rivals.py: of tokens, or of a prompt. What does not apply is NaN. */
struct rival_token {
  int which; /* model */
  double sequences, context, prompt, us;
  char name[JSON_TEXT_BYTES];
};
struct rival_tokens {
  size_t count;
  struct rival_token items[RIVALS_MOST];
};

struct options {
  rondo_backend backend;
  uint32_t models, weights; /* bits. models 0: all; weights 0: bf16 and nvfp4 */
  int32_t sequences, context, capacity;
  int32_t prompt;  /* tokens; 0: decode */
  int32_t prompts; /* in a replay */
  int32_t page_rows;
  int64_t samples;
  bool is_profiled;
  const char *rivals_path, *json;
  struct rival_tokens rivals; /* from that file */
};

/* ---- Random numbers ---------------------------------------------------------------------------------------------- */

/* Of each 64 bits: those that are random, and those that are set. */
struct pattern {
  uint64_t random, set;
};
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

/* The bytes that are uploaded: as many as the largest tensor of a pattern has. */
enum { SOURCES = 8 };
struct source {
  uint64_t *words;
  uint64_t bytes;
  struct pattern pattern;
};

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

struct model {
  rondo_graph_llama_desc desc;
  union ready_tensors tensors;
  rondo_graph_llama_tensors ends;
  rondo_graph *graph;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_slot slot;
  struct source sources[SOURCES];
  rondo_content *contents; /* of the constants and states */
  uint32_t content_count;
  uint64_t instantiate_ns, upload_ns, upload_bytes;
  bool is_on_gpu; /* on the host there is no figure to reach */
};

static void set(struct model *model, rondo_tensor tensor, struct pattern pattern) {
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

static void set_all(struct model *model) {
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

static void find_contents(struct model *model) {
  enum { OF_A_LAYER = 12, AROUND = 3 };
  model->contents =
      room_take(((uint64_t)model->desc.layers * OF_A_LAYER + AROUND) * sizeof *model->contents, "bench llama");
  set_all(model);
  for (uint32_t i = 0; i < model->content_count; i++) /* a longer tensor may have moved the source */
    model->contents[i].data = ((const struct source *)model->contents[i].data)->words;
}

/* Returns after the uploads have ended. An upload may still be in progress when its call returns; a download waits for
 * it. */
static void upload_all(struct model *model) {
  uint16_t norm[MOST_HIDDEN];
  uint64_t bytes = (uint64_t)model->desc.hidden * sizeof *norm, begin = timing_now_ns();
  TRY(rondo_upload_all(model->exec, model->contents, model->content_count));
  TRY(rondo_download(model->exec, model->ends.norm, norm, bytes));
  model->upload_ns = timing_now_ns() - begin;
}

/* Prompts that are packed begin at position 0. Pages of a sequence follow each other. */
static void inputs_set(struct model *model) {
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

static void model_open(struct model *model, const struct options *options) {
  rondo_plan plan;
  rondo_info info;
  model->ends.layers = model->tensors.llama.layers;
  TRY(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 8192, .tasks = 4096}, &model->graph));
  TRY(rondo_graph_llama(model->graph, &model->desc, &model->ends));
  TRY(rondo_plan_graph(model->graph, &plan));
  TRY(rondo_open(&(rondo_options){.backend = options->backend,
                                  .device_bytes = plan.device_bytes,
                                  .pinned_bytes = plan.pinned_bytes_per_slot,
                                  .host_bytes = plan.host_bytes},
                 &model->runtime));
  TRY(rondo_runtime_info(model->runtime, &info));
  model->is_on_gpu = info.backend == RONDO_BACKEND_CUDA;
  uint64_t begin = timing_now_ns();
  TRY(rondo_instantiate(model->runtime, model->graph, NULL, &model->exec));
  model->instantiate_ns = timing_now_ns() - begin;
  TRY(rondo_acquire(model->exec, &model->slot));
  find_contents(model);
  upload_all(model);
  inputs_set(model);
}

static void model_close(struct model *model) {
  TRY(rondo_release(model->slot));
  TRY(rondo_close_exec(&model->exec));
  TRY(rondo_graph_destroy(&model->graph));
  TRY(rondo_close(&model->runtime));
  free(model->contents);
  for (int i = 0; i < SOURCES; i++) free(model->sources[i].words);
}

/* ---- Rivals ------------------------------------------------------------------------------------------------------ */

static void take_rival(void *user, const struct json_object *object) {
  struct rival_tokens *rivals = user;
  struct rival_token token = {.sequences = json_object_number(object, "sequences"),
                              .context = json_object_number(object, "context"),
                              .prompt = json_object_number(object, "prompt"),
                              .us = json_object_number(object, "us")};
  const char *model = json_object_text(object, "model");
  while (token.which < MODELS && strcmp(model, model_names[token.which]) != 0) token.which++;
  if (strcmp(json_object_text(object, "kind"), "llama") != 0 || token.which == MODELS) return;
  if (strcmp(json_object_text(object, "weights"), rondo_dtype_name(RONDO_BF16)) != 0) return;
  if (!isfinite(token.us) || token.us <= 0) return;
  if (rivals->count == RIVALS_MOST) exit(command_failed("more than %d rivals", RIVALS_MOST));
  snprintf(token.name, sizeof token.name, "%s", json_object_text(object, "kernel"));
  rivals->items[rivals->count++] = token;
}

/* Writes a line for each rival with the same model and prompt, or number of sequences and context. */
static void report_rivals(struct report *report, const struct options *options, int which, int32_t sequences,
                          int32_t context, double us) {
  const struct rival_tokens *rivals = &options->rivals;
  for (size_t i = 0; i < rivals->count; i++) {
    const struct rival_token *rival = &rivals->items[i];
    char name[JSON_TEXT_BYTES + 8];
    const bool fits =
        options->prompt ? rival->prompt == options->prompt : rival->sequences == sequences && rival->context == context;
    if (rival->which != which || !fits) continue;
    snprintf(name, sizeof name, "  over %s", rival->name);
    report_ratio(report, name, us, rival->us, "us", 0);
  }
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

/* Replays the prompt, or one token of every sequence. False if a token is not in the vocabulary. */
static bool replay_once(const struct model *model) {
  TRY(rondo_replay(model->slot));
  TRY(rondo_wait(model->slot, RONDO_FOREVER));
  const int32_t token = *(const volatile int32_t *)rondo_data(model->slot, model->ends.next);
  return token >= 0 && token < model->desc.vocabulary;
}

/* The times of a token in microseconds. */
struct token_time {
  double p50, p99_9;
};

static struct token_time measure(const struct model *model, const struct options *options, struct report *report,
                                 const char *name, int32_t context) {
  int32_t positions[MOST_SEQUENCES];
  struct samples samples = samples_take((size_t)options->samples);
  for (int i = 0; i < MOST_SEQUENCES; i++) positions[i] = context - 1; /* the token is the last one of the context */
  if (model->desc.feed_back)
    TRY(rondo_upload(model->exec, model->ends.position, positions, (uint64_t)model->desc.sequences * sizeof(int32_t)));
  for (int64_t i = 0; i < WARM_REPLAYS && i < options->samples; i++) replay_once(model);
  for (int64_t i = 0; i < options->samples; i++) {
    uint64_t begin = timing_now_ns();
    if (!replay_once(model)) exit(command_failed("bench: %s: a token is not in the vocabulary", name));
    samples_add(&samples, timing_now_ns() - begin);
    if (i % 100 == 99) progress(name, (size_t)i + 1, (size_t)options->samples);
  }
  const struct token_time time = {samples_us(&samples, 50), samples_us(&samples, 99.9)};
  report_samples(report, name, &samples);
  samples_free(&samples);
  return time;
}

static void profile(const struct model *model, struct report *report) {
  char path[MEMORY_PATH_BYTES], text[4096];
  rondo_exec_usage usage;
  rondo_profile_totals totals;
  TRY(rondo_exec_info(model->exec, &usage));
  rondo_task_profile *tasks = room_take((usage.node_count + UINT64_C(1)) * sizeof *tasks, "bench llama: times");
  FILE *table = memory_file(path);
  if (!table) exit(EXIT_FAILED);
  TRY(rondo_profile(model->slot, NULL, tasks, usage.node_count, &totals));
  TRY(rondo_write_profile(tasks, &totals, path));
  while (fgets(text, sizeof text, table)) output_print(&report->output, "%s", text);
  fclose(table);
  free(tasks);
}

static void measure_prompt(struct model *model, const struct options *options, struct report *report, int which,
                           int weights) {
  char name[80], count[32] = "prompt";
  if (options->prompts) snprintf(count, sizeof count, "%d prompts", (int)options->prompts);
  snprintf(name, sizeof name, "%s %s, %s of %d tokens%s", model_names[which], rondo_dtype_name(weight_types[weights]),
           count, (int)options->prompt, options->page_rows ? ", pages" : "");
  const struct token_time time = measure(model, options, report, name, 1); /* begins at position 0 */
  if (weights == BF16 && !options->prompts) report_rivals(report, options, which, 1, 0, time.p50);
  if (options->is_profiled) profile(model, report);
}

/* Measures all contexts of one exec. Returns the median for MUST_CONTEXT, or 0. */
static double measure_contexts(struct model *model, const struct options *options, struct report *report, int which,
                               int weights) {
  struct token_time at_must = {0};
  for (int c = 0; c < COUNTS; c++) {
    const int32_t context = options->context ? options->context : all_contexts[c];
    char name[80];
    snprintf(name, sizeof name, "%s %s, %d sequence%s, context %d%s", model_names[which],
             rondo_dtype_name(weight_types[weights]), (int)model->desc.sequences, model->desc.sequences > 1 ? "s" : "",
             (int)context, options->page_rows ? ", pages" : "");
    const struct token_time time = measure(model, options, report, name, context);
    if (context == MUST_CONTEXT) at_must = time;
    if (weights == BF16) report_rivals(report, options, which, model->desc.sequences, context, time.p50);
    if (options->is_profiled) profile(model, report);
    if (options->context) break;
  }
  if (at_must.p50 > 0 && model->desc.sequences == 1 && model->is_on_gpu && musts_us[which][weights] > 0) {
    report_figure(report, "  of that, with 512", at_must.p50, "us", musts_us[which][weights]);
    report_ratio(report, "  its 99.9th percentile over the median", at_must.p99_9, at_must.p50, "us",
                 most_of_the_slowest);
  }
  return at_must.p50;
}

/* Reports the time before the first replay. */
static void report_opening(const struct model *model, struct report *report, int which, int weights) {
  char name[80];
  snprintf(name, sizeof name, "%s %s, %d sequence%s, to instantiate", model_names[which],
           rondo_dtype_name(weight_types[weights]), (int)model->desc.sequences, model->desc.sequences > 1 ? "s" : "");
  report_figure(report, name, (double)model->instantiate_ns / 1e9, "s", model->is_on_gpu ? most_to_instantiate : 0);
  report_figure(report, "  weights and KV caches uploaded at", (double)model->upload_bytes / (double)model->upload_ns,
                "GB/s", 0);
}

static rondo_graph_llama_desc desc_of(const struct options *options, int which, int weights) {
  rondo_graph_llama_desc desc = ready_graph_called(model_names[which])->preset.llama;
  const int32_t least = options->prompt > options->context ? options->prompt : options->context;
  desc.weights = weight_types[weights];
  desc.nvfp4_scale = 0.01f;
  desc.rope_frequencies = 0; /* the time is the same with and without them */
  desc.context = least > options->capacity ? least : options->capacity;
  desc.tokens = options->prompt;
  if (options->prompts) {
    desc.sequences = options->prompts, desc.tokens = options->prompt * options->prompts;
    desc.packed = 1, desc.feed_back = 0;
  }
  return desc;
}

static void bench_model(const struct options *options, struct report *report, int which, int weights) {
  double alone = 0;
  for (int s = 0; s < COUNTS; s++) {
    struct model model = {.desc = desc_of(options, which, weights)};
    if (!options->prompt) model.desc.sequences = options->sequences ? options->sequences : all_sequences[s];
    model.desc.page_rows = options->page_rows;
    if (options->page_rows)
      model.desc.pages = model.desc.sequences * ((model.desc.context + options->page_rows - 1) / options->page_rows);
    model_open(&model, options);
    report_opening(&model, report, which, weights);
    if (options->prompt) {
      measure_prompt(&model, options, report, which, weights);
      model_close(&model);
      return;
    }
    double us = measure_contexts(&model, options, report, which, weights);
    if (model.desc.sequences == 1) alone = us;
    if (model.desc.sequences == 16 && alone > 0 && us > 0)
      report_ratio(report, "  16 sequences over one, with 512", us, alone, "us",
                   which == SMOLLM2 && model.is_on_gpu ? most_of_sixteen : 0);
    model_close(&model);
    if (options->sequences) return;
  }
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

static const struct choice models[] = {{"smollm2", 1 << SMOLLM2}, {"llama", 1 << LLAMA}, {NULL, 0}};
static const struct choice weights[] = {{"bf16", 1 << BF16}, {"e4m3", 1 << E4M3}, {"nvfp4", 1 << NVFP4}, {NULL, 0}};

static const struct argument arguments[] = {
    BACKEND_ARGUMENT(struct options),
    {.name = "model",
     .help = "only this model; may be repeated",
     .kind = VALUE_CHOICES,
     .offset = offsetof(struct options, models),
     .choices = models},
    {.name = "weights",
     .help = "only this type; may be repeated; default bf16 and nvfp4; e4m3 has at most 16 rows",
     .kind = VALUE_CHOICES,
     .offset = offsetof(struct options, weights),
     .choices = weights},
    {.name = "sequences",
     .help = "sequences that get a token at once; default 1, 4 and 16",
     .kind = VALUE_INT32,
     .offset = offsetof(struct options, sequences),
     .least = 1,
     .most = MOST_SEQUENCES},
    {.name = "context",
     .help = "tokens that each sequence sees, the last one included; default 128, 512 and 4096",
     .kind = VALUE_INT32,
     .offset = offsetof(struct options, context),
     .least = 1,
     .most = 131072},
    {.name = "capacity",
     .help = "capacity of a KV cache in tokens; default 4096",
     .kind = VALUE_INT32,
     .offset = offsetof(struct options, capacity),
     .least = 1,
     .most = 131072},
    {.name = "prompt",
     .help = "times a prompt of this many tokens, in one replay, in place of a token",
     .kind = VALUE_INT32,
     .offset = offsetof(struct options, prompt),
     .least = 1,
     .most = MOST_TOKENS},
    {.name = "prompts",
     .help = "with --prompt: this many prompts, of other sequences each, in the replay",
     .kind = VALUE_INT32,
     .offset = offsetof(struct options, prompts),
     .least = 1,
     .most = MOST_SEQUENCES},
    {.name = "pages",
     .help = "rows of a page of the KV caches, a power of two of at least 16; default no pages",
     .kind = VALUE_INT32,
     .offset = offsetof(struct options, page_rows),
     .least = 16,
     .most = 65536},
    {.name = "samples",
     .help = "of each; default 2000",
     .kind = VALUE_INT64,
     .offset = offsetof(struct options, samples),
     .least = 1,
     .most = 1e7},
    {.name = "profile",
     .help = "also measure each task",
     .kind = VALUE_FLAG,
     .offset = offsetof(struct options, is_profiled)},
    {.name = "rivals",
     .help = "show the times in a file of command/bench/rivals.py llama beside Rondo's in bf16",
     .kind = VALUE_TEXT,
     .offset = offsetof(struct options, rivals_path),
     .value_name = "FILE"},
    JSON_ARGUMENT(struct options),
};

int bench_llama(int count, char **words) {
  static const struct grammar grammar = {
      .program = "rondo bench llama",
      .about =
          "Times a token or a prompt of a language model, from rondo_replay until the host sees the next token. The\n"
          "models have the sizes of SmolLM2 135M and Llama 3.2 1B and random weights.\n",
      .status = BENCH_STATUS,
      .options = ARGUMENT_TABLE(arguments)};
  struct options options = {.samples = 2000, .capacity = 4096};
  struct report report = {0};
  rondo_runtime *runtime;
  rondo_info info;
  int done = arguments_read(&grammar, count, words, &options, NULL);
  if (done != ARGUMENTS_READ) return done;
  if (options.prompts && (!options.prompt || (int64_t)options.prompts * options.prompt > MOST_TOKENS))
    return command_failed("bench llama: --prompts goes with --prompt, and all have at most %d tokens", MOST_TOKENS);
  if (options.rivals_path && !json_lines_read(options.rivals_path, take_rival, &options.rivals)) return EXIT_FAILED;
  if (!options.weights) options.weights = 1u << BF16 | 1u << NVFP4;
  TRY(rondo_open(&(rondo_options){.backend = options.backend}, &runtime));
  TRY(rondo_runtime_info(runtime, &info));
  report_begin(&report, options.json);
  report_machine(&report, &info);
  TRY(rondo_close(&runtime));
  for (int m = 0; m < MODELS; m++)
    for (int w = 0; w < WEIGHTS; w++)
      if ((!options.models || options.models >> m & 1) && options.weights >> w & 1)
        bench_model(&options, &report, m, w);
  return report_end(&report);
}
