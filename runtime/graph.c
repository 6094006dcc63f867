/* graph.c - rondo_graph_create and rondo_graph_destroy, the memory of a graph, and functions that add several tasks or
 * none. task.c adds tasks, tensor.c tensors. */
#include "graph.h"

#include <string.h>

#include "user_work.h"

enum {
  TENSORS_MOST = 1 << 20,
  TASKS_MOST = 1 << 18,
  CHUNK_BYTES = 64 * 1024,
};

static const uint64_t graph_magic = 0x68706172476f6452;

rondo_status graph_check(const rondo_graph *graph, const char *function) {
  if (!graph) return status_set(RONDO_INVALID_ARGUMENT, "%s: the graph is NULL", function);
  if (graph->magic != graph_magic) return status_set(RONDO_INVALID_STATE, "%s: the graph is destroyed", function);
  if (graph->source.runtime) return runtime_check(graph->source.runtime, function); /* opened before fork? */
  return RONDO_OK;
}

/* ---- Memory that only some tasks need ---------------------------------------------------------------------------- */

rondo_status graph_keep(rondo_graph *graph, uint64_t bytes, void **memory) {
  struct graph_chunk *chunk = graph->chunks;
  bytes = user_work_round(bytes);
  if (!chunk || chunk->bytes - chunk->used < bytes) {
    uint64_t head = user_work_round(sizeof *chunk), wanted = head + bytes > CHUNK_BYTES ? head + bytes : CHUNK_BYTES;
    void *taken;
    rondo_status status = memory_take(graph->source, wanted, "a graph's tasks", &taken);
    if (status != RONDO_OK) return status_set(status, "describe: %s", rondo_error_text());
    chunk = taken;
    *chunk = (struct graph_chunk){graph->chunks, wanted, head};
    graph->chunks = chunk;
  }
  *memory = (unsigned char *)chunk + chunk->used;
  chunk->used += bytes;
  return RONDO_OK;
}

void graph_drop_dependencies(rondo_graph *graph) {
  memory_give(graph->source, graph->made.dependencies, graph->made.dependencies_bytes);
  graph->made.dependencies = NULL;
}

void graph_drop_plan(rondo_graph *graph) {
  memory_give(graph->source, graph->made.plan, graph->made.plan_bytes);
  graph->made.plan = NULL;
}

void graph_changed(rondo_graph *graph) {
  graph_drop_dependencies(graph);
  graph_drop_plan(graph);
}

/* All chunks that are newer than `last`. */
static void chunks_drop(rondo_graph *graph, const struct graph_chunk *last) {
  while (graph->chunks != last) {
    struct graph_chunk *chunk = graph->chunks;
    graph->chunks = chunk->next;
    memory_give(graph->source, chunk, chunk->bytes);
  }
}

/* ---- The graph --------------------------------------------------------------------------------------------------- */

/* Counted before the graph takes memory of the runtime, until it has given it back: the runtime cannot be closed then.
 */
static rondo_status count_in(rondo_runtime *runtime) {
  if (!runtime) return RONDO_OK;
  pthread_mutex_lock(&runtime->group->lock);
  rondo_status status = runtime_may_open(runtime);
  runtime->open_graphs += status == RONDO_OK;
  pthread_mutex_unlock(&runtime->group->lock);
  return status == RONDO_OK ? status : status_set(status, "rondo_graph_create: %s", rondo_error_text());
}

static void count_out(rondo_runtime *runtime) {
  if (!runtime) return;
  pthread_mutex_lock(&runtime->group->lock);
  runtime->open_graphs--;
  pthread_mutex_unlock(&runtime->group->lock);
}

rondo_status rondo_graph_create(rondo_runtime *runtime, const rondo_graph_limits *limits, rondo_graph **graph_out) {
  if (!graph_out) return status_set(RONDO_INVALID_ARGUMENT, "rondo_graph_create: the graph's address is NULL");
  if (runtime) {
    rondo_status status = runtime_check(runtime, "rondo_graph_create");
    if (status != RONDO_OK) return status;
  }
  uint32_t tensors = limits && limits->tensors ? limits->tensors : 1024;
  uint32_t tasks = limits && limits->tasks ? limits->tasks : 256;
  if (tensors > TENSORS_MOST || tasks > TASKS_MOST)
    return status_set(RONDO_INVALID_ARGUMENT,
                      "rondo_graph_create: limits of %u tensors and %u tasks: expected at most %d and %d", tensors,
                      tasks, TENSORS_MOST, TASKS_MOST);
  uint64_t tensor_begin = pool_round(sizeof(rondo_graph));
  uint64_t task_begin = tensor_begin + pool_round(tensors * sizeof(struct tensor));
  uint64_t bytes = task_begin + pool_round(tasks * sizeof(struct task));
  void *memory;
  struct memory_source source;
  rondo_status status = memory_source_of(runtime, limits ? limits->allocator : NULL, "rondo_graph_create", &source);
  if (status == RONDO_OK) status = count_in(runtime);
  if (status != RONDO_OK) return status;
  status = memory_take(source, bytes, "a graph", &memory);
  if (status != RONDO_OK) {
    count_out(runtime);
    return status;
  }
  rondo_graph *graph = memory;
  *graph = (rondo_graph){.magic = graph_magic,
                         .serial = serial_draw(),
                         .source = source,
                         .memory_bytes = bytes,
                         .tensor_limit = tensors,
                         .task_limit = tasks,
                         .tensors = (void *)((unsigned char *)memory + tensor_begin),
                         .tasks = (void *)((unsigned char *)memory + task_begin)};
  *graph_out = graph;
  return RONDO_OK;
}

