/* place_search.h - lowers the peak of a placement by search, down to the lower bound if it can. Internal to place.c. */
#ifndef RONDO_PLACE_SEARCH_H
#define RONDO_PLACE_SEARCH_H

#include "place.h"

uint64_t place_search_work_bytes(uint32_t count);

/* `offsets` hold a placement, and are replaced by the best one found. Returns its peak. For at most PLACE_SEARCH_COUNT
 * buffers. */
uint64_t place_search(const struct placement_problem *problem, uint64_t *offsets, void *work);

#endif
