/* test_quantized_products.c - products by rondo_add_gemm of what tasks quantise: W and X in e4m3, or W in NVFP4 and X
 * in bf16. Each is as exact as its codes allow, and rows of zeros, NaN and infinities become what the header says. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "../oracles/frame.h"

enum { BATCH = 2, ROWS = 37, COLUMNS = 66, K = 528, BLOCK = 16 };

enum kind { PLAIN, ZEROS, HAS_NAN, HAS_INFINITY };

/* A few rows of each kind in every batch. X in bf16 has no NaN and no infinity: they would reach all columns. */
static enum kind kind_of(rondo_dtype codes, int64_t row) {
  const enum kind kind = row % 11 == 3 ? ZEROS : row % 11 == 5 ? HAS_NAN : row % 11 == 8 ? HAS_INFINITY : PLAIN;
  return codes == RONDO_BF16 && kind > ZEROS ? PLAIN : kind;
}

/* Numbers, and what they are quantised to: e4m3, nvfp4, or bf16, which they are. */
struct operand {
  rondo_dtype dtype;
  struct frame from;
  rondo_tensor codes, scales;
  double *errors;
};

static void fill(struct operand *o, int64_t rows, struct random *random) {
  /* A scale in e4m3 has few exponents, one in f32 all. */
  const int64_t least = o->dtype == RONDO_NVFP4 ? -2 : -20, most = o->dtype == RONDO_NVFP4 ? 6 : 10;
  for (int64_t r = 0; r < rows; r++) {
    const double size = exp2((double)random_between(random, least, most));
    const enum kind kind = kind_of(o->dtype, r);
    for (int64_t i = 0; i < K; i++) frame_write(&o->from, r * K + i, kind == ZEROS ? 0 : size * random_normal(random));
    if (kind > ZEROS)
      frame_write(&o->from, r * K + random_between(random, 0, K - 1),
                  kind == HAS_NAN ? (double)NAN : (double)-INFINITY);
  }
}

static struct operand operand_add(struct trial *trial, const char *name, rondo_dtype from, int64_t rows,
                                  rondo_dtype dtype, struct random *random) {
  const int64_t shape[] = {BATCH, rows, K}, blocks[] = {BATCH, rows, K / BLOCK};
  struct operand o = {.dtype = dtype, .from = frame_add(trial, name, from, 3, shape, 0, 1)};
  o.codes = o.from.view;
  if (dtype != RONDO_BF16) REQUIRE_OK(rondo_temporary(trial->graph, "codes", dtype, 3, shape, &o.codes));
  if (dtype == RONDO_E4M3) {
    REQUIRE_OK(rondo_temporary(trial->graph, "scales", RONDO_F32, 2, shape, &o.scales));
    REQUIRE_OK(rondo_add_quantize_e4m3(
        trial->graph, &(rondo_quantize_e4m3_desc){.x = o.from.view, .codes = o.codes, .scales = o.scales}));
  }
  if (dtype == RONDO_NVFP4) {
    REQUIRE_OK(rondo_temporary(trial->graph, "scales", RONDO_E4M3, 3, blocks, &o.scales));
    REQUIRE_OK(rondo_add_quantize_nvfp4(
        trial->graph, &(rondo_quantize_nvfp4_desc){.x = o.from.view, .codes = o.codes, .scales = o.scales}));
  }
  fill(&o, BATCH * rows, random);
  return o;
}

static double largest_of(const struct frame *f, int64_t first, int64_t count) {
  double largest = 0;
  for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(frame_read(f, first + i)));
  return largest;
}

/* What each number of an operand may be off by. In e4m3: half a unit of three bits, or of the least exponent. In NVFP4:
 * a fifth of it, or a quarter of the block's divisor, which is a sixth of the largest but for the rounding of its
 * scale. */
static double *errors_of(const struct operand *o) {
  const int64_t count = frame_count(&o->from), run = o->dtype == RONDO_E4M3 ? K : BLOCK;
  double *errors = calloc((size_t)count, sizeof *errors);
  for (int64_t first = 0; first < count && o->dtype != RONDO_BF16; first += run) {
    const double largest = largest_of(&o->from, first, run);
    const double least = o->dtype == RONDO_E4M3 ? largest / 448 * 0x1p-10 : largest / 6 * (1 + 0x1p-4) / 4;
    for (int64_t i = first; i < first + run; i++)
      errors[i] = fmax(fabs(frame_read(&o->from, i)) / (o->dtype == RONDO_E4M3 ? 16 : 5), least) * (1 + 0x1p-20);
  }
  return errors;
}

