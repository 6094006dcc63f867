/* runtime.h - the inside of rondo_runtime, and where graphs and plans get their host memory. */
#ifndef RONDO_RUNTIME_H
#define RONDO_RUNTIME_H

#include <pthread.h>

#include "device.h"
#include "pool.h"

struct rondo_runtime {
  uint64_t magic;
  rondo_allocator allocator;
  rondo_wait_mode wait_mode;
  const struct device_ops *ops;
  struct device *device;
  struct device_info info;
  /* Guards the pools and the counts below. Taken by open, close, create and instantiate calls, never by a replay. */
  pthread_mutex_t lock;
  struct pool device_pool, pinned_pool, host_pool;
  void *host_memory;
  uint32_t open_graphs, open_execs;
};

/* RONDO_INVALID_ARGUMENT if runtime is NULL, RONDO_INVALID_STATE if it was closed. */
rondo_status runtime_check(const rondo_runtime *runtime, const char *function);

/* RONDO_INVALID_STATE inside a host function or a capture callback of this runtime. Before every call that waits. */
rondo_status runtime_check_outside(const rondo_runtime *runtime, const char *function);

/* allocator.c: mimalloc. */
rondo_allocator allocator_default(void);

/* Host memory: from a runtime's host pool, or where there is none from mimalloc. The memory is not cleared. */
struct memory_source {
  rondo_runtime *runtime;
};
rondo_status memory_take(struct memory_source source, uint64_t bytes, const char *owner, void **memory);
void memory_give(struct memory_source source, void *memory, uint64_t bytes);

#endif
