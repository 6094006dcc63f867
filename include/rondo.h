/* rondo.h - a static runtime for GPU task graphs.
 *
 *     describe            plan                 instantiate            replay
 *     graph        ->     order, lifetimes ->  addresses, one exec -> one driver call,
 *     tensors, tasks      offsets, bytes       graph per slot         one word to wait on
 *
 * A program opens a runtime with three fixed pools (device, pinned, host). It describes its work once, as a graph of
 * tasks over tensors, and instantiates the graph. Then it only replays. Without a GPU the graph runs on the host
 * backend, with the same plan. A complete program, for y = W x with four-bit weights (README.md says how to link it):
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
 * Conventions, unless a function says otherwise:
 *   - A function returns a rondo_status and writes its last argument, the out-parameter, on RONDO_OK only.
 *   - A failed call changes nothing. rondo_error_text() then gives one sentence with the phase, the task, the tensor
 *     and what was expected.
 *   - Every function may return RONDO_INVALID_ARGUMENT (a NULL or ended handle, a tensor of another graph, arguments
 *     that do not fit together) and RONDO_INVALID_STATE (not allowed now, such as a wait in a task for the task's own
 *     runtime: see rondo_host_function). Functions that describe or plan may return RONDO_OUT_OF_MEMORY (beyond the
 *     graph's limits or memory), functions that reach the device RONDO_DEVICE_ERROR and RONDO_DEVICE_LOST. "Errors:"
 *     lists other codes and further causes.
 *   - Descriptors are for designated initialisers. A zero field means its default; an all-zero rondo_tensor is absent.
 *     Memory behind pointers is read during the call only, except images of kernels, callbacks and `user`.
 *   - The caller owns handles. The function that ends a handle takes its address and sets it to NULL; NULL is allowed.
 *   - Names are optional and copied (63 bytes kept). Messages and reports use them, with U+FFFD for unprintable
 *     characters.
 *
 * Threads:
 *   - Runtime: any number of threads may call rondo_open, rondo_close, rondo_instantiate, rondo_runtime_info,
 *     rondo_runtime_health and rondo_lane_info at a time. No thread uses a runtime or exec while another closes it.
 *   - Graph: one thread at a time describes, plans, instantiates or draws it.
 *   - Exec: any number of threads may call rondo_acquire, rondo_acquire_within, rondo_wait_any and rondo_exec_info,
 *     without a lock. During an upload or download no other thread replays the exec or a borrower.
 *   - Several threads may make, set, read and close execs that share constants and states. A call that may not overlap
 *     another one in progress is refused.
 *   - Slot: only its holder, one thread at a time, fills, replays, rebinds, profiles and releases it. The holder may
 *     hand it on, by rondo_wait_any or any means that orders memory. Any thread may call rondo_poll, rondo_wait and
 *     rondo_data.
 *   - Different graphs and execs are independent. Any thread may call functions of values alone (rondo_version,
 *     rondo_dtype_bits, rondo_qr_panel_width, rondo_write_profile, rondo_write_trace).
 *   - Threads of the library block the program's signals. So do threads that the driver starts in rondo_open,
 *     rondo_instantiate, a slot's first replay and a device's first notice.
 *   - Results are computed in the default floating-point state. The calling thread's state has no effect on them and
 *     does not change.
 *   - fork: in the child, every call on a runtime of the parent, or on a graph, exec or slot made with it, returns
 *     RONDO_INVALID_STATE at once (Linux 4.14 and newer). The child need not close them. It may use graphs made without
 *     a runtime, and open a runtime of its own; if the parent has used the GPU, CUDA refuses that with RONDO_NO_DEVICE.
 */
#if defined(__cplusplus) && __cplusplus >= 201402L && defined(__has_include) && !defined(RONDO_CXX_H)
#if __has_include("rondo_cxx.h")
#include "rondo_cxx.h" /* installed: the same text, with a default for each field of a descriptor */
#endif
#endif
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
#elif defined(__GNUC_GNU_INLINE__) /* C before C99: an inline function would be defined in every file */
#define RONDO_API    __attribute__((visibility("default")))
#define RONDO_INLINE __attribute__((always_inline, gnu_inline)) extern __inline__
#else
#define RONDO_API    __attribute__((visibility("default")))
#define RONDO_INLINE __attribute__((always_inline)) __inline__
#endif

/* The version of this header; rondo_version returns the library's. RONDO_VERSION is 10203 for 1.2.3. */
#define RONDO_VERSION_MAJOR 0
#define RONDO_VERSION_MINOR 1
#define RONDO_VERSION_PATCH 0

#define RONDO_VERSION (RONDO_VERSION_MAJOR * 10000u + RONDO_VERSION_MINOR * 100u + RONDO_VERSION_PATCH)

#define RONDO_VERSION_STRING RONDO_DOTTED(RONDO_VERSION_MAJOR, RONDO_VERSION_MINOR, RONDO_VERSION_PATCH)

#define RONDO_DOTTED(a, b, c)      RONDO_DOTTED_TEXT(a, b, c)
#define RONDO_DOTTED_TEXT(a, b, c) #a "." #b "." #c

/* The ABI of this header, and the number in the library's soname. rondo_open checks that they agree. */
#define RONDO_ABI_VERSION 2u

#define RONDO_MAX_RANK  4
#define RONDO_MAX_SLOTS 16
#define RONDO_MAX_LANES 8
#define RONDO_MAX_RANKS 8
/* The most elements of one tensor: 2^31. */
#define RONDO_MAX_ELEMENTS (INT64_C(1) << 31)

/* The library's RONDO_VERSION. */
RONDO_API uint32_t rondo_version(void);

/* ---- Status ------------------------------------------------------------------------------------------------------ */

typedef enum rondo_status {
  RONDO_OK = 0,
  RONDO_BUSY,             /* the slot is in flight, or no slot is free: try again later */
  RONDO_TIMEOUT,          /* not in time; after rondo_wait the replay is still in flight */
  RONDO_INVALID_ARGUMENT, /* the call's arguments do not fit together */
  RONDO_INVALID_STATE,    /* the call is not allowed now: an exec still open, a stale slot, a sealed graph */
  RONDO_OUT_OF_MEMORY,    /* a pool or the allocator is too small; the text says how many bytes were needed */
  RONDO_UNSUPPORTED,      /* well-formed, but no code for it on this backend or chip */
  RONDO_NO_DEVICE,        /* the backend cannot be used here; the text says why */
  RONDO_DEVICE_ERROR,     /* the driver refused a call; the runtime stays usable */
  RONDO_DEVICE_LOST,      /* a fatal device error. Later calls on the runtime return this, with the first cause. The
                             driver gives this process no GPU any more: the process must end */
  RONDO_IO_ERROR,         /* a report could not be written */
  RONDO_INTERNAL          /* a bug in Rondo */
} rondo_status;

/* The status as a word, such as "RONDO_BUSY". Never NULL. */
RONDO_API const char *rondo_status_name(rondo_status status);

/* The sentence about this thread's last failed call; "" if none failed. Valid until the thread's next failure. */
RONDO_API const char *rondo_error_text(void);

/* ---- Runtime: one device, three fixed pools ---------------------------------------------------------------------- */

typedef struct rondo_runtime rondo_runtime;
typedef struct rondo_allocator rondo_allocator; /* defined at the end of this file */
typedef struct rondo_lane rondo_lane;

typedef enum rondo_backend {
  RONDO_BACKEND_AUTO = 0, /* CUDA if there is a usable GPU, else the host */
  RONDO_BACKEND_HOST,
  RONDO_BACKEND_CUDA
} rondo_backend;

/* How rondo_wait, rondo_wait_any and the host backend's threads wait. Idle host threads sleep.
 *   RONDO_WAIT_SPIN_YIELD  CUDA: spins 50 us, then yields the core between looks. Host: spins or sleeps, whichever saw
 *                          the end sooner in the slot's trial waits, which are repeated now and then
 *   RONDO_WAIT_SPIN        spins. No system call in rondo_replay and rondo_wait, except in a slot's first replay
 *                          without warm-up. Host: one thread of each lane spins too, even when idle
 *   RONDO_WAIT_BLOCK       least CPU. CUDA: sleeps 20 us between looks. Host: sleeps until the end */
typedef enum rondo_wait_mode { RONDO_WAIT_SPIN_YIELD = 0, RONDO_WAIT_SPIN, RONDO_WAIT_BLOCK } rondo_wait_mode;

typedef struct rondo_options {
  rondo_backend backend;
  int32_t device;        /* CUDA device ordinal */
  uint64_t device_bytes; /* pool sizes; rondo_plan_graph says what a graph needs */
  uint64_t pinned_bytes;
  uint64_t host_bytes; /* bookkeeping of graphs and execs; 0: 16 MiB */
  /* Threads of the host backend, for all lanes. 0: one per core, at most 64, at most the CPU quota of the process's
   * control groups in full cores, and at least one per lane. The cores are those of the thread that calls rondo_open;
   * if it has one core, the main thread's; if that has one too, the process's when the library was loaded. Threads run
   * on all of these cores, and spin briefly before they sleep. A service with busy threads of its own sets the number
   * of cores that these leave free. */
  uint32_t host_threads;
  rondo_wait_mode wait_mode;
  const rondo_allocator *allocator; /* NULL: mimalloc. Copied */
  const rondo_lane *lanes;          /* Copied */
  uint32_t lane_count; /* at most RONDO_MAX_LANES; 0: one lane, the whole device, of the highest priority */
} rondo_options;

/* Opens a runtime: loads the driver, creates the context and takes the three pools.
 *   - Later the runtime allocates only in rondo_profile and for the threads that help with successive uploads.
 *   - Pools in host memory are limited by what the machine and its control group can spare now, or by the program's
 *     allocator. The system provides their pages at the first use, in rondo_instantiate, which returns
 *     RONDO_OUT_OF_MEMORY if none are left. Bookkeeping of graphs and execs in the host pool has no such check. No
 *     replay is the first to use a page.
 *   - A program that uses dlsym calls rondo_open_abi(RONDO_ABI_VERSION, ...): the symbol rondo_open checks no ABI.
 * Errors: RONDO_NO_DEVICE if CUDA cannot be used here (RONDO_BACKEND_AUTO then takes the host); RONDO_OUT_OF_MEMORY;
 * RONDO_INVALID_ARGUMENT, also if lanes ask for too much or the library has another ABI; RONDO_UNSUPPORTED if the
 * driver cannot split the device. */
RONDO_API rondo_status rondo_open_abi(uint32_t abi_version, const rondo_options *options, rondo_runtime **runtime);
RONDO_API RONDO_INLINE rondo_status rondo_open(const rondo_options *options, rondo_runtime **runtime) {
  return rondo_open_abi(RONDO_ABI_VERSION, options, runtime);
}

