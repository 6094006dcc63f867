/* test_qr.c - rondo_add_qr and rondo_add_qr_panel against LAPACK's ratios, for every form, layout and kernel. Batch,
 * padding and extreme numbers change nothing. Faults that would show: a norm that overflows, a reflector of another
 * matrix, a write into the padding. */
#include <assert.h>
#include <criterion/criterion.h>
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../oracles/qr_factorisation.h"

/* ---- Ratios ----------------------------------------------------------------------------------------------------- */

/* Small shapes around every edge of the kernels, each with every kind of matrix in its batch. */
static void small_shapes(rondo_backend backend) {
  static const int8_t shapes[][2] = {{0, 0},   {0, 3},   {3, 0},   {1, 1},   {1, 5},  {5, 1},   {2, 3},  {3, 2},
                                     {4, 4},   {5, 7},   {7, 5},   {8, 8},   {9, 8},  {15, 16}, {17, 9}, {16, 31},
                                     {31, 33}, {32, 32}, {33, 31}, {33, 33}, {40, 3}, {3, 40},  {65, 9}, {64, 16}};
  enum { COUNT = sizeof shapes / sizeof shapes[0] };
  for (int pass = 0; pass < 4; pass++) { /* forms and layouts in turn, so that each shape sees four of them */
    struct factorisation all[COUNT];
    for (int i = 0; i < COUNT; i++) {
      int turn = i + pass * 3;
      all[i] = (struct factorisation){.dtype = pass % 2 ? RONDO_F32 : RONDO_F64,
                                      .layout = (turn + pass / 2) % 2 ? RONDO_ROW_MAJOR : RONDO_COLUMN_MAJOR,
                                      .form = (enum form)((turn + i / 5) % 5),
                                      .m = shapes[i][0],
                                      .n = shapes[i][1],
                                      .batch = QR_KINDS,
                                      .kinds = every_kind,
                                      .kind_count = QR_KINDS};
    }
    factorisations_run(backend, all, COUNT);
  }
}
BOTH_BACKENDS(qr, small_matrices_of_every_kind_meet_lapack_ratios, small_shapes)

/* One matrix in one block, in shared memory. */
static void middle_shapes(rondo_backend backend) {
  static const struct {
    int16_t m, n;
    uint8_t form, layout;
  } shapes[] = {{64, 64, FORM_H, 0},       {65, 63, FORM_QR, 1},   {63, 65, FORM_QR, 0}, {64, 65, FORM_R, 1},
                {127, 64, FORM_Q, 0},      {128, 16, FORM_QR, 0},  {129, 16, FORM_R, 1}, {16, 129, FORM_PANEL, 0},
                {128, 128, FORM_PANEL, 0}, {129, 127, FORM_QR, 1}, {256, 16, FORM_H, 1}, {300, 7, FORM_QR, 0}};
  enum { COUNT = sizeof shapes / sizeof shapes[0] };
  struct factorisation all[2 * COUNT];
  for (int i = 0; i < 2 * COUNT; i++)
    all[i] = (struct factorisation){.dtype = i < COUNT ? RONDO_F32 : RONDO_F64,
                                    .layout = (rondo_layout)shapes[i % COUNT].layout,
                                    .form = (enum form)shapes[i % COUNT].form,
                                    .m = shapes[i % COUNT].m,
                                    .n = shapes[i % COUNT].n,
                                    .batch = 4,
                                    .kinds = hard_kinds,
                                    .kind_count = 4};
  factorisations_run(backend, all, sizeof all / sizeof all[0]);
}
BOTH_BACKENDS(qr, middle_matrices_meet_lapack_ratios, middle_shapes)

static const enum qr_kind random_and_largest[] = {QR_RANDOM, QR_LARGEST};

