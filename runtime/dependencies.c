/* dependencies.c - see dependencies.h.
 *
 * Tasks are gone through in the order in which they were added. Of each tensor the accesses are kept that a later task
 * can still have to wait for: a write drops every access whose rectangle it covers, since whoever would wait for that
 * access waits for the write. What is left of the writes is also all that is known of the tensor's content, so the same
 * walk sees an element that is read before anything writes it.
 *
 * The walk is made twice, to count the edges and to fill them in: memory is measured first and taken in one piece. */
#include "dependencies.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cutter.h"
#include "elements.h"

enum {
  NO_UNIT = UINT32_MAX,
  /* So many edges to the same tasks, wanted a second time, become a join. A join is a node, half a microsecond of a
   * replay, and an edge costs some ten nanoseconds to launch. */
  JOIN_LEAST = 16,
  EDGES_MOST = 1 << 30,
  PIECES_MOST = 256, /* that are compared in pairs */
};

struct access {
  struct box box;  /* the tensor's */
  uint32_t tensor; /* whose elements they are */
  uint32_t task;   /* NO_UNIT: nobody has to wait for it any more */
};

/* A set of accesses that was large enough for a join; the last few of a list are kept. */
enum { FANS = 4 };
struct fan {
  uint32_t version; /* of the list */
  uint32_t tensor;  /* NO_TENSOR: all of the list */
  uint32_t task;    /* the last that wanted it */
  uint32_t join;    /* NO_UNIT until another one does */
};

/* Accesses stay where they are put, in runs of RUN_LENGTH with a box around each: tasks that follow each other mostly
 * touch neighbours, so that nearly all runs are passed over with one look. */
enum { RUN_LENGTH = 64 };

struct access_list {
  struct access *items;
  struct box *runs;
  uint32_t count, alive_count;
  bool has_only_boxes; /* no access of elements that are not all of their box */
  uint32_t first;      /* all before it are dead */
  uint32_t version;    /* grows when the list changes; 0: never */
  uint32_t next_fan;
  struct fan fans[FANS];
};

struct root {
  struct access_list writes, reads;
};

struct walk {
  const rondo_graph *graph;
  bool checks, fills; /* what is read has been written; the edges */
  uint32_t *root_of_tensor;
  struct root *roots;
  struct access *accesses; /* of all lists */
  struct box *runs;
  uint32_t *found; /* in the list that is looked at */
  uint32_t *seen;  /* by task: 1 + the last task that waits for it */
  uint64_t edge_count, join_edge_count;
  uint32_t join_count;
  struct dependencies *result;
};

static bool box_covers(const struct box *whole, const struct box *part) {
  bool inside = true;
  for (int i = 0; i < RONDO_MAX_RANK; i++) inside &= whole->low[i] <= part->low[i] && part->high[i] <= whole->high[i];
  return inside;
}

/* ---- Edges ------------------------------------------------------------------------------------------------------- */

static void add_edge(struct walk *walk, uint32_t task, uint32_t before) {
  if (before < walk->graph->task_count) {
    if (walk->seen[before] == task + 1) return;
    walk->seen[before] = task + 1;
  }
  if (walk->fills) walk->result->predecessors[walk->edge_count] = before;
  walk->edge_count++;
}

/* A join behind all accesses that were found. The joins' edges lie behind the tasks'. */
static uint32_t add_join(struct walk *walk, uint32_t task, const struct access_list *list, uint32_t found_count) {
  uint32_t join = walk->graph->task_count + walk->join_count;
  if (walk->fills) {
    struct dependencies *result = walk->result;
    uint32_t *edges = result->predecessors + result->begin[walk->graph->task_count] + walk->join_edge_count;
    for (uint32_t i = 0; i < found_count; i++) edges[i] = list->items[walk->found[i]].task;
    result->join_task[walk->join_count] = task;
    result->begin[join + 1] = (uint32_t)(edges - result->predecessors) + found_count;
  }
  walk->join_edge_count += found_count;
  walk->join_count++;
  return join;
}

