/* text.h - printing of names. A name comes from a program or a file and may have any bytes. An error text, a report and
 * the command print its characters, and a replacement character for all other bytes. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TEXT_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Bytes of the UTF-8 character at the beginning of a text; 0 where there is none that is printed: control codes, line
 * ends, what is no UTF-8 and what XML has not. That is one byte to be replaced. */
uint32_t text_character_bytes(const char *text);

/* Copies `from` with replacements: all whole characters that fit into `bytes` together with a zero at the end. `from`
 * and `to` do not overlap. */
void text_print(char *to, size_t bytes, const char *from);

/* The same to a file, with a backslash before each of `escaped`: "" for people, "\"\\" within a string of JSON. */
void text_write(FILE *file, const char *text, const char *escaped);
