/* test_gemm.c - rondo_add_gemm against fp64, on the host and on the GPU: edges of tiles, types, batches, views, bias
 * and residual. */
#include <criterion/criterion.h>

#include "../oracles/gemm_oracle.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Around every edge of a tile and of a stage, with rows that begin at multiples of 16 bytes and without. */
static void gemm_agrees_with_fp64_at_every_edge(rondo_backend backend) {
  static const int64_t edges[] = {1, 7, 16, 17, 63, 64, 65, 96, 127, 128, 130, 192, 200, 257, 320};
  static const rondo_dtype outs[] = {RONDO_BF16, RONDO_F16, RONDO_F32};
  struct gemm_problem_case problems[3 * COUNT(edges)];
  size_t count = 0;
  for (size_t i = 0; i < COUNT(edges); i++) {
    const int64_t edge = edges[i], other = edges[(4 * i + 3) % COUNT(edges)], third = edges[(7 * i + 2) % COUNT(edges)];
    const rondo_dtype dtype = i % 2 ? RONDO_BF16 : RONDO_F16;
    problems[count++] = (struct gemm_problem_case){
        .dtype = dtype, .out_dtype = outs[i % 3], .rows = edge, .columns = other, .k = 8 * third};
    problems[count++] = (struct gemm_problem_case){.dtype = dtype,
                                                   .out_dtype = outs[(i + 1) % 3],
                                                   .rows = third,
                                                   .columns = 2 * edge,
                                                   .k = 8 * other,
                                                   .scale = 0.5f,
                                                   .one_order = other < 64};
    problems[count++] = (struct gemm_problem_case){
        .dtype = dtype, .out_dtype = outs[(i + 2) % 3], .rows = other, .columns = third, .k = edge, .scale = -3};
  }
  gemm_problems_check(backend, problems, count);
}
BOTH_BACKENDS(gemm, gemm_agrees_with_fp64_at_every_edge, gemm_agrees_with_fp64_at_every_edge)

/* Each kernel of sm_90a, with tiles that are whole and with ragged ones. The host needs fewer numbers. */
static void gemm_agrees_with_fp64_in_every_kernel(rondo_backend backend) {
  skip_under_sanitizers();
  static const rondo_dtype outs[] = {RONDO_BF16, RONDO_F32, RONDO_F16};
  struct gemm_problem_case problems[4];
  for (size_t i = 0; i < gemm_size_count; i++) {
    const struct gemm_size *size = &gemm_sizes[i];
    const int64_t less = backend == RONDO_BACKEND_HOST ? 8 : 1, rows = gemm_fewer(backend, size->rows);
    const rondo_dtype one = i % 2 ? RONDO_F16 : RONDO_BF16;
    problems[2] = (struct gemm_problem_case){
        .dtype = one, .out_dtype = one, .rows = rows, .columns = size->columns / less, .k = size->k};
    problems[3] = problems[2];
    problems[3].rows -= 3, problems[3].columns -= 8, problems[3].scale = 0.25f, problems[3].residual_dtype = one;
    problems[0] = (struct gemm_problem_case){
        .dtype = one, .out_dtype = outs[i % 3], .rows = rows, .columns = size->columns / less, .k = size->k};
    problems[1] = (struct gemm_problem_case){.dtype = i % 2 ? RONDO_BF16 : RONDO_F16,
                                             .out_dtype = outs[(i + 2) % 3],
                                             .rows = rows - 3,
                                             .columns = size->columns / less - 8,
                                             .k = size->k - 8,
                                             .scale = 0.25f,
                                             .bias_dtype = outs[i % 3],
                                             .residual_dtype = outs[(i + 1) % 3]};
    gemm_problems_check(backend, problems, COUNT(problems));
  }
}
BOTH_BACKENDS(gemm, gemm_agrees_with_fp64_in_every_kernel, gemm_agrees_with_fp64_in_every_kernel)

