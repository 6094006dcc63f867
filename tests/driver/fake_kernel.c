/* fake_kernel.c - libraries, kernels, and those kernels of Rondo's that the tests need, written again in plain C from
 * what their headers promise. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../kernels/copy/copy.h"
#include "../../kernels/copy/transfer.h"
#include "../../runtime/doorbell.h"
#include "../../runtime/repeat_control.h"
#include "fake.h"

enum { SHARED_BYTES_WITHOUT_OPT_IN = 49152 };

struct library {
  struct library *next;
  void *handle;
  const char *image;
  struct kernel *kernels;
};

static struct library *libraries;

/* ---- Rondo's kernels --------------------------------------------------------------------------------------------- */

static void __attribute__((format(printf, 2, 3))) fault(cu_result result, const char *format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  pthread_mutex_lock(&fake.lock);
  violation("%s", text);
  gpu_lose(gpu_running(), result);
  pthread_mutex_unlock(&fake.lock);
}

static bool is_allocated(const void *address, uint64_t bytes) {
  pthread_mutex_lock(&fake.lock);
  bool held = memory_holds((uintptr_t)address, bytes);
  pthread_mutex_unlock(&fake.lock);
  return held;
}

static void copy_row(const struct copy_parameters *p, int64_t i, int64_t j, int64_t k) {
  int64_t width = p->vector_bytes, bytes = width * p->row;
  const char *from =
      (const char *)p->src + width * (i * p->src_stride[0] + j * p->src_stride[1] + k * p->src_stride[2]);
  char *to = (char *)p->dst + width * (i * p->dst_stride[0] + j * p->dst_stride[1] + k * p->dst_stride[2]);
  if (is_allocated(from, (uint64_t)bytes) && is_allocated(to, (uint64_t)bytes))
    memcpy(to, from, (size_t)bytes);
  else
    fault(CU_ILLEGAL_ADDRESS, "rondo_copy: %p or %p is not allocated", (const void *)from, (void *)to);
}

static void publish(const struct completion *done, uint32_t blocks, const char *kernel) {
  if (!done->words) return;
  uint64_t bytes = blocks * sizeof(uint64_t);
  if (!is_allocated(done->counts, bytes) || !is_allocated(done->words, bytes))
    fault(CU_ILLEGAL_ADDRESS, "%s: %p or %p is not allocated", kernel, (void *)done->counts, (void *)done->words);
  else
    for (uint32_t i = 0; i < blocks; i++) __atomic_store_n(&done->words[i], ++done->counts[i], __ATOMIC_RELEASE);
}

static void kernel_copy(const struct fake_launch *launch) {
  const struct copy_parameters *p = launch->parameters[0];
  uint64_t vectors = (uint64_t)p->extent[0] * p->extent[1] * p->extent[2] * p->row;
  if (launch->block[0] != COPY_THREADS || vectors != p->total) {
    fault(CU_LAUNCH_FAILED, "rondo_copy: %u threads for %u of %llu vectors", launch->block[0], p->total,
          (unsigned long long)vectors);
  } else if (((uintptr_t)p->src | (uintptr_t)p->dst) % p->vector_bytes) {
    fault((cu_result)716, "rondo_copy: %p or %p is no multiple of %u", p->src, p->dst, p->vector_bytes);
  } else {
    for (int64_t i = 0; i < p->extent[0]; i++)
      for (int64_t j = 0; j < p->extent[1]; j++)
        for (int64_t k = 0; k < p->extent[2]; k++) copy_row(p, i, j, k);
    publish(&p->done, launch->grid[0], "rondo_copy");
  }
}

static void kernel_copy_small(const struct fake_launch *launch) {
  const struct copy_small_parameters *p = launch->parameters[0];
  if (launch->block[0] != COPY_THREADS || launch->grid[0] * COPY_THREADS * COPY_VECTOR_BYTES < p->bytes) {
    fault(CU_LAUNCH_FAILED, "rondo_copy_small: %u threads, %u blocks for %u bytes", launch->block[0], launch->grid[0],
          p->bytes);
  } else if (((uintptr_t)p->src | (uintptr_t)p->dst) % COPY_VECTOR_BYTES) {
    fault((cu_result)716, "rondo_copy_small: %p or %p is no multiple of 16", p->src, p->dst);
  } else if (!is_allocated(p->src, p->bytes) || !is_allocated(p->dst, p->bytes)) {
    fault(CU_ILLEGAL_ADDRESS, "rondo_copy_small: %p or %p is not allocated", p->src, p->dst);
  } else {
    memcpy(p->dst, p->src, p->bytes);
    publish(&p->done, launch->grid[0], "rondo_copy_small");
  }
}

