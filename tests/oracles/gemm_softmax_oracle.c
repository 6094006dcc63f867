/* gemm_softmax_oracle.c - see gemm_softmax_oracle.h. */
#include "gemm_softmax_oracle.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "lane_sums.h"

static const rondo_dtype result_dtype[RESULTS] = {RONDO_F32, RONDO_F32, RONDO_F16, RONDO_BF16};

static void place_add(struct place *place, struct trial *trial, const struct product *product, const char *name,
                      rondo_dtype dtype, int64_t rows, int64_t columns) {
  int64_t border = product->border, batch = product->sizes.batch;
  /* With a border of eight elements the rows of f16 stay aligned to 16 bytes, with one or three they do not. */
  int64_t width = border ? border + columns + (border % 8 ? 2 : (8 - columns % 8) % 8) : columns;
  int64_t shape[3] = {batch + (border ? 2 : 0), rows + (border ? 3 : 0), width};
  *place = (struct place){.dtype = dtype,
                          .offset = {border ? 1 : 0, border ? 2 : 0, border},
                          .stride = {shape[1] * shape[2], shape[2], 1},
                          .extent = {batch, rows, columns}};
  if (product->matrix) {
    cr_assert(batch == 1);
    shape[0] = 1, place->offset[0] = 0;
  }
  uint32_t skip = product->matrix ? 1 : 0;
  REQUIRE_OK(rondo_state(trial->graph, name, dtype, 3 - skip, shape + skip, &place->state));
  REQUIRE_OK(rondo_view(trial->graph, place->state, place->offset + skip, place->extent + skip, &place->view));
  REQUIRE_OK(rondo_tensor_bytes(place->state, &place->bytes));
  place->data = malloc(place->bytes + 1);
}

/* The same without columns: [batch, rows]. */
static void place_add_max(struct place *place, struct trial *trial, const struct product *product) {
  int64_t border = product->border, batch = product->sizes.batch, rows = product->sizes.m;
  int64_t shape[2] = {batch + (border ? 1 : 0), rows + 2 * border};
  *place = (struct place){
      .dtype = RONDO_F32, .offset = {0, border, 0}, .stride = {shape[1], 1, 1}, .extent = {batch, rows, 1}};
  uint32_t skip = product->matrix ? 1 : 0;
  REQUIRE_OK(rondo_state(trial->graph, "max", RONDO_F32, 2 - skip, shape + skip, &place->state));
  REQUIRE_OK(rondo_view(trial->graph, place->state, place->offset + skip, place->extent + skip, &place->view));
  REQUIRE_OK(rondo_tensor_bytes(place->state, &place->bytes));
  place->data = malloc(place->bytes + 1);
}

static int64_t place_index(const struct place *place, int64_t batch, int64_t row, int64_t column) {
  return (place->offset[0] + batch) * place->stride[0] + (place->offset[1] + row) * place->stride[1] +
         place->offset[2] + column;
}

static double place_read(const struct place *place, int64_t batch, int64_t row, int64_t column) {
  return oracle_read(place->dtype, place->data, place_index(place, batch, row, column));
}

static void place_write(struct place *place, int64_t batch, int64_t row, int64_t column, double value) {
  oracle_write(place->dtype, place->data, place_index(place, batch, row, column), value);
}

void product_add(struct trial_product *t, struct trial *trial, const struct product *product) {
  const struct sizes *s = &product->sizes;
  t->product = *product;
  place_add(&t->a, trial, product, "a", product->dtype, s->m, s->k);
  place_add(&t->b, trial, product, "b", product->dtype, s->n, s->k);
  place_add_max(&t->results[MAX], trial, product);
  for (int i = P_F32; i < RESULTS; i++) place_add(&t->results[i], trial, product, "p", result_dtype[i], s->m, s->n);
  REQUIRE_OK(rondo_add_gemm_rowmax(trial->graph, &(rondo_gemm_rowmax_desc){.a = t->a.view,
                                                                           .b = t->b.view,
                                                                           .max = t->results[MAX].view,
                                                                           .scale = product->scale,
                                                                           .causal = product->causal}));
  for (int i = P_F32; i < RESULTS; i++)
    REQUIRE_OK(rondo_add_gemm_softmax(trial->graph, &(rondo_gemm_softmax_desc){.a = t->a.view,
                                                                               .b = t->b.view,
                                                                               .p = t->results[i].view,
                                                                               .scale = product->scale,
                                                                               .causal = product->causal}));
}

