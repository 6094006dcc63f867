/* test_gemv_head_values.c - products of one vector with many short rows in NVFP4 (gemv_head_plan.c): vectors far from
 * 1, NaN, infinities, zeros and the largest numbers, and replays. Every result is checked against fp64.
 *
 * The host takes them one way whatever their size, so there they have few rows. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/gemv/gemv_plan.h"
#include "../../runtime/plan.h"
#include "../oracles/gemv_oracle.h"

enum { REPLAYS = 20, SETS = 2, HOST_ROWS = 64 };

/* Of an H200, a block of which has 256 to 512 rows. */
static const struct problem ones[] = {
    {.vectors_dtype = RONDO_NVFP4, .m = 49152, .k = 576},
    {.vectors_dtype = RONDO_NVFP4, .m = 33801, .k = 416, .scale = 0.3f},
    {.vectors_dtype = RONDO_NVFP4, .m = 67583, .k = 544, .blocked_vectors = true},
    {.vectors_dtype = RONDO_NVFP4, .batch = 132, .m = 259, .k = 768},
    {.vectors_dtype = RONDO_F16, .m = 50257, .k = 768},
    {.vectors_dtype = RONDO_F16, .batch = 2, .m = 17011, .k = 512},
    {.vectors_dtype = RONDO_BF16, .m = 34999, .k = 416, .vector_size = 0x1p60},
    {.vectors_dtype = RONDO_BF16, .m = 36011, .k = 448, .vector_size = 0x1p-120, .scale = 0x1p80f},
    {.vectors_dtype = RONDO_BF16, .m = 35333, .k = 1024},
};
enum { ONES = sizeof ones / sizeof ones[0] };

static struct problem problem_of(rondo_backend backend, int index) {
  static const rondo_dtype outs_in_turn[] = {RONDO_F32, RONDO_BF16, RONDO_F16};
  struct problem p = ones[index];
  p.weights_dtype = RONDO_NVFP4, p.count = 1;
  /* bf16 where numbers may be far from 1 */
  if (!p.out_dtype) p.out_dtype = p.vector_size > 1 ? RONDO_F32 : outs_in_turn[index % 3];
  if (backend == RONDO_BACKEND_HOST) p.m = HOST_ROWS + p.m % 32;
  return p;
}

/* Of the graph's first task, on an H200. */
static void require_head(const struct trial *trial) {
  struct op_operand operands[OP_MAX_OPERANDS];
  struct op_launches launches;
  struct op_task task = graph_op_task(trial->graph, &trial->graph->tasks[0], operands);
  REQUIRE_OK(task.op->select(&(struct op_call){.task = &task, .data = op_nowhere}, &(struct chip){90, 132, 232448},
                             &launches));
  cr_assert_str_eq(launches.items[0].kernel, "rondo_gemv_head_nvfp4_q1");
}

static void check_values(rondo_backend backend) {
  for (int i = 0; i < ONES; i++) {
    struct problem problem = problem_of(backend, i);
    struct trial trial;
    problems_begin(&trial, backend, &problem, 1);
    if (backend == RONDO_BACKEND_CUDA) require_head(&trial);
    problems_run(&trial, &problem, 1);
    problems_end(&trial, &problem, 1);
  }
}
BOTH_BACKENDS(gemv_head_values, many_short_rows_match_fp64, check_values)

/* Without a GPU too. */
Test(gemv_head_values, each_size_goes_to_the_kernel_of_short_rows) {
  for (int i = 0; i < ONES; i++) {
    struct problem problem = problem_of(RONDO_BACKEND_CUDA, i);
    struct trial trial;
    trial_describe(&trial, RONDO_BACKEND_HOST);
    problem_add(&trial, &problem);
    require_head(&trial);
    problem_end(&problem);
    trial_end(&trial);
  }
}

/* ---- Values that are the difficulty -------------------------------------------------------------------------------
 */

enum special_row {
  NAN_SCALE,
  LAST_NAN_SCALE,
  NEGATIVE_ZEROS,
  NEGATIVE_ZERO_SCALES,
  LARGEST,
  NEGATIVE_SCALES,
  SPECIALS
};

static void fill_special(struct problem *p, int64_t row, int kind) {
  const int64_t row_bytes = p->k / 2, blocks = p->k / 16;
  uint8_t *codes = (uint8_t *)p->weights.data + row * row_bytes, *scales = p->weight_scales.data;
  scales += row * blocks;
  if (kind == NAN_SCALE) scales[row % blocks] = 0x7f;
  if (kind == LAST_NAN_SCALE) scales[blocks - 1] = 0xff, memset(codes, 0x80, (size_t)row_bytes);
  if (kind == NEGATIVE_ZEROS) memset(codes, 0x88, (size_t)row_bytes);
  if (kind == NEGATIVE_ZERO_SCALES) memset(scales, 0x80, (size_t)blocks);
  if (kind < LARGEST) return;
  memset(codes, 0x77, (size_t)row_bytes); /* 6 */
  memset(scales, kind == LARGEST ? 0x7e : 0xfe, (size_t)blocks);
}

/* Every 37th row is special; the oracle says of it and of those beside it what is right. The largest f16 or bf16 in
 * front, whose sums are finite: all of the first two blocks' codes are 0. */
