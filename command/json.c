/* json.c - writes JSON (json.h). */
#include "json.h"

#include <inttypes.h>
#include <math.h>

#include "../runtime/text.h"

static void write_text(FILE *file, const char *text) {
  fputc('"', file);
  for (uint32_t bytes; *text; text += bytes ? bytes : 1) {
    bytes = text_character_bytes(text);
    if (*text == '"' || *text == '\\')
      fprintf(file, "\\%c", *text);
    else if (bytes)
      fwrite(text, 1, bytes, file);
    else if ((unsigned char)*text < 128)
      fprintf(file, "\\u%04x", (unsigned)*text);
    else
      fputs(TEXT_REPLACEMENT, file);
  }
  fputc('"', file);
}

static void new_line(const struct json *json) { fprintf(json->file, "\n%*s", 2 * json->depth, ""); }

/* Writes the comma, the line break and the key before a value. False if there is no file. */
static bool lead(struct json *json, const char *key) {
  if (!json->file) return false;
  if (json->has_item) fputs(json->is_line ? ", " : ",", json->file);
  if (!json->is_line && json->depth) new_line(json);
  json->has_item = true;
  if (!key) return true;
  write_text(json->file, key);
  fputs(": ", json->file);
  return true;
}

void json_begin(struct json *json, const char *key, char bracket) {
  if (!lead(json, key)) return;
  fputc(bracket, json->file);
  json->depth++;
  json->has_item = false;
}

void json_begin_line(struct json *json, const char *key, char bracket) {
  json_begin(json, key, bracket);
  json->is_line = true;
}

void json_end(struct json *json, char bracket) {
  if (!json->file) return;
  json->depth--;
  if (!json->is_line && json->has_item) new_line(json);
  fputc(bracket, json->file);
  json->is_line = false; /* a line contains no other line */
  json->has_item = true;
  if (!json->depth) fputc('\n', json->file);
}

void json_text(struct json *json, const char *key, const char *text) {
  if (lead(json, key)) write_text(json->file, text);
}

void json_whole(struct json *json, const char *key, uint64_t number) {
  if (lead(json, key)) fprintf(json->file, "%" PRIu64, number);
}

void json_real(struct json *json, const char *key, double number) {
  if (!lead(json, key)) return;
  if (isfinite(number))
    fprintf(json->file, "%.9g", number);
  else
    fputs("null", json->file);
}

void json_flag(struct json *json, const char *key, bool flag) {
  if (lead(json, key)) fputs(flag ? "true" : "false", json->file);
}
