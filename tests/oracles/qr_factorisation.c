/* qr_factorisation.c - see qr_factorisation.h. */
#include "qr_factorisation.h"

#include <assert.h>
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const double *factorisation_matrix(const struct factorisation *f, int64_t item) {
  return f->matrices + item * f->m * f->n;
}

static struct qr_place place_of(const struct factorisation *f, int64_t m, int64_t n) {
  int64_t before = !f->padding ? 0 : f->aligned ? 4 : 1;
  return (struct qr_place){f->dtype, f->layout, f->batch, m, n, before, f->padding - before};
}

static void factorisation_add(struct factorisation *f, struct trial *trial) {
  f->k = qr_min(f->m, f->n);
  bool panel = f->form == FORM_PANEL;
  f->a_place = f->h_place = place_of(f, f->m, f->n);
  if (f->narrow) f->a_place.dtype = f->narrow;
  if (f->dense_h) f->h_place.before = f->h_place.behind = 0;
  f->r_place = place_of(f, f->k, f->n);
  f->q_place = place_of(f, f->m, f->k);
  rondo_tensor a, h = {0}, r = {0}, q = {0}, tau = {0};
  f->a = qr_place_add(&f->a_place, trial->graph, panel ? rondo_state : rondo_input, "a", &a);
  if (f->form == FORM_H) f->h = qr_place_add(&f->h_place, trial->graph, rondo_state, "h", &h);
  if (panel) f->h = f->a;
  if (f->form == FORM_R || f->form == FORM_QR) f->r = qr_place_add(&f->r_place, trial->graph, rondo_state, "r", &r);
  if (f->form == FORM_Q || f->form == FORM_QR) f->q = qr_place_add(&f->q_place, trial->graph, rondo_state, "q", &q);
  if (f->form == FORM_H || panel) {
    REQUIRE_OK(rondo_state(trial->graph, "tau", f->dtype, 2, (int64_t[]){f->batch, f->k + f->padding}, &f->tau));
    REQUIRE_OK(rondo_view(trial->graph, f->tau, (int64_t[]){0, f->padding ? 1 : 0}, (int64_t[]){f->batch, f->k}, &tau));
  }
  if (panel)
    REQUIRE_OK(rondo_add_qr_panel(trial->graph, &(rondo_qr_panel_desc){.layout = f->layout, .a = a, .tau = tau}));
  else
    REQUIRE_OK(
        rondo_add_qr(trial->graph, &(rondo_qr_desc){.layout = f->layout, .a = a, .h = h, .tau = tau, .r = r, .q = q}));
}

void factorisation_fill(struct factorisation *f, struct random *random) {
  f->matrices = qr_memory(f->batch * f->m * f->n, sizeof(double));
  for (int64_t item = 0; item < f->batch; item++)
    qr_fill(random, f->dtype, f->kinds[item % f->kind_count], f->m, f->n, f->matrices + item * f->m * f->n);
  for (int64_t i = 0; f->narrow && i < f->batch * f->m * f->n; i++) {
    uint64_t number = 0;
    oracle_write(f->narrow, &number, 0, f->matrices[i]);
    f->matrices[i] = oracle_read(f->narrow, &number, 0);
  }
}

static void guarded_set(struct trial *trial, const struct factorisation *f, rondo_tensor tensor, int64_t count) {
  if (!tensor.graph) return;
  void *data = qr_guarded(f->dtype, count);
  trial_set(trial, tensor, data);
  free(data);
}

static int64_t tau_count(const struct factorisation *f) { return f->batch * (f->k + f->padding); }

static void factorisation_set(struct factorisation *f, struct trial *trial) {
  if (f->form == FORM_H) guarded_set(trial, f, f->h, qr_place_count(&f->h_place));
  guarded_set(trial, f, f->tau, tau_count(f));
  guarded_set(trial, f, f->r, qr_place_count(&f->r_place));
  guarded_set(trial, f, f->q, qr_place_count(&f->q_place));
  void *data = qr_guarded(f->a_place.dtype, qr_place_count(&f->a_place));
  for (int64_t item = 0; item < f->batch; item++)
    qr_place_write(&f->a_place, item, factorisation_matrix(f, item), data);
  trial_set(trial, f->a, data);
  free(data);
}

