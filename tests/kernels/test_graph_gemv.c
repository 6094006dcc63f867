/* test_graph_gemv.c - the ready-made graph of a product with vectors, described, filled and run as a user does it,
 * against fp64. Inputs that are quantised hold numbers that NVFP4 has, so that the bound is that of other types. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"
#include <rondo_graphs.h>

enum { MOST_GRAPHS = 16 };

/* One graph's tensors and what is in them. */
struct product {
  rondo_graph_gemv_desc desc;
  rondo_graph_gemv_tensors tensors;
  void *weights, *weight_scales, *vectors, *vector_scales, *out;
};

static int64_t batch_of(const struct product *p) { return p->desc.batch ? p->desc.batch : 1; }
static int64_t count_of(const struct product *p) { return p->desc.count ? p->desc.count : 1; }

/* A tensor's bytes, random; in `dtype` normal numbers, for e4m3 ordinary positive and negative ones. */
static void *random_data(rondo_tensor tensor, rondo_dtype dtype, struct random *random) {
  uint64_t bytes;
  if (!tensor.graph) return NULL;
  REQUIRE_OK(rondo_tensor_bytes(tensor, &bytes));
  uint8_t *data = malloc(bytes ? bytes : 1);
  for (uint64_t i = 0; i < bytes; i++) data[i] = (uint8_t)random_bits(random);
  if (dtype == RONDO_E4M3)
    for (uint64_t i = 0; i < bytes; i++) data[i] = (uint8_t)((data[i] & 0x87) | 0x30 | (data[i] & 8));
  else if (dtype != RONDO_NVFP4)
    for (uint64_t i = 0; i < bytes * 8 / rondo_dtype_bits(dtype); i++)
      oracle_write(dtype, data, (int64_t)i, random_normal(random));
  return data;
}

/* Blocks of codes times a power of two and quantize_scale, with a 6 in each: quantising gives them back. */
static void fill_exact(struct product *p, struct random *random) {
  int64_t elements = batch_of(p) * count_of(p) * p->desc.k;
  double size = p->desc.quantize_scale == 0 ? 1 : (double)p->desc.quantize_scale;
  for (int64_t block = 0; block < elements / 16; block++) {
    double scale = size * exp2((double)random_between(random, -3, 3));
    for (int64_t i = 0; i < 16; i++)
      oracle_write(p->desc.quantize_from, p->vectors, block * 16 + i,
                   scale * (i == block % 16 ? 6 : oracle_e2m1((uint8_t)random_between(random, 0, 15))));
  }
}

static void product_add(struct trial *trial, struct product *p, struct random *random) {
  REQUIRE_OK(rondo_graph_gemv(trial->graph, &p->desc, &p->tensors));
  const rondo_graph_gemv_tensors *t = &p->tensors;
  p->weights = random_data(t->weights, p->desc.weights, random);
  p->weight_scales = random_data(t->weight_scales, p->desc.row_scales ? RONDO_F32 : RONDO_E4M3, random);
  p->vectors = random_data(t->vectors, p->desc.quantize_from ? p->desc.quantize_from : p->desc.vectors, random);
  p->vector_scales = random_data(t->vector_scales, RONDO_E4M3, random);
  p->out = random_data(t->out, p->desc.out, random);
  if (p->desc.quantize_from) fill_exact(p, random);
}

static void product_set(struct trial *trial, const struct product *p) {
  trial_set(trial, p->tensors.weights, p->weights);
  if (p->weight_scales) trial_set(trial, p->tensors.weight_scales, p->weight_scales);
  trial_set(trial, p->tensors.vectors, p->vectors);
  if (p->vector_scales) trial_set(trial, p->tensors.vector_scales, p->vector_scales);
}

static double weight_of(const struct product *p, int64_t row, int64_t i) {
  double value = oracle_read(p->desc.weights, p->weights, row * p->desc.k + i);
  if (p->desc.row_scales) value *= oracle_read(RONDO_F32, p->weight_scales, row);
  if (p->desc.weights == RONDO_NVFP4) value *= oracle_read(RONDO_E4M3, p->weight_scales, (row * p->desc.k + i) / 16);
  return value;
}

