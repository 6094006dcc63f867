/* test_attention_block.c - the attention half of a decoder layer against fp64: one sequence and several, the sizes of
 * models and others, positions at all borders. Each kernel has a case here, and each case takes the kernel that it is
 * for. Faults that would show: a cache row that is missed or read too early, a part that is added twice, a size that
 * falls back to the steps. */
#include <criterion/criterion.h>

#include "../../kernels/decoder/attention_block_wide.h"
#include "../../kernels/decoder/attention_several_tokens.h"
#include "../oracles/decoder_run.h"

static void attention_blocks(rondo_backend backend) {
  skip_under_sanitizers();
  models_run(backend, true);
}
BOTH_BACKENDS(attention_block, of_models_matches_fp64, attention_blocks)

/* Several sequences: clusters with one to eight of them, contexts of no, one and many tiles for each warp. */
static void several_sequences(rondo_backend backend) {
  static const int64_t rows[] = {2, 4, 5, 7, 8, 13, 16, 3}, capacities[] = {40, 527, 1100};
  for (size_t i = 0; i < 2 * COUNT(rows); i++) {
    struct half h = models[0];
    h.capacity = capacities[i % COUNT(capacities)];
    h = with_types(h, i / 2 % 2 ? IN_NVFP4 : IN_BF16, rows[i % COUNT(rows)], true);
    h.x_parts = (int64_t[]){8, 0, 9, 1}[i % 4], h.out_parts = i == 3 ? 7 : 3;
    h.base = i == 6 ? 0 : 10000.0f, h.pairing = i % 2 ? RONDO_ROPE_INTERLEAVED : RONDO_ROPE_HALVES;
    h = with_norm_weights(h, i != 5), h.state_position = i % 3 != 0;
    if (i == 9) h = without_norm(h);
    h = at_positions(h, 7 * i);
    half_run(backend, &h);
  }
}
BOTH_BACKENDS(attention_block, of_several_sequences_matches_fp64, several_sequences)

/* One token of a model of a billion weights: several clusters share a KV head where there are parts for them, and a
 * warp has two tiles of K and V, three, and six, which is more than it has stages. */
static void wide_attention(rondo_backend backend) {
  static const int64_t x_parts[] = {16, 0, 15, 8}, out_parts[] = {16, 8, 19, 16};
  for (size_t i = 0; i < 8; i++) {
    struct half h = {.hidden = 2048, .query_heads = 32, .kv_heads = 8, .dimension = 64, .capacity = 700};
    h.x_parts = x_parts[i % COUNT(x_parts)], h.out_parts = out_parts[i % COUNT(out_parts)], h.base = 500000.0f;
    h.pairing = i % 2 ? RONDO_ROPE_INTERLEAVED : RONDO_ROPE_HALVES;
    if (i > 5) h.query_heads = 16, h.kv_heads = 4;
    if (i / 2 == 1) h.capacity = 2700;
    if (i == 6) h.capacity = 1500;
    h = with_types(h, i / 2 % 2 ? IN_NVFP4 : IN_BF16, 1, true);
    h = with_norm_weights(h, i != 4), h.state_position = i % 3 != 0;
    if (i == 5) h = without_norm(h);
    h = at_positions(h, 5 * i);
    half_run(backend, &h);
  }
}
BOTH_BACKENDS(attention_block, of_one_token_and_a_large_model_matches_fp64, wide_attention)

/* ---- Shapes ------------------------------------------------------------------------------------------------------ */

/* In both types of weights that kernels have; what else there is to choose in turn. */
static void in_both_types(rondo_backend backend, struct half h, int64_t rows, size_t number) {
  for (size_t type = IN_BF16; type <= IN_NVFP4; type += IN_NVFP4 - IN_BF16) {
    struct half one = with_types(h, type, rows, true);
    one.x_parts = (int64_t[]){3, 0, 8}[number % 3];
    if (!one.out_parts) one.out_parts = one.kv_heads + (int64_t)number % 2;
    one.pairing = number % 2 ? RONDO_ROPE_INTERLEAVED : RONDO_ROPE_HALVES;
    one.frequencies = number % 3 == 1, one.state_position = number / 2 % 2;
    if (!one.frequencies) one.base = 10000.0f;
    one = at_positions(one, 3 * number + type);
    half_run(backend, &one);
  }
}

