/* dependencies.c - see dependencies.h.
 *
 * A walk visits the tasks in the order in which they were added. For each tensor it keeps the accesses that a later
 * task may still have to wait for. A write drops each access whose rectangle it covers: a task that would wait for that
 * access waits for the write. A task looks for its predecessors from the latest access to the first, and skips accesses
 * of tasks that precede a predecessor already found. So it finds few edges more than are kept in the end.
 *
 * The walk is made twice, first to count the edges and then to fill them in. The memory is measured in between and
 * taken in one piece. */
#include "dependencies.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "access_list.h"
#include "elements.h"
#include "written.h"

enum {
  /* So many edges to the same tasks, wanted a second time, become a join. A join is a node, half a microsecond of a
   * replay, and an edge costs some ten nanoseconds to launch. */
  JOIN_LEAST = 16,
  EDGES_MOST = 1 << 30,
  JOINS_KEPT = 64, /* of the latest it is known what comes before them */
};

/* A set of accesses that was large enough for a join; the last few of a list are kept. */
enum { FANS = 4 };
struct fan {
  uint32_t version; /* of the list */
  uint32_t tensor;  /* NO_TENSOR: all of the list */
  uint32_t task;    /* the last that wanted it */
  uint32_t join;    /* NO_UNIT until another one does */
};

struct accesses {
  struct access_list list;
  uint32_t most;    /* that there will be */
  uint32_t version; /* grows when the list changes; 0: never */
  uint32_t next_fan;
  struct fan fans[FANS];
};

struct root {
  struct accesses writes, reads;
  struct box written; /* elements of which that is known */
};

struct joined {
  uint32_t join;
  struct chain_heights heights;
};

struct walk {
  const rondo_graph *graph;
  bool checks, fills; /* what is read has been written; the edges */
  uint32_t *root_of_tensor;
  struct root *roots;
  struct access_room room;
  struct chains chains;
  struct joined *joined; /* by number of the join; the latest JOINS_KEPT */
  uint32_t *found;       /* in the list that is looked at */
  uint32_t *seen;        /* by task: 1 + the last task that waits for it */
  uint64_t edge_count, join_edge_count;
  uint32_t join_count;
  struct dependencies *result;
};

/* ---- Edges ------------------------------------------------------------------------------------------------------- */

static void add_edge(struct walk *walk, uint32_t task, uint32_t before) {
  if (before < walk->graph->task_count) {
    if (walk->seen[before] == task + 1) return;
    walk->seen[before] = task + 1;
  }
  if (walk->fills) walk->result->predecessors[walk->edge_count] = before;
  walk->edge_count++;
}

/* A join after all accesses that share an element with the tensor, whatever else the task waits for: other tasks will
 * wait for it too. The joins' edges lie after the tasks'. */
static uint32_t add_join(struct walk *walk, uint32_t task, const struct access_list *list, uint32_t tensor) {
  uint32_t join = walk->graph->task_count + walk->join_count;
  struct chain_heights now = walk->chains.now;
  walk->chains.is_join = true;
  walk->chains.now = (struct chain_heights){0};
  uint32_t found_count =
      access_list_find(list, walk->graph, &walk->graph->tensors[tensor], &walk->chains, NULL, walk->found);
  walk->joined[join % JOINS_KEPT] = (struct joined){join, walk->chains.now};
  walk->chains.now = now;
  walk->chains.is_join = false;
  if (walk->fills) {
    struct dependencies *result = walk->result;
    uint32_t *edges = result->predecessors + result->begin[walk->graph->task_count] + walk->join_edge_count;
    for (uint32_t i = 0; i < found_count; i++) edges[i] = list->items[walk->found[found_count - 1 - i]].task;
    result->join_task[walk->join_count] = task;
    result->begin[join + 1] = (uint32_t)(edges - result->predecessors) + found_count;
  }
  walk->join_edge_count += found_count;
  walk->join_count++;
  return join;
}

/* NULL if nothing has waited for exactly this set lately. */
static struct fan *find_fan(const rondo_graph *graph, struct accesses *accesses, uint32_t tensor) {
  for (uint32_t i = 0; i < FANS; i++) {
    struct fan *fan = &accesses->fans[i];
    if (!fan->version || fan->version != accesses->version) continue;
    if (fan->tensor == tensor) return fan;
    if (fan->tensor == NO_TENSOR || tensor == NO_TENSOR) continue;
    if (elements_equal(&graph->tensors[fan->tensor], &graph->tensors[tensor])) return fan;
  }
  return NULL;
}

