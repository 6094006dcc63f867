/* test_exchange_host.c - the counters by which items of ranks on the host find each other, at times that replays never
 * meet. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/exchange/exchanges.h"

/* An exchange of one item counts in all counters, one after the other, and its peer waits for the first alone. So the
 * peer may begin an exchange of two items while the second counter still has an older count: this is no arrival. */
Test(exchange_host, a_count_of_an_exchange_before_is_no_arrival) {
  enum { VECTORS = 1024, NUMBERS = 4 * VECTORS, SLOT_BYTES = VECTORS * EXCHANGE_VECTOR_BYTES, SECOND = NUMBERS / 2 };
  enum {
    ROW_BYTES = EXCHANGE_HEAD_BYTES + 2 * SLOT_BYTES + EXCHANGE_GATHER_BYTES,
    RANKS = 2,
    BYTES = RANKS * ROW_BYTES
  };
  static float in[NUMBERS], out[NUMBERS];
  unsigned char *states[RANKS];
  struct op_operand operands[EXCHANGE_OPERANDS] = {0};
  void *data[EXCHANGE_OPERANDS] = {[EXCHANGE_IN] = in, [EXCHANGE_OUT] = out};
  const struct op_operand numbers = {.present = true, .dtype = RONDO_F32, .rank = 1, .shape = {NUMBERS}, .stride = {1}};
  operands[EXCHANGE_IN] = operands[EXCHANGE_OUT] = numbers;
  for (int r = 0; r < RANKS; r++) {
    data[EXCHANGE_STATES + r] = states[r] = aligned_alloc(64, BYTES);
    memset(states[r], 0, BYTES);
    operands[EXCHANGE_STATES + r] = (struct op_operand){
        .present = true, .dtype = RONDO_U8, .rank = 2, .shape = {RANKS, ROW_BYTES}, .stride = {ROW_BYTES, 1}};
  }
  struct op_task task = {.op = &op_all_reduce, .operand_count = EXCHANGE_OPERANDS, .operands = operands};
  const struct exchange_attributes attributes = {.kind = EXCHANGE_ALL_REDUCE, .ranks = RANKS, .timeout_ns = 2000000};
  memcpy(task.attributes, &attributes, sizeof attributes);
  _Atomic uint64_t fault = 0;
  const struct op_call call = {.task = &task, .data = data, .fault = &fault, .fault_number = 7};
  cr_assert_eq(exchange_host_items(&task), 2);

  _Atomic uint32_t *mine = (_Atomic uint32_t *)(void *)states[1] + 1; /* of the second item, to rank 1 */
  _Atomic uint32_t *theirs = (_Atomic uint32_t *)(void *)(states[0] + ROW_BYTES) + 1;        /* and from it */
  float *slot = (float *)(void *)(states[0] + ROW_BYTES + EXCHANGE_HEAD_BYTES + SLOT_BYTES); /* of exchange 1 */
  for (int i = 0; i < NUMBERS; i++) in[i] = 1, slot[i] = 2;
  for (uint32_t count = 0; count <= 2; count++) {
    atomic_store(mine, 1), atomic_store(theirs, count), atomic_store(&fault, 0);
    exchange_host_run(&call, 1, 2);
    cr_assert_eq(atomic_load(&fault) == 0, count == 2, "after count %u", count);
    cr_assert_eq(out[SECOND], count == 2 ? 3 : 0);
  }
  for (int i = 0; i < NUMBERS; i++) cr_assert_eq(out[i], i < SECOND ? 0 : 3);
  for (int r = 0; r < RANKS; r++) free(states[r]);
}
