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

static inline uint64_t user_work_bytes(const struct user_work *work) {
  uint64_t bytes = user_work_round(sizeof *work);
  for (uint32_t i = 0; i < work->argument_count; i++) bytes += work->values[i] ? USER_VALUE_BYTES : 0;
  return bytes + user_work_round(work->function ? strlen(work->function) + 1 : 0);
}

/* Into user_work_bytes(from) bytes, aligned to 64. */
static inline struct user_work *user_work_copy(const struct user_work *from, void *memory) {
  struct user_work *work = memory;
  unsigned char *rest = (unsigned char *)memory + user_work_round(sizeof *work);
  *work = *from;
  for (uint32_t i = 0; i < work->argument_count; i++) {
    if (!from->values[i]) continue;
    work->values[i] = memcpy(rest, from->values[i], work->argument_bytes[i]);
    rest += USER_VALUE_BYTES;
  }
  if (from->function) work->function = memcpy(rest, from->function, strlen(from->function) + 1);
  return work;
}

#endif
