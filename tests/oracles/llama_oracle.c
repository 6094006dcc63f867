/* llama_oracle.c - see llama_oracle.h. */
#include "llama_oracle.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lane_sums.h"

static void *oracle_memory(int64_t count, size_t bytes) {
  void *memory = calloc((size_t)count, bytes);
  cr_assert_not_null(memory);
  return memory;
}

/* Numbers of about `size`, or around `mean`. */
static struct matrix matrix_random(struct random *random, rondo_dtype dtype, int64_t rows, int64_t columns, double mean,
                                   double size, float nvfp4_scale) {
  const int64_t count = rows * columns;
  struct matrix made = {.codes = oracle_memory(count, 2),
                        .scales = oracle_memory(count, sizeof(float)),
                        .numbers = oracle_memory(count, sizeof(double))};
  for (int64_t i = 0; i < rows; i++) ((float *)made.scales)[i] = (float)(size * (0.5 + random_uniform(random)));
  for (int64_t i = 0; i < count / 16 && dtype == RONDO_NVFP4; i++)
    oracle_write(RONDO_E4M3, made.scales, i, 0.5 + random_uniform(random));
  for (int64_t i = 0; i < count; i++) {
    double scale = dtype == RONDO_E4M3    ? (double)((float *)made.scales)[i / columns]
                   : dtype == RONDO_NVFP4 ? oracle_read(RONDO_E4M3, made.scales, i / 16) * (double)nvfp4_scale
                                          : 1.0;
    if (dtype == RONDO_NVFP4)
      ((uint8_t *)made.codes)[i / 2] |= (uint8_t)(random_between(random, 0, 15) << (i % 2 * 4));
    else
      oracle_write(dtype, made.codes, i,
                   mean + (dtype == RONDO_E4M3 ? 1.0 : size) * sqrt(3) * (2 * random_uniform(random) - 1));
    made.numbers[i] = oracle_read(dtype, made.codes, i) * scale;
  }
  return made;
}

static void matrix_free(struct matrix *matrix) {
  free(matrix->codes);
  free(matrix->scales);
  free(matrix->numbers);
}

rondo_graph_llama_desc llama_plain_desc(void) {
  return (rondo_graph_llama_desc){.dtype = RONDO_BF16,
                                  .weights = RONDO_BF16,
                                  .head_dimension = 32,
                                  .rope_pairing = RONDO_ROPE_HALVES,
                                  .sequences = 1,
                                  .with_logits = 1};
}

void llama_make(struct llama *l, rondo_graph_llama_desc desc, uint64_t seed) {
  struct random random = {seed};
  if (!desc.hidden) desc.hidden = 64, desc.query_heads = 4, desc.kv_heads = 2, desc.feed_forward = 96;
  desc.layers = LAYERS, desc.vocabulary = VOCABULARY;
  if (!desc.context) desc.context = CONTEXT;
  desc.nvfp4_scale = 0.04f; /* times codes of 2.9 on average: 1/8 */
  const int64_t hidden = desc.hidden, gated = desc.feed_forward, query = desc.query_heads * desc.head_dimension,
                all = query + desc.kv_heads * desc.head_dimension * 2;
  const rondo_dtype dtype = desc.dtype, weights = desc.weights;
  const rondo_dtype table = desc.embedding ? desc.embedding : weights == RONDO_NVFP4 ? RONDO_NVFP4 : dtype;
  const double size = sqrt(64.0 / (double)hidden); /* sums of more numbers are of smaller ones */
  const float factor = desc.nvfp4_scale *= (float)size;
  *l = (struct llama){.desc = desc};
  l->embedding = matrix_random(&random, table, VOCABULARY, hidden, 0, 1, factor);
  l->head = matrix_random(&random, table, VOCABULARY, hidden, 0, 0.3 * size, factor);
  l->norm = matrix_random(&random, dtype, 1, hidden, 1, 0.2, 1);
  for (int i = 0; i < LAYERS; i++) {
    l->attention_norm[i] = matrix_random(&random, dtype, 1, hidden, 1, 0.2, 1);
    l->feed_forward_norm[i] = matrix_random(&random, dtype, 1, hidden, 1, 0.2, 1);
    l->qkv[i] = matrix_random(&random, weights, all, hidden, 0, 0.2 * size, factor);
    l->output[i] = matrix_random(&random, weights, hidden, query, 0, 0.1 * size, factor);
    l->gate_up[i] = matrix_random(&random, weights, 2 * gated, hidden, 0, 0.15 * size, factor);
    l->down[i] = matrix_random(&random, weights, hidden, gated, 0, 0.1 * size, factor);
  }
  for (int64_t i = 0; i < desc.head_dimension / 2; i++)
    l->frequencies[i] = (float)pow(500.0, -2.0 * (double)i / (double)desc.head_dimension);
}

