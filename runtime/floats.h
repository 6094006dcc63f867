/* floats.h - the floating-point state of a thread: rounding, flushing to zero, traps (Intel SDM, volume 1, 8.1.5
 * and 10.2.3). A thread inherits it from the thread that starts it. A program may have any state; -ffast-math, for
 * example, flushes. Rondo computes everything in the default state. */
#pragma once

#include <stdint.h>

struct floats {
  uint32_t sse;
  uint16_t x87;
};

/* The compiler moves no read of memory before it, so computations on such values come after it. */
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
