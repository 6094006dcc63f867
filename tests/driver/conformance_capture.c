/* conformance_capture.c - the driver's capture of a stream into a graph. */
#include "conformance.h"

static cu_result begin(const struct after *after) {
  return driver.cuStreamBeginCaptureToGraph(stream, graph, after ? after->nodes : NULL, NULL, after ? after->count : 0,
                                            CU_CAPTURE_THREAD_LOCAL);
}

static bool begun(const struct after *after) { return expect("cuStreamBeginCaptureToGraph", begin(after), CU_SUCCESS); }

/* The nodes that the next work would wait for; false, and a verdict, unless there are `count`. */
static bool read_leaves(struct after *leaves, size_t count) {
  int status = -1;
  uint64_t id = 0;
  struct cu_graph *captured = NULL;
  struct cu_graph_node *const *nodes = NULL;
  const struct cu_edge *edges = NULL;
  cu_result result = driver.cuStreamGetCaptureInfo(stream, &status, &id, &captured, &nodes, &edges, &leaves->count);
  if (!expect("cuStreamGetCaptureInfo", result, CU_SUCCESS)) return false;
  if (!expect_number("the capture's status", (uint64_t)status, CU_CAPTURE_ACTIVE)) return false;
  if (captured != graph) fail("expected the graph that is captured to, got another");
  if (!expect_number("the count of leaves", leaves->count, count)) return false;
  for (size_t i = 0; i < count; i++) leaves->nodes[i] = nodes[i];
  return !verdict.failed;
}

static bool ended(void) {
  struct cu_graph *captured = NULL;
  if (!expect("cuStreamEndCapture", driver.cuStreamEndCapture(stream, &captured), CU_SUCCESS)) return false;
  if (captured != graph) fail("expected cuStreamEndCapture to return the graph that was captured to, got another");
  return !verdict.failed;
}

/* A capture is invalid from here on: ends it, and finds the stream and allocation as they were before. The graph is
 * gone: driver 580 answers cuGraphDestroy of it with 1. */
static void expect_spoilt(void) {
  struct cu_graph *captured = graph;
  cu_address memory = 0;
  expect_number("the capture's status", (uint64_t)capture_status(), CAPTURE_INVALIDATED);
  expect("cuStreamEndCapture", driver.cuStreamEndCapture(stream, &captured), CU_CAPTURE_INVALIDATED);
  if (captured) fail("expected no graph from an invalid capture, got one");
  expect_number("the stream's status after the capture", (uint64_t)capture_status(), CAPTURE_NONE);
  expect("cuStreamQuery after the capture", driver.cuStreamQuery(stream), CU_SUCCESS);
  REQUIRE_TRUE(upload(0, 51) && holds(0, 51));
  REQUIRE(cuMemAlloc(&memory, 64));
  REQUIRE(cuMemFree(memory));
  graph = NULL;
}

static bool has_type(struct cu_graph_node *node, int expected) {
  int type = -1;
  return expect("cuGraphNodeGetType", driver.cuGraphNodeGetType(node, &type), CU_SUCCESS) && type == expected;
}

/* A fill and a copy, captured after a node. */
static void capture_becomes_nodes(void) {
  struct after first = {.count = 1}, leaves = {0};
  struct cu_graph_node *nodes[3];
  size_t count = 3;
  expect_number("the stream's status before the capture", (uint64_t)capture_status(), CAPTURE_NONE);
  REQUIRE_TRUE((first.nodes[0] = add_empty(NULL)) && begun(&first));
  REQUIRE(cuMemsetD8Async(piece(0), 1, PIECE_BYTES, stream));
  REQUIRE_TRUE(read_leaves(&leaves, 1));
  if (!has_type(leaves.nodes[0], CU_NODE_MEMSET)) fail("expected the fill as the leaf, got another node");
  REQUIRE(cuMemcpyHtoDAsync(piece(0), host_memory, PIECE_BYTES, stream));
  REQUIRE_TRUE(read_leaves(&leaves, 1));
  if (!has_type(leaves.nodes[0], CU_NODE_MEMCPY)) fail("expected the copy as the leaf, got another node");
  REQUIRE_TRUE(ended());
  REQUIRE_TRUE(expect_number("the stream's status after the capture", (uint64_t)capture_status(), CAPTURE_NONE));
  REQUIRE_TRUE(expect_number("the count of nodes", node_count(), 3));
  REQUIRE(cuGraphGetNodes(graph, nodes, &count));
  for (int type = CU_NODE_MEMCPY; type <= CU_NODE_EMPTY; type++) {
    uint64_t found = 0;
    for (int i = 0; i < 3; i++) found += has_type(nodes[i], type);
    expect_number("the count of nodes of a type", found,
                  type == CU_NODE_MEMCPY || type == CU_NODE_MEMSET || type == CU_NODE_EMPTY);
  }
}

