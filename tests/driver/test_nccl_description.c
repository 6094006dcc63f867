/* test_nccl_description.c - descriptions that rondo_add_nccl refuses, each with a sentence, and without a change of the
 * graph. */
#include <rondo_nccl.h>
#include <stdio.h>

#include "driver_bench.h"

enum { HALF = COUNT / 2, RANK = 1 }; /* of the two ranks of the fake NCCL */

TestSuite(nccl_description, .init = driver_setup, .timeout = 60);

static int anything;
static struct ncclComm *const communicator = (struct ncclComm *)(void *)&anything;

/* x and y have 40 numbers, half 20; columns has gaps, numbers are e4m3. */
struct operands {
  rondo_tensor x, y, half, columns, numbers;
};

static rondo_nccl_desc wrong(uint32_t i, const struct operands *o) {
  const rondo_nccl_desc all[] = {
      {.call = (rondo_nccl_call)5, .in = o->x, .out = o->y},
      {.out = o->y},
      {.in = o->x},
      {.in = o->x, .out = o->half},
      {.in = o->columns, .out = o->y},
      {.in = o->numbers, .out = o->numbers},
      {.call = RONDO_NCCL_ALL_GATHER, .in = o->x, .out = o->y},
      {.call = RONDO_NCCL_REDUCE_SCATTER, .in = o->x, .out = o->y},
      {.call = RONDO_NCCL_BROADCAST, .in = o->x, .out = o->y, .from = 2},
      {.call = RONDO_NCCL_BROADCAST, .in = o->x, .out = o->y},
      {.call = RONDO_NCCL_BROADCAST, .from = RANK},
      {.call = RONDO_NCCL_BROADCAST, .in = o->x, .out = o->half, .from = RANK},
      {.call = RONDO_NCCL_BROADCAST},
      {.call = RONDO_NCCL_SEND_RECEIVE},
      {.call = RONDO_NCCL_SEND_RECEIVE, .in = o->x, .to = 7},
      {.call = RONDO_NCCL_SEND_RECEIVE, .out = o->y, .from = 7},
      {.call = RONDO_NCCL_SEND_RECEIVE, .in = o->y, .out = o->y},
  };
  return all[i];
}

static const char *const wrong_sentences[] = {
    "call is 5, expected one of rondo_nccl_call",
    "task 1 'all_reduce': in is absent",
    "task 1 'all_reduce': out is absent",
    "task 1 'all_reduce': out is [20] i32, expected [40] i32 (out: state 'half')",
    "task 1 'all_reduce': in has gaps, expected a dense tensor (in: state 'matrix')",
    "task 1 'all_reduce': in is [40] e4m3, expected f64, f32, f16, bf16, i32 or u8 (in: state 'numbers')",
    "task 1 'all_gather': out is [40] i32, expected [80] i32 (out: output 'y')",
    "task 1 'reduce_scatter': in is [40] i32, expected [80] i32 (in: input 'x')",
    "task 1 'broadcast': `from` is 2, expected a rank below 2",
    "task 1 'broadcast': in is given, but rank 0 sends and this is rank 1 (in: input 'x')",
    "task 1 'broadcast': in is absent",
    "task 1 'broadcast': out is [20] i32, expected [40] i32 (out: state 'half')",
    "task 1 'broadcast': out is absent",
    "task 1 'send_receive': in and out are absent",
    "task 1 'send_receive': `to` is 7, expected a rank below 2",
    "task 1 'send_receive': `from` is 7, expected a rank below 2",
    "task 1 'send_receive': in and out overlap in 'y' and one of them is written",
};

static uint32_t kept(uint32_t x) { return x; }

Test(nccl_description, a_description_that_does_not_fit_is_refused_and_changes_nothing) {
  struct bench bench;
  struct operands o;
  rondo_tensor matrix;
  bench_begin(&bench);
  o.x = bench.x, o.y = bench.y;
  o.half = add_vector(rondo_state, bench.graph, "half", HALF);
  REQUIRE_OK(rondo_state(bench.graph, "matrix", RONDO_I32, 2, (int64_t[]){8, 10}, &matrix));
  REQUIRE_OK(rondo_view(bench.graph, matrix, (int64_t[]){0, 0}, (int64_t[]){8, 5}, &o.columns));
  REQUIRE_OK(rondo_state(bench.graph, "numbers", RONDO_E4M3, 1, (int64_t[]){COUNT}, &o.numbers));
  add_copy(bench.graph, "copy", bench.x, bench.y);
  for (uint32_t i = 0; i < sizeof wrong_sentences / sizeof *wrong_sentences; i++) {
    char sentence[256];
    rondo_nccl_desc desc = wrong(i, &o);
    desc.communicator = communicator;
    snprintf(sentence, sizeof sentence, "describe: rondo_add_nccl: %s", wrong_sentences[i]);
    require_error(rondo_add_nccl(bench.graph, &desc), RONDO_INVALID_ARGUMENT, sentence, wrong_sentences[i]);
  }
  rondo_nccl_desc desc = {.in = o.x, .out = o.y};
  require_error(rondo_add_nccl(bench.graph, &desc), RONDO_INVALID_ARGUMENT,
                "describe: rondo_add_nccl: the communicator is NULL", "no communicator");
  require_error(rondo_add_nccl(bench.graph, NULL), RONDO_INVALID_ARGUMENT,
                "describe: rondo_add_nccl: the description is NULL", "no description");
  REQUIRE_OK(bench_instantiate(&bench));
  require_result(&bench, "the copy alone", kept);
  bench_end(&bench);
}
