/* test_least_squares.c - rondo_add_least_squares in register tiles and beyond them: every kind of matrix and layout
 * against the bound of rounding and against LAPACK's gels, the same bits, singular matrices, NaN, and refusals. Faults
 * that would show: a right-hand side that is transformed by another matrix's reflectors, a singular matrix that is not
 * reported. */
#include <criterion/criterion.h>
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../oracles/least_squares_oracle.h"

/* The tiles, and shapes that stand somewhere in one; after them shapes beyond all, which take two kernels. */
static const int16_t tiles[][2] = {{8, 8},    {16, 16},  {32, 32},  {64, 64},  {128, 128}, {128, 16},
                                   {256, 16}, {128, 32}, {256, 32}, {512, 32}, {1024, 32}, {96, 96}};
static const int16_t partly[][2] = {{1, 1},     {5, 3},     {8, 4},    {7, 7},    {16, 11},  {13, 2},
                                    {31, 1},    {27, 20},   {60, 60},  {50, 45},  {100, 90}, {124, 12},
                                    {100, 28},  {200, 7},   {252, 16}, {196, 32}, {300, 20}, {512, 18},
                                    {1024, 16}, {1000, 24}, {515, 31}, {600, 9}};
static const int16_t beyond[][2] = {{129, 129}, {140, 33}, {1100, 9}, {1025, 32}, {256, 200}, {2049, 5}};
enum {
  TILES = sizeof tiles / sizeof tiles[0],
  PARTLY = sizeof partly / sizeof partly[0],
  BEYOND = sizeof beyond / sizeof beyond[0],
  MOST = TILES + PARTLY + BEYOND
};
static const int16_t *shape_of(int i) {
  return i < TILES ? tiles[i] : i < TILES + PARTLY ? partly[i - TILES] : beyond[i - TILES - PARTLY];
}

/* ---- Every kind, every layout ----------------------------------------------------------------------------------- */

static void every_kind_of(rondo_backend backend, rondo_dtype dtype) {
  skip_under_sanitizers();
  struct fit all[TILES + BEYOND];
  for (int i = 0; i < TILES + BEYOND; i++) {
    const int16_t *shape = i < TILES ? tiles[i] : beyond[i - TILES];
    all[i] = (struct fit){.dtype = dtype,
                          .m = shape[0],
                          .n = shape[1],
                          .sides = 1 + i % 2,
                          .batch = QR_KINDS + 1, /* no multiple of the matrices of a warp */
                          .kinds = every_kind,
                          .kind_count = QR_KINDS};
  }
  fits_expect(backend, all, TILES + BEYOND);
}
static void kinds_f32(rondo_backend backend) { every_kind_of(backend, RONDO_F32); }
static void kinds_f64(rondo_backend backend) { every_kind_of(backend, RONDO_F64); }
BOTH_BACKENDS(least_squares, every_kind_of_matrix_of_f32_is_solved_to_rounding, kinds_f32)
BOTH_BACKENDS(least_squares, every_kind_of_matrix_of_f64_is_solved_to_rounding, kinds_f64)

/* Dense, padded and aligned, padded and not, row-major, row-major and padded; and from one right-hand side to more than
 * any kernel of a tile takes. On the host each layout takes two of the four kinds, the next layout the others. */
static void every_layout_of(rondo_backend backend, rondo_dtype dtype) {
  static const int8_t sides[] = {1, 3, 4, 17, 50};
  const bool host = backend == RONDO_BACKEND_HOST;
  for (int layout = 0; layout < 5; layout++) {
    struct fit all[MOST];
    for (int i = 0; i < MOST; i++)
      all[i] = (struct fit){.dtype = dtype,
                            .layout = layout >= 3 ? RONDO_ROW_MAJOR : RONDO_COLUMN_MAJOR,
                            .m = shape_of(i)[0],
                            .n = shape_of(i)[1],
                            .sides = sides[(i + layout) % 5],
                            .batch = host ? 2 : 5,
                            .padding = layout == 0 || layout == 3 ? 0
                                       : layout == 1              ? 8
                                                                  : 4,
                            .aligned = layout == 1,
                            .kinds = hard_kinds + (host ? 2 * ((i + layout) % 2) : 0),
                            .kind_count = host ? 2 : 4};
    fits_expect(backend, all, MOST);
  }
}
static void layouts_f32(rondo_backend backend) { every_layout_of(backend, RONDO_F32); }
static void layouts_f64(rondo_backend backend) {
  skip_under_sanitizers();
  every_layout_of(backend, RONDO_F64);
}
BOTH_BACKENDS(least_squares, f32_of_every_shape_is_solved_in_every_layout, layouts_f32)
BOTH_BACKENDS(least_squares, f64_of_every_shape_is_solved_in_every_layout, layouts_f64)

