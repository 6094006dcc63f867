/* repeat_control.h - what the host and the device tell each other during a repeat (rondo_repeat), in the slot's pinned
 * memory. Shared by host code and the kernel that ends each step (kernels/common/repeat_step.cu). */
#pragma once

#include <stdint.h>

#include "completion.h"

enum {
  REPEAT_VALUES = 16,
  REPEAT_STEPS_MOST = 1 << 20,
  REPEAT_KEPT = 4, /* the most kept states, */
  REPEAT_KEPT_WORDS = 64,
};

struct repeat_control {
  uint32_t done; /* steps whose outputs are in their places; the device writes it */
  uint32_t stop; /* not 0: the step in progress is the last; the host may write it at any time */
  uint32_t count;
  uint32_t value_count; /* 0: a repeat ends when `until` is not 0 */
  const int32_t *until; /* NULL: it ends after `count` steps */
  int32_t values[REPEAT_VALUES];
  /* By the device, in a body of several steps. */
  uint32_t has_ended;               /* the body's other steps are this one again, and its last one tells */
  uint32_t kept[REPEAT_KEPT_WORDS]; /* what the kept states were before the step in progress */
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

/* A state that each step changes, so that the same step again needs what it was before. `words` is NULL behind the
 * last one. */
struct repeat_kept {
  uint32_t *words;
  uint32_t count;
};

/* What the kernel does. */
enum {
  REPEAT_BEGINS = 1,  /* before the loops: it keeps the states */
  REPEAT_DECIDES = 2, /* whether the step was the last. If it was, the next step begins with the kept states */
  REPEAT_TELLS = 4,   /* it copies the outputs to the step's place, tells the host, and keeps the states */
  REPEAT_ENDS = 8,    /* with REPEAT_TELLS: the loop's body. It decides too */
};

/* Of the kernel. */
struct repeat_parameters {
  struct completion done; /* of the last step, in `word_count` words */
  struct repeat repeat;
  uint64_t loop; /* the handle of its loop, which goes on while it is 1 */
  uint64_t rest; /* of the loop behind that one; 0: there is none */
  struct repeat_kept kept[REPEAT_KEPT];
  uint32_t word_count;
  uint32_t work;
  uint32_t steps; /* of the loop's body */
};
