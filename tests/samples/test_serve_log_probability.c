/* test_serve_log_probability.c - the logarithms of probabilities, beside sums in double precision. */
#include <criterion/criterion.h>
#include <math.h>

#include "../../samples/serve/log_probability.h"
#include "../support.h"

enum { MOST = 50000 };

static float logits[MOST + 1];

static double expected(int64_t count, int32_t token) {
  double largest = (double)logits[0], sum = 0;
  for (int64_t i = 1; i < count; i++) largest = fmax(largest, (double)logits[i]);
  for (int64_t i = 0; i < count; i++) sum += exp((double)logits[i] - largest);
  return (double)logits[token] - largest - log(sum);
}

static void expect_close(int64_t count, int32_t token) {
  const double wanted = expected(count, token), found = (double)log_probability(logits, count, token);
  cr_assert_float_eq(found, wanted, 2e-6 * fmax(1, fabs(wanted)), "token %d of %lld: %.9g, expected %.9g", token,
                     (long long)count, found, wanted);
}

Test(serve_log_probability, is_close_to_double_precision) {
  static const int64_t counts[] = {1, 2, 3, 4, 5, 7, 8, 255, 256, 257, 259, 1000, 49152, MOST};
  static const double spreads[] = {0, 1e-3, 1, 30, 300};
  struct random random = {11};
  for (size_t s = 0; s < sizeof spreads / sizeof *spreads; s++)
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
      const int32_t last = (int32_t)counts[c] - 1;
      for (int64_t i = 0; i < counts[c]; i++)
        logits[i] = (float)(spreads[s] * 1e-6 * (double)random_between(&random, -1000000, 1000000));
      logits[counts[c]] = 1e6F; /* no logit */
      expect_close(counts[c], 0);
      expect_close(counts[c], last);
      expect_close(counts[c], last / 2);
    }
}

Test(serve_log_probability, takes_tokens_that_cannot_be_drawn) {
  for (int i = 0; i < 100; i++) logits[i] = i % 3 ? -INFINITY : -1e30F * (float)i;
  cr_assert_eq(log_probability(logits, 100, 0), 0);
  cr_assert_eq(log_probability(logits, 100, 1), -INFINITY);
  expect_close(100, 99);
}
