/* fake_stream.c - streams: work in order, and within a graph in any order that its edges allow, drawn at random. The
 * mode says when it runs. After a sticky error nothing runs. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake.h"

static uint64_t random_next(void) { /* splitmix64 */
  uint64_t z = fake.random += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

static void node_run(const struct node_work *work) {
  if (work->is_off && *work->is_off) return;
  if (!work->code) {
    if (work->work.function) work->work.function(work->work.arguments);
    return;
  }
  void *parameters[KERNEL_PARAMETERS];
  for (uint32_t i = 0; i < work->code->parameter_count; i++)
    parameters[i] = (void *)(uintptr_t)(work->values + kernel_parameter_offset(work->code, i));
  struct fake_launch launch = {
      .shared_bytes = work->shared_bytes, .multiprocessors = work->multiprocessors, .parameters = parameters};
  memcpy(launch.grid, work->grid, sizeof launch.grid);
  memcpy(launch.block, work->block, sizeof launch.block);
  work->code->function(&launch);
}

enum { HAS_RUN = 0 }; /* the priority of a node that has run */

static uint64_t priority_next(void) { return random_next() | 1; }

static bool is_ready(const struct item *item, uint32_t n) {
  const struct exec_node *node = &item->exec->nodes[n];
  if (item->priority[n] == HAS_RUN) return false;
  for (uint32_t i = 0; i < node->dependency_count; i++)
    if (item->priority[node->dependencies[i]] != HAS_RUN) return false;
  const struct kernel_code *code = node->work.code;
  return !code || !code->has_come || code->has_come(node->work.values);
}

/* Random priorities, drawn once for a launch, give every legal order a chance, and some nodes a long wait. */
static uint32_t choose_node(const struct item *item) {
  uint32_t best = UINT32_MAX;
  for (uint32_t n = 0; n < item->exec->node_count; n++)
    if (is_ready(item, n) && (best == UINT32_MAX || item->priority[n] > item->priority[best])) best = n;
  return best;
}

struct item *launch_item_new(struct exec *exec) {
  struct item *item = calloc(1, sizeof *item);
  uint64_t *priority = calloc(exec->node_count + 1u, sizeof *priority);
  uint32_t *order = calloc(exec->node_count + 1u, sizeof *order);
  if (!item || !priority || !order) abort();
  *item = (struct item){.kind = ITEM_LAUNCH, .exec = exec, .priority = priority, .order = order};
  return item;
}

void item_free(struct item *item) {
  if (!item) return;
  free(item->priority);
  free(item->order);
  free(item);
}

static void item_end(struct stream *stream) {
  struct item *item = stream->first;
  stream->first = item->next;
  if (!stream->first) stream->last = NULL;
  if (item->event) item->event->items--;
  if (item->kind == ITEM_RECORD && item->event) item->event->done = item->record;
  if (item->kind == ITEM_LAUNCH) {
    item->exec->in_flight--;
    fake.last_order_count = 0;
    for (uint32_t i = 0; i < item->done_count && i < sizeof fake.last_order / sizeof *fake.last_order; i++)
      fake.last_order[fake.last_order_count++] = item->order[i];
    if (!item->exec->spare) {
      item->exec->spare = item;
      return;
    }
  }
  item_free(item);
}

static _Thread_local struct gpu *running;

struct gpu *gpu_running(void) {
  return running;
}

static void node_end(struct item *item, uint32_t n) {
  const struct exec_node *node = &item->exec->nodes[n];
  item->priority[n] = HAS_RUN;
  item->order[item->done_count++] = n;
  if (node->work.condition && !node->work.condition->value)
    for (uint32_t i = node->first; i <= node->last; i++) {
      item->priority[i] = HAS_RUN;
      item->order[item->done_count++] = i;
    }
  if (!node->loop || !node->loop->value) return;
  item->done_count -= n - node->first + 1;
  for (uint32_t i = node->first; i <= n; i++) item->priority[i] = priority_next();
}

