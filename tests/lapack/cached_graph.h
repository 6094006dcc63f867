/* cached_graph.h - graphs of QR, of what applies its Q, and of least squares: each is described and instantiated when
 * its shape is first asked for, and replayed from then on. Matrices are dense and column-major. One thread at a time.
 */
#pragma once

#include <rondo.h>
#include <stdbool.h>

enum graph_operation {
  GRAPH_FACTOR, /* a -> h, tau */
  GRAPH_APPLY,  /* h, tau, b -> c = Q b, or Q'b where transposed */
  GRAPH_SOLVE   /* a, b -> x, info, h, tau, c = Q'b */
};

/* a and h are m x n, b and c are m x sides, x is n x sides. */
struct graph_shape {
  enum graph_operation operation;
  rondo_dtype dtype;
  int64_t m, n, sides;
  bool transpose;
};

/* What the caller fills before a replay, and reads after it. */
struct cached_graph {
  struct graph_shape shape;
  rondo_exec *exec;
  rondo_slot slot;
  void *a, *b;       /* to be filled, where the operation has them */
  void *h, *tau;     /* to be filled for GRAPH_APPLY, else results */
  const void *c, *x; /* results: Q b or Q'b, and the solution */
  const int32_t *info;
};

/* Valid until the next call. */
const struct cached_graph *cached_graph_of(const struct graph_shape *shape);

/* Replays and waits. */
void cached_graph_replay(const struct cached_graph *graph);

/* What they run on, such as "host, 2 threads". */
const char *cached_graph_device(void);

/* Closes all of them and their runtime. */
void cached_graphs_close(void);
