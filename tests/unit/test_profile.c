/* test_profile.c - rondo_profile measures every task and leaves the exec as the same number of replays does. Its bytes
 * and edges are right, and its reports are valid tables and traces. How long anything took is not tested. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lone_task.h"
#include "markup.h"
#include "report_text.h"

enum { COPY_BYTES = 1 << 16, PASSES = 3, ROOM = 16 };
static const rondo_profile_options quick = {.passes = PASSES, .copy_bytes = COPY_BYTES};

/* in -> middle -> out, and in -> side, a state. */
struct copies {
  struct trial trial;
  rondo_tensor in, middle, side, out;
};

static const int64_t shape[] = {128, 256}; /* too large to stay in pinned memory */
enum { ELEMENTS = 128 * 256 };
static const uint64_t tensor_bytes = UINT64_C(4) * ELEMENTS;

static void add_copy(struct copies *c, const char *name, rondo_tensor src, rondo_tensor dst) {
  REQUIRE_OK(rondo_add_copy(c->trial.graph, &(rondo_copy_desc){.name = name, .src = src, .dst = dst}));
}

static struct copies copies(rondo_backend backend) {
  struct copies c;
  trial_describe(&c.trial, backend);
  REQUIRE_OK(rondo_input(c.trial.graph, "in", RONDO_I32, 2, shape, &c.in));
  REQUIRE_OK(rondo_temporary(c.trial.graph, "middle", RONDO_I32, 2, shape, &c.middle));
  REQUIRE_OK(rondo_state(c.trial.graph, "side", RONDO_I32, 2, shape, &c.side));
  REQUIRE_OK(rondo_output(c.trial.graph, "out", RONDO_I32, 2, shape, &c.out));
  add_copy(&c, "first", c.in, c.middle);
  add_copy(&c, "aside", c.in, c.side);
  add_copy(&c, "second", c.middle, c.out);
  trial_instantiate(&c.trial);
  return c;
}

static const rondo_task_profile *task_named(const rondo_task_profile *tasks, uint32_t count, const char *name) {
  for (uint32_t i = 0; i < count; i++)
    if (!strcmp(tasks[i].name, name)) return &tasks[i];
  cr_assert_fail("no task '%s'", name);
  return NULL;
}

static void profile_tells_bytes_and_edges(rondo_backend backend) {
  struct copies c = copies(backend);
  rondo_task_profile tasks[ROOM];
  rondo_profile_totals totals;
  REQUIRE_OK(rondo_profile(c.trial.slot, &quick, tasks, 5, &totals));
  cr_assert_eq(totals.task_count, 5);
  cr_assert_eq(totals.copy_bytes, COPY_BYTES);
  uint64_t sum = 0, path = 0;
  for (int i = 0; i < 5; i++) {
    cr_assert_str_eq(tasks[i].operation, "copy");
    sum += tasks[i].time_ns;
    if (tasks[i].begin_ns + tasks[i].time_ns > path) path = tasks[i].begin_ns + tasks[i].time_ns;
  }
  cr_assert_eq(totals.tasks_ns, sum);
  cr_assert_eq(totals.path_ns, path);
  const rondo_task_profile *in = task_named(tasks, 5, "copy in in"), *first = task_named(tasks, 5, "first"),
                           *aside = task_named(tasks, 5, "aside"), *second = task_named(tasks, 5, "second");
  uint64_t bus = backend == RONDO_BACKEND_CUDA ? tensor_bytes : 0;
  cr_assert(in->bus_bytes == bus && in->bytes == 2 * tensor_bytes - bus);
  cr_assert(first->bus_bytes == 0 && first->bytes == 2 * tensor_bytes);
  cr_assert_eq(in->begin_ns, 0);
  cr_assert_eq(first->begin_ns, in->time_ns);
  cr_assert_eq(aside->begin_ns, in->time_ns, "it need not wait for the first");
  cr_assert_eq(second->begin_ns, first->begin_ns + first->time_ns);
  trial_end(&c.trial);
}
BOTH_BACKENDS(profile, tells_bytes_and_edges, profile_tells_bytes_and_edges)

