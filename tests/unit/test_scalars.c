/* test_scalars.c - numbers that change from replay to replay: small inputs that are written in the slot and read
 * through a pointer, without a change of the graph, and moved together by one node. Arguments by value stay. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../runtime/exec.h"
#include "../support.h"

enum { COUNT = 32, SLOTS = 2, TASKS_MOST = 3 };

static void mix(const int32_t *position, const float *scale, const uint32_t *seed, float fixed, float *out) {
  uint64_t bits = (uint64_t)seed[1] << 32 | seed[0];
  for (int i = 0; i < COUNT; i++) out[i] = *scale * (float)(*position + i) + fixed + (float)(bits >> (i % 60) & 15);
}

static void mix_task(void *user, void *const *data) {
  (void)user;
  mix(data[0], data[1], data[2], *(const float *)data[3], data[4]);
}

struct subject {
  rondo_graph *graph;
  rondo_tensor position, scale, seed, out[TASKS_MOST];
};

static struct subject describe(int task_count) {
  struct subject s = {0};
  float fixed = 0.5f;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &s.graph));
  REQUIRE_OK(rondo_input(s.graph, "position", RONDO_I32, 1, (int64_t[]){1}, &s.position));
  REQUIRE_OK(rondo_input(s.graph, "scale", RONDO_F32, 1, (int64_t[]){1}, &s.scale));
  REQUIRE_OK(rondo_input(s.graph, "seed", RONDO_I32, 1, (int64_t[]){2}, &s.seed));
  for (int t = 0; t < task_count; t++) {
    REQUIRE_OK(rondo_output(s.graph, "out", RONDO_F32, 1, (int64_t[]){COUNT}, &s.out[t]));
    rondo_argument arguments[] = {{.tensor = s.position, .access = RONDO_READ},
                                  {.tensor = s.scale, .access = RONDO_READ},
                                  {.tensor = s.seed, .access = RONDO_READ},
                                  {.value = &fixed, .bytes = sizeof fixed},
                                  {.tensor = s.out[t], .access = RONDO_WRITE}};
    REQUIRE_OK(
        rondo_add_kernel(s.graph, &(rondo_kernel_desc){.host = mix_task, .arguments = arguments, .argument_count = 5}));
  }
  fixed = 1e9f; /* seen by nobody: it was copied */
  return s;
}

static void replay_and_check(const struct subject *s, rondo_slot slot, int task_count, int replay) {
  float expected[COUNT];
  *(int32_t *)rondo_data(slot, s->position) = 3 * replay;
  *(float *)rondo_data(slot, s->scale) = 0.25f * (float)replay;
  uint32_t *seed = rondo_data(slot, s->seed);
  seed[0] = 0x9e3779b9u * (uint32_t)replay;
  seed[1] = 0x7f4a7c15u + (uint32_t)replay;
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  mix(&(int32_t){3 * replay}, &(float){0.25f * (float)replay}, seed, 0.5f, expected);
  for (int t = 0; t < task_count; t++)
    cr_assert_arr_eq(rondo_data(slot, s->out[t]), expected, sizeof expected, "replay %d", replay);
}

static void run(int task_count) {
  struct subject s = describe(task_count);
  rondo_runtime *runtime = NULL;
  rondo_exec *exec = NULL;
  rondo_slot slots[SLOTS];
  rondo_options options = {
      .backend = RONDO_BACKEND_HOST, .device_bytes = 1 << 16, .pinned_bytes = 1 << 16, .host_threads = 1};
  REQUIRE_OK(rondo_open(&options, &runtime));
  REQUIRE_OK(rondo_instantiate(runtime, s.graph, &(rondo_exec_options){.slots = SLOTS}, &exec));
  cr_assert_eq(exec->program.node_count, (uint32_t)task_count + 2, "one node moves the inputs, and one the outputs");
  for (int i = 0; i < SLOTS; i++) REQUIRE_OK(rondo_acquire(exec, &slots[i]));
  for (int replay = 0; replay < 50; replay++) {
    replay_and_check(&s, slots[replay % SLOTS], task_count, replay);
  }
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&s.graph));
  REQUIRE_OK(rondo_close(&runtime));
}

Test(scalars, change_with_each_replay_and_one_node_moves_them_all) {
  for (int task_count = 1; task_count <= TASKS_MOST; task_count++) run(task_count);
}
