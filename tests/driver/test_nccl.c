/* test_nccl.c - rondo_add_nccl on the fake driver, with the fake NCCL of nccl_fake.h: each call in every slot and
 * order, and each way in which NCCL is not there, too old, or refuses. Faults that would show: a count in the wrong
 * type, calls that run in another order than they were added, a host callback that passes, a warm-up that would wait
 * for other ranks, a failure of NCCL without its words. */
#include <dlfcn.h>
#include <rondo_nccl.h>
#include <stdio.h>
#include <string.h>

#include "../../runtime/cuda/abi.h"
#include "driver_bench.h"
#include "nccl_fake.h"

enum { RANKS = 2, RANK = 1, OUT_OF_MEMORY = 2 };

/* ---- NCCL, as the loader finds it -------------------------------------------------------------------------------- */

static bool is_absent;
static const char *hidden;

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names. */
void *__real_dlopen(const char *name, int mode);
void *__wrap_dlopen(const char *name, int mode);
void *__wrap_dlopen(const char *name, int mode) {
  const bool hides = is_absent && name && !strcmp(name, "libnccl.so.2");
  return __real_dlopen(hides ? "libnccl.so.absent" : name, mode);
}

void *__real_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name) {
  return hidden && !strcmp(name, hidden) ? NULL : __real_dlsym(library, name);
}
/* NOLINTEND(bugprone-reserved-identifier) */

static struct nccl_fake *nccl;
static int anything;
static struct ncclComm *const communicator = (struct ncclComm *)(void *)&anything;

static void nccl_setup(void) {
  driver_setup();
  void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  void *symbol = library ? dlsym(library, "nccl_fake") : NULL;
  if (!symbol) cr_assert_fail("libnccl.so.2 is not the fake: run with LD_LIBRARY_PATH set to the fake's folder");
  nccl_fake_function find;
  memcpy(&find, &symbol, sizeof find);
  nccl = find();
}

TestSuite(nccl, .init = nccl_setup, .timeout = 60);

static rondo_nccl_desc all_reduce_of(const struct bench *bench) {
  return (rondo_nccl_desc){.name = "sum", .communicator = communicator, .in = bench->x, .out = bench->y};
}

/* ---- Each call --------------------------------------------------------------------------------------------------- */

/* Of rank 1 of 2: rank 0 has STEP less. */
static uint32_t summed(uint32_t x) { return 2 * x - NCCL_STEP; }
static uint32_t kept(uint32_t x) { return x; }

static void require_calls(const char *calls) {
  char twice[1024];
  snprintf(twice, sizeof twice, "%s%s", calls, calls);
  cr_assert_str_eq(nccl->calls, twice, "once for each slot");
}

Test(nccl, an_all_reduce_runs_between_the_tasks_around_it) {
  struct bench bench;
  bench_begin(&bench);
  rondo_nccl_desc desc = all_reduce_of(&bench);
  desc.in = add_vector(rondo_temporary, bench.graph, "before", COUNT);
  desc.out = add_vector(rondo_temporary, bench.graph, "after", COUNT);
  add_copy(bench.graph, "copy before", bench.x, desc.in);
  REQUIRE_OK(rondo_add_nccl(bench.graph, &desc));
  add_copy(bench.graph, "copy after", desc.out, bench.y);
  REQUIRE_OK(bench_instantiate(&bench));
  require_calls("ncclAllReduce 40 of type 2\n");
  cr_assert_eq(nccl->mode, CU_CAPTURE_RELAXED, "NCCL may connect the ranks now: mode %d", nccl->mode);
  require_result(&bench, "all_reduce", summed);
  bench_end(&bench);
}

Test(nccl, an_all_reduce_is_in_place_if_both_operands_are_one) {
  struct bench bench;
  bench_begin(&bench);
  rondo_nccl_desc desc = all_reduce_of(&bench);
  desc.in = desc.out = add_vector(rondo_temporary, bench.graph, "both", COUNT);
  add_copy(bench.graph, "copy before", bench.x, desc.in);
  REQUIRE_OK(rondo_add_nccl(bench.graph, &desc));
  add_copy(bench.graph, "copy after", desc.out, bench.y);
  REQUIRE_OK(bench_instantiate(&bench));
  require_result(&bench, "all_reduce in place", summed);
  bench_end(&bench);
}

