/* replay.h - launching and waiting on one slot, as exec.c's warm-up and replay.c's public calls need it. */
#ifndef RONDO_REPLAY_H
#define RONDO_REPLAY_H

#include "waiting.h"

rondo_status exec_check(const rondo_exec *exec, const char *function);
/* That, and this thread is not inside of work of its runtime. */
rondo_status exec_check_outside(const rondo_exec *exec, const char *function);

/* The slot behind a handle that is held. */
rondo_status slot_check(rondo_slot handle, const char *function, struct slot **slot);

/* That, and it may be replayed: it is not in flight, and there is something in its constants. */
rondo_status slot_ready(rondo_slot handle, const char *function, struct slot **slot);

/* Have as many of the slot's launches completed? Acquires what they wrote. */
static inline bool slot_reached(const struct slot *slot, uint64_t launched) {
  for (int i = 0; i < COMPLETION_WORDS; i++)
    if (atomic_load_explicit(&slot->words[i], memory_order_acquire) < launched) return false;
  return true;
}

/* All of them? */
static inline bool slot_done(const struct slot *slot) {
  return slot_reached(slot, atomic_load_explicit(&slot->launched, memory_order_relaxed));
}

/* The answer where a slot that is in flight stands in the way: RONDO_BUSY, or RONDO_DEVICE_LOST if it stays in flight
 * for ever. */
rondo_status slot_in_flight(const rondo_exec *exec, uint32_t slot, const char *function);

/* resident.c: is it a tensor of the exec's graph, of one of the kinds (bit 1 << kind), and no view unless they will do?
 */
rondo_status exec_tensor_check(const rondo_exec *exec, rondo_tensor tensor, uint32_t kinds, bool views,
                               const char *expected, const char *function);

/* resident.c: is there something in every constant that the exec's tasks read in this slot's replays? */
rondo_status constants_check(const rondo_exec *exec, struct slot *slot, const char *function);

/* A free slot for the caller; false if there is none. */
bool slot_take(rondo_exec *exec, rondo_slot *handle);
/* Gives one back that is held by this lease; false if it is not. Tells who waits for a slot. */
bool slot_give(rondo_exec *exec, struct slot *slot, uint32_t lease);

/* any_slot.c: how many there are now. */
void slots_count(const rondo_exec *exec, uint32_t *free_count, uint32_t *in_flight_count);

/* The slot must not be in flight. For replays that nobody is told of. */
rondo_status slot_launch(const rondo_exec *exec, struct slot *slot);

/* program.c: rondo_rebind, and the end of all of them, of a slot that is not in flight. One tensor is bound
 * or not; where unbinding all of them fails, those before it are unbound. */
rondo_status exec_rebind(rondo_exec *exec, struct slot *slot, rondo_tensor tensor, void *memory);
rondo_status exec_unbind(rondo_exec *exec, struct slot *slot);

/* RONDO_OK, RONDO_TIMEOUT or RONDO_DEVICE_LOST. */
rondo_status slot_wait(const rondo_exec *exec, struct slot *slot, uint64_t timeout_ns);
/* The same for all slots together; *slot is then the one that was not done. */
rondo_status slots_wait(rondo_exec *exec, uint64_t timeout_ns, uint32_t *slot);
/* The same for what their replays, which are done, still have to tell. */
rondo_status notices_wait(const rondo_exec *exec, uint64_t timeout_ns);

#endif
