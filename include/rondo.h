/* rondo.h - a static runtime for GPU task graphs.
 *
 *     describe            plan                 instantiate            replay
 *     graph        ->     order, lifetimes ->  addresses, one exec -> one driver call,
 *     tensors, tasks      offsets, bytes       graph per slot         one word to wait on
 *
 * A program opens a runtime with three fixed pools (device, pinned, host), describes its work once as a graph of
 * tasks over tensors, instantiates it, and from then on only replays it. Where there is no GPU the same graph runs
 * on the host backend, with the same plan. All of it, for y = W x with four-bit weights and one vector at a time:
 *
 *     #include <rondo.h>
 *     #include <stdio.h>
 *     #include <string.h>
 *
 *     #define TRY(call) \
 *       do { \
 *         if ((call) != RONDO_OK) return fprintf(stderr, "%s\n", rondo_error_text()), 1; \
 *       } while (0)
 *
 *     enum { M = 1024, K = 512 };
 *     static unsigned char codes[M * K / 2], scales[M * K / 16]; // two codes a byte, a scale for 16 of them
 *
 *     int main(void) {
 *       memset(codes, 0x22, sizeof codes);   // e2m1: every weight is 1
 *       memset(scales, 0x38, sizeof scales); // e4m3: times 1
 *
 *       rondo_graph *graph; // describe: no device yet
 *       rondo_tensor w, w_scales, x, y;
 *       TRY(rondo_graph_create(NULL, NULL, &graph));
 *       TRY(rondo_constant(graph, "w", RONDO_NVFP4, 2, (int64_t[]){M, K}, &w));
 *       TRY(rondo_constant(graph, "w scales", RONDO_E4M3, 2, (int64_t[]){M, K / 16}, &w_scales));
 *       TRY(rondo_input(graph, "x", RONDO_BF16, 2, (int64_t[]){1, K}, &x));
 *       TRY(rondo_output(graph, "y", RONDO_F32, 2, (int64_t[]){1, M}, &y));
 *       rondo_gemv_desc product = {.name = "w x", .weights = w, .weight_scales = w_scales, .vectors = x, .out = y};
 *       TRY(rondo_add_gemv(graph, &product));
 *
 *       rondo_plan plan; // plan: how much memory that takes
 *       TRY(rondo_plan_graph(graph, &plan));
 *
 *       rondo_runtime *runtime;
 *       TRY(rondo_open(&(rondo_options){.device_bytes = plan.device_bytes,
 *                                       .pinned_bytes = plan.pinned_bytes_per_slot,
 *                                       .host_bytes = plan.host_bytes},
 *                      &runtime));
 *
 *       rondo_exec *exec; // instantiate: all that is slow
 *       TRY(rondo_instantiate(runtime, graph, NULL, &exec));
 *       TRY(rondo_upload(exec, w, codes, sizeof codes));
 *       TRY(rondo_upload(exec, w_scales, scales, sizeof scales));
 *
 *       rondo_slot slot; // replay: as often as there is something to compute
 *       TRY(rondo_acquire(exec, &slot));
 *       uint16_t *input = rondo_data(slot, x);
 *       for (int i = 0; i < K; i++) input[i] = 0x3f80; // bf16: 1
 *       TRY(rondo_replay(slot));
 *       TRY(rondo_wait(slot, RONDO_FOREVER));
 *       const float *output = rondo_data(slot, y);
 *       printf("y[0] is %g, expected %d\n", (double)output[0], K);
 *       int wrong = output[0] != K;
 *
 *       TRY(rondo_release(slot));
 *       TRY(rondo_close_exec(&exec));
 *       TRY(rondo_close(&runtime));
 *       TRY(rondo_graph_destroy(&graph));
 *       return wrong;
 *     }
 *
 * Conventions, true for every function below unless it says otherwise:
 *   - The result is a rondo_status; the last argument is the out-parameter, written only on RONDO_OK.
 *   - On failure rondo_error_text() gives one sentence about the last failed call of the calling thread: it names the
 *     phase, the task, the tensor and what was expected. A failed call changes nothing.
 *   - Every function may fail with RONDO_INVALID_ARGUMENT (a NULL or an ended handle, a tensor of another graph, what
 *     does not fit together) and RONDO_INVALID_STATE (not now, and not in a child of fork), those that describe or plan
 *     with RONDO_OUT_OF_MEMORY, and those that reach the device with RONDO_DEVICE_ERROR and RONDO_DEVICE_LOST. "Errors"
 *     below tells what else there is, or what is worth telling.
 *   - Structures are plain descriptors for designated initialisers: a zero field means the documented default, an
 *     all-zero rondo_tensor means "absent". What they point to is read during the call only, but for images of kernels,
 *     callbacks and their `user`.
 *   - Handles are owned by the caller and ended by the function that takes their address, which sets them to NULL.
 *     Ending NULL is a no-op.
 *
 * Threads:
 *   - A runtime: rondo_open, rondo_close and rondo_instantiate may be called by any thread, several at a time, and so
 *     may rondo_runtime_info, rondo_runtime_health and rondo_lane_info; nobody uses a runtime that is being closed.
 *   - A graph is used by one thread at a time: all that describes, plans, instantiates or draws it.
 *   - An exec: any number of threads may call rondo_acquire, rondo_acquire_within, rondo_wait_any and rondo_exec_info,
 *     with no lock. rondo_upload, rondo_upload_all and rondo_download want that no other thread replays it, or an exec
 *     that borrows from it; rondo_close_exec that nobody uses it. Several threads may make, set, read and close execs
 *     that share constants and states: of two calls that exclude each other the second one is refused.
 *   - A slot is its holder's, who fills, replays, rebinds, profiles and releases it, one thread at a time, while others
 *     hold other slots. The holder may hand it to another thread, by rondo_wait_any or by any means that orders memory;
 *     that thread is then its holder. Any other thread may call rondo_poll, rondo_wait and rondo_data at any time.
 *   - Different graphs and execs are independent of each other. Functions of values alone (rondo_dtype_bits, say) are
 *     for any thread at any time.
 *   - Threads that the library starts take no signals of the application; nor do those that the driver starts in
 *     rondo_open and rondo_instantiate, in a slot's first replay and in a device's first notice.
 *   - What is computed is computed in the default floating-point state, whatever the calling thread's is (one that
 *     flushes, rounds otherwise or traps); that stays as it was.
 *   - A child of fork cannot use what was made before with a runtime: every call on such a runtime, graph, exec or
 *     slot, closing too, is RONDO_INVALID_STATE there, at once, and touches neither the GPU nor any thread (Linux 4.14
 *     and newer). The child need close nothing. It may open a runtime of its own; CUDA's driver refuses that, as
 *     RONDO_NO_DEVICE, where the parent has used the GPU. Graphs made without a runtime are the child's as any memory.
 */
#ifndef RONDO_H
#define RONDO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if !defined(__GNUC__)
#define RONDO_API
#define RONDO_INLINE inline
#elif defined(__cplusplus)
#define RONDO_API    __attribute__((visibility("default")))
#define RONDO_INLINE __attribute__((always_inline)) inline
#elif defined(__GNUC_GNU_INLINE__) /* C before C99: what is inline there is also a function of every file's */
#define RONDO_API    __attribute__((visibility("default")))
#define RONDO_INLINE __attribute__((always_inline, gnu_inline)) extern __inline__
#else
#define RONDO_API    __attribute__((visibility("default")))
#define RONDO_INLINE __attribute__((always_inline)) __inline__
#endif

/* What a field of a descriptor is that an initialiser leaves out. C knows; in C++ it keeps g++ -Wextra from a warning
 * for each such field. Before C++14 a structure that says so would not be initialised in braces. */
#if defined(__cplusplus) && __cplusplus >= 201402L
#define RONDO_ZERO = {}
#else
#define RONDO_ZERO
#endif

/* Of this header; rondo_version tells the library's. RONDO_VERSION grows with every release: 10203 for 1.2.3. */
#define RONDO_VERSION_MAJOR 0
#define RONDO_VERSION_MINOR 1
#define RONDO_VERSION_PATCH 0

#define RONDO_VERSION (RONDO_VERSION_MAJOR * 10000u + RONDO_VERSION_MINOR * 100u + RONDO_VERSION_PATCH)

#define RONDO_VERSION_STRING RONDO_DOTTED(RONDO_VERSION_MAJOR, RONDO_VERSION_MINOR, RONDO_VERSION_PATCH)

#define RONDO_DOTTED(a, b, c)      RONDO_DOTTED_TEXT(a, b, c)
#define RONDO_DOTTED_TEXT(a, b, c) #a "." #b "." #c

/* What a program and the library must agree on: it is the number in the library's soname, and rondo_open checks it. */
#define RONDO_ABI_VERSION 2u

#define RONDO_MAX_RANK  4
#define RONDO_MAX_SLOTS 16
#define RONDO_MAX_LANES 8
/* The most elements of one tensor: 2^31. */
#define RONDO_MAX_ELEMENTS (INT64_C(1) << 31)

/* The library's RONDO_VERSION. Any thread, any time; never fails. */
RONDO_API uint32_t rondo_version(void);

/* ---- Status ------------------------------------------------------------------------------------------------------ */

typedef enum rondo_status {
  RONDO_OK = 0,
  RONDO_BUSY,             /* the slot is in flight, or no slot is free: try again later */
  RONDO_TIMEOUT,          /* not in time. rondo_wait: the replay is still in flight */
  RONDO_INVALID_ARGUMENT, /* the call's arguments do not fit together */
  RONDO_INVALID_STATE,    /* the call is not allowed now: an exec still open, a stale slot, a sealed graph */
  RONDO_OUT_OF_MEMORY,    /* a pool or the allocator is too small; the text says how many bytes were needed */
  RONDO_UNSUPPORTED,      /* well-formed, but no code for it on this backend or chip */
  RONDO_NO_DEVICE,        /* the backend asked for cannot be used here; the text says why */
  RONDO_DEVICE_ERROR,     /* the driver refused a call; the runtime stays usable */
  /* A fatal device error: every later call on the runtime returns this and the first cause. The driver then has no GPU
   * for this process any more, whatever is closed and opened again: it must end. */
  RONDO_DEVICE_LOST,
  RONDO_IO_ERROR, /* a report could not be written */
  RONDO_INTERNAL  /* a bug in Rondo */
} rondo_status;

/* The status as a word, such as "RONDO_BUSY". Never NULL. */
RONDO_API const char *rondo_status_name(rondo_status status);

/* The sentence about the last failed call of this thread, "" if none failed. Valid until the thread's next failure. */
RONDO_API const char *rondo_error_text(void);

/* ---- Runtime: one device, three fixed pools ---------------------------------------------------------------------- */

typedef struct rondo_runtime rondo_runtime;
typedef struct rondo_allocator rondo_allocator; /* see Advanced, at the end */
typedef struct rondo_lane rondo_lane;

typedef enum rondo_backend {
  RONDO_BACKEND_AUTO = 0, /* CUDA where a usable GPU is present, else the host */
  RONDO_BACKEND_HOST,
  RONDO_BACKEND_CUDA
} rondo_backend;

/* How rondo_wait, rondo_wait_any and the host backend's threads wait. Threads of the host backend that have nothing to
 * do soon sleep until they are woken, by one system call of rondo_replay; all but the one that RONDO_WAIT_SPIN tells
 * of. */
