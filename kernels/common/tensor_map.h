/* tensor_map.h - tensor maps of operands. A kernel's parameter struct holds each as a struct tensor_map:
 *
 *   struct my_parameters { struct tensor_map k, v; ..; struct completion done; };
 *
 * and behind launch_add, select describes them, boxes in the order of the operand's dimensions:
 *
 *   launch_map(launch, offsetof(struct my_parameters, k), &operands[MY_K], call->data[MY_K],
 *              (const uint32_t[]){1, 1, 128, 128});
 *
 * The kernel takes the address of the member of its __grid_constant__ parameters. */
#ifndef RONDO_TENSOR_MAP_H
#define RONDO_TENSOR_MAP_H

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

/* Can the operand have a map? It has elements, its last dimension is dense, and it and all its rows begin at multiples
 * of 16 bytes. */
bool has_tensor_map(const struct op_operand *operand);

/* Adds a map of an operand of rank 2 to 4 that can have one, at an offset in the launch's parameters, swizzled by 128
 * bytes, with L2 fetching 256. box has the operand's rank, at most 256 in each dimension.
 *
 * The map's dimensions are the operand's from the last to the first: coordinates {column, row, head, batch}. A box with
 * rows of more than 128 bytes becomes panels of 128 bytes, which lie one behind the other in shared memory, each with
 * all of the box's rows: the coordinates get one more, {column in the panel, row, head, batch, panel}. Rows of the
 * operand are then a multiple of 128 bytes long. */
void launch_map(struct op_launch *launch, size_t offset, const struct op_operand *operand, const void *data,
                const uint32_t *box);

#endif

#endif
