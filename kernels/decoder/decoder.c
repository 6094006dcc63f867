/* decoder.c - rondo_add_attention_block and rondo_add_feed_forward, and their checks. */
#include "decoder_ranks.h"

#include <inttypes.h>
#include <stdio.h>

#include "../../runtime/graph.h"
#include "../../runtime/integer.h"
#include "../../runtime/layer_form.h"
#include "../attention/attention.h"
#include "../common/number.h"
#include "../common/rows.h"

enum { PARTS_RANK = 3, CACHE_RANK = 4 };

/* Adds a task with `states` operands before the ranks' states. These and the task are added together or not at all. */
static rondo_status half_add(rondo_graph *graph, const struct op *op, const char *name, struct op_argument *arguments,
                             uint32_t states, const struct layer_exchange *exchange,
                             struct decoder_attributes attributes) {
  struct graph_mark mark;
  if (!exchange) return graph_add(graph, op, name, arguments, states, &attributes, sizeof attributes);
  attributes.rank = exchange->rank, attributes.ranks = exchange->ranks;
  attributes.before = exchange->before, attributes.gives = exchange->gives, attributes.takes = exchange->takes;
  rondo_status status = graph_begin(graph, op->name, &mark);
  if (status != RONDO_OK) return status;
  status =
      exchange_states_borrow(graph, exchange->states, exchange->rank, exchange->ranks, UINT32_MAX, arguments + states);
  if (status == RONDO_OK)
    status = graph_add(graph, op, name, arguments, states + exchange->ranks, &attributes, sizeof attributes);
  return graph_end(graph, &mark, status);
}

static rondo_status attention_add(rondo_graph *graph, const rondo_attention_block_desc *desc, rondo_tensor kv_pages,
                                  int32_t one_sequence, int32_t most_rows, const struct layer_exchange *exchange) {
  if (!desc) return op_refuse("describe: rondo_add_attention_block: the description is NULL");
  struct op_argument arguments[ATTENTION_BLOCK_OPERANDS + RONDO_MAX_RANKS] = {
      [DECODER_X] = {"x", desc->x, RONDO_READ, 0},
      [DECODER_X_PARTS] = {"x_parts", desc->x_parts, RONDO_READ, 0},
      [DECODER_NORM] = {"norm", desc->norm, RONDO_READ, 0},
      [DECODER_OUT] = {"out", desc->out, RONDO_WRITE, 0},
      [DECODER_OUT_PARTS] = {"out_parts", desc->out_parts, RONDO_WRITE, 0},
      [ATTENTION_BLOCK_QKV] = {"qkv", desc->qkv, RONDO_READ, 0},
      [ATTENTION_BLOCK_QKV_SCALES] = {"qkv_scales", desc->qkv_scales, RONDO_READ, 0},
      [ATTENTION_BLOCK_OUTPUT] = {"output", desc->output, RONDO_READ, 0},
      [ATTENTION_BLOCK_OUTPUT_SCALES] = {"output_scales", desc->output_scales, RONDO_READ, 0},
      [ATTENTION_BLOCK_K] = {"k", desc->k, RONDO_READ_WRITE, 0},
      [ATTENTION_BLOCK_V] = {"v", desc->v, RONDO_READ_WRITE, 0},
      [ATTENTION_BLOCK_POSITION] = {"position", desc->position, RONDO_READ, 0},
      [ATTENTION_BLOCK_ROPE_FREQUENCIES] = {"rope_frequencies", desc->rope_frequencies, RONDO_READ, 0},
      [ATTENTION_BLOCK_KV_PAGES] = {"kv_pages", kv_pages, RONDO_READ, 0},
  };
  struct decoder_attributes attributes = {.norm_epsilon = desc->norm_epsilon,
                                          .scale = f32_or(desc->scale, 1.0f),
                                          .most_rows = most_rows,
                                          .one_sequence = one_sequence,
                                          .rope_base = desc->rope_base,
                                          .rope_pairing = (int32_t)desc->rope_pairing};
  return half_add(graph, &op_attention_block, desc->name, arguments, ATTENTION_BLOCK_STATES, exchange, attributes);
}

