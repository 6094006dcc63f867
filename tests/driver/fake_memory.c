/* fake_memory.c - device and pinned memory: both the host's, filled with garbage as the real one is. Every access the
 * fake makes is checked to lie in an allocation that is alive. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

enum { DEVICE_ALIGNMENT = 512, PINNED_ALIGNMENT = 4096, GARBAGE = 0xa5 };

static void *memory_take(size_t bytes, bool pinned) {
  struct memory *memory = calloc(1, sizeof *memory);
  void *begin = NULL;
  /* The exact size, so that AddressSanitizer sees the first byte after it. */
  if (!memory || posix_memalign(&begin, pinned ? PINNED_ALIGNMENT : DEVICE_ALIGNMENT, bytes)) abort();
  memset(begin, GARBAGE, bytes);
  *memory =
      (struct memory){.next = fake.memory, .gpu = gpu_current(), .begin = begin, .bytes = bytes, .pinned = pinned};
  fake.memory = memory;
  if (!pinned) memory->gpu->bytes_used += bytes;
  return begin;
}

static cu_result memory_give(const void *begin, bool pinned, const char *function) {
  struct memory **link = &fake.memory;
  while (*link && ((*link)->begin != begin || (*link)->pinned != pinned)) link = &(*link)->next;
  if (!*link) {
    violation("%s: %p is not allocated", function, begin);
    return CU_INVALID_VALUE;
  }
  struct memory *memory = *link;
  if (memory->gpu != gpu_current()) violation("%s: the memory is another device's", function);
  if (!streams_idle(memory->gpu)) violation("%s while work is in flight", function);
  *link = memory->next;
  if (!pinned) memory->gpu->bytes_used -= memory->bytes;
  free(memory->begin);
  free(memory);
  return CU_SUCCESS;
}

/* The allocation with all of these bytes, or NULL. */
static const struct memory *memory_at(uint64_t address, uint64_t bytes) {
  for (const struct memory *memory = fake.memory; memory; memory = memory->next) {
    uint64_t offset = address - (uintptr_t)memory->begin;
    if (offset <= memory->bytes && bytes <= memory->bytes - offset) return memory;
  }
  return NULL;
}

bool memory_holds(uint64_t address, uint64_t bytes) { return memory_at(address, bytes) != NULL; }

bool memory_is_apart(const struct gpu *gpu, uint64_t address) {
  const struct memory *memory = memory_at(address, 1);
  return memory && !memory->pinned && !gpu_reaches(gpu, memory->gpu);
}

uint32_t memory_live(char *text, size_t bytes) {
  uint32_t live = 0;
  for (const struct memory *memory = fake.memory; memory; memory = memory->next, live++) {
    size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%zu bytes of %s memory ", memory->bytes, memory->pinned ? "pinned" : "device");
  }
  return live;
}

void memory_reset(void) {
  while (fake.memory) {
    struct memory *next = fake.memory->next;
    free(fake.memory->begin);
    free(fake.memory);
    fake.memory = next;
  }
}

/* ---- Entry points ------------------------------------------------------------------------------------------------ */

cu_result fake_cuMemAlloc(cu_address *memory, size_t bytes) {
  CALL(cuMemAlloc);
  if (capture_forbids_waiting(NULL, "cuMemAlloc")) return CU_CAPTURE_UNSUPPORTED;
  if (!context_is_current("cuMemAlloc")) return (cu_result)FAKE_INVALID_CONTEXT;
  if (bytes == 0) return CU_INVALID_VALUE;
  if (bytes > fake.settings.device_bytes - gpu_current()->bytes_used) return CU_OUT_OF_MEMORY;
  *memory = (uintptr_t)memory_take(bytes, false);
  return CU_SUCCESS;
}

cu_result fake_cuMemFree(cu_address memory) {
  ENDING_CALL(cuMemFree);
  if (capture_forbids_waiting(NULL, "cuMemFree")) return CU_CAPTURE_UNSUPPORTED;
  if (!context_is_current("cuMemFree")) return (cu_result)FAKE_INVALID_CONTEXT;
  cu_result result = memory_give((void *)(uintptr_t)memory, false, "cuMemFree");
  return result == CU_SUCCESS ? call.later : result;
}

