/* settled.cuh - a load of a settled operand, before the wait for the predecessors (launch.cuh, EARLY). */
#pragma once

#include "launch.cuh"

DEVICE uint32_t load_settled(const void *from) {
  uint32_t word;
  asm volatile("ld.global.nc.u32 %0, [%1];" EARLY : "=r"(word) : "l"(from));
  return word;
}
