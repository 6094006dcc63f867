/* driver_bench.h - one graph from x to y on the fake driver, for the tests of the user's own work: its results in all
 * slots and orders, or its refusal. */
#pragma once

#include "driver_support.h"

enum { COUNT = 40, SLOTS = 2 };

struct bench {
  rondo_graph *graph;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_tensor x, y;
};

/* A graph with input x and output y, COUNT numbers each. */
void bench_begin(struct bench *bench);
/* Opens a runtime if there is none, and instantiates the graph in SLOTS slots. */
rondo_status bench_instantiate(struct bench *bench);
/* Closes all; the fake then holds nothing. */
void bench_end(struct bench *bench);

/* Replays every slot in several orders: y is `expected` of x. `what` names the case in messages. */
void require_result(struct bench *bench, const char *what, uint32_t (*expected)(uint32_t x));
/* instantiate refuses the graph with this sentence, keeps nothing of it, and leaves the runtime as good as before. Ends
 * the bench. */
void require_refused(struct bench *bench, const char *what, rondo_status expected, const char *sentence);

/* What add_mix gives of x and x with salt COUNT. */
uint32_t mixed(uint32_t x);
