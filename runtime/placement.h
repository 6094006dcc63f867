/* placement.h - offsets for buffers, with a low peak: first fit in several orders, then a search.
 *
 * Nothing here allocates: the caller gives working memory of the size that *_work_bytes returns. The result depends on
 * the problem alone, since counts of steps bound the work, never a clock. */
#pragma once

#include "placement_problem.h"

uint64_t placement_work_bytes(uint32_t count);

/* Tries first fit in five orders (first_fit.h). If none reaches the lower bound, placement_search.h lowers the best
 * peak. Writes the offsets of the lowest peak found, and returns that peak. */
uint64_t placement_find(const struct placement_problem *problem, uint64_t *offsets, void *work)
    __attribute__((nonnull(3)));
