/* gemv_designs.h - the designs of gemv for tests of their plans: problems that a design mostly takes, and what its
 * kernels rely on in a plan, worked out apart from the planners. */
#pragma once

#include "../../kernels/gemv/gemv_plan.h"
#include "../support.h"

/* How a plan shares out rows and k. */
struct gemv_share {
  int64_t rows, pieces; /* pieces of this many rows: tiles, or what a block has */
  int64_t part;         /* elements of k that a warp has at once; 0: all of k */
  int64_t order;        /* lanes that share a row: they too decide the order of sums */
  int64_t cluster;      /* blocks that split k */
  int64_t least_bytes;  /* of shared memory that the kernel lays out, at least */
};

struct gemv_design {
  const char *name; /* of its row in the table of choices */
  struct gemv_problem (*draw)(struct random *random);
  struct gemv_share (*share)(const struct gemv_problem *problem, const struct gemv_plan *plan);
  /* What its kernels ask besides; NULL: nothing. */
  void (*check)(const struct gemv_problem *problem, const struct gemv_plan *plan);
  const char *const *kernels; /* each is taken by some drawn problem; NULL: not tested */
  int kernel_count;
  int64_t classes[3][2]; /* counts of vectors with one order of sums; 0: no more */
};

enum { GEMV_DESIGNS = 7 };
extern const struct gemv_design gemv_designs[GEMV_DESIGNS];

/* Is this choice one of the design's? */
bool gemv_design_has(const struct gemv_design *design, const struct gemv_choice *choice);
/* The plan of the design's first choice that takes the problem; without a kernel if none does. */
struct gemv_plan gemv_design_plan(const struct gemv_design *design, const struct gemv_problem *problem);
/* The design of this name. */
const struct gemv_design *gemv_design_called(const char *name);
/* The plan by the design of this name. */
struct gemv_plan gemv_plan_of(const char *design, const struct gemv_problem *problem);

/* A problem as text, for messages. */
const char *gemv_problem_text(const struct gemv_problem *problem);

/* A product of one matrix with a head of 49152 rows of 576, on an H200. */
struct gemv_problem gemv_head_problem(rondo_dtype weights, rondo_dtype vectors, int64_t count);
/* A product with dense operands on an H200, of any size. */
struct gemv_problem gemv_dense_problem(rondo_dtype weights, rondo_dtype vectors, int64_t batch, int64_t m, int64_t k,
                                       int64_t count);

/* One that quads take, with any types. */
struct gemv_problem gemv_draw_quads(struct random *random);
