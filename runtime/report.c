/* report.c - pictures of a graph and its plan: DOT, SVG, and which kernels would run. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "plan.h"

static rondo_status report_open(rondo_graph *graph, const char *path, const char *function, const struct plan **plan,
                                FILE **file) {
  rondo_status status = graph_check(graph, function);
  if (status != RONDO_OK) return status;
  if (!path) return status_set(RONDO_INVALID_ARGUMENT, "%s: the path is NULL", function);
  status = plan_of(graph, plan);
  if (status != RONDO_OK) return status_set(status, "%s: %s", function, rondo_error_text());
  *file = fopen(path, "w");
  if (*file) return RONDO_OK;
  return status_set(RONDO_IO_ERROR, "%s: '%s' cannot be written: %s", function, path, strerror(errno));
}

static rondo_status report_close(const char *path, const char *function, FILE *file) {
  bool failed = ferror(file) != 0;
  if (fclose(file) || failed)
    return status_set(RONDO_IO_ERROR, "%s: '%s' was not written whole: %s", function, path, strerror(errno));
  return RONDO_OK;
}

/* Writes a name with what DOT and XML would read as their own taken out. */
static void write_name(FILE *file, const char *name) {
  for (; *name; name++) fputc(strchr("\"\\<>&'{}|", *name) || (unsigned char)*name < 32 ? '_' : *name, file);
}

static void write_task_label(FILE *file, const struct task *task) {
  write_name(file, task->name);
  fprintf(file, "\\n%s", task->op ? task->op->name : task->user_work->capture ? "capture" : "kernel");
}

/* The tensors that one node moves, one below the other. */
static void write_move_label(FILE *file, const rondo_graph *graph, const struct plan_node *node) {
  for (uint32_t i = 0; i < node->tensor_count; i++) {
    const struct tensor *tensor = &graph->tensors[node->tensors[i]];
    char text[128];
    tensor_describe(tensor, text, sizeof text);
    if (i) fputs("\\n", file);
    write_name(file, tensor->name);
    fprintf(file, "\\n%s %s", node->kind == NODE_INPUT ? "in" : "out", text);
  }
}

rondo_status rondo_write_dot(rondo_graph *graph, const char *path) {
  const struct plan *plan;
  FILE *file;
  rondo_status status = report_open(graph, path, "rondo_write_dot", &plan, &file);
  if (status != RONDO_OK) return status;
  fputs("digraph rondo {\n  rankdir=LR;\n  node [fontname=\"sans-serif\", shape=box];\n", file);
  for (uint32_t n = 0; n < plan->node_count; n++) {
    const struct plan_node *node = &plan->nodes[n];
    fprintf(file, "  n%u [label=\"", n);
    if (node->kind == NODE_TASK)
      write_task_label(file, &graph->tasks[node->index]);
    else
      write_move_label(file, graph, node);
    fprintf(file, "\"%s];\n",
            node->kind == NODE_TASK   ? ""
            : node->kind == NODE_JOIN ? ", shape=point"
                                      : ", shape=ellipse");
  }
  for (uint32_t n = 0; n < plan->node_count; n++)
    for (uint32_t i = plan->begin[n]; i < plan->begin[n + 1]; i++)
      fprintf(file, "  n%u -> n%u;\n", plan->predecessors[i], n);
  fputs("}\n", file);
  return report_close(path, "rondo_write_dot", file);
}

rondo_status rondo_write_plan_svg(rondo_graph *graph, const char *path) {
  static const char *const colours[] = {"#4e79a7", "#59a14f", "#f28e2b", "#b07aa1"}; /* in, out, temporary, scratch */
  const struct plan *plan;
  FILE *file;
  rondo_status status = report_open(graph, path, "rondo_write_plan_svg", &plan, &file);
  if (status != RONDO_OK) return status;
  const double width = 1000, height = 600, left = 20, top = 50;
  double per_node = width / (plan->node_count ? plan->node_count : 1);
  double arena = plan->summary.temporary_bytes ? (double)plan->summary.temporary_bytes : 1;
  fprintf(file,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" "
          "font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
          "<text x=\"%.0f\" y=\"20\" font-size=\"14\">arena %" PRIu64 " bytes; lower bound %" PRIu64
          "; without sharing %" PRIu64 "; constants and states %" PRIu64 "</text>\n"
          "<text x=\"%.0f\" y=\"38\">time (tasks in order) to the right, bytes down; blue input, green output, orange "
          "temporary, violet scratch</text>\n"
          "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" fill=\"none\" stroke=\"#999\"/>\n",
          width + 2 * left, height + top + 20, left, plan->summary.temporary_bytes, plan->summary.lower_bound_bytes,
          plan->summary.unshared_bytes, plan->summary.constant_bytes, left, left, top, width, height);
  for (uint32_t b = 0; b < plan->buffer_count; b++) {
    const struct plan_buffer *buffer = &plan->buffers[b];
    if (!buffer->bytes) continue;
    enum tensor_kind kind = buffer->is_scratch ? TENSOR_TEMPORARY : graph->tensors[buffer->index].kind;
    int colour = buffer->is_scratch ? 3 : kind == TENSOR_INPUT ? 0 : kind == TENSOR_OUTPUT ? 1 : 2;
    double x = left + buffer->first_node * per_node, w = (buffer->last_node - buffer->first_node + 1) * per_node;
    double y = top + (double)buffer->offset / arena * height;
    double h = (double)buffer->bytes / arena * height;
    const char *name = buffer->is_scratch ? graph->tasks[buffer->index].name : graph->tensors[buffer->index].name;
    fprintf(file,
            "<g><rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\" fill-opacity=\"0.6\" "
            "stroke=\"#333\"/><title>",
            x, y, w, h, colours[colour]);
    write_name(file, name);
    fprintf(file, ": %" PRIu64 " bytes at %" PRIu64 "</title>", buffer->bytes, buffer->offset);
    if (h >= 12 && w >= 40) {
      fprintf(file, "<text x=\"%.2f\" y=\"%.2f\">", x + 3, y + 11);
      write_name(file, name);
      fputs("</text>", file);
    }
    fputs("</g>\n", file);
  }
  fputs("</svg>\n", file);
  return report_close(path, "rondo_write_plan_svg", file);
}

