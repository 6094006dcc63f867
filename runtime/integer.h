/* integer.h - integer operations that the C library lacks. */
#pragma once

#include <stdint.h>

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
/* Rounded up. Neither is negative. */
static inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t round_up(int64_t a, int64_t multiple) { return divide_up(a, multiple) * multiple; }
/* Of a power of two. */
static inline int32_t log2_of(int64_t power) {
  int32_t log2 = 0;
  while (power >> log2 > 1) log2++;
  return log2;
}
