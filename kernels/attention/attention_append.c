/* attention_append.c - new rows of K and V, and the rotary embedding of an attention: their check, the frequencies, and
 * the launch before an attention whose kernel takes neither. That attention then has rotated queries, lengths and, of
 * packed rows, offsets that rise, all in scratch. */
#include "attention_append.h"

#include <inttypes.h>
#include <string.h>

#include "../../runtime/integer.h"
#include "../common/launch.h"
#include "../model/rope.h"

ATTENTION_APPEND_KERNELS(KERNEL_CONSTANT)

enum { ENOUGH_ROWS = 1024 }; /* to fill the chip, each with half of a block */

static rondo_status rotation_check(const struct op_task *task) {
  const struct attention_attributes *attributes = op_attributes(task);
  const struct op_operand *frequencies = &task->operands[ATTENTION_ROPE_FREQUENCIES];
  const int64_t pairs = task->operands[ATTENTION_Q].shape[3] / 2;
  OP_TRY(op_expect_not_negative("rope_base", attributes->rope_base));
  if (attributes->rope_pairing != RONDO_ROPE_INTERLEAVED && attributes->rope_pairing != RONDO_ROPE_HALVES)
    return op_refuse("rope_pairing is %" PRId32 ", expected RONDO_ROPE_INTERLEAVED or RONDO_ROPE_HALVES",
                     attributes->rope_pairing);
  if (frequencies->present) OP_TRY(op_expect("rope_frequencies", frequencies, RONDO_F32, 1, &pairs));
  if ((attributes->rope_base > 0.0f || frequencies->present) && task->operands[ATTENTION_Q].dtype == RONDO_E4M3)
    return op_refuse("q is e4m3, expected f16 or bf16 beside a rotary embedding");
  return RONDO_OK;
}

static rondo_status new_rows_check(const struct op_task *task) {
  const struct op_operand *q = &task->operands[ATTENTION_Q], *k = &task->operands[ATTENTION_K];
  const struct attention_attributes *attributes = op_attributes(task);
  if (k->dtype == RONDO_E4M3) return op_refuse("k is e4m3, expected f16 or bf16 beside new_k");
  if (task->operands[ATTENTION_KV_LENGTHS].present)
    return op_refuse("kv_lengths is there beside new_k, expected none: position and query length give them");
  const int head = attributes->layout == RONDO_BHSD ? 1 : 2;
  int64_t shape[4] = {q->shape[0], q->shape[1], q->shape[2], q->shape[3]};
  shape[head] = k->shape[head];
  OP_TRY(op_expect("new_k", &task->operands[ATTENTION_NEW_K], k->dtype, 4, shape));
  return op_expect("new_v", &task->operands[ATTENTION_NEW_V], k->dtype, 4, shape);
}

rondo_status attention_append_check(const struct op_task *task) {
  const struct attention_attributes *attributes = op_attributes(task);
  const bool appends = task->operands[ATTENTION_NEW_K].present || task->operands[ATTENTION_NEW_V].present;
  OP_TRY(rotation_check(task));
  if (appends) OP_TRY(new_rows_check(task));
  if (appends || attributes->rope_base > 0.0f || task->operands[ATTENTION_ROPE_FREQUENCIES].present)
    return op_expect_list("position", &task->operands[ATTENTION_POSITION], RONDO_I32, attention_items(task));
  if (!task->operands[ATTENTION_POSITION].present) return RONDO_OK;
  return op_refuse("position is present without new_k, rope_base and rope_frequencies, which alone use it");
}

const float *attention_frequencies(const struct op_call *call, float room[ATTENTION_MOST_PAIRS]) {
  const struct attention_attributes *attributes = op_attributes(call->task);
  const int64_t pairs = call->task->operands[ATTENTION_Q].shape[3] / 2;
  if (call->task->operands[ATTENTION_ROPE_FREQUENCIES].present) return call->data[ATTENTION_ROPE_FREQUENCIES];
  rope_frequencies(attributes->rope_base, pairs, room);
  return room;
}

/* ---- The launch -------------------------------------------------------------------------------------------------- */

/* The same attention without new rows and rotary embedding. Its kv_lengths are where new rows end, even if they do not
 * all fit. */
