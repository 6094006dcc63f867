/* forbidden.c - see forbidden.h. The driver is entered through a table that driver_load fills; here every entry becomes
 * a trap, and the driver's own function is kept for the trap to go on to. */
#include "forbidden.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "../../runtime/cuda/driver.h"
#include "../../runtime/pool.h"

enum trap {
  TRAP_pool_carve,
  TRAP_pool_carve_top,
  TRAP_pool_grow_down,
  TRAP_pool_return,
  TRAP_pool_take,
  TRAP_pool_give,
#define ENTRY_POINT(name, version, need, ...) TRAP_##name,
#include "../../runtime/cuda/entry_points.h"
  TRAP_COUNT,
  POOL_TRAPS = TRAP_pool_give + 1 /* come first */
};

static const char *const names[TRAP_COUNT] = {
    "pool_carve", "pool_carve_top", "pool_grow_down", "pool_return", "pool_take", "pool_give",
#define ENTRY_POINT(name, version, need, ...) #name,
#include "../../runtime/cuda/entry_points.h"
};

/* ---- Counting ---------------------------------------------------------------------------------------------------- */

static _Atomic bool counting;
static _Atomic uint64_t counts[TRAP_COUNT];

static void count(enum trap trap) {
  if (atomic_load_explicit(&counting, memory_order_relaxed)) atomic_fetch_add(&counts[trap], 1);
}

/* A launch with the context around it, and while somebody waits whether the device still lives. */
static bool is_of_a_replay(int trap) {
  return trap == TRAP_cuCtxPushCurrent || trap == TRAP_cuGraphLaunch || trap == TRAP_cuCtxPopCurrent ||
         trap == TRAP_cuStreamQuery || trap == TRAP_cuThreadExchangeStreamCaptureMode;
}

void forbidden_count(void) {
  for (int i = 0; i < TRAP_COUNT; i++) atomic_store(&counts[i], 0);
  atomic_store(&counting, true);
}

uint64_t forbidden_stop(void) {
  uint64_t calls = 0;
  atomic_store(&counting, false);
  for (int i = 0; i < TRAP_COUNT; i++)
    if (!is_of_a_replay(i)) calls += counts[i];
  return calls;
}

void forbidden_describe(char *text, size_t bytes) {
  size_t used = 0;
  text[0] = 0;
  for (int i = 0; i < TRAP_COUNT && used < bytes; i++)
    if (counts[i] && !is_of_a_replay(i))
      used += (size_t)snprintf(text + used, bytes - used, "%s%s %llu", used ? ", " : "", names[i],
                               (long long unsigned)counts[i]);
}

int forbidden_kinds(bool is_cuda) {
  int kinds = 0;
  for (int i = 0; i < (is_cuda ? TRAP_COUNT : POOL_TRAPS); i++) kinds += !is_of_a_replay(i);
  return kinds;
}

uint64_t forbidden_launches(void) { return counts[TRAP_cuGraphLaunch]; }

/* ---- Pools ------------------------------------------------------------------------------------------------------- */

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names. */
#define CARVE_TRAP(name)                                                                                               \
  rondo_status __real_##name(struct pool *pool, uint64_t bytes, const char *owner, struct pool_extent *extent);        \
  rondo_status __wrap_##name(struct pool *pool, uint64_t bytes, const char *owner, struct pool_extent *extent);        \
  rondo_status __wrap_##name(struct pool *pool, uint64_t bytes, const char *owner, struct pool_extent *extent) {       \
    count(TRAP_##name);                                                                                                \
    return __real_##name(pool, bytes, owner, extent);                                                                  \
  }
CARVE_TRAP(pool_carve)
CARVE_TRAP(pool_carve_top)
CARVE_TRAP(pool_grow_down)

void __real_pool_return(struct pool *pool, struct pool_extent *extent);
void __wrap_pool_return(struct pool *pool, struct pool_extent *extent);
void __wrap_pool_return(struct pool *pool, struct pool_extent *extent) {
  count(TRAP_pool_return);
  __real_pool_return(pool, extent);
}

rondo_status __real_pool_take(struct pool *pool, uint64_t bytes, const char *owner, bool from_top, void **memory);
rondo_status __wrap_pool_take(struct pool *pool, uint64_t bytes, const char *owner, bool from_top, void **memory);
rondo_status __wrap_pool_take(struct pool *pool, uint64_t bytes, const char *owner, bool from_top, void **memory) {
  count(TRAP_pool_take);
  return __real_pool_take(pool, bytes, owner, from_top, memory);
}

