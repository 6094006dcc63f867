/* graph_part.h - the parts of a ready-made graph: their names, and the functions that add its tensors. */
#pragma once

#include <stdio.h>

#include "../runtime/graph.h"

/* rondo_input, rondo_constant and the other functions that add a tensor. */
typedef rondo_status (*tensor_function)(rondo_graph *graph, const char *name, rondo_dtype dtype, uint32_t rank,
                                        const int64_t *shape, rondo_tensor *tensor);

/* "GRAPH PART" into text. */
static inline const char *part_name(char text[NAME_BYTES], const char *graph, const char *part) {
  snprintf(text, NAME_BYTES, "%s %s", graph, part);
  return text;
}
