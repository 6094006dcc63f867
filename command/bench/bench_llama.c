/* bench_llama.c - rondo bench llama: times a token or a prompt of a language model, from rondo_replay until the host
 * sees the next token.
 *
 * The models have the sizes of SmolLM2 135M, Llama 3.2 1B and Llama 3.1 8B and random weights, in bf16, e4m3 and NVFP4.
 * Cases differ in the number of sequences and in the length of the context. The graph feeds tokens back; positions stay
 * the same. After every 200 tokens, replayed one by one, each of which the host waits for and reads before the next
 * replay, come as many in one repeat; the times of both stand beside each other. Beside the times in bf16 stand those
 * of PyTorch, which llama_rivals.py measures. With several ranks each model is measured on one first, and the times of
 * all ranks stand beside it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../json_lines.h"
#include "../room.h"
#include "bench.h"
#include "random_model.h"
#include "timing.h"

enum { SMOLLM2, LLAMA, LLAMA_8B, MODELS };
enum { BF16, E4M3, NVFP4, WEIGHTS };
enum {
  COUNTS = 3,
  MUST_CONTEXT = 512,
  WARM_REPLAYS = 100,
  MOST_SEQUENCES = 256,
  MOST_TOKENS = 8192,  /* of a replay */
  REPEAT_TOKENS = 200, /* of a repeat */
  DRAFT_TOKENS = 16,   /* of replays one by one, where positions change */
  RIVALS_MOST = 128
};

static const char *const model_names[MODELS] = {"smollm2", "llama", "llama8b"};
static const rondo_dtype weight_types[WEIGHTS] = {RONDO_BF16, RONDO_E4M3, RONDO_NVFP4};
static const int32_t all_sequences[COUNTS] = {1, 4, 16}, all_contexts[COUNTS] = {128, 512, 4096};

/* The figures to reach: microseconds of a token of one sequence with a context of MUST_CONTEXT, on an H200. 0: none. */
static const double musts_us[MODELS][WEIGHTS] = {
    [SMOLLM2] = {[BF16] = 340, [NVFP4] = 300}, [LLAMA] = {[BF16] = 720, [NVFP4] = 330}};
static const double most_of_repeats = 0.97;    /* SmolLM2: the time of a token in repeats over that of one by one */
static const double most_of_sixteen = 1.6;     /* SmolLM2: the time of 16 sequences over that of one */
static const double most_of_the_slowest = 1.5; /* the 99.9th percentile over the median */
static const double most_to_instantiate = 1;   /* seconds */

/* The time of so many ranks over that of one, in bf16, with a GPU for each. */
static const struct {
  int which;
  uint32_t ranks;
  int32_t prompt;
  double most;
} most_of_ranks[] = {{LLAMA, 2, 0, 0.62}, {LLAMA_8B, 2, 0, 0.56}, {LLAMA_8B, 4, 0, 0.34}, {LLAMA_8B, 4, 2048, 0.35}};

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
  uint32_t models, weights; /* bits. models 0: all but the largest; weights 0: bf16 and nvfp4 */
  int32_t ranks;            /* more than 1: measured beside one */
  int32_t sequences, context, capacity;
  int32_t draft;   /* tokens; 0: none */
  int32_t prompt;  /* tokens; 0: decode */
  int32_t prompts; /* in a replay */
  int32_t page_rows;
  int64_t samples;
  bool sleeps, is_profiled, is_on_gpu;
  const char *rivals_path, *json;
  struct rival_tokens rivals; /* from that file */
};

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

static int32_t check_token(const struct random_model *model, const volatile int32_t *token) {
  const int32_t seen = *token;
  if (seen < 0 || seen >= model->desc.vocabulary) exit(command_failed("bench: a token is not in the vocabulary"));
  return seen;
}

