/* timing.h - the common part of the benches: samples, percentiles, histograms, and the report as a table and as
 * JSON. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../command.h"

/* Ends the program with the library's error text if the call fails. */
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
/* A percentile from 0 to 100, nearest rank. Sorts the samples. */
double samples_us(struct samples *samples, double percentile);
void samples_free(struct samples *samples);

enum { EXIT_MISSED = 3 };
#define BENCH_STATUS                                                                                                   \
  "Exit status: 0 all figures are reached, 1 failure, 2 wrong usage, 3 some figures are missed. Standard error has\n"  \
  "the reason of 1 and 2."

struct report {
  struct output output;
  bool histogram;
  uint32_t missed; /* figures that miss their limit */
};

/* Ends the program if the JSON cannot be written. */
void report_begin(struct report *report, const char *json_path);
/* Writes the machine of the measurement. */
void report_machine(struct report *report, const rondo_info *info);
/* Writes a heading for the next figures, with the number of multiprocessors or threads. */
void report_heading(struct report *report, const char *name, int32_t multiprocessors);
/* Writes p50, p99, p99.9 and the maximum of one figure, and its histogram. */
void report_samples(struct report *report, const char *name, struct samples *samples);
/* Writes ours / rival and the limit that it must not exceed. limit 0: there is no limit. */
void report_ratio(struct report *report, const char *name, double ours, double rival, const char *unit, double limit);
void report_figure(struct report *report, const char *name, double value, const char *unit, double limit);
/* Writes the number of missed figures. Returns the exit code: EXIT_OK, EXIT_MISSED, or EXIT_FAILED if the JSON was not
 * written completely. */
int report_end(struct report *report);
