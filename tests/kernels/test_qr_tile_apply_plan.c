/* test_qr_tile_apply_plan.c - plans that apply Q in a register tile keep what the kernel relies on (qr_tile_apply.cu),
 * for random matrices, and do not depend on the batch. Needs no GPU. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../kernels/qr/qr_choose.h"
#include "../support.h"

enum { PROBLEMS = 200000, H200_SHARED_BYTES = 227 << 10 };

static struct qr_problem problem_of(int32_t element_bytes, int64_t m, int64_t n, int64_t columns, int64_t batch) {
  return (struct qr_problem){.element_bytes = (uint32_t)element_bytes,
                             .dtype = element_bytes == 4 ? RONDO_F32 : RONDO_F64,
                             .m = m,
                             .n = n,
                             .k = m < n ? m : n,
                             .columns = columns,
                             .batch = batch,
                             .a = {.is_present = true},
                             .c = {.is_present = true}};
}

static struct qr_plan planned_for(const struct qr_problem *problem, int64_t shared_bytes) {
  const struct chip chip = {.multiprocessors = 132, .shared_bytes = (int32_t)shared_bytes};
  struct qr_plan plan = {0};
  return qr_plan_apply_tile(problem, &chip, &plan) ? plan : (struct qr_plan){0};
}

static struct qr_problem random_problem(struct random *random) {
  static const int64_t most[] = {8, 16, 33, 64, 128, 300, 600, (int64_t)1 << 20};
  const int64_t m = random_between(random, 1, most[random_between(random, 0, 7)]);
  const int64_t n = random_between(random, 1, most[random_between(random, 0, 5)]);
  const int64_t columns = random_between(random, 1, most[random_between(random, 0, 7)]);
  const int64_t batch = random_between(random, 1, INT64_C(1) << random_between(random, 0, 10));
  return problem_of(random_between(random, 0, 1) ? 4 : 8, m, n, columns, batch);
}

static void check(const struct qr_problem *problem, int64_t shared_bytes, const struct qr_plan *plan) {
  const struct qr_tile *tile = plan->tile;
  cr_assert_eq(tile->element_bytes, (int32_t)problem->element_bytes);
  cr_assert(plan->shared_bytes > 0 && plan->shared_bytes <= shared_bytes);
  /* Both V and a group of C stand on the diagonal, or as low and as far left as they go. */
  const int64_t across = tile->options & TILE_LOWERED ? 0 : plan->offset;
  cr_assert(plan->offset >= 0 && plan->offset + problem->m <= tile->rows);
  cr_assert(tile->options & TILE_LOWERED || across + problem->k <= tile->columns);
  cr_assert_eq(plan->offset % (16 / tile->element_bytes), 0, "vectors stay vectors in shared memory");
  cr_assert(plan->group_columns >= 1 && across + plan->group_columns <= tile->columns);
  /* Every column is in one group, and no group is empty. */
  cr_assert(plan->groups >= 1 && plan->groups * plan->group_columns >= problem->columns &&
            (plan->groups - 1) * plan->group_columns < problem->columns);
  const int64_t lanes = (int64_t)tile->row_lanes * tile->column_lanes, matrices = lanes < 32 ? 32 / lanes : 1;
  cr_assert_eq(tile->kernel.threads, lanes * matrices);
  cr_assert(plan->grid * matrices >= problem->batch * plan->groups &&
            (plan->grid - 1) * matrices < problem->batch * plan->groups);
}

Test(qr_tile_apply_plan, a_plan_keeps_what_its_kernel_relies_on) {
  struct random random = {1};
  int64_t planned = 0, grouped = 0, offset = 0;
  for (int i = 0; i < PROBLEMS; i++) {
    static const int64_t chips[] = {48, 99, 163, 227};
    struct qr_problem problem = random_problem(&random);
    const int64_t shared_bytes = chips[random_between(&random, 0, 3)] << 10;
    const struct qr_plan plan = planned_for(&problem, shared_bytes);
    if (plan.tile) {
      check(&problem, shared_bytes, &plan);
      planned++;
      grouped += plan.groups > 1;
      offset += plan.offset > 0;
    }
    problem.batch = random_between(&random, 1, 1000);
    const struct qr_plan other = planned_for(&problem, shared_bytes);
    cr_assert(plan.tile == other.tile && plan.offset == other.offset && plan.group_columns == other.group_columns);
  }
  cr_assert(planned > 50000 && grouped > 20000 && offset > 20000, "%lld planned, %lld in groups, %lld with an offset",
            (long long)planned, (long long)grouped, (long long)offset);
}

