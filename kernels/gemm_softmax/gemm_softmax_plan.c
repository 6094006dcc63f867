/* gemm_softmax_plan.c - see gemm_softmax_plan.h.
 *
 * Short k and rows that only a cluster with B in shared memory holds at once: there they stay. Everything else streams,
 * which is faster where its clusters hold the rows too (measured for 1024 x 1024 x 64: 5.1 us, against 6.8). */
#include "gemm_softmax_plan.h"

#include "../../runtime/integer.h"
#include "../common/launch.h"

#define VARIANT(chips, parameters, name, threads, dtype, is_softmax, cluster, held)                                    \
  {KERNEL_ENTRY(chips, parameters, name, threads), dtype, is_softmax, cluster, held, 0},
#define TEAMS_VARIANT(chips, parameters, name, threads, dtype, is_softmax, cluster, held, steps)                       \
  {KERNEL_ENTRY(chips, parameters, name, threads), dtype, is_softmax, cluster, held, steps},
static const struct gemm_softmax_variant teams[] = {GEMM_SOFTMAX_TEAMS_KERNELS(TEAMS_VARIANT)};
static const struct gemm_softmax_variant resident[] = {GEMM_SOFTMAX_RESIDENT_KERNELS(VARIANT)};
static const struct gemm_softmax_variant streamed[] = {GEMM_SOFTMAX_STREAMED_KERNELS(VARIANT)};
enum {
  TEAMS_LISTED = sizeof teams / sizeof *teams,
  RESIDENT = sizeof resident / sizeof *resident,
  STREAMED = sizeof streamed / sizeof *streamed
};

enum {
  MOST = 1 << 30,                       /* rows and columns: both have to be coordinates, and their difference too */
  STREAMED_COLUMNS = 4 * WGMMA_COLUMNS, /* of a cluster that streams */
  LEAST_COLUMNS = 129 /* up to there the portable kernel makes S once, and half of a warpgroup's columns are idle */
};

/* The narrowest that holds the row, or the widest there is. */
static const struct gemm_softmax_variant *variant_of(const struct gemm_softmax_variant *list, size_t count,
                                                     const struct gemm_softmax_problem *problem,
                                                     int64_t columns_of_block) {
  const struct gemm_softmax_variant *best = NULL;
  for (size_t i = 0; i < count; i++) {
    const struct gemm_softmax_variant *v = &list[i];
    if (v->dtype != problem->dtype || v->is_softmax != problem->is_softmax || v->held) continue;
    if (v->steps && v->steps != divide_up(problem->k, WGMMA_DEPTH)) continue;
    best = v; /* clusters grow along the list */
    if (v->cluster * columns_of_block >= problem->n) return v;
  }
  return best;
}

/* Clusters lie within parts of a chip: of an H200's 132 multiprocessors those of four and eight find 120. */
static int64_t clusters_at_once(int64_t multiprocessors, int64_t cluster) {
  const int64_t found = cluster > 2 ? multiprocessors * 10 / 11 : multiprocessors;
  return larger(found / cluster, 1);
}

/* The work of the cluster with the most rows: so many times 64 rows of a block of columns, of those that blocks make
 * one after the other. */
static int64_t work_of(const struct gemm_softmax_problem *problem, const struct gemm_softmax_variant *variant,
                       int64_t tiles) {
  const int64_t rows = divide_up(tiles * problem->batch, clusters_at_once(problem->multiprocessors, variant->cluster));
  const int64_t blocks = divide_up(problem->n, variant->cluster * WGMMA_COLUMNS);
  return rows * blocks * (blocks > 1 && !variant->held ? 2 : 1);
}

/* The one that streams with the least work; with as much, the one that holds nothing and rounds once. */
static const struct gemm_softmax_variant *streamed_variant_of(const struct gemm_softmax_problem *problem,
                                                              int64_t tiles) {
  const struct gemm_softmax_variant *best = variant_of(streamed, STREAMED, problem, WGMMA_COLUMNS);
  if (divide_up(problem->k, WGMMA_DEPTH) <= RESIDENT_MOST_STEPS) return best; /* the softmax is the most of it */
  for (size_t i = 0; i < STREAMED; i++) {
    const struct gemm_softmax_variant *v = &streamed[i];
    if (!v->held || v->dtype != problem->dtype || !problem->is_softmax || problem->is_exact) continue;
    if (problem->n <= v->cluster * WGMMA_COLUMNS || problem->n > 2 * v->cluster * WGMMA_COLUMNS) continue;
    if (work_of(problem, v, tiles) < work_of(problem, best, tiles)) best = v;
  }
  return best;
}

