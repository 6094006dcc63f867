/* check.h - checks for the programs that run under ThreadSanitizer, where Criterion does not start: a check that fails
 * ends the process with a sentence. And their one option. */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rondo.h>

static inline void check(bool good, const char *what) {
  if (good) return;
  fprintf(stderr, "%s: %s\n", what, rondo_error_text());
  exit(1);
}
#define CHECK(call) check((call) == RONDO_OK, #call)

static inline void require_all(const int32_t *data, int count, int32_t value, const char *what) {
  for (int i = 0; i < count; i++) {
    if (data[i] == value) continue;
    fprintf(stderr, "%s: element %d is %d, expected %d\n", what, i, data[i], value);
    exit(1);
  }
}

/* The host backend, or with --cuda the CUDA backend. Anything else is wrong usage, and ends the process with 2. */
static inline rondo_backend backend_of(int argc, char **argv, const char *program) {
  if (argc == 2 && !strcmp(argv[1], "--cuda")) return RONDO_BACKEND_CUDA;
  if (argc == 1) return RONDO_BACKEND_HOST;
  fprintf(stderr, "usage: %s [--cuda]\n", program);
  exit(2);
}
