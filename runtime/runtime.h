/* runtime.h - the inside of rondo_runtime, and the checks that calls make of it. open.c opens and closes it. */
#pragma once

#include <pthread.h>

#include "device.h"
#include "pool.h"

/* Runtimes that can reach each other's memory, those of one rondo_open_group. The last one that is closed ends it. */
struct group {
  rondo_allocator allocator; /* of rank 0, from which it comes */
  uint32_t ranks;
  uint64_t devices; /* of several ranks, as bits */
  /* Each rank has one lane. It is the only rank, or its device was no other rank's and no other group's at open. */
  bool has_own_devices;
  _Atomic uint32_t open_count;
  /* Guards, in all runtimes of the group, the pools, the counts, the list of execs, and the nodes of an exec while a
   * buffer is bound. Calls that open, close, create, instantiate or bind take it, and so does the release of a slot
   * with bound buffers; a replay never does. A thread that holds it waits for nothing else, since a callback of the
   * user's may take it. */
  pthread_mutex_t lock;
  rondo_exec *execs;
};

struct rondo_runtime {
  uint64_t magic;
  const _Atomic uint32_t *opened_here; /* 0 in a child of the process that opened it: see open.c */
  rondo_allocator allocator;
  rondo_wait_mode wait_mode;
  const struct device_ops *ops;
  struct device *device;
  struct device_info info;
  struct group *group; /* of this runtime alone, or of several */
  uint32_t rank;
  struct pool device_pool, pinned_pool, host_pool;
  void *host_memory;
  uint32_t open_graphs, open_execs;
  bool is_closing; /* no graph and no exec is opened any more */
  bool is_touched; /* as an exec: see exec_lending */
  struct lane_arena {
    struct pool_extent extent;
    uint64_t kept_bytes; /* also while no exec uses it */
    bool is_profiled;    /* no other exec of the lane replays, and none is instantiated */
  } arenas[RONDO_MAX_LANES];
};

/* The magic of an open runtime. */
static const uint64_t runtime_magic = 0x6f646e6f52;

/* RONDO_INVALID_ARGUMENT if runtime is NULL, RONDO_INVALID_STATE if it was closed, or opened before fork. */
rondo_status runtime_check(const rondo_runtime *runtime, const char *function);

/* RONDO_INVALID_STATE while the runtime is being closed: no graph or exec more. The group's lock is held. */
rondo_status runtime_may_open(const rondo_runtime *runtime);

rondo_status forked_status(const char *function);

/* The serial of an exec or a graph: 64 random bits, never 0. It tells the object from all others that have had the same
 * address. Two serials are equal with a probability of 2^-63. */
uint64_t serial_draw(void);

/* Free bytes of device memory; 0 if that is not known. */
uint64_t runtime_free_bytes(const rondo_runtime *runtime);

/* RONDO_INVALID_STATE inside a host function or a capture callback of this runtime. Each call that waits checks this.
 */
rondo_status runtime_check_outside(const rondo_runtime *runtime, const char *function);
