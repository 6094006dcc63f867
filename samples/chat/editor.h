/* editor.h - messages typed at a terminal: libedit's editing, with a history of the program's life. What is pasted at
 * once is one message, whatever lines it has, and no line is too long: the terminal is not in the mode in which the
 * kernel ends a line at 4095 bytes and forgets the rest, not even while an answer is printed. */
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