typedef enum rondo_wait_mode {
  RONDO_WAIT_SPIN_YIELD = 0, /* with CUDA: spin 50 us, then yield the core between looks. On the host backend, whose
                                tasks may need that core: spin, or sleep until the end, whichever was sooner when a few
                                waits for the slot did the one and the other. Now and then that is tried anew */
  RONDO_WAIT_SPIN, /* spin only: rondo_replay and rondo_wait make no system call, but for a slot's first replay
                      where it had no warm-up. On the host backend one thread of each lane spins too, busy
                      with a core even when there is nothing to do */
  RONDO_WAIT_BLOCK /* least CPU. With CUDA: sleep 20 us between looks. On the host backend: sleep until the end */
} rondo_wait_mode;

typedef struct rondo_options {
  rondo_backend backend RONDO_ZERO;
  int32_t device RONDO_ZERO;        /* CUDA device ordinal */
  uint64_t device_bytes RONDO_ZERO; /* pool sizes; rondo_plan_graph says what a graph needs */
  uint64_t pinned_bytes RONDO_ZERO;
  uint64_t host_bytes RONDO_ZERO; /* bookkeeping of graphs and execs; 0: 16 MiB */
  /* Host backend: threads of all lanes. 0: one for each core, at most 64, and no more than the CPU quota of the
   * process's control groups lets run all the time, but one a lane at least. Which cores there are rondo_open finds:
   * those of the thread that calls it; if that is pinned to one, those of the main thread; if that is too, those that
   * the process had when the library was loaded. On these cores, all of them, threads of the library run. The team
   * spins a moment before it sleeps: a service whose own threads are busy sets host_threads to the cores that these
   * leave. */
  uint32_t host_threads RONDO_ZERO;
  rondo_wait_mode wait_mode RONDO_ZERO;
  const rondo_allocator *allocator RONDO_ZERO; /* NULL: mimalloc. Copied */
  const rondo_lane *lanes RONDO_ZERO;          /* Copied */
  uint32_t lane_count RONDO_ZERO; /* at most RONDO_MAX_LANES; 0: one lane, the whole device, of the highest priority */
} rondo_options;

/* Opens a runtime: loads the driver, makes the context, takes the three pools. The runtime allocates nothing
 * after it, but in rondo_profile, and threads while uploads follow each other and a moment longer.
 * What lies in the host's memory is no more than the machine and its control group have to spare now, or, with an
 * allocator of the program's, than that gives. The system is asked for its pages when rondo_instantiate first uses
 * them, and so they may be lacking then: RONDO_OUT_OF_MEMORY. Those of the host pool are not asked for, but touched, by
 * what describes, plans and instantiates. None is first touched by a replay. Errors:
 * RONDO_NO_DEVICE (anything that keeps CUDA from being used here; RONDO_BACKEND_AUTO then takes the host),
 * RONDO_OUT_OF_MEMORY, RONDO_INVALID_ARGUMENT (also lanes that ask for more than there is, and a library of another ABI
 * than the program was compiled for), RONDO_UNSUPPORTED (a driver that cannot split the device).
 * A program that finds its functions with dlsym calls rondo_open_abi(RONDO_ABI_VERSION, ...); the symbol rondo_open is
 * in the library as well, and passes the library's own number: no check. */
RONDO_API rondo_status rondo_open_abi(uint32_t abi_version, const rondo_options *options, rondo_runtime **runtime);
RONDO_API RONDO_INLINE rondo_status rondo_open(const rondo_options *options, rondo_runtime **runtime) {
  return rondo_open_abi(RONDO_ABI_VERSION, options, runtime);
}

/* Closes the runtime and sets *runtime to NULL. Waits, without a limit, for what is on its lanes' streams, work of
 * other libraries too. Of a lost device what may still be touched is leaked: see rondo_close_exec_within. Errors:
 * RONDO_INVALID_STATE while an exec or a graph made with it is open, or inside a task of its own. */
RONDO_API rondo_status rondo_close(rondo_runtime **runtime);

typedef struct rondo_pool_info {
  uint64_t capacity_bytes;
  uint64_t used_bytes;
  uint64_t high_water_bytes;
} rondo_pool_info;

typedef struct rondo_info {
  rondo_backend backend;   /* HOST or CUDA, never AUTO */
  const char *reason;      /* why this backend, e.g. "host: no libcuda.so.1". Lives as long as the runtime */
  const char *device_name; /* e.g. "NVIDIA H200", "host, 16 threads" */
  int32_t chip;            /* 90 for sm_90; 0 on the host */
  int32_t multiprocessors; /* of the GPU; threads of all lanes on the host */
  int32_t driver_version;  /* CUDA's number, 13000 for 13.0; 0 on the host */
  rondo_pool_info device, pinned, host;
  uint32_t lane_count; /* at least 1 */
  /* Of the GPU's memory; 0 on the host, in a callback, or where the driver cannot tell. What rondo_open took beside the
   * device pool: streams, lanes, Rondo's own device code. The CUDA context is not in it, since it may have been there
   * before. Read off as free memory that went away, so what other processes take meanwhile is counted too. */
  uint64_t driver_bytes;
  uint64_t free_device_bytes; /* now, for all processes */
} rondo_info;

/* What was opened, and how full its pools are now. */
RONDO_API rondo_status rondo_runtime_info(rondo_runtime *runtime, rondo_info *info);

/* Is the device still there? RONDO_OK, or RONDO_DEVICE_LOST with the first cause. It needs no slot, takes no lock of
 * Rondo's, and asks the driver. Any thread may call it. It does not notice a kernel that hangs: its replay stays in
 * flight. */
RONDO_API rondo_status rondo_runtime_health(rondo_runtime *runtime);

/* ---- Describe: tensors ------------------------------------------------------------------------------------------- */

typedef struct rondo_graph rondo_graph;

/* A tensor or a view of one: a small value, valid while its graph lives. Of a destroyed graph it is refused, also by a
 * graph at the same address, as long as that graph's memory is there to be looked at: until the runtime it was made
 * with is closed. An exec takes the tensors of the graph that it was made from, whether that still lives or not. */
typedef struct rondo_tensor {
  rondo_graph *graph;
  uint32_t index;
  uint64_t serial; /* of the graph */
} rondo_tensor;

typedef enum rondo_dtype {
  RONDO_F64 = 1,
  RONDO_F32,
  RONDO_F16,
  RONDO_BF16,
  RONDO_E4M3,  /* fp8, 4 exponent and 3 mantissa bits, bias 7, no infinity (OCP FP8 E4M3) */
  RONDO_NVFP4, /* e2m1 codes, two a byte, the even element in the low nibble; scales are a tensor of their own */
  RONDO_I32,
  RONDO_U8
} rondo_dtype;

/* Bits of one element; 0 if dtype is not one of the above. */
RONDO_API uint32_t rondo_dtype_bits(rondo_dtype dtype);
/* "nvfp4", "bf16"; never NULL. */
RONDO_API const char *rondo_dtype_name(rondo_dtype dtype);

typedef struct rondo_graph_limits {
  uint32_t tensors RONDO_ZERO;                 /* tensors and views; 0: 1024, at most 1048576 */
  uint32_t tasks RONDO_ZERO;                   /* 0: 256, at most 262144 */
  const rondo_allocator *allocator RONDO_ZERO; /* of a graph made without a runtime; NULL: mimalloc. Copied */
} rondo_graph_limits;

/* Creates an empty graph. With a runtime its memory is carved from the host pool, and limits->allocator must be NULL;
 * without one it comes from the allocator (such a graph can be planned anywhere, and instantiated on any runtime).
 * A user's own work takes more of that memory as it is added, and so does planning: the plan is made once, by whoever
 * asks for it first, and kept until the description changes. limits may be NULL.
 * Errors: RONDO_OUT_OF_MEMORY (the text says how many bytes were needed), RONDO_INVALID_ARGUMENT. */
RONDO_API rondo_status rondo_graph_create(rondo_runtime *runtime_or_null, const rondo_graph_limits *limits,
                                          rondo_graph **graph);
/* Gives its memory back. Execs made from the graph live on without it. */
RONDO_API rondo_status rondo_graph_destroy(rondo_graph **graph);

/* Adds a tensor: row-major, dense, 1 to 4 dimensions; a dimension may be 0. The name is copied (63 bytes kept), used
 * in messages and reports, and may be NULL; what of it is no character that can be printed, such as a control code, is
 * shown there as U+FFFD. An nvfp4 tensor's last dimension is even.
 *   input      filled by the caller in each slot before a replay        (pinned, one per slot). It stays filled: rows
 *              that a replay does not need, of a batch that is not full say, are computed from what lies there, zeros
 *              at first
 *   output     read by the caller from the slot after a replay          (pinned, one per slot); tasks may read it too,
 *              behind those that write it
 *   constant   uploaded after instantiate, never written by a task
 *   state      lives across replays and slots, zero at first, e.g. a KV cache
 *   temporary  lives between its first writer and its last reader; shares bytes with others
 * Errors: RONDO_INVALID_ARGUMENT (a negative size, more than 2^31 elements, a type or rank that does not exist),
 * RONDO_OUT_OF_MEMORY (more tensors than the graph's limit). */
RONDO_API rondo_status rondo_input(rondo_graph *graph, const char *name, rondo_dtype dtype, uint32_t rank,
                                   const int64_t *shape, rondo_tensor *tensor);
RONDO_API rondo_status rondo_output(rondo_graph *graph, const char *name, rondo_dtype dtype, uint32_t rank,
                                    const int64_t *shape, rondo_tensor *tensor);
RONDO_API rondo_status rondo_constant(rondo_graph *graph, const char *name, rondo_dtype dtype, uint32_t rank,
                                      const int64_t *shape, rondo_tensor *tensor);
RONDO_API rondo_status rondo_state(rondo_graph *graph, const char *name, rondo_dtype dtype, uint32_t rank,
                                   const int64_t *shape, rondo_tensor *tensor);
RONDO_API rondo_status rondo_temporary(rondo_graph *graph, const char *name, rondo_dtype dtype, uint32_t rank,
                                       const int64_t *shape, rondo_tensor *tensor);

/* A rectangle of a tensor (or of a view): offset and extent per dimension, same rank. It keeps the strides of the
 * tensor: this is how a matrix gets a leading dimension, and QR a column panel. nvfp4: even offset and extent in the
 * last dimension. Errors: as rondo_input; a rectangle that is not inside the tensor. */
RONDO_API rondo_status rondo_view(rondo_graph *graph, rondo_tensor tensor, const int64_t *offset, const int64_t *extent,
                                  rondo_tensor *view);

/* The same elements, in the order of memory, in another shape of as many: a product [count, heads * d] as the queries
 * [count, heads, 1, d] of an attention. Nothing is copied. A tensor takes any shape, and so does a view that is dense.
 * A view with room between its rows takes a shape that keeps them apart: dimensions may be split, and joined where they
 * lie one behind the other; RONDO_INVALID_ARGUMENT otherwise. nvfp4: an even last dimension. A reshape is a view in
 * every other respect, and there are views of it and reshapes of those. */
RONDO_API rondo_status rondo_reshape(rondo_graph *graph, rondo_tensor tensor, uint32_t rank, const int64_t *shape,
                                     rondo_tensor *view);

/* A constant or state of another graph, or a view of one, in this graph too: one set of weights and KV caches, many
 * graphs over it. Its memory is that of the other graph's exec, uploaded there, once, and counted there; that exec is
 * open before this graph is instantiated, and closed after this graph's execs. The other graph lives during this call
 * only. What borrows the same tensor twice, or two views of it, gets views of one tensor, so that dependencies are
 * seen. Several graphs may write a state they share: execs of one lane follow each other.
 * Errors: RONDO_INVALID_ARGUMENT for a tensor that is neither constant nor state, or of the same graph. */
