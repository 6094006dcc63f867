/* settled.cuh - loads of settled operands, before the wait for the predecessors (launch.cuh, EARLY). */
#pragma once

#include "launch.cuh"

DEVICE uint32_t load_settled(const void *from) {
  uint32_t word;
  asm volatile("ld.global.nc.u32 %0, [%1];" EARLY : "=r"(word) : "l"(from));
  return word;
}

/* From a multiple of 16 bytes. */
DEVICE uint4 load_settled_vector(const void *from) {
  uint4 words;
  asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" EARLY
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from));
  return words;
}
