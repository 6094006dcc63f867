/* editor.h - messages typed at a terminal: libedit's editing, with a history for the program's life. Text that is
 * pasted at once is one message, with all its lines, and a line may have any length: the terminal is never in the mode
 * in which the kernel ends a line at 4095 bytes, not even while an answer is printed. */
#ifndef EDITOR_H
#define EDITOR_H

#include <stdbool.h>

#include "line.h"

/* Takes the terminal until the program ends, by a signal too. false: standard input is none, or one that cannot be
 * written to. */
bool editor_open(void);
/* The next message, as terminal_line. */
bool editor_line(struct line *line);

#endif