/* The task waits for the join of a set that another one has waited for. */
static void wait_for_join(struct walk *walk, uint32_t task, const struct accesses *accesses, uint32_t tensor,
                          struct fan *fan) {
  if (fan->task == task) return; /* by another operand */
  fan->task = task;
  if (fan->join == NO_UNIT) fan->join = add_join(walk, task, &accesses->list, tensor);
  const struct joined *joined = &walk->joined[fan->join % JOINS_KEPT];
  if (joined->join == fan->join) chain_heights_rise(&walk->chains.now, &joined->heights);
  add_edge(walk, task, fan->join);
}

/* The task waits for what of the list overlaps the tensor. */
static void wait_for(struct walk *walk, uint32_t task, struct accesses *accesses, uint32_t tensor) {
  const rondo_graph *graph = walk->graph;
  const struct access_list *list = &accesses->list;
  struct fan *fan = NULL;
  bool wants_all = list->alive_count >= JOIN_LEAST && access_list_all_overlap(list, &graph->tensors[tensor]);
  if (list->alive_count >= JOIN_LEAST) fan = find_fan(graph, accesses, wants_all ? NO_TENSOR : tensor);
  if (fan) {
    wait_for_join(walk, task, accesses, tensor, fan);
    return;
  }
  uint32_t found_count = access_list_find(list, graph, &graph->tensors[tensor], &walk->chains, NULL, walk->found);
  if (found_count >= JOIN_LEAST)
    accesses->fans[accesses->next_fan++ % FANS] =
        (struct fan){accesses->version, wants_all ? NO_TENSOR : tensor, task, NO_UNIT};
  while (found_count-- > 0) add_edge(walk, task, list->items[walk->found[found_count]].task);
}

/* ---- Is every element written before it is read? ----------------------------------------------------------------- */

static void describe_element(const struct tensor *root, const uint32_t *element, char *text, size_t bytes) {
  size_t used = 0;
  for (uint32_t i = 0; i < root->rank && used < bytes; i++)
    used += (size_t)snprintf(text + used, bytes - used, "%s%u", i ? ", " : "element [", element[i]);
  if (used < bytes) snprintf(text + used, bytes - used, "] of ");
}

static rondo_status check_read(const struct walk *walk, uint32_t task, uint32_t tensor) {
  const struct tensor *root = graph_root(walk->graph, tensor);
  if (!walk->checks || (root->kind != TENSOR_TEMPORARY && root->kind != TENSOR_OUTPUT)) return RONDO_OK;
  struct root *accesses = &walk->roots[walk->root_of_tensor[root->root]];
  const struct access_list *writes = &accesses->writes.list;
  uint32_t element[RONDO_MAX_RANK];
  if (is_written(writes, walk->graph, &walk->graph->tensors[tensor], &accesses->written, walk->found, element))
    return RONDO_OK;
  char where[64] = "";
  if (writes->alive_count) describe_element(root, element, where, sizeof where);
  return status_set(
      RONDO_INVALID_ARGUMENT,
      "plan: task %u '%s' reads %s%s '%s', which no earlier task writes: write it before, or make it an input, a "
      "constant or a state",
      task, walk->graph->tasks[task].name, where, tensor_kind_name(root->kind), root->name);
}

static rondo_status check_outputs(const struct walk *walk) {
  const rondo_graph *graph = walk->graph;
  for (uint32_t t = 0; t < graph->tensor_count && walk->checks; t++) {
    const struct tensor *tensor = &graph->tensors[t];
    if (tensor->root != t || tensor->kind != TENSOR_OUTPUT || !tensor_elements(tensor)) continue;
    uint32_t element[RONDO_MAX_RANK];
    struct root *root = &walk->roots[walk->root_of_tensor[t]];
    const struct access_list *writes = &root->writes.list;
    if (is_written(writes, graph, tensor, &root->written, walk->found, element)) continue;
    char where[64] = "";
    if (writes->alive_count) describe_element(tensor, element, where, sizeof where);
    return status_set(RONDO_INVALID_ARGUMENT, "plan: %soutput '%s' is written by no task", where, tensor->name);
  }
  return RONDO_OK;
}

/* ---- The walk ---------------------------------------------------------------------------------------------------- */

/* The root of an operand that other tasks may have to wait for: constants are never written, and of an empty rectangle
 * nothing is touched. */
static struct root *root_of(const struct walk *walk, uint32_t tensor) {
  if (tensor == NO_TENSOR || !tensor_elements(&walk->graph->tensors[tensor])) return NULL;
  uint32_t root = walk->root_of_tensor[walk->graph->tensors[tensor].root];
  return root == NO_TENSOR ? NULL : &walk->roots[root];
}

static void drop_covered(const struct walk *walk, struct accesses *accesses, const struct tensor *tensor) {
  if (access_list_drop(&accesses->list, walk->graph, tensor, walk->found)) accesses->version++;
}

