/* test_resident.c - resident execs: the results and the order of replays between which the graph stays on the device,
 * leaves it, and comes back; and processes that stop or are killed while it is there. */
#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../runtime/clock.h"
#include "../../runtime/cuda/cuda_device.h"
#include "../../runtime/exec.h"
#include "../support.h"

TestSuite(resident, .timeout = 120);

enum { REPEATS = 5, CHAIN = 12 };
static const uint64_t for_ever_ns = UINT64_C(1000000000000), second_ns = UINT64_C(1000000000);

/* Each replay adds `step` to `total`, in some tasks one after the other. Another exec of the lane shows it. */
struct subject {
  rondo_runtime *runtime;
  rondo_graph *graph, *other_graph;
  rondo_exec *exec, *other;
  rondo_slot slot, other_slot;
  rondo_tensor step, total, seen, shown;
  int32_t sum;
};

static rondo_tensor number(rondo_graph *graph, tensor_kind add, const char *name) {
  rondo_tensor tensor;
  REQUIRE_OK(add(graph, name, RONDO_I32, 1, (int64_t[]){1}, &tensor));
  return tensor;
}

static void describe(struct subject *s, uint32_t copies) {
  rondo_tensor borrowed, sum;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s->graph));
  s->step = number(s->graph, rondo_input, "step");
  s->total = number(s->graph, rondo_state, "total");
  s->seen = number(s->graph, rondo_output, "seen");
  sum = number(s->graph, rondo_temporary, "sum");
  REQUIRE_OK(rondo_add_add(s->graph, &(rondo_add_desc){.a = s->total, .b = s->step, .out = sum}));
  for (uint32_t i = 0; i < copies; i++) {
    rondo_tensor next = number(s->graph, rondo_temporary, "next");
    REQUIRE_OK(rondo_add_copy(s->graph, &(rondo_copy_desc){.src = sum, .dst = next}));
    sum = next;
  }
  REQUIRE_OK(rondo_add_copy(s->graph, &(rondo_copy_desc){.src = sum, .dst = s->total}));
  REQUIRE_OK(rondo_add_copy(s->graph, &(rondo_copy_desc){.src = sum, .dst = s->seen}));
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s->other_graph));
  REQUIRE_OK(rondo_borrow(s->other_graph, s->total, &borrowed));
  s->shown = number(s->other_graph, rondo_output, "shown");
  REQUIRE_OK(rondo_add_copy(s->other_graph, &(rondo_copy_desc){.src = borrowed, .dst = s->shown}));
}

static struct subject subject_open(rondo_backend backend, uint64_t linger_ns, uint32_t copies,
                                   const rondo_lane *lanes) {
  struct subject s = {0};
  describe(&s, copies);
  REQUIRE_OK(rondo_open(&(rondo_options){.backend = backend,
                                         .device_bytes = 1 << 20,
                                         .pinned_bytes = 1 << 20,
                                         .host_threads = 2,
                                         .lanes = lanes,
                                         .lane_count = lanes ? 2 : 0},
                        &s.runtime));
  rondo_exec_options options = {.linger_ns = linger_ns, .repeat_steps = REPEATS};
  REQUIRE_OK(rondo_instantiate(s.runtime, s.graph, &options, &s.exec));
  REQUIRE_OK(rondo_instantiate(s.runtime, s.other_graph, NULL, &s.other));
  REQUIRE_OK(rondo_acquire(s.exec, &s.slot));
  REQUIRE_OK(rondo_acquire(s.other, &s.other_slot));
  return s;
}

static void subject_close(struct subject *s) {
  REQUIRE_OK(rondo_close_exec(&s->other));
  REQUIRE_OK(rondo_close_exec(&s->exec));
  REQUIRE_OK(rondo_graph_destroy(&s->graph));
  REQUIRE_OK(rondo_graph_destroy(&s->other_graph));
  REQUIRE_OK(rondo_close(&s->runtime));
}

static void start(struct subject *s, int32_t step) {
  *(int32_t *)rondo_data(s->slot, s->step) = step;
  REQUIRE_OK(rondo_replay(s->slot));
  s->sum += step;
}