static void *fetched(struct trial *trial, rondo_tensor tensor, rondo_dtype dtype, int64_t count) {
  void *data = qr_memory(count, qr_bytes(dtype));
  trial_get(trial, tensor, data);
  return data;
}

void factorisation_describe(const struct factorisation *f, int64_t item, char *text, size_t bytes) {
  snprintf(text, bytes, "%s %dx%d %s, %s, item %d of kind %d", rondo_dtype_name(f->dtype), (int)f->m, (int)f->n,
           f->layout == RONDO_ROW_MAJOR ? "row-major" : "column-major", form_names[f->form], (int)item,
           (int)f->kinds[item % f->kind_count]);
}

static struct results results_get(const struct factorisation *f, struct trial *trial) {
  struct results results = {0};
  if (f->h.graph) results.h = fetched(trial, f->h, f->dtype, qr_place_count(&f->h_place));
  if (f->tau.graph) results.tau = fetched(trial, f->tau, f->dtype, tau_count(f));
  if (f->r.graph) results.r = fetched(trial, f->r, f->dtype, qr_place_count(&f->r_place));
  if (f->q.graph) results.q = fetched(trial, f->q, f->dtype, qr_place_count(&f->q_place));
  return results;
}

void results_free(struct results *results) {
  free(results->h);
  free(results->tau);
  free(results->r);
  free(results->q);
}

double factorisation_tau(const struct factorisation *f, const struct results *results, int64_t item, int64_t j) {
  return oracle_read(f->dtype, results->tau, item * (f->k + f->padding) + (f->padding ? 1 : 0) + j);
}

void factorisation_expect(const struct factorisation *f, const struct results *results, int64_t item) {
  char where[160];
  factorisation_describe(f, item, where, sizeof where);
  double *h = qr_memory(f->m * f->n, sizeof *h), *tau = qr_memory(f->k, sizeof *tau);
  double *r = qr_memory(f->k * f->n, sizeof *r), *q = qr_memory(f->m * f->k, sizeof *q);
  const double *a = factorisation_matrix(f, item);
  if (results->h) {
    qr_place_read(&f->h_place, item, results->h, h);
    for (int64_t j = 0; j < f->k; j++) tau[j] = factorisation_tau(f, results, item, j);
    qr_expect_factored(f->dtype, f->m, f->n, a, h, tau, where);
  }
  if (results->r) qr_place_read(&f->r_place, item, results->r, r);
  if (results->q) qr_place_read(&f->q_place, item, results->q, q);
  if (results->r && results->q) qr_expect_thin(f->dtype, f->m, f->n, a, q, r, where);
  if (results->r && !results->q) qr_expect_gram(f->dtype, f->m, f->n, a, r, where);
  if (results->q && !results->r) { /* R := triu(Q^T A), whose lower part is the residual */
    long double sum, norm = 0, largest = 0, column;
    for (int64_t j = 0; j<f->n; j++, norm = column> norm ? column : norm) {
      column = 0;
      for (int64_t i = 0; i < f->m; i++) column += fabsl((long double)a[j * f->m + i]);
      for (int64_t i = j + 1; i < f->k; i++) {
        sum = 0;
        for (int64_t row = 0; row < f->m; row++) sum += (long double)q[i * f->m + row] * a[j * f->m + row];
        largest = qr_larger(largest, fabsl(sum));
      }
    }
    if (largest != 0)
      qr_expect_ratio("|below the diagonal of Q'A|", largest / ((long double)f->m * norm * qr_epsilon(f->dtype)),
                      where);
    long double *exact = qr_memory(f->m * f->k, sizeof *exact);
    for (int64_t i = 0; i < f->m * f->k; i++) exact[i] = q[i];
    qr_expect_orthonormal(f->dtype, f->m, f->k, exact, where);
    free(exact);
  }
  free(h), free(tau), free(r), free(q);
}

