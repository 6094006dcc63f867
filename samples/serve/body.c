/* body.c - the bodies of requests (body.h). A field of OpenAI's API that this server lacks may only have the value that
 * changes nothing. Other fields are ignored, and null is as no field. */
#include "body.h"

#include <float.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "json_memory.h"

enum { MEMORY_MOST = 1 << 27, SHOWN_MOST = 60 };

struct reader {
  const struct body_rules *rules;
  enum body_kind kind;
  const json_t *body;
  struct question *question;
  struct body_fault *fault;
};

/* ---- Faults ------------------------------------------------------------------------------------------------------ */

__attribute__((format(printf, 4, 5))) static bool refuse(struct body_fault *fault, int status, const char *field,
                                                         const char *format, ...) {
  va_list values;
  va_start(values, format);
  fault->status = status;
  snprintf(fault->field, sizeof fault->field, "%s", field);
  vsnprintf(fault->message, sizeof fault->message, format, values);
  va_end(values);
  return false;
}

static bool refuse_for_memory(struct reader *reader) {
  return refuse(reader->fault, 500, "", "no memory for the body");
}

/* The beginning of a value's JSON. */
struct shown {
  size_t count;
  char bytes[SHOWN_MOST + 2]; /* one more than is shown, and a zero */
};

/* Of jansson: -1 ends the text, whose rest may be long. */
static int show(const char *bytes, size_t count, void *user) {
  struct shown *shown = user;
  const size_t room = sizeof shown->bytes - 1 - shown->count;
  const bool fits = count <= room;
  memcpy(shown->bytes + shown->count, bytes, fits ? count : room);
  shown->count += fits ? count : room;
  return fits ? 0 : -1;
}