static double vector_of(const struct product *p, int64_t vector, int64_t i) {
  rondo_dtype dtype = p->desc.quantize_from ? p->desc.quantize_from : p->desc.vectors;
  double value = oracle_read(dtype, p->vectors, vector * p->desc.k + i);
  if (p->vector_scales) value *= oracle_read(RONDO_E4M3, p->vector_scales, (vector * p->desc.k + i) / 16);
  return value;
}

static void product_check(struct trial *trial, struct product *p, int index) {
  double unit = p->desc.out == RONDO_F16 ? 0x1p-11 : p->desc.out == RONDO_BF16 ? 0x1p-8 : 0x1p-24;
  double factor = p->desc.scale == 0 ? 1 : (double)p->desc.scale;
  int64_t m = p->desc.m, k = p->desc.k, count = count_of(p);
  trial_get(trial, p->tensors.out, p->out);
  for (int64_t vector = 0; vector < batch_of(p) * count; vector++)
    for (int64_t row = 0; row < m; row++) {
      double sum = 0, magnitude = 0;
      for (int64_t i = 0; i < k; i++) {
        double term = factor * weight_of(p, vector / count * m + row, i) * vector_of(p, vector, i);
        sum += term;
        magnitude += fabs(term);
      }
      double got = oracle_read(p->desc.out, p->out, vector * m + row);
      double gate = unit * fabs(sum) + (8 + 4 * sqrt((double)k / 16)) * 0x1p-24 * magnitude + 0x1p-25;
      cr_assert(fabs(got - sum) <= gate, "graph %d vector %d row %d: %.9g, expected %.9g", index, (int)vector, (int)row,
                got, sum);
    }
}

static void check_graphs(rondo_backend backend) {
  struct product products[MOST_GRAPHS] = {
      {.desc = {.weights = RONDO_F16, .vectors = RONDO_F16, .out = RONDO_F16, .m = 65, .k = 100}},
      {.desc = {.weights = RONDO_BF16, .vectors = RONDO_BF16, .out = RONDO_F32, .m = 8, .k = 4096, .count = 3}},
      {.desc = {.weights = RONDO_E4M3, .vectors = RONDO_F16, .out = RONDO_BF16, .m = 9, .k = 64, .scale = 0.5f}},
      {.desc = {.weights = RONDO_E4M3, .vectors = RONDO_BF16, .out = RONDO_F32, .m = 9, .k = 64, .row_scales = 1}},
      {.desc = {.weights = RONDO_E4M3,
                .vectors = RONDO_F16,
                .out = RONDO_F32,
                .m = 9,
                .k = 64,
                .batch = 3,
                .count = 2,
                .row_scales = 1}},
      {.desc = {.weights = RONDO_NVFP4, .vectors = RONDO_F16, .out = RONDO_F16, .m = 33, .k = 96, .scale = -2}},
      {.desc = {.weights = RONDO_NVFP4, .vectors = RONDO_NVFP4, .out = RONDO_F32, .m = 7, .k = 64, .batch = 2}},
      {.desc = {.weights = RONDO_NVFP4,
                .vectors = RONDO_NVFP4,
                .out = RONDO_F32,
                .m = 40,
                .k = 2048,
                .count = 5,
                .quantize_from = RONDO_F16}},
      {.desc = {.name = "down",
                .weights = RONDO_NVFP4,
                .vectors = RONDO_NVFP4,
                .out = RONDO_BF16,
                .m = 12,
                .k = 80,
                .batch = 2,
                .count = 16,
                .scale = 3,
                .quantize_from = RONDO_F32,
                .quantize_scale = 0.37f}},
      {.desc = {.weights = RONDO_NVFP4,
                .vectors = RONDO_NVFP4,
                .out = RONDO_F16,
                .m = 1,
                .k = 16,
                .quantize_from = RONDO_BF16,
                .quantize_scale = 0x1p-6f}},
      {.desc = {.weights = RONDO_NVFP4, .vectors = RONDO_BF16, .out = RONDO_F32, .m = 3, .k = 0}},
      {.desc = {.weights = RONDO_F16, .vectors = RONDO_F16, .out = RONDO_F32, .m = 0, .k = 8, .batch = 2}},
  };
  const int count = 12;
  struct trial trial;
  struct random random = {.state = 11};
  trial_describe(&trial, backend);
  for (int i = 0; i < count; i++) product_add(&trial, &products[i], &random);
  trial_instantiate(&trial);
  for (int i = 0; i < count; i++) product_set(&trial, &products[i]);
  trial_replay(&trial);
  for (int i = 0; i < count; i++) {
    product_check(&trial, &products[i], i);
    free(products[i].weights);
    free(products[i].weight_scales);
    free(products[i].vectors);
    free(products[i].vector_scales);
    free(products[i].out);
  }
  trial_end(&trial);
}
BOTH_BACKENDS(graph_gemv, the_product_matches_fp64, check_graphs)

