/* plan.c - see plan.h.
 *
 * Two buffers may share bytes only if every access of one comes before every access of the other along every path of
 * the graph: then no legal order, however parallel, lets them live at the same time. Planners that look at one total
 * order (TFLM, XNNPACK, XLA's heap simulator) allow more, and would race here. */
#include "plan.h"

#include <stdio.h>
#include <string.h>

#include "../kernels/copy/copy.h"
#include "../kernels/copy/transfer.h"
#include "place.h"

/* ---- Memory: one piece, measured first and cut afterwards -------------------------------------------------------- */

struct cutter {
  unsigned char *base; /* NULL while measuring */
  uint64_t used;
};

static void *cut(struct cutter *cutter, uint64_t bytes) {
  void *piece = cutter->base ? cutter->base + cutter->used : NULL;
  cutter->used += (bytes + 63) / 64 * 64;
  return piece;
}

static struct bit_matrix cut_matrix(struct cutter *cutter, uint32_t rows) {
  return (struct bit_matrix){cut(cutter, bit_matrix_bytes(rows, rows)), bit_row_words(rows)};
}

/* Working memory of the planning itself. */
struct scratchpad {
  uint32_t *node_of_tensor; /* moved inputs and outputs */
  uint32_t *node_of_task;
  uint32_t *buffer_of_tensor;
  struct bit_matrix accessors; /* row b: nodes that touch buffer b */
  uint64_t *common;            /* one row of nodes */
  uint64_t *bytes, *offsets;
  uint32_t *birth, *death, *by_size;
  uint64_t *candidates; /* one row of buffers */
  void *placing;
};

static void cut_all(struct cutter *cutter, const rondo_graph *graph, uint32_t node_count, uint32_t buffer_count,
                    struct plan *plan, struct scratchpad *pad) {
  uint32_t tensors = graph->tensor_count, tasks = graph->task_count;
  plan->nodes = cut(cutter, node_count * sizeof *plan->nodes);
  plan->moved = cut(cutter, tensors * sizeof(uint32_t));
  plan->ancestors = cut_matrix(cutter, node_count);
  plan->edges = cut_matrix(cutter, node_count);
  plan->device_offset = cut(cutter, tensors * sizeof(uint64_t));
  plan->pinned_offset = cut(cutter, tensors * sizeof(uint64_t));
  plan->scratch_offset = cut(cutter, tasks * sizeof(uint64_t));
  plan->buffers = cut(cutter, buffer_count * sizeof *plan->buffers);
  plan->conflicts = cut_matrix(cutter, buffer_count);
  pad->node_of_tensor = cut(cutter, tensors * sizeof(uint32_t));
  pad->node_of_task = cut(cutter, tasks * sizeof(uint32_t));
  pad->buffer_of_tensor = cut(cutter, tensors * sizeof(uint32_t));
  pad->accessors =
      (struct bit_matrix){cut(cutter, bit_matrix_bytes(buffer_count, node_count)), bit_row_words(node_count)};
  pad->common = cut(cutter, bit_matrix_bytes(1, node_count));
  pad->bytes = cut(cutter, buffer_count * sizeof(uint64_t));
  pad->offsets = cut(cutter, buffer_count * sizeof(uint64_t));
  pad->birth = cut(cutter, buffer_count * sizeof(uint32_t));
  pad->death = cut(cutter, buffer_count * sizeof(uint32_t));
  pad->by_size = cut(cutter, buffer_count * sizeof(uint32_t));
  pad->candidates = cut(cutter, bit_matrix_bytes(1, buffer_count));
  pad->placing = cut(cutter, place_work_bytes(buffer_count));
}

/* ---- What is moved ----------------------------------------------------------------------------------------------- */

/* Does a copy move it between a slot's pinned memory and the device? */
static bool is_moved(const rondo_graph *graph, uint32_t index, enum tensor_kind kind) {
  const struct tensor *tensor = &graph->tensors[index];
  return tensor->root == index && tensor->kind == kind && !tensor_is_in_place(tensor);
}

