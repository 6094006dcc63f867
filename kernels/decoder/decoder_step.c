/* decoder_step.c - the halves of a decoder's layer as tasks of other operations, one after the other:
 *
 *   attention block: x + x_parts -> out, zeros -> out_parts 1.. | qkv | attention | output -> out_parts 0
 *   feed forward:    x + x_parts -> out, zeros -> out_parts 1.. | gate_up         | down   -> out_parts 0
 *
 * The first product applies the norm; with x in f32, which products do not take, the first step does. What they hand on
 * lies in scratch, in 16 bits. */
#include <string.h>

#include "../../runtime/integer.h"
#include "../attention/attention.h"
#include "../gemm/gemm.h"
#include "../model/norm.h"
#include "decoder_ranks.h"

enum { ALIGNMENT = 256, TWO_BYTES = 2 };

/* Steps, of both halves and of one. */
enum { SUM, FIRST_PRODUCT };
enum { ATTENTION = FIRST_PRODUCT + 1, OUTPUT };
enum { DOWN = FIRST_PRODUCT + 1 };

static uint64_t bytes_of_rows(int64_t rows, int64_t columns) {
  return (uint64_t)round_up(rows * columns * TWO_BYTES, ALIGNMENT);
}

static uint64_t larger_bytes(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Operand `from` of the task becomes operand `to` of the step. */
static void take(const struct op_call *call, uint32_t from, struct op_step *step, uint32_t to, rondo_access access) {
  step->operands[to] = call->task->operands[from];
  step->operands[to].access = access;
  step->data[to] = call->data[from];
  if (op_is_settled(call, from)) step->call.settled_operands |= 1u << to;
}

/* [rows, columns] in scratch, from `offset` on. */
static void take_scratch(const struct op_call *call, int64_t columns, uint64_t offset, struct op_step *step,
                         uint32_t to, rondo_access access) {
  const struct op_operand *x = &call->task->operands[DECODER_X];
  step->operands[to] = (struct op_operand){.present = true,
                                           .access = access,
                                           .dtype = decoder_dtype_of(call->task),
                                           .rank = 2,
                                           .shape = {x->shape[0], columns},
                                           .stride = {columns, 1}};
  step->data[to] = op_after(call->scratch, offset);
}

/* Columns [column, column + heads * d) of rows that were taken: [rows, 1, heads, d], of one sequence [1, rows, ..]. */
static void see_heads(struct op_step *step, uint32_t index, int64_t column, int64_t heads, int64_t d,
                      bool one_sequence) {
  struct op_operand *operand = &step->operands[index];
  const int64_t row = operand->stride[0];
  operand->rank = 4;
  operand->offset_bytes += (uint64_t)column * TWO_BYTES;
  step->data[index] = op_after(step->data[index], (uint64_t)column * TWO_BYTES);
  const int64_t rows = operand->shape[0], items = one_sequence ? 1 : rows;
  const int64_t shape[] = {items, rows / items, heads, d}, stride[] = {row * (rows / items), row, d, 1};
  for (int i = 0; i < 4; i++) operand->shape[i] = shape[i], operand->stride[i] = stride[i];
}

/* The parts that no product writes become zeros. */
static void take_zeros(const struct op_call *call, struct op_step *step, uint32_t to) {
  take(call, DECODER_OUT_PARTS, step, to, RONDO_WRITE);
  struct op_operand *zeros = &step->operands[to];
  const uint64_t part_bytes = (uint64_t)zeros->stride[0] * sizeof(float);
  zeros->shape[0]--;
  zeros->offset_bytes += part_bytes;
  step->data[to] = op_after(step->data[to], part_bytes);
  if (zeros->shape[0]) return;
  *zeros = (struct op_operand){0};
  step->data[to] = NULL;
}

static bool is_normed_first(const struct op_task *task) { return task->operands[DECODER_X].dtype == RONDO_F32; }

static uint64_t bytes_of_normed(const struct op_task *task) {
  const struct op_operand *x = &task->operands[DECODER_X];
  return is_normed_first(task) ? bytes_of_rows(x->shape[0], x->shape[1]) : 0;
}

/* x plus its parts. With x in f32 their norm goes to scratch, at `normed`; otherwise the first product has the norm. */
static void sum_step(const struct op_call *call, uint64_t normed, struct op_step *step) {
  const struct decoder_attributes *described = op_attributes(call->task);
  const bool normed_first = is_normed_first(call->task);
  const struct rms_norm_attributes attributes = {.epsilon = described->norm_epsilon,
                                                 .plain = !normed_first || described->norm_epsilon == 0};
  op_step_begin(call, &op_rms_norm, RMS_NORM_OPERANDS, step);
  memcpy(step->task.attributes, &attributes, sizeof attributes);
  take(call, DECODER_X, step, RMS_NORM_X, RONDO_READ);
  take(call, DECODER_X_PARTS, step, RMS_NORM_X_PARTS, RONDO_READ);
  take_zeros(call, step, RMS_NORM_ZEROS);
  take(call, DECODER_OUT, step, normed_first ? RMS_NORM_SUM : RMS_NORM_OUT, RONDO_WRITE);
  if (!normed_first) return;
  take(call, DECODER_NORM, step, RMS_NORM_NORM, RONDO_READ);
  take_scratch(call, call->task->operands[DECODER_X].shape[1], normed, step, RMS_NORM_OUT, RONDO_WRITE);
}

/* A product with the matrix `index`; the caller adds vectors and out. */
static void product_begin(const struct op_call *call, uint32_t index, struct gemv_attributes attributes,
                          struct op_step *step) {
  const struct decoder_attributes *described = op_attributes(call->task);
  const bool is_many = call->task->operands[DECODER_X].shape[0] > DECODER_MOST_ROWS;
  op_step_begin(call, is_many ? &op_gemm : &op_gemv, is_many ? (uint32_t)GEMM_OPERANDS : (uint32_t)GEMV_OPERANDS, step);
  attributes.scale = described->scale;
  memcpy(step->task.attributes, &attributes, sizeof attributes);
  take(call, index, step, GEMV_WEIGHTS, RONDO_READ);
  take(call, index + 1, step, GEMV_WEIGHT_SCALES, RONDO_READ);
}

/* The normalised `out` times the matrix `index`, to the beginning of scratch. The first step may have left it at
 * `normed`. */
static void first_product(const struct op_call *call, uint32_t index, int64_t columns, bool silu_mul, uint64_t normed,
                          struct op_step *step) {
  const struct decoder_attributes *described = op_attributes(call->task);
  const bool is_normed = is_normed_first(call->task);
  const float epsilon = is_normed ? 0 : described->norm_epsilon;
  product_begin(call, index, (struct gemv_attributes){.norm_epsilon = epsilon, .silu_mul = silu_mul}, step);
  take_scratch(call, columns, 0, step, GEMV_OUT, RONDO_WRITE);
  if (is_normed) {
    take_scratch(call, call->task->operands[DECODER_X].shape[1], normed, step, GEMV_VECTORS, RONDO_READ);
    return;
  }
  take(call, DECODER_OUT, step, GEMV_VECTORS, RONDO_READ);
  take(call, DECODER_NORM, step, GEMV_NORM, RONDO_READ);
}

/* Of what lies in scratch, to the first of out_parts. */
static void last_product(const struct op_call *call, uint32_t index, int64_t columns, uint64_t offset,
                         struct op_step *step) {
  product_begin(call, index, (struct gemv_attributes){0}, step);
  take_scratch(call, columns, offset, step, GEMV_VECTORS, RONDO_READ);
  take(call, DECODER_OUT_PARTS, step, GEMV_OUT, RONDO_WRITE);
  struct op_operand *out = &step->operands[GEMV_OUT];
  out->rank = 2;
  for (int i = 0; i < 2; i++) out->shape[i] = out->shape[i + 1], out->stride[i] = out->stride[i + 1];
  out->shape[2] = out->stride[2] = 0;
}

/* ---- Attention block --------------------------------------------------------------------------------------------- */

/* Scratch: rows of q, k and v, attention's result, normalised rows, and attention's own scratch. */
struct attention_parts {
  int64_t qkv_columns, q_columns, kv_columns;
  uint64_t attended, normed, own; /* where they begin */
};

static struct attention_parts attention_parts_of(const struct op_task *task, const struct decoder_shape *shape) {
  struct attention_parts parts = {.q_columns = shape->query_heads * shape->head_dimension,
                                  .kv_columns = shape->kv_heads * shape->head_dimension};
  parts.qkv_columns = parts.q_columns + 2 * parts.kv_columns;
  parts.attended = bytes_of_rows(shape->rows, parts.qkv_columns);
  parts.normed = parts.attended + bytes_of_rows(shape->rows, parts.q_columns);
  parts.own = parts.normed + bytes_of_normed(task);
  return parts;
}

void attention_block_attention(const struct op_call *call, struct op_step *step) {
  const struct decoder_attributes *described = op_attributes(call->task);
  const struct decoder_shape shape = decoder_shape_of(call->task);
  const struct attention_parts parts = attention_parts_of(call->task, &shape);
  const int64_t d = shape.head_dimension;
  const struct attention_attributes attributes = {.layout = RONDO_BSHD,
                                                  .causal = described->one_sequence,
                                                  .rope_base = described->rope_base,
                                                  .rope_pairing = described->rope_pairing};
  op_step_begin(call, &op_attention, ATTENTION_OPERANDS, step);
  memcpy(step->task.attributes, &attributes, sizeof attributes);
  const struct {
    uint32_t operand;
    int64_t column, heads;
  } inside[] = {{ATTENTION_Q, 0, shape.query_heads},
                {ATTENTION_NEW_K, parts.q_columns, shape.kv_heads},
                {ATTENTION_NEW_V, parts.q_columns + parts.kv_columns, shape.kv_heads}};
  for (int i = 0; i < 3; i++) {
    take_scratch(call, parts.qkv_columns, 0, step, inside[i].operand, RONDO_READ);
    see_heads(step, inside[i].operand, inside[i].column, inside[i].heads, d, shape.one_sequence);
  }
  take_scratch(call, parts.q_columns, parts.attended, step, ATTENTION_O, RONDO_WRITE);
  see_heads(step, ATTENTION_O, 0, shape.query_heads, d, shape.one_sequence);
  take(call, ATTENTION_BLOCK_K, step, ATTENTION_K, RONDO_READ_WRITE);
  take(call, ATTENTION_BLOCK_V, step, ATTENTION_V, RONDO_READ_WRITE);
  take(call, ATTENTION_BLOCK_POSITION, step, ATTENTION_POSITION, RONDO_READ);
  take(call, ATTENTION_BLOCK_ROPE_FREQUENCIES, step, ATTENTION_ROPE_FREQUENCIES, RONDO_READ);
  take(call, ATTENTION_BLOCK_KV_PAGES, step, ATTENTION_KV_PAGES, RONDO_READ);
  step->call.scratch = op_after(call->scratch, parts.own);
}

/* With ranks the sum is the first step, and the half that follows has the others. */
static bool step_of_ranks(const struct op_call *call, uint32_t index, struct op_step *step) {
  struct op_step half;
  if (index == 0) {
    decoder_sum_over_ranks(call, step);
    return true;
  }
  decoder_half_after_sum(call, &half);
  return call->task->op->step(&half.call, index - 1, step);
}

bool attention_block_step(const struct op_call *call, uint32_t index, struct op_step *step) {
  if (decoder_has_sum(call->task)) return step_of_ranks(call, index, step);
  const struct decoder_shape shape = decoder_shape_of(call->task);
  const struct attention_parts parts = attention_parts_of(call->task, &shape);
  switch (index) {
  case SUM:
    sum_step(call, parts.normed, step);
    return true;
  case FIRST_PRODUCT:
    first_product(call, ATTENTION_BLOCK_QKV, parts.qkv_columns, false, parts.normed, step);
    return true;
  case ATTENTION:
    attention_block_attention(call, step);
    return true;
  case OUTPUT:
    last_product(call, ATTENTION_BLOCK_OUTPUT, parts.q_columns, parts.attended, step);
    return true;
  default:
    return false;
  }
}

uint64_t attention_block_scratch_bytes(const struct op_task *task) {
  const struct decoder_shape shape = decoder_shape_of(task);
  struct op_step step;
  attention_block_attention(&(struct op_call){.task = task, .data = op_nowhere}, &step);
  const uint64_t steps = attention_parts_of(task, &shape).own + attention_scratch_bytes(&step.task);
  return decoder_scratch_with_sum(task, larger_bytes(steps, attention_many_tokens_scratch(&shape)));
}

/* ---- Feed forward ------------------------------------------------------------------------------------------------ */

/* Scratch: gated columns, then normalised rows. */
bool feed_forward_step(const struct op_call *call, uint32_t index, struct op_step *step) {
  if (decoder_has_sum(call->task)) return step_of_ranks(call, index, step);
  const struct decoder_shape shape = decoder_shape_of(call->task);
  const uint64_t normed = bytes_of_rows(shape.rows, shape.columns);
  switch (index) {
  case SUM:
    sum_step(call, normed, step);
    return true;
  case FIRST_PRODUCT:
    first_product(call, FEED_FORWARD_GATE_UP, shape.columns, true, normed, step);
    return true;
  case DOWN:
    last_product(call, FEED_FORWARD_DOWN, shape.columns, 0, step);
    return true;
  default:
    return false;
  }
}

uint64_t feed_forward_scratch_bytes(const struct op_task *task) {
  const struct decoder_shape shape = decoder_shape_of(task);
  const uint64_t steps = bytes_of_rows(shape.rows, shape.columns) + bytes_of_normed(task);
  return decoder_scratch_with_sum(task, larger_bytes(steps, feed_forward_many_tokens_scratch(&shape)));
}
