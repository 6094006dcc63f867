// consumer.cpp - a program in C++20 against the installed library.
#include "consumer.h"

int main() {
  rondo_graph *graph;
  rondo_tensor from, to;
  rondo_runtime *runtime;
  const int64_t shape[] = {4};
  TRY(rondo_graph_create(nullptr, nullptr, &graph));
  TRY(rondo_input(graph, "from", RONDO_I32, 1, shape, &from));
  TRY(rondo_output(graph, "to", RONDO_I32, 1, shape, &to));
  const rondo_copy_desc copy = {.src = from, .dst = to};
  TRY(rondo_add_copy(graph, &copy));
  const rondo_options options = {.backend = RONDO_BACKEND_HOST, .device_bytes = 4096, .pinned_bytes = 4096};
  TRY(rondo_open(&options, &runtime));
  check_replay(runtime, graph, from, to);
  TRY(rondo_graph_destroy(&graph));
  TRY(rondo_close(&runtime));
  tell_origins(reinterpret_cast<const void *>(rondo_open_abi), reinterpret_cast<const void *>(malloc));
}
