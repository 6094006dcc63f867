/* fake_calls.c - the fake CUDA driver's door: how its functions are found, what every call goes through (counting,
 * injected failures, the sticky error); and the table by which tests steer it. */
#include "fake_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

#define DEFAULT_SETTINGS                                                                                               \
  {                                                                                                                    \
    .driver_version = 13000, .device_count = 1, .chip = 90, .multiprocessors = 132, .shared_bytes = 232448,            \
    .device_bytes = UINT64_C(1) << 30, .mode = FAKE_IMMEDIATE, .seed = 1                                               \
  }
static const struct fake_settings default_settings = DEFAULT_SETTINGS;

struct fake fake = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .changed = PTHREAD_COND_INITIALIZER,
    .settings = DEFAULT_SETTINGS,
};

static const char *const call_names[] = {
#define ENTRY_POINT(name, version, need, ...) #name,
#include "../../runtime/cuda/entry_points.h"
    "cuGetProcAddress_v2",
};

/* ---- Every call -------------------------------------------------------------------------------------------------- */

bool result_is_sticky(cu_result result) {
  static const int sticky[] = {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 911};
  for (size_t i = 0; i < sizeof sticky / sizeof *sticky; i++)
    if ((int)result == sticky[i]) return true;
  return false;
}

/* Calls that need no device, and so know nothing of its loss. */
static bool is_free(enum call_name name) {
  return name == CALL_cuGetErrorName || name == CALL_cuGetErrorString || name == CALL_cuDriverGetVersion ||
         name == CALL_cuGetProcAddress_v2 || name == CALL_cuCtxPopCurrent ||
         name == CALL_cuThreadExchangeStreamCaptureMode;
}

static bool needs_no_init(enum call_name name) {
  return name == CALL_cuInit ||
         (is_free(name) && name != CALL_cuCtxPopCurrent && name != CALL_cuThreadExchangeStreamCaptureMode);
}

struct call call_begin(enum call_name name, bool ending) {
  if (fake.hook && !strcmp(fake.hooked, call_names[name])) fake.hook();
  pthread_mutex_lock(&fake.lock);
  struct call call = {CU_SUCCESS, CU_SUCCESS};
  fake.calls[name]++;
  fake.all_calls++;
  if (fake.all_calls == fake.fail_at) {
    fake.failed_call = call_names[name];
    if (result_is_sticky(fake.fail_result) && !needs_no_init(name)) {
      struct gpu *gpu = gpu_current();
      gpu_lose(gpu ? gpu : &fake.gpus[0], fake.fail_result);
    } else {
      call.now = ending ? CU_SUCCESS : fake.fail_result;
      call.later = fake.fail_result;
    }
  }
  if (call.now != CU_SUCCESS || is_free(name)) return call;
  struct gpu *lost = gpu_concerned();
  if (lost) {
    /* Nobody looks at the result of a call that ends something. */
    call.now = gpu_lost_now(lost, !ending || name == CALL_cuStreamSynchronize, call_names[name]);
  } else if (!fake.initialized && name != CALL_cuInit) {
    violation("%s before cuInit", call_names[name]);
    call.now = (cu_result)FAKE_NOT_INITIALIZED;
  }
  return call;
}

void call_end(struct call *call) {
  (void)call;
  pthread_mutex_unlock(&fake.lock);
}

/* ---- Finding ----------------------------------------------------------------------------------------------------- */

struct symbol {
  const char *name;
  int version; /* the oldest in which this signature is */
  void *function;
};

/* ISO C knows no conversion from a function's address to an object's. */
#define ADDRESS(function)                                                                                              \
  (((union {                                                                                                           \
     void (*from)(void);                                                                                               \
     void *to;                                                                                                         \
   }){.from = (void (*)(void))(function)})                                                                             \
       .to)

static void *find_symbol(const char *name, int version) {
  const struct symbol symbols[] = {
#define ENTRY_POINT(name, version, need, ...) {#name, version, ADDRESS(fake_##name)},
#include "../../runtime/cuda/entry_points.h"
  };
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
    if (!strcmp(symbols[i].name, name) && symbols[i].version <= version) return symbols[i].function;
  return NULL;
}

__attribute__((visibility("default"))) cu_result cuGetProcAddress_v2(const char *name, void **function, int version,
                                                                     uint64_t flags, int *status);