/* Columns too long for shared memory, and for the blocked kernels of qr. */
static void long_columns(rondo_backend backend) {
  static const enum qr_kind kinds[] = {QR_RANDOM, QR_LARGEST};
  struct fit all[] = {{.dtype = RONDO_F32, .m = 30000, .n = 3, .sides = 5, .batch = 2},
                      {.dtype = RONDO_F64, .m = 13000, .n = 4, .sides = 2, .batch = 2},
                      {.dtype = RONDO_F64, .m = 9000, .n = 2, .sides = 7, .batch = 3}};
  for (int i = 0; i < 3; i++) all[i].kinds = kinds, all[i].kind_count = 2;
  fits_expect(backend, all, 3);
}
BOTH_BACKENDS(least_squares, long_columns_are_solved_to_rounding, long_columns)

/* ---- LAPACK ----------------------------------------------------------------------------------------------------- */

/* dgels in double, of matrices so well conditioned that solutions can be compared. */
static void expect_gels(const struct fit *p, const struct solution *got, int64_t item) {
  const int64_t m = p->m, n = p->n;
  const double *x = got->x + item * n * p->sides, *b = p->rights + item * m * p->sides;
  double *a = qr_memory(m * n, sizeof *a), *expected = qr_memory(m * p->sides, sizeof *expected);
  memcpy(a, p->matrices + item * m * n, (size_t)(m * n) * sizeof *a);
  memcpy(expected, b, (size_t)(m * p->sides) * sizeof *expected);
  cr_assert_eq(LAPACKE_dgels(LAPACK_COL_MAJOR, 'N', (int)m, (int)n, (int)p->sides, a, (int)m, expected, (int)m), 0);
  char where[160];
  fit_describe(p, item, where, sizeof where);
  for (int64_t s = 0; s < p->sides; s++) {
    double b_norm = 0, norm = 0, difference = 0;
    for (int64_t i = 0; i < m; i++) b_norm = hypot(b_norm, b[s * m + i]);
    for (int64_t i = n; i < m; i++) norm = hypot(norm, expected[s * m + i]);
    for (int64_t j = 0; j < n; j++) difference = hypot(difference, x[s * n + j] - expected[s * m + j]);
    const long double unit = (long double)m * qr_epsilon(p->dtype) * b_norm; /* |A| = 1 and |inverse of A| = 2 */
    qr_expect_ratio("|x - x of dgels|", difference / (4 * unit), where);
    qr_expect_ratio("|residual - that of dgels|", fabs(got->residual[item * p->sides + s] - norm) / unit, where);
  }
  free(a), free(expected);
}

static void like_gels(rondo_backend backend) {
  static const enum qr_kind kinds[] = {QR_CONDITION_2};
  struct fit all[2 * MOST];
  struct solution solutions[2 * MOST];
  struct random random = {7};
  for (int i = 0; i < 2 * MOST; i++) {
    all[i] = (struct fit){.dtype = i < MOST ? RONDO_F32 : RONDO_F64,
                          .m = shape_of(i % MOST)[0],
                          .n = shape_of(i % MOST)[1],
                          .sides = 1 + i % MOST % 5,
                          .batch = 2,
                          .kinds = kinds,
                          .kind_count = 1};
    fit_fill(&all[i], &random);
  }
  fits_run(backend, all, (size_t)2 * MOST, solutions);
  for (int i = 0; i < 2 * MOST; i++) {
    for (int64_t item = 0; item < all[i].batch; item++) expect_gels(&all[i], &solutions[i], item);
    solution_free(&solutions[i]);
    free(all[i].matrices), free(all[i].rights);
  }
}
BOTH_BACKENDS(least_squares, solutions_and_residuals_are_those_of_lapack, like_gels)

/* ---- Bits ------------------------------------------------------------------------------------------------------- */

/* The first matrix stands in the batch again, in the middle and at the end; alone, and without residual and info, x has
 * the same bits. */