cu_result fake_cuMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  CALL(cuMemGetInfo);
  if (!context_is_current("cuMemGetInfo")) return (cu_result)FAKE_INVALID_CONTEXT;
  *total_bytes = fake.settings.device_bytes;
  *free_bytes = fake.settings.device_bytes - gpu_current()->bytes_used;
  return CU_SUCCESS;
}

cu_result fake_cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
  CALL(cuMemHostAlloc);
  if (capture_forbids_waiting(NULL, "cuMemHostAlloc")) return CU_CAPTURE_UNSUPPORTED;
  if (!context_is_current("cuMemHostAlloc")) return (cu_result)FAKE_INVALID_CONTEXT;
  if (bytes == 0 || flags > 7) return CU_INVALID_VALUE;
  *memory = memory_take(bytes, true);
  return CU_SUCCESS;
}

cu_result fake_cuMemFreeHost(void *memory) {
  ENDING_CALL(cuMemFreeHost);
  if (capture_forbids_waiting(NULL, "cuMemFreeHost")) return CU_CAPTURE_UNSUPPORTED;
  if (!context_is_current("cuMemFreeHost")) return (cu_result)FAKE_INVALID_CONTEXT;
  cu_result result = memory_give(memory, true, "cuMemFreeHost");
  return result == CU_SUCCESS ? call.later : result;
}

cu_result fake_cuMemHostGetDevicePointer(cu_address *address, void *memory, unsigned flags) {
  CALL(cuMemHostGetDevicePointer);
  if (flags || !memory_holds((uintptr_t)memory, 1)) return CU_INVALID_VALUE;
  *address = (uintptr_t)memory + (fake.settings.pinned_moves ? UINT64_C(1) << 40 : 0);
  return CU_SUCCESS;
}

cu_result fake_cuPointerGetAttributes(unsigned count, int *attributes, void **values, cu_address address) {
  CALL(cuPointerGetAttributes);
  const struct memory *memory = memory_at(address, 1);
  for (unsigned i = 0; i < count; i++) {
    if (attributes[i] != CU_POINTER_MEMORY_TYPE) return CU_INVALID_VALUE;
    *(unsigned *)values[i] = !memory ? 0 : memory->pinned ? CU_MEMORY_HOST : CU_MEMORY_DEVICE;
  }
  return CU_SUCCESS;
}

static bool in_memory(const char *function, cu_address address, size_t bytes) {
  if (memory_holds(address, bytes)) return true;
  violation("%s: %zu bytes at %#llx are not all allocated", function, bytes, (unsigned long long)address);
  return false;
}

/* What a captured copy or fill does in each replay: the memory may be gone by then. Without the lock, as all nodes. */
enum { DESTINATION, SOURCE_OR_VALUE, BYTES, ON_DEVICE };

static bool may_replay(void *const *arguments, const char *what) {
  pthread_mutex_lock(&fake.lock);
  bool held = in_memory(what, (uintptr_t)arguments[ON_DEVICE], (uintptr_t)arguments[BYTES]);
  if (!held) gpu_lose(gpu_running(), CU_ILLEGAL_ADDRESS);
  pthread_mutex_unlock(&fake.lock);
  return held;
}

static void replay_copy(void *const *arguments) {
  if (may_replay(arguments, "a captured copy"))
    memcpy(arguments[DESTINATION], arguments[SOURCE_OR_VALUE], (uintptr_t)arguments[BYTES]);
}

static void replay_fill(void *const *arguments) {
  if (may_replay(arguments, "a captured fill"))
    memset(arguments[DESTINATION], (int)(uintptr_t)arguments[SOURCE_OR_VALUE], (uintptr_t)arguments[BYTES]);
}

