/* test_decoder_ranks.c - layer halves between which stand sums over ranks: as steps exact sums in replay after replay;
 * as kernels that give each other parts a chain of halves against fp64, with the same bits on all ranks in every
 * replay; which kernels do so, what is refused, and a rank that does not come. Faults that would show: a slot that is
 * read before it was cleared, or cleared while another cluster reads it; parts of another sum, or of another rank in
 * the place of own ones. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/decoder/decoder.h"
#include "../../kernels/decoder/feed_forward.h"
#include "../../runtime/graph.h"
#include "../../runtime/layer_form.h"
#include "../oracles/ranks.h"

enum { HIDDEN = 2048, COLUMNS = 2048, TERMS = 3, PARTS = 2, RANKS = 2, HALVES = 2, SUM_BYTES = HIDDEN * 4 };

struct halves {
  rondo_tensor x[RANKS], terms[RANKS][HALVES], out[RANKS];
};

/* One feed forward whose matrices are zero: what it writes is x and the sum of all ranks' terms. */
static rondo_status zero_half_add(struct ranks *ranks, uint32_t r, rondo_tensor x, rondo_tensor terms,
                                  rondo_tensor out) {
  rondo_graph *graph = ranks->trials[r].graph;
  const struct layer_exchange exchange = {.states = ranks->exchange, .rank = r, .ranks = ranks->count};
  rondo_feed_forward_desc desc = {.name = "half", .x = x, .x_parts = terms, .out = out, .norm_epsilon = 1e-5f};
  REQUIRE_OK(rondo_state(graph, "gate_up", RONDO_BF16, 2, (int64_t[]){INT64_C(2) * COLUMNS, HIDDEN}, &desc.gate_up));
  REQUIRE_OK(rondo_state(graph, "down", RONDO_BF16, 2, (int64_t[]){HIDDEN, COLUMNS}, &desc.down));
  REQUIRE_OK(rondo_temporary(graph, "parts", RONDO_F32, 3, (int64_t[]){PARTS, 1, HIDDEN}, &desc.out_parts));
  return feed_forward_add(graph, &desc, false, false, &exchange);
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
    ranks_replay_round(&ranks, replay, &random);
    for (uint32_t r = 0; r < RANKS; r++) {
      trial_get(&ranks.trials[r], h.out[r], out);
      for (int i = 0; i < HIDDEN; i++)
        cr_assert_eq(out[i], expected_of(terms, x[i], i), "replay %u, rank %u, number %d", replay, r, i);
    }
  }
  ranks_end(&ranks);
}
BOTH_BACKENDS(decoder_ranks, halves_begin_with_the_sum_of_all_ranks, sums)

/* ---- Halves that give each other parts --------------------------------------------------------------------------- */

enum { CHAIN = 6, GIVEN_PARTS = 15, ATTENTION_PARTS = 8, MATRIX = 2 * COLUMNS * HIDDEN };

/* The halves of a rank: the first only gives parts, the last only takes them. As in a model every other one leaves as
 * many parts as attention does. `writes`: a task of the graph writes gate and up, so nobody may fetch them early. */
struct chain {
  bool writes;
  rondo_tensor x[RANKS], out[RANKS], gate_up[RANKS], down[RANKS];
};

static int64_t parts_given(int half) { return half % 2 ? GIVEN_PARTS : ATTENTION_PARTS; }

/* A half of the chain; all halves of a rank have the same matrices. */
static rondo_status chain_half_add(struct ranks *ranks, uint32_t r, const struct chain *c, rondo_tensor gate_up, int i,
                                   rondo_tensor from[2], rondo_tensor to[2]) {
  const struct layer_exchange exchange = {.states = ranks->exchange,
                                          .rank = r,
                                          .ranks = ranks->count,
                                          .before = i ? (uint32_t)i - 1 : 0,
                                          .gives = i<CHAIN - 1, .takes = i> 0};
  char name[32];
  snprintf(name, sizeof name, "half %d", i);
  return feed_forward_add(ranks->trials[r].graph,
                          &(rondo_feed_forward_desc){.name = name,
                                                     .x = from[0],
                                                     .x_parts = i ? from[1] : (rondo_tensor){0},
                                                     .gate_up = gate_up,
                                                     .down = c->down[r],
                                                     .out = to[0],
                                                     .out_parts = to[1]},
                          false, false, &exchange);
}

