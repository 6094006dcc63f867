/* done.h - the list of the kernels in done.cu, and the constants by which the runtime names them
 * (runtime/kernels.h). */
#pragma once

#include "../../runtime/completion.h"

/* KERNEL(chips, parameters, name, threads, constant) */
#define DONE_KERNELS(KERNEL)                                                                                           \
  KERNEL(EVERY_CHIP, completion, rondo_begin, 1, op_begin_kernel)                                                      \
  KERNEL(EVERY_CHIP, completion, rondo_done, 1, op_done_kernel)
