/* conformance_graph.c - the driver's graphs: nodes, edges and replays. */
#include <string.h>

#include "../../runtime/doorbell.h"
#include "../../runtime/repeat_control.h"
#include "conformance.h"

/* ---- Nodes ------------------------------------------------------------------------------------------------------- */

/* The documentation names CUDA_ERROR_INVALID_VALUE and _NOT_SUPPORTED for cuGraphAddNode, and does not say what is
 * looked at there and what by cuGraphInstantiateWithParams. The fake assumes 1, by cuGraphAddNode, in all cases. */
static void expect_refused(const char *what, struct cu_node_parameters *parameters, struct cu_graph_node *const *nodes,
                           const struct cu_edge *edges, size_t count) {
  const char *by = "cuGraphAddNode";
  size_t before = node_count();
  struct cu_graph_node *node = NULL;
  cu_result result = driver.cuGraphAddNode(&node, graph, nodes, edges, count, parameters);
  if (result != CU_SUCCESS) {
    expect_number("the count of nodes after a refused one", node_count(), before);
  } else {
    by = "cuGraphInstantiateWithParams";
    result = instantiate();
  }
  answer("%s%s%d by %s", what, *what ? " " : "", (int)result, by);
  if (!is_one_of(result, ONE_OF(CU_INVALID_VALUE, CU_INVALID_HANDLE, OUT_OF_RESOURCES, NOT_SUPPORTED)))
    fail("expected 1, 400, 701 or 801 for %s, got %d by %s", *what ? what : "it", (int)result, by);
}

/* The fake assumes 1, for a NULL only; 400 for a handle that was one. */
static void node_in_no_graph(void) {
  struct cu_node_parameters parameters = empty_node();
  struct cu_graph_node *node = NULL;
  expect_one_of("cuGraphAddNode", driver.cuGraphAddNode(&node, NULL, NULL, NULL, 0, &parameters),
                ONE_OF(CU_INVALID_VALUE, CU_INVALID_HANDLE));
}

static void node_of_an_unknown_type(void) {
  struct cu_node_parameters parameters = empty_node();
  parameters.type = 99;
  expect_refused("", &parameters, NULL, NULL, 0);
}

/* "Any unused bytes must be set to zero": whether they are looked at is not said. The fake assumes so. */
static void node_with_unused_bytes(void) {
  struct cu_node_parameters parameters = empty_node();
  struct cu_graph_node *node = NULL;
  parameters.padding[28] = 1;
  expect_one_of("cuGraphAddNode", driver.cuGraphAddNode(&node, graph, NULL, NULL, 0, &parameters),
                ONE_OF(CU_SUCCESS, CU_INVALID_VALUE));
}

static void node_with_a_dependency_twice(void) {
  struct cu_graph_node *first = add_empty(NULL);
  struct cu_graph_node *twice[] = {first, first};
  struct cu_node_parameters parameters = empty_node();
  if (first) expect_refused("", &parameters, twice, NULL, 2);
}

static void node_behind_two(void) {
  struct after two = {.nodes = {add_empty(NULL), add_empty(NULL)}, .count = 2};
  REQUIRE_TRUE(two.nodes[0] && two.nodes[1] && add_empty(&two) && instantiated());
  REQUIRE_TRUE(launched() && synchronized());
}

static void nodes_are_listed(void) {
  struct cu_graph_node *nodes[5], *added[3];
  size_t count = 5;
  int type = -1;
  for (int i = 0; i < 3; i++) REQUIRE_TRUE((added[i] = add_empty(NULL)));
  expect_number("the count of nodes", node_count(), 3);
  for (int i = 0; i < 5; i++) nodes[i] = added[0];
  REQUIRE(cuGraphGetNodes(graph, nodes, &count));
  expect_number("the count of nodes with room for more", count, 3);
  if (nodes[3] || nodes[4]) fail("expected NULL behind the last node, got something else");
  for (int i = 0; i < 3; i++)
    if (nodes[0] != added[i] && nodes[1] != added[i] && nodes[2] != added[i]) fail("expected node %d, got none", i);
  count = 2;
  nodes[2] = NULL;
  REQUIRE(cuGraphGetNodes(graph, nodes, &count));
  expect_number("the count of nodes with room for two", count, 2);
  if (nodes[2]) fail("expected two nodes, got a third");
  REQUIRE(cuGraphNodeGetType(added[0], &type));
  expect_number("the type of an empty node", (uint64_t)type, CU_NODE_EMPTY);
}

