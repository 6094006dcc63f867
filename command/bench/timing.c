/* timing.c - samples, percentiles, histograms and the report of the benches (timing.h). */
#include "timing.h"
#include "../room.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void timing_try(rondo_status status) {
  if (status != RONDO_OK) exit(command_failed("%s", rondo_error_text()));
}

uint64_t timing_now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

void timing_sleep_ns(uint64_t ns) {
  struct timespec time = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
  nanosleep(&time, NULL);
}

/* ---- Samples ----------------------------------------------------------------------------------------------------- */

struct samples samples_take(size_t capacity) {
  struct samples samples = {.ns = room_take(capacity * sizeof(uint64_t), "bench: samples"), .capacity = capacity};
  memset(samples.ns, 0, capacity * sizeof(uint64_t)); /* touches all pages, so that measuring causes no page fault */
  return samples;
}

void samples_add(struct samples *samples, uint64_t ns) {
  if (samples->count < samples->capacity) samples->ns[samples->count++] = ns;
}

static int compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

double samples_us(struct samples *samples, double percentile) {
  if (!samples->count) return NAN;
  qsort(samples->ns, samples->count, sizeof *samples->ns, compare);
  size_t rank = (size_t)ceil(percentile / 100 * (double)samples->count);
  uint64_t ns = samples->ns[rank ? rank - 1 : 0];
  return (double)ns / 1e3;
}

void samples_free(struct samples *samples) { free(samples->ns); }

/* ---- Report ------------------------------------------------------------------------------------------------------ */

void report_begin(struct report *report, const char *json_path) {
  if (!output_open(&report->output, json_path)) exit(EXIT_FAILED);
  json_begin(&report->output.json, NULL, '[');
}

void report_machine(struct report *report, const rondo_info *info) {
  struct json *json = &report->output.json;
  json_begin_line(json, NULL, '{');
  json_text(json, "device", info->device_name);
  json_text(json, "backend", info->backend == RONDO_BACKEND_CUDA ? "cuda" : "host");
  json_whole(json, "driver", (uint64_t)info->driver_version);
  json_end(json, '}');
  output_print(&report->output, "%s (%s)\n", info->device_name, info->reason);
}

void report_heading(struct report *report, const char *name, int32_t multiprocessors) {
  struct json *json = &report->output.json;
  json_begin_line(json, NULL, '{');
  json_text(json, "heading", name);
  json_whole(json, "multiprocessors", (uint64_t)multiprocessors);
  json_end(json, '}');
  output_print(&report->output, "%s (%d):\n", name, multiprocessors);
}

/* Bars over time. Each bin is a tenth wider than the previous one. The last bin has all later samples. */
static void print_histogram(struct output *output, const struct samples *samples) {
  enum { BINS = 24, BAR = 60 };
  size_t counts[BINS] = {0}, most = 1;
  double first = (double)samples->ns[0];
  for (size_t i = 0; i < samples->count; i++) {
    double ratio = log((double)samples->ns[i] / first) / log(1.1);
    size_t bin = ratio < BINS - 1 ? (size_t)ratio : BINS - 1;
    if (++counts[bin] > most) most = counts[bin];
  }
  for (size_t bin = 0; bin < BINS; bin++) {
    if (!counts[bin]) continue;
    /* Logarithmic, so that a few late samples among a million are visible. */
    int length = (int)lround(log1p((double)counts[bin]) / log1p((double)most) * BAR);
    output_print(output, "    %s%8.2f us %9zu %.*s\n", bin == BINS - 1 ? ">" : " ", first * pow(1.1, (double)bin) / 1e3,
                 counts[bin], length, "############################################################");
  }
}

void report_samples(struct report *report, const char *name, struct samples *samples) {
  double p50 = samples_us(samples, 50), p99 = samples_us(samples, 99);
  double p999 = samples_us(samples, 99.9), max = samples_us(samples, 100);
  struct json *json = &report->output.json;
  json_begin_line(json, NULL, '{');
  json_text(json, "name", name);
  json_whole(json, "samples", samples->count);
  json_real(json, "p50_us", p50);
  json_real(json, "p99_us", p99);
  json_real(json, "p999_us", p999);
  json_real(json, "max_us", max);
  json_end(json, '}');
  output_print(&report->output, "%-58s p50 %8.2f  p99 %8.2f  p99.9 %8.2f  max %9.2f us\n", name, p50, p99, p999, max);
  if (report->histogram && samples->count) print_histogram(&report->output, samples);
}

/* Writes the end of a line: the limit, and whether the figure reaches it. */
static void write_limit(struct report *report, double value, double limit, const char *unit) {
  bool missed = limit > 0 && !(value <= limit);
  report->missed += missed;
  json_real(&report->output.json, "limit", limit);
  json_end(&report->output.json, '}');
  if (limit > 0) output_print(&report->output, ", at most %.2f%s: %s", limit, unit, missed ? "MISSED" : "reached");
  output_print(&report->output, "\n");
}

void report_ratio(struct report *report, const char *name, double ours, double rival, const char *unit, double limit) {
  double ratio = ours / rival;
  struct json *json = &report->output.json;
  json_begin_line(json, NULL, '{');
  json_text(json, "name", name);
  json_real(json, "ours", ours);
  json_real(json, "rival", rival);
  json_text(json, "unit", unit);
  json_real(json, "ratio", ratio);
  output_print(&report->output, "%-58s %8.2f / %8.2f %s = %.3fx", name, ours, rival, unit, ratio);
  write_limit(report, ratio, limit, "x");
}

void report_figure(struct report *report, const char *name, double value, const char *unit, double limit) {
  struct json *json = &report->output.json;
  json_begin_line(json, NULL, '{');
  json_text(json, "name", name);
  json_real(json, "value", value);
  json_text(json, "unit", unit);
  output_print(&report->output, "%-58s %8.3f %s", name, value, unit);
  write_limit(report, value, limit, "");
}

int report_end(struct report *report) {
  json_end(&report->output.json, ']');
  output_print(&report->output,
               report->missed == 1 ? "%u figure missed its limit\n" : "%u figures missed their limits\n",
               report->missed);
  if (!output_close(&report->output)) return EXIT_FAILED;
  return report->missed ? EXIT_MISSED : EXIT_OK;
}
