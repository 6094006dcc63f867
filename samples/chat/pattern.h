/* pattern.h - cuts a text into pieces: words with the space before them, single digits, runs of other characters, and
 * runs of spaces. Byte-level BPE merges within a piece only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct pattern;

/* NULL if PCRE2 fails, with a sentence in message, which has message_bytes bytes. */
struct pattern *pattern_compile(char *message, size_t message_bytes);
void pattern_free(struct pattern *pattern);

/* The state of one thread that cuts a text. */
struct pieces {
  const struct pattern *pattern;
  const char *text;
  size_t bytes, at;
  size_t valid_end; /* the text before this index is known to be UTF-8 */
  void *match;
};
/* False if there is no memory. */
bool pieces_begin(struct pieces *pieces, const struct pattern *pattern, const char *text, size_t bytes);
/* The length of the next piece, which begins at text + at; 0 at the end. The caller adds it to `at`. Consecutive bytes
 * that are not UTF-8 form a piece of their own. */
size_t pieces_next(struct pieces *pieces);
void pieces_end(struct pieces *pieces);
