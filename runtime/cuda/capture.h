/* capture.h - work that a callback enqueues on a stream becomes nodes of a graph: see capture.c. The device's lock is
 * held. */
#pragma once

#include "cuda_device.h"

struct captured {
  size_t leaf_count; /* the nodes at the start of device->captured: after these the work is done */
  size_t node_count; /* of the graph after the capture */
};

/* Calls the task's callback once, while the lane's capture stream captures into the graph, after `dependencies`. A
 * broken capture destroys the graph; *graph is NULL then. */
rondo_status capture_into(struct device *device, const struct lane *lane, struct cu_graph **graph,
                          const struct device_node *node, struct cu_graph_node *const *dependencies,
                          size_t dependency_count, struct captured *captured);

/* Looks for captured nodes that a replay must not have. *forbidden is the kind of the first one, or NULL; *index is its
 * place among the graph's nodes. */
rondo_status capture_audit(struct device *device, struct cu_graph *graph, const char **forbidden, size_t *index);

/* Is the calling thread inside a callback of this device? */
bool cuda_in_callback(struct device *device);
