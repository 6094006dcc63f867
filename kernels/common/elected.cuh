/* elected.cuh - the choice of a warp's lane that asks for copies and arrives at barriers (PTX ISA, elect.sync). */
#pragma once

#include "device_code.cuh"
#include <stdint.h>

/* One lane of a warp whose lanes are all here, and always the same. Of what follows it ptxas knows that it is of one
 * lane: where it must think that lanes differ, it puts a loop over them around each copy and each barrier's init. */
DEVICE bool elected() {
  uint32_t is;
  __syncwarp();
  asm volatile("{.reg .pred one;\nelect.sync _|one, 0xffffffff;\nselp.u32 %0, 1, 0, one;}" : "=r"(is));
  return is;
}
