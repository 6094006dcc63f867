/* test_serve_body.c - the bodies that OpenAI's clients send, and what is wrong with others. */
#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "../../samples/serve/body.h"
#include "small_tokenizer.h"

enum { MOST_TOKENS = 400 };

static struct tokenizer tokenizer;
static struct template template;

static struct body_rules open_rules(void) {
  tokenizer = open_small_tokenizer();
  cr_assert(template_find(&tokenizer, &template));
  return (struct body_rules){.template = &template, .model = "small", .most_tokens = MOST_TOKENS};
}

static struct question read_body(enum body_kind kind, const char *body) {
  struct body_rules rules = open_rules();
  struct body_fault fault;
  struct question question;
  cr_assert(body_read(&rules, kind, body, strlen(body), &question, &fault), "%s: %s", body, fault.message);
  return question;
}

static void expect_fault(enum body_kind kind, const char *body, int status, const char *field, const char *message) {
  struct body_rules rules = open_rules();
  struct body_fault fault;
  struct question question;
  cr_assert_not(body_read(&rules, kind, body, strlen(body), &question, &fault), "%s: read", body);
  cr_assert_eq(fault.status, status, "%s: %d", body, fault.status);
  cr_assert_str_eq(fault.field, field, "%s", body);
  cr_assert_str_eq(fault.message, message, "%s", body);
  cr_assert_null(question.prompt.ids);
  tokenizer_close(&tokenizer);
}

static void close_question(struct question *question) {
  question_free(question);
  tokenizer_close(&tokenizer);
}

static void put_text(const char *text, struct tokens *tokens) {
  cr_assert(tokenizer_encode(&tokenizer, text, strlen(text), SPECIALS_ARE_TEXT, tokens));
}

static void expect_prompt(const struct question *question, struct tokens *expected, const char *body) {
  cr_assert_eq(question->prompt.count, expected->count, "%s: %zu tokens", body, question->prompt.count);
  cr_assert_eq(memcmp(question->prompt.ids, expected->ids, expected->count * sizeof *expected->ids), 0, "%s", body);
  tokens_free(expected);
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"the\"}]"

Test(serve_body, gives_absent_fields_the_defaults_of_the_api) {
  static const char *const bodies[] = {
      "{" USER "}", "{\"model\":\"\",\"user\":\"me\",\"store\":[{}],\"max_tokens\":null,\"temperature\":null,\"stop\":"
                    "null,\"seed\":null,\"tools\":null,\"stream_options\":null,\"logprobs\":null," USER "}"};
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
    struct question question = read_body(BODY_CHAT, bodies[i]);
    cr_assert(question.temperature == 1 && question.top_p == 1 && question.max_tokens == 0);
    cr_assert(!question.stream && !question.with_usage && !question.with_logprobs && !question.seeded);
    cr_assert_eq(question.stop_count, 0);
    close_question(&question);
  }
}

Test(serve_body, reads_every_option) {
  struct question question =
      read_body(BODY_CHAT, "{\"model\":\"small\",\"temperature\":0.25,\"top_p\":0.5,\"seed\":-3,\"max_tokens\":7,"
                           "\"stream\":true,\"stream_options\":{\"include_usage\":true},\"logprobs\":true,"
                           "\"stop\":[\"a\\u0000b\",\"\\n\\n\"]," USER "}");
  cr_assert(question.temperature == 0.25f && question.top_p == 0.5f && question.max_tokens == 7);
  cr_assert(question.seeded && question.seed == -3);
  cr_assert(question.stream && question.with_usage && question.with_logprobs);
  cr_assert_eq(question.stop_count, 2);
  cr_assert(question.stop_bytes[0] == 3 && memcmp(question.stops[0], "a\0b", 3) == 0);
  cr_assert(question.stop_bytes[1] == 2 && memcmp(question.stops[1], "\n\n", 2) == 0);
  close_question(&question);

  question =
      read_body(BODY_COMPLETION, "{\"prompt\":\"a\",\"temperature\":0,\"logprobs\":0,\"stop\":\"end\",\"max_tokens\":"
                                 "7,\"max_completion_tokens\":2147483647,\"seed\":4294967298}");
  cr_assert(question.temperature == 0 && question.with_logprobs && question.max_tokens == INT_MAX);
  cr_assert(question.seed == 2 && question.stop_count == 1 && question.stop_bytes[0] == 3);
  close_question(&question);
}

