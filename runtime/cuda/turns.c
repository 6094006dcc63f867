/* turns.c - see turns.h. A thread that enters counts itself, and then looks for a resident exec. A thread that puts one
 * on the device says so, and then looks for threads that count (resident.c). So one of the two sees the other. */
#include "turns.h"

#include <sched.h>

#include "../clock.h"
#include "cuda_failure.h"

enum { ALONE = 1 << 30 };

void exec_take_off(struct device_exec *exec) {
  uint64_t word = doorbell_word(exec->bell);
  while (doorbell_is_on(word) && !doorbell_move(exec->bell, &word, word + doorbell_turn)) continue;
}

static void take_off(struct lane *lane) {
  struct device_exec *exec = atomic_load(&lane->resident);
  if (exec) exec_take_off(exec);
}

void lane_enter(struct lane *lane) {
  while (atomic_fetch_add(&lane->launching, 1) & ALONE) {
    atomic_fetch_sub_explicit(&lane->launching, 1, memory_order_relaxed);
    while (atomic_load_explicit(&lane->launching, memory_order_relaxed) & ALONE) sched_yield();
  }
  take_off(lane);
}

void lane_leave(struct lane *lane) { atomic_fetch_sub_explicit(&lane->launching, 1, memory_order_release); }

/* A launch in the caller's stream is five calls. Between them no other thread may launch in the lane, since the order
 * of the two replays would be undefined. */
void lane_enter_alone(struct lane *lane) {
  while (atomic_fetch_or_explicit(&lane->launching, ALONE, memory_order_acquire) & ALONE) sched_yield();
  while (atomic_load(&lane->launching) != ALONE) sched_yield();
  take_off(lane);
}

bool lane_enter_alone_within(struct lane *lane, const struct device *device, uint64_t ns) {
  const uint64_t begin_ns = now_ns();
  bool has_turn = false;
  while (!device_lost(device) && now_ns() - begin_ns < ns) {
    has_turn = has_turn || !(atomic_fetch_or_explicit(&lane->launching, ALONE, memory_order_acquire) & ALONE);
    if (has_turn && atomic_load(&lane->launching) == ALONE) return true;
    sched_yield();
  }
  if (has_turn) lane_leave_alone(lane);
  return false;
}

void lane_leave_alone(struct lane *lane) {
  atomic_fetch_and_explicit(&lane->launching, ~(uint32_t)ALONE, memory_order_release);
}

void lane_hold(struct lane *lane) {
  atomic_fetch_add(&lane->holds, 1);
  lane_enter(lane);
  lane_leave(lane);
}

void lane_release(struct lane *lane) { atomic_fetch_sub(&lane->holds, 1); }

void device_hold(struct device *device) {
  for (uint32_t i = 0; i < device->lane_count; i++) lane_hold(&device->lanes[i]);
}

void device_release(struct device *device) {
  for (uint32_t i = 0; i < device->lane_count; i++) lane_release(&device->lanes[i]);
}
