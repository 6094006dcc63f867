/* test_upload.c - constants and states moved by the CUDA backend: how many calls that costs, and what is left to wait
 * for when one of them fails. */
#include <stdlib.h>
#include <string.h>

#include "driver_support.h"

TestSuite(upload, .init = driver_setup, .timeout = 60);

enum { PLANES = 6, VIEW_BYTES = PLANES * 3 * 4 };
static const int64_t shape[] = {3, 4, 5, 6}, offset[] = {1, 1, 1, 1}, extent[] = {2, 3, 3, 4}; /* 2 times 3 planes */

struct subject {
  rondo_graph *graph;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_tensor state, view;
};

static void subject_open(struct subject *s) {
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s->graph));
  REQUIRE_OK(rondo_state(s->graph, "state", RONDO_U8, 4, shape, &s->state));
  REQUIRE_OK(rondo_view(s->graph, s->state, offset, extent, &s->view));
  rondo_options options = options_for(s->graph, RONDO_BACKEND_CUDA, 1);
  REQUIRE_OK(rondo_open(&options, &s->runtime));
  REQUIRE_OK(rondo_instantiate(s->runtime, s->graph, NULL, &s->exec));
}

static void subject_close(struct subject *s) {
  REQUIRE_OK(rondo_close_exec(&s->exec));
  REQUIRE_OK(rondo_close(&s->runtime));
  REQUIRE_OK(rondo_graph_destroy(&s->graph));
  require_clean("after close");
}

Test(upload, of_a_view_of_rank_4_waits_once) {
  struct subject s = {0};
  unsigned char data[VIEW_BYTES], back[VIEW_BYTES] = {0};
  for (int i = 0; i < VIEW_BYTES; i++) data[i] = (unsigned char)(i + 1);
  subject_open(&s);
  uint64_t copies = fake->calls("cuMemcpy2DAsync"), waits = fake->calls("cuStreamSynchronize");
  REQUIRE_OK(rondo_upload(s.exec, s.view, data, sizeof data));
  cr_assert_eq(fake->calls("cuMemcpy2DAsync"), copies + PLANES);
  cr_assert_eq(fake->calls("cuStreamSynchronize"), waits + 1);
  REQUIRE_OK(rondo_download(s.exec, s.view, back, sizeof back));
  cr_assert_eq(fake->calls("cuMemcpy2DAsync"), copies + UINT64_C(2) * PLANES);
  cr_assert_eq(fake->calls("cuStreamSynchronize"), waits + 2);
  cr_assert_arr_eq(back, data, sizeof data);
  subject_close(&s);
}

Test(upload, that_fails_halfway_waits_for_what_was_begun) {
  struct subject s = {0};
  unsigned char data[VIEW_BYTES] = {0};
  subject_open(&s);
  bool failed = true;
  int halfway = 0;
  for (uint64_t n = 1; failed; n++) {
    uint64_t copies = fake->calls("cuMemcpy2DAsync"), waits = fake->calls("cuStreamSynchronize");
    fake->fail_call(n, CU_INVALID_VALUE);
    rondo_status status = rondo_download(s.exec, s.view, data, sizeof data);
    failed = fake->failed_call() != NULL;
    bool is_copy = failed && !strcmp(fake->failed_call(), "cuMemcpy2DAsync");
    fake->fail_call(0, 0);
    if (!is_copy || fake->calls("cuMemcpy2DAsync") < copies + 2) continue;
    cr_assert_eq(status, RONDO_DEVICE_ERROR);
    cr_assert(strstr(rondo_error_text(), "download: cuMemcpy2DAsync"), "%s", rondo_error_text());
    cr_assert_eq(fake->calls("cuStreamSynchronize"), waits + 1, "call %d fails", (int)n);
    halfway++;
  }
  cr_assert_eq(halfway, PLANES - 1);
  subject_close(&s);
}

/* ---- Large ones -------------------------------------------------------------------------------------------------- */

enum { POOL_BYTES = 64 << 20, LARGE_BYTES = (20 << 20) + 5, PART_BYTES = 100000, STAGING_CALLS = 1 + 1 + 16 };

struct large {
  rondo_graph *graph;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_tensor state, part;
  unsigned char *data, *back;
};

