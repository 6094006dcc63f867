/* json_lines.h - reads what the benches write with --json: an array of objects whose values are texts, numbers, true,
 * false or null, and nothing deeper. */
#ifndef RONDO_JSON_LINES_H
#define RONDO_JSON_LINES_H

#include <stdbool.h>
#include <stddef.h>

enum { JSON_FIELDS_MOST = 32, JSON_TEXT_BYTES = 128 };

struct json_object {
  size_t count;
  struct {
    char key[JSON_TEXT_BYTES];
    bool is_text;               /* else a number: true is 1, false 0, null NaN */
    char text[JSON_TEXT_BYTES]; /* cut where it is longer */
    double number;
  } fields[JSON_FIELDS_MOST]; /* those beyond are read and left out */
};

/* Of the field, or what the object has where it has none: "" and NaN. */
const char *json_object_text(const struct json_object *object, const char *key);
double json_object_number(const struct json_object *object, const char *key);

/* Calls `take` for each object of the file. false, with a sentence on stderr: it cannot be read, or is no such array;
 * what came before the fault was taken. */
bool json_lines_read(const char *path, void (*take)(void *user, const struct json_object *object), void *user);

#endif
