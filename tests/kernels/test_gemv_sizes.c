/* test_gemv_sizes.c - products with vectors against fp64 at the edges of tiles: every remainder of rows and columns,
 * rows longer than a block covers at once, views of every alignment. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "../oracles/gemv_oracle.h"

/* Problems until there are enough for a graph. */
struct queue {
  rondo_backend backend;
  int count;
  struct problem problems[MOST_PROBLEMS];
};

static void queue_end(struct queue *queue) {
  if (queue->count) check_problems(queue->backend, queue->problems, queue->count);
  queue->count = 0;
}

static void queue_add(struct queue *queue, struct pair pair, struct problem problem) {
  problem.weights_dtype = pair.weights, problem.vectors_dtype = pair.vectors;
  problem.out_dtype = outs[queue->count % 3];
  queue->problems[queue->count++] = problem;
  if (queue->count == MOST_PROBLEMS) queue_end(queue);
}

/* ---- Columns ----------------------------------------------------------------------------------------------------- */

/* Around what a load, a warp or a block takes of k. Every other problem lies in NaN. */
static void check_block_tails(rondo_backend backend) {
  struct queue queue = {.backend = backend};
  static const int64_t multiples[] = {64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096};
  for (int pair = 0; pair < PAIRS; pair++)
    for (int c = 0; c < COUNTS && pairs[pair].weights == RONDO_NVFP4; c++) {
      for (int64_t k = 16; k <= 48; k += 16)
        queue_add(&queue, pairs[pair], (struct problem){.m = 11, .k = k, .count = counts[c], .padded = c % 2});
      for (int i = 0; i < 10; i++)
        for (int64_t k = multiples[i] - 16; k <= multiples[i] + 16; k += 16)
          queue_add(&queue, pairs[pair],
                    (struct problem){.m = 11, .k = k, .count = counts[c], .padded = (c + i) % 2, .margin = 32});
    }
  queue_end(&queue);
}
BOTH_BACKENDS(gemv_sizes, rows_of_any_number_of_blocks_match_fp64, check_block_tails)

static void check_element_tails(rondo_backend backend) {
  struct queue queue = {.backend = backend};
  static const int64_t multiples[] = {128, 256, 512, 1024, 2048, 4096}, around[] = {-8, -1, 0, 1, 8};
  for (int pair = 0; pair < PAIRS; pair++) {
    if (pairs[pair].weights == RONDO_NVFP4) continue;
    for (int64_t k = 1; k <= 70; k++)
      for (int64_t c = k % 3; c < COUNTS; c += 3)
        queue_add(&queue, pairs[pair], (struct problem){.m = 13, .k = k, .count = counts[c], .padded = c % 2});
    for (int i = 0; i < 6; i++)
      for (int a = 0; a < 5; a++)
        for (int c = (a + i) % 3; c < COUNTS; c += 3)
          queue_add(&queue, pairs[pair],
                    (struct problem){.m = 13,
                                     .k = multiples[i] + around[a],
                                     .count = counts[c],
                                     .row_scales = pairs[pair].weights == RONDO_E4M3 && c % 2,
                                     .padded = c % 2,
                                     .margin = 32});
  }
  queue_end(&queue);
}
BOTH_BACKENDS(gemv_sizes, rows_of_any_number_of_elements_match_fp64, check_element_tails)

static void check_long_rows(rondo_backend backend) {
  struct queue queue = {.backend = backend};
  static const int64_t few[] = {1, 4, 9};
  for (int pair = 0; pair < PAIRS; pair++)
    for (int c = 0; c < 3; c++) {
      queue_add(&queue, pairs[pair], (struct problem){.m = 9, .k = 20480, .count = few[c]});
      queue_add(&queue, pairs[pair], (struct problem){.m = 3, .k = 65536 + 32, .count = few[c] + c});
      queue_add(&queue, pairs[pair], (struct problem){.m = 2, .k = 16384 + 48, .count = few[c], .padded = true});
    }
  queue_end(&queue);
}
BOTH_BACKENDS(gemv_sizes, rows_longer_than_a_block_covers_match_fp64, check_long_rows)

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

enum { MOST_ROWS = 70 };