/* A reduce_scatter of y's shape from a gathered x is the all_reduce. */
Test(nccl, an_all_gather_and_a_reduce_scatter_count_parts) {
  struct bench bench;
  bench_begin(&bench);
  rondo_tensor both = add_vector(rondo_temporary, bench.graph, "both", RANKS * COUNT);
  rondo_nccl_desc gather = {.call = RONDO_NCCL_ALL_GATHER, .communicator = communicator, .in = bench.x, .out = both};
  rondo_nccl_desc scatter = {
      .call = RONDO_NCCL_REDUCE_SCATTER, .communicator = communicator, .in = both, .out = bench.y};
  REQUIRE_OK(rondo_add_nccl(bench.graph, &gather));
  REQUIRE_OK(rondo_add_nccl(bench.graph, &scatter));
  REQUIRE_OK(bench_instantiate(&bench));
  require_calls("ncclAllGather 160 of type 1\nncclReduceScatter 40 of type 2\n");
  require_result(&bench, "all_gather, then reduce_scatter", summed);
  bench_end(&bench);
}

Test(nccl, the_source_of_a_broadcast_sends_in_place_without_out) {
  struct bench bench;
  bench_begin(&bench);
  rondo_nccl_desc desc = {
      .call = RONDO_NCCL_BROADCAST, .communicator = communicator, .in = bench.x, .out = bench.y, .from = RANK};
  REQUIRE_OK(rondo_add_nccl(bench.graph, &desc));
  desc.out = (rondo_tensor){0};
  REQUIRE_OK(rondo_add_nccl(bench.graph, &desc));
  REQUIRE_OK(bench_instantiate(&bench));
  require_calls("ncclBroadcast 160 of type 1, rank 1\nncclBroadcast 160 of type 1, rank 1\n");
  require_result(&bench, "broadcast", kept);
  bench_end(&bench);
}

static void require_received(struct bench *bench) {
  rondo_slot slot;
  REQUIRE_OK(rondo_acquire(bench->exec, &slot));
  uint32_t *x = rondo_data(slot, bench->x);
  for (uint32_t i = 0; i < COUNT; i++) x[i] = 3 * i;
  REQUIRE_OK(rondo_replay(slot));
  REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
  const uint32_t *y = rondo_data(slot, bench->y);
  for (uint32_t i = 0; i < COUNT; i++) cr_assert_eq(y[i], NCCL_FROM + i, "from rank 0");
  REQUIRE_OK(rondo_release(slot));
}

Test(nccl, another_rank_of_a_broadcast_has_out_alone) {
  struct bench bench;
  bench_begin(&bench);
  rondo_nccl_desc desc = {.call = RONDO_NCCL_BROADCAST, .communicator = communicator, .out = bench.y, .from = 0};
  REQUIRE_OK(rondo_add_nccl(bench.graph, &desc));
  REQUIRE_OK(bench_instantiate(&bench));
  require_received(&bench);
  bench_end(&bench);
}

Test(nccl, a_send_and_its_receive_are_one_group) {
  struct bench bench;
  bench_begin(&bench);
  rondo_nccl_desc desc = {.call = RONDO_NCCL_SEND_RECEIVE, .communicator = communicator, .in = bench.x, .out = bench.y};
  REQUIRE_OK(rondo_add_nccl(bench.graph, &desc));
  REQUIRE_OK(bench_instantiate(&bench));
  require_calls("ncclGroupStart\nncclSend 160 of type 1, rank 0\nncclRecv 160 of type 1, rank 0\nncclGroupEnd\n");
  require_received(&bench);
  for (uint32_t i = 0; i < COUNT; i++) cr_assert_eq(nccl->sent[i], 3 * i);
  bench_end(&bench);
}

Test(nccl, a_rank_may_only_send_or_only_receive) {
  struct bench bench;
  bench_begin(&bench);
  rondo_nccl_desc desc = {.call = RONDO_NCCL_SEND_RECEIVE, .communicator = communicator, .in = bench.x};
  REQUIRE_OK(rondo_add_nccl(bench.graph, &desc));
  desc.in = (rondo_tensor){0}, desc.out = bench.y;
  REQUIRE_OK(rondo_add_nccl(bench.graph, &desc));
  REQUIRE_OK(bench_instantiate(&bench));
  require_calls("ncclGroupStart\nncclSend 160 of type 1, rank 0\nncclGroupEnd\n"
                "ncclGroupStart\nncclRecv 160 of type 1, rank 0\nncclGroupEnd\n");
  require_received(&bench);
  bench_end(&bench);
}

