/* device.h - the seam between exec and a backend: one table of functions, two implementations (host/, cuda/).
 *
 * exec.c turns a graph and its plan into a program: a list of nodes in a legal order, with addresses and exact
 * predecessors. A backend makes one launchable thing of it per slot. Nothing above this line knows CUDA.
 */
#ifndef RONDO_DEVICE_H
#define RONDO_DEVICE_H

#include <stdatomic.h>

#include "completion.h"
#include "notice.h"
#include "op.h"

struct device;      /* a backend's own */
struct device_exec; /* one launchable graph, of one slot */

/* Of rondo_add_kernel or rondo_add_capture, in one piece with what it points to; see user_work.h. */
struct user_work {
  const void *image; /* NULL: a capture */
  size_t image_bytes;
  const char *function;
  uint32_t grid[3], block[3];
  uint32_t shared_bytes;
  uint32_t argument_count;
  uint16_t argument_bytes[RONDO_MAX_ARGUMENTS]; /* of a value; 0: a tensor */
  unsigned char *values;                        /* USER_VALUE_BYTES for each argument that is one */
  rondo_capture_function capture;
  rondo_host_function host;
  void *user;
};

/* A node runs one task: an operation, or the user's own work (then call.task->op is NULL, and call.data[i] is the
 * address of argument i: a tensor, or the value itself). */
struct device_node {
  struct op_call call;
  const struct user_work *user_work;
  const uint32_t *predecessors; /* indices of earlier nodes */
  uint32_t predecessor_count;
  uint32_t first_launch; /* of as many as its operation may need, 1 for the user's own work */
};

struct device_program {
  const struct device_node *nodes; /* live as long as the exec; addresses are those of the slot only while it is made */
  uint32_t node_count;
  uint32_t lane;
  uint32_t operand_count;     /* of all nodes */
  uint32_t user_kernel_count; /* nodes with an image */
  uint32_t launch_count;      /* of all nodes, at most */
  void **data;                /* of all operands; node->call.data points into it */
  /* Completion, COMPLETION_WORDS of each. After every node words[0] (pinned) holds the number of replays, counted in
   * counts[0] (device memory, zero at first) and released after all the nodes' writes. The other words are UINT64_MAX:
   * already there. A backend that publishes in parts sets as many to zero in exec_create, and counts for each. */
  uint64_t *counts;
  _Atomic uint64_t *words;
  struct notice *notice; /* of the slot: what every replay ends with, after its words are there. NULL: never anything */
  void *host_memory;     /* device_ops.exec_host_bytes(program) bytes for the backend's bookkeeping, in the host pool */
  void *build_memory;    /* build_host_bytes of them, until exec_create returns */
};

struct device_lane {
  char name[64];
  struct chip chip; /* of the multiprocessors that the lane has: what kernels are chosen for */
  int32_t priority;
  uint64_t arena_bytes;
  void *stream;
};

struct device_info {
  char name[96];
  char reason[384];
  struct chip chip; /* version 0 on the host */
  int32_t driver_version;
  uint64_t driver_bytes; /* of device memory, gone at open beside the slab */
  uint32_t lane_count;   /* at least 1; open fills chip, priority and stream */
  struct device_lane lanes[RONDO_MAX_LANES];
};

/* A rectangle as rows of bytes, dense in the host's memory. In the device's count[0] of them lie pitch_bytes[0] apart,
 * that count[1] times, and that count[2] times. */
struct device_rows {
  uint64_t bytes;
  uint64_t count[3], pitch_bytes[3];
};

struct device_upload {
  unsigned char *destination; /* in device memory */
  const unsigned char *source;
  struct device_rows rows;
  uint64_t room_bytes; /* of a single row: that much may be written, with zeros behind the row */
};

/* A list of them, which nobody has in one piece. Some may have no bytes. */
struct device_uploads {
  uint32_t count;
  struct device_upload (*at)(const struct device_uploads *uploads, uint32_t index);
  const rondo_exec *exec;
  const rondo_content *contents;
};

/* Memory besides the pools, all of it 256-byte aligned and of any content. */
struct device_memory {
  uint64_t device_bytes, pinned_bytes, host_bytes; /* 0: none */
  void *device, *pinned, *host;
};

/* The reason for a rest: a replay in the lane of this number, a replay in any lane, or a free slot. */
enum { FOR_ANY_REPLAY = RONDO_MAX_LANES, FOR_FREE_SLOT };

