/* test_decode_layer.c - the attention of a decoder layer, described with single operations: one gemv for q, k and v,
 * appends to the caches, attention over the rows that are there, the output product. One token a replay, against the
 * same in fp64, rounded where tensors are f16. Faults that would show: an operation that starts before its predecessor
 * has ended, a position that is off by one. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"

enum {
  BATCH = 3,
  HIDDEN = 96,
  QUERY_HEADS = 6,
  KV_HEADS = 2,
  WIDTH = 64,
  CAPACITY = 11,
  Q = QUERY_HEADS * WIDTH,
  KV = KV_HEADS * WIDTH,
  QKV = Q + 2 * KV,
  STEPS = 9,
};

struct layer {
  rondo_head_layout layout;
  rondo_tensor x, qkv_weights, out_weights, position, lengths, k, v, y;
};

static void
tensor(rondo_status (*kind)(rondo_graph *, const char *, rondo_dtype, uint32_t, const int64_t *, rondo_tensor *),
       rondo_graph *graph, const char *name, rondo_dtype dtype, int64_t rows, int64_t columns, rondo_tensor *out) {
  REQUIRE_OK(kind(graph, name, dtype, 2, (int64_t[]){rows, columns}, out));
}

/* [batch, length, heads, width] or [batch, heads, length, width] */
static const int64_t *shape_of(const struct layer *layer, int64_t heads, int64_t length, int64_t *shape) {
  bool heads_first = layer->layout == RONDO_BHSD;
  memcpy(shape, (int64_t[]){BATCH, heads_first ? heads : length, heads_first ? length : heads, WIDTH},
         4 * sizeof *shape);
  return shape;
}

/* Some columns of [batch, ..], as heads. */
static rondo_tensor heads_of(const struct layer *layer, rondo_graph *graph, rondo_tensor rows, int64_t column,
                             int64_t heads) {
  rondo_tensor part, seen;
  int64_t shape[4];
  REQUIRE_OK(rondo_view(graph, rows, (int64_t[]){0, column}, (int64_t[]){BATCH, heads * WIDTH}, &part));
  REQUIRE_OK(rondo_reshape(graph, part, 4, shape_of(layer, heads, 1, shape), &seen));
  return seen;
}

static void describe(struct layer *layer, rondo_graph *graph) {
  rondo_tensor qkv, o;
  int64_t shape[4];
  tensor(rondo_input, graph, "x", RONDO_F16, BATCH, HIDDEN, &layer->x);
  tensor(rondo_constant, graph, "qkv_weights", RONDO_F16, QKV, HIDDEN, &layer->qkv_weights);
  tensor(rondo_constant, graph, "out_weights", RONDO_F16, HIDDEN, Q, &layer->out_weights);
  REQUIRE_OK(rondo_input(graph, "position", RONDO_I32, 1, (int64_t[]){BATCH}, &layer->position));
  REQUIRE_OK(rondo_input(graph, "lengths", RONDO_I32, 1, (int64_t[]){BATCH}, &layer->lengths));
  REQUIRE_OK(rondo_state(graph, "k", RONDO_F16, 4, shape_of(layer, KV_HEADS, CAPACITY, shape), &layer->k));
  REQUIRE_OK(rondo_state(graph, "v", RONDO_F16, 4, shape_of(layer, KV_HEADS, CAPACITY, shape), &layer->v));
  tensor(rondo_temporary, graph, "qkv", RONDO_F16, BATCH, QKV, &qkv);
  tensor(rondo_temporary, graph, "o", RONDO_F16, BATCH, Q, &o);
  tensor(rondo_output, graph, "y", RONDO_F32, BATCH, HIDDEN, &layer->y);
  uint32_t rows = layer->layout == RONDO_BHSD ? 2 : 1;
  REQUIRE_OK(rondo_add_gemv(
      graph, &(rondo_gemv_desc){.name = "qkv", .weights = layer->qkv_weights, .vectors = layer->x, .out = qkv}));
  REQUIRE_OK(rondo_add_append(graph, &(rondo_append_desc){"append k", heads_of(layer, graph, qkv, Q, KV_HEADS),
                                                          layer->k, layer->position, rows}));
  REQUIRE_OK(rondo_add_append(graph, &(rondo_append_desc){"append v", heads_of(layer, graph, qkv, Q + KV, KV_HEADS),
                                                          layer->v, layer->position, rows}));
  REQUIRE_OK(rondo_add_attention(graph, &(rondo_attention_desc){.layout = layer->layout,
                                                                .q = heads_of(layer, graph, qkv, 0, QUERY_HEADS),
                                                                .k = layer->k,
                                                                .v = layer->v,
                                                                .o = heads_of(layer, graph, o, 0, QUERY_HEADS),
                                                                .kv_lengths = layer->lengths}));
  REQUIRE_OK(rondo_add_gemv(
      graph, &(rondo_gemv_desc){.name = "out", .weights = layer->out_weights, .vectors = o, .out = layer->y}));
}

/* ---- The oracle -------------------------------------------------------------------------------------------------- */

static double rounded(double value) { return oracle_f16(oracle_to_f16(value)); }

static double qkv_weights[QKV][HIDDEN], out_weights[HIDDEN][Q];
static double keys[BATCH][KV_HEADS][CAPACITY][WIDTH], values[BATCH][KV_HEADS][CAPACITY][WIDTH];

