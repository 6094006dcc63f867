/* test_gemv_codes.c - every code of the small formats, as a weight, as an element of a vector and as a scale. All sums
 * are exact in fp32 in any order, so that results have to be right to the last bit. Faults that would show: a code
 * that is decoded wrongly, a scale of another block. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../oracles/gemv_oracle.h"

static void run_once(struct trial *trial, struct problem *p) {
  problems_run(trial, p, 1);
  problems_end(trial, p, 1);
}

/* ---- NVFP4 with NVFP4 -------------------------------------------------------------------------------------------- */

enum { TURNS = 16, SCALES = 256 };

/* Row SCALES t + s has scale s at one block alone, where its codes are all sixteen, turned by t; the rest of the row
 * are zeros of either sign, times other scales. */
static void fill_turned_rows(struct problem *p) {
  int64_t blocks = p->k / 16;
  for (int64_t row = 0; row < p->m; row++) {
    int64_t live = row * 7 % blocks, turn = row / SCALES;
    for (int64_t i = 0; i < p->k; i++) {
      unsigned code = (unsigned)(i + turn) % 16;
      write_code(p->weights.data, row * p->k + i, i / 16 == live ? code : code & 8);
    }
    for (int64_t block = 0; block < blocks; block++) {
      unsigned other = (unsigned)(row + block * 5) % 0x7f;
      ((uint8_t *)p->weight_scales.data)[row * blocks + block] = (uint8_t)(block == live ? row % SCALES : other);
    }
  }
}

/* Every pair of codes, with every pair of scales: as many replays as it takes for the vectors to have all of theirs. */
static void check_pairs_of_pairs(rondo_backend backend, int64_t k, int64_t count) {
  struct problem p = {.weights_dtype = RONDO_NVFP4,
                      .vectors_dtype = RONDO_NVFP4,
                      .out_dtype = RONDO_F32,
                      .m = (int64_t)TURNS * SCALES,
                      .k = k,
                      .count = count};
  struct trial trial;
  double dots[TURNS] = {0};
  for (int turn = 0; turn < TURNS; turn++)
    for (int i = 0; i < 16; i++) dots[turn] += oracle_e2m1((uint8_t)((i + turn) % 16)) * oracle_e2m1((uint8_t)i);
  problems_begin(&trial, backend, &p, 1);
  fill_turned_rows(&p);
  for (int64_t i = 0; i < count * k; i++) write_code(p.vectors.data, i, (unsigned)(i % 16));
  trial_instantiate(&trial);
  for (int64_t first = 0; first < SCALES; first += count) {
    for (int64_t v = 0; v < count; v++)
      memset((uint8_t *)p.vector_scales.data + v * k / 16, (int)(first + v) % SCALES, (size_t)(k / 16));
    problem_set(&trial, &p);
    trial_replay(&trial);
    trial_get(&trial, p.out.whole, p.out.data);
    const float *out = p.out.data;
    for (int64_t v = 0; v < count; v++)
      for (int64_t row = 0; row < p.m; row++) {
        uint8_t a = (uint8_t)(row % SCALES), b = (uint8_t)((first + v) % SCALES);
        double expected = dots[row / SCALES] * oracle_e4m3(a) * oracle_e4m3(b), got = (double)out[v * p.m + row];
        cr_assert(got == expected || (isnan(got) && isnan(expected)),
                  "scales %#x and %#x, turn %d, vector %d: %g, expected %g", a, b, (int)(row / SCALES), (int)v, got,
                  expected);
      }
  }
  problems_end(&trial, &p, 1);
}

static void check_every_pair(rondo_backend backend) {
  check_pairs_of_pairs(backend, 16, 16);
  check_pairs_of_pairs(backend, 256, 1);
  check_pairs_of_pairs(backend, 320, 4);
  check_pairs_of_pairs(backend, 128, 7);
  check_pairs_of_pairs(backend, 512, 16);
}
BOTH_BACKENDS(gemv_codes, every_pair_of_codes_times_every_pair_of_scales_is_exact, check_every_pair)

/* ---- NVFP4 with small integers, in every place ------------------------------------------------------------------- */

/* Row SCALES t + s has scale s. The rows of a scale one after the other have bytes that run through all codes again and
 * again; elements of vectors are small. */