static void large_begin(struct large *s) {
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s->graph));
  REQUIRE_OK(rondo_state(s->graph, "state", RONDO_U8, 1, (int64_t[]){LARGE_BYTES}, &s->state));
  REQUIRE_OK(rondo_view(s->graph, s->state, (int64_t[]){7}, (int64_t[]){PART_BYTES}, &s->part));
  s->data = malloc(LARGE_BYTES);
  s->back = malloc(LARGE_BYTES);
  cr_assert(s->data && s->back);
  for (size_t i = 0; i < LARGE_BYTES; i++) s->data[i] = (unsigned char)(i * 7 + i / 65521);
}

static rondo_status large_open(struct large *s) {
  const rondo_options options = {
      .backend = RONDO_BACKEND_CUDA, .device_bytes = POOL_BYTES, .pinned_bytes = 4096, .host_bytes = 1 << 20};
  return rondo_open(&options, &s->runtime);
}

static void require_uploaded(struct large *s, const char *when) {
  memset(s->back, 0, LARGE_BYTES);
  REQUIRE_OK(rondo_upload(s->exec, s->state, s->data, LARGE_BYTES));
  REQUIRE_OK(rondo_download(s->exec, s->state, s->back, LARGE_BYTES));
  cr_assert(!memcmp(s->back, s->data, LARGE_BYTES), "%s", when);
}

static void large_end(struct large *s) {
  if (s->exec) REQUIRE_OK(rondo_close_exec(&s->exec));
  REQUIRE_OK(rondo_close(&s->runtime));
  REQUIRE_OK(rondo_graph_destroy(&s->graph));
  free(s->data);
  free(s->back);
  require_clean("after close");
}

Test(upload, of_many_bytes_goes_through_staging_whenever_copies_run) {
  static const enum fake_mode modes[] = {FAKE_IMMEDIATE, FAKE_DEFERRED, FAKE_THREAD};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    struct large s = {0};
    driver_setup();
    set_mode(modes[i]);
    large_begin(&s);
    REQUIRE_OK(large_open(&s));
    REQUIRE_OK(rondo_instantiate(s.runtime, s.graph, NULL, &s.exec));
    uint64_t copies = fake->calls("cuMemcpyHtoDAsync"), taken = fake->calls("cuMemHostAlloc");
    for (int again = 0; again < 3; again++) require_uploaded(&s, "through staging");
    cr_assert_gt(fake->calls("cuMemcpyHtoDAsync"), copies + 3);
    cr_assert_eq(fake->calls("cuMemHostAlloc"), taken, "an upload allocates nothing");
    large_end(&s);
  }
}

/* An upload that nothing has run of yet when the next one begins. */
static void leave_one_on_its_way(const struct large *s) {
  enum fake_mode mode = fake->settings().mode;
  if (mode == FAKE_IMMEDIATE) return;
  set_mode(FAKE_NEVER);
  REQUIRE_OK(rondo_upload(s->exec, s->part, s->data, PART_BYTES));
  set_mode(mode);
}

/* Is whoever uploads told of it? What is asked of memory, and what is only to be undone, is not worth a failure, and a
 * lane that cannot wait is waited for. */
static bool is_told(const char *failed) {
  static const char *const others[] = {"cuMemHostGetDevicePointer", "cuCtxPopCurrent",
                                       "cuThreadExchangeStreamCaptureMode", "cuStreamWaitEvent"};
  for (size_t i = 0; failed && i < sizeof others / sizeof *others; i++)
    if (!strcmp(failed, others[i])) return false;
  return failed != NULL;
}

/* Whichever call fails, with an error that passes: it is told, and the next upload is right. */
Test(upload, of_many_bytes_that_fails_leaves_nothing_behind) {
  static const enum fake_mode modes[] = {FAKE_IMMEDIATE, FAKE_DEFERRED, FAKE_THREAD};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    struct large s = {0};
    driver_setup();
    set_mode(modes[i]);
    large_begin(&s);
    REQUIRE_OK(large_open(&s));
    REQUIRE_OK(rondo_instantiate(s.runtime, s.graph, NULL, &s.exec));
    for (uint64_t n = 1; n < 30; n++) {
      leave_one_on_its_way(&s);
      fake->fail_call(n, CU_INVALID_VALUE);
      rondo_status status = rondo_upload(s.exec, s.state, s.data, LARGE_BYTES);
      const char *failed = fake->failed_call();
      cr_assert_eq(status, is_told(failed) ? RONDO_DEVICE_ERROR : RONDO_OK, "mode %d, call %d, %s", (int)modes[i],
                   (int)n, failed ? failed : "none");
      if (is_told(failed)) cr_assert(strstr(rondo_error_text(), failed), "%s: %s", failed, rondo_error_text());
      fake->fail_call(0, 0);
      require_uploaded(&s, failed ? failed : "no call failed");
    }
    large_end(&s);
  }
}

