/* test_exchange_values.c - exchanges of large tensors, in one step and in two; of NaN, infinities, -0 and words with
 * all bits set; over many replays, and a hundred thousand times; with a rank that does not come, or whose device fails.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/clock.h"
#include "../oracles/frame.h"
#include "../oracles/ranks.h"

static const uint64_t minute_ns = UINT64_C(60) * 1000 * 1000 * 1000;

TestSuite(exchange_values, .timeout = 300);

/* Of each rank, an exchange of a state `in` to a state `out`, both dense. */
struct pair {
  rondo_tensor in[RONDO_MAX_RANKS], out[RONDO_MAX_RANKS];
};

typedef rondo_status (*exchange_function)(rondo_graph *graph, const rondo_exchange_desc *desc);

static void pair_add(struct pair *pair, struct ranks *ranks, exchange_function add, rondo_dtype in, int64_t in_count,
                     rondo_dtype out, int64_t out_count, bool adds_out) {
  for (uint32_t r = 0; r < ranks->count; r++) {
    rondo_graph *graph = ranks->trials[r].graph;
    REQUIRE_OK(rondo_state(graph, "in", in, 1, &in_count, &pair->in[r]));
    REQUIRE_OK(rondo_state(graph, "out", out, 1, &out_count, &pair->out[r]));
    rondo_exchange_desc desc = {.in = pair->in[r],
                                .out = pair->out[r],
                                .exchange = ranks->exchange,
                                .rank = r,
                                .ranks = ranks->count,
                                .timeout_ns = minute_ns};
    if (adds_out) desc.residual = pair->out[r];
    REQUIRE_OK(add(graph, &desc));
  }
}

/* ---- Large tensors ----------------------------------------------------------------------------------------------- */

/* Small integers, whose sums are exact in any order and type. */
static double number_of(uint32_t rank, int64_t i) { return (double)((i * 7 + (int64_t)rank * 5 + i / 1000) % 9 - 4); }

static void large_set(struct ranks *ranks, const struct pair *pair, rondo_dtype in, rondo_dtype out, int64_t count) {
  unsigned char *bytes = malloc((size_t)count * 4);
  for (uint32_t r = 0; r < ranks->count; r++) {
    for (int64_t i = 0; i < count; i++) oracle_write(in, bytes, i, number_of(r, i));
    trial_set(&ranks->trials[r], pair->in[r], bytes);
    for (int64_t i = 0; i < count; i++) oracle_write(out, bytes, i, (double)(i % 5));
    trial_set(&ranks->trials[r], pair->out[r], bytes);
  }
  free(bytes);
}

static void large_check(struct ranks *ranks, const struct pair *pair, rondo_dtype out, int64_t count, bool adds_out) {
  unsigned char *bytes = malloc((size_t)count * 4);
  for (uint32_t r = 0; r < ranks->count; r++) {
    trial_get(&ranks->trials[r], pair->out[r], bytes);
    for (int64_t i = 0; i < count; i++) {
      double expected = adds_out ? (double)(i % 5) : 0;
      for (uint32_t s = 0; s < ranks->count; s++) expected += number_of(s, i);
      const double value = oracle_read(out, bytes, i);
      cr_assert(value == expected, "rank %u of %u, number %d of %d: %g, expected %g", r, ranks->count, (int)i,
                (int)count, value, expected);
    }
  }
  free(bytes);
}

static void large(rondo_backend backend, uint32_t count, int64_t elements, rondo_dtype in, rondo_dtype out) {
  struct ranks ranks;
  struct pair plain, added;
  ranks_describe(&ranks, backend, count, (uint64_t)elements * rondo_dtype_bits(in) / 8);
  pair_add(&plain, &ranks, rondo_add_all_reduce, in, elements, out, elements, false);
  pair_add(&added, &ranks, rondo_add_all_reduce, in, elements, out, elements, true);
  ranks_instantiate(&ranks);
  for (int replay = 0; replay < 2; replay++) {
    large_set(&ranks, &plain, in, out, elements);
    large_set(&ranks, &added, in, out, elements);
    ranks_replay(&ranks);
    large_check(&ranks, &plain, out, elements, false);
    large_check(&ranks, &added, out, elements, true);
  }
  ranks_end(&ranks);
}

