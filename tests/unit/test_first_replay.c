/* test_first_replay.c - the time before an exec's first replay: what runs, what constants and states hold, and the
 * error for a constant that nobody has uploaded. */
#include <criterion/criterion.h>
#include <string.h>

#include "../support.h"

enum { COUNT = 64, BYTES = COUNT * 4, SLOTS = 3 };
static const int64_t shape[] = {COUNT}, half[] = {COUNT / 2}, at_half[] = {COUNT / 2};

static rondo_runtime *open_runtime(rondo_backend backend) {
  rondo_runtime *runtime = NULL;
  rondo_options options = {.backend = backend, .device_bytes = 1 << 20, .pinned_bytes = 1 << 20, .host_threads = 2};
  REQUIRE_OK(rondo_open(&options, &runtime));
  return runtime;
}

static rondo_graph *new_graph(void) {
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 16, .tasks = 16}, &graph));
  return graph;
}

typedef rondo_status (*add_tensor)(rondo_graph *, const char *, rondo_dtype, uint32_t, const int64_t *, rondo_tensor *);

static rondo_tensor add(rondo_graph *graph, add_tensor kind, const char *name) {
  rondo_tensor tensor;
  REQUIRE_OK(kind(graph, name, RONDO_F32, 1, shape, &tensor));
  return tensor;
}

static rondo_tensor add_copy_out(rondo_graph *graph, rondo_tensor src, const char *name) {
  rondo_tensor out = add(graph, rondo_output, name);
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = src, .dst = out}));
  return out;
}

static rondo_exec *open_exec(rondo_runtime *runtime, rondo_graph *graph, rondo_exec_options options) {
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_instantiate(runtime, graph, &options, &exec));
  return exec;
}

static rondo_slot acquire(rondo_exec *exec) {
  rondo_slot slot;
  REQUIRE_OK(rondo_acquire(exec, &slot));
  return slot;
}

static void replay(rondo_slot slot) {
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
}

static void require_filled(const float *data, int first, int last, float expected, const char *what) {
  for (int i = first; i < last; i++)
    cr_assert_eq(data[i], expected, "%s: element %d is %g, expected %g", what, i, (double)data[i], (double)expected);
}

static void upload(rondo_exec *exec, rondo_tensor tensor, float value, int count) {
  float data[COUNT];
  for (int i = 0; i < count; i++) data[i] = value;
  REQUIRE_OK(rondo_upload(exec, tensor, data, (uint64_t)count * sizeof *data));
}

/* ---- Constants --------------------------------------------------------------------------------------------------- */

static void constants_are_asked_for(rondo_backend backend) {
  rondo_runtime *runtime = open_runtime(backend);
  rondo_graph *graph = new_graph();
  rondo_tensor view, empty, empty_out;
  add(graph, rondo_constant, "not read");
  REQUIRE_OK(rondo_constant(graph, "empty", RONDO_F32, 1, (int64_t[]){0}, &empty));
  REQUIRE_OK(rondo_output(graph, "empty out", RONDO_F32, 1, (int64_t[]){0}, &empty_out));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = empty, .dst = empty_out}));
  rondo_tensor w = add(graph, rondo_constant, "w"), v = add(graph, rondo_constant, "v");
  REQUIRE_OK(rondo_view(graph, v, at_half, half, &view));
  rondo_tensor from_w = add_copy_out(graph, w, "from w"), from_v = add_copy_out(graph, v, "from v");
  rondo_exec *exec = open_exec(runtime, graph, (rondo_exec_options){.slots = 2});
  rondo_slot slots[2] = {acquire(exec), acquire(exec)};
  for (int s = 0; s < 2; s++)
    REQUIRE_ERROR(rondo_replay(slots[s]), RONDO_INVALID_STATE,
                  "rondo_replay: constant 'w' has never been uploaded: call rondo_upload");
  rondo_task_profile tasks[8];
  rondo_profile_totals totals;
  rondo_exec_usage usage;
  REQUIRE_OK(rondo_exec_info(exec, &usage));
  REQUIRE_ERROR(rondo_profile(slots[0], NULL, tasks, usage.node_count, &totals), RONDO_INVALID_STATE,
                "rondo_profile: constant 'w' has never been uploaded");
  REQUIRE_OK(rondo_poll(slots[0])); /* nothing was started */
  upload(exec, w, 2, COUNT);
  REQUIRE_ERROR(rondo_replay(slots[0]), RONDO_INVALID_STATE, "constant 'v' has never been uploaded");
  upload(exec, view, 3, COUNT / 2);
  for (int s = 0; s < 2; s++) {
    replay(slots[s]);
    require_filled(rondo_data(slots[s], from_w), 0, COUNT, 2, "w");
    require_filled(rondo_data(slots[s], from_v), 0, COUNT / 2, 0, "v where nothing was uploaded");
    require_filled(rondo_data(slots[s], from_v), COUNT / 2, COUNT, 3, "v");
    REQUIRE_OK(rondo_release(slots[s]));
  }
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
}
BOTH_BACKENDS(first_replay, wants_every_constant_that_a_task_reads_uploaded, constants_are_asked_for)

