/* test_graph_qr.c - rondo_graph_qr in every form, as one task and in panels, meets LAPACK's ratios; its panels have
 * lookahead. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/dependencies.h"
#include "../oracles/qr_oracle.h"
#include <rondo_graphs.h>

/* One call of rondo_graph_qr and its matrices. */
struct factorisation {
  rondo_graph_qr_desc desc;
  rondo_graph_qr_tensors tensors;
  double *matrices; /* [batch][n][m] */
};

static const enum qr_kind kinds[] = {QR_RANDOM, QR_CONDITION_LARGE, QR_LARGEST, QR_WILD_SCALES, QR_LOWER};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static struct qr_place place_of(const rondo_graph_qr_desc *desc, int64_t m, int64_t n) {
  return (struct qr_place){desc->dtype, desc->layout, desc->batch, m, n, 0, 0};
}

static void factorisation_fill(struct factorisation *f, struct trial *trial, struct random *random) {
  const rondo_graph_qr_desc *desc = &f->desc;
  struct qr_place place = place_of(desc, desc->m, desc->n);
  int64_t size = desc->m * desc->n;
  f->matrices = qr_memory(desc->batch * size, sizeof(double));
  void *data = qr_memory(desc->batch * size, qr_bytes(desc->dtype));
  for (int64_t item = 0; item < desc->batch; item++) {
    qr_fill(random, desc->dtype, kinds[item % KINDS], desc->m, desc->n, f->matrices + item * size);
    qr_place_write(&place, item, f->matrices + item * size, data);
  }
  trial_set(trial, f->tensors.a, data);
  free(data);
}

/* Item of an output of the graph as a matrix of doubles. */
static double *matrix_get(struct trial *trial, const rondo_graph_qr_desc *desc, rondo_tensor tensor, int64_t item,
                          int64_t m, int64_t n) {
  struct qr_place place = place_of(desc, m, n);
  double *matrix = qr_memory(m * n, sizeof *matrix);
  if (m * n > 0) qr_place_read(&place, item, trial_output(trial, tensor), matrix);
  return matrix;
}

static void factorisation_expect(const struct factorisation *f, struct trial *trial) {
  const rondo_graph_qr_desc *desc = &f->desc;
  static const char *const form_names[] = {"h and tau", "r", "q and r"};
  int64_t m = desc->m, n = desc->n, k = qr_min(m, n);
  bool reflectors = desc->form == RONDO_QR_H_TAU, q_wanted = desc->form == RONDO_QR_THIN_Q;
  cr_expect(!!f->tensors.h.graph == reflectors && !!f->tensors.tau.graph == reflectors);
  cr_expect(!!f->tensors.r.graph == !reflectors && !!f->tensors.q.graph == q_wanted);
  for (int64_t item = 0; item < desc->batch; item++) {
    char where[160];
    snprintf(where, sizeof where, "%s %dx%d %s, %s, panels of %d, item %d", rondo_dtype_name(desc->dtype), (int)m,
             (int)n, desc->layout == RONDO_ROW_MAJOR ? "row-major" : "column-major", form_names[desc->form],
             (int)desc->panel_width, (int)item);
    const double *a = f->matrices + item * m * n;
    if (reflectors) {
      double *h = matrix_get(trial, desc, f->tensors.h, item, m, n), *tau = qr_memory(k, sizeof *tau);
      for (int64_t j = 0; j < k; j++)
        tau[j] = oracle_read(desc->dtype, trial_output(trial, f->tensors.tau), item * k + j);
      qr_expect_factored(desc->dtype, m, n, a, h, tau, where);
      free(h), free(tau);
      continue;
    }
    double *r = matrix_get(trial, desc, f->tensors.r, item, k, n);
    if (q_wanted) {
      double *q = matrix_get(trial, desc, f->tensors.q, item, m, k);
      qr_expect_thin(desc->dtype, m, n, a, q, r, where);
      free(q);
    } else {
      qr_expect_gram(desc->dtype, m, n, a, r, where);
    }
    free(r);
  }
}

