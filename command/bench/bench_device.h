/* bench_device.h - the GPU for the timing of kernels: memory with random numbers, and graphs of many launches that
 * events time. It uses the CUDA driver directly. If a call of the driver fails, the program ends with the call's name
 * and the driver's sentence. */
#pragma once

#include "../../runtime/cuda/driver.h"
#include "bench_data.h"

enum { BENCH_LIBRARIES_MOST = 128, BENCH_ALLOCATIONS_MOST = 16, DEVICE_NAME_BYTES = 96 };

struct bench_device {
  struct driver driver;
  cu_result (*elapsed)(float *milliseconds, struct cu_event *begin, struct cu_event *end);
  cu_device ordinal;
  struct cu_context *context;
  struct cu_stream *stream;
  struct cu_event *begin, *end;
  struct chip chip;
  char name[DEVICE_NAME_BYTES];
  bool kernels_overlap; /* the code for this chip waits with griddepcontrol */
  struct cu_library *libraries[BENCH_LIBRARIES_MOST];
  uint32_t library_count;
  cu_address allocations[BENCH_ALLOCATIONS_MOST];
  uint32_t allocation_count;
};

/* Opens the first GPU, with all kernels of the library and of the benches. */
void bench_device_open(struct bench_device *device);
void bench_device_close(struct bench_device *device);

/* The device's chip; is_portable: as one that has no kernels of its own. */
struct chip bench_chip(const struct bench_device *device, bool is_portable);

struct cu_kernel *bench_kernel(struct bench_device *device, const char *name);

/* A kernel's resources. Local memory is that of one thread; shared memory is the static part. */
struct bench_use {
  int registers, local_bytes, shared_bytes;
};
struct bench_use bench_kernel_use(struct bench_device *device, const char *name);

/* Allocates memory until the device is closed. The address is a multiple of 256. */
cu_address bench_take(struct bench_device *device, uint64_t bytes);
void bench_fill(struct bench_device *device, cu_address memory, uint64_t bytes, enum bench_data data, uint32_t seed);
void bench_set(struct bench_device *device, cu_address memory, unsigned char value, uint64_t bytes);
void bench_fetch(struct bench_device *device, void *to, cu_address memory, uint64_t bytes);
void bench_store(struct bench_device *device, cu_address memory, const void *from, uint64_t bytes);

/* A graph of successive launches. */
struct bench_graph {
  struct bench_device *device;
  struct cu_graph *graph;
  struct cu_graph_exec *exec;
  struct cu_graph_node *last;
  struct cu_edge edge; /* from each launch to the next */
};
/* is_programmatic: a launch may begin before its predecessor ends, if the kernels of this chip wait for it. */
struct bench_graph bench_graph_begin(struct bench_device *device, bool is_programmatic);
void bench_graph_add(struct bench_graph *graph, const struct op_launch *launch);
void bench_graph_add_kernel(struct bench_graph *graph, struct cu_kernel *kernel, const uint32_t grid[3],
                            uint32_t threads, uint32_t shared_bytes, void **parameters);
/* Instantiates the graph. No launch can be added afterwards. */
void bench_graph_finish(struct bench_graph *graph);
void bench_graph_run(struct bench_graph *graph);
/* The median time of `samples` runs in microseconds, after two runs that do not count. */
double bench_graph_us(struct bench_graph *graph, uint32_t samples);
/* The same after a pause before each run, or after a time of runs without pauses. A chip at its power limit is up to 15
 * % slower than one that was idle. Times of different loads cannot be compared. */
struct bench_load {
  uint64_t pause_ns, busy_ns;
};
double bench_graph_us_under(struct bench_graph *graph, uint32_t samples, struct bench_load load);
void bench_graph_end(struct bench_graph *graph);

/* ---- The method of all timings ----------------------------------------------------------------------------------- */

/* The launches of a graph: 20 GB in all, or 2000 launches if these move less. Its first and last launch then hardly
 * count. */
uint32_t bench_launches(uint64_t bytes_of_launch);
/* The copies of an operand. Cold: 400 MB of other copies, more than any cache holds, pass between two uses of a
 * copy. */
uint32_t bench_copies(uint64_t bytes_of_copy, bool is_warm);

/* The time of only reading `bytes` bytes, in microseconds: the best of a few grids. `memory` has copies at a distance
 * of `apart` bytes. */
double bench_read_us(struct bench_device *device, cu_address memory, uint64_t bytes, uint64_t apart, uint32_t copies,
                     uint32_t samples);
