/* user_work.h - the user's own work as one movable piece of memory: the struct, then its by-value arguments, each
 * aligned to 64 bytes as any C type may demand, then the function's name. The graph keeps such a piece, and an exec
 * keeps a copy. */
#pragma once

#include <string.h>

#include "cutter.h"
#include "device.h"

enum { USER_VALUE_BYTES = 64 };

static inline uint64_t user_work_round(uint64_t bytes) {
  return (bytes + USER_VALUE_BYTES - 1) / USER_VALUE_BYTES * USER_VALUE_BYTES;
}

static inline uint32_t user_value_count(const struct user_work *work, uint32_t arguments) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < arguments; i++) count += work->argument_bytes[i] > 0;
  return count;
}

/* Of an argument that is a value. */
static inline void *user_value(const struct user_work *work, uint32_t argument) {
  return work->values + (size_t)user_value_count(work, argument) * USER_VALUE_BYTES;
}

/* Into a piece that is cut for it; without memory it only measures. */
static inline struct user_work *user_work_cut(struct cutter *cutter, const struct user_work *from) {
  uint64_t value_bytes = (uint64_t)user_value_count(from, from->argument_count) * USER_VALUE_BYTES;
  size_t function_bytes = from->function ? strlen(from->function) + 1 : 0;
  struct user_work *work = cut(cutter, sizeof *work);
  unsigned char *values = cut(cutter, value_bytes);
  char *function = cut(cutter, function_bytes);
  if (!cutter->base) return NULL;
  *work = *from;
  work->values = values;
  if (value_bytes) memcpy(values, from->values, value_bytes);
  if (function_bytes) work->function = memcpy(function, from->function, function_bytes);
  return work;
}

static inline uint64_t user_work_bytes(const struct user_work *work) {
  struct cutter cutter = {0};
  user_work_cut(&cutter, work);
  return cutter.used;
}

/* Into user_work_bytes(from) bytes, aligned to 64. */
static inline struct user_work *user_work_copy(const struct user_work *from, void *memory) {
  return user_work_cut(&(struct cutter){(unsigned char *)memory, 0}, from);
}