static void keep_access(struct walk *walk, struct root *root, uint32_t index, rondo_access access, uint32_t task) {
  const struct tensor *tensor = &walk->graph->tensors[index];
  struct accesses *accesses = access & RONDO_WRITE ? &root->writes : &root->reads;
  if (access & RONDO_WRITE) {
    drop_covered(walk, &root->writes, tensor);
    drop_covered(walk, &root->reads, tensor);
    written_grow(&root->written, tensor);
  }
  access_list_put(&accesses->list, tensor, index, task, &walk->chains);
  accesses->version++;
}

static rondo_status walk_task(struct walk *walk, uint32_t number) {
  const struct task *task = &walk->graph->tasks[number];
  if (walk->fills) walk->result->begin[number] = (uint32_t)walk->edge_count;
  chains_begin(&walk->chains, number);
  for (uint32_t i = 0; i < task->operand_count; i++) {
    struct root *root = root_of(walk, task->tensors[i]);
    if (!root) continue;
    rondo_access access = task_access(task, i);
    if (access & RONDO_WRITE) wait_for(walk, number, &root->reads, task->tensors[i]);
    wait_for(walk, number, &root->writes, task->tensors[i]);
    if (!(access & RONDO_READ)) continue;
    rondo_status status = check_read(walk, number, task->tensors[i]);
    if (status != RONDO_OK) return status;
  }
  chains_end(&walk->chains);
  for (uint32_t i = 0; i < task->operand_count; i++) {
    struct root *root = root_of(walk, task->tensors[i]);
    if (root) keep_access(walk, root, task->tensors[i], task_access(task, i), number);
  }
  return RONDO_OK;
}

static bool has_accesses(const rondo_graph *graph, uint32_t tensor) {
  return graph->tensors[tensor].root == tensor && graph->tensors[tensor].kind != TENSOR_CONSTANT;
}

static uint32_t count_roots(const rondo_graph *graph) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < graph->tensor_count; i++) count += has_accesses(graph, i);
  return count;
}

/* Of each root, how often it is read and written. */
static void count_accesses(struct walk *walk) {
  const rondo_graph *graph = walk->graph;
  uint32_t roots = 0;
  for (uint32_t i = 0; i < graph->tensor_count; i++)
    walk->root_of_tensor[i] = has_accesses(graph, i) ? roots++ : NO_TENSOR;
  memset(walk->roots, 0, roots * sizeof *walk->roots);
  for (uint32_t t = 0; t < graph->task_count; t++)
    for (uint32_t i = 0; i < graph->tasks[t].operand_count; i++) {
      struct root *root = root_of(walk, graph->tasks[t].tensors[i]);
      if (root) (task_access(&graph->tasks[t], i) & RONDO_WRITE ? &root->writes : &root->reads)->most++;
    }
}

/* Each list gets as much room as it can need. */
static void lay_lists(struct walk *walk, uint32_t root_count) {
  struct access_room room = walk->room;
  count_accesses(walk);
  for (uint32_t r = 0; r < root_count; r++) {
    struct root *root = &walk->roots[r];
    root->writes.list = access_list_lay(&room, root->writes.most);
    root->reads.list = access_list_lay(&room, root->reads.most);
  }
}

static rondo_status walk_all(struct walk *walk) {
  assert(walk->seen);
  lay_lists(walk, count_roots(walk->graph));
  chains_clear(&walk->chains);
  memset(walk->joined, 0xff, JOINS_KEPT * sizeof *walk->joined);
  memset(walk->seen, 0, walk->graph->task_count * sizeof *walk->seen);
  walk->edge_count = walk->join_edge_count = walk->join_count = 0;
  for (uint32_t t = 0; t < walk->graph->task_count; t++) {
    rondo_status status = walk_task(walk, t);
    if (status != RONDO_OK) return status;
  }
  return check_outputs(walk);
}

static struct walk cut_walk(struct cutter *cutter, const rondo_graph *graph) {
  struct walk walk = {.graph = graph};
  uint64_t accesses = 0;
  for (uint32_t t = 0; t < graph->task_count; t++)
    for (uint32_t i = 0; i < graph->tasks[t].operand_count; i++) accesses += graph->tasks[t].tensors[i] != NO_TENSOR;
  walk.root_of_tensor = cut(cutter, graph->tensor_count * sizeof(uint32_t));
  walk.roots = cut(cutter, count_roots(graph) * sizeof(struct root));
  walk.room = access_room_cut(cutter, accesses);
  chains_cut(&walk.chains, cutter, graph->task_count);
  walk.joined = cut(cutter, JOINS_KEPT * sizeof *walk.joined);
  walk.found = cut(cutter, accesses * sizeof(uint32_t));
  walk.seen = cut(cutter, graph->task_count * sizeof(uint32_t));
  return walk;
}