static void expect_all(const struct factorisation *f, struct trial *trial) {
  struct results results = results_get(f, trial);
  for (int64_t item = 0; item < f->batch; item++) factorisation_expect(f, &results, item);
  if (results.h) qr_expect_guards(&f->h_place, results.h, "h");
  if (results.r) qr_expect_guards(&f->r_place, results.r, "r");
  if (results.q) qr_expect_guards(&f->q_place, results.q, "q");
  if (results.tau)
    for (int64_t i = 0; i < tau_count(f); i++) {
      int64_t j = i % (f->k + f->padding) - (f->padding ? 1 : 0);
      if (j >= 0 && j < f->k) continue;
      cr_expect(oracle_read(f->dtype, results.tau, i) == qr_guard, "an element around tau was written");
    }
  results_free(&results);
}

void factorisations_run(rondo_backend backend, struct factorisation *all, size_t count) {
  struct trial trial;
  struct random random = {20260711};
  trial_describe(&trial, backend);
  for (size_t i = 0; i < count; i++) factorisation_add(&all[i], &trial);
  trial_instantiate(&trial);
  for (size_t i = 0; i < count; i++) {
    factorisation_fill(&all[i], &random);
    factorisation_set(&all[i], &trial);
  }
  trial_replay(&trial);
  for (size_t i = 0; i < count; i++) {
    expect_all(&all[i], &trial);
    free(all[i].matrices);
  }
  trial_end(&trial);
}

static void set_layout(struct factorisation *f, int layout) {
  f->layout = layout == 3 || layout == 4 ? RONDO_ROW_MAJOR : RONDO_COLUMN_MAJOR;
  f->padding = layout == 0 || layout == 3 ? 0 : layout == 1 ? 8 : 4;
  f->aligned = layout == 1;
  f->dense_h = layout == DENSE_H_LAYOUT;
}

/* The three forms take turns, so that each shape sees all of them. On a GPU a batch of five is no multiple of a warp's
 * matrices, and has all kinds. On the host each layout takes two of the four kinds, the next layout the others. */
static void run_in_layouts(rondo_backend backend, rondo_dtype dtype, const enum form *forms, int layouts,
                           const int16_t (*shapes)[2], size_t count) {
  if (dtype == RONDO_F64) skip_under_sanitizers(); /* it has the code of f32, and other tests run it */
  cr_assert_leq(count, LAYOUT_SHAPES_MOST);
  for (int layout = 0; layout < layouts; layout++) {
    struct factorisation all[LAYOUT_SHAPES_MOST];
    for (size_t i = 0; i < count; i++) {
      const bool host = backend == RONDO_BACKEND_HOST;
      all[i] = (struct factorisation){.dtype = dtype,
                                      .form = layout == DENSE_H_LAYOUT ? FORM_H : forms[(i + (size_t)layout) % 3],
                                      .m = shapes[i][0],
                                      .n = shapes[i][1],
                                      .batch = host ? 2 : 5,
                                      .kinds = hard_kinds + (host ? 2 * ((i + (size_t)layout) % 2) : 0),
                                      .kind_count = host ? 2 : 4};
      set_layout(&all[i], layout);
    }
    factorisations_run(backend, all, count);
  }
}

void run_in_every_layout(rondo_backend backend, rondo_dtype dtype, const int16_t (*shapes)[2], size_t count) {
  static const enum form reflector_forms[] = {FORM_PANEL, FORM_H, FORM_H};
  run_in_layouts(backend, dtype, reflector_forms, LAYOUTS, shapes, count);
}

void run_thin_in_every_layout(rondo_backend backend, rondo_dtype dtype, const int16_t (*shapes)[2], size_t count) {
  run_in_layouts(backend, dtype, thin_forms, DENSE_H_LAYOUT, shapes, count);
}

static void expect_same_memory(const struct factorisation *f, const void *x, const void *y, int64_t count) {
  cr_assert((x == NULL) == (y == NULL));
  if (x) cr_expect_arr_eq(x, y, (size_t)count * qr_bytes(f->dtype), "replays differ: %s", form_names[f->form]);
}

