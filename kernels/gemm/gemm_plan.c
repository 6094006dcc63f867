/* gemm_plan.c - the planners of products of many rows: pure functions of problem and choice. The estimates of cycles
 * were fitted to an H100 (docs/lab/gemm.md). */
#include <math.h>

#include "../../runtime/integer.h"
#include "gemm_choose.h"

/* Units along P that are taken for all of Q before the next ones: their rows of P stay in L2. */
enum { LEAST_GROUP = 4, MOST_GROUP = 8, GROUP_BYTES = 8 << 20 };

bool gemm_few_plan(const struct gemm_problem *problem, const struct gemm_choice *choice, struct gemm_plan *plan) {
  (void)problem, (void)choice;
  plan->cycles = 0;
  return true;
}

enum { START_CYCLES = 2150 }; /* the predecessor's end, and the first X */

static const double BYTES_A_CYCLE = 1700; /* of memory */

/* The slower one of computing and memory, and a tenth of the other. */
static double cycles_of(const struct gemm_problem *problem, double computing) {
  const double n = (double)problem->columns, m = (double)problem->rows, k = (double)problem->k;
  const double results = problem->silu_mul ? m * n / 2 : problem->streamed ? 5 * m * n : m * n; /* of 16 bits */
  const double vector_bytes = problem->is_e4m3 ? 1 : 2, weight_bytes = problem->has_codes ? 0.5625 : vector_bytes;
  const double bytes = weight_bytes * n * k + vector_bytes * m * k + 2 * results;
  const double memory = (double)problem->batch * bytes / BYTES_A_CYCLE;
  return fmax(computing, memory) + fmin(computing, memory) / 10;
}

/* Cycles from 128 x 128 sums until the results have left. In LONG_TURNS a warpgroup stores the first 64 of its 128 rows
 * before the others. */
static double leaving_cycles(const struct gemm_problem *problem, const struct gemm_tile *tile) {
  enum { PLAIN, ADDED, GATED, SHARED = 0, TURNS, LONG_TURNS, WIDE };
  static const double cycles[][4] = {
      [PLAIN] = {2100, 1600, 3200, 3200}, [ADDED] = {3500, 4600, 5300, 5300}, [GATED] = {3500, 2000, 5700, 3500}};
  const int which = gemm_tile_is_wide(*tile) ? WIDE : tile->turns != 1 ? SHARED : tile->rows == 64 ? TURNS : LONG_TURNS;
  if (!problem->silu_mul) return cycles[problem->has_residual ? ADDED : PLAIN][which];
  if (gemm_tile_gates_by_box(*tile) && !problem->has_residual) return cycles[GATED][which];
  if (tile->slots && problem->one_type) return 3500;
  return tile->swapped ? 11300 : 8300; /* threads store them */
}

/* W in NVFP4 is decoded by the threads that multiply. */
static double decoding_cycles(const struct gemm_tile *tile) {
  if (!tile->slots) return 0;
  return gemm_tile_p(*tile) > 64 ? 760 : 430;
}

/* A tile of m x n results: for 64 of k the tensor cores take m n / 32 cycles at full rate, and 128 (m + n) bytes come
 * in, or less where X has fewer rows. Of kernels that take turns only the last results are waited for. */
static double wgmma_cycles(const struct gemm_problem *problem, const struct gemm_tile *tile, int64_t waves) {
  const double m = gemm_tile_p(*tile), n = tile->columns, share = m * n / (128 * 128), count = (double)waves;
  const double rate = !tile->slots ? 0.92 : n > 128 ? 0.66 : 0.53;
  const double copied = 128 * ((tile->slots ? 0.28 : 1) * m + n - gemm_x_missing(*tile, problem->rows));
  const double step = fmax(fmax(m * n / (32 * rate), decoding_cycles(tile)), copied / 54);
  const double meeting = tile->parts > 1 ? 1150 * count : 0, turn = 770;
  const double steps =
      count * (double)divide_up(problem->k, problem->is_e4m3 ? GEMM_E4M3_DEPTH : GEMM_DEPTH) / tile->parts;
  const double leaving = leaving_cycles(problem, tile);
  return START_CYCLES + steps * step + share * (tile->turns == 1 ? count * turn + leaving : count * leaving) + meeting;
}

