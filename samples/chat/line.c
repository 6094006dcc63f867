/* line.c - a message that arrives byte by byte (line.h). */
#include "line.h"

#include <stdlib.h>
#include <string.h>

#include "../sample.h"

void line_put(struct line *line, const char *bytes, size_t count) {
  if (line->capacity - line->length < count) {
    size_t capacity = 2 * line->capacity + count + 256;
    char *longer = realloc(line->text, capacity);
    if (!longer) give_up("no memory for a line");
    line->text = longer;
    line->capacity = capacity;
  }
  memcpy(line->text + line->length, bytes, count);
  line->length += count;
}

void line_end(struct line *line) {
  while (line->length > 0 && (line->text[line->length - 1] == '\r' || line->text[line->length - 1] == '\n'))
    line->length--;
  line_put(line, "", 1);
  line->length--;
}

bool line_is(const struct line *line, const char *text) {
  return line->length == strlen(text) && memcmp(line->text, text, line->length) == 0;
}

void line_free(struct line *line) {
  free(line->text);
  memset(line, 0, sizeof *line);
}
