/* test_gemv_ring.c - products large enough for the ring (gemv_ring_plan.c), one for each of its kernels and most of its
 * shapes: every result matches fp64, and has the same bits in every replay. A stage that is refilled too early shows
 * only in some replays, and most where the weights are still in L2, as they are here.
 *
 * The host takes them one way whatever their size, so there they have few rows. */
#include "../../kernels/gemv/gemv_plan.h"
#include "../../runtime/plan.h"
#include "test_gemv_oracle.h"

enum { REPLAYS = 100, HOST_ROWS = 64, SAMPLES = 199, SETS = 2 };

struct large {
  rondo_dtype vectors;
  int64_t batch, m, k, count;
  const char *kernel;
};

/* Just large enough. Not all rows divide by blocks or tiles, and not all k by parts. */
static const struct large larges[] = {
    {RONDO_F16, 0, 25003, 2048, 1, "rondo_gemv_ring_f16_blocks_s4"},
    {RONDO_BF16, 4, 2001, 7168, 1, "rondo_gemv_ring_bf16_blocks_s4"},
    {RONDO_BF16, 0, 51301, 4096, 1, "rondo_gemv_ring_bf16_blocks_s4"},
    {RONDO_F16, 0, 3101, 16384, 1, "rondo_gemv_ring_f16_q8_s2"},
    {RONDO_BF16, 0, 3199, 15872, 1, "rondo_gemv_ring_bf16_q8_s2"},
    {RONDO_NVFP4, 8, 3901, 6912, 1, "rondo_gemv_ring_nvfp4_s7"},
    {RONDO_NVFP4, 0, 3601, 14080, 2, "rondo_gemv_ring_nvfp4_q4_s2"},
    {RONDO_NVFP4, 0, 3203, 16128, 2, "rondo_gemv_ring_nvfp4_q4_s4"},
    {RONDO_NVFP4, 0, 14201, 3584, 3, "rondo_gemv_ring_nvfp4_q2_s2"},
    {RONDO_NVFP4, 2, 6203, 4096, 4, "rondo_gemv_ring_nvfp4_q2_s2"},
    {RONDO_NVFP4, 0, 3601, 14336, 4, "rondo_gemv_ring_nvfp4_q2_s4"},
    {RONDO_NVFP4, 4, 2001, 7168, 2, "rondo_gemv_ring_nvfp4_q1_s4"},
    {RONDO_NVFP4, 0, 30011, 4608, 8, "rondo_gemv_ring_nvfp4_q1_s4"},
};
enum { LARGES = sizeof larges / sizeof larges[0] };

static struct problem problem_of(rondo_backend backend, const struct large *large, rondo_dtype out) {
  return (struct problem){.weights_dtype = RONDO_NVFP4,
                          .vectors_dtype = large->vectors,
                          .out_dtype = out,
                          .batch = large->batch,
                          .m = backend == RONDO_BACKEND_HOST ? HOST_ROWS + large->m % 8 : large->m,
                          .k = large->k,
                          .count = large->count};
}

/* All codes; scales that are no NaN. */
static void fill_weights(struct problem *p, struct random *random) {
  struct operand *operands[] = {&p->weights, &p->weight_scales};
  for (int i = 0; i < 2; i++) {
    const uint64_t kept = i ? UINT64_C(0x9f9f9f9f9f9f9f9f) : UINT64_MAX, set = i ? UINT64_C(0x2020202020202020) : 0;
    size_t bytes = bytes_of(operands[i]);
    for (size_t at = 0; at < bytes; at += 8) {
      uint64_t bits = (random_bits(random) & kept) | set;
      memcpy((char *)operands[i]->data + at, &bits, bytes - at < 8 ? bytes - at : 8);
    }
  }
}

static void fill_vectors(struct problem *p, struct random *random) {
  operand_fill(&p->vectors, random, 1, false);
  if (p->vector_scales.data) operand_fill(&p->vector_scales, random, 1, true);
}

