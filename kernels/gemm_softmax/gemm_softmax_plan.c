/* gemm_softmax_plan.c - the planners of gemm_softmax_choose.h: which kernel of a list, how rows are dealt to clusters,
 * and shared memory. */
#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "gemm_softmax_choose.h"

#define VARIANT(chips, parameters, name, threads, dtype, is_softmax, cluster, held)                                    \
  {KERNEL_ENTRY(chips, parameters, name, threads), dtype, is_softmax, cluster, held, 0},
#define STAGGERED_VARIANT(chips, parameters, name, threads, dtype, is_softmax, cluster, held, steps)                   \
  {KERNEL_ENTRY(chips, parameters, name, threads), dtype, is_softmax, cluster, held, steps},
static const struct gemm_softmax_variant staggered[] = {GEMM_SOFTMAX_STAGGERED_KERNELS(STAGGERED_VARIANT)};
static const struct gemm_softmax_variant resident[] = {GEMM_SOFTMAX_RESIDENT_KERNELS(VARIANT)};
static const struct gemm_softmax_variant streamed[] = {GEMM_SOFTMAX_STREAMED_KERNELS(VARIANT)};
enum {
  STAGGERED = sizeof staggered / sizeof *staggered,
  RESIDENT = sizeof resident / sizeof *resident,
  STREAMED = sizeof streamed / sizeof *streamed
};

struct portable_variant {
  struct op_kernel kernel;
  rondo_dtype dtype;
  int64_t columns;
  uint32_t shared_bytes;
  bool is_softmax;
};

#define PORTABLE_VARIANT(chips, parameters, name, threads, dtype, columns, is_softmax, blocks)                         \
  {KERNEL_ENTRY(chips, parameters, name, threads), dtype, columns, GEMM_SOFTMAX_SHARED_BYTES(columns), is_softmax},
static const struct portable_variant portable[] = {GEMM_SOFTMAX_KERNELS(PORTABLE_VARIANT)};

enum { MOST = 1 << 30 /* blocks, and tiles of all matrices */ };

/* The narrowest that holds a row, or the widest of the list. */
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

/* A cluster lies within a part of the chip: clusters of four and eight find 120 of an H200's 132 multiprocessors. */
static int64_t clusters_at_once(int64_t multiprocessors, int64_t cluster) {
  const int64_t found = cluster > 2 ? multiprocessors * 10 / 11 : multiprocessors;
  return larger(found / cluster, 1);
}

/* Work of the cluster with the most rows: products of 64 rows by a block of columns, one after the other. */
static int64_t work_of(const struct gemm_softmax_problem *problem, const struct gemm_softmax_variant *variant,
                       int64_t tiles) {
  const int64_t rows = divide_up(tiles * problem->batch, clusters_at_once(problem->multiprocessors, variant->cluster));
  const int64_t blocks = divide_up(problem->n, variant->cluster * WGMMA_COLUMNS);
  return rows * blocks * (blocks > 1 && !variant->held ? 2 : 1);
}

/* The streaming kernel with the least work; of two with the same work the one that holds nothing and rounds once. */
static const struct gemm_softmax_variant *streamed_variant_of(const struct gemm_softmax_problem *problem,
                                                              int64_t tiles) {
  const struct gemm_softmax_variant *best = variant_of(streamed, STREAMED, problem, WGMMA_COLUMNS);
  if (divide_up(problem->k, WGMMA_DEPTH) <= RESIDENT_MOST_STEPS) return best; /* the softmax bounds it */
  for (size_t i = 0; i < STREAMED; i++) {
    const struct gemm_softmax_variant *v = &streamed[i];
    if (!v->held || v->dtype != problem->dtype || !problem->is_softmax || problem->is_exact) continue;
    if (problem->n <= v->cluster * WGMMA_COLUMNS || problem->n > 2 * v->cluster * WGMMA_COLUMNS) continue;
    if (work_of(problem, v, tiles) < work_of(problem, best, tiles)) best = v;
  }
  return best;
}

/* ---- Plans ------------------------------------------------------------------------------------------------------- */

/* B in shared memory: clusters of a matrix, of which each takes a tile of rows after the other. */
static bool clusters_deal(const struct gemm_softmax_problem *problem, const struct gemm_softmax_variant *variant,
                          int64_t least, struct gemm_softmax_plan *plan) {
  const int64_t found = clusters_at_once(problem->multiprocessors, variant->cluster) / problem->batch;
  plan->kernel = &variant->kernel, plan->cluster = variant->cluster;
  plan->clusters = smaller(larger(larger(found, least), 1), plan->tiles);
  plan->grid = problem->batch * plan->clusters * variant->cluster;
  return plan->grid <= MOST && plan->tiles <= MOST / problem->batch;
}

