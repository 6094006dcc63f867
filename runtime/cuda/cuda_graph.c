/* cuda_graph.c - see cuda_graph.h. The graph has a kernel node for each launch, with exactly the program's edges, and
 * captured nodes for work of other libraries (cuda_nodes.c). If the last kernels do not publish completion, a node
 * after them does.
 *
 * The costs of a first launch are paid here: kernels are loaded, shared memory is opted into, the graph is uploaded. A
 * launch is then one cuGraphLaunch: cuda_replay.c. */
#include "cuda_graph.h"

#include <string.h>
#include <time.h>

#include "../clock.h"
#include "../cutter.h"
#include "../kernels.h"
#include "../own_thread.h"
#include "capture.h"
#include "cuda_failure.h"
#include "cuda_nodes.h"
#include "images.h"
#include "launches.h"
#include "resident.h"
#include "turns.h"

enum {
  /* The most nodes without predecessors. Measured on an H200: each beyond the first costs 0.5 us in cuGraphLaunch, and
   * a node before them 0.4 us on the device. */
  BEGINNINGS_MOST = 2,
  /* The replays in the body of a resident graph. An iteration of the loop costs some microseconds. */
  RESIDENT_REPLAYS = 4,
};

/* The memory of an exec, and of its build. Without memory they only measure. */
static struct device_exec *cut_exec(struct cutter *cutter, const struct device_program *program) {
  struct device_exec *exec = cut(cutter, sizeof *exec), parts = {0};
  parts.libraries = cut(cutter, program->user_kernel_count * sizeof *parts.libraries);
  parts.launches = cut(cutter, program->launch_count * sizeof *parts.launches);
  parts.first_word = cut(cutter, program->node_count * sizeof *parts.first_word);
  if (cutter->base) *exec = parts;
  return exec;
}

static void cut_build(struct cutter *cutter, const struct device_program *program, struct build *build) {
  const uint64_t most_waits = program->node_count + UINT64_C(1); /* a resident graph waits even without nodes */
  build->exits = cut(cutter, program->node_count * sizeof *build->exits);
  build->waits.nodes = cut(cutter, most_waits * sizeof *build->waits.nodes);
  build->waits.edges = cut(cutter, most_waits * sizeof *build->waits.edges);
  build->images = cut(cutter, program->user_kernel_count * sizeof *build->images);
}

struct device_exec_bytes cuda_exec_bytes(const struct device_program *program) {
  struct cutter slot = {0}, build = {0};
  cut_exec(&slot, program);
  cut_build(&build, program, &(struct build){0});
  return (struct device_exec_bytes){.slot = slot.used, .build = build.used};
}

static void build_start(struct build *build, struct device *device, const struct device_program *program) {
  *build = (struct build){.device = device, .program = program, .part = ""};
  cut_build(&(struct cutter){program->build_memory, 0}, program, build);
  struct device_exec *exec = build->exec = cut_exec(&(struct cutter){program->host_memory, 0}, program);
  assert(exec);
  exec->device = device;
  exec->lane = &device->lanes[program->lane];
  exec->notice = program->notice;
  exec->bell = program->bell;
  exec->linger_ns = program->linger_ns;
  build->word_count = assign_words(exec, program, &build->end_count);
  for (uint32_t i = 1; i < build->word_count; i++) atomic_store(&program->words[i], 0);
}

/* ---- The whole graph --------------------------------------------------------------------------------------------- */

/* Once after all captures, since each look reads the whole graph. The driver lists nodes in the order in which they
 * were added, which gives a node its task for the error text. */
static rondo_status audit(const struct build *build) {
  const char *forbidden = NULL, *task = "";
  const struct called_library *library = NULL;
  size_t index = 0;
  rondo_status status = capture_audit(build->device, build->exec->graph, &forbidden, &index);
  if (status != RONDO_OK || !forbidden) return status;
  for (uint32_t n = build->program->node_count; n-- > 0;)
    if (build->exits[n].node_count > index) {
      task = build->program->nodes[n].call.task->name;
      library = build->program->nodes[n].user_work->called_library;
    }
  return status_set(RONDO_UNSUPPORTED, "instantiate: task '%s': %s enqueued %s, which no replay may do%s", task,
                    library ? library->name : "the callback", forbidden, library ? library->why_host : "");
}