/* Where A has long numbers B has zeros and the other way round, but for every other pair of columns. */
static double one_sided(bool is_b, int64_t column, double length, struct random *random) {
  if (column % 4 >= 2) return random_normal(random);
  return (column % 4 == 1) == is_b ? length * random_normal(random) : 0;
}

static double number_of(enum numbers numbers, bool is_b, int64_t row, int64_t rows, int64_t column,
                        struct random *random) {
  switch (numbers) {
  case EQUAL:
    return is_b ? 0.5 : random_normal(random);
  case INCREASING:
  case DECREASING:
    if (!is_b) return 0.25 + 0.5 * random_uniform(random);
    return (numbers == INCREASING ? 4.0 : -4.0) * (double)row / (double)rows;
  case ONE_SIDED:
    return one_sided(is_b, column, 2000, random);
  case TOO_LONG:
    return one_sided(is_b, column, 0x1p100, random);
  case TOO_SHORT:
    return random_normal(random) * (is_b ? 0x1p50 : 0x1p-80);
  default:
    return random_normal(random);
  }
}

void place_fill(struct place *place, enum numbers numbers, bool is_b, struct random *random) {
  for (uint64_t i = 0; i < place->bytes / 2; i++) oracle_write(place->dtype, place->data, (int64_t)i, NAN);
  for (int64_t batch = 0; batch < place->extent[0]; batch++)
    for (int64_t row = 0; row < place->extent[1]; row++)
      for (int64_t column = 0; column < place->extent[2]; column++)
        place_write(place, batch, row, column, number_of(numbers, is_b, row, place->extent[1], column, random));
}

void plant_special(struct trial_product *t) {
  const struct sizes *s = &t->product.sizes;
  for (int64_t batch = 0; batch < s->batch; batch++) {
    for (int64_t column = 0; column < s->n; column++) place_write(&t->b, batch, column, s->k - 1, 1.0);
    place_write(&t->a, batch, 1, 0, NAN);
    place_write(&t->a, batch, 3, 0, INFINITY);
    place_write(&t->a, batch, 5, s->k - 1, -INFINITY);
    place_write(&t->b, batch, 4, 0, -INFINITY);
    if (t->product.causal) place_write(&t->b, batch, s->n - 1, 2, NAN);
  }
}

void plant_late(struct trial_product *t) {
  const struct sizes *s = &t->product.sizes;
  for (int64_t batch = 0; batch < s->batch; batch++) {
    for (int64_t row = 0; row < s->m; row++) place_write(&t->a, batch, row, 0, 1.0);
    for (int64_t column = 0; column < s->n && column < 130; column++) place_write(&t->b, batch, column, 0, -INFINITY);
  }
}

/* ---- The oracle -------------------------------------------------------------------------------------------------- */

/* One row of S and P: in fp64, and plainly in fp32 (its S, then its P). */
struct row_oracle {
  double *s, *p, max;
  float *plain, plain_max;
  int64_t counted;
  double magnitude;   /* the largest finite sum of |scale a b| */
  double logit_error; /* how far a logit may be off: see logit_bound */
  double p_relative;  /* and what that makes of a p, as a part of it: of this logit, and of the maximum or the sum */
};

static double scale_of(const struct product *product) { return product->scale == 0.0f ? 1.0 : (double)product->scale; }

/* a b, what it is without signs, and plainly in fp32. */
static double product_of(const double *a, const double *b, int64_t count, double *magnitude, float *plain) {
  float plain_sum = 0;
  for (int64_t k = 0; k < count; k++) plain_sum += (float)(a[k] * b[k]);
  *plain = plain_sum;
  return lanes_product(a, b, count, magnitude);
}

