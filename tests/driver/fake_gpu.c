/* fake_gpu.c - the fake's GPUs and their contexts: which one is current, which one is lost, and which reaches the
 * memory of which. */
#include <stdio.h>

#include "fake.h"

/* ---- Device ------------------------------------------------------------------------------------------------------ */

bool device_exists(cu_device device) { return device >= 0 && device < fake.settings.device_count; }

cu_result fake_cuDeviceGetCount(int *count) {
  CALL(cuDeviceGetCount);
  *count = fake.settings.device_count;
  return CU_SUCCESS;
}

cu_result fake_cuDeviceGet(cu_device *device, int ordinal) {
  CALL(cuDeviceGet);
  if (!device_exists(ordinal)) return (cu_result)101; /* CUDA_ERROR_INVALID_DEVICE */
  *device = ordinal;
  return CU_SUCCESS;
}

cu_result fake_cuDeviceGetName(char *name, int bytes, cu_device device) {
  CALL(cuDeviceGetName);
  if (!device_exists(device) || bytes <= 0) return CU_INVALID_VALUE;
  snprintf(name, (size_t)bytes, "Fake GPU");
  return CU_SUCCESS;
}

cu_result fake_cuDeviceGetAttribute(int *value, int attribute, cu_device device) {
  CALL(cuDeviceGetAttribute);
  if (!device_exists(device)) return CU_INVALID_VALUE;
  switch (attribute) {
  case CU_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    *value = fake.settings.multiprocessors;
    return CU_SUCCESS;
  case CU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
    *value = fake.settings.chip / 10;
    return CU_SUCCESS;
  case CU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    *value = fake.settings.chip % 10;
    return CU_SUCCESS;
  case CU_ATTRIBUTE_MAX_SHARED_BYTES_PER_BLOCK_OPTIN:
    *value = fake.settings.shared_bytes;
    return CU_SUCCESS;
  default:
    violation("cuDeviceGetAttribute: the fake has no attribute %d", attribute);
    return CU_INVALID_VALUE;
  }
}

/* ---- Context ----------------------------------------------------------------------------------------------------- */

enum { CONTEXT_STACK = 16 };
static _Thread_local struct {
  void *contexts[CONTEXT_STACK];
  int depth;
} current;

void contexts_reset(void) { current.depth = 0; }

struct gpu *gpu_of_context(const void *context, const char *function) {
  void *body = object_body(context, CONTEXT, function);
  for (struct gpu *gpu = fake.gpus; gpu < fake.gpus + GPUS; gpu++)
    if (body == gpu) return gpu;
  return body ? ((struct green *)body)->gpu : NULL;
}

struct gpu *gpu_current(void) {
  const void *top = current.depth > 0 ? current.contexts[current.depth - 1] : NULL;
  for (struct gpu *gpu = fake.gpus; top && gpu < fake.gpus + GPUS; gpu++)
    if (gpu->context == top) return gpu;
  return NULL;
}

bool context_is_current(const char *function) {
  if (gpu_current()) return true;
  violation("%s without a current context", function);
  return false;
}

void primary_retain(struct gpu *gpu) {
  if (gpu->retained++ == 0) gpu->context = object_create(CONTEXT, gpu);
}

void primary_release(struct gpu *gpu) {
  if (--gpu->retained > 0) return;
  object_end(gpu->context);
  gpu->context = NULL;
  gpu->reaches = 0;
  for (struct gpu *other = fake.gpus; other < fake.gpus + GPUS; other++) other->reaches &= ~(1u << (gpu - fake.gpus));
}

/* ---- Loss -------------------------------------------------------------------------------------------------------- */

void gpu_lose(struct gpu *gpu, cu_result result) {
  if (gpu->lost == CU_SUCCESS) gpu->lost = result;
  pthread_cond_broadcast(&fake.changed);
}

cu_result gpu_lost_now(struct gpu *gpu, bool is_observed, const char *function) {
  if (gpu->lost_observed && function) violation("%s after the device was lost", function);
  gpu->lost_observed = gpu->lost_observed || is_observed;
  return gpu->lost;
}

