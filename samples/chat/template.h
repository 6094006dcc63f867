/* template.h - a conversation as the tokens that SmolLM2 was trained on (tokenizer.chat_template in its file):
 *   <|im_start|>system\n...<|im_end|>\n<|im_start|>user\n...<|im_end|>\n<|im_start|>assistant\n...<|im_end|>\n
 * What a user writes is text, whatever it looks like: it ends no message. */
#ifndef TEMPLATE_H
#define TEMPLATE_H

#include "tokenizer.h"

struct template {
  const struct tokenizer *tokenizer;
  int32_t start, end; /* the tokens <|im_start|> and <|im_end|> */
};

/* The system's message where there is none of the user's own. */
extern const char template_default_system[];

/* false: the vocabulary lacks the two. */
bool template_find(const struct tokenizer *tokenizer, struct template *template);

/* Each appends, and is false where memory lacks. begin: what the file wants before the first message, unless that
 * begins with it anyway. role is "system" or "user". */
bool template_begin(const struct template *template, struct tokens *tokens);
bool template_message(const struct template *template, const char *role, const char *text, size_t bytes,
                      struct tokens *tokens);
/* What makes the model answer. */
bool template_answer(const struct template *template, struct tokens *tokens);
/* Does an answer end with it? */
bool template_ends(const struct template *template, int32_t token);
/* The end of an answer from its last token on, if there is one (else -1): <|im_end|> stands after it, whichever end it
 * had, or none. */
bool template_answered(const struct template *template, int32_t last, struct tokens *tokens);

#endif
