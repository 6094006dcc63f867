/* written.h - is each element written before it is read? The answer follows from those writes of a tensor that no later
 * write covers. */
#pragma once

#include "access_list.h"

/* Is every element of the tensor in one of the writes? Where one is missing it is left in `element`, in the dimensions
 * of the root. `written` is a rectangle of which that is known, and grows; `found` has room for all writes. */
bool is_written(const struct access_list *writes, const rondo_graph *graph, const struct tensor *tensor,
                struct box *written, uint32_t *found, uint32_t *element);

/* It is known of one more. Of two rectangles the larger one is kept. */
void written_grow(struct box *written, const struct tensor *tensor);
