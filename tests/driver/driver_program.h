/* driver_program.h - a graph that uses all there is, a captured library call, an own kernel, copies and a state, for
 * the tests of a driver that fails or hangs. */
#pragma once

#include "driver_support.h"

enum { COUNT = 48, SLOTS = 2 };

struct program {
  rondo_graph *graph;
  rondo_tensor x, y, state;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_slot slots[SLOTS];
  /* The first call that failed. */
  rondo_status status;
  const char *call;
  char text[512];
};

/* y = mix(state, library(x)), with library(x) = x + 1000; the state becomes y. */
void program_describe(struct program *program);
/* Describes, opens, instantiates and acquires all slots. */
void program_begin(struct program *program);
/* Closes all. */
void program_end(struct program *program);
