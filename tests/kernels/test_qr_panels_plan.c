/* test_qr_panels_plan.c - which kernel factors by panels: of those that hold the rows, the one of the fewest rows, on
 * chips that have its shared memory. Needs no GPU. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../kernels/qr/qr_choose.h"
#include "../support.h"

enum { PROBLEMS = 100000, H200_SHARED_BYTES = 227 << 10 };

/* With room for reflectors and T: an H. */
static struct qr_problem problem_of(uint32_t element_bytes, int64_t m, int64_t n, int64_t batch) {
  return (struct qr_problem){.element_bytes = element_bytes,
                             .dtype = element_bytes == 4 ? RONDO_F32 : RONDO_F64,
                             .m = m,
                             .n = n,
                             .k = m < n ? m : n,
                             .batch = batch,
                             .a = {.is_present = true},
                             .h = {.is_present = true}};
}

static struct qr_plan planned_for(const struct qr_problem *problem, int64_t shared_bytes) {
  const struct chip chip = {.multiprocessors = 132, .shared_bytes = (int32_t)shared_bytes};
  struct qr_plan plan = {0};
  return qr_plan_panels(problem, &chip, &plan) ? plan : (struct qr_plan){0};
}

Test(qr_panels_plan, a_plan_takes_the_kernel_of_the_fewest_rows) {
  static const struct {
    uint32_t bytes;
    int64_t m, n;
    const char *name;
  } cases[] = {
      {4, 16, 200, "rondo_qr_panels_f32_256"},       {4, 17, 129, "rondo_qr_panels_f32_256"},
      {4, 256, 256, "rondo_qr_panels_f32_256"},      {4, 257, 33, "rondo_qr_panels_f32_512"},
      {4, 512, 512, "rondo_qr_panels_f32_512"},      {4, 513, 1, "rondo_qr_panels_f32_1024"},
      {4, 1024, 100000, "rondo_qr_panels_f32_1024"}, {4, 1025, 1024, "rondo_qr_panels_f32_2048"},
      {4, 2048, 2048, "rondo_qr_panels_f32_2048"},   {8, 129, 129, "rondo_qr_panels_f64_160"},
      {8, 160, 161, "rondo_qr_panels_f64_160"},      {8, 161, 129, "rondo_qr_panels_f64_256"},
      {8, 16, 100000, "rondo_qr_panels_f64_160"},    {8, 256, 256, "rondo_qr_panels_f64_256"},
      {8, 257, 1, "rondo_qr_panels_f64_512"},        {8, 512, 33, "rondo_qr_panels_f64_512"},
      {8, 513, 513, "rondo_qr_panels_f64_1024"},     {8, 1024, 1, "rondo_qr_panels_f64_1024"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct qr_problem problem = problem_of(cases[i].bytes, cases[i].m, cases[i].n, 1000);
    const struct qr_plan plan = planned_for(&problem, H200_SHARED_BYTES);
    cr_assert_not_null(plan.panels, "case %zu takes no kernel", i);
    cr_expect_str_eq(plan.panels->kernel.name, cases[i].name, "case %zu takes %s", i, plan.panels->kernel.name);
  }
}

/* The kernel that forms Q goes by the triangles and the panels of the one that has factored. */
static void check_thin_q(const struct qr_problem *problem, int64_t shared_bytes, const struct qr_panels *panels) {
  struct qr_problem thin = *problem;
  thin.h.is_present = false;
  thin.r.is_present = thin.q.is_present = true;
  const struct qr_plan plan = planned_for(&thin, shared_bytes);
  if (!plan.panels) { /* tiles form Q */
    cr_assert(qr_tile_on_every_chip(&thin));
    return;
  }
  const struct qr_panels *thin_q = plan.thin_q;
  cr_assert_eq(plan.panels, panels);
  cr_assert(thin_q->element_bytes == panels->element_bytes && thin_q->rows == panels->rows &&
            thin_q->columns == panels->columns && thin_q->chunk == panels->chunk && thin_q->group == panels->group &&
            thin_q->kernel.threads == panels->kernel.threads &&
            thin_q->kernel.parameter_bytes == panels->kernel.parameter_bytes);
  cr_assert_str_neq(thin_q->kernel.name, panels->kernel.name);
}

Test(qr_panels_plan, a_plan_keeps_what_its_kernel_relies_on_and_the_batch_changes_nothing) {
  static const int64_t most[] = {1, 200, 300, 600, 1100, 2100, (int64_t)1 << 40}, chips[] = {48, 99, 163, 227};
  struct random random = {1};
  int64_t planned = 0;
  for (int i = 0; i < PROBLEMS; i++) {
    const uint32_t element_bytes = random_between(&random, 0, 1) ? 4 : 8;
    const int64_t m = random_between(&random, 1, most[random_between(&random, 0, 6)]);
    const int64_t n = random_between(&random, 1, most[random_between(&random, 0, 6)]);
    struct qr_problem problem = problem_of(element_bytes, m, n, random_between(&random, 1, INT32_MAX));
    const int64_t shared_bytes = chips[random_between(&random, 0, 3)] << 10;
    const struct qr_plan plan = planned_for(&problem, shared_bytes);
    problem.batch = 1;
    cr_assert_eq(planned_for(&problem, shared_bytes).panels, plan.panels);
    if (!plan.panels) continue;
    planned++;
    const struct qr_panels *panels = plan.panels;
    cr_assert_eq(panels->element_bytes, (int32_t)problem.element_bytes);
    cr_assert_leq(problem.m, panels->rows);
    cr_assert_eq(panels->columns % panels->chunk, 0);
    cr_assert_gt(plan.shared_bytes, 0);
    cr_assert(problem.n + panels->columns <= INT32_MAX - panels->columns); /* columns are counted in an int */
    cr_assert_null(plan.thin_q);
    check_thin_q(&problem, shared_bytes, panels);
  }
  cr_assert_gt(planned, PROBLEMS / 4);
}

Test(qr_panels_plan, matrices_that_no_kernel_holds_are_left_to_the_others) {
  static const struct {
    uint32_t bytes;
    int64_t m, n, batch, shared_bytes;
  } cases[] = {
      {4, 2049, 1, 10, H200_SHARED_BYTES},
      {8, 1025, 1, 10, H200_SHARED_BYTES},
      {4, 256, INT32_MAX, 10, H200_SHARED_BYTES},
      {4, 256, 256, (int64_t)INT32_MAX + 1, H200_SHARED_BYTES},
      {4, 2048, 256, 10, 99 << 10},
      {8, 1024, 256, 10, 99 << 10},
      {4, 256, 256, 10, 32 << 10},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct qr_problem problem = problem_of(cases[i].bytes, cases[i].m, cases[i].n, cases[i].batch);
    cr_expect_null(planned_for(&problem, cases[i].shared_bytes).panels, "case %zu", i);
  }
}

/* Q takes a second kernel and room for T, R alone room for reflectors, whatever the chip; tiles need neither. */
Test(qr_panels_plan, what_the_kernels_need_beside_the_outputs_is_in_the_scratch) {
  static const int64_t shapes[][2] = {{160, 160}, {300, 40}, {100, 300}, {2048, 33}, {64, 64}, {1024, 32}, {5000, 40}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const int64_t m = shapes[i][0], n = shapes[i][1], k = m < n ? m : n;
    struct qr_problem problem = {.batch = 10, .m = m, .n = n, .k = k, .element_bytes = 4, .r = {.is_present = true}};
    const bool has_tile = i == 4 || i == 5, is_long = i == 6;
    const uint64_t work_bytes = qr_workspace_of(&problem).work_bytes;
    cr_expect_eq(qr_triangle_bytes(&problem), 0);
    if (!has_tile) cr_expect_geq(work_bytes, (uint64_t)(m * k) * 4, "case %zu", i);
    problem.q.is_present = true;
    cr_expect_eq(qr_triangle_bytes(&problem), has_tile || is_long ? 0 : (uint64_t)(k + 3) / 4 * 64, "case %zu", i);
  }
  /* f64 of 161 to 512 rows has T of eight reflectors, not of four. */
  static const int64_t f64_shapes[][3] = {{150, 150, 608}, {200, 41, 384}, {512, 512, 4096}, {600, 41, 176}};
  for (size_t i = 0; i < sizeof f64_shapes / sizeof *f64_shapes; i++) {
    const struct qr_problem problem = {.batch = 10,
                                       .m = f64_shapes[i][0],
                                       .n = f64_shapes[i][1],
                                       .k = f64_shapes[i][1],
                                       .element_bytes = 8,
                                       .r = {.is_present = true},
                                       .q = {.is_present = true}};
    cr_expect_eq(qr_triangle_bytes(&problem), (uint64_t)f64_shapes[i][2] * 8, "case %zu", i);
  }
}
