/* test_graph_limits.c - ready-made graphs at every limit of the graph's tables. A graph is added wholly or not at all.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "../../runtime/graph.h"
#include "../support.h"
#include <rondo_graphs.h>

static rondo_status add_qr(rondo_graph *graph) {
  rondo_graph_qr_tensors tensors;
  return rondo_graph_qr(
      graph,
      &(rondo_graph_qr_desc){
          .dtype = RONDO_F32, .m = 40, .n = 32, .batch = 2, .form = RONDO_QR_THIN_Q, .panel_width = 8},
      &tensors);
}

static rondo_status add_gemm_softmax(rondo_graph *graph) {
  rondo_graph_gemm_softmax_tensors tensors;
  return rondo_graph_gemm_softmax(
      graph,
      &(rondo_graph_gemm_softmax_desc){.dtype = RONDO_F16, .p_dtype = RONDO_F32, .batch = 1, .m = 4, .n = 8, .k = 16},
      &tensors);
}

static rondo_status add_attention(rondo_graph *graph) {
  rondo_graph_attention_tensors tensors;
  return rondo_graph_attention(graph,
                               &(rondo_graph_attention_desc){.dtype = RONDO_F16,
                                                             .batch = 1,
                                                             .query_heads = 2,
                                                             .kv_heads = 1,
                                                             .query_length = 1,
                                                             .kv_length = 9,
                                                             .head_dimension = 32,
                                                             .kv_is_state = 1,
                                                             .with_lengths = 1,
                                                             .with_lse = 1},
                               &tensors);
}

static rondo_status add_gemv(rondo_graph *graph) {
  rondo_graph_gemv_tensors tensors;
  return rondo_graph_gemv(graph,
                          &(rondo_graph_gemv_desc){.weights = RONDO_NVFP4,
                                                   .vectors = RONDO_NVFP4,
                                                   .out = RONDO_F16,
                                                   .m = 4,
                                                   .k = 32,
                                                   .quantize_from = RONDO_F32},
                          &tensors);
}

static rondo_status add_llama(rondo_graph *graph) {
  rondo_llama_layer layers[2];
  rondo_graph_llama_tensors tensors = {.layers = layers};
  return rondo_graph_llama(graph,
                           &(rondo_graph_llama_desc){.layers = 2,
                                                     .hidden = 32,
                                                     .query_heads = 2,
                                                     .kv_heads = 1,
                                                     .head_dimension = 32,
                                                     .feed_forward = 16,
                                                     .vocabulary = 40,
                                                     .context = 8,
                                                     .dtype = RONDO_F16,
                                                     .weights = RONDO_NVFP4,
                                                     .rope_frequencies = 1,
                                                     .tokens = 4,
                                                     .feed_back = 1,
                                                     .with_sampling = 1},
                           &tensors);
}

static const struct {
  const char *name;
  rondo_status (*add)(rondo_graph *graph);
} ready_made[] = {{"rondo_graph_qr", add_qr},
                  {"rondo_graph_gemm_softmax", add_gemm_softmax},
                  {"rondo_graph_attention", add_attention},
                  {"rondo_graph_gemv", add_gemv},
                  {"rondo_graph_llama", add_llama}};
enum { READY_MADE = sizeof ready_made / sizeof *ready_made };

/* One tensor and one task are there already. */
static rondo_graph *new_graph(uint32_t tensors, uint32_t tasks) {
  rondo_graph *graph = NULL;
  rondo_tensor in, out;
  REQUIRE_OK(rondo_graph_create(NULL, &(rondo_graph_limits){.tensors = tensors, .tasks = tasks}, &graph));
  REQUIRE_OK(rondo_input(graph, "in", RONDO_F32, 1, (int64_t[]){1000}, &in));
  REQUIRE_OK(rondo_output(graph, "out", RONDO_F32, 1, (int64_t[]){1000}, &out));
  REQUIRE_OK(rondo_add_copy(graph, &(rondo_copy_desc){.src = in, .dst = out}));
  return graph;
}