static void end(const struct subject *s) {
  REQUIRE_OK(rondo_wait(s->slot, RONDO_FOREVER));
  cr_assert_eq(*(const int32_t *)rondo_data(s->slot, s->seen), s->sum);
}

static void show(const struct subject *s) {
  REQUIRE_OK(rondo_replay(s->other_slot));
  REQUIRE_OK(rondo_wait(s->other_slot, RONDO_FOREVER));
  cr_assert_eq(*(const int32_t *)rondo_data(s->other_slot, s->shown), s->sum);
}

static void sleep_us(long us) {
  nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

/* ---- Replays ----------------------------------------------------------------------------------------------------- */

static void reads_inputs(rondo_backend backend) {
  for (uint32_t copies = 0; copies <= CHAIN; copies += CHAIN / 2) {
    struct subject s = subject_open(backend, for_ever_ns, copies, NULL);
    for (int32_t i = 0; i < 5000; i++) {
      start(&s, i % 7 - 2);
      end(&s);
    }
    for (int32_t i = 0; i < 200; i++) {
      start(&s, i);
      end(&s);
      sleep_us(3L * i);
    }
    subject_close(&s);
  }
}

BOTH_BACKENDS(resident, each_replay_reads_its_inputs_and_the_state_of_the_one_before, reads_inputs)

/* ---- Off and on again -------------------------------------------------------------------------------------------- */

static void upload(struct subject *s) {
  int32_t total = -1;
  REQUIRE_OK(rondo_download(s->exec, s->total, &total, sizeof total));
  cr_assert_eq(total, s->sum);
  s->sum += 1000;
  REQUIRE_OK(rondo_upload(s->exec, s->total, &s->sum, sizeof s->sum));
}

static void instantiate(struct subject *s) {
  rondo_exec *more = NULL;
  REQUIRE_OK(rondo_instantiate(s->runtime, s->other_graph, NULL, &more));
  REQUIRE_OK(rondo_close_exec(&more));
}

static void repeat(struct subject *s) {
  *(int32_t *)rondo_data(s->slot, s->step) = 3;
  REQUIRE_OK(rondo_repeat(s->slot, &(rondo_repeat_options){.count = REPEATS}));
  s->sum += 3 * REPEATS;
  end(s);
}

static void notify(struct subject *s) {
  int file = eventfd(0, 0);
  uint64_t count = 0;
  REQUIRE_OK(rondo_notify(s->slot, file));
  start(s, 5);
  cr_assert_eq(read(file, &count, sizeof count), sizeof count);
  end(s);
  REQUIRE_OK(rondo_notify(s->slot, -1));
  close(file);
}

static void rebind(struct subject *s) {
  int32_t *buffer = rondo_data(s->other_slot, s->shown);
  *buffer = 11;
  REQUIRE_OK(rondo_rebind(s->slot, s->step, buffer));
  start(s, 0);
  s->sum += 11;
  end(s);
  REQUIRE_OK(rondo_rebind(s->slot, s->step, NULL));
}

static void profile(struct subject *s) {
  static rondo_task_profile tasks[64];
  rondo_profile_totals totals;
  rondo_exec_usage usage;
  *(int32_t *)rondo_data(s->slot, s->step) = 0;
  REQUIRE_OK(rondo_exec_info(s->exec, &usage));
  REQUIRE_OK(rondo_profile(s->slot, &(rondo_profile_options){.passes = 2, .copy_bytes = 1 << 20}, tasks,
                           usage.node_count, &totals));
}

static void linger(struct subject *s) {
  (void)s;
  sleep_us(8000);
}

static void show_it(struct subject *s) { show(s); }

static void interrupted(rondo_backend backend) {
  static void (*const interruptions[])(struct subject *) = {show_it, upload, instantiate, repeat,
                                                            notify,  rebind, linger,      profile};
  const size_t count = sizeof interruptions / sizeof *interruptions;
  for (uint32_t copies = 0; copies <= CHAIN; copies += CHAIN) {
    struct subject s = subject_open(backend, copies ? for_ever_ns : 2000000, copies, NULL);
    for (uint32_t i = 0; i < 12 * count; i++) {
      for (uint32_t k = 0; k < i % 11; k++) {
        start(&s, (int32_t)k + 1);
        end(&s);
      }
      interruptions[i % count](&s);
      start(&s, 1);
      show(&s); /* while the replay may be in flight */
      end(&s);
    }
    subject_close(&s);
  }
}

BOTH_BACKENDS(resident, whatever_comes_between_replays_keeps_the_order_of_the_lane, interrupted)

/* Loops on multiprocessors of their own, and kernels beside them. */
static void lanes(rondo_backend backend) {
  for (int own = 0; own <= 8; own += 8) {
    const rondo_lane two[] = {{.name = "resident", .multiprocessors = own}, {.name = "other"}};
    struct subject s = subject_open(backend, for_ever_ns, CHAIN, two), beside = {0};
    describe(&beside, 2);
    REQUIRE_OK(rondo_instantiate(s.runtime, beside.graph, &(rondo_exec_options){.lane = 1}, &beside.exec));
    REQUIRE_OK(rondo_acquire(beside.exec, &beside.slot));
    for (int32_t i = 0; i < 2000; i++) {
      start(&s, i);
      start(&beside, 2 * i);
      end(&beside);
      end(&s);
      if (i % 100 == 99) show(&s);
    }
    REQUIRE_OK(rondo_close_exec(&beside.exec));
    REQUIRE_OK(rondo_graph_destroy(&beside.graph));
    REQUIRE_OK(rondo_graph_destroy(&beside.other_graph));
    subject_close(&s);
  }
}

BOTH_BACKENDS(resident, other_lanes_go_on_beside_it, lanes)

/* ---- Processes --------------------------------------------------------------------------------------------------- */

/* A process that has used the GPU has no child that can: the parent finds out through one whether there is any. */
static bool child_can_open(void) {
  rondo_runtime *runtime = NULL;
  return rondo_open(&(rondo_options){.backend = RONDO_BACKEND_CUDA}, &runtime) == RONDO_OK &&
         rondo_close(&runtime) == RONDO_OK;
}

/* In a child: replays, and tells so by a byte; then waits for a byte, replays again and ends. */
static void replay_in_child(int in, int out, uint64_t linger_ns) {
  char byte = 0;
  if (!child_can_open()) _exit(write(out, "n", 1) != 1);
  struct subject s = subject_open(RONDO_BACKEND_CUDA, linger_ns, 1, NULL);
  start(&s, 1);
  end(&s);
  if (write(out, "r", 1) != 1 || read(in, &byte, 1) != 1) _exit(3);
  for (int i = 0; i < 100; i++) {
    start(&s, 1);
    end(&s);
  }
  subject_close(&s);
  _exit(0);
}

static void replaying_child(int in, int out) { replay_in_child(in, out, for_ever_ns); }

static void launching_child(int in, int out) { replay_in_child(in, out, 0); }

struct process {
  pid_t id;
  int to, from;
};

typedef void child_run(int in, int out);

static struct process process_start(child_run *run) {
  int to[2], from[2];
  char byte;
  cr_assert(!pipe(to) && !pipe(from));
  struct process process = {.id = fork(), .to = to[1], .from = from[0]};
  if (!process.id) run(to[0], from[1]);
  close(to[0]);
  close(from[1]);
  cr_assert_eq(read(process.from, &byte, 1), 1);
  if (byte == 'n') {
    waitpid(process.id, NULL, 0);
    cr_skip_test("no GPU for a child of this process");
  }
  return process;
}

static int process_end(const struct process *process) {
  int status = 0;
  cr_assert_eq(waitpid(process->id, &status, 0), process->id);
  close(process->to);
  close(process->from);
  return status;
}

static void require_free_device(void) {
  struct subject s = subject_open(RONDO_BACKEND_CUDA, for_ever_ns, 1, NULL);
  for (int i = 0; i < 1000; i++) {
    start(&s, 1);
    end(&s);
  }
  subject_close(&s);
}

/* The graph gives up its wait, and is launched again for the replay that finds it gone. */
Test(resident, a_process_that_was_stopped_goes_on_cuda) {
  struct process process = process_start(replaying_child);
  kill(process.id, SIGSTOP);
  sleep_us(600000);
  cr_assert_eq(write(process.to, "g", 1), 1);
  kill(process.id, SIGCONT);
  cr_assert_eq(process_end(&process), 0);
}

static uint64_t kill_ns(child_run *run) {
  struct process process = process_start(run);
  const uint64_t begin = now_ns();
  kill(process.id, SIGKILL);
  cr_assert(WIFSIGNALED(process_end(&process)));
  return now_ns() - begin;
}

/* The driver takes its time to end a process, whether a graph is on the device or not: 0.1 s. */
Test(resident, a_process_that_was_killed_leaves_a_free_device_cuda) {
  const uint64_t launched_ns = kill_ns(launching_child), ns = kill_ns(replaying_child);
  cr_assert_lt(ns, launched_ns + second_ns / 2, "%ju, without a resident exec %ju", ns, launched_ns);
  require_free_device();
}

/* The program ends without closing anything. */
Test(resident, a_process_that_ends_without_closing_leaves_a_free_device_cuda) {
  struct process process = {.id = fork()};
  if (!process.id) {
    if (!child_can_open()) exit(77);
    struct subject s = subject_open(RONDO_BACKEND_CUDA, for_ever_ns, 1, NULL);
    start(&s, 1);
    end(&s);
    exit(0);
  }
  int status = 1;
  cr_assert_eq(waitpid(process.id, &status, 0), process.id);
  cr_assert(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) cr_skip_test("no GPU for a child of this process");
  cr_assert_eq(WEXITSTATUS(status), 0);
}

/* ---- Kernels that hang or fail ----------------------------------------------------------------------------------- */

enum { HANGS = 1, FAILS };

/* y = x; for ever while x is 1, and a fault if it is 2. */
static const char hang_ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                               ".visible .entry hang(.param .u64 x, .param .u64 y)\n{\n"
                               ".reg .b64 %rd<3>;\n.reg .b32 %r<2>;\n.reg .pred %p<3>;\n"
                               "ld.param.u64 %rd1, [x];\nld.param.u64 %rd2, [y];\n"
                               "again:\nld.volatile.global.u32 %r1, [%rd1];\n"
                               "setp.eq.u32 %p1, %r1, 1;\n@%p1 bra again;\n"
                               "setp.eq.u32 %p2, %r1, 2;\n@%p2 trap;\n"
                               "st.global.u32 [%rd2], %r1;\nret;\n}\n";

struct hanging {
  rondo_runtime *runtime;
  rondo_graph *graph;
  rondo_exec *exec;
  rondo_slot slot;
  rondo_tensor x, y;
};

/* A replay that ends, then one that does not. */
static struct hanging hang(int32_t how) {
  struct hanging h = {0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &h.graph));
  h.x = number(h.graph, rondo_input, "x");
  h.y = number(h.graph, rondo_output, "y");
  rondo_argument arguments[] = {{.tensor = h.x, .access = RONDO_READ}, {.tensor = h.y, .access = RONDO_WRITE}};
  REQUIRE_OK(rondo_add_kernel(h.graph, &(rondo_kernel_desc){.name = "hang",
                                                            .image = hang_ptx,
                                                            .image_bytes = sizeof hang_ptx,
                                                            .function = "hang",
                                                            .grid = {1},
                                                            .block = {1},
                                                            .arguments = arguments,
                                                            .argument_count = 2}));
  REQUIRE_OK(rondo_open(
      &(rondo_options){.backend = RONDO_BACKEND_CUDA, .device_bytes = 1 << 20, .pinned_bytes = 1 << 20}, &h.runtime));
  REQUIRE_OK(rondo_instantiate(h.runtime, h.graph, &(rondo_exec_options){.linger_ns = for_ever_ns}, &h.exec));
  REQUIRE_OK(rondo_acquire(h.exec, &h.slot));
  *(int32_t *)rondo_data(h.slot, h.x) = 5;
  REQUIRE_OK(rondo_replay(h.slot));
  REQUIRE_OK(rondo_wait(h.slot, RONDO_FOREVER));
  cr_assert_eq(*(int32_t *)rondo_data(h.slot, h.y), 5);
  *(int32_t *)rondo_data(h.slot, h.x) = how;
  REQUIRE_OK(rondo_replay(h.slot));
  return h;
}

