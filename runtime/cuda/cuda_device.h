/* cuda_device.h - the structs that the files of the CUDA backend share. The ground floor: it knows none of their
 * functions. */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "../device.h"
#include "driver.h"

enum { CAPTURE_NODE_LIMIT = 131072, CAUSE_BYTES = 384, EMPTY_EXEC_BYTES = 512, LEFT_LIBRARIES = 256 };

/* keep_warm: see heartbeat.c. */
struct heartbeat {
  pthread_mutex_t lock; /* around keep_warm; taken before the device's */
  atomic_uint users;
  atomic_bool stop;
  bool is_stuck;   /* of a lost device: the thread does not return from the driver */
  atomic_int core; /* of the thread that replays */
  _Atomic uint64_t replays;
  pthread_t thread;
  struct cu_stream *stream;
  struct device_exec *exec;
  _Alignas(64) unsigned char memory[EMPTY_EXEC_BYTES]; /* of an exec with no nodes */
};

/* A queue of the device, perhaps with multiprocessors of its own: see lanes.c. */
struct lane {
  struct cu_green_context *green;   /* NULL: the whole device. Lanes that share multiprocessors share it */
  struct cu_context *context;       /* of its kernel nodes */
  struct cu_stream *stream;         /* its replays, downloads and uploads by the driver, in order */
  struct cu_stream *capture_stream; /* replays go on while another graph is instantiated */
  struct chip chip;
  _Atomic uint32_t launching; /* threads that put work into it, and those that hold it: see turns.c */
  _Atomic uint32_t holds;
  _Atomic(struct device_exec *) resident; /* the last one that was put on the device */
};

/* See resident.c. */
struct residents {
  pthread_mutex_t coming; /* of one exec at a time, or going; taken before the lock */
  pthread_mutex_t lock;
  pthread_cond_t changed; /* an exec was put on the device, or left the list */
  struct device_exec *execs;
  pthread_t thread; /* while there are some */
  bool stop;
};

struct device {
  struct driver driver;
  rondo_allocator allocator;
  uint64_t own_bytes;
  cu_device ordinal;
  bool context_retained;
  struct cu_context *context; /* the primary one, shared with all other users of the GPU in this process */
  struct lane lanes[RONDO_MAX_LANES];
  uint32_t lane_count;
  cu_address device_memory;
  uint64_t *own_memory; /* after the device pool: the heartbeat's count and word */
  void *pinned_memory;
  _Atomic uint64_t *fault; /* after the pinned pool; see fault.h. NULL: there is no pool yet */
  struct chip chip;
  bool kernels_overlap; /* the code for this chip waits by griddepcontrol */
  /* The first fatal error. The thread that wins `claimed` writes `cause` and then sets `lost`: see cuda_failure.c. */
  atomic_bool claimed, lost;
  char cause[CAUSE_BYTES];
  /* One thread instantiates at a time: kernel attributes, capture streams and the list of nodes are the device's. */
  pthread_mutex_t lock;
  sigset_t signals;          /* the signal mask of the thread that holds the lock, before it took it */
  atomic_uintptr_t capturer; /* the thread that is in a callback and holds the lock; 0: none */
  atomic_bool has_noticed;   /* a notice was sent: the driver has started its thread for them */
  struct heartbeat heartbeat;
  struct residents residents;
  struct staging *staging;
  struct cu_graph_node **captured;                   /* CAPTURE_NODE_LIMIT */
  _Atomic(struct cu_library *) left[LEFT_LIBRARIES]; /* by closed execs: see images.h */
  struct cu_library *libraries[]; /* of device_images; NULL: no graph has asked for one of its kernels yet */
};

/* A kernel node, as a binding changes it. */
struct launch_node {
  struct cu_graph_node *node;
  struct cu_kernel *kernel;
};

struct device_exec {
  struct device *device;
  struct lane *lane;
  struct cu_event *event; /* orders a launch in another stream with the lane's */
  struct cu_graph *graph; /* its nodes name those of the executable graph */
  struct cu_graph_exec *graph_exec;
  struct cu_graph *repeat_graph; /* both NULL in an exec without repeats */
  struct cu_graph_exec *repeat_exec;
  struct cu_graph *resident_graph; /* NULL, and all up to the next empty line, in an exec that is not resident */
  struct cu_graph_exec *resident_exec;
  struct doorbell *bell;
  uint64_t linger_ns;
  struct device_exec *next_resident; /* of the device; guarded by the lock of its residents, as the rest is */
  bool is_listed;
  uint64_t last_word, last_ns; /* a word of the bell, and since when it has been so */

  struct launch_node *launches; /* of each node of the program from its first_launch on */
  uint8_t *first_word;          /* of completion, for each node; see launches.c */
  uint32_t library_count;
  struct cu_library **libraries; /* of the user's images */
  struct notice *notice;
};
