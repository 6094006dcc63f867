/* text.h - what a name is printed as. Names come from programs and files, and may be any bytes: whatever prints one, an
 * error text, a report or the command, shows characters, and for all else a replacement character. */
#ifndef RONDO_TEXT_H
#define RONDO_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TEXT_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Bytes of the UTF-8 character at the beginning of a text; 0 where there is none that is printed: control codes, line
 * ends, what is no UTF-8 and what XML has not. That is one byte to be replaced. */
uint32_t text_character_bytes(const char *text);

/* Copies `from` with replacements, as many whole characters as fit in `bytes` with the zero behind them. They do not
 * overlap. */
void text_print(char *to, size_t bytes, const char *from);

/* The same to a file, with a backslash before each of `escaped`: "" for people, "\"\\" within a string of JSON. */
void text_write(FILE *file, const char *text, const char *escaped);

#endif
