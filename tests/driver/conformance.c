/* conformance.c - small behaviours of the libcuda.so.1 that the loader finds: NVIDIA's on a machine with a GPU, the
 * fake with LD_LIBRARY_PATH. The two outputs have to be equal, line by line, so that the fake cannot drift from the
 * driver. If the driver's documentation leaves several answers open, all of them pass and the actual one is printed,
 * for the fake to follow. The comments say what the fake assumes until a GPU has answered.
 *
 * Not tried, because a real driver does not define it: the use of a graph, executable graph or stream after it was
 * destroyed, a second destruction of one, and the destruction of one in flight. */
#include <stdio.h>
#include <string.h>

#include "../../runtime/kernels.h"
#include "conformance.h"

enum { EXIT_NO_DRIVER = 77, EXIT_USAGE = 2 };

struct driver driver;
struct cu_context *context;
struct cu_library *copy_library;
struct cu_kernel *copy_kernel, *done_kernel, *repeat_kernel, *bell_kernel;
cu_address device_memory;
unsigned char *host_memory;
struct cu_stream *stream;
struct cu_graph *graph;
struct cu_graph_exec *exec;

static struct cu_library *done_library, *repeat_library, *bell_library;
static bool kernels_overlap, has_maps;

/* ---- The device -------------------------------------------------------------------------------------------------- */

/* Finds a kernel in the library's images and loads it; NULL if it is in none, or in none for this GPU. The fake takes
 * any image, so a build without nvcc still has something to show it. */
static struct cu_kernel *find_kernel(const char *name, struct cu_library **library) {
  static const char no_image[] = "no device code";
  struct cu_kernel *kernel = NULL;
  for (uint32_t i = 0; i < device_image_count || i == 0; i++) {
    const void *image = device_image_count ? device_images[i].begin : no_image;
    if (driver.cuLibraryLoadData(library, image, NULL, NULL, 0, NULL, NULL, 0) != CU_SUCCESS) continue;
    if (driver.cuLibraryGetKernel(&kernel, *library, name) == CU_SUCCESS) break;
    driver.cuLibraryUnload(*library);
    kernel = NULL;
  }
  struct cu_function *function = NULL;
  if (!kernel || driver.cuKernelGetFunction(&function, kernel) != CU_SUCCESS) return NULL;
  return !driver.cuFuncLoad || driver.cuFuncLoad(function) == CU_SUCCESS ? kernel : NULL;
}