/* Opens a group: 1 to RONDO_MAX_RANKS runtimes, the ranks, with options[rank]. If one cannot be opened, none is. All
 * have the same backend; RONDO_BACKEND_AUTO takes CUDA if all can use it.
 *   - Each GPU reaches the memory of the others (peer access, which stays on after rondo_close). Ranks may share a GPU.
 *   - Graphs may borrow from graphs that are instantiated in other runtimes of the group.
 *   - Runtimes are closed one by one, in any order. Rank 0's allocator lives until the last is closed.
 *   - On the host, ranks without host_threads share the cores.
 * Errors: those of rondo_open, with the rank; RONDO_NO_DEVICE also if a GPU cannot reach another. */
RONDO_API rondo_status rondo_open_group_abi(uint32_t abi_version, const rondo_options *options, uint32_t ranks,
                                            rondo_runtime **runtimes);
RONDO_API RONDO_INLINE rondo_status rondo_open_group(const rondo_options *options, uint32_t ranks,
                                                     rondo_runtime **runtimes) {
  return rondo_open_group_abi(RONDO_ABI_VERSION, options, ranks, runtimes);
}

/* Closes the runtime.
 *   - Waits, without a limit, for all work on its lanes' streams, other libraries' too.
 *   - Leaks memory that a lost device may still touch: see rondo_close_exec_within.
 * Errors: RONDO_INVALID_STATE while an exec or graph of the runtime is open. */
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
  /* GPU memory; 0 on the host, in a callback, or if the driver cannot tell.
   *   driver_bytes       taken by rondo_open besides the pool, for streams and lanes, without the CUDA context. It is a
   *                      difference of free memory, so other processes' allocations count too
   *   free_device_bytes  free now, for all processes */
  uint64_t driver_bytes;
  uint64_t free_device_bytes;
} rondo_info;

/* The device, and the use of its pools now. */
RONDO_API rondo_status rondo_runtime_info(rondo_runtime *runtime, rondo_info *info);

/* Asks the driver for the device's health: RONDO_OK, or RONDO_DEVICE_LOST with the first cause. Takes no lock of
 * Rondo's. A kernel that hangs is not noticed: its replay stays in flight. */
RONDO_API rondo_status rondo_runtime_health(rondo_runtime *runtime);

/* ---- Describe: tensors ------------------------------------------------------------------------------------------- */

typedef struct rondo_graph rondo_graph;

/* A tensor or a view: a small value, valid while its graph lives. Calls on an exec or slot take tensors of its graph
 * even after that graph is destroyed. Until the graph's runtime is closed, all other calls refuse them, even if a new
 * graph has the same address. */
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

/* Bits of one element; 0 for an unknown dtype. */
RONDO_API uint32_t rondo_dtype_bits(rondo_dtype dtype);
/* "nvfp4", "bf16"; never NULL. */
RONDO_API const char *rondo_dtype_name(rondo_dtype dtype);

typedef struct rondo_graph_limits {
  uint32_t tensors;                 /* tensors and views; 0: 1024, at most 1048576 */
  uint32_t tasks;                   /* 0: 256, at most 262144 */
  const rondo_allocator *allocator; /* of a graph made without a runtime; NULL: mimalloc. Copied */
} rondo_graph_limits;

/* Creates an empty graph. limits may be NULL.
 *   - With a runtime: its memory comes from the host pool, and limits->allocator is NULL.
 *   - Without: its memory comes from the allocator, and any runtime can instantiate it.
 *   - Own kernels and planning take more of that memory. The first call that needs the plan makes it, and it is kept
 *     until the description changes. */
RONDO_API rondo_status rondo_graph_create(rondo_runtime *runtime_or_null, const rondo_graph_limits *limits,
                                          rondo_graph **graph);
/* Destroys the graph and gives back its memory. Execs made from it live on. */
RONDO_API rondo_status rondo_graph_destroy(rondo_graph **graph);

/* Adds a tensor: row-major, dense, 1 to 4 dimensions. A dimension may be 0; nvfp4's last one is even.
 *   input      pinned, one per slot; the program fills it before a replay. Zero at first; keeps its content, so rows
 *              that a small batch does not fill hold older data
 *   output     pinned, one per slot; the program reads it after a replay. Tasks may read it after they wrote it
 *   constant   uploaded after instantiate, never written by a task
 *   state      lives across replays and slots, zero at first, e.g. a KV cache
 *   temporary  lives from its first writer to its last reader; shares bytes with others
 * Errors: RONDO_INVALID_ARGUMENT for a negative size, more than 2^31 elements, an unknown type or rank. */
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

/* Makes a view of a rectangle of a tensor or view, with an offset and an extent per dimension (both even in the last
 * dimension of nvfp4). It keeps rank and strides: a view of a matrix has a leading dimension, and may be a panel of
 * columns for QR.
 * Errors: RONDO_INVALID_ARGUMENT for a rectangle that is not inside the tensor. */
RONDO_API rondo_status rondo_view(rondo_graph *graph, rondo_tensor tensor, const int64_t *offset, const int64_t *extent,
                                  rondo_tensor *view);

/* Makes a view of the same elements, in the order of memory, in another shape: a product [count, heads * d] becomes the
 * queries [count, heads, 1, d] of an attention.
 *   - A tensor or dense view takes any shape of as many elements; the last dimension of nvfp4 is even.
 *   - A view with gaps between its rows keeps them: dimensions may be split, and joined if contiguous.
 *   - The result can be viewed and reshaped again.
 * Errors: RONDO_INVALID_ARGUMENT for any other shape. */
RONDO_API rondo_status rondo_reshape(rondo_graph *graph, rondo_tensor tensor, uint32_t rank, const int64_t *shape,
                                     rondo_tensor *view);

/* Adds another graph's constant or state, or a view of one: many graphs share one set of weights and KV caches.
 *   - The memory belongs to the lender, the other graph's exec. It is uploaded and counted there, once. The lender is
 *     open before this graph is instantiated, and closed after this graph's execs. The other graph itself may be
 *     destroyed after this call.
 *   - Two borrowed views of one tensor are views of one tensor here, so tasks that conflict keep their order.
 *   - Several graphs may write a shared state: execs of one lane run one after the other.
 * Errors: RONDO_INVALID_ARGUMENT for a tensor of this graph, or one that is neither constant nor state. */
RONDO_API rondo_status rondo_borrow(rondo_graph *graph, rondo_tensor lent, rondo_tensor *tensor);

/* Dense bytes of a tensor or view, as rondo_upload takes them and a slot holds them. */
RONDO_API rondo_status rondo_tensor_bytes(rondo_tensor tensor, uint64_t *bytes);

/* ---- Describe: tasks --------------------------------------------------------------------------------------------- */

/* Tasks behave as if they ran one after the other, in the order of adding; tasks without conflicting elements may run
 * at the same time. An operand that a task writes must not overlap its other operands, except where in-place use is
 * allowed.
 *
 *   at replay  marks a tensor of ids, lengths, positions or settings that each replay reads on the device
 *   u          relative error of one rounding: 2^-11 for f16, 2^-8 for bf16
 *
 * Errors of all rondo_add_*: RONDO_INVALID_ARGUMENT if an operand does not fit; the text names operand and tensor. */

/* Copy: dst := src, of one shape and any one type. Either may be a view. */
typedef struct rondo_copy_desc {
  const char *name;
  rondo_tensor src, dst;
} rondo_copy_desc;
RONDO_API rondo_status rondo_add_copy(rondo_graph *graph, const rondo_copy_desc *desc);

/* Append: row position + r of dst := row r of src, such as new rows of a KV cache.
 *   dst        any type; a KV cache is [batch, heads, capacity, d] (dimension 2) or [batch, capacity, heads, d]
 *              (dimension 1)
 *   src        dst's type and shape, with at most as many rows
 *   position   i32 [1], or [batch] with one for each index of dimension 0; at replay
 *   dimension  the one that counts rows; for nvfp4 not the last
 * Rows below 0 or beyond the capacity are not written; other rows are. The rest of dst keeps its values, so an earlier
 * task must write a dst that is a temporary or an output. A following attention takes kv_lengths = position + rows. */
typedef struct rondo_append_desc {
  const char *name;
  rondo_tensor src, dst;
  rondo_tensor position;
  uint32_t dimension;
} rondo_append_desc;
RONDO_API rondo_status rondo_add_append(rondo_graph *graph, const rondo_append_desc *desc);

/* Layout of the scale factors of NVFP4 operands.
 *   RONDO_SCALES_BY_ROW  [.., rows, k/16]
 *   RONDO_SCALES_128X4   that of cuBLAS and Blackwell's tensor cores: dense [.., rows, k/16], rows rounded up to a
 *                        multiple of 128 and k/16 to one of 4. Tiles of 128 rows x 4 scales, 512 bytes, follow each
 *                        other along k, then along rows. Scale j of row i of a tile is byte
 *                          i % 32 * 16 + i / 32 * 4 + j
 *                        Bytes outside the matrix are not read */
typedef enum rondo_scale_layout { RONDO_SCALES_BY_ROW = 0, RONDO_SCALES_128X4 } rondo_scale_layout;

/* Matrix times 1 to 16 vectors, with an optional RMS norm and epilogue:
 *   z   = x * norm,   r = 1 / sqrt(mean(x^2) + norm_epsilon)     if norm_epsilon > 0, else z = x, r = 1
 *   y   = r * scale * weight_scale * (W z) + bias                weight_scale is that of e4m3 rows, else 1
 *   y   = silu(y[2i]) * y[2i + 1]                                if silu_mul
 *   out = y + residual
 *
 *   weights           [batch, m, k]. All tensors may omit the batch dimension
 *   vectors           [batch, count, k], rows x
 *   out               [batch, count, m] in f16, bf16, f32 or nvfp4
 *   scale             0 means 1
 *   one_order         1: a vector's result has the same bits with any count. 0, faster: bits may differ between counts
 *                     of 1, 2, 3 to 4, 5 to 8 and 9 to 16
 *   norm_epsilon      > 0 only with vectors in f16 or bf16
 *   norm              optional [k] of the vectors' type, with norm_epsilon > 0
 *   bias              optional [m] or [batch, m] in f16, bf16 or f32
 *   silu_mul          1: rows 2i and 2i + 1 of W are gate and up; m is even, and out is [batch, count, m/2]
 *   residual          optional, out's shape, in f16, bf16 or f32; may be out itself
 *   out_scales        nvfp4 out, of a multiple of 16 columns: e4m3 [batch, count, columns/16]. Else absent
 *   out_global_scale  nvfp4 out: global_scale of rondo_add_quantize_nvfp4; 0 means 1
 *
 *   weights  vectors           weight_scales            vector_scales
 *   f16      f16               absent                   absent
 *   bf16     bf16              absent                   absent
 *   e4m3     f16, bf16         optional f32 [batch, m]  absent
 *   nvfp4    f16, bf16, nvfp4  e4m3 [batch, m, k/16]    of nvfp4 vectors: e4m3 [batch, count, k/16]
 * With nvfp4, k is a multiple of 16.
 *
 * Sums and epilogue are fp32, in a fixed order; z is rounded to the vectors' type.
 *
 * Error bound of r * scale * weight_scale * (W z), with NVFP4 scales in w and z:
 *   |error| <= |r * scale * weight_scale| ((8 + 4 sqrt(k/16)) 2^-24 sum|w z| + k 2^-141)
 * With bf16 vectors and e4m3 or nvfp4 weights, parts of a vector become f16, each scaled by a power of two. The sum in
 * parentheses then grows by
 *   2^-38 max|z| sum|w|
 * The relative error of r itself is at most
 *   (4 + sqrt(k/16)) 2^-24
 * The epilogue adds its fp32 roundings, and out half a unit in its last place.
 *
 * Codes and scales are taken as exact. Values beyond out's range become infinity. A NaN scale makes only its own row or
 * vector NaN. */
