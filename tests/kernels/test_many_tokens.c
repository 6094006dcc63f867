/* test_many_tokens.c - layer halves of 2 to 128 tokens against fp64: rows of one sequence that begin anywhere in its
 * cache, with and without pages, and rows that fill tiles of 64 or do not. Each kernel has a case here, and each case
 * takes the kernel that it is for. */
#include <criterion/criterion.h>

#include "../../kernels/decoder/attention_many_tokens.h"
#include "../../kernels/decoder/feed_forward_many_tokens.h"
#include "../oracles/decoder_run.h"

static const int64_t rows[] = {17, 64, 65, 128, 100, 33, 2, 16};

static void feed_forwards(rondo_backend backend) {
  const size_t rounds = backend == RONDO_BACKEND_HOST ? 1 : 2; /* the oracle takes long */
  for (size_t i = 0; i < rounds * COUNT(rows); i++) {
    struct half h = with_types(models[0], IN_BF16, rows[i % COUNT(rows)], false);
    h.x_parts = (int64_t[]){3, 0, 6, 9}[i % 4], h.out_parts = 6;
    h = with_norm_weights(h, i % 4 != 1);
    if (i % 5 == 4) h = without_norm(h);
    h.states = i % 3 == 2;
    half_run(backend, &h);
  }
}
BOTH_BACKENDS(many_tokens, a_feed_forward_matches_fp64, feed_forwards)

/* Other types, sizes, parts and gaps: steps. */
static void feed_forwards_in_steps(rondo_backend backend) {
  for (size_t i = 0; i < 6; i++) {
    struct half h = with_types(models[i % 3], i % 2 ? IN_NVFP4 : IN_BF16, 20 + (int64_t)i, false);
    h.x_parts = 2, h.out_parts = 8;
    half_run(backend, &h);
  }
}
BOTH_BACKENDS(many_tokens, a_feed_forward_in_steps_matches_fp64, feed_forwards_in_steps)

/* A token of each of more sequences than others take. */
static void sequences(rondo_backend backend) {
  for (size_t i = 0; i < COUNT(rows); i++) {
    struct half h = with_types(models[i % 2], i % 3 == 1 ? IN_NVFP4 : IN_BF16, rows[i], true);
    h.capacity = 90, h.x_parts = (int64_t[]){6, 0, 3}[i % 3], h.out_parts = h.kv_heads + (int64_t)(i % 2);
    h.base = 100000.0f, h.pairing = i % 2 ? RONDO_ROPE_HALVES : RONDO_ROPE_INTERLEAVED;
    h = at_positions(h, 7 * i);
    half_run(backend, &h);
  }
}
BOTH_BACKENDS(many_tokens, attention_of_many_sequences_matches_fp64, sequences)

/* From 25 sequences on a block has two tokens: whole pairs and others, contexts that fill a warp's ring several times,
 * and tokens below 0 and beyond the capacity beside those that are in it. */
static void pairs(rondo_backend backend) {
  static const struct half shapes[] = {{.hidden = 256, .query_heads = 3, .kv_heads = 1},
                                       {.hidden = 64, .query_heads = 1, .kv_heads = 1},
                                       {.hidden = 640, .query_heads = 6, .kv_heads = 2},
                                       {.hidden = 256, .query_heads = 16, .kv_heads = 2}};
  static const int64_t some_rows[] = {25, 40, 33, 32}, capacities[] = {700, 40, 1100, 290};
  for (size_t i = 0; i < 2 * COUNT(shapes); i++) {
    struct half h = shapes[i % COUNT(shapes)];
    h.dimension = 64, h.capacity = capacities[(i + i / 4) % COUNT(capacities)];
    h = with_types(h, IN_BF16, some_rows[(i + i / 2) % COUNT(some_rows)], true);
    h.x_parts = (int64_t[]){6, 0, 7, 1}[i % 4], h.out_parts = h.kv_heads + (int64_t)(i % 2);
    h.base = i == 6 ? 0 : 10000.0f, h.pairing = i % 2 ? RONDO_ROPE_INTERLEAVED : RONDO_ROPE_HALVES;
    h = with_norm_weights(h, i != 5), h.state_position = i % 3 != 0;
    if (i == 3) h = without_norm(h);
    h = at_positions(h, 7 * i);
    if (i % 2)
      h.positions[1] = -1, h.positions[10] = -1, h.positions[3] = INT32_MAX, h.positions[4] = h.positions[12] = -1;
    half_run(backend, &h);
  }
}
BOTH_BACKENDS(many_tokens, attention_of_pairs_of_tokens_matches_fp64, pairs)

