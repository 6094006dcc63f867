/* test_borrow.c - rondo_borrow: one set of constants and states for many graphs: what is described, what it takes of
 * the pools, and the results. When execs open, close and are busy: test_lend.c. */
#include <criterion/criterion.h>
#include <string.h>

#include "../../runtime/exec.h"
#include "../support.h"

enum { WIDTH = 96, ROWS = 8, PROMPT = 3, ROW_BYTES = WIDTH * 4 };

static const int64_t weights_shape[] = {4, WIDTH}, cache_shape[] = {ROWS, WIDTH};
static const int64_t prompt_shape[] = {PROMPT, WIDTH}, row_shape[] = {1, WIDTH};

static void add_copy(rondo_graph *graph, rondo_tensor src, rondo_tensor dst) {
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = src, .dst = dst}));
}

static rondo_tensor rows_of(rondo_graph *graph, rondo_tensor tensor, int64_t first, int64_t count) {
  rondo_tensor view;
  REQUIRE_OK(rondo_view(graph, tensor, (int64_t[]){first, 0}, (int64_t[]){count, WIDTH}, &view));
  return view;
}

/* A prompt fills the first rows of the cache; each token after it the next row, and sees all of them. */
struct model {
  rondo_graph *prefill, *decode[ROWS - PROMPT];
  rondo_tensor weights, cache, prompt;
  rondo_tensor token[ROWS - PROMPT], seen[ROWS - PROMPT], used_weights[ROWS - PROMPT];
};

static struct model describe_model(void) {
  struct model m = {0};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &m.prefill));
  REQUIRE_OK(rondo_constant(m.prefill, "weights", RONDO_F32, 2, weights_shape, &m.weights));
  REQUIRE_OK(rondo_state(m.prefill, "cache", RONDO_F32, 2, cache_shape, &m.cache));
  REQUIRE_OK(rondo_input(m.prefill, "prompt", RONDO_F32, 2, prompt_shape, &m.prompt));
  add_copy(m.prefill, m.prompt, rows_of(m.prefill, m.cache, 0, PROMPT));
  for (int i = 0; i < ROWS - PROMPT; i++) {
    rondo_graph **graph = &m.decode[i];
    rondo_tensor cache, weights;
    REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 16, .tasks = 16}, graph));
    REQUIRE_OK(rondo_borrow(*graph, m.cache, &cache));
    REQUIRE_OK(rondo_borrow(*graph, m.weights, &weights));
    REQUIRE_OK(rondo_input(*graph, "token", RONDO_F32, 2, row_shape, &m.token[i]));
    REQUIRE_OK(rondo_output(*graph, "seen", RONDO_F32, 2, cache_shape, &m.seen[i]));
    REQUIRE_OK(rondo_output(*graph, "used weights", RONDO_F32, 2, weights_shape, &m.used_weights[i]));
    add_copy(*graph, m.token[i], rows_of(*graph, cache, PROMPT + i, 1));
    add_copy(*graph, cache, m.seen[i]);
    add_copy(*graph, weights, m.used_weights[i]);
  }
  return m;
}

static uint32_t graphs_of(const struct model *m, rondo_graph **graphs) {
  graphs[0] = m->prefill;
  for (int i = 0; i < ROWS - PROMPT; i++) graphs[1 + i] = m->decode[i];
  return 1 + ROWS - PROMPT;
}

static void numbers(float *data, int count, float first) {
  for (int i = 0; i < count; i++) data[i] = first + (float)i;
}

static void replay(rondo_exec *exec, rondo_tensor input, const float *data, int count, rondo_slot *slot) {
  REQUIRE_OK(rondo_acquire(exec, slot));
  memcpy(rondo_data(*slot, input), data, (size_t)count * sizeof *data);
  REQUIRE_OK(rondo_replay(*slot));
  REQUIRE_OK(rondo_wait(*slot, RONDO_FOREVER));
}

