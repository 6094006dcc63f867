/* test_gemm_norms.c - RMS norms that begin in one product and end in the next: second results, their squares and
 * factors of rows against fp64, in each kernel that takes them; and what is refused. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../../kernels/gemm/gemm_choose.h"
#include "../oracles/gemm_oracle.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Around every edge of a tile and of a group, with rows that begin at multiples of 16 bytes and without. */
static void norms_agree_with_fp64_at_every_edge(rondo_backend backend) {
  static const int64_t edges[] = {1, 7, 17, 40, 63, 64, 65, 96, 127, 128, 130, 192, 200, 264, 320};
  static const rondo_dtype outs[] = {RONDO_F32, RONDO_BF16, RONDO_F16, RONDO_F32};
  struct gemm_problem_case problems[4 * COUNT(edges)];
  for (size_t i = 0; i < COUNT(problems); i++) {
    const size_t e = i / 4;
    const int64_t edge = edges[e], other = edges[(4 * e + 3) % COUNT(edges)];
    problems[i] = (struct gemm_problem_case){.dtype = e % 2 ? RONDO_BF16 : RONDO_F16,
                                             .out_dtype = outs[i % 4],
                                             .batch = e % 5 == 4 ? 3 : 0,
                                             .rows = i % 4 == 3 ? other : edge,
                                             .columns = i % 4 == 3 ? edge : other,
                                             .k = i % 4 == 2 ? edge : 8 * edges[(7 * e + 2) % COUNT(edges)],
                                             .scale = i % 3 ? 0.125f : 0,
                                             .bias_dtype = i % 4 == 1 ? RONDO_F32 : 0,
                                             .in_place = i % 4 == 0 || i % 4 == 3,
                                             .normed = i % 5 != 4,
                                             .epsilon = i % 3 == 2 ? 0 : 0.01f};
  }
  gemm_problems_check(backend, problems, COUNT(problems));
}
BOTH_BACKENDS(gemm_norms, norms_agree_with_fp64_at_every_edge, norms_agree_with_fp64_at_every_edge)

/* Sizes for each kernel, and what they are divided by on the host. */
static struct gemm_problem_case case_of(size_t i, rondo_backend backend) {
  const bool packed = i >= gemm_size_count;
  const struct gemm_size *size = packed ? &gemm_packed_sizes[i - gemm_size_count] : &gemm_sizes[i];
  const int64_t less = backend == RONDO_BACKEND_HOST ? 8 : 1;
  return (struct gemm_problem_case){.dtype = i % 2 ? RONDO_F16 : RONDO_BF16,
                                    .out_dtype = RONDO_F32,
                                    .packed = packed,
                                    .rows = gemm_fewer(backend, size->rows),
                                    .columns = size->columns / less,
                                    .k = size->k,
                                    .scale = 0.125f};
}

/* The residual stream in each kernel: whole, and ragged with factors. */
static void the_stream_agrees_with_fp64_in_every_kernel(rondo_backend backend) {
  skip_under_sanitizers();
  struct gemm_problem_case problems[2];
  for (size_t i = 0; i < gemm_size_count + gemm_packed_size_count; i++) {
    problems[0] = problems[1] = case_of(i, backend);
    problems[0].in_place = problems[0].normed = problems[1].normed = true;
    problems[1].rows -= 3, problems[1].columns -= 24, problems[1].epsilon = 0.5f;
    problems[1].residual_dtype = RONDO_F32, problems[1].batch = i % 3 == 2 ? 2 : 0;
    gemm_problems_check(backend, problems, COUNT(problems));
  }
}
BOTH_BACKENDS(gemm_norms, the_stream_agrees_with_fp64_in_every_kernel, the_stream_agrees_with_fp64_in_every_kernel)

