/* least_squares_oracle.c - see least_squares_oracle.h.
 *
 * A solution has to be stationary for a problem within rounding of the given one, and residual has to be the norm of
 * its own residual. A factorisation in long double says whether a matrix is singular, and whether x can be represented.
 */
#include "least_squares_oracle.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fit_add(struct fit *p, struct trial *trial) {
  const int64_t before = !p->padding ? 0 : p->aligned ? 4 : 1, behind = p->padding - before;
  p->a_place = (struct qr_place){p->dtype, p->layout, p->batch, p->m, p->n, before, behind};
  p->b_place = (struct qr_place){p->dtype, p->layout, p->batch, p->m, p->sides, before, behind};
  p->x_place = (struct qr_place){p->dtype, p->layout, p->batch, p->n, p->sides, before, behind};
  rondo_least_squares_desc desc = {.layout = p->layout};
  p->a = qr_place_add(&p->a_place, trial->graph, rondo_input, "a", &desc.a);
  p->b = qr_place_add(&p->b_place, trial->graph, rondo_input, "b", &desc.b);
  p->x = qr_place_add(&p->x_place, trial->graph, rondo_state, "x", &desc.x);
  if (!p->x_alone) {
    const int64_t padded[] = {p->batch, p->sides + p->padding}, exact[] = {p->batch, p->sides};
    REQUIRE_OK(rondo_state(trial->graph, "residual", p->dtype, 2, padded, &p->residual));
    REQUIRE_OK(rondo_view(trial->graph, p->residual, (int64_t[]){0, before}, exact, &desc.residual));
    REQUIRE_OK(rondo_state(trial->graph, "info", RONDO_I32, 1, exact, &p->info));
    desc.info = p->info;
  }
  REQUIRE_OK(rondo_add_least_squares(trial->graph, &desc));
}

/* Right-hand sides as large as the matrix, and each second one far smaller. */
static void fit_sides_fill(const struct fit *p, struct random *random, enum qr_kind kind, const double *a, double *b) {
  double largest = 0;
  for (int64_t i = 0; i < p->m * p->n; i++) largest = fmax(largest, fabs(a[i]));
  if (largest == 0) largest = 1;
  if (kind == QR_NEAR_OVERFLOW) largest /= 64;
  for (int64_t s = 0; s < p->sides; s++, b += p->m) {
    long double *exact = qr_memory(p->m, sizeof *exact);
    for (int64_t i = 0; i < p->m; i++) exact[i] = random_normal(random) * largest;
    if (kind == QR_LARGEST || kind == QR_SOME_LARGEST) qr_stretch(random, p->dtype, p->m, exact);
    for (int64_t i = 0; i < p->m; i++) b[i] = qr_rounded(p->dtype, s % 2 ? exact[i] * 0x1p-60L : exact[i]);
    free(exact);
  }
}

void fit_fill(struct fit *p, struct random *random) {
  const int64_t size = p->m * p->n, side_size = p->m * p->sides;
  p->matrices = qr_memory(p->batch * size, sizeof(double));
  p->rights = qr_memory(p->batch * side_size, sizeof(double));
  for (int64_t item = 0; item < p->batch; item++) {
    const enum qr_kind kind = p->kinds[item % p->kind_count];
    double *a = p->matrices + item * size;
    qr_fill(random, p->dtype, kind, p->m, p->n, a);
    fit_sides_fill(p, random, kind, a, p->rights + item * side_size);
  }
}

static void fit_set(const struct fit *p, struct trial *trial) {
  qr_matrices_set(trial, &p->a_place, p->matrices, p->a);
  qr_matrices_set(trial, &p->b_place, p->rights, p->b);
  const struct {
    rondo_tensor tensor;
    int64_t count;
  } results[] = {{p->x, qr_place_count(&p->x_place)}, {p->residual, p->batch * (p->sides + p->padding)}};
  for (int i = 0; i < 2; i++) {
    if (!results[i].tensor.graph) continue;
    void *guards = qr_guarded(p->dtype, results[i].count);
    trial_set(trial, results[i].tensor, guards);
    free(guards);
  }
  if (!p->info.graph) return;
  int32_t *unset = qr_memory(p->batch, sizeof *unset);
  memset(unset, 0xff, (size_t)p->batch * sizeof *unset);
  trial_set(trial, p->info, unset);
  free(unset);
}

