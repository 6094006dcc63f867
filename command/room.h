/* room.h - memory that a command takes for itself, if the machine has it. */
#ifndef RONDO_COMMAND_ROOM_H
#define RONDO_COMMAND_ROOM_H

#include <stdint.h>

/* Zeros, to be freed. Ends the program with a sentence, which `what` begins, where there is not so much. */
void *room_take(uint64_t bytes, const char *what);

#endif
