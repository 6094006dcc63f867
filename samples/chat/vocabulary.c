/* vocabulary.c - reads a vocabulary (vocabulary.h). The file writes every byte of an ordinary token as a printable
 * character: itself if it is printable in Latin-1, else one of U+0100 to U+0143 (bytes_to_unicode in GPT-2's
 * encoder.py). A merge is two such texts with a space between them. */
#include "vocabulary.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "utf8.h"

enum { ORDINARY = 1, CONTROL = 3, USER_DEFINED = 4 }; /* tokenizer.ggml.token_type */
enum { WRITTEN_CODES = 0x144 };                       /* the characters that stand for bytes are below this */

static bool refuse(const struct gguf *file, char message[GGUF_MESSAGE_BYTES], const char *what, uint64_t index,
                   const char *why) {
  snprintf(message, GGUF_MESSAGE_BYTES, "%.200s: %s %" PRIu64 " %s", file->path, what, index, why);
  return false;
}

/* ---- Bytes as characters ----------------------------------------------------------------------------------------- */

static bool is_written_as_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
}

/* byte_of[character] is the byte of a character, or -1. */
static void fill_byte_of(int16_t byte_of[WRITTEN_CODES]) {
  for (int code = 0; code < WRITTEN_CODES; code++) byte_of[code] = -1;
  int next = 0x100;
  for (int16_t byte = 0; byte < 256; byte++) byte_of[is_written_as_itself(byte) ? byte : next++] = byte;
}

/* Appends the bytes of a text in these characters. False if it has another character. */
static bool unwrite(const int16_t byte_of[WRITTEN_CODES], struct gguf_text text, char *out, uint32_t *length) {
  *length = 0;
  for (size_t at = 0; at < text.length;) {
    struct utf8_sequence sequence = utf8_at(text.bytes + at, text.length - at);
    if (sequence.state != UTF8_WHOLE || sequence.length > 2) return false;
    int code = (uint8_t)text.bytes[at];
    if (sequence.length == 2) code = (code & 31) << 6 | ((uint8_t)text.bytes[at + 1] & 63);
    if (code >= WRITTEN_CODES || byte_of[code] < 0) return false;
    out[(*length)++] = (char)byte_of[code];
    at += sequence.length;
  }
  return true;
}

/* ---- Tokens by their text ---------------------------------------------------------------------------------------- */

/* A hash table of the tokens by their texts, for reading the merges. */
struct index {
  const struct gguf_text *texts;
  int32_t *places; /* -1: empty */
  uint32_t mask;
};

static uint32_t places_for(uint64_t count) {
  uint32_t places = 16;
  while (places < 2 * count) places *= 2;
  return places;
}

static uint32_t hash_text(struct gguf_text text) { /* FNV-1a */
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < text.length; i++) hash = (hash ^ (uint8_t)text.bytes[i]) * 16777619u;
  return hash;
}

static bool same_text(struct gguf_text a, struct gguf_text b) {
  return a.length == b.length && (a.length == 0 || memcmp(a.bytes, b.bytes, a.length) == 0);
}

/* The entry of a text, or the empty entry for it. */
static int32_t *find_place(const struct index *index, struct gguf_text text) {
  uint32_t place = hash_text(text) & index->mask;
  for (;; place = (place + 1) & index->mask) {
    int32_t token = index->places[place];
    if (token < 0 || same_text(index->texts[token], text)) return &index->places[place];
  }
}

