/* runtime.c - rondo_open and rondo_close: a backend, a device, three pools. */
#include "lane.h"
#include "resident.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "spare_memory.h"

static const uint64_t runtime_magic = 0x6f646e6f52;
static const uint64_t default_host_bytes = UINT64_C(16) << 20;

rondo_status runtime_check(const rondo_runtime *runtime, const char *function) {
  if (!runtime) return status_set(RONDO_INVALID_ARGUMENT, "%s: the runtime is NULL", function);
  if (runtime->magic != runtime_magic) return status_set(RONDO_INVALID_STATE, "%s: the runtime is closed", function);
  if (!atomic_load_explicit(runtime->opened_here, memory_order_relaxed)) return forked_status(function);
  return RONDO_OK;
}

rondo_status runtime_may_open(const rondo_runtime *runtime) {
  return runtime->is_closing ? status_set(RONDO_INVALID_STATE, "another thread closes the runtime") : RONDO_OK;
}

/* ---- Fork -------------------------------------------------------------------------------------------------------- */

/* A child of fork has the memory of the runtime, but neither its threads nor its GPU: it would wait for ever. It is
 * told apart by a page that the kernel clears in children, so that every call may ask, a replay too: it costs a load.
 */
rondo_status forked_status(const char *function) {
  return status_set(RONDO_INVALID_STATE, "%s: the runtime was opened before fork: open one in the child", function);
}

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static const _Atomic uint32_t *fork_page_take(void) {
  _Atomic uint32_t *page = mmap(NULL, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return NULL;
  madvise((void *)page, page_bytes(), MADV_WIPEONFORK); /* before Linux 4.14 a child is not told apart */
  atomic_init(page, 1);
  return page;
}

static void fork_page_give(const _Atomic uint32_t *page) {
  if (page) munmap((void *)(uintptr_t)page, page_bytes());
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

uint64_t serial_draw(void) {
  uint64_t serial = 0;
  /* The call itself: a library's function may take memory for it. */
  if (syscall(SYS_getrandom, &serial, sizeof serial, 0) != (long)sizeof serial) { /* older than Linux 3.17 */
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    serial = ((uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec) * UINT64_C(0x9e3779b97f4a7c15);
  }
  return serial | 1;
}

rondo_status memory_source_of(rondo_runtime *runtime, const rondo_allocator *allocator, const char *function,
                              struct memory_source *source) {
  if (runtime && allocator)
    return status_set(RONDO_INVALID_ARGUMENT,
                      "%s: the runtime's host pool is where memory comes from, so that no "
                      "allocator can be given",
                      function);
  if (allocator && (!allocator->allocate || !allocator->release))
    return status_set(RONDO_INVALID_ARGUMENT, "%s: the allocator lacks allocate or release", function);
  *source = (struct memory_source){.runtime = runtime};
  if (allocator) source->allocator = *allocator;
  return RONDO_OK;
}

uint64_t runtime_free_bytes(const rondo_runtime *runtime) {
  return runtime->ops->free_bytes ? runtime->ops->free_bytes(runtime->device) : 0;
}

rondo_status runtime_check_outside(const rondo_runtime *runtime, const char *function) {
  const struct device_ops *ops = runtime->ops;
  if (!ops->in_callback || !ops->in_callback(runtime->device)) return RONDO_OK;
  return status_set(RONDO_INVALID_STATE, "%s: called from a task of this runtime: it would wait for itself", function);
}

static rondo_status take(struct memory_source source, uint64_t bytes, const char *owner, bool from_top, void **memory) {
  if (source.runtime) {
    pthread_mutex_lock(&source.runtime->lock);
    rondo_status status = pool_take(&source.runtime->host_pool, bytes, owner, from_top, memory);
    pthread_mutex_unlock(&source.runtime->lock);
    return status;
  }
  rondo_allocator allocator = source.allocator.allocate ? source.allocator : allocator_default();
  *memory = allocator.allocate(allocator.user, bytes, POOL_ALIGNMENT);
  if (*memory) return RONDO_OK;
  return status_set(RONDO_OUT_OF_MEMORY, "the allocator has no %" PRIu64 " bytes for %s", bytes, owner);
}

rondo_status memory_take(struct memory_source source, uint64_t bytes, const char *owner, void **memory) {
  return take(source, bytes, owner, false, memory);
}

rondo_status memory_take_for_now(struct memory_source source, uint64_t bytes, const char *owner, void **memory) {
  return take(source, bytes, owner, true, memory);
}

void memory_give(struct memory_source source, void *memory, uint64_t bytes) {
  if (!memory) return;
  if (source.runtime) {
    pthread_mutex_lock(&source.runtime->lock);
    pool_give(&source.runtime->host_pool, memory);
    pthread_mutex_unlock(&source.runtime->lock);
  } else {
    rondo_allocator allocator = source.allocator.allocate ? source.allocator : allocator_default();
    allocator.release(allocator.user, memory, bytes);
  }
}

/* ---- Open and close ---------------------------------------------------------------------------------------------- */

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
  const struct {
    const char *pool;
    uint64_t bytes;
  } sizes[] = {{"device", options->device_bytes}, {"pinned", options->pinned_bytes}, {"host", options->host_bytes}};
  for (int i = 0; i < 3; i++) /* so that no sum of sizes wraps */
    if (sizes[i].bytes > UINT64_MAX / 4)
      return status_set(RONDO_OUT_OF_MEMORY, "open: no machine has %" PRIu64 " bytes for the %s pool", sizes[i].bytes,
                        sizes[i].pool);
  return lanes_check(options);
}

/* Opens the backend asked for; AUTO falls back to the host and keeps CUDA's reason. */
static rondo_status device_open(rondo_runtime *runtime, const rondo_options *options, void **device_memory,
                                void **pinned_memory) {
  struct device_info *info = &runtime->info;
  char why_not_cuda[sizeof info->reason - sizeof "host: "] = "";
  if (options->backend != RONDO_BACKEND_HOST) {
    runtime->ops = &cuda_device_ops;
    rondo_status status =
        runtime->ops->open(options, &runtime->allocator, &runtime->device, info, device_memory, pinned_memory);
    if (status != RONDO_NO_DEVICE) return status;
    static const char phase[] = "open: "; /* of some reasons */
    const char *why = rondo_error_text();
    if (!strncmp(why, phase, sizeof phase - 1)) why += sizeof phase - 1;
    if (options->backend == RONDO_BACKEND_CUDA) return status_set(status, "%s%s", phase, why);
    snprintf(why_not_cuda, sizeof why_not_cuda, "%s", why);
  }
  memset(info, 0, sizeof *info);
  runtime->ops = &host_device_ops;
  rondo_status status =
      runtime->ops->open(options, &runtime->allocator, &runtime->device, info, device_memory, pinned_memory);
  if (why_not_cuda[0] == '\0') return status;
  snprintf(info->reason, sizeof info->reason, "host: %s", why_not_cuda);
  return status == RONDO_OK ? status
                            : status_set(status, "%s; the host, because: %s", rondo_error_text(), why_not_cuda);
}

rondo_status rondo_open_abi(uint32_t abi_version, const rondo_options *options, rondo_runtime **runtime_out) {
  rondo_status status = options_check(abi_version, options, runtime_out);
  if (status != RONDO_OK) return status;
  rondo_allocator allocator = options->allocator ? *options->allocator : allocator_default();
  uint64_t host_bytes = pool_round(options->host_bytes ? options->host_bytes : default_host_bytes);
  if (!options->allocator) status = spare_memory_check(host_bytes, "open: the host pool");
  if (status != RONDO_OK) return status;
  rondo_runtime *runtime = allocator.allocate(allocator.user, sizeof *runtime, POOL_ALIGNMENT);
  if (!runtime)
    return status_set(RONDO_OUT_OF_MEMORY, "open: the allocator has no %zu bytes for the runtime", sizeof *runtime);
  memset(runtime, 0, sizeof *runtime);
  runtime->allocator = allocator;
  runtime->wait_mode = options->wait_mode;
  runtime->host_memory = allocator.allocate(allocator.user, host_bytes, POOL_ALIGNMENT);
  if (!runtime->host_memory) {
    status =
        status_set(RONDO_OUT_OF_MEMORY, "open: the allocator has no %" PRIu64 " bytes for the host pool", host_bytes);
    goto fail;
  }
  runtime->opened_here = fork_page_take();
  if (!runtime->opened_here) {
    status = status_set(RONDO_OUT_OF_MEMORY, "open: mmap has no page");
    goto fail;
  }
  void *device_memory = NULL, *pinned_memory = NULL;
  rondo_options sized = *options;
  sized.host_bytes = host_bytes;
  status = device_open(runtime, &sized, &device_memory, &pinned_memory);
  if (status != RONDO_OK) goto fail;
  pthread_mutex_init(&runtime->lock, NULL);
  pool_init(&runtime->device_pool, "device", device_memory, options->device_bytes);
  pool_init(&runtime->pinned_pool, "pinned", pinned_memory, options->pinned_bytes);
  pool_init(&runtime->host_pool, "host", runtime->host_memory, host_bytes);
  status = lanes_reserve(runtime);
  if (status != RONDO_OK) {
    runtime->ops->close(runtime->device);
    pthread_mutex_destroy(&runtime->lock);
    goto fail;
  }
  runtime->magic = runtime_magic;
  *runtime_out = runtime;
  return RONDO_OK;

fail:
  fork_page_give(runtime->opened_here);
  if (runtime->host_memory) allocator.release(allocator.user, runtime->host_memory, host_bytes);
  allocator.release(allocator.user, runtime, sizeof *runtime);
  return status;
}

/* The header's inline function as a symbol of the library. */
extern rondo_status rondo_open(const rondo_options *options, rondo_runtime **runtime);

uint32_t rondo_version(void) { return RONDO_VERSION; }

static rondo_status still_open(const rondo_runtime *runtime) {
  char names[RESIDENTS_TEXT], execs[RESIDENTS_TEXT + 64] = "", graphs[64] = "";
  const uint32_t exec_count = residents_execs(runtime, names), graph_count = runtime->open_graphs;
  if (exec_count)
    snprintf(execs, sizeof execs, "%u exec%s, of task%s %s (rondo_close_exec)", exec_count, PLURAL(exec_count),
             PLURAL(exec_count), names);
  if (graph_count)
    snprintf(graphs, sizeof graphs, "%u graph%s (rondo_graph_destroy)", graph_count, PLURAL(graph_count));
  return status_set(RONDO_INVALID_STATE, "close: the runtime still has %s%s%s", execs,
                    exec_count && graph_count ? " and " : "", graphs);
}

/* Under the lock, which whoever closed the last exec has left then. */
static rondo_status close_begin(rondo_runtime *runtime) {
  rondo_status status = RONDO_OK;
  pthread_mutex_lock(&runtime->lock);
  if (runtime->open_execs || runtime->open_graphs)
    status = still_open(runtime);
  else if (runtime->is_closing)
    status = status_set(RONDO_INVALID_STATE, "close: another thread closes the runtime");
  else
    runtime->is_closing = true;
  pthread_mutex_unlock(&runtime->lock);
  return status;
}

rondo_status rondo_close(rondo_runtime **runtime_address) {
  if (!runtime_address || !*runtime_address) return RONDO_OK;
  rondo_runtime *runtime = *runtime_address;
  rondo_status status = runtime_check(runtime, "rondo_close");
  if (status == RONDO_OK) status = runtime_check_outside(runtime, "rondo_close");
  if (status != RONDO_OK) return status;
  status = close_begin(runtime);
  if (status != RONDO_OK) return status;
  bool all_ended = runtime->ops->close(runtime->device);
  pthread_mutex_destroy(&runtime->lock);
  runtime->magic = 0;
  fork_page_give(runtime->opened_here);
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
  uint64_t free_bytes = runtime_free_bytes(runtime);
  pthread_mutex_lock(&runtime->lock);
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
  pthread_mutex_unlock(&runtime->lock);
  return RONDO_OK;
}