/* In a child: hangs, and tells so; then waits for a byte, gives up and ends. */
static void hanging_child(int in, int out) {
  char byte = 0;
  if (!child_can_open()) _exit(write(out, "n", 1) != 1);
  struct hanging h = hang(HANGS);
  REQUIRE_ERROR(rondo_wait(h.slot, second_ns / 20), RONDO_TIMEOUT, "still in flight");
  if (write(out, "r", 1) != 1 || read(in, &byte, 1) != 1) _exit(3);
  const uint64_t begin = now_ns();
  REQUIRE_ERROR(rondo_close_exec_within(&h.exec, second_ns / 20), RONDO_DEVICE_LOST, "slot 0 was not done");
  REQUIRE_OK(rondo_close(&h.runtime));
  cr_assert_lt(now_ns() - begin, second_ns);
  exit(0);
}

/* The driver takes a second to end it. */
Test(resident, a_process_whose_kernel_hangs_gives_up_and_leaves_a_free_device_cuda) {
  struct process process = process_start(hanging_child);
  const uint64_t begin = now_ns();
  cr_assert_eq(write(process.to, "g", 1), 1);
  cr_assert_eq(process_end(&process), 0);
  cr_assert_lt(now_ns() - begin, 5 * second_ns);
  require_free_device();
}

