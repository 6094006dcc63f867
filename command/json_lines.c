/* json_lines.c - reads the JSON that the benches write (json_lines.h). */
#include "json_lines.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

const char *json_object_text(const struct json_object *object, const char *key) {
  for (size_t i = 0; i < object->count; i++)
    if (object->fields[i].is_text && !strcmp(object->fields[i].key, key)) return object->fields[i].text;
  return "";
}

double json_object_number(const struct json_object *object, const char *key) {
  for (size_t i = 0; i < object->count; i++)
    if (!object->fields[i].is_text && !strcmp(object->fields[i].key, key)) return object->fields[i].number;
  return NAN;
}

static int next(FILE *file) {
  int letter;
  do letter = getc(file);
  while (letter != EOF && isspace(letter));
  return letter;
}

/* Reads the rest of an escape after its backslash; EOF if it is wrong. A character beyond ASCII becomes a question
 * mark; no bench writes one. */
static int read_escape(FILE *file) {
  unsigned code;
  int letter = getc(file);
  switch (letter) {
  case '"':
  case '\\':
  case '/':
    return letter;
  case 'b':
    return '\b';
  case 'f':
    return '\f';
  case 'n':
    return '\n';
  case 'r':
    return '\r';
  case 't':
    return '\t';
  case 'u':
    if (fscanf(file, "%4x", &code) != 1) return EOF;
    return code < 128 ? (int)code : '?';
  default:
    return EOF;
  }
}

/* Reads a text after its opening quote. */
static bool read_text(FILE *file, char text[JSON_TEXT_BYTES]) {
  size_t length = 0;
  for (int letter; (letter = getc(file)) != '"';) {
    if (letter == EOF || letter < ' ') return false;
    if (letter == '\\') letter = read_escape(file);
    if (letter == EOF) return false;
    if (length + 1 < JSON_TEXT_BYTES) text[length++] = (char)letter;
  }
  text[length] = '\0';
  return true;
}

/* Reads a number, or true, false or null. */
static bool read_plain(FILE *file, int first, double *number) {
  static const struct {
    const char *word;
    double number;
  } words[] = {{"true", 1}, {"false", 0}, {"null", (double)NAN}};
  char text[32] = {(char)first};
  size_t length = 1;
  int letter;
  while ((letter = getc(file)) != EOF && (isalnum(letter) || strchr("+-.", letter)))
    if (length + 1 < sizeof text) text[length++] = (char)letter;
  ungetc(letter, file);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!strcmp(text, words[i].word)) {
      *number = words[i].number;
      return true;
    }
  char *end;
  *number = strtod(text, &end);
  return !*end && (first == '-' || isdigit(first));
}

static bool read_field(FILE *file, struct json_object *object) {
  struct json_object one = {.count = 1};
  int letter = 0;
  if (!read_text(file, one.fields[0].key) || next(file) != ':') return false;
  letter = next(file);
  one.fields[0].is_text = letter == '"';
  if (!(letter == '"' ? read_text(file, one.fields[0].text) : read_plain(file, letter, &one.fields[0].number)))
    return false;
  if (object->count < JSON_FIELDS_MOST) object->fields[object->count++] = one.fields[0];
  return true;
}

/* Reads an object after its opening brace. */
static bool read_object(FILE *file, struct json_object *object) {
  int letter = next(file);
  object->count = 0;
  if (letter == '}') return true;
  while (letter == '"' && read_field(file, object)) {
    letter = next(file);
    if (letter == '}') return true;
    if (letter != ',') return false;
    letter = next(file);
  }
  return false;
}

static bool read_array(FILE *file, void (*take)(void *user, const struct json_object *object), void *user) {
  struct json_object object;
  if (next(file) != '[') return false;
  int letter = next(file);
  if (letter == ']') return next(file) == EOF;
  while (letter == '{' && read_object(file, &object)) {
    take(user, &object);
    letter = next(file);
    if (letter == ']') return next(file) == EOF;
    if (letter != ',') return false;
    letter = next(file);
  }
  return false;
}

bool json_lines_read(const char *path, void (*take)(void *user, const struct json_object *object), void *user) {
  FILE *file = fopen(path, "r");
  bool is_read = file && read_array(file, take, user);
  if (!file)
    command_failed("'%s' cannot be read: %s", path, strerror(errno));
  else if (!is_read)
    command_failed("'%s' is not an array of objects, as --json writes it", path);
  if (file) fclose(file);
  return is_read;
}
