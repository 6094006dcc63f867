/* copy.h - dst := src for rectangles of any strides. */
#ifndef RONDO_COPY_H
#define RONDO_COPY_H

#include "../op.h"

extern const struct op op_copy;

#endif
