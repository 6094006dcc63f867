/* template.c - a conversation as tokens (template.h). Tokens never merge across a special token. All text between two
 * special tokens is encoded as one text, such as "user\nHello". */
#include "template.h"

#include <stdlib.h>
#include <string.h>

const char template_default_system[] = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";

bool template_find(const struct tokenizer *tokenizer, struct template *template) {
  *template = (struct template){tokenizer, tokenizer_special(tokenizer, "<|im_start|>"),
                                tokenizer_special(tokenizer, "<|im_end|>")};
  return template->start >= 0 && template->end >= 0;
}

static bool add_text(const struct template *template, const char *text, size_t bytes, struct tokens *tokens) {
  return tokenizer_encode(template->tokenizer, text, bytes, SPECIALS_ARE_TEXT, tokens);
}

static bool add_newline(const struct template *template, struct tokens *tokens) {
  return add_text(template, "\n", 1, tokens);
}

bool template_begin(const struct template *template, struct tokens *tokens) {
  int32_t begin = template->tokenizer->vocabulary.begin;
  return begin < 0 || begin == template->start || tokens_push(tokens, begin);
}

bool template_message(const struct template *template, const char *role, const char *text, size_t bytes,
                      struct tokens *tokens) {
  size_t role_bytes = strlen(role) + 1;
  char *joined = malloc(role_bytes + bytes);
  if (!joined) return false;
  memcpy(joined, role, role_bytes - 1);
  joined[role_bytes - 1] = '\n';
  memcpy(joined + role_bytes, text, bytes);
  bool fine = tokens_push(tokens, template->start) && add_text(template, joined, role_bytes + bytes, tokens) &&
              tokens_push(tokens, template->end) && add_newline(template, tokens);
  free(joined);
  return fine;
}

bool template_answer(const struct template *template, struct tokens *tokens) {
  static const char role[] = "assistant\n";
  return tokens_push(tokens, template->start) && add_text(template, role, sizeof role - 1, tokens);
}

bool template_ends(const struct template *template, int32_t token) {
  return token == template->end || tokenizer_ends(template->tokenizer, token);
}

bool template_answered(const struct template *template, int32_t last, struct tokens *tokens) {
  bool is_text = last >= 0 && !template_ends(template, last);
  return (!is_text || tokens_push(tokens, last)) && tokens_push(tokens, template->end) && add_newline(template, tokens);
}
