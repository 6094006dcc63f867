/* test_attention_append_refused.c - the descriptions of attention with new rows and RoPE that are refused, each with
 * its sentence, and caches that must have been written before. */
#include <criterion/criterion.h>
#include <math.h>

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
  REFUSED("position is there without new_k, rope_base and rope_frequencies", PLAIN, .position = at);
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
