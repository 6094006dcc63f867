/* markup.c - see markup.h. */
#include "markup.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Behind the character, or NULL. */
static const char *character(const char *at) {
  const unsigned char *c = (const unsigned char *)at;
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (*c < 0x80) return (*c >= 0x20 && *c != 0x7f) || *c == '\n' || *c == '\t' ? at + 1 : NULL;
  uint32_t count = *c >> 5 == 6 ? 2 : *c >> 4 == 14 ? 3 : *c >> 3 == 30 ? 4 : 0;
  if (!count) return NULL;
  uint32_t code = *c & (0xffu >> (count + 1));
  for (uint32_t i = 1; i < count; i++) {
    if (c[i] >> 6 != 2) return NULL;
    code = code << 6 | (c[i] & 63u);
  }
  bool exists =
      code >= least[count] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) && code != 0xfffe && code != 0xffff;
  return exists ? at + count : NULL;
}

const char *lines_fault(const char *text) {
  for (const char *next; *text; text = next) {
    bool is_c1 = (unsigned char)text[0] == 0xc2 && (unsigned char)text[1] < 0xa0;
    next = *text == '\t' || is_c1 ? NULL : character(text);
    if (!next) return text;
  }
  return NULL;
}

static const char *entity(const char *at) {
  static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strncmp(at, known[i], strlen(known[i]))) return at + strlen(known[i]);
  if (strncmp(at, "&#", 2) != 0) return NULL;
  size_t digits = strspn(at + 2, "0123456789");
  return digits && at[2 + digits] == ';' ? at + 3 + digits : NULL;
}

static const char *text_until(const char *at, const char *ends) {
  while (*at && !strchr(ends, *at)) {
    const char *next = *at == '&' ? entity(at) : *at == '<' ? NULL : character(at);
    if (!next) return NULL;
    at = next;
  }
  return at;
}

static size_t name_length(const char *at) {
  size_t length = 0;
  while (isalnum((unsigned char)at[length]) || (length && (at[length] == '-' || at[length] == ':'))) length++;
  return length;
}

static const char *space(const char *at) { return at + strspn(at, " \n\t"); }

enum { DEPTH = 32 };

struct tags {
  const char *names[DEPTH];
  size_t lengths[DEPTH];
  int depth;
};

/* From '<' to after '>'. NULL: *fault says where. */
static const char *tag(const char *at, struct tags *tags, const char **fault) {
  *fault = at++;
  bool closes = *at == '/';
  at += closes;
  size_t length = name_length(at);
  if (!length) return NULL;
  const char *name = at;
  at += length;
  if (closes) {
    if (!tags->depth || tags->lengths[tags->depth - 1] != length ||
        strncmp(tags->names[tags->depth - 1], name, length) != 0)
      return NULL;
    tags->depth--;
    return *at == '>' ? at + 1 : NULL;
  }
  while (*(at = space(at)) != '>' && *at != '/') {
    if (!isspace((unsigned char)at[-1]) || !(length = name_length(at))) return NULL;
    at += length;
    if (strncmp(at, "=\"", 2) != 0 || !(at = text_until(at + 2, "\"")) || *at != '"') return NULL;
    at++;
  }
  if (*at == '/') return at[1] == '>' ? at + 2 : NULL;
  if (tags->depth == DEPTH) return NULL;
  tags->lengths[tags->depth] = (size_t)(name_length(name));
  tags->names[tags->depth++] = name;
  return at + 1;
}

const char *xml_fault(const char *text) {
  struct tags tags = {.depth = 0};
  const char *at = text, *fault = text;
  if (*at != '<') return at;
  do {
    const char *next = *at == '<' ? tag(at, &tags, &fault) : text_until(at, "<");
    if (!next) return *at == '<' ? fault : at;
    if (!*next && tags.depth) return next;
    at = next;
  } while (tags.depth);
  at = space(at);
  return *at ? at : NULL;
}

/* From '<' to after the '>' that ends it. */
static const char *html(const char *at, const char **fault) {
  struct tags tags = {.depth = 0};
  *fault = at++;
  while (*at && (*at != '>' || tags.depth)) {
    const char *begin = at;
    at = *at == '<' ? tag(at, &tags, fault) : text_until(at, "<>");
    if (!at || (at == begin && *at == '>')) return NULL;
  }
  return *at == '>' ? at + 1 : NULL;
}

const char *dot_fault(const char *text) {
  static const char begin[] = "digraph rondo {\n";
  const char *at = text, *fault = text;
  int depth = 0;
  if (strncmp(at, begin, strlen(begin)) != 0) return at;
  for (; *at; at++) {
    if (*at == '"') {
      const char *end = at + 1 + strcspn(at + 1, "\"\\\n");
      if (*end != '"') return at;
      at = end;
    } else if (*at == '<') {
      const char *end = html(at, &fault);
      if (!end) return fault;
      at = end - 1;
    } else if (*at == '{' || *at == '}') {
      depth += *at == '{' ? 1 : -1;
      if (depth < 0 || (depth == 0 && *space(at + 1))) return at;
    } else if (!isalnum((unsigned char)*at) && !strchr(" \n_[]=,;.->", *at)) {
      return at;
    }
  }
  return depth ? at : NULL;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static const char *json_string(const char *at) {
  for (at++; *at != '"';) {
    const char *next = (unsigned char)*at < 0x20 ? NULL : character(at);
    if (*at == '\\') next = at[1] && strchr("\"\\/bfnrt", at[1]) ? at + 2 : NULL;
    if (!next) return NULL;
    at = next;
  }
  return at + 1;
}

static const char *json_number(const char *at) {
  size_t digits = strspn(at, "0123456789");
  if (!digits || (digits > 1 && *at == '0')) return NULL;
  at += digits;
  if (*at != '.') return at;
  digits = strspn(at + 1, "0123456789");
  return digits ? at + 1 + digits : NULL;
}

/* Behind the value, or NULL, and then *fault says where. */
static const char *json_value(const char *at, int depth, const char **fault) {
  *fault = at = space(at);
  if (*at == '"') return json_string(at);
  if (*at != '{' && *at != '[') return json_number(at);
  bool is_object = *at == '{';
  char end = is_object ? '}' : ']';
  if (depth == DEPTH) return NULL;
  at = space(at + 1);
  while (*at != end) {
    *fault = at;
    if (is_object && (*at != '"' || !(at = json_string(at)) || *(at = space(at)) != ':')) return NULL;
    if (!(at = json_value(at + is_object, depth + 1, fault))) return NULL;
    *fault = at = space(at);
    if (*at == end) break;
    if (*at != ',' || *(at = space(at + 1)) == end) return NULL;
  }
  return at + 1;
}

const char *json_fault(const char *text) {
  const char *fault = text, *at = json_value(text, 0, &fault);
  if (!at) return fault;
  return *space(at) ? at : NULL;
}
