/* exchanges.c - rondo_exchange_state, rondo_add_all_reduce and its siblings: what a description must name, the states
 * that a task borrows, and the check of its arguments. */
#include "exchanges.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "../../runtime/graph.h"
#include "../../runtime/integer.h"
#include "../common/rows.h"

static_assert((int)EXCHANGE_RANKS_MOST == (int)RONDO_MAX_RANKS, "the header says the same");
static_assert((int)EXCHANGE_OPERANDS <= (int)OP_MAX_OPERANDS, "three tensors and all states");

/* ---- The state --------------------------------------------------------------------------------------------------- */

/* The bytes of a slot for data of up to `bytes`. Sums in two steps need three vectors of f32 for each two of 16 bits,
 * in chunks that may be a vector longer. */
static int64_t exchange_slot_bytes(uint64_t bytes) {
  return round_up((int64_t)bytes + INT64_C(2) * EXCHANGE_VECTOR_BYTES, EXCHANGE_SLOT_MULTIPLE);
}

/* Of a row of a state. */
static int64_t exchange_row_bytes(uint64_t bytes) {
  return EXCHANGE_HEAD_BYTES + 2 * exchange_slot_bytes(bytes) + EXCHANGE_GATHER_BYTES;
}

rondo_status rondo_exchange_state(rondo_graph *graph, const char *name, uint32_t ranks, uint64_t bytes,
                                  rondo_tensor *tensor) {
  if (ranks < 1 || ranks > RONDO_MAX_RANKS)
    return op_refuse("describe: rondo_exchange_state: %u ranks, expected 1 to %d", ranks, RONDO_MAX_RANKS);
  if (bytes > (uint64_t)RONDO_MAX_ELEMENTS)
    return op_refuse("describe: rondo_exchange_state: %" PRIu64 " bytes, expected at most 2^31", bytes);
  return rondo_state(graph, name ? name : "exchange", RONDO_U8, 2, (int64_t[]){ranks, exchange_row_bytes(bytes)},
                     tensor);
}

/* ---- Descriptions ------------------------------------------------------------------------------------------------ */

static uint32_t others(const struct exchange_attributes *a) { return ((1u << a->ranks) - 1) & ~(1u << a->rank); }

uint32_t exchange_receivers(const struct exchange_attributes *a) {
  if (a->kind == EXCHANGE_RECEIVE || (a->kind == EXCHANGE_BROADCAST && a->rank != a->peer)) return 0;
  return a->kind == EXCHANGE_SEND ? 1u << a->peer : others(a);
}

uint32_t exchange_senders(const struct exchange_attributes *a) {
  if (a->kind == EXCHANGE_SEND || (a->kind == EXCHANGE_BROADCAST && a->rank == a->peer)) return 0;
  return a->kind == EXCHANGE_RECEIVE || a->kind == EXCHANGE_BROADCAST ? 1u << a->peer : others(a);
}

/* What must hold before the states are looked at. */
static rondo_status ranks_check(const rondo_exchange_desc *desc, enum exchange_kind kind) {
  if (desc->ranks < 1 || desc->ranks > RONDO_MAX_RANKS)
    return op_refuse("%u ranks, expected 1 to %d", desc->ranks, RONDO_MAX_RANKS);
  if (desc->rank >= desc->ranks)
    return op_refuse("rank is %u, expected less than the %u ranks", desc->rank, desc->ranks);
  const bool has_peer = kind == EXCHANGE_BROADCAST || kind == EXCHANGE_SEND || kind == EXCHANGE_RECEIVE;
  if (has_peer && desc->peer >= desc->ranks)
    return op_refuse("peer is %u, expected less than the %u ranks", desc->peer, desc->ranks);
  if (has_peer && kind != EXCHANGE_BROADCAST && desc->peer == desc->rank)
    return op_refuse("peer is %u, the rank itself", desc->peer);
  if (!desc->exchange) return op_refuse("exchange is NULL, expected the ranks' states");
  return RONDO_OK;
}

static const char *const state_names[RONDO_MAX_RANKS] = {"exchange[0]", "exchange[1]", "exchange[2]", "exchange[3]",
                                                         "exchange[4]", "exchange[5]", "exchange[6]", "exchange[7]"};

