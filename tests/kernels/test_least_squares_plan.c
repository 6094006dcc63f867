/* test_least_squares_plan.c - the launches of least squares, for random problems on every chip: the parameters that
 * the kernels rely on, and scratch wherever there are two launches. Needs no GPU. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../kernels/least_squares/least_squares.h"
#include "../support.h"

enum { PROBLEMS = 100000 };

struct described {
  struct op_operand operands[5];
  struct op_task task;
};

/* Dense and column-major. */
static struct op_operand operand_of(rondo_dtype dtype, int64_t batch, int64_t rows, int64_t columns) {
  return (struct op_operand){
      .present = true, .dtype = dtype, .rank = 3, .shape = {batch, columns, rows}, .stride = {columns * rows, rows, 1}};
}

static void describe(struct random *random, struct described *described) {
  static const int64_t most[] = {8, 16, 33, 64, 128, 300, 1100, 40000};
  const rondo_dtype dtype = random_between(random, 0, 1) ? RONDO_F32 : RONDO_F64;
  const int64_t m = random_between(random, 1, most[random_between(random, 0, 7)]);
  const int64_t n = random_between(random, 1, m < 300 ? m : 300), rhs_count = random_between(random, 1, 60);
  const int64_t batch = random_between(random, 1, INT64_C(1) << random_between(random, 0, 12));
  *described = (struct described){.operands = {[LEAST_SQUARES_A] = operand_of(dtype, batch, m, n),
                                               [LEAST_SQUARES_B] = operand_of(dtype, batch, m, rhs_count),
                                               [LEAST_SQUARES_X] = operand_of(dtype, batch, n, rhs_count)}};
  described->task = (struct op_task){.op = &op_least_squares, .operand_count = 5, .operands = described->operands};
}

/* The one kernel: the matrix is on the tile's diagonal, at a place where steps begin, and no right-hand side is left
 * out. */
static void check_one(const struct described *described, const struct op_launch *launch) {
  const struct op_operand *b = &described->operands[LEAST_SQUARES_B];
  struct least_squares_parameters p;
  cr_assert_eq(launch->parameter_bytes, sizeof p);
  memcpy(&p, launch->parameters, sizeof p);
  cr_assert(p.tile.offset >= 0 && p.tile.offset % 4 == 0);
  cr_assert(p.rhs_count == b->shape[1] && p.passes >= 1 && p.passes <= p.rhs_count);
  cr_assert(p.tile.m == b->shape[2] && p.tile.m >= p.tile.n && p.tile.batch == b->shape[0]);
}

/* The second of two kernels: there is room for each warp's right-hand sides. */
static void check_after(const struct described *described, const struct op_launch *launch, uint64_t scratch_bytes) {
  const uint32_t element_bytes = described->operands[0].dtype == RONDO_F32 ? 4 : 8;
  const struct least_squares_scratch scratch = least_squares_scratch_of(&described->task);
  struct least_squares_after_parameters p;
  cr_assert_eq(launch->parameter_bytes, sizeof p);
  memcpy(&p, launch->parameters, sizeof p);
  cr_assert(p.h.column_stride >= p.m && p.h.column_stride % 4 == 0);
  cr_assert(p.group >= 1 && p.group <= LEAST_SQUARES_GROUP && p.groups * p.group >= p.rhs_count);
  cr_assert((p.groups - 1) * p.group < p.rhs_count);
  cr_assert_geq(scratch_bytes, scratch.end);
  cr_assert(scratch.tau >= (uint64_t)(p.batch * p.h.batch_stride) * element_bytes);
  cr_assert(scratch.work - scratch.tau >= (uint64_t)(p.batch * p.n) * element_bytes);
  if (launch->block[0] > LEAST_SQUARES_AFTER_THREADS)
    cr_assert((int64_t)launch->block[0] * 4 >= p.m);
  else if (launch->shared_bytes)
    cr_assert(p.leading >= p.m && launch->shared_bytes >= (uint64_t)(p.leading * p.group) * element_bytes);
  else
    cr_assert(scratch.qr - scratch.work >= (uint64_t)(p.batch * p.m * p.rhs_count) * element_bytes);
}

Test(least_squares_plan, every_problem_has_kernels_and_the_scratch_they_need_on_every_chip) {
  static const struct chip chips[] = {
      {80, 108, 163 << 10}, {86, 84, 99 << 10}, {90, 132, 227 << 10}, {100, 148, 227 << 10}};
  struct random random = {5};
  int counts[3] = {0};
  for (int i = 0; i < PROBLEMS; i++) {
    struct described described;
    describe(&random, &described);
    const uint64_t scratch_bytes = op_least_squares.scratch_bytes(&described.task);
    for (int c = 0; c < 4; c++) {
      const struct op_call call = {.task = &described.task, .data = op_nowhere};
      struct op_launches launches;
      cr_assert_eq(op_least_squares.select(&call, &chips[c], &launches), RONDO_OK);
      cr_assert(launches.count == 1 || launches.count == op_least_squares.launches_most);
      if (launches.count == 1)
        check_one(&described, &launches.items[0]);
      else
        check_after(&described, &launches.items[1], scratch_bytes);
      counts[launches.count]++;
    }
  }
  cr_expect(counts[1] > PROBLEMS / 10 && counts[2] > PROBLEMS / 10, "%d in one kernel, %d in two", counts[1],
            counts[2]);
}
