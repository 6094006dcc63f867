/* template.c - see template.h. A special token parts two texts, so that no merge reaches across it; between two of them
 * all is one text, "user\nHello". */
#include "template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char template_default_system[] = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";

bool template_find(const struct tokenizer *tokenizer, struct template *template) {
  *template = (struct template){tokenizer, tokenizer_special(tokenizer, "<|im_start|>"),
                                tokenizer_special(tokenizer, "<|im_end|>")};
  return template->start >= 0 && template->end >= 0;
}

static bool add_text(const struct template *template, const char *text, struct tokens *tokens) {
  return tokenizer_encode(template->tokenizer, text, strlen(text), SPECIALS_ARE_TEXT, tokens);
}

bool template_begin(const struct template *template, struct tokens *tokens) {
  int32_t begin = template->tokenizer->vocabulary.begin;
  return begin < 0 || begin == template->start || tokens_push(tokens, begin);
}

bool template_message(const struct template *template, const char *role, const char *text, struct tokens *tokens) {
  size_t bytes = strlen(role) + strlen(text) + 2;
  char *joined = malloc(bytes);
  if (!joined) return false;
  snprintf(joined, bytes, "%s\n%s", role, text);
  bool fine = tokens_push(tokens, template->start) && add_text(template, joined, tokens) &&
              tokens_push(tokens, template->end) && add_text(template, "\n", tokens);
  free(joined);
  return fine;
}

bool template_answer(const struct template *template, struct tokens *tokens) {
  return tokens_push(tokens, template->start) && add_text(template, "assistant\n", tokens);
}

bool template_ends(const struct template *template, int32_t token) {
  return token == template->end || tokenizer_ends(template->tokenizer, token);
}

bool template_answered(const struct template *template, int32_t last, struct tokens *tokens) {
  return (template_ends(template, last) || tokens_push(tokens, last)) && tokens_push(tokens, template->end) &&
         add_text(template, "\n", tokens);
}