/* Factors of rows with plain results, with gates, and with the kernels of every type. */
static void factors_agree_with_fp64_in_every_kernel(rondo_backend backend) {
  skip_under_sanitizers();
  struct gemm_problem_case problems[3];
  for (size_t i = 0; i < gemm_size_count + gemm_packed_size_count; i++) {
    for (size_t n = 0; n < COUNT(problems); n++) {
      problems[n] = case_of(i, backend);
      problems[n].rows -= (int64_t)n, problems[n].columns -= 16 * (int64_t)n, problems[n].epsilon = 0.5f;
      if (n < 2) problems[n].out_dtype = problems[n].dtype;
    }
    problems[1].silu_mul = true, problems[2].bias_dtype = RONDO_F32;
    gemm_problems_check(backend, problems, COUNT(problems));
  }
}
BOTH_BACKENDS(gemm_norms, factors_agree_with_fp64_in_every_kernel, factors_agree_with_fp64_in_every_kernel)

/* Sizes for which a block has several tiles: stages, buffers and factors are used again and again. */
static void norms_agree_with_fp64_tile_after_tile(rondo_backend backend) {
  static const int64_t sizes[][3] = {{2944, 512, 256}, {3840, 1088, 384},  {3200, 704, 256},  {3712, 1472, 256},
                                     {3456, 576, 256}, {1664, 4800, 1024}, {4096, 4096, 512}, {2560, 2496, 256},
                                     {4096, 1024, 64}, {200, 16448, 128},  {128, 9000, 64},   {8192, 576, 576},
                                     {31, 49160, 576}};
  struct gemm_problem_case problems[3 * COUNT(sizes)];
  for (size_t i = 0; i < COUNT(problems); i++) {
    const int64_t *size = sizes[i / 3], less = backend == RONDO_BACKEND_HOST ? 16 : 1;
    const rondo_dtype one = i / 3 % 2 ? RONDO_F16 : RONDO_BF16;
    problems[i] = (struct gemm_problem_case){.dtype = one,
                                             .out_dtype = i % 3 == 1 ? one : RONDO_F32,
                                             .packed = i % 3 == 2,
                                             .rows = (size[0] - (int64_t)i % 8) / less,
                                             .columns = size[1] / less / 8 * 8,
                                             .k = size[2],
                                             .scale = 0.125f,
                                             .in_place = i % 3 != 1,
                                             .silu_mul = i % 6 == 1,
                                             .normed = i % 3 != 1,
                                             .epsilon = i % 3 == 0 ? 0 : 0.25f};
  }
  gemm_problems_check(backend, problems, COUNT(problems));
}
BOTH_BACKENDS(gemm_norms, norms_agree_with_fp64_tile_after_tile, norms_agree_with_fp64_tile_after_tile)

/* What surrounds the operands is NaN and must not leak in; what surrounds the results must stay. */
static void norms_keep_to_their_views(rondo_backend backend) {
  struct gemm_problem_case problems[24];
  static const int64_t sizes[][3] = {{33, 64, 24},    {64, 200, 64}, {129, 136, 61},
                                     {257, 320, 136}, {200, 72, 8},  {3, 40, 16}};
  for (size_t i = 0; i < COUNT(problems); i++) {
    const int64_t *size = sizes[i % 6];
    problems[i] = (struct gemm_problem_case){.dtype = i % 2 ? RONDO_F16 : RONDO_BF16,
                                             .out_dtype = RONDO_F32,
                                             .batch = (int64_t)(i % 3),
                                             .rows = size[0],
                                             .columns = size[1],
                                             .k = size[2],
                                             .in_place = true,
                                             .normed = true,
                                             .epsilon = i % 4 ? 1 : 0,
                                             .room = 1 + (int64_t)(i / 12),
                                             .unit = i / 6 % 2 ? 8 : 2};
  }
  gemm_problems_check(backend, problems, COUNT(problems));
}
BOTH_BACKENDS(gemm_norms, norms_keep_to_their_views, norms_keep_to_their_views)