RONDO_API rondo_status rondo_borrow(rondo_graph *graph, rondo_tensor lent, rondo_tensor *tensor);

/* Dense bytes of a tensor or view, as moved by rondo_upload and held by a slot. */
RONDO_API rondo_status rondo_tensor_bytes(rondo_tensor tensor, uint64_t *bytes);

/* ---- Describe: tasks --------------------------------------------------------------------------------------------- */

/* Tasks run as if in the order in which they are added; those whose elements do not conflict may run side by side.
 * Operands of one task must not overlap where one is written, unless the description allows in-place use.
 * Every name is optional, copied, and used in messages and reports. All rondo_add_*: RONDO_INVALID_ARGUMENT where
 * operands do not fit, with the operand and the tensor; RONDO_OUT_OF_MEMORY beyond the graph's limit of tasks. */

/* dst := src, same dtype and shape; either may be a view. */
typedef struct rondo_copy_desc {
  const char *name RONDO_ZERO;
  rondo_tensor src RONDO_ZERO, dst RONDO_ZERO;
} rondo_copy_desc;
RONDO_API rondo_status rondo_add_copy(rondo_graph *graph, const rondo_copy_desc *desc);

/* Rows of src into dst, from a row on that is read on the device at each replay: what grows by itself, such as a KV
 * cache [batch, heads, capacity, d] (dimension 2) or [batch, capacity, heads, d] (dimension 1). What is not written of
 * dst stays as it was, so a dst that is a temporary or an output is written before. Any dtype; src has dst's, and its
 * shape but for the rows. An attention that follows takes kv_lengths = position + rows.
 *   dimension  which one counts rows; of nvfp4 not the last
 *   position   i32 [1], or [batch] with one for each of dimension 0: row r of src becomes row position + r of dst. A
 *              row that dst does not have, below 0 or beyond its capacity, is not written; the others are */
typedef struct rondo_append_desc {
  const char *name RONDO_ZERO;
  rondo_tensor src RONDO_ZERO, dst RONDO_ZERO;
  rondo_tensor position RONDO_ZERO;
  uint32_t dimension RONDO_ZERO;
} rondo_append_desc;
RONDO_API rondo_status rondo_add_append(rondo_graph *graph, const rondo_append_desc *desc);

/* How the scales of NVFP4 operands lie.
 *   RONDO_SCALES_BY_ROW  [.., rows, k/16]
 *   RONDO_SCALES_128X4   blocked, as cuBLAS and Blackwell's tensor cores take them: [.., rows, k/16] with rows rounded
 * up to 128s and k/16 to 4s, dense. Tiles of 128 rows x 4 scales, 512 bytes each, follow each other along k and then
 * along rows; scale j of row i is byte i % 32 * 16 + i / 32 * 4 + j of its tile. What lies beyond the matrix is not
 * read */
typedef enum rondo_scale_layout { RONDO_SCALES_BY_ROW = 0, RONDO_SCALES_128X4 } rondo_scale_layout;

/* y = scale * W x for 1..16 vectors: weights [batch, m, k], vectors [batch, count, k], out [batch, count, m] in f16,
 * bf16, f32 or nvfp4. The batch dimension may be left out of all. fp32 accumulation, sums in a fixed order. Several
 * matrices that see the same x, such as those of q, k and v, are one with all their rows, and their results views of
 * out.
 *   weights        f16, bf16 (vectors of the same type) | e4m3 (vectors f16 or bf16) | nvfp4 (vectors f16, bf16, nvfp4)
 *   weight_scales  nvfp4: e4m3 [batch, m, k/16], k a multiple of 16. e4m3: optional f32 [batch, m]. Else absent
 *   vector_scales  nvfp4 vectors: e4m3 [batch, count, k/16]. Else absent
 *   scale          per-tensor fp32 factor; 0 means 1
 *   one_order      1: a vector's result has the same bits with any count of vectors. 0: the order of its sums may
 *                  change between one vector, 2, 3 to 4, 5 to 8 and 9 to 16, which is faster
 *
 * What is done to x before, for vectors in f16 and bf16 (RMS norm: x / sqrt(mean(x^2) + epsilon) * norm):
 *   norm_epsilon   > 0: x is normalised. The mean is fp32, and its factor is applied to the sums
 *   norm           optional [k], of the vectors' type; x * norm is rounded to that type
 *
 * What is done to y before it is written, in this order, all of it in fp32:
 *   bias           optional [m] or [batch, m] in f16, bf16 or f32, added
 *   silu_mul       1: rows 2i and 2i + 1 of W are gate and up, and out is [batch, count, m/2]: silu(gate) * up
 *   residual       optional, of out's shape, in f16, bf16 or f32, added. It may be out itself
 *   out_scales     out is nvfp4, of rows that are a multiple of 16: e4m3 [batch, count, (columns of out)/16]. Quantised
 *                  as rondo_add_quantize_nvfp4 does
 *   out_global_scale  of that; 0 means 1
 *
 * Codes and scales of nvfp4 and e4m3 are taken exactly. A sum is off from its exact value by at most
 *   (8 + 4 sqrt(k/16)) 2^-24 sum |w x| + k 2^-141, and
 *   2^-38 max|x| sum |w| more with bf16 vectors and e4m3 or nvfp4 weights: parts of a vector become f16, each after a
 *     power of two of its own
 * times all that it is multiplied with. The factor of RMS norm is good to (4 + sqrt(k/16)) 2^-24 of itself, what is
 * done to y adds fp32 roundings of its own, and out's rounding adds half a unit.
 *
 * Values beyond out's range become infinities; a NaN scale makes its row or vector NaN and no other; code 8 is -0. */
typedef struct rondo_gemv_desc {
  const char *name RONDO_ZERO;
  rondo_tensor weights RONDO_ZERO, weight_scales RONDO_ZERO;
  rondo_tensor vectors RONDO_ZERO, vector_scales RONDO_ZERO;
  rondo_tensor out RONDO_ZERO;
  float scale RONDO_ZERO;
  rondo_scale_layout weight_scale_layout RONDO_ZERO, vector_scale_layout RONDO_ZERO;
  int32_t one_order RONDO_ZERO;
  float norm_epsilon RONDO_ZERO;
  rondo_tensor norm RONDO_ZERO;
  rondo_tensor bias RONDO_ZERO;
  int32_t silu_mul RONDO_ZERO;
  rondo_tensor residual RONDO_ZERO;
  rondo_tensor out_scales RONDO_ZERO;
  float out_global_scale RONDO_ZERO;
} rondo_gemv_desc;
RONDO_API rondo_status rondo_add_gemv(rondo_graph *graph, const rondo_gemv_desc *desc);

typedef enum rondo_head_layout {
  RONDO_BHSD = 0, /* [batch, heads, sequence, head dimension] */
  RONDO_BSHD      /* [batch, sequence, heads, head dimension] */
} rondo_head_layout;

/* Which two numbers of a row a rotary embedding turns together, as pair i. */
typedef enum rondo_rope_pairing {
  RONDO_ROPE_INTERLEAVED = 0, /* 2i and 2i + 1 */
  RONDO_ROPE_HALVES           /* i and i + d/2 */
} rondo_rope_pairing;

/* O = softmax(scale * Q K^T) V per head, f16 or bf16, head dimension 32, 64, 128 or 256. Query heads are a multiple of
 * KV heads (GQA). causal is bottom-right aligned: row i sees column j if j <= i + length - query length; with new_k, if
 * j <= position + i.
 * K and V may also be e4m3, both of them, and then q as well; o is f16 or bf16, and of q's type where q is not e4m3.
 * Their numbers count exactly, but where q is e4m3 too, with compute capability 9.0, head dimension 128, at least 64
 * query positions and without kv_pages, window and soft_cap, products and weights are e4m3: a score is off by up to
 * 2^-9 of the sum of its terms' magnitudes, o by up to 1/8 of the weighted mean of |v| (some 3% of o for random v), lse
 * by up to 0.08.
 *   kv_lengths  optional i32 [batch], read on the device at each replay: only the first kv_lengths[b] of the K and V
 *               rows count (clamped to 0 .. their capacity); what lies behind them is never used
 *   lse         optional f32 [batch, query heads, query length]: log-sum-exp of the scaled scores, -infinity for a row
 *               that sees nothing, or scores of -infinity alone (its output is 0)
 *   scale       0 means 1/sqrt(head dimension)
 *   splits      parts into which the KV sequence is cut, at most; 0 lets Rondo choose. The result's bits depend on it.
 *   kv_pages    optional i32 [batch, pages of an item], read on the device at each replay. k and v then are pools:
 *               [pages, KV heads, page rows, d] or, with BSHD, [pages, page rows, KV heads, d], page rows being a
 *               power of two of at least 16. KV row j of item b is row j % page rows of page
 *               kv_pages[b][j / page rows]; the capacity is pages of an item * page rows, at most 2^26. Items may
 *               share pages. An entry that is no page of the pool, such as -1, stands for rows that no query sees
 *   window      with causal: a row sees only the last so many of the columns that it would see; 0, as any number from
 *               the capacity on: all of them
 *   soft_cap    scores become soft_cap * tanh(score / soft_cap), before masks and softmax; 0: they stay as they are.
 *               With compute capability 9.0 and 64 query positions or more they may be off by 2^-11 of themselves
 *   q_scale, k_scale, v_scale
 *               of an e4m3 tensor: its numbers are multiplied by this; 0 means 1
 *   new_k, new_v
 *               optional, both: rows [batch, KV heads, query length, d] or, with BSHD, [batch, query length, KV heads,
 *               d], of k's type, f16 or bf16, that this task writes to k and v itself before it attends, row r of item
 *               b as KV row position[b] + r, through kv_pages too. A row that k has not, below 0, beyond the capacity
 *               or of no page, is not written. kv_lengths is absent: position + query length takes its place, as far as
 *               the capacity goes. With causal, query row r sees those of KV rows 0 to position + r that there are,
 *               also where the new rows do not all fit. k and v are written, so they are states, or temporaries that
 *               an earlier task writes; rows that one item writes are of no page that another one has
 *   position    i32 [1] or [batch], read on the device at each replay: of query row 0 and new row 0; where there is
 *               new_k or a rotary embedding
 *   rope_base, rope_pairing, rope_frequencies
 *               rope_base > 0, or rope_frequencies (optional f32 [d/2], radians a position for each pair): q, f16 or
 *               bf16, and new_k are turned first, at position + row, and rounded, as by a rotary embedding of this
 *               base: pair i by (position + row) * rope_base^(-2i/d)
 * How exact it is, with u half a unit of o's type (2^-11 for f16, 2^-8 for bf16), m the mean of |v| with the weights
 * of the row, and s the error of a score:
 *   |o - exact|   <= 1.01 u (|exact| + m) + (4 s + 2^-18) m + 2^-25 sum |v|
 *   |lse - exact| <= s + 10^-6 (|lse| + log(rows seen) + 1)
 *   s              = 2^-20 max over rows of scale * sum |q k|, and with soft_cap 2^-10 of the largest score more
 * In bf16 the last term of the first line is 2^-126 sum |v|. Where products and weights are e4m3 the terms named above
 * come to these.
 * On a GPU products of 16 bits are summed in fp32 by tensor cores, which truncate: o is low by some 2^-27 of the
 * weighted mean of |v| for each KV row of a split, 2^-10 at 131072 rows; by less where few query rows share a KV head.
 * With compute capability 9.0 or 10.0, an item's bits do not depend on a batch of up to 65535 where at most 16 query
 * rows (query length * query heads / KV heads; with head dimension 256, 15, or 8 where K and V are e4m3) share a KV
 * head, the head dimension is 64 or more, q is not e4m3, rows begin at multiples of 16 bytes, and the exec's lane has
 * 16 multiprocessors or more. */