/* Fetches the results, and checks the numbers around them. */
static struct solution solution_get(const struct fit *p, struct trial *trial) {
  const int64_t size = p->n * p->sides, step = p->sides + p->padding;
  struct solution got = {.x = qr_memory(p->batch * size, sizeof(double))};
  void *data = qr_memory(qr_place_count(&p->x_place), qr_bytes(p->dtype));
  trial_get(trial, p->x, data);
  qr_expect_guards(&p->x_place, data, "x");
  for (int64_t item = 0; item < p->batch; item++) qr_place_read(&p->x_place, item, data, got.x + item * size);
  free(data);
  if (p->x_alone) return got;
  got.residual = qr_memory(p->batch * p->sides, sizeof(double));
  got.info = qr_memory(p->batch, sizeof *got.info);
  data = qr_memory(p->batch * step, qr_bytes(p->dtype));
  trial_get(trial, p->residual, data);
  for (int64_t i = 0; i < p->batch * step; i++) {
    const int64_t side = i % step - p->a_place.before;
    const double value = oracle_read(p->dtype, data, i);
    if (side >= 0 && side < p->sides)
      got.residual[i / step * p->sides + side] = value;
    else
      cr_expect(value == qr_guard, "an element around residual was written");
  }
  trial_get(trial, p->info, got.info);
  free(data);
  return got;
}

void solution_free(struct solution *solution) {
  free(solution->x);
  free(solution->residual);
  free(solution->info);
}

void fits_run(rondo_backend backend, struct fit *all, size_t count, struct solution *solutions) {
  struct trial trial;
  trial_describe(&trial, backend);
  for (size_t i = 0; i < count; i++) fit_add(&all[i], &trial);
  trial_instantiate(&trial);
  for (size_t i = 0; i < count; i++) fit_set(&all[i], &trial);
  trial_replay(&trial);
  for (size_t i = 0; i < count; i++) solutions[i] = solution_get(&all[i], &trial);
  trial_end(&trial);
}

void fit_describe(const struct fit *p, int64_t item, char *text, size_t bytes) {
  snprintf(text, bytes, "%s %dx%d %s, %d sides, item %d of kind %d", rondo_dtype_name(p->dtype), (int)p->m, (int)p->n,
           p->layout == RONDO_ROW_MAJOR ? "row-major" : "column-major", (int)p->sides, (int)item,
           (int)p->kinds[item % p->kind_count]);
}

/* Householder QR of [A | b] in long double, column by column, and the substitution: x in the first rows of b. Returns
 * the smallest |r_jj| / |a_j|. */
static long double oracle_solve(int64_t m, int64_t n, int64_t sides, long double *a, long double *b) {
  long double smallest = 1;
  for (int64_t j = 0; j < n; j++) {
    long double *v = a + j * m, column = 0, below = 0;
    for (int64_t i = 0; i < m; i++) column += v[i] * v[i];
    for (int64_t i = j; i < m; i++) below += v[i] * v[i];
    smallest = fminl(smallest, column > 0 ? sqrtl(below / column) : 0);
    const long double r = v[j] < 0 ? sqrtl(below) : -sqrtl(below);
    v[j] -= r;
    const long double norm = below - 2 * v[j] * r - r * r; /* |v|^2 */
    for (int64_t c = j + 1; c < n + sides && norm > 0; c++) {
      long double *target = c < n ? a + c * m : b + (c - n) * m, dot = 0;
      for (int64_t i = j; i < m; i++) dot += v[i] * target[i];
      for (int64_t i = j; i < m; i++) target[i] -= 2 * dot / norm * v[i];
    }
    v[j] = r;
  }
  for (int64_t s = 0; s < sides; s++)
    for (int64_t j = n; j-- > 0;) {
      b[s * m + j] /= a[j * m + j];
      for (int64_t i = 0; i < j; i++) b[s * m + i] -= a[j * m + i] * b[s * m + j];
    }
  return smallest;
}

/* Of one right-hand side: each column's product with the residual against what a small change of A and b makes, and the
 * norm of the residual: the bounds of rondo_least_squares_desc. */