/* NULL if nothing has waited for exactly this set lately. */
static struct fan *find_fan(const rondo_graph *graph, struct access_list *list, uint32_t tensor) {
  for (uint32_t i = 0; i < FANS; i++) {
    struct fan *fan = &list->fans[i];
    if (!fan->version || fan->version != list->version) continue;
    if (fan->tensor == tensor) return fan;
    if (fan->tensor == NO_TENSOR || tensor == NO_TENSOR) continue;
    if (elements_equal(&graph->tensors[fan->tensor], &graph->tensors[tensor])) return fan;
  }
  return NULL;
}

/* Into `found`: the accesses that overlap the box. Returns how many. */
static uint32_t find_overlaps(const struct access_list *list, const struct box *box, uint32_t *found) {
  uint32_t found_count = 0;
  for (uint32_t run = list->first / RUN_LENGTH; run * RUN_LENGTH < list->count; run++) {
    if (!boxes_overlap(&list->runs[run], box)) continue;
    uint32_t end = list->count - run * RUN_LENGTH < RUN_LENGTH ? list->count : (run + 1) * RUN_LENGTH;
    for (uint32_t i = run * RUN_LENGTH; i < end; i++) {
      found[found_count] = i;
      found_count += list->items[i].task != NO_UNIT && boxes_overlap(&list->items[i].box, box);
    }
  }
  return found_count;
}

/* Into walk->found: the accesses that have an element of the tensor. Returns how many. */
static uint32_t find_conflicts(const struct walk *walk, const struct access_list *list, const struct tensor *tensor) {
  uint32_t *found = walk->found, box_count = find_overlaps(list, &tensor->box, found), found_count = 0;
  if (tensor->is_box && list->has_only_boxes) return box_count;
  for (uint32_t i = 0; i < box_count; i++)
    if (elements_overlap(tensor, &walk->graph->tensors[list->items[found[i]].tensor])) found[found_count++] = found[i];
  return found_count;
}

/* The task waits for what of the list overlaps the tensor. Leaves in walk->found what that is, and returns how many. */
static uint32_t wait_for(struct walk *walk, uint32_t task, struct access_list *list, uint32_t tensor) {
  uint32_t found_count = find_conflicts(walk, list, &walk->graph->tensors[tensor]);
  if (found_count >= JOIN_LEAST) {
    uint32_t what = found_count == list->alive_count ? NO_TENSOR : tensor;
    struct fan *fan = find_fan(walk->graph, list, what);
    if (fan) {
      if (fan->task == task) return found_count; /* by another operand */
      fan->task = task;
      if (fan->join == NO_UNIT) fan->join = add_join(walk, task, list, found_count);
      add_edge(walk, task, fan->join);
      return found_count;
    }
    list->fans[list->next_fan++ % FANS] = (struct fan){list->version, what, task, NO_UNIT};
  }
  for (uint32_t i = 0; i < found_count; i++) add_edge(walk, task, list->items[walk->found[i]].task);
  return found_count;
}

/* ---- Is every element written before it is read? ----------------------------------------------------------------- */

/* Goes through `box` in the order of memory, from the end of one written rectangle to the next; false at the first
 * element that none of the found writes has, which is left in `element`. All lines between `element` and `line_end` are
 * covered by the same rectangles, so they are passed at once. */
static bool is_box_written(const struct walk *walk, const struct access_list *writes, uint32_t found_count,
                           const struct box *box, uint32_t *element) {
  uint32_t line_end[RONDO_MAX_RANK], hint = 0;
  memcpy(element, box->low, sizeof box->low);
  memcpy(line_end, box->high, sizeof box->high);
  for (;;) {
    const struct box *write = NULL;
    for (uint32_t i = 0; i < found_count && !write; i++) {
      uint32_t candidate = hint + i < found_count ? hint + i : hint + i - found_count;
      const struct box *other = &writes->items[walk->found[candidate]].box;
      bool inside = true;
      for (int d = 0; d < RONDO_MAX_RANK; d++) inside &= other->low[d] <= element[d] && element[d] < other->high[d];
      if (!inside) continue;
      write = other;
      hint = candidate; /* neighbours are mostly written one after the other */
    }
    if (!write) return false;
    for (int d = 0; d < RONDO_MAX_RANK; d++)
      if (write->high[d] < line_end[d]) line_end[d] = write->high[d];
    int d = RONDO_MAX_RANK - 1;
    while (line_end[d] >= box->high[d]) { /* this direction is done: the next line of the one outside it */
      if (d == 0) return true;
      element[d] = box->low[d];
      line_end[d] = box->high[d];
      d--;
    }
    element[d] = line_end[d];
    line_end[d] = box->high[d];
  }
}