static void node_without_a_child(void) {
  struct cu_graph *child = NULL;
  struct cu_graph_node *node = add_empty(NULL);
  if (node)
    expect("cuGraphChildGraphNodeGetGraph", driver.cuGraphChildGraphNodeGetGraph(node, &child), CU_INVALID_VALUE);
}

/* A copy's kernel node, changed so that it should not pass. */
static void expect_kernel_refused(uint32_t blocks, uint32_t threads, uint32_t shared_bytes) {
  struct copy_parameters copy = copy_of(0, 1, 1);
  void *arguments[] = {&copy};
  struct cu_node_parameters parameters = kernel_node(copy_kernel, threads, arguments);
  parameters.kernel.grid[0] = blocks;
  parameters.kernel.shared_bytes = shared_bytes;
  expect_refused("", &parameters, NULL, NULL, 0);
}

static void kernel_node_without_blocks(void) { expect_kernel_refused(0, COPY_THREADS, 0); }
static void kernel_node_without_threads(void) { expect_kernel_refused(1, 0, 0); }
static void kernel_node_of_2048_threads(void) { expect_kernel_refused(1, 2048, 0); }
static void kernel_node_beyond_its_shared_memory(void) { expect_kernel_refused(1, COPY_THREADS, 65536); }

/* ---- Edges ------------------------------------------------------------------------------------------------------- */

/* An edge that should not pass, between two nodes that are kernels or not. */
static void expect_edge_refused(bool from_kernel, bool to_kernel, struct cu_edge edge) {
  struct copy_parameters copy = copy_of(1, 2, 1);
  void *arguments[] = {&copy};
  struct cu_node_parameters to = to_kernel ? kernel_node(copy_kernel, COPY_THREADS, arguments) : empty_node();
  struct cu_graph_node *from = from_kernel ? add_copy(0, 1, 1, NULL) : add_empty(NULL);
  if (from) expect_refused("", &to, &from, &edge, 1);
}

/* "It may only be used between kernel nodes", with the port for it. */
static void programmatic_edge_from_an_empty_node(void) { expect_edge_refused(false, true, programmatic_edge); }
static void programmatic_edge_to_an_empty_node(void) { expect_edge_refused(true, false, programmatic_edge); }
static void programmatic_edge_from_the_full_port(void) {
  expect_edge_refused(true, true, (struct cu_edge){.type = CU_EDGE_PROGRAMMATIC});
}
static void edge_from_an_unknown_port(void) { expect_edge_refused(true, true, (struct cu_edge){.from_port = 7}); }
static void edge_from_a_port_of_an_empty_node(void) {
  expect_edge_refused(false, false, (struct cu_edge){.from_port = 1});
}
static void edge_to_an_unknown_port(void) { expect_edge_refused(true, true, (struct cu_edge){.to_port = 1}); }
static void edge_of_an_unknown_type(void) { expect_edge_refused(true, true, (struct cu_edge){.type = 99}); }
static void edge_with_a_reserved_byte(void) { expect_edge_refused(true, true, (struct cu_edge){.reserved = {1}}); }

/* ---- Replays ----------------------------------------------------------------------------------------------------- */

static void graph_without_nodes(void) { REQUIRE_TRUE(instantiated() && launched() && launched() && synchronized()); }

static void run_chain(bool programmatic) {
  enum { LENGTH = 8, ROUNDS = 10 };
  struct after before = {.programmatic = programmatic};
  for (uint32_t i = 0; i < LENGTH; i++) {
    struct cu_graph_node *node = add_copy(i, i + 1, 1, i ? &before : NULL);
    REQUIRE_TRUE(node);
    before.nodes[0] = node;
    before.count = 1;
  }
  REQUIRE_TRUE(instantiated());
  for (uint32_t round = 0; round < ROUNDS && !verdict.failed; round++)
    REQUIRE_TRUE(upload(0, round) && launched() && holds(LENGTH, round));
}

