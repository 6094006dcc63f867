/* test_chat.c - the chat sample, run as a person runs it: wrong usage, answers, a conversation that it remembers, and
 * a context that is full. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "../support.h"
#include "model.h"
#include "run_chat.h"

TestSuite(chat, .fini = shell_remove_folder, .timeout = 300);

/* On the host, with the model; skips where it is not there. */
static struct ran run_model(const char *words, const char *input) {
  char all[1024];
  struct gguf file = require_model();
  gguf_close(&file);
  snprintf(all, sizeof all, "--backend host %s", words);
  return run_chat(all, input);
}

Test(chat, wrong_usage_exits_2_and_says_what_is_allowed) {
  static const char *const lines[][2] = {
      {"--tokens x", "--tokens is 'x', expected an integer from 1 to 2147483647"},
      {"--tokens", "'--tokens' is unknown or has no value"},
      {"--temperature -1", "--temperature is '-1', expected a number from 0 to 100"},
      {"--top-p 1.5", "--top-p is '1.5', expected a number from 0 to 1"},
      {"--repeat-penalty 0.5", "--repeat-penalty is '0.5', expected a number from 1 to 100"},
      {"--weights q4", "--weights is 'q4', expected bf16, e4m3 or nvfp4"},
      {"--embedding e4m3", "--embedding is 'e4m3', expected bf16 or nvfp4"},
      {"--statistics all", "--statistics is 'all', expected none, end or each"},
      {"--backend gpu", "--backend is 'gpu', expected auto, host or cuda"},
      {"--sede 1", "unknown option --sede"},
      {"--model /nonexistent.gguf", "/nonexistent.gguf: No such file or directory"},
      {"--model /dev/null", "/dev/null: is not a regular file, or is empty"},
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    struct ran ran = run_chat(lines[i][0], "");
    REQUIRE_CODE(ran, 2);
    cr_assert_str_empty(ran.out);
    cr_assert_not_null(strstr(ran.error, lines[i][1]), "%s: %s", lines[i][0], ran.error);
  }
  struct ran ran = run_chat("--help", "");
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(strncmp(ran.out, "usage: chat", 11), 0);
}

/* What the model says is all of the standard output. (Of this answer each token is well ahead of the next best; of that
 * about France the first is not.) */
/* Under the sanitizers the small model shows the same code, in seconds less. */
Test(chat, answers_a_prompt) {
  skip_under_sanitizers();
  struct ran ran = run_model("--prompt 'What is the capital of Japan?'", "");
  REQUIRE_CODE(ran, 0);
  cr_assert_str_eq(ran.out, "The capital of Japan is Tokyo.\n");
  cr_assert_not_null(strstr(ran.error, "prompt     37 tokens"), "%s", ran.error);
  cr_assert_not_null(strstr(ran.error, "p99.9"), "%s", ran.error);
  cr_assert_not_null(strstr(ran.error, "opened     in "), "%s", ran.error);
}

Test(chat, says_that_an_answer_could_not_be_written) {
  struct gguf_writer writer = {0};
  struct ran ran = run_small_model(&writer, ">/dev/full");
  REQUIRE_CODE(ran, 2);
  cr_assert_not_null(strstr(ran.error, "standard output: No space left on device"), "%s", ran.error);
}

/* Its own <|im_end|> never comes. */
Test(chat, ends_an_answer_at_any_end) {
  enum { CONTROL = 3, A = 'a', B, C, EXTRA = SMALL_TOKENS };
  struct gguf_writer writer = {0};
  struct ran ran = run_saying_model(&writer, (const int32_t[]){A, B, C}, 3, "--tokens 5");
  REQUIRE_CODE(ran, 0);
  cr_assert_str_eq(ran.out, "abcab\n");
  gguf_write_u32(&writer, "tokenizer.ggml.eot_token_id", C);
  ran = run_saying_model(&writer, (const int32_t[]){A, B, C}, 3, "--tokens 5");
  REQUIRE_CODE(ran, 0);
  cr_assert_str_eq(ran.out, "ab\n");
  writer = (struct gguf_writer){.extra_texts = {"<|endoftext|>"}, .extra_kinds = {CONTROL}, .extra_count = 1};
  ran = run_saying_model(&writer, (const int32_t[]){A, EXTRA, C}, 3, "--tokens 5");
  REQUIRE_CODE(ran, 0);
  cr_assert_str_eq(ran.out, "a\n");
}

