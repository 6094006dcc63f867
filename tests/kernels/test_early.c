/* test_early.c - products use the weights that were written last, although kernels start before their predecessors
 * have ended and read settled operands early (runtime/op.h). All weights of a row have one value, which NVFP4 holds
 * exactly and which changes with each replay; the vectors are ones, so that sums are exact. A kernel that reads
 * weights before their writer has ended shows as the value of the replay before. */
#include <criterion/criterion.h>
#include <math.h>

#include "../support.h"

enum { ROWS = 256, COLUMNS = 512, BLOCKS = COLUMNS / 16, COUNT_MOST = 16, SLOTS = 3 };

static const int64_t weights_shape[] = {ROWS, COLUMNS}, scales_shape[] = {ROWS, BLOCKS};

/* On a device a kernel that starts too early is seen in some replays only; the host starts none. */
static int replays_on(rondo_backend backend) { return backend == RONDO_BACKEND_HOST ? 20 : 500; }

static float value_of(int replay, int row) {
  struct random random = {(uint64_t)replay * ROWS + (uint64_t)row};
  random_bits(&random);
  uint64_t bits = random_bits(&random);
  return ldexpf(bits & 1 ? 6 : -6, (int)(bits >> 1 & 7) - 3);
}

static void fill_weights(float *x, int replay) {
  for (int i = 0; i < ROWS; i++) {
    float value = value_of(replay, i);
    for (int j = 0; j < COLUMNS; j++) x[i * COLUMNS + j] = value;
  }
}

static void fill_ones(uint16_t *vectors, int64_t count) {
  for (int64_t i = 0; i < count * COLUMNS; i++) vectors[i] = oracle_to_f16(1);
}

/* replay -1: the weights are zeros yet. */
static void require_products(const float *y, int64_t count, int replay, const char *which) {
  for (int64_t v = 0; v < count; v++)
    for (int i = 0; i < ROWS; i++) {
      float expected = replay < 0 ? 0 : COLUMNS * value_of(replay, i);
      cr_assert_eq(y[v * ROWS + i], expected, "%s, of replay %d, %d vectors, row %d: %f, expected %f", which, replay,
                   (int)count, i, (double)y[v * ROWS + i], (double)expected);
    }
}

struct weights {
  rondo_tensor codes, scales;
};

static struct weights add_weights(rondo_graph *graph) {
  struct weights weights;
  REQUIRE_OK(rondo_state(graph, "codes", RONDO_NVFP4, 2, weights_shape, &weights.codes));
  REQUIRE_OK(rondo_state(graph, "scales", RONDO_E4M3, 2, scales_shape, &weights.scales));
  return weights;
}

/* The input from which the weights are made. */
static rondo_tensor add_writer(rondo_graph *graph, struct weights weights) {
  rondo_tensor x;
  REQUIRE_OK(rondo_input(graph, "x", RONDO_F32, 2, weights_shape, &x));
  REQUIRE_OK(rondo_add_quantize_nvfp4(
      graph, &(rondo_quantize_nvfp4_desc){.x = x, .codes = weights.codes, .scales = weights.scales}));
  return x;
}

static rondo_tensor add_vectors(rondo_graph *graph, int64_t count) {
  rondo_tensor vectors;
  REQUIRE_OK(rondo_input(graph, "vectors", RONDO_F16, 2, (int64_t[]){count, COLUMNS}, &vectors));
  return vectors;
}

static rondo_tensor add_product(rondo_graph *graph, const char *name, struct weights weights, rondo_tensor vectors,
                                int64_t count) {
  rondo_tensor y;
  REQUIRE_OK(rondo_output(graph, name, RONDO_F32, 2, (int64_t[]){count, ROWS}, &y));
  REQUIRE_OK(rondo_add_gemv(
      graph,
      &(rondo_gemv_desc){
          .name = name, .weights = weights.codes, .weight_scales = weights.scales, .vectors = vectors, .out = y}));
  return y;
}

static const int64_t counts[] = {1, 4, COUNT_MOST};

/* ---- One graph --------------------------------------------------------------------------------------------------- */

