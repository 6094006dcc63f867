/* exchange_plan.c - how an exchange goes: a rank's part as rows and vectors, one step or two, blocks and threads, and
 * the launch. The host computes from the same parameters. */
#include "exchanges.h"

#include <assert.h>
#include <string.h>

#include "../../runtime/integer.h"
#include "../common/dense_rows.h"
#include "../common/launch.h"

/* ---- A rank's part ----------------------------------------------------------------------------------------------- */

/* The operand that has a part's shape, and, of all_gather and reduce_scatter, the one that has all ranks' parts. */
static uint32_t part_operand(const struct op_task *task) {
  const struct exchange_attributes *attributes = op_attributes(task);
  const uint32_t kind = attributes->kind;
  if (kind == EXCHANGE_ALL_REDUCE || kind == EXCHANGE_REDUCE_SCATTER || kind == EXCHANGE_RECEIVE) return EXCHANGE_OUT;
  return kind == EXCHANGE_BROADCAST && attributes->rank != attributes->peer ? EXCHANGE_OUT : EXCHANGE_IN;
}

/* On the way all ranks have `in`'s type. */
static uint32_t type_on_the_way(const struct op_task *task) {
  const struct op_operand *in = &task->operands[EXCHANGE_IN];
  return in->present ? in->dtype : task->operands[EXCHANGE_OUT].dtype;
}

uint32_t exchange_vectors(const struct op_task *task) {
  const uint32_t numbers = exchange_numbers(rondo_dtype_bits((rondo_dtype)type_on_the_way(task)));
  return (uint32_t)divide_up(op_elements(&task->operands[part_operand(task)]), numbers);
}

static_assert((int)EXCHANGE_OUTER == (int)DENSE_ROWS_OUTER, "strides are copied");

/* `in` may have one dimension more, of terms. */
static void shape_fill(const struct op_task *task, struct exchange_parameters *parameters) {
  const struct op_operand *part = &task->operands[part_operand(task)];
  struct exchange_side *sides[] = {
      [EXCHANGE_IN] = &parameters->in, [EXCHANGE_RESIDUAL] = &parameters->residual, [EXCHANGE_OUT] = &parameters->out};
  const struct dense_rows rows = dense_rows_of(part, task->operands, EXCHANGE_STATES);
  for (int i = 0; i < EXCHANGE_OUTER; i++) parameters->extent[i] = (uint32_t)rows.extent[i];
  for (uint32_t s = 0; s < EXCHANGE_STATES; s++) memcpy(sides[s]->stride, rows.stride[s], sizeof rows.stride[s]);
  parameters->row = (uint32_t)rows.row;
  parameters->count = (uint32_t)op_elements(part);
}

/* Do vectors lie within rows, at multiples of 16 bytes? Only the last of a dense part may be cut. */
static bool is_whole(const struct op_operand *operand, const struct exchange_side *side, int64_t term,
                     const struct exchange_parameters *parameters, uint32_t numbers) {
  const uint32_t size = rondo_dtype_bits(operand->dtype) / 8;
  uint64_t all = operand->offset_bytes | (uint64_t)side->step * size | (uint64_t)term * size;
  for (int i = 0; i < EXCHANGE_OUTER; i++) all |= (uint64_t)side->stride[i] * size;
  return all % EXCHANGE_VECTOR_BYTES == 0 && (parameters->row == parameters->count || parameters->row % numbers == 0);
}

static void sides_fill(const struct op_call *call, struct exchange_parameters *parameters) {
  const struct op_task *task = call->task;
  const struct exchange_attributes *attributes = op_attributes(task);
  const struct op_operand *part = &task->operands[part_operand(task)];
  const uint32_t numbers = exchange_numbers(rondo_dtype_bits((rondo_dtype)type_on_the_way(task)));
  struct exchange_side *sides[] = {&parameters->in, &parameters->residual, &parameters->out};
  const uint32_t d = attributes->dimension;
  if (attributes->kind == EXCHANGE_ALL_GATHER)
    parameters->out.step = part->shape[d] * task->operands[EXCHANGE_OUT].stride[d];
  if (attributes->kind == EXCHANGE_REDUCE_SCATTER)
    parameters->in.step = part->shape[d] * task->operands[EXCHANGE_IN].stride[d];
  for (uint32_t s = 0; s < 3; s++) {
    const struct op_operand *operand = &task->operands[s];
    if (!operand->present) continue;
    sides[s]->data = call->data[s];
    sides[s]->dtype = operand->dtype;
    sides[s]->is_whole = is_whole(operand, sides[s], s == EXCHANGE_IN ? parameters->term : 0, parameters, numbers);
  }
}

static const uint64_t default_timeout_ns = UINT64_C(800) * 1000 * 1000;

