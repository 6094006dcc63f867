/* test_allocator.c - the caller's allocators, on the host backend: memory is given back as it was taken, and nothing
 * of a runtime is taken between open and close. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"

enum { COUNT = 300, MOST_BLOCKS = 64 };

/* An allocator that remembers. */
struct recorder {
  const char *name;
  bool sealed; /* nobody may call it now */
  int calls, fail_at;
  struct {
    void *memory;
    size_t bytes;
  } live[MOST_BLOCKS];
};

static void *record_allocate(void *user, size_t bytes, size_t alignment) {
  struct recorder *recorder = user;
  cr_assert_not(recorder->sealed, "%s was asked for %zu bytes", recorder->name, bytes);
  cr_assert(bytes > 0 && alignment > 0 && (alignment & (alignment - 1)) == 0);
  if (++recorder->calls == recorder->fail_at) return NULL;
  for (int i = 0; i < MOST_BLOCKS; i++) {
    if (recorder->live[i].memory) continue;
    recorder->live[i].bytes = bytes;
    recorder->live[i].memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    memset(recorder->live[i].memory, 0xee, bytes); /* what is not cleared shows */
    return recorder->live[i].memory;
  }
  cr_assert_fail("%s: too many blocks", recorder->name);
  return NULL;
}

static void record_release(void *user, void *memory, size_t bytes) {
  struct recorder *recorder = user;
  cr_assert_not(recorder->sealed, "%s was given back %zu bytes", recorder->name, bytes);
  for (int i = 0; i < MOST_BLOCKS; i++) {
    if (!memory || recorder->live[i].memory != memory) continue;
    cr_assert_eq(recorder->live[i].bytes, bytes, "%s: %zu bytes were taken, %zu given back", recorder->name,
                 recorder->live[i].bytes, bytes);
    free(memory);
    recorder->live[i].memory = NULL;
    return;
  }
  cr_assert_fail("%s: what was given back was never taken, or given back before", recorder->name);
}

static rondo_allocator allocator_of(struct recorder *recorder) {
  return (rondo_allocator){.user = recorder, .allocate = record_allocate, .release = record_release};
}

static size_t live_bytes(const struct recorder *recorder) {
  size_t bytes = 0;
  for (int i = 0; i < MOST_BLOCKS; i++) bytes += recorder->live[i].memory ? recorder->live[i].bytes : 0;
  return bytes;
}

static rondo_options options_with(const rondo_allocator *allocator) {
  return (rondo_options){.backend = RONDO_BACKEND_HOST,
                         .device_bytes = 1 << 16,
                         .pinned_bytes = 1 << 16,
                         .host_bytes = 4 << 20,
                         .host_threads = 2,
                         .allocator = allocator};
}

/* A chain of copies, long enough that planning has something to sort. */
static void describe(rondo_graph *graph, rondo_tensor *in, rondo_tensor *out) {
  const int64_t shape[] = {COUNT};
  rondo_tensor last, next;
  REQUIRE_OK(rondo_input(graph, "in", RONDO_F32, 1, shape, in));
  REQUIRE_OK(rondo_output(graph, "out", RONDO_F32, 1, shape, out));
  last = *in;
  for (int i = 0; i < 40; i++) {
    REQUIRE_OK(rondo_temporary(graph, NULL, RONDO_F32, 1, shape, &next));
    REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = last, .dst = next}));
    last = next;
  }
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = last, .dst = *out}));
}

static void use(rondo_runtime *runtime, rondo_graph *graph, rondo_tensor in, rondo_tensor out) {
  rondo_plan plan;
  rondo_exec *exec = NULL;
  rondo_slot slot;
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  REQUIRE_OK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.slots = 2}, &exec));
  REQUIRE_OK(rondo_acquire(exec, &slot));
  ((float *)rondo_data(slot, in))[COUNT - 1] = 5;
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  cr_assert_eq(((const float *)rondo_data(slot, out))[COUNT - 1], 5);
  REQUIRE_OK(rondo_release(slot));
  REQUIRE_OK(rondo_close_exec(&exec));
}

Test(allocator, of_a_runtime_is_called_by_open_and_close_alone) {
  struct recorder recorder = {.name = "the runtime's"};
  rondo_allocator allocator = allocator_of(&recorder);
  rondo_options options = options_with(&allocator);
  rondo_runtime *runtime = NULL;
  rondo_graph *graph = NULL;
  rondo_tensor in, out;
  REQUIRE_OK(rondo_open(&options, &runtime));
  allocator = (rondo_allocator){0}; /* it was copied */
  cr_assert_geq(live_bytes(&recorder), (1 << 16) + (1 << 16) + (4 << 20));
  recorder.sealed = true;
  REQUIRE_OK(rondo_graph_create(runtime, NULL, &graph));
  describe(graph, &in, &out);
  use(runtime, graph, in, out);
  REQUIRE_OK(rondo_write_dot(graph, "/dev/null"));
  REQUIRE_OK(rondo_write_plan_svg(graph, "/dev/null"));
  REQUIRE_OK(rondo_explain(graph, 0, "/dev/null"));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  recorder.sealed = false;
  REQUIRE_OK(rondo_close(&runtime));
  cr_assert_eq(live_bytes(&recorder), 0);
}

