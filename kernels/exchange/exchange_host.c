/* exchange_host.c - the exchanges on the host, in the states and slots of exchanges.h but always in one step, since
 * memory is no link that two steps would relieve. An item is what a block is on a GPU: a range of vectors. It stores
 * its vectors into other ranks' slots, and then counts itself there; it reads a rank's vectors when that rank's item
 * has counted itself here. A rank without data for another counts itself too, so slots that take turns are enough as
 * there. An item waits only for the same item of other ranks, and threads take items in order, so some rank can always
 * go on, however few threads it has. */
#include "exchanges.h"

#include <sched.h>
#include <string.h>

#include "../../runtime/clock.h"
#include "../../runtime/cpu_relax.h"
#include "../../runtime/fault.h"
#include "../../runtime/integer.h"
#include "../common/rows.h"

enum { ITEM_VECTORS = 512, SPINS_BEFORE_YIELD = 64, NUMBERS_MOST = 8 };

/* A vector on the way. */
struct vector {
  unsigned char bytes[EXCHANGE_VECTOR_BYTES];
};

struct item {
  const struct op_call *call;
  const struct exchange_parameters *p;
  uint32_t numbers;                     /* in a vector */
  int64_t index, begin, end;            /* vectors of a part */
  uint32_t before[EXCHANGE_RANKS_MOST]; /* exchanges that the two ranks have had */
};

/* ---- Parts in memory --------------------------------------------------------------------------------------------- */

static int64_t place_of(const struct exchange_parameters *p, const struct exchange_side *side, int64_t index) {
  int64_t row = index / p->row, place = index % p->row;
  for (int i = EXCHANGE_OUTER - 1; i >= 0; row /= p->extent[i--]) place += row % p->extent[i] * side->stride[i];
  return place;
}

/* The numbers of a vector, and back. */
static void vector_numbers(const struct item *item, const struct vector *vector, float numbers[NUMBERS_MOST]) {
  uint16_t halves[NUMBERS_MOST];
  if (item->p->dtype == RONDO_F32) {
    memcpy(numbers, vector, sizeof *vector);
    return;
  }
  memcpy(halves, vector, sizeof *vector);
  rows_load(item->p->dtype, halves, 0, NUMBERS_MOST, numbers);
}

static struct vector vector_of(const struct item *item, const float numbers[NUMBERS_MOST]) {
  uint16_t halves[NUMBERS_MOST];
  struct vector vector;
  if (item->p->dtype == RONDO_F32) {
    memcpy(&vector, numbers, sizeof vector);
    return vector;
  }
  rows_store(item->p->dtype, halves, 0, NUMBERS_MOST, numbers);
  memcpy(&vector, halves, sizeof vector);
  return vector;
}

static uint32_t numbers_here(const struct item *item, int64_t vector) {
  return (uint32_t)smaller(item->numbers, item->p->count - vector * item->numbers);
}

/* The numbers of a vector that lie side by side from number `i` on: all, or one. */
static uint32_t run_of(const struct item *item, const struct exchange_side *side, int64_t vector) {
  const uint32_t count = numbers_here(item, vector);
  return side->is_whole && count == item->numbers ? count : 1;
}

/* A vector of a side, from `begin` on, and back. */
static void side_load(const struct item *item, const struct exchange_side *side, int64_t begin, int64_t vector,
                      float numbers[NUMBERS_MOST]) {
  const uint32_t run = run_of(item, side, vector);
  for (uint32_t i = 0; i < numbers_here(item, vector); i += run)
    rows_load(side->dtype, side->data, begin + place_of(item->p, side, vector * item->numbers + i), run, numbers + i);
}

static void side_store(const struct item *item, const struct exchange_side *side, int64_t vector,
                       const float numbers[NUMBERS_MOST]) {
  const uint32_t run = run_of(item, side, vector);
  for (uint32_t i = 0; i < numbers_here(item, vector); i += run)
    rows_store(side->dtype, side->data, place_of(item->p, side, vector * item->numbers + i), run, numbers + i);
}

/* Vector number `vector` of the part of `rank`, with zeros after the part's end. */
static struct vector load(const struct item *item, uint32_t rank, int64_t vector) {
  const struct exchange_parameters *p = item->p;
  const size_t size = EXCHANGE_VECTOR_BYTES / item->numbers;
  const int64_t begin = rank * p->in.step;
  struct vector loaded = {{0}};
  if (p->terms > 1) {
    float sums[NUMBERS_MOST] = {0}, term[NUMBERS_MOST] = {0};
    side_load(item, &p->in, begin, vector, sums);
    for (uint32_t t = 1; t < p->terms; t++) {
      side_load(item, &p->in, begin + t * p->term, vector, term);
      for (uint32_t i = 0; i < item->numbers; i++) sums[i] += term[i];
    }
    return vector_of(item, sums);
  }
  const uint32_t run = run_of(item, &p->in, vector);
  for (uint32_t i = 0; i < numbers_here(item, vector); i += run) {
    const int64_t at = begin + place_of(p, &p->in, vector * item->numbers + i);
    memcpy(loaded.bytes + i * size, (const unsigned char *)p->in.data + (size_t)at * size, run * size);
  }
  return loaded;
}

/* A vector of another rank to its place in out. */
static void place(const struct item *item, uint32_t rank, int64_t vector, const struct vector *numbers) {
  const struct exchange_parameters *p = item->p;
  const size_t size = EXCHANGE_VECTOR_BYTES / item->numbers;
  const uint32_t run = run_of(item, &p->out, vector);
  for (uint32_t i = 0; i < numbers_here(item, vector); i += run) {
    const int64_t at = rank * p->out.step + place_of(p, &p->out, vector * item->numbers + i);
    memcpy((unsigned char *)p->out.data + (size_t)at * size, numbers->bytes + i * size, run * size);
  }
}