/* A node of one thread that waits for build->waits. */
static rondo_status add_point(struct build *build, struct completion completion, struct exit *exit) {
  struct op_launch launch = {
      .kernel = op_point_kernel.name, .grid = {1, 1, 1}, .block = {1, 1, 1}, .parameter_bytes = sizeof completion};
  memcpy(launch.parameters, &completion, sizeof completion);
  return build_extra_kernel(build, &launch, exit);
}

static rondo_status add_begin(struct build *build) {
  uint32_t beginnings = 0;
  for (uint32_t n = 0; n < build->program->node_count; n++)
    beginnings += build->program->nodes[n].predecessor_count == 0;
  build->waits.count = 0;
  if (beginnings <= BEGINNINGS_MOST) return RONDO_OK;
  return add_point(build, (struct completion){0}, &build->begin);
}

/* All nodes but those that begin and end a replay. */
static rondo_status add_nodes(struct build *build) {
  const uint32_t node_count = build->program->node_count;
  if (node_count) memset(build->exits, 0, node_count * sizeof *build->exits);
  rondo_status status = RONDO_OK;
  for (uint32_t n = 0; n < node_count && status == RONDO_OK; n++) status = build_node(build, n);
  return status;
}

static rondo_status add_program(struct build *build) {
  build->begin = (struct exit){0};
  rondo_status status = add_begin(build);
  return status == RONDO_OK ? add_nodes(build) : status;
}

/* The next node waits for all nodes of the program that no other waits for; without any, for the replay's begin. */
static void wait_for_ends(struct build *build) {
  const struct device_program *program = build->program;
  struct exit *exits = build->exits;
  for (uint32_t n = 0; n < program->node_count; n++)
    for (uint32_t i = 0; i < program->nodes[n].predecessor_count; i++)
      exits[program->nodes[n].predecessors[i]].is_awaited = true;
  build->waits.count = 0;
  for (uint32_t n = 0; n < program->node_count; n++)
    if (!exits[n].is_awaited) build_wait_for(build, &exits[n], true);
  if (!program->node_count && build->begin.node) build_wait_for(build, &build->begin, true);
}

/* A graph ends in one node. Each further last node makes cuGraphLaunch of driver 580 slower, and from some number on
 * each launch allocates memory. The one node publishes completion unless the nodes before it do; then no wait depends
 * on it. */
static rondo_status add_done(struct build *build, struct exit *done) {
  if (build->word_count && build->end_count == 1) return RONDO_OK;
  wait_for_ends(build);
  struct completion completion = build->word_count ? (struct completion){0} : completion_at(build->program, 0);
  return add_point(build, completion, done);
}

static rondo_status instantiate(const struct build *build, struct cu_graph *graph, struct cu_graph_exec **graph_exec) {
  struct cu_instantiate_parameters parameters = {.flags = CU_INSTANTIATE_UPLOAD,
                                                 .upload_stream = build->exec->lane->stream};
  cu_result result = build->device->driver.cuGraphInstantiateWithParams(graph_exec, graph, &parameters);
  if (result == CU_SUCCESS) return RONDO_OK;
  *graph_exec = NULL;
  for (uint32_t n = 0; parameters.error_node && n < build->program->node_count; n++)
    if (build->exits[n].node == parameters.error_node)
      return build_failed(build, result, build->program->nodes[n].call.task->name, "cuGraphInstantiateWithParams");
  return device_failed(build->device, result, "instantiate: %scuGraphInstantiateWithParams (result %d)", build->part,
                       (int)parameters.result);
}