cu_result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
  __attribute__((cleanup(call_end))) struct call call = call_begin(CALL_cuGetProcAddress_v2, false);
  bool is_func_load = !strcmp(name, "cuFuncLoad");
  if (is_func_load) fake.func_load_found = false;
  if (call.now != CU_SUCCESS) return call.now;
  /* As the toolkit's stub: an error, and the outputs left alone. */
  if (fake.settings.discover_result) return (cu_result)fake.settings.discover_result;
  if (flags != 0) return CU_INVALID_VALUE;
  *function = NULL;
  *status = CU_SYMBOL_NOT_FOUND;
  if (fake.hidden && !strcmp(fake.hidden, name)) {
    *status = fake.hidden_status;
    return CU_SUCCESS;
  }
  *function = version <= fake.settings.driver_version ? find_symbol(name, version) : NULL;
  if (is_func_load) fake.func_load_found = *function != NULL;
  if (*function)
    *status = CU_SYMBOL_FOUND;
  else if (find_symbol(name, INT32_MAX))
    *status = CU_SYMBOL_VERSION_TOO_LOW;
  return CU_SUCCESS;
}

cu_result fake_cuDriverGetVersion(int *version) {
  CALL(cuDriverGetVersion);
  if (fake.settings.version_result) return (cu_result)fake.settings.version_result;
  *version = fake.settings.driver_version;
  return CU_SUCCESS;
}

cu_result fake_cuInit(unsigned flags) {
  CALL(cuInit);
  if (flags) return CU_INVALID_VALUE;
  if (fake.settings.init_result) return (cu_result)fake.settings.init_result;
  if (fake.settings.device_count == 0) return CU_NO_DEVICE;
  fake.initialized = true;
  return CU_SUCCESS;
}

/* ---- Results as text --------------------------------------------------------------------------------------------- */

