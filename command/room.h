/* room.h - memory for a command's own data, if the machine has enough. */
#pragma once

#include <stdint.h>

/* Returns zeros, for free(). If there is not enough memory, it ends the program with a sentence that begins with
 * `what`. */
void *room_take(uint64_t bytes, const char *what);