/* Many factorisations in one graph. */
static void run(rondo_backend backend, struct factorisation *all, size_t count) {
  struct trial trial;
  struct random random = {20260714};
  trial_describe(&trial, backend);
  for (size_t i = 0; i < count; i++) REQUIRE_OK(rondo_graph_qr(trial.graph, &all[i].desc, &all[i].tensors));
  trial_instantiate(&trial);
  for (size_t i = 0; i < count; i++) factorisation_fill(&all[i], &trial, &random);
  trial_replay(&trial);
  for (size_t i = 0; i < count; i++) {
    factorisation_expect(&all[i], &trial);
    free(all[i].matrices);
  }
  trial_end(&trial);
}

/* Every form of a shape with both layouts and both types, a few in a graph. */
static void run_shapes(rondo_backend backend, const int16_t (*shapes)[4], int count) {
  enum { FORMS = 3, TOGETHER = 12 };
  struct factorisation all[TOGETHER];
  int together = 0;
  for (int i = 0; i < 2 * FORMS * count; i++) {
    const int16_t *shape = shapes[i % count];
    int turn = i / count;
    all[together++] =
        (struct factorisation){.desc = {.dtype = (turn + i % 2) % 2 ? RONDO_F32 : RONDO_F64,
                                        .layout = (turn / FORMS + i / 2 % 2) % 2 ? RONDO_ROW_MAJOR : RONDO_COLUMN_MAJOR,
                                        .m = shape[0],
                                        .n = shape[1],
                                        .batch = shape[2],
                                        .form = (rondo_qr_form)(turn % FORMS),
                                        .panel_width = shape[3]}};
    if (together < TOGETHER && i + 1 < 2 * FORMS * count) continue;
    run(backend, all, (size_t)together);
    together = 0;
  }
}

/* Matrices that fit in shared memory are one task. */
static void fused(rondo_backend backend) {
  static const int16_t shapes[][4] = {{1, 1, 3, 0},    {5, 1, 3, 0},   {1, 5, 3, 0},    {9, 6, 5, 0},
                                      {6, 9, 5, 0},    {32, 32, 5, 0}, {100, 60, 5, 0}, {60, 100, 5, 0},
                                      {140, 20, 2, 0}, {0, 4, 2, 0},   {4, 0, 2, 0},    {3, 4, 0, 0}};
  run_shapes(backend, shapes, sizeof shapes / sizeof shapes[0]);
}
BOTH_BACKENDS(graph_qr, fused_factorisations_meet_lapack_ratios, fused)

/* m, n, batch, width: panels that divide the columns and that do not, one panel and many, wide and tall and empty. */
static void panelled(rondo_backend backend) {
  static const int16_t shapes[][4] = {{1, 1, 2, 1},   {1, 5, 2, 1},   {5, 1, 2, 1},    {2, 7, 2, 1},
                                      {12, 12, 5, 4}, {13, 11, 5, 4}, {11, 13, 5, 4},  {40, 40, 5, 16},
                                      {70, 33, 5, 8}, {33, 70, 5, 8}, {64, 64, 2, 32}, {20, 60, 5, 32},
                                      {60, 20, 2, 7}, {0, 5, 2, 4},   {5, 0, 2, 4},    {6, 8, 0, 3}};
  run_shapes(backend, shapes, sizeof shapes / sizeof shapes[0]);
}
BOTH_BACKENDS(graph_qr, panelled_factorisations_meet_lapack_ratios, panelled)

