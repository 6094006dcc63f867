/* gemm_softmax_choose.c - which kernel reduces the rows of a product: the planners, which decide how many blocks share
 * rows and how much shared memory they have; the launches of plans, with parameters and tensor maps; and the table of
 * choices in the order in which they are tried. README.md has the same table. */
#include "gemm_softmax_choose.h"

#include <math.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"

enum { MOST = 1 << 30 }; /* blocks, tiles of all matrices, coordinates and their differences */

/* A kernel of warpgroups as its list describes it. */
struct variant {
  struct op_kernel kernel;
  bool is_softmax;
  int64_t cluster; /* blocks */
  bool held;       /* a block makes two blocks of columns at once, and holds the first in 16 bits */
};

#define STAGGERED_KERNEL(chips, parameters, name, threads, steps) KERNEL_ENTRY(chips, parameters, name, threads),
static const struct op_kernel staggered[] = {GEMM_SOFTMAX_STAGGERED_KERNELS(STAGGERED_KERNEL)}; /* by steps */
#define RESIDENT_VARIANT(chips, parameters, name, threads, is_softmax)                                                 \
  {KERNEL_ENTRY(chips, parameters, name, threads), is_softmax, WGMMA_CLUSTER, false},
static const struct variant resident[] = {GEMM_SOFTMAX_RESIDENT_KERNELS(RESIDENT_VARIANT)};
#define STREAMED_VARIANT(chips, parameters, name, threads, is_softmax, cluster, held)                                  \
  {KERNEL_ENTRY(chips, parameters, name, threads), is_softmax, cluster, held},
static const struct variant streamed[] = {GEMM_SOFTMAX_STREAMED_KERNELS(STREAMED_VARIANT)};
#define PORTABLE_KERNEL(chips, parameters, name, threads, columns, blocks)                                             \
  KERNEL_ENTRY(chips, parameters, name, threads),
static const struct op_kernel portable[] = {GEMM_SOFTMAX_KERNELS(PORTABLE_KERNEL)}; /* 64 and 128 columns */

/* The fewest blocks, a power of two from `least` to `most`, that together are as wide as a row. */
static int64_t row_blocks_of(int64_t n, int64_t columns_of_block, int64_t least, int64_t most) {
  int64_t blocks = least;
  while (blocks < most && blocks * columns_of_block < n) blocks *= 2;
  return blocks;
}

/* A cluster lies within a part of the chip: clusters of four and eight find 120 of an H200's 132 multiprocessors.
 * Returns how many groups of `row_blocks` run at once in clusters of `cluster` blocks. */
static int64_t groups_at_once(int64_t multiprocessors, int64_t cluster, int64_t row_blocks) {
  const int64_t found = cluster > 2 ? multiprocessors * 10 / 11 : multiprocessors;
  return larger(found / cluster, 1) * cluster / row_blocks;
}

/* Whole clusters for `groups` of blocks that share rows; the last may be without rows. */
static int64_t grid_of(int64_t groups, int64_t row_blocks, int64_t cluster) {
  return divide_up(groups * row_blocks, cluster) * cluster;
}

/* ---- Plans: B stays in shared memory ----------------------------------------------------------------------------- */

/* Groups of blocks for each matrix, of which each takes a tile of rows after the other; at least `least`. */
static bool deal_tiles(const struct gemm_softmax_problem *problem, int64_t least, struct gemm_softmax_plan *plan) {
  const int64_t found = groups_at_once(problem->multiprocessors, WGMMA_CLUSTER, plan->row_blocks) / problem->batch;
  plan->groups = smaller(larger(larger(found, least), 1), plan->tiles);
  plan->grid = grid_of(problem->batch * plan->groups, plan->row_blocks, WGMMA_CLUSTER);
  return plan->grid <= MOST && plan->tiles <= MOST / problem->batch;
}

static bool plan_staggered(const struct gemm_softmax_problem *problem, struct gemm_softmax_plan *plan) {
  plan->steps = divide_up(problem->k, WGMMA_DEPTH), plan->tiles = divide_up(problem->m, STAGGERED_ROWS);
  plan->kernel = &staggered[plan->steps - 1];
  plan->row_blocks = row_blocks_of(problem->n, STAGGERED_COLUMNS, WGMMA_CLUSTER / 2, WGMMA_CLUSTER);
  plan->a_box_rows = STAGGERED_ROWS, plan->b_box_rows = 16, plan->p_box_rows = STAGGERED_BOX_ROWS(plan->steps);
  plan->shared_bytes = STAGGERED_SHARED_BYTES(plan->steps);
  return deal_tiles(problem, 1, plan);
}