/* Only now: the launch before may have been of the same graph. */
static void assign_conditions(struct item *item) {
  if (item->has_begun) return;
  item->has_begun = true;
  for (uint32_t n = 0; n < item->exec->node_count; n++) {
    struct condition *condition = item->exec->nodes[n].work.condition;
    if (condition && condition->is_assigned) condition->value = condition->initial;
  }
}

/* Runs one step of the stream's first item, without the lock. */
static void step(struct stream *stream) {
  struct item *item = stream->first;
  uint32_t n = UINT32_MAX;
  if (item->kind == ITEM_LAUNCH && item->done_count < item->exec->node_count) {
    if (fake.lose_armed && fake.lose_after-- == 0) {
      fake.lose_armed = false;
      gpu_lose(stream->gpu, fake.lose_result);
      return;
    }
    assign_conditions(item);
    n = choose_node(item);
    if (n == UINT32_MAX) return;
  }
  stream->running = true;
  running = stream->gpu;
  pthread_mutex_unlock(&fake.lock);
  if (n != UINT32_MAX)
    node_run(&item->exec->nodes[n].work);
  else if (item->kind == ITEM_COPY)
    memcpy(item->destination, item->source, item->bytes);
  else if (item->kind == ITEM_FILL)
    memset(item->destination, item->value, item->bytes);
  else if (item->kind == ITEM_CALL)
    item->function(item->destination);
  pthread_mutex_lock(&fake.lock);
  stream->running = false;
  if (n != UINT32_MAX) node_end(item, n);
  if (item->kind != ITEM_LAUNCH || item->done_count == item->exec->node_count) item_end(stream);
  pthread_cond_broadcast(&fake.changed);
}

static bool waits_for_event(const struct stream *stream) {
  const struct item *item = stream->first;
  return item && item->kind == ITEM_WAIT && item->event->done < item->record;
}

/* A kernel may wait for the host, which can tell it at any time. */
static bool may_wait(const struct stream *stream) {
  const struct item *item = stream->first;
  return item && item->kind == ITEM_LAUNCH && item->exec->waits;
}

/* A kernel waits for the host, and nothing else of the graph can run. */
static bool is_parked(const struct stream *stream) {
  const struct item *item = stream->first;
  return may_wait(stream) && item->done_count < item->exec->node_count && !stream->running &&
         choose_node(item) == UINT32_MAX;
}

static bool may_run(const struct stream *stream) {
  return stream->first && !stream->running && !is_parked(stream) && !waits_for_event(stream) &&
         stream->gpu->lost == CU_SUCCESS && fake.settings.mode != FAKE_NEVER;
}

/* ---- The thread of FAKE_THREAD ----------------------------------------------------------------------------------- */

static struct {
  pthread_t thread;
  bool started, stop;
} worker;

/* The host tells nobody of what it writes for a kernel that waits. */
static void wait_for_change(void) {
  enum { LOOK_NS = 20 * 1000, SECOND_NS = 1000 * 1000 * 1000 };
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += LOOK_NS;
  if (until.tv_nsec >= SECOND_NS) until.tv_sec++, until.tv_nsec -= SECOND_NS;
  pthread_cond_timedwait(&fake.changed, &fake.lock, &until);
}

static bool any_may_wait(void) {
  for (const struct stream *stream = fake.streams; stream; stream = stream->next)
    if (may_wait(stream)) return true;
  return false;
}

static void *worker_run(void *unused) {
  (void)unused;
  pthread_mutex_lock(&fake.lock);
  while (!worker.stop) {
    const bool runs = fake.settings.mode == FAKE_THREAD || fake.settings.mode == FAKE_IMMEDIATE;
    struct stream *stream = runs ? fake.streams : NULL;
    while (stream && !may_run(stream)) stream = stream->next;
    if (stream)
      step(stream);
    else if (runs && any_may_wait())
      wait_for_change();
    else
      pthread_cond_wait(&fake.changed, &fake.lock);
  }
  pthread_mutex_unlock(&fake.lock);
  return NULL;
}

