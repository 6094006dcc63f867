/* test_exchange_refused.c - descriptions of exchanges that do not fit, each with its sentence, and what they leave. */
#include <criterion/criterion.h>

#include "../oracles/ranks.h"

#define REFUSED_OF(states, count, function, fragment, ...)                                                             \
  REQUIRE_ERROR(function(g, &(rondo_exchange_desc){.exchange = states, .ranks = count, __VA_ARGS__}),                  \
                RONDO_INVALID_ARGUMENT, fragment)
#define REFUSED(function, fragment, ...) REFUSED_OF(ranks.exchange, 2, function, fragment, __VA_ARGS__)

static rondo_tensor state_of(rondo_graph *graph, const char *name, rondo_dtype type, uint32_t rank,
                             const int64_t *shape) {
  rondo_tensor tensor;
  REQUIRE_OK(rondo_state(graph, name, type, rank, shape, &tensor));
  return tensor;
}

Test(exchange_refused, wrong_ranks_and_peers) {
  struct ranks ranks;
  ranks_describe(&ranks, RONDO_BACKEND_HOST, 2, 4096);
  rondo_graph *g = ranks.trials[0].graph;
  const rondo_tensor x = state_of(g, "x", RONDO_F32, 1, (int64_t[]){8}),
                     y = state_of(g, "y", RONDO_F32, 1, (int64_t[]){8});
  REQUIRE_ERROR(rondo_add_all_reduce(g, NULL), RONDO_INVALID_ARGUMENT, "rondo_add_all_reduce: the description is NULL");
  REFUSED_OF(ranks.exchange, 0, rondo_add_all_reduce, "0 ranks, expected 1 to 8", .in = x, .out = y);
  REFUSED_OF(ranks.exchange, 9, rondo_add_all_reduce, "9 ranks, expected 1 to 8", .in = x, .out = y);
  REFUSED(rondo_add_all_reduce, "rank is 2, expected less than the 2 ranks", .in = x, .out = y, .rank = 2);
  REFUSED_OF(NULL, 2, rondo_add_all_reduce, "exchange is NULL", .in = x, .out = y);
  const rondo_tensor one[] = {ranks.exchange[0], {0}};
  REFUSED_OF(one, 2, rondo_add_all_reduce, "exchange[1] is absent", .in = x, .out = y);
  REFUSED(rondo_add_broadcast, "peer is 2, expected less than the 2 ranks", .in = x, .out = y, .peer = 2);
  REFUSED(rondo_add_send, "peer is 0, the rank itself", .in = x);
  REFUSED(rondo_add_receive, "peer is 2, expected less than the 2 ranks", .out = x, .peer = 2);
  ranks_end(&ranks);
}

Test(exchange_refused, wrong_shapes_and_types) {
  struct ranks ranks;
  ranks_describe(&ranks, RONDO_BACKEND_HOST, 2, 4096);
  rondo_graph *g = ranks.trials[0].graph;
  const rondo_tensor x = state_of(g, "x", RONDO_F32, 2, (int64_t[]){4, 8}),
                     z = state_of(g, "z", RONDO_F32, 2, (int64_t[]){4, 8});
  const rondo_tensor half = state_of(g, "half", RONDO_BF16, 2, (int64_t[]){4, 8}),
                     ints = state_of(g, "ints", RONDO_I32, 2, (int64_t[]){4, 8});
  const rondo_tensor wide = state_of(g, "wide", RONDO_F32, 2, (int64_t[]){4, 16}),
                     terms = state_of(g, "terms", RONDO_BF16, 3, (int64_t[]){3, 4, 8});
  REFUSED(rondo_add_all_reduce, "out is absent, expected f32, f16 or bf16", .in = x);
  REFUSED(rondo_add_all_reduce, "in is absent, expected [4, 8]", .out = x);
  REFUSED(rondo_add_all_reduce, "in is [4, 8] i32, expected f32, f16 or bf16", .in = ints, .out = x);
  REFUSED(rondo_add_all_reduce, "in is [4, 16] f32, expected [4, 8] f32", .in = wide, .out = x);
  REFUSED(rondo_add_all_reduce, "in is [3, 4, 8] bf16, expected [3, 4, 8] f32", .in = terms, .out = x);
  REFUSED(rondo_add_all_reduce, "residual is [4, 16] f32, expected [4, 8] f32", .in = x, .out = z, .residual = wide);
  REFUSED(rondo_add_all_reduce, "in and out overlap", .in = x, .out = x);
  REFUSED(rondo_add_all_gather, "residual is given, but only rondo_add_all_reduce adds one", .in = x, .out = wide,
          .residual = z, .dimension = 1);
  REFUSED(rondo_add_all_gather, "dimension is 2, expected less than the rank of in, 2", .in = x, .out = wide,
          .dimension = 2);
  REFUSED(rondo_add_all_gather, "out is [4, 16] f32, expected [8, 8] f32", .in = x, .out = wide);
  REFUSED(rondo_add_all_gather, "out is [4, 16] f32, expected [4, 16] bf16", .in = half, .out = wide, .dimension = 1);
  REFUSED(rondo_add_all_gather, "in is absent", .out = wide);
  REFUSED(rondo_add_reduce_scatter, "in is [4, 8] f32, expected [4, 16] f32", .in = x, .out = z, .dimension = 1);
  REFUSED(rondo_add_reduce_scatter, "out is absent", .in = x);
  REFUSED(rondo_add_broadcast, "in is absent", .out = x);
  REFUSED(rondo_add_broadcast, "in is given, but only the peer's is sent", .in = x, .out = z, .peer = 1);
  REFUSED(rondo_add_broadcast, "out is absent", .peer = 1);
  REFUSED(rondo_add_broadcast, "out is [4, 16] f32, expected [4, 8] f32", .in = x, .out = wide);
  REFUSED(rondo_add_send, "in is absent", .peer = 1);
  REFUSED(rondo_add_send, "out is given, but the peer receives", .in = x, .out = z, .peer = 1);
  REFUSED(rondo_add_receive, "in is given, but the peer sends", .in = x, .out = z, .peer = 1);
  REFUSED(rondo_add_receive, "out is absent", .peer = 1);
  ranks_end(&ranks);
}

