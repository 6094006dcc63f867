/* runtime.c - rondo_open and rondo_close: a backend, a device, three pools. */
#include "runtime.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const uint64_t runtime_magic = 0x6f646e6f52;
static const uint64_t default_host_bytes = UINT64_C(16) << 20;

rondo_status runtime_check(const rondo_runtime *runtime, const char *function) {
  if (!runtime) return status_set(RONDO_INVALID_ARGUMENT, "%s: the runtime is NULL", function);
  if (runtime->magic != runtime_magic) return status_set(RONDO_INVALID_STATE, "%s: the runtime is closed", function);
  return RONDO_OK;
}

rondo_status runtime_check_outside(const rondo_runtime *runtime, const char *function) {
  const struct device_ops *ops = runtime->ops;
  if (!ops->in_callback || !ops->in_callback(runtime->device)) return RONDO_OK;
  return status_set(RONDO_INVALID_STATE, "%s: called from a task of this runtime: it would wait for itself", function);
}

rondo_status memory_take(struct memory_source source, uint64_t bytes, const char *owner, void **memory) {
  if (source.runtime) {
    pthread_mutex_lock(&source.runtime->lock);
    rondo_status status = pool_carve(&source.runtime->host_pool, bytes, owner, memory);
    pthread_mutex_unlock(&source.runtime->lock);
    return status;
  }
  rondo_allocator allocator = allocator_default();
  *memory = allocator.allocate(allocator.user, bytes, POOL_ALIGNMENT);
  if (*memory) return RONDO_OK;
  return status_set(RONDO_OUT_OF_MEMORY, "the allocator has no %" PRIu64 " bytes for %s", bytes, owner);
}

void memory_give(struct memory_source source, void *memory, uint64_t bytes) {
  if (!memory) return;
  if (source.runtime) {
    pthread_mutex_lock(&source.runtime->lock);
    pool_return(&source.runtime->host_pool, memory);
    pthread_mutex_unlock(&source.runtime->lock);
  } else {
    rondo_allocator allocator = allocator_default();
    allocator.release(allocator.user, memory, bytes);
  }
}

static rondo_status options_check(uint32_t abi_version, const rondo_options *options, rondo_runtime **runtime) {
  if (abi_version != RONDO_ABI_VERSION)
    return status_set(RONDO_INVALID_ARGUMENT, "open: the program was compiled for ABI %u, the library has ABI %u",
                      abi_version, RONDO_ABI_VERSION);
  if (!options || !runtime)
    return status_set(RONDO_INVALID_ARGUMENT, "open: the %s is NULL", options ? "runtime's address" : "options");
  if ((unsigned)options->backend > RONDO_BACKEND_CUDA)
    return status_set(RONDO_INVALID_ARGUMENT, "open: backend %d does not exist", (int)options->backend);
  if ((unsigned)options->wait_mode > RONDO_WAIT_BLOCK)
    return status_set(RONDO_INVALID_ARGUMENT, "open: wait mode %d does not exist", (int)options->wait_mode);
  if (options->device < 0) return status_set(RONDO_INVALID_ARGUMENT, "open: device %d is negative", options->device);
  if (options->host_threads > 1024)
    return status_set(RONDO_INVALID_ARGUMENT, "open: %u host threads are too many: 1024 at most",
                      options->host_threads);
  if (options->allocator && (!options->allocator->allocate || !options->allocator->release))
    return status_set(RONDO_INVALID_ARGUMENT, "open: the allocator lacks allocate or release");
  return RONDO_OK;
}

/* Opens the backend asked for; AUTO falls back to the host and keeps CUDA's reason. */
static rondo_status device_open(rondo_runtime *runtime, const rondo_options *options, void **device_memory,
                                void **pinned_memory) {
  struct device_info *info = &runtime->info;
  char why_not_cuda[sizeof info->reason / 2] = "";
  if (options->backend != RONDO_BACKEND_HOST) {
    runtime->ops = &cuda_device_ops;
    rondo_status status =
        runtime->ops->open(options, &runtime->allocator, &runtime->device, info, device_memory, pinned_memory);
    if (status != RONDO_NO_DEVICE || options->backend == RONDO_BACKEND_CUDA) return status;
    snprintf(why_not_cuda, sizeof why_not_cuda, "%s", rondo_error_text());
  }
  memset(info, 0, sizeof *info);
  runtime->ops = &host_device_ops;
  rondo_status status =
      runtime->ops->open(options, &runtime->allocator, &runtime->device, info, device_memory, pinned_memory);
  if (why_not_cuda[0] != '\0') snprintf(info->reason, sizeof info->reason, "host: %s", why_not_cuda);
  return status;
}

