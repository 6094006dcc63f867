/* test_huge.c - operations on the largest tensors, 2^31 elements in one dimension: each chip gets a launch within
 * CUDA's limits, or RONDO_UNSUPPORTED with a sentence. Faults that would show: a count of blocks, rows or tiles in 32
 * bits that wraps, so that a launch leaves rows out or the driver refuses it. Nothing is allocated: the graphs are only
 * explained. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"
#include "report_text.h"

static rondo_tensor of(rondo_graph *graph, tensor_kind kind, rondo_dtype dtype, uint32_t rank, int64_t a, int64_t b,
                       int64_t c, int64_t d) {
  rondo_tensor tensor;
  REQUIRE_OK(kind(graph, NULL, dtype, rank, (int64_t[]){a, b, c, d}, &tensor));
  return tensor;
}
#define IN(dtype, ...)    of(graph, rondo_input, (dtype), __VA_ARGS__)
#define OUT(dtype, ...)   of(graph, rondo_output, (dtype), __VA_ARGS__)
#define STATE(dtype, ...) of(graph, rondo_state, (dtype), __VA_ARGS__)

/* ---- One task each ----------------------------------------------------------------------------------------------- */

static rondo_status copy(rondo_graph *graph, const int64_t *s) {
  const rondo_copy_desc desc = {.src = IN(RONDO_U8, 2, s[0], s[1], 0, 0), .dst = OUT(RONDO_U8, 2, s[0], s[1], 0, 0)};
  return rondo_add_copy(graph, &desc);
}

/* Every second element of rows of two. */
static rondo_status copy_with_gaps(rondo_graph *graph, const int64_t *s) {
  rondo_tensor column;
  REQUIRE_OK(
      rondo_view(graph, IN(RONDO_U8, 2, s[0], s[1], 0, 0), (int64_t[]){0, 0}, (int64_t[]){s[0], s[1] / 2}, &column));
  return rondo_add_copy(graph, &(rondo_copy_desc){.src = column, .dst = OUT(RONDO_U8, 2, s[0], s[1] / 2, 0, 0)});
}

static rondo_status append(rondo_graph *graph, const int64_t *s) {
  const rondo_append_desc desc = {.src = IN(RONDO_U8, 4, s[0], s[1], s[2], s[3]),
                                  .dst = STATE(RONDO_U8, 4, s[0], s[1], s[2], s[3]),
                                  .position = IN(RONDO_I32, 1, 1, 0, 0, 0),
                                  .dimension = 2};
  return rondo_add_append(graph, &desc);
}

static rondo_status quantize(rondo_graph *graph, const int64_t *s) {
  const rondo_quantize_nvfp4_desc desc = {.x = IN(RONDO_BF16, 2, s[0], s[1], 0, 0),
                                          .codes = OUT(RONDO_NVFP4, 2, s[0], s[1], 0, 0),
                                          .scales = OUT(RONDO_E4M3, 2, s[0], s[1] / 16, 0, 0)};
  return rondo_add_quantize_nvfp4(graph, &desc);
}

static rondo_status quantize_e4m3(rondo_graph *graph, const int64_t *s) {
  const rondo_quantize_e4m3_desc desc = {.x = IN(RONDO_BF16, 2, s[0], s[1], 0, 0),
                                         .codes = OUT(RONDO_E4M3, 2, s[0], s[1], 0, 0),
                                         .scales = OUT(RONDO_F32, 1, s[0], 0, 0, 0)};
  return rondo_add_quantize_e4m3(graph, &desc);
}

static rondo_status embed(rondo_graph *graph, const int64_t *s) {
  const rondo_embed_desc desc = {.table = IN(RONDO_F32, 2, 1, s[1], 0, 0),
                                 .ids = IN(RONDO_I32, 1, s[0], 0, 0, 0),
                                 .out = OUT(RONDO_F32, 2, s[0], s[1], 0, 0)};
  return rondo_add_embed(graph, &desc);
}

