/* test_user_work.c - the user's own kernels and captured library calls on the fake driver: what is accepted, and what
 * is refused before it could go wrong in a replay. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "driver_support.h"

TestSuite(user_work, .init = driver_setup, .timeout = 60);

enum { COUNT = 40, SLOTS = 2 };

struct bench {
  rondo_graph *graph;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_tensor x, y;
};

static void bench_begin(struct bench *bench) {
  *bench = (struct bench){0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &bench->graph));
  bench->x = add_vector(rondo_input, bench->graph, "x", COUNT);
  bench->y = add_vector(rondo_output, bench->graph, "y", COUNT);
}

static rondo_status bench_instantiate(struct bench *bench) {
  if (!bench->runtime) {
    rondo_options options = options_for(bench->graph, RONDO_BACKEND_CUDA, SLOTS);
    REQUIRE_OK(rondo_open(&options, &bench->runtime));
  }
  return rondo_instantiate(bench->runtime, bench->graph, &(rondo_exec_options){.slots = SLOTS}, &bench->exec);
}

static void bench_end(struct bench *bench) {
  REQUIRE_OK(rondo_close_exec(&bench->exec));
  REQUIRE_OK(rondo_close(&bench->runtime));
  REQUIRE_OK(rondo_graph_destroy(&bench->graph));
  require_clean("after close");
}

/* Replays every slot in several orders and compares. */
static void require_result(struct bench *bench, uint32_t (*expected)(uint32_t x)) {
  rondo_slot slots[SLOTS];
  for (int s = 0; s < SLOTS; s++) REQUIRE_OK(rondo_acquire(bench->exec, &slots[s]));
  for (uint32_t round = 0; round < 20; round++) {
    set_seed(round);
    for (uint32_t s = 0; s < SLOTS; s++) {
      uint32_t *x = rondo_data(slots[s], bench->x);
      for (uint32_t i = 0; i < COUNT; i++) x[i] = 7 * i + 100 * s + round;
      REQUIRE_OK(rondo_replay(slots[s]));
    }
    for (uint32_t s = 0; s < SLOTS; s++) {
      REQUIRE_OK(rondo_wait(slots[s], RONDO_FOREVER));
      const uint32_t *y = rondo_data(slots[s], bench->y);
      for (uint32_t i = 0; i < COUNT; i++) cr_assert_eq(y[i], expected(7 * i + 100 * s + round), "round %u", round);
    }
  }
  for (int s = 0; s < SLOTS; s++) REQUIRE_OK(rondo_release(slots[s]));
}

/* The graph is refused, nothing of it stays, and the runtime is as good as before. */
static void require_refused(struct bench *bench, rondo_status expected, const char *fragment) {
  char text[256];
  REQUIRE_ERROR(bench_instantiate(bench), expected, fragment);
  cr_assert_null(bench->exec);
  require_no_violation(fragment);
  cr_assert_eq(fake->context_depth(), 0);
  cr_assert_eq(fake->live(text, sizeof text), 7, "context, 2 libraries, 2 streams, 2 pools, but: %s", text);
  rondo_info info;
  REQUIRE_OK(rondo_runtime_info(bench->runtime, &info));
  cr_assert_eq(info.device.used_bytes + info.pinned.used_bytes + info.host.used_bytes, 0);
  struct bench good;
  bench_begin(&good);
  good.runtime = bench->runtime;
  add_copy(good.graph, "good", good.x, good.y);
  REQUIRE_OK(bench_instantiate(&good));
  REQUIRE_OK(rondo_close_exec(&good.exec));
  REQUIRE_OK(rondo_graph_destroy(&good.graph));
  bench_end(bench);
}

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

/* A task 'mine' with any function and arguments. */
static void add_mine(struct bench *bench, size_t image_bytes, const char *function, uint32_t shared_bytes,
                     uint32_t argument_count, uint32_t last_bytes) {
  uint64_t value = COUNT;
  rondo_argument arguments[] = {{.tensor = bench->x, .access = RONDO_READ},  {.tensor = bench->x, .access = RONDO_READ},
                                {.tensor = bench->y, .access = RONDO_WRITE}, {.value = &value, .bytes = 4},
                                {.value = &value, .bytes = last_bytes},      {.value = &value, .bytes = 8}};
  REQUIRE_OK(rondo_add_kernel(bench->graph, &(rondo_kernel_desc){.name = "mine",
                                                                 .image = mix_image,
                                                                 .image_bytes = image_bytes,
                                                                 .function = function,
                                                                 .shared_bytes = shared_bytes,
                                                                 .arguments = arguments,
                                                                 .argument_count = argument_count}));
}

