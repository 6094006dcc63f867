/* cuda_device.c - one GPU: its primary context, its lanes, the two slabs, Rondo's device code; and what happens when a
 * driver call fails.
 *
 * The context is pushed around every call, so that any thread may make it and whatever context the caller has stays
 * current. A fatal error leaves the context, and with it this process's use of the GPU, unusable: nothing more is asked
 * of the driver then, and the handles are leaked on purpose. Nothing brings the GPU back into the process. Tried on an
 * H200 after an illegal address: the primary context released by its last holder, or reset, and retained again; a
 * context of our own destroyed and made again; a second context that was innocent. Each answers with the same error. */
#include "cuda_device.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../cutter.h"
#include "../kernels.h"
#include "../own_thread.h"
#include "../spare_memory.h"

enum { OLDEST_CHIP = 80, SLAB_ALIGNMENT = 256, OWN_BYTES = 256 };

/* ---- Failure ----------------------------------------------------------------------------------------------------- */

/* After these the driver's documentation asks for the process to end, or the hardware is gone. */
static bool is_fatal(cu_result result) {
  switch ((int)result) {
  case CU_ECC_UNCORRECTABLE:
  case CU_NVLINK_UNCORRECTABLE:
  case CU_CONTAINED:
  case CU_ILLEGAL_ADDRESS:
  case CU_LAUNCH_TIMEOUT:
  case CU_CONTEXT_IS_DESTROYED:
  case CU_ASSERT:
  case CU_TENSOR_MEMORY_LEAK:
  case CU_EXTERNAL_DEVICE:
    return true;
  default:
    return (int)result >= CU_HARDWARE_STACK_ERROR && (int)result <= CU_LAUNCH_FAILED;
  }
}

bool device_lost(const struct device *device) { return atomic_load_explicit(&device->lost, memory_order_acquire); }

rondo_status device_lost_status(const struct device *device, const char *phase) {
  return status_set(RONDO_DEVICE_LOST, "%s: the device was lost before: %s", phase, device->cause);
}

rondo_status device_lose(struct device *device, const char *cause) {
  if (!atomic_exchange(&device->claimed, true)) {
    snprintf(device->cause, sizeof device->cause, "%s", cause);
    atomic_store_explicit(&device->lost, true, memory_order_release);
  }
  return status_set(RONDO_DEVICE_LOST, "%s", cause);
}

rondo_status device_failed(struct device *device, cu_result result, const char *format, ...) {
  char where[CAUSE_BYTES / 2], what[CAUSE_BYTES / 2 - 4], text[CAUSE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(where, sizeof where, format, arguments);
  va_end(arguments);
  driver_describe(&device->driver, result, what, sizeof what);
  snprintf(text, sizeof text, "%s: %s", where, what);
  if (is_fatal(result)) return device_lose(device, text);
  rondo_status status = result == CU_OUT_OF_MEMORY       ? RONDO_OUT_OF_MEMORY
                        : result == CU_NO_BINARY_FOR_GPU ? RONDO_UNSUPPORTED
                                                         : RONDO_DEVICE_ERROR;
  return status_set(status, "%s", text);
}

rondo_status device_enter(struct device *device, const char *phase) {
  if (device_lost(device)) return device_lost_status(device, phase);
  cu_result result = device->driver.cuCtxPushCurrent(device->context);
  return result == CU_SUCCESS ? RONDO_OK : device_failed(device, result, "%s: cuCtxPushCurrent", phase);
}

void device_leave(struct device *device) {
  struct cu_context *context;
  device->driver.cuCtxPopCurrent(&context);
}

/* ---- Beside captures of others ----------------------------------------------------------------------------------- */

/* While any thread of the process captures in the global mode (CUDA's default, and PyTorch's), calls that ask, wait,
 * allocate, instantiate or unload are refused, and break that capture; so they are on a thread that captures itself.
 * None of ours concerns a stream that captures, and a thread that says so is let through. Seen on an H200: 900, and 901
 * at the end of the capture; neither from a relaxed thread. Launches are always allowed. */
int device_relax(const struct device *device) {
  int mode = CU_CAPTURE_RELAXED; /* and then as it was */
  return device->driver.cuThreadExchangeStreamCaptureMode(&mode) == CU_SUCCESS ? mode : CU_CAPTURE_RELAXED;
}

void device_restore(const struct device *device, int mode) {
  if (mode != CU_CAPTURE_RELAXED) device->driver.cuThreadExchangeStreamCaptureMode(&mode);
}

cu_result device_query(const struct device *device, struct cu_stream *stream) {
  int mode = device_relax(device);
  cu_result result = device->driver.cuStreamQuery(stream);
  device_restore(device, mode);
  return result;
}

cu_result device_synchronize(const struct device *device, struct cu_stream *stream) {
  int mode = device_relax(device);
  cu_result result = device->driver.cuStreamSynchronize(stream);
  device_restore(device, mode);
  return result;
}

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
  /* Newer chips run the PTX of compute_80, which knows no griddepcontrol. */
  device->kernels_overlap = device->chip.version == 90 || device->chip.version == 100;
  info->chip = device->chip;
  info->driver_version = driver->version;
  return RONDO_OK;
}

