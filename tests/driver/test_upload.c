/* test_upload.c - uploads of constants and states by the CUDA backend: the number of driver calls, and what is left
 * when one of them fails. */
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

static void subject_describe(struct subject *s) {
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s->graph));
  REQUIRE_OK(rondo_state(s->graph, "state", RONDO_U8, 4, shape, &s->state));
  REQUIRE_OK(rondo_view(s->graph, s->state, offset, extent, &s->view));
}

static void subject_open(struct subject *s) {
  subject_describe(s);
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
  unsigned char *data, *back; /* of LARGE_BYTES, the same for all subjects of a test: fresh pages take long */
};

/* Bytes in which neighbours differ, and pieces of 64 KB too. A test may have changed the first of them. */
static void data_fill(unsigned char *data) {
  static bool is_filled;
  for (size_t i = 0; i < (is_filled ? PART_BYTES : LARGE_BYTES); i++) data[i] = (unsigned char)(i * 7 + i / 65521);
  is_filled = true;
}

static void large_begin(struct large *s) {
  static unsigned char data[LARGE_BYTES], back[LARGE_BYTES];
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s->graph));
  REQUIRE_OK(rondo_state(s->graph, "state", RONDO_U8, 1, (int64_t[]){LARGE_BYTES}, &s->state));
  REQUIRE_OK(rondo_view(s->graph, s->state, (int64_t[]){7}, (int64_t[]){PART_BYTES}, &s->part));
  s->data = data, s->back = back;
  data_fill(data);
}

static rondo_status large_open(struct large *s) {
  const rondo_options options = {
      .backend = RONDO_BACKEND_CUDA, .device_bytes = POOL_BYTES, .pinned_bytes = 4096, .host_bytes = 1 << 20};
  return rondo_open(&options, &s->runtime);
}

/* With an exec, and copies that run so. */
static void large_ready(struct large *s, enum fake_mode mode) {
  driver_setup();
  set_mode(mode);
  large_begin(s);
  REQUIRE_OK(large_open(s));
  REQUIRE_OK(rondo_instantiate(s->runtime, s->graph, NULL, &s->exec));
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
  require_clean("after close");
}

/* Tensors that are neighbours go in one copy with what lies between them; between views of one there is something. */
Test(upload, of_views_that_are_neighbours_leaves_what_is_between_them) {
  enum { VIEW = 100, NEXT = 256 };
  struct large s = {0};
  rondo_tensor views[2];
  unsigned char fresh[VIEW];
  large_begin(&s);
  for (int64_t i = 0; i < 2; i++)
    REQUIRE_OK(rondo_view(s.graph, s.state, (int64_t[]){i * NEXT}, (int64_t[]){VIEW}, &views[i]));
  REQUIRE_OK(large_open(&s));
  REQUIRE_OK(rondo_instantiate(s.runtime, s.graph, NULL, &s.exec));
  require_uploaded(&s, "whole");
  memset(fresh, 0xa5, VIEW);
  REQUIRE_OK(rondo_upload_all(s.exec, (rondo_content[]){{views[0], fresh, VIEW}, {views[1], fresh, VIEW}}, 2));
  for (int i = 0; i < 2; i++) memcpy(s.data + (size_t)i * NEXT, fresh, VIEW);
  REQUIRE_OK(rondo_download(s.exec, s.state, s.back, LARGE_BYTES));
  cr_assert(!memcmp(s.back, s.data, LARGE_BYTES));
  large_end(&s);
}

/* Pinned memory of more bytes than one copy out of the staging has; and an upload of so few that nothing is asked. */
Test(upload, of_many_pinned_bytes_is_one_copy_by_the_driver) {
  enum { PINNED_BYTES = 8 << 20 };
  struct large s = {0};
  rondo_tensor input, copied;
  rondo_slot slot;
  large_begin(&s);
  REQUIRE_OK(rondo_input(s.graph, "input", RONDO_U8, 1, (int64_t[]){PINNED_BYTES}, &input));
  REQUIRE_OK(rondo_view(s.graph, s.state, (int64_t[]){0}, (int64_t[]){PINNED_BYTES}, &copied));
  const rondo_options options = {
      .backend = RONDO_BACKEND_CUDA, .device_bytes = POOL_BYTES, .pinned_bytes = 16 << 20, .host_bytes = 1 << 20};
  REQUIRE_OK(rondo_open(&options, &s.runtime));
  REQUIRE_OK(rondo_instantiate(s.runtime, s.graph, NULL, &s.exec));
  REQUIRE_OK(rondo_acquire(s.exec, &slot));
  unsigned char *pinned = rondo_data(slot, input);
  memcpy(pinned, s.data, PINNED_BYTES);
  const uint64_t copies = fake->calls("cuMemcpyHtoDAsync"), asked = fake->calls("cuPointerGetAttributes");
  REQUIRE_OK(rondo_upload(s.exec, copied, pinned, PINNED_BYTES));
  cr_assert_eq(fake->calls("cuMemcpyHtoDAsync"), copies + 1);
  cr_assert_eq(fake->calls("cuPointerGetAttributes"), asked + 1);
  REQUIRE_OK(rondo_upload(s.exec, s.part, s.data, PART_BYTES));
  cr_assert_eq(fake->calls("cuPointerGetAttributes"), asked + 1);
  memmove(s.data + 7, s.data, PART_BYTES);
  REQUIRE_OK(rondo_download(s.exec, copied, s.back, PINNED_BYTES));
  cr_assert(!memcmp(s.back, s.data, PINNED_BYTES));
  REQUIRE_OK(rondo_release(slot));
  large_end(&s);
}