static uint32_t mixed(uint32_t x) { return 48 * x + COUNT; }

Test(user_work, a_kernel_gets_its_tensors_and_values) {
  struct bench bench;
  bench_begin(&bench);
  add_mine(&bench, mix_image_bytes, "mix", 0, 5, 4);
  REQUIRE_OK(bench_instantiate(&bench));
  require_result(&bench, mixed);
  bench_end(&bench);
}

Test(user_work, shared_memory_that_a_kernel_has_itself_counts_too) {
  struct fake_settings settings = fake->settings();
  struct bench bench;
  settings.static_shared_bytes = 128;
  fake->configure(&settings);
  bench_begin(&bench);
  add_mine(&bench, mix_image_bytes, "mix", 48 * 1024, 5, 4);
  REQUIRE_OK(bench_instantiate(&bench));
  require_result(&bench, mixed);
  bench_end(&bench);
}

Test(user_work, a_kernel_missing_from_its_image_is_named) {
  struct bench bench;
  bench_begin(&bench);
  add_mine(&bench, mix_image_bytes, "mix_nowhere", 0, 5, 4);
  require_refused(&bench, RONDO_INVALID_ARGUMENT, "task 'mine': the image has no kernel 'mix_nowhere'");
}

Test(user_work, a_parameter_of_another_size_is_refused) {
  struct bench bench;
  bench_begin(&bench);
  add_mine(&bench, mix_image_bytes, "mix", 0, 5, 8);
  require_refused(&bench, RONDO_INVALID_ARGUMENT, "task 'mine': parameter 4 of kernel 'mix' has 4 bytes, not 8");
}

Test(user_work, too_few_parameters_are_refused) {
  struct bench bench;
  bench_begin(&bench);
  add_mine(&bench, mix_image_bytes, "mix", 0, 4, 4);
  require_refused(&bench, RONDO_INVALID_ARGUMENT, "task 'mine': kernel 'mix' has more than 4 parameters");
}

Test(user_work, too_many_parameters_are_refused) {
  struct bench bench;
  bench_begin(&bench);
  add_mine(&bench, mix_image_bytes, "mix", 0, 6, 4);
  require_refused(&bench, RONDO_INVALID_ARGUMENT, "task 'mine': kernel 'mix' has 5 parameters, not 6");
}

Test(user_work, more_shared_memory_is_opted_into) {
  struct bench bench;
  bench_begin(&bench);
  add_mine(&bench, mix_image_bytes, "mix", 100 * 1024, 5, 4);
  REQUIRE_OK(bench_instantiate(&bench));
  cr_assert_eq(fake->calls("cuKernelSetAttribute"), SLOTS); /* each slot loads the image for itself */
  require_result(&bench, mixed);
  bench_end(&bench);
}

/* Of 16 blocks; without leave the fake refuses them, as the driver does. */
Test(user_work, clusters_wider_than_every_chip_runs_are_allowed_to_a_kernel_that_has_them) {
  struct fake_settings settings = fake->settings();
  struct bench bench;
  settings.cluster_width = 16;
  fake->configure(&settings);
  bench_begin(&bench);
  add_mine(&bench, mix_image_bytes, "mix", 0, 5, 4);
  REQUIRE_OK(bench_instantiate(&bench));
  cr_assert_eq(fake->calls("cuKernelSetAttribute"), SLOTS);
  require_result(&bench, mixed);
  bench_end(&bench);
}

Test(user_work, clusters_of_eight_blocks_need_no_leave) {
  struct fake_settings settings = fake->settings();
  struct bench bench;
  settings.cluster_width = 8;
  fake->configure(&settings);
  bench_begin(&bench);
  add_mine(&bench, mix_image_bytes, "mix", 0, 5, 4);
  REQUIRE_OK(bench_instantiate(&bench));
  cr_assert_eq(fake->calls("cuKernelSetAttribute"), 0);
  require_result(&bench, mixed);
  bench_end(&bench);
}

Test(user_work, more_shared_memory_than_the_chip_has_is_refused) {
  struct bench bench;
  bench_begin(&bench);
  add_mine(&bench, mix_image_bytes, "mix", 232449, 5, 4);
  require_refused(&bench, RONDO_DEVICE_ERROR, "task 'mine': 232449 bytes of shared memory");
}

