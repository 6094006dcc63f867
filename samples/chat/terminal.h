/* terminal.h - input while the program runs: lines of a pipe or a file, and Ctrl-C, each of which ends one thing.
 * Input typed at a terminal: editor.h. */
#ifndef TERMINAL_H
#define TERMINAL_H

#include <stdbool.h>

#include "line.h"

/* From now on Ctrl-C does not end the program by itself; where it is ignored, as behind nohup, it stays so. */
void terminal_catch_interrupts(void);
/* Was there one? */
bool terminal_interrupted(void);
void terminal_forget_interrupt(void);

/* Waits for standard input, of which a signal may be the end: Ctrl-C, or another one that a handler has seen to. */
enum terminal_event { TERMINAL_INPUT, TERMINAL_INTERRUPT, TERMINAL_SIGNAL };
enum terminal_event terminal_wait(void);
/* A handler has seen to a signal: the wait ends, or, if none is in progress, the next one. */
void terminal_signal(void);

/* The next line of standard input, without its end, in place of what *line had. false: there is no more, or Ctrl-C
 * came. */
bool terminal_line(struct line *line);

#endif
