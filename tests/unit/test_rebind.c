/* test_rebind.c - rondo_rebind: an input, an output, a constant and a state in buffers of the caller's, slot by slot:
 * tensors that copies move, tensors that stay in pinned memory, tensors that only tasks touch; and back again. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <string.h>

#include "../../runtime/exec.h"
#include "../support.h"

enum { SMALL = 1024, LARGE = 40000, BOTH_ROWS = 2 * LARGE, SLOTS = 2 };

/* Memory that both sides reach, so that the test can look into it. */
static unsigned char *buffer_take(rondo_backend backend, size_t bytes) {
  void *memory = NULL;
  if (backend == RONDO_BACKEND_CUDA) {
    int (*allocate)(void **, size_t);
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&allocate = dlsym(library, "cuMemAllocHost_v2");
    int (*push)(void *), (*retain)(void **, int);
    *(void **)&push = dlsym(library, "cuCtxPushCurrent_v2");
    *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    void *context = NULL;
    cr_assert(retain(&context, 0) == 0 && push(context) == 0 && allocate(&memory, bytes) == 0);
  } else {
    static _Alignas(256) unsigned char arena[512 * 1024];
    static size_t used;
    memory = arena + used;
    used += (bytes + 255) / 256 * 256;
    cr_assert_leq(used, sizeof arena);
  }
  cr_assert_not_null(memory);
  return memory;
}

/* small -> small_out in place, large -> large_out by copies, constant -> from_constant, state := large_in_state. */
struct subject {
  rondo_graph *graph;
  rondo_tensor small, small_out, large, large_out, constant, from_constant, state;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_slot slots[SLOTS];
};

static void add_copy(rondo_graph *graph, rondo_tensor src, rondo_tensor dst) {
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = src, .dst = dst}));
}

static struct subject subject_open(rondo_backend backend) {
  static const int64_t small[] = {SMALL}, large[] = {2, LARGE}, row[] = {1, LARGE}, second[] = {1, 0};
  struct subject s = {0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s.graph));
  REQUIRE_OK(rondo_input(s.graph, "small", RONDO_U8, 1, small, &s.small));
  REQUIRE_OK(rondo_output(s.graph, "small out", RONDO_U8, 1, small, &s.small_out));
  REQUIRE_OK(rondo_input(s.graph, "large", RONDO_U8, 2, large, &s.large));
  REQUIRE_OK(rondo_output(s.graph, "large out", RONDO_U8, 2, large, &s.large_out));
  REQUIRE_OK(rondo_constant(s.graph, "constant", RONDO_U8, 1, small, &s.constant));
  REQUIRE_OK(rondo_output(s.graph, "from constant", RONDO_U8, 1, small, &s.from_constant));
  REQUIRE_OK(rondo_state(s.graph, "state", RONDO_U8, 2, row, &s.state));
  rondo_tensor view;
  REQUIRE_OK(rondo_view(s.graph, s.large, second, row, &view));
  add_copy(s.graph, s.small, s.small_out);
  add_copy(s.graph, s.large, s.large_out);
  add_copy(s.graph, s.constant, s.from_constant);
  add_copy(s.graph, view, s.state);
  rondo_plan plan;
  REQUIRE_OK(rondo_plan_graph(s.graph, &plan));
  rondo_options options = {.backend = backend,
                           .device_bytes = plan.device_bytes,
                           .pinned_bytes = SLOTS * plan.pinned_bytes_per_slot,
                           .host_bytes = plan.host_bytes,
                           .host_threads = 2};
  REQUIRE_OK(rondo_open(&options, &s.runtime));
  REQUIRE_OK(rondo_instantiate(s.runtime, s.graph, &(rondo_exec_options){.slots = SLOTS}, &s.exec));
  for (int i = 0; i < SLOTS; i++) REQUIRE_OK(rondo_acquire(s.exec, &s.slots[i]));
  return s;
}

static void subject_close(struct subject *s) {
  for (int i = 0; i < SLOTS; i++) REQUIRE_OK(rondo_release(s->slots[i]));
  REQUIRE_OK(rondo_close_exec(&s->exec));
  REQUIRE_OK(rondo_graph_destroy(&s->graph));
  REQUIRE_OK(rondo_close(&s->runtime));
}

static void replay(rondo_slot slot) {
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
}

static void require_filled(const void *memory, int value, size_t bytes, const char *what) {
  for (size_t i = 0; i < bytes; i++)
    cr_assert_eq(((const unsigned char *)memory)[i], value, "%s: byte %zu is %d, expected %d", what, i,
                 ((const unsigned char *)memory)[i], value);
}

