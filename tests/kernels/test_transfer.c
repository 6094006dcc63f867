/* test_transfer.c - the small inputs and outputs that one kernel moves together: every byte arrives, none beside it is
 * touched, in replay after replay; and the grid of that kernel. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../kernels/copy/transfer.h"
#include "../support.h"

/* In bytes: none, parts of a vector, of a block, several blocks, the most. Eleven: a full group and a part of one. */
static const int64_t sizes[] = {1, 65536, 0, 15, 16, 17, 4095, 4096, 4097, 65521, 256};
enum { SIZES = sizeof sizes / sizeof *sizes, REPLAYS = 100, GUARD = 0xa5 };

/* A slot's tensors begin at multiples of 256 bytes. */
static size_t padding_of(int64_t bytes) { return (size_t)(-bytes & 255); }

static void fill(struct random *random, unsigned char *bytes, int64_t count) {
  for (int64_t i = 0; i < count; i++) bytes[i] = (unsigned char)random_bits(random);
}

/* Each input is read by two tasks, each output read back by one, so that none is used in place. */
static void arrives_whole(rondo_backend backend) {
  static unsigned char sent[SIZES][65536], kept[65536];
  rondo_tensor in[SIZES], out[SIZES], state[SIZES], again[SIZES];
  struct random random = {9};
  struct trial trial;
  trial_describe(&trial, backend);
  for (int i = 0; i < SIZES; i++) {
    REQUIRE_OK(rondo_input(trial.graph, "in", RONDO_U8, 1, &sizes[i], &in[i]));
    REQUIRE_OK(rondo_output(trial.graph, "out", RONDO_U8, 1, &sizes[i], &out[i]));
    REQUIRE_OK(rondo_state(trial.graph, "state", RONDO_U8, 1, &sizes[i], &state[i]));
    REQUIRE_OK(rondo_state(trial.graph, "again", RONDO_U8, 1, &sizes[i], &again[i]));
    REQUIRE_OK(rondo_add_copy(trial.graph, &(rondo_copy_desc){.src = in[i], .dst = out[i]}));
    REQUIRE_OK(rondo_add_copy(trial.graph, &(rondo_copy_desc){.src = in[i], .dst = state[i]}));
    REQUIRE_OK(rondo_add_copy(trial.graph, &(rondo_copy_desc){.src = out[i], .dst = again[i]}));
  }
  trial_instantiate(&trial);
  for (int replay = 0; replay < REPLAYS; replay++) {
    for (int i = 0; i < SIZES; i++) {
      unsigned char *to = rondo_data(trial.slot, in[i]), *from = rondo_data(trial.slot, out[i]);
      fill(&random, sent[i], sizes[i]);
      memcpy(to, sent[i], (size_t)sizes[i]);
      memset(to + sizes[i], GUARD + 1, padding_of(sizes[i]));
      memset(from, GUARD, (size_t)sizes[i] + padding_of(sizes[i]));
    }
    trial_replay(&trial);
    for (int i = 0; i < SIZES; i++) {
      const unsigned char *got = trial_output(&trial, out[i]);
      cr_assert(memcmp(got, sent[i], (size_t)sizes[i]) == 0, "%d bytes, replay %d", (int)sizes[i], replay);
      for (size_t b = 0; b < padding_of(sizes[i]); b++)
        cr_assert_eq(got[(size_t)sizes[i] + b], GUARD, "%d bytes, replay %d: byte %zu behind the end was written",
                     (int)sizes[i], replay, b);
    }
  }
  for (int i = 0; i < SIZES; i++)
    for (int which = 0; which < 2; which++) {
      trial_get(&trial, which ? again[i] : state[i], kept);
      cr_assert(memcmp(kept, sent[i], (size_t)sizes[i]) == 0, "%d bytes on the device", (int)sizes[i]);
    }
  trial_end(&trial);
}

BOTH_BACKENDS(transfer, moves_every_byte_and_none_beside, arrives_whole)

/* ---- The operation by itself ------------------------------------------------------------------------------------- */

static struct op_task task_of(const int64_t *bytes, uint32_t count) {
  static struct op_operand operands[OP_MAX_OPERANDS];
  struct op_task task = {.op = &op_transfer, .name = "transfer", .operand_count = 2 * count, .operands = operands};
  for (uint32_t i = 0; i < 2 * count; i++)
    task.operands[i] = (struct op_operand){
        .present = true, .dtype = RONDO_U8, .rank = 2, .shape = {1, bytes[i / 2]}, .stride = {bytes[i / 2], 1}};
  return task;
}

Test(transfer, a_block_for_each_4_kb_and_none_for_nothing) {
  static const int64_t bytes[] = {0, 1, 4096, 4097, 0, 65536, 0};
  static const uint32_t first_block[] = {0, 0, 1, 2, 4, 4, 20};
  struct op_task task = task_of(bytes, 7);
  void *data[OP_MAX_OPERANDS] = {0};
  struct op_call call = {.task = &task, .data = data};
  struct op_launches launches;
  struct transfer_parameters parameters;
  REQUIRE_OK(op_transfer.select(&call, &(struct chip){90, 132, 0}, &launches));
  cr_assert_eq(launches.count, 1);
  cr_assert_eq(launches.items[0].grid[0], 20);
  cr_assert_eq(launches.items[0].block[0], COPY_THREADS);
  memcpy(&parameters, launches.items[0].parameters, sizeof parameters);
  for (int i = 0; i < 7; i++) {
    cr_assert_eq(parameters.segments[i].bytes, bytes[i]);
    cr_assert_eq(parameters.segments[i].first_block, first_block[i]);
  }
  cr_assert_eq(parameters.segments[7].first_block, UINT32_MAX);
  task = task_of((int64_t[]){0, 0}, 2);
  REQUIRE_OK(op_transfer.select(&call, &(struct chip){90, 132, 0}, &launches));
  cr_assert_eq(launches.count, 0);
  cr_assert_eq(op_transfer.host_items(&task), 0);
}

Test(transfer, on_the_host_any_division_into_items_gives_the_same) {
  static unsigned char from[8][65536], to[8][65536];
  static const int64_t bytes[] = {65536, 1, 65535, 0, 40000, 65536, 17, 65536};
  struct op_task task = task_of(bytes, 8);
  void *data[OP_MAX_OPERANDS] = {0};
  struct op_call call = {.task = &task, .data = data};
  struct random random = {10};
  for (size_t i = 0; i < 8; i++) {
    data[2 * i] = from[i];
    data[2 * i + 1] = to[i];
    fill(&random, from[i], bytes[i]);
  }
  int64_t items = op_transfer.host_items(&task);
  cr_assert_eq(items, 5);
  for (int64_t step = 1; step <= items; step++) {
    memset(to, 0, sizeof to);
    for (int64_t first = items - 1; first >= 0; first--)
      if (first % step == 0) op_transfer.host_run(&call, first, first + step < items ? first + step : items);
    for (int i = 0; i < 8; i++) {
      cr_assert_arr_eq(to[i], from[i], (size_t)bytes[i], "tensor %d in steps of %d", i, (int)step);
      for (size_t b = (size_t)bytes[i]; b < sizeof to[i]; b++) cr_assert_eq(to[i][b], 0);
    }
  }
}
