/* cuda_nodes.c - see cuda_nodes.h. Kernels are loaded and shared memory is opted into here, since both may allocate and
 * synchronise at a first launch. */
#include "cuda_nodes.h"

#include <string.h>

#include "../kernels.h"
#include "capture.h"
#include "cuda_failure.h"
#include "images.h"
#include "launches.h"

rondo_status build_failed(const struct build *build, cu_result result, const char *task, const char *function) {
  return device_failed(build->device, result, "instantiate: %stask '%s': %s", build->part, task, function);
}

/* ---- Kernel nodes ------------------------------------------------------------------------------------------------ */

static rondo_status add_node(const struct build *build, const char *task, struct cu_node_parameters *parameters,
                             const struct waits *waits, struct exit *exit) {
  cu_result result = build->device->driver.cuGraphAddNode(&exit->node, build->graph, waits->nodes, waits->edges,
                                                          waits->count, parameters);
  return result == CU_SUCCESS ? RONDO_OK : build_failed(build, result, task, "cuGraphAddNode");
}

/* The edge from one of Rondo's own kernels to another is programmatic: see kernels/common/launch.cuh. */
static struct cu_edge edge_from(const struct build *build, const struct exit *exit, bool to_own_kernel) {
  bool overlaps = exit->is_own_kernel && to_own_kernel && build->device->kernels_overlap;
  return overlaps ? (struct cu_edge){.from_port = CU_PORT_PROGRAMMATIC, .type = CU_EDGE_PROGRAMMATIC}
                  : (struct cu_edge){0};
}

/* One more predecessor of the next node. */
void build_wait_for(struct build *build, const struct exit *before, bool is_own_kernel) {
  struct waits *waits = &build->waits;
  waits->nodes[waits->count] = before->node;
  waits->edges[waits->count++] = edge_from(build, before, is_own_kernel);
}

/* The opt-in to more shared memory belongs to the kernel, so it only ever grows. Less than 48 KB may need one too, as
 * static shared memory counts: the kernel's attribute says how much it may have. */
static rondo_status allow_shared_memory(const struct build *build, const char *task, struct cu_kernel *kernel,
                                        uint32_t shared_bytes) {
  const struct driver *driver = &build->device->driver;
  const int32_t ordinal = build->device->ordinal;
  int opted_in = 0;
  if (!shared_bytes) return RONDO_OK;
  cu_result result =
      driver->cuKernelGetAttribute(&opted_in, CU_KERNEL_ATTRIBUTE_MAX_DYNAMIC_SHARED_BYTES, kernel, ordinal);
  if (result != CU_SUCCESS) return build_failed(build, result, task, "cuKernelGetAttribute");
  if ((uint32_t)opted_in >= shared_bytes) return RONDO_OK;
  result =
      driver->cuKernelSetAttribute(CU_KERNEL_ATTRIBUTE_MAX_DYNAMIC_SHARED_BYTES, (int)shared_bytes, kernel, ordinal);
  if (result == CU_SUCCESS) return RONDO_OK;
  return device_failed(build->device, result, "instantiate: task '%s': %u bytes of shared memory: cuKernelSetAttribute",
                       task, shared_bytes);
}

/* Each chip can run clusters of eight blocks. A kernel with larger clusters needs an attribute
 * (CUDA driver API, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED). */
static rondo_status allow_clusters(const struct build *build, const char *task, struct cu_kernel *kernel) {
  enum { PORTABLE_WIDTH = 8 };
  const struct driver *driver = &build->device->driver;
  const int32_t ordinal = build->device->ordinal;
  int width = 0;
  cu_result result = driver->cuKernelGetAttribute(&width, CU_KERNEL_ATTRIBUTE_CLUSTER_WIDTH, kernel, ordinal);
  if (result != CU_SUCCESS) return build_failed(build, result, task, "cuKernelGetAttribute");
  if (width <= PORTABLE_WIDTH) return RONDO_OK;
  result = driver->cuKernelSetAttribute(CU_KERNEL_ATTRIBUTE_NON_PORTABLE_CLUSTER, 1, kernel, ordinal);
  if (result == CU_SUCCESS) return RONDO_OK;
  return device_failed(build->device, result, "instantiate: task '%s': clusters of %d blocks: cuKernelSetAttribute",
                       task, width);
}

/* Kernels are loaded lazily and may then allocate and synchronise: now, not in a replay. */
static rondo_status prepare_kernel(const struct build *build, const char *task, struct cu_kernel *kernel,
                                   uint32_t shared_bytes) {
  const struct driver *driver = &build->device->driver;
  cu_result result = CU_SUCCESS;
  if (driver->cuFuncLoad) {
    struct cu_function *function = NULL;
    result = driver->cuKernelGetFunction(&function, kernel);
    if (result != CU_SUCCESS) return build_failed(build, result, task, "cuKernelGetFunction");
    result = driver->cuFuncLoad(function);
    if (result != CU_SUCCESS) return build_failed(build, result, task, "cuFuncLoad");
  }
  rondo_status status = allow_clusters(build, task, kernel);
  return status == RONDO_OK ? allow_shared_memory(build, task, kernel, shared_bytes) : status;
}

