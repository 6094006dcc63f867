/* bench_rowmax_tile.h - checks and measures the kernels of rowmax_tile.cu. */
#pragma once

#include "bench_device.h"
#include "timing.h"

/* Writes a line for each kernel: the cycles of a product with its maxima, the microseconds of a launch, and the
 * kernel's resources. Returns the number of wrong results. */
uint32_t rowmax_tile_measure(struct bench_device *device, struct report *report, uint32_t samples);
