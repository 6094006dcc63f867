/* report_dot.c - the graph for Graphviz, from top to bottom. A task is a box with the constants and states it touches;
 * inputs and outputs are boxes of their own; what a task hands to another is on the edge between them. Tasks whose
 * names begin alike ("layer3.") stand in one frame, and of a large graph's frames that are alike only the first is
 * drawn. All labels are HTML-like: in them nothing but XML's own characters has a meaning. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../cutter.h"
#include "../elements.h"
#include "../kernels.h"
#include "report.h"

enum {
  LARGE_NODES = 32,  /* a graph of more nodes: frames that are alike are drawn once */
  DETAIL_NODES = 72, /* where more are drawn: names alone */
  FLOW_NODES = 2048, /* with more nodes, the writers of what a task reads are not searched */
  ALIKE_LEAST = 3,
  LABEL_TENSORS = 3, /* on an edge */
  NAME_WIDTH = 2400, /* as report_name has it */
};

enum edge_kind { FLOW, ORDER, NEXT };

/* The nodes of the plan, and after them one for each tensor that is used in place. */
struct edge {
  uint32_t from, to;   /* as drawn */
  uint32_t tail, head; /* what they stand for */
  enum edge_kind kind; /* NEXT: from one group to another that is alike */
};

struct drawing {
  FILE *file;
  const rondo_graph *graph;
  const struct plan *plan;
  struct report_groups groups;
  bool is_large, is_detailed;
  void *memory;
  uint64_t memory_bytes;
  uint32_t *node_of_task;
  uint32_t *marks; /* by tensor */
  struct edge *edges;
  uint32_t edge_count;
};

/* ---- What nodes do ----------------------------------------------------------------------------------------------- */

struct access {
  const struct tensor *tensor;
  uint32_t root;
  uint32_t access; /* 0: an absent operand */
};

static uint32_t access_count(const struct drawing *d, const struct plan_node *node) {
  return node->kind == NODE_TASK ? d->graph->tasks[node->index].operand_count : node->tensor_count;
}

static struct access access_of(const struct drawing *d, const struct plan_node *node, uint32_t i) {
  uint32_t tensor, access;
  if (node->kind == NODE_TASK) {
    const struct task *task = &d->graph->tasks[node->index];
    tensor = task->tensors[i];
    if (tensor == NO_TENSOR) return (struct access){0};
    access = task_access(task, i);
  } else {
    tensor = node->tensors[i];
    access = node->kind == NODE_INPUT ? RONDO_WRITE : RONDO_READ;
  }
  return (struct access){&d->graph->tensors[tensor], d->graph->tensors[tensor].root, access};
}

static bool writes(const struct drawing *d, uint32_t n, const struct tensor *read) {
  const struct plan_node *node = &d->plan->nodes[n];
  for (uint32_t i = 0; i < access_count(d, node); i++) {
    struct access access = access_of(d, node, i);
    if (access.access & RONDO_WRITE && elements_overlap(access.tensor, read)) return true;
  }
  return false;
}

static uint32_t id_of_tensor(const struct drawing *d, uint32_t tensor) { return d->plan->node_count + tensor; }

/* ---- Which nodes are drawn --------------------------------------------------------------------------------------- */

static bool is_collapsed(const struct drawing *d, uint32_t group) {
  const struct report_groups *groups = &d->groups;
  return d->is_large && group != NO_GROUP && groups->groups[groups->groups[group].alike].alike_count >= ALIKE_LEAST;
}

static uint32_t group_of_node(const struct drawing *d, uint32_t n) {
  if (n >= d->plan->node_count || d->plan->nodes[n].kind != NODE_TASK) return NO_GROUP;
  return d->groups.group_of[d->plan->nodes[n].index];
}

/* The node that stands for this one. */
static uint32_t drawn_of(const struct drawing *d, uint32_t n) {
  uint32_t group = group_of_node(d, n);
  if (!is_collapsed(d, group)) return n;
  const struct report_group *first = &d->groups.groups[d->groups.groups[group].alike];
  uint32_t number = d->groups.number_of[d->plan->nodes[n].index];
  return d->node_of_task[d->groups.members[first->first_member + number]];
}

