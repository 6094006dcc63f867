/* bench_device.c - the GPU for the timing of kernels (bench_device.h). */
#include "bench_device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/cuda/encode.h"
#include "../../runtime/kernels.h"
#include "../command.h"
#include "timing.h"

extern const unsigned char attention_steps_fatbin[], bench_data_fatbin[], bench_data_fatbin_end[], ladder_fatbin[],
    rowmax_tile_fatbin[];

enum { OLDEST_CHIP = 80 };

static void require(const struct bench_device *device, cu_result result, const char *call) {
  if (result == CU_SUCCESS) return;
  char text[256];
  driver_describe(&device->driver, result, text, sizeof text);
  exit(command_failed("bench: %.*s: %s", (int)strcspn(call, "("), call, text));
}
#define REQUIRE(device, function, ...) require((device), (device)->driver.function(__VA_ARGS__), #function)

/* ---- Open and close ---------------------------------------------------------------------------------------------- */

/* The runtime never times with events, and so its table of the driver's functions lacks this one. */
static void find_elapsed(struct bench_device *device) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *symbol = NULL;
  if (library) symbol = dlsym(library, "cuEventElapsedTime");
  if (!symbol) exit(command_failed("bench: libcuda.so.1 has no cuEventElapsedTime, which the timing needs"));
  memcpy(&device->elapsed, &symbol, sizeof symbol);
}

static void choose_device(struct bench_device *device) {
  int count = 0, major = 0, minor = 0;
  REQUIRE(device, cuDeviceGetCount, &count);
  if (!count) exit(command_failed("bench: kernels are timed on a GPU, and there is none here: no CUDA device"));
  REQUIRE(device, cuDeviceGet, &device->ordinal, 0);
  REQUIRE(device, cuDeviceGetName, device->name, sizeof device->name, device->ordinal);
  const struct {
    int attribute, *value;
  } wishes[] = {{CU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major},
                {CU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor},
                {CU_ATTRIBUTE_MULTIPROCESSOR_COUNT, &device->chip.multiprocessors},
                {CU_ATTRIBUTE_MAX_SHARED_BYTES_PER_BLOCK_OPTIN, &device->chip.shared_bytes}};
  for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++)
    REQUIRE(device, cuDeviceGetAttribute, wishes[i].value, wishes[i].attribute, device->ordinal);
  device->chip.version = major * 10 + minor;
  device->kernels_overlap = device->chip.version == 90 || device->chip.version == 100;
  if (device->chip.version < OLDEST_CHIP)
    exit(
        command_failed("bench: %s is sm_%d, expected sm_%d or newer", device->name, device->chip.version, OLDEST_CHIP));
}

static void load(struct bench_device *device, const void *image) {
  if (device->library_count == BENCH_LIBRARIES_MOST)
    exit(command_failed("bench: more than %d images of device code", BENCH_LIBRARIES_MOST));
  REQUIRE(device, cuLibraryLoadData, &device->libraries[device->library_count++], image, NULL, NULL, 0, NULL, NULL, 0);
}

void bench_device_open(struct bench_device *device) {
  memset(device, 0, sizeof *device);
  if (driver_load(&device->driver) != RONDO_OK)
    exit(command_failed("bench: kernels are timed on a GPU, and there is none here: %s", rondo_error_text()));
  find_elapsed(device);
  choose_device(device);
  if (!device_image_count || bench_data_fatbin_end - bench_data_fatbin == 0)
    exit(command_failed("bench: this build has no kernels to time: nvcc was missing when it was built"));
  REQUIRE(device, cuDevicePrimaryCtxRetain, &device->context, device->ordinal);
  REQUIRE(device, cuCtxPushCurrent, device->context);
  REQUIRE(device, cuStreamCreateWithPriority, &device->stream, CU_STREAM_NON_BLOCKING, 0);
  REQUIRE(device, cuEventCreate, &device->begin, 0);
  REQUIRE(device, cuEventCreate, &device->end, 0);
  load(device, bench_data_fatbin);
  load(device, attention_steps_fatbin);
  load(device, ladder_fatbin);
  load(device, rowmax_tile_fatbin);
  for (uint32_t i = 0; i < device_image_count; i++) load(device, device_images[i].begin);
}