/* Rows that lie apart, where there is staging: what lies between them stays. */
Test(upload, of_a_view_leaves_what_lies_between_its_rows) {
  struct subject s = {0};
  unsigned char before[3 * 4 * 5 * 6], after[sizeof before], data[VIEW_BYTES], back[VIEW_BYTES];
  subject_describe(&s);
  const rondo_options options = {
      .backend = RONDO_BACKEND_CUDA, .device_bytes = POOL_BYTES, .pinned_bytes = 4096, .host_bytes = 1 << 20};
  REQUIRE_OK(rondo_open(&options, &s.runtime));
  REQUIRE_OK(rondo_instantiate(s.runtime, s.graph, NULL, &s.exec));
  memset(before, 0xee, sizeof before);
  for (int i = 0; i < VIEW_BYTES; i++) data[i] = (unsigned char)(i + 1);
  REQUIRE_OK(rondo_upload(s.exec, s.state, before, sizeof before));
  REQUIRE_OK(rondo_upload(s.exec, s.view, data, sizeof data));
  REQUIRE_OK(rondo_download(s.exec, s.view, back, sizeof back));
  REQUIRE_OK(rondo_download(s.exec, s.state, after, sizeof after));
  cr_assert_arr_eq(back, data, sizeof data);
  int kept = 0;
  for (size_t i = 0; i < sizeof after; i++) kept += after[i] == 0xee;
  cr_assert_eq(kept, (int)sizeof before - VIEW_BYTES);
  subject_close(&s);
}

Test(upload, of_many_bytes_goes_through_staging_whenever_copies_run) {
  static const enum fake_mode modes[] = {FAKE_IMMEDIATE, FAKE_DEFERRED, FAKE_THREAD};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    struct large s = {0};
    large_ready(&s, modes[i]);
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
  static const char *const others[] = {"cuPointerGetAttributes", "cuCtxPopCurrent", "cuThreadExchangeStreamCaptureMode",
                                       "cuStreamWaitEvent"};
  for (size_t i = 0; failed && i < sizeof others / sizeof *others; i++)
    if (!strcmp(failed, others[i])) return false;
  return failed != NULL;
}

/* Whichever call fails, with an error that passes, until none does: it is told, and the next upload is right. */
Test(upload, of_many_bytes_that_fails_leaves_nothing_behind) {
  static const enum fake_mode modes[] = {FAKE_IMMEDIATE, FAKE_DEFERRED, FAKE_THREAD};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    struct large s = {0};
    large_ready(&s, modes[i]);
    const char *failed = "";
    for (uint64_t n = 1; failed; n += n < 30 ? 1 : n / 3) {
      leave_one_on_its_way(&s);
      fake->fail_call(n, CU_INVALID_VALUE);
      rondo_status status = rondo_upload(s.exec, s.state, s.data, LARGE_BYTES);
      failed = fake->failed_call();
      cr_assert_eq(status, is_told(failed) ? RONDO_DEVICE_ERROR : RONDO_OK, "mode %d, call %d, %s", (int)modes[i],
                   (int)n, failed ? failed : "none");
      if (is_told(failed)) cr_assert(strstr(rondo_error_text(), failed), "%s: %s", failed, rondo_error_text());
      fake->fail_call(0, 0);
      require_uploaded(&s, failed ? failed : "no call failed");
    }
    large_end(&s);
  }
}

/* After the device was lost. */
static void large_abandon(struct large *s) {
  rondo_close_exec(&s->exec);
  rondo_close(&s->runtime);
  REQUIRE_OK(rondo_graph_destroy(&s->graph));
}