static rondo_status rms_norm(rondo_graph *graph, const int64_t *s) {
  const rondo_rms_norm_desc desc = {
      .x = IN(RONDO_BF16, 2, s[0], s[1], 0, 0), .out = OUT(RONDO_BF16, 2, s[0], s[1], 0, 0), .epsilon = 1e-5f};
  return rondo_add_rms_norm(graph, &desc);
}

static rondo_status rms_norm_of_parts(rondo_graph *graph, const int64_t *s) {
  const rondo_rms_norm_desc desc = {.x = IN(RONDO_BF16, 2, s[0], s[1], 0, 0),
                                    .x_parts = IN(RONDO_F32, 3, 1, s[0], s[1], 0),
                                    .out = OUT(RONDO_BF16, 2, s[0], s[1], 0, 0),
                                    .epsilon = 1e-5f};
  return rondo_add_rms_norm(graph, &desc);
}

static rondo_status rope(rondo_graph *graph, const int64_t *s) {
  const rondo_rope_desc desc = {.x = IN(RONDO_F32, 4, s[0], s[1], s[2], s[3]),
                                .out = OUT(RONDO_F32, 4, s[0], s[1], s[2], s[3]),
                                .position = IN(RONDO_I32, 1, 1, 0, 0, 0)};
  return rondo_add_rope(graph, &desc);
}

static rondo_status add(rondo_graph *graph, const int64_t *s) {
  const rondo_add_desc desc = {.a = IN(RONDO_F32, 2, s[0], s[1], 0, 0),
                               .b = IN(RONDO_F32, 2, s[0], s[1], 0, 0),
                               .out = OUT(RONDO_F32, 2, s[0], s[1], 0, 0)};
  return rondo_add_add(graph, &desc);
}

static rondo_status argmax(rondo_graph *graph, const int64_t *s) {
  const rondo_argmax_desc desc = {.x = IN(RONDO_F16, 2, s[0], s[1], 0, 0), .out = OUT(RONDO_I32, 1, s[0], 0, 0, 0)};
  return rondo_add_argmax(graph, &desc);
}

static rondo_status sample(rondo_graph *graph, const int64_t *s) {
  const rondo_sample_desc desc = {.x = IN(RONDO_F32, 2, s[0], s[1], 0, 0),
                                  .out = OUT(RONDO_I32, 1, s[0], 0, 0, 0),
                                  .seed = IN(RONDO_I32, 1, 1, 0, 0, 0),
                                  .step = IN(RONDO_I32, 1, 1, 0, 0, 0)};
  return rondo_add_sample(graph, &desc);
}

static rondo_status penalty(rondo_graph *graph, const int64_t *s) {
  const rondo_penalty_desc desc = {.x = STATE(RONDO_F32, 2, s[0], s[1], 0, 0), .ids = IN(RONDO_I32, 2, s[0], 1, 0, 0)};
  return rondo_add_penalty(graph, &desc);
}

/* s: matrices, rows, columns, vectors. */
static rondo_status gemv(rondo_graph *graph, const int64_t *s) {
  const rondo_gemv_desc desc = {.weights = IN(RONDO_BF16, 3, s[0], s[1], s[2], 0),
                                .vectors = IN(RONDO_BF16, 3, s[0], s[3], s[2], 0),
                                .out = OUT(RONDO_F32, 3, s[0], s[3], s[1], 0)};
  return rondo_add_gemv(graph, &desc);
}

static rondo_status gemv_nvfp4(rondo_graph *graph, const int64_t *s) {
  const rondo_gemv_desc desc = {.weights = IN(RONDO_NVFP4, 3, s[0], s[1], s[2], 0),
                                .weight_scales = IN(RONDO_E4M3, 3, s[0], s[1], s[2] / 16, 0),
                                .vectors = IN(RONDO_BF16, 3, s[0], s[3], s[2], 0),
                                .out = OUT(RONDO_F32, 3, s[0], s[3], s[1], 0)};
  return rondo_add_gemv(graph, &desc);
}

static rondo_status gemm(rondo_graph *graph, const int64_t *s) {
  const rondo_gemm_desc desc = {.weights = IN(RONDO_BF16, 3, s[0], s[1], s[2], 0),
                                .vectors = IN(RONDO_BF16, 3, s[0], s[3], s[2], 0),
                                .out = OUT(RONDO_BF16, 3, s[0], s[3], s[1], 0)};
  return rondo_add_gemm(graph, &desc);
}

