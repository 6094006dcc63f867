/* cuda_nodes.h - adds the nodes of a program to a graph that is being built: see cuda_graph.c. */
#pragma once

#include "cuda_device.h"

/* The node after which a task is done. */
struct exit {
  struct cu_graph_node *node;
  bool is_own_kernel;
  bool is_awaited;     /* by another node of the program */
  uint32_t node_count; /* of the graph once the task was captured; 0: it was not */
};

/* The predecessors of the node that is being added, and the kinds of its edges. */
struct waits {
  struct cu_graph_node **nodes;
  struct cu_edge *edges;
  size_t count;
};

/* One instantiation in progress. The arrays have an entry for each node of the program. */
struct build {
  struct device *device;
  const struct device_program *program;
  struct device_exec *exec;
  struct cu_graph *graph; /* to which nodes are added */
  const char *part;       /* for errors: "" in the graph of one replay, else the option that wants another */
  struct exit *exits;
  struct waits waits;  /* of the node that is being added */
  const void **images; /* of exec->libraries */
  struct exit begin;   /* a node before all others, if there is one */
  bool has_captures;
  uint64_t *updatable; /* the handles of the kernels in a resident graph's body; NULL in other graphs */
  uint32_t updatable_count;
  uint32_t word_count; /* of completion, by the nodes that end the graph; 0: a node after them publishes it */
  uint32_t end_count;  /* of those nodes */
};

rondo_status build_failed(const struct build *build, cu_result result, const char *task, const char *function);

/* One more predecessor of the next node. */
void build_wait_for(struct build *build, const struct exit *before, bool is_own_kernel);
/* Adds a node of the program, after its predecessors. */
rondo_status build_node(struct build *build, uint32_t index);
/* Adds a kernel that belongs to no task, after build->waits. Errors name the kernel. */
rondo_status build_extra_kernel(struct build *build, struct op_launch *launch, struct exit *exit);
