/* test_attention_append_refused.c - the descriptions of attention with new rows, RoPE and packed rows that are refused,
 * each with its sentence, caches that must have been written before, and the kernels of packed rows. */
#include <criterion/criterion.h>
#include <math.h>

#include "../../runtime/graph.h"
#include "../support.h"

static rondo_tensor made(rondo_graph *graph, rondo_dtype dtype, uint32_t rank, const int64_t *shape) {
  rondo_tensor tensor;
  REQUIRE_OK(rondo_state(graph, NULL, dtype, rank, shape, &tensor));
  return tensor;
}
#define MADE(dtype, ...)                                                                                               \
  made(g, RONDO_##dtype, sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

Test(attention_append, refuses_what_does_not_fit) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  const rondo_tensor q = MADE(F16, 2, 4, 3, 64), o = MADE(F16, 2, 4, 3, 64), k = MADE(F16, 2, 2, 9, 64),
                     v = MADE(F16, 2, 2, 9, 64), new_k = MADE(F16, 2, 2, 3, 64), new_v = MADE(F16, 2, 2, 3, 64),
                     at = MADE(I32, 1), at_each = MADE(I32, 2), three = MADE(I32, 3), four = MADE(F16, 2, 2, 4, 64),
                     bf16 = MADE(BF16, 2, 2, 3, 64), codes_q = MADE(E4M3, 2, 4, 3, 64), codes = MADE(E4M3, 2, 2, 9, 64),
                     more_codes = MADE(E4M3, 2, 2, 9, 64), new_codes = MADE(E4M3, 2, 2, 3, 64),
                     v_3 = MADE(F16, 2, 2, 3, 64), frequencies = MADE(F32, 32), few = MADE(F32, 31);
#define REFUSED(fragment, ...)                                                                                         \
  REQUIRE_ERROR(rondo_add_attention(g, &(rondo_attention_desc){__VA_ARGS__}), RONDO_INVALID_ARGUMENT, fragment)
#define PLAIN .q = q, .k = k, .v = v, .o = o
#define ROWS  .new_k = new_k, .new_v = new_v
  REFUSED("new_v is absent, expected [2, 2, 3, 64] f16", PLAIN, .new_k = new_k, .position = at);
  REFUSED("new_k is absent, expected [2, 2, 3, 64] f16", PLAIN, .new_v = new_v, .position = at);
  REFUSED("[2, 2, 4, 64] f16, expected [2, 2, 3, 64] f16", PLAIN, .new_k = four, .new_v = new_v, .position = at);
  REFUSED("[2, 2, 3, 64] bf16, expected [2, 2, 3, 64] f16", PLAIN, .new_k = new_k, .new_v = bf16, .position = at);
  REFUSED("position is absent, expected [1] or [2] i32", PLAIN, ROWS);
  REFUSED("is [3] i32, expected [1] or [2] i32", PLAIN, ROWS, .position = three);
  REFUSED("position is absent", PLAIN, .rope_base = 10000.0f);
  REFUSED("position is absent", PLAIN, .rope_frequencies = frequencies);
  REFUSED("position is present without new_k, rope_base and rope_frequencies", PLAIN, .position = at);
  REFUSED("kv_lengths is there beside new_k, expected none", PLAIN, ROWS, .position = at, .kv_lengths = at_each);
  REFUSED("k is e4m3, expected f16 or bf16 beside new_k", .q = q, .k = codes, .v = more_codes, .o = o,
          .new_k = new_codes, .new_v = new_codes, .position = at);
  REFUSED("q is e4m3, expected f16 or bf16 beside a rotary embedding", .q = codes_q, .k = codes, .v = more_codes,
          .o = o, .rope_base = 10000.0f, .position = at);
  REFUSED("rope_base is -1, expected a finite number that is not negative", PLAIN, .rope_base = -1.0f, .position = at);
  REFUSED("rope_base is nan", PLAIN, .rope_base = NAN, .position = at);
  REFUSED("rope_base is inf", PLAIN, .rope_base = INFINITY, .position = at);
  REFUSED("rope_pairing is 2, expected RONDO_ROPE_INTERLEAVED or RONDO_ROPE_HALVES", PLAIN, .rope_base = 10000.0f,
          .rope_pairing = (rondo_rope_pairing)2, .position = at);
  REFUSED("is [31] f32, expected [32] f32", PLAIN, .rope_frequencies = few, .position = at);
  REFUSED("overlap", .q = q, .k = new_k, .v = v_3, .o = o, ROWS, .position = at);
#undef ROWS
  REQUIRE_OK(rondo_add_attention(g, &(rondo_attention_desc){PLAIN, .new_k = new_k, .new_v = new_v, .position = at_each,
                                                            .rope_base = 1e4f, .rope_frequencies = frequencies}));
  REQUIRE_OK(rondo_add_attention(
      g, &(rondo_attention_desc){PLAIN, .rope_frequencies = frequencies, .position = at, .kv_lengths = at_each}));
#undef PLAIN
#undef REFUSED
  trial_end(&trial);
}