/* Sums to out, after the residual. */
static void finish(const struct item *item, int64_t vector, const float sums[NUMBERS_MOST]) {
  const struct exchange_parameters *p = item->p;
  float values[NUMBERS_MOST] = {0};
  if (p->residual.data) {
    side_load(item, &p->residual, 0, vector, values);
    for (uint32_t i = 0; i < item->numbers; i++) values[i] += sums[i];
  }
  side_store(item, &p->out, vector, p->residual.data ? values : sums);
}

/* ---- Between ranks ----------------------------------------------------------------------------------------------- */

static _Atomic uint32_t *counter(unsigned char *row, int64_t index) { return (_Atomic uint32_t *)(void *)row + index; }

/* The vectors of the exchange with rank r in a row. */
static struct vector *slot(const struct item *item, unsigned char *row, uint32_t r) {
  return (void *)(row + EXCHANGE_HEAD_BYTES + (item->before[r] & 1) * item->p->slot_bytes);
}

/* Waits until the item of another rank has counted itself; false: the time is over, and the fault is stored. A counter
 * may still be one behind: an exchange of fewer items stores it after the one that its peer has waited for. */
static bool await(const struct item *item, uint32_t from) {
  uint64_t begin = 0;
  for (uint32_t spins = 1;; spins++) {
    const uint32_t count = atomic_load_explicit(counter(item->p->here[from], item->index), memory_order_acquire);
    if ((int32_t)(count - item->before[from]) > 0) return true;
    cpu_relax();
    if (spins % SPINS_BEFORE_YIELD) continue;
    sched_yield();
    if (!begin) begin = now_ns();
    if (now_ns() - begin < item->p->timeout_ns) continue;
    atomic_store(item->call->fault, fault_word(item->call->fault_number, from));
    return false;
  }
}

/* ---- An item ----------------------------------------------------------------------------------------------------- */

static bool has(uint32_t ranks, uint32_t rank) { return ranks >> rank & 1; }

static void send(const struct item *item, int64_t items) {
  const struct exchange_parameters *p = item->p;
  for (uint32_t r = 0; r < p->ranks; r++) {
    for (int64_t i = item->begin; has(p->to, r) && i < item->end; i++) slot(item, p->there[r], r)[i] = load(item, r, i);
    for (int64_t i = item->index; has(p->to | p->from, r) && i < EXCHANGE_BLOCKS_MOST; i += items)
      atomic_store_explicit(counter(p->there[r], i), item->before[r] + 1, memory_order_release);
  }
}

/* The sum of the ranks' vectors number `index` of a slot; `own` is this rank's. */
static void sum(const struct item *item, int64_t index, const struct vector *own) {
  const struct exchange_parameters *p = item->p;
  float sums[NUMBERS_MOST] = {0}, numbers[NUMBERS_MOST];
  for (uint32_t r = 0; r < p->ranks; r++) {
    vector_numbers(item, r == p->rank ? own : slot(item, p->here[r], r) + index, numbers);
    for (uint32_t i = 0; i < item->numbers; i++) sums[i] = r ? sums[i] + numbers[i] : numbers[i];
  }
  finish(item, index, sums);
}

static void receive(const struct item *item) {
  const struct exchange_parameters *p = item->p;
  for (int64_t i = item->begin; i < item->end; i++) {
    struct vector own = {{0}};
    if (p->keeps) own = load(item, p->rank, i);
    if (p->sums) {
      sum(item, i, &own);
      continue;
    }
    if (p->keeps) place(item, p->rank, i, &own);
    for (uint32_t r = 0; r < p->ranks; r++)
      if (has(p->from, r)) place(item, r, i, slot(item, p->here[r], r) + i);
  }
}

static int64_t item_count(int64_t vectors) { return smaller(divide_up(vectors, ITEM_VECTORS), EXCHANGE_BLOCKS_MOST); }

static void item_run(const struct op_call *call, const struct exchange_parameters *p, int64_t index) {
  const int64_t count = item_count(p->vectors), length = divide_up(p->vectors, count);
  const uint32_t others = p->to | p->from;
  struct item item = {.call = call,
                      .p = p,
                      .numbers = exchange_numbers(p->dtype == RONDO_F32 ? 32 : 16),
                      .index = index,
                      .begin = index * length,
                      .end = smaller((index + 1) * length, p->vectors)};
  for (uint32_t r = 0; r < p->ranks; r++)
    if (has(others, r)) item.before[r] = atomic_load_explicit(counter(p->there[r], index), memory_order_relaxed);
  send(&item, count);
  for (uint32_t r = 0; r < p->ranks; r++)
    if (has(others, r) && !await(&item, r)) return;
  receive(&item);
}

int64_t exchange_host_items(const struct op_task *task) { return item_count(exchange_vectors(task)); }

/* Ranks share the cores, and one of them may compute for seconds. */
static const uint64_t host_timeout_ns = UINT64_C(60) * 1000 * 1000 * 1000;

void exchange_host_run(const struct op_call *call, int64_t first, int64_t last) {
  const struct exchange_attributes *attributes = op_attributes(call->task);
  struct exchange_parameters parameters = exchange_parameters_of(call, &(struct exchange_choice){0});
  if (!attributes->timeout_ns) parameters.timeout_ns = host_timeout_ns;
  for (int64_t index = first; index < last && !atomic_load(call->fault); index++) item_run(call, &parameters, index);
}