static void attend(int b, int head, const double *q, int length, double *o) {
  int kv = head / (QUERY_HEADS / KV_HEADS);
  double weights[CAPACITY], sum = 0, most = -INFINITY;
  for (int s = 0; s < length; s++) {
    weights[s] = 0;
    for (int d = 0; d < WIDTH; d++) weights[s] += q[d] * keys[b][kv][s][d] / sqrt(WIDTH);
    most = fmax(most, weights[s]);
  }
  for (int s = 0; s < length; s++) sum += weights[s] = exp(weights[s] - most);
  for (int d = 0; d < WIDTH; d++) {
    double value = 0;
    for (int s = 0; s < length; s++) value += weights[s] / sum * values[b][kv][s][d];
    o[d] = rounded(value);
  }
}

/* One item's token at `position`; a row that its cache does not have is not kept. */
static void step(int b, const double *x, int position, int length, double *y) {
  double qkv[QKV], o[Q];
  for (int i = 0; i < QKV; i++) {
    double sum = 0;
    for (int j = 0; j < HIDDEN; j++) sum += qkv_weights[i][j] * x[j];
    qkv[i] = rounded(sum);
  }
  if (position >= 0 && position < CAPACITY)
    for (int i = 0; i < KV; i++) {
      keys[b][i / WIDTH][position][i % WIDTH] = qkv[Q + i];
      values[b][i / WIDTH][position][i % WIDTH] = qkv[Q + KV + i];
    }
  for (int head = 0; head < QUERY_HEADS; head++)
    attend(b, head, qkv + (ptrdiff_t)head * WIDTH, length, o + (ptrdiff_t)head * WIDTH);
  for (int i = 0; i < HIDDEN; i++) {
    y[i] = 0;
    for (int j = 0; j < Q; j++) y[i] += out_weights[i][j] * o[j];
  }
}

/* ---- Both -------------------------------------------------------------------------------------------------------- */

static void set_random(struct trial *trial, rondo_tensor to, double *copy, int count, double size,
                       struct random *random) {
  uint16_t *bits = malloc((size_t)count * sizeof *bits);
  for (int i = 0; i < count; i++) {
    bits[i] = oracle_to_f16(size * random_normal(random));
    copy[i] = oracle_f16(bits[i]);
  }
  trial_set(trial, to, bits);
  free(bits);
}

/* The rows of the oracle's cache, in the layout of the state. */
static double worst_in_cache(const struct layer *layer, struct trial *trial) {
  static uint16_t got[BATCH * KV_HEADS * CAPACITY * WIDTH];
  double worst = 0;
  trial_get(trial, layer->k, got);
  for (int b = 0; b < BATCH; b++)
    for (int h = 0; h < KV_HEADS; h++)
      for (int s = 0; s < CAPACITY; s++)
        for (int d = 0; d < WIDTH; d++) {
          int row = layer->layout == RONDO_BHSD ? (b * KV_HEADS + h) * CAPACITY + s : (b * CAPACITY + s) * KV_HEADS + h;
          worst = fmax(worst, fabs(oracle_f16(got[row * WIDTH + d]) - keys[b][h][s][d]));
        }
  return worst;
}

static void decodes(rondo_backend backend) {
  for (int layout = 0; layout < 2; layout++) {
    struct layer layer = {.layout = (rondo_head_layout)layout};
    struct random random = {61};
    struct trial trial;
    static double x[BATCH][HIDDEN], y[HIDDEN];
    memset(keys, 0, sizeof keys);
    memset(values, 0, sizeof values);
    trial_describe(&trial, backend);
    describe(&layer, trial.graph);
    trial_instantiate(&trial);
    set_random(&trial, layer.qkv_weights, &qkv_weights[0][0], QKV * HIDDEN, 0.15, &random);
    set_random(&trial, layer.out_weights, &out_weights[0][0], HIDDEN * Q, 0.1, &random);
    for (int t = 0; t < STEPS; t++) {
      /* One item begins at 0, one is ahead of it, and one runs out of its cache. */
      int32_t position[BATCH] = {t, t + 2, t + 5}, lengths[BATCH];
      for (int b = 0; b < BATCH; b++) lengths[b] = position[b] < CAPACITY ? position[b] + 1 : CAPACITY;
      set_random(&trial, layer.x, &x[0][0], BATCH * HIDDEN, 1, &random);
      trial_set(&trial, layer.position, position);
      trial_set(&trial, layer.lengths, lengths);
      trial_replay(&trial);
      const float *got = trial_output(&trial, layer.y);
      for (int b = 0; b < BATCH; b++) {
        step(b, x[b], position[b], lengths[b], y);
        for (int i = 0; i < HIDDEN; i++) {
          double error = fabs((double)got[b * HIDDEN + i] - y[i]);
          cr_assert(error <= 0.01 + 0.002 * fabs(y[i]), "layout %d, step %d, item %d, %d: %f, expected %f", layout, t,
                    b, i, (double)got[b * HIDDEN + i], y[i]);
        }
      }
      cr_assert_leq(worst_in_cache(&layer, &trial), 0.01, "layout %d, step %d", layout, t);
    }
    trial_end(&trial);
  }
}
BOTH_BACKENDS(decode_layer, of_single_operations_matches_fp64_token_after_token, decodes)
