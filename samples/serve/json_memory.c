/* json_memory.c - see json_memory.h. Memory is dealt out from blocks, and none is reused: a body's values live until
 * its end. */
#include "json_memory.h"

#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>

enum { BLOCK_BYTES = 1 << 16, ALIGNMENT = 16 };

struct block {
  struct block *before;
  size_t used, room;
  _Alignas(ALIGNMENT) char bytes[];
};

static struct {
  struct block *newest;
  size_t taken, most;
  json_malloc_t take; /* jansson's own */
  json_free_t drop;
  bool is_reading;
  jmp_buf left; /* where reading ends without memory */
} memory;

static bool block_add(size_t bytes) {
  const size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
  struct block *block = malloc(sizeof *block + room);
  if (!block) return false;
  block->before = memory.newest;
  block->used = 0;
  block->room = room;
  memory.newest = block;
  return true;
}

static void *take(size_t bytes) {
  const size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  bool fine = bytes <= memory.most && memory.taken + rounded <= memory.most;
  if (fine && (!memory.newest || rounded > memory.newest->room - memory.newest->used)) fine = block_add(rounded);
  if (!fine && memory.is_reading) longjmp(memory.left, 1);
  if (!fine) return NULL;
  char *taken = memory.newest->bytes + memory.newest->used;
  memory.newest->used += rounded;
  memory.taken += rounded;
  return taken;
}

static void drop(void *taken) { (void)taken; }

void json_memory_begin(size_t most) {
  json_get_alloc_funcs(&memory.take, &memory.drop);
  memory.taken = 0;
  memory.most = most;
  json_set_alloc_funcs(take, drop);
}

void json_memory_end(void) {
  json_set_alloc_funcs(memory.take, memory.drop);
  for (struct block *block = memory.newest; block; block = memory.newest) {
    memory.newest = block->before;
    free(block);
  }
}

json_t *json_memory_read(const char *bytes, size_t count, json_error_t *error, bool *lacks_memory) {
  *lacks_memory = false;
  if (setjmp(memory.left)) {
    memory.is_reading = false;
    *lacks_memory = true;
    return NULL;
  }
  memory.is_reading = true;
  json_t *read = json_loadb(bytes, count, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, error);
  memory.is_reading = false;
  return read;
}