void factorisations_run_kept(rondo_backend backend, struct factorisation *all, size_t count, int replays,
                             struct results *kept) {
  struct trial trial;
  trial_describe(&trial, backend);
  for (size_t i = 0; i < count; i++) factorisation_add(&all[i], &trial);
  trial_instantiate(&trial);
  for (int replay = 0; replay < replays; replay++) {
    for (size_t i = 0; i < count; i++) factorisation_set(&all[i], &trial);
    trial_replay(&trial);
    for (size_t i = 0; i < count; i++) {
      const struct factorisation *f = &all[i];
      struct results again = results_get(f, &trial);
      if (replay > 0) {
        expect_same_memory(f, again.h, kept[i].h, qr_place_count(&f->h_place));
        expect_same_memory(f, again.tau, kept[i].tau, tau_count(f));
        expect_same_memory(f, again.r, kept[i].r, qr_place_count(&f->r_place));
        expect_same_memory(f, again.q, kept[i].q, qr_place_count(&f->q_place));
        results_free(&kept[i]);
      }
      kept[i] = again;
    }
  }
  trial_end(&trial);
}

/* All results of one matrix, as doubles. The caller frees them. */
static double *values_of(const struct factorisation *f, const struct results *results, int64_t item, int64_t *count) {
  const int64_t h = f->m * f->n, r = f->k * f->n, q = f->m * f->k;
  double *values = qr_memory(h + f->k + r + q, sizeof *values);
  *count = 0;
  if (results->h) {
    qr_place_read(&f->h_place, item, results->h, values);
    for (int64_t j = 0; j < f->k; j++) values[h + j] = factorisation_tau(f, results, item, j);
    *count = h + f->k;
  }
  if (results->r) qr_place_read(&f->r_place, item, results->r, values + *count), *count += r;
  if (results->q) qr_place_read(&f->q_place, item, results->q, values + *count), *count += q;
  assert(*count > 0);
  return values;
}

/* The two factorisations differ in nothing but their batch. */
static void expect_same_item(const struct factorisation *f, const struct results *x, int64_t x_item,
                             const struct factorisation *g, const struct results *y, int64_t y_item) {
  int64_t x_count, y_count;
  double *x_values = values_of(f, x, x_item, &x_count), *y_values = values_of(g, y, y_item, &y_count);
  bool same = x_count == y_count && !memcmp(x_values, y_values, (size_t)x_count * sizeof *x_values);
  char where[160];
  factorisation_describe(f, x_item, where, sizeof where);
  cr_expect(same, "items %d and %d differ: %s", (int)x_item, (int)y_item, where);
  free(x_values);
  free(y_values);
}

/* Large batches fill a GPU. The host's threads take one matrix after the other. */
enum { HOST_BATCH = 19 };

void expect_same_bits(rondo_backend backend, struct factorisation *all, size_t count) {
  struct results results[BITS_MOST] = {0}, single[BITS_MOST] = {0};
  struct factorisation alone[BITS_MOST];
  struct random random = {31};
  cr_assert_leq(count, BITS_MOST);
  for (size_t i = 0; i < count; i++) {
    struct factorisation *f = &all[i];
    const int64_t size = f->m * f->n;
    if (backend == RONDO_BACKEND_HOST && f->batch > HOST_BATCH) f->batch = HOST_BATCH;
    f->kinds = random_kind, f->kind_count = 1;
    f->matrices = qr_memory(f->batch * size, sizeof(double));
    for (int64_t e = 0; e < f->batch * size; e++) f->matrices[e] = qr_rounded(f->dtype, random_uniform(&random) - 0.5);
    memcpy(f->matrices + (f->batch - 1) * size, f->matrices, (size_t)size * sizeof(double));
    memcpy(f->matrices + f->batch / 2 * size, f->matrices, (size_t)size * sizeof(double));
    alone[i] = *f;
    alone[i].batch = 1;
  }
  factorisations_run_kept(backend, all, count, 3, results);
  factorisations_run_kept(backend, alone, count, 1, single);
  for (size_t i = 0; i < count; i++) {
    expect_same_item(&all[i], &results[i], 0, &all[i], &results[i], all[i].batch - 1);
    expect_same_item(&all[i], &results[i], 0, &all[i], &results[i], all[i].batch / 2);
    expect_same_item(&all[i], &results[i], 0, &alone[i], &single[i], 0);
    results_free(&results[i]);
    results_free(&single[i]);
    free(all[i].matrices);
  }
}

