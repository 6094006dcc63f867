/* test_gemv.c - products with vectors against sums in fp64 of values that the oracles decode.
 *
 * The gate: the result may be off by half a unit of the output type and by c 2^-24 sum |w x|, where c = 8 + 4
 * sqrt(k/16) stands for the rounding of as many fp32 additions, and of the factors at the end. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support.h"

/* ---- A matrix, its vectors and what their product should be -------------------------------------------------------
 */

enum { MOST_PROBLEMS = 64, PADDING = 32 };

/* An operand inside a larger tensor: `margin` elements before each row, PADDING behind it, a row around the matrix. */
struct operand {
  rondo_dtype dtype;
  uint32_t rank; /* 2 or 3; 1 or 2 for f32 scales */
  int64_t batch, rows, columns;
  int64_t margin;
  bool padded;
  rondo_tensor whole, view;
  void *data; /* of the whole tensor */
};

struct problem {
  rondo_dtype weights_dtype, vectors_dtype, out_dtype;
  int64_t batch; /* 0: no batch dimension */
  int64_t m, k, count;
  float scale;
  bool row_scales;
  bool padded;
  int64_t margin;
  double weight_size, vector_size; /* 0: 1 */
  /* Set by problem_add. */
  struct operand weights, weight_scales, vectors, vector_scales, out;
};

static int64_t batch_of(const struct problem *problem) { return problem->batch ? problem->batch : 1; }

static int64_t whole_rows(const struct operand *o) { return o->rows + (o->padded ? 2 : 0); }
static int64_t whole_columns(const struct operand *o) { return o->columns + (o->padded ? o->margin + PADDING : 0); }

static int64_t index_of(const struct operand *o, int64_t batch, int64_t row, int64_t column) {
  return (batch * whole_rows(o) + row + (o->padded ? 1 : 0)) * whole_columns(o) + column + (o->padded ? o->margin : 0);
}

static size_t bytes_of(const struct operand *o) {
  return (size_t)(o->batch * whole_rows(o) * whole_columns(o) * rondo_dtype_bits(o->dtype) / 8);
}

static double element_of(const struct operand *o, int64_t batch, int64_t row, int64_t column) {
  return oracle_read(o->dtype, o->data, index_of(o, batch, row, column));
}

/* The operand in a tensor of `kind`, filled with `poison`, and a view of it where there is padding. */
static void operand_add(rondo_graph *graph, struct operand *o, const char *name,
                        rondo_status (*kind)(rondo_graph *, const char *, rondo_dtype, uint32_t, const int64_t *,
                                             rondo_tensor *),
                        int poison) {
  int64_t shape[] = {o->batch, whole_rows(o), whole_columns(o)}, extent[] = {o->batch, o->rows, o->columns};
  int64_t offset[] = {0, o->padded ? 1 : 0, o->padded ? o->margin : 0};
  REQUIRE_OK(kind(graph, name, o->dtype, o->rank, shape + 3 - o->rank, &o->whole));
  o->view = o->whole;
  if (o->padded) REQUIRE_OK(rondo_view(graph, o->whole, offset + 3 - o->rank, extent + 3 - o->rank, &o->view));
  size_t bytes = bytes_of(o);
  o->data = malloc(bytes ? bytes : 1);
  memset(o->data, poison, bytes);
}

static struct operand operand_of(const struct problem *problem, rondo_dtype dtype, int64_t rows, int64_t columns) {
  return (struct operand){.dtype = dtype,
                          .rank = problem->batch ? 3 : 2,
                          .batch = batch_of(problem),
                          .rows = rows,
                          .columns = columns,
                          .padded = problem->padded,
                          .margin = problem->margin};
}

static void problem_add(struct trial *trial, struct problem *p) {
  rondo_graph *graph = trial->graph;
  p->weights = operand_of(p, p->weights_dtype, p->m, p->k);
  p->vectors = operand_of(p, p->vectors_dtype, p->count, p->k);
  p->out = operand_of(p, p->out_dtype, p->count, p->m);
  operand_add(graph, &p->weights, "weights", rondo_constant, 0xff);
  operand_add(graph, &p->vectors, "vectors", rondo_input, 0xff);
  operand_add(graph, &p->out, "out", rondo_state, 0);
  if (p->weights_dtype == RONDO_NVFP4) {
    p->weight_scales = operand_of(p, RONDO_E4M3, p->m, p->k / 16);
    operand_add(graph, &p->weight_scales, "weight scales", rondo_constant, 0xff);
  } else if (p->row_scales) { /* [batch, m]: the rows of the operand are the batch */
    p->weight_scales = (struct operand){
        .dtype = RONDO_F32, .rank = p->batch ? 2 : 1, .batch = 1, .rows = batch_of(p), .columns = p->m};
    operand_add(graph, &p->weight_scales, "weight scales", rondo_constant, 0xff);
  }
  if (p->vectors_dtype == RONDO_NVFP4) {
    p->vector_scales = operand_of(p, RONDO_E4M3, p->count, p->k / 16);
    operand_add(graph, &p->vector_scales, "vector scales", rondo_input, 0xff);
  }
  REQUIRE_OK(rondo_add_gemv(graph, &(rondo_gemv_desc){.weights = p->weights.view,
                                                      .weight_scales = p->weight_scales.view,
                                                      .vectors = p->vectors.view,
                                                      .vector_scales = p->vector_scales.view,
                                                      .out = p->out.view,
                                                      .scale = p->scale}));
}

/* Every code but NaN for e4m3 and nvfp4, else normal numbers of the given size. e4m3 elements are kept small, scales
 * are not. */
