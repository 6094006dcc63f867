/* rowmax_tile.h - the kernels of rowmax_tile.cu and their parameters. */
#pragma once

enum { ROWMAX_TILE = 16 }; /* rows, columns and depth of the product */

/* KERNEL(name, description, barriers as ptxas counts them) */
#define ROWMAX_TILE_KERNELS(KERNEL)                                                                                    \
  KERNEL(through_shared_memory, "shared memory, a thread a row", 1)                                                    \
  KERNEL(permuted_by_quads, "registers, permuted, a mask a quad", 0)                                                   \
  KERNEL(permuted, "registers, permuted", 0)                                                                           \
  KERNEL(as_they_lie, "registers, as they lie", 0)
