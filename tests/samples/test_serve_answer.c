/* test_serve_answer.c - answers as OpenAI's servers send them, where they end, and what is held back until then. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../../samples/serve/answer.h"
#include "small_tokenizer.h"

enum { ROOM = 64, HELLO = 262 };

/* One answer at a time: a test's process has no other. */
static struct tokenizer tokenizer;
static struct question question;
static struct request request;
static struct answer answer;
static int32_t ids[ROOM];
static float logprobs[ROOM];
static struct buffer out;

static void begin(enum body_kind kind, bool stream) {
  tokenizer = open_small_tokenizer();
  question = (struct question){.stream = stream};
  request = (struct request){.prompt_count = 5, .reused = 4, .answer = ids, .logprobs = logprobs};
  answer_begin(&answer, &tokenizer, &question, kind, "small", 7);
  answer.created = 1700000000;
}

static void finish(void) {
  answer_free(&answer);
  buffer_free(&out);
  tokenizer_close(&tokenizer);
}

static void say(int32_t token, float logprob) {
  int32_t index = atomic_load(&request.answered);
  cr_assert_lt(index, ROOM);
  ids[index] = token;
  logprobs[index] = logprob;
  atomic_store(&request.answered, index + 1);
}

/* Each byte is a token. */
static void say_bytes(const char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) say((uint8_t)bytes[i], 0);
}

/* What answer_read appends, as a string. */
static const char *read_answer(void) {
  buffer_drop(&out, out.count);
  answer_read(&answer, &request, &out);
  buffer_put(&out, "", 1);
  cr_assert(!out.failed && out.bytes);
  return out.bytes;
}

#define EXPECT_READ(expected) cr_assert_str_eq(read_answer(), expected)

static const char *string_of(const json_t *object, const char *field) {
  const char *string = json_string_value(json_object_get(object, field));
  return string ? string : "";
}

/* Appends the text of an object or event. */
static void join(const char *json, size_t bytes, struct buffer *text, char reason[16]) {
  json_t *object = json_loadb(json, bytes, JSON_ALLOW_NUL, NULL);
  cr_assert_not_null(object, "%.*s", (int)bytes, json);
  const json_t *choice = json_array_get(json_object_get(object, "choices"), 0);
  const json_t *message = json_object_get(choice, question.stream ? "delta" : "message");
  const json_t *content = message ? json_object_get(message, "content") : json_object_get(choice, "text");
  if (content) buffer_put(text, json_string_value(content), json_string_length(content));
  if (*string_of(choice, "finish_reason")) snprintf(reason, 16, "%s", string_of(choice, "finish_reason"));
  json_decref(object);
}

/* Reads what there is, and appends its text. */
static void read_and_join(struct buffer *text, char reason[16]) {
  buffer_drop(&out, out.count);
  answer_read(&answer, &request, &out);
  if (!question.stream) {
    if (out.count > 0) join(out.bytes, out.count, text, reason);
    return;
  }
  for (size_t at = 0; at < out.count;) {
    const char *event = out.bytes + at, *end = memmem(event, out.count - at, "\n\n", 2);
    cr_assert(end && memcmp(event, "data: ", 6) == 0);
    if (memcmp(event, "data: [DONE]", 12) != 0) join(event + 6, (size_t)(end - event) - 6, text, reason);
    at += (size_t)(end - event) + 2;
  }
}

/* ---- The JSON ---------------------------------------------------------------------------------------------------- */

#define CHUNK                                                                                                          \
  "data: {\"id\":\"chatcmpl-1700000000-7\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"               \
  "\"model\":\"small\",\"choices\":["

