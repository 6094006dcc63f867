/* chains.c - see chains.h. */
#include "chains.h"

#include <string.h>

enum {
  NONE = UINT32_MAX,
  ON_CHAIN = UINT32_MAX - 1, /* in place of a task that follows */
  AT_HAND = UINT32_MAX - 2,
  /* The tasks that are put on a chain before the top of another chain counts as idle. */
  TASKS_TO_REST = 1024,
};

void chains_cut(struct chains *chains, struct cutter *cutter, uint32_t task_count) {
  chains->chain_of_task = cut(cutter, task_count);
  chains->below = cut(cutter, task_count * sizeof(uint32_t));
  chains->follower = cut(cutter, task_count * sizeof(uint32_t));
  chains->heights = cut(cutter, task_count * sizeof(struct chain_heights));
}

void chains_clear(struct chains *chains) {
  for (int i = 0; i < CHAINS; i++) chains->top[i] = NONE;
  chains->losses = 0;
  chains->is_join = false;
}

void chains_begin(struct chains *chains, uint32_t task) {
  chains->task = task;
  chains->follower[task] = AT_HAND;
  memset(&chains->now, 0, sizeof chains->now);
}

/* ---- What comes before ------------------------------------------------------------------------------------------- */

static bool is_taken_off(const struct chains *chains, uint32_t task) { return chains->follower[task] < AT_HAND; }

/* Follows the tasks that were taken off to a task that is on a chain, is the current one, or has no known follower. The
 * path is shortened for the next time. */
static uint32_t last_follower(struct chains *chains, uint32_t task) {
  uint32_t last = task;
  while (is_taken_off(chains, last)) last = chains->follower[last];
  while (task != last) {
    uint32_t next = chains->follower[task];
    chains->follower[task] = last;
    task = next;
  }
  return last;
}

bool chains_find(struct chains *chains, uint32_t task, uint32_t *chain, uint32_t *height) {
  uint32_t last = last_follower(chains, task);
  *chain = chains->chain_of_task[last];
  *height = last + 1;
  return chains->follower[last] == ON_CHAIN;
}

bool chains_have(struct chains *chains, uint32_t earlier) {
  uint32_t last = last_follower(chains, earlier);
  if (chains->follower[last] == AT_HAND) return !chains->is_join;
  return chains->follower[last] == ON_CHAIN && chains->now.of[chains->chain_of_task[last]] > last;
}

void chains_add(struct chains *chains, uint32_t before) {
  chain_heights_rise(&chains->now, &chains->heights[before]);
  if (chains->follower[last_follower(chains, before)] == NONE) chains->follower[before] = chains->task;
}

/* ---- A task's chain ---------------------------------------------------------------------------------------------- */

/* How much of a chain comes before the top of some other one, and which. */
static uint32_t height_before_another(const struct chains *chains, uint32_t chain, uint32_t *follower) {
  uint32_t height = 0;
  *follower = NONE;
  for (uint32_t i = 0; i < CHAINS; i++) {
    if (i == chain || chains->top[i] == NONE || chains->heights[chains->top[i]].of[chain] <= height) continue;
    height = chains->heights[chains->top[i]].of[chain];
    *follower = chains->top[i];
  }
  return height;
}

/* Of all chains whose top the task follows, the one that was idle longest. The tops of the others are tasks that more
 * of the next tasks follow. */
static uint32_t chain_to_go_on(const struct chains *chains) {
  uint32_t best = NONE;
  for (uint32_t i = 0; i < CHAINS; i++) {
    if (chains->top[i] != NONE && chains->now.of[i] != chains->top[i] + 1) continue;
    if (chains->top[i] != NONE && (best == NONE || chains->top[best] == NONE || chains->top[i] < chains->top[best]))
      best = i;
    if (best == NONE) best = i;
  }
  return best;
}

/* The chain on which nothing is taken off; or an idle one; or else the one with the latest task. So of many independent
 * tasks the first ones stay on their chains. */
static uint32_t chain_to_cut(const struct chains *chains) {
  uint32_t oldest = 0, latest = 0, known = NONE, follower;
  for (uint32_t i = 0; i < CHAINS; i++) {
    uint32_t top = chains->top[i];
    if (top < chains->top[oldest]) oldest = i;
    if (top > chains->top[latest]) latest = i;
    if ((known == NONE || top < chains->top[known]) && height_before_another(chains, i, &follower) == top + 1)
      known = i;
  }
  if (known != NONE) return known;
  return chains->task - chains->top[oldest] > TASKS_TO_REST ? oldest : latest;
}

/* Takes off the tasks that this task does not follow. */
static void take_off(struct chains *chains, uint32_t chain) {
  uint32_t follower, height = height_before_another(chains, chain, &follower);
  chains->losses++;
  for (uint32_t *top = &chains->top[chain]; *top != NONE && *top >= chains->now.of[chain]; *top = chains->below[*top])
    chains->follower[*top] = *top < height ? follower : NONE;
}

void chains_end(struct chains *chains) {
  uint32_t task = chains->task, chain = chain_to_go_on(chains);
  if (chain == NONE) take_off(chains, chain = chain_to_cut(chains));
  chains->chain_of_task[task] = (uint8_t)chain;
  chains->below[task] = chains->top[chain];
  chains->follower[task] = ON_CHAIN;
  chains->top[chain] = task;
  chains->now.of[chain] = task + 1;
  chains->heights[task] = chains->now;
}