void bench_device_close(struct bench_device *device) {
  struct cu_context *context;
  for (uint32_t i = 0; i < device->allocation_count; i++) REQUIRE(device, cuMemFree, device->allocations[i]);
  for (uint32_t i = 0; i < device->library_count; i++) REQUIRE(device, cuLibraryUnload, device->libraries[i]);
  REQUIRE(device, cuEventDestroy, device->begin);
  REQUIRE(device, cuEventDestroy, device->end);
  REQUIRE(device, cuStreamDestroy, device->stream);
  REQUIRE(device, cuCtxPopCurrent, &context);
  REQUIRE(device, cuDevicePrimaryCtxRelease, device->ordinal);
}

enum {
  LEAST_CHIP = 90,    /* the oldest chip with kernels of its own */
  PORTABLE_CHIP = 91, /* no chip has this number: the library chooses portable kernels for it */
  PORTABLE_SHARED_BYTES = 163 * 1024,
};
struct chip bench_chip(const struct bench_device *device, bool is_portable) {
  struct chip chip = device->chip;
  if (is_portable && chip.version >= LEAST_CHIP) chip.version = PORTABLE_CHIP;
  if (is_portable && chip.shared_bytes > PORTABLE_SHARED_BYTES) chip.shared_bytes = PORTABLE_SHARED_BYTES;
  return chip;
}

struct cu_kernel *bench_kernel(struct bench_device *device, const char *name) {
  struct cu_kernel *kernel = NULL;
  for (uint32_t i = 0; i < device->library_count; i++) {
    cu_result result = device->driver.cuLibraryGetKernel(&kernel, device->libraries[i], name);
    if (result == CU_SUCCESS) return kernel;
    if (result != CU_NOT_FOUND) require(device, result, "cuLibraryGetKernel");
  }
  exit(command_failed("bench: no image has the kernel '%s'", name));
}

