/* tokenizer.c - text to tokens and back (tokenizer.h). A piece begins as the tokens of its bytes. Then two neighbours
 * that the vocabulary merges become one token, until there are none. The merge of the lowest rank is first, of several
 * the leftmost. A heap finds it: n log n steps for a piece of n bytes (as in Hugging Face's tokenizers,
 * models/bpe/word.rs). */
#include "tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "marks.h"
#include "pattern.h"

enum { NONE = -1 };

bool tokens_push(struct tokens *tokens, int32_t token) {
  if (tokens->count == tokens->capacity) {
    size_t capacity = tokens->capacity ? 2 * tokens->capacity : 64;
    int32_t *ids = realloc(tokens->ids, capacity * sizeof *ids);
    if (!ids) return false;
    tokens->ids = ids;
    tokens->capacity = capacity;
  }
  tokens->ids[tokens->count++] = token;
  return true;
}

void tokens_free(struct tokens *tokens) {
  free(tokens->ids);
  memset(tokens, 0, sizeof *tokens);
}

/* ---- Merging ----------------------------------------------------------------------------------------------------- */

/* An element of a doubly linked list. A symbol that was merged into its left neighbour has the token NONE. */
struct symbol {
  int32_t token;
  int32_t previous, next; /* NONE at the ends */
};

/* Two neighbours that can be merged, unless one of them has changed since. */
struct candidate {
  int32_t rank, place; /* of the merge; index of the left symbol */
  int32_t left, right, token;
};

struct work {
  struct symbol *symbols;
  struct candidate *heap;
  int32_t symbol_count, heap_count;
  size_t capacity; /* bytes of a piece */
};

/* There are at most 3 n candidates for n bytes: n at the beginning, and two for each merge. */
static bool work_reserve(struct work *work, size_t bytes) {
  if (bytes <= work->capacity) return true;
  if (bytes > INT32_MAX / 4) return false;
  size_t capacity = bytes < 64 ? 64 : bytes;
  struct symbol *symbols = realloc(work->symbols, capacity * sizeof *symbols);
  if (symbols) work->symbols = symbols;
  struct candidate *heap = realloc(work->heap, 3 * capacity * sizeof *heap);
  if (heap) work->heap = heap;
  if (!symbols || !heap) return false;
  work->capacity = capacity;
  return true;
}

static bool goes_first(const struct candidate *a, const struct candidate *b) {
  return a->rank != b->rank ? a->rank < b->rank : a->place < b->place;
}

static void heap_push(struct work *work, struct candidate candidate) {
  int32_t at = work->heap_count++;
  for (int32_t parent; at > 0 && goes_first(&candidate, &work->heap[parent = (at - 1) / 2]); at = parent)
    work->heap[at] = work->heap[parent];
  work->heap[at] = candidate;
}

static struct candidate heap_pop(struct work *work) {
  struct candidate first = work->heap[0], last = work->heap[--work->heap_count];
  int32_t at = 0;
  for (int32_t child; (child = 2 * at + 1) < work->heap_count; at = child) {
    if (child + 1 < work->heap_count && goes_first(&work->heap[child + 1], &work->heap[child])) child++;
    if (!goes_first(&work->heap[child], &last)) break;
    work->heap[at] = work->heap[child];
  }
  work->heap[at] = last;
  return first;
}

static void consider(const struct vocabulary *vocabulary, struct work *work, int32_t place) {
  if (place == NONE || work->symbols[place].next == NONE) return;
  int32_t left = work->symbols[place].token, right = work->symbols[work->symbols[place].next].token;
  const struct vocabulary_merge *merge = vocabulary_merge(vocabulary, left, right);
  if (merge) heap_push(work, (struct candidate){merge->rank, place, left, right, merge->token});
}

static void merge(const struct vocabulary *vocabulary, struct work *work, const struct candidate *candidate) {
  struct symbol *symbol = &work->symbols[candidate->place];
  if (symbol->token != candidate->left || symbol->next == NONE || work->symbols[symbol->next].token != candidate->right)
    return;
  struct symbol *right = &work->symbols[symbol->next];
  symbol->token = candidate->token;
  symbol->next = right->next;
  right->token = NONE;
  if (symbol->next != NONE) work->symbols[symbol->next].previous = candidate->place;
  consider(vocabulary, work, symbol->previous);
  consider(vocabulary, work, candidate->place);
}

static bool encode_piece(const struct vocabulary *vocabulary, struct work *work, const char *piece, size_t bytes,
                         struct tokens *tokens) {
  if (!work_reserve(work, bytes)) return false;
  work->symbol_count = work->heap_count = 0;
  for (size_t i = 0; i < bytes; i++) {
    int32_t token = vocabulary->of_byte[(uint8_t)piece[i]], place = work->symbol_count;
    if (token == NONE) continue;
    work->symbols[work->symbol_count++] = (struct symbol){token, place - 1, place + 1};
  }
  if (work->symbol_count == 0) return true;
  work->symbols[work->symbol_count - 1].next = NONE;
  for (int32_t place = 0; place < work->symbol_count; place++) consider(vocabulary, work, place);
  while (work->heap_count > 0) {
    struct candidate first = heap_pop(work);
    merge(vocabulary, work, &first);
  }
  for (int32_t place = 0; place != NONE; place = work->symbols[place].next)
    if (!tokens_push(tokens, work->symbols[place].token)) return false;
  return true;
}