static void profile_leaves_what_replays_leave(rondo_backend backend) {
  struct copies c = copies(backend);
  static int32_t in[ELEMENTS], got[ELEMENTS];
  rondo_task_profile tasks[ROOM];
  rondo_profile_totals totals;
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < ELEMENTS; i++) in[i] = i + 7 * round + 1;
    trial_set(&c.trial, c.in, in);
    REQUIRE_OK(rondo_profile(c.trial.slot, &quick, tasks, 5, &totals));
    trial_get(&c.trial, c.out, got);
    cr_assert_eq(memcmp(got, in, sizeof in), 0, "the output");
    trial_get(&c.trial, c.side, got);
    cr_assert_eq(memcmp(got, in, sizeof in), 0, "the state");
    trial_replay(&c.trial);
  }
  trial_end(&c.trial);
}
BOTH_BACKENDS(profile, leaves_what_replays_leave, profile_leaves_what_replays_leave)

/* ---- Host -------------------------------------------------------------------------------------------------------- */

static rondo_runtime *open_host(const rondo_allocator *allocator, uint32_t lanes) {
  rondo_runtime *runtime = NULL;
  static const rondo_lane lane[2];
  REQUIRE_OK(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_HOST,
                                         .device_bytes = 1 << 20,
                                         .pinned_bytes = 1 << 20,
                                         .host_threads = 2,
                                         .lanes = lanes ? lane : NULL,
                                         .lane_count = lanes,
                                         .allocator = allocator},
                        &runtime));
  return runtime;
}

static void count_up(void *user, void *const *data) {
  (void)user;
  *(float *)data[0] += 1;
}

Test(profile, states_advance_by_replay_count) {
  rondo_runtime *runtime = open_host(NULL, 0);
  struct lone_task task = lone_task(runtime, count_up, NULL, NULL);
  rondo_task_profile profile;
  rondo_profile_totals totals;
  float count = 0;
  REQUIRE_OK(rondo_profile(task.slot, &quick, &profile, 1, &totals));
  REQUIRE_OK(rondo_download(task.exec, task.state, &count, sizeof count));
  cr_assert_eq(totals.replay_count, 2 * (PASSES + 1));
  cr_assert_eq((uint32_t)count, totals.replay_count);
  cr_assert_str_eq(profile.operation, "kernel");
  cr_assert_eq(profile.bytes, 8, "it reads and writes a float");
  lone_task_end(&task);
  REQUIRE_OK(rondo_close(&runtime));
}

struct steps {
  uint32_t count, last;
};

static void count_steps(void *user, uint32_t done, uint32_t passes) {
  struct steps *steps = user;
  cr_assert_eq(passes, PASSES);
  cr_assert_eq(done, ++steps->count);
}

Test(profile, progress_is_told_after_every_pass) {
  rondo_runtime *runtime = open_host(NULL, 0);
  struct lone_task task = lone_task(runtime, count_up, NULL, NULL);
  struct steps steps = {0};
  rondo_profile_options options = {.passes = PASSES, .copy_bytes = COPY_BYTES, .progress = count_steps, .user = &steps};
  rondo_task_profile profile;
  rondo_profile_totals totals;
  REQUIRE_OK(rondo_profile(task.slot, &options, &profile, 1, &totals));
  cr_assert_eq(steps.count, PASSES);
  lone_task_end(&task);
  REQUIRE_OK(rondo_close(&runtime));
}

static atomic_bool may_end = true; /* in the warm replay too */

