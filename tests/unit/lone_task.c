/* lone_task.c - see lone_task.h. */
#include "lone_task.h"

struct lone_task lone_task_in(rondo_runtime *runtime, uint32_t lane, rondo_host_function function,
                              rondo_host_function next, void *user) {
  struct lone_task task = {0};
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 4, .tasks = 4}, &task.graph));
  REQUIRE_OK(rondo_state(task.graph, "state", RONDO_F32, 1, (int64_t[]){1}, &task.state));
  rondo_argument argument = {.tensor = task.state, .access = RONDO_READ_WRITE};
  rondo_kernel_desc desc = {.host = function, .user = user, .arguments = &argument, .argument_count = 1};
  REQUIRE_OK(rondo_add_kernel(task.graph, &desc));
  desc.host = next;
  if (next) REQUIRE_OK(rondo_add_kernel(task.graph, &desc));
  REQUIRE_OK(rondo_instantiate(runtime, task.graph, &(rondo_exec_options){.lane = lane}, &task.exec));
  REQUIRE_OK(rondo_acquire(task.exec, &task.slot));
  return task;
}

struct lone_task lone_task(rondo_runtime *runtime, rondo_host_function function, rondo_host_function next, void *user) {
  return lone_task_in(runtime, 0, function, next, user);
}

void lone_task_end(struct lone_task *task) {
  REQUIRE_OK(rondo_close_exec(&task->exec));
  REQUIRE_OK(rondo_graph_destroy(&task->graph));
}

void nothing(void *user, void *const *data) {
  (void)user;
  (void)data;
}
