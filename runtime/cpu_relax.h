/* cpu_relax.h - the pause of a spinning loop between two looks. */
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static inline void cpu_relax(void) {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}
