/* test_triangular_inverse.c - rondo_add_triangular_inverse against sums in long double. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../oracles/qr_oracle.h"

enum triangle {
  TRIANGLE_SMALL,     /* entries of 1 / sqrt(n) */
  TRIANGLE_LARGE,     /* in [-1, 1]: the inverse grows exponentially */
  TRIANGLE_ONES,      /* -1 everywhere: the inverse is 2^(i - j - 1), exactly */
  TRIANGLE_IDENTITY,  /* zeros */
  TRIANGLE_BIDIAGONAL /* 1 below the diagonal: the inverse is +-1, exactly */
};
enum { TRIANGLES = 5 };

static double triangle_value(struct random *random, enum triangle kind, int64_t n, int64_t i, int64_t j) {
  double x = random_uniform(random) * 2 - 1;
  switch (kind) {
  case TRIANGLE_SMALL:
    return x / sqrt((double)n);
  case TRIANGLE_LARGE:
    return x;
  case TRIANGLE_ONES:
    return -1;
  case TRIANGLE_BIDIAGONAL:
    return i == j + 1;
  default:
    return 0;
  }
}

struct inversion {
  rondo_dtype dtype;
  int64_t n, batch, padding;
  bool in_place, unbatched, aligned; /* aligned: the padding in front too is whole vectors */
  struct qr_place place;
  rondo_tensor a, out;
  double *matrices; /* [batch][n][n], NaN on and above the diagonal */
};

static void inversion_add(struct inversion *x, struct trial *trial) {
  int64_t before = x->aligned ? x->padding / 2 : x->padding ? 1 : 0;
  x->place = (struct qr_place){x->dtype, RONDO_ROW_MAJOR, x->batch, x->n, x->n, before, x->padding - before};
  rondo_tensor a, out;
  if (x->unbatched) {
    int64_t shape[] = {x->n, x->n};
    REQUIRE_OK(rondo_state(trial->graph, "a", x->dtype, 2, shape, &x->a));
    REQUIRE_OK(rondo_state(trial->graph, "out", x->dtype, 2, shape, &x->out));
    a = x->a, out = x->out;
  } else {
    x->a = qr_place_add(&x->place, trial->graph, rondo_state, "a", &a);
    x->out = x->a, out = a;
    if (!x->in_place) x->out = qr_place_add(&x->place, trial->graph, rondo_state, "out", &out);
  }
  REQUIRE_OK(rondo_add_triangular_inverse(trial->graph, &(rondo_triangular_inverse_desc){.a = a, .out = out}));
}

static void inversion_fill(struct inversion *x, struct random *random) {
  x->matrices = qr_memory(x->batch * x->n * x->n, sizeof(double));
  for (int64_t item = 0; item < x->batch; item++)
    for (int64_t j = 0; j < x->n; j++)
      for (int64_t i = 0; i < x->n; i++)
        x->matrices[(item * x->n + j) * x->n + i] =
            i > j ? qr_rounded(x->dtype, triangle_value(random, (enum triangle)(item % TRIANGLES), x->n, i, j))
                  : (double)NAN;
}

/* Column by column |L x - e| <= n eps |L| |x|, element by element (Higham, Accuracy and Stability, theorem 8.5). */
static long double inversion_ratio(const struct inversion *x, const double *a, const double *inverse) {
  long double worst = 0;
  for (int64_t j = 0; j < x->n; j++)
    for (int64_t i = j; i < x->n; i++) {
      long double sum = inverse[j * x->n + i] - (i == j), size = fabsl((long double)inverse[j * x->n + i]);
      for (int64_t s = j; s < i; s++) {
        long double product = (long double)a[s * x->n + i] * inverse[j * x->n + s];
        sum += product;
        size += fabsl(product);
      }
      /* Products may vanish below the smallest number. */
      long double bound = (long double)x->n * (qr_epsilon(x->dtype) * size + qr_smallest(x->dtype));
      if (fabsl(sum) / bound > worst || isnan(sum)) worst = fabsl(sum) / bound; /* a NaN stays */
    }
  return worst;
}

static void inversion_expect(const struct inversion *x, const void *data, int64_t item) {
  char where[128];
  enum triangle kind = (enum triangle)(item % TRIANGLES);
  snprintf(where, sizeof where, "%s inverse of %d, item %d of kind %d", rondo_dtype_name(x->dtype), (int)x->n,
           (int)item, (int)kind);
  double *inverse = qr_memory(x->n * x->n, sizeof *inverse);
  qr_place_read(&x->place, item, data, inverse);
  int64_t wrong = 0;
  for (int64_t j = 0; j < x->n; j++)
    for (int64_t i = 0; i < x->n; i++) {
      double got = inverse[j * x->n + i];
      if (i <= j) wrong += got != (i == j);
      if (i > j && kind == TRIANGLE_ONES) wrong += got != ldexp(1, (int)(i - j - 1));
      if (i > j && kind == TRIANGLE_IDENTITY) wrong += got != 0;
      if (i > j && kind == TRIANGLE_BIDIAGONAL) wrong += got != ((i - j) % 2 ? -1 : 1);
    }
  cr_expect(wrong == 0, "%d elements are not what they must be exactly: %s", (int)wrong, where);
  long double ratio = inversion_ratio(x, x->matrices + item * x->n * x->n, inverse);
  cr_expect(ratio <= 1, "|LX - I| is %.2Lf of its bound: %s", ratio, where);
  free(inverse);
}

