/* gemv_large.c - see gemv_large.h. */
#include "gemv_large.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/graph.h"
#include "../../runtime/plan.h"

enum { REPLAYS = 100, HOST_ROWS = 64, SAMPLES = 199, SETS = 2 };

static rondo_dtype weights_of(const struct large *large) {
  return large->with & IN_16_BITS ? large->vectors : large->with & IN_E4M3 ? RONDO_E4M3 : RONDO_NVFP4;
}

struct problem problem_of(rondo_backend backend, const struct large *large, rondo_dtype out) {
  return (struct problem){.weights_dtype = weights_of(large),
                          .row_scales = large->with & IN_E4M3,
                          .vectors_dtype = large->vectors,
                          .out_dtype = out,
                          .batch = large->batch,
                          .m = backend == RONDO_BACKEND_HOST ? HOST_ROWS + large->m % 8 : large->m,
                          .k = large->k,
                          .count = large->count,
                          .padded = large->with & PADDED,
                          .norm_epsilon = large->with & NORMALISED ? 1e-5f : 0,
                          .norm = large->with & NORMALISED};
}

/* All codes of NVFP4; e4m3 that is no NaN; f16 between 1/8 and 2, bf16 between 1/8 and 1/2. */
static void fill_operand(struct operand *o, struct random *random) {
  uint64_t kept = UINT64_MAX, set = 0;
  if (o->dtype == RONDO_E4M3) kept = UINT64_C(0x9f9f9f9f9f9f9f9f), set = UINT64_C(0x2020202020202020);
  if (o->dtype == RONDO_F16) kept = UINT64_C(0x8fff8fff8fff8fff), set = UINT64_C(0x3000300030003000);
  if (o->dtype == RONDO_BF16) kept = UINT64_C(0x80ff80ff80ff80ff), set = UINT64_C(0x3e003e003e003e00);
  const size_t bytes = bytes_of(o);
  for (size_t at = 0; at < bytes; at += 8) {
    uint64_t bits = (random_bits(random) & kept) | set;
    memcpy((char *)o->data + at, &bits, bytes - at < 8 ? bytes - at : 8);
  }
}

void fill_weights(struct problem *p, struct random *random) {
  if (p->norm) operand_fill(&p->norm_weights, random, 1, false);
  if (p->row_scales) operand_fill(&p->weight_scales, random, 1, false);
  fill_operand(&p->weights, random);
  if (p->weights_dtype == RONDO_NVFP4) fill_operand(&p->weight_scales, random);
}

void fill_vectors(struct problem *p, struct random *random) {
  operand_fill(&p->vectors, random, 1, false);
  if (p->vector_scales.data) operand_fill(&p->vector_scales, random, 1, true);
}

void check_samples(const struct problem *p, int index) {
  double *weights = calloc((size_t)p->k, sizeof *weights),
         *vectors = calloc((size_t)(p->count * p->k), sizeof *vectors);
  struct sums of_vectors[GEMV_COUNT];
  for (int64_t b = 0; b < batch_of(p); b++) {
    for (int64_t v = 0; v < p->count; v++) {
      decode_row(&p->vectors, &p->vector_scales, b, v, vectors + v * p->k);
      of_vectors[v] = sums_of_vector(p, vectors + v * p->k);
    }
    for (int64_t i = 0; i < SAMPLES; i++) {
      int64_t row = i < 40 ? i % p->m : i < 80 ? p->m - 1 - (i - 40) % p->m : i * 7919 % p->m;
      decode_row(&p->weights, &p->weight_scales, b, row, weights);
      for (int64_t v = 0; v < p->count; v++) {
        struct sums sums = sums_of_row(of_vectors[v], weights, vectors + v * p->k, p->k);
        check_number(p, index, b, v, row, product_of(p, b, row, &sums), element_of(&p->out, b, v, row));
      }
    }
  }
  free(vectors);
  free(weights);
}