typedef struct rondo_attention_desc {
  const char *name RONDO_ZERO;
  rondo_head_layout layout RONDO_ZERO;
  rondo_tensor q RONDO_ZERO, k RONDO_ZERO, v RONDO_ZERO, o RONDO_ZERO;
  rondo_tensor kv_lengths RONDO_ZERO;
  rondo_tensor lse RONDO_ZERO;
  float scale RONDO_ZERO;
  int32_t causal RONDO_ZERO;
  int32_t splits RONDO_ZERO;
  rondo_tensor kv_pages RONDO_ZERO;
  int32_t window RONDO_ZERO;
  float soft_cap RONDO_ZERO;
  float q_scale RONDO_ZERO, k_scale RONDO_ZERO, v_scale RONDO_ZERO;
  rondo_tensor new_k RONDO_ZERO, new_v RONDO_ZERO;
  rondo_tensor position RONDO_ZERO;
  rondo_tensor rope_frequencies RONDO_ZERO;
  float rope_base RONDO_ZERO;
  rondo_rope_pairing rope_pairing RONDO_ZERO;
} rondo_attention_desc;
RONDO_API rondo_status rondo_add_attention(rondo_graph *graph, const rondo_attention_desc *desc);

/* P = softmax over the rows of S = scale * A B^T: a [batch, m, k], b [batch, n, k] in f16 or bf16 (same), p [batch, m,
 * n] in f16, bf16 or f32. causal: column j counts for row i only if j <= i + n - m (bottom-right aligned); a row
 * without columns gives zeros. The batch dimension may be left out of all. scale 0 means 1. fp32 accumulation; p in 16
 * bits may be rounded twice, to within a unit in the last place. */
typedef struct rondo_gemm_softmax_desc {
  const char *name RONDO_ZERO;
  rondo_tensor a RONDO_ZERO, b RONDO_ZERO, p RONDO_ZERO;
  float scale RONDO_ZERO;
  int32_t causal RONDO_ZERO;
} rondo_gemm_softmax_desc;
RONDO_API rondo_status rondo_add_gemm_softmax(rondo_graph *graph, const rondo_gemm_softmax_desc *desc);

/* Row maxima of the same S: max f32 [batch, m]. A row without columns gives -infinity. */
typedef struct rondo_gemm_rowmax_desc {
  const char *name RONDO_ZERO;
  rondo_tensor a RONDO_ZERO, b RONDO_ZERO, max RONDO_ZERO;
  float scale RONDO_ZERO;
  int32_t causal RONDO_ZERO;
} rondo_gemm_rowmax_desc;
RONDO_API rondo_status rondo_add_gemm_rowmax(rondo_graph *graph, const rondo_gemm_rowmax_desc *desc);

/* Quantises rows to NVFP4: x [..., k] in f32, f16 or bf16, codes nvfp4 of the same shape, scales e4m3 [..., k/16], k a
 * multiple of 16. Per block of 16: scale = e4m3(amax / (6 global_scale)), code = e2m1(x / (scale global_scale)), both
 * round-to-nearest-even, saturating. x ~ code * scale * global_scale; global_scale 0 means 1. A NaN in a block makes
 * its scale NaN. */
typedef struct rondo_quantize_nvfp4_desc {
  const char *name RONDO_ZERO;
  rondo_tensor x RONDO_ZERO, codes RONDO_ZERO, scales RONDO_ZERO;
  float global_scale RONDO_ZERO;
} rondo_quantize_nvfp4_desc;
RONDO_API rondo_status rondo_add_quantize_nvfp4(rondo_graph *graph, const rondo_quantize_nvfp4_desc *desc);

/* The parts of a language model that are no products. All numbers are taken as fp32, which is what is computed in, and
 * rounded once. */

/* Rows of a table by ids that are read on the device at each replay, such as an embedding: out[i, :] = scale *
 * table[ids[i], :]. The table may be any tensor, a temporary too: so rows of a result are gathered.
 *   table         [rows, width] in f32, f16, bf16 or nvfp4
 *   table_scales  nvfp4: e4m3 [rows, width/16], width a multiple of 16. Else absent
 *   ids           i32 [count]. One that is no row of the table gives a row of NaN
 *   out           [count, width] in f32, f16 or bf16
 *   scale         0 means 1 */
typedef struct rondo_embed_desc {
  const char *name RONDO_ZERO;
  rondo_tensor table RONDO_ZERO, table_scales RONDO_ZERO;
  rondo_tensor ids RONDO_ZERO;
  rondo_tensor out RONDO_ZERO;
  float scale RONDO_ZERO;
} rondo_embed_desc;
RONDO_API rondo_status rondo_add_embed(rondo_graph *graph, const rondo_embed_desc *desc);

/* RMS norm over the last dimension: out = x * norm / sqrt(mean(x^2) + epsilon), multiplied from left to right. x [..,
 * k] and out in f32, f16 or bf16, of one shape; out may be x itself. norm optional [k] in f32, f16 or bf16. The factor
 * is good to (4 + sqrt(k/16)) 2^-24 of itself; a row has the same bits wherever it stands. Zeros with epsilon 0, and
 * numbers whose squares overflow, have no meaningful factor: NaN or zeros.
 *   x_parts  optional f32 [parts, .., k] of an x of rank 3 at most: what is normalised is x + the sum of the parts, as
 *            rondo_add_feed_forward leaves it. The parts are added up in their order, from the first on, then x is
 *            added; all in fp32, and the sum is rounded to x's type */
typedef struct rondo_rms_norm_desc {
  const char *name RONDO_ZERO;
  rondo_tensor x RONDO_ZERO, norm RONDO_ZERO;
  rondo_tensor out RONDO_ZERO;
  float epsilon RONDO_ZERO;
  rondo_tensor x_parts RONDO_ZERO;
} rondo_rms_norm_desc;
RONDO_API rondo_status rondo_add_rms_norm(rondo_graph *graph, const rondo_rms_norm_desc *desc);

/* Rotary embedding (Su et al., RoFormer, 2021): x and out [batch, heads, sequence, d] or, with RONDO_BSHD, [batch,
 * sequence, heads, d], of one type, f32, f16 or bf16; d is even, up to 256. out may be x itself. A view of d's first
 * numbers turns a part of each row. Row s of item b stands at position[b] + s, and its pair i (a, b) becomes (a cos t -
 * b sin t, b cos t + a sin t), t = (position[b] + s) * base^(-2i/d).
 *   position     i32 [1] or [batch], read on the device at each replay
 *   base         0 means 10000
 *   frequencies  optional f32 [d/2]: radians a position for each pair, in place of the base's, for scaled embeddings
 * The frequency is base^(-2i/d) in fp64, rounded to fp32 once; t is one product in fp32, whose sine and cosine are good
 * to 2^-22 of themselves. */
typedef struct rondo_rope_desc {
  const char *name RONDO_ZERO;
  rondo_head_layout layout RONDO_ZERO;
  rondo_rope_pairing pairing RONDO_ZERO;
  rondo_tensor x RONDO_ZERO, out RONDO_ZERO;
  rondo_tensor position RONDO_ZERO;
  rondo_tensor frequencies RONDO_ZERO;
  float base RONDO_ZERO;
} rondo_rope_desc;
RONDO_API rondo_status rondo_add_rope(rondo_graph *graph, const rondo_rope_desc *desc);

/* out = silu(gate) * up, silu(x) = x / (1 + e^-x): all of one shape and type, f32, f16 or bf16. out may be gate or up
 * itself. Of a gate of -infinity comes NaN. With half a unit of out's type for its rounding:
 *   |out - exact| <= 2^-21 |exact| + 2^-121 |up| + half a unit */
typedef struct rondo_silu_mul_desc {
  const char *name RONDO_ZERO;
  rondo_tensor gate RONDO_ZERO, up RONDO_ZERO;
  rondo_tensor out RONDO_ZERO;
} rondo_silu_mul_desc;
RONDO_API rondo_status rondo_add_silu_mul(rondo_graph *graph, const rondo_silu_mul_desc *desc);

/* out = a + b: all of one shape and type, f32, f16, bf16, or i32, which wraps. out may be a or b itself: a position in
 * i32 that is a state moves on by itself. */
typedef struct rondo_add_desc {
  const char *name RONDO_ZERO;
  rondo_tensor a RONDO_ZERO, b RONDO_ZERO;
  rondo_tensor out RONDO_ZERO;
} rondo_add_desc;
RONDO_API rondo_status rondo_add_add(rondo_graph *graph, const rondo_add_desc *desc);

/* out[i] = the column of the largest number of row i, the first of several; a NaN counts as the largest. x [count, n]
 * in f32, f16 or bf16, n at least 1; out i32 [count]. */
typedef struct rondo_argmax_desc {
  const char *name RONDO_ZERO;
  rondo_tensor x RONDO_ZERO;
  rondo_tensor out RONDO_ZERO;
} rondo_argmax_desc;
RONDO_API rondo_status rondo_add_argmax(rondo_graph *graph, const rondo_argmax_desc *desc);

/* Makes columns less likely that were drawn lately, in place, before an argmax or a draw: each column of row i that
 * stands among ids[i], `times` times, becomes (x > 0 ? x / repetition : x * repetition) - times * frequency - presence.
 *   x           [count, n] in f32, f16 or bf16
 *   ids         i32 [count, length], length up to 1024. An id that is no column, such as -1, fills up a list
 *   repetition  optional f32 [1] or [count], above 0; absent: 1 (Keskar et al., CTRL, 2019)
 *   frequency, presence
 *               optional f32 [1] or [count]; absent: 0
 * ids and penalties are read on the device at each replay. Numbers are taken as fp32, each operation is rounded, and
 * the result once more to x's type: the host and every chip have the same bits. */
typedef struct rondo_penalty_desc {
  const char *name RONDO_ZERO;
  rondo_tensor x RONDO_ZERO;
  rondo_tensor ids RONDO_ZERO;
  rondo_tensor repetition RONDO_ZERO, frequency RONDO_ZERO, presence RONDO_ZERO;
} rondo_penalty_desc;
RONDO_API rondo_status rondo_add_penalty(rondo_graph *graph, const rondo_penalty_desc *desc);

/* Draws a column of each row: of the top_k largest numbers of the row, of these the fewest that reach top_p, each with
 * its share of softmax(x / temperature). x [count, n] in f32, f16 or bf16, n from 1 to 2^20; out i32 [count].
 *   temperature  optional, f32, [1] or [count], as all that follow, read on the device at each replay; absent: 1
 *   top_k        optional, i32; absent, or 0 or less: no limit
 *   top_p        optional, f32: a share of the sum of those that top_k has left; absent, or 1 or more: no limit; 0 or
 *                less: the largest alone is left
 *   seed, step   i32: the same pair draws the same 64 random bits, wherever the row stands. They are words 1 (the high
 *                half) and 0 of Philox4x32-10 of counter (step, 0, 0, 0) and key (seed, 0), as a fraction of 2^64. A
 *                program counts steps, so that no two draws are alike.
 * Where numbers are equal the first column counts as the larger one. A temperature that is not above 0, or so small
 * that log2(e) / temperature overflows, takes the largest number, as rondo_add_argmax does; so does a row whose largest
 * is NaN or infinite. Which column is drawn depends on nothing but these values: it is the first, from the largest
 * number down, at which the sum of probabilities passes the random number's part of what all columns have that are
 * left. Probabilities are good to 2^-21 of themselves, and those below 2^-42 of the largest are 0; their sums are
 * exact. So the host and every chip draw the same column. */
