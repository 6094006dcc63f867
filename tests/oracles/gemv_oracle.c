/* gemv_oracle.c - see gemv_oracle.h.
 *
 * The bound of a sum is c 2^-24 sum |w x| + k 2^-141. c = 8 + 4 sqrt(k/16) stands for the roundings of the fp32
 * additions and of the factors. k 2^-141 stands for additions at the small end of fp32, where the sums of NVFP4 weights
 * and bf16 vectors may be 2^-8 of the values that they stand for. bf16 vectors of NVFP4 and e4m3 weights add 2^-38
 * max|x| sum |w|: a kernel multiplies part of a vector by the power of two that brings its largest magnitude to [2^13,
 * 2^14) and rounds to f16, whose smallest step is 2^-24, so that an element is off by half of 2^-24 at most. The steps
 * after the sum carry the bound on and add their own fp32 roundings. Storing adds half a unit of the output type. */
#include "gemv_oracle.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lane_sums.h"

int64_t batch_of(const struct problem *problem) { return problem->batch ? problem->batch : 1; }

static int64_t columns_of(const struct problem *problem) { return problem->silu_mul ? problem->m / 2 : problem->m; }

static int64_t whole_rows(const struct operand *o) {
  return o->blocked ? (o->rows + 127) / 128 * 128 : o->rows + (o->padded ? 2 : 0);
}

static int64_t whole_columns(const struct operand *o) {
  return o->blocked ? (o->columns + 3) / 4 * 4 : o->columns + (o->padded ? o->margin + PADDING : 0);
}

int64_t index_of(const struct operand *o, int64_t batch, int64_t row, int64_t column) {
  if (o->blocked) {
    int64_t tile = batch * (whole_rows(o) / 128) + row / 128, i = row % 128;
    return (tile * (whole_columns(o) / 4) + column / 4) * 512 + i % 32 * 16 + i / 32 * 4 + column % 4;
  }
  return (batch * whole_rows(o) + row + (o->padded ? 1 : 0)) * whole_columns(o) + column + (o->padded ? o->margin : 0);
}

size_t bytes_of(const struct operand *o) {
  return (size_t)(o->batch * whole_rows(o) * whole_columns(o) * rondo_dtype_bits(o->dtype) / 8);
}

double element_of(const struct operand *o, int64_t batch, int64_t row, int64_t column) {
  return oracle_read(o->dtype, o->data, index_of(o, batch, row, column));
}

/* The operand in a tensor of `kind`, filled with `poison`, and a view of it where there is padding. */
static void operand_add(rondo_graph *graph, struct operand *o, const char *name, tensor_kind kind, int poison) {
  int64_t shape[] = {o->batch, whole_rows(o), whole_columns(o)}, extent[] = {o->batch, o->rows, o->columns};
  int64_t offset[] = {0, o->padded ? 1 : 0, o->padded ? o->margin : 0};
  REQUIRE_OK(kind(graph, name, o->dtype, o->rank, shape + 3 - o->rank, &o->whole));
  o->view = o->whole;
  if (o->padded) REQUIRE_OK(rondo_view(graph, o->whole, offset + 3 - o->rank, extent + 3 - o->rank, &o->view));
  size_t bytes = bytes_of(o);
  o->data = malloc(bytes ? bytes : 1);
  memset(o->data, poison, bytes);
}

struct operand operand_of(const struct problem *problem, rondo_dtype dtype, int64_t rows, int64_t columns, bool dense) {
  return (struct operand){.dtype = dtype,
                          .rank = problem->batch ? 3 : 2,
                          .batch = batch_of(problem),
                          .rows = rows,
                          .columns = columns,
                          .padded = problem->padded && !dense,
                          .margin = problem->margin};
}

static struct operand scales_of(const struct problem *problem, int64_t rows, bool dense, bool blocked) {
  struct operand scales = operand_of(problem, RONDO_E4M3, rows, problem->k / 16, dense);
  if (blocked) scales.blocked = true, scales.padded = false;
  return scales;
}

/* [batch, columns], or [columns] for all: the rows of the operand are the batch. */
static struct operand rows_of(const struct problem *problem, rondo_dtype dtype, int64_t columns, bool for_all) {
  bool batched = problem->batch && !for_all;
  return (struct operand){
      .dtype = dtype, .rank = batched ? 2 : 1, .batch = 1, .rows = batched ? problem->batch : 1, .columns = columns};
}

