/* conformance_basics.c - the driver without a graph: errors, devices, contexts, memory and kernels. */
#include <stdlib.h>
#include <string.h>

#include "conformance.h"

/* ---- Errors, devices, contexts ----------------------------------------------------------------------------------- */

/* NULL: a sentence, whichever. */
static const struct error {
  int result;
  const char *name, *sentence;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", NULL},
    {220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", NULL},
    {226, "CUDA_ERROR_CONTAINED", NULL},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", NULL},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", NULL},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", NULL},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", NULL},
    {710, "CUDA_ERROR_ASSERT", NULL},
    {714, "CUDA_ERROR_HARDWARE_STACK_ERROR", NULL},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", NULL},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {721, "CUDA_ERROR_TENSOR_MEMORY_LEAK", NULL},
    {801, "CUDA_ERROR_NOT_SUPPORTED", NULL},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", NULL},
    {911, "CUDA_ERROR_EXTERNAL_DEVICE", NULL},
    {999, "CUDA_ERROR_UNKNOWN", NULL},
};
enum { ERRORS = sizeof errors / sizeof *errors };

static void error_names(void) {
  for (const struct error *error = errors; error < errors + ERRORS; error++) {
    const char *name = NULL;
    cu_result result = driver.cuGetErrorName((cu_result)error->result, &name);
    if (result != CU_SUCCESS || !name || strcmp(name, error->name) != 0)
      fail("expected %s for %d, got %s", error->name, error->result, name ? name : "nothing");
  }
}

static void error_strings(void) {
  for (const struct error *error = errors; error < errors + ERRORS; error++) {
    const char *sentence = NULL, *expected = error->sentence;
    cu_result result = driver.cuGetErrorString((cu_result)error->result, &sentence);
    if (result != CU_SUCCESS || !sentence || (expected && strcmp(sentence, expected) != 0))
      fail("expected '%s' for %d, got '%s'", expected ? expected : "a sentence", error->result,
           sentence ? sentence : "nothing");
  }
}

static void error_unknown(void) {
  const char *name = "left alone", *sentence = "left alone";
  expect("cuGetErrorName(123456)", driver.cuGetErrorName((cu_result)123456, &name), CU_INVALID_VALUE);
  expect("cuGetErrorString(123456)", driver.cuGetErrorString((cu_result)123456, &sentence), CU_INVALID_VALUE);
  if (name || sentence)
    fail("expected no text for 123456, got '%s' and '%s'", name ? name : "", sentence ? sentence : "");
}

static void device_of_a_wrong_ordinal(void) {
  int count = 0;
  cu_device device;
  REQUIRE(cuDeviceGetCount(&count));
  expect("cuDeviceGet(&device, count)", driver.cuDeviceGet(&device, count), INVALID_DEVICE);
  expect("cuDeviceGet(&device, -1)", driver.cuDeviceGet(&device, -1), INVALID_DEVICE);
}

static void primary_context_is_one(void) {
  struct cu_context *second = NULL;
  REQUIRE(cuDevicePrimaryCtxRetain(&second, 0));
  if (second != context) fail("expected the same context, got another");
  expect("cuDevicePrimaryCtxRelease", driver.cuDevicePrimaryCtxRelease(0), CU_SUCCESS);
  expect("cuStreamQuery, still retained", driver.cuStreamQuery(stream), CU_SUCCESS);
}

static void contexts_nest(void) {
  struct cu_context *first = NULL, *second = NULL;
  REQUIRE(cuCtxPushCurrent(context));
  REQUIRE(cuCtxPushCurrent(context));
  expect("cuCtxPopCurrent", driver.cuCtxPopCurrent(&first), CU_SUCCESS);
  expect("cuCtxPopCurrent", driver.cuCtxPopCurrent(&second), CU_SUCCESS);
  if (first != context || second != context) fail("expected the context that was pushed, got another");
}

/* A thread of its own has pushed no context. */
static void *without_context(void *unused) {
  (void)unused;
  struct cu_context *popped;
  cu_address memory;
  expect("cuCtxPopCurrent without a context", driver.cuCtxPopCurrent(&popped), INVALID_CONTEXT);
  expect("cuMemAlloc without a context", driver.cuMemAlloc(&memory, 64), INVALID_CONTEXT);
  return NULL;
}

static void contexts_belong_to_a_thread(void) { on_another_thread(without_context); }

