/* test_cuda_repeat_body.c - a repeat whose loop has several replays in its body, on the fake driver: what a stop within
 * a body leaves, and which graphs have one replay in it. */
#include <string.h>

#include "driver_support.h"

TestSuite(repeat_body, .init = driver_setup, .timeout = 300);

enum { RING = 16, LARGE = 65, STEPS = 20, BODY = 8 };

/* Each replay turns the ring by one, in place, so a replay too many would show. */
struct subject {
  rondo_graph *graph;
  rondo_tensor ring, first, seen, before, large;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_slot slot;
};

static rondo_tensor part(rondo_graph *graph, rondo_tensor whole, int64_t first, int64_t count) {
  rondo_tensor view;
  REQUIRE_OK(rondo_view(graph, whole, &first, &count, &view));
  return view;
}

/* With `large`, a state that is not kept is written too. */
static void describe(struct subject *s, bool large) {
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s->graph));
  s->ring = add_vector(rondo_state, s->graph, "ring", RING);
  s->first = part(s->graph, s->ring, 0, 1);
  s->seen = add_vector(rondo_output, s->graph, "seen", RING);
  s->before = add_vector(rondo_output, s->graph, "before", RING);
  const rondo_tensor turned = add_vector(rondo_temporary, s->graph, "turned", RING);
  add_copy(s->graph, "take", s->ring, turned);
  add_copy(s->graph, "show", turned, s->before);
  add_copy(s->graph, "turn", part(s->graph, turned, 1, RING - 1), part(s->graph, s->ring, 0, RING - 1));
  add_copy(s->graph, "wrap", part(s->graph, turned, 0, 1), part(s->graph, s->ring, RING - 1, 1));
  add_copy(s->graph, "see", s->ring, s->seen);
  if (!large) return;
  s->large = add_vector(rondo_state, s->graph, "large", LARGE);
  add_copy(s->graph, "fill", s->ring, part(s->graph, s->large, 0, RING));
}

static void subject_open(struct subject *s, uint32_t repeat_steps, bool large) {
  rondo_plan plan;
  describe(s, large);
  REQUIRE_OK(rondo_plan_graph(s->graph, &plan));
  rondo_options options = options_for(s->graph, RONDO_BACKEND_CUDA, 1);
  options.pinned_bytes += repeat_steps * plan.pinned_bytes_per_step;
  REQUIRE_OK(rondo_open(&options, &s->runtime));
  REQUIRE_OK(rondo_instantiate(s->runtime, s->graph, &(rondo_exec_options){.repeat_steps = repeat_steps}, &s->exec));
  REQUIRE_OK(rondo_acquire(s->exec, &s->slot));
}

static void subject_close(struct subject *s) {
  REQUIRE_OK(rondo_close_exec(&s->exec));
  REQUIRE_OK(rondo_graph_destroy(&s->graph));
  REQUIRE_OK(rondo_close(&s->runtime));
  require_clean("after close");
}

static void set_ring(const struct subject *s) {
  uint32_t ring[RING];
  for (uint32_t i = 0; i < RING; i++) ring[i] = i;
  REQUIRE_OK(rondo_upload(s->exec, s->ring, ring, sizeof ring));
}

static void require_turned(const void *found, uint32_t turns) {
  const uint32_t *ring = found;
  cr_assert(ring);
  for (uint32_t i = 0; i < RING; i++) cr_assert_eq(ring[i], (i + turns) % RING, "%u turns, element %u", turns, i);
}

static void require_steps(const struct subject *s, uint32_t done, uint32_t turned_before) {
  for (uint32_t i = 0; i < done; i++) {
    require_turned(rondo_repeat_data(s->slot, s->before, i), turned_before + i);
    require_turned(rondo_repeat_data(s->slot, s->seen, i), turned_before + i + 1);
  }
}

/* The state, by a replay. */
static void require_state(const struct subject *s, uint32_t turns) {
  REQUIRE_OK(rondo_replay(s->slot));
  REQUIRE_OK(rondo_wait(s->slot, RONDO_FOREVER));
  require_turned(rondo_data(s->slot, s->before), turns);
}