static rondo_status take_device_memory(struct device *device, uint64_t bytes) {
  const struct driver *driver = &device->driver;
  /* A size that wraps around is asked for as it is, and refused. */
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

/* A driver may take all there is, and fail. Of the host pool pages are to come, but for a program's own allocator. */
static rondo_status check_host_memory(const rondo_options *options) {
  rondo_status status = spare_memory_check_pinned(options->pinned_bytes, "open: the pinned pool");
  if (status != RONDO_OK || options->allocator) return status;
  return spare_memory_check(options->pinned_bytes + options->host_bytes, "open: the pinned pool and the host pool");
}

static rondo_status take_pinned_memory(struct device *device, uint64_t bytes) {
  const struct driver *driver = &device->driver;
  size_t wanted = bytes < SLAB_ALIGNMENT ? SLAB_ALIGNMENT : bytes;
  cu_result result =
      driver->cuMemHostAlloc(&device->pinned_memory, wanted, CU_HOST_ALLOC_PORTABLE | CU_HOST_ALLOC_DEVICE_MAP);
  if (result != CU_SUCCESS) {
    device->pinned_memory = NULL;
    return device_failed(device, result, "open: cuMemHostAlloc of %zu bytes for the pinned pool", wanted);
  }
  cu_address address = 0;
  result = driver->cuMemHostGetDevicePointer(&address, device->pinned_memory, 0);
  if (result != CU_SUCCESS) return device_failed(device, result, "open: cuMemHostGetDevicePointer");
  if (address != (uintptr_t)device->pinned_memory)
    return status_set(RONDO_NO_DEVICE, "device %d sees pinned memory at another address than the host does",
                      device->ordinal);
  memset(device->pinned_memory, 0, wanted);
  return RONDO_OK;
}

/* The image that has a kernel. It is loaded when a graph first asks for one of its kernels, because the driver keeps
 * the machine code of each loaded image in host memory. */
static uint32_t image_of(const char *kernel) {
  for (uint32_t i = 0; i < device_image_count; i++)
    for (const char *name = device_images[i].kernels; *name; name += strlen(name) + 1)
      if (!strcmp(name, kernel)) return i;
  return device_image_count;
}

cu_result device_find_kernel(struct device *device, const char *name, struct cu_kernel **kernel,
                             const char **function) {
  uint32_t image = image_of(name);
  if (image == device_image_count) return CU_NOT_FOUND;
  struct cu_library **library = &device->libraries[image];
  *function = "cuLibraryLoadData";
  cu_result result = CU_SUCCESS;
  if (!*library)
    result = device->driver.cuLibraryLoadData(library, device_images[image].begin, NULL, NULL, 0, NULL, NULL, 0);
  if (result != CU_SUCCESS) return *library = NULL, result;
  *function = "cuLibraryGetKernel";
  return device->driver.cuLibraryGetKernel(kernel, *library, name);
}

/* All images are for the same chips. So one of them, which every graph may need, tells whether any is for this chip. */
static rondo_status load_first_image(struct device *device) {
  struct cu_kernel *kernel;
  const char *function = "";
  cu_result result = device_find_kernel(device, op_done_kernel.name, &kernel, &function);
  if (result == CU_SUCCESS) return RONDO_OK;
  rondo_status status =
      device_failed(device, result, "open: %s of %s for sm_%d", function, op_done_kernel.name, device->chip.version);
  return status == RONDO_UNSUPPORTED ? status_set(RONDO_NO_DEVICE, "%s", rondo_error_text()) : status;
}

static void release_all(struct device *device) {
  const struct driver *driver = &device->driver;
  for (uint32_t i = device_image_count; i-- > 0;)
    if (device->libraries[i]) driver->cuLibraryUnload(device->libraries[i]);
  staging_close(device);
  if (device->pinned_memory) driver->cuMemFreeHost(device->pinned_memory);
  if (device->device_memory) driver->cuMemFree(device->device_memory);
  lanes_close(device);
}

/* Gives back what was taken, in reverse, as far as open came. */
static void give_back(struct device *device) {
  const struct driver *driver = &device->driver;
  if (!device->context_retained || device_lost(device)) return;
  int mode = device_relax(device);
  if (device_enter(device, "close") == RONDO_OK) {
    /* A replay is done for the host a little before its last kernel has ended. For every upload some lane waits. */
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

static bool cuda_close(struct device *device) {
  filling_close(&device->staging.filling);
  give_back(device);
  bool is_done = !device_lost(device);
  if (device->heartbeat.is_stuck) return is_done; /* the thread has the device still */
  pthread_mutex_destroy(&device->staging.lock);
  pthread_mutex_destroy(&device->heartbeat.lock);
  pthread_mutex_destroy(&device->lock);
  rondo_allocator allocator = device->allocator;
  allocator.release(allocator.user, device, device->own_bytes);
  return is_done;
}

/* 0 if the driver does not say. The context is current. */
static rondo_status free_memory(struct device *device, uint64_t *bytes) {
  size_t free_bytes = 0, total_bytes = 0;
  cu_result result = CU_SUCCESS;
  if (device->driver.cuMemGetInfo) result = device->driver.cuMemGetInfo(&free_bytes, &total_bytes);
  *bytes = result == CU_SUCCESS ? free_bytes : 0;
  return is_fatal(result) ? device_failed(device, result, "free memory: cuMemGetInfo") : RONDO_OK;
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
  status = free_memory(device, &free_bytes);
  if (status == RONDO_OK) status = lanes_open(device, options, info);
  if (status == RONDO_OK) status = load_first_image(device);
  if (status == RONDO_OK) status = free_memory(device, &left_bytes);
  info->driver_bytes =
      left_bytes && left_bytes < free_bytes ? free_bytes - left_bytes : 0; /* others may have given some back */
  if (status == RONDO_OK) status = take_device_memory(device, options->device_bytes);
  if (status == RONDO_OK) status = check_host_memory(options);
  if (status == RONDO_OK) status = take_pinned_memory(device, options->pinned_bytes);
  if (status == RONDO_OK) status = staging_open(device, options->device_bytes);
  device_restore(device, mode);
  device_leave(device);
  return status;
}

/* Whatever the driver's answer, this device cannot be used here and now; only for want of memory the user should not be
 * sent to another backend. */
static rondo_status unusable(rondo_status status, const char *cause) {
  if (status == RONDO_DEVICE_LOST)
    return status_set(RONDO_NO_DEVICE,
                      "%s. After a fatal error, perhaps of an earlier runtime, only a new process can use the device",
                      cause);
  return status_set(status == RONDO_DEVICE_ERROR ? RONDO_NO_DEVICE : status, "%s", cause);
}

/* The device, its libraries and what it captured; all zeros but for the last, or, without memory, only measured. */
static struct device *cut_device(struct cutter *cutter) {
  uint64_t device_bytes = sizeof(struct device) + device_image_count * sizeof(struct cu_library *);
  struct device *device = cut(cutter, device_bytes);
  struct cu_graph_node **captured = cut(cutter, CAPTURE_NODE_LIMIT * sizeof *captured);
  if (!cutter->base) return NULL;
  memset(device, 0, device_bytes);
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
  pthread_mutex_init(&device->staging.lock, NULL);
  *info = (struct device_info){0};
  lanes_describe(options, info);
  cores_find(&device->staging.filling.cores);
  sigset_t signals;
  own_thread_block_signals(&signals); /* the driver starts threads */
  rondo_status status = take_all(device, options, info);
  own_thread_restore_signals(&signals);
  if (status != RONDO_OK) {
    char cause[CAUSE_BYTES]; /* what is done now may fail too, and leave its own text */
    snprintf(cause, sizeof cause, "%s", rondo_error_text());
    cuda_close(device);
    return unusable(status, cause);
  }
  snprintf(info->reason, sizeof info->reason, "cuda: %s",
           options->backend == RONDO_BACKEND_CUDA ? "asked for" : "a usable GPU is present");
  *device_out = device;
  *device_memory = (void *)(uintptr_t)device->device_memory;
  *pinned_memory = device->pinned_memory;
  return RONDO_OK;
}

/* ---- Memory and waiting ------------------------------------------------------------------------------------------ */

/* Ends a call that put work on the stream: waits for it, also for what was put there before a call that failed, since
 * it may touch the caller's memory; and restores the caller's context. */
static rondo_status finish(struct device *device, uint32_t lane, cu_result result, const char *phase,
                           const char *function) {
  struct cu_stream *stream = device->lanes[lane].stream;
  rondo_status status = RONDO_OK;
  if (result != CU_SUCCESS) {
    status = device_failed(device, result, "%s: %s", phase, function);
    if (!device_lost(device)) device_synchronize(device, stream);
  } else {
    result = device_synchronize(device, stream);
    if (result != CU_SUCCESS) status = device_failed(device, result, "%s: cuStreamSynchronize", phase);
  }
  device_leave(device);
  return status;
}

/* The longest distance between rows that the driver takes. */
static const uint64_t pitch_most = INT32_MAX;

/* Of one row, or of many that lie close enough; else row by row. *function is what was called last. */
static cu_result copy_plane(struct device *device, uint32_t lane, cu_address on_device, unsigned char *on_host,
                            const struct device_rows *rows, bool is_upload, const char **function) {
  const struct driver *driver = &device->driver;
  struct cu_stream *stream = device->lanes[lane].stream;
  cu_result result = CU_SUCCESS;
  uint64_t row_count = rows->count[0], pitch_bytes = rows->pitch_bytes[0];
  if (row_count > 1 && pitch_bytes <= pitch_most) {
    struct cu_copy_2d copy = {.width_bytes = rows->bytes, .height = row_count};
    struct cu_copy_side host = {.memory_type = CU_MEMORY_HOST, .host = on_host, .pitch_bytes = rows->bytes};
    struct cu_copy_side there = {.memory_type = CU_MEMORY_DEVICE, .device = on_device, .pitch_bytes = pitch_bytes};
    copy.source = is_upload ? host : there;
    copy.destination = is_upload ? there : host;
    *function = "cuMemcpy2DAsync";
    return driver->cuMemcpy2DAsync(&copy, stream);
  }
  *function = is_upload ? "cuMemcpyHtoDAsync" : "cuMemcpyDtoHAsync";
  for (uint64_t i = 0; i < row_count && result == CU_SUCCESS; i++) {
    cu_address there = on_device + i * pitch_bytes;
    unsigned char *here = on_host + i * rows->bytes;
    result = is_upload ? driver->cuMemcpyHtoDAsync(there, here, rows->bytes, stream)
                       : driver->cuMemcpyDtoHAsync(here, there, rows->bytes, stream);
  }
  return result;
}

/* All of a rectangle, and one wait for it. */
static rondo_status copy_rows(struct device *device, uint32_t lane, cu_address on_device, unsigned char *on_host,
                              const struct device_rows *rows, bool is_upload) {
  const char *phase = is_upload ? "upload" : "download", *function = "";
  rondo_status status = device_enter(device, phase);
  if (status != RONDO_OK) return status;
  cu_result result = CU_SUCCESS;
  for (uint64_t k = 0; k < rows->count[2] && rows->bytes; k++)
    for (uint64_t j = 0; j < rows->count[1] && result == CU_SUCCESS; j++, on_host += rows->bytes * rows->count[0])
      result = copy_plane(device, lane, on_device + k * rows->pitch_bytes[2] + j * rows->pitch_bytes[1], on_host, rows,
                          is_upload, &function);
  return finish(device, lane, result, phase, function);
}

/* The lane waits for what is on its way before the driver's copy, which may be to the same place, and that is waited
 * for, also after a failure. */
static rondo_status cuda_upload(struct device *device, uint32_t lane, const struct device_uploads *uploads) {
  rondo_status status = RONDO_OK;
  for (uint32_t i = 0, next; i < uploads->count && status == RONDO_OK; i = next) {
    status = upload_staged(device, uploads, i, &next);
    if (status != RONDO_OK || next > i) continue;
    const struct device_upload upload = uploads->at(uploads, i);
    next = i + 1;
    status = cuda_await_uploads(device, lane);
    if (status == RONDO_OK)
      status = copy_rows(device, lane, (uintptr_t)upload.destination, (unsigned char *)(uintptr_t)upload.source,
                         &upload.rows, true);
  }
  return status;
}

static rondo_status cuda_download(struct device *device, uint32_t lane, void *destination, const void *source,
                                  struct device_rows rows) {
  return copy_rows(device, lane, (uintptr_t)source, destination, &rows, false);
}

static rondo_status cuda_zero(struct device *device, uint32_t lane, void *destination, uint64_t bytes) {
  rondo_status status = device_enter(device, "zero");
  if (status != RONDO_OK) return status;
  cu_result result = CU_SUCCESS;
  if (bytes) result = device->driver.cuMemsetD8Async((uintptr_t)destination, 0, bytes, device->lanes[lane].stream);
  return finish(device, lane, result, "zero", "cuMemsetD8Async");
}

static void cuda_memory_give(struct device *device, const struct device_memory *memory) {
  if (!device_lost(device) && (memory->device || memory->pinned) && device_enter(device, "give") == RONDO_OK) {
    int mode = device_relax(device);
    if (memory->pinned) device->driver.cuMemFreeHost(memory->pinned);
    if (memory->device) device->driver.cuMemFree((uintptr_t)memory->device);
    device_restore(device, mode);
    device_leave(device);
  }
  if (memory->host) device->allocator.release(device->allocator.user, memory->host, memory->host_bytes);
}

static rondo_status take_from_driver(struct device *device, struct device_memory *memory) {
  cu_address address = 0;
  cu_result result = CU_SUCCESS;
  if (memory->device_bytes) result = device->driver.cuMemAlloc(&address, memory->device_bytes);
  if (result != CU_SUCCESS)
    return device_failed(device, result, "cuMemAlloc of %" PRIu64 " bytes", memory->device_bytes);
  memory->device = (void *)(uintptr_t)address;
  if (memory->pinned_bytes)
    result = device->driver.cuMemHostAlloc(&memory->pinned, memory->pinned_bytes,
                                           CU_HOST_ALLOC_PORTABLE | CU_HOST_ALLOC_DEVICE_MAP);
  if (result == CU_SUCCESS) return RONDO_OK;
  memory->pinned = NULL;
  return device_failed(device, result, "cuMemHostAlloc of %" PRIu64 " bytes", memory->pinned_bytes);
}

static rondo_status cuda_memory_take(struct device *device, struct device_memory *memory) {
  memory->device = memory->pinned = memory->host = NULL;
  if (memory->host_bytes) {
    memory->host = device->allocator.allocate(device->allocator.user, memory->host_bytes, SLAB_ALIGNMENT);
    if (!memory->host)
      return status_set(RONDO_OUT_OF_MEMORY, "the allocator has no %" PRIu64 " bytes", memory->host_bytes);
  }
  rondo_status status = device_enter(device, "take");
  if (status == RONDO_OK) {
    int mode = device_relax(device);
    status = take_from_driver(device, memory);
    device_restore(device, mode);
    device_leave(device);
  }
  if (status == RONDO_OK) return status;
  char cause[CAUSE_BYTES];
  snprintf(cause, sizeof cause, "%s", rondo_error_text());
  cuda_memory_give(device, memory);
  memory->device = memory->pinned = memory->host = NULL;
  return status_set(status, "%s", cause);
}

static rondo_status cuda_drain(struct device *device, uint32_t lane) {
  rondo_status status = device_enter(device, "drain");
  return status == RONDO_OK ? finish(device, lane, CU_SUCCESS, "drain", "") : status;
}

/* Not from a callback: whether a capture survives the question is not documented. */
static uint64_t cuda_free_bytes(struct device *device) {
  if (device_lost(device) || cuda_in_callback(device) || device_enter(device, "free memory") != RONDO_OK) return 0;
  uint64_t bytes;
  free_memory(device, &bytes);
  device_leave(device);
  return bytes;
}

static rondo_status cuda_health(struct device *device) {
  if (device_lost(device)) return device_lost_status(device, "device health");
  const char *function = "cuCtxPushCurrent";
  cu_result result = device->driver.cuCtxPushCurrent(device->context);
  if (result == CU_SUCCESS) {
    function = "cuStreamQuery";
    result = device_query(device, device->lanes[0].stream); /* any will do: what is fatal is so for all */
    device_leave(device);
  }
  if (result == CU_SUCCESS || result == CU_NOT_READY) return RONDO_OK;
  /* Whatever the code: a stream that cannot even be asked will not finish, and somebody is waiting for it. */
  char what[CAUSE_BYTES / 2], text[CAUSE_BYTES];
  driver_describe(&device->driver, result, what, sizeof what);
  snprintf(text, sizeof text, "device health: %s: %s", function, what);
  return device_lose(device, text);
}

const struct device_ops cuda_device_ops = {
    .backend = RONDO_BACKEND_CUDA,
    .open = cuda_open,
    .close = cuda_close,
    .memory = {.upload = cuda_upload,
               .await_uploads = cuda_await_uploads,
               .download = cuda_download,
               .zero = cuda_zero,
               .take = cuda_memory_take,
               .give = cuda_memory_give},
    .exec_bytes = cuda_exec_bytes,
    .exec_create = cuda_exec_create,
    .exec_launch = cuda_exec_launch,
    .exec_rebind = cuda_exec_rebind,
    .exec_destroy = cuda_exec_destroy,
    .health = cuda_health,
    .lose = device_lose,
    .drain = cuda_drain,
    .in_callback = cuda_in_callback,
    .keep_warm = cuda_keep_warm,
    .free_bytes = cuda_free_bytes,
};
