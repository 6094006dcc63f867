/* test_exec_pools.c - pools of exactly the planned size suffice, and of one byte less they do not; what pools lack is
 * told in one sentence, with numbers that suffice. Faults that would show: a plan that forgets a tensor, an exec that
 * takes more than planned, a sentence that is cut off or asks for too little. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"
#include "doubling.h"

Test(exec, pools_of_the_planned_size_fit_and_one_byte_less_does_not) {
  struct doubling d = doubling_describe(NULL);
  rondo_plan plan;
  REQUIRE_OK(rondo_plan_graph(d.graph, &plan));
  for (int less = 0; less < 4; less++) {
    rondo_options options = {.backend = RONDO_BACKEND_HOST,
                             .device_bytes = plan.device_bytes - (less == 1),
                             .pinned_bytes = 2 * plan.pinned_bytes_per_slot - (less == 2),
                             .host_bytes = less == 3 ? 4096 : plan.host_bytes};
    static const char *const pool[] = {"", "device pool", "pinned pool", "host pool"};
    rondo_runtime *runtime = NULL;
    rondo_exec *exec = NULL;
    REQUIRE_OK(rondo_open(&options, &runtime));
    if (less)
      REQUIRE_ERROR(rondo_instantiate(runtime, d.graph, &(rondo_exec_options){.slots = 2}, &exec), RONDO_OUT_OF_MEMORY,
                    pool[less]);
    else
      REQUIRE_OK(rondo_instantiate(runtime, d.graph, &(rondo_exec_options){.slots = 2}, &exec));
    cr_assert_eq(exec == NULL, less > 0);
    rondo_info info;
    REQUIRE_OK(rondo_runtime_info(runtime, &info));
    if (less)
      cr_assert_eq(info.device.used_bytes + info.pinned.used_bytes + info.host.used_bytes, 0,
                   "something is left in a pool");
    REQUIRE_OK(rondo_close_exec(&exec));
    REQUIRE_OK(rondo_close(&runtime));
  }
  REQUIRE_OK(rondo_graph_destroy(&d.graph));
}

/* Behind "device_bytes of at least ". 0: of that pool there is enough. */
static uint64_t wanted_bytes(const char *pool) {
  char text[64];
  snprintf(text, sizeof text, "%s_bytes of at least ", pool);
  const char *at = strstr(rondo_error_text(), text);
  return at ? strtoull(at + strlen(text), NULL, 10) : 0;
}

/* One text tells what all pools lack: whoever does as it says is done. */
Test(exec, pools_of_0_are_told_all_that_is_needed_at_once) {
  struct doubling d = doubling_describe(NULL);
  rondo_plan plan;
  REQUIRE_OK(rondo_plan_graph(d.graph, &plan));
  for (uint32_t slots = 1; slots <= 16; slots += 15)
    for (int lacks_host = 0; lacks_host < 2; lacks_host++) {
      const rondo_exec_options exec_options = {.slots = slots};
      rondo_options options = {.backend = RONDO_BACKEND_HOST, .host_bytes = lacks_host ? 256 : 0};
      rondo_runtime *runtime = NULL;
      rondo_exec *exec = NULL;
      REQUIRE_OK(rondo_open(&options, &runtime));
      REQUIRE_ERROR(rondo_instantiate(runtime, d.graph, &exec_options, &exec), RONDO_OUT_OF_MEMORY,
                    "instantiate: device pool: ");
      cr_assert_not_null(strstr(rondo_error_text(), " bytes are needed, 0 of 0 are in use; pinned pool: "));
      options.device_bytes = wanted_bytes("device");
      options.pinned_bytes = wanted_bytes("pinned");
      options.host_bytes = wanted_bytes("host");
      cr_assert_eq(options.device_bytes, plan.device_bytes);
      cr_assert_eq(options.pinned_bytes, slots * plan.pinned_bytes_per_slot);
      cr_assert_eq(options.host_bytes > 0, lacks_host, "%s", rondo_error_text());
      REQUIRE_OK(rondo_close(&runtime));
      REQUIRE_OK(rondo_open(&options, &runtime));
      REQUIRE_OK(rondo_instantiate(runtime, d.graph, &exec_options, &exec));
      /* A second one finds no room: as much again is asked for. */
      rondo_exec *second = NULL;
      REQUIRE_ERROR(rondo_instantiate(runtime, d.graph, &exec_options, &second), RONDO_OUT_OF_MEMORY, "device pool");
      cr_assert_gt(wanted_bytes("device"), options.device_bytes);
      cr_assert_eq(wanted_bytes("pinned"), 2 * options.pinned_bytes);
      REQUIRE_OK(rondo_close_exec(&exec));
      REQUIRE_OK(rondo_close(&runtime));
    }
  REQUIRE_OK(rondo_graph_destroy(&d.graph));
}

