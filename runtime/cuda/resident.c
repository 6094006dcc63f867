/* resident.c - see resident.h. The graph of a resident exec is a loop that waits before each replay
 * (runtime/doorbell.h). All is decided on the host, by compare and exchange of the bell's word. A replay adds 1, if the
 * word says that the graph is on the device. Whoever needs the lane moves the word to the next turn; the graph then
 * ends, after the replay that was rung, and the lane's stream orders all else.
 *
 * A thread beats for the graphs on the device, and takes those off that linger. A graph gives up its wait for a beat if
 * the process was stopped for a while. Then the next replay launches it again. */
#include "resident.h"

#include <time.h>

#include "../clock.h"
#include "../cpu_relax.h"
#include "../own_thread.h"
#include "cuda_failure.h"
#include "turns.h"

enum {
  BEAT_NS = 1000 * 1000,
  LOOKS_PER_HEALTH = 1 << 15 /* some milliseconds */
};

/* ---- Turns ------------------------------------------------------------------------------------------------------- */

/* Has the graph of the word's turn ended? If the turn is not over, it missed the beat. */
static bool has_left(uint64_t word, uint64_t left) {
  const uint64_t turn = word >> DOORBELL_TURN_SHIFT;
  return left >> DOORBELL_TURN_SHIFT == (uint16_t)(doorbell_is_on(word) ? turn + 1 : turn);
}

/* Another thread may have entered the lane, or put another exec on the device, before it could see that this one is
 * there. */
static bool is_unwanted(const struct device_exec *exec) {
  const struct lane *lane = exec->lane;
  return atomic_load(&lane->launching) != 1 || atomic_load(&lane->holds) || atomic_load(&lane->resident) != exec;
}

/* The event comes with the end of the graph. If that fails, nobody could tell when memory is free, and a replay may run
 * that the caller takes for refused: so the device is lost. */
static rondo_status launch(struct device_exec *exec, uint64_t off) {
  struct device *device = exec->device;
  cu_result result = device->driver.cuGraphLaunch(exec->resident_exec, exec->lane->stream);
  if (result != CU_SUCCESS) {
    __atomic_store_n(&exec->bell->word, off, __ATOMIC_SEQ_CST);
    return device_failed(device, result, "replay: cuGraphLaunch");
  }
  result = device->driver.cuEventRecord(exec->event, exec->lane->stream);
  if (result == CU_SUCCESS) return RONDO_OK;
  rondo_status status = device_failed(device, result, "replay: cuEventRecord after the launch");
  return status == RONDO_DEVICE_LOST ? status : device_lose(device, rondo_error_text());
}

/* With a replay. If the launch fails the word is as before, whoever has taken the exec off since. */
static rondo_status put_on(struct device_exec *exec) {
  struct device *device = exec->device;
  struct lane *lane = exec->lane;
  rondo_status status = device_enter(device, "replay");
  if (status != RONDO_OK) return status;
  lane_enter(lane);
  struct device_exec *before = atomic_exchange(&lane->resident, exec);
  if (before && before != exec) exec_take_off(before);
  const uint64_t off = doorbell_word(exec->bell);
  uint64_t word = off;
  doorbell_move(exec->bell, &word, off + doorbell_turn + 1);
  if (is_unwanted(exec)) exec_take_off(exec);
  status = launch(exec, off);
  lane_leave(lane);
  device_leave(device);
  return status;
}

/* A replay was rung in this word. False: the graph has given up without it, and the ring is taken back. A graph on a
 * device that is lost says neither. */
static bool is_heard(const struct device_exec *exec, uint64_t word) {
  struct doorbell *bell = exec->bell;
  for (uint32_t looks = 1; doorbell_is_leaving(bell, word) && !device_lost(exec->device); looks++) {
    if (has_left(word, doorbell_left(bell))) {
      while (!doorbell_move(bell, &word, word - 1)) continue;
      return false;
    }
    if (looks % LOOKS_PER_HEALTH == 0) cuda_health(exec->device);
    cpu_relax();
  }
  return true;
}