static void transfer_segment(const struct transfer_segment *s) {
  if (((uintptr_t)s->src | (uintptr_t)s->dst) % COPY_VECTOR_BYTES)
    fault((cu_result)716, "rondo_transfer: %p or %p is no multiple of %d", s->src, s->dst, COPY_VECTOR_BYTES);
  else if (!is_allocated(s->src, s->bytes) || !is_allocated(s->dst, s->bytes))
    fault(CU_ILLEGAL_ADDRESS, "rondo_transfer: %p or %p is not allocated", s->src, s->dst);
  else
    memcpy(s->dst, s->src, s->bytes);
}

static void kernel_transfer(const struct fake_launch *launch) {
  const struct transfer_parameters *p = launch->parameters[0];
  uint32_t blocks = 0, segment = 0;
  for (; segment < TRANSFER_TENSORS && p->segments[segment].first_block == blocks; segment++)
    blocks += (p->segments[segment].bytes + COPY_BLOCK_BYTES - 1) / COPY_BLOCK_BYTES;
  bool ends = segment == TRANSFER_TENSORS || p->segments[segment].first_block == UINT32_MAX;
  if (launch->block[0] != COPY_THREADS || launch->grid[0] != blocks || !ends) {
    fault(CU_LAUNCH_FAILED, "rondo_transfer: %u threads, %u blocks for %u segments", launch->block[0], launch->grid[0],
          segment);
    return;
  }
  for (uint32_t i = 0; i < segment; i++)
    if (p->segments[i].bytes) transfer_segment(&p->segments[i]);
  publish(&p->done, launch->grid[0], "rondo_transfer");
}

static void kernel_point(const struct fake_launch *launch) {
  publish(launch->parameters[0], 1, "a node of one thread");
}

static bool is_found(const struct repeat_control *control) {
  if (!control->until) return false;
  if (!control->value_count) return *control->until != 0;
  for (uint32_t i = 0; i < control->value_count; i++)
    if (*control->until == control->values[i]) return true;
  return false;
}

static void kernel_repeat_step(const struct fake_launch *launch) {
  const struct repeat_parameters *p = launch->parameters[0];
  const struct repeat *repeat = &p->repeat;
  struct repeat_control *control = repeat->control;
  if (!is_allocated(control, sizeof *control)) {
    fault(CU_ILLEGAL_ADDRESS, "rondo_repeat_step: %p is not allocated", (void *)control);
    return;
  }
  unsigned char *place = repeat->places + control->done * repeat->place_bytes;
  if (launch->grid[0] != 1 || launch->block[0] % 32 || repeat->place_bytes % 16 || control->done >= control->count)
    fault(CU_LAUNCH_FAILED, "rondo_repeat_step: step %u of %u, %u threads", control->done, control->count,
          launch->block[0]);
  else if (!is_allocated(repeat->outputs, repeat->place_bytes) || !is_allocated(place, repeat->place_bytes) ||
           (control->until && !is_allocated(control->until, sizeof *control->until)))
    fault(CU_ILLEGAL_ADDRESS, "rondo_repeat_step: outputs, their place or until is not allocated");
  else {
    memcpy(place, repeat->outputs, repeat->place_bytes);
    const uint32_t step = control->done + 1;
    const bool is_last =
        step == control->count || __atomic_load_n(&control->stop, __ATOMIC_RELAXED) || is_found(control);
    if (is_last) condition_set(p->condition, 0);
    __atomic_store_n(&control->done, step, __ATOMIC_RELEASE);
    if (is_last) publish(&p->done, p->word_count, "rondo_repeat_step");
  }
}

/* ---- The bell ---------------------------------------------------------------------------------------------------- */

static bool bell_rings(const struct doorbell_parameters *p) {
  const uint64_t ahead = doorbell_word(p->bell) - p->state->obeyed;
  return ahead % doorbell_turn && ahead / doorbell_turn % 0x10000 <= 2;
}