static rondo_status build_graph(struct build *build) {
  const struct driver *driver = &build->device->driver;
  struct device_exec *exec = build->exec;
  cu_result result = driver->cuGraphCreate(&exec->graph, 0);
  if (result != CU_SUCCESS) return device_failed(build->device, result, "instantiate: cuGraphCreate");
  build->graph = exec->graph;
  rondo_status status = add_program(build);
  if (status == RONDO_OK) status = add_done(build, &(struct exit){0});
  if (status == RONDO_OK && build->has_captures) status = audit(build);
  if (status == RONDO_OK) status = instantiate(build, exec->graph, &exec->graph_exec);
  if (status != RONDO_OK) return status;
  result = driver->cuEventCreate(&exec->event, CU_EVENT_DISABLE_TIMING);
  return result == CU_SUCCESS ? RONDO_OK : device_failed(build->device, result, "instantiate: cuEventCreate");
}

/* ---- Graphs with loops --------------------------------------------------------------------------------------------
 */

/* The graph of an option, build->part. It becomes build->graph. */
static rondo_status create_graph(struct build *build, struct cu_graph **graph) {
  const struct driver *driver = &build->device->driver;
  const char *missing = !driver->cuGraphConditionalHandleCreate  ? "cuGraphConditionalHandleCreate"
                        : !driver->cuGraphKernelNodeSetAttribute ? "cuGraphKernelNodeSetAttribute"
                        : !driver->cuGraphKernelNodeGetAttribute ? "cuGraphKernelNodeGetAttribute"
                                                                 : NULL;
  if (missing) return status_set(RONDO_UNSUPPORTED, "instantiate: %sthe driver has no %s", build->part, missing);
  cu_result result = driver->cuGraphCreate(graph, 0);
  build->graph = *graph;
  return result == CU_SUCCESS ? RONDO_OK
                              : device_failed(build->device, result, "instantiate: %scuGraphCreate", build->part);
}

/* A loop (CUDA driver API, conditional nodes), after build->waits. Its body becomes build->graph. */
static rondo_status add_loop(struct build *build, uint64_t condition) {
  struct cu_node_parameters parameters;
  memset(&parameters, 0, sizeof parameters);
  parameters.type = CU_NODE_CONDITIONAL;
  parameters.conditional = (struct cu_conditional_node){
      .handle = condition, .type = CU_CONDITION_WHILE, .size = 1, .context = build->exec->lane->context};
  struct cu_graph_node *loop;
  cu_result result = build->device->driver.cuGraphAddNode(&loop, build->graph, build->waits.nodes, NULL,
                                                          build->waits.count, &parameters);
  if (result != CU_SUCCESS) return device_failed(build->device, result, "instantiate: %scuGraphAddNode", build->part);
  build->graph = parameters.conditional.bodies[0];
  build->waits.count = 0;
  return RONDO_OK;
}

/* 1 at each launch. */
static rondo_status create_condition(const struct build *build, uint64_t *condition) {
  cu_result result = build->device->driver.cuGraphConditionalHandleCreate(
      condition, build->graph, build->exec->lane->context, 1, CU_CONDITION_ASSIGN_DEFAULT);
  if (result == CU_SUCCESS) return RONDO_OK;
  return device_failed(build->device, result, "instantiate: %scuGraphConditionalHandleCreate", build->part);
}

/* The last node of the body, which ends a step, and after the last step publishes completion. */
static rondo_status add_step_end(struct build *build, uint64_t condition) {
  enum { WARP = 32, VECTOR_BYTES = 16 };
  const struct device_program *program = build->program;
  const struct repeat_parameters parameters = {.done = completion_at(program, 0),
                                               .repeat = program->repeat,
                                               .condition = condition,
                                               .word_count = build->word_count ? build->word_count : 1};
  const uint64_t vectors = program->repeat.place_bytes / VECTOR_BYTES, most = op_repeat_kernel.threads;
  const uint64_t threads = vectors ? (vectors + WARP - 1) / WARP * WARP : WARP;
  struct op_launch launch = {.kernel = op_repeat_kernel.name,
                             .grid = {1, 1, 1},
                             .block = {(uint32_t)(threads < most ? threads : most), 1, 1},
                             .parameter_bytes = sizeof parameters};
  memcpy(launch.parameters, &parameters, sizeof parameters);
  wait_for_ends(build);
  return build_extra_kernel(build, &launch, &(struct exit){0});
}