/* A copy of a state, with or without a temporary on its way. */
static rondo_graph *describe_states(bool has_temporary) {
  const int64_t shape[] = {INT64_C(100) * COUNT};
  rondo_graph *graph = NULL;
  rondo_tensor from, between, into;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_state(graph, "from", RONDO_F32, 1, shape, &from));
  REQUIRE_OK(rondo_state(graph, "into", RONDO_F32, 1, shape, &into));
  if (has_temporary) {
    REQUIRE_OK(rondo_temporary(graph, "between", RONDO_F32, 1, shape, &between));
    REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = from, .dst = between}));
  }
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = has_temporary ? between : from, .dst = into}));
  return graph;
}

/* The exec's own memory fits between two others, and its temporaries above them. */
Test(exec, a_pool_whose_gaps_are_large_enough_is_not_said_to_lack_anything) {
  rondo_graph *small = describe_states(false), *large = describe_states(true);
  rondo_plan small_plan, large_plan;
  rondo_runtime *runtime = NULL;
  rondo_exec *below = NULL, *above = NULL, *exec = NULL;
  REQUIRE_OK(rondo_plan_graph(small, &small_plan));
  REQUIRE_OK(rondo_plan_graph(large, &large_plan));
  cr_assert_eq(small_plan.temporary_bytes, 0);
  cr_assert_gt(large_plan.temporary_bytes, 0);
  REQUIRE_OK(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_HOST,
                                         .host_threads = 1,
                                         .device_bytes = 2 * small_plan.device_bytes + large_plan.temporary_bytes,
                                         .pinned_bytes = 2 * small_plan.pinned_bytes_per_slot},
                        &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, small, NULL, &below));
  REQUIRE_OK(rondo_instantiate(runtime, small, NULL, &above));
  REQUIRE_OK(rondo_close_exec(&below));
  REQUIRE_ERROR(rondo_instantiate(runtime, large, &(rondo_exec_options){.slots = 2}, &exec), RONDO_OUT_OF_MEMORY,
                "instantiate: pinned pool: ");
  cr_assert_eq(wanted_bytes("device"), 0, "%s", rondo_error_text());
  REQUIRE_OK(rondo_instantiate(runtime, large, NULL, &exec));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_close_exec(&above));
  REQUIRE_OK(rondo_close(&runtime));
  REQUIRE_OK(rondo_graph_destroy(&small));
  REQUIRE_OK(rondo_graph_destroy(&large));
}

Test(exec, what_pools_lack_is_told_to_the_end_where_numbers_are_long) {
  const rondo_allocator allocator = {.allocate = promised_memory, .release = release_promised};
  const uint64_t bytes = UINT64_C(1) << 36;
  const int64_t shape[] = {INT64_C(1) << 31};
  rondo_graph *graph = NULL;
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  void *memory = promised_memory(NULL, 3 * bytes, 1);
  if (!memory) cr_skip_test("the system promises no more than it has");
  release_promised(NULL, memory, 3 * bytes);
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  for (int i = 0; i < 8; i++) {
    rondo_tensor in, kept;
    char name[] = "in0", other[] = "kept0";
    name[2] = other[4] = (char)('0' + i);
    REQUIRE_OK(rondo_input(graph, name, RONDO_F64, 1, shape, &in));
    REQUIRE_OK(rondo_state(graph, other, RONDO_F64, 1, shape, &kept));
    REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = in, .dst = kept}));
  }
  REQUIRE_OK(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_HOST,
                                         .host_threads = 1,
                                         .device_bytes = bytes,
                                         .pinned_bytes = bytes,
                                         .host_bytes = 4096,
                                         .allocator = &allocator},
                        &runtime));
  REQUIRE_ERROR(rondo_instantiate(runtime, graph, &(rondo_exec_options){.slots = 16}, &exec), RONDO_OUT_OF_MEMORY,
                " 0 of 4096 are in use: open the runtime with device_bytes of at least ");
  cr_assert_gt(wanted_bytes("device"), bytes);
  cr_assert_gt(wanted_bytes("pinned"), 16 * bytes);
  cr_assert_gt(wanted_bytes("host"), 4096);
  REQUIRE_OK(rondo_close(&runtime));
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(exec, a_graph_can_be_planned_and_created_in_the_planned_host_pool) {
  struct doubling d = doubling_describe(NULL);
  rondo_plan plan;
  REQUIRE_OK(rondo_plan_graph(d.graph, &plan));
  rondo_options options = {.backend = RONDO_BACKEND_HOST,
                           .device_bytes = plan.device_bytes,
                           .pinned_bytes = 16 * plan.pinned_bytes_per_slot,
                           .host_bytes = plan.host_bytes};
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, d.graph, &(rondo_exec_options){.slots = 16}, &exec));
  REQUIRE_ERROR(rondo_instantiate(runtime, d.graph, NULL, &exec), RONDO_OUT_OF_MEMORY, "pool");
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&d.graph));
  REQUIRE_OK(rondo_close(&runtime));
}