static void operands_add(rondo_graph *graph, struct problem *p) {
  p->weights = operand_of(p, p->weights_dtype, p->m, p->k, p->dense_weights);
  p->vectors = operand_of(p, p->vectors_dtype, p->count, p->k, p->dense_vectors);
  p->out = operand_of(p, p->out_dtype, p->count, columns_of(p), p->dense_out);
  operand_add(graph, &p->weights, "weights", rondo_constant, 0xff);
  operand_add(graph, &p->vectors, "vectors", rondo_input, 0xff);
  operand_add(graph, &p->out, "out", rondo_state, 0);
  if (p->weights_dtype == RONDO_NVFP4) {
    p->weight_scales = scales_of(p, p->m, p->dense_weights, p->blocked_weights);
    operand_add(graph, &p->weight_scales, "weight scales", rondo_constant, 0xff);
  } else if (p->row_scales) {
    p->weight_scales = rows_of(p, RONDO_F32, p->m, false);
    operand_add(graph, &p->weight_scales, "weight scales", rondo_constant, 0xff);
  }
  if (p->vectors_dtype == RONDO_NVFP4) {
    p->vector_scales = scales_of(p, p->count, p->dense_vectors, p->blocked_vectors);
    operand_add(graph, &p->vector_scales, "vector scales", rondo_input, 0xff);
  }
  if (p->norm) {
    p->norm_weights = rows_of(p, p->vectors_dtype, p->k, true);
    operand_add(graph, &p->norm_weights, "norm", rondo_constant, 0xff);
  }
  if (p->bias_dtype) {
    p->bias = rows_of(p, p->bias_dtype, p->m, p->bias_for_all);
    operand_add(graph, &p->bias, "bias", rondo_constant, 0xff);
  }
  if (p->residual_dtype) {
    p->residual = operand_of(p, p->residual_dtype, p->count, columns_of(p), p->dense_out);
    operand_add(graph, &p->residual, "residual", rondo_input, p->in_place ? 0 : 0xff);
    if (p->in_place) p->residual.whole = p->out.whole, p->residual.view = p->out.view;
  }
  if (p->out_dtype == RONDO_NVFP4) {
    p->out_scales = operand_of(p, RONDO_E4M3, p->count, columns_of(p) / 16, p->dense_out);
    operand_add(graph, &p->out_scales, "out scales", rondo_state, 0);
  }
}

rondo_gemv_desc problem_desc(const struct problem *p) {
  return (rondo_gemv_desc){.weights = p->weights.view,
                           .weight_scales = p->weight_scales.view,
                           .vectors = p->vectors.view,
                           .vector_scales = p->vector_scales.view,
                           .out = p->out.view,
                           .scale = p->scale,
                           .weight_scale_layout = p->blocked_weights ? RONDO_SCALES_128X4 : RONDO_SCALES_BY_ROW,
                           .vector_scale_layout = p->blocked_vectors ? RONDO_SCALES_128X4 : RONDO_SCALES_BY_ROW,
                           .one_order = p->one_order,
                           .norm_epsilon = p->norm_epsilon,
                           .norm = p->norm_weights.view,
                           .bias = p->bias.view,
                           .silu_mul = p->silu_mul,
                           .residual = p->residual.view,
                           .out_scales = p->out_scales.view,
                           .out_global_scale = p->out_global_scale};
}

void problem_add(struct trial *trial, struct problem *p) {
  operands_add(trial->graph, p);
  rondo_gemv_desc desc = problem_desc(p);
  REQUIRE_OK(rondo_add_gemv(trial->graph, &desc));
}

void write_code(void *codes, int64_t element, unsigned code) {
  uint8_t *byte = (uint8_t *)codes + element / 2;
  *byte = (uint8_t)(element % 2 ? (*byte & 15) | code << 4 : (*byte & 0xf0) | code);
}

void operand_fill(struct operand *o, struct random *random, double size, bool scales) {
  for (int64_t b = 0; b < o->batch; b++)
    for (int64_t r = 0; r < o->rows; r++)
      for (int64_t c = 0; c < o->columns; c++) {
        int64_t i = index_of(o, b, r, c);
        uint8_t bits = (uint8_t)random_bits(random), *bytes = o->data;
        if (o->dtype == RONDO_NVFP4)
          write_code(o->data, i, bits & 15);
        else if (o->dtype == RONDO_E4M3)
          bytes[i] = (bits & 0x7f) == 0x7f || (!scales && (bits & 0x7f) > 0x58) ? bits & 0x3f : bits;
        else
          oracle_write(o->dtype, o->data, i, (size == 0 ? 1 : size) * random_normal(random));
      }
}

