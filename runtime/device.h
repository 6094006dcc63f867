/* device.h - the interface between the runtime and a backend: a table of functions that host/ and cuda/ implement.
 *
 * The runtime turns a graph and its plan into a program: nodes in a legal order, with addresses and exact predecessors.
 * A backend makes an executable graph of the program for each slot. No file above this interface knows CUDA. */
#pragma once

#include <stdatomic.h>

#include "completion.h"
#include "doorbell.h"
#include "notice.h"
#include "op.h"
#include "repeat_control.h"

struct device;      /* a backend's own */
struct device_exec; /* one launchable graph, of one slot */

/* A library that Rondo calls itself. Its tasks wait for those of other ranks. */
struct called_library {
  const char *name;
  const char *why_gpu;  /* "is a call of NCCL": why the host refuses the task */
  const char *why_host; /* after the refusal of a host callback: why it enqueued one */
};

/* The work of rondo_add_kernel or rondo_add_capture, in one piece with all it points to; see user_work.h. */
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
  const struct called_library *called_library; /* whose work `capture` enqueues; NULL: the user's own callback */
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
  /* Completion: COMPLETION_WORDS counts in device memory, zero at first, and as many words in pinned memory. After the
   * last node the backend adds 1 to counts[0] and stores the sum in words[0], with release after the writes of all
   * nodes. The other words are UINT64_MAX, so they never hold a wait up. A backend that publishes by several blocks
   * sets that many words to zero in exec_create, and counts for each. */
  uint64_t *counts;
  _Atomic uint64_t *words;
  struct repeat repeat; /* of the slot */
  struct doorbell
      *bell; /* of the slot, in pinned memory; NULL: the exec is not resident, and the next three are unused */
  uint64_t *bell_nodes; /* DOORBELL_NODES, in pinned memory */
  struct doorbell_state *bell_state;
  uint64_t linger_ns;
  struct notice *notice; /* of the slot: sent after the words of each replay are written. NULL: none */
  void *host_memory;     /* exec_bytes(program).slot bytes for the backend's bookkeeping, in the host pool */
  void *build_memory;    /* exec_bytes(program).build bytes, until exec_create returns */
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
  uint64_t driver_bytes;   /* of device memory that the driver took at open, besides the slab */
  _Atomic uint64_t *fault; /* of op_call; it lives as long as the device */
  uint32_t lane_count;     /* at least 1; open fills chip, priority and stream */
  struct device_lane lanes[RONDO_MAX_LANES];
};

/* A rectangle as rows of bytes. In host memory the rows are dense. In device memory count[0] rows lie pitch_bytes[0]
 * apart; this plane is repeated count[1] times, pitch_bytes[1] apart, and the whole count[2] times, pitch_bytes[2]
 * apart. */
struct device_rows {
  uint64_t bytes;
  uint64_t count[3], pitch_bytes[3];
};

struct device_upload {
  unsigned char *destination; /* in device memory */
  const unsigned char *source;
  struct device_rows rows;
  uint64_t room_bytes; /* of a single row: bytes that may be written, zeros after the row */
};

/* A list of uploads that is computed entry by entry. Some entries may have no bytes. */
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

/* Memory. Addresses are the device's unless a comment says otherwise. */
struct device_memory_ops {
  /* Uploads to execs of the lane that are at rest, one after the other. After RONDO_OK the copies may still be in
   * progress, but their sources are free. After an error none is in progress. */
  rondo_status (*upload)(struct device *device, uint32_t lane, const struct device_uploads *uploads);
  /* Orders all later work of the lane after all uploads so far. Waits for no replay. NULL: upload waits for its copies.
   */
  rondo_status (*await_uploads)(struct device *device, uint32_t lane);
  /* Both in order with the replays of the lane, and done on return. `destination` of a download is the host's. */
  rondo_status (*download)(struct device *device, uint32_t lane, void *destination, const void *source,
                           struct device_rows rows);
  rondo_status (*zero)(struct device *device, uint32_t lane, void *destination, uint64_t bytes);
  /* Makes all pages of a part of a pool resident, and keeps their content. NULL: they are resident from open on. */
  rondo_status (*settle)(struct device *device, void *memory, uint64_t bytes);
  /* Memory besides the pools, for rondo_profile. After an error all addresses are NULL. Memory that a lost device may
   * still touch is leaked. */
  rondo_status (*take)(struct device *device, struct device_memory *memory);
  void (*give)(struct device *device, const struct device_memory *memory);
};

