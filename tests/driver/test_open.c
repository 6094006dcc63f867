/* test_open.c - rondo_open on the fake driver: what it finds, and the reason that it gives if it cannot use the
 * device. */
#include <string.h>

#include "../../runtime/spare_memory.h"
#include "driver_support.h"

TestSuite(open, .init = driver_setup, .timeout = 60);

static const rondo_options cuda = {
    .backend = RONDO_BACKEND_CUDA, .device_bytes = 1 << 20, .pinned_bytes = 1 << 16, .host_bytes = 1 << 20};

static void require_refused(rondo_status expected, const char *fragment) {
  rondo_runtime *runtime = NULL;
  REQUIRE_ERROR(rondo_open(&cuda, &runtime), expected, fragment);
  cr_assert(!strncmp(rondo_error_text(), "open: ", 6) && !strstr(rondo_error_text() + 1, "open: "), "%s",
            rondo_error_text());
  cr_assert_null(runtime);
  require_clean(fragment);
}

static void require_opens(const char *when) {
  rondo_runtime *runtime = NULL;
  rondo_status status = rondo_open(&cuda, &runtime);
  if (status != RONDO_OK) cr_assert_fail("%s: %s", when, rondo_error_text());
  REQUIRE_OK(rondo_close(&runtime));
  require_clean(when);
}

Test(open, tells_which_device_and_why) {
  rondo_runtime *runtime = NULL;
  rondo_info info;
  rondo_options automatic = cuda;
  automatic.backend = RONDO_BACKEND_AUTO;
  REQUIRE_OK(rondo_open(&automatic, &runtime));
  REQUIRE_OK(rondo_runtime_info(runtime, &info));
  cr_assert_eq(info.backend, RONDO_BACKEND_CUDA);
  cr_assert_str_eq(info.device_name, "Fake GPU");
  cr_assert_eq(info.chip, 90);
  cr_assert_eq(info.multiprocessors, 132);
  cr_assert_eq(info.driver_version, 13000);
  cr_assert_eq(info.device.capacity_bytes, cuda.device_bytes);
  cr_assert_eq(info.pinned.capacity_bytes, cuda.pinned_bytes);
  cr_assert(strstr(info.reason, "cuda:"), "%s", info.reason);
  REQUIRE_OK(rondo_close(&runtime));
  require_clean("after close");
}

Test(open, leaves_the_callers_context_as_it_was) {
  rondo_runtime *runtime = NULL;
  REQUIRE_OK(rondo_open(&cuda, &runtime));
  cr_assert_eq(fake->context_depth(), 0);
  REQUIRE_OK(rondo_close(&runtime));
  require_clean("after close");
}

/* Neither is too large by itself, and the host pool's pages are still to come. */
Test(open, compares_the_pinned_and_the_host_pool_together_with_the_memory_there_is) {
  const uint64_t spare = spare_memory_under("", true).bytes, pinnable = spare_memory_under("", false).bytes;
  rondo_runtime *runtime = NULL;
  if (spare == UINT64_MAX) cr_skip_test("nobody knows how much there is");
  const rondo_options options = {.backend = RONDO_BACKEND_CUDA,
                                 .device_bytes = 1 << 20,
                                 .pinned_bytes = pinnable / 2,
                                 .host_bytes = spare - pinnable / 4};
  REQUIRE_ERROR(rondo_open(&options, &runtime), RONDO_OUT_OF_MEMORY, "open: the pinned pool and the host pool: ");
  require_clean("after it was refused");
}

Test(open, pools_of_no_bytes_are_pools_too) {
  rondo_runtime *runtime = NULL;
  rondo_options options = {.backend = RONDO_BACKEND_CUDA};
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_OK(rondo_close(&runtime));
  require_clean("after close");
}

/* ---- No usable driver -------------------------------------------------------------------------------------------- */

Test(open, an_old_driver_is_told_by_the_number_users_know) {
  static const struct {
    int32_t version;
    const char *fragment;
  } drivers[] = {{12080, "driver 570 (CUDA 12.8) is older than 580 (CUDA 13.0)"},
                 {12020, "driver 535 (CUDA 12.2)"},
                 {12000, "driver 525"},
                 {11040, "CUDA 11.4 is older"},
                 {12990, "CUDA 12.99 is older"}};
  struct fake_settings settings = fake->settings();
  for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++) {
    settings.driver_version = drivers[i].version;
    fake->configure(&settings);
    require_refused(RONDO_NO_DEVICE, drivers[i].fragment);
  }
  settings.driver_version = 13010;
  fake->configure(&settings);
  require_opens("CUDA 13.1");
}

