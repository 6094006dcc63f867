/* rival.c - graphs made with the CUDA driver directly (rival.h). Their kernel is Rondo's copy kernel, so that only the
 * launch and the completion differ. */
#include "rival.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/copy/copy.h"
#include "../../runtime/kernels.h"

enum { SLAB_BYTES = 64 << 20 };

static void require(cu_result result, const char *call) {
  if (result == CU_SUCCESS) return;
  fprintf(stderr, "rival: %s: CUDA error %d\n", call, (int)result);
  exit(1);
}
#define REQUIRE(call) require((call), #call)

bool rival_open(struct rival *rival) {
  struct driver *driver = &rival->driver;
  cu_device device;
  if (driver_load(driver) != RONDO_OK || driver->cuDeviceGet(&device, 0) != CU_SUCCESS) return false;
  REQUIRE(driver->cuDevicePrimaryCtxRetain(&rival->context, device));
  REQUIRE(driver->cuCtxPushCurrent(rival->context));
  int least, greatest;
  REQUIRE(driver->cuCtxGetStreamPriorityRange(&least, &greatest));
  REQUIRE(driver->cuStreamCreateWithPriority(&rival->stream, CU_STREAM_NON_BLOCKING, greatest));
  struct cu_kernel *copy = NULL;
  for (uint32_t i = 0; i < device_image_count && !copy; i++) {
    REQUIRE(driver->cuLibraryLoadData(&rival->library, device_images[i].begin, NULL, NULL, 0, NULL, NULL, 0));
    if (driver->cuLibraryGetKernel(&copy, rival->library, "rondo_copy") != CU_SUCCESS) copy = NULL;
  }
  REQUIRE(driver->cuMemAlloc(&rival->memory, SLAB_BYTES));
  REQUIRE(driver->cuMemHostAlloc(&rival->pinned, SLAB_BYTES, CU_HOST_ALLOC_PORTABLE | CU_HOST_ALLOC_DEVICE_MAP));
  memset(rival->pinned, 1, SLAB_BYTES);
  return copy != NULL;
}

/* Adds the launch that Rondo chooses for the same copy. */
static struct cu_graph_node *add_copy(struct rival *rival, struct cu_graph *graph, struct cu_graph_node *after,
                                      uint64_t source, uint64_t destination, uint64_t bytes) {
  struct op_operand dense = {.present = true, .dtype = RONDO_U8, .rank = 1, .shape = {(int64_t)bytes}, .stride = {1}};
  struct op_operand operands[] = {dense, dense};
  struct op_task task = {.op = &op_copy, .name = "rival", .operand_count = 2, .operands = operands};
  void *data[] = {(void *)(uintptr_t)source, (void *)(uintptr_t)destination};
  struct op_call call = {.task = &task, .data = data};
  struct chip chip = {.version = 90, .multiprocessors = 132, .shared_bytes = 227 * 1024};
  struct op_launches launches;
  if (copy_select(&call, &chip, &launches) != RONDO_OK || launches.count != 1) exit(1);
  struct op_launch *launch = &launches.items[0];
  struct cu_kernel *kernel;
  REQUIRE(rival->driver.cuLibraryGetKernel(&kernel, rival->library, launch->kernel));
  void *parameters[] = {launch->parameters};
  struct cu_node_parameters node_parameters;
  memset(&node_parameters, 0, sizeof node_parameters);
  node_parameters.type = CU_NODE_KERNEL;
  node_parameters.kernel = (struct cu_kernel_node){.grid = {launch->grid[0], 1, 1},
                                                   .block = {launch->block[0], 1, 1},
                                                   .parameters = parameters,
                                                   .kernel = kernel,
                                                   .context = rival->context};
  struct cu_graph_node *node;
  REQUIRE(rival->driver.cuGraphAddNode(&node, graph, &after, NULL, after ? 1 : 0, &node_parameters));
  return node;
}

static struct cu_graph_exec *instantiate(struct rival *rival, struct cu_graph *graph) {
  struct cu_graph_exec *exec;
  struct cu_instantiate_parameters parameters = {.flags = CU_INSTANTIATE_UPLOAD, .upload_stream = rival->stream};
  REQUIRE(rival->driver.cuGraphInstantiateWithParams(&exec, graph, &parameters));
  rival_launch(rival, exec);
  rival_synchronize(rival);
  return exec;
}

