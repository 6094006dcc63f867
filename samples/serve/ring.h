/* ring.h - a queue of pointers from one thread to one other, without a lock. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ring {
  void **items;
  uint32_t mask;
  _Alignas(64) atomic_uint pushed; /* written by the pushing thread alone */
  _Alignas(64) atomic_uint popped; /* by the other one */
};

/* Room for at least `capacity` pointers. False if there is no memory. */
bool ring_open(struct ring *ring, uint32_t capacity);
void ring_close(struct ring *ring);
bool ring_push(struct ring *ring, void *item); /* false if it is full */
void *ring_pop(struct ring *ring);             /* NULL if it is empty */
bool ring_is_empty(struct ring *ring);