static void chain_with_full_edges(void) { run_chain(false); }
static void chain_with_programmatic_edges(void) { run_chain(true); }

/* From piece 0 to 1, from there to 2 and to 3, and both to 4 and 5. */
static void run_diamond(bool programmatic) {
  enum { ROUNDS = 10 };
  struct after top = {.count = 1, .programmatic = programmatic}, sides = {.count = 2, .programmatic = programmatic};
  REQUIRE_TRUE((top.nodes[0] = add_copy(0, 1, 1, NULL)));
  REQUIRE_TRUE((sides.nodes[0] = add_copy(1, 2, 1, &top)));
  REQUIRE_TRUE((sides.nodes[1] = add_copy(1, 3, 1, &top)));
  REQUIRE_TRUE(add_copy(2, 4, 2, &sides) && instantiated());
  for (uint32_t round = 0; round < ROUNDS; round++)
    REQUIRE_TRUE(upload(0, 100 + round) && launched() && holds(4, 100 + round) && holds(5, 100 + round));
}

static void diamond_with_full_edges(void) { run_diamond(false); }
static void diamond_with_programmatic_edges(void) { run_diamond(true); }

/* Each replay moves pieces 0 to 6 on by one. */
static void replays_follow_each_other(void) {
  enum { RING = 8, REPLAYS = 5 };
  struct after first = {.count = 1};
  for (uint32_t i = 0; i < RING; i++) REQUIRE_TRUE(upload(i, i));
  REQUIRE_TRUE((first.nodes[0] = add_copy(0, RING, RING - 1, NULL)));
  REQUIRE_TRUE(add_copy(RING, 1, RING - 1, &first) && instantiated());
  for (uint32_t i = 0; i < REPLAYS; i++) REQUIRE_TRUE(launched());
  for (uint32_t i = 0; i < RING; i++) REQUIRE_TRUE(holds(i, i < REPLAYS ? 0 : i - REPLAYS));
}

static cu_address counts(void) { return piece(PIECES); }
static uint64_t *words(void) { return (uint64_t *)(void *)(host_memory + PIECE_BYTES); }

static struct cu_graph_node *add_done(const struct after *after) {
  struct completion done = {(uint64_t *)(uintptr_t)counts(), words()};
  void *arguments[] = {&done};
  struct cu_node_parameters parameters = kernel_node(done_kernel, 1, arguments);
  return add(&parameters, after);
}

static bool zero_counts(void) {
  memset(words(), 0, COUNTS_BYTES);
  return expect("cuMemsetD8Async", driver.cuMemsetD8Async(counts(), 0, COUNTS_BYTES, stream), CU_SUCCESS) &&
         synchronized();
}

/* Ten replays, each of which must raise the count of each block by one. */
static void expect_counts(uint32_t blocks) {
  uint64_t count[COMPLETION_WORDS];
  for (uint64_t replay = 1; replay <= 10; replay++) {
    REQUIRE_TRUE(launched() && synchronized());
    for (uint32_t i = 0; i < COMPLETION_WORDS; i++)
      REQUIRE_TRUE(expect_number("the completion word", __atomic_load_n(&words()[i], __ATOMIC_ACQUIRE),
                                 i < blocks ? replay : 0));
  }
  REQUIRE(cuMemcpyDtoHAsync(host_memory, counts(), sizeof count, stream));
  REQUIRE_TRUE(synchronized());
  memcpy(count, host_memory, sizeof count);
  for (uint32_t i = 0; i < COMPLETION_WORDS; i++) expect_number("the device's count", count[i], i < blocks ? 10 : 0);
}

static void completion_by_its_own_kernel(void) {
  struct after copy = {.count = 1};
  REQUIRE_TRUE(zero_counts() && (copy.nodes[0] = add_copy(0, 1, 1, NULL)) && add_done(&copy) && instantiated());
  expect_counts(1);
}

/* By several blocks. And cuGraphAddNode copies a kernel's parameters: what becomes of the caller's does not matter. */
static void completion_by_the_last_kernel(void) {
  struct copy_parameters copy = copy_of(0, 1, 1);
  copy.done = (struct completion){(uint64_t *)(uintptr_t)counts(), words()};
  void *arguments[] = {&copy};
  struct cu_node_parameters parameters = kernel_node(copy_kernel, COPY_THREADS, arguments);
  parameters.kernel.grid[0] = 4;
  REQUIRE_TRUE(zero_counts() && add(&parameters, NULL));
  memset(&copy, 0, sizeof copy);
  arguments[0] = NULL;
  REQUIRE_TRUE(instantiated());
  expect_counts(4);
}

