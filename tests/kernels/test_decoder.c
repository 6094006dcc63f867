/* test_decoder.c - layer halves against fp64: the sizes of models and others, every type of weights, any number of
 * rows and parts, and the same bits in every replay. Each kernel of the feed forward has a case here, and each case
 * takes the kernel that it is for. Attention alone: test_attention_block.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/decoder/feed_forward_known.h"
#include "../../kernels/decoder/feed_forward_stream.h"
#include "../../runtime/graph.h"
#include "../oracles/decoder_run.h"

static void feed_forwards(rondo_backend backend) {
  skip_under_sanitizers();
  models_run(backend, false);
}
BOTH_BACKENDS(decoder, a_feed_forward_of_models_matches_fp64, feed_forwards)

/* One token of a small model: parts of any number, with and without a norm, weights of it and all types. */
static void one_token(rondo_backend backend) {
  for (size_t i = 0; i < 3 * COUNT(types); i++) {
    struct half h = with_types(models[0], i % COUNT(types), 1, false);
    h.x_parts = (int64_t[]){3, 0, 8, 1, 9}[i % 5], h.out_parts = i % 7 == 6 ? 9 : 8;
    h = with_norm_weights(h, i % 4 != 1), h.padded = i == 8;
    if (i % 4 == 3) h = without_norm(h);
    half_run(backend, &h);
  }
}
BOTH_BACKENDS(decoder, a_feed_forward_of_one_token_matches_fp64, one_token)

/* Several tokens of it: columns of operand B that are full or not, and blocks with one token, two or none. */
static void several_tokens(rondo_backend backend) {
  static const int64_t rows[] = {2, 8, 9, 15, 16, 5};
  for (size_t i = 0; i < 2 * COUNT(rows); i++) {
    struct half h = with_types(models[0], (size_t[]){0, 4, 1}[i % 3], rows[i % COUNT(rows)], false);
    h.x_parts = (int64_t[]){3, 0, 8, 1}[i % 4], h.out_parts = 8;
    h = with_norm_weights(h, i % 4 != 1);
    if (i % 5 == 4) h = without_norm(h);
    half_run(backend, &h);
  }
}
BOTH_BACKENDS(decoder, a_feed_forward_of_several_tokens_matches_fp64, several_tokens)

/* Of a model of a billion weights, and with more KV heads than parts are asked for. */
static void large(rondo_backend backend) {
  skip_under_sanitizers();
  static const int64_t rows[] = {1, 4, 16};
  static const size_t some[] = {0, 4, 3};
  for (int i = 0; i < 3; i++) {
    struct half h = {.hidden = 2048, .query_heads = 32, .kv_heads = 8, .dimension = 64, .capacity = 150};
    h.columns = 8192, h.x_parts = 8, h.out_parts = 8, h.base = 500000.0f, h.pairing = RONDO_ROPE_HALVES;
    h = at_positions(with_types(h, some[i], rows[i], true), (uint64_t)i);
    half_run(backend, &h);
    h = with_types((struct half){.hidden = 2048, .columns = 8192, .x_parts = 8, .out_parts = 8}, some[i], rows[i],
                   false);
    half_run(backend, &h);
  }
}
BOTH_BACKENDS(decoder, halves_of_a_large_model_match_fp64, large)

/* A hidden size that warps cannot share evenly: Qwen2 0.5B's. */
static void uneven(rondo_backend backend) {
  static const int64_t rows[] = {2, 5, 3};
  for (size_t i = 0; i < COUNT(rows); i++) {
    struct half h =
        with_types((struct half){.hidden = 896, .columns = 4864}, i == 2 ? IN_NVFP4 : IN_BF16, rows[i], false);
    h.x_parts = 2, h.out_parts = 8;
    half_run(backend, &h);
  }
}
BOTH_BACKENDS(decoder, a_feed_forward_of_an_uneven_size_matches_fp64, uneven)

/* Warps that have several tiles have as many each, or some would do again what others do. */
static void require_whole_rounds(const struct feed_forward_product *product, const struct half *h, const char *which) {
  const uint32_t warps = FEED_FORWARD_THREADS / 32, at_once = warps / product->cuts;
  cr_assert(product->tiles <= at_once || warps % product->cuts == 0,
            "hidden %d, columns %d, %d rows, %s: %u cuts of %u tiles", (int)h->hidden, (int)h->columns, (int)h->rows,
            which, product->cuts, product->tiles);
}

static const struct chip h200 = {90, 132, 232448};

