/* test_decoder.c - the halves of a decoder's layer against fp64: sizes of models and others, every type of weights, any
 * number of rows and parts, positions at all borders; the same bits on every replay; and what is refused. */
#include <stdio.h>

#include "../../runtime/graph.h"
#include "test_decoder_oracle.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void describe(const struct half *h, char text[200]) {
  snprintf(text, 200, "%s, %s, weights %s, %d rows, hidden %d, heads %d/%d of %d, columns %d, parts %d -> %d",
           h->attention ? "attention block" : "feed forward", rondo_dtype_name(h->dtype), rondo_dtype_name(h->weights),
           (int)h->rows, (int)h->hidden, (int)h->query_heads, (int)h->kv_heads, (int)h->dimension, (int)h->columns,
           (int)h->x_parts, (int)h->out_parts);
}

/* Replays again: the same bits. */
static void repeat(struct half *h, struct trial *trial, const char *what) {
  struct half again = *h;
  const struct grid *before[] = {&h->out, &h->out_sums, &h->k, &h->v};
  struct grid *now[] = {&again.out, &again.out_sums, &again.k, &again.v};
  for (int i = 0; i < 4; i++)
    if (before[i]->data) now[i]->data = malloc(grid_bytes(now[i]) + 1);
  trial_replay(trial);
  half_get(&again, trial);
  for (int i = 0; i < 4; i++) {
    if (!before[i]->data) continue;
    cr_assert_eq(memcmp(before[i]->data, now[i]->data, grid_bytes(now[i])), 0, "%s: other bits in another replay",
                 what);
    free(now[i]->data);
  }
}

/* On every chip there is something to launch, no more than the operation says, and not the product for everything. */
static void check_launches(const rondo_graph *graph, const char *what) {
  static const struct chip chips[] = {{80, 108, 166912}, {90, 132, 232448}, {100, 148, 232448}};
  for (uint32_t t = 0; t < graph->task_count; t++)
    for (size_t i = 0; i < COUNT(chips); i++) {
      struct op_operand operands[OP_MAX_OPERANDS];
      struct op_task task = graph_op_task(graph, &graph->tasks[t], operands);
      struct op_launches launches;
      REQUIRE_OK(task.op->select(&(struct op_call){.task = &task, .data = op_nowhere}, &chips[i], &launches));
      cr_assert(launches.count > 0 && launches.count <= task.op->launches_most, "%s, chip %d", what, (int)i);
      for (uint32_t l = 0; l < launches.count; l++)
        cr_assert_str_neq(launches.items[l].kernel, "rondo_gemv_scalar", "%s, chip %d", what, (int)i);
    }
}

static void run_changed(rondo_backend backend, struct half *h, void (*change)(struct half *)) {
  struct trial trial;
  struct random random = {(uint64_t)(h->rows + h->hidden)};
  char what[200];
  describe(h, what);
  trial_describe(&trial, backend);
  half_add(trial.graph, h, NULL);
  if (h->hidden % 64 == 0 && !h->padded) check_launches(trial.graph, what);
  trial_instantiate(&trial);
  half_fill(h, &random, true);
  if (change) change(h);
  half_set(h, &trial, true);
  trial_replay(&trial);
  half_get(h, &trial);
  half_check(h, what);
  repeat(h, &trial, what);
  trial_end(&trial);
  half_free(h, true);
}
static void run(rondo_backend backend, struct half *h) { run_changed(backend, h, NULL); }

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

static const struct {
  rondo_dtype dtype, weights;
} types[] = {{RONDO_BF16, RONDO_BF16}, {RONDO_F16, RONDO_F16},    {RONDO_BF16, RONDO_E4M3},
             {RONDO_F16, RONDO_E4M3},  {RONDO_BF16, RONDO_NVFP4}, {RONDO_F16, RONDO_NVFP4}};
static const int64_t row_counts[] = {1, 2, 3, 4, 5, 8, 9, 16};

