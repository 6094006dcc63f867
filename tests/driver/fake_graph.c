/* fake_graph.c - graphs: nodes and their edges, checked as the driver checks them and a little more, and executable
 * graphs, which are flat copies. */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

enum { MOST_THREADS = 1024, MOST_GRID_YZ = 65535, EDGE_TYPE_PROGRAMMATIC = 1, PORTABLE_CLUSTER = 8 };

/* ---- Graphs ------------------------------------------------------------------------------------------------------ */

struct graph *graph_new(bool is_child) {
  struct graph *graph = calloc(1, sizeof *graph);
  if (!graph) abort();
  static uint64_t last_number;
  graph->number = ++last_number;
  graph->is_child = is_child;
  graph->handle = object_create(GRAPH, graph);
  return graph;
}

void graph_free(struct graph *graph) {
  for (uint32_t i = 0; i < graph->node_count; i++) {
    struct node *node = graph->nodes[i];
    if (node->child) graph_free(node->child);
    object_end(node->handle);
    free(node->dependencies);
    free(node);
  }
  for (struct condition *condition = graph->conditions, *next; condition; condition = next) {
    next = condition->next;
    object_end(condition->handle);
    free(condition);
  }
  object_end(graph->handle);
  free(graph->nodes);
  free(graph);
}

struct node *graph_append(struct graph *graph, const struct node_work *work, struct node *const *dependencies,
                          size_t count) {
  if (graph->node_count == graph->node_room) {
    graph->node_room = graph->node_room ? 2 * graph->node_room : 16;
    graph->nodes = realloc(graph->nodes, graph->node_room * sizeof(struct node *));
    if (!graph->nodes) abort();
  }
  struct node *node = calloc(1, sizeof *node);
  struct node **copy = malloc((count + 1) * sizeof(struct node *));
  if (!node || !copy) abort();
  for (size_t i = 0; i < count; i++) copy[i] = dependencies[i];
  *node = (struct node){.graph = graph,
                        .index = graph->node_count,
                        .work = *work,
                        .dependency_count = (uint32_t)count,
                        .dependencies = copy};
  node->handle = object_create(NODE, node);
  graph->nodes[graph->node_count++] = node;
  return node;
}

struct graph *graph_clone(const struct graph *from) {
  struct graph *graph = graph_new(true);
  for (uint32_t n = 0; n < from->node_count; n++) {
    const struct node *node = from->nodes[n];
    struct node **dependencies = calloc(node->dependency_count + 1u, sizeof(struct node *));
    if (!dependencies) abort();
    for (uint32_t i = 0; i < node->dependency_count; i++) dependencies[i] = graph->nodes[node->dependencies[i]->index];
    struct node *copy = graph_append(graph, &node->work, dependencies, node->dependency_count);
    if (node->child) copy->child = graph_clone(node->child);
    free(dependencies);
  }
  return graph;
}

cu_result fake_cuGraphCreate(struct cu_graph **graph, unsigned flags) {
  CALL(cuGraphCreate);
  if (flags) return CU_INVALID_VALUE;
  *graph = graph_new(false)->handle;
  return CU_SUCCESS;
}

cu_result fake_cuGraphDestroy(struct cu_graph *handle) {
  ENDING_CALL(cuGraphDestroy);
  struct graph *graph = object_body(handle, GRAPH, "cuGraphDestroy");
  if (!graph) return CU_INVALID_HANDLE;
  if (graph->is_child) {
    violation("cuGraphDestroy of a child graph");
    return CU_INVALID_VALUE;
  }
  for (struct stream *stream = fake.streams; stream; stream = stream->next)
    if (stream->capture != CAPTURE_NONE && stream->graph == graph) violation("cuGraphDestroy while it is captured to");
  graph_free(graph);
  return call.later;
}

/* ---- Adding a node ----------------------------------------------------------------------------------------------- */

static bool is_zero(const void *memory, size_t bytes) {
  const unsigned char *byte = memory;
  for (size_t i = 0; i < bytes; i++)
    if (byte[i]) return false;
  return true;
}

