/* timing.h - what the timing programs share: samples, their percentiles and histogram, and a report for people or, with
 * --json, for programs. */
#ifndef RONDO_TIMING_H
#define RONDO_TIMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rondo.h>

/* Ends the program with the library's text unless the call succeeds. */
#define TRY(call) timing_try((call), #call)
void timing_try(rondo_status status, const char *call);

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

struct report {
  bool json;
  bool histogram;
  uint32_t lines;
  uint32_t missed; /* ratios above what they must reach */
};

void report_begin(struct report *report);
/* What it is measured on. */
void report_machine(struct report *report, const rondo_info *info);
/* p50, p99, p99.9 and max of one figure, and its histogram. */
void report_samples(struct report *report, const char *name, struct samples *samples);
/* ours / rival, with what it must reach; limit 0: no such demand. */
void report_ratio(struct report *report, const char *name, double ours, double rival, const char *unit, double limit);
void report_figure(struct report *report, const char *name, double value, const char *unit, double limit);
void report_end(struct report *report);

/* A line on stderr while something long runs, where that is a terminal. */
void progress(const char *what, size_t done, size_t all);

#endif
