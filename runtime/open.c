/* open.c - rondo_open, rondo_open_group and rondo_close: a backend, and for each rank a device and three pools. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "allocator.h"
#include "cores.h"
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

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static rondo_status options_check(uint32_t abi_version, const rondo_options *options, rondo_runtime **runtime) {
  if (abi_version != RONDO_ABI_VERSION)
    return status_set(RONDO_INVALID_ARGUMENT, "open: the program was compiled for ABI %u, the library has ABI %u",
                      abi_version, RONDO_ABI_VERSION);
  if (!options || !runtime)
    return status_set(RONDO_INVALID_ARGUMENT, "open: the %s is NULL", options ? "runtime's address" : "options");
  if ((unsigned)options->backend > RONDO_BACKEND_CUDA)
    return status_set(RONDO_INVALID_ARGUMENT, "open: backend is %d, expected one of rondo_backend",
                      (int)options->backend);
  if ((unsigned)options->wait_mode > RONDO_WAIT_BLOCK)
    return status_set(RONDO_INVALID_ARGUMENT, "open: wait_mode is %d, expected one of rondo_wait_mode",
                      (int)options->wait_mode);
  if (options->device < 0)
    return status_set(RONDO_INVALID_ARGUMENT, "open: device is %d, expected 0 or more", options->device);
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

/* ---- A runtime without its device -------------------------------------------------------------------------------- */

/* Without a group yet. */
static rondo_status runtime_make(const rondo_options *options, rondo_runtime **runtime_out) {
  rondo_allocator allocator = options->allocator ? *options->allocator : allocator_default();
  uint64_t host_bytes = pool_round(options->host_bytes ? options->host_bytes : default_host_bytes);
  rondo_status status = options->allocator ? RONDO_OK : spare_memory_check(host_bytes, "open: the host pool");
  if (status != RONDO_OK) return status;
  rondo_runtime *runtime = allocator.allocate(allocator.user, sizeof *runtime, POOL_ALIGNMENT);
  if (!runtime)
    return status_set(RONDO_OUT_OF_MEMORY, "open: the allocator has no %zu bytes for the runtime", sizeof *runtime);
  memset(runtime, 0, sizeof *runtime);
  runtime->allocator = allocator;
  runtime->wait_mode = options->wait_mode;
  runtime->host_memory = allocator.allocate(allocator.user, host_bytes, POOL_ALIGNMENT);
  pool_init(&runtime->host_pool, "host", runtime->host_memory, host_bytes);
  runtime->opened_here = fork_page_take();
  *runtime_out = runtime;
  if (!runtime->host_memory)
    return status_set(RONDO_OUT_OF_MEMORY, "open: the allocator has no %" PRIu64 " bytes for the host pool",
                      host_bytes);
  return runtime->opened_here ? RONDO_OK : status_set(RONDO_OUT_OF_MEMORY, "open: mmap returned no page");
}

/* `has_ended`: nothing touches the execs in the host pool any more. */
static void runtime_unmake(rondo_runtime *runtime, bool has_ended) {
  rondo_allocator allocator = runtime->allocator;
  runtime->magic = 0;
  fork_page_give(runtime->opened_here);
  if (has_ended && runtime->host_memory)
    allocator.release(allocator.user, runtime->host_memory, runtime->host_pool.capacity_bytes);
  allocator.release(allocator.user, runtime, sizeof *runtime);
}

/* ---- The devices of a group -------------------------------------------------------------------------------------- */

/* What is being opened. Rank r has options[r] and runtimes[r]. */
struct opening {
  const rondo_options *options;
  uint32_t ranks;
  rondo_runtime *runtimes[RONDO_MAX_RANKS];
};

/* The error text without "open: ", which some reasons lack. */
static const char *open_failure(void) {
  static const char phase[] = "open: ";
  const char *text = rondo_error_text();
  return strncmp(text, phase, sizeof phase - 1) ? text : text + sizeof phase - 1;
}

/* Puts phase and, in a group, rank before the error text. */
static rondo_status open_failed(const struct opening *o, uint32_t rank, rondo_status status) {
  if (o->ranks == 1) return status_set(status, "open: %s", open_failure());
  return status_set(status, "open: rank %u (device %d): %s", rank, o->options[rank].device, open_failure());
}

/* On the host the ranks of a group share the cores. */
static uint32_t host_threads_of(const struct opening *o, uint32_t rank) {
  struct cores cores;
  if (o->options[rank].host_threads || o->ranks == 1) return o->options[rank].host_threads;
  cores_find(&cores);
  const uint32_t threads = cores_threads(&cores) / o->ranks;
  return threads ? threads : 1;
}

