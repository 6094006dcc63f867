/* repeat_control.h - what the host and the device tell each other during a repeat (rondo_repeat), in the slot's pinned
 * memory. Shared by host code and the kernel that ends each step (kernels/common/repeat_step.cu). */
#pragma once

#include <stdint.h>

#include "completion.h"

enum { REPEAT_VALUES = 16, REPEAT_STEPS_MOST = 1 << 20 };

struct repeat_control {
  uint32_t done; /* steps whose outputs are in their places; the device writes it */
  uint32_t stop; /* not 0: the step in progress is the last; the host may write it at any time */
  uint32_t count;
  uint32_t value_count; /* 0: a repeat ends when `until` is not 0 */
  const int32_t *until; /* NULL: it ends after `count` steps */
  int32_t values[REPEAT_VALUES];
};

/* Of a slot. After a step its outputs are copied to the step's place. control is NULL in an exec without repeats. */
struct repeat {
  struct repeat_control *control;
  const unsigned char *outputs;
  unsigned char *places;
  uint64_t place_bytes; /* a multiple of 256 */
};

/* Of the host's threads. What a step has written is visible to a thread that knows that it is done. */
static inline uint32_t repeat_done(const struct repeat_control *control) {
  return __atomic_load_n(&control->done, __ATOMIC_ACQUIRE);
}

static inline void repeat_set_done(struct repeat_control *control, uint32_t done) {
  __atomic_store_n(&control->done, done, __ATOMIC_RELEASE);
}

static inline uint32_t repeat_is_stopped(const struct repeat_control *control) {
  return __atomic_load_n(&control->stop, __ATOMIC_RELAXED);
}

static inline void repeat_set_stop(struct repeat_control *control, uint32_t stop) {
  __atomic_store_n(&control->stop, stop, __ATOMIC_RELAXED);
}

/* Of the kernel. */
struct repeat_parameters {
  struct completion done; /* of the last step, in `word_count` words */
  struct repeat repeat;
  uint64_t condition; /* the handle of the loop, which goes on while it is 1 */
  uint32_t word_count;
};
