/* kernel_results.c - results of timing products (kernel_results.h). */
#include "kernel_results.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kernel_results_add(struct kernel_results *results, const struct kernel_result *result) {
  if (results->count == KERNEL_CASES_MOST) exit(command_failed("more than %d results", KERNEL_CASES_MOST));
  results->items[results->count++] = *result;
}

/* ---- From a file ------------------------------------------------------------------------------------------------- */

/* The type of this name; 0 if there is none. */
static rondo_dtype dtype_called(const char *name) {
  for (rondo_dtype dtype = RONDO_F64; rondo_dtype_bits(dtype); dtype++)
    if (!strcmp(rondo_dtype_name(dtype), name)) return dtype;
  return (rondo_dtype)0;
}

static int64_t whole(const struct json_object *object, const char *key) {
  double number = json_object_number(object, key);
  return number >= 1 && number <= INT32_MAX ? (int64_t)number : 0;
}

static double finite_or_zero(double number) { return isfinite(number) && number > 0 ? number : 0; }

/* Has each tensor at most 2^31 elements, as the library demands? The number of bytes then fits. */
static bool has_tensors(const struct kernel_case *shape) {
  double m = (double)shape->m, k = (double)shape->k, count = (double)shape->count;
  return (double)shape->batch * fmax(m * k, count * fmax(m, k)) <= 0x1p31;
}

void kernel_results_take(struct kernel_results *results, const struct json_object *object) {
  const char *device = json_object_text(object, "device");
  if (*device) snprintf(results->device, sizeof results->device, "%s", device);
  struct kernel_result result = {
      .shape = {dtype_called(json_object_text(object, "weights")), dtype_called(json_object_text(object, "vectors")),
                dtype_called(json_object_text(object, "out")), whole(object, "m"), whole(object, "k"),
                whole(object, "batch"), whole(object, "count")},
      .us = finite_or_zero(json_object_number(object, "us")),
      .read_us = finite_or_zero(json_object_number(object, "read_us")),
      .bound_us = finite_or_zero(json_object_number(object, "bound_us")),
      .is_warm = json_object_number(object, "warm") == 1,
      .is_programmatic = json_object_number(object, "programmatic") == 1,
  };
  const struct kernel_case *shape = &result.shape;
  bool has_case = shape->weights && shape->vectors && shape->out && shape->m && shape->k && shape->batch;
  if (!has_case || !shape->count || !has_tensors(shape) || !result.us) return;
  snprintf(result.kernel, sizeof result.kernel, "%s", json_object_text(object, "kernel"));
  kernel_results_add(results, &result);
}

/* ---- Figures to reach -------------------------------------------------------------------------------------------- */

/* The time of the fastest result of the same shape, with these types and this number of vectors; 0 if there is none. */
static double fastest_us(const struct kernel_results *results, size_t count, const struct kernel_case *shape,
                         rondo_dtype weights, rondo_dtype vectors, int64_t vector_count) {
  double best = 0;
  for (size_t i = 0; i < count; i++) {
    const struct kernel_case *other = &results->items[i].shape;
    bool is_same = other->m == shape->m && other->k == shape->k && other->batch == shape->batch;
    if (!is_same || other->weights != weights || other->vectors != vectors || other->count != vector_count) continue;
    if (!best || results->items[i].us < best) best = results->items[i].us;
  }
  return best;
}

/* A rival has the types that its library supports: e4m3 by e4m3, while Rondo's vector has 16 bits. */
static double rival_us(const struct kernel_results *rivals, const struct kernel_case *shape, rondo_dtype type) {
  return fastest_us(rivals, rivals->count, shape, type, type, shape->count);
}

static double single_us(const struct kernel_results *results, size_t index, int64_t count) {
  const struct kernel_case *shape = &results->items[index].shape;
  return fastest_us(results, index, shape, shape->weights, shape->vectors, count);
}

static void at_most(double *must, double us) {
  if (us > 0 && (*must == 0 || us < *must)) *must = us;
}