/* Gate and up as the halves take them. */
static rondo_tensor gate_up_add(rondo_graph *graph, const struct chain *c, rondo_tensor *constant) {
  const int64_t shape[] = {INT64_C(2) * COLUMNS, HIDDEN};
  rondo_tensor written;
  REQUIRE_OK(rondo_constant(graph, "gate_up", RONDO_BF16, 2, shape, constant));
  if (!c->writes) return *constant;
  REQUIRE_OK(rondo_temporary(graph, "written gate_up", RONDO_BF16, 2, shape, &written));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = *constant, .dst = written}));
  return written;
}

static void describe_chain(struct ranks *ranks, rondo_backend backend, uint32_t count, struct chain *c) {
  ranks_describe(ranks, backend, count, SUM_BYTES);
  for (uint32_t r = 0; r < count; r++) {
    rondo_graph *graph = ranks->trials[r].graph;
    const int64_t row[] = {1, HIDDEN};
    rondo_tensor ends[2][2];
    REQUIRE_OK(rondo_input(graph, "x", RONDO_F32, 2, row, &c->x[r]));
    const rondo_tensor gate_up = gate_up_add(graph, c, &c->gate_up[r]);
    REQUIRE_OK(rondo_constant(graph, "down", RONDO_BF16, 2, (int64_t[]){HIDDEN, COLUMNS}, &c->down[r]));
    for (int i = 0; i < 2; i++) {
      const int64_t parts[] = {parts_given(!i), 1, HIDDEN};
      REQUIRE_OK(rondo_temporary(graph, i ? "odd" : "even", RONDO_F32, 2, row, &ends[i][0]));
      REQUIRE_OK(rondo_temporary(graph, i ? "odd parts" : "even parts", RONDO_F32, 3, parts, &ends[i][1]));
    }
    REQUIRE_OK(rondo_output(graph, "out", RONDO_F32, 2, row, &c->out[r]));
    for (int i = 0; i < CHAIN; i++) {
      rondo_tensor from[] = {i ? ends[i % 2][0] : c->x[r], ends[i % 2][1]},
                   to[] = {i < CHAIN - 1 ? ends[(i + 1) % 2][0] : c->out[r], ends[(i + 1) % 2][1]};
      REQUIRE_OK(chain_half_add(ranks, r, c, gate_up, i, from, to));
    }
  }
}

static uint16_t matrices[RANKS][MATRIX + COLUMNS * HIDDEN];

static void matrices_set(struct ranks *ranks, const struct chain *c) {
  struct random random = {77};
  for (uint32_t r = 0; r < ranks->count; r++) {
    for (int i = 0; i < MATRIX + COLUMNS * HIDDEN; i++)
      matrices[r][i] = oracle_to_bf16(random_normal(&random) / (i < MATRIX ? 45 : 20));
    trial_set(&ranks->trials[r], c->gate_up[r], matrices[r]);
    trial_set(&ranks->trials[r], c->down[r], matrices[r] + MATRIX);
  }
}

static double number_of(uint16_t bf16) {
  const uint32_t bits = (uint32_t)bf16 << 16;
  float number;
  memcpy(&number, &bits, sizeof number);
  return (double)number;
}

static double dot(const uint16_t *row, const double *x, int count) {
  double sum = 0;
  for (int i = 0; i < count; i++) sum += number_of(row[i]) * x[i];
  return sum;
}

/* All halves but the last, whose own parts go nowhere. */
static void chain_expect(uint32_t ranks, double x[HIDDEN]) {
  static double gated[RANKS][COLUMNS];
  for (int half = 0; half < CHAIN - 1; half++) {
    for (uint32_t r = 0; r < ranks; r++)
      for (int i = 0; i < COLUMNS; i++) {
        const double gate = dot(matrices[r] + INT64_C(2) * i * HIDDEN, x, HIDDEN),
                     up = dot(matrices[r] + (INT64_C(2) * i + 1) * HIDDEN, x, HIDDEN);
        gated[r][i] = gate / (1 + exp(-gate)) * up;
      }
    for (int i = 0; i < HIDDEN; i++)
      for (uint32_t r = 0; r < ranks; r++)
        x[i] += dot(matrices[r] + MATRIX + INT64_C(1) * i * COLUMNS, gated[r], COLUMNS);
  }
}

/* Numbers in between are bf16 where halves are steps. Without the parts of one rank in one half a number is off by half
 * of what a half adds. */