static void operand_fill(struct operand *o, struct random *random, double size, bool scales) {
  for (int64_t b = 0; b < o->batch; b++)
    for (int64_t r = 0; r < o->rows; r++)
      for (int64_t c = 0; c < o->columns; c++) {
        int64_t i = index_of(o, b, r, c);
        uint8_t bits = (uint8_t)random_bits(random), *bytes = o->data;
        if (o->dtype == RONDO_NVFP4)
          bytes[i / 2] = (uint8_t)(i % 2 ? (bytes[i / 2] & 15) | bits << 4 : (bytes[i / 2] & 0xf0) | (bits & 15));
        else if (o->dtype == RONDO_E4M3)
          bytes[i] = (bits & 0x7f) == 0x7f || (!scales && (bits & 0x7f) > 0x58) ? bits & 0x3f : bits;
        else
          oracle_write(o->dtype, o->data, i, (size == 0 ? 1 : size) * random_normal(random));
      }
}

static void problem_fill(struct problem *p, struct random *random) {
  operand_fill(&p->weights, random, p->weight_size, false);
  operand_fill(&p->vectors, random, p->vector_size, false);
  if (p->weight_scales.data) operand_fill(&p->weight_scales, random, 1, true);
  if (p->vector_scales.data) operand_fill(&p->vector_scales, random, 1, true);
}

static void problem_set(struct trial *trial, struct problem *p) {
  trial_set(trial, p->weights.whole, p->weights.data);
  trial_set(trial, p->vectors.whole, p->vectors.data);
  if (p->weight_scales.data) trial_set(trial, p->weight_scales.whole, p->weight_scales.data);
  if (p->vector_scales.data) trial_set(trial, p->vector_scales.whole, p->vector_scales.data);
}

/* Rows of an operand in fp64, with the scales of nvfp4. */
static void decode_row(const struct operand *o, const struct operand *scales, int64_t batch, int64_t row, double *out) {
  for (int64_t c = 0; c < o->columns; c++)
    out[c] = element_of(o, batch, row, c) * (o->dtype == RONDO_NVFP4 ? element_of(scales, batch, row, c / 16) : 1);
}

/* The largest finite number and the distance between neighbours around `value`. */
static double unit_of(rondo_dtype dtype, double value) {
  int exponent, mantissa_bits = dtype == RONDO_F16 ? 10 : dtype == RONDO_BF16 ? 7 : 23;
  int least = dtype == RONDO_F16 ? -14 : -126;
  frexp(value, &exponent);
  return ldexp(1, (exponent - 1 < least ? least : exponent - 1) - mantissa_bits);
}

static double largest_of(rondo_dtype dtype) {
  return dtype == RONDO_F16 ? 65504 : dtype == RONDO_BF16 ? 0x1.fep127 : 0x1.fffffep127;
}

static void check_result(const struct problem *p, int index, int64_t batch, int64_t vector, int64_t row, double sum,
                         double magnitude) {
  double factor = p->scale == 0 ? 1 : (double)p->scale;
  if (p->row_scales) factor *= oracle_read(RONDO_F32, p->weight_scales.data, batch * p->m + row);
  double expected = sum * factor, got = element_of(&p->out, batch, vector, row);
  double error = fabs(got - expected), bound = (8 + 4 * sqrt((double)p->k / 16)) * 0x1p-24 * magnitude * fabs(factor);
  if (isnan(expected)) {
    cr_assert(isnan(got), "problem %d: batch %d vector %d row %d: %g, expected NaN", index, (int)batch, (int)vector,
              (int)row, got);
    return;
  }
  double largest = largest_of(p->out_dtype), half_unit = unit_of(p->out_dtype, fabs(expected)) / 2 * (1 + 0x1p-20);
  if (fabs(expected) - bound >= largest + unit_of(p->out_dtype, largest) / 2) {
    cr_assert(isinf(got) && signbit(got) == signbit(expected), "problem %d: batch %d vector %d row %d: %g, for %g",
              index, (int)batch, (int)vector, (int)row, got, expected);
  } else if (!(fabs(expected) + bound >= largest && isinf(got) && signbit(got) == signbit(expected))) {
    cr_assert(error <= half_unit + bound,
              "problem %d: batch %d vector %d row %d: %.9g, expected %.9g, off by %.3g > %.3g", index, (int)batch,
              (int)vector, (int)row, got, expected, error, half_unit + bound);
  }
}

static void problem_check(struct trial *trial, struct problem *p, int index) {
  trial_get(trial, p->out.whole, p->out.data);
  size_t row_bytes = (size_t)(p->k ? p->k : 1) * sizeof(double);
  double *weights = malloc(row_bytes), *vectors = malloc((size_t)p->count * row_bytes);
  for (int64_t b = 0; b < batch_of(p); b++) {
    for (int64_t v = 0; v < p->count; v++) decode_row(&p->vectors, &p->vector_scales, b, v, vectors + v * p->k);
    for (int64_t r = 0; r < p->m; r++) {
      decode_row(&p->weights, &p->weight_scales, b, r, weights);
      for (int64_t v = 0; v < p->count; v++) {
        double sum = 0, magnitude = 0;
        for (int64_t i = 0; i < p->k; i++) {
          sum += weights[i] * vectors[v * p->k + i];
          magnitude += fabs(weights[i] * vectors[v * p->k + i]);
        }
        check_result(p, index, b, v, r, sum, magnitude);
      }
    }
  }
  free(weights);
  free(vectors);
}

