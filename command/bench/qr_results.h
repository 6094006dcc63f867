/* qr_results.h - what the timing of batched QR found: lines of a table and of JSON, what each must reach, and the same
 * read back from a file. No device. */
#ifndef RONDO_QR_RESULTS_H
#define RONDO_QR_RESULTS_H

#include "../json_lines.h"
#include "qr_case.h"
#include "timing.h"

enum { QR_RESULTS_MOST = 1024, QR_NAME_BYTES = 64, QR_DEVICE_BYTES = 96 };

/* Ours, or a rival's, of which only the case, cold or warm, the time and the name count. */
struct qr_result {
  struct qr_case shape;
  bool is_warm, is_programmatic;
  double us;
  double bound_us;            /* the same bytes, at the rate of copying 1 GB */
  char kernel[QR_NAME_BYTES]; /* a rival: its name */
};

struct qr_results {
  char device[QR_DEVICE_BYTES];
  size_t count;
  struct qr_result items[QR_RESULTS_MOST];
};

void qr_results_add(struct qr_results *results, const struct qr_result *result);
/* Adds a line of a file, if it has a time of a case. */
void qr_results_take(struct qr_results *results, const struct json_object *object);

/* The fastest rival, as cold or as warm; NULL: there is none. */
const struct qr_result *qr_best_rival(const struct qr_results *rivals, const struct qr_result *result);

/* The most microseconds: of H and tau the table's, of Q and R 1.9 times those of H and tau in the same state, if they
 * have been measured. 0: nothing is asked. */
double qr_result_must_us(const struct qr_results *results, const struct qr_result *result);

/* A line of the table and of the JSON, of a result of `results`; counts what is missed. */
void qr_result_report(struct report *report, const struct qr_results *results, const struct qr_result *result,
                      const struct qr_results *rivals);

#endif
