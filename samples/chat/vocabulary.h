/* vocabulary.h - the tokens of a byte-level BPE vocabulary (GPT-2's kind) in a GGUF file: the bytes of each token, and
 * the merges of two tokens into a third, in their order. */
#pragma once

#include "gguf.h"

struct vocabulary_token {
  const char *bytes; /* its text, which may have any bytes */
  uint32_t length;
  bool special; /* not a result of merges: a control token such as <|im_end|>, or a user-defined token */
  bool prints;  /* printed in answers: an ordinary or user-defined token */
  bool ends;    /* ends an answer (marks.h) */
};

/* The merge with the lowest rank is done first. */
struct vocabulary_merge {
  int32_t left, right; /* -1 in an empty entry of the table */
  int32_t rank, token;
};

struct vocabulary {
  struct vocabulary_token *tokens;
  int32_t token_count;
  uint32_t longest;     /* the most bytes of a token */
  int32_t of_byte[256]; /* the token of a single byte, or -1 */
  int32_t *specials;    /* the longest first */
  int32_t special_count;
  int32_t begin;                   /* the first token of a conversation, or -1 (marks.h) */
  struct vocabulary_merge *merges; /* a hash table whose size is a power of two */
  uint32_t merge_mask;
  char *bytes; /* the texts of all tokens */
};

/* On failure *vocabulary is all zero, and message has the reason. The file may be closed afterwards. */
bool vocabulary_read(const struct gguf *file, struct vocabulary *vocabulary, char message[GGUF_MESSAGE_BYTES]);
void vocabulary_free(struct vocabulary *vocabulary);

/* The merge of two tokens. NULL if there is none. */
const struct vocabulary_merge *vocabulary_merge(const struct vocabulary *vocabulary, int32_t left, int32_t right);