/* The same where not all are boxes: from the end of one written run of memory to the next. */
static bool are_elements_written(const struct walk *walk, const struct access_list *writes, uint32_t found_count,
                                 const struct tensor *tensor, uint32_t *element) {
  int64_t count = tensor_elements(tensor), run;
  uint32_t hint = 0;
  for (int64_t i = 0; i < count; i += run) {
    int64_t at = elements_at(tensor, i), written = 0;
    for (uint32_t f = 0; f < found_count && !written; f++) {
      uint32_t candidate = hint + f < found_count ? hint + f : hint + f - found_count;
      written = elements_run(&walk->graph->tensors[writes->items[walk->found[candidate]].tensor], at);
      if (written) hint = candidate;
    }
    if (!written) {
      const struct tensor *root = &walk->graph->tensors[tensor->root];
      for (uint32_t d = 0; d < root->rank; at %= root->stride[d++]) element[d] = (uint32_t)(at / root->stride[d]);
      return false;
    }
    run = elements_run(tensor, at);
    if (written < run) run = written;
  }
  return true;
}

/* Is it plain without a look at every element: one write has all of them, or they lie in as many pieces as there are
 * writes? */
static bool is_plainly_written(const struct walk *walk, const struct access_list *writes, uint32_t found_count,
                               const struct tensor *tensor) {
  const struct tensor *tensors = walk->graph->tensors;
  int64_t left = tensor_elements(tensor);
  bool are_inside = tensor->is_box;
  for (uint32_t i = 0; i < found_count; i++) {
    const struct tensor *write = &tensors[writes->items[walk->found[i]].tensor];
    if ((write->is_box && box_covers(&write->box, &tensor->box)) || elements_equal(write, tensor)) return true;
    are_inside &= box_covers(&tensor->box, &write->box);
    left -= tensor_elements(write);
  }
  if (left || !are_inside || found_count > PIECES_MOST) return false;
  for (uint32_t i = 0; i < found_count; i++)
    for (uint32_t j = 0; j < i; j++)
      if (elements_overlap(&tensors[writes->items[walk->found[i]].tensor],
                           &tensors[writes->items[walk->found[j]].tensor]))
        return false;
  return true;
}

/* Of all writes that have an element of the tensor. Where one is missing it is left in `element`, in the dimensions of
 * the root. */
static bool is_written(const struct walk *walk, const struct access_list *writes, uint32_t found_count,
                       const struct tensor *tensor, uint32_t *element) {
  if (tensor->is_box && writes->has_only_boxes) return is_box_written(walk, writes, found_count, &tensor->box, element);
  if (is_plainly_written(walk, writes, found_count, tensor)) return true;
  return are_elements_written(walk, writes, found_count, tensor, element);
}

static void describe_element(const struct tensor *root, const uint32_t *element, char *text, size_t bytes) {
  size_t used = 0;
  for (uint32_t i = 0; i < root->rank && used < bytes; i++)
    used += (size_t)snprintf(text + used, bytes - used, "%s%u", i ? ", " : "element [", element[i]);
  if (used < bytes) snprintf(text + used, bytes - used, "] of ");
}

