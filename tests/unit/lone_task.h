/* lone_task.h - the smallest exec: one host function of the test's own, on one float of state. */
#pragma once

#include "../support.h"

struct lone_task {
  rondo_graph *graph;
  rondo_exec *exec;
  rondo_slot slot;
  rondo_tensor state;
};

/* A graph of `function`, and after it `next` unless NULL; in lane 0 or in one that is named. */
struct lone_task lone_task(rondo_runtime *runtime, rondo_host_function function, rondo_host_function next, void *user);
struct lone_task lone_task_in(rondo_runtime *runtime, uint32_t lane, rondo_host_function function,
                              rondo_host_function next, void *user);
void lone_task_end(struct lone_task *task);

/* A function that does nothing. */
void nothing(void *user, void *const *data);