/* Piece 1 is filled, filled again and half of it copied over, between a kernel that writes it and one that reads it. */
static void capture_runs_between_its_kernels(void) {
  struct after first = {.count = 1}, leaves = {0};
  REQUIRE_TRUE((first.nodes[0] = add_copy(0, 1, 1, NULL)) && begun(&first));
  REQUIRE(cuMemsetD8Async(piece(1), 7, PIECE_BYTES, stream));
  REQUIRE(cuMemsetD8Async(piece(1), 9, PIECE_BYTES, stream));
  REQUIRE(cuMemcpyHtoDAsync(piece(1), host_memory, PIECE_BYTES / 2, stream));
  REQUIRE_TRUE(read_leaves(&leaves, 1) && ended() && add_copy(1, 2, 1, &leaves) && instantiated());
  for (uint32_t replay = 0; replay < 3; replay++) {
    REQUIRE_TRUE(upload(0, 60)); /* and host_memory is what a replay copies */
    REQUIRE(cuMemsetD8Async(piece(2), 0, PIECE_BYTES, stream));
    REQUIRE_TRUE(launched() && synchronized());
    REQUIRE(cuMemcpyDtoHAsync(host_memory, piece(2), PIECE_BYTES, stream));
    REQUIRE_TRUE(synchronized());
    for (uint32_t i = 0; i < PIECE_BYTES; i++) {
      int expected = i < PIECE_BYTES / 2 ? pattern(60, i) : 9;
      if (host_memory[i] != expected) fail("expected byte %u to be %d, got %d", i, expected, host_memory[i]);
    }
  }
}

static void capture_does_nothing_yet(void) {
  REQUIRE_TRUE(upload(0, 70) && begun(NULL));
  REQUIRE(cuMemsetD8Async(piece(0), 7, PIECE_BYTES, stream));
  REQUIRE_TRUE(ended() && holds(0, 70));
}

static void capture_of_nothing_has_its_dependencies_as_leaves(void) {
  struct after two = {.nodes = {add_empty(NULL), add_empty(NULL)}, .count = 2}, leaves = {0};
  REQUIRE_TRUE(two.nodes[0] && two.nodes[1] && begun(&two) && read_leaves(&leaves, 2) && ended());
  for (int i = 0; i < 2; i++)
    if (leaves.nodes[0] != two.nodes[i] && leaves.nodes[1] != two.nodes[i])
      fail("expected dependency %d among the leaves, got another node", i);
  expect_number("the count of nodes", node_count(), 2);
}

static void capture_of_nothing_behind_nothing(void) {
  struct after leaves = {0};
  REQUIRE_TRUE(begun(NULL) && read_leaves(&leaves, 0) && ended() && expect_number("nodes", node_count(), 0));
  REQUIRE_TRUE(instantiated() && launched() && synchronized());
}

/* The number is called unique to a capture; NCCL takes it for that of the capture's graph, and so it is. */
static void captures_into_one_graph_have_its_number(void) {
  uint64_t numbers[2] = {0}, other = 0;
  int status = -1;
  for (int i = 0; i < 2; i++) {
    REQUIRE_TRUE(begun(NULL));
    REQUIRE(cuStreamGetCaptureInfo(stream, &status, &numbers[i], NULL, NULL, NULL, NULL));
    REQUIRE_TRUE(ended());
  }
  expect_number("the second capture's number", numbers[1], numbers[0]);
  REQUIRE(cuGraphDestroy(graph));
  REQUIRE(cuGraphCreate(&graph, 0));
  REQUIRE_TRUE(begun(NULL));
  REQUIRE(cuStreamGetCaptureInfo(stream, &status, &other, NULL, NULL, NULL, NULL));
  REQUIRE_TRUE(ended());
  if (other == numbers[0]) fail("expected another number for another graph, got the same");
}

