/* conformance_lanes.c - the driver's parts of a device, and events between streams. */
#include "conformance.h"

enum { GROUPS = 64, INVALID_CONFIGURATION = 915 };

/* ---- Splitting --------------------------------------------------------------------------------------------------- */

static struct cu_resource all, groups[GROUPS], remainder;
static unsigned group_count;

static bool split(void) {
  group_count = GROUPS;
  return expect("cuDeviceGetDevResource", driver.cuDeviceGetDevResource(0, &all, CU_RESOURCE_MULTIPROCESSORS), 0) &&
         expect(
             "cuDevSmResourceSplitByCount",
             driver.cuDevSmResourceSplitByCount(groups, &group_count, &all, &remainder, 0, all.multiprocessors.least),
             0);
}

static void device_is_split_into_equal_groups_and_a_rest(void) {
  uint32_t sum = 0;
  REQUIRE_TRUE(split());
  for (unsigned i = 0; i < group_count; i++) {
    sum += groups[i].multiprocessors.count;
    expect_number("the type of a group", (uint64_t)groups[i].type, CU_RESOURCE_MULTIPROCESSORS);
    expect_number("the size of a group", groups[i].multiprocessors.count, groups[0].multiprocessors.count);
  }
  if (remainder.type == CU_RESOURCE_MULTIPROCESSORS) sum += remainder.multiprocessors.count;
  expect_number("groups and rest together", sum, all.multiprocessors.count);
  answer("%u groups of %u, of %u", group_count, groups[0].multiprocessors.count, all.multiprocessors.count);
}

static void group_is_not_split_again(void) {
  struct cu_resource part, rest;
  unsigned count = 1;
  REQUIRE_TRUE(split());
  expect("cuDevSmResourceSplitByCount of a group",
         driver.cuDevSmResourceSplitByCount(&part, &count, &groups[0], &rest, 0, groups[0].multiprocessors.count),
         INVALID_CONFIGURATION);
  count = 1;
  expect("cuDevSmResourceSplitByCount of more than there is",
         driver.cuDevSmResourceSplitByCount(&part, &count, &all, &rest, 0, all.multiprocessors.count + 1),
         INVALID_CONFIGURATION);
}

/* ---- In a part of the device ------------------------------------------------------------------------------------- */

static struct cu_green_context *make_part(struct cu_resource *resources, unsigned count) {
  struct cu_resource_description *description = NULL;
  struct cu_green_context *green = NULL;
  if (!expect("cuDevResourceGenerateDesc", driver.cuDevResourceGenerateDesc(&description, resources, count), 0) ||
      !expect("cuGreenCtxCreate", driver.cuGreenCtxCreate(&green, description, 0, CU_GREEN_DEFAULT_STREAM), 0))
    return NULL;
  return green;
}

/* With `stream` and `context` those of a part of two groups; the primary context is the current one. What the body made
 * is destroyed before them. */
static struct cu_stream *primary_stream;
static void in_a_part(void (*body)(void)) {
  struct cu_context *primary = context;
  struct cu_stream *part_stream = NULL;
  REQUIRE_TRUE(split());
  struct cu_green_context *green = make_part(groups, 2);
  REQUIRE_TRUE(green != NULL);
  primary_stream = stream;
  if (expect("cuCtxFromGreenCtx", driver.cuCtxFromGreenCtx(&context, green), 0) &&
      expect("cuGreenCtxStreamCreate", driver.cuGreenCtxStreamCreate(&part_stream, green, CU_STREAM_NON_BLOCKING, 0),
             0)) {
    stream = part_stream;
    body();
    synchronized();
    if (exec) expect("cuGraphExecDestroy", driver.cuGraphExecDestroy(exec), 0);
    if (graph) expect("cuGraphDestroy", driver.cuGraphDestroy(graph), 0);
    exec = NULL;
    graph = NULL;
    stream = primary_stream;
    expect("cuStreamDestroy", driver.cuStreamDestroy(part_stream), 0);
  }
  context = primary;
  expect("cuGreenCtxDestroy", driver.cuGreenCtxDestroy(green), 0);
  expect("cuStreamQuery of a primary stream afterwards", driver.cuStreamQuery(stream), 0);
}

static void copy_through(bool programmatic) {
  struct after first = {.count = 1, .programmatic = programmatic};
  REQUIRE_TRUE(upload(0, 80) && upload(1, 81) && upload(2, 82));
  first.nodes[0] = add_copy(0, 1, 1, NULL);
  REQUIRE_TRUE(first.nodes[0] && add_copy(1, 2, 1, &first) && instantiated() && launched() && synchronized() &&
               holds(2, 80));
}

static void copy_with_full_edges(void) { copy_through(false); }
static void copy_with_programmatic_edges(void) { copy_through(true); }
static void part_runs_its_kernels(void) { in_a_part(copy_with_full_edges); }
static void part_runs_programmatic_edges(void) { in_a_part(copy_with_programmatic_edges); }

/* The node's context says where it runs, the stream when. */
static void launch_elsewhere(void) {
  copy_through(false);
  REQUIRE_TRUE(upload(0, 83));
  REQUIRE(cuGraphLaunch(exec, primary_stream));
  REQUIRE(cuStreamSynchronize(primary_stream));
  REQUIRE_TRUE(holds(2, 83));
}