static void check_special(rondo_backend backend, int index) {
  struct problem p = problem_of(backend, index);
  struct trial trial;
  p.out_dtype = RONDO_F32, p.vector_size = 0;
  problems_begin(&trial, backend, &p, 1);
  for (int64_t row = 0; row < p.m; row += 37) fill_special(&p, row, (int)(row / 37 % SPECIALS));
  if (p.vectors_dtype != RONDO_NVFP4) {
    for (int64_t row = 0; row < p.m; row++) memset((uint8_t *)p.weights.data + row * p.k / 2, 0, 16);
    oracle_write(p.vectors_dtype, p.vectors.data, 5, largest_of(p.vectors_dtype));
  } else {
    memset(p.vectors.data, 0x77, bytes_of(&p.vectors));
    memset(p.vector_scales.data, 0x7e, bytes_of(&p.vector_scales));
  }
  problems_run(&trial, &p, 1);
  problems_end(&trial, &p, 1);
}

/* A vector with an infinity, and one with a NaN. */
static void check_not_finite(rondo_backend backend, int index) {
  for (int i = 0; i < 2; i++) {
    struct problem p = problem_of(backend, index);
    struct trial trial;
    p.vector_size = 0;
    problems_begin(&trial, backend, &p, 1);
    if (p.vectors_dtype == RONDO_NVFP4)
      ((uint8_t *)p.vector_scales.data)[p.k / 16 - 1] = i ? 0x7f : 0xff;
    else
      oracle_write(p.vectors_dtype, p.vectors.data, p.k - 20, i ? INFINITY : NAN);
    problems_run(&trial, &p, 1);
    problems_end(&trial, &p, 1);
  }
}

static void check_all_special(rondo_backend backend) {
  for (int i = 1; i < ONES; i++) {
    check_special(backend, i);
    check_not_finite(backend, i);
  }
}
BOTH_BACKENDS(gemv_head_values, nan_infinity_zeros_and_the_largest_numbers_stay_in_their_rows, check_all_special)

/* ---- Replays ------------------------------------------------------------------------------------------------------
 */

/* Two sets of all operands in turn. `kind` of weights: constants are copied before the tasks in front have ended,
 * inputs are written by them. */
static void check_replays(rondo_backend backend, int index, tensor_kind kind) {
  struct random random = {.state = 51};
  struct problem sets[SETS];
  struct trial trial, unused;
  rondo_gemv_desc desc = {0};
  trial_describe(&unused, backend);
  for (int set = 0; set < SETS; set++) {
    sets[set] = problem_of(backend, index);
    sets[set].out_dtype = RONDO_F32;
    problem_add(&unused, &sets[set]);
    problem_fill(&sets[set], &random);
  }
  struct problem p = sets[0];
  trial_describe(&trial, backend);
  REQUIRE_OK(kind(trial.graph, "codes", RONDO_NVFP4, 2, (int64_t[]){p.m, p.k}, &desc.weights));
  REQUIRE_OK(kind(trial.graph, "scales", RONDO_E4M3, 2, (int64_t[]){p.m, p.k / 16}, &desc.weight_scales));
  REQUIRE_OK(rondo_input(trial.graph, "x", p.vectors_dtype, 2, (int64_t[]){1, p.k}, &desc.vectors));
  if (p.vectors_dtype == RONDO_NVFP4)
    REQUIRE_OK(rondo_input(trial.graph, "x scales", RONDO_E4M3, 2, (int64_t[]){1, p.k / 16}, &desc.vector_scales));
  REQUIRE_OK(rondo_output(trial.graph, "y", RONDO_F32, 2, (int64_t[]){1, p.m}, &desc.out));
  REQUIRE_OK(rondo_add_gemv(trial.graph, &desc));
  trial_instantiate(&trial);
  void *first[SETS] = {malloc(bytes_of(&p.out)), malloc(bytes_of(&p.out))};
  trial_set(&trial, desc.weights, p.weights.data);
  trial_set(&trial, desc.weight_scales, p.weight_scales.data);
  for (int replay = 0; replay < (backend == RONDO_BACKEND_HOST ? 4 : REPLAYS); replay++) {
    struct problem *set = &sets[replay % SETS], used = *set;
    used.weights = sets[kind == rondo_constant ? 0 : replay % SETS].weights;
    used.weight_scales = sets[kind == rondo_constant ? 0 : replay % SETS].weight_scales;
    if (kind != rondo_constant) {
      trial_set(&trial, desc.weights, used.weights.data);
      trial_set(&trial, desc.weight_scales, used.weight_scales.data);
    }
    trial_set(&trial, desc.vectors, set->vectors.data);
    if (set->vector_scales.data) trial_set(&trial, desc.vector_scales, set->vector_scales.data);
    trial_replay(&trial);
    trial_get(&trial, desc.out, set->out.data);
    if (replay < SETS) {
      struct sums *sums = problem_sums(&used);
      check_vector(&used, replay, 0, 0, sums);
      memcpy(first[replay], set->out.data, bytes_of(&p.out));
      free(sums);
    }
    cr_assert(!memcmp(first[replay % SETS], set->out.data, bytes_of(&p.out)), "replay %d differs", replay);
  }
  for (int set = 0; set < SETS; set++) free(first[set]), problem_end(&sets[set]);
  trial_end(&trial);
  trial_end(&unused);
}

static void check_all_replays(rondo_backend backend) {
  static const int cases[] = {0, 4, 8};
  for (int i = 0; i < 3; i++) {
    check_replays(backend, cases[i], rondo_constant);
    check_replays(backend, cases[i], rondo_input);
  }
}
BOTH_BACKENDS(gemv_head_values, replays_have_the_same_bits_and_weights_follow_who_writes_them, check_all_replays)
