/* graph.h - the description: tensors, tasks, and the order that rondo_after demands. Pure data, without a device. */
#pragma once

#include "device.h"
#include "floats.h"
#include "memory_source.h"

enum { NAME_BYTES = 64, NO_TENSOR = UINT32_MAX };

enum tensor_kind { TENSOR_INPUT, TENSOR_OUTPUT, TENSOR_CONSTANT, TENSOR_STATE, TENSOR_TEMPORARY };

/* A rectangle of a root, in elements. A tensor has at most 2^31 of them in any direction. */
struct box {
  uint32_t low[RONDO_MAX_RANK], high[RONDO_MAX_RANK];
};

/* A tensor, a view or a reshape. Where its elements lie is said once, by `first` and the strides, in the order of
 * memory: each stride reaches at least over all that is inside it, and the last dimension is dense. `box` is the
 * smallest rectangle of the root's own shape around them. It holds nothing else unless a view of a reshape cut across
 * the root's dimensions; elements.h then tells which of the box they are. */
struct tensor {
  char name[NAME_BYTES];
  enum tensor_kind kind;
  rondo_dtype dtype;
  uint32_t root; /* its own index, if it is no view */
  uint32_t rank;
  int64_t shape[RONDO_MAX_RANK];
  int64_t stride[RONDO_MAX_RANK]; /* elements */
  int64_t first;                  /* elements from the root's */
  struct box box;
  bool is_box; /* it has all elements of its box */
  /* Of a borrowed root: the graph that owns it and its index there; serial 0: it is the graph's own. */
  uint64_t lender_serial;
  uint32_t lender_index;
  /* Of a root, counted over it and its views as tasks are added. */
  uint32_t reader_count;
  bool is_touched_often; /* by a task that may touch an element twice, or that reads an output or writes an input */
};

/* What a task is; its operands' shapes are those of its tensors: see graph_op_task. */
struct task {
  char name[NAME_BYTES];
  const struct op *op; /* NULL: the user's own work */
  _Alignas(8) unsigned char attributes[OP_ATTRIBUTE_BYTES];
  uint32_t operand_count;
  uint64_t access;                   /* two bits an operand */
  uint32_t tensors[OP_MAX_OPERANDS]; /* tensor indices, NO_TENSOR where absent */
  struct user_work *user_work;       /* kept in the graph's chunks */
  struct prerequisite *prerequisites;
};

static inline rondo_access task_access(const struct task *task, uint32_t operand) {
  return (rondo_access)(task->access >> (2 * operand) & 3u);
}

/* What rondo_after said of a task, the latest first. */
struct prerequisite {
  struct prerequisite *next;
  uint32_t task;
};

/* Memory for what only some tasks have. */
struct graph_chunk {
  struct graph_chunk *next;
  uint64_t bytes, used;
};

/* What is made of a description when it is first asked for, each in one piece of memory of the graph's source. It is
 * dropped when the description changes. */
struct graph_made {
  struct dependencies *dependencies; /* between the tasks, without those of rondo_after: dependencies.h */
  struct plan *plan;                 /* planner.h */
  uint64_t dependencies_bytes, plan_bytes;
};

struct rondo_graph {
  uint64_t magic;
  uint64_t serial; /* what its tensors' handles carry */
  struct memory_source source;
  uint64_t memory_bytes;
  uint32_t tensor_limit, task_limit;
  uint32_t tensor_count, task_count;
  struct tensor *tensors;
  struct task *tasks;
  struct graph_chunk *chunks;
  bool has_backward_edges; /* rondo_after said that a task comes after a later one */
  struct graph_made made;
};

rondo_status graph_check(const rondo_graph *graph, const char *function);

/* The description is about to change: drops what was made of it. */
void graph_changed(rondo_graph *graph);
void graph_drop_dependencies(rondo_graph *graph);
void graph_drop_plan(rondo_graph *graph);

/* Memory that lasts until the graph is destroyed, for something that only some tasks have. */
rondo_status graph_keep(rondo_graph *graph, uint64_t bytes, void **memory);

/* Counts a new task's accesses to each tensor: the plan leaves a tensor in pinned memory by these counts. */
void graph_touch(rondo_graph *graph, const struct task *task);

/* For a function that adds several tensors and tasks: all of them or none. Between graph_begin and graph_end it may
 * call all functions that describe, but rondo_after only for tasks that it added. Pairs may nest. graph_end returns
 * `status`. If that is an error, the graph is as it was at graph_begin, kept plans too, and the error text begins with
 * `function`. */
struct graph_mark {
  const char *function;
  uint32_t tensor_count, task_count;
  struct graph_chunk *chunk;
  uint64_t chunk_used;
  bool has_backward_edges;
  struct graph_made made;
  struct floats floats; /* of the caller's thread */
};
rondo_status graph_begin(rondo_graph *graph, const char *function, struct graph_mark *mark);
rondo_status graph_end(rondo_graph *graph, const struct graph_mark *mark, rondo_status status);

/* Adds captured work of a library that Rondo calls. `check` is as that of an operation, and its task's attributes are
 * the call. The call is also the last address that `capture` gets, after those of the operands; capture returns not 0
 * after status_set. */
struct library_work {
  const struct called_library *called_library;
  const char *default_name;
  rondo_status (*check)(const struct op_task *task);
  rondo_capture_function capture;
};
rondo_status graph_add_library_work(rondo_graph *graph, const struct library_work *work, const char *name,
                                    const struct op_argument *arguments, uint32_t argument_count, const void *call,
                                    size_t call_bytes);

/* The task as its operation sees it. `operands` has room for OP_MAX_OPERANDS, or for as many as the task has. */
struct op_task graph_op_task(const rondo_graph *graph, const struct task *task, struct op_operand *operands);

/* The root of a tensor; the caller has checked that the tensor belongs to this graph. */
static inline const struct tensor *graph_root(const rondo_graph *graph, uint32_t index) {
  return &graph->tensors[graph->tensors[index].root];
}

/* Constants and states live across replays, in memory of the exec's own or of the exec that they are borrowed from. */
static inline bool tensor_is_resident(const struct tensor *tensor) {
  return tensor->kind == TENSOR_CONSTANT || tensor->kind == TENSOR_STATE;
}

int64_t tensor_elements(const struct tensor *tensor);
uint64_t tensor_bytes(const struct tensor *tensor); /* dense */
uint64_t tensor_offset_bytes(const struct tensor *tensor);
const char *tensor_kind_name(enum tensor_kind kind);

/* "[2, 3, 4] f32" into text. */
void tensor_describe(const struct tensor *tensor, char *text, size_t bytes);
