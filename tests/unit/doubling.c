/* doubling.c - see doubling.h. */
#include "doubling.h"

#include <string.h>

static void scale(void *user, void *const *data) {
  (void)user;
  const float *x = data[0], *state = data[1];
  float *y = data[2];
  for (int i = 0; i < COUNT; i++) y[i] = 2 * x[i] + state[0];
}

static void count_up(void *user, void *const *data) {
  (void)user;
  float step;
  memcpy(&step, data[1], sizeof step);
  ((float *)data[0])[0] += step;
}

struct doubling doubling_describe(rondo_runtime *runtime) {
  struct doubling d = {0};
  int64_t shape[] = {COUNT}, one[] = {1};
  REQUIRE_OK(rondo_graph_create(runtime, &(rondo_graph_limits){.tensors = 16, .tasks = 16}, &d.graph));
  REQUIRE_OK(rondo_input(d.graph, "x", RONDO_F32, 1, shape, &d.x));
  REQUIRE_OK(rondo_output(d.graph, "y", RONDO_F32, 1, shape, &d.y));
  REQUIRE_OK(rondo_state(d.graph, "count", RONDO_F32, 1, one, &d.state));
  rondo_argument first[] = {{.tensor = d.x, .access = RONDO_READ},
                            {.tensor = d.state, .access = RONDO_READ},
                            {.tensor = d.y, .access = RONDO_WRITE}};
  REQUIRE_OK(rondo_add_kernel(
      d.graph, &(rondo_kernel_desc){.name = "scale", .host = scale, .arguments = first, .argument_count = 3}));
  float step = 1;
  rondo_argument second[] = {{.tensor = d.state, .access = RONDO_READ_WRITE}, {.value = &step, .bytes = sizeof step}};
  REQUIRE_OK(rondo_add_kernel(
      d.graph, &(rondo_kernel_desc){.name = "count", .host = count_up, .arguments = second, .argument_count = 2}));
  return d;
}

rondo_runtime *open_host_pools(uint64_t device_bytes, uint64_t pinned_bytes) {
  rondo_runtime *runtime = NULL;
  rondo_options options = {
      .backend = RONDO_BACKEND_HOST, .device_bytes = device_bytes, .pinned_bytes = pinned_bytes, .host_threads = 2};
  REQUIRE_OK(rondo_open(&options, &runtime));
  return runtime;
}