/* Of a feed forward with x in f32, without a norm's weights. */
static void feed_forward_launches(const struct half *h, struct op_launches *launches) {
  struct op_operand operands[OP_MAX_OPERANDS];
  struct trial trial;
  rondo_feed_forward_desc desc = {.norm_epsilon = h->epsilon};
  trial_describe(&trial, RONDO_BACKEND_HOST);
  const int64_t x[] = {h->rows, h->hidden}, gate_up[] = {2 * h->columns, h->hidden}, down[] = {h->hidden, h->columns},
                parts[] = {h->out_parts, h->rows, h->hidden};
  REQUIRE_OK(rondo_input(trial.graph, "x", h->stream, 2, x, &desc.x));
  REQUIRE_OK(rondo_constant(trial.graph, "gate_up", h->weights, 2, gate_up, &desc.gate_up));
  REQUIRE_OK(rondo_constant(trial.graph, "down", h->weights, 2, down, &desc.down));
  REQUIRE_OK(rondo_output(trial.graph, "out", h->stream, 2, x, &desc.out));
  REQUIRE_OK(rondo_output(trial.graph, "parts", RONDO_F32, 3, parts, &desc.out_parts));
  REQUIRE_OK(rondo_add_feed_forward(trial.graph, &desc));
  struct op_task task = graph_op_task(trial.graph, &trial.graph->tasks[0], operands);
  REQUIRE_OK(task.op->select(&(struct op_call){.task = &task, .data = op_nowhere}, &h200, launches));
  trial_end(&trial);
}

Test(decoder, no_two_warps_of_a_feed_forward_have_the_same_work) {
  for (int64_t hidden = 64; hidden <= 2048; hidden += 64)
    for (int64_t columns = 256; columns <= 8192; columns += 768) {
      const int64_t rows = 1 + (hidden / 64 + columns / 256) % 16;
      struct half h = with_types((struct half){.hidden = hidden, .columns = columns}, IN_BF16, rows, false);
      struct op_launches launches;
      struct feed_forward_parameters told;
      h.out_parts = 1 + columns / 256 % 8;
      feed_forward_launches(&h, &launches);
      if (launches.count != 1 || launches.items[0].parameter_bytes != sizeof told) continue;
      memcpy(&told, launches.items[0].parameters, sizeof told);
      require_whole_rounds(&told.gate_up, &h, "first"), require_whole_rounds(&told.down, &h, "second");
    }
}

/* Two of a launch's blocks on one multiprocessor would leave another one without. */
Test(decoder, blocks_of_a_wide_feed_forward_have_a_multiprocessor_each) {
  enum { OF_MULTIPROCESSOR = 228 << 10, RESERVED_OF_BLOCK = 1 << 10, WIDE = 15 };
  for (int64_t columns = 1024; columns <= 8192; columns += 512) {
    struct half h = with_types((struct half){.hidden = 2048, .columns = columns}, IN_BF16, 1, false);
    struct op_launches launches;
    h.out_parts = WIDE;
    feed_forward_launches(&h, &launches);
    cr_assert_eq(launches.count, 1);
    cr_assert_gt(2 * (launches.items[0].shared_bytes + RESERVED_OF_BLOCK), OF_MULTIPROCESSOR, "%d columns",
                 (int)columns);
  }
}

/* One token and NVFP4: clusters with unlike shares, half a chunk of columns left over, warps without work. */
static void streamed(rondo_backend backend) {
  static const struct half sizes[] = {
      {.hidden = 256, .columns = 960, .x_parts = 0, .out_parts = 1, .epsilon = 1e-5f},
      {.hidden = 256, .columns = 64, .x_parts = 16, .out_parts = 1, .epsilon = 1e-5f},
      {.hidden = 1280, .columns = 1152, .x_parts = 5, .out_parts = 4},
      {.hidden = 2048, .columns = 8192, .x_parts = 8, .out_parts = 15, .epsilon = 1e-5f},
      {.hidden = 512, .columns = 1024, .x_parts = 0, .out_parts = 1, .epsilon = 1e-5f}, /* 16 groups, all there are */
      {.hidden = 1792, .columns = 640, .x_parts = 3, .out_parts = 1, .epsilon = 1e-5f},
  };
  for (size_t i = 0; i < 2 * COUNT(sizes); i++) {
    struct half h = sizes[i / 2];
    /* The host has the same loops for all sizes: each size in one type, unless kernels are only noted. */
    if (backend == RONDO_BACKEND_HOST && !half_noted && (i + i / 2) % 2) continue;
    h.stream = RONDO_F32, h.dtype = i % 2 && h.epsilon > 0 ? RONDO_F16 : RONDO_BF16;
    h.weights = RONDO_NVFP4, h.rows = 1;
    half_run(backend, &h);
    h.last_part_is_late = true;
    half_run(backend, &h);
  }
}
BOTH_BACKENDS(decoder, a_feed_forward_of_one_token_and_nvfp4_matches_fp64, streamed)