typedef struct rondo_sample_desc {
  const char *name RONDO_ZERO;
  rondo_tensor x RONDO_ZERO;
  rondo_tensor out RONDO_ZERO;
  rondo_tensor temperature RONDO_ZERO, top_k RONDO_ZERO, top_p RONDO_ZERO;
  rondo_tensor seed RONDO_ZERO, step RONDO_ZERO;
} rondo_sample_desc;
RONDO_API rondo_status rondo_add_sample(rondo_graph *graph, const rondo_sample_desc *desc);

/* The two halves of a decoder's layer (Llama and its like) for 1 to 16 rows, each as one task: what lies between their
 * products never leaves a GPU's multiprocessors where it has kernels for that (compute capability 9.0 and 10.0, rows of
 * weights and scales without gaps, sizes as usual models have them). Elsewhere, as on the host, a task is its products
 * and its attention one after the other, as rondo_add_gemv and rondo_add_attention do them, through scratch.
 *
 * A half takes the residual stream and adds to it:
 *   x          [rows, hidden] in f16 or bf16
 *   x_parts    optional f32 [parts, rows, hidden], 1 part or more: what is still to be added to x, by the half before
 *   out        [rows, hidden] of x's type: x + the sum of x_parts, added up in fp32, in an order that is fixed for
 *              each kernel (x may come first or last), and rounded once. This is what the half sees, and what the next
 *              one takes as x. Not x itself
 *   out_parts  f32 [parts, rows, hidden], 1 part or more: their sum is what the half adds to out, for the next one to
 *              take as x_parts. What each of them holds is not said, zeros maybe, and fewer than the kernels would like
 *              take time: 8, or for attention one for each KV head (with hidden 2048 and heads of 64: for every two
 *              query heads), are enough
 *   norm       optional [hidden], of x's type; norm_epsilon > 0: what the products see is normalised, as in
 *              rondo_gemv_desc
 * Weights are all of one type: x's, e4m3 (each with optional scales, f32 [rows of weights]) or nvfp4 (each with scales,
 * e4m3 [rows of weights, columns/16]).
 *   scale      a factor of all weights, such as NVFP4's; 0 means 1
 * Sums are fp32. What is handed on inside (normalised x * norm, rows of q, new rows of k and v, what attention gives,
 * gated columns) is rounded to x's type, or kept in up to fp32. A row of the result has the same bits in every replay,
 * but others among another number of rows. How exact it is, with u half a unit of x's type (2^-11 for f16, 2^-8 for
 * bf16):
 *   |out - exact|   <= (1 + 2^-10) u |exact| + (parts + 1) 2^-24 (|x| + sum |x_parts|) + 2^-25
 *   |added - exact| <= 4 d + 10^-6, added being the sum of out_parts
 * where d is the deviation that added would have if each number that is handed on inside were off by u of itself, all
 * independently. The new rows of k and v are right to 4 d + 10^-6 of their own. */

/* Attention: out_parts = output * attention(rope(qkv * normalised out)), of one token of each of `rows` sequences,
 * whose new rows of k and v it writes first.
 *   qkv       [(query heads + 2 KV heads) d, hidden]: rows of q, k, v
 *   output    [hidden, query heads * d]
 *   k, v      KV caches, [rows, capacity, KV heads, d] of x's type, read and written: states, or temporaries that an
 *             earlier task writes. d is 32, 64, 128 or 256. Scores are scaled by 1/sqrt(d)
 *   position  i32 [1] or [rows], read on the device at each replay: where the token stands. It sees rows 0 to position;
 *             what lies behind is never used. A row that k has not, below 0 or beyond the capacity, is not written; at
 *             a position below 0 nothing is seen, and nothing is added
 *   rope_base, rope_pairing, rope_frequencies
 *             as in rondo_attention_desc: q and the new row of k are turned */
typedef struct rondo_attention_block_desc {
  const char *name RONDO_ZERO;
  rondo_tensor x RONDO_ZERO, x_parts RONDO_ZERO;
  rondo_tensor norm RONDO_ZERO;
  float norm_epsilon RONDO_ZERO;
  float scale RONDO_ZERO;
  rondo_tensor qkv RONDO_ZERO, qkv_scales RONDO_ZERO;
  rondo_tensor output RONDO_ZERO, output_scales RONDO_ZERO;
  rondo_tensor k RONDO_ZERO, v RONDO_ZERO;
  rondo_tensor position RONDO_ZERO;
  rondo_tensor rope_frequencies RONDO_ZERO;
  float rope_base RONDO_ZERO;
  rondo_rope_pairing rope_pairing RONDO_ZERO;
  rondo_tensor out RONDO_ZERO, out_parts RONDO_ZERO;
} rondo_attention_block_desc;
RONDO_API rondo_status rondo_add_attention_block(rondo_graph *graph, const rondo_attention_block_desc *desc);

/* Feed forward: out_parts = down * (silu(gate * normalised out) * (up * normalised out)).
 *   gate_up  [2 columns, hidden]: row 2i is gate's row i, row 2i + 1 is up's
 *   down     [hidden, columns] */
typedef struct rondo_feed_forward_desc {
  const char *name RONDO_ZERO;
  rondo_tensor x RONDO_ZERO, x_parts RONDO_ZERO;
  rondo_tensor norm RONDO_ZERO;
  float norm_epsilon RONDO_ZERO;
  float scale RONDO_ZERO;
  rondo_tensor gate_up RONDO_ZERO, gate_up_scales RONDO_ZERO;
  rondo_tensor down RONDO_ZERO, down_scales RONDO_ZERO;
  rondo_tensor out RONDO_ZERO, out_parts RONDO_ZERO;
} rondo_feed_forward_desc;
RONDO_API rondo_status rondo_add_feed_forward(rondo_graph *graph, const rondo_feed_forward_desc *desc);

typedef enum rondo_layout {
  RONDO_COLUMN_MAJOR = 0, /* LAPACK's: an m x n matrix is a tensor [n, m]; leading dimension = row stride of the view */
  RONDO_ROW_MAJOR         /* an m x n matrix is a tensor [m, n] */
} rondo_layout;

/* Batched Householder QR (LAPACK geqrf), f32 or f64: A = Q R for each matrix, k = min(m, n), any m, n, batch >= 0.
 * a may also be f16 or bf16, up to 128 x 128 or 1024 x 32, where h and tau are wanted: these are f32, and so is what is
 * computed in. On a GPU that takes the shared memory named below, for a whole tile.
 * Matrices are the last two dimensions, in `layout`; a leading dimension, if any, is the batch.
 * Which outputs are present chooses the form:
 *   h and tau      H as geqrf leaves it (R above, reflectors below the diagonal) and tau [batch, k]; h may be a itself
 *   r              R only, k x n, zeros below the diagonal
 *   q, and maybe r thin Q, m x k, and R
 * Signs as LAPACK's: R's diagonal may be negative. Infinities and NaN stay inside their own matrix. A matrix has the
 * same bits in every replay, wherever it stands in a batch of whatever size.
 *
 * How near, for columns of any size whose norm is below the largest number: eps is 2^-24 for f32 and 2^-53 for f64, |X|
 * the largest sum of magnitudes in a column, a_j a column of A whose |a_j| counts as at least four times the smallest
 * normal number, r_j one of R, Q the exact product of the reflectors that H and tau hold, or its first k columns.
 *   |r_j - Q' a_j| <= 30 m eps |a_j|                                of H and tau, which is 0 or in [1, 2]
 *   |A - Q R| <= 30 m eps |A|                                       of thin Q and R
 *   |I - Q'Q| <= 30 m eps                                           of either Q
 *   |(Q'A)_ij| <= 30 m eps |A| for i > j                            of Q alone
 *   |a_i' a_j - r_i' r_j| <= 60 m eps (the largest a_s' a_s)        of R alone
 * The first three are LAPACK's tests of its own and its threshold. A column whose norm is beyond the largest number, or
 * within 30 m eps of it, may make its matrix infinite or NaN, as in LAPACK.
 *
 * On a GPU, matrices up to 128 x 128 (H of f32: 160 x 160), and panels of up to 32 columns and 1024 rows (H of f64
 * beyond 512 rows: only column-major), stay in registers between their one read and their one write: one kernel factors
 * them, applies each reflector at once, without forming T (Abdelfattah, Tomov and Dongarra, Batch QR Factorization on
 * GPUs: Design, Optimization, and Tuning, ICCS 2022), and writes H and tau, or R, and Q made there of the reflectors.
 * That takes up to 154 KB of shared memory, which sm_80, sm_90 and sm_100 have; with 99 KB f32 goes to 128 x 128 and
 * 512 x 32, f64 to 96 x 96 and 256 x 32. Larger ones, of more than 16 rows and up to 2048 (f64: 1024; with 99 KB 1024
 * and 512) and any number of columns, come from a kernel that takes a matrix through registers a block column at a time
 * and applies the reflectors on its left four at a time, as I - V T V^T (Schreiber and Van Loan, A Storage-Efficient WY
 * Representation for Products of Householder Transformations, 1989), and from a second one if Q is wanted. R alone then
 * takes scratch, about as much as a has at most. All others come from kernels that work in shared or global memory.
 * Those in registers compute with columns of extreme size multiplied by a power of two, so that no square overflows.
 * They depart from LAPACK in one point: a subcolumn of less than 2^-34 (f64: 2^-280) of its column may be taken as
 * zero, so that tau is 0 and R's diagonal keeps its sign; to the column that is an error of a thousandth of eps. */
typedef struct rondo_qr_desc {
  const char *name RONDO_ZERO;
  rondo_layout layout RONDO_ZERO;
  rondo_tensor a RONDO_ZERO;
  rondo_tensor h RONDO_ZERO, tau RONDO_ZERO;
  rondo_tensor r RONDO_ZERO;
  rondo_tensor q RONDO_ZERO;
} rondo_qr_desc;
RONDO_API rondo_status rondo_add_qr(rondo_graph *graph, const rondo_qr_desc *desc);

/* Factors a panel in place (LAPACK geqr2): a is a view of m x nb, tau [batch, min(m, nb)]. As near as H and tau of
 * rondo_add_qr. */
typedef struct rondo_qr_panel_desc {
  const char *name RONDO_ZERO;
  rondo_layout layout RONDO_ZERO;
  rondo_tensor a RONDO_ZERO, tau RONDO_ZERO;
} rondo_qr_panel_desc;
RONDO_API rondo_status rondo_add_qr_panel(rondo_graph *graph, const rondo_qr_panel_desc *desc);

/* Trailing update: C := Q^T C in place, with the reflectors of a panel v (m x nb, as qr_panel leaves it) applied one
 * after the other, without forming T. c is m x nc. */
typedef struct rondo_qr_update_desc {
  const char *name RONDO_ZERO;
  rondo_layout layout RONDO_ZERO;
  rondo_tensor v RONDO_ZERO, tau RONDO_ZERO, c RONDO_ZERO;
} rondo_qr_update_desc;
RONDO_API rondo_status rondo_add_qr_update(rondo_graph *graph, const rondo_qr_update_desc *desc);