void require_kernel(const struct trial *trial, uint32_t index, const char *kernel) {
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_launches launches;
  struct op_task task = graph_op_task(trial->graph, &trial->graph->tasks[index], operands);
  REQUIRE_OK(task.op->select(&(struct op_call){.task = &task, .data = op_nowhere}, &(struct chip){90, 132, 232448},
                             &launches));
  cr_assert_str_eq(launches.items[0].kernel, kernel);
}

/* Of constant weights, which are copied early. Two sets of vectors in turn, so that what one replay leaves in shared
 * memory is wrong for the next. */
static void check_replays(struct trial *trial, struct problem *p, int index) {
  struct random random = {.state = 77};
  size_t bytes = bytes_of(&p->out);
  void *first[SETS] = {malloc(bytes), malloc(bytes)};
  int replays = trial->backend == RONDO_BACKEND_HOST ? 4 : REPLAYS;
  for (int replay = 0; replay < replays; replay++) {
    int set = replay % SETS;
    random.state = 77 + (uint64_t)set;
    fill_vectors(p, &random);
    trial_set(trial, p->vectors.whole, p->vectors.data);
    if (p->vector_scales.data) trial_set(trial, p->vector_scales.whole, p->vector_scales.data);
    trial_replay(trial);
    trial_get(trial, p->out.whole, p->out.data);
    if (replay < SETS) {
      memcpy(first[set], p->out.data, bytes);
      check_samples(p, index);
    }
    cr_assert(!memcmp(first[set], p->out.data, bytes), "problem %d: replay %d differs", index, replay);
  }
  cr_assert(memcmp(first[0], first[1], bytes), "both sets give the same");
  for (int set = 0; set < SETS; set++) free(first[set]);
}

void check_large(rondo_backend backend, const struct large *large, int index) {
  struct random random = {.state = 21};
  struct trial trial;
  struct problem problem = problem_of(backend, large, outs[index % 3]);
  trial_describe(&trial, backend);
  problem_add(&trial, &problem);
  if (backend == RONDO_BACKEND_CUDA) require_kernel(&trial, 0, large->kernel);
  fill_weights(&problem, &random);
  fill_vectors(&problem, &random);
  trial_instantiate(&trial);
  problem_set(&trial, &problem);
  check_replays(&trial, &problem, index);
  problem_end(&problem);
  trial_end(&trial);
}

void check_chosen(const struct large *large) {
  struct trial trial;
  struct problem problem = problem_of(RONDO_BACKEND_CUDA, large, RONDO_F32);
  trial_describe(&trial, RONDO_BACKEND_HOST);
  problem_add(&trial, &problem);
  require_kernel(&trial, 0, large->kernel);
  problem_end(&problem);
  trial_end(&trial);
}

void require_size(const struct large *sizes, int count, const char *kernel, rondo_dtype vectors) {
  for (int i = 0; i < count; i++)
    if (!strcmp(sizes[i].kernel, kernel) && sizes[i].vectors == vectors) return;
  cr_assert_fail("no size for %s with vectors in %s", kernel, rondo_dtype_name(vectors));
}

/* ---- Weights that are written -------------------------------------------------------------------------------------
 */

static rondo_tensor copied(struct trial *trial, const char *name, rondo_dtype dtype, int64_t rows, int64_t columns,
                           rondo_tensor *from) {
  rondo_tensor to;
  int64_t shape[] = {rows, columns};
  REQUIRE_OK(rondo_input(trial->graph, name, dtype, 2, shape, from));
  REQUIRE_OK(rondo_state(trial->graph, name, dtype, 2, shape, &to));
  REQUIRE_OK(rondo_add_copy(trial->graph, &(rondo_copy_desc){.src = *from, .dst = to}));
  return to;
}