/* ---- Edges ------------------------------------------------------------------------------------------------------- */

static void add_edge(struct drawing *d, uint32_t tail, uint32_t head, enum edge_kind kind) {
  struct edge edge = {drawn_of(d, tail), drawn_of(d, head), tail, head, kind};
  if (group_of_node(d, tail) != group_of_node(d, head) && group_of_node(d, edge.from) != NO_GROUP &&
      group_of_node(d, edge.from) == group_of_node(d, edge.to))
    edge.kind = NEXT;
  d->edges[d->edge_count++] = edge;
}

static bool hands_over(const struct drawing *d, uint32_t tail, uint32_t head) {
  const struct plan_node *node = &d->plan->nodes[head];
  for (uint32_t i = 0; i < access_count(d, node); i++) {
    struct access access = access_of(d, node, i);
    if (access.access & RONDO_READ && writes(d, tail, access.tensor)) return true;
  }
  return false;
}

static bool precedes(const struct drawing *d, uint32_t tail, uint32_t head) {
  for (uint32_t i = d->plan->begin[head]; i < d->plan->begin[head + 1]; i++)
    if (d->plan->predecessors[i] == tail) return true;
  return false;
}

/* The writer of a tensor that the node reads, if the plan has no edge for it since others imply it. */
static void add_flow(struct drawing *d, uint32_t head) {
  const struct plan_node *node = &d->plan->nodes[head];
  for (uint32_t i = 0; i < access_count(d, node); i++) {
    struct access access = access_of(d, node, i);
    if (!(access.access & RONDO_READ) || access.tensor->kind == TENSOR_CONSTANT) continue;
    for (uint32_t tail = head; tail-- > 0;) {
      if (!writes(d, tail, access.tensor)) continue;
      if (!precedes(d, tail, head)) add_edge(d, tail, head, FLOW);
      break;
    }
  }
}

static void add_in_place(struct drawing *d, uint32_t n) {
  const struct plan_node *node = &d->plan->nodes[n];
  if (node->kind != NODE_TASK) return;
  for (uint32_t i = 0; i < access_count(d, node); i++) {
    struct access access = access_of(d, node, i);
    if (!access.access || d->plan->allocations[access.root] != ALLOCATION_SLOT) continue;
    if (access.tensor->kind == TENSOR_INPUT)
      add_edge(d, id_of_tensor(d, access.root), n, FLOW);
    else
      add_edge(d, n, id_of_tensor(d, access.root), FLOW);
  }
}

