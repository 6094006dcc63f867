/* cuda_failure.c - see cuda_failure.h.
 *
 * A fatal error leaves the context, and with it this process's use of the GPU, unusable. Nothing more is asked of the
 * driver then, and its handles are leaked on purpose. Nothing brings the GPU back into the process. Tried on an H200
 * after an illegal address: the primary context released by its last holder, or reset, and retained again; a private
 * context destroyed and made again; a second context that was innocent. Each answers with the same error. */
#include "cuda_failure.h"

#include <stdarg.h>
#include <stdio.h>

#include "../fault.h"

/* After these errors the driver's documentation asks for the end of the process, or the hardware is gone. */
bool device_is_fatal(cu_result result) {
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

/* A kernel that gave up its wait for another rank has ended by a trap, after it stored the fault. */
rondo_status device_lose(struct device *device, const char *cause) {
  char text[CAUSE_BYTES];
  fault_describe(device->fault ? atomic_load(device->fault) : 0, cause, text, sizeof text);
  if (!atomic_exchange(&device->claimed, true)) {
    snprintf(device->cause, sizeof device->cause, "%s", text);
    atomic_store_explicit(&device->lost, true, memory_order_release);
  }
  return status_set(RONDO_DEVICE_LOST, "%s", text);
}

rondo_status device_failed(struct device *device, cu_result result, const char *format, ...) {
  char where[CAUSE_BYTES / 2], what[CAUSE_BYTES / 2 - 4], text[CAUSE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(where, sizeof where, format, arguments);
  va_end(arguments);
  driver_describe(&device->driver, result, what, sizeof what);
  snprintf(text, sizeof text, "%s: %s", where, what);
  if (device_is_fatal(result)) return device_lose(device, text);
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

/* While a thread of the process captures in the global mode (CUDA's default, and PyTorch's), the driver refuses calls
 * that ask, wait, allocate, instantiate or unload, and breaks that capture. It does the same to calls of a thread that
 * captures itself. No call of Rondo concerns a stream that captures, and the driver lets a thread in the relaxed mode
 * through. Seen on an H200: errors 900, and 901 at the end of the capture; neither from a relaxed thread. Launches are
 * always allowed. */
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

/* ---- Health ------------------------------------------------------------------------------------------------------ */

rondo_status cuda_check(const struct device *device, const char *phase) {
  return device_lost(device) ? device_lost_status(device, phase) : RONDO_OK;
}

rondo_status cuda_health(struct device *device) {
  if (device_lost(device)) return device_lost_status(device, "device health");
  const char *function = "cuCtxPushCurrent";
  cu_result result = device->driver.cuCtxPushCurrent(device->context);
  if (result == CU_SUCCESS) {
    function = "cuStreamQuery";
    result = device_query(device, device->lanes[0].stream);
    device_leave(device);
  }
  if (result == CU_SUCCESS || result == CU_NOT_READY) return RONDO_OK;
  /* After any error: a stream that cannot be asked will not finish, and a thread waits for it. */
  char what[CAUSE_BYTES / 2], text[CAUSE_BYTES];
  driver_describe(&device->driver, result, what, sizeof what);
  snprintf(text, sizeof text, "device health: %s: %s", function, what);
  return device_lose(device, text);
}
