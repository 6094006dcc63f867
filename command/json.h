/* json.h - writes JSON: commas, indentation and escapes. Every call takes a key, which is NULL in an array.
 * Without a file nothing is written. */
#ifndef RONDO_JSON_H
#define RONDO_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
  FILE *file;
  int depth;
  bool has_item; /* at this depth, so far */
  bool is_line;  /* on one line from here on */
};

/* bracket: '{' or '['. */
void json_begin(struct json *json, const char *key, char bracket);
/* The same on a line of its own, with all that is in it. */
void json_begin_line(struct json *json, const char *key, char bracket);
void json_end(struct json *json, char bracket);
void json_text(struct json *json, const char *key, const char *text);
void json_whole(struct json *json, const char *key, uint64_t number);
/* null if it is not a finite number, for which JSON has no word. */
void json_real(struct json *json, const char *key, double number);
void json_flag(struct json *json, const char *key, bool flag);

#endif