typedef struct rondo_gemv_desc {
  const char *name;
  rondo_tensor weights, weight_scales;
  rondo_tensor vectors, vector_scales;
  rondo_tensor out;
  float scale;
  rondo_scale_layout weight_scale_layout, vector_scale_layout;
  int32_t one_order;
  float norm_epsilon;
  rondo_tensor norm;
  rondo_tensor bias;
  int32_t silu_mul;
  rondo_tensor residual;
  rondo_tensor out_scales;
  float out_global_scale;
} rondo_gemv_desc;
RONDO_API rondo_status rondo_add_gemv(rondo_graph *graph, const rondo_gemv_desc *desc);

/* Matrix times 1 to 65,536 vectors. Fields are those of rondo_gemv_desc, which takes more types and up to 16 vectors.
 *   y = r * scale * (W x) + bias,   then silu_mul,   out = y + residual
 *
 * Vectors are f16 or bf16, weights their type or nvfp4, out f16, bf16 or f32. Vectors and weights may both be e4m3
 * (rondo_add_quantize_e4m3), with optional scales of rows, f32 [batch, count] and [batch, m], and without norms: on the
 * host, and on compute capability 9.0 if m is even, rows begin at multiples of 16 bytes, weight_scales at those of 8.
 *   norm, normed, squares
 *                   optional, all or none: begin the RMS norm of a following product. normed = out * norm, norm [m],
 *                   both of the vectors' type. squares f32 [batch, ceil(m/64), count] are the sums of out^2 over 64
 *                   columns each, before out is rounded. Without silu_mul and one_order
 *   vector_squares  optional: ends that norm. They are the squares that the product before it left;
 *                   r = 1 / sqrt(their sum / k + norm_epsilon). Absent: r is 1
 *
 * Error bound of scale * (W x), and with e4m3 vectors 2^-5 sum|w x| more:
 *   |error| <= |scale| ((8 + k/16) 2^-23 sum|w x| + k 2^-133)
 * The relative error of r is at most
 *   (8 + k/64) 2^-24
 * and silu adds 2^-17 of itself and 2^-119 |up|. */
typedef struct rondo_gemm_desc {
  const char *name;
  rondo_tensor weights, vectors;
  rondo_tensor out;
  float scale;
  int32_t one_order;
  int32_t silu_mul;
  rondo_tensor bias, residual;
  rondo_tensor weight_scales;
  rondo_scale_layout weight_scale_layout;
  rondo_tensor vector_scales;
  rondo_tensor norm, normed, squares;
  rondo_tensor vector_squares;
  float norm_epsilon;
} rondo_gemm_desc;
RONDO_API rondo_status rondo_add_gemm(rondo_graph *graph, const rondo_gemm_desc *desc);

typedef enum rondo_head_layout {
  RONDO_BHSD = 0, /* [batch, heads, sequence, head dimension] */
  RONDO_BSHD      /* [batch, sequence, heads, head dimension] */
} rondo_head_layout;

/* The two numbers of a row that a rotary embedding turns together as pair i. */
typedef enum rondo_rope_pairing {
  RONDO_ROPE_INTERLEAVED = 0, /* 2i and 2i + 1 */
  RONDO_ROPE_HALVES           /* i and i + d/2 */
} rondo_rope_pairing;

/* Attention, for each query head:
 *   O = softmax(mask(cap(scale * Q K^T))) V,   cap(s) = soft_cap * tanh(s / soft_cap)
 *
 * Shapes are those of RONDO_BHSD; RONDO_BSHD exchanges the middle two of four dimensions. d is 32, 64, 128 or 256.
 *   q            [batch, query heads, query length, d] in f16, bf16 or e4m3
 *   k, v         [batch, KV heads, capacity, d], both of q's type or both e4m3. Query heads are a multiple of KV heads
 *                (GQA)
 *   o            q's shape and type; f16 or bf16 if q is e4m3
 *   q_scale, k_scale, v_scale
 *                factor of an e4m3 tensor; 0 means 1
 *   scale        0 means 1/sqrt(d)
 *   causal       1: query row i sees KV row j only if j <= i + length - query length (aligned at the bottom right);
 *                with new_k, if j <= position + i
 *   window       with causal: only the last `window` of these rows; 0, or the capacity or more: all
 *   soft_cap     > 0: caps scores, before masks; 0: no cap
 *   kv_lengths   optional i32 [batch], at replay: each item's length in KV rows, clamped to 0 .. capacity. Later rows
 *                are never used. Absent: the capacity
 *   lse          optional f32 [batch, query heads, query length]: log-sum-exp of the scores
 *   splits       the most parts into which the KV sequence is cut; 0: Rondo chooses. The result's bits depend on it
 *   kv_pages     optional i32 [batch, pages of an item], at replay: k and v are pools [pages, KV heads, page rows, d],
 *                and KV row j of item b is row j % page rows of page kv_pages[b][j / page rows]. Page rows are a power
 *                of two, at least 16. The capacity is pages of an item * page rows, at most 2^26. Items may share
 *                pages. An entry that is no page, such as -1, stands for rows that no query sees
 *   new_k, new_v optional, both: [batch, KV heads, query length, d] of k's type, f16 or bf16; see below
 *   position     i32 [1] or [batch], at replay: of an item's first query and new row. Only with new_k or a rotary
 *                embedding
 *   row_offsets  optional i32 [items + 1], at replay, with causal and new_k: packed rows. q, o, lse, new_k and new_v
 *                have batch 1; item i of k, v, position and kv_pages has their rows row_offsets[i] to
 *                row_offsets[i + 1] - 1. Offsets are clamped to 0 .. query length, and to the offset before. Rows of
 *                no item have output 0 and lse -infinity. An item's bits depend on no other item
 *   rope_base, rope_frequencies, rope_pairing
 *                rope_base > 0, or rope_frequencies (f32 [d/2], radians per position): a rotary embedding first turns q
 *                (f16 or bf16) and new_k, and rounds them. Pair i of row r turns by
 *                  (position + r) * rope_base^(-2i/d)   or   (position + r) * rope_frequencies[i]
 *
 * A row that sees nothing, or only scores of -infinity, has output 0 and lse -infinity.
 *
 * With new_k, the task first writes row r of item b as KV row position[b] + r, through kv_pages if present. Rows below
 * 0, beyond the capacity or of no page are not written. k and v are states, or temporaries that an earlier task writes;
 * an item must not write to another item's pages. kv_lengths is absent: the length is position + query length, at most
 * the capacity. With causal, query row r sees all existing KV rows 0 to position + r, even if new rows do not fit.
 *
 * Error bounds, with u of o's type, m the mean of |v| with the row's weights, and s the error of a score:
 *   |o - exact|   <= 1.01 u (|exact| + m) + (4 s + 2^-18) m + 2^-25 sum|v|
 *   |lse - exact| <= s + 10^-6 (|lse| + log(rows seen) + 1)
 *   s              = 2^-20 max over rows of |scale| sum|q k|
 * If K and V are bf16, the last term of the first line is 2^-126 sum|v|. With soft_cap, s grows by
 *   2^-10 |largest score|
 * e4m3 numbers count as exact. But if q is e4m3 and d is 128, a GPU may compute products and weights in e4m3. This
 * adds
 *   s              2^-9 max over rows of |scale| sum|q k|
 *   |o - exact|    m/8 + 2^-16 sum|v| (for random v some 3% of o)
 *   |lse - exact|  0.08
 * Tensor cores truncate fp32 sums of 16-bit products. For each KV row of a split, o is too small by about
 *   2^-27 m
 * (2^-10 m at 131072 rows), and by less if few query rows share a KV head.
 *
 * An item has the same bits in any batch up to 65535 if
 *   - compute capability is 9.0 or 10.0, and the exec's lane has 16 multiprocessors or more
 *   - query length * query heads / KV heads is at most 16 (with d = 256 at most 15, or 8 if K and V are e4m3)
 *   - d is 64 or more, q is not e4m3, and rows begin at multiples of 16 bytes
 *
 * Errors: RONDO_INVALID_ARGUMENT also if f = scale * q_scale * k_scale is 0, |f| is above FLT_MAX / 2, or f / soft_cap
 * is not a normal number. */
typedef struct rondo_attention_desc {
  const char *name;
  rondo_head_layout layout;
  rondo_tensor q, k, v, o;
  rondo_tensor kv_lengths;
  rondo_tensor lse;
  float scale;
  int32_t causal;
  int32_t splits;
  rondo_tensor kv_pages;
  int32_t window;
  float soft_cap;
  float q_scale, k_scale, v_scale;
  rondo_tensor new_k, new_v;
  rondo_tensor position;
  rondo_tensor rope_frequencies;
  float rope_base;
  rondo_rope_pairing rope_pairing;
  rondo_tensor row_offsets;
} rondo_attention_desc;
RONDO_API rondo_status rondo_add_attention(rondo_graph *graph, const rondo_attention_desc *desc);

/* Softmax over the rows of a product: P = softmax(S), S = scale * A B^T.
 *   a       [batch, m, k] in f16 or bf16. All tensors may omit the batch dimension
 *   b       [batch, n, k] of a's type
 *   p       [batch, m, n] in f16, bf16 or f32
 *   scale   0 means 1
 *   causal  1: row i sees column j only if j <= i + n - m
 * A row without columns is zeros. Sums are fp32. p in 16 bits may be rounded twice, to within one unit in its last
 * place. */
typedef struct rondo_gemm_softmax_desc {
  const char *name;
  rondo_tensor a, b, p;
  float scale;
  int32_t causal;
} rondo_gemm_softmax_desc;
RONDO_API rondo_status rondo_add_gemm_softmax(rondo_graph *graph, const rondo_gemm_softmax_desc *desc);

/* Row maxima of the same S: max f32 [batch, m], -infinity for a row without columns. */
typedef struct rondo_gemm_rowmax_desc {
  const char *name;
  rondo_tensor a, b, max;
  float scale;
  int32_t causal;
} rondo_gemm_rowmax_desc;
RONDO_API rondo_status rondo_add_gemm_rowmax(rondo_graph *graph, const rondo_gemm_rowmax_desc *desc);

/* Quantisation of rows to NVFP4. For each 16 numbers of a row:
 *   scale = e4m3(max|x| / (6 global_scale))
 *   code  = e2m1(x / (scale * global_scale)), so that x ~ code * scale * global_scale
 *
 *   x             [.., k] in f32, f16 or bf16; k is a multiple of 16
 *   codes         nvfp4, x's shape
 *   scales        e4m3 [.., k/16]
 *   global_scale  0 means 1; 448 * global_scale is finite
 * Both roundings are to nearest even and saturate. A NaN makes the scale of its 16 numbers NaN. */
