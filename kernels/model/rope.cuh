/* rope.cuh - the sine and cosine of a rotary embedding's angle, and the rotation of a pair.
 *
 * The angle is an fp32 number of any size, and is taken as exact. The function subtracts the nearest multiple of pi/2
 * in two fused steps of fp64 (Cody and Waite, Software Manual for the Elementary Functions, 1980). The first step is
 * exact below 2^52 quarter turns. The remainder, pi/4 at most, is accurate to the last bits of fp32. The polynomials
 * are those of Moshier's Cephes (sinf, cosf). There is no table and no branch; CUDA's sinf keeps a table in local
 * memory. The same steps in fp32 would be exact to 2^17 only. */
#pragma once

#include <stdint.h>

#include "../common/device_code.cuh"

struct rotation {
  float sine, cosine;
};

DEVICE rotation rotation_of(float angle) {
  const double exact = angle, quarters = rint(exact * 0x1.45f306dc9c883p-1); /* 2 / pi */
  const float r = (float)fma(quarters, -0x1.1a62633145c07p-54, fma(quarters, -0x1.921fb54442d18p+0, exact));
  const uint32_t quadrant = (uint32_t)__double2ll_rn(quarters) & 3u;
  const float square = r * r;
  float sine = fmaf(fmaf(-1.9515295891e-4f, square, 8.3321608736e-3f), square, -1.6666654611e-1f);
  sine = fmaf(sine * square, r, r);
  float cosine = fmaf(fmaf(2.443315711809948e-5f, square, -1.388731625493765e-3f), square, 4.166664568298827e-2f);
  cosine = fmaf(cosine * square, square, fmaf(-0.5f, square, 1.0f));
  const float s = quadrant & 1u ? cosine : sine, c = quadrant & 1u ? sine : cosine;
  return {quadrant & 2u ? -s : s, quadrant + 1u & 2u ? -c : c};
}

/* Rotates the pair (low, high) in place. */
DEVICE void rotate_pair(const rotation &by, float &low, float &high) {
  const float rotated = __fmaf_rn(low, by.cosine, -(high * by.sine));
  high = __fmaf_rn(high, by.cosine, low * by.sine);
  low = rotated;
}