static void wait_for_leave(void *user, void *const *data) {
  (void)user, (void)data;
  while (!atomic_load(&may_end)) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

Test(profile, of_a_lane_that_is_busy_is_refused_and_of_another_lane_is_not) {
  rondo_runtime *runtime = open_host(NULL, 2);
  struct lone_task busy = lone_task(runtime, wait_for_leave, NULL, NULL),
                   task = lone_task(runtime, count_up, NULL, NULL),
                   apart = lone_task_in(runtime, 1, count_up, NULL, NULL);
  rondo_task_profile profile;
  rondo_profile_totals totals;
  atomic_store(&may_end, false);
  REQUIRE_OK(rondo_replay(busy.slot));
  REQUIRE_ERROR(rondo_profile(busy.slot, &quick, &profile, 1, &totals), RONDO_BUSY, "in flight");
  REQUIRE_ERROR(rondo_profile(task.slot, &quick, &profile, 1, &totals), RONDO_BUSY, "another exec of lane 0");
  REQUIRE_OK(rondo_profile(apart.slot, &quick, &profile, 1, &totals));
  atomic_store(&may_end, true);
  REQUIRE_OK(rondo_wait(busy.slot, RONDO_FOREVER));
  REQUIRE_OK(rondo_profile(task.slot, &quick, &profile, 1, &totals));
  lone_task_end(&busy);
  lone_task_end(&task);
  lone_task_end(&apart);
  REQUIRE_OK(rondo_close(&runtime));
}

Test(profile, wants_the_exec_for_itself_and_gives_it_back) {
  rondo_runtime *runtime = open_host(NULL, 0);
  rondo_graph *graph = NULL;
  rondo_exec *exec = NULL;
  rondo_tensor state;
  rondo_slot slots[3], other;
  rondo_task_profile profile;
  rondo_profile_totals totals;
  REQUIRE_OK(rondo_graph_create(runtime, NULL, &graph));
  REQUIRE_OK(rondo_state(graph, "state", RONDO_F32, 1, (int64_t[]){1}, &state));
  rondo_argument argument = {.tensor = state, .access = RONDO_READ_WRITE};
  REQUIRE_OK(
      rondo_add_kernel(graph, &(rondo_kernel_desc){.host = count_up, .arguments = &argument, .argument_count = 1}));
  REQUIRE_OK(rondo_instantiate(runtime, graph, &(rondo_exec_options){.slots = 3}, &exec));
  for (int i = 0; i < 3; i++) REQUIRE_OK(rondo_acquire(exec, &slots[i]));
  REQUIRE_OK(rondo_release(slots[0]));
  REQUIRE_ERROR(rondo_profile(slots[1], &quick, &profile, 1, &totals), RONDO_BUSY, "another slot");
  REQUIRE_ERROR(rondo_profile(slots[0], &quick, &profile, 1, &totals), RONDO_INVALID_STATE, "was released");
  REQUIRE_OK(rondo_release(slots[2]));
  REQUIRE_OK(rondo_profile(slots[1], &quick, &profile, 1, &totals));
  REQUIRE_OK(rondo_acquire(exec, &slots[0]));
  REQUIRE_OK(rondo_acquire(exec, &slots[2]));
  REQUIRE_ERROR(rondo_acquire(exec, &other), RONDO_BUSY, "3 slots of the exec are all held");
  for (int i = 0; i < 3; i++) REQUIRE_OK(rondo_release(slots[i]));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
}

Test(profile, wrong_arguments_are_clear_errors) {
  rondo_runtime *runtime = open_host(NULL, 0);
  struct lone_task task = lone_task(runtime, count_up, NULL, NULL);
  rondo_task_profile profile;
  rondo_profile_totals totals = {0};
  REQUIRE_ERROR(rondo_profile((rondo_slot){0}, NULL, &profile, 1, &totals), RONDO_INVALID_ARGUMENT, "exec is NULL");
  REQUIRE_ERROR(rondo_profile(task.slot, NULL, NULL, 1, &totals), RONDO_INVALID_ARGUMENT, "tasks are NULL");
  REQUIRE_ERROR(rondo_profile(task.slot, NULL, &profile, 1, NULL), RONDO_INVALID_ARGUMENT, "totals are NULL");
  REQUIRE_ERROR(rondo_profile(task.slot, NULL, &profile, 2, &totals), RONDO_INVALID_ARGUMENT,
                "for 2 tasks, expected 1");
  REQUIRE_ERROR(rondo_profile(task.slot, &(rondo_profile_options){.copy_bytes = 6}, &profile, 1, &totals),
                RONDO_INVALID_ARGUMENT, "multiple of 4");
  REQUIRE_ERROR(rondo_write_profile(&profile, NULL, "/tmp/x"), RONDO_INVALID_ARGUMENT, "totals are NULL");
  REQUIRE_ERROR(rondo_write_trace(&profile, &totals, NULL), RONDO_INVALID_ARGUMENT, "path is NULL");
  lone_task_end(&task);
  REQUIRE_OK(rondo_close(&runtime));
}

Test(profile, a_constant_that_was_never_uploaded_is_an_error_as_in_a_replay) {
  rondo_runtime *runtime = open_host(NULL, 0);
  rondo_graph *graph = NULL;
  rondo_tensor weights, out;
  rondo_exec *exec = NULL;
  rondo_slot slot;
  rondo_task_profile tasks[2];
  rondo_profile_totals totals;
  float data[4] = {0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_constant(graph, "weights", RONDO_F32, 1, (int64_t[]){4}, &weights));
  REQUIRE_OK(rondo_output(graph, "out", RONDO_F32, 1, (int64_t[]){4}, &out));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = weights, .dst = out}));
  REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
  REQUIRE_OK(rondo_acquire(exec, &slot));
  rondo_exec_usage usage;
  REQUIRE_OK(rondo_exec_info(exec, &usage));
  REQUIRE_ERROR(rondo_profile(slot, &quick, tasks, usage.node_count, &totals), RONDO_INVALID_STATE,
                "rondo_profile: constant 'weights' has never been uploaded");
  REQUIRE_OK(rondo_upload(exec, weights, data, sizeof data));
  REQUIRE_OK(rondo_profile(slot, &quick, tasks, usage.node_count, &totals));
  REQUIRE_OK(rondo_release(slot));
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_close(&runtime));
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