/* Together with others of its kind? */
static bool is_small(const rondo_graph *graph, uint32_t index) {
  return tensor_bytes(&graph->tensors[index]) <= COPY_SMALL_BYTES;
}

/* Nodes from `begin` on: for the small tensors together, at most TRANSFER_TENSORS and COPY_SMALL_BYTES to a node,
 * and for each large one. *moved counts plan->moved. Gives back where the nodes end. plan NULL: counts them only. */
static uint32_t add_moves(const rondo_graph *graph, enum tensor_kind kind, uint32_t begin, struct plan *plan,
                          struct scratchpad *pad, uint32_t *moved) {
  uint32_t n = begin, count = 0;
  uint64_t bytes = 0;
  for (int large = 0; large < 2; large++)
    for (uint32_t t = 0; t < graph->tensor_count; t++) {
      if (!is_moved(graph, t, kind) || is_small(graph, t) == large) continue;
      uint64_t more = tensor_bytes(&graph->tensors[t]);
      bool joins = !large && count > 0 && count < TRANSFER_TENSORS && bytes + more <= COPY_SMALL_BYTES;
      count = joins ? count + 1 : 1;
      bytes = joins ? bytes + more : more;
      n += !joins;
      if (!plan) continue;
      if (!joins)
        plan->nodes[n - 1] = (struct plan_node){.kind = kind == TENSOR_INPUT ? NODE_INPUT : NODE_OUTPUT,
                                                .tensors = &plan->moved[*moved]};
      plan->nodes[n - 1].tensor_count = count;
      plan->moved[(*moved)++] = t;
      pad->node_of_tensor[t] = n - 1;
    }
  return n;
}

void plan_move_name(const rondo_graph *graph, const struct plan_node *node, char name[NAME_BYTES]) {
  size_t used = (size_t)snprintf(name, NAME_BYTES, "copy %s", node->kind == NODE_INPUT ? "in" : "out");
  for (uint32_t i = 0; i < node->tensor_count && used < NAME_BYTES; i++)
    used +=
        (size_t)snprintf(name + used, NAME_BYTES - used, "%s %s", i ? "," : "", graph->tensors[node->tensors[i]].name);
  if (used >= NAME_BYTES) memcpy(name + NAME_BYTES - 4, "...", 4);
}

struct op_task plan_move_task(const rondo_graph *graph, const struct plan_node *node) {
  struct op_task task = {.op = node->tensor_count == 1 ? &op_copy : &op_transfer,
                         .operand_count = 2 * node->tensor_count};
  for (uint32_t i = 0; i < task.operand_count; i++) {
    const struct tensor *tensor = &graph->tensors[node->tensors[i / 2]];
    struct op_operand *dense = &task.operands[i];
    *dense = (struct op_operand){.present = true, .dtype = tensor->dtype, .rank = tensor->rank};
    memcpy(dense->shape, tensor->shape, sizeof dense->shape);
    memcpy(dense->stride, tensor->stride, sizeof dense->stride);
    dense->access = i % 2 ? RONDO_WRITE : RONDO_READ;
  }
  return task;
}

/* ---- Order ------------------------------------------------------------------------------------------------------- */

/* Tasks in program order where rondo_after allows it: always the lowest-numbered task whose ancestors are all placed.
 */
static void order_nodes(const rondo_graph *graph, struct plan *plan, struct scratchpad *pad) {
  uint32_t moved = 0, n = add_moves(graph, TENSOR_INPUT, 0, plan, pad, &moved);
  uint32_t words = graph->ancestors.row_words;
  /* pad->common is as wide as the nodes, so as wide as the tasks. */
  uint64_t *placed = pad->common;
  memset(placed, 0, bit_row_words(plan->node_count) * sizeof(uint64_t));
  uint32_t task_words = bit_row_words(graph->task_count);
  if (task_words < words) words = task_words;
  for (uint32_t placed_count = 0, from = 0; placed_count < graph->task_count; placed_count++) {
    uint32_t t = from;
    while (bit_get(placed, t) || !bits_within(bit_row(&graph->ancestors, t), placed, words)) t++;
    bit_put(placed, t);
    while (from < graph->task_count && bit_get(placed, from)) from++;
    pad->node_of_task[t] = n;
    plan->nodes[n++] = (struct plan_node){.kind = NODE_TASK, .index = t};
  }
  add_moves(graph, TENSOR_OUTPUT, n, plan, pad, &moved);
}

