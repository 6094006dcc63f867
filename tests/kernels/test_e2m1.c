/* test_e2m1.c - the decoding of e2m1 codes to f16, bit by bit, against the table of support.h. On the host it runs the
 * lines for chips without an instruction for it; on the device, the lines of that chip. */
#include <criterion/criterion.h>
#include <math.h>

#include "../support.h"
#include "every_e2m1.h"

extern const unsigned char every_e2m1_fatbin[], every_e2m1_fatbin_end[];

static void decode_on_host(void *user, void *const *data) {
  (void)user;
  every_e2m1(0, 1, data[0], data[1]);
}

static uint16_t half_of(const uint32_t *pairs, int place) {
  return (uint16_t)(pairs[place / 2] >> (place % 2 ? 16 : 0));
}

static void check_every_pair_of_bytes(rondo_backend backend) {
  struct trial trial;
  rondo_tensor pairs, layout;
  trial_describe(&trial, backend);
  REQUIRE_OK(rondo_output(trial.graph, "pairs", RONDO_I32, 2, (int64_t[]){EVERY_E2M1_WORDS, 4}, &pairs));
  REQUIRE_OK(rondo_output(trial.graph, "layout", RONDO_I32, 1, (int64_t[]){sizeof(struct e2m1_layout) / 4}, &layout));
  rondo_argument arguments[] = {{.tensor = pairs, .access = RONDO_WRITE}, {.tensor = layout, .access = RONDO_WRITE}};
  size_t image_bytes = (size_t)(every_e2m1_fatbin_end - every_e2m1_fatbin);
  REQUIRE_OK(rondo_add_kernel(trial.graph, &(rondo_kernel_desc){.image = image_bytes ? every_e2m1_fatbin : NULL,
                                                                .image_bytes = image_bytes,
                                                                .function = "every_e2m1_kernel",
                                                                .block = {256, 1, 1},
                                                                .host = decode_on_host,
                                                                .arguments = arguments,
                                                                .argument_count = 2}));
  trial_instantiate(&trial);
  trial_replay(&trial);
  const struct e2m1_layout *of = trial_output(&trial, layout);
  const uint32_t *decoded = trial_output(&trial, pairs);
  unsigned seen = 0;
  for (int place = 0; place < 8; place++) {
    seen |= 1u << of->elements[place];
    cr_assert(half_of(of->ordered, place) == of->elements[place], "place %d: %d is decoded there, %d is put there",
              place, of->elements[place], half_of(of->ordered, place));
  }
  cr_assert(seen == 0xff, "an element has no place");
  for (uint32_t i = 0; i < EVERY_E2M1_WORDS; i++)
    for (int place = 0; place < 8; place++) {
      uint32_t word = every_e2m1_word(i);
      double expected = ldexp(oracle_e2m1((uint8_t)(word >> 4 * of->elements[place] & 15)), of->exponent);
      uint16_t got = half_of(decoded + (size_t)4 * i, place);
      cr_assert(got == oracle_to_f16(expected), "codes %#x, place %d: %#x is %g, expected %g", word, place, got,
                oracle_f16(got), expected);
    }
  trial_end(&trial);
}
BOTH_BACKENDS(e2m1, every_pair_of_bytes_decodes_to_its_values, check_every_pair_of_bytes)

/* On the host alone: the same lines on all chips. */
Test(e2m1, every_pair_of_bytes_decodes_to_its_values_in_bf16) {
  const uint32_t numbers[4] = {0x10000, 0x30002, 0x50004, 0x70006};
  uint32_t ordered[4], pairs[4];
  order_as_bf16(numbers, ordered);
  for (uint32_t i = 0; i < EVERY_E2M1_WORDS; i++) {
    const uint32_t word = every_e2m1_word(i);
    decode_e2m1_bf16(word, pairs);
    for (int place = 0; place < 8; place++) {
      const uint16_t expected =
          oracle_to_bf16(ldexp(oracle_e2m1((uint8_t)(word >> 4 * half_of(ordered, place) & 15)), -126));
      cr_assert(half_of(pairs, place) == expected, "codes %#x, place %d: %#x, expected %#x", word, place,
                half_of(pairs, place), expected);
    }
  }
}
