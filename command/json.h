/* json.h - writes JSON with commas, indentation and escapes. The key is NULL for a value in an array. If the file is
 * NULL, the functions write nothing. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
  FILE *file;
  int depth;
  bool has_item; /* the open array or object has an item */
  bool is_line;  /* the open array or object is on one line */
};

/* bracket: '{' or '['. */
void json_begin(struct json *json, const char *key, char bracket);
/* The same; the array or object is on one line, with all its items. */
void json_begin_line(struct json *json, const char *key, char bracket);
void json_end(struct json *json, char bracket);
void json_text(struct json *json, const char *key, const char *text);
void json_whole(struct json *json, const char *key, uint64_t number);
/* Writes null for infinity and NaN, which JSON cannot express. */
void json_real(struct json *json, const char *key, double number);
void json_flag(struct json *json, const char *key, bool flag);