static struct half with_types(struct half h, size_t type, int64_t rows, bool attention) {
  h.dtype = types[type].dtype, h.weights = types[type].weights;
  h.rows = rows, h.attention = attention;
  if (h.epsilon == 0) h.epsilon = 1e-5f;
  return h;
}

/* Positions all over the capacity, among them the first and the last row. */
static struct half at_positions(struct half h, uint64_t seed) {
  struct random random = {seed};
  for (int64_t b = 0; b < h.rows; b++) h.positions[b] = (int32_t)random_between(&random, 0, h.capacity - 1);
  h.positions[seed % (uint64_t)h.rows] = seed % 2 ? 0 : (int32_t)h.capacity - 1;
  return h;
}

/* As models are: SmolLM2 135M and 360M, Llama 1B; and a small one with larger heads. */
static const struct half models[] = {
    {.hidden = 576, .query_heads = 9, .kv_heads = 3, .dimension = 64, .capacity = 527, .columns = 1536},
    {.hidden = 960, .query_heads = 15, .kv_heads = 5, .dimension = 64, .capacity = 300, .columns = 2560},
    {.hidden = 512, .query_heads = 8, .kv_heads = 2, .dimension = 128, .capacity = 200, .columns = 1024},
};

static void models_run(rondo_backend backend, bool attention) {
  for (size_t type = 0; type < COUNT(types); type++)
    for (size_t r = 0; r < COUNT(row_counts); r++) {
      const size_t number = type + 5 * r;
      struct half h = with_types(models[(type + r) % COUNT(models)], type, row_counts[r], attention);
      h.x_parts = number % 3 ? (number % 2 ? h.kv_heads : 8) : 0;
      h.out_parts = attention ? h.kv_heads : 8;
      h.base = 100000.0f, h.pairing = number % 2 ? RONDO_ROPE_HALVES : RONDO_ROPE_INTERLEAVED;
      h = at_positions(h, number);
      run(backend, &h);
    }
}
static void attention_blocks(rondo_backend backend) { models_run(backend, true); }
static void feed_forwards(rondo_backend backend) { models_run(backend, false); }
BOTH_BACKENDS(decoder, an_attention_block_of_models_matches_fp64, attention_blocks)
BOTH_BACKENDS(decoder, a_feed_forward_of_models_matches_fp64, feed_forwards)

/* One token of a small model: parts of any number, with and without a norm, weights of it and all types. */
static void one_token(rondo_backend backend) {
  for (size_t i = 0; i < 3 * COUNT(types); i++) {
    struct half h = with_types(models[0], i % COUNT(types), 1, false);
    h.x_parts = (int64_t[]){3, 0, 8, 1, 9}[i % 5], h.out_parts = i % 7 == 6 ? 9 : 8;
    h.no_norm_weights = i % 4 == 1, h.padded = i == 8;
    if (i % 4 == 3) h.epsilon = 0;
    run(backend, &h);
  }
}
BOTH_BACKENDS(decoder, a_feed_forward_of_one_token_matches_fp64, one_token)

/* Several tokens of it: columns of operand B that are full or not, and blocks with one token, two or none. */
static void several_tokens(rondo_backend backend) {
  static const int64_t rows[] = {2, 8, 9, 15, 16, 5};
  for (size_t i = 0; i < 2 * COUNT(rows); i++) {
    struct half h = with_types(models[0], (size_t[]){0, 4, 1}[i % 3], rows[i % COUNT(rows)], false);
    h.x_parts = (int64_t[]){3, 0, 8, 1}[i % 4], h.out_parts = 8;
    h.no_norm_weights = i % 4 == 1;
    if (i % 5 == 4) h.epsilon = 0;
    run(backend, &h);
  }
}
BOTH_BACKENDS(decoder, a_feed_forward_of_several_tokens_matches_fp64, several_tokens)

