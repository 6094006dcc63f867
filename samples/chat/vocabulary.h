/* vocabulary.h - the tokens of a byte-level BPE vocabulary (GPT-2's kind) in a GGUF file: the bytes of each token, and
 * the merges of two tokens into a third, in their order. */
#ifndef VOCABULARY_H
#define VOCABULARY_H

#include "gguf.h"

struct vocabulary_token {
  const char *bytes; /* what it stands for, any bytes */
  uint32_t length;
  bool special; /* never made of text by merging: a control token such as <|im_end|>, or a user-defined one */
  bool prints;  /* a text of its own: an ordinary token or a user-defined one */
  bool ends;    /* an answer; see marks.h */
};

/* rank tells which merge goes first. */
struct vocabulary_merge {
  int32_t left, right; /* -1: no merge, in an empty place of the table */
  int32_t rank, token;
};

struct vocabulary {
  struct vocabulary_token *tokens;
  int32_t token_count;
  int32_t of_byte[256]; /* the token of a byte alone; -1: there is none */
  int32_t *specials;    /* the longest first */
  int32_t special_count;
  int32_t begin;                   /* the token that a conversation begins with; -1: none. See marks.h. */
  struct vocabulary_merge *merges; /* a hash table of a power of two of places */
  uint32_t merge_mask;
  char *bytes; /* of all tokens */
};

/* On failure *vocabulary is all zero and message says why. The file may be closed afterwards. */
bool vocabulary_read(const struct gguf *file, struct vocabulary *vocabulary, char message[GGUF_MESSAGE_BYTES]);
void vocabulary_free(struct vocabulary *vocabulary);

/* NULL if the two do not merge. */
const struct vocabulary_merge *vocabulary_merge(const struct vocabulary *vocabulary, int32_t left, int32_t right);

#endif
