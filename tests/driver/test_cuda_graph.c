/* test_cuda_graph.c - the CUDA backend's graphs on the fake driver, which runs nodes in any order that the edges
 * allow: the result is that of the host backend. A missing edge shows as another result. */
#include <string.h>

#include "driver_support.h"

TestSuite(graph, .init = driver_setup, .timeout = 120);

enum { COUNT = 60, ORDERS = 50, SLOTS = 3, OUTPUTS = 2 };

/* A described graph: one input, one or two outputs, maybe a state. */
struct shape {
  rondo_tensor x, y[OUTPUTS], state;
};

static rondo_tensor temporary(rondo_graph *graph, const char *name) {
  return add_vector(rondo_temporary, graph, name, COUNT);
}

/* ---- Shapes of graphs -------------------------------------------------------------------------------------------- */

static void chain(rondo_graph *graph, struct shape *shape) {
  rondo_tensor last = shape->x;
  for (uint32_t i = 0; i < 12; i++) {
    rondo_tensor next = temporary(graph, "link");
    if (i % 3 == 2)
      add_copy(graph, "copy", last, next);
    else
      add_mix(graph, "mix", last, last, next, COUNT, i);
    last = next;
  }
  add_copy(graph, "last", last, shape->y[0]);
}

static void diamonds(rondo_graph *graph, struct shape *shape) {
  rondo_tensor top = shape->x;
  for (uint32_t i = 0; i < 4; i++) {
    rondo_tensor left = temporary(graph, "left"), right = temporary(graph, "right"),
                 bottom = temporary(graph, "bottom");
    add_mix(graph, "to the left", top, top, left, COUNT, 3 * i);
    add_copy(graph, "to the right", top, right);
    add_mix(graph, "join", left, right, bottom, COUNT, 3 * i + 1);
    top = bottom;
  }
  add_mix(graph, "last", top, shape->x, shape->y[0], COUNT, 100);
}

/* One task, eight side by side that each write a row of one tensor, one that reads it whole. */
static void fan(rondo_graph *graph, struct shape *shape) {
  rondo_tensor root = temporary(graph, "root"), rows, flat = temporary(graph, "flat");
  REQUIRE_OK(rondo_temporary(graph, "rows", RONDO_I32, 2, (int64_t[]){8, COUNT}, &rows));
  add_mix(graph, "root", shape->x, shape->x, root, COUNT, 1);
  for (int64_t i = 0; i < 8; i++) {
    rondo_tensor row;
    REQUIRE_OK(rondo_view(graph, rows, (int64_t[]){i, 0}, (int64_t[]){1, COUNT}, &row));
    add_mix(graph, "worker", root, shape->x, row, COUNT, (uint32_t)i);
  }
  add_mix(graph, "join", rows, rows, flat, COUNT, 7);
  rondo_tensor last_row;
  REQUIRE_OK(rondo_view(graph, rows, (int64_t[]){7, 0}, (int64_t[]){1, COUNT}, &last_row));
  add_mix(graph, "join again", last_row, flat, shape->y[0], COUNT, 8);
}

/* Strided rectangles: a copy of a view into a view. */
static void rectangles(rondo_graph *graph, struct shape *shape) {
  rondo_tensor a, b, from, to;
  REQUIRE_OK(rondo_temporary(graph, "a", RONDO_I32, 2, (int64_t[]){6, 10}, &a));
  REQUIRE_OK(rondo_temporary(graph, "b", RONDO_I32, 2, (int64_t[]){6, 10}, &b));
  add_mix(graph, "fill a", shape->x, shape->x, a, COUNT, 1);
  add_mix(graph, "fill b", shape->x, a, b, COUNT, 2);
  REQUIRE_OK(rondo_view(graph, a, (int64_t[]){1, 3}, (int64_t[]){4, 5}, &from));
  REQUIRE_OK(rondo_view(graph, b, (int64_t[]){2, 4}, (int64_t[]){4, 5}, &to));
  add_copy(graph, "patch", from, to);
  add_mix(graph, "last", b, a, shape->y[0], COUNT, 3);
}