static void attention_rest(const struct op_call *call, const struct attention_shape *shape, struct op_step *rest) {
  struct attention_attributes attributes;
  op_step_begin(call, call->task->op, ATTENTION_OPERANDS, rest);
  rest->call.settled_operands = call->settled_operands;
  memcpy(&attributes, call->task->attributes, sizeof attributes);
  memcpy(rest->operands, call->task->operands, ATTENTION_OPERANDS * sizeof *rest->operands);
  memcpy(rest->data, call->data, ATTENTION_OPERANDS * sizeof *rest->data);
  struct op_operand *q = &rest->operands[ATTENTION_Q];
  const struct attention_scratch scratch = attention_scratch_of(call->task);
  if (shape->rotates) {
    rest->data[ATTENTION_Q] = op_after(call->scratch, scratch.rotated);
    q->offset_bytes = 0;
    const int head = attributes.layout == RONDO_BHSD ? 1 : 2;
    q->stride[3] = 1;
    q->stride[head] = shape->head_dimension;
    q->stride[3 - head] = shape->query_heads * shape->head_dimension;
    q->stride[0] = shape->query_length * q->stride[3 - head];
  }
  if (shape->appends) {
    rest->data[ATTENTION_KV_LENGTHS] = op_after(call->scratch, scratch.lengths);
    rest->operands[ATTENTION_KV_LENGTHS] =
        (struct op_operand){.present = true, .dtype = RONDO_I32, .rank = 1, .shape = {shape->items}, .stride = {1}};
  }
  rest->data[ATTENTION_ROW_OFFSETS] = shape->packed ? op_after(call->scratch, scratch.starts) : NULL;
  for (uint32_t i = ATTENTION_NEW_K; i < ATTENTION_ROW_OFFSETS; i++) {
    rest->operands[i] = (struct op_operand){0};
    rest->data[i] = NULL;
  }
  /* The kernel that attends need not wait for the length then. */
  if (shape->appends && !shape->packed && op_is_settled(call, ATTENTION_POSITION) &&
      call->task->operands[ATTENTION_POSITION].shape[0] == 1)
    rest->data[ATTENTION_POSITION] = call->data[ATTENTION_POSITION];
  attributes.rope_base = 0.0f;
  attributes.has_ends = shape->appends;
  memcpy(rest->task.attributes, &attributes, sizeof attributes);
}

static bool rows_are_aligned(const struct op_call *call, uint32_t bytes) {
  static const uint32_t copied[] = {ATTENTION_Q, ATTENTION_K, ATTENTION_V, ATTENTION_NEW_K, ATTENTION_NEW_V};
  const struct op_operand *operands = call->task->operands;
  for (size_t i = 0; i < sizeof copied / sizeof *copied; i++)
    if (operands[copied[i]].present && !op_rows_aligned(&operands[copied[i]], bytes)) return false;
  return true;
}

/* Blocks of a row. Where rows alone fill the chip, a block has two, and a thread more units: the addresses of a row
 * take most instructions. Else as many as give each thread one unit. */
static int64_t row_parts(int64_t rows, int64_t units) {
  return rows >= ENOUGH_ROWS ? 1 : divide_up(units, ATTENTION_APPEND_THREADS);
}

/* Shared memory that a block asks for, so that a multiprocessor has room for its share of all blocks and no more.
 * Blocks start while the product before still runs (kernels/common/launch.cuh), and would gather on the multiprocessors
 * where it leaves room. Chips before sm_90 have no such start, and many blocks fill every multiprocessor. */
static uint64_t even_share_bytes(const struct chip *chip, int64_t blocks) {
  enum { TAKEN_BYTES = 1024 /* by the chip, of each block */, MOST_BLOCKS = 8 /* of a multiprocessor */ };
  const int64_t each = divide_up(blocks, chip->multiprocessors);
  if (chip->version < 90 || each > MOST_BLOCKS) return 0;
  const int64_t share = (chip->shared_bytes + TAKEN_BYTES) / each - TAKEN_BYTES - ATTENTION_APPEND_ROW_BYTES;
  return (uint64_t)(share / 128 * 128);
}