static void sums_of_large_tensors(rondo_backend backend) {
  skip_under_sanitizers();
  skip_under_valgrind("threads that wait for each other take turns");
  large(backend, 2, 1 << 22, RONDO_BF16, RONDO_BF16);
  large(backend, 2, (1 << 20) + 3, RONDO_F32, RONDO_F32);
  large(backend, 3, (1 << 20) + 3, RONDO_BF16, RONDO_BF16);
  large(backend, 3, 1 << 19, RONDO_F16, RONDO_F32);
  large(backend, 4, (1 << 20) + 13, RONDO_F32, RONDO_F16);
}
BOTH_BACKENDS(exchange_values, sums_of_large_tensors, sums_of_large_tensors)

/* Number i of a rank's part of a large tensor whose parts have `part` elements each. */
static double part_number(uint32_t rank, int64_t i) { return number_of(rank, i) * 3; }

/* Of two ranks: what all_gather, reduce_scatter, broadcast and a send of rank 1 read and write. Only broadcast's
 * source and the sender have `in`, and only the receivers `out`. */
static void moves_add(struct ranks *ranks, struct pair *moved, rondo_dtype type, int64_t part) {
  pair_add(&moved[0], ranks, rondo_add_all_gather, type, part, type, 2 * part, false);
  pair_add(&moved[1], ranks, rondo_add_reduce_scatter, type, 2 * part, type, part, false);
  for (int kind = 2; kind < 4; kind++)
    for (uint32_t r = 0; r < 2; r++) {
      const bool is_source = r == (kind == 2 ? 0 : 1);
      rondo_graph *graph = ranks->trials[r].graph;
      rondo_exchange_desc desc = {
          .exchange = ranks->exchange, .rank = r, .ranks = 2, .peer = kind == 2 ? 0 : 1 - r, .timeout_ns = minute_ns};
      rondo_tensor *tensor = is_source ? &moved[kind].in[r] : &moved[kind].out[r];
      REQUIRE_OK(rondo_state(graph, "moved", type, 1, &part, tensor));
      *(is_source ? &desc.in : &desc.out) = *tensor;
      REQUIRE_OK((kind == 2 ? rondo_add_broadcast : is_source ? rondo_add_send : rondo_add_receive)(graph, &desc));
    }
}

static void move_set(struct trial *trial, rondo_tensor tensor, rondo_dtype type, uint32_t rank, int64_t count) {
  unsigned char *bytes = malloc((size_t)count * 4);
  for (int64_t i = 0; i < count; i++) oracle_write(type, bytes, i, part_number(rank, i));
  trial_set(trial, tensor, bytes);
  free(bytes);
}

/* Of parts of both ranks: what has arrived begins with number `first` of rank `from`; of both: their sum. */
enum { OF_BOTH = 2 };
static void move_check(struct trial *trial, rondo_tensor tensor, rondo_dtype type, uint32_t from, int64_t first,
                       int64_t at, int64_t count, int64_t all) {
  unsigned char *bytes = malloc((size_t)all * 4);
  trial_get(trial, tensor, bytes);
  for (int64_t i = 0; i < count; i++) {
    const double expected =
        from == OF_BOTH ? part_number(0, first + i) + part_number(1, first + i) : part_number(from, first + i);
    const double value = oracle_read(type, bytes, at + i);
    cr_assert(value == expected, "from %u, number %d of %d: %g, expected %g", from, (int)i, (int)count, value,
              expected);
  }
  free(bytes);
}

