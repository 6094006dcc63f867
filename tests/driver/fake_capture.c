/* fake_capture.c - stream capture into a graph: what a library enqueues becomes nodes after the nodes before it. */
#include "fake.h"

/* ---- Entry points ------------------------------------------------------------------------------------------------ */

bool capture_forbids(struct stream *stream, const char *function) {
  for (struct stream *other = fake.streams; other; other = other->next) {
    bool hit = stream ? other == stream : pthread_equal(other->capturer, pthread_self()) != 0;
    if (other->capture == CAPTURE_NONE || !hit) continue;
    violation("%s while a stream captures", function);
    other->capture = CAPTURE_INVALIDATED;
    return true;
  }
  return false;
}

static _Thread_local int thread_mode;

cu_result fake_cuThreadExchangeStreamCaptureMode(int *mode) {
  CALL(cuThreadExchangeStreamCaptureMode);
  int before = thread_mode;
  if (*mode < 0 || *mode > CU_CAPTURE_RELAXED) return CU_INVALID_VALUE;
  thread_mode = *mode;
  *mode = before;
  return CU_SUCCESS;
}

bool capture_forbids_waiting(struct stream *stream, const char *function) {
  if (stream && capture_forbids(stream, function)) return true;
  if (thread_mode == CU_CAPTURE_RELAXED) return false;
  if (!fake.settings.captured_elsewhere) return capture_forbids(NULL, function);
  violation("%s breaks a capture of another thread", function);
  return true;
}

cu_result fake_cuStreamBeginCaptureToGraph(struct cu_stream *stream_handle, struct cu_graph *graph_handle,
                                           struct cu_graph_node *const *dependencies, const struct cu_edge *edges,
                                           size_t count, int mode) {
  CALL(cuStreamBeginCaptureToGraph);
  struct stream *stream = object_body(stream_handle, STREAM, "cuStreamBeginCaptureToGraph");
  struct graph *graph = object_body(graph_handle, GRAPH, "cuStreamBeginCaptureToGraph");
  if (!stream || !graph) return CU_INVALID_HANDLE;
  if (edges || mode != CU_CAPTURE_THREAD_LOCAL || count > sizeof stream->frontier / sizeof *stream->frontier) {
    violation("cuStreamBeginCaptureToGraph: edge data, mode %d or %zu dependencies are not what the fake knows", mode,
              count);
    return CU_INVALID_VALUE;
  }
  if (stream->capture != CAPTURE_NONE || stream->first) {
    violation("cuStreamBeginCaptureToGraph: the stream captures, or has work");
    return (cu_result)FAKE_ILLEGAL_STATE;
  }
  for (size_t i = 0; i < count; i++) {
    struct node *node = object_body(dependencies[i], NODE, "cuStreamBeginCaptureToGraph");
    if (!node || node->graph != graph) return CU_INVALID_VALUE;
    stream->frontier[i] = dependencies[i];
  }
  stream->frontier_count = (uint32_t)count;
  stream->graph = graph;
  stream->capture = CU_CAPTURE_ACTIVE;
  stream->capturer = pthread_self();
  return CU_SUCCESS;
}

cu_result fake_cuStreamGetCaptureInfo(struct cu_stream *handle, int *status, uint64_t *id, struct cu_graph **graph,
                                      struct cu_graph_node *const **dependencies, const struct cu_edge **edges,
                                      size_t *count) {
  CALL(cuStreamGetCaptureInfo);
  struct stream *stream = object_body(handle, STREAM, "cuStreamGetCaptureInfo");
  if (!stream) return CU_INVALID_HANDLE;
  *status = stream->capture;
  if (stream->capture != CU_CAPTURE_ACTIVE) return CU_SUCCESS; /* documented: the others are left alone */
  if (id) *id = stream->graph->number;                         /* of all captures into the graph: conformance */
  if (graph) *graph = stream->graph->handle;
  if (dependencies) *dependencies = stream->frontier_count ? (struct cu_graph_node *const *)stream->frontier : NULL;
  if (edges) *edges = NULL;
  if (count) *count = stream->frontier_count;
  return CU_SUCCESS;
}

cu_result fake_cuStreamEndCapture(struct cu_stream *handle, struct cu_graph **graph) {
  ENDING_CALL(cuStreamEndCapture);
  struct stream *stream = object_body(handle, STREAM, "cuStreamEndCapture");
  if (!stream) return CU_INVALID_HANDLE;
  if (stream->capture == CAPTURE_NONE) {
    violation("cuStreamEndCapture: the stream does not capture");
    return (cu_result)FAKE_ILLEGAL_STATE;
  }
  if (!pthread_equal(stream->capturer, pthread_self())) {
    violation("cuStreamEndCapture: another thread began the capture");
    stream->capture = CAPTURE_NONE;
    return (cu_result)908; /* CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD */
  }
  bool invalidated = stream->capture == CAPTURE_INVALIDATED;
  stream->capture = CAPTURE_NONE;
  *graph = invalidated ? NULL : stream->graph->handle;
  if (invalidated) graph_free(stream->graph); /* as the real driver does: conformance */
  return invalidated ? CU_CAPTURE_INVALIDATED : call.later;
}

/* ---- What a library does on the stream --------------------------------------------------------------------------- */

int32_t fake_enqueue(void *handle, const struct fake_work *work, uint32_t count) {
  pthread_mutex_lock(&fake.lock);
  int32_t result = CU_SUCCESS;
  struct stream *stream = object_body(handle, STREAM, "fake_enqueue");
  struct node *before[sizeof stream->frontier / sizeof *stream->frontier];
  if (!stream || count > sizeof before / sizeof *before)
    result = CU_INVALID_VALUE;
  else if (stream->capture != CU_CAPTURE_ACTIVE)
    result = CU_CAPTURE_INVALIDATED; /* outside a capture the tests have no use for it */
  uint32_t before_count = result == CU_SUCCESS ? stream->frontier_count : 0;
  for (uint32_t i = 0; i < before_count; i++) before[i] = object_body(stream->frontier[i], NODE, "fake_enqueue");
  for (uint32_t i = 0; i < count && result == CU_SUCCESS; i++) {
    struct node *node =
        graph_append(stream->graph, &(struct node_work){.type = work[i].type, .work = work[i]}, before, before_count);
    if (work[i].child) {
      node->child = graph_new(true);
      graph_append(node->child, &(struct node_work){.type = work[i].child->type, .work = *work[i].child}, NULL, 0);
    }
    stream->frontier[i] = node->handle;
    stream->frontier_count = count;
  }
  pthread_mutex_unlock(&fake.lock);
  return result;
}

void fake_break_capture(void *handle) {
  pthread_mutex_lock(&fake.lock);
  struct stream *stream = object_body(handle, STREAM, "fake_break_capture");
  if (stream && stream->capture == CU_CAPTURE_ACTIVE) stream->capture = CAPTURE_INVALIDATED;
  pthread_mutex_unlock(&fake.lock);
}
