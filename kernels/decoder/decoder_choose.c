/* decoder_choose.c - which kernel does a layer half: a table of choices in the order in which they are tried, and the
 * launches of the first that takes the task. README.md has the same table. */
#include "decoder_choose.h"

#include <assert.h>

#include "../common/launch.h"
#include "attention_several_tokens.h"

#define ATTENTION(design)    .name = "attention_" #design, .op = &op_attention_block
#define FEED_FORWARD(design) .name = "feed_forward_" #design, .op = &op_feed_forward

static const struct decoder_choice choices[] = {
    {ATTENTION(wide), .rows = {1, 1}, .hidden = {2048, 2048}, .head_dimension = {64, 64},
     .group = {2, ATTENTION_BLOCK_MOST_GROUP}, .lies_well = attention_one_token_lies_well,
     .plan = attention_block_wide_plan, .gather = attention_block_gather, .fill = attention_block_fill,
     .why = "sizes are constants, and two blocks share a multiprocessor, so that sixteen clusters find room"},
    {ATTENTION(one_token), .rows = {1, 1}, .head_dimension = {64, 128}, .group = {1, ATTENTION_BLOCK_MOST_GROUP},
     .hidden_step = ATTENTION_BLOCK_STEP, .lies_well = attention_one_token_lies_well, .plan = attention_block_plan,
     .fill = attention_block_fill,
     .why = "a cluster has a KV head and holds its weights; two exchanges replace two ends of a grid"},
    {ATTENTION(several_tokens), .rows = {2, DECODER_MOST_TOKENS}, .head_dimension = {64, 64},
     .group = {1, ATTENTION_BLOCK_MOST_GROUP}, .hidden_step = ATTENTION_BLOCK_STEP,
     .lies_well = attention_several_tokens_lie_well, .plan = attention_several_tokens_plan,
     .fill = attention_block_fill,
     .why = "the tokens of a cluster share its weights, which lie in registers; each block attends for one or two"},
    {ATTENTION(many_tokens), .weights = RONDO_BF16, .one_sequence = true, .rows = {1, ATTENTION_MANY_TOKENS_MOST},
     .head_dimension = {ATTENTION_MANY_TOKENS_DIMENSION, ATTENTION_MANY_TOKENS_DIMENSION},
     .lies_well = attention_several_tokens_lie_well, .plan = attention_many_tokens_plan,
     .fill = attention_many_tokens_fill,
     .why = "a cluster has a KV head of all tokens: one launch has the norm, both products, the cache and attention"},
    {ATTENTION(verified_tokens), .weights = RONDO_BF16, .one_sequence = true, .as_tokens = true,
     .rows = {1, ATTENTION_SEVERAL_TOKENS_TOKENS}, .head_dimension = {64, 64}, .group = {1, ATTENTION_BLOCK_MOST_GROUP},
     .hidden_step = ATTENTION_BLOCK_STEP, .lies_well = attention_tokens_lie_well, .plan = attention_tokens_plan,
     .fill = attention_block_fill,
     .why = "the kernel of attention_several_tokens, in which each token then has the bits that it has alone"},
    {ATTENTION(steps), .why = "no kernel takes these types, sizes or layouts"},
    {FEED_FORWARD(stream), .weights = RONDO_NVFP4, .rows = {1, 1}, .hidden = {1, FEED_FORWARD_STREAM_HIDDEN},
     .x_parts = {0, FEED_FORWARD_STREAM_PARTS}, .out_parts = {1, FEED_FORWARD_STREAM_PARTS},
     .hidden_step = 256, /* whose scales are 16 bytes */
     .columns_step = FEED_FORWARD_STREAM_GROUP, .lies_well = decoder_operands_are_dense,
     .plan = feed_forward_stream_plan,
     .why = "weights come from memory: before x arrives the kernel fills shared memory, registers and L2"},
    {FEED_FORWARD(one_token), .rows = {1, 1}, .x_parts = {0, FEED_FORWARD_KNOWN_X_PARTS},
     .out_parts = {FEED_FORWARD_KNOWN_PARTS, FEED_FORWARD_KNOWN_PARTS}, .lies_well = decoder_operands_are_dense,
     .plan = feed_forward_known_plan,
     .why = "sizes are known to the compiler: all weights lie in registers before x arrives"},
    {FEED_FORWARD(several_tokens), .rows = {2, DECODER_MOST_ROWS}, .x_parts = {0, FEED_FORWARD_KNOWN_X_PARTS},
     .out_parts = {FEED_FORWARD_KNOWN_PARTS, FEED_FORWARD_KNOWN_PARTS}, .lies_well = decoder_operands_are_dense,
     .plan = feed_forward_known_plan, .why = "the same with a token in each column of the product"},
    {FEED_FORWARD(verified_tokens), .weights = RONDO_BF16, .as_tokens = true, .rows = {1, 8},
     .x_parts = {0, FEED_FORWARD_KNOWN_X_PARTS}, .out_parts = {FEED_FORWARD_KNOWN_PARTS, FEED_FORWARD_KNOWN_PARTS},
     .lies_well = decoder_operands_are_dense, .plan = feed_forward_tokens_plan,
     .why = "the kernel of feed_forward_several_tokens, in which a token then has two columns, and the bits that it "
            "has alone"},
    {FEED_FORWARD(many_tokens), .weights = RONDO_BF16, .rows = {2, DECODER_MOST_TOKENS},
     .lies_well = decoder_operands_are_dense, .plan = feed_forward_many_tokens_plan,
     .fill = feed_forward_many_tokens_fill,
     .why = "64 tokens and a sixth of the columns to a cluster, which exchanges rows by way of L2"},
    {FEED_FORWARD(ring), .rows = {1, DECODER_MOST_ROWS}, .x_parts = {0, FEED_FORWARD_MOST_PARTS},
     .out_parts = {1, FEED_FORWARD_MOST_PARTS}, .hidden_step = FEED_FORWARD_UNIT, .columns_step = FEED_FORWARD_UNIT,
     .lies_well = decoder_operands_are_dense, .plan = feed_forward_plan, .gather = feed_forward_gather,
     .follow = feed_forward_follow,
     .why = "each warp has a ring of slots that it fills before x arrives and runs through both products"},
    {FEED_FORWARD(steps), .why = "no kernel takes these types, sizes or layouts"},
};

