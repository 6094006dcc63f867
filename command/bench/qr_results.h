/* qr_results.h - results of timing batched QR: lines of a table and of JSON, the figures to reach, and reading results
 * from a file. It uses no device. */
#pragma once

#include "../json_lines.h"
#include "qr_case.h"
#include "timing.h"

enum { QR_RESULTS_MOST = 1024, QR_NAME_BYTES = 64, QR_DEVICE_BYTES = 96 };

/* A result of Rondo or of a rival. A rival's has a case, cold or warm, a time and a name; its other fields do not
 * count. */
struct qr_result {
  struct qr_case shape;
  bool is_warm, is_programmatic;
  double us;
  double bound_us;            /* of the same bytes at the rate of copying 1 GB */
  char kernel[QR_NAME_BYTES]; /* or the rival's name */
};

struct qr_results {
  char device[QR_DEVICE_BYTES];
  size_t count;
  struct qr_result items[QR_RESULTS_MOST];
};

void qr_results_add(struct qr_results *results, const struct qr_result *result);
/* Adds an object of a file, if it has the time of a case. */
void qr_results_take(struct qr_results *results, const struct json_object *object);

/* The fastest rival in the same state, cold or warm. NULL if there is none. */
const struct qr_result *qr_best_rival(const struct qr_results *rivals, const struct qr_result *result);

/* The most microseconds. H and tau: the figure of the table. Q and R: 1.9 times the measured time of H and tau in the
 * same state. 0: there is no figure to reach. */
double qr_result_must_us(const struct qr_results *results, const struct qr_result *result);

/* Writes a line of the table and of the JSON for a result of `results`. Counts a missed figure. */
void qr_result_report(struct report *report, const struct qr_results *results, const struct qr_result *result,
                      const struct qr_results *rivals);