void __real_pool_give(struct pool *pool, void *memory);
void __wrap_pool_give(struct pool *pool, void *memory);
void __wrap_pool_give(struct pool *pool, void *memory) {
  count(TRAP_pool_give);
  __real_pool_give(pool, memory);
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* ---- The driver -------------------------------------------------------------------------------------------------- */

static struct driver real; /* empty until one is loaded */

/* All parameters of the driver's functions are integers and addresses, twelve at most. A function of twelve words
 * stands for any of them: in the calling conventions of x86-64 and AArch64 it finds them where they were left, passes
 * them on as it found them, and what is too many is not looked at. */
typedef uintptr_t word;
typedef cu_result of_words(word, word, word, word, word, word, word, word, word, word, word, word);
typedef void any_function(void);

/* 0 if there are thirteen. */
#define FOURTEENTH(a, b, c, d, e, f, g, h, i, j, k, l, m, n, ...) n
#define ENTRY_POINT(name, version, need, ...)                                                                          \
  static_assert(FOURTEENTH(__VA_ARGS__, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), "a parameter too many");            \
  static cu_result trap_##name(word a, word b, word c, word d, word e, word f, word g, word h, word i, word j, word k, \
                               word l) {                                                                               \
    count(TRAP_##name);                                                                                                \
    return real.name ? ((of_words *)(any_function *)real.name)(a, b, c, d, e, f, g, h, i, j, k, l) : CU_SUCCESS;       \
  }
#include "../../runtime/cuda/entry_points.h"

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names. */
rondo_status __real_driver_load(struct driver *driver);
rondo_status __wrap_driver_load(struct driver *driver);
rondo_status __wrap_driver_load(struct driver *driver) {
  rondo_status status = __real_driver_load(driver);
  real = *driver;
#define ENTRY_POINT(name, version, need, ...)                                                                          \
  if (driver->name) driver->name = (cu_result(*)(__VA_ARGS__))(any_function *)trap_##name;
#include "../../runtime/cuda/entry_points.h"
  return status;
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* ---- On purpose -------------------------------------------------------------------------------------------------- */

const char *forbidden_unseen(void) {
  static _Alignas(POOL_ALIGNMENT) unsigned char memory[6 * POOL_ALIGNMENT];
  static struct pool pool;
  struct pool_extent low = {0}, high = {0};
  void *taken = NULL;
  pool_init(&pool, "host", memory, sizeof memory);
  forbidden_count();
  pool_carve(&pool, 1, "a trap", &low);
  pool_carve_top(&pool, 1, "a trap", &high);
  pool_grow_down(&pool, POOL_ALIGNMENT + 1, "a trap", &high);
  pool_take(&pool, 1, "a trap", false, &taken);
  pool_give(&pool, taken);
  pool_return(&pool, &high);
#define ENTRY_POINT(name, version, need, ...) trap_##name(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
#include "../../runtime/cuda/entry_points.h"
  forbidden_stop();
  for (int i = 0; i < TRAP_COUNT; i++)
    if (counts[i] != 1) return names[i];
  return NULL;
}

const char *forbidden_missed(bool is_cuda) {
  static const enum trap pools[] = {TRAP_pool_carve, TRAP_pool_return, TRAP_pool_take, TRAP_pool_give};
  static const enum trap calls[] = {TRAP_cuMemAlloc,
                                    TRAP_cuMemHostAlloc,
                                    TRAP_cuMemsetD8Async,
                                    TRAP_cuMemcpyHtoDAsync,
                                    TRAP_cuMemcpy2DAsync,
                                    TRAP_cuLibraryLoadData,
                                    TRAP_cuLibraryGetKernel,
                                    TRAP_cuKernelGetFunction,
                                    TRAP_cuFuncLoad,
                                    TRAP_cuStreamCreateWithPriority,
                                    TRAP_cuStreamSynchronize,
                                    TRAP_cuGraphCreate,
                                    TRAP_cuGraphAddNode,
                                    TRAP_cuGraphInstantiateWithParams,
                                    TRAP_cuGraphExecKernelNodeSetParams,
                                    TRAP_cuGraphLaunch,
                                    TRAP_cuGraphExecDestroy,
                                    TRAP_cuGraphDestroy,
                                    TRAP_cuCtxPushCurrent,
                                    TRAP_cuCtxPopCurrent};
  for (size_t i = 0; i < sizeof pools / sizeof *pools; i++)
    if (!counts[pools[i]]) return names[pools[i]];
  for (size_t i = 0; is_cuda && i < sizeof calls / sizeof *calls; i++)
    if (!counts[calls[i]]) return names[calls[i]];
  return NULL;
}