/* A state that every replay reads and writes, in an order that only rondo_after and the accesses give. */
static void counter(rondo_graph *graph, struct shape *shape) {
  shape->state = add_vector(rondo_state, graph, "state", COUNT);
  rondo_tensor next = temporary(graph, "next"), noise = temporary(graph, "noise");
  rondo_task first = add_mix(graph, "noise", shape->x, shape->x, noise, COUNT, 5);
  rondo_task second = add_mix(graph, "step", shape->state, shape->x, next, COUNT, 6);
  REQUIRE_OK(rondo_after(graph, second, first));
  add_copy(graph, "keep", next, shape->state);
  add_mix(graph, "out", shape->state, noise, shape->y[0], COUNT, 7);
}

/* Many short-lived tensors that share bytes: an edge that the plan counts on and the graph lacks shows here. */
static void random_graph(rondo_graph *graph, struct shape *shape) {
  struct random random = {20260711};
  rondo_tensor tensors[40] = {shape->x};
  for (uint32_t i = 1; i < 40; i++) {
    tensors[i] = temporary(graph, "t");
    uint32_t reach = i < 6 ? i : 6;
    rondo_tensor a = tensors[i - 1 - random_bits(&random) % reach], b = tensors[i - 1 - random_bits(&random) % reach];
    if (random_bits(&random) % 4 == 0)
      add_copy(graph, "copy", a, tensors[i]);
    else
      add_mix(graph, "mix", a, b, tensors[i], COUNT, i);
  }
  add_mix(graph, "first out", tensors[39], tensors[38], shape->y[0], COUNT, 1);
  shape->y[1] = add_vector(rondo_output, graph, "second", COUNT);
  add_mix(graph, "second out", tensors[37], tensors[36], shape->y[1], COUNT, 2);
}

/* ---- One graph on both backends ---------------------------------------------------------------------------------- */

typedef void (*describe)(rondo_graph *graph, struct shape *shape);

struct run {
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_slot slots[SLOTS];
};

static void run_open(struct run *run, rondo_graph *graph, rondo_backend backend) {
  rondo_options options = options_for(graph, backend, SLOTS);
  REQUIRE_OK(rondo_open(&options, &run->runtime));
  REQUIRE_OK(rondo_instantiate(run->runtime, graph, &(rondo_exec_options){.slots = SLOTS}, &run->exec));
  for (int s = 0; s < SLOTS; s++) REQUIRE_OK(rondo_acquire(run->exec, &run->slots[s]));
}

/* All slots in flight at once, each with its own input. */
static void run_once(struct run *run, const struct shape *shape, uint32_t round) {
  for (uint32_t s = 0; s < SLOTS; s++) {
    uint32_t *x = rondo_data(run->slots[s], shape->x);
    for (uint32_t i = 0; i < COUNT; i++) x[i] = (round * SLOTS + s) * 1000003 + i * i;
    REQUIRE_OK(rondo_replay(run->slots[s]));
  }
  for (int s = 0; s < SLOTS; s++) REQUIRE_OK(rondo_wait(run->slots[s], RONDO_FOREVER));
}

static void run_close(struct run *run) {
  REQUIRE_OK(rondo_close_exec(&run->exec));
  REQUIRE_OK(rondo_close(&run->runtime));
}

static void require_same(const struct run *host, const struct run *cuda, const struct shape *shape, uint32_t round) {
  for (uint32_t s = 0; s < SLOTS; s++)
    for (int i = 0; i < OUTPUTS && shape->y[i].graph; i++)
      cr_assert_arr_eq(rondo_data(cuda->slots[s], shape->y[i]), rondo_data(host->slots[s], shape->y[i]),
                       COUNT * sizeof(uint32_t), "round %u, slot %u, output %d", round, s, i);
  if (!shape->state.graph) return;
  uint32_t expected[COUNT], got[COUNT];
  REQUIRE_OK(rondo_download(host->exec, shape->state, expected, sizeof expected));
  REQUIRE_OK(rondo_download(cuda->exec, shape->state, got, sizeof got));
  cr_assert_arr_eq(got, expected, sizeof got, "round %u: the state", round);
}

static void require_same_in_all_orders(describe describe, enum fake_mode mode) {
  rondo_graph *graph = NULL;
  struct shape shape = {0};
  struct run host, cuda;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  shape.x = add_vector(rondo_input, graph, "x", COUNT);
  shape.y[0] = add_vector(rondo_output, graph, "y", COUNT);
  describe(graph, &shape);
  set_mode(mode);
  run_open(&host, graph, RONDO_BACKEND_HOST);
  run_open(&cuda, graph, RONDO_BACKEND_CUDA);
  /* A deferred device takes a millisecond for a node: each slot has an order of its own there too. */
  const uint32_t rounds = mode == FAKE_DEFERRED ? ORDERS / SLOTS : ORDERS;
  for (uint32_t round = 0; round < rounds; round++) {
    set_seed(round);
    run_once(&host, &shape, round);
    run_once(&cuda, &shape, round);
    require_same(&host, &cuda, &shape, round);
  }
  run_close(&host);
  run_close(&cuda);
  REQUIRE_OK(rondo_graph_destroy(&graph));
  require_clean("after close");
}

