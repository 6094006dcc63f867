/* driver.h - the CUDA driver, opened with dlopen and entered through a table of its functions. The table belongs to a
 * device, not to the process: Rondo has no global state. */
#pragma once

#include "../op.h"
#include "abi.h"

struct driver {
  int version; /* CUDA's number: 13000 for 13.0 */
#define ENTRY_POINT(name, version, need, ...) cu_result (*name)(__VA_ARGS__);
#include "entry_points.h"
};

enum { DRIVER_OLDEST_VERSION = 13000 }; /* what nvcc 13's cubins ask for */

/* Fills the table and initialises the driver. RONDO_NO_DEVICE: it cannot be used, and why. */
rondo_status driver_load(struct driver *driver);

/* "CUDA_ERROR_OUT_OF_MEMORY: out of memory" into text. Also works on a table that is not filled yet. */
void driver_describe(const struct driver *driver, cu_result result, char *text, size_t bytes);