const struct decoder_choice *decoder_choices(size_t *count) {
  *count = sizeof choices / sizeof *choices;
  return choices;
}

static bool is_multiple(int64_t value, int64_t step) { return !step || value % step == 0; }

/* All that ranges, types and layout say of a kernel. */
static bool may_take(const struct decoder_choice *choice, const struct op_task *task,
                     const struct decoder_shape *shape) {
  const bool has_type = choice->weights ? shape->weights == choice->weights
                                        : shape->weights == RONDO_BF16 || shape->weights == RONDO_NVFP4;
  return shape->stream == RONDO_F32 && shape->dtype == RONDO_BF16 && has_type &&
         shape->one_sequence == choice->one_sequence && shape->as_tokens == choice->as_tokens &&
         is_in_range(shape->rows, choice->rows) && is_in_range(shape->hidden, choice->hidden) &&
         is_in_range(shape->head_dimension, choice->head_dimension) && is_in_range(shape->group, choice->group) &&
         is_in_range(shape->x_parts, choice->x_parts) && is_in_range(shape->out_parts, choice->out_parts) &&
         is_multiple(shape->hidden, choice->hidden_step) && is_multiple(shape->columns, choice->columns_step) &&
         decoder_weights_are_dense(task) && choice->lies_well(task);
}

