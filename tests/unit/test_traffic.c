/* test_traffic.c - the bytes that reports say a task reads and writes: of an operand of which a replay can touch a
 * part only, that part. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../support.h"
#include "report_text.h"

static rondo_graph *graph_new(void) {
  rondo_graph *graph = NULL;
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &graph));
  return graph;
}

/* The graph's picture says so once. */
static void require_drawn(rondo_graph *graph, const char *says) {
  struct report_file file = report_file_open();
  REQUIRE_OK(rondo_write_dot(graph, file.path));
  char *text = report_file_read(file);
  cr_assert_eq(occurrences(text, says), 1, "%s: %s", says, text);
  free(text);
}

/* Of one of its tasks; ends the graph. */
static void require_traffic(rondo_graph *graph, const char *says) {
  require_drawn(graph, says);
  REQUIRE_OK(rondo_graph_destroy(&graph));
}

static rondo_tensor tensor(rondo_graph *graph,
                           rondo_status (*add)(rondo_graph *, const char *, rondo_dtype, uint32_t, const int64_t *,
                                               rondo_tensor *),
                           rondo_dtype dtype, uint32_t rank, const int64_t *shape) {
  rondo_tensor made;
  REQUIRE_OK(add(graph, NULL, dtype, rank, shape, &made));
  return made;
}
#define TENSOR(kind, dtype, ...)                                                                                       \
  tensor(graph, rondo_##kind, RONDO_##dtype, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                       \
         (int64_t[]){__VA_ARGS__})

/* One row of 64 f32 into a cache of 1024. */
Test(traffic, an_append_moves_the_rows_that_it_writes) {
  rondo_graph *graph = graph_new();
  REQUIRE_OK(rondo_add_append(graph, &(rondo_append_desc){.src = TENSOR(input, F32, 1, 64),
                                                          .dst = TENSOR(state, F32, 1024, 64),
                                                          .position = TENSOR(input, I32, 1)}));
  require_drawn(graph, " [1024, 64] f32, 256 KiB, state, updated<");
  require_traffic(graph, ">append: reads 260 B, writes 256 B<");
}

/* Three rows of 64 of a table of 1024, and their ids. */
Test(traffic, an_embed_reads_as_many_rows_as_there_are_ids) {
  rondo_graph *graph = graph_new();
  REQUIRE_OK(rondo_add_embed(graph, &(rondo_embed_desc){.table = TENSOR(constant, F16, 1024, 64),
                                                        .ids = TENSOR(input, I32, 3),
                                                        .out = TENSOR(output, F32, 3, 64)}));
  require_traffic(graph, ">embed: reads 396 B, writes 768 B<");
}

/* 3 rows of 32 codes, 3 of 4 scales, 3 ids. */
Test(traffic, an_embed_of_nvfp4_reads_as_many_rows_of_scales) {
  rondo_graph *graph = graph_new();
  REQUIRE_OK(rondo_add_embed(graph, &(rondo_embed_desc){.table = TENSOR(constant, NVFP4, 1024, 64),
                                                        .table_scales = TENSOR(constant, E4M3, 1024, 4),
                                                        .ids = TENSOR(input, I32, 3),
                                                        .out = TENSOR(output, F32, 3, 64)}));
  require_traffic(graph, ">embed: reads 120 B, writes 768 B<");
}

/* More ids than rows: each row is there to be read, once. */
Test(traffic, an_embed_reads_no_more_than_the_table) {
  rondo_graph *graph = graph_new();
  REQUIRE_OK(rondo_add_embed(graph, &(rondo_embed_desc){.table = TENSOR(constant, F32, 2, 16),
                                                        .ids = TENSOR(input, I32, 64),
                                                        .out = TENSOR(output, F32, 64, 16)}));
  require_traffic(graph, ">embed: reads 384 B, writes 4 KiB<");
}

/* One row of 64 f16 to each of two caches of 1024, which are read: 128 KiB each. */
static rondo_attention_desc appending(rondo_graph *graph) {
  return (rondo_attention_desc){.causal = 1,
                                .q = TENSOR(input, F16, 1, 2, 1, 64),
                                .o = TENSOR(output, F16, 1, 2, 1, 64),
                                .new_k = TENSOR(input, F16, 1, 1, 1, 64),
                                .new_v = TENSOR(input, F16, 1, 1, 1, 64),
                                .position = TENSOR(input, I32, 1),
                                .k = TENSOR(state, F16, 1, 1, 1024, 64),
                                .v = TENSOR(state, F16, 1, 1, 1024, 64)};
}

Test(traffic, an_attention_that_appends_writes_new_rows_alone) {
  rondo_graph *graph = graph_new();
  const rondo_attention_desc desc = appending(graph);
  REQUIRE_OK(rondo_add_attention(graph, &desc));
  require_traffic(graph, ">attention: reads 256 KiB, writes 512 B<");
}

/* 16 rows of each cache, 2 KiB, a row of q and of each new one, 512 bytes, and a position. */
Test(traffic, an_attention_with_a_window_reads_the_window) {
  rondo_graph *graph = graph_new();
  rondo_attention_desc desc = appending(graph);
  desc.window = 16;
  REQUIRE_OK(rondo_add_attention(graph, &desc));
  require_traffic(graph, ">attention: reads 4.5 KiB, writes 512 B<");
}

/* Of a pool of 64 pages of 16 rows two items have three pages each: 96 rows of 128 bytes, in K and in V, beside two
 * rows of q and six entries. */
