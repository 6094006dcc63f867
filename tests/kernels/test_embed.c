/* test_embed.c - rondo_add_embed, bit by bit: every type of table and result, ids inside and outside of the table. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../oracles/frame.h"

enum { ROWS = 37, COUNT = 29 };

struct embedding {
  struct frame table, scales, out;
  rondo_tensor ids;
  float scale;
};

static struct embedding add(struct trial *trial, struct random *random, rondo_dtype dtype, rondo_dtype out,
                            int64_t width, int64_t room, float scale) {
  struct embedding e = {.scale = scale};
  bool is_nvfp4 = dtype == RONDO_NVFP4;
  e.table = frame_add(trial, "table", dtype, 2, (int64_t[]){ROWS, width}, room, is_nvfp4 ? 2 : 1);
  if (is_nvfp4) e.scales = frame_add(trial, "scales", RONDO_E4M3, 2, (int64_t[]){ROWS, width / 16}, room, 1);
  e.out = frame_add(trial, "out", out, 2, (int64_t[]){COUNT, width}, room, 1);
  REQUIRE_OK(rondo_input(trial->graph, "ids", RONDO_I32, 1, (int64_t[]){COUNT}, &e.ids));
  if (is_nvfp4) {
    for (uint64_t i = 0; i < e.table.size; i++) e.table.bytes[i] = (unsigned char)random_bits(random);
    for (uint64_t i = 0; i < e.scales.size; i++) e.scales.bytes[i] = (unsigned char)random_bits(random);
  } else {
    frame_fill(&e.table, random, 1);
  }
  REQUIRE_OK(rondo_add_embed(
      trial->graph,
      &(rondo_embed_desc){
          .table = e.table.view, .table_scales = e.scales.view, .ids = e.ids, .out = e.out.view, .scale = scale}));
  return e;
}

static double table_value(const struct embedding *e, int64_t row, int64_t column) {
  int64_t place = frame_place(&e->table, row * e->table.extent[1] + column);
  if (e->table.dtype != RONDO_NVFP4) return oracle_read(e->table.dtype, e->table.bytes, place);
  double code = oracle_e2m1((unsigned)e->table.bytes[place / 2] >> place % 2 * 4 & 15u);
  return code * oracle_e4m3(e->scales.bytes[frame_place(&e->scales, row * e->scales.extent[1] + column / 16)]);
}

static void check(struct trial *trial, struct embedding *e, const int32_t *ids, const char *what) {
  struct frame got = frame_get(trial, &e->out, what);
  int64_t width = e->out.extent[1];
  for (int64_t i = 0; i < COUNT; i++)
    for (int64_t j = 0; j < width; j++) {
      bool is_there = ids[i] >= 0 && ids[i] < ROWS;
      double product = is_there ? table_value(e, ids[i], j) * (double)(e->scale == 0 ? 1 : e->scale) : NAN;
      double expected = frame_rounded(e->out.dtype, (double)(float)product), value = frame_read(&got, i * width + j);
      cr_assert(frame_same(value, expected), "%s, item %d of id %d, column %d: %g, expected %g", what, (int)i,
                (int)ids[i], (int)j, value, expected);
    }
  free(got.bytes);
}

static void take_rows(rondo_backend backend) {
  static const rondo_dtype tables[] = {RONDO_F32, RONDO_F16, RONDO_BF16, RONDO_NVFP4};
  static const rondo_dtype outs[] = {RONDO_F32, RONDO_F16, RONDO_BF16};
  static const int64_t widths[] = {16, 48, 7, 1040, 2048};
  enum { MOST = 4 * 3 * 5 * 3 };
  static struct embedding all[MOST];
  struct random random = {3};
  struct trial trial;
  int count = 0;
  trial_describe(&trial, backend);
  for (int t = 0; t < 4; t++)
    for (int o = 0; o < 3; o++)
      for (int w = 0; w < 5; w++)
        for (int64_t room = 0; room < 10; room += room ? 7 : 1) /* 0, 1 and 8: aligned again */
          if (tables[t] != RONDO_NVFP4 || widths[w] % 16 == 0)
            all[count++] = add(&trial, &random, tables[t], outs[o], widths[w], room, w % 2 ? 0 : 0.37f);
  trial_instantiate(&trial);
  for (int i = 0; i < count; i++) {
    frame_set(&trial, &all[i].table), frame_set(&trial, &all[i].out);
    if (all[i].table.dtype == RONDO_NVFP4) frame_set(&trial, &all[i].scales);
  }
  for (int replay = 0; replay < 2; replay++) {
    static const int32_t far[] = {-1, ROWS, INT32_MIN, INT32_MAX, 1 << 20};
    int32_t ids[COUNT];
    for (int i = 0; i < COUNT; i++)
      ids[i] = i % 6 == 5 ? far[random_between(&random, 0, 4)] : (int32_t)random_between(&random, 0, ROWS - 1);
    ids[0] = 0, ids[1] = ROWS - 1;
    for (int i = 0; i < count; i++) trial_set(&trial, all[i].ids, ids);
    trial_replay(&trial);
    for (int i = 0; i < count; i++) {
      char what[96];
      snprintf(what, sizeof what, "embed %d, %s to %s, width %d", i, rondo_dtype_name(all[i].table.dtype),
               rondo_dtype_name(all[i].out.dtype), (int)all[i].out.extent[1]);
      check(&trial, &all[i], ids, what);
    }
  }
  for (int i = 0; i < count; i++) free(all[i].table.bytes), free(all[i].scales.bytes), free(all[i].out.bytes);
  trial_end(&trial);
}
BOTH_BACKENDS(embed, takes_the_rows_whose_ids_it_reads, take_rows)