/* The product of two rows of numbers, and how far the product of their codes may be from it. */
static void expect(const struct operand *x, int64_t row, const struct operand *w, int64_t column, double *sum,
                   double *error) {
  double magnitude = 0;
  *sum = *error = 0;
  for (int64_t i = 0; i < K; i++) {
    const double a = frame_read(&x->from, row * K + i), b = frame_read(&w->from, column * K + i);
    const double a_error = x->errors[row * K + i], b_error = w->errors[column * K + i];
    *sum += a * b;
    *error += fabs(a) * b_error + a_error * fabs(b) + a_error * b_error;
    magnitude += (fabs(a) + a_error) * (fabs(b) + b_error);
  }
  *error += magnitude * ((8 + K / 16.0) * 0x1p-23 + (x->dtype == RONDO_E4M3 ? 0x1p-5 : 0)); /* rondo_gemm_desc */
  cr_assert(*error <= 0.3 * magnitude, "the test's own bound: %g of %g", *error, magnitude);
}

/* In NVFP4 an infinity saturates: the result is a number, which no bound tells. */
static void check(rondo_backend backend, rondo_dtype x_dtype, rondo_dtype w_dtype) {
  struct trial trial;
  struct random random = {.state = 11};
  trial_describe(&trial, backend);
  struct operand x = operand_add(&trial, "x", RONDO_BF16, ROWS, x_dtype, &random);
  struct operand w = operand_add(&trial, "w", RONDO_F32, COLUMNS, w_dtype, &random);
  struct frame out = frame_add(&trial, "out", RONDO_F32, 3, (int64_t[]){BATCH, ROWS, COLUMNS}, 0, 1);
  REQUIRE_OK(rondo_add_gemm(trial.graph, &(rondo_gemm_desc){.weights = w.codes,
                                                            .weight_scales = w.scales,
                                                            .vectors = x.codes,
                                                            .vector_scales = x.scales,
                                                            .out = out.view}));
  x.errors = errors_of(&x), w.errors = errors_of(&w);
  trial_instantiate(&trial);
  frame_set(&trial, &x.from), frame_set(&trial, &w.from), frame_set(&trial, &out);
  trial_replay(&trial);
  struct frame got = frame_get(&trial, &out, "out");
  for (int64_t i = 0; i < frame_count(&got); i++) {
    const int64_t batch = i / COLUMNS / ROWS, row = i / COLUMNS, column = batch * COLUMNS + i % COLUMNS;
    const enum kind of_x = kind_of(x_dtype, row), of_w = kind_of(w_dtype, column);
    const bool has_nan = of_x > ZEROS || of_w == HAS_NAN || (of_w == HAS_INFINITY && w_dtype == RONDO_E4M3);
    const double result = frame_read(&got, i);
    double sum = 0, error = INFINITY;
    if (!has_nan && of_w != HAS_INFINITY) expect(&x, row, &w, column, &sum, &error);
    if (of_x == ZEROS || of_w == ZEROS) error = 0;
    cr_assert(has_nan ? isnan(result) : isfinite(result) && fabs(result - sum) <= error,
              "row %lld, column %lld: %g, expected %g within %g", (long long)row, (long long)column, result,
              has_nan ? (double)NAN : sum, error);
  }
  trial_end(&trial);
  free(got.bytes), free(out.bytes), free(x.from.bytes), free(w.from.bytes), free(x.errors), free(w.errors);
}

static void check_e4m3(rondo_backend backend) { check(backend, RONDO_E4M3, RONDO_E4M3); }
BOTH_BACKENDS(quantized_products, e4m3_rows_keep_their_bound, check_e4m3)

static void check_nvfp4(rondo_backend backend) { check(backend, RONDO_BF16, RONDO_NVFP4); }
BOTH_BACKENDS(quantized_products, nvfp4_weights_keep_their_bound, check_nvfp4)
