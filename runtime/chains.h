/* chains.h - does an earlier task come before the current one? A quick answer for a walk over the tasks in the order in
 * which they were added. A wrong answer is always "no": then an edge is kept that others imply, and reach.c drops it.
 *
 * Each task is put on one of a few chains, after all tasks that are still on it. So the predecessors of a task on one
 * chain are exactly those below some height, and each task keeps one height a chain. If a new task does not follow the
 * top of its chain, the top is taken off. For a task that was taken off it is kept, where known, which task follows it.
 */
#pragma once

#include <stdbool.h>

#include "cutter.h"

enum { CHAINS = 16 };

/* By chain: 1 + the last task of it that comes before, or is, the one that this is about; 0: none. */
struct chain_heights {
  uint32_t of[CHAINS];
};

struct chains {
  uint8_t *chain_of_task;
  uint32_t *below;               /* by task that is on a chain: the next lower one of it */
  uint32_t *follower;            /* by task that is on none: a task that follows it */
  struct chain_heights *heights; /* by task */
  uint32_t top[CHAINS];
  uint32_t losses; /* grows when tasks are taken off */
  uint32_t task;   /* the current one */
  bool is_join;    /* the current unit is a join before the task */
  struct chain_heights now;
};

void chains_cut(struct chains *chains, struct cutter *cutter, uint32_t task_count);
void chains_clear(struct chains *chains);

/* The next task; all that it waits for is added; then it is put on a chain. */
void chains_begin(struct chains *chains, uint32_t task);
void chains_add(struct chains *chains, uint32_t before);
void chains_end(struct chains *chains);

/* Is it known that `earlier` comes before the current unit: the task, or a join before it? */
bool chains_have(struct chains *chains, uint32_t earlier);

/* A chain and a height: tasks with that height there follow the task. False if none is known. Valid until the next
 * loss. */
bool chains_find(struct chains *chains, uint32_t task, uint32_t *chain, uint32_t *height);

static inline bool chain_heights_reach(const struct chain_heights *heights, const struct chain_heights *others) {
  bool reach = true;
  for (int i = 0; i < CHAINS; i++) reach &= heights->of[i] >= others->of[i];
  return reach;
}

static inline void chain_heights_rise(struct chain_heights *heights, const struct chain_heights *others) {
  for (int i = 0; i < CHAINS; i++) heights->of[i] = heights->of[i] > others->of[i] ? heights->of[i] : others->of[i];
}
