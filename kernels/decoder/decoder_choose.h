/* decoder_choose.h - the table of the kernels of layer halves (decoder_choose.c), and their planners.
 *
 * A choice says by ranges which sizes its kernel takes. Its planner, a pure function of sizes and chip, fills a plan or
 * refuses. The choice depends on shapes, types and layout alone, so a task has the same bits wherever it stands in a
 * graph. */
#pragma once

#include "../../runtime/integer.h"
#include "../common/size_range.h"
#include "attention_block.h"
#include "attention_many_tokens.h"
#include "decoder_ranks.h"
#include "feed_forward_known.h"
#include "feed_forward_many_tokens.h"
#include "feed_forward_stream.h"

struct decoder_plan {
  const struct op_kernel *kernel;
  int64_t clusters; /* of LAYER_HALF_CLUSTER blocks: one of sixteen counts as two */
  int64_t shared_bytes;
  union {
    struct layer_half_parameters half; /* a planner sets the scale alone: the factor of the weights' format */
    struct attention_block_parameters attention;
    struct feed_forward_parameters ring;
    struct feed_forward_known_parameters known;
    struct feed_forward_stream_parameters stream;
    struct attention_many_tokens_parameters attention_many;
    struct feed_forward_many_tokens_parameters gated_many;
  } told;
};

/* A kernel of a list: the weights that it takes, and a number by which its planner chooses. */
struct decoder_variant {
  struct op_kernel kernel;
  rondo_dtype weights;
  int64_t size;
};
/* The first kernel of the list for this chip, with the problem's weights and this size; NULL: there is none. */
const struct op_kernel *decoder_kernel_of(const struct decoder_variant *list, size_t count,
                                          const struct decoder_shape *shape, const struct chip *chip, int64_t size);
#define DECODER_KERNEL(list, shape, chip, size)                                                                        \
  decoder_kernel_of(list, sizeof(list) / sizeof *(list), shape, chip, size)

/* Returns the place of `bytes` in shared memory, and moves `at` to the next multiple of `alignment` after them. */
static inline uint32_t decoder_take(int64_t *at, int64_t bytes, int64_t alignment) {
  const int64_t place = *at;
  *at = round_up(place + bytes, alignment);
  return (uint32_t)place;
}

typedef bool decoder_planner(const struct decoder_shape *shape, const struct chip *chip, struct decoder_plan *plan);
typedef bool decoder_gatherer(const struct op_call *call, const struct decoder_shape *shape, const struct chip *chip,
                              struct decoder_plan *plan);
typedef bool decoder_follower(const struct decoder_shape *shape, const struct chip *chip, struct decoder_plan *plan);
struct decoder_choice {
  const char *name, *why;
  const struct op *op;
  rondo_dtype weights; /* 0: bf16 or NVFP4 */
  bool one_sequence, as_tokens;
  struct size_range rows, hidden, head_dimension, group, x_parts, out_parts;
  int64_t hidden_step, columns_step; /* hidden and columns are multiples; 0: any */
  bool (*lies_well)(const struct op_task *task);
  decoder_planner *plan; /* NULL: steps, which take everything */
  /* Has a kernel of one row take and give parts over ranks; NULL or false: it cannot. */
  decoder_gatherer *gather;
  /* Turns gather's plan into that of a second launch; NULL or false: there is none. */
  decoder_follower *follow;
  /* Adds addresses and attributes to the parameters, after their head; NULL: there are none. */
  void (*fill)(const struct op_call *call, const struct decoder_shape *shape, struct decoder_plan *plan);
};

/* In the order in which they are tried. */
const struct decoder_choice *decoder_choices(size_t *count);

/* attention_block_plan.c */
bool attention_one_token_lies_well(const struct op_task *task);
bool attention_several_tokens_lie_well(const struct op_task *task);
bool attention_tokens_lie_well(const struct op_task *task);
decoder_planner attention_block_plan, attention_block_wide_plan, attention_several_tokens_plan, attention_tokens_plan;
decoder_gatherer attention_block_gather;
void attention_block_fill(const struct op_call *call, const struct decoder_shape *shape, struct decoder_plan *plan);
/* feed_forward_plan.c */
decoder_planner feed_forward_plan, feed_forward_known_plan, feed_forward_tokens_plan, feed_forward_stream_plan;
decoder_gatherer feed_forward_gather;
decoder_follower feed_forward_follow;

/* many_tokens_plan.c */
decoder_planner attention_many_tokens_plan, feed_forward_many_tokens_plan;
void attention_many_tokens_fill(const struct op_call *call, const struct decoder_shape *shape,
                                struct decoder_plan *plan);
void feed_forward_many_tokens_fill(const struct op_call *call, const struct decoder_shape *shape,
                                   struct decoder_plan *plan);
