/* softmax_results.c - results of timing attention and the fused softmax (softmax_results.h). */
#include "softmax_results.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char portable_rival[] = "FlashAttention-2";

void softmax_results_add(struct softmax_results *results, const struct softmax_result *result) {
  if (results->count == SOFTMAX_RESULTS_MOST) exit(command_failed("more than %d results", SOFTMAX_RESULTS_MOST));
  results->items[results->count++] = *result;
}

/* ---- From a file ------------------------------------------------------------------------------------------------- */

static bool read_kind(const char *name, enum softmax_kind *kind) {
  for (*kind = SOFTMAX_PREFILL; *kind <= SOFTMAX_ROWMAX; ++*kind)
    if (!strcmp(name, softmax_kind_name(*kind))) return true;
  return false;
}

static bool read_state(const char *name, enum softmax_state *state) {
  for (*state = SOFTMAX_COLD; *state < SOFTMAX_STATES; ++*state)
    if (!strcmp(name, softmax_state_name(*state))) return true;
  return false;
}

static bool read_e4m3(const char *name, enum softmax_e4m3 *e4m3) {
  if (!*name) return true; /* rivals' results lack the field */
  for (*e4m3 = SOFTMAX_E4M3_NONE; *e4m3 <= SOFTMAX_E4M3_ALL; ++*e4m3)
    if (!strcmp(name, softmax_e4m3_name(*e4m3))) return true;
  return false;
}

static bool read_whole(const struct json_object *object, const char *key, int64_t *number) {
  double read = json_object_number(object, key);
  *number = read >= 1 && read <= INT32_MAX ? (int64_t)read : 0;
  return *number > 0;
}

/* Reads a field that most cases, and all rivals' results, lack. */
static bool read_optional(const struct json_object *object, const char *key, int64_t *number) {
  return read_whole(object, key, number) || isnan(json_object_number(object, key));
}

/* Has each tensor at most 2^31 elements, as the library demands? The numbers of operations and bytes then fit. */
static bool has_tensors(const struct softmax_case *shape) {
  double queries = (double)shape->heads * (double)shape->queries, keys = (double)shape->kv_heads * (double)shape->keys;
  return (double)shape->batch * (double)shape->dimension * fmax(queries, keys) <= 0x1p31;
}

void softmax_results_take(struct softmax_results *results, const struct json_object *object) {
  struct softmax_result result = {.us = json_object_number(object, "us"),
                                  .read_us = json_object_number(object, "read_us"),
                                  .is_portable = json_object_number(object, "portable") == 1};
  struct softmax_case *shape = &result.shape;
  const char *device = json_object_text(object, "device");
  if (*device) snprintf(results->device, sizeof results->device, "%s", device);
  shape->causal = json_object_number(object, "causal") == 1;
  shape->f16 = json_object_number(object, "f16") == 1;
  bool is_whole =
      read_kind(json_object_text(object, "kind"), &shape->kind) &&
      read_state(json_object_text(object, "state"), &result.state) &&
      read_e4m3(json_object_text(object, "e4m3"), &shape->e4m3) && read_whole(object, "batch", &shape->batch) &&
      read_whole(object, "heads", &shape->heads) && read_whole(object, "kv_heads", &shape->kv_heads) &&
      read_whole(object, "queries", &shape->queries) && read_whole(object, "keys", &shape->keys) &&
      read_whole(object, "dimension", &shape->dimension) && read_optional(object, "window", &shape->window) &&
      read_optional(object, "page_rows", &shape->page_rows) && read_optional(object, "deviation", &shape->deviation) &&
      read_optional(object, "soft_cap", &shape->soft_cap);
  if (!is_whole || !has_tensors(shape) || !isfinite(result.us) || result.us <= 0) return;
  if (!isfinite(result.read_us) || result.read_us < 0) result.read_us = 0;
  snprintf(result.kernel, sizeof result.kernel, "%s", json_object_text(object, "kernel"));
  softmax_results_add(results, &result);
}

/* ---- Figures to reach -------------------------------------------------------------------------------------------- */

static bool is_same(const struct softmax_result *a, const struct softmax_result *b) {
  return a->state == b->state && softmax_case_equal(&a->shape, &b->shape);
}

const struct softmax_result *softmax_best_rival(const struct softmax_results *rivals,
                                                const struct softmax_result *result) {
  const struct softmax_result *best = NULL;
  for (size_t i = 0; i < rivals->count; i++) {
    const struct softmax_result *rival = &rivals->items[i];
    bool counts = !result->is_portable || !softmax_kind_is_attention(result->shape.kind) ||
                  !strncmp(rival->kernel, portable_rival, sizeof portable_rival - 1);
    if (counts && is_same(rival, result) && (!best || rival->us < best->us)) best = rival;
  }
  return best;
}

static double plain_us(const struct softmax_results *results, size_t index) {
  struct softmax_result plain = results->items[index];
  plain.shape = softmax_case_plain(&plain.shape);
  for (size_t i = index; i-- > 0;)
    if (is_same(&results->items[i], &plain) && results->items[i].is_portable == plain.is_portable)
      return results->items[i].us * softmax_case_flops(&results->items[index].shape) / softmax_case_flops(&plain.shape);
  return 0;
}

