/* bench_upload.c - rondo bench upload: times uploads of tensors of one size to the device, in one call and in one call
 * per tensor. The source is ordinary memory that no cache holds. An upload of one tensor from pinned memory shows the
 * speed of the bus. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "../room.h"
#include "bench.h"
#include "timing.h"

enum { TENSORS_MOST = 4096 };
static const int64_t sizes[] = {4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 512 << 20};
static const int64_t pinned_most = 64 << 20;

struct options {
  rondo_backend backend;
  int64_t samples, total; /* MB */
  const char *json;
};

/* A graph with `count` tensors to upload, and one to download. */
struct subject {
  rondo_graph *graph;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_tensor tensors[TENSORS_MOST], input, word;
  rondo_slot slot;
  rondo_content contents[TENSORS_MOST];
  uint32_t count;
};

static int64_t pinned_bytes(const struct options *options) {
  int64_t bytes = options->total << 20;
  return bytes < pinned_most ? bytes : pinned_most;
}

static void subject_open(struct subject *s, const struct options *options, int64_t bytes) {
  int64_t count = (options->total << 20) / bytes, input_bytes = pinned_bytes(options);
  rondo_plan plan;
  s->count = (uint32_t)(count < TENSORS_MOST ? count : TENSORS_MOST);
  TRY(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = TENSORS_MOST + 2}, &s->graph));
  for (uint32_t i = 0; i < s->count; i++) TRY(rondo_constant(s->graph, "weights", RONDO_U8, 1, &bytes, &s->tensors[i]));
  TRY(rondo_constant(s->graph, "word", RONDO_U8, 1, (int64_t[]){sizeof(uint64_t)}, &s->word));
  TRY(rondo_input(s->graph, "input", RONDO_U8, 1, &input_bytes, &s->input));
  TRY(rondo_plan_graph(s->graph, &plan));
  TRY(rondo_open(&(rondo_options){.backend = options->backend,
                                  .device_bytes = plan.device_bytes,
                                  .pinned_bytes = plan.pinned_bytes_per_slot,
                                  .host_bytes = plan.host_bytes},
                 &s->runtime));
  TRY(rondo_instantiate(s->runtime, s->graph, NULL, &s->exec));
  TRY(rondo_acquire(s->exec, &s->slot));
}

static void subject_close(struct subject *s) {
  TRY(rondo_release(s->slot));
  TRY(rondo_close_exec(&s->exec));
  TRY(rondo_close(&s->runtime));
  TRY(rondo_graph_destroy(&s->graph));
}

/* Uploads all tensors and waits for their end. An upload may still be in progress when its call returns; a download
 * from the same exec waits for it. */
static uint64_t upload_all(const struct subject *s, bool in_one_call) {
  uint64_t word, begin = timing_now_ns();
  if (in_one_call) TRY(rondo_upload_all(s->exec, s->contents, s->count));
  for (const rondo_content *content = s->contents; content < s->contents + s->count && !in_one_call; content++)
    TRY(rondo_upload(s->exec, content->tensor, content->data, content->bytes));
  TRY(rondo_download(s->exec, s->word, &word, sizeof word));
  return timing_now_ns() - begin;
}

/* The median speed in GB/s. */
static double measure(struct subject *s, const unsigned char *source, int64_t bytes, bool in_one_call,
                      int64_t sample_count) {
  for (uint32_t i = 0; i < s->count; i++)
    s->contents[i] = (rondo_content){s->tensors[i], source + i * bytes, (uint64_t)bytes};
  struct samples samples = samples_take((size_t)sample_count);
  for (int64_t i = 0; i < sample_count; i++) samples_add(&samples, upload_all(s, in_one_call));
  double us = samples_us(&samples, 50);
  samples_free(&samples);
  return (double)(s->count * bytes) / us / 1e3;
}

/* The speed of an upload from an input's memory, which is pinned. Its content does not matter. */
static double measure_bus(struct subject *s, const struct options *options) {
  subject_open(s, options, pinned_bytes(options));
  s->count = 1;
  double speed = measure(s, rondo_data(s->slot, s->input), pinned_bytes(options), true, options->samples);
  subject_close(s);
  return speed;
}

static void bench_size(struct subject *s, const struct options *options, struct report *report,
                       const unsigned char *source, int64_t bytes) {
  char name[80];
  subject_open(s, options, bytes);
  for (int in_one_call = 1; in_one_call >= 0; in_one_call--) {
    bool is_large = bytes >= 1 << 20;
    snprintf(name, sizeof name, "%u tensor%s of %d %s, %s", s->count, s->count > 1 ? "s" : "",
             (int)(bytes >> (is_large ? 20 : 10)), is_large ? "MB" : "KB", in_one_call ? "one call" : "a call each");
    report_figure(report, name, measure(s, source, bytes, in_one_call, options->samples), "GB/s", 0);
  }
  subject_close(s);
}

/* Random numbers: the memory may store pages of zeros only once. */
static unsigned char *source_make(const struct options *options) {
  size_t bytes = (size_t)options->total << 20;
  uint64_t state = UINT64_C(0x9e3779b97f4a7c15),
           *words = room_take(bytes, "bench upload: weights"); /* xorshift (Marsaglia 2003) */
  for (size_t i = 0; i < bytes / sizeof *words; i++) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    words[i] = state;
  }
  return (unsigned char *)words;
}

static const struct argument arguments[] = {
    BACKEND_ARGUMENT(struct options),
    {.name = "samples",
     .help = "uploads of all tensors of a size; the median is shown; default 7",
     .kind = VALUE_INT64,
     .offset = offsetof(struct options, samples),
     .least = 1,
     .most = 1e4},
    {.name = "total",
     .help = "MB of all tensors of one size, at most 4096 of them; default 512",
     .kind = VALUE_INT64,
     .offset = offsetof(struct options, total),
     .least = 1,
     .most = 1 << 16},
    JSON_ARGUMENT(struct options),
};

int bench_upload(int count, char **words) {
  static const struct grammar grammar = {
      .program = "rondo bench upload",
      .about = "Times uploads of tensors of one size, in one call and in one call per tensor.\n",
      .status = BENCH_STATUS,
      .options = ARGUMENT_TABLE(arguments)};
  static struct subject subject;
  struct options options = {.samples = 7, .total = 512};
  struct report report = {0};
  rondo_runtime *runtime;
  rondo_info info;
  int done = arguments_read(&grammar, count, words, &options, NULL);
  if (done != ARGUMENTS_READ) return done;
  TRY(rondo_open(&(rondo_options){.backend = options.backend}, &runtime));
  TRY(rondo_runtime_info(runtime, &info));
  report_begin(&report, options.json);
  report_machine(&report, &info);
  TRY(rondo_close(&runtime));
  unsigned char *source = source_make(&options);
  report_figure(&report, "one tensor, from pinned memory", measure_bus(&subject, &options), "GB/s", 0);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (sizes[i] <= options.total << 20) bench_size(&subject, &options, &report, source, sizes[i]);
  free(source);
  return report_end(&report);
}
