/* test_flags.c - a flag of a description counts as 1 with any value other than 0: the task is the same. */
#include <criterion/criterion.h>
#include <limits.h>
#include <string.h>

#include "../../runtime/graph.h"
#include "../support.h"
#include <rondo_graphs.h>

static rondo_tensor of(rondo_graph *graph, rondo_dtype dtype, uint32_t rank, int64_t a, int64_t b, int64_t c,
                       int64_t d) {
  rondo_tensor tensor;
  REQUIRE_OK(rondo_state(graph, NULL, dtype, rank, (int64_t[]){a, b, c, d}, &tensor));
  return tensor;
}

static rondo_status gemv(rondo_graph *g, int32_t one_order, int32_t silu_mul) {
  return rondo_add_gemv(g, &(rondo_gemv_desc){.weights = of(g, RONDO_F16, 2, 64, 32, 0, 0),
                                              .vectors = of(g, RONDO_F16, 2, 2, 32, 0, 0),
                                              .out = of(g, RONDO_F16, 2, 2, silu_mul ? 32 : 64, 0, 0),
                                              .one_order = one_order,
                                              .silu_mul = silu_mul});
}
static rondo_status gemv_in_one_order(rondo_graph *g, int32_t flag) { return gemv(g, flag, 0); }
static rondo_status gemv_of_gates(rondo_graph *g, int32_t flag) { return gemv(g, 0, flag); }

static rondo_status gemm(rondo_graph *g, int32_t one_order, int32_t silu_mul) {
  return rondo_add_gemm(g, &(rondo_gemm_desc){.weights = of(g, RONDO_F16, 2, 64, 32, 0, 0),
                                              .vectors = of(g, RONDO_F16, 2, 40, 32, 0, 0),
                                              .out = of(g, RONDO_F16, 2, 40, silu_mul ? 32 : 64, 0, 0),
                                              .one_order = one_order,
                                              .silu_mul = silu_mul});
}
static rondo_status gemm_in_one_order(rondo_graph *g, int32_t flag) { return gemm(g, flag, 0); }
static rondo_status gemm_of_gates(rondo_graph *g, int32_t flag) { return gemm(g, 0, flag); }

static rondo_status causal_attention(rondo_graph *g, int32_t flag) {
  return rondo_add_attention(g, &(rondo_attention_desc){.q = of(g, RONDO_F16, 4, 1, 2, 8, 64),
                                                        .k = of(g, RONDO_F16, 4, 1, 2, 8, 64),
                                                        .v = of(g, RONDO_F16, 4, 1, 2, 8, 64),
                                                        .o = of(g, RONDO_F16, 4, 1, 2, 8, 64),
                                                        .causal = flag});
}

static rondo_status causal_softmax(rondo_graph *g, int32_t flag) {
  return rondo_add_gemm_softmax(g, &(rondo_gemm_softmax_desc){.a = of(g, RONDO_F16, 2, 8, 64, 0, 0),
                                                              .b = of(g, RONDO_F16, 2, 8, 64, 0, 0),
                                                              .p = of(g, RONDO_F16, 2, 8, 8, 0, 0),
                                                              .causal = flag});
}

static rondo_status causal_rowmax(rondo_graph *g, int32_t flag) {
  return rondo_add_gemm_rowmax(g, &(rondo_gemm_rowmax_desc){.a = of(g, RONDO_F16, 2, 8, 64, 0, 0),
                                                            .b = of(g, RONDO_F16, 2, 8, 64, 0, 0),
                                                            .max = of(g, RONDO_F32, 1, 8, 0, 0, 0),
                                                            .causal = flag});
}

static rondo_status transposed_application(rondo_graph *g, int32_t flag) {
  return rondo_add_qr_apply(g, &(rondo_qr_apply_desc){.layout = RONDO_ROW_MAJOR,
                                                      .transpose = flag,
                                                      .v = of(g, RONDO_F32, 2, 8, 4, 0, 0),
                                                      .tau = of(g, RONDO_F32, 1, 4, 0, 0, 0),
                                                      .c = of(g, RONDO_F32, 2, 8, 3, 0, 0)});
}

