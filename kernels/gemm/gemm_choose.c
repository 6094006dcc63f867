/* gemm_choose.c - which kernel makes a product of many rows: a table of choices in the order in which they are
 * preferred, and the launch of the first whose estimate is within 3% of the least. README.md has the same table. */
#include "gemm_choose.h"

#include <math.h>

#include "../common/launch.h"

enum { PAIR_ROWS = 64, MOST_ROWS_OF_PARTS = 128, LEAST_K_OF_PARTS = 2048, LEAST_K_OF_CODES = 512 };

#define TILE(...)                                                                                                      \
  { __VA_ARGS__ }
#define WGMMA_CONSTANT(chips, parameters, name, threads, of_tile, of_stages, of_types)                                 \
  static const struct gemm_kernel name = {.kernel = KERNEL_ENTRY(chips, parameters, name, threads),                    \
                                          .tile = TILE of_tile,                                                        \
                                          .stages = (of_stages),                                                       \
                                          .types = (of_types)};
#define PORTABLE_CONSTANT(chips, parameters, name, threads, of_blocks, of_tile)                                        \
  static const struct gemm_kernel name = {                                                                             \
      .kernel = KERNEL_ENTRY(chips, parameters, name, threads), .portable = TILE of_tile, .blocks = (of_blocks)};
#define SLICES_CONSTANT(chips, parameters, name, threads, of_parts)                                                    \
  static const struct gemm_kernel name = {.kernel = KERNEL_ENTRY(chips, parameters, name, threads),                    \
                                          .parts = (of_parts)};
GEMM_WGMMA_KERNELS(WGMMA_CONSTANT)
GEMM_SLICES_KERNELS(SLICES_CONSTANT)
GEMM_PORTABLE_KERNELS(PORTABLE_CONSTANT)

#define WGMMA(tile) DESIGN(tile, gemm_wgmma_plan, gemm_wgmma_launch), .kernel = &rondo_gemm_##tile, .needs_maps = true
#define SLICES(name)                                                                                                   \
  DESIGN(name, gemm_slices_plan, gemm_slices_launch), .kernel = &rondo_gemm_##name, .needs_maps = true,                \
                                                      .has_order_of_its_own = true, .rows = {1, GEMM_SLICES_ROWS}
#define PORTABLE(tile) DESIGN(tile, gemm_portable_plan, gemm_portable_launch), .kernel = &rondo_gemm_##tile

