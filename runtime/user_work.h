/* user_work.h - the user's own work as one movable piece of memory: the struct, its by-value arguments behind it, each
 * aligned to 64 bytes as any type of C's may ask, then the function's name. The graph keeps such a piece, and an exec a
 * copy of it. */
#ifndef RONDO_USER_WORK_H
#define RONDO_USER_WORK_H

#include <string.h>

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

static inline uint64_t user_work_bytes(const struct user_work *work) {
  return user_work_round(sizeof *work) + (uint64_t)user_value_count(work, work->argument_count) * USER_VALUE_BYTES +
         user_work_round(work->function ? strlen(work->function) + 1 : 0);
}

/* Into user_work_bytes(from) bytes, aligned to 64. */
static inline struct user_work *user_work_copy(const struct user_work *from, void *memory) {
  struct user_work *work = memory;
  uint64_t value_bytes = (uint64_t)user_value_count(from, from->argument_count) * USER_VALUE_BYTES;
  *work = *from;
  work->values = (unsigned char *)memory + user_work_round(sizeof *work);
  if (value_bytes) memcpy(work->values, from->values, value_bytes);
  if (from->function) work->function = memcpy(work->values + value_bytes, from->function, strlen(from->function) + 1);
  return work;
}

#endif
