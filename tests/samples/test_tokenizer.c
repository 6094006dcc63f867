/* test_tokenizer.c - the chat sample's tokens against those of Hugging Face's tokenizers on SmolLM2's vocabulary
 * (tests/model/tokenizer_vectors.txt). Any bytes survive, long texts take time in proportion, and UTF-8 that is cut
 * between two tokens comes out whole. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../samples/chat/template.h"
#include "../../samples/chat/utf8.h"
#include "model.h"
#include "small_tokenizer.h"

static struct tokenizer open_tokenizer(struct gguf file) {
  struct tokenizer tokenizer;
  char message[GGUF_MESSAGE_BYTES] = "";
  cr_assert(tokenizer_open(&file, &tokenizer, message), "%s", message);
  gguf_close(&file);
  return tokenizer;
}

/* As text for a message: "1 2 3". */
static void join(const struct tokens *tokens, char *out, size_t capacity) {
  size_t used = 0;
  *out = '\0';
  for (size_t i = 0; i < tokens->count && used < capacity; i++)
    used += (size_t)snprintf(out + used, capacity - used, "%s%d", i ? " " : "", tokens->ids[i]);
}

static void expect_tokens(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                          enum tokenizer_specials specials, const char *expected) {
  static char joined[1 << 16];
  struct tokens tokens = {0};
  cr_assert(tokenizer_encode(tokenizer, text, bytes, specials, &tokens));
  join(&tokens, joined, sizeof joined);
  cr_assert_str_eq(joined, expected, "of '%.*s'", (int)bytes, text);
  tokens_free(&tokens);
}

/* ---- Against Hugging Face's tokenizers --------------------------------------------------------------------------- */

/* In place: \xNN as the byte. Returns the bytes. */
static size_t unescape(char *text) {
  char *out = text;
  for (const char *at = text; *at;) {
    unsigned byte;
    if (sscanf(at, "\\x%2x", &byte) == 1) {
      *out++ = (char)byte;
      at += 4;
    } else {
      *out++ = *at++;
    }
  }
  return (size_t)(out - text);
}

Test(tokenizer, gives_the_tokens_of_hugging_faces_tokenizers) {
  struct tokenizer tokenizer = open_tokenizer(require_model());
  FILE *vectors = require_data("tokenizer_vectors.txt");
  char *line = NULL;
  size_t capacity = 0, count = 0;
  for (ssize_t length; (length = getline(&line, &capacity, vectors)) > 0;) {
    if (line[0] == '#') continue;
    line[length - 1] = '\0';
    char *text = strchr(line, '\t'), *ids = strrchr(line, '\t');
    cr_assert(text && ids && ids > text, "a line is no vector: %s", line);
    *text++ = *ids++ = '\0';
    size_t bytes = unescape(text);
    bool special = strcmp(line, "special") == 0;
    expect_tokens(&tokenizer, text, bytes, special ? SPECIALS_ARE_TOKENS : SPECIALS_ARE_TEXT, ids);
    count++;
  }
  cr_assert_gt(count, 100);
  free(line);
  fclose(vectors);
  tokenizer_close(&tokenizer);
}

/* prompts.txt has lines "prompt TEXT" and "tokens IDS" in turn. */
Test(tokenizer, makes_a_prompt_what_the_chat_template_makes_of_it) {
  struct tokenizer tokenizer = open_tokenizer(require_model());
  FILE *prompts = require_data("prompts.txt");
  struct template template;
  cr_assert(template_find(&tokenizer, &template));
  cr_assert(template.start == 1 && template.end == 2);
  char *line = NULL, joined[4096];
  size_t capacity = 0, count = 0;
  struct tokens tokens = {0};
  for (ssize_t length; (length = getline(&line, &capacity, prompts)) > 0;) {
    line[length - 1] = '\0';
    if (strncmp(line, "prompt ", 7) == 0) {
      tokens_free(&tokens);
      cr_assert(
          template_message(&template, "system", template_default_system, strlen(template_default_system), &tokens) &&
          template_message(&template, "user", line + 7, strlen(line + 7), &tokens) &&
          template_answer(&template, &tokens));
    } else if (strncmp(line, "tokens ", 7) == 0) {
      join(&tokens, joined, sizeof joined);
      cr_assert_str_eq(joined, line + 7);
      count++;
    }
  }
  cr_assert_eq(count, 5);
  free(line);
  fclose(prompts);
  tokens_free(&tokens);
  tokenizer_close(&tokenizer);
}

