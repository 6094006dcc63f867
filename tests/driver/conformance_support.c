/* conformance_support.c - the steps of conformance: verdicts, memory, nodes and replays. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "conformance.h"

/* ---- Verdicts ---------------------------------------------------------------------------------------------------- */

struct verdict verdict;

void fail(const char *format, ...) {
  if (verdict.failed) return; /* what follows the first may follow from it */
  verdict.failed = true;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(verdict.expected, sizeof verdict.expected, format, arguments);
  va_end(arguments);
}

void answer(const char *format, ...) {
  size_t used = strlen(verdict.answers);
  if (used) used += (size_t)snprintf(verdict.answers + used, sizeof verdict.answers - used, ", ");
  if (used >= sizeof verdict.answers) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(verdict.answers + used, sizeof verdict.answers - used, format, arguments);
  va_end(arguments);
}

bool expect(const char *what, cu_result got, int expected) {
  char text[160];
  if ((int)got == expected) return true;
  driver_describe(&driver, got, text, sizeof text);
  fail("expected %d from %s, got %d (%s)", expected, what, (int)got, text);
  return false;
}

bool expect_number(const char *what, uint64_t got, uint64_t expected) {
  if (got == expected) return true;
  fail("expected %s to be %llu, got %llu", what, (unsigned long long)expected, (unsigned long long)got);
  return false;
}

bool is_one_of(cu_result result, const int *list) {
  while (*list != LIST_END && *list != (int)result) list++;
  return *list != LIST_END;
}

bool expect_one_of(const char *what, cu_result got, const int *list) {
  char text[160];
  answer("%s %d", what, (int)got);
  if (is_one_of(got, list)) return true;
  size_t used = 0;
  for (text[0] = '\0'; *list != LIST_END && used < sizeof text; list++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%d", used ? " or " : "", *list);
  fail("expected %s from %s, got %d", text, what, (int)got);
  return false;
}

/* ---- Graphs and memory ------------------------------------------------------------------------------------------- */

cu_address piece(uint32_t index) { return device_memory + (cu_address)index * PIECE_BYTES; }

unsigned char pattern(uint32_t seed, uint32_t index) {
  uint32_t mixed = (seed * 0x9e3779b9u) ^ (index * 0x85ebca6bu);
  return (unsigned char)((mixed ^ mixed >> 15) * 0x2c1b3c6du >> 24);
}

bool upload(uint32_t index, uint32_t seed) {
  for (uint32_t i = 0; i < PIECE_BYTES; i++) host_memory[i] = pattern(seed, i);
  return expect("cuMemcpyHtoDAsync", driver.cuMemcpyHtoDAsync(piece(index), host_memory, PIECE_BYTES, stream), 0) &&
         expect("cuStreamSynchronize", driver.cuStreamSynchronize(stream), 0);
}

bool holds(uint32_t index, uint32_t seed) {
  if (!expect("cuMemcpyDtoHAsync", driver.cuMemcpyDtoHAsync(host_memory, piece(index), PIECE_BYTES, stream), 0) ||
      !expect("cuStreamSynchronize", driver.cuStreamSynchronize(stream), 0))
    return false;
  for (uint32_t i = 0; i < PIECE_BYTES; i++) {
    if (host_memory[i] == pattern(seed, i)) continue;
    fail("expected byte %u of piece %u to be %d, got %d", i, index, pattern(seed, i), host_memory[i]);
    return false;
  }
  return true;
}

struct cu_node_parameters empty_node(void) {
  struct cu_node_parameters parameters;
  memset(&parameters, 0, sizeof parameters);
  parameters.type = CU_NODE_EMPTY;
  return parameters;
}

struct cu_node_parameters kernel_node(struct cu_kernel *kernel, uint32_t threads, void **arguments) {
  struct cu_node_parameters parameters;
  memset(&parameters, 0, sizeof parameters);
  parameters.type = CU_NODE_KERNEL;
  parameters.kernel = (struct cu_kernel_node){
      .kernel = kernel, .context = context, .grid = {1, 1, 1}, .block = {threads, 1, 1}, .parameters = arguments};
  return parameters;
}

const struct cu_edge programmatic_edge = {.from_port = CU_PORT_PROGRAMMATIC, .type = CU_EDGE_PROGRAMMATIC};

struct cu_graph_node *add(struct cu_node_parameters *parameters, const struct after *after) {
  const struct cu_edge edges[2] = {programmatic_edge, programmatic_edge};
  struct cu_graph_node *node = NULL;
  cu_result result =
      driver.cuGraphAddNode(&node, graph, after ? after->nodes : NULL, after && after->programmatic ? edges : NULL,
                            after ? after->count : 0, parameters);
  return expect("cuGraphAddNode", result, CU_SUCCESS) ? node : NULL;
}

struct cu_graph_node *add_empty(const struct after *after) {
  struct cu_node_parameters parameters = empty_node();
  return add(&parameters, after);
}

struct copy_parameters copy_of(uint32_t from, uint32_t to, uint32_t pieces) {
  uint32_t vectors = pieces * PIECE_BYTES / 16;
  return (struct copy_parameters){.src = (const void *)(uintptr_t)piece(from),
                                  .dst = (void *)(uintptr_t)piece(to),
                                  .extent = {1, 1, 1},
                                  .row = vectors,
                                  .total = vectors,
                                  .vector_bytes = 16};
}

struct cu_graph_node *add_copy(uint32_t from, uint32_t to, uint32_t pieces, const struct after *after) {
  struct copy_parameters copy = copy_of(from, to, pieces);
  void *arguments[] = {&copy};
  struct cu_node_parameters parameters = kernel_node(copy_kernel, COPY_THREADS, arguments);
  return add(&parameters, after);
}

cu_result instantiate(void) {
  struct cu_instantiate_parameters parameters = {.flags = CU_INSTANTIATE_UPLOAD, .upload_stream = stream};
  cu_result result = driver.cuGraphInstantiateWithParams(&exec, graph, &parameters);
  if (result != CU_SUCCESS) exec = NULL;
  return result;
}

bool instantiated(void) { return expect("cuGraphInstantiateWithParams", instantiate(), CU_SUCCESS); }

bool launched(void) { return expect("cuGraphLaunch", driver.cuGraphLaunch(exec, stream), CU_SUCCESS); }

bool synchronized(void) { return expect("cuStreamSynchronize", driver.cuStreamSynchronize(stream), CU_SUCCESS); }

size_t node_count(void) {
  size_t count = 0;
  expect("cuGraphGetNodes", driver.cuGraphGetNodes(graph, NULL, &count), CU_SUCCESS);
  return count;
}

int capture_status(void) {
  int status = -1;
  expect("cuStreamGetCaptureInfo", driver.cuStreamGetCaptureInfo(stream, &status, NULL, NULL, NULL, NULL, NULL), 0);
  return status;
}

void on_another_thread(void *(*function)(void *)) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, function, NULL))
    fail("expected a thread, got none");
  else
    pthread_join(thread, NULL);
}