/* The speed beside cuBLAS's kernels for sm_80 (sm80_rivals.py). */
static const double PORTABLE_RIVAL = 0.9;
static bool is_portable(const struct kernel_result *result) { return strstr(result->kernel, "gemm_portable"); }

double kernel_must_us(const struct kernel_results *results, size_t index, const struct kernel_results *rivals) {
  const struct kernel_result *result = &results->items[index];
  struct kernel_must asked = kernel_case_must(&result->shape);
  double must = 0;
  if (result->is_warm) return 0;
  if (asked.rival > 0 && is_portable(result)) asked.rival = PORTABLE_RIVAL;
  at_most(&must, asked.us);
  if (asked.read > 0) at_most(&must, result->read_us / asked.read);
  if (asked.rival > 0) at_most(&must, rival_us(rivals, &result->shape, result->shape.weights) / asked.rival);
  if (asked.single > 0) at_most(&must, single_us(results, index, 1) * asked.single);
  if (result->shape.count == 16) at_most(&must, single_us(results, index, 8) * 2);
  return must;
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

static void write_json(struct json *json, const struct kernel_result *result, double must_us) {
  const struct kernel_case *shape = &result->shape;
  json_begin_line(json, NULL, '{');
  json_text(json, "weights", rondo_dtype_name(shape->weights));
  json_text(json, "vectors", rondo_dtype_name(shape->vectors));
  json_text(json, "out", rondo_dtype_name(shape->out));
  json_whole(json, "m", (uint64_t)shape->m);
  json_whole(json, "k", (uint64_t)shape->k);
  json_whole(json, "batch", (uint64_t)shape->batch);
  json_whole(json, "count", (uint64_t)shape->count);
  json_whole(json, "bytes", kernel_case_bytes(shape));
  json_real(json, "us", result->us);
  json_real(json, "read_us", result->read_us);
  json_real(json, "bound_us", result->bound_us);
  json_real(json, "must_us", must_us);
  json_flag(json, "warm", result->is_warm);
  json_flag(json, "programmatic", result->is_programmatic);
  json_text(json, "kernel", result->kernel);
  json_end(json, '}');
}

void kernel_result_report(struct report *report, const struct kernel_results *results, size_t index,
                          const struct kernel_results *rivals) {
  const struct kernel_result *result = &results->items[index];
  struct output *output = &report->output;
  char label[KERNEL_LABEL_BYTES];
  double must = kernel_must_us(results, index, rivals), one = single_us(results, index, 1);
  kernel_case_label(&result->shape, label);
  write_json(&output->json, result, must);
  if (result->shape.count > KERNEL_MOST_VECTORS)
    output_print(output, "%-38s %8.2f us %6.0f TFLOP/s", label, result->us,
                 kernel_case_flops(&result->shape) / result->us / 1e6);
  else
    output_print(output, "%-38s %8.2f us %6.0f GB/s, read %8.2f, bound %8.2f (%3.0f %%)", label, result->us,
                 (double)kernel_case_bytes(&result->shape) / result->us / 1e3, result->read_us, result->bound_us,
                 100 * result->bound_us / result->us);
  if (result->shape.count > 1 && one > 0) output_print(output, ", %.2fx one", result->us / one);
  static const rondo_dtype rival_types[] = {RONDO_BF16, RONDO_E4M3};
  for (size_t i = 0; i < sizeof rival_types / sizeof *rival_types; i++) {
    double us = rival_us(rivals, &result->shape, rival_types[i]);
    if (us > 0)
      output_print(output, ", rival's %s %.2f = %.2fx", rondo_dtype_name(rival_types[i]), us, us / result->us);
  }
  bool is_missed = must > 0 && !(result->us <= must);
  report->missed += is_missed;
  if (must > 0)
    output_print(output, ", at most %.2f: %.3f %s", must, result->us / must, is_missed ? "MISSED" : "reached");
  output_print(output, "  %s\n", result->kernel);
}
