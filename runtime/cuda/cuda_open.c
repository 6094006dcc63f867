/* cuda_open.c - opens and closes one GPU: its primary context, its lanes, its memory, Rondo's device code; and the
 * table of the CUDA backend. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../cutter.h"
#include "../kernels.h"
#include "../lane.h"
#include "../own_thread.h"
#include "../spare_memory.h"
#include "capture.h"
#include "cuda_failure.h"
#include "cuda_graph.h"
#include "cuda_memory.h"
#include "cuda_replay.h"
#include "heartbeat.h"
#include "images.h"
#include "lanes.h"
#include "rebind.h"
#include "staging.h"

enum { OLDEST_CHIP = 80, SLAB_ALIGNMENT = 256, OWN_BYTES = 256 /* after each pool */ };

/* ---- Open and close ---------------------------------------------------------------------------------------------- */

static rondo_status choose_device(struct device *device, int wanted, struct device_info *info) {
  const struct driver *driver = &device->driver;
  int count = 0, major = 0, minor = 0, multiprocessors = 0, shared_bytes = 0;
  cu_result result = driver->cuDeviceGetCount(&count);
  if (result != CU_SUCCESS) return device_failed(device, result, "open: cuDeviceGetCount");
  if (count == 0) return status_set(RONDO_NO_DEVICE, "no CUDA device");
  if (wanted >= count)
    return status_set(RONDO_NO_DEVICE, "device %d does not exist: there %s %d", wanted, count == 1 ? "is" : "are",
                      count);
  result = driver->cuDeviceGet(&device->ordinal, wanted);
  if (result != CU_SUCCESS) return device_failed(device, result, "open: cuDeviceGet");
  result = driver->cuDeviceGetName(info->name, sizeof info->name, device->ordinal);
  if (result != CU_SUCCESS) return device_failed(device, result, "open: cuDeviceGetName");
  const struct {
    int attribute, *value;
  } wishes[] = {{CU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major},
                {CU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor},
                {CU_ATTRIBUTE_MULTIPROCESSOR_COUNT, &multiprocessors},
                {CU_ATTRIBUTE_MAX_SHARED_BYTES_PER_BLOCK_OPTIN, &shared_bytes}};
  for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
    result = driver->cuDeviceGetAttribute(wishes[i].value, wishes[i].attribute, device->ordinal);
    if (result != CU_SUCCESS) return device_failed(device, result, "open: cuDeviceGetAttribute");
  }
  device->chip = (struct chip){major * 10 + minor, multiprocessors, shared_bytes};
  if (device->chip.version < OLDEST_CHIP)
    return status_set(RONDO_NO_DEVICE, "device %d (%s) is sm_%d, Rondo needs sm_%d or newer", wanted, info->name,
                      device->chip.version, OLDEST_CHIP);
  /* Newer chips run the PTX of compute_80, which has no griddepcontrol. */
  device->kernels_overlap = device->chip.version == 90 || device->chip.version == 100;
  info->chip = device->chip;
  info->driver_version = driver->version;
  return RONDO_OK;
}

static rondo_status take_device_memory(struct device *device, uint64_t bytes) {
  const struct driver *driver = &device->driver;
  /* A size that wraps around goes to the driver as it is, which refuses it. */
  size_t pool = (bytes + SLAB_ALIGNMENT - 1) / SLAB_ALIGNMENT * SLAB_ALIGNMENT, wanted = pool + OWN_BYTES;
  if (wanted < bytes) wanted = bytes;
  cu_result result = driver->cuMemAlloc(&device->device_memory, wanted);
  if (result == CU_OUT_OF_MEMORY) {
    size_t free_bytes = 0, total_bytes = 0;
    if (driver->cuMemGetInfo && driver->cuMemGetInfo(&free_bytes, &total_bytes) == CU_SUCCESS)
      return status_set(RONDO_OUT_OF_MEMORY,
                        "open: the device has no %" PRIu64 " bytes for the device pool: %zu of %zu are free", bytes,
                        free_bytes, total_bytes);
  }
  if (result != CU_SUCCESS)
    return device_failed(device, result, "open: cuMemAlloc of %" PRIu64 " bytes for the device pool", bytes);
  device->own_memory = (void *)(uintptr_t)(device->device_memory + pool);
  result = driver->cuMemsetD8Async(device->device_memory, 0, wanted, device->lanes[0].stream);
  if (result != CU_SUCCESS) return device_failed(device, result, "open: cuMemsetD8Async");
  result = device_synchronize(device, device->lanes[0].stream);
  return result == CU_SUCCESS ? RONDO_OK : device_failed(device, result, "open: cuStreamSynchronize");
}

