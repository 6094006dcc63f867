/* waiting.h - how a thread of the program waits: for the replay of one slot, for a replay of any slot, for a free slot.
 */
#ifndef RONDO_WAITING_H
#define RONDO_WAITING_H

#include "exec.h"
#include "patience.h"

enum { SPIN_BEFORE_YIELD_NS = 50 * 1000 };

/* Of a time limit. */
static inline uint64_t left_of(uint64_t timeout_ns, uint64_t waited_ns) {
  if (timeout_ns == RONDO_FOREVER) return RONDO_FOREVER;
  return timeout_ns > waited_ns ? timeout_ns - waited_ns : 0;
}

struct waiting {
  const rondo_runtime *runtime;
  bool (*look)(void *subject); /* has it come? True once; the subject then has what was found */
  void *subject;
  uint32_t for_what;         /* a lane's replay, or see device.h */
  struct patience *patience; /* says how long to spin before a rest; NULL: SPIN_BEFORE_YIELD_NS */
  bool may_be_long;          /* without a bell: sleep between looks instead of yielding */
};

/* RONDO_OK: look said so. RONDO_TIMEOUT, without a text. RONDO_DEVICE_LOST: it will not come. */
rondo_status wait_until(const struct waiting *waiting, uint64_t timeout_ns);

#endif