/* The first and the last rows of each matrix, and some in between. */
static void check_samples(const struct problem *p, int index) {
  double *weights = calloc((size_t)p->k, sizeof *weights),
         *vectors = calloc((size_t)(p->count * p->k), sizeof *vectors);
  struct sums of_vectors[GEMV_COUNT];
  for (int64_t b = 0; b < batch_of(p); b++) {
    for (int64_t v = 0; v < p->count; v++) {
      decode_row(&p->vectors, &p->vector_scales, b, v, vectors + v * p->k);
      of_vectors[v] = sums_of_vector(p, vectors + v * p->k);
    }
    for (int64_t i = 0; i < SAMPLES; i++) {
      int64_t row = i < 40 ? i : i < 80 ? p->m - 1 - (i - 40) : i * 7919 % p->m;
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

/* Of the graph's task `index`, on an H200. */
static void require_kernel(const struct trial *trial, uint32_t index, const char *kernel) {
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_launches launches;
  struct op_task task = graph_op_task(trial->graph, &trial->graph->tasks[index], operands);
  REQUIRE_OK(task.op->select(&(struct op_call){.task = &task, .data = op_nowhere}, &(struct chip){90, 132, 232448},
                             &launches));
  cr_assert_str_eq(launches.items[0].kernel, kernel);
}

/* ---- Values and bits ----------------------------------------------------------------------------------------------
 */

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

static void check_values(rondo_backend backend) {
  struct random random = {.state = 21};
  for (int i = 0; i < LARGES; i++) {
    struct trial trial;
    struct problem problem = problem_of(backend, &larges[i], outs[i % 3]);
    trial_describe(&trial, backend);
    problem_add(&trial, &problem);
    if (backend == RONDO_BACKEND_CUDA) require_kernel(&trial, 0, larges[i].kernel);
    fill_weights(&problem, &random);
    fill_vectors(&problem, &random);
    trial_instantiate(&trial);
    problem_set(&trial, &problem);
    check_replays(&trial, &problem, i);
    problem_end(&problem);
    trial_end(&trial);
  }
}
BOTH_BACKENDS(gemv_ring, large_products_match_fp64_with_the_same_bits_in_every_replay, check_values)

/* Without a GPU too: the sizes above are those of the kernels that they are to test. */
Test(gemv_ring, each_kernel_has_a_size_here_that_it_is_chosen_for) {
  for (int i = 0; i < LARGES; i++) {
    struct trial trial;
    struct problem problem = problem_of(RONDO_BACKEND_CUDA, &larges[i], RONDO_F32);
    trial_describe(&trial, RONDO_BACKEND_HOST);
    problem_add(&trial, &problem);
    require_kernel(&trial, 0, larges[i].kernel);
    problem_end(&problem);
    trial_end(&trial);
  }
#define IS_THERE(chips, parameters, name, ...)                                                                         \
  for (int i = 0, there = 0; !there; i++) {                                                                            \
    cr_assert_lt(i, LARGES, "no size for " #name);                                                                     \
    there = !strcmp(larges[i].kernel, #name);                                                                          \
  }
  GEMV_RING_KERNELS(IS_THERE)
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

/* A task in front writes the weights in every replay, others each time. */
static void check_written(rondo_backend backend, const struct large *large) {
  struct random random = {.state = 31};
  struct problem sets[SETS];
  struct trial trial, unused;
  rondo_tensor codes, scales;
  trial_describe(&unused, backend);
  for (int set = 0; set < SETS; set++) {
    sets[set] = problem_of(backend, large, RONDO_F32);
    problem_add(&unused, &sets[set]);
    fill_weights(&sets[set], &random);
    fill_vectors(&sets[set], &random);
  }
  trial_describe(&trial, backend);
  struct problem p = sets[0];
  rondo_gemv_desc desc = {.weights = copied(&trial, "codes", RONDO_NVFP4, p.m, p.k, &codes),
                          .weight_scales = copied(&trial, "scales", RONDO_E4M3, p.m, p.k / 16, &scales)};
  REQUIRE_OK(rondo_input(trial.graph, "x", p.vectors_dtype, 2, (int64_t[]){p.count, p.k}, &desc.vectors));
  if (p.vectors_dtype == RONDO_NVFP4)
    REQUIRE_OK(
        rondo_input(trial.graph, "x scales", RONDO_E4M3, 2, (int64_t[]){p.count, p.k / 16}, &desc.vector_scales));
  REQUIRE_OK(rondo_output(trial.graph, "y", RONDO_F32, 2, (int64_t[]){p.count, p.m}, &desc.out));
  REQUIRE_OK(rondo_add_gemv(trial.graph, &desc));
  if (backend == RONDO_BACKEND_CUDA) require_kernel(&trial, 2, large->kernel);
  trial_instantiate(&trial);
  for (int replay = 0; replay < (backend == RONDO_BACKEND_HOST ? 4 : 16); replay++) {
    struct problem *set = &sets[replay % SETS];
    trial_set(&trial, codes, set->weights.data);
    trial_set(&trial, scales, set->weight_scales.data);
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

static void check_all_written(rondo_backend backend) {
  check_written(backend, &larges[0]);
  check_written(backend, &larges[6]);
  check_written(backend, &larges[8]);
}
BOTH_BACKENDS(gemv_ring, weights_follow_the_task_that_writes_them, check_all_written)

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
 * by a task behind it. */
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

static void check_finished(rondo_backend backend, struct large large) {
  struct random random = {.state = 41};
  struct trial trial;
  large.m = backend == RONDO_BACKEND_HOST ? (int64_t)2 * HOST_ROWS : large.m / 32 * 32 + 32;
  struct problem p = problem_of(RONDO_BACKEND_CUDA, &large, RONDO_F32);
  p.vector_size = 0x1p-8;
  trial_describe(&trial, backend);
  problem_add(&trial, &p);
  struct finished f = describe_finished(&trial, &p);
  for (uint32_t task = 0; task < 4 && backend == RONDO_BACKEND_CUDA; task++) require_kernel(&trial, task, large.kernel);
  fill_weights(&p, &random);
  fill_vectors(&p, &random);
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

/* So many rows that blocks of 32 fill their waves, or the ring would not be taken for the gated result in NVFP4. */
static void check_all_finished(rondo_backend backend) {
  static const struct {
    int large;
    int64_t m;
  } cases[] = {{0, 25003}, {3, 264 * 32 - 1}, {8, 264 * 64 - 33}, {12, 132 * 224 - 1}};
  for (int i = 0; i < 4; i++) {
    struct large large = larges[cases[i].large];
    large.m = cases[i].m;
    check_finished(backend, large);
  }
}
BOTH_BACKENDS(gemv_ring, what_is_done_to_results_is_done_to_all_of_them, check_all_finished)
