/* timing.c - see timing.h. */
#include "timing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void timing_try(rondo_status status, const char *call) {
  if (status == RONDO_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, rondo_status_name(status), rondo_error_text());
  exit(1);
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
  struct samples samples = {.ns = malloc(capacity * sizeof(uint64_t)), .capacity = capacity};
  if (!samples.ns) {
    fprintf(stderr, "no memory for %zu samples\n", capacity);
    exit(1);
  }
  memset(samples.ns, 0, capacity * sizeof(uint64_t)); /* no page fault while measuring */
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

void report_begin(struct report *report) {
  if (report->json) printf("[");
}

static void separate(struct report *report) {
  if (report->json) printf("%s\n  ", report->lines ? "," : "");
  report->lines++;
}

void report_machine(struct report *report, const rondo_info *info) {
  const char *backend = info->backend == RONDO_BACKEND_CUDA ? "cuda" : "host";
  separate(report);
  if (report->json)
    printf("{\"device\": \"%s\", \"backend\": \"%s\", \"driver\": %d}", info->device_name, backend,
           info->driver_version);
  else
    printf("%s (%s)\n", info->device_name, info->reason);
}

/* Bars over time, each bin a tenth wider than the one before. The last one is all that came later. */
static void print_histogram(const struct samples *samples) {
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
    /* Logarithmic, so that a tail of a few among a million shows. */
    int length = (int)lround(log1p((double)counts[bin]) / log1p((double)most) * BAR);
    printf("    %s%8.2f us %9zu %.*s\n", bin == BINS - 1 ? ">" : " ", first * pow(1.1, (double)bin) / 1e3, counts[bin],
           length, "############################################################");
  }
}

void report_samples(struct report *report, const char *name, struct samples *samples) {
  double p50 = samples_us(samples, 50), p99 = samples_us(samples, 99);
  double p999 = samples_us(samples, 99.9), max = samples_us(samples, 100);
  separate(report);
  if (report->json) {
    printf(
        "{\"name\": \"%s\", \"samples\": %zu, \"p50_us\": %.3f, \"p99_us\": %.3f, \"p999_us\": %.3f, \"max_us\": %.3f}",
        name, samples->count, p50, p99, p999, max);
    return;
  }
  printf("%-58s p50 %8.2f  p99 %8.2f  p99.9 %8.2f  max %9.2f us\n", name, p50, p99, p999, max);
  if (report->histogram) print_histogram(samples);
}

void report_ratio(struct report *report, const char *name, double ours, double rival, const char *unit, double limit) {
  double ratio = ours / rival;
  bool missed = limit > 0 && !(ratio <= limit);
  report->missed += missed;
  separate(report);
  if (report->json)
    printf("{\"name\": \"%s\", \"ours\": %.4f, \"rival\": %.4f, \"unit\": \"%s\", \"ratio\": %.4f, \"limit\": %.3f}",
           name, ours, rival, unit, ratio, limit);
  else if (limit > 0)
    printf("%-58s %8.2f / %8.2f %s = %.3fx, at most %.2fx: %s\n", name, ours, rival, unit, ratio, limit,
           missed ? "MISSED" : "reached");
  else
    printf("%-58s %8.2f / %8.2f %s = %.3fx\n", name, ours, rival, unit, ratio);
}

void report_figure(struct report *report, const char *name, double value, const char *unit, double limit) {
  bool missed = limit > 0 && !(value <= limit);
  report->missed += missed;
  separate(report);
  if (report->json)
    printf("{\"name\": \"%s\", \"value\": %.4f, \"unit\": \"%s\", \"limit\": %.3f}", name, value, unit, limit);
  else if (limit > 0)
    printf("%-58s %8.3f %s, at most %.2f: %s\n", name, value, unit, limit, missed ? "MISSED" : "reached");
  else
    printf("%-58s %8.3f %s\n", name, value, unit);
}

void report_end(struct report *report) {
  if (report->json)
    printf("\n]\n");
  else
    printf("%u figures missed what they must reach\n", report->missed);
}

void progress(const char *what, size_t done, size_t all) {
  if (!isatty(STDERR_FILENO)) return;
  fprintf(stderr, "\r%-60s %3zu %%%s", what, all ? done * 100 / all : 100, done >= all ? "\r\033[K" : "");
}