/* Several sequences: clusters with one to eight of them, contexts of no, one and many tiles for each warp. */
static void several_sequences(rondo_backend backend) {
  static const int64_t rows[] = {2, 4, 5, 7, 8, 13, 16, 3}, capacities[] = {40, 527, 1100};
  for (size_t i = 0; i < 2 * COUNT(rows); i++) {
    struct half h = models[0];
    h.capacity = capacities[i % COUNT(capacities)];
    h = with_types(h, i / 2 % 2 ? 4 : 0, rows[i % COUNT(rows)], true);
    h.x_parts = (int64_t[]){8, 0, 9, 1}[i % 4], h.out_parts = i == 3 ? 7 : 3;
    h.base = i == 6 ? 0 : 10000.0f, h.pairing = i % 2 ? RONDO_ROPE_INTERLEAVED : RONDO_ROPE_HALVES;
    h.no_norm_weights = i == 5;
    if (i == 9) h.epsilon = 0;
    h = at_positions(h, 7 * i);
    run(backend, &h);
  }
}
BOTH_BACKENDS(decoder, an_attention_block_of_several_sequences_matches_fp64, several_sequences)

/* One token of a model of a billion weights: several clusters share a KV head where there are parts for them. */
static void wide_attention(rondo_backend backend) {
  static const int64_t x_parts[] = {16, 0, 15, 8}, out_parts[] = {16, 8, 19, 16};
  for (size_t i = 0; i < 8; i++) {
    struct half h = {.hidden = 2048, .query_heads = 32, .kv_heads = 8, .dimension = 64, .capacity = 700};
    h.x_parts = x_parts[i % COUNT(x_parts)], h.out_parts = out_parts[i % COUNT(out_parts)], h.base = 500000.0f;
    h.pairing = i % 2 ? RONDO_ROPE_INTERLEAVED : RONDO_ROPE_HALVES;
    if (i > 5) h.query_heads = 16, h.kv_heads = 4;
    h = with_types(h, i / 2 % 2 ? 4 : 0, 1, true);
    h.no_norm_weights = i == 4;
    if (i == 5) h.epsilon = 0;
    h = at_positions(h, 5 * i);
    run(backend, &h);
  }
}
BOTH_BACKENDS(decoder, an_attention_block_of_one_token_and_a_large_model_matches_fp64, wide_attention)

/* Of a model of a billion weights, and with more KV heads than parts are asked for. */
static void large(rondo_backend backend) {
  static const int64_t rows[] = {1, 4, 16};
  static const size_t some[] = {0, 4, 3};
  for (int i = 0; i < 3; i++) {
    struct half h = {.hidden = 2048, .query_heads = 32, .kv_heads = 8, .dimension = 64, .capacity = 150};
    h.columns = 8192, h.x_parts = 8, h.out_parts = 8, h.base = 500000.0f, h.pairing = RONDO_ROPE_HALVES;
    h = at_positions(with_types(h, some[i], rows[i], true), (uint64_t)i);
    run(backend, &h);
    h = with_types((struct half){.hidden = 2048, .columns = 8192, .x_parts = 8, .out_parts = 8}, some[i], rows[i],
                   false);
    run(backend, &h);
  }
}
BOTH_BACKENDS(decoder, halves_of_a_large_model_match_fp64, large)

/* One token and NVFP4: clusters with unlike shares, half a chunk of columns left over, warps without work. */
static void streamed(rondo_backend backend) {
  static const struct half sizes[] = {
      {.hidden = 256, .columns = 960, .x_parts = 0, .out_parts = 1, .epsilon = 1e-5f},
      {.hidden = 256, .columns = 64, .x_parts = 16, .out_parts = 1, .epsilon = 1e-5f},
      {.hidden = 1280, .columns = 1152, .x_parts = 5, .out_parts = 4},
      {.hidden = 2048, .columns = 8192, .x_parts = 8, .out_parts = 15, .epsilon = 1e-5f},
  };
  for (size_t i = 0; i < 2 * COUNT(sizes); i++) {
    struct half h = sizes[i / 2];
    h.dtype = i % 2 ? RONDO_F16 : RONDO_BF16, h.weights = RONDO_NVFP4, h.rows = 1;
    run(backend, &h);
  }
}
BOTH_BACKENDS(decoder, a_feed_forward_of_one_token_and_nvfp4_matches_fp64, streamed)

