/* lists.h - many lists in one array, made by two passes over the same entries. The first pass, without an array, counts
 * the entries of each list in begin[list]. lists_end turns the counts into the ends of the lists. The second pass puts
 * each entry before the entries of its list that are already there. Then begin[list] is the begin of each list, and
 * begin[list + 1] its end. */
#pragma once

#include <stdint.h>

static inline void lists_put(uint32_t *begin, uint32_t *entries, uint32_t list, uint32_t entry) {
  if (entries)
    entries[--begin[list]] = entry;
  else
    begin[list]++;
}

/* begin has list_count + 1 elements; the first list begins at `first`. */
static inline void lists_end(uint32_t *begin, uint32_t list_count, uint32_t first) {
  for (uint32_t i = 0; i < list_count; i++) begin[i] = first += begin[i];
  begin[list_count] = first;
}