rondo_status rondo_graph_destroy(rondo_graph **graph_address) {
  if (!graph_address || !*graph_address) return RONDO_OK;
  rondo_graph *graph = *graph_address;
  rondo_status status = graph_check(graph, "rondo_graph_destroy");
  if (status != RONDO_OK) return status;
  graph_changed(graph);
  chunks_drop(graph, NULL);
  graph->magic = graph->serial = 0;
  rondo_runtime *runtime = graph->source.runtime;
  memory_give(graph->source, graph, graph->memory_bytes);
  count_out(runtime);
  *graph_address = NULL;
  return RONDO_OK;
}

/* ---- Tasks as operations see them ----------------------------------------------------------------------------------
 */

struct op_task graph_op_task(const rondo_graph *graph, const struct task *task, struct op_operand *operands) {
  struct op_task op_task = {
      .op = task->op, .name = task->name, .operand_count = task->operand_count, .operands = operands};
  memcpy(op_task.attributes, task->attributes, sizeof op_task.attributes);
  for (uint32_t i = 0; i < task->operand_count; i++) {
    operands[i] = (struct op_operand){0};
    if (task->tensors[i] == NO_TENSOR) continue;
    const struct tensor *tensor = &graph->tensors[task->tensors[i]];
    operands[i] = (struct op_operand){.present = true,
                                      .access = task_access(task, i),
                                      .dtype = tensor->dtype,
                                      .rank = tensor->rank,
                                      .offset_bytes = tensor_offset_bytes(tensor)};
    memcpy(operands[i].shape, tensor->shape, sizeof operands[i].shape);
    memcpy(operands[i].stride, tensor->stride, sizeof operands[i].stride);
  }
  return op_task;
}

/* Bit i: the task touches each element of operand i at most once. */
static uint32_t once_operands(const rondo_graph *graph, const struct task *task) {
  if (!task->op) return 0;
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_task op_task = graph_op_task(graph, task, operands);
  const struct floats floats = floats_default();
  bool touches_once = !task->op->touches_once || task->op->touches_once(&op_task);
  floats_set(floats);
  return touches_once ? task->op->once_operands : 0;
}

/* Keeps count of what the plan asks before it leaves a tensor in pinned memory. */
void graph_touch(rondo_graph *graph, const struct task *task) {
  const uint32_t once = once_operands(graph, task);
  for (uint32_t i = 0; i < task->operand_count; i++) {
    if (task->tensors[i] == NO_TENSOR) continue;
    struct tensor *root = &graph->tensors[graph->tensors[task->tensors[i]].root];
    rondo_access access = task_access(task, i);
    if (access & RONDO_READ) root->reader_count++;
    if (!(once >> i & 1u) || access != (root->kind == TENSOR_INPUT ? RONDO_READ : RONDO_WRITE))
      root->is_touched_often = true;
  }
}

/* ---- All or nothing ---------------------------------------------------------------------------------------------- */

rondo_status graph_begin(rondo_graph *graph, const char *function, struct graph_mark *mark) {
  rondo_status status = graph_check(graph, function);
  if (status != RONDO_OK) return status_set(status, "describe: %s", rondo_error_text());
  *mark = (struct graph_mark){.function = function,
                              .tensor_count = graph->tensor_count,
                              .task_count = graph->task_count,
                              .chunk = graph->chunks,
                              .chunk_used = graph->chunks ? graph->chunks->used : 0,
                              .has_backward_edges = graph->has_backward_edges,
                              .made = graph->made,
                              .floats = floats_default()};
  graph->made = (struct graph_made){0};
  return RONDO_OK;
}

static void roll_back(rondo_graph *graph, const struct graph_mark *mark) {
  graph->tensor_count = mark->tensor_count;
  graph->task_count = mark->task_count;
  graph->has_backward_edges = mark->has_backward_edges;
  chunks_drop(graph, mark->chunk);
  if (graph->chunks) graph->chunks->used = mark->chunk_used;
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    graph->tensors[i].reader_count = 0;
    graph->tensors[i].is_touched_often = false;
  }
  for (uint32_t t = 0; t < graph->task_count; t++) graph_touch(graph, &graph->tasks[t]);
}

rondo_status graph_end(rondo_graph *graph, const struct graph_mark *mark, rondo_status status) {
  floats_set(mark->floats);
  const struct graph_made before = mark->made, since = graph->made;
  const bool is_kept = status == RONDO_OK;
  /* One of the two is dropped, the other one stays. */
  graph->made = is_kept ? before : since;
  graph_changed(graph);
  graph->made = is_kept ? since : before;
  if (is_kept) return RONDO_OK;
  roll_back(graph, mark);
  static const char phase[] = "describe: ";
  const char *text = rondo_error_text();
  if (!strncmp(text, phase, sizeof phase - 1)) text += sizeof phase - 1;
  return status_set(status, "%s%s: %s", phase, mark->function, text);
}
