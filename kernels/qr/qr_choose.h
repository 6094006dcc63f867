/* qr_choose.h - the designs of QR: which one factors a matrix, or applies Q, and what it launches. */
#ifndef RONDO_QR_CHOOSE_H
#define RONDO_QR_CHOOSE_H

#include "../common/size_range.h"
#include "qr_panels_plan.h"
#include "qr_tile_apply_plan.h"
#include "qr_tile_plan.h"

/* What a design does: qr and qr_panel factor, qr_apply and qr_update apply. */
enum qr_work { QR_FACTORS, QR_APPLIES };

/* What a planner decides. Each design has its own part. */
struct qr_plan {
  struct qr_tile_plan tile;
  struct qr_panels_plan panels;
  struct qr_tile_apply_plan apply_tile;
  int64_t grid, threads, shared_bytes; /* of the others */
  int32_t panel;                       /* of blocked: columns factored at a time */
  int32_t block_columns, chunk;        /* of apply_shared and apply_global: columns of a block, reflectors at a time */
};

/* Pure: false where the design does not take the problem on this chip. */
typedef bool qr_planner(const struct qr_problem *problem, const struct chip *chip, struct qr_plan *plan);

struct qr_choice {
  const char *name;
  enum qr_work work;
  uint32_t types; /* of A, as bits 1 << dtype; 0: f32 and f64 */
  struct size_range m, n;
  qr_planner *plan;
  rondo_status (*launch)(const struct op_call *call, const struct qr_problem *problem, const struct qr_plan *plan,
                         struct op_launches *launches);
  const char *why;
};

/* The designs in the order in which they are tried. */
const struct qr_choice *qr_choices(size_t *count);

/* The first design that takes the problem, with its plan; NULL: none does. */
const struct qr_choice *qr_choose(enum qr_work work, const struct qr_problem *problem, const struct chip *chip,
                                  struct qr_plan *plan);

/* qr_launches.c: the launches that a plan says. */
rondo_status qr_launch_tile(const struct op_call *call, const struct qr_problem *problem, const struct qr_plan *plan,
                            struct op_launches *launches);
rondo_status qr_launch_panels(const struct op_call *call, const struct qr_problem *problem, const struct qr_plan *plan,
                              struct op_launches *launches);
rondo_status qr_launch_few_rows(const struct op_call *call, const struct qr_problem *problem,
                                const struct qr_plan *plan, struct op_launches *launches);
rondo_status qr_launch_shared(const struct op_call *call, const struct qr_problem *problem, const struct qr_plan *plan,
                              struct op_launches *launches);
rondo_status qr_launch_blocked(const struct op_call *call, const struct qr_problem *problem, const struct qr_plan *plan,
                               struct op_launches *launches);
rondo_status qr_launch_global(const struct op_call *call, const struct qr_problem *problem, const struct qr_plan *plan,
                              struct op_launches *launches);
rondo_status qr_launch_apply_tile(const struct op_call *call, const struct qr_problem *problem,
                                  const struct qr_plan *plan, struct op_launches *launches);
rondo_status qr_launch_apply_shared(const struct op_call *call, const struct qr_problem *problem,
                                    const struct qr_plan *plan, struct op_launches *launches);
rondo_status qr_launch_apply_global(const struct op_call *call, const struct qr_problem *problem,
                                    const struct qr_plan *plan, struct op_launches *launches);

#endif