void check_written(rondo_backend backend, const struct large *large) {
  struct random random = {.state = 31};
  struct problem sets[SETS];
  struct trial trial, unused;
  rondo_tensor codes, scales = {0};
  trial_describe(&unused, backend);
  for (int set = 0; set < SETS; set++) {
    sets[set] = problem_of(backend, large, RONDO_F32);
    problem_add(&unused, &sets[set]);
    fill_weights(&sets[set], &random);
    fill_vectors(&sets[set], &random);
  }
  trial_describe(&trial, backend);
  struct problem p = sets[0];
  const bool has_scales = p.weights_dtype == RONDO_NVFP4;
  rondo_gemv_desc desc = {.weights = copied(&trial, "weights", p.weights_dtype, p.m, p.k, &codes)};
  if (has_scales) desc.weight_scales = copied(&trial, "scales", RONDO_E4M3, p.m, p.k / 16, &scales);
  REQUIRE_OK(rondo_input(trial.graph, "x", p.vectors_dtype, 2, (int64_t[]){p.count, p.k}, &desc.vectors));
  if (p.vectors_dtype == RONDO_NVFP4)
    REQUIRE_OK(
        rondo_input(trial.graph, "x scales", RONDO_E4M3, 2, (int64_t[]){p.count, p.k / 16}, &desc.vector_scales));
  REQUIRE_OK(rondo_output(trial.graph, "y", RONDO_F32, 2, (int64_t[]){p.count, p.m}, &desc.out));
  REQUIRE_OK(rondo_add_gemv(trial.graph, &desc));
  if (backend == RONDO_BACKEND_CUDA) require_kernel(&trial, has_scales ? 2 : 1, large->kernel);
  trial_instantiate(&trial);
  for (int replay = 0; replay < (backend == RONDO_BACKEND_HOST ? 4 : 16); replay++) {
    struct problem *set = &sets[replay % SETS];
    trial_set(&trial, codes, set->weights.data);
    if (has_scales) trial_set(&trial, scales, set->weight_scales.data);
    trial_set(&trial, desc.vectors, set->vectors.data);
    if (set->vector_scales.data) trial_set(&trial, desc.vector_scales, set->vector_scales.data);
    trial_replay(&trial);
    trial_get(&trial, desc.out, set->out.data);
    check_samples(set, replay);
  }
  for (int set = 0; set < SETS; set++) problem_end(&sets[set]);
  trial_end(&trial);
  trial_end(&unused);
}

/* ---- What is done to the results ----------------------------------------------------------------------------------
 */

struct finished {
  rondo_tensor plain, bias, residual, pairs, codes, scales, again, again_scales;
  int64_t m, count;
};

static rondo_tensor matrix(struct trial *trial, const char *name, rondo_dtype dtype, int64_t rows, int64_t columns) {
  rondo_tensor tensor;
  REQUIRE_OK(rondo_output(trial->graph, name, dtype, 2, (int64_t[]){rows, columns}, &tensor));
  return tensor;
}

/* The product as it is; silu(gate) * up of it with a bias and a residual; and that in NVFP4, by the product itself and
 * by a task after it. */
static struct finished describe_finished(struct trial *trial, const struct problem *p) {
  struct finished f = {.m = p->m / 2, .count = p->count};
  rondo_gemv_desc desc = problem_desc(p);
  desc.out = f.plain = matrix(trial, "plain", RONDO_F32, f.count, p->m);
  REQUIRE_OK(rondo_add_gemv(trial->graph, &desc));
  desc.silu_mul = 1;
  REQUIRE_OK(rondo_input(trial->graph, "bias", RONDO_F32, 1, (int64_t[]){p->m}, &f.bias));
  REQUIRE_OK(rondo_input(trial->graph, "residual", RONDO_F32, 2, (int64_t[]){f.count, f.m}, &f.residual));
  desc.bias = f.bias, desc.residual = f.residual;
  desc.out = f.pairs = matrix(trial, "pairs", RONDO_F32, f.count, f.m);
  REQUIRE_OK(rondo_add_gemv(trial->graph, &desc));
  desc.out = f.codes = matrix(trial, "codes", RONDO_NVFP4, f.count, f.m);
  desc.out_scales = f.scales = matrix(trial, "scales", RONDO_E4M3, f.count, f.m / 16);
  REQUIRE_OK(rondo_add_gemv(trial->graph, &desc));
  f.again = matrix(trial, "again", RONDO_NVFP4, f.count, f.m);
  f.again_scales = matrix(trial, "again scales", RONDO_E4M3, f.count, f.m / 16);
  REQUIRE_OK(rondo_add_quantize_nvfp4(
      trial->graph, &(rondo_quantize_nvfp4_desc){.x = f.pairs, .codes = f.again, .scales = f.again_scales}));
  return f;
}