Test(first_replay, does_not_take_an_upload_of_no_elements_for_one) {
  rondo_runtime *runtime = open_runtime(RONDO_BACKEND_HOST);
  rondo_graph *graph = new_graph();
  rondo_tensor w = add(graph, rondo_constant, "w"), empty;
  REQUIRE_OK(rondo_view(graph, w, (int64_t[]){0}, (int64_t[]){0}, &empty));
  add_copy_out(graph, w, "out");
  rondo_exec *exec = open_exec(runtime, graph, (rondo_exec_options){0});
  rondo_slot slot = acquire(exec);
  REQUIRE_OK(rondo_upload(exec, empty, NULL, 0));
  REQUIRE_ERROR(rondo_upload(exec, w, &slot, 5), RONDO_INVALID_ARGUMENT, "tensor 'w' has 256 bytes, not 5");
  REQUIRE_ERROR(rondo_replay(slot), RONDO_INVALID_STATE, "constant 'w' has never been uploaded");
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
}

/* A lender whose own tasks read no constant, and a borrower that does. */
Test(first_replay, wants_borrowed_constants_uploaded_where_they_belong) {
  for (int begins_as_zeros = 0; begins_as_zeros < 2; begins_as_zeros++) {
    rondo_runtime *runtime = open_runtime(RONDO_BACKEND_HOST);
    rondo_graph *lender_graph = new_graph(), *graph = new_graph();
    rondo_tensor w = add(lender_graph, rondo_constant, "w"), borrowed;
    REQUIRE_OK(rondo_borrow(graph, w, &borrowed));
    rondo_tensor out = add_copy_out(graph, borrowed, "out");
    rondo_exec *lender =
        open_exec(runtime, lender_graph, (rondo_exec_options){.constants_begin_as_zeros = begins_as_zeros});
    rondo_exec *exec = open_exec(runtime, graph, (rondo_exec_options){.constants_begin_as_zeros = !begins_as_zeros});
    rondo_slot slot = acquire(exec), of_lender = acquire(lender);
    replay(of_lender);
    if (!begins_as_zeros) {
      REQUIRE_ERROR(rondo_replay(slot), RONDO_INVALID_STATE,
                    "constant 'w', borrowed from another exec, has never been");
      upload(lender, w, 4, COUNT);
    }
    replay(slot);
    require_filled(rondo_data(slot, out), 0, COUNT, begins_as_zeros ? 0 : 4, "w");
    REQUIRE_OK(rondo_close_exec(&exec));
    REQUIRE_OK(rondo_close_exec(&lender));
    REQUIRE_OK(rondo_graph_destroy(&graph));
    REQUIRE_OK(rondo_graph_destroy(&lender_graph));
    REQUIRE_OK(rondo_close(&runtime));
  }
}

/* In the slot where it is bound, and no longer than it is. */
Test(first_replay, takes_a_buffer_of_the_callers_for_a_constant) {
  static _Alignas(256) float buffer[COUNT];
  rondo_runtime *runtime = open_runtime(RONDO_BACKEND_HOST);
  rondo_graph *graph = new_graph();
  rondo_tensor w = add(graph, rondo_constant, "w"), out = add_copy_out(graph, w, "out");
  rondo_exec *exec = open_exec(runtime, graph, (rondo_exec_options){.slots = 2});
  rondo_slot slot = acquire(exec), other = acquire(exec);
  for (int i = 0; i < COUNT; i++) buffer[i] = 5;
  REQUIRE_OK(rondo_rebind(slot, w, buffer));
  replay(slot);
  require_filled(rondo_data(slot, out), 0, COUNT, 5, "bound");
  REQUIRE_ERROR(rondo_replay(other), RONDO_INVALID_STATE, "constant 'w' has never been uploaded");
  REQUIRE_OK(rondo_rebind(slot, w, NULL));
  REQUIRE_ERROR(rondo_replay(slot), RONDO_INVALID_STATE, "constant 'w' has never been uploaded");
  REQUIRE_OK(rondo_rebind(slot, w, buffer));
  replay(slot);
  REQUIRE_OK(rondo_release(slot));
  slot = acquire(exec);
  REQUIRE_ERROR(rondo_replay(slot), RONDO_INVALID_STATE, "constant 'w' has never been uploaded");
  upload(exec, w, 6, COUNT);
  replay(slot);
  require_filled(rondo_data(slot, out), 0, COUNT, 6, "uploaded");
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
}