static void large_moves(rondo_backend backend, rondo_dtype type, int64_t part) {
  struct ranks ranks;
  struct pair moved[4];
  ranks_describe(&ranks, backend, 2, 2 * (uint64_t)part * rondo_dtype_bits(type) / 8);
  moves_add(&ranks, moved, type, part);
  ranks_instantiate(&ranks);
  for (uint32_t r = 0; r < 2; r++) {
    move_set(&ranks.trials[r], moved[0].in[r], type, r, part);
    move_set(&ranks.trials[r], moved[1].in[r], type, r, 2 * part);
  }
  move_set(&ranks.trials[0], moved[2].in[0], type, 0, part);
  move_set(&ranks.trials[1], moved[3].in[1], type, 1, part);
  for (int replay = 0; replay < 2; replay++) ranks_replay(&ranks);
  for (uint32_t r = 0; r < 2; r++) {
    for (uint32_t from = 0; from < 2; from++)
      move_check(&ranks.trials[r], moved[0].out[r], type, from, 0, from * part, part, 2 * part);
    move_check(&ranks.trials[r], moved[1].out[r], type, OF_BOTH, r * part, 0, part, part);
  }
  move_check(&ranks.trials[1], moved[2].out[1], type, 0, 0, 0, part, part);
  move_check(&ranks.trials[0], moved[3].out[0], type, 1, 0, 0, part, part);
  ranks_end(&ranks);
}

static void moves_of_large_tensors(rondo_backend backend) {
  skip_under_sanitizers();
  skip_under_valgrind("threads that wait for each other take turns");
  large_moves(backend, RONDO_BF16, 1 << 21);
  large_moves(backend, RONDO_F32, (1 << 18) + 3);
  large_moves(backend, RONDO_F16, (1 << 20) - 8);
}
BOTH_BACKENDS(exchange_values, moves_of_large_tensors, moves_of_large_tensors)

/* ---- Values ------------------------------------------------------------------------------------------------------ */

/* The bit patterns of every 16-bit number, or as many of f32; both ranks have the same. */
static void gathers_all_bits(rondo_backend backend) {
  static const rondo_dtype types[] = {RONDO_F32, RONDO_F16, RONDO_BF16};
  enum { COUNT = 1 << 16, GATHERED = 2 * COUNT };
  static unsigned char in[COUNT * 4], out[GATHERED * 4], first[GATHERED * 4];
  for (int t = 0; t < 3; t++) {
    const size_t size = rondo_dtype_bits(types[t]) / 8;
    struct ranks ranks;
    struct pair pair;
    ranks_describe(&ranks, backend, 2, COUNT * size);
    pair_add(&pair, &ranks, rondo_add_all_gather, types[t], COUNT, types[t], GATHERED, false);
    ranks_instantiate(&ranks);
    for (uint32_t i = 0; i < COUNT; i++) {
      const uint32_t bits = size == 4 ? i * 0x10001u : i;
      memcpy(in + i * size, &bits, size);
    }
    for (uint32_t r = 0; r < 2; r++) trial_set(&ranks.trials[r], pair.in[r], in);
    ranks_replay(&ranks);
    for (uint32_t r = 0; r < 2; r++) {
      trial_get(&ranks.trials[r], pair.out[r], out);
      if (!r) memcpy(first, out, sizeof first);
      cr_assert(!memcmp(first, out, GATHERED * size), "rank %u has other bits of %s", r, rondo_dtype_name(types[t]));
      for (size_t i = 0; i < GATHERED; i++) {
        const double value = oracle_read(types[t], out, (int64_t)i), expected = oracle_read(types[t], in, i % COUNT);
        const bool is_nan = isnan(expected);
        cr_assert(is_nan ? isnan(value) : !memcmp(out + i * size, in + i % COUNT * size, size), "number %d of %s: %g",
                  (int)i, rondo_dtype_name(types[t]), value);
      }
    }
    ranks_end(&ranks);
  }
}
BOTH_BACKENDS(exchange_values, every_number_arrives_as_it_is, gathers_all_bits)

