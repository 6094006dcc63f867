/* test_explain.c - rondo_explain names a kernel for each task of every ready-made graph on each chip of the README,
 * with a launch that the chip can do. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rondo_graphs.h>

#include "../support.h"
#include "report_text.h"

/* ---- Ready-made graphs ------------------------------------------------------------------------------------------- */

static rondo_graph *graph_new(void) {
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  return graph;
}

static rondo_graph *qr(rondo_dtype dtype, rondo_layout layout, int64_t m, int64_t n, rondo_qr_form form) {
  rondo_graph *graph = graph_new();
  rondo_graph_qr_tensors tensors;
  const rondo_graph_qr_desc desc = {.dtype = dtype, .layout = layout, .m = m, .n = n, .batch = 3, .form = form};
  REQUIRE_OK(rondo_graph_qr(graph, &desc, &tensors));
  return graph;
}
static rondo_graph *fused_qr(void) { return qr(RONDO_F32, RONDO_ROW_MAJOR, 64, 16, RONDO_QR_THIN_Q); }
static rondo_graph *blocked_qr(void) { return qr(RONDO_F64, RONDO_COLUMN_MAJOR, 700, 300, RONDO_QR_H_TAU); }

static rondo_graph *gemm_softmax(void) {
  rondo_graph *graph = graph_new();
  rondo_graph_gemm_softmax_tensors tensors;
  const rondo_graph_gemm_softmax_desc desc = {
      .dtype = RONDO_BF16, .p_dtype = RONDO_F32, .batch = 2, .m = 200, .n = 300, .k = 64, .causal = 1, .b_constant = 1};
  REQUIRE_OK(rondo_graph_gemm_softmax(graph, &desc, &tensors));
  return graph;
}

static rondo_graph *attention(int64_t query_length, int64_t head_dimension) {
  rondo_graph *graph = graph_new();
  rondo_graph_attention_tensors tensors;
  const rondo_graph_attention_desc desc = {.dtype = RONDO_F16,
                                           .batch = 2,
                                           .query_heads = 8,
                                           .kv_heads = 2,
                                           .query_length = query_length,
                                           .kv_length = 1024,
                                           .head_dimension = head_dimension,
                                           .causal = 1,
                                           .kv_is_state = query_length == 1,
                                           .with_lengths = query_length == 1,
                                           .with_lse = 1};
  REQUIRE_OK(rondo_graph_attention(graph, &desc, &tensors));
  return graph;
}
static rondo_graph *prefill(void) { return attention(1024, 256); }
static rondo_graph *decode(void) { return attention(1, 128); }

static rondo_graph *gemv(rondo_dtype weights, rondo_dtype vectors, rondo_dtype quantize_from) {
  rondo_graph *graph = graph_new();
  rondo_graph_gemv_tensors tensors;
  const rondo_graph_gemv_desc desc = {.weights = weights,
                                      .vectors = vectors,
                                      .out = RONDO_F32,
                                      .m = 1024,
                                      .k = 4096,
                                      .count = 4,
                                      .quantize_from = quantize_from};
  REQUIRE_OK(rondo_graph_gemv(graph, &desc, &tensors));
  return graph;
}
static rondo_graph *gemv_bf16(void) { return gemv(RONDO_BF16, RONDO_BF16, 0); }
static rondo_graph *gemv_e4m3(void) { return gemv(RONDO_E4M3, RONDO_F16, 0); }
static rondo_graph *gemv_nvfp4(void) { return gemv(RONDO_NVFP4, RONDO_NVFP4, RONDO_BF16); }

static const struct {
  const char *name;
  rondo_graph *(*make)(void);
  uint32_t task_count; /* 0: several */
} graphs[] = {
    {"fused qr", fused_qr, 1},   {"blocked qr", blocked_qr, 0}, {"gemm_softmax", gemm_softmax, 1},
    {"prefill", prefill, 1},     {"decode", decode, 1},         {"gemv bf16", gemv_bf16, 1},
    {"gemv e4m3", gemv_e4m3, 1}, {"gemv nvfp4", gemv_nvfp4, 2},
};
enum { GRAPH_COUNT = sizeof graphs / sizeof *graphs };

/* ---- What is said of them ---------------------------------------------------------------------------------------- */

static char *explained(rondo_graph *graph, int32_t chip) {
  struct report_file file = report_file_open();
  REQUIRE_OK(rondo_explain(graph, chip, file.path));
  return report_file_read(file);
}

