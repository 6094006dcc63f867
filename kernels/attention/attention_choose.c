/* attention_choose.c - which design attends: the family's one table. README.md has its names and reasons too, and
 * tests/unit/test_choices.c compares the two. */
#include "attention_choose.h"

#include <inttypes.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "attention_append.h"

ATTENTION_COMBINE_KERNELS(KERNEL_CONSTANT)

enum {
  E4M3 = 1 << RONDO_E4M3,
  SIXTEEN_BITS = 1 << RONDO_F16 | 1 << RONDO_BF16,
  EXTRAS = ATTENTION_WITH_PAGES | ATTENTION_WITH_WINDOW | ATTENTION_WITH_CAP,
  LEAST_QUERY_LENGTH = 64,      /* fewer waste rows of a tile that the portable kernel shares among heads */
  MOST_SUMMED_IN_E4M3 = 1 << 19 /* KV rows whose sums lose less than the weights do by rounding */
};

static const struct attention_choice choices[] = {
    {DESIGN(decode, attention_decode_plan_of, attention_decode_launch), .chips = CHIP_SM_90A | CHIP_SM_100A,
     .q = SIXTEEN_BITS, .kv = SIXTEEN_BITS | E4M3, .takes = EXTRAS | ATTENTION_WITH_SPLITS | ATTENTION_WITH_NEW_ROWS,
     .dimension = {64, 256}, .rows = {1, DECODE_MOST_ROWS}, .capacity = {.least = 1},
     .why = "bound by memory: operand A holds 16 KV rows, since a few query rows would not fill it"},
    {DESIGN(wgmma, attention_wgmma_plan_of, attention_wgmma_launch), .chips = CHIP_SM_90A, .q = SIXTEEN_BITS,
     .kv = SIXTEEN_BITS, .takes = ATTENTION_WITH_WINDOW | ATTENTION_WITH_CAP | ATTENTION_WITH_PACKED_ROWS,
     .query_length = {.least = LEAST_QUERY_LENGTH}, .capacity = {.least = 1},
     .why = "products of warpgroups beside exponentials: FlashAttention-3's pipeline without a running maximum"},
    {DESIGN(wgmma_e4m3, attention_wgmma_plan_of, attention_wgmma_launch), .chips = CHIP_SM_90A, .q = E4M3, .kv = E4M3,
     .dimension = {128, 128}, .query_length = {.least = LEAST_QUERY_LENGTH}, .capacity = {1, MOST_SUMMED_IN_E4M3},
     .why = "the same pipeline; products of one-byte numbers are twice as fast"},
    {DESIGN(portable, attention_portable_plan_of, attention_portable_launch), .chips = EVERY_CHIP, .q = SIXTEEN_BITS,
     .kv = SIXTEEN_BITS, .takes = ATTENTION_WITH_SPLITS,
     .why = "mma.sync, which every chip has; a warp has 32 rows, with heads of 32 and 256 16"},
    {DESIGN(general, attention_portable_plan_of, attention_portable_launch), .chips = EVERY_CHIP,
     .q = SIXTEEN_BITS | E4M3, .kv = SIXTEEN_BITS | E4M3,
     .takes = EXTRAS | ATTENTION_WITH_SPLITS | ATTENTION_WITH_PACKED_ROWS,
     .why = "one simple kernel for all combinations of pages, window, soft cap, e4m3 and packed rows"},
};

const struct attention_choice *attention_choices(size_t *count) {
  *count = sizeof choices / sizeof *choices;
  return choices;
}