Test(chat, prints_user_defined_tokens) {
  enum { USER_DEFINED = 4, EXTRA = SMALL_TOKENS };
  struct gguf_writer writer = {.extra_texts = {"<think>"}, .extra_kinds = {USER_DEFINED}, .extra_count = 1};
  struct ran ran = run_saying_model(&writer, (const int32_t[]){EXTRA, 'a', SMALL_END}, 3, "");
  REQUIRE_CODE(ran, 0);
  cr_assert_str_eq(ran.out, "<think>a\n");
}

/* A terminal is steered by some, and a reader of a file or a pipe may show it on one. */
Test(chat, writes_no_control_codes_that_a_model_says) {
  struct gguf_writer writer = {0};
  static const int32_t said[] = {'a', 27, '[', '2', 'J', 13, 0, 7, '\t', 0xc2, 0x9b, 'b', SMALL_END};
  struct ran ran = run_saying_model(&writer, said, sizeof said / sizeof *said, "");
  REQUIRE_CODE(ran, 0);
  cr_assert_str_eq(ran.out, "a\xef\xbf\xbd[2J\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\t\xef\xbf\xbd"
                            "b\n");
}

/* Of two times the shorter is the median: it is no shorter than half of them. (They may look alike, so that there are
 * several runs.) */
Test(chat, has_figures_that_so_many_tokens_do_not_exceed) {
  double median = 0, most = 0;
  for (int run = 0; run < 20 && median == most; run++) {
    struct gguf_writer writer = {0};
    struct ran ran = run_small_model(&writer, "--tokens 3");
    const char *figures = strstr(ran.error, "answer     2 tokens");
    REQUIRE_CODE(ran, 0);
    cr_assert_not_null(figures, "%s", ran.error);
    cr_assert_eq(sscanf(strstr(figures, "p50"), "p50 %lf us, p99 %lf us", &median, &most), 2, "%s", figures);
  }
  cr_assert_lt(median, most);
}

/* Cutting an answer and a prompt of several chunks change nothing of what was said before. */
Test(chat, ends_an_answer_after_so_many_tokens) {
  skip_under_sanitizers();
  struct ran ran = run_model("--tokens 5 --prompt 'What is the capital of Japan?'", "");
  REQUIRE_CODE(ran, 0);
  cr_assert_str_eq(ran.out, "The capital of Japan is\n");
}

/* What is drawn depends on the seed alone. */
Test(chat, draws_the_same_answer_from_the_same_seed) {
  static char first[SHELL_TEXT_BYTES];
  for (int run = 0; run < 3; run++) {
    struct gguf_writer writer = {0};
    char words[128];
    snprintf(words, sizeof words, "--temperature 1 --seed %d --tokens 100", run / 2);
    struct ran ran = run_small_model(&writer, words);
    REQUIRE_CODE(ran, 0);
    if (run == 0) snprintf(first, sizeof first, "%s", ran.out);
    cr_assert_eq(strcmp(ran.out, first) == 0, run < 2, "%s", ran.out);
  }
}

/* The second answer needs the first message; after /new the first answer comes again. */
Test(chat, keeps_the_conversation_until_it_is_told_to_forget) {
  skip_under_sanitizers();
  static const char message[] = "What is the capital of Japan?";
  char input[256];
  snprintf(input, sizeof input, "%s\nAnd of Italy?\n/new\n%s\n", message, message);
  struct ran ran = run_model("--tokens 12", input);
  REQUIRE_CODE(ran, 0);
  static const char first[] = "The capital of Japan is Tokyo.\n";
  cr_assert_eq(strncmp(ran.out, first, sizeof first - 1), 0, "%s", ran.out);
  cr_assert_not_null(strstr(ran.out, "Italy"), "%s", ran.out);
  cr_assert_eq(shell_occurrences(ran.out, first), 2, "%s", ran.out);
}

