/* waiting.h - how a thread of the caller's waits for what another thread or the device does: for one slot, and for any
 * of many. */
#ifndef RONDO_WAITING_H
#define RONDO_WAITING_H

#include "exec.h"
#include "patience.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { SPIN_BEFORE_YIELD_NS = 50 * 1000 };

static inline void cpu_relax(void) {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Of a time limit. */
static inline uint64_t left_of(uint64_t timeout_ns, uint64_t waited_ns) {
  if (timeout_ns == RONDO_FOREVER) return RONDO_FOREVER;
  return timeout_ns > waited_ns ? timeout_ns - waited_ns : 0;
}

struct waiting {
  const rondo_runtime *runtime;
  bool (*look)(void *subject); /* is it there? True once: what it found is in the subject */
  void *subject;
  uint32_t for_what;         /* a lane's replay, or see device.h */
  struct patience *patience; /* for how long it looks before it rests; NULL: as the wait mode says */
  bool may_be_long;          /* where nothing wakes it, it sleeps between looks, and does not only yield */
};

/* RONDO_OK; RONDO_TIMEOUT, without a text; RONDO_DEVICE_LOST: it does not come any more. */
rondo_status wait_until(const struct waiting *waiting, uint64_t timeout_ns);

#endif