/* False without memory. */
static bool dump(const json_t *value, struct shown *shown) {
  *shown = (struct shown){0};
  const int failed = json_dump_callback(value, show, shown,
                                        JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
  return !failed || shown->count == sizeof shown->bytes - 1;
}

static bool refuse_value(struct reader *reader, const char *field, const json_t *value, const char *expected) {
  struct shown shown;
  if (!value) return refuse(reader->fault, 400, field, "'%s' is missing, expected %s", field, expected);
  if (!dump(value, &shown)) return refuse_for_memory(reader);
  return refuse(reader->fault, 400, field, "'%s' is %.*s%s, expected %s", field, SHOWN_MOST, shown.bytes,
                shown.count > SHOWN_MOST ? "..." : "", expected);
}

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

/* NULL for null, for no field, and if this is no object. */
static const json_t *field_of(const json_t *object, const char *field) {
  const json_t *value = json_object_get(object, field);
  return json_is_null(value) ? NULL : value;
}

static bool read_flag(struct reader *reader, const char *field, bool *flag) {
  const json_t *value = field_of(reader->body, field);
  if (value && !json_is_boolean(value)) return refuse_value(reader, field, value, "true or false");
  *flag = json_is_true(value);
  return true;
}

static bool read_number(struct reader *reader, const char *field, double least, double most, const char *expected,
                        float *number) {
  const json_t *value = field_of(reader->body, field);
  if (!value) return true;
  double read = json_number_value(value);
  if (!json_is_number(value) || !(read >= least && read <= most)) return refuse_value(reader, field, value, expected);
  *number = (float)read;
  return true;
}

static bool read_count(struct reader *reader, const char *field, int64_t *count) {
  const json_t *value = field_of(reader->body, field);
  if (!value) return true;
  json_int_t read = json_integer_value(value);
  if (read < 1 || read > INT32_MAX) return refuse_value(reader, field, value, "an integer from 1 to 2147483647");
  *count = read;
  return true;
}

static bool read_seed(struct reader *reader) {
  const json_t *value = field_of(reader->body, "seed");
  if (value && !json_is_integer(value)) return refuse_value(reader, "seed", value, "an integer");
  reader->question->seeded = value;
  reader->question->seed = (int32_t)(uint32_t)json_integer_value(value);
  return true;
}

static bool read_stop(struct reader *reader, const char *field, const json_t *value) {
  struct question *question = reader->question;
  size_t bytes = json_string_length(value); /* 0 of what is no string */
  if (bytes < 1 || bytes >= STOP_BYTES_MOST)
    return refuse_value(reader, field, value, "a string of 1 to 127 bytes, or an array of them");
  question->stop_bytes[question->stop_count] = (uint32_t)bytes;
  memcpy(question->stops[question->stop_count++], json_string_value(value), bytes);
  return true;
}

static bool read_stops(struct reader *reader) {
  const json_t *value = field_of(reader->body, "stop");
  size_t count = json_array_size(value);
  if (!value) return true;
  if (!json_is_array(value)) return read_stop(reader, "stop", value);
  if (count > STOPS_MOST) return refuse_value(reader, "stop", value, "at most 4 strings");
  for (size_t i = 0; i < count; i++) {
    char field[BODY_FIELD_BYTES];
    snprintf(field, sizeof field, "stop[%zu]", i);
    if (!read_stop(reader, field, json_array_get(value, i))) return false;
  }
  return true;
}

/* Of a completion it is a number: how many of the likeliest tokens to tell besides the drawn one. */
static bool read_logprobs(struct reader *reader) {
  if (reader->kind == BODY_CHAT) return read_flag(reader, "logprobs", &reader->question->with_logprobs);
  const json_t *value = field_of(reader->body, "logprobs");
  json_int_t count = json_integer_value(value);
  if (value && (!json_is_integer(value) || count < 0 || count > 1))
    return refuse_value(reader, "logprobs", value, "0 or 1: those of the drawn tokens");
  reader->question->with_logprobs = value;
  return true;
}

static bool read_stream(struct reader *reader) {
  const json_t *options = field_of(reader->body, "stream_options"), *usage = field_of(options, "include_usage");
  if (options && !json_is_object(options)) return refuse_value(reader, "stream_options", options, "an object");
  if (usage && !json_is_boolean(usage))
    return refuse_value(reader, "stream_options.include_usage", usage, "true or false");
  reader->question->with_usage = json_is_true(usage);
  return read_flag(reader, "stream", &reader->question->stream);
}

static bool read_model(struct reader *reader) {
  const json_t *value = field_of(reader->body, "model");
  const char *name = value ? json_string_value(value) : "";
  if (!name) return refuse_value(reader, "model", value, "a string");
  if (!*name || strcmp(name, reader->rules->model) == 0) return true;
  return refuse(reader->fault, 404, "model", "The model `%.128s` does not exist or you do not have access to it.",
                name);
}

/* Is this the value, which is written as JSON? 0.0 is 0. */
static bool is_written(const char *json, const char *value) {
  size_t length = strlen(value);
  return strncmp(json, value, length) == 0 && (!json[length] || strcmp(json + length, ".0") == 0);
}

static bool read_unsupported(struct reader *reader) {
  static const struct {
    const char *field, *value;
    bool of_chat, of_completion;
  } fields[] = {{"n", "1", true, true},
                {"best_of", "1", false, true},
                {"echo", "false", false, true},
                {"suffix", "\"\"", false, true},
                {"frequency_penalty", "0", true, true},
                {"presence_penalty", "0", true, true},
                {"logit_bias", "{}", true, true},
                {"top_logprobs", "0", true, false},
                {"response_format", "{\"type\":\"text\"}", true, false},
                {"tools", "[]", true, false},
                {"tool_choice", "\"none\"", true, false},
                {"functions", "[]", true, false},
                {"function_call", "\"none\"", true, false}};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    const json_t *value = field_of(reader->body, fields[i].field);
    if (!value || !(reader->kind == BODY_CHAT ? fields[i].of_chat : fields[i].of_completion)) continue;
    struct shown shown;
    char expected[64];
    if (!dump(value, &shown)) return refuse_for_memory(reader);
    bool fine = is_written(shown.bytes, fields[i].value);
    snprintf(expected, sizeof expected, "%s: anything else is not supported", fields[i].value);
    if (!fine) return refuse_value(reader, fields[i].field, value, expected);
  }
  return true;
}

static bool read_options(struct reader *reader) {
  struct question *question = reader->question;
  return read_unsupported(reader) && read_stream(reader) && read_logprobs(reader) && read_stops(reader) &&
         read_seed(reader) && read_count(reader, "max_tokens", &question->max_tokens) &&
         read_count(reader, "max_completion_tokens", &question->max_tokens) &&
         read_number(reader, "temperature", 0, 2, "a number from 0 to 2", &question->temperature) &&
         read_number(reader, "top_p", FLT_MIN, 1, "a number above 0 and at most 1", &question->top_p);
}

/* ---- Prompts ----------------------------------------------------------------------------------------------------- */