/* Beyond shared memory: panels of every width, columns too long for panels, and every place the work is done in. */
static void large_shapes(rondo_backend backend) {
  static const struct {
    int16_t m, n;
    uint8_t form, layout, dtype;
  } shapes[] = {
      {352, 352, FORM_H, 0, RONDO_F32},  {260, 250, FORM_QR, 1, RONDO_F32},    {200, 260, FORM_QR, 0, RONDO_F64},
      {200, 170, FORM_R, 0, RONDO_F64},  {170, 200, FORM_R, 1, RONDO_F64},     {170, 210, FORM_Q, 0, RONDO_F64},
      {1024, 70, FORM_Q, 1, RONDO_F32},  {1500, 40, FORM_PANEL, 0, RONDO_F32}, {2500, 20, FORM_QR, 0, RONDO_F64},
      {12000, 6, FORM_QR, 0, RONDO_F32}, {6000, 6, FORM_R, 1, RONDO_F64},      {6000, 5, FORM_PANEL, 1, RONDO_F64},
      {5, 12000, FORM_QR, 0, RONDO_F32}};
  enum { COUNT = sizeof shapes / sizeof shapes[0] };
  struct factorisation all[COUNT];
  for (int i = 0; i < COUNT; i++)
    all[i] = (struct factorisation){.dtype = (rondo_dtype)shapes[i].dtype,
                                    .layout = (rondo_layout)shapes[i].layout,
                                    .form = (enum form)shapes[i].form,
                                    .m = shapes[i].m,
                                    .n = shapes[i].n,
                                    .batch = 2,
                                    .kinds = i % 4 == 3 ? hard_kinds : random_and_largest,
                                    .kind_count = 2};
  factorisations_run(backend, all, COUNT);
}
BOTH_BACKENDS(qr, large_matrices_meet_lapack_ratios, large_shapes)

/* ---- Where a matrix stands -------------------------------------------------------------------------------------- */

/* A leading dimension beyond m, a base that is not aligned, guards on every side. */
static void padded(rondo_backend backend) {
  static const int16_t shapes[][2] = {{7, 5}, {5, 7}, {32, 32}, {65, 40}, {130, 12}, {270, 260}};
  enum { SHAPES = sizeof shapes / sizeof shapes[0], FORMS = 5 };
  struct factorisation all[SHAPES * FORMS];
  for (int i = 0; i < SHAPES * FORMS; i++) {
    int shape = i / FORMS, form = i % FORMS;
    bool large = shapes[shape][0] > 200;
    all[i] = (struct factorisation){.dtype = (shape + form) % 2 ? RONDO_F64 : RONDO_F32,
                                    .layout = (shape + form / 2) % 2 ? RONDO_ROW_MAJOR : RONDO_COLUMN_MAJOR,
                                    .form = (enum form)form,
                                    .m = large ? 170 : shapes[shape][0],
                                    .n = large ? 165 : shapes[shape][1],
                                    .batch = large ? 1 : 3,
                                    .padding = 4,
                                    .kinds = random_kind,
                                    .kind_count = 1};
    if (large) all[i].dtype = RONDO_F64;
  }
  factorisations_run(backend, all, sizeof all / sizeof all[0]);
}
BOTH_BACKENDS(qr, nothing_is_written_around_padded_matrices, padded)

/* Writes over its own input, as qr_panel does. */
static void in_place(rondo_backend backend) {
  struct trial trial;
  trial_describe(&trial, backend);
  enum { M = 20, N = 12, BATCH = 5, SIZE = M * N, FACTORS = BATCH * N };
  rondo_tensor a, tau, h, tau_apart, other;
  int64_t shape[] = {BATCH, N, M}, tau_shape[] = {BATCH, N};
  REQUIRE_OK(rondo_state(trial.graph, "a", RONDO_F64, 3, shape, &a));
  REQUIRE_OK(rondo_input(trial.graph, "other", RONDO_F64, 3, shape, &other));
  REQUIRE_OK(rondo_output(trial.graph, "h", RONDO_F64, 3, shape, &h));
  REQUIRE_OK(rondo_output(trial.graph, "tau", RONDO_F64, 2, tau_shape, &tau));
  REQUIRE_OK(rondo_output(trial.graph, "tau apart", RONDO_F64, 2, tau_shape, &tau_apart));
  REQUIRE_OK(rondo_add_qr(trial.graph, &(rondo_qr_desc){.a = a, .h = a, .tau = tau}));
  REQUIRE_OK(rondo_add_qr(trial.graph, &(rondo_qr_desc){.a = other, .h = h, .tau = tau_apart}));
  trial_instantiate(&trial);
  double data[BATCH * N * M], result[BATCH * N * M];
  struct random random = {7};
  for (int i = 0; i < BATCH * N * M; i++) data[i] = random_normal(&random);
  trial_set(&trial, a, data);
  trial_set(&trial, other, data);
  trial_replay(&trial);
  trial_get(&trial, a, result);
  cr_expect_arr_eq(result, trial_output(&trial, h), sizeof result);
  cr_expect_arr_eq(trial_output(&trial, tau), trial_output(&trial, tau_apart), FACTORS * sizeof(double));
  for (int64_t item = 0; item < BATCH; item++)
    qr_expect_factored(RONDO_F64, M, N, data + item * SIZE, result + item * SIZE,
                       (const double *)trial_output(&trial, tau) + item * N, "in place");
  trial_end(&trial);
}
BOTH_BACKENDS(qr, h_may_be_a_itself, in_place)

