/* report_explain.c - which kernels would run on a chip, task by task. */
#include <inttypes.h>

#include "../floats.h"
#include "../text.h"
#include "report.h"

/* Items on the host, of all steps. */
static int64_t host_items_of(const struct op_task *task) {
  struct op_step step;
  int64_t items = task->op->step ? 0 : task->op->host_items(task);
  const struct op_call call = {.task = task, .data = op_nowhere};
  for (uint32_t i = 0; task->op->step && task->op->step(&call, i, &step); i++) items += host_items_of(&step.task);
  return items;
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
  const struct floats floats = floats_default();
  int64_t items = chip->version ? 0 : host_items_of(task);
  rondo_status status = RONDO_OK;
  if (chip->version) status = task->op->select(&(struct op_call){.task = task, .data = op_nowhere}, chip, &launches);
  floats_set(floats);
  if (!chip->version) {
    fprintf(file, ": host, %" PRId64 " item%s\n", items, PLURAL(items));
    return RONDO_OK;
  }
  if (status != RONDO_OK) launches.count = 0;
  for (uint32_t i = 0; i < launches.count; i++) {
    const struct op_launch *launch = &launches.items[i];
    fprintf(file, "%s %s grid %ux%ux%u block %ux%ux%u shared %u", i ? "," : ":", launch->kernel, launch->grid[0],
            launch->grid[1], launch->grid[2], launch->block[0], launch->block[1], launch->block[2],
            launch->shared_bytes);
  }
  fputs(status != RONDO_OK ? ": no kernel\n" : launches.count ? "\n" : ": nothing to do\n", file);
  if (launches.count && launches.choice) fprintf(file, "    %s: %s\n", launches.choice, launches.why);
  *blocks = op_publishing_blocks(&launches);
  return status;
}

/* A function of its own, since its frame is large: rondo_explain also calls the planner, whose frames are. */
__attribute__((noinline)) static rondo_status explain_node(FILE *file, const rondo_graph *graph,
                                                           const struct plan_node *node, const struct chip *chip,
                                                           uint32_t *blocks) {
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_task task;
  char name[NAME_BYTES];
  if (node->kind == NODE_TASK) {
    snprintf(name, sizeof name, "%s", graph->tasks[node->index].name);
    fprintf(file, "task %u '", node->index);
    text_write(file, name, "");
    fputc('\'', file);
    task = graph_op_task(graph, &graph->tasks[node->index], operands);
  } else {
    plan_node_name(graph, node, name);
    text_write(file, name, "");
    task = plan_node_task(graph, node, operands);
  }
  const rondo_status status = explain_task(file, &task, chip, blocks);
  return status == RONDO_OK ? status : status_set(status, "task '%s': %s", name, rondo_error_text());
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
  struct report report;
  rondo_status status = report_open_plan(&report, graph, path, "rondo_explain", &plan);
  if (status != RONDO_OK) return status;
  rondo_status first = RONDO_OK;
  char cause[512] = ""; /* of the first; the text of a later one would replace it */
  uint64_t words = 0;
  for (uint32_t n = 0; n < plan->node_count; n++) {
    uint32_t blocks = 0;
    status = explain_node(report.file, graph, &plan->nodes[n], chip, &blocks);
    if (status != RONDO_OK && first == RONDO_OK) {
      first = status;
      snprintf(cause, sizeof cause, "%s", rondo_error_text());
    }
    /* One end that cannot publish, or too many blocks in all: then a node does. */
    if (!plan->is_awaited[n]) words += blocks ? blocks : COMPLETION_WORDS + 1;
  }
  if (chip->version && words && words <= COMPLETION_WORDS)
    fprintf(report.file, "completion: %" PRIu64 " block%s at the end of the graph\n", words, PLURAL(words));
  else if (chip->version)
    fputs("completion: rondo_point\n", report.file);
  status = report_close(&report);
  return first != RONDO_OK ? status_set(first, "rondo_explain: %s", cause) : status;
}