rondo_status rondo_open_abi(uint32_t abi_version, const rondo_options *options, rondo_runtime **runtime_out) {
  rondo_status status = options_check(abi_version, options, runtime_out);
  if (status != RONDO_OK) return status;
  rondo_allocator allocator = options->allocator ? *options->allocator : allocator_default();
  uint64_t host_bytes = pool_round(options->host_bytes ? options->host_bytes : default_host_bytes);
  rondo_runtime *runtime = allocator.allocate(allocator.user, sizeof *runtime, POOL_ALIGNMENT);
  if (!runtime)
    return status_set(RONDO_OUT_OF_MEMORY, "open: the allocator has no %zu bytes for the runtime", sizeof *runtime);
  memset(runtime, 0, sizeof *runtime);
  runtime->allocator = allocator;
  runtime->wait_mode = options->wait_mode;
  runtime->host_memory =
      host_bytes <= SIZE_MAX / 2 ? allocator.allocate(allocator.user, host_bytes, POOL_ALIGNMENT) : NULL;
  if (!runtime->host_memory) {
    status =
        status_set(RONDO_OUT_OF_MEMORY, "open: the allocator has no %" PRIu64 " bytes for the host pool", host_bytes);
    goto fail;
  }
  memset(runtime->host_memory, 0, host_bytes); /* touch every page now, not in a replay */
  void *device_memory = NULL, *pinned_memory = NULL;
  status = device_open(runtime, options, &device_memory, &pinned_memory);
  if (status != RONDO_OK) goto fail;
  pthread_mutex_init(&runtime->lock, NULL);
  pool_init(&runtime->device_pool, "device", device_memory, options->device_bytes);
  pool_init(&runtime->pinned_pool, "pinned", pinned_memory, options->pinned_bytes);
  pool_init(&runtime->host_pool, "host", runtime->host_memory, host_bytes);
  runtime->magic = runtime_magic;
  *runtime_out = runtime;
  return RONDO_OK;

fail:
  if (runtime->host_memory) allocator.release(allocator.user, runtime->host_memory, host_bytes);
  allocator.release(allocator.user, runtime, sizeof *runtime);
  return status;
}

rondo_status rondo_close(rondo_runtime **runtime_address) {
  if (!runtime_address || !*runtime_address) return RONDO_OK;
  rondo_runtime *runtime = *runtime_address;
  rondo_status status = runtime_check(runtime, "rondo_close");
  if (status == RONDO_OK) status = runtime_check_outside(runtime, "rondo_close");
  if (status != RONDO_OK) return status;
  if (runtime->open_execs || runtime->open_graphs)
    return status_set(RONDO_INVALID_STATE, "close: %u execs and %u graphs of the runtime are still open",
                      runtime->open_execs, runtime->open_graphs);
  bool all_ended = runtime->ops->close(runtime->device);
  pthread_mutex_destroy(&runtime->lock);
  runtime->magic = 0;
  rondo_allocator allocator = runtime->allocator;
  if (all_ended) allocator.release(allocator.user, runtime->host_memory, runtime->host_pool.capacity_bytes);
  allocator.release(allocator.user, runtime, sizeof *runtime);
  *runtime_address = NULL;
  return RONDO_OK;
}

static rondo_pool_info pool_describe(const struct pool *pool) {
  return (rondo_pool_info){pool->capacity_bytes, pool->used_bytes, pool->high_water_bytes};
}

rondo_status rondo_runtime_info(rondo_runtime *runtime, rondo_info *info) {
  rondo_status status = runtime_check(runtime, "rondo_runtime_info");
  if (status != RONDO_OK) return status;
  if (!info) return status_set(RONDO_INVALID_ARGUMENT, "rondo_runtime_info: info is NULL");
  pthread_mutex_lock(&runtime->lock);
  *info = (rondo_info){.backend = runtime->ops->backend,
                       .reason = runtime->info.reason,
                       .device_name = runtime->info.name,
                       .chip = runtime->info.chip.version,
                       .multiprocessors = runtime->info.chip.multiprocessors,
                       .driver_version = runtime->info.driver_version,
                       .device = pool_describe(&runtime->device_pool),
                       .pinned = pool_describe(&runtime->pinned_pool),
                       .host = pool_describe(&runtime->host_pool)};
  pthread_mutex_unlock(&runtime->lock);
  return RONDO_OK;
}