static void operand_calm(struct operand *o) {
  uint8_t *bytes = o->data;
  for (int64_t b = 0; b < o->batch; b++)
    for (int64_t r = 0; r < o->rows; r++)
      for (int64_t c = 0; c < o->columns; c++) {
        int64_t i = index_of(o, b, r, c);
        bytes[i] = (uint8_t)(0x30 | (bytes[i] & 0xf));
      }
}

void problem_fill(struct problem *p, struct random *random) {
  operand_fill(&p->weights, random, p->weight_size, false);
  operand_fill(&p->vectors, random, p->vector_size, false);
  struct operand *scales[] = {&p->weight_scales, &p->vector_scales};
  struct operand *others[] = {&p->norm_weights, &p->bias, &p->residual};
  for (int i = 0; i < 2; i++) {
    if (!scales[i]->data) continue;
    operand_fill(scales[i], random, 1, true);
    if (p->calm && scales[i]->dtype == RONDO_E4M3) operand_calm(scales[i]);
  }
  for (int i = 0; i < 3; i++)
    if (others[i]->data) operand_fill(others[i], random, 1, false);
}

void problem_set(struct trial *trial, struct problem *p) {
  trial_set(trial, p->weights.whole, p->weights.data);
  trial_set(trial, p->vectors.whole, p->vectors.data);
  if (p->weight_scales.data) trial_set(trial, p->weight_scales.whole, p->weight_scales.data);
  if (p->vector_scales.data) trial_set(trial, p->vector_scales.whole, p->vector_scales.data);
  if (p->norm) trial_set(trial, p->norm_weights.whole, p->norm_weights.data);
  if (p->bias_dtype) trial_set(trial, p->bias.whole, p->bias.data);
  if (p->residual_dtype) trial_set(trial, p->residual.whole, p->residual.data);
}

void decode_row(const struct operand *o, const struct operand *scales, int64_t batch, int64_t row, double *out) {
  double scale = 1;
  for (int64_t c = 0; c < o->columns; c++) {
    if (o->dtype == RONDO_NVFP4 && c % 16 == 0) scale = element_of(scales, batch, row, c / 16);
    out[c] = element_of(o, batch, row, c) * scale;
  }
}

/* The largest finite number and the distance between neighbours around `value`. */
static double unit_of(rondo_dtype dtype, double value) {
  int exponent, mantissa_bits = dtype == RONDO_F16 ? 10 : dtype == RONDO_BF16 ? 7 : 23;
  int least = dtype == RONDO_F16 ? -14 : -126;
  frexp(value, &exponent);
  return ldexp(1, (exponent - 1 < least ? least : exponent - 1) - mantissa_bits);
}

double largest_of(rondo_dtype dtype) {
  return dtype == RONDO_F16 ? 65504 : dtype == RONDO_BF16 ? 0x1.fep127 : 0x1.fffffep127;
}

static struct number rounded_to_f32(struct number n) {
  n.error += 0x1p-24 * fabs(n.value) + 0x1p-126;
  return n;
}

static struct number number_plus(struct number n, double term) {
  n.value += term;
  return rounded_to_f32(n);
}

/* silu's slope is below 1.1; its exponential and division are good to a few units. */
static struct number silu_times(struct number gate, struct number up) {
  double silu = gate.value / (1 + exp(-gate.value));
  struct number product = {silu * up.value, 1.1 * gate.error * (fabs(up.value) + up.error) + fabs(silu) * up.error};
  product.error += 8 * 0x1p-24 * fabs(product.value);
  return rounded_to_f32(product);
}

void check_number(const struct problem *p, int index, int64_t batch, int64_t vector, int64_t column,
                  struct number expected, double got) {
  double value = expected.value, error = fabs(got - value), bound = expected.error;
  if (!isfinite(value)) {
    cr_assert(got == value || (isnan(got) && isnan(value)), "problem %d: batch %d vector %d column %d: %g, expected %g",
              index, (int)batch, (int)vector, (int)column, got, value);
    return;
  }
  double largest = largest_of(p->out_dtype), half_unit = unit_of(p->out_dtype, fabs(value)) / 2 * (1 + 0x1p-20);
  if (p->exact && p->out_dtype == RONDO_F32) half_unit = 0;
  if (fabs(value) - bound >= largest + unit_of(p->out_dtype, largest) / 2) {
    cr_assert(isinf(got) && signbit(got) == signbit(value), "problem %d: batch %d vector %d column %d: %g, for %g",
              index, (int)batch, (int)vector, (int)column, got, value);
  } else if (!(fabs(value) + bound >= largest && isinf(got) && signbit(got) == signbit(value))) {
    cr_assert(error <= half_unit + bound,
              "problem %d: batch %d vector %d column %d: %.9g, expected %.9g, off by %.3g > %.3g", index, (int)batch,
              (int)vector, (int)column, got, value, error, half_unit + bound);
  }
}