void worker_start(void) {
  if (worker.started) return;
  worker.stop = false;
  if (pthread_create(&worker.thread, NULL, worker_run, NULL)) abort();
  worker.started = true;
}

static void worker_stop(void) {
  if (!worker.started) return;
  worker.stop = true;
  pthread_cond_broadcast(&fake.changed);
  pthread_mutex_unlock(&fake.lock);
  pthread_join(worker.thread, NULL);
  pthread_mutex_lock(&fake.lock);
  worker.started = false;
}

/* ---- Work -------------------------------------------------------------------------------------------------------- */

static void run_all(struct stream *stream, bool waits_for_host) {
  while (stream->first && stream->gpu->lost == CU_SUCCESS) {
    struct stream *next = stream; /* what it waits for has to run first */
    while (waits_for_event(next)) next = next->first->from;
    if (is_parked(next) && !waits_for_host) {
      worker_start();
      return;
    }
    if (may_run(next) && fake.settings.mode != FAKE_THREAD)
      step(next);
    else if (may_wait(next))
      wait_for_change();
    else
      pthread_cond_wait(&fake.changed, &fake.lock);
  }
}

/* Lost while the call waited: the caller is told now. */
static cu_result lost_now(struct gpu *gpu) { return gpu_lost_now(gpu, gpu->lost != CU_SUCCESS, NULL); }

cu_result stream_put(struct stream *stream, struct item *item) {
  item->next = NULL;
  *(stream->last ? &stream->last->next : &stream->first) = item;
  stream->last = item;
  pthread_cond_broadcast(&fake.changed);
  if (fake.settings.mode == FAKE_IMMEDIATE) run_all(stream, false);
  return CU_SUCCESS; /* what goes wrong on the device is told by the next call */
}

bool streams_idle(const struct gpu *gpu) {
  for (const struct stream *stream = fake.streams; stream; stream = stream->next)
    if (stream->gpu == gpu && stream->first && gpu->lost == CU_SUCCESS) return false;
  return true;
}

void streams_finish(const struct gpu *gpu) {
  for (struct stream *stream = fake.streams; stream; stream = stream->next)
    if (stream->gpu == gpu) run_all(stream, true);
}

/* A real queue holds some thousand; a launch into a full one waits. */
static bool is_full(const struct stream *stream) {
  uint32_t length = 0;
  for (const struct item *item = stream->first; item; item = item->next) length++;
  return fake.settings.queue_length && length >= fake.settings.queue_length;
}

cu_result fake_cuGraphLaunch(struct cu_graph_exec *exec_handle, struct cu_stream *stream_handle) {
  CALL(cuGraphLaunch);
  struct exec *exec = object_body(exec_handle, EXEC, "cuGraphLaunch");
  struct stream *stream = object_body(stream_handle, STREAM, "cuGraphLaunch");
  if (!exec || !stream) return CU_INVALID_HANDLE;
  if (capture_forbids(stream, "cuGraphLaunch")) return CU_CAPTURE_UNSUPPORTED;
  if (exec->gpu != stream->gpu) violation("cuGraphLaunch: the stream is another device's");
  while (is_full(stream)) pthread_cond_wait(&fake.changed, &fake.lock);
  /* Execs of Rondo's are in flight once at most, and a replay allocates nothing: not here either. */
  struct item *item = exec->spare ? exec->spare : launch_item_new(exec);
  exec->spare = NULL;
  item->done_count = 0;
  stream->launches++;
  item->has_begun = false;
  for (uint32_t n = 0; n < exec->node_count; n++) item->priority[n] = priority_next();
  exec->in_flight++;
  return stream_put(stream, item);
}

