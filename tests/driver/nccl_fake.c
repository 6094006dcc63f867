/* nccl_fake.c - see nccl_fake.h. */
#include "nccl_fake.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "../../runtime/cuda/abi.h"
#include "fake_driver.h"

enum { SUCCESS = 0, SYSTEM_ERROR = 2, BYTES = 1 };

static struct nccl_fake fake = {.settings = {.version = 22809, .ranks = 2, .rank = 1}};

#define PUBLIC(type, name, ...)                                                                                        \
  __attribute__((visibility("default"))) type name(__VA_ARGS__);                                                       \
  type name(__VA_ARGS__)

PUBLIC(struct nccl_fake *, nccl_fake, void) { return &fake; }

static void __attribute__((format(printf, 3, 4))) note(char *text, size_t bytes, const char *format, ...) {
  const size_t used = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + used, bytes - used, format, arguments);
  va_end(arguments);
}

static int result_of(const char *function) {
  const bool fails = fake.settings.failing && !strcmp(fake.settings.failing, function);
  return fails ? fake.settings.result : SUCCESS;
}

/* ---- What the work does ------------------------------------------------------------------------------------------ */

/* Of the arguments of a piece of work: in, out, numbers, peer. */
static uint32_t count_of(void *const *arguments) { return (uint32_t)(uintptr_t)arguments[2]; }

/* Number i of rank r. */
static uint32_t of_rank(const uint32_t *in, uint32_t i, int32_t r) {
  return in[i] + (uint32_t)(NCCL_STEP * (r - fake.settings.rank));
}

static uint32_t sum(const uint32_t *in, uint32_t i) {
  uint32_t all = 0;
  for (int32_t r = 0; r < fake.settings.ranks; r++) all += of_rank(in, i, r);
  return all;
}

static void all_reduce(void *const *arguments) {
  uint32_t *out = arguments[1];
  for (uint32_t i = 0; i < count_of(arguments); i++) out[i] = sum(arguments[0], i);
  note(fake.ran, sizeof fake.ran, "ncclAllReduce\n");
}

static void all_gather(void *const *arguments) {
  uint32_t *out = arguments[1], count = count_of(arguments);
  for (int32_t r = 0; r < fake.settings.ranks; r++)
    for (uint32_t i = 0; i < count; i++) *out++ = of_rank(arguments[0], i, r);
  note(fake.ran, sizeof fake.ran, "ncclAllGather\n");
}

static void reduce_scatter(void *const *arguments) {
  uint32_t *out = arguments[1], count = count_of(arguments);
  for (uint32_t i = 0; i < count; i++) out[i] = sum(arguments[0], (uint32_t)fake.settings.rank * count + i);
  note(fake.ran, sizeof fake.ran, "ncclReduceScatter\n");
}

static void receive(uint32_t *out, uint32_t count, uint32_t peer) {
  for (uint32_t i = 0; i < count; i++) out[i] = NCCL_FROM * (peer + 1) + i;
}

static void broadcast(void *const *arguments) {
  const uint32_t peer = (uint32_t)(uintptr_t)arguments[3];
  if (!arguments[0])
    receive(arguments[1], count_of(arguments), peer);
  else
    memmove(arguments[1], arguments[0], count_of(arguments) * sizeof(uint32_t));
  note(fake.ran, sizeof fake.ran, "ncclBroadcast\n");
}

static void send_numbers(void *const *arguments) {
  memcpy(fake.sent, arguments[0], count_of(arguments) * sizeof(uint32_t));
  note(fake.ran, sizeof fake.ran, "ncclSend\n");
}