Test(chat, says_that_the_context_is_full) {
  skip_under_sanitizers();
  struct ran ran = run_model("--context 40 --prompt 'What is the capital of Japan?'", "");
  REQUIRE_CODE(ran, 2);
  cr_assert_str_eq(ran.out, "The capital of Japan\n"); /* 37 tokens, 3 that found room, and one that needs none */
  cr_assert_not_null(strstr(ran.error, "the context is full: 40 tokens; --context N gives more, up to"), "%s",
                     ran.error);
  static const char refusal[] =
      "the message takes 37 tokens, the context has room for 20; --context N gives more, up to ";
  ran = run_model("--context 20 --prompt 'What is the capital of Japan?'", "");
  REQUIRE_CODE(ran, 2);
  cr_assert_str_empty(ran.out);
  cr_assert_not_null(strstr(ran.error, refusal), "%s", ran.error);
  ran = run_model("--context 20", "What is the capital of Japan?\n");
  REQUIRE_CODE(ran, 2);
  cr_assert_str_empty(ran.out);
  cr_assert_not_null(strstr(ran.error, refusal), "%s", ran.error);
}

/* ---- With a small model ------------------------------------------------------------------------------------------ */

/* A conversation with it, on the host. */
static struct ran talk(const char *model, const char *words, const char *input) {
  char all[512];
  snprintf(all, sizeof all, "--backend host --model %s %s", model, words);
  return run_chat(all, input);
}

/* Of its first message. */
static size_t taken_tokens(struct ran ran) {
  const char *figure = strchr(ran.error, '[');
  size_t tokens = 0;
  cr_assert(figure && sscanf(figure, "[%zu tokens, ", &tokens) == 1, "%s", ran.error);
  return tokens;
}

/* Fifty messages in a context of 256 tokens. */
Test(chat, forgets_the_oldest_messages_of_a_full_context) {
  struct gguf_writer writer = {0};
  const char *model = write_saying_model(&writer, (const int32_t[]){'a', 'b', SMALL_END}, 3);
  char input[1024] = "";
  for (int i = 0; i < 50; i++) strcat(input, "hello the\n");
  struct ran ran = talk(model, "--statistics each", input);
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(shell_occurrences(ran.out, "ab\n"), 50, "%s", ran.out);
  cr_assert_eq(strlen(ran.out), 50 * strlen("ab\n"));
  cr_assert_gt(shell_occurrences(ran.error, "the context was full: the oldest "), 1, "%s", ran.error);
  cr_assert_eq(shell_occurrences(ran.error, " of 256 tokens of context]"), 50, "%s", ran.error);
}

/* What stays answers as a conversation that began with it. */
Test(chat, answers_behind_what_it_forgot_as_if_it_had_never_been) {
  struct gguf_writer writer = {0};
  const char *model = write_small_model(&writer);
  char input[2048] = "", long_message[201];
  memset(long_message, 'x', 200);
  long_message[200] = '\0';
  snprintf(input, sizeof input, "first\n%s\n", long_message);
  struct ran ran = talk(model, "--system s --tokens 6", input);
  REQUIRE_CODE(ran, 0);
  cr_assert_not_null(strstr(ran.error, "the context was full: the oldest message and its answer are dropped\n"), "%s",
                     ran.error);
  char both[256], *second = both;
  snprintf(both, sizeof both, "%s", ran.out);
  snprintf(input, sizeof input, "%s\n", long_message);
  ran = talk(model, "--system s --tokens 6", input);
  REQUIRE_CODE(ran, 0);
  cr_assert(strlen(both) > strlen(ran.out));
  second += strlen(both) - strlen(ran.out);
  cr_assert_str_eq(second, ran.out);
}