typedef struct rondo_quantize_nvfp4_desc {
  const char *name;
  rondo_tensor x, codes, scales;
  float global_scale;
} rondo_quantize_nvfp4_desc;
RONDO_API rondo_status rondo_add_quantize_nvfp4(rondo_graph *graph, const rondo_quantize_nvfp4_desc *desc);

/* Quantisation of rows to e4m3, as rondo_add_gemm takes them:
 *   scale = max(max|x| / 448, 2^-126)
 *   code  = e4m3(x * (1 / scale))
 *
 *   x       [.., rows, k] in f32, f16 or bf16
 *   codes   e4m3, x's shape
 *   scales  f32 [.., rows]
 * Each operation rounds to nearest even; codes saturate. A NaN or an infinity makes its row's scale and codes NaN. */
typedef struct rondo_quantize_e4m3_desc {
  const char *name;
  rondo_tensor x, codes, scales;
} rondo_quantize_e4m3_desc;
RONDO_API rondo_status rondo_add_quantize_e4m3(rondo_graph *graph, const rondo_quantize_e4m3_desc *desc);

/* The operations from here to rondo_add_sample compute in fp32 and round each result once. */

/* Embedding: out[i, :] = scale * table[ids[i], :].
 *   table         [rows, width] in f32, f16, bf16 or nvfp4; any tensor, a temporary too
 *   table_scales  nvfp4: e4m3 [rows, width/16], width a multiple of 16. Else absent
 *   ids           i32 [count], at replay. An id that is no row of the table gives a row of NaN
 *   out           [count, width] in f32, f16 or bf16
 *   scale         0 means 1 */
typedef struct rondo_embed_desc {
  const char *name;
  rondo_tensor table, table_scales;
  rondo_tensor ids;
  rondo_tensor out;
  float scale;
} rondo_embed_desc;
RONDO_API rondo_status rondo_add_embed(rondo_graph *graph, const rondo_embed_desc *desc);

/* RMS norm over the last dimension: out = x * norm / sqrt(mean(x^2) + epsilon), multiplied from left to right.
 *   x        [.., k] in f32, f16 or bf16
 *   norm     optional [k] in f32, f16 or bf16
 *   out      x's shape in f32, f16 or bf16; may be x itself
 *   x_parts  optional f32 [parts, .., k], with x of rank 3 at most: x + the sum of the parts replaces x, as after a
 *            layer half. The parts are added in their order, then x, in fp32; the sum is rounded to x's type
 * A row has the same bits at any index. The relative error of the factor 1/sqrt(..) is at most
 *   (4 + sqrt(k/16)) 2^-24
 * Zeros with epsilon 0, and numbers whose squares overflow, give NaN or zeros. */
typedef struct rondo_rms_norm_desc {
  const char *name;
  rondo_tensor x, norm;
  rondo_tensor out;
  float epsilon;
  rondo_tensor x_parts;
} rondo_rms_norm_desc;
RONDO_API rondo_status rondo_add_rms_norm(rondo_graph *graph, const rondo_rms_norm_desc *desc);

/* Rotary embedding (Su et al., RoFormer, 2021). Pair i, (a, b), of row s of item n becomes
 *   (a cos t - b sin t, b cos t + a sin t),   t = (position[n] + s) * base^(-2i/d)
 *
 *   x, out       [batch, heads, sequence, d] or, with RONDO_BSHD, [batch, sequence, heads, d], of one type, f32, f16 or
 *                bf16. d is even, at most 256. A view of d's first numbers turns part of each row. out may be x itself
 *   position     i32 [1] or [batch], at replay
 *   base         0 means 10000
 *   frequencies  optional f32 [d/2]: radians per position of each pair, in place of base^(-2i/d)
 * base^(-2i/d) is computed in fp64 and rounded once to fp32. t is one fp32 product. The relative error of its sine and
 * cosine is at most
 *   2^-22 */
typedef struct rondo_rope_desc {
  const char *name;
  rondo_head_layout layout;
  rondo_rope_pairing pairing;
  rondo_tensor x, out;
  rondo_tensor position;
  rondo_tensor frequencies;
  float base;
} rondo_rope_desc;
RONDO_API rondo_status rondo_add_rope(rondo_graph *graph, const rondo_rope_desc *desc);

/* Gate of a feed forward: out = silu(gate) * up, silu(x) = x / (1 + e^-x).
 *   gate, up, out  one shape and type: f32, f16 or bf16. out may be gate or up itself
 * A gate of -infinity gives NaN. Error bound:
 *   |out - exact| <= 2^-21 |exact| + 2^-121 |up| + half a unit in out's last place */
typedef struct rondo_silu_mul_desc {
  const char *name;
  rondo_tensor gate, up;
  rondo_tensor out;
} rondo_silu_mul_desc;
RONDO_API rondo_status rondo_add_silu_mul(rondo_graph *graph, const rondo_silu_mul_desc *desc);

/* Sum: out = a + b.
 *   a, b, out  one shape and type: f32, f16, bf16, or i32, which wraps. out may be a or b itself: so a graph advances
 *              a position that is an i32 state */
typedef struct rondo_add_desc {
  const char *name;
  rondo_tensor a, b;
  rondo_tensor out;
} rondo_add_desc;
RONDO_API rondo_status rondo_add_add(rondo_graph *graph, const rondo_add_desc *desc);

/* Argmax: out[i] = the column of the largest number of row i. Of equal numbers the first wins; NaN is the largest.
 *   x    [count, n] in f32, f16 or bf16; n is at least 1
 *   out  i32 [count] */
typedef struct rondo_argmax_desc {
  const char *name;
  rondo_tensor x;
  rondo_tensor out;
} rondo_argmax_desc;
RONDO_API rondo_status rondo_add_argmax(rondo_graph *graph, const rondo_argmax_desc *desc);

/* Penalties, in place, on columns drawn lately, before an argmax or a draw. Each column that occurs in ids[i], `times`
 * times, becomes in row i
 *   (x > 0 ? x / repetition : x * repetition) - times * frequency - presence
 *
 *   x           [count, n] in f32, f16 or bf16
 *   ids         i32 [count, length], length at most 1024, at replay. An id that is no column, such as -1, is ignored
 *   repetition  optional f32 [1] or [count], at replay, above 0; absent: 1 (Keskar et al., CTRL, 2019)
 *   frequency, presence
 *               optional f32 [1] or [count], at replay; absent: 0
 * Each operation is rounded to fp32, the result to x's type. The host and every chip give the same bits. */
typedef struct rondo_penalty_desc {
  const char *name;
  rondo_tensor x;
  rondo_tensor ids;
  rondo_tensor repetition, frequency, presence;
} rondo_penalty_desc;
RONDO_API rondo_status rondo_add_penalty(rondo_graph *graph, const rondo_penalty_desc *desc);

/* Draw of a column of each row. Candidates are the top_k largest numbers, and of these the fewest that reach the share
 * top_p of the probability. Each is drawn with its share of p = softmax(x / temperature).
 *   x            [count, n] in f32, f16 or bf16; n is 1 to 2^20
 *   out          i32 [count]
 *   temperature  optional f32; absent: 1
 *   top_k        optional i32; absent, or 0 or less: no limit
 *   top_p        optional f32, a share of the top_k's sum; absent, or 1 or more: no limit; 0 or less: the largest alone
 *   seed, step   i32. The same pair gives the same random number at any row, so a program counts steps
 * All from temperature on are [1] or [count], at replay.
 *
 * The random number r is 64 bits of Philox4x32-10 over 2^64: words 1 (high) and 0 for the counter (step, 0, 0, 0) and
 * the key (seed, 0). The column drawn is the first, from the largest number down, with
 *   sum of p down to this column > r * sum of p over all candidates
 * Of equal numbers the first column counts as the larger one. The largest number is taken, as by rondo_add_argmax, if
 * it is NaN or infinite, or if the temperature is not above 0 or so small that log2(e) / temperature overflows.
 *
 * p has a relative error of at most 2^-21, and is 0 below 2^-42 of the largest. Sums of p are exact: the host and every
 * chip draw the same column. */
typedef struct rondo_sample_desc {
  const char *name;
  rondo_tensor x;
  rondo_tensor out;
  rondo_tensor temperature, top_k, top_p;
  rondo_tensor seed, step;
} rondo_sample_desc;
RONDO_API rondo_status rondo_add_sample(rondo_graph *graph, const rondo_sample_desc *desc);

/* Speculation: accepts drafted tokens and drafts the next ones, by prompt lookup (Saxena, 2023). The rows of a replay
 * are a token and drafts of the tokens after it. Each row chooses the token after its own. The first row's choice is
 * accepted, and then that of each further row, as long as the choice before it equals the row's draft. So drafts only
 * change how many tokens come at once, not which; drawn ones keep their distribution (Leviathan et al., 2023).
 *   chosen    i32 [rows], of an argmax or a draw; rows are 1 or as many as tokens
 *   tokens    i32 [1 + drafts], at most 128: becomes the last accepted token and the next drafts
 *   position  i32 [1], of the first row; grows by the number of accepted tokens
 *   last      optional i32 [1], at replay, with 1 row: added to position first, such as a prompt's last row
 *   history   i32 [capacity], tokens by position: gets the accepted ones
 *   stops     optional i32 [up to 16], at replay: nothing is accepted after one of these; -1 stands for none
 *   limit     optional i32 [1], at replay: position stops at it, but grows by at least 1; 0: no limit
 *   accepted  i32 [rows]: the accepted tokens, then -1
 *   matched   i32 [1]: -1 after a stop token or at the limit; else the length of the match, or 0
 * A match is the longest run of 2 to 8 earlier tokens that equals the last ones; the latest of equally long ones. The
 * drafts are the tokens that followed it; if they are too few, they are repeated. Without a match each draft is the
 * last token. Positions outside of history have no match, and are not written. */
typedef struct rondo_prompt_lookup_desc {
  const char *name;
  rondo_tensor chosen;
  rondo_tensor tokens, position;
  rondo_tensor last;
  rondo_tensor history;
  rondo_tensor stops, limit;
  rondo_tensor accepted, matched;
} rondo_prompt_lookup_desc;
RONDO_API rondo_status rondo_add_prompt_lookup(rondo_graph *graph, const rondo_prompt_lookup_desc *desc);

