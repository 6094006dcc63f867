/* test_gemv_values.c - products with vectors of difficult numbers, against fp64: NaN and infinity, overflow, and
 * vectors whose elements differ by more than a format holds. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../oracles/gemv_oracle.h"

/* ---- NaN --------------------------------------------------------------------------------------------------------- */

/* NaN among the scales of two rows and, if it has some, of the last vector: the oracle expects NaN there and in no
 * other result. */
static void check_nan_scales(rondo_backend backend, rondo_dtype vectors_dtype, int64_t k, int64_t count) {
  struct problem p = {.weights_dtype = RONDO_NVFP4,
                      .vectors_dtype = vectors_dtype,
                      .out_dtype = outs[count % 3],
                      .m = 37,
                      .k = k,
                      .count = count};
  struct trial trial;
  problems_begin(&trial, backend, &p, 1);
  uint8_t *scales = p.weight_scales.data, *vector_scales = p.vector_scales.data;
  int64_t blocks = k / 16;
  scales[5 * blocks + blocks - 1] = 0x7f;
  scales[36 * blocks + blocks / 2] = 0xff;
  if (vector_scales) vector_scales[(count - 1) * blocks + blocks / 3] = 0x7f;
  memset((uint8_t *)p.weights.data + 36 * k / 2, 0x80, (size_t)k / 2); /* zeros times NaN */
  problems_run(&trial, &p, 1);
  for (int64_t v = 0; v < count; v++)
    cr_assert(isnan(element_of(&p.out, 0, v, 5)) && isnan(element_of(&p.out, 0, v, 36)));
  problems_end(&trial, &p, 1);
}

static void check_nan(rondo_backend backend) {
  static const int64_t lengths[] = {16, 64, 48, 2048, 528};
  for (int i = 0; i < COUNTS; i++)
    for (int l = 0; l < 5; l++) {
      check_nan_scales(backend, RONDO_NVFP4, lengths[l], counts[i]);
      check_nan_scales(backend, l % 2 ? RONDO_F16 : RONDO_BF16, lengths[l], counts[i]);
    }
}
BOTH_BACKENDS(gemv_values, a_nan_scale_makes_its_row_or_vector_nan_and_no_other, check_nan)

/* ---- Overflow, zeros --------------------------------------------------------------------------------------------- */

/* Rows of one matrix, each with something special in it. */
static void check_special(rondo_backend backend, int64_t k, rondo_dtype vectors_dtype, int64_t count) {
  enum { NEGATIVE_ZEROS, NEGATIVE_ZERO_SCALES, CANCELLING, LARGEST, NEGATIVE_LARGEST, NEGATIVE_SCALES, ROWS };
  struct problem p = {.weights_dtype = RONDO_NVFP4,
                      .vectors_dtype = vectors_dtype,
                      .out_dtype = RONDO_F16,
                      .m = ROWS,
                      .k = k,
                      .count = count,
                      .scale = 16};
  struct trial trial;
  problems_begin(&trial, backend, &p, 1);
  uint8_t *codes = p.weights.data, *scales = p.weight_scales.data;
  size_t row_bytes = (size_t)k / 2, row_blocks = (size_t)k / 16;
  memset(codes, 0x77, ROWS * row_bytes); /* 6 */
  memset(scales, 0x7e, ROWS * row_blocks);
  memset(codes + NEGATIVE_ZEROS * row_bytes, 0x88, row_bytes);
  memset(scales + NEGATIVE_ZERO_SCALES * row_blocks, 0x80, row_blocks);
  memset(codes + CANCELLING * row_bytes, 0xf7, row_bytes); /* 6, -6, 6, .. */
  memset(codes + NEGATIVE_LARGEST * row_bytes, 0xff, row_bytes);
  memset(scales + NEGATIVE_SCALES * row_blocks, 0xfe, row_blocks);
  if (vectors_dtype == RONDO_NVFP4) {
    memset(p.vectors.data, 0x77, bytes_of(&p.vectors));
    memset(p.vector_scales.data, 0x7e, bytes_of(&p.vector_scales));
  } else {
    for (int64_t i = 0; i < count * k; i++) oracle_write(vectors_dtype, p.vectors.data, i, 60000);
  }
  problems_run(&trial, &p, 1);
  static const double expected[ROWS] = {0, 0, 0, INFINITY, -INFINITY, -INFINITY};
  for (int64_t v = 0; v < count; v++)
    for (int row = 0; row < ROWS; row++)
      cr_assert(element_of(&p.out, 0, v, row) == expected[row], "vector %d row %d: %g", (int)v, row,
                element_of(&p.out, 0, v, row));
  problems_end(&trial, &p, 1);
}

