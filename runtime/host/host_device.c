/* host_device.c - the host backend: the same execs, slots and byte offsets as on a GPU. "Device" memory comes from the
 * allocator, and a team of threads takes the place of each lane's stream. Tasks run in the plan's order; the team of
 * the lane shares each task. Teams share nothing except the cores, which the system assigns.
 *
 * A device is lost when a task of the user's does not return and a thread gives up waiting for it. Then no team starts
 * another task. An exec is closed when its team has left it, or a second after the loss. Threads that have not ended a
 * second after the device is closed are abandoned. All memory that they may still touch is leaked on purpose: the
 * teams, both slabs, the device, and the host pool with the execs' bookkeeping (close returns false). */
#include "../clock.h"
#include "../lane.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "../fault.h"
#include "../floats.h"
#include "../spare_memory.h"
#include "team.h"

enum { CAUSE_BYTES = 384, SPINS_BEFORE_SLEEP = 4000, DRAIN_POLL_NS = 100 * 1000 };
static const uint64_t second_ns = UINT64_C(1000) * 1000 * 1000, grace_ns = UINT64_C(1000) * 1000 * 1000;

struct device {
  rondo_allocator allocator;
  struct cores cores;  /* of all teams */
  uint32_t team_count; /* that were started */
  struct team teams[RONDO_MAX_LANES];
  /* For threads that wait: for a replay of a lane, for a replay of any lane, for a free slot. */
  struct bell bells[RONDO_MAX_LANES + 2];
  void *device_memory, *pinned_memory;
  uint64_t device_bytes, pinned_bytes; /* as asked of the allocator */
  bool checks_memory;                  /* it may promise more than there is */
  _Atomic uint64_t fault;              /* see fault.h */
  /* The thread that wins `claimed` writes `cause` and `lost_ns`, and then sets `lost`. */
  atomic_bool claimed, lost;
  char cause[CAUSE_BYTES];
  uint64_t lost_ns;
};

struct device_exec {
  struct device *device;
  struct team *team;
  uint64_t *counts; /* both: the first is used */
  _Atomic uint64_t *words;
  struct notice *notice;
  struct repeat repeat;
  bool repeats; /* the replay in flight is a repeat */
  uint32_t node_count;
  const struct device_node *nodes; /* shared by the slots, except the addresses */
  void **shared_data;              /* into which the nodes' calls point */
  void *data[];                    /* the same of this slot */
};

static void ring(struct device *device, uint32_t for_what) { bell_ring(&device->bells[for_what], INT_MAX); }

static void ring_all(struct device *device) {
  for (uint32_t i = 0; i < sizeof device->bells / sizeof *device->bells; i++) ring(device, i);
}

/* ---- Loss -------------------------------------------------------------------------------------------------------- */

static bool is_lost(const struct device *device) { return atomic_load_explicit(&device->lost, memory_order_acquire); }

static rondo_status host_lose(struct device *device, const char *cause) {
  char text[CAUSE_BYTES];
  fault_describe(atomic_load(&device->fault), cause, text, sizeof text);
  if (!atomic_exchange(&device->claimed, true)) {
    snprintf(device->cause, sizeof device->cause, "%s", text);
    device->lost_ns = now_ns();
    atomic_store_explicit(&device->lost, true, memory_order_release);
    ring_all(device);
  }
  return status_set(RONDO_DEVICE_LOST, "%s", text);
}

static rondo_status check_not_lost(const struct device *device, const char *phase) {
  if (!is_lost(device)) return RONDO_OK;
  return status_set(RONDO_DEVICE_LOST, "%s: the device was lost before: %s", phase, device->cause);
}

static rondo_status host_health(struct device *device) { return check_not_lost(device, "device health"); }

/* ---- Open and close ---------------------------------------------------------------------------------------------- */

static void *slab(const rondo_allocator *allocator, uint64_t bytes) {
  return bytes <= SIZE_MAX / 2 ? allocator->allocate(allocator->user, bytes, 256) : NULL;
}

/* An allocator of the program's knows what it has. Of mimalloc's memory the system promises more than there is. */
static rondo_status pools_check(const rondo_options *options) {
  char purpose[160];
  if (options->allocator) return RONDO_OK;
  snprintf(purpose, sizeof purpose,
           "open: pools of %" PRIu64 " (device), %" PRIu64 " (pinned) and %" PRIu64 " (host) bytes",
           options->device_bytes, options->pinned_bytes, options->host_bytes);
  return spare_memory_check(options->device_bytes + options->pinned_bytes + options->host_bytes, purpose);
}

