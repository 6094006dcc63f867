/* json_lines.h - reads the files that the benches write with --json: an array of objects. The values of an object are
 * texts, numbers, true, false or null. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { JSON_FIELDS_MOST = 32, JSON_TEXT_BYTES = 128 };

struct json_object {
  size_t count;
  struct {
    char key[JSON_TEXT_BYTES];
    bool is_text;               /* else a number: true is 1, false 0, null NaN */
    char text[JSON_TEXT_BYTES]; /* a longer text is cut */
    double number;
  } fields[JSON_FIELDS_MOST]; /* further fields are dropped */
};

/* The value of a field; "" or NaN if the object does not have it. */
const char *json_object_text(const struct json_object *object, const char *key);
double json_object_number(const struct json_object *object, const char *key);

/* Calls `take` for each object of the file. Returns false after a sentence on stderr: the file cannot be read, or is
 * not such an array. `take` has then been called for the objects before the fault. */
bool json_lines_read(const char *path, void (*take)(void *user, const struct json_object *object), void *user);
