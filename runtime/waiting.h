/* waiting.h - the wait of a thread of the program: for the replay of one slot, for a replay of any slot, or for a free
 * slot. */
#pragma once

#include "patience.h"
#include "runtime.h"

enum { SPIN_BEFORE_YIELD_NS = 50 * 1000 };

/* The rest of a time limit. */
static inline uint64_t left_of(uint64_t timeout_ns, uint64_t waited_ns) {
  if (timeout_ns == RONDO_FOREVER) return RONDO_FOREVER;
  return timeout_ns > waited_ns ? timeout_ns - waited_ns : 0;
}

struct waiting {
  const rondo_runtime *runtime;
  bool (*look)(void *subject); /* has it come? After true the subject holds what was found */
  void *subject;
  uint32_t for_what;         /* a lane, for its replays; or FOR_ANY_REPLAY, FOR_FREE_SLOT (device.h) */
  struct patience *patience; /* how long to spin before a rest; NULL: SPIN_BEFORE_YIELD_NS */
  bool may_be_long;          /* without a bell: sleep between looks instead of yielding */
};

/* RONDO_OK after a true look. RONDO_TIMEOUT, without a text. RONDO_DEVICE_LOST: it will not come. */
rondo_status wait_until(const struct waiting *waiting, uint64_t timeout_ns);
