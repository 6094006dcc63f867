/* fuzz_serve.c - any bytes as the body of a request, and any tokens as the answer to it. A body is refused with a
 * sentence, or it is a question within the limits. The JSON of an answer parses. Its text is that of the tokens up to
 * the first stop string, as one object and as a stream, however the tokens arrive.
 *
 * An input is a byte of choices, a body, a zero, and a byte for each token. */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../samples/serve/answer.h"
#include "../samples/small_tokenizer.h"

enum { MOST_BYTES = 1024, MOST_PROMPT = 1000 };

static struct tokenizer tokenizer;
static struct template template;

static void require(bool condition, const char *what) {
  if (condition) return;
  fprintf(stderr, "fuzz_serve: %s\n", what);
  abort();
}

static json_t *parse(const char *json, size_t bytes) {
  json_t *value = json_loadb(json, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
  require(value, "written JSON does not parse");
  return value;
}

/* ---- Bodies ------------------------------------------------------------------------------------------------------ */

static void check_fault(const struct body_fault *fault) {
  require(fault->status == 400 || fault->status == 404 || fault->status == 413, "a fault without a status");
  require(*fault->message && memchr(fault->message, '\0', sizeof fault->message), "a fault without a sentence");
  require(memchr(fault->field, '\0', sizeof fault->field), "a field without an end");
  struct buffer error = {0};
  error_write(&error, fault->status, fault->message, fault->field);
  json_t *value = parse(error.bytes, error.count);
  require(json_string_length(json_object_get(json_object_get(value, "error"), "message")) > 0, "no message");
  json_decref(value);
  buffer_free(&error);
}

static void check_question(const struct question *question, enum body_kind kind) {
  require(kind == BODY_TOKENIZE || (question->prompt.count > 0 && question->prompt.count <= MOST_PROMPT),
          "the number of the prompt's tokens");
  for (size_t i = 0; i < question->prompt.count; i++)
    require(question->prompt.ids[i] >= 0 && question->prompt.ids[i] < SMALL_TOKENS, "a token that is none");
  require(question->temperature >= 0 && question->temperature <= 2, "temperature");
  require(question->top_p > 0 && question->top_p <= 1, "top_p");
  require(question->max_tokens >= 0 && question->max_tokens <= INT32_MAX, "max_tokens");
  require(question->stop_count >= 0 && question->stop_count <= STOPS_MOST, "the number of stop strings");
  for (int i = 0; i < question->stop_count; i++)
    require(question->stop_bytes[i] > 0 && question->stop_bytes[i] < STOP_BYTES_MOST, "the bytes of a stop string");
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

struct said {
  int32_t ids[MOST_BYTES];
  float logprobs[MOST_BYTES];
  int32_t count;
  enum request_end end;
};

/* What the client got. */
struct got {
  struct buffer text;
  size_t logprob_count;
  char reason[16]; /* empty: an error */
  int done_count;
};

/* The whole text, and where the first stop string begins; its end if there is none. */
static size_t expected_text(const struct said *said, const struct question *question, json_t **text) {
  struct buffer bytes = {0}, json = {0};
  for (int32_t i = 0; i < said->count; i++)
    if (said->ids[i] < SMALL_START)
      buffer_put(&bytes, small_token(said->ids[i]).bytes, small_token(said->ids[i]).length);
  buffer_put_json(&json, bytes.bytes, bytes.count);
  *text = parse(json.bytes, json.count);
  buffer_free(&bytes);
  buffer_free(&json);
  const char *whole = json_string_value(*text);
  size_t first = json_string_length(*text);
  for (int i = 0; i < question->stop_count; i++) {
    const char *found = memmem(whole, json_string_length(*text), question->stops[i], question->stop_bytes[i]);
    if (found && (size_t)(found - whole) < first) first = (size_t)(found - whole);
  }
  return first;
}

static void take_object(const char *json, size_t bytes, enum body_kind kind, bool stream, struct got *got) {
  json_t *object = parse(json, bytes);
  const json_t *choice = json_array_get(json_object_get(object, "choices"), 0);
  const json_t *message = json_object_get(choice, stream ? "delta" : "message");
  const json_t *text = kind == BODY_CHAT ? json_object_get(message, "content") : json_object_get(choice, "text");
  const json_t *lists = json_object_get(choice, "logprobs");
  const char *reason = json_string_value(json_object_get(choice, "finish_reason"));
  require(choice || json_object_get(object, "error") || json_object_get(object, "usage"), "an object of no kind");
  buffer_put(&got->text, json_string_value(text), json_string_length(text));
  got->logprob_count += json_array_size(json_object_get(lists, kind == BODY_CHAT ? "content" : "tokens"));
  require(json_array_size(json_object_get(lists, "tokens")) == json_array_size(json_object_get(lists, "text_offset")) &&
              json_array_size(json_object_get(lists, "tokens")) ==
                  json_array_size(json_object_get(lists, "token_logprobs")),
          "lists of different lengths");
  if (reason) {
    require(!*got->reason, "two finish reasons");
    snprintf(got->reason, sizeof got->reason, "%s", reason);
  }
  json_decref(object);
}

static void take_events(const struct buffer *out, enum body_kind kind, struct got *got) {
  static const char done[] = "data: [DONE]\n\n";
  for (size_t at = 0; at < out->count;) {
    const char *event = out->bytes + at, *end = memmem(event, out->count - at, "\n\n", 2);
    require(end && memcmp(event, "data: ", 6) == 0 && got->done_count == 0, "no event");
    size_t bytes = (size_t)(end - event) + 2;
    if (bytes == sizeof done - 1 && memcmp(event, done, bytes) == 0)
      got->done_count++;
    else
      take_object(event + 6, bytes - 8, kind, true, got);
    at += bytes;
  }
}

static void check_answer(struct question *question, enum body_kind kind, struct said *said, int32_t batch) {
  struct request request = {.prompt_count = (int32_t)question->prompt.count,
                            .answer = said->ids,
                            .logprobs = said->logprobs,
                            .with_logprobs = question->with_logprobs};
  struct answer answer;
  struct got got = {0};
  answer_begin(&answer, &tokenizer, question, kind, "small", 1);
  for (int32_t answered = 0; !answer.ended;) {
    struct buffer out = {0};
    bool last = batch >= said->count - answered;
    answered = last ? said->count : answered + batch;
    atomic_store(&request.answered, answered);
    if (last) atomic_store(&request.end, said->end);
    answer_read(&answer, &request, &out);
    require(!out.failed && (answer.ended || !last), "no end");
    if (question->stream)
      take_events(&out, kind, &got);
    else if (out.count > 0)
      take_object(out.bytes, out.count, kind, false, &got);
    buffer_free(&out);
  }
  bool fine = said->end == END_STOP || said->end == END_LENGTH;
  json_t *text;
  size_t bytes = expected_text(said, question, &text);
  bool stops = bytes < json_string_length(text);
  require(got.text.count <= bytes &&
              (got.text.count == 0 || memcmp(got.text.bytes, json_string_value(text), got.text.count) == 0),
          "the text is not that of the tokens");
  require(answer.status == 200 ? got.text.count == bytes : !fine, "a part of the text");
  require(answer.stopped ? stops : !stops || !fine, "stopped elsewhere than at a stop string");
  if (answer.status == 200) {
    require(strcmp(got.reason, stops || said->end == END_STOP ? "stop" : "length") == 0, "another finish reason");
    require(got.logprob_count == (question->with_logprobs ? (size_t)answer.read : 0), "the number of logprobs");
    require(got.done_count == question->stream, "a stream without [DONE]");
  }
  json_decref(text);
  buffer_free(&got.text);
  answer_free(&answer);
}

/* ---- Inputs ------------------------------------------------------------------------------------------------------ */

/* A byte is a token of one byte, but for some control codes: those are the tokens of more bytes. */
static void read_said(const uint8_t *bytes, size_t count, struct said *said) {
  enum { LONGER = SMALL_TOKENS - 256 };
  said->count = (int32_t)count;
  for (size_t i = 0; i < count; i++) {
    said->ids[i] = bytes[i] >= 1 && bytes[i] <= LONGER ? 255 + bytes[i] : bytes[i];
    said->logprobs[i] = -(float)bytes[i] / 16;
  }
}

int LLVMFuzzerInitialize(int *argument_count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argument_count, char ***arguments) {
  (void)argument_count;
  (void)arguments;
  tokenizer = open_small_tokenizer();
  require(template_find(&tokenizer, &template), "no template");
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const enum request_end ends[] = {END_STOP, END_LENGTH, END_LENGTH, END_DEADLINE};
  static struct said said;
  if (size < 1 || size > MOST_BYTES) return 0;
  enum body_kind kind = (enum body_kind)(data[0] & 3) % 3;
  const uint8_t *body_end = memchr(data + 1, '\0', size - 1);
  size_t bytes = body_end ? (size_t)(body_end - data) - 1 : size - 1;
  char *body = malloc(bytes); /* of exactly its size, so that a byte too far is seen */
  if (!body && bytes > 0) abort();
  if (bytes > 0) memcpy(body, data + 1, bytes);
  struct body_rules rules = {.template = &template, .model = "small", .most_tokens = MOST_PROMPT};
  struct question question;
  struct body_fault fault;
  if (!body_read(&rules, kind, body, bytes, &question, &fault)) {
    check_fault(&fault);
  } else {
    check_question(&question, kind);
    said.end = ends[data[0] >> 2 & 3];
    read_said(body_end ? body_end + 1 : data, body_end ? size - bytes - 2 : 0, &said);
    for (int stream = 0; stream < 2 && kind != BODY_TOKENIZE; stream++) {
      question.stream = stream;
      check_answer(&question, kind, &said, 1);
      check_answer(&question, kind, &said, 1 + (data[0] >> 4));
    }
  }
  question_free(&question);
  free(body);
  return 0;
}
