/* test_arena.c - execs of a lane share one arena of temporaries: a set of buckets takes little more than its largest,
 * in whatever order its execs come and go, and none spoils another's results. Lanes share none. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#include "../../runtime/exec.h"
#include "../support.h"

TestSuite(arena, .timeout = 120);

enum { BUCKETS = 5, ORDERS = 120, WIDTH = 1024, ROW_BYTES = WIDTH * 4 };

/* Decode graphs for batches of 1, 2, 4, 8, 16: y = x through two temporaries, beside the weights through another. */
struct set {
  rondo_graph *store, *graphs[BUCKETS];
  rondo_tensor weights, x[BUCKETS], y[BUCKETS], weights_out[BUCKETS];
};

static int64_t batch_of(int bucket) { return INT64_C(1) << bucket; }

static void add_copy(rondo_graph *graph, rondo_tensor src, rondo_tensor dst) {
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = src, .dst = dst}));
}

static rondo_graph *describe_bucket(struct set *set, int bucket, rondo_tensor weights_lent) {
  int64_t shape[] = {batch_of(bucket), WIDTH}, weights_shape[] = {WIDTH};
  rondo_graph *graph = NULL;
  rondo_tensor weights, a, b, c;
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 16, .tasks = 16}, &graph));
  if (weights_lent.graph)
    REQUIRE_OK(rondo_borrow(graph, weights_lent, &weights));
  else
    REQUIRE_OK(rondo_constant(graph, "weights", RONDO_F32, 1, weights_shape, &weights));
  REQUIRE_OK(rondo_input(graph, "x", RONDO_F32, 2, shape, &set->x[bucket]));
  REQUIRE_OK(rondo_output(graph, "y", RONDO_F32, 2, shape, &set->y[bucket]));
  REQUIRE_OK(rondo_output(graph, "weights out", RONDO_F32, 1, weights_shape, &set->weights_out[bucket]));
  REQUIRE_OK(rondo_temporary(graph, "a", RONDO_F32, 2, shape, &a));
  REQUIRE_OK(rondo_temporary(graph, "b", RONDO_F32, 2, shape, &b));
  REQUIRE_OK(rondo_temporary(graph, "c", RONDO_F32, 1, weights_shape, &c));
  add_copy(graph, set->x[bucket], a);
  add_copy(graph, weights, c);
  add_copy(graph, a, b);
  add_copy(graph, c, set->weights_out[bucket]);
  add_copy(graph, b, set->y[bucket]);
  return graph;
}

static struct set describe_set(void) {
  struct set set = {0};
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 4, .tasks = 4}, &set.store));
  REQUIRE_OK(rondo_constant(set.store, "weights", RONDO_F32, 1, (int64_t[]){WIDTH}, &set.weights));
  for (int i = 0; i < BUCKETS; i++) set.graphs[i] = describe_bucket(&set, i, set.weights);
  return set;
}

static void forget(struct set *set) {
  for (int i = 0; i < BUCKETS; i++) REQUIRE_OK(rondo_graph_destroy(&set->graphs[i]));
  REQUIRE_OK(rondo_graph_destroy(&set->store));
}

static rondo_plan plan_set(const struct set *set) {
  rondo_graph *all[BUCKETS + 1] = {set->store};
  rondo_plan plan;
  memcpy(all + 1, set->graphs, sizeof set->graphs);
  REQUIRE_OK(rondo_plan_graphs(all, BUCKETS + 1, &plan));
  return plan;
}

static rondo_runtime *open_planned(rondo_backend backend, const rondo_plan *plan, const rondo_lane *lanes,
                                   uint32_t lane_count, uint64_t device_bytes) {
  rondo_runtime *runtime = NULL;
  rondo_options options = {.backend = backend,
                           .device_bytes = device_bytes,
                           .pinned_bytes = (lane_count ? lane_count : 1) * plan->pinned_bytes_per_slot,
                           .host_bytes = (lane_count ? lane_count : 1) * plan->host_bytes,
                           .host_threads = 2,
                           .lanes = lanes,
                           .lane_count = lane_count};
  REQUIRE_OK(rondo_open(&options, &runtime));
  return runtime;
}

static uint64_t used_bytes(rondo_runtime *runtime) {
  rondo_info info;
  REQUIRE_OK(rondo_runtime_info(runtime, &info));
  return info.device.used_bytes;
}