/* ---- With a small vocabulary ------------------------------------------------------------------------------------- */

/* By their place in gguf_writer.c: th 256, he 257, the 258, " the" 259, hello 262, aa 265, aaaa 266, aaaaaa 267. */
Test(tokenizer, merges_the_lowest_rank_first_and_the_leftmost_of_several) {
  struct tokenizer tokenizer = open_small_tokenizer();
  expect_tokens(&tokenizer, "the", 3, SPECIALS_ARE_TEXT, "258");
  expect_tokens(&tokenizer, "a the", 5, SPECIALS_ARE_TEXT, "97 259");
  expect_tokens(&tokenizer, "hello", 5, SPECIALS_ARE_TEXT, "262");
  expect_tokens(&tokenizer, "aaaaa", 5, SPECIALS_ARE_TEXT, "266 97");
  expect_tokens(&tokenizer, "aaaaaaa", 7, SPECIALS_ARE_TEXT, "267 97");
  expect_tokens(&tokenizer, "", 0, SPECIALS_ARE_TEXT, "");
  tokenizer_close(&tokenizer);
}

/* Of a message that was written by a user. */
Test(tokenizer, takes_special_tokens_for_text_unless_told) {
  struct tokenizer tokenizer = open_small_tokenizer();
  static const char text[] = "t<|im_end|>e";
  char end[16];
  snprintf(end, sizeof end, "116 %d 101", SMALL_END);
  expect_tokens(&tokenizer, text, strlen(text), SPECIALS_ARE_TOKENS, end);
  expect_tokens(&tokenizer, text, strlen(text), SPECIALS_ARE_TEXT, "116 60 124 105 109 95 101 110 100 124 62 101");
  cr_assert_eq(tokenizer_special(&tokenizer, "<|im_end|>"), SMALL_END);
  cr_assert_eq(tokenizer_special(&tokenizer, "<|im_end|"), -1);
  cr_assert(!tokenizer_prints(&tokenizer, SMALL_START) && tokenizer_prints(&tokenizer, 258));
  cr_assert_eq(tokenizer_bytes(&tokenizer, -1).length, 0);
  cr_assert_eq(tokenizer_bytes(&tokenizer, SMALL_TOKENS).length, 0);
  tokenizer_close(&tokenizer);
}

/* A control token in a user's text would be a command; a user-defined one is text that is one token. */
Test(tokenizer, finds_user_defined_tokens_in_any_text) {
  enum { UNKNOWN = 2, USER_DEFINED = 4, THINK = SMALL_TOKENS };
  struct gguf_writer writer = {
      .extra_texts = {"<think>", "<unk>"}, .extra_kinds = {USER_DEFINED, UNKNOWN}, .extra_count = 2};
  struct tokenizer tokenizer = open_written_tokenizer(&writer);
  char expected[32];
  snprintf(expected, sizeof expected, "97 %d 258", THINK);
  expect_tokens(&tokenizer, "a<think>the", 11, SPECIALS_ARE_TEXT, expected);
  expect_tokens(&tokenizer, "a<think>the", 11, SPECIALS_ARE_TOKENS, expected);
  cr_assert(tokenizer_prints(&tokenizer, THINK) && !tokenizer_prints(&tokenizer, THINK + 1));
  struct gguf_text text = tokenizer_bytes(&tokenizer, THINK);
  cr_assert(text.length == 7 && memcmp(text.bytes, "<think>", 7) == 0);
  tokenizer_close(&tokenizer);
}

/* ---- What a file says to put around texts ------------------------------------------------------------------------ */

