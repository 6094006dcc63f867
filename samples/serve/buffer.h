/* buffer.h - a growing text, and JSON in it. A buffer that ran out of memory stays empty and says so: check `failed`
 * once, at the end. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* {0} is empty. */
struct buffer {
  char *bytes; /* no zero at the end */
  size_t count, capacity;
  bool failed;
};

void buffer_put(struct buffer *buffer, const char *bytes, size_t count);
void buffer_add(struct buffer *buffer, const char *string);
/* Integers and strings only: a locale would change the point of other numbers. */
void buffer_print(struct buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD. */
void buffer_put_json(struct buffer *buffer, const char *bytes, size_t count);
void buffer_drop(struct buffer *buffer, size_t count); /* the first bytes */
/* Room for this many bytes after the last one, for the caller to fill and count; NULL if there is no memory. */
char *buffer_room(struct buffer *buffer, size_t count);
void buffer_fail(struct buffer *buffer); /* as without memory */
void buffer_free(struct buffer *buffer);