/* Called before build_graph, so that the launches and words that the exec keeps are those of the replay's graph. */
static rondo_status build_repeat(struct build *build) {
  struct device_exec *exec = build->exec;
  uint64_t condition = 0;
  build->part = "repeat_steps: ";
  build->waits.count = 0;
  rondo_status status = create_graph(build, &exec->repeat_graph);
  if (status == RONDO_OK) status = create_condition(build, &condition);
  if (status == RONDO_OK) status = add_loop(build, condition);
  assign_no_words(exec, build->program);
  if (status == RONDO_OK) status = add_program(build);
  if (status == RONDO_OK) status = add_step_end(build, condition);
  if (status == RONDO_OK) status = instantiate(build, exec->repeat_graph, &exec->repeat_exec);
  assign_words(exec, build->program, &build->end_count);
  return status;
}

/* ---- The graph of a resident exec -------------------------------------------------------------------------------- */

/* After build->waits. */
static rondo_status add_doorbell(struct build *build, const struct doorbell_parameters *parameters, struct exit *bell) {
  struct op_launch launch = {.kernel = op_await_bell_kernel.name,
                             .grid = {1, 1, 1},
                             .block = {op_await_bell_kernel.threads, 1, 1},
                             .parameter_bytes = sizeof *parameters};
  memcpy(launch.parameters, parameters, sizeof *parameters);
  uint64_t *updatable = build->updatable;
  build->updatable = NULL; /* it is itself never turned off */
  rondo_status status = build_extra_kernel(build, &launch, bell);
  build->updatable = updatable;
  return status;
}

/* A loop, and before it the kernel that turns on what the last turn has turned off. */
static rondo_status add_resident_loop(struct build *build, struct doorbell_parameters parameters) {
  struct exit before = {0};
  parameters.is_before_loop = 1;
  rondo_status status = add_doorbell(build, &parameters, &before);
  build_wait_for(build, &before, false);
  return status == RONDO_OK ? add_loop(build, parameters.loop) : status;
}

/* A bell and a replay. The next one waits for build->waits. */
static rondo_status add_rung_replay(struct build *build, struct doorbell_parameters *parameters) {
  struct exit done = {0};
  parameters->first = build->updatable_count;
  rondo_status status = add_doorbell(build, parameters, &build->begin);
  if (status == RONDO_OK) status = add_nodes(build);
  if (status == RONDO_OK) status = add_done(build, &done);
  if (status != RONDO_OK) return status;
  wait_for_ends(build);
  if (!done.node) return status;
  build->waits.count = 0;
  build_wait_for(build, &done, true);
  return status;
}

static rondo_status build_resident(struct build *build) {
  struct device_exec *exec = build->exec;
  const struct device_program *program = build->program;
  struct doorbell_parameters parameters = {
      .bell = program->bell, .state = program->bell_state, .nodes = program->bell_nodes};
  build->part = "linger_ns: ";
  build->waits.count = 0;
  rondo_status status = create_graph(build, &exec->resident_graph);
  if (status == RONDO_OK) status = create_condition(build, &parameters.loop);
  if (status == RONDO_OK) status = add_resident_loop(build, parameters);
  build->updatable = program->bell_nodes;
  uint32_t replays = 0, has_room = true;
  for (; replays < RESIDENT_REPLAYS && has_room && status == RONDO_OK; replays++) {
    status = add_rung_replay(build, &parameters);
    has_room = build->updatable_count / (replays + 1) <= DOORBELL_NODES - build->updatable_count;
  }
  build->updatable = NULL;
  program->bell->node_count = build->updatable_count;
  if (status == RONDO_OK) status = instantiate(build, exec->resident_graph, &exec->resident_exec);
  return status == RONDO_OK ? resident_begin(exec) : status;
}

/* ---- Create and destroy ------------------------------------------------------------------------------------------ */

