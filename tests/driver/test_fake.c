/* test_fake.c - the fake driver itself: it forgives no more than a driver does, and a missing edge shows. */
#include <string.h>

#include "../../runtime/cuda/driver.h"
#include "driver_support.h"

static struct driver driver;
static struct cu_context *context;
static struct cu_stream *stream;
static struct cu_library *library;

static void setup(void) {
  driver_setup();
  REQUIRE_OK(driver_load(&driver));
  cr_assert_eq(driver.cuDevicePrimaryCtxRetain(&context, 0), CU_SUCCESS);
  cr_assert_eq(driver.cuCtxPushCurrent(context), CU_SUCCESS);
  cr_assert_eq(driver.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CU_SUCCESS);
  cr_assert_eq(driver.cuLibraryLoadData(&library, mix_image, NULL, NULL, 0, NULL, NULL, 0), CU_SUCCESS);
}

TestSuite(fake, .init = setup, .timeout = 60);

static void teardown(void) {
  cr_assert_eq(driver.cuLibraryUnload(library), CU_SUCCESS);
  cr_assert_eq(driver.cuStreamDestroy(stream), CU_SUCCESS);
  cr_assert_eq(driver.cuCtxPopCurrent(&context), CU_SUCCESS);
  cr_assert_eq(driver.cuDevicePrimaryCtxRelease(0), CU_SUCCESS);
}

static struct cu_kernel *load_mix(void) {
  struct cu_kernel *kernel;
  struct cu_function *function;
  cr_assert_eq(driver.cuLibraryGetKernel(&kernel, library, "mix"), CU_SUCCESS);
  cr_assert_eq(driver.cuKernelGetFunction(&function, kernel), CU_SUCCESS);
  cr_assert_eq(driver.cuFuncLoad(function), CU_SUCCESS);
  return kernel;
}

/* *number = 31 *number + 17 *number + salt. */
static struct cu_graph_node *add_step(struct cu_graph *graph, uint64_t number, uint32_t salt,
                                      struct cu_graph_node *after) {
  uint32_t count = 1;
  void *parameters[] = {&number, &number, &number, &count, &salt};
  struct cu_node_parameters node;
  memset(&node, 0, sizeof node);
  node.type = CU_NODE_KERNEL;
  node.kernel =
      (struct cu_kernel_node){.kernel = load_mix(), .grid = {1, 1, 1}, .block = {1, 1, 1}, .parameters = parameters};
  struct cu_graph_node *added = NULL;
  cr_assert_eq(driver.cuGraphAddNode(&added, graph, &after, NULL, after ? 1 : 0, &node), CU_SUCCESS);
  return added;
}

/* Two steps on one number, run 50 times in orders of their own: how many results are there? */
static int count_results(bool with_edge) {
  uint64_t number;
  struct cu_graph *graph;
  cr_assert_eq(driver.cuMemAlloc(&number, 4), CU_SUCCESS);
  cr_assert_eq(driver.cuGraphCreate(&graph, 0), CU_SUCCESS);
  struct cu_graph_node *first = add_step(graph, number, 1, NULL);
  add_step(graph, number, 2, with_edge ? first : NULL);
  struct cu_instantiate_parameters parameters = {.flags = CU_INSTANTIATE_UPLOAD, .upload_stream = stream};
  struct cu_graph_exec *exec;
  cr_assert_eq(driver.cuGraphInstantiateWithParams(&exec, graph, &parameters), CU_SUCCESS);
  cr_assert_eq(driver.cuGraphDestroy(graph), CU_SUCCESS); /* execs live on */
  bool seen_12 = false, seen_21 = false;
  for (int run = 0; run < 50; run++) {
    uint32_t result;
    cr_assert_eq(driver.cuMemsetD8Async(number, 0, 4, stream), CU_SUCCESS);
    cr_assert_eq(driver.cuGraphLaunch(exec, stream), CU_SUCCESS);
    cr_assert_eq(driver.cuMemcpyDtoHAsync(&result, number, 4, stream), CU_SUCCESS);
    cr_assert_eq(driver.cuStreamSynchronize(stream), CU_SUCCESS);
    cr_assert(result == 48 * 1 + 2 || result == 48 * 2 + 1, "%u", result);
    seen_12 = seen_12 || result == 48 * 1 + 2;
    seen_21 = seen_21 || result == 48 * 2 + 1;
  }
  cr_assert_eq(driver.cuGraphExecDestroy(exec), CU_SUCCESS);
  cr_assert_eq(driver.cuMemFree(number), CU_SUCCESS);
  return seen_12 + seen_21;
}

Test(fake, a_missing_edge_shows_and_an_edge_holds) {
  cr_assert_eq(count_results(true), 1);
  cr_assert_eq(count_results(false), 2);
  teardown();
  require_clean("after the runs");
}