static rondo_status gemm_softmax(rondo_graph *graph, const int64_t *s) {
  const rondo_gemm_softmax_desc desc = {.a = IN(RONDO_BF16, 3, s[0], s[1], s[3], 0),
                                        .b = IN(RONDO_BF16, 3, s[0], s[2], s[3], 0),
                                        .p = OUT(RONDO_F32, 3, s[0], s[1], s[2], 0)};
  return rondo_add_gemm_softmax(graph, &desc);
}

static rondo_status gemm_rowmax(rondo_graph *graph, const int64_t *s) {
  const rondo_gemm_rowmax_desc desc = {.a = IN(RONDO_BF16, 3, s[0], s[1], s[3], 0),
                                       .b = IN(RONDO_BF16, 3, s[0], s[2], s[3], 0),
                                       .max = OUT(RONDO_F32, 2, s[0], s[1], 0, 0)};
  return rondo_add_gemm_rowmax(graph, &desc);
}

/* s: items, heads, query rows, KV rows. */
static rondo_status attention(rondo_graph *graph, const int64_t *s) {
  const rondo_attention_desc desc = {.q = IN(RONDO_BF16, 4, s[0], s[1], s[2], 32),
                                     .k = STATE(RONDO_BF16, 4, s[0], 1, s[3], 32),
                                     .v = STATE(RONDO_BF16, 4, s[0], 1, s[3], 32),
                                     .o = OUT(RONDO_BF16, 4, s[0], s[1], s[2], 32)};
  return rondo_add_attention(graph, &desc);
}

/* The same with new rows, rotated. */
static rondo_status attention_appends(rondo_graph *graph, const int64_t *s) {
  const rondo_attention_desc desc = {.q = IN(RONDO_BF16, 4, s[0], s[1], s[2], 32),
                                     .k = STATE(RONDO_BF16, 4, s[0], 1, s[3], 32),
                                     .v = STATE(RONDO_BF16, 4, s[0], 1, s[3], 32),
                                     .o = OUT(RONDO_BF16, 4, s[0], s[1], s[2], 32),
                                     .causal = 1,
                                     .new_k = IN(RONDO_BF16, 4, s[0], 1, s[2], 32),
                                     .new_v = IN(RONDO_BF16, 4, s[0], 1, s[2], 32),
                                     .position = IN(RONDO_I32, 1, 1, 0, 0, 0),
                                     .rope_base = 10000};
  return rondo_add_attention(graph, &desc);
}

static rondo_status attention_of_parts(rondo_graph *graph, const int64_t *s) {
  const rondo_attention_desc desc = {.q = IN(RONDO_BF16, 4, s[0], s[1], s[2], 32),
                                     .k = STATE(RONDO_BF16, 4, s[0], 1, s[3], 32),
                                     .v = STATE(RONDO_BF16, 4, s[0], 1, s[3], 32),
                                     .o = OUT(RONDO_BF16, 4, s[0], s[1], s[2], 32),
                                     .splits = 256};
  return rondo_add_attention(graph, &desc);
}

/* s: matrices, rows, columns. */
static rondo_status qr(rondo_graph *graph, const int64_t *s) {
  const int64_t k = s[1] < s[2] ? s[1] : s[2];
  const rondo_qr_desc desc = {.layout = RONDO_ROW_MAJOR,
                              .a = IN(RONDO_F32, 3, s[0], s[1], s[2], 0),
                              .h = OUT(RONDO_F32, 3, s[0], s[1], s[2], 0),
                              .tau = OUT(RONDO_F32, 2, s[0], k, 0, 0)};
  return rondo_add_qr(graph, &desc);
}

static rondo_status qr_apply(rondo_graph *graph, const int64_t *s) {
  const rondo_qr_apply_desc desc = {.layout = RONDO_ROW_MAJOR,
                                    .v = IN(RONDO_F32, 3, s[0], s[1], 1, 0),
                                    .tau = IN(RONDO_F32, 2, s[0], 1, 0, 0),
                                    .c = STATE(RONDO_F32, 3, s[0], s[1], s[2], 0)};
  return rondo_add_qr_apply(graph, &desc);
}