static void sums_special_numbers(rondo_backend backend) {
  static const rondo_dtype types[] = {RONDO_F32, RONDO_F16, RONDO_BF16};
  static const double numbers[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1, -1, 0x1p-24};
  enum { NUMBERS = 8, COUNT = NUMBERS * NUMBERS };
  for (int t = 0; t < 3; t++) {
    unsigned char in[COUNT * 4], out[COUNT * 4], first[COUNT * 4];
    const rondo_dtype type = types[t];
    struct ranks ranks;
    struct pair pair;
    ranks_describe(&ranks, backend, 2, sizeof in);
    pair_add(&pair, &ranks, rondo_add_all_reduce, type, COUNT, type, COUNT, false);
    ranks_instantiate(&ranks);
    for (uint32_t r = 0; r < 2; r++) {
      for (int i = 0; i < COUNT; i++) oracle_write(type, in, i, numbers[r ? i / NUMBERS : i % NUMBERS]);
      if (r) memset(in, 0xff, 4); /* a word, which is one number or two, with all bits set */
      trial_set(&ranks.trials[r], pair.in[r], in);
    }
    ranks_replay(&ranks);
    for (uint32_t r = 0; r < 2; r++) {
      trial_get(&ranks.trials[r], pair.out[r], out);
      if (!r) memcpy(first, out, sizeof first);
      cr_assert(!memcmp(first, out, COUNT * rondo_dtype_bits(type) / 8), "rank %u has other bits of %s", r,
                rondo_dtype_name(type));
      for (int i = 0; i < COUNT; i++) {
        double expected = frame_rounded(type, numbers[i % NUMBERS] + numbers[i / NUMBERS]);
        if (i < (type == RONDO_F32 ? 1 : 2)) expected = NAN;
        const double value = oracle_read(type, out, i);
        cr_assert(frame_same(value, expected) && (isnan(value) || signbit(value) == signbit(expected)),
                  "rank %u, number %d of %s: %g, expected %g", r, i, rondo_dtype_name(type), value, expected);
      }
    }
    ranks_end(&ranks);
  }
}
BOTH_BACKENDS(exchange_values, nan_infinities_and_minus_zero_add_up, sums_special_numbers)

/* ---- Many replays ------------------------------------------------------------------------------------------------ */

/* Ranks begin in any order, with pauses. Everything has the same bits in all replays and on all ranks. */
static void repeats(rondo_backend backend) {
  enum { RANKS = 3, COUNT = 1536, SCATTERED = COUNT / RANKS };
  static float in[COUNT];
  static uint32_t first[COUNT], now[COUNT];
  struct random random = {11};
  struct ranks ranks;
  struct pair sum, half, scattered, gathered;
  const uint32_t replays = rounds_here(1000);
  skip_under_valgrind("threads that wait for each other take turns");
  ranks_describe(&ranks, backend, RANKS, sizeof in);
  pair_add(&sum, &ranks, rondo_add_all_reduce, RONDO_F32, COUNT, RONDO_F32, COUNT, false);
  pair_add(&half, &ranks, rondo_add_all_reduce, RONDO_F32, 5, RONDO_BF16, 5, false);
  pair_add(&scattered, &ranks, rondo_add_reduce_scatter, RONDO_F32, COUNT, RONDO_F32, SCATTERED, false);
  pair_add(&gathered, &ranks, rondo_add_all_gather, RONDO_F32, SCATTERED, RONDO_F32, COUNT, false);
  ranks_instantiate(&ranks);
  for (uint32_t r = 0; r < RANKS; r++) {
    for (int i = 0; i < COUNT; i++) in[i] = (float)random_normal(&random);
    trial_set(&ranks.trials[r], sum.in[r], in);
    trial_set(&ranks.trials[r], scattered.in[r], in);
    trial_set(&ranks.trials[r], gathered.in[r], in);
  }
  for (uint32_t replay = 0; replay < replays; replay++) {
    ranks_replay_apart(&ranks, &random);
    if (replay % 50 && replay + 1 < replays) continue;
    for (uint32_t r = 0; r < RANKS; r++) {
      trial_get(&ranks.trials[r], sum.out[r], now);
      if (!replay && !r) memcpy(first, now, sizeof now);
      cr_assert(memcmp(first, now, sizeof now) == 0, "rank %u has other bits in replay %u", r, replay);
      trial_get(&ranks.trials[r], scattered.out[r], now);
      cr_assert(memcmp(first + (size_t)r * SCATTERED, now, SCATTERED * sizeof *now) == 0, "rank %u, replay %u", r,
                replay);
    }
  }
  ranks_end(&ranks);
}
BOTH_BACKENDS(exchange_values, have_the_same_bits_in_a_thousand_replays, repeats)

