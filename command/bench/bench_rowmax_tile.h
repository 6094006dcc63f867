/* bench_rowmax_tile.h - the kernels of rowmax_tile.cu, checked and timed on this chip. */
#ifndef RONDO_BENCH_ROWMAX_TILE_H
#define RONDO_BENCH_ROWMAX_TILE_H

#include "bench_device.h"
#include "timing.h"

/* A line for each way: cycles of a product and its maxima, microseconds of a launch of one, and what the kernel takes.
 * Returns how many were wrong. */
uint32_t rowmax_tile_measure(struct bench_device *device, struct report *report, uint32_t samples);

#endif