/* As documented, nothing is called once the context has an error. */
cu_result fake_cuLaunchHostFunc(struct cu_stream *stream_handle, void (*function)(void *data), void *data) {
  CALL(cuLaunchHostFunc);
  struct stream *stream = object_body(stream_handle, STREAM, "cuLaunchHostFunc");
  if (!stream) return CU_INVALID_HANDLE;
  if (!function) return CU_INVALID_VALUE;
  if (capture_forbids(stream, "cuLaunchHostFunc")) return CU_CAPTURE_UNSUPPORTED;
  struct item *item = calloc(1, sizeof *item);
  if (!item) abort();
  *item = (struct item){.kind = ITEM_CALL, .function = function, .destination = data};
  return stream_put(stream, item);
}

/* ---- Streams ----------------------------------------------------------------------------------------------------- */

struct stream *stream_new(struct gpu *gpu, struct green *green, int priority) {
  /* Documented: clamped. But Rondo should have asked for the range. */
  if (priority > 0 || priority < -5) violation("a stream of priority %d: there is no such", priority);
  struct stream *stream = calloc(1, sizeof *stream);
  if (!stream) abort();
  *stream = (struct stream){.next = fake.streams, .gpu = gpu, .green = green, .handle = object_create(STREAM, stream)};
  fake.streams = stream;
  return stream;
}

cu_result fake_cuStreamCreateWithPriority(struct cu_stream **handle, unsigned flags, int priority) {
  CALL(cuStreamCreateWithPriority);
  if (!context_is_current("cuStreamCreateWithPriority")) return (cu_result)FAKE_INVALID_CONTEXT;
  if (flags != CU_STREAM_NON_BLOCKING)
    violation("cuStreamCreateWithPriority: a blocking stream waits for the legacy default stream");
  if (flags > 1) return CU_INVALID_VALUE;
  *handle = stream_new(gpu_current(), NULL, priority)->handle;
  return CU_SUCCESS;
}

static void stream_free(struct stream *stream) {
  while (stream->running) pthread_cond_wait(&fake.changed, &fake.lock);
  while (stream->first) item_end(stream);
  struct stream **link = &fake.streams;
  while (*link != stream) link = &(*link)->next;
  *link = stream->next;
  object_end(stream->handle);
  free(stream);
}

cu_result fake_cuStreamDestroy(struct cu_stream *handle) {
  ENDING_CALL(cuStreamDestroy);
  struct stream *stream = object_body(handle, STREAM, "cuStreamDestroy");
  if (!stream) return CU_INVALID_HANDLE;
  if (stream->first) violation("cuStreamDestroy while work is in flight");
  if (stream->capture != CAPTURE_NONE) violation("cuStreamDestroy while the stream captures");
  stream_free(stream);
  return call.later;
}

void streams_reset(void) {
  worker_stop();
  while (fake.streams) stream_free(fake.streams);
}

/* A step of the stream or, where it has none to run, of another that has. */
static bool go_on(struct stream *stream) {
  if (!may_run(stream))
    for (stream = fake.streams; stream && !may_run(stream);) stream = stream->next;
  if (stream) step(stream);
  return stream != NULL;
}

cu_result fake_cuStreamQuery(struct cu_stream *handle) {
  CALL(cuStreamQuery);
  struct stream *stream = object_body(handle, STREAM, "cuStreamQuery");
  if (!stream) return CU_INVALID_HANDLE;
  if (capture_forbids_waiting(stream, "cuStreamQuery")) return CU_CAPTURE_UNSUPPORTED;
  bool is_done = !stream->first;
  uint32_t steps = fake.settings.steps_per_query ? fake.settings.steps_per_query : 1;
  while (steps-- && fake.settings.mode != FAKE_THREAD && go_on(stream)) continue;
  if (is_done && stream->gpu->lost == CU_SUCCESS) return CU_SUCCESS;
  return stream->gpu->lost != CU_SUCCESS ? lost_now(stream->gpu) : CU_NOT_READY;
}