/* A thread that sees the word may close the exec, unless a notice is due. The team outlives its programs. */
static void publish(struct device_exec *exec) {
  struct device *owner = exec->device; /* asked for now: at the end the exec may be gone */
  uint32_t lane = (uint32_t)(exec->team - owner->teams);
  struct notice *notice = exec->notice && exec->notice->is_wanted ? exec->notice : NULL;
  if (notice) notice_expect(notice);
  exec->counts[0]++;
  atomic_store_explicit(&exec->words[0], exec->counts[0], memory_order_release);
  if (notice) notice_send(notice);
  ring(owner, lane);
  ring(owner, FOR_ANY_REPLAY);
}

static void run_task(struct team *team, const struct op_call *call) {
  const struct op *op = call->task->op;
  struct op_step step;
  for (uint32_t i = 0; op->step && op->step(call, i, &step); i++) run_task(team, &step.call);
  if (op->step) return;
  struct team_job job = {call, op->host_items(call->task), 0};
  job.chunks = team_chunks(team, job.items);
  if (job.items > 0) team_run(team, &job);
}

/* Restores the default floating-point state after the user's function. */
static void run_user_work(const struct user_work *work, void *const *data) {
  work->host(work->user, data);
  floats_default();
}

/* On a lost device the exec is not touched after the running task: the thread that gave up may have closed it. False:
 * the device is lost, perhaps since a task gave up its wait for another rank. */
static bool run_nodes(struct team *team, struct device *device, const struct device_exec *exec) {
  for (uint32_t n = 0; n < exec->node_count; n++) {
    const struct device_node *node = &exec->nodes[n];
    struct op_call call = node->call;
    call.data = exec->data + (node->call.data - exec->shared_data);
    if (node->user_work)
      run_user_work(node->user_work, call.data);
    else
      run_task(team, &call);
    if (atomic_load_explicit(&device->fault, memory_order_relaxed)) host_lose(device, "");
    if (is_lost(device)) return false;
  }
  return true;
}

/* As the kernel that ends a step on a GPU. Returns whether the step was the last. */
static bool end_step(const struct device_exec *exec) {
  const struct repeat *repeat = &exec->repeat;
  struct repeat_control *control = repeat->control;
  const uint32_t step = control->done;
  memcpy(repeat->places + step * repeat->place_bytes, repeat->outputs, repeat->place_bytes);
  const int32_t value = control->until ? *control->until : 0;
  bool is_found = control->until && !control->value_count && value;
  for (uint32_t i = 0; i < control->value_count; i++) is_found |= value == control->values[i];
  const bool is_last = is_found || repeat_is_stopped(control) || step + 1 == control->count;
  repeat_set_done(control, step + 1);
  return is_last;
}

static void run_program(struct team *team, void *owner, void *program) {
  struct device *device = owner;
  struct device_exec *exec = program;
  const uint32_t lane = (uint32_t)(team - device->teams);
  for (bool is_last = false; !is_last;) {
    if (is_lost(device) || !run_nodes(team, device, exec)) return;
    is_last = !exec->repeats || end_step(exec);
    if (!is_last) ring(device, lane);
  }
  publish(exec);
}

static bool host_close(struct device *device, bool is_touched) {
  rondo_allocator allocator = device->allocator;
  uint64_t timeout_ns = is_lost(device) ? grace_ns : RONDO_FOREVER;
  if (!teams_stop(device->teams, device->team_count, &allocator, timeout_ns)) return false;
  if (device->device_memory && !is_touched)
    allocator.release(allocator.user, device->device_memory, device->device_bytes);
  if (device->pinned_memory) allocator.release(allocator.user, device->pinned_memory, device->pinned_bytes);
  allocator.release(allocator.user, device, sizeof *device);
  return true;
}

static uint32_t thread_count_of(const rondo_options *options, const struct cores *cores) {
  uint32_t threads = cores_threads(cores);
  return options->host_threads ? options->host_threads : threads > 64 ? 64 : threads;
}

/* Lanes that ask for threads get them. If they ask for more than there are, as options for a GPU do, each gets its part
 * of the threads. Lanes that do not ask share the rest evenly. Each lane gets at least one. */