/* A hundred sums in a graph, of vectors of many lengths, on ranks that begin in any order, with pauses: on GPUs a
 * hundred thousand exchanges. Each replay has other numbers, so that what is left of one before shows. */
static void many(rondo_backend backend) {
  enum { SUMS = 100, MOST = 700, REPLAYS = 1000, HOST_REPLAYS = 100 };
  static rondo_tensor in[2], out[2][SUMS];
  static float numbers[2][MOST];
  struct random random = {12};
  struct ranks ranks;
  skip_under_sanitizers();
  skip_under_valgrind("threads that wait for each other take turns");
  ranks_describe(&ranks, backend, 2, sizeof numbers[0]);
  for (uint32_t r = 0; r < 2; r++) {
    rondo_graph *graph = ranks.trials[r].graph;
    REQUIRE_OK(rondo_input(graph, "in", RONDO_F32, 1, (int64_t[]){MOST}, &in[r]));
    for (int i = 0; i < SUMS; i++) {
      const int64_t count = 1 + i * 7;
      rondo_tensor part;
      REQUIRE_OK(rondo_view(graph, in[r], (int64_t[]){0}, &count, &part));
      REQUIRE_OK(rondo_output(graph, "out", RONDO_F32, 1, &count, &out[r][i]));
      REQUIRE_OK(rondo_add_all_reduce(graph, &(rondo_exchange_desc){.in = part,
                                                                    .out = out[r][i],
                                                                    .exchange = ranks.exchange,
                                                                    .rank = r,
                                                                    .ranks = 2,
                                                                    .timeout_ns = minute_ns}));
    }
  }
  ranks_instantiate(&ranks);
  for (int replay = 0; replay < (backend == RONDO_BACKEND_HOST ? HOST_REPLAYS : REPLAYS); replay++) {
    for (uint32_t r = 0; r < 2; r++) {
      for (int i = 0; i < MOST; i++) numbers[r][i] = (float)random_normal(&random);
      memcpy(rondo_data(ranks.trials[r].slot, in[r]), numbers[r], sizeof numbers[r]);
    }
    ranks_replay_apart(&ranks, &random);
    for (uint32_t r = 0; r < 2; r++)
      for (int i = 0; i < SUMS; i++) {
        const float *sums = rondo_data(ranks.trials[r].slot, out[r][i]);
        for (int k = 0; k < 1 + i * 7; k++)
          cr_assert(sums[k] == numbers[0][k] + numbers[1][k], "replay %d, rank %u, sum %d, number %d", replay, r, i, k);
      }
  }
  ranks_end(&ranks);
}
BOTH_BACKENDS(exchange_values, are_right_a_hundred_thousand_times, many)

/* ---- A ring ------------------------------------------------------------------------------------------------------ */

static void ring_add(struct ranks *ranks, struct pair *pair, uint32_t r, bool sends) {
  const uint32_t peer = (r + (sends ? 1 : ranks->count - 1)) % ranks->count;
  rondo_exchange_desc desc = {
      .exchange = ranks->exchange, .rank = r, .ranks = ranks->count, .peer = peer, .timeout_ns = minute_ns};
  *(sends ? &desc.in : &desc.out) = *(sends ? &pair->in[r] : &pair->out[r]);
  REQUIRE_OK((sends ? rondo_add_send : rondo_add_receive)(ranks->trials[r].graph, &desc));
}

