/* lane_sums.h - sums of products for oracles, in lanes: four numbers side by side, and four of these. A plain loop
 * would wait for each addition, and arrays of sums would be written to memory in each step. */
#pragma once

#include <stdint.h>
#include <string.h>

typedef double lanes __attribute__((vector_size(32)));
typedef int64_t lanes_bits __attribute__((vector_size(32)));

enum { LANES_WIDTH = 4, LANES_UNROLLED = 16 };

static inline lanes lanes_load(const double *numbers) {
  lanes loaded;
  memcpy(&loaded, numbers, sizeof loaded);
  return loaded;
}

static inline lanes lanes_magnitude(lanes x) { return (lanes)((lanes_bits)x & INT64_MAX); }

static inline double lanes_sum(lanes a, lanes b, lanes c, lanes d) {
  const lanes sum = (a + b) + (c + d);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* The sum of a[i] * b[i], and of its terms' magnitudes. */
static inline double lanes_product(const double *a, const double *b, int64_t count, double *magnitude) {
  lanes sums[LANES_WIDTH] = {0}, sizes[LANES_WIDTH] = {0};
  int64_t i = 0;
  for (; i + LANES_UNROLLED <= count; i += LANES_UNROLLED) {
#pragma GCC unroll 4
    for (int64_t part = 0; part < LANES_WIDTH; part++) {
      const lanes term = lanes_load(a + i + part * LANES_WIDTH) * lanes_load(b + i + part * LANES_WIDTH);
      sums[part] += term, sizes[part] += lanes_magnitude(term);
    }
  }
  double sum = lanes_sum(sums[0], sums[1], sums[2], sums[3]);
  *magnitude = lanes_sum(sizes[0], sizes[1], sizes[2], sizes[3]);
  for (; i < count; i++) {
    const double term = a[i] * b[i];
    sum += term, *magnitude += term < 0 ? -term : term;
  }
  return sum;
}

/* The sum of the magnitudes of a[i]. */
static inline double lanes_size(const double *a, int64_t count) {
  lanes sizes[LANES_WIDTH] = {0};
  int64_t i = 0;
  for (; i + LANES_UNROLLED <= count; i += LANES_UNROLLED) {
#pragma GCC unroll 4
    for (int64_t part = 0; part < LANES_WIDTH; part++)
      sizes[part] += lanes_magnitude(lanes_load(a + i + part * LANES_WIDTH));
  }
  double size = lanes_sum(sizes[0], sizes[1], sizes[2], sizes[3]);
  for (; i < count; i++) size += a[i] < 0 ? -a[i] : a[i];
  return size;
}

/* a[i] += factor * b[i] */
static inline void lanes_add(double *restrict a, const double *restrict b, double factor, int64_t count) {
  int64_t i = 0;
  for (; i + LANES_WIDTH <= count; i += LANES_WIDTH) {
    const lanes sum = lanes_load(a + i) + factor * lanes_load(b + i);
    memcpy(a + i, &sum, sizeof sum);
  }
  for (; i < count; i++) a[i] += factor * b[i];
}
