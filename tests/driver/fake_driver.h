/* fake_driver.h - how tests steer the fake CUDA driver.
 *
 * The fake is a libcuda.so.1 that runs on the CPU: GPUs, their memory malloc'd, their kernels C functions that a test
 * registers. Rondo finds it as it finds the real one; a test finds it with dlopen too and takes the table below from
 * the only other symbol it exports, fake_driver(). What Rondo does to it that a real driver would not forgive is
 * written down as a violation. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* When work that is put on a stream runs. */
enum fake_mode {
  FAKE_IMMEDIATE, /* in the call that puts it there */
  FAKE_DEFERRED,  /* some steps (a node, a copy) in each cuStreamQuery, the rest in cuStreamSynchronize */
  FAKE_THREAD,    /* on a thread of its own */
  FAKE_NEVER,     /* not before the mode changes: a hang */
};

struct fake_settings {
  int32_t driver_version; /* 13000 */
  int32_t device_count;   /* 1; 8 at most */
  int32_t chip;           /* 90 */
  int32_t multiprocessors, shared_bytes;
  uint64_t device_bytes;   /* memory of the GPU */
  int32_t init_result;     /* of cuInit */
  int32_t discover_result; /* of cuGetProcAddress_v2; 34: the toolkit's stub library */
  int32_t version_result;  /* of cuDriverGetVersion */
  bool refuses_peers;      /* no GPU reaches the memory of another */
  bool pinned_moves;       /* the device sees pinned memory at another address */
  enum fake_mode mode;
  uint32_t steps_per_query;    /* of FAKE_DEFERRED; 0: one */
  uint64_t seed;               /* of the order in which a graph's nodes run */
  int32_t static_shared_bytes; /* of each kernel of a test */
  int32_t cluster_width;       /* blocks of its clusters; 0: it says nothing of them */
  bool captured_elsewhere;     /* a thread that is not ours captures in the global mode */
  uint32_t queue_length;       /* of a stream: a launch into a full one waits; 0: no limit */
  uint64_t patience_ns;        /* of a resident graph that misses the host's beat; 0: as the kernel's */
  bool unload_waits;           /* cuLibraryUnload waits for work, as the driver's; else that is a violation */
};

/* What a kernel gets: the launch's shape and the addresses of its parameters. It runs the whole grid. */
struct fake_launch {
  uint32_t grid[3], block[3], shared_bytes;
  int32_t multiprocessors; /* that it may run on */
  void *const *parameters;
};
typedef void (*fake_kernel)(const struct fake_launch *launch);

enum { FAKE_WORK_ARGUMENTS = 4 };

/* What a stream captures: a node of type enum cu_node_type, and what it does when it runs. */
struct fake_work {
  int32_t type;
  void (*function)(void *const *arguments); /* NULL: nothing */
  void *arguments[FAKE_WORK_ARGUMENTS];     /* copied */
  const struct fake_work *child;            /* of a CU_NODE_GRAPH: its one node */
};

enum { FAKE_MAP_RANK = 5 };

/* What the fake writes for a tensor map, so that a kernel of a test can read it. */
struct fake_map {
  void *base;
  uint64_t size[FAKE_MAP_RANK], stride_bytes[FAKE_MAP_RANK]; /* all of both, that of dimension 0 too */
  uint16_t box[FAKE_MAP_RANK];
  uint8_t rank, type, swizzled, fetch; /* type and fetch as the driver has them */
};

struct fake_driver {
  /* As a process that has not called the driver yet. */
  void (*reset)(void);
  struct fake_settings (*settings)(void);
  void (*configure)(const struct fake_settings *settings);

  /* Images are texts: "fake image:" and the names of the kernels in it, after spaces. Any other image has all kernels
   * that are registered. rondo_point, rondo_repeat_step and the kernels of copies and transfers are the fake's own,
   * unless a test registers others. */
  void (*register_kernel)(const char *name, fake_kernel function, uint32_t parameter_count,
                          const size_t *parameter_bytes);

  /* Faults. */
  void (*hide)(const char *symbol, int32_t symbol_status); /* from cuGetProcAddress_v2 */
  /* The n-th call from now on (1: the next one) fails. Calls that end something end it nevertheless. A result that is
   * fatal to the context then comes from every later call. 0: no failure. */
  void (*fail_call)(uint64_t n, int32_t result);
  const char *(*failed_call)(void);                     /* the name of the call that failed so; NULL: none yet */
  void (*lose_after_nodes)(uint64_t n, int32_t result); /* after n more nodes of graphs have run, all else fails */

  /* Called before each call of that name, by its thread. NULL: nothing is. */
  void (*before_call)(const char *name, void (*function)(void));

  /* What happened since reset. */
  uint64_t (*calls)(const char *name);                     /* NULL: all */
  uint32_t (*live)(char *text, size_t bytes);              /* handles, memory and contexts; what they are */
  int32_t (*context_depth)(void);                          /* contexts pushed and not popped, on all threads */
  uint32_t (*violations)(char *text, size_t bytes);        /* the first few, a line each */
  uint32_t (*node_order)(uint32_t *order, uint32_t limit); /* of the last graph launch that ended */

  /* The first place of so many bytes in the device's memory; NULL: there is none. */
  const void *(*find)(const void *bytes, size_t count);

  uint64_t (*programmatic_edges)(void);    /* that were added to graphs */
  uint64_t (*launches_into)(void *stream); /* of graphs, since the stream was made */

  /* As a library's call on a stream, such as a captured cuBLAS one: `count` pieces of work side by side, after what is
   * on the stream and before what comes. Returns a cu_result. */
  int32_t (*enqueue)(void *stream, const struct fake_work *work, uint32_t count);
  /* As a library that makes a call which a capture does not survive. */
  void (*break_capture)(void *stream);
};

/* Exported by the fake under this name. */
typedef const struct fake_driver *(*fake_driver_function)(void);