/* A state is zero at first, and what lies around the view of the result must stay so. */
static void problem_check_around(const struct problem *p, int index) {
  const struct operand *o = &p->out;
  if (!o->padded) return;
  for (int64_t b = 0; b < o->batch; b++)
    for (int64_t r = -1; r <= o->rows; r++)
      for (int64_t c = -o->margin; c < o->columns + PADDING; c++)
        if (r < 0 || r == o->rows || c < 0 || c >= o->columns)
          cr_assert(element_of(o, b, r, c) == 0, "problem %d: wrote outside of out, row %d column %d", index, (int)r,
                    (int)c);
}

static void problem_end(struct problem *p) {
  free(p->weights.data);
  free(p->weight_scales.data);
  free(p->vectors.data);
  free(p->vector_scales.data);
  free(p->out.data);
}

/* Describes and fills. */
static void problems_begin(struct trial *trial, rondo_backend backend, struct problem *problems, int count) {
  struct random random = {.state = 3};
  trial_describe(trial, backend);
  for (int i = 0; i < count; i++) {
    problem_add(trial, &problems[i]);
    problem_fill(&problems[i], &random);
  }
}

/* Runs and checks. */
static void problems_run(struct trial *trial, struct problem *problems, int count) {
  trial_instantiate(trial);
  for (int i = 0; i < count; i++) problem_set(trial, &problems[i]);
  trial_replay(trial);
  for (int i = 0; i < count; i++) {
    problem_check(trial, &problems[i], i);
    problem_check_around(&problems[i], i);
  }
}

static void problems_end(struct trial *trial, struct problem *problems, int count) {
  for (int i = 0; i < count; i++) problem_end(&problems[i]);
  trial_end(trial);
}

static void check_problems(rondo_backend backend, struct problem *problems, int count) {
  struct trial trial;
  problems_begin(&trial, backend, problems, count);
  problems_run(&trial, problems, count);
  problems_end(&trial, problems, count);
}

/* Every pair of types, with the size by which their dimensions come. */
struct pair {
  rondo_dtype weights, vectors;
};
static const struct pair pairs[] = {
    {RONDO_F16, RONDO_F16},   {RONDO_BF16, RONDO_BF16},  {RONDO_E4M3, RONDO_F16},    {RONDO_E4M3, RONDO_BF16},
    {RONDO_NVFP4, RONDO_F16}, {RONDO_NVFP4, RONDO_BF16}, {RONDO_NVFP4, RONDO_NVFP4},
};
enum { PAIRS = sizeof pairs / sizeof pairs[0] };
static const rondo_dtype outs[] = {RONDO_F32, RONDO_F16, RONDO_BF16};

/* The same shapes for every pair of types; the type of the result goes round. k is a multiple of 16, and other shapes
 * get `odd_k` more where the type of the weights allows. */
static int for_every_pair(const struct problem *shapes, int shape_count, int64_t odd_k, struct problem *problems) {
  int count = 0;
  for (int i = 0; i < PAIRS; i++)
    for (int s = 0; s < shape_count; s++) {
      struct problem *p = &problems[count++];
      *p = shapes[s];
      p->weights_dtype = pairs[i].weights, p->vectors_dtype = pairs[i].vectors;
      p->out_dtype = outs[(i + s) % 3];
      if (p->weights_dtype != RONDO_NVFP4) p->k += odd_k;
      p->row_scales = p->weights_dtype == RONDO_E4M3 && s % 2;
    }
  return count;
}

/* ---- Shapes ------------------------------------------------------------------------------------------------------ */

static void check_pairs(rondo_backend backend) {
  static const struct problem shapes[] = {
      {.m = 1, .k = 32, .count = 1},
      {.m = 2, .k = 1024, .count = 3, .batch = 1},
      {.m = 7, .k = 2080, .count = 1, .scale = 0.125f},
      {.m = 3, .k = 1056, .count = 1},
      {.m = 130, .k = 256, .count = 5, .batch = 2, .scale = -3},
      {.m = 33, .k = 1088, .count = 16},
  };
  struct problem problems[MOST_PROBLEMS];
  check_problems(backend, problems, for_every_pair(shapes, 6, 0, problems));
}
Test(gemv, every_pair_of_types_matches_fp64_host) { check_pairs(RONDO_BACKEND_HOST); }
Test(gemv, every_pair_of_types_matches_fp64_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  check_pairs(RONDO_BACKEND_CUDA);
}

static void check_odd_sizes(rondo_backend backend) {
  static const struct problem shapes[] = {
      {.m = 1, .k = 16, .count = 2},
      {.m = 5, .k = 48, .count = 1, .batch = 3},
      {.m = 127, .k = 1008, .count = 4},
  };
  struct problem problems[MOST_PROBLEMS];
  int count = for_every_pair(shapes, 3, 3, problems);
  static const rondo_dtype dtypes[] = {RONDO_F16, RONDO_BF16, RONDO_E4M3};
  for (int64_t k = 1; k <= 9; k += 4)
    for (int i = 0; i < 3; i++)
      problems[count++] = (struct problem){.weights_dtype = dtypes[i],
                                           .vectors_dtype = dtypes[i] == RONDO_E4M3 ? RONDO_BF16 : dtypes[i],
                                           .out_dtype = RONDO_F32,
                                           .m = 4,
                                           .k = k,
                                           .count = 2};
  check_problems(backend, problems, count);
}
Test(gemv, k_that_no_vector_width_divides_matches_fp64_host) { check_odd_sizes(RONDO_BACKEND_HOST); }
Test(gemv, k_that_no_vector_width_divides_matches_fp64_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  check_odd_sizes(RONDO_BACKEND_CUDA);
}