/* Without staging the driver does it all. */
Test(upload, of_many_bytes_is_right_whatever_fails_at_open) {
  uint32_t without = 0;
  bool failed = true;
  for (uint64_t n = 1; failed; n++) {
    struct large s = {0};
    driver_setup();
    large_begin(&s);
    fake->fail_call(n, CU_OUT_OF_MEMORY);
    rondo_status status = large_open(&s);
    failed = fake->failed_call() != NULL;
    fake->fail_call(0, 0);
    if (status == RONDO_OK) {
      REQUIRE_OK(rondo_instantiate(s.runtime, s.graph, NULL, &s.exec));
      uint64_t copies = fake->calls("cuMemcpyHtoDAsync");
      require_uploaded(&s, "without staging");
      without += fake->calls("cuMemcpyHtoDAsync") == copies + 1;
    }
    large_end(&s);
  }
  cr_assert_eq(without, STAGING_CALLS, "without memory, a stream, or any event");
}

/* ---- On their way ------------------------------------------------------------------------------------------------ */

/* What asks for the device's health asks lane 0: nothing runs there that should wait. */
enum { OWNERS = 1, OTHERS = 0, SMALL_BYTES = 32 << 10 }; /* a piece, and a copy */

/* Two lanes of which nothing runs but what is waited for. */
struct lanes {
  rondo_graph *graph, *borrowing;
  rondo_runtime *runtime;
  rondo_exec *owner, *borrower, *other;
  rondo_tensor weights, borrowed, output;
  rondo_slot slot;
  unsigned char *data, *back;
};

static void lanes_open(struct lanes *l) {
  static const rondo_lane lanes[2];
  const rondo_options options = {.backend = RONDO_BACKEND_CUDA,
                                 .device_bytes = POOL_BYTES,
                                 .pinned_bytes = 4 << 20,
                                 .host_bytes = 1 << 20,
                                 .lanes = lanes,
                                 .lane_count = 2};
  set_mode(FAKE_DEFERRED);
  REQUIRE_OK(rondo_open(&options, &l->runtime));
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &l->graph));
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &l->borrowing));
  REQUIRE_OK(rondo_constant(l->graph, "weights", RONDO_U8, 1, (int64_t[]){SMALL_BYTES}, &l->weights));
  REQUIRE_OK(rondo_borrow(l->borrowing, l->weights, &l->borrowed));
  REQUIRE_OK(rondo_output(l->borrowing, "output", RONDO_U8, 1, (int64_t[]){SMALL_BYTES}, &l->output));
  REQUIRE_OK(rondo_add_copy(l->borrowing, &(rondo_copy_desc){.src = l->borrowed, .dst = l->output}));
  REQUIRE_OK(rondo_instantiate(l->runtime, l->graph, &(rondo_exec_options){.lane = OWNERS}, &l->owner));
  l->data = malloc(SMALL_BYTES);
  l->back = malloc(SMALL_BYTES);
  cr_assert(l->data && l->back);
}

static void lanes_close(struct lanes *l) {
  if (l->borrower) REQUIRE_OK(rondo_close_exec(&l->borrower));
  if (l->owner) REQUIRE_OK(rondo_close_exec(&l->owner));
  REQUIRE_OK(rondo_close(&l->runtime));
  REQUIRE_OK(rondo_graph_destroy(&l->borrowing));
  REQUIRE_OK(rondo_graph_destroy(&l->graph));
  free(l->data);
  free(l->back);
  require_clean("after close");
}