/* Replays the prompt, or one token of every sequence. */
static void replay_once(const struct random_model *model) {
  TRY(rondo_replay_all(model->slots, model->ranks));
  TRY(rondo_wait_all(model->slots, model->ranks, RONDO_FOREVER));
  const int32_t first = check_token(model, rondo_data(model->slots[0], model->rank[0].ends.next));
  for (uint32_t r = 1; r < model->ranks; r++)
    if (check_token(model, rondo_data(model->slots[r], model->rank[r].ends.next)) != first)
      exit(command_failed("bench: rank %u has another token than rank 0", (unsigned)r));
}

/* Adds the time of each replay to the samples. Returns the time of all in nanoseconds. */
static uint64_t replay_one_by_one(const struct random_model *model, uint32_t count, struct samples *samples) {
  const uint64_t first = timing_now_ns();
  for (uint32_t i = 0; i < count; i++) {
    const uint64_t begin = timing_now_ns();
    replay_once(model);
    samples_add(samples, timing_now_ns() - begin);
  }
  return timing_now_ns() - first;
}

/* Reads each token as it comes. Returns the time of all in nanoseconds. */
static uint64_t repeat(const struct random_model *model, uint32_t count) {
  const uint64_t begin = timing_now_ns();
  uint32_t done;
  for (uint32_t r = 0; r < model->ranks; r++)
    TRY(rondo_repeat(model->slots[r], &(rondo_repeat_options){.count = count}));
  for (uint32_t i = 0; i < count; i++) {
    TRY(rondo_repeat_wait(model->slots[0], i + 1, RONDO_FOREVER, &done));
    check_token(model, rondo_repeat_data(model->slots[0], model->rank[0].ends.next, i));
  }
  const uint64_t end = timing_now_ns();
  TRY(rondo_wait_all(model->slots, model->ranks, RONDO_FOREVER));
  return end - begin;
}

/* The times of a token in microseconds. The last two are medians of rounds of as many tokens each, in turns; 0 if the
 * exec cannot repeat. */
struct token_time {
  double p50, p99_9, one_by_one, repeated;
};

static void set_positions(const struct random_model *model, int32_t context) {
  int32_t positions[MOST_SEQUENCES];
  for (int i = 0; i < MOST_SEQUENCES; i++) positions[i] = context - 1; /* the token is the last one of the context */
  for (uint32_t r = 0; r < model->ranks && model->desc.feed_back; r++)
    TRY(rondo_upload(model->rank[r].exec, model->rank[r].ends.position, positions,
                     (uint64_t)model->desc.sequences * sizeof(int32_t)));
}

static struct token_time measure(const struct random_model *model, const struct options *options, struct report *report,
                                 const char *name, int32_t context) {
  const uint32_t most = model->desc.draft ? DRAFT_TOKENS : REPEAT_TOKENS;
  const size_t count = (size_t)options->samples, rounds = (count + most - 1) / most;
  struct samples samples = samples_take(count), one_by_one = samples_take(rounds), repeated = samples_take(rounds);
  set_positions(model, context);
  for (int64_t i = 0; i < WARM_REPLAYS && i < options->samples; i++) replay_once(model);
  for (size_t left = count; left > 0; left = count - samples.count) {
    const uint32_t tokens = left < most ? (uint32_t)left : most;
    if (model->desc.draft) set_positions(model, context); /* each replay moves on by the tokens that it accepts */
    samples_add(&one_by_one, replay_one_by_one(model, tokens, &samples) / tokens);
    if (model->repeat_steps) samples_add(&repeated, repeat(model, tokens) / tokens);
    progress(name, samples.count, count);
  }
  struct token_time time = {.p50 = samples_us(&samples, 50), .p99_9 = samples_us(&samples, 99.9)};
  if (model->repeat_steps) time.one_by_one = samples_us(&one_by_one, 50), time.repeated = samples_us(&repeated, 50);
  report_samples(report, name, &samples);
  samples_free(&samples), samples_free(&one_by_one), samples_free(&repeated);
  return time;
}

