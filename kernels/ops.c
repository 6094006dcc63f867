/* ops.c - the table of operations: the one place that names them all. */
#include "op.h"

#include "copy/copy.h"

const struct op *const op_table[] = {
    &op_copy,
    NULL,
};
