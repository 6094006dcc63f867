/* room.h - memory for a command's own data, if the machine has enough. */
#ifndef RONDO_COMMAND_ROOM_H
#define RONDO_COMMAND_ROOM_H

#include <stdint.h>

/* Returns zeros, for free(). If there is not enough memory, it ends the program with a sentence that begins with
 * `what`. */
void *room_take(uint64_t bytes, const char *what);

#endif
