/* test_cuda_rebind.c - rondo_rebind on the fake driver: own kernels and copies take the new addresses; if a driver
 * call fails, nothing has changed. */
#include <string.h>

#include "../../runtime/cuda/driver.h"
#include "driver_support.h"

TestSuite(rebind, .init = driver_setup, .timeout = 60);

enum { COUNT = 64, BYTES = COUNT * sizeof(uint32_t) };

/* y = three mixes of x, each with the constant. */
struct subject {
  rondo_graph *graph;
  rondo_tensor x, constant, y;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_slot slot;
  struct driver driver;
  cu_address buffer; /* of the caller's, in device memory */
};

static void subject_start(struct subject *s) {
  rondo_options options = options_for(s->graph, RONDO_BACKEND_CUDA, 1);
  REQUIRE_OK(rondo_open(&options, &s->runtime));
  REQUIRE_OK(rondo_instantiate(s->runtime, s->graph, &(rondo_exec_options){.constants_begin_as_zeros = 1}, &s->exec));
  REQUIRE_OK(rondo_acquire(s->exec, &s->slot));
  struct cu_context *context = NULL;
  uint32_t values[COUNT];
  for (uint32_t i = 0; i < COUNT; i++) values[i] = 1000 + i;
  REQUIRE_OK(driver_load(&s->driver));
  cr_assert_eq(s->driver.cuDevicePrimaryCtxRetain(&context, 0), CU_SUCCESS);
  cr_assert_eq(s->driver.cuCtxPushCurrent(context), CU_SUCCESS);
  cr_assert_eq(s->driver.cuMemAlloc(&s->buffer, BYTES), CU_SUCCESS);
  memcpy((void *)(uintptr_t)s->buffer, values, BYTES); /* the fake's device memory is the host's */
}

static void subject_open(struct subject *s) {
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s->graph));
  s->x = add_vector(rondo_input, s->graph, "x", COUNT);
  s->constant = add_vector(rondo_constant, s->graph, "constant", COUNT);
  s->y = add_vector(rondo_output, s->graph, "y", COUNT);
  rondo_tensor a = add_vector(rondo_temporary, s->graph, "a", COUNT),
               b = add_vector(rondo_temporary, s->graph, "b", COUNT);
  add_mix(s->graph, "first", s->x, s->constant, a, COUNT, 1);
  add_mix(s->graph, "second", a, s->constant, b, COUNT, 2);
  add_mix(s->graph, "third", b, s->constant, s->y, COUNT, 3);
  subject_start(s);
}

static void subject_close(struct subject *s) {
  struct cu_context *context = NULL;
  cr_assert_eq(s->driver.cuMemFree(s->buffer), CU_SUCCESS);
  cr_assert_eq(s->driver.cuCtxPopCurrent(&context), CU_SUCCESS);
  cr_assert_eq(s->driver.cuDevicePrimaryCtxRelease(0), CU_SUCCESS);
  REQUIRE_OK(rondo_release(s->slot));
  REQUIRE_OK(rondo_close_exec(&s->exec));
  REQUIRE_OK(rondo_graph_destroy(&s->graph));
  REQUIRE_OK(rondo_close(&s->runtime));
  require_clean("after close");
}

static void run(struct subject *s, uint32_t *result) {
  uint32_t *x = rondo_data(s->slot, s->x);
  for (uint32_t i = 0; i < COUNT; i++) x[i] = i;
  REQUIRE_OK(rondo_replay(s->slot));
  REQUIRE_OK(rondo_wait(s->slot, RONDO_FOREVER));
  memcpy(result, rondo_data(s->slot, s->y), BYTES);
}

Test(rebind, a_rebind_that_fails_changes_nothing) {
  struct subject s = {0};
  uint32_t own[COUNT], bound[COUNT], got[COUNT];
  subject_open(&s);
  void *buffer = (void *)(uintptr_t)s.buffer;
  run(&s, own);
  REQUIRE_OK(rondo_rebind(s.slot, s.constant, buffer));
  run(&s, bound);
  cr_assert_arr_neq(own, bound, BYTES);
  bool failed = true;
  for (uint64_t n = 1; failed; n++) {
    REQUIRE_OK(rondo_rebind(s.slot, s.constant, NULL));
    fake->fail_call(n, CU_INVALID_VALUE);
    rondo_status status = rondo_rebind(s.slot, s.constant, buffer);
    failed = fake->failed_call() != NULL;
    fake->fail_call(0, 0);
    if (status != RONDO_OK) cr_assert(strstr(rondo_error_text(), "rebind: "), "%s", rondo_error_text());
    run(&s, got);
    cr_assert_arr_eq(got, status == RONDO_OK ? bound : own, BYTES, "call %d fails", (int)n);
    cr_assert(failed || status == RONDO_OK);
  }
  subject_close(&s);
}

Test(rebind, a_kernel_that_publishes_completion_still_does) {
  struct subject s = {0};
  uint32_t got[COUNT];
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s.graph));
  s.x = add_vector(rondo_input, s.graph, "x", COUNT);
  s.y = add_vector(rondo_output, s.graph, "y", COUNT);
  add_copy(s.graph, "copy", s.x, s.y);
  subject_start(&s);
  cr_assert_eq(fake->calls("cuGraphAddNode"), 1);
  for (int round = 0; round < 3; round++) {
    REQUIRE_OK(rondo_rebind(s.slot, s.x, (void *)(uintptr_t)s.buffer));
    run(&s, got);
    for (uint32_t i = 0; i < COUNT; i++) cr_assert_eq(got[i], 1000 + i);
    REQUIRE_OK(rondo_rebind(s.slot, s.x, NULL));
    run(&s, got);
    for (uint32_t i = 0; i < COUNT; i++) cr_assert_eq(got[i], i);
  }
  subject_close(&s);
}

