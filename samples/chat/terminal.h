/* terminal.h - input from a pipe or a file, and Ctrl-C. Each Ctrl-C ends one operation. editor.h is for input typed at
 * a terminal. */
#pragma once

#include <stdbool.h>

#include "line.h"

/* From now on Ctrl-C does not end the program. If it is ignored, as after nohup, it stays ignored. */
void terminal_catch_interrupts(void);
/* Was there a Ctrl-C? */
bool terminal_interrupted(void);
void terminal_forget_interrupt(void);

/* Waits for standard input, or for a signal: Ctrl-C, or another one whose handler called terminal_signal. */
enum terminal_event { TERMINAL_INPUT, TERMINAL_INTERRUPT, TERMINAL_SIGNAL };
enum terminal_event terminal_wait(void);
/* Called by a signal handler. It ends the wait in progress, or else the next wait. */
void terminal_signal(void);

/* Reads the next line of standard input into *line, without its end. False at the end of the input, or after Ctrl-C. */
bool terminal_line(struct line *line);