/* Each rank sends to the next one. A send waits for its receiver, so rank 0 receives first. */
static void goes_round(rondo_backend backend) {
  enum { RANKS = 3, COUNT = 100 };
  float in[COUNT], out[COUNT];
  struct ranks ranks;
  struct pair pair;
  ranks_describe(&ranks, backend, RANKS, sizeof in);
  for (uint32_t r = 0; r < RANKS; r++) {
    REQUIRE_OK(rondo_state(ranks.trials[r].graph, "in", RONDO_F32, 1, (int64_t[]){COUNT}, &pair.in[r]));
    REQUIRE_OK(rondo_state(ranks.trials[r].graph, "out", RONDO_F32, 1, (int64_t[]){COUNT}, &pair.out[r]));
    ring_add(&ranks, &pair, r, r != 0);
    ring_add(&ranks, &pair, r, r == 0);
  }
  ranks_instantiate(&ranks);
  for (uint32_t round = 0; round < 5; round++) {
    for (uint32_t r = 0; r < RANKS; r++) {
      for (uint32_t i = 0; i < COUNT; i++) in[i] = (float)(1000 * round + 10 * i + r);
      trial_set(&ranks.trials[r], pair.in[r], in);
    }
    ranks_replay(&ranks);
    for (uint32_t r = 0; r < RANKS; r++) {
      trial_get(&ranks.trials[r], pair.out[r], out);
      for (uint32_t i = 0; i < COUNT; i++)
        cr_assert_eq(out[i], (float)(1000 * round + 10 * i + (r + RANKS - 1) % RANKS), "rank %u, round %u", r, round);
    }
  }
  ranks_end(&ranks);
}
BOTH_BACKENDS(exchange_values, a_ring_goes_round, goes_round)

/* ---- A rank that comes late, or not at all ----------------------------------------------------------------------- */

static void sum_of_halves(struct ranks *ranks, rondo_backend backend, uint64_t timeout_ns) {
  rondo_tensor in, out;
  ranks_describe(ranks, backend, 2, 4096);
  for (uint32_t r = 0; r < 2; r++) {
    rondo_graph *graph = ranks->trials[r].graph;
    REQUIRE_OK(rondo_input(graph, "in", RONDO_F32, 1, (int64_t[]){1000}, &in));
    REQUIRE_OK(rondo_output(graph, "out", RONDO_F32, 1, (int64_t[]){1000}, &out));
    REQUIRE_OK(rondo_add_all_reduce(graph, &(rondo_exchange_desc){.name = "sum of halves",
                                                                  .in = in,
                                                                  .out = out,
                                                                  .exchange = ranks->exchange,
                                                                  .rank = r,
                                                                  .ranks = 2,
                                                                  .timeout_ns = timeout_ns}));
  }
  ranks_instantiate(ranks);
}

static void rank_is_missing(rondo_backend backend) {
  struct ranks ranks;
  sum_of_halves(&ranks, backend, minute_ns / 1200);
  REQUIRE_OK(rondo_replay(ranks.trials[0].slot));
  REQUIRE_ERROR(rondo_wait(ranks.trials[0].slot, minute_ns), RONDO_DEVICE_LOST,
                "task 'sum of halves': rank 1 did not come in time");
  REQUIRE_ERROR(rondo_runtime_health(ranks.runtimes[0]), RONDO_DEVICE_LOST, "rank 1 did not come in time");
  ranks_abandon(&ranks);
}

/* Where ranks share cores, one may compute for seconds before it comes. */
Test(exchange_values, on_the_host_a_rank_may_come_a_second_late) {
  struct ranks ranks;
  sum_of_halves(&ranks, RONDO_BACKEND_HOST, 0);
  REQUIRE_OK(rondo_replay(ranks.trials[0].slot));
  nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
  REQUIRE_OK(rondo_replay(ranks.trials[1].slot));
  for (uint32_t r = 0; r < 2; r++) REQUIRE_OK(rondo_wait(ranks.trials[r].slot, RONDO_FOREVER));
  ranks_end(&ranks);
}