/* There is only the answer left that could go. */
Test(chat, cuts_an_answer_that_fills_the_context_alone) {
  struct gguf_writer writer = {0};
  const char *model = write_saying_model(&writer, (const int32_t[]){'a', 'b', 'c'}, 3);
  struct ran ran = talk(model, "--system '' --tokens 10000 --statistics each", "hello\nhello\n");
  REQUIRE_CODE(ran, 2);
  cr_assert_eq(shell_occurrences(ran.error, "the context is full: 256 tokens, and the model was trained for no more"),
               2, "%s", ran.error);
  size_t length = strlen(ran.out) / 2;
  cr_assert_eq(ran.out[length - 1], '\n');
  cr_assert_eq(memcmp(ran.out, ran.out + length, length), 0, "%s", ran.out); /* the second begins with a free context */
  cr_assert_eq(length - 1, SMALL_CONTEXT - taken_tokens(ran) + 1);           /* the last one needs no room */
}

Test(chat, goes_on_behind_a_message_that_is_too_long) {
  struct gguf_writer writer = {0};
  const char *model = write_saying_model(&writer, (const int32_t[]){'a', SMALL_END}, 2);
  char input[1024];
  memset(input, 'x', 600);
  snprintf(input + 600, sizeof input - 600, "\nhello\n");
  struct ran ran = talk(model, "", input);
  REQUIRE_CODE(ran, 2);
  cr_assert_str_eq(ran.out, "a\n");
  cr_assert_not_null(strstr(ran.error, "the context has room for 256, and the model was trained for no more"), "%s",
                     ran.error);
}

/* As Windows ends lines. */
Test(chat, takes_commands_and_messages_with_a_carriage_return) {
  struct gguf_writer writer = {0};
  const char *model = write_small_model(&writer);
  struct ran plain = talk(model, "--tokens 6", "hello\nthe\n/new\nhello\n");
  REQUIRE_CODE(plain, 0);
  char expected[256];
  snprintf(expected, sizeof expected, "%s", plain.out);
  struct ran ran = talk(model, "--tokens 6", "hello\r\nthe\r\n\r\n/new\r\nhello");
  REQUIRE_CODE(ran, 0);
  cr_assert_str_eq(ran.out, expected);
}

Test(chat, obeys_commands) {
  struct gguf_writer writer = {0};
  const char *model = write_saying_model(&writer, (const int32_t[]){'a', SMALL_END}, 2);
  struct ran ran = talk(model, "", "/help\n/hlep\n/etc/passwd\n/quit\nhello\n");
  REQUIRE_CODE(ran, 0);
  cr_assert_str_eq(ran.out, "a\n"); /* to the path */
  cr_assert_not_null(strstr(ran.error, "/new    forgets the conversation\n/help"), "%s", ran.error);
  cr_assert_not_null(strstr(ran.error, "unknown command /hlep; /help lists the commands\n"), "%s", ran.error);
}

/* Their tokens are counted: a line that ended at its zero would take fewer. */
Test(chat, takes_a_zero_within_a_line) {
  struct gguf_writer writer = {0};
  char line[512];
  const char *model = write_saying_model(&writer, (const int32_t[]){'a', SMALL_END}, 2);
  snprintf(line, sizeof line,
           "printf 'ab\\0cd\\n/ne\\0w\\n' | %s/samples/chat --backend host --system '' --statistics each --model %s",
           shell_root(), model);
  struct ran ran = shell_run(line);
  REQUIRE_CODE(ran, 0);
  cr_assert_str_eq(ran.out, "a\na\n");
  size_t tokens = taken_tokens(ran);
  cr_assert_eq(tokens, taken_tokens(talk(model, "--system '' --statistics each", "abxcd\n")));
}

Test(chat, says_what_each_answer_took) {
  struct gguf_writer writer = {0};
  const char *model = write_saying_model(&writer, (const int32_t[]){'a', 'b', SMALL_END}, 3);
  struct ran ran = talk(model, "--statistics none", "hello\n");
  REQUIRE_CODE(ran, 0);
  cr_assert_str_empty(ran.error);
  ran = talk(model, "--statistics each --system ''", "hello\nhello\n");
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(shell_occurrences(ran.error, "tokens, the first of the answer "), 3, "%s", ran.error);
  cr_assert_eq(shell_occurrences(ran.error, "; 2 more, "), 2, "%s", ran.error);
  cr_assert_eq(shell_occurrences(ran.error, "device     "), 1, "%s", ran.error);
}