/* Nothing waits for anything. */
static void send(struct lanes *l, int value) {
  memset(l->data, value, SMALL_BYTES);
  uint64_t waits = fake->calls("cuStreamSynchronize");
  REQUIRE_OK(rondo_upload(l->owner, l->weights, l->data, SMALL_BYTES));
  cr_assert_eq(fake->calls("cuStreamSynchronize"), waits);
  memset(l->data, 0, SMALL_BYTES); /* the caller's again */
}

static void require_downloaded(const struct lanes *l, rondo_exec *exec, rondo_tensor tensor, unsigned char value) {
  memset(l->back, value + 1, SMALL_BYTES);
  REQUIRE_OK(rondo_download(exec, tensor, l->back, SMALL_BYTES));
  cr_assert(l->back[0] == value && !memcmp(l->back, l->back + 1, SMALL_BYTES - 1), "%d, expected %d", l->back[0],
            value);
}

static void borrow_elsewhere(struct lanes *l) {
  REQUIRE_OK(rondo_instantiate(l->runtime, l->borrowing, &(rondo_exec_options){.lane = OTHERS}, &l->borrower));
  REQUIRE_OK(rondo_acquire(l->borrower, &l->slot));
}

static void require_seen_elsewhere(const struct lanes *l, unsigned char value) {
  REQUIRE_OK(rondo_replay(l->slot));
  REQUIRE_OK(rondo_wait(l->slot, RONDO_FOREVER));
  const unsigned char *bytes = rondo_data(l->slot, l->output);
  cr_assert(bytes[0] == value && !memcmp(bytes, bytes + 1, SMALL_BYTES - 1), "%d, expected %d", bytes[0], value);
}

Test(upload, returns_before_it_has_come_and_a_download_sees_it) {
  struct lanes l = {0};
  lanes_open(&l);
  set_mode(FAKE_NEVER);
  for (int value = 1; value < 17; value++) send(&l, value); /* as many as can be on their way */
  set_mode(FAKE_DEFERRED);
  for (int value = 17; value < 100; value++) send(&l, value); /* and more */
  require_downloaded(&l, l.owner, l.weights, 99);
  lanes_close(&l);
}

/* Of another exec: neither those in front of it nor those that came between two uploads. */
Test(upload, waits_for_no_replay_of_its_lane) {
  struct lanes l = {0};
  lanes_open(&l);
  REQUIRE_OK(rondo_instantiate(l.runtime, l.borrowing, &(rondo_exec_options){.lane = OTHERS}, &l.borrower));
  rondo_graph *graph = NULL;
  rondo_tensor input, output;
  rondo_slot slots[2];
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_input(graph, "input", RONDO_U8, 1, (int64_t[]){64}, &input));
  REQUIRE_OK(rondo_output(graph, "output", RONDO_U8, 1, (int64_t[]){64}, &output));
  add_copy(graph, "copy", input, output);
  REQUIRE_OK(rondo_instantiate(l.runtime, graph, &(rondo_exec_options){.lane = OWNERS, .slots = 2}, &l.other));
  for (int i = 0; i < 2; i++) REQUIRE_OK(rondo_acquire(l.other, &slots[i]));
  set_mode(FAKE_NEVER);
  for (int i = 0; i < 2; i++) {
    REQUIRE_OK(rondo_replay(slots[i]));
    send(&l, 7 + i);
  }
  set_mode(FAKE_DEFERRED);
  cr_assert_eq(rondo_poll(slots[0]), RONDO_BUSY, "nothing has run");
  REQUIRE_OK(rondo_acquire(l.borrower, &l.slot));
  require_seen_elsewhere(&l, 8);
  for (int i = 0; i < 2; i++) {
    REQUIRE_OK(rondo_wait(slots[i], RONDO_FOREVER));
    REQUIRE_OK(rondo_release(slots[i]));
  }
  require_downloaded(&l, l.owner, l.weights, 8);
  REQUIRE_OK(rondo_close_exec(&l.other));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  lanes_close(&l);
}

Test(upload, has_come_for_who_borrows_in_another_lane_later) {
  struct lanes l = {0};
  lanes_open(&l);
  send(&l, 7);
  borrow_elsewhere(&l);
  require_seen_elsewhere(&l, 7);
  lanes_close(&l);
}

