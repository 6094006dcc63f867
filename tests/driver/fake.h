/* fake.h - the inside of the fake driver: its state, and what its files share. */
#pragma once

#include <pthread.h>

#include "../../runtime/cuda/abi.h"
#include "fake_driver.h"

/* Results that only the fake returns. */
enum {
  FAKE_NOT_INITIALIZED = 3,
  FAKE_INVALID_CONTEXT = 201,
  FAKE_PEER_ACCESS_UNSUPPORTED = 217,
  FAKE_ILLEGAL_STATE = 401,
  FAKE_INVALID_CLUSTER_SIZE = 912
};

enum call_name {
#define ENTRY_POINT(name, version, need, ...) CALL_##name,
#include "../../runtime/cuda/entry_points.h"
  CALL_cuGetProcAddress_v2,
  CALL_COUNT
};

enum kind {
  CONTEXT = 1,
  LIBRARY,
  KERNEL,
  FUNCTION,
  STREAM,
  GRAPH,
  NODE,
  EXEC,
  EVENT,
  GREEN,
  DESCRIPTION,
  CONDITION,
  KIND_COUNT
};

/* The registered kernels. */
enum { KERNEL_LIMIT = 64, KERNEL_PARAMETERS = 16, KERNEL_NAME_BYTES = 128 };

struct kernel_code {
  char name[KERNEL_NAME_BYTES];
  fake_kernel function;
  uint32_t parameter_count;
  size_t parameter_bytes[KERNEL_PARAMETERS];
  bool (*has_come)(const void *parameter); /* what it waits for; NULL: it does not wait */
};

enum { GPUS = 8 };

/* One of settings.device_count. */
struct gpu {
  void *context; /* the primary one; NULL: not retained */
  int32_t retained;
  uint32_t reaches; /* a bit for each GPU whose memory it may use */
  uint64_t bytes_used;
  cu_result lost;     /* the sticky error, or CU_SUCCESS */
  bool lost_observed; /* a caller has seen it */
};

struct memory {
  struct memory *next;
  struct gpu *gpu; /* that was current */
  void *begin;
  size_t bytes;
  bool pinned;
};

struct fake {
  pthread_mutex_t lock;   /* around all that follows; not held while a kernel runs */
  pthread_cond_t changed; /* work was put on a stream, or ran; a mode changed */
  struct fake_settings settings;
  bool initialized;
  bool func_load_found; /* by the caller */

  struct kernel_code kernels[KERNEL_LIMIT];
  uint32_t kernel_count;

  struct memory *memory;
  struct gpu gpus[GPUS];
  int32_t context_depth;

  struct stream *streams;
  uint64_t random;
  bool lose_armed;
  uint64_t lose_after;
  cu_result lose_result;

  const char *hooked;
  void (*hook)(void);

  uint64_t calls[CALL_COUNT], all_calls;
  uint64_t fail_at; /* in all_calls; 0: never */
  cu_result fail_result;
  const char *failed_call;
  const char *hidden;
  int32_t hidden_status;

  uint64_t programmatic_edges;
  uint32_t violation_count;
  char violations[1024];
  uint32_t last_order[256], last_order_count;
};

extern struct fake fake;

/* ---- Calls: fake_calls.c ----------------------------------------------------------------------------------------- */

/* Every entry point begins with CALL or ENDING_CALL, which take the lock until it returns. An injected failure returns
 * at once from a CALL; an ENDING_CALL does its work and returns call.later, so that no handle outlives its end. */
struct call {
  cu_result now, later;
};
struct call call_begin(enum call_name name, bool ending);
void call_end(struct call *call);

