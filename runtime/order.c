/* order.c - see order.h. Kahn's algorithm (1962), with a heap of the units that are ready. */
#include "order.h"

#include <string.h>

void order_cut(struct order_work *work, struct cutter *cutter, uint32_t unit_count, uint64_t edge_count) {
  work->begin = cut(cutter, (unit_count + UINT64_C(1)) * sizeof(uint32_t));
  work->successors = cut(cutter, edge_count * sizeof(uint32_t));
  work->waits = cut(cutter, unit_count * sizeof(uint32_t));
  work->heap = cut(cutter, unit_count * sizeof(uint32_t));
}

/* The other way round: who waits for a unit. Counted first, then filled from the end of each list to its begin. */
static void list_successors(struct order_work *work, const rondo_graph *graph, const struct dependencies *dependencies,
                            uint32_t unit_count) {
  uint32_t *begin = work->begin;
  memset(begin, 0, (unit_count + UINT64_C(1)) * sizeof *begin);
  for (int fills = 0; fills < 2; fills++) {
    for (uint32_t unit = 0; unit < unit_count; unit++) {
      for (uint32_t i = dependencies->begin[unit]; i < dependencies->begin[unit + 1]; i++) {
        uint32_t before = dependencies->predecessors[i];
        if (fills)
          work->successors[--begin[before]] = unit;
        else
          begin[before]++, work->waits[unit]++;
      }
      if (unit >= graph->task_count) continue;
      for (const struct prerequisite *p = graph->tasks[unit].prerequisites; p; p = p->next) {
        if (fills)
          work->successors[--begin[p->task]] = unit;
        else
          begin[p->task]++, work->waits[unit]++;
      }
    }
    if (fills) break;
    for (uint32_t unit = 0, used = 0; unit <= unit_count; unit++) {
      used += unit < unit_count ? begin[unit] : 0;
      begin[unit] = used;
    }
  }
}

struct heap {
  const struct dependencies *dependencies;
  uint32_t *units;
  uint32_t count;
};

static uint64_t key(const struct heap *heap, uint32_t unit) {
  uint32_t tasks = heap->dependencies->task_count;
  return unit < tasks ? 2 * (uint64_t)unit + 1 : 2 * (uint64_t)heap->dependencies->join_task[unit - tasks];
}

static bool is_before(const struct heap *heap, uint32_t a, uint32_t b) {
  uint64_t left = key(heap, a), right = key(heap, b);
  return left != right ? left < right : a < b;
}

static void heap_push(struct heap *heap, uint32_t unit) {
  uint32_t i = heap->count++;
  for (; i > 0 && is_before(heap, unit, heap->units[(i - 1) / 2]); i = (i - 1) / 2)
    heap->units[i] = heap->units[(i - 1) / 2];
  heap->units[i] = unit;
}

static uint32_t heap_pop(struct heap *heap) {
  uint32_t top = heap->units[0], moved = heap->units[--heap->count], i = 0;
  for (;;) {
    uint32_t child = 2 * i + 1;
    if (child >= heap->count) break;
    if (child + 1 < heap->count && is_before(heap, heap->units[child + 1], heap->units[child])) child++;
    if (!is_before(heap, heap->units[child], moved)) break;
    heap->units[i] = heap->units[child];
    i = child;
  }
  heap->units[i] = moved;
  return top;
}

void order_find(struct order_work *work, const rondo_graph *graph, const struct dependencies *dependencies,
                uint32_t *order) {
  uint32_t unit_count = dependencies->task_count + dependencies->join_count;
  memset(work->waits, 0, unit_count * sizeof *work->waits);
  list_successors(work, graph, dependencies, unit_count);
  struct heap heap = {dependencies, work->heap, 0};
  for (uint32_t unit = 0; unit < unit_count; unit++)
    if (!work->waits[unit]) heap_push(&heap, unit);
  for (uint32_t placed = 0; heap.count;) {
    uint32_t unit = heap_pop(&heap);
    order[placed++] = unit;
    for (uint32_t i = work->begin[unit]; i < work->begin[unit + 1]; i++)
      if (--work->waits[work->successors[i]] == 0) heap_push(&heap, work->successors[i]);
  }
}