Test(allocator, of_a_graph_is_where_the_graph_and_its_planning_take_memory) {
  struct recorder of_runtime = {.name = "the runtime's"}, of_graph = {.name = "the graph's"};
  rondo_allocator runtime_allocator = allocator_of(&of_runtime), graph_allocator = allocator_of(&of_graph);
  rondo_options options = options_with(&runtime_allocator);
  rondo_runtime *runtime = NULL;
  rondo_graph *graph = NULL;
  rondo_tensor in, out;
  REQUIRE_OK(rondo_open(&options, &runtime));
  of_runtime.sealed = true;
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.allocator = &graph_allocator}, &graph));
  graph_allocator = (rondo_allocator){0};
  size_t of_graph_alone = live_bytes(&of_graph);
  cr_assert_gt(of_graph_alone, 0);
  of_graph.sealed = true;
  describe(graph, &in, &out);
  of_graph.sealed = false;
  int calls = of_graph.calls;
  use(runtime, graph, in, out);
  cr_assert_gt(of_graph.calls, calls);
  cr_assert_gt(live_bytes(&of_graph), of_graph_alone, "the plan is kept");
  calls = of_graph.calls;
  use(runtime, graph, in, out);
  cr_assert_eq(of_graph.calls, calls, "a plan is made once");
  REQUIRE_OK(rondo_state(graph, "more", RONDO_U8, 1, (int64_t[]){1}, &in));
  cr_assert_eq(live_bytes(&of_graph), of_graph_alone, "of a description that has changed");
  REQUIRE_OK(rondo_graph_destroy(&graph));
  cr_assert_eq(live_bytes(&of_graph), 0);
  of_graph.sealed = true;
  of_runtime.sealed = false;
  REQUIRE_OK(rondo_close(&runtime));
  cr_assert_eq(live_bytes(&of_runtime), 0);
}

Test(allocator, of_a_graph_that_has_no_memory_is_a_clean_error) {
  struct recorder recorder = {.name = "the graph's"};
  rondo_allocator allocator = allocator_of(&recorder);
  rondo_runtime *runtime = NULL;
  rondo_options options = options_with(NULL);
  REQUIRE_OK(rondo_open(&options, &runtime));
  int failures = 0;
  for (bool done = false; !done;) {
    rondo_graph *graph = NULL;
    rondo_exec *exec = NULL;
    rondo_tensor in, out;
    recorder.calls = 0;
    recorder.fail_at = failures + 1;
    rondo_status status = rondo_graph_create(NULL, &(rondo_graph_limits){.allocator = &allocator}, &graph);
    if (status == RONDO_OK) describe(graph, &in, &out);
    size_t described = live_bytes(&recorder);
    if (status == RONDO_OK) status = rondo_instantiate(runtime, graph, NULL, &exec);
    done = status == RONDO_OK;
    failures += !done;
    if (!done)
      require_error(status, RONDO_OUT_OF_MEMORY, failures > 1 ? "plan: the allocator has no" : "the allocator has no",
                    "create or instantiate");
    cr_assert_eq(exec == NULL, !done);
    if (!done) cr_assert_eq(live_bytes(&recorder), described, "a failed call keeps nothing");
    REQUIRE_OK(rondo_close_exec(&exec));
    REQUIRE_OK(rondo_graph_destroy(&graph));
    cr_assert_eq(live_bytes(&recorder), 0);
  }
  cr_assert_geq(failures, 2);
  REQUIRE_OK(rondo_close(&runtime));
}

Test(allocator, half_of_one_or_one_beside_a_runtime_is_refused) {
  struct recorder recorder = {.name = "the graph's", .sealed = true};
  rondo_allocator whole = allocator_of(&recorder), half = {.allocate = record_allocate};
  rondo_runtime *runtime = NULL;
  rondo_graph *graph = NULL;
  rondo_options options = options_with(&half);
  REQUIRE_ERROR(rondo_open(&options, &runtime), RONDO_INVALID_ARGUMENT, "lacks allocate or release");
  REQUIRE_ERROR(rondo_graph_create(NULL, &(rondo_graph_limits){.allocator = &half}, &graph), RONDO_INVALID_ARGUMENT,
                "lacks allocate or release");
  options.allocator = NULL;
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_ERROR(rondo_graph_create(runtime, &(rondo_graph_limits){.allocator = &whole}, &graph), RONDO_INVALID_ARGUMENT,
                "expected no allocator");
  cr_assert_null(graph);
  REQUIRE_OK(rondo_close(&runtime));
}

/* Sums of such sizes wrap: a pool of nothing would be opened. */
Test(allocator, sizes_that_no_machine_has_are_refused_before_anyone_is_asked) {
  struct recorder recorder = {.name = "the runtime's", .sealed = true};
  rondo_allocator allocator = allocator_of(&recorder);
  static const char *const pools[] = {"device pool", "pinned pool", "host pool"};
  for (int pool = 0; pool < 3; pool++)
    for (uint64_t less = 0; less < UINT64_C(1) << 62; less = less * 3 + 1) {
      rondo_options options = options_with(&allocator);
      *(pool == 0   ? &options.device_bytes
        : pool == 1 ? &options.pinned_bytes
                    : &options.host_bytes) = UINT64_MAX - less;
      for (int backend = RONDO_BACKEND_AUTO; backend <= RONDO_BACKEND_CUDA; backend++) {
        rondo_runtime *runtime = NULL;
        options.backend = (rondo_backend)backend;
        REQUIRE_ERROR(rondo_open(&options, &runtime), RONDO_OUT_OF_MEMORY, pools[pool]);
        cr_assert_null(runtime);
      }
    }
}
