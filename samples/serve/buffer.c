/* buffer.c - a growing text, and JSON in it (buffer.h). */
#include "buffer.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../chat/utf8.h"

enum { LEAST_BYTES = 256 };

void buffer_free(struct buffer *buffer) {
  free(buffer->bytes);
  *buffer = (struct buffer){0};
}

void buffer_fail(struct buffer *buffer) {
  buffer_free(buffer);
  buffer->failed = true;
}

char *buffer_room(struct buffer *buffer, size_t count) {
  if (buffer->failed) return NULL;
  if (!buffer->bytes || count > buffer->capacity - buffer->count) {
    size_t least = buffer->count + count;
    size_t capacity = least > 2 * buffer->capacity ? least : 2 * buffer->capacity;
    if (capacity < LEAST_BYTES) capacity = LEAST_BYTES;
    char *bytes = count <= SIZE_MAX / 4 ? realloc(buffer->bytes, capacity) : NULL;
    if (!bytes) return buffer_fail(buffer), NULL;
    buffer->bytes = bytes;
    buffer->capacity = capacity;
  }
  return buffer->bytes + buffer->count;
}

void buffer_put(struct buffer *buffer, const char *bytes, size_t count) {
  char *room = count > 0 ? buffer_room(buffer, count) : NULL;
  if (!room) return;
  memcpy(room, bytes, count);
  buffer->count += count;
}

void buffer_add(struct buffer *buffer, const char *string) { buffer_put(buffer, string, strlen(string)); }

void buffer_print(struct buffer *buffer, const char *format, ...) {
  va_list values;
  va_start(values, format);
  char *printed;
  int count = vasprintf(&printed, format, values);
  va_end(values);
  if (count < 0) {
    buffer_fail(buffer);
    return;
  }
  buffer_put(buffer, printed, (size_t)count);
  free(printed);
}

static void put_escaped(struct buffer *buffer, char byte) {
  static const char bytes[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
  const char *found = memchr(bytes, byte, sizeof bytes - 1);
  if (found)
    buffer_put(buffer, (char[]){'\\', letters[found - bytes]}, 2);
  else
    buffer_print(buffer, "\\u%04x", (unsigned)(uint8_t)byte);
}

void buffer_put_json(struct buffer *buffer, const char *bytes, size_t count) {
  size_t begin = 0; /* of bytes that stay as they are, up to `at` */
  buffer_put(buffer, "\"", 1);
  for (size_t at = 0; at < count;) {
    struct utf8_sequence sequence = utf8_at(bytes + at, count - at);
    bool is_escaped = (uint8_t)bytes[at] < ' ' || bytes[at] == '"' || bytes[at] == '\\';
    bool stays = sequence.state == UTF8_WHOLE && !is_escaped;
    if (!stays) buffer_put(buffer, bytes + begin, at - begin);
    if (sequence.state != UTF8_WHOLE) {
      buffer_put(buffer, "\xef\xbf\xbd", 3);
    } else if (is_escaped) {
      put_escaped(buffer, bytes[at]);
    }
    at += sequence.length;
    if (!stays) begin = at;
  }
  if (begin < count) buffer_put(buffer, bytes + begin, count - begin);
  buffer_put(buffer, "\"", 1);
}

void buffer_drop(struct buffer *buffer, size_t count) {
  buffer->count -= count;
  if (buffer->count > 0) memmove(buffer->bytes, buffer->bytes + count, buffer->count);
}
