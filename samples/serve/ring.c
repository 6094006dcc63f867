/* ring.c - see ring.h. The counters only grow; their difference is the number of items. */
#include "ring.h"

#include <stdlib.h>

bool ring_open(struct ring *ring, uint32_t capacity) {
  uint32_t size = 1;
  while (size < capacity) size *= 2;
  *ring = (struct ring){.items = calloc(size, sizeof *ring->items), .mask = size - 1};
  return ring->items != NULL;
}

void ring_close(struct ring *ring) { free(ring->items); }

bool ring_push(struct ring *ring, void *item) {
  const unsigned pushed = atomic_load_explicit(&ring->pushed, memory_order_relaxed);
  if (pushed - atomic_load_explicit(&ring->popped, memory_order_acquire) > ring->mask) return false;
  ring->items[pushed & ring->mask] = item;
  atomic_store_explicit(&ring->pushed, pushed + 1, memory_order_seq_cst);
  return true;
}

void *ring_pop(struct ring *ring) {
  const unsigned popped = atomic_load_explicit(&ring->popped, memory_order_relaxed);
  if (atomic_load_explicit(&ring->pushed, memory_order_acquire) == popped) return NULL;
  void *item = ring->items[popped & ring->mask];
  atomic_store_explicit(&ring->popped, popped + 1, memory_order_release);
  return item;
}

bool ring_is_empty(struct ring *ring) { return atomic_load(&ring->pushed) == atomic_load(&ring->popped); }
