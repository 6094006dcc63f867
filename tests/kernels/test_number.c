/* test_number.c - kernels/common/number.h, code by code, against the tables of support.h. */
#include "../../kernels/common/number.h"

#include <criterion/criterion.h>

#include "../support.h"

static void check_equal(double got, double expected, uint32_t code, const char *what) {
  if (isnan(expected)) {
    cr_assert(isnan(got), "%s: code %#x is %g, expected NaN", what, code, got);
  } else {
    cr_assert(got == expected && signbit(got) == signbit(expected), "%s: code %#x is %a, expected %a", what, code, got,
              expected);
  }
}

Test(number, every_code_decodes_to_its_value) {
  for (uint32_t code = 0; code < 65536; code++) {
    check_equal((double)f32_of_f16((uint16_t)code), oracle_f16((uint16_t)code), code, "f16");
    check_equal((double)f32_of_bf16((uint16_t)code), oracle_bf16((uint16_t)code), code, "bf16");
  }
  for (uint32_t code = 0; code < 256; code++)
    check_equal((double)f32_of_e4m3((uint8_t)code), oracle_e4m3((uint8_t)code), code, "e4m3");
  for (uint32_t code = 0; code < 16; code++)
    check_equal((double)f32_of_e2m1((uint8_t)code), oracle_e2m1((uint8_t)code), code, "e2m1");
}

Test(number, every_code_survives_the_round_trip) {
  for (uint32_t code = 0; code < 65536; code++) {
    if (!isnan(oracle_f16((uint16_t)code))) cr_assert_eq(f16_of_f32(f32_of_f16((uint16_t)code)), code, "f16 %#x", code);
    if (!isnan(oracle_bf16((uint16_t)code)))
      cr_assert_eq(bf16_of_f32(f32_of_bf16((uint16_t)code)), code, "bf16 %#x", code);
  }
  for (uint32_t code = 0; code < 256; code++)
    cr_assert_eq(e4m3_of_f32(f32_of_e4m3((uint8_t)code)), code, "e4m3 %#x", code);
  for (uint32_t code = 0; code < 16; code++)
    cr_assert_eq(e2m1_of_f32(f32_of_e2m1((uint8_t)code)), code, "e2m1 %#x", code);
}

/* The nearest of the codes 0 .. last by search, ties to the even code: another road than rounding in the bits. */
static uint32_t nearest(double magnitude, double (*value)(uint8_t), uint32_t last) {
  uint32_t best = 0;
  for (uint32_t code = 1; code <= last; code++) {
    double distance = fabs(value((uint8_t)code) - magnitude), least = fabs(value((uint8_t)best) - magnitude);
    if (distance < least || (distance == least && code % 2 == 0)) best = code;
  }
  return best;
}

static void check_rounding(float value) {
  double magnitude = fabs((double)value);
  uint32_t sign = signbit(value) ? 1 : 0;
  cr_assert_eq(f16_of_f32(value), oracle_to_f16((double)value), "f16 of %a", (double)value);
  cr_assert_eq(bf16_of_f32(value), oracle_to_bf16((double)value), "bf16 of %a", (double)value);
  cr_assert_eq(e4m3_of_f32(value), sign << 7 | nearest(fmin(magnitude, 448), oracle_e4m3, 0x7e), "e4m3 of %a",
               (double)value);
  cr_assert_eq(e2m1_of_f32(value), sign << 3 | nearest(fmin(magnitude, 6), oracle_e2m1, 7), "e2m1 of %a",
               (double)value);
}

/* A value, and the floats right below and above it. */
static void check_around(double value) {
  float middle = (float)value;
  check_rounding(middle);
  check_rounding(-middle);
  check_rounding(nextafterf(middle, 0));
  check_rounding(nextafterf(-middle, -INFINITY));
}

Test(number, halfway_points_go_to_the_even_code) {
  for (uint32_t code = 0; code + 1 <= 0x7e; code++)
    check_around((oracle_e4m3((uint8_t)code) + oracle_e4m3((uint8_t)(code + 1))) / 2);
  for (uint32_t code = 0; code + 1 <= 7; code++)
    check_around((oracle_e2m1((uint8_t)code) + oracle_e2m1((uint8_t)(code + 1))) / 2);
  for (uint32_t code = 0; code + 1 <= 0x7bff; code += 7)
    check_around((oracle_f16((uint16_t)code) + oracle_f16((uint16_t)(code + 1))) / 2);
  for (uint32_t code = 0; code + 1 <= 0x7f7f; code += 7)
    check_around((oracle_bf16((uint16_t)code) + oracle_bf16((uint16_t)(code + 1))) / 2);
}

Test(number, rounding_is_to_nearest_and_saturates) {
  static const double edges[] = {0, 0x1p-149, 0x1p-126, 6, 448, 464, 65504, 65520, 65536, 0x1p127, 0x1.fffffep127};
  for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) check_around(edges[i]);
  check_rounding(INFINITY);
  check_rounding(-INFINITY);
  struct random random = {.state = 1};
  for (int i = 0; i < 200000; i++) {
    float value = f32_of_bits((uint32_t)random_bits(&random));
    if (!isnan(value)) check_rounding(value);
    check_rounding((float)(random_normal(&random) * exp2(12 * random_normal(&random))));
  }
}

Test(number, nan_stays_nan_where_the_format_has_one) {
  static const uint32_t nans[] = {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xff800001u, 0x7fffffffu};
  for (size_t i = 0; i < sizeof nans / sizeof nans[0]; i++) {
    float value = f32_of_bits(nans[i]);
    cr_assert(isnan(oracle_f16(f16_of_f32(value))), "f16 of %#x", nans[i]);
    cr_assert(isnan(oracle_bf16(bf16_of_f32(value))), "bf16 of %#x", nans[i]);
    cr_assert(isnan(oracle_e4m3(e4m3_of_f32(value))), "e4m3 of %#x", nans[i]);
  }
  cr_assert_eq(e2m1_of_f32(f32_of_bits(0x7fc00000u)), 7, "e2m1 has no NaN: it saturates");
}