static void receive_numbers(void *const *arguments) {
  receive(arguments[1], count_of(arguments), (uint32_t)(uintptr_t)arguments[3]);
  note(fake.ran, sizeof fake.ran, "ncclRecv\n");
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

/* An entry of the fake driver; NULL: none. */
static void *find_entry(void *library, const char *name) {
  void *function = NULL, *finder = dlsym(library, "cuGetProcAddress_v2");
  cu_result (*find)(const char *, void **, int, uint64_t, int *);
  int unused;
  if (!finder) return NULL;
  memcpy(&find, &finder, sizeof find);
  return find(name, &function, 13000, 0, &unused) == CU_SUCCESS ? function : NULL;
}

/* Notes this thread's mode for captures. False: the stream's capture is one that an earlier task was in. */
static bool look_at_capture(void *library, void *stream) {
  void *exchanges = find_entry(library, "cuThreadExchangeStreamCaptureMode");
  void *asks = find_entry(library, "cuStreamGetCaptureInfo");
  cu_result (*exchange_mode)(int *);
  cu_result (*ask)(void *, int *, uint64_t *, void *, void *, void *, void *);
  int status = 0;
  uint64_t number = 0;
  if (!exchanges || !asks) return false;
  memcpy(&exchange_mode, &exchanges, sizeof exchange_mode);
  memcpy(&ask, &asks, sizeof ask);
  fake.mode = CU_CAPTURE_RELAXED;
  exchange_mode(&fake.mode);
  int mode = fake.mode;
  exchange_mode(&mode);
  if (ask(stream, &status, &number, NULL, NULL, NULL, NULL) != CU_SUCCESS) return false;
  const bool is_new = number != fake.capture || fake.is_group > 1;
  fake.capture = number;
  fake.is_group += fake.is_group > 0;
  return is_new;
}

static const struct fake_driver *find_driver(void *library) {
  void *table = dlsym(library, "fake_driver");
  fake_driver_function find;
  memcpy(&find, &table, sizeof find);
  return table ? find() : NULL;
}

static int enqueue(const char *function, void (*run)(void *const *), const void *in, void *out, size_t count, int type,
                   int peer, void *stream) {
  note(fake.calls, sizeof fake.calls, "%s %zu of type %d", function, count, type);
  note(fake.calls, sizeof fake.calls, peer < 0 ? "\n" : ", rank %d\n", peer);
  if (result_of(function) != SUCCESS) return result_of(function);
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  const struct fake_driver *driver = library ? find_driver(library) : NULL;
  if (!driver || !look_at_capture(library, stream)) return SYSTEM_ERROR;
  const size_t numbers = type == BYTES ? count / sizeof(uint32_t) : count;
  const struct fake_work work[] = {
      {CU_NODE_KERNEL, run, {(void *)(uintptr_t)in, out, (void *)numbers, (void *)(uintptr_t)peer}, NULL},
      {.type = CU_NODE_HOST}};
  int result = driver->enqueue(stream, work, 1);
  if (result == CU_SUCCESS && fake.settings.host_callbacks) result = driver->enqueue(stream, work + 1, 1);
  return result == CU_SUCCESS ? SUCCESS : SYSTEM_ERROR;
}

PUBLIC(int, ncclGetVersion, int *version) {
  *version = fake.settings.version;
  return result_of(__func__);
}

PUBLIC(const char *, ncclGetErrorString, int result) { return result == SYSTEM_ERROR ? "a system error" : "an error"; }

PUBLIC(const char *, ncclGetLastError, const void *communicator) {
  return communicator ? fake.settings.last_error : "no communicator";
}

PUBLIC(int, ncclCommCount, const void *communicator, int *count) {
  *count = fake.settings.ranks;
  return communicator ? result_of(__func__) : SYSTEM_ERROR;
}

PUBLIC(int, ncclCommUserRank, const void *communicator, int *rank) {
  *rank = fake.settings.rank;
  return communicator ? result_of(__func__) : SYSTEM_ERROR;
}

PUBLIC(int, ncclGroupStart, void) {
  note(fake.calls, sizeof fake.calls, "ncclGroupStart\n");
  fake.is_group = 1;
  return result_of(__func__);
}

PUBLIC(int, ncclGroupEnd, void) {
  note(fake.calls, sizeof fake.calls, "ncclGroupEnd\n");
  fake.is_group = 0;
  return result_of(__func__);
}

PUBLIC(int, ncclAllReduce, const void *in, void *out, size_t count, int type, int op, const void *communicator,
       void *stream) {
  if (!communicator || op) return SYSTEM_ERROR;
  return enqueue(__func__, all_reduce, in, out, count, type, -1, stream);
}

PUBLIC(int, ncclAllGather, const void *in, void *out, size_t count, int type, const void *communicator, void *stream) {
  return communicator ? enqueue(__func__, all_gather, in, out, count, type, -1, stream) : SYSTEM_ERROR;
}

PUBLIC(int, ncclReduceScatter, const void *in, void *out, size_t count, int type, int op, const void *communicator,
       void *stream) {
  if (!communicator || op) return SYSTEM_ERROR;
  return enqueue(__func__, reduce_scatter, in, out, count, type, -1, stream);
}

PUBLIC(int, ncclBroadcast, const void *in, void *out, size_t count, int type, int root, const void *communicator,
       void *stream) {
  return communicator ? enqueue(__func__, broadcast, in, out, count, type, root, stream) : SYSTEM_ERROR;
}

PUBLIC(int, ncclSend, const void *in, size_t count, int type, int peer, const void *communicator, void *stream) {
  return communicator ? enqueue(__func__, send_numbers, in, NULL, count, type, peer, stream) : SYSTEM_ERROR;
}

PUBLIC(int, ncclRecv, void *out, size_t count, int type, int peer, const void *communicator, void *stream) {
  return communicator ? enqueue(__func__, receive_numbers, NULL, out, count, type, peer, stream) : SYSTEM_ERROR;
}