/* The last m rows of one matrix, for every m. */
static void check_every_number_of_rows(rondo_backend backend, struct pair pair, int64_t k, int64_t count) {
  struct problem all = {.weights_dtype = pair.weights,
                        .vectors_dtype = pair.vectors,
                        .out_dtype = RONDO_F32,
                        .m = MOST_ROWS,
                        .k = k,
                        .count = count};
  struct trial trial;
  rondo_tensor out[MOST_ROWS] = {{0}};
  problems_begin(&trial, backend, &all, 1);
  for (int64_t m = 1; m < MOST_ROWS; m++) {
    rondo_gemv_desc desc = {.vectors = all.vectors.view, .vector_scales = all.vector_scales.view};
    int64_t first[] = {MOST_ROWS - m, 0}, extent[] = {m, k}, scale_extent[] = {m, k / 16};
    REQUIRE_OK(rondo_view(trial.graph, all.weights.whole, first, extent, &desc.weights));
    if (all.weight_scales.data)
      REQUIRE_OK(rondo_view(trial.graph, all.weight_scales.whole, first, scale_extent, &desc.weight_scales));
    REQUIRE_OK(rondo_output(trial.graph, "out", RONDO_F32, 2, (int64_t[]){count, m}, &out[m]));
    desc.out = out[m];
    REQUIRE_OK(rondo_add_gemv(trial.graph, &desc));
  }
  problems_run(&trial, &all, 1);
  struct sums *sums = problem_sums(&all);
  for (int64_t m = 1; m < MOST_ROWS; m++) {
    struct problem part = all;
    part.m = m;
    part.out = operand_of(&part, RONDO_F32, count, m, true);
    part.out.data = malloc(bytes_of(&part.out));
    trial_get(&trial, out[m], part.out.data);
    for (int64_t r = 0; r < m; r++)
      for (int64_t v = 0; v < count; v++)
        check_number(&part, (int)m, 0, v, r, product_of(&part, 0, r, &sums[(MOST_ROWS - m + r) * count + v]),
                     element_of(&part.out, 0, v, r));
    free(part.out.data);
  }
  free(sums);
  problems_end(&trial, &all, 1);
}

static void check_row_counts(rondo_backend backend) {
  static const int64_t lengths[] = {64, 512, 1024, 2048, 4096};
  for (int pair = 0; pair < PAIRS; pair++)
    for (int i = 0; i < 5; i++) {
      check_every_number_of_rows(backend, pairs[pair], lengths[i], lengths[i] < 1024 ? 16 : 1);
      check_every_number_of_rows(backend, pairs[pair], lengths[i], counts[1 + (i + pair) % (i < 3 ? 7 : 4)]);
    }
}
BOTH_BACKENDS(gemv_sizes, one_to_seventy_rows_match_fp64, check_row_counts)

/* ---- Matrices ---------------------------------------------------------------------------------------------------- */

static void check_batches(rondo_backend backend) {
  skip_under_sanitizers();
  struct queue queue = {.backend = backend};
  for (int pair = 0; pair < PAIRS; pair++) {
    queue_add(&queue, pairs[pair], (struct problem){.batch = 1, .m = 40, .k = 512, .count = 3});
    for (int c = 0; c < COUNTS; c++)
      queue_add(&queue, pairs[pair], (struct problem){.batch = 3, .m = 21, .k = 272, .count = counts[c]});
    queue_add(&queue, pairs[pair],
              (struct problem){.batch = 64, .m = 9, .k = 256, .count = 2, .padded = true, .margin = 64});
    queue_add(&queue, pairs[pair], (struct problem){.batch = 64, .m = 17, .k = 64, .count = 16});
    queue_add(&queue, pairs[pair], (struct problem){.batch = 70001, .m = 1 + pair % 2, .k = 16, .count = 1 + pair / 4});
  }
  queue_end(&queue);
}
BOTH_BACKENDS(gemv_sizes, one_to_very_many_matrices_match_fp64, check_batches)

/* ---- Places ------------------------------------------------------------------------------------------------------ */

/* Views whose rows begin at multiples of 1, 2, 4, 8 and 16 bytes and end in NaN; of all operands, and of one alone. */
static void check_places(rondo_backend backend) {
  struct queue queue = {.backend = backend};
  static const int64_t margins[] = {1, 2, 4, 6, 8, 16, 32, 48, 96}, lengths[] = {64, 512, 2048, 1040};
  for (int pair = 0; pair < PAIRS; pair++)
    for (int i = 0; i < 9; i++)
      for (int alone = 0; alone < 4; alone++) {
        bool halves = pairs[pair].weights == RONDO_NVFP4; /* a view begins at a whole byte */
        queue_add(&queue, pairs[pair],
                  (struct problem){.batch = (i + alone) % 2 ? 2 : 0,
                                   .m = 33,
                                   .k = lengths[(i + alone) % 4],
                                   .count = counts[(i * 4 + alone) % COUNTS],
                                   .padded = true,
                                   .margin = halves && margins[i] == 1 ? 10 : margins[i],
                                   .dense_weights = alone == 2 || alone == 3,
                                   .dense_vectors = alone == 1 || alone == 3,
                                   .dense_out = alone == 1 || alone == 2});
      }
  queue_end(&queue);
}
BOTH_BACKENDS(gemv_sizes, views_of_any_alignment_read_and_write_only_themselves, check_places)
