/* test_host.c - what a host function and a program around the host backend may rely on: alignment, signals, cores, the
 * allocator's contract, which calls a task may make, and what is left of a device that was lost. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../runtime/rondo.h"
#include "../support.h"

TestSuite(host, .timeout = 60);

static rondo_runtime *open_team(uint32_t threads, rondo_wait_mode wait_mode) {
  rondo_runtime *runtime = NULL;
  rondo_options options = {.backend = RONDO_BACKEND_HOST,
                           .device_bytes = 1 << 20,
                           .pinned_bytes = 1 << 20,
                           .host_threads = threads,
                           .wait_mode = wait_mode};
  REQUIRE_OK(rondo_open(&options, &runtime));
  return runtime;
}

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

struct line {
  _Alignas(64) float values[16];
};

typedef float vector __attribute__((vector_size(16)));

/* y := the sum of a vector, a cache line and a vector. The compiler loads each with instructions that fault on an
 * address of less alignment than the type's. */
static void add_values(void *user, void *const *data) {
  (void)user;
  const vector *first = data[1], *last = data[3];
  const struct line *line = data[2];
  cr_assert_eq((uintptr_t)first % 64, 0);
  cr_assert_eq((uintptr_t)line % 64, 0);
  cr_assert_eq((uintptr_t)last % 64, 0);
  vector sum = *first + *last;
  for (int i = 0; i < 4; i++) sum += ((const vector *)line->values)[i];
  memcpy(data[0], &sum, sizeof sum);
}

Test(host, values_are_aligned_to_64_bytes_in_every_task) {
  enum { TASKS = 5 };
  rondo_runtime *runtime = open_team(1, RONDO_WAIT_SPIN_YIELD);
  rondo_runtime *owners[] = {NULL, runtime}; /* of the graph's memory */
  for (int owner = 0; owner < 2; owner++) {
    rondo_graph *graph = NULL;
    rondo_exec *exec = NULL;
    rondo_slot slot;
    rondo_tensor y[TASKS];
    REQUIRE_OK(rondo_graph_create(owners[owner], &(rondo_graph_limits){.tensors = 16, .tasks = 16}, &graph));
    for (int t = 0; t < TASKS; t++) {
      vector first = {(float)t, 1, 2, 3}, last = {10, 20, 30, 40};
      struct line line;
      for (int i = 0; i < 16; i++) line.values[i] = (float)(100 * i);
      REQUIRE_OK(rondo_output(graph, "y", RONDO_F32, 1, (int64_t[]){4}, &y[t]));
      rondo_argument arguments[] = {{.tensor = y[t], .access = RONDO_WRITE},
                                    {.value = &first, .bytes = sizeof first},
                                    {.value = &line, .bytes = sizeof line},
                                    {.value = &last, .bytes = sizeof last}};
      REQUIRE_OK(rondo_add_kernel(
          graph, &(rondo_kernel_desc){.host = add_values, .arguments = arguments, .argument_count = 4}));
    }
    REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
    REQUIRE_OK(rondo_acquire(exec, &slot));
    REQUIRE_OK(rondo_replay(slot));
    REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
    for (int t = 0; t < TASKS; t++) {
      const float *sum = rondo_data(slot, y[t]);
      cr_assert_eq(sum[0], (float)(2400 + t + 10));
      cr_assert_eq(sum[3], (float)(3600 + 3 + 40));
    }
    REQUIRE_OK(rondo_close_exec(&exec));
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
  REQUIRE_OK(rondo_close(&runtime));
}
