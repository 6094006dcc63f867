/* tensor_map.h - tensor maps of operands. A kernel's parameter struct has one struct tensor_map for each:
 *
 *   struct my_parameters { struct tensor_map k, v; ..; struct completion done; };
 *
 * After launch_add, the select function describes them. Boxes have the order of the operand's dimensions:
 *
 *   launch_map(launch, offsetof(struct my_parameters, k), &operands[MY_K], call->data[MY_K],
 *              (const uint32_t[]){1, 1, 128, 128});
 *
 * The kernel takes the address of the member of its __grid_constant__ parameters. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
#define TENSOR_MAP_ALIGNED alignas(128)
#else
#include "../../runtime/op.h"
#define TENSOR_MAP_ALIGNED _Alignas(128)
#endif

struct tensor_map {
  TENSOR_MAP_ALIGNED unsigned char bytes[128];
};

#ifndef __cplusplus

/* Can the operand have a map? It must have elements and a dense last dimension, and all its rows must begin at
 * multiples of 16 bytes. */
bool has_tensor_map(const struct op_operand *operand);

/* The operand of rank 2 or 3 with a batch dimension, of 1 if it has none: kernels for both give three coordinates. */
struct op_operand with_batch(const struct op_operand *operand);

/* Adds a map of an operand to a launch, at an offset in its parameters. has_tensor_map(operand) must hold, and the rank
 * must be 2 to 4. The map swizzles by 128 bytes and fetches 256 bytes into L2. `box` has the operand's rank, and at
 * most 256 elements in each dimension.
 *
 * The map's dimensions are the operand's from the last to the first: coordinates {column, row, head, batch}. If the
 * rows of the box have more than 128 bytes, the box is divided into columns of 128 bytes, called panels here. The
 * panels follow each other in shared memory, each with all rows of the box. The coordinates are then {column in the
 * panel, row, head, batch, panel}, and the operand's rows must be a multiple of 128 bytes long. */
void launch_map(struct op_launch *launch, size_t offset, const struct op_operand *operand, const void *data,
                const uint32_t *box);

#endif