/* Numbers of x of very different sizes, beside each other and in different places; huge ones, tiny ones, and zeros. */
static void far_apart(struct half *h) {
  for (int64_t c = 0; c < h->hidden; c++)
    oracle_write(h->dtype, h->x.data, c, grid_read(&h->x, 0, c) * ldexp(1, (int)(c / 128 * 7 + c) % 40 - 20));
}
static void huge(struct half *h) {
  for (int64_t c = 0; c < h->hidden; c++) oracle_write(h->dtype, h->x.data, c, ldexp(grid_read(&h->x, 0, c), 40));
}
static void tiny(struct half *h) {
  for (int64_t c = 0; c < h->hidden; c++) oracle_write(h->dtype, h->x.data, c, ldexp(grid_read(&h->x, 0, c), -60));
}
static void mostly_zero(struct half *h) {
  for (int64_t c = 0; c < h->hidden; c++)
    if (c % 48 > 1) oracle_write(h->dtype, h->x.data, c, 0);
}
static void zero(struct half *h) {
  for (int64_t c = 0; c < h->hidden; c++) oracle_write(h->dtype, h->x.data, c, 0);
}
static void streamed_values(rondo_backend backend) {
  static void (*const changes[])(struct half *) = {far_apart, huge, tiny, mostly_zero, zero};
  for (size_t i = 0; i < 2 * COUNT(changes); i++) {
    struct half h = {.hidden = 1280, .columns = 1152, .out_parts = 3, .rows = 1, .epsilon = i % 2 ? 1e-5f : 0};
    h.dtype = RONDO_BF16, h.weights = RONDO_NVFP4;
    run_changed(backend, &h, changes[i / 2]);
  }
}
BOTH_BACKENDS(decoder, a_feed_forward_of_one_token_and_nvfp4_takes_numbers_of_any_size, streamed_values)

/* Sizes that suit no fast kernel, rows with gaps behind them, and what is optional left out. */
static void odd(rondo_backend backend) {
  static const struct half shapes[] = {
      {.hidden = 48, .query_heads = 1, .kv_heads = 1, .dimension = 32, .capacity = 5, .columns = 16},
      {.hidden = 80, .query_heads = 6, .kv_heads = 2, .dimension = 32, .capacity = 33, .columns = 112, .padded = true},
      {.hidden = 576,
       .query_heads = 9,
       .kv_heads = 3,
       .dimension = 64,
       .capacity = 70,
       .columns = 1536,
       .padded = true},
      {.hidden = 144, .query_heads = 4, .kv_heads = 1, .dimension = 256, .capacity = 40, .columns = 304},
      {.hidden = 1040, .query_heads = 17, .kv_heads = 17, .dimension = 64, .capacity = 64, .columns = 1008},
  };
  for (size_t i = 0; i < 2 * COUNT(shapes) * COUNT(types); i++) {
    struct half h = with_types(shapes[i / 2 % COUNT(shapes)], i % COUNT(types), 1 + (int64_t)(i * 5 % 16), i / 2 % 2);
    h.x_parts = (int64_t)(i % 4), h.out_parts = 1 + (int64_t)(i % 3);
    h.no_norm_weights = i % 5 == 0, h.no_row_scales = i % 7 < 2;
    if (i % 5 == 1) h.epsilon = 0;
    h.frequencies = i % 3 == 0, h.one_position = i % 4 == 1;
    if (i % 3 == 1) h.base = 10000.0f;
    h = at_positions(h, i);
    run(backend, &h);
  }
}
BOTH_BACKENDS(decoder, other_sizes_gaps_and_what_is_left_out_match_fp64, odd)

