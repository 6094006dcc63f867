/* open.c - rondo_open and rondo_close: a backend, a device, three pools. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "allocator.h"
#include "lane.h"
#include "ownership.h"
#include "spare_memory.h"

static const uint64_t default_host_bytes = UINT64_C(16) << 20;

/* ---- Fork -------------------------------------------------------------------------------------------------------- */

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static const _Atomic uint32_t *fork_page_take(void) {
  _Atomic uint32_t *page = mmap(NULL, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return NULL;
  madvise((void *)page, page_bytes(), MADV_WIPEONFORK); /* before Linux 4.14 a child is not detected */
  atomic_init(page, 1);
  return page;
}

static void fork_page_give(const _Atomic uint32_t *page) {
  if (page) munmap((void *)(uintptr_t)page, page_bytes());
}

/* ---- Open -------------------------------------------------------------------------------------------------------- */

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
    return status_set(RONDO_INVALID_ARGUMENT, "open: %u host threads, expected at most 1024", options->host_threads);
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

/* Opens the requested backend. AUTO falls back to the host and keeps the reason why CUDA cannot be used. */
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
  return status == RONDO_OK
             ? status
             : status_set(status, "%s; the host was tried because: %s", rondo_error_text(), why_not_cuda);
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
    status = status_set(RONDO_OUT_OF_MEMORY, "open: mmap returned no page");
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

/* ---- Close ------------------------------------------------------------------------------------------------------- */

static rondo_status still_open(const rondo_runtime *runtime) {
  char names[EXEC_NAMES_BYTES], execs[EXEC_NAMES_BYTES + 64] = "", graphs[64] = "";
  const uint32_t exec_count = ownership_name_execs(runtime, names), graph_count = runtime->open_graphs;
  if (exec_count)
    snprintf(execs, sizeof execs, "%u exec%s, of task%s %s (rondo_close_exec)", exec_count, PLURAL(exec_count),
             PLURAL(exec_count), names);
  if (graph_count)
    snprintf(graphs, sizeof graphs, "%u graph%s (rondo_graph_destroy)", graph_count, PLURAL(graph_count));
  return status_set(RONDO_INVALID_STATE, "close: the runtime still has %s%s%s", execs,
                    exec_count && graph_count ? " and " : "", graphs);
}

/* Under the lock, so that the thread that closed the last exec has left it. */
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
