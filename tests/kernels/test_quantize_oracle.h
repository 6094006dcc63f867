/* test_quantize_oracle.h - the bytes that a block of 16 values becomes in NVFP4: the nearest code is searched for. */
#ifndef RONDO_TEST_QUANTIZE_ORACLE_H
#define RONDO_TEST_QUANTIZE_ORACLE_H

#include <math.h>

#include "../support.h"

/* The nearest of the codes 0 .. last, ties to the even code, beyond the last the last. */
static inline uint8_t nearest(double magnitude, double (*value)(uint8_t), uint8_t last) {
  uint8_t best = 0;
  if (magnitude >= value(last)) return last;
  for (uint8_t code = 1; code <= last; code++) {
    double distance = fabs(value(code) - magnitude), least = fabs(value(best) - magnitude);
    if (distance < least || (distance == least && code % 2 == 0)) best = code;
  }
  return best;
}

/* A quotient of floats, rounded once more from double to float, is the correctly rounded one (Figueroa 1995). */
static inline void oracle_block(const double *x, float global_scale, uint8_t *codes, uint8_t *scale) {
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

#endif