static void check_split(rondo_backend backend) {
  static const struct problem shapes[] = {
      {.m = 3, .k = 16384, .count = 1},
      {.m = 33, .k = 4096, .count = 6, .batch = 2, .scale = 0.25f},
      {.m = 5, .k = 9248, .count = 2}, /* the last slice is shorter */
  };
  struct problem problems[MOST_PROBLEMS];
  int count = for_every_pair(shapes, 3, 0, problems);
  count += for_every_pair(&(struct problem){.m = 4, .k = 8208, .count = 2}, 1, 1, problems + count);
  problems[count++] = (struct problem){.weights_dtype = RONDO_NVFP4,
                                       .vectors_dtype = RONDO_NVFP4,
                                       .out_dtype = RONDO_F32,
                                       .m = 1,
                                       .k = 131072 + 32,
                                       .count = 1};
  check_problems(backend, problems, count);
}
Test(gemv, few_long_rows_cut_into_slices_match_fp64_host) { check_split(RONDO_BACKEND_HOST); }
Test(gemv, few_long_rows_cut_into_slices_match_fp64_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  check_split(RONDO_BACKEND_CUDA);
}

/* Margins of 32 elements keep 16-byte loads possible, of 2 they do not. The padding is NaN. */
static void check_views(rondo_backend backend) {
  static const struct problem shapes[] = {
      {.m = 9, .k = 96, .count = 3, .batch = 2, .padded = true, .margin = 32},
      {.m = 6, .k = 2048, .count = 1, .padded = true, .margin = 64},
      {.m = 9, .k = 96, .count = 3, .batch = 2, .padded = true, .margin = 2},
      {.m = 6, .k = 2048, .count = 1, .padded = true, .margin = 6},
  };
  struct problem problems[MOST_PROBLEMS];
  check_problems(backend, problems, for_every_pair(shapes, 4, 0, problems));
}
Test(gemv, views_with_padding_read_and_write_only_themselves_host) { check_views(RONDO_BACKEND_HOST); }
Test(gemv, views_with_padding_read_and_write_only_themselves_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  check_views(RONDO_BACKEND_CUDA);
}

static void check_counts(rondo_backend backend) {
  struct problem problems[MOST_PROBLEMS];
  int count = 0;
  for (int64_t vectors = 1; vectors <= 16; vectors++)
    for (int i = 0; i < 3; i++)
      problems[count++] = (struct problem){.weights_dtype = pairs[(size_t)i * 3].weights,
                                           .vectors_dtype = pairs[(size_t)i * 3].vectors,
                                           .out_dtype = outs[i],
                                           .m = 21,
                                           .k = 544,
                                           .count = vectors};
  check_problems(backend, problems, count);
}
Test(gemv, one_to_sixteen_vectors_match_fp64_host) { check_counts(RONDO_BACKEND_HOST); }
Test(gemv, one_to_sixteen_vectors_match_fp64_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  check_counts(RONDO_BACKEND_CUDA);
}

/* More matrices than one dimension of a grid holds. */
static void check_many_matrices(rondo_backend backend) {
  struct problem problems[] = {{.weights_dtype = RONDO_F16,
                                .vectors_dtype = RONDO_F16,
                                .out_dtype = RONDO_F32,
                                .batch = 70001,
                                .m = 1,
                                .k = 8,
                                .count = 1},
                               {.weights_dtype = RONDO_NVFP4,
                                .vectors_dtype = RONDO_NVFP4,
                                .out_dtype = RONDO_F16,
                                .batch = 66001,
                                .m = 3,
                                .k = 16,
                                .count = 1}};
  check_problems(backend, problems, 2);
}
Test(gemv, more_than_65535_matrices_match_fp64_host) { check_many_matrices(RONDO_BACKEND_HOST); }
Test(gemv, more_than_65535_matrices_match_fp64_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  check_many_matrices(RONDO_BACKEND_CUDA);
}