/* Layer halves of a decoder (Llama and similar models), for 1 to 16 rows, each as one task. If a GPU has no kernel for
 * the sizes, and on the host, a half runs as rondo_add_gemv and rondo_add_attention, one after the other.
 *
 * A half takes the residual stream as x and x_parts and leaves it as out and out_parts, which the next half takes:
 *   out              = x + sum of x_parts
 *   sum of out_parts = the half's result, computed from out
 *
 *   x             [rows, hidden] in f32, f16 or bf16. A half is one kernel only with x in f32
 *   x_parts       optional f32 [parts, rows, hidden], 1 part or more
 *   out           x's shape and type; not x itself. The sum is fp32, in an order fixed for each kernel (x first or
 *                 last), and rounded once
 *   out_parts     f32 [parts, rows, hidden], 1 part or more. Only their sum is defined; a part may be zeros. Use 8
 *                 parts; for attention one per KV head (at hidden 2048 with heads of 64 one per two query heads).
 *                 Fewer are slower
 *   norm_epsilon  > 0: RMS norm of out before the products, as in rondo_gemv_desc
 *   norm          optional [hidden] of type T
 *   scale         factor of all weights, such as NVFP4's; 0 means 1
 * T is x's type; with x in f32 that of norm, f16 or bf16, or bf16 without norm. Weights are all T, e4m3 (each with
 * optional scales, f32 [rows of weights]) or nvfp4 (each with scales, e4m3 [rows of weights, columns/16]).
 *
 * Sums are fp32. Intermediate results (the normalised x * norm, q, new rows of k and v, the attention's result, gated
 * columns) are rounded to T or kept in up to fp32. A row has the same bits in every replay, but may have others with
 * another number of rows.
 *
 * Error bounds, with u of x's type, added = sum of out_parts, and e the deviation of added if each intermediate number
 * had an independent relative error of u of T:
 *   |out - exact|   <= (1 + 2^-10) u |exact| + (parts + 1) 2^-24 (|x| + sum|x_parts|) + 2^-25
 *   |added - exact| <= 4 e + 10^-6
 * The new rows of k and v are within 4 e + 10^-6, with e of their own. */

/* Attention half, for one token of each of `rows` sequences. It first writes the token's rows of k and v.
 *   sum of out_parts = output * attention(rope(qkv * normalised out))
 *
 *   qkv       [(query heads + 2 KV heads) d, hidden]: rows of q, k, v
 *   output    [hidden, query heads * d]
 *   k, v      KV caches [rows, capacity, KV heads, d] of T: states, or temporaries that an earlier task writes.
 *             d is 32, 64, 128 or 256
 *   position  i32 [1] or [rows], at replay: the token sees rows 0 to position. Later rows are never used
 *   rope_base, rope_pairing, rope_frequencies
 *             as in rondo_attention_desc, for q and the new row of k
 * Scores are scaled by 1/sqrt(d). A new row below 0 or beyond the capacity is not written. At a position below 0 the
 * token sees nothing, and the half adds nothing. */
typedef struct rondo_attention_block_desc {
  const char *name;
  rondo_tensor x, x_parts;
  rondo_tensor norm;
  float norm_epsilon;
  float scale;
  rondo_tensor qkv, qkv_scales;
  rondo_tensor output, output_scales;
  rondo_tensor k, v;
  rondo_tensor position;
  rondo_tensor rope_frequencies;
  float rope_base;
  rondo_rope_pairing rope_pairing;
  rondo_tensor out, out_parts;
} rondo_attention_block_desc;
RONDO_API rondo_status rondo_add_attention_block(rondo_graph *graph, const rondo_attention_block_desc *desc);

/* Feed forward half.
 *   sum of out_parts = down * (silu(gate * normalised out) * (up * normalised out))
 *
 *   gate_up  [2 columns, hidden]: row 2i is gate's row i, row 2i + 1 is up's
 *   down     [hidden, columns] */
typedef struct rondo_feed_forward_desc {
  const char *name;
  rondo_tensor x, x_parts;
  rondo_tensor norm;
  float norm_epsilon;
  float scale;
  rondo_tensor gate_up, gate_up_scales;
  rondo_tensor down, down_scales;
  rondo_tensor out, out_parts;
} rondo_feed_forward_desc;
RONDO_API rondo_status rondo_add_feed_forward(rondo_graph *graph, const rondo_feed_forward_desc *desc);

typedef enum rondo_layout {
  RONDO_COLUMN_MAJOR = 0, /* LAPACK's: an m x n matrix is a tensor [n, m]; leading dimension = row stride of the view */
  RONDO_ROW_MAJOR         /* an m x n matrix is a tensor [m, n] */
} rondo_layout;

/* Batched Householder QR (LAPACK geqrf): A = Q R for each matrix, m x n, k = min(m, n); any m, n, batch >= 0. Matrices
 * are the last two dimensions, in `layout`; a leading dimension is the batch.
 *   a       f32 or f64; for h and tau also f16 or bf16, computed in f32, up to 128 x 128 or 1024 x 32
 *   h, tau  m x n, as geqrf leaves H (R above, reflectors below the diagonal), and [batch, k]. h may be a itself
 *   r       k x n, zeros below the diagonal
 *   q       thin Q, m x k
 * Outputs are h and tau, or r, or q, or q and r: f32 if a is f16 or bf16, else of a's type.
 *
 * Signs are LAPACK's: R's diagonal may be negative. Infinities and NaN stay in their own matrix. A matrix has the same
 * bits in every replay, at any index of a batch of any size. A subcolumn of less than 2^-34 (f64: 2^-280) of its column
 * may count as zero: unlike in LAPACK, tau is then 0 and R's diagonal keeps its sign. The column's error from this is a
 * thousandth of eps.
 *
 * Error bounds, for columns of any size whose norm is below the largest number. eps is 2^-24 for f32 and 2^-53 for f64.
 * |X| is the largest sum of magnitudes in a column. |a_j| of a column of A counts as at least four times the smallest
 * normal number. Q is the output q, or the exact product of the reflectors of H and tau, or its first k columns.
 *   |r_j - Q' a_j| <= 30 m eps |a_j|                             H and tau; tau is 0 or in [1, 2]
 *   |A - Q R| <= 30 m eps |A|                                    thin Q and R
 *   |I - Q'Q| <= 30 m eps                                        either Q
 *   |(Q'A)_ij| <= 30 m eps |A| for i > j                         q without r
 *   |a_i' a_j - r_i' r_j| <= 60 m eps (the largest a_s' a_s)     r alone
 * The first three are LAPACK's own tests and threshold. A column whose norm is beyond the largest number, or within 30
 * m eps of it, may make its matrix infinite or NaN, as in LAPACK.
 *
 * Errors: RONDO_UNSUPPORTED from rondo_instantiate if a GPU has too little shared memory for f16 or bf16. 99 KB for a
 * block suffice up to 128 x 128 and 512 x 32. */
typedef struct rondo_qr_desc {
  const char *name;
  rondo_layout layout;
  rondo_tensor a;
  rondo_tensor h, tau;
  rondo_tensor r;
  rondo_tensor q;
} rondo_qr_desc;
RONDO_API rondo_status rondo_add_qr(rondo_graph *graph, const rondo_qr_desc *desc);

/* QR of a panel, in place (LAPACK geqr2): a is a view of m x nb, tau [batch, min(m, nb)]. Error bounds are those of H
 * and tau of rondo_add_qr. */
typedef struct rondo_qr_panel_desc {
  const char *name;
  rondo_layout layout;
  rondo_tensor a, tau;
} rondo_qr_panel_desc;
RONDO_API rondo_status rondo_add_qr_panel(rondo_graph *graph, const rondo_qr_panel_desc *desc);

/* Trailing update, in place: C := Q^T C, with c of m x nc and a panel v of m x nb as rondo_add_qr_panel leaves it. The
 * error bound is that of rondo_add_qr_apply. */
typedef struct rondo_qr_update_desc {
  const char *name;
  rondo_layout layout;
  rondo_tensor v, tau, c;
} rondo_qr_update_desc;
RONDO_API rondo_status rondo_add_qr_update(rondo_graph *graph, const rondo_qr_update_desc *desc);

/* Application of Q from the left, in place (LAPACK ormqr): C := Q C, or Q^T C with transpose.
 *   v, tau  m x n as rondo_add_qr leaves h, and [batch, k]
 *   c       m x nc; the norm of a column is below the largest number
 * Error bound, with eps and |X| of rondo_add_qr and the exact Q of reflectors with tau = 2 / |v|^2 up to rounding:
 *   |result - Q C| <= 30 m eps |C| */
typedef struct rondo_qr_apply_desc {
  const char *name;
  rondo_layout layout;
  int32_t transpose;
  rondo_tensor v, tau, c;
} rondo_qr_apply_desc;
RONDO_API rondo_status rondo_add_qr_apply(rondo_graph *graph, const rondo_qr_apply_desc *desc);

/* Extraction from H as rondo_add_qr_panel and rondo_add_qr_update leave it. Either output may be absent.
 *   h  m x n, f32 or f64; k = min(m, n)
 *   r  k x n := the upper triangle of h, zeros below (LAPACK lacpy)
 *   q  m x k := the first columns of the identity (laset), which rondo_add_qr_apply turns into thin Q */
typedef struct rondo_qr_extract_desc {
  const char *name;
  rondo_layout layout;
  rondo_tensor h;
  rondo_tensor r, q;
} rondo_qr_extract_desc;
RONDO_API rondo_status rondo_add_qr_extract(rondo_graph *graph, const rondo_qr_extract_desc *desc);

/* Batched least squares (LAPACK gels) by Householder QR: for each right-hand side b, the x that minimises |b - A x|.
 * Matrices are in `layout`, f32 or f64; a leading dimension is the batch. a and b are kept.
 *   a         m x n, m >= n >= 1
 *   b         m x s, s >= 1
 *   x         n x s
 *   residual  optional [batch, s], without a batch [s]: |b - A x|
 *   info      optional i32 [batch], without a batch [1]: as in LAPACK 0, or the first column, counted from 1, whose
 *             diagonal element of R is zero (on a GPU also if it is so small beside its column that it is not normal)
 *
 * If info is not 0, or would not be if it were present, A does not have full rank: all of its x is NaN, and residual is
 * the norm of Q^T b below R. The replay continues, so a program checks info or x. Almost singular matrices are not
 * detected (compare R's diagonal, rondo_add_qr). Infinities, NaN and bits are as in rondo_add_qr; infinities and NaN of
 * b stay in their own right-hand side.
 *
 * Error bounds where x is finite, as if A and b were changed by rounding. Norms are 2-norms, eps is that of
 * rondo_add_qr, tiny is the smallest normal number, and |a_j| of a column of A and |x_j| count as at least tiny:
 *   s = |b| + tiny + sum over j of |a_j| |x_j|
 *   |a_j' (b - A x)| <= 30 m eps |a_j| s
 *   ||b - A x| - residual| <= 30 m eps s */
typedef struct rondo_least_squares_desc {
  const char *name;
  rondo_layout layout;
  rondo_tensor a, b;
  rondo_tensor x;
  rondo_tensor residual;
  rondo_tensor info;
} rondo_least_squares_desc;
RONDO_API rondo_status rondo_add_least_squares(rondo_graph *graph, const rondo_least_squares_desc *desc);

/* Recommended panel width of an m x n matrix: the largest of 32, 16 and 8 that fits in the shared memory of every chip,
 * else 8. 0 means no panels: the whole matrix fits, it is no wider than a panel, the type is not f32 or f64, or a size
 * is below 1. Kernels that keep a matrix in registers are not considered; rondo_graph_qr considers them. */
RONDO_API int32_t rondo_qr_panel_width(rondo_dtype dtype, int64_t m, int64_t n);

