/* pattern.h - cuts a text into the pieces within which byte-level BPE merges: words with the space before them,
 * digits, runs of other characters, and runs of spaces. */
#ifndef PATTERN_H
#define PATTERN_H

#include <stdbool.h>
#include <stddef.h>

struct pattern;

/* NULL: PCRE2 refuses, with a sentence in message, which has room for so many bytes. */
struct pattern *pattern_compile(char *message, size_t message_bytes);
void pattern_free(struct pattern *pattern);

/* One thread's place in a text. */
struct pieces {
  const struct pattern *pattern;
  const char *text;
  size_t bytes, at;
  size_t valid_end; /* as far as the text is known to be UTF-8 */
  void *match;
};
/* false: out of memory. */
bool pieces_begin(struct pieces *pieces, const struct pattern *pattern, const char *text, size_t bytes);
/* The length of the next piece, which begins at text + at; 0 at the end. The caller moves at on by it. Bytes that are
 * no UTF-8 are a piece of their own, as long as they follow each other. */
size_t pieces_next(struct pieces *pieces);
void pieces_end(struct pieces *pieces);

#endif
