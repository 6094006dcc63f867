/* test_in_flight.c - a replay on the fake driver between its launch and its end: a task that runs before the launch
 * returns, what closing waits for, and the nodes that may begin before others have ended. */
#include "driver_support.h"

TestSuite(in_flight, .init = driver_setup, .timeout = 120);

/* ---- A task that looks at its own replay ------------------------------------------------------------------------- */

static struct {
  rondo_slot slot;
  rondo_status polled, replayed, released;
  uint32_t runs;
} seen;

static void look(const struct fake_launch *launch) {
  (void)launch;
  if (!seen.slot.exec) return; /* the warm replay */
  seen.polled = rondo_poll(seen.slot);
  seen.runs++;
  if (seen.polled != RONDO_BUSY) return; /* or it would replay itself for ever */
  seen.replayed = rondo_replay(seen.slot);
  seen.released = rondo_release(seen.slot);
}

Test(in_flight, a_replay_that_begins_before_its_launch_returns_is_not_taken_for_done) {
  static const char image[] = "fake image: look";
  rondo_graph *graph = NULL;
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  fake->register_kernel("look", look, 1, (const size_t[]){8});
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  rondo_argument state = {.tensor = add_vector(rondo_state, graph, "state", 4), .access = RONDO_READ_WRITE};
  REQUIRE_OK(rondo_add_kernel(
      graph,
      &(rondo_kernel_desc){
          .image = image, .image_bytes = sizeof image, .function = "look", .arguments = &state, .argument_count = 1}));
  rondo_options options = options_for(graph, RONDO_BACKEND_CUDA, 1);
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
  REQUIRE_OK(rondo_acquire(exec, &seen.slot));
  for (uint32_t i = 1; i <= 3; i++) { /* the fake runs the kernel inside cuGraphLaunch */
    REQUIRE_OK(rondo_replay(seen.slot));
    cr_assert_eq(seen.runs, i);
    cr_assert_eq(seen.polled, RONDO_BUSY);
    cr_assert_eq(seen.replayed, RONDO_BUSY);
    cr_assert_eq(seen.released, RONDO_BUSY);
    REQUIRE_OK(rondo_wait(seen.slot, RONDO_FOREVER));
  }
  REQUIRE_OK(rondo_release(seen.slot));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
  require_clean("after close");
}

/* ---- The node that nobody waits for ------------------------------------------------------------------------------ */

Test(in_flight, an_exec_is_closed_when_its_last_node_has_ended_too) {
  rondo_graph *graph = NULL;
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  rondo_slot slot;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  for (int i = 0; i < 3; i++) /* three ends that publish completion, and a node after them */
    add_copy(graph, "copy", add_vector(rondo_state, graph, "x", 1), add_vector(rondo_state, graph, "y", 1));
  set_mode(FAKE_DEFERRED);
  rondo_options options = options_for(graph, RONDO_BACKEND_CUDA, 1);
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
  REQUIRE_OK(rondo_acquire(exec, &slot));
  REQUIRE_OK(rondo_replay(slot));
  while (rondo_poll(slot) == RONDO_BUSY) {}
  REQUIRE_OK(rondo_release(slot));
  REQUIRE_OK(rondo_close_exec(&exec));
  require_no_violation("after the exec was closed");
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
  require_clean("after close");
}

/* ---- Edges that let the next kernel begin early ------------------------------------------------------------------ */

/* Of a chain: two copies, a kernel of the user's, two copies. */
static uint64_t programmatic_edges(int32_t chip) {
  rondo_graph *graph = NULL;
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  struct fake_settings settings = fake->settings();
  settings.chip = chip;
  fake->configure(&settings);
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  rondo_tensor x[6];
  for (int i = 0; i < 6; i++) x[i] = add_vector(rondo_state, graph, "x", 4);
  for (int i = 0; i < 5; i++)
    if (i == 2)
      add_mix(graph, "mix", x[i], x[i], x[i + 1], 4, 1);
    else
      add_copy(graph, "copy", x[i], x[i + 1]);
  rondo_options options = options_for(graph, RONDO_BACKEND_CUDA, 1);
  REQUIRE_OK(rondo_open(&options, &runtime));
  uint64_t before = fake->programmatic_edges();
  REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
  uint64_t edges = fake->programmatic_edges() - before;
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
  require_clean("after close");
  return edges;
}

Test(in_flight, kernels_begin_early_after_kernels_that_allow_it_and_after_no_others) {
  cr_assert_eq(programmatic_edges(90), 2, "the first copy to the second, the third to the last");
  cr_assert_eq(programmatic_edges(100), 2);
  cr_assert_eq(programmatic_edges(80), 0, "griddepcontrol came with sm_90");
}