/* Rondo's own choice of panels, where a matrix does not fit in shared memory. */
static void chosen_panels(rondo_backend backend) {
  struct factorisation all[] = {
      {.desc = {.dtype = RONDO_F32, .m = 260, .n = 240, .batch = 2, .form = RONDO_QR_THIN_Q}},
      {.desc = {.dtype = RONDO_F64, .m = 170, .n = 260, .batch = 2, .form = RONDO_QR_THIN_Q}},
      {.desc = {.dtype = RONDO_F64, .m = 270, .n = 150, .batch = 2, .layout = RONDO_ROW_MAJOR}},
      {.desc = {.dtype = RONDO_F64, .m = 300, .n = 120, .batch = 1, .form = RONDO_QR_R}},
      {.desc = {.dtype = RONDO_F64, .m = 1500, .n = 40, .batch = 1, .form = RONDO_QR_THIN_Q}},
      {.desc = {.dtype = RONDO_F64, .m = 4000, .n = 12, .batch = 1, .form = RONDO_QR_R, .layout = RONDO_ROW_MAJOR}},
  };
  run(backend, all, sizeof all / sizeof all[0]);
}
BOTH_BACKENDS(graph_qr, chosen_panels_meet_lapack_ratios, chosen_panels)

/* The result does not depend on the order in which independent tasks happen to run. */
static void same_bits(rondo_backend backend) {
  enum { M = 90, N = 80, BATCH = 2, Q_COUNT = BATCH * M * N, R_COUNT = BATCH * N * N };
  struct trial trial;
  struct random random = {20};
  struct factorisation f = {
      .desc = {.dtype = RONDO_F32, .m = M, .n = N, .batch = BATCH, .form = RONDO_QR_THIN_Q, .panel_width = 16}};
  trial_describe(&trial, backend);
  REQUIRE_OK(rondo_graph_qr(trial.graph, &f.desc, &f.tensors));
  trial_instantiate(&trial);
  factorisation_fill(&f, &trial, &random);
  float *q = qr_memory(Q_COUNT, sizeof *q), *r = qr_memory(R_COUNT, sizeof *r);
  for (int i = 0; i < 10; i++) {
    trial_replay(&trial);
    if (i) {
      cr_expect_arr_eq(q, trial_output(&trial, f.tensors.q), Q_COUNT * sizeof *q, "q of replay %d", i);
      cr_expect_arr_eq(r, trial_output(&trial, f.tensors.r), R_COUNT * sizeof *r, "r of replay %d", i);
    }
    trial_get(&trial, f.tensors.q, q);
    trial_get(&trial, f.tensors.r, r);
  }
  free(q), free(r), free(f.matrices);
  trial_end(&trial);
}
BOTH_BACKENDS(graph_qr, every_replay_has_the_same_bits, same_bits)

/* ---- The graph itself ------------------------------------------------------------------------------------------- */

static uint32_t task_of(const rondo_graph *graph, const char *part, int number) {
  char name[64];
  snprintf(name, sizeof name, "big %s %d", part, number);
  for (uint32_t t = 0; t < graph->task_count; t++)
    if (!strcmp(graph->tasks[t].name, name)) return t;
  cr_assert_fail("no task '%s'", name);
  return 0;
}

static bool waits(rondo_graph *graph, const char *part, int number, const char *for_part, int for_number) {
  bool reached = false;
  REQUIRE_OK(dependencies_reach(graph, task_of(graph, for_part, for_number), task_of(graph, part, number), &reached));
  return reached;
}

Test(graph_qr, a_panel_waits_for_its_own_columns_and_not_for_the_rest) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph_qr_desc desc = {
      .name = "big", .dtype = RONDO_F32, .m = 100, .n = 90, .batch = 2, .form = RONDO_QR_H_TAU, .panel_width = 20};
  rondo_graph_qr_tensors tensors;
  REQUIRE_OK(rondo_graph_qr(trial.graph, &desc, &tensors));
  enum { PANELS = 5 };
  for (int panel = 1; panel < PANELS; panel++) {
    cr_expect(waits(trial.graph, "panel", panel, "next", panel - 1), "panel %d", panel);
    cr_expect(waits(trial.graph, "panel", panel, "panel", panel - 1), "panel %d", panel);
    if (panel < PANELS - 1) cr_expect(!waits(trial.graph, "panel", panel, "rest", panel - 1), "panel %d", panel);
    if (panel > 1) cr_expect(waits(trial.graph, "next", panel - 1, "rest", panel - 2), "columns of panel %d", panel);
    if (panel > 1 && panel < PANELS - 1) cr_expect(waits(trial.graph, "rest", panel - 1, "rest", panel - 2));
  }
  trial_end(&trial);
}