/* Inverse of unit lower triangular matrices, row-major.
 *   a    [batch, n, n] in f32 or f64, n = 16 .. 128. The diagonal and the elements above it are not used
 *   out  a's shape and type, with ones on the diagonal and zeros above it; may be a itself
 * Error bound of each element, as by substitution, with eps of rondo_add_qr, tiny the smallest normal number, and |X|
 * the matrix of magnitudes:
 *   |a out - I| <= n (eps |a| |out| + tiny) */
typedef struct rondo_triangular_inverse_desc {
  const char *name;
  rondo_tensor a, out;
} rondo_triangular_inverse_desc;
RONDO_API rondo_status rondo_add_triangular_inverse(rondo_graph *graph, const rondo_triangular_inverse_desc *desc);

/* ---- Describe: exchanges between ranks --------------------------------------------------------------------------- */

/* Adds a state for exchanges of up to `bytes` bytes between `ranks` ranks. Each rank instantiates a graph with one, and
 * all their exchanges use these. They begin as zeros, and nothing else writes them. */
RONDO_API rondo_status rondo_exchange_state(rondo_graph *graph, const char *name, uint32_t ranks, uint64_t bytes,
                                            rondo_tensor *tensor);

/* A task of each rank, which waits for those of the others.
 *   in, out     f32, f16 or bf16, of one type except for sums
 *   residual    optional, only of all_reduce: out's shape; may be out itself
 *   exchange    `ranks` tensors: the states of ranks 0, 1, ..; the task borrows them. Each has room for one rank's part
 *               (with terms, for one term) in the type of `in`
 *   rank        this one
 *   dimension   of all_gather and reduce_scatter: the one that is `ranks` times as long in out, or in `in`
 *   peer        another rank; of broadcast the source, which alone has `in` and may leave out absent
 *   timeout_ns  after this time the device is lost; 0: 800 ms, on the host a minute
 *
 *   all_reduce      out = residual + the sum of the ranks' in. `in` may also be f32 [terms, out's shape]: it counts as
 *                   the sum of its terms
 *   all_gather      out = the ranks' in, side by side
 *   reduce_scatter  out = the sum of the ranks' parts number `rank` of in
 *   broadcast       out = the source's in
 *   send, receive   the receiver's out = the sender's in, of one shape. The sender waits for the receiver to begin
 *
 * Any two ranks have the same exchanges with each other, of the same types and all with a residual or none, in the same
 * order in all replays. Otherwise they wait in vain or get wrong numbers.
 * Sums are fp32, in the order of terms, then of ranks, rounded once. All ranks get the same bits. A NaN may become
 * another NaN. */
typedef struct rondo_exchange_desc {
  const char *name;
  rondo_tensor in, out;
  rondo_tensor residual;
  const rondo_tensor *exchange;
  uint32_t rank, ranks;
  uint32_t dimension;
  uint32_t peer;
  uint64_t timeout_ns;
} rondo_exchange_desc;
RONDO_API rondo_status rondo_add_all_reduce(rondo_graph *graph, const rondo_exchange_desc *desc);
RONDO_API rondo_status rondo_add_all_gather(rondo_graph *graph, const rondo_exchange_desc *desc);
RONDO_API rondo_status rondo_add_reduce_scatter(rondo_graph *graph, const rondo_exchange_desc *desc);
RONDO_API rondo_status rondo_add_broadcast(rondo_graph *graph, const rondo_exchange_desc *desc);
RONDO_API rondo_status rondo_add_send(rondo_graph *graph, const rondo_exchange_desc *desc);
RONDO_API rondo_status rondo_add_receive(rondo_graph *graph, const rondo_exchange_desc *desc);

/* ---- Describe: the user's own work ------------------------------------------------------------------------------- */

typedef enum rondo_access { RONDO_READ = 1, RONDO_WRITE = 2, RONDO_READ_WRITE = 3 } rondo_access;

#define RONDO_MAX_ARGUMENTS 16

/* One argument of an own kernel, in the order of its parameters. A tensor is passed as the device pointer of its first
 * element. If tensor is absent, the argument is a value, copied when the task is added and the same in every replay. A
 * number that changes from replay to replay, such as a position or a seed, is a small input tensor. */
typedef struct rondo_argument {
  rondo_tensor tensor;
  rondo_access access;
  const void *value;
  uint32_t bytes; /* at most 64 */
} rondo_argument;

/* An own kernel on the host backend. data[i] is the address of argument i: a tensor's first element (tensors are
 * 256-byte aligned, views as their offset allows), or the copied value, 64-byte aligned.
 *   - Runs on one thread of the backend, on the cores of rondo_options.host_threads, with a stack of 1 MiB or the
 *     system's default if that is more.
 *   - Begins in the default floating-point state, and may change it. Must leave the thread's signals and cores as they
 *     are.
 *   - The thread blocks the program's signals, SIGTERM too, and child processes inherit that: unblock them between fork
 *     and exec, or with posix_spawnattr_setsigmask.
 *   - Must return. May replay and poll any exec. Calls that wait for its own runtime return RONDO_INVALID_STATE:
 *     rondo_wait of a replay in flight, rondo_wait_any and rondo_acquire_within with a timeout, rondo_instantiate,
 *     rondo_upload, rondo_upload_all, rondo_download, rondo_profile, rondo_close_exec, rondo_close_exec_within,
 *     rondo_close. */
typedef void (*rondo_host_function)(void *user, void *const *data);

/* Adds an own CUDA kernel, from a cubin, fatbin or PTX image.
 *   image        lives until rondo_instantiate returns, for rondo_profile longer; NULL: for the host only
 *   grid, block  0 means 1
 *   host         the same work on the host backend; NULL: the graph cannot be instantiated there
 * As a warm-up, rondo_instantiate runs the kernel, or `host`, once per slot with inputs, states and constants that are
 * zeros. If the kernel hangs or leaves its bounds with zeros as lengths, positions and indices, use the option
 * without_warm_up. */
typedef struct rondo_kernel_desc {
  const char *name;
  const void *image;
  size_t image_bytes;
  const char *function;
  uint32_t grid[3], block[3];
  uint32_t shared_bytes; /* dynamic */
  const rondo_argument *arguments;
  uint32_t argument_count;
  rondo_host_function host;
  void *user;
} rondo_kernel_desc;
RONDO_API rondo_status rondo_add_kernel(rondo_graph *graph, const rondo_kernel_desc *desc);

/* Adds stream work of another library, such as cuBLAS or cuDNN (NCCL's: rondo_nccl.h). All arguments are tensors.
 *   - rondo_instantiate calls the callback once per slot, while `stream` (CUstream or cudaStream_t) captures. The
 *     callback enqueues its work there and returns 0. It may call rondo_runtime_info, but must not instantiate.
 *   - Refused: work that allocates, frees or calls back to the host; captured work in a graph of over 131072 nodes. */
typedef int (*rondo_capture_function)(void *user, void *stream, void *const *data);
typedef struct rondo_capture_desc {
  const char *name;
  const rondo_argument *arguments;
  uint32_t argument_count;
  rondo_host_function host;
  void *user;
} rondo_capture_desc;
RONDO_API rondo_status rondo_add_capture(rondo_graph *graph, const rondo_capture_desc *desc,
                                         rondo_capture_function callback);

/* ---- Describe: an order that no tensor shows --------------------------------------------------------------------- */

/* The number of a task in its graph: 0, 1, 2 ... in the order of adding. */
typedef uint32_t rondo_task;

/* The task that was added last. Errors: RONDO_INVALID_STATE if there is none. */
RONDO_API rondo_status rondo_last_task(const rondo_graph *graph, rondo_task *task);

/* Makes `task` wait for `prerequisite`. If `prerequisite` was added later, the call searches the whole graph.
 * Errors: RONDO_INVALID_ARGUMENT for an edge that closes a cycle. */
RONDO_API rondo_status rondo_after(rondo_graph *graph, rondo_task task, rondo_task prerequisite);

/* ---- Plan -------------------------------------------------------------------------------------------------------- */

typedef struct rondo_plan {
  uint64_t device_bytes;          /* of the device pool, for one exec with any number of slots */
  uint64_t pinned_bytes_per_slot; /* of the pinned pool, for each slot of the exec */
  uint64_t pinned_bytes_per_step; /* also of it, for each slot and each of its repeat_steps */
  uint64_t host_bytes;            /* of the host pool, for one exec and the planning itself */
  uint64_t constant_bytes;        /* of device_bytes: the graph's own constants and states */
  uint64_t borrowed_bytes;        /* not of device_bytes: borrowed constants and states */
  uint64_t temporary_bytes;       /* of device_bytes: the shared arena of temporaries, inputs and outputs */
  uint64_t unshared_bytes;        /* the arena's size if no bytes were shared */
  uint64_t lower_bound_bytes;     /* no placement makes the arena smaller */
  uint32_t task_count;
  uint32_t edge_count; /* between tasks and copies of inputs and outputs, after transitive reduction */
} rondo_plan;

/* Computes the bytes that the graph needs of each pool. Opens no device.
 * Errors: RONDO_INVALID_ARGUMENT if a task reads an element that nothing wrote or an output is not written whole, with
 * task, tensor and element in the text. */
RONDO_API rondo_status rondo_plan_graph(rondo_graph *graph, rondo_plan *plan);
/* Plans several graphs, one exec of each open in one lane. temporary_bytes is the maximum, since execs of a lane share
 * their arena; all else is a sum. Borrowed memory counts once, with its owner. If slot counts differ, use
 * pinned_bytes_per_slot of each graph's own plan. */
RONDO_API rondo_status rondo_plan_graphs(rondo_graph *const *graphs, uint32_t graph_count, rondo_plan *plan);

/* ---- Instantiate ------------------------------------------------------------------------------------------------- */

typedef struct rondo_exec rondo_exec;

typedef struct rondo_exec_options {
  uint32_t slots; /* 1..16; 0: 1 */
  /* 1: keep warm while the exec is open. A thread of Rondo's launches a tiny kernel after each 200 us without a replay,
   * so the GPU and the replaying thread's core stay awake. Pin the replaying thread. Takes 1 to 2 % of its core. No
   * effect on the host. */
  int32_t keep_warm;
  uint32_t lane; /* the lane of its replays */
  /* 1: the exec may share states with execs of other lanes or ranks; 0: such an exec is refused. The program ensures
   * that no exec writes such a state while an exec of another lane uses it. */
  int32_t states_are_ordered;
  /* 1: rondo_instantiate runs no task; each slot's first replay has the one-time costs. */
  int32_t without_warm_up;
  /* 1: until uploaded, the graph's own constants are zeros, not an error. For borrowed ones the lender's option
   * counts. */
  int32_t constants_begin_as_zeros;
  uint32_t repeat_steps; /* the most replays of a rondo_repeat, up to 2^20; captured work has none */
  /* Not 0: the exec is resident. After a replay its graph stays on the device, and the next replay makes no driver
   * call. The graph leaves the device after linger_ns (full milliseconds) without a replay, before other work of its
   * lane, and when execs are made or closed; the next replay then launches it. Repeats, and replays with bound tensors
   * or a notice, are always launches.
   *   - Pays for few small tasks with no other work of the lane in between: to leave and come back takes 29 us, and
   *     ten tasks are launched as fast.
   *   - Other lanes' replays are as fast as without it if it has multiprocessors of its own; else two in flight take up
   *     to 1.06 times as long.
   *   - Needs one slot and at most 126 launches, none of them captured or in clusters of blocks.
   *   - Takes 1 KiB more of the pinned pool, a warp of the GPU and 1 % of a core.
   *   - Work of others in the lane's stream waits until it ends, as do cudaDeviceSynchronize, cudaFree, and calls that
   *     open, close or profile in another runtime on the device.
   *   - Once the process stops, the device is free within 0.2 s. A kernel that hangs ends with its process.
   * The host needs no launch, and ignores this. */
  uint64_t linger_ns;
} rondo_exec_options;