/* Whichever call loses the device, with copies on their way: that is told, by whatever comes next too, and all closes.
 */
Test(upload, of_many_bytes_that_loses_the_device_is_the_last) {
  static const enum fake_mode modes[] = {FAKE_IMMEDIATE, FAKE_DEFERRED};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    const char *failed = "";
    for (uint64_t n = 1; failed; n += n < 30 ? 1 : n / 3) {
      struct large s = {0};
      large_ready(&s, modes[i]);
      leave_one_on_its_way(&s);
      fake->fail_call(n, CU_ILLEGAL_ADDRESS);
      rondo_status status = rondo_upload(s.exec, s.state, s.data, LARGE_BYTES);
      failed = fake->failed_call();
      bool is_lost = is_told(failed) || (failed && !strcmp(failed, "cuStreamWaitEvent"));
      if (is_lost) {
        cr_assert_eq(status, RONDO_DEVICE_LOST, "mode %d, call %d, %s", (int)modes[i], (int)n, failed);
        REQUIRE_ERROR(rondo_upload(s.exec, s.state, s.data, LARGE_BYTES), RONDO_DEVICE_LOST,
                      "upload: the device was lost");
        REQUIRE_ERROR(rondo_download(s.exec, s.state, s.back, LARGE_BYTES), RONDO_DEVICE_LOST, "lost");
      }
      large_abandon(&s);
      if (!failed || is_lost) require_no_violation(failed ? failed : "no call failed"); /* the rest is not looked at */
    }
  }
}

/* A lane that is told to wait may be the first to see that the device is lost. Nobody waits for the lane then. */
Test(upload, whose_lane_sees_that_the_device_is_lost_asks_nothing_more) {
  bool is_found = false;
  for (uint64_t n = 1; !is_found; n++) {
    struct large s = {0};
    large_ready(&s, FAKE_DEFERRED);
    fake->fail_call(n, CU_ILLEGAL_ADDRESS);
    rondo_status status = rondo_upload(s.exec, s.part, s.data, PART_BYTES);
    const char *failed = fake->failed_call();
    cr_assert(failed, "cuStreamWaitEvent is called");
    is_found = !strcmp(failed, "cuStreamWaitEvent");
    if (is_found) {
      cr_assert_eq(status, RONDO_DEVICE_LOST);
      cr_assert(strstr(rondo_error_text(), "upload: cuStreamWaitEvent"), "%s", rondo_error_text());
    }
    large_abandon(&s);
    if (is_found) require_no_violation(failed);
  }
}

/* A lane that cannot be made to wait is waited for, by the host. */
Test(upload, that_no_lane_can_wait_for_is_waited_for) {
  struct large s = {0};
  large_ready(&s, FAKE_DEFERRED);
  bool is_found = false;
  for (uint64_t n = 1; !is_found; n++) {
    memset(s.data, (int)n, PART_BYTES);
    fake->fail_call(n, CU_INVALID_VALUE);
    rondo_upload(s.exec, s.part, s.data, PART_BYTES);
    is_found = fake->failed_call() && !strcmp(fake->failed_call(), "cuStreamWaitEvent");
    cr_assert(fake->failed_call(), "it is called");
    fake->fail_call(0, 0);
  }
  REQUIRE_OK(rondo_download(s.exec, s.part, s.back, PART_BYTES));
  cr_assert(!memcmp(s.back, s.data, PART_BYTES));
  large_end(&s);
}

/* Without staging the driver does it all, and nothing has failed: the error text stays. */
Test(upload, of_many_bytes_is_right_whatever_fails_at_open) {
  static const char before[] = "graph_create";
  uint32_t without = 0;
  bool failed = true;
  for (uint64_t n = 1; failed; n++) {
    struct large s = {0};
    driver_setup();
    large_begin(&s);
    REQUIRE_ERROR(rondo_graph_create(NULL, NULL, NULL), RONDO_INVALID_ARGUMENT, before);
    fake->fail_call(n, CU_OUT_OF_MEMORY);
    rondo_status status = large_open(&s);
    failed = fake->failed_call() != NULL;
    fake->fail_call(0, 0);
    if (status == RONDO_OK) {
      cr_assert(strstr(rondo_error_text(), before), "%s", rondo_error_text());
      REQUIRE_OK(rondo_instantiate(s.runtime, s.graph, NULL, &s.exec));
      uint64_t copies = fake->calls("cuMemcpyHtoDAsync");
      require_uploaded(&s, "without staging");
      without += fake->calls("cuMemcpyHtoDAsync") == copies + 1;
    }
    large_end(&s);
  }
  cr_assert_eq(without, STAGING_CALLS, "without memory, a stream, or any event");
}
