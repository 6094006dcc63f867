/* exchange_host.c - the exchanges on the host, by the protocol of the kernels (exchanges.h), always in one step: memory
 * is no link that two steps would relieve, and both give the same bits. An item is what a block is on a GPU: a range of
 * vectors, with counters of its own. An item waits only for the same item of other ranks, and threads take items in
 * order, so some rank can always go on, however few threads it has. */
#include "exchanges.h"

#include <sched.h>
#include <string.h>

#include "../../runtime/clock.h"
#include "../../runtime/cpu_relax.h"
#include "../../runtime/fault.h"
#include "../../runtime/integer.h"
#include "../common/rows.h"

enum { ITEM_VECTORS = 512, SPINS_BEFORE_YIELD = 64, NUMBERS_MOST = 8 };

/* A vector on the way, or a part of a side as words. */
struct vector {
  uint32_t words[EXCHANGE_VECTOR_BYTES / 4];
};

struct item {
  const struct op_call *call;
  const struct exchange_parameters *p;
  uint32_t numbers;   /* in a vector */
  uint32_t turns;     /* bit r: the slot of the exchange with rank r */
  int64_t begin, end; /* vectors of a part */
};

/* ---- Parts in memory --------------------------------------------------------------------------------------------- */

static int64_t place_of(const struct exchange_parameters *p, const struct exchange_side *side, int64_t index) {
  int64_t row = index / p->row, place = index % p->row;
  for (int i = EXCHANGE_OUTER - 1; i >= 0; row /= p->extent[i--]) place += row % p->extent[i] * side->stride[i];
  return place;
}

/* The numbers of a vector as its words hold them, and back. */
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

/* A word with all bits set is another NaN on its way. A rank takes its own numbers as the others get them, so that all
 * ranks have the same bits. */
static struct vector as_sent(struct vector vector) {
  for (int i = 0; i < EXCHANGE_VECTOR_BYTES / 4; i++)
    if (vector.words[i] == UINT32_MAX) vector.words[i] = UINT32_C(0x7fff7fff);
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
    return as_sent(vector_of(item, sums));
  }
  const uint32_t run = run_of(item, &p->in, vector);
  for (uint32_t i = 0; i < numbers_here(item, vector); i += run) {
    const int64_t at = begin + place_of(p, &p->in, vector * item->numbers + i);
    memcpy((unsigned char *)&loaded + i * size, (const unsigned char *)p->in.data + (size_t)at * size, run * size);
  }
  return as_sent(loaded);
}

