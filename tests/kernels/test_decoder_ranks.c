/* test_decoder_ranks.c - layer halves that begin with a sum over ranks: exact sums in replay after replay, which kernel
 * takes the sum, what is refused, and a rank that does not come. Faults that would show: a slot that is read before it
 * was cleared, or cleared while another cluster reads it; a term of another rank in the place of an own one. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/decoder/feed_forward.h"
#include "../../runtime/graph.h"
#include "../../runtime/layer_form.h"
#include "../oracles/ranks.h"

enum { HIDDEN = 2048, COLUMNS = 1024, TERMS = 3, PARTS = 2, RANKS = 2, HALVES = 2, SUM_BYTES = HIDDEN * 4 };

struct halves {
  rondo_tensor x[RANKS], terms[RANKS][HALVES], out[RANKS];
};

/* One feed forward whose matrices are zero: what it writes is x and the sum of all ranks' terms. */
static rondo_status zero_half_add(struct ranks *ranks, uint32_t r, rondo_tensor x, rondo_tensor terms,
                                  rondo_tensor out) {
  rondo_graph *graph = ranks->trials[r].graph;
  const struct layer_exchange exchange = {ranks->exchange, r, ranks->count};
  rondo_feed_forward_desc desc = {.name = "half", .x = x, .x_parts = terms, .out = out, .norm_epsilon = 1e-5f};
  REQUIRE_OK(rondo_state(graph, "gate_up", RONDO_BF16, 2, (int64_t[]){INT64_C(2) * COLUMNS, HIDDEN}, &desc.gate_up));
  REQUIRE_OK(rondo_state(graph, "down", RONDO_BF16, 2, (int64_t[]){HIDDEN, COLUMNS}, &desc.down));
  REQUIRE_OK(rondo_temporary(graph, "parts", RONDO_F32, 3, (int64_t[]){PARTS, 1, HIDDEN}, &desc.out_parts));
  return feed_forward_add(graph, &desc, false, &exchange);
}

static void describe(struct ranks *ranks, rondo_backend backend, struct halves *h) {
  ranks_describe(ranks, backend, RANKS, SUM_BYTES);
  for (uint32_t r = 0; r < RANKS; r++) {
    rondo_graph *graph = ranks->trials[r].graph;
    const int64_t row[] = {1, HIDDEN}, terms[] = {TERMS, 1, HIDDEN};
    rondo_tensor x;
    REQUIRE_OK(rondo_input(graph, "x", RONDO_F32, 2, row, &h->x[r]));
    x = h->x[r];
    for (int i = 0; i < HALVES; i++) {
      const bool is_last = i == HALVES - 1;
      REQUIRE_OK(rondo_input(graph, i ? "more terms" : "terms", RONDO_F32, 3, terms, &h->terms[r][i]));
      REQUIRE_OK((is_last ? rondo_output : rondo_temporary)(graph, is_last ? "out" : "between", RONDO_F32, 2, row,
                                                            &h->out[r]));
      REQUIRE_OK(zero_half_add(ranks, r, x, h->terms[r][i], h->out[r]));
      x = h->out[r];
    }
  }
}

/* In the order of terms, then of ranks, then of halves. */
static float expected_of(const float (*terms)[HALVES][TERMS][HIDDEN], float x, int i) {
  for (int half = 0; half < HALVES; half++) {
    float sum = 0;
    for (int r = 0; r < RANKS; r++) {
      float own = terms[r][half][0][i];
      for (int t = 1; t < TERMS; t++) own += terms[r][half][t][i];
      sum = r ? sum + own : own;
    }
    x += sum;
  }
  return x;
}

static void sums(rondo_backend backend) {
  enum { REPLAYS = 40 };
  static float terms[RANKS][HALVES][TERMS][HIDDEN], x[HIDDEN], out[HIDDEN];
  struct random random = {1234};
  struct ranks ranks;
  struct halves h;
  describe(&ranks, backend, &h);
  ranks_instantiate(&ranks);
  for (uint32_t replay = 0; replay < rounds_here(REPLAYS); replay++) {
    for (int i = 0; i < HIDDEN; i++) x[i] = (float)random_between(&random, -1000, 1000) / 64;
    for (size_t i = 0; i < sizeof terms / sizeof(float); i++)
      ((float *)terms)[i] = (float)random_between(&random, -100000, 100000) / 999;
    for (uint32_t r = 0; r < RANKS; r++) {
      trial_set(&ranks.trials[r], h.x[r], x);
      for (int half = 0; half < HALVES; half++) trial_set(&ranks.trials[r], h.terms[r][half], terms[r][half]);
    }
    if (replay % 4)
      ranks_replay(&ranks);
    else
      ranks_replay_apart(&ranks, &random);
    for (uint32_t r = 0; r < RANKS; r++) {
      trial_get(&ranks.trials[r], h.out[r], out);
      for (int i = 0; i < HIDDEN; i++)
        cr_assert_eq(out[i], expected_of(terms, x[i], i), "replay %u, rank %u, number %d", replay, r, i);
    }
  }
  ranks_end(&ranks);
}
BOTH_BACKENDS(decoder_ranks, halves_begin_with_the_sum_of_all_ranks, sums)

