/* gemv_choose.c - which design multiplies: the family's one table. README.md has its names and reasons too, and
 * tests/unit/test_choices.c compares the two. */
#include <string.h>

#include "../../runtime/layer_form.h"
#include "gemv_plan.h"

enum {
  NEWER = CHIP_SM_90A | CHIP_SM_100A,
  NVFP4 = 1 << RONDO_NVFP4,
  E4M3 = 1 << RONDO_E4M3,
  SIXTEEN_BITS = 1 << RONDO_F16 | 1 << RONDO_BF16,
  ALL_LOADS_WIDE = GEMV_WITH_NORM | GEMV_WITH_EPILOGUE | GEMV_WITH_ONE_ORDER | GEMV_WITH_BLOCKED_SCALES |
                   GEMV_WITH_GAPS | GEMV_WITH_LOOSE_ROWS,
  EVERYTHING = ALL_LOADS_WIDE | GEMV_WITH_NARROW_ROWS | GEMV_WITH_MANY_MATRICES,
};

static const struct gemv_choice choices[] = {
    {DESIGN(head_codes, gemv_head_plan, gemv_launch), .chips = NEWER, .weights = NVFP4 | E4M3, .k = {384, 1024},
     .takes = GEMV_WITH_LOOSE_ROWS, .why = "a warp has whole rows on tensor cores and waits for its own copies only"},
    {DESIGN(ring, gemv_ring_plan, gemv_launch), .chips = NEWER, .weights = NVFP4, .count = {1, 4}, .k = {2048, 16384},
     .k_multiple = 256, .bytes = {.least = 8 << 20}, .takes = GEMV_WITH_NORM | GEMV_WITH_EPILOGUE | GEMV_WITH_GAPS,
     .why = "bulk copies into stages of shared memory: bytes in flight cost no registers"},
    {DESIGN(stream, gemv_stream_plan, gemv_launch), .chips = NEWER, .weights = NVFP4, .count = {1, 16},
     .k = {.least = 1537}, .takes = GEMV_WITH_NORM | GEMV_WITH_EPILOGUE | GEMV_WITH_GAPS | GEMV_WITH_LOOSE_ROWS,
     .why = "each warp copies its own weights into a ring of its own: no producer, no barrier with one"},
    {DESIGN(head_16, gemv_head_16_plan, gemv_launch), .chips = NEWER, .weights = SIXTEEN_BITS, .k = {256, 2048},
     .k_multiple = 32, .takes = GEMV_WITH_NORM | GEMV_WITH_LOOSE_ROWS,
     .why = "sixteen rows without gaps are one bulk copy; a warp has a slot and all of k"},
    {DESIGN(integer, gemv_integer_plan, gemv_launch), .chips = EVERY_CHIP, .weights = NVFP4, .vectors = NVFP4,
     .count = {1, 1}, .takes = ALL_LOADS_WIDE & ~GEMV_WITH_ONE_ORDER,
     .why = "twice an e2m1 value is an integer: 16 products that share a scale factor are exact (dp4a)"},
    {DESIGN(quads, gemv_quads_plan, gemv_launch), .chips = EVERY_CHIP, .takes = ALL_LOADS_WIDE,
     .why = "weights and vectors go straight to registers; one scheme serves 1 to 16 vectors"},
    {DESIGN(scalar, gemv_scalar_plan, gemv_scalar_launch), .chips = EVERY_CHIP, .takes = EVERYTHING,
     .why = "it takes every type, k and alignment"},
};

const struct gemv_choice *gemv_choices(size_t *count) {
  *count = sizeof choices / sizeof *choices;
  return choices;
}

int64_t gemv_weight_bytes(const struct gemv_problem *problem) {
  return problem->batch * problem->m * problem->k * (int64_t)rondo_dtype_bits(problem->weights) / 8;
}

static uint32_t demands_of(const struct gemv_problem *problem) {
  return (problem->norm ? GEMV_WITH_NORM : 0u) | (problem->finishing ? GEMV_WITH_EPILOGUE : 0u) |
         (problem->one_order ? GEMV_WITH_ONE_ORDER : 0u) | (problem->blocked_scales ? GEMV_WITH_BLOCKED_SCALES : 0u) |
         (problem->packed_weights ? 0u : GEMV_WITH_GAPS) | (problem->dense_weights ? 0u : GEMV_WITH_LOOSE_ROWS) |
         (problem->wide_loads ? 0u : GEMV_WITH_NARROW_ROWS) |
         (problem->batch > GEMV_MOST_BATCH ? GEMV_WITH_MANY_MATRICES : 0u);
}

static bool is_in_ranges(const struct gemv_choice *choice, const struct gemv_problem *problem) {
  return choice->chips & problem->chip && (!choice->weights || choice->weights >> problem->weights & 1) &&
         (!choice->vectors || choice->vectors >> problem->vectors & 1) && is_in_range(problem->count, choice->count) &&
         is_in_range(problem->k, choice->k) && is_in_range(gemv_weight_bytes(problem), choice->bytes) &&
         (!choice->k_multiple || problem->k % choice->k_multiple == 0) && !(demands_of(problem) & ~choice->takes);
}

bool gemv_plan_by(const struct gemv_choice *choice, const struct gemv_problem *problem, struct gemv_plan *plan) {
  *plan = (struct gemv_plan){0};
  if (is_in_ranges(choice, problem) && choice->plan(problem, plan)) return true;
  *plan = (struct gemv_plan){0};
  return false;
}

const struct gemv_choice *gemv_choose(const struct gemv_problem *problem, struct gemv_plan *plan) {
  const struct gemv_choice *choice = choices;
  while (!gemv_plan_by(choice, problem, plan)) choice++;
  return choice;
}

/* ---- Kernels by name --------------------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *ending) {
  const size_t length = strlen(name), of_ending = strlen(ending);
  return length > of_ending && name[length - of_ending - 1] == '_' && !strcmp(name + length - of_ending, ending);
}

static bool is_for(rondo_dtype of_kernel, rondo_dtype of_problem) {
  if (of_kernel == GEMV_16_BITS) return of_problem == RONDO_F16 || of_problem == RONDO_BF16;
  return of_kernel == GEMV_ANY_TYPE || of_kernel == of_problem;
}

const void *gemv_kernel_for(const struct gemv_problem *problem, const char *ending, const void *table, size_t count,
                            size_t bytes) {
  for (size_t i = 0; i < count; i++) {
    const struct gemv_kernel *kernel = (const void *)((const char *)table + i * bytes);
    if (is_for(kernel->weights, problem->weights) && is_for(kernel->vectors, problem->vectors) &&
        kernel->kernel.chips & problem->chip && ends_with(kernel->kernel.name, ending))
      return kernel;
  }
  return NULL;
}

/* The ring and the stream take these sizes, and normalise vectors in less time than a task (measured on an H200). Other
 * designs lose more by the norm. */
bool norm_suits_nvfp4_head(int64_t hidden, bool one_order) {
  enum { LEAST = 2048, MOST = 4096, MULTIPLE = 256 };
  return hidden >= LEAST && hidden <= MOST && hidden % MULTIPLE == 0 && !one_order;
}