/* "Any unused bytes must be set to zero." */
static bool unused_bytes_are_zero(const struct cu_node_parameters *parameters) {
  const unsigned char *bytes = (const unsigned char *)parameters;
  size_t begin = offsetof(struct cu_node_parameters, padding);
  if (parameters->type == CU_NODE_KERNEL) begin += sizeof(struct cu_kernel_node);
  if (parameters->type == CU_NODE_GRAPH) begin += sizeof(struct cu_child_node);
  if (parameters->type == CU_NODE_CONDITIONAL) begin += sizeof(struct cu_conditional_node);
  return is_zero(parameters->reserved0, sizeof parameters->reserved0) &&
         is_zero(bytes + begin, sizeof *parameters - begin);
}

static cu_result kernel_work(const struct cu_kernel_node *given, struct node_work *work) {
  if (given->function || given->extra) {
    violation("cuGraphAddNode: the fake knows kernels only by handle, with separate parameters");
    return CU_INVALID_VALUE;
  }
  struct kernel *kernel = object_body(given->kernel, KERNEL, "cuGraphAddNode");
  if (!kernel) return CU_INVALID_HANDLE;
  if (!given->context && !context_is_current("cuGraphAddNode")) return (cu_result)FAKE_INVALID_CONTEXT;
  const void *context = given->context ? given->context : gpu_current()->context;
  work->multiprocessors = context_multiprocessors(context, "cuGraphAddNode");
  if (!work->multiprocessors) return (cu_result)FAKE_INVALID_CONTEXT;
  const uint32_t *grid = given->grid, *block = given->block;
  uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
  if (threads == 0 || threads > MOST_THREADS || block[2] > 64) return CU_INVALID_VALUE;
  if (!grid[0] || !grid[1] || !grid[2] || grid[0] > INT32_MAX || grid[1] > MOST_GRID_YZ || grid[2] > MOST_GRID_YZ)
    return CU_INVALID_VALUE;
  if (given->shared_bytes > (uint32_t)kernel->dynamic_shared_bytes) return CU_INVALID_VALUE;
  if (kernel->cluster_width > PORTABLE_CLUSTER && !kernel->non_portable) return (cu_result)FAKE_INVALID_CLUSTER_SIZE;
  if (!kernel->loaded && fake.func_load_found)
    violation("cuGraphAddNode: %s is not loaded: the first replay would load it", kernel->code->name);
  work->gpu = gpu_of_context(context, "cuGraphAddNode");
  work->code = kernel->code;
  memcpy(work->grid, given->grid, sizeof work->grid);
  memcpy(work->block, given->block, sizeof work->block);
  work->shared_bytes = given->shared_bytes;
  for (uint32_t i = 0; i < kernel->code->parameter_count; i++)
    memcpy(work->values + kernel_parameter_offset(kernel->code, i), given->parameters[i],
           kernel->code->parameter_bytes[i]);
  for (size_t i = 0; i < sizeof work->values; i += sizeof(uint64_t)) {
    uint64_t word; /* perhaps an address */
    memcpy(&word, work->values + i, sizeof word);
    if (memory_is_apart(work->gpu, word))
      violation("cuGraphAddNode: %s gets memory that its device does not reach", kernel->code->name);
  }
  return CU_SUCCESS;
}

/* ---- Loops ------------------------------------------------------------------------------------------------------- */

cu_result fake_cuGraphConditionalHandleCreate(uint64_t *handle, struct cu_graph *graph_handle,
                                              struct cu_context *context, unsigned value, unsigned flags) {
  CALL(cuGraphConditionalHandleCreate);
  struct graph *graph = object_body(graph_handle, GRAPH, "cuGraphConditionalHandleCreate");
  if (!graph) return CU_INVALID_HANDLE;
  if (flags > CU_CONDITION_ASSIGN_DEFAULT) return CU_INVALID_VALUE;
  if (!context && !context_is_current("cuGraphConditionalHandleCreate")) return (cu_result)FAKE_INVALID_CONTEXT;
  const void *of = context ? context : gpu_current()->context;
  if (!context_multiprocessors(of, "cuGraphConditionalHandleCreate")) return (cu_result)FAKE_INVALID_CONTEXT;
  struct condition *condition = calloc(1, sizeof *condition);
  if (!condition) abort();
  *condition = (struct condition){.handle = object_create(CONDITION, condition),
                                  .graph = graph,
                                  .context = of,
                                  .is_assigned = flags == CU_CONDITION_ASSIGN_DEFAULT,
                                  .initial = value,
                                  .next = graph->conditions};
  graph->conditions = condition;
  *handle = (uintptr_t)condition->handle;
  return CU_SUCCESS;
}

