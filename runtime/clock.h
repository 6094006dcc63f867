/* clock.h - nanoseconds of a clock that only grows. No system call if the kernel offers the clock in the vDSO. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline uint64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}
