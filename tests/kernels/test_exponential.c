/* test_exponential.c - the host's exponentials against the C library's in fp64. */
#include "../../kernels/common/exponential.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>

static float of_2(float x) { return _mm256_cvtss_f32(exponential_2(_mm256_set1_ps(x))); }
static float of_e(float x) { return _mm256_cvtss_f32(exponential_e(_mm256_set1_ps(x))); }

static void check(float x, float got, double exact) {
  const double least = 0x1p-126, error = exact * 0x1p-22 + (exact < least ? 0x1p-149 : 0);
  if (exact > 0x1.fffffp127)
    cr_assert(got >= 0x1.fffff0p127f, "x is %a: %a", (double)x, (double)got);
  else
    cr_assert(fabs((double)got - exact) <= error, "x is %a: %a, expected %a", (double)x, (double)got, exact);
}

Test(exponential, is_within_its_bound) {
  for (int32_t i = -1600000; i <= 1350000; i += 7) {
    const float x = (float)i * 1e-4f;
    check(x, of_2(x), exp2((double)x));
    check(x, of_e(x), exp((double)x));
  }
}

Test(exponential, takes_nan_and_infinities) {
  cr_assert(isnan(of_2(NAN)) && isnan(of_e(NAN)));
  cr_assert(of_2(-INFINITY) == 0 && of_e(-INFINITY) == 0 && of_2(-1e30f) == 0 && of_e(-1e30f) == 0);
  cr_assert(isinf(of_2(INFINITY)) && isinf(of_e(INFINITY)) && isinf(of_e(1e30f)));
  cr_assert(of_2(0) == 1 && of_e(0) == 1);
}