/* The driver gets the addresses of parameters, without their number and sizes. So both are compared with those that the
 * kernel has. Rondo's own kernels take one struct. */
static rondo_status check_own_parameters(const struct build *build, const char *task, const struct op_launch *launch,
                                         struct cu_kernel *kernel) {
  size_t offset = 0, bytes = 0;
  if (!build->device->driver.cuKernelGetParamInfo) return RONDO_OK;
  cu_result result = build->device->driver.cuKernelGetParamInfo(kernel, 0, &offset, &bytes);
  if (result != CU_SUCCESS) return build_failed(build, result, task, "cuKernelGetParamInfo");
  if (bytes == launch->parameter_bytes) return RONDO_OK;
  return status_set(RONDO_INTERNAL,
                    "instantiate: task '%s': the parameters of kernel '%s' have %zu byte%s, expected %u", task,
                    launch->kernel, bytes, PLURAL(bytes), launch->parameter_bytes);
}

static rondo_status check_user_parameters(const struct build *build, const char *task, const struct user_work *work,
                                          struct cu_kernel *kernel) {
  const struct driver *driver = &build->device->driver;
  const char *function = work->function;
  uint32_t count = work->argument_count;
  for (uint32_t i = 0; driver->cuKernelGetParamInfo && i <= count; i++) {
    size_t offset = 0, found = 0, expected = i < count && work->argument_bytes[i] ? work->argument_bytes[i] : 8;
    cu_result result = driver->cuKernelGetParamInfo(kernel, i, &offset, &found);
    bool exists = result == CU_SUCCESS;
    if (!exists && result != CU_INVALID_VALUE) return build_failed(build, result, task, "cuKernelGetParamInfo");
    if (!exists && i < count)
      return status_set(RONDO_INVALID_ARGUMENT, "instantiate: task '%s': kernel '%s' has %u parameter%s, expected %u",
                        task, function, i, PLURAL(i), count);
    if (exists && i == count)
      return status_set(RONDO_INVALID_ARGUMENT, "instantiate: task '%s': kernel '%s' has more than %u parameter%s",
                        task, function, count, PLURAL(count));
    if (exists && found != expected)
      return status_set(RONDO_INVALID_ARGUMENT,
                        "instantiate: task '%s': parameter %u of kernel '%s' has %zu byte%s, expected %zu", task, i,
                        function, found, PLURAL(found), expected);
  }
  return RONDO_OK;
}

/* The doorbell's kernel turns it off and on. */
static rondo_status make_updatable(struct build *build, const char *task, struct cu_kernel *kernel,
                                   struct cu_graph_node *node) {
  const struct driver *driver = &build->device->driver;
  struct cu_node_attribute attribute = {.is_updatable = 1};
  int width = 0;
  cu_result result =
      driver->cuKernelGetAttribute(&width, CU_KERNEL_ATTRIBUTE_CLUSTER_WIDTH, kernel, build->device->ordinal);
  if (result != CU_SUCCESS) return build_failed(build, result, task, "cuKernelGetAttribute");
  if (width > 1)
    return status_set(RONDO_UNSUPPORTED,
                      "instantiate: task '%s': its kernel runs in clusters of %d blocks, and a resident exec has none: "
                      "expected linger_ns 0",
                      task, width);
  if (build->updatable_count == DOORBELL_NODES)
    return status_set(RONDO_UNSUPPORTED,
                      "instantiate: task '%s': a resident exec launches at most %d kernels: expected linger_ns 0", task,
                      DOORBELL_NODES);
  result = driver->cuGraphKernelNodeSetAttribute(node, CU_NODE_ATTRIBUTE_DEVICE_UPDATABLE, &attribute);
  if (result != CU_SUCCESS) return build_failed(build, result, task, "cuGraphKernelNodeSetAttribute");
  result = driver->cuGraphKernelNodeGetAttribute(node, CU_NODE_ATTRIBUTE_DEVICE_UPDATABLE, &attribute);
  if (result != CU_SUCCESS) return build_failed(build, result, task, "cuGraphKernelNodeGetAttribute");
  build->updatable[build->updatable_count++] = attribute.handle;
  return RONDO_OK;
}