const struct op_kernel *decoder_kernel_of(const struct decoder_variant *list, size_t count,
                                          const struct decoder_shape *shape, const struct chip *chip, int64_t size) {
  for (size_t i = 0; i < count; i++)
    if (list[i].kernel.chips & launch_chip(chip) && list[i].weights == shape->weights && list[i].size == size)
      return &list[i].kernel;
  return NULL;
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

static rondo_status steps_launch(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  struct op_step step;
  for (uint32_t i = 0; call->task->op->step(call, i, &step); i++) OP_TRY(launch_add_step(&step, chip, launches));
  return RONDO_OK;
}

/* The head of each design's parameters. */
static void half_fill(const struct op_call *call, const struct decoder_shape *shape,
                      struct layer_half_parameters *half) {
  const struct decoder_attributes *attributes = op_attributes(call->task);
  void *const *data = call->data;
  *half = (struct layer_half_parameters){
      .first = {data[DECODER_OPERANDS], data[DECODER_OPERANDS + 1]},
      .second = {data[DECODER_OPERANDS + 2], data[DECODER_OPERANDS + 3]},
      .x = data[DECODER_X],
      .norm = data[DECODER_NORM],
      .x_parts = data[DECODER_X_PARTS],
      .out = data[DECODER_OUT],
      .out_parts = data[DECODER_OUT_PARTS],
      .part_count = (uint32_t)shape->x_parts,
      .rows = (uint32_t)shape->rows,
      .early = decoder_weights_are_settled(call),
      .epsilon = attributes->norm_epsilon,
      .scale = half->scale * attributes->scale,
  };
}

/* The first that takes the task, and its plan. */
static const struct decoder_choice *choose(const struct op_task *task, const struct decoder_shape *shape,
                                           const struct chip *chip, struct decoder_plan *plan) {
  for (const struct decoder_choice *choice = choices;; choice++) {
    if (choice->op != task->op) continue;
    if (!choice->plan) return choice;
    *plan = (struct decoder_plan){0};
    if (may_take(choice, task, shape) && choice->plan(shape, chip, plan) && plan->shared_bytes <= chip->shared_bytes)
      return choice;
  }
}

/* The sum over ranks, and the half after it. */
static rondo_status after_sum_launch(const struct op_call *call, const struct chip *chip,
                                     struct op_launches *launches) {
  struct op_step sum, half;
  decoder_sum_over_ranks(call, &sum);
  decoder_half_after_sum(call, &half);
  OP_TRY(launch_add_step(&sum, chip, launches));
  launches->choice = NULL; /* that of the half */
  return launch_add_step(&half, chip, launches);
}

/* Do the kernels give and take the parts? Both halves between which they go decide alike, by the chip and by what the
 * graph says of both. Kernels that take parts wait for other ranks on most of the multiprocessors. */
static bool gathers(const struct op_call *call, const struct chip *chip) {
  const struct decoder_attributes *attributes = op_attributes(call->task);
  return call->lets_successors_start && (attributes->gives || attributes->takes) &&
         launch_chip(chip) & (CHIP_SM_90A | CHIP_SM_100A);
}

static rondo_status gather_plan(const struct op_call *call, const struct decoder_choice *choice,
                                const struct decoder_shape *shape, const struct chip *chip, struct decoder_plan *plan) {
  if (choice->gather && shape->rows == 1 && shape->hidden <= EXCHANGE_GATHER_NUMBERS &&
      shape->x_parts <= EXCHANGE_GATHER_PARTS && shape->out_parts <= EXCHANGE_GATHER_PARTS &&
      plan->clusters * LAYER_HALF_CLUSTER <= EXCHANGE_GATHER_BLOCKS && choice->gather(call, shape, chip, plan))
    return RONDO_OK;
  return status_set(RONDO_INTERNAL, "'%s' gives or takes parts over ranks, expected a kernel that can", choice->name);
}

static void plan_launch(const struct decoder_plan *plan, struct op_launches *launches) {
  assert(plan->kernel);
  launch_add(launches, plan->kernel, plan->clusters * LAYER_HALF_CLUSTER, plan->kernel->threads,
             (uint64_t)plan->shared_bytes, &plan->told, plan->kernel->parameter_bytes);
}

rondo_status decoder_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  const struct decoder_shape shape = decoder_shape_of(call->task);
  struct decoder_plan plan = {0};
  const struct decoder_choice *choice = choose(call->task, &shape, chip, &plan);
  const bool is_gathered = gathers(call, chip);
  launches->count = 0;
  launches->choice = choice->name, launches->why = choice->why;
  if (is_gathered) {
    OP_TRY(gather_plan(call, choice, &shape, chip, &plan));
  } else if (decoder_has_sum(call->task)) {
    return after_sum_launch(call, chip, launches);
  }
  if (!choice->plan) return steps_launch(call, chip, launches);
  half_fill(call, &shape, &plan.told.half);
  if (choice->fill) choice->fill(call, &shape, &plan);
  plan_launch(&plan, launches);
  if (is_gathered && choice->follow && choice->follow(&shape, chip, &plan)) plan_launch(&plan, launches);
  return RONDO_OK;
}
