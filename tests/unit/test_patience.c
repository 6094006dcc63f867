/* test_patience.c - whether waits spin or rest: which way is found to be sooner, at what price, and how soon after a
 * change. The times are made up: a wait that spins takes `spin_ns`, one that rests `rest_ns`. */
#include <criterion/criterion.h>
#include <stdbool.h>

#include "../../runtime/patience.h"

TestSuite(patience, .timeout = 60);

struct work {
  uint64_t spin_ns, rest_ns;
  uint32_t late_every; /* of so many waits one takes fifty times as long; 0: none */
};

/* How many of the waits rested. One that gives up spinning has held the work up for half of that time. */
static uint32_t wait_for(struct patience *patience, const struct work *work, uint32_t count) {
  uint32_t rests = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint64_t limit_ns = patience_spin_ns(patience);
    uint64_t wait_ns = limit_ns == 0 ? work->rest_ns : work->spin_ns;
    if (limit_ns && work->spin_ns > limit_ns) wait_ns = limit_ns / 2 + work->rest_ns;
    if (work->late_every && i % work->late_every == 0) wait_ns *= 50;
    rests += limit_ns == 0;
    patience_learn(patience, wait_ns);
  }
  return rests;
}

/* Of waits after the first thousand: no more than one in fifty goes the other way. */
static void require_way(const struct work *work, bool rests) {
  struct patience patience = {0};
  wait_for(&patience, work, 1000);
  uint32_t count = wait_for(&patience, work, 20000);
  cr_assert(rests ? count > 19600 : count < 400, "%u of 20000 rested", count);
}

Test(patience, work_that_does_not_need_the_core_is_spun_for) {
  require_way(&(struct work){10000, 25000, 0}, false);
  require_way(&(struct work){100000, 117000, 0}, false);
}

Test(patience, work_that_needs_the_core_is_slept_for) {
  require_way(&(struct work){180000, 110000, 0}, true);
  require_way(&(struct work){48000, 42000, 0}, true);
}

Test(patience, a_core_is_worth_a_twentieth) {
  require_way(&(struct work){100000, 104000, 0}, true);
  require_way(&(struct work){100000, 106000, 0}, false);
}

Test(patience, long_work_is_slept_for_at_once) {
  require_way(&(struct work){10000000, 10020000, 0}, true);
  require_way(&(struct work){24000000, 12000000, 0}, true);
}

Test(patience, waits_that_are_late_for_once_do_not_change_it) {
  require_way(&(struct work){30000, 50000, 7}, false);
  require_way(&(struct work){180000, 110000, 7}, true);
}

Test(patience, who_waits_less_than_a_system_call_takes_never_rests) {
  struct patience patience = {0};
  cr_assert_eq(wait_for(&patience, &(struct work){PATIENCE_SHORT_NS - 1, 15000, 0}, 100000), 0);
}

/* Whatever was kept for however long. */
Test(patience, other_work_is_tried_anew) {
  static const struct work works[] = {{10000, 25000, 0}, {180000, 110000, 0}, {30000, 50000, 0}, {900000, 500000, 0}};
  struct patience patience = {0};
  for (int i = 0; i < 16; i++) {
    wait_for(&patience, &works[i % 4], 3 * PATIENCE_TURN);
    uint32_t rests = wait_for(&patience, &works[i % 4], PATIENCE_KEPT_LEAST - PATIENCE_TURN);
    cr_assert_eq(rests, i % 2 ? PATIENCE_KEPT_LEAST - PATIENCE_TURN : 0, "work %d: %u rests", i % 4, rests);
    wait_for(&patience, &works[i % 4], 5000);
  }
}

Test(patience, a_spin_ends_where_it_takes_far_longer_than_usual) {
  struct patience patience = {0};
  cr_assert_eq(patience_spin_ns(&patience), PATIENCE_FIRST_NS);
  wait_for(&patience, &(struct work){30000, 50000, 0}, 2 * PATIENCE_TURN);
  cr_assert_eq(patience_spin_ns(&patience), 2 * 30000 + PATIENCE_SHORT_NS);
}

/* Waits with a limit, one after the other, for the same replay spin no longer than one without. */
Test(patience, what_ended_early_goes_on) {
  struct patience patience = {0};
  for (int i = 0; i < 4; i++) {
    cr_assert_eq(patience_spin_ns(&patience), (uint64_t)(4 - i) * PATIENCE_FIRST_NS / 4);
    patience_end_early(&patience, PATIENCE_FIRST_NS / 4);
  }
  cr_assert_eq(patience_spin_ns(&patience), 0);
  patience_learn(&patience, 1000);
  cr_assert_eq(patience_spin_ns(&patience), PATIENCE_FIRST_NS);
}
