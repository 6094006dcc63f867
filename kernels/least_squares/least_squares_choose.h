/* least_squares_choose.h - the designs of least squares: which one solves a task, its plan, and its launches. */
#pragma once

#include "../qr/qr_choose.h"
#include "least_squares.h"

/* Pure: false where the design does not take the task on this chip. */
typedef bool least_squares_planner(const struct qr_problem *problem, int64_t rhs_count, const struct chip *chip,
                                   struct qr_plan *plan);

struct least_squares_choice {
  const char *name;
  least_squares_planner *plan;
  rondo_status (*launch)(const struct op_call *call, const struct qr_problem *problem, const struct chip *chip,
                         const struct qr_plan *plan, struct op_launches *launches);
  const char *why;
};

/* The designs in the order in which they are tried. */
const struct least_squares_choice *least_squares_choices(size_t *count);

/* False if no tile holds the matrix, or a large one would factor it many times. */
least_squares_planner least_squares_plan_tile;
