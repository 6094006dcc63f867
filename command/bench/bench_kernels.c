/* bench_kernels.c - rondo bench kernels: times kernels in graphs, with operands that no cache holds. Beside each time
 * stand the time of only reading the same bytes, the figure to reach, and the times of rivals, which rivals.py
 * measures. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bandwidth_plot.h"
#include "bench.h"
#include "bench_attention_steps.h"
#include "bench_gemv.h"
#include "bench_ladder.h"
#include "bench_qr.h"
#include "bench_rowmax_tile.h"
#include "bench_softmax.h"
#include "kernel_results.h"
#include "qr_plot.h"
#include "speed_plot.h"
#include "timing.h"

enum edges { EDGES_PLAIN, EDGES_PROGRAMMATIC };

struct options {
  const char *only, *json, *rivals, *from, *plot;
  int32_t edges, samples, deviation;
  bool is_warm, has_one_order, is_portable;
};

struct bench {
  struct options options;
  struct report report;
  struct kernel_results results, rivals;
  struct softmax_results softmax_results, softmax_rivals;
  struct qr_results qr_results, qr_rivals;
  struct bench_device device;
  /* A group opens the device when it needs it. */
  struct gemv_memory memory;
  struct softmax_memory softmax_memory;
  uint32_t wrong; /* cases */
};