/* Some drivers take all memory there is, and then fail: so the pools are compared with it first. Pages of the host pool
 * are not resident yet, unless they come from the program's own allocator. */
static rondo_status check_host_memory(const rondo_options *options) {
  rondo_status status = spare_memory_check_pinned(options->pinned_bytes, "open: the pinned pool");
  if (status != RONDO_OK || options->allocator) return status;
  return spare_memory_check(options->pinned_bytes + options->host_bytes, "open: the pinned pool and the host pool");
}

static rondo_status take_pinned_memory(struct device *device, uint64_t bytes) {
  const struct driver *driver = &device->driver;
  size_t pool = (bytes + SLAB_ALIGNMENT - 1) / SLAB_ALIGNMENT * SLAB_ALIGNMENT, wanted = pool + OWN_BYTES;
  if (wanted < bytes) wanted = bytes; /* as above */
  cu_result result =
      driver->cuMemHostAlloc(&device->pinned_memory, wanted, CU_HOST_ALLOC_PORTABLE | CU_HOST_ALLOC_DEVICE_MAP);
  if (result != CU_SUCCESS) {
    device->pinned_memory = NULL;
    return device_failed(device, result, "open: cuMemHostAlloc of %" PRIu64 " bytes for the pinned pool", bytes);
  }
  cu_address address = 0;
  result = driver->cuMemHostGetDevicePointer(&address, device->pinned_memory, 0);
  if (result != CU_SUCCESS) return device_failed(device, result, "open: cuMemHostGetDevicePointer");
  if (address != (uintptr_t)device->pinned_memory)
    return status_set(RONDO_NO_DEVICE, "device %d sees pinned memory at another address than the host does",
                      device->ordinal);
  memset(device->pinned_memory, 0, wanted);
  device->fault = (_Atomic uint64_t *)(void *)((unsigned char *)device->pinned_memory + pool);
  return RONDO_OK;
}

static void release_all(struct device *device) {
  const struct driver *driver = &device->driver;
  images_unload(device);
  staging_close(device);
  device->fault = NULL; /* it is in the memory that goes now */
  if (device->pinned_memory) driver->cuMemFreeHost(device->pinned_memory);
  if (device->device_memory) driver->cuMemFree(device->device_memory);
  lanes_close(device);
}

/* Gives back in reverse order, as far as open came. */
static void give_back(struct device *device) {
  const struct driver *driver = &device->driver;
  if (!device->context_retained || device_lost(device)) return;
  int mode = device_relax(device);
  if (device_enter(device, "close") == RONDO_OK) {
    /* The host sees the end of a replay a little before its last kernel has ended. Each upload has a lane that waits
     * for it. */
    cu_result result = CU_SUCCESS;
    for (uint32_t i = 0; i < device->lane_count && result == CU_SUCCESS; i++)
      if (device->lanes[i].stream) result = device_synchronize(device, device->lanes[i].stream);
    if (result != CU_SUCCESS) device_failed(device, result, "close: cuStreamSynchronize");
    if (!device_lost(device)) release_all(device);
    device_leave(device);
  }
  if (!device_lost(device)) driver->cuDevicePrimaryCtxRelease(device->ordinal);
  device_restore(device, mode);
}