bool gemm_wgmma_plan(const struct gemm_problem *problem, const struct gemm_choice *choice, struct gemm_plan *plan) {
  const struct gemm_tile *tile = &choice->kernel->tile;
  const int64_t of_p = tile->swapped ? problem->columns : problem->rows;
  const int64_t of_q = tile->swapped ? problem->rows : problem->columns;
  const int64_t cluster = gemm_tile_cluster(*tile);
  /* Of clusters of three a group of 16 multiprocessors holds five, and not every group has 16. */
  const int64_t clusters = problem->multiprocessors * (cluster == 3 ? 9 : 10) / 10 / cluster;
  plan->p_units = divide_up(of_p, (int64_t)gemm_tile_p(*tile) * tile->along_p);
  plan->q_units = divide_up(of_q, (int64_t)tile->columns * tile->along_q);
  plan->units = plan->p_units * plan->q_units * problem->batch;
  plan->shared_bytes = gemm_shared_bytes(*tile, choice->kernel->stages);
  if (clusters < 1 || plan->units > INT32_MAX || plan->shared_bytes > problem->shared_bytes) return false;
  if ((tile->slots > 0) != problem->has_codes) return false;
  if ((choice->kernel->types == GEMM_E4M3) != problem->is_e4m3) return false;
  const bool is_of_any = choice->kernel->types != GEMM_ONE_TYPE;
  if (!problem->has_codes && !problem->is_e4m3 && !gemm_meeting_bytes(*tile) && is_of_any == problem->one_type)
    return false;
  if (problem->silu_mul && !is_of_any && !tile->swapped && !gemm_tile_gates_by_box(*tile)) return false;
  if ((problem->has_residual || problem->row_factors) && gemm_tile_is_wide(*tile)) return false;
  if (problem->streamed && !gemm_tile_streams(*tile)) return false;
  const bool meets_often = gemm_meeting_bytes(*tile) && problem->one_type;
  if (tile->parts > 1 && plan->units > clusters && !meets_often) return false;
  if (meets_often && problem->rows > tile->columns) return false; /* 64x64 and its parts are faster (README.md) */
  plan->grid = smaller(plan->units, clusters) * cluster;
  const int64_t unit_bytes = (problem->is_e4m3 ? 1 : 2) * problem->k * gemm_tile_p(*tile) * tile->along_p;
  plan->group = plan->units > clusters ? larger(LEAST_GROUP, smaller(MOST_GROUP, GROUP_BYTES / unit_bytes)) : 1;
  plan->cycles = cycles_of(problem, wgmma_cycles(problem, tile, divide_up(plan->units, clusters)));
  return true;
}

/* 256 of k of a group's rows are eight operands of 16 x 16 for each of four schedulers. Then the sums meet. */
static double slices_cycles(const struct gemm_problem *problem, int groups, int64_t parts, int64_t waves) {
  const double steps = (double)divide_up(problem->k, GEMM_SLICES_DEPTH), count = (double)waves;
  const double copied = gemm_slices_stage_bytes(groups, (int)problem->rows) / 54.0;
  const double step = fmax(45.0 * 8 * groups, copied), leaving = 1500 + 200 * groups;
  return START_CYCLES + count * (ceil(steps / (double)parts) * step + leaving) + (parts > 1 ? 2500 : 0);
}

