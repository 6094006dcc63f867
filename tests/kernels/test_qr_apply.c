/* test_qr_apply.c - rondo_add_qr_update and rondo_add_qr_apply against sums in long double. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../oracles/qr_oracle.h"

enum form { UPDATE, APPLY, APPLY_TRANSPOSED, FORMS };
static const char *const form_names[] = {"qr_update", "qr_apply", "qr_apply transposed"};

/* One task and its data: v is m x n, c is m x columns. */
struct application {
  rondo_dtype dtype;
  rondo_layout layout;
  enum form form;
  int64_t m, n, columns, batch, padding;
  bool aligned; /* the padding in front too is whole vectors */
  bool largest; /* columns of C have norms near the largest number, some of them or all */
  /* Filled by application_add and application_fill. */
  int64_t k;
  struct qr_place v_place, c_place;
  rondo_tensor v, tau, c;
  double *reflectors, *factors, *before; /* [batch][n][m], [batch][k], [batch][columns][m] */
};

static struct qr_place place_of(const struct application *x, int64_t columns) {
  int64_t before = x->aligned ? x->padding / 2 : x->padding ? 1 : 0;
  return (struct qr_place){x->dtype, x->layout, x->batch, x->m, columns, before, x->padding - before};
}

static int64_t tau_count(const struct application *x) { return x->batch * (x->k + x->padding); }

static void application_add(struct application *x, struct trial *trial) {
  x->k = qr_min(x->m, x->n);
  x->v_place = place_of(x, x->n);
  x->c_place = place_of(x, x->columns);
  rondo_tensor v, tau, c;
  x->v = qr_place_add(&x->v_place, trial->graph, rondo_constant, "v", &v);
  x->c = qr_place_add(&x->c_place, trial->graph, rondo_state, "c", &c);
  REQUIRE_OK(rondo_constant(trial->graph, "tau", x->dtype, 2, (int64_t[]){x->batch, x->k + x->padding}, &x->tau));
  REQUIRE_OK(rondo_view(trial->graph, x->tau, (int64_t[]){0, x->padding ? 1 : 0}, (int64_t[]){x->batch, x->k}, &tau));
  if (x->form == UPDATE)
    REQUIRE_OK(
        rondo_add_qr_update(trial->graph, &(rondo_qr_update_desc){.layout = x->layout, .v = v, .tau = tau, .c = c}));
  else
    REQUIRE_OK(rondo_add_qr_apply(
        trial->graph,
        &(rondo_qr_apply_desc){
            .layout = x->layout, .transpose = x->form == APPLY_TRANSPOSED ? 3 : 0, .v = v, .tau = tau, .c = c}));
}

/* Reflectors of any size with the tau that makes each orthogonal up to rounding, and now and then tau = 0, an identity.
 * On and above the diagonal, where R would be, there is NaN: it must not be read into any sum. */
static void application_fill(struct application *x, struct random *random) {
  x->reflectors = qr_memory(x->batch * x->m * x->n, sizeof(double));
  x->factors = qr_memory(x->batch * x->k, sizeof(double));
  x->before = qr_memory(x->batch * x->m * x->columns, sizeof(double));
  for (int64_t item = 0; item < x->batch; item++) {
    double *v = x->reflectors + item * x->m * x->n;
    for (int64_t j = 0; j < x->n; j++) {
      double squares = 1, size = random_uniform(random) < 0.5 ? 1 : 1 / sqrt((double)x->m);
      for (int64_t i = 0; i < x->m; i++) {
        v[j * x->m + i] = i <= j ? (double)NAN : qr_rounded(x->dtype, size * random_normal(random));
        if (i > j) squares += v[j * x->m + i] * v[j * x->m + i];
      }
      if (j < x->k) x->factors[item * x->k + j] = random_uniform(random) < 0.1 ? 0 : qr_rounded(x->dtype, 2 / squares);
    }
  }
  for (int64_t item = 0; item < x->batch; item++)
    qr_fill(random, x->dtype,
            !x->largest ? QR_RANDOM
            : item % 2  ? QR_SOME_LARGEST
                        : QR_LARGEST,
            x->m, x->columns, x->before + item * x->m * x->columns);
}

static void application_free(struct application *x) {
  free(x->reflectors);
  free(x->factors);
  free(x->before);
}

