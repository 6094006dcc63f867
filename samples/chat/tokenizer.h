/* tokenizer.h - converts text to tokens and back, as SmolLM2's tokenizer does: byte-level BPE on pieces, which a
 * pattern cuts (GPT-2's pattern, and each digit alone). A text may have any bytes: bytes that are not UTF-8 are kept,
 * and decoding returns them. Only bytes without a token are dropped: SmolLM2's vocabulary lacks 13 bytes that never
 * occur in UTF-8, two that Unicode does not use yet, and six control characters. */
#pragma once

#include "vocabulary.h"

struct tokenizer {
  struct vocabulary vocabulary;
  struct pattern *pattern;
};

/* A growing list. {0} is an empty list; tokens_free releases it. */
struct tokens {
  int32_t *ids;
  size_t count, capacity;
  size_t most; /* an encoder stops once there are more; 0: no limit */
};

/* On failure *tokenizer is all zero, and message has the reason. The file may be closed afterwards. */
bool tokenizer_open(const struct gguf *file, struct tokenizer *tokenizer, char message[GGUF_MESSAGE_BYTES]);
void tokenizer_close(struct tokenizer *tokenizer);

enum tokenizer_specials {
  SPECIALS_ARE_TEXT, /* "<|im_end|>" is ten characters: for a user's text; user-defined tokens are still found */
  SPECIALS_ARE_TOKENS
};

/* Appends the tokens of a text, or some of them if that exceeds tokens->most. False if there is no memory; the list
 * then has some of the tokens. Any number of threads may call it. */
bool tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                      enum tokenizer_specials specials, struct tokens *tokens);

/* The text of a token; empty for a token that is not in the vocabulary. */
struct gguf_text tokenizer_bytes(const struct tokenizer *tokenizer, int32_t token);
/* Is the token printed in an answer? A control token is not, nor is a token outside the vocabulary. */
bool tokenizer_prints(const struct tokenizer *tokenizer, int32_t token);
/* Does this token end an answer? */
bool tokenizer_ends(const struct tokenizer *tokenizer, int32_t token);
/* The special token of this text; -1 if there is none. */
int32_t tokenizer_special(const struct tokenizer *tokenizer, const char *text);

bool tokens_push(struct tokens *tokens, int32_t token);
void tokens_free(struct tokens *tokens);