static void close_ancestors(const rondo_graph *graph, struct plan *plan, const struct scratchpad *pad) {
  uint32_t words = plan->ancestors.row_words;
  memset(plan->ancestors.words, 0, bit_matrix_bytes(plan->node_count, plan->node_count));
  for (uint32_t n = 0; n < plan->node_count; n++) {
    if (plan->nodes[n].kind != NODE_TASK) continue;
    uint64_t *row = bit_row(&plan->ancestors, n);
    const uint64_t *before = bit_row(&graph->ancestors, plan->nodes[n].index);
    uint32_t task_words = bit_row_words(graph->task_count);
    for (uint32_t p = bits_next(before, task_words, 0); p < graph->task_count;
         p = bits_next(before, task_words, p + 1)) {
      bits_or(row, bit_row(&plan->ancestors, pad->node_of_task[p]), words);
      bit_put(row, pad->node_of_task[p]);
    }
    const struct task *task = &graph->tasks[plan->nodes[n].index];
    for (uint32_t i = 0; i < task->op_task.operand_count; i++) {
      if (task->tensors[i] == NO_TENSOR) continue;
      uint32_t root = graph->tensors[task->tensors[i]].root;
      if (is_moved(graph, root, TENSOR_INPUT)) bit_put(row, pad->node_of_tensor[root]);
    }
  }
  for (uint32_t n = 0; n < plan->node_count; n++) { /* outputs: after every task that touches them */
    if (plan->nodes[n].kind != NODE_TASK) continue;
    const struct task *task = &graph->tasks[plan->nodes[n].index];
    for (uint32_t i = 0; i < task->op_task.operand_count; i++) {
      if (task->tensors[i] == NO_TENSOR) continue;
      uint32_t root = graph->tensors[task->tensors[i]].root;
      if (!is_moved(graph, root, TENSOR_OUTPUT)) continue;
      uint64_t *row = bit_row(&plan->ancestors, pad->node_of_tensor[root]);
      bits_or(row, bit_row(&plan->ancestors, n), words);
      bit_put(row, n);
    }
  }
}

/* Keeps an edge only if no other ancestor already implies it. */
static void reduce_edges(struct plan *plan) {
  uint32_t words = plan->ancestors.row_words, edges = 0;
  for (uint32_t n = 0; n < plan->node_count; n++) {
    uint64_t *direct = bit_row(&plan->edges, n);
    const uint64_t *before = bit_row(&plan->ancestors, n);
    memcpy(direct, before, words * sizeof *direct);
    for (uint32_t p = bits_next(before, words, 0); p < plan->node_count; p = bits_next(before, words, p + 1)) {
      const uint64_t *further = bit_row(&plan->ancestors, p);
      for (uint32_t w = 0; w < words; w++) direct[w] &= ~further[w];
    }
    for (uint32_t w = 0; w < words; w++) edges += (uint32_t)__builtin_popcountll(direct[w]);
  }
  plan->summary.edge_count = edges;
}

/* ---- Is every value written before it is read? ------------------------------------------------------------------- */

static bool written_before(const rondo_graph *graph, uint32_t task_number, uint32_t root) {
  for (uint32_t p = 0; p < task_number; p++) {
    const struct task *task = &graph->tasks[p];
    for (uint32_t i = 0; i < task->op_task.operand_count; i++)
      if (task->tensors[i] != NO_TENSOR && graph->tensors[task->tensors[i]].root == root &&
          (task->op_task.operands[i].access & RONDO_WRITE))
        return true;
  }
  return false;
}