/* Who waits for how long. */
static struct {
  const struct doorbell *bell;
  uint64_t beat, since_ns;
} listener;

static uint64_t bell_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* With the lock. */
static bool bell_has_come(const void *parameter) {
  const struct doorbell_parameters *p = parameter;
  if (p->is_before_loop || p->state->has_left || p->state->has_heard || bell_rings(p)) return true;
  if ((doorbell_word(p->bell) - p->state->obeyed) / doorbell_turn % 0x10000 != 1) return true;
  const uint64_t beat = __atomic_load_n(&p->bell->beat, __ATOMIC_RELAXED), now = bell_now_ns();
  if (listener.bell != p->bell || listener.beat != beat) {
    listener.bell = p->bell;
    listener.beat = beat;
    listener.since_ns = now;
  }
  const uint64_t patience_ns = fake.settings.patience_ns;
  return now - listener.since_ns > (patience_ns ? patience_ns : doorbell_patience_ns);
}

/* The host may ring at the same time (doorbell_is_leaving). */
static bool bell_rings_after_all(const struct doorbell_parameters *p) {
  __atomic_store_n(&p->bell->leaving, p->state->obeyed + doorbell_turn, __ATOMIC_SEQ_CST);
  if (!bell_rings(p)) {
    const long pause_ns = fake.settings.patience_ns ? 200000 : 0; /* so that a test's replays come too late */
    nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
    return false;
  }
  __atomic_store_n(&p->bell->leaving, 0, __ATOMIC_SEQ_CST);
  return true;
}

static void bell_enable(const struct doorbell_parameters *p, uint32_t count, bool on) {
  for (uint64_t i = p->bell->node_count - count; i < p->bell->node_count; i++) node_enable(p->nodes[i], on);
}

static void kernel_bell(const struct fake_launch *launch) {
  const struct doorbell_parameters *p = launch->parameters[0];
  if (!is_allocated(p->bell, sizeof *p->bell) || !is_allocated(p->state, sizeof *p->state) ||
      !is_allocated(p->nodes, p->bell->node_count * sizeof *p->nodes)) {
    fault(CU_ILLEGAL_ADDRESS, "rondo_await_bell: %p, %p or %p is not allocated", (void *)p->bell, (void *)p->state,
          (const void *)p->nodes);
    return;
  }
  listener.bell = NULL;
  if (p->is_before_loop) {
    bell_enable(p, p->state->off_count, true);
    p->state->off_count = p->state->has_left = 0;
    p->state->has_heard = bell_rings(p);
    __atomic_store_n(&p->bell->leaving, 0, __ATOMIC_SEQ_CST);
  } else if (!p->state->has_left && (p->state->has_heard || bell_rings(p) || bell_rings_after_all(p))) {
    p->state->has_heard = 0;
    p->state->obeyed++;
  } else if (!p->state->has_left) {
    p->state->off_count = (uint32_t)p->bell->node_count - p->first;
    bell_enable(p, p->state->off_count, false);
    p->state->obeyed += 2 * doorbell_turn;
    p->state->has_left = 1;
    condition_set(p->loop, 0);
    __atomic_store_n(&p->bell->left, p->state->obeyed, __ATOMIC_RELEASE);
  }
}

static const struct kernel_code own_kernels[] = {
    {"rondo_copy", kernel_copy, 1, {sizeof(struct copy_parameters)}, NULL},
    {"rondo_copy_small", kernel_copy_small, 1, {sizeof(struct copy_small_parameters)}, NULL},
    {"rondo_transfer", kernel_transfer, 1, {sizeof(struct transfer_parameters)}, NULL},
    {"rondo_point", kernel_point, 1, {sizeof(struct completion)}, NULL},
    {"rondo_repeat_step", kernel_repeat_step, 1, {sizeof(struct repeat_parameters)}, NULL},
    {"rondo_await_bell", kernel_bell, 1, {sizeof(struct doorbell_parameters)}, bell_has_come},
};

/* ---- Registry ---------------------------------------------------------------------------------------------------- */