struct bench_use bench_kernel_use(struct bench_device *device, const char *name) {
  enum {
    SHARED_BYTES = 1,
    LOCAL_BYTES = 3,
    REGISTERS = 4
  }; /* values of CUfunction_attribute that the runtime does not use */
  struct cu_kernel *kernel = bench_kernel(device, name);
  struct bench_use use;
  REQUIRE(device, cuKernelGetAttribute, &use.shared_bytes, SHARED_BYTES, kernel, device->ordinal);
  REQUIRE(device, cuKernelGetAttribute, &use.local_bytes, LOCAL_BYTES, kernel, device->ordinal);
  REQUIRE(device, cuKernelGetAttribute, &use.registers, REGISTERS, kernel, device->ordinal);
  return use;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static void synchronize(struct bench_device *device) { REQUIRE(device, cuStreamSynchronize, device->stream); }

cu_address bench_take(struct bench_device *device, uint64_t bytes) {
  cu_address memory;
  if (device->allocation_count == BENCH_ALLOCATIONS_MOST)
    exit(command_failed("bench: too many allocations of device memory"));
  REQUIRE(device, cuMemAlloc, &memory, bytes);
  device->allocations[device->allocation_count++] = memory;
  return memory;
}

void bench_fill(struct bench_device *device, cu_address memory, uint64_t bytes, enum bench_data data, uint32_t seed) {
  uint64_t words = bytes / 4;
  uint32_t kind = (uint32_t)data, grid[3] = {(uint32_t)device->chip.multiprocessors * 8, 1, 1};
  void *parameters[] = {&memory, &words, &kind, &seed};
  struct bench_graph graph = bench_graph_begin(device, false);
  bench_graph_add_kernel(&graph, bench_kernel(device, "bench_fill"), grid, BENCH_FILL_THREADS, 0, parameters);
  bench_graph_finish(&graph);
  bench_graph_run(&graph);
  bench_graph_end(&graph);
}

void bench_set(struct bench_device *device, cu_address memory, unsigned char value, uint64_t bytes) {
  if (!bytes) return;
  REQUIRE(device, cuMemsetD8Async, memory, value, bytes, device->stream);
  synchronize(device);
}

void bench_fetch(struct bench_device *device, void *to, cu_address memory, uint64_t bytes) {
  if (!bytes) return;
  REQUIRE(device, cuMemcpyDtoHAsync, to, memory, bytes, device->stream);
  synchronize(device);
}

void bench_store(struct bench_device *device, cu_address memory, const void *from, uint64_t bytes) {
  REQUIRE(device, cuMemcpyHtoDAsync, memory, from, bytes, device->stream);
  synchronize(device);
}

/* ---- Graphs ------------------------------------------------------------------------------------------------------ */

struct bench_graph bench_graph_begin(struct bench_device *device, bool is_programmatic) {
  struct bench_graph graph = {.device = device};
  if (is_programmatic && device->kernels_overlap)
    graph.edge = (struct cu_edge){.from_port = CU_PORT_PROGRAMMATIC, .type = CU_EDGE_PROGRAMMATIC};
  REQUIRE(device, cuGraphCreate, &graph.graph, 0);
  return graph;
}

/* Loads the kernel before its first launch, and requests its shared memory: more than 48 KB, static memory included,
 * need a request. */
static void prepare(struct bench_device *device, struct cu_kernel *kernel, uint32_t shared_bytes) {
  struct cu_function *function;
  int allowed = 0;
  if (device->driver.cuFuncLoad) {
    REQUIRE(device, cuKernelGetFunction, &function, kernel);
    REQUIRE(device, cuFuncLoad, function);
  }
  const int attribute = CU_KERNEL_ATTRIBUTE_MAX_DYNAMIC_SHARED_BYTES;
  REQUIRE(device, cuKernelGetAttribute, &allowed, attribute, kernel, device->ordinal);
  if ((uint32_t)allowed < shared_bytes)
    REQUIRE(device, cuKernelSetAttribute, attribute, (int)shared_bytes, kernel, device->ordinal);
}

static void add_node(struct bench_graph *graph, const struct cu_kernel_node *kernel_node) {
  struct bench_device *device = graph->device;
  struct cu_node_parameters parameters;
  prepare(device, kernel_node->kernel, kernel_node->shared_bytes);
  memset(&parameters, 0, sizeof parameters);
  parameters.type = CU_NODE_KERNEL;
  parameters.kernel = *kernel_node;
  parameters.kernel.context = device->context;
  struct cu_graph_node *node;
  REQUIRE(device, cuGraphAddNode, &node, graph->graph, &graph->last, &graph->edge, graph->last ? 1 : 0, &parameters);
  graph->last = node;
}

void bench_graph_add(struct bench_graph *graph, const struct op_launch *launch) {
  struct op_launch filled = *launch;
  uint32_t failed;
  require(graph->device, encode_maps(&graph->device->driver, &filled, &failed), "cuTensorMapEncodeTiled");
  void *parameters[] = {filled.parameters};
  struct cu_kernel_node node = {.shared_bytes = launch->shared_bytes,
                                .parameters = parameters,
                                .kernel = bench_kernel(graph->device, launch->kernel)};
  memcpy(node.grid, launch->grid, sizeof node.grid);
  memcpy(node.block, launch->block, sizeof node.block);
  add_node(graph, &node);
}

void bench_graph_add_kernel(struct bench_graph *graph, struct cu_kernel *kernel, const uint32_t grid[3],
                            uint32_t threads, uint32_t shared_bytes, void **parameters) {
  struct cu_kernel_node node = {
      .block = {threads, 1, 1}, .shared_bytes = shared_bytes, .parameters = parameters, .kernel = kernel};
  memcpy(node.grid, grid, sizeof node.grid);
  add_node(graph, &node);
}

void bench_graph_finish(struct bench_graph *graph) {
  struct cu_instantiate_parameters parameters = {.flags = CU_INSTANTIATE_UPLOAD,
                                                 .upload_stream = graph->device->stream};
  REQUIRE(graph->device, cuGraphInstantiateWithParams, &graph->exec, graph->graph, &parameters);
}

void bench_graph_run(struct bench_graph *graph) {
  REQUIRE(graph->device, cuGraphLaunch, graph->exec, graph->device->stream);
  synchronize(graph->device);
}

static void keep_busy(struct bench_graph *graph, uint64_t ns) {
  for (uint64_t begin = timing_now_ns(); timing_now_ns() - begin < ns;) {
    REQUIRE(graph->device, cuGraphLaunch, graph->exec, graph->device->stream);
    bench_graph_run(graph);
  }
}

double bench_graph_us_under(struct bench_graph *graph, uint32_t samples, struct bench_load load) {
  struct bench_device *device = graph->device;
  struct samples kept = samples_take(samples);
  const uint32_t first = load.pause_ns ? 1 : 2;
  keep_busy(graph, load.busy_ns);
  for (uint32_t i = 0; i < first + samples; i++) {
    float milliseconds = 0;
    if (load.pause_ns) timing_sleep_ns(load.pause_ns);
    REQUIRE(device, cuEventRecord, device->begin, device->stream);
    REQUIRE(device, cuGraphLaunch, graph->exec, device->stream);
    REQUIRE(device, cuEventRecord, device->end, device->stream);
    synchronize(device);
    require(device, device->elapsed(&milliseconds, device->begin, device->end), "cuEventElapsedTime");
    if (i >= first) samples_add(&kept, (uint64_t)((double)milliseconds * 1e6));
  }
  double us = samples_us(&kept, 50);
  samples_free(&kept);
  return us;
}

double bench_graph_us(struct bench_graph *graph, uint32_t samples) {
  return bench_graph_us_under(graph, samples, (struct bench_load){0});
}

void bench_graph_end(struct bench_graph *graph) {
  if (graph->exec) REQUIRE(graph->device, cuGraphExecDestroy, graph->exec);
  REQUIRE(graph->device, cuGraphDestroy, graph->graph);
  *graph = (struct bench_graph){0};
}

/* ---- Method ------------------------------------------------------------------------------------------------------ */

uint32_t bench_launches(uint64_t bytes_of_launch) {
  const uint64_t most = 2000, bytes_of_graph = UINT64_C(20000000000);
  uint64_t launches = bytes_of_graph / (bytes_of_launch ? bytes_of_launch : 1);
  return (uint32_t)(launches > most ? most : launches ? launches : 1);
}

uint32_t bench_copies(uint64_t bytes_of_copy, bool is_warm) {
  const uint64_t bytes_between_uses = 400000000;
  if (is_warm || !bytes_of_copy) return 1;
  return (uint32_t)((bytes_between_uses + bytes_of_copy - 1) / bytes_of_copy);
}

double bench_read_us(struct bench_device *device, cu_address memory, uint64_t bytes, uint64_t apart, uint32_t copies,
                     uint32_t samples) {
  /* resident: blocks for each multiprocessor, which loop over the chunks; 0: one block for each chunk. */
  static const struct { uint32_t threads, resident; } grids[] = {{512, 0}, {256, 0}, {128, 0}, {512, 4}, {256, 8}};
  struct cu_kernel *kernel = bench_kernel(device, "bench_read");
  uint64_t vectors = bytes / 16;
  uint32_t launches = bench_launches(bytes);
  double best = 0;
  for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
    uint64_t chunk = 4 * (uint64_t)grids[g].threads, chunks = (vectors + chunk - 1) / chunk;
    uint64_t resident = grids[g].resident * (uint64_t)device->chip.multiprocessors;
    uint32_t grid[3] = {(uint32_t)(resident && resident < chunks ? resident : chunks ? chunks : 1), 1, 1};
    struct bench_graph graph = bench_graph_begin(device, false);
    for (uint32_t i = 0; i < launches; i++) {
      cu_address from = memory + i % copies * apart, sink = memory;
      void *parameters[] = {&from, &vectors, &sink};
      bench_graph_add_kernel(&graph, kernel, grid, grids[g].threads, 0, parameters);
    }
    bench_graph_finish(&graph);
    double us = bench_graph_us(&graph, samples) / launches;
    bench_graph_end(&graph);
    if (!best || us < best) best = us;
  }
  return best;
}
