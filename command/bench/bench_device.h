/* bench_device.h - a GPU as the timing of kernels sees it: the driver used directly, memory that is filled with random
 * numbers, and graphs of many launches that are timed by events around them. Whatever the driver refuses ends the
 * program, with the call and the driver's sentence: there is nothing to measure then. */
#ifndef RONDO_BENCH_DEVICE_H
#define RONDO_BENCH_DEVICE_H

#include "../../runtime/cuda/driver.h"
#include "bench_data.h"

enum { BENCH_LIBRARIES_MOST = 64, BENCH_ALLOCATIONS_MOST = 16, DEVICE_NAME_BYTES = 96 };

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

/* The first GPU, with all of the library's kernels and the bench's own. */
void bench_device_open(struct bench_device *device);
void bench_device_close(struct bench_device *device);

struct cu_kernel *bench_kernel(struct bench_device *device, const char *name);

/* What a kernel takes, of local memory for each thread, of shared memory without what its launch adds. */
struct bench_use {
  int registers, local_bytes, shared_bytes;
};
struct bench_use bench_kernel_use(struct bench_device *device, const char *name);

/* Until the device is closed; 256-byte aligned. */
cu_address bench_take(struct bench_device *device, uint64_t bytes);
void bench_fill(struct bench_device *device, cu_address memory, uint64_t bytes, enum bench_data data, uint32_t seed);
void bench_set(struct bench_device *device, cu_address memory, unsigned char value, uint64_t bytes);
void bench_fetch(struct bench_device *device, void *to, cu_address memory, uint64_t bytes);
void bench_store(struct bench_device *device, cu_address memory, const void *from, uint64_t bytes);

/* Launches one after the other. */
struct bench_graph {
  struct bench_device *device;
  struct cu_graph *graph;
  struct cu_graph_exec *exec;
  struct cu_graph_node *last;
  struct cu_edge edge; /* from each launch to the next */
};
/* is_programmatic: a launch may begin before the one in front of it ends, where this chip's kernels wait for it. */
struct bench_graph bench_graph_begin(struct bench_device *device, bool is_programmatic);
void bench_graph_add(struct bench_graph *graph, const struct op_launch *launch);
void bench_graph_add_kernel(struct bench_graph *graph, struct cu_kernel *kernel, const uint32_t grid[3],
                            uint32_t threads, uint32_t shared_bytes, void **parameters);
/* Instantiates it; nothing is added afterwards. */
void bench_graph_finish(struct bench_graph *graph);
void bench_graph_run(struct bench_graph *graph);
/* The median of `samples` runs, after two that are not kept. Microseconds. */
double bench_graph_us(struct bench_graph *graph, uint32_t samples);
/* The same behind a pause before each run, or behind runs without one for so long. A chip that is held by its power
 * limit is up to 15 % slower than one that was idle: times of different loads are not to be compared. */
struct bench_load {
  uint64_t pause_ns, busy_ns;
};
double bench_graph_us_under(struct bench_graph *graph, uint32_t samples, struct bench_load load);
void bench_graph_end(struct bench_graph *graph);

/* ---- Method: what all timings have in common --------------------------------------------------------------------- */

/* A graph moves about 20 GB, or has 2000 launches if that is less, so that its ends do not show. */
uint32_t bench_launches(uint64_t bytes_of_launch);
/* Cold: between two uses of a copy pass 400 MB, more than any cache holds. */
uint32_t bench_copies(uint64_t bytes_of_copy, bool is_warm);

/* Reading alone, the best of a few grids: microseconds for `bytes`, of copies that lie `apart` bytes from each other in
 * `memory`. */
double bench_read_us(struct bench_device *device, cu_address memory, uint64_t bytes, uint64_t apart, uint32_t copies,
                     uint32_t samples);

#endif
