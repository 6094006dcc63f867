/* point.h - the list of the kernel in point.cu, and the constant by which the runtime names it (runtime/kernels.h). */
#pragma once

#include "../../runtime/completion.h"

/* KERNEL(chips, parameters, name, threads, constant) */
#define POINT_KERNELS(KERNEL) KERNEL(EVERY_CHIP, completion, rondo_point, 1, op_point_kernel)