Test(fake, deferred_work_runs_a_step_at_each_question) {
  set_mode(FAKE_DEFERRED);
  uint64_t number;
  cr_assert_eq(driver.cuMemAlloc(&number, 4), CU_SUCCESS);
  cr_assert_eq(driver.cuMemsetD8Async(number, 1, 4, stream), CU_SUCCESS);
  cr_assert_eq(driver.cuMemsetD8Async(number, 2, 4, stream), CU_SUCCESS);
  cr_assert_neq(*(unsigned char *)(uintptr_t)number, 1, "ran at once");
  cr_assert_eq(driver.cuStreamQuery(stream), CU_NOT_READY);
  cr_assert_eq(*(unsigned char *)(uintptr_t)number, 1);
  cr_assert_eq(driver.cuStreamQuery(stream), CU_NOT_READY);
  cr_assert_eq(*(unsigned char *)(uintptr_t)number, 2);
  cr_assert_eq(driver.cuStreamQuery(stream), CU_SUCCESS);
}

Test(fake, an_exec_may_be_in_flight_more_than_once) {
  enum { LAUNCHES = 3 };
  uint64_t number;
  struct cu_graph *graph;
  struct cu_graph_exec *exec;
  uint32_t result, expected = 0;
  set_mode(FAKE_DEFERRED);
  cr_assert_eq(driver.cuMemAlloc(&number, 4), CU_SUCCESS);
  cr_assert_eq(driver.cuGraphCreate(&graph, 0), CU_SUCCESS);
  add_step(graph, number, 1, NULL);
  struct cu_instantiate_parameters parameters = {.flags = CU_INSTANTIATE_UPLOAD, .upload_stream = stream};
  cr_assert_eq(driver.cuGraphInstantiateWithParams(&exec, graph, &parameters), CU_SUCCESS);
  cr_assert_eq(driver.cuGraphDestroy(graph), CU_SUCCESS);
  cr_assert_eq(driver.cuMemsetD8Async(number, 0, 4, stream), CU_SUCCESS);
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < LAUNCHES; i++, expected = 48 * expected + 1)
      cr_assert_eq(driver.cuGraphLaunch(exec, stream), CU_SUCCESS);
    cr_assert_eq(driver.cuMemcpyDtoHAsync(&result, number, 4, stream), CU_SUCCESS);
    cr_assert_eq(driver.cuStreamSynchronize(stream), CU_SUCCESS);
    cr_assert_eq(result, expected);
  }
  cr_assert_eq(driver.cuGraphExecDestroy(exec), CU_SUCCESS);
  cr_assert_eq(driver.cuMemFree(number), CU_SUCCESS);
  teardown();
  require_clean("after the runs");
}

static void require_violation(const char *fragment) {
  char text[1024];
  cr_assert_eq(fake->violations(text, sizeof text), 1, "%s", text);
  cr_assert(strstr(text, fragment), "'%s' does not contain '%s'", text, fragment);
}

Test(fake, a_handle_is_dead_after_its_end) {
  struct cu_graph *graph;
  cr_assert_eq(driver.cuGraphCreate(&graph, 0), CU_SUCCESS);
  cr_assert_eq(driver.cuGraphDestroy(graph), CU_SUCCESS);
  cr_assert_eq(driver.cuGraphDestroy(graph), CU_INVALID_HANDLE);
  require_violation("has ended");
}

Test(fake, handles_are_not_mistaken_for_each_other) {
  cr_assert_eq(driver.cuGraphDestroy((struct cu_graph *)stream), CU_INVALID_HANDLE);
  require_violation("is no graph");
}

Test(fake, memory_is_freed_once) {
  uint64_t memory;
  cr_assert_eq(driver.cuMemAlloc(&memory, 100), CU_SUCCESS);
  cr_assert_eq(driver.cuMemFree(memory), CU_SUCCESS);
  cr_assert_eq(driver.cuMemFree(memory), CU_INVALID_VALUE);
  require_violation("is not allocated");
}

Test(fake, copies_stay_in_their_memory) {
  uint64_t memory;
  char bytes[101] = {0};
  cr_assert_eq(driver.cuMemAlloc(&memory, 100), CU_SUCCESS);
  cr_assert_eq(driver.cuMemcpyHtoDAsync(memory, bytes, 101, stream), CU_INVALID_VALUE);
  require_violation("are not all allocated");
}

Test(fake, unused_bytes_of_a_node_are_zero) {
  struct cu_graph *graph;
  struct cu_graph_node *node;
  struct cu_node_parameters parameters;
  memset(&parameters, 0, sizeof parameters);
  parameters.type = CU_NODE_EMPTY;
  parameters.padding[28] = 1;
  cr_assert_eq(driver.cuGraphCreate(&graph, 0), CU_SUCCESS);
  cr_assert_eq(driver.cuGraphAddNode(&node, graph, NULL, NULL, 0, &parameters), CU_INVALID_VALUE);
  require_violation("an unused byte is not zero");
}

