/* test_share.c - graphs that share states on the fake driver, with a failure at every driver call of an instantiate;
 * and inputs that change with each replay without a driver call. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "driver_support.h"

TestSuite(share, .init = driver_setup, .timeout = 60);

enum { COUNT = 48, SLOTS = 3 };

/* A state and its owner, and a graph that writes it, shifting it from the input. */
struct couple {
  rondo_graph *lender, *borrower;
  rondo_tensor state, x, y;
  rondo_runtime *runtime;
  rondo_exec *owner;
};

static void couple_open(struct couple *c) {
  *c = (struct couple){0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &c->lender));
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &c->borrower));
  c->state = add_vector(rondo_state, c->lender, "state", COUNT);
  rondo_tensor borrowed, next = add_vector(rondo_temporary, c->borrower, "next", COUNT);
  REQUIRE_OK(rondo_borrow(c->borrower, c->state, &borrowed));
  c->x = add_vector(rondo_input, c->borrower, "x", COUNT);
  c->y = add_vector(rondo_output, c->borrower, "y", COUNT);
  add_mix(c->borrower, "step", borrowed, c->x, next, COUNT, 5);
  add_copy(c->borrower, "keep", next, borrowed);
  add_copy(c->borrower, "show", next, c->y);
  rondo_graph *graphs[] = {c->lender, c->borrower, c->borrower};
  rondo_plan plan;
  REQUIRE_OK(rondo_plan_graphs(graphs, 3, &plan));
  rondo_options options = {.backend = RONDO_BACKEND_CUDA,
                           .device_bytes = plan.device_bytes,
                           .pinned_bytes = SLOTS * plan.pinned_bytes_per_slot,
                           .host_bytes = plan.host_bytes};
  REQUIRE_OK(rondo_open(&options, &c->runtime));
  REQUIRE_OK(rondo_instantiate(c->runtime, c->lender, NULL, &c->owner));
}

static void couple_close(struct couple *c) {
  REQUIRE_OK(rondo_close_exec(&c->owner));
  REQUIRE_OK(rondo_graph_destroy(&c->lender));
  REQUIRE_OK(rondo_graph_destroy(&c->borrower));
  REQUIRE_OK(rondo_close(&c->runtime));
  require_clean("after close");
}

static void require_state(struct couple *c, uint32_t expected, const char *when) {
  uint32_t got[COUNT];
  REQUIRE_OK(rondo_download(c->owner, c->state, got, sizeof got));
  for (int i = 0; i < COUNT; i++) cr_assert_eq(got[i], expected, "%s: %u", when, got[i]);
}

static uint64_t used_bytes(rondo_runtime *runtime) {
  rondo_info info;
  REQUIRE_OK(rondo_runtime_info(runtime, &info));
  return info.device.used_bytes + info.pinned.used_bytes + info.host.used_bytes;
}

/* Some failures cost the device: then there is nothing to compare, and all the same everything can be closed. */
static bool fail_at(uint64_t n, uint32_t content) {
  struct couple c;
  uint32_t data[COUNT];
  rondo_exec *exec = NULL;
  char when[96];
  couple_open(&c);
  for (int i = 0; i < COUNT; i++) data[i] = content;
  if (content) REQUIRE_OK(rondo_upload(c.owner, c.state, data, sizeof data));
  uint64_t before = used_bytes(c.runtime);
  fake->fail_call(n, CU_INVALID_VALUE);
  rondo_status status = rondo_instantiate(c.runtime, c.borrower, &(rondo_exec_options){.slots = SLOTS}, &exec);
  bool failed = fake->failed_call() != NULL;
  snprintf(when, sizeof when, "call %d, %s, fails", (int)n, failed ? fake->failed_call() : "none");
  fake->fail_call(0, 0);
  cr_assert(failed || status == RONDO_OK);
  bool is_lost = rondo_download(c.owner, c.state, data, sizeof data) == RONDO_DEVICE_LOST;
  if (!is_lost) require_state(&c, content, when);
  REQUIRE_OK(rondo_close_exec(&exec));
  if (!is_lost) cr_assert_eq(used_bytes(c.runtime), before, "%s", when);
  REQUIRE_OK(rondo_close_exec(&c.owner));
  REQUIRE_OK(rondo_graph_destroy(&c.lender));
  REQUIRE_OK(rondo_graph_destroy(&c.borrower));
  REQUIRE_OK(rondo_close(&c.runtime));
  if (!is_lost) require_clean(when);
  if (is_lost) driver_setup();
  return failed;
}

static void fail_everywhere(uint32_t content) {
  uint64_t n = 1;
  while (fail_at(n, content)) n++;
  cr_assert_gt(n, 20);
}

Test(share, an_instantiate_that_fails_anywhere_leaves_a_fresh_borrowed_state_zero) { fail_everywhere(0); }

Test(share, an_instantiate_that_fails_anywhere_leaves_a_borrowed_state_as_it_is) { fail_everywhere(77); }

/* Held by a capture while the first of its slots is made. */
static atomic_bool gate_is_open, is_at_gate;
static int wait_at_gate(void *user, void *stream, void *const *data) {
  (void)user;
  (void)stream;
  (void)data;
  atomic_store(&is_at_gate, true);
  while (!atomic_load(&gate_is_open)) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
  return 0;
}

