/* test_softmax.c - rondo_add_gemm_rowmax, rondo_add_gemm_softmax and rondo_graph_gemm_softmax against fp64.
 *
 * Every case runs both operations and every type of P on the same A and B, in one graph a test, and is replayed twice
 * over poisoned results. Three gates: element by element, a bound on the rounding errors of any order of summation
 * (Higham, Accuracy and Stability, 3.1); over the case, twice the largest error of a plain fp32 evaluation (the rule of
 * FlashAttention's own tests); and where fp64 says NaN, infinity or zero, exactly that. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/gemm_softmax/gemm_softmax.h"
#include "../oracles/gemm_softmax_oracle.h"
#include <rondo_graphs.h>

/* ---- Running ----------------------------------------------------------------------------------------------------- */

enum { POISON = 0xa5 };

static bool inside(const struct place *place, int64_t index) {
  int64_t batch = index / place->stride[0] - place->offset[0];
  int64_t row = index % place->stride[0] / place->stride[1] - place->offset[1];
  int64_t column = index % place->stride[1] - place->offset[2];
  return batch >= 0 && batch < place->extent[0] && row >= 0 && row < place->extent[1] && column >= 0 &&
         column < place->extent[2];
}

/* Outside the rectangle the poison is still there. */
static void surroundings_check(const struct trial_product *t, int result) {
  const struct place *place = &t->results[result];
  uint64_t element_bytes = rondo_dtype_bits(place->dtype) / 8;
  for (uint64_t byte = 0; byte < place->bytes; byte++)
    if (place->data[byte] != POISON)
      cr_assert(inside(place, (int64_t)(byte / element_bytes)), CASE_FORMAT "%s is written outside its view",
                CASE_VALUES(&t->product), result_name[result]);
}

static void results_poison(struct trial_product *products, size_t count, struct trial *trial) {
  for (size_t i = 0; i < count; i++)
    for (int r = 0; r < RESULTS; r++) {
      struct place *place = &products[i].results[r];
      unsigned char *poison = malloc(place->bytes + 1);
      memset(poison, POISON, place->bytes);
      trial_set(trial, place->state, poison);
      free(poison);
    }
}

/* Replays again and compares every byte. */
static void replay_check(struct trial_product *products, size_t count, struct trial *trial) {
  results_poison(products, count, trial);
  trial_replay(trial);
  for (size_t i = 0; i < count; i++)
    for (int r = 0; r < RESULTS; r++) {
      struct place *place = &products[i].results[r];
      unsigned char *again = malloc(place->bytes + 1);
      trial_get(trial, place->state, again);
      cr_assert(memcmp(again, place->data, place->bytes) == 0, CASE_FORMAT "%s has other bits when replayed",
                CASE_VALUES(&products[i].product), result_name[r]);
      free(again);
    }
}