static void application_set(const struct application *x, struct trial *trial) {
  qr_matrices_set(trial, &x->v_place, x->reflectors, x->v);
  qr_matrices_set(trial, &x->c_place, x->before, x->c);
  void *tau = qr_guarded(x->dtype, tau_count(x));
  for (int64_t i = 0; i < x->batch * x->k; i++)
    oracle_write(x->dtype, tau, i / x->k * (x->k + x->padding) + (x->padding ? 1 : 0) + i % x->k, x->factors[i]);
  trial_set(trial, x->tau, tau);
  free(tau);
}

static void application_where(const struct application *x, int64_t item, char *text, size_t bytes) {
  snprintf(text, bytes, "%s %s %dx%d to %d columns, %s, item %d", rondo_dtype_name(x->dtype), form_names[x->form],
           (int)x->m, (int)x->n, (int)x->columns, x->layout == RONDO_ROW_MAJOR ? "row-major" : "column-major",
           (int)item);
}

static void application_expect(const struct application *x, const void *data, int64_t item) {
  char where[160];
  application_where(x, item, where, sizeof where);
  int64_t count = x->m * x->columns;
  const double *before = x->before + item * count;
  double *after = qr_memory(count, sizeof *after);
  long double *exact = qr_memory(count, sizeof *exact);
  qr_place_read(&x->c_place, item, data, after);
  for (int64_t i = 0; i < count; i++) exact[i] = before[i];
  long double norm = qr_one_norm(x->m, x->columns, exact);
  qr_oracle_apply(x->dtype, x->m, x->k, x->reflectors + item * x->m * x->n, x->factors + item * x->k, x->form != APPLY,
                  x->columns, exact);
  for (int64_t i = 0; i < count; i++) exact[i] -= after[i];
  long double difference = qr_one_norm(x->m, x->columns, exact);
  qr_expect_ratio("|C - QC|", difference == 0 ? 0 : difference / ((long double)x->m * norm * qr_epsilon(x->dtype)),
                  where);
  free(exact);
  free(after);
}

static void applications_run(rondo_backend backend, struct application *all, size_t count) {
  struct trial trial;
  struct random random = {20260712};
  trial_describe(&trial, backend);
  for (size_t i = 0; i < count; i++) application_add(&all[i], &trial);
  trial_instantiate(&trial);
  for (size_t i = 0; i < count; i++) {
    application_fill(&all[i], &random);
    application_set(&all[i], &trial);
  }
  trial_replay(&trial);
  for (size_t i = 0; i < count; i++) {
    const struct application *x = &all[i];
    void *data = qr_memory(qr_place_count(&x->c_place), qr_bytes(x->dtype));
    trial_get(&trial, x->c, data);
    for (int64_t item = 0; item < x->batch; item++) application_expect(x, data, item);
    char where[160];
    application_where(x, 0, where, sizeof where);
    qr_expect_guards(&x->c_place, data, where);
    free(data);
    application_free(&all[i]);
  }
  trial_end(&trial);
}

/* Every form, layout and type for shapes around the kernels' edges: tiles of 4 columns, blocks of 16, chunks of 32. */
static void every_shape(rondo_backend backend) {
  static const int16_t shapes[][4] = {
      /* m, n, columns, batch */
      {1, 1, 1, 2},   {1, 3, 2, 2},   {3, 1, 5, 3},    {5, 9, 4, 3},    {8, 4, 17, 2},    {31, 7, 3, 2},
      {33, 33, 8, 2}, {40, 20, 1, 5}, {64, 32, 33, 2}, {65, 33, 16, 2}, {100, 70, 40, 2}, {257, 16, 9, 2},
      {7, 5, 0, 2},   {7, 0, 5, 2},   {0, 4, 5, 2},    {6, 4, 3, 0},
  };
  enum { SHAPES = sizeof shapes / sizeof shapes[0] };
  for (int pass = 0; pass < 4; pass++) {
    struct application all[SHAPES * FORMS];
    for (int i = 0; i < SHAPES * FORMS; i++) {
      const int16_t *shape = shapes[i / FORMS];
      all[i] = (struct application){.dtype = pass % 2 ? RONDO_F32 : RONDO_F64,
                                    .layout = pass / 2 ? RONDO_ROW_MAJOR : RONDO_COLUMN_MAJOR,
                                    .form = (enum form)(i % FORMS),
                                    .m = shape[0],
                                    .n = shape[1],
                                    .columns = shape[2],
                                    .batch = shape[3],
                                    .padding = i / FORMS % 3 == pass % 3 ? 3 : 0,
                                    .largest = (i / FORMS + pass) % 2};
    }
    applications_run(backend, all, sizeof all / sizeof all[0]);
  }
}
BOTH_BACKENDS(qr_apply, meets_the_gate_for_every_form_shape_and_layout, every_shape)

