/* test_cuda_notify.c - rondo_notify on the fake driver: one call of the driver after each replay that asked for it, in
 * the stream's order, and the cases in which the driver refuses it or the device is lost. */
#include <sys/eventfd.h>
#include <unistd.h>

#include "driver_support.h"

TestSuite(notify, .init = driver_setup, .timeout = 60);

enum { COUNT = 64 };

struct subject {
  rondo_graph *graph;
  rondo_tensor x, y;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_slot slot;
  rondo_lane_grant another; /* with a stream that the exec is not of */
  int file;
};

static struct subject subject_open(void) {
  struct subject s = {.file = eventfd(0, EFD_NONBLOCK)};
  cr_assert_geq(s.file, 0);
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s.graph));
  s.x = add_vector(rondo_input, s.graph, "x", COUNT);
  s.y = add_vector(rondo_output, s.graph, "y", COUNT);
  add_copy(s.graph, "copy", s.x, s.y);
  rondo_options options = options_for(s.graph, RONDO_BACKEND_CUDA, 1);
  options.lanes = (rondo_lane[]){{.name = "own"}, {.name = "another"}};
  options.lane_count = 2;
  REQUIRE_OK(rondo_open(&options, &s.runtime));
  REQUIRE_OK(rondo_instantiate(s.runtime, s.graph, NULL, &s.exec));
  REQUIRE_OK(rondo_acquire(s.exec, &s.slot));
  REQUIRE_OK(rondo_lane_info(s.runtime, 1, &s.another));
  return s;
}

static void subject_close(struct subject *s) {
  REQUIRE_OK(rondo_close_exec(&s->exec));
  REQUIRE_OK(rondo_graph_destroy(&s->graph));
  REQUIRE_OK(rondo_close(&s->runtime));
  close(s->file);
}

static uint64_t count_of(const struct subject *s) {
  uint64_t count = 0;
  return read(s->file, &count, sizeof count) == sizeof count ? count : 0;
}

Test(notify, every_replay_that_is_asked_for_is_told_in_every_mode) {
  static const enum fake_mode modes[] = {FAKE_IMMEDIATE, FAKE_DEFERRED, FAKE_THREAD};
  for (int m = 0; m < 3; m++) {
    driver_setup();
    struct subject s = subject_open();
    set_mode(modes[m]);
    for (int round = 0; round < 50; round++) {
      uint64_t calls = fake->calls("cuLaunchHostFunc");
      REQUIRE_OK(rondo_notify(s.slot, round % 2 ? s.file : -1));
      for (int replay = 0; replay < 3; replay++) {
        if (replay == 1)
          REQUIRE_OK(rondo_replay_on(s.slot, s.another.stream));
        else
          REQUIRE_OK(rondo_replay(s.slot));
        REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
      }
      REQUIRE_OK(rondo_release(s.slot));
      cr_assert_eq(count_of(&s), round % 2 ? 3 : 0);
      cr_assert_eq(fake->calls("cuLaunchHostFunc") - calls, round % 2 ? 3 : 0);
      REQUIRE_OK(rondo_acquire(s.exec, &s.slot));
    }
    subject_close(&s);
    require_clean("after close");
  }
}

/* The graph runs, and somebody sleeps until he is told of its end. */
Test(notify, a_refused_call_loses_the_device_with_its_cause) {
  struct subject s = subject_open();
  REQUIRE_OK(rondo_notify(s.slot, s.file));
  set_mode(FAKE_NEVER);
  fake->fail_call(3, 2); /* push, launch, and this one */
  REQUIRE_ERROR(rondo_replay(s.slot), RONDO_DEVICE_LOST, "replay: cuLaunchHostFunc after the launch");
  cr_assert_str_eq(fake->failed_call(), "cuLaunchHostFunc");
  REQUIRE_ERROR(rondo_replay(s.slot), RONDO_DEVICE_LOST, "replay: cuLaunchHostFunc after the launch");
  subject_close(&s);
  require_no_violation("after close");
  cr_assert_eq(fake->context_depth(), 0);
}

/* No write will come of the refused call, so that nobody has to wait for one. */
Test(notify, a_refused_call_leaves_no_notice_due_and_the_slot_can_be_released) {
  struct subject s = subject_open();
  REQUIRE_OK(rondo_notify(s.slot, s.file));
  fake->fail_call(3, 2); /* push, launch, and this one */
  REQUIRE_ERROR(rondo_replay(s.slot), RONDO_DEVICE_LOST, "replay: cuLaunchHostFunc after the launch");
  REQUIRE_OK(rondo_poll(s.slot)); /* its replay was done in the launch */
  REQUIRE_OK(rondo_release(s.slot));
  cr_assert_eq(count_of(&s), 0);
  subject_close(&s);
  require_no_violation("after close");
}

