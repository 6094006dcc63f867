/* test_gemv_finish.c - what a product with vectors does besides, against fp64: the norm of x, bias, silu(gate) * up,
 * residual, NVFP4 results and blocked scales, alone and in pairs. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../../runtime/graph.h"
#include "../oracles/gemv_oracle.h"
#include "../oracles/quantize_oracle.h"

/* ---- All of it, alone and in pairs ------------------------------------------------------------------------------- */

enum feature {
  NORM,
  NORM_WEIGHTS,
  BIAS_F32,
  BIAS_OF_OUT,
  SILU_MUL,
  RESIDUAL,
  IN_PLACE,
  QUANTISED,
  BLOCKED_WEIGHTS,
  BLOCKED_VECTORS,
  ONE_ORDER,
  FEATURES
};

/* False where the types have no such thing, or what is there already excludes it. QUANTISED comes before IN_PLACE. */
static bool apply(struct problem *p, enum feature feature) {
  bool quantised = p->out_dtype == RONDO_NVFP4;
  switch (feature) {
  case NORM:
  case NORM_WEIGHTS:
    p->norm_epsilon = feature == NORM ? 1e-5f : 0.25f;
    p->norm = feature == NORM_WEIGHTS || p->norm;
    return p->vectors_dtype != RONDO_NVFP4;
  case BIAS_F32:
    p->bias_dtype = RONDO_F32;
    return true;
  case BIAS_OF_OUT:
    p->bias_dtype = quantised ? RONDO_BF16 : p->out_dtype;
    p->bias_for_all = true;
    return true;
  case SILU_MUL:
    p->silu_mul = true;
    return p->m % 2 == 0;
  case RESIDUAL:
    p->residual_dtype = RONDO_BF16;
    return !p->in_place;
  case IN_PLACE:
    p->residual_dtype = p->out_dtype, p->in_place = true;
    return !quantised;
  case QUANTISED:
    p->out_dtype = RONDO_NVFP4, p->out_global_scale = 0.5f;
    return p->m % 32 == 0 && !p->in_place;
  case BLOCKED_WEIGHTS:
    p->blocked_weights = true;
    return p->weights_dtype == RONDO_NVFP4;
  case BLOCKED_VECTORS:
    p->blocked_vectors = true;
    return p->vectors_dtype == RONDO_NVFP4;
  default:
    p->one_order = true;
    return true;
  }
}

/* The shape with these types, of numbers with which what is added counts and silu is used where it bends. */
static struct problem calm_problem(struct problem p, struct pair pair, int number) {
  p.weights_dtype = pair.weights, p.vectors_dtype = pair.vectors, p.out_dtype = outs[number % 3];
  p.row_scales = p.weights_dtype == RONDO_E4M3 && number % 2;
  p.calm = true;
  p.weight_size = 0.05, p.scale = p.weights_dtype == RONDO_F16 || p.weights_dtype == RONDO_BF16 ? 1 : 0.01f;
  if (p.weights_dtype == RONDO_NVFP4) p.k -= p.k % 16;
  return p;
}

static void check_pairs(rondo_backend backend, const struct problem *shapes, int shape_count) {
  struct problem problems[MOST_PROBLEMS];
  int count = 0, number = 0;
  for (int i = 0; i < PAIRS; i++)
    for (int a = 0; a < FEATURES; a++)
      for (int b = a; b < FEATURES; b++) {
        struct problem p = calm_problem(shapes[number % shape_count], pairs[i], number + 1);
        number++;
        if (!apply(&p, (enum feature)a) || !apply(&p, (enum feature)b)) continue;
        problems[count++] = p;
        if (count < MOST_PROBLEMS / 4) continue;
        check_problems(backend, problems, count);
        count = 0;
      }
  if (count) check_problems(backend, problems, count);
}

static void check_every_pair(rondo_backend backend) {
  static const struct problem shapes[] = {
      {.m = 64, .k = 512, .count = 1},
      {.m = 96, .k = 544, .count = 3, .batch = 2},
      {.m = 160, .k = 1024, .count = 9},
      {.m = 32, .k = 2048, .count = 16},
      {.m = 224, .k = 1056, .count = 2, .batch = 3},
  };
  check_pairs(backend, shapes, 5);
}
BOTH_BACKENDS(gemv_finish, all_that_is_done_to_a_product_matches_fp64_in_pairs, check_every_pair)