/* Rondo's only conditional node. */
static cu_result loop_work(const struct graph *graph, const struct cu_conditional_node *given, struct node_work *work) {
  struct condition *condition = object_body((void *)(uintptr_t)given->handle, CONDITION, "cuGraphAddNode");
  if (!condition) return CU_INVALID_VALUE;
  if (given->type != CU_CONDITION_WHILE || given->size != 1) return CU_INVALID_VALUE;
  if (condition->graph != graph || condition->has_node) {
    violation("cuGraphAddNode: the conditional handle is another graph's, or another node's");
    return CU_INVALID_VALUE;
  }
  if (condition->context != (given->context ? given->context : gpu_current()->context)) {
    violation("cuGraphAddNode: the loop's context is not its handle's");
    return CU_INVALID_VALUE;
  }
  condition->has_node = true;
  work->condition = condition;
  return CU_SUCCESS;
}

/* A body has kernels of the loop's context, empty nodes, and other nodes that Rondo does not add. */
static cu_result check_body(const struct graph *graph, const struct cu_node_parameters *parameters) {
  const void *context = parameters->kernel.context ? parameters->kernel.context : gpu_current()->context;
  if (parameters->type != CU_NODE_KERNEL || context == graph->loop->context) return CU_SUCCESS;
  violation("cuGraphAddNode: the context of a loop's kernel is not the loop's");
  return CU_INVALID_VALUE;
}

/* The graph that the node gets a copy of. */
static cu_result child_work(const struct graph *graph, const struct cu_child_node *given, struct graph **child) {
  *child = object_body(given->graph, GRAPH, "cuGraphAddNode");
  if (!*child) return CU_INVALID_HANDLE;
  if (*child != graph && !(*child)->conditions && !given->ownership) return CU_SUCCESS;
  violation("cuGraphAddNode: the child is the graph itself, has a loop or is given away");
  return CU_INVALID_VALUE;
}

static void add_body(struct node *node, struct cu_conditional_node *given) {
  node->child = graph_new(true);
  node->child->loop = node->work.condition;
  node->bodies[0] = node->child->handle;
  given->bodies = node->bodies;
}

void condition_set(uint64_t handle, uint32_t value) {
  pthread_mutex_lock(&fake.lock);
  struct condition *condition = object_body((void *)(uintptr_t)handle, CONDITION, "cudaGraphSetConditional");
  if (condition) condition->value = value;
  pthread_mutex_unlock(&fake.lock);
}

/* ---- Kernels that others turn off and on ------------------------------------------------------------------------- */

static cu_result attribute_check(const struct node *node, int attribute, const char *function) {
  if (!node) return CU_INVALID_HANDLE;
  if (attribute == CU_NODE_ATTRIBUTE_DEVICE_UPDATABLE && node->work.type == CU_NODE_KERNEL) return CU_SUCCESS;
  violation("%s: the fake has no attribute %d of a node of type %d", function, attribute, node->work.type);
  return CU_INVALID_VALUE;
}

cu_result fake_cuGraphKernelNodeSetAttribute(struct cu_graph_node *handle, int attribute,
                                             const struct cu_node_attribute *value) {
  CALL(cuGraphKernelNodeSetAttribute);
  struct node *node = object_body(handle, NODE, "cuGraphKernelNodeSetAttribute");
  cu_result result = attribute_check(node, attribute, "cuGraphKernelNodeSetAttribute");
  if (result != CU_SUCCESS) return result;
  if (value->is_updatable != 1) return CU_INVALID_VALUE; /* documented: it cannot be taken back */
  node->work.is_off = &node->is_off;
  return CU_SUCCESS;
}

cu_result fake_cuGraphKernelNodeGetAttribute(struct cu_graph_node *handle, int attribute,
                                             struct cu_node_attribute *value) {
  CALL(cuGraphKernelNodeGetAttribute);
  const struct node *node = object_body(handle, NODE, "cuGraphKernelNodeGetAttribute");
  cu_result result = attribute_check(node, attribute, "cuGraphKernelNodeGetAttribute");
  if (result != CU_SUCCESS) return result;
  value->is_updatable = node->work.is_off != NULL;
  value->handle = value->is_updatable ? (uintptr_t)node->handle : 0;
  return CU_SUCCESS;
}