static void check_every_place(rondo_backend backend, rondo_dtype vectors_dtype, int64_t k, int64_t count) {
  struct problem p = {.weights_dtype = RONDO_NVFP4,
                      .vectors_dtype = vectors_dtype,
                      .out_dtype = RONDO_F32,
                      .m = SCALES * (k < 512 ? (511 + k) / k : 1),
                      .k = k,
                      .count = count,
                      .exact = true};
  struct trial trial;
  struct random random = {.state = (uint64_t)(k + count)};
  problems_begin(&trial, backend, &p, 1);
  for (int64_t row = 0; row < p.m; row++) {
    for (int64_t i = 0; i < k / 2; i++)
      ((uint8_t *)p.weights.data)[row * k / 2 + i] = (uint8_t)((row / SCALES * k / 2 + i) * 37 + row % SCALES * 11);
    memset((uint8_t *)p.weight_scales.data + row * k / 16, (int)(row % SCALES), (size_t)(k / 16));
  }
  for (int64_t i = 0; i < count * k && vectors_dtype != RONDO_NVFP4; i++)
    oracle_write(vectors_dtype, p.vectors.data, i, (double)random_between(&random, -8, 8));
  for (int64_t i = 0; i < count * k / 16 && vectors_dtype == RONDO_NVFP4; i++)
    ((uint8_t *)p.vector_scales.data)[i] = (uint8_t)(0x30 + 8 * random_between(&random, 0, 1)); /* 0.5 and 1 */
  run_once(&trial, &p);
}

static void check_places(rondo_backend backend) {
  static const rondo_dtype vectors[] = {RONDO_F16, RONDO_BF16, RONDO_NVFP4};
  static const int64_t lengths[] = {16, 512, 48, 1040, 64, 4096, 32};
  for (int type = 0; type < 3; type++)
    for (int i = 0; i < COUNTS; i++) {
      check_every_place(backend, vectors[type], lengths[(i + type) % 7], counts[i]);
      check_every_place(backend, vectors[type], lengths[(i + type + 3) % 7], counts[i]);
    }
  for (int type = 0; type < 3; type++) check_every_place(backend, vectors[type], 4096, type ? 16 : 1);
}
BOTH_BACKENDS(gemv_codes, every_nvfp4_code_times_every_scale_is_exact_in_every_place, check_places)

/* ---- Weights one by one ------------------------------------------------------------------------------------------ */

/* Row c has code c, in a place that wanders, and zeros; vectors are integers, of which bf16 has those up to 256. */
static void check_alone(rondo_backend backend, rondo_dtype weights, rondo_dtype vectors, int64_t k, int64_t count) {
  struct problem p = {.weights_dtype = weights,
                      .vectors_dtype = vectors,
                      .out_dtype = RONDO_F32,
                      .m = INT64_C(1) << rondo_dtype_bits(weights),
                      .k = k,
                      .count = count,
                      .exact = true};
  struct trial trial;
  problems_begin(&trial, backend, &p, 1);
  memset(p.weights.data, 0, bytes_of(&p.weights));
  for (int64_t row = 0; row < p.m; row++) {
    int64_t element = row * k + row * 17 % k;
    if (weights == RONDO_E4M3)
      ((uint8_t *)p.weights.data)[element] = (uint8_t)row;
    else
      ((uint16_t *)p.weights.data)[element] = (uint16_t)row;
  }
  for (int64_t i = 0; i < count * k; i++)
    oracle_write(vectors, p.vectors.data, i, (double)(weights == RONDO_E4M3 ? 1 + i * 5 % 256 : 1 + i % 2));
  run_once(&trial, &p);
}

static void check_every_e4m3(rondo_backend backend) {
  static const int64_t lengths[] = {16, 17, 70, 512, 1040, 4096};
  for (int i = 0; i < COUNTS; i++)
    for (int l = 0; l < 6; l++)
      check_alone(backend, RONDO_E4M3, (i + l) % 2 ? RONDO_F16 : RONDO_BF16, lengths[l], counts[i]);
}
BOTH_BACKENDS(gemv_codes, every_e4m3_code_is_exact, check_every_e4m3)

static void check_every_16_bits(rondo_backend backend) {
  check_alone(backend, RONDO_F16, RONDO_F16, 8, 1);
  check_alone(backend, RONDO_F16, RONDO_F16, 64, 2);
  check_alone(backend, RONDO_F16, RONDO_F16, 24, 5);
  check_alone(backend, RONDO_BF16, RONDO_BF16, 8, 2);
  check_alone(backend, RONDO_BF16, RONDO_BF16, 64, 1);
  check_alone(backend, RONDO_BF16, RONDO_BF16, 32, 9);
}
BOTH_BACKENDS(gemv_codes, every_16_bit_weight_is_exact, check_every_16_bits)
