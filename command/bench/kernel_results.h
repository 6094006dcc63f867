/* kernel_results.h - results of timing products: lines of a table and of JSON, the figures to reach, and reading
 * results from a file. It uses no device. */
#pragma once

#include "../json_lines.h"
#include "bench_gemv.h"
#include "timing.h"

/* A result of Rondo or of a rival. A rival's has a case, a time and a name; its other fields do not count. */
struct kernel_result {
  struct kernel_case shape;
  double us;
  double read_us;  /* of only reading the same bytes */
  double bound_us; /* of the same bytes at the rate of reading 1 GB */
  bool is_warm, is_programmatic;
  char kernel[KERNEL_NAME_BYTES]; /* or the rival's name */
};

struct kernel_results {
  char device[DEVICE_NAME_BYTES];
  size_t count;
  struct kernel_result items[KERNEL_CASES_MOST];
};

void kernel_results_add(struct kernel_results *results, const struct kernel_result *result);
/* Adds an object of a file, if it has the time of a product. */
void kernel_results_take(struct kernel_results *results, const struct json_object *object);

/* The most time that results->items[index] may take, cold. It follows from the products before it in `results`, and
 * from the rivals. 0: there is no figure to reach. */
double kernel_must_us(const struct kernel_results *results, size_t index, const struct kernel_results *rivals);

/* Writes a line of the table and of the JSON. Counts a missed figure. */
void kernel_result_report(struct report *report, const struct kernel_results *results, size_t index,
                          const struct kernel_results *rivals);