static rondo_attention_desc paged(rondo_graph *graph, int64_t pages) {
  return (rondo_attention_desc){.causal = 1,
                                .q = TENSOR(input, F16, 2, 1, 1, 64),
                                .o = TENSOR(output, F16, 2, 1, 1, 64),
                                .k = TENSOR(state, F16, 64, 1, 16, 64),
                                .v = TENSOR(state, F16, 64, 1, 16, 64),
                                .kv_pages = TENSOR(input, I32, 2, pages)};
}

Test(traffic, an_attention_over_pages_reads_as_many_as_its_tables_name) {
  rondo_graph *graph = graph_new();
  const rondo_attention_desc desc = paged(graph, 3);
  REQUIRE_OK(rondo_add_attention(graph, &desc));
  require_traffic(graph, ">attention: reads 24.2 KiB, writes 256 B<");
}

/* 200 entries, of 64 pages: 256 KiB. */
Test(traffic, an_attention_over_shared_pages_reads_no_more_than_the_pool) {
  rondo_graph *graph = graph_new();
  const rondo_attention_desc desc = paged(graph, 100);
  REQUIRE_OK(rondo_add_attention(graph, &desc));
  require_traffic(graph, ">attention: reads 257 KiB, writes 256 B<");
}

/* Of H, 4096 x 8, R's 8 rows. */
Test(traffic, what_extracts_r_reads_its_rows_and_what_makes_the_identity_none) {
  rondo_graph *graph = graph_new();
  REQUIRE_OK(rondo_add_qr_extract(graph, &(rondo_qr_extract_desc){.layout = RONDO_ROW_MAJOR,
                                                                  .h = TENSOR(state, F32, 4096, 8),
                                                                  .r = TENSOR(output, F32, 8, 8)}));
  require_traffic(graph, ">qr_extract: reads 256 B, writes 256 B<");
  graph = graph_new();
  REQUIRE_OK(rondo_add_qr_extract(graph, &(rondo_qr_extract_desc){.layout = RONDO_ROW_MAJOR,
                                                                  .h = TENSOR(state, F32, 4096, 8),
                                                                  .q = TENSOR(output, F32, 4096, 8)}));
  require_traffic(graph, ">qr_extract: reads 0 B, writes 128 KiB<");
}

/* Of V, 8 x 4096, the first 8 columns, beside tau and one column of C. */
Test(traffic, what_applies_reflectors_reads_their_columns) {
  rondo_graph *graph = graph_new();
  REQUIRE_OK(rondo_add_qr_apply(graph, &(rondo_qr_apply_desc){.layout = RONDO_COLUMN_MAJOR,
                                                              .v = TENSOR(state, F32, 4096, 8),
                                                              .tau = TENSOR(state, F32, 8),
                                                              .c = TENSOR(state, F32, 1, 8)}));
  require_traffic(graph, ">qr_apply: reads 320 B, writes 32 B<");
}

/* 16 rows of 64 codes and of 4 scales, of which a tile has 512; a vector of 64 in f16. */
Test(traffic, a_product_reads_the_scales_of_its_rows) {
  rondo_graph *graph = graph_new();
  REQUIRE_OK(rondo_add_gemv(graph, &(rondo_gemv_desc){.weights = TENSOR(constant, NVFP4, 16, 64),
                                                      .weight_scales = TENSOR(constant, E4M3, 128, 4),
                                                      .weight_scale_layout = RONDO_SCALES_128X4,
                                                      .vectors = TENSOR(input, F16, 1, 64),
                                                      .out = TENSOR(output, F32, 1, 16)}));
  require_traffic(graph, ">gemv: reads 704 B, writes 64 B<");
}

/* The factors of rows are no blocks of 16. */
Test(traffic, a_product_in_e4m3_reads_a_factor_of_each_row) {
  rondo_graph *graph = graph_new();
  REQUIRE_OK(rondo_add_gemv(graph, &(rondo_gemv_desc){.weights = TENSOR(constant, E4M3, 16, 64),
                                                      .weight_scales = TENSOR(constant, F32, 16),
                                                      .vectors = TENSOR(input, F16, 1, 64),
                                                      .out = TENSOR(output, F32, 1, 16)}));
  require_traffic(graph, ">gemv: reads 1.18 KiB, writes 64 B<");
}

/* Of 512 KiB: what a rank reads and clears of its state, what it stores into others', and the sum itself. */
static void require_exchange(uint32_t ranks, bool has_residual, const char *says) {
  rondo_graph *graph = graph_new();
  rondo_tensor exchange[RONDO_MAX_RANKS] = {0};
  for (uint32_t r = 0; r < ranks; r++) REQUIRE_OK(rondo_exchange_state(graph, NULL, ranks, 512 << 10, &exchange[r]));
  REQUIRE_OK(rondo_add_all_reduce(
      graph, &(rondo_exchange_desc){.in = TENSOR(input, BF16, 256 << 10),
                                    .out = TENSOR(output, BF16, 256 << 10),
                                    .residual = has_residual ? TENSOR(input, BF16, 256 << 10) : (rondo_tensor){0},
                                    .exchange = exchange,
                                    .ranks = ranks}));
  require_traffic(graph, says);
}

Test(traffic, a_sum_over_ranks_moves_what_its_steps_do) {
  require_exchange(2, false, ">all_reduce: reads 1 MiB, writes 1.5 MiB<");
  require_exchange(2, true, ">all_reduce: reads 1.5 MiB, writes 1.5 MiB<");
  require_exchange(4, false, ">all_reduce: reads 1.25 MiB, writes 2 MiB<");
  require_exchange(4, true, ">all_reduce: reads 2.12 MiB, writes 2.75 MiB<");
}