/* NaN and infinities in one row, and an infinite sum of squares. */
static void a_row_of_norms_does_not_touch_the_others(rondo_backend backend) {
  for (size_t i = 0; i < gemm_size_count + gemm_packed_size_count; i++) {
    const bool packed = i >= gemm_size_count, is_host = backend == RONDO_BACKEND_HOST;
    const struct gemm_size *size = packed ? &gemm_packed_sizes[i - gemm_size_count] : &gemm_sizes[i];
    const struct gemm_problem_case of = {.dtype = RONDO_BF16,
                                         .out_dtype = RONDO_F32,
                                         .packed = packed,
                                         .rows = is_host ? 20 : size->rows,
                                         .columns = is_host ? 136 : size->columns,
                                         .k = size->k,
                                         .in_place = true,
                                         .normed = true,
                                         .epsilon = 1};
    struct frame normed[2], squares[2];
    for (int poisoned = 0; poisoned < 2; poisoned++) {
      struct gemm_trial t;
      struct trial trial;
      struct random random = {5};
      trial_describe(&trial, backend);
      gemm_trial_add(&t, &trial, &of, &random);
      trial_instantiate(&trial);
      for (int64_t k = 0; k < of.k && poisoned; k++)
        frame_write(&t.vectors, of.rows / 2 * of.k + k, k % 3 ? (double)NAN : (double)INFINITY);
      if (poisoned) frame_write(&t.vector_squares, of.rows / 2, (double)INFINITY);
      gemm_trial_set(&t, &trial);
      trial_replay(&trial);
      normed[poisoned] = frame_get(&trial, &t.normed, "normed");
      squares[poisoned] = frame_get(&trial, &t.squares, "squares");
      gemm_trial_end(&t);
      trial_end(&trial);
    }
    for (int64_t j = 0; j < of.rows * of.columns; j++) {
      const double before = frame_read(&normed[0], j), after = frame_read(&normed[1], j);
      cr_assert(j / of.columns == of.rows / 2 ? isnan(after) : after == before, "%s, normed %lld is %g after %g",
                size->choice, (long long)j, after, before);
    }
    for (int64_t j = 0; j < frame_count(&squares[0]); j++) {
      const double before = frame_read(&squares[0], j), after = frame_read(&squares[1], j);
      cr_assert(j % of.rows == of.rows / 2 ? isnan(after) : after == before, "%s, squares %lld is %g after %g",
                size->choice, (long long)j, after, before);
    }
    for (int n = 0; n < 2; n++) free(normed[n].bytes), free(squares[n].bytes);
  }
}
BOTH_BACKENDS(gemm_norms, a_row_of_norms_does_not_touch_the_others, a_row_of_norms_does_not_touch_the_others)

/* ---- Choices and refusals -----------------------------------------------------------------------------------------
 */

/* The sizes of the tests above reach each kernel that takes the residual stream. */
Test(gemm_norms, the_residual_stream_has_kernels) {
  size_t count;
  const struct gemm_choice *choices = gemm_choices(&count);
  bool is_chosen[64] = {0};
  cr_assert_leq(count, COUNT(is_chosen));
  for (size_t i = 0; i < gemm_size_count + gemm_packed_size_count; i++) {
    const bool packed = i >= gemm_size_count;
    const struct gemm_size *size = packed ? &gemm_packed_sizes[i - gemm_size_count] : &gemm_sizes[i];
    const struct gemm_problem problem = {.has_maps = true,
                                         .has_codes = packed,
                                         .one_type = true,
                                         .has_residual = true,
                                         .streamed = true,
                                         .has_norms = true,
                                         .batch = 1,
                                         .rows = size->rows,
                                         .columns = size->columns,
                                         .k = size->k,
                                         .multiprocessors = 132,
                                         .shared_bytes = 232448};
    struct gemm_plan plan;
    const struct gemm_choice *choice = gemm_choose(&problem, &plan);
    is_chosen[choice - choices] = true;
    cr_assert(choice->kernel->parts || (choice->kernel->blocks == 0 && gemm_tile_streams(choice->kernel->tile)), "%s",
              choice->name);
  }
  for (size_t i = 0; i < count; i++) {
    const struct gemm_kernel *kernel = choices[i].kernel;
    if (!kernel || kernel->blocks) continue;
    if (!kernel->parts && !gemm_tile_streams(kernel->tile)) continue;
    if (!kernel->parts && kernel->types != GEMM_ONE_TYPE && !kernel->tile.slots) continue;
    cr_expect(is_chosen[i], "%s", choices[i].name);
  }
}