/* Clients write the defaults of fields that this server lacks. */
Test(serve_body, takes_a_field_that_it_lacks_if_it_changes_nothing) {
  struct question question =
      read_body(BODY_CHAT, "{\"n\":1,\"frequency_penalty\":0.0,\"presence_penalty\":0,\"logit_bias\":{},\"tools\":[],"
                           "\"tool_choice\":\"none\",\"functions\":[],\"function_call\":\"none\",\"top_logprobs\":0,"
                           "\"response_format\":{\"type\":\"text\"},\"echo\":true," USER "}");
  close_question(&question);
  question = read_body(BODY_COMPLETION, "{\"prompt\":\"a\",\"n\":1.0,\"best_of\":1,\"echo\":false,\"suffix\":\"\","
                                        "\"tools\":[{}]}");
  close_question(&question);
}

Test(serve_body, refuses_a_field_that_it_lacks) {
  static const struct {
    enum body_kind kind;
    const char *field, *value, *only;
  } cases[] = {
      {BODY_CHAT, "n", "2", "1"},
      {BODY_CHAT, "tools", "[{\"type\":\"function\"}]", "[]"},
      {BODY_CHAT, "tool_choice", "\"auto\"", "\"none\""},
      {BODY_CHAT, "functions", "[{}]", "[]"},
      {BODY_CHAT, "function_call", "\"auto\"", "\"none\""},
      {BODY_CHAT, "response_format", "{\"type\":\"json_object\"}", "{\"type\":\"text\"}"},
      {BODY_CHAT, "top_logprobs", "2", "0"},
      {BODY_CHAT, "frequency_penalty", "0.5", "0"},
      {BODY_COMPLETION, "presence_penalty", "-1", "0"},
      {BODY_COMPLETION, "logit_bias", "{\"7\":100}", "{}"},
      {BODY_COMPLETION, "best_of", "10", "1"},
      {BODY_COMPLETION, "echo", "true", "false"},
      {BODY_COMPLETION, "suffix", "\"end\"", "\"\""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char body[256], message[256];
    snprintf(body, sizeof body, "{\"%s\":%s,%s}", cases[i].field, cases[i].value,
             cases[i].kind == BODY_CHAT ? USER : "\"prompt\":\"a\"");
    snprintf(message, sizeof message, "'%s' is %s, expected %s: anything else is not supported", cases[i].field,
             cases[i].value, cases[i].only);
    expect_fault(cases[i].kind, body, 400, cases[i].field, message);
  }
}

Test(serve_body, says_what_is_wrong_with_an_option) {
  static const struct {
    const char *field, *value, *message;
  } cases[] = {
      {"temperature", "2.5", "'temperature' is 2.5, expected a number from 0 to 2"},
      {"temperature", "-1", "'temperature' is -1, expected a number from 0 to 2"},
      {"temperature", "\"0\"", "'temperature' is \"0\", expected a number from 0 to 2"},
      {"top_p", "0", "'top_p' is 0, expected a number above 0 and at most 1"},
      {"top_p", "1e-300", "'top_p' is 1e-300, expected a number above 0 and at most 1"},
      {"top_p", "1.25", "'top_p' is 1.25, expected a number above 0 and at most 1"},
      {"seed", "1.5", "'seed' is 1.5, expected an integer"},
      {"max_tokens", "0", "'max_tokens' is 0, expected an integer from 1 to 2147483647"},
      {"max_tokens", "2147483648", "'max_tokens' is 2147483648, expected an integer from 1 to 2147483647"},
      {"max_completion_tokens", "\"9\"", "'max_completion_tokens' is \"9\", expected an integer from 1 to 2147483647"},
      {"stream", "1", "'stream' is 1, expected true or false"},
      {"stream_options", "true", "'stream_options' is true, expected an object"},
      {"logprobs", "2", "'logprobs' is 2, expected 0 or 1: those of the drawn tokens"},
      {"logprobs", "true", "'logprobs' is true, expected 0 or 1: those of the drawn tokens"},
      {"stop", "\"\"", "'stop' is \"\", expected a string of 1 to 127 bytes, or an array of them"},
      {"stop", "{}", "'stop' is {}, expected a string of 1 to 127 bytes, or an array of them"},
      {"stop", "[1,2,3,4,5]", "'stop' is [1,2,3,4,5], expected at most 4 strings"},
      {"model", "7", "'model' is 7, expected a string"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char body[256];
    snprintf(body, sizeof body, "{\"prompt\":\"a\",\"%s\":%s}", cases[i].field, cases[i].value);
    expect_fault(BODY_COMPLETION, body, 400, cases[i].field, cases[i].message);
  }
  expect_fault(BODY_COMPLETION, "{\"stop\":[\"a\",1]}", 400, "stop[1]",
               "'stop[1]' is 1, expected a string of 1 to 127 bytes, or an array of them");
  expect_fault(BODY_COMPLETION, "{\"stream_options\":{\"include_usage\":0}}", 400, "stream_options.include_usage",
               "'stream_options.include_usage' is 0, expected true or false");
  expect_fault(BODY_CHAT, "{\"logprobs\":1}", 400, "logprobs", "'logprobs' is 1, expected true or false");
  expect_fault(BODY_CHAT, "{\"model\":\"gpt-4o\"," USER "}", 404, "model",
               "The model `gpt-4o` does not exist or you do not have access to it.");
}

Test(serve_body, takes_stop_strings_of_127_bytes_and_no_longer_ones) {
  for (size_t bytes = 127; bytes <= 128; bytes++) {
    char body[256];
    snprintf(body, sizeof body, "{\"prompt\":\"a\",\"stop\":\"%0*d\"}", (int)bytes, 0);
    if (bytes == 127) {
      struct question question = read_body(BODY_COMPLETION, body);
      cr_assert_eq(question.stop_bytes[0], 127);
      close_question(&question);
    } else {
      expect_fault(BODY_COMPLETION, body, 400, "stop",
                   "'stop' is \"00000000000000000000000000000000000000000000000000000000000..., expected a string of 1 "
                   "to 127 bytes, or an array of them");
    }
  }
}

/* ---- Prompts ----------------------------------------------------------------------------------------------------- */

/* What the chat sample makes of the same turns: it keeps the tokens of an answer as the model gave them. */
Test(serve_body, makes_the_tokens_of_the_chat_samples_conversation) {
  static const char body[] =
      "{\"messages\":[{\"role\":\"developer\",\"content\":\"Hell.\"},"
      "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"t\"},{\"type\":\"text\",\"text\":\"he<|im_end|>\"}"
      "]},"
      "{\"role\":\"assistant\",\"content\":\"\\nthe<|im_end|>\"},{\"role\":\"user\",\"content\":\"\"}]}";
  struct question question = read_body(BODY_CHAT, body);
  struct tokens expected = {0};
  cr_assert(template_begin(&template, &expected) && template_message(&template, "system", "Hell.", 5, &expected));
  cr_assert(template_message(&template, "user", "the<|im_end|>", 13, &expected));
  cr_assert(template_answer(&template, &expected));
  put_text("\nthe<|im_end|>", &expected);
  cr_assert(template_answered(&template, SMALL_END, &expected));
  cr_assert(template_message(&template, "user", "", 0, &expected) && template_answer(&template, &expected));
  expect_prompt(&question, &expected, body);
  close_question(&question);
}

Test(serve_body, begins_with_the_default_system_message_as_the_chat_sample_does) {
  struct question question = read_body(BODY_CHAT, "{" USER "}");
  struct tokens expected = {0};
  cr_assert(template_message(&template, "system", template_default_system, strlen(template_default_system), &expected));
  cr_assert(template_message(&template, "user", "the", 3, &expected) && template_answer(&template, &expected));
  expect_prompt(&question, &expected, USER);
  close_question(&question);
}

Test(serve_body, says_what_is_wrong_with_messages) {
  static const struct {
    const char *messages, *field, *message;
  } cases[] = {
      {"[]", "messages", "'messages' is [], expected an array of at least one message"},
      {"\"hello\"", "messages", "'messages' is \"hello\", expected an array of at least one message"},
      {"[7]", "messages[0].role",
       "'messages[0].role' is missing, expected \"system\", \"developer\", \"user\" or \"assistant\""},
      {"[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"tool\",\"content\":\"a\"}]", "messages[1].role",
       "'messages[1].role' is \"tool\", expected \"system\", \"developer\", \"user\" or \"assistant\""},
      {"[{\"role\":\"user\"}]", "messages[0].content",
       "'messages[0].content' is missing, expected a string, or an array of {\"type\": \"text\", \"text\": string}"},
      {"[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]", "messages[0].content",
       "'messages[0].content' is [{\"type\":\"image_url\"}], expected a string, or an array of {\"type\": \"text\", "
       "\"text\": string}"},
      {"[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"a\"}]", "messages",
       "the last message is the assistant's, expected one that it answers"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char body[256];
    snprintf(body, sizeof body, "{\"messages\":%s}", cases[i].messages);
    expect_fault(BODY_CHAT, body, 400, cases[i].field, cases[i].message);
  }
  expect_fault(BODY_CHAT, "{}", 400, "messages", "'messages' is missing, expected an array of at least one message");
}

/* A special token in a text is text; among ids it is the token. */
Test(serve_body, takes_a_prompt_as_text_or_as_ids) {
  static const char *const texts[] = {"{\"prompt\":\"the<|im_end|>\"}", "{\"prompt\":[\"the<|im_end|>\"]}"};
  static const char *const ids[] = {"{\"prompt\":[258,278]}", "{\"prompt\":[[258,278]]}"};
  for (int i = 0; i < 2; i++) {
    struct question question = read_body(BODY_COMPLETION, texts[i]);
    struct tokens expected = {0};
    put_text("the<|im_end|>", &expected);
    expect_prompt(&question, &expected, texts[i]);
    close_question(&question);
    question = read_body(BODY_COMPLETION, ids[i]);
    cr_assert(tokens_push(&expected, 258) && tokens_push(&expected, SMALL_END));
    expect_prompt(&question, &expected, ids[i]);
    close_question(&question);
  }
}

Test(serve_body, begins_a_text_as_the_file_says_but_not_ids) {
  struct gguf_writer writer = {0};
  gguf_write_u32(&writer, "tokenizer.ggml.bos_token_id", 42);
  gguf_write_value(&writer, "tokenizer.ggml.add_bos_token", GGUF_BOOL, "\1", 1);
  struct tokenizer written = open_written_tokenizer(&writer);
  struct template marks;
  cr_assert(template_find(&written, &marks));
  struct body_rules rules = {.template = &marks, .model = "small", .most_tokens = MOST_TOKENS};
  static const char *const bodies[] = {"{\"prompt\":\"\"}", "{\"prompt\":\"the\"}", "{\"prompt\":[258]}"};
  for (size_t i = 0; i < 3; i++) {
    struct question question;
    struct body_fault fault;
    cr_assert(body_read(&rules, BODY_COMPLETION, bodies[i], strlen(bodies[i]), &question, &fault), "%s", fault.message);
    cr_assert_eq(question.prompt.count, i == 1 ? 2 : 1);
    cr_assert_eq(question.prompt.ids[0], i == 2 ? 258 : 42);
    question_free(&question);
  }
  tokenizer_close(&written);
}

Test(serve_body, says_what_is_wrong_with_a_prompt) {
  static const char expected[] = "expected one string, or an array of the ids of tokens";
  static const struct {
    const char *prompt, *field, *message;
  } cases[] = {
      {"7", "prompt", "'prompt' is 7, "},
      {"[\"a\",\"b\"]", "prompt", "'prompt' is [\"a\",\"b\"], "},
      {"[[[1]]]", "prompt[0]", "'prompt[0]' is [1], expected the id of a token, from 0 to 278"},
      {"[5,279]", "prompt[1]", "'prompt[1]' is 279, expected the id of a token, from 0 to 278"},
      {"[5,-1]", "prompt[1]", "'prompt[1]' is -1, expected the id of a token, from 0 to 278"},
      {"[5,\"a\"]", "prompt[1]", "'prompt[1]' is \"a\", expected the id of a token, from 0 to 278"},
      {"\"\"", "prompt", "'prompt' is \"\", expected at least one token"},
      {"[]", "prompt", "'prompt' is [], expected at least one token"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char body[256], message[256];
    snprintf(body, sizeof body, "{\"prompt\":%s}", cases[i].prompt);
    snprintf(message, sizeof message, "%s%s", cases[i].message, i < 2 ? expected : "");
    expect_fault(BODY_COMPLETION, body, 400, cases[i].field, message);
  }
}

Test(serve_body, refuses_a_prompt_with_more_tokens_than_there_is_room_for) {
  for (int count = MOST_TOKENS; count <= MOST_TOKENS + 1; count++) {
    char body[2048];
    snprintf(body, sizeof body, "{\"prompt\":\"%0*d\"}", count, 0); /* each 0 is a token */
    if (count == MOST_TOKENS) {
      struct question question = read_body(BODY_COMPLETION, body);
      cr_assert_eq(question.prompt.count, MOST_TOKENS);
      close_question(&question);
    } else {
      expect_fault(BODY_COMPLETION, body, 413, "prompt", "'prompt' has more than 400 tokens");
    }
  }
}

Test(serve_body, refuses_a_text_that_is_longer_than_its_tokens_may_be) {
  static const char *const bodies[] = {"{\"prompt\":\"%s\"}", "{\"content\":\"%s\"}",
                                       "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}"};
  static const char *const fields[] = {"prompt", "content", "messages"};
  const enum body_kind kinds[] = {BODY_COMPLETION, BODY_TOKENIZE, BODY_CHAT};
  open_rules();
  const size_t most = (size_t)MOST_TOKENS * tokenizer.vocabulary.longest;
  tokenizer_close(&tokenizer);
  char *text = calloc(1, most + 2), *body = malloc(most + 128), message[128];
  memset(text, 'q', most);
  for (int i = 0; i < 3; i++) {
    text[most] = 0;
    sprintf(body, bodies[i], text);
    snprintf(message, sizeof message, "'%s' has more than 400 tokens", fields[i]);
    expect_fault(kinds[i], body, 413, fields[i], message);
    text[most] = 'q';
    sprintf(body, bodies[i], text);
    snprintf(message, sizeof message, "'%s' has %zu bytes, more than 400 tokens have", fields[i], most + 1);
    expect_fault(kinds[i], body, 413, fields[i], message);
  }
  free(text);
  free(body);
}

/* With every amount of memory up to what a body takes it is refused with 500, and then it is read, or refused for
 * itself. */
Test(serve_body, needs_memory_for_its_json) {
  static const char *const bodies[] = {
      "{\"prompt\":\"the\",\"a\":[1,{\"b\":[[],{}]},\"text\"],\"max_tokens\":7,\"logit_bias\":{},\"stop\":[\"a\",\"b\"]"
      "}",
      "{\"prompt\":\"the\",\"a\":-0.00000000000000000000000000000000000000000000000000000012345678901234567890e-30}",
      "{\"prompt\":\"the\",\"a\":11111111111111111111111111111111111111111111111111111111111111111111111111}",
      "{\"prompt\":\"the\",\"temperature\":[\"a value that has to be shown, and so takes memory once more\",1.5]}"};
  struct body_rules rules = open_rules();
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
    struct body_fault fault = {.status = 500};
    int32_t refused = 0;
    for (rules.most_memory = 1; fault.status == 500; rules.most_memory += 16) {
      struct question question;
      if (body_read(&rules, BODY_COMPLETION, bodies[i], strlen(bodies[i]), &question, &fault))
        cr_assert_eq(question.prompt.count, 1);
      question_free(&question);
      cr_assert(fault.status == 0 || fault.status == 400 || fault.status == 500, "%d", fault.status);
      refused += fault.status == 500;
      if (fault.status == 500) cr_assert_str_eq(fault.message, "no memory for the body");
    }
    cr_assert_eq(fault.status, i < 2 ? 0 : 400, "%s: %d, %s", bodies[i], fault.status, fault.message);
    cr_assert_gt(refused, 20);
  }
  tokenizer_close(&tokenizer);
}

Test(serve_body, gives_the_tokens_of_a_text_to_tokenize) {
  static const char *const bodies[] = {"{\"content\":\"a the\",\"temperature\":9}", "{\"prompt\":\"a the\"}"};
  for (int i = 0; i < 2; i++) {
    struct question question = read_body(BODY_TOKENIZE, bodies[i]);
    cr_assert(question.prompt.count == 2 && question.prompt.ids[0] == 'a' && question.prompt.ids[1] == 259);
    close_question(&question);
  }
  struct question question = read_body(BODY_TOKENIZE, "{\"content\":\"\"}");
  cr_assert_eq(question.prompt.count, 0);
  close_question(&question);
  expect_fault(BODY_TOKENIZE, "{\"content\":[1]}", 400, "content", "'content' is [1], expected a string");
  expect_fault(BODY_TOKENIZE, "{}", 400, "prompt", "'prompt' is missing, expected a string");
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

Test(serve_body, says_where_a_body_is_no_json) {
  expect_fault(BODY_CHAT, "{\"n\":1,\n \"n\":2}", 400, "",
               "the body is no JSON: line 2, column 4: duplicate object key near '\"n\"'");
  expect_fault(BODY_CHAT, "{\"n\":}", 400, "", "the body is no JSON: line 1, column 6: unexpected token near '}'");
  expect_fault(BODY_CHAT, "[]", 400, "", "the body is an array, expected an object");
  struct body_rules rules = open_rules();
  struct question question;
  struct body_fault fault;
  cr_assert_not(body_read(&rules, BODY_CHAT, "", 0, &question, &fault) || fault.status != 400);
  cr_assert_not(body_read(&rules, BODY_CHAT, "{\"\xff\":1}", 7, &question, &fault) || fault.status != 400);
  char deep[5000];
  memset(deep, '[', sizeof deep);
  cr_assert_not(body_read(&rules, BODY_CHAT, deep, sizeof deep, &question, &fault) || fault.status != 400);
  tokenizer_close(&tokenizer);
}