/* The sleep of waiting threads, for a backend whose tasks need the cores of these threads. */
struct device_rest_ops {
  /* Sleeps until look(subject) is true, the device is lost, or most_ns are over (RONDO_FOREVER: no limit). The end of a
   * replay of this kind and `ring` wake the thread, so that it looks again. Returns the last look's answer. May return
   * for no reason. */
  bool (*rest)(struct device *device, uint32_t for_what, bool (*look)(void *subject), void *subject, uint64_t most_ns);
  /* Wakes the threads that rest for a free slot. */
  void (*ring)(struct device *device);
};

/* Bytes of the host pool for an exec's program: of each slot, and until exec_create returns. */
struct device_exec_bytes {
  uint64_t slot, build;
};

struct device_ops {
  rondo_backend backend;
  /* Opens the device and takes two slabs, 256-byte aligned and of any content. RONDO_NO_DEVICE: this backend cannot be
   * used here; the error text has the reason. Host memory comes from `allocator`. */
  rondo_status (*open)(const rondo_options *options, const rondo_allocator *allocator, struct device **device,
                       struct device_info *info, void **device_memory, void **pinned_memory);
  /* `is_touched`: a lost device of another rank may still touch the slabs, so they are leaked. False: the device is
   * lost, and threads or a GPU may still touch execs and slabs. Their memory must not be given back. */
  bool (*close)(struct device *device, bool is_touched);
  /* Lets the tasks of the device use all memory of the other one, from now until both are closed. RONDO_NO_DEVICE: it
   * cannot. NULL: they can. */
  rondo_status (*reach)(struct device *device, struct device *peer);
  struct device_memory_ops memory;

  /* ---- Executable graphs, one for each slot of an exec ---- */
  struct device_exec_bytes (*exec_bytes)(const struct device_program *program); /* by the program's counts alone */
  rondo_status (*exec_create)(struct device *device, const struct device_program *program, struct device_exec **exec);
  /* Never blocks and never allocates. stream: NULL, or the address of a stream of the caller's, in which the replay
   * runs in order with the lane. A lane without a stream (device_info) takes NULL alone. */
  rondo_status (*exec_launch)(struct device_exec *exec, void *const *stream);
  /* The same for a repeat, in the lane: its control is set, but `done` and `stop` are 0. All words of completion count
   * it as one replay. */
  rondo_status (*exec_repeat)(struct device_exec *exec);
  /* The same for a replay of a resident exec, whose graph stays on the device. NULL: the backend has none. */
  rondo_status (*exec_ring)(struct device_exec *exec);
  /* Takes over the addresses in program->nodes[node].call; all else is as it was created. Not in flight; no capture. */
  rondo_status (*exec_rebind)(struct device_exec *exec, const struct device_program *program, uint32_t node);
  /* Not in flight, with no notice due. False: the device is lost, and may still touch what the tasks use. */
  bool (*exec_destroy)(struct device_exec *exec);

  /* ---- Waits and failures ---- */
  const struct device_rest_ops *rest; /* NULL: tasks do not need the waiting thread's core */
  /* RONDO_OK, or RONDO_DEVICE_LOST with the first cause. Waiting threads call it now and then. */
  rondo_status (*health)(struct device *device);
  /* The same, but of a loss that is known: it asks no driver. */
  rondo_status (*check)(const struct device *device, const char *phase);
  /* Gives the device up as lost. The first cause stays. */
  rondo_status (*lose)(struct device *device, const char *cause);
  /* Waits until all work that was launched in the lane is done. */
  rondo_status (*drain)(struct device *device, uint32_t lane);
  /* Is the calling thread inside a task of this device, or in a callback that the device called? Then a wait for the
   * device would never end. */
  bool (*in_callback)(struct device *device);

  /* ---- GPUs only: NULL elsewhere ---- */
  /* Starts and stops keeping the device awake; calls are counted. Any thread may call it, without the group's lock:
   * it may wait for an exec_create, and the callbacks of that may take the lock. */
  rondo_status (*keep_warm)(struct device *device, bool on);
  /* Free bytes of device memory; 0 if that is not known. */
  uint64_t (*free_bytes)(struct device *device);
};

extern const struct device_ops host_device_ops;
extern const struct device_ops cuda_device_ops;