void expect_same_alone(rondo_backend backend, rondo_dtype dtype, int layout, const int16_t (*shapes)[2], size_t count,
                       int less) {
  struct factorisation all[3 * BITS_MOST];
  struct results results[3 * BITS_MOST] = {0};
  struct random random = {17};
  cr_assert_leq(count, BITS_MOST);
  for (size_t i = 0; i < 3 * count; i++) {
    all[i] = (struct factorisation){.dtype = dtype,
                                    .form = thin_forms[i % 3],
                                    .m = shapes[i / 3][0] - less,
                                    .n = shapes[i / 3][1] - less,
                                    .batch = 5,
                                    .kinds = random_kind,
                                    .kind_count = 1};
    set_layout(&all[i], layout);
    if (i % 3 == 0)
      factorisation_fill(&all[i], &random);
    else
      all[i].matrices = all[i - 1].matrices;
  }
  factorisations_run_kept(backend, all, 3 * count, 1, results);
  for (size_t i = 0; i < 3 * count; i += 3) {
    expect_same_memory(&all[i], results[i].r, results[i + 1].r, qr_place_count(&all[i].r_place));
    expect_same_memory(&all[i], results[i].q, results[i + 2].q, qr_place_count(&all[i].q_place));
    for (size_t form = 0; form < 3; form++) results_free(&results[i + form]);
    free(all[i].matrices);
  }
}

static bool none_is_nan(const double *values, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (isnan(values[i])) return false;
  return true;
}

bool all_are_finite(const double *values, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (!isfinite(values[i])) return false;
  return true;
}

static void expect_poisoned(const struct factorisation *f, const struct results *good, const struct results *bad) {
  for (int64_t item = 0; item < f->batch; item++)
    if (item != 1 && item != 4 && item != 6) expect_same_item(f, good, item, f, bad, item);
  int64_t count;
  double *infinite = values_of(f, bad, 1, &count), *one = values_of(f, bad, 4, &count);
  cr_expect(!all_are_finite(infinite, count), "an infinity must not vanish: %s", form_names[f->form]);
  cr_expect(!none_is_nan(one, count), "a NaN must not vanish: %s", form_names[f->form]);
  double *r = qr_memory(f->k * f->n, sizeof *r);
  if (bad->r) qr_place_read(&f->r_place, 6, bad->r, r);
  for (int64_t j = 0; j + 1 < f->k; j++)
    cr_expect(isnan(bad->r ? r[j * f->k + j] : factorisation_tau(f, bad, 6, j)), "a column of NaN gives NaN");
  free(infinite), free(one), free(r);
}

void expect_poison_stays(rondo_backend backend, struct factorisation *all, size_t count) {
  struct results good[BITS_MOST] = {0}, bad[BITS_MOST] = {0};
  struct random random = {100};
  cr_assert_leq(count, BITS_MOST);
  for (size_t i = 0; i < count; i++) {
    if (!all[i].batch) all[i].batch = 9;
    all[i].kinds = random_kind, all[i].kind_count = 1;
    factorisation_fill(&all[i], &random);
  }
  factorisations_run_kept(backend, all, count, 1, good);
  for (size_t i = 0; i < count; i++) {
    const int64_t size = all[i].m * all[i].n;
    all[i].matrices[size + size / 3] = INFINITY;
    all[i].matrices[4 * size + size / 2] = (double)NAN;
    for (int64_t e = 0; e < size; e++) all[i].matrices[6 * size + e] = (double)NAN;
  }
  factorisations_run_kept(backend, all, count, 1, bad);
  for (size_t i = 0; i < count; i++) {
    expect_poisoned(&all[i], &good[i], &bad[i]);
    results_free(&good[i]);
    results_free(&bad[i]);
    free(all[i].matrices);
  }
}