static void threads_share(const rondo_lane *lanes, uint32_t lane_count, uint32_t threads, uint32_t *counts) {
  uint64_t asked = 0;
  uint32_t left = threads, sharers = 0;
  for (uint32_t i = 0; i < lane_count; i++) {
    asked += (uint64_t)lanes[i].multiprocessors;
    sharers += lanes[i].multiprocessors == 0;
  }
  for (uint32_t i = 0; i < lane_count; i++) {
    uint64_t wanted = (uint64_t)lanes[i].multiprocessors;
    counts[i] = (uint32_t)(asked > threads ? wanted * threads / asked : wanted);
    left -= counts[i];
  }
  for (uint32_t i = 0; i < lane_count; i++) {
    if (lanes[i].multiprocessors == 0) {
      counts[i] = (left + sharers - 1) / sharers;
      left -= counts[i];
      sharers--;
    }
    if (counts[i] == 0) counts[i] = 1;
  }
}

static rondo_status teams_start(struct device *device, const rondo_options *options, struct device_info *info) {
  static const rondo_lane whole;
  uint32_t counts[RONDO_MAX_LANES];
  threads_share(options->lane_count ? options->lanes : &whole, info->lane_count,
                thread_count_of(options, &device->cores), counts);
  for (uint32_t i = 0; i < info->lane_count; i++) {
    rondo_status status = team_start(&device->teams[i], &device->allocator, &device->cores, counts[i],
                                     options->wait_mode, run_program, device);
    if (status != RONDO_OK) return status;
    device->team_count++;
    info->lanes[i].chip.multiprocessors = (int32_t)counts[i];
    info->lanes[i].priority = 0; /* the system's scheduler knows none of ours */
    info->chip.multiprocessors += (int32_t)counts[i];
  }
  return RONDO_OK;
}

static void name_device(const struct device *device, const rondo_options *options, struct device_info *info) {
  int32_t threads = info->chip.multiprocessors;
  int used = snprintf(info->name, sizeof info->name, "host, %d thread%s", threads, threads == 1 ? "" : "s");
  if (!options->host_threads && cores_threads(&device->cores) < device->cores.count)
    snprintf(info->name + used, sizeof info->name - (size_t)used, ": a quota of %u of %u cores", device->cores.quota,
             device->cores.count);
}

/* What the host's kernels are compiled for: `instructions` in build.ninja. All else runs without. */
static rondo_status processor_check(void) {
  const char *lacking = !__builtin_cpu_supports("avx2")   ? "AVX2"
                        : !__builtin_cpu_supports("fma")  ? "FMA"
                        : !__builtin_cpu_supports("bmi2") ? "BMI2"
                                                          : NULL;
  if (!lacking) return RONDO_OK;
  return status_set(RONDO_UNSUPPORTED,
                    "open: the host backend needs a processor with AVX2, FMA and BMI2 (x86-64-v3): this one has no %s",
                    lacking);
}

static rondo_status host_open(const rondo_options *options, const rondo_allocator *allocator,
                              struct device **device_out, struct device_info *info, void **device_memory,
                              void **pinned_memory) {
  rondo_status status = processor_check();
  if (status == RONDO_OK) status = pools_check(options);
  if (status != RONDO_OK) return status;
  struct device *device = allocator->allocate(allocator->user, sizeof *device, 256);
  if (!device) return status_set(RONDO_OUT_OF_MEMORY, "open: the allocator has no %zu bytes", sizeof *device);
  memset(device, 0, sizeof *device);
  device->allocator = *allocator;
  device->checks_memory = !options->allocator;
  cores_find(&device->cores);
  device->device_bytes = options->device_bytes ? options->device_bytes : 1;
  device->pinned_bytes = options->pinned_bytes ? options->pinned_bytes : 1;
  device->device_memory = slab(allocator, device->device_bytes);
  device->pinned_memory = slab(allocator, device->pinned_bytes);
  if (!device->device_memory || !device->pinned_memory)
    status = status_set(RONDO_OUT_OF_MEMORY, "open: the allocator has no %" PRIu64 " bytes for the %s pool",
                        device->device_memory ? options->pinned_bytes : options->device_bytes,
                        device->device_memory ? "pinned" : "device");
  *info = (struct device_info){.fault = &device->fault};
  lanes_describe(options, info);
  if (status == RONDO_OK) status = teams_start(device, options, info);
  if (status != RONDO_OK) {
    host_close(device, false);
    return status;
  }
  name_device(device, options, info);
  snprintf(info->reason, sizeof info->reason, "host: asked for");
  *device_out = device;
  *device_memory = device->device_memory;
  *pinned_memory = device->pinned_memory;
  return RONDO_OK;
}

/* ---- Memory and waiting ------------------------------------------------------------------------------------------ */

