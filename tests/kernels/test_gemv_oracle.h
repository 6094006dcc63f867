/* test_gemv_oracle.h - what the GEMV tests share: one product in a graph, and its check against sums in fp64 of values
 * that the oracles decode.
 *
 * The gate: the result may be off by half a unit of the output type and by c 2^-24 sum |w x|, where c = 8 + 4
 * sqrt(k/16) stands for the rounding of as many fp32 additions, and of the factors at the end. */
#ifndef RONDO_TEST_GEMV_ORACLE_H
#define RONDO_TEST_GEMV_ORACLE_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support.h"

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

static inline int64_t batch_of(const struct problem *problem) { return problem->batch ? problem->batch : 1; }

static inline int64_t whole_rows(const struct operand *o) { return o->rows + (o->padded ? 2 : 0); }
static inline int64_t whole_columns(const struct operand *o) {
  return o->columns + (o->padded ? o->margin + PADDING : 0);
}

static inline int64_t index_of(const struct operand *o, int64_t batch, int64_t row, int64_t column) {
  return (batch * whole_rows(o) + row + (o->padded ? 1 : 0)) * whole_columns(o) + column + (o->padded ? o->margin : 0);
}

static inline size_t bytes_of(const struct operand *o) {
  return (size_t)(o->batch * whole_rows(o) * whole_columns(o) * rondo_dtype_bits(o->dtype) / 8);
}

static inline double element_of(const struct operand *o, int64_t batch, int64_t row, int64_t column) {
  return oracle_read(o->dtype, o->data, index_of(o, batch, row, column));
}

/* The operand in a tensor of `kind`, filled with `poison`, and a view of it where there is padding. */
static inline void operand_add(rondo_graph *graph, struct operand *o, const char *name,
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

static inline struct operand operand_of(const struct problem *problem, rondo_dtype dtype, int64_t rows,
                                        int64_t columns) {
  return (struct operand){.dtype = dtype,
                          .rank = problem->batch ? 3 : 2,
                          .batch = batch_of(problem),
                          .rows = rows,
                          .columns = columns,
                          .padded = problem->padded,
                          .margin = problem->margin};
}

static inline void problem_add(struct trial *trial, struct problem *p) {
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
static inline void operand_fill(struct operand *o, struct random *random, double size, bool scales) {
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

static inline void problem_fill(struct problem *p, struct random *random) {
  operand_fill(&p->weights, random, p->weight_size, false);
  operand_fill(&p->vectors, random, p->vector_size, false);
  if (p->weight_scales.data) operand_fill(&p->weight_scales, random, 1, true);
  if (p->vector_scales.data) operand_fill(&p->vector_scales, random, 1, true);
}

static inline void problem_set(struct trial *trial, struct problem *p) {
  trial_set(trial, p->weights.whole, p->weights.data);
  trial_set(trial, p->vectors.whole, p->vectors.data);
  if (p->weight_scales.data) trial_set(trial, p->weight_scales.whole, p->weight_scales.data);
  if (p->vector_scales.data) trial_set(trial, p->vector_scales.whole, p->vector_scales.data);
}

/* Rows of an operand in fp64, with the scales of nvfp4. */
static inline void decode_row(const struct operand *o, const struct operand *scales, int64_t batch, int64_t row,
                              double *out) {
  for (int64_t c = 0; c < o->columns; c++)
    out[c] = element_of(o, batch, row, c) * (o->dtype == RONDO_NVFP4 ? element_of(scales, batch, row, c / 16) : 1);
}

/* The largest finite number and the distance between neighbours around `value`. */
static inline double unit_of(rondo_dtype dtype, double value) {
  int exponent, mantissa_bits = dtype == RONDO_F16 ? 10 : dtype == RONDO_BF16 ? 7 : 23;
  int least = dtype == RONDO_F16 ? -14 : -126;
  frexp(value, &exponent);
  return ldexp(1, (exponent - 1 < least ? least : exponent - 1) - mantissa_bits);
}

static inline double largest_of(rondo_dtype dtype) {
  return dtype == RONDO_F16 ? 65504 : dtype == RONDO_BF16 ? 0x1.fep127 : 0x1.fffffep127;
}

static inline void check_result(const struct problem *p, int index, int64_t batch, int64_t vector, int64_t row,
                                double sum, double magnitude) {
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

static inline void problem_check(struct trial *trial, struct problem *p, int index) {
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
static inline void problem_check_around(const struct problem *p, int index) {
  const struct operand *o = &p->out;
  if (!o->padded) return;
  for (int64_t b = 0; b < o->batch; b++)
    for (int64_t r = -1; r <= o->rows; r++)
      for (int64_t c = -o->margin; c < o->columns + PADDING; c++)
        if (r < 0 || r == o->rows || c < 0 || c >= o->columns)
          cr_assert(element_of(o, b, r, c) == 0, "problem %d: wrote outside of out, row %d column %d", index, (int)r,
                    (int)c);
}

static inline void problem_end(struct problem *p) {
  free(p->weights.data);
  free(p->weight_scales.data);
  free(p->vectors.data);
  free(p->vector_scales.data);
  free(p->out.data);
}

/* Describes and fills. */
static inline void problems_begin(struct trial *trial, rondo_backend backend, struct problem *problems, int count) {
  struct random random = {.state = 3};
  trial_describe(trial, backend);
  for (int i = 0; i < count; i++) {
    problem_add(trial, &problems[i]);
    problem_fill(&problems[i], &random);
  }
}

/* Runs and checks. */
static inline void problems_run(struct trial *trial, struct problem *problems, int count) {
  trial_instantiate(trial);
  for (int i = 0; i < count; i++) problem_set(trial, &problems[i]);
  trial_replay(trial);
  for (int i = 0; i < count; i++) {
    problem_check(trial, &problems[i], i);
    problem_check_around(&problems[i], i);
  }
}

static inline void problems_end(struct trial *trial, struct problem *problems, int count) {
  for (int i = 0; i < count; i++) problem_end(&problems[i]);
  trial_end(trial);
}

static inline void check_problems(rondo_backend backend, struct problem *problems, int count) {
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
static inline int for_every_pair(const struct problem *shapes, int shape_count, int64_t odd_k,
                                 struct problem *problems) {
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

#endif