/* Each register tile (qr_tile_apply.h) full and partly filled, with fewer, as many and more columns of C than it has;
 * dense, with padding that keeps vectors whole and with padding that does not. A batch is no multiple of what a warp
 * has. */
static void every_tile(rondo_backend backend) {
  static const int16_t shapes[][4] = {
      /* m, n, columns, batch */
      {8, 8, 8, 5},     {4, 3, 19, 3},      {16, 16, 16, 3},  {12, 9, 40, 3},    {32, 32, 32, 2},
      {24, 20, 70, 2},  {64, 64, 64, 2},    {60, 33, 130, 2}, {64, 7, 200, 1},   {128, 128, 128, 2},
      {96, 65, 100, 2}, {124, 128, 150, 1}, {72, 90, 129, 1}, {512, 32, 32, 2},  {260, 9, 80, 1},
      {300, 32, 17, 2}, {128, 32, 70, 3},   {256, 32, 65, 2}, {200, 150, 40, 1}, {132, 133, 5, 2},
      {512, 70, 33, 1}, {1024, 32, 32, 1},  {600, 40, 33, 2}, {2048, 24, 20, 1}, {1025, 33, 9, 1},
  };
  enum { SHAPES = sizeof shapes / sizeof shapes[0] };
  for (int pass = 0; pass < 6; pass++) {
    struct application all[2 * SHAPES];
    for (int i = 0; i < 2 * SHAPES; i++) {
      const int16_t *shape = shapes[i / 2];
      all[i] = (struct application){.dtype = pass % 2 ? RONDO_F32 : RONDO_F64,
                                    .layout = i / 2 % 4 == 3 ? RONDO_ROW_MAJOR : RONDO_COLUMN_MAJOR,
                                    .form = i % 2 ? APPLY : UPDATE,
                                    .m = shape[0],
                                    .n = shape[1],
                                    .columns = shape[2],
                                    .batch = shape[3],
                                    .padding = INT64_C(4) * (pass / 2),
                                    .aligned = pass / 2 == 2,
                                    .largest = (i / 2 + pass) % 2};
    }
    applications_run(backend, all, sizeof all / sizeof all[0]);
  }
}
BOTH_BACKENDS(qr_apply, meets_the_gate_for_every_tile_full_and_partly_filled, every_tile)

/* Columns of C so long that fewer and fewer fit in shared memory, down to none, and enough of them to fill a chip. */
static void long_and_wide(rondo_backend backend) {
  struct application all[] = {
      {.dtype = RONDO_F32, .form = APPLY, .m = 2100, .n = 40, .columns = 20, .batch = 1, .largest = true},
      {.dtype = RONDO_F64, .form = UPDATE, .m = 2500, .n = 9, .columns = 5, .batch = 1},
      {.dtype = RONDO_F64, .form = APPLY, .layout = RONDO_ROW_MAJOR, .m = 12000, .n = 3, .columns = 2, .batch = 1},
      {.dtype = RONDO_F64, .form = APPLY_TRANSPOSED, .m = 15000, .n = 3, .columns = 5, .batch = 2, .largest = true},
      {.dtype = RONDO_F32, .form = APPLY, .layout = RONDO_ROW_MAJOR, .m = 31000, .n = 2, .columns = 3, .batch = 1},
      {.dtype = RONDO_F32, .form = UPDATE, .m = 40, .n = 33, .columns = 5000, .batch = 1},
      {.dtype = RONDO_F64, .form = APPLY, .m = 20, .n = 9, .columns = 31, .batch = 300, .largest = true},
  };
  applications_run(backend, all, sizeof all / sizeof all[0]);
}
BOTH_BACKENDS(qr_apply, meets_the_gate_for_long_and_wide_matrices, long_and_wide)

