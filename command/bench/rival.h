/* rival.h - the rival of rondo bench replay: the same small graphs, made with the CUDA driver directly. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "../../runtime/cuda/driver.h"

enum { TINY_BYTES = 256, MANY = 4, MANY_BYTES = 1024 };

struct rival {
  struct driver driver;
  struct cu_context *context;
  struct cu_stream *stream;
  struct cu_library *library;
  cu_address memory;
  void *pinned;
};

/* False if there is no usable GPU. */
bool rival_open(struct rival *rival);

/* count copies of TINY_BYTES, one after the other. */
struct cu_graph_exec *rival_chain(struct rival *rival, uint32_t count);
/* The same copies without edges between them. */
struct cu_graph_exec *rival_side_by_side(struct rival *rival, uint32_t count);
/* One copy of TINY_BYTES into pinned memory, where the host reads the result. */
struct cu_graph_exec *rival_result(struct rival *rival);
/* Copy node in, one kernel, copy node out. */
struct cu_graph_exec *rival_in_out(struct rival *rival, uint64_t bytes);
/* MANY branches: a copy node in, two kernels that move half of it each, a third kernel after the second one, and a copy
 * node out. */
struct cu_graph_exec *rival_many_in_out(struct rival *rival);

void rival_launch(struct rival *rival, struct cu_graph_exec *exec);
void rival_synchronize(struct rival *rival);
