/* bench_kernels.c - rondo bench kernels: times kernels in graphs, with operands that no cache holds. Beside each time
 * stand the time of only reading the same bytes, the figure to reach, and the times of rivals, which rivals.py
 * measures. The groups of cases: kernel_groups.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bandwidth_plot.h"
#include "kernel_groups.h"
#include "qr_plot.h"
#include "speed_plot.h"

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static const struct choice edge_choices[] = {{"plain", EDGES_PLAIN}, {"programmatic", EDGES_PROGRAMMATIC}, {NULL, 0}};

static const struct argument arguments[] = {
    {.name = "only",
     .help = "only cases with all of these words in their labels: \"nvfp4:bf16 count=1\"",
     .kind = VALUE_TEXT,
     .offset = offsetof(struct bench_options, only),
     .value_name = "WORDS"},
    {.name = "edges",
     .help = "edges from one launch to the next; default plain",
     .kind = VALUE_CHOICE,
     .offset = offsetof(struct bench_options, edges),
     .choices = edge_choices},
    {.name = "warm",
     .help = "one copy of the weights, KV caches or matrices, so that caches may hold it",
     .kind = VALUE_FLAG,
     .offset = offsetof(struct bench_options, is_warm)},
    {.name = "alike",
     .help = "products with one_order: a vector's result has the same bits beside any other vectors",
     .kind = VALUE_FLAG,
     .offset = offsetof(struct bench_options, has_one_order)},
    {.name = "portable",
     .help = "gemm, attention and softmax with the portable kernels",
     .kind = VALUE_FLAG,
     .offset = offsetof(struct bench_options, is_portable)},
    {.name = "deviation",
     .help = "standard deviation of the scores of attention and softmax; default 1",
     .kind = VALUE_INT32,
     .offset = offsetof(struct bench_options, deviation),
     .least = 1,
     .most = 1000},
    {.name = "samples",
     .help = "replays; the median is shown; default 7",
     .kind = VALUE_INT32,
     .offset = offsetof(struct bench_options, samples),
     .least = 1,
     .most = 10000},
    {.name = "rivals",
     .help = "show the times in a file of command/bench/rivals.py beside Rondo's",
     .kind = VALUE_TEXT,
     .offset = offsetof(struct bench_options, rivals),
     .value_name = "FILE"},
    {.name = "from",
     .help = "read a file of --json instead of measuring",
     .kind = VALUE_TEXT,
     .offset = offsetof(struct bench_options, from),
     .value_name = "FILE"},
    {.name = "plot",
     .help = "draw an SVG: bandwidth over bytes, attention's speed over length, or QR's speed over size",
     .kind = VALUE_TEXT,
     .offset = offsetof(struct bench_options, plot),
     .value_name = "FILE"},
    JSON_ARGUMENT(struct bench_options),
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
static bool knows_options(const struct bench_options *options, const struct group *group) {
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

/* ---- Results of a file ------------------------------------------------------------------------------------------- */

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
  bool is_of_few = false;
  for (size_t i = 0; i < bench->results.count; i++)
    is_of_few |= bench->results.items[i].shape.count <= KERNEL_MOST_VECTORS;
  if (bench->results.count && !is_of_few) return speed_plot_products(path, &bench->results, &bench->rivals);
  if (!bench->results.count && bench->softmax_results.count)
    return speed_plot_attention(path, &bench->softmax_results, &bench->softmax_rivals);
  if (!bench->results.count && bench->qr_results.count)
    return qr_plot_write(path, &bench->qr_results, &bench->qr_rivals);
  return bandwidth_plot_write(path, &bench->results, &bench->rivals);
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

int bench_kernels(int count, char **words) {
  static struct bench bench; /* too large for a stack */
  int group = read_group(&count, &words);
  if (group < 0) return EXIT_USAGE;
  bench.options = (struct bench_options){.samples = 7};
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
