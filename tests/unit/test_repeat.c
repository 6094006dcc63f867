/* test_repeat.c - many replays in one launch: how many they are, what each of them left in the outputs, and what is
 * refused. */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../support.h"
#include "lone_task.h"

TestSuite(repeat, .timeout = 60);

enum { STEPS = 40, WIDE = 5000, SLOTS = 2 };

/* Each replay adds `step` to `total`, whose second element is 0 at first, and all of `wide` grows by `wide_step`. */
struct subject {
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_slot slot;
  rondo_tensor step, total, first, wide_step, wide, seen, wide_seen, numbers;
};

static void describe(struct subject *s, rondo_graph *graph) {
  rondo_tensor wide_total, zeros;
  const int64_t two[] = {2}, one[] = {1}, wide[] = {WIDE};
  REQUIRE_OK(rondo_state(graph, "total", RONDO_I32, 1, two, &s->total));
  REQUIRE_OK(rondo_view(graph, s->total, (int64_t[]){1}, one, &s->first));
  REQUIRE_OK(rondo_output(graph, "wide seen", RONDO_I32, 1, wide, &s->wide_seen));
  REQUIRE_OK(rondo_input(graph, "step", RONDO_I32, 1, two, &s->step));
  REQUIRE_OK(rondo_output(graph, "seen", RONDO_I32, 1, one, &s->seen));
  REQUIRE_OK(rondo_input(graph, "wide step", RONDO_I32, 1, wide, &s->wide_step));
  REQUIRE_OK(rondo_state(graph, "wide", RONDO_I32, 1, wide, &wide_total));
  REQUIRE_OK(rondo_state(graph, "zeros", RONDO_F32, 1, one, &zeros));
  REQUIRE_OK(rondo_output(graph, "numbers", RONDO_F32, 1, one, &s->numbers));
  REQUIRE_OK(rondo_add_add(graph, &(rondo_add_desc){.a = s->total, .b = s->step, .out = s->total}));
  REQUIRE_OK(rondo_add_add(graph, &(rondo_add_desc){.a = wide_total, .b = s->wide_step, .out = wide_total}));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = s->first, .dst = s->seen}));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = wide_total, .dst = s->wide_seen}));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = zeros, .dst = s->numbers}));
}