/* The result of every token, for two prompts one after the other. */
static void generate(const struct model *m, rondo_exec *const *execs) {
  static float cache[ROWS][WIDTH], weights[4][WIDTH], kept[ROWS][WIDTH];
  rondo_slot slot;
  numbers(weights[0], 4 * WIDTH, 5000);
  numbers(cache[0], ROWS * WIDTH, 9000); /* what no row has overwritten stays */
  REQUIRE_OK(rondo_upload(execs[0], m->weights, weights, sizeof weights));
  REQUIRE_OK(rondo_upload(execs[0], m->cache, cache, sizeof cache));
  for (int round = 0; round < 2; round++) {
    numbers(cache[0], PROMPT * WIDTH, (float)(100 * round));
    replay(execs[0], m->prompt, cache[0], PROMPT * WIDTH, &slot);
    REQUIRE_OK(rondo_release(slot));
    for (int i = 0; i < ROWS - PROMPT; i++) {
      numbers(cache[PROMPT + i], WIDTH, (float)(1000 * round + 200 * i));
      replay(execs[1 + i], m->token[i], cache[PROMPT + i], WIDTH, &slot);
      cr_assert_arr_eq(rondo_data(slot, m->seen[i]), cache, sizeof cache, "round %d, token %d", round, i);
      cr_assert_arr_eq(rondo_data(slot, m->used_weights[i]), weights, sizeof weights);
      REQUIRE_OK(rondo_release(slot));
    }
  }
  REQUIRE_OK(rondo_download(execs[0], m->cache, kept, sizeof kept));
  cr_assert_arr_eq(kept, cache, sizeof cache);
}

static void require_empty(rondo_runtime *runtime) {
  rondo_info info;
  REQUIRE_OK(rondo_runtime_info(runtime, &info));
  cr_assert_eq(info.device.used_bytes + info.pinned.used_bytes + info.host.used_bytes, 0, "something is left");
}

static void a_set_of_graphs_runs_in_pools_as_planned(rondo_backend backend) {
  struct model m = describe_model();
  rondo_graph *graphs[ROWS];
  rondo_exec *execs[ROWS] = {NULL};
  uint32_t count = graphs_of(&m, graphs);
  rondo_plan plan;
  REQUIRE_OK(rondo_plan_graphs(graphs, count, &plan));
  cr_assert_eq(plan.constant_bytes, (uint64_t)(4 + ROWS) * ROW_BYTES, "the owner's alone");
  cr_assert_eq(plan.borrowed_bytes, (uint64_t)(count - 1) * (4 + ROWS) * ROW_BYTES);
  for (int less = 2; less >= 0; less--) {
    rondo_options options = {.backend = backend,
                             .device_bytes = plan.device_bytes - (less == 1),
                             .pinned_bytes = plan.pinned_bytes_per_slot - (less == 2),
                             .host_bytes = plan.host_bytes,
                             .host_threads = 2};
    rondo_runtime *runtime = NULL;
    REQUIRE_OK(rondo_open(&options, &runtime));
    for (uint32_t i = 0; i < count; i++) {
      rondo_status status = rondo_instantiate(runtime, graphs[i], NULL, &execs[i]);
      if (less && i == count - 1)
        require_error(status, RONDO_OUT_OF_MEMORY, less == 1 ? "device pool" : "pinned pool", "the last exec");
      else
        require_ok(status, "rondo_instantiate");
    }
    if (!less) {
      rondo_info info;
      REQUIRE_OK(rondo_runtime_info(runtime, &info));
      cr_assert_eq(info.device.used_bytes, plan.device_bytes);
      cr_assert_eq(info.pinned.used_bytes, plan.pinned_bytes_per_slot);
      generate(&m, execs);
    }
    for (uint32_t i = count; i-- > 0;) REQUIRE_OK(rondo_close_exec(&execs[i]));
    require_empty(runtime);
    REQUIRE_OK(rondo_close(&runtime));
  }
  for (uint32_t i = 0; i < count; i++) REQUIRE_OK(rondo_graph_destroy(&graphs[i]));
}
BOTH_BACKENDS(borrow, a_set_of_graphs_runs_in_pools_as_planned, a_set_of_graphs_runs_in_pools_as_planned)