static struct dependencies *cut_result(struct cutter *cutter, const struct walk *walk) {
  uint32_t tasks = walk->graph->task_count;
  struct dependencies *result = cut(cutter, sizeof *result);
  uint32_t *begin = cut(cutter, ((uint64_t)tasks + walk->join_count + 1) * sizeof(uint32_t));
  uint32_t *predecessors = cut(cutter, (walk->edge_count + walk->join_edge_count) * sizeof(uint32_t));
  uint32_t *join_task = cut(cutter, walk->join_count * sizeof(uint32_t));
  if (cutter->base)
    *result = (struct dependencies){.task_count = tasks,
                                    .join_count = walk->join_count,
                                    .begin = begin,
                                    .predecessors = predecessors,
                                    .join_task = join_task};
  return result;
}

static rondo_status infer(rondo_graph *graph, struct walk *walk) {
  rondo_status status = walk_all(walk);
  if (status != RONDO_OK) return status;
  if (walk->edge_count + walk->join_edge_count > EDGES_MOST)
    return status_set(RONDO_UNSUPPORTED, "plan: the tasks need %" PRIu64 " edges, expected at most %d",
                      walk->edge_count + walk->join_edge_count, EDGES_MOST);
  struct cutter cutter = {0};
  cut_result(&cutter, walk);
  void *memory;
  status = memory_take(graph->source, cutter.used, "planning", &memory);
  if (status != RONDO_OK) return status;
  cutter = (struct cutter){memory, 0};
  struct dependencies *result = walk->result = cut_result(&cutter, walk);
  assert(result);
  result->begin[graph->task_count] = (uint32_t)walk->edge_count;
  result->is_checked = walk->checks;
  walk->checks = false;
  walk->fills = true;
  graph->made.dependencies = result;
  graph->made.dependencies_bytes = cutter.used;
  return walk_all(walk);
}

static uint64_t walk_bytes(const rondo_graph *graph) {
  struct cutter cutter = {0};
  cut_walk(&cutter, graph);
  return cutter.used;
}

rondo_status dependencies_of(rondo_graph *graph, bool check, const struct dependencies **dependencies) {
  if (graph->made.dependencies && check && !graph->made.dependencies->is_checked) graph_drop_dependencies(graph);
  if (!graph->made.dependencies) {
    uint64_t bytes = walk_bytes(graph);
    void *memory;
    rondo_status status = memory_take_for_now(graph->source, bytes, "planning", &memory);
    if (status != RONDO_OK) return status;
    struct cutter cutter = {memory, 0};
    struct walk walk = cut_walk(&cutter, graph);
    walk.checks = check;
    status = infer(graph, &walk);
    memory_give(graph->source, memory, bytes);
    if (status != RONDO_OK) return status;
  }
  *dependencies = graph->made.dependencies;
  return RONDO_OK;
}

uint64_t dependencies_most_bytes(const rondo_graph *graph) {
  return pool_take_bytes(walk_bytes(graph)) + pool_take_bytes(graph->made.dependencies_bytes);
}

/* ---- What rondo_after asks --------------------------------------------------------------------------------------- */

/* Backwards from `second`, over a stack that each unit enters once. */
static bool search(const rondo_graph *graph, const struct dependencies *dependencies, uint32_t first, uint32_t second,
                   uint32_t *stack, bool *entered) {
  uint32_t depth = 0;
  stack[depth++] = second;
  entered[second] = true;
  while (depth) {
    uint32_t unit = stack[--depth];
    if (unit == first) return true;
    for (uint32_t i = dependencies->begin[unit]; i < dependencies->begin[unit + 1]; i++) {
      uint32_t before = dependencies->predecessors[i];
      if (!entered[before]) stack[depth++] = before;
      entered[before] = true;
    }
    if (unit >= graph->task_count) continue;
    for (const struct prerequisite *p = graph->tasks[unit].prerequisites; p; p = p->next) {
      if (!entered[p->task]) stack[depth++] = p->task;
      entered[p->task] = true;
    }
  }
  return false;
}

rondo_status dependencies_reach(rondo_graph *graph, uint32_t first, uint32_t second, bool *reached) {
  *reached = false;
  if (first > second && !graph->has_backward_edges) return RONDO_OK; /* every edge leads to a later task */
  const struct dependencies *dependencies;
  rondo_status status = dependencies_of(graph, false, &dependencies);
  if (status != RONDO_OK) return status;
  uint32_t units = dependencies->task_count + dependencies->join_count;
  uint64_t bytes = units * (sizeof(uint32_t) + sizeof(bool));
  void *memory;
  status = memory_take_for_now(graph->source, bytes, "the search for a cycle", &memory);
  if (status != RONDO_OK) {
    graph_drop_dependencies(graph); /* a failed call keeps nothing */
    return status;
  }
  bool *entered = (bool *)memory + units * sizeof(uint32_t);
  memset(entered, 0, units * sizeof(bool));
  *reached = search(graph, dependencies, first, second, memory, entered);
  memory_give(graph->source, memory, bytes);
  return RONDO_OK;
}