/* Sizes that no tile divides, nothing aligned, and what lies around is neither read nor written. */
static void check_every_pair_odd(rondo_backend backend) {
  static const struct problem shapes[] = {
      {.m = 46, .k = 329, .count = 2},
      {.m = 2, .k = 96, .count = 1, .batch = 3},
      {.m = 96, .k = 544, .count = 3, .batch = 2, .padded = true, .margin = 32},
      {.m = 32, .k = 129, .count = 5, .padded = true, .margin = 2},
      {.m = 130, .k = 1040, .count = 4, .padded = true, .margin = 6},
      {.m = 34, .k = 0, .count = 2},
      {.m = 32, .k = 16, .count = 13},
  };
  check_pairs(backend, shapes, 7);
}
BOTH_BACKENDS(gemv_finish, odd_sizes_and_views_of_it_match_fp64_in_pairs, check_every_pair_odd)

static void check_all_at_once(rondo_backend backend) {
  struct problem problems[MOST_PROBLEMS];
  int count = 0;
  for (int i = 0; i < PAIRS; i++)
    for (int s = 0; s < 4; s++) {
      bool packed = pairs[i].vectors == RONDO_NVFP4;
      problems[count++] = (struct problem){.weights_dtype = pairs[i].weights,
                                           .vectors_dtype = pairs[i].vectors,
                                           .out_dtype = s % 2 ? RONDO_NVFP4 : outs[(i + s / 2) % 3],
                                           .m = 192,
                                           .k = 768,
                                           .count = 1 + 3 * s,
                                           .batch = s / 2,
                                           .scale = 0.02f,
                                           .row_scales = pairs[i].weights == RONDO_E4M3,
                                           .calm = true,
                                           .blocked_weights = pairs[i].weights == RONDO_NVFP4,
                                           .blocked_vectors = packed,
                                           .norm_epsilon = packed ? 0 : 1e-6f,
                                           .norm = !packed,
                                           .bias_dtype = RONDO_F16,
                                           .silu_mul = true,
                                           .residual_dtype = RONDO_F32};
    }
  check_problems(backend, problems, count);
}
BOTH_BACKENDS(gemv_finish, everything_at_once_matches_fp64, check_all_at_once)

/* ---- By the fast kernels ----------------------------------------------------------------------------------------- */

/* What is done to the results: bits of features. */
static const unsigned finishes[] = {
    0,
    1u << BIAS_F32,
    1u << SILU_MUL,
    1u << RESIDUAL,
    1u << IN_PLACE,
    1u << QUANTISED,
    1u << SILU_MUL | 1u << QUANTISED,
    1u << BIAS_OF_OUT | 1u << SILU_MUL | 1u << RESIDUAL | 1u << QUANTISED,
};
enum { FINISHES = sizeof finishes / sizeof finishes[0] };

static void apply_all(struct problem *p, unsigned features) {
  for (int feature = 0; feature < FEATURES; feature++)
    if (features >> feature & 1) cr_assert(apply(p, (enum feature)feature));
}

/* Each task of the graph is one launch, and not of the kernel for everything. */
static void require_fast_kernels(const rondo_graph *graph) {
  static const struct chip chips[] = {{80, 108, 166912}, {90, 132, 232448}, {100, 148, 232448}};
  for (uint32_t t = 0; t < graph->task_count; t++)
    for (int i = 0; i < 3; i++) {
      struct op_operand operands[OP_MAX_OPERANDS];
      struct op_task task = graph_op_task(graph, &graph->tasks[t], operands);
      struct op_launches launches;
      REQUIRE_OK(task.op->select(&(struct op_call){.task = &task, .data = op_nowhere}, &chips[i], &launches));
      cr_assert_eq(launches.count, 1);
      cr_assert_str_neq(launches.items[0].kernel, "rondo_gemv_scalar", "problem %d, chip %d", (int)t, i);
    }
}