static rondo_status values_check(const rondo_graph *graph) {
  for (uint32_t t = 0; t < graph->task_count; t++) {
    const struct task *task = &graph->tasks[t];
    for (uint32_t i = 0; i < task->op_task.operand_count; i++) {
      if (task->tensors[i] == NO_TENSOR || !(task->op_task.operands[i].access & RONDO_READ)) continue;
      const struct tensor *root = graph_root(graph, task->tensors[i]);
      if (root->kind != TENSOR_TEMPORARY && root->kind != TENSOR_OUTPUT) continue;
      if (tensor_elements(root) && !written_before(graph, t, root->root))
        return status_set(RONDO_INVALID_ARGUMENT, "plan: task %u '%s' reads %s '%s', which no earlier task writes", t,
                          task->name, tensor_kind_name(root->kind), root->name);
    }
  }
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    const struct tensor *tensor = &graph->tensors[i];
    if (tensor->root == i && tensor->kind == TENSOR_OUTPUT && tensor_elements(tensor) &&
        !written_before(graph, graph->task_count, i))
      return status_set(RONDO_INVALID_ARGUMENT, "plan: output '%s' is written by no task", tensor->name);
  }
  return RONDO_OK;
}

/* ---- Lifetimes and places ---------------------------------------------------------------------------------------- */

static bool in_arena(const struct tensor *tensor, uint32_t index) {
  return tensor->root == index && tensor->kind != TENSOR_CONSTANT && tensor->kind != TENSOR_STATE &&
         !tensor_is_in_place(tensor);
}

static uint64_t task_scratch_bytes(const struct task *task) {
  const struct op *op = task->op_task.op;
  return op && op->scratch_bytes ? op->scratch_bytes(&task->op_task) : 0;
}

static uint32_t count_buffers(const rondo_graph *graph) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < graph->tensor_count; i++) count += in_arena(&graph->tensors[i], i);
  for (uint32_t t = 0; t < graph->task_count; t++) count += task_scratch_bytes(&graph->tasks[t]) > 0;
  return count;
}

static void collect_buffers(const rondo_graph *graph, struct plan *plan, struct scratchpad *pad) {
  uint32_t b = 0;
  memset(pad->accessors.words, 0, (uint64_t)plan->buffer_count * pad->accessors.row_words * sizeof(uint64_t));
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    const struct tensor *tensor = &graph->tensors[i];
    if (!in_arena(tensor, i)) continue;
    plan->buffers[b] = (struct plan_buffer){.index = i, .bytes = pool_round(tensor_bytes(tensor))};
    pad->buffer_of_tensor[i] = b;
    if (tensor->kind != TENSOR_TEMPORARY) bit_put(bit_row(&pad->accessors, b), pad->node_of_tensor[i]);
    b++;
  }
  for (uint32_t t = 0; t < graph->task_count; t++) {
    const struct task *task = &graph->tasks[t];
    for (uint32_t i = 0; i < task->op_task.operand_count; i++) {
      if (task->tensors[i] == NO_TENSOR) continue;
      uint32_t root = graph->tensors[task->tensors[i]].root;
      if (in_arena(&graph->tensors[root], root))
        bit_put(bit_row(&pad->accessors, pad->buffer_of_tensor[root]), pad->node_of_task[t]);
    }
    uint64_t scratch = task_scratch_bytes(task);
    if (!scratch) continue;
    plan->buffers[b] = (struct plan_buffer){.is_scratch = true, .index = t, .bytes = pool_round(scratch)};
    bit_put(bit_row(&pad->accessors, b), pad->node_of_task[t]);
    b++;
  }
  for (b = 0; b < plan->buffer_count; b++) {
    struct plan_buffer *buffer = &plan->buffers[b];
    const uint64_t *row = bit_row(&pad->accessors, b);
    buffer->first_node = buffer->last_node = UINT32_MAX;
    for (uint32_t n = bits_next(row, pad->accessors.row_words, 0); n < plan->node_count;
         n = bits_next(row, pad->accessors.row_words, n + 1)) {
      if (buffer->first_node == UINT32_MAX) buffer->first_node = n;
      buffer->last_node = n;
    }
    if (buffer->first_node == UINT32_MAX) buffer->bytes = 0; /* a temporary nobody touches */
  }
}