struct device_ops {
  rondo_backend backend;
  /* Opens the device and takes the two slabs (256-byte aligned, of any content). RONDO_NO_DEVICE: this backend cannot
   * be used here, with the reason as error text. `allocator` is where host memory may come from. */
  rondo_status (*open)(const rondo_options *options, const rondo_allocator *allocator, struct device **device,
                       struct device_info *info, void **device_memory, void **pinned_memory);
  /* False: of a lost device threads or a GPU may still touch the execs and the slabs; their memory is not to be given
   * back. */
  bool (*close)(struct device *device);
  /* To execs of the lane that are at rest, one after the other. They may be on their way when it returns, unless it
   * fails; their sources are free then. */
  rondo_status (*upload)(struct device *device, uint32_t lane, const struct device_uploads *uploads);
  /* Whatever the lane gets from here on comes behind all that was uploaded. Waits for no replay. NULL: it has come. */
  rondo_status (*await_uploads)(struct device *device, uint32_t lane);
  /* In order with all replays of the lane. device_memory addresses on the device side. */
  rondo_status (*download)(struct device *device, uint32_t lane, void *destination, const void *source,
                           struct device_rows rows);
  rondo_status (*zero)(struct device *device, uint32_t lane, void *destination, uint64_t bytes);
  /* Has every page of what an exec will use, all of it the device's or pinned memory, whatever it holds. NULL: they are
   * there from open on. */
  rondo_status (*settle)(struct device *device, void *memory, uint64_t bytes);
  /* For what is outside the promises of a replay. All addresses are NULL after a failure. Where a lost device may still
   * touch what is given back, that is leaked. */
  rondo_status (*memory_take)(struct device *device, struct device_memory *memory);
  void (*memory_give)(struct device *device, const struct device_memory *memory);
  /* One executable graph. exec_host_bytes is pure and looks at the program's counts only. */
  uint64_t (*exec_host_bytes)(const struct device_program *program);
  uint64_t (*build_host_bytes)(const struct device_program *program); /* NULL: none */
  rondo_status (*exec_create)(struct device *device, const struct device_program *program, struct device_exec **exec);
  rondo_status (*exec_launch)(struct device_exec *exec); /* never blocks, never allocates */
  /* Likewise, in a stream of the caller's and yet in order with the lane. NULL: there are no streams. */
  rondo_status (*exec_launch_on)(struct device_exec *exec, void *stream);
  /* Sleeps until look(subject) is true, the device is lost, or most_ns are over (RONDO_FOREVER: no limit). Replays of
   * this kind and ring wake it, so that it looks again. Returns the last look's answer. May return for no reason.
   * NULL: tasks do not need the waiting thread's core. */
  bool (*rest)(struct device *device, uint32_t for_what, bool (*look)(void *subject), void *subject, uint64_t most_ns);
  void (*ring)(struct device *device); /* wakes the threads that rest for a free slot; NULL as rest */
  /* Takes over the addresses in program->nodes[node].call, all else as it was created. Not in flight; no capture. */
  rondo_status (*exec_rebind)(struct device_exec *exec, const struct device_program *program, uint32_t node);
  void (*exec_destroy)(struct device_exec *exec); /* not in flight, with no notice due */
  /* RONDO_OK, or RONDO_DEVICE_LOST with the first cause. Called now and then while waiting. */
  rondo_status (*health)(struct device *device);
  /* Gives the device up as lost, with this cause: it does not finish what it was given. The first cause stays. */
  rondo_status (*lose)(struct device *device, const char *cause);
  /* Starts and stops keeping the device awake; counted. From any thread, but with no lock of the runtime's held: it may
   * wait for an exec_create, whose callbacks may want that lock. NULL: it never sleeps. */
  rondo_status (*keep_warm)(struct device *device, bool on);
  /* Waits until everything launched in the lane is done. */
  rondo_status (*drain)(struct device *device, uint32_t lane);
  /* Is the calling thread inside a task of this device, or in a callback it made, so that to wait for the device would
   * be to wait for itself? NULL: never. */
  bool (*in_callback)(struct device *device);
  /* Of device memory, for whoever asks; 0 if that is not known. NULL: there is no such memory. */
  uint64_t (*free_bytes)(struct device *device);
};

extern const struct device_ops host_device_ops;
extern const struct device_ops cuda_device_ops;

#endif
