/* every_e2m1.h - decodes every pair of bytes with kernels/gemv/e2m1.cuh, on the host and on the device alike. */
#pragma once

#include "../../kernels/gemv/e2m1.cuh"

enum { EVERY_E2M1_WORDS = 65536 };

struct e2m1_layout {
  int32_t exponent;
  int32_t elements[8]; /* of the halves, in their order */
  uint32_t ordered[4]; /* the numbers 0 to 7 in order_as_e2m1's order */
};

/* Each byte of the words goes through all values beside all values of another. */
E2M1_FUNCTION uint32_t every_e2m1_word(uint32_t i) { return i | (i * 40503u & 0xffffu) << 16; }

/* Every `step`-th word's eight halves; of one caller also the layout. */
E2M1_FUNCTION void every_e2m1(uint32_t first, uint32_t step, uint32_t *pairs, struct e2m1_layout *layout) {
  for (uint32_t i = first; i < EVERY_E2M1_WORDS; i += step) decode_e2m1(every_e2m1_word(i), pairs + (size_t)4 * i);
  if (first) return;
  const uint32_t numbers[4] = {0x10000, 0x30002, 0x50004, 0x70006};
  layout->exponent = E2M1_EXPONENT;
  for (int place = 0; place < 8; place++) layout->elements[place] = e2m1_element(place);
  order_as_e2m1(numbers, layout->ordered);
}