/* How far a logit of a correct row may be off, by any order of summation (the tensor cores of some chips truncate,
 * which is two units for each partial sum). */
static double logit_bound(const struct row_oracle *o, int64_t k) { return (double)(k + 16) * 0x1p-24 * o->magnitude; }

static void row_oracle_compute(struct row_oracle *o, const struct product *product, const double *a, const double *b,
                               int64_t row) {
  const struct sizes *s = &product->sizes;
  double scale = scale_of(product);
  o->counted = !product->causal ? s->n : row + s->n - s->m + 1;
  o->counted = o->counted < 0 ? 0 : o->counted > s->n ? s->n : o->counted;
  o->max = -INFINITY, o->plain_max = -INFINITY, o->magnitude = 0;
  for (int64_t j = 0; j < o->counted; j++) {
    double magnitude;
    float plain;
    o->s[j] = scale * product_of(a, b + j * s->k, s->k, &magnitude, &plain);
    o->plain[j] = (float)scale * plain;
    if (isnan(o->s[j]) || o->s[j] > o->max) o->max = isnan(o->max) ? o->max : o->s[j];
    if (o->plain[j] > o->plain_max) o->plain_max = o->plain[j];
    magnitude *= fabs(scale);
    if (isfinite(magnitude) && magnitude > o->magnitude) o->magnitude = magnitude;
  }
  double sum = 0;
  float plain_sum = 0;
  for (int64_t j = 0; j < o->counted; j++) {
    sum += o->p[j] = exp(o->s[j] - o->max);
    plain_sum += o->plain[j] = expf(o->plain[j] - o->plain_max);
  }
  for (int64_t j = 0; j < o->counted; j++) o->p[j] /= sum, o->plain[j] /= plain_sum;
  o->logit_error = logit_bound(o, s->k);
  o->p_relative = expm1(2 * o->logit_error);
  if (!(o->p_relative < 1e300)) o->p_relative = 1e300; /* of a p that is 0 anyway, or cannot be known */
}

static double p_bound(const struct row_oracle *o, const struct product *product, int64_t column, rondo_dtype dtype) {
  double p = o->p[column], distance = o->max - o->s[column];
  /* exp of a rounded argument; the sum */
  double relative = o->p_relative + (distance + 8 + (double)product->sizes.n / 4) * 0x1p-22;
  double unit = dtype == RONDO_F32 ? 0x1p-24 : dtype == RONDO_F16 ? 0x1p-11 : 0x1p-8;
  /* Rows of such widths may be held in 16 bits until their sums are known: rounded twice. */
  if (dtype != RONDO_F32 && product->sizes.n > 512 && product->sizes.n <= 2048) unit *= 2;
  double smallest = dtype == RONDO_F16 ? 0x1p-24 : 0x1p-126;
  return p * (relative + unit * (1 + relative)) + smallest;
}

/* Both gates over one kind of result of one case. */
struct gate {
  double worst, plain_worst, allowance;
};

static void gate_take(struct gate *gate, double error, double plain_error, double allowance) {
  if (error > gate->worst) gate->worst = error;
  if (plain_error > gate->plain_worst) gate->plain_worst = plain_error;
  if (allowance > gate->allowance) gate->allowance = allowance;
}

static double rounded(rondo_dtype dtype, double value) {
  if (dtype == RONDO_F16) return oracle_f16(oracle_to_f16(value));
  if (dtype == RONDO_BF16) return oracle_bf16(oracle_to_bf16(value));
  return (double)(float)value;
}

static void max_check(const struct trial_product *t, const struct row_oracle *o, int64_t batch, int64_t row,
                      struct gate *gate) {
  const struct product *c = &t->product;
  double got = place_read(&t->results[MAX], batch, row, 0);
  if (!isfinite(o->max)) {
    cr_assert(isnan(o->max) ? isnan(got) : got == o->max, CASE_FORMAT "max of row %lld is %g, expected %g",
              CASE_VALUES(c), (long long)row, got, o->max);
    return;
  }
  double error = fabs(got - o->max), bound = o->logit_error;
  cr_assert(error <= bound, CASE_FORMAT "max of row %lld is %.9g, expected %.9g +- %g", CASE_VALUES(c), (long long)row,
            got, o->max, bound);
  gate_take(gate, error, fabs((double)o->plain_max - o->max), 0x1p-22 * o->magnitude);
}