static const struct {
  const char *name;
  rondo_status (*add)(rondo_graph *graph, int32_t flag);
} flags[] = {{"one_order of gemv", gemv_in_one_order},  {"silu_mul of gemv", gemv_of_gates},
             {"one_order of gemm", gemm_in_one_order},  {"silu_mul of gemm", gemm_of_gates},
             {"causal of attention", causal_attention}, {"causal of gemm_softmax", causal_softmax},
             {"causal of gemm_rowmax", causal_rowmax},  {"transpose of qr_apply", transposed_application}};

/* Are the tasks of these two values the same? */
static bool is_same(size_t which, int32_t one, int32_t other) {
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(flags[which].add(graph, one));
  REQUIRE_OK(flags[which].add(graph, other));
  cr_assert_eq(graph->task_count, 2);
  const bool same = !memcmp(graph->tasks[0].attributes, graph->tasks[1].attributes, OP_ATTRIBUTE_BYTES);
  REQUIRE_OK(rondo_graph_destroy(&graph));
  return same;
}

Test(flags, any_value_other_than_0_counts_as_1) {
  static const int32_t values[] = {2, -1, 256, INT_MIN};
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
    cr_expect_not(is_same(i, 0, 1), "%s changes nothing", flags[i].name);
    for (size_t v = 0; v < sizeof values / sizeof *values; v++)
      cr_expect(is_same(i, 1, values[v]), "%s of %d", flags[i].name, (int)values[v]);
  }
}

/* ---- Of a ready-made graph --------------------------------------------------------------------------------------- */

enum llama_flag { PACKED, EVERY_ROW, VERIFY, LLAMA_FLAGS };

static rondo_graph *llama_of(enum llama_flag flag, int32_t value) {
  rondo_graph *graph = NULL;
  rondo_llama_layer layer;
  rondo_graph_llama_tensors tensors = {.layers = &layer};
  rondo_graph_llama_desc desc = {.layers = 1,
                                 .hidden = 64,
                                 .query_heads = 2,
                                 .kv_heads = 2,
                                 .feed_forward = 64,
                                 .vocabulary = 32,
                                 .context = 64,
                                 .dtype = RONDO_BF16,
                                 .weights = RONDO_BF16,
                                 .tokens = flag == VERIFY ? 0 : 8,
                                 .feed_back = flag == VERIFY,
                                 .draft = flag == VERIFY ? 3 : 0};
  *(flag == PACKED ? &desc.packed : flag == EVERY_ROW ? &desc.every_row : &desc.verify) = value;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  REQUIRE_OK(rondo_graph_llama(graph, &desc, &tensors));
  return graph;
}

static bool llama_is_same(enum llama_flag flag, int32_t one, int32_t other) {
  rondo_graph *graphs[] = {llama_of(flag, one), llama_of(flag, other)};
  bool same = graphs[0]->task_count == graphs[1]->task_count && graphs[0]->tensor_count == graphs[1]->tensor_count;
  for (uint32_t i = 0; same && i < graphs[0]->task_count; i++)
    same = !memcmp(graphs[0]->tasks[i].attributes, graphs[1]->tasks[i].attributes, OP_ATTRIBUTE_BYTES);
  for (uint32_t i = 0; same && i < graphs[0]->tensor_count; i++)
    same = !memcmp(graphs[0]->tensors[i].shape, graphs[1]->tensors[i].shape, sizeof graphs[0]->tensors[i].shape);
  for (int i = 0; i < 2; i++) REQUIRE_OK(rondo_graph_destroy(&graphs[i]));
  return same;
}

Test(flags, of_a_ready_made_graph_any_value_other_than_0_counts_as_1) {
  for (enum llama_flag flag = PACKED; flag < LLAMA_FLAGS; flag++) {
    cr_expect_not(llama_is_same(flag, 0, 1), "flag %d changes nothing", (int)flag);
    cr_expect(llama_is_same(flag, 1, 2) && llama_is_same(flag, 1, INT_MIN), "flag %d", (int)flag);
  }
}