static struct half prompt(size_t model, int64_t count, int64_t position, size_t number) {
  struct half h = with_types(models[model], IN_BF16, count, true);
  h.one_sequence = true, h.positions[0] = (int32_t)position, h.capacity = 256;
  h.x_parts = (int64_t[]){6, 0, 3, 9}[number % 4], h.out_parts = h.kv_heads;
  h.base = 100000.0f, h.pairing = number % 2 ? RONDO_ROPE_HALVES : RONDO_ROPE_INTERLEAVED;
  return h;
}

/* In no order, and with a page of the pool that is not the sequence's. */
static struct half with_pages(struct half h, int64_t page_rows) {
  const int64_t count = h.capacity / page_rows;
  h.page_rows = page_rows;
  for (int64_t i = 0; i < count; i++) h.pages[i] = (int32_t)((i * 7 + 3) % (count + 1));
  return h;
}

static const int64_t prompt_rows[] = {17, 64, 33, 2, 100, 9, 65, 16, 128}, positions[] = {0, 1, 64, 100, 130, 191};

static void prompts(rondo_backend backend) {
  skip_under_sanitizers();
  for (size_t i = 0; i < COUNT(prompt_rows) * COUNT(positions); i++) {
    if (i % (backend == RONDO_BACKEND_HOST ? 4 : 2)) continue; /* the oracle takes long */
    struct half h = prompt(0, prompt_rows[i % COUNT(prompt_rows)], positions[i / COUNT(prompt_rows)], i);
    h = with_norm_weights(h, i % 3 != 1);
    if (i % 5 == 4) h = without_norm(h);
    h.frequencies = i % 7 == 2, h.states = i % 3 == 2, h.state_position = i / 2 % 2;
    if (i % 11 == 5) h.base = 0;
    half_run(backend, &h);
    h = with_pages(h, (int64_t[]){16, 32, 128}[i % 3]);
    half_run(backend, &h);
  }
}
BOTH_BACKENDS(many_tokens, a_prompt_matches_fp64, prompts)

/* Up to 8 rows with the bits of tokens alone: against fp64 here, and against a token at a time in graph_llama. More
 * take steps. */
static void tokens(rondo_backend backend) {
  static const int64_t count[] = {8, 2, 7, 1, 8, 5, 12, 3, 8, 8};
  static const int32_t at[] = {0, 100, 33, 191, 240, 7, 64, -1, 2990, -5};
  for (size_t i = 0; i < COUNT(at); i++) {
    struct half h = prompt(0, count[i], at[i], i);
    h.as_tokens = true, h.x_parts = (int64_t[]){8, 0, 6}[i % 3], h.out_parts += (int64_t)(i % 2);
    if (at[i] > h.capacity) h.capacity = 3001;
    h = with_norm_weights(h, i % 3 != 1);
    if (i % 5 == 4) h = without_norm(h);
    h.states = i % 3 == 2;
    half_run(backend, &h);
    h = with_types(models[0], IN_BF16, count[i], false);
    h.as_tokens = true, h.x_parts = (int64_t[]){3, 0, 8}[i % 3], h.out_parts = 8;
    h = with_norm_weights(h, i % 3 != 1);
    half_run(backend, &h);
  }
}
BOTH_BACKENDS(many_tokens, of_tokens_that_stay_alone_match_fp64, tokens)

/* Below 0 and beyond the capacity nothing is written, and nothing is seen there. */
static void borders(rondo_backend backend) {
  static const int64_t at[] = {-1, -40, -200, 255, 256, 300, 192, 250};
  for (size_t i = 0; i < COUNT(at); i++) {
    struct half h = prompt(0, prompt_rows[i % COUNT(prompt_rows)], at[i], i);
    if (backend == RONDO_BACKEND_CUDA || i % 2) half_run(backend, &h);
    h = with_pages(h, 64);
    if (backend == RONDO_BACKEND_CUDA || i % 2 == 0) half_run(backend, &h);
  }
}
BOTH_BACKENDS(many_tokens, a_prompt_beyond_all_borders_matches_fp64, borders)

static void prompts_in_steps(rondo_backend backend) {
  for (size_t i = 0; i < 4; i++) {
    struct half h = prompt(i % 3, 18 + 40 * (int64_t)(i % 2), 30, i);
    if (i % 3 == 0) h.weights = RONDO_NVFP4;
    half_run(backend, &h);
  }
}
BOTH_BACKENDS(many_tokens, a_prompt_in_steps_matches_fp64, prompts_in_steps)

/* Without a GPU too: every case above says which kernel it takes, and each kernel has one. */
Test(many_tokens, each_kernel_has_a_case_here) {
  static struct half_noted noted;
  half_noted = &noted;
  feed_forwards(RONDO_BACKEND_HOST), prompts(RONDO_BACKEND_HOST);
  FEED_FORWARD_MANY_TOKENS_KERNELS(REQUIRE_HALF_FOR)
  ATTENTION_MANY_TOKENS_KERNELS(REQUIRE_HALF_FOR)
}