/* A vector of another rank to its place in out. */
static void place(const struct item *item, uint32_t rank, int64_t vector, const struct vector *words) {
  const struct exchange_parameters *p = item->p;
  const size_t size = EXCHANGE_VECTOR_BYTES / item->numbers;
  const uint32_t run = run_of(item, &p->out, vector);
  for (uint32_t i = 0; i < numbers_here(item, vector); i += run) {
    const int64_t at = rank * p->out.step + place_of(p, &p->out, vector * item->numbers + i);
    memcpy((unsigned char *)p->out.data + (size_t)at * size, (const unsigned char *)words + i * size, run * size);
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

/* ---- Words between ranks ----------------------------------------------------------------------------------------- */

static _Atomic uint32_t *counter(const struct exchange_parameters *p, uint32_t from, int64_t index) {
  return (_Atomic uint32_t *)(void *)p->here[from] + index;
}

/* Vector number `index` of the slot in a row, of the exchange with rank r. */
static _Atomic uint32_t *slot(const struct item *item, unsigned char *row, uint32_t r, int64_t index) {
  const uint64_t turn = item->turns >> r & 1;
  return (_Atomic uint32_t *)(void *)(row + EXCHANGE_HEAD_BYTES + turn * item->p->slot_bytes +
                                      (uint64_t)index * EXCHANGE_VECTOR_BYTES);
}

static void push(const struct item *item, uint32_t to, int64_t index, const struct vector *vector) {
  _Atomic uint32_t *there = slot(item, item->p->there[to], to, index);
  for (int i = 0; i < EXCHANGE_VECTOR_BYTES / 4; i++)
    atomic_store_explicit(&there[i], ~vector->words[i], memory_order_release);
}

/* Waits for a word that is not zero; 0: the time is over, and the fault is stored. */
static uint32_t await(const struct item *item, uint32_t from, const _Atomic uint32_t *here) {
  uint64_t begin = 0;
  for (uint32_t spins = 1;; spins++) {
    const uint32_t word = atomic_load_explicit(here, memory_order_acquire);
    if (word) return word;
    cpu_relax();
    if (spins % SPINS_BEFORE_YIELD) continue;
    sched_yield();
    if (!begin) begin = now_ns();
    if (now_ns() - begin < item->p->timeout_ns) continue;
    atomic_store(item->call->fault, fault_word(item->call->fault_number, from));
    return 0;
  }
}

/* Takes a vector from a slot; false: it did not come. */
static bool pull(const struct item *item, uint32_t from, int64_t index, struct vector *vector) {
  _Atomic uint32_t *here = slot(item, item->p->here[from], from, index);
  for (int i = 0; i < EXCHANGE_VECTOR_BYTES / 4; i++) {
    const uint32_t word = await(item, from, &here[i]);
    if (!word) return false;
    vector->words[i] = ~word;
    atomic_store_explicit(&here[i], 0, memory_order_relaxed);
  }
  return true;
}

/* ---- An item ----------------------------------------------------------------------------------------------------- */

static bool has(uint32_t ranks, uint32_t rank) { return ranks >> rank & 1; }

/* The sum of the ranks' vectors number `index` of a slot; `own` is this rank's. */
static bool sum(const struct item *item, int64_t index, const struct vector *own, float sums[NUMBERS_MOST]) {
  const struct exchange_parameters *p = item->p;
  for (uint32_t r = 0; r < p->ranks; r++) {
    struct vector vector = *own;
    float numbers[NUMBERS_MOST];
    if (r != p->rank && !pull(item, r, index, &vector)) return false;
    vector_numbers(item, &vector, numbers);
    for (uint32_t i = 0; i < item->numbers; i++) sums[i] = r ? sums[i] + numbers[i] : numbers[i];
  }
  return true;
}

static bool exchange(const struct item *item) {
  const struct exchange_parameters *p = item->p;
  for (int64_t i = item->begin; i < item->end; i++)
    for (uint32_t r = 0; r < p->ranks; r++) {
      if (!has(p->to, r)) continue;
      const struct vector vector = load(item, r, i);
      push(item, r, i, &vector);
    }
  for (int64_t i = item->begin; i < item->end; i++) {
    struct vector own = {{0}};
    float sums[NUMBERS_MOST] = {0};
    if (p->keeps) own = load(item, p->rank, i);
    if (p->sums) {
      if (!sum(item, i, &own, sums)) return false;
      finish(item, i, sums);
      continue;
    }
    if (p->keeps) place(item, p->rank, i, &own);
    for (uint32_t r = 0; r < p->ranks; r++) {
      if (!has(p->from, r)) continue;
      if (!pull(item, r, i, &own)) return false;
      place(item, r, i, &own);
    }
  }
  return true;
}

/* Ranks between which data goes one way alone: the other way goes one word, when an exchange begins. */
static void say_hello(const struct item *item) {
  for (uint32_t r = 0; r < item->p->ranks; r++)
    if (has(item->p->from & ~item->p->to, r)) push(item, r, 0, &(struct vector){{0}});
}

static bool hear_hello(const struct item *item) {
  struct vector hello;
  for (uint32_t r = 0; r < item->p->ranks; r++)
    if (has(item->p->to & ~item->p->from, r) && !pull(item, r, 0, &hello)) return false;
  return true;
}

static int64_t item_count(int64_t vectors) { return smaller(divide_up(vectors, ITEM_VECTORS), EXCHANGE_BLOCKS_MOST); }

static void item_run(const struct op_call *call, const struct exchange_parameters *p, int64_t index) {
  const int64_t count = item_count(p->vectors), length = divide_up(p->vectors, count);
  const uint32_t others = p->to | p->from;
  struct item item = {.call = call,
                      .p = p,
                      .numbers = exchange_numbers(p->dtype == RONDO_F32 ? 32 : 16),
                      .begin = index * length,
                      .end = smaller((index + 1) * length, p->vectors)};
  for (uint32_t r = 0; r < p->ranks; r++)
    if (has(others, r)) item.turns |= (atomic_load_explicit(counter(p, r, index), memory_order_relaxed) & 1) << r;
  if (index == 0) say_hello(&item);
  if (!exchange(&item) || (index == 0 && !hear_hello(&item))) return;
  for (uint32_t r = 0; r < p->ranks; r++)
    for (int64_t i = index; has(others, r) && i < EXCHANGE_BLOCKS_MOST; i += count)
      atomic_fetch_add_explicit(counter(p, r, i), 1, memory_order_relaxed);
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