static void binds_and_unbinds(rondo_backend backend) {
  enum { TENSORS = 7 };
  struct subject s = subject_open(backend);
  const rondo_tensor tensors[TENSORS] = {s.small,    s.small_out,     s.large, s.large_out,
                                         s.constant, s.from_constant, s.state};
  const size_t bytes[TENSORS] = {SMALL, SMALL, BOTH_ROWS, BOTH_ROWS, SMALL, SMALL, LARGE};
  const char *const names[TENSORS] = {"small", "small out", "large", "large out", "constant", "from constant", "state"};
  unsigned char *buffers[TENSORS], own[BOTH_ROWS];
  memset(own, 9, sizeof own);
  REQUIRE_OK(rondo_upload(s.exec, s.constant, own, SMALL));
  REQUIRE_OK(rondo_upload(s.exec, s.state, own, LARGE));
  for (int t = 0; t < TENSORS; t++) {
    buffers[t] = buffer_take(backend, bytes[t]);
    memset(buffers[t], 10 + t, bytes[t]);
    REQUIRE_OK(rondo_rebind(s.slots[0], tensors[t], buffers[t]));
  }
  for (int i = 0; i < SLOTS; i++) {
    memset(rondo_data(s.slots[i], s.small), 1, SMALL);
    memset(rondo_data(s.slots[i], s.large), 3, BOTH_ROWS);
    memset(rondo_data(s.slots[i], s.small_out), 0, SMALL);
  }
  replay(s.slots[0]);
  require_filled(buffers[1], 10, SMALL, names[1]);
  require_filled(buffers[3], 12, BOTH_ROWS, names[3]);
  require_filled(buffers[5], 14, SMALL, names[5]);
  require_filled(buffers[6], 12, LARGE, names[6]);
  require_filled(rondo_data(s.slots[0], s.small_out), 0, SMALL, "the slot's own output");
  REQUIRE_OK(rondo_download(s.exec, s.state, own, LARGE));
  require_filled(own, 9, LARGE, "the exec's own state");

  replay(s.slots[1]); /* was never bound */
  require_filled(rondo_data(s.slots[1], s.small_out), 1, SMALL, "the other slot's small out");
  require_filled(rondo_data(s.slots[1], s.large_out), 3, BOTH_ROWS, "the other slot's large out");
  require_filled(rondo_data(s.slots[1], s.from_constant), 9, SMALL, "the other slot's from constant");

  for (int t = 0; t < TENSORS; t++) REQUIRE_OK(rondo_rebind(s.slots[0], tensors[t], NULL));
  memset(buffers[1], 77, SMALL);
  replay(s.slots[0]);
  require_filled(rondo_data(s.slots[0], s.small_out), 1, SMALL, "small out again");
  require_filled(rondo_data(s.slots[0], s.large_out), 3, BOTH_ROWS, "large out again");
  require_filled(buffers[1], 77, SMALL, "the caller's buffer, unbound");
  subject_close(&s);
}

BOTH_BACKENDS(rebind, binds_each_kind_of_tensor_for_one_slot_and_unbinds_it, binds_and_unbinds)

/* What the former holder bound may be freed by now. */
static void the_next_holder_finds_nothing_bound(rondo_backend backend) {
  struct subject s = subject_open(backend);
  const rondo_tensor tensors[] = {s.small, s.small_out, s.large, s.large_out, s.constant, s.from_constant, s.state};
  const size_t bytes[] = {SMALL, SMALL, BOTH_ROWS, BOTH_ROWS, SMALL, SMALL, LARGE};
  enum { TENSORS = sizeof bytes / sizeof *bytes };
  unsigned char *buffers[TENSORS], own[BOTH_ROWS];
  memset(own, 9, sizeof own);
  REQUIRE_OK(rondo_upload(s.exec, s.constant, own, SMALL));
  for (int t = 0; t < TENSORS; t++) {
    buffers[t] = buffer_take(backend, bytes[t]);
    memset(buffers[t], 10 + t, bytes[t]);
    REQUIRE_OK(rondo_rebind(s.slots[0], tensors[t], buffers[t]));
  }
  replay(s.slots[0]);
  require_filled(buffers[5], 14, SMALL, "from constant");
  REQUIRE_OK(rondo_release(s.slots[0]));
  for (int t = 0; t < TENSORS; t++) memset(buffers[t], 77, bytes[t]);
  uint32_t before = s.slots[0].index;
  cr_assert_eq(s.exec->slots.items[before].rebound_count, 0, "else every release to come would look for what is bound");
  REQUIRE_OK(rondo_acquire(s.exec, &s.slots[0]));
  cr_assert_eq(s.slots[0].index, before);
  memset(rondo_data(s.slots[0], s.small), 1, SMALL);
  memset(rondo_data(s.slots[0], s.large), 3, BOTH_ROWS);
  replay(s.slots[0]);
  for (int t = 0; t < TENSORS; t++) require_filled(buffers[t], 77, bytes[t], "the former holder's buffer");
  require_filled(rondo_data(s.slots[0], s.small_out), 1, SMALL, "small out");
  require_filled(rondo_data(s.slots[0], s.large_out), 3, BOTH_ROWS, "large out");
  require_filled(rondo_data(s.slots[0], s.from_constant), 9, SMALL, "from constant");
  REQUIRE_OK(rondo_download(s.exec, s.state, own, LARGE));
  require_filled(own, 3, LARGE, "state");
  subject_close(&s);
}