enum { LOOP_STEPS = 3, OUTPUT_BYTES = 256, OUTPUTS_AT = 256, PLACES_AT = 512 };

static struct repeat_control *control(void) { return (struct repeat_control *)(void *)host_memory; }

/* Its last kernel ends the loop in word 0, and a kernel before it counts the steps in word 1. */
static bool add_body(uint64_t condition, bool is_programmatic) {
  struct completion count = {(uint64_t *)(uintptr_t)counts() + 1, words() + 1};
  struct repeat_parameters step = {
      .done = {(uint64_t *)(uintptr_t)counts(), words()},
      .repeat = {control(), host_memory + OUTPUTS_AT, host_memory + PLACES_AT, OUTPUT_BYTES},
      .condition = condition,
      .word_count = 1};
  struct cu_node_parameters first = kernel_node(done_kernel, 1, (void *[]){&count});
  struct cu_node_parameters last = kernel_node(repeat_kernel, 32, (void *[]){&step});
  struct after after = {.nodes = {add(&first, NULL)}, .count = 1, .programmatic = is_programmatic};
  return after.nodes[0] && add(&last, &after);
}

static bool has_repeat_kernel(void) {
  if (!repeat_kernel) fail("rondo_repeat_step: expected a kernel that the driver loads, as it loads rondo_point");
  return repeat_kernel != NULL;
}

/* The loop's body becomes `graph`. */
static bool add_loop(uint64_t condition, const struct after *after) {
  struct cu_node_parameters loop = empty_node();
  loop.type = CU_NODE_CONDITIONAL;
  loop.conditional =
      (struct cu_conditional_node){.handle = condition, .type = CU_CONDITION_WHILE, .size = 1, .context = context};
  if (!add(&loop, after)) return false;
  graph = loop.conditional.bodies[0];
  return true;
}

static void run_loop(bool is_programmatic) {
  REQUIRE_TRUE(has_repeat_kernel());
  uint64_t condition = 0;
  struct cu_graph *outer = graph;
  REQUIRE(cuGraphConditionalHandleCreate(&condition, graph, context, 1, CU_CONDITION_ASSIGN_DEFAULT));
  REQUIRE_TRUE(zero_counts() && add_loop(condition, NULL));
  const bool is_whole = add_body(condition, is_programmatic);
  graph = outer;
  REQUIRE_TRUE(is_whole && instantiated());
  for (uint64_t replay = 1; replay <= 10; replay++) {
    *control() = (struct repeat_control){.count = LOOP_STEPS};
    REQUIRE_TRUE(launched() && synchronized());
    REQUIRE_TRUE(expect_number("the steps of a loop", repeat_done(control()), LOOP_STEPS));
    REQUIRE_TRUE(expect_number("the completion word", __atomic_load_n(&words()[0], __ATOMIC_ACQUIRE), replay));
    REQUIRE_TRUE(expect_number("all steps", __atomic_load_n(&words()[1], __ATOMIC_ACQUIRE), LOOP_STEPS * replay));
  }
}

static void loop_with_full_edges(void) { run_loop(false); }
static void loop_with_programmatic_edges(void) { run_loop(true); }

/* ---- Kernels that others turn off -------------------------------------------------------------------------------- */

enum {
  BELLS = 2,
  BELL_AT = 3072,
  HANDLES_AT = 4096,
  STATE_AT = 2
}; /* bytes of host memory; states behind the counts */
static_assert((STATE_AT + 1) * sizeof(struct doorbell_state) <= COUNTS_BYTES, "the state fits");

static struct doorbell *bell(void) { return (struct doorbell *)(void *)(host_memory + BELL_AT); }

static struct cu_graph_node *add_bell(const struct doorbell_parameters *parameters, const struct after *after) {
  struct doorbell_parameters copy = *parameters;
  struct cu_node_parameters node = kernel_node(bell_kernel, 32, (void *[]){&copy});
  return add(&node, after);
}