static void *instantiate_borrower(void *argument) {
  struct couple *c = argument;
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_instantiate(c->runtime, c->borrower, &(rondo_exec_options){.slots = SLOTS}, &exec));
  return exec;
}

Test(share, an_upload_is_busy_while_a_borrower_has_no_slots_yet) {
  struct couple c;
  uint32_t data[COUNT] = {0};
  pthread_t thread;
  void *exec = NULL;
  couple_open(&c);
  rondo_argument argument = {.tensor = c.y, .access = RONDO_WRITE};
  REQUIRE_OK(rondo_add_capture(
      c.borrower, &(rondo_capture_desc){.name = "gate", .arguments = &argument, .argument_count = 1}, wait_at_gate));
  cr_assert_eq(pthread_create(&thread, NULL, instantiate_borrower, &c), 0);
  while (!atomic_load(&is_at_gate)) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
  rondo_status status = rondo_upload(c.owner, c.state, data, sizeof data);
  require_error(status, RONDO_BUSY, "is being instantiated", "rondo_upload");
  atomic_store(&gate_is_open, true);
  pthread_join(thread, &exec);
  REQUIRE_OK(rondo_upload(c.owner, c.state, data, sizeof data));
  REQUIRE_OK(rondo_close_exec(&(rondo_exec *){exec}));
  couple_close(&c);
}

Test(share, execs_over_one_state_follow_each_other_whenever_the_driver_runs_them) {
  static const enum fake_mode modes[] = {FAKE_IMMEDIATE, FAKE_DEFERRED, FAKE_THREAD};
  for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
    struct couple c;
    driver_setup();
    set_mode(modes[m]);
    couple_open(&c);
    rondo_exec *execs[2];
    rondo_slot slots[2];
    uint32_t expected = 9, data[COUNT];
    for (int e = 0; e < 2; e++) {
      REQUIRE_OK(rondo_instantiate(c.runtime, c.borrower, NULL, &execs[e]));
      REQUIRE_OK(rondo_acquire(execs[e], &slots[e]));
    }
    for (int i = 0; i < COUNT; i++) data[i] = expected;
    REQUIRE_OK(rondo_upload(c.owner, c.state, data, sizeof data));
    for (uint32_t round = 0; round < 20; round++) {
      for (uint32_t e = 0; e < 2; e++) { /* both in flight at once */
        uint32_t *x = rondo_data(slots[e], c.x);
        for (int i = 0; i < COUNT; i++) x[i] = 10 * round + e;
        REQUIRE_OK(rondo_replay(slots[e]));
      }
      for (uint32_t e = 0; e < 2; e++) {
        REQUIRE_OK(rondo_wait(slots[e], RONDO_FOREVER));
        expected = 31 * expected + 17 * (10 * round + e) + 5;
        const uint32_t *y = rondo_data(slots[e], c.y);
        for (int i = 0; i < COUNT; i++) cr_assert_eq(y[i], expected, "mode %d, round %u", (int)modes[m], round);
      }
    }
    require_state(&c, expected, "at the end");
    for (int e = 0; e < 2; e++) REQUIRE_OK(rondo_close_exec(&execs[e]));
    couple_close(&c);
  }
}

static void scalar_kernel(const struct fake_launch *launch) {
  void *const *p = launch->parameters;
  **(int32_t **)p[1] = 100 * **(int32_t **)p[0] + *(int32_t *)p[2];
}

Test(share, a_scalar_input_changes_with_each_replay_at_the_cost_of_no_driver_call) {
  fake->register_kernel("scalar", scalar_kernel, 3, (const size_t[]){8, 8, 4});
  rondo_graph *graph = NULL;
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  rondo_slot slot;
  int32_t fixed = 7;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  rondo_tensor position = add_vector(rondo_input, graph, "position", 1), out = add_vector(rondo_output, graph, "o", 1);
  rondo_argument arguments[] = {{.tensor = position, .access = RONDO_READ},
                                {.tensor = out, .access = RONDO_WRITE},
                                {.value = &fixed, .bytes = sizeof fixed}};
  REQUIRE_OK(rondo_add_kernel(graph, &(rondo_kernel_desc){.image = "fake image: scalar",
                                                          .image_bytes = sizeof "fake image: scalar",
                                                          .function = "scalar",
                                                          .arguments = arguments,
                                                          .argument_count = 3}));
  rondo_options options = options_for(graph, RONDO_BACKEND_CUDA, 1);
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
  fixed = 1000000;
  REQUIRE_OK(rondo_acquire(exec, &slot));
  for (int32_t replay = 0; replay < 30; replay++) {
    uint64_t calls = fake->calls(NULL);
    *(int32_t *)rondo_data(slot, position) = replay;
    cr_assert_eq(fake->calls(NULL), calls);
    REQUIRE_OK(rondo_replay(slot));
    REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
    cr_assert_eq(*(int32_t *)rondo_data(slot, out), 100 * replay + 7);
  }
  cr_assert_eq(fake->calls("cuGraphExecKernelNodeSetParams"), 0);
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
  require_clean("after close");
}
