/* dense_rows.h - operands of one shape as rows: dimensions that are dense in all of them become part of the row. */
#pragma once

#include "../../runtime/op.h"

enum { DENSE_ROWS_OUTER = 3, DENSE_ROWS_OPERANDS = 3 };

struct dense_rows {
  int64_t extent[DENSE_ROWS_OUTER]; /* of the other dimensions, outermost first; 1 for one that does not exist */
  int64_t stride[DENSE_ROWS_OPERANDS][DENSE_ROWS_OUTER]; /* in elements; 0 of operands that are absent */
  int64_t row, rows; /* elements of a row, and how many rows: none of an empty shape */
};

/* Of operands that have the dimensions of `like`, perhaps after others. */
struct dense_rows dense_rows_of(const struct op_operand *like, const struct op_operand *operands, uint32_t count);

/* The element of an operand at which row `row` begins. */
int64_t dense_rows_begin(const struct dense_rows *rows, uint32_t operand, int64_t row);
