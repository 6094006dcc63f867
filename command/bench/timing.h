/* timing.h - what the benches share: samples, their percentiles and histogram, and a report for people and, with
 * --json, for programs. */
#ifndef RONDO_TIMING_H
#define RONDO_TIMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../command.h"

/* Ends the program with the library's text unless the call succeeds. */
#define TRY(call) timing_try(call)
void timing_try(rondo_status status);

uint64_t timing_now_ns(void);
void timing_sleep_ns(uint64_t ns);

struct samples {
  uint64_t *ns;
  size_t count, capacity;
};
struct samples samples_take(size_t capacity);
void samples_add(struct samples *samples, uint64_t ns);
/* Percentile in 0 .. 100, nearest rank; sorts the samples. */
double samples_us(struct samples *samples, double percentile);
void samples_free(struct samples *samples);

enum { EXIT_MISSED = 3 };
#define BENCH_STATUS                                                                                                   \
  "Exit status: 0 all figures reach what they must, 1 the work failed, as the text says, 2 wrong usage, 3 some do "    \
  "not."

struct report {
  struct output output;
  bool histogram;
  uint32_t missed; /* ratios above what they must reach */
};

/* Ends the program if the JSON cannot be written. */
void report_begin(struct report *report, const char *json_path);
/* What it is measured on. */
void report_machine(struct report *report, const rondo_info *info);
/* What the next figures have in common, and how many multiprocessors, or threads, it has. */
void report_heading(struct report *report, const char *name, int32_t multiprocessors);
/* p50, p99, p99.9 and max of one figure, and its histogram. */
void report_samples(struct report *report, const char *name, struct samples *samples);
/* ours / rival, with what it must reach; limit 0: no such demand. */
void report_ratio(struct report *report, const char *name, double ours, double rival, const char *unit, double limit);
void report_figure(struct report *report, const char *name, double value, const char *unit, double limit);
/* Says how many figures missed. Returns the exit code: EXIT_OK, EXIT_MISSED, or EXIT_FAILED if the JSON is not whole.
 */
int report_end(struct report *report);

#endif
