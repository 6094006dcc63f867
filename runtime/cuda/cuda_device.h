/* cuda_device.h - the inside of a CUDA device: what its files share. */
#ifndef RONDO_CUDA_DEVICE_H
#define RONDO_CUDA_DEVICE_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "../lane.h"
#include "driver.h"
#include "filling.h"

enum { CAPTURE_NODE_LIMIT = 131072, CAUSE_BYTES = 384, EMPTY_EXEC_BYTES = 512 };

/* keep_warm: see heartbeat.c. */
struct heartbeat {
  pthread_mutex_t lock; /* around keep_warm; taken before the device's */
  atomic_uint users;
  atomic_bool stop;
  bool is_stuck;   /* of a lost device: its thread does not return from the driver */
  atomic_int core; /* of the thread that replays */
  _Atomic uint64_t replays;
  pthread_t thread;
  struct cu_stream *stream;
  struct device_exec *exec;
  _Alignas(64) unsigned char memory[EMPTY_EXEC_BYTES]; /* of an exec with no nodes */
};

/* Pinned memory through which uploads go, as a ring: see upload.c. Positions in it only grow. */
enum { STAGING_COPIES = 16 };
struct staged_piece {
  cu_address destination;
  uint64_t begin, end;
};
struct staging {
  unsigned char *memory;    /* NULL: there is none */
  struct cu_stream *stream; /* of the copies, and nothing else */
  pthread_mutex_t lock;     /* around all below, but for whether copies are on their way */
  struct staged_piece pieces[PLACES];
  uint64_t filled_to, freed_to;            /* positions: behind the last piece, and behind what has been copied */
  uint64_t sent, freed;                    /* pieces that are in a copy, and whose copies have ended */
  _Atomic uint64_t begun, ended;           /* copies; between them those on their way */
  struct cu_event *copied[STAGING_COPIES]; /* what ends each of these, and behind which piece */
  uint64_t ends[STAGING_COPIES];
  struct filling filling;
};

/* A queue of the device, perhaps with multiprocessors of its own: see lanes.c. */
struct lane {
  struct cu_green_context *green;   /* NULL: the whole device. Lanes that share multiprocessors share it */
  struct cu_context *context;       /* that its kernel nodes name */
  struct cu_stream *stream;         /* its replays and downloads, and what the driver uploads, in order */
  struct cu_stream *capture_stream; /* replays go on while another graph is instantiated */
  struct chip chip;
  _Atomic uint32_t launching; /* threads inside a launch: see cuda_replay.c */
};

struct device {
  struct driver driver;
  rondo_allocator allocator;
  uint64_t own_bytes;
  cu_device ordinal;
  bool context_retained;
  struct cu_context *context; /* the primary one, shared with whoever else uses the GPU in this process */
  struct lane lanes[RONDO_MAX_LANES];
  uint32_t lane_count;
  cu_address device_memory;
  uint64_t *own_memory; /* behind the device pool: the heartbeat's count and word */
  void *pinned_memory;
  struct chip chip;
  bool kernels_overlap; /* the code for this chip waits with griddepcontrol */
  /* The first fatal error. Whoever wins `claimed` writes `cause` and then sets `lost`. */
  atomic_bool claimed, lost;
  char cause[CAUSE_BYTES];
  /* Instantiating takes turns: kernel attributes, capture streams and the node list are the device's. */
  pthread_mutex_t lock;
  sigset_t signals;          /* that were blocked before, by the thread that holds the lock */
  atomic_uintptr_t capturer; /* the thread that is in a callback and holds the lock; 0: none */
  atomic_bool has_noticed;
  struct heartbeat heartbeat;
  struct staging staging;
  struct cu_graph_node **captured; /* CAPTURE_NODE_LIMIT */
  struct cu_library *libraries[];  /* of device_images; NULL: no graph has asked for one of its kernels yet */
};

/* Makes the device's context current; RONDO_DEVICE_LOST once it is lost. */
rondo_status device_enter(struct device *device, const char *phase);
void device_leave(struct device *device);

/* RONDO_DEVICE_LOST, with the first cause. */
rondo_status device_lost_status(const struct device *device, const char *phase);

/* A driver call failed: text and status, and if the error is fatal the device is lost from now on. The sentence begins
 * as the format says, "instantiate: task 'a': cuGraphAddNode". */