static bool index_tokens(struct index *index, uint64_t count) {
  uint32_t places = places_for(count);
  index->mask = places - 1;
  index->places = malloc(places * sizeof *index->places);
  if (!index->places) return false;
  memset(index->places, 0xff, places * sizeof *index->places);
  for (uint64_t token = 0; token < count; token++) {
    int32_t *place = find_place(index, index->texts[token]);
    if (*place < 0) *place = (int32_t)token; /* the first of several tokens with the same text */
  }
  return true;
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static int compare_lengths(const void *a, const void *b, void *tokens) {
  const struct vocabulary_token *list = tokens;
  uint32_t x = list[*(const int32_t *)a].length, y = list[*(const int32_t *)b].length;
  return (x < y) - (x > y);
}

/* Reads the tokens. Their bytes are never longer than their texts in the file. */
static bool read_tokens(const struct gguf *file, const struct gguf_entry *kinds, const struct gguf_text *texts,
                        struct vocabulary *vocabulary, char message[GGUF_MESSAGE_BYTES]) {
  int16_t byte_of[WRITTEN_CODES];
  fill_byte_of(byte_of);
  memset(vocabulary->of_byte, 0xff, sizeof vocabulary->of_byte);
  char *bytes = vocabulary->bytes;
  for (int32_t i = 0; i < vocabulary->token_count; i++) {
    struct vocabulary_token *token = &vocabulary->tokens[i];
    int kind = kinds ? (int)gguf_element(kinds, (uint64_t)i) : ORDINARY;
    if (texts[i].length > UINT32_MAX / 2) return refuse(file, message, "token", (uint64_t)i, "is too long");
    token->bytes = bytes;
    token->special = kind == CONTROL || kind == USER_DEFINED;
    token->prints = kind == ORDINARY || kind == USER_DEFINED;
    token->length = (uint32_t)texts[i].length;
    if (kind != ORDINARY)
      memcpy(bytes, texts[i].bytes, texts[i].length);
    else if (!unwrite(byte_of, texts[i], bytes, &token->length))
      return refuse(file, message, "token", (uint64_t)i, "has a character that is not one of GPT-2's for bytes");
    if (token->special && token->length > 0) vocabulary->specials[vocabulary->special_count++] = i;
    if (kind == ORDINARY && token->length == 1 && vocabulary->of_byte[(uint8_t)*bytes] < 0)
      vocabulary->of_byte[(uint8_t)*bytes] = i;
    bytes += token->length;
  }
  if (vocabulary->special_count > 1)
    qsort_r(vocabulary->specials, (size_t)vocabulary->special_count, sizeof *vocabulary->specials, compare_lengths,
            vocabulary->tokens);
  return true;
}

static uint32_t hash_pair(int32_t left, int32_t right) { /* Fibonacci hashing */
  return (uint32_t)((((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
}

static struct vocabulary_merge *merge_place(const struct vocabulary *vocabulary, int32_t left, int32_t right) {
  uint32_t place = hash_pair(left, right) & vocabulary->merge_mask;
  for (;; place = (place + 1) & vocabulary->merge_mask) {
    struct vocabulary_merge *merge = &vocabulary->merges[place];
    if (merge->left < 0 || (merge->left == left && merge->right == right)) return merge;
  }
}

const struct vocabulary_merge *vocabulary_merge(const struct vocabulary *vocabulary, int32_t left, int32_t right) {
  const struct vocabulary_merge *merge = merge_place(vocabulary, left, right);
  return merge->left < 0 ? NULL : merge;
}

/* Reads the three tokens of a merge: the file has "left right", and the third token has the text leftright. */
static bool read_merge(const struct index *index, struct gguf_text text, char *joined, struct vocabulary_merge *merge) {
  const char *space = memchr(text.bytes, ' ', text.length);
  if (!space) return false;
  size_t left = (size_t)(space - text.bytes), right = text.length - left - 1;
  memcpy(joined, text.bytes, left);
  memcpy(joined + left, space + 1, right);
  merge->left = *find_place(index, (struct gguf_text){joined, left});
  merge->right = *find_place(index, (struct gguf_text){joined + left, right});
  merge->token = *find_place(index, (struct gguf_text){joined, left + right});
  return left > 0 && right > 0 && merge->left >= 0 && merge->right >= 0 && merge->token >= 0;
}

static bool read_merges(const struct gguf *file, const struct gguf_entry *merges, const struct index *index,
                        struct vocabulary *vocabulary, char message[GGUF_MESSAGE_BYTES]) {
  uint32_t places = places_for(merges->count);
  size_t longest = 0;
  const uint8_t *at = merges->data;
  for (uint64_t rank = 0; rank < merges->count; rank++) {
    size_t length = gguf_next_string(&at).length;
    if (length > longest) longest = length;
  }
  char *joined = malloc(longest + 1);
  vocabulary->merges = malloc(places * sizeof *vocabulary->merges);
  vocabulary->merge_mask = places - 1;
  bool fine = joined && vocabulary->merges;
  if (!fine) refuse(file, message, "no memory for", merges->count, "merges");
  if (fine) memset(vocabulary->merges, 0xff, places * sizeof *vocabulary->merges);
  at = merges->data;
  for (uint64_t rank = 0; rank < merges->count && fine; rank++) {
    struct vocabulary_merge merge = {.rank = (int32_t)rank};
    fine = read_merge(index, gguf_next_string(&at), joined, &merge);
    if (!fine) refuse(file, message, "merge", rank, "is not two tokens whose texts together are a third token");
    struct vocabulary_merge *place = fine ? merge_place(vocabulary, merge.left, merge.right) : NULL;
    if (place && place->left < 0) *place = merge;
  }
  free(joined);
  return fine;
}

static bool read_all(const struct gguf *file, const struct gguf_entry *tokens, const struct gguf_entry *merges,
                     const struct gguf_entry *kinds, struct vocabulary *vocabulary, char message[GGUF_MESSAGE_BYTES]) {
  struct gguf_text *texts = calloc(tokens->count + 1, sizeof *texts);
  struct index index = {.texts = texts};
  vocabulary->token_count = (int32_t)tokens->count;
  vocabulary->begin = -1;
  vocabulary->tokens = calloc(tokens->count + 1, sizeof *vocabulary->tokens);
  vocabulary->specials = malloc((tokens->count + 1) * sizeof *vocabulary->specials);
  size_t bytes = 1;
  const uint8_t *at = tokens->data;
  for (uint64_t i = 0; i < tokens->count && texts; i++) {
    texts[i] = gguf_next_string(&at);
    bytes += texts[i].length;
  }
  vocabulary->bytes = malloc(bytes);
  bool fine = texts && vocabulary->tokens && vocabulary->specials && vocabulary->bytes;
  fine = fine && index_tokens(&index, tokens->count);
  if (!fine) refuse(file, message, "no memory for", tokens->count, "tokens");
  fine = fine && read_tokens(file, kinds, texts, vocabulary, message) &&
         read_merges(file, merges, &index, vocabulary, message);
  for (int32_t i = 0; i < vocabulary->token_count && fine; i++)
    if (vocabulary->tokens[i].length > vocabulary->longest) vocabulary->longest = vocabulary->tokens[i].length;
  free(index.places);
  free(texts);
  return fine;
}

bool vocabulary_read(const struct gguf *file, struct vocabulary *vocabulary, char message[GGUF_MESSAGE_BYTES]) {
  memset(vocabulary, 0, sizeof *vocabulary);
  struct gguf_entry tokens, merges, kinds;
  bool has_kinds = gguf_find(file, "tokenizer.ggml.token_type") != NULL;
  if (!gguf_array(file, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, message) ||
      !gguf_array(file, "tokenizer.ggml.merges", GGUF_STRING, &merges, message) ||
      (has_kinds && !gguf_array(file, "tokenizer.ggml.token_type", GGUF_I32, &kinds, message)))
    return false;
  if (tokens.count > INT32_MAX / 4)
    return refuse(file, message, "a vocabulary of", tokens.count, "tokens is too large");
  if (merges.count > INT32_MAX / 4) return refuse(file, message, "a list of", merges.count, "merges is too long");
  if (has_kinds && kinds.count != tokens.count)
    return refuse(file, message, "a vocabulary of", tokens.count, "tokens has a different number of token types");
  if (read_all(file, &tokens, &merges, has_kinds ? &kinds : NULL, vocabulary, message)) return true;
  vocabulary_free(vocabulary);
  return false;
}

void vocabulary_free(struct vocabulary *vocabulary) {
  free(vocabulary->tokens);
  free(vocabulary->specials);
  free(vocabulary->merges);
  free(vocabulary->bytes);
  memset(vocabulary, 0, sizeof *vocabulary);
}
