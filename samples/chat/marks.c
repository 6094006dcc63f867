/* marks.c - the special tokens of a file (marks.h). */
#include "marks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Texts of tokens that end an answer, besides those of the file's keys: a model whose key names <|im_end|> may also end
 * an answer with <|endoftext|>. */
static const char *const end_texts[] = {
    "<|endoftext|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|end_of_text|>",
    "</s>",
    "<end_of_utterance>",
    "<eos>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    /* DeepSeek's, in UTF-8 */
    "<\357\275\234end\342\226\201of\342\226\201sentence\357\275\234>",
};

static bool ends_by_text(const struct vocabulary_token *token) {
  if (!token->special || token->prints) return false;
  for (size_t i = 0; i < sizeof end_texts / sizeof *end_texts; i++)
    if (strlen(end_texts[i]) == token->length && memcmp(end_texts[i], token->bytes, token->length) == 0) return true;
  return false;
}

/* *token is -1 if the file does not have the key. */
static bool read_token(const struct gguf *file, const char *key, const struct vocabulary *vocabulary, int32_t *token,
                       char message[GGUF_MESSAGE_BYTES]) {
  int64_t number;
  *token = -1;
  if (!gguf_find(file, key)) return true;
  if (!gguf_integer(file, key, &number, message)) return false;
  if (number < vocabulary->token_count) {
    *token = (int32_t)number;
    return true;
  }
  snprintf(message, GGUF_MESSAGE_BYTES, "%.120s: %s is %" PRId64 ", but the vocabulary has %" PRId32 " tokens",
           file->path, key, number, vocabulary->token_count);
  return false;
}

/* *flag is false if the file does not have the key. */
static bool read_flag(const struct gguf *file, const char *key, bool *flag, char message[GGUF_MESSAGE_BYTES]) {
  const struct gguf_entry *entry = gguf_find(file, key);
  *flag = false;
  if (!entry) return true;
  if (entry->kind != GGUF_BOOL || entry->is_array) {
    snprintf(message, GGUF_MESSAGE_BYTES, "%.120s: the type of %s is not bool", file->path, key);
    return false;
  }
  *flag = gguf_element(entry, 0) != 0;
  return true;
}

/* Checks the keys that would change the tokens of a text. */
static bool asks_for_nothing_else(const struct gguf *file, char message[GGUF_MESSAGE_BYTES]) {
  static const char *const refused[][2] = {
      {"tokenizer.ggml.add_eos_token", "an end token after a text is not supported"},
      {"tokenizer.ggml.add_sep_token", "separators between texts are not supported"},
      {"tokenizer.ggml.add_space_prefix", "a space before a text is not supported"},
      {"tokenizer.ggml.remove_extra_whitespaces", "removing spaces is not supported"},
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    bool flag;
    if (!read_flag(file, refused[i][0], &flag, message)) return false;
    if (!flag) continue;
    snprintf(message, GGUF_MESSAGE_BYTES, "%.120s: %s is true, expected false: %s", file->path, refused[i][0],
             refused[i][1]);
    return false;
  }
  return true;
}

static bool read_begin(const struct gguf *file, struct vocabulary *vocabulary, char message[GGUF_MESSAGE_BYTES]) {
  static const char flag_key[] = "tokenizer.ggml.add_bos_token", token_key[] = "tokenizer.ggml.bos_token_id";
  bool flag;
  int32_t token;
  if (!read_flag(file, flag_key, &flag, message) || !read_token(file, token_key, vocabulary, &token, message))
    return false;
  if (flag && token < 0)
    snprintf(message, GGUF_MESSAGE_BYTES, "%.120s: %s is true, but the file has no %s", file->path, flag_key,
             token_key);
  if (flag) vocabulary->begin = token;
  return !flag || token >= 0;
}

bool marks_read(const struct gguf *file, struct vocabulary *vocabulary, char message[GGUF_MESSAGE_BYTES]) {
  static const char *const end_keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                         "tokenizer.ggml.eom_token_id"};
  for (int32_t i = 0; i < vocabulary->token_count; i++)
    vocabulary->tokens[i].ends = ends_by_text(&vocabulary->tokens[i]);
  for (size_t i = 0; i < sizeof end_keys / sizeof *end_keys; i++) {
    int32_t token;
    if (!read_token(file, end_keys[i], vocabulary, &token, message)) return false;
    if (token >= 0) vocabulary->tokens[token].ends = true;
  }
  return read_begin(file, vocabulary, message) && asks_for_nothing_else(file, message);
}