static void check_chain(uint32_t ranks, const float *out, const float *from) {
  static double x[HIDDEN];
  double off = 0, added = 0;
  for (int i = 0; i < HIDDEN; i++) x[i] = (double)from[i];
  chain_expect(ranks, x);
  for (int i = 0; i < HIDDEN; i++) {
    off += ((double)out[i] - x[i]) * ((double)out[i] - x[i]);
    added += (x[i] - (double)from[i]) * (x[i] - (double)from[i]);
  }
  cr_assert_lt(sqrt(off), 0.02 * sqrt(added), "off by %g of %g", sqrt(off), sqrt(added));
}

static bool is_same(const void *a, const void *b, size_t bytes) { return !memcmp(a, b, bytes); }

static void replay_chain(rondo_backend backend, uint32_t count, bool writes) {
  enum { INPUTS = 3, REPLAYS = 1000, HOST_REPLAYS = 9 };
  static float x[INPUTS][HIDDEN], first[INPUTS][HIDDEN], out[HIDDEN];
  const uint32_t replays = backend == RONDO_BACKEND_HOST ? HOST_REPLAYS : REPLAYS;
  struct random random = {4321};
  struct ranks ranks;
  struct chain c = {.writes = writes};
  skip_under_sanitizers();
  describe_chain(&ranks, backend, count, &c);
  ranks_instantiate(&ranks);
  matrices_set(&ranks, &c);
  for (size_t i = 0; i < sizeof x / sizeof(float); i++) ((float *)x)[i] = (float)random_normal(&random);
  for (uint32_t replay = 0; replay < replays; replay++) {
    const uint32_t input = replay < INPUTS ? replay : (uint32_t)random_between(&random, 0, INPUTS - 1);
    for (uint32_t r = 0; r < count; r++) trial_set(&ranks.trials[r], c.x[r], x[input]);
    ranks_replay_round(&ranks, replay, &random);
    for (uint32_t r = 0; r < count; r++) {
      trial_get(&ranks.trials[r], c.out[r], out);
      if (replay < INPUTS && r == 0) memcpy(first[input], out, sizeof out);
      cr_assert(is_same(first[input], out, sizeof out), "replay %u, rank %u", replay, r);
    }
  }
  for (int input = 0; input < INPUTS; input++) check_chain(count, first[input], x[input]);
  ranks_end(&ranks);
}
static void chains(rondo_backend backend) { replay_chain(backend, RANKS, false); }
BOTH_BACKENDS(decoder_ranks, halves_that_give_parts_agree_with_fp64_in_every_replay, chains)
/* The kernels of ranks that have a device each, where there is one alone. */
static void chains_of_one(rondo_backend backend) { replay_chain(backend, 1, false); }
BOTH_BACKENDS(decoder_ranks, halves_of_one_rank_give_parts_too, chains_of_one)
static void chains_of_written(rondo_backend backend) { replay_chain(backend, 1, true); }
BOTH_BACKENDS(decoder_ranks, halves_take_weights_that_a_task_writes, chains_of_written)

/* ---- Which kernels do so ----------------------------------------------------------------------------------------- */

static const struct chip hopper = {90, 132, 232448}, ampere = {80, 108, 166912};

/* The launches of half i of rank 1. */
static rondo_status select_half(struct ranks *ranks, int i, bool has_own_devices, const struct chip *chip,
                                void *const *data, struct op_launches *launches) {
  struct op_operand operands[OP_MAX_OPERANDS];
  rondo_graph *graph = ranks->trials[1].graph;
  struct op_task task = graph_op_task(graph, &graph->tasks[i], operands);
  cr_assert(op_waits(&task));
  struct op_call call = {.task = &task, .data = data, .lets_successors_start = has_own_devices};
  return task.op->select(&call, chip, launches);
}

