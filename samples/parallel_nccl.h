/* parallel_nccl.h - the part of the sample parallel that runs as one of several processes: each is a rank with a GPU of
 * its own, and NCCL adds. */
#pragma once

#include "sample.h"
#include "world.h"

/* parallel_product.c: columns first .. first + columns of [rows, k] in float16, dense. */
void take_columns(const struct npy *from, int64_t first, int64_t columns, uint16_t *to);
/* Prints how far y, [count, m], is from fp64. False: too far. */
bool check_product(const float *y, const struct npy *weights, const struct npy *vectors);

/* True: all checks passed. Only rank 0 prints. */
bool multiply_in_processes(const struct world *world, const struct options *options, const struct npy *weights,
                           const struct npy *vectors);
