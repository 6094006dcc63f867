/* qr_choose.c - which design factors a matrix, or applies Q: the family's one table, walked in order, and the planners
 * of its rows. README.md has the same names and reasons, and tests/unit/test_choices.c compares the two.
 *
 * The batch changes the size of the grid, and the columns of a block that applies Q. It changes no result: a matrix has
 * the same bits in every batch. */
#include "qr_choose.h"

#include <inttypes.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"

/* ---- Planners of designs that factor ---------------------------------------------------------------------------- */

static bool plan_tile(const struct qr_problem *problem, const struct chip *chip, struct qr_plan *plan) {
  const struct qr_tile_problem tile_problem = {
      .result = problem->h ? QR_TILE_REFLECTORS : QR_TILE_THIN,
      .element_bytes = problem->element_bytes,
      .m = problem->m,
      .n = problem->n,
      .batch = problem->batch,
      .a_access = qr_tile_access_of(problem->a, problem->layout, problem->m),
      .h_access = problem->h ? qr_tile_access_of(problem->h, problem->layout, problem->m) : QR_TILE_DENSE,
      .a_number = qr_tile_number_of(problem->a->dtype),
      .multiprocessors = chip->multiprocessors,
      .shared_bytes = chip->shared_bytes,
  };
  plan->tile = qr_tile_plan_of(&tile_problem);
  return plan->tile.tile && plan->tile.grid <= INT32_MAX;
}

/* Q alone does not need the columns of A right of the first m. */
static bool plan_panels(const struct qr_problem *problem, const struct chip *chip, struct qr_plan *plan) {
  const struct qr_panels_problem panels_problem = {.element_bytes = problem->element_bytes,
                                                   .m = problem->m,
                                                   .n = !problem->h && !problem->r ? problem->k : problem->n,
                                                   .batch = problem->batch,
                                                   .shared_bytes = chip->shared_bytes};
  plan->panels = qr_panels_plan_of(&panels_problem);
  if (!plan->panels.panels) return false;
  const struct qr_workspace workspace = qr_workspace_of(problem);
  if (!problem->h && !qr_triangle_bytes(problem) && !workspace.work_bytes) return false; /* no scratch was planned */
  plan->grid = problem->batch;
  /* With a workspace no more blocks than run at once: others would begin when these have ended. */
  if (!problem->h && !problem->q)
    plan->grid = smaller(workspace.workers, INT64_C(1) * plan->panels.panels->blocks * chip->multiprocessors);
  return true;
}

/* The matrix in shared memory, and `lanes` threads for every four columns, in whole warps. */
static bool plan_in_shared(const struct qr_problem *problem, const struct chip *chip, int64_t lanes,
                           struct qr_plan *plan) {
  const int64_t threads = round_up(lanes * divide_up(problem->n, QR_TILE_COLUMNS), 32);
  plan->grid = problem->batch;
  plan->threads = larger(64, smaller(threads, QR_SHARED_THREADS));
  plan->shared_bytes = (int64_t)qr_shared_bytes(problem->element_bytes, problem->m, problem->n);
  return plan->shared_bytes <= chip->shared_bytes;
}

static bool plan_few_rows(const struct qr_problem *problem, const struct chip *chip, struct qr_plan *plan) {
  return plan_in_shared(problem, chip, QR_FEW_LANES, plan);
}

static bool plan_shared(const struct qr_problem *problem, const struct chip *chip, struct qr_plan *plan) {
  return plan_in_shared(problem, chip, QR_SHARED_LANES, plan);
}

static int64_t grid_in_memory(const struct qr_problem *problem) {
  return problem->h ? smaller(problem->batch, INT32_MAX) : qr_workspace_of(problem).workers;
}

static bool plan_blocked(const struct qr_problem *problem, const struct chip *chip, struct qr_plan *plan) {
  enum { LEAST_COLUMNS = 4 };
  plan->grid = grid_in_memory(problem);
  for (plan->panel = QR_PANEL_COLUMNS; plan->panel >= LEAST_COLUMNS; plan->panel /= 2) {
    plan->shared_bytes = plan->panel * (2 * qr_leading(problem->m) + 1) * problem->element_bytes;
    if (plan->shared_bytes <= chip->shared_bytes) return true;
  }
  return false;
}

static bool plan_global(const struct qr_problem *problem, const struct chip *chip, struct qr_plan *plan) {
  (void)chip;
  plan->grid = grid_in_memory(problem);
  plan->panel = 2;
  return true;
}

/* ---- Planners of designs that apply Q --------------------------------------------------------------------------- */

static bool plan_apply_tile(const struct qr_problem *problem, const struct chip *chip, struct qr_plan *plan) {
  const struct qr_tile_apply_problem tile_problem = {.element_bytes = problem->element_bytes,
                                                     .m = problem->m,
                                                     .reflectors = problem->k,
                                                     .columns = problem->columns,
                                                     .batch = problem->batch,
                                                     .shared_bytes = chip->shared_bytes};
  plan->apply_tile = qr_tile_apply_plan_of(&tile_problem);
  return plan->apply_tile.tile && plan->apply_tile.grid <= INT32_MAX;
}

/* Shrinks chunk and then columns, not below the floors given, until a block fits; false if it does not. */
static bool fit(int64_t limit, const struct qr_problem *problem, int32_t chunk_floor, int32_t column_floor,
                struct qr_plan *plan) {
  const int64_t leading = qr_leading(problem->m);
  for (;;) {
    plan->shared_bytes =
        (leading * (plan->block_columns + plan->chunk) + plan->chunk) * (int64_t)problem->element_bytes;
    if (plan->shared_bytes <= limit) return true;
    if (plan->chunk > chunk_floor)
      plan->chunk = (plan->chunk + 1) / 2;
    else if (plan->block_columns > column_floor)
      plan->block_columns /= 2;
    else
      return false;
  }
}