rondo_status exchange_states_borrow(rondo_graph *graph, const rondo_tensor *states, uint32_t rank, uint32_t ranks,
                                    uint32_t touched, struct op_argument *arguments) {
  for (uint32_t r = 0; r < ranks; r++) {
    struct op_argument *argument = &arguments[r];
    rondo_tensor state = states[r];
    argument->name = state_names[r];
    if (!state.graph) return op_refuse("%s is absent", state_names[r]);
    if (!(touched >> r & 1)) continue;
    argument->tensor = state;
    argument->access = r == rank ? RONDO_READ_WRITE : RONDO_WRITE;
    if (state.graph == graph) continue;
    OP_TRY(rondo_borrow(graph, state, &argument->tensor));
  }
  return RONDO_OK;
}

static rondo_status exchange_add(rondo_graph *graph, const rondo_exchange_desc *desc, enum exchange_kind kind,
                                 const struct op *op) {
  OP_TRY(ranks_check(desc, kind));
  struct op_argument arguments[EXCHANGE_OPERANDS] = {
      [EXCHANGE_IN] = {"in", desc->in, RONDO_READ, 0},
      [EXCHANGE_RESIDUAL] = {"residual", desc->residual, RONDO_READ, 0},
      [EXCHANGE_OUT] = {"out", desc->out, RONDO_WRITE, EXCHANGE_RESIDUAL + 1},
  };
  const struct exchange_attributes attributes = {
      .kind = kind,
      .rank = desc->rank,
      .ranks = desc->ranks,
      .peer = desc->peer,
      .dimension = desc->dimension,
      .timeout_ns = desc->timeout_ns,
  };
  const uint32_t touched = exchange_receivers(&attributes) | exchange_senders(&attributes) | 1u << desc->rank;
  OP_TRY(exchange_states_borrow(graph, desc->exchange, desc->rank, desc->ranks, touched, arguments + EXCHANGE_STATES));
  return graph_add(graph, op, desc->name, arguments, EXCHANGE_STATES + desc->ranks, &attributes, sizeof attributes);
}