static void gemm_takes_bias_and_residual_of_every_type(rondo_backend backend) {
  static const rondo_dtype types[] = {RONDO_F32, RONDO_F16, RONDO_BF16};
  static const int64_t sizes[][3] = {{60, 128, 72}, {200, 136, 136}, {300, 1000, 80}, {5, 64, 32}, {70, 31, 40}};
  struct gemm_problem_case problems[COUNT(types) * COUNT(types) * COUNT(sizes)];
  for (size_t i = 0; i < COUNT(problems); i++) {
    const int64_t *size = sizes[i / 9];
    problems[i] = (struct gemm_problem_case){.dtype = i % 2 ? RONDO_F16 : RONDO_BF16,
                                             .out_dtype = types[(i + i / 9) % 3],
                                             .batch = i % 4 == 3 ? 2 : 0,
                                             .rows = size[0],
                                             .columns = size[1],
                                             .k = size[2],
                                             .scale = i % 5 ? 0.5f : 0,
                                             .bias_dtype = types[i % 3],
                                             .residual_dtype = types[i / 3 % 3],
                                             .bias_for_all = i % 8 == 3};
  }
  gemm_problems_check(backend, problems, COUNT(problems));
}
BOTH_BACKENDS(gemm, gemm_takes_bias_and_residual_of_every_type, gemm_takes_bias_and_residual_of_every_type)

/* silu(gate) * up in each kernel, whole and ragged, in every type of out, with bias and residual and without. */
static void gemm_gates(rondo_backend backend) {
  static const rondo_dtype types[] = {RONDO_BF16, RONDO_F32, RONDO_F16};
  struct gemm_problem_case problems[4];
  for (size_t i = 0; i < gemm_size_count; i++) {
    const struct gemm_size *size = &gemm_sizes[i];
    const int64_t less = backend == RONDO_BACKEND_HOST ? 8 : 1, rows = gemm_fewer(backend, size->rows);
    const struct gemm_problem_case whole = {.dtype = i % 2 ? RONDO_F16 : RONDO_BF16,
                                            .out_dtype = i % 2 ? RONDO_F16 : RONDO_BF16,
                                            .rows = rows,
                                            .columns = size->columns / less,
                                            .k = size->k,
                                            .scale = 0.125f,
                                            .silu_mul = true};
    problems[0] = problems[1] = problems[2] = problems[3] = whole;
    problems[3].rows -= 5, problems[3].columns -= 16;
    problems[1].rows -= 3, problems[1].columns -= 6, problems[1].bias_dtype = types[i % 3];
    problems[1].out_dtype = types[(i + 1) % 3], problems[1].residual_dtype = types[(i + 2) % 3];
    problems[2].rows -= 1, problems[2].k -= 3, problems[2].columns -= 16, problems[2].in_place = i % 2;
    gemm_problems_check(backend, problems, COUNT(problems));
  }
}
BOTH_BACKENDS(gemm, gemm_gates, gemm_gates)

/* Sizes for which tiles of 96 columns would be chosen, whose boxes overlap: the residual must be added once. */
static void gemm_gates_in_place(rondo_backend backend) {
  const int64_t less = backend == RONDO_BACKEND_HOST ? 8 : 1;
  const struct gemm_problem_case problem = {.dtype = RONDO_BF16,
                                            .out_dtype = RONDO_BF16,
                                            .rows = 256,
                                            .columns = 3072 / less,
                                            .k = 576,
                                            .scale = 0.125f,
                                            .silu_mul = true,
                                            .in_place = true};
  struct gemm_problem_case problems[2] = {problem, problem};
  problems[1].rows = 192, problems[1].columns = 4352 / less, problems[1].k = 2048;
  gemm_problems_check(backend, problems, COUNT(problems));
}
BOTH_BACKENDS(gemm, gemm_gates_in_place, gemm_gates_in_place)

static void gemm_adds_to_out_in_place(rondo_backend backend) {
  struct gemm_problem_case problems[4 * 12];
  size_t count = 0;
  for (size_t i = 0; i < gemm_size_count && i < 12; i++)
    for (int64_t ragged = 0; ragged < 3; ragged++)
      problems[count++] = (struct gemm_problem_case){
          .dtype = RONDO_BF16,
          .out_dtype = ragged == 1 ? RONDO_F16 : RONDO_BF16,
          .rows = backend == RONDO_BACKEND_HOST ? 20 : gemm_sizes[i].rows,
          .columns = gemm_sizes[i].columns / (backend == RONDO_BACKEND_HOST ? 8 : 1) - 24 * ragged,
          .k = gemm_sizes[i].k,
          .bias_dtype = ragged == 1 ? RONDO_F32 : 0,
          .in_place = true};
  for (int64_t rows = 30; rows < 300; rows += 90)
    problems[count++] = (struct gemm_problem_case){
        .dtype = RONDO_F16, .out_dtype = RONDO_F32, .rows = rows, .columns = 130, .k = 64, .in_place = true};
  gemm_problems_check(backend, problems, count);
}
BOTH_BACKENDS(gemm, gemm_adds_to_out_in_place, gemm_adds_to_out_in_place)

