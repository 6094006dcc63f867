/* attention_choose.h - the designs of attention: which one attends, and what it launches. A plan is a pure function of
 * the task's shape and the chip; a launch only carries it out. */
#pragma once

#include "../common/size_range.h"
#include "attention_decode.h"
#include "attention_portable.h"
#include "attention_wgmma.h"

/* What a task asks for beside the plain attention, as bits. */
enum attention_demand {
  ATTENTION_WITH_PAGES = 1,
  ATTENTION_WITH_WINDOW = 2,
  ATTENTION_WITH_CAP = 4,
  ATTENTION_WITH_SPLITS = 8, /* the task says how many */
  ATTENTION_WITH_NEW_ROWS = 16 /* with or without a rotary embedding */,
  ATTENTION_WITH_ROTATED_Q = 32 /* a rotary embedding of q alone */,
  ATTENTION_WITH_PACKED_ROWS = 64
};

struct attention_problem {
  struct chip chip;
  struct attention_shape shape;
  uint32_t demands;
  rondo_dtype q, kv, o;
  int64_t asked_splits; /* 0: chosen here */
  bool is_aligned;      /* every row of q, k, v and o begins at a multiple of 16 bytes */
  bool has_maps;        /* q, k and v can have tensor maps, and rows of o begin at multiples of 16 bytes */
};

/* Each design fills in its own part. */
struct attention_plan {
  int64_t splits; /* more than 1: attention_combine.cu runs after the kernel */
  struct attention_decode_plan decode;
  struct attention_wgmma_plan wgmma;
  struct attention_portable_plan portable;
};

/* A planner is a pure function, and tells whether the design takes the problem. */
typedef bool attention_planner(const struct attention_problem *problem, struct attention_plan *plan);
typedef void attention_launcher(const struct op_call *call, const struct attention_shape *shape,
                                const struct attention_plan *plan, struct op_launches *launches);

struct attention_choice {
  const char *name;
  uint32_t chips;                                            /* as launch_chip says them */
  uint32_t q, kv;                                            /* types, 1 << dtype */
  uint32_t takes;                                            /* demands */
  struct size_range dimension, rows, query_length, capacity; /* rows: of a KV head */
  attention_planner *plan;
  attention_launcher *launch;
  const char *why;
};

/* The designs in the order in which they are tried. */
const struct attention_choice *attention_choices(size_t *count);

struct attention_problem attention_problem_of(const struct op_task *task, const struct chip *chip);

/* The first design that takes the problem, with its plan; NULL: none does. */
const struct attention_choice *attention_choose(const struct attention_problem *problem, struct attention_plan *plan);

/* Each in the file of its design. The bits of decode depend on the number of splits, which depends on KV heads and
 * capacity alone: not on the batch, nor on the chip. */
attention_planner attention_decode_plan_of, attention_wgmma_plan_of, attention_portable_plan_of;
attention_launcher attention_decode_launch, attention_wgmma_launch, attention_portable_launch;
