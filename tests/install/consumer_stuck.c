/* consumer_stuck.c - a program that gives up a task which does not return, closes and unloads the library. Then the
 * task returns, into code of the library, which ends that thread. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* gettid */
#endif
#include <dlfcn.h>
#include <rondo.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <threads.h>
#include <unistd.h>

enum { LIMIT_MS = 60000 };

static void *library;

/* Calls of the library's functions by their names. */
#define CALL(function, ...)                                                                                            \
  do {                                                                                                                 \
    __typeof__(function) *called;                                                                                      \
    *(void **)&called = dlsym(library, #function);                                                                     \
    if (!called) return fprintf(stderr, "%s\n", dlerror()), 1;                                                         \
    rondo_status status = called(__VA_ARGS__);                                                                         \
    if (status != expected) return fprintf(stderr, #function ": status %d\n", (int)status), 1;                         \
  } while (0)

static atomic_bool has_begun, may_return;
static char of_thread[64]; /* the folder of the thread that the task runs in, as long as there is one */

static void sleep_ms(long ms) { thrd_sleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

static void task(void *user, void *const *data) {
  (void)user;
  (void)data;
  snprintf(of_thread, sizeof of_thread, "/proc/self/task/%d", (int)gettid());
  atomic_store(&has_begun, true);
  while (!atomic_load(&may_return)) sleep_ms(1);
}

int main(int count, char **arguments) {
  rondo_status expected = RONDO_OK;
  rondo_graph *graph;
  rondo_tensor out;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_slot slot;
  library = count == 2 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!library) return fprintf(stderr, "usage: consumer_stuck LIBRARY\n"), 1;
  CALL(rondo_graph_create, NULL, NULL, &graph);
  CALL(rondo_output, graph, "out", RONDO_I32, 1, (int64_t[]){1}, &out);
  rondo_argument argument = {.tensor = out, .access = RONDO_WRITE};
  CALL(rondo_add_kernel, graph, &(rondo_kernel_desc){.host = task, .arguments = &argument, .argument_count = 1});
  CALL(rondo_open_abi, RONDO_ABI_VERSION,
       &(rondo_options){.backend = RONDO_BACKEND_HOST, .device_bytes = 4096, .pinned_bytes = 4096, .host_threads = 2},
       &runtime);
  CALL(rondo_instantiate, runtime, graph, &(rondo_exec_options){.without_warm_up = 1}, &exec);
  CALL(rondo_graph_destroy, &graph);
  CALL(rondo_acquire, exec, &slot);
  CALL(rondo_replay, slot);
  while (!atomic_load(&has_begun)) sleep_ms(1);
  expected = RONDO_DEVICE_LOST;
  CALL(rondo_close_exec_within, &exec, 1000000);
  expected = RONDO_OK;
  CALL(rondo_close, &runtime);
  if (dlclose(library) != 0) return fprintf(stderr, "%s\n", dlerror()), 1;
  if (access(of_thread, F_OK) != 0) return perror(of_thread), 1;
  atomic_store(&may_return, true);
  for (int i = 0; access(of_thread, F_OK) == 0; i++) {
    if (i == LIMIT_MS) return fprintf(stderr, "%s is still there\n", of_thread), 1;
    sleep_ms(1);
  }
  return 0;
}