static void release(struct device_exec *exec) {
  const struct driver *driver = &exec->device->driver;
  if (device_lost(exec->device)) return;
  if (exec->event) driver->cuEventDestroy(exec->event);
  if (exec->graph_exec) driver->cuGraphExecDestroy(exec->graph_exec);
  if (exec->repeat_exec) driver->cuGraphExecDestroy(exec->repeat_exec);
  if (exec->resident_exec) driver->cuGraphExecDestroy(exec->resident_exec);
  if (exec->graph) driver->cuGraphDestroy(exec->graph);
  if (exec->repeat_graph) driver->cuGraphDestroy(exec->repeat_graph);
  if (exec->resident_graph) driver->cuGraphDestroy(exec->resident_graph);
}

rondo_status cuda_exec_create(struct device *device, const struct device_program *program, struct device_exec **exec) {
  rondo_status status = device_enter(device, "instantiate");
  if (status != RONDO_OK) return status;
  device_hold(device);
  pthread_mutex_lock(&device->lock);
  own_thread_block_signals(&device->signals); /* the driver may start threads */
  int mode = device_relax(device);
  struct build build;
  build_start(&build, device, program);
  if (program->repeat.control) status = build_repeat(&build);
  if (status == RONDO_OK && program->bell) status = build_resident(&build);
  build.part = "";
  if (status == RONDO_OK) status = build_graph(&build);
  if (status != RONDO_OK) {
    resident_end(build.exec);
    release(build.exec);
    if (!device_lost(device)) images_unload_own(device, build.exec->libraries, build.exec->library_count);
  }
  device_restore(device, mode);
  const sigset_t signals = device->signals;
  pthread_mutex_unlock(&device->lock);
  own_thread_restore_signals(&signals);
  device_release(device);
  device_leave(device);
  if (status == RONDO_OK) *exec = build.exec;
  return status;
}

/* The host sees the end of a replay some microseconds before its last node has ended. Longer work of the lane belongs
 * to another exec and may hang, so it is not waited for. The driver frees a graph in flight once it has ended
 * (cuGraphExecDestroy). */
static cu_result wait_for_last_node(const struct device_exec *exec) {
  enum { WAIT_NS = 2 * 1000 * 1000, POLL_NS = 10 * 1000 };
  cu_result result = CU_NOT_READY;
  for (int waited_ns = 0; result == CU_NOT_READY && waited_ns < WAIT_NS; waited_ns += POLL_NS) {
    result = device_query(exec->device, exec->lane->stream);
    if (result == CU_NOT_READY) nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
  }
  return result;
}

/* A resident graph that was taken off reads and writes memory of the exec until it ends. Its last kernels may wait for
 * room that work of other lanes has. */
static void wait_for_resident_graph(const struct device_exec *exec) {
  enum { POLL_NS = 10 * 1000 };
  const uint64_t begin_ns = now_ns();
  struct device *device = exec->device;
  cu_result result = CU_NOT_READY;
  while (result == CU_NOT_READY && !device_lost(device)) {
    result = device->driver.cuEventQuery(exec->event);
    if (result != CU_NOT_READY) continue;
    if (now_ns() - begin_ns > resident_patience_ns)
      device_lose(device, "close: the graph of a resident exec has not ended after 120 s");
    nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
  }
  if (result != CU_SUCCESS && result != CU_NOT_READY) device_failed(device, result, "close: cuEventQuery");
}

bool cuda_exec_destroy(struct device_exec *exec) {
  struct device *device = exec->device;
  resident_end(exec);
  if (device_enter(device, "close") != RONDO_OK) return !device_lost(device);
  device_hold(device);
  int mode = device_relax(device);
  if (exec->bell) wait_for_resident_graph(exec);
  cu_result result = wait_for_last_node(exec);
  if (result != CU_SUCCESS && result != CU_NOT_READY) device_failed(device, result, "close: cuStreamQuery");
  release(exec);
  if (!device_lost(device)) images_leave(device, exec->libraries, exec->library_count);
  device_restore(device, mode);
  device_release(device);
  device_leave(device);
  return !device_lost(device);
}
