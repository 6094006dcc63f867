/* qr_results.c - results of timing batched QR (qr_results.h). */
#include "qr_results.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void qr_results_add(struct qr_results *results, const struct qr_result *result) {
  if (results->count == QR_RESULTS_MOST) exit(command_failed("more than %d results", QR_RESULTS_MOST));
  results->items[results->count++] = *result;
}

/* ---- From a file ------------------------------------------------------------------------------------------------- */

static bool read_whole(const struct json_object *object, const char *key, int64_t *number) {
  double read = json_object_number(object, key);
  *number = read >= 1 && read <= INT32_MAX ? (int64_t)read : 0;
  return *number > 0;
}

static bool read_dtype(const char *name, rondo_dtype *dtype) {
  *dtype = strcmp(name, rondo_dtype_name(RONDO_F64)) == 0 ? RONDO_F64 : RONDO_F32;
  return strcmp(name, rondo_dtype_name(*dtype)) == 0;
}

/* Rivals' and old files lack this field, and mean H and tau. */
static enum qr_outputs read_outputs(const char *name) {
  for (int outputs = QR_INVERSE; outputs > QR_H_AND_TAU; outputs--)
    if (strcmp(name, qr_outputs_name((enum qr_outputs)outputs)) == 0) return (enum qr_outputs)outputs;
  return QR_H_AND_TAU;
}

void qr_results_take(struct qr_results *results, const struct json_object *object) {
  struct qr_result result = {.is_warm = strcmp(json_object_text(object, "state"), "warm") == 0,
                             .is_programmatic = json_object_number(object, "programmatic") == 1,
                             .us = json_object_number(object, "us"),
                             .bound_us = json_object_number(object, "bound_us")};
  struct qr_case *shape = &result.shape;
  shape->outputs = read_outputs(json_object_text(object, "outputs"));
  if (!read_whole(object, "columns", &shape->columns)) shape->columns = 0;
  const char *device = json_object_text(object, "device");
  if (*device) snprintf(results->device, sizeof results->device, "%s", device);
  bool is_whole = strcmp(json_object_text(object, "kind"), "qr") == 0 &&
                  read_dtype(json_object_text(object, "dtype"), &shape->dtype) && read_whole(object, "m", &shape->m) &&
                  read_whole(object, "n", &shape->n) && read_whole(object, "batch", &shape->batch);
  /* A tensor has at most 2^31 elements. The numbers of operations and bytes then fit. */
  const double widest = (double)(shape->columns > shape->n ? shape->columns : shape->n);
  if (!is_whole || (double)shape->m * widest * (double)shape->batch > 0x1p31) return;
  if ((shape->outputs == QR_APPLIED) != (shape->columns > 0)) return;
  if (!isfinite(result.us) || result.us <= 0) return;
  if (!isfinite(result.bound_us) || result.bound_us < 0) result.bound_us = 0;
  snprintf(result.kernel, sizeof result.kernel, "%s", json_object_text(object, "kernel"));
  qr_results_add(results, &result);
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

const struct qr_result *qr_best_rival(const struct qr_results *rivals, const struct qr_result *result) {
  const struct qr_result *best = NULL;
  for (size_t i = 0; i < rivals->count; i++) {
    const struct qr_result *rival = &rivals->items[i];
    bool is_same = rival->is_warm == result->is_warm && qr_case_equal(&rival->shape, &result->shape);
    if (is_same && (!best || rival->us < best->us)) best = rival;
  }
  return best;
}

double qr_result_must_us(const struct qr_results *results, const struct qr_result *result) {
  const double most_of_h_and_tau[] = {[QR_Q_AND_R] = 1.9, [QR_X] = 1.15, [QR_INVERSE] = 0};
  if (result->shape.outputs == QR_H_AND_TAU) return result->is_warm ? 0 : qr_case_must_us(&result->shape);
  struct qr_case factors = result->shape;
  factors.outputs = QR_H_AND_TAU;
  for (size_t i = 0; i < results->count; i++)
    if (results->items[i].is_warm == result->is_warm && qr_case_equal(&results->items[i].shape, &factors))
      return most_of_h_and_tau[result->shape.outputs] * results->items[i].us;
  return 0;
}

static void write_json(struct json *json, const struct qr_result *result, double must_us) {
  const struct qr_case *shape = &result->shape;
  json_begin_line(json, NULL, '{');
  json_text(json, "kind", "qr");
  json_text(json, "dtype", rondo_dtype_name(shape->dtype));
  json_whole(json, "m", (uint64_t)shape->m);
  json_whole(json, "n", (uint64_t)shape->n);
  json_whole(json, "batch", (uint64_t)shape->batch);
  json_text(json, "outputs", qr_outputs_name(shape->outputs));
  if (shape->columns) json_whole(json, "columns", (uint64_t)shape->columns);
  json_whole(json, "bytes", qr_case_bytes(shape));
  json_real(json, "flops", qr_case_flops(shape));
  json_text(json, "state", result->is_warm ? "warm" : "cold");
  json_flag(json, "programmatic", result->is_programmatic);
  json_real(json, "us", result->us);
  json_real(json, "bound_us", result->bound_us);
  json_real(json, "must_us", must_us);
  json_text(json, "kernel", result->kernel);
  json_end(json, '}');
}

void qr_result_report(struct report *report, const struct qr_results *results, const struct qr_result *result,
                      const struct qr_results *rivals) {
  struct output *output = &report->output;
  char label[QR_LABEL_BYTES];
  const struct qr_result *rival = qr_best_rival(rivals, result);
  double must = qr_result_must_us(results, result);
  qr_case_label(&result->shape, label);
  write_json(&output->json, result, must);
  output_print(output, "%-40s %s %9.2f us %7.0f GFLOP/s", label, result->is_warm ? "warm" : "cold", result->us,
               qr_case_flops(&result->shape) / result->us / 1e3);
  if (result->bound_us > 0)
    output_print(output, ", bound %.2f: %.3f of it", result->bound_us, result->bound_us / result->us);
  if (rival) output_print(output, ", %s %.2f = %.2fx", rival->kernel, rival->us, rival->us / result->us);
  bool is_missed = must > 0 && !(result->us <= must);
  report->missed += is_missed;
  if (must > 0)
    output_print(output, ", at most %.2f: %.3f %s", must, result->us / must, is_missed ? "MISSED" : "reached");
  output_print(output, "  %s\n", result->kernel);
}
