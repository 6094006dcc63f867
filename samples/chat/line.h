/* line.h - a message that arrives byte by byte: any bytes, zeros too. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* {0} is an empty message. */
struct line {
  char *text; /* after line_end with a zero at the end, which does not count */
  size_t length, capacity;
};

/* Appends bytes. Ends the program if there is no memory. */
void line_put(struct line *line, const char *bytes, size_t count);
/* Removes a carriage return at the end, which other systems write; in a pasted text also before each newline. */
void line_end(struct line *line);
bool line_is(const struct line *line, const char *text);
void line_free(struct line *line);