static void check_fast(rondo_backend backend, struct problem *problems, int count) {
  struct trial trial;
  problems_begin(&trial, backend, problems, count);
  require_fast_kernels(trial.graph);
  problems_run(&trial, problems, count);
  problems_end(&trial, problems, count);
}

/* Two problems of each pair of types, k and count, in which whatever is done to the results meets every count. */
static void check_fast_shapes(rondo_backend backend) {
  static const int64_t rows[] = {64, 16, 160, 48}, lengths[] = {256, 512, 1024, 4096, 2080}, some[] = {1, 2, 5, 9, 16};
  static const unsigned norms[] = {0, 1u << NORM, 1u << NORM_WEIGHTS};
  struct problem problems[MOST_PROBLEMS];
  for (int pair = 0, number = 0; pair < PAIRS; pair++) {
    int count = 0;
    for (int i = 0; i < 2 * 5 * 5; i++, number++) {
      unsigned features = finishes[number % FINISHES];
      int64_t m = rows[number / FINISHES % 4];
      if (features >> QUANTISED & 1) m = (m + 31) / 32 * 32;
      if (pairs[pair].vectors != RONDO_NVFP4) features |= norms[number / 2 % 3];
      problems[count] =
          calm_problem((struct problem){.m = m, .k = lengths[i / 10], .count = some[i / 2 % 5]}, pairs[pair], number);
      apply_all(&problems[count++], features);
    }
    check_fast(backend, problems, count);
  }
}
BOTH_BACKENDS(gemv_finish, what_fast_kernels_do_to_a_product_matches_fp64, check_fast_shapes)

/* More tiles than blocks at once, of a k that takes a block several chunks: their sums are kept until the last.
 * Vectors in bf16, of which kernels keep a factor too. */
static void check_fast_tiles(rondo_backend backend) {
  for (int pair = 1; pair < PAIRS; pair += 2) {
    struct problem p = calm_problem((struct problem){.m = 4480, .k = 2080, .count = 9}, pairs[pair], pair);
    apply_all(&p, 1u << NORM_WEIGHTS | 1u << BIAS_F32);
    apply_all(&p, pair == 3 ? 1u << IN_PLACE : 1u << SILU_MUL | 1u << RESIDUAL | 1u << QUANTISED);
    check_fast(backend, &p, 1);
  }
}
BOTH_BACKENDS(gemv_finish, tiles_and_chunks_one_after_the_other_match_fp64, check_fast_tiles)

/* Large NVFP4 matrices, whose last tile begins within the one before: no row is finished twice. */
static void check_fast_streams(rondo_backend backend) {
  skip_under_sanitizers();
  static const struct {
    int64_t m, count;
    unsigned features;
  } cases[] = {{4490, 16, 1u << NORM_WEIGHTS | 1u << BIAS_F32 | 1u << SILU_MUL | 1u << RESIDUAL},
               {4490, 9, 1u << BIAS_OF_OUT | 1u << IN_PLACE},
               {12338, 3, 1u << NORM_WEIGHTS | 1u << SILU_MUL | 1u << RESIDUAL},
               {12338, 8, 1u << BIAS_F32 | 1u << IN_PLACE},
               {24658, 1, 1u << NORM_WEIGHTS | 1u << BIAS_F32 | 1u << SILU_MUL}};
  for (int pair = 0; pair < PAIRS; pair++)
    for (int i = 0; i < 5 && pairs[pair].weights == RONDO_NVFP4 && pairs[pair].vectors != RONDO_NVFP4; i++) {
      struct problem p =
          calm_problem((struct problem){.m = cases[i].m, .k = 2048, .count = cases[i].count}, pairs[pair], pair + i);
      apply_all(&p, cases[i].features);
      check_fast(backend, &p, 1);
    }
}
BOTH_BACKENDS(gemv_finish, large_matrices_match_fp64, check_fast_streams)

/* ---- Numbers that are hard --------------------------------------------------------------------------------------- */

