/* task.c - rondo_add_kernel, rondo_add_capture and, for all other operations, graph_add: each checks a task's operands
 * and appends the task to its graph. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "elements.h"
#include "graph.h"
#include "user_work.h"

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
    task->access |= (uint64_t)arguments[i].access << (2 * i);
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
    return status_set(RONDO_OUT_OF_MEMORY, "describe: task '%s': the graph is full, with %u tasks: raise limits.tasks",
                      name ? name : default_name, graph->task_limit);
  struct task *task = &graph->tasks[graph->task_count];
  memset(task, 0, sizeof *task);
  snprintf(task->name, sizeof task->name, "%s", name ? name : default_name);
  *out = task;
  return RONDO_OK;
}

static void task_commit(rondo_graph *graph, const struct task *task) {
  graph_changed(graph);
  graph_touch(graph, task);
  graph->task_count++;
}

/* The check's sentence begins with an operand's name. The name of that operand's tensor is appended. */
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
  rondo_status status = graph_keep(graph, user_work_bytes(work), &memory);
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

rondo_status graph_add_library_work(rondo_graph *graph, const struct library_work *added, const char *name,
                                    const struct op_argument *arguments, uint32_t argument_count, const void *call,
                                    size_t call_bytes) {
  struct task *task;
  rondo_status status = task_begin(graph, name, added->default_name, &task);
  if (status == RONDO_OK) status = operands_fill(graph, task, arguments, argument_count);
  if (status != RONDO_OK) return status;
  memcpy(task->attributes, call, call_bytes);
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_task op_task = graph_op_task(graph, task, operands);
  status = added->check(&op_task);
  if (status != RONDO_OK) return refused_by_check(status, graph, task, arguments, argument_count);
  status = operands_check_overlap(graph, task, arguments, argument_count);
  if (status != RONDO_OK) return status;
  unsigned char value[USER_VALUE_BYTES] = {0};
  memcpy(value, call, call_bytes);
  struct user_work work = {.capture = added->capture,
                           .called_library = added->called_library,
                           .values = value,
                           .argument_count = argument_count + 1};
  work.argument_bytes[argument_count] = (uint16_t)call_bytes;
  task->tensors[task->operand_count++] = NO_TENSOR;
  return user_task_commit(graph, task, &work);
}

rondo_status rondo_last_task(const rondo_graph *graph, rondo_task *task) {
  rondo_status status = graph_check(graph, "rondo_last_task");
  if (status != RONDO_OK) return status;
  if (!task) return status_set(RONDO_INVALID_ARGUMENT, "rondo_last_task: the task's address is NULL");
  if (!graph->task_count) return status_set(RONDO_INVALID_STATE, "rondo_last_task: the graph has no task");
  *task = graph->task_count - 1;
  return RONDO_OK;
}
