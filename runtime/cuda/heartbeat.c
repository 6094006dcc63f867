/* heartbeat.c - see heartbeat.h. Between replays the processor core that launches them falls asleep, with its clock and
 * its caches, and then the GPU. A thread on the same core launches a graph of one tiny kernel whenever there was no
 * replay lately. It has a stream of its own, so no replay waits for it. It beats in the first lane, whichever lane the
 * replays are in, since it keeps the core and the whole GPU awake.
 *
 * Measured on an H200: after 10 ms and 100 ms of idleness a replay takes 17 and 35 us; with a beat every 200 us 6 and
 * 7 us; with one every millisecond 8 and 11 us; with beats from another core as long as with none. */
#include "heartbeat.h"

#include <assert.h>
#include <sched.h>
#include <time.h>

#include "../own_thread.h"
#include "cuda_failure.h"
#include "cuda_graph.h"
#include "lanes.h"
#include "turns.h"

enum {
  PERIOD_NS = 200 * 1000,
  PATIENCE_BEATS = 10,
  /* After a kernel that hangs, beats would fill the driver's queue and then block. So each 32nd beat is sent only if
   * those before it have ended. Not each beat: the question costs the replays as much as a beat. */
  BEATS_A_LOOK = 32,
};

void heartbeat_follow(struct device *device) {
  struct heartbeat *heartbeat = &device->heartbeat;
  atomic_store_explicit(&heartbeat->core, sched_getcpu(), memory_order_relaxed);
  atomic_fetch_add_explicit(&heartbeat->replays, 1, memory_order_relaxed);
}

/* If the system refuses, the thread stays where it is. keep_warm helps less then, and there is no error. */
static void move_to(int core) {
  cpu_set_t set;
  if (core < 0 || core >= CPU_SETSIZE) return;
  CPU_ZERO(&set);
  CPU_SET((size_t)core, &set);
  sched_setaffinity(0, sizeof set, &set);
}

static void *beat(void *argument) {
  struct device *device = argument;
  struct heartbeat *heartbeat = &device->heartbeat;
  const struct driver *driver = &device->driver;
  int core = -1;
  uint64_t replays = 0;
  uint32_t beats = 0;
  own_thread_begin(NULL);
  if (device_enter(device, "keep warm") != RONDO_OK) return NULL;
  while (!atomic_load_explicit(&heartbeat->stop, memory_order_relaxed) && !device_lost(device)) {
    int wanted = atomic_load_explicit(&heartbeat->core, memory_order_relaxed);
    if (wanted != core) move_to(wanted);
    core = wanted;
    uint64_t seen = atomic_load_explicit(&heartbeat->replays, memory_order_relaxed);
    if (seen == replays && (beats % BEATS_A_LOOK || device_query(device, heartbeat->stream) == CU_SUCCESS)) {
      beats++;
      cu_result result = driver->cuGraphLaunch(heartbeat->exec->graph_exec, heartbeat->stream);
      if (result != CU_SUCCESS) {
        device_failed(device, result, "keep warm: cuGraphLaunch");
        break;
      }
    }
    replays = seen;
    nanosleep(&(struct timespec){.tv_nsec = PERIOD_NS}, NULL);
  }
  /* The last beat mostly ends at once. A beat that does not is destroyed in flight, as any replay is. */
  for (int i = 0; i < PATIENCE_BEATS && !device_lost(device); i++) {
    if (device_query(device, heartbeat->stream) != CU_NOT_READY) break;
    nanosleep(&(struct timespec){.tv_nsec = PERIOD_NS}, NULL);
  }
  device_leave(device);
  return NULL;
}

static rondo_status start(struct device *device) {
  struct heartbeat *heartbeat = &device->heartbeat;
  struct device_program program = {.counts = device->own_memory,
                                   .words = (_Atomic uint64_t *)(void *)(device->own_memory + 1),
                                   .host_memory = heartbeat->memory};
  assert(cuda_exec_bytes(&program).slot <= sizeof heartbeat->memory);
  rondo_status status = cuda_exec_create(device, &program, &heartbeat->exec);
  if (status != RONDO_OK) return status;
  status = device_enter(device, "keep warm");
  if (status != RONDO_OK) return status;
  sigset_t signals;
  own_thread_block_signals(&signals);
  cu_result result = lane_stream(device, &device->lanes[0], 0, &heartbeat->stream);
  own_thread_restore_signals(&signals);
  if (result != CU_SUCCESS) status = device_failed(device, result, "keep warm: no stream for the beats");
  device_leave(device);
  if (status != RONDO_OK) return status;
  atomic_store(&heartbeat->stop, false);
  atomic_store(&heartbeat->core, sched_getcpu());
  if (own_thread_start(&heartbeat->thread, beat, device) == 0) return RONDO_OK;
  return status_set(RONDO_OUT_OF_MEMORY, "instantiate: keep_warm: no thread could be started");
}

static void clean_up(struct device *device) {
  struct heartbeat *heartbeat = &device->heartbeat;
  if (heartbeat->stream && device_enter(device, "keep warm") == RONDO_OK) {
    device->driver.cuStreamDestroy(heartbeat->stream);
    device_leave(device);
  }
  if (heartbeat->exec) cuda_exec_destroy(heartbeat->exec);
  heartbeat->stream = NULL;
  heartbeat->exec = NULL;
}

/* The driver may hold up a launch for ever after a kernel that hangs has filled its queue. */
static bool has_ended(struct device *device) {
  enum { PATIENCE_S = 1 };
  pthread_t thread = device->heartbeat.thread;
  if (!device_lost(device)) return pthread_join(thread, NULL) == 0;
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += PATIENCE_S;
  return pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &until) == 0;
}

static rondo_status count_user(struct device *device, bool on) {
  struct heartbeat *heartbeat = &device->heartbeat;
  uint32_t users = atomic_load(&heartbeat->users);
  rondo_status status = RONDO_OK;
  if (on && users == 0) status = start(device);
  if (status == RONDO_OK) {
    atomic_store(&heartbeat->users, on ? users + 1 : users - 1);
    if (on || users > 1) return RONDO_OK;
    atomic_store(&heartbeat->stop, true);
    heartbeat->is_stuck = !has_ended(device);
    if (heartbeat->is_stuck) return RONDO_OK;
  }
  clean_up(device);
  return status;
}

rondo_status cuda_keep_warm(struct device *device, bool on) {
  device_hold(device);
  pthread_mutex_lock(&device->heartbeat.lock);
  rondo_status status = count_user(device, on);
  pthread_mutex_unlock(&device->heartbeat.lock);
  device_release(device);
  return status;
}
