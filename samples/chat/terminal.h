/* terminal.h - what is typed while the program runs: lines, and Ctrl-C, each of which ends one thing. */
#ifndef TERMINAL_H
#define TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

/* From now on Ctrl-C does not end the program by itself; where it is ignored, as behind nohup, it stays so. */
void terminal_catch_interrupts(void);
/* Was there one? */
bool terminal_interrupted(void);
void terminal_forget_interrupt(void);

/* The next line of standard input, without its end, in memory as getline's, which is freed by the caller. false: there
 * is no more, or Ctrl-C came. */
bool terminal_line(char **line, size_t *capacity);

#endif