static cu_result open_device(void) {
  int major = 0, minor = 0;
  char name[96] = "";
  void *host = NULL;
  cu_result result = driver.cuDevicePrimaryCtxRetain(&context, 0);
  if (result == CU_SUCCESS) result = driver.cuCtxPushCurrent(context);
  if (result == CU_SUCCESS) result = driver.cuDeviceGetName(name, sizeof name, 0);
  if (result == CU_SUCCESS) result = driver.cuDeviceGetAttribute(&major, CU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
  if (result == CU_SUCCESS) result = driver.cuDeviceGetAttribute(&minor, CU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
  if (result == CU_SUCCESS) result = driver.cuMemAlloc(&device_memory, (size_t)PIECES * PIECE_BYTES + COUNTS_BYTES);
  if (result == CU_SUCCESS)
    result =
        driver.cuMemHostAlloc(&host, PIECE_BYTES + COUNTS_BYTES, CU_HOST_ALLOC_PORTABLE | CU_HOST_ALLOC_DEVICE_MAP);
  if (result != CU_SUCCESS) return result;
  host_memory = host;
  memset(host_memory, 0, PIECE_BYTES + COUNTS_BYTES);
  copy_kernel = find_kernel("rondo_copy", &copy_library);
  done_kernel = copy_kernel ? find_kernel("rondo_point", &done_library) : NULL;
  repeat_kernel = done_kernel ? find_kernel("rondo_repeat_step", &repeat_library) : NULL;
  bell_kernel = repeat_kernel ? find_kernel("rondo_await_bell", &bell_library) : NULL;
  /* As in runtime/cuda/cuda_open.c. */
  kernels_overlap = (major == 9 || major == 10) && minor == 0;
  has_maps = major >= 9 && driver.cuTensorMapEncodeTiled;
  fprintf(stderr, "%s, sm_%d, CUDA %d.%d\n", name, 10 * major + minor, driver.version / 1000,
          driver.version % 1000 / 10);
  return CU_SUCCESS;
}

static bool close_device(void) {
  struct cu_context *popped;
  bool clean = !copy_kernel || driver.cuLibraryUnload(copy_library) == CU_SUCCESS;
  if (done_kernel) clean = driver.cuLibraryUnload(done_library) == CU_SUCCESS && clean;
  if (repeat_kernel) clean = driver.cuLibraryUnload(repeat_library) == CU_SUCCESS && clean;
  if (bell_kernel) clean = driver.cuLibraryUnload(bell_library) == CU_SUCCESS && clean;
  clean = driver.cuMemFreeHost(host_memory) == CU_SUCCESS && clean;
  clean = driver.cuMemFree(device_memory) == CU_SUCCESS && clean;
  clean = driver.cuCtxPopCurrent(&popped) == CU_SUCCESS && clean;
  return driver.cuDevicePrimaryCtxRelease(0) == CU_SUCCESS && clean;
}

/* ---- A behaviour ------------------------------------------------------------------------------------------------- */

static void make(void) {
  memset(&verdict, 0, sizeof verdict);
  REQUIRE(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
  REQUIRE(cuGraphCreate(&graph, 0));
}

/* Whatever state the behaviour left. What fails here fails the behaviour. */
static void unmake(void) {
  struct cu_graph *captured = NULL;
  if (stream && capture_status() != CAPTURE_NONE) driver.cuStreamEndCapture(stream, &captured);
  if (stream) synchronized();
  if (exec) expect("cuGraphExecDestroy", driver.cuGraphExecDestroy(exec), CU_SUCCESS);
  if (graph) expect("cuGraphDestroy", driver.cuGraphDestroy(graph), CU_SUCCESS);
  if (stream) expect("cuStreamDestroy", driver.cuStreamDestroy(stream), CU_SUCCESS);
  exec = NULL;
  graph = NULL;
  stream = NULL;
}

static bool has_peer(void) {
  int count = 0, can = 0;
  return driver.cuDeviceGetCount(&count) == CU_SUCCESS && count > 1 &&
         driver.cuDeviceCanAccessPeer(&can, 0, 1) == CU_SUCCESS && can;
}

static const char *reason_to_skip(enum need need) {
  if (need == PEERS) return has_peer() ? NULL : "no second device that this one reaches";
  if (need == MAPS) return has_maps ? NULL : "no tensor maps on this GPU, or none by this driver";
  if (need != NOTHING && !done_kernel) return "no device code for this GPU";
  if ((need == LOOPS || need == LOOPS_OVERLAP) &&
      (!driver.cuGraphConditionalHandleCreate || !driver.cuGraphKernelNodeSetAttribute))
    return "the driver has no loops";
  if (need == PARTS && !driver.cuGreenCtxStreamCreate) return "the driver has no green contexts";
  return (need == OVERLAP || need == LOOPS_OVERLAP) && !kernels_overlap ? "kernels do not overlap on this GPU" : NULL;
}

static bool run(const struct behaviour *behaviour) {
  const char *reason = reason_to_skip(behaviour->need);
  if (reason) {
    printf("skipped %s: %s\n", behaviour->name, reason);
    return true;
  }
  make();
  if (!verdict.failed) behaviour->run();
  unmake();
  if (verdict.failed)
    printf("FAILED %s: %s\n", behaviour->name, verdict.expected);
  else if (verdict.answers[0])
    printf("ok %s (answered %s)\n", behaviour->name, verdict.answers);
  else
    printf("ok %s\n", behaviour->name);
  return !verdict.failed;
}

/* ---- The program ------------------------------------------------------------------------------------------------- */

static int usage(FILE *out, int status) {
  fputs("usage: conformance\n"
        "Runs the same small behaviours on the libcuda.so.1 that the loader finds, a line for each.\n"
        "Exit status: 0 if none failed, 1 if one did, 77 if there is no usable driver.\n",
        out);
  return status;
}

int main(int argc, char **argv) {
  if (argc == 2 && !strcmp(argv[1], "--help")) return usage(stdout, 0);
  if (argc != 1) return usage(stderr, EXIT_USAGE);
  char text[160];
  if (driver_load(&driver) != RONDO_OK) {
    fprintf(stderr, "conformance: no usable driver: %s\n", rondo_error_text());
    return EXIT_NO_DRIVER;
  }
  cu_result result = open_device();
  if (result != CU_SUCCESS) {
    driver_describe(&driver, result, text, sizeof text);
    fprintf(stderr, "conformance: no usable device: %s\n", text);
    return EXIT_NO_DRIVER;
  }
  setvbuf(stdout, NULL, _IOLBF, 0); /* should one of them crash, the lines before it are seen */
  int failed = 0;
  const struct behaviour *const files[] = {basic_behaviours, graph_behaviours, capture_behaviours, lane_behaviours,
                                           map_behaviours};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    for (const struct behaviour *behaviour = files[i]; behaviour->name; behaviour++) failed += !run(behaviour);
  if (!close_device()) {
    printf("FAILED close: expected all to be given back, got an error\n");
    failed++;
  }
  return failed ? 1 : 0;
}