Test(exchange_refused, states_that_are_none_or_too_small) {
  struct ranks ranks, small, three;
  rondo_tensor tensor;
  ranks_describe(&ranks, RONDO_BACKEND_HOST, 2, 4096);
  ranks_describe(&small, RONDO_BACKEND_HOST, 2, 1000);
  ranks_describe(&three, RONDO_BACKEND_HOST, 3, 4096);
  rondo_graph *g = ranks.trials[0].graph;
  const rondo_tensor x = state_of(g, "x", RONDO_F32, 1, (int64_t[]){1024}),
                     y = state_of(g, "y", RONDO_F32, 1, (int64_t[]){1024});
  const rondo_tensor longer = state_of(g, "longer", RONDO_F32, 1, (int64_t[]){1200}),
                     sum = state_of(g, "sum", RONDO_F32, 1, (int64_t[]){1200});
  REFUSED(rondo_add_all_reduce, "exchange[0] is too small, expected one for at least 4800 bytes", .in = longer,
          .out = sum);
  const rondo_tensor other[] = {ranks.exchange[0], y}, smaller[] = {ranks.exchange[0], small.exchange[1]};
  REFUSED_OF(three.exchange, 2, rondo_add_all_reduce, "exchange[0] is no rondo_exchange_state of 2 ranks", .in = x,
             .out = y);
  REFUSED_OF(other, 2, rondo_add_all_reduce, "exchange[1] is no rondo_exchange_state of 2 ranks", .in = x, .out = y);
  REFUSED_OF(other, 2, rondo_add_all_reduce, "exchange[1] is no rondo_exchange_state of 2 ranks", .in = longer,
             .out = sum, .rank = 1);
  REFUSED_OF(smaller, 2, rondo_add_all_reduce, "exchange[1] is [2, 560640] u8, expected [2, 566784] u8", .in = x,
             .out = y);
  REQUIRE_ERROR(rondo_exchange_state(g, "s", 0, 10, &tensor), RONDO_INVALID_ARGUMENT, "0 ranks, expected 1 to 8");
  REQUIRE_ERROR(rondo_exchange_state(g, "s", 2, UINT64_C(1) << 40, &tensor), RONDO_INVALID_ARGUMENT,
                "expected at most");
  REQUIRE_ERROR(rondo_exchange_state(g, "s", 2, 10, NULL), RONDO_INVALID_ARGUMENT, "NULL");
  ranks_end(&three), ranks_end(&small), ranks_end(&ranks);
}

/* What is refused leaves the graph as it was: no borrowed states. */
Test(exchange_refused, leaves_nothing_behind) {
  struct ranks ranks;
  ranks_describe(&ranks, RONDO_BACKEND_HOST, 2, 4096);
  rondo_graph *g;
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 4}, &g));
  const rondo_tensor x = state_of(g, "x", RONDO_F32, 1, (int64_t[]){8}),
                     y = state_of(g, "y", RONDO_F32, 1, (int64_t[]){8});
  for (int i = 0; i < 5; i++) REFUSED(rondo_add_all_reduce, "in and out overlap", .in = x, .out = x);
  REQUIRE_OK(
      rondo_add_all_reduce(g, &(rondo_exchange_desc){.in = x, .out = y, .exchange = ranks.exchange, .ranks = 2}));
  REQUIRE_ERROR(rondo_state(g, "one more", RONDO_F32, 1, (int64_t[]){8}, &(rondo_tensor){0}), RONDO_OUT_OF_MEMORY,
                "the graph is full");
  REQUIRE_OK(rondo_graph_destroy(&g));
  ranks_end(&ranks);
}
