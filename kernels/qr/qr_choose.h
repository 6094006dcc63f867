/* qr_choose.h - the designs of QR: which one factors a matrix or applies Q, its plan, and its launches. */
#pragma once

#include "../common/size_range.h"
#include "qr_panels.h"
#include "qr_tile.h"

/* A kernel of a register tile, of the lists in qr_tile.h, qr_tile_apply.h and least_squares.h. */
struct qr_tile {
  struct op_kernel kernel;
  int32_t blocks, element_bytes, rows, columns, row_lanes, column_lanes, options;
};
#define QR_TILE_ENTRY(chips, parameters, name, threads, blocks, type, ...)                                             \
  {KERNEL_ENTRY(chips, parameters, name, threads), blocks, sizeof(type), __VA_ARGS__},

/* A kernel by panels, of the lists in qr_panels.h. */
struct qr_panels {
  struct op_kernel kernel;
  int32_t element_bytes, blocks, rows, columns, chunk, group; /* blocks: of a multiprocessor */
};

/* The decisions of a planner. */
struct qr_plan {
  const struct op_kernel *kernel;
  int64_t grid, threads, shared_bytes;
  const struct qr_tile *tile;     /* of tile and apply_tile */
  const struct qr_panels *panels; /* of panels */
  const struct qr_panels *thin_q; /* of panels: the second kernel, which forms Q; NULL: Q is not wanted */
  int32_t offset;                 /* of a tile: how far down its diagonal the matrix stands */
  int32_t panel;                  /* of blocked: columns that are factored at a time */
  int64_t groups;                 /* of designs that apply Q: groups of columns of C */
  int32_t group_columns;          /* columns of a group */
  int32_t chunk;                  /* reflectors that come at a time */
  int32_t passes;                 /* of least squares in a tile: times that a matrix is factored */
  bool is_in_scratch;             /* of least squares after qr: right-hand sides stand in the scratch */
};

/* Pure: false where the design does not take the problem on this chip. Of the plan only the grid depends on the batch,
 * and the groups of a design that applies Q: a matrix has the same bits in every batch. */
typedef bool qr_planner(const struct qr_problem *problem, const struct chip *chip, struct qr_plan *plan);
qr_planner qr_plan_tile, qr_plan_panels, qr_plan_apply_tile;

typedef void qr_launcher(const struct op_call *call, const struct qr_problem *problem, const struct qr_plan *plan,
                         struct op_launches *launches);
qr_launcher qr_launch_tile, qr_launch_panels, qr_launch_blocked, qr_launch_apply_tile, qr_launch_apply;

enum qr_work {
  QR_FACTORS, /* qr and qr_panel */
  QR_APPLIES, /* qr_apply and qr_update */
};

struct qr_choice {
  const char *name;
  enum qr_work work;
  uint32_t types; /* of a, as bits 1 << dtype; 0: f32 and f64 */
  struct size_range m, n;
  qr_planner *plan;
  qr_launcher *launch;
  const char *why;
};

/* The designs in the order in which they are tried. */
const struct qr_choice *qr_choices(size_t *count);

/* The first design that takes the problem, with its plan; NULL: none does. */
const struct qr_choice *qr_choose(enum qr_work work, const struct qr_problem *problem, const struct chip *chip,
                                  struct qr_plan *plan);

/* Adds the launch of the plan's kernel. */
void qr_launch_add(struct op_launches *launches, const struct qr_plan *plan, const void *parameters,
                   size_t parameter_bytes);

/* ---- Tiles ------------------------------------------------------------------------------------------------------- */

/* The smallest tile that holds m x n numbers of the problem within this shared memory; NULL: none does. `takes` may be
 * NULL, and has the last word. */
const struct qr_tile *qr_tile_smallest(const struct qr_tile *tiles, size_t count, const struct qr_problem *problem,
                                       int64_t n, int64_t shared_bytes,
                                       bool (*takes)(const struct qr_tile *tile, const struct qr_problem *problem));
int64_t qr_tile_numbers(const struct qr_tile *tile);
int64_t qr_tile_matrices(const struct qr_tile *tile);    /* of a block */
int64_t qr_tile_block_bytes(const struct qr_tile *tile); /* shared memory of a block that makes no thin Q and R */
int32_t qr_tile_offset_of(const struct qr_tile *tile, int64_t m, int64_t n);

/* Does a tile take the problem on every chip that Rondo is compiled for? Then it needs no workspace, and reads and
 * writes each number once. */
bool qr_tile_on_every_chip(const struct qr_problem *problem);

/* ---- Panels ------------------------------------------------------------------------------------------------------ */

/* The kernel of the fewest rows that holds m; NULL: none does. */
const struct qr_panels *qr_panels_of(uint32_t element_bytes, int64_t m);

/* Scratch of one matrix for its second kernel: T of each group of reflectors. 0: Q is not wanted, or tiles form it. */
uint64_t qr_triangle_bytes(const struct qr_problem *problem);

/* Numbers from column to column of a workspace: whole vectors of 16 bytes. */
static inline int64_t qr_workspace_leading(int64_t m) { return (m + 3) / 4 * 4; }