Test(graph, a_chain_runs_in_its_order) { require_same_in_all_orders(chain, FAKE_IMMEDIATE); }
Test(graph, diamonds_join_in_every_order) { require_same_in_all_orders(diamonds, FAKE_IMMEDIATE); }
Test(graph, a_fan_of_eight_joins_in_every_order) { require_same_in_all_orders(fan, FAKE_IMMEDIATE); }
Test(graph, rectangles_conflict_where_they_overlap) { require_same_in_all_orders(rectangles, FAKE_IMMEDIATE); }
Test(graph, a_state_passes_from_replay_to_replay) { require_same_in_all_orders(counter, FAKE_IMMEDIATE); }
Test(graph, shared_bytes_survive_every_order) { require_same_in_all_orders(random_graph, FAKE_IMMEDIATE); }
Test(graph, completion_waits_for_every_output) { require_same_in_all_orders(random_graph, FAKE_DEFERRED); }
Test(graph, a_device_that_runs_while_it_is_asked_gives_the_same) { require_same_in_all_orders(fan, FAKE_DEFERRED); }
Test(graph, a_device_that_runs_by_itself_gives_the_same) { require_same_in_all_orders(random_graph, FAKE_THREAD); }
Test(graph, a_state_passes_on_a_device_that_runs_by_itself) { require_same_in_all_orders(counter, FAKE_THREAD); }