void node_enable(uint64_t handle, bool on) {
  pthread_mutex_lock(&fake.lock);
  struct node *node = object_body((void *)(uintptr_t)handle, NODE, "cudaGraphKernelNodeSetEnabled");
  if (node && !node->work.is_off) violation("cudaGraphKernelNodeSetEnabled: the node is not for kernels to change");
  if (node && on != node->is_off) violation("cudaGraphKernelNodeSetEnabled: the node is already %s", on ? "on" : "off");
  if (node) node->is_off = !on;
  pthread_mutex_unlock(&fake.lock);
}

/* ---- Edges ------------------------------------------------------------------------------------------------------- */

static cu_result check_edge(const struct cu_edge *edge, int32_t to_type, const struct node *from) {
  if (edge->to_port || !is_zero(edge->reserved, sizeof edge->reserved) || edge->type > EDGE_TYPE_PROGRAMMATIC)
    return CU_INVALID_VALUE;
  if (edge->type == EDGE_TYPE_PROGRAMMATIC) {
    bool kernels = from->work.type == CU_NODE_KERNEL && to_type == CU_NODE_KERNEL;
    return kernels && (edge->from_port == 1 || edge->from_port == 2) ? CU_SUCCESS : CU_INVALID_VALUE;
  }
  return edge->from_port == 0 ? CU_SUCCESS : CU_INVALID_VALUE;
}

/* Handles to nodes of this graph, each once. */
static cu_result find_dependencies(const struct graph *graph, struct cu_graph_node *const *handles, size_t count,
                                   struct node **nodes) {
  for (size_t i = 0; i < count; i++) {
    nodes[i] = object_body(handles[i], NODE, "cuGraphAddNode");
    if (!nodes[i]) return CU_INVALID_HANDLE;
    bool twice = false;
    for (size_t j = 0; j < i; j++) twice = twice || nodes[j] == nodes[i];
    if (twice) violation("cuGraphAddNode: a dependency is named twice");
    if (nodes[i]->graph != graph) violation("cuGraphAddNode: a dependency is in another graph");
    if (twice || nodes[i]->graph != graph) return CU_INVALID_VALUE;
  }
  return CU_SUCCESS;
}

cu_result fake_cuGraphAddNode(struct cu_graph_node **node, struct cu_graph *handle,
                              struct cu_graph_node *const *dependencies, const struct cu_edge *edges, size_t count,
                              struct cu_node_parameters *parameters) {
  CALL(cuGraphAddNode);
  struct graph *graph = object_body(handle, GRAPH, "cuGraphAddNode");
  if (!graph) return handle ? CU_INVALID_HANDLE : CU_INVALID_VALUE;
  if (!unused_bytes_are_zero(parameters)) {
    violation("cuGraphAddNode: an unused byte is not zero");
    return CU_INVALID_VALUE;
  }
  struct node_work work = {.type = parameters->type};
  struct graph *child = NULL;
  cu_result result = CU_SUCCESS;
  if (work.type == CU_NODE_KERNEL)
    result = kernel_work(&parameters->kernel, &work);
  else if (work.type == CU_NODE_CONDITIONAL)
    result = loop_work(graph, &parameters->conditional, &work);
  else if (work.type == CU_NODE_GRAPH)
    result = child_work(graph, &parameters->child, &child);
  else if (work.type != CU_NODE_EMPTY)
    result = CU_INVALID_VALUE; /* Rondo adds no others; captured ones come from fake_enqueue */
  if (graph->loop && result == CU_SUCCESS) result = check_body(graph, parameters);
  struct node **nodes = calloc(count + 1, sizeof(struct node *));
  if (!nodes) abort();
  if (result == CU_SUCCESS) result = find_dependencies(graph, dependencies, count, nodes);
  for (size_t i = 0; edges && i < count && result == CU_SUCCESS; i++)
    result = check_edge(&edges[i], work.type, nodes[i]);
  for (size_t i = 0; edges && i < count && result == CU_SUCCESS; i++)
    fake.programmatic_edges += edges[i].type == EDGE_TYPE_PROGRAMMATIC;
  if (result == CU_SUCCESS) {
    struct node *added = graph_append(graph, &work, nodes, count);
    if (work.condition) add_body(added, &parameters->conditional);
    if (child) added->child = graph_clone(child);
    *node = added->handle;
  }
  free(nodes);
  return result;
}

