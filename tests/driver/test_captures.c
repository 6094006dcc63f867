/* test_captures.c - captured library calls on the fake driver: work that a callback enqueues runs between the tasks
 * around it, in every slot and order. A capture that cannot be replayed is refused at instantiate, with the task's
 * name. Faults that would show: a successor that does not wait for all leaves, a forbidden node that passes, a callback
 * that can deadlock or upload at the wrong time, a refused capture that keeps memory or a context. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "driver_bench.h"

TestSuite(captures, .init = driver_setup, .timeout = 60);

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

Test(captures, a_capture_runs_between_the_tasks_around_it) {
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
  require_result(&bench, "capture", tripled);
  bench_end(&bench);
}

Test(captures, a_capture_alone_is_a_graph) {
  static const enum callback good = GOOD;
  struct bench bench;
  bench_begin(&bench);
  add_library_call(&bench, "library", bench.x, bench.y, &good);
  REQUIRE_OK(bench_instantiate(&bench));
  require_result(&bench, "capture", tripled);
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

Test(captures, the_next_task_waits_for_all_of_a_capture) {
  struct bench bench;
  bench_begin(&bench);
  rondo_tensor between = add_vector(rondo_temporary, bench.graph, "between", COUNT);
  rondo_argument arguments[] = {{.tensor = bench.x, .access = RONDO_READ}, {.tensor = between, .access = RONDO_WRITE}};
  REQUIRE_OK(rondo_add_capture(bench.graph,
                               &(rondo_capture_desc){.name = "library", .arguments = arguments, .argument_count = 2},
                               leaves_apart));
  add_mix(bench.graph, "mix", between, between, bench.y, COUNT, 5);
  REQUIRE_OK(bench_instantiate(&bench));
  require_result(&bench, "capture", tripled_mixed);
  bench_end(&bench);
}

Test(captures, a_capture_of_nothing_keeps_the_order) {
  static const enum callback nothing = NOTHING;
  struct bench bench;
  bench_begin(&bench);
  rondo_tensor state = add_vector(rondo_state, bench.graph, "state", COUNT);
  add_library_call(&bench, "first", bench.x, state, &nothing); /* after nothing but the copy in */
  add_mix(bench.graph, "mix", bench.x, bench.x, bench.y, COUNT, COUNT);
  REQUIRE_OK(bench_instantiate(&bench));
  require_result(&bench, "capture", mixed);
  bench_end(&bench);
}

/* Nothing comes before it, and it enqueues nothing: there is no node to wait for. */
Test(captures, a_capture_of_nothing_after_nothing_is_a_task) {
  static const enum callback nothing = NOTHING;
  struct bench bench;
  bench_begin(&bench);
  rondo_tensor a = add_vector(rondo_state, bench.graph, "a", COUNT),
               b = add_vector(rondo_state, bench.graph, "b", COUNT);
  add_library_call(&bench, "nothing", a, b, &nothing);
  add_mix(bench.graph, "mix", bench.x, bench.x, bench.y, COUNT, COUNT);
  REQUIRE_OK(bench_instantiate(&bench));
  require_result(&bench, "capture", mixed);
  bench_end(&bench);
}

/* ---- Captures that are refused ----------------------------------------------------------------------------------- */

static const struct {
  const char *what;
  enum callback kind;
  rondo_status expected;
  const char *sentence;
} refused_captures[] = {
    {"a host callback", FORBIDDEN_HOST, RONDO_UNSUPPORTED, "the callback enqueued a host callback"},
    {"an allocation", FORBIDDEN_ALLOC, RONDO_UNSUPPORTED, "the callback enqueued a memory allocation"},
    {"a release", FORBIDDEN_FREE, RONDO_UNSUPPORTED, "the callback enqueued a memory release"},
    {"a host callback in a child graph", FORBIDDEN_CHILD, RONDO_UNSUPPORTED, "the callback enqueued a host callback"},
    {"a callback that fails", REFUSES, RONDO_DEVICE_ERROR, "the callback returned 13"},
    {"a callback that breaks the capture", BREAKS, RONDO_DEVICE_ERROR, "the callback broke the stream's capture"},
};

Test(captures, a_capture_that_cannot_be_replayed_is_refused_by_name) {
  static const enum callback good = GOOD;
  for (size_t i = 0; i < sizeof refused_captures / sizeof *refused_captures; i++) {
    struct bench bench;
    char sentence[128];
    driver_setup();
    bench_begin(&bench);
    rondo_tensor between = add_vector(rondo_temporary, bench.graph, "between", COUNT);
    add_library_call(&bench, "good one", bench.x, between, &good);
    add_library_call(&bench, "bad one", between, bench.y, &refused_captures[i].kind);
    snprintf(sentence, sizeof sentence, "instantiate: task 'bad one': %s", refused_captures[i].sentence);
    require_refused(&bench, refused_captures[i].what, refused_captures[i].expected, sentence);
  }
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

Test(captures, each_node_is_looked_at_once_however_many_captures_there_are) {
  uint64_t few = types_asked(10), many = types_asked(200);
  cr_assert_gt(few, 40, "four nodes each");
  cr_assert_lt(many, 21 * few, "%lu of 200 captures, %lu of 10", many, few);
}

Test(captures, of_several_captures_the_forbidden_one_is_named) {
  static const enum callback good = GOOD, bad = FORBIDDEN_HOST;
  struct bench bench;
  bench_begin(&bench);
  add_library_call(&bench, "first", bench.x, bench.y, &good);
  add_library_call(&bench, "second", bench.x, bench.y, &bad);
  add_library_call(&bench, "third", bench.x, bench.y, &good);
  require_refused(&bench, "the second of three", RONDO_UNSUPPORTED,
                  "task 'second': the callback enqueued a host callback");
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
Test(captures, weights_are_not_uploaded_while_a_graph_that_borrows_them_is_instantiated) {
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

Test(captures, a_callback_that_instantiates_is_refused_and_one_that_asks_is_answered, .timeout = 20) {
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