/* Row r of the matrix has `value(r)` in its first column and x is 1 there, 0 elsewhere: sums are exact. */
static void set_sums(struct problem *p, double (*value)(int64_t row)) {
  memset(p->weights.data, 0, bytes_of(&p->weights));
  memset(p->vectors.data, 0, bytes_of(&p->vectors));
  for (int64_t r = 0; r < p->m; r++) oracle_write(p->weights_dtype, p->weights.data, r * p->k, value(r));
  for (int64_t v = 0; v < p->count; v++) oracle_write(p->vectors_dtype, p->vectors.data, v * p->k, 1);
}

/* Gates of all sizes with both signs; each is times 1. */
static double gate_and_up(int64_t row) {
  static const double sizes[] = {0, 0x1p-40, 0.001, 0.25, 1, 3, 10, 20, 50, 80, 87, 88, 100, 0x1p+120, NAN, INFINITY};
  double size = sizes[row / 2 % 16];
  return row % 2 ? 1 : row / 2 < 16 ? size : -size;
}

static void check_silu(rondo_backend backend) {
  struct problem problems[3];
  struct trial trial;
  for (int i = 0; i < 3; i++)
    problems[i] = (struct problem){.weights_dtype = RONDO_BF16,
                                   .vectors_dtype = RONDO_BF16,
                                   .out_dtype = outs[i],
                                   .m = 64,
                                   .k = 24,
                                   .count = 2,
                                   .silu_mul = true};
  problems_begin(&trial, backend, problems, 3);
  for (int i = 0; i < 3; i++) set_sums(&problems[i], gate_and_up);
  problems_run(&trial, problems, 3);
  for (int i = 0; i < 3; i++)
    for (int64_t c = 0; c < 32; c++) {
      double gate = gate_and_up(2 * c), got = element_of(&problems[i].out, 0, 0, c);
      cr_assert_eq((bool)isnan(got), isnan(gate) || gate == -INFINITY, "silu(%g) = %g", gate, got);
    }
  problems_end(&trial, problems, 3);
}
BOTH_BACKENDS(gemv_finish, silu_of_all_sizes_infinity_and_nan_matches_fp64, check_silu)

/* NaN and infinity in bias and residual stay in their row, and in their vector. */
static void check_not_finite(rondo_backend backend) {
  struct problem problems[6];
  struct trial trial;
  for (int i = 0; i < 6; i++)
    problems[i] = (struct problem){.weights_dtype = RONDO_F16,
                                   .vectors_dtype = RONDO_F16,
                                   .out_dtype = outs[i % 3],
                                   .m = 40,
                                   .k = i < 3 ? 64 : 61,
                                   .count = 3,
                                   .bias_dtype = outs[i % 3],
                                   .residual_dtype = outs[(i + 1) % 3]};
  problems_begin(&trial, backend, problems, 6);
  for (int i = 0; i < 6; i++) {
    oracle_write(problems[i].bias_dtype, problems[i].bias.data, 7, NAN);
    oracle_write(problems[i].bias_dtype, problems[i].bias.data, 38, -INFINITY);
    oracle_write(problems[i].residual_dtype, problems[i].residual.data, 1 * 40 + 11, NAN);
    oracle_write(problems[i].residual_dtype, problems[i].residual.data, 2 * 40 + 38, INFINITY);
  }
  problems_run(&trial, problems, 6);
  for (int i = 0; i < 6; i++)
    for (int64_t v = 0; v < 3; v++)
      for (int64_t r = 0; r < 40; r++) {
        bool nan = r == 7 || (v == 1 && r == 11) || (v == 2 && r == 38);
        double got = element_of(&problems[i].out, 0, v, r);
        cr_assert_eq((bool)isnan(got), nan, "problem %d: vector %d row %d: %g", i, (int)v, (int)r, got);
        cr_assert_eq(got == -INFINITY, !nan && r == 38, "problem %d: vector %d row %d: %g", i, (int)v, (int)r, got);
      }
  problems_end(&trial, problems, 6);
}
BOTH_BACKENDS(gemv_finish, nan_and_infinity_of_bias_and_residual_stay_where_they_are, check_not_finite)