static rondo_status check_read(const struct walk *walk, uint32_t task, uint32_t tensor, uint32_t found_count) {
  const struct tensor *root = graph_root(walk->graph, tensor);
  if (!walk->checks || (root->kind != TENSOR_TEMPORARY && root->kind != TENSOR_OUTPUT)) return RONDO_OK;
  const struct access_list *writes = &walk->roots[walk->root_of_tensor[root->root]].writes;
  uint32_t element[RONDO_MAX_RANK];
  if (is_written(walk, writes, found_count, &walk->graph->tensors[tensor], element)) return RONDO_OK;
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
    const struct access_list *writes = &walk->roots[walk->root_of_tensor[t]].writes;
    if (is_written(walk, writes, find_conflicts(walk, writes, tensor), tensor, element)) continue;
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

static void box_grow(struct box *box, const struct box *more) {
  for (int i = 0; i < RONDO_MAX_RANK; i++) {
    if (more->low[i] < box->low[i]) box->low[i] = more->low[i];
    if (more->high[i] > box->high[i]) box->high[i] = more->high[i];
  }
}

/* Around what is alive in the run of an access; where nothing is, a box that nothing overlaps. */
static void run_shrink(struct access_list *list, uint32_t index) {
  uint32_t first = index / RUN_LENGTH * RUN_LENGTH;
  uint32_t end = list->count - first < RUN_LENGTH ? list->count : first + RUN_LENGTH;
  struct box box = {.low = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX}};
  for (uint32_t i = first; i < end; i++)
    if (list->items[i].task != NO_UNIT) box_grow(&box, &list->items[i].box);
  list->runs[index / RUN_LENGTH] = box;
}

static void drop_covered(const struct walk *walk, struct access_list *list, const struct tensor *tensor) {
  uint32_t *found = walk->found, found_count = find_overlaps(list, &tensor->box, found), dropped = NO_UNIT;
  for (uint32_t i = 0; i < found_count; i++) {
    struct access *access = &list->items[found[i]];
    if (!(tensor->is_box && box_covers(&tensor->box, &access->box)) &&
        !elements_equal(tensor, &walk->graph->tensors[access->tensor]))
      continue;
    if (dropped != NO_UNIT && dropped / RUN_LENGTH != found[i] / RUN_LENGTH) run_shrink(list, dropped);
    dropped = found[i];
    access->task = NO_UNIT;
    list->alive_count--;
    list->version++;
  }
  if (dropped != NO_UNIT) run_shrink(list, dropped);
  while (list->first < list->count && list->items[list->first].task == NO_UNIT) list->first++;
}

static void keep_access(const struct walk *walk, struct root *root, uint32_t index, rondo_access access,
                        uint32_t task) {
  const struct tensor *tensor = &walk->graph->tensors[index];
  if (access & RONDO_WRITE) {
    drop_covered(walk, &root->writes, tensor);
    drop_covered(walk, &root->reads, tensor);
  }
  struct access_list *list = access & RONDO_WRITE ? &root->writes : &root->reads;
  struct box *run = &list->runs[list->count / RUN_LENGTH];
  if (list->count % RUN_LENGTH == 0) *run = tensor->box;
  box_grow(run, &tensor->box);
  list->items[list->count++] = (struct access){tensor->box, index, task};
  list->has_only_boxes &= tensor->is_box;
  list->alive_count++;
  list->version++;
}

static rondo_status walk_task(struct walk *walk, uint32_t number) {
  const struct task *task = &walk->graph->tasks[number];
  if (walk->fills) walk->result->begin[number] = (uint32_t)walk->edge_count;
  for (uint32_t i = 0; i < task->operand_count; i++) {
    struct root *root = root_of(walk, task->tensors[i]);
    if (!root) continue;
    rondo_access access = task_access(task, i);
    if (access & RONDO_WRITE) wait_for(walk, number, &root->reads, task->tensors[i]);
    uint32_t found_count = wait_for(walk, number, &root->writes, task->tensors[i]);
    if (!(access & RONDO_READ)) continue;
    rondo_status status = check_read(walk, number, task->tensors[i], found_count);
    if (status != RONDO_OK) return status;
  }
  for (uint32_t i = 0; i < task->operand_count; i++) {
    struct root *root = root_of(walk, task->tensors[i]);
    if (root) keep_access(walk, root, task->tensors[i], task_access(task, i), number);
  }
  return RONDO_OK;
}

/* Each root that a task touches gets lists as long as they can become. Returns how many roots and accesses there are;
 * walk->roots NULL: only counts. */