Test(tokenizer, knows_every_end_that_a_file_names_or_has) {
  enum { CONTROL = 3, ORDINARY = 1, EXTRA = SMALL_TOKENS };
  static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                     "tokenizer.ggml.eom_token_id"};
  for (uint32_t i = 0; i < 3; i++) {
    struct gguf_writer writer = {0};
    gguf_write_u32(&writer, keys[i], 300 - 50 + i);
    struct tokenizer tokenizer = open_written_tokenizer(&writer);
    for (int32_t token = -1; token <= SMALL_TOKENS; token++)
      cr_assert_eq(tokenizer_ends(&tokenizer, token), token == 250 + (int32_t)i || token == SMALL_END, "%d", token);
    tokenizer_close(&tokenizer);
  }
  static const char *const texts[] = {"<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    struct gguf_writer writer = {
        .extra_texts = {texts[i], "<|fim_pad|>"}, .extra_kinds = {CONTROL, CONTROL}, .extra_count = 2};
    struct tokenizer tokenizer = open_written_tokenizer(&writer);
    cr_assert(tokenizer_ends(&tokenizer, EXTRA) && !tokenizer_ends(&tokenizer, EXTRA + 1), "%s", texts[i]);
    tokenizer_close(&tokenizer);
    writer = (struct gguf_writer){.extra_texts = {"</s>"}, .extra_kinds = {ORDINARY}, .extra_count = 1}; /* of HTML */
    tokenizer = open_written_tokenizer(&writer);
    cr_assert_not(tokenizer_ends(&tokenizer, EXTRA));
    tokenizer_close(&tokenizer);
  }
}

static size_t tokens_before_a_message(uint32_t begin, uint8_t adds) {
  struct gguf_writer writer = {0};
  struct template template;
  struct tokens tokens = {0};
  gguf_write_u32(&writer, "tokenizer.ggml.bos_token_id", begin);
  gguf_write_value(&writer, "tokenizer.ggml.add_bos_token", GGUF_BOOL, &adds, 1);
  struct tokenizer tokenizer = open_written_tokenizer(&writer);
  cr_assert(template_find(&tokenizer, &template) && template_begin(&template, &tokens));
  size_t count = tokens.count;
  if (count > 0) cr_assert_eq(tokens.ids[0], (int32_t)begin);
  tokens_free(&tokens);
  tokenizer_close(&tokenizer);
  return count;
}

Test(tokenizer, begins_a_conversation_as_the_file_says) {
  cr_assert_eq(tokens_before_a_message(42, 0), 0);
  cr_assert_eq(tokens_before_a_message(42, 1), 1);
  cr_assert_eq(tokens_before_a_message(SMALL_START, 1), 0); /* the first message begins with it */
}

/* A piece of a million letters, a text of 250,000 pieces, and one of 250,000 broken characters: each would take
 * minutes if time grew with the square. */
Test(tokenizer, takes_long_texts_in_time_in_proportion, .timeout = 60) {
  struct tokenizer tokenizer = open_small_tokenizer();
  enum { LONG = 1000000 };
  static const char *const units[] = {"aaaa", "a 1\n", "\xe3\x81g\xff", "    "};
  char *text = malloc(LONG);
  for (size_t unit = 0; unit < sizeof units / sizeof *units; unit++) {
    struct tokens tokens = {0};
    for (size_t i = 0; i < LONG; i++) text[i] = units[unit][i % 4];
    cr_assert(tokenizer_encode(&tokenizer, text, LONG, SPECIALS_ARE_TOKENS, &tokens));
    size_t bytes = 0;
    for (size_t i = 0; i < tokens.count; i++) bytes += tokenizer_bytes(&tokenizer, tokens.ids[i]).length;
    cr_assert_eq(bytes, LONG);
    tokens_free(&tokens);
  }
  free(text);
  tokenizer_close(&tokenizer);
}

/* ---- UTF-8 ------------------------------------------------------------------------------------------------------- */

static void expect_stream(const char *const parts[], size_t count, const char *expected) {
  struct utf8_stream stream = {0};
  char out[256];
  size_t bytes = 0;
  for (size_t i = 0; i < count; i++) bytes += utf8_pass(&stream, parts[i], strlen(parts[i]), out + bytes);
  bytes += utf8_end(&stream, out + bytes);
  out[bytes] = '\0';
  cr_assert_str_eq(out, expected);
}
#define EXPECT_STREAM(expected, ...)                                                                                   \
  expect_stream((const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *),       \
                expected)
#define UNKNOWN "\xef\xbf\xbd"

