/* test_gemv_ranks.c - products that are added over ranks as one task: exact sums in replay after replay, which kernel
 * ends with the sum, what is refused, and a rank that does not come. Faults that would show: a result in another
 * rank's place or slot, a number of the sum before, a residual that every rank adds, sums that are read before all
 * have come. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/exchange/exchanges.h"
#include "../../kernels/gemv/gemv_quads.h"
#include "../../runtime/graph.h"
#include "../../runtime/layer_form.h"
#include "../oracles/ranks.h"

enum { MOST_RANKS = 3, PRODUCTS = 3, ROWS = 1024, MOST_K = 7168, SUM_BYTES = ROWS * 4, NUMBERS = 12 };

/* In a chain: rows of two vectors a tile, rows of one vector, and small ones that no kernel with a sum takes. */
static const struct { int64_t rows, k; } sizes[PRODUCTS] = {{ROWS, 2048}, {ROWS, MOST_K}, {ROWS, 96}};

struct products {
  rondo_tensor x[MOST_RANKS][PRODUCTS], weights[MOST_RANKS][PRODUCTS], residual[MOST_RANKS], out[MOST_RANKS];
};

/* The residual of the first is f32, of the others the result before. */
static void describe(struct ranks *ranks, rondo_backend backend, uint32_t count, struct products *p) {
  ranks_describe(ranks, backend, count, SUM_BYTES);
  for (uint32_t r = 0; r < count; r++) {
    rondo_graph *graph = ranks->trials[r].graph;
    const struct layer_exchange exchange = {.states = ranks->exchange, .rank = r, .ranks = count};
    const int64_t row[] = {1, ROWS};
    REQUIRE_OK(rondo_input(graph, "residual", RONDO_F32, 2, row, &p->residual[r]));
    rondo_tensor before = p->residual[r];
    for (int i = 0; i < PRODUCTS; i++) {
      const int64_t x[] = {1, sizes[i].k}, weights[] = {sizes[i].rows, sizes[i].k};
      char name[16];
      snprintf(name, sizeof name, "x%d", i);
      REQUIRE_OK(rondo_input(graph, name, RONDO_BF16, 2, x, &p->x[r][i]));
      snprintf(name, sizeof name, "weights%d", i);
      REQUIRE_OK(rondo_constant(graph, name, RONDO_BF16, 2, weights, &p->weights[r][i]));
      snprintf(name, sizeof name, "out%d", i);
      REQUIRE_OK((i + 1 < PRODUCTS ? rondo_temporary : rondo_output)(graph, name, RONDO_F32, 2, row, &p->out[r]));
      REQUIRE_OK(summed_product_add(graph,
                                    &(rondo_gemv_desc){.name = "product",
                                                       .weights = p->weights[r][i],
                                                       .vectors = p->x[r][i],
                                                       .residual = before,
                                                       .out = p->out[r]},
                                    &exchange));
      before = p->out[r];
    }
  }
}

/* Small whole numbers, so that any order of a product's sums is exact. */
static int weight_of(uint32_t rank, int product, int64_t row, int64_t column) {
  return (int)((row * 7 + column * 5 + row * column % 11 + INT64_C(3) * rank + product) % 7) - 3;
}

static void upload(struct ranks *ranks, struct products *p) {
  uint16_t *weights = malloc((size_t)ROWS * MOST_K * sizeof *weights);
  for (uint32_t r = 0; r < ranks->count; r++)
    for (int i = 0; i < PRODUCTS; i++) {
      for (int64_t row = 0; row < sizes[i].rows; row++)
        for (int64_t k = 0; k < sizes[i].k; k++)
          weights[row * sizes[i].k + k] = oracle_to_bf16(weight_of(r, i, row, k));
      trial_set(&ranks->trials[r], p->weights[r][i], weights);
    }
  free(weights);
}

/* Some numbers of each rank's vectors are not zero. */
static void set_vectors(struct ranks *ranks, struct products *p, struct random *random,
                        int (*numbers)[PRODUCTS][NUMBERS][2]) {
  static uint16_t x[MOST_K];
  for (uint32_t r = 0; r < ranks->count; r++)
    for (int i = 0; i < PRODUCTS; i++) {
      memset(x, 0, sizeof x);
      for (int n = 0; n < NUMBERS; n++) {
        numbers[r][i][n][0] = (int)(random_between(random, 0, sizes[i].k / NUMBERS - 1) * NUMBERS + n);
        numbers[r][i][n][1] = (int)random_between(random, -9, 9);
        x[numbers[r][i][n][0]] = oracle_to_bf16(numbers[r][i][n][1]);
      }
      trial_set(&ranks->trials[r], p->x[r][i], x);
    }
}