Test(user_work, a_text_image_without_an_end_is_refused) {
  struct bench bench;
  bench_begin(&bench);
  add_mine(&bench, 10, "mix", 0, 5, 4);
  require_refused(&bench, RONDO_INVALID_ARGUMENT, "task 'mine'");
}

Test(user_work, an_image_of_several_tasks_is_loaded_once_for_a_slot) {
  struct bench bench;
  bench_begin(&bench);
  rondo_tensor between = add_vector(rondo_temporary, bench.graph, "between", COUNT);
  add_mix(bench.graph, "first", bench.x, bench.x, between, COUNT, 1);
  add_mix(bench.graph, "second", between, between, bench.y, COUNT, 2);
  REQUIRE_OK(bench_instantiate(&bench));
  cr_assert_eq(fake->calls("cuLibraryLoadData"), 2 + SLOTS);
  bench_end(&bench);
}

Test(user_work, a_task_for_the_host_alone_is_refused_on_the_device) {
  struct bench bench;
  bench_begin(&bench);
  rondo_argument arguments[] = {{.tensor = bench.x, .access = RONDO_READ}, {.tensor = bench.y, .access = RONDO_WRITE}};
  REQUIRE_OK(rondo_add_kernel(
      bench.graph,
      &(rondo_kernel_desc){.name = "hosted", .arguments = arguments, .argument_count = 2, .host = mix_host}));
  require_refused(&bench, RONDO_UNSUPPORTED, "hosted");
}

Test(user_work, a_capture_for_the_host_alone_is_refused_on_the_device) {
  struct bench bench;
  bench_begin(&bench);
  rondo_argument arguments[] = {{.tensor = bench.x, .access = RONDO_READ}, {.tensor = bench.y, .access = RONDO_WRITE}};
  REQUIRE_OK(rondo_add_capture(
      bench.graph,
      &(rondo_capture_desc){.name = "hosted", .arguments = arguments, .argument_count = 2, .host = mix_host}, NULL));
  require_refused(&bench, RONDO_UNSUPPORTED, "hosted");
}

/* ---- Captures ---------------------------------------------------------------------------------------------------- */

/* The pieces of the captured work, out = f(in) each. */
static void triple(void *const *arguments) {
  const uint32_t *in = arguments[0];
  uint32_t *out = arguments[1];
  for (int i = 0; i < COUNT; i++) out[i] = 3 * in[i];
}

static void add_one_in_half(void *const *arguments) { /* of out, arguments[1] elements from arguments[0] on */
  uint32_t *out = arguments[0];
  for (int i = 0; i < COUNT / 2; i++) out[i] += 1;
}

static void square(void *const *arguments) {
  uint32_t *out = arguments[0];
  for (int i = 0; i < COUNT; i++) out[i] *= out[i];
}

static uint32_t tripled(uint32_t x) { return (3 * x + 1) * (3 * x + 1); }

/* A capture of `user`'s kind: what a library would enqueue. */
enum callback {
  GOOD, /* one node, two side by side, one */
  NOTHING,
  BREAKS,
  REFUSES,
  FORBIDDEN_HOST,
  FORBIDDEN_ALLOC,
  FORBIDDEN_FREE,
  FORBIDDEN_CHILD,
};

static int library_call(void *user, void *stream, void *const *data) {
  uint32_t *out = data[1];
  const struct fake_work first = {CU_NODE_KERNEL, triple, {data[0], out}, NULL};
  const struct fake_work halves[] = {{CU_NODE_KERNEL, add_one_in_half, {out}, NULL},
                                     {CU_NODE_KERNEL, add_one_in_half, {out + COUNT / 2}, NULL}};
  const struct fake_work last = {CU_NODE_KERNEL, square, {out}, NULL};
  const struct fake_work host = {.type = CU_NODE_HOST};
  const struct fake_work others[] = {[FORBIDDEN_HOST] = {.type = CU_NODE_HOST},
                                     [FORBIDDEN_ALLOC] = {.type = CU_NODE_MEM_ALLOC},
                                     [FORBIDDEN_FREE] = {.type = CU_NODE_MEM_FREE},
                                     [FORBIDDEN_CHILD] = {.type = CU_NODE_GRAPH, .child = &host}};
  switch (*(const enum callback *)user) {
  case NOTHING:
    return 0;
  case REFUSES:
    return 13;
  case BREAKS:
    fake->break_capture(stream);
    return 0;
  case GOOD:
    return fake->enqueue(stream, &first, 1) || fake->enqueue(stream, halves, 2) || fake->enqueue(stream, &last, 1);
  default:
    return fake->enqueue(stream, &first, 1) || fake->enqueue(stream, &others[*(const enum callback *)user], 1);
  }
}

