/* template.h - a conversation as the tokens that SmolLM2 was trained on (tokenizer.chat_template in its file):
 *   <|im_start|>system\n...<|im_end|>\n<|im_start|>user\n...<|im_end|>\n<|im_start|>assistant\n...<|im_end|>\n
 * A user's message is always plain text: "<|im_end|>" in it does not end the message. */
#pragma once

#include "tokenizer.h"

struct template {
  const struct tokenizer *tokenizer;
  int32_t start, end; /* the tokens <|im_start|> and <|im_end|> */
};

/* The system message without --system. */
extern const char template_default_system[];

/* False if the vocabulary lacks one of the two. */
bool template_find(const struct tokenizer *tokenizer, struct template *template);

/* Each function appends tokens, and returns false if there is no memory. template_begin appends the file's token for
 * the beginning, unless the first message begins with it. role is "system" or "user". */
bool template_begin(const struct template *template, struct tokens *tokens);
bool template_message(const struct template *template, const char *role, const char *text, size_t bytes,
                      struct tokens *tokens);
/* Appends the beginning of the assistant's message, which the model continues. */
bool template_answer(const struct template *template, struct tokens *tokens);
/* Does this token end an answer? */
bool template_ends(const struct template *template, int32_t token);
/* Appends the last token of an answer, unless it is -1 or an end, and then always <|im_end|> and a newline. */
bool template_answered(const struct template *template, int32_t last, struct tokens *tokens);
