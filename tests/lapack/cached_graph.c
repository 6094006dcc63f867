/* cached_graph.c - see cached_graph.h. */
#include "cached_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096, POOL_BYTES = 256 << 20 };

static rondo_runtime *runtime;
static struct cached_graph graphs[MOST]; /* a hash table: a graph is in the first free place after its own */
static size_t graph_count;
static char device_name[128];

static void require(rondo_status status) {
  if (status == RONDO_OK) return;
  fprintf(stderr, "rondo: %s: %s\n", rondo_status_name(status), rondo_error_text());
  abort();
}

static bool is_shape(const struct graph_shape *a, const struct graph_shape *b) {
  return a->operation == b->operation && a->dtype == b->dtype && a->m == b->m && a->n == b->n && a->sides == b->sides &&
         a->transpose == b->transpose;
}

/* Where the graph of a shape is, or will be. */
static struct cached_graph *place_of(const struct graph_shape *shape) {
  const int64_t numbers[] = {(int64_t)shape->operation, (int64_t)shape->dtype, shape->m, shape->n, shape->sides,
                             shape->transpose};
  uint64_t hash = 0;
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
    hash = (hash + (uint64_t)numbers[i] + 1) * UINT64_C(0x9e3779b97f4a7c15);
  size_t place = (size_t)(hash >> 32) % MOST;
  while (graphs[place].exec && !is_shape(&graphs[place].shape, shape)) place = (place + 1) % MOST;
  return &graphs[place];
}

/* With room for `plan` at least. */
static void open_runtime(const rondo_plan *plan) {
  const char *wanted = getenv("RONDO_LAPACK_BACKEND");
  const uint64_t device = plan->device_bytes, pinned = plan->pinned_bytes_per_slot, host = plan->host_bytes;
  require(rondo_open(
      &(rondo_options){.backend = wanted && !strcmp(wanted, "cuda") ? RONDO_BACKEND_CUDA : RONDO_BACKEND_HOST,
                       .device_bytes = device > POOL_BYTES ? device : POOL_BYTES,
                       .pinned_bytes = pinned > POOL_BYTES ? pinned : POOL_BYTES,
                       .host_bytes = host > POOL_BYTES ? host : POOL_BYTES},
      &runtime));
  rondo_info info;
  require(rondo_runtime_info(runtime, &info));
  snprintf(device_name, sizeof device_name, "%s", info.device_name);
}

static void close_graphs(void) {
  for (size_t i = 0; i < MOST; i++)
    if (graphs[i].exec) {
      require(rondo_release(graphs[i].slot));
      require(rondo_close_exec(&graphs[i].exec));
    }
  memset(graphs, 0, sizeof graphs);
  graph_count = 0;
}

typedef rondo_status adding(rondo_graph *, const char *, rondo_dtype, uint32_t, const int64_t *, rondo_tensor *);

/* An m x n matrix. */
static rondo_tensor add_matrix(rondo_graph *graph, adding *add, const char *name, rondo_dtype dtype, int64_t m,
                               int64_t n) {
  rondo_tensor tensor;
  require(add(graph, name, dtype, 2, (int64_t[]){n, m}, &tensor));
  return tensor;
}

static rondo_tensor add_vector(rondo_graph *graph, adding *add, const char *name, rondo_dtype dtype, int64_t count) {
  rondo_tensor tensor;
  require(add(graph, name, dtype, 1, &count, &tensor));
  return tensor;
}

struct tensors {
  rondo_tensor a, b, h, tau, c, x, info; /* or absent */
};

static struct tensors describe(rondo_graph *graph, const struct graph_shape *shape) {
  const rondo_dtype dtype = shape->dtype;
  const int64_t m = shape->m, n = shape->n, sides = shape->sides, k = m < n ? m : n;
  const bool applies = shape->operation == GRAPH_APPLY, solves = shape->operation == GRAPH_SOLVE;
  struct tensors t = {.h = add_matrix(graph, applies ? rondo_input : rondo_output, "h", dtype, m, n),
                      .tau = add_vector(graph, applies ? rondo_input : rondo_output, "tau", dtype, k)};
  if (!applies) {
    t.a = add_matrix(graph, rondo_input, "a", dtype, m, n);
    require(rondo_add_qr(graph, &(rondo_qr_desc){.a = t.a, .h = t.h, .tau = t.tau}));
  }
  if (applies || solves) {
    t.b = add_matrix(graph, rondo_input, "b", dtype, m, sides);
    t.c = add_matrix(graph, rondo_output, "c", dtype, m, sides);
    require(rondo_add_copy(graph, &(rondo_copy_desc){.src = t.b, .dst = t.c}));
    require(rondo_add_qr_apply(
        graph, &(rondo_qr_apply_desc){.v = t.h, .tau = t.tau, .c = t.c, .transpose = solves || shape->transpose}));
  }
  if (solves) {
    t.x = add_matrix(graph, rondo_output, "x", dtype, n, sides);
    t.info = add_vector(graph, rondo_output, "info", RONDO_I32, 1);
    require(rondo_add_least_squares(graph, &(rondo_least_squares_desc){.a = t.a, .b = t.b, .x = t.x, .info = t.info}));
  }
  return t;
}

static void *data_of(rondo_slot slot, rondo_tensor tensor) { return tensor.graph ? rondo_data(slot, tensor) : NULL; }

/* Where the pools have no room for it, everything begins anew. */
static void instantiate(rondo_graph *graph, rondo_exec **exec) {
  rondo_plan plan;
  require(rondo_plan_graph(graph, &plan));
  if (!runtime) open_runtime(&plan);
  const rondo_status status = rondo_instantiate(runtime, graph, NULL, exec);
  if (status == RONDO_OUT_OF_MEMORY) {
    cached_graphs_close();
    open_runtime(&plan);
    require(rondo_instantiate(runtime, graph, NULL, exec));
  } else {
    require(status);
  }
}

const struct cached_graph *cached_graph_of(const struct graph_shape *shape) {
  struct cached_graph *place = place_of(shape), made = {.shape = *shape};
  if (place->exec) return place;
  if (graph_count == MOST / 2) close_graphs();
  rondo_graph *graph;
  require(rondo_graph_create(NULL, NULL, &graph));
  const struct tensors t = describe(graph, shape);
  instantiate(graph, &made.exec);
  require(rondo_graph_destroy(&graph));
  require(rondo_acquire(made.exec, &made.slot));
  made.a = data_of(made.slot, t.a);
  made.b = data_of(made.slot, t.b);
  made.h = data_of(made.slot, t.h);
  made.tau = data_of(made.slot, t.tau);
  made.c = data_of(made.slot, t.c);
  made.x = data_of(made.slot, t.x);
  made.info = data_of(made.slot, t.info);
  place = place_of(shape);
  *place = made;
  graph_count++;
  return place;
}

void cached_graph_replay(const struct cached_graph *graph) {
  require(rondo_replay(graph->slot));
  require(rondo_wait(graph->slot, RONDO_FOREVER));
}

const char *cached_graph_device(void) { return device_name; }

void cached_graphs_close(void) {
  close_graphs();
  require(rondo_close(&runtime));
}
