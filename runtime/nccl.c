/* nccl.c - rondo_add_nccl: captured work whose callback calls NCCL. libnccl.so.2 comes by dlopen, and what is used of
 * its interface stands here, so that no build needs its header. An NCCL that the program has loaded is taken, whatever
 * its path: a communicator belongs to one copy of the library. */
#include <dlfcn.h>
#include <pthread.h>
#include <rondo_nccl.h>
#include <string.h>

#include "graph.h"

static const char library_name[] = "libnccl.so.2";

enum {
  OLDEST_VERSION = 21300, /* the first with ncclGetLastError; 2.8 and older have four digits */
  IN = 0,
  OUT,
  OPERANDS, /* then the call */
};

/* Numbers that all versions of NCCL share. */
enum nccl_result { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7 };
enum nccl_sum { NCCL_SUM = 0 };
enum nccl_type {
  NCCL_UINT8 = 1,
  NCCL_INT32 = 2,
  NCCL_FLOAT16 = 6,
  NCCL_FLOAT32 = 7,
  NCCL_FLOAT64 = 8,
  NCCL_BFLOAT16 = 9
};

/* ---- The library ------------------------------------------------------------------------------------------------- */

typedef struct ncclComm *communicator;

struct nccl {
  int (*ncclGetVersion)(int *version);
  const char *(*ncclGetErrorString)(int result);
  const char *(*ncclGetLastError)(communicator communicator);
  int (*ncclCommCount)(communicator communicator, int *count);
  int (*ncclCommUserRank)(communicator communicator, int *rank);
  int (*ncclGroupStart)(void);
  int (*ncclGroupEnd)(void);
  int (*ncclAllReduce)(const void *in, void *out, size_t count, int type, int sum, communicator, void *stream);
  int (*ncclAllGather)(const void *in, void *out, size_t count, int type, communicator, void *stream);
  int (*ncclReduceScatter)(const void *in, void *out, size_t count, int type, int sum, communicator, void *stream);
  int (*ncclBroadcast)(const void *in, void *out, size_t count, int type, int root, communicator, void *stream);
  int (*ncclSend)(const void *in, size_t count, int type, int peer, communicator, void *stream);
  int (*ncclRecv)(void *out, size_t count, int type, int peer, communicator, void *stream);
};

static const struct {
  const char *name;
  size_t offset;
} functions[] = {
#define FUNCTION(name)                                                                                                 \
  { #name, offsetof(struct nccl, name) }
    FUNCTION(ncclGetVersion),   FUNCTION(ncclGetErrorString), FUNCTION(ncclGetLastError), FUNCTION(ncclCommCount),
    FUNCTION(ncclCommUserRank), FUNCTION(ncclGroupStart),     FUNCTION(ncclGroupEnd),     FUNCTION(ncclAllReduce),
    FUNCTION(ncclAllGather),    FUNCTION(ncclReduceScatter),  FUNCTION(ncclBroadcast),    FUNCTION(ncclSend),
    FUNCTION(ncclRecv),
};

static struct nccl nccl; /* filled once */
static bool is_loaded;
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;

/* The version is asked for first: an old NCCL should be told by its age, not by what it lacks. */
static rondo_status version_check(int (*get_version)(int *)) {
  int version = 0;
  const int result = get_version(&version);
  if (result != NCCL_SUCCESS) return status_set(RONDO_UNSUPPORTED, "ncclGetVersion: NCCL error %d", result);
  if (version >= OLDEST_VERSION) return RONDO_OK;
  const int unit = version >= 10000 ? 10000 : 1000;
  return status_set(RONDO_UNSUPPORTED, "%s is NCCL %d.%d, expected 2.13 or newer", library_name, version / unit,
                    version % unit / 100);
}

static rondo_status find_functions(void *library) {
  struct nccl found;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    void *function = dlsym(library, functions[i].name);
    if (!function) return status_set(RONDO_UNSUPPORTED, "%s has no %s", library_name, functions[i].name);
    /* ISO C knows no conversion from an object's address to a function's. */
    memcpy((char *)&found + functions[i].offset, &function, sizeof function);
    const rondo_status status = i == 0 ? version_check(found.ncclGetVersion) : RONDO_OK;
    if (status != RONDO_OK) return status;
  }
  nccl = found;
  is_loaded = true;
  return RONDO_OK;
}