/* Replays that are launched meanwhile are not waited for. */
static rondo_status wait_for_lane(struct device *device, uint32_t lane, const char *phase) {
  const struct team *team = &device->teams[lane];
  uint64_t pushed = atomic_load(&team->queue_tail);
  for (uint32_t spins = 0; !team_has_finished(team, pushed); spins += spins < SPINS_BEFORE_SLEEP) {
    if (is_lost(device)) break;
    if (spins == SPINS_BEFORE_SLEEP) nanosleep(&(struct timespec){.tv_nsec = DRAIN_POLL_NS}, NULL);
  }
  return check_not_lost(device, phase);
}

static rondo_status host_drain(struct device *device, uint32_t lane) { return wait_for_lane(device, lane, "drain"); }

static void copy_rows(unsigned char *there, unsigned char *here, const struct device_rows *rows, bool is_upload) {
  for (uint64_t k = 0; k < rows->count[2]; k++)
    for (uint64_t j = 0; j < rows->count[1]; j++)
      for (uint64_t i = 0; i < rows->count[0]; i++, here += rows->bytes) {
        unsigned char *row = there + k * rows->pitch_bytes[2] + j * rows->pitch_bytes[1] + i * rows->pitch_bytes[0];
        memcpy(is_upload ? row : here, is_upload ? here : row, rows->bytes);
      }
}

static rondo_status host_upload(struct device *device, uint32_t lane, const struct device_uploads *uploads) {
  rondo_status status = wait_for_lane(device, lane, "upload");
  for (uint32_t i = 0; i < uploads->count && status == RONDO_OK; i++) {
    const struct device_upload upload = uploads->at(uploads, i);
    if (upload.rows.bytes) copy_rows(upload.destination, (unsigned char *)(uintptr_t)upload.source, &upload.rows, true);
  }
  return status;
}

static rondo_status host_download(struct device *device, uint32_t lane, void *destination, const void *source,
                                  struct device_rows rows) {
  rondo_status status = wait_for_lane(device, lane, "download");
  if (status == RONDO_OK && rows.bytes) copy_rows((unsigned char *)(uintptr_t)source, destination, &rows, false);
  return status;
}

static rondo_status host_zero(struct device *device, uint32_t lane, void *destination, uint64_t bytes) {
  rondo_status status = wait_for_lane(device, lane, "zero");
  if (status == RONDO_OK) memset(destination, 0, bytes);
  return status;
}

static rondo_status host_settle(struct device *device, void *memory, uint64_t bytes) {
  return spare_memory_settle(memory, bytes, device->checks_memory, "the host backend's pools");
}

static void host_memory_give(struct device *device, const struct device_memory *memory) {
  const struct {
    void *memory;
    uint64_t bytes;
  } parts[] = {{memory->device, memory->device_bytes},
               {memory->pinned, memory->pinned_bytes},
               {memory->host, memory->host_bytes}};
  for (int i = 0; i < 3 && !is_lost(device); i++)
    if (parts[i].memory) device->allocator.release(device->allocator.user, parts[i].memory, parts[i].bytes);
}

static rondo_status host_memory_take(struct device *device, struct device_memory *memory) {
  const struct {
    void **memory;
    uint64_t bytes;
  } parts[] = {{&memory->device, memory->device_bytes},
               {&memory->pinned, memory->pinned_bytes},
               {&memory->host, memory->host_bytes}};
  memory->device = memory->pinned = memory->host = NULL;
  for (int i = 0; i < 3; i++) {
    if (!parts[i].bytes) continue;
    *parts[i].memory = slab(&device->allocator, parts[i].bytes);
    rondo_status status =
        *parts[i].memory ? host_settle(device, *parts[i].memory, parts[i].bytes)
                         : status_set(RONDO_OUT_OF_MEMORY, "the allocator has no %" PRIu64 " bytes", parts[i].bytes);
    if (status == RONDO_OK) continue;
    host_memory_give(device, memory);
    memory->device = memory->pinned = memory->host = NULL;
    return status;
  }
  return RONDO_OK;
}

/* In whichever lane: two lanes that wait for each other would wait for themselves. */
static bool host_in_callback(struct device *device) {
  for (uint32_t i = 0; i < device->team_count; i++)
    if (team_is_mine(&device->teams[i])) return true;
  return false;
}

/* ---- Execs ------------------------------------------------------------------------------------------------------- */

static struct device_exec_bytes host_exec_bytes(const struct device_program *program) {
  return (struct device_exec_bytes){.slot = sizeof(struct device_exec) + program->operand_count * sizeof(void *)};
}