/* A capturing stream keeps the work as a node. */
static cu_result capture(struct cu_stream *stream, const struct item *wanted, cu_address on_device) {
  bool fills = wanted->kind == ITEM_FILL;
  const struct fake_work work = {
      .type = fills ? CU_NODE_MEMSET : CU_NODE_MEMCPY,
      .function = fills ? replay_fill : replay_copy,
      .arguments = {[DESTINATION] = wanted->destination,
                    [SOURCE_OR_VALUE] = (void *)(fills ? (uintptr_t)wanted->value : (uintptr_t)wanted->source),
                    [BYTES] = (void *)(uintptr_t)wanted->bytes,
                    [ON_DEVICE] = (void *)(uintptr_t)on_device}};
  pthread_mutex_unlock(&fake.lock); /* fake_enqueue takes it */
  cu_result result = (cu_result)fake_enqueue(stream, &work, 1);
  pthread_mutex_lock(&fake.lock);
  return result;
}

/* Copies run in stream order, also those from pageable memory, which a real driver may stage earlier. */
static cu_result put(struct cu_stream *handle, const char *function, cu_address on_device, const struct item *wanted) {
  struct stream *stream = object_body(handle, STREAM, function);
  if (!stream) return CU_INVALID_HANDLE;
  if (!in_memory(function, on_device, wanted->bytes)) return CU_INVALID_VALUE;
  if (memory_is_apart(stream->gpu, on_device)) violation("%s: the stream's device does not reach the memory", function);
  if (stream->capture != CAPTURE_NONE) return capture(handle, wanted, on_device);
  struct item *item = malloc(sizeof *item);
  if (!item) abort();
  *item = *wanted;
  return stream_put(stream, item);
}

cu_result fake_cuMemcpyHtoDAsync(cu_address destination, const void *source, size_t bytes, struct cu_stream *stream) {
  CALL(cuMemcpyHtoDAsync);
  return put(stream, "cuMemcpyHtoDAsync", destination,
             &(struct item){
                 .kind = ITEM_COPY, .destination = (void *)(uintptr_t)destination, .source = source, .bytes = bytes});
}

cu_result fake_cuMemcpyDtoHAsync(void *destination, cu_address source, size_t bytes, struct cu_stream *stream) {
  CALL(cuMemcpyDtoHAsync);
  return put(
      stream, "cuMemcpyDtoHAsync", source,
      &(struct item){
          .kind = ITEM_COPY, .destination = destination, .source = (const void *)(uintptr_t)source, .bytes = bytes});
}

/* Row by row; captured work has it nowhere. */
cu_result fake_cuMemcpy2DAsync(const struct cu_copy_2d *copy, struct cu_stream *stream) {
  CALL(cuMemcpy2DAsync);
  const struct cu_copy_side *from = &copy->source, *to = &copy->destination;
  bool is_upload = to->memory_type == CU_MEMORY_DEVICE;
  cu_result result = CU_SUCCESS;
  if (from->memory_type != (is_upload ? CU_MEMORY_HOST : CU_MEMORY_DEVICE) || from->pitch_bytes < copy->width_bytes ||
      to->pitch_bytes < copy->width_bytes)
    return CU_INVALID_VALUE;
  for (size_t row = 0; row < copy->height && result == CU_SUCCESS; row++) {
    cu_address there = (is_upload ? to : from)->device + row * (is_upload ? to : from)->pitch_bytes;
    unsigned char *here = (unsigned char *)(is_upload ? from : to)->host + row * (is_upload ? from : to)->pitch_bytes;
    struct item item = {.kind = ITEM_COPY,
                        .destination = is_upload ? (void *)(uintptr_t)there : here,
                        .source = is_upload ? here : (const void *)(uintptr_t)there,
                        .bytes = copy->width_bytes};
    result = put(stream, "cuMemcpy2DAsync", there, &item);
  }
  return result;
}

cu_result fake_cuMemsetD8Async(cu_address destination, unsigned char value, size_t bytes, struct cu_stream *stream) {
  CALL(cuMemsetD8Async);
  return put(
      stream, "cuMemsetD8Async", destination,
      &(struct item){.kind = ITEM_FILL, .destination = (void *)(uintptr_t)destination, .value = value, .bytes = bytes});
}
