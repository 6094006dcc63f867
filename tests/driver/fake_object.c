/* fake_object.c - handles that know when they ended, and the list of violations. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

/* A handle: a byte that no address of user space has at its top, kind, generation, index. */
enum { INDEX_BITS = 24, GENERATION_BITS = 24, KIND_SHIFT = INDEX_BITS + GENERATION_BITS, TAG = 0xfa, TAG_SHIFT = 56 };

struct object {
  enum kind kind;
  uint32_t generation;
  void *body; /* NULL: not live */
};

static struct object *objects;
static uint32_t object_count, object_room;
static uint32_t generation = 1; /* goes up with every reset */

static const char *const kind_names[KIND_COUNT] = {[CONTEXT] = "context",
                                                   [LIBRARY] = "library",
                                                   [KERNEL] = "kernel",
                                                   [FUNCTION] = "function",
                                                   [STREAM] = "stream",
                                                   [GRAPH] = "graph",
                                                   [NODE] = "node",
                                                   [EXEC] = "executable graph",
                                                   [EVENT] = "event",
                                                   [GREEN] = "green context",
                                                   [DESCRIPTION] = "description of resources",
                                                   [CONDITION] = "conditional handle"};

void violation(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  size_t used = strlen(fake.violations);
  vsnprintf(fake.violations + used, sizeof fake.violations - used, format, arguments);
  va_end(arguments);
  used = strlen(fake.violations);
  snprintf(fake.violations + used, sizeof fake.violations - used, "\n");
  fake.violation_count++;
}

static void *handle_of(const struct object *object) {
  uint64_t index = (uint64_t)(object - objects);
  return (void *)(uintptr_t)((uint64_t)TAG << TAG_SHIFT | (uint64_t)object->kind << KIND_SHIFT |
                             (uint64_t)object->generation << INDEX_BITS | index);
}

void *object_create(enum kind kind, void *body) {
  /* An index is not used again before reset, and then with another generation: a dead handle stays dead. */
  if (object_count == object_room) {
    object_room = object_room ? 2 * object_room : 256;
    objects = realloc(objects, object_room * sizeof *objects);
    if (!objects) abort();
  }
  struct object *object = &objects[object_count++];
  *object = (struct object){.kind = kind, .generation = generation, .body = body};
  return handle_of(object);
}

static struct object *object_find(const void *handle, enum kind kind, const char *function) {
  uint64_t bits = (uintptr_t)handle, index = bits & ((1u << INDEX_BITS) - 1);
  if (bits >> TAG_SHIFT != TAG || index >= object_count || (bits >> KIND_SHIFT & 0xff) != (uint64_t)kind) {
    violation("%s: %p is no %s", function, handle, kind_names[kind]);
    return NULL;
  }
  if (handle_of(&objects[index]) != handle || !objects[index].body) {
    violation("%s: %s %u has ended", function, kind_names[kind], (unsigned)index);
    return NULL;
  }
  return &objects[index];
}

void *object_body(const void *handle, enum kind kind, const char *function) {
  struct object *object = object_find(handle, kind, function);
  return object ? object->body : NULL;
}

void object_end(const void *handle) { objects[(uintptr_t)handle & ((1u << INDEX_BITS) - 1)].body = NULL; }

uint32_t objects_live(char *text, size_t bytes) {
  uint32_t counts[KIND_COUNT] = {0}, live = 0;
  for (uint32_t i = 0; i < object_count; i++)
    if (objects[i].body) counts[objects[i].kind]++;
  /* Nodes, conditional handles, kernels and functions live and die with graphs and libraries. */
  static const enum kind owned[] = {CONTEXT, LIBRARY, STREAM, GRAPH, EXEC, EVENT, GREEN};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) {
    if (!counts[owned[i]]) continue;
    size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%u %s ", counts[owned[i]], kind_names[owned[i]]);
    live += counts[owned[i]];
  }
  return live;
}

static void body_free(const struct object *object) {
  if (object->kind == GRAPH && !((struct graph *)object->body)->is_child) graph_free(object->body);
  if (object->kind == EXEC) exec_free(object->body);
  if (object->kind == EVENT || object->kind == GREEN || object->kind == DESCRIPTION) free(object->body);
}

void objects_reset(void) {
  for (uint32_t i = 0; i < object_count; i++)
    if (objects[i].body) body_free(&objects[i]);
  /* Streams, libraries and kernels are in lists of their own files. */
  free(objects);
  objects = NULL;
  object_count = object_room = 0;
  generation++;
}