static bool is_one_task(const rondo_graph_qr_desc *desc) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph_qr_tensors tensors;
  REQUIRE_OK(rondo_graph_qr(trial.graph, desc, &tensors));
  rondo_task task;
  REQUIRE_OK(rondo_last_task(trial.graph, &task));
  trial_end(&trial);
  return task == 0;
}

Test(graph_qr, a_matrix_of_one_block_is_one_task) {
  cr_expect(
      is_one_task(&(rondo_graph_qr_desc){.dtype = RONDO_F32, .m = 128, .n = 128, .batch = 9, .form = RONDO_QR_THIN_Q}));
}

Test(graph_qr, large_matrices_are_panels_but_where_many_of_them_keep_the_chip_busy) {
  static const struct {
    rondo_dtype dtype;
    int64_t m, n, batch;
    rondo_qr_form form;
    bool one_task;
  } cases[] = {
      {RONDO_F32, 128, 128, 1, RONDO_QR_H_TAU, true},     {RONDO_F32, 129, 129, 1, RONDO_QR_H_TAU, false},
      {RONDO_F32, 508, 128, 1, RONDO_QR_H_TAU, false},    {RONDO_F32, 100, 129, 999, RONDO_QR_H_TAU, false},
      {RONDO_F32, 512, 128, 1, RONDO_QR_H_TAU, true},     {RONDO_F32, 513, 128, 1, RONDO_QR_H_TAU, false},
      {RONDO_F32, 256, 256, 256, RONDO_QR_H_TAU, false},  {RONDO_F32, 256, 256, 257, RONDO_QR_H_TAU, true},
      {RONDO_F32, 300, 600, 128, RONDO_QR_H_TAU, false},  {RONDO_F32, 300, 600, 129, RONDO_QR_H_TAU, true},
      {RONDO_F32, 300, 599, 65, RONDO_QR_H_TAU, true},    {RONDO_F32, 300, 5000, 64, RONDO_QR_H_TAU, false},
      {RONDO_F32, 1024, 700, 65, RONDO_QR_H_TAU, true},   {RONDO_F32, 2048, 70, 65, RONDO_QR_H_TAU, true},
      {RONDO_F32, 2049, 40, 1000, RONDO_QR_H_TAU, false}, {RONDO_F32, 1024, 32, 1, RONDO_QR_H_TAU, true},
      {RONDO_F32, 300, 300, 1000, RONDO_QR_R, false},     {RONDO_F32, 190, 190, 1, RONDO_QR_THIN_Q, true},
      {RONDO_F64, 128, 128, 1, RONDO_QR_H_TAU, true},     {RONDO_F64, 512, 64, 1, RONDO_QR_H_TAU, true},
      {RONDO_F64, 512, 65, 1, RONDO_QR_H_TAU, false},     {RONDO_F64, 256, 256, 128, RONDO_QR_H_TAU, false},
      {RONDO_F64, 256, 256, 129, RONDO_QR_H_TAU, true},   {RONDO_F64, 1024, 90, 65, RONDO_QR_H_TAU, true},
      {RONDO_F64, 1025, 40, 1000, RONDO_QR_H_TAU, false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const rondo_graph_qr_desc desc = {
        .dtype = cases[i].dtype, .m = cases[i].m, .n = cases[i].n, .batch = cases[i].batch, .form = cases[i].form};
    cr_expect_eq(is_one_task(&desc), cases[i].one_task, "case %zu", i);
  }
}

Test(graph_qr, refuses_bad_descriptions_before_anything_is_added) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  rondo_graph_qr_tensors tensors;
  memset(&tensors, 0x5a, sizeof tensors);
  rondo_graph_qr_tensors untouched = tensors;
#define REFUSED(fragment, ...)                                                                                         \
  REQUIRE_ERROR(rondo_graph_qr(g, &(rondo_graph_qr_desc){__VA_ARGS__}, &tensors), RONDO_INVALID_ARGUMENT, fragment)
  REFUSED("dtype is f16, expected f32 or f64", .dtype = RONDO_F16, .m = 4, .n = 4, .batch = 1);
  REFUSED("task 0 'qr': a is [1, 4, 4] i32, expected a matrix or a batch of matrices", .dtype = RONDO_I32, .m = 4,
          .n = 4, .batch = 1);
  REFUSED("dtype is 0, expected one of rondo_dtype", .m = 4, .n = 4, .batch = 1);
  REFUSED("rondo_graph_qr: task 0 'qr': layout is 9, expected", .dtype = RONDO_F32, .layout = (rondo_layout)9, .m = 4,
          .n = 4, .batch = 1);
  REFUSED("form is 3, expected RONDO_QR_H_TAU, RONDO_QR_R or RONDO_QR_THIN_Q", .dtype = RONDO_F32,
          .form = (rondo_qr_form)3, .m = 4, .n = 4, .batch = 1);
  REFUSED("tensor 'qr a': dimension 2 is -1", .dtype = RONDO_F32, .m = -1, .n = 4, .batch = 1);
  REFUSED("tensor 'qr a': dimension 1 is -2, expected 0 or more", .dtype = RONDO_F32, .m = 1, .n = -2, .batch = 1);
  REFUSED("tensor 'qr a': dimension 0 is -3", .dtype = RONDO_F32, .m = 1, .n = 1, .batch = -3);
  REFUSED("describe: rondo_graph_qr: panel_width is -4", .dtype = RONDO_F32, .m = 1, .n = 1, .batch = 1,
          .panel_width = -4);
  REFUSED("a", .dtype = RONDO_F32, .m = INT64_C(1) << 40, .n = INT64_C(1) << 40, .batch = 1);
#undef REFUSED
  rondo_graph_qr_desc desc = {.dtype = RONDO_F32, .m = 4, .n = 4, .batch = 1};
  REQUIRE_ERROR(rondo_add_qr_extract(NULL, NULL), RONDO_INVALID_ARGUMENT,
                "rondo_add_qr_extract: the description is NULL");
  REQUIRE_ERROR(rondo_graph_qr(g, NULL, &tensors), RONDO_INVALID_ARGUMENT, "rondo_graph_qr: the description is NULL");
  REQUIRE_ERROR(rondo_graph_qr(g, &desc, NULL), RONDO_INVALID_ARGUMENT, "rondo_graph_qr: the tensors' address is NULL");
  REQUIRE_ERROR(rondo_graph_qr(NULL, &desc, &tensors), RONDO_INVALID_ARGUMENT, "graph");
  cr_expect_arr_eq(&tensors, &untouched, sizeof tensors, "a refused call wrote its result");
  cr_expect_eq(g->tensor_count, 0);
  cr_expect_eq(g->task_count, 0);
  REQUIRE_OK(rondo_graph_qr(g, &desc, &tensors));
  trial_end(&trial);
}

Test(graph_qr, says_when_the_graph_is_full) {
  struct trial trial = {.backend = RONDO_BACKEND_HOST};
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 64, .tasks = 6}, &trial.graph));
  rondo_graph_qr_tensors tensors;
  rondo_graph_qr_desc desc = {.dtype = RONDO_F32, .m = 64, .n = 64, .batch = 1, .panel_width = 8};
  REQUIRE_ERROR(rondo_graph_qr(trial.graph, &desc, &tensors), RONDO_OUT_OF_MEMORY, "task");
  trial_end(&trial);
}