/* Sums count elements of NCCL's type, the rest bytes. */
Test(nccl, each_type_has_the_number_of_nccl) {
  static const struct {
    rondo_dtype dtype;
    const char *calls;
  } types[] = {{RONDO_F64, "ncclAllReduce 64 of type 8\nncclAllGather 512 of type 1\n"},
               {RONDO_F32, "ncclAllReduce 64 of type 7\nncclAllGather 256 of type 1\n"},
               {RONDO_F16, "ncclAllReduce 64 of type 6\nncclAllGather 128 of type 1\n"},
               {RONDO_BF16, "ncclAllReduce 64 of type 9\nncclAllGather 128 of type 1\n"},
               {RONDO_I32, "ncclAllReduce 64 of type 2\nncclAllGather 256 of type 1\n"},
               {RONDO_U8, "ncclAllReduce 64 of type 1\nncclAllGather 64 of type 1\n"},
               {RONDO_E4M3, "ncclAllGather 64 of type 1\n"},
               {RONDO_NVFP4, "ncclAllGather 32 of type 1\n"}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    struct bench bench;
    rondo_tensor part, sum, whole;
    bench_begin(&bench);
    nccl->calls[0] = 0;
    REQUIRE_OK(rondo_state(bench.graph, "part", types[i].dtype, 2, (int64_t[]){4, 16}, &part));
    REQUIRE_OK(rondo_state(bench.graph, "sum", types[i].dtype, 2, (int64_t[]){4, 16}, &sum));
    REQUIRE_OK(rondo_state(bench.graph, "whole", types[i].dtype, 2, (int64_t[]){8, 16}, &whole));
    add_copy(bench.graph, "copy", bench.x, bench.y);
    rondo_nccl_desc desc = {.communicator = communicator, .in = part, .out = sum};
    if (strstr(types[i].calls, "Reduce")) REQUIRE_OK(rondo_add_nccl(bench.graph, &desc));
    desc.call = RONDO_NCCL_ALL_GATHER, desc.out = whole;
    REQUIRE_OK(rondo_add_nccl(bench.graph, &desc));
    REQUIRE_OK(bench_instantiate(&bench));
    require_calls(types[i].calls);
    bench_end(&bench);
  }
}

/* ---- Order, and what waits for other ranks ----------------------------------------------------------------------- */

Test(nccl, calls_without_a_tensor_in_common_run_in_the_order_of_adding) {
  struct bench bench;
  bench_begin(&bench);
  rondo_nccl_desc desc = all_reduce_of(&bench);
  REQUIRE_OK(rondo_add_nccl(bench.graph, &desc));
  desc.call = RONDO_NCCL_ALL_GATHER;
  desc.in = add_vector(rondo_state, bench.graph, "one", COUNT);
  desc.out = add_vector(rondo_state, bench.graph, "two", RANKS * COUNT);
  REQUIRE_OK(rondo_add_nccl(bench.graph, &desc));
  add_copy(bench.graph, "between", bench.x, add_vector(rondo_state, bench.graph, "copy", COUNT));
  desc.call = RONDO_NCCL_SEND_RECEIVE;
  desc.out = (rondo_tensor){0};
  REQUIRE_OK(rondo_add_nccl(bench.graph, &desc));
  REQUIRE_OK(bench_instantiate(&bench));
  rondo_slot slot;
  REQUIRE_OK(rondo_acquire(bench.exec, &slot));
  for (uint32_t seed = 0; seed < 20; seed++) {
    set_seed(seed);
    nccl->ran[0] = 0;
    REQUIRE_OK(rondo_replay(slot));
    REQUIRE_OK(rondo_wait(slot, RONDO_FOREVER));
    cr_assert_str_eq(nccl->ran, "ncclAllReduce\nncclAllGather\nncclSend\n");
  }
  REQUIRE_OK(rondo_release(slot));
  bench_end(&bench);
}

Test(nccl, a_graph_with_a_call_has_no_warm_up_and_no_profile) {
  struct bench bench;
  bench_begin(&bench);
  rondo_nccl_desc desc = all_reduce_of(&bench);
  REQUIRE_OK(rondo_add_nccl(bench.graph, &desc));
  REQUIRE_OK(bench_instantiate(&bench));
  cr_assert_eq(fake->calls("cuGraphLaunch"), 0);
  rondo_slot slot;
  rondo_exec_usage usage;
  rondo_task_profile tasks[8];
  rondo_profile_totals totals;
  REQUIRE_OK(rondo_exec_info(bench.exec, &usage));
  REQUIRE_OK(rondo_acquire(bench.exec, &slot));
  require_error(rondo_profile(slot, NULL, tasks, usage.node_count, &totals), RONDO_UNSUPPORTED,
                "rondo_profile: task 'sum' waits for other ranks, and a pass launches each task alone", "a profile");
  REQUIRE_OK(rondo_release(slot));
  bench_end(&bench);
}

