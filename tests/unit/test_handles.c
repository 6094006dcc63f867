/* test_handles.c - a handle whose object is gone is refused, even if a new object has the same address. Host backend.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "../../runtime/exec.h"
#include "../support.h"
#include "lone_task.h"

static rondo_runtime *open_host(void) {
  rondo_runtime *runtime = NULL;
  REQUIRE_OK(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_HOST,
                                         .device_bytes = 1 << 20,
                                         .pinned_bytes = 1 << 20,
                                         .host_bytes = 1 << 20,
                                         .host_threads = 1},
                        &runtime));
  return runtime;
}

/* out := in, of so many bytes. */
struct copy {
  rondo_graph *graph;
  rondo_tensor in, out;
};

static struct copy describe(rondo_runtime *runtime, int64_t bytes) {
  struct copy c = {0};
  REQUIRE_OK(rondo_graph_create(runtime, &(rondo_graph_limits){.tensors = 4, .tasks = 2}, &c.graph));
  REQUIRE_OK(rondo_input(c.graph, "in", RONDO_U8, 1, &bytes, &c.in));
  REQUIRE_OK(rondo_output(c.graph, "out", RONDO_U8, 1, &bytes, &c.out));
  REQUIRE_OK(rondo_add_copy(c.graph, &(rondo_copy_desc){.src = c.in, .dst = c.out}));
  return c;
}

static void require_refused(rondo_slot slot, rondo_tensor in, const char *why) {
  REQUIRE_ERROR(rondo_replay(slot), RONDO_INVALID_STATE, why);
  REQUIRE_ERROR(rondo_poll(slot), RONDO_INVALID_STATE, why);
  REQUIRE_ERROR(rondo_wait(slot, RONDO_FOREVER), RONDO_INVALID_STATE, why);
  REQUIRE_ERROR(rondo_rebind(slot, in, NULL), RONDO_INVALID_STATE, why);
  REQUIRE_ERROR(rondo_profile(slot, NULL, NULL, 0, NULL), RONDO_INVALID_STATE, why);
  REQUIRE_ERROR(rondo_release(slot), RONDO_INVALID_STATE, why);
  cr_assert_null(rondo_data(slot, in));
  cr_assert(strstr(rondo_error_text(), why));
}

Test(handles, a_slot_of_a_closed_exec_is_refused_by_the_next_exec_at_its_address) {
  rondo_runtime *runtime = open_host();
  struct copy c = describe(runtime, 1000);
  rondo_exec *first = NULL, *second = NULL;
  rondo_slot old, new;
  REQUIRE_OK(rondo_instantiate(runtime, c.graph, NULL, &first));
  REQUIRE_OK(rondo_acquire(first, &old));
  rondo_exec *address = first;
  REQUIRE_OK(rondo_close_exec(&first));
  require_refused(old, c.in, "exec is closed");
  REQUIRE_OK(rondo_instantiate(runtime, c.graph, NULL, &second));
  cr_assert_eq(second, address, "the test is about an exec at the same address");
  require_refused(old, c.in, "exec is closed");
  REQUIRE_OK(rondo_acquire(second, &new)); /* the same index and lease as the old one's */
  require_refused(old, c.in, "exec is closed");
  require_refused((rondo_slot){.exec = second, .index = new.index, .lease = new.lease}, c.in, "exec is closed");
  REQUIRE_OK(rondo_release(new));
  require_refused(new, c.in, "was released");
  REQUIRE_OK(rondo_close_exec(&second));
  REQUIRE_OK(rondo_graph_destroy(&c.graph));
  REQUIRE_OK(rondo_close(&runtime));
}

/* Whatever else lies there now: zeros, ones, or what was there before. */
Test(handles, a_slot_of_a_closed_exec_is_refused_whatever_lies_at_its_address) {
  enum { BYTES = 64 * 1024 };
  rondo_runtime *runtime = open_host();
  struct copy c = describe(NULL, 1000);
  const int step = 255 / (int)rounds_here(255); /* from zeros to ones */
  for (int round = 0; round < 256; round += step) {
    rondo_exec *exec = NULL;
    rondo_slot slot;
    void *memory = NULL;
    REQUIRE_OK(rondo_instantiate(runtime, c.graph, NULL, &exec));
    REQUIRE_OK(rondo_acquire(exec, &slot));
    REQUIRE_OK(rondo_close_exec(&exec));
    REQUIRE_OK(memory_take((struct memory_source){.runtime = runtime}, BYTES, "a test", &memory));
    cr_assert((unsigned char *)slot.exec >= (unsigned char *)memory &&
              (unsigned char *)slot.exec < (unsigned char *)memory + BYTES);
    require_refused(slot, c.in, "exec is closed");
    memset(memory, round, BYTES);
    require_refused(slot, c.in, "exec is closed");
    rondo_exec *pointer = slot.exec;
    REQUIRE_ERROR(rondo_acquire(pointer, &slot), RONDO_INVALID_STATE, "exec is closed");
    REQUIRE_ERROR(rondo_close_exec(&pointer), RONDO_INVALID_STATE, "exec is closed");
    memory_give((struct memory_source){.runtime = runtime}, memory, BYTES);
  }
  REQUIRE_OK(rondo_graph_destroy(&c.graph));
  REQUIRE_OK(rondo_close(&runtime));
}