/* Query heads of a KV head, one KV head and several, and rows of x from the shortest on. */
static void sequences_of_shapes(rondo_backend backend) {
  static const struct half shapes[] = {
      {.hidden = 64, .query_heads = 1, .kv_heads = 1},  {.hidden = 128, .query_heads = 2, .kv_heads = 2},
      {.hidden = 256, .query_heads = 8, .kv_heads = 1}, {.hidden = 512, .query_heads = 4, .kv_heads = 1},
      {.hidden = 640, .query_heads = 6, .kv_heads = 2}, {.hidden = 320, .query_heads = 4, .kv_heads = 2},
      {.hidden = 640, .query_heads = 3, .kv_heads = 3}, {.hidden = 256, .query_heads = 16, .kv_heads = 2}};
  static const int64_t rows[] = {2, 9, 16, 5, 8, 3, 12, 7};
  for (size_t i = 0; i < COUNT(shapes); i++) {
    struct half h = shapes[i];
    h.dimension = 64, h.capacity = (int64_t[]){30, 210, 640}[i % 3];
    in_both_types(backend, h, rows[i], i);
  }
}
BOTH_BACKENDS(attention_block, of_several_sequences_and_any_heads_matches_fp64, sequences_of_shapes)

static void tokens_of_shapes(rondo_backend backend) {
  static const struct half shapes[] = {{.hidden = 64, .query_heads = 1, .kv_heads = 1, .dimension = 64},
                                       {.hidden = 128, .query_heads = 8, .kv_heads = 1, .dimension = 64},
                                       {.hidden = 896, .query_heads = 14, .kv_heads = 2, .dimension = 64},
                                       {.hidden = 256, .query_heads = 4, .kv_heads = 2, .dimension = 128},
                                       {.hidden = 128, .query_heads = 8, .kv_heads = 1, .dimension = 128},
                                       {.hidden = 320, .query_heads = 3, .kv_heads = 3, .dimension = 128}};
  for (size_t i = 0; i < COUNT(shapes); i++) {
    struct half h = shapes[i];
    h.capacity = (int64_t[]){90, 640, 17}[i % 3];
    in_both_types(backend, h, 1, i);
  }
}
BOTH_BACKENDS(attention_block, of_one_token_and_any_heads_matches_fp64, tokens_of_shapes)

/* One to four clusters of a KV head. */
static void wide_shapes(rondo_backend backend) {
  static const struct half shapes[] = {{.query_heads = 4, .kv_heads = 2},
                                       {.query_heads = 6, .kv_heads = 1},
                                       {.query_heads = 16, .kv_heads = 2},
                                       {.query_heads = 8, .kv_heads = 1},
                                       {.query_heads = 2, .kv_heads = 1}};
  for (size_t i = 0; i < COUNT(shapes); i++) {
    struct half h = shapes[i];
    h.hidden = 2048, h.dimension = 64, h.capacity = (int64_t[]){70, 300}[i % 2];
    h.out_parts = h.query_heads / 2 + (int64_t)i % 2;
    in_both_types(backend, h, 1, i);
  }
}
BOTH_BACKENDS(attention_block, of_a_large_model_and_any_heads_matches_fp64, wide_shapes)

/* ---- Positions --------------------------------------------------------------------------------------------------- */

enum { CAPACITY = 130 };
static const int32_t borders[] = {-1,           0,         1,         2,   15,      16, 17, 63, 64, 127, 128,
                                  CAPACITY - 1, INT32_MAX, INT32_MIN, 100, CAPACITY};

/* In both types; all sequences stand where one does, or each after that in the list. */
static void at_borders(rondo_backend backend, struct half h, int64_t rows, size_t first, bool one_position) {
  for (size_t type = IN_BF16; type <= IN_NVFP4; type += IN_NVFP4 - IN_BF16) {
    struct half one = with_types(h, type, rows, true);
    one.capacity = CAPACITY, one.one_position = one_position;
    one.out_parts = h.hidden == 2048 ? h.query_heads / 2 : h.kv_heads;
    one.pairing = first % 2 ? RONDO_ROPE_HALVES : RONDO_ROPE_INTERLEAVED;
    one.frequencies = first % 3 == 1, one.state_position = first / 2 % 2;
    if (!one.frequencies) one.base = 10000.0f;
    for (size_t b = 0; b < (size_t)rows; b++) one.positions[b] = borders[(first + b) % COUNT(borders)];
    half_run(backend, &one);
  }
}

static const struct half small_head = {.hidden = 256, .query_heads = 3, .kv_heads = 1, .dimension = 64},
                         large_head = {.hidden = 128, .query_heads = 4, .kv_heads = 2, .dimension = 128},
                         wide_row = {.hidden = 2048, .query_heads = 4, .kv_heads = 1, .dimension = 64};

/* Below 0 and beyond the capacity nothing is written. */
static void positions_of_one(rondo_backend backend) {
  for (size_t i = 0; i < COUNT(borders); i++) {
    at_borders(backend, small_head, 1, i, false);
    at_borders(backend, large_head, 1, i, false);
    if (borders[i] < 2 || borders[i] > 127) at_borders(backend, wide_row, 1, i, false);
  }
}
BOTH_BACKENDS(attention_block, of_one_token_at_and_beyond_all_borders_matches_fp64, positions_of_one)

