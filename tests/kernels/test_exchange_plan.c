/* test_exchange_plan.c - how an exchange goes: one step or two, blocks, and the kernel, for `rondo explain` too. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../kernels/exchange/exchanges.h"
#include "../../runtime/graph.h"
#include "../oracles/ranks.h"

static struct exchange_choice choice_of(enum exchange_kind kind, uint32_t rank, uint32_t ranks, int64_t bytes) {
  const struct exchange_attributes attributes = {.kind = kind, .rank = rank, .ranks = ranks};
  return exchange_choose(&attributes, (uint32_t)(bytes / EXCHANGE_VECTOR_BYTES));
}

Test(exchange_plan, two_steps_where_they_save_more_than_a_way_takes) {
  static const struct {
    uint32_t ranks;
    int64_t one, two; /* the most bytes of one step, the fewest of two */
  } borders[] = {{3, 688128, 688144}, {4, 305824, 305840}, {8, 87376, 87392}};
  for (int i = 0; i < 3; i++) {
    const uint32_t ranks = borders[i].ranks;
    cr_assert_str_eq(choice_of(EXCHANGE_ALL_REDUCE, 0, ranks, borders[i].one).name, "one step");
    const struct exchange_choice two = choice_of(EXCHANGE_ALL_REDUCE, 0, ranks, borders[i].two);
    cr_assert_str_eq(two.name, "two steps");
    cr_assert_geq((int64_t)two.chunk * ranks * EXCHANGE_VECTOR_BYTES, borders[i].two);
    cr_assert_str_eq(choice_of(EXCHANGE_REDUCE_SCATTER, 0, ranks, borders[i].two).name, "one step");
  }
  cr_assert_str_eq(choice_of(EXCHANGE_ALL_REDUCE, 0, 2, 1 << 26).name, "one step");
}

/* All ranks have the same blocks: one waits for the same one of the others. */
Test(exchange_plan, ranks_choose_alike) {
  for (uint32_t ranks = 1; ranks <= RONDO_MAX_RANKS; ranks++)
    for (int64_t bytes = EXCHANGE_VECTOR_BYTES; bytes <= 1 << 26; bytes = bytes * 3 / 2 + 16) {
      const struct exchange_choice first = choice_of(EXCHANGE_ALL_REDUCE, 0, ranks, bytes);
      cr_assert(first.blocks >= 1 && first.blocks <= EXCHANGE_BLOCKS_MOST && first.threads <= EXCHANGE_THREADS);
      cr_assert(first.threads % 32 == 0 && first.why);
      for (uint32_t rank = 1; rank < ranks; rank++) {
        const struct exchange_choice other = choice_of(EXCHANGE_ALL_REDUCE, rank, ranks, bytes);
        cr_assert(other.blocks == first.blocks && other.threads == first.threads && other.chunk == first.chunk);
      }
    }
}

static void require_explained(rondo_graph *graph, const char *fragment) {
  char path[] = "/tmp/rondo-exchange-XXXXXX", text[2048];
  int file = mkstemp(path);
  cr_assert_geq(file, 0);
  REQUIRE_OK(rondo_explain(graph, 90, path));
  FILE *report = fopen(path, "r");
  text[fread(text, 1, sizeof text - 1, report)] = 0;
  fclose(report), close(file), remove(path);
  cr_assert_not_null(strstr(text, fragment), "no %s in\n%s", fragment, text);
}

/* Columns [first, 64) of 4 rows of bf16, on rank 0 of `ranks`. */
static void require_kernel(int64_t first, int64_t rows, uint32_t ranks_count, const char *fragment) {
  struct ranks ranks;
  rondo_tensor in, out, view;
  ranks_describe(&ranks, RONDO_BACKEND_HOST, ranks_count, 1 << 24);
  rondo_graph *graph = ranks.trials[0].graph;
  REQUIRE_OK(rondo_state(graph, "in", RONDO_BF16, 2, (int64_t[]){rows, 64}, &in));
  REQUIRE_OK(rondo_state(graph, "out", RONDO_BF16, 2, (int64_t[]){rows, 64 - first}, &out));
  REQUIRE_OK(rondo_view(graph, in, (int64_t[]){0, first}, (int64_t[]){rows, 64 - first}, &view));
  REQUIRE_OK(rondo_add_all_reduce(
      graph, &(rondo_exchange_desc){.in = view, .out = out, .exchange = ranks.exchange, .ranks = ranks_count}));
  require_explained(graph, fragment);
  ranks_end(&ranks);
}

Test(exchange_plan, explain_names_kernel_and_reason) {
  require_kernel(0, 32, 2, "rondo_exchange_sum grid 4x1x1 block 64x1x1");
  require_kernel(0, 32, 2, "one step: each rank's data goes whole");
  require_kernel(3, 32, 2, "rondo_exchange grid");
  require_kernel(0, 16384, 4, "rondo_exchange grid 128x1x1 block 256x1x1");
  require_kernel(0, 16384, 4, "two steps: each rank sums a part");
}

/* What a decoder's layer half leaves. */
Test(exchange_plan, terms_take_the_short_kernel) {
  struct ranks ranks;
  rondo_tensor in, out;
  ranks_describe(&ranks, RONDO_BACKEND_HOST, 2, 1 << 16);
  rondo_graph *graph = ranks.trials[0].graph;
  REQUIRE_OK(rondo_state(graph, "in", RONDO_F32, 3, (int64_t[]){8, 1, 2048}, &in));
  REQUIRE_OK(rondo_state(graph, "out", RONDO_F32, 2, (int64_t[]){1, 2048}, &out));
  REQUIRE_OK(rondo_add_all_reduce(
      graph, &(rondo_exchange_desc){.in = in, .out = out, .exchange = ranks.exchange, .ranks = 2}));
  require_explained(graph, "rondo_exchange_sum grid 8x1x1");
  ranks_end(&ranks);
}

/* So a thread has one vector of 1 MB too. Blocks of ranks that share a device would not all fit. */
Test(exchange_plan, blocks_are_larger_where_each_rank_has_a_device) {
  static const struct chip chip = {90, 132, 232448};
  static const int64_t numbers[] = {1 << 18, 1 << 19};
  static struct op_launches launches;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    for (int alone = 0; alone < 2; alone++) {
      struct ranks ranks;
      struct op_operand operands[OP_MAX_OPERANDS];
      rondo_tensor in, out;
      ranks_describe(&ranks, RONDO_BACKEND_HOST, 2, 1 << 20);
      rondo_graph *graph = ranks.trials[0].graph;
      REQUIRE_OK(rondo_state(graph, "in", RONDO_BF16, 1, &numbers[i], &in));
      REQUIRE_OK(rondo_state(graph, "out", RONDO_BF16, 1, &numbers[i], &out));
      REQUIRE_OK(rondo_add_all_reduce(
          graph, &(rondo_exchange_desc){.in = in, .out = out, .exchange = ranks.exchange, .ranks = 2}));
      struct op_task task = graph_op_task(graph, &graph->tasks[0], operands);
      REQUIRE_OK(task.op->select(&(struct op_call){.task = &task, .data = op_nowhere, .lets_successors_start = alone},
                                 &chip, &launches));
      cr_assert_str_eq(launches.items[0].kernel, "rondo_exchange_sum");
      cr_assert_eq(launches.items[0].block[0], i && alone ? 512 : 256);
      cr_assert_eq(launches.items[0].grid[0], 128);
      ranks_end(&ranks);
    }
}
