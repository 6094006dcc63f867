/* heap.h - a binary heap of numbers, for queues and for sorting in place. The item that comes first is on top. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct heap {
  uint32_t *items;
  uint32_t count;
  bool (*comes_first)(const void *context, uint32_t a, uint32_t b);
  const void *context;
};

/* Puts an item where the root of a part of the heap was, or below. */
static inline void heap_sift(struct heap *heap, uint32_t root, uint32_t item) {
  uint32_t *items = heap->items;
  for (uint32_t child; (child = 2 * root + 1) < heap->count; root = child) {
    if (child + 1 < heap->count && heap->comes_first(heap->context, items[child + 1], items[child])) child++;
    if (!heap->comes_first(heap->context, items[child], item)) break;
    items[root] = items[child];
  }
  items[root] = item;
}

/* The caller has room for one more. */
static inline void heap_push(struct heap *heap, uint32_t item) {
  uint32_t i = heap->count++, *items = heap->items;
  for (; i > 0 && heap->comes_first(heap->context, item, items[(i - 1) / 2]); i = (i - 1) / 2)
    items[i] = items[(i - 1) / 2];
  items[i] = item;
}

static inline uint32_t heap_pop(struct heap *heap) {
  uint32_t top = heap->items[0], last = heap->items[--heap->count];
  if (heap->count) heap_sift(heap, 0, last);
  return top;
}

/* Of any items: what comes first goes to the end. */
static inline void heap_sort(struct heap heap) {
  for (uint32_t root = heap.count / 2; root-- > 0;) heap_sift(&heap, root, heap.items[root]);
  while (heap.count) {
    uint32_t top = heap_pop(&heap);
    heap.items[heap.count] = top;
  }
}