/* Hidden sizes that are no multiple of anything, which 16-bit and e4m3 weights may have. */
static void ragged(rondo_backend backend) {
  static const int64_t hidden[] = {1, 7, 33, 130};
  for (size_t i = 0; i < COUNT(hidden); i++) {
    for (int attention = 0; attention < 2; attention++) {
      struct half h = {.hidden = hidden[i], .query_heads = 2, .kv_heads = 1, .dimension = 32, .capacity = 9};
      h.columns = 5 + (int64_t)i, h.x_parts = 2, h.out_parts = 3;
      h = at_positions(with_types(h, i, 1 + (int64_t)i * 5, attention), i);
      run(backend, &h);
    }
  }
}
BOTH_BACKENDS(decoder, ragged_sizes_match_fp64, ragged)

/* ---- Positions --------------------------------------------------------------------------------------------------- */

/* Below 0 and beyond the capacity nothing is written; each sequence has one of its own, or all have the same. */
static void positions(rondo_backend backend) {
  enum { CAPACITY = 130 };
  static const int32_t at[] = {-1,           0,         1,         2,   15,      16, 17, 63, 64, 127, 128,
                               CAPACITY - 1, INT32_MAX, INT32_MIN, 100, CAPACITY};
  for (size_t i = 0; i < 2 * COUNT(at); i++) {
    struct half h = models[i % 2 ? 0 : 2];
    const bool all = i >= COUNT(at);
    h = with_types(h, i % COUNT(types), all ? 1 + (int64_t)(i % 5) * 3 : (int64_t)row_counts[i % 8], true);
    h.capacity = CAPACITY, h.out_parts = h.kv_heads, h.base = 10000.0f, h.one_position = all;
    h.pairing = RONDO_ROPE_HALVES;
    for (int64_t b = 0; b < h.rows; b++) h.positions[b] = at[(i + (size_t)b) % COUNT(at)];
    run(backend, &h);
  }
}
BOTH_BACKENDS(decoder, positions_at_and_beyond_all_borders_match_fp64, positions)

/* No row of the cache at all: nothing is seen. */
static void no_capacity(rondo_backend backend) {
  struct half h = with_types(models[0], 0, 2, true);
  h.capacity = 0, h.out_parts = 3;
  run(backend, &h);
}
BOTH_BACKENDS(decoder, a_cache_without_rows_gives_zeros, no_capacity)

/* ---- A layer ----------------------------------------------------------------------------------------------------- */

/* Halves one behind the other, each of what the one before leaves, with K and V that are fetched while it still runs;
 * every replay gives the same bits. */
static void layers(rondo_backend backend) {
  enum { HALVES = 6 };
  for (size_t type = 0; type < COUNT(types); type++) {
    struct half halves[HALVES];
    struct trial trial;
    struct random random = {type + 1};
    trial_describe(&trial, backend);
    for (int i = 0; i < HALVES; i++) {
      struct half *h = &halves[i];
      *h = with_types(models[0], type, type % 2 ? 1 : 4 + 5 * (int64_t)type / 2, i % 2 == 0);
      h->out_parts = h->attention ? h->kv_heads : 8, h->base = 10000.0f, h->capacity = type ? 90 : 900;
      *h = at_positions(*h, type);
      half_add(trial.graph, h, i ? &halves[i - 1] : NULL);
    }
    trial_instantiate(&trial);
    for (int i = 0; i < HALVES; i++) half_fill(&halves[i], &random, i == 0);
    for (int i = 0; i < HALVES; i++) half_set(&halves[i], &trial, i == 0);
    trial_replay(&trial);
    for (int i = 0; i < HALVES; i++) half_get(&halves[i], &trial);
    for (int i = 0; i < HALVES; i++) half_check(&halves[i], "a half of a layer");
    for (int replay = 0; replay < 3; replay++)
      for (int i = 0; i < HALVES; i++) repeat(&halves[i], &trial, "a half of a layer");
    trial_end(&trial);
    for (int i = 0; i < HALVES; i++) half_free(&halves[i], i == 0);
  }
}
BOTH_BACKENDS(decoder, layers_hand_their_sums_on, layers)

