/* exec.h - an instantiated graph: what it holds, and checks of a call's exec. instantiate.c makes it. */
#pragma once

#include "doorbell.h"
#include "graph.h"
#include "notice.h"
#include "patience.h"
#include "repeat_control.h"

/* A tensor of the graph, as the exec keeps it after the graph may be gone. */
struct exec_tensor {
  const char *name; /* of the root */
  enum tensor_kind kind;
  rondo_dtype dtype;
  uint32_t root;
  uint64_t bytes;
  unsigned char *device_memory; /* of the root */
  uint64_t pinned_offset;       /* of an input or output, in the slot's pinned extent */
  uint64_t offset_bytes;        /* in the root */
  struct device_rows rows;
  /* Of a root: the accesses of all tasks of this exec, and of those that do not wait for other ranks. */
  uint32_t access, unordered_access;
  bool is_written; /* of a root, while program.c fills nodes: an earlier task writes it */
  /* Of a root that is a constant or a state: the exec that owns it, and its index there. */
  rondo_exec *owner;
  uint32_t owner_index;
  bool is_uploaded; /* of an owned constant: a part of it at least was uploaded, or it begins as zeros */
};

/* Where an operand comes from: a tensor's device memory, or the slot's pinned memory. NO_TENSOR: nowhere. */
struct operand_source {
  uint32_t tensor;
  bool in_slot;
};

/* The inputs and outputs of one replay in flight. The replay is done when all words have reached `launched`. */
struct slot {
  _Alignas(128) _Atomic uint64_t launched;
  _Atomic uint64_t told; /* the last replay that rondo_wait_any told, or need not tell; it only grows */
  _Atomic(void *) user;  /* of the last rondo_replay's handle, and its lease: see tell in any_slot.c */
  _Atomic uint32_t user_lease;
  _Atomic uint64_t *words; /* COMPLETION_WORDS, pinned, written by the device */
  struct device_exec *device_exec;
  unsigned char *pinned;
  uint64_t *counts;
  struct repeat repeat;
  struct doorbell *bell; /* NULL in an exec that is not resident, */
  uint64_t *bell_nodes;  /* and this too: DOORBELL_NODES */
  void **rebound;        /* by tensor: the program's buffer, or NULL */
  void *backend_memory;
  uint32_t rebound_count;
  struct notice notice;
  struct patience patience;
  bool constants_are_set; /* a replay has checked all constants; false again when a constant's buffer is unbound */
  _Atomic uint32_t lease; /* odd while a thread holds the slot. The next holder sees the writes of this one */
};

struct exec_slots {
  uint32_t count;
  _Atomic uint32_t next_free, next_done; /* hints: where the search for a free slot, or a done one, begins */
  struct patience patience;              /* of waits for any of several execs, if this exec is the first of them */
  struct slot items[RONDO_MAX_SLOTS];
};

/* The nodes that run, with copies of all they need, so that the graph may be destroyed: see program.h. */
struct exec_program {
  uint32_t node_count, operand_count, user_kernel_count, launch_count;
  struct device_node *nodes;
  struct op_task *tasks; /* of the nodes */
  /* Of all nodes, one after the other: the operands, their addresses in one slot, and their sources. */
  struct op_operand *operands;
  void **data;
  struct operand_source *sources;
  unsigned char *user_work;
  uint32_t *predecessors;
  char (*names)[NAME_BYTES];
  const char *called; /* the first task's name, NULL if there is none. Graphs have no names: errors use this one */
  void *build_memory;
};

/* What the exec takes of the pools. The exec itself is its part of the host pool. */
struct exec_memory {
  struct pool_extent device_extent, pinned_extent;
  unsigned char *device, *pinned;
  unsigned char *arena; /* it ends where the lane's arena ends */
  uint64_t arena_bytes, constant_bytes;
  uint64_t device_bytes, pinned_bytes, host_bytes;
  uint64_t driver_bytes; /* that the driver took for it */
};

/* Guarded by the group's lock; see ownership.h. */
struct exec_lending {
  rondo_exec **lenders; /* the execs that it borrows from, each once */
  uint32_t lender_count;
  bool is_closing;             /* no exec begins to borrow from it */
  bool is_touched;             /* by the lost device of another rank, for ever: it is not given back */
  uint32_t transfer_count;     /* uploads and downloads in progress */
  atomic_bool states_are_used; /* its states may hold something else than zeros */
  atomic_bool was_uploaded;    /* a part of it at least, and the copy may be in progress */
};

struct rondo_exec {
  _Atomic uint64_t serial; /* what its slots' handles carry; 0 unless it is open */
  uint64_t magic;
  const _Atomic uint32_t *opened_here; /* the runtime's */
  rondo_runtime *runtime;
  rondo_exec *next;      /* of the group's execs; guarded by the group's lock */
  uint64_t graph_serial; /* the graph may be destroyed */
  uint32_t lane;
  uint32_t warm_replays; /* of each slot, repeats among them; guarded by the group's lock */
  bool keeps_warm;
  uint32_t repeat_steps; /* the most of a repeat */
  uint64_t linger_ns;    /* 0: not resident */
  uint32_t tensor_count;
  struct exec_tensor *tensors;
  char *tensor_names; /* of the roots, one after the other */
  struct exec_memory memory;
  struct exec_program program;
  struct exec_lending lending;
  struct exec_slots slots;
};

/* The magic of an open exec. */
static const uint64_t exec_magic = 0x63657865646e6f52;

/* False for an exec that is being made and may still fail: the group's list has it, but no call may use it. */
static inline bool exec_is_open(const rondo_exec *exec) {
  return atomic_load_explicit(&exec->serial, memory_order_acquire) != 0;
}

rondo_status exec_check(const rondo_exec *exec, const char *function);
/* Also checks that the calling thread is not inside a task of the exec's runtime. */
rondo_status exec_check_outside(const rondo_exec *exec, const char *function);

/* Checks that the tensor is of the exec's graph and of one of the kinds (bit 1 << kind), and no view unless `views`. */
rondo_status exec_tensor_check(const rondo_exec *exec, rondo_tensor tensor, uint32_t kinds, bool views,
                               const char *expected, const char *function);