/* Without a current context a call fails once no GPU is left. */
struct gpu *gpu_concerned(void) {
  struct gpu *gpu = gpu_current();
  if (gpu) return gpu->lost == CU_SUCCESS ? NULL : gpu;
  for (int32_t i = 0; i < fake.settings.device_count; i++)
    if (fake.gpus[i].lost == CU_SUCCESS) return NULL;
  return fake.settings.device_count ? &fake.gpus[0] : NULL;
}

/* ---- Contexts ---------------------------------------------------------------------------------------------------- */

cu_result fake_cuDevicePrimaryCtxRetain(struct cu_context **context, cu_device device) {
  CALL(cuDevicePrimaryCtxRetain);
  if (!device_exists(device)) return CU_INVALID_VALUE;
  struct gpu *gpu = &fake.gpus[device];
  if (gpu->lost != CU_SUCCESS) return gpu_lost_now(gpu, true, "cuDevicePrimaryCtxRetain");
  primary_retain(gpu);
  *context = gpu->context;
  return CU_SUCCESS;
}

cu_result fake_cuDevicePrimaryCtxRelease(cu_device device) {
  ENDING_CALL(cuDevicePrimaryCtxRelease);
  if (!device_exists(device)) return CU_INVALID_VALUE;
  if (fake.gpus[device].retained == 0) {
    violation("cuDevicePrimaryCtxRelease: more often than retained");
    return (cu_result)FAKE_INVALID_CONTEXT;
  }
  primary_release(&fake.gpus[device]);
  return call.later;
}

cu_result fake_cuCtxPushCurrent(struct cu_context *context) {
  CALL(cuCtxPushCurrent);
  struct gpu *gpu = gpu_of_context(context, "cuCtxPushCurrent");
  if (!gpu) return (cu_result)FAKE_INVALID_CONTEXT;
  if (gpu->lost != CU_SUCCESS) return gpu_lost_now(gpu, true, "cuCtxPushCurrent");
  if (current.depth == CONTEXT_STACK) {
    violation("cuCtxPushCurrent: %d contexts are never popped", CONTEXT_STACK);
    return CU_INVALID_VALUE;
  }
  current.contexts[current.depth++] = context;
  fake.context_depth++;
  return CU_SUCCESS;
}

cu_result fake_cuCtxPopCurrent(struct cu_context **context) {
  ENDING_CALL(cuCtxPopCurrent);
  if (current.depth == 0) {
    violation("cuCtxPopCurrent: this thread has pushed none");
    return (cu_result)FAKE_INVALID_CONTEXT;
  }
  *context = current.contexts[--current.depth];
  fake.context_depth--;
  return call.later;
}

cu_result fake_cuDeviceCanAccessPeer(int *can, cu_device device, cu_device peer) {
  CALL(cuDeviceCanAccessPeer);
  if (!device_exists(device) || !device_exists(peer)) return CU_INVALID_VALUE;
  *can = device != peer && !fake.settings.refuses_peers;
  return CU_SUCCESS;
}

cu_result fake_cuCtxEnablePeerAccess(struct cu_context *context, unsigned flags) {
  CALL(cuCtxEnablePeerAccess);
  if (!context_is_current("cuCtxEnablePeerAccess")) return (cu_result)FAKE_INVALID_CONTEXT;
  struct gpu *gpu = gpu_current(), *peer = gpu_of_context(context, "cuCtxEnablePeerAccess");
  if (!peer) return (cu_result)FAKE_INVALID_CONTEXT;
  if (flags) return CU_INVALID_VALUE;
  if (peer == gpu || fake.settings.refuses_peers) return (cu_result)FAKE_PEER_ACCESS_UNSUPPORTED;
  if (gpu_reaches(gpu, peer)) return CU_PEER_ACCESS_ALREADY_ENABLED;
  gpu->reaches |= 1u << (peer - fake.gpus);
  return CU_SUCCESS;
}

bool gpu_reaches(const struct gpu *gpu, const struct gpu *peer) {
  return peer == gpu || gpu->reaches >> (peer - fake.gpus) & 1;
}

cu_result fake_cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  CALL(cuCtxGetStreamPriorityRange);
  if (!context_is_current("cuCtxGetStreamPriorityRange")) return (cu_result)FAKE_INVALID_CONTEXT;
  *least = 0;
  *greatest = -5;
  return CU_SUCCESS;
}