static void positions_of_several(rondo_backend backend) {
  static const int64_t rows[] = {16, 2, 9, 5};
  for (size_t i = 0; i < COUNT(borders); i++) at_borders(backend, small_head, rows[i % COUNT(rows)], i, false);
  at_borders(backend, large_head, 16, 0, false);
}
BOTH_BACKENDS(attention_block, of_several_tokens_at_and_beyond_all_borders_matches_fp64, positions_of_several)

/* Each sequence sees its own rows of K and V, as many of them. */
static void one_position_of_all(rondo_backend backend) {
  static const int64_t rows[] = {3, 16, 8};
  for (size_t i = 0; i < COUNT(borders); i++) at_borders(backend, small_head, rows[i % COUNT(rows)], i, true);
  at_borders(backend, large_head, 4, 9, true);
}
BOTH_BACKENDS(attention_block, of_tokens_at_one_position_matches_fp64, one_position_of_all)

/* Other types than the kernels have. */
static void positions_of_other_types(rondo_backend backend) {
  for (size_t i = 0; i < 2 * COUNT(borders); i++) {
    struct half h = with_types(i % 2 ? small_head : large_head, (size_t[]){1, 2, 3, 5}[i / 2 % 4],
                               row_counts[i / 3 % COUNT(row_counts)], true);
    h.capacity = CAPACITY, h.out_parts = h.kv_heads, h.base = 10000.0f, h.one_position = i >= COUNT(borders);
    for (size_t b = 0; b < (size_t)h.rows; b++) h.positions[b] = borders[(i + b) % COUNT(borders)];
    half_run(backend, &h);
  }
}
BOTH_BACKENDS(attention_block, in_steps_at_and_beyond_all_borders_matches_fp64, positions_of_other_types)

/* No row of the cache at all: nothing is seen. */
static void no_capacity(rondo_backend backend) {
  struct half h = with_types(models[0], 0, 2, true);
  h.capacity = 0, h.out_parts = 3;
  half_run(backend, &h);
}
BOTH_BACKENDS(attention_block, without_a_row_in_its_cache_gives_zeros, no_capacity)

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* Of a large model and NVFP4: with and without norm and its weights. Without the norm, numbers far from one would leave
 * softmax nothing to choose. */
static struct half wide_codes(size_t number) {
  struct half h = with_types(wide_row, IN_NVFP4, 1, true);
  h.capacity = CAPACITY, h.out_parts = 2, h.base = 10000.0f, h = with_norm_weights(h, number % 2 == 0);
  return at_positions(h, number);
}

static void wide_values(rondo_backend backend) {
  struct half h;
  for (size_t i = 0; i < 2 * COUNT(x_changes); i++) h = wide_codes(i), half_run_changed(backend, &h, x_changes[i / 2]);
  static void (*const plain[])(struct half *) = {NULL, x_mostly_zero, x_zero};
  for (size_t i = 0; i < COUNT(plain); i++) h = wide_codes(i), h.epsilon = 0, half_run_changed(backend, &h, plain[i]);
}
BOTH_BACKENDS(attention_block, of_a_large_model_and_nvfp4_takes_numbers_of_any_size, wide_values)

static void wide_not_finite(rondo_backend backend) {
  for (size_t i = 0; i < 3; i++) {
    struct half h = wide_codes(i);
    if (i == 2) h.epsilon = 0;
    half_run_not_finite(backend, &h);
  }
}
BOTH_BACKENDS(attention_block, of_a_large_model_and_nvfp4_hides_no_nan, wide_not_finite)

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

/* Without a GPU too: every case above says which kernel it takes, and each kernel has one. */
Test(attention_block, each_kernel_has_a_case_here) {
  static struct half_noted noted;
  half_noted = &noted;
  attention_blocks(RONDO_BACKEND_HOST), several_sequences(RONDO_BACKEND_HOST), wide_attention(RONDO_BACKEND_HOST);
  sequences_of_shapes(RONDO_BACKEND_HOST), tokens_of_shapes(RONDO_BACKEND_HOST), wide_shapes(RONDO_BACKEND_HOST);
  ATTENTION_BLOCK_KERNELS(REQUIRE_HALF_FOR)
  ATTENTION_BLOCK_WIDE_KERNELS(REQUIRE_HALF_FOR)
  ATTENTION_SEVERAL_TOKENS_KERNELS(REQUIRE_HALF_FOR)
  /* So it is of positions alone. */
  noted.count = 0;
  positions_of_one(RONDO_BACKEND_HOST), positions_of_several(RONDO_BACKEND_HOST);
  ATTENTION_BLOCK_KERNELS(REQUIRE_HALF_FOR)
  ATTENTION_BLOCK_WIDE_KERNELS(REQUIRE_HALF_FOR)
  ATTENTION_SEVERAL_TOKENS_KERNELS(REQUIRE_HALF_FOR)
  noted.count = 0;
  one_position_of_all(RONDO_BACKEND_HOST);
  ATTENTION_SEVERAL_TOKENS_KERNELS(REQUIRE_HALF_FOR)
}