static void lay_lists(struct walk *walk, uint32_t *root_count, uint32_t *access_count) {
  const rondo_graph *graph = walk->graph;
  *root_count = *access_count = 0;
  for (uint32_t t = 0; t < graph->task_count; t++)
    for (uint32_t i = 0; i < graph->tasks[t].operand_count; i++)
      *access_count += graph->tasks[t].tensors[i] != NO_TENSOR;
  for (uint32_t i = 0; i < graph->tensor_count; i++)
    *root_count += graph->tensors[i].root == i && graph->tensors[i].kind != TENSOR_CONSTANT;
  if (!walk->roots) return;
  uint32_t roots = 0;
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    bool has_lists = graph->tensors[i].root == i && graph->tensors[i].kind != TENSOR_CONSTANT;
    walk->root_of_tensor[i] = has_lists ? roots++ : NO_TENSOR;
  }
  memset(walk->roots, 0, *root_count * sizeof *walk->roots);
  for (uint32_t t = 0; t < graph->task_count; t++) /* `count` counts what will be there, for a moment */
    for (uint32_t i = 0; i < graph->tasks[t].operand_count; i++) {
      struct root *root = root_of(walk, graph->tasks[t].tensors[i]);
      if (root) (task_access(&graph->tasks[t], i) & RONDO_WRITE ? &root->writes : &root->reads)->count++;
    }
  uint32_t used = 0, runs_used = 0;
  for (uint32_t r = 0; r < *root_count; r++) {
    struct access_list *lists[] = {&walk->roots[r].writes, &walk->roots[r].reads};
    for (int l = 0; l < 2; l++) {
      uint32_t most = lists[l]->count;
      *lists[l] =
          (struct access_list){.items = walk->accesses + used, .runs = walk->runs + runs_used, .has_only_boxes = true};
      used += most;
      runs_used += (most + RUN_LENGTH - 1) / RUN_LENGTH;
    }
  }
}

static rondo_status walk_all(struct walk *walk) {
  uint32_t roots, accesses;
  lay_lists(walk, &roots, &accesses);
  assert(walk->seen);
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
  uint32_t roots, accesses;
  lay_lists(&walk, &roots, &accesses);
  walk.root_of_tensor = cut(cutter, graph->tensor_count * sizeof(uint32_t));
  walk.roots = cut(cutter, roots * sizeof(struct root));
  walk.accesses = cut(cutter, accesses * sizeof(struct access));
  walk.runs = cut(cutter, (accesses / RUN_LENGTH + 2 * (uint64_t)roots) * sizeof(struct box));
  walk.found = cut(cutter, (uint64_t)accesses * sizeof(uint32_t));
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
    *result = (struct dependencies){.source = walk->graph->source,
                                    .memory_bytes = cutter->used,
                                    .task_count = tasks,
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
  graph->dependencies = result;
  return walk_all(walk);
}

static uint64_t walk_bytes(const rondo_graph *graph) {
  struct cutter cutter = {0};
  cut_walk(&cutter, graph);
  return cutter.used;
}

rondo_status dependencies_of(rondo_graph *graph, bool check, const struct dependencies **dependencies) {
  if (graph->dependencies && check && !graph->dependencies->is_checked) dependencies_drop(graph);
  if (!graph->dependencies) {
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
  *dependencies = graph->dependencies;
  return RONDO_OK;
}

uint64_t dependencies_most_bytes(const rondo_graph *graph) {
  return pool_take_bytes(walk_bytes(graph)) + pool_take_bytes(graph->dependencies->memory_bytes);
}

void dependencies_drop(rondo_graph *graph) {
  if (graph->dependencies) memory_give(graph->source, graph->dependencies, graph->dependencies->memory_bytes);
  graph->dependencies = NULL;
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
    dependencies_drop(graph); /* a failed call keeps nothing */
    return status;
  }
  bool *entered = (bool *)memory + units * sizeof(uint32_t);
  memset(entered, 0, units * sizeof(bool));
  *reached = search(graph, dependencies, first, second, memory, entered);
  memory_give(graph->source, memory, bytes);
  return RONDO_OK;
}