void register_kernel(const char *name, fake_kernel function, uint32_t parameter_count, const size_t *parameter_bytes) {
  if (fake.kernel_count == KERNEL_LIMIT || parameter_count > KERNEL_PARAMETERS) abort();
  struct kernel_code *code = &fake.kernels[fake.kernel_count++];
  *code = (struct kernel_code){.function = function, .parameter_count = parameter_count};
  snprintf(code->name, sizeof code->name, "%s", name);
  for (uint32_t i = 0; i < parameter_count; i++) code->parameter_bytes[i] = parameter_bytes[i];
}

static bool is_own(const struct kernel_code *code) {
  return code >= own_kernels && code < own_kernels + sizeof own_kernels / sizeof *own_kernels;
}

static const struct kernel_code *code_find(const char *name) {
  for (uint32_t i = 0; i < fake.kernel_count; i++)
    if (!strcmp(fake.kernels[i].name, name)) return &fake.kernels[i];
  for (size_t i = 0; i < sizeof own_kernels / sizeof *own_kernels; i++)
    if (!strcmp(own_kernels[i].name, name)) return &own_kernels[i];
  return NULL;
}

/* Does the image's text list the kernel? */
static bool image_has(const char *image, const char *name) {
  static const char mark[] = "fake image:";
  if (strncmp(image, mark, sizeof mark - 1) != 0) return true;
  size_t length = strlen(name);
  for (const char *at = strstr(image, name); at; at = strstr(at + 1, name))
    if (at[-1] == ' ' && (at[length] == ' ' || at[length] == '\0')) return true;
  return false;
}

/* Parameters lie one after the other, aligned as C aligns what has their size. */
size_t kernel_parameter_offset(const struct kernel_code *code, size_t index) {
  size_t offset = 0;
  for (size_t i = 0;; i++) {
    size_t bytes = code->parameter_bytes[i], alignment = bytes & -bytes;
    if (alignment > 8) alignment = 8;
    offset = (offset + alignment - 1) / alignment * alignment;
    if (i == index) return offset;
    offset += bytes;
  }
}

/* ---- Libraries --------------------------------------------------------------------------------------------------- */

cu_result fake_cuLibraryLoadData(struct cu_library **handle, const void *image, int *jit_options, void **jit_values,
                                 unsigned jit_count, int *options, void **values, unsigned count) {
  CALL(cuLibraryLoadData);
  (void)jit_options, (void)jit_values, (void)options, (void)values;
  if (!image || jit_count || count) return CU_INVALID_VALUE;
  struct library *library = calloc(1, sizeof *library);
  if (!library) abort();
  *library = (struct library){.next = libraries, .image = image, .handle = object_create(LIBRARY, library)};
  libraries = library;
  *handle = library->handle;
  return CU_SUCCESS;
}

static void library_free(struct library *library) {
  while (library->kernels) {
    struct kernel *next = library->kernels->next;
    object_end(library->kernels->handle);
    if (library->kernels->function) object_end(library->kernels->function);
    free(library->kernels);
    library->kernels = next;
  }
  free(library);
}

cu_result fake_cuLibraryUnload(struct cu_library *handle) {
  ENDING_CALL(cuLibraryUnload);
  if (capture_forbids_waiting(NULL, "cuLibraryUnload")) return CU_CAPTURE_UNSUPPORTED;
  struct library *library = object_body(handle, LIBRARY, "cuLibraryUnload");
  if (!library) return CU_INVALID_HANDLE;
  if (fake.settings.unload_waits) streams_finish(gpu_current());
  if (!streams_idle(gpu_current())) violation("cuLibraryUnload while work is in flight");
  struct library **link = &libraries;
  while (*link != library) link = &(*link)->next;
  *link = library->next;
  object_end(handle);
  library_free(library);
  return call.later;
}

void kernels_reset(void) {
  while (libraries) {
    struct library *next = libraries->next;
    library_free(libraries);
    libraries = next;
  }
}