/* In the order of ranks, then the residual. */
static float expected_of(uint32_t ranks, int (*numbers)[PRODUCTS][NUMBERS][2], int row, float before) {
  for (int i = 0; i < PRODUCTS; i++) {
    float sum = 0;
    for (uint32_t r = 0; r < ranks; r++) {
      int product = 0;
      for (int n = 0; n < NUMBERS; n++) product += weight_of(r, i, row, numbers[r][i][n][0]) * numbers[r][i][n][1];
      sum += (float)product;
    }
    before = sum + before;
  }
  return before;
}

static void sums_of(rondo_backend backend, uint32_t count) {
  enum { REPLAYS = 25 };
  static int numbers[MOST_RANKS][PRODUCTS][NUMBERS][2];
  static float residual[ROWS], out[ROWS];
  struct random random = {4321};
  struct ranks ranks;
  struct products p;
  describe(&ranks, backend, count, &p);
  ranks_instantiate(&ranks);
  upload(&ranks, &p);
  for (uint32_t replay = 0; replay < rounds_here(REPLAYS); replay++) {
    for (int i = 0; i < ROWS; i++) residual[i] = (float)random_between(&random, -100000, 100000) / 999;
    set_vectors(&ranks, &p, &random, numbers);
    for (uint32_t r = 0; r < count; r++) trial_set(&ranks.trials[r], p.residual[r], residual);
    ranks_replay_round(&ranks, replay, &random);
    for (uint32_t r = 0; r < count; r++) {
      trial_get(&ranks.trials[r], p.out[r], out);
      for (int i = 0; i < ROWS; i++)
        cr_assert_eq(out[i], expected_of(count, numbers, i, residual[i]), "replay %u, rank %u, row %d", replay, r, i);
    }
  }
  ranks_end(&ranks);
}

static void sums(rondo_backend backend) {
  for (uint32_t count = 2; count <= MOST_RANKS; count++) sums_of(backend, count);
}
BOTH_BACKENDS(gemv_ranks, products_end_with_the_sum_of_all_ranks, sums)

/* ---- Which kernel adds up ---------------------------------------------------------------------------------------- */

Test(gemv_ranks, a_kernel_ends_with_the_sum_where_each_rank_has_a_device) {
  static const struct chip chip = {90, 132, 232448};
  static const int64_t threads[] = {128, 224}, tiles[] = {128, 256};
  static struct op_launches launches;
  struct ranks ranks;
  struct products p;
  describe(&ranks, RONDO_BACKEND_HOST, 2, &p);
  for (uint32_t i = 0; i < PRODUCTS; i++) {
    struct op_operand operands[OP_MAX_OPERANDS];
    struct gemv_rows_parameters told;
    struct op_task task = graph_op_task(ranks.trials[1].graph, &ranks.trials[1].graph->tasks[i], operands);
    struct op_call call = {.task = &task, .data = op_nowhere};
    cr_assert(op_waits(&task));
    REQUIRE_OK(task.op->select(&call, &chip, &launches));
    cr_assert_eq(launches.count, 2);
    cr_assert_str_eq(launches.items[1].kernel, "rondo_exchange_sum");
    call.lets_successors_start = true;
    REQUIRE_OK(task.op->select(&call, &chip, &launches));
    cr_assert_eq(launches.count, i < 2 ? 1 : 2, "product %u", i);
    if (i == 2) continue;
    cr_assert_str_eq(launches.items[0].kernel, "rondo_gemv_16bit_q8_r4_s4");
    cr_assert_eq(launches.items[0].block[0], threads[i]);
    cr_assert_eq(launches.items[0].grid[0], tiles[i] + 2, "and a thread for four rows");
    memcpy(&told, launches.items[0].parameters, sizeof told);
    cr_assert(told.exchange.ranks == 2 && told.exchange.rank == 1 && told.exchange.vectors == ROWS / 4);
  }
  ranks_abandon(&ranks);
}