rondo_status device_failed(struct device *device, cu_result result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool device_lost(const struct device *device);
rondo_status device_lose(struct device *device, const char *cause);

/* Lets the thread's calls through beside captures of others: see cuda_device.c. The mode is given back. */
int device_relax(const struct device *device);
void device_restore(const struct device *device, int mode);
/* cuStreamQuery and cuStreamSynchronize, so let through. The context is current. */
cu_result device_query(const struct device *device, struct cu_stream *stream);
cu_result device_synchronize(const struct device *device, struct cu_stream *stream);

/* Looks a kernel up in Rondo's own images, and loads its image the first time. CU_NOT_FOUND if no image has the kernel.
 * *function is the driver's function that failed. The caller holds the device's lock, or opens the device. */
cu_result device_find_kernel(struct device *device, const char *name, struct cu_kernel **kernel, const char **function);

/* A kernel node, as rondo_rebind changes it. */
struct launch_node {
  struct cu_graph_node *node;
  struct cu_kernel *kernel;
};

struct device_exec {
  struct device *device;
  struct lane *lane;
  struct cu_event *event; /* orders a launch in another stream with the lane's */
  struct cu_graph *graph; /* its nodes are the names of the executable graph's */
  struct cu_graph_exec *graph_exec;
  struct launch_node *launches; /* of each node of the program from its first_launch on */
  uint8_t *first_word;          /* of completion, for each node; see launches.c */
  uint32_t library_count;
  struct cu_library **libraries; /* of the user's images */
  struct notice *notice;
};

/* launches.c: what an operation launches on this device. Its last launch publishes completion if it has words. */
rondo_status choose_launches(const struct device_exec *exec, const struct device_program *program, uint32_t node,
                             const char *phase, struct op_launches *launches);
/* Gives the nodes that end the graph their words. Returns how many; 0: a node behind them all must publish. *end_count
 * is the number of those nodes. */
uint32_t assign_words(const struct device_exec *exec, const struct device_program *program, uint32_t *end_count);
struct completion completion_at(const struct device_program *program, uint32_t word);

/* The addresses of a kernel's parameters. */
void own_kernel_node(struct op_launch *launch, void **parameter, struct cu_kernel_node *kernel_node);
void user_kernel_node(const struct device_node *node, void **parameters, struct cu_kernel_node *kernel_node);

/* lanes.c: makes them as the options ask, and tells in info what each was given. The device's context is current. */
rondo_status lanes_open(struct device *device, const rondo_options *options, struct device_info *info);
void lanes_close(struct device *device);
cu_result lane_stream(const struct device *device, const struct lane *lane, int priority, struct cu_stream **stream);

/* cuda_graph.c, cuda_replay.c */
struct device_exec_bytes cuda_exec_bytes(const struct device_program *program);
rondo_status cuda_exec_create(struct device *device, const struct device_program *program, struct device_exec **exec);
rondo_status cuda_exec_launch(struct device_exec *exec, void *const *stream);
void cuda_exec_destroy(struct device_exec *exec);

/* rebind.c */
rondo_status cuda_exec_rebind(struct device_exec *exec, const struct device_program *program, uint32_t node);

/* upload.c: what could not be taken is done without, unless the device is lost. The device's context is current. */
rondo_status staging_open(struct device *device, uint64_t device_bytes);
void staging_close(struct device *device);
/* From the `first` on as many as can are put on the staging's stream, with nobody reading their sources any more; *next
 * is behind them, and for the driver. */
rondo_status upload_staged(struct device *device, const struct device_uploads *uploads, uint32_t first, uint32_t *next);
rondo_status cuda_await_uploads(struct device *device, uint32_t lane);

/* heartbeat.c */
rondo_status cuda_keep_warm(struct device *device, bool on);
void heartbeat_follow(struct device *device); /* by whoever replays */

/* capture.c: lets the user's callback enqueue its work on the lane's stream behind `dependencies`, into the graph. The
 * nodes after which all of it is done are left at the start of device->captured. The device's lock is held. The graph
 * is gone, and *graph NULL, after a capture that was broken. */
struct captured {
  size_t leaf_count;
  size_t node_count; /* of the graph by then */
};
rondo_status capture_into(struct device *device, const struct lane *lane, struct cu_graph **graph,
                          const struct device_node *node, struct cu_graph_node *const *dependencies,
                          size_t dependency_count, struct captured *captured);
/* Looks all captured work through. What no replay may do is left in *forbidden, NULL if there is none, and its place
 * among the graph's nodes in *index. */
rondo_status capture_audit(struct device *device, struct cu_graph *graph, const char **forbidden, size_t *index);
bool cuda_in_callback(struct device *device);

#endif