struct attention_problem attention_problem_of(const struct op_task *task, const struct chip *chip) {
  const struct attention_attributes *attributes = op_attributes(task);
  const struct op_operand *q = &task->operands[ATTENTION_Q], *k = &task->operands[ATTENTION_K],
                          *v = &task->operands[ATTENTION_V], *o = &task->operands[ATTENTION_O];
  const struct attention_shape shape = attention_shape_of(task);
  return (struct attention_problem){
      .chip = *chip,
      .shape = shape,
      .demands = (shape.paged ? ATTENTION_WITH_PAGES : 0u) | (shape.window ? ATTENTION_WITH_WINDOW : 0u) |
                 (shape.soft_cap != 0.0f ? ATTENTION_WITH_CAP : 0u) |
                 (attributes->splits > 1 && !shape.packed ? ATTENTION_WITH_SPLITS : 0u) |
                 (shape.appends ? ATTENTION_WITH_NEW_ROWS : 0u) | (shape.packed ? ATTENTION_WITH_PACKED_ROWS : 0u) |
                 (shape.rotates && !shape.appends ? ATTENTION_WITH_ROTATED_Q : 0u),
      .q = q->dtype,
      .kv = k->dtype,
      .o = o->dtype,
      .asked_splits = attributes->splits,
      .is_aligned = attention_rows_aligned(task),
      .has_maps = has_tensor_map(q) && has_tensor_map(k) && has_tensor_map(v) && op_rows_aligned(o, 16),
  };
}

static bool is_in_ranges(const struct attention_choice *choice, const struct attention_problem *problem) {
  const struct attention_shape *shape = &problem->shape;
  return choice->chips & launch_chip(&problem->chip) && choice->q >> problem->q & 1 && choice->kv >> problem->kv & 1 &&
         !(problem->demands & ~choice->takes) && is_in_range(shape->head_dimension, choice->dimension) &&
         is_in_range(shape->rows, choice->rows) && is_in_range(shape->query_length, choice->query_length) &&
         is_in_range(shape->capacity, choice->capacity);
}

const struct attention_choice *attention_choose(const struct attention_problem *problem, struct attention_plan *plan) {
  for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
    *plan = (struct attention_plan){.splits = 1};
    if (is_in_ranges(&choices[i], problem) && choices[i].plan(problem, plan)) return &choices[i];
  }
  return NULL;
}

/* ---- The launches of a task -------------------------------------------------------------------------------------- */

/* The kernel that attends and, after it, the merge of splits. */
static void attend(const struct op_call *call, struct attention_shape *shape, const struct attention_choice *choice,
                   const struct attention_plan *plan, struct op_launches *launches) {
  launches->choice = choice->name;
  launches->why = choice->why;
  shape->splits = plan->splits;
  choice->launch(call, shape, plan, launches);
  if (plan->splits == 1) return;
  const struct attention_parameters parameters = attention_parameters_of(call, shape);
  const int64_t blocks = divide_up(shape->total_rows, ATTENTION_THREADS / 32); /* a warp merges a row */
  launch_add(launches, &rondo_attention_combine, blocks, ATTENTION_THREADS, 0, &parameters, sizeof parameters);
}

/* New rows and a rotary embedding that the design cannot do itself are the affair of a launch before it. What is left
 * is an attention without them. */
rondo_status attention_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  struct attention_problem problem = attention_problem_of(call->task, chip);
  struct attention_plan plan;
  struct op_step rest = {.call = *call};
  launches->count = 0;
  const struct attention_choice *choice = attention_choose(&problem, &plan);
  if (!choice && (problem.shape.appends || problem.shape.rotates)) {
    attention_append_launch(call, chip, &rest, launches);
    problem = attention_problem_of(rest.call.task, chip);
    choice = attention_choose(&problem, &plan);
  }
  if (!problem.shape.total_rows) return RONDO_OK;
  if (!choice) /* the last design takes all, if its shared memory fits */
    return status_set(RONDO_UNSUPPORTED,
                      "head dimension %" PRId64 " needs %" PRId64 " bytes of shared memory, the chip has %" PRId32,
                      problem.shape.head_dimension, plan.portable.shared_bytes, chip->shared_bytes);
  attend(&rest.call, &problem.shape, choice, &plan, launches);
  return RONDO_OK;
}
