/* after.c - rondo_after: a dependency that no tensor shows. It must not close a cycle. */
#include "dependencies.h"

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
  status = graph_keep(graph, sizeof(struct prerequisite), &memory);
  if (status != RONDO_OK) return status;
  graph_drop_plan(graph);
  struct prerequisite *added = memory;
  *added = (struct prerequisite){graph->tasks[task].prerequisites, prerequisite};
  graph->tasks[task].prerequisites = added;
  graph->has_backward_edges |= prerequisite > task;
  return RONDO_OK;
}