static struct cu_graph_exec *copies(struct rival *rival, uint32_t count, bool is_chain) {
  struct cu_graph *graph;
  struct cu_graph_node *last = NULL;
  REQUIRE(rival->driver.cuGraphCreate(&graph, 0));
  for (uint32_t i = 0; i < count; i++)
    last = add_copy(rival, graph, is_chain ? last : NULL, rival->memory + (cu_address)i * TINY_BYTES,
                    rival->memory + (i + 1ull) * TINY_BYTES, TINY_BYTES);
  return instantiate(rival, graph);
}

struct cu_graph_exec *rival_chain(struct rival *rival, uint32_t count) {
  return copies(rival, count, true);
}
struct cu_graph_exec *rival_side_by_side(struct rival *rival, uint32_t count) {
  return copies(rival, count, false);
}

struct cu_graph_exec *rival_result(struct rival *rival) {
  struct cu_graph *graph;
  REQUIRE(rival->driver.cuGraphCreate(&graph, 0));
  add_copy(rival, graph, NULL, rival->memory, (uint64_t)(uintptr_t)rival->pinned, TINY_BYTES);
  return instantiate(rival, graph);
}

/* Adds a copy node between byte `offset` of the pinned memory and `device`. It is captured from a stream; the stream
 * then depends on this node alone, by which the function finds it. */
static struct cu_graph_node *add_copy_node(struct rival *rival, struct cu_graph *graph,
                                           struct cu_graph_node *const *after, size_t after_count, bool is_input,
                                           uint64_t offset, cu_address device, uint64_t bytes) {
  struct driver *driver = &rival->driver;
  char *pinned = (char *)rival->pinned + offset;
  struct cu_graph *ended;
  struct cu_graph_node *const *frontier, *node;
  const struct cu_edge *edges;
  int status;
  size_t count;
  REQUIRE(driver->cuStreamBeginCaptureToGraph(rival->stream, graph, after, NULL, after_count, CU_CAPTURE_THREAD_LOCAL));
  if (is_input)
    REQUIRE(driver->cuMemcpyHtoDAsync(device, pinned, bytes, rival->stream));
  else
    REQUIRE(driver->cuMemcpyDtoHAsync(pinned, device, bytes, rival->stream));
  REQUIRE(driver->cuStreamGetCaptureInfo(rival->stream, &status, NULL, NULL, &frontier, &edges, &count));
  if (count != 1) exit(1);
  node = frontier[0];
  REQUIRE(driver->cuStreamEndCapture(rival->stream, &ended));
  return node;
}

struct cu_graph_exec *rival_in_out(struct rival *rival, uint64_t bytes) {
  cu_address in = rival->memory, out = rival->memory + SLAB_BYTES / 2;
  struct cu_graph *graph;
  REQUIRE(rival->driver.cuGraphCreate(&graph, 0));
  struct cu_graph_node *copied = add_copy_node(rival, graph, NULL, 0, true, 0, in, bytes);
  struct cu_graph_node *node = add_copy(rival, graph, copied, in, out, bytes);
  add_copy_node(rival, graph, &node, 1, false, SLAB_BYTES / 2, out, bytes);
  return instantiate(rival, graph);
}

struct cu_graph_exec *rival_many_in_out(struct rival *rival) {
  const uint64_t half = MANY_BYTES / 2, apart = 4096;
  struct cu_graph *graph;
  REQUIRE(rival->driver.cuGraphCreate(&graph, 0));
  for (uint64_t i = 0; i < MANY; i++) {
    cu_address in = rival->memory + i * apart, out = rival->memory + SLAB_BYTES / 2 + i * apart;
    struct cu_graph_node *copied = add_copy_node(rival, graph, NULL, 0, true, i * apart, in, MANY_BYTES), *done[2];
    done[0] = add_copy(rival, graph, copied, in, out, half);
    done[1] = add_copy(rival, graph, copied, in + half, out + half, half);
    done[1] = add_copy(rival, graph, done[1], out + half, out + 2 * half, half);
    add_copy_node(rival, graph, done, 2, false, SLAB_BYTES / 2 + i * apart, out, 3 * half);
  }
  return instantiate(rival, graph);
}

void rival_launch(struct rival *rival, struct cu_graph_exec *exec) {
  REQUIRE(rival->driver.cuGraphLaunch(exec, rival->stream));
}

void rival_synchronize(struct rival *rival) { REQUIRE(rival->driver.cuStreamSynchronize(rival->stream)); }