/* Does every access of buffer a come before every access of buffer b? */
static bool dies_before(const struct plan *plan, const struct scratchpad *pad, uint32_t a, uint32_t b) {
  const uint64_t *a_nodes = bit_row(&pad->accessors, a), *b_nodes = bit_row(&pad->accessors, b);
  uint32_t words = pad->accessors.row_words;
  for (uint32_t n = bits_next(b_nodes, words, 0); n < plan->node_count; n = bits_next(b_nodes, words, n + 1))
    if (!bits_within(a_nodes, bit_row(&plan->ancestors, n), words)) return false;
  return true;
}

static void find_conflicts(struct plan *plan, const struct scratchpad *pad) {
  memset(plan->conflicts.words, 0, bit_matrix_bytes(plan->buffer_count, plan->buffer_count));
  for (uint32_t a = 0; a < plan->buffer_count; a++)
    for (uint32_t b = 0; b < a; b++) {
      if (dies_before(plan, pad, a, b) || dies_before(plan, pad, b, a)) continue;
      bit_put(bit_row(&plan->conflicts, a), b);
      bit_put(bit_row(&plan->conflicts, b), a);
    }
}

/* At any node, the buffers that it touches and those touched both before and after it all live at once: two of them
 * that did not conflict would put an access after one of its own ancestors. */
static uint64_t bound_by_nodes(const struct plan *plan, const struct scratchpad *pad) {
  uint64_t bound = 0;
  uint32_t words = pad->accessors.row_words;
  for (uint32_t n = 0; n < plan->node_count; n++) {
    uint64_t live = 0;
    for (uint32_t b = 0; b < plan->buffer_count; b++) {
      const uint64_t *nodes = bit_row(&pad->accessors, b);
      bool before = bit_get(nodes, n), after = before;
      for (uint32_t m = bits_next(nodes, words, 0); m < plan->node_count && !(before && after);
           m = bits_next(nodes, words, m + 1)) {
        before = before || bit_get(bit_row(&plan->ancestors, n), m);
        after = after || bit_get(bit_row(&plan->ancestors, m), n);
      }
      if (before && after) live += plan->buffers[b].bytes;
    }
    if (live > bound) bound = live;
  }
  return bound;
}

/* Buffers that all conflict with each other can share nothing. Such sets are grown greedily, from each of the largest
 * buffers in turn, the larger ones first. Tasks that no order ties together show here and not above. */
static uint64_t bound_by_cliques(const struct plan *plan, const struct scratchpad *pad) {
  enum { SEEDS = 128 };
  uint32_t count = plan->buffer_count, words = plan->conflicts.row_words;
  place_order(count, pad->bytes, pad->by_size);
  uint64_t bound = 0;
  for (uint32_t seed = 0; seed < count && seed < SEEDS; seed++) {
    uint32_t first = pad->by_size[seed];
    uint64_t bytes = plan->buffers[first].bytes;
    memcpy(pad->candidates, bit_row(&plan->conflicts, first), words * sizeof(uint64_t));
    for (uint32_t i = 0; i < count; i++) {
      uint32_t b = pad->by_size[i];
      if (!bit_get(pad->candidates, b)) continue;
      bytes += plan->buffers[b].bytes;
      const uint64_t *others = bit_row(&plan->conflicts, b);
      for (uint32_t w = 0; w < words; w++) pad->candidates[w] &= others[w];
    }
    if (bytes > bound) bound = bytes;
  }
  return bound;
}

