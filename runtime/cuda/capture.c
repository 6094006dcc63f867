/* capture.c - see capture.h. The user's callback runs once, while a stream captures into the graph. Afterwards the
 * captured nodes are inspected. Memory allocation and host callbacks are refused by name, since a replay promises to
 * allocate nothing and to call no host function. */
#include "capture.h"

#include <string.h>

#include "cuda_failure.h"

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

/* Into device->captured from `used` on. */
static rondo_status list_nodes(struct device *device, struct cu_graph *graph, size_t used, size_t *count) {
  const struct driver *driver = &device->driver;
  cu_result result = driver->cuGraphGetNodes(graph, NULL, count);
  if (result == CU_SUCCESS && *count > CAPTURE_NODE_LIMIT - used)
    return status_set(RONDO_UNSUPPORTED, "instantiate: the graph with captured work has more than %d nodes: %zu",
                      CAPTURE_NODE_LIMIT, used + *count);
  if (result == CU_SUCCESS) result = driver->cuGraphGetNodes(graph, device->captured + used, count);
  return result == CU_SUCCESS ? RONDO_OK : device_failed(device, result, "instantiate: cuGraphGetNodes");
}

/* All nodes; those of Rondo are allowed. The nodes of a child graph are listed after those of its parent. */
static rondo_status audit(struct device *device, struct cu_graph *graph, size_t used, const char **found,
                          size_t *index) {
  const struct driver *driver = &device->driver;
  size_t count = 0;
  rondo_status status = list_nodes(device, graph, used, &count);
  for (size_t i = 0; i < count && status == RONDO_OK && !*found; i++) {
    struct cu_graph_node *node = device->captured[used + i];
    int type = CU_NODE_EMPTY;
    cu_result result = driver->cuGraphNodeGetType(node, &type);
    if (result != CU_SUCCESS) return device_failed(device, result, "instantiate: cuGraphNodeGetType");
    *found = forbidden(type);
    *index = i;
    if (type != CU_NODE_GRAPH) continue;
    struct cu_graph *child = NULL;
    size_t inside;
    result = driver->cuGraphChildGraphNodeGetGraph(node, &child);
    if (result != CU_SUCCESS) return device_failed(device, result, "instantiate: cuGraphChildGraphNodeGetGraph");
    status = audit(device, child, used + count, found, &inside);
  }
  return status;
}

rondo_status capture_audit(struct device *device, struct cu_graph *graph, const char **found, size_t *index) {
  return audit(device, graph, 0, found, index);
}

bool cuda_in_callback(struct device *device) { return atomic_load(&device->capturer) == (uintptr_t)pthread_self(); }

/* The nodes that the next work on the stream would wait for: to the start of device->captured. */
static rondo_status read_leaves(struct device *device, const struct lane *lane, const char *task, size_t *leaf_count) {
  int capturing = 0;
  struct cu_graph_node *const *leaves = NULL;
  const struct cu_edge *edges = NULL;
  cu_result result =
      device->driver.cuStreamGetCaptureInfo(lane->capture_stream, &capturing, NULL, NULL, &leaves, &edges, leaf_count);
  if (result != CU_SUCCESS)
    return device_failed(device, result, "instantiate: task '%s': cuStreamGetCaptureInfo", task);
  if (capturing != CU_CAPTURE_ACTIVE)
    return status_set(RONDO_DEVICE_ERROR, "instantiate: task '%s': the callback broke the stream's capture", task);
  if (*leaf_count > CAPTURE_NODE_LIMIT)
    return status_set(RONDO_UNSUPPORTED, "instantiate: task '%s': the callback captured more than %d nodes", task,
                      CAPTURE_NODE_LIMIT);
  if (*leaf_count) memcpy(device->captured, leaves, *leaf_count * sizeof *leaves); /* of none, leaves may be NULL */
  return RONDO_OK;
}

rondo_status capture_into(struct device *device, const struct lane *lane, struct cu_graph **graph,
                          const struct device_node *node, struct cu_graph_node *const *dependencies,
                          size_t dependency_count, struct captured *captured) {
  const struct driver *driver = &device->driver;
  const struct user_work *work = node->user_work;
  const char *task = node->call.task->name;
  cu_result result = driver->cuStreamBeginCaptureToGraph(lane->capture_stream, *graph, dependencies, NULL,
                                                         dependency_count, CU_CAPTURE_THREAD_LOCAL);
  if (result != CU_SUCCESS)
    return device_failed(device, result, "instantiate: task '%s': cuStreamBeginCaptureToGraph", task);
  atomic_store(&device->capturer, (uintptr_t)pthread_self());
  /* In the thread-local mode the driver refuses what would break the callback's own capture. NCCL's mode is relaxed:
   * its first call in a thread connects the ranks, by driver calls that the other mode refuses. */
  int mode = work->called_library ? CU_CAPTURE_RELAXED : CU_CAPTURE_THREAD_LOCAL;
  driver->cuThreadExchangeStreamCaptureMode(&mode);
  sigset_t ours;
  pthread_sigmask(SIG_SETMASK, &device->signals, &ours); /* the callback has the mask that the caller has */
  int refused = work->capture(work->user, lane->capture_stream, node->call.data);
  pthread_sigmask(SIG_SETMASK, &ours, NULL);
  driver->cuThreadExchangeStreamCaptureMode(&mode);
  atomic_store(&device->capturer, 0);
  rondo_status status = RONDO_OK;
  if (refused && work->called_library)
    status = status_set(RONDO_DEVICE_ERROR, "instantiate: task '%s': %s", task, rondo_error_text());
  else if (refused)
    status = status_set(RONDO_DEVICE_ERROR, "instantiate: task '%s': the callback returned %d", task, refused);
  if (status == RONDO_OK) status = read_leaves(device, lane, task, &captured->leaf_count);
  /* In any case, or the stream would capture for ever. The driver destroys the graph of a broken capture. */
  struct cu_graph *ended = NULL;
  result = device_lost(device) ? CU_SUCCESS : driver->cuStreamEndCapture(lane->capture_stream, &ended);
  if (result != CU_SUCCESS && !ended) *graph = NULL;
  if (status == RONDO_OK && result != CU_SUCCESS)
    status = device_failed(device, result, "instantiate: task '%s': cuStreamEndCapture", task);
  if (status != RONDO_OK) return status;
  result = driver->cuGraphGetNodes(*graph, NULL, &captured->node_count);
  return result == CU_SUCCESS ? RONDO_OK
                              : device_failed(device, result, "instantiate: task '%s': cuGraphGetNodes", task);
}
