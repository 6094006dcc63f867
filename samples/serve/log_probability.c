/* log_probability.c - see log_probability.h. It keeps all sequences waiting between two steps, and so it takes four
 * logits at a time: 128,256 take 0.17 ms, by expf 0.55. */
#include "log_probability.h"

#include <math.h>
#include <string.h>

enum { LANES = 4, BLOCK = 256 };
typedef float floats __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t ints __attribute__((vector_size(LANES * sizeof(int32_t))));

static floats load(const float *from) {
  floats numbers;
  memcpy(&numbers, from, sizeof numbers);
  return numbers;
}

static float largest_of(const float *logits, int64_t count) {
  float largest = logits[0];
  floats highest = {largest, largest, largest, largest};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) highest = __builtin_ia32_maxps(highest, load(logits + i));
  for (; i < count; i++) largest = fmaxf(largest, logits[i]);
  for (int lane = 0; lane < LANES; lane++) largest = fmaxf(largest, highest[lane]);
  return largest;
}

/* e^x for x of at most 0, to 2^-21; below -87 that of -87. The whole part of x / ln 2 goes into the exponent's bits,
 * and the rest, at most a half, into the series. */
static floats exp_of(floats x) {
  const floats least = {-87, -87, -87, -87};
  const floats exponent = __builtin_ia32_maxps(x, least) * 1.44269504F;
  const floats shifted = exponent + 0x1.8p23F; /* rounds to an integer, which is in the lowest bits */
  const floats rest = (exponent - (shifted - 0x1.8p23F)) * 0.693147181F;
  const floats power = (floats)(((ints)shifted << 23) + 0x3f800000);
  const floats high = 1.0F / 24 + rest * (1.0F / 120 + rest * (1.0F / 720));
  return power * (1 + rest * (1 + rest * (0.5F + rest * (1.0F / 6 + rest * high))));
}

float log_probability(const float *logits, int64_t count, int32_t token) {
  const float largest = largest_of(logits, count);
  double sum = 0;
  int64_t i = 0;
  while (i + LANES <= count) {
    const int64_t end = i + BLOCK < count ? i + BLOCK : count;
    floats part = {0};
    for (; i + LANES <= end; i += LANES) part += exp_of(load(logits + i) - largest);
    sum += (double)part[0] + (double)part[1] + (double)part[2] + (double)part[3];
  }
  for (; i < count; i++) sum += (double)expf(logits[i] - largest);
  return logits[token] - largest - (float)log(sum);
}