Test(nccl, the_host_refuses_a_call) {
  struct bench bench;
  bench_begin(&bench);
  rondo_nccl_desc desc = all_reduce_of(&bench);
  REQUIRE_OK(rondo_add_nccl(bench.graph, &desc));
  rondo_options options = options_for(bench.graph, RONDO_BACKEND_HOST, SLOTS);
  REQUIRE_OK(rondo_open(&options, &bench.runtime));
  require_error(bench_instantiate(&bench), RONDO_UNSUPPORTED,
                "instantiate: task 'sum' is a call of NCCL, and this is the host backend: open the runtime with "
                "RONDO_BACKEND_CUDA",
                "the host");
  bench_end(&bench);
}

/* ---- Refused by NCCL --------------------------------------------------------------------------------------------- */

static const struct {
  const char *what;
  rondo_nccl_call call;
  struct nccl_fake_settings settings;
  rondo_status expected;
  const char *sentence;
} refused_calls[] = {
    {"host callbacks",
     RONDO_NCCL_ALL_REDUCE,
     {.host_callbacks = 1},
     RONDO_UNSUPPORTED,
     "NCCL enqueued a host callback, which no replay may do: NCCL needs it for ranks that only a network connects"},
    {"an all_reduce",
     RONDO_NCCL_ALL_REDUCE,
     {.failing = "ncclAllReduce", .result = 2, .last_error = "no route"},
     RONDO_DEVICE_ERROR,
     "ncclAllReduce: a system error: no route"},
    {"no last error",
     RONDO_NCCL_ALL_REDUCE,
     {.failing = "ncclAllReduce", .result = 5, .last_error = ""},
     RONDO_DEVICE_ERROR,
     "ncclAllReduce: an error"},
    {"in progress",
     RONDO_NCCL_ALL_REDUCE,
     {.failing = "ncclAllReduce", .result = 7},
     RONDO_DEVICE_ERROR,
     "ncclAllReduce is in progress: expected a communicator that blocks"},
    {"a group's start",
     RONDO_NCCL_SEND_RECEIVE,
     {.failing = "ncclGroupStart", .result = 2},
     RONDO_DEVICE_ERROR,
     "ncclSend and ncclRecv: a system error"},
    {"a send",
     RONDO_NCCL_SEND_RECEIVE,
     {.failing = "ncclSend", .result = 2},
     RONDO_DEVICE_ERROR,
     "ncclSend and ncclRecv: a system error"},
    {"a receive",
     RONDO_NCCL_SEND_RECEIVE,
     {.failing = "ncclRecv", .result = 2},
     RONDO_DEVICE_ERROR,
     "ncclSend and ncclRecv: a system error"},
    {"a group's end",
     RONDO_NCCL_SEND_RECEIVE,
     {.failing = "ncclGroupEnd", .result = 2},
     RONDO_DEVICE_ERROR,
     "ncclSend and ncclRecv: a system error"},
};

Test(nccl, a_call_that_nccl_refuses_has_its_words_and_leaves_nothing) {
  for (size_t i = 0; i < sizeof refused_calls / sizeof *refused_calls; i++) {
    struct bench bench;
    char sentence[256];
    driver_setup();
    bench_begin(&bench);
    rondo_nccl_desc desc = all_reduce_of(&bench);
    desc.call = refused_calls[i].call;
    REQUIRE_OK(rondo_add_nccl(bench.graph, &desc));
    const struct nccl_fake_settings settings = nccl->settings;
    nccl->settings.failing = refused_calls[i].settings.failing;
    nccl->settings.result = refused_calls[i].settings.result;
    nccl->settings.last_error = refused_calls[i].settings.last_error;
    nccl->settings.host_callbacks = refused_calls[i].settings.host_callbacks;
    nccl->calls[0] = 0;
    snprintf(sentence, sizeof sentence, "instantiate: task 'sum': %s", refused_calls[i].sentence);
    require_refused(&bench, refused_calls[i].what, refused_calls[i].expected, sentence);
    const char *opened = strstr(nccl->calls, "Start\n"), *ended = strstr(nccl->calls, "ncclGroupEnd\n");
    const bool starts = opened && strcmp(refused_calls[i].what, "a group's start") != 0;
    cr_assert_eq(ended != NULL, starts, "a group that began is ended: %s", refused_calls[i].what);
    nccl->settings = settings;
  }
}