Test(utf8, holds_a_character_back_until_it_is_whole) {
  EXPECT_STREAM("\xf0\x9f\x8e\x89!", "\xf0", "\x9f\x8e", "\x89!");
  EXPECT_STREAM("caf\xc3\xa9", "caf\xc3", "\xa9");
  struct utf8_stream stream = {0};
  char out[8];
  cr_assert_eq(utf8_pass(&stream, "\xe2\x82", 2, out), 0);
  cr_assert_eq(utf8_pass(&stream, "\xac", 1, out), 3);
  cr_assert_eq(utf8_end(&stream, out), 0);
}

/* Unicode 3.9, table 3-8 and its neighbours: one for every maximal subpart. */
Test(utf8, replaces_what_is_none) {
  EXPECT_STREAM(UNKNOWN, "\xe2\x82");
  EXPECT_STREAM(UNKNOWN "(", "\xc3", "(");
  EXPECT_STREAM(UNKNOWN UNKNOWN, "\xc0\x80");
  EXPECT_STREAM(UNKNOWN UNKNOWN UNKNOWN, "\xed\xa0\x80");
  EXPECT_STREAM(UNKNOWN UNKNOWN UNKNOWN UNKNOWN, "\xf4\x90\x80\x80");
  EXPECT_STREAM("a" UNKNOWN UNKNOWN UNKNOWN "b" UNKNOWN "c" UNKNOWN UNKNOWN "d", "a\xf1\x80\x80\xe1\x80\xc2"
                                                                                 "b\x80"
                                                                                 "c\x80\xbf"
                                                                                 "d");
}

/* ESC [ 2 J clears a screen, and so does U+009B 2 J on some; a carriage return overwrites a line. */
Test(utf8, passes_no_control_code_but_newline_and_tab) {
  EXPECT_STREAM("a\n\tb", "a\n\tb");
  EXPECT_STREAM(UNKNOWN "[2J", "\x1b[2J");
  EXPECT_STREAM(UNKNOWN "2J", "\xc2", "\x9b", "2J");
  EXPECT_STREAM("50%" UNKNOWN "100%" UNKNOWN "\n", "50%\r100%\r\n");
  EXPECT_STREAM("\xc2\xa0\xc3\x9b", "\xc2\xa0\xc3\x9b"); /* U+00A0, U+00DB */
  for (int code = 0; code < 0xa0; code++) {
    char bytes[2] = {(char)code}, out[16];
    size_t count = 1;
    struct utf8_stream stream = {0};
    if (code >= 0x80) bytes[0] = (char)0xc2, bytes[1] = (char)code, count = 2;
    bool prints = (code >= ' ' && code <= '~') || code == '\n' || code == '\t';
    size_t passed = utf8_pass(&stream, bytes, count, out);
    cr_assert(prints ? passed == 1 && out[0] == bytes[0] : passed == 3 && memcmp(out, UNKNOWN, 3) == 0, "U+%04X", code);
  }
}

/* Every first and second byte: what may begin a character is decided as the code points say. */
Test(utf8, knows_every_character) {
  for (uint32_t code = 0x80; code < 0x110000; code++) {
    if (code >= 0xd800 && code < 0xe000) continue;
    char bytes[4];
    uint32_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4, rest = code;
    for (uint32_t i = length - 1; i > 0; i--, rest >>= 6) bytes[i] = (char)(0x80 | (rest & 63));
    bytes[0] = (char)((0xf00 >> length & 0xff) | rest);
    for (uint32_t cut = 1; cut <= length; cut++) {
      struct utf8_sequence sequence = utf8_at(bytes, cut);
      cr_assert(sequence.state == (cut == length ? UTF8_WHOLE : UTF8_CUT) && sequence.length == cut, "U+%04X", code);
    }
    char put[4];
    cr_assert(utf8_code(bytes, length) == code && utf8_put(code, put) == length, "U+%04X", code);
    cr_assert_eq(memcmp(put, bytes, length), 0, "U+%04X", code);
  }
}

/* ---- Vocabularies that are wrong --------------------------------------------------------------------------------- */