static void part_runs_its_kernels_in_another_stream(void) { in_a_part(launch_elsewhere); }

static void change_parameters(void) {
  struct copy_parameters copy = copy_of(0, 1, 1), other = copy_of(0, 3, 1);
  void *arguments[] = {&copy};
  struct cu_node_parameters parameters = kernel_node(copy_kernel, COPY_THREADS, arguments);
  REQUIRE_TRUE(upload(0, 84) && upload(3, 85));
  struct cu_graph_node *node = add(&parameters, NULL);
  REQUIRE_TRUE(node && instantiated());
  arguments[0] = &other;
  REQUIRE(cuGraphExecKernelNodeSetParams(exec, node, &parameters.kernel));
  REQUIRE_TRUE(launched() && synchronized() && holds(3, 84));
}

static void part_lets_parameters_change(void) { in_a_part(change_parameters); }

static void capture_a_fill(void) {
  struct cu_graph *captured = NULL;
  REQUIRE_TRUE(upload(0, 86) && upload(1, 87));
  struct cu_graph_node *node = add_copy(0, 1, 1, NULL);
  REQUIRE(cuStreamBeginCaptureToGraph(stream, graph, &node, NULL, 1, CU_CAPTURE_THREAD_LOCAL));
  REQUIRE(cuMemsetD8Async(piece(1), 9, 16, stream));
  REQUIRE(cuStreamEndCapture(stream, &captured));
  REQUIRE_TRUE(instantiated() && launched() && synchronized());
  REQUIRE(cuMemcpyDtoHAsync(host_memory, piece(1), PIECE_BYTES, stream));
  REQUIRE_TRUE(synchronized());
  expect_number("a filled byte", host_memory[15], 9);
  expect_number("a copied byte", host_memory[16], pattern(86, 16));
}

static void part_captures(void) { in_a_part(capture_a_fill); }

/* ---- Events ------------------------------------------------------------------------------------------------------ */

/* What the primary stream does waits for this stream, and the other way round. */
static void order_streams(void) {
  struct cu_event *event = NULL;
  REQUIRE_TRUE(upload(0, 90) && upload(1, 91) && upload(8, 92));
  REQUIRE_TRUE(add_copy(0, 1, 1, NULL) && instantiated());
  REQUIRE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  expect("cuEventQuery of what nobody has recorded", driver.cuEventQuery(event), CU_SUCCESS);
  REQUIRE(cuStreamWaitEvent(stream, event, 0)); /* that nobody has recorded */
  REQUIRE(cuGraphLaunch(exec, stream));
  REQUIRE(cuEventRecord(event, stream));
  REQUIRE(cuStreamWaitEvent(primary_stream, event, 0));
  REQUIRE(cuMemsetD8Async(piece(0), 1, PIECE_BYTES, primary_stream)); /* after the copy has read it */
  REQUIRE(cuEventRecord(event, primary_stream));
  REQUIRE(cuStreamWaitEvent(stream, event, 0));
  REQUIRE(cuMemcpyDtoHAsync(host_memory, piece(0), PIECE_BYTES, stream));
  REQUIRE_TRUE(synchronized());
  expect("cuEventQuery of what has ended", driver.cuEventQuery(event), CU_SUCCESS);
  expect_number("a byte after the fill", host_memory[77], 1);
  REQUIRE_TRUE(holds(1, 90));
  REQUIRE(cuEventDestroy(event));
}

static void events_order_a_part_and_the_rest(void) { in_a_part(order_streams); }

static void events_order_two_streams(void) {
  REQUIRE(cuStreamCreateWithPriority(&primary_stream, CU_STREAM_NON_BLOCKING, 0));
  order_streams();
  expect("cuStreamDestroy", driver.cuStreamDestroy(primary_stream), 0);
}

/* ---- The list of nodes ------------------------------------------------------------------------------------------- */

/* Nothing promises it; Rondo names a task by it, and no more. */
static void nodes_are_listed_in_the_order_of_their_adding(void) {
  struct cu_graph_node *nodes[40], *listed[40];
  size_t count = 40;
  for (int i = 0; i < 40; i++) {
    struct after before = {.nodes = {i > 2 ? nodes[i - 3] : NULL}, .count = i > 2};
    nodes[i] = add_empty(&before);
    REQUIRE_TRUE(nodes[i] != NULL);
  }
  REQUIRE(cuGraphGetNodes(graph, listed, &count));
  for (int i = 0; i < 40; i++)
    if (listed[i] != nodes[i]) fail("expected node %d at its place, got another", i);
}

/* ---- All of them ------------------------------------------------------------------------------------------------- */

const struct behaviour lane_behaviours[] = {
    {NAMED(device_is_split_into_equal_groups_and_a_rest), PARTS},
    {NAMED(group_is_not_split_again), PARTS},
    {NAMED(part_runs_its_kernels), PARTS},
    {NAMED(part_runs_programmatic_edges), OVERLAP},
    {NAMED(part_runs_its_kernels_in_another_stream), PARTS},
    {NAMED(part_lets_parameters_change), PARTS},
    {NAMED(part_captures), PARTS},
    {NAMED(events_order_two_streams), KERNELS},
    {NAMED(events_order_a_part_and_the_rest), PARTS},
    {NAMED(nodes_are_listed_in_the_order_of_their_adding), NOTHING},
    {0},
};