Test(graph_gemv, what_does_not_fit_is_refused_before_anything_is_added) {
  const rondo_graph_gemv_desc good = {
      .weights = RONDO_NVFP4, .vectors = RONDO_NVFP4, .out = RONDO_F16, .m = 4, .k = 32, .quantize_from = RONDO_F32};
  rondo_graph_gemv_desc bad = good;
  rondo_graph_gemv_tensors tensors;
  struct trial trial;
  rondo_plan empty, plan;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  REQUIRE_OK(rondo_plan_graph(trial.graph, &empty));
#define REFUSED(fragment)                                                                                              \
  REQUIRE_ERROR(rondo_graph_gemv(trial.graph, &bad, &tensors), RONDO_INVALID_ARGUMENT, fragment);                      \
  bad = good
  REQUIRE_ERROR(rondo_graph_gemv(trial.graph, NULL, &tensors), RONDO_INVALID_ARGUMENT, "description is NULL");
  REQUIRE_ERROR(rondo_graph_gemv(trial.graph, &good, NULL), RONDO_INVALID_ARGUMENT, "address is NULL");
  bad.weights = RONDO_F32;
  REFUSED("rondo_graph_gemv: task 1 'gemv': weights are f32, expected f16, bf16, e4m3 or nvfp4 (weights: constant "
          "'gemv weights')");
  bad.weights = RONDO_F16;
  REFUSED("vectors are nvfp4, expected f16 with weights in f16");
  bad.weights = RONDO_E4M3;
  REFUSED("vectors are nvfp4, expected f16 or bf16 with weights in e4m3");
  bad.vectors = RONDO_F32;
  REFUSED("rondo_graph_gemv: vectors is f32, expected nvfp4 to quantise to");
  bad.vectors = RONDO_F16;
  REFUSED("vectors is f16, expected nvfp4 to quantise to");
  bad.out = RONDO_NVFP4;
  REFUSED("out has rows of 4, expected a multiple of 16 in nvfp4");
  bad.quantize_from = RONDO_F64;
  REFUSED("task 0 'gemv quantize': x is f64, expected f32, f16 or bf16 (x: input 'gemv vectors')");
  bad.row_scales = 1;
  REFUSED("weight_scales is [4] f32, expected [4, 2] e4m3 (weight_scales: constant 'gemv row scales')");
  bad.m = -1;
  REFUSED("tensor 'gemv weights': dimension 0 is -1");
  bad.k = 40;
  REFUSED("x has rows of 40, expected a multiple of 16");
  bad.count = 17;
  REFUSED("vectors are 17, expected 1 to 16");
  bad.scale = INFINITY;
  REFUSED("is inf, expected a finite number");
  bad.quantize_scale = -1;
  REFUSED("task 0 'gemv quantize': global_scale is -1, expected a positive number");
  bad.quantize_from = 0, bad.quantize_scale = 2;
  REFUSED("quantize_scale is 2 without quantize_from");
#undef REFUSED
  REQUIRE_OK(rondo_plan_graph(trial.graph, &plan));
  cr_assert(!memcmp(&plan, &empty, sizeof plan), "a refused description left tensors behind");
  REQUIRE_OK(rondo_graph_gemv(trial.graph, &good, &tensors));
  rondo_task task;
  REQUIRE_OK(rondo_last_task(trial.graph, &task));
  cr_assert_eq(task, 1, "a quantisation, then the product");
  trial_end(&trial);
}