static rondo_status least_squares(rondo_graph *graph, const int64_t *s) {
  const rondo_least_squares_desc desc = {.layout = RONDO_ROW_MAJOR,
                                         .a = IN(RONDO_F32, 3, s[0], s[1], 1, 0),
                                         .b = IN(RONDO_F32, 3, s[0], s[1], s[2], 0),
                                         .x = OUT(RONDO_F32, 3, s[0], 1, s[2], 0)};
  return rondo_add_least_squares(graph, &desc);
}

static rondo_status triangular_inverse(rondo_graph *graph, const int64_t *s) {
  const rondo_triangular_inverse_desc desc = {.a = IN(RONDO_F32, 3, s[0], s[1], s[2], 0),
                                              .out = OUT(RONDO_F32, 3, s[0], s[1], s[2], 0)};
  return rondo_add_triangular_inverse(graph, &desc);
}

/* ---- The largest of each ----------------------------------------------------------------------------------------- */

#define P(n) (INT64_C(1) << (n))
#define MOST P(31)

static const struct {
  const char *name;
  rondo_status (*add)(rondo_graph *graph, const int64_t *shape);
  int64_t shape[4];
} tasks[] = {
    {"copy", copy, {MOST, 1}},
    {"copy of one row", copy, {1, MOST}},
    {"copy with gaps", copy_with_gaps, {P(30), 2}},
    {"append of many items", append, {MOST, 1, 1, 1}},
    {"append of many heads", append, {1, MOST, 1, 1}},
    {"append of many rows", append, {1, 1, MOST, 1}},
    {"append of a row", append, {1, 1, 1, MOST}},
    {"quantize", quantize, {P(27), 16}},
    {"quantize of one row", quantize, {1, MOST}},
    {"quantize to e4m3", quantize_e4m3, {MOST, 1}},
    {"quantize to e4m3, one row", quantize_e4m3, {1, MOST}},
    {"embed", embed, {MOST, 1}},
    {"embed of one row", embed, {1, MOST}},
    {"rms_norm", rms_norm, {MOST, 1}},
    {"rms_norm of one row", rms_norm, {1, MOST}},
    {"rms_norm of parts", rms_norm_of_parts, {MOST, 1}},
    {"rms_norm of parts, long rows", rms_norm_of_parts, {P(17), P(14)}},
    {"rms_norm of parts, one row", rms_norm_of_parts, {1, MOST}},
    {"rope of many items", rope, {P(30), 1, 1, 2}},
    {"rope of many rows", rope, {1, 1, P(30), 2}},
    {"add", add, {MOST, 1}},
    {"add of one row", add, {1, MOST}},
    {"argmax", argmax, {MOST, 1}},
    {"argmax of one row", argmax, {1, MOST}},
    {"sample", sample, {MOST, 1}},
    {"penalty", penalty, {MOST, 1}},
    {"penalty of one row", penalty, {1, MOST}},
    {"gemv of many matrices", gemv, {MOST, 1, 1, 1}},
    {"gemv of many rows", gemv, {1, MOST, 1, 1}},
    {"gemv of 16 columns", gemv, {1, P(27), 16, 16}},
    {"gemv of one row", gemv, {1, 1, MOST, 1}},
    {"gemv of NVFP4, many matrices", gemv_nvfp4, {P(27), 1, 16, 1}},
    {"gemv of NVFP4, many rows", gemv_nvfp4, {1, P(27), 16, 16}},
    {"gemv of NVFP4, 2048 columns", gemv_nvfp4, {1, P(20), 2048, 1}},
    {"gemv of NVFP4, one row", gemv_nvfp4, {1, 1, MOST, 1}},
    {"gemm of many matrices", gemm, {MOST, 1, 1, 1}},
    {"gemm of many vectors", gemm, {1, P(15), 64, P(16)}},
    {"gemm of one row", gemm, {1, 1, P(15), P(16)}},
    {"gemm of long rows", gemm, {1, 1, MOST, 1}},
    {"softmax of many matrices", gemm_softmax, {MOST, 1, 1, 1}},
    {"softmax of many rows", gemm_softmax, {1, MOST, 1, 1}},
    {"softmax of many columns", gemm_softmax, {1, 1, MOST, 1}},
    {"softmax of 64 x 2^25", gemm_softmax, {1, P(25), 64, 64}},
    {"softmax of long products", gemm_softmax, {1, 1, 1, MOST}},
    {"maxima of many rows", gemm_rowmax, {1, MOST, 1, 1}},
    {"maxima of many columns", gemm_rowmax, {1, 1, MOST, 1}},
    {"maxima of many matrices", gemm_rowmax, {MOST, 1, 1, 1}},
    {"attention of many items", attention, {P(26), 1, 1, 1}},
    {"attention of many heads", attention, {1, P(26), 1, 1}},
    {"attention of many query rows", attention, {1, 1, P(26), 1}},
    {"attention of many KV rows", attention, {1, 1, 1, P(26)}},
    {"attention with new rows, many items", attention_appends, {P(26), 1, 1, 1}},
    {"attention with new rows, many heads", attention_appends, {1, P(26), 1, 1}},
    {"attention with new rows, many query rows", attention_appends, {1, 1, P(26), 1}},
    {"attention in 256 parts", attention_of_parts, {P(13), 1, 1, P(13)}},
    {"qr of many matrices", qr, {MOST, 1, 1}},
    {"qr of a column", qr, {1, MOST, 1}},
    {"qr of a row", qr, {1, 1, MOST}},
    {"qr of 32 columns", qr, {1, P(26), 32}},
    {"qr of 32 rows", qr, {1, 32, P(26)}},
    {"qr_apply of many matrices", qr_apply, {MOST, 1, 1}},
    {"qr_apply of a column", qr_apply, {1, MOST, 1}},
    {"qr_apply of many columns", qr_apply, {1, 1, MOST}},
    {"least_squares of many matrices", least_squares, {MOST, 1, 1}},
    {"least_squares of a column", least_squares, {1, MOST, 1}},
    {"least_squares of many right-hand sides", least_squares, {1, 1, MOST}},
    {"triangular_inverse", triangular_inverse, {P(23), 16, 16}},
};

