/* lane.c - see lane.h. The backend splits the device. */
#include "lane.h"

#include <inttypes.h>
#include <stdio.h>

#include "exec.h"

rondo_status lanes_check(const rondo_options *options) {
  uint64_t arena_bytes = 0;
  if (options->lane_count > RONDO_MAX_LANES)
    return status_set(RONDO_INVALID_ARGUMENT, "open: %u lanes, expected at most %d", options->lane_count,
                      RONDO_MAX_LANES);
  if (options->lane_count && !options->lanes)
    return status_set(RONDO_INVALID_ARGUMENT, "open: the lanes are NULL, and their count is %u", options->lane_count);
  for (uint32_t i = 0; i < options->lane_count; i++) {
    const rondo_lane *lane = &options->lanes[i];
    if (lane->multiprocessors < 0 || lane->priority < 0)
      return status_set(RONDO_INVALID_ARGUMENT,
                        "open: lane %u '%s' has %d multiprocessors and priority %d: neither is negative", i,
                        lane->name ? lane->name : "", lane->multiprocessors, lane->priority);
    if (lane->arena_bytes > options->device_bytes - arena_bytes)
      return status_set(RONDO_INVALID_ARGUMENT,
                        "open: lane %u '%s' keeps %" PRIu64 " bytes of a device pool of %" PRIu64 ", of which %" PRIu64
                        " are left",
                        i, lane->name ? lane->name : "", lane->arena_bytes, options->device_bytes,
                        options->device_bytes - arena_bytes);
    arena_bytes += lane->arena_bytes;
  }
  return RONDO_OK;
}

void lanes_describe(const rondo_options *options, struct device_info *info) {
  info->lane_count = options->lane_count ? options->lane_count : 1;
  for (uint32_t i = 0; i < options->lane_count; i++) {
    const rondo_lane *lane = &options->lanes[i];
    struct device_lane *wanted = &info->lanes[i];
    *wanted = (struct device_lane){.priority = lane->priority, .arena_bytes = lane->arena_bytes};
    snprintf(wanted->name, sizeof wanted->name, "%s", lane->name ? lane->name : "");
  }
}

rondo_status lane_exists(const rondo_runtime *runtime, uint32_t lane, const char *phase) {
  uint32_t count = runtime->info.lane_count;
  if (lane < count) return RONDO_OK;
  return status_set(RONDO_INVALID_ARGUMENT, "%s: lane %u does not exist: the runtime has %u", phase, lane, count);
}

rondo_status lanes_reserve(rondo_runtime *runtime) {
  rondo_status status = RONDO_OK;
  for (uint32_t i = 0; i < runtime->info.lane_count && status == RONDO_OK; i++) {
    struct lane_arena *arena = &runtime->arenas[i];
    arena->kept_bytes = runtime->info.lanes[i].arena_bytes;
    if (arena->kept_bytes)
      status = pool_carve_top(&runtime->device_pool, arena->kept_bytes, "a lane's arena", &arena->extent);
  }
  return status == RONDO_OK ? status : status_set(status, "open: %s", rondo_error_text());
}

rondo_status arena_take(rondo_runtime *runtime, uint32_t lane, uint64_t bytes) {
  struct lane_arena *arena = &runtime->arenas[lane];
  rondo_status status = RONDO_OK;
  if (!bytes) return status;
  if (!arena->extent.bytes)
    status = pool_carve_top(&runtime->device_pool, bytes, "the arena of an exec's temporaries", &arena->extent);
  else
    status = pool_grow_down(&runtime->device_pool, bytes, "the arena of an exec's temporaries", &arena->extent);
  if (status != RONDO_OK && arena->extent.bytes)
    status = status_set(status, "lane %u '%s': %s, or give the lane arena_bytes", lane, runtime->info.lanes[lane].name,
                        rondo_error_text());
  return status;
}

uint64_t arena_growth(const rondo_runtime *runtime, uint32_t lane, uint64_t bytes) {
  const uint64_t rounded = pool_round(bytes), has = runtime->arenas[lane].extent.bytes;
  return rounded > has ? rounded - has : 0;
}

void arena_give(rondo_runtime *runtime, uint32_t lane) {
  struct lane_arena *arena = &runtime->arenas[lane];
  uint64_t bytes = arena->kept_bytes;
  for (const rondo_exec *exec = runtime->group->execs; exec; exec = exec->next)
    if (exec->runtime == runtime && exec->lane == lane && exec->memory.arena_bytes > bytes)
      bytes = exec->memory.arena_bytes;
  pool_shrink_up(&runtime->device_pool, bytes, &arena->extent);
}

unsigned char *arena_memory(const rondo_runtime *runtime, uint32_t lane, uint64_t bytes) {
  const struct pool_extent *extent = &runtime->arenas[lane].extent;
  return pool_memory(&runtime->device_pool, extent) + extent->bytes - bytes;
}

rondo_status rondo_lane_info(rondo_runtime *runtime, uint32_t lane, rondo_lane_grant *grant) {
  rondo_status status = runtime_check(runtime, "rondo_lane_info");
  if (status == RONDO_OK) status = lane_exists(runtime, lane, "rondo_lane_info");
  if (status != RONDO_OK) return status;
  if (!grant) return status_set(RONDO_INVALID_ARGUMENT, "rondo_lane_info: the grant is NULL");
  const struct device_lane *given = &runtime->info.lanes[lane];
  pthread_mutex_lock(&runtime->group->lock);
  uint64_t arena_bytes = runtime->arenas[lane].extent.bytes;
  pthread_mutex_unlock(&runtime->group->lock);
  *grant = (rondo_lane_grant){.name = given->name,
                              .multiprocessors = given->chip.multiprocessors,
                              .priority = given->priority,
                              .arena_bytes = arena_bytes,
                              .stream = given->stream};
  return RONDO_OK;
}
