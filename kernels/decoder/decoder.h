/* decoder.h - the two halves of a decoder layer, each one task: operands, attributes and sizes, and the functions of
 * their rows in kernels/ops.c.
 *
 * On chips with clusters a half is one kernel if its sizes suit one (decoder_choose.h). Everywhere else it is steps,
 * each a task of another operation (decoder_step.c): a sum of parts, a product, attention, a product. */
#pragma once

enum {
  DECODER_MOST_ROWS = 16,
  DECODER_MOST_TOKENS = 128, /* rows that ready-made graphs may have, with x in f32 */
  DECODER_SCALE_GROUP = 16   /* NVFP4: elements that share a scale factor */
};

#ifndef __CUDACC__
#include "../../runtime/op.h"

extern const struct op op_attention_block, op_feed_forward;

/* Operands of both halves; then those of one. */
enum {
  DECODER_X,         /* [rows, hidden] in f16, bf16 or f32 */
  DECODER_X_PARTS,   /* or absent: f32 [parts, rows, hidden] */
  DECODER_NORM,      /* or absent: [hidden] */
  DECODER_OUT,       /* [rows, hidden] */
  DECODER_OUT_PARTS, /* f32 [parts, rows, hidden] */
  DECODER_OPERANDS
};
enum {
  ATTENTION_BLOCK_QKV = DECODER_OPERANDS, /* [(query heads + 2 KV heads) d, hidden] */
  ATTENTION_BLOCK_QKV_SCALES,             /* after each matrix its scales */
  ATTENTION_BLOCK_OUTPUT,                 /* [hidden, query heads * d] */
  ATTENTION_BLOCK_OUTPUT_SCALES,
  ATTENTION_BLOCK_K, /* [rows, capacity, KV heads, d]; of one sequence [1, ..] or [pages, rows of a page, ..] */
  ATTENTION_BLOCK_V,
  ATTENTION_BLOCK_POSITION,         /* i32 [1] or [rows] */
  ATTENTION_BLOCK_ROPE_FREQUENCIES, /* or absent: f32 [d / 2] */
  ATTENTION_BLOCK_KV_PAGES,         /* or absent: i32 [1, pages], of one sequence */
  ATTENTION_BLOCK_STATES,           /* or absent: with ranks a state of each (kernels/exchange/exchanges.h) */
  ATTENTION_BLOCK_OPERANDS = ATTENTION_BLOCK_STATES
};
enum {
  FEED_FORWARD_GATE_UP = DECODER_OPERANDS, /* [2 columns, hidden] */
  FEED_FORWARD_GATE_UP_SCALES,
  FEED_FORWARD_DOWN, /* [hidden, columns] */
  FEED_FORWARD_DOWN_SCALES,
  FEED_FORWARD_STATES, /* or absent: as attention's */
  FEED_FORWARD_OPERANDS = FEED_FORWARD_STATES
};

enum { ROWS_OF_A_PROMPT = 1, ROWS_AS_TOKENS /* with the bits of tokens that come one by one */ };

/* Of both operations. */
struct decoder_attributes {
  float norm_epsilon; /* 0: x is taken as it is */
  float scale;        /* of all weights; never 0 */
  int32_t most_rows;
  /* Rows are tokens one after the other, of which the first has the position: ROWS_OF_A_PROMPT or ROWS_AS_TOKENS; the
   * feed forward's the latter alone. */
  int32_t one_sequence;
  /* The attention block's: */
  float rope_base;      /* 0: no rotary embedding, unless there are frequencies */
  int32_t rope_pairing; /* rondo_rope_pairing */
  /* The feed forward's: */
  int32_t last_part_is_late; /* runtime/layer_form.h */
  /* Of both, with ranks, else 0: x_parts are this rank's terms of a sum over all ranks. */
  uint32_t rank, ranks;
  uint32_t before; /* of struct layer_exchange */
  uint16_t gives, takes;
};

/* The sizes of a checked task. Those of the other operation are 0. */
struct decoder_shape {
  int64_t rows, hidden;
  int64_t x_parts; /* 0: absent */
  int64_t out_parts;
  rondo_dtype stream;         /* type of x and out */
  rondo_dtype dtype, weights; /* of numbers in between, and of the matrices */
  /* Attention: */
  int64_t query_heads, kv_heads, group; /* group: query heads of a KV head */
  int64_t head_dimension, capacity;
  bool has_rope, rope_is_halves; /* pairs i and i + d/2; else 2 i and 2 i + 1 */
  bool position_of_each_row;     /* else one for all */
  bool one_sequence, as_tokens;
  /* Feed forward: */
  int64_t columns; /* gated: gate_up has twice as many rows */
  bool last_part_is_late;
};

/* decoder_shape.c */
/* The type of numbers in between: x's; or, if x is f32, the norm's, or without a norm bf16. */
rondo_dtype decoder_dtype_of(const struct op_task *task);
struct decoder_shape decoder_shape_of(const struct op_task *task);
/* Rows of both matrices, and of their scales, lie without gaps; each begins at a multiple of 16 bytes, NVFP4's scales
 * as a whole do. */
bool decoder_weights_are_dense(const struct op_task *task);
/* So it is with all operands but weights and caches. */
bool decoder_operands_are_dense(const struct op_task *task);
/* May a kernel read those of operands first to last - 1 that are present before its predecessors end? */
bool decoder_are_settled(const struct op_call *call, uint32_t first, uint32_t last);
/* The same of the matrices, their scales and the norm. */
bool decoder_weights_are_settled(const struct op_call *call);

/* decoder.c */
rondo_status attention_block_check(const struct op_task *task);
rondo_status feed_forward_check(const struct op_task *task);
int64_t attention_block_touched_elements(const struct op_task *task, uint32_t operand, rondo_access access);

/* decoder_step.c */
uint64_t attention_block_scratch_bytes(const struct op_task *task);
uint64_t feed_forward_scratch_bytes(const struct op_task *task);
/* The step that attends. */
void attention_block_attention(const struct op_call *call, struct op_step *step);
bool attention_block_step(const struct op_call *call, uint32_t index, struct op_step *step);
bool feed_forward_step(const struct op_call *call, uint32_t index, struct op_step *step);

/* many_tokens_plan.c: scratch of the kernels for many rows; 0 if they do not take these sizes */
uint64_t attention_many_tokens_scratch(const struct decoder_shape *shape);
uint64_t feed_forward_many_tokens_scratch(const struct decoder_shape *shape);

/* decoder_choose.c */
rondo_status decoder_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches);
#endif