void llama_free(struct llama *l) {
  matrix_free(&l->embedding), matrix_free(&l->head), matrix_free(&l->norm);
  for (int i = 0; i < LAYERS; i++) {
    matrix_free(&l->attention_norm[i]), matrix_free(&l->feed_forward_norm[i]);
    matrix_free(&l->qkv[i]), matrix_free(&l->output[i]), matrix_free(&l->gate_up[i]), matrix_free(&l->down[i]);
  }
}

/* ---- Its step in 64 bits ----------------------------------------------------------------------------------------- */

static double llama_rounded(const struct llama *l, double value) {
  return l->desc.dtype == RONDO_F16 ? oracle_f16(oracle_to_f16(value)) : oracle_bf16(oracle_to_bf16(value));
}

static void multiply(const struct matrix *w, int64_t rows, int64_t columns, const double *x, double *y) {
  double magnitude;
  for (int64_t i = 0; i < rows; i++) y[i] = lanes_product(w->numbers + i * columns, x, columns, &magnitude);
}

static void normalise(const struct llama *l, const struct matrix *norm, bool is_task, const double *x, double *y) {
  const int64_t hidden = l->desc.hidden;
  double squares = 0;
  for (int64_t i = 0; i < hidden; i++) squares += x[i] * x[i];
  const double size = sqrt(squares / (double)hidden + 1e-5);
  for (int64_t i = 0; i < hidden; i++)
    y[i] =
        is_task ? llama_rounded(l, x[i] / size * norm->numbers[i]) : llama_rounded(l, x[i] * norm->numbers[i]) / size;
}

static void rotate(const struct llama *l, double *head, int position) {
  const int64_t d = l->desc.head_dimension;
  const bool halves = l->desc.rope_pairing == RONDO_ROPE_HALVES;
  const double base = l->desc.rope_base > 0 ? (double)l->desc.rope_base : 10000.0;
  for (int64_t i = 0; i < d / 2; i++) {
    double turn = l->desc.rope_frequencies ? (double)l->frequencies[i] : pow(base, -2.0 * (double)i / (double)d);
    double *a = head + (halves ? i : 2 * i), *b = head + (halves ? i + d / 2 : 2 * i + 1);
    double cosine = cos(turn * position), sine = sin(turn * position), first = *a;
    *a = llama_rounded(l, first * cosine - *b * sine);
    *b = llama_rounded(l, first * sine + *b * cosine);
  }
}

static void attend(const struct llama *l, const struct history *h, int layer, const double *q, int length, double *o) {
  const int64_t d = l->desc.head_dimension, heads = l->desc.query_heads;
  for (int64_t head = 0; head < heads; head++) {
    const int64_t column = head / (heads / l->desc.kv_heads) * d;
    double weights[MOST_CONTEXT], sum = 0, most = -INFINITY;
    for (int s = 0; s < length; s++) {
      weights[s] = 0;
      for (int64_t i = 0; i < d; i++) weights[s] += q[head * d + i] * h->k[layer][s][column + i] / sqrt((double)d);
      most = fmax(most, weights[s]);
    }
    for (int s = 0; s < length; s++) sum += weights[s] = exp(weights[s] - most);
    for (int64_t i = 0; i < d; i++) {
      double value = 0;
      for (int s = 0; s < length; s++) value += weights[s] / sum * h->v[layer][s][column + i];
      o[head * d + i] = llama_rounded(l, value);
    }
  }
}

