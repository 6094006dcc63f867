/* sample.c - the common code of the samples (sample.h). */
#include "sample.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

_Noreturn void give_up(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  exit(SAMPLE_UNUSABLE);
}

void require_ok(rondo_status status, const char *call) {
  if (status != RONDO_OK) give_up("%s (%s, from %s)", rondo_error_text(), rondo_status_name(status), call);
}

int64_t integer_parse(const char *option, const char *text, int64_t low, int64_t high) {
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (errno || end == text || *end || value < low || value > high)
    give_up("%s is '%s', expected an integer from %lld to %lld", option, text, (long long)low, (long long)high);
  return value;
}

rondo_backend backend_parse(const char *name) {
  if (strcmp(name, "auto") == 0) return RONDO_BACKEND_AUTO;
  if (strcmp(name, "host") == 0) return RONDO_BACKEND_HOST;
  if (strcmp(name, "cuda") == 0) return RONDO_BACKEND_CUDA;
  give_up("--backend is '%s', expected auto, host or cuda", name);
}

rondo_dtype weights_parse(const char *option, const char *name, bool may_be_e4m3) {
  static const rondo_dtype known[] = {RONDO_BF16, RONDO_NVFP4, RONDO_E4M3};
  for (size_t i = 0; i < (may_be_e4m3 ? 3 : 2); i++)
    if (strcmp(name, rondo_dtype_name(known[i])) == 0) return known[i];
  give_up("%s is '%s', expected bf16%s nvfp4", option, name, may_be_e4m3 ? ", e4m3 or" : " or");
}

void options_each(int argc, char **argv, const char *help,
                  void (*take)(void *user, const char *option, const char *value), void *user) {
  for (int i = 1; i < argc; i += 2) {
    if (strcmp(argv[i], "--help") == 0) {
      fputs(help, stdout);
      exit(SAMPLE_OK);
    }
    if (i + 1 == argc) give_up("'%s' is unknown or has no value; see %s --help", argv[i], argv[0]);
    take(user, argv[i], argv[i + 1]);
  }
}

static uint32_t replays_parse(const char *text) {
  char *end;
  errno = 0;
  long count = strtol(text, &end, 10);
  if (errno || end == text || *end || count < 1 || count > 1000000)
    give_up("--replays is '%s', expected a number from 1 to 1000000", text);
  return (uint32_t)count;
}

static struct options parse(int argc, char **argv, const char *help, uint32_t path_count, bool may_lack_paths) {
  struct options options = {.replays = 100};
  uint32_t paths = 0;
  for (int i = 1; i < argc; i++) {
    const char *word = argv[i];
    if (strcmp(word, "--help") == 0) {
      fputs(help, stdout);
      exit(SAMPLE_OK);
    }
    if (strncmp(word, "--", 2) != 0) {
      if (paths == path_count) give_up("unexpected file '%s'; see %s --help", word, argv[0]);
      options.paths[paths++] = word;
      continue;
    }
    if (i + 1 == argc) give_up("%s is unknown or has no value; see %s --help", word, argv[0]);
    const char *value = argv[++i];
    if (strcmp(word, "--backend") == 0)
      options.backend = backend_parse(value);
    else if (strcmp(word, "--replays") == 0)
      options.replays = replays_parse(value);
    else if (strcmp(word, "--out") == 0)
      options.out = value;
    else
      give_up("unknown option %s; see %s --help", word, argv[0]);
  }
  if (paths < path_count && (paths || !may_lack_paths)) {
    fputs(help, stderr);
    give_up("%u of %u files %s missing", path_count - paths, path_count, path_count - paths == 1 ? "is" : "are");
  }
  return options;
}

struct options options_parse(int argc, char **argv, const char *help, uint32_t path_count) {
  return parse(argc, argv, help, path_count, false);
}

struct options options_parse_any(int argc, char **argv, const char *help, uint32_t path_count) {
  return parse(argc, argv, help, path_count, true);
}