/* Graphs of a runtime, so that the second lies where the first lay. */
Test(handles, a_tensor_is_of_its_own_graph_and_not_of_the_next_at_its_address) {
  rondo_runtime *runtime = open_host();
  struct copy large = describe(runtime, 4000);
  rondo_exec *exec = NULL;
  rondo_slot slot;
  REQUIRE_OK(rondo_instantiate(runtime, large.graph, NULL, &exec));
  REQUIRE_OK(rondo_acquire(exec, &slot));
  rondo_graph *address = large.graph;
  REQUIRE_OK(rondo_graph_destroy(&large.graph));
  REQUIRE_ERROR(rondo_tensor_bytes(large.in, &(uint64_t){0}), RONDO_INVALID_STATE, "destroyed");
  struct copy small = describe(runtime, 16);
  cr_assert_eq(small.graph, address, "the test is about a graph at the same address");
  cr_assert_null(rondo_data(slot, small.in));
  cr_assert_not_null(strstr(rondo_error_text(), "another graph"));
  cr_assert_not_null(rondo_data(slot, large.in), "an exec takes its own graph's tensors when that is gone");
  REQUIRE_ERROR(rondo_rebind(slot, small.in, NULL), RONDO_INVALID_ARGUMENT, "another graph");
  REQUIRE_OK(rondo_rebind(slot, large.in, NULL));

  rondo_tensor view;
  const int64_t offset = 0, extent = 8;
  REQUIRE_ERROR(rondo_tensor_bytes(large.in, &(uint64_t){0}), RONDO_INVALID_STATE, "destroyed");
  REQUIRE_ERROR(rondo_view(small.graph, large.in, &offset, &extent, &view), RONDO_INVALID_ARGUMENT, "another graph");
  REQUIRE_ERROR(rondo_add_copy(small.graph, &(rondo_copy_desc){.src = large.in, .dst = small.out}),
                RONDO_INVALID_ARGUMENT, "belongs to another graph");
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&small.graph));
  REQUIRE_OK(rondo_close(&runtime));
}

Test(handles, no_two_graphs_or_execs_have_the_same_serial) {
  enum { COUNT = 1000 };
  static uint64_t seen[COUNT];
  for (int i = 0; i < COUNT; i++) {
    seen[i] = serial_draw();
    cr_assert_neq(seen[i], 0);
    for (int j = 0; j < i; j++) cr_assert_neq(seen[i], seen[j]);
  }
}

/* Messages name them. */
Test(handles, an_exec_knows_the_names_of_its_tensors_when_the_graph_is_gone) {
  rondo_runtime *runtime = open_host();
  rondo_graph *graph = NULL;
  rondo_tensor in, temporary, state, view, half_of_in;
  rondo_exec *exec = NULL;
  rondo_slot slot;
  float data[16] = {0};
  const int64_t shape = 16, offset = 4, extent = 8;
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 8, .tasks = 4}, &graph));
  REQUIRE_OK(rondo_input(graph, "in", RONDO_F32, 1, &shape, &in));
  REQUIRE_OK(rondo_temporary(graph, "between", RONDO_F32, 1, &shape, &temporary));
  REQUIRE_OK(rondo_state(graph, "cache", RONDO_F32, 1, &shape, &state));
  REQUIRE_OK(rondo_view(graph, state, &offset, &extent, &view));
  REQUIRE_OK(rondo_view(graph, in, &offset, &extent, &half_of_in));
  REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
  REQUIRE_OK(rondo_acquire(exec, &slot));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_ERROR(rondo_upload(exec, state, data, 5), RONDO_INVALID_ARGUMENT,
                "rondo_upload: tensor 'cache' has 64 bytes, not 5");
  REQUIRE_ERROR(rondo_download(exec, view, data, 64), RONDO_INVALID_ARGUMENT,
                "rondo_download: the view of tensor 'cache' has 32 bytes, not 64");
  REQUIRE_ERROR(rondo_upload(exec, in, data, 64), RONDO_INVALID_ARGUMENT,
                "rondo_upload: tensor 'in' is of kind input, expected a constant or a state");
  REQUIRE_ERROR(rondo_rebind(slot, temporary, NULL), RONDO_INVALID_ARGUMENT,
                "rondo_rebind: tensor 'between' is of kind temporary, expected an input, output, constant or state");
  REQUIRE_ERROR(rondo_rebind(slot, state, data + 1), RONDO_INVALID_ARGUMENT,
                "rondo_rebind: tensor 'cache': the buffer");
  REQUIRE_ERROR(rondo_upload(exec, (rondo_tensor){0}, data, 64), RONDO_INVALID_ARGUMENT,
                "rondo_upload: the tensor is absent");
  cr_assert_null(rondo_data(slot, half_of_in));
  cr_assert_str_eq(rondo_error_text(),
                   "rondo_data: the tensor is a view of input 'in', expected the whole of an input or an output");
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_close(&runtime));
}

/* A graph may grow after an exec was made of it; that exec has no memory for what came later. */
Test(handles, a_tensor_described_after_the_lending_exec_was_made_is_refused) {
  rondo_runtime *runtime = open_host();
  struct lone_task lender = lone_task(runtime, nothing, NULL, NULL);
  rondo_tensor early, late;
  REQUIRE_OK(rondo_state(lender.graph, "late", RONDO_F32, 1, (int64_t[]){64}, &late));
  rondo_graph *graph;
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 4, .tasks = 4}, &graph));
  REQUIRE_OK(rondo_borrow(graph, lender.state, &early));
  rondo_argument argument = {.tensor = early, .access = RONDO_READ_WRITE};
  rondo_kernel_desc desc = {.host = nothing, .arguments = &argument, .argument_count = 1};
  REQUIRE_OK(rondo_add_kernel(graph, &desc));
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_borrow(graph, late, &argument.tensor));
  REQUIRE_OK(rondo_add_kernel(graph, &desc));
  REQUIRE_ERROR(rondo_instantiate(runtime, graph, NULL, &exec), RONDO_INVALID_STATE,
                "'late' was added to its graph after");
  REQUIRE_OK(rondo_graph_destroy(&graph));
  lone_task_end(&lender);
  REQUIRE_OK(rondo_close(&runtime));
}