static void place_all(const rondo_graph *graph, struct plan *plan, struct scratchpad *pad) {
  rondo_plan *summary = &plan->summary;
  uint64_t pinned = PLAN_PINNED_HEADER_BYTES;
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    const struct tensor *tensor = &graph->tensors[i];
    plan->device_offset[i] = plan->pinned_offset[i] = 0;
    if (tensor->root != i) continue;
    uint64_t bytes = pool_round(tensor_bytes(tensor));
    if (tensor->kind == TENSOR_CONSTANT || tensor->kind == TENSOR_STATE) {
      plan->device_offset[i] = summary->constant_bytes;
      summary->constant_bytes += bytes;
    } else if (tensor->kind != TENSOR_TEMPORARY) {
      plan->pinned_offset[i] = pinned;
      pinned += bytes;
    }
  }
  summary->pinned_bytes_per_slot = pinned;
  for (uint32_t b = 0; b < plan->buffer_count; b++) {
    pad->bytes[b] = plan->buffers[b].bytes;
    pad->birth[b] = plan->buffers[b].first_node == UINT32_MAX ? 0 : plan->buffers[b].first_node;
    pad->death[b] = plan->buffers[b].first_node == UINT32_MAX ? 0 : plan->buffers[b].last_node;
    summary->unshared_bytes += pad->bytes[b];
  }
  uint64_t by_nodes = bound_by_nodes(plan, pad), by_cliques = bound_by_cliques(plan, pad);
  summary->lower_bound_bytes = by_nodes > by_cliques ? by_nodes : by_cliques;
  struct placement_problem problem = {.count = plan->buffer_count,
                                      .bytes = pad->bytes,
                                      .first = pad->birth,
                                      .last = pad->death,
                                      .conflicts = plan->conflicts,
                                      .lower_bound_bytes = summary->lower_bound_bytes};
  summary->temporary_bytes = place_buffers(&problem, pad->offsets, pad->placing);
  memset(plan->scratch_offset, 0, graph->task_count * sizeof(uint64_t));
  for (uint32_t b = 0; b < plan->buffer_count; b++) {
    struct plan_buffer *buffer = &plan->buffers[b];
    buffer->offset = summary->constant_bytes + pad->offsets[b];
    (buffer->is_scratch ? plan->scratch_offset : plan->device_offset)[buffer->index] = buffer->offset;
  }
  plan->counts_offset = summary->constant_bytes + summary->temporary_bytes;
  summary->device_bytes = plan->counts_offset + pool_round(PLAN_COUNTS_BYTES);
}

rondo_status plan_make(const rondo_graph *graph, struct plan *plan) {
  memset(plan, 0, sizeof *plan);
  rondo_status status = values_check(graph);
  if (status != RONDO_OK) return status;
  plan->source = graph->source;
  plan->node_count = add_moves(graph, TENSOR_INPUT, 0, NULL, NULL, NULL) + graph->task_count;
  plan->node_count = add_moves(graph, TENSOR_OUTPUT, plan->node_count, NULL, NULL, NULL);
  plan->buffer_count = count_buffers(graph);
  struct scratchpad pad;
  struct cutter cutter = {0};
  cut_all(&cutter, graph, plan->node_count, plan->buffer_count, plan, &pad);
  plan->memory_bytes = cutter.used + 64;
  status = memory_take(plan->source, plan->memory_bytes, "planning", &plan->memory);
  if (status != RONDO_OK) return status;
  cutter = (struct cutter){plan->memory, 0};
  cut_all(&cutter, graph, plan->node_count, plan->buffer_count, plan, &pad);

  order_nodes(graph, plan, &pad);
  close_ancestors(graph, plan, &pad);
  reduce_edges(plan);
  collect_buffers(graph, plan, &pad);
  find_conflicts(plan, &pad);
  place_all(graph, plan, &pad);
  plan->summary.task_count = graph->task_count;
  return RONDO_OK;
}

void plan_free(struct plan *plan) {
  memory_give(plan->source, plan->memory, plan->memory_bytes);
  plan->memory = NULL;
}