/* LAPACK ormqr from the left, in place: C := Q C, or Q^T C with `transpose`. v is m x n as qr leaves h, tau [batch, k],
 * c is m x nc, of columns of any size whose norm is below the largest number. With eps and |X| of rondo_add_qr and the
 * exact Q of reflectors with tau = 2 / |v|^2 up to rounding, here and in the update above:
 *   |result - Q C| <= 30 m eps |C| */
typedef struct rondo_qr_apply_desc {
  const char *name RONDO_ZERO;
  rondo_layout layout RONDO_ZERO;
  int32_t transpose RONDO_ZERO;
  rondo_tensor v RONDO_ZERO, tau RONDO_ZERO, c RONDO_ZERO;
} rondo_qr_apply_desc;
RONDO_API rondo_status rondo_add_qr_apply(rondo_graph *graph, const rondo_qr_apply_desc *desc);

/* What is to be had of H as qr_panel and qr_update leave it: r := its upper triangle, k x n, zeros below (LAPACK's
 * lacpy), and q := the first k columns of the identity, m x k (laset), which qr_apply turns into thin Q. One of the two
 * may be absent. h is m x n, k = min(m, n), f32 or f64. */
typedef struct rondo_qr_extract_desc {
  const char *name RONDO_ZERO;
  rondo_layout layout RONDO_ZERO;
  rondo_tensor h RONDO_ZERO;
  rondo_tensor r RONDO_ZERO, q RONDO_ZERO;
} rondo_qr_extract_desc;
RONDO_API rondo_status rondo_add_qr_extract(rondo_graph *graph, const rondo_qr_extract_desc *desc);

/* Batched least squares (LAPACK gels, m >= n >= 1): for each right-hand side the x that minimises |b - A x|, by
 * Householder QR, f32 or f64. a is m x n, b m x s and x n x s for each matrix, all in `layout`, s >= 1; a leading
 * dimension, if any, is the batch. a and b are kept.
 *   residual  [batch, s], or [s] without a batch, or absent: |b - A x|, from what Q^T b has below R, so without another
 *             pass over A
 *   info      i32 [batch], or [1] without one, or absent: LAPACK's: 0, or the first column, counted from one, whose
 *             diagonal element of R is zero (on a GPU also one so small beside its column that it is no normal number)
 * Where info is not 0, or would be if it were present, A has not full rank: all of that matrix's x is NaN, and residual
 * is the norm of what lies behind R. A graph goes on: look at info, or at x. Matrices that are only almost singular are
 * not noticed (compare R's diagonal, rondo_add_qr). Infinities and NaN stay inside their own matrix, those of b inside
 * their own right-hand side. A matrix has the same bits in every replay, wherever it stands in a batch of whatever
 * size.
 * How near, where x is finite, with 2-norms, eps of rondo_add_qr, a_j a column of A, whose norm counts as at least the
 * smallest normal number, as the numbers of x do, and s = |b| + that number + the sum of all |a_j| |x_j|: as if A and b
 * were changed by rounding.
 *   |a_j' (b - A x)| <= 30 m eps |a_j| s
 *   ||b - A x| - residual| <= 30 m eps s
 *
 * On a GPU, matrices up to 128 x 128, and panels of up to 32 columns and 1024 rows (f64: 512, with one right-hand side
 * on sm_90 1024), take one kernel, which keeps the matrix in registers and writes neither Q nor R. It holds one
 * right-hand side for each 32 threads of a matrix (1 to 8), and factors the matrix anew for every so many. All others
 * take two kernels, and scratch for H and tau of the whole batch; so do more than three times as many right-hand sides
 * in matrices of 2048 elements and more, and those that a chip has too little shared memory for: with less than 196 KB
 * f64 of more than 96 columns, with 99 KB panels of more than 512 rows (f64: 256) too. */
typedef struct rondo_least_squares_desc {
  const char *name RONDO_ZERO;
  rondo_layout layout RONDO_ZERO;
  rondo_tensor a RONDO_ZERO, b RONDO_ZERO;
  rondo_tensor x RONDO_ZERO;
  rondo_tensor residual RONDO_ZERO;
  rondo_tensor info RONDO_ZERO;
} rondo_least_squares_desc;
RONDO_API rondo_status rondo_add_least_squares(rondo_graph *graph, const rondo_least_squares_desc *desc);

/* How many columns a panel of an m x n matrix should have: the most of 32, 16 and 8 that would fit in the shared memory
 * of every chip, else 8. 0: no panels, since the whole matrix would, or it is no wider than one panel. What kernels
 * keep in registers it does not know: rondo_graph_qr does. A pure function, for any thread; 0 too for other types than
 * f32 and f64 and for sizes below 1. */
RONDO_API int32_t rondo_qr_panel_width(rondo_dtype dtype, int64_t m, int64_t n);

/* Inverse of unit lower triangular matrices, f32 or f64, n = 16..128: a, out [batch, n, n], row-major. What a holds on
 * and above the diagonal is not used; out gets ones and zeros there. out may be a itself. As by substitution, element
 * by element, with eps of rondo_add_qr, the smallest normal number `tiny`, and |X| the matrix of magnitudes:
 *   |a out - I| <= n (eps |a| |out| + tiny) */
typedef struct rondo_triangular_inverse_desc {
  const char *name RONDO_ZERO;
  rondo_tensor a RONDO_ZERO, out RONDO_ZERO;
} rondo_triangular_inverse_desc;
RONDO_API rondo_status rondo_add_triangular_inverse(rondo_graph *graph, const rondo_triangular_inverse_desc *desc);

/* ---- Describe: the user's own work ------------------------------------------------------------------------------- */

typedef enum rondo_access { RONDO_READ = 1, RONDO_WRITE = 2, RONDO_READ_WRITE = 3 } rondo_access;

#define RONDO_MAX_ARGUMENTS 16

/* One argument of a user's kernel, in the order of its parameters: a tensor (passed as the device pointer of its first
 * element) or, where tensor is absent, `bytes` bytes by value from `value` (copied when the task is added).
 * A value is fixed from then on. What changes from replay to replay, such as a position, a scale or a seed, is a small
 * input: it is written where rondo_data says before each replay, with no driver call and no change of the graph, and
 * the task reads it through its pointer. A kernel at the replay's begin moves small inputs to the device, eight at
 * once. */
typedef struct rondo_argument {
  rondo_tensor tensor RONDO_ZERO;
  rondo_access access RONDO_ZERO;
  const void *value RONDO_ZERO;
  uint32_t bytes RONDO_ZERO; /* at most 64 */
} rondo_argument;

/* The same work for the host backend: data[i] is the address of argument i: a tensor's first element, as aligned as its
 * offset in the tensor allows, whose own first byte is 256-byte aligned; or the copied value, 64-byte aligned. Runs on
 * one thread of the team, on the cores that rondo_options.host_threads tells of, with a stack of 1 MiB or
 * the default size if that is more, and begins in the default floating-point state, which it may change. It leaves the
 * thread's signals and cores as they are. The thread takes no signals of the application, and a child that the function
 * starts would take none either, SIGTERM for one: it unblocks them between fork and exec, or with
 * posix_spawnattr_setsigmask.
 * It must return. It may replay and poll any exec, but waits for none of its own runtime: there rondo_wait of a replay
 * in flight, rondo_wait_any and rondo_acquire_within with a timeout, rondo_instantiate, rondo_upload, rondo_upload_all,
 * rondo_download, rondo_profile, rondo_close_exec, rondo_close_exec_within and rondo_close answer RONDO_INVALID_STATE.
 */
typedef void (*rondo_host_function)(void *user, void *const *data);

/* A CUDA kernel of the user's, from a cubin, fatbin or PTX image, which must live until the task is instantiated.
 * `host` stands in on the host backend; without it such a graph cannot be instantiated there, and with it alone, the
 * image NULL, not on a GPU.
 * The kernel (or `host`) also runs once per slot inside rondo_instantiate, as that slot's warm-up, on inputs, states
 * and constants that are all zeros: it has to end, and to touch nothing out of bounds, where every length, position
 * and index that it reads is 0. One that does not is instantiated with without_warm_up. */
typedef struct rondo_kernel_desc {
  const char *name RONDO_ZERO;
  const void *image RONDO_ZERO;
  size_t image_bytes RONDO_ZERO;
  const char *function RONDO_ZERO;
  uint32_t grid[3] RONDO_ZERO, block[3] RONDO_ZERO; /* zeros mean 1 */
  uint32_t shared_bytes RONDO_ZERO;                 /* dynamic */
  const rondo_argument *arguments RONDO_ZERO;
  uint32_t argument_count RONDO_ZERO;
  rondo_host_function host RONDO_ZERO;
  void *user RONDO_ZERO;
} rondo_kernel_desc;
RONDO_API rondo_status rondo_add_kernel(rondo_graph *graph, const rondo_kernel_desc *desc);

/* Third-party stream work (cuBLAS, cuDNN, NCCL). The callback enqueues its work on `stream` (a CUstream, also a
 * cudaStream_t) and returns 0; it is called once per slot at instantiate, while the stream captures. Work that
 * allocates, frees or calls back to the host is refused, and so is a graph of more than 131072 nodes that has captured
 * ones. The callback may ask for rondo_runtime_info, but not instantiate. Arguments must all be tensors. */
typedef int (*rondo_capture_function)(void *user, void *stream, void *const *data);
typedef struct rondo_capture_desc {
  const char *name RONDO_ZERO;
  const rondo_argument *arguments RONDO_ZERO;
  uint32_t argument_count RONDO_ZERO;
  rondo_host_function host RONDO_ZERO;
  void *user RONDO_ZERO;
} rondo_capture_desc;
RONDO_API rondo_status rondo_add_capture(rondo_graph *graph, const rondo_capture_desc *desc,
                                         rondo_capture_function callback);

/* ---- Describe: an order that no tensor shows --------------------------------------------------------------------- */

/* The number of a task in its graph: 0, 1, 2 ... in the order of the calls that added them. */
typedef uint32_t rondo_task;

/* The task that the last successful rondo_add_* added. RONDO_INVALID_STATE if there is none. */
RONDO_API rondo_status rondo_last_task(const rondo_graph *graph, rondo_task *task);

/* Makes `task` wait for `prerequisite`, for dependencies that no tensor shows. RONDO_INVALID_ARGUMENT for an edge that
 * closes a cycle: where a task is to wait for a later one, that takes a look at the whole graph. */
RONDO_API rondo_status rondo_after(rondo_graph *graph, rondo_task task, rondo_task prerequisite);

/* ---- Plan -------------------------------------------------------------------------------------------------------- */

/* What the graph needs of each pool. Pure: no device is opened. */
typedef struct rondo_plan {
  uint64_t device_bytes;          /* of the device pool, for one exec with any number of slots */
  uint64_t pinned_bytes_per_slot; /* of the pinned pool: times the slot count, of each graph its own */
  uint64_t host_bytes;            /* of the host pool, for one exec and the planning itself */
  uint64_t constant_bytes;        /* of device_bytes: constants and states of the graph's own */
  uint64_t borrowed_bytes;        /* not of device_bytes: constants and states of other graphs */
  uint64_t temporary_bytes;       /* of device_bytes: the shared arena of temporaries, inputs and outputs */
  uint64_t unshared_bytes;        /* what that arena would be if no bytes were shared */
  uint64_t lower_bound_bytes;     /* no placement can make that arena smaller than this */
  uint32_t task_count;
  uint32_t edge_count; /* between tasks and copies of inputs and outputs, after transitive reduction */
} rondo_plan;