static rondo_status add_kernel_node(struct build *build, const char *task, struct cu_kernel_node *kernel_node,
                                    const struct waits *waits, struct exit *exit) {
  rondo_status status = prepare_kernel(build, task, kernel_node->kernel, kernel_node->shared_bytes);
  if (status != RONDO_OK) return status;
  struct cu_node_parameters parameters;
  memset(&parameters, 0, sizeof parameters);
  parameters.type = CU_NODE_KERNEL;
  parameters.kernel = *kernel_node;
  parameters.kernel.context = build->exec->lane->context;
  status = add_node(build, task, &parameters, waits, exit);
  return status == RONDO_OK && build->updatable ? make_updatable(build, task, kernel_node->kernel, exit->node) : status;
}

/* For a task that launches nothing: keeps its edges. */
static rondo_status add_empty_node(const struct build *build, const char *task, const struct waits *waits,
                                   struct exit *exit) {
  struct cu_node_parameters parameters;
  memset(&parameters, 0, sizeof parameters);
  parameters.type = CU_NODE_EMPTY;
  exit->is_own_kernel = false;
  struct waits full = {waits->nodes, NULL, waits->count}; /* only kernels have programmatic edges */
  return add_node(build, task, &parameters, &full, exit);
}

static rondo_status add_own_kernel(struct build *build, const char *task, struct op_launch *launch,
                                   const struct waits *waits, struct exit *exit, struct cu_kernel **kernel_out) {
  struct cu_kernel *kernel = NULL;
  const char *function = "";
  cu_result result = images_find_kernel(build->device, launch->kernel, &kernel, &function);
  if (result == CU_NOT_FOUND)
    return status_set(RONDO_INTERNAL, "instantiate: task '%s': the library has no kernel '%s' for sm_%d", task,
                      launch->kernel, build->device->chip.version);
  if (result != CU_SUCCESS) return build_failed(build, result, task, function);
  rondo_status status = check_own_parameters(build, task, launch, kernel);
  if (status != RONDO_OK) return status;
  void *parameter;
  struct cu_kernel_node kernel_node;
  own_kernel_node(launch, &parameter, &kernel_node);
  kernel_node.kernel = *kernel_out = kernel;
  exit->is_own_kernel = true;
  return add_kernel_node(build, task, &kernel_node, waits, exit);
}

/* The launches of an operation, one after the other. */
static rondo_status add_operation(struct build *build, uint32_t index) {
  const char *task = build->program->nodes[index].call.task->name;
  struct exit *exit = &build->exits[index];
  struct op_launches launches;
  rondo_status status = choose_launches(build->exec, build->program, index, "instantiate", &launches);
  if (status != RONDO_OK) return status;
  if (launches.count == 0) return add_empty_node(build, task, &build->waits, exit);
  for (uint32_t i = 0; i < launches.count && status == RONDO_OK; i++) {
    struct launch_node *launch = &build->exec->launches[build->program->nodes[index].first_launch + i];
    struct exit previous = *exit;
    struct cu_edge edge = edge_from(build, &previous, true);
    struct waits chain = {&previous.node, &edge, 1};
    status = add_own_kernel(build, task, &launches.items[i], i ? &chain : &build->waits, exit, &launch->kernel);
    launch->node = exit->node;
  }
  return status;
}

/* ---- The user's kernels ------------------------------------------------------------------------------------------ */

/* The driver gets no length. It reads an image that is neither a fatbin nor an ELF file as text, up to a NUL. */
static bool is_bounded(const struct user_work *work) {
  static const unsigned char fatbin[4] = {0x50, 0xed, 0x55, 0xba}, elf[4] = {0x7f, 'E', 'L', 'F'};
  if (work->image_bytes < sizeof elf) return false;
  if (!memcmp(work->image, fatbin, sizeof fatbin) || !memcmp(work->image, elf, sizeof elf)) return true;
  return memchr(work->image, 0, work->image_bytes) != NULL;
}

static rondo_status load_user_image(const struct build *build, const char *task, const struct user_work *work,
                                    struct cu_library **library) {
  struct device_exec *exec = build->exec;
  for (uint32_t i = 0; i < exec->library_count; i++) {
    if (build->images[i] != work->image) continue;
    *library = exec->libraries[i];
    return RONDO_OK;
  }
  if (!is_bounded(work))
    return status_set(RONDO_INVALID_ARGUMENT,
                      "instantiate: task '%s': the image is neither a fatbin nor a cubin, and PTX must end with a NUL",
                      task);
  if (!exec->library_count) images_unload_left(build->device); /* once an exec */
  cu_result result = build->device->driver.cuLibraryLoadData(library, work->image, NULL, NULL, 0, NULL, NULL, 0);
  if (result != CU_SUCCESS) return build_failed(build, result, task, "cuLibraryLoadData");
  build->images[exec->library_count] = work->image;
  exec->libraries[exec->library_count++] = *library;
  return RONDO_OK;
}