/* Makes an exec: places every tensor, builds an executable graph per slot, with repeat_steps two, and replays each as a
 * warm-up, so that the first real replay costs no more than any other. options may be NULL.
 *   - The warm-up runs all tasks, own kernels and captured work too. Inputs and the graph's own states and constants
 *     are zeros in it; borrowed ones are as they are. Afterwards states are zero, and no replay is counted.
 *   - A graph with exchanges has no warm-up. One that writes a borrowed state has none if the state may hold data
 *     already or another thread reads it. So instantiate all graphs first, then upload. During the warm-up no other
 *     thread replays an exec that shares the state.
 *   - Each graph that it borrows from has exactly one exec open in the runtime or, if none, in its group.
 *   - Loading code waits for all kernels of the process on the device, except in lanes with their own multiprocessors.
 *   - The graph may be changed or destroyed afterwards.
 * Errors: as rondo_plan_graph; RONDO_OUT_OF_MEMORY if a pool is too small; RONDO_UNSUPPORTED; RONDO_INVALID_STATE if a
 * lender is not open or is being closed, or lanes share a state; RONDO_BUSY while another thread profiles in the lane;
 * RONDO_DEVICE_LOST, also if the warm-up takes over 120 s. */
RONDO_API rondo_status rondo_instantiate(rondo_runtime *runtime, rondo_graph *graph, const rondo_exec_options *options,
                                         rondo_exec **exec);

/* Waits for the exec's replays in flight, without a limit (see rondo_close_exec_within), and closes it. A copy of the
 * handle is refused until the runtime is closed or a new exec has its address.
 * Errors: RONDO_INVALID_STATE while another exec borrows from it, or another thread uploads to it, downloads from it or
 * closes it. */
RONDO_API rondo_status rondo_close_exec(rondo_exec **exec);

typedef struct rondo_exec_usage {
  uint64_t device_bytes, pinned_bytes, host_bytes; /* of the pools, without the lane's arena */
  uint64_t arena_bytes;                            /* of the lane's arena, shared with its other execs */
  uint64_t driver_bytes; /* GPU memory of the driver for its graphs and new device code, as in rondo_info */
  uint32_t lane;
  uint32_t slot_count;
  uint32_t node_count;                            /* tasks, and copies of inputs and outputs */
  uint32_t free_slot_count, in_flight_slot_count; /* now. The others are held, and their last replay is done */
} rondo_exec_usage;
/* The memory of the exec and the use of its slots. */
RONDO_API rondo_status rondo_exec_info(rondo_exec *exec, rondo_exec_usage *usage);

/* Sets a constant or state, or a view of one, from dense data of rondo_tensor_bytes bytes.
 *   - Every constant that a task reads is uploaded before the first replay. An upload of a part counts as an upload of
 *     the constant; its other elements are zeros.
 *   - A borrowed tensor is set through the lender.
 *   - The program may reuse `data` at once. With CUDA the copy may still be in progress. Later calls are ordered after
 *     it, and rondo_download of any tensor of the exec waits for it. If it fails, a later call returns
 *     RONDO_DEVICE_LOST.
 * Errors: RONDO_BUSY while a replay of the exec or a borrower is in flight, or another thread instantiates a
 * borrower. */
RONDO_API rondo_status rondo_upload(rondo_exec *exec, rondo_tensor tensor, const void *data, uint64_t bytes);

/* Dense data for a constant or a state, or for a view of one. */
typedef struct rondo_content {
  rondo_tensor tensor;
  const void *data;
  uint64_t bytes;
} rondo_content;

/* Uploads the contents in order, as rondo_upload does, but checks all before it sends the first. Faster than single
 * uploads for tensors below a megabyte, most of all in the order of description.
 * Errors: as rondo_upload. After an error of the device, some contents may have arrived. */
RONDO_API rondo_status rondo_upload_all(rondo_exec *exec, const rondo_content *contents, uint32_t count);

/* Reads a constant or state, or a view of one, into dense data. Errors: as rondo_upload. */
RONDO_API rondo_status rondo_download(rondo_exec *exec, rondo_tensor tensor, void *data, uint64_t bytes);

/* ---- Replay ------------------------------------------------------------------------------------------------------ */

/* A set of inputs and outputs of an exec, with at most one replay in flight.
 *   - A slot that was released, or whose exec was closed, is refused until its runtime is closed; then its use is
 *     undefined. (`lease` repeats after 2^31 acquisitions.)
 *   - On a lost device, a slot whose last replay is done can be read and released as usual, unless its notice is not
 *     written yet. A replay in flight stays in flight. Closing the exec ends all of its slots. */
typedef struct rondo_slot {
  rondo_exec *exec;
  uint32_t index;
  uint32_t lease;  /* number of the acquisition */
  uint64_t serial; /* of the exec */
  void *user;      /* the program's own, NULL at first; rondo_wait_any returns the value given to rondo_replay */
} rondo_slot;

/* Takes a free slot, without a lock. Errors: RONDO_BUSY if none is free. */
RONDO_API rondo_status rondo_acquire(rondo_exec *exec, rondo_slot *slot);

/* Takes a free slot, and waits for one at most timeout_ns, as rondo_wait_any waits.
 * Errors: RONDO_TIMEOUT, also for timeout_ns 0; RONDO_DEVICE_LOST if none is free. */
RONDO_API rondo_status rondo_acquire_within(rondo_exec *exec, uint64_t timeout_ns, rondo_slot *slot);

/* The memory of a slot's input or output, dense row-major. NULL, with an error text, for a stale slot or other
 * tensor. */
RONDO_API void *rondo_data(rondo_slot slot, rondo_tensor tensor);

/* Starts a replay and returns at once.
 * Errors: RONDO_BUSY if the slot's last replay is in flight, or on the host if 4096 replays wait in the lane;
 * RONDO_INVALID_STATE if a constant that a task reads was not uploaded, is not bound in this slot (rondo_rebind) and
 * does not begin as zeros. */
RONDO_API rondo_status rondo_replay(rondo_slot slot);

/* RONDO_OK if the last replay is done or there was none, RONDO_BUSY if it is in flight. From time to time it asks the
 * driver, and returns RONDO_DEVICE_LOST for a lost device. */
RONDO_API rondo_status rondo_poll(rondo_slot slot);

/* Waits in the runtime's wait_mode, at most timeout_ns, until the last replay is done. Outputs may then be read until
 * the next replay.
 * Errors: RONDO_TIMEOUT if it is still in flight. */
#define RONDO_FOREVER UINT64_MAX
RONDO_API rondo_status rondo_wait(rondo_slot slot, uint64_t timeout_ns);

/* Replays slots in this order, such as one of each rank. All are checked before the first starts. Replays of another
 * thread may come between, so two threads that replay the same ranks need a lock of the program's.
 * Errors: as rondo_replay. If a launch fails, the slots before the one named are in flight. */
RONDO_API rondo_status rondo_replay_all(const rondo_slot *slots, uint32_t count);

/* Waits, as rondo_wait, for all slots, together at most timeout_ns. */
RONDO_API rondo_status rondo_wait_all(const rondo_slot *slots, uint32_t count, uint64_t timeout_ns);

/* Waits for any replay of these execs of one runtime, in any lanes. Returns its slot with the replay's user pointer.
 * The calling thread becomes the slot's holder:
 *
 *     slot.user = request;                    // with rondo_acquire's slot, by any thread
 *     rondo_replay(slot);
 *     ...
 *     while (rondo_wait_any(execs, count, timeout_ns, &slot) == RONDO_OK) answer(slot.user, slot), rondo_release(slot);
 *
 *   - Any number of threads may call it while others acquire and replay. Each replay is returned once.
 *   - It searches execs in the order of the array, and their slots in turns.
 *   - Never returned: replays of rondo_profile, and of slots that were released or replayed again, even by a launch
 *     that was refused. If a slot is released just as it is returned, later calls refuse it.
 *   - It waits as wait_mode says, even with nothing in flight, but sleeps 20 us where rondo_wait yields. To sleep until
 *     a replay is done, with CUDA, use one eventfd for all slots (rondo_notify), and timeout_ns 0 here.
 * Errors: RONDO_TIMEOUT; RONDO_DEVICE_LOST, after all replays that are done. */
RONDO_API rondo_status rondo_wait_any(rondo_exec *const *execs, uint32_t exec_count, uint64_t timeout_ns,
                                      rondo_slot *slot);

/* Gives the slot back, and its bound tensors their own memory.
 * Errors: RONDO_BUSY while in flight; RONDO_DEVICE_LOST if a lost device still has to write a notice; if tensors are
 * bound, those of rondo_rebind: the slot then stays held, with some tensors unbound. No others. */
RONDO_API rondo_status rondo_release(rondo_slot slot);

/* ---- Repeat: many replays in one launch -------------------------------------------------------------------------- */

/* A repeat ends after `count` replays, 1 to repeat_steps (rondo_exec_options). With `until`, one i32 of an
 * output or a state, it ends sooner: after a replay that leaves it not 0 or, with values (16 at most), equal to one of
 * them. */
typedef struct rondo_repeat_options {
  uint32_t count;
  rondo_tensor until;
  const int32_t *values;
  uint32_t value_count;
} rondo_repeat_options;

/* Starts replays of the same inputs, one after the other, and returns at once. For the lane and other calls they are
 * one replay. Each one's outputs can be read while later ones run:
 *
 *     rondo_repeat(slot, &(rondo_repeat_options){.count = 200, .until = token, .values = &end, .value_count = 1});
 *     for (uint32_t i = 0, done; rondo_repeat_wait(slot, i + 1, RONDO_FOREVER, &done) == RONDO_OK && done > i; i++)
 *       print(*(const int32_t *)rondo_repeat_data(slot, token, i));
 *
 * Errors: as rondo_replay; RONDO_INVALID_STATE without repeat_steps or with bound tensors. */
RONDO_API rondo_status rondo_repeat(rondo_slot slot, const rondo_repeat_options *options);

/* Waits, as rondo_wait, until that many replays are done or the repeat has ended. With 0 it does not wait. If it
 * succeeds, *done says how many are done. Any thread may call this and the next two. */
RONDO_API rondo_status rondo_repeat_wait(rondo_slot slot, uint32_t replays, uint64_t timeout_ns, uint32_t *done);

