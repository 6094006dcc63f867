/* plugin.c - a library that uses Rondo, for a program to load and unload. */
#include "consumer.h"

void use_rondo(int opens);

/* A graph that is described and destroyed; or one that is replayed too, with a call that fails. */
__attribute__((visibility("default"))) void use_rondo(int opens) {
  rondo_graph *graph;
  rondo_tensor from, to;
  rondo_runtime *runtime;
  TRY(rondo_graph_create(NULL, NULL, &graph));
  TRY(rondo_input(graph, "from", RONDO_I32, 1, (int64_t[]){4}, &from));
  TRY(rondo_output(graph, "to", RONDO_I32, 1, (int64_t[]){4}, &to));
  if (opens) {
    TRY(rondo_add_copy(graph, &(rondo_copy_desc){.src = from, .dst = to}));
    TRY(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_HOST, .device_bytes = 4096, .pinned_bytes = 4096},
                   &runtime));
    check_replay(runtime, graph, from, to);
    if (rondo_close(NULL) != RONDO_OK || rondo_open(NULL, NULL) == RONDO_OK) exit(1);
    TRY(rondo_close(&runtime));
  }
  TRY(rondo_graph_destroy(&graph));
}