/* A kernel that counts, and that the bell before it may turn off. */
static struct cu_graph_node *add_rung(uint64_t *handle, const struct after *after) {
  struct completion count = {(uint64_t *)(uintptr_t)counts(), words()};
  struct cu_node_parameters parameters = kernel_node(done_kernel, 1, (void *[]){&count});
  struct cu_node_attribute attribute = {.is_updatable = 1};
  struct cu_graph_node *node = add(&parameters, after);
  if (!node ||
      !expect("cuGraphKernelNodeSetAttribute",
              driver.cuGraphKernelNodeSetAttribute(node, CU_NODE_ATTRIBUTE_DEVICE_UPDATABLE, &attribute), CU_SUCCESS) ||
      !expect("cuGraphKernelNodeGetAttribute",
              driver.cuGraphKernelNodeGetAttribute(node, CU_NODE_ATTRIBUTE_DEVICE_UPDATABLE, &attribute), CU_SUCCESS))
    return NULL;
  *handle = attribute.handle;
  return node;
}

static bool add_bells(uint64_t condition, bool is_programmatic) {
  uint64_t *handles = (uint64_t *)(void *)(host_memory + HANDLES_AT);
  struct cu_graph *outer = graph;
  struct doorbell_parameters parameters = {.bell = bell(),
                                           .state = (struct doorbell_state *)(uintptr_t)counts() + STATE_AT,
                                           .nodes = handles,
                                           .loop = condition,
                                           .is_before_loop = 1};
  struct after after = {.nodes = {add_bell(&parameters, NULL)}, .count = 1};
  bool is_whole = after.nodes[0] && add_loop(condition, &after);
  after = (struct after){.programmatic = is_programmatic};
  parameters.is_before_loop = 0;
  for (uint32_t i = 0; i < BELLS && is_whole; i++) {
    parameters.first = i;
    after.nodes[0] = add_bell(&parameters, i ? &after : NULL), after.count = 1;
    after.nodes[0] = after.nodes[0] ? add_rung(&handles[i], &after) : NULL;
    is_whole = after.nodes[0];
  }
  graph = outer;
  return is_whole;
}

/* Each replay is a turn that is over before it begins, with some rings. */
static void run_bells(bool is_programmatic) {
  static const uint64_t rings[] = {1, 0, 2, 3, 1, 4, 0, 5};
  uint64_t condition = 0, sum = 0;
  if (!bell_kernel) fail("rondo_await_bell: expected a kernel that the driver loads, as it loads rondo_point");
  REQUIRE_TRUE(bell_kernel);
  REQUIRE(cuGraphConditionalHandleCreate(&condition, graph, context, 1, CU_CONDITION_ASSIGN_DEFAULT));
  REQUIRE_TRUE(zero_counts() && add_bells(condition, is_programmatic));
  *bell() = (struct doorbell){.node_count = BELLS};
  REQUIRE_TRUE(instantiated());
  for (size_t i = 0; i < sizeof rings / sizeof *rings; i++) {
    sum += rings[i];
    bell()->word += 2 * doorbell_turn + rings[i];
    REQUIRE_TRUE(launched() && synchronized());
    REQUIRE_TRUE(expect_number("the word of the end", doorbell_left(bell()), bell()->word));
    REQUIRE_TRUE(expect_number("all replays", __atomic_load_n(&words()[0], __ATOMIC_ACQUIRE), sum));
  }
}

static void nodes_turned_off_with_full_edges(void) { run_bells(false); }
static void nodes_turned_off_with_programmatic_edges(void) { run_bells(true); }

/* ---- Lifetimes --------------------------------------------------------------------------------------------------- */

static void replay_after_its_graph(void) {
  REQUIRE_TRUE(upload(0, 41) && add_copy(0, 1, 1, NULL) && instantiated());
  cu_result result = driver.cuGraphDestroy(graph);
  graph = NULL;
  REQUIRE_TRUE(expect("cuGraphDestroy", result, CU_SUCCESS));
  REQUIRE_TRUE(launched() && holds(1, 41));
  REQUIRE_TRUE(upload(0, 42) && launched() && holds(1, 42));
}

