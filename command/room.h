/* room.h - memory that a command takes for itself, if the machine has it; else the program ends with a sentence. */
#ifndef RONDO_COMMAND_ROOM_H
#define RONDO_COMMAND_ROOM_H

#include <stdint.h>

/* Zeros, to be freed. `what` begins the sentence. */
void *room_take(uint64_t bytes, const char *what);

/* Ends the program unless there is so much. */
void room_require(uint64_t bytes, const char *what);

#endif