/* A product with the weights of the replay before, new weights, a product with these. */
static void follow_the_task_before(rondo_backend backend) {
  static float x[ROWS * COLUMNS];
  static uint16_t ones[COUNT_MOST * COLUMNS];
  fill_ones(ones, COUNT_MOST);
  for (int c = 0; c < 3; c++) {
    struct trial trial;
    trial_describe(&trial, backend);
    struct weights weights = add_weights(trial.graph);
    rondo_tensor vectors = add_vectors(trial.graph, counts[c]);
    rondo_tensor old = add_product(trial.graph, "old", weights, vectors, counts[c]);
    rondo_tensor written = add_writer(trial.graph, weights);
    rondo_tensor new = add_product(trial.graph, "new", weights, vectors, counts[c]);
    trial_instantiate(&trial);
    trial_set(&trial, vectors, ones);
    for (int replay = 0; replay < replays_on(backend); replay++) {
      fill_weights(x, replay);
      trial_set(&trial, written, x);
      trial_replay(&trial);
      require_products(trial_output(&trial, old), counts[c], replay - 1, "the weights before");
      require_products(trial_output(&trial, new), counts[c], replay, "the weights after");
    }
    trial_end(&trial);
  }
}
BOTH_BACKENDS(early, weights_follow_the_task_that_writes_them, follow_the_task_before)

/* ---- Two graphs -------------------------------------------------------------------------------------------------- */

struct pair {
  rondo_runtime *runtime;
  rondo_graph *graphs[2]; /* that writes, that reads */
  rondo_exec *writer, *reader;
  rondo_slot writers[SLOTS], readers[SLOTS];
  rondo_tensor x, vectors, y;
};

static void pair_open(struct pair *pair, rondo_backend backend, int64_t count) {
  struct weights lent, borrowed;
  rondo_plan plan;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &pair->graphs[0]));
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &pair->graphs[1]));
  lent = add_weights(pair->graphs[0]);
  pair->x = add_writer(pair->graphs[0], lent);
  REQUIRE_OK(rondo_borrow(pair->graphs[1], lent.codes, &borrowed.codes));
  REQUIRE_OK(rondo_borrow(pair->graphs[1], lent.scales, &borrowed.scales));
  pair->vectors = add_vectors(pair->graphs[1], count);
  pair->y = add_product(pair->graphs[1], "y", borrowed, pair->vectors, count);
  REQUIRE_OK(rondo_plan_graphs(pair->graphs, 2, &plan));
  REQUIRE_OK(rondo_open(&(rondo_options){.backend = backend,
                                         .device_bytes = plan.device_bytes,
                                         .pinned_bytes = SLOTS * plan.pinned_bytes_per_slot,
                                         .host_bytes = plan.host_bytes},
                        &pair->runtime));
  rondo_exec_options options = {.slots = SLOTS};
  REQUIRE_OK(rondo_instantiate(pair->runtime, pair->graphs[0], &options, &pair->writer));
  REQUIRE_OK(rondo_instantiate(pair->runtime, pair->graphs[1], &options, &pair->reader));
  for (int s = 0; s < SLOTS; s++) {
    REQUIRE_OK(rondo_acquire(pair->writer, &pair->writers[s]));
    REQUIRE_OK(rondo_acquire(pair->reader, &pair->readers[s]));
    fill_ones(rondo_data(pair->readers[s], pair->vectors), count);
  }
}

static void pair_close(struct pair *pair) {
  REQUIRE_OK(rondo_close_exec(&pair->reader));
  REQUIRE_OK(rondo_close_exec(&pair->writer));
  REQUIRE_OK(rondo_close(&pair->runtime));
  for (int i = 0; i < 2; i++) REQUIRE_OK(rondo_graph_destroy(&pair->graphs[i]));
}

/* The graph that reads does not write the weights: it may read them as soon as a replay of it begins, and no sooner.
 * Nothing is waited for in between. */
static void follow_the_replay_before(rondo_backend backend) {
  for (int c = 0; c < 3; c++) {
    struct pair pair;
    pair_open(&pair, backend, counts[c]);
    for (int replay = 0; replay < replays_on(backend); replay += SLOTS) {
      for (int s = 0; s < SLOTS; s++) fill_weights(rondo_data(pair.writers[s], pair.x), replay + s);
      for (int s = 0; s < SLOTS; s++) {
        REQUIRE_OK(rondo_replay(pair.writers[s]));
        REQUIRE_OK(rondo_replay(pair.readers[s]));
      }
      for (int s = 0; s < SLOTS; s++) {
        REQUIRE_OK(rondo_wait(pair.readers[s], RONDO_FOREVER));
        REQUIRE_OK(rondo_wait(pair.writers[s], RONDO_FOREVER));
        require_products(rondo_data(pair.readers[s], pair.y), counts[c], replay + s, "another graph's weights");
      }
    }
    pair_close(&pair);
  }
}
BOTH_BACKENDS(early, weights_follow_the_replay_that_writes_them, follow_the_replay_before)