static uint64_t arena_bytes(rondo_runtime *runtime, uint32_t lane) {
  rondo_lane_grant grant;
  REQUIRE_OK(rondo_lane_info(runtime, lane, &grant));
  return grant.arena_bytes;
}

/* The n-th of all orders of the buckets. */
static void order_of(int n, int order[BUCKETS]) {
  int left[BUCKETS];
  for (int i = 0; i < BUCKETS; i++) left[i] = i;
  for (int i = 0, count = BUCKETS; i < BUCKETS; i++, n /= count, count--) {
    int pick = n % count;
    order[i] = left[pick];
    memmove(&left[pick], &left[pick + 1], (size_t)(count - 1 - pick) * sizeof(int));
  }
}

static void set_weights(const struct set *set, rondo_exec *store) {
  float weights[WIDTH];
  for (int i = 0; i < WIDTH; i++) weights[i] = (float)(3 * i + 1);
  REQUIRE_OK(rondo_upload(store, set->weights, weights, sizeof weights));
}

/* Another exec's temporaries, or worse. */
static void poison(const rondo_exec *exec) {
  if (exec->runtime->ops->backend == RONDO_BACKEND_HOST) memset(exec->memory.arena, 0xff, exec->memory.arena_bytes);
}

static void run_bucket(const struct set *set, rondo_exec *exec, int bucket, float first) {
  rondo_slot slot;
  int64_t count = batch_of(bucket) * WIDTH;
  poison(exec);
  REQUIRE_OK(rondo_acquire(exec, &slot));
  float *x = rondo_data(slot, set->x[bucket]);
  for (int64_t i = 0; i < count; i++) x[i] = first + (float)i;
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  cr_assert_arr_eq(rondo_data(slot, set->y[bucket]), x, (size_t)count * sizeof *x, "bucket %d", bucket);
  const float *weights = rondo_data(slot, set->weights_out[bucket]);
  for (int i = 0; i < WIDTH; i++) cr_assert_eq(weights[i], (float)(3 * i + 1));
  REQUIRE_OK(rondo_release(slot));
}

static uint64_t largest_arena(rondo_exec *const execs[BUCKETS]) {
  uint64_t bytes = 0;
  for (int i = 0; i < BUCKETS; i++)
    if (execs[i] && execs[i]->memory.arena_bytes > bytes) bytes = execs[i]->memory.arena_bytes;
  return bytes;
}

static void a_set_of_buckets_takes_at_most_a_twentieth_more_than_the_largest(rondo_backend backend) {
  struct set set = describe_set(), alone = {0};
  rondo_plan plan = plan_set(&set), largest;
  alone.graphs[0] = describe_bucket(&alone, BUCKETS - 1, (rondo_tensor){0});
  REQUIRE_OK(rondo_plan_graph(alone.graphs[0], &largest));
  REQUIRE_OK(rondo_graph_destroy(&alone.graphs[0]));
  cr_assert_leq(20 * plan.device_bytes, 21 * largest.device_bytes, "%d KB, and alone %d KB",
                (int)(plan.device_bytes / 1024), (int)(largest.device_bytes / 1024));
  rondo_runtime *runtime = open_planned(backend, &plan, NULL, 0, plan.device_bytes);
  rondo_exec *store = NULL, *execs[BUCKETS] = {NULL};
  const int step = ORDERS / (int)rounds_here(ORDERS);
  for (int n = 0; n < ORDERS; n += step) {
    int opens[BUCKETS], closes[BUCKETS];
    order_of(n, opens);
    order_of(n * 47 % ORDERS, closes);
    REQUIRE_OK(rondo_instantiate(runtime, set.store, NULL, &store));
    uint64_t constant_bytes = used_bytes(runtime);
    set_weights(&set, store);
    for (int i = 0; i < BUCKETS; i++) {
      REQUIRE_OK(rondo_instantiate(runtime, set.graphs[opens[i]], NULL, &execs[opens[i]]));
      cr_assert_eq(arena_bytes(runtime, 0), largest_arena(execs));
      run_bucket(&set, execs[opens[0]], opens[0], (float)n);
    }
    cr_assert_eq(used_bytes(runtime), plan.device_bytes, "order %d", n);
    for (int i = 0; i < BUCKETS; i++) run_bucket(&set, execs[closes[i]], closes[i], (float)(n + i));
    for (int i = 0; i < BUCKETS; i++) {
      REQUIRE_OK(rondo_close_exec(&execs[closes[i]]));
      cr_assert_eq(arena_bytes(runtime, 0), largest_arena(execs), "as large as the largest that is open");
      if (i < BUCKETS - 1) run_bucket(&set, execs[closes[BUCKETS - 1]], closes[BUCKETS - 1], 5);
    }
    cr_assert_eq(used_bytes(runtime), constant_bytes);
    REQUIRE_OK(rondo_close_exec(&store));
    cr_assert_eq(used_bytes(runtime), 0);
  }
  forget(&set);
  REQUIRE_OK(rondo_close(&runtime));
}
BOTH_BACKENDS(arena, a_set_of_buckets_takes_at_most_a_twentieth_more_than_the_largest,
              a_set_of_buckets_takes_at_most_a_twentieth_more_than_the_largest)