static const enum fake_mode modes[] = {FAKE_IMMEDIATE, FAKE_DEFERRED, FAKE_THREAD};

Test(repeat_body, every_count_of_replays_leaves_what_they_leave_one_by_one) {
  for (uint32_t count = 1; count <= STEPS; count++)
    for (uint64_t seed = 0; seed < 6; seed++) {
      struct subject s = {0};
      uint32_t done = 0;
      driver_setup();
      set_seed(seed + count * UINT64_C(100));
      subject_open(&s, STEPS, false);
      set_ring(&s);
      set_mode(modes[seed % 3]);
      for (uint32_t round = 0; round < 2; round++) {
        REQUIRE_OK(rondo_repeat(s.slot, &(rondo_repeat_options){.count = count}));
        REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
        REQUIRE_OK(rondo_repeat_wait(s.slot, 0, 0, &done));
        cr_assert_eq(done, count);
        require_steps(&s, count, round * count);
      }
      require_state(&s, 2 * count);
      subject_close(&s);
    }
}

/* The replays of the body that follow the stop are computed, and nobody sees them. */
Test(repeat_body, a_stop_within_a_body_leaves_what_the_last_replay_left) {
  for (uint32_t at = 0; at < STEPS - 1; at++)
    for (uint64_t seed = 0; seed < 6; seed++) {
      struct subject s = {0};
      uint32_t before = 0, done = 0;
      driver_setup();
      set_seed(seed * 100 + at);
      subject_open(&s, STEPS, false);
      set_ring(&s);
      set_mode(FAKE_DEFERRED);
      REQUIRE_OK(rondo_repeat(s.slot, &(rondo_repeat_options){.count = STEPS}));
      while (before < at) {
        REQUIRE_OK(rondo_runtime_health(s.runtime));
        REQUIRE_OK(rondo_repeat_wait(s.slot, 0, 0, &before));
      }
      REQUIRE_OK(rondo_repeat_stop(s.slot));
      REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
      REQUIRE_OK(rondo_repeat_wait(s.slot, 0, 0, &done));
      cr_assert(done > before && done <= before + 2, "%u after a stop at %u", done, before);
      require_steps(&s, done, 0);
      cr_assert_null(rondo_repeat_data(s.slot, s.seen, done));
      require_state(&s, done);
      REQUIRE_OK(rondo_repeat(s.slot, &(rondo_repeat_options){.count = BODY + 1}));
      REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
      require_steps(&s, BODY + 1, done + 1);
      subject_close(&s);
    }
}

/* Such a repeat has one replay in the body. */
Test(repeat_body, a_value_ends_it_at_once) {
  struct subject s = {0};
  subject_open(&s, STEPS, false);
  for (int32_t end = 1; end < RING; end++) {
    uint32_t done = 0;
    set_ring(&s);
    REQUIRE_OK(rondo_repeat(
        s.slot, &(rondo_repeat_options){.count = STEPS, .until = s.first, .values = &end, .value_count = 1}));
    REQUIRE_OK(rondo_repeat_wait(s.slot, STEPS, RONDO_FOREVER, &done));
    cr_assert_eq(done, (uint32_t)end);
    require_steps(&s, done, 0);
    require_state(&s, done);
  }
  subject_close(&s);
}

/* The kernels that instantiate adds to graphs. */
static uint64_t nodes_of(uint32_t repeat_steps, bool large) {
  struct subject s = {0};
  driver_setup();
  subject_open(&s, repeat_steps, large);
  const uint64_t nodes = fake->calls("cuGraphAddNode");
  subject_close(&s);
  return nodes;
}

/* Besides, each graph has a replay of six or seven nodes, and a loop with a body of one replay. */
Test(repeat_body, the_body_has_several_replays_if_the_same_one_again_changes_nothing) {
  const uint64_t one = nodes_of(1, false), two = nodes_of(2, false), most = nodes_of(STEPS, false);
  cr_assert_gt(two, one + UINT64_C(2) * 5);
  cr_assert_gt(most, two + UINT64_C(5) * (BODY - 2));
  cr_assert_eq(nodes_of(BODY, false), most);
  cr_assert_eq(nodes_of(STEPS, true), nodes_of(1, true));
}