static void check_pairs(struct trial *trial, const struct finished *f, const float *bias, const float *residual) {
  const float *plain = trial_output(trial, f->plain), *pairs = trial_output(trial, f->pairs);
  for (int64_t v = 0; v < f->count; v++)
    for (int64_t i = 0; i < f->m; i++) {
      const float *of = plain + v * 2 * f->m + 2 * i;
      double gate = (double)of[0] + (double)bias[2 * i], up = (double)of[1] + (double)bias[2 * i + 1];
      double product = gate / (1 + exp(-gate)) * up, expected = product + (double)residual[v * f->m + i];
      double got = (double)pairs[v * f->m + i];
      cr_assert(fabs(got - expected) <= 0x1p-19 * (fabs(product) + fabs(up) + fabs(expected)) + 1e-30,
                "vector %d column %d: %.9g, expected %.9g", (int)v, (int)i, got, expected);
    }
}

/* Ones for scales, so that all sums are exact: kernels for results that are finished may add in another order. */
static void fill_exactly(struct problem *p, struct random *random) {
  struct operand *operands[] = {&p->weights, &p->vectors};
  memset(p->weight_scales.data, 0x38, bytes_of(&p->weight_scales));
  if (p->vector_scales.data) memset(p->vector_scales.data, 0x38, bytes_of(&p->vector_scales));
  for (int i = 0; i < 2; i++)
    for (int64_t at = 0, end = (int64_t)bytes_of(operands[i]); at < end; at++)
      if (operands[i]->dtype == RONDO_NVFP4)
        ((uint8_t *)operands[i]->data)[at] = (uint8_t)random_bits(random);
      else if (at % 2 == 0)
        oracle_write(operands[i]->dtype, operands[i]->data, at / 2, (double)random_between(random, -12, 12) / 2);
}

void check_finished(rondo_backend backend, struct large large, const char *gating, const char *quantising) {
  struct random random = {.state = 41};
  struct trial trial;
  large.m = backend == RONDO_BACKEND_HOST ? (int64_t)2 * HOST_ROWS : large.m / 32 * 32 + 32;
  struct problem p = problem_of(RONDO_BACKEND_CUDA, &large, RONDO_F32);
  p.scale = 0x1p-10f;
  trial_describe(&trial, backend);
  problem_add(&trial, &p);
  struct finished f = describe_finished(&trial, &p);
  for (uint32_t task = 0; task < 4 && backend == RONDO_BACKEND_CUDA; task++)
    require_kernel(&trial, task, task < 2 ? large.kernel : task == 2 ? gating : quantising);
  fill_exactly(&p, &random);
  float *bias = malloc((size_t)p.m * sizeof(float)), *residual = malloc((size_t)(f.count * f.m) * sizeof(float));
  for (int64_t i = 0; i < p.m; i++) bias[i] = (float)random_normal(&random);
  for (int64_t i = 0; i < f.count * f.m; i++) residual[i] = (float)random_normal(&random);
  trial_instantiate(&trial);
  problem_set(&trial, &p);
  trial_set(&trial, f.bias, bias);
  trial_set(&trial, f.residual, residual);
  trial_replay(&trial);
  trial_get(&trial, p.out.whole, p.out.data);
  check_samples(&p, 0);
  cr_assert(!memcmp(trial_output(&trial, f.plain), p.out.data, bytes_of(&p.out)), "the same product twice differs");
  check_pairs(&trial, &f, bias, residual);
  size_t blocks = (size_t)(f.count * f.m / 16);
  cr_assert(!memcmp(trial_output(&trial, f.codes), trial_output(&trial, f.again), 8 * blocks));
  cr_assert(!memcmp(trial_output(&trial, f.scales), trial_output(&trial, f.again_scales), blocks));
  free(residual);
  free(bias);
  problem_end(&p);
  trial_end(&trial);
}