static void graph_destroyed_in_a_replay(void) {
  REQUIRE_TRUE(upload(0, 43) && add_copy(0, 1, 1, NULL) && instantiated() && launched());
  cu_result result = driver.cuGraphDestroy(graph);
  graph = NULL;
  REQUIRE_TRUE(expect("cuGraphDestroy", result, CU_SUCCESS) && holds(1, 43));
}

static void exec_destroyed_after_its_replay(void) {
  REQUIRE_TRUE(add_copy(0, 1, 1, NULL) && instantiated() && launched() && synchronized());
  cu_result result = driver.cuGraphExecDestroy(exec);
  exec = NULL;
  expect("cuGraphExecDestroy", result, CU_SUCCESS);
}

static void query_of_an_idle_stream(void) {
  expect("cuStreamQuery", driver.cuStreamQuery(stream), CU_SUCCESS);
  expect("cuStreamSynchronize", driver.cuStreamSynchronize(stream), CU_SUCCESS);
  expect("cuStreamQuery", driver.cuStreamQuery(stream), CU_SUCCESS);
}

/* Which of the two it is is a matter of time, so the answer is not printed. */
static void query_after_a_launch(void) {
  REQUIRE_TRUE(add_copy(0, 7, 7, NULL) && instantiated() && launched());
  cu_result result = driver.cuStreamQuery(stream);
  if (result != CU_SUCCESS) expect("cuStreamQuery", result, CU_NOT_READY);
  REQUIRE_TRUE(synchronized());
  expect("cuStreamQuery after cuStreamSynchronize", driver.cuStreamQuery(stream), CU_SUCCESS);
}

/* ---- All of them ------------------------------------------------------------------------------------------------- */

const struct behaviour graph_behaviours[] = {
    {NAMED(node_in_no_graph), NOTHING},
    {NAMED(node_of_an_unknown_type), NOTHING},
    {NAMED(node_with_unused_bytes), NOTHING},
    {NAMED(node_with_a_dependency_twice), NOTHING},
    {NAMED(node_behind_two), NOTHING},
    {NAMED(nodes_are_listed), NOTHING},
    {NAMED(node_without_a_child), NOTHING},
    {NAMED(kernel_node_without_blocks), KERNELS},
    {NAMED(kernel_node_without_threads), KERNELS},
    {NAMED(kernel_node_of_2048_threads), KERNELS},
    {NAMED(kernel_node_beyond_its_shared_memory), KERNELS},
    {NAMED(programmatic_edge_from_an_empty_node), OVERLAP},
    {NAMED(programmatic_edge_to_an_empty_node), OVERLAP},
    {NAMED(programmatic_edge_from_the_full_port), OVERLAP},
    {NAMED(edge_from_an_unknown_port), KERNELS},
    {NAMED(edge_from_a_port_of_an_empty_node), NOTHING},
    {NAMED(edge_to_an_unknown_port), KERNELS},
    {NAMED(edge_of_an_unknown_type), KERNELS},
    {NAMED(edge_with_a_reserved_byte), KERNELS},
    {NAMED(graph_without_nodes), NOTHING},
    {NAMED(chain_with_full_edges), KERNELS},
    {NAMED(chain_with_programmatic_edges), OVERLAP},
    {NAMED(diamond_with_full_edges), KERNELS},
    {NAMED(diamond_with_programmatic_edges), OVERLAP},
    {NAMED(replays_follow_each_other), KERNELS},
    {NAMED(completion_by_its_own_kernel), KERNELS},
    {NAMED(completion_by_the_last_kernel), KERNELS},
    {NAMED(loop_with_full_edges), LOOPS},
    {NAMED(loop_with_programmatic_edges), LOOPS_OVERLAP},
    {NAMED(nodes_turned_off_with_full_edges), LOOPS},
    {NAMED(nodes_turned_off_with_programmatic_edges), LOOPS_OVERLAP},
    {NAMED(replay_after_its_graph), KERNELS},
    {NAMED(graph_destroyed_in_a_replay), KERNELS},
    {NAMED(exec_destroyed_after_its_replay), KERNELS},
    {NAMED(query_of_an_idle_stream), NOTHING},
    {NAMED(query_after_a_launch), KERNELS},
    {0},
};
