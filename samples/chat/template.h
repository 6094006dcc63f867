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

/* Each appends, and is false where memory lacks. role is "system" or "user". */
bool template_message(const struct template *template, const char *role, const char *text, struct tokens *tokens);
/* What makes the model answer. */
bool template_answer(const struct template *template, struct tokens *tokens);
/* Behind an answer, whose own last token is <|im_end|> or, where it was cut, is not. */
bool template_answered(const struct template *template, bool was_cut, struct tokens *tokens);

#endif