static void same_bits(rondo_backend backend) {
  skip_under_sanitizers();
  enum { BOTH = 2 * MOST, BATCH = 13 };
  struct fit all[BOTH], again[BOTH], alone[BOTH];
  struct solution solutions[BOTH], repeated[BOTH], single[BOTH];
  struct random random = {31};
  for (int i = 0; i < BOTH; i++) {
    struct fit *p = &all[i];
    *p = (struct fit){.dtype = i < MOST ? RONDO_F32 : RONDO_F64,
                      .m = shape_of(i % MOST)[0],
                      .n = shape_of(i % MOST)[1],
                      .sides = 1 + (i % MOST + 2) % 3,
                      .batch = BATCH,
                      .kinds = random_kind,
                      .kind_count = 1};
    fit_fill(p, &random);
    for (int item = BATCH / 2; item < BATCH; item += BATCH - 1 - BATCH / 2) {
      memcpy(p->matrices + item * p->m * p->n, p->matrices, (size_t)(p->m * p->n) * sizeof(double));
      memcpy(p->rights + item * p->m * p->sides, p->rights, (size_t)(p->m * p->sides) * sizeof(double));
    }
    again[i] = alone[i] = *p;
    alone[i].batch = 1;
    alone[i].x_alone = true;
  }
  fits_run(backend, all, BOTH, solutions);
  fits_run(backend, again, BOTH, repeated);
  fits_run(backend, alone, BOTH, single);
  for (int i = 0; i < BOTH; i++) {
    const struct fit *p = &all[i];
    const size_t numbers = (size_t)(p->n * p->sides), bytes = numbers * sizeof(double);
    const double *x = solutions[i].x;
    char where[160];
    fit_describe(p, 0, where, sizeof where);
    cr_expect(!memcmp(x, repeated[i].x, BATCH * bytes), "replays differ: %s", where);
    cr_expect(!memcmp(solutions[i].residual, repeated[i].residual, BATCH * (size_t)p->sides * sizeof(double)),
              "residuals of replays differ: %s", where);
    cr_expect(!memcmp(x, x + BATCH / 2 * numbers, bytes) && !memcmp(x, x + (BATCH - 1) * numbers, bytes),
              "the place in the batch changes bits: %s", where);
    cr_expect(!memcmp(x, single[i].x, bytes), "the batch, or residual and info, change bits: %s", where);
    solution_free(&solutions[i]), solution_free(&repeated[i]), solution_free(&single[i]);
    free(all[i].matrices), free(all[i].rights);
  }
}
BOTH_BACKENDS(least_squares, a_matrix_has_the_same_bits_in_every_replay_and_batch, same_bits)

/* ---- Singular matrices, infinities and NaN ---------------------------------------------------------------------- */

/* In the batch: a column of zeros in item 2, NaN in item 5, an infinity in item 7, NaN in the last right-hand side of
 * item 9. Nothing else changes a bit, and a side of its own neither. */
static void poisoned(rondo_backend backend) {
  enum { BOTH = 2 * MOST, BATCH = 13 };
  struct fit good[BOTH], bad[BOTH];
  struct solution clean[BOTH], got[BOTH];
  struct random random = {100};
  for (int i = 0; i < BOTH; i++) {
    good[i] = (struct fit){.dtype = i < MOST ? RONDO_F32 : RONDO_F64,
                           .m = shape_of(i % MOST)[0],
                           .n = shape_of(i % MOST)[1],
                           .sides = 1 + i % MOST % 2,
                           .batch = BATCH,
                           .kinds = random_kind,
                           .kind_count = 1};
    fit_fill(&good[i], &random);
  }
  fits_run(backend, good, BOTH, clean);
  for (int i = 0; i < BOTH; i++) {
    bad[i] = good[i];
    const int64_t m = bad[i].m, n = bad[i].n, sides = bad[i].sides;
    for (int64_t row = 0; row < m; row++) bad[i].matrices[(2 * n + n / 2) * m + row] = 0;
    bad[i].matrices[5 * m * n + m * n / 2] = (double)NAN;
    bad[i].matrices[7 * m * n + m * n / 3] = INFINITY;
    bad[i].rights[(10 * sides - 1) * m + m / 2] = (double)NAN;
  }
  fits_run(backend, bad, BOTH, got);
  for (int i = 0; i < BOTH; i++) {
    const int64_t n = bad[i].n, sides = bad[i].sides;
    char where[160];
    fit_describe(&bad[i], 0, where, sizeof where);
    for (int64_t item = 0; item < BATCH; item++) {
      const double *x = got[i].x + item * sides * n, *before = clean[i].x + item * sides * n;
      const int64_t kept = item == 2 || item == 5 || item == 7 ? 0 : item == 9 ? (sides - 1) * n : sides * n;
      cr_expect(!memcmp(x, before, (size_t)kept * sizeof *x), "item %d of %s has other bits", (int)item, where);
      if (item == 9) cr_expect(!all_are_finite(x + kept, n), "NaN of a right-hand side must not vanish: %s", where);
      if (kept == 0 && item != 9 && (item != 7 || n > 1)) /* one number divided by infinity is 0 */
        cr_expect(!all_are_finite(x, n), "item %d must not look like a solution: %s", (int)item, where);
    }
    cr_expect_eq(got[i].info[2], (int32_t)(n / 2 + 1), "info is %d: %s", (int)got[i].info[2], where);
    cr_expect_eq(got[i].info[1], 0, "info is %d: %s", (int)got[i].info[1], where);
    for (int64_t j = 0; j < sides * n; j++)
      cr_expect(isnan(got[i].x[2 * sides * n + j]), "x of a singular matrix: %s", where);
    solution_free(&clean[i]), solution_free(&got[i]);
    free(good[i].matrices), free(good[i].rights);
  }
}
BOTH_BACKENDS(least_squares, zero_columns_infinities_and_nan_stay_in_their_own_matrix_and_side, poisoned)