/* Where the ranks that the task touches have their rows. */
static void rows_fill(const struct op_call *call, struct exchange_parameters *parameters) {
  const struct op_operand *states = call->task->operands + EXCHANGE_STATES;
  const uint32_t rank = parameters->rank;
  const int64_t row_bytes = states[rank].shape[1];
  unsigned char *own = call->data[EXCHANGE_STATES + rank];
  for (uint32_t r = 0; r < parameters->ranks && own; r++) {
    unsigned char *state = states[r].present ? call->data[EXCHANGE_STATES + r] : NULL;
    parameters->here[r] = own + r * row_bytes;
    if (state) parameters->there[r] = state + rank * row_bytes;
  }
}

/* In two steps sums of numbers of 16 bits go as f32 if they are added to a residual, or leave in another type. */
static bool widens(const struct op_task *task) {
  const struct op_operand *in = &task->operands[EXCHANGE_IN], *out = &task->operands[EXCHANGE_OUT];
  return in->dtype != RONDO_F32 && (task->operands[EXCHANGE_RESIDUAL].present || out->dtype != in->dtype);
}

struct exchange_parameters exchange_parameters_of(const struct op_call *call, const struct exchange_choice *choice) {
  const struct op_task *task = call->task;
  const struct exchange_attributes *attributes = op_attributes(task);
  const struct op_operand *in = &task->operands[EXCHANGE_IN], *out = &task->operands[EXCHANGE_OUT];
  const struct op_operand *own = &task->operands[EXCHANGE_STATES + attributes->rank];
  const bool has_terms = attributes->kind == EXCHANGE_ALL_REDUCE && in->rank > out->rank;
  const bool sums = attributes->kind == EXCHANGE_ALL_REDUCE || attributes->kind == EXCHANGE_REDUCE_SCATTER;
  struct exchange_parameters parameters = {
      .fault = (uint64_t *)(void *)call->fault,
      .fault_number = call->fault_number,
      .timeout_ns = attributes->timeout_ns ? attributes->timeout_ns : default_timeout_ns,
      .slot_bytes = (uint64_t)(own->shape[1] - EXCHANGE_HEAD_BYTES - EXCHANGE_GATHER_BYTES) / 2,
      .terms = has_terms ? (uint32_t)in->shape[0] : 1,
      .term = has_terms ? in->stride[0] : 0,
      .vectors = exchange_vectors(task),
      .chunk = choice->chunk,
      .dtype = type_on_the_way(task),
      .rank = attributes->rank,
      .ranks = attributes->ranks,
      .to = exchange_receivers(attributes),
      .from = exchange_senders(attributes),
      .sums = sums,
      .keeps = in->present && out->present,
      .widens = sums && widens(task),
      .early = call->lets_successors_start,
  };
  rows_fill(call, &parameters);
  shape_fill(task, &parameters);
  sides_fill(call, &parameters);
  return parameters;
}

void exchange_sum_step(const struct op_call *call, uint32_t states, uint32_t rank, uint32_t ranks,
                       struct op_step *sum) {
  const struct op_task *task = call->task;
  const struct exchange_attributes attributes = {.kind = EXCHANGE_ALL_REDUCE, .rank = rank, .ranks = ranks};
  op_step_begin(call, &op_all_reduce, EXCHANGE_STATES + ranks, sum);
  memcpy(sum->task.attributes, &attributes, sizeof attributes);
  for (uint32_t r = 0; r < ranks; r++) {
    sum->operands[EXCHANGE_STATES + r] = task->operands[states + r];
    sum->data[EXCHANGE_STATES + r] = call->data[states + r];
  }
}

struct exchange_gather exchange_gather_of(const struct op_call *call, uint32_t states, uint32_t rank, uint32_t ranks) {
  const int64_t row_bytes = call->task->operands[states + rank].shape[1], room = row_bytes - EXCHANGE_GATHER_BYTES;
  struct exchange_gather gather = {.fault = (uint64_t *)(void *)call->fault,
                                   .fault_number = call->fault_number,
                                   .timeout_ns = default_timeout_ns,
                                   .row_bytes = (uint32_t)row_bytes,
                                   .rank = rank,
                                   .ranks = ranks};
  if (!call->data[states + rank]) return gather;
  gather.here = (unsigned char *)call->data[states + rank] + room;
  for (uint32_t r = 0; r < ranks; r++)
    gather.there[r] = (unsigned char *)call->data[states + r] + rank * row_bytes + room;
  return gather;
}

struct exchange_rows exchange_rows_of(const struct op_call *sum, int64_t blocks, int64_t vectors) {
  const struct exchange_parameters p = exchange_parameters_of(sum, &(struct exchange_choice){0});
  struct exchange_rows rows = {.fault = p.fault,
                               .fault_number = p.fault_number,
                               .timeout_ns = p.timeout_ns,
                               .here = p.here[0],
                               .row_bytes = (uint64_t)sum->task->operands[EXCHANGE_STATES + p.rank].shape[1],
                               .slot_bytes = p.slot_bytes,
                               .blocks = (uint32_t)blocks,
                               .vectors = (uint32_t)vectors,
                               .rank = p.rank,
                               .ranks = p.ranks};
  memcpy(rows.there, p.there, sizeof rows.there);
  return rows;
}

