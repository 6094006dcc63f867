/* runtime.h - the inside of rondo_runtime, and where graphs and plans get their host memory. */
#ifndef RONDO_RUNTIME_H
#define RONDO_RUNTIME_H

#include <pthread.h>

#include "device.h"
#include "pool.h"

struct rondo_runtime {
  uint64_t magic;
  const _Atomic uint32_t *opened_here; /* 0 in a child of the process that opened it: see runtime.c */
  rondo_allocator allocator;
  rondo_wait_mode wait_mode;
  const struct device_ops *ops;
  struct device *device;
  struct device_info info;
  /* Guards the pools and the counts below, and what rebinding changes in an exec. Taken by open, close, create,
   * instantiate and rebind calls, and by the release of a slot that is rebound; never by a replay. While it is held
   * nothing else is waited for: a callback of the user's may take it. */
  pthread_mutex_t lock;
  struct pool device_pool, pinned_pool, host_pool;
  void *host_memory;
  uint32_t open_graphs, open_execs;
  bool is_closing; /* nothing is opened any more */
  rondo_exec *execs;
  struct lane_arena {
    struct pool_extent extent;
    uint64_t kept_bytes; /* also while no exec uses it */
    bool is_profiled;    /* nobody else replays in the lane, a warm replay neither */
  } arenas[RONDO_MAX_LANES];
};

/* RONDO_INVALID_ARGUMENT if runtime is NULL, RONDO_INVALID_STATE if it was closed, or opened before fork. */
rondo_status runtime_check(const rondo_runtime *runtime, const char *function);

/* RONDO_INVALID_STATE while the runtime is being closed: no graph or exec more. The lock is held. */
rondo_status runtime_may_open(const rondo_runtime *runtime);

rondo_status forked_status(const char *function);

/* What tells an exec or a graph from every other at its address, before it or after: 64 random bits, never 0. Any two
 * are alike, and any other bytes are like one, with a probability of 2^-63; and nobody has to count. */
uint64_t serial_draw(void);

/* Of the device's memory, 0 where nobody knows. */
uint64_t runtime_free_bytes(const rondo_runtime *runtime);

/* RONDO_INVALID_STATE inside a host function or a capture callback of this runtime. Before every call that waits. */
rondo_status runtime_check_outside(const rondo_runtime *runtime, const char *function);

/* allocator.c: mimalloc. */
rondo_allocator allocator_default(void);

/* Host memory: from a runtime's host pool, or where there is none from an allocator, or where there is neither from
 * mimalloc. The memory is not cleared, and is given back with the bytes with which it was taken. */
struct memory_source {
  rondo_runtime *runtime;
  rondo_allocator allocator;
};
/* Errors: a runtime and an allocator, or half an allocator. */
rondo_status memory_source_of(rondo_runtime *runtime_or_null, const rondo_allocator *allocator_or_null,
                              const char *function, struct memory_source *source);
rondo_status memory_take(struct memory_source source, uint64_t bytes, const char *owner, void **memory);
/* The same from the other end of a pool, for what is given back before the call returns: what stays lies together. */
rondo_status memory_take_for_now(struct memory_source source, uint64_t bytes, const char *owner, void **memory);
void memory_give(struct memory_source source, void *memory, uint64_t bytes);

#endif
