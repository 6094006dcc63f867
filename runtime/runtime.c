/* runtime.c - see runtime.h; rondo_runtime_info and rondo_runtime_health. */
#include "runtime.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

rondo_status runtime_check(const rondo_runtime *runtime, const char *function) {
  if (!runtime) return status_set(RONDO_INVALID_ARGUMENT, "%s: the runtime is NULL", function);
  if (runtime->magic != runtime_magic) return status_set(RONDO_INVALID_STATE, "%s: the runtime is closed", function);
  if (!atomic_load_explicit(runtime->opened_here, memory_order_relaxed)) return forked_status(function);
  return RONDO_OK;
}

rondo_status runtime_may_open(const rondo_runtime *runtime) {
  return runtime->is_closing ? status_set(RONDO_INVALID_STATE, "another thread closes the runtime") : RONDO_OK;
}

/* A child of fork has the memory of the runtime, but neither its threads nor its GPU: it would wait for ever. The
 * kernel clears one page of the runtime in children (open.c), so each call, a replay too, detects a child by one load.
 */
rondo_status forked_status(const char *function) {
  return status_set(RONDO_INVALID_STATE, "%s: the runtime was opened before fork: open one in the child", function);
}

uint64_t serial_draw(void) {
  uint64_t serial = 0;
  /* The system call itself: the function of libc may allocate memory. */
  if (syscall(SYS_getrandom, &serial, sizeof serial, 0) != (long)sizeof serial) { /* older than Linux 3.17 */
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    serial = ((uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec) * UINT64_C(0x9e3779b97f4a7c15);
  }
  return serial | 1;
}

uint64_t runtime_free_bytes(const rondo_runtime *runtime) {
  return runtime->ops->free_bytes ? runtime->ops->free_bytes(runtime->device) : 0;
}

rondo_status runtime_check_outside(const rondo_runtime *runtime, const char *function) {
  const struct device_ops *ops = runtime->ops;
  if (!ops->in_callback(runtime->device)) return RONDO_OK;
  return status_set(RONDO_INVALID_STATE, "%s: called from a task of this runtime: it would wait for itself", function);
}

static rondo_pool_info pool_describe(const struct pool *pool) {
  return (rondo_pool_info){pool->capacity_bytes, pool->used_bytes, pool->high_water_bytes};
}

rondo_status rondo_runtime_info(rondo_runtime *runtime, rondo_info *info) {
  rondo_status status = runtime_check(runtime, "rondo_runtime_info");
  if (status != RONDO_OK) return status;
  if (!info) return status_set(RONDO_INVALID_ARGUMENT, "rondo_runtime_info: info is NULL");
  uint64_t free_bytes = runtime_free_bytes(runtime);
  pthread_mutex_lock(&runtime->group->lock);
  *info = (rondo_info){.backend = runtime->ops->backend,
                       .reason = runtime->info.reason,
                       .device_name = runtime->info.name,
                       .chip = runtime->info.chip.version,
                       .multiprocessors = runtime->info.chip.multiprocessors,
                       .driver_version = runtime->info.driver_version,
                       .device = pool_describe(&runtime->device_pool),
                       .pinned = pool_describe(&runtime->pinned_pool),
                       .host = pool_describe(&runtime->host_pool),
                       .lane_count = runtime->info.lane_count,
                       .driver_bytes = runtime->info.driver_bytes,
                       .free_device_bytes = free_bytes};
  pthread_mutex_unlock(&runtime->group->lock);
  return RONDO_OK;
}

rondo_status rondo_runtime_health(rondo_runtime *runtime) {
  rondo_status status = runtime_check(runtime, "rondo_runtime_health");
  return status == RONDO_OK ? runtime->ops->health(runtime->device) : status;
}