/* Errors: RONDO_INVALID_ARGUMENT where a task reads an element that nothing has written, or an output is not written
 * whole, with task, tensor and element; RONDO_OUT_OF_MEMORY. */
RONDO_API rondo_status rondo_plan_graph(rondo_graph *graph, rondo_plan *plan);
/* The same for several graphs with an exec of each open at the same time, in one lane: temporary_bytes is the largest
 * graph's, since the execs of a lane share their arena; all else adds up. What several graphs borrow is in device_bytes
 * once, with its owner. No graphs at all need nothing. */
RONDO_API rondo_status rondo_plan_graphs(rondo_graph *const *graphs, uint32_t graph_count, rondo_plan *plan);

/* ---- Instantiate ------------------------------------------------------------------------------------------------- */

typedef struct rondo_exec rondo_exec;

typedef struct rondo_exec_options {
  uint32_t slots RONDO_ZERO; /* 1..16; 0: 1 */
  /* 1: while the exec is open a thread of Rondo's keeps the core of the thread that replays, and the GPU, from falling
   * asleep: where no replay came by for 200 us it launches a tiny kernel. It takes one to two percent of that core,
   * which the replaying thread should be pinned to, and some power. No effect on the host backend. */
  int32_t keep_warm RONDO_ZERO;
  uint32_t lane RONDO_ZERO; /* which of the runtime's lanes its replays run in */
  /* 1: the program itself sees to it that a state which this exec shares with execs of other lanes is not written by
   * one of them while another one touches it. Without it such an exec is refused: nothing orders lanes. */
  int32_t states_are_ordered RONDO_ZERO;
  /* 1: no task runs inside rondo_instantiate. The first replay of each slot then pays what is paid only once. */
  int32_t without_warm_up RONDO_ZERO;
  /* 1: constants of the graph's own that were never uploaded are zeros, and no error; for timings, or where zeros are
   * what is meant. What is borrowed follows the exec that it belongs to. */
  int32_t constants_begin_as_zeros RONDO_ZERO;
} rondo_exec_options;

/* Places every tensor, builds one executable graph per slot, and replays each once as a warm-up, so that the first real
 * replay costs no more than any other. All tasks run in it, the user's own kernels and captured work too: once per
 * slot, on inputs, states and constants of its own that are zeros, and on borrowed constants and states as they are.
 * Afterwards states are zero again, and no replay is counted. The option without_warm_up leaves it out; else only a
 * graph that writes a borrowed state is not warmed up, once that state may hold something or while another thread
 * reads it: instantiate all graphs first, then upload. While it is, no exec that shares the state is replayed by
 * another thread.
 * Of every graph that it borrows from exactly one exec must be open in the runtime. options may be NULL. The graph may
 * be changed or destroyed afterwards. Waits for the warm-up; not to be called from a task.
 * Errors: those of planning (see rondo_plan_graph); RONDO_OUT_OF_MEMORY where a pool is too small; RONDO_UNSUPPORTED;
 * RONDO_INVALID_STATE where a lender is not open, or is being closed, or lanes share a state; RONDO_BUSY while another
 * thread profiles in the lane; RONDO_DEVICE_LOST, also where the warm-up does not end within 120 s. */
RONDO_API rondo_status rondo_instantiate(rondo_runtime *runtime, rondo_graph *graph, const rondo_exec_options *options,
                                         rondo_exec **exec);

/* Waits for replays in flight, without a limit (rondo_close_exec_within has one), then frees. Sets *exec to NULL.
 * RONDO_INVALID_STATE while another exec borrows from it, while another thread uploads to it, downloads from it or
 * closes it, and inside a task of its runtime. From the call on nobody borrows from it. A copy of the pointer is
 * refused as long as the runtime is open and no exec is made at the same address. */
RONDO_API rondo_status rondo_close_exec(rondo_exec **exec);

/* What an exec takes. */
typedef struct rondo_exec_usage {
  uint64_t device_bytes, pinned_bytes, host_bytes; /* of the pools; the lane's arena comes besides */
  uint64_t arena_bytes;                            /* of the lane's arena, shared with its other execs */
  uint64_t driver_bytes; /* of the GPU's memory, by the driver for its graphs; measured as in rondo_info */
  uint32_t lane;
  uint32_t slot_count;
  uint32_t node_count;                            /* tasks, and copies of inputs and outputs */
  uint32_t free_slot_count, in_flight_slot_count; /* now. The others are held, and their last replay is done */
} rondo_exec_usage;
RONDO_API rondo_status rondo_exec_info(rondo_exec *exec, rondo_exec_usage *usage);

/* Sets a constant or a state, or a view of one, from dense data; bytes must be rondo_tensor_bytes. What is borrowed is
 * set through the exec that it belongs to. RONDO_BUSY while a replay of the exec, or of one that borrows from it, is in
 * flight, and while one that borrows from it is being instantiated by another thread.
 * The data is the caller's again when it returns. Through the CUDA backend the bytes may be on their way then: whatever
 * comes next through Rondo finds them there, and what keeps them from arriving is told by a later call, as
 * RONDO_DEVICE_LOST. rondo_download of anything of the exec waits for them.
 * Every constant that a task reads is uploaded before the first replay, in whole or in parts: the first part of a
 * constant counts as its upload, and elements that no upload has set are zeros. */
RONDO_API rondo_status rondo_upload(rondo_exec *exec, rondo_tensor tensor, const void *data, uint64_t bytes);

/* What a constant or a state, or a view of one, is to hold: dense data. */
typedef struct rondo_content {
  rondo_tensor tensor;
  const void *data;
  uint64_t bytes;
} rondo_content;

/* As rondo_upload of each, in this order, but all are checked before the first is sent, and there is no pause between
 * them: many tensors below a megabyte come two to twenty times as fast, fastest in the order in which they were
 * described. A list of 0 is empty. Errors as rondo_upload; with one of the device's some may have come. */
RONDO_API rondo_status rondo_upload_all(rondo_exec *exec, const rondo_content *contents, uint32_t count);

/* Reads a constant or a state, or a view of one, back into dense data. Errors as rondo_upload. */
RONDO_API rondo_status rondo_download(rondo_exec *exec, rondo_tensor tensor, void *data, uint64_t bytes);

/* ---- Replay ------------------------------------------------------------------------------------------------------ */

/* One in-flight replay with inputs and outputs of its own. A slot that was released, or whose exec was closed, is
 * refused by every call, whatever took its place since, as long as its runtime is open; after that using it is
 * undefined. (A lease is one of 2^31.) When the device is lost, a slot whose last replay was done is read and released
 * as ever, unless a notice of it (rondo_notify) is still to be written; one in flight stays so. Neither needs a
 * release: closing its exec ends it. */
typedef struct rondo_slot {
  rondo_exec *exec;
  uint32_t index;
  uint32_t lease;  /* which acquisition this is */
  uint64_t serial; /* of the exec */
  void *user;      /* the program's own, NULL at first: rondo_wait_any hands on what rondo_replay was given with */
} rondo_slot;

/* Takes a free slot. RONDO_BUSY if none is free. No two callers get the same; there is no lock. */
RONDO_API rondo_status rondo_acquire(rondo_exec *exec, rondo_slot *slot);

/* The same, but waits so long at most until another thread releases one; as rondo_wait_any does. Errors: RONDO_TIMEOUT,
 * also with a timeout of 0; RONDO_DEVICE_LOST, where none is free; RONDO_INVALID_STATE inside a task of its own
 * runtime, with a timeout above 0. */
RONDO_API rondo_status rondo_acquire_within(rondo_exec *exec, uint64_t timeout_ns, rondo_slot *slot);

/* Where an input is filled or an output is read, dense row-major. NULL (and an error text) if the slot is stale or the
 * tensor is neither. */
RONDO_API void *rondo_data(rondo_slot slot, rondo_tensor tensor);

/* Starts the slot's graph and returns at once. RONDO_BUSY if its last replay is still in flight; on the host backend
 * also if 4096 replays of the lane wait for their turn. RONDO_INVALID_STATE if a constant that a task reads was never
 * uploaded, is not bound to a buffer of the caller's in this slot (rondo_rebind), and was not to begin as zeros. */
RONDO_API rondo_status rondo_replay(rondo_slot slot);
/* RONDO_OK once the last replay is done, or if there was none; RONDO_BUSY before. Costs a look at eight words of
 * memory, and where it answers RONDO_BUSY now and then a question to the driver: a lost device is RONDO_DEVICE_LOST. */
RONDO_API rondo_status rondo_poll(rondo_slot slot);

/* Waits for that, as the runtime's wait_mode says, and so long at most. The outputs may be read then, until the next
 * replay. Errors: RONDO_TIMEOUT (the replay is still in flight); RONDO_INVALID_STATE inside a task of its own runtime.
 */
#define RONDO_FOREVER UINT64_MAX
RONDO_API rondo_status rondo_wait(rondo_slot slot, uint64_t timeout_ns);

/* Which slot is done: one whose last replay has ended and was not told of before, of any of these execs of a runtime,
 * in whatever lanes, with its user pointer:
 *
 *     slot.user = request;                    // with rondo_acquire's slot, by any thread
 *     rondo_replay(slot);
 *     ...
 *     while (rondo_wait_any(execs, count, timeout_ns, &slot) == RONDO_OK) answer(slot.user, slot), rondo_release(slot);
 *
 * The thread that gets the slot is its holder from then on.
 *   - Any number of threads may call it at a time, while others acquire and replay. Each replay is told to one of them,
 *     once. Replays of rondo_profile are not told.
 *   - Execs are looked at in the order of the array; the slots of an exec take turns.
 *   - A replay is not told any more after its slot was released, or replayed anew, even if that launch is refused. If
 *     the slot is released in the moment in which it is told, the handle is refused by every later call.
 *   - It waits as the wait_mode says, also with nothing in flight; but where rondo_wait yields, it sleeps 20 us. With
 *     CUDA a program that would rather sleep until a replay is done asks for notices of all slots in one file
 *     (rondo_notify), and calls this with 0.
 *   - A look reads two words of each slot, and ten where a replay may be done. rondo_replay makes three stores for it.
 * Errors: RONDO_TIMEOUT; RONDO_DEVICE_LOST, after all that was done has been told; RONDO_INVALID_STATE inside a task of
 * its own runtime, with a timeout above 0. */
RONDO_API rondo_status rondo_wait_any(rondo_exec *const *execs, uint32_t exec_count, uint64_t timeout_ns,
                                      rondo_slot *slot);

/* Gives the slot back; every tensor lies in its own place again, for whoever acquires it next. RONDO_BUSY while in
 * flight. Where nothing was bound and no notice of a lost device's is still to be written (RONDO_DEVICE_LOST) it cannot
 * fail otherwise; else as rondo_rebind, and the slot stays the caller's, with some of what was bound in its own place
 * already. */
RONDO_API rondo_status rondo_release(rondo_slot slot);

/* ---- Replay, advanced: other streams, other buffers, sleeping ---------------------------------------------------- */

/* rondo_replay in a CUstream of the caller's (also a cudaStream_t) in place of the lane's: it follows what the stream
 * holds, and what is put there afterwards, an event too, follows it. Replays of the lane before and after it keep their
 * order with it. The stream belongs to the device's primary context, as those of CUDA's runtime do, and does not
 * capture. The stream's priority holds. Costs five more driver calls, for which other threads' replays in the
 * lane wait. Errors: those of rondo_replay; RONDO_UNSUPPORTED on the host. */