static void add_library_call(struct bench *bench, const char *name, rondo_tensor in, rondo_tensor out,
                             const enum callback *kind) {
  rondo_argument arguments[] = {{.tensor = in, .access = RONDO_READ}, {.tensor = out, .access = RONDO_WRITE}};
  REQUIRE_OK(rondo_add_capture(
      bench->graph,
      &(rondo_capture_desc){.name = name, .arguments = arguments, .argument_count = 2, .user = (void *)(uintptr_t)kind},
      library_call));
}

Test(user_work, a_capture_runs_between_the_tasks_around_it) {
  static const enum callback good = GOOD;
  struct bench bench;
  bench_begin(&bench);
  rondo_tensor before = add_vector(rondo_temporary, bench.graph, "before", COUNT);
  rondo_tensor after = add_vector(rondo_temporary, bench.graph, "after", COUNT);
  add_copy(bench.graph, "copy before", bench.x, before);
  add_library_call(&bench, "library", before, after, &good);
  add_copy(bench.graph, "copy after", after, bench.y);
  REQUIRE_OK(bench_instantiate(&bench));
  cr_assert_eq(fake->calls("cuStreamBeginCaptureToGraph"), SLOTS, "once for each slot");
  require_result(&bench, tripled);
  bench_end(&bench);
}

Test(user_work, a_capture_alone_is_a_graph) {
  static const enum callback good = GOOD;
  struct bench bench;
  bench_begin(&bench);
  add_library_call(&bench, "library", bench.x, bench.y, &good);
  REQUIRE_OK(bench_instantiate(&bench));
  require_result(&bench, tripled);
  bench_end(&bench);
}

/* Its leaves are more than one, and the next task waits for all. */
static int leaves_apart(void *user, void *stream, void *const *data) {
  (void)user;
  uint32_t *out = data[1];
  const struct fake_work first = {CU_NODE_KERNEL, triple, {data[0], out}, NULL};
  const struct fake_work halves[] = {{CU_NODE_KERNEL, add_one_in_half, {out}, NULL},
                                     {CU_NODE_KERNEL, add_one_in_half, {out + COUNT / 2}, NULL}};
  return fake->enqueue(stream, &first, 1) || fake->enqueue(stream, halves, 2);
}

static uint32_t tripled_mixed(uint32_t x) { return 48 * (3 * x + 1) + 5; }

Test(user_work, the_next_task_waits_for_all_of_a_capture) {
  struct bench bench;
  bench_begin(&bench);
  rondo_tensor between = add_vector(rondo_temporary, bench.graph, "between", COUNT);
  rondo_argument arguments[] = {{.tensor = bench.x, .access = RONDO_READ}, {.tensor = between, .access = RONDO_WRITE}};
  REQUIRE_OK(rondo_add_capture(bench.graph,
                               &(rondo_capture_desc){.name = "library", .arguments = arguments, .argument_count = 2},
                               leaves_apart));
  add_mix(bench.graph, "mix", between, between, bench.y, COUNT, 5);
  REQUIRE_OK(bench_instantiate(&bench));
  require_result(&bench, tripled_mixed);
  bench_end(&bench);
}

Test(user_work, a_capture_of_nothing_keeps_the_order) {
  static const enum callback nothing = NOTHING;
  struct bench bench;
  bench_begin(&bench);
  rondo_tensor state = add_vector(rondo_state, bench.graph, "state", COUNT);
  add_library_call(&bench, "first", bench.x, state, &nothing); /* behind nothing but the copy in */
  add_mix(bench.graph, "mix", bench.x, bench.x, bench.y, COUNT, COUNT);
  REQUIRE_OK(bench_instantiate(&bench));
  require_result(&bench, mixed);
  bench_end(&bench);
}

/* Nothing comes before it, and it enqueues nothing: there is no node to wait for. */
Test(user_work, a_capture_of_nothing_after_nothing_is_a_task) {
  static const enum callback nothing = NOTHING;
  struct bench bench;
  bench_begin(&bench);
  rondo_tensor a = add_vector(rondo_state, bench.graph, "a", COUNT),
               b = add_vector(rondo_state, bench.graph, "b", COUNT);
  add_library_call(&bench, "nothing", a, b, &nothing);
  add_mix(bench.graph, "mix", bench.x, bench.x, bench.y, COUNT, COUNT);
  REQUIRE_OK(bench_instantiate(&bench));
  require_result(&bench, mixed);
  bench_end(&bench);
}

