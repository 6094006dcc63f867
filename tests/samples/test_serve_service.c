/* test_serve_service.c - the records of requests in the serve sample, and when its replaying thread counts as stuck. */
#include <criterion/criterion.h>

#include "../../samples/serve/service.h"
#include "fake_clock.h"

enum { SEQUENCES = 2, QUEUE = 3, SECOND_NS = 1000000000 };

static struct model model = {.desc = {.context = 8}};
static struct engine engine = {.model = &model};
static const struct serve_options options = {.queue = QUEUE, .model = {.sequences = SEQUENCES}};
static struct service service = {.options = &options};

/* Is it alive after so many rounds, of a second each? */
static bool is_alive_after(int rounds) {
  bool alive = service_is_alive(&service);
  for (int i = 0; i < rounds; i++) {
    fake_clock_ns += SECOND_NS;
    alive = service_is_alive(&service);
  }
  return alive;
}

Test(serve_service, is_alive_as_long_as_replays_end_in_five_seconds) {
  service_open(&service, &engine);
  atomic_store(&engine.metrics.busy, 1);
  atomic_store(&engine.metrics.heartbeat, 1);
  cr_assert(is_alive_after(4));
  cr_assert_not(is_alive_after(2), "no replay ended for 6 s");
  atomic_store(&engine.metrics.heartbeat, 2);
  cr_assert(is_alive_after(0), "one has ended");
  atomic_store(&engine.metrics.busy, 0);
  cr_assert(is_alive_after(60), "there is nothing to do");
  service_close(&service);
}

Test(serve_service, has_other_five_seconds_after_the_process_was_stopped) {
  service_open(&service, &engine);
  atomic_store(&engine.metrics.busy, 1);
  atomic_store(&engine.metrics.heartbeat, 1);
  cr_assert(is_alive_after(4));
  fake_clock_ns += 60 * (uint64_t)SECOND_NS;
  cr_assert(is_alive_after(4), "no replay could end while it was stopped");
  cr_assert_not(is_alive_after(2), "nor has one since");
  service_close(&service);
}

/* A record whose client has left is taken until the engine has ended it, and counts no longer as a request. */
Test(serve_service, has_as_many_records_as_requests_may_run_and_wait) {
  struct request *taken[SEQUENCES + QUEUE];
  service_open(&service, &engine);
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < SEQUENCES + QUEUE; i++) cr_assert(taken[i] = service_take(&service));
    cr_assert_null(service_take(&service));
    for (int i = 0; i < SEQUENCES + QUEUE; i++) {
      service_abandon(&service, taken[i]);
      cr_assert(atomic_load(&taken[i]->cancelled));
      atomic_store(&taken[i]->end, END_NONE);
    }
    service_collect(&service);
    struct request *other = service_take(&service);
    cr_assert(other, "those who left are no requests");
    for (int i = 0; i < SEQUENCES + QUEUE; i++) {
      cr_assert_neq(other, taken[i], "the engine still has it");
      atomic_store(&taken[i]->end, END_CANCELLED);
    }
    service_return(&service, other);
    service_collect(&service);
  }
  service_close(&service);
}