static bool plan_resident(const struct gemm_softmax_problem *problem, struct gemm_softmax_plan *plan) {
  const int64_t stages = problem->is_softmax ? RESIDENT_STAGES : RESIDENT_ROWMAX_STAGES;
  plan->kernel = &resident[resident[0].is_softmax != problem->is_softmax].kernel;
  plan->row_blocks = row_blocks_of(problem->n, RESIDENT_COLUMNS, WGMMA_CLUSTER / 2, WGMMA_CLUSTER);
  plan->steps = divide_up(problem->k, WGMMA_DEPTH), plan->tiles = divide_up(problem->m, WGMMA_TILE);
  plan->a_box_rows = WGMMA_TILE, plan->b_box_rows = WGMMA_COLUMNS, plan->p_box_rows = WGMMA_TILE;
  plan->shared_bytes = plan->steps * (RESIDENT_B_BYTES + stages * WGMMA_PANEL_BYTES) +
                       (problem->is_softmax ? RESIDENT_STAGING_BYTES : 0) +
                       (int64_t)RESIDENT_SLOT_BYTES(problem->is_softmax) + WGMMA_BARRIER_BYTES;
  /* A block has room for the maxima of RESIDENT_ROWMAX_TURNS tiles. */
  const int64_t least = problem->is_softmax ? 1 : divide_up(plan->tiles, plan->row_blocks * RESIDENT_ROWMAX_TURNS);
  return deal_tiles(problem, least, plan);
}

/* ---- Plans: B is streamed ---------------------------------------------------------------------------------------- */

/* The first kernel of the list that may have `row_blocks` blocks share rows. */
static const struct variant *streamed_variant(bool is_softmax, bool held, int64_t row_blocks) {
  for (size_t i = 0; i < sizeof streamed / sizeof *streamed; i++) {
    const struct variant *v = &streamed[i];
    if (v->is_softmax == is_softmax && v->held == held && v->cluster >= row_blocks) return v;
  }
  return NULL;
}

/* Work of the group with the most rows: products of 64 rows by a block of columns, one after the other. */
static int64_t work_of(const struct gemm_softmax_problem *problem, const struct variant *variant, int64_t row_blocks,
                       int64_t tiles) {
  const int64_t groups = groups_at_once(problem->multiprocessors, variant->cluster, row_blocks);
  const int64_t blocks = divide_up(problem->n, row_blocks * WGMMA_COLUMNS);
  return divide_up(tiles * problem->batch, groups) * blocks * (blocks > 1 && !variant->held ? 2 : 1);
}

/* The kernel with the least work; of two with the same work the one that holds nothing and rounds once. */
static const struct variant *streamed_choose(const struct gemm_softmax_problem *problem, int64_t tiles,
                                             int64_t *row_blocks) {
  *row_blocks = row_blocks_of(problem->n, WGMMA_COLUMNS, 1, STREAMED_MOST_SHARERS);
  const struct variant *best = streamed_variant(problem->is_softmax, false, *row_blocks);
  if (divide_up(problem->k, WGMMA_DEPTH) <= RESIDENT_MOST_STEPS) return best; /* the softmax bounds it */
  if (!problem->is_softmax || problem->is_exact) return best;
  for (int64_t blocks = 2; blocks <= STREAMED_MOST_SHARERS; blocks *= 2) {
    const struct variant *held = streamed_variant(true, true, blocks);
    if (problem->n <= blocks * WGMMA_COLUMNS || problem->n > 2 * blocks * WGMMA_COLUMNS) continue;
    if (work_of(problem, held, blocks, tiles) < work_of(problem, best, *row_blocks, tiles))
      best = held, *row_blocks = blocks;
  }
  return best;
}

static bool plan_streamed(const struct gemm_softmax_problem *problem, struct gemm_softmax_plan *plan) {
  plan->steps = divide_up(problem->k, WGMMA_DEPTH), plan->tiles = divide_up(problem->m, WGMMA_TILE);
  const struct variant *variant = streamed_choose(problem, plan->tiles, &plan->row_blocks);
  const int64_t blocks = plan->row_blocks, most = groups_at_once(problem->multiprocessors, variant->cluster, blocks);
  plan->kernel = &variant->kernel;
  plan->groups = smaller(most, plan->tiles * problem->batch);
  plan->column_blocks = divide_up(problem->n, blocks * WGMMA_COLUMNS);
  plan->grid = grid_of(plan->groups, blocks, variant->cluster);
  plan->a_box_rows = STREAMED_ROWS / blocks, plan->b_box_rows = WGMMA_COLUMNS, plan->p_box_rows = 16;
  plan->shared_bytes = STREAMED_RING_BYTES + (problem->is_softmax ? STREAMED_STAGING_BYTES : 0) + STREAMED_SLOT_BYTES +
                       WGMMA_BARRIER_BYTES;
  return true;
}