/* Matrices without a batch dimension. */
static void unbatched(rondo_backend backend) {
  struct trial trial;
  trial_describe(&trial, backend);
  enum { M = 9, N = 6 };
  rondo_tensor a, h, tau;
  REQUIRE_OK(rondo_input(trial.graph, "a", RONDO_F32, 2, (int64_t[]){M, N}, &a));
  REQUIRE_OK(rondo_output(trial.graph, "h", RONDO_F32, 2, (int64_t[]){M, N}, &h));
  REQUIRE_OK(rondo_output(trial.graph, "tau", RONDO_F32, 1, (int64_t[]){N}, &tau));
  REQUIRE_OK(rondo_add_qr(trial.graph, &(rondo_qr_desc){.layout = RONDO_ROW_MAJOR, .a = a, .h = h, .tau = tau}));
  trial_instantiate(&trial);
  struct qr_place place = {RONDO_F32, RONDO_ROW_MAJOR, 1, M, N, 0, 0};
  double matrix[M * N], result[M * N], factors[N];
  struct random random = {8};
  qr_fill(&random, RONDO_F32, QR_RANDOM, M, N, matrix);
  float data[M * N];
  qr_place_write(&place, 0, matrix, data);
  trial_set(&trial, a, data);
  trial_replay(&trial);
  qr_place_read(&place, 0, trial_output(&trial, h), result);
  for (int j = 0; j < N; j++) factors[j] = oracle_read(RONDO_F32, trial_output(&trial, tau), j);
  qr_expect_factored(RONDO_F32, M, N, matrix, result, factors, "one matrix without a batch");
  trial_end(&trial);
}
BOTH_BACKENDS(qr, a_matrix_needs_no_batch_dimension, unbatched)

/* Each has kernels of its own. */
static const enum form both_forms[] = {FORM_H, FORM_QR};

static void deterministic(rondo_backend backend) {
  static const int16_t shapes[][3] = {{4, 4, 133}, {8, 8, 132},  {17, 33, 131},
                                      {96, 96, 7}, {150, 20, 7}, {280, 250, 2}};
  enum { SHAPES = sizeof shapes / sizeof shapes[0], BOTH = 2 * SHAPES };
  struct factorisation all[BOTH];
  for (int i = 0; i < BOTH; i++)
    all[i] = (struct factorisation){.dtype = RONDO_F32,
                                    .form = both_forms[i / SHAPES],
                                    .m = shapes[i % SHAPES][0],
                                    .n = shapes[i % SHAPES][1],
                                    .batch = shapes[i % SHAPES][2]};
  expect_same_bits(backend, all, BOTH);
}
BOTH_BACKENDS(qr, a_matrix_has_the_same_bits_in_every_replay_and_batch_position, deterministic)

static void poisoned(rondo_backend backend) {
  static const int16_t shapes[][2] = {{4, 4}, {8, 8}, {20, 31}, {70, 70}, {200, 9}, {250, 240}};
  enum { SHAPES = sizeof shapes / sizeof shapes[0], BOTH = 2 * SHAPES };
  struct factorisation all[BOTH];
  for (int i = 0; i < BOTH; i++)
    all[i] = (struct factorisation){.dtype = i % 2 ? RONDO_F32 : RONDO_F64,
                                    .form = both_forms[i / SHAPES],
                                    .m = shapes[i % SHAPES][0],
                                    .n = shapes[i % SHAPES][1]};
  expect_poison_stays(backend, all, BOTH);
}
BOTH_BACKENDS(qr, infinities_and_nan_stay_in_their_own_matrix, poisoned)