/* Sizes for which a block has several tiles, in each kernel that takes a residual: the residual's boxes share the
 * stages with the next tile. Then the same with silu_mul, whose results leave while the next tile is multiplied. */
static void gemm_finishes_tile_after_tile(rondo_backend backend) {
  static const int64_t sizes[][3] = {{2944, 512, 256},  {3840, 1088, 384}, {3200, 704, 256},
                                     {3712, 1472, 256}, {3456, 576, 256},  {1664, 4800, 1024},
                                     {4096, 4096, 512}, {2560, 2496, 256}, {4096, 1024, 64}};
  struct gemm_problem_case problems[2 * COUNT(sizes)];
  for (size_t i = 0; i < COUNT(problems); i++) {
    const int64_t *size = sizes[i / 2], less = backend == RONDO_BACKEND_HOST ? 16 : 1;
    problems[i] = (struct gemm_problem_case){.dtype = i / 2 % 2 ? RONDO_F16 : RONDO_BF16,
                                             .out_dtype = i / 2 % 2 ? RONDO_F16 : RONDO_BF16,
                                             .rows = size[0] / less - (int64_t)i,
                                             .columns = size[1] / less - (i % 2 ? 16 : 0),
                                             .k = size[2],
                                             .scale = 0.125f,
                                             .residual_dtype = i % 2       ? 0
                                                               : i / 2 % 2 ? RONDO_F16
                                                                           : RONDO_BF16,
                                             .silu_mul = i % 2};
  }
  gemm_problems_check(backend, problems, COUNT(problems));
}
BOTH_BACKENDS(gemm, gemm_finishes_tile_after_tile, gemm_finishes_tile_after_tile)

/* What surrounds the operands is NaN and must not leak in; what surrounds out must stay. */
static void gemm_keeps_to_its_views(rondo_backend backend) {
  struct gemm_problem_case problems[48];
  static const int64_t sizes[][3] = {{33, 64, 24},    {64, 200, 64}, {129, 136, 61},
                                     {257, 320, 130}, {200, 72, 8},  {3, 40, 16}};
  for (size_t i = 0; i < COUNT(problems); i++) {
    const int64_t *size = sizes[i % 6];
    problems[i] = (struct gemm_problem_case){.dtype = i % 2 ? RONDO_F16 : RONDO_BF16,
                                             .out_dtype = i / 6 % 2 ? RONDO_F32 : RONDO_BF16,
                                             .batch = (int64_t)(i % 3),
                                             .rows = size[0],
                                             .columns = size[1],
                                             .k = size[2],
                                             .residual_dtype = i / 12 % 2 ? RONDO_BF16 : 0,
                                             .bias_dtype = i / 24 % 2 ? RONDO_F16 : 0,
                                             .room = 1 + (int64_t)(i / 24),
                                             .unit = i / 12 % 2  ? 8
                                                     : i / 6 % 2 ? 1
                                                                 : 2};
  }
  gemm_problems_check(backend, problems, COUNT(problems));
}
BOTH_BACKENDS(gemm, gemm_keeps_to_its_views, gemm_keeps_to_its_views)

