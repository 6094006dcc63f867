/* exec.h - the inside of an instantiated graph. */
#ifndef RONDO_EXEC_H
#define RONDO_EXEC_H

#include "plan.h"

struct exec_tensor {
  enum tensor_kind kind;
  bool is_view;
  uint64_t bytes;
  uint64_t device_offset;
  uint64_t pinned_offset; /* inputs and outputs, in the slot's pinned extent */
};

/* Where an operand lies: in a tensor's device memory, or in the slot's pinned memory; NO_TENSOR: nowhere. */
struct operand_place {
  uint32_t tensor;
  bool in_slot;
};

/* One in-flight replay. It is done when all words have reached `launched`. */
struct slot {
  _Alignas(128) _Atomic uint64_t launched;
  _Atomic uint64_t *words; /* COMPLETION_WORDS, pinned, written by the device */
  struct device_exec *device_exec;
  unsigned char *pinned;
  uint64_t *counts;
  void **rebound; /* by tensor: the caller's buffer, or NULL */
  uint32_t lease; /* odd while somebody holds the slot */
};

struct rondo_exec {
  uint64_t magic;
  rondo_runtime *runtime;
  const rondo_graph *graph; /* an identity only: the graph may be gone */
  uint32_t slot_count, next_slot;
  uint32_t lane;
  bool keeps_warm;
  uint32_t tensor_count, node_count;
  struct exec_tensor *tensors;
  struct device_node *nodes;
  struct operand_place (*places)[OP_MAX_OPERANDS]; /* of the nodes' operands */
  struct op_task *tasks;                           /* of the nodes, so that the graph may go */
  struct user_work *user_work;
  uint32_t *predecessors;
  char (*names)[NAME_BYTES];
  unsigned char *backend_memory;
  uint64_t backend_slot_bytes;
  void *host_memory;
  unsigned char *device_memory, *pinned_memory;
  uint64_t constant_bytes;
  uint64_t device_bytes, pinned_bytes, host_bytes, driver_bytes; /* what it takes */
  struct slot slots[RONDO_MAX_SLOTS];
};

#endif
