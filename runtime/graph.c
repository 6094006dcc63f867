/* graph.c - describing tasks: operands and checks. What must come before what is inferred in dependencies.c. */
#include "graph.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "dependencies.h"
#include "elements.h"
#include "plan.h"
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

static rondo_status keep(rondo_graph *graph, uint64_t bytes, void **memory) {
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

void graph_changed(rondo_graph *graph) {
  dependencies_drop(graph);
  plan_drop(graph);
}

/* Of the newest chunk, until `last` is. */
static void chunks_drop(rondo_graph *graph, const struct graph_chunk *last) {
  while (graph->chunks != last) {
    struct graph_chunk *chunk = graph->chunks;
    graph->chunks = chunk->next;
    memory_give(graph->source, chunk, chunk->bytes);
  }
}

/* ---- The graph --------------------------------------------------------------------------------------------------- */

/* Before it takes memory of the runtime's, until it has given it back: so long nobody closes the runtime. */
static rondo_status count_in(rondo_runtime *runtime) {
  if (!runtime) return RONDO_OK;
  pthread_mutex_lock(&runtime->lock);
  rondo_status status = runtime_may_open(runtime);
  runtime->open_graphs += status == RONDO_OK;
  pthread_mutex_unlock(&runtime->lock);
  return status == RONDO_OK ? status : status_set(status, "rondo_graph_create: %s", rondo_error_text());
}

static void count_out(rondo_runtime *runtime) {
  if (!runtime) return;
  pthread_mutex_lock(&runtime->lock);
  runtime->open_graphs--;
  pthread_mutex_unlock(&runtime->lock);
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

/* ---- The order that no tensor shows ------------------------------------------------------------------------------ */

rondo_status rondo_after(rondo_graph *graph, rondo_task task, rondo_task prerequisite) {
  rondo_status status = graph_check(graph, "rondo_after");
  if (status != RONDO_OK) return status;
  uint32_t highest = task > prerequisite ? task : prerequisite;
  if (highest >= graph->task_count)
    return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_after: task %u does not exist: the graph has %u",
                      highest, graph->task_count);
  bool closes_cycle = task == prerequisite;
  if (!closes_cycle) status = dependencies_reach(graph, task, prerequisite, &closes_cycle);
  if (status != RONDO_OK) return status_set(status, "describe: rondo_after: %s", rondo_error_text());
  if (closes_cycle)
    return status_set(RONDO_INVALID_ARGUMENT,
                      "describe: rondo_after: task %u '%s' after task %u '%s' would close a cycle", task,
                      graph->tasks[task].name, prerequisite, graph->tasks[prerequisite].name);
  void *memory;
  status = keep(graph, sizeof(struct prerequisite), &memory);
  if (status != RONDO_OK) return status;
  plan_drop(graph);
  struct prerequisite *added = memory;
  *added = (struct prerequisite){graph->tasks[task].prerequisites, prerequisite};
  graph->tasks[task].prerequisites = added;
  graph->has_backward_edges |= prerequisite > task;
  return RONDO_OK;
}

rondo_status rondo_last_task(const rondo_graph *graph, rondo_task *task) {
  rondo_status status = graph_check(graph, "rondo_last_task");
  if (status != RONDO_OK) return status;
  if (!task) return status_set(RONDO_INVALID_ARGUMENT, "rondo_last_task: the task's address is NULL");
  if (!graph->task_count) return status_set(RONDO_INVALID_STATE, "rondo_last_task: the graph has no task");
  *task = graph->task_count - 1;
  return RONDO_OK;
}

/* ---- All or nothing ---------------------------------------------------------------------------------------------- */

static void tensors_touch(rondo_graph *graph, const struct task *task);

rondo_status graph_begin(rondo_graph *graph, const char *function, struct graph_mark *mark) {
  rondo_status status = graph_check(graph, function);
  if (status != RONDO_OK) return status_set(status, "describe: %s", rondo_error_text());
  *mark = (struct graph_mark){.function = function,
                              .tensor_count = graph->tensor_count,
                              .task_count = graph->task_count,
                              .chunk = graph->chunks,
                              .chunk_used = graph->chunks ? graph->chunks->used : 0,
                              .has_backward_edges = graph->has_backward_edges,
                              .dependencies = graph->dependencies,
                              .plan = graph->plan,
                              .floats = floats_default()};
  graph->dependencies = NULL;
  graph->plan = NULL;
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
  for (uint32_t t = 0; t < graph->task_count; t++) tensors_touch(graph, &graph->tasks[t]);
}

rondo_status graph_end(rondo_graph *graph, const struct graph_mark *mark, rondo_status status) {
  floats_set(mark->floats);
  struct dependencies *dependencies = graph->dependencies;
  struct plan *plan = graph->plan;
  bool is_kept = status == RONDO_OK;
  /* What is of no use any more is dropped, the rest put in its place. */
  graph->dependencies = is_kept ? mark->dependencies : dependencies;
  graph->plan = is_kept ? mark->plan : plan;
  graph_changed(graph);
  graph->dependencies = is_kept ? dependencies : mark->dependencies;
  graph->plan = is_kept ? plan : mark->plan;
  if (is_kept) return RONDO_OK;
  roll_back(graph, mark);
  static const char phase[] = "describe: ";
  const char *text = rondo_error_text();
  if (!strncmp(text, phase, sizeof phase - 1)) text += sizeof phase - 1;
  return status_set(status, "%s%s: %s", phase, mark->function, text);
}

/* ---- Tasks ------------------------------------------------------------------------------------------------------- */

/* One sentence for every way a task can be wrong: "describe: task 7 'attention': ...". */
#define TASK_ERROR(status, graph, task, ...) task_error((status), (graph)->task_count, (task)->name, __VA_ARGS__)
static rondo_status __attribute__((format(printf, 4, 5)))
task_error(rondo_status status, uint32_t number, const char *name, const char *format, ...) {
  char text[384];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return status_set(status, "describe: task %u '%s': %s", number, name, text);
}

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

static rondo_status operands_fill(const rondo_graph *graph, struct task *task, const struct op_argument *arguments,
                                  uint32_t count) {
  task->operand_count = count;
  for (uint32_t i = 0; i < count; i++) {
    rondo_tensor handle = arguments[i].tensor;
    task->tensors[i] = NO_TENSOR;
    if (!handle.graph) continue;
    if (handle.graph != graph || handle.serial != graph->serial)
      return TASK_ERROR(RONDO_INVALID_ARGUMENT, graph, task, "%s belongs to another graph", arguments[i].name);
    if (handle.index >= graph->tensor_count)
      return TASK_ERROR(RONDO_INVALID_ARGUMENT, graph, task, "%s is not a tensor of this graph", arguments[i].name);
    const struct tensor *tensor = &graph->tensors[handle.index];
    if (arguments[i].access < RONDO_READ || arguments[i].access > RONDO_READ_WRITE) {
      char access[32] = "is not set";
      if (arguments[i].access) snprintf(access, sizeof access, "%d does not exist", (int)arguments[i].access);
      return TASK_ERROR(RONDO_INVALID_ARGUMENT, graph, task,
                        "%s, tensor '%s': access %s: RONDO_READ, RONDO_WRITE or RONDO_READ_WRITE", arguments[i].name,
                        tensor->name, access);
    }
    if ((arguments[i].access & RONDO_WRITE) && tensor->kind == TENSOR_CONSTANT)
      return TASK_ERROR(RONDO_INVALID_ARGUMENT, graph, task, "%s would write the constant '%s'", arguments[i].name,
                        tensor->name);
    task->tensors[i] = handle.index;
    task->access |= (uint32_t)arguments[i].access << (2 * i);
  }
  return RONDO_OK;
}

static rondo_status operands_check_overlap(const rondo_graph *graph, const struct task *task,
                                           const struct op_argument *arguments, uint32_t count) {
  for (uint32_t j = 1; j < count; j++) {
    for (uint32_t i = 0; i < j; i++) {
      if (task->tensors[i] == NO_TENSOR || task->tensors[j] == NO_TENSOR) continue;
      if (!((arguments[i].access | arguments[j].access) & RONDO_WRITE)) continue;
      const struct tensor *a = &graph->tensors[task->tensors[i]], *b = &graph->tensors[task->tensors[j]];
      if (!elements_overlap(a, b)) continue;
      if (arguments[j].in_place_of == i + 1 && elements_equal(a, b)) continue;
      return TASK_ERROR(RONDO_INVALID_ARGUMENT, graph, task, "%s and %s overlap in '%s' and one of them is written",
                        arguments[i].name, arguments[j].name, a->name);
    }
  }
  return RONDO_OK;
}

/* Prepares the next row of the task table; nothing is kept unless task_commit follows. */
static rondo_status task_begin(rondo_graph *graph, const char *name, const char *default_name, struct task **out) {
  if (graph->task_count == graph->task_limit)
    return status_set(RONDO_OUT_OF_MEMORY,
                      "describe: task '%s': the graph holds as many tasks as it may, %u: raise limits.tasks",
                      name ? name : default_name, graph->task_limit);
  struct task *task = &graph->tasks[graph->task_count];
  memset(task, 0, sizeof *task);
  snprintf(task->name, sizeof task->name, "%s", name ? name : default_name);
  *out = task;
  return RONDO_OK;
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
static void tensors_touch(rondo_graph *graph, const struct task *task) {
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

static void task_commit(rondo_graph *graph, const struct task *task) {
  graph_changed(graph);
  tensors_touch(graph, task);
  graph->task_count++;
}

/* The check's sentence starts with an operand's name; behind it comes what the tensor there is called. */
static rondo_status refused_by_check(rondo_status status, const rondo_graph *graph, const struct task *task,
                                     const struct op_argument *arguments, uint32_t count) {
  const char *text = rondo_error_text();
  size_t length = strcspn(text, " ,:");
  for (uint32_t i = 0; i < count; i++) {
    const char *name = arguments[i].name;
    if (task->tensors[i] == NO_TENSOR || strlen(name) != length || strncmp(text, name, length) != 0) continue;
    const struct tensor *tensor = &graph->tensors[task->tensors[i]];
    if (strcmp(tensor->name, name) != 0)
      return TASK_ERROR(status, graph, task, "%s (%s: %s '%s')", text, name, tensor_kind_name(tensor->kind),
                        tensor->name);
  }
  return TASK_ERROR(status, graph, task, "%s", text);
}

rondo_status graph_add(rondo_graph *graph, const struct op *op, const char *name, const struct op_argument *arguments,
                       uint32_t argument_count, const void *attributes, size_t attribute_bytes) {
  rondo_status status = graph_check(graph, "describe");
  if (status != RONDO_OK) return status;
  if (argument_count > OP_MAX_OPERANDS || attribute_bytes > OP_ATTRIBUTE_BYTES)
    return status_set(RONDO_INTERNAL, "describe: operation '%s' has too many operands or attributes", op->name);
  struct task *task;
  status = task_begin(graph, name, op->name, &task);
  if (status != RONDO_OK) return status;
  task->op = op;
  if (attribute_bytes) memcpy(task->attributes, attributes, attribute_bytes);
  status = operands_fill(graph, task, arguments, argument_count);
  if (status != RONDO_OK) return status;
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_task op_task = graph_op_task(graph, task, operands);
  const struct floats floats = floats_default();
  status = op->check(&op_task);
  floats_set(floats);
  if (status != RONDO_OK) return refused_by_check(status, graph, task, arguments, argument_count);
  status = operands_check_overlap(graph, task, arguments, argument_count);
  if (status != RONDO_OK) return status;
  task_commit(graph, task);
  return RONDO_OK;
}

/* ---- The user's own work ----------------------------------------------------------------------------------------- */

static rondo_status user_arguments_fill(const rondo_graph *graph, struct task *task, struct user_work *work,
                                        const rondo_argument *arguments, uint32_t count, bool values_allowed) {
  struct op_argument operands[RONDO_MAX_ARGUMENTS];
  char names[RONDO_MAX_ARGUMENTS][16];
  if (count > RONDO_MAX_ARGUMENTS || (count && !arguments))
    return TASK_ERROR(RONDO_INVALID_ARGUMENT, graph, task,
                      count > RONDO_MAX_ARGUMENTS ? "more than 16 arguments" : "the arguments are NULL");
  work->argument_count = count;
  for (uint32_t i = 0; i < count; i++) {
    snprintf(names[i], sizeof names[i], "argument %u", i);
    operands[i] = (struct op_argument){names[i], arguments[i].tensor, arguments[i].access, 0};
    if (arguments[i].tensor.graph) continue;
    if (!values_allowed) return TASK_ERROR(RONDO_INVALID_ARGUMENT, graph, task, "%s is not a tensor", names[i]);
    if (!arguments[i].value || !arguments[i].bytes || arguments[i].bytes > USER_VALUE_BYTES)
      return TASK_ERROR(RONDO_INVALID_ARGUMENT, graph, task, "%s is neither a tensor nor a value of 1 to %d bytes",
                        names[i], USER_VALUE_BYTES);
    work->argument_bytes[i] = (uint16_t)arguments[i].bytes;
    memcpy(user_value(work, i), arguments[i].value, arguments[i].bytes);
  }
  rondo_status status = operands_fill(graph, task, operands, count);
  if (status != RONDO_OK) return status;
  return operands_check_overlap(graph, task, operands, count);
}

/* The last step of adding a task: the graph keeps a copy of the work. */
static rondo_status user_task_commit(rondo_graph *graph, struct task *task, const struct user_work *work) {
  void *memory;
  rondo_status status = keep(graph, user_work_bytes(work), &memory);
  if (status != RONDO_OK) return status;
  task->user_work = user_work_copy(work, memory);
  task_commit(graph, task);
  return RONDO_OK;
}

static rondo_status launch_shape_check(const rondo_graph *graph, const struct task *task,
                                       const struct user_work *work) {
  static const uint32_t grid_limit[3] = {INT32_MAX, 65535, 65535}, block_limit[3] = {1024, 1024, 64};
  uint64_t threads = 1;
  for (int i = 0; i < 3; i++) {
    if (work->grid[i] > grid_limit[i] || work->block[i] > block_limit[i])
      return TASK_ERROR(RONDO_INVALID_ARGUMENT, graph, task, "%s[%d] is beyond CUDA's limit",
                        work->grid[i] > grid_limit[i] ? "grid" : "block", i);
    threads *= work->block[i];
  }
  if (threads > 1024)
    return TASK_ERROR(RONDO_INVALID_ARGUMENT, graph, task, "a block of %" PRIu64 " threads, expected at most 1024",
                      threads);
  return RONDO_OK;
}

rondo_status rondo_add_kernel(rondo_graph *graph, const rondo_kernel_desc *desc) {
  rondo_status status = graph_check(graph, "describe");
  if (status != RONDO_OK) return status;
  if (!desc) return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_add_kernel: the description is NULL");
  struct task *task;
  status = task_begin(graph, desc->name, desc->function ? desc->function : "kernel", &task);
  if (status != RONDO_OK) return status;
  if (!desc->image && !desc->host)
    return TASK_ERROR(RONDO_INVALID_ARGUMENT, graph, task, "neither an image nor a host function is given");
  if (desc->image && (!desc->image_bytes || !desc->function))
    return TASK_ERROR(RONDO_INVALID_ARGUMENT, graph, task, "the image has no %s",
                      desc->function ? "bytes" : "function name");
  unsigned char values[RONDO_MAX_ARGUMENTS * USER_VALUE_BYTES] = {0};
  struct user_work work = {.image = desc->image,
                           .values = values,
                           .image_bytes = desc->image_bytes,
                           .function = desc->function,
                           .shared_bytes = desc->shared_bytes,
                           .host = desc->host,
                           .user = desc->user};
  for (int i = 0; i < 3; i++) {
    work.grid[i] = desc->grid[i] ? desc->grid[i] : 1;
    work.block[i] = desc->block[i] ? desc->block[i] : 1;
  }
  status = launch_shape_check(graph, task, &work);
  if (status != RONDO_OK) return status;
  status = user_arguments_fill(graph, task, &work, desc->arguments, desc->argument_count, true);
  if (status != RONDO_OK) return status;
  return user_task_commit(graph, task, &work);
}

rondo_status rondo_add_capture(rondo_graph *graph, const rondo_capture_desc *desc, rondo_capture_function callback) {
  rondo_status status = graph_check(graph, "describe");
  if (status != RONDO_OK) return status;
  if (!desc) return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_add_capture: the description is NULL");
  struct task *task;
  status = task_begin(graph, desc->name, "capture", &task);
  if (status != RONDO_OK) return status;
  if (!callback && !desc->host)
    return TASK_ERROR(RONDO_INVALID_ARGUMENT, graph, task, "neither a callback nor a host function is given");
  struct user_work work = {.capture = callback, .host = desc->host, .user = desc->user};
  status = user_arguments_fill(graph, task, &work, desc->arguments, desc->argument_count, false);
  if (status != RONDO_OK) return status;
  return user_task_commit(graph, task, &work);
}
