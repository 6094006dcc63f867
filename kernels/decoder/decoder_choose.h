/* decoder_choose.h - the table of the kernels of layer halves (decoder_choose.c), and their planners.
 *
 * A choice says by ranges which sizes its kernel takes. Its planner, a pure function of sizes and chip, fills a plan or
 * refuses; its launch adds addresses and attributes to the plan's parameters. The choice depends on shapes, types and
 * layout alone, so a task has the same bits wherever it stands in a graph. */
#ifndef RONDO_DECODER_CHOOSE_H
#define RONDO_DECODER_CHOOSE_H

#include "../common/size_range.h"
#include "attention_block.h"
#include "decoder.h"
#include "feed_forward_known.h"
#include "feed_forward_stream.h"

/* Every kernel runs in clusters of as many blocks. */
enum { DECODER_CLUSTER = 8 };

struct decoder_plan {
  const struct op_kernel *kernel;
  int64_t clusters, shared_bytes;
  union {
    struct attention_block_parameters attention;
    struct feed_forward_parameters ring;
    struct feed_forward_known_parameters known;
    struct feed_forward_stream_parameters stream;
  } told;
};

typedef bool decoder_planner(const struct decoder_shape *shape, const struct chip *chip, struct decoder_plan *plan);
typedef rondo_status decoder_launcher(const struct op_call *call, const struct chip *chip,
                                      const struct decoder_shape *shape, struct decoder_plan *plan,
                                      struct op_launches *launches);

struct decoder_choice {
  const char *name, *why;
  const struct op *op;
  rondo_dtype weights; /* 0: bf16 or NVFP4 */
  struct size_range rows, hidden, head_dimension, group, x_parts, out_parts;
  int64_t hidden_step, columns_step; /* hidden and columns are multiples; 0: any */
  bool (*lies_well)(const struct op_task *task);
  decoder_planner *plan; /* NULL: steps, which take everything */
  decoder_launcher *launch;
};

/* In the order in which they are tried. */
const struct decoder_choice *decoder_choices(size_t *count);

/* attention_block_plan.c */
bool attention_one_token_lies_well(const struct op_task *task);
bool attention_several_tokens_lie_well(const struct op_task *task);
decoder_planner attention_block_plan;
decoder_launcher attention_block_launch; /* of all three */
/* How a product's rows and chunks of columns are shared by a cluster's blocks and their warps. */
struct attention_block_share attention_block_share_of(int64_t rows, int64_t chunks, int64_t warps);

decoder_planner attention_block_wide_plan, attention_several_tokens_plan; /* files of these names */

/* feed_forward_plan.c, feed_forward_stream_plan.c */
decoder_planner feed_forward_plan, feed_forward_known_plan, feed_forward_stream_plan;
decoder_launcher feed_forward_launch, feed_forward_known_launch, feed_forward_stream_launch;
bool feed_forward_lies_well(const struct op_task *task);
/* Weights and norm may be read before the predecessors end. */
bool feed_forward_reads_early(const struct op_call *call);

/* Adds the launch of a plan whose parameters are complete. */
rondo_status decoder_launch_add(const struct decoder_plan *plan, struct op_launches *launches);

#endif