/* ---- The choice -------------------------------------------------------------------------------------------------- */

/* The way more of two steps takes about 1.3 us, in which a link moves this many bytes. */
enum { BYTES_OF_A_WAY = 448 * 1024 };

/* As few threads as there are blocks for. 64 with 128 registers each find room beside both halves of a decoder's layer,
 * which then start on time. */
static uint32_t threads_of(int64_t work) {
  uint32_t threads = 64;
  while (threads < EXCHANGE_THREADS && work > (int64_t)threads * EXCHANGE_BLOCKS_MOST) threads *= 2;
  return (uint32_t)larger(32, smaller(threads, round_up(work, 32)));
}

/* All of a sum go over a rank's links ranks - 1 times in one step, and 2 (ranks - 1) / ranks times in two. */
static bool has_two_steps(const struct exchange_attributes *attributes, uint32_t vectors) {
  const int64_t ranks = attributes->ranks, bytes = (int64_t)vectors * EXCHANGE_VECTOR_BYTES;
  return attributes->kind == EXCHANGE_ALL_REDUCE && (ranks - 1) * (ranks - 2) * bytes > ranks * BYTES_OF_A_WAY;
}

static const struct exchange_choice choices[] = {
    {.name = "one step", .why = "each rank's data goes whole to all that need it: one way over the link"},
    {.name = "two steps",
     .why = "each rank sums a part and sends it to all: fewer bytes, which save more than a second way takes"},
};

const struct exchange_choice *exchange_choices(size_t *count) {
  *count = sizeof choices / sizeof *choices;
  return choices;
}

struct exchange_choice exchange_choose(const struct exchange_attributes *attributes, uint32_t vectors) {
  const bool in_two = has_two_steps(attributes, vectors);
  struct exchange_choice choice = choices[in_two];
  if (in_two) choice.chunk = (uint32_t)divide_up(vectors, attributes->ranks);
  const int64_t work = in_two ? choice.chunk : vectors;
  choice.threads = threads_of(work);
  choice.blocks = (uint32_t)larger(1, smaller(EXCHANGE_BLOCKS_MOST, divide_up(work, choice.threads)));
  return choice;
}

EXCHANGE_KERNELS(KERNEL_CONSTANT)
EXCHANGE_SUM_KERNELS(KERNEL_CONSTANT)

rondo_status exchange_select(const struct op_call *call, const struct chip *chip, struct op_launches *launches) {
  (void)chip; /* ranks choose alike */
  struct exchange_choice choice = exchange_choose(op_attributes(call->task), exchange_vectors(call->task));
  const struct exchange_parameters parameters = exchange_parameters_of(call, &choice);
  const bool is_short = parameters.sums && !parameters.in.step && !parameters.chunk &&
                        parameters.row == parameters.count && parameters.in.is_whole && parameters.out.is_whole &&
                        (!parameters.residual.dtype || parameters.residual.is_whole) &&
                        parameters.count % exchange_numbers(rondo_dtype_bits((rondo_dtype)parameters.dtype)) == 0;
  /* Where no other rank needs the room: a thread then has fewer vectors, which it takes one after the other. */
  if (is_short && call->lets_successors_start && parameters.vectors > EXCHANGE_THREADS * EXCHANGE_BLOCKS_MOST)
    choice.threads = EXCHANGE_MOST_THREADS,
    choice.blocks = (uint32_t)smaller(EXCHANGE_BLOCKS_MOST, divide_up(parameters.vectors, choice.threads));
  launches->count = 0;
  launches->choice = choice.name, launches->why = choice.why;
  if (!parameters.count) return RONDO_OK;
  launch_add(launches, is_short ? &rondo_exchange_sum : &rondo_exchange, choice.blocks, choice.threads, 0, &parameters,
             sizeof parameters);
  return RONDO_OK;
}

/* Of its own state a task touches what it reads and clears, of others' what it stores there. On the host, which has one
 * step, nobody asks: rondo_profile takes no exchanges, and pictures of graphs know no backend. */
int64_t exchange_touched_elements(const struct op_task *task, uint32_t operand, rondo_access read_or_write) {
  const struct exchange_attributes *attributes = op_attributes(task);
  if (operand < EXCHANGE_STATES) return op_elements(&task->operands[operand]);
  (void)read_or_write;
  const uint32_t r = operand - EXCHANGE_STATES;
  const struct exchange_choice choice = exchange_choose(attributes, exchange_vectors(task));
  const int64_t chunks = widens(task) ? 3 : 2; /* of numbers, and of sums */
  const int64_t vectors = choice.chunk ? chunks * choice.chunk : exchange_vectors(task);
  const int64_t bytes = vectors * EXCHANGE_VECTOR_BYTES;
  if (r == attributes->rank) return bytes * __builtin_popcount(exchange_senders(attributes));
  return exchange_receivers(attributes) >> r & 1 ? bytes : 0;
}