Test(decoder_ranks, kernels_give_parts_where_each_rank_has_a_device) {
  static struct op_launches launches;
  struct ranks ranks;
  struct chain c = {0};
  struct feed_forward_parameters told;
  void *data[OP_MAX_OPERANDS] = {0};
  describe_chain(&ranks, RONDO_BACKEND_HOST, RANKS, &c);
  const int64_t row_bytes = ranks.lenders[0].graph->tensors[0].shape[1];
  unsigned char *own = malloc((size_t)row_bytes * RANKS), *other = malloc((size_t)row_bytes * RANKS);
  data[FEED_FORWARD_STATES] = other, data[FEED_FORWARD_STATES + 1] = own;
  for (int i = 0; i < CHAIN; i++) {
    REQUIRE_OK(select_half(&ranks, i, true, &hopper, data, &launches));
    const bool is_deep = i % 2 && i < CHAIN - 1;
    cr_assert_eq(launches.count, is_deep ? 2 : 1);
    cr_assert_str_eq(launches.items[0].kernel,
                     is_deep ? "rondo_feed_forward_bf16_few_deep" : "rondo_feed_forward_bf16_few_ranks");
    cr_assert_eq(launches.items[0].parameter_bytes, sizeof told);
    memcpy(&told, launches.items[0].parameters, sizeof told);
    const struct exchange_gather *e = &told.exchange;
    cr_assert(e->ranks == RANKS && e->rank == 1 && e->parts == (i ? parts_given(i - 1) : 0) &&
              e->gives == (i < CHAIN - 1));
    cr_assert_eq(e->before, i ? (uint32_t)i - 1 : 0);
    cr_assert_eq(e->here, own + row_bytes - EXCHANGE_GATHER_BYTES, "row 0 of the own state");
    cr_assert_eq(e->there[0], other + 2 * row_bytes - EXCHANGE_GATHER_BYTES, "row 1 of the other's");
    cr_assert_eq(e->there[1], own + 2 * row_bytes - EXCHANGE_GATHER_BYTES, "row 1 of the own");
  }
  free(own), free(other);
  ranks_abandon(&ranks);
}

/* The launches of a half after attention of eight clusters, that gives parts, or the last one. */
static void select_after_attention(int64_t hidden, bool gives, const struct chip *chip, struct op_launches *launches) {
  struct op_operand operands[OP_MAX_OPERANDS];
  struct ranks ranks;
  rondo_feed_forward_desc desc = {.name = "half"};
  ranks_describe(&ranks, RONDO_BACKEND_HOST, RANKS, SUM_BYTES);
  rondo_graph *graph = ranks.trials[1].graph;
  const int64_t row[] = {1, hidden}, from[] = {ATTENTION_PARTS, 1, hidden}, to[] = {GIVEN_PARTS, 1, hidden};
  REQUIRE_OK(rondo_input(graph, "x", RONDO_F32, 2, row, &desc.x));
  REQUIRE_OK(rondo_input(graph, "x_parts", RONDO_F32, 3, from, &desc.x_parts));
  REQUIRE_OK(rondo_constant(graph, "gate_up", RONDO_BF16, 2, (int64_t[]){INT64_C(2) * COLUMNS, hidden}, &desc.gate_up));
  REQUIRE_OK(rondo_constant(graph, "down", RONDO_BF16, 2, (int64_t[]){hidden, COLUMNS}, &desc.down));
  REQUIRE_OK(rondo_output(graph, "out", RONDO_F32, 2, row, &desc.out));
  REQUIRE_OK(rondo_output(graph, "out_parts", RONDO_F32, 3, to, &desc.out_parts));
  const struct layer_exchange exchange = {
      .states = ranks.exchange, .rank = 1, .ranks = RANKS, .gives = gives, .takes = true};
  REQUIRE_OK(feed_forward_add(graph, &desc, false, false, &exchange));
  struct op_task task = graph_op_task(graph, &graph->tasks[0], operands);
  const struct op_call call = {.task = &task, .data = op_nowhere, .lets_successors_start = true};
  REQUIRE_OK(task.op->select(&call, chip, launches));
  ranks_abandon(&ranks);
}

/* Together they have all parts and groups; the first one, which has the last part, alone waits and clears. */
Test(decoder_ranks, clusters_beside_attention_are_a_second_launch) {
  enum { DEEP = GIVEN_PARTS - ATTENTION_PARTS, GROUPS = COLUMNS / FEED_FORWARD_UNIT };
  static const struct chip small = {90, 114, 232448};
  static struct op_launches launches;
  struct feed_forward_parameters deep, shallow;
  select_after_attention(HIDDEN, true, &hopper, &launches);
  cr_assert_eq(launches.count, 2);
  memcpy(&deep, launches.items[0].parameters, sizeof deep);
  memcpy(&shallow, launches.items[1].parameters, sizeof shallow);
  cr_assert(launches.items[0].grid[0] == DEEP * 8 && launches.items[1].grid[0] == ATTENTION_PARTS * 8);
  cr_assert(deep.first_part == ATTENTION_PARTS && deep.parts == DEEP && !deep.follows);
  cr_assert(shallow.first_part == 0 && shallow.parts == ATTENTION_PARTS && shallow.follows);
  cr_assert(shallow.first_group == 0 && shallow.groups == deep.first_group);
  cr_assert(deep.first_group + deep.groups == GROUPS && shallow.groups >= shallow.parts && deep.groups >= deep.parts);
  cr_assert_str_eq(launches.items[0].kernel, "rondo_feed_forward_bf16_few_deep");
  cr_assert_str_eq(launches.items[1].kernel, "rondo_feed_forward_bf16_few_ranks");
  cr_assert(deep.gate_up.cuts == FEED_FORWARD_THREADS / 32 && deep.gate_up.cut_chunks == FEED_FORWARD_HELD_CHUNKS);
  cr_assert_lt(launches.items[1].shared_bytes, launches.items[0].shared_bytes);
  cr_assert_leq(launches.items[0].shared_bytes, (uint32_t)hopper.shared_bytes);
  select_after_attention(HIDDEN, false, &hopper, &launches);
  cr_assert_eq(launches.count, 1, "the counters move on in one launch");
  select_after_attention(HIDDEN, true, &small, &launches);
  cr_assert_eq(launches.count, 1, "attention's clusters leave no multiprocessors");
}