Test(fake, a_dependency_is_named_once) {
  struct cu_graph *graph;
  struct cu_graph_node *node;
  struct cu_node_parameters parameters;
  memset(&parameters, 0, sizeof parameters);
  parameters.type = CU_NODE_EMPTY;
  cr_assert_eq(driver.cuGraphCreate(&graph, 0), CU_SUCCESS);
  cr_assert_eq(driver.cuGraphAddNode(&node, graph, NULL, NULL, 0, &parameters), CU_SUCCESS);
  struct cu_graph_node *twice[] = {node, node};
  cr_assert_eq(driver.cuGraphAddNode(&node, graph, twice, NULL, 2, &parameters), CU_INVALID_VALUE);
  require_violation("named twice");
}

static struct cu_node_parameters loop_of(uint64_t handle) {
  struct cu_node_parameters parameters;
  memset(&parameters, 0, sizeof parameters);
  parameters.type = CU_NODE_CONDITIONAL;
  parameters.conditional = (struct cu_conditional_node){.handle = handle, .type = CU_CONDITION_WHILE, .size = 1};
  return parameters;
}

Test(fake, a_conditional_handle_is_of_its_graph_and_of_one_node) {
  struct cu_graph *graphs[2];
  struct cu_graph_node *node;
  uint64_t handle;
  for (int i = 0; i < 2; i++) cr_assert_eq(driver.cuGraphCreate(&graphs[i], 0), CU_SUCCESS);
  cr_assert_eq(driver.cuGraphConditionalHandleCreate(&handle, graphs[0], NULL, 1, 2), CU_INVALID_VALUE);
  cr_assert_eq(driver.cuGraphConditionalHandleCreate(&handle, graphs[0], NULL, 1, 1), CU_SUCCESS);
  struct cu_node_parameters parameters = loop_of(handle);
  cr_assert_eq(driver.cuGraphAddNode(&node, graphs[0], NULL, NULL, 0, &parameters), CU_SUCCESS);
  cr_assert_not_null(parameters.conditional.bodies[0]);
  parameters = loop_of(handle);
  cr_assert_eq(driver.cuGraphAddNode(&node, graphs[0], NULL, NULL, 0, &parameters), CU_INVALID_VALUE);
  require_violation("another graph's, or another node's");
}

Test(fake, a_conditional_handle_has_a_node) {
  struct cu_graph *graph;
  struct cu_graph_exec *exec;
  uint64_t handle;
  struct cu_instantiate_parameters parameters = {.flags = CU_INSTANTIATE_UPLOAD, .upload_stream = stream};
  cr_assert_eq(driver.cuGraphCreate(&graph, 0), CU_SUCCESS);
  cr_assert_eq(driver.cuGraphConditionalHandleCreate(&handle, graph, NULL, 1, 1), CU_SUCCESS);
  cr_assert_eq(driver.cuGraphInstantiateWithParams(&exec, graph, &parameters), CU_SUCCESS);
  require_violation("a conditional handle has no node");
}

Test(fake, a_context_must_be_current) {
  uint64_t memory;
  cr_assert_eq(driver.cuCtxPopCurrent(&context), CU_SUCCESS);
  cr_assert_neq(driver.cuMemAlloc(&memory, 100), CU_SUCCESS);
  require_violation("without a current context");
}

Test(fake, what_is_left_is_told) {
  char text[256];
  uint64_t memory;
  cr_assert_eq(driver.cuMemAlloc(&memory, 100), CU_SUCCESS);
  cr_assert_eq(fake->live(text, sizeof text), 4, "%s", text); /* context, stream, library, memory */
  cr_assert(strstr(text, "100 bytes of device memory"), "%s", text);
  cr_assert_eq(fake->context_depth(), 1);
}

Test(fake, the_chosen_call_fails_and_no_other) {
  int count = 0;
  fake->fail_call(2, 999);
  cr_assert_eq(driver.cuDeviceGetCount(&count), CU_SUCCESS);
  cr_assert_null(fake->failed_call());
  cr_assert_eq((int)driver.cuDeviceGetCount(&count), 999);
  cr_assert_str_eq(fake->failed_call(), "cuDeviceGetCount");
  cr_assert_eq(driver.cuDeviceGetCount(&count), CU_SUCCESS);
}

Test(fake, a_sticky_error_sticks_and_calls_after_it_are_noticed) {
  fake->fail_call(1, CU_ILLEGAL_ADDRESS);
  cr_assert_eq(driver.cuStreamQuery(stream), CU_ILLEGAL_ADDRESS);
  char text[256];
  cr_assert_eq(fake->violations(text, sizeof text), 0);
  cr_assert_eq(driver.cuStreamSynchronize(stream), CU_ILLEGAL_ADDRESS);
  require_violation("cuStreamSynchronize after the device was lost");
}