static struct npy read_any(const char *path) {
  struct npy array;
  char message[NPY_MESSAGE_BYTES];
  if (!npy_read(path, &array, message)) give_up("%s", message);
  return array;
}

struct npy read_array(const char *path, enum npy_type type, uint32_t rank) {
  struct npy array = read_any(path);
  if (array.type != type) give_up("%s: holds %s, expected %s", path, npy_type_name(array.type), npy_type_name(type));
  if (array.rank != rank)
    give_up("%s: has %u dimension%s, expected %u", path, array.rank, array.rank == 1 ? "" : "s", rank);
  return array;
}

struct npy read_numbers(const char *path, uint32_t least_rank, uint32_t most_rank) {
  struct npy array = read_any(path);
  if (array.type != NPY_F32 && array.type != NPY_F64)
    give_up("%s: holds %s, expected float32 or float64", path, npy_type_name(array.type));
  if (array.rank < least_rank || array.rank > most_rank)
    give_up("%s: has %u dimension%s, expected %u to %u", path, array.rank, array.rank == 1 ? "" : "s", least_rank,
            most_rank);
  return array;
}

rondo_dtype dtype_of(const struct npy *array) { return array->type == NPY_F64 ? RONDO_F64 : RONDO_F32; }

double epsilon_of(const struct npy *array) { return array->type == NPY_F64 ? 0x1p-53 : 0x1p-24; }

void write_array(const struct options *options, const struct npy *array) {
  char message[NPY_MESSAGE_BYTES];
  if (!options->out) return;
  if (!npy_write(options->out, array, message)) give_up("%s", message);
  printf("wrote      %s\n", options->out);
}

rondo_runtime *open_quietly(rondo_graph *graph, const struct options *options, uint32_t slots) {
  rondo_plan plan;
  TRY(rondo_plan_graph(graph, &plan));
  rondo_runtime *runtime;
  TRY(rondo_open(&(rondo_options){.backend = options->backend,
                                  .device_bytes = plan.device_bytes,
                                  .pinned_bytes = plan.pinned_bytes_per_slot * slots,
                                  .host_bytes = plan.host_bytes},
                 &runtime));
  return runtime;
}

rondo_runtime *open_for(rondo_graph *graph, const struct options *options, uint32_t slots) {
  rondo_runtime *runtime = open_quietly(graph, options, slots);
  rondo_info info;
  TRY(rondo_runtime_info(runtime, &info));
  printf("runs on    %s\n", info.device_name);
  printf("because    %s\n", info.reason);
  printf("memory     %llu bytes of device memory, %llu of pinned memory\n",
         (unsigned long long)info.device.capacity_bytes, (unsigned long long)info.pinned.capacity_bytes);
  return runtime;
}

uint64_t clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int compare_times(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

bool replay_timed(rondo_slot slot, const struct options *options, rondo_tensor output) {
  uint64_t bytes;
  TRY(rondo_tensor_bytes(output, &bytes));
  const void *result = rondo_data(slot, output);
  unsigned char *first = malloc(bytes + 1);
  uint64_t *times = malloc(options->replays * sizeof *times);
  if (!times || !first) give_up("no memory for %u times", options->replays);
  uint32_t different = 0;
  for (uint32_t i = 0; i < options->replays; i++) {
    uint64_t begin = clock_ns();
    TRY(rondo_replay(slot));
    TRY(rondo_wait(slot, RONDO_FOREVER));
    times[i] = clock_ns() - begin;
    if (i == 0) memcpy(first, result, bytes);
    different += memcmp(first, result, bytes) != 0;
  }
  qsort(times, options->replays, sizeof *times, compare_times);
  uint64_t median = times[options->replays / 2];
  printf("replay     %.1f us, the median of %u\n", (double)median / 1e3, options->replays);
  free(times);
  free(first);
  return check("replays with other bits than the first", different, 0);
}

bool check(const char *what, double figure, double bound) {
  bool fine = figure <= bound; /* false for NaN */
  printf("checked    %s: %.3g, at most %.3g: %s\n", what, figure, bound, fine ? "ok" : "WRONG");
  return fine;
}