/* A block of NVFP4. Its scale is within 1/16 of a sixth of the largest magnitude, or within half of the least one;
 * codes are half a step off at most, which is one scale at the largest, and where the scale was rounded down the
 * largest saturates. The bytes are another test's. */
static void check_block(const struct problem *p, int index, int64_t batch, int64_t vector, int64_t column,
                        const struct number *block) {
  double global = p->out_global_scale == 0 ? 1 : (double)p->out_global_scale, largest = 0, error = 0;
  double scale = element_of(&p->out_scales, batch, vector, column / 16) * global;
  for (int i = 0; i < 16; i++) largest = fmax(largest, fabs(block[i].value)), error = fmax(error, block[i].error);
  double step = (largest + error) / 6 * (1 + 0x1p-4) + 0x1p-10 * global;
  if (largest > 448 * 6 * global) return; /* saturated */
  for (int i = 0; i < 16; i++) {
    double got = element_of(&p->out, batch, vector, column + i) * scale;
    cr_assert(fabs(got - block[i].value) <= 1.01 * step + block[i].error,
              "problem %d: batch %d vector %d column %d: %g, expected %g within %g", index, (int)batch, (int)vector,
              (int)(column + i), got, block[i].value, step);
  }
}

static double bound_of(const struct problem *p, const struct sums *sums) {
  bool becomes_f16 =
      p->vectors_dtype == RONDO_BF16 && (p->weights_dtype == RONDO_NVFP4 || p->weights_dtype == RONDO_E4M3);
  if (p->exact) return 0;
  return (8 + 4 * sqrt((double)p->k / 16)) * 0x1p-24 * sums->magnitude + (double)p->k * 0x1p-141 +
         (becomes_f16 ? 0x1p-38 * sums->largest * sums->weights : 0);
}

struct sums sums_of_vector(const struct problem *p, double *vector) {
  struct sums sums = {.factor = {p->scale == 0 ? 1 : (double)p->scale, 0}};
  double squares = 0;
  for (int64_t i = 0; i < p->k; i++) {
    squares += vector[i] * vector[i];
    if (p->norm) {
      double x = vector[i] * element_of(&p->norm_weights, 0, 0, i);
      vector[i] = p->vectors_dtype == RONDO_F16 ? oracle_f16(oracle_to_f16(x)) : oracle_bf16(oracle_to_bf16(x));
    }
    if (fabs(vector[i]) > sums.largest) sums.largest = fabs(vector[i]);
  }
  if (p->norm_epsilon > 0) {
    sums.factor.value /= sqrt((p->k ? squares / (double)p->k : 0) + (double)p->norm_epsilon);
    sums.factor.error = (4 + sqrt((double)p->k / 16)) * 0x1p-24;
  }
  return sums;
}

struct sums sums_of_row(struct sums sums, const double *weights, const double *vector, int64_t k) {
  double magnitude;
  sums.value += lanes_product(weights, vector, k, &magnitude);
  sums.magnitude += magnitude;
  sums.weights += lanes_size(weights, k);
  return sums;
}

struct sums *problem_sums(const struct problem *p) {
  size_t row_bytes = (size_t)(p->k ? p->k : 1) * sizeof(double);
  double *weights = calloc(1, row_bytes), *vectors = calloc((size_t)p->count, row_bytes);
  struct sums *all = calloc((size_t)(batch_of(p) * p->m * p->count) + 1, sizeof *all), *next = all, of_vectors[16];
  for (int64_t b = 0; b < batch_of(p); b++) {
    for (int64_t v = 0; v < p->count; v++) {
      decode_row(&p->vectors, &p->vector_scales, b, v, vectors + v * p->k);
      of_vectors[v] = sums_of_vector(p, vectors + v * p->k);
    }
    for (int64_t r = 0; r < p->m; r++) {
      decode_row(&p->weights, &p->weight_scales, b, r, weights);
      for (int64_t v = 0; v < p->count; v++) *next++ = sums_of_row(of_vectors[v], weights, vectors + v * p->k, p->k);
    }
  }
  free(weights);
  free(vectors);
  return all;
}