/* As all_reduce goes alone. */
Test(gemv_ranks, a_sum_in_two_steps_is_a_launch_of_its_own) {
  static const struct chip chip = {90, 132, 232448};
  static const int64_t rows[] = {16384, 24576};
  static struct op_launches launches;
  for (uint32_t i = 0; i < 2; i++) {
    struct ranks ranks;
    struct op_operand operands[OP_MAX_OPERANDS];
    rondo_tensor x, weights, out;
    ranks_describe(&ranks, RONDO_BACKEND_HOST, RONDO_MAX_RANKS, (uint64_t)rows[i] * sizeof(float));
    rondo_graph *graph = ranks.trials[0].graph;
    const struct layer_exchange exchange = {.states = ranks.exchange, .rank = 0, .ranks = RONDO_MAX_RANKS};
    REQUIRE_OK(rondo_input(graph, "x", RONDO_BF16, 2, (int64_t[]){1, 2048}, &x));
    REQUIRE_OK(rondo_constant(graph, "weights", RONDO_BF16, 2, (int64_t[]){rows[i], 2048}, &weights));
    REQUIRE_OK(rondo_output(graph, "out", RONDO_F32, 2, (int64_t[]){1, rows[i]}, &out));
    REQUIRE_OK(summed_product_add(
        graph, &(rondo_gemv_desc){.name = "product", .weights = weights, .vectors = x, .out = out}, &exchange));
    struct op_task task = graph_op_task(graph, &graph->tasks[0], operands);
    REQUIRE_OK(task.op->select(&(struct op_call){.task = &task, .data = op_nowhere, .lets_successors_start = true},
                               &chip, &launches));
    cr_assert_eq(launches.count, 1 + i, "%d rows", (int)rows[i]);
    ranks_abandon(&ranks);
  }
}

Test(gemv_ranks, what_a_sum_cannot_have_is_refused) {
  struct ranks ranks;
  rondo_tensor x, weights, bias, out;
  ranks_describe(&ranks, RONDO_BACKEND_HOST, 2, SUM_BYTES / 8);
  rondo_graph *graph = ranks.trials[0].graph;
  const struct layer_exchange exchange = {.states = ranks.exchange, .rank = 0, .ranks = 2};
  REQUIRE_OK(rondo_input(graph, "x", RONDO_BF16, 2, (int64_t[]){1, 64}, &x));
  REQUIRE_OK(rondo_input(graph, "bias", RONDO_F32, 1, (int64_t[]){ROWS}, &bias));
  REQUIRE_OK(rondo_constant(graph, "weights", RONDO_BF16, 2, (int64_t[]){ROWS, 64}, &weights));
  REQUIRE_OK(rondo_output(graph, "out", RONDO_F32, 2, (int64_t[]){1, ROWS}, &out));
  rondo_gemv_desc desc = {.name = "product", .weights = weights, .vectors = x, .bias = bias, .out = out};
  REQUIRE_ERROR(summed_product_add(graph, &desc, &exchange), RONDO_INVALID_ARGUMENT,
                "task 0 'product': out is a sum over ranks, expected no bias, silu_mul and out_scales");
  desc.bias = (rondo_tensor){0};
  REQUIRE_ERROR(summed_product_add(graph, &desc, &exchange), RONDO_INVALID_ARGUMENT,
                "task 0 'product': exchange[0] is too small, expected one for at least 4096 bytes");
  cr_assert_eq(graph->task_count, 0);
  ranks_abandon(&ranks);
}

/* ---- A rank that does not come ----------------------------------------------------------------------------------- */

Test(gemv_ranks, a_missing_rank_is_named_cuda, OWN_PROCESS) {
  struct ranks ranks;
  struct products p;
  require_backend(RONDO_BACKEND_CUDA);
  describe(&ranks, RONDO_BACKEND_CUDA, 2, &p);
  ranks_instantiate(&ranks);
  upload(&ranks, &p);
  REQUIRE_OK(rondo_replay(ranks.trials[0].slot));
  REQUIRE_ERROR(rondo_wait(ranks.trials[0].slot, UINT64_C(60) * 1000 * 1000 * 1000), RONDO_DEVICE_LOST,
                "task 'product': rank 1 did not come in time");
  ranks_abandon(&ranks);
}
