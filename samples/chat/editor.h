/* editor.h - messages typed at a terminal, with libedit's editing and a history until the program ends. A pasted text
 * is one message with all its lines. A line may have any length: the terminal is never in canonical mode, in which the
 * kernel cuts lines at 4095 bytes, not even while an answer is printed. */
#pragma once

#include <stdbool.h>

#include "line.h"

/* Sets the terminal's modes until the program ends, also by a signal. False if standard input is not a terminal, or one
 * that cannot be written to. */
bool editor_open(void);
/* Reads the next message, as terminal_line does. */
bool editor_line(struct line *line);