static const struct gemm_choice choices[] = {
    {DESIGN(gemv, gemm_few_plan, gemm_few_launch), .has_order_of_its_own = true, .rows = {1, GEMV_COUNT},
     .why = "for up to 16 rows gemv's kernels read W at the rate of memory"},
    {WGMMA(64x128), .rows = {1, PAIR_ROWS},
     .why = "for a long read of W: X comes once for 128 rows of W, and nothing is shared"},
    {WGMMA(32x64_parts_any), .has_order_of_its_own = true, .rows = {1, MOST_ROWS_OF_PARTS}, .k = {LEAST_K_OF_PARTS, 0},
     .why = "half of the rows that 64x64 would multiply, for every type; two blocks have half of k each"},
    {WGMMA(64x64), .rows = {1, PAIR_ROWS},
     .why = "one tile of rows: W's rows are those of wgmma, and nothing is shared"},
    {WGMMA(64x64_pair), .rows = {PAIR_ROWS + 1, 0},
     .why = "the most tiles, for products that would leave multiprocessors idle; two blocks share W's tile"},
    {WGMMA(128x96), .rows = {PAIR_ROWS + 1, 0},
     .why = "tiles that fill one wave where 128 x 128 are too few and 64 x 96 too many"},
    {WGMMA(64x128_turns), .rows = {PAIR_ROWS + 1, 0},
     .why = "fewer bytes than two tiles of 64 x 64; the results of one tile leave while the next is multiplied"},
    {WGMMA(128x128), .rows = {PAIR_ROWS + 1, 0},
     .why = "copies and products take as long; nothing is shared, so one tile of rows is enough"},
    {WGMMA(128x256), .rows = {PAIR_ROWS + 1, 0},
     .why = "the fewest bytes for a product: tensor cores are busy 92% of the time"},
    {WGMMA(64x96_turns), .rows = {PAIR_ROWS + 1, 0},
     .why = "small tiles in turns, where those of 128 columns would not fill the last wave"},
    {WGMMA(128x192), .rows = {PAIR_ROWS + 1, 0},
     .why = "nearly the fewest bytes, where 256 columns would not fill the last wave"},
    {WGMMA(128x192_turns), .rows = {PAIR_ROWS + 1, 0},
     .why = "fewer bytes than 128x128; the results of one tile leave while the next is multiplied"},
    {WGMMA(64x64_parts), .has_order_of_its_own = true, .rows = {1, MOST_ROWS_OF_PARTS}, .k = {LEAST_K_OF_PARTS, 0},
     .why = "few tiles and a long k: two blocks have half of k each, and their sums meet in shared memory"},
    {WGMMA(64x64_any), .rows = {1, PAIR_ROWS}, .why = "as 64x64, for every type of out, bias and residual"},
    {WGMMA(64x128_turns_any), .rows = {PAIR_ROWS + 1, 0}, .why = "as 64x128_turns, for every type"},
    {WGMMA(64x64_pair_any), .rows = {PAIR_ROWS + 1, 0}, .why = "as 64x64_pair, for every type"},
    {WGMMA(128x128_turns_any), .rows = {PAIR_ROWS + 1, 0},
     .why = "as 128x128, in turns: results of any type take long to leave"},
    {WGMMA(e4m3_128x128), .why = "X and W in e4m3: twice the products of 16 bits, for half of their bytes"},
    {SLICES(nvfp4_slices), .why = "for up to 32 vectors: sixteen warps with slices of k hide what one would wait for"},
    {SLICES(nvfp4_slices_two), .k = {LEAST_K_OF_PARTS, 0},
     .why = "the same for few rows of W: two blocks have half of k each"},
    {SLICES(nvfp4_slices_three), .k = {LEAST_K_OF_PARTS, 0}, .why = "the same with three parts of k"},
    {WGMMA(nvfp4_64x128), .why = "for few vectors, or few tiles: W is read once, and X for 128 rows of W"},
    {WGMMA(nvfp4_128x128), .rows = {PAIR_ROWS + 1, 0},
     .why = "W is decoded once for 128 vectors, while tensor cores multiply"},
    {WGMMA(nvfp4_256x128), .rows = {2 * PAIR_ROWS + 1, 0},
     .why = "the fewest bytes for a product: W is decoded once for 256 vectors"},
    {WGMMA(nvfp4_64x64_parts), .has_order_of_its_own = true, .k = {LEAST_K_OF_CODES, 0},
     .why = "the most tiles, and a part of k for each of two blocks, of two warpgroups each"},
    {WGMMA(nvfp4_64x64_three), .has_order_of_its_own = true, .k = {LEAST_K_OF_PARTS, 0},
     .why = "the same with three parts of k, where two would leave multiprocessors idle"},
    {WGMMA(nvfp4_128x64_parts), .has_order_of_its_own = true, .rows = {PAIR_ROWS + 1, 0}, .k = {LEAST_K_OF_CODES, 0},
     .why = "two parts of k as in nvfp4_64x64_parts, where twice as many tiles would be more than a wave"},
    {PORTABLE(portable_128x256), .why = "mma.sync: the fewest bytes for a product"},
    {PORTABLE(portable_64_slices), .has_order_of_its_own = true,
     .why = "small tiles whose loads would be waited for: six stages, and two groups of warps with half of each"},
    {PORTABLE(portable_64), .why = "small tiles, two or three on a multiprocessor"},
    {PORTABLE(portable_128), .why = "mma.sync, where larger tiles would leave multiprocessors idle"},
    {PORTABLE(portable_nvfp4_64), .why = "as portable_64; threads decode W on its way to shared memory"},
};
enum { CHOICES = sizeof choices / sizeof *choices };

const struct gemm_choice *gemm_choices(size_t *count) {
  *count = CHOICES;
  return choices;
}

static bool may_take(const struct gemm_choice *choice, const struct gemm_problem *problem) {
  if (choice->needs_maps && !problem->has_maps) return false;
  if (choice->has_order_of_its_own && problem->one_order) return false;
  if (!choice->kernel && (problem->has_norms || problem->is_e4m3)) return false;
  return is_in_range(problem->rows, choice->rows) && is_in_range(problem->k, choice->k);
}

const struct gemm_choice *gemm_choose(const struct gemm_problem *problem, struct gemm_plan *plan) {
  struct gemm_plan plans[CHOICES] = {0};
  bool takes[CHOICES];
  double least = INFINITY;
  for (size_t i = 0; i < CHOICES; i++) {
    takes[i] = may_take(&choices[i], problem) && choices[i].plan(problem, &choices[i], &plans[i]);
    if (takes[i] && plans[i].cycles < least) least = plans[i].cycles;
  }
  for (size_t i = 0; i < CHOICES; i++)
    if (takes[i] && plans[i].cycles <= 1.03 * least) {
      *plan = plans[i];
      return &choices[i];
    }
  return NULL;
}

rondo_status gemm_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  launches->count = 0;
  if (op_elements(&call->task->operands[GEMV_OUT]) == 0) return RONDO_OK;
  const struct gemm_problem problem = gemm_problem_of(call, chip);
  struct gemm_plan plan;
  const struct gemm_choice *choice = gemm_choose(&problem, &plan);
  if (!choice && problem.is_e4m3)
    return status_set(RONDO_UNSUPPORTED, "vectors are e4m3, expected f16 or bf16 %s",
                      chip->version == 90 ? "unless weights have an even number of rows, rows begin at multiples of 16 "
                                            "bytes and weight_scales at one of 8"
                                          : "without compute capability 9.0");
  if (!choice)
    return status_set(RONDO_UNSUPPORTED, "out has %lld matrices of %lld x %lld, expected fewer than 2^31 tiles",
                      (long long)problem.batch, (long long)problem.rows, (long long)problem.columns);
  launches->choice = choice->name, launches->why = choice->why;
  return choice->launch(call, chip, choice, &plan, launches);
}