/* Never closed: communicators and graphs of the program use it. */
static rondo_status load(void) {
  rondo_status status = RONDO_OK;
  pthread_mutex_lock(&load_lock);
  void *library = is_loaded ? NULL : dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (library)
    status = find_functions(library);
  else if (!is_loaded)
    status = status_set(RONDO_UNSUPPORTED, "NCCL cannot be opened: %s", dlerror());
  pthread_mutex_unlock(&load_lock);
  return status;
}

/* "ncclAllReduce: invalid usage: ...": NCCL's words for the result, then for the cause. */
static rondo_status failed(communicator communicator, const char *function, int result) {
  if (result == NCCL_IN_PROGRESS)
    return status_set(RONDO_DEVICE_ERROR, "%s is in progress: expected a communicator that blocks", function);
  const char *words = nccl.ncclGetErrorString(result), *cause = nccl.ncclGetLastError(communicator);
  return status_set(RONDO_DEVICE_ERROR, "%s: %s%s%s", function, words ? words : "unknown error",
                    cause && *cause ? ": " : "", cause ? cause : "");
}

/* ---- The callback ------------------------------------------------------------------------------------------------ */

/* The attributes of a task, and the last argument of its callback. */
struct call {
  communicator communicator;
  uint32_t kind;
  uint32_t rank, ranks, to, from;
  uint32_t has_in, has_out;
  int32_t type;                 /* of NCCL; what is not summed goes as bytes */
  uint64_t in_count, out_count; /* of that type */
};

static const char *const function_names[] = {"ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast",
                                             "ncclSend and ncclRecv"};

/* Both at once, so that two ranks which send to each other do not wait for each other. */
static int send_receive(const struct call *call, const void *in, void *out, void *stream) {
  int result = nccl.ncclGroupStart();
  if (result != NCCL_SUCCESS) return result;
  if (in) result = nccl.ncclSend(in, call->in_count, call->type, (int)call->to, call->communicator, stream);
  if (out && result == NCCL_SUCCESS)
    result = nccl.ncclRecv(out, call->out_count, call->type, (int)call->from, call->communicator, stream);
  const int ended = nccl.ncclGroupEnd();
  return result == NCCL_SUCCESS ? ended : result;
}

static int enqueue(const struct call *call, const void *in, void *out, void *stream) {
  communicator communicator = call->communicator;
  switch ((rondo_nccl_call)call->kind) {
  case RONDO_NCCL_ALL_REDUCE:
    return nccl.ncclAllReduce(in, out, call->in_count, call->type, NCCL_SUM, communicator, stream);
  case RONDO_NCCL_ALL_GATHER:
    return nccl.ncclAllGather(in, out, call->in_count, call->type, communicator, stream);
  case RONDO_NCCL_REDUCE_SCATTER:
    return nccl.ncclReduceScatter(in, out, call->out_count, call->type, NCCL_SUM, communicator, stream);
  case RONDO_NCCL_BROADCAST: {
    const uint64_t count = call->has_in ? call->in_count : call->out_count;
    return nccl.ncclBroadcast(in, out, count, call->type, (int)call->from, communicator, stream);
  }
  case RONDO_NCCL_SEND_RECEIVE:
    break;
  }
  return send_receive(call, in, out, stream);
}

/* A source of a broadcast that keeps nothing sends in place. */
static int capture(void *user, void *stream, void *const *data) {
  (void)user;
  const struct call *call = data[OPERANDS];
  void *in = call->has_in ? data[IN] : NULL, *out = call->has_out ? data[OUT] : NULL;
  const bool in_place = call->kind == RONDO_NCCL_BROADCAST && !out;
  const int result = enqueue(call, in, in_place ? in : out, stream);
  if (result != NCCL_SUCCESS) failed(call->communicator, function_names[call->kind], result);
  return result;
}

/* ---- The check --------------------------------------------------------------------------------------------------- */

static bool is_dense(const struct op_operand *operand) {
  int64_t stride = 1;
  for (uint32_t i = operand->rank; i-- > 0; stride *= operand->shape[i])
    if (operand->shape[i] > 1 && operand->stride[i] != stride) return false;
  return true;
}