static void expect_stationary(const struct fit *p, const double *a, const double *b, const double *x,
                              const double *norm, const char *where) {
  const long double eps = qr_epsilon(p->dtype), least = qr_smallest(p->dtype);
  long double *r = qr_memory(p->m, sizeof *r), *columns = qr_memory(p->n, sizeof *columns);
  long double size = least, worst = 0, own = 0, b_norm = 0;
  for (int64_t i = 0; i < p->m; i++) r[i] = b[i], b_norm += (long double)b[i] * b[i];
  for (int64_t j = 0; j < p->n; j++) {
    for (int64_t i = 0; i < p->m; i++) {
      const long double element = a[j * p->m + i];
      columns[j] += element * element;
      r[i] -= element * x[j];
    }
    columns[j] = fmaxl(sqrtl(columns[j]), least); /* rounding to subnormal numbers counts for nothing */
    size += columns[j] * fmaxl(fabsl((long double)x[j]), least);
  }
  size += sqrtl(b_norm);
  for (int64_t i = 0; i < p->m; i++) own += r[i] * r[i];
  for (int64_t j = 0; j < p->n; j++) {
    long double dot = 0;
    for (int64_t i = 0; i < p->m; i++) dot += r[i] * a[j * p->m + i];
    worst = qr_larger(worst, fabsl(dot) / (columns[j] * size * (long double)p->m * eps));
  }
  qr_expect_ratio("|a'(b - Ax)| of a column", worst, where);
  if (norm)
    qr_expect_ratio("the norm of the residual", fabsl(sqrtl(own) - *norm) / (size * (long double)p->m * eps), where);
  free(r), free(columns);
}

static void expect_solution(const struct fit *p, const struct solution *got, int64_t item) {
  char where[160];
  fit_describe(p, item, where, sizeof where);
  const double *a = p->matrices + item * p->m * p->n, *b = p->rights + item * p->m * p->sides;
  const double *x = got->x + item * p->n * p->sides;
  long double *factored = qr_memory(p->m * p->n, sizeof *factored);
  long double *exact = qr_memory(p->m * p->sides, sizeof *exact), largest = 0;
  for (int64_t i = 0; i < p->m * p->n; i++) factored[i] = a[i];
  for (int64_t i = 0; i < p->m * p->sides; i++) exact[i] = b[i];
  int32_t zero = 0; /* the first column of zeros, counted from one */
  for (int64_t j = p->n; j-- > 0;) {
    bool is_zero = true;
    for (int64_t i = 0; i < p->m; i++) is_zero = is_zero && a[j * p->m + i] == 0;
    if (is_zero) zero = (int32_t)j + 1;
  }
  const bool weak = oracle_solve(p->m, p->n, p->sides, factored, exact) < 1000 * qr_epsilon(p->dtype);
  for (int64_t i = 0; i < p->m * p->sides; i++)
    if (i % p->m < p->n) largest = qr_larger(largest, fabsl(exact[i]));
  free(factored), free(exact);

  const bool singular = got->info ? got->info[item] != 0 : zero != 0;
  if (got->info && zero) cr_expect_eq(got->info[item], zero, "info is %d: %s", (int)got->info[item], where);
  if (got->info && !zero && !weak) cr_expect_eq(got->info[item], 0, "info is %d: %s", (int)got->info[item], where);
  for (int64_t s = 0; s < p->sides; s++, x += p->n, b += p->m) {
    if (singular) {
      for (int64_t j = 0; j < p->n; j++) cr_expect(isnan(x[j]), "x of a singular matrix: %s", where);
      continue;
    }
    const bool may_overflow = weak || !(largest < (long double)qr_largest(p->dtype) / 1e4L);
    if (may_overflow && !all_are_finite(x, p->n)) continue;
    expect_stationary(p, a, b, x, got->residual ? &got->residual[item * p->sides + s] : NULL, where);
  }
}

void fits_expect(rondo_backend backend, struct fit *all, size_t count) {
  struct solution *solutions = qr_memory((int64_t)count, sizeof *solutions);
  struct random random = {20261122};
  for (size_t i = 0; i < count; i++) fit_fill(&all[i], &random);
  fits_run(backend, all, count, solutions);
  for (size_t i = 0; i < count; i++) {
    for (int64_t item = 0; item < all[i].batch; item++) expect_solution(&all[i], &solutions[i], item);
    solution_free(&solutions[i]);
    free(all[i].matrices);
    free(all[i].rights);
  }
  free(solutions);
}
