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
#include "cuda_loops.h"
#include "cuda_nodes.h"
#include "launches.h"
#include "resident.h"
#include "turns.h"

enum {
  /* The most nodes without predecessors. Measured on an H200: each beyond the first costs 0.5 us in cuGraphLaunch, and
   * a node before them 0.4 us on the device. */
  BEGINNINGS_MOST = 2,
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
  const uint64_t most_waits = program->node_count + UINT64_C(2); /* a loop's own nodes, besides */
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
  exec->repeat_control = program->repeat.control;
  exec->body_steps = program->body_steps;
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
      library = build->program->nodes[n].user_work->library;
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

rondo_status build_begin(struct build *build) {
  uint32_t beginnings = 0;
  for (uint32_t n = 0; n < build->program->node_count; n++)
    beginnings += build->program->nodes[n].predecessor_count == 0;
  build->waits.count = 0;
  if (beginnings <= BEGINNINGS_MOST) return RONDO_OK;
  return add_point(build, (struct completion){0}, &build->begin);
}

rondo_status build_nodes(struct build *build) {
  const uint32_t node_count = build->program->node_count;
  if (node_count) memset(build->exits, 0, node_count * sizeof *build->exits);
  rondo_status status = RONDO_OK;
  for (uint32_t n = 0; n < node_count && status == RONDO_OK; n++) status = build_node(build, n);
  return status;
}

rondo_status build_program(struct build *build) {
  build->begin = (struct exit){0};
  rondo_status status = build_begin(build);
  return status == RONDO_OK ? build_nodes(build) : status;
}

void build_wait_for_ends(struct build *build) {
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

/* Each further last node makes cuGraphLaunch of driver 580 slower, and from some number on each launch allocates
 * memory. The one node publishes completion unless the nodes before it do; then no wait depends on it. */
rondo_status build_done(struct build *build, struct exit *done) {
  if (build->word_count && build->end_count == 1) return RONDO_OK;
  build_wait_for_ends(build);
  struct completion completion = build->word_count ? (struct completion){0} : completion_at(build->program, 0);
  return add_point(build, completion, done);
}

rondo_status build_instantiate(const struct build *build, struct cu_graph *graph, struct cu_graph_exec **graph_exec) {
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
  rondo_status status = build_program(build);
  if (status == RONDO_OK) status = build_done(build, &(struct exit){0});
  if (status == RONDO_OK && build->has_captures) status = audit(build);
  if (status == RONDO_OK) status = build_instantiate(build, exec->graph, &exec->graph_exec);
  if (status != RONDO_OK) return status;
  result = driver->cuEventCreate(&exec->event, CU_EVENT_DISABLE_TIMING);
  return result == CU_SUCCESS ? RONDO_OK : device_failed(build->device, result, "instantiate: cuEventCreate");
}

/* ---- Create and destroy ------------------------------------------------------------------------------------------ */

static void release(struct device_exec *exec) {
  const struct driver *driver = &exec->device->driver;
  if (device_lost(exec->device)) return;
  if (exec->event) driver->cuEventDestroy(exec->event);
  if (exec->graph_exec) driver->cuGraphExecDestroy(exec->graph_exec);
  if (exec->repeat_exec) driver->cuGraphExecDestroy(exec->repeat_exec);
  if (exec->long_repeat_exec) driver->cuGraphExecDestroy(exec->long_repeat_exec);
  if (exec->resident_exec) driver->cuGraphExecDestroy(exec->resident_exec);
  if (exec->graph) driver->cuGraphDestroy(exec->graph);
  if (exec->repeat_graph) driver->cuGraphDestroy(exec->repeat_graph);
  if (exec->long_repeat_graph) driver->cuGraphDestroy(exec->long_repeat_graph);
  if (exec->resident_graph) driver->cuGraphDestroy(exec->resident_graph);
  for (uint32_t i = exec->library_count; i-- > 0;) driver->cuLibraryUnload(exec->libraries[i]);
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
  if (status != RONDO_OK) resident_end(build.exec);
  if (status != RONDO_OK) release(build.exec);
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
  device_restore(device, mode);
  device_release(device);
  device_leave(device);
  return !device_lost(device);
}
