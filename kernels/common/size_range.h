/* size_range.h - for the families' tables of choices: how a row begins, and the sizes that it takes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct size_range {
  int64_t least, most; /* most 0: no bound. A range that a row leaves out takes all sizes. */
};

static inline bool is_in_range(int64_t size, struct size_range range) {
  return size >= range.least && (!range.most || size <= range.most);
}

/* The design's name, its planner and its launcher. */
#define DESIGN(design, planner, launcher) .name = #design, .plan = (planner), .launch = (launcher)