/* ---- The plan on every chip -------------------------------------------------------------------------------------- */

static bool plan_portable(const struct gemm_softmax_problem *problem, struct gemm_softmax_plan *plan) {
  const bool is_wide = problem->n > 64;
  plan->kernel = &portable[is_wide];
  plan->tiles = divide_up(problem->m, GEMM_SOFTMAX_ROWS);
  plan->grid = plan->tiles * problem->batch;
  plan->shared_bytes = (int64_t)GEMM_SOFTMAX_SHARED_BYTES(is_wide ? 128 : 64);
  return true;
}

static uint32_t output_of(rondo_dtype dtype) {
  return dtype == RONDO_F32 ? GEMM_SOFTMAX_F32 : dtype == RONDO_F16 ? GEMM_SOFTMAX_F16 : GEMM_SOFTMAX_BF16;
}

/* ---- Launches on sm_90a ------------------------------------------------------------------------------------------ */

static void map_add(struct op_launch *launch, size_t offset, const struct op_call *call, int which, int64_t rows,
                    int64_t columns) {
  struct op_operand operand = with_batch(&call->task->operands[which]);
  launch_map(launch, offset, &operand, call->data[which], (const uint32_t[]){1, (uint32_t)rows, (uint32_t)columns});
}

/* log2(e) |scale| is finite too. */
enum { MOST_SCALE_EXPONENT = 126 };

static bool may_have_maps(const struct op_task *task, const struct gemm_softmax_shape *shape, const struct chip *chip) {
  if (chip->version != 90 || fabsf(shape->scale) > ldexpf(1, MOST_SCALE_EXPONENT)) return false;
  const int count = task->op == &op_gemm_softmax ? 3 : 2;
  for (int i = 0; i < count; i++) {
    struct op_operand operand = with_batch(&task->operands[i]);
    if (!has_tensor_map(&operand)) return false;
    /* A copy out writes whole pieces of 16 bytes, also past the last column. */
    if (operand.shape[2] * rondo_dtype_bits(operand.dtype) % 128 != 0) return false;
  }
  return true;
}

/* B's rows in the order of the staggered kernels: {128 i, 16 j, l, k} for row 128 i + 16 j + l. Returns the number of
 * groups of 128 from one matrix to the next, or 0 if there is no such view. */
static uint32_t groups_of(const struct op_call *call, const struct gemm_softmax_shape *shape,
                          struct op_operand *groups) {
  const int64_t row = shape->b_row_stride, group = STAGGERED_GROUP * row, each = shape->n / STAGGERED_GROUP;
  const int64_t stride = shape->batch > 1 ? shape->b_batch_stride : each * group;
  if (group <= 0 || shape->n % STAGGERED_GROUP != 0 || stride % group != 0) return 0;
  const int64_t count = stride / group;
  *groups = call->task->operands[GEMM_B];
  groups->rank = 4;
  groups->shape[0] = (shape->batch - 1) * count + each, groups->stride[0] = group;
  groups->shape[1] = 8, groups->stride[1] = 16 * row;
  groups->shape[2] = 16, groups->stride[2] = row;
  groups->shape[3] = shape->k, groups->stride[3] = 1;
  return groups->shape[0] <= INT32_MAX && has_tensor_map(groups) ? (uint32_t)count : 0;
}

static struct gemm_softmax_problem problem_of(const struct op_call *call, const struct chip *chip) {
  const struct gemm_softmax_shape shape = gemm_softmax_shape_of(call->task);
  struct op_operand groups;
  const bool has_maps = may_have_maps(call->task, &shape, chip);
  return (struct gemm_softmax_problem){.is_softmax = call->task->op == &op_gemm_softmax,
                                       .is_exact = call->task->operands[GEMM_OUT].dtype == RONDO_F32,
                                       .has_maps = has_maps,
                                       .is_dealt = has_maps && !shape.causal && groups_of(call, &shape, &groups),
                                       .batch = shape.batch,
                                       .m = shape.m,
                                       .n = shape.n,
                                       .k = shape.k,
                                       .multiprocessors = chip->multiprocessors,
                                       .shared_bytes = chip->shared_bytes};
}