static void expect_refusal(struct gguf_writer *writer, const char *fragment) {
  struct gguf_buffer bytes = gguf_write_end(writer);
  struct gguf file;
  struct tokenizer tokenizer;
  char message[GGUF_MESSAGE_BYTES] = "";
  cr_assert(gguf_parse("made.gguf", bytes.bytes, bytes.count, &file, message), "%s", message);
  cr_assert_not(tokenizer_open(&file, &tokenizer, message), "read, though '%s' was expected", fragment);
  cr_assert_not_null(strstr(message, fragment), "'%s' does not say '%s'", message, fragment);
  gguf_close(&file);
  free(bytes.bytes);
}

static void write_vocabulary(struct gguf_writer *writer, const char *pre, uint64_t token_count,
                             const char *const *tokens, const char *merge) {
  gguf_write_string(writer, "tokenizer.ggml.model", "gpt2");
  gguf_write_string(writer, "tokenizer.ggml.pre", pre);
  gguf_write_strings(writer, "tokenizer.ggml.tokens", token_count, tokens);
  gguf_write_strings(writer, "tokenizer.ggml.merges", 1, &merge);
}

Test(tokenizer, says_what_is_wrong_with_a_vocabulary) {
  static const char *const tokens[] = {"a", "b", "ab", "\xe2\x82\xac"};
  struct gguf_writer writer = {0};
  expect_refusal(&writer, "it has no tokenizer.ggml.model");
  write_vocabulary(&writer, "llama-bpe", 3, tokens, "a b");
  expect_refusal(&writer, "its tokenizer is gpt2 with the pattern llama-bpe, expected gpt2 with smollm");
  write_vocabulary(&writer, "\x1b[2Jsmollm", 3, tokens, "a b");
  expect_refusal(&writer, "with the pattern ?[2Jsmollm, expected"); /* else it clears the screen */
  write_vocabulary(&writer, "smollm", 4, tokens, "a b");
  expect_refusal(&writer, "token 3 has a character that is not one of GPT-2");
  write_vocabulary(&writer, "smollm", 3, tokens, "b a");
  expect_refusal(&writer, "merge 0 is not two tokens whose texts together");
  write_vocabulary(&writer, "smollm", 3, tokens, "ab");
  expect_refusal(&writer, "merge 0 is not two tokens whose texts together");
  write_vocabulary(&writer, "smollm", 3, tokens, "a b");
  gguf_write_array(&writer, "tokenizer.ggml.token_type", GGUF_I32, 1, "\1\0\0\0", 4);
  expect_refusal(&writer, "has a different number of token types");
}

static void expect_refused_flag(const char *key, uint32_t kind, const void *value, size_t bytes, const char *fragment) {
  struct gguf_writer writer = {0};
  gguf_write_value(&writer, key, kind, value, bytes);
  gguf_write_small_vocabulary(&writer);
  expect_refusal(&writer, fragment);
}

/* Each would make other tokens of a text than are made here. */
Test(tokenizer, refuses_a_file_that_wants_more_around_a_text) {
  static const char *const flags[] = {"add_eos_token", "add_sep_token", "add_space_prefix", "remove_extra_whitespaces"};
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
    char key[64], sentence[128];
    snprintf(key, sizeof key, "tokenizer.ggml.%s", flags[i]);
    snprintf(sentence, sizeof sentence, "made.gguf: %s is true, expected false: ", key);
    expect_refused_flag(key, GGUF_BOOL, "\1", 1, sentence);
    snprintf(sentence, sizeof sentence, "made.gguf: the type of %s is not bool", key);
    expect_refused_flag(key, GGUF_U32, "\0\0\0", 4, sentence);
    struct gguf_writer writer = {0};
    gguf_write_value(&writer, key, GGUF_BOOL, "\0", 1);
    struct tokenizer tokenizer = open_written_tokenizer(&writer);
    tokenizer_close(&tokenizer);
  }
  expect_refused_flag("tokenizer.ggml.add_bos_token", GGUF_BOOL, "\1", 1,
                      "is true, but the file has no tokenizer.ggml.bos");
  expect_refused_flag("tokenizer.ggml.eos_token_id", GGUF_U32, "\0\1\1", 4,
                      "tokenizer.ggml.eos_token_id is 65792, but the vocabulary has 279 tokens");
}