static rondo_status host_exec_create(struct device *device, const struct device_program *program,
                                     struct device_exec **exec_out) {
  struct device_exec *exec = program->host_memory;
  *exec = (struct device_exec){.device = device,
                               .team = &device->teams[program->lane],
                               .counts = program->counts,
                               .words = program->words,
                               .notice = program->notice,
                               .repeat = program->repeat,
                               .node_count = program->node_count,
                               .nodes = program->nodes,
                               .shared_data = program->data};
  if (program->operand_count) memcpy(exec->data, program->data, program->operand_count * sizeof(void *));
  for (uint32_t n = 0; n < program->node_count; n++) {
    const struct user_work *work = program->nodes[n].user_work;
    if (!work || work->host) continue;
    return status_set(RONDO_UNSUPPORTED,
                      "instantiate: task '%s' %s, and this is the host backend: %sopen the runtime with "
                      "RONDO_BACKEND_CUDA",
                      program->nodes[n].call.task->name,
                      work->called_library ? work->called_library->why_gpu : "has no host function",
                      work->called_library ? "" : "give it one, or ");
  }
  *exec_out = exec;
  return RONDO_OK;
}

static rondo_status host_exec_rebind(struct device_exec *exec, const struct device_program *program, uint32_t node) {
  const struct op_call *call = &program->nodes[node].call;
  memcpy(exec->data + (call->data - program->data), call->data, call->task->operand_count * sizeof(void *));
  return RONDO_OK;
}

static rondo_status push(struct device_exec *exec, bool repeats) {
  rondo_status status = check_not_lost(exec->device, "replay");
  exec->repeats = repeats;
  return status == RONDO_OK ? team_push(exec->team, exec) : status;
}

static rondo_status host_exec_launch(struct device_exec *exec, void *const *stream) {
  (void)stream; /* there are no streams */
  return push(exec, false);
}

static rondo_status host_exec_repeat(struct device_exec *exec) { return push(exec, true); }

/* ---- Waiting ----------------------------------------------------------------------------------------------------- */

struct resting {
  const struct device *device;
  bool (*look)(void *subject);
  void *subject;
  bool is_there;
};

static bool rests_no_more(void *argument) {
  struct resting *resting = argument;
  resting->is_there = resting->look(resting->subject);
  return resting->is_there || is_lost(resting->device);
}

/* A timer only where one is asked for: of a virtual machine it may take as long as the rest. */
static bool host_rest(struct device *device, uint32_t for_what, bool (*look)(void *subject), void *subject,
                      uint64_t most_ns) {
  struct resting resting = {device, look, subject, false};
  struct timespec most = {.tv_sec = (time_t)(most_ns / second_ns), .tv_nsec = (long)(most_ns % second_ns)};
  bell_sleep(&device->bells[for_what], rests_no_more, &resting, most_ns == RONDO_FOREVER ? NULL : &most);
  return resting.is_there;
}

static void host_ring(struct device *device) { ring(device, FOR_FREE_SLOT); }

/* On a lost device no thread has waited for the exec's replays. If the team is inside a task that returns, it then
 * leaves the exec. A task that does not return is given a second from the loss, for all execs together. */
static bool host_exec_destroy(struct device_exec *exec) {
  if (!is_lost(exec->device)) return true;
  uint64_t pushed = atomic_load(&exec->team->queue_tail);
  while (!team_has_finished(exec->team, pushed) && now_ns() - exec->device->lost_ns < grace_ns)
    nanosleep(&(struct timespec){.tv_nsec = DRAIN_POLL_NS}, NULL);
  return team_has_finished(exec->team, pushed);
}

static const struct device_rest_ops rest_ops = {.rest = host_rest, .ring = host_ring};

const struct device_ops host_device_ops = {
    .backend = RONDO_BACKEND_HOST,
    .open = host_open,
    .close = host_close,
    .memory = {.upload = host_upload,
               .download = host_download,
               .zero = host_zero,
               .settle = host_settle,
               .take = host_memory_take,
               .give = host_memory_give},
    .exec_bytes = host_exec_bytes,
    .exec_create = host_exec_create,
    .exec_launch = host_exec_launch,
    .exec_repeat = host_exec_repeat,
    .exec_rebind = host_exec_rebind,
    .exec_destroy = host_exec_destroy,
    .rest = &rest_ops,
    .health = host_health,
    .check = check_not_lost,
    .lose = host_lose,
    .drain = host_drain,
    .in_callback = host_in_callback,
};
