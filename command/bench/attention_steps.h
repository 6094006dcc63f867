/* attention_steps.h - the kernels of attention_steps.cu: the library's portable attention kernel for many rows in bf16
 * at head dimension 128, complete and with one step of attention_tile.cuh left out. */
#pragma once

#include "../../kernels/attention/attention.h"

/* KERNEL(name, the omitted step, steps, threads of a block, blocks of a multiprocessor, parts of a warp, tiles in
 * shared memory, 16-column steps of Q in registers). A tile has ATTENTION_STEPS_TILE KV rows. */
#define ATTENTION_STEPS(KERNEL)                                                                                        \
  KERNEL(every_step, "with all", every_step, 128, 2, 2, 2, 0)                                                          \
  KERNEL(running_maximum, "a running maximum", with_running_maximum, 128, 2, 2, 2, 0)                                  \
  KERNEL(sixteen_rows, "16 rows a warp and not 32", every_step, 256, 1, 1, 2, 8)                                       \
  KERNEL(one_stage, "one stage, loaded eagerly", every_step, 128, 2, 2, 1, 0)                                          \
  KERNEL(lazy, "loaded where it is used", without_eagerness, 128, 2, 2, 1, 0)                                          \
  KERNEL(disordered, "K's fragments in another order, with moves", without_order, 128, 2, 2, 2, 0)                     \
  KERNEL(recomputed, "the swizzle computed anew for each access", without_flips, 128, 2, 2, 2, 0)                      \
  KERNEL(unswizzled, "no swizzle", without_swizzle, 128, 2, 2, 2, 0)

enum { ATTENTION_STEPS_DIMENSION = 128, ATTENTION_STEPS_TILE = 64 };