/* The same with the graphs in the runtime's own host pool, where they and their plans are made. */
Test(borrow, graphs_in_the_host_pool_fit_in_what_was_planned_beside_themselves) {
  struct model m = describe_model();
  rondo_graph *graphs[ROWS], *twins[ROWS] = {NULL};
  uint32_t count = graphs_of(&m, graphs);
  uint64_t graph_bytes = 0;
  rondo_plan plan;
  REQUIRE_OK(rondo_plan_graphs(graphs, count, &plan));
  for (uint32_t i = 0; i < count; i++) graph_bytes += POOL_HEADER_BYTES + pool_round(graphs[0]->memory_bytes);
  rondo_options options = {.backend = RONDO_BACKEND_HOST,
                           .device_bytes = plan.device_bytes,
                           .pinned_bytes = plan.pinned_bytes_per_slot,
                           .host_bytes = plan.host_bytes + graph_bytes,
                           .host_threads = 1};
  rondo_runtime *runtime = NULL;
  rondo_exec *execs[ROWS] = {NULL};
  REQUIRE_OK(rondo_open(&options, &runtime));
  rondo_tensor weights, cache;
  for (uint32_t i = 0; i < count; i++) {
    REQUIRE_OK(rondo_graph_create(runtime, NULL, &twins[i]));
    rondo_tensor input, own, seen;
    if (!i) {
      REQUIRE_OK(rondo_constant(twins[0], "weights", RONDO_F32, 2, weights_shape, &weights));
      REQUIRE_OK(rondo_state(twins[0], "cache", RONDO_F32, 2, cache_shape, &cache));
      REQUIRE_OK(rondo_input(twins[0], "prompt", RONDO_F32, 2, prompt_shape, &input));
      add_copy(twins[0], input, rows_of(twins[0], cache, 0, PROMPT));
      continue;
    }
    REQUIRE_OK(rondo_borrow(twins[i], cache, &own));
    REQUIRE_OK(rondo_input(twins[i], "token", RONDO_F32, 2, row_shape, &input));
    REQUIRE_OK(rondo_output(twins[i], "seen", RONDO_F32, 2, cache_shape, &seen));
    add_copy(twins[i], input, rows_of(twins[i], own, PROMPT, 1));
    add_copy(twins[i], own, seen);
  }
  rondo_plan twins_plan;
  REQUIRE_OK(rondo_plan_graphs(twins, count, &twins_plan));
  for (uint32_t i = 0; i < count; i++) REQUIRE_OK(rondo_instantiate(runtime, twins[i], NULL, &execs[i]));
  for (uint32_t i = count; i-- > 0;) REQUIRE_OK(rondo_close_exec(&execs[i]));
  for (uint32_t i = 0; i < count; i++) REQUIRE_OK(rondo_graph_destroy(&twins[i]));
  for (uint32_t i = 0; i < count; i++) REQUIRE_OK(rondo_graph_destroy(&graphs[i]));
  require_empty(runtime);
  REQUIRE_OK(rondo_close(&runtime));
}

static rondo_exec *open_exec(rondo_runtime *runtime, rondo_graph *graph) {
  rondo_exec *exec = NULL;
  REQUIRE_OK(rondo_instantiate(runtime, graph, NULL, &exec));
  return exec;
}

static rondo_runtime *open_runtime(rondo_backend backend) {
  rondo_runtime *runtime = NULL;
  REQUIRE_OK(
      rondo_open(&(rondo_options){.backend = backend, .device_bytes = 1 << 20, .pinned_bytes = 1 << 20}, &runtime));
  return runtime;
}

