/* exec.h - the inside of an instantiated graph. */
#ifndef RONDO_EXEC_H
#define RONDO_EXEC_H

#include "notice.h"
#include "patience.h"
#include "plan.h"

struct exec_tensor {
  const char *name; /* of the root */
  enum tensor_kind kind;
  uint32_t root;
  uint64_t bytes;
  unsigned char *device_memory; /* of the root */
  uint64_t pinned_offset;       /* of an input or output, in the slot's pinned extent */
  uint64_t offset_bytes;        /* in the root */
  struct device_rows rows;
  uint32_t access; /* of a root: what this exec's tasks do with it */
  bool is_written; /* of a root: by a task in front of the one that program.c is at */
  /* Of a root that is a constant or a state: whose it is, and its index there. */
  rondo_exec *owner;
  uint32_t owner_index;
  bool is_uploaded; /* the owner's constant, in part at least; or it was to begin as zeros */
};

/* Where an operand lies: in a tensor's device memory, or in the slot's pinned memory; NO_TENSOR: nowhere. */
struct operand_place {
  uint32_t tensor;
  bool in_slot;
};

/* One in-flight replay. It is done when all words have reached `launched`. */
struct slot {
  _Alignas(128) _Atomic uint64_t launched;
  _Atomic uint64_t told; /* of these rondo_wait_any has no more to tell; grows only */
  _Atomic(void *) user;  /* of the last rondo_replay's handle, and its lease: see tell in any_slot.c */
  _Atomic uint32_t user_lease;
  _Atomic uint64_t *words; /* COMPLETION_WORDS, pinned, written by the device */
  struct device_exec *device_exec;
  unsigned char *pinned;
  uint64_t *counts;
  void **rebound; /* by tensor: the caller's buffer, or NULL */
  void *backend_memory;
  uint32_t rebound_count;
  struct notice notice;
  struct patience patience;
  bool constants_are_set; /* seen by a replay: not asked for again until a constant is bound no more */
  _Atomic uint32_t lease; /* odd while somebody holds the slot: what the holder did is seen by the next one */
};

struct rondo_exec {
  _Atomic uint64_t serial; /* what its slots' handles carry; 0 unless it is open */
  uint64_t magic;
  const _Atomic uint32_t *opened_here; /* the runtime's */
  rondo_runtime *runtime;
  uint64_t graph_serial; /* the graph may be gone */
  uint32_t slot_count;
  _Atomic uint32_t next_slot, next_done; /* where the search for a free or a done one begins: hints */
  struct patience patience;              /* of waits for any of several execs of which this is the first */
  uint32_t lane;
  bool keeps_warm;
  uint32_t tensor_count, node_count, operand_count, user_kernel_count, launch_count;
  struct exec_tensor *tensors;
  struct device_node *nodes;
  struct op_task *tasks; /* of the nodes, so that the graph may go */
  /* Of all nodes, one after the other: the operands, their addresses in one slot, and where they lie. */
  struct op_operand *operands;
  void **data;
  struct operand_place *places;
  unsigned char *user_work;
  uint32_t *predecessors;
  char (*names)[NAME_BYTES];
  const char *called; /* its first task's, "" if it has none: graphs have no names */
  char *tensor_names; /* of the roots, one behind the other */
  void *build_memory;
  struct pool_extent device_extent, pinned_extent; /* the exec itself is what it takes of the host pool */
  unsigned char *device_memory, *pinned_memory;
  unsigned char *arena_memory; /* its end is the end of the lane's arena */
  uint64_t arena_bytes, constant_bytes;
  /* Guarded by the runtime's lock: the runtime's other execs, and those that it borrows from, each once; whether it is
   * being closed, so that nobody begins to borrow from it; and uploads and downloads that are going on. */
  rondo_exec *next;
  rondo_exec **lenders;
  uint32_t lender_count;
  bool is_closing;
  uint32_t transfer_count;
  uint32_t warm_replays;                                         /* of each slot: 1, or 0; guarded as well */
  atomic_bool states_are_used;                                   /* something else than zeros may be in them */
  uint64_t device_bytes, pinned_bytes, host_bytes, driver_bytes; /* what it takes */
  struct slot slots[RONDO_MAX_SLOTS];
};

/* To whoever asked for it: of the execs in the list of the runtime not those that are being made, and may still fail.
 */
static inline bool exec_is_open(const rondo_exec *exec) {
  return atomic_load_explicit(&exec->serial, memory_order_relaxed) != 0;
}

#endif