static void huge_batch(rondo_backend backend) {
  struct application all[] = {{.dtype = RONDO_F32, .form = APPLY, .m = 3, .n = 2, .columns = 1, .batch = 70001}};
  applications_run(backend, all, 1);
}
BOTH_BACKENDS(qr_apply, a_batch_may_pass_65535, huge_batch)

/* Matrices without a batch dimension; the update is the transposed application, bit for bit; and the two directions
 * undo each other. */
static void both_ways(rondo_backend backend) {
  enum { M = 37, N = 11, COLUMNS = 6 };
  struct trial trial;
  trial_describe(&trial, backend);
  int64_t v_shape[] = {N, M}, c_shape[] = {COLUMNS, M}, tau_shape[] = {N};
  rondo_tensor v, tau, there, back, updated;
  REQUIRE_OK(rondo_constant(trial.graph, "v", RONDO_F64, 2, v_shape, &v));
  REQUIRE_OK(rondo_constant(trial.graph, "tau", RONDO_F64, 1, tau_shape, &tau));
  REQUIRE_OK(rondo_state(trial.graph, "there", RONDO_F64, 2, c_shape, &there));
  REQUIRE_OK(rondo_state(trial.graph, "updated", RONDO_F64, 2, c_shape, &updated));
  REQUIRE_OK(rondo_output(trial.graph, "back", RONDO_F64, 2, c_shape, &back));
  REQUIRE_OK(rondo_add_qr_apply(trial.graph, &(rondo_qr_apply_desc){.transpose = 1, .v = v, .tau = tau, .c = there}));
  REQUIRE_OK(rondo_add_qr_update(trial.graph, &(rondo_qr_update_desc){.v = v, .tau = tau, .c = updated}));
  REQUIRE_OK(rondo_add_copy(trial.graph, &(rondo_copy_desc){.src = there, .dst = back}));
  REQUIRE_OK(rondo_add_qr_apply(trial.graph, &(rondo_qr_apply_desc){.v = v, .tau = tau, .c = back}));
  trial_instantiate(&trial);
  struct application x = {.dtype = RONDO_F64, .m = M, .n = N, .columns = COLUMNS, .batch = 1, .k = N};
  struct random random = {3};
  application_fill(&x, &random);
  trial_set(&trial, v, x.reflectors);
  trial_set(&trial, tau, x.factors);
  trial_set(&trial, there, x.before);
  trial_set(&trial, updated, x.before);
  trial_replay(&trial);
  double one[M * COLUMNS], other[M * COLUMNS];
  trial_get(&trial, there, one);
  trial_get(&trial, updated, other);
  cr_expect_arr_eq(one, other, sizeof one, "qr_update and qr_apply with transpose differ");
  cr_expect_arr_neq(one, x.before, sizeof one, "Q^T did nothing");
  const double *again = trial_output(&trial, back);
  for (int i = 0; i < M * COLUMNS; i++)
    cr_expect(fabs(again[i] - x.before[i]) <= 1e-12, "Q Q^T c[%d] is %g, was %g", i, again[i], x.before[i]);
  application_free(&x);
  trial_end(&trial);
}
BOTH_BACKENDS(qr_apply, update_is_the_transposed_application_and_apply_undoes_it, both_ways)

/* C of one item, as it is in memory, of a run of its own. */
static void *application_bits(rondo_backend backend, struct application *x, int replays) {
  struct trial trial;
  trial_describe(&trial, backend);
  application_add(x, &trial);
  trial_instantiate(&trial);
  size_t bytes = (size_t)qr_place_count(&x->c_place) * qr_bytes(x->dtype);
  void *data = qr_memory(qr_place_count(&x->c_place), qr_bytes(x->dtype)), *again = malloc(bytes);
  for (int i = 0; i < replays; i++) {
    application_set(x, &trial);
    trial_replay(&trial);
    trial_get(&trial, x->c, i ? again : data);
    if (i) cr_expect_arr_eq(again, data, bytes, "replay %d differs", i);
  }
  free(again);
  trial_end(&trial);
  return data;
}

