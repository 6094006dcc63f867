/* qr_choose.c - which design factors a matrix or applies Q: the family's table of choices, and the planners of designs
 * in shared and global memory. README.md has the same names and reasons, and tests/unit/test_choices.c compares the
 * two.
 *
 * The batch changes the grid, and the columns of a block that applies Q. It changes no result: a matrix has the same
 * bits in every batch. */
#include "qr_choose.h"

#include "../../runtime/integer.h"
#include "../common/launch.h"

QR_BLOCKED_KERNELS(KERNEL_CONSTANT)
QR_APPLY_KERNELS(KERNEL_CONSTANT)

/* ---- Planners of designs that factor ---------------------------------------------------------------------------- */

static int64_t grid_in_memory(const struct qr_problem *problem) {
  return problem->h.is_present ? smaller(problem->batch, INT32_MAX) : qr_workspace_of(problem).workers;
}

static bool plan_blocked(const struct qr_problem *problem, const struct chip *chip, struct qr_plan *plan) {
  enum { LEAST_COLUMNS = 4 };
  plan->kernel = problem->element_bytes == 4 ? &rondo_qr_blocked_f32 : &rondo_qr_blocked_f64;
  plan->grid = grid_in_memory(problem);
  plan->threads = QR_BLOCKED_THREADS;
  for (plan->panel = QR_PANEL_COLUMNS; plan->panel >= LEAST_COLUMNS; plan->panel /= 2) {
    plan->shared_bytes = plan->panel * (2 * qr_leading(problem->m) + 1) * problem->element_bytes;
    if (plan->shared_bytes <= chip->shared_bytes) return true;
  }
  return false;
}

static bool plan_global(const struct qr_problem *problem, const struct chip *chip, struct qr_plan *plan) {
  (void)chip;
  plan->kernel = problem->element_bytes == 4 ? &rondo_qr_global_f32 : &rondo_qr_global_f64;
  plan->grid = grid_in_memory(problem);
  plan->threads = QR_GLOBAL_THREADS;
  plan->panel = 2;
  return true;
}

/* ---- Planners of designs that apply Q --------------------------------------------------------------------------- */

/* Makes chunk and then columns smaller, not below the floors, until a block fits; false if it never does. */
static bool fit(int64_t limit, const struct qr_problem *problem, int32_t chunk_floor, int32_t column_floor,
                struct qr_plan *plan) {
  const int64_t leading = qr_leading(problem->m);
  for (;;) {
    plan->shared_bytes =
        (leading * (plan->group_columns + plan->chunk) + plan->chunk) * (int64_t)problem->element_bytes;
    if (plan->shared_bytes <= limit) return true;
    if (plan->chunk > chunk_floor)
      plan->chunk = (plan->chunk + 1) / 2;
    else if (plan->group_columns > column_floor)
      plan->group_columns /= 2;
    else
      return false;
  }
}

static void share_columns(const struct qr_problem *problem, struct qr_plan *plan) {
  plan->groups = divide_up(problem->columns, plan->group_columns);
  plan->grid = problem->batch * plan->groups;
  plan->threads = 32 * larger(2, smaller(QR_APPLY_THREADS / 32, plan->group_columns / 2));
}

/* With few columns blocks are narrower, for more multiprocessors. Two blocks share one if they fit. */
static bool plan_apply_shared(const struct qr_problem *problem, const struct chip *chip, struct qr_plan *plan) {
  plan->kernel = problem->element_bytes == 4 ? &rondo_qr_apply_f32 : &rondo_qr_apply_f64;
  plan->chunk = (int32_t)smaller(problem->k, 32);
  for (plan->group_columns = 16; plan->group_columns > 4; plan->group_columns /= 2)
    if (problem->batch * divide_up(problem->columns, plan->group_columns) >= INT64_C(2) * chip->multiprocessors) break;
  const bool fits = fit(chip->shared_bytes / 2, problem, 8, 4, plan) || fit(chip->shared_bytes, problem, 1, 1, plan);
  share_columns(problem, plan);
  return fits;
}

static bool plan_apply_global(const struct qr_problem *problem, const struct chip *chip, struct qr_plan *plan) {
  (void)chip;
  plan->kernel = problem->element_bytes == 4 ? &rondo_qr_apply_global_f32 : &rondo_qr_apply_global_f64;
  plan->chunk = 1;
  plan->group_columns = 4;
  share_columns(problem, plan);
  return true;
}

/* ---- The table -------------------------------------------------------------------------------------------------- */

enum { F32 = 1 << RONDO_F32, F64 = 1 << RONDO_F64, NARROW = 1 << RONDO_F16 | 1 << RONDO_BF16 };

static const struct qr_choice choices[] = {
    {DESIGN(tile, qr_plan_tile, qr_launch_tile), .work = QR_FACTORS, .types = F32 | F64 | NARROW, .m = {.most = 1024},
     .n = {.most = 160}, .why = "the matrix stays in registers between one read and one write"},
    {DESIGN(panels, qr_plan_panels, qr_launch_panels), .work = QR_FACTORS, .m = {.most = 2048},
     .why = "each number is read and written once, panel by panel; reflectors are read again from memory"},
    {DESIGN(blocked, plan_blocked, qr_launch_blocked), .work = QR_FACTORS,
     .why = "too many rows for registers: panels of a few columns stay in shared memory"},
    {DESIGN(global, plan_global, qr_launch_blocked), .work = QR_FACTORS,
     .why = "not even four columns fit twice in shared memory: it works in place"},
    {DESIGN(apply_tile, qr_plan_apply_tile, qr_launch_apply_tile), .work = QR_APPLIES, .m = {.most = 2048},
     .why = "C stays in registers, and V comes through shared memory once"},
    {DESIGN(apply_shared, plan_apply_shared, qr_launch_apply), .work = QR_APPLIES,
     .why = "too many rows for registers: a few columns of C stay in shared memory"},
    {DESIGN(apply_global, plan_apply_global, qr_launch_apply), .work = QR_APPLIES,
     .why = "not even one column and one reflector fit in shared memory: it works in place"},
};

const struct qr_choice *qr_choices(size_t *count) {
  *count = sizeof choices / sizeof *choices;
  return choices;
}

static bool takes(const struct qr_choice *choice, enum qr_work work, const struct qr_problem *problem) {
  const uint32_t types = choice->types ? choice->types : F32 | F64;
  return choice->work == work && types >> problem->dtype & 1 && is_in_range(problem->m, choice->m) &&
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

static rondo_status select_by(enum qr_work work, bool is_empty, const struct qr_problem *problem,
                              const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  struct qr_plan plan;
  launches->count = 0;
  if (is_empty) return RONDO_OK;
  const struct qr_choice *choice = qr_choose(work, problem, chip, &plan);
  if (!choice)
    return status_set(RONDO_UNSUPPORTED, "a is %s: this GPU has too little shared memory for it, expected f32",
                      rondo_dtype_name(problem->dtype));
  launches->choice = choice->name;
  launches->why = choice->why;
  OP_TRY(launch_check_blocks("a", plan.grid));
  choice->launch(call, problem, &plan, launches);
  return RONDO_OK;
}

rondo_status qr_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct qr_problem problem = qr_problem_of(call);
  return select_by(QR_FACTORS, !problem.k || !problem.batch, &problem, call, chip, launches);
}

rondo_status qr_apply_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct qr_problem problem = qr_problem_of(call);
  return select_by(QR_APPLIES, !problem.k || !problem.batch || !problem.columns, &problem, call, chip, launches);
}