static rondo_tensor tensor_of(rondo_graph *graph, rondo_dtype dtype, uint32_t rank, int64_t d0, int64_t d1) {
  rondo_tensor tensor;
  REQUIRE_OK(rondo_state(graph, "t", dtype, rank, (int64_t[]){d0, d1}, &tensor));
  return tensor;
}

Test(gemm_norms, norms_refuse_what_does_not_fit_together) {
  struct trial trial;
  trial_describe(&trial, RONDO_BACKEND_HOST);
  rondo_graph *g = trial.graph;
  const rondo_gemm_desc right = {.weights = tensor_of(g, RONDO_BF16, 2, 72, 136),
                                 .vectors = tensor_of(g, RONDO_BF16, 2, 40, 136),
                                 .out = tensor_of(g, RONDO_F32, 2, 40, 72),
                                 .norm = tensor_of(g, RONDO_BF16, 1, 72, 0),
                                 .normed = tensor_of(g, RONDO_BF16, 2, 40, 72),
                                 .squares = tensor_of(g, RONDO_F32, 2, 2, 40),
                                 .vector_squares = tensor_of(g, RONDO_F32, 2, 3, 40),
                                 .norm_epsilon = 1e-5f};
  const rondo_tensor none = {0};
  rondo_gemm_desc desc;
#define REFUSES(field, value, sentence)                                                                                \
  do {                                                                                                                 \
    desc = right;                                                                                                      \
    desc.field = value;                                                                                                \
    REQUIRE_ERROR(rondo_add_gemm(g, &desc), RONDO_INVALID_ARGUMENT, sentence);                                         \
  } while (0)
  REQUIRE_OK(rondo_add_gemm(g, &right));
  REFUSES(norm, none, "norm is absent, expected [72] bf16");
  REFUSES(normed, none, "normed is absent, expected [40, 72] bf16");
  REFUSES(squares, none, "squares is absent, expected [2, 40] f32");
  REFUSES(norm, tensor_of(g, RONDO_F16, 1, 72, 0), "norm is [72] f16, expected [72] bf16");
  REFUSES(normed, tensor_of(g, RONDO_F32, 2, 40, 72), "normed is [40, 72] f32, expected [40, 72] bf16");
  REFUSES(squares, tensor_of(g, RONDO_F32, 2, 40, 2), "squares is [40, 2] f32, expected [2, 40] f32");
  REFUSES(vector_squares, tensor_of(g, RONDO_F32, 2, 2, 40), "vector_squares is [2, 40] f32, expected [3, 40] f32");
  REFUSES(vector_squares, none, "norm_epsilon is 1e-05, expected 0 without vector_squares");
  REFUSES(norm_epsilon, -1, "norm_epsilon is -1, expected a finite number that is not negative");
  REFUSES(norm_epsilon, NAN, "norm_epsilon is nan, expected a finite number that is not negative");
  REFUSES(one_order, 1, "one_order is 1, expected 0 with normed");
  desc = right, desc.silu_mul = 1, desc.out = tensor_of(g, RONDO_F32, 2, 40, 36);
  desc.norm = tensor_of(g, RONDO_BF16, 1, 36, 0), desc.normed = tensor_of(g, RONDO_BF16, 2, 40, 36);
  desc.squares = tensor_of(g, RONDO_F32, 2, 1, 40);
  REQUIRE_ERROR(rondo_add_gemm(g, &desc), RONDO_INVALID_ARGUMENT, "silu_mul is 1, expected 0 with normed");
  trial_end(&trial);
}