static void check_empty(rondo_backend backend) {
  struct trial trial;
  struct problem problems[MOST_PROBLEMS];
  static const struct problem shapes[] = {
      {.m = 0, .k = 32, .count = 2},
      {.m = 3, .k = 0, .count = 2, .batch = 2},
      {.m = 0, .k = 0, .count = 1},
  };
  int count = for_every_pair(shapes, 3, 0, problems);
  problems_begin(&trial, backend, problems, count);
  rondo_tensor weights, vectors, out; /* a batch of none */
  REQUIRE_OK(rondo_constant(trial.graph, "weights", RONDO_F16, 3, (int64_t[]){0, 4, 8}, &weights));
  REQUIRE_OK(rondo_input(trial.graph, "vectors", RONDO_F16, 3, (int64_t[]){0, 1, 8}, &vectors));
  REQUIRE_OK(rondo_output(trial.graph, "out", RONDO_F32, 3, (int64_t[]){0, 1, 4}, &out));
  REQUIRE_OK(rondo_add_gemv(trial.graph, &(rondo_gemv_desc){.weights = weights, .vectors = vectors, .out = out}));
  trial_instantiate(&trial);
  for (int i = 0; i < count; i++) {
    problem_set(&trial, &problems[i]);
    memset(problems[i].out.data, 0xff, bytes_of(&problems[i].out));
    trial_set(&trial, problems[i].out.whole, problems[i].out.data); /* NaN, unless zeros are written */
  }
  trial_replay(&trial);
  for (int i = 0; i < count; i++) problem_check(&trial, &problems[i], i);
  problems_end(&trial, problems, count);
}
Test(gemv, no_rows_is_no_work_and_no_columns_gives_zeros_host) { check_empty(RONDO_BACKEND_HOST); }
Test(gemv, no_rows_is_no_work_and_no_columns_gives_zeros_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  check_empty(RONDO_BACKEND_CUDA);
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

/* Row 256 s + c has scale s and one byte c, first in its block or last; the vector is 1 at even columns and 16 at odd
 * ones, so that every code shows. Nothing is rounded: results are exact. */
static void check_codes(rondo_backend backend, rondo_dtype vectors_dtype, int64_t k, int64_t count) {
  struct problem p = {.weights_dtype = RONDO_NVFP4,
                      .vectors_dtype = vectors_dtype,
                      .out_dtype = RONDO_F32,
                      .m = 65536,
                      .k = k,
                      .count = count};
  struct trial trial;
  problems_begin(&trial, backend, &p, 1);
  memset(p.weights.data, 0, bytes_of(&p.weights));
  memset(p.weight_scales.data, 0x38, bytes_of(&p.weight_scales));
  uint8_t *codes = p.weights.data, *scales = p.weight_scales.data;
  bool packed = vectors_dtype == RONDO_NVFP4;
  for (int64_t row = 0; row < p.m; row++) {
    int64_t block = row % (k / 16), byte = (row >> 4) % 8;
    codes[row * k / 2 + block * 8 + byte] = (uint8_t)(row & 255);
    scales[row * k / 16 + block] = (uint8_t)(row >> 8);
  }
  for (int64_t v = 0; v < count; v++)
    for (int64_t i = 0; i < k; i += 2) {
      if (packed) {
        ((uint8_t *)p.vectors.data)[(v * k + i) / 2] = 0x72; /* 1 and 6 */
      } else {
        oracle_write(vectors_dtype, p.vectors.data, v * k + i, 1);
        oracle_write(vectors_dtype, p.vectors.data, v * k + i + 1, 16);
      }
    }
  if (packed) memset(p.vector_scales.data, 0x40, bytes_of(&p.vector_scales)); /* 2 */
  trial_instantiate(&trial);
  problem_set(&trial, &p);
  trial_replay(&trial);
  const float *out = p.out.data;
  trial_get(&trial, p.out.whole, p.out.data);
  for (int64_t row = 0; row < p.m; row++) {
    double low = oracle_e2m1(row & 15), high = oracle_e2m1(row >> 4 & 15), scale = oracle_e4m3((uint8_t)(row >> 8));
    double expected = scale * (packed ? 2 * low + 12 * high : low + 16 * high);
    for (int64_t v = 0; v < count; v++) {
      double got = (double)out[v * p.m + row];
      cr_assert(got == expected || (isnan(got) && isnan(expected)), "codes %#x scale %#x: %g, expected %g",
                (unsigned)row & 255, (unsigned)row >> 8, got, expected);
    }
  }
  problems_end(&trial, &p, 1);
}

static void check_every_code(rondo_backend backend) {
  check_codes(backend, RONDO_F16, 32, 1);
  check_codes(backend, RONDO_BF16, 64, 2);
  check_codes(backend, RONDO_NVFP4, 32, 1);
  check_codes(backend, RONDO_NVFP4, 64, 3);
  check_codes(backend, RONDO_F16, 16, 1);
  check_codes(backend, RONDO_NVFP4, 48, 1);
}
Test(gemv, every_nvfp4_code_times_every_scale_is_exact_host) { check_every_code(RONDO_BACKEND_HOST); }
Test(gemv, every_nvfp4_code_times_every_scale_is_exact_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  check_every_code(RONDO_BACKEND_CUDA);
}

/* Every e4m3 weight, as an element on its own. */
static void check_e4m3_codes(rondo_backend backend, rondo_dtype vectors_dtype, int64_t k) {
  struct problem p = {.weights_dtype = RONDO_E4M3,
                      .vectors_dtype = vectors_dtype,
                      .out_dtype = RONDO_F32,
                      .m = 256,
                      .k = k,
                      .count = 1};
  struct trial trial;
  problems_begin(&trial, backend, &p, 1);
  memset(p.weights.data, 0, bytes_of(&p.weights));
  for (int64_t row = 0; row < p.m; row++) ((uint8_t *)p.weights.data)[row * k + row % k] = (uint8_t)row;
  for (int64_t i = 0; i < k; i++) oracle_write(vectors_dtype, p.vectors.data, i, 1 + (double)i);
  problems_run(&trial, &p, 1);
  const float *out = p.out.data;
  for (int64_t row = 0; row < p.m; row++) {
    double expected = oracle_e4m3((uint8_t)row) * (1 + (double)(row % k));
    cr_assert((double)out[row] == expected || (isnan(out[row]) && isnan(expected)), "code %#x", (unsigned)row);
  }
  problems_end(&trial, &p, 1);
}

static void check_every_e4m3_code(rondo_backend backend) {
  check_e4m3_codes(backend, RONDO_F16, 16);
  check_e4m3_codes(backend, RONDO_BF16, 64);
  check_e4m3_codes(backend, RONDO_F16, 17);
}
Test(gemv, every_e4m3_code_is_exact_host) { check_every_e4m3_code(RONDO_BACKEND_HOST); }
Test(gemv, every_e4m3_code_is_exact_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  check_every_e4m3_code(RONDO_BACKEND_CUDA);
}

/* Rows of one matrix, each with something special in it. */
static void check_special(rondo_backend backend, int64_t k, rondo_dtype vectors_dtype) {
  enum { NOTHING, NAN_SCALE, NEGATIVE_NAN_SCALE, NEGATIVE_ZEROS, CANCELLING, LARGEST, NEGATIVE_LARGEST, ROWS };
  struct problem p = {.weights_dtype = RONDO_NVFP4,
                      .vectors_dtype = vectors_dtype,
                      .out_dtype = RONDO_F16,
                      .m = ROWS,
                      .k = k,
                      .count = 2,
                      .scale = 16};
  struct trial trial;
  problems_begin(&trial, backend, &p, 1);
  uint8_t *codes = p.weights.data, *scales = p.weight_scales.data;
  int64_t row_bytes = k / 2, row_blocks = k / 16;
  scales[NAN_SCALE * row_blocks + row_blocks - 1] = 0x7f;
  scales[NEGATIVE_NAN_SCALE * row_blocks] = 0xff;
  memset(codes + NEGATIVE_ZEROS * row_bytes, 0x88, (size_t)row_bytes);
  memset(codes + CANCELLING * row_bytes, 0xf7, (size_t)row_bytes); /* 6, -6, 6, .. */
  memset(codes + LARGEST * row_bytes, 0x77, (size_t)row_bytes);
  memset(codes + NEGATIVE_LARGEST * row_bytes, 0xff, (size_t)row_bytes);
  memset(scales + CANCELLING * row_blocks, 0x7e, (size_t)(3 * row_blocks));
  if (vectors_dtype == RONDO_NVFP4) {
    memset(p.vectors.data, 0x77, bytes_of(&p.vectors));
    memset(p.vector_scales.data, 0x7e, bytes_of(&p.vector_scales));
  } else {
    for (int64_t i = 0; i < 2 * k; i++) oracle_write(vectors_dtype, p.vectors.data, i, 60000);
  }
  problems_run(&trial, &p, 1);
  for (int64_t v = 0; v < p.count; v++) {
    cr_assert(isnan(element_of(&p.out, 0, v, NAN_SCALE)));
    cr_assert(isnan(element_of(&p.out, 0, v, NEGATIVE_NAN_SCALE)));
    cr_assert(element_of(&p.out, 0, v, NEGATIVE_ZEROS) == 0);
    cr_assert(element_of(&p.out, 0, v, CANCELLING) == 0);
    cr_assert(element_of(&p.out, 0, v, LARGEST) == INFINITY);
    cr_assert(element_of(&p.out, 0, v, NEGATIVE_LARGEST) == -INFINITY);
    cr_assert(!isnan(element_of(&p.out, 0, v, NOTHING)), "a NaN left its row");
  }
  problems_end(&trial, &p, 1);
}

/* An infinity or NaN in one vector, or in one row, stays there. */
static void check_not_finite(rondo_backend backend, rondo_dtype dtype, int64_t k) {
  struct problem p = {.weights_dtype = dtype, .vectors_dtype = dtype, .out_dtype = dtype, .m = 5, .k = k, .count = 4};
  struct trial trial;
  problems_begin(&trial, backend, &p, 1);
  for (int64_t r = 0; r < p.m; r++) oracle_write(dtype, p.weights.data, r * k + 1, r == 2 ? -1 : 1);
  oracle_write(dtype, p.vectors.data, 1 * k + 1, INFINITY);
  oracle_write(dtype, p.vectors.data, 3 * k + k - 1, NAN);
  oracle_write(dtype, p.weights.data, 4 * k, -INFINITY);
  for (int64_t v = 0; v < p.count; v++) oracle_write(dtype, p.vectors.data, v * k, 2);
  problems_run(&trial, &p, 1);
  for (int64_t v = 0; v < p.count; v++)
    for (int64_t r = 0; r < p.m; r++) {
      double got = element_of(&p.out, 0, v, r);
      if (v == 3 || (v == 1 && r == 4)) /* infinity less infinity */
        cr_assert(isnan(got), "vector %d row %d", (int)v, (int)r);
      else if (v == 1 || r == 4)
        cr_assert(got == (r == 2 || r == 4 ? -INFINITY : INFINITY), "vector %d row %d", (int)v, (int)r);
      else
        cr_assert(isfinite(got), "vector %d row %d", (int)v, (int)r);
    }
  problems_end(&trial, &p, 1);
}

static void check_special_values(rondo_backend backend) {
  check_special(backend, 2048, RONDO_NVFP4);
  check_special(backend, 48, RONDO_F16);
  check_special(backend, 64, RONDO_BF16);
  check_not_finite(backend, RONDO_F16, 40);
  check_not_finite(backend, RONDO_BF16, 41);
}
Test(gemv, nan_and_infinity_stay_in_their_row_and_overflow_is_infinite_host) {
  check_special_values(RONDO_BACKEND_HOST);
}
Test(gemv, nan_and_infinity_stay_in_their_row_and_overflow_is_infinite_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  check_special_values(RONDO_BACKEND_CUDA);
}

/* Vectors far from 1, and factors of all sizes. */
static void check_sizes(rondo_backend backend) {
  struct problem problems[MOST_PROBLEMS];
  int count = 0;
  static const double sizes[] = {15000, 1e-6};
  for (int i = 0; i < PAIRS; i++)
    for (int s = 0; s < 2; s++)
      problems[count++] = (struct problem){.weights_dtype = pairs[i].weights,
                                           .vectors_dtype = pairs[i].vectors,
                                           .out_dtype = outs[(i + s) % 3],
                                           .m = 10,
                                           .k = 320,
                                           .count = 1 + s,
                                           .scale = s ? 0x1p20f : 0x1p-20f,
                                           .vector_size = sizes[s],
                                           .row_scales = pairs[i].weights == RONDO_E4M3};
  problems[count++] = (struct problem){.weights_dtype = RONDO_BF16,
                                       .vectors_dtype = RONDO_BF16,
                                       .out_dtype = RONDO_BF16,
                                       .m = 4,
                                       .k = 64,
                                       .count = 1,
                                       .weight_size = 0x1p60,
                                       .vector_size = 0x1p64}; /* near the end of fp32 */
  check_problems(backend, problems, count);
}
Test(gemv, values_of_all_sizes_match_fp64_host) { check_sizes(RONDO_BACKEND_HOST); }
Test(gemv, values_of_all_sizes_match_fp64_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  check_sizes(RONDO_BACKEND_CUDA);
}

/* ---- The same bits -------------------------------------------------------------------------------------------------
 */

static void check_replays(rondo_backend backend) {
  static const struct problem shapes[] = {{.m = 37, .k = 4096, .count = 1}, {.m = 37, .k = 4096, .count = 7}};
  struct problem problems[MOST_PROBLEMS];
  struct trial trial;
  int count = for_every_pair(shapes, 2, 0, problems);
  problems_begin(&trial, backend, problems, count);
  problems_run(&trial, problems, count);
  for (int replay = 0; replay < 20; replay++) {
    for (int i = 0; i < count; i++) {
      void *noise = malloc(bytes_of(&problems[i].out));
      memset(noise, 0xff, bytes_of(&problems[i].out));
      trial_set(&trial, problems[i].out.whole, noise);
      free(noise);
    }
    trial_replay(&trial);
    for (int i = 0; i < count; i++) {
      void *again = malloc(bytes_of(&problems[i].out));
      trial_get(&trial, problems[i].out.whole, again);
      cr_assert(!memcmp(again, problems[i].out.data, bytes_of(&problems[i].out)), "problem %d, replay %d", i, replay);
      free(again);
    }
  }
  problems_end(&trial, problems, count);
}
Test(gemv, every_replay_gives_the_same_bits_host) { check_replays(RONDO_BACKEND_HOST); }
Test(gemv, every_replay_gives_the_same_bits_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  check_replays(RONDO_BACKEND_CUDA);
}

/* One, two and nine vectors of the same data: those they share have the same bits. */
static void check_company(rondo_backend backend) {
  static const struct problem shapes[] = {
      {.m = 45, .k = 4096, .count = 9}, {.m = 45, .k = 4096, .count = 1}, {.m = 45, .k = 4096, .count = 2}};
  struct problem problems[MOST_PROBLEMS];
  struct trial trial;
  int count = for_every_pair(shapes, 3, 0, problems);
  for (int i = 0; i < count; i++) problems[i].out_dtype = RONDO_F32, problems[i].row_scales = false;
  problems_begin(&trial, backend, problems, count);
  for (int i = 0; i < count; i++) {
    struct problem *p = &problems[i], *all = &problems[i - i % 3];
    memcpy(p->weights.data, all->weights.data, bytes_of(&p->weights));
    memcpy(p->vectors.data, all->vectors.data, bytes_of(&p->vectors));
    if (p->weight_scales.data && all->weight_scales.data)
      memcpy(p->weight_scales.data, all->weight_scales.data, bytes_of(&p->weight_scales));
    if (p->vector_scales.data && all->vector_scales.data)
      memcpy(p->vector_scales.data, all->vector_scales.data, bytes_of(&p->vector_scales));
  }
  problems_run(&trial, problems, count);
  for (int i = 0; i < count; i++)
    cr_assert(!memcmp(problems[i].out.data, problems[i - i % 3].out.data, bytes_of(&problems[i].out)), "problem %d", i);
  problems_end(&trial, problems, count);
}
Test(gemv, a_vector_has_the_same_bits_in_any_company_host) { check_company(RONDO_BACKEND_HOST); }
Test(gemv, a_vector_has_the_same_bits_in_any_company_cuda) {
  require_backend(RONDO_BACKEND_CUDA);
  check_company(RONDO_BACKEND_CUDA);
}

/* ---- The choice of kernels ------------------------------------------------------------------------------------------
 */

/* What rondo_explain says of one problem on sm_90. */
static void explain(struct problem problem, char *text, size_t bytes) {
  struct trial trial;
  char path[] = "/tmp/rondo-gemv-XXXXXX";
  int file = mkstemp(path);
  cr_assert(file >= 0);
  problems_begin(&trial, RONDO_BACKEND_HOST, &problem, 1);
  REQUIRE_OK(rondo_explain(trial.graph, 90, path));
  ssize_t got = read(file, text, bytes - 1);
  cr_assert(got > 0);
  text[got] = 0;
  close(file);
  unlink(path);
  problems_end(&trial, &problem, 1);
}

static void check_choice(struct problem problem, const char *kernel, bool cut) {
  char text[4096];
  explain(problem, text, sizeof text);
  cr_assert(strstr(text, kernel), "expected %s in: %s", kernel, text);
  cr_assert((strstr(text, "rondo_gemv_reduce") != NULL) == cut, "expected %s cut in: %s", cut ? "a" : "no", text);
}

Test(gemv, kernels_are_chosen_by_type_alignment_and_shape) {
  struct problem nvfp4 = {.weights_dtype = RONDO_NVFP4, .vectors_dtype = RONDO_F16, .out_dtype = RONDO_F16};
  struct problem half = {.weights_dtype = RONDO_F16, .vectors_dtype = RONDO_F16, .out_dtype = RONDO_F16};
  struct problem p = nvfp4;
  p.m = 4096, p.k = 1024, p.count = 1;
  check_choice(p, "rondo_gemv_nvfp4_f16_x1", false);
  p.count = 2;
  check_choice(p, "rondo_gemv_nvfp4_f16_x4", false);
  p.m = 3, p.count = 1;
  check_choice(p, "rondo_gemv_nvfp4_f16_x4", false);
  p.m = 64, p.k = 8192;
  check_choice(p, "rondo_gemv_nvfp4_f16_x1", true);
  p.k = 8208;
  check_choice(p, "rondo_gemv_scalar", true);
  p.k = 64, p.padded = true, p.margin = 32;
  check_choice(p, "rondo_gemv_nvfp4_f16_x1", false);
  p.margin = 2;
  check_choice(p, "rondo_gemv_scalar", false);
  p = half;
  p.m = 4096, p.k = 40, p.count = 1;
  check_choice(p, "rondo_gemv_f16_x1", false);
  p.k = 44;
  check_choice(p, "rondo_gemv_scalar", false);
}

/* ---- Errors --------------------------------------------------------------------------------------------------------
 */

static rondo_tensor tensor_of(struct trial *trial, rondo_dtype dtype, uint32_t rank, int64_t a, int64_t b, int64_t c) {
  rondo_tensor tensor;
  REQUIRE_OK(rondo_state(trial->graph, "tensor", dtype, rank, (int64_t[]){a, b, c}, &tensor));
  return tensor;
}

Test(gemv, types_that_do_not_fit_are_refused_with_a_reason) {
  struct trial trial, *t = &trial;
  trial_describe(t, RONDO_BACKEND_HOST);
  const rondo_status invalid = RONDO_INVALID_ARGUMENT;
  const rondo_gemv_desc good = {.weights = tensor_of(t, RONDO_NVFP4, 2, 4, 64, 0),
                                .weight_scales = tensor_of(t, RONDO_E4M3, 2, 4, 4, 0),
                                .vectors = tensor_of(t, RONDO_F16, 2, 2, 64, 0),
                                .out = tensor_of(t, RONDO_F32, 2, 2, 4, 0)};
  rondo_gemv_desc bad = good;
  REQUIRE_ERROR(rondo_add_gemv(t->graph, NULL), invalid, "description is NULL");
  bad.weights = tensor_of(t, RONDO_F32, 2, 4, 64, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "weights are f32, expected f16, bf16, e4m3 or nvfp4");
  bad.weights = tensor_of(t, RONDO_F16, 2, 4, 64, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "weight_scales is present, expected none with weights in f16");
  bad.weights = tensor_of(t, RONDO_BF16, 2, 4, 64, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "vectors are f16, expected bf16 with weights in bf16");
  bad = good, bad.weights = tensor_of(t, RONDO_E4M3, 2, 4, 64, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "weight_scales is [4, 4] e4m3, expected [4] f32");
  bad.vectors = tensor_of(t, RONDO_NVFP4, 2, 2, 64, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "vectors are nvfp4, expected f16 or bf16");
  bad = good, bad.vectors = tensor_of(t, RONDO_F32, 2, 2, 64, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "vectors are f32, expected f16, bf16 or nvfp4");
  bad = good, bad.out = tensor_of(t, RONDO_E4M3, 2, 2, 4, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "out is e4m3, expected f16, bf16 or f32");
  bad = good, bad.vector_scales = tensor_of(t, RONDO_E4M3, 2, 2, 4, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "vector_scales is present, expected none");
  bad = good, bad.weight_scales = tensor_of(t, RONDO_F32, 2, 4, 4, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "weight_scales is [4, 4] f32, expected [4, 4] e4m3");
  bad = good, bad.scale = INFINITY;
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "scale is inf, expected a finite number");
  REQUIRE_OK(rondo_add_gemv(t->graph, &good));
  trial_end(t);
}