struct number product_of(const struct problem *p, int64_t batch, int64_t row, const struct sums *sums) {
  double factor = sums->factor.value;
  if (p->row_scales) factor *= oracle_read(RONDO_F32, p->weight_scales.data, batch * p->m + row);
  double error = bound_of(p, sums) + fabs(sums->value) * sums->factor.error;
  return (struct number){sums->value * factor, error * fabs(factor)};
}

void check_vector(const struct problem *p, int index, int64_t b, int64_t v, const struct sums *sums) {
  struct number *numbers = calloc((size_t)p->m + 1, sizeof *numbers);
  for (int64_t r = 0; r < p->m; r++) {
    numbers[r] = product_of(p, b, r, &sums[r * p->count + v]);
    if (p->bias_dtype) numbers[r] = number_plus(numbers[r], element_of(&p->bias, 0, p->bias.rank == 2 ? b : 0, r));
  }
  for (int64_t c = 0; c < columns_of(p); c++) {
    if (p->silu_mul) numbers[c] = silu_times(numbers[2 * c], numbers[2 * c + 1]);
    if (p->residual_dtype) numbers[c] = number_plus(numbers[c], element_of(&p->residual, b, v, c));
    if (p->out_dtype != RONDO_NVFP4)
      check_number(p, index, b, v, c, numbers[c], element_of(&p->out, b, v, c));
    else if (c % 16 == 15)
      check_block(p, index, b, v, c - 15, numbers + c - 15);
  }
  free(numbers);
}

void problem_check(struct trial *trial, struct problem *p, int index) {
  trial_get(trial, p->out.whole, p->out.data);
  if (p->out_dtype == RONDO_NVFP4) trial_get(trial, p->out_scales.whole, p->out_scales.data);
  struct sums *sums = problem_sums(p);
  for (int64_t b = 0; b < batch_of(p); b++)
    for (int64_t v = 0; v < p->count; v++) check_vector(p, index, b, v, sums + b * p->m * p->count);
  free(sums);
}

/* A state is zero at first, and what lies around the view of the result must stay so. */
static void operand_check_around(const struct operand *o, int index) {
  if (!o->padded) return;
  for (int64_t b = 0; b < o->batch; b++)
    for (int64_t r = -1; r <= o->rows; r++)
      for (int64_t c = -o->margin; c < o->columns + PADDING; c++)
        if (r < 0 || r == o->rows || c < 0 || c >= o->columns)
          cr_assert(element_of(o, b, r, c) == 0, "problem %d: wrote outside of out, row %d column %d", index, (int)r,
                    (int)c);
}

static void problem_check_around(const struct problem *p, int index) {
  operand_check_around(&p->out, index);
  operand_check_around(&p->out_scales, index);
}

void problem_end(struct problem *p) {
  free(p->weights.data);
  free(p->weight_scales.data);
  free(p->vectors.data);
  free(p->vector_scales.data);
  free(p->out.data);
  free(p->norm_weights.data);
  free(p->bias.data);
  free(p->residual.data);
  free(p->out_scales.data);
}

void problems_begin(struct trial *trial, rondo_backend backend, struct problem *problems, int count) {
  struct random random = {.state = 3};
  trial_describe(trial, backend);
  for (int i = 0; i < count; i++) {
    problem_add(trial, &problems[i]);
    problem_fill(&problems[i], &random);
  }
}

void problems_run(struct trial *trial, struct problem *problems, int count) {
  trial_instantiate(trial);
  for (int i = 0; i < count; i++) problem_set(trial, &problems[i]);
  trial_replay(trial);
  for (int i = 0; i < count; i++) {
    problem_check(trial, &problems[i], i);
    problem_check_around(&problems[i], i);
  }
}

void problems_end(struct trial *trial, struct problem *problems, int count) {
  for (int i = 0; i < count; i++) problem_end(&problems[i]);
  trial_end(trial);
}

void check_problems(rondo_backend backend, struct problem *problems, int count) {
  struct trial trial;
  problems_begin(&trial, backend, problems, count);
  problems_run(&trial, problems, count);
  problems_end(&trial, problems, count);
}

int for_every_pair(const struct problem *shapes, int shape_count, int64_t odd_k, struct problem *problems) {
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
