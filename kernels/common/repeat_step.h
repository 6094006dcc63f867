/* repeat_step.h - the list of the kernel in repeat_step.cu, and the constant by which the runtime names it
 * (runtime/kernels.h). */
#pragma once

#include "../../runtime/repeat_control.h"

/* KERNEL(chips, parameters, name, threads, constant) */
#define REPEAT_KERNELS(KERNEL) KERNEL(EVERY_CHIP, repeat_parameters, rondo_repeat_step, 1024, op_repeat_kernel)