BOTH_BACKENDS(rebind, the_next_holder_of_a_slot_finds_nothing_bound, the_next_holder_finds_nothing_bound)

/* Three inputs that one node moves in and three outputs that one moves out; of each the second is bound. */
static void binds_one_of_several(rondo_backend backend) {
  enum { COUNT = 3, BYTES = 1001, BOUND = 1, ROOM = 1024 };
  rondo_tensor in[COUNT], out[COUNT];
  struct trial trial;
  trial_describe(&trial, backend);
  for (int i = 0; i < COUNT; i++) { /* read twice and read back, so that they are not used in place */
    rondo_tensor state;
    REQUIRE_OK(rondo_input(trial.graph, "in", RONDO_U8, 1, (int64_t[]){BYTES}, &in[i]));
    REQUIRE_OK(rondo_output(trial.graph, "out", RONDO_U8, 1, (int64_t[]){BYTES}, &out[i]));
    REQUIRE_OK(rondo_state(trial.graph, "state", RONDO_U8, 1, (int64_t[]){BYTES}, &state));
    add_copy(trial.graph, in[i], out[i]);
    add_copy(trial.graph, in[i], state);
    add_copy(trial.graph, out[i], state);
  }
  trial_instantiate(&trial);
  unsigned char *from = buffer_take(backend, ROOM), *to = buffer_take(backend, ROOM);
  for (int round = 0; round < 4; round++) { /* unbound, bound, twice */
    bool bound = round % 2;
    REQUIRE_OK(rondo_rebind(trial.slot, in[BOUND], bound ? from : NULL));
    REQUIRE_OK(rondo_rebind(trial.slot, out[BOUND], bound ? to : NULL));
    memset(from, 100 + round, ROOM);
    memset(to, 200, ROOM);
    for (int i = 0; i < COUNT; i++) {
      memset(rondo_data(trial.slot, in[i]), 10 * round + i, BYTES);
      memset(rondo_data(trial.slot, out[i]), 201, BYTES);
    }
    trial_replay(&trial);
    for (int i = 0; i < COUNT; i++)
      require_filled(rondo_data(trial.slot, out[i]), bound && i == BOUND ? 201 : 10 * round + i, BYTES, "the slot's");
    require_filled(to, bound ? 100 + round : 200, BYTES, "the caller's");
    require_filled(to + BYTES, 200, ROOM - BYTES, "behind the caller's");
  }
  trial_end(&trial);
}

BOTH_BACKENDS(rebind, binds_one_of_several_that_move_together, binds_one_of_several)

Test(rebind, refuses_what_it_cannot_bind) {
  struct subject s = subject_open(RONDO_BACKEND_HOST);
  unsigned char *buffer = buffer_take(RONDO_BACKEND_HOST, SMALL);
  rondo_graph *other = NULL;
  rondo_tensor foreign, temporary = {s.graph, 100, s.small.serial};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &other));
  REQUIRE_OK(rondo_input(other, "foreign", RONDO_U8, 1, (int64_t[]){SMALL}, &foreign));
  REQUIRE_ERROR(rondo_rebind(s.slots[0], foreign, buffer), RONDO_INVALID_ARGUMENT, "another graph");
  REQUIRE_ERROR(rondo_rebind(s.slots[0], temporary, buffer), RONDO_INVALID_ARGUMENT,
                "tensor 100 was added to the graph after");
  REQUIRE_ERROR(rondo_rebind(s.slots[0], s.small, buffer + 16), RONDO_INVALID_ARGUMENT, "aligned to 256 bytes");
  REQUIRE_ERROR(rondo_rebind((rondo_slot){0}, s.small, buffer), RONDO_INVALID_ARGUMENT, "rondo_rebind");
  rondo_slot stale = s.slots[0];
  stale.lease += 2;
  REQUIRE_ERROR(rondo_rebind(stale, s.small, buffer), RONDO_INVALID_STATE, "released");
  REQUIRE_OK(rondo_graph_destroy(&other));
  subject_close(&s);
}