static void huge_batch(rondo_backend backend) {
  for (int i = 0; i < 2; i++) {
    struct factorisation f = {.dtype = RONDO_F32,
                              .form = both_forms[i],
                              .m = 4,
                              .n = 3,
                              .batch = 70001,
                              .kinds = random_kind,
                              .kind_count = 1};
    struct random random = {65536};
    factorisation_fill(&f, &random);
    struct results results;
    factorisations_run_kept(backend, &f, 1, 1, &results);
    for (int64_t item = 0; item < f.batch; item += item < 100 || item > f.batch - 100 ? 1 : 97)
      factorisation_expect(&f, &results, item);
    results_free(&results);
    free(f.matrices);
  }
}
BOTH_BACKENDS(qr, a_batch_may_pass_65535, huge_batch)

/* More matrices than the grid has workspaces: each block takes several of them. */
static void more_than_workspaces(rondo_backend backend) {
  struct factorisation all[] = {
      {.dtype = RONDO_F64, .form = FORM_R, .m = 3500, .n = 9, .batch = 330},  /* panels in shared memory */
      {.dtype = RONDO_F32, .form = FORM_Q, .m = 29600, .n = 2, .batch = 327}, /* columns too long for that */
  };
  for (size_t s = 0; s < sizeof all / sizeof all[0]; s++) {
    struct factorisation *f = &all[s];
    struct random random = {s + 17};
    f->kinds = random_kind;
    f->kind_count = 1;
    int64_t count = f->batch * f->m * f->n;
    f->matrices = qr_memory(count, sizeof(double));
    for (int64_t i = 0; i < count; i++) f->matrices[i] = qr_rounded(f->dtype, random_uniform(&random) - 0.5);
    struct results results;
    factorisations_run_kept(backend, f, 1, 1, &results);
    for (int64_t item = 0; item < f->batch; item += item < 3 || item >= 318 ? 1 : 63)
      factorisation_expect(f, &results, item);
    results_free(&results);
    free(f->matrices);
  }
}
BOTH_BACKENDS(qr, a_batch_may_pass_the_workspaces, more_than_workspaces)

/* Nothing to do is no error, whatever the form. */
static void empty_batch(rondo_backend backend) {
  struct factorisation all[5];
  for (int form = 0; form < 5; form++)
    all[form] = (struct factorisation){.dtype = RONDO_F64,
                                       .form = (enum form)form,
                                       .m = 200,
                                       .n = 180,
                                       .batch = 0,
                                       .padding = form % 2 ? 4 : 0,
                                       .kinds = random_kind,
                                       .kind_count = 1};
  factorisations_run(backend, all, 5);
}
BOTH_BACKENDS(qr, a_batch_may_be_empty, empty_batch)

/* ---- LAPACK's conventions --------------------------------------------------------------------------------------- */

/* Signs, zero factors and kept alphas are LAPACK's own, element by element where the problem is well conditioned and
 * exactly where every H is the identity. */