Test(attention_append, keeps_the_rows_before_and_so_wants_them_written) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  rondo_plan plan;
  rondo_tensor k, constant;
  const rondo_tensor q = MADE(F16, 1, 2, 1, 64), o = MADE(F16, 1, 2, 1, 64), v = MADE(F16, 1, 2, 9, 64),
                     new_k = MADE(F16, 1, 2, 1, 64), new_v = MADE(F16, 1, 2, 1, 64), at = MADE(I32, 1);
  REQUIRE_OK(rondo_constant(g, "constant", RONDO_F16, 4, (int64_t[]){1, 2, 9, 64}, &constant));
  REQUIRE_OK(rondo_temporary(g, "cache", RONDO_F16, 4, (int64_t[]){1, 2, 9, 64}, &k));
  rondo_attention_desc desc = {.q = q, .k = constant, .v = v, .o = o, .new_k = new_k, .new_v = new_v, .position = at};
  REQUIRE_ERROR(rondo_add_attention(g, &desc), RONDO_INVALID_ARGUMENT, "k would write the constant 'constant'");
  desc.k = k;
  REQUIRE_OK(rondo_add_attention(g, &desc));
  REQUIRE_ERROR(rondo_plan_graph(g, &plan), RONDO_INVALID_ARGUMENT, "reads temporary 'cache', which no earlier task");
  trial_end(&trial);
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

Test(attention_packed, refuses_what_does_not_fit) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  rondo_tensor t[10];
  static const int64_t shapes[10][4] = {{1, 4, 9, 64}, {1, 4, 9, 64}, {3, 2, 20, 64}, {3, 2, 20, 64}, {1, 2, 9, 64},
                                        {1, 2, 9, 64}, {3, 4, 9, 64}, {3, 4, 9, 64},  {2, 2, 20, 64}, {2, 2, 20, 64}};
  for (int i = 0; i < 10; i++) REQUIRE_OK(rondo_state(g, NULL, RONDO_BF16, 4, shapes[i], &t[i]));
  rondo_tensor offsets, few, wrong, position, position_2, lengths;
  REQUIRE_OK(rondo_state(g, NULL, RONDO_I32, 1, (int64_t[]){4}, &offsets));
  REQUIRE_OK(rondo_state(g, NULL, RONDO_I32, 1, (int64_t[]){1}, &few));
  REQUIRE_OK(rondo_state(g, NULL, RONDO_F32, 1, (int64_t[]){4}, &wrong));
  REQUIRE_OK(rondo_state(g, NULL, RONDO_I32, 1, (int64_t[]){3}, &position));
  REQUIRE_OK(rondo_state(g, NULL, RONDO_I32, 1, (int64_t[]){2}, &position_2));
  REQUIRE_OK(rondo_state(g, NULL, RONDO_I32, 1, (int64_t[]){3}, &lengths));
  const rondo_attention_desc good = {.q = t[0],
                                     .k = t[2],
                                     .v = t[3],
                                     .o = t[1],
                                     .new_k = t[4],
                                     .new_v = t[5],
                                     .causal = 1,
                                     .position = position,
                                     .row_offsets = offsets};
  rondo_attention_desc bad;
