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
