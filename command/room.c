/* room.c - memory that a command takes for itself, if the machine has it: Linux grants what it has not, and kills
 * whoever touches it. */
#include "room.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

static const uint64_t no_limit = UINT64_MAX;

/* The number in a file, behind a word at a line's beginning if there is one; no_limit: the file says none. */
static uint64_t number_in(const char *path, const char *word) {
  char line[256];
  uint64_t number = no_limit;
  FILE *file = fopen(path, "r");
  if (!file) return number;
  while (number == no_limit && fgets(line, sizeof line, file)) {
    const char *at = line + strlen(word);
    char *end;
    if (strncmp(line, word, strlen(word)) != 0) continue;
    uint64_t read = strtoull(at, &end, 10);
    if (end != at) number = read;
  }
  fclose(file);
  return number;
}

/* Of the machine, and of the group that holds the process where it is a container's. */
static uint64_t available_bytes(void) {
  const uint64_t kib = number_in("/proc/meminfo", "MemAvailable:");
  const uint64_t most = number_in("/sys/fs/cgroup/memory.max", ""),
                 used = number_in("/sys/fs/cgroup/memory.current", "");
  const uint64_t machine = kib < no_limit / 1024 ? kib * 1024 : no_limit;
  if (most == no_limit || used == no_limit) return machine;
  const uint64_t group = most > used ? most - used : 0;
  return group < machine ? group : machine;
}

void room_require(uint64_t bytes, const char *what) {
  const uint64_t available = available_bytes();
  if (bytes > available)
    exit(command_failed("%s: %" PRIu64 " bytes are more than the %" PRIu64 " that this machine has left", what, bytes,
                        available));
}

void *room_take(uint64_t bytes, const char *what) {
  room_require(bytes, what);
  void *memory = calloc(1, bytes ? bytes : 1);
  if (!memory) exit(command_failed("%s: no memory for %" PRIu64 " bytes", what, bytes));
  return memory;
}