#define CALL(name)                                                                                                     \
  __attribute__((cleanup(call_end))) struct call call = call_begin(CALL_##name, false);                                \
  if (call.now != CU_SUCCESS) return call.now
#define ENDING_CALL(name)                                                                                              \
  __attribute__((cleanup(call_end))) struct call call = call_begin(CALL_##name, true);                                 \
  if (call.now != CU_SUCCESS) return call.now

bool result_is_sticky(cu_result result);

#define ENTRY_POINT(name, version, need, ...) cu_result fake_##name(__VA_ARGS__);
#include "../../runtime/cuda/entry_points.h"

/* ---- Handles and violations: fake_object.c ----------------------------------------------------------------------- */

__attribute__((format(printf, 1, 2))) void violation(const char *format, ...);

/* Handles are numbers, not addresses: kind, generation and index, so that one used after its end is known. */
void *object_create(enum kind kind, void *body);
void *object_body(const void *handle, enum kind kind, const char *function); /* NULL, and a violation, if not live */
void object_end(const void *handle);
uint32_t objects_live(char *text, size_t bytes);
void objects_reset(void);

/* ---- Devices and contexts: fake_gpu.c ------------------------------------------------------------------------- */

bool device_exists(cu_device device);
void primary_retain(struct gpu *gpu);
void primary_release(struct gpu *gpu);
/* Of entry points that need a current context. */
bool context_is_current(const char *function);
struct gpu *gpu_current(void); /* NULL: no primary context is current */
struct gpu *gpu_of_context(const void *context, const char *function);
bool gpu_reaches(const struct gpu *gpu, const struct gpu *peer);
void gpu_lose(struct gpu *gpu, cu_result result);
/* The lost GPU that makes a call fail; NULL: none. */
struct gpu *gpu_concerned(void);
/* The error of a lost GPU. `function`: a call that a caller who has seen the error does not make. */
cu_result gpu_lost_now(struct gpu *gpu, bool is_observed, const char *function);
void contexts_reset(void);

/* ---- Parts of the device: fake_green.c --------------------------------------------------------------------------- */

struct green {
  void *handle, *context; /* the context is NULL until it is asked for */
  struct gpu *gpu;
  uint64_t groups; /* a bit for each; the last: what is in none */
  int32_t multiprocessors;
};

/* Of a context that a kernel node may name; 0 if it may not. */
int32_t context_multiprocessors(const void *context, const char *function);

/* ---- Memory: fake_memory.c --------------------------------------------------------------------------------------- */

bool memory_holds(uint64_t address, uint64_t bytes);
/* Is the address in another GPU's memory, which this one does not reach? */
bool memory_is_apart(const struct gpu *gpu, uint64_t address);
uint32_t memory_live(char *text, size_t bytes);
void memory_reset(void);

/* ---- Kernels: fake_kernel.c -------------------------------------------------------------------------------------- */

struct kernel {
  void *handle, *function; /* the function is NULL until it is asked for */
  const struct kernel_code *code;
  int32_t static_shared_bytes, dynamic_shared_bytes; /* it has; the opted-in limit */
  int32_t cluster_width;
  bool non_portable; /* wider clusters than eight blocks are allowed */
  bool loaded;
  struct kernel *next; /* of its library */
};

void kernels_reset(void);
void register_kernel(const char *name, fake_kernel function, uint32_t parameter_count, const size_t *parameter_bytes);
size_t kernel_parameter_offset(const struct kernel_code *code, size_t index);

/* ---- Graphs: fake_graph.c ---------------------------------------------------------------------------------------- */

/* The value of a loop's handle. */
struct condition {
  void *handle;
  struct graph *graph; /* that owns it */
  const void *context;
  bool is_assigned; /* `initial`, at each launch */
  bool has_node;
  uint32_t initial, value;
  struct condition *next; /* of the graph */
};

/* What a node does. */
struct node_work {
  int32_t type;
  struct condition *condition;    /* of a loop */
  const struct kernel_code *code; /* NULL: `work` */
  uint32_t grid[3], block[3], shared_bytes;
  struct gpu *gpu;                         /* of a kernel's context */
  int32_t multiprocessors;                 /* of the context that it runs in */
  _Alignas(16) unsigned char values[1024]; /* of the parameters */
  const bool *is_off;                      /* of a kernel that other kernels turn off; NULL: of any other node */
  struct fake_work work;
};

struct node {
  void *handle;
  struct graph *graph;
  uint32_t index;
  struct node_work work;
  bool is_off, was_instantiated;
  struct graph *child;        /* of a loop the body */
  struct cu_graph *bodies[1]; /* its handle */
  uint32_t dependency_count;
  struct node **dependencies;
};

struct graph {
  void *handle;
  uint64_t number; /* that captures into it have */
  bool is_child;
  const struct condition *loop; /* whose body it is; NULL: none */
  struct condition *conditions;
  uint32_t node_count, node_room;
  struct node **nodes; /* each after those that it depends on */
};

struct exec_node {
  struct node_work work;
  const void *source;     /* the handle of the graph's node */
  uint32_t first, last;   /* of a loop: nodes of its body. Its own node comes before them, and the last is after all */
  struct condition *loop; /* of the last */
  uint32_t dependency_count;
  uint32_t *dependencies;
};

struct exec {
  void *handle;
  struct gpu *gpu;
  uint32_t node_count, node_room;
  struct exec_node *nodes;
  uint32_t in_flight;
  bool waits; /* a kernel of it may */
  uint64_t device_bytes;
  struct item *spare; /* of a launch: it allocates nothing unless the exec is in flight. NULL while in use */
};

struct node *graph_append(struct graph *graph, const struct node_work *work, struct node *const *dependencies,
                          size_t count);
struct graph *graph_new(bool is_child);
struct graph *graph_clone(const struct graph *from); /* a child */
void graph_free(struct graph *graph);
void exec_free(struct exec *exec);
/* cudaGraphSetConditional and cudaGraphKernelNodeSetEnabled, as a kernel calls them. */
void condition_set(uint64_t handle, uint32_t value);
void node_enable(uint64_t handle, bool on);
enum { EXEC_NODE_BYTES = 2700 }; /* of device memory, about as an H200's driver takes */

/* ---- Streams: fake_stream.c -------------------------------------------------------------------------------------- */

enum item_kind { ITEM_LAUNCH, ITEM_COPY, ITEM_FILL, ITEM_RECORD, ITEM_WAIT, ITEM_CALL };

struct event {
  void *handle;
  uint64_t recorded, done; /* how many records were put on streams, and have run */
  struct stream *stream;   /* of the last record */
  uint32_t items;          /* that name it */
};

/* A piece of work on a stream. */
struct item {
  struct item *next;
  enum item_kind kind;
  void *destination;
  const void *source;
  int value;
  size_t bytes;
  struct event *event;
  uint64_t record;              /* of the event: this one, or the one to wait for, */
  struct stream *from;          /* which was put on this stream */
  void (*function)(void *data); /* ITEM_CALL, with the destination */
  struct exec *exec;
  bool has_begun;
  uint32_t done_count;
  uint64_t *priority; /* of the exec's nodes; 0: has run */
  uint32_t *order;
};

enum { CAPTURE_NONE = 0, CAPTURE_INVALIDATED = 2 }; /* and CU_CAPTURE_ACTIVE */

struct stream {
  struct stream *next;
  void *handle;
  struct gpu *gpu;
  struct green *green; /* NULL: of the primary context */
  uint64_t launches;
  struct item *first, *last;
  bool running; /* somebody runs the first item's step */
  /* Capture. */
  int32_t capture;
  struct graph *graph;
  pthread_t capturer;
  uint32_t frontier_count;
  void *frontier[64]; /* handles of the nodes that the next one comes after */
};

cu_result stream_put(struct stream *stream, struct item *item);
struct item *launch_item_new(struct exec *exec);
void item_free(struct item *item);
bool streams_idle(const struct gpu *gpu);
void streams_finish(const struct gpu *gpu);
struct stream *stream_new(struct gpu *gpu, struct green *green, int priority);
void streams_reset(void);
void worker_start(void); /* of FAKE_THREAD */
/* The GPU whose work the thread runs. */
struct gpu *gpu_running(void);

/* ---- Capture: fake_capture.c ------------------------------------------------------------------------------------- */

/* Calls that a capture does not survive: on a capturing stream, or (stream NULL) on the capturing thread. */
bool capture_forbids(struct stream *stream, const char *function);
/* Besides, of a call that waits, asks or allocates: any capture of the calling thread, or in the global mode by another
 * one, unless the thread is relaxed. */
bool capture_forbids_waiting(struct stream *stream, const char *function);
int32_t fake_enqueue(void *stream, const struct fake_work *work, uint32_t count);
void fake_break_capture(void *stream);