rondo_status resident_ring(struct device_exec *exec) {
  struct device *device = exec->device;
  struct residents *residents = &device->residents;
  if (device_lost(device)) return device_lost_status(device, "replay");
  bool is_rung = false;
  uint64_t word = doorbell_word(exec->bell);
  while (!is_rung && doorbell_is_on(word) && !has_left(word, doorbell_left(exec->bell)))
    is_rung = doorbell_move(exec->bell, &word, word + 1);
  if (is_rung && is_heard(exec, word + 1)) return RONDO_OK;
  exec_take_off(exec);
  rondo_status status = put_on(exec);
  pthread_mutex_lock(&residents->lock);
  pthread_cond_signal(&residents->changed);
  pthread_mutex_unlock(&residents->lock);
  return status;
}

/* ---- Beats ------------------------------------------------------------------------------------------------------- */

/* False: nothing is on the device. */
static bool look_at(struct device_exec *exec) {
  uint64_t word = doorbell_word(exec->bell), left = doorbell_left(exec->bell), now = now_ns();
  if (word == left) return false;
  __atomic_store_n(&exec->bell->beat, exec->bell->beat + 1, __ATOMIC_RELAXED);
  if (word != exec->last_word) exec->last_ns = now;
  exec->last_word = word;
  /* Unless a replay was rung meanwhile. */
  if (doorbell_is_on(word) && (has_left(word, left) || now - exec->last_ns >= exec->linger_ns))
    doorbell_move(exec->bell, &word, word + doorbell_turn);
  return true;
}

static void *beat(void *argument) {
  struct device *device = argument;
  struct residents *residents = &device->residents;
  own_thread_begin(NULL);
  pthread_mutex_lock(&residents->lock);
  while (!residents->stop && !device_lost(device)) {
    bool is_on = false;
    for (struct device_exec *exec = residents->execs; exec; exec = exec->next_resident) is_on = look_at(exec) || is_on;
    if (!is_on) {
      pthread_cond_wait(&residents->changed, &residents->lock);
      continue;
    }
    pthread_mutex_unlock(&residents->lock);
    nanosleep(&(struct timespec){.tv_nsec = BEAT_NS}, NULL);
    pthread_mutex_lock(&residents->lock);
  }
  pthread_mutex_unlock(&residents->lock);
  return NULL;
}

/* ---- Execs ------------------------------------------------------------------------------------------------------- */

rondo_status resident_begin(struct device_exec *exec) {
  struct residents *residents = &exec->device->residents;
  rondo_status status = RONDO_OK;
  pthread_mutex_lock(&residents->coming);
  pthread_mutex_lock(&residents->lock);
  if (!residents->execs) {
    residents->stop = false;
    if (own_thread_start(&residents->thread, beat, exec->device))
      status = status_set(RONDO_OUT_OF_MEMORY, "instantiate: linger_ns: no thread could be started");
  }
  if (status == RONDO_OK) {
    exec->next_resident = residents->execs;
    residents->execs = exec;
    exec->is_listed = true;
  }
  pthread_mutex_unlock(&residents->lock);
  pthread_mutex_unlock(&residents->coming);
  return status;
}

/* A thread that has entered the lane may have found the exec there. It may also be in the driver for ever. */
static void leave_lane(struct device_exec *exec) {
  struct lane *lane = exec->lane;
  struct device_exec *found = exec;
  exec_take_off(exec);
  atomic_compare_exchange_strong(&lane->resident, &found, NULL);
  if (lane_enter_alone_within(lane, exec->device, resident_patience_ns))
    lane_leave_alone(lane);
  else
    device_lose(exec->device, "close: a launch in the lane of a resident exec has not returned after 120 s");
}

void resident_end(struct device_exec *exec) {
  struct residents *residents = &exec->device->residents;
  if (!exec->is_listed) return;
  pthread_mutex_lock(&residents->coming);
  pthread_mutex_lock(&residents->lock);
  struct device_exec **link = &residents->execs;
  while (*link != exec) link = &(*link)->next_resident;
  *link = exec->next_resident;
  exec->is_listed = false;
  const bool is_last = !residents->execs;
  residents->stop = is_last;
  pthread_cond_signal(&residents->changed);
  pthread_mutex_unlock(&residents->lock);
  if (is_last) pthread_join(residents->thread, NULL);
  pthread_mutex_unlock(&residents->coming);
  leave_lane(exec);
}
