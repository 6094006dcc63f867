/* seal.h - takes from the calling thread the right to make system calls. */
#pragma once

#include <stdbool.h>

#include "stack.h"

/* The system call that was tried. In memory shared with the parent process, which reads it. */
struct breach {
  long number; /* -1: none */
  char text[1024];
};

/* From here on the calling thread may only end the process; any other system call is noted in *breach and ends it. The
 * threads that exist already keep their rights. False (and errno) if this system does not allow it. */
bool seal(struct breach *breach);

/* Runs function in a child process under the seal. True if it ended well, false if it broke the seal, which is then in
 * *breach, or could not be sealed (*breach is left without one). */
bool survives_seal(void (*function)(void), struct breach *breach);
