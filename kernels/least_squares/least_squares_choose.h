/* least_squares_choose.h - the designs of least squares: which one solves a task, and what it launches. */
#ifndef RONDO_LEAST_SQUARES_CHOOSE_H
#define RONDO_LEAST_SQUARES_CHOOSE_H

#include "../qr/qr_tile_plan.h"
#include "least_squares.h"

/* One launch of a tile's kernel. */
struct least_squares_tile_plan {
  struct op_kernel kernel;
  int64_t grid, threads, shared_bytes;
  int32_t offset, passes;
};

/* The second of two launches. */
struct least_squares_after_plan {
  const struct op_kernel *kernel;
  int64_t grid, threads, shared_bytes;
  int32_t group; /* right-hand sides of a block */
  bool in_work;  /* they stand in the scratch */
};

struct least_squares_plan {
  struct least_squares_tile_plan tile;
  struct least_squares_after_plan after;
};

struct least_squares_choice {
  const char *name;
  /* Pure: false where the design does not take the task on this chip. */
  bool (*plan)(const struct op_task *task, const struct chip *chip, struct least_squares_plan *plan);
  rondo_status (*launch)(const struct op_call *call, const struct chip *chip, const struct least_squares_plan *plan,
                         struct op_launches *launches);
  const char *why;
};

/* The designs in the order in which they are tried. */
const struct least_squares_choice *least_squares_choices(size_t *count);

/* least_squares_tile_plan.c: false if no tile holds the matrix, or a large one would factor it many times. */
bool least_squares_tile_plan_of(const struct op_task *task, const struct chip *chip,
                                struct least_squares_tile_plan *plan);

#endif