/* A matrix has the same bits in every replay and batch, and what is not finite stays with its own matrix and column. */
static void same_bits_of(rondo_backend backend, struct application x, struct random *random) {
  const int64_t size = x.m * x.columns, poisoned_column = x.columns / 2, row = x.m - 1;
  x.k = qr_min(x.m, x.n);
  application_fill(&x, random);
  float *all = application_bits(backend, &x, 3);
  struct application first = x;
  first.batch = 1;
  float *alone = application_bits(backend, &first, 1);
  cr_expect_arr_eq(alone, all, (size_t)size * sizeof(float), "a matrix of %d x %d differs by itself", (int)x.m,
                   (int)x.n);
  x.before[2 * size + poisoned_column * x.m + row] = (double)NAN; /* of item 2 */
  x.reflectors[4 * x.m * x.n + row] = INFINITY;                   /* of item 4 */
  x.factors[4 * x.k] = 1;
  float *poisoned = application_bits(backend, &x, 1);
  for (int item = 0; item < x.batch; item++)
    for (int column = 0; column < x.columns; column++) {
      bool same = true, bad = false;
      for (int i = 0; i < x.m; i++) {
        const float *got = &poisoned[item * size + column * x.m + i];
        same &= *got == all[item * size + column * x.m + i];
        bad |= !isfinite(*got);
      }
      bool expected = item == 4 || (item == 2 && column == poisoned_column);
      cr_expect(expected ? bad : same, "%d x %d: item %d, column %d", (int)x.m, (int)x.n, item, column);
    }
  free(all), free(alone), free(poisoned);
  application_free(&x);
}

static void same_bits(rondo_backend backend) {
  static const int16_t shapes[][3] = {{8, 8, 8},   {13, 9, 20},    {32, 20, 33},    {50, 40, 21},
                                      {40, 70, 6}, {128, 100, 90}, {130, 140, 150}, {400, 32, 40}};
  struct random random = {4};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    same_bits_of(backend,
                 (struct application){.dtype = RONDO_F32,
                                      .form = i % 2 ? APPLY : UPDATE,
                                      .m = shapes[i][0],
                                      .n = shapes[i][1],
                                      .columns = shapes[i][2],
                                      .batch = 7},
                 &random);
}
BOTH_BACKENDS(qr_apply, a_matrix_has_the_same_bits_everywhere_and_keeps_its_nan, same_bits)

/* What qr leaves is what qr_apply takes: Q^T A is R. */
static void after_qr(rondo_backend backend) {
  enum { M = 45, N = 30, BATCH = 3 };
  for (int layout = 0; layout < 2; layout++) {
    struct qr_place place = {RONDO_F64, (rondo_layout)layout, BATCH, M, N, 0, 0};
    struct trial trial;
    trial_describe(&trial, backend);
    rondo_tensor a, c, h, tau, view;
    a = qr_place_add(&place, trial.graph, rondo_input, "a", &view);
    h = qr_place_add(&place, trial.graph, rondo_output, "h", &view);
    c = qr_place_add(&place, trial.graph, rondo_output, "c", &view);
    REQUIRE_OK(rondo_temporary(trial.graph, "tau", RONDO_F64, 2, (int64_t[]){BATCH, N}, &tau));
    REQUIRE_OK(rondo_add_qr(trial.graph, &(rondo_qr_desc){.layout = place.layout, .a = a, .h = h, .tau = tau}));
    REQUIRE_OK(rondo_add_copy(trial.graph, &(rondo_copy_desc){.src = a, .dst = c}));
    REQUIRE_OK(rondo_add_qr_apply(
        trial.graph, &(rondo_qr_apply_desc){.layout = place.layout, .transpose = 1, .v = h, .tau = tau, .c = c}));
    trial_instantiate(&trial);
    double matrices[BATCH][M * N];
    struct random random = {5};
    for (int item = 0; item < BATCH; item++) qr_fill(&random, RONDO_F64, QR_RANDOM, M, N, matrices[item]);
    qr_matrices_set(&trial, &place, matrices[0], a);
    trial_replay(&trial);
    for (int item = 0; item < BATCH; item++) {
      double reflectors[M * N] = {0}, result[M * N] = {0};
      qr_place_read(&place, item, trial_output(&trial, h), reflectors);
      qr_place_read(&place, item, trial_output(&trial, c), result);
      for (int i = 0; i < M * N; i++)
        cr_expect(fabs(result[i] - (i % M <= i / M ? reflectors[i] : 0)) <= 1e-13 * M, "(Q^T A)(%d, %d)", i % M, i / M);
    }
    trial_end(&trial);
  }
}
BOTH_BACKENDS(qr_apply, turns_a_into_r_with_what_qr_leaves, after_qr)

