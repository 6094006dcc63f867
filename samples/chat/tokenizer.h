/* tokenizer.h - text to tokens and back, as SmolLM2's tokenizer does it: byte-level BPE over pieces that a pattern
 * cuts (GPT-2's, and every digit alone). Any bytes are text: bytes that are no UTF-8 are kept, so that decoding gives
 * them back. Only bytes without a token of the vocabulary are left out: SmolLM2's lacks 13 that no UTF-8 has, two that
 * Unicode does not need yet, and six control characters. */
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include "vocabulary.h"

struct tokenizer {
  struct vocabulary vocabulary;
  struct pattern *pattern;
};

/* A list that grows; {0} is an empty one, and tokens_free releases it. */
struct tokens {
  int32_t *ids;
  size_t count, capacity;
};

/* On failure *tokenizer is all zero and message says why. The file may be closed afterwards. */
bool tokenizer_open(const struct gguf *file, struct tokenizer *tokenizer, char message[GGUF_MESSAGE_BYTES]);
void tokenizer_close(struct tokenizer *tokenizer);

enum tokenizer_specials {
  SPECIALS_ARE_TEXT, /* "<|im_end|>" is ten characters: for what a user wrote; user-defined tokens are found in it */
  SPECIALS_ARE_TOKENS
};

/* Appends the tokens of a text. false: out of memory, and the list has some of them. Any number of threads. */
bool tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                      enum tokenizer_specials specials, struct tokens *tokens);

/* What a token stands for; nothing for one that is not in the vocabulary. */
struct gguf_text tokenizer_bytes(const struct tokenizer *tokenizer, int32_t token);
/* Is it text that a reader of an answer is shown? A control token is not, nor is one that is not in the vocabulary. */
bool tokenizer_prints(const struct tokenizer *tokenizer, int32_t token);
/* Does an answer end with it? */
bool tokenizer_ends(const struct tokenizer *tokenizer, int32_t token);
/* The special token of this text; -1 if there is none. */
int32_t tokenizer_special(const struct tokenizer *tokenizer, const char *text);

bool tokens_push(struct tokens *tokens, int32_t token);
void tokens_free(struct tokens *tokens);

#endif
