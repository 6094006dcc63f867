/* planner.c - see planner.h. The steps: dependencies (dependencies.c), an order (order.c), the nodes that move inputs
 * and outputs (plan_moves.c), the removal of edges that others imply (reach.c), then lifetimes and offsets
 * (plan_layout.c). */
#include "planner.h"

#include <string.h>

#include "dependencies.h"
#include "lists.h"
#include "order.h"
#include "plan_layout.h"
#include "plan_moves.h"

/* ---- Memory: measured first and cut afterwards ------------------------------------------------------------------- */

/* Working memory of the planning itself. */
struct scratchpad {
  const struct dependencies *dependencies;
  uint32_t *unit_order;   /* tasks and joins */
  uint32_t *node_of_unit; /* by task, then by join */
  struct order_work order;
  struct moves moves;
  struct reach_graph edges;
  struct layout layout;
};

/* How much of everything there is. Moves of inputs come first, then the units, then moves of outputs. */
struct counts {
  uint32_t tensors, tasks, units, nodes, moved, buffers, first_unit, first_output;
  uint64_t unit_edges, edges, accesses; /* edges: at most */
};

static void cut_pad(struct cutter *cutter, const struct counts *counts, struct scratchpad *pad) {
  uint64_t word = sizeof(uint32_t);
  pad->unit_order = cut(cutter, counts->units * word);
  pad->node_of_unit = cut(cutter, counts->units * word);
  order_cut(&pad->order, cutter, counts->units, counts->unit_edges);
  moves_cut(&pad->moves, cutter, counts->tensors);
  pad->edges = (struct reach_graph){counts->nodes, cut(cutter, (counts->nodes + UINT64_C(1)) * word),
                                    cut(cutter, counts->edges * word)};
  layout_cut(&pad->layout, cutter, counts->nodes, counts->tensors, counts->buffers, counts->accesses);
}

static struct plan *cut_plan(struct cutter *cutter, const struct counts *counts, uint32_t edge_count) {
  struct plan *plan = cut(cutter, sizeof *plan), parts = {0};
  parts.nodes = cut(cutter, counts->nodes * sizeof *parts.nodes);
  parts.moved = cut(cutter, counts->moved * sizeof(uint32_t));
  parts.allocations = cut(cutter, counts->tensors);
  parts.begin = cut(cutter, (counts->nodes + UINT64_C(1)) * sizeof(uint32_t));
  parts.predecessors = cut(cutter, edge_count * sizeof(uint32_t));
  parts.is_awaited = cut(cutter, counts->nodes * sizeof(bool));
  parts.device_offset = cut(cutter, counts->tensors * sizeof(uint64_t));
  parts.pinned_offset = cut(cutter, counts->tensors * sizeof(uint64_t));
  parts.scratch_offset = cut(cutter, counts->tasks * sizeof(uint64_t));
  parts.buffers = cut(cutter, counts->buffers * sizeof *parts.buffers);
  parts.node_count = counts->nodes;
  if (cutter->base) *plan = parts;
  return plan;
}

/* ---- Nodes and edges --------------------------------------------------------------------------------------------- */

/* The node that moves what an operand of a task lies in. */
static uint32_t move_of(const rondo_graph *graph, const struct scratchpad *pad, uint32_t tensor) {
  return tensor == NO_TENSOR ? NO_NODE : pad->moves.node_of_tensor[graph->tensors[tensor].root];
}

/* What a unit waits for: what was inferred, what rondo_after said, and the moves of its inputs. */
static void add_unit_edges(const rondo_graph *graph, const struct counts *counts, const struct scratchpad *pad,
                           uint32_t unit, uint32_t *used) {
  const struct dependencies *dependencies = pad->dependencies;
  uint32_t *edges = pad->edges.predecessors;
  for (uint32_t i = dependencies->begin[unit]; i < dependencies->begin[unit + 1]; i++)
    edges[(*used)++] = pad->node_of_unit[dependencies->predecessors[i]];
  if (unit >= graph->task_count) return;
  const struct task *task = &graph->tasks[unit];
  for (const struct prerequisite *p = task->prerequisites; p; p = p->next)
    edges[(*used)++] = pad->node_of_unit[p->task];
  for (uint32_t i = 0; i < task->operand_count; i++) {
    uint32_t move = move_of(graph, pad, task->tensors[i]);
    if (move < counts->first_unit) edges[(*used)++] = move;
  }
}

/* An output's node waits for every task that touches it. */
static void put_output_edges(const rondo_graph *graph, const struct counts *counts, const struct scratchpad *pad,
                             uint32_t *predecessors) {
  for (uint32_t t = 0; t < graph->task_count; t++)
    for (uint32_t i = 0; i < graph->tasks[t].operand_count; i++) {
      uint32_t move = move_of(graph, pad, graph->tasks[t].tensors[i]);
      if (move != NO_NODE && move >= counts->first_output)
        lists_put(pad->edges.begin, predecessors, move, pad->node_of_unit[t]);
    }
}

static void add_edges(const rondo_graph *graph, const struct counts *counts, struct scratchpad *pad) {
  uint32_t used = 0, *begin = pad->edges.begin, outputs = counts->nodes - counts->first_output;
  memset(begin, 0, (counts->nodes + UINT64_C(1)) * sizeof *begin);
  for (uint32_t i = 0; i < counts->units; i++) {
    begin[counts->first_unit + i] = used;
    add_unit_edges(graph, counts, pad, pad->unit_order[i], &used);
  }
  put_output_edges(graph, counts, pad, NULL);
  lists_end(begin + counts->first_output, outputs, used);
  put_output_edges(graph, counts, pad, pad->edges.predecessors);
}

