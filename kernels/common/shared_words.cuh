/* shared_words.cuh - loads and stores of words and numbers in shared memory, by its own addresses: through a generic
 * address each access would first ask which memory it is in. */
#pragma once

#include "device_code.cuh"
#include <stdint.h>

DEVICE uint4 load_four_words(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}
DEVICE void load_four_words(uint32_t from, uint32_t (&v)[4]) {
  const uint4 four = load_four_words(from);
  v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
}
DEVICE uint2 load_two_words(uint32_t from) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(from) : "memory");
  return v;
}
DEVICE uint32_t load_word(uint32_t from) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
  return v;
}
DEVICE uint32_t load_half_word(uint32_t from) {
  uint16_t v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(from) : "memory");
  return v;
}
DEVICE uint32_t load_byte(uint32_t from) {
  uint32_t v;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
  return v;
}
DEVICE float load_number(uint32_t from) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from) : "memory");
  return v;
}
DEVICE void store_number(uint32_t to, float v) { asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(v) : "memory"); }
DEVICE void store_word(uint32_t to, uint32_t v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(v) : "memory");
}
DEVICE void store_half_word(uint32_t to, uint32_t v) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"((uint16_t)v) : "memory");
}
DEVICE void store_two_words(uint32_t to, uint32_t low, uint32_t high) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(to), "r"(low), "r"(high) : "memory");
}
DEVICE void store_two_numbers(uint32_t to, float2 v) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(v.x), "f"(v.y) : "memory");
}
DEVICE void store_four_words(uint32_t to, const uint4 &v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
DEVICE void store_four_numbers(uint32_t to, const float4 &v) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