static void share_columns(const struct qr_problem *problem, struct qr_plan *plan) {
  plan->grid = problem->batch * divide_up(problem->columns, plan->block_columns);
  plan->threads = 32 * larger(2, smaller(QR_APPLY_THREADS / 32, plan->block_columns / 2));
}

/* Few columns in all: narrower blocks, for more multiprocessors. Two blocks share one if they fit. */
static bool plan_apply_shared(const struct qr_problem *problem, const struct chip *chip, struct qr_plan *plan) {
  plan->chunk = (int32_t)smaller(problem->k, 32);
  for (plan->block_columns = 16; plan->block_columns > 4; plan->block_columns /= 2)
    if (problem->batch * divide_up(problem->columns, plan->block_columns) >= INT64_C(2) * chip->multiprocessors) break;
  const bool fits = fit(chip->shared_bytes / 2, problem, 8, 4, plan) || fit(chip->shared_bytes, problem, 1, 1, plan);
  share_columns(problem, plan);
  return fits;
}

static bool plan_apply_global(const struct qr_problem *problem, const struct chip *chip, struct qr_plan *plan) {
  (void)chip;
  plan->chunk = 1;
  plan->block_columns = 4;
  share_columns(problem, plan);
  return true;
}

/* ---- The table -------------------------------------------------------------------------------------------------- */

enum { F32 = 1 << RONDO_F32, F64 = 1 << RONDO_F64, NARROW = 1 << RONDO_F16 | 1 << RONDO_BF16 };

static const struct qr_choice choices[] = {
    {
        .name = "tile",
        .work = QR_FACTORS,
        .types = F32 | F64 | NARROW,
        .m = {.most = 1024},
        .n = {.most = 160},
        .plan = plan_tile,
        .launch = qr_launch_tile,
        .why = "the matrix stays in registers between one read and one write",
    },
    {
        .name = "few_rows",
        .work = QR_FACTORS,
        .types = F32,
        .m = {.most = QR_FEW_ROWS},
        .plan = plan_few_rows,
        .launch = qr_launch_few_rows,
        .why = "a panel of so few rows leaves most of its threads idle",
    },
    {
        .name = "panels",
        .work = QR_FACTORS,
        .m = {.most = 2048},
        .plan = plan_panels,
        .launch = qr_launch_panels,
        .why = "each number is read and written once, panel by panel; reflectors are read again from memory",
    },
    {
        .name = "shared",
        .work = QR_FACTORS,
        .plan = plan_shared,
        .launch = qr_launch_shared,
        .why = "too many rows for registers, so few columns that the matrix fits in shared memory",
    },
    {
        .name = "blocked",
        .work = QR_FACTORS,
        .plan = plan_blocked,
        .launch = qr_launch_blocked,
        .why = "panels fit in shared memory, the matrix does not",
    },
    {
        .name = "global",
        .work = QR_FACTORS,
        .plan = plan_global,
        .launch = qr_launch_global,
        .why = "not even four columns fit twice in shared memory: it works in place",
    },
    {
        .name = "apply_tile",
        .work = QR_APPLIES,
        .m = {.most = 2048},
        .plan = plan_apply_tile,
        .launch = qr_launch_apply_tile,
        .why = "C stays in registers, and V comes through shared memory once",
    },
    {
        .name = "apply_shared",
        .work = QR_APPLIES,
        .plan = plan_apply_shared,
        .launch = qr_launch_apply_shared,
        .why = "too many rows for registers: a few columns of C stay in shared memory",
    },
    {
        .name = "apply_global",
        .work = QR_APPLIES,
        .plan = plan_apply_global,
        .launch = qr_launch_apply_global,
        .why = "not even one column and one reflector fit in shared memory: it works in place",
    },
};

const struct qr_choice *qr_choices(size_t *count) {
  *count = sizeof choices / sizeof *choices;
  return choices;
}

static bool takes(const struct qr_choice *choice, enum qr_work work, const struct qr_problem *problem) {
  const uint32_t types = choice->types ? choice->types : F32 | F64;
  return choice->work == work && types >> problem->a->dtype & 1 && is_in_range(problem->m, choice->m) &&
         is_in_range(problem->n, choice->n);
}

const struct qr_choice *qr_choose(enum qr_work work, const struct qr_problem *problem, const struct chip *chip,
                                  struct qr_plan *plan) {
  for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
    *plan = (struct qr_plan){0};
    if (takes(&choices[i], work, problem) && choices[i].plan(problem, chip, plan)) return &choices[i];
  }
  return NULL;
}

static rondo_status choose_and_launch(enum qr_work work, const struct qr_problem *problem, const struct op_call *call,
                                      const struct chip *chip, struct op_launches *launches) {
  struct qr_plan plan;
  const struct qr_choice *choice = qr_choose(work, problem, chip, &plan);
  if (!choice)
    return status_set(RONDO_UNSUPPORTED, "a is %s: this GPU has too little shared memory for it, expected f32",
                      rondo_dtype_name(problem->a->dtype));
  launches->choice = choice->name;
  launches->why = choice->why;
  return choice->launch(call, problem, &plan, launches);
}

rondo_status qr_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct qr_problem problem = qr_problem_of(call);
  launches->count = 0;
  if (!problem.k || !problem.batch) return RONDO_OK;
  return choose_and_launch(QR_FACTORS, &problem, call, chip, launches);
}

rondo_status qr_apply_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct qr_problem problem = qr_problem_of(call);
  launches->count = 0;
  if (!problem.k || !problem.batch || !problem.columns) return RONDO_OK;
  return choose_and_launch(QR_APPLIES, &problem, call, chip, launches);
}