/* 0: NCCL does not add such numbers. */
static int type_of_sum(rondo_dtype dtype) {
  switch (dtype) {
  case RONDO_F64:
    return NCCL_FLOAT64;
  case RONDO_F32:
    return NCCL_FLOAT32;
  case RONDO_F16:
    return NCCL_FLOAT16;
  case RONDO_BF16:
    return NCCL_BFLOAT16;
  case RONDO_I32:
    return NCCL_INT32;
  case RONDO_U8:
    return NCCL_UINT8;
  case RONDO_E4M3:
  case RONDO_NVFP4:
    break;
  }
  return 0;
}

static bool is_sum(uint32_t kind) { return kind == RONDO_NCCL_ALL_REDUCE || kind == RONDO_NCCL_REDUCE_SCATTER; }

static rondo_status operand_check(const struct call *call, const char *name, const struct op_operand *operand) {
  if (!operand->present) return status_set(RONDO_INVALID_ARGUMENT, "%s is absent", name);
  if (!is_dense(operand)) return status_set(RONDO_INVALID_ARGUMENT, "%s has gaps, expected a dense tensor", name);
  if (!is_sum(call->kind) || type_of_sum(operand->dtype)) return RONDO_OK;
  return op_unexpected(name, operand, "f64, f32, f16, bf16, i32 or u8");
}

/* `longer` has as many of `part`, one after the other along dimension 0. */
static rondo_status parts_check(const struct call *call, const struct op_operand *part, const char *name,
                                const struct op_operand *longer) {
  int64_t shape[RONDO_MAX_RANK];
  memcpy(shape, part->shape, sizeof shape);
  shape[0] *= call->ranks;
  return op_expect(name, longer, part->dtype, part->rank, shape);
}

static rondo_status peer_check(const struct call *call, const char *name, uint32_t peer) {
  if (peer < call->ranks) return RONDO_OK;
  return status_set(RONDO_INVALID_ARGUMENT, "`%s` is %u, expected a rank below %u", name, peer, call->ranks);
}

/* The source may have `out`, the other ranks have nothing else. */
static rondo_status broadcast_check(const struct call *call, const struct op_operand *in,
                                    const struct op_operand *out) {
  rondo_status status = peer_check(call, "from", call->from);
  if (status != RONDO_OK) return status;
  if (call->rank != call->from && in->present)
    return status_set(RONDO_INVALID_ARGUMENT, "in is given, but rank %u sends and this is rank %u", call->from,
                      call->rank);
  if (call->rank != call->from) return operand_check(call, "out", out);
  status = operand_check(call, "in", in);
  return status == RONDO_OK && out->present ? op_expect("out", out, in->dtype, in->rank, in->shape) : status;
}

static rondo_status send_receive_check(const struct call *call, const struct op_operand *in,
                                       const struct op_operand *out) {
  if (!in->present && !out->present) return status_set(RONDO_INVALID_ARGUMENT, "in and out are absent");
  rondo_status status = in->present ? peer_check(call, "to", call->to) : RONDO_OK;
  if (status == RONDO_OK && out->present) status = peer_check(call, "from", call->from);
  return status;
}

static rondo_status check(const struct op_task *task) {
  const struct call *call = op_attributes(task);
  const struct op_operand *in = &task->operands[IN], *out = &task->operands[OUT];
  rondo_status status = RONDO_OK;
  if (call->kind <= RONDO_NCCL_REDUCE_SCATTER || in->present) status = operand_check(call, "in", in);
  if (status == RONDO_OK && (call->kind <= RONDO_NCCL_REDUCE_SCATTER || out->present))
    status = operand_check(call, "out", out);
  if (status != RONDO_OK) return status;
  switch ((rondo_nccl_call)call->kind) {
  case RONDO_NCCL_ALL_REDUCE:
    return op_expect("out", out, in->dtype, in->rank, in->shape);
  case RONDO_NCCL_ALL_GATHER:
    return parts_check(call, in, "out", out);
  case RONDO_NCCL_REDUCE_SCATTER:
    return parts_check(call, out, "in", in);
  case RONDO_NCCL_BROADCAST:
    return broadcast_check(call, in, out);
  case RONDO_NCCL_SEND_RECEIVE:
    break;
  }
  return send_receive_check(call, in, out);
}

/* ---- The task ---------------------------------------------------------------------------------------------------- */