Test(exchange_values, a_missing_rank_is_named_host, OWN_PROCESS) { rank_is_missing(RONDO_BACKEND_HOST); }
Test(exchange_values, a_missing_rank_is_named_cuda, OWN_PROCESS) {
  require_backend(RONDO_BACKEND_CUDA);
  rank_is_missing(RONDO_BACKEND_CUDA);
}

/* ---- A rank whose device fails ----------------------------------------------------------------------------------- */

/* x[0] = 1, and a trap if flag[0] is not 0. */
static const char failing_ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                                  ".visible .entry failing(.param .u64 flag, .param .u64 x)\n{\n"
                                  ".reg .pred fails; .reg .b64 %a, %b; .reg .b32 %v;\n"
                                  "ld.param.u64 %a, [flag];\nld.param.u64 %b, [x];\n"
                                  "cvta.to.global.u64 %a, %a;\ncvta.to.global.u64 %b, %b;\n"
                                  "ld.global.u32 %v, [%a];\nsetp.ne.u32 fails, %v, 0;\n@fails trap;\n"
                                  "mov.b32 %v, 0f3F800000;\nst.global.b32 [%b], %v;\nret;\n}\n";

/* The kernel of rank 1's device traps before the sum. With the default limit every rank's wait ends: after 0.6 s if the
 * machine is idle. Beside other tests it may take longer. */
Test(exchange_values, a_device_that_fails_ends_every_wait_cuda, OWN_PROCESS) {
  struct ranks ranks;
  rondo_tensor flag[2], x, out[2];
  require_backend(RONDO_BACKEND_CUDA);
  ranks_describe(&ranks, RONDO_BACKEND_CUDA, 2, 4);
  for (uint32_t r = 0; r < 2; r++) {
    rondo_graph *graph = ranks.trials[r].graph;
    REQUIRE_OK(rondo_input(graph, "flag", RONDO_I32, 1, (int64_t[]){1}, &flag[r]));
    REQUIRE_OK(rondo_temporary(graph, "x", RONDO_F32, 1, (int64_t[]){1}, &x));
    REQUIRE_OK(rondo_output(graph, "out", RONDO_F32, 1, (int64_t[]){1}, &out[r]));
    const rondo_argument arguments[] = {{.tensor = flag[r], .access = RONDO_READ},
                                        {.tensor = x, .access = RONDO_WRITE}};
    REQUIRE_OK(rondo_add_kernel(graph, &(rondo_kernel_desc){.name = "failing",
                                                            .image = failing_ptx,
                                                            .image_bytes = sizeof failing_ptx,
                                                            .function = "failing",
                                                            .grid = {1, 1, 1},
                                                            .block = {1, 1, 1},
                                                            .arguments = arguments,
                                                            .argument_count = 2}));
    REQUIRE_OK(rondo_add_all_reduce(
        graph, &(rondo_exchange_desc){
                   .name = "sum", .in = x, .out = out[r], .exchange = ranks.exchange, .rank = r, .ranks = 2}));
  }
  ranks_instantiate(&ranks);
  for (uint32_t r = 0; r < 2; r++) *(int32_t *)rondo_data(ranks.trials[r].slot, flag[r]) = 0;
  ranks_replay(&ranks);
  for (uint32_t r = 0; r < 2; r++) cr_assert_eq(*(const float *)rondo_data(ranks.trials[r].slot, out[r]), 2.0f);
  const rondo_slot slots[] = {ranks.trials[0].slot, ranks.trials[1].slot};
  *(int32_t *)rondo_data(slots[1], flag[1]) = 1;
  const uint64_t begin = now_ns();
  REQUIRE_OK(rondo_replay_all(slots, 2));
  for (int r = 0; r < 2; r++) {
    REQUIRE_ERROR(rondo_wait(slots[r], minute_ns), RONDO_DEVICE_LOST, "");
    cr_assert_lt(now_ns() - begin, minute_ns / 6, "rank %d", r);
  }
  ranks_abandon(&ranks);
}