/* Replays of all slots in flight at once: those of one lane follow each other. */
static void execs_that_share_an_arena_may_all_be_in_flight(rondo_backend backend) {
  enum { SLOTS = 3, ROUNDS = 20 };
  struct set set = describe_set();
  rondo_plan plan = plan_set(&set);
  plan.pinned_bytes_per_slot *= SLOTS;
  rondo_runtime *runtime = open_planned(backend, &plan, NULL, 0, plan.device_bytes);
  rondo_exec *store = NULL, *execs[BUCKETS];
  rondo_slot slots[BUCKETS][SLOTS];
  REQUIRE_OK(rondo_instantiate(runtime, set.store, NULL, &store));
  set_weights(&set, store);
  for (int i = 0; i < BUCKETS; i++) {
    REQUIRE_OK(rondo_instantiate(runtime, set.graphs[i], &(rondo_exec_options){.slots = SLOTS}, &execs[i]));
    for (int s = 0; s < SLOTS; s++) REQUIRE_OK(rondo_acquire(execs[i], &slots[i][s]));
    cr_assert_eq(execs[i]->memory.arena + execs[i]->memory.arena_bytes,
                 execs[0]->memory.arena + execs[0]->memory.arena_bytes);
  }
  for (int round = 0; round < ROUNDS; round++) {
    for (int s = 0; s < SLOTS; s++)
      for (int i = 0; i < BUCKETS; i++) {
        float *x = rondo_data(slots[i][s], set.x[i]);
        for (int64_t k = 0; k < (int64_t)batch_of(i) * WIDTH; k++)
          x[k] = (float)(k + INT64_C(10) * round + INT64_C(3) * s + i);
        REQUIRE_OK(rondo_replay(slots[i][s]));
      }
    for (int s = 0; s < SLOTS; s++)
      for (int i = 0; i < BUCKETS; i++) {
        REQUIRE_OK(rondo_wait(slots[i][s], RONDO_FOREVER));
        const float *x = rondo_data(slots[i][s], set.x[i]), *y = rondo_data(slots[i][s], set.y[i]);
        cr_assert_arr_eq(y, x, (size_t)batch_of(i) * ROW_BYTES, "round %d, bucket %d, slot %d", round, i, s);
      }
  }
  for (int i = 0; i < BUCKETS; i++) REQUIRE_OK(rondo_close_exec(&execs[i]));
  REQUIRE_OK(rondo_close_exec(&store));
  forget(&set);
  REQUIRE_OK(rondo_close(&runtime));
}
BOTH_BACKENDS(arena, execs_that_share_an_arena_may_all_be_in_flight, execs_that_share_an_arena_may_all_be_in_flight)

Test(arena, is_as_large_in_the_plan_of_a_set_as_the_largest_of_its_graphs) {
  struct set set = describe_set();
  rondo_plan all = plan_set(&set), one;
  uint64_t temporary_bytes = 0, lower_bound_bytes = 0;
  for (int i = 0; i < BUCKETS; i++) {
    REQUIRE_OK(rondo_plan_graph(set.graphs[i], &one));
    cr_assert_gt(one.lower_bound_bytes, 0);
    if (one.temporary_bytes > temporary_bytes) temporary_bytes = one.temporary_bytes;
    if (one.lower_bound_bytes > lower_bound_bytes) lower_bound_bytes = one.lower_bound_bytes;
  }
  cr_assert_eq(all.temporary_bytes, temporary_bytes);
  cr_assert_eq(all.lower_bound_bytes, lower_bound_bytes);
  forget(&set);
}

