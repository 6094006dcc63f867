/* any_slot.c - rondo_wait_any and rondo_acquire_within: a done slot, or a free one, out of many. The calling thread
 * looks at the words of all slots, so a replay costs nothing more. */
#include "any_slot.h"

#include <inttypes.h>

#include "slot.h"
#include "waiting.h"

/* ---- Done -------------------------------------------------------------------------------------------------------- */

struct any {
  rondo_exec *const *execs;
  uint32_t exec_count;
  rondo_slot slot;
};

/* Each replay is told once: to the thread that moves `told` on to its number. A replay moves `told` to the number
 * before its own, then writes its pointer and its lease, and then its number (slot_launch). So pointer and
 * lease read here are those of replay `launched` or of a later one. A later one has moved `told` beyond the value read
 * before, and the exchange fails. The lease is that of the replay. If the slot has another lease by now, it was
 * released untold, and the replay is told to no thread. */
static bool tell(rondo_exec *exec, uint32_t index, rondo_slot *handle) {
  struct slot *slot = &exec->slots.items[index];
  uint64_t told = atomic_load_explicit(&slot->told, memory_order_acquire);
  uint64_t launched = atomic_load_explicit(&slot->launched, memory_order_acquire);
  if (told >= launched || !slot_reached(slot, launched)) return false;
  *handle = (rondo_slot){.exec = exec,
                         .index = index,
                         .lease = atomic_load_explicit(&slot->user_lease, memory_order_acquire),
                         .serial = atomic_load_explicit(&exec->serial, memory_order_relaxed),
                         .user = atomic_load_explicit(&slot->user, memory_order_acquire)};
  return atomic_compare_exchange_strong_explicit(&slot->told, &told, launched, memory_order_relaxed,
                                                 memory_order_relaxed) &&
         atomic_load_explicit(&slot->lease, memory_order_relaxed) == handle->lease;
}

/* The search begins after the slot that was told last, so that none is passed over for ever. */
static bool look_for_done(void *argument) {
  struct any *any = argument;
  for (uint32_t e = 0; e < any->exec_count; e++) {
    rondo_exec *exec = any->execs[e];
    uint32_t first = atomic_load_explicit(&exec->slots.next_done, memory_order_relaxed);
    for (uint32_t i = 0; i < exec->slots.count; i++) {
      uint32_t index = (first + i) % exec->slots.count;
      if (!tell(exec, index, &any->slot)) continue;
      atomic_store_explicit(&exec->slots.next_done, (index + 1) % exec->slots.count, memory_order_relaxed);
      return true;
    }
  }
  return false;
}

rondo_status rondo_wait_any(rondo_exec *const *execs, uint32_t exec_count, uint64_t timeout_ns, rondo_slot *slot) {
  struct any any = {.execs = execs, .exec_count = exec_count};
  if (!execs || !exec_count || !slot)
    return status_set(RONDO_INVALID_ARGUMENT, "rondo_wait_any: the %s",
                      slot ? "execs are NULL, or their count is 0" : "slot's address is NULL");
  for (uint32_t e = 0; e < exec_count; e++) {
    rondo_status status = exec_check(execs[e], "rondo_wait_any");
    if (status != RONDO_OK) return status;
    if (execs[e]->runtime != execs[0]->runtime)
      return status_set(RONDO_INVALID_ARGUMENT,
                        "rondo_wait_any: exec %" PRIu32 " belongs to another runtime than exec 0", e);
  }
  const rondo_runtime *runtime = execs[0]->runtime;
  rondo_status status = timeout_ns ? runtime_check_outside(runtime, "rondo_wait_any") : RONDO_OK;
  const struct waiting waiting = {.runtime = runtime,
                                  .look = look_for_done,
                                  .subject = &any,
                                  .for_what = FOR_ANY_REPLAY,
                                  .patience = &execs[0]->slots.patience,
                                  .may_be_long = true};
  if (status == RONDO_OK) status = wait_until(&waiting, timeout_ns);
  if (status == RONDO_TIMEOUT)
    return status_set(status, "rondo_wait_any: no further replay ended within %" PRIu64 " ns", timeout_ns);
  if (status == RONDO_OK) *slot = any.slot;
  return status;
}

/* ---- Free -------------------------------------------------------------------------------------------------------- */

struct free_slot {
  rondo_exec *exec;
  rondo_slot slot;
};

static bool look_for_free(void *argument) {
  struct free_slot *free_slot = argument;
  return slot_take(free_slot->exec, &free_slot->slot);
}

rondo_status rondo_acquire_within(rondo_exec *exec, uint64_t timeout_ns, rondo_slot *slot) {
  rondo_status status = exec_check(exec, "rondo_acquire_within");
  if (status != RONDO_OK) return status;
  if (!slot) return status_set(RONDO_INVALID_ARGUMENT, "rondo_acquire_within: the slot's address is NULL");
  if (timeout_ns) status = runtime_check_outside(exec->runtime, "rondo_acquire_within");
  struct free_slot free_slot = {.exec = exec};
  const struct waiting waiting = {.runtime = exec->runtime,
                                  .look = look_for_free,
                                  .subject = &free_slot,
                                  .for_what = FOR_FREE_SLOT,
                                  .may_be_long = true};
  if (status == RONDO_OK) status = wait_until(&waiting, timeout_ns);
  if (status == RONDO_TIMEOUT)
    return status_set(status, "rondo_acquire_within: no slot became free within %" PRIu64 " ns: the exec has %" PRIu32,
                      timeout_ns, exec->slots.count);
  if (status == RONDO_OK) *slot = free_slot.slot;
  return status;
}

void slots_count(const rondo_exec *exec, uint32_t *free_count, uint32_t *in_flight_count) {
  *free_count = *in_flight_count = 0;
  for (uint32_t s = 0; s < exec->slots.count; s++) {
    const struct slot *slot = &exec->slots.items[s];
    if (atomic_load_explicit(&slot->lease, memory_order_relaxed) % 2 == 0)
      ++*free_count;
    else
      *in_flight_count += !slot_done(slot); /* a slot counts once, whatever becomes of it between the two looks */
  }
}
