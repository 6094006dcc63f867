/* await_bell.h - the list of the kernel in await_bell.cu, and the constant by which the runtime names it
 * (runtime/kernels.h). */
#pragma once

#include "../../runtime/doorbell.h"

enum { AWAIT_BELL_THREADS = 32 };

/* KERNEL(chips, parameters, name, threads, constant) */
#define AWAIT_BELL_KERNELS(KERNEL)                                                                                     \
  KERNEL(EVERY_CHIP, doorbell_parameters, rondo_await_bell, AWAIT_BELL_THREADS, op_await_bell_kernel)
