/* filling.c - see filling.h. */
#include "filling.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "../clock.h"
#include "../own_thread.h"

enum { YIELDS_BEFORE_SLEEP = 1000, SLEEP_NS = 20 * 1000, LINGER_NS = 1000 * 1000 };
enum { SHARES = 2 * HELPERS_MOST, CLAIMED_MOST = 4 };
static const uint64_t bytes_a_helper = 1 << 20, most_burst_bytes = 16 << 20;

/* ---- Pieces ------------------------------------------------------------------------------------------------------ */

void filling_add(struct filling *filling, const struct place *piece) {
  uint64_t index = atomic_load_explicit(&filling->added, memory_order_relaxed);
  struct place *place = &filling->places[index % PLACES];
  place->source = piece->source;
  place->memory = piece->memory;
  place->bytes = piece->bytes;
  place->zeros = piece->zeros;
  atomic_store_explicit(&filling->added, index + 1, memory_order_release);
}

bool filling_is_filled(const struct filling *filling, uint64_t piece) {
  return atomic_load_explicit(&filling->places[piece % PLACES].filled, memory_order_acquire) == piece + 1;
}

bool filling_fill_some(struct filling *filling) {
  uint64_t piece = atomic_load_explicit(&filling->claimed, memory_order_relaxed), end;
  do {
    uint64_t added = atomic_load_explicit(&filling->added, memory_order_acquire);
    if (piece >= added) return false;
    uint64_t share = (added - piece) / SHARES;
    end = piece + (share < 1 ? 1 : share > CLAIMED_MOST ? CLAIMED_MOST : share);
  } while (!atomic_compare_exchange_weak(&filling->claimed, &piece, end));
  for (; piece < end; piece++) {
    struct place *place = &filling->places[piece % PLACES];
    memcpy(place->memory, place->source, place->bytes);
    memset(place->memory + place->bytes, 0, place->zeros);
    atomic_store_explicit(&place->filled, piece + 1, memory_order_release);
  }
  return true;
}

void filling_rest(uint32_t idle) {
  if (idle < YIELDS_BEFORE_SLEEP)
    sched_yield();
  else
    nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
}

/* ---- Helpers ----------------------------------------------------------------------------------------------------- */

/* Either the helper sees the upload that begins just now, or who begins it sees that the helper has left. */
static bool leaves(struct helper *self) {
  int state = HELPER_HAS_LEFT;
  atomic_store(&self->state, HELPER_HAS_LEFT);
  return !atomic_load(&self->filling->is_uploading) ||
         !atomic_compare_exchange_strong(&self->state, &state, HELPER_WORKS);
}

static void *help(void *argument) {
  struct helper *self = argument;
  struct filling *filling = self->filling;
  uint32_t idle = 0;
  own_thread_begin(&filling->cores);
  for (uint64_t since_ns = now_ns();;) {
    bool is_busy = filling_fill_some(filling);
    idle = is_busy ? 0 : idle + 1;
    if (is_busy) continue;
    if (atomic_load_explicit(&filling->is_uploading, memory_order_relaxed))
      since_ns = 0;
    else if (!since_ns)
      since_ns = now_ns();
    else if (now_ns() - since_ns > LINGER_NS && leaves(self))
      return NULL;
    filling_rest(idle);
  }
}

/* False: it works already, or there is no thread to be had. */
static bool start(struct filling *filling, struct helper *helper) {
  int state = HELPER_HAS_LEFT;
  if (atomic_compare_exchange_strong(&helper->state, &state, HELPER_NONE)) pthread_join(helper->thread, NULL);
  if (atomic_load(&helper->state) != HELPER_NONE) return false;
  helper->filling = filling;
  atomic_store(&helper->state, HELPER_WORKS);
  if (!own_thread_start(&helper->thread, help, helper)) return true;
  atomic_store(&helper->state, HELPER_NONE);
  return false;
}

/* Pauses count as a byte a nanosecond: a few bytes between replays, for as long as that goes on, need no helpers. */
void filling_begin(struct filling *filling, uint64_t bytes) {
  uint64_t pause_ns = now_ns() - filling->ended_ns;
  filling->burst_bytes -= pause_ns < filling->burst_bytes ? pause_ns : filling->burst_bytes;
  filling->burst_bytes += bytes;
  if (filling->burst_bytes > most_burst_bytes) filling->burst_bytes = most_burst_bytes;
  atomic_store(&filling->is_uploading, true);
  uint64_t wanted = filling->burst_bytes / bytes_a_helper, threads = cores_threads(&filling->cores);
  if (wanted > HELPERS_MOST) wanted = HELPERS_MOST;
  if (wanted > threads - 1) wanted = threads - 1;
  filling->helpers_wanted = (uint32_t)wanted;
  filling->helpers_seen = 0;
}

bool filling_recruit(struct filling *filling) {
  while (filling->helpers_seen < filling->helpers_wanted)
    if (start(filling, &filling->helpers[filling->helpers_seen++])) return true;
  return false;
}

void filling_end(struct filling *filling) {
  filling->ended_ns = now_ns();
  atomic_store(&filling->is_uploading, false);
}

void filling_close(struct filling *filling) {
  for (uint32_t i = 0; i < HELPERS_MOST; i++) {
    struct helper *helper = &filling->helpers[i];
    if (atomic_load(&helper->state) == HELPER_NONE) continue;
    pthread_join(helper->thread, NULL);
    atomic_store(&helper->state, HELPER_NONE);
  }
}