static void products_check(rondo_backend backend, const struct product *list, size_t count, uint64_t seed) {
  struct trial trial;
  struct random random = {seed};
  struct trial_product *products = calloc(count, sizeof *products);
  trial_describe(&trial, backend);
  for (size_t i = 0; i < count; i++) product_add(&products[i], &trial, &list[i]);
  trial_instantiate(&trial);
  for (size_t i = 0; i < count; i++) {
    struct trial_product *t = &products[i];
    place_fill(&t->a, list[i].numbers, false, &random);
    place_fill(&t->b, list[i].numbers, true, &random);
    if (list[i].numbers == SPECIAL) plant_special(t);
    if (list[i].numbers == LATE) plant_late(t);
    trial_set(&trial, t->a.state, t->a.data);
    trial_set(&trial, t->b.state, t->b.data);
  }
  results_poison(products, count, &trial);
  trial_replay(&trial);
  for (size_t i = 0; i < count; i++) {
    for (int r = 0; r < RESULTS; r++) {
      trial_get(&trial, products[i].results[r].state, products[i].results[r].data);
      surroundings_check(&products[i], r);
    }
    product_check(&products[i]);
  }
  replay_check(products, count, &trial);
  trial_end(&trial);
  for (size_t i = 0; i < count; i++) {
    free(products[i].a.data), free(products[i].b.data);
    for (int r = 0; r < RESULTS; r++) free(products[i].results[r].data);
  }
  free(products);
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* A test on both backends. */
#define BOTH(NAME)                                                                                                     \
  Test(softmax, NAME##_host) { NAME(RONDO_BACKEND_HOST); }                                                             \
  Test(softmax, NAME##_cuda) {                                                                                         \
    require_backend(RONDO_BACKEND_CUDA);                                                                               \
    NAME(RONDO_BACKEND_CUDA);                                                                                          \
  }

/* ---- Promises ---------------------------------------------------------------------------------------------------- */

/* Around every edge of a tile: rows, both widths of blocks, depth, and rows of 16 bytes. */
static void gemm_softmax_agrees_with_fp64_at_every_edge(rondo_backend backend) {
  static const int64_t edges[] = {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 200, 300};
  struct product products[3 * COUNT(edges) + 1];
  size_t count = 0;
  for (size_t i = 0; i < COUNT(edges); i++) {
    int64_t edge = edges[i], other = edges[(5 * i + 3) % COUNT(edges)], third = edges[(7 * i + 2) % COUNT(edges)];
    rondo_dtype dtype = i % 2 ? RONDO_BF16 : RONDO_F16, twin = i % 2 ? RONDO_F16 : RONDO_BF16;
    products[count++] = (struct product){.dtype = dtype, .sizes = {1, edge, other, third}, .scale = 0.125f};
    products[count++] = (struct product){.dtype = twin, .sizes = {2, third, edge, other}, .scale = 0.3f};
    products[count++] = (struct product){.dtype = dtype, .sizes = {1, other, third, edge}, .scale = -0.25f};
  }
  products[count++] = (struct product){.dtype = RONDO_BF16, .sizes = {1, 64, 64, 64}, .matrix = true};
  products_check(backend, products, count, 1);
}
BOTH(gemm_softmax_agrees_with_fp64_at_every_edge)

static void gemm_softmax_agrees_with_fp64_at_large_sizes(rondo_backend backend) {
  skip_under_sanitizers();
  static const struct product products[] = {
      {.dtype = RONDO_F16, .sizes = {1, 333, 1023, 130}, .scale = 0.1f},
      {.dtype = RONDO_BF16, .sizes = {1, 130, 1100, 1000}, .scale = 0.03f, .matrix = true},
      {.dtype = RONDO_BF16, .sizes = {3, 257, 640, 64}, .scale = 0.125f, .causal = true},
      {.dtype = RONDO_F16, .sizes = {1, 5, 5003, 72}, .scale = 0.125f},
      {.dtype = RONDO_F16, .sizes = {1, 70, 5000, 72}, .scale = 0.125f},
      {.dtype = RONDO_BF16, .sizes = {1, 200, 2064, 64}, .scale = -0.125f, .causal = true},
      {.dtype = RONDO_BF16, .sizes = {1, 150, 264, 520}, .scale = -0.04f, .causal = true},
  };
  products_check(backend, products, COUNT(products), 2);
}
BOTH(gemm_softmax_agrees_with_fp64_at_large_sizes)

/* More rows than there are clusters for, so that each takes tiles one after the other: with rows of every width that a
 * cluster holds, and with wider ones, which come twice. The host, which knows no clusters, has enough of four tiles. */
static void gemm_softmax_takes_many_tiles_of_rows(rondo_backend backend) {
  skip_under_sanitizers();
  static const struct product products[] = {
      {.dtype = RONDO_BF16, .sizes = {40, 330, 264, 64}, .scale = 0.125f},
      {.dtype = RONDO_F16, .sizes = {31, 130, 1032, 72}, .scale = 0.1f, .causal = true},
      {.dtype = RONDO_BF16, .sizes = {16, 200, 2056, 64}, .scale = 0.125f},
      {.dtype = RONDO_F16, .sizes = {7, 1000, 520, 136}, .scale = 0.08f},
      {.dtype = RONDO_BF16, .sizes = {70, 200, 136, 200}, .scale = 0.05f, .causal = true},
      {.dtype = RONDO_F16, .sizes = {8, 330, 1104, 136}, .scale = 0.1f, .causal = true},
      {.dtype = RONDO_BF16, .sizes = {2, 2000, 520, 136}, .scale = 0.1f, .causal = true},
      {.dtype = RONDO_F16, .sizes = {1, 4000, 1000, 136}, .scale = 0.1f},
      {.dtype = RONDO_BF16, .sizes = {1, 1537, 2056, 128}, .scale = 0.1f, .causal = true},
      {.dtype = RONDO_F16, .sizes = {3, 500, 1152, 104}, .scale = -0.1f},
      {.dtype = RONDO_BF16, .sizes = {1, 1537, 2176, 64}, .scale = 0.125f},
      {.dtype = RONDO_F16, .sizes = {1, 2001, 4096, 40}, .scale = 0.125f},
  };
  struct product some[COUNT(products)];
  for (size_t i = 0; i < COUNT(products); i++) {
    some[i] = products[i];
    if (backend == RONDO_BACKEND_HOST) some[i].sizes.batch = 1 + (int64_t)i % 2, some[i].sizes.m = 113;
  }
  products_check(backend, some, COUNT(some), 11);
}
BOTH(gemm_softmax_takes_many_tiles_of_rows)

static void gemm_softmax_counts_causal_columns_from_the_bottom_right(rondo_backend backend) {
  static const struct sizes sizes[] = {{1, 1, 1, 16},    {2, 64, 64, 64},   {1, 65, 130, 33}, {1, 130, 65, 32},
                                       {1, 200, 3, 16},  {1, 3, 300, 48},   {1, 129, 129, 8}, {2, 128, 256, 64},
                                       {1, 256, 127, 7}, {1, 300, 301, 64}, {1, 70, 69, 20},  {1, 17, 128, 100}};
  struct product products[COUNT(sizes)];
  for (size_t i = 0; i < COUNT(sizes); i++)
    products[i] = (struct product){
        .dtype = i % 2 ? RONDO_F16 : RONDO_BF16, .sizes = sizes[i], .scale = 0.2f, .causal = true, .matrix = i == 4};
  products_check(backend, products, COUNT(products), 3);
}
BOTH(gemm_softmax_counts_causal_columns_from_the_bottom_right)

/* What surrounds A and B is NaN and must not leak in; what surrounds the results must stay. */
static void gemm_softmax_keeps_to_its_views(rondo_backend backend) {
  static const struct product products[] = {
      {.dtype = RONDO_F16, .sizes = {2, 65, 70, 64}, .scale = 0.2f, .border = 8},
      {.dtype = RONDO_BF16, .sizes = {2, 65, 70, 64}, .scale = 0.2f, .border = 1},
      {.dtype = RONDO_F16, .sizes = {1, 33, 129, 61}, .scale = 0.2f, .border = 8, .causal = true},
      {.dtype = RONDO_BF16, .sizes = {3, 40, 63, 130}, .scale = 0.2f, .border = 3, .causal = true},
      {.dtype = RONDO_F16, .sizes = {1, 64, 128, 64}, .border = 2, .matrix = true},
      {.dtype = RONDO_BF16, .sizes = {1, 70, 33, 24}, .border = 8, .matrix = true, .causal = true},
      {.dtype = RONDO_BF16, .sizes = {2, 65, 270, 60}, .scale = 0.2f, .border = 8},
      {.dtype = RONDO_BF16, .sizes = {2, 65, 264, 56}, .scale = 0.2f, .border = 8},
      {.dtype = RONDO_F16, .sizes = {2, 130, 272, 136}, .scale = 0.1f, .border = 8, .causal = true},
      {.dtype = RONDO_BF16, .sizes = {2, 70, 2080, 64}, .scale = 0.2f, .border = 8},
      {.dtype = RONDO_F16, .sizes = {1, 70, 1280, 128}, .scale = 0.1f, .border = 8},
      {.dtype = RONDO_BF16, .sizes = {2, 70, 2176, 64}, .scale = 0.1f, .border = 8},
  };
  products_check(backend, products, COUNT(products), 4);
}
BOTH(gemm_softmax_keeps_to_its_views)

static void gemm_softmax_takes_any_batch(rondo_backend backend) {
  static const struct product products[] = {
      {.dtype = RONDO_F16, .sizes = {70000, 1, 3, 5}},
      {.dtype = RONDO_BF16, .sizes = {300, 17, 20, 16}, .scale = 0.5f, .causal = true},
  };
  products_check(backend, products, COUNT(products), 5);
}
BOTH(gemm_softmax_takes_any_batch)

static void gemm_softmax_survives_large_logits(rondo_backend backend) {
  static const struct product products[] = {
      {.dtype = RONDO_F16, .sizes = {1, 70, 300, 64}, .scale = 100},
      {.dtype = RONDO_BF16, .sizes = {1, 64, 64, 128}, .scale = 1e4f},
      {.dtype = RONDO_BF16, .sizes = {1, 64, 200, 64}, .scale = 1e30f},
      {.dtype = RONDO_F16, .sizes = {1, 64, 500, 64}, .scale = 3, .numbers = INCREASING},
      {.dtype = RONDO_BF16, .sizes = {1, 64, 500, 64}, .scale = 3, .numbers = INCREASING, .causal = true},
      {.dtype = RONDO_F16, .sizes = {1, 64, 500, 64}, .scale = 3, .numbers = DECREASING},
      {.dtype = RONDO_BF16, .sizes = {1, 30, 333, 40}, .scale = 5, .numbers = EQUAL},
      {.dtype = RONDO_F16, .sizes = {1, 30, 50, 40}, .scale = 1e-30f},
      {.dtype = RONDO_BF16, .sizes = {1, 64, 1040, 64}, .scale = 1e30f},
      {.dtype = RONDO_BF16, .sizes = {1, 64, 1200, 136}, .scale = -1e4f},
      {.dtype = RONDO_F16, .sizes = {1, 64, 1152, 64}, .scale = 100},
      {.dtype = RONDO_BF16, .sizes = {1, 64, 2176, 128}, .scale = -1e4f},
      {.dtype = RONDO_BF16, .sizes = {1, 200, 1280, 64}, .scale = 1e30f},
      {.dtype = RONDO_BF16, .sizes = {1, 100, 1152, 64}, .scale = 3},
      {.dtype = RONDO_F16, .sizes = {1, 64, 2176, 64}, .scale = 3, .numbers = INCREASING},
      {.dtype = RONDO_BF16, .sizes = {1, 64, 1152, 128}, .scale = 3, .numbers = DECREASING},
      {.dtype = RONDO_F16, .sizes = {1, 64, 1280, 40}, .scale = 5, .numbers = EQUAL},
      {.dtype = RONDO_F16, .sizes = {1, 64, 2064, 64}, .scale = 3, .numbers = INCREASING},
      {.dtype = RONDO_BF16, .sizes = {1, 64, 1200, 136}, .scale = 3, .numbers = INCREASING, .causal = true},
  };
  products_check(backend, products, COUNT(products), 6);
}
BOTH(gemm_softmax_survives_large_logits)

/* From logits that lie near what they are counted from to those that lie far from it. */
static void gemm_softmax_takes_logits_of_any_deviation(rondo_backend backend) {
  skip_under_sanitizers();
  static const float deviations[] = {1, 4, 8, 12, 16, 24, 32, 64, 200};
  static const struct sizes sizes[] = {{1, 97, 1152, 64}, {1, 200, 4096, 64}, {1, 97, 4096, 128}, {2, 70, 1280, 120}};
  struct product products[COUNT(deviations) * COUNT(sizes)];
  for (size_t i = 0; i < COUNT(products); i++) {
    const struct sizes *size = &sizes[i % COUNT(sizes)];
    products[i] = (struct product){.dtype = i / COUNT(sizes) % 2 ? RONDO_F16 : RONDO_BF16,
                                   .sizes = *size,
                                   .scale = deviations[i / COUNT(sizes)] / sqrtf((float)size->k)};
    if (i % 3 == 2) products[i].scale *= -1;
    if (backend == RONDO_BACKEND_HOST) products[i].sizes.m = 20;
  }
  products_check(backend, products, COUNT(products), 13);
}
BOTH(gemm_softmax_takes_logits_of_any_deviation)

/* A bound on logits from the lengths of rows is far off, infinite, not a number, or zero where it should not be. */
static void gemm_softmax_does_not_depend_on_the_lengths_of_rows(rondo_backend backend) {
  static const struct product products[] = {
      {.dtype = RONDO_BF16, .sizes = {1, 100, 1152, 64}, .scale = 0.1f, .numbers = ONE_SIDED},
      {.dtype = RONDO_F16, .sizes = {1, 70, 2176, 128}, .scale = -0.1f, .numbers = ONE_SIDED},
      {.dtype = RONDO_BF16, .sizes = {1, 64, 1280, 128}, .scale = 0.1f, .numbers = TOO_LONG},
      {.dtype = RONDO_BF16, .sizes = {2, 40, 2176, 64}, .scale = -0.1f, .numbers = TOO_LONG},
      {.dtype = RONDO_BF16, .sizes = {1, 64, 1152, 128}, .scale = 0x1p28f, .numbers = TOO_SHORT},
      {.dtype = RONDO_BF16, .sizes = {1, 64, 2176, 64}, .scale = -0x1p33f, .numbers = TOO_SHORT},
  };
  products_check(backend, products, COUNT(products), 12);
}
BOTH(gemm_softmax_does_not_depend_on_the_lengths_of_rows)

/* A NaN or +infinity among the columns that count makes the row NaN, as does -infinity in all of them; one that does
 * not count changes nothing, and P is 0 there. The maximum of a row with NaN is NaN. */
static void gemm_softmax_keeps_nan_and_infinity_in_their_rows(rondo_backend backend) {
  static const struct product products[] = {
      {.dtype = RONDO_F16, .sizes = {1, 40, 50, 32}, .numbers = SPECIAL},
      {.dtype = RONDO_BF16, .sizes = {2, 40, 200, 33}, .numbers = SPECIAL},
      {.dtype = RONDO_F16, .sizes = {1, 100, 300, 64}, .scale = 0.1f, .numbers = SPECIAL, .causal = true},
      {.dtype = RONDO_BF16, .sizes = {1, 100, 60, 65}, .scale = 0.1f, .numbers = SPECIAL, .causal = true},
      {.dtype = RONDO_F16, .sizes = {1, 20, 300, 24}, .numbers = LATE},
      {.dtype = RONDO_BF16, .sizes = {1, 200, 200, 9}, .numbers = LATE, .causal = true},
      {.dtype = RONDO_F16, .sizes = {1, 100, 1040, 64}, .scale = 0.1f, .numbers = SPECIAL, .causal = true},
      {.dtype = RONDO_BF16, .sizes = {2, 40, 1200, 136}, .scale = 0.1f, .numbers = SPECIAL},
      {.dtype = RONDO_BF16, .sizes = {2, 40, 1152, 64}, .scale = 0.1f, .numbers = SPECIAL},
      {.dtype = RONDO_F16, .sizes = {1, 100, 2176, 128}, .scale = 0.1f, .numbers = SPECIAL},
      {.dtype = RONDO_F16, .sizes = {1, 20, 304, 24}, .numbers = LATE},
      {.dtype = RONDO_F16, .sizes = {1, 20, 1280, 24}, .numbers = LATE},
      {.dtype = RONDO_BF16, .sizes = {1, 20, 264, 136}, .scale = 0.1f, .numbers = LATE},
  };
  products_check(backend, products, COUNT(products), 7);
}
BOTH(gemm_softmax_keeps_nan_and_infinity_in_their_rows)

/* Without rows there is nothing to do; without columns the maximum is -infinity; without k all logits are 0. */
static void gemm_softmax_takes_sizes_of_zero(rondo_backend backend) {
  static const struct product products[] = {
      {.dtype = RONDO_F16, .sizes = {0, 5, 6, 7}},
      {.dtype = RONDO_F16, .sizes = {2, 0, 6, 7}},
      {.dtype = RONDO_BF16, .sizes = {2, 5, 0, 7}},
      {.dtype = RONDO_BF16, .sizes = {2, 5, 0, 7}, .causal = true},
      {.dtype = RONDO_F16, .sizes = {2, 70, 200, 0}},
      {.dtype = RONDO_F16, .sizes = {1, 70, 30, 0}, .causal = true, .matrix = true},
      {.dtype = RONDO_BF16, .sizes = {0, 0, 0, 0}},
  };
  products_check(backend, products, COUNT(products), 8);
}
BOTH(gemm_softmax_takes_sizes_of_zero)

/* The ready-made graph, with B filled in and with B constant. */
static void gemm_softmax_graph_agrees_with_fp64(rondo_backend backend) {
  enum { BATCH = 2, M = 37, N = 150, K = 24 };
  static uint16_t a[BATCH * M * K], b[BATCH * N * K];
  static float p[BATCH * M * N];
  struct random random = {9};
  for (size_t i = 0; i < COUNT(a); i++) a[i] = oracle_to_bf16(random_normal(&random));
  for (size_t i = 0; i < COUNT(b); i++) b[i] = oracle_to_bf16(random_normal(&random));
  for (int constant = 0; constant < 2; constant++) {
    struct trial trial;
    rondo_graph_gemm_softmax_tensors tensors;
    trial_describe(&trial, backend);
    REQUIRE_OK(rondo_graph_gemm_softmax(trial.graph,
                                        &(rondo_graph_gemm_softmax_desc){.dtype = RONDO_BF16,
                                                                         .p_dtype = RONDO_F32,
                                                                         .batch = BATCH,
                                                                         .m = M,
                                                                         .n = N,
                                                                         .k = K,
                                                                         .scale = 0.2f,
                                                                         .causal = 1,
                                                                         .b_constant = constant},
                                        &tensors));
    trial_instantiate(&trial);
    cr_assert((rondo_data(trial.slot, tensors.b) == NULL) == constant);
    trial_set(&trial, tensors.a, a);
    trial_set(&trial, tensors.b, b);
    trial_replay(&trial);
    trial_get(&trial, tensors.p, p);
    for (int64_t row = 0; row < (int64_t)BATCH * M; row++) {
      int64_t batch = row / M, counted = row % M + N - M + 1;
      double e[N], sum = 0;
      for (int64_t j = 0; j < counted; j++) {
        double s = 0;
        for (int64_t k = 0; k < K; k++) s += oracle_bf16(a[row * K + k]) * oracle_bf16(b[(batch * N + j) * K + k]);
        sum += e[j] = exp((double)0.2f * s);
      }
      for (int64_t j = 0; j < N; j++) {
        double expected = j < counted ? e[j] / sum : 0;
        cr_assert(fabs((double)p[row * N + j] - expected) <= 1e-5 * expected, "row %lld, column %lld: %g, expected %g",
                  (long long)row, (long long)j, (double)p[row * N + j], expected);
      }
    }
    trial_end(&trial);
  }
}
BOTH(gemm_softmax_graph_agrees_with_fp64)

Test(softmax, gemm_softmax_has_the_same_bits_for_any_number_of_threads) {
  enum { M = 300, N = 170, K = 50 };
  static uint16_t a[M * K], b[N * K];
  static unsigned char p[sizeof(float) * M * N], first[sizeof p];
  struct random random = {10};
  for (size_t i = 0; i < COUNT(a); i++) a[i] = oracle_to_f16(random_normal(&random));
  for (size_t i = 0; i < COUNT(b); i++) b[i] = oracle_to_f16(random_normal(&random));
  for (uint32_t threads = 1; threads <= 5; threads++) {
    struct trial trial;
    rondo_graph_gemm_softmax_tensors tensors;
    trial_describe(&trial, RONDO_BACKEND_HOST);
    trial.host_threads = threads;
    REQUIRE_OK(rondo_graph_gemm_softmax(
        trial.graph,
        &(rondo_graph_gemm_softmax_desc){.dtype = RONDO_F16, .p_dtype = RONDO_F32, .batch = 1, .m = M, .n = N, .k = K},
        &tensors));
    trial_instantiate(&trial);
    trial_set(&trial, tensors.a, a);
    trial_set(&trial, tensors.b, b);
    trial_replay(&trial);
    trial_get(&trial, tensors.p, threads == 1 ? first : p);
    if (threads > 1) cr_assert(memcmp(p, first, sizeof p) == 0, "%u threads give other bits than one", threads);
    trial_end(&trial);
  }
}