static int compare_edges(const void *left, const void *right) {
  const struct edge *a = left, *b = right;
  const uint32_t pairs[][2] = {{a->from, b->from}, {a->to, b->to},     {a->kind == NEXT, b->kind == NEXT},
                               {a->kind, b->kind}, {a->head, b->head}, {a->tail, b->tail}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    if (pairs[i][0] != pairs[i][1]) return pairs[i][0] < pairs[i][1] ? -1 : 1;
  return 0;
}

/* Each once, of those that are drawn alike the first. */
static void collect_edges(struct drawing *d) {
  for (uint32_t n = 0; n < d->plan->node_count; n++) {
    for (uint32_t i = d->plan->begin[n]; i < d->plan->begin[n + 1]; i++)
      add_edge(d, d->plan->predecessors[i], n, hands_over(d, d->plan->predecessors[i], n) ? FLOW : ORDER);
    if (d->plan->node_count <= FLOW_NODES) add_flow(d, n);
    add_in_place(d, n);
  }
  if (!d->edge_count) return;
  qsort(d->edges, d->edge_count, sizeof *d->edges, compare_edges);
  uint32_t kept = 1;
  for (uint32_t i = 1; i < d->edge_count; i++) {
    const struct edge *before = &d->edges[kept - 1], *edge = &d->edges[i];
    if (edge->from != before->from || edge->to != before->to || (edge->kind == NEXT) != (before->kind == NEXT))
      d->edges[kept++] = *edge;
  }
  d->edge_count = kept;
}

/* ---- Labels ------------------------------------------------------------------------------------------------------ */

/* The part of a name after that of its group, which the frame already shows. */
static const char *short_name(const struct drawing *d, uint32_t group, const char *name) {
  if (group == NO_GROUP) return name;
  const struct report_group *frame = &d->groups.groups[group];
  size_t length = report_group_length(name);
  bool is_inside = length == frame->name_length && !memcmp(name, frame->name, length);
  return is_inside ? name + length + 1 : name;
}

static void write_row(FILE *file, const char *begin, const char *name, const char *end) {
  fprintf(file, "<tr><td align=\"left\">%s", begin);
  report_name(file, *name ? name : " ", NAME_WIDTH);
  fprintf(file, "%s</td></tr>", end);
}

static const char *const kind_colours[] = {[TENSOR_INPUT] = "#2f5a87",
                                           [TENSOR_OUTPUT] = "#2e7d32",
                                           [TENSOR_CONSTANT] = "#5e4a9e",
                                           [TENSOR_STATE] = "#b03060",
                                           [TENSOR_TEMPORARY] = "#555555"};

/* "query [8, 64] f16, 1 KiB". */
static void write_tensor_row(const struct drawing *d, uint32_t group, const struct tensor *tensor, const char *remark) {
  char begin[64], end[192], shape[128], bytes[BYTES_TEXT];
  tensor_describe(tensor, shape, sizeof shape);
  snprintf(begin, sizeof begin, "<font color=\"%s\" point-size=\"9\">", kind_colours[tensor->kind]);
  snprintf(end, sizeof end, " %s, %s%s</font>", shape, report_bytes(tensor_bytes(tensor), bytes), remark);
  write_row(d->file, begin, short_name(d, group, d->graph->tensors[tensor->root].name), end);
}

static void write_task_rows(const struct drawing *d, uint32_t group, const struct task *task) {
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_task op_task = graph_op_task(d->graph, task, operands);
  struct traffic traffic = traffic_of(&op_task);
  char end[128], in[BYTES_TEXT], out[BYTES_TEXT];
  write_row(d->file, "<b>", short_name(d, group, task->name), "</b>");
  if (!d->is_detailed) return;
  snprintf(end, sizeof end, ": reads %s, writes %s</font>", report_bytes(traffic.read_bytes, in),
           report_bytes(traffic.written_bytes, out));
  write_row(d->file, "<font color=\"#555555\" point-size=\"9\">", operation_name(task->op, task->user_work), end);
  for (uint32_t i = 0; i < task->operand_count; i++) {
    if (task->tensors[i] == NO_TENSOR) continue;
    const struct tensor *tensor = &d->graph->tensors[task->tensors[i]];
    bool is_borrowed = d->graph->tensors[tensor->root].lender_serial != 0;
    if (tensor->kind == TENSOR_CONSTANT) write_tensor_row(d, group, tensor, is_borrowed ? ", borrowed" : ", constant");
    if (tensor->kind == TENSOR_STATE)
      write_tensor_row(d, group, tensor,
                       task_access(task, i) == RONDO_READ    ? ", state, read"
                       : task_access(task, i) == RONDO_WRITE ? ", state, written"
                                                             : ", state, updated");
  }
}

static const char *task_colour(const struct task *task) {
  static const char *const colours[] = {"#dbe9f6", "#fde5cf", "#dff0d8", "#f6dbe4", "#e6dff2",
                                        "#fdf3c8", "#d8f0ee", "#eadfd3", "#e3ecc9", "#f3dff0"};
  if (!task->op) return task->user_work->capture ? "#d9d9d9" : "#eeeeee";
  uint32_t number = 0;
  while (op_table[number] && op_table[number] != task->op) number++;
  return colours[number % (sizeof colours / sizeof *colours)];
}

static void write_tooltip(FILE *file, const char *name) {
  fputs(", tooltip=<", file);
  report_name(file, *name ? name : " ", REPORT_NAME_WHOLE);
  fputs(">];\n", file);
}

static void write_node(const struct drawing *d, uint32_t n) {
  const struct plan_node *node = &d->plan->nodes[n];
  if (node->kind == NODE_JOIN) {
    fprintf(d->file, "  n%u [shape=point];\n", n);
    return;
  }
  char name[NAME_BYTES];
  const char *colour = node->kind == NODE_INPUT ? "#bcd4ee" : "#c2e3c0", *tooltip = name;
  fprintf(d->file, "  n%u [label=<<table border=\"0\" cellspacing=\"0\" cellpadding=\"1\">", n);
  if (node->kind == NODE_TASK) {
    write_task_rows(d, group_of_node(d, n), &d->graph->tasks[node->index]);
    colour = task_colour(&d->graph->tasks[node->index]);
    tooltip = d->graph->tasks[node->index].name;
  } else {
    plan_node_name(d->graph, node, name);
    for (uint32_t i = 0; i < node->tensor_count; i++)
      write_tensor_row(d, NO_GROUP, &d->graph->tensors[node->tensors[i]],
                       node->kind == NODE_INPUT ? ", input" : ", output");
  }
  fprintf(d->file, "</table>>, fillcolor=\"%s\"", colour);
  if (node->kind != NODE_TASK) fputs(", style=\"filled,rounded\"", d->file);
  write_tooltip(d->file, tooltip);
}

static void write_in_place_node(const struct drawing *d, uint32_t tensor_index) {
  const struct tensor *tensor = &d->graph->tensors[tensor_index];
  bool is_input = tensor->kind == TENSOR_INPUT;
  fprintf(d->file, "  n%u [label=<<table border=\"0\" cellspacing=\"0\" cellpadding=\"1\">",
          id_of_tensor(d, tensor_index));
  write_tensor_row(d, NO_GROUP, tensor, is_input ? ", input in place" : ", output in place");
  fprintf(d->file, "</table>>, fillcolor=\"%s\", style=\"filled,rounded\"", is_input ? "#bcd4ee" : "#c2e3c0");
  write_tooltip(d->file, tensor->name);
}

/* Does an earlier operand read the same? */
static bool is_read_before(const struct drawing *d, const struct plan_node *node, uint32_t i) {
  const struct tensor *tensor = access_of(d, node, i).tensor;
  for (uint32_t earlier = 0; earlier < i; earlier++) {
    struct access access = access_of(d, node, earlier);
    if (access.access & RONDO_READ && access.tensor == tensor) return true;
  }
  return false;
}

/* The tensors that go from one node to the other. */
static void write_edge_label(const struct drawing *d, const struct edge *edge) {
  uint32_t written = 0, more = 0;
  if (edge->tail >= d->plan->node_count || edge->head >= d->plan->node_count) return;
  const struct plan_node *node = &d->plan->nodes[edge->head];
  for (uint32_t i = 0; i < access_count(d, node); i++) {
    struct access access = access_of(d, node, i);
    if (!(access.access & RONDO_READ) || !writes(d, edge->tail, access.tensor) || is_read_before(d, node, i)) continue;
    if (written == LABEL_TENSORS) {
      more++;
      continue;
    }
    char bytes[BYTES_TEXT];
    fputs(written++ ? "<br/>&#160;" : ", label=<&#160;", d->file);
    uint32_t group = group_of_node(d, edge->kind == NEXT ? edge->tail : edge->head);
    report_name(d->file, short_name(d, group, d->graph->tensors[access.root].name), NAME_WIDTH);
    fprintf(d->file, " %s", report_bytes(tensor_bytes(access.tensor), bytes));
  }
  if (more) fprintf(d->file, "<br/>and %u more", more);
  if (written) fputc('>', d->file);
}

static void write_edge(const struct drawing *d, const struct edge *edge) {
  static const char *const styles[] = {
      [FLOW] = "color=\"#444444\"",
      [ORDER] = "color=\"#999999\", style=dashed",
      [NEXT] = "color=\"#c0392b\", fontcolor=\"#c0392b\", constraint=false, tailport=e, headport=e"};
  fprintf(d->file, "  n%u -> n%u [%s", edge->from, edge->to, styles[edge->kind]);
  if (d->is_detailed) write_edge_label(d, edge);
  fputs("];\n", d->file);
}

/* ---- Frames ------------------------------------------------------------------------------------------------------ */

/* Constants and states that tasks of the group touch, each once. */
static uint64_t resident_bytes(const struct drawing *d, uint32_t group) {
  const struct report_group *frame = &d->groups.groups[group];
  uint64_t bytes = 0;
  for (uint32_t m = 0; m < frame->member_count; m++) {
    const struct task *task = &d->graph->tasks[d->groups.members[frame->first_member + m]];
    for (uint32_t i = 0; i < task->operand_count; i++) {
      if (task->tensors[i] == NO_TENSOR) continue;
      uint32_t root = d->graph->tensors[task->tensors[i]].root;
      if (!tensor_is_resident(&d->graph->tensors[root]) || d->marks[root] == group + 1) continue;
      d->marks[root] = group + 1;
      bytes += tensor_bytes(&d->graph->tensors[root]);
    }
  }
  return bytes;
}

static void write_group_name(FILE *file, const struct report_group *group) {
  char name[NAME_BYTES];
  memcpy(name, group->name, group->name_length);
  name[group->name_length] = 0;
  report_name(file, name, NAME_WIDTH);
}

static void write_frame_label(const struct drawing *d, uint32_t group) {
  const struct report_group *frame = &d->groups.groups[group];
  char bytes[BYTES_TEXT];
  uint32_t tasks = frame->member_count;
  fputs("    label=<<b>", d->file);
  write_group_name(d->file, frame);
  if (is_collapsed(d, group)) {
    fputs(" \xe2\x80\xa6 ", d->file);
    write_group_name(d->file, &d->groups.groups[frame->last_alike]);
    fprintf(d->file, ": %u alike, the first is drawn", frame->alike_count);
    tasks *= frame->alike_count;
  }
  fprintf(d->file, "</b><br align=\"left\"/>%u task%s%s", tasks, tasks == 1 ? "" : "s",
          is_collapsed(d, group) ? " in all" : "");
  uint64_t resident = resident_bytes(d, group);
  if (resident)
    fprintf(d->file, ", constants and states of %s%s", report_bytes(resident, bytes),
            is_collapsed(d, group) ? " each" : "");
  fputs("<br align=\"left\"/>>;\n", d->file);
}

static void write_frame(const struct drawing *d, uint32_t group) {
  const struct report_group *frame = &d->groups.groups[group];
  if (is_collapsed(d, group) && frame->alike != group) return;
  bool is_frame = frame->member_count > 1 || is_collapsed(d, group);
  if (is_frame)
    fprintf(d->file,
            "  subgraph cluster_%u {\n    labeljust=l; fontsize=11; style=\"rounded,filled\"; color=\"#bbbbbb\"; "
            "fillcolor=\"#fafafa\";\n",
            group);
  if (is_frame) write_frame_label(d, group);
  for (uint32_t m = 0; m < frame->member_count; m++)
    write_node(d, d->node_of_task[d->groups.members[frame->first_member + m]]);
  if (is_frame) fputs("  }\n", d->file);
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

static void write_head(const struct drawing *d) {
  const rondo_plan *plan = &d->plan->summary;
  char arena[BYTES_TEXT], resident[BYTES_TEXT];
  fprintf(
      d->file,
      "digraph rondo {\n"
      "  rankdir=TB; labelloc=t; fontname=\"Helvetica\"; nodesep=0.25; ranksep=%s;\n"
      "  node [fontname=\"Helvetica\", fontsize=11, shape=box, style=filled, color=\"#777777\", margin=\"0.06,0.03\", "
      "height=0.2, width=0.3];\n"
      "  edge [fontname=\"Helvetica\", fontsize=9, arrowsize=0.6, fontcolor=\"#555555\"];\n"
      "  label=<<b>%u task%s</b>, arena %s, constants and states %s<br/>",
      d->is_detailed ? "0.35" : "0.25", plan->task_count, PLURAL(plan->task_count),
      report_bytes(plan->temporary_bytes, arena), report_bytes(plan->constant_bytes + plan->borrowed_bytes, resident));
  static const enum tensor_kind shown[] = {TENSOR_INPUT, TENSOR_OUTPUT, TENSOR_CONSTANT, TENSOR_STATE};
  for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
    fprintf(d->file, "<font color=\"%s\">%s</font>, ", kind_colours[shown[i]], tensor_kind_name(shown[i]));
  fputs("temporaries on the edges; dashed: order alone", d->file);
  bool has_next = false;
  for (uint32_t e = 0; e < d->edge_count; e++) has_next = has_next || d->edges[e].kind == NEXT;
  fprintf(d->file, "%s>;\n", has_next ? "; <font color=\"#c0392b\">red: to the next one alike</font>" : "");
}

static bool is_drawn(const struct drawing *d, uint32_t n) { return drawn_of(d, n) == n; }

static void write_all(const struct drawing *d) {
  write_head(d);
  for (uint32_t n = 0; n < d->plan->node_count; n++)
    if (group_of_node(d, n) == NO_GROUP) write_node(d, n);
  for (uint32_t g = 0; g < d->groups.count; g++) write_frame(d, g);
  for (uint32_t t = 0; t < d->graph->tensor_count; t++)
    if (d->graph->tensors[t].root == t && d->plan->allocations[t] == ALLOCATION_SLOT) write_in_place_node(d, t);
  for (uint32_t e = 0; e < d->edge_count; e++) write_edge(d, &d->edges[e]);
  fputs("}\n", d->file);
}

static void cut_all(struct cutter *cutter, uint64_t edge_most, struct drawing *d) {
  d->node_of_task = cut(cutter, d->graph->task_count * sizeof *d->node_of_task);
  d->marks = cut(cutter, d->graph->tensor_count * sizeof *d->marks);
  d->edges = cut(cutter, edge_most * sizeof *d->edges);
}

static rondo_status prepare(struct drawing *d) {
  uint64_t edge_most = d->plan->summary.edge_count;
  for (uint32_t n = 0; n < d->plan->node_count; n++) edge_most += UINT64_C(2) * access_count(d, &d->plan->nodes[n]);
  struct cutter cutter = {0};
  cut_all(&cutter, edge_most, d);
  d->memory_bytes = cutter.used;
  rondo_status status = report_groups_make(d->graph, &d->groups);
  if (status == RONDO_OK) status = memory_take_for_now(d->graph->source, d->memory_bytes, "a report", &d->memory);
  if (status != RONDO_OK) return status;
  cut_all(&(struct cutter){d->memory, 0}, edge_most, d);
  for (uint32_t n = 0; n < d->plan->node_count; n++)
    if (d->plan->nodes[n].kind == NODE_TASK) d->node_of_task[d->plan->nodes[n].index] = n;
  if (d->graph->tensor_count) memset(d->marks, 0, d->graph->tensor_count * sizeof *d->marks);
  d->is_large = d->plan->node_count > LARGE_NODES;
  uint32_t drawn = 0;
  for (uint32_t n = 0; n < d->plan->node_count; n++) drawn += is_drawn(d, n);
  d->is_detailed = drawn <= DETAIL_NODES;
  collect_edges(d);
  return RONDO_OK;
}

rondo_status rondo_write_dot(rondo_graph *graph, const char *path) {
  struct drawing d = {.graph = graph};
  struct report report;
  rondo_status status = report_open_plan(&report, graph, path, "rondo_write_dot", &d.plan);
  if (status != RONDO_OK) return status;
  d.file = report.file;
  status = prepare(&d);
  if (status == RONDO_OK) write_all(&d);
  memory_give(graph->source, d.memory, d.memory_bytes);
  report_groups_drop(graph, &d.groups);
  rondo_status closed = report_close(&report);
  return status != RONDO_OK ? status_set(status, "rondo_write_dot: %s", rondo_error_text()) : closed;
}