/* Zeros, and an epsilon that is all there is to divide by, also a subnormal one; elements whose squares overflow. */
static void check_norm_extremes(rondo_backend backend) {
  static const double sizes[] = {1e15, 1e-18, 1e15, 1e-28};
  static const float epsilons[] = {0x1p-20f, 0x1p-100f, 0x1p-20f, 0x1.8p-148f};
  struct problem problems[8];
  struct trial trial;
  for (int i = 0; i < 8; i++)
    problems[i] = (struct problem){.weights_dtype = RONDO_BF16,
                                   .vectors_dtype = RONDO_BF16,
                                   .out_dtype = RONDO_F32,
                                   .m = 40,
                                   .k = 512,
                                   .count = 1 + i / 4,
                                   .vector_size = sizes[i % 4],
                                   .norm_epsilon = epsilons[i % 4]};
  problems_begin(&trial, backend, problems, 8);
  for (int i = 0; i < 8; i += 4) memset(problems[i].vectors.data, 0, bytes_of(&problems[i].vectors));
  problems_run(&trial, problems, 8);
  problems_end(&trial, problems, 8);
}
BOTH_BACKENDS(gemv_finish, norms_of_nothing_and_of_extremes_match_fp64, check_norm_extremes)

/* ---- The same bits ----------------------------------------------------------------------------------------------- */

/* Sums, bias and residual are multiples of 2^-7 that fp32 adds exactly, some rows not finite: the bytes are the
 * quantiser's. */
static double quantised_sum(int64_t row) {
  if (row == 200) return NAN;
  if (row == 217) return INFINITY;
  if (row / 16 == 3) return 0;
  return ldexp((double)(row * 37 % 255 - 127), (int)(row / 16 % 9) - 7);
}

static double quantised_bias(int64_t row) { return (double)(row % 5) / 16; }
static double quantised_residual(int64_t i) { return (double)(i % 23) / 8; }

static void check_bytes(rondo_backend backend, int64_t k, float global_scale) {
  struct problem p = {.weights_dtype = RONDO_BF16,
                      .vectors_dtype = RONDO_BF16,
                      .out_dtype = RONDO_NVFP4,
                      .m = 304,
                      .k = k,
                      .count = 3,
                      .bias_dtype = RONDO_F32,
                      .residual_dtype = RONDO_F32,
                      .out_global_scale = global_scale};
  struct trial trial;
  problems_begin(&trial, backend, &p, 1);
  set_sums(&p, quantised_sum);
  for (int64_t r = 0; r < p.m; r++) oracle_write(RONDO_F32, p.bias.data, r, quantised_bias(r));
  for (int64_t i = 0; i < p.count * p.m; i++) oracle_write(RONDO_F32, p.residual.data, i, quantised_residual(i));
  trial_instantiate(&trial);
  problem_set(&trial, &p);
  trial_replay(&trial);
  trial_get(&trial, p.out.whole, p.out.data);
  trial_get(&trial, p.out_scales.whole, p.out_scales.data);
  const uint8_t *got = p.out.data, *got_scales = p.out_scales.data;
  for (int64_t first = 0; first < p.count * p.m; first += 16) {
    double block[16];
    uint8_t codes[8], scale;
    for (int64_t i = 0; i < 16; i++) {
      int64_t row = (first + i) % p.m;
      block[i] = quantised_sum(row) + quantised_bias(row) + quantised_residual(first + i);
    }
    oracle_block(block, global_scale == 0 ? 1 : global_scale, codes, &scale);
    cr_assert_eq(got_scales[first / 16], scale, "block %d: scale %#x, expected %#x", (int)first / 16,
                 got_scales[first / 16], scale);
    cr_assert(!memcmp(got + first / 2, codes, 8), "block %d", (int)first / 16);
  }
  problems_end(&trial, &p, 1);
}

static void check_quantised_bytes(rondo_backend backend) {
  check_bytes(backend, 64, 0);
  check_bytes(backend, 64, 0.0625f);
  check_bytes(backend, 61, 0.75f);
}
BOTH_BACKENDS(gemv_finish, nvfp4_results_are_the_bytes_of_the_quantiser, check_quantised_bytes)

static double small_number(int64_t row) { return (double)(row % 13 - 6); }

