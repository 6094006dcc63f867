/* cuda_memory.c - see cuda_memory.h. All work goes into the lane's stream, so it is in order with the lane's replays.
 */
#include "cuda_memory.h"

#include <inttypes.h>
#include <stdio.h>

#include "capture.h"
#include "cuda_failure.h"
#include "staging.h"
#include "turns.h"

enum { HOST_ALIGNMENT = 256 };

rondo_status device_free_memory(struct device *device, uint64_t *bytes) {
  size_t free_bytes = 0, total_bytes = 0;
  cu_result result = CU_SUCCESS;
  if (device->driver.cuMemGetInfo) result = device->driver.cuMemGetInfo(&free_bytes, &total_bytes);
  *bytes = result == CU_SUCCESS ? free_bytes : 0;
  return device_is_fatal(result) ? device_failed(device, result, "free memory: cuMemGetInfo") : RONDO_OK;
}

/* ---- Copies ------------------------------------------------------------------------------------------------------ */

/* Ends a call that held the lane and put work into its stream: waits for that work, and restores the caller's context.
 * It also waits after a call that failed, since earlier work may touch the caller's memory. */
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
  lane_release(&device->lanes[lane]);
  device_leave(device);
  return status;
}

/* The longest distance between rows that the driver takes. */
static const uint64_t pitch_most = INT32_MAX;

/* One row, or many rows with a pitch that the driver takes; else row by row. *function is the driver's function called
 * last. */
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

/* A whole rectangle, and one wait. */
static rondo_status copy_rows(struct device *device, uint32_t lane, cu_address on_device, unsigned char *on_host,
                              const struct device_rows *rows, bool is_upload) {
  const char *phase = is_upload ? "upload" : "download", *function = "";
  rondo_status status = device_enter(device, phase);
  if (status != RONDO_OK) return status;
  lane_hold(&device->lanes[lane]);
  cu_result result = CU_SUCCESS;
  for (uint64_t k = 0; k < rows->count[2] && rows->bytes; k++)
    for (uint64_t j = 0; j < rows->count[1] && result == CU_SUCCESS; j++, on_host += rows->bytes * rows->count[0])
      result = copy_plane(device, lane, on_device + k * rows->pitch_bytes[2] + j * rows->pitch_bytes[1], on_host, rows,
                          is_upload, &function);
  return finish(device, lane, result, phase, function);
}

/* An upload by the driver may have the same destination as a staged one before it, so the lane waits for staged uploads
 * first. */
rondo_status cuda_upload(struct device *device, uint32_t lane, const struct device_uploads *uploads) {
  rondo_status status = RONDO_OK;
  for (uint32_t i = 0, next; i < uploads->count && status == RONDO_OK; i = next) {
    status = staging_upload(device, uploads, i, &next);
    if (status != RONDO_OK || next > i) continue;
    const struct device_upload upload = uploads->at(uploads, i);
    next = i + 1;
    status = staging_await(device, lane);
    if (status == RONDO_OK)
      status = copy_rows(device, lane, (uintptr_t)upload.destination, (unsigned char *)(uintptr_t)upload.source,
                         &upload.rows, true);
  }
  return status;
}

rondo_status cuda_download(struct device *device, uint32_t lane, void *destination, const void *source,
                           struct device_rows rows) {
  return copy_rows(device, lane, (uintptr_t)source, destination, &rows, false);
}

rondo_status cuda_zero(struct device *device, uint32_t lane, void *destination, uint64_t bytes) {
  rondo_status status = device_enter(device, "zero");
  if (status != RONDO_OK) return status;
  lane_hold(&device->lanes[lane]);
  cu_result result = CU_SUCCESS;
  if (bytes) result = device->driver.cuMemsetD8Async((uintptr_t)destination, 0, bytes, device->lanes[lane].stream);
  return finish(device, lane, result, "zero", "cuMemsetD8Async");
}

/* ---- Memory besides the pools ------------------------------------------------------------------------------------ */

void cuda_memory_give(struct device *device, const struct device_memory *memory) {
  if (!device_lost(device) && (memory->device || memory->pinned) && device_enter(device, "give") == RONDO_OK) {
    device_hold(device);
    int mode = device_relax(device);
    if (memory->pinned) device->driver.cuMemFreeHost(memory->pinned);
    if (memory->device) device->driver.cuMemFree((uintptr_t)memory->device);
    device_restore(device, mode);
    device_release(device);
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

rondo_status cuda_memory_take(struct device *device, struct device_memory *memory) {
  memory->device = memory->pinned = memory->host = NULL;
  if (memory->host_bytes) {
    memory->host = device->allocator.allocate(device->allocator.user, memory->host_bytes, HOST_ALIGNMENT);
    if (!memory->host)
      return status_set(RONDO_OUT_OF_MEMORY, "the allocator has no %" PRIu64 " bytes", memory->host_bytes);
  }
  rondo_status status = device_enter(device, "take");
  if (status == RONDO_OK) {
    device_hold(device);
    int mode = device_relax(device);
    status = take_from_driver(device, memory);
    device_restore(device, mode);
    device_release(device);
    device_leave(device);
  }
  if (status == RONDO_OK) return status;
  char cause[CAUSE_BYTES];
  snprintf(cause, sizeof cause, "%s", rondo_error_text());
  cuda_memory_give(device, memory);
  memory->device = memory->pinned = memory->host = NULL;
  return status_set(status, "%s", cause);
}

/* ---- Waiting ----------------------------------------------------------------------------------------------------- */

rondo_status cuda_drain(struct device *device, uint32_t lane) {
  rondo_status status = device_enter(device, "drain");
  if (status != RONDO_OK) return status;
  lane_hold(&device->lanes[lane]);
  return finish(device, lane, CU_SUCCESS, "drain", "");
}

/* Not in a callback: it is not documented whether a capture survives the question. */
uint64_t cuda_free_bytes(struct device *device) {
  if (device_lost(device) || cuda_in_callback(device) || device_enter(device, "free memory") != RONDO_OK) return 0;
  uint64_t bytes;
  device_free_memory(device, &bytes);
  device_leave(device);
  return bytes;
}
