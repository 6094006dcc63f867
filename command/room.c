/* room.c - allocates memory after a check (room.h). Without the check Linux grants memory that the machine does not
 * have, and kills the process when it writes there. */
#include "room.h"

#include <inttypes.h>
#include <stdlib.h>

#include "../runtime/spare_memory.h"
#include "command.h"

void *room_take(uint64_t bytes, const char *what) {
  if (spare_memory_check(bytes, what) != RONDO_OK) exit(command_failed("%s", rondo_error_text()));
  void *memory = calloc(1, bytes ? bytes : 1);
  if (!memory) exit(command_failed("%s: no memory for %" PRIu64 " bytes", what, bytes));
  return memory;
}