Test(gemv, shapes_that_do_not_fit_are_refused_with_a_reason) {
  struct trial trial, *t = &trial;
  trial_describe(t, RONDO_BACKEND_HOST);
  const rondo_status invalid = RONDO_INVALID_ARGUMENT;
  const rondo_gemv_desc good = {.weights = tensor_of(t, RONDO_NVFP4, 2, 4, 64, 0),
                                .weight_scales = tensor_of(t, RONDO_E4M3, 2, 4, 4, 0),
                                .vectors = tensor_of(t, RONDO_NVFP4, 2, 2, 64, 0),
                                .vector_scales = tensor_of(t, RONDO_E4M3, 2, 2, 4, 0),
                                .out = tensor_of(t, RONDO_F32, 2, 2, 4, 0)};
  rondo_gemv_desc bad = good;
  bad.weight_scales = tensor_of(t, RONDO_E4M3, 2, 4, 3, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "weight_scales is [4, 3] e4m3, expected [4, 4]");
  bad = good, bad.vector_scales = (rondo_tensor){0};
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "vector_scales is absent, expected [2, 4] e4m3");
  bad = good, bad.weights = (rondo_tensor){0};
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "weights is absent");
  bad = good, bad.out = (rondo_tensor){0};
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "out is absent");
  bad = good, bad.vectors = tensor_of(t, RONDO_NVFP4, 2, 17, 64, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "vectors are 17, expected 1 to 16");
  bad.vectors = tensor_of(t, RONDO_NVFP4, 2, 0, 64, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "vectors are 0, expected 1 to 16");
  bad.vectors = tensor_of(t, RONDO_NVFP4, 2, 2, 48, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "vectors is [2, 48] nvfp4, expected [2, 64] nvfp4");
  bad.vectors = tensor_of(t, RONDO_NVFP4, 3, 1, 2, 64);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "vectors have rank 3, expected 2");
  bad = good, bad.weights = tensor_of(t, RONDO_NVFP4, 1, 64, 0, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "weights have rank 1, expected 2 or 3");
  bad.weights = tensor_of(t, RONDO_NVFP4, 2, 4, 40, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "weights have rows of 40, expected a multiple of 16");
  bad = good, bad.out = tensor_of(t, RONDO_F32, 2, 4, 2, 0);
  REQUIRE_ERROR(rondo_add_gemv(t->graph, &bad), invalid, "out is [4, 2] f32, expected [2, 4] f32");
  REQUIRE_OK(rondo_add_gemv(t->graph, &good));
  trial_end(t);
}