static bool resident_is_right(const struct gemm_softmax_problem *problem, const struct gemm_softmax_variant *variant) {
  const int64_t columns = variant->cluster * RESIDENT_COLUMNS;
  return divide_up(problem->k, WGMMA_DEPTH) <= RESIDENT_MOST_STEPS && problem->n <= columns &&
         problem->n > STREAMED_COLUMNS;
}

static void plan_resident(const struct gemm_softmax_problem *problem, struct gemm_softmax_plan *plan) {
  const struct gemm_softmax_variant *variant = plan->variant;
  const int64_t cluster = variant->cluster, panel = WGMMA_PANEL_BYTES;
  const int64_t stages = problem->is_softmax ? RESIDENT_STAGES : RESIDENT_ROWMAX_STAGES;
  plan->resident = true;
  /* A block has room for the maxima of so many tiles that it owns. */
  const int64_t least = problem->is_softmax ? 1 : divide_up(plan->tiles, cluster * RESIDENT_ROWMAX_TURNS);
  plan->clusters = clusters_at_once(problem->multiprocessors, cluster) / problem->batch;
  plan->clusters = smaller(larger(larger(plan->clusters, least), 1), plan->tiles);
  plan->grid = problem->batch * plan->clusters * cluster;
  plan->a_box_rows = WGMMA_TILE, plan->b_box_rows = WGMMA_COLUMNS, plan->p_box_rows = WGMMA_TILE;
  plan->shared_bytes = plan->steps * (RESIDENT_B_BYTES + stages * panel) +
                       (problem->is_softmax ? RESIDENT_STAGING_BYTES : 0) +
                       RESIDENT_SLOT_BYTES(problem->is_softmax, cluster) + WGMMA_BARRIER_BYTES;
}

static void plan_teams(const struct gemm_softmax_problem *problem, struct gemm_softmax_plan *plan) {
  const int64_t cluster = plan->variant->cluster;
  plan->resident = true;
  plan->tiles = divide_up(problem->m, TEAM_ROWS);
  plan->clusters = clusters_at_once(problem->multiprocessors, cluster) / problem->batch;
  plan->clusters = smaller(larger(plan->clusters, 1), plan->tiles);
  plan->grid = problem->batch * plan->clusters * cluster;
  plan->a_box_rows = TEAM_ROWS, plan->b_box_rows = 16, plan->p_box_rows = TEAM_BOX_ROWS(plan->steps);
  plan->shared_bytes = TEAM_SHARED_BYTES(plan->steps, cluster);
}

static void plan_streamed(const struct gemm_softmax_problem *problem, struct gemm_softmax_plan *plan) {
  const int64_t cluster = plan->variant->cluster;
  plan->clusters = smaller(clusters_at_once(problem->multiprocessors, cluster), plan->tiles * problem->batch);
  plan->column_blocks = divide_up(problem->n, cluster * WGMMA_COLUMNS);
  plan->grid = plan->clusters * cluster;
  plan->a_box_rows = STREAMED_ROWS / cluster, plan->b_box_rows = WGMMA_COLUMNS, plan->p_box_rows = 16;
  plan->shared_bytes = STREAMED_RING_BYTES + (problem->is_softmax ? STREAMED_STAGING_BYTES : 0) +
                       STREAMED_SLOT_BYTES(cluster) + WGMMA_BARRIER_BYTES;
}

struct gemm_softmax_plan gemm_softmax_plan_of(const struct gemm_softmax_problem *problem) {
  struct gemm_softmax_plan plan = {.steps = divide_up(problem->k, WGMMA_DEPTH),
                                   .tiles = divide_up(problem->m, WGMMA_TILE)};
  if (problem->n < LEAST_COLUMNS || problem->n > MOST || problem->m > MOST || problem->k > MOST || problem->k < 1 ||
      problem->m < 1 || problem->batch < 1 || problem->batch > MOST / plan.tiles)
    return plan;
  const bool has_teams = problem->is_softmax && !problem->is_exact && problem->is_dealt;
  plan.variant = has_teams ? variant_of(teams, TEAMS_LISTED, problem, TEAM_COLUMNS)
                           : variant_of(resident, RESIDENT, problem, RESIDENT_COLUMNS);
  if (plan.variant && resident_is_right(problem, plan.variant)) {
    if (has_teams)
      plan_teams(problem, &plan);
    else
      plan_resident(problem, &plan);
    if (plan.grid <= MOST && plan.tiles <= MOST / problem->batch) return plan;
  }
  plan.resident = false;
  plan.tiles = divide_up(problem->m, WGMMA_TILE);
  plan.variant = streamed_variant_of(problem, plan.tiles);
  if (plan.variant) plan_streamed(problem, &plan);
  return plan;
}