/* ---- Batches ---------------------------------------------------------------------------------------------------- */

/* No matrices at all, one without a batch, and more than a grid's second dimension has. */
static void batches(rondo_backend backend) {
  enum { MANY = 66000 };
  struct trial trial;
  trial_describe(&trial, backend);
  rondo_least_squares_desc none, one, many;
  const int64_t size = 2;
#define ADD(desc, batch, rank, skip)                                                                                   \
  do {                                                                                                                 \
    const int64_t matrices[] = {batch, size, size + 1}, sides[] = {batch, 1, size + 1}, x[] = {batch, 1, size};        \
    (desc) = (rondo_least_squares_desc){0};                                                                            \
    REQUIRE_OK(rondo_input(trial.graph, NULL, RONDO_F32, rank, matrices + (skip), &(desc).a));                         \
    REQUIRE_OK(rondo_input(trial.graph, NULL, RONDO_F32, rank, sides + (skip), &(desc).b));                            \
    REQUIRE_OK(rondo_output(trial.graph, NULL, RONDO_F32, rank, x + (skip), &(desc).x));                               \
    REQUIRE_OK(rondo_output(trial.graph, NULL, RONDO_F32, (rank)-1, x + (skip), &(desc).residual));                    \
    REQUIRE_OK(rondo_output(trial.graph, NULL, RONDO_I32, 1, (int64_t[]){batch}, &(desc).info));                       \
    REQUIRE_OK(rondo_add_least_squares(trial.graph, &(desc)));                                                         \
  } while (0)
  ADD(none, 0, 3, 0);
  ADD(one, 1, 2, 1);
  ADD(many, MANY, 3, 0);
#undef ADD
  trial_instantiate(&trial);
  /* (1, 1, 1), (0, 1, 2): a line through (0, 1), (1, 2), (2, 6) is 1/2 + 5/2 t, and sqrt(3/2) is left. */
  float *a = qr_memory(INT64_C(6) * MANY, sizeof *a), *b = qr_memory(INT64_C(3) * MANY, sizeof *b);
  for (int item = 0; item < MANY; item++) {
    memcpy(a + (size_t)item * 6, (const float[]){1, 1, 1, 0, 1, 2}, 6 * sizeof *a);
    memcpy(b + (size_t)item * 3, (const float[]){1, 2, 6}, 3 * sizeof *b);
  }
  trial_set(&trial, one.a, a), trial_set(&trial, one.b, b);
  trial_set(&trial, many.a, a), trial_set(&trial, many.b, b);
  trial_replay(&trial);
  const rondo_least_squares_desc *descs[] = {&one, &many};
  for (int d = 0; d < 2; d++) {
    const float *x = trial_output(&trial, descs[d]->x), *residual = trial_output(&trial, descs[d]->residual);
    const int32_t *info = trial_output(&trial, descs[d]->info);
    for (int item = 0; item < (d ? MANY : 1); item++, x += size)
      if (info[item] || !(fabsf(x[0] - 0.5f) < 1e-5f) || !(fabsf(x[1] - 2.5f) < 1e-5f) ||
          !(fabsf(residual[item] - 1.2247449f) < 1e-5f))
        cr_assert(false, "item %d: %g + %g t, off by %g, info %d", item, (double)x[0], (double)x[1],
                  (double)residual[item], (int)info[item]);
  }
  free(a), free(b);
  trial_end(&trial);
}
BOTH_BACKENDS(least_squares, a_batch_may_be_absent_empty_or_beyond_65535, batches)