/* The role's name in the template; NULL if it has none. */
static const char *role_of(const json_t *message) {
  static const char *const roles[][2] = {
      {"system", "system"}, {"developer", "system"}, {"user", "user"}, {"assistant", "assistant"}};
  const char *name = json_string_value(field_of(message, "role"));
  for (size_t i = 0; name && i < sizeof roles / sizeof *roles; i++)
    if (strcmp(name, roles[i][0]) == 0) return roles[i][1];
  return NULL;
}

static bool is_role(const json_t *message, const char *role) {
  const char *found = role_of(message);
  return found && strcmp(found, role) == 0;
}

/* The text of a message: a string, or the texts of parts, one after the other. */
static bool read_content(struct reader *reader, const char *field, const json_t *content, struct buffer *text) {
  static const char expected[] = "a string, or an array of {\"type\": \"text\", \"text\": string}";
  if (json_is_string(content)) {
    buffer_put(text, json_string_value(content), json_string_length(content));
  } else if (json_is_array(content)) {
    for (size_t i = 0; i < json_array_size(content); i++) {
      const json_t *part = json_array_get(content, i), *string = field_of(part, "text");
      const char *type = json_string_value(field_of(part, "type"));
      if (!type || strcmp(type, "text") != 0 || !json_is_string(string))
        return refuse_value(reader, field, content, expected);
      buffer_put(text, json_string_value(string), json_string_length(string));
    }
  } else {
    return refuse_value(reader, field, content, expected);
  }
  return !text->failed || refuse_for_memory(reader);
}

/* A text that surely has too many tokens is not encoded: that would keep the thread from its other clients. */
static bool check_text(struct reader *reader, const char *field, size_t bytes) {
  const int64_t most = (int64_t)reader->rules->template->tokenizer->vocabulary.longest * reader->rules->most_tokens;
  return (int64_t)bytes <= most || refuse(reader->fault, 413, field, "'%s' has %zu bytes, more than %lld tokens have",
                                          field, bytes, (long long)reader->rules->most_tokens);
}

/* An answer of before has the tokens that it had when the model gave it. */
static bool put_message(const struct template *template, const char *role, const struct buffer *content,
                        struct tokens *tokens) {
  const char *text = content->bytes ? content->bytes : "";
  if (strcmp(role, "assistant") != 0) return template_message(template, role, text, content->count, tokens);
  return template_answer(template, tokens) &&
         tokenizer_encode(template->tokenizer, text, content->count, SPECIALS_ARE_TEXT, tokens) &&
         template_answered(template, -1, tokens);
}

static bool read_message(struct reader *reader, size_t index, const json_t *message) {
  char field[BODY_FIELD_BYTES];
  const char *role = role_of(message);
  snprintf(field, sizeof field, "messages[%zu].role", index);
  if (!role)
    return refuse_value(reader, field, field_of(message, "role"),
                        "\"system\", \"developer\", \"user\" or \"assistant\"");
  snprintf(field, sizeof field, "messages[%zu].content", index);
  struct buffer text = {0};
  bool fine =
      read_content(reader, field, field_of(message, "content"), &text) && check_text(reader, "messages", text.count);
  if (fine && !put_message(reader->rules->template, role, &text, &reader->question->prompt))
    fine = refuse_for_memory(reader);
  buffer_free(&text);
  return fine;
}

static bool read_messages(struct reader *reader) {
  const struct template *template = reader->rules->template;
  struct tokens *prompt = &reader->question->prompt;
  const json_t *messages = field_of(reader->body, "messages");
  size_t count = json_array_size(messages);
  if (count == 0) return refuse_value(reader, "messages", messages, "an array of at least one message");
  if (is_role(json_array_get(messages, count - 1), "assistant"))
    return refuse(reader->fault, 400, "messages", "the last message is the assistant's, expected one that it answers");
  if (!template_begin(template, prompt)) return refuse_for_memory(reader);
  if (!is_role(json_array_get(messages, 0), "system") &&
      !template_message(template, "system", template_default_system, strlen(template_default_system), prompt))
    return refuse_for_memory(reader);
  for (size_t i = 0; i < count && prompt->count <= prompt->most; i++)
    if (!read_message(reader, i, json_array_get(messages, i))) return false;
  return template_answer(template, prompt) || refuse_for_memory(reader);
}