static rondo_status add_user_kernel(struct build *build, const struct device_node *node, struct exit *exit,
                                    struct launch_node *launch) {
  const struct user_work *work = node->user_work;
  const char *task = node->call.task->name;
  struct cu_library *library = NULL;
  struct cu_kernel *kernel = NULL;
  rondo_status status = load_user_image(build, task, work, &library);
  if (status != RONDO_OK) return status;
  cu_result result = build->device->driver.cuLibraryGetKernel(&kernel, library, work->function);
  if (result == CU_NOT_FOUND)
    return status_set(RONDO_INVALID_ARGUMENT, "instantiate: task '%s': the image has no kernel '%s'", task,
                      work->function);
  if (result != CU_SUCCESS) return build_failed(build, result, task, "cuLibraryGetKernel");
  status = check_user_parameters(build, task, work, kernel);
  if (status != RONDO_OK) return status;
  void *parameters[RONDO_MAX_ARGUMENTS];
  struct cu_kernel_node kernel_node;
  user_kernel_node(node, parameters, &kernel_node);
  kernel_node.kernel = launch->kernel = kernel;
  exit->is_own_kernel = false;
  status = add_kernel_node(build, task, &kernel_node, &build->waits, exit);
  launch->node = exit->node;
  return status;
}

/* ---- Any node ---------------------------------------------------------------------------------------------------- */

/* NCCL knows a capture by the driver's number for it, and the driver has one number for all captures into one graph: at
 * the second, NCCL would wait for streams of the first (error 905). So its work is captured into a graph of its own,
 * which becomes one node. */
static rondo_status add_library_capture(struct build *build, const struct device_node *node, struct exit *exit) {
  const struct driver *driver = &build->device->driver;
  const char *task = node->call.task->name;
  struct captured captured = {0};
  struct cu_node_parameters parameters;
  memset(&parameters, 0, sizeof parameters);
  parameters.type = CU_NODE_GRAPH;
  size_t node_count = 0;
  cu_result result = driver->cuGraphCreate(&parameters.child.graph, 0);
  if (result != CU_SUCCESS) return build_failed(build, result, task, "cuGraphCreate");
  rondo_status status =
      capture_into(build->device, build->exec->lane, &parameters.child.graph, node, NULL, 0, &captured);
  struct waits plain = {build->waits.nodes, NULL, build->waits.count}; /* only kernels have programmatic edges */
  if (status == RONDO_OK)
    status = captured.node_count ? add_node(build, task, &parameters, &plain, exit)
                                 : add_empty_node(build, task, &plain, exit);
  if (parameters.child.graph && !device_lost(build->device)) driver->cuGraphDestroy(parameters.child.graph);
  if (status != RONDO_OK) return status;
  result = driver->cuGraphGetNodes(build->graph, NULL, &node_count);
  if (result != CU_SUCCESS) return build_failed(build, result, task, "cuGraphGetNodes");
  build->has_captures = true;
  exit->node_count = (uint32_t)node_count;
  return RONDO_OK;
}

static rondo_status add_capture(struct build *build, const struct device_node *node, struct exit *exit) {
  struct captured captured = {0};
  if (node->user_work->called_library) return add_library_capture(build, node, exit);
  rondo_status status = capture_into(build->device, build->exec->lane, &build->exec->graph, node, build->waits.nodes,
                                     build->waits.count, &captured);
  if (status != RONDO_OK) return status;
  build->has_captures = true;
  exit->node_count = (uint32_t)captured.node_count;
  struct waits leaves = {build->device->captured, NULL, captured.leaf_count};
  return add_empty_node(build, node->call.task->name, &leaves, exit);
}

rondo_status build_node(struct build *build, uint32_t index) {
  const struct device_node *node = &build->program->nodes[index];
  struct waits *waits = &build->waits;
  waits->count = 0;
  for (uint32_t i = 0; i < node->predecessor_count; i++)
    build_wait_for(build, &build->exits[node->predecessors[i]], !node->user_work);
  if (!waits->count && build->begin.node) build_wait_for(build, &build->begin, !node->user_work);
  if (!node->user_work) return add_operation(build, index);
  if (node->user_work->image)
    return add_user_kernel(build, node, &build->exits[index], &build->exec->launches[node->first_launch]);
  if (node->user_work->capture) return add_capture(build, node, &build->exits[index]);
  return status_set(RONDO_UNSUPPORTED,
                    "instantiate: task '%s' has neither an image nor a callback, and this is the CUDA backend: give it "
                    "one, or open the runtime with RONDO_BACKEND_HOST",
                    node->call.task->name);
}

rondo_status build_extra_kernel(struct build *build, struct op_launch *launch, struct exit *exit) {
  struct cu_kernel *unused;
  return add_own_kernel(build, launch->kernel, launch, &build->waits, exit, &unused);
}
