/* consumer.c - a program in C against the installed library. */
#include "consumer.h"

int main(void) {
  rondo_graph *graph;
  rondo_tensor from, to;
  rondo_runtime *runtime;
  TRY(rondo_graph_create(NULL, NULL, &graph));
  TRY(rondo_input(graph, "from", RONDO_I32, 1, (int64_t[]){4}, &from));
  TRY(rondo_output(graph, "to", RONDO_I32, 1, (int64_t[]){4}, &to));
  TRY(rondo_add_copy(graph, &(rondo_copy_desc){.src = from, .dst = to}));
  TRY(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_HOST, .device_bytes = 4096, .pinned_bytes = 4096},
                 &runtime));
  check_replay(runtime, graph, from, to);
  TRY(rondo_graph_destroy(&graph));
  TRY(rondo_close(&runtime));
  tell_origins((const void *)(uintptr_t)rondo_open_abi, (const void *)(uintptr_t)malloc);
  return 0;
}
