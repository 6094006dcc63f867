/* placement_search.h - a search that lowers the peak of a placement, down to the lower bound if it can. */
#pragma once

#include "placement_problem.h"

enum {
  PLACEMENT_SEARCH_MOST = 4096,              /* the most buffers that it takes */
  PLACEMENT_DEFAULT_WORK = 128 * 1024 * 1024 /* steps times buffers: a second or two, more for thousands of buffers */
};

uint64_t placement_search_work_bytes(uint32_t count);

/* `offsets` hold a placement. The search replaces it by the best placement found and returns that one's peak. */
uint64_t placement_search(const struct placement_problem *problem, uint64_t *offsets, void *work);