static void like_lapack(rondo_backend backend) {
  static const enum qr_kind kinds[] = {QR_RANDOM,        QR_CONDITION_2, QR_LOWER,    QR_NEAR_UNDERFLOW,
                                       QR_NEAR_OVERFLOW, QR_UPPER,       QR_DIAGONAL, QR_ZERO};
  static const int8_t shapes[][2] = {{1, 1}, {1, 4}, {4, 1}, {6, 6}, {30, 20}, {20, 30}, {60, 50}};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
    struct factorisation f = {
        .dtype = RONDO_F64, .m = shapes[s][0], .n = shapes[s][1], .batch = 8, .kinds = kinds, .kind_count = 8};
    struct random random = {s + 30};
    factorisation_fill(&f, &random);
    struct results results;
    factorisations_run_kept(backend, &f, 1, 1, &results);
    assert(results.h && results.tau);
    for (int64_t item = 0; item < f.batch; item++) {
      double *expected = qr_memory(f.m * f.n, sizeof *expected), *expected_tau = qr_memory(f.k, sizeof(double));
      memcpy(expected, factorisation_matrix(&f, item), (size_t)(f.m * f.n) * sizeof(double));
      cr_assert_eq(LAPACKE_dgeqrf(LAPACK_COL_MAJOR, (int)f.m, (int)f.n, expected, (int)f.m, expected_tau), 0);
      const double *h = (const double *)results.h + item * f.m * f.n;
      long double norm = 0;
      for (int64_t i = 0; i < f.m * f.n; i++) norm = fmaxl(norm, fabsl((long double)factorisation_matrix(&f, item)[i]));
      bool exact = kinds[item] == QR_ZERO || kinds[item] == QR_UPPER || kinds[item] == QR_DIAGONAL;
      long double tolerance = exact || f.m == 1 ? 0 : 1e-9L;
      char where[160];
      factorisation_describe(&f, item, where, sizeof where);
      for (int64_t i = 0; i < f.m * f.n; i++) {
        int64_t row = i % f.m, column = i / f.m;
        long double size = row > column ? 1 : norm * (long double)f.m; /* reflectors, or R */
        if (kinds[item] == QR_LOWER) size *= 1e3L;
        cr_expect(fabsl((long double)h[i] - expected[i]) <= tolerance * size, "h(%d, %d) is %g, LAPACK has %g: %s",
                  (int)row, (int)column, h[i], expected[i], where);
      }
      for (int64_t j = 0; j < f.k; j++)
        cr_expect(fabsl((long double)factorisation_tau(&f, &results, item, j) - expected_tau[j]) <= tolerance * 1e3L,
                  "tau[%d] is %g, LAPACK has %g: %s", (int)j, factorisation_tau(&f, &results, item, j), expected_tau[j],
                  where);
      free(expected);
      free(expected_tau);
    }
    results_free(&results);
    free(f.matrices);
  }
}
BOTH_BACKENDS(qr, signs_and_zero_factors_are_those_of_lapack, like_lapack)

/* dlarfg's own cases: {alpha, x} -> {beta, v, tau}. */
static void single_reflectors(rondo_backend backend) {
  static const double cases[][5] = {
      {3, 4, -5, 0.5, 1.6}, {-3, 4, 5, -0.5, 1.6}, {0, 2, -2, 1, 1}, {-0.0, 2, 2, -1, 1},
      {-7, 0, -7, 0, 0},    {7, 0, 7, 0, 0},       {0, 0, 0, 0, 0},
  };
  enum { COUNT = sizeof cases / sizeof cases[0], SCALES = 3, ALL = COUNT * SCALES };
  struct trial trial;
  trial_describe(&trial, backend);
  rondo_tensor a, h, tau;
  REQUIRE_OK(rondo_input(trial.graph, "a", RONDO_F64, 3, (int64_t[]){ALL, 1, 2}, &a));
  REQUIRE_OK(rondo_output(trial.graph, "h", RONDO_F64, 3, (int64_t[]){ALL, 1, 2}, &h));
  REQUIRE_OK(rondo_output(trial.graph, "tau", RONDO_F64, 2, (int64_t[]){ALL, 1}, &tau));
  REQUIRE_OK(rondo_add_qr(trial.graph, &(rondo_qr_desc){.a = a, .h = h, .tau = tau}));
  trial_instantiate(&trial);
  static const double scales[SCALES] = {1, 0x1p-1060, 0x1p1020}; /* the tiny ones are subnormal */
  double data[ALL][2];
  for (int i = 0; i < ALL; i++)
    for (int e = 0; e < 2; e++) data[i][e] = cases[i % COUNT][e] * scales[i / COUNT];
  trial_set(&trial, a, data);
  trial_replay(&trial);
  const double(*got)[2] = trial_output(&trial, h), *factors = trial_output(&trial, tau);
  for (int i = 0; i < ALL; i++) {
    const double *expected = cases[i % COUNT];
    double scale = scales[i / COUNT];
    cr_expect(fabs(got[i][0] / scale - expected[2]) <= 1e-12, "beta of case %d is %g", i, got[i][0] / scale);
    cr_expect(fabs(got[i][1] - expected[3]) <= 1e-12, "v of case %d is %g", i, got[i][1]);
    cr_expect(fabs(factors[i] - expected[4]) <= 1e-12, "tau of case %d is %g", i, factors[i]);
  }
  trial_end(&trial);
}
BOTH_BACKENDS(qr, reflectors_of_two_elements_are_those_of_larfg, single_reflectors)

/* Columns whose norms lie between half the largest number and it: twice a norm, as one factor of a reflection may be,
 * is no number. */
