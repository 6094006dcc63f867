/* utf8.h - recognises UTF-8, also in text that arrives in pieces cut anywhere. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum utf8_state {
  UTF8_WHOLE,  /* a character */
  UTF8_CUT,    /* all bytes may be the beginning of a character */
  UTF8_INVALID /* these bytes are not a character: the longest sequence that could begin one */
};

/* The sequence at the beginning of at least one byte. Its length is 1 to 4. */
struct utf8_sequence {
  enum utf8_state state;
  uint32_t length;
};
struct utf8_sequence utf8_at(const char *bytes, size_t count);
/* The code point of a whole character; and the bytes of a code point, whose number it returns. */
uint32_t utf8_code(const char *bytes, uint32_t length);
size_t utf8_put(uint32_t code, char bytes[4]);

/* A stream of text, by default ({0}) to a terminal. A character whose bytes arrive in pieces is held until it is whole.
 * Of the control codes only newline and tab pass to a terminal. Others are commands for it: ESC, carriage return, and
 * U+0080 to U+009F, which stand for ESC and a letter. */
struct utf8_stream {
  char held[4];
  uint32_t count;
  bool controls_pass; /* the text is not for a terminal */
};
/* Writes whole characters, and U+FFFD for bytes that are not UTF-8 and for each control code that does not pass.
 * Returns the bytes written to out, at most 3 * (count + 1). */
size_t utf8_pass(struct utf8_stream *stream, const char *bytes, size_t count, char *out);
/* Ends the stream: writes U+FFFD for held bytes, at most 3 bytes. */
size_t utf8_end(struct utf8_stream *stream, char *out);