Test(open, the_toolkits_stub_is_recognised) {
  struct fake_settings settings = fake->settings();
  settings.discover_result = CU_STUB_LIBRARY;
  fake->configure(&settings);
  require_refused(RONDO_NO_DEVICE, "stub");
  settings.discover_result = 0;
  settings.version_result = CU_STUB_LIBRARY;
  fake->configure(&settings);
  require_refused(RONDO_NO_DEVICE, "stub");
  settings.version_result = 0;
  settings.init_result = CU_STUB_LIBRARY;
  fake->configure(&settings);
  require_refused(RONDO_NO_DEVICE, "stub");
}

Test(open, a_missing_function_is_named_and_an_optional_one_is_not_missed) {
  enum { MANDATORY, OPTIONAL };
  static const struct {
    const char *name;
    int need;
  } functions[] = {
#define ENTRY_POINT(name, version, need, ...) {#name, need},
#include "../../runtime/cuda/entry_points.h"
  };
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    for (int status = CU_SYMBOL_NOT_FOUND; status <= CU_SYMBOL_VERSION_TOO_LOW; status++) {
      fake->hide(functions[i].name, status);
      if (functions[i].need == MANDATORY)
        require_refused(RONDO_NO_DEVICE, functions[i].name);
      else
        require_opens(functions[i].name);
    }
  }
}

Test(open, a_machine_without_gpu_says_so) {
  struct fake_settings settings = fake->settings();
  settings.device_count = 0; /* cuInit then fails */
  fake->configure(&settings);
  require_refused(RONDO_NO_DEVICE, "no CUDA device");
}

Test(open, what_cuinit_says_is_passed_on) {
  struct fake_settings settings = fake->settings();
  settings.init_result = CU_NO_DEVICE;
  fake->configure(&settings);
  require_refused(RONDO_NO_DEVICE, "no CUDA device");
  settings.init_result = CU_LAUNCH_FAILED;
  fake->configure(&settings);
  require_refused(RONDO_NO_DEVICE, "cuInit: CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure");
  settings.init_result = 803; /* one that the driver itself has no name for */
  fake->configure(&settings);
  require_refused(RONDO_NO_DEVICE, "cuInit: CUDA error 803");
}

Test(open, auto_falls_back_to_the_host_and_keeps_the_reason) {
  struct fake_settings settings = fake->settings();
  settings.driver_version = 12080;
  fake->configure(&settings);
  rondo_runtime *runtime = NULL;
  rondo_info info;
  rondo_options automatic = cuda;
  automatic.backend = RONDO_BACKEND_AUTO;
  REQUIRE_OK(rondo_open(&automatic, &runtime));
  REQUIRE_OK(rondo_runtime_info(runtime, &info));
  cr_assert_eq(info.backend, RONDO_BACKEND_HOST);
  cr_assert_str_eq(info.reason, "host: driver 570 (CUDA 12.8) is older than 580 (CUDA 13.0)");
  REQUIRE_OK(rondo_close(&runtime));
  require_clean("after close");
}

/* Whatever the driver answers to whichever call: only for want of memory the program is told so itself. */
static void each_failing_call_of_open_leads_to_the_host(int32_t result, const char *expected) {
  rondo_options automatic = cuda;
  automatic.backend = RONDO_BACKEND_AUTO;
  automatic.lanes = (const rondo_lane[]){{.multiprocessors = 8}, {0}};
  automatic.lane_count = 2;
  for (uint64_t n = 1;; n++) {
    driver_setup();
    fake->fail_call(n, result);
    rondo_runtime *runtime = NULL;
    rondo_info info;
    rondo_status status = rondo_open(&automatic, &runtime);
    const char *function = fake->failed_call();
    fake->fail_call(0, 0);
    /* Without green contexts CUDA can be used, but not with these lanes. */
    if (status == RONDO_UNSUPPORTED && !strcmp(function, "cuGetProcAddress_v2")) continue;
    require_ok(status, function ? function : "no failure");
    REQUIRE_OK(rondo_runtime_info(runtime, &info));
    bool on_host = info.backend == RONDO_BACKEND_HOST;
    if (on_host) {
      cr_assert_not_null(function);
      const char *reason = strcmp(function, "cuGetProcAddress_v2") != 0 ? expected : "libcuda.so.1 has no";
      if (!strcmp(function, "cuDriverGetVersion")) reason = "CUDA error";
      cr_assert(strstr(info.reason, "host: ") && strstr(info.reason, reason), "%s: %s", function, info.reason);
      cr_assert_null(strstr(info.reason, "open:"), "%s", info.reason);
    }
    REQUIRE_OK(rondo_close(&runtime));
    if (result != CU_ILLEGAL_ADDRESS) require_clean(function ? function : "no failure");
    if (!function) break;
  }
}