/* ---- What a lane keeps ------------------------------------------------------------------------------------------- */

Test(arena, what_a_lane_keeps_is_there_from_open_on_and_does_not_go_away) {
  struct set set = describe_set();
  rondo_plan plan = plan_set(&set);
  uint64_t needed = plan.temporary_bytes;
  const uint64_t kept[] = {needed, 2 * needed, needed / 2 / 256 * 256, 1};
  for (size_t k = 0; k < sizeof kept / sizeof *kept; k++) {
    uint64_t rounded = pool_round(kept[k]), most = rounded > needed ? rounded : needed;
    rondo_lane lane = {.name = "decode", .arena_bytes = kept[k]};
    rondo_runtime *runtime = open_planned(RONDO_BACKEND_HOST, &plan, &lane, 1, plan.device_bytes - needed + most);
    rondo_exec *store = NULL, *exec = NULL;
    cr_assert_eq(used_bytes(runtime), rounded);
    cr_assert_eq(arena_bytes(runtime, 0), rounded);
    REQUIRE_OK(rondo_instantiate(runtime, set.store, NULL, &store));
    set_weights(&set, store);
    for (int round = 0; round < 2; round++) {
      REQUIRE_OK(rondo_instantiate(runtime, set.graphs[BUCKETS - 1], NULL, &exec));
      run_bucket(&set, exec, BUCKETS - 1, 1);
      cr_assert_eq(arena_bytes(runtime, 0), most);
      REQUIRE_OK(rondo_close_exec(&exec));
      cr_assert_eq(arena_bytes(runtime, 0), rounded, "kept, and no more than that");
    }
    REQUIRE_OK(rondo_close_exec(&store));
    cr_assert_eq(used_bytes(runtime), rounded);
    REQUIRE_OK(rondo_close(&runtime));
  }
  forget(&set);
}

/* The other lane's arena lies below. */
Test(arena, one_that_cannot_grow_says_what_to_do_and_changes_nothing) {
  struct set set = describe_set();
  rondo_plan plan = plan_set(&set);
  rondo_lane lanes[] = {{.name = "decode"}, {.name = "prefill"}};
  rondo_runtime *runtime = open_planned(RONDO_BACKEND_HOST, &plan, lanes, 2, 4 * plan.device_bytes);
  rondo_exec *store = NULL, *small = NULL, *below = NULL, *large = NULL;
  REQUIRE_OK(rondo_instantiate(runtime, set.store, NULL, &store));
  set_weights(&set, store);
  REQUIRE_OK(rondo_instantiate(runtime, set.graphs[1], NULL, &small));
  REQUIRE_OK(rondo_instantiate(runtime, set.graphs[0], &(rondo_exec_options){.lane = 1}, &below));
  uint64_t before = used_bytes(runtime);
  REQUIRE_ERROR(rondo_instantiate(runtime, set.graphs[4], NULL, &large), RONDO_OUT_OF_MEMORY,
                "give the lane arena_bytes");
  cr_assert(strstr(rondo_error_text(), "lane 0 'decode'"), "%s", rondo_error_text());
  cr_assert_eq(used_bytes(runtime), before);
  cr_assert_eq(arena_bytes(runtime, 0), small->memory.arena_bytes);
  run_bucket(&set, small, 1, 1);
  run_bucket(&set, below, 0, 1);
  REQUIRE_OK(rondo_instantiate(runtime, set.graphs[4], &(rondo_exec_options){.lane = 1}, &large)); /* the lowest can */
  run_bucket(&set, large, 4, 1);
  REQUIRE_OK(rondo_close_exec(&small));
  REQUIRE_OK(rondo_close_exec(&below));
  run_bucket(&set, large, 4, 2);
  REQUIRE_OK(rondo_close_exec(&large));
  REQUIRE_OK(rondo_close_exec(&store));
  cr_assert_eq(used_bytes(runtime), 0);
  REQUIRE_OK(rondo_close(&runtime));
  forget(&set);
}