static struct gemv_memory *product_memory(struct bench *bench) {
  if (!bench->memory.device) fputs("filling memory\n", stderr);
  if (!bench->memory.device) gemv_memory_take(&bench->device, &bench->memory);
  return &bench->memory;
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

static bool is_wanted(const struct bench *bench, const struct kernel_case *shape, char label[KERNEL_LABEL_BYTES]) {
  kernel_case_label(shape, label);
  return kernel_label_wanted(label, bench->options.only);
}

/* The time of reading hardly depends on the number of vectors. It is measured once for all numbers. */
static double read_us(const struct bench *bench, const struct kernel_case *shape, const struct gemv_options *options) {
  for (size_t i = 0; i < bench->results.count; i++) {
    const struct kernel_case *known = &bench->results.items[i].shape;
    bool is_same = known->m == shape->m && known->k == shape->k && known->batch == shape->batch;
    if (is_same && known->weights == shape->weights) return bench->results.items[i].read_us;
  }
  return gemv_read_us(&bench->memory, shape, options);
}

/* gemv's cases stand beside the time of only reading the same bytes, which is the bound of few vectors. */
static void measure_cases(struct bench *bench, const struct kernel_case *cases, size_t count, double read_rate) {
  bool is_programmatic = bench->options.edges == EDGES_PROGRAMMATIC;
  struct gemv_options options = {.is_warm = bench->options.is_warm,
                                 .is_programmatic = is_programmatic,
                                 .has_one_order = bench->options.has_one_order,
                                 .samples = (uint32_t)bench->options.samples};
  for (size_t i = 0; i < count; i++) {
    char label[KERNEL_LABEL_BYTES];
    if (!is_wanted(bench, &cases[i], label)) continue;
    fprintf(stderr, "%s\n", label);
    struct gemv_timing timing = gemv_measure(product_memory(bench), &cases[i], &options, is_programmatic);
    if (isnan(timing.us)) {
      bench->wrong++;
      continue;
    }
    struct kernel_result result = {
        .shape = cases[i], .us = timing.us, .is_warm = options.is_warm, .is_programmatic = is_programmatic};
    if (read_rate > 0) result.read_us = read_us(bench, &cases[i], &options);
    if (read_rate > 0) result.bound_us = (double)kernel_case_bytes(&cases[i]) / read_rate;
    memcpy(result.kernel, timing.kernel, sizeof result.kernel);
    kernel_results_add(&bench->results, &result);
    kernel_result_report(&bench->report, &bench->results, bench->results.count - 1, &bench->rivals);
    fflush(stdout);
  }
}

static void measure_gemv(struct bench *bench) {
  static struct kernel_case cases[KERNEL_CASES_MOST];
  const double rate = gemv_read_rate(product_memory(bench), (uint32_t)bench->options.samples);
  report_figure(&bench->report, "reading 1 GB", rate / 1e3, "GB/s", 0);
  measure_cases(bench, cases, kernel_cases(cases), rate);
}

static void measure_gemm(struct bench *bench) {
  static struct kernel_case cases[KERNEL_CASES_MOST];
  measure_cases(bench, cases, kernel_gemm_cases(cases), 0);
}

/* ---- Chains ------------------------------------------------------------------------------------------------------ */

static const struct kernel_case chain_cases[] = {{RONDO_NVFP4, RONDO_NVFP4, RONDO_F16, 4096, 4096, 1, 1},
                                                 {RONDO_NVFP4, RONDO_BF16, RONDO_BF16, 4096, 4096, 1, 1}};
enum { CHAIN_CASES = sizeof chain_cases / sizeof *chain_cases };

static void measure_chains(struct bench *bench) {
  static const char *const edges[] = {"plain edges", "programmatic edges", "early weights"};
  enum { PLAIN, PROGRAMMATIC, EARLY };
  struct gemv_options options = {.samples = (uint32_t)bench->options.samples, .is_chain = true};
  struct gemv_memory *memory = product_memory(bench);
  for (size_t i = 0; i < CHAIN_CASES; i++) {
    char label[KERNEL_LABEL_BYTES], name[KERNEL_LABEL_BYTES + 64];
    if (!is_wanted(bench, &chain_cases[i], label)) continue;
    double us[3];
    for (int e = PLAIN; e <= EARLY; e++) {
      fprintf(stderr, "chain of 8 %s, %s\n", label, edges[e]);
      options.is_programmatic = e != PLAIN;
      us[e] = gemv_measure(memory, &chain_cases[i], &options, e == EARLY).us * 8;
    }
    if (isnan(us[PLAIN] + us[PROGRAMMATIC] + us[EARLY])) {
      bench->wrong++;
      continue;
    }
    snprintf(name, sizeof name, "chain of 8 %s, early weights / plain", label);
    report_ratio(&bench->report, name, us[EARLY], us[PLAIN], "us", 0.8);
    snprintf(name, sizeof name, "  early weights / programmatic edges");
    report_ratio(&bench->report, name, us[EARLY], us[PROGRAMMATIC], "us", 0);
    fflush(stdout);
  }
}

static void measure_ladder(struct bench *bench) {
  bench->wrong +=
      ladder_measure(product_memory(bench), &bench->report, bench->options.only, (uint32_t)bench->options.samples);
}

/* ---- Attention and softmax --------------------------------------------------------------------------------------- */

static bool is_softmax_wanted(const struct bench *bench, const struct softmax_case *shape,
                              char label[SOFTMAX_LABEL_BYTES]) {
  softmax_case_label(shape, label);
  return kernel_label_wanted(label, bench->options.only);
}

static struct softmax_memory *softmax_memory(struct bench *bench) {
  if (!bench->softmax_memory.device) softmax_memory_take(&bench->device, &bench->softmax_memory);
  return &bench->softmax_memory;
}

static void measure_softmax(struct bench *bench, bool is_attention) {
  struct softmax_case cases[SOFTMAX_CASES_MOST];
  struct softmax_options options = {.is_warm = bench->options.is_warm,
                                    .is_programmatic = bench->options.edges == EDGES_PROGRAMMATIC,
                                    .is_portable = bench->options.is_portable,
                                    .samples = (uint32_t)bench->options.samples};
  size_t count = softmax_cases(cases);
  for (size_t i = 0; i < count; i++) {
    char label[SOFTMAX_LABEL_BYTES];
    struct softmax_result results[2];
    if (bench->options.deviation > 1) cases[i].deviation = bench->options.deviation;
    if (softmax_kind_is_attention(cases[i].kind) != is_attention || !is_softmax_wanted(bench, &cases[i], label))
      continue;
    fprintf(stderr, "%s\n", label);
    size_t states = softmax_measure(softmax_memory(bench), &cases[i], &options, results);
    bench->wrong += states == 0;
    for (size_t s = 0; s < states; s++) {
      softmax_results_add(&bench->softmax_results, &results[s]);
      softmax_result_report(&bench->report, &bench->softmax_results, bench->softmax_results.count - 1,
                            &bench->softmax_rivals);
    }
    fflush(stdout);
  }
}

static void measure_attention(struct bench *bench) { measure_softmax(bench, true); }
static void measure_fused_softmax(struct bench *bench) { measure_softmax(bench, false); }

static void measure_attention_steps(struct bench *bench) {
  bench->wrong += attention_steps_measure(softmax_memory(bench), &bench->report, bench->options.only,
                                          (uint32_t)bench->options.samples);
}

/* Left out if all groups are to measure the cases with some words: this group has no labels. */
static void measure_rowmax_tile(struct bench *bench) {
  if (!bench->options.only)
    bench->wrong += rowmax_tile_measure(&bench->device, &bench->report, (uint32_t)bench->options.samples);
}

/* ---- QR ---------------------------------------------------------------------------------------------------------- */

static bool is_qr_wanted(const struct bench *bench, const struct qr_case *shape, char label[QR_LABEL_BYTES]) {
  qr_case_label(shape, label);
  return kernel_label_wanted(label, bench->options.only);
}

/* All cases cold, and those with a figure to reach warm too. */
static void measure_qr(struct bench *bench) {
  struct qr_case cases[QR_CASES_MOST];
  struct qr_memory memory;
  struct qr_options options = {.is_programmatic = bench->options.edges == EDGES_PROGRAMMATIC,
                               .samples = (uint32_t)bench->options.samples};
  size_t count = qr_cases(cases);
  bool has_memory = false;
  for (size_t i = 0; i < count; i++) {
    char label[QR_LABEL_BYTES];
    if (!is_qr_wanted(bench, &cases[i], label)) continue;
    if (!has_memory) {
      qr_memory_take(&bench->device, options.samples, &memory);
      report_figure(&bench->report, "copying 1 GB", memory.copy_rate / 1e3, "GB/s", 0);
      has_memory = true;
    }
    fprintf(stderr, "%s\n", label);
    for (int is_warm = bench->options.is_warm; is_warm < 2; is_warm++) {
      struct qr_result result;
      options.is_warm = is_warm != 0;
      if (is_warm && !bench->options.is_warm && qr_case_must_us(&cases[i]) <= 0) continue;
      if (!qr_measure(&memory, &cases[i], &options, &result)) {
        bench->wrong++;
        break;
      }
      qr_results_add(&bench->qr_results, &result);
      qr_result_report(&bench->report, &bench->qr_results, &result, &bench->qr_rivals);
    }
    fflush(stdout);
  }
}

/* ---- Groups of cases --------------------------------------------------------------------------------------------- */

enum { LABEL_BYTES = SOFTMAX_LABEL_BYTES /* the longest */ };
static_assert((int)KERNEL_LABEL_BYTES <= (int)LABEL_BYTES && (int)QR_LABEL_BYTES <= (int)LABEL_BYTES,
              "any group's label");

static bool product_label(size_t index, size_t (*table)(struct kernel_case *), char label[LABEL_BYTES]) {
  static struct kernel_case cases[KERNEL_CASES_MOST];
  if (index >= table(cases)) return false;
  kernel_case_label(&cases[index], label);
  return true;
}
static bool gemv_label(size_t index, char label[LABEL_BYTES]) { return product_label(index, kernel_cases, label); }
static bool gemm_label(size_t index, char label[LABEL_BYTES]) { return product_label(index, kernel_gemm_cases, label); }

static bool chain_label(size_t index, char label[LABEL_BYTES]) {
  if (index >= CHAIN_CASES) return false;
  kernel_case_label(&chain_cases[index], label);
  return true;
}

static bool either_label(size_t index, bool is_attention, char label[LABEL_BYTES]) {
  struct softmax_case cases[SOFTMAX_CASES_MOST];
  const size_t count = softmax_cases(cases);
  for (size_t i = 0; i < count; i++) {
    if (softmax_kind_is_attention(cases[i].kind) != is_attention || index--) continue;
    softmax_case_label(&cases[i], label);
    return true;
  }
  return false;
}

static bool attention_label(size_t index, char label[LABEL_BYTES]) { return either_label(index, true, label); }
static bool softmax_label(size_t index, char label[LABEL_BYTES]) { return either_label(index, false, label); }

static bool qr_label(size_t index, char label[LABEL_BYTES]) {
  struct qr_case cases[QR_CASES_MOST];
  if (index >= qr_cases(cases)) return false;
  qr_case_label(&cases[index], label);
  return true;
}

/* The options of a group. */
enum { KNOWS_ONLY = 1, KNOWS_WARM = 2, KNOWS_EDGES = 4, KNOWS_ALIKE = 8, KNOWS_PORTABLE = 16, KNOWS_DEVIATION = 32 };

static const struct group {
  const char *name;
  void (*measure)(struct bench *bench);
  unsigned knows;
  bool (*label)(size_t index, char label[LABEL_BYTES]); /* false: there is no case of this index */
} groups[] = {{"gemv", measure_gemv, KNOWS_ONLY | KNOWS_WARM | KNOWS_EDGES | KNOWS_ALIKE, gemv_label},
              {"gemm", measure_gemm, KNOWS_ONLY | KNOWS_WARM | KNOWS_EDGES | KNOWS_ALIKE, gemm_label},
              {"chain", measure_chains, KNOWS_ONLY, chain_label},
              {"ladder", measure_ladder, KNOWS_ONLY, ladder_label},
              {"attention", measure_attention, KNOWS_ONLY | KNOWS_WARM | KNOWS_EDGES | KNOWS_PORTABLE | KNOWS_DEVIATION,
               attention_label},
              {"attention-steps", measure_attention_steps, KNOWS_ONLY, attention_steps_label},
              {"softmax", measure_fused_softmax,
               KNOWS_ONLY | KNOWS_WARM | KNOWS_EDGES | KNOWS_PORTABLE | KNOWS_DEVIATION, softmax_label},
              {"rowmax-tile", measure_rowmax_tile, 0, NULL},
              {"qr", measure_qr, KNOWS_ONLY | KNOWS_WARM | KNOWS_EDGES, qr_label}};
enum { GROUPS = sizeof groups / sizeof *groups };

/* ---- The command ------------------------------------------------------------------------------------------------- */

static const struct choice edge_choices[] = {{"plain", EDGES_PLAIN}, {"programmatic", EDGES_PROGRAMMATIC}, {NULL, 0}};

static const struct argument arguments[] = {
    {.name = "only",
     .help = "only cases with all of these words in their labels: \"nvfp4:bf16 count=1\"",
     .kind = VALUE_TEXT,
     .offset = offsetof(struct options, only),
     .value_name = "WORDS"},
    {.name = "edges",
     .help = "edges from one launch to the next; default plain",
     .kind = VALUE_CHOICE,
     .offset = offsetof(struct options, edges),
     .choices = edge_choices},
    {.name = "warm",
     .help = "one copy of the weights, KV caches or matrices, so that caches may hold it",
     .kind = VALUE_FLAG,
     .offset = offsetof(struct options, is_warm)},
    {.name = "alike",
     .help = "products with one_order: a vector's result has the same bits beside any other vectors",
     .kind = VALUE_FLAG,
     .offset = offsetof(struct options, has_one_order)},
    {.name = "portable",
     .help = "attention and softmax with the portable kernels",
     .kind = VALUE_FLAG,
     .offset = offsetof(struct options, is_portable)},
    {.name = "deviation",
     .help = "standard deviation of the scores of attention and softmax; default 1",
     .kind = VALUE_INT32,
     .offset = offsetof(struct options, deviation),
     .least = 1,
     .most = 1000},
    {.name = "samples",
     .help = "replays; the median is shown; default 7",
     .kind = VALUE_INT32,
     .offset = offsetof(struct options, samples),
     .least = 1,
     .most = 10000},
    {.name = "rivals",
     .help = "show the times in a file of command/bench/rivals.py beside Rondo's",
     .kind = VALUE_TEXT,
     .offset = offsetof(struct options, rivals),
     .value_name = "FILE"},
    {.name = "from",
     .help = "read a file of --json instead of measuring",
     .kind = VALUE_TEXT,
     .offset = offsetof(struct options, from),
     .value_name = "FILE"},
    {.name = "plot",
     .help = "draw an SVG: bandwidth over bytes, attention's speed over length, or QR's speed over size",
     .kind = VALUE_TEXT,
     .offset = offsetof(struct options, plot),
     .value_name = "FILE"},
    JSON_ARGUMENT(struct options),
};

static const struct grammar grammar = {
    .program = "rondo bench kernels",
    .words = "[GROUP]",
    .about =
        "Times kernels in graphs of many launches, with operands that no cache holds. Before that, it checks\n"
        "sampled rows of each result. GROUP is one of these; the default is all:\n"
        "  gemv             products of a matrix with 1 to 16 vectors, beside only reading the same bytes\n"
        "  gemm             products of a matrix with 32 to 4096 vectors\n"
        "  chain            successive products, with and without weights that are fetched early\n"
        "  ladder           eight kernels outside of the library, each with one more idea than the previous one\n"
        "  attention        prompts, after a pause and under sustained load, and decoding\n"
        "  attention-steps  the portable attention kernel, complete and with each step left out in turn\n"
        "  softmax          softmax, or maxima, of the rows of products\n"
        "  rowmax-tile      row maxima of one tile, through shared memory and in registers\n"
        "  qr               batched QR: H and tau, thin Q and R, R alone, least squares, Q'C, inverses of triangles\n",
    .status = BENCH_STATUS,
    .options = ARGUMENT_TABLE(arguments)};

/* The group that the first word names, or GROUPS for all. -1 after a sentence on stderr: there is no such group. */
static int read_group(int *count, char ***words) {
  if (!*count || (*words)[0][0] == '-') return GROUPS;
  for (int i = 0; i < GROUPS; i++) {
    if (strcmp((*words)[0], groups[i].name) != 0) continue;
    ++*words;
    --*count;
    return i;
  }
  arguments_wrong(
      grammar.program,
      "the group is '%s', expected gemv, gemm, chain, ladder, attention, attention-steps, softmax, rowmax-tile or qr",
      (*words)[0]);
  return -1;
}

/* Does the named group have all given options? If no group is named, each takes the options that it has. */
static bool knows_options(const struct options *options, const struct group *group) {
  const struct {
    const char *name;
    bool is_given;
    unsigned bit;
  } given[] = {
      {"only", options->only != NULL, KNOWS_ONLY},           {"warm", options->is_warm, KNOWS_WARM},
      {"edges", options->edges != EDGES_PLAIN, KNOWS_EDGES}, {"alike", options->has_one_order, KNOWS_ALIKE},
      {"portable", options->is_portable, KNOWS_PORTABLE},    {"deviation", options->deviation > 0, KNOWS_DEVIATION}};
  for (size_t i = 0; i < sizeof given / sizeof *given; i++)
    if (given[i].is_given && !(group->knows & given[i].bit)) {
      arguments_wrong(grammar.program, "%s has no --%s", group->name, given[i].name);
      return false;
    }
  return true;
}

/* Appends the words of a label to `words`, without those that `words` has. */
static void add_words(char *label, char *words, size_t words_bytes) {
  for (const char *word = strtok(label, " "); word; word = strtok(NULL, " ")) {
    const size_t length = strlen(words);
    if (length && kernel_label_wanted(words, word)) continue;
    snprintf(words + length, words_bytes - length, "%s%s", length ? " " : "", word);
  }
}

/* Does --only pick a case? If not, a sentence on stderr lists the words of all labels. */
static bool picks_some(const char *only, int group) {
  char label[LABEL_BYTES], words[1 << 12] = "";
  for (int g = 0; g < GROUPS; g++)
    for (size_t i = 0; (group == GROUPS || group == g) && groups[g].label && groups[g].label(i, label); i++) {
      if (kernel_label_wanted(label, only)) return true;
      add_words(label, words, sizeof words);
    }
  arguments_wrong(grammar.program, "no case%s%s has all the words '%s', expected some of: %s",
                  group == GROUPS ? "" : " of ", group == GROUPS ? "" : groups[group].name, only, words);
  return false;
}

static void measure(struct bench *bench, int group) {
  bench_device_open(&bench->device);
  memcpy(bench->results.device, bench->device.name, sizeof bench->results.device);
  memcpy(bench->softmax_results.device, bench->device.name, sizeof bench->softmax_results.device);
  memcpy(bench->qr_results.device, bench->device.name, sizeof bench->qr_results.device);
  report_machine(&bench->report, &(rondo_info){.backend = RONDO_BACKEND_CUDA,
                                               .reason = bench->options.is_warm ? "warm" : "cold",
                                               .device_name = bench->device.name,
                                               .driver_version = bench->device.driver.version});
  for (int i = 0; i < GROUPS; i++)
    if (group == GROUPS || group == i) groups[i].measure(bench);
  bench_device_close(&bench->device);
}

/* The results of a file. An object has the time of one of these. */
struct read {
  struct kernel_results *products;
  struct softmax_results *softmax;
  struct qr_results *qr;
};

static void take_line(void *user, const struct json_object *object) {
  const struct read *read = user;
  kernel_results_take(read->products, object);
  softmax_results_take(read->softmax, object);
  qr_results_take(read->qr, object);
}

/* Reads the file once, since it may be a pipe. */
static bool read_all(const char *path, struct kernel_results *products, struct softmax_results *softmax,
                     struct qr_results *qr) {
  return json_lines_read(path, take_line, &(struct read){products, softmax, qr});
}

/* Has the file a case with the words of --only? */
static bool is_any_wanted(const struct bench *bench) {
  char label[KERNEL_LABEL_BYTES], other_label[SOFTMAX_LABEL_BYTES], factored_label[QR_LABEL_BYTES];
  for (size_t i = 0; i < bench->results.count; i++)
    if (is_wanted(bench, &bench->results.items[i].shape, label)) return true;
  for (size_t i = 0; i < bench->softmax_results.count; i++)
    if (is_softmax_wanted(bench, &bench->softmax_results.items[i].shape, other_label)) return true;
  for (size_t i = 0; i < bench->qr_results.count; i++)
    if (is_qr_wanted(bench, &bench->qr_results.items[i].shape, factored_label)) return true;
  return false;
}

static bool read_again(struct bench *bench) {
  if (!read_all(bench->options.from, &bench->results, &bench->softmax_results, &bench->qr_results)) return false;
  if (!bench->options.only || is_any_wanted(bench)) return true;
  command_failed("bench: %s has no case with all the words '%s'", bench->options.from, bench->options.only);
  return false;
}

static void report_again(struct bench *bench) {
  char label[KERNEL_LABEL_BYTES], other_label[SOFTMAX_LABEL_BYTES], factored_label[QR_LABEL_BYTES];
  for (size_t i = 0; i < bench->results.count; i++)
    if (is_wanted(bench, &bench->results.items[i].shape, label))
      kernel_result_report(&bench->report, &bench->results, i, &bench->rivals);
  for (size_t i = 0; i < bench->softmax_results.count; i++)
    if (is_softmax_wanted(bench, &bench->softmax_results.items[i].shape, other_label))
      softmax_result_report(&bench->report, &bench->softmax_results, i, &bench->softmax_rivals);
  for (size_t i = 0; i < bench->qr_results.count; i++)
    if (is_qr_wanted(bench, &bench->qr_results.items[i].shape, factored_label))
      qr_result_report(&bench->report, &bench->qr_results, &bench->qr_results.items[i], &bench->qr_rivals);
}

/* Draws the products if there are any, else attention, else QR. */
static bool draw(const struct bench *bench) {
  const char *path = bench->options.plot;
  if (!bench->results.count && bench->softmax_results.count)
    return speed_plot_write(path, &bench->softmax_results, &bench->softmax_rivals);
  if (!bench->results.count && bench->qr_results.count)
    return qr_plot_write(path, &bench->qr_results, &bench->qr_rivals);
  return bandwidth_plot_write(path, &bench->results, &bench->rivals);
}

int bench_kernels(int count, char **words) {
  static struct bench bench; /* too large for a stack */
  int group = read_group(&count, &words);
  if (group < 0) return EXIT_USAGE;
  bench.options = (struct options){.samples = 7};
  int done = arguments_read(&grammar, count, words, &bench.options, NULL);
  if (done != ARGUMENTS_READ) return done;
  if (group != GROUPS && !knows_options(&bench.options, &groups[group])) return EXIT_USAGE;
  if (bench.options.only && !bench.options.from && !picks_some(bench.options.only, group)) return EXIT_USAGE;
  if (bench.options.rivals && !read_all(bench.options.rivals, &bench.rivals, &bench.softmax_rivals, &bench.qr_rivals))
    return EXIT_FAILED;
  if (bench.options.from && !read_again(&bench)) return EXIT_FAILED;
  report_begin(&bench.report, bench.options.json);
  if (bench.options.from)
    report_again(&bench);
  else
    measure(&bench, group);
  int code = report_end(&bench.report);
  if (bench.options.plot && !draw(&bench)) code = EXIT_FAILED;
  return bench.wrong ? command_failed("bench: %u case%s wrong", bench.wrong, bench.wrong == 1 ? " is" : "s are") : code;
}
