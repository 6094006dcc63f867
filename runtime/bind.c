/* bind.c - see bind.h, and rondo_rebind. A binding gives new addresses to the nodes that touch the tensor, in the
 * executable graph of one slot. */
#include "bind.h"

#include <stdio.h>

#include "program.h"
#include "slot.h"

/* Gives each node that touches the tensor the address in slot->rebound. All slots share the nodes, and each slot may
 * have a thread of its own: hence the lock. */
static rondo_status nodes_rebind(rondo_exec *exec, struct slot *slot, uint32_t tensor) {
  rondo_status status = RONDO_OK;
  struct device_program program = program_of(exec, slot);
  pthread_mutex_lock(&exec->runtime->group->lock);
  for (uint32_t n = 0; n < exec->program.node_count && status == RONDO_OK; n++) {
    if (!program_touches(exec, n, tensor)) continue;
    program_address_node(exec, slot, n);
    status = exec->runtime->ops->exec_rebind(slot->device_exec, &program, n);
  }
  pthread_mutex_unlock(&exec->runtime->group->lock);
  return status;
}

static rondo_status tensor_bind(rondo_exec *exec, struct slot *slot, uint32_t tensor, void *memory) {
  void *before = slot->rebound[tensor];
  slot->rebound[tensor] = memory;
  rondo_status status = nodes_rebind(exec, slot, tensor);
  if (status == RONDO_OK) {
    slot->rebound_count += (memory ? 1u : 0) - (before ? 1u : 0);
    /* The buffer may have replaced a constant that was never uploaded. */
    if (!memory && exec->tensors[tensor].kind == TENSOR_CONSTANT) slot->constants_are_set = false;
    return RONDO_OK;
  }
  char cause[256];
  snprintf(cause, sizeof cause, "%s", rondo_error_text());
  slot->rebound[tensor] = before;
  /* If that fails too, some tasks have one address and some the other. */
  if (nodes_rebind(exec, slot, tensor) != RONDO_OK) return exec->runtime->ops->lose(exec->runtime->device, cause);
  return status_set(status, "%s", cause);
}

static rondo_status bind_check(const rondo_exec *exec, rondo_tensor tensor, const void *memory) {
  rondo_status status = exec_tensor_check(exec, tensor, ~(1u << TENSOR_TEMPORARY), false,
                                          "an input, output, constant or state", "rondo_rebind");
  if (status != RONDO_OK) return status;
  if ((uintptr_t)memory % POOL_ALIGNMENT)
    return status_set(RONDO_INVALID_ARGUMENT, "rondo_rebind: tensor '%s': the buffer %p is not aligned to %d bytes",
                      exec->tensors[tensor.index].name, memory, POOL_ALIGNMENT);
  for (uint32_t n = 0; n < exec->program.node_count; n++)
    if (exec->program.nodes[n].user_work && exec->program.nodes[n].user_work->capture &&
        program_touches(exec, n, tensor.index))
      return status_set(RONDO_UNSUPPORTED, "rondo_rebind: task '%s' captured the address of tensor '%s'",
                        exec->program.names[n], exec->tensors[tensor.index].name);
  return RONDO_OK;
}

rondo_status exec_unbind(rondo_exec *exec, struct slot *slot) {
  rondo_status status = RONDO_OK;
  for (uint32_t t = 0; slot->rebound_count && t < exec->tensor_count && status == RONDO_OK; t++)
    if (slot->rebound[t]) status = tensor_bind(exec, slot, t, NULL);
  return status;
}

rondo_status rondo_rebind(rondo_slot handle, rondo_tensor tensor, void *memory) {
  struct slot *slot = NULL;
  rondo_status status = slot_check(handle, "rondo_rebind", &slot);
  if (status != RONDO_OK) return status;
  if (!slot_done(slot)) return slot_in_flight(handle.exec, handle.index, "rondo_rebind");
  status = bind_check(handle.exec, tensor, memory);
  return status == RONDO_OK ? tensor_bind(handle.exec, slot, tensor.index, memory) : status;
}
