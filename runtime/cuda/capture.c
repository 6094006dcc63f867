/* capture.c - third-party stream work becomes nodes: the user's callback runs once, while a stream captures into the
 * graph being built. What it enqueued is then looked through: memory allocation and host callbacks would break the
 * promise that a replay allocates nothing and calls nobody, so they are refused by name. */
#include <string.h>

#include "cuda_device.h"

static const char *forbidden(int type) {
  switch (type) {
  case CU_NODE_HOST:
    return "a host callback";
  case CU_NODE_MEM_ALLOC:
    return "a memory allocation";
  case CU_NODE_MEM_FREE:
    return "a memory release";
  default:
    return NULL;
  }
}

/* Every node of the graph; Rondo's own are all allowed. device->captured is used from `used` on, child graphs go
 * deeper behind their parents' nodes. */
static rondo_status audit(struct device *device, struct cu_graph *graph, const char *task, size_t used) {
  const struct driver *driver = &device->driver;
  size_t count = 0;
  cu_result result = driver->cuGraphGetNodes(graph, NULL, &count);
  if (result != CU_SUCCESS) return device_failed(device, result, "instantiate: task '%s': cuGraphGetNodes", task);
  if (count > CAPTURE_NODE_LIMIT - used)
    return status_set(RONDO_UNSUPPORTED, "instantiate: task '%s': the graph has more than %d nodes", task,
                      CAPTURE_NODE_LIMIT);
  struct cu_graph_node **nodes = device->captured + used;
  result = driver->cuGraphGetNodes(graph, nodes, &count);
  if (result != CU_SUCCESS) return device_failed(device, result, "instantiate: task '%s': cuGraphGetNodes", task);
  for (size_t i = 0; i < count; i++) {
    int type = CU_NODE_EMPTY;
    result = driver->cuGraphNodeGetType(nodes[i], &type);
    if (result != CU_SUCCESS) return device_failed(device, result, "instantiate: task '%s': cuGraphNodeGetType", task);
    if (forbidden(type))
      return status_set(RONDO_UNSUPPORTED, "instantiate: task '%s': the callback enqueued %s, which no replay may do",
                        task, forbidden(type));
    if (type != CU_NODE_GRAPH) continue;
    struct cu_graph *child = NULL;
    result = driver->cuGraphChildGraphNodeGetGraph(nodes[i], &child);
    if (result != CU_SUCCESS)
      return device_failed(device, result, "instantiate: task '%s': cuGraphChildGraphNodeGetGraph", task);
    rondo_status status = audit(device, child, task, used + count);
    if (status != RONDO_OK) return status;
  }
  return RONDO_OK;
}

/* The nodes that the next work on the stream would wait for, kept at the start of device->captured. */
static rondo_status read_leaves(struct device *device, const char *task, size_t *leaf_count) {
  int capturing = 0;
  struct cu_graph_node *const *leaves = NULL;
  const struct cu_edge *edges = NULL;
  cu_result result = device->driver.cuStreamGetCaptureInfo(device->capture_stream, &capturing, NULL, NULL, &leaves,
                                                           &edges, leaf_count);
  if (result != CU_SUCCESS)
    return device_failed(device, result, "instantiate: task '%s': cuStreamGetCaptureInfo", task);
  if (capturing != CU_CAPTURE_ACTIVE)
    return status_set(RONDO_DEVICE_ERROR, "instantiate: task '%s': the callback broke the stream's capture", task);
  if (*leaf_count > CAPTURE_NODE_LIMIT)
    return status_set(RONDO_UNSUPPORTED, "instantiate: task '%s': more than %d nodes were captured", task,
                      CAPTURE_NODE_LIMIT);
  if (*leaf_count) memcpy(device->captured, leaves, *leaf_count * sizeof *leaves); /* of none, leaves may be NULL */
  return RONDO_OK;
}

rondo_status capture_into(struct device *device, struct cu_graph **graph, const struct device_node *node,
                          struct cu_graph_node *const *dependencies, size_t dependency_count, size_t *leaf_count) {
  const struct driver *driver = &device->driver;
  const struct user_work *work = node->user_work;
  const char *task = node->call.task->name;
  cu_result result = driver->cuStreamBeginCaptureToGraph(device->capture_stream, *graph, dependencies, NULL,
                                                         dependency_count, CU_CAPTURE_THREAD_LOCAL);
  if (result != CU_SUCCESS)
    return device_failed(device, result, "instantiate: task '%s': cuStreamBeginCaptureToGraph", task);
  int refused = work->capture(work->user, device->capture_stream, node->call.data);
  rondo_status status = RONDO_OK;
  if (refused)
    status = status_set(RONDO_DEVICE_ERROR, "instantiate: task '%s': the callback returned %d", task, refused);
  if (status == RONDO_OK) status = read_leaves(device, task, leaf_count);
  /* Ended in any case, or the stream would capture for ever. The driver destroys the graph of a broken capture. */
  struct cu_graph *ended = NULL;
  result = device_lost(device) ? CU_SUCCESS : driver->cuStreamEndCapture(device->capture_stream, &ended);
  if (result != CU_SUCCESS && !ended) *graph = NULL;
  if (status == RONDO_OK && result != CU_SUCCESS)
    status = device_failed(device, result, "instantiate: task '%s': cuStreamEndCapture", task);
  return status == RONDO_OK ? audit(device, *graph, task, *leaf_count) : status;
}