static rondo_status device_open(const struct opening *o, uint32_t rank, const struct device_ops *ops) {
  rondo_runtime *runtime = o->runtimes[rank];
  void *device_memory = NULL, *pinned_memory = NULL;
  rondo_options sized = o->options[rank];
  sized.host_bytes = runtime->host_pool.capacity_bytes;
  if (ops == &host_device_ops) sized.host_threads = host_threads_of(o, rank);
  memset(&runtime->info, 0, sizeof runtime->info);
  rondo_status status =
      ops->open(&sized, &runtime->allocator, &runtime->device, &runtime->info, &device_memory, &pinned_memory);
  if (status != RONDO_OK) return status;
  runtime->ops = ops;
  pool_init(&runtime->device_pool, "device", device_memory, sized.device_bytes);
  pool_init(&runtime->pinned_pool, "pinned", pinned_memory, sized.pinned_bytes);
  return lanes_reserve(runtime);
}

static void devices_close(const struct opening *o) {
  for (uint32_t r = 0; r < o->ranks; r++) {
    rondo_runtime *runtime = o->runtimes[r];
    if (runtime->ops) runtime->ops->close(runtime->device, false);
    runtime->ops = NULL;
  }
}

static rondo_status devices_reach(const struct opening *o, const struct device_ops *ops) {
  for (uint32_t r = 0; r < o->ranks; r++)
    for (uint32_t peer = 0; peer < o->ranks; peer++) {
      rondo_status status = peer == r ? RONDO_OK : ops->reach(o->runtimes[r]->device, o->runtimes[peer]->device);
      if (status != RONDO_OK) return open_failed(o, r, status);
    }
  return RONDO_OK;
}

/* All with one backend, and each able to reach the memory of every other; or none. */
static rondo_status devices_open(const struct opening *o, const struct device_ops *ops) {
  rondo_status status = RONDO_OK;
  for (uint32_t r = 0; r < o->ranks && status == RONDO_OK; r++) {
    status = device_open(o, r, ops);
    if (status != RONDO_OK) open_failed(o, r, status);
  }
  if (status == RONDO_OK && ops->reach) status = devices_reach(o, ops);
  if (status == RONDO_OK) return status;
  char cause[512]; /* closing may fail too, with a text of its own */
  snprintf(cause, sizeof cause, "%s", rondo_error_text());
  devices_close(o);
  return status_set(status, "%s", cause);
}

/* Opens the requested backend. AUTO falls back to the host, for all ranks, and keeps the reason why CUDA cannot be
 * used.
 */
static rondo_status backend_open(const struct opening *o) {
  const rondo_backend backend = o->options[0].backend;
  char why_not_cuda[sizeof((struct device_info *)0)->reason - sizeof "host: "] = "";
  if (backend != RONDO_BACKEND_HOST) {
    rondo_status status = devices_open(o, &cuda_device_ops);
    if (status != RONDO_NO_DEVICE || backend == RONDO_BACKEND_CUDA) return status;
    snprintf(why_not_cuda, sizeof why_not_cuda, "%s", open_failure());
  }
  rondo_status status = devices_open(o, &host_device_ops);
  if (why_not_cuda[0] == '\0') return status;
  if (status != RONDO_OK)
    return status_set(status, "%s; the host was tried because: %s", rondo_error_text(), why_not_cuda);
  for (uint32_t r = 0; r < o->ranks; r++)
    snprintf(o->runtimes[r]->info.reason, sizeof o->runtimes[r]->info.reason, "host: %s", why_not_cuda);
  return RONDO_OK;
}

/* ---- Open -------------------------------------------------------------------------------------------------------- */

enum { MOST_DEVICES = 64 };
static _Atomic uint32_t groups_of_device[MOST_DEVICES]; /* of the process: open groups of several ranks */

static void devices_take(struct group *group, const rondo_options *options) {
  group->has_own_devices = true;
  for (uint32_t r = 0; r < group->ranks; r++) {
    const int32_t device = options[r].device;
    if (device >= MOST_DEVICES || group->devices >> device & 1 || options[r].lane_count > 1)
      group->has_own_devices = false;
    if (device < MOST_DEVICES) group->devices |= UINT64_C(1) << device;
  }
  for (int d = 0; d < MOST_DEVICES; d++)
    if (group->devices >> d & 1 && atomic_fetch_add(&groups_of_device[d], 1)) group->has_own_devices = false;
}