static void profile(const struct random_model *model, struct report *report) {
  char path[MEMORY_PATH_BYTES], text[4096];
  rondo_exec_usage usage;
  rondo_profile_totals totals;
  TRY(rondo_exec_info(model->rank[0].exec, &usage));
  rondo_task_profile *tasks = room_take((usage.node_count + UINT64_C(1)) * sizeof *tasks, "bench llama: times");
  FILE *table = memory_file(path);
  if (!table) exit(EXIT_FAILED);
  TRY(rondo_profile(model->slots[0], NULL, tasks, usage.node_count, &totals));
  TRY(rondo_write_profile(tasks, &totals, path));
  while (fgets(text, sizeof text, table)) output_print(&report->output, "%s", text);
  fclose(table);
  free(tasks);
}

/* ", 2 ranks", or "" of one. */
static const char *ranks_text(const struct random_model *model, char text[16]) {
  snprintf(text, 16, ", %u ranks", (unsigned)model->ranks);
  return model->ranks > 1 ? text : "";
}

/* Of one rank it keeps the time, and shows that of several beside it. */
static void compare_ranks(const struct random_model *model, struct report *report, int which, int weights, double us,
                          double *one_rank) {
  double most = 0;
  if (model->ranks == 1) *one_rank = us;
  if (model->ranks == 1) return;
  for (size_t i = 0; i < sizeof most_of_ranks / sizeof *most_of_ranks; i++)
    if (most_of_ranks[i].which == which && most_of_ranks[i].ranks == model->ranks &&
        most_of_ranks[i].prompt == model->desc.tokens && model->desc.sequences == 1 && weights == BF16 &&
        model->is_on_gpu && model->devices == (int32_t)model->ranks)
      most = most_of_ranks[i].most;
  report_ratio(report, "  over one rank", us, *one_rank, "us", most);
}

static void measure_prompt(struct random_model *model, const struct options *options, struct report *report, int which,
                           int weights, double *one_rank) {
  char name[80], count[32] = "prompt", ranks[16];
  if (options->prompts) snprintf(count, sizeof count, "%d prompts", (int)options->prompts);
  snprintf(name, sizeof name, "%s %s, %s of %d tokens%s%s", model_names[which], rondo_dtype_name(weight_types[weights]),
           count, (int)options->prompt, options->page_rows ? ", pages" : "", ranks_text(model, ranks));
  const struct token_time time = measure(model, options, report, name, 1); /* begins at position 0 */
  compare_ranks(model, report, which, weights, time.p50, one_rank);
  if (weights == BF16 && !options->prompts && model->ranks == 1) report_rivals(report, options, which, 1, 0, time.p50);
  if (options->is_profiled) profile(model, report);
}

static bool has_must(const struct random_model *model, int which, int weights) {
  return model->desc.sequences == 1 && model->is_on_gpu && model->ranks == 1 && musts_us[which][weights] > 0;
}