Test(serve_answer, streams_an_event_for_each_token_of_a_chat) {
  begin(BODY_CHAT, true);
  EXPECT_READ("");
  say(HELLO, 0);
  EXPECT_READ(CHUNK "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"hello\"},\"logprobs\":null,"
                    "\"finish_reason\":null}]}\n\n");
  EXPECT_READ("");
  say_bytes("\"\n", 2);
  EXPECT_READ(CHUNK
              "{\"index\":0,\"delta\":{\"content\":\"\\\"\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n" CHUNK
              "{\"index\":0,\"delta\":{\"content\":\"\\n\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
  cr_assert_not(answer.ended);
  atomic_store(&request.end, END_LENGTH);
  EXPECT_READ(CHUNK "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n");
  cr_assert(answer.ended && !answer.stopped && answer.status == 200);
  EXPECT_READ("");
  finish();
}

Test(serve_answer, streams_the_role_and_the_end_of_an_answer_without_tokens) {
  begin(BODY_CHAT, true);
  atomic_store(&request.end, END_STOP);
  EXPECT_READ(CHUNK "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                    "\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
  finish();
}

#define PART                                                                                                           \
  "data: {\"id\":\"cmpl-1700000000-7\",\"object\":\"text_completion\",\"created\":1700000000,\"model\":\"small\","     \
  "\"choices\":["

Test(serve_answer, streams_a_completion_and_its_usage_if_asked_for) {
  begin(BODY_COMPLETION, true);
  question.with_usage = true;
  say(HELLO, 0);
  EXPECT_READ(PART "{\"index\":0,\"text\":\"hello\",\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n");
  atomic_store(&request.end, END_STOP);
  EXPECT_READ(PART "{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":null}\n\n" PART
                   "],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1,\"total_tokens\":6,"
                   "\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n");
  finish();
}

#define USAGE                                                                                                          \
  "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,\"total_tokens\":7,"                                         \
  "\"prompt_tokens_details\":{\"cached_tokens\":4}}}"

Test(serve_answer, writes_one_object_at_the_end_without_stream) {
  begin(BODY_CHAT, false);
  say(HELLO, 0);
  EXPECT_READ("");
  say('!', 0);
  atomic_store(&request.end, END_STOP);
  EXPECT_READ("{\"id\":\"chatcmpl-1700000000-7\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":"
              "\"small\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"hello!\"},"
              "\"logprobs\":null,\"finish_reason\":\"stop\"}]," USAGE);
  cr_assert(answer.ended && answer.status == 200);
  EXPECT_READ("");
  finish();
  begin(BODY_COMPLETION, false);
  say_bytes("\0\\", 2);
  atomic_store(&request.end, END_LENGTH);
  EXPECT_READ(
      "{\"id\":\"cmpl-1700000000-7\",\"object\":\"text_completion\",\"created\":1700000000,\"model\":\"small\","
      "\"choices\":[{\"index\":0,\"text\":\"\\u0000\\\\\",\"logprobs\":null,\"finish_reason\":\"length\"}]," USAGE);
  finish();
}

/* A token that is cut has no text of its own, but its bytes; -9999 is for what JSON has no number for. */
Test(serve_answer, gives_the_logprobs_of_a_chat) {
  for (int stream = 0; stream < 2; stream++) {
    begin(BODY_CHAT, stream);
    question.with_logprobs = true;
    say(0xc3, -0.5f);
    say(0xa9, -INFINITY);
    say('a', -12.25f);
    say('b', 0);
    atomic_store(&request.end, END_STOP);
    static const char *const elements[] = {
        "{\"token\":\"\xef\xbf\xbd\",\"logprob\":-0.500000,\"bytes\":[195],\"top_logprobs\":[]}",
        "{\"token\":\"\xef\xbf\xbd\",\"logprob\":-9999.000000,\"bytes\":[169],\"top_logprobs\":[]}",
        "{\"token\":\"a\",\"logprob\":-12.250000,\"bytes\":[97],\"top_logprobs\":[]}",
        "{\"token\":\"b\",\"logprob\":0.000000,\"bytes\":[98],\"top_logprobs\":[]}"};
    const char *json = read_answer();
    for (int i = 0; i < 4; i++) {
      char expected[256];
      snprintf(expected, sizeof expected, stream ? "\"logprobs\":{\"content\":[%s]}" : "%s", elements[i]);
      cr_assert_not_null(strstr(json, expected), "%s in %s", expected, json);
    }
    finish();
  }
}

/* Offsets are in characters: a client's string has no bytes. */
Test(serve_answer, gives_the_logprobs_of_a_completion) {
  begin(BODY_COMPLETION, false);
  question.with_logprobs = true;
  say(0xe2, -0.5f);
  say(0x82, -0.5f);
  say(0xac, NAN);
  say(HELLO, -1e-7f);
  say(SMALL_END, -2);
  say('b', -3);
  atomic_store(&request.end, END_STOP);
  const char *json = read_answer();
  cr_assert_not_null(
      strstr(json, "\"logprobs\":{\"tokens\":[\"\xef\xbf\xbd\",\"\xef\xbf\xbd\",\"\xef\xbf\xbd\",\"hello\",\"\",\"b\"],"
                   "\"token_logprobs\":[-0.500000,-0.500000,-9999.000000,0.000000,-2.000000,-3.000000],"
                   "\"text_offset\":[0,0,0,1,6,6],\"top_logprobs\":null}"),
      "%s", json);
  finish();
}

Test(serve_answer, continues_the_offsets_in_a_stream) {
  begin(BODY_COMPLETION, true);
  question.with_logprobs = true;
  say(HELLO, -1);
  say('b', -3);
  const char *json = read_answer();
  cr_assert_not_null(strstr(json, "\"logprobs\":{\"tokens\":[\"hello\"],\"token_logprobs\":[-1.000000],"
                                  "\"text_offset\":[0],\"top_logprobs\":null}"));
  cr_assert_not_null(strstr(json, "\"logprobs\":{\"tokens\":[\"b\"],\"token_logprobs\":[-3.000000],"
                                  "\"text_offset\":[5],\"top_logprobs\":null}"));
  finish();
}

Test(serve_answer, ends_with_an_error_after_another_end) {
  static const struct {
    enum request_end end;
    int status;
    const char *message;
  } cases[] = {{END_LOST, 503, "the device is lost"},
               {END_CANCELLED, 503, "the request was cancelled"},
               {END_DEADLINE, 504, "the deadline passed before the answer ended"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int stream = 0; stream < 2; stream++) {
      begin(BODY_CHAT, stream);
      say(HELLO, 0);
      read_answer();
      atomic_store(&request.end, cases[i].end);
      char expected[256];
      snprintf(expected, sizeof expected,
               "%s{\"error\":{\"message\":\"%s\",\"type\":\"server_error\",\"param\":null,\"code\":null}}%s",
               stream ? "data: " : "", cases[i].message, stream ? "\n\n" : "");
      EXPECT_READ(expected);
      cr_assert(answer.ended && answer.status == cases[i].status);
      EXPECT_READ("");
      finish();
    }
}

Test(serve_answer, writes_errors_as_the_api_has_them) {
  static const struct {
    int status;
    const char *field, *rest;
  } cases[] = {
      {400, "n", "\"type\":\"invalid_request_error\",\"param\":\"n\",\"code\":null}}"},
      {404, NULL, "\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}"},
      {404, "model", "\"type\":\"invalid_request_error\",\"param\":\"model\",\"code\":\"model_not_found\"}}"},
      {413, "prompt", "\"type\":\"invalid_request_error\",\"param\":\"prompt\",\"code\":\"context_length_exceeded\"}}"},
      {413, "", "\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}"},
      {429, NULL, "\"type\":\"requests\",\"param\":null,\"code\":\"rate_limit_exceeded\"}}"},
      {500, "", "\"type\":\"server_error\",\"param\":null,\"code\":null}}"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct buffer json = {0};
    char expected[256];
    error_write(&json, cases[i].status, "it is \"x\xff\"", cases[i].field);
    buffer_put(&json, "", 1);
    snprintf(expected, sizeof expected, "{\"error\":{\"message\":\"it is \\\"x\xef\xbf\xbd\\\"\",%s", cases[i].rest);
    cr_assert_str_eq(json.bytes, expected);
    buffer_free(&json);
  }
}

Test(serve_answer, fails_as_a_whole_without_memory) {
  struct buffer *const buffers[] = {&answer.held, &answer.ready, &answer.head, &answer.lists[2]};
  for (int i = 0; i < 4; i++) {
    begin(BODY_COMPLETION, true);
    question.with_logprobs = true;
    buffer_fail(buffers[i]);
    say(HELLO, 0);
    answer_read(&answer, &request, &out);
    buffer_put(&out, "more", 4);
    cr_assert(out.failed && out.count == 0);
    finish();
  }
}

/* ---- Where it ends ----------------------------------------------------------------------------------------------- */

static void set_stops(const char *const stops[STOPS_MOST]) {
  for (question.stop_count = 0; question.stop_count < STOPS_MOST && stops[question.stop_count]; question.stop_count++) {
    question.stop_bytes[question.stop_count] = (uint32_t)strlen(stops[question.stop_count]);
    memcpy(question.stops[question.stop_count], stops[question.stop_count], strlen(stops[question.stop_count]));
  }
}

/* Says the bytes, `batch` at a time, and compares the text that has left in the end. */
static void expect_text(const char *said, const char *const stops[STOPS_MOST], int batch, enum body_kind kind,
                        bool stream, const char *expected, const char *expected_reason) {
  struct buffer text = {0};
  char reason[16] = "";
  begin(kind, stream);
  set_stops(stops);
  for (size_t at = 0, bytes = strlen(said); at < bytes; at += (size_t)batch) {
    say_bytes(said + at, bytes - at < (size_t)batch ? bytes - at : (size_t)batch);
    read_and_join(&text, reason);
  }
  atomic_store(&request.end, END_LENGTH);
  read_and_join(&text, reason);
  buffer_put(&text, "", 1);
  cr_assert_str_eq(text.bytes, expected, "of %s, %d at once", said, batch);
  cr_assert_str_eq(reason, expected_reason, "of %s, %d at once", said, batch);
  cr_assert_eq(answer.stopped, strcmp(reason, "stop") == 0);
  buffer_free(&text);
  finish();
}

Test(serve_answer, ends_before_the_stop_string_that_begins_first) {
  static const struct {
    const char *said, *stops[STOPS_MOST], *expected, *reason;
  } cases[] = {
      {"one two", {"two"}, "one ", "stop"},
      {"one two", {"x", "ne"}, "o", "stop"},
      {"one two", {"one"}, "", "stop"},
      {"one two", {"twoo"}, "one two", "length"},
      {"aab", {"ab"}, "a", "stop"},
      {"abababc", {"ababc"}, "ab", "stop"},
      {"xabcd", {"bc", "abcd"}, "x", "stop"},  /* abcd begins first, though bc is whole first */
      {"xabce", {"bc", "abcd"}, "xa", "stop"}, /* bc is whole, and abcd does not come */
      {"xabc", {"bc", "abcd"}, "xa", "stop"},  /* nor at the end */
      {"xabce", {"abcd", "bcf"}, "xabce", "length"},
      {"caf\xc3\xa9 au", {"\xc3\xa9"}, "caf", "stop"},
      {"a\xc3 b\xff", {"b\xef\xbf\xbd"}, "a\xef\xbf\xbd ", "stop"}, /* of the text that the client gets */
      {"a\n\nb", {"\n\n", "b"}, "a", "stop"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int batch = 1; batch <= 8; batch++)
      for (int way = 0; way < 4; way++)
        expect_text(cases[i].said, cases[i].stops, batch, way & 1 ? BODY_CHAT : BODY_COMPLETION, way & 2,
                    cases[i].expected, cases[i].reason);
}

/* The request still runs then: the caller cancels it. */
Test(serve_answer, ends_at_a_stop_string_before_the_request_does) {
  begin(BODY_COMPLETION, true);
  set_stops((const char *const[STOPS_MOST]){"ll"});
  say(HELLO, 0);
  say('x', 0);
  EXPECT_READ(PART "{\"index\":0,\"text\":\"he\",\"logprobs\":null,\"finish_reason\":null}]}\n\n" PART
                   "{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
  cr_assert(answer.stopped && answer.ended && answer.read == 1 && answer.status == 200);
  atomic_store(&request.end, END_CANCELLED);
  EXPECT_READ("");
  finish();
}

/* What a read lets out after each byte, parted by |. */
static void expect_pieces(const char *said, const char *const stops[STOPS_MOST], const char *expected) {
  struct buffer pieces = {0};
  char reason[16] = "";
  begin(BODY_CHAT, true);
  set_stops(stops);
  for (size_t i = 0; i < strlen(said); i++) {
    say_bytes(said + i, 1);
    read_and_join(&pieces, reason);
    buffer_put(&pieces, "|", 1);
  }
  atomic_store(&request.end, END_STOP);
  read_and_join(&pieces, reason);
  buffer_put(&pieces, "", 1);
  cr_assert_str_eq(pieces.bytes, expected);
  buffer_free(&pieces);
  finish();
}

Test(serve_answer, holds_back_only_what_may_begin_a_stop_string) {
  static const char *const stops[STOPS_MOST] = {"end", "\n\n"};
  expect_pieces("aeb", stops, "a||eb|");
  expect_pieces("eend", stops, "|e|||");
  expect_pieces("ene", stops, "||en|e");
  expect_pieces("a\nb", stops, "a||\nb|");
}

Test(serve_answer, waits_for_no_longer_stop_string_with_the_same_beginning) {
  begin(BODY_CHAT, true);
  set_stops((const char *const[STOPS_MOST]){"ab", "abc"});
  say_bytes("ab", 2);
  read_answer();
  cr_assert(answer.stopped);
  finish();
}

Test(serve_answer, holds_back_a_character_until_it_is_whole) {
  static const char *const none[STOPS_MOST] = {NULL};
  expect_pieces("a\xf0\x9f\x8e\x89!", none, "a||||\xf0\x9f\x8e\x89|!|");
  expect_pieces("\xc3(", none, "|\xef\xbf\xbd(|");
  expect_pieces("a\xe2\x82", none, "a|||\xef\xbf\xbd");
  expect_pieces("\x1b[2J\r\x7f\xc2\x9b", none, "\x1b|[|2|J|\r|\x7f||\xc2\x9b|"); /* no terminal reads it */
}

Test(serve_answer, prints_no_control_token_and_none_outside_the_vocabulary) {
  begin(BODY_COMPLETION, true);
  say(SMALL_START, 0);
  say(-1, 0);
  say(SMALL_TOKENS, 0);
  EXPECT_READ("");
  say('a', 0);
  EXPECT_READ(PART "{\"index\":0,\"text\":\"a\",\"logprobs\":null,\"finish_reason\":null}]}\n\n");
  finish();
}