Test(qr_apply, refuses_operands_that_do_not_fit_together) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  /* Column-major: v is 16 x 8, c is 16 x 5. */
  rondo_tensor v = qr_state(g, RONDO_F32, 3, 4, 8, 16), tau = qr_state(g, RONDO_F32, 2, 4, 8, 0);
  rondo_tensor c = qr_state(g, RONDO_F32, 3, 4, 5, 16), low_c = qr_state(g, RONDO_F32, 3, 4, 5, 15);
  rondo_tensor f64_c = qr_state(g, RONDO_F64, 3, 4, 5, 16), other_c = qr_state(g, RONDO_F32, 3, 3, 5, 16);
  rondo_tensor one_c = qr_state(g, RONDO_F32, 2, 5, 16, 0), f16 = qr_state(g, RONDO_F16, 3, 4, 8, 16);
  rondo_tensor short_tau = qr_state(g, RONDO_F32, 2, 4, 7, 0), flat_tau = qr_state(g, RONDO_F32, 1, 8, 0, 0);
  rondo_tensor v_head;
  REQUIRE_OK(rondo_view(g, v, (int64_t[]){0, 0, 0}, (int64_t[]){4, 2, 16}, &v_head));
#define REFUSED(fragment, ...)                                                                                         \
  do {                                                                                                                 \
    REQUIRE_ERROR(rondo_add_qr_update(g, &(rondo_qr_update_desc){__VA_ARGS__}), RONDO_INVALID_ARGUMENT, fragment);     \
    REQUIRE_ERROR(rondo_add_qr_apply(g, &(rondo_qr_apply_desc){__VA_ARGS__}), RONDO_INVALID_ARGUMENT, fragment);       \
  } while (0)
  REFUSED("v is absent", .tau = tau, .c = c);
  REFUSED("tau is absent", .v = v, .c = c);
  REFUSED("c is absent", .v = v, .tau = tau);
  REFUSED("v is [4, 8, 16] f16, expected a matrix", .v = f16, .tau = tau, .c = c);
  REFUSED("tau is [4, 7] f32, expected [4, 8] f32", .v = v, .tau = short_tau, .c = c);
  REFUSED("tau is [8] f32, expected [4, 8] f32", .v = v, .tau = flat_tau, .c = c);
  REFUSED("c is [4, 5, 15] f32, expected [4, 5, 16] f32", .v = v, .tau = tau, .c = low_c);
  REFUSED("c is [4, 5, 16] f64, expected [4, 5, 16] f32", .v = v, .tau = tau, .c = f64_c);
  REFUSED("c is [3, 5, 16] f32, expected [4, 5, 16] f32", .v = v, .tau = tau, .c = other_c);
  REFUSED("c is [5, 16] f32, expected a batch", .v = v, .tau = tau, .c = one_c);
  REFUSED("c is [4, 5, 16] f32, expected [4, 8, 16] f32", .layout = RONDO_ROW_MAJOR, .v = v, .tau = tau, .c = c);
  REFUSED("layout is -1, expected RONDO_COLUMN_MAJOR or RONDO_ROW_MAJOR", .layout = (rondo_layout)-1, .v = v,
          .tau = tau, .c = c);
  REFUSED("overlap", .v = v, .tau = tau, .c = v_head);
#undef REFUSED
  REQUIRE_ERROR(rondo_add_qr_update(g, NULL), RONDO_INVALID_ARGUMENT, "rondo_add_qr_update: the description is NULL");
  REQUIRE_ERROR(rondo_add_qr_apply(g, NULL), RONDO_INVALID_ARGUMENT, "rondo_add_qr_apply: the description is NULL");
  REQUIRE_ERROR(rondo_add_qr_extract(g, &(rondo_qr_extract_desc){.h = v}), RONDO_INVALID_ARGUMENT,
                "r is absent, and so is q");
  rondo_task task;
  REQUIRE_ERROR(rondo_last_task(g, &task), RONDO_INVALID_STATE, "no task");
  REQUIRE_OK(rondo_add_qr_update(g, &(rondo_qr_update_desc){.v = v, .tau = tau, .c = c}));
  REQUIRE_OK(rondo_add_qr_apply(g, &(rondo_qr_apply_desc){.v = v, .tau = tau, .c = c}));
  trial_end(&trial);
}
