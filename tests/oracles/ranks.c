/* ranks.c - see ranks.h. */
#include "ranks.h"

#include <criterion/criterion.h>
#include <time.h>

void ranks_describe(struct ranks *ranks, rondo_backend backend, uint32_t count, uint64_t bytes) {
  *ranks = (struct ranks){.backend = backend, .count = count};
  for (uint32_t r = 0; r < count; r++) {
    trial_describe(&ranks->lenders[r], backend);
    trial_describe(&ranks->trials[r], backend);
    REQUIRE_OK(rondo_exchange_state(ranks->lenders[r].graph, NULL, count, bytes, &ranks->exchange[r]));
  }
}

void ranks_instantiate(struct ranks *ranks) {
  rondo_options options[RONDO_MAX_RANKS];
  const int32_t devices = device_count(ranks->backend);
  for (uint32_t r = 0; r < ranks->count; r++) {
    rondo_plan plan;
    REQUIRE_OK(rondo_plan_graphs((rondo_graph *[]){ranks->lenders[r].graph, ranks->trials[r].graph}, 2, &plan));
    options[r] = (rondo_options){.backend = ranks->backend,
                                 .device = (int32_t)r % devices,
                                 .device_bytes = plan.device_bytes,
                                 .pinned_bytes = plan.pinned_bytes_per_slot,
                                 .host_bytes = plan.host_bytes,
                                 .host_threads = 1 + r % 2};
  }
  REQUIRE_OK(rondo_open_group(options, ranks->count, ranks->runtimes));
  for (uint32_t r = 0; r < ranks->count; r++)
    REQUIRE_OK(rondo_instantiate(ranks->runtimes[r], ranks->lenders[r].graph, NULL, &ranks->lenders[r].exec));
  for (uint32_t r = 0; r < ranks->count; r++) {
    REQUIRE_OK(rondo_instantiate(ranks->runtimes[r], ranks->trials[r].graph, NULL, &ranks->trials[r].exec));
    REQUIRE_OK(rondo_acquire(ranks->trials[r].exec, &ranks->trials[r].slot));
  }
}

static void wait_for_all(struct ranks *ranks) {
  rondo_slot slots[RONDO_MAX_RANKS];
  for (uint32_t r = 0; r < ranks->count; r++) slots[r] = ranks->trials[r].slot;
  REQUIRE_OK(rondo_wait_all(slots, ranks->count, RONDO_FOREVER));
}

void ranks_replay(struct ranks *ranks) {
  rondo_slot slots[RONDO_MAX_RANKS];
  for (uint32_t r = 0; r < ranks->count; r++) slots[r] = ranks->trials[r].slot;
  REQUIRE_OK(rondo_replay_all(slots, ranks->count));
  wait_for_all(ranks);
}

void ranks_replay_apart(struct ranks *ranks, struct random *random) {
  uint32_t order[RONDO_MAX_RANKS];
  for (uint32_t r = 0; r < ranks->count; r++) order[r] = r;
  for (uint32_t r = 0; r < ranks->count; r++) {
    const uint32_t other = (uint32_t)random_between(random, r, ranks->count - 1), rank = order[other];
    order[other] = order[r];
    const long pause_ns = (long)random_between(random, 0, 3) * 50 * 1000;
    if (pause_ns) nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
    REQUIRE_OK(rondo_replay(ranks->trials[rank].slot));
  }
  wait_for_all(ranks);
}

void ranks_replay_round(struct ranks *ranks, uint32_t round, struct random *random) {
  if (round % 4)
    ranks_replay(ranks);
  else
    ranks_replay_apart(ranks, random);
}

void ranks_end(struct ranks *ranks) {
  for (uint32_t r = 0; r < ranks->count; r++) trial_end(&ranks->trials[r]);
  for (uint32_t r = 0; r < ranks->count; r++) {
    REQUIRE_OK(rondo_close_exec(&ranks->lenders[r].exec));
    REQUIRE_OK(rondo_graph_destroy(&ranks->lenders[r].graph));
    REQUIRE_OK(rondo_close(&ranks->runtimes[r]));
  }
}

void ranks_abandon(struct ranks *ranks) {
  for (uint32_t r = 0; r < ranks->count; r++) {
    REQUIRE_OK(rondo_graph_destroy(&ranks->trials[r].graph));
    REQUIRE_OK(rondo_graph_destroy(&ranks->lenders[r].graph));
  }
}
