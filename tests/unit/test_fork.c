/* test_fork.c - a child of fork, on the host backend: every call tells it at once that the runtime is not its own; it
 * can open its own, and its parent does not notice. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support.h"

enum { COUNT = 1000 };

struct subject {
  rondo_runtime *runtime;
  rondo_graph *graph; /* of the runtime */
  rondo_tensor in, out, state;
  rondo_exec *exec;
  rondo_slot slot;
};

static rondo_status make(struct subject *s, rondo_runtime *graph_runtime) {
  const int64_t shape[] = {COUNT};
  rondo_status status = rondo_graph_create(graph_runtime, NULL, &s->graph);
  if (status == RONDO_OK) status = rondo_input(s->graph, "in", RONDO_I32, 1, shape, &s->in);
  if (status == RONDO_OK) status = rondo_output(s->graph, "out", RONDO_I32, 1, shape, &s->out);
  if (status == RONDO_OK) status = rondo_state(s->graph, "state", RONDO_I32, 1, shape, &s->state);
  if (status == RONDO_OK) status = rondo_add_copy(s->graph, &(rondo_copy_desc){.src = s->in, .dst = s->out});
  if (status == RONDO_OK) status = rondo_instantiate(s->runtime, s->graph, NULL, &s->exec);
  return status == RONDO_OK ? rondo_acquire(s->exec, &s->slot) : status;
}

static rondo_status open_host(rondo_runtime **runtime) {
  return rondo_open(
      &(rondo_options){
          .backend = RONDO_BACKEND_HOST, .device_bytes = 1 << 20, .pinned_bytes = 1 << 20, .host_threads = 2},
      runtime);
}

static rondo_status replay(const struct subject *s, int32_t value) {
  for (int i = 0; i < COUNT; i++) ((int32_t *)rondo_data(s->slot, s->in))[i] = value + i;
  rondo_status status = rondo_replay(s->slot);
  if (status == RONDO_OK) status = rondo_wait(s->slot, RONDO_FOREVER);
  for (int i = 0; i < COUNT && status == RONDO_OK; i++)
    if (((const int32_t *)rondo_data(s->slot, s->out))[i] != value + i) status = RONDO_INTERNAL;
  return status;
}

/* In a child: no assertions, which are the parent's. */
static int line_of_failure;
static void expect(bool good, int line) {
  if (!good && !line_of_failure) line_of_failure = line;
}
#define EXPECT(condition) expect((condition), __LINE__)
#define EXPECT_REFUSED(call)                                                                                           \
  expect((call) == RONDO_INVALID_STATE && strstr(rondo_error_text(), "was opened before fork: open one in the child"), \
         __LINE__)

static void use_what_is_not_its_own(struct subject *s) {
  int32_t data[COUNT] = {0};
  rondo_tensor tensor;
  rondo_slot slot;
  rondo_graph *graph = NULL;
  rondo_exec *exec = NULL;
  EXPECT_REFUSED(rondo_replay(s->slot));
  EXPECT_REFUSED(rondo_wait(s->slot, RONDO_FOREVER));
  EXPECT_REFUSED(rondo_poll(s->slot));
  EXPECT_REFUSED(rondo_rebind(s->slot, s->in, NULL));
  rondo_profile_totals totals;
  EXPECT_REFUSED(rondo_profile(s->slot, NULL, NULL, 0, &totals));
  EXPECT_REFUSED(rondo_release(s->slot));
  EXPECT(rondo_data(s->slot, s->in) == NULL);
  EXPECT_REFUSED(rondo_acquire(s->exec, &slot));
  EXPECT_REFUSED(rondo_upload(s->exec, s->state, data, sizeof data));
  EXPECT_REFUSED(rondo_download(s->exec, s->state, data, sizeof data));
  EXPECT_REFUSED(rondo_runtime_info(s->runtime, &(rondo_info){0}));
  EXPECT_REFUSED(rondo_graph_create(s->runtime, NULL, &graph));
  EXPECT_REFUSED(rondo_instantiate(s->runtime, s->graph, NULL, &exec));
  EXPECT_REFUSED(rondo_plan_graph(s->graph, &(rondo_plan){0}));
  EXPECT_REFUSED(rondo_input(s->graph, "in", RONDO_I32, 1, (int64_t[]){1}, &tensor));
  EXPECT_REFUSED(rondo_add_copy(s->graph, &(rondo_copy_desc){.src = s->in, .dst = s->out}));
  rondo_exec *same_exec = s->exec;
  rondo_graph *same_graph = s->graph;
  rondo_runtime *same_runtime = s->runtime;
  EXPECT_REFUSED(rondo_close_exec(&s->exec));
  EXPECT_REFUSED(rondo_graph_destroy(&s->graph));
  EXPECT_REFUSED(rondo_close(&s->runtime));
  EXPECT(s->exec == same_exec && s->graph == same_graph && s->runtime == same_runtime);
}

static void open_its_own(rondo_graph *before) {
  struct subject own = {0};
  EXPECT(open_host(&own.runtime) == RONDO_OK);
  EXPECT(make(&own, own.runtime) == RONDO_OK);
  EXPECT(replay(&own, 7) == RONDO_OK);
  rondo_exec *exec = NULL;
  EXPECT(rondo_instantiate(own.runtime, before, NULL, &exec) == RONDO_OK); /* a graph without a runtime */
  EXPECT(rondo_close_exec(&exec) == RONDO_OK);
  EXPECT(rondo_close_exec(&own.exec) == RONDO_OK);
  EXPECT(rondo_graph_destroy(&own.graph) == RONDO_OK);
  EXPECT(rondo_close(&own.runtime) == RONDO_OK);
}

Test(fork, a_child_is_refused_at_once_and_can_open_its_own_runtime, .timeout = 60) {
  struct subject s = {0}, loose = {0};
  REQUIRE_OK(open_host(&s.runtime));
  REQUIRE_OK(make(&s, s.runtime));
  loose.runtime = s.runtime;
  REQUIRE_OK(make(&loose, NULL));
  REQUIRE_OK(replay(&s, 1));
  REQUIRE_OK(rondo_replay(s.slot)); /* may be in flight while the process forks */
  pid_t child = fork();
  cr_assert_geq(child, 0);
  if (child == 0) {
    alarm(20);
    use_what_is_not_its_own(&s);
    open_its_own(loose.graph);
    if (line_of_failure) fprintf(stderr, "test_fork.c:%d: in the child: %s\n", line_of_failure, rondo_error_text());
    _exit(line_of_failure != 0);
  }
  int status = -1;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %d", status);
  REQUIRE_OK(rondo_wait(s.slot, RONDO_FOREVER));
  REQUIRE_OK(replay(&s, 2));
  REQUIRE_OK(rondo_close_exec(&loose.exec));
  REQUIRE_OK(rondo_graph_destroy(&loose.graph));
  REQUIRE_OK(rondo_close_exec(&s.exec));
  REQUIRE_OK(rondo_graph_destroy(&s.graph));
  REQUIRE_OK(rondo_close(&s.runtime));
}