static const struct result_text {
  int result;
  const char *name, *sentence;
} result_texts[] = {
    {CU_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {FAKE_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CU_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {FAKE_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {FAKE_PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these two devices"},
    {CU_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {CU_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {CU_NVLINK_UNCORRECTABLE, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error"},
    {CU_CONTAINED, "CUDA_ERROR_CONTAINED", "contained error"},
    {CU_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CU_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CU_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {CU_LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {CU_PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {CU_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {CU_ASSERT, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {CU_HARDWARE_STACK_ERROR, "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {CU_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CU_TENSOR_MEMORY_LEAK, "CUDA_ERROR_TENSOR_MEMORY_LEAK", "tensor memory not completely freed"},
    {CU_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CU_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CU_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {CU_EXTERNAL_DEVICE, "CUDA_ERROR_EXTERNAL_DEVICE", "external device error"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {915, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", "invalid resource configuration"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
    {FAKE_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
};

static const struct result_text *text_of(cu_result result) {
  for (size_t i = 0; i < sizeof result_texts / sizeof *result_texts; i++)
    if (result_texts[i].result == (int)result) return &result_texts[i];
  return NULL;
}

cu_result fake_cuGetErrorName(cu_result error, const char **text) {
  CALL(cuGetErrorName);
  const struct result_text *found = text_of(error);
  *text = found ? found->name : NULL;
  return found ? CU_SUCCESS : CU_INVALID_VALUE;
}

cu_result fake_cuGetErrorString(cu_result error, const char **text) {
  CALL(cuGetErrorString);
  const struct result_text *found = text_of(error);
  *text = found ? found->sentence : NULL;
  return found ? CU_SUCCESS : CU_INVALID_VALUE;
}

/* ---- Control ----------------------------------------------------------------------------------------------------- */

static void control_reset(void) {
  pthread_mutex_lock(&fake.lock);
  streams_reset(); /* first: it may wait for work that runs */
  kernels_reset();
  objects_reset();
  memory_reset();
  contexts_reset();
  size_t state = offsetof(struct fake, settings);
  memset((char *)&fake + state, 0, sizeof fake - state);
  fake.settings = default_settings;
  fake.random = default_settings.seed;
  pthread_mutex_unlock(&fake.lock);
}

static struct fake_settings control_settings(void) {
  pthread_mutex_lock(&fake.lock);
  struct fake_settings settings = fake.settings;
  pthread_mutex_unlock(&fake.lock);
  return settings;
}

static void control_configure(const struct fake_settings *settings) {
  pthread_mutex_lock(&fake.lock);
  fake.settings = *settings;
  fake.random = settings->seed;
  if (settings->mode == FAKE_THREAD) worker_start();
  pthread_cond_broadcast(&fake.changed);
  pthread_mutex_unlock(&fake.lock);
}

static void control_register_kernel(const char *name, fake_kernel function, uint32_t parameter_count,
                                    const size_t *parameter_bytes) {
  pthread_mutex_lock(&fake.lock);
  register_kernel(name, function, parameter_count, parameter_bytes);
  pthread_mutex_unlock(&fake.lock);
}

static void control_hide(const char *symbol, int32_t status) {
  pthread_mutex_lock(&fake.lock);
  fake.hidden = symbol;
  fake.hidden_status = status;
  pthread_mutex_unlock(&fake.lock);
}

static void control_fail_call(uint64_t n, int32_t result) {
  pthread_mutex_lock(&fake.lock);
  fake.fail_at = n ? fake.all_calls + n : 0;
  fake.fail_result = (cu_result)result;
  fake.failed_call = NULL;
  pthread_mutex_unlock(&fake.lock);
}

/* While nobody else calls the driver. */
static void control_before_call(const char *name, void (*function)(void)) {
  fake.hooked = name;
  fake.hook = function;
}

static const char *control_failed_call(void) {
  pthread_mutex_lock(&fake.lock);
  const char *name = fake.failed_call;
  pthread_mutex_unlock(&fake.lock);
  return name;
}

static void control_lose_after_nodes(uint64_t n, int32_t result) {
  pthread_mutex_lock(&fake.lock);
  fake.lose_armed = true;
  fake.lose_after = n;
  fake.lose_result = (cu_result)result;
  pthread_mutex_unlock(&fake.lock);
}

static uint64_t control_calls(const char *name) {
  pthread_mutex_lock(&fake.lock);
  uint64_t calls = name ? UINT64_MAX : fake.all_calls; /* a misspelt name is no zero */
  for (int i = 0; name && i < CALL_COUNT; i++)
    if (!strcmp(name, call_names[i])) calls = fake.calls[i];
  pthread_mutex_unlock(&fake.lock);
  return calls;
}

static uint32_t control_live(char *text, size_t bytes) {
  pthread_mutex_lock(&fake.lock);
  text[0] = '\0';
  uint32_t live = objects_live(text, bytes) + memory_live(text, bytes);
  pthread_mutex_unlock(&fake.lock);
  return live;
}

static int32_t control_context_depth(void) {
  pthread_mutex_lock(&fake.lock);
  int32_t depth = fake.context_depth;
  pthread_mutex_unlock(&fake.lock);
  return depth;
}

static uint32_t control_violations(char *text, size_t bytes) {
  pthread_mutex_lock(&fake.lock);
  snprintf(text, bytes, "%s", fake.violations);
  uint32_t count = fake.violation_count;
  pthread_mutex_unlock(&fake.lock);
  return count;
}

/* Memory is mostly zeros, which memchr skips: it looks for the first byte that is none. */
static const void *find_in(const struct memory *memory, const unsigned char *bytes, size_t count) {
  const unsigned char *end = (const unsigned char *)memory->begin + memory->bytes, *at = memory->begin;
  size_t zeros = 0;
  while (zeros + 1 < count && !bytes[zeros]) zeros++;
  for (; (size_t)(end - at) >= count; at++) {
    const unsigned char *found = memchr(at + zeros, bytes[zeros], (size_t)(end - at) - count + 1);
    if (!found) return NULL;
    at = found - zeros;
    if (memcmp(at, bytes, count) == 0) return at;
  }
  return NULL;
}

static const void *control_find(const void *bytes, size_t count) {
  pthread_mutex_lock(&fake.lock);
  const void *found = NULL;
  for (const struct memory *memory = fake.memory; memory && !found; memory = memory->next)
    if (!memory->pinned) found = find_in(memory, bytes, count);
  pthread_mutex_unlock(&fake.lock);
  return found;
}

static uint64_t control_programmatic_edges(void) {
  pthread_mutex_lock(&fake.lock);
  uint64_t edges = fake.programmatic_edges;
  pthread_mutex_unlock(&fake.lock);
  return edges;
}

static uint32_t control_node_order(uint32_t *order, uint32_t limit) {
  pthread_mutex_lock(&fake.lock);
  uint32_t count = fake.last_order_count < limit ? fake.last_order_count : limit;
  memcpy(order, fake.last_order, count * sizeof *order);
  pthread_mutex_unlock(&fake.lock);
  return count;
}

static uint64_t control_launches_into(void *handle) {
  pthread_mutex_lock(&fake.lock);
  const struct stream *stream = object_body(handle, STREAM, "launches_into");
  uint64_t launches = stream ? stream->launches : 0;
  pthread_mutex_unlock(&fake.lock);
  return launches;
}

static const struct fake_driver control = {
    .reset = control_reset,
    .settings = control_settings,
    .configure = control_configure,
    .register_kernel = control_register_kernel,
    .hide = control_hide,
    .fail_call = control_fail_call,
    .failed_call = control_failed_call,
    .lose_after_nodes = control_lose_after_nodes,
    .before_call = control_before_call,
    .calls = control_calls,
    .live = control_live,
    .context_depth = control_context_depth,
    .violations = control_violations,
    .node_order = control_node_order,
    .find = control_find,
    .programmatic_edges = control_programmatic_edges,
    .launches_into = control_launches_into,
    .enqueue = fake_enqueue,
    .break_capture = fake_break_capture,
};

const struct fake_driver *fake_driver(void) __attribute__((visibility("default")));
const struct fake_driver *fake_driver(void) { return &control; }