static bool cuda_close(struct device *device, bool is_touched) {
  if (is_touched) device_lose(device, "close: the lost device of another rank may still touch its memory");
  staging_join(device);
  give_back(device);
  bool is_done = !device_lost(device);
  if (device->heartbeat.is_stuck) return is_done; /* its thread still uses the device */
  staging_destroy(device);
  pthread_cond_destroy(&device->residents.changed);
  pthread_mutex_destroy(&device->residents.lock);
  pthread_mutex_destroy(&device->residents.coming);
  pthread_mutex_destroy(&device->heartbeat.lock);
  pthread_mutex_destroy(&device->lock);
  rondo_allocator allocator = device->allocator;
  allocator.release(allocator.user, device, device->own_bytes);
  return is_done;
}

static rondo_status take_all(struct device *device, const rondo_options *options, struct device_info *info) {
  rondo_status status = driver_load(&device->driver);
  if (status == RONDO_OK) status = choose_device(device, options->device, info);
  if (status != RONDO_OK) return status;
  cu_result result = device->driver.cuDevicePrimaryCtxRetain(&device->context, device->ordinal);
  if (result != CU_SUCCESS) return device_failed(device, result, "open: cuDevicePrimaryCtxRetain");
  device->context_retained = true;
  status = device_enter(device, "open");
  if (status != RONDO_OK) return status;
  int mode = device_relax(device);
  uint64_t free_bytes = 0, left_bytes = 0;
  status = device_free_memory(device, &free_bytes);
  if (status == RONDO_OK) status = lanes_open(device, options, info);
  if (status == RONDO_OK) status = images_load_first(device);
  if (status == RONDO_OK) status = device_free_memory(device, &left_bytes);
  info->driver_bytes = left_bytes && left_bytes < free_bytes ? free_bytes - left_bytes
                                                             : 0; /* other users of the GPU may have given some back */
  if (status == RONDO_OK) status = take_device_memory(device, options->device_bytes);
  if (status == RONDO_OK) status = check_host_memory(options);
  if (status == RONDO_OK) status = take_pinned_memory(device, options->pinned_bytes);
  if (status == RONDO_OK) status = staging_open(device, options->device_bytes);
  device_restore(device, mode);
  device_leave(device);
  return status;
}

/* After most errors this device cannot be used now, and another backend may do. A lack of memory is an error of its
 * own: the program should not end up on another backend. */
static rondo_status unusable(rondo_status status, const char *cause) {
  if (status == RONDO_DEVICE_LOST)
    return status_set(RONDO_NO_DEVICE,
                      "%s. After a fatal error, perhaps of an earlier runtime, only a new process can use the device",
                      cause);
  return status_set(status == RONDO_DEVICE_ERROR ? RONDO_NO_DEVICE : status, "%s", cause);
}

/* Nobody takes the access back: other code in this process may have wanted it too, and it ends with the context. */
static rondo_status cuda_reach(struct device *device, struct device *peer) {
  const struct driver *driver = &device->driver;
  int can = 0;
  if (peer->ordinal == device->ordinal) return RONDO_OK;
  const char *function = "cuDeviceCanAccessPeer";
  cu_result result = driver->cuDeviceCanAccessPeer(&can, device->ordinal, peer->ordinal);
  if (result == CU_SUCCESS && !can)
    return status_set(RONDO_NO_DEVICE, "it cannot reach the memory of device %d: no peer access", peer->ordinal);
  if (result == CU_SUCCESS) {
    rondo_status status = device_enter(device, "open");
    if (status != RONDO_OK) return unusable(status, rondo_error_text());
    int mode = device_relax(device);
    function = "cuCtxEnablePeerAccess";
    result = driver->cuCtxEnablePeerAccess(peer->context, 0);
    device_restore(device, mode);
    device_leave(device);
  }
  if (result == CU_SUCCESS || result == CU_PEER_ACCESS_ALREADY_ENABLED) return RONDO_OK;
  rondo_status status = device_failed(device, result, "open: to reach device %d: %s", peer->ordinal, function);
  return unusable(status, rondo_error_text());
}