#define REFUSED(fragment, field, value)                                                                                \
  bad = good, bad.field = value;                                                                                       \
  REQUIRE_ERROR(rondo_add_attention(g, &bad), RONDO_INVALID_ARGUMENT, fragment)
  REFUSED("row_offsets is present without causal", causal, 0);
  REFUSED("row_offsets is present without new_k and new_v", new_k, (rondo_tensor){0});
  REFUSED("[items + 1] i32", row_offsets, few);
  REFUSED("[items + 1] i32", row_offsets, wrong);
  REFUSED("q has batch 3, expected 1 beside row_offsets", q, t[6]);
  REFUSED("o is [3, 4, 9, 64] bf16, expected [1, 4, 9, 64] bf16", o, t[7]);
  REFUSED("k has batch 2, row_offsets give 3", k, t[8]);
  REFUSED("expected [1] or [3] i32", position, position_2);
  REFUSED("kv_lengths is there beside new_k", kv_lengths, lengths);
#undef REFUSED
  REQUIRE_OK(rondo_add_attention(g, &good));
  trial_end(&trial);
}

/* Of no heads, as of no rows, nothing is left to do. */
Test(attention_append, no_heads_are_no_launch) {
  static const struct chip chips[] = {{80, 108, 166912}, {90, 132, 232448}, {100, 148, 232448}};
  static struct op_launches launches;
  for (int64_t heads = 0; heads <= 2; heads += 2)
    for (size_t i = 0; i < 2 * sizeof chips / sizeof *chips; i++) {
      struct op_operand operands[OP_MAX_OPERANDS];
      struct trial trial;
      trial_describe(&trial, RONDO_BACKEND_HOST);
      rondo_graph *g = trial.graph;
      rondo_attention_desc desc = {.q = MADE(F16, 2, heads, 3, 64),
                                   .k = MADE(F16, 2, heads, 9, 64),
                                   .v = MADE(F16, 2, heads, 9, 64),
                                   .o = MADE(F16, 2, heads, 3, 64),
                                   .position = MADE(I32, 1),
                                   .rope_base = 10000.0f};
      if (i % 2) desc.new_k = MADE(F16, 2, heads, 3, 64), desc.new_v = MADE(F16, 2, heads, 3, 64);
      REQUIRE_OK(rondo_add_attention(g, &desc));
      struct op_task task = graph_op_task(g, &g->tasks[0], operands);
      REQUIRE_OK(task.op->select(&(struct op_call){.task = &task, .data = op_nowhere}, &chips[i / 2], &launches));
      cr_expect_eq(launches.count > 0, heads > 0, "%d heads, case %zu", (int)heads, i);
      trial_end(&trial);
    }
}

static const char *packed_choice(int64_t items, int64_t rows, int64_t page_rows, struct op_launches *launches) {
  struct op_operand operands[OP_MAX_OPERANDS];
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  rondo_attention_desc desc = {.q = MADE(BF16, 1, 6, rows, 64),
                               .o = MADE(BF16, 1, 6, rows, 64),
                               .new_k = MADE(BF16, 1, 2, rows, 64),
                               .new_v = MADE(BF16, 1, 2, rows, 64),
                               .k = MADE(BF16, items, 2, page_rows ? page_rows : 512, 64),
                               .v = MADE(BF16, items, 2, page_rows ? page_rows : 512, 64),
                               .position = MADE(I32, items),
                               .row_offsets = MADE(I32, items + 1),
                               .causal = 1};
  if (page_rows) desc.kv_pages = MADE(I32, items, 8);
  REQUIRE_OK(rondo_add_attention(g, &desc));
  struct op_task task = graph_op_task(g, &g->tasks[0], operands);
  REQUIRE_OK(
      task.op->select(&(struct op_call){.task = &task, .data = op_nowhere}, &(struct chip){90, 132, 232448}, launches));
  trial_end(&trial);
  return launches->choice;
}

/* After the launch that appends. Few rows of many items take the kernel that folds heads. */
Test(attention_packed, takes_warpgroups_if_items_have_rows_and_no_pages) {
  struct op_launches launches;
  cr_expect_str_eq(packed_choice(16, 2048, 0, &launches), "wgmma");
  cr_expect_eq(launches.count, 2);
  cr_expect_str_eq(packed_choice(16, 256, 0, &launches), "wgmma");
  cr_expect_str_eq(packed_choice(17, 256, 0, &launches), "general");
  cr_expect_str_eq(packed_choice(16, 2048, 64, &launches), "general");
  cr_expect_str_eq(packed_choice(1, 40, 0, &launches), "general");
  cr_expect_eq(launches.count, 2);
}
