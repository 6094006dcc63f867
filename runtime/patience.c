/* patience.c - see patience.h. A trial is PATIENCE_TURN spins and as many rests; the way with the lower median is kept.
 */
#include "patience.h"

#include <stdbool.h>

static uint32_t get(const _Atomic uint32_t *value) { return atomic_load_explicit(value, memory_order_relaxed); }
static void set(_Atomic uint32_t *value, uint32_t to) { atomic_store_explicit(value, to, memory_order_relaxed); }

/* The next wait is a trial's spin, a trial's rest, or what is kept. */
static bool rests_next(const struct patience *p) {
  uint32_t waits = get(&p->waits);
  return waits < 2 * PATIENCE_TURN ? waits >= PATIENCE_TURN : get(&p->rests);
}

static uint64_t median_ns(const struct patience *p, bool rests) {
  uint64_t sorted[PATIENCE_TRIES];
  for (int i = 0; i < PATIENCE_TRIES; i++) {
    uint64_t tried = atomic_load_explicit(&p->tries_ns[rests][i], memory_order_relaxed);
    int place = i;
    for (; place > 0 && sorted[place - 1] > tried; place--) sorted[place] = sorted[place - 1];
    sorted[place] = tried;
  }
  return sorted[PATIENCE_TRIES / 2];
}

static uint64_t spin_ns_of(const struct patience *p) {
  if (rests_next(p)) return 0;
  /* Longer than usual: the work may wait for the core that spins. */
  uint64_t usual_ns = get(&p->kept) ? median_ns(p, get(&p->rests)) : PATIENCE_LONG_NS;
  return usual_ns < PATIENCE_LONG_NS ? 2 * usual_ns + PATIENCE_SHORT_NS : PATIENCE_FIRST_NS;
}

uint64_t patience_spin_ns(const struct patience *p) {
  uint64_t spin_ns = spin_ns_of(p), before_ns = atomic_load_explicit(&p->before_ns, memory_order_relaxed);
  return spin_ns > before_ns ? spin_ns - before_ns : 0;
}

void patience_end_early(struct patience *p, uint64_t waited_ns) {
  atomic_fetch_add_explicit(&p->before_ns, waited_ns, memory_order_relaxed);
}

static void keep(struct patience *p, bool rests) {
  uint32_t kept = get(&p->kept), next = PATIENCE_KEPT_LEAST;
  if (kept && rests == (get(&p->rests) != 0)) next = 2 * kept < PATIENCE_KEPT_MOST ? 2 * kept : PATIENCE_KEPT_MOST;
  set(&p->kept, next);
  set(&p->rests, rests);
  set(&p->off, 0);
  set(&p->waits, 2 * PATIENCE_TURN);
}

static void learn_from_try(struct patience *p, uint32_t waits, uint64_t waited_ns) {
  bool rested = waits >= PATIENCE_TURN;
  uint32_t place = waits % PATIENCE_TURN;
  if (place >= PATIENCE_WARM)
    atomic_store_explicit(&p->tries_ns[rested][place - PATIENCE_WARM], waited_ns, memory_order_relaxed);
  set(&p->waits, waits + 1);
  if (waits + 1 == 2 * PATIENCE_TURN) /* a twentieth is paid for a core that does something else */
    keep(p, median_ns(p, true) <= median_ns(p, false) / 20 * 21);
}

static void learn_from_kept(struct patience *p, uint32_t waits, uint64_t waited_ns) {
  uint64_t usual_ns = median_ns(p, get(&p->rests));
  bool is_off = waited_ns > usual_ns / 2 * 3 + PATIENCE_SHORT_NS || waited_ns < usual_ns / 2;
  uint32_t off = is_off ? get(&p->off) + 1 : 0;
  set(&p->off, off);
  if (off >= PATIENCE_OFF) set(&p->kept, 0);
  set(&p->waits, off >= PATIENCE_OFF || waits + 1 >= 2 * PATIENCE_TURN + get(&p->kept) ? 0 : waits + 1);
}

void patience_learn(struct patience *p, uint64_t waited_ns) {
  uint32_t waits = get(&p->waits);
  uint64_t before_ns = atomic_load_explicit(&p->before_ns, memory_order_relaxed);
  if (before_ns) {
    waited_ns += before_ns;
    atomic_store_explicit(&p->before_ns, 0, memory_order_relaxed);
  }
  if (waited_ns < PATIENCE_SHORT_NS && !rests_next(p)) return;
  if (waits < 2 * PATIENCE_TURN)
    learn_from_try(p, waits, waited_ns);
  else
    learn_from_kept(p, waits, waited_ns);
}