/* ---- Captures that are refused ----------------------------------------------------------------------------------- */

static void require_capture_refused(const enum callback *kind, rondo_status expected, const char *fragment) {
  static const enum callback good = GOOD;
  struct bench bench;
  bench_begin(&bench);
  rondo_tensor between = add_vector(rondo_temporary, bench.graph, "between", COUNT);
  add_library_call(&bench, "good one", bench.x, between, &good);
  add_library_call(&bench, "bad one", between, bench.y, kind);
  char text[128];
  snprintf(text, sizeof text, "instantiate: task 'bad one': %s", fragment);
  require_refused(&bench, expected, text);
}

Test(user_work, a_captured_host_callback_is_refused) {
  static const enum callback kind = FORBIDDEN_HOST;
  require_capture_refused(&kind, RONDO_UNSUPPORTED, "the callback enqueued a host callback");
}

Test(user_work, a_captured_allocation_is_refused) {
  static const enum callback kind = FORBIDDEN_ALLOC;
  require_capture_refused(&kind, RONDO_UNSUPPORTED, "the callback enqueued a memory allocation");
}

Test(user_work, a_captured_release_is_refused) {
  static const enum callback kind = FORBIDDEN_FREE;
  require_capture_refused(&kind, RONDO_UNSUPPORTED, "the callback enqueued a memory release");
}

Test(user_work, a_host_callback_hidden_in_a_child_graph_is_refused) {
  static const enum callback kind = FORBIDDEN_CHILD;
  require_capture_refused(&kind, RONDO_UNSUPPORTED, "the callback enqueued a host callback");
}

Test(user_work, a_callback_that_fails_is_refused_with_what_it_returned) {
  static const enum callback kind = REFUSES;
  require_capture_refused(&kind, RONDO_DEVICE_ERROR, "the callback returned 13");
}

Test(user_work, a_callback_that_breaks_the_capture_is_refused) {
  static const enum callback kind = BREAKS;
  require_capture_refused(&kind, RONDO_DEVICE_ERROR, "the callback broke the stream's capture");
}

/* ---- Many captures, and what a callback may do ------------------------------------------------------------------- */

/* As many captures in a row; how often the driver was asked for a node's type. */
static uint64_t types_asked(uint32_t captures) {
  static const enum callback kind = GOOD;
  struct bench bench;
  driver_setup();
  bench_begin(&bench);
  for (uint32_t i = 0; i < captures; i++) add_library_call(&bench, "library", bench.x, bench.y, &kind);
  rondo_options options = options_for(bench.graph, RONDO_BACKEND_CUDA, 1);
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, bench.graph, NULL, &exec));
  uint64_t asked = fake->calls("cuGraphNodeGetType");
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&bench.graph));
  REQUIRE_OK(rondo_close(&runtime));
  require_clean("after close");
  return asked;
}

Test(user_work, each_node_is_looked_at_once_however_many_captures_there_are) {
  uint64_t few = types_asked(10), many = types_asked(200);
  cr_assert_gt(few, 40, "four nodes each");
  cr_assert_lt(many, 21 * few, "%lu of 200 captures, %lu of 10", many, few);
}

Test(user_work, of_several_captures_the_forbidden_one_is_named) {
  static const enum callback good = GOOD, bad = FORBIDDEN_HOST;
  struct bench bench;
  bench_begin(&bench);
  add_library_call(&bench, "first", bench.x, bench.y, &good);
  add_library_call(&bench, "second", bench.x, bench.y, &bad);
  add_library_call(&bench, "third", bench.x, bench.y, &good);
  require_refused(&bench, RONDO_UNSUPPORTED, "task 'second': the callback enqueued a host callback");
}

/* ---- Beside an exec that is being made --------------------------------------------------------------------------- */

struct beside {
  rondo_exec *owner;
  rondo_tensor weights;
  rondo_status status;
};

static void *upload_beside(void *argument) {
  struct beside *beside = argument;
  uint32_t data[COUNT] = {0};
  beside->status = rondo_upload(beside->owner, beside->weights, data, sizeof data);
  return NULL;
}