cu_result fake_cuLibraryGetKernel(struct cu_kernel **handle, struct cu_library *library_handle, const char *name) {
  CALL(cuLibraryGetKernel);
  struct library *library = object_body(library_handle, LIBRARY, "cuLibraryGetKernel");
  if (!library) return CU_INVALID_HANDLE;
  const struct kernel_code *code = image_has(library->image, name) ? code_find(name) : NULL;
  if (!code) return CU_NOT_FOUND;
  struct kernel *kernel = library->kernels;
  while (kernel && kernel->code != code) kernel = kernel->next;
  if (!kernel) {
    kernel = calloc(1, sizeof *kernel);
    if (!kernel) abort();
    const int32_t static_bytes = is_own(code) ? 0 : fake.settings.static_shared_bytes;
    *kernel = (struct kernel){.next = library->kernels,
                              .code = code,
                              .static_shared_bytes = static_bytes,
                              .cluster_width = is_own(code) ? 0 : fake.settings.cluster_width,
                              .dynamic_shared_bytes = SHARED_BYTES_WITHOUT_OPT_IN - static_bytes,
                              .handle = object_create(KERNEL, kernel)};
    library->kernels = kernel;
  }
  *handle = kernel->handle;
  return CU_SUCCESS;
}

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

cu_result fake_cuKernelGetFunction(struct cu_function **function, struct cu_kernel *handle) {
  CALL(cuKernelGetFunction);
  struct kernel *kernel = object_body(handle, KERNEL, "cuKernelGetFunction");
  if (!kernel) return CU_INVALID_HANDLE;
  if (!context_is_current("cuKernelGetFunction")) return (cu_result)FAKE_INVALID_CONTEXT;
  if (!kernel->function) kernel->function = object_create(FUNCTION, kernel);
  *function = kernel->function;
  return CU_SUCCESS;
}

cu_result fake_cuFuncLoad(struct cu_function *function) {
  CALL(cuFuncLoad);
  struct kernel *kernel = object_body(function, FUNCTION, "cuFuncLoad");
  if (!kernel) return CU_INVALID_HANDLE;
  if (!context_is_current("cuFuncLoad")) return (cu_result)FAKE_INVALID_CONTEXT;
  kernel->loaded = true;
  return CU_SUCCESS;
}

cu_result fake_cuKernelGetAttribute(int *value, int attribute, struct cu_kernel *handle, cu_device device) {
  CALL(cuKernelGetAttribute);
  struct kernel *kernel = object_body(handle, KERNEL, "cuKernelGetAttribute");
  if (!kernel) return CU_INVALID_HANDLE;
  const bool is_width = attribute == CU_KERNEL_ATTRIBUTE_CLUSTER_WIDTH;
  if ((attribute != CU_KERNEL_ATTRIBUTE_MAX_DYNAMIC_SHARED_BYTES && !is_width) || !device_exists(device)) {
    violation("cuKernelGetAttribute: the fake has no attribute %d of device %d", attribute, device);
    return CU_INVALID_VALUE;
  }
  *value = is_width ? kernel->cluster_width : kernel->dynamic_shared_bytes;
  return CU_SUCCESS;
}

cu_result fake_cuKernelSetAttribute(int attribute, int value, struct cu_kernel *handle, cu_device device) {
  CALL(cuKernelSetAttribute);
  struct kernel *kernel = object_body(handle, KERNEL, "cuKernelSetAttribute");
  if (!kernel) return CU_INVALID_HANDLE;
  const bool is_cluster = attribute == CU_KERNEL_ATTRIBUTE_NON_PORTABLE_CLUSTER;
  if ((attribute != CU_KERNEL_ATTRIBUTE_MAX_DYNAMIC_SHARED_BYTES && !is_cluster) || !device_exists(device)) {
    violation("cuKernelSetAttribute: the fake has no attribute %d of device %d", attribute, device);
    return CU_INVALID_VALUE;
  }
  if (is_cluster) {
    kernel->non_portable = value != 0;
    return CU_SUCCESS;
  }
  if (value < 0 || value > fake.settings.shared_bytes - kernel->static_shared_bytes) return CU_INVALID_VALUE;
  kernel->dynamic_shared_bytes = value;
  return CU_SUCCESS;
}

cu_result fake_cuKernelGetParamInfo(struct cu_kernel *handle, size_t index, size_t *offset, size_t *bytes) {
  CALL(cuKernelGetParamInfo);
  struct kernel *kernel = object_body(handle, KERNEL, "cuKernelGetParamInfo");
  if (!kernel) return CU_INVALID_HANDLE;
  if (index >= kernel->code->parameter_count) return CU_INVALID_VALUE;
  *offset = kernel_parameter_offset(kernel->code, index);
  if (bytes) *bytes = kernel->code->parameter_bytes[index];
  return CU_SUCCESS;
}