/* Of two calls, each driver call in turn. */
Test(nccl, a_driver_call_that_fails_leaves_nothing) {
  uint32_t failures = 0;
  for (uint64_t n = 1;; n++) {
    struct bench bench;
    char text[256];
    driver_setup();
    bench_begin(&bench);
    rondo_nccl_desc desc = all_reduce_of(&bench);
    REQUIRE_OK(rondo_add_nccl(bench.graph, &desc));
    REQUIRE_OK(rondo_add_nccl(bench.graph, &desc));
    rondo_options options = options_for(bench.graph, RONDO_BACKEND_CUDA, SLOTS);
    REQUIRE_OK(rondo_open(&options, &bench.runtime));
    fake->fail_call(n, OUT_OF_MEMORY);
    const rondo_status status = bench_instantiate(&bench);
    const char *failed = fake->failed_call();
    fake->fail_call(0, 0);
    require_no_violation("a call that fails");
    if (status == RONDO_DEVICE_LOST) { /* not even its health could be asked */
      REQUIRE_OK(rondo_close(&bench.runtime));
      REQUIRE_OK(rondo_graph_destroy(&bench.graph));
      continue;
    }
    failures += status != RONDO_OK;
    if (status != RONDO_OK)
      cr_assert_leq(fake->live(text, sizeof text), 7, "%s failed, and there is still: %s", failed, text);
    bench_end(&bench);
    if (!failed) break;
  }
  cr_assert_gt(failures, 20);
}

Test(nccl, a_communicator_that_nccl_does_not_know_is_refused) {
  static const char *const functions[] = {"ncclCommCount", "ncclCommUserRank"};
  struct bench bench;
  bench_begin(&bench);
  rondo_nccl_desc desc = all_reduce_of(&bench);
  for (int i = 0; i < 2; i++) {
    char sentence[128];
    nccl->settings.failing = functions[i], nccl->settings.result = 4, nccl->settings.last_error = "corrupted";
    snprintf(sentence, sizeof sentence, "describe: rondo_add_nccl: %s: an error: corrupted", functions[i]);
    require_error(rondo_add_nccl(bench.graph, &desc), RONDO_DEVICE_ERROR, sentence, functions[i]);
  }
  REQUIRE_OK(rondo_graph_destroy(&bench.graph));
}

/* ---- NCCL that is not there, or too old -------------------------------------------------------------------------- */

/* Refused, and a second try with a good NCCL is not. */
static void require_unloaded(const char *sentence) {
  struct bench bench;
  bench_begin(&bench);
  rondo_nccl_desc desc = all_reduce_of(&bench);
  require_error(rondo_add_nccl(bench.graph, &desc), RONDO_UNSUPPORTED, sentence, sentence);
  is_absent = false, hidden = NULL, nccl->settings.version = 22809, nccl->settings.failing = NULL;
  REQUIRE_OK(rondo_add_nccl(bench.graph, &desc));
  REQUIRE_OK(bench_instantiate(&bench));
  require_result(&bench, "a second try", summed);
  bench_end(&bench);
}

Test(nccl, without_nccl_the_loader_has_the_words) {
  is_absent = true;
  require_unloaded("describe: rondo_add_nccl: NCCL cannot be opened: libnccl.so.absent: cannot open shared object "
                   "file: No such file or directory");
}

Test(nccl, an_old_nccl_is_told_by_its_version_of_five_digits) {
  nccl->settings.version = 21212, hidden = "ncclGetLastError";
  require_unloaded("describe: rondo_add_nccl: libnccl.so.2 is NCCL 2.12, expected 2.13 or newer");
}

Test(nccl, an_old_nccl_is_told_by_its_version_of_four_digits) {
  nccl->settings.version = 2804;
  require_unloaded("describe: rondo_add_nccl: libnccl.so.2 is NCCL 2.8, expected 2.13 or newer");
}

Test(nccl, an_nccl_without_a_version_is_refused) {
  nccl->settings.failing = "ncclGetVersion", nccl->settings.result = 3;
  require_unloaded("describe: rondo_add_nccl: ncclGetVersion: NCCL error 3");
}

Test(nccl, the_first_function_that_nccl_lacks_is_named) {
  hidden = "ncclGetVersion";
  require_unloaded("describe: rondo_add_nccl: libnccl.so.2 has no ncclGetVersion");
}

Test(nccl, the_last_function_that_nccl_lacks_is_named) {
  hidden = "ncclRecv";
  require_unloaded("describe: rondo_add_nccl: libnccl.so.2 has no ncclRecv");
}