/* All that a decoder's gate and up products have around them, in one task. */
static void check_extras(rondo_backend backend) {
  enum { M = 64, K = 96, COUNT = 2 };
  const rondo_graph_gemv_desc desc = {.weights = RONDO_NVFP4,
                                      .vectors = RONDO_BF16,
                                      .out = RONDO_F32,
                                      .m = M,
                                      .k = K,
                                      .count = COUNT,
                                      .scale = 0.01f,
                                      .weight_scale_layout = RONDO_SCALES_128X4,
                                      .one_order = 1,
                                      .norm_epsilon = 0.5f,
                                      .bias = RONDO_F32,
                                      .silu_mul = 1,
                                      .residual = RONDO_F16};
  rondo_graph_gemv_tensors t;
  struct trial trial;
  struct random random = {.state = 17};
  trial_describe(&trial, backend);
  REQUIRE_OK(rondo_graph_gemv(trial.graph, &desc, &t));
  uint8_t *weights = random_data(t.weights, RONDO_NVFP4, &random), scales[128 * 8], *x, *norm, *residual;
  uint64_t scale_bytes;
  REQUIRE_OK(rondo_tensor_bytes(t.weight_scales, &scale_bytes));
  cr_assert_eq(scale_bytes, sizeof scales);
  memset(scales, 0x38, sizeof scales); /* 1 */
  float *bias = random_data(t.bias, RONDO_F32, &random), out[COUNT][M / 2];
  x = random_data(t.vectors, RONDO_BF16, &random), norm = random_data(t.norm, RONDO_BF16, &random);
  residual = random_data(t.residual, RONDO_F16, &random);
  trial_instantiate(&trial);
  trial_set(&trial, t.weights, weights), trial_set(&trial, t.weight_scales, scales);
  trial_set(&trial, t.vectors, x), trial_set(&trial, t.norm, norm);
  trial_set(&trial, t.bias, bias), trial_set(&trial, t.residual, residual);
  trial_replay(&trial);
  trial_get(&trial, t.out, out);
  for (int64_t v = 0; v < COUNT; v++) {
    double squares = 0, sums[M] = {0};
    for (int64_t i = 0; i < K; i++) {
      double element = oracle_read(RONDO_BF16, x, v * K + i);
      double normed = oracle_bf16(oracle_to_bf16(element * oracle_read(RONDO_BF16, norm, i)));
      squares += element * element;
      for (int64_t r = 0; r < M; r++) sums[r] += oracle_read(RONDO_NVFP4, weights, r * K + i) * normed;
    }
    double factor = 0.01 / sqrt(squares / K + 0.5);
    for (int64_t c = 0; c < M / 2; c++) {
      double gate = sums[2 * c] * factor + (double)bias[2 * c], up = sums[2 * c + 1] * factor + (double)bias[2 * c + 1];
      double expected = gate / (1 + exp(-gate)) * up + oracle_read(RONDO_F16, residual, v * (M / 2) + c);
      cr_assert(fabs((double)out[v][c] - expected) <= 1e-5, "vector %d column %d: %g, expected %g", (int)v, (int)c,
                (double)out[v][c], expected);
    }
  }
  free(weights), free(x), free(norm), free(bias), free(residual);
  trial_end(&trial);
}
BOTH_BACKENDS(graph_gemv, norm_bias_gates_and_residual_are_one_task, check_extras)

Test(graph_gemv, nvfp4_results_bring_their_scales) {
  const rondo_graph_gemv_desc desc = {.weights = RONDO_NVFP4,
                                      .vectors = RONDO_NVFP4,
                                      .out = RONDO_NVFP4,
                                      .m = 96,
                                      .k = 64,
                                      .batch = 3,
                                      .count = 2,
                                      .vector_scale_layout = RONDO_SCALES_128X4,
                                      .silu_mul = 1};
  rondo_graph_gemv_tensors t;
  struct trial trial;
  uint64_t out_bytes, scale_bytes, vector_scale_bytes;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  REQUIRE_OK(rondo_graph_gemv(trial.graph, &desc, &t));
  REQUIRE_OK(rondo_tensor_bytes(t.out, &out_bytes));
  REQUIRE_OK(rondo_tensor_bytes(t.out_scales, &scale_bytes));
  REQUIRE_OK(rondo_tensor_bytes(t.vector_scales, &vector_scale_bytes));
  cr_assert_eq(out_bytes, 144);
  cr_assert_eq(scale_bytes, 18);
  cr_assert_eq(vector_scale_bytes, 1536);
  cr_assert(!t.norm.graph && !t.bias.graph && !t.residual.graph);
  trial_end(&trial);
}