/* The device with its libraries, its staging and its list of captured nodes. All are zeros except the list. Without
 * memory they are only measured. */
static struct device *cut_device(struct cutter *cutter) {
  uint64_t device_bytes = sizeof(struct device) + device_image_count * sizeof(struct cu_library *);
  struct device *device = cut(cutter, device_bytes);
  struct staging *staging = cut(cutter, staging_struct_bytes());
  struct cu_graph_node **captured = cut(cutter, CAPTURE_NODE_LIMIT * sizeof *captured);
  if (!cutter->base) return NULL;
  memset(device, 0, device_bytes);
  memset(staging, 0, staging_struct_bytes());
  device->staging = staging;
  device->captured = captured;
  return device;
}

static rondo_status cuda_open(const rondo_options *options, const rondo_allocator *allocator,
                              struct device **device_out, struct device_info *info, void **device_memory,
                              void **pinned_memory) {
  if (device_image_count == 0)
    return status_set(RONDO_NO_DEVICE, "this build has no device code: it was made without nvcc");
  struct cutter cutter = {0};
  cut_device(&cutter);
  void *memory = allocator->allocate(allocator->user, cutter.used, SLAB_ALIGNMENT);
  if (!memory) return status_set(RONDO_OUT_OF_MEMORY, "open: the allocator has no %" PRIu64 " bytes", cutter.used);
  struct device *device = cut_device(&(struct cutter){memory, 0});
  device->allocator = *allocator;
  device->own_bytes = cutter.used;
  pthread_mutex_init(&device->lock, NULL);
  pthread_mutex_init(&device->heartbeat.lock, NULL);
  pthread_mutex_init(&device->residents.coming, NULL);
  pthread_mutex_init(&device->residents.lock, NULL);
  pthread_cond_init(&device->residents.changed, NULL);
  staging_init(device);
  *info = (struct device_info){0};
  lanes_describe(options, info);
  sigset_t signals;
  own_thread_block_signals(&signals); /* the driver starts threads */
  rondo_status status = take_all(device, options, info);
  own_thread_restore_signals(&signals);
  if (status != RONDO_OK) {
    char cause[CAUSE_BYTES]; /* cuda_close may fail too, with a text of its own */
    snprintf(cause, sizeof cause, "%s", rondo_error_text());
    cuda_close(device, false);
    return unusable(status, cause);
  }
  snprintf(info->reason, sizeof info->reason, "cuda: %s",
           options->backend == RONDO_BACKEND_CUDA ? "asked for" : "a usable GPU is present");
  info->fault = device->fault;
  *device_out = device;
  *device_memory = (void *)(uintptr_t)device->device_memory;
  *pinned_memory = device->pinned_memory;
  return RONDO_OK;
}

const struct device_ops cuda_device_ops = {
    .backend = RONDO_BACKEND_CUDA,
    .open = cuda_open,
    .close = cuda_close,
    .reach = cuda_reach,
    .memory = {.upload = cuda_upload,
               .await_uploads = staging_await,
               .download = cuda_download,
               .zero = cuda_zero,
               .take = cuda_memory_take,
               .give = cuda_memory_give},
    .exec_bytes = cuda_exec_bytes,
    .exec_create = cuda_exec_create,
    .exec_launch = cuda_exec_launch,
    .exec_repeat = cuda_exec_repeat,
    .exec_ring = cuda_exec_ring,
    .exec_rebind = cuda_exec_rebind,
    .exec_destroy = cuda_exec_destroy,
    .health = cuda_health,
    .check = cuda_check,
    .lose = device_lose,
    .drain = cuda_drain,
    .in_callback = cuda_in_callback,
    .keep_warm = cuda_keep_warm,
    .free_bytes = cuda_free_bytes,
};