/* ---- Questions --------------------------------------------------------------------------------------------------- */

cu_result fake_cuGraphGetNodes(struct cu_graph *handle, struct cu_graph_node **nodes, size_t *count) {
  CALL(cuGraphGetNodes);
  struct graph *graph = object_body(handle, GRAPH, "cuGraphGetNodes");
  if (!graph) return CU_INVALID_HANDLE;
  if (nodes) {
    /* Documented: what is left of a larger array is set to NULL. */
    for (size_t i = 0; i < *count; i++) nodes[i] = i < graph->node_count ? graph->nodes[i]->handle : NULL;
    if (*count > graph->node_count) *count = graph->node_count;
  } else {
    *count = graph->node_count;
  }
  return CU_SUCCESS;
}

cu_result fake_cuGraphNodeGetType(struct cu_graph_node *handle, int *type) {
  CALL(cuGraphNodeGetType);
  struct node *node = object_body(handle, NODE, "cuGraphNodeGetType");
  if (!node) return CU_INVALID_HANDLE;
  *type = node->work.type;
  return CU_SUCCESS;
}

cu_result fake_cuGraphChildGraphNodeGetGraph(struct cu_graph_node *handle, struct cu_graph **graph) {
  CALL(cuGraphChildGraphNodeGetGraph);
  struct node *node = object_body(handle, NODE, "cuGraphChildGraphNodeGetGraph");
  if (!node) return CU_INVALID_HANDLE;
  if (!node->child) return CU_INVALID_VALUE;
  *graph = node->child->handle;
  return CU_SUCCESS;
}

/* ---- Executable graphs ------------------------------------------------------------------------------------------- */

static uint32_t exec_append(struct exec *exec, const struct node_work *work, const uint32_t *dependencies,
                            uint32_t count) {
  if (exec->node_count == exec->node_room) {
    exec->node_room = exec->node_room ? 2 * exec->node_room : 16;
    struct exec_node *nodes = aligned_alloc(64, exec->node_room * sizeof *nodes);
    if (!nodes) abort();
    if (exec->node_count) memcpy(nodes, exec->nodes, exec->node_count * sizeof *nodes);
    free(exec->nodes);
    exec->nodes = nodes;
  }
  uint32_t *copy = malloc((count + 1) * sizeof *copy);
  if (!copy) abort();
  for (uint32_t i = 0; i < count; i++) copy[i] = dependencies[i];
  exec->waits = exec->waits || (work->code && work->code->has_come);
  exec->nodes[exec->node_count] = (struct exec_node){.work = *work, .dependency_count = count, .dependencies = copy};
  return exec->node_count++;
}

/* Appends a graph's nodes after `entry` (the node that stands for its beginning, UINT32_MAX: none). A child graph, or a
 * loop's body, is its nodes, and then an empty one after all of them. */
static void flatten(struct exec *exec, const struct graph *graph, uint32_t entry, uint32_t *index_of_last) {
  uint32_t *index = calloc(graph->node_count + 1u, sizeof *index);
  uint32_t *dependencies = calloc(graph->node_count + 1u, sizeof *dependencies);
  if (!index || !dependencies) abort();
  const struct node_work nothing = {.type = CU_NODE_EMPTY};
  for (uint32_t n = 0; n < graph->node_count; n++) {
    const struct node *node = graph->nodes[n];
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->dependency_count; i++) dependencies[count++] = index[node->dependencies[i]->index];
    if (count == 0 && entry != UINT32_MAX) dependencies[count++] = entry;
    if (node->work.is_off && node->was_instantiated)
      violation("cuGraphInstantiateWithParams: twice with a node for kernels to change");
    graph->nodes[n]->was_instantiated = true;
    index[n] = exec_append(exec, &node->work, dependencies, count);
    exec->nodes[index[n]].source = node->handle;
    if (!node->child) continue;
    const uint32_t before = index[n];
    flatten(exec, node->child, before, &index[n]);
    if (!node->work.condition) continue;
    exec->nodes[before].first = before + 1;
    exec->nodes[before].last = index[n];
    exec->nodes[index[n]].first = before + 1;
    exec->nodes[index[n]].loop = node->work.condition;
  }
  if (index_of_last) *index_of_last = exec_append(exec, &nothing, index, graph->node_count);
  free(dependencies);
  free(index);
}