static rondo_graph_llama_desc desc_of(const struct options *options, int which, int weights) {
  rondo_graph_llama_desc desc = ready_graph_called(which == SMOLLM2 ? "smollm2" : "llama")->preset.llama;
  if (which == LLAMA_8B)
    desc.layers = 32, desc.hidden = 4096, desc.feed_forward = 14336, desc.head_dimension = 128, desc.tied_embedding = 0;
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

static rondo_wait_mode wait_mode_of(const struct options *options) {
  return options->sleeps ? RONDO_WAIT_BLOCK : RONDO_WAIT_SPIN_YIELD;
}

/* Measures a replay of a token and its drafts, beside those of one token. */
static void measure_drafts(const struct options *options, struct report *report, int which, int weights,
                           const double one_token[COUNTS]) {
  struct random_model model = {
      .desc = desc_of(options, which, weights), .ranks = 1, .wait_mode = wait_mode_of(options)};
  model.desc.sequences = 1, model.desc.draft = options->draft, model.desc.verify = 1;
  model.desc.context += DRAFT_TOKENS * (1 + (int64_t)options->draft); /* room for what is accepted */
  random_model_open(&model, options->backend);
  for (int c = 0; c < COUNTS && (c == 0 || !options->context); c++) {
    const int32_t context = options->context ? options->context : all_contexts[c];
    char name[80];
    snprintf(name, sizeof name, "%s %s, a token and %d drafts, context %d", model_names[which],
             rondo_dtype_name(weight_types[weights]), (int)options->draft, (int)context);
    const struct token_time time = measure(&model, options, report, name, context);
    report_ratio(report, "  over a token", time.p50, one_token[c], "us", 0);
    if (options->is_profiled) profile(&model, report);
  }
  random_model_close(&model);
}

/* Measures all contexts of one exec. Returns the median for MUST_CONTEXT, or 0. */
static double measure_contexts(struct random_model *model, const struct options *options, struct report *report,
                               int which, int weights, double one_rank[COUNTS]) {
  struct token_time at_must = {0};
  for (int c = 0; c < COUNTS; c++) {
    const int32_t context = options->context ? options->context : all_contexts[c];
    char name[80], ranks[16];
    snprintf(name, sizeof name, "%s %s, %d sequence%s, context %d%s%s", model_names[which],
             rondo_dtype_name(weight_types[weights]), (int)model->desc.sequences, model->desc.sequences > 1 ? "s" : "",
             (int)context, options->page_rows ? ", pages" : "", ranks_text(model, ranks));
    const struct token_time time = measure(model, options, report, name, context);
    compare_ranks(model, report, which, weights, time.p50, &one_rank[c]);
    if (context == MUST_CONTEXT) at_must = time;
    const bool has_limit = which == SMOLLM2 && context == MUST_CONTEXT && has_must(model, which, weights);
    if (time.repeated > 0)
      report_ratio(report, "  in repeats, over one by one", time.repeated, time.one_by_one, "us",
                   has_limit ? most_of_repeats : 0);
    if (weights == BF16 && model->ranks == 1)
      report_rivals(report, options, which, model->desc.sequences, context, time.p50);
    if (options->is_profiled) profile(model, report);
    if (options->context) break;
  }
  if (at_must.p50 > 0 && has_must(model, which, weights)) {
    report_figure(report, "  of that, with 512", at_must.p50, "us", musts_us[which][weights]);
    report_ratio(report, "  its 99.9th percentile over the median", at_must.p99_9, at_must.p50, "us",
                 most_of_the_slowest);
  }
  return at_must.p50;
}

/* Reports the time before the first replay. */
static void report_opening(const struct random_model *model, struct report *report, int which, int weights) {
  char name[80], ranks[16];
  snprintf(name, sizeof name, "%s %s, %d sequence%s%s, to instantiate", model_names[which],
           rondo_dtype_name(weight_types[weights]), (int)model->desc.sequences, model->desc.sequences > 1 ? "s" : "",
           ranks_text(model, ranks));
  report_figure(report, name, (double)model->instantiate_ns / 1e9, "s",
                model->is_on_gpu && which != LLAMA_8B ? most_to_instantiate * model->ranks : 0);
  if (model->is_on_gpu && model->devices < (int32_t)model->ranks)
    output_print(&report->output, "  the ranks share %d GPU%s\n", (int)model->devices, model->devices > 1 ? "s" : "");
  report_figure(report, "  weights and KV caches uploaded at", (double)model->upload_bytes / (double)model->upload_ns,
                "GB/s", 0);
  if (*model->no_repeat) output_print(&report->output, "  repeats are left out: %s\n", model->no_repeat);
}

/* Measures the prompt, or a token of so many sequences with each context. Returns the median for MUST_CONTEXT, or 0. */
static double bench_sequences(const struct options *options, struct report *report, int which, int weights,
                              int32_t sequences, uint32_t ranks, double one_rank[COUNTS]) {
  struct random_model model = {
      .desc = desc_of(options, which, weights), .ranks = ranks, .wait_mode = wait_mode_of(options)};
  double us = 0;
  if (!options->prompt) model.repeat_steps = REPEAT_TOKENS;
  if (!options->prompt) model.desc.sequences = sequences;
  model.desc.page_rows = options->page_rows;
  if (options->page_rows)
    model.desc.pages = model.desc.sequences * ((model.desc.context + options->page_rows - 1) / options->page_rows);
  random_model_open(&model, options->backend);
  report_opening(&model, report, which, weights);
  if (options->prompt)
    measure_prompt(&model, options, report, which, weights, one_rank);
  else
    us = measure_contexts(&model, options, report, which, weights, one_rank);
  random_model_close(&model);
  return us;
}

static void bench_model(const struct options *options, struct report *report, int which, int weights) {
  double alone = 0;
  for (int s = 0; s < COUNTS; s++) {
    const int32_t sequences = options->sequences ? options->sequences : all_sequences[s];
    double one_rank[COUNTS] = {0};
    const double us = bench_sequences(options, report, which, weights, sequences, 1, one_rank);
    if (sequences == 1) alone = us;
    if (sequences == 1 && options->draft && !options->prompt) measure_drafts(options, report, which, weights, one_rank);
    if (sequences == 16 && alone > 0 && us > 0)
      report_ratio(report, "  16 sequences over one, with 512", us, alone, "us",
                   which == SMOLLM2 && options->is_on_gpu ? most_of_sixteen : 0);
    if (options->ranks > 1)
      bench_sequences(options, report, which, weights, sequences, (uint32_t)options->ranks, one_rank);
    if (options->sequences || options->prompt) return;
  }
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

static const struct choice models[] = {
    {"smollm2", 1 << SMOLLM2}, {"llama", 1 << LLAMA}, {"llama8b", 1 << LLAMA_8B}, {NULL, 0}};
static const struct choice weights[] = {{"bf16", 1 << BF16}, {"e4m3", 1 << E4M3}, {"nvfp4", 1 << NVFP4}, {NULL, 0}};

static const struct argument arguments[] = {
    BACKEND_ARGUMENT(struct options),
    {.name = "model",
     .help = "only this model; may be repeated; default smollm2 and llama",
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
    {.name = "draft",
     .help = "also times a replay of a token and so many drafts, of one sequence",
     .kind = VALUE_INT32,
     .offset = offsetof(struct options, draft),
     .least = 1,
     .most = 127},
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
    {.name = "ranks",
     .help = "also measures so many ranks, each on a GPU of its own if there are enough",
     .kind = VALUE_INT32,
     .offset = offsetof(struct options, ranks),
     .least = 1,
     .most = RONDO_MAX_RANKS},
    {.name = "samples",
     .help = "of each; default 2000",
     .kind = VALUE_INT64,
     .offset = offsetof(struct options, samples),
     .least = 1,
     .most = 1e7},
    {.name = "sleep",
     .help = "the host sleeps while it waits; default: it spins, then yields",
     .kind = VALUE_FLAG,
     .offset = offsetof(struct options, sleeps)},
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
          "models have the sizes of SmolLM2 135M, Llama 3.2 1B and Llama 3.1 8B and random weights. Tokens of\n"
          "rondo_repeat, each read as it comes, stand beside those replayed one by one.\n",
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
  if (options.is_profiled && options.ranks > 1) return command_failed("bench llama: --profile goes with one rank");
  if (options.draft && (options.prompt || options.sequences > 1))
    return command_failed("bench llama: --draft goes with one sequence and without --prompt");
  if (!options.weights) options.weights = 1u << BF16 | 1u << NVFP4;
  if (!options.models) options.models = 1u << SMOLLM2 | 1u << LLAMA;
  TRY(rondo_open(&(rondo_options){.backend = options.backend}, &runtime));
  TRY(rondo_runtime_info(runtime, &info));
  options.is_on_gpu = info.backend == RONDO_BACKEND_CUDA;
  report_begin(&report, options.json);
  report_machine(&report, &info);
  TRY(rondo_close(&runtime));
  for (int m = 0; m < MODELS; m++)
    for (int w = 0; w < WEIGHTS; w++)
      if (options.models >> m & 1 && options.weights >> w & 1) bench_model(&options, &report, m, w);
  return report_end(&report);
}