static void add_rounded(const struct llama *l, double *x, const double *y) {
  for (int64_t i = 0; i < l->desc.hidden; i++) x[i] = l->streams ? x[i] + y[i] : llama_rounded(l, x[i] + y[i]);
}

static void layer_step(const struct llama *l, struct history *h, int layer, int position, double *x) {
  const rondo_graph_llama_desc *desc = &l->desc;
  const int64_t d = desc->head_dimension, query = desc->query_heads * d, kv = desc->kv_heads * d, hidden = desc->hidden;
  double normed[MOST_HIDDEN], qkv[MOST_QUERY + 2 * MOST_KV], o[MOST_QUERY], y[MOST_HIDDEN], gates[2 * MOST_GATED],
      gated[MOST_GATED];
  normalise(l, &l->attention_norm[layer], l->layer_norms_are_tasks || (l->streams && layer == 0), x, normed);
  multiply(&l->qkv[layer], query + 2 * kv, hidden, normed, qkv);
  for (int64_t i = 0; i < query + 2 * kv; i++) qkv[i] = llama_rounded(l, qkv[i]);
  for (int64_t head = 0; head < desc->query_heads + desc->kv_heads; head++) rotate(l, qkv + head * d, position);
  memcpy(h->k[layer][position], qkv + query, (size_t)kv * sizeof *qkv);
  memcpy(h->v[layer][position], qkv + query + kv, (size_t)kv * sizeof *qkv);
  attend(l, h, layer, qkv, position + 1, o);
  multiply(&l->output[layer], hidden, query, o, y);
  add_rounded(l, x, y);
  normalise(l, &l->feed_forward_norm[layer], l->layer_norms_are_tasks, x, normed);
  multiply(&l->gate_up[layer], 2 * desc->feed_forward, hidden, normed, gates);
  for (int64_t i = 0; i < desc->feed_forward; i++)
    gated[i] = llama_rounded(l, gates[2 * i] / (1 + exp(-gates[2 * i])) * gates[2 * i + 1]);
  multiply(&l->down[layer], hidden, desc->feed_forward, gated, y);
  add_rounded(l, x, y);
}

void llama_step(const struct llama *l, struct history *h, int32_t token, int32_t position, double logits[VOCABULARY]) {
  const int64_t hidden = l->desc.hidden;
  double x[MOST_HIDDEN], normed[MOST_HIDDEN];
  for (int64_t i = 0; i < hidden; i++) {
    const double number = l->embedding.numbers[token * hidden + i];
    x[i] = l->streams ? number : llama_rounded(l, number);
  }
  for (int layer = 0; layer < LAYERS; layer++) layer_step(l, h, layer, position, x);
  normalise(l, &l->norm, l->last_norm_is_a_task || l->streams, x, normed);
  multiply(l->desc.tied_embedding ? &l->embedding : &l->head, VOCABULARY, hidden, normed, logits);
}

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

/* As a whole row of logits: the worst error over their size. */
static double logits_error(const float *got, const double *expected) {
  double worst = 0, squares = 0;
  for (int i = 0; i < VOCABULARY; i++) {
    double error = fabs((double)got[i] - expected[i]);
    if (!(error <= worst)) worst = error; /* NaN too */
    squares += expected[i] * expected[i];
  }
  return worst / sqrt(squares / VOCABULARY);
}

double llama_logits_gate(const struct llama *l) { return l->desc.dtype == RONDO_F16 ? 0.01 : 0.08; }

void llama_check_logits(const struct llama *l, const float *got, const double *expected, const char *where, int a,
                        int b) {
  double error = logits_error(got, expected);
  cr_assert(error <= llama_logits_gate(l), "%s weights, %s, %d, %d: logits are off by %g of their size",
            rondo_dtype_name(l->desc.weights), where, a, b, error);
}

int32_t llama_largest(const float *logits) {
  int32_t at = 0;
  for (int32_t i = 1; i < VOCABULARY; i++)
    if (logits[i] > logits[at]) at = i;
  return at;
}

int32_t llama_some_token(int sequence, int position) { return (sequence * 53 + position * 31 + 7) % VOCABULARY; }