/* Portable kernels have a figure to reach only for long sequences with common numbers of heads. */
static struct softmax_must must_of(const struct softmax_result *result) {
  struct softmax_must must = softmax_case_must(&result->shape);
  if (!result->is_portable) return must;
  bool is_asked = result->shape.kind == SOFTMAX_PREFILL && must.rival > 0 && result->shape.dimension <= 128 &&
                  result->shape.keys >= 2048;
  return (struct softmax_must){.rival = is_asked ? 1 : 0};
}

double softmax_must_us(const struct softmax_results *results, size_t index, const struct softmax_results *rivals) {
  const struct softmax_result *result = &results->items[index], *best = softmax_best_rival(rivals, result);
  enum softmax_state asked_in[2];
  size_t states = softmax_case_states(&result->shape, false, asked_in);
  if (result->state != asked_in[0] && result->state != asked_in[states - 1]) return 0;
  struct softmax_must asked = must_of(result);
  if (asked.us > 0) return asked.us;
  if (asked.rival > 0) return best ? best->us / asked.rival : 0;
  return asked.plain > 0 ? plain_us(results, index) / asked.plain : 0;
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

static void write_json(struct json *json, const struct softmax_result *result, double must_us) {
  const struct softmax_case *shape = &result->shape;
  json_begin_line(json, NULL, '{');
  json_text(json, "kind", softmax_kind_name(shape->kind));
  json_whole(json, "batch", (uint64_t)shape->batch);
  json_whole(json, "heads", (uint64_t)shape->heads);
  json_whole(json, "kv_heads", (uint64_t)shape->kv_heads);
  json_whole(json, "queries", (uint64_t)shape->queries);
  json_whole(json, "keys", (uint64_t)shape->keys);
  json_whole(json, "dimension", (uint64_t)shape->dimension);
  json_flag(json, "causal", shape->causal);
  if (shape->window) json_whole(json, "window", (uint64_t)shape->window);
  if (shape->page_rows) json_whole(json, "page_rows", (uint64_t)shape->page_rows);
  if (shape->e4m3) json_text(json, "e4m3", softmax_e4m3_name(shape->e4m3));
  if (shape->f16) json_flag(json, "f16", true);
  if (shape->soft_cap) json_whole(json, "soft_cap", (uint64_t)shape->soft_cap);
  if (shape->deviation) json_whole(json, "deviation", (uint64_t)shape->deviation);
  json_whole(json, "bytes", softmax_case_bytes(shape));
  json_real(json, "flops", softmax_case_flops(shape));
  json_text(json, "state", softmax_state_name(result->state));
  json_real(json, "us", result->us);
  json_real(json, "read_us", result->read_us);
  json_real(json, "must_us", must_us);
  json_flag(json, "portable", result->is_portable);
  json_text(json, "kernel", result->kernel);
  json_end(json, '}');
}

/* Writes the fastest result of each rival, in the order of their first results. */
static void print_rivals(struct output *output, const struct softmax_results *rivals,
                         const struct softmax_result *result) {
  for (size_t i = 0; i < rivals->count; i++) {
    const struct softmax_result *rival = &rivals->items[i];
    bool is_first = is_same(rival, result);
    double us = rival->us;
    for (size_t j = 0; j < rivals->count && is_first; j++) {
      const struct softmax_result *other = &rivals->items[j];
      if (!is_same(other, result) || strcmp(other->kernel, rival->kernel) != 0) continue;
      is_first = j >= i;
      us = fmin(us, other->us);
    }
    if (is_first) output_print(output, ", %s %.2f = %.2fx", rival->kernel, us, us / result->us);
  }
}

void softmax_result_report(struct report *report, const struct softmax_results *results, size_t index,
                           const struct softmax_results *rivals) {
  const struct softmax_result *result = &results->items[index];
  struct output *output = &report->output;
  char label[SOFTMAX_LABEL_BYTES];
  double must = softmax_must_us(results, index, rivals);
  softmax_case_label(&result->shape, label);
  write_json(&output->json, result, must);
  output_print(output, "%-72s %-9s %8.2f us", label, softmax_state_name(result->state), result->us);
  if (result->shape.kind == SOFTMAX_DECODE)
    output_print(output, " %5.0f GB/s", (double)softmax_case_bytes(&result->shape) / result->us / 1e3);
  else
    output_print(output, " %5.0f TFLOP/s", softmax_case_flops(&result->shape) / result->us / 1e6);
  if (result->shape.kind == SOFTMAX_GEMM)
    output_print(output, " %5.0f GB/s", (double)softmax_case_bytes(&result->shape) / result->us / 1e3);
  if (result->read_us > 0) output_print(output, ", read %.2f", result->read_us);
  print_rivals(output, rivals, result);
  bool is_missed = must > 0 && !(result->us <= must);
  report->missed += is_missed;
  if (must > 0)
    output_print(output, ", at most %.2f: %.3f %s", must, result->us / must, is_missed ? "MISSED" : "reached");
  output_print(output, "  %s%s\n", result->kernel, result->is_portable ? " (portable)" : "");
}
