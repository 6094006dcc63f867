/* profile.c - rondo_profile: the time of each task. Each node of an exec becomes a program of its own: the node, and
 * after it a tiny copy. The program is launched in the exec's lane. The node's time is the program's time less that of
 * the tiny copy alone. With the copy all programs end alike, whatever publishes completion, and another kernel waits
 * for the node, as in a replay.
 *
 * The host's clock times a launch until the host sees its end, as for a replay. The programs have memory of their own,
 * besides the pools; only whole replays touch the exec's slots. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "cutter.h"
#include "join.h"
#include "kernels.h"
#include "ownership.h"
#include "program.h"
#include "slot.h"
#include "traffic.h"
#include "waiting.h"

enum {
  PASSES = 20,
  TINY_BYTES = 8,
  COUNTS_BYTES = COMPLETION_WORDS * 8,
  SPIN_NS = 5 * 1000 * 1000, /* a longer wait may sleep, as rondo_wait does */
};
static const uint64_t copy_bytes_wanted = UINT64_C(256) << 20;
static const uint64_t timeout_ns = UINT64_C(120) * 1000 * 1000 * 1000;

/* The measured node, if there is one, and after it the tiny copy. */
struct program {
  struct slot slot; /* what it is launched with */
  struct device_node nodes[2];
  void **data; /* the tiny copy's, then the other's */
};

struct copy {
  struct op_operand operands[2];
  struct op_task task;
  void *data[2];
};

struct profile {
  rondo_exec *exec;
  struct slot *slot; /* the caller's */
  uint32_t pass_count;
  uint32_t program_count; /* of each node, then the tiny copy alone, then the large one if there is memory for it */
  uint32_t created_count;
  struct program *programs;
  uint64_t *times; /* of each program and of whole replays, pass_count of each */
  void *build_memory;
  struct device_memory memory, large_memory;
  struct copy tiny, large;
};

/* ---- Programs ---------------------------------------------------------------------------------------------------- */

static void copy_describe(struct copy *copy, const char *name, uint64_t bytes, unsigned char *memory, uint64_t stride) {
  struct op_operand operand = {
      .present = true, .dtype = RONDO_F32, .rank = 1, .shape = {(int64_t)(bytes / 4)}, .stride = {1}};
  copy->operands[0] = copy->operands[1] = operand;
  copy->operands[0].access = RONDO_READ;
  copy->operands[1].access = RONDO_WRITE;
  copy->task = (struct op_task){.op = &op_copy, .name = name, .operand_count = 2, .operands = copy->operands};
  copy->data[0] = memory;
  copy->data[1] = memory + stride;
}

/* The node that a program measures. Its task is NULL in the program of the tiny copy alone. */
static struct device_node measured_node(const struct profile *p, uint32_t index) {
  if (index < p->exec->program.node_count) return p->exec->program.nodes[index];
  bool is_large = index > p->exec->program.node_count;
  return (struct device_node){.call = {.task = is_large ? &p->large.task : NULL, .data = p->large.data}};
}

/* Only the counts of a program. */
static struct device_program program_counts(const struct profile *p, uint32_t index) {
  struct device_node measured = measured_node(p, index);
  const struct op_task *task = measured.call.task;
  struct device_program counts = {.lane = p->exec->lane, .node_count = 1, .operand_count = 2, .launch_count = 1};
  if (!task) return counts;
  counts.node_count++;
  counts.operand_count += task->operand_count;
  counts.launch_count += launches_most(task->op);
  counts.user_kernel_count = measured.user_work && measured.user_work->image;
  return counts;
}