/* With the map of A. */
static struct op_launch *launch_begin(const struct op_call *call, const struct gemm_softmax_plan *plan,
                                      uint32_t b_groups, struct op_launches *launches) {
  const bool is_softmax = call->task->op == &op_gemm_softmax;
  const struct gemm_softmax_shape shape = gemm_softmax_shape_of(call->task);
  const rondo_dtype out = call->task->operands[GEMM_OUT].dtype;
  const float log2_e = 1.4426950408889634f, scale = fabsf(shape.scale);
  const struct gemm_softmax_wgmma_parameters parameters = {
      .max = is_softmax ? NULL : call->data[GEMM_OUT],
      .max_batch_stride = shape.out_batch_stride,
      .max_row_stride = shape.out_row_stride,
      .batch = (uint32_t)shape.batch,
      .m = (uint32_t)shape.m,
      .n = (uint32_t)shape.n,
      .steps = (uint32_t)plan->steps,
      .tiles = (uint32_t)plan->tiles,
      .row_blocks = (uint32_t)plan->row_blocks,
      .row_blocks_log2 = (uint32_t)__builtin_ctzll((unsigned long long)plan->row_blocks),
      .groups = (uint32_t)plan->groups,
      .blocks = (uint32_t)plan->column_blocks,
      .is_bf16 = call->task->operands[GEMM_A].dtype == RONDO_BF16,
      .causal = shape.causal,
      .negative = shape.scale < 0,
      .output = output_of(out),
      .b_groups = b_groups,
      .factor = is_softmax ? scale * log2_e : scale,
  };
  struct op_launch *launch = launch_add(launches, plan->kernel, plan->grid, plan->kernel->threads,
                                        (uint64_t)plan->shared_bytes, &parameters, sizeof parameters);
  map_add(launch, offsetof(struct gemm_softmax_wgmma_parameters, a), call, GEMM_A, plan->a_box_rows, WGMMA_DEPTH);
  return launch;
}

static void map_add_p(struct op_launch *launch, const struct op_call *call, const struct gemm_softmax_plan *plan) {
  map_add(launch, offsetof(struct gemm_softmax_wgmma_parameters, p), call, GEMM_OUT, plan->p_box_rows,
          8 * WGMMA_BOX_BYTES / rondo_dtype_bits(call->task->operands[GEMM_OUT].dtype));
}

static void launch_wgmma(const struct op_call *call, const struct gemm_softmax_plan *plan,
                         struct op_launches *launches) {
  struct op_launch *launch = launch_begin(call, plan, 0, launches);
  map_add(launch, offsetof(struct gemm_softmax_wgmma_parameters, b), call, GEMM_B, plan->b_box_rows, WGMMA_DEPTH);
  if (call->task->op == &op_gemm_softmax) map_add_p(launch, call, plan);
}

static void launch_staggered(const struct op_call *call, const struct gemm_softmax_plan *plan,
                             struct op_launches *launches) {
  const struct gemm_softmax_shape shape = gemm_softmax_shape_of(call->task);
  struct op_operand groups;
  const uint32_t count = groups_of(call, &shape, &groups);
  struct op_launch *launch = launch_begin(call, plan, count, launches);
  launch_map(launch, offsetof(struct gemm_softmax_wgmma_parameters, b), &groups, call->data[GEMM_B],
             (const uint32_t[]){STAGGERED_COLUMNS / STAGGERED_GROUP, 1, (uint32_t)plan->b_box_rows, WGMMA_DEPTH});
  map_add_p(launch, call, plan);
}

/* ---- The launch on every chip ------------------------------------------------------------------------------------ */

