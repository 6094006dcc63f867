/* parallel_nccl.c - see parallel_nccl.h. The communicator is the program's: it comes from the program's own NCCL,
 * opened at run time, with an identifier that rank 0 makes and the others get through world.h. */
#include "parallel_nccl.h"

#include <dlfcn.h>
#include <rondo_nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The communicator -------------------------------------------------------------------------------------------- */

struct identifier {
  char bytes[128];
};

/* What is needed of NCCL's header and of the driver's. */
static int (*get_identifier)(struct identifier *);
static int (*join)(struct ncclComm **, int ranks, struct identifier, int rank);
static int (*leave)(struct ncclComm *);
static const char *(*describe_error)(int);
static int (*get_version)(int *);
static int (*cuda_init)(unsigned);
static int (*count_devices)(int *);
static int (*retain_context)(void **context, int device);
static int (*set_context)(void *context);

static void find(void *library, const char *name, void *function) {
  void *symbol = dlsym(library, name);
  if (!symbol) give_up("there is no function %s", name);
  memcpy(function, &symbol, sizeof symbol);
}

static void load(void) {
  void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *nccl = cuda ? dlopen("libnccl.so.2", RTLD_NOW) : NULL;
  if (!nccl) give_up("several processes need GPUs and NCCL: %s", dlerror());
  find(cuda, "cuInit", &cuda_init);
  find(cuda, "cuDeviceGetCount", &count_devices);
  find(cuda, "cuDevicePrimaryCtxRetain", &retain_context);
  find(cuda, "cuCtxSetCurrent", &set_context);
  find(nccl, "ncclGetUniqueId", &get_identifier);
  find(nccl, "ncclCommInitRank", &join);
  find(nccl, "ncclCommDestroy", &leave);
  find(nccl, "ncclGetErrorString", &describe_error);
  find(nccl, "ncclGetVersion", &get_version);
}

static void require_cuda(int result, const char *function) {
  if (result) give_up("%s: CUDA error %d", function, result);
}

static void require_nccl(int result, const char *function) {
  if (result) give_up("%s: %s", function, describe_error(result));
}

/* NCCL takes the GPU whose context is current. */
static int32_t choose_device(const struct world *world) {
  int count = 0;
  void *context;
  require_cuda(cuda_init(0), "cuInit");
  require_cuda(count_devices(&count), "cuDeviceGetCount");
  if (world->local_rank >= count)
    give_up("rank %d is number %d on its machine, which has %d GPU%s", (int)world->rank, (int)world->local_rank, count,
            count == 1 ? "" : "s");
  require_cuda(retain_context(&context, world->local_rank), "cuDevicePrimaryCtxRetain");
  require_cuda(set_context(context), "cuCtxSetCurrent");
  return world->local_rank;
}

static struct ncclComm *join_all(const struct world *world) {
  struct identifier identifier = {{0}};
  struct ncclComm *communicator;
  if (!world->rank) require_nccl(get_identifier(&identifier), "ncclGetUniqueId");
  world_share(world, &identifier, sizeof identifier);
  require_nccl(join(&communicator, world->ranks, identifier, world->rank), "ncclCommInitRank");
  return communicator;
}

/* ---- The product ------------------------------------------------------------------------------------------------- */

struct part {
  rondo_graph *graph;
  rondo_tensor weights, x, y;
  rondo_runtime *runtime;
  rondo_exec *exec;
  rondo_slot slot;
};

static void open_part(struct part *part, int32_t device, struct ncclComm *communicator, int64_t m, int64_t columns,
                      int64_t count) {
  rondo_tensor sum;
  rondo_plan plan;
  TRY(rondo_graph_create(NULL, NULL, &part->graph));
  TRY(rondo_constant(part->graph, "weights", RONDO_F16, 2, (int64_t[]){m, columns}, &part->weights));
  TRY(rondo_input(part->graph, "x", RONDO_F16, 2, (int64_t[]){count, columns}, &part->x));
  TRY(rondo_temporary(part->graph, "part", RONDO_F32, 2, (int64_t[]){count, m}, &sum));
  TRY(rondo_output(part->graph, "y", RONDO_F32, 2, (int64_t[]){count, m}, &part->y));
  TRY(rondo_add_gemv(part->graph,
                     &(rondo_gemv_desc){.name = "product", .weights = part->weights, .vectors = part->x, .out = sum}));
  TRY(rondo_add_nccl(part->graph,
                     &(rondo_nccl_desc){.name = "sum", .communicator = communicator, .in = sum, .out = part->y}));
  TRY(rondo_plan_graph(part->graph, &plan));
  TRY(rondo_open(&(rondo_options){.backend = RONDO_BACKEND_CUDA,
                                  .device = device,
                                  .device_bytes = plan.device_bytes,
                                  .pinned_bytes = plan.pinned_bytes_per_slot,
                                  .host_bytes = plan.host_bytes},
                 &part->runtime));
  TRY(rondo_instantiate(part->runtime, part->graph, NULL, &part->exec)); /* the other ranks do so now, too */
  TRY(rondo_acquire(part->exec, &part->slot));
}

static void give_columns(const struct part *part, int64_t first, int64_t columns, const struct npy *weights,
                         const struct npy *vectors) {
  const uint64_t bytes = (uint64_t)(weights->shape[0] * columns) * sizeof(uint16_t);
  uint16_t *own = malloc(bytes);
  if (!own) give_up("no memory for a rank's weights");
  take_columns(weights, first, columns, own);
  TRY(rondo_upload(part->exec, part->weights, own, bytes));
  take_columns(vectors, first, columns, rondo_data(part->slot, part->x));
  free(own);
}

bool multiply_in_processes(const struct world *world, const struct options *options, const struct npy *weights,
                           const struct npy *vectors) {
  const int64_t m = weights->shape[0], columns = weights->shape[1] / world->ranks, count = vectors->shape[0];
  struct part part;
  rondo_info info;
  int version = 0;
  if (world->rank && !freopen("/dev/null", "w", stdout)) give_up("/dev/null cannot be opened");
  load();
  const int32_t device = choose_device(world);
  struct ncclComm *communicator = join_all(world);
  open_part(&part, device, communicator, m, columns, count);
  give_columns(&part, world->rank * columns, columns, weights, vectors);
  TRY(rondo_runtime_info(part.runtime, &info));
  get_version(&version);
  printf("runs on    %s, and GPUs of %d other process%s by NCCL %d\n", info.device_name, (int)world->ranks - 1,
         world->ranks == 2 ? "" : "es", version);
  bool fine = replay_timed(part.slot, options, part.y);
  const float *y = rondo_data(part.slot, part.y);
  const uint32_t differing = world_differing(world, y, (size_t)(count * m) * sizeof *y);
  fine = check("ranks with other bits than rank 0", differing, 0) && fine;
  fine = check_product(y, weights, vectors) && fine;
  if (!world->rank)
    write_array(options, &(struct npy){.type = NPY_F32, .rank = 2, .shape = {count, m}, .data = (void *)(uintptr_t)y});
  TRY(rondo_release(part.slot));
  TRY(rondo_close_exec(&part.exec));
  require_nccl(leave(communicator), "ncclCommDestroy");
  TRY(rondo_close(&part.runtime));
  TRY(rondo_graph_destroy(&part.graph));
  return fine;
}