/* In memory that held something else before. */
static void begin_as_zeros(rondo_backend backend) {
  rondo_runtime *runtime = open_runtime(backend);
  rondo_graph *graph = new_graph();
  rondo_tensor w = add(graph, rondo_constant, "w"), state = add(graph, rondo_state, "state");
  rondo_tensor from_w = add_copy_out(graph, w, "from w"), from_state = add_copy_out(graph, state, "from state");
  for (int without_warm_up = 0; without_warm_up < 2; without_warm_up++) {
    rondo_exec *exec = open_exec(
        runtime, graph, (rondo_exec_options){.without_warm_up = without_warm_up, .constants_begin_as_zeros = 1});
    rondo_slot slot = acquire(exec);
    replay(slot);
    require_filled(rondo_data(slot, from_w), 0, COUNT, 0, "w");
    require_filled(rondo_data(slot, from_state), 0, COUNT, 0, "state");
    upload(exec, w, 7, COUNT);
    upload(exec, state, 8, COUNT);
    replay(slot);
    require_filled(rondo_data(slot, from_w), 0, COUNT, 7, "w");
    require_filled(rondo_data(slot, from_state), 0, COUNT, 8, "state");
    REQUIRE_OK(rondo_release(slot));
    REQUIRE_OK(rondo_close_exec(&exec));
  }
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
}
BOTH_BACKENDS(first_replay, finds_zeros_where_they_were_asked_for, begin_as_zeros)

/* ---- The warm-up ------------------------------------------------------------------------------------------------- */

static struct {
  int runs;
  float input, constant, state; /* what the last run found */
} seen;

static void look(void *user, void *const *data) {
  (void)user;
  const float *input = data[0], *constant = data[1];
  float *state = data[2];
  seen.runs++;
  seen.input = input[0];
  seen.constant = constant[0];
  seen.state = state[0];
  state[0] += 1;
}

struct watched {
  rondo_graph *graph;
  rondo_tensor input, constant, state;
};

static struct watched describe_watched(void) {
  struct watched w = {.graph = new_graph()};
  memset(&seen, 0, sizeof seen);
  w.input = add(w.graph, rondo_input, "input");
  w.constant = add(w.graph, rondo_constant, "constant");
  w.state = add(w.graph, rondo_state, "state");
  rondo_argument arguments[] = {{.tensor = w.input, .access = RONDO_READ},
                                {.tensor = w.constant, .access = RONDO_READ},
                                {.tensor = w.state, .access = RONDO_READ_WRITE}};
  REQUIRE_OK(
      rondo_add_kernel(w.graph, &(rondo_kernel_desc){.host = look, .arguments = arguments, .argument_count = 3}));
  return w;
}

static void is_first_seen_by(const struct watched *w, rondo_exec *exec) {
  int before = seen.runs;
  upload(exec, w->constant, 3, COUNT);
  for (int s = 0; s < SLOTS; s++) {
    rondo_slot slot = acquire(exec);
    *(float *)rondo_data(slot, w->input) = 10 + (float)s;
    replay(slot);
    cr_assert_eq(seen.runs, before + s + 1, "one run a replay");
    cr_assert(seen.input == 10 + (float)s && seen.constant == 3 && seen.state == (float)s,
              "replay %d found %g, %g and %g", s, (double)seen.input, (double)seen.constant, (double)seen.state);
  }
}

Test(first_replay, comes_after_a_warm_up_of_every_slot_on_zeros) {
  struct watched w = describe_watched();
  rondo_runtime *runtime = open_runtime(RONDO_BACKEND_HOST);
  rondo_exec *exec = open_exec(runtime, w.graph, (rondo_exec_options){.slots = SLOTS});
  cr_assert_eq(seen.runs, SLOTS);
  cr_assert_eq(seen.input, 0);
  cr_assert_eq(seen.constant, 0);
  is_first_seen_by(&w, exec);
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&w.graph));
  REQUIRE_OK(rondo_close(&runtime));
}

Test(first_replay, is_the_first_run_of_a_task_without_a_warm_up) {
  struct watched w = describe_watched();
  rondo_runtime *runtime = open_runtime(RONDO_BACKEND_HOST);
  rondo_exec *exec = open_exec(runtime, w.graph, (rondo_exec_options){.slots = SLOTS, .without_warm_up = 1});
  cr_assert_eq(seen.runs, 0);
  is_first_seen_by(&w, exec);
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&w.graph));
  REQUIRE_OK(rondo_close(&runtime));
}
