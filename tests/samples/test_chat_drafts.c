/* test_chat_drafts.c - the chat sample with drafted tokens, on the host: all that it prints is what it prints without
 * them. Answers end at an end, at --tokens and at the end of the context, in the middle of accepted drafts too. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "../support.h"
#include "run_chat.h"

TestSuite(chat_drafts, .fini = shell_remove_folder, .timeout = 300);

/* A conversation without drafts, and with some. */
static void require_same(const char *model, const char *words, const char *input, int code) {
  static char plain[SHELL_TEXT_BYTES];
  for (int draft = 0; draft <= 9; draft += draft < 2 ? 1 : 7) {
    char all[512];
    snprintf(all, sizeof all, "--backend host --model %s --draft %d %s", model, draft, words);
    struct ran ran = run_chat(all, input);
    REQUIRE_CODE(ran, code);
    if (draft == 0) snprintf(plain, sizeof plain, "%s", ran.out);
    cr_assert_gt(strlen(ran.out), 1);
    cr_assert_str_eq(ran.out, plain, "%d drafts", draft);
  }
}

Test(chat_drafts, end_an_answer_after_so_many_tokens) {
  struct gguf_writer writer = {0};
  const char *model = write_saying_model(&writer, (const int32_t[]){'a', 'b', 'c'}, 3);
  for (int tokens = 1; tokens <= 40; tokens += 3) {
    char words[64];
    snprintf(words, sizeof words, "--tokens %d", tokens);
    require_same(model, words, "hello\nhello\n", 0);
  }
}

Test(chat_drafts, end_an_answer_at_its_end) {
  struct gguf_writer writer = {0};
  static const int32_t said[] = {'m', 'n', 'o', 'p', 'q', 'r', 's', 't', 'u', 'v', 'w', SMALL_END};
  const char *model = write_saying_model(&writer, said, sizeof said / sizeof *said);
  require_same(model, "", "hello\nm n o p\nhello\n", 0);
}

Test(chat_drafts, fill_the_context_and_forget_messages) {
  struct gguf_writer writer = {0}, other = {0};
  char input[1024] = "";
  const char *model = write_saying_model(&writer, (const int32_t[]){'a', 'b', 'c'}, 3);
  require_same(model, "--system '' --tokens 10000", "hello\nhello\n", 2);
  model = write_saying_model(&other, (const int32_t[]){'a', 'b', SMALL_END}, 3);
  for (int i = 0; i < 50; i++) strcat(input, "hello the\n");
  require_same(model, "", input, 0);
}

Test(chat_drafts, draw_the_same_answer) {
  struct gguf_writer writer = {0};
  require_same(write_small_model(&writer), "--temperature 0.5 --seed 3 --tokens 100", "hello\nhello\n", 0);
}

/* Several tokens come at once, and the statistics count each. */
Test(chat_drafts, count_every_token) {
  struct gguf_writer writer = {0};
  struct ran ran = run_saying_model(&writer, (const int32_t[]){'a', 'b', 'c'}, 3, "--draft 9 --tokens 100");
  REQUIRE_CODE(ran, 0);
  cr_assert_eq(strlen(ran.out), 101);
  cr_assert_not_null(strstr(ran.error, "answer     99 tokens after the first"), "%s", ran.error);
}