/* An output as replay 0, 1, .. of the holder's last repeat left it; valid until the next repeat. NULL, with an error
 * text, if that replay is not done. */
RONDO_API const void *rondo_repeat_data(rondo_slot slot, rondo_tensor output, uint32_t replay);

/* Makes the replay in progress, or the one after it, the last. */
RONDO_API rondo_status rondo_repeat_stop(rondo_slot slot);

/* ---- Replay, advanced: other streams, other buffers, sleeping ---------------------------------------------------- */

/* Replays in a stream of the program (CUstream or cudaStream_t) in place of the lane's stream.
 *   - The replay follows the work already in the stream; later work there, events too, follows the replay. The replay
 *     keeps its order with the lane's replays, and has the stream's priority.
 *   - The stream is of the device's primary context, as those of CUDA's runtime, and does not capture.
 *   - Makes more driver calls; other threads' replays in the lane wait for these.
 * Errors: as rondo_replay; RONDO_UNSUPPORTED on the host. */
RONDO_API rondo_status rondo_replay_on(rondo_slot slot, void *stream);

/* Binds an input, output, constant or state to a buffer of the program's, for this slot's replays, until it is bound
 * again or the slot is released. NULL: its own memory again.
 *   - The buffer has rondo_tensor_bytes bytes, is 256-byte aligned, is device or pinned memory (on the host any),
 *     overlaps no other tensor and outlives its use.
 *   - rondo_data, rondo_upload and rondo_download still mean the tensor's own memory.
 *   - Slow, and the release and the next replay become slower too: not for every replay.
 * Errors: RONDO_BUSY while in flight; RONDO_UNSUPPORTED if captured work uses the tensor. */
RONDO_API rondo_status rondo_rebind(rondo_slot slot, rondo_tensor tensor, void *memory);

/* Makes every replay of this slot end with a notice: a write of 1 to an eventfd, for programs that sleep in poll or
 * epoll. Before the notice rondo_poll returns RONDO_OK. A read of the file gives the number of replays that ended.
 *   - -1, or the slot's release, ends the notices, and waits for one in progress. Then the file may be closed.
 *   - One file may serve many slots of several execs. A full one (2^64 - 2) is not written to.
 *   - The call itself may wake the reader once.
 *   - A replay that a lost device does not finish gives no notice: sleep with a time limit, then call rondo_poll.
 *   - With CUDA each replay makes a second driver call and runs a function in a thread of the driver; later replays of
 *     the lane wait for it. If the driver refuses that call, the device is lost.
 * Errors: RONDO_BUSY while in flight; RONDO_INVALID_ARGUMENT if the file is no open eventfd. */
RONDO_API rondo_status rondo_notify(rondo_slot slot, int eventfd_or_minus_1);

/* ---- Reports ----------------------------------------------------------------------------------------------------- */

/* Each writes a file anew, and uses its graph as planning does.
 * Errors, of all: RONDO_INVALID_ARGUMENT for a NULL path; RONDO_IO_ERROR; without a plan yet, those of
 * rondo_plan_graph. */

/* Writes the graph for Graphviz, from top to bottom: tasks, their constants and states, and the tensors and bytes
 * between tasks. Tasks such as "layer3.query" stand in a frame "layer3"; of three or more equal frames only the first
 * is drawn in a graph of more than 32 tasks and copies. */
RONDO_API rondo_status rondo_write_dot(rondo_graph *graph, const char *path);

/* Draws the memory plan: time across, bytes up, a box per tensor, the lower bound, and a bar of constants and
 * states. */
RONDO_API rondo_status rondo_write_plan_svg(rondo_graph *graph, const char *path);

/* Lists the kernels for a chip (80, 90, 100; 0: the host): a line per task and per copy of inputs and outputs, and one
 * for the publication of completion, by the last kernels' blocks or by a kernel after them. */
RONDO_API rondo_status rondo_explain(rondo_graph *graph, int32_t chip, const char *path);

typedef struct rondo_profile_options {
  uint32_t passes; /* through all tasks; the results are medians; 0: 20 */
  /* Size of the copy that measures the bandwidth: more than the caches hold; 0: 256 MiB. Takes twice as much memory,
   * outside the pools. */
  uint64_t copy_bytes;
  /* Called after every pass, by the calling thread; may be NULL. It calls nothing of Rondo. */
  void (*progress)(void *user, uint32_t done, uint32_t passes);
  void *user;
} rondo_profile_options;

/* One task, or copy of inputs or outputs, in a replay. */
typedef struct rondo_task_profile {
  char name[64];         /* of the task; "copy in a, b" */
  const char *operation; /* "gemv", "copy", "kernel" or "capture". Lives as long as the program */
  uint64_t time_ns;      /* its time in a chain of tasks, without the launch; 0: too short to measure */
  uint64_t begin_ns;     /* its earliest begin, if every task takes its time and waits only for its edges */
  /* Bytes that it must move: its operands' dense bytes, once for a read and once for a write. If shapes confine it to a
   * part of an operand, such as an append's new rows or a KV cache's window, only that part counts. Lengths and
   * positions on the device confine nothing. */
  uint64_t bytes;     /* of the device's memory */
  uint64_t bus_bytes; /* of pinned memory, across the bus; 0 on the host */
} rondo_task_profile;

typedef struct rondo_profile_totals {
  char device_name[96];
  uint32_t task_count;       /* of rondo_task_profile */
  uint32_t replay_count;     /* how many replays the exec's states advanced */
  uint64_t replay_ns;        /* a replay, from rondo_replay until the host sees its end; the median */
  uint64_t launch_ns;        /* the same for a replay of one block that copies 8 bytes */
  uint64_t tasks_ns;         /* the sum of all time_ns. Overlap saves launch_ns + tasks_ns - replay_ns */
  uint64_t path_ns;          /* the longest path of edges: the least time without faster tasks */
  uint64_t bytes_per_second; /* read and written by a copy of copy_bytes in the lane, in this call; 0: too small to
                                measure. Reads alone may be a little faster */
  uint64_t copy_bytes;       /* 0: no memory for the copy; bytes_per_second is 0 too */
} rondo_profile_totals;

/* Measures each task's time in the slot's replays, with its inputs and bound buffers. Takes long, and allocates from
 * the runtime's allocator and the driver.
 *   - Whole replays alternate with passes that launch each task by itself, in the plan's order, with data and caches as
 *     earlier tasks left them. The first of each is dropped. A task's time is its time beyond an empty launch, both
 *     followed by a tiny copy.
 *   - States advance by replay_count replays, and are not restored. Outputs are the last replay's.
 *   - tasks has room for node_count entries (rondo_exec_info) and is written on RONDO_OK only. options may be NULL.
 *   - Nothing else replays in the lane meanwhile. Images and callbacks of own kernels are used again, so they must
 *     still live.
 * Errors: RONDO_BUSY if the slot is in flight, another slot of the exec is held, or another exec of the lane is in
 * flight, profiled or being instantiated; RONDO_INVALID_ARGUMENT if task_count is not node_count; RONDO_UNSUPPORTED
 * with exchanges; RONDO_OUT_OF_MEMORY; those of rondo_replay and rondo_wait. After an error the exec is as before, but
 * its states may have advanced. A task of over 120 s makes the device lost. */
RONDO_API rondo_status rondo_profile(rondo_slot slot, const rondo_profile_options *options, rondo_task_profile *tasks,
                                     uint32_t task_count, rondo_profile_totals *totals);

/* Writes a profile as a table: sums per operation, then each task, the longest first, with time, share, bytes and part
 * of the copy's bandwidth (above 100 %: from a cache). */
RONDO_API rondo_status rondo_write_profile(const rondo_task_profile *tasks, const rondo_profile_totals *totals,
                                           const char *path);

/* Writes a profile for https://ui.perfetto.dev or chrome://tracing: the measured replay, its tasks one after the other,
 * and its tasks as early as edges allow. */
RONDO_API rondo_status rondo_write_trace(const rondo_task_profile *tasks, const rondo_profile_totals *totals,
                                         const char *path);

/* ---- Advanced: lanes --------------------------------------------------------------------------------------------- */

/* A part of the device with a queue of its own.
 *   - Execs of one lane run one after the other; lanes run at the same time. Lanes with multiprocessors of their own do
 *     not wait for each other's kernels. All lanes share memory bandwidth and caches.
 *   - On the host a lane has `multiprocessors` threads of its own, at least one; if all lanes together ask for more
 *     than host_threads, each gets its share. There are no priorities. */
struct rondo_lane {
  const char *name;
  /* For this lane alone, rounded up to what the chip can split off (8 at a time on sm_90); 0: shares those that other
   * lanes leave. */
  int32_t multiprocessors;
  /* Among lanes that share multiprocessors; 0 is the lowest, the driver's limit (5) the highest. Higher lanes go first
   * when a block of a kernel ends. */
  int32_t priority;
  /* The lane's arena in the device pool, for its execs' temporaries; 0: grows with the execs. */
  uint64_t arena_bytes;
};

/* What a lane was given. */
typedef struct rondo_lane_grant {
  const char *name;        /* "" if it has none. Lives as long as the runtime */
  int32_t multiprocessors; /* its kernels run on these and are chosen for them; on the host its threads */
  int32_t priority;
  uint64_t arena_bytes; /* its size now */
  void *stream;         /* its CUstream, for work of other libraries in order with its replays; NULL on the host */
} rondo_lane_grant;

/* Errors: RONDO_INVALID_ARGUMENT if there is no such lane. */
RONDO_API rondo_status rondo_lane_info(rondo_runtime *runtime, uint32_t lane, rondo_lane_grant *grant);

/* ---- Advanced: leaving what hangs, and where host memory comes from ---------------------------------------------- */

/* rondo_close_exec with a limit: waits at most timeout_ns (on the host a second more if a task hangs).
 *   - If a replay is not done by then, the exec is closed, the device counts as lost, with the slot and the time as the
 *     cause, and the result is RONDO_DEVICE_LOST. Other execs can then be closed without a wait; new work is refused.
 *   - Memory that the device or a stuck thread may still touch is leaked on purpose: until rondo_close the exec's part
 *     of the pools; from then on the pools and the driver's memory, streams, graphs and context.
 *   - If all replays are done, nothing is lost. If a notice (rondo_notify) is then not written within a second, the
 *     result is RONDO_TIMEOUT and the exec stays open. */
RONDO_API rondo_status rondo_close_exec_within(rondo_exec **exec, uint64_t timeout_ns);

/* The source of host memory. allocate returns NULL if none is left; alignment is a power of two; release gets the bytes
 * of allocate.
 *   - A runtime's is called by rondo_open, rondo_close and rondo_profile only.
 *   - A graph's (without a runtime) is called by rondo_graph_create, rondo_graph_destroy and calls that describe or
 *     plan (rondo_plan_graph, rondo_instantiate, reports).
 *   - Several threads may call it at once. */
struct rondo_allocator {
  void *user;
  void *(*allocate)(void *user, size_t bytes, size_t alignment);
  void (*release)(void *user, void *memory, size_t bytes);
};

#ifdef __cplusplus
}
#endif
#endif
