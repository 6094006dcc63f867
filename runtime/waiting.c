/* waiting.c - see waiting.h. No allocation and no lock; with RONDO_WAIT_SPIN no system call. */
#include "waiting.h"

#include <sched.h>
#include <time.h>

#include "clock.h"
#include "cpu_relax.h"

enum {
  LOOKS_PER_CLOCK = 64, /* the clock costs some 20 ns */
  SLEEP_NS = 20 * 1000,
  /* A lost device never writes the word, so the driver is asked for its health. The call takes the driver's lock, under
   * which others launch. So a wait asks when its time has doubled, and at least every HEALTH_MOST_NS. */
  HEALTH_FIRST_NS = 100 * 1000,
  HEALTH_MOST_NS = 1000 * 1000
};

/* Does the wait choose between spinning and resting? */
static bool learns(const struct waiting *w) {
  return w->patience && w->runtime->ops->rest && w->runtime->wait_mode == RONDO_WAIT_SPIN_YIELD;
}

/* Leaves the core to others for a moment. True: the look was true. */
static bool rest(const struct waiting *w, uint64_t left_ns) {
  const struct device_ops *ops = w->runtime->ops;
  if (ops->rest) return ops->rest->rest(w->runtime->device, w->for_what, w->look, w->subject, left_ns);
  if (w->may_be_long || w->runtime->wait_mode == RONDO_WAIT_BLOCK)
    nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
  else
    sched_yield();
  return false;
}

static uint64_t spin_ns_of(const struct waiting *w) {
  switch (w->runtime->wait_mode) {
  case RONDO_WAIT_SPIN:
    return UINT64_MAX;
  case RONDO_WAIT_BLOCK:
    return 0;
  default:
    return learns(w) ? patience_spin_ns(w->patience) : SPIN_BEFORE_YIELD_NS;
  }
}

rondo_status wait_until(const struct waiting *w, uint64_t timeout_ns) {
  if (w->look(w->subject)) return RONDO_OK;
  const uint64_t begin_ns = now_ns(), spin_ns = timeout_ns ? spin_ns_of(w) : 0;
  uint64_t looks = 1, waited_ns = 0, health_ns = HEALTH_FIRST_NS;
  do {
    if (waited_ns < spin_ns) {
      cpu_relax();
      if (looks++ % LOOKS_PER_CLOCK) continue;
    }
    waited_ns = now_ns() - begin_ns;
    bool is_over = waited_ns >= timeout_ns;
    if (is_over || waited_ns >= health_ns) { /* by the clock: a rest may take milliseconds */
      rondo_status status = w->runtime->ops->health(w->runtime->device);
      /* It may have come between the two looks. Then it stands, for this call as for the next. */
      if (status != RONDO_OK) return w->look(w->subject) ? RONDO_OK : status;
      health_ns = waited_ns + (waited_ns < HEALTH_MOST_NS ? waited_ns : HEALTH_MOST_NS);
    }
    if (is_over) {
      if (learns(w)) patience_end_early(w->patience, waited_ns);
      return RONDO_TIMEOUT;
    }
    if (waited_ns >= spin_ns && rest(w, left_of(timeout_ns, waited_ns))) break;
  } while (!w->look(w->subject));
  /* A thread that spun read the clock a microsecond ago, or never, and need not read it again. */
  if (learns(w)) patience_learn(w->patience, waited_ns >= spin_ns ? now_ns() - begin_ns : waited_ns);
  return RONDO_OK;
}