rondo_status rondo_add_attention_block(rondo_graph *graph, const rondo_attention_block_desc *desc) {
  return attention_add(graph, desc, (rondo_tensor){0}, 0, DECODER_MOST_ROWS, NULL);
}

rondo_status attention_block_add(rondo_graph *graph, const rondo_attention_block_desc *desc,
                                 const struct layer_exchange *exchange) {
  return attention_add(graph, desc, (rondo_tensor){0}, 0, DECODER_MOST_TOKENS, exchange);
}

rondo_status prompt_attention_add(rondo_graph *graph, const rondo_attention_block_desc *desc, rondo_tensor kv_pages,
                                  bool as_tokens) {
  return attention_add(graph, desc, kv_pages, as_tokens ? ROWS_AS_TOKENS : ROWS_OF_A_PROMPT, DECODER_MOST_TOKENS, NULL);
}

static rondo_status gated_add(rondo_graph *graph, const rondo_feed_forward_desc *desc, bool last_part_is_late,
                              bool as_tokens, int32_t most_rows, const struct layer_exchange *exchange) {
  if (!desc) return op_refuse("describe: rondo_add_feed_forward: the description is NULL");
  struct op_argument arguments[FEED_FORWARD_OPERANDS + RONDO_MAX_RANKS] = {
      [DECODER_X] = {"x", desc->x, RONDO_READ, 0},
      [DECODER_X_PARTS] = {"x_parts", desc->x_parts, RONDO_READ, 0},
      [DECODER_NORM] = {"norm", desc->norm, RONDO_READ, 0},
      [DECODER_OUT] = {"out", desc->out, RONDO_WRITE, 0},
      [DECODER_OUT_PARTS] = {"out_parts", desc->out_parts, RONDO_WRITE, 0},
      [FEED_FORWARD_GATE_UP] = {"gate_up", desc->gate_up, RONDO_READ, 0},
      [FEED_FORWARD_GATE_UP_SCALES] = {"gate_up_scales", desc->gate_up_scales, RONDO_READ, 0},
      [FEED_FORWARD_DOWN] = {"down", desc->down, RONDO_READ, 0},
      [FEED_FORWARD_DOWN_SCALES] = {"down_scales", desc->down_scales, RONDO_READ, 0},
  };
  struct decoder_attributes attributes = {.norm_epsilon = desc->norm_epsilon,
                                          .scale = f32_or(desc->scale, 1.0f),
                                          .most_rows = most_rows,
                                          .one_sequence = as_tokens ? ROWS_AS_TOKENS : 0,
                                          .last_part_is_late = last_part_is_late};
  return half_add(graph, &op_feed_forward, desc->name, arguments, FEED_FORWARD_STATES, exchange, attributes);
}

rondo_status rondo_add_feed_forward(rondo_graph *graph, const rondo_feed_forward_desc *desc) {
  return gated_add(graph, desc, false, false, DECODER_MOST_ROWS, NULL);
}

rondo_status feed_forward_add(rondo_graph *graph, const rondo_feed_forward_desc *desc, bool last_part_is_late,
                              bool as_tokens, const struct layer_exchange *exchange) {
  return gated_add(graph, desc, last_part_is_late, as_tokens, DECODER_MOST_TOKENS, exchange);
}

/* ---- Check ------------------------------------------------------------------------------------------------------- */

static rondo_status attributes_check(const struct op_task *task) {
  const struct decoder_attributes *attributes = op_attributes(task);
  OP_TRY(op_expect_finite("scale", attributes->scale));
  OP_TRY(op_expect_not_negative("norm_epsilon", attributes->norm_epsilon));
  if (task->operands[DECODER_NORM].present && attributes->norm_epsilon == 0)
    return op_refuse("norm is present, expected none where norm_epsilon is 0");
  return RONDO_OK;
}

/* f32 [any parts, rows, hidden]. */
static rondo_status parts_check(const struct op_task *task, uint32_t index, const char *name) {
  const struct op_operand *parts = &task->operands[index], *x = &task->operands[DECODER_X];
  const int64_t count = parts->present && parts->rank == PARTS_RANK ? larger(parts->shape[0], 1) : 1;
  return op_expect(name, parts, RONDO_F32, PARTS_RANK, (int64_t[]){count, x->shape[0], x->shape[1]});
}