static void check_full(const char *name, rondo_status (*add)(rondo_graph *), uint32_t tensors, uint32_t tasks,
                       const char *limit) {
  rondo_graph *graph = new_graph(tensors, tasks);
  rondo_plan before, after;
  char expected[80];
  REQUIRE_OK(rondo_plan_graph(graph, &before));
  const struct plan *kept = graph->made.plan;
  snprintf(expected, sizeof expected, "describe: %s: ", name);
  REQUIRE_ERROR(add(graph), RONDO_OUT_OF_MEMORY, limit);
  cr_assert_eq(strncmp(rondo_error_text(), expected, strlen(expected)), 0, "%s", rondo_error_text());
  cr_assert_eq(graph->made.plan, kept, "what was planned stays");
  REQUIRE_OK(rondo_plan_graph(graph, &after));
  cr_assert(!memcmp(&before, &after, sizeof before), "%s with %u tensors and %u tasks", name, tensors, tasks);
  rondo_task last;
  REQUIRE_OK(rondo_last_task(graph, &last));
  cr_assert_eq(last, 0);
  if (tensors > 2) { /* the next tensor is the one that it would have been */
    rondo_tensor tensor;
    REQUIRE_OK(rondo_state(graph, "next", RONDO_F32, 1, (int64_t[]){1}, &tensor));
    cr_assert_eq(tensor.index, 2);
    REQUIRE_OK(rondo_plan_graph(graph, &after));
    cr_assert_eq(after.task_count, 1);
  }
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

Test(graph_limits, a_ready_made_graph_is_added_wholly_or_not_at_all) {
  for (int i = 0; i < READY_MADE; i++) {
    rondo_graph *graph = new_graph(0, 0);
    REQUIRE_OK(ready_made[i].add(graph));
    uint32_t tensors = graph->tensor_count, tasks = graph->task_count;
    REQUIRE_OK(rondo_graph_destroy(&graph));
    for (uint32_t limit = 2; limit < tensors; limit++)
      check_full(ready_made[i].name, ready_made[i].add, limit, tasks, "raise limits.tensors");
    for (uint32_t limit = 1; limit < tasks; limit++)
      check_full(ready_made[i].name, ready_made[i].add, tensors, limit, "raise limits.tasks");
    graph = new_graph(tensors, tasks);
    REQUIRE_OK(ready_made[i].add(graph));
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
}

Test(graph_limits, a_refused_graph_is_added_once_what_was_wrong_is_mended) {
  rondo_graph *graph = new_graph(0, 0), *other = new_graph(0, 0);
  rondo_graph_gemv_tensors tensors;
  rondo_graph_gemv_desc desc = {
      .weights = RONDO_NVFP4, .vectors = RONDO_NVFP4, .out = RONDO_F64, .m = 4, .k = 32, .quantize_from = RONDO_F32};
  rondo_plan plan, expected;
  for (int i = 0; i < 3; i++)
    REQUIRE_ERROR(rondo_graph_gemv(graph, &desc, &tensors), RONDO_INVALID_ARGUMENT,
                  "describe: rondo_graph_gemv: task 2 'gemv': out is f64, expected f16, bf16, f32 or nvfp4 "
                  "(out: output 'gemv out')");
  desc.out = RONDO_F16;
  REQUIRE_OK(rondo_graph_gemv(graph, &desc, &tensors));
  REQUIRE_OK(rondo_graph_gemv(other, &desc, &tensors));
  cr_assert_eq(graph->tensor_count, other->tensor_count);
  REQUIRE_OK(rondo_plan_graph(graph, &plan));
  REQUIRE_OK(rondo_plan_graph(other, &expected));
  cr_assert(!memcmp(&plan, &expected, sizeof plan));
  REQUIRE_OK(rondo_graph_destroy(&graph));
  REQUIRE_OK(rondo_graph_destroy(&other));
}