/* ---- Which kernel takes the sum ---------------------------------------------------------------------------------- */

static void task_end(struct ranks *ranks) {
  for (uint32_t r = 0; r < RANKS; r++) {
    REQUIRE_OK(rondo_graph_destroy(&ranks->trials[r].graph));
    REQUIRE_OK(rondo_graph_destroy(&ranks->lenders[r].graph));
  }
}

Test(decoder_ranks, a_kernel_begins_with_the_sum_where_each_rank_has_a_device) {
  static const struct chip chip = {90, 132, 232448};
  struct ranks ranks;
  struct halves h;
  struct op_operand operands[OP_MAX_OPERANDS];
  static struct op_launches launches;
  struct feed_forward_parameters told;
  void *data[OP_MAX_OPERANDS] = {0};
  describe(&ranks, RONDO_BACKEND_HOST, &h);
  struct op_task task = graph_op_task(ranks.trials[1].graph, &ranks.trials[1].graph->tasks[0], operands);
  cr_assert(op_waits(&task));
  struct op_call call = {.task = &task, .data = op_nowhere};
  REQUIRE_OK(task.op->select(&call, &chip, &launches));
  cr_assert_eq(launches.count, 2);
  cr_assert_str_eq(launches.items[0].kernel, "rondo_exchange_sum");
  cr_assert_str_eq(launches.items[1].kernel, "rondo_feed_forward_bf16_few");
  const uint32_t states = task.operand_count - RANKS;
  const int64_t row_bytes = operands[states].shape[1];
  unsigned char *own = malloc((size_t)row_bytes * RANKS), *other = malloc((size_t)row_bytes * RANKS);
  data[states] = other, data[states + 1] = own;
  call.lets_successors_start = true, call.data = data;
  REQUIRE_OK(task.op->select(&call, &chip, &launches));
  cr_assert_eq(launches.count, 1);
  cr_assert_str_eq(launches.items[0].kernel, "rondo_feed_forward_bf16_few_ranks");
  cr_assert_eq(launches.items[0].parameter_bytes, sizeof told);
  memcpy(&told, launches.items[0].parameters, sizeof told);
  cr_assert(told.half.part_count == TERMS && told.exchange.ranks == RANKS && told.exchange.rank == 1);
  cr_assert_eq(told.exchange.here, own + row_bytes - EXCHANGE_GATHER_BYTES, "row 0 of the own state");
  cr_assert_eq(told.exchange.there[0], other + 2 * row_bytes - EXCHANGE_GATHER_BYTES, "row 1 of the other's");
  free(own), free(other);
  task_end(&ranks);
}

Test(decoder_ranks, a_sum_without_terms_or_room_is_refused) {
  struct ranks ranks;
  rondo_tensor x, terms, out;
  ranks_describe(&ranks, RONDO_BACKEND_HOST, RANKS, SUM_BYTES / 8);
  rondo_graph *graph = ranks.trials[0].graph;
  REQUIRE_OK(rondo_input(graph, "x", RONDO_F32, 2, (int64_t[]){1, HIDDEN}, &x));
  REQUIRE_OK(rondo_input(graph, "terms", RONDO_F32, 3, (int64_t[]){TERMS, 1, HIDDEN}, &terms));
  REQUIRE_OK(rondo_output(graph, "out", RONDO_F32, 2, (int64_t[]){1, HIDDEN}, &out));
  REQUIRE_ERROR(zero_half_add(&ranks, 0, x, (rondo_tensor){0}, out), RONDO_INVALID_ARGUMENT,
                "task 0 'half': x_parts is absent, expected a rank's terms of a sum over ranks");
  REQUIRE_ERROR(zero_half_add(&ranks, 0, x, terms, out), RONDO_INVALID_ARGUMENT,
                "task 0 'half': exchange[0] is too small, expected one for at least 8192 bytes");
  cr_assert_eq(graph->task_count, 0);
  task_end(&ranks);
}

/* ---- A rank that does not come ----------------------------------------------------------------------------------- */

Test(decoder_ranks, a_missing_rank_is_named_cuda, OWN_PROCESS) {
  struct ranks ranks;
  struct halves h;
  require_backend(RONDO_BACKEND_CUDA);
  describe(&ranks, RONDO_BACKEND_CUDA, &h);
  ranks_instantiate(&ranks);
  REQUIRE_OK(rondo_replay(ranks.trials[0].slot));
  REQUIRE_ERROR(rondo_wait(ranks.trials[0].slot, UINT64_C(60) * 1000 * 1000 * 1000), RONDO_DEVICE_LOST,
                "task 'half': rank 1 did not come in time");
  task_end(&ranks);
}