static const struct called_library library = {
    .name = "NCCL",
    .why_gpu = "is a call of NCCL",
    .why_host = ": NCCL needs it for ranks that only a network connects",
};

static rondo_status call_begin(const rondo_nccl_desc *desc, struct call *call) {
  int ranks = 0, rank = 0;
  if ((uint32_t)desc->call > RONDO_NCCL_SEND_RECEIVE)
    return status_set(RONDO_INVALID_ARGUMENT, "call is %d, expected one of rondo_nccl_call", (int)desc->call);
  if (!desc->communicator) return status_set(RONDO_INVALID_ARGUMENT, "the communicator is NULL");
  rondo_status status = load();
  if (status != RONDO_OK) return status;
  int result = nccl.ncclCommCount(desc->communicator, &ranks);
  if (result != NCCL_SUCCESS) return failed(desc->communicator, "ncclCommCount", result);
  result = nccl.ncclCommUserRank(desc->communicator, &rank);
  if (result != NCCL_SUCCESS) return failed(desc->communicator, "ncclCommUserRank", result);
  *call = (struct call){.communicator = desc->communicator,
                        .kind = desc->call,
                        .rank = (uint32_t)rank,
                        .ranks = (uint32_t)ranks,
                        .to = desc->to,
                        .from = desc->from};
  return RONDO_OK;
}

/* NULL: no tensor of the graph. An absent one stays absent, another one is refused when the task is added. */
static const struct tensor *tensor_of(const rondo_graph *graph, rondo_tensor handle) {
  return handle.graph && handle.graph == graph && handle.index < graph->tensor_count ? &graph->tensors[handle.index]
                                                                                     : NULL;
}

static void call_count(const rondo_graph *graph, const rondo_nccl_desc *desc, struct call *call) {
  const struct tensor *in = tensor_of(graph, desc->in), *out = tensor_of(graph, desc->out);
  const struct tensor *first = in ? in : out;
  const int type = first && is_sum(call->kind) ? type_of_sum(first->dtype) : 0;
  call->type = type ? type : NCCL_UINT8;
  call->has_in = in != NULL;
  call->has_out = out != NULL;
  if (in) call->in_count = type ? (uint64_t)tensor_elements(in) : tensor_bytes(in);
  if (out) call->out_count = type ? (uint64_t)tensor_elements(out) : tensor_bytes(out);
}

/* NCCL needs one order on all ranks, so its tasks run in the order of adding. */
static rondo_status follow_last_call(rondo_graph *graph) {
  const uint32_t added = graph->task_count - 1;
  for (uint32_t t = added; t-- > 0;) {
    const struct user_work *work = graph->tasks[t].user_work;
    if (work && work->called_library == &library) return rondo_after(graph, added, t);
  }
  return RONDO_OK;
}

static rondo_status add(rondo_graph *graph, const rondo_nccl_desc *desc) {
  static const char *const names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_receive"};
  struct call call;
  _Static_assert(sizeof call <= OP_ATTRIBUTE_BYTES, "the call is the task's attributes");
  rondo_status status = call_begin(desc, &call);
  if (status != RONDO_OK) return status;
  call_count(graph, desc, &call);
  const bool may_be_in_place = call.kind == RONDO_NCCL_ALL_REDUCE || call.kind == RONDO_NCCL_BROADCAST;
  const struct op_argument arguments[OPERANDS] = {
      [IN] = {"in", desc->in, RONDO_READ, 0},
      [OUT] = {"out", desc->out, RONDO_WRITE, may_be_in_place ? IN + 1 : 0},
  };
  const struct library_work work = {&library, names[call.kind], check, capture};
  status = graph_add_library_work(graph, &work, desc->name, arguments, OPERANDS, &call, sizeof call);
  return status == RONDO_OK ? follow_last_call(graph) : status;
}

rondo_status rondo_add_nccl(rondo_graph *graph, const rondo_nccl_desc *desc) {
  if (!desc) return status_set(RONDO_INVALID_ARGUMENT, "describe: rondo_add_nccl: the description is NULL");
  struct graph_mark mark;
  rondo_status status = graph_begin(graph, "rondo_add_nccl", &mark);
  return status == RONDO_OK ? graph_end(graph, &mark, add(graph, desc)) : status;
}