/* The owner has no tasks, and its graph is gone before anyone runs. What is borrowed from a borrower is the owner's. */
static void what_a_graph_without_tasks_owns_is_lent_on_and_on(rondo_backend backend) {
  enum { CHAIN = 4 };
  rondo_runtime *runtime = open_runtime(backend);
  rondo_graph *store = NULL, *chain[CHAIN] = {NULL};
  rondo_tensor cache, lent, shown[CHAIN], fed[CHAIN];
  REQUIRE_OK(rondo_graph_create(runtime, NULL, &store));
  REQUIRE_OK(rondo_state(store, "cache", RONDO_F32, 2, cache_shape, &cache));
  lent = rows_of(store, cache, 1, ROWS - 1);
  rondo_exec *owner = open_exec(runtime, store), *execs[CHAIN];
  for (int64_t i = 0; i < CHAIN; i++) { /* a view of a view of ... of the cache: from row 1 + i on */
    rondo_tensor view, row;
    REQUIRE_OK(rondo_graph_create(NULL, NULL, &chain[i]));
    REQUIRE_OK(rondo_borrow(chain[i], lent, &view));
    REQUIRE_OK(rondo_input(chain[i], "fed", RONDO_F32, 2, row_shape, &fed[i]));
    REQUIRE_OK(rondo_output(chain[i], "shown", RONDO_F32, 2, row_shape, &shown[i]));
    row = rows_of(chain[i], view, 0, 1);
    add_copy(chain[i], fed[i], row);
    add_copy(chain[i], row, shown[i]);
    lent = rows_of(chain[i], view, 1, ROWS - 2 - i);
    if (i) REQUIRE_OK(rondo_graph_destroy(&chain[i - 1]));
    if (i) continue;
    REQUIRE_OK(rondo_graph_destroy(&store));
  }
  for (int i = 0; i < CHAIN; i++) execs[i] = NULL;
  REQUIRE_OK(rondo_instantiate(runtime, chain[CHAIN - 1], NULL, &execs[CHAIN - 1]));
  float data[ROWS][WIDTH], expected[ROWS][WIDTH] = {{0}}, got[ROWS][WIDTH];
  numbers(data[0], ROWS * WIDTH, 1);
  memcpy(expected[CHAIN], data[3], ROW_BYTES);
  rondo_slot slot;
  replay(execs[CHAIN - 1], fed[CHAIN - 1], data[3], WIDTH, &slot);
  cr_assert_arr_eq(rondo_data(slot, shown[CHAIN - 1]), data[3], ROW_BYTES);
  cache.graph = NULL; /* of a destroyed graph; the exec knows it by its serial */
  REQUIRE_OK(rondo_download(owner, cache, got, sizeof got));
  cr_assert_arr_eq(got, expected, sizeof got);
  REQUIRE_OK(rondo_close_exec(&execs[CHAIN - 1]));
  REQUIRE_OK(rondo_close_exec(&owner));
  REQUIRE_OK(rondo_graph_destroy(&chain[CHAIN - 1]));
  REQUIRE_OK(rondo_close(&runtime));
}
BOTH_BACKENDS(borrow, what_a_graph_without_tasks_owns_is_lent_on_and_on,
              what_a_graph_without_tasks_owns_is_lent_on_and_on)

/* ---- Describe ---------------------------------------------------------------------------------------------------- */

static uint32_t edges_between(int64_t first_row, int64_t second_row, bool whole) {
  rondo_graph *owner = NULL, *graph = NULL;
  rondo_tensor cache, lent[2], mine[2], input, output;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &owner));
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_state(owner, "cache", RONDO_F32, 2, cache_shape, &cache));
  lent[0] = rows_of(owner, cache, first_row, 2);
  lent[1] = rows_of(owner, cache, second_row, 2);
  for (int i = 0; i < 2; i++) REQUIRE_OK(rondo_borrow(graph, lent[i], &mine[i]));
  if (whole) { /* the second through the whole tensor, borrowed once more */
    rondo_tensor all;
    REQUIRE_OK(rondo_borrow(graph, cache, &all));
    mine[1] = rows_of(graph, all, second_row, 2);
  }
  REQUIRE_OK(rondo_input(graph, "in", RONDO_F32, 2, (int64_t[]){2, WIDTH}, &input));
  REQUIRE_OK(rondo_output(graph, "out", RONDO_F32, 2, (int64_t[]){2, WIDTH}, &output));
  add_copy(graph, input, mine[0]);
  add_copy(graph, mine[1], output);
  rondo_plan plan;
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  cr_assert_eq(plan.borrowed_bytes, (uint64_t)ROWS * ROW_BYTES, "one tensor, borrowed twice");
  cr_assert_eq(plan.constant_bytes, 0);
  REQUIRE_OK(rondo_graph_destroy(&owner));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  return plan.edge_count;
}

