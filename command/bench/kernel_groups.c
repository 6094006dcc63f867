/* kernel_groups.c - see kernel_groups.h. A group opens the device's memory when it needs it. */
#include "kernel_groups.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench_attention_steps.h"
#include "bench_ladder.h"
#include "bench_rowmax_tile.h"
#include "timing.h"

static struct gemv_memory *product_memory(struct bench *bench) {
  if (!bench->memory.device) fputs("filling memory\n", stderr);
  if (!bench->memory.device) gemv_memory_take(&bench->device, &bench->memory);
  return &bench->memory;
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

bool is_wanted(const struct bench *bench, const struct kernel_case *shape, char label[KERNEL_LABEL_BYTES]) {
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
static void measure_cases(struct bench *bench, const struct kernel_case *cases, size_t count, double read_rate,
                          bool is_portable) {
  bool is_programmatic = bench->options.edges == EDGES_PROGRAMMATIC;
  struct gemv_options options = {.is_warm = bench->options.is_warm,
                                 .is_programmatic = is_programmatic,
                                 .has_one_order = bench->options.has_one_order,
                                 .is_portable = is_portable,
                                 .samples = (uint32_t)bench->options.samples};
  for (size_t i = 0; i < count; i++) {
    char label[KERNEL_LABEL_BYTES];
    if (!is_wanted(bench, &cases[i], label)) continue;
    if (is_portable && cases[i].vectors == RONDO_E4M3) continue; /* no portable kernel takes them */
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
  measure_cases(bench, cases, kernel_cases(cases), rate, false);
}

static void measure_gemm(struct bench *bench) {
  static struct kernel_case cases[KERNEL_CASES_MOST];
  measure_cases(bench, cases, kernel_gemm_cases(cases), 0, bench->options.is_portable);
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

bool is_softmax_wanted(const struct bench *bench, const struct softmax_case *shape, char label[SOFTMAX_LABEL_BYTES]) {
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

bool is_qr_wanted(const struct bench *bench, const struct qr_case *shape, char label[QR_LABEL_BYTES]) {
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

const struct group groups[] = {
    {"gemv", measure_gemv, KNOWS_ONLY | KNOWS_WARM | KNOWS_EDGES | KNOWS_ALIKE, gemv_label},
    {"gemm", measure_gemm, KNOWS_ONLY | KNOWS_WARM | KNOWS_EDGES | KNOWS_ALIKE | KNOWS_PORTABLE, gemm_label},
    {"chain", measure_chains, KNOWS_ONLY, chain_label},
    {"ladder", measure_ladder, KNOWS_ONLY, ladder_label},
    {"attention", measure_attention, KNOWS_ONLY | KNOWS_WARM | KNOWS_EDGES | KNOWS_PORTABLE | KNOWS_DEVIATION,
     attention_label},
    {"attention-steps", measure_attention_steps, KNOWS_ONLY, attention_steps_label},
    {"softmax", measure_fused_softmax, KNOWS_ONLY | KNOWS_WARM | KNOWS_EDGES | KNOWS_PORTABLE | KNOWS_DEVIATION,
     softmax_label},
    {"rowmax-tile", measure_rowmax_tile, 0, NULL},
    {"qr", measure_qr, KNOWS_ONLY | KNOWS_WARM | KNOWS_EDGES, qr_label}};
static_assert(sizeof groups / sizeof *groups == GROUPS, "the header says how many");
