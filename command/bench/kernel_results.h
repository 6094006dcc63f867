/* kernel_results.h - what the timing of products found: lines of a table and of JSON, what each must reach, and the
 * same read back from a file. No device. */
#ifndef RONDO_KERNEL_RESULTS_H
#define RONDO_KERNEL_RESULTS_H

#include "../json_lines.h"
#include "bench_gemv.h"
#include "timing.h"

/* Ours, or a rival's, of which only the case, the time and the name count. */
struct kernel_result {
  struct kernel_case shape;
  double us;
  double read_us;  /* the same bytes, only read */
  double bound_us; /* at the rate of reading 1 GB */
  bool is_warm, is_programmatic;
  char kernel[KERNEL_NAME_BYTES]; /* a rival: its name */
};

struct kernel_results {
  char device[DEVICE_NAME_BYTES];
  size_t count;
  struct kernel_result items[KERNEL_CASES_MOST];
};

void kernel_results_add(struct kernel_results *results, const struct kernel_result *result);
/* Adds a line of a file, if it has a time of a product. */
void kernel_results_take(struct kernel_results *results, const struct json_object *object);

/* The most that results->items[index] may take, cold, by what is known so far: the products before it in `results`, and
 * the rivals. 0: nothing is asked of it. */
double kernel_must_us(const struct kernel_results *results, size_t index, const struct kernel_results *rivals);

/* A line of the table and of the JSON; counts what is missed. */
void kernel_result_report(struct report *report, const struct kernel_results *results, size_t index,
                          const struct kernel_results *rivals);

#endif