/* A node with a copy of a captured graph, which is destroyed before the launch. */
static void capture_becomes_a_child(void) {
  struct cu_graph *whole = NULL;
  struct cu_graph_node *node;
  struct cu_node_parameters parameters = {.type = CU_NODE_GRAPH};
  REQUIRE_TRUE(upload(0, 70) && begun(NULL));
  REQUIRE(cuMemsetD8Async(piece(0), 7, PIECE_BYTES / 2, stream));
  REQUIRE(cuMemsetD8Async(piece(0) + PIECE_BYTES / 2, 8, PIECE_BYTES / 2, stream));
  REQUIRE_TRUE(ended());
  REQUIRE(cuGraphCreate(&whole, 0));
  parameters.child.graph = graph;
  REQUIRE(cuGraphAddNode(&node, whole, NULL, NULL, 0, &parameters));
  REQUIRE(cuGraphDestroy(graph));
  graph = whole;
  expect_number("the count of nodes", node_count(), 1);
  REQUIRE_TRUE(has_type(node, CU_NODE_GRAPH) && instantiated() && launched() && synchronized());
  REQUIRE(cuMemcpyDtoHAsync(host_memory, piece(0), PIECE_BYTES, stream));
  REQUIRE_TRUE(synchronized());
  for (uint32_t i = 0; i < PIECE_BYTES; i++) {
    const int expected = i < PIECE_BYTES / 2 ? 7 : 8;
    if (host_memory[i] != expected) fail("expected byte %u to be %d, got %d", i, expected, host_memory[i]);
  }
}

/* The documentation calls it an error to synchronise with a stream that captures, or to query it, and names no code for
 * either function; the fake assumes 900. */
static void capture_is_invalid_after_synchronize(void) {
  REQUIRE_TRUE(begun(NULL));
  expect_one_of("cuStreamSynchronize", driver.cuStreamSynchronize(stream),
                ONE_OF(CU_CAPTURE_UNSUPPORTED, CU_CAPTURE_INVALIDATED));
  expect_spoilt();
}

static void capture_is_invalid_after_query(void) {
  REQUIRE_TRUE(begun(NULL));
  expect_one_of("cuStreamQuery", driver.cuStreamQuery(stream), ONE_OF(CU_CAPTURE_UNSUPPORTED, CU_CAPTURE_INVALIDATED));
  expect_spoilt();
}

static void capture_with_nodes_is_invalid_after_synchronize(void) {
  struct after first = {.nodes = {add_empty(NULL)}, .count = 1};
  REQUIRE_TRUE(first.nodes[0] && begun(&first));
  REQUIRE(cuMemsetD8Async(piece(0), 7, PIECE_BYTES, stream));
  expect_one_of("cuStreamSynchronize", driver.cuStreamSynchronize(stream),
                ONE_OF(CU_CAPTURE_UNSUPPORTED, CU_CAPTURE_INVALIDATED));
  expect_one_of("cuMemsetD8Async", driver.cuMemsetD8Async(piece(0), 7, PIECE_BYTES, stream),
                ONE_OF(CU_CAPTURE_INVALIDATED, CU_CAPTURE_UNSUPPORTED));
  expect_spoilt();
}

/* cuMemAlloc is called potentially unsafe in cuThreadExchangeStreamCaptureMode, so on the capturing thread 900. */
static void capture_is_invalid_after_allocation(void) {
  cu_address memory = 0;
  REQUIRE_TRUE(begun(NULL));
  cu_result result = driver.cuMemAlloc(&memory, 64);
  expect_one_of("cuMemAlloc", result, ONE_OF(CU_SUCCESS, CU_CAPTURE_UNSUPPORTED));
  if (result == CU_SUCCESS) {
    REQUIRE_TRUE(ended());
    REQUIRE(cuMemFree(memory));
  } else {
    expect_spoilt();
  }
}