Test(arena, lanes_keep_no_more_than_the_pool_has) {
  rondo_runtime *runtime = NULL;
  rondo_lane lanes[] = {{.name = "a", .arena_bytes = 4096}, {.name = "b", .arena_bytes = 4097}};
  rondo_options options = {.backend = RONDO_BACKEND_HOST, .device_bytes = 8192, .lanes = lanes, .lane_count = 2};
  REQUIRE_ERROR(rondo_open(&options, &runtime), RONDO_INVALID_ARGUMENT, "lane 1 'b' keeps 4097 bytes");
  lanes[1].arena_bytes = UINT64_MAX;
  REQUIRE_ERROR(rondo_open(&options, &runtime), RONDO_INVALID_ARGUMENT, "of which 4096 are left");
  lanes[1].arena_bytes = 4096;
  REQUIRE_OK(rondo_open(&options, &runtime));
  cr_assert_eq(used_bytes(runtime), 8192);
  REQUIRE_OK(rondo_close(&runtime));
  options.device_bytes = 8190; /* fits by the byte, and not in steps of 256 */
  lanes[1].arena_bytes = 4094;
  REQUIRE_ERROR(rondo_open(&options, &runtime), RONDO_OUT_OF_MEMORY, "open: device pool: a lane's arena");
  cr_assert_null(runtime);
}

/* ---- Two lanes --------------------------------------------------------------------------------------------------- */

struct worker {
  const struct set *set;
  rondo_exec *execs[BUCKETS];
  pthread_t thread;
  float first;
};

static void *work(void *argument) {
  struct worker *worker = argument;
  for (int round = 0; round < 60; round++)
    for (int i = 0; i < BUCKETS; i++) run_bucket(worker->set, worker->execs[i], i, worker->first + (float)round);
  return NULL;
}

struct range {
  const unsigned char *begin, *end;
};

static void require_apart(struct range a, struct range b) { cr_assert(a.end <= b.begin || b.end <= a.begin); }

Test(arena, two_lanes_share_no_byte_of_temporaries_and_run_side_by_side) {
  struct set set = describe_set();
  rondo_plan plan = plan_set(&set);
  rondo_lane lanes[] = {{.name = "a", .arena_bytes = plan.temporary_bytes}, {.name = "b"}};
  rondo_runtime *runtime = open_planned(RONDO_BACKEND_HOST, &plan, lanes, 2, 2 * plan.device_bytes);
  rondo_exec *store = NULL;
  struct worker workers[2] = {{.set = &set, .first = 0}, {.set = &set, .first = 1000}};
  struct range arenas[2][BUCKETS];
  REQUIRE_OK(rondo_instantiate(runtime, set.store, NULL, &store));
  set_weights(&set, store);
  for (int i = 0; i < BUCKETS; i++) /* by turns, so that the arenas grow beside each other */
    for (uint32_t lane = 0; lane < 2; lane++) {
      REQUIRE_OK(
          rondo_instantiate(runtime, set.graphs[i], &(rondo_exec_options){.lane = lane}, &workers[lane].execs[i]));
      const rondo_exec *exec = workers[lane].execs[i];
      arenas[lane][i] = (struct range){exec->memory.arena, exec->memory.arena + exec->memory.arena_bytes};
    }
  for (int i = 0; i < BUCKETS; i++) {
    for (int k = 0; k < BUCKETS; k++) require_apart(arenas[0][i], arenas[1][k]);
    for (int lane = 0; lane < 2; lane++) {
      cr_assert_eq(arenas[lane][i].end, arenas[lane][0].end);
      for (int other = 0; other < 2; other++)
        for (int k = 0; k < BUCKETS; k++) {
          const rondo_exec *exec = workers[other].execs[k];
          require_apart(arenas[lane][i],
                        (struct range){exec->memory.device, exec->memory.device + exec->memory.device_bytes});
        }
      require_apart(arenas[lane][i],
                    (struct range){store->memory.device, store->memory.device + store->memory.device_bytes});
    }
  }
  for (int w = 0; w < 2; w++) cr_assert_eq(pthread_create(&workers[w].thread, NULL, work, &workers[w]), 0);
  for (int w = 0; w < 2; w++) pthread_join(workers[w].thread, NULL);
  for (int i = 0; i < BUCKETS; i++)
    for (int w = 0; w < 2; w++) REQUIRE_OK(rondo_close_exec(&workers[w].execs[i]));
  REQUIRE_OK(rondo_close_exec(&store));
  cr_assert_eq(used_bytes(runtime), plan.temporary_bytes, "what lane a keeps");
  REQUIRE_OK(rondo_close(&runtime));
  forget(&set);
}
