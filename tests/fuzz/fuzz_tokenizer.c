/* fuzz_tokenizer.c - any bytes as text, with a small vocabulary that has every byte: pieces follow each other to the
 * end, merging them is what trying all pairs over and over gives, what is encoded is decoded to the same bytes, and a
 * stream of UTF-8 is the same however it is cut. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../samples/chat/pattern.h"
#include "../../samples/chat/utf8.h"
#include "../samples/small_tokenizer.h"

enum { MOST_BYTES = 4096, LONGEST_BY_PAIRS = 64 };

static struct tokenizer tokenizer;

static void require(bool condition, const char *what) {
  if (condition) return;
  fprintf(stderr, "fuzz_tokenizer: %s\n", what);
  abort();
}

/* Of all pairs that merge the one of the lowest rank, the first of several; until there is none. */
static int32_t merge_by_pairs(const char *piece, size_t bytes, int32_t tokens[LONGEST_BY_PAIRS]) {
  int32_t count = (int32_t)bytes;
  for (int32_t i = 0; i < count; i++) tokens[i] = (uint8_t)piece[i];
  for (;;) {
    int32_t best = SMALL_TOKENS, place = 0;
    for (int32_t i = 0; i + 1 < count; i++) {
      int32_t merged = small_merge(tokens[i], tokens[i + 1]);
      if (merged >= 0 && merged < best) {
        best = merged;
        place = i;
      }
    }
    if (best == SMALL_TOKENS) return count;
    tokens[place] = best;
    memmove(&tokens[place + 1], &tokens[place + 2], (size_t)(count - place - 2) * sizeof *tokens);
    count--;
  }
}

static void check_pieces(const char *text, size_t bytes, const struct tokens *tokens) {
  struct pieces pieces;
  size_t at = 0;
  bool all_short = true;
  require(pieces_begin(&pieces, tokenizer.pattern, text, bytes), "no memory");
  for (size_t length; (length = pieces_next(&pieces)) > 0; pieces.at += length) {
    require(length <= bytes - pieces.at, "a piece beyond the end");
    int32_t expected[LONGEST_BY_PAIRS];
    all_short = all_short && length <= LONGEST_BY_PAIRS;
    if (!all_short) continue;
    int32_t count = merge_by_pairs(text + pieces.at, length, expected);
    require((size_t)count <= tokens->count - at &&
                memcmp(tokens->ids + at, expected, (size_t)count * sizeof *expected) == 0,
            "tokens differ from those by trying all pairs");
    at += (size_t)count;
  }
  require(pieces.at == bytes, "pieces end before the text");
  require(!all_short || at == tokens->count, "more tokens than pieces make");
  pieces_end(&pieces);
}

static void check_round_trip(const char *text, size_t bytes, const struct tokens *tokens) {
  size_t at = 0;
  for (size_t i = 0; i < tokens->count; i++) {
    struct gguf_text part = tokenizer_bytes(&tokenizer, tokens->ids[i]);
    require(part.length <= bytes - at && memcmp(text + at, part.bytes, part.length) == 0, "decoded to other bytes");
    at += part.length;
  }
  require(at == bytes, "decoded to fewer bytes");
}

/* Whole, and cut at every token. */
static void check_stream(const char *text, size_t bytes, const struct tokens *tokens) {
  static char whole[3 * (MOST_BYTES + 2)], parts[sizeof whole];
  struct utf8_stream stream = {0};
  size_t whole_bytes = utf8_pass(&stream, text, bytes, whole), part_bytes = 0;
  whole_bytes += utf8_end(&stream, whole + whole_bytes);
  for (size_t i = 0; i < tokens->count; i++) {
    struct gguf_text part = tokenizer_bytes(&tokenizer, tokens->ids[i]);
    part_bytes += utf8_pass(&stream, part.bytes, part.length, parts + part_bytes);
  }
  part_bytes += utf8_end(&stream, parts + part_bytes);
  require(whole_bytes == part_bytes && memcmp(whole, parts, whole_bytes) == 0, "a stream depends on how it is cut");
  for (size_t at = 0; at < whole_bytes;) {
    struct utf8_sequence sequence = utf8_at(whole + at, whole_bytes - at);
    require(sequence.state == UTF8_WHOLE, "a stream passes on what is no UTF-8");
    uint8_t first = (uint8_t)whole[at], second = sequence.length > 1 ? (uint8_t)whole[at + 1] : 0xff;
    require((first >= ' ' && first != 0x7f) || first == '\n' || first == '\t', "a stream passes on a control code");
    require(first != 0xc2 || second >= 0xa0, "a stream passes on a control code of two bytes");
    at += sequence.length;
  }
}

int LLVMFuzzerInitialize(int *argument_count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argument_count, char ***arguments) {
  (void)argument_count;
  (void)arguments;
  tokenizer = open_small_tokenizer();
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size > MOST_BYTES) return 0;
  char *text = malloc(size); /* of exactly its size, so that a byte too far is seen */
  if (!text && size > 0) abort();
  if (size > 0) memcpy(text, data, size);
  for (int specials = 0; specials < 2; specials++) {
    struct tokens tokens = {0};
    require(tokenizer_encode(&tokenizer, text, size, (enum tokenizer_specials)specials, &tokens), "no memory");
    if (specials == SPECIALS_ARE_TEXT) check_pieces(text, size, &tokens);
    check_round_trip(text, size, &tokens);
    check_stream(text, size, &tokens);
    tokens_free(&tokens);
  }
  free(text);
  return 0;
}