/* [hidden] of x's type; with x in f32 its type is that of all numbers in between. */
static rondo_status norm_check(const struct op_task *task) {
  const struct op_operand *norm = &task->operands[DECODER_NORM], *x = &task->operands[DECODER_X];
  if (x->dtype == RONDO_F32 && norm->dtype != RONDO_F16 && norm->dtype != RONDO_BF16)
    return op_unexpected("norm", norm, "[hidden] f16 or bf16");
  return op_expect("norm", norm, decoder_dtype_of(task), 1, &x->shape[1]);
}

/* What both halves have. */
static rondo_status stream_check(const struct op_task *task) {
  const struct op_operand *operands = task->operands, *x = &operands[DECODER_X];
  if (!x->present || !rows_are_numbers(x->dtype) || x->rank != 2 || x->shape[1] < 1)
    return op_unexpected("x", x, "[rows, hidden] f32, f16 or bf16");
  const struct decoder_attributes *attributes = op_attributes(task);
  const int32_t most_rows = x->dtype == RONDO_F32 ? attributes->most_rows : DECODER_MOST_ROWS;
  if (x->shape[0] < 1 || x->shape[0] > most_rows)
    return op_refuse("x has %" PRId64 " rows, expected 1 to %d", x->shape[0], (int)most_rows);
  OP_TRY(attributes_check(task));
  if (operands[DECODER_X_PARTS].present) OP_TRY(parts_check(task, DECODER_X_PARTS, "x_parts"));
  if (operands[DECODER_NORM].present) OP_TRY(norm_check(task));
  OP_TRY(op_expect("out", &operands[DECODER_OUT], x->dtype, 2, x->shape));
  OP_TRY(decoder_ranks_check(task));
  return parts_check(task, DECODER_OUT_PARTS, "out_parts");
}

/* The first matrix determines the type of all, and its own number of rows. */
static rondo_status first_matrix_check(const struct op_task *task, uint32_t index, const char *name) {
  const struct op_operand *matrix = &task->operands[index];
  const rondo_dtype dtype = decoder_dtype_of(task);
  char expected[64];
  snprintf(expected, sizeof expected, "[rows, %" PRId64 "] %s, e4m3 or nvfp4", task->operands[DECODER_X].shape[1],
           rondo_dtype_name(dtype));
  const bool fits = matrix->dtype == dtype || matrix->dtype == RONDO_E4M3 || matrix->dtype == RONDO_NVFP4;
  return matrix->present && matrix->rank == 2 && fits ? RONDO_OK : op_unexpected(name, matrix, expected);
}

/* A matrix of the first one's type, and its scales after it. */
static rondo_status matrix_check(const struct op_task *task, uint32_t index, rondo_dtype dtype, const char *name,
                                 int64_t rows, int64_t columns) {
  const struct op_operand *matrix = &task->operands[index], *scales = &task->operands[index + 1];
  char of_scales[32];
  snprintf(of_scales, sizeof of_scales, "%s_scales", name);
  OP_TRY(op_expect(name, matrix, dtype, 2, (int64_t[]){rows, columns}));
  if (dtype == RONDO_NVFP4 && columns % DECODER_SCALE_GROUP)
    return op_refuse("%s has rows of %" PRId64 ", expected a multiple of %d in nvfp4", name, columns,
                     DECODER_SCALE_GROUP);
  if (dtype == RONDO_NVFP4)
    return op_expect(of_scales, scales, RONDO_E4M3, 2, (int64_t[]){rows, columns / DECODER_SCALE_GROUP});
  if (!scales->present) return RONDO_OK;
  if (dtype == RONDO_E4M3) return op_expect(of_scales, scales, RONDO_F32, 1, &rows);
  return op_refuse("%s is present, expected none with %s in %s", of_scales, name, rondo_dtype_name(dtype));
}

