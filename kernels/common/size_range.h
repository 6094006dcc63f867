/* size_range.h - the sizes that a row of a family's table of choices takes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct size_range {
  int64_t least, most; /* most 0: no bound. A range that a row leaves out takes all sizes. */
};

static inline bool is_in_range(int64_t size, struct size_range range) {
  return size >= range.least && (!range.most || size <= range.most);
}
