/* launch.h - the lists of kernels on the host's side, and the launch of one kernel.
 *
 * A family's header names each of its kernels once, in a list that applies a macro to all of them:
 *
 *   KERNEL(chips, parameters, name, the most threads of a block, constants that the .cu and the .c file share: types,
 *          tiles, stages, ..)
 *
 * The .cu file defines the kernels of the list. The .c file chooses among its entries. build/list_kernels.c prints
 * the list, and the build compares it with the device code. */
#pragma once

#include "../../runtime/op.h"

/* For KERNEL: the description of a kernel; and a constant of the kernel's name with it. */
#define KERNEL_ENTRY(chips, parameters, name, threads, ...)                                                            \
  { #name, sizeof(struct parameters), offsetof(struct parameters, done), chips, threads }
#define KERNEL_CONSTANT(chips, parameters, name, threads, ...)                                                         \
  static const struct op_kernel name = KERNEL_ENTRY(chips, parameters, name, threads);

/* Whose code a chip runs, as a bit of a list's first column: all but sm_90 and sm_100 run or translate sm_80's. */
static inline uint32_t launch_chip(const struct chip *chip) {
  return chip->version == 90 ? CHIP_SM_90A : chip->version == 100 ? CHIP_SM_100A : CHIP_SM_80;
}

/* RONDO_UNSUPPORTED for more blocks than a grid has, 2^31 - 1, with the operand that asks for them. */
rondo_status launch_check_blocks(const char *operand, int64_t blocks);

/* Adds a launch with a grid and blocks of one dimension. `parameters` is the kernel's struct. */
struct op_launch *launch_add(struct op_launches *launches, const struct op_kernel *kernel, int64_t blocks,
                             int64_t threads, uint64_t shared_bytes, const void *parameters, size_t parameter_bytes);

/* Adds the launches of a step. The step's choice becomes the task's if the task has none. */
rondo_status launch_add_step(const struct op_step *step, const struct chip *chip, struct op_launches *launches);