static void devices_give(const struct group *group) {
  for (int d = 0; d < MOST_DEVICES; d++)
    if (group->devices >> d & 1) atomic_fetch_sub(&groups_of_device[d], 1);
}

static rondo_status group_check(uint32_t abi_version, const struct opening *o, rondo_runtime **runtimes) {
  if (!o->ranks || o->ranks > RONDO_MAX_RANKS)
    return status_set(RONDO_INVALID_ARGUMENT, "open: %u ranks, expected 1 to %d", o->ranks, RONDO_MAX_RANKS);
  for (uint32_t r = 0; r < o->ranks; r++) {
    rondo_status status = options_check(abi_version, o->options ? &o->options[r] : NULL, runtimes);
    if (status == RONDO_OK && o->options[r].backend != o->options[0].backend)
      status = status_set(RONDO_INVALID_ARGUMENT, "open: backend %d, expected %d as of rank 0", o->options[r].backend,
                          o->options[0].backend);
    if (status != RONDO_OK) return o->options ? open_failed(o, r, status) : status;
  }
  return RONDO_OK;
}

static rondo_status group_make(struct opening *o, struct group **group_out) {
  for (uint32_t r = 0; r < o->ranks; r++) {
    rondo_status status = runtime_make(&o->options[r], &o->runtimes[r]);
    if (status != RONDO_OK) return open_failed(o, r, status);
  }
  const rondo_allocator *allocator = &o->runtimes[0]->allocator;
  struct group *group = allocator->allocate(allocator->user, sizeof *group, _Alignof(struct group));
  if (!group)
    return status_set(RONDO_OUT_OF_MEMORY, "open: the allocator has no %zu bytes for the group", sizeof *group);
  *group = (struct group){.allocator = *allocator, .ranks = o->ranks, .open_count = o->ranks};
  group->has_own_devices = o->ranks == 1 && o->options->lane_count <= 1; /* it waits for no other */
  pthread_mutex_init(&group->lock, NULL);
  *group_out = group;
  for (uint32_t r = 0; r < o->ranks; r++) {
    o->runtimes[r]->group = group;
    o->runtimes[r]->rank = r;
  }
  return RONDO_OK;
}

/* A runtime leaves its group: the last one ends it. */
static void group_leave(struct group *group, uint32_t count) {
  if (atomic_fetch_sub(&group->open_count, count) != count) return;
  const rondo_allocator allocator = group->allocator;
  devices_give(group);
  pthread_mutex_destroy(&group->lock);
  allocator.release(allocator.user, group, sizeof *group);
}

rondo_status rondo_open_group_abi(uint32_t abi_version, const rondo_options *options, uint32_t ranks,
                                  rondo_runtime **runtimes) {
  struct opening o = {.options = options, .ranks = ranks};
  struct group *group = NULL;
  rondo_status status = group_check(abi_version, &o, runtimes);
  if (status != RONDO_OK) return status;
  status = group_make(&o, &group);
  if (status == RONDO_OK) status = backend_open(&o);
  if (status == RONDO_OK && ranks > 1 && o.runtimes[0]->ops == &cuda_device_ops) devices_take(group, options);
  if (status != RONDO_OK && group) group_leave(group, ranks);
  for (uint32_t r = 0; r < ranks; r++) {
    if (status == RONDO_OK) {
      o.runtimes[r]->magic = runtime_magic;
      runtimes[r] = o.runtimes[r];
    } else if (o.runtimes[r]) {
      runtime_unmake(o.runtimes[r], true);
    }
  }
  return status;
}

rondo_status rondo_open_abi(uint32_t abi_version, const rondo_options *options, rondo_runtime **runtime) {
  return rondo_open_group_abi(abi_version, options, 1, runtime);
}

/* The header's inline functions as symbols of the library. */
extern rondo_status rondo_open(const rondo_options *options, rondo_runtime **runtime);
extern rondo_status rondo_open_group(const rondo_options *options, uint32_t ranks, rondo_runtime **runtimes);

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
  pthread_mutex_lock(&runtime->group->lock);
  if (runtime->open_execs || runtime->open_graphs)
    status = still_open(runtime);
  else if (runtime->is_closing)
    status = status_set(RONDO_INVALID_STATE, "close: another thread closes the runtime");
  else
    runtime->is_closing = true;
  pthread_mutex_unlock(&runtime->group->lock);
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
  bool has_ended = runtime->ops->close(runtime->device, runtime->is_touched);
  group_leave(runtime->group, 1);
  runtime_unmake(runtime, has_ended);
  *runtime_address = NULL;
  return RONDO_OK;
}
