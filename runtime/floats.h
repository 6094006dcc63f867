/* floats.h - the floating-point state of a thread: how it rounds, what it flushes to zero and what traps (Intel SDM,
 * volume 1, 8.1.5 and 10.2.3). Threads inherit it from those that start them, and a program may have any: one linked
 * with -ffast-math flushes. All that Rondo computes is computed in the default state. */
#ifndef RONDO_FLOATS_H
#define RONDO_FLOATS_H

#include <stdint.h>

struct floats {
  uint32_t sse;
  uint16_t x87;
};

/* What is read from memory behind it is computed behind it. */
static inline void floats_set(struct floats floats) {
  __asm__ volatile("ldmxcsr %0\n\tfldcw %1" : : "m"(floats.sse), "m"(floats.x87) : "memory");
}

/* The default state, in which flags of exceptions are clear. Returns what there was. */
static inline struct floats floats_default(void) {
  struct floats before;
  __asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(before.sse), "=m"(before.x87));
  floats_set((struct floats){.sse = 0x1f80, .x87 = 0x037f});
  return before;
}

#endif
