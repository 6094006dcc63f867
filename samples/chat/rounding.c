/* rounding.c - see rounding.h. */
#include "rounding.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* Drops the lowest bits of a number, rounding to nearest, ties to even. A carry goes into the exponent. */
static uint32_t drop(uint32_t bits, uint32_t count) {
  return (bits + ((1u << (count - 1)) - 1) + (bits >> count & 1)) >> count;
}

uint16_t to_f16(float value) {
  uint16_t sign = (uint16_t)(signbit(value) ? 0x8000 : 0);
  float magnitude = fabsf(value);
  if (isnan(value)) return 0x7e00;
  if (magnitude >= 65520) return sign | 0x7c00;
  if (magnitude < 0x1p-14f) return sign | (uint16_t)nearbyintf(magnitude * 0x1p24f);
  return (uint16_t)(sign | (drop(bits_of(magnitude), 13) - (112u << 10)));
}

uint8_t to_e4m3(float value) {
  uint8_t sign = signbit(value) ? 0x80 : 0;
  float magnitude = fabsf(value);
  if (isnan(value)) return 0x7f;
  if (magnitude >= E4M3_MAX) return sign | 0x7e;
  if (magnitude < 0x1p-6f) return sign | (uint8_t)nearbyintf(magnitude * 0x1p9f);
  return (uint8_t)(sign | (drop(bits_of(magnitude), 20) - (120u << 3)));
}

float of_e4m3(uint8_t code) {
  uint32_t magnitude = code & 0x7f, bits = (magnitude << 20) + (120u << 23);
  if (magnitude == 0x7f) return NAN;
  float value = (float)magnitude * 0x1p-9f; /* without an exponent */
  if (magnitude >= 8) memcpy(&value, &bits, sizeof value);
  return code & 0x80 ? -value : value;
}

/* A number in the middle of two gets the even code. */
uint8_t to_e2m1(float value) {
  float magnitude = fabsf(value);
  int code = (magnitude > 0.25f) + (magnitude >= 0.75f) + (magnitude > 1.25f) + (magnitude >= 1.75f) +
             (magnitude > 2.5f) + (magnitude >= 3.5f) + (magnitude > 5.0f);
  return (uint8_t)(code | (signbit(value) ? 8 : 0));
}

float of_e2m1(uint8_t code) {
  static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  return values[code & 15];
}