Test(notify, who_waits_for_a_write_of_a_lost_device_is_told_so) {
  struct subject s = subject_open();
  REQUIRE_OK(rondo_notify(s.slot, s.file));
  set_mode(FAKE_DEFERRED);
  fake->lose_after_nodes(0, CU_ILLEGAL_ADDRESS);
  REQUIRE_OK(rondo_replay(s.slot));
  REQUIRE_ERROR(rondo_wait(s.slot, RONDO_FOREVER), RONDO_DEVICE_LOST, "CUDA_ERROR_ILLEGAL_ADDRESS");
  REQUIRE_ERROR(rondo_notify(s.slot, -1), RONDO_DEVICE_LOST, "CUDA_ERROR_ILLEGAL_ADDRESS");
  REQUIRE_ERROR(rondo_release(s.slot), RONDO_DEVICE_LOST, "CUDA_ERROR_ILLEGAL_ADDRESS");
  cr_assert_eq(count_of(&s), 0);
  subject_close(&s);
  require_no_violation("after close");
}

/* ---- Closing with a notice on its way ---------------------------------------------------------------------------- */

/* A replay whose last node has run, and whose notice is to come with a later step. */
static void replay_but_for_the_notice(const struct subject *s) {
  REQUIRE_OK(rondo_notify(s->slot, s->file));
  set_mode(FAKE_DEFERRED);
  REQUIRE_OK(rondo_replay(s->slot));
  while (rondo_poll(s->slot) == RONDO_BUSY) {}
  REQUIRE_OK(rondo_poll(s->slot));
  set_mode(FAKE_NEVER);
  cr_assert_eq(count_of(s), 0);
}

Test(notify, a_device_is_not_lost_for_a_notice_that_is_on_its_way) {
  struct subject s = subject_open();
  replay_but_for_the_notice(&s);
  set_mode(FAKE_DEFERRED);
  REQUIRE_OK(rondo_close_exec_within(&s.exec, 0));
  cr_assert_eq(count_of(&s), 1);
  REQUIRE_OK(rondo_instantiate(s.runtime, s.graph, NULL, &s.exec)); /* the device is there still */
  subject_close(&s);
  require_clean("after close");
}

/* As where another library's call keeps the driver's thread. */
Test(notify, a_notice_that_does_not_come_leaves_the_exec_open_and_the_device_there) {
  struct subject s = subject_open();
  rondo_exec *exec = s.exec;
  replay_but_for_the_notice(&s);
  REQUIRE_ERROR(rondo_close_exec_within(&s.exec, 0), RONDO_TIMEOUT,
                "rondo_close_exec_within: the replays are done, but the notice of slot 0 is not written yet: the exec "
                "stays open");
  cr_assert_eq(s.exec, exec);
  set_mode(FAKE_DEFERRED);
  REQUIRE_OK(rondo_replay(s.slot)); /* as it was, its notices too */
  REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
  REQUIRE_OK(rondo_notify(s.slot, -1));
  cr_assert_eq(count_of(&s), 2);
  subject_close(&s);
  require_clean("after close");
}

/* The driver's thread may still come and count. */
Test(notify, memory_of_an_exec_with_a_notice_due_is_not_given_away_when_the_device_is_lost) {
  struct subject s = subject_open();
  rondo_info before, after;
  replay_but_for_the_notice(&s);
  REQUIRE_OK(rondo_runtime_info(s.runtime, &before));
  fake->fail_call(1, CU_ILLEGAL_ADDRESS);
  REQUIRE_OK(rondo_close_exec(&s.exec));
  REQUIRE_OK(rondo_runtime_info(s.runtime, &after));
  cr_assert_eq(after.host.used_bytes, before.host.used_bytes);
  cr_assert_eq(after.device.used_bytes, before.device.used_bytes);
  subject_close(&s);
}

/* Counted before the launch, since whoever sees the replay's end may be another thread, and one that was refused is
 * waited for by nobody. */
Test(notify, a_launch_that_is_refused_leaves_no_notice_due) {
  struct subject s = subject_open();
  REQUIRE_OK(rondo_notify(s.slot, s.file));
  fake->fail_call(2, 2); /* push, and the launch */
  REQUIRE_ERROR(rondo_replay(s.slot), RONDO_OUT_OF_MEMORY, "replay: cuGraphLaunch");
  REQUIRE_OK(rondo_release(s.slot));
  cr_assert_eq(count_of(&s), 0);
  subject_close(&s);
  require_clean("after close");
}