/* ---- What is said of them ---------------------------------------------------------------------------------------- */

static void check_grids(const char *text, const char *name, int32_t chip) {
  int launches = 0;
  for (const char *at = strstr(text, " grid "); at; at = strstr(at + 1, " grid "), launches++) {
    int64_t grid[3];
    cr_assert_eq(sscanf(at, " grid %" SCNd64 "x%" SCNd64 "x%" SCNd64, &grid[0], &grid[1], &grid[2]), 3, "%s", text);
    cr_expect(grid[0] >= 1 && grid[0] <= INT32_MAX && grid[1] >= 1 && grid[1] <= 65535 && grid[2] >= 1 &&
                  grid[2] <= 65535,
              "%s on sm_%d: %s", name, chip, text);
  }
  cr_expect_geq(launches, 1, "%s on sm_%d: %s", name, chip, text);
}

Test(huge, launches_are_within_the_limits_of_cuda) {
  static const int32_t chips[] = {80, 90, 100};
  for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
    rondo_graph *graph = NULL;
    REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
    const rondo_status described = tasks[i].add(graph, tasks[i].shape);
    cr_expect_eq(described, RONDO_OK, "%s: %s", tasks[i].name, rondo_error_text());
    for (size_t c = 0; described == RONDO_OK && c < sizeof chips / sizeof *chips; c++) {
      struct report_file file = report_file_open();
      const rondo_status status = rondo_explain(graph, chips[c], file.path);
      char *text = report_file_read(file);
      if (status == RONDO_OK)
        check_grids(text, tasks[i].name, chips[c]);
      else
        cr_expect(status == RONDO_UNSUPPORTED && strstr(rondo_error_text(), "expected at most"), "%s on sm_%d: %s",
                  tasks[i].name, chips[c], rondo_error_text());
      free(text);
    }
    REQUIRE_OK(rondo_graph_destroy(&graph));
  }
}