static void check_special_values(rondo_backend backend) {
  for (int i = 0; i < COUNTS; i++) {
    check_special(backend, 2048, RONDO_NVFP4, counts[i]);
    check_special(backend, i % 2 ? 512 : 48, RONDO_F16, counts[i]);
    check_special(backend, i % 2 ? 64 : 1040, RONDO_BF16, counts[i]);
  }
}
BOTH_BACKENDS(gemv_values, zeros_of_either_sign_are_zero_and_overflow_is_infinite, check_special_values)

enum { INFINITE_ROWS = 20 };

static void fill_with_infinities(struct problem *p) {
  for (int64_t i = 0; i < p->m * p->k; i++) oracle_write(p->weights_dtype, p->weights.data, i, 1);
  for (int64_t i = 0; i < p->count * p->k; i++) oracle_write(p->vectors_dtype, p->vectors.data, i, 1);
  oracle_write(p->weights_dtype, p->weights.data, 5 * p->k, INFINITY);
  oracle_write(p->weights_dtype, p->weights.data, 18 * p->k - 1, -INFINITY);
}

/* Infinities in the first and the last column of two rows; the other numbers are ones. Where k does not fill what warps
 * take of it, nothing makes a NaN of them. */
static void check_infinities(rondo_backend backend) {
  static const int64_t lengths[] = {40, 1000, 4352, 8448, 16640, 20488};
  struct problem problems[6 * COUNTS];
  struct trial trial;
  int count = 0;
  for (int l = 0; l < 6; l++)
    for (int i = 0; i < COUNTS; i++) {
      rondo_dtype dtype = i % 2 ? RONDO_F16 : RONDO_BF16;
      problems[count++] = (struct problem){.weights_dtype = dtype,
                                           .vectors_dtype = dtype,
                                           .out_dtype = RONDO_F32,
                                           .m = INFINITE_ROWS,
                                           .k = lengths[l],
                                           .count = counts[i]};
    }
  problems_begin(&trial, backend, problems, count);
  for (int i = 0; i < count; i++) fill_with_infinities(&problems[i]);
  problems_run(&trial, problems, count);
  for (int i = 0; i < count; i++)
    for (int64_t v = 0; v < problems[i].count; v++)
      for (int row = 0; row < INFINITE_ROWS; row++)
        cr_assert(element_of(&problems[i].out, 0, v, row) == (row == 5    ? INFINITY
                                                              : row == 17 ? -INFINITY
                                                                          : (double)problems[i].k),
                  "k %d, vector %d of %d row %d: %g", (int)problems[i].k, (int)v, (int)problems[i].count, row,
                  element_of(&problems[i].out, 0, v, row));
  problems_end(&trial, problems, count);
}
BOTH_BACKENDS(gemv_values, an_infinite_weight_makes_its_row_infinite_and_no_other, check_infinities)

/* 6 or -6. */
static void write_weight(struct problem *p, int64_t row, int64_t column, double value) {
  int64_t i = row * p->k + column;
  if (p->weights_dtype == RONDO_NVFP4)
    write_code(p->weights.data, i, value < 0 ? 15 : 7);
  else if (p->weights_dtype == RONDO_E4M3)
    ((uint8_t *)p->weights.data)[i] = value < 0 ? 0xcc : 0x4c;
  else
    oracle_write(p->weights_dtype, p->weights.data, i, value);
}

/* Weights of 6 and -6 with elements of 1024 cancel but for one, in halves of the row, or in runs of `run`. On the way
 * there are sums far beyond the largest f16, all of them exact in fp32, and the small results must be too. */