Test(upload, has_come_for_who_borrows_in_another_lane_already) {
  struct lanes l = {0};
  lanes_open(&l);
  borrow_elsewhere(&l);
  for (unsigned char value = 1; value < 5; value++) {
    send(&l, value);
    require_seen_elsewhere(&l, value);
  }
  lanes_close(&l);
}

/* What was closed leaves nothing that could still arrive in memory that is another's by then. */
Test(upload, into_what_is_closed_does_not_come_later) {
  struct lanes l = {0};
  rondo_exec *next = NULL;
  lanes_open(&l);
  send(&l, 7);
  REQUIRE_OK(rondo_close_exec(&l.owner));
  REQUIRE_OK(rondo_instantiate(l.runtime, l.graph, &(rondo_exec_options){.lane = OTHERS}, &next));
  /* And the lane goes on. */
  REQUIRE_OK(rondo_instantiate(l.runtime, l.borrowing, &(rondo_exec_options){.lane = OWNERS}, &l.borrower));
  REQUIRE_OK(rondo_download(next, l.weights, l.back, SMALL_BYTES));
  cr_assert(l.back[0] == 0 && !memcmp(l.back, l.back + 1, SMALL_BYTES - 1), "zeros");
  REQUIRE_OK(rondo_close_exec(&l.borrower));
  REQUIRE_OK(rondo_close_exec(&next));
  lanes_close(&l);
}

/* What one lane was sent may still be on its way when another is sent something, by the same staging. */
Test(upload, of_two_lanes_in_turns_comes_to_each) {
  struct lanes l = {0};
  rondo_graph *graph = NULL;
  rondo_tensor weights;
  lanes_open(&l);
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_constant(graph, "others", RONDO_U8, 1, (int64_t[]){SMALL_BYTES}, &weights));
  REQUIRE_OK(rondo_instantiate(l.runtime, graph, &(rondo_exec_options){.lane = OTHERS}, &l.other));
  set_mode(FAKE_NEVER);
  for (int value = 1; value < 4; value++) {
    send(&l, value);
    memset(l.data, 100 + value, SMALL_BYTES);
    REQUIRE_OK(rondo_upload(l.other, weights, l.data, SMALL_BYTES));
  }
  set_mode(FAKE_DEFERRED);
  require_downloaded(&l, l.other, weights, 103);
  require_downloaded(&l, l.owner, l.weights, 3);
  REQUIRE_OK(rondo_close_exec(&l.other));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  lanes_close(&l);
}

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

enum { TENSORS = 40, TENSOR_BYTES = 3001 };

/* Neighbours go in one copy, with zeros between them; what lies apart goes in one each. */
Test(upload, of_a_list_takes_a_copy_for_neighbours) {
  struct large s = {0};
  rondo_graph *graph = NULL;
  rondo_content contents[TENSORS];
  rondo_tensor tensors[TENSORS];
  large_begin(&s);
  REQUIRE_OK(large_open(&s));
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  for (int i = 0; i < TENSORS; i++) {
    REQUIRE_OK(rondo_constant(graph, NULL, RONDO_U8, 1, (int64_t[]){TENSOR_BYTES}, &tensors[i]));
    contents[i] = (rondo_content){tensors[i], s.data + (size_t)i * TENSOR_BYTES, TENSOR_BYTES};
  }
  REQUIRE_OK(rondo_instantiate(s.runtime, graph, NULL, &s.exec));
  uint64_t copies = fake->calls("cuMemcpyHtoDAsync");
  REQUIRE_OK(rondo_upload_all(s.exec, contents, TENSORS));
  cr_assert_eq(fake->calls("cuMemcpyHtoDAsync"), copies + 1);
  copies = fake->calls("cuMemcpyHtoDAsync");
  REQUIRE_OK(rondo_upload_all(s.exec, (rondo_content[]){contents[9], contents[3], contents[7], contents[7]}, 4));
  cr_assert_eq(fake->calls("cuMemcpyHtoDAsync"), copies + 4);
  for (int i = 0; i < TENSORS; i++) {
    REQUIRE_OK(rondo_download(s.exec, tensors[i], s.back, TENSOR_BYTES));
    cr_assert(!memcmp(s.back, contents[i].data, TENSOR_BYTES), "tensor %d", i);
  }
  REQUIRE_OK(rondo_graph_destroy(&graph));
  large_end(&s);
}