/* The words that a block keeps do not lie where gated numbers arrive. */
Test(decoder_ranks, a_block_has_room_for_its_words_at_every_size) {
  enum { WORDS = EXCHANGE_GATHER_NUMBERS / FEED_FORWARD_UNIT + 1 + FEED_FORWARD_THREADS / 32 };
  static struct op_launches launches;
  struct feed_forward_parameters told;
  for (int64_t hidden = FEED_FORWARD_UNIT; hidden <= HIDDEN; hidden += FEED_FORWARD_UNIT) {
    select_after_attention(hidden, true, &hopper, &launches);
    for (uint32_t i = 0; i < launches.count; i++) {
      memcpy(&told, launches.items[i].parameters, sizeof told);
      cr_assert_geq(told.received, told.squares + 4 * WORDS, "hidden %lld, launch %u", (long long)hidden, i);
    }
  }
}

Test(decoder_ranks, elsewhere_the_sum_is_a_launch) {
  static struct op_launches launches;
  struct ranks ranks;
  struct chain c = {0};
  describe_chain(&ranks, RONDO_BACKEND_HOST, RANKS, &c);
  for (int i = 0; i < CHAIN; i++) {
    REQUIRE_OK(select_half(&ranks, i, false, &hopper, op_nowhere, &launches));
    cr_assert_eq(launches.count, i ? 2 : 1);
    if (i) cr_assert_str_eq(launches.items[0].kernel, "rondo_exchange_sum");
    cr_assert_str_eq(launches.items[i ? 1 : 0].kernel, "rondo_feed_forward_bf16_few");
    REQUIRE_OK(select_half(&ranks, i, true, &ampere, op_nowhere, &launches));
    cr_assert_eq(!strcmp(launches.items[0].kernel, "rondo_exchange_sum"), i > 0);
  }
  ranks_abandon(&ranks);
}

Test(decoder_ranks, a_sum_of_tensors_is_a_launch_everywhere) {
  static struct op_launches launches;
  struct ranks ranks;
  struct halves h;
  describe(&ranks, RONDO_BACKEND_HOST, &h);
  REQUIRE_OK(select_half(&ranks, 0, true, &hopper, op_nowhere, &launches));
  cr_assert_eq(launches.count, 2);
  cr_assert_str_eq(launches.items[0].kernel, "rondo_exchange_sum");
  cr_assert_str_eq(launches.items[1].kernel, "rondo_feed_forward_bf16_few");
  ranks_abandon(&ranks);
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
  ranks_abandon(&ranks);
}

/* ---- A rank that does not come ----------------------------------------------------------------------------------- */

Test(decoder_ranks, a_missing_rank_is_named_cuda, OWN_PROCESS) {
  struct ranks ranks;
  struct chain c = {0};
  require_backend(RONDO_BACKEND_CUDA);
  describe_chain(&ranks, RONDO_BACKEND_CUDA, RANKS, &c);
  ranks_instantiate(&ranks);
  matrices_set(&ranks, &c);
  REQUIRE_OK(rondo_replay(ranks.trials[0].slot));
  REQUIRE_ERROR(rondo_wait(ranks.trials[0].slot, UINT64_C(60) * 1000 * 1000 * 1000), RONDO_DEVICE_LOST,
                "task 'half 1': rank 1 did not come in time");
  ranks_abandon(&ranks);
}