/* [rows, any capacity, any heads, a head dimension]; of one sequence [1, ..], or pages. */
static rondo_status cache_check(const struct op_task *task) {
  const struct op_operand *k = &task->operands[ATTENTION_BLOCK_K], *x = &task->operands[DECODER_X];
  const rondo_dtype dtype = decoder_dtype_of(task);
  const struct decoder_attributes *attributes = op_attributes(task);
  const bool has_pages = task->operands[ATTENTION_BLOCK_KV_PAGES].present && k->present;
  const int64_t items = has_pages ? k->shape[0] : attributes->one_sequence ? 1 : x->shape[0];
  char expected[96];
  snprintf(expected, sizeof expected, "[%" PRId64 ", capacity, KV heads, head dimension] %s", items,
           rondo_dtype_name(dtype));
  if (!k->present || k->rank != CACHE_RANK || k->dtype != dtype || k->shape[0] != items || k->shape[2] < 1)
    return op_unexpected("k", k, expected);
  const int64_t d = k->shape[3];
  if (d != 32 && d != 64 && d != 128 && d != 256)
    return op_refuse("k has head dimension %" PRId64 ", expected 32, 64, 128 or 256", d);
  return op_expect("v", &task->operands[ATTENTION_BLOCK_V], dtype, CACHE_RANK, k->shape);
}

/* Whole heads, a multiple of the KV heads. */
static rondo_status query_heads_check(const struct op_task *task) {
  const struct op_operand *output = &task->operands[ATTENTION_BLOCK_OUTPUT], *k = &task->operands[ATTENTION_BLOCK_K];
  if (!output->present || output->rank != 2) return op_unexpected("output", output, "[hidden, query heads * d]");
  const int64_t columns = output->shape[1], group_columns = k->shape[2] * k->shape[3];
  if (columns > 0 && columns % group_columns == 0) return RONDO_OK;
  return op_refuse("output has rows of %" PRId64 ", expected a multiple of %" PRId64 ": k has %" PRId64
                   " heads of %" PRId64,
                   columns, group_columns, k->shape[2], k->shape[3]);
}

/* attention checks position and rotary embedding itself, under the same names. */
rondo_status attention_block_check(const struct op_task *task) {
  struct op_step step;
  OP_TRY(stream_check(task));
  OP_TRY(first_matrix_check(task, ATTENTION_BLOCK_QKV, "qkv"));
  OP_TRY(cache_check(task));
  OP_TRY(query_heads_check(task));
  const struct decoder_shape shape = decoder_shape_of(task);
  const int64_t columns = shape.query_heads * shape.head_dimension;
  const int64_t rows = columns + 2 * shape.kv_heads * shape.head_dimension;
  OP_TRY(matrix_check(task, ATTENTION_BLOCK_QKV, shape.weights, "qkv", rows, shape.hidden));
  OP_TRY(matrix_check(task, ATTENTION_BLOCK_OUTPUT, shape.weights, "output", shape.hidden, columns));
  attention_block_attention(&(struct op_call){.task = task, .data = op_nowhere}, &step);
  return op_attention.check(&step.task);
}

rondo_status feed_forward_check(const struct op_task *task) {
  const struct op_operand *gate_up = &task->operands[FEED_FORWARD_GATE_UP];
  OP_TRY(stream_check(task));
  OP_TRY(first_matrix_check(task, FEED_FORWARD_GATE_UP, "gate_up"));
  if (gate_up->shape[0] < 2 || gate_up->shape[0] % 2)
    return op_refuse("gate_up has %" PRId64 " row%s, expected an even number of at least 2", gate_up->shape[0],
                     PLURAL(gate_up->shape[0]));
  const struct decoder_shape shape = decoder_shape_of(task);
  OP_TRY(matrix_check(task, FEED_FORWARD_GATE_UP, shape.weights, "gate_up", 2 * shape.columns, shape.hidden));
  return matrix_check(task, FEED_FORWARD_DOWN, shape.weights, "down", shape.hidden, shape.columns);
}

/* Of a cache as many new rows are written as x has. */
int64_t attention_block_touched_elements(const struct op_task *task, uint32_t operand, rondo_access access) {
  const struct op_operand *touched = &task->operands[operand];
  const bool is_cache = operand == ATTENTION_BLOCK_K || operand == ATTENTION_BLOCK_V;
  if (!is_cache || access == RONDO_READ || touched->shape[1] == 0) return op_elements(touched);
  return task->operands[DECODER_X].shape[0] * touched->shape[2] * touched->shape[3];
}