static void p_check(const struct trial_product *t, const struct row_oracle *o, int64_t batch, int64_t row, int result,
                    struct gate *gate) {
  const struct product *c = &t->product;
  rondo_dtype dtype = result_dtype[result];
  double whole = 0;
  for (int64_t j = 0; j < c->sizes.n; j++) {
    double got = place_read(&t->results[result], batch, row, j);
    whole += got;
    if (j >= o->counted) {
      cr_assert(got == 0, CASE_FORMAT "%s of row %lld, column %lld is %g, expected 0: it does not count",
                CASE_VALUES(c), result_name[result], (long long)row, (long long)j, got);
      continue;
    }
    double expected = o->p[j];
    if (isnan(expected)) {
      cr_assert(isnan(got), CASE_FORMAT "%s of row %lld, column %lld is %g, expected NaN", CASE_VALUES(c),
                result_name[result], (long long)row, (long long)j, got);
      continue;
    }
    if (o->s[j] == -INFINITY) {
      cr_assert(got == 0, CASE_FORMAT "%s of row %lld, column %lld is %g, expected 0: its logit is -infinity",
                CASE_VALUES(c), result_name[result], (long long)row, (long long)j, got);
      continue;
    }
    double error = fabs(got - expected), bound = p_bound(o, c, j, dtype);
    cr_assert(error <= bound, CASE_FORMAT "%s of row %lld, column %lld is %.9g, expected %.9g +- %g", CASE_VALUES(c),
              result_name[result], (long long)row, (long long)j, got, expected, bound);
    double plain = rounded(dtype, (double)o->plain[j]);
    gate_take(gate, error, fabs(plain - expected), 0x1p-23 * o->magnitude + 0x1p-22);
  }
  if (result == P_F32 && o->counted && isfinite(o->max))
    cr_assert(fabs(whole - 1) <= 2e-5, CASE_FORMAT "row %lld of p adds up to %.9g", CASE_VALUES(c), (long long)row,
              whole);
}

void product_check(const struct trial_product *t) {
  const struct product *c = &t->product;
  const struct sizes *s = &c->sizes;
  uint64_t n = (uint64_t)s->n + 1;
  struct row_oracle o = {
      .s = malloc(n * sizeof *o.s), .p = malloc(n * sizeof *o.p), .plain = malloc(n * sizeof *o.plain)};
  double *a = calloc((uint64_t)s->k + 1, sizeof *a), *b = calloc((uint64_t)(s->n * s->k + 1), sizeof *b);
  struct gate gates[RESULTS] = {{0}};
  for (int64_t batch = 0; batch < s->batch; batch++) {
    for (int64_t j = 0; j < s->n; j++)
      for (int64_t k = 0; k < s->k; k++) b[j * s->k + k] = place_read(&t->b, batch, j, k);
    for (int64_t row = 0; row < s->m; row++) {
      for (int64_t k = 0; k < s->k; k++) a[k] = place_read(&t->a, batch, row, k);
      row_oracle_compute(&o, c, a, b, row);
      max_check(t, &o, batch, row, &gates[MAX]);
      for (int i = P_F32; i < RESULTS; i++) p_check(t, &o, batch, row, i, &gates[i]);
    }
  }
  for (int i = 0; i < RESULTS; i++)
    cr_assert(gates[i].worst <= 2 * gates[i].plain_worst + gates[i].allowance,
              CASE_FORMAT "the largest error of %s is %g, of a plain fp32 evaluation %g (and %g allowed)",
              CASE_VALUES(c), result_name[i], gates[i].worst, gates[i].plain_worst, gates[i].allowance);
  free(a), free(b), free(o.s), free(o.p), free(o.plain);
}