/* ---- Texts ------------------------------------------------------------------------------------------------------- */

static bool exceeds(const struct tokens *tokens) { return tokens->most && tokens->count > tokens->most; }

/* Encodes a text without special tokens. */
static bool encode_plain(const struct tokenizer *tokenizer, struct work *work, const char *text, size_t bytes,
                         struct tokens *tokens) {
  struct pieces pieces;
  if (bytes == 0) return true;
  bool fine = pieces_begin(&pieces, tokenizer->pattern, text, bytes);
  for (size_t length; fine && !exceeds(tokens) && (length = pieces_next(&pieces)) > 0; pieces.at += length)
    fine = encode_piece(&tokenizer->vocabulary, work, text + pieces.at, length, tokens);
  pieces_end(&pieces);
  return fine;
}

/* The longest special token at the beginning of the text. In a user's text control tokens do not count. */
static int32_t special_at(const struct vocabulary *vocabulary, const char *text, size_t bytes,
                          enum tokenizer_specials specials) {
  for (int32_t i = 0; i < vocabulary->special_count; i++) {
    const struct vocabulary_token *token = &vocabulary->tokens[vocabulary->specials[i]];
    if (specials == SPECIALS_ARE_TEXT && !token->prints) continue;
    if (token->length <= bytes && memcmp(token->bytes, text, token->length) == 0) return vocabulary->specials[i];
  }
  return NONE;
}

static bool encode_all(const struct tokenizer *tokenizer, struct work *work, const char *text, size_t bytes,
                       enum tokenizer_specials specials, struct tokens *tokens) {
  size_t begin = 0, at = 0;
  while (at < bytes && !exceeds(tokens)) {
    int32_t token = special_at(&tokenizer->vocabulary, text + at, bytes - at, specials);
    if (token == NONE) {
      at++;
      continue;
    }
    if (!encode_plain(tokenizer, work, text + begin, at - begin, tokens) || !tokens_push(tokens, token)) return false;
    begin = at += tokenizer->vocabulary.tokens[token].length;
  }
  return encode_plain(tokenizer, work, text + begin, bytes - begin, tokens);
}

bool tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                      enum tokenizer_specials specials, struct tokens *tokens) {
  struct work work = {0};
  bool fine = encode_all(tokenizer, &work, text, bytes, specials, tokens);
  free(work.symbols);
  free(work.heap);
  return fine;
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

static bool is_token(const struct tokenizer *tokenizer, int32_t token) {
  return token >= 0 && token < tokenizer->vocabulary.token_count;
}

struct gguf_text tokenizer_bytes(const struct tokenizer *tokenizer, int32_t token) {
  if (!is_token(tokenizer, token)) return (struct gguf_text){"", 0};
  const struct vocabulary_token *found = &tokenizer->vocabulary.tokens[token];
  return (struct gguf_text){found->bytes, found->length};
}

bool tokenizer_prints(const struct tokenizer *tokenizer, int32_t token) {
  return is_token(tokenizer, token) && tokenizer->vocabulary.tokens[token].prints;
}

bool tokenizer_ends(const struct tokenizer *tokenizer, int32_t token) {
  return is_token(tokenizer, token) && tokenizer->vocabulary.tokens[token].ends;
}

int32_t tokenizer_special(const struct tokenizer *tokenizer, const char *text) {
  size_t length = strlen(text);
  int32_t token = special_at(&tokenizer->vocabulary, text, length, SPECIALS_ARE_TOKENS);
  return token != NONE && tokenizer->vocabulary.tokens[token].length == length ? token : NONE;
}

static bool is_known(const struct gguf *file, char message[GGUF_MESSAGE_BYTES]) {
  struct gguf_text model, pre;
  if (!gguf_string(file, "tokenizer.ggml.model", &model, message) ||
      !gguf_string(file, "tokenizer.ggml.pre", &pre, message))
    return false;
  if (model.length == 4 && memcmp(model.bytes, "gpt2", 4) == 0 && pre.length == 6 &&
      memcmp(pre.bytes, "smollm", 6) == 0)
    return true;
  snprintf(message, GGUF_MESSAGE_BYTES,
           "%.160s: its tokenizer is %.32s with the pattern %.32s, expected gpt2 with smollm", file->path,
           gguf_quote(model).text, gguf_quote(pre).text);
  return false;
}

bool tokenizer_open(const struct gguf *file, struct tokenizer *tokenizer, char message[GGUF_MESSAGE_BYTES]) {
  memset(tokenizer, 0, sizeof *tokenizer);
  if (!is_known(file, message) || !vocabulary_read(file, &tokenizer->vocabulary, message)) return false;
  if (marks_read(file, &tokenizer->vocabulary, message))
    tokenizer->pattern = pattern_compile(message, GGUF_MESSAGE_BYTES);
  if (tokenizer->pattern) return true;
  tokenizer_close(tokenizer);
  return false;
}

void tokenizer_close(struct tokenizer *tokenizer) {
  vocabulary_free(&tokenizer->vocabulary);
  pattern_free(tokenizer->pattern);
  memset(tokenizer, 0, sizeof *tokenizer);
}