/* ---- Its graphs on a backend ------------------------------------------------------------------------------------- */

void machine_add(struct machine *m, rondo_backend backend, rondo_graph_llama_desc desc) {
  const int i = m->count++;
  trial_describe(&m->trials[i], backend);
  m->tensors[i].layers = m->layers[i];
  if (i > 0) desc.lender = &m->tensors[0];
  REQUIRE_OK(rondo_graph_llama(m->trials[i].graph, &desc, &m->tensors[i]));
}

static void matrix_set(struct trial *trial, rondo_tensor codes, rondo_tensor scales, const struct matrix *matrix) {
  if (codes.graph) trial_set(trial, codes, matrix->codes);
  if (scales.graph) trial_set(trial, scales, matrix->scales);
}

static void machine_upload(struct machine *m, const struct llama *l) {
  const rondo_graph_llama_tensors *t = &m->tensors[0];
  const rondo_tensor none = {0};
  struct trial *trial = &m->trials[0];
  matrix_set(trial, t->embedding, t->embedding_scales, &l->embedding);
  matrix_set(trial, t->head, t->head_scales, &l->head);
  matrix_set(trial, t->norm, none, &l->norm);
  if (t->frequencies.graph) trial_set(trial, t->frequencies, l->frequencies);
  for (int i = 0; i < LAYERS; i++) {
    const rondo_llama_layer *layer = &t->layers[i];
    matrix_set(trial, layer->attention_norm, none, &l->attention_norm[i]);
    matrix_set(trial, layer->feed_forward_norm, none, &l->feed_forward_norm[i]);
    matrix_set(trial, layer->qkv, layer->qkv_scales, &l->qkv[i]);
    matrix_set(trial, layer->output, layer->output_scales, &l->output[i]);
    matrix_set(trial, layer->gate_up, layer->gate_up_scales, &l->gate_up[i]);
    matrix_set(trial, layer->down, layer->down_scales, &l->down[i]);
  }
}

void machine_start_in(struct machine *m, rondo_runtime *runtime, const struct llama *l) {
  for (int i = 0; i < m->count; i++) {
    struct trial *trial = &m->trials[i];
    const rondo_exec_options options = {.repeat_steps = i ? 0 : m->repeat_steps};
    trial->runtime = runtime;
    REQUIRE_OK(rondo_instantiate(runtime, trial->graph, &options, &trial->exec));
    REQUIRE_OK(rondo_acquire(trial->exec, &trial->slot));
  }
  machine_upload(m, l);
}

void machine_start(struct machine *m, const struct llama *l) {
  rondo_graph *graphs[MOST_GRAPHS];
  rondo_plan plan;
  rondo_runtime *runtime;
  for (int i = 0; i < m->count; i++) graphs[i] = m->trials[i].graph;
  REQUIRE_OK(rondo_plan_graphs(graphs, (uint32_t)m->count, &plan));
  REQUIRE_OK(rondo_open(
      &(rondo_options){.backend = m->trials[0].backend,
                       .device_bytes = plan.device_bytes,
                       .pinned_bytes = plan.pinned_bytes_per_slot + m->repeat_steps * plan.pinned_bytes_per_step,
                       .host_bytes = plan.host_bytes},
      &runtime));
  machine_start_in(m, runtime, l);
}

void llama_set_lists(struct machine *m, int graph, rondo_tensor a, const int32_t *of_a, rondo_tensor b,
                     const int32_t *of_b) {
  trial_set(&m->trials[graph], a, of_a);
  trial_set(&m->trials[graph], b, of_b);
}

void machine_end_graphs(struct machine *m) {
  for (int i = m->count; i-- > 0;) {
    REQUIRE_OK(rondo_release(m->trials[i].slot));
    REQUIRE_OK(rondo_close_exec(&m->trials[i].exec));
    REQUIRE_OK(rondo_graph_destroy(&m->trials[i].graph));
  }
  m->count = 0;
}

void machine_end(struct machine *m) {
  rondo_runtime *runtime = m->trials[0].runtime;
  machine_end_graphs(m);
  REQUIRE_OK(rondo_close(&runtime));
}