Test(borrow, views_borrowed_apart_are_ordered_where_they_overlap_and_nowhere_else) {
  for (int whole = 0; whole < 2; whole++)
    for (int64_t a = 0; a <= ROWS - 2; a++)
      for (int64_t b = 0; b <= ROWS - 2; b++)
        cr_assert_eq(edges_between(a, b, whole), a - b < 2 && b - a < 2, "rows from %d and from %d", (int)a, (int)b);
}

Test(borrow, a_tensor_that_comes_back_to_its_graph_is_the_graphs_own) {
  rondo_runtime *runtime = open_runtime(RONDO_BACKEND_HOST);
  rondo_graph *a = NULL, *b = NULL;
  rondo_tensor cache, in_b, back, view_in_b, view_back;
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 2, .tasks = 4}, &a));
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &b));
  REQUIRE_OK(rondo_state(a, "cache", RONDO_F32, 2, cache_shape, &cache));
  REQUIRE_OK(rondo_borrow(b, cache, &in_b));
  REQUIRE_OK(rondo_borrow(a, in_b, &back));
  cr_assert(back.graph == a && back.index == cache.index);
  view_in_b = rows_of(b, in_b, 2, 3);
  REQUIRE_OK(rondo_borrow(a, view_in_b, &view_back));
  REQUIRE_OK(rondo_borrow(a, in_b, &back)); /* takes no room in a full graph */
  REQUIRE_ERROR(rondo_borrow(a, view_in_b, &back), RONDO_OUT_OF_MEMORY, "the graph is full, with 2 tensors and views");
  rondo_exec *exec = open_exec(runtime, a);
  float rows[ROWS][WIDTH], got[3][WIDTH];
  numbers(rows[0], ROWS * WIDTH, 1);
  REQUIRE_OK(rondo_upload(exec, back, rows, sizeof rows));
  REQUIRE_OK(rondo_download(exec, view_back, got, sizeof got));
  cr_assert_arr_eq(got, rows[2], sizeof got);
  REQUIRE_OK(rondo_close_exec(&exec));
  REQUIRE_OK(rondo_graph_destroy(&a));
  REQUIRE_OK(rondo_graph_destroy(&b));
  REQUIRE_OK(rondo_close(&runtime));
}