/* Takes the number of groups with the fewest cycles. Squares of a second result have 64 columns. */
bool gemm_slices_plan(const struct gemm_problem *problem, const struct gemm_choice *choice, struct gemm_plan *plan) {
  const int64_t parts = choice->kernel->parts;
  const int64_t clusters = problem->multiprocessors * (parts == 3 ? 9 : 10) / 10 / parts;
  if (!problem->has_codes || clusters < 1) return false;
  plan->cycles = INFINITY;
  const int apart = problem->streamed ? 2 : 1;
  for (int groups = apart; groups <= GEMM_SLICES_MOST_GROUPS; groups += apart) {
    const int rows = (int)problem->rows;
    const int64_t tiles = divide_up(problem->columns, (int64_t)groups * GEMM_SLICES_ROWS);
    const int64_t units = tiles * problem->batch;
    const double cycles = cycles_of(problem, slices_cycles(problem, groups, parts, divide_up(units, clusters)));
    if (units > INT32_MAX || (parts > 1 && units > clusters) || cycles >= plan->cycles) continue;
    plan->cycles = cycles, plan->groups = groups, plan->p_units = tiles, plan->q_units = 1, plan->units = units;
    plan->grid = smaller(units, clusters) * parts, plan->parts = parts;
    plan->shared_bytes = gemm_slices_shared_bytes(groups, rows, (int)parts, units <= clusters);
  }
  return plan->cycles < INFINITY && plan->shared_bytes <= problem->shared_bytes;
}

/* A multiprocessor multiplies 1200 pairs a cycle, in tiles of 64 x 64 1000, and each row's 64 of k take 1.44 cycles on
 * their way to shared memory and to registers. A small tile alone waits for its loads. Each block takes 1 KB more of
 * shared memory than it asks for, and so a chip with 99 KB holds two of 48. */
static double portable_cycles(const struct gemm_problem *problem, const struct gemm_kernel *kernel, int64_t tiles,
                              int64_t parts) {
  enum { BLOCK_BYTES = 1024 };
  const struct gemm_portable_tile *tile = &kernel->portable;
  const double x = tile->x, w = tile->w, count = (double)divide_up(tiles * parts, problem->multiprocessors);
  const double steps = (double)divide_up(problem->k, GEMM_PORTABLE_DEPTH * parts);
  const double rate = tile->x == 64 ? 1000 : 1200, step = x * w * GEMM_PORTABLE_DEPTH / rate + 1.44 * (x + w),
               alone = tile->slices > 1 ? 560 : 1000;
  const int64_t room = (problem->shared_bytes + BLOCK_BYTES) / (gemm_portable_shared_bytes(*tile) + BLOCK_BYTES);
  const double turns = fmax(1, count / (double)smaller(kernel->blocks, larger(1, room)));
  return fmax(count * steps * step, turns * steps * alone) + turns * (1500 + x * w / 8);
}

/* A second kernel, and sums that are written, and read from L2. */
static double adding_cycles(const struct gemm_problem *problem, int64_t parts) {
  const double numbers = (double)(problem->batch * problem->rows * problem->columns * parts);
  return parts > 1 ? 5000 + numbers * sizeof(float) / BYTES_A_CYCLE : 0;
}

bool gemm_portable_plan(const struct gemm_problem *problem, const struct gemm_choice *choice, struct gemm_plan *plan) {
  const struct gemm_portable_tile *tile = &choice->kernel->portable;
  if (problem->is_e4m3 || (tile->codes != 0) != problem->has_codes) return false;
  plan->row_tiles = divide_up(problem->rows, tile->x);
  plan->column_tiles = divide_up(problem->columns, tile->w);
  plan->grid = plan->row_tiles * plan->column_tiles * problem->batch;
  plan->shared_bytes = gemm_portable_shared_bytes(*tile);
  plan->cycles = INFINITY;
  const int64_t tiles = plan->grid;
  for (int64_t parts = 1; parts <= larger(1, problem->most_parts); parts++) {
    const double cycles =
        cycles_of(problem, portable_cycles(problem, choice->kernel, tiles, parts)) + adding_cycles(problem, parts);
    if (cycles < plan->cycles) plan->cycles = cycles, plan->parts = parts, plan->grid = tiles * parts;
  }
  if (problem->has_maps) plan->cycles *= 1e6; /* sm_90a: the last choice */
  return plan->grid <= INT32_MAX && plan->shared_bytes <= problem->shared_bytes;
}