Test(qr_tile_apply_plan, a_plan_takes_the_tile_of_the_fewest_rows) {
  static const struct {
    int32_t bytes, m, n, columns;
    const char *name; /* NULL: the kernel that keeps C in shared memory */
    int32_t offset, groups, grid;
  } cases[] = {
      {4, 8, 8, 8, "rondo_qr_tile_apply_f32_8", 0, 1, 250},
      {4, 3, 2, 1, "rondo_qr_tile_apply_f32_8", 4, 1, 250},
      {4, 16, 16, 64, "rondo_qr_tile_apply_f32_16", 0, 4, 2000},
      {4, 24, 20, 70, "rondo_qr_tile_apply_f32_32", 8, 3, 3000},
      {4, 64, 64, 1, "rondo_qr_tile_apply_f32_64", 0, 1, 1000},
      {4, 40, 40, 40, "rondo_qr_tile_apply_f32_64", 24, 1, 1000},
      {4, 65, 65, 1, "rondo_qr_tile_apply_f32_128x32", 60, 1, 1000},
      {4, 128, 128, 64, "rondo_qr_tile_apply_f32_128x32", 0, 2, 2000},
      {4, 512, 32, 1, "rondo_qr_tile_apply_f32_512x32", 0, 1, 1000},
      {4, 512, 32, 480, "rondo_qr_tile_apply_f32_512x32", 0, 15, 15000},
      {4, 256, 300, 480, "rondo_qr_tile_apply_f32_256x32", 0, 15, 15000},
      {4, 129, 33, 128, "rondo_qr_tile_apply_f32_256x32", 124, 4, 4000},
      {4, 513, 1, 32, "rondo_qr_tile_apply_f32_1024x16", 508, 2, 2000},
      {4, 2048, 32, 32, "rondo_qr_tile_apply_f32_2048x8", 0, 4, 4000},
      {4, 2049, 1, 1, NULL, 0, 0, 0},
      {8, 8, 8, 8, "rondo_qr_tile_apply_f64_16", 8, 1, 500},
      {8, 32, 32, 1, "rondo_qr_tile_apply_f64_32", 0, 1, 1000},
      {8, 64, 64, 1, "rondo_qr_tile_apply_f64_64", 0, 1, 1000},
      {8, 80, 80, 80, "rondo_qr_tile_apply_f64_128x32", 48, 3, 3000},
      {8, 512, 32, 32, "rondo_qr_tile_apply_f64_512x16", 0, 2, 2000},
      {8, 600, 32, 32, "rondo_qr_tile_apply_f64_1024x8", 424, 4, 4000},
      {8, 1025, 32, 32, NULL, 0, 0, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct qr_problem problem = problem_of(cases[i].bytes, cases[i].m, cases[i].n, cases[i].columns, 1000);
    const struct qr_plan plan = planned_for(&problem, H200_SHARED_BYTES);
    const char *name = plan.tile ? plan.tile->kernel.name : NULL;
    cr_expect((name == NULL) == (cases[i].name == NULL), "case %zu takes %s", i, name ? name : "no tile");
    if (!name || !cases[i].name) continue;
    cr_expect_str_eq(name, cases[i].name, "case %zu takes %s", i, name);
    cr_expect(plan.offset == cases[i].offset && plan.groups == cases[i].groups && plan.grid == cases[i].grid,
              "case %zu: offset %d, %lld groups, %lld blocks", i, plan.offset, (long long)plan.groups,
              (long long)plan.grid);
  }
}