static void nearly_the_largest(rondo_backend backend) {
  enum { N = 2, SIZE = N * N };
  struct trial trial;
  trial_describe(&trial, backend);
  const int64_t matrix[] = {N, N}, vector[] = {N};
  rondo_tensor a, b, h, tau, r, q, x, residual, info;
  REQUIRE_OK(rondo_input(trial.graph, "a", RONDO_F32, 2, matrix, &a));
  REQUIRE_OK(rondo_input(trial.graph, "b", RONDO_F32, 2, (int64_t[]){1, N}, &b));
  REQUIRE_OK(rondo_output(trial.graph, "h", RONDO_F32, 2, matrix, &h));
  REQUIRE_OK(rondo_output(trial.graph, "tau", RONDO_F32, 1, vector, &tau));
  REQUIRE_OK(rondo_output(trial.graph, "r", RONDO_F32, 2, matrix, &r));
  REQUIRE_OK(rondo_output(trial.graph, "q", RONDO_F32, 2, matrix, &q));
  REQUIRE_OK(rondo_output(trial.graph, "x", RONDO_F32, 2, (int64_t[]){1, N}, &x));
  REQUIRE_OK(rondo_output(trial.graph, "residual", RONDO_F32, 1, (int64_t[]){1}, &residual));
  REQUIRE_OK(rondo_output(trial.graph, "info", RONDO_I32, 1, (int64_t[]){1}, &info));
  REQUIRE_OK(rondo_add_qr(trial.graph, &(rondo_qr_desc){.a = a, .h = h, .tau = tau}));
  REQUIRE_OK(rondo_add_qr(trial.graph, &(rondo_qr_desc){.a = a, .r = r, .q = q}));
  REQUIRE_OK(rondo_add_least_squares(
      trial.graph, &(rondo_least_squares_desc){.a = a, .b = b, .x = x, .residual = residual, .info = info}));
  trial_instantiate(&trial);
  const float columns[SIZE] = {-9.98137637e37f, -2.89532026e38f, -3.00510164e38f, -5.90357358e37f};
  const float sum[N] = {columns[0] + columns[2] / 4, columns[1] + columns[3] / 4}; /* x is 1, 1/4 */
  trial_set(&trial, a, columns);
  trial_set(&trial, b, sum);
  trial_replay(&trial);
  const float *const got_h = trial_output(&trial, h), *const got_r = trial_output(&trial, r);
  const float *const solution = trial_output(&trial, x);
  const float expected[SIZE] = {3.06254e38f, 0, 1.53754e38f, 2.64861e38f};
  for (int i = 0; i < SIZE; i++) {
    cr_expect(fabsf(got_r[i] - expected[i]) <= 1e33f, "r[%d] is %g, expected %g", i, (double)got_r[i],
              (double)expected[i]);
    if (i != 1) cr_expect(got_h[i] == got_r[i], "h[%d] is %g, r has %g", i, (double)got_h[i], (double)got_r[i]);
  }
  double matrix_of_a[SIZE], q_of_a[SIZE], r_of_a[SIZE];
  for (int i = 0; i < SIZE; i++) {
    matrix_of_a[i] = columns[i];
    q_of_a[i] = oracle_read(RONDO_F32, trial_output(&trial, q), i);
    r_of_a[i] = got_r[i];
  }
  qr_expect_thin(RONDO_F32, N, N, matrix_of_a, q_of_a, r_of_a, "the largest numbers");
  cr_expect(fabsf(solution[0] - 1) <= 1e-6f && fabsf(solution[1] - 0.25f) <= 1e-6f, "x is %g, %g", (double)solution[0],
            (double)solution[1]);
  cr_expect_eq(*(const int32_t *)trial_output(&trial, info), 0);
  cr_expect(*(const float *)trial_output(&trial, residual) <= 1e33f);
  trial_end(&trial);
}
BOTH_BACKENDS(qr, norms_of_more_than_half_the_largest_number_overflow_nowhere, nearly_the_largest)

/* ---- Bad descriptions ------------------------------------------------------------------------------------------- */

