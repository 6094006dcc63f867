/* slot.h - one slot of an exec: check its handle, take it, launch it, wait for it, give it back. */
#pragma once

#include "exec.h"

/* Have this many of the slot's launches completed? Acquires what they wrote. */
static inline bool slot_reached(const struct slot *slot, uint64_t launched) {
  for (int i = 0; i < COMPLETION_WORDS; i++)
    if (atomic_load_explicit(&slot->words[i], memory_order_acquire) < launched) return false;
  return true;
}

/* Have all of them completed? */
static inline bool slot_done(const struct slot *slot) {
  return slot_reached(slot, atomic_load_explicit(&slot->launched, memory_order_relaxed));
}

/* ---- Handles and leases ------------------------------------------------------------------------------------------ */

/* The slot of a handle. Errors: no exec, a closed one, a slot that does not exist or was released. */
rondo_status slot_check(rondo_slot handle, const char *function, struct slot **slot);
/* Also checks that the slot may be replayed: it is not in flight, and each constant that its tasks read has content. */
rondo_status slot_ready(rondo_slot handle, const char *function, struct slot **slot);
/* The error of a handle whose slot was released. */
rondo_status slot_released(rondo_slot handle, const char *function);
/* The error of a slot in flight: RONDO_BUSY, or RONDO_DEVICE_LOST if it stays in flight for ever. */
rondo_status slot_in_flight(const rondo_exec *exec, uint32_t slot, const char *function);

/* A free slot for the caller; false if there is none. */
bool slot_take(rondo_exec *exec, rondo_slot *handle);
/* Gives back a slot that is held by this lease, and wakes threads that wait for one; false if the lease is another. */
bool slot_give(rondo_exec *exec, struct slot *slot, uint32_t lease);

/* ---- Replays ----------------------------------------------------------------------------------------------------- */

/* Launches a slot that is not in flight, in *stream or, for NULL, in the lane's stream. */
rondo_status slot_launch(rondo_slot handle, struct slot *slot, void *const *stream);
/* The same for a repeat, in the lane's stream. */
rondo_status slot_launch_repeat(rondo_slot handle, struct slot *slot);
/* How a replay is put on the device: a launch, a launch of a repeat, or the bell of a resident exec. */
enum launch_kind { LAUNCH_REPLAY, LAUNCH_REPEAT, LAUNCH_RING };

/* In the lane's stream, a replay that rondo_wait_any does not tell. */
rondo_status slot_launch_untold(const rondo_exec *exec, struct slot *slot, enum launch_kind kind);

/* RONDO_OK, RONDO_TIMEOUT or RONDO_DEVICE_LOST. */
rondo_status slot_wait(const rondo_exec *exec, struct slot *slot, uint64_t timeout_ns);
/* The same for all slots together; after an error *slot is the first that was not done. */
rondo_status slots_wait(rondo_exec *exec, uint64_t timeout_ns, uint32_t *slot);