static void priority_out_of_range_is_clamped(void) {
  int least = 0, greatest = 0;
  struct cu_stream *clamped = NULL;
  REQUIRE(cuCtxGetStreamPriorityRange(&least, &greatest));
  if (greatest > least) fail("expected greater priorities to be smaller numbers, got %d and %d", least, greatest);
  REQUIRE(cuStreamCreateWithPriority(&clamped, CU_STREAM_NON_BLOCKING, greatest - 1));
  expect("cuStreamDestroy", driver.cuStreamDestroy(clamped), CU_SUCCESS);
  expect("cuStreamCreateWithPriority of flags 2", driver.cuStreamCreateWithPriority(&clamped, 2, 0), CU_INVALID_VALUE);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static void allocation_of_no_bytes(void) {
  cu_address memory = 0;
  expect("cuMemAlloc of 0 bytes", driver.cuMemAlloc(&memory, 0), CU_INVALID_VALUE);
}

static void allocation_of_too_much(void) {
  cu_address memory = 0;
  expect("cuMemAlloc of 2^50 bytes", driver.cuMemAlloc(&memory, (size_t)1 << 50), CU_OUT_OF_MEMORY);
}

static void memory_freed_twice(void) {
  cu_address memory = 0;
  REQUIRE(cuMemAlloc(&memory, 4096));
  if (memory % 256) fail("expected memory aligned to 256 bytes, got %#llx", (unsigned long long)memory);
  REQUIRE(cuMemFree(memory));
  expect("the second cuMemFree", driver.cuMemFree(memory), CU_INVALID_VALUE);
}

static void pinned_address_is_the_devices(void) {
  void *memory = NULL;
  cu_address address = 0;
  REQUIRE(cuMemHostAlloc(&memory, 4096, CU_HOST_ALLOC_PORTABLE | CU_HOST_ALLOC_DEVICE_MAP));
  expect("cuMemHostGetDevicePointer", driver.cuMemHostGetDevicePointer(&address, memory, 0), CU_SUCCESS);
  expect_number("the device's address", address, (uintptr_t)memory);
  expect("cuMemFreeHost", driver.cuMemFreeHost(memory), CU_SUCCESS);
}

/* The driver knows pinned and device memory, and says nothing of other memory, without an error. */
static void memory_has_a_type(void) {
  static int attribute = CU_POINTER_MEMORY_TYPE;
  void *pinned = NULL, *plain = malloc(4096);
  cu_address device = 0;
  REQUIRE(cuMemHostAlloc(&pinned, 4096, CU_HOST_ALLOC_PORTABLE | CU_HOST_ALLOC_DEVICE_MAP));
  REQUIRE(cuMemAlloc(&device, 4096));
  const cu_address addresses[] = {(uintptr_t)pinned + 8, device, (uintptr_t)plain};
  const unsigned types[] = {CU_MEMORY_HOST, CU_MEMORY_DEVICE, 0};
  for (int i = 0; i < 3; i++) {
    unsigned type = 77;
    REQUIRE(cuPointerGetAttributes(1, &attribute, (void *[]){&type}, addresses[i]));
    expect_number("the memory's type", type, types[i]);
  }
  REQUIRE(cuMemFree(device));
  REQUIRE(cuMemFreeHost(pinned));
  free(plain);
}

static void copies_and_fills_follow_each_other(void) {
  REQUIRE_TRUE(upload(0, 1));
  REQUIRE(cuMemsetD8Async(piece(1), 7, PIECE_BYTES, stream));
  for (uint32_t i = 0; i < PIECE_BYTES; i++) host_memory[i] = pattern(2, i);
  REQUIRE(cuMemcpyHtoDAsync(piece(1), host_memory, PIECE_BYTES, stream));
  REQUIRE_TRUE(synchronized() && holds(0, 1) && holds(1, 2));
  REQUIRE(cuMemsetD8Async(piece(1), 7, PIECE_BYTES, stream));
  REQUIRE(cuMemcpyDtoHAsync(host_memory, piece(1), PIECE_BYTES, stream));
  REQUIRE_TRUE(synchronized());
  for (uint32_t i = 0; i < PIECE_BYTES; i++)
    if (host_memory[i] != 7) fail("expected byte %u to be 7, got %d", i, host_memory[i]);
}

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

static void kernel_of_an_unknown_name(void) {
  struct cu_kernel *kernel = NULL;
  expect("cuLibraryGetKernel", driver.cuLibraryGetKernel(&kernel, copy_library, "rondo_no_such_kernel"), CU_NOT_FOUND);
}

static void kernel_is_the_same_each_time(void) {
  struct cu_kernel *kernel = NULL;
  REQUIRE(cuLibraryGetKernel(&kernel, copy_library, "rondo_copy"));
  if (kernel != copy_kernel) fail("expected the same kernel, got another");
}

static void kernel_parameters(void) {
  size_t offset = 99, bytes = 0;
  if (!driver.cuKernelGetParamInfo) {
    fail("expected cuKernelGetParamInfo, got none");
    return;
  }
  REQUIRE(cuKernelGetParamInfo(copy_kernel, 0, &offset, &bytes));
  expect_number("rondo_copy's parameter", bytes, sizeof(struct copy_parameters));
  expect_number("its offset", offset, 0);
  REQUIRE(cuKernelGetParamInfo(done_kernel, 0, &offset, &bytes));
  expect_number("rondo_point's parameter", bytes, sizeof(struct completion));
  expect("cuKernelGetParamInfo(1)", driver.cuKernelGetParamInfo(copy_kernel, 1, &offset, &bytes), CU_INVALID_VALUE);
}

/* The fake assumes 48 KiB where nothing was opted in. */
static void kernel_shared_memory_opt_in(void) {
  enum { ATTRIBUTE = CU_KERNEL_ATTRIBUTE_MAX_DYNAMIC_SHARED_BYTES };
  int value = -1, most = 0;
  REQUIRE(cuDeviceGetAttribute(&most, CU_ATTRIBUTE_MAX_SHARED_BYTES_PER_BLOCK_OPTIN, 0));
  REQUIRE(cuKernelGetAttribute(&value, ATTRIBUTE, done_kernel, 0));
  answer("before %d", value);
  REQUIRE(cuKernelSetAttribute(ATTRIBUTE, 65536, done_kernel, 0));
  REQUIRE(cuKernelGetAttribute(&value, ATTRIBUTE, done_kernel, 0));
  expect_number("the opted-in limit", (uint64_t)value, 65536);
  expect("cuKernelSetAttribute beyond the device's limit",
         driver.cuKernelSetAttribute(ATTRIBUTE, most + 1, done_kernel, 0), CU_INVALID_VALUE);
  REQUIRE(cuKernelGetAttribute(&value, ATTRIBUTE, done_kernel, 0));
  expect_number("the limit after a refused one", (uint64_t)value, 65536);
}

/* ---- Two devices ------------------------------------------------------------------------------------------------- */

static void device_is_no_peer_of_itself(void) {
  int can = -1;
  REQUIRE(cuDeviceCanAccessPeer(&can, 0, 0));
  expect_number("cuDeviceCanAccessPeer of one device", (uint64_t)can, 0);
  /* Documented: 201. */
  expect("cuCtxEnablePeerAccess to the current context", driver.cuCtxEnablePeerAccess(context, 0), 217);
}

static void fill_memory_of_a_peer(cu_address memory) {
  unsigned char bytes[64] = {0};
  REQUIRE(cuMemsetD8Async(memory, 7, sizeof bytes, stream));
  REQUIRE(cuMemcpyDtoHAsync(bytes, memory, sizeof bytes, stream));
  REQUIRE_TRUE(synchronized());
  for (size_t i = 0; i < sizeof bytes; i++)
    if (bytes[i] != 7) fail("expected byte %zu of the peer's memory to be 7, got %d", i, bytes[i]);
}

/* The access ends with the peer's context: that of a new one is not enabled already. */
static void peer_is_reached_until_its_context_ends(void) {
  for (int round = 0; round < 2; round++) {
    struct cu_context *peer, *popped;
    cu_address memory = 0;
    REQUIRE(cuDevicePrimaryCtxRetain(&peer, 1));
    REQUIRE(cuCtxPushCurrent(peer));
    REQUIRE(cuMemAlloc(&memory, 64));
    REQUIRE(cuCtxPopCurrent(&popped));
    expect("cuCtxEnablePeerAccess with flags", driver.cuCtxEnablePeerAccess(peer, 1), CU_INVALID_VALUE);
    REQUIRE(cuCtxEnablePeerAccess(peer, 0));
    expect("cuCtxEnablePeerAccess again", driver.cuCtxEnablePeerAccess(peer, 0), CU_PEER_ACCESS_ALREADY_ENABLED);
    fill_memory_of_a_peer(memory);
    REQUIRE(cuCtxPushCurrent(peer));
    REQUIRE(cuMemFree(memory));
    REQUIRE(cuCtxPopCurrent(&popped));
    REQUIRE(cuDevicePrimaryCtxRelease(1));
  }
}

/* ---- All of them ------------------------------------------------------------------------------------------------- */

const struct behaviour basic_behaviours[] = {
    {NAMED(error_names), NOTHING},
    {NAMED(error_strings), NOTHING},
    {NAMED(error_unknown), NOTHING},
    {NAMED(device_of_a_wrong_ordinal), NOTHING},
    {NAMED(primary_context_is_one), NOTHING},
    {NAMED(contexts_nest), NOTHING},
    {NAMED(contexts_belong_to_a_thread), NOTHING},
    {NAMED(priority_out_of_range_is_clamped), NOTHING},
    {NAMED(allocation_of_no_bytes), NOTHING},
    {NAMED(allocation_of_too_much), NOTHING},
    {NAMED(memory_freed_twice), NOTHING},
    {NAMED(pinned_address_is_the_devices), NOTHING},
    {NAMED(memory_has_a_type), NOTHING},
    {NAMED(copies_and_fills_follow_each_other), NOTHING},
    {NAMED(kernel_of_an_unknown_name), KERNELS},
    {NAMED(kernel_is_the_same_each_time), KERNELS},
    {NAMED(kernel_parameters), KERNELS},
    {NAMED(kernel_shared_memory_opt_in), KERNELS},
    {NAMED(device_is_no_peer_of_itself), NOTHING},
    {NAMED(peer_is_reached_until_its_context_ends), PEERS},
    {0},
};
