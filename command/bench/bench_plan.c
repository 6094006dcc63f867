/* bench_plan.c - rondo bench plan: places the buffers of the public minimalloc instances, which it reads from a folder,
 * and shows the memory and the time. bench_scale.c measures large graphs. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/placement.h"
#include "../room.h"
#include "bench.h"
#include "bench_scale.h"
#include "timing.h"

struct options {
  const char *minimalloc;
  int64_t step_limit;
  bool scale;
  const char *json;
};

static void *take(uint64_t bytes) { return room_take(bytes, "bench plan"); }

/* ---- minimalloc -------------------------------------------------------------------------------------------------- */

/* https://github.com/google/minimalloc, benchmarks/challenging. All instances fit into CAPACITY bytes. After a heading,
 * a file has lines of id,lower,upper,size; a buffer lives in the half-open interval [lower, upper). */
enum { CAPACITY = 1048576, INSTANCE_BUFFERS = 4096 };

struct instance {
  uint32_t count;
  uint64_t bytes[INSTANCE_BUFFERS];
  uint32_t first[INSTANCE_BUFFERS], last[INSTANCE_BUFFERS];
};

static void read_instance(const char *path, struct instance *instance) {
  FILE *file = fopen(path, "r");
  if (!file) exit(command_failed("'%s': %s", path, strerror(errno)));
  if (fscanf(file, "id,lower,upper,size") < 0) exit(command_failed("'%s' is empty or cannot be read", path));
  unsigned long long lower, upper, size;
  instance->count = 0;
  while (fscanf(file, "%*u,%llu,%llu,%llu", &lower, &upper, &size) == 3) {
    if (instance->count == INSTANCE_BUFFERS || upper <= lower || upper > UINT32_MAX)
      exit(command_failed("'%s': buffer %u: expected at most %d, each with lower < upper < 2^32", path, instance->count,
                          INSTANCE_BUFFERS));
    instance->bytes[instance->count] = size;
    instance->first[instance->count] = (uint32_t)lower;
    instance->last[instance->count++] = (uint32_t)upper - 1;
  }
  if (!instance->count || !feof(file)) exit(command_failed("'%s': expected lines of id,lower,upper,size", path));
  fclose(file);
}

static bool live_together(const struct instance *instance, uint32_t a, uint32_t b) {
  return instance->first[a] <= instance->last[b] && instance->first[b] <= instance->last[a];
}

/* Ends the program if two buffers that live at the same time share a byte: the figure would be worthless. */
static void check(const char *name, const struct instance *instance, const uint64_t *offsets, uint64_t peak) {
  const uint64_t *bytes = instance->bytes;
  for (uint32_t a = 0; a < instance->count; a++) {
    bool wrong = offsets[a] + bytes[a] > peak;
    for (uint32_t b = 0; b < a; b++)
      wrong = wrong || (live_together(instance, a, b) && offsets[a] < offsets[b] + bytes[b] &&
                        offsets[b] < offsets[a] + bytes[a]);
    if (wrong) exit(command_failed("%s: buffer %u shares bytes with another one, or exceeds the memory", name, a));
  }
}

static void place_instance(const struct options *options, struct report *report, const char *name,
                           const struct instance *instance) {
  uint32_t count = instance->count;
  uint64_t steps, *offsets = take(count * sizeof *offsets);
  struct bit_matrix conflicts = {take(bit_matrix_bytes(count, count)), bit_row_words(count)};
  void *work = take(placement_work_bytes(count));
  for (uint32_t a = 0; a < count; a++)
    for (uint32_t b = 0; b < count; b++)
      if (a != b && live_together(instance, a, b)) bit_put(bit_row(&conflicts, a), b);
  uint64_t begin_ns = timing_now_ns();
  uint64_t peak = placement_find(&(struct placement_problem){.count = count,
                                                             .bytes = instance->bytes,
                                                             .first = instance->first,
                                                             .last = instance->last,
                                                             .conflicts = conflicts,
                                                             .step_limit = (uint64_t)options->step_limit,
                                                             .steps = &steps},
                                 offsets, work);
  double seconds = (double)(timing_now_ns() - begin_ns) / 1e9;
  check(name, instance, offsets, peak);
  struct json *json = &report->output.json;
  json_begin_line(json, NULL, '{');
  json_text(json, "instance", name);
  json_whole(json, "buffers", count);
  json_whole(json, "peak_bytes", peak);
  json_real(json, "ratio", (double)peak / CAPACITY);
  json_whole(json, "steps", steps);
  json_real(json, "seconds", seconds);
  json_end(json, '}');
  output_print(&report->output, "%-24s %7u %9llu %7.4f %9llu %8.3f\n", name, count, (unsigned long long)peak,
               (double)peak / CAPACITY, (unsigned long long)steps, seconds);
  report->missed += peak > CAPACITY;
  free(offsets), free(conflicts.words), free(work);
}

static int is_csv(const struct dirent *entry) {
  size_t length = strlen(entry->d_name);
  return length > 4 && !strcmp(entry->d_name + length - 4, ".csv");
}

static void minimalloc(const struct options *options, struct report *report) {
  struct dirent **entries;
  int count = scandir(options->minimalloc, &entries, is_csv, alphasort);
  if (count < 0) exit(command_failed("'%s': %s", options->minimalloc, strerror(errno)));
  if (count == 0) exit(command_failed("'%s' has no .csv files", options->minimalloc));
  struct instance *instance = take(sizeof *instance);
  output_print(&report->output, "%-24s %7s %9s %7s %9s %8s\n", "instance", "buffers", "peak", "ratio", "steps",
               "seconds");
  for (int i = 0; i < count; i++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", options->minimalloc, entries[i]->d_name);
    read_instance(path, instance);
    progress("placing", (size_t)i, (size_t)count);
    place_instance(options, report, entries[i]->d_name, instance);
    free(entries[i]);
  }
  progress("placing", (size_t)count, (size_t)count);
  free(entries), free(instance);
}

/* ---- Both -------------------------------------------------------------------------------------------------------- */

static const struct argument arguments[] = {
    {.name = "scale",
     .help = "instantiate graphs of 10,000 to 100,000 tasks on the host; the default without --minimalloc",
     .kind = VALUE_FLAG,
     .offset = offsetof(struct options, scale)},
    {.name = "minimalloc",
     .help = "place the buffers of each .csv file in the folder, which has minimalloc's format",
     .kind = VALUE_TEXT,
     .offset = offsetof(struct options, minimalloc),
     .value_name = "FOLDER"},
    {.name = "steps",
     .help = "the most steps of a search; default as for a plan",
     .kind = VALUE_INT64,
     .offset = offsetof(struct options, step_limit),
     .least = 1,
     .most = 1e15},
    JSON_ARGUMENT(struct options),
};

int bench_plan(int count, char **words) {
  static const struct grammar grammar = {
      .program = "rondo bench plan",
      .about =
          "Measures the time from the description of large graphs to an exec, and the placement of the buffers of\n"
          "minimalloc's benchmarks, which must fit into 1048576 bytes.\n",
      .status = BENCH_STATUS,
      .options = ARGUMENT_TABLE(arguments)};
  struct options options = {0};
  struct report report = {0};
  int done = arguments_read(&grammar, count, words, &options, NULL);
  if (done != ARGUMENTS_READ) return done;
  report_begin(&report, options.json);
  if (options.scale || !options.minimalloc) bench_scale(&report);
  if (options.minimalloc) minimalloc(&options, &report);
  return report_end(&report);
}