static void nothing(rondo_backend backend) {
  struct trial trial;
  rondo_tensor table, ids, none, no_ids, out, no_rows;
  trial_describe(&trial, backend);
  REQUIRE_OK(rondo_state(trial.graph, "table", RONDO_F16, 2, (int64_t[]){0, 8}, &table));
  REQUIRE_OK(rondo_state(trial.graph, "none", RONDO_F16, 2, (int64_t[]){5, 0}, &none));
  REQUIRE_OK(rondo_input(trial.graph, "ids", RONDO_I32, 1, (int64_t[]){2}, &ids));
  REQUIRE_OK(rondo_input(trial.graph, "no ids", RONDO_I32, 1, (int64_t[]){0}, &no_ids));
  REQUIRE_OK(rondo_output(trial.graph, "out", RONDO_F32, 2, (int64_t[]){2, 8}, &out));
  REQUIRE_OK(rondo_output(trial.graph, "no rows", RONDO_F32, 2, (int64_t[]){0, 8}, &no_rows));
  rondo_tensor no_columns;
  REQUIRE_OK(rondo_output(trial.graph, "no columns", RONDO_F32, 2, (int64_t[]){2, 0}, &no_columns));
  REQUIRE_OK(rondo_add_embed(trial.graph, &(rondo_embed_desc){.table = table, .ids = ids, .out = out}));
  REQUIRE_OK(rondo_add_embed(trial.graph, &(rondo_embed_desc){.table = table, .ids = no_ids, .out = no_rows}));
  REQUIRE_OK(rondo_add_embed(trial.graph, &(rondo_embed_desc){.table = none, .ids = ids, .out = no_columns}));
  trial_instantiate(&trial);
  trial_set(&trial, ids, (int32_t[]){0, 1});
  trial_replay(&trial);
  const float *rows = trial_output(&trial, out);
  for (int i = 0; i < 16; i++) cr_assert(isnan(rows[i]), "a table without rows has none of id 0");
  trial_end(&trial);
}
BOTH_BACKENDS(embed, an_empty_table_has_no_row_and_no_ids_are_no_work, nothing)

Test(embed, refuses_what_does_not_match) {
  struct trial trial;
  rondo_tensor table, codes, odd, scales, ids, out, wide, i32_out, flat;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  REQUIRE_OK(rondo_constant(g, "table", RONDO_BF16, 2, (int64_t[]){10, 32}, &table));
  REQUIRE_OK(rondo_constant(g, "codes", RONDO_NVFP4, 2, (int64_t[]){10, 32}, &codes));
  REQUIRE_OK(rondo_constant(g, "odd", RONDO_NVFP4, 2, (int64_t[]){10, 24}, &odd));
  REQUIRE_OK(rondo_constant(g, "scales", RONDO_E4M3, 2, (int64_t[]){10, 2}, &scales));
  REQUIRE_OK(rondo_input(g, "ids", RONDO_I32, 1, (int64_t[]){3}, &ids));
  REQUIRE_OK(rondo_output(g, "out", RONDO_BF16, 2, (int64_t[]){3, 32}, &out));
  REQUIRE_OK(rondo_output(g, "wide", RONDO_BF16, 2, (int64_t[]){3, 64}, &wide));
  REQUIRE_OK(rondo_output(g, "i32 out", RONDO_I32, 2, (int64_t[]){3, 32}, &i32_out));
  REQUIRE_OK(rondo_constant(g, "flat", RONDO_F32, 1, (int64_t[]){32}, &flat));
#define REFUSED(fragment, ...)                                                                                         \
  REQUIRE_ERROR(rondo_add_embed(g, &(rondo_embed_desc){__VA_ARGS__}), RONDO_INVALID_ARGUMENT, fragment)
  REQUIRE_ERROR(rondo_add_embed(g, NULL), RONDO_INVALID_ARGUMENT, "rondo_add_embed: the description is NULL");
  REFUSED("table is absent, expected [rows, width] f32, f16, bf16 or nvfp4", .ids = ids, .out = out);
  REFUSED("table is [32] f32, expected [rows, width]", .table = flat, .ids = ids, .out = out);
  REFUSED("table is [10, 2] e4m3, expected [rows, width]", .table = scales, .ids = ids, .out = out);
  REFUSED("table_scales is present, expected none with table in bf16", .table = table, .table_scales = scales,
          .ids = ids, .out = out);
  REFUSED("table_scales is absent, expected [10, 2] e4m3", .table = codes, .ids = ids, .out = out);
  REFUSED("table has rows of 24, expected a multiple of 16", .table = odd, .table_scales = scales, .ids = ids,
          .out = out);
  REFUSED("ids is absent, expected [count] i32", .table = table, .out = out);
  REFUSED("ids is [32] f32, expected [count] i32", .table = table, .ids = flat, .out = out);
  REFUSED("out is absent, expected [3, 32] bf16", .table = table, .ids = ids);
  REFUSED("is [3, 64] bf16, expected [3, 32] bf16", .table = table, .ids = ids, .out = wide);
  REFUSED("out is i32, expected f32, f16 or bf16", .table = table, .ids = ids, .out = i32_out);
  REFUSED("scale is inf, expected a finite number", .table = table, .ids = ids, .out = out, .scale = INFINITY);
#undef REFUSED
  REQUIRE_OK(rondo_add_embed(g, &(rondo_embed_desc){.table = codes, .table_scales = scales, .ids = ids, .out = out}));
  trial_end(&trial);
}