static void inversions_run(rondo_backend backend, struct inversion *all, size_t count, int64_t check_every) {
  struct trial trial;
  struct random random = {20260713};
  trial_describe(&trial, backend);
  for (size_t i = 0; i < count; i++) inversion_add(&all[i], &trial);
  trial_instantiate(&trial);
  for (size_t i = 0; i < count; i++) {
    inversion_fill(&all[i], &random);
    qr_matrices_set(&trial, &all[i].place, all[i].matrices, all[i].a);
    if (all[i].in_place) continue;
    void *data = qr_guarded(all[i].dtype, qr_place_count(&all[i].place));
    trial_set(&trial, all[i].out, data);
    free(data);
  }
  trial_replay(&trial);
  for (size_t i = 0; i < count; i++) {
    const struct inversion *x = &all[i];
    void *data = qr_memory(qr_place_count(&x->place), qr_bytes(x->dtype));
    trial_get(&trial, x->out, data);
    for (int64_t item = 0; item < x->batch; item += check_every) inversion_expect(x, data, item);
    qr_expect_guards(&x->place, data, "an inverse");
    free(data);
    free(x->matrices);
  }
  trial_end(&trial);
}

static void every_order(rondo_backend backend) {
  static const int16_t orders[] = {16, 17, 31, 32, 33, 47, 48, 49, 64, 65, 80, 96, 100, 112, 127, 128};
  enum { ORDERS = sizeof orders / sizeof orders[0] };
  struct inversion all[2 * ORDERS];
  for (int i = 0; i < 2 * ORDERS; i++)
    all[i] = (struct inversion){.dtype = i < ORDERS ? RONDO_F32 : RONDO_F64,
                                .n = orders[i % ORDERS],
                                .batch = 1 + 10 / (1 + orders[i % ORDERS] / 64), /* blocks not filled by matrices */
                                .padding = i % 3 == 1   ? 5
                                           : i % 3 == 2 ? 8
                                                        : 0,
                                .aligned = i % 3 == 2,
                                .in_place = i % 2 != 0};
  inversions_run(backend, all, sizeof all / sizeof all[0], 1);
}
BOTH_BACKENDS(triangular_inverse, every_order_meets_its_bound_and_nothing_else_is_read_or_written, every_order)

static void single_and_empty(rondo_backend backend) {
  struct inversion all[] = {{.dtype = RONDO_F32, .n = 40, .batch = 1, .unbatched = true},
                            {.dtype = RONDO_F64, .n = 128, .batch = 1, .unbatched = true},
                            {.dtype = RONDO_F64, .n = 20, .batch = 0}};
  inversions_run(backend, all, 3, 1);
}
BOTH_BACKENDS(triangular_inverse, a_matrix_needs_no_batch_and_a_batch_no_matrix, single_and_empty)

static void many_inverses(rondo_backend backend) {
  struct inversion all[] = {{.dtype = RONDO_F32, .n = 16, .batch = 65541, .in_place = true}};
  inversions_run(backend, all, 1, 37);
}
BOTH_BACKENDS(triangular_inverse, a_batch_may_pass_65535, many_inverses)

/* The same matrix all over a batch, of which a chip has more than it can work on at a time. */
static void same_bits(rondo_backend backend) {
  skip_under_sanitizers();
  static const struct {
    rondo_dtype dtype;
    int16_t n, batch;
  } cases[] = {
      {RONDO_F32, 16, 45}, {RONDO_F32, 29, 45}, {RONDO_F32, 97, 901}, {RONDO_F64, 64, 45}, {RONDO_F64, 128, 401}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct inversion x = {.dtype = cases[i].dtype, .n = cases[i].n, .batch = cases[i].batch};
    const int64_t numbers = x.n * x.n;
    struct trial trial;
    struct random random = {7};
    trial_describe(&trial, backend);
    inversion_add(&x, &trial);
    trial_instantiate(&trial);
    inversion_fill(&x, &random);
    for (int64_t item = 1; item < x.batch; item++)
      memcpy(x.matrices + item * numbers, x.matrices, (size_t)numbers * sizeof *x.matrices);
    qr_matrices_set(&trial, &x.place, x.matrices, x.a);
    trial_replay(&trial);
    unsigned char *data = qr_memory(x.batch * numbers, qr_bytes(x.dtype));
    trial_get(&trial, x.out, data);
    inversion_expect(&x, data, 0);
    const size_t bytes = (size_t)numbers * qr_bytes(x.dtype);
    for (int64_t item = 1; item < x.batch; item++)
      cr_expect_arr_eq(data + (size_t)item * bytes, data, bytes, "%d rows: matrix %d differs", (int)x.n, (int)item);
    free(data);
    free(x.matrices);
    trial_end(&trial);
  }
}
BOTH_BACKENDS(triangular_inverse, a_matrix_has_the_same_bits_wherever_it_stands, same_bits)