/* More tiles than blocks, of many matrices, so that blocks go from one matrix to the next. */
static void gemm_takes_batches(rondo_backend backend) {
  static const struct gemm_problem_case problems[] = {
      {.dtype = RONDO_BF16, .out_dtype = RONDO_BF16, .batch = 1, .rows = 100, .columns = 64, .k = 64},
      {.dtype = RONDO_F16, .out_dtype = RONDO_F16, .batch = 300, .rows = 20, .columns = 72, .k = 64},
      {.dtype = RONDO_BF16, .out_dtype = RONDO_BF16, .batch = 9, .rows = 130, .columns = 520, .k = 72},
      {.dtype = RONDO_BF16, .out_dtype = RONDO_F32, .batch = 5, .rows = 300, .columns = 264, .k = 200},
      {.dtype = RONDO_F16, .out_dtype = RONDO_BF16, .batch = 3, .rows = 65, .columns = 128, .k = 2048},
      {.dtype = RONDO_F16, .out_dtype = RONDO_F16, .batch = 70, .rows = 70, .columns = 33, .k = 5},
      {.dtype = RONDO_BF16, .out_dtype = RONDO_F16, .batch = 2, .rows = 16, .columns = 64, .k = 64},
      {.dtype = RONDO_BF16, .out_dtype = RONDO_BF16, .batch = 70, .rows = 28, .columns = 72, .k = 2048},
      {.dtype = RONDO_F16,
       .out_dtype = RONDO_F16,
       .batch = 40,
       .rows = 17,
       .columns = 136,
       .k = 2048,
       .residual_dtype = RONDO_F16},
  };
  gemm_problems_check(backend, problems, COUNT(problems));
}
BOTH_BACKENDS(gemm, gemm_takes_batches, gemm_takes_batches)

/* Long sums of numbers of one sign, for which the roundings of the tensor cores add up. */
static void gemm_keeps_its_bound_for_long_sums(rondo_backend backend) {
  static const struct gemm_problem_case problems[] = {
      {.dtype = RONDO_BF16, .out_dtype = RONDO_F32, .rows = 70, .columns = 136, .k = 16384, .positive = true},
      {.dtype = RONDO_F16, .out_dtype = RONDO_F32, .rows = 40, .columns = 64, .k = 16384, .positive = true},
      {.dtype = RONDO_F16, .out_dtype = RONDO_F32, .rows = 33, .columns = 65, .k = 9000, .positive = true},
      {.dtype = RONDO_BF16, .out_dtype = RONDO_F32, .rows = 70, .columns = 66, .k = 16384},
  };
  gemm_problems_check(backend, problems, COUNT(problems));
}
BOTH_BACKENDS(gemm, gemm_keeps_its_bound_for_long_sums, gemm_keeps_its_bound_for_long_sums)

/* An odd number of columns, or in NVFP4 a k that is no multiple of 64, leaves these to the portable kernels on every
 * chip. Blocks have parts of k, and a second kernel adds them up. */
static void gemm_adds_parts_of_k(rondo_backend backend) {
  static const rondo_dtype types[] = {RONDO_BF16, RONDO_F32, RONDO_F16};
  static const int64_t sizes[][3] = {{17, 61, 2064}, {70, 203, 2064}, {33, 9, 4112}};
  struct gemm_problem_case problems[12];
  for (size_t i = 0; i < COUNT(problems); i++) {
    const int64_t *size = sizes[i % 3];
    problems[i] = (struct gemm_problem_case){.dtype = i % 2 ? RONDO_F16 : RONDO_BF16,
                                             .out_dtype = types[(i + i / 3) % 3],
                                             .packed = i / 2 % 2,
                                             .batch = i % 5 ? 0 : 2,
                                             .rows = size[0],
                                             .columns = size[1] + (i >= 9 ? size[1] : 0),
                                             .k = size[2],
                                             .scale = i % 4 ? 0.25f : 0,
                                             .bias_dtype = i / 4 ? types[i % 3] : 0,
                                             .residual_dtype = i / 3 % 2 ? types[(i + 1) % 3] : 0,
                                             .silu_mul = i >= 9};
  }
  gemm_problems_check(backend, problems, COUNT(problems));
}
BOTH_BACKENDS(gemm, gemm_adds_parts_of_k, gemm_adds_parts_of_k)

static void gemm_takes_empty_and_thin_operands(rondo_backend backend) {
  static const struct gemm_problem_case problems[] = {
      {.dtype = RONDO_BF16, .out_dtype = RONDO_F32, .rows = 20, .columns = 24, .k = 0, .bias_dtype = RONDO_F32},
      {.dtype = RONDO_F16, .out_dtype = RONDO_F16, .rows = 70, .columns = 0, .k = 16},
      {.dtype = RONDO_F16, .out_dtype = RONDO_F16, .rows = 500, .columns = 1, .k = 1},
      {.dtype = RONDO_BF16, .out_dtype = RONDO_BF16, .rows = 500, .columns = 2, .k = 8},
  };
  gemm_problems_check(backend, problems, COUNT(problems));
}
BOTH_BACKENDS(gemm, gemm_takes_empty_and_thin_operands, gemm_takes_empty_and_thin_operands)