bool gemm_softmax_staggered_plan(const struct gemm_softmax_problem *problem, struct gemm_softmax_plan *plan) {
  const struct gemm_softmax_variant *variant = variant_of(staggered, STAGGERED, problem, STAGGERED_COLUMNS);
  if (!variant) return false;
  plan->steps = divide_up(problem->k, WGMMA_DEPTH), plan->tiles = divide_up(problem->m, STAGGERED_ROWS);
  plan->a_box_rows = STAGGERED_ROWS, plan->b_box_rows = 16, plan->p_box_rows = STAGGERED_BOX_ROWS(plan->steps);
  plan->shared_bytes = STAGGERED_SHARED_BYTES(plan->steps, variant->cluster);
  return clusters_deal(problem, variant, 1, plan);
}

bool gemm_softmax_resident_plan(const struct gemm_softmax_problem *problem, struct gemm_softmax_plan *plan) {
  const struct gemm_softmax_variant *variant = variant_of(resident, RESIDENT, problem, RESIDENT_COLUMNS);
  if (!variant) return false;
  const int64_t cluster = variant->cluster, panel = WGMMA_PANEL_BYTES;
  const int64_t stages = problem->is_softmax ? RESIDENT_STAGES : RESIDENT_ROWMAX_STAGES;
  plan->steps = divide_up(problem->k, WGMMA_DEPTH), plan->tiles = divide_up(problem->m, WGMMA_TILE);
  plan->a_box_rows = WGMMA_TILE, plan->b_box_rows = WGMMA_COLUMNS, plan->p_box_rows = WGMMA_TILE;
  plan->shared_bytes = plan->steps * (RESIDENT_B_BYTES + stages * panel) +
                       (problem->is_softmax ? RESIDENT_STAGING_BYTES : 0) +
                       RESIDENT_SLOT_BYTES(problem->is_softmax, cluster) + WGMMA_BARRIER_BYTES;
  /* A block has room for the maxima of RESIDENT_ROWMAX_TURNS tiles. */
  const int64_t least = problem->is_softmax ? 1 : divide_up(plan->tiles, cluster * RESIDENT_ROWMAX_TURNS);
  return clusters_deal(problem, variant, least, plan);
}

bool gemm_softmax_streamed_plan(const struct gemm_softmax_problem *problem, struct gemm_softmax_plan *plan) {
  plan->steps = divide_up(problem->k, WGMMA_DEPTH), plan->tiles = divide_up(problem->m, WGMMA_TILE);
  const struct gemm_softmax_variant *variant = streamed_variant_of(problem, plan->tiles);
  if (!variant) return false;
  const int64_t cluster = variant->cluster;
  plan->kernel = &variant->kernel, plan->cluster = cluster;
  plan->clusters = smaller(clusters_at_once(problem->multiprocessors, cluster), plan->tiles * problem->batch);
  plan->column_blocks = divide_up(problem->n, cluster * WGMMA_COLUMNS);
  plan->grid = plan->clusters * cluster;
  plan->a_box_rows = STREAMED_ROWS / cluster, plan->b_box_rows = WGMMA_COLUMNS, plan->p_box_rows = 16;
  plan->shared_bytes = STREAMED_RING_BYTES + (problem->is_softmax ? STREAMED_STAGING_BYTES : 0) +
                       STREAMED_SLOT_BYTES(cluster) + WGMMA_BARRIER_BYTES;
  return true;
}

bool gemm_softmax_portable_plan(const struct gemm_softmax_problem *problem, struct gemm_softmax_plan *plan) {
  const int64_t columns = problem->n > 64 ? 128 : 64;
  for (size_t i = 0; i < sizeof portable / sizeof *portable; i++) {
    const struct portable_variant *v = &portable[i];
    if (v->is_softmax != problem->is_softmax || v->dtype != problem->dtype || v->columns != columns) continue;
    plan->kernel = &v->kernel, plan->cluster = 1;
    plan->tiles = divide_up(problem->m, GEMM_SOFTMAX_ROWS);
    plan->grid = plan->tiles * problem->batch;
    plan->shared_bytes = v->shared_bytes;
    return true;
  }
  return false;
}