/* A NaN below the diagonal stays in its own matrix, reaches no row above it, and leaves ones and zeros alone. */
static void poisoned_triangle(rondo_backend backend) {
  enum { N = 20, BATCH = 13, ROW = 11 };
  struct trial trial;
  trial_describe(&trial, backend);
  struct inversion x = {.dtype = RONDO_F32, .n = N, .batch = BATCH};
  struct random random = {6};
  inversion_add(&x, &trial);
  trial_instantiate(&trial);
  inversion_fill(&x, &random);
  x.matrices[(4 * N + 3) * N + ROW] = (double)NAN; /* row 11, column 3 of matrix 4 */
  qr_matrices_set(&trial, &x.place, x.matrices, x.a);
  trial_replay(&trial);
  float *data = qr_memory(qr_place_count(&x.place), sizeof *data);
  trial_get(&trial, x.out, data);
  for (int item = 0; item < BATCH; item++)
    for (int i = 0; i < N; i++)
      for (int j = 0; j < N; j++) {
        float got = data[(item * N + i) * N + j];
        if (j >= i) cr_expect(got == (float)(i == j), "matrix %d, row %d, column %d", item, i, j);
        if (item != 4 || i < ROW) cr_expect(isfinite(got), "matrix %d, row %d, column %d", item, i, j);
      }
  cr_expect(isnan(data[(4 * N + ROW) * N + 3]), "a NaN must not vanish");
  free(data);
  free(x.matrices);
  trial_end(&trial);
}
BOTH_BACKENDS(triangular_inverse, nan_stays_in_its_own_matrix_below_the_diagonal, poisoned_triangle)

Test(triangular_inverse, refuses_operands_that_do_not_fit_together) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  rondo_tensor a = qr_state(g, RONDO_F32, 3, 2, 32, 32), out = qr_state(g, RONDO_F32, 3, 2, 32, 32);
  rondo_tensor flat = qr_state(g, RONDO_F32, 2, 32, 32, 0), f16 = qr_state(g, RONDO_F16, 3, 2, 32, 32);
  rondo_tensor oblong = qr_state(g, RONDO_F32, 3, 2, 32, 31), small = qr_state(g, RONDO_F32, 3, 2, 15, 15);
  rondo_tensor large = qr_state(g, RONDO_F32, 3, 2, 129, 129), f64 = qr_state(g, RONDO_F64, 3, 2, 32, 32);
  rondo_tensor vector = qr_state(g, RONDO_F32, 1, 32, 0, 0);
  rondo_tensor low, high;
  REQUIRE_OK(rondo_view(g, large, (int64_t[]){0, 0, 0}, (int64_t[]){2, 32, 32}, &low));
  REQUIRE_OK(rondo_view(g, large, (int64_t[]){0, 31, 31}, (int64_t[]){2, 32, 32}, &high));
#define REFUSED(fragment, ...)                                                                                         \
  REQUIRE_ERROR(rondo_add_triangular_inverse(g, &(rondo_triangular_inverse_desc){__VA_ARGS__}),                        \
                RONDO_INVALID_ARGUMENT, fragment)
  REFUSED("a is absent", .out = out);
  REFUSED("out is absent", .a = a);
  REFUSED("a is [2, 32, 32] f16, expected a matrix", .a = f16, .out = f16);
  REFUSED("a is [32] f32, expected a matrix", .a = vector, .out = vector);
  REFUSED("a is [2, 32, 31] f32, expected square matrices", .a = oblong, .out = oblong);
  REFUSED("a is [2, 15, 15] f32, expected square matrices of 16 to 128 rows", .a = small, .out = small);
  REFUSED("a is [2, 129, 129] f32, expected square matrices of 16 to 128 rows", .a = large, .out = large);
  REFUSED("out is [2, 32, 32] f64, expected [2, 32, 32] f32", .a = a, .out = f64);
  REFUSED("out is [32, 32] f32, expected [2, 32, 32] f32", .a = a, .out = flat);
  REFUSED("overlap", .a = low, .out = high);
#undef REFUSED
  REQUIRE_ERROR(rondo_add_triangular_inverse(g, NULL), RONDO_INVALID_ARGUMENT, "the description is NULL");
  rondo_task task;
  REQUIRE_ERROR(rondo_last_task(g, &task), RONDO_INVALID_STATE, "no task");
  REQUIRE_OK(rondo_add_triangular_inverse(g, &(rondo_triangular_inverse_desc){.a = a, .out = out}));
  REQUIRE_OK(rondo_add_triangular_inverse(g, &(rondo_triangular_inverse_desc){.a = a, .out = a}));
  trial_end(&trial);
}