/* "rondo_gemv grid 4x1x1 block 256x1x1 shared 0", as often as there are launches. */
static uint32_t check_launches(const char *line, uint32_t shared_most, const char *what) {
  uint32_t launches = 0;
  for (const char *at = strstr(line, " grid "); at; at = strstr(at + 1, " grid "), launches++) {
    uint32_t grid[3], block[3], shared;
    const char *name = at;
    while (name > line && name[-1] != ' ') name--;
    cr_assert(!strncmp(name, "rondo_", 6), "%s: %s", what, line);
    cr_assert_eq(sscanf(at,
                        " grid %" SCNu32 "x%" SCNu32 "x%" SCNu32 " block %" SCNu32 "x%" SCNu32 "x%" SCNu32
                        " shared %" SCNu32,
                        &grid[0], &grid[1], &grid[2], &block[0], &block[1], &block[2], &shared),
                 7, "%s: %s", what, line);
    uint32_t threads = block[0] * block[1] * block[2];
    cr_assert(threads >= 32 && threads <= 1024 && threads % 32 == 0, "%s: %s", what, line);
    cr_assert(grid[0] >= 1 && grid[0] <= INT32_MAX && grid[1] >= 1 && grid[1] <= 65535 && grid[2] >= 1 &&
                  grid[2] <= 65535,
              "%s: %s", what, line);
    cr_assert_leq(shared, shared_most, "%s: %s", what, line);
  }
  return launches;
}

static void explain_names_a_kernel_for_every_task(int32_t chip, uint32_t shared_most) {
  for (int i = 0; i < GRAPH_COUNT; i++) {
    rondo_graph *graph = graphs[i].make();
    rondo_plan plan;
    REQUIRE_OK(rondo_plan_graph(graph, &plan));
    if (graphs[i].task_count)
      cr_assert_eq(plan.task_count, graphs[i].task_count, "%s", graphs[i].name);
    else
      cr_assert_gt(plan.task_count, 1, "%s", graphs[i].name);
    char *host = explained(graph, 0), *text = explained(graph, chip);
    cr_assert_eq((uint32_t)occurrences(host, "task "), plan.task_count, "%s: %s", graphs[i].name, host);
    cr_assert_eq(occurrences(host, ": host, "), occurrences(host, "\n"), "%s: %s", graphs[i].name, host);
    /* A line for each task, one for completion, and the reasons of families that have a table of choices. */
    const int reasons = occurrences(text, "\n    ");
    cr_assert_eq(occurrences(text, "\n"), occurrences(host, "\n") + 1 + reasons, "%s: %s", graphs[i].name, text);
    cr_assert_eq(occurrences(text, "\ncompletion: "), 1, "%s: %s", graphs[i].name, text);
    for (char *rest = text, *line = strtok_r(rest, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
      if (strncmp(line, "completion: ", 12) != 0 && strncmp(line, "    ", 4) != 0)
        cr_assert_geq(check_launches(line, shared_most, graphs[i].name), 1, "%s: %s", graphs[i].name, line);
    free(host);
    free(text);
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
}

/* Shared memory that a block may have: CUDA C++ Programming Guide, technical specifications by compute capability. */
Test(explain, names_a_kernel_for_every_task_on_sm_80) { explain_names_a_kernel_for_every_task(80, 163 * 1024); }
Test(explain, names_a_kernel_for_every_task_on_sm_90) { explain_names_a_kernel_for_every_task(90, 227 * 1024); }
Test(explain, names_a_kernel_for_every_task_on_sm_100) { explain_names_a_kernel_for_every_task(100, 227 * 1024); }

Test(explain, other_chips_are_refused) {
  rondo_graph *graph = graphs[0].make();
  static const int32_t others[] = {-1, 1, 70, 75, 86, 89, 103, 120};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    REQUIRE_ERROR(rondo_explain(graph, others[i], "/tmp/x"), RONDO_INVALID_ARGUMENT, "expected 0, 80, 90 or 100");
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

/* A block for each of 2^31 rows is one more than a grid has. The report goes on after it. */
Test(explain, names_the_first_task_without_a_kernel) {
  rondo_graph *graph = graph_new();
  rondo_tensor x, out[2];
  const int64_t rows = INT64_C(1) << 31;
  REQUIRE_OK(rondo_input(graph, "x", RONDO_F16, 2, (int64_t[]){rows, 1}, &x));
  for (int i = 0; i < 2; i++) {
    REQUIRE_OK(rondo_output(graph, NULL, RONDO_I32, 1, &rows, &out[i]));
    REQUIRE_OK(rondo_add_argmax(graph, &(rondo_argmax_desc){.name = i ? "second" : "first", .x = x, .out = out[i]}));
  }
  struct report_file file = report_file_open();
  REQUIRE_ERROR(rondo_explain(graph, 90, file.path), RONDO_UNSUPPORTED,
                "rondo_explain: task 'first': x needs 2147483648 blocks, expected at most 2147483647");
  char *text = report_file_read(file);
  cr_assert_eq(occurrences(text, ": argmax: no kernel\n"), 2, "%s", text);
  free(text);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}
