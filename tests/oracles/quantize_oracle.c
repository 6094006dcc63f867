/* quantize_oracle.c - see quantize_oracle.h. The search tries every code with the decoders of support.h, so that it has
 * nothing in common with the arithmetic of the library. */
#include "quantize_oracle.h"

#include <math.h>

/* The nearest of the codes 0 to `last`: the even one of two that are as near, and `last` for all larger magnitudes. */
static uint8_t nearest(double magnitude, double (*value)(uint8_t), uint8_t last) {
  uint8_t best = 0;
  if (magnitude >= value(last)) return last;
  for (uint8_t code = 1; code <= last; code++) {
    double distance = fabs(value(code) - magnitude), least = fabs(value(best) - magnitude);
    if (distance < least || (distance == least && code % 2 == 0)) best = code;
  }
  return best;
}

void oracle_block(const double *x, float global_scale, uint8_t *codes, uint8_t *scale) {
  double largest = 0;
  for (int i = 0; i < 16; i++)
    if (!(fabs(x[i]) <= largest)) largest = isnan(largest) ? largest : fabs(x[i]);
  float target = (float)(largest / (double)(float)(6.0 * (double)global_scale));
  *scale = isnan(target) ? 0x7f : nearest((double)target, oracle_e4m3, 0x7e);
  float divisor = (float)(oracle_e4m3(*scale) * (double)global_scale);
  for (int i = 0; i < 16; i++) {
    uint8_t code = 0;
    if (divisor > 0) {
      float quotient = (float)(x[i] / (double)divisor);
      code = (uint8_t)((signbit(quotient) ? 8 : 0) | nearest(fabs((double)quotient), oracle_e2m1, 7));
    }
    codes[i / 2] = (uint8_t)(i % 2 ? codes[i / 2] | code << 4 : code);
  }
}

/* Products of fp32 numbers in fp64 are exact, and quotients round to the fp32 quotient. */
void oracle_row(const double *x, int64_t k, uint8_t *codes, float *scale) {
  double largest = 0;
  for (int64_t i = 0; i < k; i++)
    if (!(fabs(x[i]) <= largest)) largest = isnan(largest) ? largest : fabs(x[i]);
  const bool is_number = largest <= 0x1.fffffep127;
  *scale = is_number ? (float)fmax((double)(float)(largest / 448), 0x1p-126) : NAN;
  const float factor = (float)(1 / (double)*scale);
  for (int64_t i = 0; i < k; i++) codes[i] = is_number ? oracle_to_e4m3((double)(float)(x[i] * (double)factor)) : 0x7f;
}
