/* line.h - a message that arrives byte by byte: any bytes, zeros too. */
#ifndef LINE_H
#define LINE_H

#include <stdbool.h>
#include <stddef.h>

/* {0} is an empty one. */
struct line {
  char *text; /* ended by a zero that does not count, once line_end was called */
  size_t length, capacity;
};

/* Gives up where memory lacks. */
void line_put(struct line *line, const char *bytes, size_t count);
/* Without what a line ends with elsewhere: a carriage return, of a terminal's or a paste's newlines too. */
void line_end(struct line *line);
bool line_is(const struct line *line, const char *text);
void line_free(struct line *line);

#endif