static void launch_portable(const struct op_call *call, const struct gemm_softmax_plan *plan,
                            struct op_launches *launches) {
  const struct op_task *task = call->task;
  const struct op_operand *a = &task->operands[GEMM_A], *b = &task->operands[GEMM_B], *out = &task->operands[GEMM_OUT];
  const struct gemm_softmax_shape shape = gemm_softmax_shape_of(task);
  const struct gemm_softmax_parameters parameters = {
      .a = call->data[GEMM_A],
      .b = call->data[GEMM_B],
      .out = call->data[GEMM_OUT],
      .a_batch_stride = shape.a_batch_stride,
      .a_row_stride = shape.a_row_stride,
      .b_batch_stride = shape.b_batch_stride,
      .b_row_stride = shape.b_row_stride,
      .out_batch_stride = shape.out_batch_stride,
      .out_row_stride = shape.out_row_stride,
      .m = shape.m,
      .n = shape.n,
      .k = shape.k,
      .row_tiles = (uint32_t)plan->tiles,
      .scale = shape.scale,
      .is_softmax = task->op == &op_gemm_softmax,
      .is_bf16 = a->dtype == RONDO_BF16,
      .causal = shape.causal,
      .vectors = op_rows_aligned(a, 16) && op_rows_aligned(b, 16),
      .pairs = task->op == &op_gemm_softmax && op_rows_aligned(out, rondo_dtype_bits(out->dtype) / 4),
      .output = output_of(out->dtype),
  };
  launch_add(launches, plan->kernel, plan->grid, GEMM_THREADS, (uint64_t)plan->shared_bytes, &parameters,
             sizeof parameters);
}

/* ---- The table -------------------------------------------------------------------------------------------------- */

enum {
  LEAST_STREAM = 129,   /* columns: for fewer half of a warpgroup would be idle */
  WIDEST_STREAM = 1024, /* columns of a cluster that streams, and makes a row once */
  WIDEST_RESIDENT = 8 * RESIDENT_COLUMNS,
  SHORT_K = RESIDENT_MOST_STEPS * WGMMA_DEPTH
};

static const struct gemm_softmax_choice choices[] = {
    {DESIGN(staggered, plan_staggered, launch_staggered), .needs_maps = true, .needs_deal = true,
     .n = {WIDEST_STREAM + 1, WIDEST_RESIDENT}, .k = {1, SHORT_K},
     .why = "B stays in shared memory; of three warpgroups one multiplies, one takes exponentials and one stores"},
    {DESIGN(resident, plan_resident, launch_wgmma), .needs_maps = true, .n = {WIDEST_STREAM + 1, WIDEST_RESIDENT},
     .k = {1, SHORT_K}, .why = "B stays in shared memory, and a cluster holds whole rows: the product is made once"},
    {DESIGN(streamed, plan_streamed, launch_wgmma), .needs_maps = true, .n = {LEAST_STREAM, MOST}, .k = {1, MOST},
     .why = "panels of A and B pass through a ring while warpgroups multiply: any k, any number of columns"},
    {DESIGN(portable, plan_portable, launch_portable),
     .why = "mma.sync with online normalisation: every chip, every alignment"},
};

const struct gemm_softmax_choice *gemm_softmax_choices(size_t *count) {
  *count = sizeof choices / sizeof *choices;
  return choices;
}

static bool may_take(const struct gemm_softmax_choice *choice, const struct gemm_softmax_problem *problem) {
  if (choice->needs_deal && (!problem->is_dealt || !problem->is_softmax || problem->is_exact)) return false;
  if (choice->needs_maps && (!problem->has_maps || problem->m < 1 || problem->m > MOST || problem->batch < 1 ||
                             problem->batch > MOST / divide_up(problem->m, WGMMA_TILE)))
    return false;
  return is_in_range(problem->n, choice->n) && is_in_range(problem->k, choice->k);
}

const struct gemm_softmax_choice *gemm_softmax_choose(const struct gemm_softmax_problem *problem,
                                                      struct gemm_softmax_plan *plan) {
  for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
    *plan = (struct gemm_softmax_plan){0};
    if (may_take(&choices[i], problem) && choices[i].plan(problem, plan) && plan->grid <= INT32_MAX &&
        plan->shared_bytes <= problem->shared_bytes)
      return &choices[i];
  }
  return NULL;
}

rondo_status gemm_softmax_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  launches->count = 0;
  if (op_elements(&call->task->operands[GEMM_OUT]) == 0) return RONDO_OK;
  const struct gemm_softmax_problem problem = problem_of(call, chip);
  struct gemm_softmax_plan plan;
  const struct gemm_softmax_choice *choice = gemm_softmax_choose(&problem, &plan);
  if (!choice && plan.grid > INT32_MAX) return launch_check_blocks("a", plan.grid);
  if (!choice)
    return status_set(RONDO_UNSUPPORTED, "a block needs %lld bytes of shared memory, the chip has %d",
                      (long long)plan.shared_bytes, (int)chip->shared_bytes);
  launches->choice = choice->name, launches->why = choice->why;
  choice->launch(call, &plan, launches);
  return RONDO_OK;
}
