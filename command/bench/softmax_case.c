/* softmax_case.c - the table of attention and the fused softmax, labels and work (softmax_case.h). */
#include "softmax_case.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { TOKENS = 16384, MODEL_WIDTH = 2048, PAGE_ROWS = 64, SOFT_CAP = 50 };

static const char *const kind_names[] = {"prefill", "single", "decode", "gemm_softmax", "gemm_rowmax"};
static const char *const e4m3_names[] = {"none", "kv", "all"};
static const char *const state_names[SOFTMAX_STATES] = {"cold", "warm", "pause", "sustained"};

const char *softmax_kind_name(enum softmax_kind kind) { return kind_names[kind]; }
const char *softmax_e4m3_name(enum softmax_e4m3 e4m3) { return e4m3_names[e4m3]; }
const char *softmax_state_name(enum softmax_state state) { return state_names[state]; }

/* ---- The table --------------------------------------------------------------------------------------------------- */

static const struct row {
  struct softmax_case shape;
  struct softmax_must must;
} rows[] = {
    {{SOFTMAX_SINGLE, 1, 32, 32, 256, 256, .dimension = 128}, {.us = 7.6}},
    {{SOFTMAX_SINGLE, 1, 32, 32, 512, 512, .dimension = 128}, {.us = 10.5}},
    {{SOFTMAX_SINGLE, 1, 32, 32, 1024, 1024, .dimension = 128}, {.us = 28}},
    {{SOFTMAX_DECODE, 1, 32, 8, 1, 1024, .dimension = 128}, {.us = 5.5}},
    {{SOFTMAX_DECODE, 1, 32, 8, 1, 8192, .dimension = 128}, {.us = 12.5}},
    {{SOFTMAX_DECODE, 1, 32, 8, 1, 32768, .dimension = 128}, {.us = 37}},
    {{SOFTMAX_DECODE, 16, 32, 8, 1, 1024, .dimension = 128}, {.rival = 1}},
    {{SOFTMAX_DECODE, 16, 32, 8, 1, 4096, .dimension = 128}, {.rival = 1}},
    {{SOFTMAX_DECODE, 16, 32, 8, 1, 8192, .dimension = 128}, {.rival = 1}},
    {{SOFTMAX_DECODE, 1, 9, 3, 1, 512, .dimension = 64}, {.us = 3.5}},
    {{SOFTMAX_DECODE, 1, 32, 8, 1, 8192, .dimension = 128, .page_rows = PAGE_ROWS}, {.us = 0}},
    {{SOFTMAX_DECODE, 16, 32, 8, 1, 4096, .dimension = 128, .page_rows = PAGE_ROWS}, {.us = 0}},
    {{SOFTMAX_DECODE, 1, 32, 8, 1, 8192, .dimension = 128, .e4m3 = SOFTMAX_E4M3_KV}, {.us = 0}},
    {{SOFTMAX_DECODE, 16, 32, 8, 1, 4096, .dimension = 128, .e4m3 = SOFTMAX_E4M3_KV}, {.us = 0}},
    {{SOFTMAX_DECODE, 16, 32, 8, 1, 4096, .dimension = 128, .page_rows = PAGE_ROWS, .e4m3 = SOFTMAX_E4M3_KV},
     {.us = 0}},
    {{SOFTMAX_PREFILL, 4, 16, 16, 4096, 4096, .dimension = 128, .causal = true, .window = 1024}, {.us = 0}},
    {{SOFTMAX_PREFILL, 4, 32, 32, 4096, 4096, .dimension = 64, .causal = true, .window = 1024}, {.us = 0}},
    {{SOFTMAX_PREFILL, 4, 16, 16, 4096, 4096, .dimension = 128, .e4m3 = SOFTMAX_E4M3_ALL}, {.us = 0}},
    {{SOFTMAX_PREFILL, 4, 16, 16, 4096, 4096, .dimension = 128, .causal = true, .e4m3 = SOFTMAX_E4M3_ALL}, {.us = 0}},
    {{SOFTMAX_PREFILL, 4, 16, 16, 4096, 4096, .dimension = 128, .f16 = true}, {.us = 0}},
    {{SOFTMAX_PREFILL, 4, 32, 32, 4096, 4096, .dimension = 64, .f16 = true}, {.us = 0}},
    {{SOFTMAX_PREFILL, 4, 16, 16, 4096, 4096, .dimension = 128, .causal = true, .soft_cap = SOFT_CAP}, {.us = 0}},
    {{SOFTMAX_PREFILL, 4, 32, 32, 4096, 4096, .dimension = 64, .causal = true, .soft_cap = SOFT_CAP}, {.us = 0}},
    {{SOFTMAX_GEMM, 1, 1, 1, 4096, 4096, .dimension = 64}, {.us = 16}},
    {{SOFTMAX_GEMM, 1, 1, 1, 4096, 4096, .dimension = 128}, {.us = 17}},
    {{SOFTMAX_GEMM, 1, 1, 1, 8192, 1024, .dimension = 1024}, {.us = 36}},
    {{SOFTMAX_GEMM, 1, 1, 1, 16384, 512, .dimension = 512}, {.us = 22}},
    {{SOFTMAX_ROWMAX, 1, 1, 1, 4096, 4096, .dimension = 64}, {.us = 8}},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* Every prompt case has the same number of tokens, as in a batch of a large model's layer, in sequences of these
 * lengths. The plain case of a length precedes the cases whose figures depend on it. */
static const int64_t lengths[] = {512, 1024, 2048, 4096, 8192, 16384};
static const int64_t dimensions[] = {128, 64, 256};
enum { LENGTHS = sizeof lengths / sizeof *lengths, DIMENSIONS = sizeof dimensions / sizeof *dimensions };

static struct softmax_case prefill(int64_t length, int64_t dimension, bool causal) {
  int64_t heads = MODEL_WIDTH / dimension;
  return (struct softmax_case){.kind = SOFTMAX_PREFILL,
                               .batch = TOKENS / length,
                               .heads = heads,
                               .kv_heads = heads,
                               .queries = length,
                               .keys = length,
                               .dimension = dimension,
                               .causal = causal};
}

size_t softmax_cases(struct softmax_case cases[SOFTMAX_CASES_MOST]) {
  size_t count = 0;
  for (size_t d = 0; d < DIMENSIONS; d++)
    for (int causal = 0; causal < 2; causal++)
      for (size_t l = 0; l < LENGTHS; l++) {
        struct softmax_case plain = prefill(lengths[l], dimensions[d], causal), other = plain;
        if (dimensions[d] == 256 && lengths[l] != 4096) continue;
        cases[count++] = plain;
        if (dimensions[d] == 256 || lengths[l] != 4096) continue;
        other.kv_heads /= 4;
        cases[count++] = other;
        other = plain;
        other.queries /= 2;
        cases[count++] = other;
      }
  for (size_t i = 0; i < ROWS; i++) cases[count++] = rows[i].shape;
  return count;
}

struct softmax_must softmax_case_must(const struct softmax_case *shape) {
  for (size_t i = 0; i < ROWS; i++)
    if (softmax_case_equal(&rows[i].shape, shape)) return rows[i].must;
  struct softmax_case cases[SOFTMAX_CASES_MOST], plain = softmax_case_plain(shape);
  size_t count = softmax_cases(cases);
  for (size_t i = 0; i < count; i++) {
    if (!softmax_case_equal(&cases[i], shape)) continue;
    if (!softmax_case_equal(&plain, shape)) return (struct softmax_must){.plain = 0.97};
    return (struct softmax_must){.rival = shape->dimension == 256 ? 0.95 : 1};
  }
  return (struct softmax_must){0};
}

size_t softmax_case_states(const struct softmax_case *shape, bool is_warm, enum softmax_state states[2]) {
  states[0] = is_warm || shape->kind == SOFTMAX_SINGLE ? SOFTMAX_WARM : SOFTMAX_COLD;
  if (shape->kind != SOFTMAX_PREFILL) return 1;
  states[0] = SOFTMAX_PAUSE;
  states[1] = SOFTMAX_SUSTAINED;
  return 2;
}

bool softmax_case_equal(const struct softmax_case *a, const struct softmax_case *b) {
  return a->kind == b->kind && a->batch == b->batch && a->heads == b->heads && a->kv_heads == b->kv_heads &&
         a->queries == b->queries && a->keys == b->keys && a->dimension == b->dimension && a->causal == b->causal &&
         a->window == b->window && a->page_rows == b->page_rows && a->e4m3 == b->e4m3 && a->f16 == b->f16 &&
         a->deviation == b->deviation && a->soft_cap == b->soft_cap;
}

struct softmax_case softmax_case_plain(const struct softmax_case *shape) {
  struct softmax_case plain = *shape;
  plain.kv_heads = plain.heads;
  plain.queries = plain.keys;
  plain.window = plain.page_rows = plain.soft_cap = 0;
  plain.e4m3 = SOFTMAX_E4M3_NONE;
  plain.f16 = false;
  return plain;
}

bool softmax_kind_is_attention(enum softmax_kind kind) { return kind < SOFTMAX_GEMM; }

/* ---- Labels ------------------------------------------------------------------------------------------------------ */

void softmax_case_label(const struct softmax_case *shape, char label[SOFTMAX_LABEL_BYTES]) {
  const char *name = softmax_kind_name(shape->kind);
  char kv_heads[32] = "", window[32] = "", pages[32] = "", e4m3[16] = "", cap[32] = "", deviation[32] = "";
  if (shape->deviation) snprintf(deviation, sizeof deviation, " deviation=%" PRId64, shape->deviation);
  if (!softmax_kind_is_attention(shape->kind)) {
    snprintf(label, SOFTMAX_LABEL_BYTES, "%s %" PRId64 "x%" PRId64 " k=%" PRId64 "%s", name, shape->queries,
             shape->keys, shape->dimension, deviation);
    return;
  }
  if (shape->kv_heads != shape->heads) snprintf(kv_heads, sizeof kv_heads, " kv_heads=%" PRId64, shape->kv_heads);
  if (shape->window) snprintf(window, sizeof window, " window=%" PRId64, shape->window);
  if (shape->page_rows) snprintf(pages, sizeof pages, " page_rows=%" PRId64, shape->page_rows);
  if (shape->e4m3) snprintf(e4m3, sizeof e4m3, " e4m3=%s", softmax_e4m3_name(shape->e4m3));
  if (shape->soft_cap) snprintf(cap, sizeof cap, " soft_cap=%" PRId64, shape->soft_cap);
  snprintf(label, SOFTMAX_LABEL_BYTES,
           "%s %s%" PRId64 "x%" PRId64 " hd=%" PRId64 " heads=%" PRId64 "%s batch=%" PRId64 "%s%s%s%s%s%s", name,
           shape->kind == SOFTMAX_DECODE ? ""
           : shape->causal               ? "causal "
                                         : "full ",
           shape->queries, shape->keys, shape->dimension, shape->heads, kv_heads, shape->batch, window, pages, e4m3,
           shape->f16 ? " f16" : "", cap, deviation);
}

/* ---- Work -------------------------------------------------------------------------------------------------------- */

/* Each row sees one column more than the previous row, up to the width of the window. */
static double causal_pairs(double queries, double keys, double window) {
  double rows = fmin(queries, keys), before = keys - rows, growing = fmin(fmax(window - before, 0), rows);
  return growing * (before + growing / 2) + (rows - growing) * window;
}

float softmax_case_scale(const struct softmax_case *shape) {
  return (float)(shape->deviation ? shape->deviation : 1) / sqrtf((float)shape->dimension);
}

double softmax_case_flops(const struct softmax_case *shape) {
  double q = (double)shape->queries, k = (double)shape->keys, pairs = q * k;
  if (shape->causal) pairs = causal_pairs(q, k, shape->window ? (double)shape->window : k);
  double products = softmax_kind_is_attention(shape->kind) ? 2 : 1;
  return 2 * products * pairs * (double)(shape->dimension * shape->batch * shape->heads);
}

uint64_t softmax_case_bytes(const struct softmax_case *shape) {
  uint64_t d = (uint64_t)shape->dimension, element_bytes = 2;
  uint64_t q_bytes = shape->e4m3 == SOFTMAX_E4M3_ALL ? 1 : 2, kv_bytes = shape->e4m3 == SOFTMAX_E4M3_NONE ? 2 : 1;
  uint64_t queries = (uint64_t)(shape->batch * shape->heads * shape->queries),
           keys = (uint64_t)(shape->batch * shape->kv_heads * shape->keys);
  if (shape->kind == SOFTMAX_GEMM) return element_bytes * (queries * d + keys * d + queries * (uint64_t)shape->keys);
  if (shape->kind == SOFTMAX_ROWMAX) return element_bytes * (queries * d + keys * d) + queries * sizeof(float);
  return (q_bytes + element_bytes) * queries * d + 2 * kv_bytes * keys * d;
}
