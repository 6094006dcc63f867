/* exec.c - checks of a call's exec, and of a tensor that is named to it. */
#include "exec.h"

rondo_status exec_check(const rondo_exec *exec, const char *function) {
  if (!exec) return status_set(RONDO_INVALID_ARGUMENT, "%s: the exec is NULL", function);
  if (exec->magic != exec_magic) return status_set(RONDO_INVALID_STATE, "%s: the exec is closed", function);
  if (!atomic_load_explicit(exec->opened_here, memory_order_relaxed)) return forked_status(function);
  return RONDO_OK;
}

rondo_status exec_check_outside(const rondo_exec *exec, const char *function) {
  rondo_status status = exec_check(exec, function);
  return status == RONDO_OK ? runtime_check_outside(exec->runtime, function) : status;
}

rondo_status exec_tensor_check(const rondo_exec *exec, rondo_tensor tensor, uint32_t kinds, bool views,
                               const char *expected, const char *function) {
  if (!tensor.serial) return status_set(RONDO_INVALID_ARGUMENT, "%s: the tensor is absent (all zeros)", function);
  if (tensor.serial != exec->graph_serial)
    return status_set(RONDO_INVALID_ARGUMENT, "%s: the tensor belongs to another graph than the exec's", function);
  if (tensor.index >= exec->tensor_count)
    return status_set(
        RONDO_INVALID_ARGUMENT,
        "%s: tensor %u was added to the graph after rondo_instantiate, when there were %u: instantiate it again",
        function, tensor.index, exec->tensor_count);
  const struct exec_tensor *place = &exec->tensors[tensor.index];
  bool is_view = place->root != tensor.index && !views;
  if (!is_view && (kinds >> place->kind & 1u)) return RONDO_OK;
  if (is_view)
    return status_set(RONDO_INVALID_ARGUMENT, "%s: the tensor is a view of %s '%s', expected the whole of %s", function,
                      tensor_kind_name(place->kind), place->name, expected);
  return status_set(RONDO_INVALID_ARGUMENT, "%s: tensor '%s' is of kind %s, expected %s", function, place->name,
                    tensor_kind_name(place->kind), expected);
}