Test(resident, a_process_whose_kernel_hangs_and_that_was_killed_leaves_a_free_device_cuda) {
  const uint64_t launched_ns = kill_ns(launching_child), ns = kill_ns(hanging_child);
  cr_assert_lt(ns, launched_ns + second_ns / 2, "%ju, without a resident exec %ju", ns, launched_ns);
  require_free_device();
}

static void failing_child(int in, int out) {
  if (!child_can_open()) _exit(write(out, "n", 1) != 1);
  struct hanging h = hang(FAILS);
  REQUIRE_ERROR(rondo_wait(h.slot, RONDO_FOREVER), RONDO_DEVICE_LOST, "CUDA_ERROR");
  REQUIRE_OK(rondo_close_exec(&h.exec));
  REQUIRE_OK(rondo_close(&h.runtime));
  (void)in;
  exit(write(out, "r", 1) != 1);
}

Test(resident, a_process_whose_kernel_fails_is_told_and_leaves_a_free_device_cuda) {
  struct process process = process_start(failing_child);
  cr_assert_eq(process_end(&process), 0);
  require_free_device();
}

/* The thread that beats is held up, as in a process that was stopped. */
Test(resident, without_a_beat_the_device_is_free_within_a_fifth_of_a_second_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  struct subject s = subject_open(RONDO_BACKEND_CUDA, for_ever_ns, 1, NULL);
  struct device_exec *exec = s.exec->slots.items[0].device_exec;
  for (int i = 0; i < 3; i++) {
    start(&s, 1);
    end(&s);
    const uint64_t on = doorbell_word(exec->bell), begin = now_ns();
    cr_assert(doorbell_is_on(on));
    pthread_mutex_lock(&exec->device->residents.lock);
    while (doorbell_left(exec->bell) < on && now_ns() - begin < 2 * second_ns) sleep_us(100);
    const uint64_t ns = now_ns() - begin;
    pthread_mutex_unlock(&exec->device->residents.lock);
    cr_assert_lt(ns, second_ns / 5 + second_ns / 10, "%ju", ns);
    start(&s, 1);
    end(&s);
    show(&s);
  }
  subject_close(&s);
}

/* ---- Refused ----------------------------------------------------------------------------------------------------- */

Test(resident, too_many_kernels_are_refused_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  struct subject s = {0};
  describe(&s, 150);
  REQUIRE_OK(rondo_open(
      &(rondo_options){.backend = RONDO_BACKEND_CUDA, .device_bytes = 1 << 20, .pinned_bytes = 1 << 20}, &s.runtime));
  REQUIRE_ERROR(rondo_instantiate(s.runtime, s.graph, &(rondo_exec_options){.linger_ns = 1}, &s.exec),
                RONDO_UNSUPPORTED, "a resident exec launches at most 128 kernels");
  REQUIRE_OK(rondo_graph_destroy(&s.graph));
  REQUIRE_OK(rondo_graph_destroy(&s.other_graph));
  REQUIRE_OK(rondo_close(&s.runtime));
}