Test(open, auto_takes_the_host_whichever_call_says_that_the_device_is_unavailable) {
  each_failing_call_of_open_leads_to_the_host(46, "CUDA_ERROR_DEVICE_UNAVAILABLE");
}

Test(open, auto_takes_the_host_where_the_device_is_lost) {
  each_failing_call_of_open_leads_to_the_host(CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS");
}

Test(open, a_device_that_was_lost_before_asks_for_a_new_process) {
  bool is_retain = false;
  for (uint64_t n = 1; !is_retain; n++) {
    rondo_runtime *runtime = NULL;
    driver_setup();
    fake->fail_call(n, CU_ILLEGAL_ADDRESS);
    rondo_status status = rondo_open(&cuda, &runtime);
    is_retain = !strcmp(fake->failed_call(), "cuDevicePrimaryCtxRetain");
    if (is_retain) cr_assert_eq(status, RONDO_NO_DEVICE);
    if (status == RONDO_OK) REQUIRE_OK(rondo_close(&runtime)); /* it can do without what failed */
  }
  cr_assert(strstr(rondo_error_text(), "only a new process can use the device"), "%s", rondo_error_text());
}

/* What the driver takes for itself is told apart from the pools. */
Test(open, an_exec_tells_what_it_takes_of_the_pools_and_what_the_driver_takes_for_it) {
  rondo_graph *graph = NULL;
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  rondo_plan plan;
  rondo_info before, info;
  rondo_exec_usage usage;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  rondo_tensor x = add_vector(rondo_input, graph, "x", 16), y = add_vector(rondo_output, graph, "y", 16);
  for (int i = 0; i < 9; i++) {
    rondo_tensor next = add_vector(rondo_temporary, graph, "t", 16);
    add_mix(graph, "mix", x, x, next, 16, 1);
    x = next;
  }
  add_mix(graph, "last", x, x, y, 16, 1);
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  rondo_options options = options_for(graph, RONDO_BACKEND_CUDA, 2);
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_OK(rondo_runtime_info(runtime, &before));
  cr_assert_leq(before.free_device_bytes + options.device_bytes, fake->settings().device_bytes);
  cr_assert_gt(before.free_device_bytes, 0);
  REQUIRE_OK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.slots = 2}, &exec));
  REQUIRE_OK(rondo_exec_info(exec, &usage));
  REQUIRE_OK(rondo_runtime_info(runtime, &info));
  cr_assert_eq(usage.driver_bytes, before.free_device_bytes - info.free_device_bytes);
  cr_assert_geq(usage.driver_bytes, UINT64_C(2) * 10 * 2700);
  cr_assert_eq(usage.device_bytes + usage.arena_bytes, plan.device_bytes);
  cr_assert_eq(usage.pinned_bytes, 2 * plan.pinned_bytes_per_slot);
  cr_assert_leq(usage.host_bytes, info.host.used_bytes);
  cr_assert_eq(usage.slot_count, 2);
  cr_assert_geq(usage.node_count, 10);
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
  require_clean("after close");
}

/* Each runtime loads an image once, and none that its graphs do not ask for. */
Test(open, loads_an_image_when_a_graph_first_asks_for_a_kernel_of_it) {
  rondo_graph *graph = NULL;
  rondo_runtime *runtime = NULL;
  rondo_exec *execs[2] = {0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  add_copy(graph, "copy", add_vector(rondo_input, graph, "x", 4), add_vector(rondo_output, graph, "y", 4));
  rondo_options options = options_for(graph, RONDO_BACKEND_CUDA, 1);
  options.device_bytes *= 2, options.pinned_bytes *= 2, options.host_bytes *= 2;
  for (uint64_t opened = 1; opened < 3; opened++) {
    REQUIRE_OK(rondo_open(&options, &runtime));
    cr_assert_eq(fake->calls("cuLibraryLoadData"), 2 * opened - 1, "at open: only the image of rondo_point");
    for (int i = 0; i < 2; i++) {
      REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &execs[i]));
      cr_assert_eq(fake->calls("cuLibraryLoadData"), 2 * opened);
    }
    for (int i = 0; i < 2; i++) REQUIRE_OK(rondo_close_exec(&execs[i]));
    cr_assert_eq(fake->calls("cuLibraryUnload"), 2 * opened - 2, "images stay loaded until the runtime is closed");
    REQUIRE_OK(rondo_close(&runtime));
    cr_assert_eq(fake->calls("cuLibraryUnload"), 2 * opened);
  }
  REQUIRE_OK(rondo_graph_destroy(&graph));
  require_clean("after close");
}

