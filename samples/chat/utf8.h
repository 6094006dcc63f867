/* utf8.h - tells which bytes are UTF-8, also of text that arrives in pieces cut anywhere. */
#ifndef UTF8_H
#define UTF8_H

#include <stddef.h>
#include <stdint.h>

enum utf8_state {
  UTF8_WHOLE,  /* a character */
  UTF8_CUT,    /* all that is there could be the beginning of one */
  UTF8_INVALID /* these bytes, as many as could have begun one, are none */
};

/* What begins at bytes, of which there is at least one: its length is 1 to 4. */
struct utf8_sequence {
  enum utf8_state state;
  uint32_t length;
};
struct utf8_sequence utf8_at(const char *bytes, size_t count);
/* The code point of one that is whole; and a code point's bytes, of which it returns how many. */
uint32_t utf8_code(const char *bytes, uint32_t length);
size_t utf8_put(uint32_t code, char bytes[4]);

/* Text on its way to a reader, who may sit at a terminal: a character whose bytes come one after the other waits here
 * until it is whole, and no control code passes but newline and tab, for others steer a terminal: ESC, a carriage
 * return, and what stands for ESC and a letter, U+0080 to U+009F. */
struct utf8_stream {
  char held[4];
  uint32_t count;
};
/* Passes on what is whole, and U+FFFD for what is no UTF-8 and for each control code. Returns the bytes written to out,
 * at most 3 * (count + 1). */
size_t utf8_pass(struct utf8_stream *stream, const char *bytes, size_t count, char *out);
/* The end: U+FFFD for what is still held, at most 3 bytes. */
size_t utf8_end(struct utf8_stream *stream, char *out);

#endif