/* Borrowed states and the task are added together or not at all. */
#define EXCHANGE_FUNCTION(function, kind, op)                                                                          \
  rondo_status function(rondo_graph *graph, const rondo_exchange_desc *desc) {                                         \
    if (!desc) return op_refuse("describe: " #function ": the description is NULL");                                   \
    struct graph_mark mark;                                                                                            \
    rondo_status status = graph_begin(graph, #function, &mark);                                                        \
    return status == RONDO_OK ? graph_end(graph, &mark, exchange_add(graph, desc, kind, op)) : status;                 \
  }
EXCHANGE_FUNCTION(rondo_add_all_reduce, EXCHANGE_ALL_REDUCE, &op_all_reduce)
EXCHANGE_FUNCTION(rondo_add_all_gather, EXCHANGE_ALL_GATHER, &op_all_gather)
EXCHANGE_FUNCTION(rondo_add_reduce_scatter, EXCHANGE_REDUCE_SCATTER, &op_reduce_scatter)
EXCHANGE_FUNCTION(rondo_add_broadcast, EXCHANGE_BROADCAST, &op_broadcast)
EXCHANGE_FUNCTION(rondo_add_send, EXCHANGE_SEND, &op_send)
EXCHANGE_FUNCTION(rondo_add_receive, EXCHANGE_RECEIVE, &op_receive)

/* ---- The check --------------------------------------------------------------------------------------------------- */

static rondo_status numbers_check(const char *name, const struct op_operand *operand) {
  if (operand->present && rows_are_numbers(operand->dtype)) return RONDO_OK;
  return op_unexpected(name, operand, "f32, f16 or bf16");
}

static rondo_status absent_check(const char *name, const struct op_operand *operand, const char *why) {
  if (!operand->present) return RONDO_OK;
  return op_refuse("%s is given, %s", name, why);
}

/* `longer` has the shape of `part`, but `ranks` times as much in the dimension. */
static rondo_status parts_check(const struct exchange_attributes *attributes, const char *part_name,
                                const struct op_operand *part, const char *name, const struct op_operand *longer) {
  int64_t shape[RONDO_MAX_RANK];
  if (attributes->dimension >= part->rank)
    return op_refuse("dimension is %u, expected less than the rank of %s, %u", attributes->dimension, part_name,
                     part->rank);
  memcpy(shape, part->shape, sizeof shape);
  shape[attributes->dimension] *= attributes->ranks;
  return op_expect(name, longer, longer->dtype, part->rank, shape);
}

/* `in` of an all_reduce: out's shape, perhaps after a dimension of terms. */
static rondo_status terms_check(const struct op_operand *in, const struct op_operand *out) {
  if (!in->present || in->rank != out->rank + 1) return op_expect("in", in, in->dtype, out->rank, out->shape);
  int64_t shape[RONDO_MAX_RANK] = {larger(in->shape[0], 1)};
  memcpy(shape + 1, out->shape, out->rank * sizeof *shape);
  return op_expect("in", in, RONDO_F32, in->rank, shape);
}

/* The source may have `out`, the other ranks have nothing else. */
static rondo_status broadcast_check(bool is_source, const struct op_operand *in, const struct op_operand *out) {
  if (!is_source) {
    OP_TRY(absent_check("in", in, "but only the peer's is sent"));
    return numbers_check("out", out);
  }
  OP_TRY(numbers_check("in", in));
  return out->present ? op_expect("out", out, in->dtype, in->rank, in->shape) : RONDO_OK;
}

static rondo_status shapes_check(const struct op_task *task) {
  const struct exchange_attributes *attributes = op_attributes(task);
  const struct op_operand *in = &task->operands[EXCHANGE_IN], *out = &task->operands[EXCHANGE_OUT];
  const struct op_operand *residual = &task->operands[EXCHANGE_RESIDUAL];
  switch ((enum exchange_kind)attributes->kind) {
  case EXCHANGE_ALL_REDUCE:
    OP_TRY(numbers_check("out", out));
    if (residual->present) OP_TRY(op_expect("residual", residual, residual->dtype, out->rank, out->shape));
    return terms_check(in, out);
  case EXCHANGE_ALL_GATHER:
    OP_TRY(numbers_check("in", in));
    OP_TRY(parts_check(attributes, "in", in, "out", out));
    return op_expect("out", out, in->dtype, out->rank, out->shape);
  case EXCHANGE_REDUCE_SCATTER:
    OP_TRY(numbers_check("out", out));
    return parts_check(attributes, "out", out, "in", in);
  case EXCHANGE_BROADCAST:
    return broadcast_check(attributes->rank == attributes->peer, in, out);
  case EXCHANGE_SEND:
    OP_TRY(numbers_check("in", in));
    return absent_check("out", out, "but the peer receives");
  case EXCHANGE_RECEIVE:
    OP_TRY(numbers_check("out", out));
    return absent_check("in", in, "but the peer sends");
  }
  return RONDO_OK;
}

static rondo_status state_check(const struct exchange_attributes *attributes, uint32_t r,
                                const struct op_operand *state) {
  if (state->dtype == RONDO_U8 && state->rank == 2 && state->shape[0] == attributes->ranks &&
      state->shape[1] >= exchange_row_bytes(0) &&
      (state->shape[1] - exchange_row_bytes(0)) % (INT64_C(2) * EXCHANGE_SLOT_MULTIPLE) == 0 && !state->offset_bytes &&
      state->stride[0] == state->shape[1])
    return RONDO_OK;
  return op_refuse("%s is no rondo_exchange_state of %u rank%s", state_names[r], attributes->ranks,
                   PLURAL(attributes->ranks));
}

/* All states that the task touches are alike, and large enough. */
static rondo_status states_check(const struct op_task *task) {
  const struct exchange_attributes *attributes = op_attributes(task);
  const struct op_operand *states = task->operands + EXCHANGE_STATES, *own = &states[attributes->rank];
  const int64_t bytes = (int64_t)exchange_vectors(task) * EXCHANGE_VECTOR_BYTES;
  for (uint32_t r = 0; r < attributes->ranks; r++)
    if (states[r].present) OP_TRY(state_check(attributes, r, &states[r]));
  for (uint32_t r = 0; r < attributes->ranks; r++)
    if (states[r].present) OP_TRY(op_expect(state_names[r], &states[r], RONDO_U8, 2, own->shape));
  if (own->shape[1] >= exchange_row_bytes((uint64_t)bytes)) return RONDO_OK;
  return op_refuse("%s is too small, expected one for at least %" PRId64 " bytes", state_names[attributes->rank],
                   bytes);
}

rondo_status exchange_check(const struct op_task *task) {
  const struct exchange_attributes *attributes = op_attributes(task);
  static const char *const names[] = {"in", "residual", "out"};
  for (uint32_t i = 0; i < EXCHANGE_STATES; i++)
    if (task->operands[i].present) OP_TRY(numbers_check(names[i], &task->operands[i]));
  if (attributes->kind != EXCHANGE_ALL_REDUCE)
    OP_TRY(absent_check("residual", &task->operands[EXCHANGE_RESIDUAL], "but only rondo_add_all_reduce adds one"));
  OP_TRY(shapes_check(task));
  return states_check(task);
}