/* All but how the rows are dealt to blocks. */
static struct attention_append_parameters parameters_of(const struct op_call *call, const struct op_step *rest) {
  const struct op_operand *operands = call->task->operands;
  const struct attention_shape shape = attention_shape_of(call->task);
  const bool has_frequencies = operands[ATTENTION_ROPE_FREQUENCIES].present;
  struct attention_append_parameters parameters = {
      .q = call->data[ATTENTION_Q],
      .new_k = call->data[ATTENTION_NEW_K],
      .new_v = call->data[ATTENTION_NEW_V],
      .rotated = rest->data[ATTENTION_Q],
      .k = call->data[ATTENTION_K],
      .v = call->data[ATTENTION_V],
      .lengths = shape.appends ? rest->data[ATTENTION_KV_LENGTHS] : NULL,
      .positions = call->data[ATTENTION_POSITION],
      .row_offsets = call->data[ATTENTION_ROW_OFFSETS],
      .starts = rest->data[ATTENTION_ROW_OFFSETS],
      .o = call->data[ATTENTION_O],
      .lse = call->data[ATTENTION_LSE],
      .frequencies = call->data[ATTENTION_ROPE_FREQUENCIES],
      .kv_pages = call->data[ATTENTION_KV_PAGES],
      .q_stride = shape.q_stride,
      .new_k_stride = attention_stride_of(call->task, ATTENTION_NEW_K),
      .new_v_stride = attention_stride_of(call->task, ATTENTION_NEW_V),
      .k_stride = shape.k_stride,
      .v_stride = shape.v_stride,
      .o_stride = shape.o_stride,
      .lse_head_stride = operands[ATTENTION_LSE].stride[1],
      .pages_stride = shape.pages_stride,
      .batch = (uint32_t)shape.batch,
      .query_length = (uint32_t)shape.query_length,
      .items = (uint32_t)shape.items,
      .query_heads = (uint32_t)shape.query_heads,
      .rotated_heads = shape.rotates ? (uint32_t)shape.query_heads : 0,
      .new_heads = shape.appends ? (uint32_t)shape.kv_heads : 0,
      .row_pairs = (uint32_t)shape.head_dimension / 2,
      .pool_pages = (uint32_t)(shape.paged ? shape.pool_pages : shape.items),
      .page_shift = shape.paged ? (uint32_t)log2_of(shape.page_rows) : 31,
      .capacity = (int32_t)shape.capacity,
      .most_length = (int32_t)shape.most_length,
      .rotates = shape.rotates,
      .by_halves = shape.by_halves,
      .bf16 = operands[ATTENTION_Q].dtype == RONDO_BF16,
      .aligned = rows_are_aligned(call, 8),
      .per_item = operands[ATTENTION_POSITION].shape[0] > 1,
      .early = op_is_settled(call, ATTENTION_POSITION) &&
               (!has_frequencies || op_is_settled(call, ATTENTION_ROPE_FREQUENCIES)),
  };
  if (shape.rotates && !has_frequencies) attention_frequencies(call, parameters.base_frequencies);
  return parameters;
}

/* Do rows move in vectors? Their places follow from one position. */
static bool are_vectors(const struct op_call *call, const struct attention_shape *shape) {
  return shape->rotates && shape->batch == 1 && !shape->packed && !shape->paged &&
         shape->head_dimension / 2 >= ATTENTION_APPEND_VECTOR_PAIRS && rows_are_aligned(call, 16);
}

/* False: a row has too many threads. */
static bool vectors_add(const struct chip *chip, int64_t units, struct attention_append_parameters *parameters,
                        struct op_launches *launches) {
  const int64_t row_threads = round_up(units * ATTENTION_APPEND_PAIRS / ATTENTION_APPEND_VECTOR_PAIRS, 32);
  if (row_threads > ATTENTION_APPEND_MOST_THREADS) return false;
  const int64_t rows = larger(ATTENTION_APPEND_THREADS / row_threads, 1);
  const int64_t blocks = divide_up(parameters->query_length, rows);
  parameters->row_threads = (uint32_t)row_threads, parameters->vector_rows = (uint32_t)rows;
  launch_add(launches, &rondo_attention_append_vectors, blocks, rows * row_threads, even_share_bytes(chip, blocks),
             parameters, sizeof *parameters);
  return true;
}

void attention_append_launch(const struct op_call *call, const struct chip *chip, struct op_step *rest,
                             struct op_launches *launches) {
  const struct attention_shape shape = attention_shape_of(call->task);
  attention_rest(call, &shape, rest);
  struct attention_append_parameters parameters = parameters_of(call, rest);
  const int64_t heads = (int64_t)parameters.rotated_heads + 2 * (int64_t)parameters.new_heads;
  const int64_t rows = shape.batch * shape.query_length, units = heads * parameters.row_pairs / ATTENTION_APPEND_PAIRS;
  if (!rows || !units) return;
  if (are_vectors(call, &shape) && vectors_add(chip, units, &parameters, launches)) return;
  parameters.row_parts = (uint32_t)row_parts(rows, units);
  const int64_t block_rows = rows >= ENOUGH_ROWS ? 2 : 1;
  parameters.row_threads = (uint32_t)(ATTENTION_APPEND_THREADS / block_rows);
  /* At least one thread for each item's length. Of a batch, rows have more than enough. */
  const int64_t item_threads = shape.appends ? shape.items + shape.packed : 0;
  const int64_t blocks =
      larger(divide_up(rows, block_rows) * parameters.row_parts, divide_up(item_threads, ATTENTION_APPEND_THREADS));
  launch_add(launches, &rondo_attention_append, blocks, ATTENTION_APPEND_THREADS, even_share_bytes(chip, blocks),
             &parameters, sizeof parameters);
}
