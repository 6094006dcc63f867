/* order.c - see order.h. Kahn's algorithm (1962), with a heap of the units that are ready. */
#include "order.h"

#include <string.h>

#include "heap.h"
#include "lists.h"

void order_cut(struct order_work *work, struct cutter *cutter, uint32_t unit_count, uint64_t edge_count) {
  work->begin = cut(cutter, (unit_count + UINT64_C(1)) * sizeof(uint32_t));
  work->successors = cut(cutter, edge_count * sizeof(uint32_t));
  work->waits = cut(cutter, unit_count * sizeof(uint32_t));
  work->heap = cut(cutter, unit_count * sizeof(uint32_t));
}

/* The successors of each unit: counted first, with no array, and then filled in. */
static void put_successors(struct order_work *work, const rondo_graph *graph, const struct dependencies *dependencies,
                           uint32_t unit_count, uint32_t *successors) {
  for (uint32_t unit = 0; unit < unit_count; unit++) {
    for (uint32_t i = dependencies->begin[unit]; i < dependencies->begin[unit + 1]; i++)
      lists_put(work->begin, successors, dependencies->predecessors[i], unit);
    if (unit >= graph->task_count) continue;
    for (const struct prerequisite *p = graph->tasks[unit].prerequisites; p; p = p->next)
      lists_put(work->begin, successors, p->task, unit);
  }
}

static uint64_t key(const struct dependencies *dependencies, uint32_t unit) {
  uint32_t tasks = dependencies->task_count;
  return unit < tasks ? 2 * (uint64_t)unit + 1 : 2 * (uint64_t)dependencies->join_task[unit - tasks];
}

static bool comes_first(const void *dependencies, uint32_t a, uint32_t b) {
  uint64_t left = key(dependencies, a), right = key(dependencies, b);
  return left != right ? left < right : a < b;
}

void order_find(struct order_work *work, const rondo_graph *graph, const struct dependencies *dependencies,
                uint32_t *order) {
  uint32_t unit_count = dependencies->task_count + dependencies->join_count, *begin = work->begin;
  memset(begin, 0, (unit_count + UINT64_C(1)) * sizeof *begin);
  put_successors(work, graph, dependencies, unit_count, NULL);
  lists_end(begin, unit_count, 0);
  put_successors(work, graph, dependencies, unit_count, work->successors);
  memset(work->waits, 0, unit_count * sizeof *work->waits);
  for (uint32_t i = 0; i < begin[unit_count]; i++) work->waits[work->successors[i]]++;
  struct heap ready = {work->heap, 0, comes_first, dependencies};
  for (uint32_t unit = 0; unit < unit_count; unit++)
    if (!work->waits[unit]) heap_push(&ready, unit);
  for (uint32_t placed = 0; ready.count;) {
    uint32_t unit = heap_pop(&ready);
    order[placed++] = unit;
    for (uint32_t i = begin[unit]; i < begin[unit + 1]; i++)
      if (--work->waits[work->successors[i]] == 0) heap_push(&ready, work->successors[i]);
  }
}
