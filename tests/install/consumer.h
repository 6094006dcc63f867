/* consumer.h - what the installed library has to do for the programs of tests/install: copy four numbers by a graph on
 * the host. For C and C++. */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr; g++ says so itself */
#endif
#include <dlfcn.h>
#include <rondo_graphs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call)                                                                                                      \
  do {                                                                                                                 \
    if ((call) != RONDO_OK) {                                                                                          \
      fprintf(stderr, "%s\n", rondo_error_text());                                                                     \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

/* Fails unless the numbers arrive and header and library are of one version. */
static void check_replay(rondo_runtime *runtime, rondo_graph *graph, rondo_tensor from, rondo_tensor to) {
  const int32_t numbers[4] = {1, -2, INT32_MAX, 0};
  rondo_exec *exec;
  rondo_slot slot;
  TRY(rondo_instantiate(runtime, graph, NULL, &exec));
  TRY(rondo_acquire(exec, &slot));
  memcpy(rondo_data(slot, from), numbers, sizeof numbers);
  TRY(rondo_replay(slot));
  TRY(rondo_wait(slot, RONDO_FOREVER));
  if (memcmp(rondo_data(slot, to), numbers, sizeof numbers) != 0) {
    fprintf(stderr, "the numbers did not arrive\n");
    exit(1);
  }
  TRY(rondo_release(slot));
  TRY(rondo_close_exec(&exec));
  if (rondo_version() != RONDO_VERSION) {
    fprintf(stderr, "the header is of version %s, the library of %u\n", RONDO_VERSION_STRING, rondo_version());
    exit(1);
  }
}

/* The file that an address of a function is in. */
static const char *file_of(const void *function) {
  Dl_info found;
  if (dladdr(function, &found) == 0) exit(1);
  return found.dli_fname;
}

/* Says whose functions the program got, for the script to look at. */
static inline void tell_origins(const void *open_function, const void *malloc_function) {
  printf("version %s\n", RONDO_VERSION_STRING);
  printf("rondo from %s\n", file_of(open_function));
  printf("malloc from %s\n", file_of(malloc_function));
}