static struct subject subject_open(rondo_backend backend) {
  struct subject s = {0};
  rondo_graph *graph = NULL;
  rondo_plan plan;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  describe(&s, graph);
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  rondo_options options = {.backend = backend,
                           .device_bytes = plan.device_bytes + 4096,
                           .pinned_bytes =
                               4096 + SLOTS * (plan.pinned_bytes_per_slot + STEPS * plan.pinned_bytes_per_step),
                           .host_threads = 2};
  REQUIRE_OK(rondo_open(&options, &s.runtime));
  rondo_exec_options exec_options = {.slots = SLOTS, .repeat_steps = STEPS};
  REQUIRE_OK(rondo_instantiate(s.runtime, graph, &exec_options, &s.exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_acquire(s.exec, &s.slot));
  return s;
}

static void subject_close(struct subject *s) {
  REQUIRE_OK(rondo_close_exec(&s->exec));
  REQUIRE_OK(rondo_close(&s->runtime));
}

/* Sets the state to zero and all that grows by `step` a replay. */
static void begin(const struct subject *s, rondo_slot slot, int32_t step) {
  int32_t *step_data = rondo_data(slot, s->step), *wide_step = rondo_data(slot, s->wide_step);
  step_data[0] = 0, step_data[1] = step;
  for (int i = 0; i < WIDE; i++) wide_step[i] = step;
  REQUIRE_OK(rondo_upload(s->exec, s->total, (int32_t[]){0, 0}, 8));
}

/* After a repeat that began with `first` in the state. */
static void require_steps(const struct subject *s, rondo_slot slot, uint32_t count, int32_t first, int32_t step) {
  uint32_t done = 99;
  REQUIRE_OK(rondo_repeat_wait(slot, STEPS, RONDO_FOREVER, &done));
  cr_assert_eq(done, count);
  /* Not at once: the last replay is counted first. */
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  for (uint32_t i = 0; i < count; i++) {
    const int32_t *seen = rondo_repeat_data(slot, s->seen, i), *wide = rondo_repeat_data(slot, s->wide_seen, i);
    cr_assert_eq(*seen, first + (int32_t)(i + 1) * step, "replay %u of %u", i, count);
    for (int k = 0; k < WIDE; k++) cr_assert_eq(wide[k] - wide[0], 0);
    if (i) cr_assert_eq(wide[0] - *(const int32_t *)rondo_repeat_data(slot, s->wide_seen, i - 1), step);
  }
  cr_assert_eq(*(int32_t *)rondo_data(slot, s->seen), first + (int32_t)count * step);
}

/* ---- How many ---------------------------------------------------------------------------------------------------- */

static void counts(rondo_backend backend) {
  struct subject s = subject_open(backend);
  static const uint32_t all[] = {1, 2, 7, STEPS};
  for (int i = 0; i < 4; i++) {
    begin(&s, s.slot, 3);
    REQUIRE_OK(rondo_repeat(s.slot, &(rondo_repeat_options){.count = all[i]}));
    require_steps(&s, s.slot, all[i], 0, 3);
    int32_t total[2];
    REQUIRE_OK(rondo_download(s.exec, s.total, total, sizeof total));
    cr_assert_eq(total[1], 3 * (int32_t)all[i]);
    REQUIRE_OK(rondo_replay(s.slot)); /* as ever, and what the repeat left stays */
    REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
    cr_assert_eq(*(int32_t *)rondo_data(s.slot, s.seen), total[1] + 3);
    cr_assert_eq(*(const int32_t *)rondo_repeat_data(s.slot, s.seen, 0), 3);
  }
  subject_close(&s);
}
BOTH_BACKENDS(repeat, as_many_as_asked_for, counts)

static void values(rondo_backend backend) {
  struct subject s = subject_open(backend);
  int32_t sought[16];
  for (int i = 0; i < 16; i++) sought[i] = -1 - i;
  static const uint32_t ends[] = {1, 2, 17, STEPS - 1, STEPS};
  const rondo_tensor untils[] = {s.seen, s.first}; /* an output, and a view of a state */
  for (int i = 0; i < 10; i++) {
    const uint32_t end = ends[i % 5], value_count = i % 2 ? 16 : 1;
    sought[value_count - 1] = 5 * (int32_t)end;
    begin(&s, s.slot, 5);
    rondo_repeat_options options = {
        .count = STEPS, .until = untils[i / 5], .values = sought, .value_count = value_count};
    REQUIRE_OK(rondo_repeat(s.slot, &options));
    memset(sought, 0x7f, sizeof sought); /* read during the call only */
    require_steps(&s, s.slot, end, 0, 5);
  }
  subject_close(&s);
}
BOTH_BACKENDS(repeat, until_one_of_up_to_sixteen_values, values)

static void not_zero(rondo_backend backend) {
  struct subject s = subject_open(backend);
  for (int32_t step = 0; step < 2; step++) {
    begin(&s, s.slot, step);
    REQUIRE_OK(rondo_repeat(s.slot, &(rondo_repeat_options){.count = STEPS, .until = s.first}));
    require_steps(&s, s.slot, step ? 1 : STEPS, 0, step);
  }
  subject_close(&s);
}
BOTH_BACKENDS(repeat, until_not_zero, not_zero)

/* ---- As one replay ----------------------------------------------------------------------------------------------- */

static void in_turns(rondo_backend backend) {
  struct subject s = subject_open(backend);
  rondo_slot slots[SLOTS] = {s.slot}, told;
  int file = eventfd(0, EFD_NONBLOCK);
  REQUIRE_OK(rondo_acquire(s.exec, &slots[1]));
  REQUIRE_OK(rondo_notify(slots[0], file));
  begin(&s, slots[0], 1), begin(&s, slots[1], 1);
  for (uint32_t round = 0; round < 20; round++) {
    const int32_t first = (int32_t)round * (STEPS + 3);
    for (int i = 0; i < SLOTS; i++) {
      slots[i].user = &slots[i];
      REQUIRE_OK(rondo_repeat(slots[i], &(rondo_repeat_options){.count = i ? 3 : STEPS}));
    }
    for (int i = 0; i < SLOTS; i++) {
      REQUIRE_OK(rondo_wait_any(&s.exec, 1, RONDO_FOREVER, &told));
      cr_assert_eq(told.user, &slots[told.index]);
    }
    require_steps(&s, slots[0], STEPS, first, 1);
    require_steps(&s, slots[1], 3, first + STEPS, 1);
    REQUIRE_ERROR(rondo_wait_any(&s.exec, 1, 0, &told), RONDO_TIMEOUT, "no further");
    uint64_t notices = 0;
    cr_assert_eq(poll(&(struct pollfd){.fd = file, .events = POLLIN}, 1, -1), 1);
    cr_assert_eq(read(file, &notices, sizeof notices), sizeof notices);
    cr_assert_eq(notices, 1);
  }
  for (int i = 0; i < SLOTS; i++) REQUIRE_OK(rondo_release(slots[i]));
  close(file);
  subject_close(&s);
}
BOTH_BACKENDS(repeat, two_slots_in_turns_each_told_once, in_turns)

/* ---- While it runs ----------------------------------------------------------------------------------------------- */

/* A replay of the host that waits until the test lets it go on. */
struct gate {
  atomic_int entered, allowed;
};

static void pass_gate(void *user, void *const *data) {
  struct gate *gate = user;
  const int number = atomic_fetch_add(&gate->entered, 1);
  while (atomic_load(&gate->allowed) <= number) poll(NULL, 0, 1);
  *(int32_t *)data[0] = number;
}

struct gated {
  struct gate gate;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_slot slot;
  rondo_tensor number;
};

static void gated_open(struct gated *g) {
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_output(graph, "number", RONDO_I32, 1, (int64_t[]){1}, &g->number));
  rondo_kernel_desc kernel = {.arguments = &(rondo_argument){.tensor = g->number, .access = RONDO_WRITE},
                              .argument_count = 1,
                              .host = pass_gate,
                              .user = &g->gate};
  REQUIRE_OK(rondo_add_kernel(graph, &kernel));
  rondo_options options = {.backend = RONDO_BACKEND_HOST, .device_bytes = 1 << 16, .pinned_bytes = 1 << 16};
  REQUIRE_OK(rondo_open(&options, &g->runtime));
  rondo_exec_options exec_options = {.repeat_steps = STEPS, .without_warm_up = 1};
  REQUIRE_OK(rondo_instantiate(g->runtime, graph, &exec_options, &g->exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_acquire(g->exec, &g->slot));
}

static void gated_close(struct gated *g) {
  REQUIRE_OK(rondo_close_exec(&g->exec));
  REQUIRE_OK(rondo_close(&g->runtime));
}

Test(repeat, each_replay_can_be_read_while_the_next_one_runs) {
  struct gated g = {0};
  uint32_t done = 0;
  gated_open(&g);
  REQUIRE_OK(rondo_repeat(g.slot, &(rondo_repeat_options){.count = STEPS}));
  REQUIRE_OK(rondo_repeat_wait(g.slot, 0, 0, &done));
  cr_assert_eq(done, 0);
  for (uint32_t i = 0; i < STEPS; i++) {
    REQUIRE_ERROR(rondo_repeat_wait(g.slot, i + 1, 1000, &done), RONDO_TIMEOUT, "slot 0: ");
    cr_assert_null(rondo_repeat_data(g.slot, g.number, i));
    cr_assert(strstr(rondo_error_text(), "is not done"));
    cr_assert_eq(rondo_poll(g.slot), RONDO_BUSY);
    atomic_fetch_add(&g.gate.allowed, 1);
    REQUIRE_OK(rondo_repeat_wait(g.slot, i + 1, RONDO_FOREVER, &done));
    cr_assert_eq(done, i + 1);
    cr_assert_eq(*(const int32_t *)rondo_repeat_data(g.slot, g.number, i), (int32_t)i);
  }
  REQUIRE_OK(rondo_wait(g.slot, RONDO_FOREVER));
  REQUIRE_OK(rondo_repeat_wait(g.slot, UINT32_MAX, 0, &done));
  cr_assert_eq(done, STEPS);
  gated_close(&g);
}

Test(repeat, a_new_holder_has_repeated_nothing) {
  struct subject s = subject_open(RONDO_BACKEND_HOST);
  uint32_t done = 0;
  begin(&s, s.slot, 1);
  REQUIRE_OK(rondo_repeat(s.slot, &(rondo_repeat_options){.count = 4}));
  REQUIRE_OK(rondo_repeat_wait(s.slot, 4, RONDO_FOREVER, &done));
  REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
  cr_assert_not_null(rondo_repeat_data(s.slot, s.seen, 3));
  REQUIRE_OK(rondo_release(s.slot));
  for (int i = 0; i < SLOTS; i++) {
    REQUIRE_OK(rondo_acquire(s.exec, &s.slot));
    REQUIRE_OK(rondo_repeat_wait(s.slot, 1, 0, &done));
    cr_assert_eq(done, 0);
    cr_assert_null(rondo_repeat_data(s.slot, s.seen, 0));
  }
  subject_close(&s);
}

Test(repeat, a_stop_makes_the_replay_in_progress_the_last) {
  struct gated g = {0};
  uint32_t done = 0;
  gated_open(&g);
  for (int round = 0; round < 3; round++) {
    REQUIRE_OK(rondo_repeat_stop(g.slot)); /* nothing runs: no effect */
    REQUIRE_OK(rondo_repeat(g.slot, &(rondo_repeat_options){.count = STEPS}));
    atomic_fetch_add(&g.gate.allowed, 4);
    REQUIRE_OK(rondo_repeat_wait(g.slot, 4, RONDO_FOREVER, &done));
    REQUIRE_OK(rondo_repeat_stop(g.slot));
    atomic_fetch_add(&g.gate.allowed, 1);
    REQUIRE_OK(rondo_wait(g.slot, RONDO_FOREVER));
    REQUIRE_OK(rondo_repeat_wait(g.slot, STEPS, 0, &done));
    cr_assert_eq(done, 5);
    cr_assert_eq(atomic_load(&g.gate.entered), 5 * (round + 1));
  }
  gated_close(&g);
}

Test(repeat, a_slot_in_flight_is_neither_released_nor_repeated_nor_closed_in_time) {
  struct gated g = {0};
  uint32_t done = 0;
  gated_open(&g);
  REQUIRE_OK(rondo_repeat(g.slot, &(rondo_repeat_options){.count = STEPS}));
  atomic_fetch_add(&g.gate.allowed, 2);
  REQUIRE_OK(rondo_repeat_wait(g.slot, 2, RONDO_FOREVER, &done));
  REQUIRE_ERROR(rondo_release(g.slot), RONDO_BUSY, "in flight");
  REQUIRE_ERROR(rondo_replay(g.slot), RONDO_BUSY, "in flight");
  REQUIRE_ERROR(rondo_repeat(g.slot, &(rondo_repeat_options){.count = 1}), RONDO_BUSY, "in flight");
  cr_assert_eq(*(const int32_t *)rondo_repeat_data(g.slot, g.number, 1), 1);
  rondo_exec *exec = g.exec;
  atomic_fetch_add(&g.gate.allowed, STEPS);
  REQUIRE_OK(rondo_close_exec(&exec)); /* waits for all of it */
  cr_assert_eq(atomic_load(&g.gate.entered), STEPS);
  REQUIRE_OK(rondo_close(&g.runtime));
}

Test(repeat, a_lost_device_ends_the_wait_and_keeps_what_is_done) {
  struct gated g = {0};
  uint32_t done = 0;
  gated_open(&g);
  struct lone_task other = lone_task(g.runtime, nothing, NULL, NULL);
  REQUIRE_OK(rondo_repeat(g.slot, &(rondo_repeat_options){.count = STEPS}));
  REQUIRE_OK(rondo_replay(other.slot)); /* waits behind the repeat */
  atomic_fetch_add(&g.gate.allowed, 2);
  REQUIRE_OK(rondo_repeat_wait(g.slot, 2, RONDO_FOREVER, &done));
  REQUIRE_ERROR(rondo_close_exec_within(&other.exec, 1000000), RONDO_DEVICE_LOST, "was not done");
  REQUIRE_ERROR(rondo_repeat_wait(g.slot, 3, RONDO_FOREVER, &done), RONDO_DEVICE_LOST, "was not done");
  cr_assert_eq(*(const int32_t *)rondo_repeat_data(g.slot, g.number, 1), 1);
  atomic_store(&g.gate.allowed, 1000);
  REQUIRE_OK(rondo_close_exec(&g.exec));
  REQUIRE_OK(rondo_graph_destroy(&other.graph));
  REQUIRE_OK(rondo_close(&g.runtime));
  cr_assert_leq(atomic_load(&g.gate.entered), 3);
}

/* ---- Refused ----------------------------------------------------------------------------------------------------- */

Test(repeat, what_does_not_fit_is_refused) {
  struct subject s = subject_open(RONDO_BACKEND_HOST), other = subject_open(RONDO_BACKEND_HOST);
  static const int32_t all[17] = {0};
  const struct {
    rondo_repeat_options options;
    const char *text;
  } refused[] = {
      {{.count = 0}, "count is 0, expected 1 to 40"},
      {{.count = STEPS + 1}, "count is 41, expected 1 to 40"},
      {{.count = 1, .until = s.seen, .values = all, .value_count = 17}, "17 values, expected at most 16"},
      {{.count = 1, .until = s.seen, .value_count = 2}, "the values are NULL"},
      {{.count = 1, .values = all, .value_count = 2}, "until is absent"},
      {{.count = 1, .until = s.numbers}, "'numbers' has 4 bytes of f32, expected one i32"},
      {{.count = 1, .until = s.total}, "'total' has 8 bytes of i32, expected one i32"},
      {{.count = 1, .until = s.step}, "'step' is of kind input, expected an output or a state"},
      {{.count = 1, .until = other.seen}, "belongs to another graph"},
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    REQUIRE_ERROR(rondo_repeat(s.slot, &refused[i].options), RONDO_INVALID_ARGUMENT, refused[i].text);
  REQUIRE_ERROR(rondo_repeat(s.slot, NULL), RONDO_INVALID_ARGUMENT, "the options are NULL");
  REQUIRE_ERROR(rondo_repeat_wait(s.slot, 0, 0, NULL), RONDO_INVALID_ARGUMENT, "address of done");
  cr_assert_null(rondo_repeat_data(s.slot, s.seen, 0));
  cr_assert(strstr(rondo_error_text(), "replay 0 is not done, 0 are"), "%s", rondo_error_text());
  cr_assert_null(rondo_repeat_data(s.slot, s.step, 0));
  cr_assert(strstr(rondo_error_text(), "expected an output"), "%s", rondo_error_text());
  subject_close(&other), subject_close(&s);
}

Test(repeat, a_slot_that_may_not_repeat_is_refused) {
  struct subject s = subject_open(RONDO_BACKEND_HOST);
  _Alignas(256) static int32_t buffer[64];
  const rondo_repeat_options one = {.count = 1};
  uint32_t done;
  REQUIRE_OK(rondo_rebind(s.slot, s.seen, buffer));
  REQUIRE_ERROR(rondo_repeat(s.slot, &one), RONDO_INVALID_STATE, "slot 0 has bound tensors");
  REQUIRE_OK(rondo_rebind(s.slot, s.seen, NULL));
  REQUIRE_OK(rondo_repeat(s.slot, &one));
  REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
  REQUIRE_OK(rondo_release(s.slot));
  REQUIRE_ERROR(rondo_repeat(s.slot, &one), RONDO_INVALID_STATE, "was released");
  REQUIRE_ERROR(rondo_repeat_wait(s.slot, 0, 0, &done), RONDO_INVALID_STATE, "was released");
  REQUIRE_ERROR(rondo_repeat_stop(s.slot), RONDO_INVALID_STATE, "was released");
  cr_assert_null(rondo_repeat_data(s.slot, s.seen, 0));
  struct lone_task plain = lone_task(s.runtime, nothing, NULL, NULL);
  REQUIRE_ERROR(rondo_repeat(plain.slot, &one), RONDO_INVALID_STATE, "instantiate with repeat_steps");
  REQUIRE_ERROR(rondo_repeat_wait(plain.slot, 0, 0, &done), RONDO_INVALID_STATE, "instantiate with repeat_steps");
  REQUIRE_ERROR(rondo_repeat_stop(plain.slot), RONDO_INVALID_STATE, "instantiate with repeat_steps");
  cr_assert_null(rondo_repeat_data(plain.slot, s.seen, 0));
  lone_task_end(&plain);
  subject_close(&s);
}

static int capture_nothing(void *user, void *stream, void *const *data) { return (void)user, (void)stream, !data; }

Test(repeat, captured_work_is_refused_by_the_host_too) {
  struct subject s = subject_open(RONDO_BACKEND_HOST);
  rondo_graph *graph = NULL;
  rondo_exec *exec = NULL;
  rondo_tensor state;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_state(graph, "state", RONDO_I32, 1, (int64_t[]){1}, &state));
  rondo_argument argument = {.tensor = state, .access = RONDO_READ_WRITE};
  rondo_capture_desc capture = {.name = "captured", .arguments = &argument, .argument_count = 1, .host = nothing};
  REQUIRE_OK(rondo_add_capture(graph, &capture, capture_nothing));
  REQUIRE_ERROR(rondo_instantiate(s.runtime, graph, &(rondo_exec_options){.repeat_steps = 1}, &exec), RONDO_UNSUPPORTED,
                "task 'captured': captured work cannot repeat");
  REQUIRE_OK(rondo_instantiate(s.runtime, graph, NULL, &exec));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  subject_close(&s);
}

Test(repeat, its_memory_is_planned) {
  rondo_graph *graph = NULL;
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  rondo_plan plan;
  rondo_exec_usage usage;
  struct subject s;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  describe(&s, graph);
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  cr_assert_eq(plan.pinned_bytes_per_step, 2 * 256 + (4 * WIDE + 255) / 256 * 256);
  rondo_options options = {.backend = RONDO_BACKEND_HOST,
                           .device_bytes = plan.device_bytes,
                           .pinned_bytes = 3 * (plan.pinned_bytes_per_slot + 7 * plan.pinned_bytes_per_step)};
  REQUIRE_OK(rondo_open(&options, &runtime));
  rondo_exec_options more = {.slots = 3, .repeat_steps = 8}, most = {.repeat_steps = (1 << 20) + 1};
  REQUIRE_ERROR(rondo_instantiate(runtime, graph, &more, &exec), RONDO_OUT_OF_MEMORY, "pinned_bytes of at least");
  REQUIRE_ERROR(rondo_instantiate(runtime, graph, &most, &exec), RONDO_INVALID_ARGUMENT, "1048577 repeat_steps");
  REQUIRE_OK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.slots = 3, .repeat_steps = 7}, &exec));
  REQUIRE_OK(rondo_exec_info(exec, &usage));
  cr_assert_eq(usage.pinned_bytes, options.pinned_bytes);
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_close(&runtime));
  REQUIRE_OK(rondo_graph_destroy(&graph));
}
