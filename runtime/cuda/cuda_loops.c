/* cuda_loops.c - see cuda_loops.h. A graph with a loop has a conditional node, whose body runs again while its
 * condition is 1. Kernels of Rondo's own, which belong to no task, set the condition. */
#include "cuda_loops.h"

#include <string.h>

#include "../kernels.h"
#include "cuda_failure.h"
#include "launches.h"
#include "resident.h"

/* The replays in the body of a resident graph. An iteration of the loop costs some microseconds. */
enum { RESIDENT_REPLAYS = 4 };

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

/* A loop (CUDA driver API, conditional nodes), behind build->waits. Its body becomes build->graph. */
static rondo_status add_loop(struct build *build, uint64_t condition, struct exit *loop) {
  struct cu_node_parameters parameters;
  memset(&parameters, 0, sizeof parameters);
  parameters.type = CU_NODE_CONDITIONAL;
  parameters.conditional = (struct cu_conditional_node){
      .handle = condition, .type = CU_CONDITION_WHILE, .size = 1, .context = build->exec->lane->context};
  cu_result result = build->device->driver.cuGraphAddNode(&loop->node, build->graph, build->waits.nodes, NULL,
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

/* ---- The graph of a repeat --------------------------------------------------------------------------------------- */

/* Behind build->waits. */
static rondo_status add_repeat_kernel(struct build *build, struct repeat_parameters parameters, uint32_t work,
                                      struct exit *exit) {
  enum { WARP = 32, VECTOR_BYTES = 16 };
  const uint64_t vectors = parameters.repeat.place_bytes / VECTOR_BYTES, most = op_repeat_kernel.threads;
  const uint64_t threads = work & REPEAT_TELLS && vectors > WARP ? (vectors + WARP - 1) / WARP * WARP : WARP;
  struct op_launch launch = {.kernel = op_repeat_kernel.name,
                             .grid = {1, 1, 1},
                             .block = {(uint32_t)(threads < most ? threads : most), 1, 1},
                             .parameter_bytes = sizeof parameters};
  parameters.work = work;
  memcpy(launch.parameters, &parameters, sizeof parameters);
  return build_extra_kernel(build, &launch, exit);
}

/* As build_wait_for_ends, but tasks that only give kept states to outputs, and are the last ones, may still run. */
static void wait_for_changes(struct build *build) {
  const struct device_program *program = build->program;
  struct exit *exits = build->exits;
  build_wait_for_ends(build);
  for (uint32_t n = 0; n < program->node_count; n++) {
    exits[n].is_aside = !exits[n].is_awaited && program->nodes[n].reads_seen;
    exits[n].is_awaited = exits[n].is_aside;
  }
  for (uint32_t n = 0; n < program->node_count; n++)
    for (uint32_t i = 0; !exits[n].is_aside && i < program->nodes[n].predecessor_count; i++)
      exits[program->nodes[n].predecessors[i]].is_awaited = true;
  build->waits.count = 0;
  for (uint32_t n = 0; n < program->node_count; n++) {
    if (!exits[n].is_awaited) build_wait_for(build, &exits[n], true);
    exits[n].is_awaited = false;
  }
}

/* A step in a body of several. The next one begins when it is decided whether this one was the last; its outputs are
 * copied beside the next one's first kernels. What the next one writes over waits for that. */
static rondo_status add_inner_step(struct build *build, const struct repeat_parameters *parameters) {
  struct exit decided = {0}, told = {0};
  rondo_status status = build_nodes(build);
  if (status != RONDO_OK) return status;
  wait_for_changes(build);
  if (build->aside.node) build_wait_for(build, &build->aside, true);
  if (!build->waits.count && build->begin.node) build_wait_for(build, &build->begin, true);
  status = add_repeat_kernel(build, *parameters, REPEAT_DECIDES, &decided);
  if (status != RONDO_OK) return status;
  build_wait_for_ends(build);
  build_wait_for(build, &decided, true);
  status = add_repeat_kernel(build, *parameters, REPEAT_TELLS, &told);
  build->begin = decided;
  build->aside = told;
  return status;
}

/* The step that ends the body. */
static rondo_status add_last_step(struct build *build, const struct repeat_parameters *parameters) {
  rondo_status status = build_nodes(build);
  if (status != RONDO_OK) return status;
  build_wait_for_ends(build);
  if (build->aside.node) build_wait_for(build, &build->aside, true);
  build->aside = (struct exit){0};
  return add_repeat_kernel(build, *parameters, REPEAT_TELLS | REPEAT_ENDS, &(struct exit){0});
}

/* Behind build->waits. build->graph stays. */
static rondo_status add_repeat_loop(struct build *build, const struct repeat_parameters *parameters,
                                    struct exit *loop) {
  struct cu_graph *graph = build->graph;
  rondo_status status = add_loop(build, parameters->loop, loop);
  build->begin = (struct exit){0};
  if (status == RONDO_OK) status = build_begin(build);
  for (uint32_t i = 1; i < parameters->steps && status == RONDO_OK; i++) status = add_inner_step(build, parameters);
  if (status == RONDO_OK) status = add_last_step(build, parameters);
  build->graph = graph;
  return status;
}

/* A loop of bodies of several steps, before that of single ones. */
static rondo_status add_large_loop(struct build *build, struct repeat_parameters parameters) {
  struct exit begin = {0}, loop = {0};
  parameters.rest = parameters.loop;
  parameters.steps = build->program->body_steps;
  memcpy(parameters.kept, build->program->kept, sizeof parameters.kept);
  rondo_status status = create_condition(build, &parameters.loop);
  if (status == RONDO_OK) status = add_repeat_kernel(build, parameters, REPEAT_BEGINS, &begin);
  build_wait_for(build, &begin, false);
  if (status == RONDO_OK) status = add_repeat_loop(build, &parameters, &loop);
  build->waits.count = 0;
  build_wait_for(build, &loop, false);
  return status;
}

static rondo_status build_loops(struct build *build, bool is_long, struct cu_graph **graph,
                                struct cu_graph_exec **graph_exec) {
  struct repeat_parameters parameters = {.done = completion_at(build->program, 0),
                                         .repeat = build->program->repeat,
                                         .word_count = build->word_count ? build->word_count : 1,
                                         .steps = 1};
  build->part = "repeat_steps: ";
  build->waits.count = 0;
  rondo_status status = create_graph(build, graph);
  if (status == RONDO_OK) status = create_condition(build, &parameters.loop);
  if (status == RONDO_OK && is_long) status = add_large_loop(build, parameters);
  if (status == RONDO_OK) status = add_repeat_loop(build, &parameters, &(struct exit){0});
  return status == RONDO_OK ? build_instantiate(build, *graph, graph_exec) : status;
}

/* Before the graph of a replay: what the exec then knows of launches and words is the replay's. */
rondo_status build_repeat(struct build *build) {
  struct device_exec *exec = build->exec;
  assign_no_words(exec, build->program);
  rondo_status status = build_loops(build, false, &exec->repeat_graph, &exec->repeat_exec);
  if (status == RONDO_OK && build->program->body_steps > 1)
    status = build_loops(build, true, &exec->long_repeat_graph, &exec->long_repeat_exec);
  assign_words(exec, build->program, &build->end_count);
  return status;
}

/* ---- The graph of a resident exec -------------------------------------------------------------------------------- */

/* Behind build->waits. */
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
  return status == RONDO_OK ? add_loop(build, parameters.loop, &(struct exit){0}) : status;
}

/* A bell and a replay. The next one waits for build->waits. */
static rondo_status add_rung_replay(struct build *build, struct doorbell_parameters *parameters) {
  struct exit done = {0};
  parameters->first = build->updatable_count;
  rondo_status status = add_doorbell(build, parameters, &build->begin);
  if (status == RONDO_OK) status = build_nodes(build);
  if (status == RONDO_OK) status = build_done(build, &done);
  if (status != RONDO_OK) return status;
  build_wait_for_ends(build);
  if (!done.node) return status;
  build->waits.count = 0;
  build_wait_for(build, &done, true);
  return status;
}

rondo_status build_resident(struct build *build) {
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
  if (status == RONDO_OK) status = build_instantiate(build, exec->resident_graph, &exec->resident_exec);
  return status == RONDO_OK ? resident_begin(exec) : status;
}