static int upload_from_another_thread(void *user, void *stream, void *const *data) {
  (void)stream;
  (void)data;
  pthread_t thread;
  cr_assert_eq(pthread_create(&thread, NULL, upload_beside, user), 0);
  cr_assert_eq(pthread_join(thread, NULL), 0);
  return 0;
}

/* What the upload asks of the borrower's slots must be there before the borrower is made. */
Test(user_work, weights_are_not_uploaded_while_a_graph_that_borrows_them_is_instantiated) {
  struct beside beside = {.status = RONDO_INTERNAL};
  rondo_graph *lender = NULL, *borrower = NULL;
  rondo_tensor weights;
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &lender));
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &borrower));
  beside.weights = add_vector(rondo_constant, lender, "weights", COUNT);
  add_copy(lender, "copy", beside.weights, add_vector(rondo_output, lender, "y", COUNT));
  REQUIRE_OK(rondo_borrow(borrower, beside.weights, &weights));
  rondo_argument arguments[] = {{.tensor = weights, .access = RONDO_READ},
                                {.tensor = add_vector(rondo_output, borrower, "y", COUNT), .access = RONDO_WRITE}};
  REQUIRE_OK(rondo_add_capture(borrower,
                               &(rondo_capture_desc){.arguments = arguments, .argument_count = 2, .user = &beside},
                               upload_from_another_thread));
  rondo_options options = {
      .backend = RONDO_BACKEND_CUDA, .device_bytes = 1 << 20, .pinned_bytes = 1 << 20, .host_bytes = 4 << 20};
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, lender, NULL, &beside.owner));
  REQUIRE_OK(rondo_instantiate(runtime, borrower, &(rondo_exec_options){.slots = 2}, &exec));
  cr_assert_eq(beside.status, RONDO_BUSY, "%s", rondo_status_name(beside.status));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_close_exec(&beside.owner));
  REQUIRE_OK(rondo_graph_destroy(&borrower));
  REQUIRE_OK(rondo_graph_destroy(&lender));
  REQUIRE_OK(rondo_close(&runtime));
  require_clean("after close");
}

/* ---- Callbacks that call Rondo ----------------------------------------------------------------------------------- */

struct nested {
  rondo_runtime *runtime;
  rondo_graph *graph;
  rondo_status status;
  char text[256];
  rondo_info info;
};

static int instantiate_inside(void *user, void *stream, void *const *data) {
  (void)stream;
  (void)data;
  struct nested *nested = user;
  rondo_exec *exec = NULL;
  nested->status = rondo_instantiate(nested->runtime, nested->graph, NULL, &exec);
  snprintf(nested->text, sizeof nested->text, "%s", rondo_error_text());
  REQUIRE_OK(rondo_runtime_info(nested->runtime, &nested->info));
  return 0;
}

Test(user_work, a_callback_that_instantiates_is_refused_and_one_that_asks_is_answered, .timeout = 20) {
  struct bench bench;
  struct nested nested = {0};
  bench_begin(&bench);
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &nested.graph));
  add_copy(nested.graph, "copy", add_vector(rondo_input, nested.graph, "x", COUNT),
           add_vector(rondo_output, nested.graph, "y", COUNT));
  rondo_argument arguments[] = {{.tensor = bench.x, .access = RONDO_READ}, {.tensor = bench.y, .access = RONDO_WRITE}};
  REQUIRE_OK(rondo_add_capture(bench.graph,
                               &(rondo_capture_desc){.arguments = arguments, .argument_count = 2, .user = &nested},
                               instantiate_inside));
  rondo_options options = options_for(bench.graph, RONDO_BACKEND_CUDA, 1);
  options.host_bytes *= 2, options.device_bytes *= 2, options.pinned_bytes *= 2;
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_open(&options, &nested.runtime));
  REQUIRE_OK(rondo_instantiate(nested.runtime, bench.graph, NULL, &exec));
  cr_assert_eq(nested.status, RONDO_INVALID_STATE);
  cr_assert_str_eq(nested.text, "rondo_instantiate: called from a task of this runtime: it would wait for itself");
  cr_assert_eq(nested.info.backend, RONDO_BACKEND_CUDA);
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_instantiate(nested.runtime, nested.graph, NULL, &exec)); /* outside it is allowed */
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&nested.graph));
  REQUIRE_OK(rondo_graph_destroy(&bench.graph));
  REQUIRE_OK(rondo_close(&nested.runtime));
  require_clean("after close");
}
