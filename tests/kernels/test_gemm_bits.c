/* test_gemm_bits.c - bits of rondo_add_gemm: a row's do not depend on its place, on other rows or on the replay, and
 * with one_order not on the number of rows. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../oracles/gemm_oracle.h"

static const struct gemm_size more_sizes[] = {
    {20, 72, 64, ""}, {300, 33, 50, ""}, {5, 128, 256, ""}, {130, 301, 64, ""}};
enum { MORE_SIZES = sizeof more_sizes / sizeof *more_sizes };

static struct gemm_size size_of(size_t i) {
  return i < gemm_size_count ? gemm_sizes[i] : more_sizes[i - gemm_size_count];
}

static struct gemm_problem_case case_of(struct gemm_size size, rondo_backend backend, size_t i) {
  return (struct gemm_problem_case){.dtype = i % 2 ? RONDO_F16 : RONDO_BF16,
                                    .out_dtype = i % 3 == 0 ? RONDO_F32
                                                 : i % 2    ? RONDO_F16
                                                            : RONDO_BF16,
                                    .rows = backend == RONDO_BACKEND_HOST && size.rows > 50 ? 50 : size.rows,
                                    .columns = size.columns,
                                    .k = size.k};
}

static void end(struct gemm_trial *t, struct trial *trial) {
  trial_end(trial);
  gemm_trial_end(t);
}

static bool is_row_equal(const struct gemm_trial *t, const struct frame *a, int64_t row_a, const struct frame *b,
                         int64_t row_b) {
  const size_t bytes = (size_t)t->of.columns * rondo_dtype_bits(t->of.out_dtype) / 8;
  return memcmp(a->bytes + (size_t)row_a * bytes, b->bytes + (size_t)row_b * bytes, bytes) == 0;
}

/* All rows become one of them. */
static void a_row_has_the_same_bits_wherever_it_stands(rondo_backend backend) {
  skip_under_sanitizers();
  for (size_t i = 0; i < gemm_size_count + MORE_SIZES; i++) {
    const struct gemm_problem_case of = case_of(size_of(i), backend, i);
    struct gemm_trial t;
    struct trial trial;
    gemm_trial_begin(&t, &trial, backend, &of);
    const int64_t chosen = of.rows / 3;
    struct frame before = gemm_trial_replayed(&t, &trial);
    const size_t bytes = (size_t)of.k * 2;
    for (int64_t r = 0; r < of.rows; r++)
      memcpy(t.vectors.bytes + (size_t)r * bytes, t.vectors.bytes + (size_t)chosen * bytes, bytes * (r != chosen));
    struct frame after = gemm_trial_replayed(&t, &trial);
    for (int64_t r = 0; r < of.rows; r++)
      cr_assert(is_row_equal(&t, &before, chosen, &after, r), "%s, row %lld of %lld", size_of(i).choice, (long long)r,
                (long long)of.rows);
    free(before.bytes), free(after.bytes);
    end(&t, &trial);
  }
}
BOTH_BACKENDS(gemm, a_row_has_the_same_bits_wherever_it_stands, a_row_has_the_same_bits_wherever_it_stands)

/* NaN and infinities in one row. */
static void a_row_does_not_touch_the_others(rondo_backend backend) {
  skip_under_sanitizers();
  for (size_t i = 0; i < gemm_size_count + MORE_SIZES; i++) {
    const struct gemm_problem_case of = case_of(size_of(i), backend, i);
    struct gemm_trial t;
    struct trial trial;
    gemm_trial_begin(&t, &trial, backend, &of);
    struct frame before = gemm_trial_replayed(&t, &trial);
    const int64_t chosen = of.rows / 2;
    for (int64_t k = 0; k < of.k; k++)
      frame_write(&t.vectors, chosen * of.k + k, k % 3 ? (double)NAN : (double)INFINITY);
    struct frame after = gemm_trial_replayed(&t, &trial);
    for (int64_t r = 0; r < of.rows; r++)
      cr_assert(r == chosen || is_row_equal(&t, &before, r, &after, r), "%s, row %lld of %lld", size_of(i).choice,
                (long long)r, (long long)of.rows);
    for (int64_t c = 0; c < of.columns; c++) {
      const double got = frame_read(&after, chosen * of.columns + c);
      cr_assert(of.k > 1 ? isnan(got) : !isfinite(got), "column %lld is %g", (long long)c, got);
    }
    free(before.bytes), free(after.bytes);
    end(&t, &trial);
  }
}
BOTH_BACKENDS(gemm, a_row_does_not_touch_the_others, a_row_does_not_touch_the_others)

static void one_order_gives_a_row_the_same_bits_in_any_number(rondo_backend backend) {
  static const int64_t counts[] = {1000, 1, 2, 16, 17, 64, 65, 128, 200, 257, 512, 777};
  static const int64_t more_counts[] = {9000, 9, 18, 144, 153, 576, 585, 1152, 1800, 2313, 4608, 6993};
  static const int64_t shapes[][2] = {{2048, 2048}, {3072, 576}, {129, 48}, {520, 1032}, {488, 8}};
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
    const struct gemm_problem_case of = {.dtype = s % 2 ? RONDO_F16 : RONDO_BF16,
                                         .out_dtype = RONDO_F32,
                                         .columns = backend == RONDO_BACKEND_HOST ? shapes[s][0] / 8 : shapes[s][0],
                                         .k = shapes[s][1],
                                         .one_order = 1};
    gemm_rows_check(backend, of, shapes[s][1] == 8 ? more_counts : counts, sizeof counts / sizeof *counts);
  }
}
BOTH_BACKENDS(gemm, one_order_gives_a_row_the_same_bits_in_any_number,
              one_order_gives_a_row_the_same_bits_in_any_number)

/* All kernels in one graph, without edges between them, again and again; bits are compared after each 40. */
static void a_thousand_replays_give_the_same_bits(rondo_backend backend) {
  enum { MOST = 20 };
  struct gemm_trial trials[MOST];
  struct frame first[MOST];
  struct trial trial;
  struct random random = {9};
  const size_t count = gemm_size_count + MORE_SIZES;
  const int replays = backend == RONDO_BACKEND_HOST ? 20 : 1000;
  cr_assert_leq(count, (size_t)MOST);
  trial_describe(&trial, backend);
  for (size_t i = 0; i < count; i++) {
    struct gemm_problem_case of = case_of(size_of(i), backend, i);
    if (backend == RONDO_BACKEND_HOST) of.rows = (of.rows + 3) / 4, of.columns = (of.columns + 15) / 16;
    gemm_trial_add(&trials[i], &trial, &of, &random);
  }
  trial_instantiate(&trial);
  for (size_t i = 0; i < count; i++) gemm_trial_set(&trials[i], &trial);
  for (int replay = 0; replay < replays; replay++) {
    trial_replay(&trial);
    for (size_t i = replay % 40 ? count : 0; i < count; i++) {
      struct frame got = frame_get(&trial, &trials[i].out, "out");
      if (replay)
        cr_assert(memcmp(got.bytes, first[i].bytes, got.size) == 0, "%s, replay %d", size_of(i).choice, replay);
      if (replay)
        free(got.bytes);
      else
        first[i] = got;
    }
  }
  for (size_t i = 0; i < count; i++) free(first[i].bytes), gemm_trial_end(&trials[i]);
  trial_end(&trial);
}
BOTH_BACKENDS(gemm, a_thousand_replays_give_the_same_bits, a_thousand_replays_give_the_same_bits)