static void fill_nodes(const rondo_graph *graph, const struct counts *counts, const struct scratchpad *pad,
                       struct plan *plan) {
  memset(plan->nodes, 0, counts->nodes * sizeof *plan->nodes);
  for (uint32_t i = 0; i < counts->moved; i++) {
    uint32_t tensor = plan->moved[i] = pad->moves.tensors[i];
    struct plan_node *node = &plan->nodes[pad->moves.node_of_tensor[tensor]];
    node->kind = graph->tensors[tensor].kind == TENSOR_INPUT ? NODE_INPUT : NODE_OUTPUT;
    if (node->tensor_count++ == 0) node->tensors = &plan->moved[i];
  }
  for (uint32_t i = 0; i < counts->units; i++) {
    uint32_t unit = pad->unit_order[i];
    plan->nodes[counts->first_unit + i] = unit < graph->task_count
                                              ? (struct plan_node){.kind = NODE_TASK, .index = unit}
                                              : (struct plan_node){.kind = NODE_JOIN};
  }
  memcpy(plan->allocations, pad->moves.allocations, counts->tensors);
  memcpy(plan->begin, pad->edges.begin, (counts->nodes + UINT64_C(1)) * sizeof(uint32_t));
  memset(plan->is_awaited, 0, counts->nodes * sizeof(bool));
  for (uint32_t i = 0; i < plan->begin[counts->nodes]; i++) {
    plan->predecessors[i] = pad->edges.predecessors[i];
    plan->is_awaited[plan->predecessors[i]] = true;
  }
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

static struct counts count_all(const rondo_graph *graph, const struct dependencies *dependencies, struct moves *moves) {
  struct counts counts = {.tensors = graph->tensor_count,
                          .tasks = graph->task_count,
                          .units = dependencies->task_count + dependencies->join_count};
  moves_count(moves, graph);
  counts.buffers = moves->in_arena + layout_scratch_count(graph);
  counts.moved = move_tensors(&moves->inputs) + move_tensors(&moves->outputs);
  counts.first_unit = move_nodes(&moves->inputs);
  counts.first_output = counts.first_unit + counts.units;
  counts.nodes = counts.first_output + move_nodes(&moves->outputs);
  counts.unit_edges = dependencies->begin[counts.units];
  for (uint32_t t = 0; t < graph->task_count; t++) {
    for (const struct prerequisite *p = graph->tasks[t].prerequisites; p; p = p->next) counts.unit_edges++;
    counts.accesses += graph->tasks[t].operand_count;
  }
  counts.edges = counts.unit_edges + counts.accesses;
  counts.accesses += counts.tensors + counts.tasks; /* moves, and scratch */
  return counts;
}

static rondo_status plan_make(rondo_graph *graph, const struct counts *counts, struct scratchpad *pad) {
  order_find(&pad->order, graph, pad->dependencies, pad->unit_order);
  for (uint32_t i = 0; i < counts->units; i++) pad->node_of_unit[pad->unit_order[i]] = counts->first_unit + i;
  moves_fill(&pad->moves, graph, counts->first_output);
  add_edges(graph, counts, pad);
  reach_reduce(&pad->edges, pad->layout.lifetimes.rows);

  uint32_t edge_count = pad->edges.begin[counts->nodes];
  struct cutter cutter = {0};
  cut_plan(&cutter, counts, edge_count);
  void *memory;
  rondo_status status = memory_take(graph->source, cutter.used, "planning", &memory);
  if (status != RONDO_OK) return status;
  cutter = (struct cutter){memory, 0};
  struct plan *plan = cut_plan(&cutter, counts, edge_count);
  fill_nodes(graph, counts, pad, plan);
  plan->summary.task_count = graph->task_count;
  plan->summary.edge_count = edge_count;
  layout_find(&pad->layout, graph, &pad->edges, pad->node_of_unit, plan);
  graph->made.plan = plan;
  graph->made.plan_bytes = cutter.used;
  return RONDO_OK;
}

/* With working memory that is taken for now. */
static rondo_status plan_with(rondo_graph *graph, const struct dependencies *dependencies) {
  struct scratchpad pad = {.dependencies = dependencies};
  struct counts counts = count_all(graph, dependencies, &pad.moves);
  struct cutter cutter = {0};
  cut_pad(&cutter, &counts, &pad);
  uint64_t pad_bytes = cutter.used;
  void *memory;
  rondo_status status = memory_take_for_now(graph->source, pad_bytes, "planning", &memory);
  if (status != RONDO_OK) return status;
  cutter = (struct cutter){memory, 0};
  cut_pad(&cutter, &counts, &pad);
  status = plan_make(graph, &counts, &pad);
  memory_give(graph->source, memory, pad_bytes);
  if (status != RONDO_OK) return status;
  struct plan *made = graph->made.plan;
  made->kept_bytes = pool_take_bytes(graph->made.dependencies_bytes) + pool_take_bytes(graph->made.plan_bytes);
  made->planning_bytes = made->kept_bytes + pool_take_bytes(pad_bytes);
  if (dependencies_most_bytes(graph) > made->planning_bytes) made->planning_bytes = dependencies_most_bytes(graph);
  return RONDO_OK;
}

rondo_status plan_of(rondo_graph *graph, const struct plan **plan) {
  if (!graph->made.plan) {
    const struct dependencies *dependencies;
    rondo_status status = dependencies_of(graph, true, &dependencies);
    if (status == RONDO_OK) status = plan_with(graph, dependencies);
    graph_drop_dependencies(graph); /* the plan needs them no more, and a failed call keeps nothing */
    if (status == RONDO_OUT_OF_MEMORY) return status_set(status, "plan: %s", rondo_error_text());
    if (status != RONDO_OK) return status;
  }
  *plan = graph->made.plan;
  return RONDO_OK;
}