static void check_passing(rondo_backend backend, struct pair pair, int64_t k, int64_t count, int64_t run) {
  struct problem p = {.weights_dtype = pair.weights,
                      .vectors_dtype = pair.vectors,
                      .out_dtype = RONDO_F16,
                      .m = 19,
                      .k = k,
                      .count = count,
                      .exact = true};
  struct trial trial;
  problems_begin(&trial, backend, &p, 1);
  for (int64_t row = 0; row < p.m; row++)
    for (int64_t i = 0; i < k; i++) write_weight(&p, row, i, (i / run + row) % 2 ? -6 : 6);
  if (p.weight_scales.data) memset(p.weight_scales.data, 0x38, bytes_of(&p.weight_scales));
  if (pair.vectors == RONDO_NVFP4) {
    memset(p.vectors.data, 0x66, bytes_of(&p.vectors));             /* 4 */
    memset(p.vector_scales.data, 0x78, bytes_of(&p.vector_scales)); /* 256 */
  } else {
    for (int64_t i = 0; i < count * k; i++) oracle_write(pair.vectors, p.vectors.data, i, 1024);
  }
  for (int64_t v = 0; v < count; v++) { /* 1024 becomes 1536 */
    int64_t i = v * k + v * 7 % k;
    if (pair.vectors == RONDO_NVFP4)
      write_code(p.vectors.data, i, 7);
    else
      oracle_write(pair.vectors, p.vectors.data, i, 1536);
  }
  problems_run(&trial, &p, 1);
  for (int64_t v = 0; v < count; v++) cr_assert(fabs(element_of(&p.out, 0, v, 0)) == 3072);
  problems_end(&trial, &p, 1);
}

static void check_large_sums_on_the_way(rondo_backend backend) {
  for (int pair = 0; pair < PAIRS; pair++)
    for (int i = 0; i < COUNTS; i++) {
      check_passing(backend, pairs[pair], 2048, counts[i], 1024);
      check_passing(backend, pairs[pair], 4096, counts[i], i % 2 ? 16 : 64);
    }
}
BOTH_BACKENDS(gemv_values, sums_that_pass_the_largest_f16_on_the_way_are_exact, check_large_sums_on_the_way)

/* ---- Vectors of all kinds ---------------------------------------------------------------------------------------- */

enum kind {
  USUAL,
  OUTLIER,        /* one large element among tiny ones */
  LARGEST_FINITE, /* one element that just fits among usual ones */
  SUBNORMAL,
  ZEROS,
  ONE_INFINITY,
  ONE_NAN,
  EVERY_EXPONENT,
  OUTLIERS, /* every 16th element */
  KINDS
};

static void fill_vector(struct problem *p, int64_t vector, enum kind kind, struct random *random) {
  bool half = p->vectors_dtype == RONDO_F16;
  double largest = half ? 65504 : 1e38, outlier = half ? 6e4 : 1e30;
  for (int64_t i = 0; i < p->k; i++) {
    double normal = random_normal(random), value = normal;
    bool one = i == vector * 31 % p->k;
    switch (kind) {
    case OUTLIER:
      value = one ? outlier : 1e-6 * normal;
      break;
    case LARGEST_FINITE:
      value = one ? -largest : normal;
      break;
    case SUBNORMAL:
      value = (double)random_between(random, -127, 127) * (half ? 0x1p-24 : 0x1p-133);
      break;
    case ZEROS:
      value = i % 3 ? 0.0 : -0.0;
      break;
    case ONE_INFINITY:
      value = one ? INFINITY : normal;
      break;
    case ONE_NAN:
      value = one ? NAN : normal;
      break;
    case EVERY_EXPONENT:
      value = ldexp(normal, (int)random_between(random, half ? -24 : -140, half ? 12 : 100));
      break;
    case OUTLIERS:
      value = i % 16 == 3 ? outlier * normal / 4 : (half ? 0x1p-22 : 0x1p-100) * normal;
      break;
    default:
      break;
    }
    oracle_write(p->vectors_dtype, p->vectors.data, vector * p->k + i, value);
  }
}