/* ---- Numbers that are no numbers --------------------------------------------------------------------------------- */

/* NaN and infinity in one sequence's x leave the others as they are. */
static void keep_to_their_rows(rondo_backend backend) {
  for (int attention = 0; attention < 2; attention++) {
    struct half h = with_types(models[0], 0, 5, attention);
    struct trial trial;
    struct random random = {9};
    h.x_parts = 2, h.out_parts = 3, h.base = 10000.0f;
    h = at_positions(h, 3);
    trial_describe(&trial, backend);
    half_add(trial.graph, &h, NULL);
    trial_instantiate(&trial);
    half_fill(&h, &random, true);
    half_set(&h, &trial, true);
    trial_replay(&trial);
    half_get(&h, &trial);
    float *clean = malloc(grid_bytes(&h.out_sums));
    memcpy(clean, h.out_sums.data, grid_bytes(&h.out_sums));
    oracle_write(h.dtype, h.x.data, 1 * h.hidden + 77, NAN);
    oracle_write(RONDO_F32, h.parts.data, (h.rows + 3) * h.hidden + 5, INFINITY);
    half_set(&h, &trial, true);
    trial_replay(&trial);
    half_get(&h, &trial);
    for (int64_t r = 0; r < h.rows; r++)
      for (int64_t c = 0; c < h.hidden; c++) {
        float sum = 0, before = 0;
        for (int64_t p = 0; p < h.out_parts; p++) {
          sum += ((const float *)h.out_sums.data)[(p * h.rows + r) * h.hidden + c];
          before += clean[(p * h.rows + r) * h.hidden + c];
        }
        cr_assert(r == 1 || r == 3 ? isnan(sum) : sum == before, "row %d, column %d: %g, before %g", (int)r, (int)c,
                  (double)sum, (double)before);
      }
    free(clean);
    trial_end(&trial);
    half_free(&h, true);
  }
}
BOTH_BACKENDS(decoder, nan_and_infinity_stay_in_their_row, keep_to_their_rows)

/* A product of one token and NVFP4 is of integers, which know no such numbers. */
static void not_hidden(rondo_backend backend) {
  static const double values[] = {NAN, INFINITY, -INFINITY};
  for (size_t i = 0; i < 2 * COUNT(values); i++) {
    struct half h = {.hidden = 1280, .columns = 1152, .out_parts = 3, .rows = 1, .epsilon = i % 2 ? 1e-5f : 0};
    struct trial trial;
    struct random random = {i + 1};
    h.dtype = RONDO_BF16, h.weights = RONDO_NVFP4;
    trial_describe(&trial, backend);
    half_add(trial.graph, &h, NULL);
    trial_instantiate(&trial);
    half_fill(&h, &random, true);
    oracle_write(h.dtype, h.x.data, 77, values[i / 2]);
    half_set(&h, &trial, true);
    trial_replay(&trial);
    half_get(&h, &trial);
    for (int64_t c = 0; c < h.hidden; c++) {
      double sum = 0;
      for (int64_t p = 0; p < h.out_parts; p++) sum += grid_read(&h.out_sums, p, c);
      cr_assert(!isfinite(sum), "%g in x, column %d: %g", values[i / 2], (int)c, sum);
    }
    trial_end(&trial);
    half_free(&h, true);
  }
}
BOTH_BACKENDS(decoder, a_feed_forward_of_one_token_and_nvfp4_hides_no_nan, not_hidden)