Test(rebind, it_costs_one_call_for_each_kernel_that_touches_the_tensor) {
  struct subject s = {0};
  subject_open(&s);
  uint64_t calls = fake->calls("cuGraphExecKernelNodeSetParams");
  REQUIRE_OK(rondo_rebind(s.slot, s.constant, (void *)(uintptr_t)s.buffer));
  cr_assert_eq(fake->calls("cuGraphExecKernelNodeSetParams") - calls, 3);
  REQUIRE_OK(rondo_rebind(s.slot, s.constant, NULL));
  set_mode(FAKE_NEVER);
  REQUIRE_OK(rondo_replay(s.slot));
  REQUIRE_ERROR(rondo_rebind(s.slot, s.constant, NULL), RONDO_BUSY, "in flight");
  set_mode(FAKE_IMMEDIATE);
  REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
  subject_close(&s);
}

Test(rebind, a_release_costs_one_call_for_each_kernel_that_touches_what_is_bound_and_else_none) {
  struct subject s = {0};
  uint32_t own[COUNT], got[COUNT];
  subject_open(&s);
  run(&s, own);
  uint64_t calls = fake->calls(NULL), set;
  REQUIRE_OK(rondo_release(s.slot));
  REQUIRE_OK(rondo_acquire(s.exec, &s.slot));
  cr_assert_eq(fake->calls(NULL), calls);
  for (int round = 0; round < 2; round++) { /* bound twice is bound once; bound and unbound is not bound */
    REQUIRE_OK(rondo_rebind(s.slot, s.constant, (void *)(uintptr_t)s.buffer));
    REQUIRE_OK(rondo_rebind(s.slot, s.constant, (void *)(uintptr_t)s.buffer));
    if (round) REQUIRE_OK(rondo_rebind(s.slot, s.constant, NULL));
    set = fake->calls("cuGraphExecKernelNodeSetParams");
    REQUIRE_OK(rondo_release(s.slot));
    cr_assert_eq(fake->calls("cuGraphExecKernelNodeSetParams") - set, round ? 0 : 3);
    REQUIRE_OK(rondo_acquire(s.exec, &s.slot));
    run(&s, got);
    cr_assert_arr_eq(got, own, BYTES);
  }
  subject_close(&s);
}

Test(rebind, a_release_that_fails_leaves_the_slot_with_its_holder_and_can_be_repeated) {
  struct subject s = {0};
  uint32_t own[COUNT], bound[COUNT], got[COUNT];
  subject_open(&s);
  void *buffer = (void *)(uintptr_t)s.buffer;
  run(&s, own);
  REQUIRE_OK(rondo_rebind(s.slot, s.constant, buffer));
  run(&s, bound);
  bool failed = true;
  for (uint64_t n = 1; failed; n++) {
    fake->fail_call(n, CU_INVALID_VALUE);
    rondo_status status = rondo_release(s.slot);
    failed = fake->failed_call() != NULL;
    fake->fail_call(0, 0);
    cr_assert(n > 3 || failed);
    if (status != RONDO_OK) {
      cr_assert(strstr(rondo_error_text(), "rebind: "), "%s", rondo_error_text());
      run(&s, got);
      cr_assert_arr_eq(got, bound, BYTES, "call %d fails", (int)n);
      continue;
    }
    REQUIRE_ERROR(rondo_replay(s.slot), RONDO_INVALID_STATE, "was released");
    REQUIRE_OK(rondo_acquire(s.exec, &s.slot));
    run(&s, got);
    cr_assert_arr_eq(got, own, BYTES, "call %d fails", (int)n);
    REQUIRE_OK(rondo_rebind(s.slot, s.constant, buffer));
  }
  subject_close(&s);
}

Test(rebind, it_costs_one_call_for_a_tensor_that_moves_with_others) {
  enum { INPUTS = 3 };
  struct subject s = {0};
  rondo_tensor inputs[INPUTS];
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s.graph));
  for (int i = 0; i < INPUTS; i++) inputs[i] = add_vector(rondo_input, s.graph, "x", COUNT);
  s.x = inputs[1];
  s.y = add_vector(rondo_output, s.graph, "y", COUNT);
  rondo_tensor sum = add_vector(rondo_temporary, s.graph, "sum", COUNT);
  add_mix(s.graph, "first", inputs[0], inputs[1], sum, COUNT, 1);
  add_mix(s.graph, "second", inputs[2], sum, s.y, COUNT, 2);
  subject_start(&s);
  uint32_t own[COUNT], got[COUNT];
  run(&s, own);
  uint64_t calls = fake->calls("cuGraphExecKernelNodeSetParams");
  REQUIRE_OK(rondo_rebind(s.slot, s.x, (void *)(uintptr_t)s.buffer));
  cr_assert_eq(fake->calls("cuGraphExecKernelNodeSetParams") - calls, 1);
  run(&s, got);
  for (uint32_t i = 0; i < COUNT; i++) cr_assert_eq(got[i] - own[i], 17 * 17 * 1000, "the buffer holds 1000 more");
  REQUIRE_OK(rondo_rebind(s.slot, s.x, NULL));
  run(&s, got);
  cr_assert_arr_eq(got, own, BYTES);
  subject_close(&s);
}