RONDO_API rondo_status rondo_replay_on(rondo_slot slot, void *stream);

/* Lets an input, output, constant or state lie in a buffer of the caller's, in this slot's replays only, until it is
 * bound anew or the slot is released; NULL: in its own place again. The buffer has rondo_tensor_bytes bytes, is
 * 256-byte aligned, can be reached by the device (device or pinned memory; on the host backend any), overlaps no other
 * tensor's, and outlives its use. Costs a driver call for every kernel that touches the tensor, and a somewhat slower
 * next replay: not for every replay. Releasing the slot costs as much again for each tensor that is still bound.
 * rondo_data, rondo_upload and rondo_download still mean the tensor's own place. Errors: RONDO_BUSY while in flight;
 * RONDO_UNSUPPORTED where captured work touches the tensor. */
RONDO_API rondo_status rondo_rebind(rondo_slot slot, rondo_tensor tensor, void *memory);

/* For services that sleep in poll or epoll: from now on every replay of this slot ends with a write of 1 to an eventfd,
 * after rondo_poll says RONDO_OK. No other file is taken: a pipe without a reader would raise a signal in a thread of
 * the driver's. Who sleeps on the file may be woken once by this call. -1, or the release of the slot, ends that, and
 * waits for a write that is still on its way (microseconds): then the file may be closed. One file may serve many
 * slots, of all execs: what is read from it is how many replays have ended. A full one (2^64 - 2) is not written to, as
 * whoever sleeps on it is awake. Nothing is written for a replay that a lost device does not finish: sleep with a time
 * limit, then ask rondo_poll. Costs each replay of this slot a write by a thread of the team; with CUDA a second driver
 * call, and behind the replay a call of a function by a thread of the driver's, for which the replays queued behind it
 * wait. If that call is refused the device counts as lost. Errors: RONDO_BUSY while in flight; RONDO_INVALID_ARGUMENT
 * if the file is no open eventfd. */
RONDO_API rondo_status rondo_notify(rondo_slot slot, int eventfd_or_minus_1);

/* ---- Reports ----------------------------------------------------------------------------------------------------- */

/* Each writes a file anew, and uses its graph as planning does. Errors, of all: RONDO_INVALID_ARGUMENT (path NULL),
 * RONDO_IO_ERROR, and where the graph has no plan yet those of rondo_plan_graph. */

/* The graph for Graphviz, from top to bottom: tasks with the constants and states they touch, what they hand on, and
 * how many bytes that is. Tasks of names such as "layer3.query" stand in a frame "layer3"; in a graph of more than 32
 * tasks and copies, of three or more such groups that are alike the first is drawn. */
RONDO_API rondo_status rondo_write_dot(rondo_graph *graph, const char *path);

/* The memory plan as a picture: time across, bytes up, one box a tensor, the lower bound as a line, and a bar of the
 * constants and states. */
RONDO_API rondo_status rondo_write_plan_svg(rondo_graph *graph, const char *path);

/* Which kernels would run on a chip (80, 90, 100; 0: the host): a line for each task and for each copy of inputs and
 * outputs, and one for what publishes completion: the last kernels' own blocks, or a kernel behind them. */
RONDO_API rondo_status rondo_explain(rondo_graph *graph, int32_t chip, const char *path);

typedef struct rondo_profile_options {
  uint32_t passes RONDO_ZERO; /* through all tasks, of which the medians are taken; 0: 20 */
  /* Of the copy that measures the bandwidth: more than the device's caches hold, and twice as much is taken besides the
   * pools for that time; 0: 256 MiB. */
  uint64_t copy_bytes RONDO_ZERO;
  /* After every pass, by the calling thread; may be NULL. It calls nothing of Rondo. */
  void (*progress)(void *user, uint32_t done, uint32_t passes) RONDO_ZERO;
  void *user RONDO_ZERO;
} rondo_profile_options;

/* One task, or copy of inputs or outputs, in a replay. */
typedef struct rondo_task_profile {
  char name[64];         /* of the task; "copy in a, b" */
  const char *operation; /* "gemv", "copy", "kernel" or "capture". Lives as long as the program */
  uint64_t time_ns;      /* what it adds to a chain of tasks, without the launch; 0: less than can be seen */
  uint64_t begin_ns;     /* the earliest, where every task takes its time and waits for nothing but its edges */
  /* What it must move: its operands' dense bytes, once for a read and once for a write. Of an operand of which a replay
   * can touch no more than a part, by the shapes alone, that part counts: an append's new rows, as many rows of an
   * embed's table as there are ids, a window of a KV cache, the pages that tables have room for. Where a length or a
   * position on the device says how much (a KV cache beyond kv_lengths) all bytes do. */
  uint64_t bytes;     /* of the device's memory */
  uint64_t bus_bytes; /* of pinned memory, across the bus; 0 on the host, where all memory is the device's */
} rondo_task_profile;

typedef struct rondo_profile_totals {
  char device_name[96];
  uint32_t task_count;       /* of rondo_task_profile */
  uint32_t replay_count;     /* as often have the exec's states advanced */
  uint64_t replay_ns;        /* a whole replay, from rondo_replay until the host sees its end; the median */
  uint64_t launch_ns;        /* the same of a replay of next to nothing: one block that copies 8 bytes */
  uint64_t tasks_ns;         /* the sum of all time_ns. What overlap gives: launch_ns + tasks_ns - replay_ns */
  uint64_t path_ns;          /* along the longest path of edges: less would need tasks that are faster */
  uint64_t bytes_per_second; /* read and written by a copy of copy_bytes in the exec's lane, on the device and in the
                                same call; 0: it was too small to be seen. What only reads may be a little faster */
  uint64_t copy_bytes;       /* 0: there was no memory for the copy, and bytes_per_second is 0 too */
} rondo_profile_totals;

/* How long each task takes, in the slot's replays: with its inputs as they were filled, and what is bound to it.
 * Outside the promises of a replay: it allocates (from the runtime's allocator and the driver) and takes long. Whole
 * replays alternate with passes in which every task is launched by itself, in the plan's order and in the exec's lane,
 * so that each finds the data and the caches that those before it left; the first of either is not kept. A task's time
 * is what it takes longer than the launch alone, with a tiny copy behind it in either. States advance by replay_count
 * replays, and are not restored; outputs are those of the last one.
 * tasks has room for the node_count of rondo_exec_info; it and *totals are the caller's, and written only on RONDO_OK.
 * options may be NULL. Called by the slot's holder; nothing else is replayed in the lane meanwhile, and what a user's
 * kernel and capture was described with (image, callback) still lives: it is loaded and called once more.
 * Errors: RONDO_BUSY if the slot is in flight, another slot of the exec is held or another exec of the lane is in
 * flight, profiled or being instantiated; RONDO_INVALID_ARGUMENT if task_count is not node_count; RONDO_OUT_OF_MEMORY;
 * those of rondo_replay and rondo_wait. The exec stays as it was, with its states somewhere in between. A task that
 * takes more than 120 seconds counts as a lost device. */
RONDO_API rondo_status rondo_profile(rondo_slot slot, const rondo_profile_options *options, rondo_task_profile *tasks,
                                     uint32_t task_count, rondo_profile_totals *totals);

/* A profile as a table: what all tasks of an operation take together, then every task, the longest first, with its time
 * and its share of all tasks', the bytes it must move, and how near it came to the copy's bandwidth; more than 100 % of
 * that come from a cache. Any thread. */
RONDO_API rondo_status rondo_write_profile(const rondo_task_profile *tasks, const rondo_profile_totals *totals,
                                           const char *path);

/* The same for https://ui.perfetto.dev or chrome://tracing: the replay as it was measured, its tasks one after the
 * other, and its tasks each as early as its edges allow. */
RONDO_API rondo_status rondo_write_trace(const rondo_task_profile *tasks, const rondo_profile_totals *totals,
                                         const char *path);

/* ---- Advanced: lanes --------------------------------------------------------------------------------------------- */

/* A part of the device with a queue of its own. Execs of one lane follow each other; those of different lanes run side
 * by side, and where each lane has multiprocessors of its own no lane waits for another's kernels. Memory bandwidth and
 * caches stay shared. On the host backend each lane has a team of threads of its own: as many as multiprocessors asks
 * for, at least one, and in proportion where all lanes ask for more than host_threads. It knows no priorities. */
struct rondo_lane {
  const char *name RONDO_ZERO; /* in messages; copied (63 bytes kept), may be NULL */
  /* For this lane alone, rounded up to what the chip can split off (8 at a time on sm_90); 0: it shares what the other
   * lanes leave. */
  int32_t multiprocessors RONDO_ZERO;
  /* Among lanes that share multiprocessors: 0 is the lowest, more goes first, where a block of a kernel ends; as far as
   * the driver goes (5). */
  int32_t priority RONDO_ZERO;
  /* Kept at the top of the device pool for the temporaries of the lane's execs, which share them; 0: as much as its
   * execs need, grown as they come. */
  uint64_t arena_bytes RONDO_ZERO;
};

/* What a lane was given. */
typedef struct rondo_lane_grant {
  const char *name;        /* "" if it has none. Lives as long as the runtime */
  int32_t multiprocessors; /* that its kernels run on and are chosen for; on the host threads of its team */
  int32_t priority;
  uint64_t arena_bytes; /* as large as it is now */
  void *stream; /* the lane's CUstream, for work of other libraries, in order with its replays; NULL on the host */
} rondo_lane_grant;

/* RONDO_INVALID_ARGUMENT for a lane that the runtime has not. */
RONDO_API rondo_status rondo_lane_info(rondo_runtime *runtime, uint32_t lane, rondo_lane_grant *grant);

/* ---- Advanced: leaving what hangs, and where host memory comes from ---------------------------------------------- */

/* rondo_close_exec for one who must leave: waits so long at most (on the host backend a second longer where a task
 * hangs). If a replay is not done by then, a kernel that hangs say, the device counts as lost, with the slot and the
 * time as the cause, the exec is gone all the same, and the result is RONDO_DEVICE_LOST. From then on other execs can
 * be closed without waiting, and nothing else is done on the runtime. What the device, or a thread that does not
 * return, may still touch is leaked on purpose: the exec's part of the three pools until rondo_close, and for good,
 * after rondo_close, the pools and all that the driver was asked for (memory, streams, graphs, the context). Where all
 * replays are done nothing is lost: a write of rondo_notify's that is still on its way is waited for besides, and if it
 * does not come for a second, since another library's call holds the driver's thread up say, the result is
 * RONDO_TIMEOUT and the exec stays open. */
RONDO_API rondo_status rondo_close_exec_within(rondo_exec **exec, uint64_t timeout_ns);

/* Where host memory comes from. allocate returns NULL when out of memory; alignment is a power of two; release gets the
 * bytes that allocate got. That of a runtime is called by rondo_open, rondo_close and rondo_profile only. That of a
 * graph made without a runtime is called by rondo_graph_create and _destroy, by what describes, and by what plans
 * (rondo_plan_graph, rondo_instantiate, the reports). Several threads may be in it at once where several use runtimes
 * and graphs. */
struct rondo_allocator {
  void *user;
  void *(*allocate)(void *user, size_t bytes, size_t alignment);
  void (*release)(void *user, void *memory, size_t bytes);
};

#ifdef __cplusplus
}
#endif
#endif