struct meter {
  uint64_t calls, fail_at, most_bytes;
  int64_t live;
};

static void *meter_allocate(void *user, size_t bytes, size_t alignment) {
  struct meter *meter = user;
  if (++meter->calls == meter->fail_at || bytes > meter->most_bytes) return NULL;
  meter->live++;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void meter_release(void *user, void *memory, size_t bytes) {
  (void)bytes;
  ((struct meter *)user)->live--;
  free(memory);
}

Test(profile, takes_memory_and_gives_it_back_whatever_allocation_fails) {
  struct meter meter = {.most_bytes = UINT64_MAX};
  rondo_allocator allocator = {&meter, meter_allocate, meter_release};
  rondo_runtime *runtime = open_host(&allocator, 0);
  struct lone_task task = lone_task(runtime, count_up, NULL, NULL);
  rondo_task_profile profile;
  rondo_profile_totals totals;
  int64_t live = meter.live;
  for (uint64_t n = 1, failures = 0;; n++) {
    meter.calls = 0, meter.fail_at = n;
    rondo_status status = rondo_profile(task.slot, &quick, &profile, 1, &totals);
    cr_assert_eq(meter.live, live);
    cr_assert_eq(status == RONDO_OK ? totals.copy_bytes == 0 : 0, status == RONDO_OK && meter.calls >= n,
                 "without its memory the large copy is left out");
    if (status != RONDO_OK) {
      require_error(status, RONDO_OUT_OF_MEMORY, "rondo_profile: the allocator has no", "rondo_profile");
      failures++;
    }
    REQUIRE_OK(rondo_replay(task.slot));
    REQUIRE_OK(rondo_wait(task.slot, RONDO_FOREVER));
    if (meter.calls >= n) continue;
    cr_assert_eq(failures, 3, "of the device's, the pinned and the host's memory");
    break;
  }
  lone_task_end(&task);
  REQUIRE_OK(rondo_close(&runtime));
  cr_assert_eq(meter.live, 0);
}

/* ---- Reports ----------------------------------------------------------------------------------------------------- */

static char *written(rondo_status (*report)(const rondo_task_profile *, const rondo_profile_totals *, const char *),
                     const rondo_task_profile *tasks, const rondo_profile_totals *totals) {
  struct report_file file = report_file_open();
  REQUIRE_OK(report(tasks, totals, file.path));
  return report_file_read(file);
}

static const rondo_profile_totals some_totals = {.device_name = "a \"device\"",
                                                 .task_count = 3,
                                                 .replay_count = 8,
                                                 .replay_ns = 9500,
                                                 .launch_ns = 5000,
                                                 .tasks_ns = 7500,
                                                 .path_ns = 6250,
                                                 .bytes_per_second = UINT64_C(2000000000000),
                                                 .copy_bytes = 1 << 20};
static const rondo_task_profile some_tasks[] = {
    {"copy in \xff<\\>\n", "copy", 1250, 0, 1 << 20, 1 << 20},
    {"", "gemv", 6250, 0, UINT64_C(10) << 20, 0},
    {"nothing to see", "kernel", 0, 1250, 0, 0},
};

Test(profile, table_ranks_tasks_by_time) {
  char *text = written(rondo_write_profile, some_tasks, &some_totals);
  cr_assert_str_eq(
      text,
      "a \"device\": a copy of 1 MiB moves 2000.0 GB/s, read and written\n"
      "a whole replay takes 9.500 us, of which a launch of next to nothing takes 5.000 us\n"
      "3 tasks and copies take 7.500 us one after the other, 6.250 us along the longest path of edges\n\n"
      "tasks     time (us)       %  operation\n"
      "    1         6.250    83.3  gemv\n"
      "    1         1.250    16.7  copy\n"
      "    1         0.000     0.0  kernel\n\n"
      " rank     time (us)       %      memory         bus      GB/s  % copy's  operation           task\n"
      "    1         6.250    83.3      10 MiB           -    1677.7      83.9  gemv                \n"
      "    2         1.250    16.7       1 MiB       1 MiB    1677.7      41.9  copy                copy in "
      "\xef\xbf\xbd<\\>\xef\xbf\xbd\n"
      "    3         0.000     0.0         0 B           -         -         -  kernel              nothing to see\n",
      "%s", text);
  free(text);
}

Test(profile, table_says_why_there_is_no_bandwidth) {
  rondo_profile_totals totals = some_totals;
  totals.bytes_per_second = 0;
  char *text = written(rondo_write_profile, some_tasks, &totals);
  cr_assert_not_null(strstr(text, "a copy of 1 MiB took no longer than the launch\n"), "%s", text);
  free(text);
  totals.copy_bytes = 0;
  text = written(rondo_write_profile, some_tasks, &totals);
  cr_assert_not_null(strstr(text, "there was no memory for a large copy\n"), "%s", text);
  free(text);
}

Test(profile, trace_is_json_with_every_task_twice) {
  char *text = written(rondo_write_trace, some_tasks, &some_totals), *part;
  const char *fault = json_fault(text);
  cr_assert_null(fault, "not JSON from here on: %.100s", fault);
  static const char *const parts[] = {
      "\"tid\":2,\"name\":\"copy in \xef\xbf\xbd<\\\\>\xef\xbf\xbd\",\"cat\":\"copy\",\"ts\":0.000,\"dur\":1.250,",
      "\"tid\":2,\"name\":\" \",\"cat\":\"gemv\",\"ts\":1.250,\"dur\":6.250,",
      "\"tid\":2,\"name\":\"nothing to see\",\"cat\":\"kernel\",\"ts\":7.500,\"dur\":0.000,",
      "\"tid\":3,\"name\":\"copy in \xef\xbf\xbd<\\\\>\xef\xbf\xbd\",\"cat\":\"copy\",\"ts\":0.000,\"dur\":1.250,",
      "\"tid\":4,\"name\":\" \",\"cat\":\"gemv\",\"ts\":0.000,\"dur\":6.250,",
      "\"tid\":3,\"name\":\"nothing to see\",\"cat\":\"kernel\",\"ts\":1.250,\"dur\":0.000,",
      "\"tid\":1,\"name\":\"replay\",\"cat\":\"replay\",\"ts\":0.000,\"dur\":9.500,",
      "\"args\":{\"operation\":\"gemv\",\"bytes\":10485760,\"bus_bytes\":0,\"GB/s\":1677.721,",
  };
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    cr_assert_not_null(part = strstr(text, parts[i]), "%s is not in %s", parts[i], text);
  free(text);
}

Test(profile, reports_of_a_measured_exec_are_well_formed) {
  struct copies c = copies(RONDO_BACKEND_HOST);
  rondo_task_profile tasks[ROOM];
  rondo_profile_totals totals;
  REQUIRE_OK(rondo_profile(c.trial.slot, &quick, tasks, 5, &totals));
  char *text = written(rondo_write_trace, tasks, &totals);
  cr_assert_null(json_fault(text), "%s", text);
  free(text);
  text = written(rondo_write_profile, tasks, &totals);
  for (int i = 0; i < 5; i++) cr_assert_not_null(strstr(text, tasks[i].name), "%s", text);
  free(text);
  REQUIRE_ERROR(rondo_write_profile(tasks, &totals, "/nonexistent/x"), RONDO_IO_ERROR, "cannot be written");
  REQUIRE_ERROR(rondo_write_trace(tasks, &totals, "/dev/full"), RONDO_IO_ERROR, "not written whole");
  trial_end(&c.trial);
}
