/* attention_choose.h - the designs of attention: which one attends, and what it launches. A plan is a pure function of
 * the task's shape and the chip; a launch only carries it out. */
#ifndef RONDO_ATTENTION_CHOOSE_H
#define RONDO_ATTENTION_CHOOSE_H

#include "../common/size_range.h"
#include "attention_decode.h"
#include "attention_portable.h"
#include "attention_wgmma_plan.h"

/* What a task asks for beside the plain attention, as bits. */
enum attention_demand {
  ATTENTION_WITH_PAGES = 1,
  ATTENTION_WITH_WINDOW = 2,
  ATTENTION_WITH_CAP = 4,
  ATTENTION_WITH_SPLITS = 8, /* the task says how many */
  ATTENTION_WITH_NEW_ROWS = 16 /* with or without a rotary embedding */,
  ATTENTION_WITH_ROTATED_Q = 32 /* a rotary embedding of q alone */
};

struct attention_problem {
  const struct op_task *task;
  const struct chip *chip;
  struct attention_shape shape;
  uint32_t demands;
};

/* Each design fills in its own part. */
struct attention_plan {
  int64_t splits; /* more than 1: attention_combine.cu runs after the kernel */
  struct attention_decode_plan decode;
  struct attention_wgmma_plan wgmma;
  struct attention_portable_plan portable;
};

struct attention_choice {
  const char *name;
  uint32_t chips;                                            /* as launch_chip says them */
  uint32_t q, kv;                                            /* types, 1 << dtype */
  uint32_t takes;                                            /* demands */
  struct size_range dimension, rows, query_length, capacity; /* rows: of a KV head */
  /* Whether the design takes the problem. */
  bool (*plan)(const struct attention_problem *problem, struct attention_plan *plan);
  void (*launch)(const struct op_call *call, const struct attention_problem *problem, const struct attention_plan *plan,
                 struct op_launches *launches);
  const char *why;
};

/* The designs in the order in which they are tried. */
const struct attention_choice *attention_choices(size_t *count);

struct attention_problem attention_problem_of(const struct op_task *task, const struct chip *chip);

/* The first design that takes the problem, with its plan; NULL: none does. */
const struct attention_choice *attention_choose(const struct attention_problem *problem, struct attention_plan *plan);

/* The designs' planners and launches, each in the file of its design. */
bool attention_decode_choice_plan(const struct attention_problem *problem, struct attention_plan *plan);
void attention_decode_launch(const struct op_call *call, const struct attention_problem *problem,
                             const struct attention_plan *plan, struct op_launches *launches);
bool attention_wgmma_choice_plan(const struct attention_problem *problem, struct attention_plan *plan);
void attention_wgmma_launch(const struct op_call *call, const struct attention_problem *problem,
                            const struct attention_plan *plan, struct op_launches *launches);
bool attention_portable_choice_plan(const struct attention_problem *problem, struct attention_plan *plan);
void attention_portable_launch(const struct op_call *call, const struct attention_problem *problem,
                               const struct attention_plan *plan, struct op_launches *launches);

#endif