/* Every number of rows up to beyond a tile or two: a row that two blocks compute is added to once. */
static void check_in_place(rondo_backend backend) {
  enum { REPLAYS = 3 };
  for (int64_t first = 1; first < 140; first += 35) {
    struct problem problems[35];
    struct trial trial;
    for (int i = 0; i < 35; i++)
      problems[i] = (struct problem){.weights_dtype = RONDO_F16,
                                     .vectors_dtype = RONDO_F16,
                                     .out_dtype = outs[i % 3],
                                     .m = first + i,
                                     .k = i % 2 ? 64 : 2048,
                                     .count = 1 + i % 5,
                                     .residual_dtype = outs[i % 3],
                                     .in_place = true};
    problems_begin(&trial, backend, problems, 35);
    trial_instantiate(&trial);
    for (int i = 0; i < 35; i++) {
      set_sums(&problems[i], small_number);
      for (int64_t r = 0; r < problems[i].count * problems[i].m; r++)
        oracle_write(problems[i].out_dtype, problems[i].residual.data, r, (double)(r % 31));
      problem_set(&trial, &problems[i]);
    }
    for (int replay = 0; replay < REPLAYS; replay++) trial_replay(&trial);
    for (int i = 0; i < 35; i++) {
      struct problem *p = &problems[i];
      trial_get(&trial, p->out.whole, p->out.data);
      for (int64_t r = 0; r < p->count * p->m; r++)
        cr_assert_eq(oracle_read(p->out_dtype, p->out.data, r), (double)(r % 31) + REPLAYS * small_number(r % p->m),
                     "%d rows: row %d", (int)p->m, (int)r);
    }
    problems_end(&trial, problems, 35);
  }
}
BOTH_BACKENDS(gemv_finish, a_residual_in_place_is_added_to_once_a_replay, check_in_place)

static void copy_scales(struct operand *to, const struct operand *from) {
  for (int64_t b = 0; b < from->batch; b++)
    for (int64_t r = 0; r < from->rows; r++)
      for (int64_t c = 0; c < from->columns; c++)
        ((uint8_t *)to->data)[index_of(to, b, r, c)] = ((uint8_t *)from->data)[index_of(from, b, r, c)];
}

/* Of rows in 32s; others may go to another kernel, where tiles of blocked scales are not cut as its own are. */
static void check_layouts(rondo_backend backend) {
  static const struct problem shapes[] = {
      {.m = 128, .k = 4096, .count = 1},
      {.m = 288, .k = 1024 + 32, .count = 3, .batch = 2},
      {.m = 96, .k = 208, .count = 16},
      {.m = 1056, .k = 64, .count = 9, .batch = 3},
  };
  struct problem problems[MOST_PROBLEMS];
  struct trial trial;
  int count = 0;
  for (int i = 0; i < PAIRS; i++)
    for (int s = 0; s < 4 && pairs[i].weights == RONDO_NVFP4; s++)
      for (int blocked = 0; blocked < 2; blocked++) {
        struct problem *p = &problems[count++];
        *p = shapes[s];
        p->weights_dtype = pairs[i].weights, p->vectors_dtype = pairs[i].vectors, p->out_dtype = RONDO_F32;
        p->blocked_weights = blocked, p->blocked_vectors = blocked && pairs[i].vectors == RONDO_NVFP4;
      }
  problems_begin(&trial, backend, problems, count);
  for (int i = 0; i < count; i += 2) {
    struct problem *by_row = &problems[i], *blocked = &problems[i + 1];
    memcpy(blocked->weights.data, by_row->weights.data, bytes_of(&by_row->weights));
    memcpy(blocked->vectors.data, by_row->vectors.data, bytes_of(&by_row->vectors));
    copy_scales(&blocked->weight_scales, &by_row->weight_scales);
    if (by_row->vector_scales.data) copy_scales(&blocked->vector_scales, &by_row->vector_scales);
  }
  problems_run(&trial, problems, count);
  for (int i = 0; i < count; i += 2)
    cr_assert(!memcmp(problems[i].out.data, problems[i + 1].out.data, bytes_of(&problems[i].out)), "problem %d", i);
  problems_end(&trial, problems, count);
}
BOTH_BACKENDS(gemv_finish, blocked_scales_give_the_bits_of_scales_by_row, check_layouts)