static void streamed_values(rondo_backend backend) {
  for (size_t i = 0; i < 2 * COUNT(x_changes); i++) {
    struct half h = {.hidden = 1280, .columns = 1152, .out_parts = 3, .rows = 1, .epsilon = i % 2 ? 1e-5f : 0};
    h.stream = RONDO_F32, h.dtype = RONDO_BF16, h.weights = RONDO_NVFP4;
    half_run_changed(backend, &h, x_changes[i / 2]);
  }
}
BOTH_BACKENDS(decoder, a_feed_forward_of_one_token_and_nvfp4_takes_numbers_of_any_size, streamed_values)

/* Sizes that suit no fast kernel, rows with gaps after them, and what is optional left out. */
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
    h = with_norm_weights(h, i % 5 != 0), h.no_row_scales = i % 7 < 2;
    if (i % 5 == 1) h = without_norm(h);
    h.frequencies = i % 3 == 0, h.one_position = i % 4 == 1;
    if (i % 3 == 1) h.base = 10000.0f;
    h = at_positions(h, i);
    half_run(backend, &h);
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
      half_run(backend, &h);
    }
  }
}
BOTH_BACKENDS(decoder, ragged_sizes_match_fp64, ragged)

/* ---- A layer ----------------------------------------------------------------------------------------------------- */

/* Halves one after the other, each of what the one before leaves, with K and V that are fetched while it still runs;
 * every replay gives the same bits. */
static void layers(rondo_backend backend) {
  skip_under_sanitizers();
  enum { HALVES = 6 };
  static const int64_t rows[COUNT(types)] = {4, 1, 9, 1, 14, 1, 5};
  for (size_t type = 0; type < COUNT(types); type++) {
    struct half halves[HALVES];
    struct trial trial;
    struct random random = {type + 1};
    trial_describe(&trial, backend);
    for (int i = 0; i < HALVES; i++) {
      struct half *h = &halves[i];
      *h = with_types(models[0], type, rows[type], i % 2 == 0);
      h->out_parts = h->attention ? h->kv_heads : 8, h->base = 10000.0f, h->capacity = type ? 90 : 900;
      h->state_position = true;
      *h = at_positions(*h, type);
      half_add(trial.graph, h, i ? &halves[i - 1] : NULL);
      half_check_launches(trial.graph, (uint32_t)i, h, "a half of a layer");
    }
    trial_instantiate(&trial);
    for (int i = 0; i < HALVES; i++) half_fill(&halves[i], &random, i == 0);
    for (int i = 0; i < HALVES; i++) half_set(&halves[i], &trial, i == 0);
    trial_replay(&trial);
    for (int i = 0; i < HALVES; i++) half_get(&halves[i], &trial);
    for (int i = 0; i < HALVES; i++) half_check(&halves[i], "a half of a layer");
    for (int replay = 0; replay < 3; replay++)
      for (int i = 0; i < HALVES; i++) half_repeat(&halves[i], &trial, "a half of a layer");
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
    oracle_write(h.stream, h.x.data, 1 * h.hidden + 77, NAN);
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

static void not_hidden(rondo_backend backend) {
  for (size_t i = 0; i < 2; i++) {
    struct half h = {.hidden = 1280, .columns = 1152, .out_parts = 3, .rows = 1, .epsilon = i ? 1e-5f : 0};
    h.stream = RONDO_F32, h.dtype = RONDO_BF16, h.weights = RONDO_NVFP4;
    half_run_not_finite(backend, &h);
  }
}
BOTH_BACKENDS(decoder, a_feed_forward_of_one_token_and_nvfp4_hides_no_nan, not_hidden)

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

/* Without a GPU too: every case above says which kernel it takes, and each kernel has one. */
Test(decoder, each_kernel_of_the_feed_forward_has_a_case_here) {
  static struct half_noted noted;
  half_noted = &noted;
  feed_forwards(RONDO_BACKEND_HOST), one_token(RONDO_BACKEND_HOST), several_tokens(RONDO_BACKEND_HOST);
  uneven(RONDO_BACKEND_HOST), streamed(RONDO_BACKEND_HOST);
  FEED_FORWARD_KERNELS(REQUIRE_HALF_FOR)
  FEED_FORWARD_ONE_TOKEN_KERNELS(REQUIRE_HALF_FOR)
  FEED_FORWARD_SEVERAL_TOKENS_KERNELS(REQUIRE_HALF_FOR)
  FEED_FORWARD_STREAM_KERNELS(REQUIRE_HALF_FOR)
}