Test(qr, refuses_operands_that_do_not_fit_together) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  rondo_tensor a = qr_state(g, RONDO_F32, 3, 4, 8, 16), h = qr_state(g, RONDO_F32, 3, 4, 8, 16);
  rondo_tensor tau = qr_state(g, RONDO_F32, 2, 4, 8, 0), r = qr_state(g, RONDO_F32, 3, 4, 8, 8);
  rondo_tensor q = qr_state(g, RONDO_F32, 3, 4, 8, 16), none = {0};
  rondo_tensor short_tau = qr_state(g, RONDO_F32, 2, 4, 7, 0), f64_tau = qr_state(g, RONDO_F64, 2, 4, 8, 0);
  rondo_tensor codes = qr_state(g, RONDO_E4M3, 3, 4, 8, 16), vector = qr_state(g, RONDO_F32, 1, 8, 0, 0);
  rondo_tensor other_batch = qr_state(g, RONDO_F32, 3, 5, 8, 16);
  rondo_tensor view;
  REQUIRE_OK(rondo_view(g, a, (int64_t[]){0, 0, 0}, (int64_t[]){4, 8, 8}, &view));
#define REFUSED(fragment, ...)                                                                                         \
  REQUIRE_ERROR(rondo_add_qr(g, &(rondo_qr_desc){__VA_ARGS__}), RONDO_INVALID_ARGUMENT, fragment)
  REFUSED("a is absent", .h = h, .tau = tau);
  REFUSED("e4m3, expected a matrix or a batch of matrices, f32 or f64, or f16 or bf16", .a = codes, .h = h, .tau = tau);
  REFUSED("a is [8] f32, expected a matrix", .a = vector, .h = h, .tau = tau);
  REFUSED("tau is [4, 7] f32, expected [4, 8] f32", .a = a, .h = h, .tau = short_tau);
  REFUSED("tau is [4, 8] f64, expected [4, 8] f32", .a = a, .h = h, .tau = f64_tau);
  REFUSED("h is [5, 8, 16] f32, expected [4, 8, 16] f32", .a = a, .h = other_batch, .tau = tau);
  REFUSED("tau is absent", .a = a, .h = h);
  REFUSED("h is absent", .a = a, .tau = tau);
  REFUSED("h is absent, and so are r and q", .a = a);
  REFUSED("r is present beside h and tau", .a = a, .h = h, .tau = tau, .r = r);
  REFUSED("q is present beside h and tau", .a = a, .h = h, .tau = tau, .q = q);
  REFUSED("r is [4, 8, 16] f32, expected [4, 8, 8] f32", .a = a, .r = q);
  REFUSED("q is [4, 8, 8] f32, expected [4, 8, 16] f32", .a = a, .q = r);
  REFUSED("layout is 7, expected RONDO_COLUMN_MAJOR or RONDO_ROW_MAJOR", .layout = (rondo_layout)7, .a = a, .h = h,
          .tau = tau);
  REFUSED("a and r overlap", .a = a, .r = view);
  REFUSED("a and q overlap", .a = a, .q = a);
#undef REFUSED
  REQUIRE_ERROR(rondo_add_qr(g, NULL), RONDO_INVALID_ARGUMENT, "rondo_add_qr: the description is NULL");
  REQUIRE_ERROR(rondo_add_qr(NULL, &(rondo_qr_desc){.a = a, .r = r}), RONDO_INVALID_ARGUMENT, "graph");
  REQUIRE_ERROR(rondo_add_qr_panel(g, NULL), RONDO_INVALID_ARGUMENT, "the description is NULL");
  REQUIRE_ERROR(rondo_add_qr_panel(g, &(rondo_qr_panel_desc){.a = a, .tau = short_tau}), RONDO_INVALID_ARGUMENT,
                "tau is [4, 7] f32, expected [4, 8] f32");
  REQUIRE_ERROR(rondo_add_qr_panel(g, &(rondo_qr_panel_desc){.a = none, .tau = tau}), RONDO_INVALID_ARGUMENT,
                "a is absent");
  rondo_task task;
  REQUIRE_ERROR(rondo_last_task(g, &task), RONDO_INVALID_STATE, "no task");
  REQUIRE_OK(rondo_add_qr(g, &(rondo_qr_desc){.a = a, .h = a, .tau = tau})); /* the same descriptions, but right */
  REQUIRE_OK(rondo_add_qr(g, &(rondo_qr_desc){.a = a, .q = q, .r = r}));
  trial_end(&trial);
}
