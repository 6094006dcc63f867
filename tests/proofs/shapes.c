/* shapes.c - see shapes.h. */
#include "shapes.h"

#include <stdio.h>

enum { TINY_BYTES = 256, CHAIN_TASKS = 10 };

void shape_name(char *text, size_t bytes, enum shape_kind kind, uint32_t width) {
  static const char *const formats[] = {"%u tasks side by side", "1 + %u + 1 tasks", "%u chains"};
  /* NOLINTNEXTLINE(clang-diagnostic-format-nonliteral) */
  snprintf(text, bytes, formats[kind], width);
}

/* Copies `from` to a tensor of its own, which is given back. */
static rondo_status add_copy(rondo_graph *graph, rondo_tensor *from, rondo_task *task) {
  rondo_tensor to;
  rondo_status status = rondo_state(graph, NULL, RONDO_U8, 1, (int64_t[]){TINY_BYTES}, &to);
  if (status == RONDO_OK) status = rondo_add_copy(graph, &(rondo_copy_desc){.src = *from, .dst = to});
  if (status == RONDO_OK) status = rondo_last_task(graph, task);
  *from = to;
  return status;
}

static rondo_status add_tasks(rondo_graph *graph, enum shape_kind kind, uint32_t width) {
  rondo_tensor first, last, from;
  rondo_task root = {0}, leaf = {0}, task;
  rondo_status status = rondo_state(graph, NULL, RONDO_U8, 1, (int64_t[]){TINY_BYTES}, &first);
  last = first;
  if (kind == SHAPE_BETWEEN && status == RONDO_OK) status = add_copy(graph, &last, &root);
  if (kind == SHAPE_BETWEEN && status == RONDO_OK) status = add_copy(graph, &last, &leaf);
  for (uint32_t i = 0; i < width; i++)
    for (uint32_t n = 0; n < (kind == SHAPE_CHAINS ? CHAIN_TASKS : 1) && status == RONDO_OK; n++) {
      if (n == 0) from = first;
      status = add_copy(graph, &from, &task);
      if (kind == SHAPE_BETWEEN && status == RONDO_OK) status = rondo_after(graph, task, root);
      if (kind == SHAPE_BETWEEN && status == RONDO_OK) status = rondo_after(graph, leaf, task);
    }
  return status;
}

rondo_status shape_open(struct shape *shape, rondo_runtime *runtime, enum shape_kind kind, uint32_t width) {
  rondo_status status = rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 2048, .tasks = 1024}, &shape->graph);
  if (status == RONDO_OK) status = add_tasks(shape->graph, kind, width);
  if (status == RONDO_OK) status = rondo_instantiate(runtime, shape->graph, NULL, &shape->exec);
  return status == RONDO_OK ? rondo_acquire(shape->exec, &shape->slot) : status;
}

rondo_status shape_replay(const struct shape *shape, uint64_t count) {
  rondo_status status = RONDO_OK;
  for (uint64_t i = 0; i < count && status == RONDO_OK; i++) {
    status = rondo_replay(shape->slot);
    if (status == RONDO_OK) status = rondo_wait(shape->slot, RONDO_FOREVER);
  }
  return status;
}

rondo_status shape_close(struct shape *shape) {
  rondo_status status = rondo_release(shape->slot);
  if (status == RONDO_OK) status = rondo_close_exec(&shape->exec);
  return status == RONDO_OK ? rondo_graph_destroy(&shape->graph) : status;
}