/* That the test above can fail: the orders do differ, and side by side means side by side. */
Test(graph, independent_tasks_run_in_different_orders) {
  rondo_graph *graph = NULL;
  struct shape shape = {0};
  struct run cuda;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  shape.x = add_vector(rondo_input, graph, "x", COUNT);
  shape.y[0] = add_vector(rondo_output, graph, "y", COUNT);
  fan(graph, &shape);
  run_open(&cuda, graph, RONDO_BACKEND_CUDA);
  enum { NODES = 13 }; /* copy in, root, 8 workers, 2 joins, copy out, which publishes completion */
  uint32_t orders[ORDERS][64];
  int different = 0;
  for (uint32_t round = 0; round < ORDERS; round++) {
    run_once(&cuda, &shape, round);
    cr_assert_eq(fake->node_order(orders[round], 64), NODES);
    bool seen = false;
    for (uint32_t other = 0; other < round; other++)
      seen = seen || !memcmp(orders[other], orders[round], NODES * sizeof(uint32_t));
    different += !seen;
  }
  cr_assert_gt(different, ORDERS / 2, "only %d orders", different);
  run_close(&cuda);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

/* Four inputs that two tasks each read, four outputs: all tasks side by side between one node that moves the inputs and
 * one that moves the outputs and publishes completion. */
static void require_moved_together(enum fake_mode mode) {
  enum { IO = 4, NODES = 1 + IO + 1 };
  static const uint32_t counts[IO] = {1, 60, 1025, 3000}; /* seven blocks of 4 KB */
  rondo_graph *graph = NULL;
  rondo_tensor x[IO], y[IO];
  struct run host, cuda;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  for (int i = 0; i < IO; i++) {
    x[i] = add_vector(rondo_input, graph, "x", counts[i]);
    y[i] = add_vector(rondo_output, graph, "y", counts[i]);
  }
  for (uint32_t i = 0; i < IO; i++) add_mix(graph, "mix", x[i ? i - 1 : IO - 1], x[i], y[i], counts[i ? i - 1 : 0], i);
  set_mode(mode);
  run_open(&host, graph, RONDO_BACKEND_HOST);
  run_open(&cuda, graph, RONDO_BACKEND_CUDA);
  for (uint32_t round = 0; round < ORDERS; round++) {
    set_seed(round);
    for (int s = 0; s < SLOTS; s++) {
      for (int i = 0; i < IO; i++)
        for (uint32_t j = 0; j < counts[i]; j++)
          ((uint32_t *)rondo_data(host.slots[s], x[i]))[j] = ((uint32_t *)rondo_data(cuda.slots[s], x[i]))[j] =
              (round * SLOTS + (uint32_t)s) * 1000003 + j * (uint32_t)(i + 1);
      REQUIRE_OK(rondo_replay(host.slots[s]));
      REQUIRE_OK(rondo_replay(cuda.slots[s]));
    }
    for (int s = 0; s < SLOTS; s++) {
      REQUIRE_OK(rondo_wait(host.slots[s], RONDO_FOREVER));
      REQUIRE_OK(rondo_wait(cuda.slots[s], RONDO_FOREVER));
      for (int i = 0; i < IO; i++)
        cr_assert_arr_eq(rondo_data(cuda.slots[s], y[i]), rondo_data(host.slots[s], y[i]),
                         counts[i ? i - 1 : 0] * sizeof(uint32_t), "round %u, slot %d, output %d", round, s, i);
    }
    uint32_t order[64];
    cr_assert_eq(fake->node_order(order, 64), NODES);
  }
  run_close(&host);
  run_close(&cuda);
  REQUIRE_OK(rondo_graph_destroy(&graph));
  require_clean("after close");
}

Test(graph, small_inputs_and_outputs_move_together) { require_moved_together(FAKE_IMMEDIATE); }
Test(graph, completion_waits_for_outputs_that_move_together) { require_moved_together(FAKE_DEFERRED); }

/* Copies side by side, of so many blocks each. */
static void require_nodes(uint32_t copies, uint32_t blocks, uint32_t nodes) {
  enum { BLOCK = 1024 }; /* u32 */
  rondo_graph *graph = NULL;
  struct run cuda;
  uint32_t order[64];
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  for (uint32_t i = 0; i < copies; i++)
    add_copy(graph, "copy", add_vector(rondo_state, graph, "x", blocks * BLOCK),
             add_vector(rondo_state, graph, "y", blocks * BLOCK));
  run_open(&cuda, graph, RONDO_BACKEND_CUDA);
  for (int round = 0; round < 3; round++)
    for (int s = 0; s < SLOTS; s++) {
      REQUIRE_OK(rondo_replay(cuda.slots[s]));
      REQUIRE_OK(rondo_wait(cuda.slots[s], RONDO_FOREVER));
      cr_assert_eq(fake->node_order(order, 64), nodes, "%u copies of %u blocks", copies, blocks);
    }
  run_close(&cuda);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(graph, up_to_eight_blocks_publish_completion_and_a_node_does_for_more) {
  require_nodes(1, 1, 1);
  require_nodes(1, 8, 1);
  require_nodes(1, 9, 1 + 1);
  require_nodes(2, 2, 2 + 1);
  require_nodes(3, 2, 1 + 3 + 1);
  require_nodes(8, 1, 1 + 8 + 1);
}

Test(graph, a_replay_is_done_when_all_its_ends_are) {
  rondo_graph *graph = NULL;
  struct run cuda;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  for (int i = 0; i < 3; i++)
    add_copy(graph, "copy", add_vector(rondo_state, graph, "x", 1), add_vector(rondo_state, graph, "y", 1));
  set_mode(FAKE_DEFERRED);
  run_open(&cuda, graph, RONDO_BACKEND_CUDA);
  REQUIRE_OK(rondo_replay(cuda.slots[0]));
  int polls = 0; /* each of which asks the driver, and so lets it take one step */
  while (rondo_poll(cuda.slots[0]) == RONDO_BUSY) polls++;
  cr_assert_eq(polls, 1 + 3, "a node in front and the three; nobody waits for the node behind them");
  run_close(&cuda);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

/* An empty task at the end cannot publish; what it waits for must be done nevertheless. */
Test(graph, a_replay_is_done_when_what_an_empty_end_waits_for_is) {
  for (uint32_t round = 0; round < ORDERS; round++) {
    rondo_graph *graph = NULL;
    rondo_task first, empty;
    struct run cuda;
    REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
    add_copy(graph, "first", add_vector(rondo_state, graph, "x", 1), add_vector(rondo_state, graph, "y", 1));
    REQUIRE_OK(rondo_last_task(graph, &first));
    add_copy(graph, "empty", add_vector(rondo_state, graph, "x", 0), add_vector(rondo_state, graph, "y", 0));
    REQUIRE_OK(rondo_last_task(graph, &empty));
    REQUIRE_OK(rondo_after(graph, empty, first));
    add_copy(graph, "beside", add_vector(rondo_state, graph, "x", 1), add_vector(rondo_state, graph, "y", 1));
    set_mode(FAKE_DEFERRED);
    set_seed(round);
    run_open(&cuda, graph, RONDO_BACKEND_CUDA);
    REQUIRE_OK(rondo_replay(cuda.slots[0]));
    int polls = 0;
    while (rondo_poll(cuda.slots[0]) == RONDO_BUSY) polls++;
    cr_assert_eq(polls, 4, "round %u: the three and the node behind them take a step each, not %d", round, polls);
    run_close(&cuda);
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
}

/* ---- What a replay costs ----------------------------------------------------------------------------------------- */

Test(graph, a_replay_is_one_launch_and_the_context_around_it) {
  enum { REPLAYS = 100 };
  rondo_graph *graph = NULL;
  struct shape shape = {0};
  struct run cuda;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  shape.x = add_vector(rondo_input, graph, "x", COUNT);
  shape.y[0] = add_vector(rondo_output, graph, "y", COUNT);
  diamonds(graph, &shape);
  run_open(&cuda, graph, RONDO_BACKEND_CUDA);
  uint64_t all = fake->calls(NULL), launches = fake->calls("cuGraphLaunch");
  uint64_t context = fake->calls("cuCtxPushCurrent") + fake->calls("cuCtxPopCurrent");
  for (int i = 0; i < REPLAYS; i++) {
    REQUIRE_OK(rondo_replay(cuda.slots[i % SLOTS]));
    REQUIRE_OK(rondo_wait(cuda.slots[i % SLOTS], RONDO_FOREVER));
  }
  all = fake->calls(NULL) - all;
  launches = fake->calls("cuGraphLaunch") - launches;
  context = fake->calls("cuCtxPushCurrent") + fake->calls("cuCtxPopCurrent") - context;
  cr_assert_eq(launches, REPLAYS);
  cr_assert_eq(all, launches + context);
  cr_assert_leq(context, UINT64_C(2) * REPLAYS);
  run_close(&cuda);
  REQUIRE_OK(rondo_graph_destroy(&graph));
  require_clean("after close");
}

Test(graph, everything_is_instantiated_before_the_first_replay) {
  rondo_graph *graph = NULL;
  struct shape shape = {0};
  struct run cuda;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  shape.x = add_vector(rondo_input, graph, "x", COUNT);
  shape.y[0] = add_vector(rondo_output, graph, "y", COUNT);
  chain(graph, &shape);
  run_open(&cuda, graph, RONDO_BACKEND_CUDA);
  REQUIRE_OK(rondo_graph_destroy(&graph)); /* the exec needs it no more */
  cr_assert_eq(fake->calls("cuGraphInstantiateWithParams"), SLOTS);
  cr_assert_eq(fake->calls("cuGraphLaunch"), SLOTS, "one warm replay of each slot");
  cr_assert_gt(fake->calls("cuFuncLoad"), 0);
  run_close(&cuda);
  cr_assert_eq(fake->calls("cuGraphCreate"), fake->calls("cuGraphDestroy"));
  require_clean("after close");
}

Test(graph, without_a_warm_up_nothing_is_launched_before_the_first_replay_and_kernels_are_loaded_all_the_same) {
  rondo_graph *graph = NULL;
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  rondo_slot slot;
  struct shape shape = {0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  shape.x = add_vector(rondo_input, graph, "x", COUNT);
  shape.y[0] = add_vector(rondo_output, graph, "y", COUNT);
  chain(graph, &shape);
  rondo_options options = options_for(graph, RONDO_BACKEND_CUDA, 1);
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.without_warm_up = 1}, &exec));
  uint64_t loads = fake->calls("cuFuncLoad");
  cr_assert_eq(fake->calls("cuGraphLaunch"), 0);
  cr_assert_gt(loads, 0);
  REQUIRE_OK(rondo_acquire(exec, &slot));
  for (uint64_t replay = 1; replay <= 3; replay++) {
    REQUIRE_OK(rondo_replay(slot));
    REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
    cr_assert_eq(fake->calls("cuGraphLaunch"), replay);
  }
  cr_assert_eq(fake->calls("cuFuncLoad"), loads);
  REQUIRE_OK(rondo_release(slot));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
  require_clean("after close");
}