/* ---- Refused ---------------------------------------------------------------------------------------------------- */

Test(least_squares, refuses_operands_that_do_not_fit_together) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  rondo_tensor a = qr_state(g, RONDO_F32, 3, 2, 4, 9), b = qr_state(g, RONDO_F32, 3, 2, 3, 9);
  rondo_tensor x = qr_state(g, RONDO_F32, 3, 2, 3, 4), residual = qr_state(g, RONDO_F32, 2, 2, 3, 0);
  rondo_tensor info = qr_state(g, RONDO_I32, 1, 2, 0, 0), wide = qr_state(g, RONDO_F32, 3, 2, 10, 9);
  rondo_tensor f16 = qr_state(g, RONDO_F16, 3, 2, 4, 9), f64 = qr_state(g, RONDO_F64, 3, 2, 3, 9);
  rondo_tensor empty = qr_state(g, RONDO_F32, 3, 2, 0, 9), flat = qr_state(g, RONDO_F32, 2, 3, 9, 0);
  rondo_tensor three = qr_state(g, RONDO_I32, 1, 3, 0, 0), vector = qr_state(g, RONDO_F32, 1, 9, 0, 0);
#define REFUSED(fragment, ...)                                                                                         \
  REQUIRE_ERROR(rondo_add_least_squares(g, &(rondo_least_squares_desc){__VA_ARGS__}), RONDO_INVALID_ARGUMENT, fragment)
  REFUSED("a is absent, expected a matrix", .b = b, .x = x);
  REFUSED("a is [2, 4, 9] f16, expected a matrix", .a = f16, .b = b, .x = x);
  REFUSED("a is [9] f32, expected a matrix", .a = vector, .b = b, .x = x);
  REFUSED("a is [2, 10, 9] f32, expected matrices of at least one column and as many rows as columns, [columns, rows]",
          .a = wide, .b = b, .x = x);
  REFUSED("a is [2, 4, 9] f32, expected matrices of at least one column and as many rows", .a = a, .b = b, .x = x,
          .layout = RONDO_ROW_MAJOR);
  REFUSED("a is [2, 0, 9] f32, expected matrices of at least one column", .a = empty, .b = b, .x = x);
  REFUSED("b is absent, expected a batch of matrices", .a = a, .x = x);
  REFUSED("b is [3, 9] f32, expected a batch of matrices, as a is", .a = a, .b = flat, .x = x);
  REFUSED("b is [2, 3, 9] f64, expected [2, 3, 9] f32", .a = a, .b = f64, .x = x);
  REFUSED("b is [2, 3, 4] f32, expected [2, 3, 9] f32", .a = a, .b = x, .x = b);
  REFUSED("b is [2, 0, 9] f32, expected at least one right-hand side", .a = a, .b = empty, .x = x);
  REFUSED("x is absent, expected [2, 3, 4] f32", .a = a, .b = b);
  REFUSED("x is [2, 3, 9] f32, expected [2, 3, 4] f32", .a = a, .b = b, .x = b);
  REFUSED("residual is [3, 9] f32, expected [2, 3] f32", .a = a, .b = b, .x = x, .residual = flat);
  REFUSED("info is [3] i32, expected [2] i32", .a = a, .b = b, .x = x, .info = three);
  REFUSED("info is [2, 3] f32, expected [2] i32", .a = a, .b = b, .x = x, .info = residual);
  REFUSED("layout is 7, expected RONDO_COLUMN_MAJOR or RONDO_ROW_MAJOR", .a = a, .b = b, .x = x,
          .layout = (rondo_layout)7);
  rondo_tensor corner, square = qr_state(g, RONDO_F32, 3, 2, 4, 4);
  REQUIRE_OK(rondo_view(g, square, (int64_t[]){0, 0, 0}, (int64_t[]){2, 3, 4}, &corner));
  REFUSED("overlap", .a = square, .b = corner, .x = corner);
#undef REFUSED
  REQUIRE_ERROR(rondo_add_least_squares(g, NULL), RONDO_INVALID_ARGUMENT, "the description is NULL");
  rondo_task task;
  REQUIRE_ERROR(rondo_last_task(g, &task), RONDO_INVALID_STATE, "no task");
  REQUIRE_OK(rondo_add_least_squares(
      g, &(rondo_least_squares_desc){.a = a, .b = b, .x = x, .residual = residual, .info = info}));
  trial_end(&trial);
}