Test(borrow, what_cannot_be_borrowed_is_refused_by_name_and_changes_nothing) {
  rondo_graph *owner = NULL, *graph = NULL, *small = NULL, *gone = NULL;
  rondo_tensor cache, view, kinds[3], own, mine, of_gone;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &owner));
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = 1, .tasks = 1}, &small));
  REQUIRE_OK(rondo_state(owner, "cache", RONDO_F32, 2, cache_shape, &cache));
  REQUIRE_OK(rondo_input(owner, "prompt", RONDO_F32, 2, cache_shape, &kinds[0]));
  REQUIRE_OK(rondo_output(owner, "logits", RONDO_F32, 2, cache_shape, &kinds[1]));
  REQUIRE_OK(rondo_temporary(owner, "scores", RONDO_F32, 2, cache_shape, &kinds[2]));
  REQUIRE_OK(rondo_state(graph, "my own", RONDO_F32, 2, cache_shape, &own));
  view = rows_of(owner, cache, 0, 1);
  REQUIRE_ERROR(rondo_borrow(graph, kinds[0], &mine), RONDO_INVALID_ARGUMENT, "'prompt' is of kind input");
  REQUIRE_ERROR(rondo_borrow(graph, kinds[1], &mine), RONDO_INVALID_ARGUMENT, "'logits' is of kind output");
  REQUIRE_ERROR(rondo_borrow(graph, kinds[2], &mine), RONDO_INVALID_ARGUMENT, "'scores' is of kind temporary");
  REQUIRE_ERROR(rondo_borrow(graph, own, &mine), RONDO_INVALID_ARGUMENT, "'my own' is the graph's own");
  REQUIRE_ERROR(rondo_borrow(graph, (rondo_tensor){0}, &mine), RONDO_INVALID_ARGUMENT, "the lender");
  REQUIRE_ERROR(rondo_borrow(NULL, cache, &mine), RONDO_INVALID_ARGUMENT, "graph is NULL");
  REQUIRE_ERROR(rondo_borrow(graph, cache, NULL), RONDO_INVALID_ARGUMENT, "address is NULL");
  REQUIRE_ERROR(rondo_borrow(small, view, &mine), RONDO_OUT_OF_MEMORY, "raise limits.tensors"); /* it takes two */
  cr_assert_eq(small->tensor_count, 0);
  REQUIRE_OK(rondo_borrow(small, cache, &mine));
  REQUIRE_OK(rondo_borrow(small, cache, &mine));
  REQUIRE_ERROR(rondo_borrow(small, view, &mine), RONDO_OUT_OF_MEMORY, "is full, with 1 ");
  cr_assert_eq(graph->tensor_count, 1);
  rondo_runtime *runtime = open_runtime(RONDO_BACKEND_HOST);
  REQUIRE_OK(rondo_graph_create(runtime, NULL, &gone));
  REQUIRE_OK(rondo_state(gone, "cache", RONDO_F32, 2, cache_shape, &of_gone));
  REQUIRE_OK(rondo_graph_destroy(&gone));
  REQUIRE_ERROR(rondo_borrow(graph, of_gone, &mine), RONDO_INVALID_STATE, "the lender: the graph is destroyed");
  REQUIRE_OK(rondo_graph_create(runtime, NULL, &gone)); /* at the same address */
  cr_assert_eq(of_gone.graph, gone);
  REQUIRE_ERROR(rondo_borrow(graph, of_gone, &mine), RONDO_INVALID_ARGUMENT, "the tensor's graph is destroyed");
  REQUIRE_OK(rondo_graph_destroy(&gone));
  REQUIRE_OK(rondo_close(&runtime));
  /* A constant stays one. */
  rondo_tensor constant, borrowed, input;
  REQUIRE_OK(rondo_constant(owner, "weights", RONDO_F32, 2, cache_shape, &constant));
  REQUIRE_OK(rondo_borrow(graph, constant, &borrowed));
  REQUIRE_OK(rondo_input(graph, "in", RONDO_F32, 2, cache_shape, &input));
  REQUIRE_ERROR(rondo_add_copy(graph, &(rondo_copy_desc){.src = input, .dst = borrowed}), RONDO_INVALID_ARGUMENT,
                "weights");
  REQUIRE_OK(rondo_graph_destroy(&owner));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_graph_destroy(&small));
}

Test(borrow, plan_graphs_refuses_what_it_cannot_plan_and_counts_a_graph_as_often_as_it_is_named) {
  struct model m = describe_model();
  rondo_graph *graphs[ROWS], *twice[2] = {m.decode[0], m.decode[0]}, *with_null[2] = {m.prefill, NULL};
  uint32_t count = graphs_of(&m, graphs);
  rondo_plan one, two, none;
  REQUIRE_ERROR(rondo_plan_graphs(NULL, 1, &one), RONDO_INVALID_ARGUMENT, "graphs are NULL");
  REQUIRE_ERROR(rondo_plan_graphs(graphs, 1, NULL), RONDO_INVALID_ARGUMENT, "plan is NULL");
  REQUIRE_ERROR(rondo_plan_graphs(with_null, 2, &one), RONDO_INVALID_ARGUMENT, "graph is NULL");
  REQUIRE_OK(rondo_plan_graphs(NULL, 0, &none));
  cr_assert_eq(none.device_bytes + none.pinned_bytes_per_slot + none.host_bytes, 0);
  REQUIRE_OK(rondo_plan_graph(m.decode[0], &one));
  REQUIRE_OK(rondo_plan_graphs(twice, 2, &two));
  cr_assert_eq(two.device_bytes, 2 * one.device_bytes - one.temporary_bytes);
  cr_assert_eq(two.pinned_bytes_per_slot, 2 * one.pinned_bytes_per_slot);
  cr_assert_eq(two.borrowed_bytes, 2 * one.borrowed_bytes);
  for (uint32_t i = 0; i < count; i++) REQUIRE_OK(rondo_graph_destroy(&graphs[i]));
}