/* What the node runs; its blocks, if it can publish completion. */
static rondo_status explain_task(FILE *file, const struct op_task *task, const struct chip *chip, uint32_t *blocks) {
  struct op_launches launches = {0};
  *blocks = 0;
  fprintf(file, ": %s", task->op ? task->op->name : "user's own work");
  if (!task->op) {
    fputc('\n', file);
    return RONDO_OK;
  }
  if (!chip->version) {
    fprintf(file, ": host, %" PRId64 " items\n", task->op->host_items(task));
    return RONDO_OK;
  }
  rondo_status status = task->op->select(&(struct op_call){task, op_nowhere, NULL}, chip, &launches);
  if (status != RONDO_OK) launches.count = 0;
  for (uint32_t i = 0; i < launches.count; i++) {
    const struct op_launch *launch = &launches.items[i];
    fprintf(file, "%s %s grid %ux%ux%u block %ux%ux%u shared %u", i ? "," : ":", launch->kernel, launch->grid[0],
            launch->grid[1], launch->grid[2], launch->block[0], launch->block[1], launch->block[2],
            launch->shared_bytes);
  }
  fputs(status != RONDO_OK ? ": no kernel\n" : launches.count ? "\n" : ": nothing to do\n", file);
  *blocks = op_publishing_blocks(&launches);
  return status;
}

static rondo_status explain_node(FILE *file, const rondo_graph *graph, const struct plan_node *node,
                                 const struct chip *chip, uint32_t *blocks) {
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_task task;
  if (node->kind == NODE_TASK) {
    fprintf(file, "task %u '%s'", node->index, graph->tasks[node->index].name);
    task = graph_op_task(graph, &graph->tasks[node->index], operands);
  } else {
    char name[NAME_BYTES];
    plan_node_name(graph, node, name);
    fputs(name, file);
    task = plan_node_task(graph, node, operands);
  }
  return explain_task(file, &task, chip, blocks);
}

rondo_status rondo_explain(rondo_graph *graph, int32_t chip_version, const char *path) {
  /* Multiprocessors and shared memory of A100, H200 and B200. */
  static const struct chip chips[] = {{0, 0, 0}, {80, 108, 166912}, {90, 132, 232448}, {100, 148, 232448}};
  const struct chip *chip = NULL;
  for (size_t i = 0; i < sizeof chips / sizeof *chips; i++)
    if (chips[i].version == chip_version) chip = &chips[i];
  if (!chip)
    return status_set(RONDO_INVALID_ARGUMENT, "rondo_explain: chip %d: expected 0, 80, 90 or 100", chip_version);
  const struct plan *plan;
  FILE *file;
  rondo_status status = report_open(graph, path, "rondo_explain", &plan, &file);
  if (status != RONDO_OK) return status;
  rondo_status first = RONDO_OK;
  uint64_t words = 0;
  for (uint32_t n = 0; n < plan->node_count; n++) {
    uint32_t blocks = 0;
    status = explain_node(file, graph, &plan->nodes[n], chip, &blocks);
    if (first == RONDO_OK) first = status;
    /* One end that cannot publish, or too many blocks in all: then a node does. */
    if (!plan->is_awaited[n]) words += blocks ? blocks : COMPLETION_WORDS + 1;
  }
  if (chip->version && words && words <= COMPLETION_WORDS)
    fprintf(file, "completion: %" PRIu64 " blocks at the end of the graph\n", words);
  else if (chip->version)
    fputs("completion: rondo_done\n", file);
  status = report_close(path, "rondo_explain", file);
  return first != RONDO_OK ? first : status;
}