/* ---- No usable device -------------------------------------------------------------------------------------------- */

Test(open, a_device_that_does_not_exist_is_refused) {
  rondo_runtime *runtime = NULL;
  rondo_options options = cuda;
  options.device = 1;
  REQUIRE_ERROR(rondo_open(&options, &runtime), RONDO_NO_DEVICE, "device 1 does not exist: there is 1");
  require_clean("after the refusal");
  struct fake_settings settings = fake->settings();
  settings.device_count = 3;
  fake->configure(&settings);
  options.device = 4;
  REQUIRE_ERROR(rondo_open(&options, &runtime), RONDO_NO_DEVICE, "device 4 does not exist: there are 3");
  require_clean("after the refusal");
}

Test(open, an_old_chip_is_refused) {
  struct fake_settings settings = fake->settings();
  settings.chip = 75;
  fake->configure(&settings);
  require_refused(RONDO_NO_DEVICE, "(Fake GPU) is sm_75, Rondo needs sm_80 or newer");
}

Test(open, memory_that_the_host_and_the_device_see_apart_is_refused) {
  struct fake_settings settings = fake->settings();
  settings.pinned_moves = true;
  fake->configure(&settings);
  require_refused(RONDO_NO_DEVICE, "sees pinned memory at another address");
}

Test(open, a_pool_larger_than_the_device_says_what_is_free) {
  struct fake_settings settings = fake->settings();
  settings.device_bytes = 1 << 19;
  fake->configure(&settings);
  require_refused(RONDO_OUT_OF_MEMORY, "no 1048576 bytes for the device pool: 524288 of 524288 are free");
  fake->hide("cuMemGetInfo", CU_SYMBOL_NOT_FOUND);
  require_refused(RONDO_OUT_OF_MEMORY, "cuMemAlloc of 1048576 bytes");
}

Test(open, two_runtimes_share_the_context) {
  rondo_runtime *first = NULL, *second = NULL;
  REQUIRE_OK(rondo_open(&cuda, &first));
  REQUIRE_OK(rondo_open(&cuda, &second));
  REQUIRE_OK(rondo_close(&first));
  REQUIRE_OK(rondo_close(&second));
  require_clean("after both closed");
}

/* ---- While the runtime is being closed --------------------------------------------------------------------------- */

static struct {
  rondo_runtime *runtime;
  rondo_graph *graph;
  uint32_t calls;
} closing;

/* Where rondo_close waits for the lanes. */
static void open_more(void) {
  rondo_graph *graph = NULL;
  rondo_exec *exec = NULL;
  closing.calls++;
  REQUIRE_ERROR(rondo_graph_create(closing.runtime, NULL, &graph), RONDO_INVALID_STATE,
                "rondo_graph_create: another thread closes the runtime");
  REQUIRE_ERROR(rondo_instantiate(closing.runtime, closing.graph, NULL, &exec), RONDO_INVALID_STATE,
                "instantiate: another thread closes the runtime");
  rondo_runtime *copy = closing.runtime;
  REQUIRE_ERROR(rondo_close(&copy), RONDO_INVALID_STATE, "close: another thread closes the runtime");
}

Test(open, nothing_is_opened_in_a_runtime_that_is_being_closed) {
  rondo_runtime *runtime = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &closing.graph));
  add_copy(closing.graph, "copy", add_vector(rondo_input, closing.graph, "x", 4),
           add_vector(rondo_output, closing.graph, "y", 4));
  rondo_options options = options_for(closing.graph, RONDO_BACKEND_CUDA, 1);
  REQUIRE_OK(rondo_open(&options, &runtime));
  closing.runtime = runtime;
  fake->before_call("cuStreamSynchronize", open_more);
  REQUIRE_OK(rondo_close(&runtime));
  fake->before_call(NULL, NULL);
  cr_assert_gt(closing.calls, 0);
  REQUIRE_OK(rondo_graph_destroy(&closing.graph));
  require_clean("after close");
}