/* Special tokens may be among ids: a program made them, not a user's text. */
static bool read_ids(struct reader *reader, const json_t *ids) {
  int32_t token_count = reader->rules->template->tokenizer->vocabulary.token_count;
  for (size_t i = 0; i < json_array_size(ids); i++) {
    const json_t *id = json_array_get(ids, i);
    json_int_t token = json_integer_value(id);
    if (!json_is_integer(id) || token < 0 || token >= token_count) {
      char field[BODY_FIELD_BYTES], expected[64];
      snprintf(field, sizeof field, "prompt[%zu]", i);
      snprintf(expected, sizeof expected, "the id of a token, from 0 to %d", token_count - 1);
      return refuse_value(reader, field, id, expected);
    }
    if (!tokens_push(&reader->question->prompt, (int32_t)token)) return refuse_for_memory(reader);
  }
  return true;
}

static bool read_text(struct reader *reader, const char *field, const json_t *text) {
  if (!check_text(reader, field, json_string_length(text))) return false;
  return tokenizer_encode(reader->rules->template->tokenizer, json_string_value(text), json_string_length(text),
                          SPECIALS_ARE_TEXT, &reader->question->prompt) ||
         refuse_for_memory(reader);
}

static bool read_prompt(struct reader *reader) {
  struct tokens *prompt = &reader->question->prompt;
  const json_t *value = field_of(reader->body, "prompt"), *only = json_array_get(value, 0);
  int32_t begin = reader->rules->template->tokenizer->vocabulary.begin;
  if (json_array_size(value) == 1 && !json_is_integer(only)) value = only; /* an array with one prompt */
  bool is_text = json_is_string(value);
  if (!is_text && (!json_is_array(value) || json_is_string(only)))
    return refuse_value(reader, "prompt", value, "one string, or an array of the ids of tokens");
  if (is_text && begin >= 0 && !tokens_push(prompt, begin)) return refuse_for_memory(reader);
  if (is_text ? !read_text(reader, "prompt", value) : !read_ids(reader, value)) return false;
  return prompt->count > 0 || refuse_value(reader, "prompt", value, "at least one token");
}

static const char *field_of_text(const struct reader *reader) {
  if (reader->kind == BODY_CHAT) return "messages";
  return reader->kind == BODY_TOKENIZE && field_of(reader->body, "content") ? "content" : "prompt";
}

static bool read_text_alone(struct reader *reader) {
  const char *field = field_of_text(reader);
  const json_t *text = field_of(reader->body, field);
  return json_is_string(text) ? read_text(reader, field, text) : refuse_value(reader, field, text, "a string");
}

/* ---- Bodies ------------------------------------------------------------------------------------------------------ */

static bool read_fields(struct reader *reader) {
  if (!read_model(reader)) return false;
  if (reader->kind == BODY_TOKENIZE) return read_text_alone(reader);
  return read_options(reader) && (reader->kind == BODY_CHAT ? read_messages(reader) : read_prompt(reader));
}

static bool read_all(struct reader *reader) {
  struct tokens *prompt = &reader->question->prompt;
  const char *field = field_of_text(reader);
  prompt->most = (size_t)reader->rules->most_tokens;
  if (!json_is_object(reader->body)) return refuse(reader->fault, 400, "", "the body is an array, expected an object");
  if (!read_fields(reader)) return false;
  return prompt->count <= prompt->most ||
         refuse(reader->fault, 413, field, "'%s' has more than %zu tokens", field, prompt->most);
}

bool body_read(const struct body_rules *rules, enum body_kind kind, const char *bytes, size_t count,
               struct question *question, struct body_fault *fault) {
  json_error_t error;
  *question = (struct question){.temperature = 1, .top_p = 1};
  *fault = (struct body_fault){0};
  bool lacks_memory;
  json_memory_begin(rules->most_memory ? rules->most_memory : MEMORY_MOST);
  const json_t *body = json_memory_read(bytes, count, &error, &lacks_memory);
  struct reader reader = {rules, kind, body, question, fault};
  bool fine = body && read_all(&reader);
  if (lacks_memory)
    refuse_for_memory(&reader);
  else if (!body)
    refuse(fault, 400, "", "the body is no JSON: line %d, column %d: %s", error.line, error.column, error.text);
  json_memory_end();
  if (!fine) question_free(question);
  return fine;
}

void question_free(struct question *question) {
  tokens_free(&question->prompt);
  *question = (struct question){0};
}
