/* pattern.c - cuts a text into pieces (pattern.h). SmolLM2's tokenizer.json cuts twice: first every character of the
 * class N alone, then each part by GPT-2's pattern, 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+|
 * ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ One pattern does both: a character of N is a piece, and a run of spaces may end
 * before one, as before the text's end.
 *
 * \s is written as Unicode's White_Space: PCRE2's \s also has U+180E, which is not white space since Unicode 6.3. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "pattern.h"

#include <pcre2.h>
#include <stdio.h>

#include "utf8.h"

#define SPACE "\\t-\\r\\x{85}\\p{Z}"

static const char expression[] = "\\p{N}|'(?:[stmd]|re|ve|ll)| ?\\p{L}+| ?[^" SPACE "\\p{L}\\p{N}]+"
                                 "|[" SPACE "]+(?![^" SPACE "\\p{N}])|[" SPACE "]+";

struct pattern *pattern_compile(char *message, size_t message_bytes) {
  int error;
  PCRE2_SIZE offset;
  pcre2_code *code =
      pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_ANCHORED, &error, &offset, NULL);
  if (!code) {
    int length = snprintf(message, message_bytes, "PCRE2 rejects the pattern at %zu: ", offset);
    if (length > 0 && (size_t)length < message_bytes)
      pcre2_get_error_message(error, (PCRE2_UCHAR *)message + length, message_bytes - (size_t)length);
  }
  return (struct pattern *)code;
}

void pattern_free(struct pattern *pattern) { pcre2_code_free((pcre2_code *)pattern); }

bool pieces_begin(struct pieces *pieces, const struct pattern *pattern, const char *text, size_t bytes) {
  *pieces = (struct pieces){.pattern = pattern, .text = text, .bytes = bytes};
  pieces->match = pcre2_match_data_create(1, NULL);
  return pieces->match != NULL;
}

/* The length of the run of bytes from `at` on that are UTF-8, or that are not. */
static size_t run_length(const struct pieces *pieces, bool valid) {
  size_t at = pieces->at;
  while (at < pieces->bytes) {
    struct utf8_sequence sequence = utf8_at(pieces->text + at, pieces->bytes - at);
    if ((sequence.state == UTF8_WHOLE) != valid) break;
    at += sequence.length;
  }
  return at - pieces->at;
}

/* Checks each byte for UTF-8 once. PCRE2's own check would pass over the whole rest of the text for every piece. */
size_t pieces_next(struct pieces *pieces) {
  if (pieces->at == pieces->bytes) return 0;
  if (pieces->at >= pieces->valid_end) {
    size_t invalid = run_length(pieces, false);
    if (invalid > 0) return invalid;
    pieces->valid_end = pieces->at + run_length(pieces, true);
  }
  int matched = pcre2_match((const pcre2_code *)pieces->pattern, (PCRE2_SPTR)pieces->text, pieces->valid_end,
                            pieces->at, PCRE2_NO_UTF_CHECK, pieces->match, NULL);
  size_t length = matched > 0 ? pcre2_get_ovector_pointer(pieces->match)[1] - pieces->at : 0;
  /* Every character matches; if PCRE2 has no memory, the rest is one piece. */
  return length > 0 ? length : pieces->valid_end - pieces->at;
}

void pieces_end(struct pieces *pieces) { pcre2_match_data_free(pieces->match); }
