/* products.h - products of matrices of fp32 on the host's processors. A sum has a fixed order, whatever the number of
 * threads. */
#pragma once

#include <stdint.h>

/* A matrix, row-major. `stride` is the distance of its rows, so it may be a part of a larger one. */
struct grid {
  float *data;
  int64_t rows, columns, stride;
};

/* The part that begins at a row and a column. */
struct grid grid_part(struct grid grid, int64_t row, int64_t column, int64_t rows, int64_t columns);

enum product_use { PRODUCT_SET, PRODUCT_ADD, PRODUCT_SUBTRACT };

/* c = a b^T, or c + a b^T, or c - a b^T, by one thread. c overlaps neither a nor b. */
void product(struct grid a, struct grid b, struct grid c, enum product_use use);
/* The same by all threads. */
void product_in_parallel(struct grid a, struct grid b, struct grid c, enum product_use use);

/* Memory for `count` numbers. The caller frees it. Ends the program if there is no memory. */
float *new_floats(int64_t count);