/* Of NVFP4 vectors: no infinities; the scales make the kind. */
static void fill_packed_vector(struct problem *p, int64_t vector, enum kind kind, struct random *random) {
  int64_t blocks = p->k / 16;
  uint8_t *codes = (uint8_t *)p->vectors.data + vector * p->k / 2;
  uint8_t *scales = (uint8_t *)p->vector_scales.data + vector * blocks;
  for (int64_t b = 0; b < blocks; b++) {
    bool one = b == vector * 31 % blocks;
    uint8_t any = (uint8_t)random_between(random, 0, 0x7e), tiny = (uint8_t)random_between(random, 1, 7);
    switch (kind) {
    case OUTLIER:
      scales[b] = one ? 0x7e : tiny;
      break;
    case LARGEST_FINITE:
      scales[b] = 0xfe;
      break;
    case SUBNORMAL:
      scales[b] = tiny;
      break;
    case ZEROS:
      memset(codes + b * 8, b % 2 ? 0x88 : 0x00, 8);
      break;
    case ONE_NAN:
      scales[b] = one ? 0xff : any;
      break;
    case OUTLIERS:
      scales[b] = b % 4 ? tiny : 0x7e;
      break;
    default:
      scales[b] = any;
      break;
    }
  }
}

/* All kinds beside each other, first that of `first`; scales keep weights below 2, so that 1e38 does not overflow. */
static void check_kinds(rondo_backend backend, struct pair pair, int64_t k, int64_t count, int first) {
  struct problem p = {.weights_dtype = pair.weights,
                      .vectors_dtype = pair.vectors,
                      .out_dtype = outs[(first + count) % 3],
                      .m = 35,
                      .k = k,
                      .count = count,
                      .weight_size = 0.25};
  struct random random = {.state = (uint64_t)(k + first)};
  struct trial trial;
  problems_begin(&trial, backend, &p, 1);
  if (p.weight_scales.data) memset(p.weight_scales.data, 0x28, bytes_of(&p.weight_scales));
  for (int64_t i = 0; i < p.m * k && pair.weights == RONDO_E4M3; i++) ((uint8_t *)p.weights.data)[i] &= 0xbf;
  for (int64_t v = 0; v < count; v++)
    (pair.vectors == RONDO_NVFP4 ? fill_packed_vector : fill_vector)(&p, v, (enum kind)((first + v) % KINDS), &random);
  problems_run(&trial, &p, 1);
  problems_end(&trial, &p, 1);
}

static void check_every_kind(rondo_backend backend) {
  static const int64_t lengths[] = {64, 1040, 2048};
  for (int pair = 0; pair < PAIRS; pair++)
    for (int i = 0; i < COUNTS; i++)
      for (int first = 0; first < KINDS; first += (int)(counts[i] < KINDS ? counts[i] : KINDS))
        check_kinds(backend, pairs[pair], lengths[(pair + i + first) % 3], counts[i], first);
}
BOTH_BACKENDS(gemv_values, a_vector_of_any_kind_keeps_its_bound_beside_any_other, check_every_kind)

/* Nothing cancels: what each addition loses adds up, if it is always in the same direction. */
static void check_positive(rondo_backend backend) {
  static const int64_t lengths[] = {512, 16384, 1024, 4096};
  struct problem p;
  struct trial trial;
  for (int pair = 0; pair < PAIRS; pair++)
    for (int i = 0; i < COUNTS; i++) {
      p = (struct problem){.weights_dtype = pairs[pair].weights,
                           .vectors_dtype = pairs[pair].vectors,
                           .out_dtype = RONDO_F32,
                           .m = 17,
                           .k = lengths[(i + pair) % 4],
                           .count = counts[i]};
      problems_begin(&trial, backend, &p, 1);
      struct operand *operands[] = {&p.weights, &p.weight_scales, &p.vectors, &p.vector_scales};
      for (int o = 0; o < 4; o++)
        if (operands[o]->data)
          for (size_t byte = 0; byte < bytes_of(operands[o]); byte++)
            ((uint8_t *)operands[o]->data)[byte] &= operands[o]->dtype == RONDO_NVFP4              ? 0x77
                                                    : operands[o]->dtype == RONDO_E4M3 || byte % 2 ? 0x7f
                                                                                                   : 0xff;
      problems_run(&trial, &p, 1);
      problems_end(&trial, &p, 1);
    }
}
BOTH_BACKENDS(gemv_values, long_sums_of_positive_numbers_keep_the_bound, check_positive)

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
BOTH_BACKENDS(gemv_values, values_of_all_sizes_match_fp64, check_sizes)