void exec_free(struct exec *exec) {
  for (uint32_t i = 0; i < exec->node_count; i++) free(exec->nodes[i].dependencies);
  free(exec->nodes);
  item_free(exec->spare);
  exec->gpu->bytes_used -= exec->device_bytes;
  object_end(exec->handle);
  free(exec);
}

cu_result fake_cuGraphInstantiateWithParams(struct cu_graph_exec **handle, struct cu_graph *graph_handle,
                                            struct cu_instantiate_parameters *parameters) {
  CALL(cuGraphInstantiateWithParams);
  if (capture_forbids_waiting(NULL, "cuGraphInstantiateWithParams")) return CU_CAPTURE_UNSUPPORTED;
  struct graph *graph = object_body(graph_handle, GRAPH, "cuGraphInstantiateWithParams");
  if (!graph) return CU_INVALID_HANDLE;
  parameters->error_node = NULL;
  parameters->result = 0;
  if (parameters->flags != CU_INSTANTIATE_UPLOAD) {
    violation("cuGraphInstantiateWithParams: the first replay would upload the graph");
    return CU_INVALID_VALUE;
  }
  const struct stream *stream = object_body(parameters->upload_stream, STREAM, "cuGraphInstantiateWithParams");
  if (!stream) return CU_INVALID_HANDLE;
  for (const struct condition *condition = graph->conditions; condition; condition = condition->next)
    if (!condition->has_node) violation("cuGraphInstantiateWithParams: a conditional handle has no node");
  struct exec *exec = calloc(1, sizeof *exec);
  if (!exec) abort();
  exec->gpu = stream->gpu;
  flatten(exec, graph, UINT32_MAX, NULL);
  for (uint32_t n = 0; n < exec->node_count; n++)
    if (exec->nodes[n].work.code && exec->nodes[n].work.gpu != exec->gpu)
      violation("cuGraphInstantiateWithParams: a kernel's context is another device's than the stream's");
  exec->spare = launch_item_new(exec);
  exec->device_bytes = (uint64_t)exec->node_count * EXEC_NODE_BYTES;
  exec->gpu->bytes_used += exec->device_bytes;
  exec->handle = object_create(EXEC, exec);
  *handle = exec->handle;
  return CU_SUCCESS;
}

cu_result fake_cuGraphExecKernelNodeSetParams(struct cu_graph_exec *handle, struct cu_graph_node *node_handle,
                                              const struct cu_kernel_node *parameters) {
  CALL(cuGraphExecKernelNodeSetParams);
  struct exec *exec = object_body(handle, EXEC, "cuGraphExecKernelNodeSetParams");
  if (!exec || !object_body(node_handle, NODE, "cuGraphExecKernelNodeSetParams")) return CU_INVALID_HANDLE;
  if (exec->in_flight) violation("cuGraphExecKernelNodeSetParams while the graph is in flight");
  for (uint32_t n = 0; n < exec->node_count; n++) {
    struct exec_node *node = &exec->nodes[n];
    if (node->source != node_handle) continue;
    struct node_work work = {.type = CU_NODE_KERNEL};
    cu_result result = node->work.type == CU_NODE_KERNEL ? kernel_work(parameters, &work) : CU_INVALID_VALUE;
    if (result == CU_SUCCESS && work.multiprocessors != node->work.multiprocessors) {
      violation("cuGraphExecKernelNodeSetParams: the node's context cannot change");
      result = CU_INVALID_VALUE;
    }
    if (result == CU_SUCCESS) node->work = work;
    return result;
  }
  return CU_INVALID_VALUE;
}

cu_result fake_cuGraphExecDestroy(struct cu_graph_exec *handle) {
  ENDING_CALL(cuGraphExecDestroy);
  if (capture_forbids_waiting(NULL, "cuGraphExecDestroy")) return CU_CAPTURE_UNSUPPORTED;
  struct exec *exec = object_body(handle, EXEC, "cuGraphExecDestroy");
  if (!exec) return CU_INVALID_HANDLE;
  if (exec->in_flight) {
    /* A real driver destroys it when it is done; but Rondo then gives its memory to somebody else. */
    violation("cuGraphExecDestroy while the graph is in flight");
    return CU_INVALID_VALUE;
  }
  exec_free(exec);
  return call.later;
}