/* A real one that fails has waited too: it tells of something that went wrong before. */
cu_result fake_cuStreamSynchronize(struct cu_stream *handle) {
  ENDING_CALL(cuStreamSynchronize);
  struct stream *stream = object_body(handle, STREAM, "cuStreamSynchronize");
  if (!stream) return CU_INVALID_HANDLE;
  if (capture_forbids_waiting(stream, "cuStreamSynchronize")) return CU_CAPTURE_UNSUPPORTED;
  run_all(stream, true);
  return stream->gpu->lost != CU_SUCCESS ? lost_now(stream->gpu) : call.later;
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

static cu_result put_event(struct event *event, struct stream *stream, enum item_kind kind, const char *function) {
  if (stream->capture != CAPTURE_NONE) {
    violation("%s: the fake knows no events of captures", function);
    return CU_CAPTURE_UNSUPPORTED;
  }
  struct item *item = calloc(1, sizeof *item);
  if (!item) abort();
  *item = (struct item){.kind = kind, .event = event, .record = event->recorded, .from = event->stream};
  event->items++;
  return stream_put(stream, item);
}

cu_result fake_cuEventCreate(struct cu_event **handle, unsigned flags) {
  CALL(cuEventCreate);
  if (!context_is_current("cuEventCreate")) return (cu_result)FAKE_INVALID_CONTEXT;
  if (flags != CU_EVENT_DISABLE_TIMING) violation("cuEventCreate: an event that takes the time is slower");
  struct event *event = calloc(1, sizeof *event);
  if (!event) abort();
  event->handle = object_create(EVENT, event);
  *handle = event->handle;
  return CU_SUCCESS;
}

cu_result fake_cuEventDestroy(struct cu_event *handle) {
  ENDING_CALL(cuEventDestroy);
  struct event *event = object_body(handle, EVENT, "cuEventDestroy");
  if (!event) return CU_INVALID_HANDLE;
  if (event->items) {
    /* A real driver keeps it until then; but Rondo is to have waited. */
    violation("cuEventDestroy while streams hold it");
    return CU_INVALID_VALUE;
  }
  object_end(handle);
  free(event);
  return call.later;
}

cu_result fake_cuEventRecord(struct cu_event *event_handle, struct cu_stream *stream_handle) {
  CALL(cuEventRecord);
  struct event *event = object_body(event_handle, EVENT, "cuEventRecord");
  struct stream *stream = object_body(stream_handle, STREAM, "cuEventRecord");
  if (!event || !stream) return CU_INVALID_HANDLE;
  event->recorded++;
  event->stream = stream;
  return put_event(event, stream, ITEM_RECORD, "cuEventRecord");
}

/* As of a stream, some steps come with the question. */
cu_result fake_cuEventQuery(struct cu_event *handle) {
  CALL(cuEventQuery);
  struct event *event = object_body(handle, EVENT, "cuEventQuery");
  if (!event) return CU_INVALID_HANDLE;
  if (capture_forbids_waiting(event->stream, "cuEventQuery")) return CU_CAPTURE_UNSUPPORTED;
  bool is_done = event->done == event->recorded;
  uint32_t steps = fake.settings.steps_per_query ? fake.settings.steps_per_query : 1;
  while (!is_done && steps-- && fake.settings.mode != FAKE_THREAD && go_on(event->stream)) continue;
  struct gpu *gpu = event->stream ? event->stream->gpu : gpu_current();
  if (is_done && gpu->lost == CU_SUCCESS) return CU_SUCCESS;
  return gpu->lost != CU_SUCCESS ? lost_now(gpu) : CU_NOT_READY;
}

/* Of an event that nobody has recorded there is nothing to wait for. */
cu_result fake_cuStreamWaitEvent(struct cu_stream *stream_handle, struct cu_event *event_handle, unsigned flags) {
  CALL(cuStreamWaitEvent);
  struct event *event = object_body(event_handle, EVENT, "cuStreamWaitEvent");
  struct stream *stream = object_body(stream_handle, STREAM, "cuStreamWaitEvent");
  if (!event || !stream) return CU_INVALID_HANDLE;
  if (flags) return CU_INVALID_VALUE;
  return put_event(event, stream, ITEM_WAIT, "cuStreamWaitEvent");
}