static struct device_program program_make(const struct profile *p, uint32_t index) {
  static const uint32_t measured_index = 0;
  struct program *program = &p->programs[index];
  struct device_program made = program_counts(p, index);
  struct device_node measured = measured_node(p, index);
  struct device_node *tiny = &program->nodes[made.node_count - 1];
  memcpy(program->data, p->tiny.data, sizeof p->tiny.data);
  *tiny = (struct device_node){.call = {.task = &p->tiny.task, .data = program->data}};
  if (measured.call.task) {
    uint32_t operand_count = measured.call.task->operand_count;
    if (operand_count) memcpy(program->data + 2, measured.call.data, operand_count * sizeof(void *));
    measured.call.data = program->data + 2;
    measured.predecessor_count = measured.first_launch = 0;
    program->nodes[0] = measured;
    tiny->predecessors = &measured_index;
    tiny->predecessor_count = 1;
    tiny->first_launch = launches_most(measured.call.task->op);
  }
  made.nodes = program->nodes;
  made.data = program->data;
  made.counts = program->slot.counts;
  made.words = program->slot.words;
  made.host_memory = program->slot.backend_memory;
  made.build_memory = p->build_memory;
  return made;
}

static rondo_status programs_create(struct profile *p) {
  rondo_runtime *runtime = p->exec->runtime;
  rondo_status status = RONDO_OK;
  for (uint32_t n = 0; n < p->program_count && status == RONDO_OK; n++) {
    struct slot *slot = &p->programs[n].slot;
    struct device_program program = program_make(p, n);
    for (int i = 0; i < COMPLETION_WORDS; i++) atomic_store(&program.words[i], i ? UINT64_MAX : 0);
    status = runtime->ops->exec_create(runtime->device, &program, &slot->device_exec);
    p->created_count += status == RONDO_OK;
  }
  return status;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* Without memory it only measures. The programs come first, since their slots need a larger alignment than a cutter
 * gives. */
static void cut_host(struct cutter *cutter, struct profile *p) {
  const struct device_ops *ops = p->exec->runtime->ops;
  uint64_t build_bytes = 0;
  p->programs = cut(cutter, p->program_count * sizeof *p->programs);
  p->times = cut(cutter, (p->program_count + UINT64_C(1)) * p->pass_count * sizeof *p->times);
  for (uint32_t i = 0; i < p->program_count; i++) {
    struct device_program counts = program_counts(p, i);
    struct device_exec_bytes bytes = ops->exec_bytes(&counts);
    if (bytes.build > build_bytes) build_bytes = bytes.build;
    struct program program = {.slot.backend_memory = cut(cutter, bytes.slot),
                              .data = cut(cutter, counts.operand_count * sizeof(void *))};
    if (cutter->base) p->programs[i] = program;
  }
  p->build_memory = cut(cutter, build_bytes);
}

/* Without memory for the large copy, all else is measured. */
static rondo_status take_large(struct profile *p, uint64_t bytes) {
  rondo_runtime *runtime = p->exec->runtime;
  p->large_memory = (struct device_memory){.device_bytes = 2 * bytes};
  rondo_status status = runtime->ops->memory.take(runtime->device, &p->large_memory);
  if (status == RONDO_OK) {
    copy_describe(&p->large, "the large copy of rondo_profile", bytes, p->large_memory.device, bytes);
    p->program_count++;
  }
  return status == RONDO_OUT_OF_MEMORY ? RONDO_OK : status;
}

static rondo_status take_all(struct profile *p) {
  rondo_runtime *runtime = p->exec->runtime;
  const uint64_t tiny_stride = 256;
  struct cutter cutter = {0};
  cut_host(&cutter, p);
  p->memory = (struct device_memory){.device_bytes = 2 * tiny_stride + p->program_count * (uint64_t)COUNTS_BYTES,
                                     .pinned_bytes = p->program_count * (uint64_t)COUNTS_BYTES,
                                     .host_bytes = cutter.used};
  rondo_status status = runtime->ops->memory.take(runtime->device, &p->memory);
  if (status != RONDO_OK) return status;
  cutter = (struct cutter){p->memory.host, 0};
  cut_host(&cutter, p);
  unsigned char *device = p->memory.device, *pinned = p->memory.pinned;
  copy_describe(&p->tiny, "the tiny copy of rondo_profile", TINY_BYTES, device, tiny_stride);
  for (uint32_t i = 0; i < p->program_count; i++) {
    p->programs[i].slot.counts = (void *)(device + 2 * tiny_stride + (size_t)i * COUNTS_BYTES);
    p->programs[i].slot.words = (void *)(pinned + (size_t)i * COUNTS_BYTES);
  }
  return runtime->ops->memory.zero(runtime->device, p->exec->lane, p->memory.device, p->memory.device_bytes);
}

static void give_all(struct profile *p) {
  rondo_runtime *runtime = p->exec->runtime;
  runtime->ops->drain(runtime->device, p->exec->lane); /* a last kernel may still end */
  while (p->created_count > 0) runtime->ops->exec_destroy(p->programs[--p->created_count].slot.device_exec);
  runtime->ops->memory.give(runtime->device, &p->memory);
  runtime->ops->memory.give(runtime->device, &p->large_memory);
}

/* ---- Time -------------------------------------------------------------------------------------------------------- */

/* A wait of its own: wait_until of waiting.h may sleep after 50 us, or at once with RONDO_WAIT_BLOCK, and the time
 * until a sleeper wakes would be measured too. It takes over after SPIN_NS. */
static rondo_status wait_awake(const struct profile *p, struct slot *slot) {
  for (uint64_t begin_ns = now_ns(); !slot_done(slot);) {
    uint64_t waited_ns = now_ns() - begin_ns;
    if (waited_ns > SPIN_NS) return slot_wait(p->exec, slot, timeout_ns);
    if (waited_ns > SPIN_BEFORE_YIELD_NS) sched_yield();
  }
  return RONDO_OK;
}

static rondo_status time_launch(const struct profile *p, struct slot *slot, uint64_t *time_ns) {
  rondo_runtime *runtime = p->exec->runtime;
  uint64_t begin_ns = now_ns();
  rondo_status status = slot_launch_untold(p->exec, slot, LAUNCH_REPLAY);
  if (status == RONDO_OK) status = wait_awake(p, slot);
  *time_ns = now_ns() - begin_ns;
  return status == RONDO_TIMEOUT ? runtime->ops->lose(runtime->device, "rondo_profile: not done after 120 s") : status;
}

static uint64_t *times_of(const struct profile *p, uint32_t program) {
  return p->times + (size_t)program * p->pass_count;
}

/* A whole replay, then all programs one by one. The times of the first pass are overwritten by the next. */
static rondo_status run_pass(const struct profile *p, uint32_t place) {
  rondo_status status = time_launch(p, p->slot, &times_of(p, p->program_count)[place]);
  for (uint32_t i = 0; i < p->program_count && status == RONDO_OK; i++)
    status = time_launch(p, &p->programs[i].slot, &times_of(p, i)[place]);
  return status;
}

static rondo_status run_passes(const struct profile *p, const rondo_profile_options *options) {
  rondo_status status = run_pass(p, 0);
  for (uint32_t pass = 0; pass < p->pass_count && status == RONDO_OK; pass++) {
    status = run_pass(p, pass);
    if (status == RONDO_OK && options && options->progress) options->progress(options->user, pass + 1, p->pass_count);
  }
  return status;
}

static int compare_times(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
  return a < b ? -1 : a > b;
}

static uint64_t median(const struct profile *p, uint32_t program) {
  uint64_t *times = times_of(p, program);
  qsort(times, p->pass_count, sizeof *times, compare_times);
  return times[p->pass_count / 2];
}

/* ---- Results ---------------------------------------------------------------------------------------------------- */

static bool is_across_the_bus(const rondo_runtime *runtime, const void *address) {
  uintptr_t offset = (uintptr_t)address - (uintptr_t)runtime->pinned_pool.base;
  return runtime->ops->backend == RONDO_BACKEND_CUDA && offset < runtime->pinned_pool.capacity_bytes;
}

static void fill_bytes(const struct profile *p, uint32_t node, rondo_task_profile *task) {
  const struct op_call *call = &p->programs[node].nodes[0].call;
  for (uint32_t i = 0; i < call->task->operand_count; i++) {
    struct traffic traffic = traffic_of_operand(call->task, i);
    bool is_bus = is_across_the_bus(p->exec->runtime, call->data[i]);
    *(is_bus ? &task->bus_bytes : &task->bytes) += traffic.read_bytes + traffic.written_bytes;
  }
}

static void fill_tasks(const struct profile *p, uint64_t launch_ns, rondo_task_profile *tasks,
                       rondo_profile_totals *totals) {
  for (uint32_t n = 0; n < p->exec->program.node_count; n++) {
    const struct device_node *node = &p->exec->program.nodes[n];
    const struct op *op = node->call.task->op;
    rondo_task_profile *task = &tasks[n];
    uint64_t time_ns = median(p, n);
    *task = (rondo_task_profile){.operation = operation_name(op, node->user_work)};
    memcpy(task->name, p->exec->program.names[n], sizeof task->name);
    if (op != &op_join && time_ns > launch_ns) task->time_ns = time_ns - launch_ns; /* a join launches nothing */
    for (uint32_t i = 0; i < node->predecessor_count; i++) {
      const rondo_task_profile *before = &tasks[node->predecessors[i]];
      if (before->begin_ns + before->time_ns > task->begin_ns) task->begin_ns = before->begin_ns + before->time_ns;
    }
    fill_bytes(p, n, task);
    totals->tasks_ns += task->time_ns;
    if (task->begin_ns + task->time_ns > totals->path_ns) totals->path_ns = task->begin_ns + task->time_ns;
  }
}

static void fill_all(const struct profile *p, uint64_t copy_bytes, rondo_task_profile *tasks,
                     rondo_profile_totals *totals) {
  uint32_t node_count = p->exec->program.node_count;
  *totals = (rondo_profile_totals){.task_count = node_count,
                                   .replay_count = 2 * (p->pass_count + 1),
                                   .replay_ns = median(p, p->program_count),
                                   .launch_ns = median(p, node_count)};
  memcpy(totals->device_name, p->exec->runtime->info.name, sizeof totals->device_name);
  fill_tasks(p, totals->launch_ns, tasks, totals);
  if (p->program_count < node_count + 2) return;
  uint64_t copy_ns = median(p, node_count + 1);
  totals->copy_bytes = copy_bytes;
  if (copy_ns > totals->launch_ns)
    totals->bytes_per_second = (uint64_t)((unsigned __int128)2000000000 * copy_bytes / (copy_ns - totals->launch_ns));
}

/* ---- The slots, and the call ------------------------------------------------------------------------------------- */

/* Holds all other slots, or gives them back. */
static rondo_status hold_others(rondo_exec *exec, const struct slot *own, bool holds) {
  for (uint32_t s = 0; s < exec->slots.count; s++) {
    struct slot *slot = &exec->slots.items[s];
    if (slot == own) continue;
    uint32_t lease = atomic_load_explicit(&slot->lease, memory_order_relaxed);
    if (!holds) {
      slot_give(exec, slot, lease);
      continue;
    }
    if (lease % 2 == 0 && atomic_compare_exchange_strong_explicit(&slot->lease, &lease, lease + 1, memory_order_acquire,
                                                                  memory_order_relaxed))
      continue;
    while (s-- > 0)
      if (&exec->slots.items[s] != own)
        slot_give(exec, &exec->slots.items[s], atomic_load_explicit(&exec->slots.items[s].lease, memory_order_relaxed));
    return status_set(RONDO_BUSY, "rondo_profile: another slot of the exec is held: release it first");
  }
  return RONDO_OK;
}

static bool is_in_flight(const rondo_exec *exec) {
  for (uint32_t s = 0; s < exec->slots.count; s++)
    if (!slot_done(&exec->slots.items[s])) return true;
  return false;
}

/* The execs of a lane share their temporaries: until lane_give no other exec's replay may come between the tasks of
 * this one. */
static rondo_status lane_take(const rondo_exec *exec) {
  struct lane_arena *arena = &exec->runtime->arenas[exec->lane];
  pthread_mutex_lock(&exec->runtime->group->lock);
  rondo_status status = check_not_closing(exec, "rondo_profile");
  if (status == RONDO_OK && arena->is_profiled)
    status = status_set(RONDO_BUSY, "rondo_profile: another thread profiles in lane %u", exec->lane);
  for (const rondo_exec *other = exec->runtime->group->execs; other && status == RONDO_OK; other = other->next) {
    if (other->runtime != exec->runtime || other->lane != exec->lane) continue;
    if (!exec_is_open(other))
      status = status_set(RONDO_BUSY, "rondo_profile: another exec of lane %u is being instantiated: try again later",
                          exec->lane);
    else if (is_in_flight(other))
      status =
          status_set(RONDO_BUSY, "rondo_profile: another exec of lane %u is in flight: try again later", exec->lane);
  }
  if (status == RONDO_OK) arena->is_profiled = true;
  pthread_mutex_unlock(&exec->runtime->group->lock);
  return status;
}

static void lane_give(const rondo_exec *exec) {
  pthread_mutex_lock(&exec->runtime->group->lock);
  exec->runtime->arenas[exec->lane].is_profiled = false;
  pthread_mutex_unlock(&exec->runtime->group->lock);
}

static rondo_status measure(struct profile *p, const rondo_profile_options *options, uint64_t copy_bytes) {
  rondo_status status = take_large(p, copy_bytes);
  if (status == RONDO_OK) status = take_all(p);
  if (status == RONDO_OK) {
    pthread_mutex_lock(&p->exec->runtime->group->lock); /* a binding changes the same addresses */
    program_address(p->exec, p->slot);
    pthread_mutex_unlock(&p->exec->runtime->group->lock);
    status = programs_create(p);
  }
  return status == RONDO_OK ? run_passes(p, options) : status;
}

static rondo_status check(rondo_slot handle, const rondo_profile_options *options, const rondo_task_profile *tasks,
                          uint32_t task_count, const rondo_profile_totals *totals, struct slot **slot) {
  static const char function[] = "rondo_profile";
  rondo_status status = slot_check(handle, function, slot);
  if (status == RONDO_OK) status = runtime_check_outside(handle.exec->runtime, function);
  if (status != RONDO_OK) return status;
  if ((!tasks && task_count) || !totals)
    return status_set(RONDO_INVALID_ARGUMENT, "%s: the %s NULL", function, totals ? "tasks are" : "totals are");
  if (task_count != handle.exec->program.node_count)
    return status_set(RONDO_INVALID_ARGUMENT, "%s: room for %u task%s, expected %u, the node_count of rondo_exec_info",
                      function, task_count, PLURAL(task_count), handle.exec->program.node_count);
  const char *waiting_task = program_waiting_task(handle.exec);
  if (waiting_task)
    return status_set(RONDO_UNSUPPORTED, "%s: task '%s' waits for other ranks, and a pass launches each task alone",
                      function, waiting_task);
  if (options && (options->copy_bytes % 4 || options->copy_bytes / 4 > (uint64_t)RONDO_MAX_ELEMENTS))
    return status_set(RONDO_INVALID_ARGUMENT,
                      "%s: copy_bytes is %" PRIu64 ", expected a multiple of 4 and at most 4 times 2^31", function,
                      options->copy_bytes);
  return slot_ready(handle, function, slot);
}

static rondo_status profile(struct profile *p, const rondo_profile_options *options, rondo_task_profile *tasks,
                            rondo_profile_totals *totals) {
  rondo_status status = hold_others(p->exec, p->slot, true);
  if (status != RONDO_OK) return status;
  uint64_t copy_bytes = options && options->copy_bytes ? options->copy_bytes : copy_bytes_wanted;
  p->program_count = p->exec->program.node_count + 1;
  status = measure(p, options, copy_bytes);
  char cause[512] = ""; /* the calls below may fail too, with a text of their own */
  if (status == RONDO_OK)
    fill_all(p, copy_bytes, tasks, totals);
  else
    snprintf(cause, sizeof cause, "%s", rondo_error_text());
  give_all(p);
  hold_others(p->exec, p->slot, false);
  return status == RONDO_OK ? status : status_set(status, "rondo_profile: %s", cause);
}

rondo_status rondo_profile(rondo_slot handle, const rondo_profile_options *options, rondo_task_profile *tasks,
                           uint32_t task_count, rondo_profile_totals *totals) {
  struct profile p = {.exec = handle.exec, .pass_count = options && options->passes ? options->passes : PASSES};
  rondo_status status = check(handle, options, tasks, task_count, totals, &p.slot);
  if (status == RONDO_OK) status = lane_take(p.exec);
  if (status != RONDO_OK) return status;
  status = profile(&p, options, tasks, totals);
  lane_give(p.exec);
  return status;
}