static void *allocate(void *unused) {
  (void)unused;
  struct cu_context *popped;
  cu_address memory = 0;
  cu_result result = driver.cuCtxPushCurrent(context);
  if (result == CU_SUCCESS) result = driver.cuMemAlloc(&memory, 64);
  if (result == CU_SUCCESS) result = driver.cuMemFree(memory);
  driver.cuCtxPopCurrent(&popped);
  expect("allocation on another thread", result, CU_SUCCESS);
  return NULL;
}

static void capture_survives_other_threads(void) {
  REQUIRE_TRUE(begun(NULL));
  on_another_thread(allocate);
  REQUIRE_TRUE(ended());
}

static void *end_capture(void *unused) {
  (void)unused;
  struct cu_graph *captured = NULL;
  struct cu_context *popped;
  if (!expect("cuCtxPushCurrent", driver.cuCtxPushCurrent(context), CU_SUCCESS)) return NULL;
  expect_one_of("cuStreamEndCapture on another thread", driver.cuStreamEndCapture(stream, &captured),
                ONE_OF(CAPTURE_WRONG_THREAD));
  driver.cuCtxPopCurrent(&popped);
  return NULL;
}

/* An end on the wrong thread is refused, and yet the capture is over: driver 580 answers a second end with 401. The
 * graph is left alone, since nothing says whether it is still there. */
static void capture_ends_on_its_thread(void) {
  struct cu_graph *captured = NULL;
  REQUIRE_TRUE(begun(NULL));
  on_another_thread(end_capture);
  expect_one_of("cuStreamEndCapture", driver.cuStreamEndCapture(stream, &captured),
                ONE_OF(ILLEGAL_STATE, CU_CAPTURE_INVALIDATED, CAPTURE_WRONG_THREAD));
  graph = NULL;
}

/* Whether a second beginning breaks the first capture is not said; the fake assumes not. */
static void capture_begins_once(void) {
  struct cu_graph *captured = NULL;
  REQUIRE_TRUE(begun(NULL));
  expect_one_of("cuStreamBeginCaptureToGraph", begin(NULL), ONE_OF(ILLEGAL_STATE, CU_INVALID_VALUE));
  expect_one_of("cuStreamEndCapture", driver.cuStreamEndCapture(stream, &captured),
                ONE_OF(CU_SUCCESS, CU_CAPTURE_INVALIDATED));
}

static void capture_that_has_not_begun(void) {
  struct cu_graph *captured = NULL;
  expect_one_of("cuStreamEndCapture", driver.cuStreamEndCapture(stream, &captured),
                ONE_OF(ILLEGAL_STATE, CU_INVALID_VALUE));
}

/* ---- All of them ------------------------------------------------------------------------------------------------- */

const struct behaviour capture_behaviours[] = {
    {NAMED(capture_becomes_nodes), NOTHING},
    {NAMED(capture_runs_between_its_kernels), KERNELS},
    {NAMED(capture_does_nothing_yet), NOTHING},
    {NAMED(capture_of_nothing_has_its_dependencies_as_leaves), NOTHING},
    {NAMED(capture_of_nothing_behind_nothing), NOTHING},
    {NAMED(captures_into_one_graph_have_its_number), NOTHING},
    {NAMED(capture_becomes_a_child), NOTHING},
    {NAMED(capture_is_invalid_after_synchronize), NOTHING},
    {NAMED(capture_is_invalid_after_query), NOTHING},
    {NAMED(capture_with_nodes_is_invalid_after_synchronize), NOTHING},
    {NAMED(capture_is_invalid_after_allocation), NOTHING},
    {NAMED(capture_survives_other_threads), NOTHING},
    {NAMED(capture_ends_on_its_thread), NOTHING},
    {NAMED(capture_begins_once), NOTHING},
    {NAMED(capture_that_has_not_begun), NOTHING},
    {0},
};
